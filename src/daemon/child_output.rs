//! The pipe that a child's standard output is read from.
//!
//! Asks the kernel no more often than it must: a read that did not fill its room has emptied the
//! pipe (epoll(7), on edge-triggered waiting), so the next one is not tried before there is more.
//! Decides nothing.

use std::io;
use std::os::fd::OwnedFd;

use bytes::BytesMut;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::descriptors::{read_spare, watched, when_ready};
use super::reader::Source;

/// Our end of a child's standard output.
#[derive(Debug)]
pub(crate) struct ChildOutput(AsyncFd<OwnedFd>);

impl ChildOutput {
    /// Takes the reading end of a pipe, whose mode is ours alone.
    pub(crate) fn new(pipe: OwnedFd) -> io::Result<Self> {
        fcntl_setfl(&pipe, fcntl_getfl(&pipe)? | OFlags::NONBLOCK)?;
        Ok(Self(watched(pipe, Interest::READABLE)?))
    }
}

impl Source for ChildOutput {
    fn try_read(&self, buffer: &mut BytesMut, _consumed: u64) -> io::Result<usize> {
        let room = buffer.capacity() - buffer.len();
        when_ready(&self.0, Interest::READABLE, room, |pipe| {
            read_spare(pipe, buffer)
        })
    }

    async fn readable(&self) -> io::Result<()> {
        self.0.readable().await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pipe::{PipeFlags, pipe_with};

    /// Reads until the end, waiting whenever there is no more for now.
    async fn read_all(output: &ChildOutput, room: usize) -> Vec<u8> {
        let mut all = Vec::new();
        loop {
            output.readable().await.unwrap();
            let mut buffer = BytesMut::with_capacity(room);
            match output.try_read(&mut buffer, 0) {
                Ok(0) => return all,
                Ok(_) => all.extend_from_slice(&buffer),
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
        }
    }

    #[tokio::test]
    async fn all_is_read_however_it_comes_and_then_the_end() {
        for room in [1, 3, 7, 4096] {
            let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).unwrap();
            let output = ChildOutput::new(reader).unwrap();
            let writing = tokio::task::spawn_blocking(move || {
                for piece in [&b"one"[..], b"two", b"three"] {
                    rustix::io::write(&writer, piece).unwrap();
                    std::thread::yield_now();
                }
            });
            assert_eq!(read_all(&output, room).await, b"onetwothree");
            writing.await.unwrap();
        }
    }

    #[tokio::test]
    async fn an_end_right_behind_the_last_bytes_is_seen() {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let output = ChildOutput::new(reader).unwrap();
        rustix::io::write(&writer, b"last").unwrap();
        drop(writer);
        assert_eq!(read_all(&output, 4096).await, b"last");
    }
}
