//! Watches folders for what may be an edit of the configuration, by inotify(7).
//!
//! It arms the kernel's watches for the folders of a [`WatchSet`] and turns what the kernel says
//! into [`Hint`]s; names that concern nobody are passed over. It decides nothing, and reads no
//! file. Writes are heard of when the writer closes the file: before that nobody should look.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{self, CreateFlags, Event, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;

use super::lookout::{Coverage, Hint};
use super::watch_set::{Interest, Node, WatchSet};

/// Bytes of events that are read at once.
const BUFFER_BYTES: usize = 16 << 10;
/// Events of one turn; the rest is read in the next.
const BURST: usize = 4_096;
/// Folders that are named where they cannot be watched.
const REFUSED_LIMIT: usize = 5;

/// The kernel's watches of one daemon.
#[derive(Debug)]
pub struct Watcher {
    inotify: OwnedFd,
    watches: BTreeMap<i32, Watch>,
}

#[derive(Debug)]
struct Watch {
    folder: PathBuf,
    interest: Interest,
}

/// What came of arming.
#[derive(Debug, Default)]
pub struct Armed {
    /// Whether something is watched that was not before: what happened to it until now was not
    /// heard of.
    pub is_wider: bool,
    pub coverage: Coverage,
    /// What cannot be watched and why, for people.
    pub warning: Option<String>,
}

/// What was heard in one turn.
#[derive(Debug)]
pub struct Heard {
    pub hints: Vec<Hint>,
    /// Whether nothing more is waiting.
    pub is_all: bool,
}

impl Watcher {
    /// A watcher that watches nothing yet.
    ///
    /// # Errors
    /// The user has no instance left (`EMFILE`), or the process no descriptor.
    pub fn open() -> io::Result<Self> {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        Ok(Self {
            inotify,
            watches: BTreeMap::new(),
        })
    }

    /// Watches the folders of `set` and no others.
    pub fn arm(&mut self, set: &WatchSet) -> Armed {
        let before = std::mem::take(&mut self.watches);
        let mut armed = Armed::default();
        let mut refused = Vec::new();
        let mut is_exhausted = false;
        for (folder, interest) in &set.folders {
            match self.add(folder, interest) {
                Ok(watch) => armed.is_wider |= !before.contains_key(&watch),
                // It has just gone, or become something else: the next look knows better.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => armed.is_wider = true,
                Err(Errno::NOSPC | Errno::NOMEM) => is_exhausted = true,
                // That it stays in its place is not known, then.
                Err(_) if interest.is_of_itself_only() => {}
                Err(error) => refused.push((folder, error)),
            }
        }
        for old in before.keys().filter(|old| !self.watches.contains_key(old)) {
            // The folder may have gone, and its watch with it.
            inotify::remove_watch(&self.inotify, *old).unwrap_or(());
        }
        (armed.coverage, armed.warning) = coverage(set, is_exhausted, &refused);
        armed
    }

    /// Several paths may lead to one folder: whatever matters by any of them matters.
    fn add(&mut self, folder: &Path, interest: &Interest) -> Result<i32, Errno> {
        let mut flags = WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR
            | WatchFlags::DONT_FOLLOW;
        if !interest.is_of_itself_only() {
            flags |= WatchFlags::CREATE
                | WatchFlags::DELETE
                | WatchFlags::MOVED_FROM
                | WatchFlags::MOVED_TO
                | WatchFlags::CLOSE_WRITE
                | WatchFlags::ATTRIB;
        }
        let watch = inotify::add_watch(&self.inotify, folder, flags)?;
        match self.watches.get_mut(&watch) {
            None => {
                let (folder, interest) = (folder.to_owned(), interest.clone());
                self.watches.insert(watch, Watch { folder, interest });
            }
            Some(known) => {
                let flags = flags | WatchFlags::MASK_ADD;
                known.interest.join(interest);
                inotify::add_watch(&self.inotify, folder, flags)?;
            }
        }
        Ok(watch)
    }

