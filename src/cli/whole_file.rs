//! Files that are written whole or not at all, and replaced only while they are what they were.
//!
//! Decides nothing about contents. A link stays a link, a mode a mode.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Why a file was not replaced.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReplaceError {
    #[error("{} was changed by another program meanwhile", path.display())]
    Changed { path: PathBuf },
    #[error("cannot write {}", path.display())]
    Io { path: PathBuf, source: io::Error },
}

/// Writes a file under another name and then puts it in its place, so that nobody reads a half.
pub(crate) fn write_whole(path: &Path, contents: &[u8], mode: u32) -> io::Result<()> {
    write_then(path, contents, mode, || Ok(()))
}

/// As [`write_whole`]; `check` has the last word before the new file takes the place.
fn write_then(
    path: &Path,
    contents: &[u8],
    mode: u32,
    check: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let new = PathBuf::from(name);
    let write = || {
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&new)?;
        // The umask may have taken something from the mode.
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        file.write_all(contents)?;
        file.sync_all()?;
        check()?;
        fs::rename(&new, path)
    };
    write().inspect_err(|_| {
        // It may never have been made.
        drop(fs::remove_file(&new));
    })
}

/// Replaces what is at `path` by `new` if it is still `old`; `None` for a file that is not there. A
/// new file is for its owner alone.
///
/// # Errors
/// See [`ReplaceError`]; the file is then as it was.
pub(crate) fn replace_whole(
    path: &Path,
    old: Option<&[u8]>,
    new: &[u8],
) -> Result<(), ReplaceError> {
    let failed = |source| ReplaceError::Io {
        path: path.to_owned(),
        source,
    };
    let changed = || ReplaceError::Changed {
        path: path.to_owned(),
    };
    // A link stays one: people keep their configuration in other places.
    let real = match fs::canonicalize(path) {
        Ok(real) => real,
        Err(error) if error.kind() == io::ErrorKind::NotFound && old.is_none() => path.to_owned(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(changed()),
        Err(error) => return Err(failed(error)),
    };
    let mode = match fs::metadata(&real) {
        Ok(found) => found.permissions().mode() & 0o7777,
        Err(_) => 0o600,
    };
    if old.is_none()
        && let Some(folder) = real.parent()
    {
        make_folder(folder).map_err(failed)?;
    }
    let mut is_changed = false;
    let check = || {
        is_changed = !holds(&real, old);
        match is_changed {
            true => Err(io::Error::other("changed")),
            false => Ok(()),
        }
    };
    match write_then(&real, new, mode, check) {
        Ok(()) => Ok(()),
        Err(_) if is_changed => Err(changed()),
        Err(error) => Err(failed(error)),
    }
}

fn holds(path: &Path, contents: Option<&[u8]>) -> bool {
    match (fs::read(path), contents) {
        (Ok(found), Some(contents)) => found == contents,
        (Err(error), None) => error.kind() == io::ErrorKind::NotFound,
        _ => false,
    }
}

/// Makes a folder with what is above it, each new one for its owner alone.
pub(crate) fn make_folder(folder: &Path) -> io::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_has_changed_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        replace_whole(&path, None, b"1").unwrap();
        replace_whole(&path, Some(b"1"), b"2").unwrap();
        for old in [None, Some(b"1".as_slice())] {
            let error = replace_whole(&path, old, b"3").unwrap_err();
            assert!(matches!(error, ReplaceError::Changed { .. }), "{error}");
        }
        assert_eq!(fs::read(&path).unwrap(), b"2");
        fs::remove_file(&path).unwrap();
        let error = replace_whole(&path, Some(b"2"), b"3").unwrap_err();
        assert!(matches!(error, ReplaceError::Changed { .. }), "{error}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn links_and_modes_stay() {
        let folder = tempfile::tempdir().unwrap();
        let (real, link) = (folder.path().join("real"), folder.path().join("link"));
        fs::write(&real, "1").unwrap();
        fs::set_permissions(&real, fs::Permissions::from_mode(0o666)).unwrap();
        std::os::unix::fs::symlink("real", &link).unwrap();
        replace_whole(&link, Some(b"1"), b"2").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        let found = fs::metadata(&real).unwrap();
        assert_eq!(found.permissions().mode() & 0o777, 0o666);
        assert_eq!(fs::read(&real).unwrap(), b"2");
    }
}
