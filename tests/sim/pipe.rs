//! A pipe or one direction of a socket: bounded, byte by byte, with two ends that may go.
//!
//! Decides nothing; it is what a kernel would be.

use std::collections::VecDeque;

use mcpd::protocol::Frame;

#[derive(Debug)]
pub(crate) struct Pipe {
    bytes: VecDeque<u8>,
    capacity: usize,
    /// Nobody reads any more: a write is broken.
    pub(crate) reader_gone: bool,
    /// How many may write; with none left the reader sees the end.
    pub(crate) writers: u32,
}

impl Pipe {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            bytes: VecDeque::new(),
            capacity,
            reader_gone: false,
            writers: 1,
        }
    }

    pub(crate) fn free(&self) -> usize {
        self.capacity - self.bytes.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Whether a reader sees the end of it now.
    pub(crate) fn is_at_end(&self) -> bool {
        self.bytes.is_empty() && self.writers == 0
    }

    /// Takes in as much as fits and says how much that was.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> usize {
        let taken = bytes.len().min(self.free());
        self.bytes.extend(&bytes[..taken]);
        taken
    }

    /// Gives at most so many bytes.
    pub(crate) fn read(&mut self, most: usize) -> Vec<u8> {
        self.bytes.drain(..most.min(self.bytes.len())).collect()
    }

    /// The reader is gone, and with it what it has not read.
    pub(crate) fn close_reader(&mut self) {
        self.reader_gone = true;
        self.bytes.clear();
    }
}

/// What one attempt to write came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flushed {
    Whole,
    Full,
    Broken,
}

/// The writing end as the daemon has it: one frame that may be partly written.
#[derive(Debug, Default)]
pub(crate) struct Port {
    pub(crate) current: Option<Frame>,
    /// Somebody waits until the pipe takes more.
    pub(crate) is_waiting: bool,
}

impl Port {
    pub(crate) fn held_bytes(&self) -> usize {
        self.current.as_ref().map_or(0, Frame::len)
    }

    /// Writes as much of the current frame as the pipe takes.
    pub(crate) fn flush(&mut self, pipe: &mut Pipe) -> Flushed {
        while let Some(frame) = &mut self.current {
            if pipe.reader_gone {
                return Flushed::Broken;
            }
            if pipe.free() == 0 {
                return Flushed::Full;
            }
            let mut written = 0;
            for segment in frame.segments() {
                let taken = pipe.write(segment);
                written += taken;
                if taken < segment.len() {
                    break;
                }
            }
            frame.advance(written);
            if frame.is_empty() {
                self.current = None;
            }
        }
        Flushed::Whole
    }
}

/// Bytes that a peer wants to write, and those that its pipe has not taken yet.
#[derive(Debug, Default)]
pub(crate) struct Outgoing(VecDeque<u8>);

impl Outgoing {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.0.extend(bytes);
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Moves what fits into `pipe`. Whether anything moved.
    pub(crate) fn pump(&mut self, pipe: &mut Pipe) -> bool {
        if pipe.reader_gone {
            self.0.clear();
            return false;
        }
        let (front, _) = self.0.as_slices();
        let mut taken = pipe.write(front);
        self.0.drain(..taken);
        if !self.0.is_empty() && pipe.free() > 0 {
            let rest: Vec<u8> = self.0.iter().copied().take(pipe.free()).collect();
            let more = pipe.write(&rest);
            self.0.drain(..more);
            taken += more;
        }
        taken > 0
    }
}