    /// What has happened since the last time.
    ///
    /// # Errors
    /// The descriptor cannot be read.
    pub fn read(&self) -> io::Result<Heard> {
        let mut buffer = [MaybeUninit::uninit(); BUFFER_BYTES];
        let mut reader = Reader::new(&self.inotify, &mut buffer);
        let mut heard = Heard {
            hints: Vec::new(),
            is_all: false,
        };
        let mut left = BURST;
        // What is in the buffer belongs to this turn.
        while left > 0 || !reader.is_buffer_empty() {
            left = left.saturating_sub(1);
            match reader.next() {
                Ok(event) => heard.hints.extend(self.hint(&event)),
                Err(Errno::AGAIN) => {
                    heard.is_all = true;
                    break;
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(heard)
    }

    fn hint(&self, event: &Event<'_>) -> Option<Hint> {
        let what = event.events();
        if what.contains(ReadFlags::QUEUE_OVERFLOW) {
            return Some(Hint::Changed);
        }
        let watch = self.watches.get(&event.wd())?;
        // Without a name it is about the folder itself.
        let Some(name) = event.file_name() else {
            return Some(Hint::Changed);
        };
        let name = OsStr::from_bytes(name.to_bytes());
        if !watch.interest.concerns(name) {
            return None;
        }
        let path = watch.folder.join(name);
        if what.contains(ReadFlags::CLOSE_WRITE) {
            return Some(Hint::Closed(path));
        }
        // Links and folders are complete as they come; a file will be closed by whoever made it.
        let is_new_file = what.contains(ReadFlags::CREATE)
            && fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_file());
        Some(match is_new_file {
            true => Hint::Opened(path),
            false => Hint::Changed,
        })
    }
}

/// The descriptor that becomes readable when something has happened.
impl AsFd for Watcher {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

/// What stands at `path`, the link itself where there is one.
pub fn look_at(path: &Path) -> Node {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => Node::Folder,
        Ok(metadata) if metadata.is_symlink() => match fs::read_link(path) {
            Ok(target) => Node::Link(target),
            Err(_) => Node::Missing,
        },
        Ok(_) => Node::File,
        Err(_) => Node::Missing,
    }
}

fn coverage(
    set: &WatchSet,
    is_exhausted: bool,
    refused: &[(&PathBuf, Errno)],
) -> (Coverage, Option<String>) {
    if is_exhausted {
        let warning = "no inotify watch is left (sysctl fs.inotify.max_user_watches)";
        return (Coverage::None, Some(warning.to_owned()));
    }
    let mut reasons: Vec<String> = refused
        .iter()
        .take(REFUSED_LIMIT)
        .map(|(folder, error)| {
            let error = io::Error::from(*error);
            format!("{} cannot be watched: {error}", folder.display())
        })
        .collect();
    if refused.len() > REFUSED_LIMIT {
        reasons.push(format!(
            "{} more cannot be watched",
            refused.len() - REFUSED_LIMIT
        ));
    }
    if set.is_cut {
        reasons.push("there are too many folders to watch them all".to_owned());
    }
    match reasons.is_empty() {
        true => (Coverage::Full, None),
        false => (Coverage::Partial, Some(reasons.join("; "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::watch_set::Seen;
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    struct Bench {
        root: tempfile::TempDir,
        watcher: Watcher,
        sources: Vec<PathBuf>,
    }

    impl Bench {
        fn new() -> Self {
            let root = tempfile::tempdir().unwrap();
            fs::create_dir_all(root.path().join("c/servers.d")).unwrap();
            let mut bench = Self {
                root,
                watcher: Watcher::open().unwrap(),
                sources: Vec::new(),
            };
            bench.arm();
            bench
        }

        fn path(&self, name: &str) -> PathBuf {
            self.root.path().join(name)
        }

        fn arm(&mut self) -> Armed {
            let seen = Seen {
                sources: self.sources.iter().cloned().collect(),
                ..Seen::default()
            };
            let set = WatchSet::derive(&self.path("c"), &seen, look_at);
            self.watcher.arm(&set)
        }

        /// The hints that are there; the kernel queues them before the call that causes them returns.
        fn hints(&self) -> Vec<Hint> {
            self.watcher.read().unwrap().hints
        }

        fn is_readable(&self) -> bool {
            let mut polled = [PollFd::new(self.watcher.as_fd(), PollFlags::POLLIN)];
            poll(&mut polled, PollTimeout::ZERO).unwrap() > 0
        }
    }

    #[test]
    fn a_write_is_heard_of_when_it_is_complete() {
        use std::io::Write as _;
        let bench = Bench::new();
        let path = bench.path("c/servers.d/a.toml");
        let mut file = fs::File::create(&path).unwrap();
        assert_eq!(bench.hints(), [Hint::Opened(path.clone())]);
        file.write_all(b"command").unwrap();
        assert_eq!(bench.hints(), []);
        drop(file);
        assert_eq!(bench.hints(), [Hint::Closed(path)]);
    }

    #[test]
    fn reading_is_no_change() {
        let bench = Bench::new();
        fs::write(bench.path("c/servers.d/a.toml"), "x").unwrap();
        bench.hints();
        fs::read(bench.path("c/servers.d/a.toml")).unwrap();
        fs::read_dir(bench.path("c/servers.d")).unwrap().count();
        assert!(!bench.is_readable());
    }

    #[test]
    fn renames_links_deletions_and_modes_are_changes() {
        let bench = Bench::new();
        let file = bench.path("c/servers.d/a.toml");
        let changes: [&dyn Fn(); 5] = [
            &|| fs::rename(bench.path("new"), &file).unwrap(),
            &|| fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap(),
            &|| fs::remove_file(&file).unwrap(),
            &|| symlink("/nowhere", &file).unwrap(),
            &|| fs::rename(bench.path("c/servers.d"), bench.path("away")).unwrap(),
        ];
        fs::write(bench.path("new"), "x").unwrap();
        for (number, change) in changes.iter().enumerate() {
            change();
            let hints = bench.hints();
            assert!(hints.contains(&Hint::Changed), "{number}: {hints:?}");
        }
    }

    #[test]
    fn litter_is_passed_over() {
        let bench = Bench::new();
        for name in [
            "c/servers.d/.a.toml.swp",
            "c/servers.d/4913",
            "c/other.toml",
        ] {
            fs::write(bench.path(name), "x").unwrap();
        }
        assert_eq!(bench.hints(), []);
    }

    #[test]
    fn a_folder_that_was_replaced_is_watched_anew() {
        let mut bench = Bench::new();
        assert!(!bench.arm().is_wider);
        fs::rename(bench.path("c"), bench.path("old")).unwrap();
        fs::create_dir_all(bench.path("c/servers.d")).unwrap();
        assert!(bench.arm().is_wider);
        bench.hints();
        fs::write(bench.path("old/servers.d/a.toml"), "x").unwrap();
        assert_eq!(bench.hints(), []);
        fs::write(bench.path("c/servers.d/a.toml"), "x").unwrap();
        assert_eq!(bench.hints().len(), 2);
    }

    #[test]
    fn folders_that_matter_no_more_are_let_go() {
        let mut bench = Bench::new();
        fs::create_dir(bench.path("secrets")).unwrap();
        bench.sources = vec![bench.path("secrets/key")];
        assert!(bench.arm().is_wider);
        let with = bench.watcher.watches.len();
        bench.sources.clear();
        let armed = bench.arm();
        assert_eq!((armed.is_wider, armed.coverage), (false, Coverage::Full));
        assert_eq!(bench.watcher.watches.len(), with - 1);
        bench.hints();
        fs::write(bench.path("secrets/key"), "x").unwrap();
        assert!(!bench.is_readable());
    }

    #[test]
    fn what_cannot_be_watched_is_told() {
        let folder = PathBuf::from("/x");
        let set = WatchSet::default();
        assert_eq!(coverage(&set, false, &[]), (Coverage::Full, None));
        let (found, warning) = coverage(&set, false, &[(&folder, Errno::ACCESS)]);
        assert_eq!(found, Coverage::Partial);
        assert!(
            warning
                .unwrap()
                .starts_with("/x cannot be watched: Permission denied")
        );
        let many = vec![(&folder, Errno::ACCESS); 7];
        let (_, warning) = coverage(&set, false, &many);
        assert!(warning.unwrap().ends_with("; 2 more cannot be watched"));
        let cut = WatchSet {
            is_cut: true,
            ..WatchSet::default()
        };
        assert_eq!(coverage(&cut, false, &[]).0, Coverage::Partial);
        assert_eq!(coverage(&set, true, &many).0, Coverage::None);
    }
}
