//! Whether this process lives where the user's own programs do.
//!
//! Decides whether a daemon that it starts would be of any use to others: in another mount, user or
//! pid namespace than the user's systemd it would see other files and end with the sandbox. Looks
//! only; where nothing can be known nothing is refused.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};

use crate::cli::error::CliError;
use crate::cli::places::Places;

/// What is compared, as in `/proc/PID/ns`, and what it is called.
const NAMESPACES: [(&str, &str); 3] = [("mnt", "mount"), ("user", "user"), ("pid", "pid")];
/// What a sandbox puts into the root of the files that it shows.
const MARKS: [(&str, &str); 1] = [("/.flatpak-info", "flatpak")];

/// The error of a process that has to start nothing, if this is one.
pub(super) fn refusal(places: &Places) -> Option<CliError> {
    let reason = sandbox().or_else(|| {
        let pid = manager_pid(places)?;
        let (ours, theirs) = (namespaces("self"), namespaces(&pid.to_string()));
        let kind = match pid {
            0 => Some("pid"),
            pid => differing(&ours, &theirs).or_else(|| has_other_users(pid).then_some("user")),
        };
        kind.map(|kind| format!("its {kind} namespace is not that of the user's systemd"))
    })?;
    let message = format!(
        "no daemon is running, and this program does not start one from a sandbox: {reason}"
    );
    Some(CliError::unreachable(message).hint(
        "start one outside, where your other programs run: `mcpd daemon --detach`, or `mcpd service install` once",
    ))
}

fn sandbox() -> Option<String> {
    let mark = MARKS.iter().find(|(file, _)| Path::new(file).exists());
    mark.map(|(file, name)| format!("it runs in {name} ({file} is there)"))
}

/// The process that listens as the user's systemd, if one does: 0 where it cannot be seen from our
/// pid namespace (unix(7), `SO_PEERCRED`).
fn manager_pid(places: &Places) -> Option<i32> {
    let folder = places.paths.runtime_dir().parent()?;
    let stream = UnixStream::connect(folder.join("systemd/private")).ok()?;
    Some(getsockopt(&stream, PeerCredentials).ok()?.pid())
}

/// Whether the process numbers users in another way. Unlike the links below this can be read from
/// within a user namespace, and of a process with more capabilities than ours (user_namespaces(7)).
fn has_other_users(pid: i32) -> bool {
    let map = |process: &str| fs::read_to_string(format!("/proc/{process}/uid_map")).ok();
    match (map("self"), map(&pid.to_string())) {
        (Some(ours), Some(theirs)) => ours != theirs,
        _ => false,
    }
}

/// Links that are equal where two processes share a namespace (namespaces(7)).
fn namespaces(process: &str) -> [Option<PathBuf>; 3] {
    NAMESPACES.map(|(name, _)| fs::read_link(format!("/proc/{process}/ns/{name}")).ok())
}

/// The first kind that differs, as far as both are known.
fn differing(ours: &[Option<PathBuf>; 3], theirs: &[Option<PathBuf>; 3]) -> Option<&'static str> {
    let pairs = ours.iter().zip(theirs).zip(NAMESPACES);
    let mut different =
        pairs.filter(|((ours, theirs), _)| ours.is_some() && theirs.is_some() && ours != theirs);
    different.next().map(|(_, (_, name))| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_known_to_differ_counts() {
        let of = |numbers: [Option<u32>; 3]| {
            numbers.map(|number| number.map(|number| PathBuf::from(format!("x:[{number}]"))))
        };
        let check = |ours, theirs, expected| {
            assert_eq!(differing(&of(ours), &of(theirs)), expected);
        };
        let one = [Some(1), Some(2), Some(3)];
        check(one, one, None);
        check(one, [Some(9), Some(2), Some(3)], Some("mount"));
        check(one, [Some(1), Some(9), Some(9)], Some("user"));
        check(one, [None, None, Some(9)], Some("pid"));
        check(one, [None; 3], None);
    }

    #[test]
    fn a_process_shares_its_own_namespaces() {
        let own = namespaces("self");
        assert!(own.iter().all(Option::is_some));
        let pid = std::process::id();
        assert_eq!(differing(&own, &namespaces(&pid.to_string())), None);
        assert!(!has_other_users(pid.cast_signed()));
    }
}
