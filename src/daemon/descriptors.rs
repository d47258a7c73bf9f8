//! Descriptors and memory that others gave us, and the few calls on them that have no safe form.
//!
//! The one file of this room with `unsafe`; each block says why it is sound. Decides nothing but
//! which memory may be trusted not to shrink.

#![allow(
    unsafe_code,
    reason = "descriptors of others and memory shared with them; every block is argued"
)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::BytesMut;
use nix::libc;
use rustix::fs::SealFlags;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::journal::Memory;

/// From here on zeros are had by giving the pages back.
const GIVE_BACK_BYTES: usize = 64 << 10;
/// No port that we build for has larger pages at its default.
const PAGE_BYTES: usize = 64 << 10;

/// A descriptor whose readiness can be awaited.
pub(crate) fn watched(descriptor: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: the `AsyncFd` owns the descriptor, so it is open and the same as long as it lives.
    Ok(unsafe { AsyncFd::register_with_interest(descriptor, interest) }?)
}

/// Does `io`, which handles up to `len` bytes, if it may succeed. One that handled less has emptied or
/// filled the descriptor, so that the next one would be in vain (epoll(7)).
pub(crate) fn when_ready(
    descriptor: &AsyncFd<OwnedFd>,
    interest: Interest,
    len: usize,
    io: impl FnOnce(BorrowedFd<'_>) -> io::Result<usize>,
) -> io::Result<usize> {
    let mut handled = None;
    let done = descriptor.try_io(interest, |descriptor| {
        let count = io(descriptor.as_fd())?;
        if count > 0 && count < len {
            handled = Some(count);
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(count)
    });
    handled.map_or(done, Ok)
}

/// Reads from `fd` to the room behind what `buffer` holds.
pub(crate) fn read_spare(fd: BorrowedFd<'_>, buffer: &mut BytesMut) -> io::Result<usize> {
    let (read, _) = rustix::io::read(fd, buffer.spare_capacity_mut())?;
    let count = read.len();
    // SAFETY: so many bytes of the spare capacity were just written.
    unsafe { buffer.set_len(buffer.len() + count) };
    Ok(count)
}

/// A memfd of another process, mapped so that both see the same bytes.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to no thread. All access is by whole words, which are atomic, or by
// copies out of and into it for which no reference to the memory is made.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `memfd`, which is made `len` bytes long at least. It must be sealed against shrinking, or
    /// whoever else holds it could end us with SIGBUS (memfd_create(2), File sealing).
    pub(crate) fn of(memfd: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        let seals = rustix::fs::fcntl_get_seals(memfd)?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err(io::Error::other("the memory is not sealed"));
        }
        let found = rustix::fs::fstat(memfd)?.st_size;
        let found = usize::try_from(found).unwrap_or(0);
        if found < len {
            rustix::fs::ftruncate(memfd, len as u64)?;
        }
        // SAFETY: a new mapping at a place that the kernel chooses touches no memory of ours; the
        // descriptor is open; the length is not zero (a journal has a head) and within the file.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_NORESERVE,
                memfd.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("no memory"))?;
        Ok(Self { start, len })
    }

    /// Reads from `fd` to the `len` bytes at `at`; from a socket without waiting, whatever its mode.
    pub(crate) fn read_from(
        &self,
        at: usize,
        len: usize,
        fd: BorrowedFd<'_>,
        is_socket: bool,
    ) -> io::Result<usize> {
        let place = self.place(at, len).as_ptr().cast::<libc::c_void>();
        // SAFETY: `place` checked that the bytes are within the mapping, which lives as long as
        // `self`; the kernel writes no more than `len`; no reference to these bytes exists.
        let count = unsafe {
            if is_socket {
                libc::recv(fd.as_raw_fd(), place, len, libc::MSG_DONTWAIT)
            } else {
                libc::read(fd.as_raw_fd(), place, len)
            }
        };
        usize::try_from(count).map_err(|_| io::Error::last_os_error())
    }

    /// The address of `len` bytes at `at`.
    fn place(&self, at: usize, len: usize) -> NonNull<u8> {
        let is_within = at.checked_add(len).is_some_and(|end| end <= self.len);
        assert!(is_within, "an offset of the layout is within the journal");
        // SAFETY: just checked: the place is within the one mapping, or at its end.
        unsafe { self.start.add(at) }
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        assert_eq!(at % size_of::<u64>(), 0, "a word is aligned");
        let place = self.place(at, size_of::<u64>()).cast::<AtomicU64>();
        // SAFETY: within the mapping, which is aligned to pages, so aligned for a word; all bytes
        // are valid numbers; others access it by atomic operations only, or copy.
        unsafe { place.as_ref() }
    }

    /// Gives whole pages back; they read as zeros from then on (madvise(2), MADV_REMOVE).
    fn give_back(&self, at: usize, len: usize) -> bool {
        let place = self.place(at, len).as_ptr().cast();
        // SAFETY: the range is within our own mapping of shared memory.
        unsafe { libc::madvise(place, len, libc::MADV_REMOVE) == 0 }
    }

    fn fill_zeros(&self, at: usize, len: usize) {
        let place = self.place(at, len).as_ptr();
        // SAFETY: within the mapping; no reference to these bytes exists.
        unsafe { place.write_bytes(0, len) };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and nothing refers to it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

impl Memory for Mapping {
    fn len(&self) -> usize {
        self.len
    }

    fn load(&self, at: usize) -> u64 {
        self.word(at).load(Ordering::Acquire)
    }

    fn store(&self, at: usize, word: u64) {
        self.word(at).store(word, Ordering::Release);
    }

    fn read(&self, at: usize, bytes: &mut [u8]) {
        let place = self.place(at, bytes.len()).as_ptr();
        // SAFETY: both ranges are valid for their length, and ours is no part of the mapping.
        unsafe { place.copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len()) };
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        let place = self.place(at, bytes.len()).as_ptr();
        // SAFETY: as for `read`.
        unsafe { place.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    fn clear(&self, at: usize, len: usize) {
        let end = at + len;
        let (first, last) = (at.next_multiple_of(PAGE_BYTES), end - end % PAGE_BYTES);
        let is_large = len >= GIVE_BACK_BYTES && last > first;
        if is_large && self.give_back(first, last - first) {
            self.fill_zeros(at, first - at);
            self.fill_zeros(last, end - last);
        } else {
            self.fill_zeros(at, len);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::MemfdFlags;
    use std::os::fd::AsFd;

    fn memfd(len: u64) -> OwnedFd {
        let flags = MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC;
        let memfd = rustix::fs::memfd_create("test", flags).unwrap();
        rustix::fs::ftruncate(&memfd, len).unwrap();
        memfd
    }

    #[test]
    fn memory_that_may_shrink_is_refused() {
        let memfd = memfd(4096);
        assert!(Mapping::of(memfd.as_fd(), 4096).is_err());
        let pipe = std::io::pipe().unwrap().0;
        assert!(Mapping::of(pipe.as_fd(), 4096).is_err());
    }

    #[test]
    fn what_is_written_is_seen_by_whoever_holds_the_memory() {
        let memfd = memfd(4096);
        rustix::fs::fcntl_add_seals(&memfd, SealFlags::SHRINK).unwrap();
        let len = 4 << 20;
        let ours = Mapping::of(memfd.as_fd(), len).unwrap();
        let theirs = Mapping::of(memfd.as_fd(), len).unwrap();
        ours.store(8, 7);
        assert_eq!(theirs.load(8), 7);
        ours.write(len - 5, b"abcde");
        ours.write(100, &vec![b'x'; 1 << 20]);
        ours.clear(101, (1 << 20) - 2);
        let mut bytes = [1; 4];
        theirs.read(99, &mut bytes);
        assert_eq!(bytes, [0, b'x', 0, 0]);
        theirs.read((1 << 20) + 98, &mut bytes);
        assert_eq!(bytes, [0, b'x', 0, 0]);
        theirs.read(500_000, &mut bytes);
        assert_eq!(bytes, [0; 4]);
        theirs.read(len - 4, &mut bytes);
        assert_eq!(&bytes, b"bcde");
    }
}
