//! The array that answers a batch.
//!
//! JSON-RPC 2.0, section 6, as MCP 2025-03-26 has it: one array answers one array, in any order;
//! notifications get nothing, and a batch of notifications alone gets no array at all.

use bytes::Bytes;

use super::journaled::Ends;
use crate::protocol::Frame;

/// The answers to one batch, as far as they have come.
#[derive(Debug, Default)]
pub(super) struct BatchAnswer {
    /// Requests of the batch that are open.
    open: usize,
    /// Whether the batch is still being read.
    is_reading: bool,
    answers: Vec<Frame>,
    ends: Ends,
    bytes: u64,
}

impl BatchAnswer {
    /// A batch whose items are about to be read.
    pub(super) fn begin() -> Self {
        Self {
            is_reading: true,
            ..Self::default()
        }
    }

    /// All items were read.
    pub(super) fn end_reading(&mut self) {
        self.is_reading = false;
    }

    /// A request of the batch was opened.
    pub(super) fn open(&mut self) {
        self.open += 1;
    }

    /// A request of the batch is closed, with or without an answer.
    pub(super) fn close(&mut self) {
        self.open = self.open.saturating_sub(1);
    }

    /// Adds one answer.
    pub(super) fn add(&mut self, answer: Frame, ends: Ends) {
        self.ends.extend(ends);
        self.bytes += answer.len() as u64;
        self.answers.push(answer);
    }

    pub(super) fn is_complete(&self) -> bool {
        self.open == 0 && !self.is_reading
    }

    /// Which requests the array answers.
    pub(super) fn take_ends(&mut self) -> Ends {
        std::mem::take(&mut self.ends)
    }

    /// Bytes of the answers that are held.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The array, unless nothing was to be answered.
    pub(super) fn into_frame(self) -> Option<Frame> {
        if self.answers.is_empty() {
            return None;
        }
        let mut array = Vec::with_capacity(usize::try_from(self.bytes).unwrap_or(0) + 1);
        for answer in &self.answers {
            array.push(if array.is_empty() { b'[' } else { b',' });
            for segment in answer.segments() {
                array.extend_from_slice(segment);
            }
            // The newline of the answer's own line.
            array.pop();
        }
        array.push(b']');
        Some(Frame::line(Bytes::from(array)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_make_one_array_once_all_are_closed() {
        let mut batch = BatchAnswer::begin();
        batch.open();
        batch.open();
        batch.end_reading();
        batch.add(Frame::line("{\"id\":1}"), Ends::new());
        batch.close();
        assert!(!batch.is_complete());
        batch.add(Frame::line("{\"id\":2}"), Ends::new());
        batch.close();
        assert!(batch.is_complete());
        let frame = batch.into_frame().expect("two answers");
        assert_eq!(frame.to_vec(), b"[{\"id\":1},{\"id\":2}]\n");
    }

    #[test]
    fn without_answers_there_is_no_array() {
        let mut batch = BatchAnswer::begin();
        assert!(!batch.is_complete(), "while it is read more may come");
        batch.open();
        batch.end_reading();
        batch.close();
        assert!(batch.is_complete());
        assert!(batch.into_frame().is_none());
    }
}
