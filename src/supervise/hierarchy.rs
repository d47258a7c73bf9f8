//! What the kernel's texts tell of control groups (`cgroups(7)`, version 2), and how ours are named.
//!
//! Text in, paths and numbers out. Decides which mounted folder is a process's own group, which
//! folders below a group are leaves of servers, and how an instance's leaf is called. Never touches
//! a group: [`cgroup`](super::cgroup) does.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

/// Where the daemon itself stands, beside the leaves. A group that has processes of its own can
/// give no controller to those below it.
pub const SUPERVISOR: &str = "supervisor";
/// What the name of every leaf begins with; whatever else stands in the group is somebody else's.
const LEAF_PREFIX: &str = "server-";
/// The longest name of a leaf, below the 255 bytes of a file's name.
const LEAF_NAME_LIMIT_BYTES: usize = 200;

/// How surely all that comes from a server is found again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Containment {
    /// By group, session, descent and tag; orphans go to somebody else.
    Group,
    /// Orphans come to the daemon too.
    Subreaper,
    /// Each run has a control group that nobody leaves unseen.
    Cgroup,
}

impl Containment {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Group => "group",
            Self::Subreaper => "subreaper",
            Self::Cgroup => "cgroup",
        }
    }
}

/// The version 2 group in `text`, which is that of `/proc/PID/cgroup`.
pub fn own_group(text: &str) -> Option<&Path> {
    let group = text.lines().find_map(|line| line.strip_prefix("0::"))?;
    // A process whose group was removed keeps a name that leads nowhere.
    (!group.ends_with(" (deleted)")).then_some(Path::new(group))
}

/// The folder in which the group `own` can be seen, from the text of `/proc/self/mountinfo`
/// (`proc_pid_mountinfo(5)`).
pub fn folder_of(own: &Path, mountinfo: &str) -> Option<PathBuf> {
    let mut mounts = mountinfo.lines().rev().filter_map(|line| {
        let (mount, system) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(3);
        let (root, place) = (unescape(fields.next()?), unescape(fields.next()?));
        let is_version_2 = system.split(' ').next() == Some("cgroup2");
        let below = own.strip_prefix(&root).ok().filter(|_| is_version_2)?;
        // Of a group outside of our namespace nothing is said but how far up it is.
        let is_inside = !below.components().any(|part| part == Component::ParentDir);
        is_inside.then(|| match below.as_os_str().is_empty() {
            true => place,
            false => place.join(below),
        })
    });
    // The last one mounted is the one that is seen.
    mounts.next()
}

