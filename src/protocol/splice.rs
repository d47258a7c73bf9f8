//! Changes a few places of a message and leaves every other byte as it came.
//!
//! Decides how a changed message is laid out in memory: a short one is copied into one piece, a
//! long one is written from where it was read, with only the changes built anew. Never decides
//! what is changed.

use bytes::{BufMut, Bytes, BytesMut};
use smallvec::SmallVec;

use super::frame::{Frame, FrameArena, NEWLINE};
use super::json::{self, Span};
use super::message::{Member, Message};

/// Up to this length a message is copied, which costs less than holding on to the memory that it
/// was read into and less than writing it in pieces.
const COPY_LIMIT_BYTES: usize = 16 * 1024;

/// One change: the bytes of `span` give way to `bytes`.
#[derive(Clone, Debug)]
struct Edit {
    span: Span,
    bytes: SmallVec<[u8; 24]>,
}

/// The changes to one message.
#[derive(Debug)]
pub struct Splice<'message> {
    message: &'message Message,
    /// In the order of their places, without overlap.
    edits: SmallVec<[Edit; 2]>,
}

impl<'message> Splice<'message> {
    /// No change yet.
    pub fn of(message: &'message Message) -> Self {
        Self {
            message,
            edits: SmallVec::new(),
        }
    }

    /// Puts `bytes` in the place of `span`.
    ///
    /// Spans of two changes must not overlap; of two that do, the later one is left out.
    pub fn replace(&mut self, span: Span, bytes: &[u8]) -> &mut Self {
        let fits = span.start() <= span.end() && span.end() <= self.message.bytes().len();
        let at = self
            .edits
            .partition_point(|edit| edit.span.start() <= span.start());
        let before = at.checked_sub(1).map_or(0, |at| self.edits[at].span.end());
        let behind = self
            .edits
            .get(at)
            .map_or(usize::MAX, |edit| edit.span.start());
        if fits && before <= span.start() && span.end() <= behind {
            let bytes = SmallVec::from_slice(bytes);
            self.edits.insert(at, Edit { span, bytes });
        } else {
            debug_assert!(false, "changes at {span:?} overlap");
        }
        self
    }

    /// Puts `bytes` in the place of the member's value; changes nothing if it is not there.
    pub fn replace_member(&mut self, member: Member, bytes: &[u8]) -> &mut Self {
        match self.message.span(member) {
            Some(span) => self.replace(span, bytes),
            None => self,
        }
    }

    /// Puts `bytes` before the byte at `at`.
    pub fn insert(&mut self, at: usize, bytes: &[u8]) -> &mut Self {
        self.replace(Span::new(at, at), bytes)
    }

    /// Puts the member `"name":value` first in the object that stands at `object`, which is the
    /// whole message for [`Splice::whole`].
    pub fn insert_member(&mut self, object: Span, name: &str, value: &[u8]) -> &mut Self {
        let inside = object.start() + 1;
        let next = json::skip_space(self.message.bytes(), inside);
        let mut member = Vec::with_capacity(name.len() + value.len() + 4);
        json::write_text(&mut member, name);
        member.push(b':');
        member.extend_from_slice(value);
        if self.message.bytes().get(next) != Some(&b'}') {
            member.push(b',');
        }
        self.insert(inside, &member)
    }

    /// Takes the member off with its name and one comma; changes nothing if it is not there.
    ///
    /// Two members that stand beside each other can be taken off of one object only if a third
    /// stands behind them, because each takes the comma behind it where there is one.
    pub fn remove_member(&mut self, member: Member) -> &mut Self {
        match self.message.member_span(member) {
            Some(found) => self.remove_entry(found.key_start as usize, found.value),
            None => self,
        }
    }

    /// As [`Splice::remove_member`], for a member that was found by walking: its name starts at
    /// `key_start` and its value stands at `value`, both counted in the message.
    pub fn remove_entry(&mut self, key_start: usize, value: Span) -> &mut Self {
        let bytes = self.message.bytes();
        let behind = json::skip_space(bytes, value.end());
        let span = if bytes.get(behind) == Some(&b',') {
            Span::new(key_start, json::skip_space(bytes, behind + 1))
        } else {
            let before = bytes[..key_start.min(bytes.len())]
                .iter()
                .rposition(|byte| !matches!(byte, b' ' | b'\t' | b'\r' | b'\n'))
                .filter(|&at| bytes[at] == b',');
            Span::new(before.unwrap_or(key_start), value.end())
        };
        self.replace(span, b"")
    }

    /// The span of the whole message.
    pub fn whole(&self) -> Span {
        Span::new(0, self.message.bytes().len())
    }

    /// The changed message as a line.
    pub fn finish(&self) -> Frame {
        self.finish_in(&mut FrameArena::new())
    }

    /// The changed message as a line, built in the memory of `arena`.
    pub fn finish_in(&self, arena: &mut FrameArena) -> Frame {
        let len = self.len() + NEWLINE.len();
        if len <= COPY_LIMIT_BYTES {
            let out = arena.room(len);
            self.copy_to(out);
            out.put_slice(&NEWLINE);
            return Frame::whole(arena.take());
        }
        self.share(arena)
    }

    fn len(&self) -> usize {
        let changes = self.edits.iter();
        changes.fold(self.message.bytes().len(), |len, edit| {
            len - edit.span.len() + edit.bytes.len()
        })
    }

    fn copy_to(&self, out: &mut BytesMut) {
        let bytes = self.message.bytes();
        let mut at = 0;
        for edit in &self.edits {
            out.put_slice(&bytes[at..edit.span.start()]);
            out.put_slice(&edit.bytes);
            at = edit.span.end();
        }
        out.put_slice(&bytes[at..]);
    }

    /// The pieces of the message as they lie, with the changes between them.
    fn share(&self, arena: &mut FrameArena) -> Frame {
        let bytes = self.message.bytes();
        let mut segments: SmallVec<[Bytes; 8]> = SmallVec::new();
        let mut at = 0;
        for edit in &self.edits {
            segments.push(bytes.slice(at..edit.span.start()));
            arena.room(edit.bytes.len()).put_slice(&edit.bytes);
            segments.push(arena.take());
            at = edit.span.end();
        }
        segments.push(bytes.slice(at..));
        segments.push(NEWLINE);
        Frame::from_segments(segments)
    }
}
