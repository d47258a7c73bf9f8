//! What a host says while there is no daemon.
//!
//! Keeps whole lines, and the one that is arriving, for the next daemon. Decides which of them have
//! waited long enough; what is said then is the session's.

use std::collections::VecDeque;
use std::time::Duration;

use smallvec::SmallVec;

use crate::protocol::RequestId;
use crate::time::Moment;

/// How long a request waits for a daemon that is expected.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// How much may wait. A host that says more is not read until a daemon comes or requests are
/// answered.
const LIMIT_BYTES: usize = 256 << 10;

/// The requests of one line.
pub(super) type Ids = SmallVec<[RequestId; 1]>;

#[derive(Debug)]
struct HeldLine {
    bytes: Vec<u8>,
    ids: Ids,
    until: Moment,
}

/// Lines without a daemon.
#[derive(Debug, Default)]
pub(super) struct Held {
    lines: VecDeque<HeldLine>,
    lines_bytes: usize,
    /// The line that is arriving, as far as it has come.
    arriving: Vec<u8>,
    arriving_since: Moment,
}

impl Held {
    /// Takes bytes of the line that is arriving.
    pub(super) fn push(&mut self, bytes: &[u8], now: Moment) {
        if self.arriving.is_empty() {
            self.arriving_since = now;
        }
        self.arriving.extend_from_slice(bytes);
    }

    /// The line that was arriving is whole and has these requests.
    pub(super) fn end_line(&mut self, ids: Ids, now: Moment) {
        let mut bytes = std::mem::take(&mut self.arriving);
        if !bytes.ends_with(b"\n") {
            bytes.push(b'\n');
        }
        self.push_line(bytes, ids, now);
    }

    /// Takes a whole line.
    pub(super) fn push_line(&mut self, bytes: Vec<u8>, ids: Ids, now: Moment) {
        self.lines_bytes += bytes.len();
        let until = now + PATIENCE;
        self.lines.push_back(HeldLine { bytes, ids, until });
    }

    /// Takes a whole line that came before all others.
    pub(super) fn push_line_first(&mut self, bytes: Vec<u8>, ids: Ids, now: Moment) {
        self.push_line(bytes, ids, now);
        self.lines.rotate_right(1);
    }

    /// The line that was arriving is not kept.
    pub(super) fn drop_arriving(&mut self) {
        self.arriving = Vec::new();
    }

    /// The host wants no answer to this request any more.
    pub(super) fn cancel(&mut self, id: &RequestId) {
        let bytes = &mut self.lines_bytes;
        // One of a batch stays: the others of its line are waited for.
        self.lines.retain(|line| {
            let goes = line.ids.len() == 1 && line.ids[0] == *id;
            if goes {
                *bytes -= line.bytes.len();
            }
            !goes
        });
    }

    /// The requests that have waited long enough.
    pub(super) fn expire(&mut self, now: Moment) -> Vec<RequestId> {
        let mut expired = Vec::new();
        while let Some(line) = self.lines.pop_front_if(|line| line.until <= now) {
            self.lines_bytes -= line.bytes.len();
            expired.extend(line.ids);
        }
        expired
    }

    /// All lines, to be answered now.
    pub(super) fn give_up(&mut self) -> Vec<RequestId> {
        self.lines_bytes = 0;
        let lines = std::mem::take(&mut self.lines);
        lines.into_iter().flat_map(|line| line.ids).collect()
    }

    /// Whether a line arrives that is too long to be kept, and has waited long enough.
    pub(super) fn is_stuck(&self, now: Moment) -> bool {
        self.arriving.len() >= LIMIT_BYTES && now >= self.arriving_since + PATIENCE
    }

    /// When something will have waited long enough.
    pub(super) fn next_end(&self) -> Option<Moment> {
        let is_full = self.arriving.len() >= LIMIT_BYTES;
        let stuck = is_full.then_some(self.arriving_since + PATIENCE);
        let first = self.lines.front().map(|line| line.until);
        crate::time::earliest(first, stuck)
    }

    /// Whether more may be taken.
    pub(super) fn has_room(&self) -> bool {
        self.lines_bytes + self.arriving.len() < LIMIT_BYTES
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.arriving.is_empty()
    }

    /// All of it, as the host sent it.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.lines_bytes + self.arriving.len());
        for line in &self.lines {
            bytes.extend_from_slice(&line.bytes);
        }
        bytes.extend_from_slice(&self.arriving);
        bytes
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}
