//! One server's log: the file that is written and those that rotation leaves behind.
//!
//! Reads whole lines. Never writes, and never waits.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::cli::error::CliError;

/// Files that rotation keeps beside the one that is written: `NAME.log.1` is the newest of them.
const OLD_FILES: usize = 3;

/// The log of one server, read from some point on.
#[derive(Debug)]
pub(super) struct Log {
    path: PathBuf,
    current: Option<File>,
    /// A line whose end has not been written yet.
    begun: Vec<u8>,
}

impl Log {
    /// The log of the server `name`, which need not exist.
    pub(super) fn of(folder: &Path, name: &str) -> Self {
        Self {
            path: folder.join(format!("{name}.log")),
            current: None,
            begun: Vec::new(),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether anything was ever written.
    pub(super) fn exists(&self) -> bool {
        self.path.exists() || self.old(1).exists()
    }

    fn old(&self, number: usize) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        path.push(format!(".{number}"));
        path.into()
    }

    /// Everything from the newest files back until `is_enough` of it is there. Files are bounded in
    /// size by whoever writes them, so each is read whole. What is written later comes from
    /// [`Log::added`].
    pub(super) fn read(&mut self, is_enough: impl Fn(&[u8]) -> bool) -> Result<Vec<u8>, CliError> {
        let mut text = Vec::new();
        self.current = self.open()?;
        if let Some(file) = &mut self.current {
            file.read_to_end(&mut text)
                .map_err(|error| cannot_read(&self.path, error))?;
        }
        for number in 1..=OLD_FILES {
            if is_enough(&text) {
                break;
            }
            match std::fs::read(self.old(number)) {
                Ok(mut older) => {
                    older.append(&mut text);
                    text = older;
                }
                Err(_) => break,
            }
        }
        Ok(text)
    }

    /// The whole lines that were added since, across rotations.
    pub(super) fn added(&mut self) -> Result<Vec<u8>, CliError> {
        let mut text = std::mem::take(&mut self.begun);
        loop {
            self.read_rest(&mut text)?;
            if !self.is_replaced() {
                break;
            }
            // Nothing is added to the old file once it has been moved away, so this is its end.
            self.read_rest(&mut text)?;
            self.current = self.open()?;
        }
        let end = memchr::memrchr(b'\n', &text).map_or(0, |at| at + 1);
        self.begun = text.split_off(end);
        Ok(text)
    }

    fn read_rest(&mut self, text: &mut Vec<u8>) -> Result<(), CliError> {
        if let Some(file) = &mut self.current {
            file.read_to_end(text)
                .map_err(|error| cannot_read(&self.path, error))?;
        }
        Ok(())
    }

    /// The file that is being written; none if the server has never said anything.
    fn open(&self) -> Result<Option<File>, CliError> {
        match File::open(&self.path) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(cannot_read(&self.path, error)),
        }
    }

    /// Whether another file stands at the path now.
    fn is_replaced(&self) -> bool {
        let Ok(found) = std::fs::metadata(&self.path) else {
            return false;
        };
        let identity = |found: std::fs::Metadata| (found.dev(), found.ino());
        let held = self.current.as_ref();
        let held = held.and_then(|file| file.metadata().ok()).map(identity);
        held != Some(identity(found))
    }
}

fn cannot_read(path: &Path, error: io::Error) -> CliError {
    CliError::internal(format!("cannot read {}", path.display())).because(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_gathered_across_rotations() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = Log::of(folder.path(), "a");
        assert!(!log.exists());
        std::fs::write(log.old(2), "1\n2\n").unwrap();
        std::fs::write(log.old(1), "3\n4\n").unwrap();
        std::fs::write(&log.path, "5\n").unwrap();
        let text = log.read(|text| text.len() >= 5).unwrap();
        assert_eq!(text, b"3\n4\n5\n");
        assert_eq!(log.read(|_| false).unwrap(), b"1\n2\n3\n4\n5\n");
        assert_eq!(log.added().unwrap(), b"");
        std::fs::rename(&log.path, log.old(1)).unwrap();
        assert_eq!(log.added().unwrap(), b"", "nothing new is there yet");
        std::fs::write(&log.path, "6\n7").unwrap();
        assert_eq!(log.added().unwrap(), b"6\n", "a line comes whole");
        std::fs::write(&log.path, "6\n7\n").unwrap();
        assert_eq!(log.added().unwrap(), b"7\n");
    }
}
