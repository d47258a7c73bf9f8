//! Bytes on their way to one side.
//!
//! Decides nothing. It knows whether the last line in it is whole, so that it can be ended.

use std::collections::VecDeque;

use super::session::HELD_LIMIT_BYTES;

/// Bytes on their way to one side.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    pub(super) bytes: VecDeque<u8>,
    /// Whether something of an unfinished line was put in last.
    mid_line: bool,
}

impl Queue {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
        if let Some(last) = bytes.last() {
            self.mid_line = *last != b'\n';
        }
    }

    pub(super) fn push_line(&mut self, line: &[u8]) {
        self.push(line);
        self.push(b"\n");
    }

    pub(super) fn end_line(&mut self) {
        if self.mid_line {
            self.push(b"\n");
        }
    }

    pub(super) fn clear(&mut self) {
        self.bytes = VecDeque::new();
        self.mid_line = false;
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The next bytes to write; all of them may take more than one look.
    pub(crate) fn front(&self) -> &[u8] {
        self.bytes.as_slices().0
    }

    /// The first `count` bytes have been written.
    pub(crate) fn advance(&mut self, count: usize) {
        self.bytes.drain(..count.min(self.bytes.len()));
        if self.bytes.is_empty() {
            // A large message must not leave its memory behind.
            self.bytes.shrink_to(HELD_LIMIT_BYTES / 4);
        }
    }
}
