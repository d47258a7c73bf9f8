//! Reads a file that is a file: never a directory, a fifo or a device, never without end, never
//! waiting for somebody to write.
//!
//! Links are followed, since people keep their configuration in other places. What it reads is
//! bounded; what it says of a failure never holds contents.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

/// The most that a configuration file, an environment file or a value may hold, in bytes.
pub const FILE_LIMIT_BYTES: u64 = 1 << 20;

/// What was read, and whose it is.
pub struct FileContents {
    pub bytes: Vec<u8>,
    /// Permission bits.
    pub mode: u32,
    pub uid: u32,
}

/// Without the contents.
impl std::fmt::Debug for FileContents {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            out,
            "FileContents({} bytes, mode {:04o})",
            self.bytes.len(),
            self.mode
        )
    }
}

impl FileContents {
    /// Whether others than the owner may read it.
    pub fn is_readable_by_others(&self) -> bool {
        self.mode & 0o044 != 0
    }
}

/// Why a file was not read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("no such file")]
    Missing,
    #[error("a link to a file that does not exist")]
    Dangling,
    #[error("cannot be read: permission denied")]
    Denied,
    #[error("is {0}, not a file")]
    NotRegular(&'static str),
    #[error("has more than {} KiB", limit_bytes >> 10)]
    TooLarge { limit_bytes: u64 },
    #[error("cannot be read: {0}")]
    Io(io::Error),
}

/// Reads `path`.
///
/// # Errors
/// See [`ReadError`].
pub fn read_regular_file(path: &Path) -> Result<FileContents, ReadError> {
    read_regular_file_up_to(path, FILE_LIMIT_BYTES)
}

/// Reads `path`, which may be larger than a file of ours.
///
/// # Errors
/// See [`ReadError`].
pub fn read_regular_file_up_to(path: &Path, limit_bytes: u64) -> Result<FileContents, ReadError> {
    // A fifo must not be opened even for a moment: whoever writes to it would see a reader.
    let before = std::fs::metadata(path).map_err(|error| explain(path, error))?;
    refuse_irregular(&before)?;
    // Between the look and the open it may have become something else: NONBLOCK keeps a fifo from
    // stopping us, NOCTTY a terminal from becoming ours (open(2)).
    let flags = (rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY).bits();
    let flags = i32::try_from(flags).unwrap_or_default();
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)
        .map_err(|error| explain(path, error))?;
    let metadata = file.metadata().map_err(ReadError::Io)?;
    refuse_irregular(&metadata)?;
    let bytes = read_limited(&file, limit_bytes)?;
    Ok(FileContents {
        bytes,
        mode: metadata.mode() & 0o7777,
        uid: metadata.uid(),
    })
}

fn read_limited(file: &File, limit_bytes: u64) -> Result<Vec<u8>, ReadError> {
    let mut bytes = Vec::new();
    file.take(limit_bytes + 1)
        .read_to_end(&mut bytes)
        .map_err(ReadError::Io)?;
    if bytes.len() as u64 > limit_bytes {
        return Err(ReadError::TooLarge { limit_bytes });
    }
    Ok(bytes)
}

fn refuse_irregular(metadata: &Metadata) -> Result<(), ReadError> {
    let kind = metadata.file_type();
    Err(ReadError::NotRegular(match kind {
        kind if kind.is_file() => return Ok(()),
        kind if kind.is_dir() => "a directory",
        kind if kind.is_fifo() => "a fifo",
        kind if kind.is_socket() => "a socket",
        _ => "a device",
    }))
}

fn explain(path: &Path, error: io::Error) -> ReadError {
    match error.kind() {
        io::ErrorKind::NotFound if std::fs::symlink_metadata(path).is_ok() => ReadError::Dangling,
        io::ErrorKind::NotFound => ReadError::Missing,
        io::ErrorKind::PermissionDenied => ReadError::Denied,
        _ => ReadError::Io(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[track_caller]
    fn check(path: &Path, expected: Result<&str, &str>) {
        let got =
            read_regular_file(path).map(|contents| String::from_utf8(contents.bytes).unwrap());
        assert_eq!(
            got.map_err(|error| error.to_string()),
            expected.map(str::to_owned).map_err(str::to_owned)
        );
    }

    #[test]
    fn files_and_links_to_files_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&file, "text").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        check(&file, Ok("text"));
        check(&link, Ok("text"));
    }

    #[test]
    fn all_else_is_told_apart_without_waiting() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::os::unix::fs::symlink(at("nowhere"), at("dangling")).unwrap();
        nix::unistd::mkfifo(&at("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        fs::write(at("large"), vec![b'x'; (1 << 20) + 1]).unwrap();
        fs::write(at("largest"), vec![b'x'; 1 << 20]).unwrap();
        check(&at("missing"), Err("no such file"));
        check(&at("dangling"), Err("a link to a file that does not exist"));
        check(&at("fifo"), Err("is a fifo, not a file"));
        check(folder.path(), Err("is a directory, not a file"));
        check(Path::new("/dev/null"), Err("is a device, not a file"));
        check(&at("large"), Err("has more than 1024 KiB"));
        assert!(read_regular_file(&at("largest")).is_ok());
    }

    #[test]
    fn a_file_without_permission_is_told_as_such() {
        let error = io::Error::from(io::ErrorKind::PermissionDenied);
        assert_eq!(
            explain(Path::new("/"), error).to_string(),
            "cannot be read: permission denied"
        );
    }
}
