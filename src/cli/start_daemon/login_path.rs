//! The PATH that the user's own shell would have.
//!
//! Asks the login shell once. Profiles print banners, read standard input, hang, and leave jobs
//! behind that keep our pipe open; none of that may reach a host or cost more than the wait. What
//! is wanted stands between two marks, and nothing else is looked at.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::cli::clock::Deadline;
use crate::config::environment::Environment;

/// How long the shell may take.
const WAIT: Duration = Duration::from_secs(5);
/// How much a profile may say before we stop listening.
const OUTPUT_LIMIT_BYTES: usize = 1 << 20;
/// Stands before and after the value.
const MARK: &str = "__mcpd_path__";

/// Where commands are looked for if nobody knows better.
pub(crate) const DEFAULT_PATH: &str =
    "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The PATH of the login shell of a user, `SHELL` or the one that is `listed` for them, or `None` if it could not be had in time. The caller
/// has a session of its own, so that the shell finds no terminal to speak to.
pub(crate) fn ask_login_shell(environment: &Environment, listed: &Path) -> Option<OsString> {
    let named = environment.get_filled("SHELL").map(Path::new);
    let shell = named.unwrap_or(listed);
    if !shell.is_absolute() {
        return None;
    }
    let (reader, writer) = io::pipe().ok()?;
    let mut child = command(shell, environment)
        .stdout(Stdio::from(OwnedFd::from(writer)))
        .spawn()
        .ok()?;
    let said = listen(File::from(OwnedFd::from(reader)), Deadline::after(WAIT));
    finish(&mut child, said.is_some());
    said
}

fn command(shell: &Path, environment: &Environment) -> Command {
    let kind = shell.file_name().and_then(|name| name.to_str());
    // Version managers hook themselves into the files of interactive shells; csh takes no -l
    // together with -c.
    let flags: &[&str] = match kind {
        Some("csh" | "tcsh") => &["-c"],
        _ => &["-i", "-l", "-c"],
    };
    let mut command = Command::new(shell);
    command
        .args(flags)
        .arg(format!("printf '\\n{MARK}%s{MARK}\\n' \"$PATH\""))
        .env_clear()
        .envs(environment.iter())
        // Profiles that look commands up need some PATH to begin with.
        .env("PATH", DEFAULT_PATH)
        .env("TERM", "dumb")
        .current_dir("/")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0);
    command
}

/// Reads until the value is complete. The pipe's end may never come: a background job holds it.
fn listen(mut pipe: File, deadline: Deadline) -> Option<OsString> {
    let mut output = Vec::new();
    let mut buffer = [0; 4096];
    while output.len() < OUTPUT_LIMIT_BYTES {
        if !is_readable(&pipe, deadline.left()) {
            return None;
        }
        match pipe.read(&mut buffer) {
            Ok(0) => return None,
            Ok(count) => output.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return None,
        }
        if let Some(value) = marked(&output) {
            return usable(value);
        }
    }
    None
}

fn is_readable(pipe: &File, wait: Duration) -> bool {
    let timeout = PollTimeout::try_from(wait).unwrap_or(PollTimeout::MAX);
    let mut polled = [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)];
    !wait.is_zero() && poll(&mut polled, timeout).is_ok_and(|ready| ready > 0)
}

/// What stands between the marks.
fn marked(output: &[u8]) -> Option<&[u8]> {
    let mark = MARK.as_bytes();
    let start = memchr::memmem::find(output, mark)? + mark.len();
    let len = memchr::memmem::find(&output[start..], mark)?;
    Some(&output[start..start + len])
}

/// The absolute folders of `value`; a relative one would mean something else in each directory.
fn usable(value: &[u8]) -> Option<OsString> {
    let folders: Vec<&[u8]> = value
        .split(|byte| *byte == b':')
        .filter(|folder| folder.starts_with(b"/"))
        .collect();
    (!folders.is_empty()).then(|| OsString::from_vec(folders.join(&b':')))
}

/// Leaves no shell behind. One that has answered goes by itself; its jobs are the user's.
fn finish(child: &mut Child, answered: bool) {
    if !answered {
        // The child is not reaped, so its number cannot have become another group's.
        let group = nix::unistd::Pid::from_raw(-child.id().cast_signed());
        _ = nix::sys::signal::kill(group, nix::sys::signal::Signal::SIGKILL);
    }
    // An error means only that there is nothing to reap yet; init will.
    drop(child.try_wait());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is found if a profile and then our command say `output`, in pieces.
    fn check(output: &[u8], expected: Option<&str>) {
        let found = marked(output).and_then(usable);
        assert_eq!(found, expected.map(OsString::from));
    }

    #[test]
    fn banners_and_later_noise_do_not_matter() {
        check(
            b"Welcome!\n\x1b[1mnews\x1b[0m\n__mcpd_path__/a:/b__mcpd_path__\nbye",
            Some("/a:/b"),
        );
    }

    #[test]
    fn without_both_marks_there_is_nothing_yet() {
        check(b"banner", None);
        check(b"__mcpd_path__/a", None);
    }

    #[test]
    fn only_absolute_folders_count() {
        check(b"__mcpd_path__.:/a::b__mcpd_path__", Some("/a"));
        check(b"__mcpd_path__.__mcpd_path__", None);
    }

    fn ask(profile: &str) -> Option<OsString> {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join(".profile"), profile).unwrap();
        let environment: Environment = [("HOME", home.path())].into_iter().collect();
        ask_login_shell(&environment, Path::new("/bin/sh"))
    }

    #[test]
    fn a_noisy_profile_that_reads_input_and_leaves_a_job_is_survived() {
        let path = ask("echo banner; read line; sleep 1 & PATH=/opt/x:$PATH; export PATH");
        let path = path.unwrap().into_string().unwrap();
        assert!(path.starts_with("/opt/x:"), "{path}");
    }

    #[test]
    fn a_profile_that_ends_the_shell_gives_nothing() {
        assert_eq!(ask("exit 3"), None);
    }
}
