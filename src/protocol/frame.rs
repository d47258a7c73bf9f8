//! Bytes that are ready to be written: one whole line, newline included.
//!
//! Decides nothing. A frame is cut into segments so that a large body is written from where it was
//! read; cloning a frame for many hosts shares the segments.

use bytes::{Bytes, BytesMut};
use smallvec::SmallVec;

/// The end of every line, shared by all frames.
pub(crate) const NEWLINE: Bytes = Bytes::from_static(b"\n");

/// One line to be written, in segments that are written one after the other.
#[derive(Clone, Debug, Default)]
pub struct Frame {
    segments: SmallVec<[Bytes; 3]>,
    len: usize,
}

impl Frame {
    /// A frame of one message that stands in memory already, without its newline.
    pub fn line(message: impl Into<Bytes>) -> Self {
        Self::from_segments([message.into(), NEWLINE])
    }

    /// A frame of one whole line that carries its newline.
    pub(crate) fn whole(line: Bytes) -> Self {
        Self::from_segments([line])
    }

    /// A frame of `segments`, empty ones left out. The last must end in the line's newline.
    pub(crate) fn from_segments(segments: impl IntoIterator<Item = Bytes>) -> Self {
        let segments: SmallVec<[Bytes; 3]> = segments
            .into_iter()
            .filter(|segment| !segment.is_empty())
            .collect();
        let len = segments.iter().map(Bytes::len).sum();
        Self { segments, len }
    }

    /// Bytes that are left to write.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether all of it has been written.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What is left to write, in order; no segment is empty.
    pub fn segments(&self) -> &[Bytes] {
        &self.segments
    }

    /// Takes off the first `written` bytes; more than there are takes off all.
    pub fn advance(&mut self, written: usize) {
        let mut left = written.min(self.len);
        self.len -= left;
        let mut whole = 0;
        for segment in &mut self.segments {
            if left < segment.len() {
                // `split_to` and not `advance`: both only move a pointer.
                drop(segment.split_to(left));
                break;
            }
            left -= segment.len();
            whole += 1;
        }
        self.segments.drain(..whole);
    }

    /// All that is left, copied into one piece. For tests and for what is not on the hot path.
    pub fn to_vec(&self) -> Vec<u8> {
        self.segments.concat()
    }
}

/// Memory in which small frames are built, one behind the other, so that building one allocates
/// nothing as long as earlier ones have been written.
#[derive(Debug)]
pub struct FrameArena {
    spare: BytesMut,
    chunk_bytes: usize,
}

impl Default for FrameArena {
    fn default() -> Self {
        Self::new()
    }
}

/// Bytes that an arena takes from the allocator at once. A frame that waits keeps its whole chunk
/// alive, so this is also the most that one small frame can hold.
const ARENA_CHUNK_BYTES: usize = 32 * 1024;

impl FrameArena {
    /// An arena that holds nothing yet.
    pub fn new() -> Self {
        Self {
            spare: BytesMut::new(),
            chunk_bytes: ARENA_CHUNK_BYTES,
        }
    }

    /// An arena for one frame, which takes no more than that needs.
    pub(crate) fn for_one() -> Self {
        Self {
            spare: BytesMut::new(),
            chunk_bytes: 0,
        }
    }

    /// Room for `len` bytes; what is appended is taken with [`FrameArena::take`].
    pub(crate) fn room(&mut self, len: usize) -> &mut BytesMut {
        debug_assert!(self.spare.is_empty(), "a frame was begun and never taken");
        if self.spare.capacity() < len {
            // Takes the chunk back if nothing built in it is alive any more.
            self.spare.reserve(len.max(self.chunk_bytes));
        }
        &mut self.spare
    }

    /// What was appended since the last call.
    pub(crate) fn take(&mut self) -> Bytes {
        self.spare.split().freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_line_gets_its_newline() {
        let frame = Frame::line("{}".as_bytes());
        assert_eq!(frame.to_vec(), b"{}\n");
        assert_eq!(frame.len(), 3);
    }

    #[test]
    fn an_arena_takes_its_memory_back() {
        let mut arena = FrameArena::new();
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..10_000 {
            arena.room(100).extend_from_slice(&[b'x'; 100]);
            seen.insert(arena.take().as_ptr() as usize / ARENA_CHUNK_BYTES);
        }
        assert!(
            seen.len() <= 2,
            "{} chunks for frames that are gone",
            seen.len()
        );
    }

    #[test]
    fn an_arena_for_one_frame_takes_no_chunk() {
        assert!(FrameArena::for_one().room(10).capacity() < 100);
        assert_eq!(FrameArena::new().room(10).capacity(), ARENA_CHUNK_BYTES);
    }

    proptest! {
        #[test]
        fn writing_in_pieces_writes_everything_once(
            parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9), 0..6),
            steps in prop::collection::vec(0usize..12, 0..20),
        ) {
            let mut frame = Frame::from_segments(parts.iter().cloned().map(Bytes::from));
            let whole = parts.concat();
            let mut written = 0;
            for step in steps {
                prop_assert_eq!(frame.to_vec(), &whole[written..]);
                prop_assert_eq!(frame.len(), whole.len() - written);
                prop_assert!(frame.segments().iter().all(|segment| !segment.is_empty()));
                frame.advance(step);
                written = (written + step).min(whole.len());
            }
        }
    }
}
