//! What the daemon writes while it serves: open requests, the session, the half-written line.
//!
//! Decides the order of the stores, by which a reader finds a whole state whenever they stop.

use std::sync::Arc;

use super::{
    ACTED_AT, ENDED_AT, Ended, HALF_AT, ID_BYTES, Image, MORE_ID_BYTES, Memory, RECORDS_BYTES,
    SLOT_BYTES, SLOTS, SLOTS_AT, SLOTS_USED_AT, STATE_AT, WORD_BYTES, records_side,
};

/// The place of one open request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slot(u16);

/// Something about the session that has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// The host sent this `initialize`.
    Initialize(&'a [u8]),
    /// It was answered with this version.
    Told(&'a [u8]),
    /// The host hears log messages from this level on.
    Level(&'a [u8]),
    /// The host holds a subscription of this uri, a JSON string.
    Subscribed(&'a [u8]),
    /// It no longer holds it.
    Unsubscribed(&'a [u8]),
    /// What the host has seen of a list: the list's name, a blank, and what the daemon makes of it.
    Seen(&'a [u8]),
}

/// The bits of a slot's first word.
pub(super) mod slot {
    pub(in crate::journal) const OPEN: u64 = 1;
    pub(in crate::journal) const BEGUN: u64 = 2;
    /// Holds more of the id of a slot before it.
    pub(in crate::journal) const MORE: u64 = 3;
    pub(in crate::journal) const STATE: u64 = 3;
    /// The request is an `initialize`.
    pub(in crate::journal) const INITIALIZE: u64 = 4;
    /// Above it: the length of the id.
    pub(in crate::journal) const LEN_SHIFT: u32 = 8;
}

/// The kinds of records, and what one begins with: its kind and its length.
pub(super) mod record {
    pub(in crate::journal) const HEAD_BYTES: usize = 5;
    pub(in crate::journal) const INITIALIZE: u8 = 1;
    pub(in crate::journal) const TOLD: u8 = 2;
    pub(in crate::journal) const LEVEL: u8 = 3;
    pub(in crate::journal) const SUBSCRIBED: u8 = 4;
    pub(in crate::journal) const UNSUBSCRIBED: u8 = 5;
    pub(in crate::journal) const SEEN: u8 = 6;
}

impl<'a> Change<'a> {
    const fn parts(self) -> (u8, &'a [u8]) {
        match self {
            Self::Initialize(bytes) => (record::INITIALIZE, bytes),
            Self::Told(bytes) => (record::TOLD, bytes),
            Self::Level(bytes) => (record::LEVEL, bytes),
            Self::Subscribed(bytes) => (record::SUBSCRIBED, bytes),
            Self::Unsubscribed(bytes) => (record::UNSUBSCRIBED, bytes),
            Self::Seen(bytes) => (record::SEEN, bytes),
        }
    }
}

/// The writing end of one journal.
#[derive(Debug)]
pub struct Writer {
    memory: Arc<dyn Memory>,
    /// One bit a slot that is taken.
    taken: [u64; SLOTS / 64],
    slots_used: u64,
    is_half: bool,
}

impl Writer {
    /// Begins to write to a journal that an [`Image`] was written to: its session and
    /// its input stay.
    pub fn new(memory: Arc<dyn Memory>) -> Self {
        Self {
            memory,
            taken: [0; SLOTS / 64],
            slots_used: 0,
            is_half: false,
        }
    }

    /// Notes a request with this id, whose line ends at `until` in the stream. It counts from the
    /// moment on at which that much of the stream is acted on. `None` if there is no room.
    pub fn open(&mut self, id: &[u8], until: u64, is_initialize: bool) -> Option<Slot> {
        let count = slots_for(id.len());
        let first = self.find_free(count)?;
        let (head, mut rest) = id.split_at(id.len().min(ID_BYTES));
        for at in first + 1..first + count {
            let (piece, behind) = rest.split_at(rest.len().min(MORE_ID_BYTES));
            self.memory.write(slot_at(at) + WORD_BYTES, piece);
            self.memory.store(slot_at(at), slot::MORE);
            rest = behind;
        }
        let place = slot_at(first);
        self.memory.write(place + 2 * WORD_BYTES, head);
        self.memory.store(place + WORD_BYTES, until);
        if (first + count) as u64 > self.slots_used {
            self.slots_used = (first + count) as u64;
            self.memory.store(SLOTS_USED_AT, self.slots_used);
        }
        let kind = if is_initialize { slot::INITIALIZE } else { 0 };
        let len = (id.len() as u64) << slot::LEN_SHIFT;
        self.memory.store(place, slot::OPEN | kind | len);
        for at in first..first + count {
            self.taken[at / 64] |= 1 << (at % 64);
        }
        // SLOTS fits.
        u16::try_from(first).ok().map(Slot)
    }

    /// The answer of a request is about to be written.
    pub fn begin_answer(&self, slot: Slot) {
        let place = slot_at(usize::from(slot.0));
        let word = self.memory.load(place);
        self.memory.store(place, word & !slot::STATE | slot::BEGUN);
    }

    /// A request is over: its answer is written, or none is due.
    pub fn close(&mut self, slot: Slot) {
        let first = usize::from(slot.0);
        let len = self.memory.load(slot_at(first)) >> slot::LEN_SHIFT;
        let count = slots_for(usize::try_from(len).unwrap_or(0));
        self.memory.store(slot_at(first), 0);
        for at in first..(first + count).min(SLOTS) {
            self.taken[at / 64] &= !(1 << (at % 64));
        }
    }

    /// So much of the stream has been acted on.
    pub fn act_until(&self, until: u64) {
        self.memory.store(ACTED_AT, until);
    }

    /// Whether a line to the host is half written.
    pub fn set_half(&mut self, is_half: bool) {
        if self.is_half != is_half {
            self.is_half = is_half;
            self.memory.store(HALF_AT, u64::from(is_half));
        }
    }

    /// The attachment has ended in this way.
    pub fn end(&self, ended: Ended) {
        self.memory.store(ENDED_AT, ended.word());
    }

    /// Records a change of the session. False if there is no room for it.
    #[must_use]
    pub fn record(&self, change: Change<'_>) -> bool {
        self.append(change) || (self.compact() && self.append(change))
    }

    fn append(&self, change: Change<'_>) -> bool {
        let word = self.memory.load(STATE_AT);
        let (side, len) = (word & 1, (word >> 1) as usize);
        let Some(end) = put_record(&*self.memory, side, len, change) else {
            return false;
        };
        self.memory.store(STATE_AT, (end as u64) << 1 | side);
        true
    }

    /// Writes what the records come to, to the other side. Whether they could be read.
    fn compact(&self) -> bool {
        let mut image = Image::default();
        let is_read = image.read_session(&*self.memory).is_ok();
        if is_read {
            let side = self.memory.load(STATE_AT) & 1 ^ 1;
            let len = image.write_session(&*self.memory, side);
            self.memory.store(STATE_AT, (len as u64) << 1 | side);
        }
        is_read
    }

    /// The first of `count` free slots in a row. The lowest, so that few pages are touched.
    fn find_free(&self, count: usize) -> Option<usize> {
        if count == 1 {
            let (at, word) = self
                .taken
                .iter()
                .enumerate()
                .find(|(_, word)| **word != u64::MAX)?;
            return Some(at * 64 + word.trailing_ones() as usize);
        }
        let is_taken = |at: usize| self.taken[at / 64] >> (at % 64) & 1 == 1;
        let mut first = 0;
        while first + count <= SLOTS {
            match (first..first + count).rfind(|at| is_taken(*at)) {
                None => return Some(first),
                Some(at) => first = at + 1,
            }
        }
        None
    }
}

pub(super) const fn slot_at(slot: usize) -> usize {
    SLOTS_AT + slot * SLOT_BYTES
}

/// How many slots an id of `len` bytes takes.
pub(super) const fn slots_for(len: usize) -> usize {
    1 + len.saturating_sub(ID_BYTES).div_ceil(MORE_ID_BYTES)
}

/// Writes a record behind the `len` bytes of this side; where it ends.
pub(super) fn put_record(
    memory: &dyn Memory,
    side: u64,
    len: usize,
    change: Change<'_>,
) -> Option<usize> {
    let (kind, bytes) = change.parts();
    let end = len + record::HEAD_BYTES + bytes.len();
    if end > RECORDS_BYTES {
        return None;
    }
    let mut head = [kind; record::HEAD_BYTES];
    head[1..].copy_from_slice(&u32::try_from(bytes.len()).ok()?.to_le_bytes());
    let at = records_side(side) + len;
    memory.write(at, &head);
    memory.write(at + record::HEAD_BYTES, bytes);
    Some(end)
}
