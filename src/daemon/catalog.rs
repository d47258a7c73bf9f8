//! The catalogue on disk: what servers said of themselves, a file each.
//!
//! Reads and replaces whole files, for their owner only. A file that is missing, foreign, writable
//! by others, too large or no file is as good as none, and a folder that cannot be used costs only
//! the memory. Never looks into what it keeps.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use crate::config::dirs::make_private;
use crate::config::regular_file::read_regular_file;

use super::chain;

/// The folder, if it can be used.
#[derive(Clone, Debug)]
pub(crate) struct Catalog {
    folder: Option<PathBuf>,
    uid: u32,
}

impl Catalog {
    pub(crate) fn open(folder: PathBuf, uid: u32) -> Self {
        let usable = make_private(&folder, uid);
        if let Err(error) = &usable {
            tracing::warn!(error = %chain(error), "what servers offer is not remembered");
        }
        Self {
            folder: usable.is_ok().then_some(folder),
            uid,
        }
    }

    /// What is kept under `server`. Waits for the disk.
    pub(crate) fn read(&self, server: &str) -> Option<Vec<u8>> {
        let contents = read_regular_file(&self.file(server)?).ok()?;
        let is_ours = contents.uid == self.uid && contents.mode & 0o022 == 0;
        is_ours.then_some(contents.bytes)
    }

    /// Keeps `text` under `server`. Waits for the disk.
    pub(crate) fn write(&self, server: &str, text: &[u8]) -> io::Result<()> {
        let Some(path) = self.file(server) else {
            return Ok(());
        };
        // Never taken for a server's file, since no name of a server begins with a dot.
        let fresh = path.with_file_name(format!(".{server}.{}", std::process::id()));
        // One that was left behind by a process of this number may be anything.
        drop(fs::remove_file(&fresh));
        let written = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&fresh)
            .and_then(|mut file| file.write_all(text))
            .and_then(|()| fs::rename(&fresh, &path));
        if written.is_err() {
            drop(fs::remove_file(&fresh));
        }
        written
    }

    fn file(&self, server: &str) -> Option<PathBuf> {
        Some(self.folder.as_ref()?.join(format!("{server}.json")))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn catalog() -> (tempfile::TempDir, Catalog) {
        let state = tempfile::tempdir().unwrap();
        let uid = nix::unistd::geteuid().as_raw();
        let catalog = Catalog::open(state.path().join("catalog"), uid);
        (state, catalog)
    }

    #[test]
    fn what_is_kept_is_read_again_and_is_for_its_owner_only() {
        let (state, catalog) = catalog();
        assert_eq!(catalog.read("a.b"), None);
        catalog.write("a.b", b"one").unwrap();
        catalog.write("a.b", b"two").unwrap();
        assert_eq!(catalog.read("a.b").as_deref(), Some(&b"two"[..]));
        let folder = state.path().join("catalog");
        let mode = |path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(
            (mode(folder.clone()), mode(folder.join("a.b.json"))),
            (0o700, 0o600)
        );
        assert_eq!(fs::read_dir(folder).unwrap().count(), 1);
    }

    #[test]
    fn what_others_could_have_written_is_not_believed() {
        let (state, catalog) = catalog();
        catalog.write("a", b"x").unwrap();
        let file = state.path().join("catalog/a.json");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o620)).unwrap();
        assert_eq!(catalog.read("a"), None);
        let foreign = Catalog {
            uid: catalog.uid + 1,
            ..catalog.clone()
        };
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(foreign.read("a"), None);
    }

    #[test]
    fn what_is_no_file_or_huge_is_passed_over() {
        let (state, catalog) = catalog();
        let folder = state.path().join("catalog");
        fs::create_dir(folder.join("folder.json")).unwrap();
        nix::unistd::mkfifo(&folder.join("fifo.json"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        fs::File::create(folder.join("huge.json"))
            .and_then(|file| file.set_len(1 << 40))
            .unwrap();
        for name in ["folder", "fifo", "huge"] {
            assert_eq!(catalog.read(name), None, "{name}");
        }
    }

    #[test]
    fn without_a_folder_nothing_is_remembered() {
        let state = tempfile::tempdir().unwrap();
        fs::write(state.path().join("catalog"), "a file").unwrap();
        let catalog = Catalog::open(
            state.path().join("catalog"),
            nix::unistd::geteuid().as_raw(),
        );
        catalog.write("a", b"x").unwrap();
        assert_eq!(catalog.read("a"), None);
    }
}
