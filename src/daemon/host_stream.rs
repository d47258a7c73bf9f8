//! The two ends of a host: the connection that it came by, or descriptors of its own.
//!
//! Decides which descriptors can be used without changing anything of theirs. A pipe is opened anew,
//! so that its mode is ours alone; a socket is used without waiting, call by call. What is neither is
//! left to whoever gave it, who relays.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::BytesMut;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::net::{SendAncillaryBuffer, SendFlags};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::UnixStream;

use crate::journal::{Input, Memory, Room};

use super::descriptors::{Mapping, watched, when_ready};
use super::port::Sink;
use super::reader::Source;

/// One end of a host, or both.
#[derive(Debug)]
pub(crate) enum HostStream {
    /// The host speaks by the connection that it came by.
    Connection(Arc<UnixStream>),
    /// What the host reads from or writes to itself.
    Own(OwnEnd),
}

/// A pipe or a socket that a host was started with.
#[derive(Debug)]
pub(crate) struct OwnEnd {
    descriptor: AsyncFd<OwnedFd>,
    is_socket: bool,
    /// Where what is read is kept until it is acted on.
    input: Option<Kept>,
}

/// The input of a journal.
#[derive(Debug)]
struct Kept {
    memory: Arc<Mapping>,
    input: Mutex<Input>,
    /// Bytes that stand in the journal from the beginning and were not handed out.
    given: Mutex<Vec<u8>>,
}

/// Why a descriptor cannot be used by the daemon itself.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unusable {
    #[error("it is no pipe and no socket")]
    Kind,
    #[error("it cannot be used")]
    Io(#[from] io::Error),
}

impl From<rustix::io::Errno> for Unusable {
    fn from(errno: rustix::io::Errno) -> Self {
        Self::Io(errno.into())
    }
}

impl OwnEnd {
    /// The end that the host writes to. What is read goes through the journal in `memory`, where
    /// `given` stands already.
    pub(crate) fn input(
        descriptor: OwnedFd,
        memory: Arc<Mapping>,
        given: Vec<u8>,
    ) -> Result<Self, Unusable> {
        let mut end = Self::new(descriptor, OFlags::RDONLY, Interest::READABLE)?;
        end.input = Some(Kept {
            input: Mutex::new(Input::new(&*memory, given.len())),
            memory,
            given: Mutex::new(given),
        });
        Ok(end)
    }

    /// The end that the host reads from.
    pub(crate) fn output(descriptor: OwnedFd) -> Result<Self, Unusable> {
        Self::new(descriptor, OFlags::WRONLY, Interest::WRITABLE)
    }

    fn new(descriptor: OwnedFd, mode: OFlags, interest: Interest) -> Result<Self, Unusable> {
        let is_socket = match FileType::from_raw_mode(rustix::fs::fstat(&descriptor)?.st_mode) {
            FileType::Socket => {
                let kind = rustix::net::sockopt::socket_type(&descriptor)?;
                if kind != rustix::net::SocketType::STREAM {
                    return Err(Unusable::Kind);
                }
                true
            }
            FileType::Fifo => false,
            _ => return Err(Unusable::Kind),
        };
        let descriptor = if is_socket {
            descriptor
        } else {
            reopened(&descriptor, mode)?
        };
        Ok(Self {
            descriptor: watched(descriptor, interest)?,
            is_socket,
            input: None,
        })
    }

    /// Reads to the journal and from there to `buffer`.
    fn read(&self, kept: &Kept, buffer: &mut BytesMut, consumed: u64) -> io::Result<usize> {
        let given = std::mem::take(&mut *lock(&kept.given));
        if !given.is_empty() {
            buffer.extend_from_slice(&given);
            return Ok(given.len());
        }
        let mut input = lock(&kept.input);
        let Room::At { at, len } = input.make_room(&*kept.memory, consumed) else {
            // The worker has to have a turn.
            return Err(io::ErrorKind::Interrupted.into());
        };
        let count = when_ready(&self.descriptor, Interest::READABLE, len, |descriptor| {
            kept.memory.read_from(at, len, descriptor, self.is_socket)
        })?;
        input.note_read(count);
        let held = buffer.len();
        buffer.resize(held + count, 0);
        kept.memory.read(at, &mut buffer[held..]);
        Ok(count)
    }
}

impl Source for HostStream {
    fn try_read(&self, buffer: &mut BytesMut, consumed: u64) -> io::Result<usize> {
        match self {
            Self::Connection(stream) => stream.try_read_buf(buffer),
            Self::Own(end) => match &end.input {
                Some(kept) => end.read(kept, buffer, consumed),
                None => Err(io::ErrorKind::Unsupported.into()),
            },
        }
    }

    async fn readable(&self) -> io::Result<()> {
        match self {
            Self::Connection(stream) => stream.readable().await,
            Self::Own(end) => {
                let has_given = |kept: &Kept| !lock(&kept.given).is_empty();
                if !end.input.as_ref().is_some_and(has_given) {
                    drop(end.descriptor.readable().await?);
                }
                Ok(())
            }
        }
    }
}

impl Sink for HostStream {
    fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Connection(stream) => stream.try_write_vectored(slices),
            Self::Own(end) => {
                let len = slices.iter().map(|slice| slice.len()).sum();
                when_ready(&end.descriptor, Interest::WRITABLE, len, |descriptor| {
                    Ok(if end.is_socket {
                        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                        let mut nothing = SendAncillaryBuffer::default();
                        rustix::net::sendmsg(descriptor, slices, &mut nothing, flags)?
                    } else {
                        rustix::io::writev(descriptor, slices)?
                    })
                })
            }
        }
    }

    async fn writable(&self) -> io::Result<()> {
        match self {
            Self::Connection(stream) => stream.writable().await,
            Self::Own(end) => end.descriptor.writable().await.map(drop),
        }
    }
}

impl AsFd for HostStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Connection(stream) => stream.as_fd(),
            Self::Own(end) => end.descriptor.get_ref().as_fd(),
        }
    }
}

/// A description of its own for the same pipe, whose mode is nobody else's. A pipe of another user is
/// refused by its permissions; one with a name in the file system may tell its end too late
/// (fifo(7)).
fn reopened(pipe: &OwnedFd, mode: OFlags) -> Result<OwnedFd, Unusable> {
    let path = format!("/proc/self/fd/{}", pipe.as_raw_fd());
    let target = rustix::fs::readlink(&path, Vec::new())?;
    if !target.as_bytes().starts_with(b"pipe:") {
        return Err(Unusable::Kind);
    }
    let flags = mode | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    Ok(rustix::fs::open(&path, flags, Mode::empty())?)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is in it is whole at any time: nothing in between can panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
