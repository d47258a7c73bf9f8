//! The memory of a journal at the shim's end: a file without a name, read and written call by call.
//!
//! Nothing of it is mapped here, so that it costs the shim no page. Decides nothing.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags};

use crate::journal::{Image, Memory, SIZE};

/// A journal that this process keeps.
#[derive(Debug)]
pub(super) struct JournalFile(OwnedFd);

impl JournalFile {
    /// A new journal that begins with `image`. Whoever is given it may let it grow, never shrink.
    pub(super) fn new(image: &Image) -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("mcpd-journal", flags)?;
        rustix::fs::ftruncate(&file, SIZE as u64)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK)?;
        let this = Self(file);
        if image.write(&this) < image.input.len() {
            return Err(io::Error::other("what waits does not fit"));
        }
        Ok(this)
    }
}

impl AsFd for JournalFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A memory file gives and takes all bytes that it has; one that does not is no journal, and what
/// is read of it then is refused for what it says.
impl Memory for JournalFile {
    fn len(&self) -> usize {
        let found = rustix::fs::fstat(&self.0).map_or(0, |found| found.st_size);
        usize::try_from(found).unwrap_or(0)
    }

    fn load(&self, at: usize) -> u64 {
        let mut word = [0; size_of::<u64>()];
        self.read(at, &mut word);
        u64::from_ne_bytes(word)
    }

    fn store(&self, at: usize, word: u64) {
        self.write(at, &word.to_ne_bytes());
    }

    fn read(&self, mut at: usize, mut bytes: &mut [u8]) {
        while !bytes.is_empty() {
            match rustix::io::pread(&self.0, &mut *bytes, at as u64) {
                Ok(count) if count > 0 => {
                    bytes = &mut bytes[count..];
                    at += count;
                }
                Err(rustix::io::Errno::INTR) => {}
                Ok(_) | Err(_) => return bytes.fill(0),
            }
        }
    }

    fn write(&self, mut at: usize, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            match rustix::io::pwrite(&self.0, bytes, at as u64) {
                Ok(count) if count > 0 => {
                    bytes = &bytes[count..];
                    at += count;
                }
                Err(rustix::io::Errno::INTR) => {}
                Ok(_) | Err(_) => return,
            }
        }
    }

    fn clear(&self, at: usize, len: usize) {
        self.write(at, &vec![0; len]);
    }
}
