//! The writing end towards one host or one child.
//!
//! Holds the few frames that one write hands to the kernel; everything behind them stays in the core
//! that owns the queue and is pulled when the descriptor has taken them. Never decides what is
//! written, nor what may share a write.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::Arc;

use tokio::net::unix::pipe;
use tokio::task::AbortHandle;

use crate::protocol::Frame;

/// Segments that one write hands to the kernel.
const SLICES: usize = 64;

/// Something that takes bytes without blocking and can say when it takes more.
pub(crate) trait Sink: Send + Sync + 'static {
    fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize>;
    fn writable(&self) -> impl Future<Output = io::Result<()>> + Send;
}

impl Sink for pipe::Sender {
    fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.try_write_vectored(slices)
    }
    fn writable(&self) -> impl Future<Output = io::Result<()>> + Send {
        Self::writable(self)
    }
}

/// What one attempt to write came to.
#[derive(Debug)]
pub(crate) enum Flushed {
    /// All that was put in is written.
    Whole,
    /// The descriptor takes no more now.
    Full,
    /// It never will.
    Broken(io::Error),
}

/// A sink and the frames that are being written to it.
#[derive(Debug)]
pub(crate) struct Port<S> {
    sink: Arc<S>,
    /// None is empty.
    frames: VecDeque<Frame>,
    held_bytes: usize,
    /// Waits until the sink takes more. It holds the sink too, so it must end with the port: a peer
    /// that never reads would never see the descriptor closed.
    waiter: Option<AbortHandle>,
}

impl<S> Drop for Port<S> {
    fn drop(&mut self) {
        if let Some(waiter) = &self.waiter {
            waiter.abort();
        }
    }
}

impl<S: Sink> Port<S> {
    pub(crate) fn new(sink: Arc<S>) -> Self {
        Self {
            sink,
            frames: VecDeque::new(),
            held_bytes: 0,
            waiter: None,
        }
    }

    /// Whether all is written that was put in.
    pub(crate) fn is_free(&self) -> bool {
        self.frames.is_empty()
    }

    /// Bytes that were put in and are not written.
    pub(crate) const fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Has `frame` leave with those that wait already.
    pub(crate) fn put(&mut self, frame: Frame) {
        if !frame.is_empty() {
            self.held_bytes += frame.len();
            self.frames.push_back(frame);
        }
    }

    /// Writes as much as fits, all in one write as far as it has so many segments.
    pub(crate) fn flush(&mut self) -> Flushed {
        while !self.frames.is_empty() {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let segments = self.frames.iter().flat_map(Frame::segments);
            let mut count = 0;
            for (slice, segment) in slices.iter_mut().zip(segments) {
                *slice = IoSlice::new(segment);
                count += 1;
            }
            match self.sink.try_write(&slices[..count]) {
                Ok(written) => self.advance(written),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Flushed::Full,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Flushed::Broken(error),
            }
        }
        Flushed::Whole
    }

    fn advance(&mut self, mut written: usize) {
        self.held_bytes -= written.min(self.held_bytes);
        while let Some(frame) = self.frames.front_mut() {
            if written < frame.len() {
                frame.advance(written);
                return;
            }
            written -= frame.len();
            self.frames.pop_front();
        }
    }

    /// Calls `tell` once the sink takes more; asks only once until [`Port::woken`].
    pub(crate) fn wait(&mut self, tell: impl Future<Output = ()> + Send + 'static) {
        if self.waiter.is_some() {
            return;
        }
        let sink = self.sink.clone();
        let waiter = tokio::spawn(async move {
            // An error shows again at the next write, which is where it is dealt with.
            drop(sink.writable().await);
            tell.await;
        });
        self.waiter = Some(waiter.abort_handle());
    }

    pub(crate) fn woken(&mut self) {
        self.waiter = None;
    }
}
