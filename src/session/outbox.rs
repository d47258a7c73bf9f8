//! What waits for one host to read it.
//!
//! Keeps order and counts bytes. A frame that was handed out stays counted until it is written, so
//! that a host that does not read is seen for what it is.

use std::collections::VecDeque;

use super::action::HostFrame;
use super::journaled::Ends;
use super::limits::{UNREAD_PER_HOST_BYTES, WHOLE_WRITE_BYTES};
use crate::protocol::Frame;

/// The frames for one host.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    frames: VecDeque<(HostFrame, Ends)>,
    waiting_bytes: u64,
    handed_out_bytes: u64,
}

impl Outbox {
    /// Adds a frame. Whether it is the first that waits, so that the shell has to be told.
    pub(super) fn push(&mut self, frame: Frame, own_write: bool, ends: Ends) -> bool {
        self.waiting_bytes += frame.len() as u64;
        self.frames
            .push_back((HostFrame { frame, own_write }, ends));
        self.frames.len() == 1
    }

    /// Hands out the next frame, and which requests it answers.
    pub(super) fn poll(&mut self) -> Option<(HostFrame, Ends)> {
        let next = self.frames.pop_front()?;
        let bytes = next.0.frame.len() as u64;
        self.waiting_bytes -= bytes;
        self.handed_out_bytes += bytes;
        Some(next)
    }

    /// Hands out the next frame if it may leave in one write with those that were handed out and are
    /// not written: together they are written as a whole or not at all.
    pub(super) fn poll_beside(&mut self) -> Option<(HostFrame, Ends)> {
        let (next, _) = self.frames.front()?;
        let bytes = self.handed_out_bytes + next.frame.len() as u64;
        let is_small = bytes <= WHOLE_WRITE_BYTES as u64;
        (is_small && !next.own_write).then(|| self.poll())?
    }

    /// Whether all that was handed out is written.
    pub(super) const fn is_written(&self) -> bool {
        self.handed_out_bytes == 0
    }

    /// Takes `bytes` that were written off the count; how many there were to take off.
    pub(super) fn note_written(&mut self, bytes: u64) -> u64 {
        let written = bytes.min(self.handed_out_bytes);
        self.handed_out_bytes -= written;
        written
    }

    /// Whether more waits than may, in more than one message: a single one may be of any size.
    pub(super) fn is_too_full(&self) -> bool {
        let is_several = self.frames.len() + usize::from(self.handed_out_bytes > 0) > 1;
        is_several && self.waiting_bytes + self.handed_out_bytes > UNREAD_PER_HOST_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1024 * 1024;

    /// Whether an outbox with frames of these sizes, the first `polled` handed out, is too full.
    #[track_caller]
    fn check(sizes: &[usize], polled: usize, is_too_full: bool) {
        let mut outbox = Outbox::default();
        for size in sizes {
            outbox.push(Frame::line(vec![b'x'; size - 1]), false, Ends::new());
        }
        for _ in 0..polled {
            assert!(outbox.poll().is_some());
        }
        assert_eq!(outbox.is_too_full(), is_too_full);
    }

    #[test]
    fn one_message_may_be_of_any_size() {
        check(&[65 * MIB], 0, false);
        check(&[65 * MIB], 1, false);
        check(&[65 * MIB, 1], 0, true);
        check(&[65 * MIB, 1], 1, true);
    }

    #[test]
    fn several_may_wait_up_to_the_limit() {
        check(&[32 * MIB, 32 * MIB], 0, false);
        check(&[32 * MIB, 32 * MIB, 1], 1, true);
    }

    #[test]
    fn small_frames_leave_together_but_for_those_that_must_not() {
        let mut outbox = Outbox::default();
        for (size, own_write) in [
            (1000, false),
            (3000, false),
            (97, false),
            (9, true),
            (9, false),
        ] {
            outbox.push(Frame::line(vec![b'x'; size - 1]), own_write, Ends::new());
        }
        let mut writes = Vec::new();
        while let Some((first, _)) = outbox.poll() {
            let mut write = vec![first.frame.len()];
            while let Some((next, _)) = outbox.poll_beside() {
                write.push(next.frame.len());
            }
            outbox.note_written(u64::MAX);
            writes.push(write);
        }
        assert_eq!(writes, [vec![1000, 3000], vec![97], vec![9, 9]]);
    }

    #[test]
    fn what_is_written_makes_room() {
        let mut outbox = Outbox::default();
        outbox.push(Frame::line(vec![b'x'; 65 * MIB]), false, Ends::new());
        outbox.push(Frame::line("{}"), false, Ends::new());
        assert!(outbox.is_too_full());
        assert!(outbox.poll().is_some());
        assert_eq!(outbox.note_written(64 * MIB as u64), 64 * MIB as u64);
        assert!(!outbox.is_too_full());
        assert_eq!(outbox.note_written(u64::MAX), MIB as u64 + 1);
    }
}
