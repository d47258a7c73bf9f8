//! The writing end towards one host or one child.
//!
//! Holds at most one frame that is partly written; everything behind it stays in the core that
//! owns the queue and is pulled when the descriptor takes more. Never decides what is written.

use std::io::{self, IoSlice};
use std::sync::Arc;

use tokio::net::unix::pipe;
use tokio::task::AbortHandle;

use crate::protocol::Frame;

/// Segments that one write hands to the kernel.
const SLICES: usize = 8;

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
    /// All of the frame is written.
    Whole,
    /// The descriptor takes no more now.
    Full,
    /// It never will.
    Broken(io::Error),
}

/// A sink and the frame that is being written to it.
#[derive(Debug)]
pub(crate) struct Port<S> {
    sink: Arc<S>,
    current: Option<Frame>,
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
            current: None,
            waiter: None,
        }
    }

    /// Whether the next frame may be handed over.
    pub(crate) fn is_free(&self) -> bool {
        self.current.is_none()
    }

    /// Bytes of the current frame that are not written.
    pub(crate) fn held_bytes(&self) -> usize {
        self.current.as_ref().map_or(0, Frame::len)
    }

    pub(crate) fn put(&mut self, frame: Frame) {
        debug_assert!(self.current.is_none(), "one frame at a time");
        self.current = Some(frame);
    }

    /// Writes as much of the current frame as fits.
    pub(crate) fn flush(&mut self) -> Flushed {
        while let Some(frame) = &mut self.current {
            let empty = IoSlice::new(&[]);
            let mut slices = [empty; SLICES];
            let mut count = 0;
            for (slice, segment) in slices.iter_mut().zip(frame.segments()) {
                *slice = IoSlice::new(segment);
                count += 1;
            }
            match self.sink.try_write(&slices[..count]) {
                Ok(written) => {
                    frame.advance(written);
                    if frame.is_empty() {
                        self.current = None;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Flushed::Full,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Flushed::Broken(error),
            }
        }
        Flushed::Whole
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