/// A path of `mountinfo`: blanks and the like are octal numbers there.
fn unescape(field: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        let octal = after.get(..3).filter(|_| *byte == b'\\');
        let number = octal
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match number {
            Some(number) => {
                bytes.push(number);
                rest = &after[3..];
            }
            None => {
                bytes.push(*byte);
                rest = after;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

/// The group that was given to us where we stand in `own`: a service manager or an earlier start
/// may have put us one below it already.
pub fn given_group(own: &Path) -> &Path {
    match own.file_name() {
        Some(name) if name == SUPERVISOR => own.parent().unwrap_or(own),
        _ => own,
    }
}

/// The name of the leaf for the run with the tag `RUN/INSTANCE/GENERATION`; the `attempt` tells
/// leaves apart that would have one name. None for a run without a tag.
pub fn leaf_name(tag: &str, attempt: usize) -> Option<String> {
    let (_, run) = tag.split_once('/')?;
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '@' | '#');
    // The end says which generation it is, so a name that is too long loses its beginning.
    let mut name: Vec<char> = run
        .chars()
        .map(|c| if plain(c) { c } else { '-' })
        .collect();
    let surplus = name.len().saturating_sub(LEAF_NAME_LIMIT_BYTES);
    name.drain(..surplus);
    let name: String = name.into_iter().collect();
    Some(match attempt {
        0 => format!("{LEAF_PREFIX}{name}"),
        attempt => format!("{LEAF_PREFIX}{name}.{attempt}"),
    })
}

/// Whether a folder below our group is a leaf of a server.
pub fn is_leaf_name(name: &std::ffi::OsStr) -> bool {
    name.as_bytes().starts_with(LEAF_PREFIX.as_bytes())
}

/// The number that belongs to `key` in a text of `KEY NUMBER` lines.
pub fn number_of(text: &str, key: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| {
        let (name, value) = line.split_once(' ')?;
        (name == key).then_some(value)
    })?;
    value.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLICE: &str = "/user.slice/user-1000.slice/user@1000.service/app.slice";

    #[test]
    fn the_own_group_is_that_of_version_2() {
        let check = |text: &str, expected: Option<&str>| {
            assert_eq!(own_group(text), expected.map(Path::new), "{text}");
        };
        check("0::/\n", Some("/"));
        check(
            "4:memory:/x\n1:name=systemd:/y\n0::/a b/c\n",
            Some("/a b/c"),
        );
        check("4:memory:/x\n", None);
        check("0::/gone (deleted)\n", None);
        check("", None);
    }

    #[test]
    fn the_folder_is_where_the_group_is_mounted() {
        let check = |own: &str, mountinfo: &str, expected: Option<&str>| {
            let found = folder_of(Path::new(own), mountinfo);
            assert_eq!(
                found.as_deref(),
                expected.map(Path::new),
                "{own}: {mountinfo}"
            );
        };
        let unified = "30 23 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate";
        check("/", unified, Some("/sys/fs/cgroup"));
        check(SLICE, unified, Some(&format!("/sys/fs/cgroup{SLICE}")));
        let hybrid = "40 31 0:37 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
        check("/a", hybrid, Some("/sys/fs/cgroup/unified/a"));
        let part = "41 31 0:38 /box /sys/fs/my\\040group rw - cgroup2 none rw\n";
        check("/box/a", part, Some("/sys/fs/my group/a"));
        check("/box", part, Some("/sys/fs/my group"));
        check("/other/a", part, None);
        check("/boxes", part, None);
        check("/../outside", unified, None);
        check("/a", "41 31 0:38 / /x rw - tmpfs cgroup2 rw", None);
        check("/a", "garbage", None);
    }

    #[test]
    fn the_given_group_is_above_our_own_place() {
        let check = |own: &str, expected: &str| {
            assert_eq!(given_group(Path::new(own)), Path::new(expected));
        };
        check("/a/mcpd.service", "/a/mcpd.service");
        check("/a/mcpd.service/supervisor", "/a/mcpd.service");
        check("/supervisor", "/");
        check("/", "/");
    }

    #[test]
    fn leaves_are_known_by_their_names() {
        let check = |tag: &str, attempt, expected: Option<&str>| {
            let name = leaf_name(tag, attempt);
            assert_eq!(name.as_deref(), expected, "{tag}");
            assert!(name.is_none_or(|name| is_leaf_name(name.as_ref())));
        };
        check("0a/calc/3", 0, Some("server-calc-3"));
        check("0a/calc/3", 2, Some("server-calc-3.2"));
        check("0a/a.b#2@/home/ä x/7", 0, Some("server-a.b#2@-home---x-7"));
        check("", 0, None);
        let long = leaf_name(&format!("0a/{}/12", "n".repeat(400)), 1).unwrap();
        assert!(long.len() < 255 && long.ends_with("n-12.1"), "{long}");
        for other in ["supervisor", "cgroup.procs", "init.scope", "my-server-1"] {
            assert!(!is_leaf_name(other.as_ref()), "{other}");
        }
    }

    #[test]
    fn numbers_stand_behind_their_keys() {
        let events = "low 0\noom 2\noom_kill 1\n";
        assert_eq!(number_of(events, "oom_kill"), Some(1));
        assert_eq!(number_of(events, "oom"), Some(2));
        assert_eq!(number_of(events, "oom_group_kill"), None);
        assert_eq!(number_of("populated x\n", "populated"), None);
    }
}
