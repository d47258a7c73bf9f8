//! Where in a journal the host's bytes are read to.
//!
//! Decides the place of the next read: behind what was not acted on, at the beginning again as soon
//! as all was, and on the other side when too much that was acted on stands before a line that goes
//! on. Never reads from the host.

use super::{ACTED_AT, BASE_AT, LOST_AT, Memory, REGION_AT, input_side, region_of};

/// What one read takes at most.
const READ_BYTES: usize = 64 << 10;
/// So much that was acted on makes the rest worth moving.
const MOVE_BYTES: u64 = 64 << 10;

/// What the next read may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// Read to these bytes of the journal, which are zeros.
    At { at: usize, len: usize },
    /// Everything is full of lines that wait to be acted on: ask again when some were.
    Full,
}

/// The place of the input of one journal.
#[derive(Debug)]
pub struct Input {
    region: usize,
    side: u64,
    /// Where in the stream this side begins.
    base: u64,
    /// Bytes on this side.
    fill: usize,
    /// The line that arrives has lost its beginning before this place in the stream.
    lost: Option<u64>,
}

impl Input {
    /// The input of a journal that an [`Image`](super::Image) with `len` bytes of input was written
    /// to. The journal may have grown since.
    pub fn new(memory: &dyn Memory, len: usize) -> Self {
        let region = region_of(memory.len());
        memory.store(REGION_AT, region as u64);
        Self {
            region,
            side: 0,
            base: 0,
            fill: len,
            lost: None,
        }
    }

    /// Where to read to. All before `consumed` in the stream are whole lines.
    pub fn make_room(&mut self, memory: &dyn Memory, consumed: u64) -> Room {
        let acted = memory.load(ACTED_AT);
        if self.lost.is_some_and(|lost| acted > lost) {
            self.lost = None;
            memory.store(LOST_AT, 0);
        }
        if acted == self.end() {
            self.clear(memory);
            self.rebase(memory, acted, self.side);
            self.fill = 0;
        } else if acted - self.base >= MOVE_BYTES {
            self.change_sides(memory, acted);
        }
        if self.fill == self.region {
            if acted < consumed {
                return Room::Full;
            }
            self.lose(memory);
        }
        Room::At {
            at: input_side(self.region, self.side) + self.fill,
            len: READ_BYTES.min(self.region - self.fill),
        }
    }

    /// So many bytes were read to where [`Input::make_room`] said.
    pub fn note_read(&mut self, count: usize) {
        self.fill += count;
    }

    /// Where in the stream the input ends.
    fn end(&self) -> u64 {
        self.base + self.fill as u64
    }

    fn clear(&self, memory: &dyn Memory) {
        memory.clear(input_side(self.region, self.side), self.fill);
    }

    fn rebase(&mut self, memory: &dyn Memory, base: u64, side: u64) {
        (self.base, self.side) = (base, side);
        memory.store(BASE_AT, base << 1 | side);
    }

    /// Takes what was not acted on to the other side, which is empty.
    fn change_sides(&mut self, memory: &dyn Memory, acted: u64) {
        let from = input_side(self.region, self.side);
        let to = input_side(self.region, self.side ^ 1);
        let done = usize::try_from(acted - self.base).unwrap_or(self.fill);
        let mut piece = [0; 4096];
        let mut at = done;
        while at < self.fill {
            let len = piece.len().min(self.fill - at);
            memory.read(from + at, &mut piece[..len]);
            memory.write(to + at - done, &piece[..len]);
            at += len;
        }
        let (old, fill) = (from, self.fill);
        self.rebase(memory, acted, self.side ^ 1);
        self.fill -= done;
        memory.clear(old, fill);
    }

    /// Gives up the beginning of the line that arrives. Whoever comes after a crash skips the rest.
    fn lose(&mut self, memory: &dyn Memory) {
        let lost = self.end();
        self.lost = Some(lost);
        memory.store(LOST_AT, lost + 1);
        self.clear(memory);
        self.rebase(memory, lost, self.side);
        memory.store(ACTED_AT, lost);
        self.fill = 0;
    }
}
