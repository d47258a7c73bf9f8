//! The reading end: bytes from a host or a child to lines for a worker.
//!
//! Reads as long as the worker takes lines; bytes that were read and not yet taken are bounded by
//! the worker's transit budget. Decides nothing about a line.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::BytesMut;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::ids::HostKey;
use crate::protocol::{Line, LineReader};

use super::shared::Shared;

/// Bytes that may be on their way from all readers of one worker into it.
pub(crate) const TRANSIT_LIMIT_BYTES: usize = 16 << 20;
/// What a line counts at least, so that many small ones are bounded too.
const LINE_COST_BYTES: usize = 512;

/// A line that is arriving is counted from this size on.
const COUNTED_BYTES: usize = 64 << 10;

/// Lines that were read together, and the room they take until the worker is done with them.
#[derive(Debug)]
pub(crate) struct Lines {
    lines: Vec<(Line, u64)>,
    _room: Option<OwnedSemaphorePermit>,
}

impl Lines {
    /// Hands every line to `take`, with the place in the stream where it ends; the room is given back
    /// after the last.
    pub(crate) fn each(self, mut take: impl FnMut(Line, u64)) {
        for (line, until) in self.lines {
            take(line, until);
        }
    }
}

/// Something that gives bytes without blocking and can say when there are more.
pub(crate) trait Source: Send + Sync + 'static {
    /// Reads what there is. All before `consumed` in the stream has been taken as whole lines.
    fn try_read(&self, buffer: &mut BytesMut, consumed: u64) -> io::Result<usize>;
    fn readable(&self) -> impl Future<Output = io::Result<()>> + Send;
}

/// Reads lines from `source`.
#[derive(Debug)]
pub(crate) struct Reader<S> {
    source: Arc<S>,
    lines: LineReader,
    transit: Transit,
    /// The host that is read from; `None` for a child.
    host: Option<HostKey>,
    /// What the pool was told of the line that is arriving.
    counted: u64,
    ended: bool,
}

/// The room for what is on its way into one worker, and the account for lines that are arriving.
#[derive(Clone, Debug)]
pub(crate) struct Transit {
    room: Arc<Semaphore>,
    shared: Arc<Shared>,
    /// `message_limit`, which may change while lines arrive.
    limit_bytes: Arc<AtomicUsize>,
}

impl Transit {
    pub(crate) fn new(shared: Arc<Shared>, limit_bytes: usize) -> Self {
        Self {
            room: Arc::new(Semaphore::new(TRANSIT_LIMIT_BYTES)),
            shared,
            limit_bytes: Arc::new(AtomicUsize::new(limit_bytes)),
        }
    }

    pub(crate) fn limit_bytes(&self) -> usize {
        self.limit_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn set_limit(&self, limit_bytes: usize) {
        self.limit_bytes.store(limit_bytes, Ordering::Relaxed);
    }

    /// Tells the pool that an arriving line holds `now` bytes, and has whoever must go for it go.
    fn recount(&self, host: Option<HostKey>, before: u64, now: u64) {
        let largest = self.shared.pool.recount_arriving(host, before, now);
        if let Some(largest) = largest {
            self.shared.evict(largest);
        }
    }
}

impl<S> Drop for Reader<S> {
    fn drop(&mut self) {
        self.transit.recount(self.host, self.counted, 0);
    }
}

impl<S: Source> Reader<S> {
    /// A reader of what `host` sends, or, without one, a child.
    pub(crate) fn new(
        source: Arc<S>,
        lines: LineReader,
        transit: Transit,
        host: Option<HostKey>,
    ) -> Self {
        Self {
            source,
            lines,
            transit,
            host,
            counted: 0,
            ended: false,
        }
    }

    /// The next lines, at least one; `None` at the end of the input.
    ///
    /// # Errors
    /// What the descriptor said; lines before it have been handed out.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Lines>> {
        loop {
            let mut lines = Vec::new();
            let mut size = 0;
            while let Some(line) = self.poll_line() {
                size += line_size(&line);
                lines.push((line, self.lines.consumed_bytes()));
            }
            self.count();
            if !lines.is_empty() {
                return Ok(Some(self.admit(lines, size).await));
            }
            if self.ended {
                return Ok(None);
            }
            self.fill().await?;
        }
    }

    /// Tells the pool what the line that is arriving holds by now.
    fn count(&mut self) {
        let held = match self.lines.held_bytes() {
            small if small < COUNTED_BYTES => 0,
            held => held as u64,
        };
        if held != self.counted {
            self.transit.recount(self.host, self.counted, held);
            self.counted = held;
        }
    }

    fn poll_line(&mut self) -> Option<Line> {
        match self.lines.poll() {
            None if self.ended => self.lines.finish(),
            line => line,
        }
    }

    /// Waits for room for lines that are `size` bytes; one larger than the budget takes all of it.
    async fn admit(&self, lines: Vec<(Line, u64)>, size: usize) -> Lines {
        let size = u32::try_from(size.min(TRANSIT_LIMIT_BYTES)).unwrap_or(u32::MAX);
        let room = &self.transit.room;
        let room = match room.clone().try_acquire_many_owned(size) {
            Ok(permit) => Some(permit),
            // The budget is never closed; without a permit the lines would only be unaccounted.
            Err(_) => room.clone().acquire_many_owned(size).await.ok(),
        };
        Lines { lines, _room: room }
    }

    async fn fill(&mut self) -> io::Result<()> {
        let limit_bytes = self.transit.limit_bytes.load(Ordering::Relaxed);
        self.lines.set_limit(limit_bytes);
        loop {
            self.source.readable().await?;
            let consumed = self.lines.consumed_bytes();
            let buffer = self.lines.spare();
            match self.source.try_read(buffer, consumed) {
                Ok(0) => {
                    self.ended = true;
                    return Ok(());
                }
                Ok(_) => {
                    #[cfg(feature = "test-fakes")]
                    super::faults::in_reader(buffer);
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // Also of a journal that is full: others have to have a turn.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                    tokio::task::yield_now().await;
                }
                Err(error) => return Err(error),
            }
        }
    }
}

fn line_size(line: &Line) -> usize {
    let bytes = match line {
        Line::Message(message) => message.bytes().len(),
        Line::Batch(batch) => batch.bytes.len(),
        Line::Fault(_) => 0,
    };
    bytes + LINE_COST_BYTES
}
