//! Changes a few places of a message and leaves every other byte as it came.
//!
//! Decides how a changed message is laid out in memory: a short one is copied into one piece, a
//! long one is written from where it was read, with only the changes built anew. Never decides
//! what is changed.

use bytes::{BufMut, Bytes, BytesMut};
use smallvec::SmallVec;

use super::envelope::Member;
use super::frame::{Frame, FrameArena, NEWLINE};
use super::json::{self, Span};
use super::message::Message;

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
    /// Spans of two changes must not overlap; of two that do, the later one is left out. What is
    /// put before a place stands before what replaces it.
    pub fn replace(&mut self, span: Span, bytes: &[u8]) -> &mut Self {
        let fits = span.start() <= span.end() && span.end() <= self.message.bytes().len();
        let at = self.edits.partition_point(|edit| edit.span <= span);
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
    /// To take several off one object, use [`Splice::retain_members`]: each would take a comma that
    /// belongs to the other.
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

    /// Leaves only those members of the object at `object` that `keep` wants.
    pub fn retain_members(
        &mut self,
        object: Span,
        mut keep: impl FnMut(&json::Entry<'message>) -> bool,
    ) -> &mut Self {
        let message = self.message;
        let members = json::members(message.bytes().get(object.range()).unwrap_or_default());
        let members = members.map(|entry| {
            let place = Span::new(entry.key_start, entry.span.end());
            (place.within(object), keep(&entry))
        });
        self.retain(members)
    }

    /// Leaves only those elements of the array at `array` whose bytes `keep` wants.
    pub fn retain_elements(
        &mut self,
        array: Span,
        mut keep: impl FnMut(&'message [u8]) -> bool,
    ) -> &mut Self {
        let message = self.message;
        let elements = message.bytes().get(array.range()).unwrap_or_default();
        let places = json::elements(elements)
            .map(|span| (span.within(array), keep(&elements[span.range()])));
        self.retain(places)
    }

    /// Takes off the items that are not wanted, in runs, each with as many commas as it has items.
    fn retain(&mut self, items: impl Iterator<Item = (Span, bool)>) -> &mut Self {
        let mut last_kept: Option<Span> = None;
        let mut run: Option<Span> = None;
        for (item, keep) in items {
            if !keep {
                let start = run.map_or(item.start(), Span::start);
                run = Some(Span::new(start, item.end()));
                continue;
            }
            if let Some(run) = run.take() {
                self.take_run(last_kept, run, Some(item));
            }
            last_kept = Some(item);
        }
        if let Some(run) = run {
            self.take_run(last_kept, run, None);
        }
        self
    }

    fn take_run(&mut self, kept_before: Option<Span>, run: Span, kept_behind: Option<Span>) {
        let span = match (kept_before, kept_behind) {
            (Some(before), _) => Span::new(before.end(), run.end()),
            (None, Some(behind)) => Span::new(run.start(), behind.start()),
            (None, None) => run,
        };
        self.replace(span, b"");
    }

    /// The span of the whole message.
    pub fn whole(&self) -> Span {
        Span::new(0, self.message.bytes().len())
    }

    /// The changed message as a line, in memory of its own. On the way of every message
    /// [`Splice::finish_in`] is cheaper.
    pub fn finish(&self) -> Frame {
        self.finish_in(&mut FrameArena::for_one())
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::protocol::samples;

    fn message(text: &str) -> Message {
        Message::parse(Bytes::copy_from_slice(text.as_bytes())).unwrap()
    }

    /// `change` makes `after` of `before`, and leaves JSON behind.
    #[track_caller]
    fn check(before: &str, change: impl FnOnce(&mut Splice<'_>), after: &str) {
        let message = message(before);
        let mut splice = Splice::of(&message);
        change(&mut splice);
        let written = String::from_utf8(splice.finish().to_vec()).unwrap();
        assert_eq!(written, format!("{after}\n"));
        serde_json::from_str::<serde_json::Value>(&written).unwrap();
    }

    #[test]
    fn values_are_replaced_where_they_stand() {
        check(
            r#"{ "params":{"_meta":{"progressToken":"t", "x":1.0}} , "id" : 1.50,"method":"m"}"#,
            |splice| {
                splice
                    .replace_member(Member::Id, b"7")
                    .replace_member(Member::MetaProgressToken, b"7")
                    .replace_member(Member::Error, b"left out");
            },
            r#"{ "params":{"_meta":{"progressToken":7, "x":1.0}} , "id" : 7,"method":"m"}"#,
        );
    }

    #[test]
    fn members_are_taken_off_with_one_comma() {
        let id_off = |splice: &mut Splice<'_>| {
            splice.remove_member(Member::Id);
        };
        check(r#"{"id":1,"a":2}"#, id_off, r#"{"a":2}"#);
        check(r#"{"a":2 , "id" : 1 }"#, id_off, r#"{"a":2  }"#);
        check(r#"{"a":2, "id":1, "b":3}"#, id_off, r#"{"a":2, "b":3}"#);
        check(r#"{ "id":1 }"#, id_off, r"{  }");
        check(r#"{"a":1}"#, id_off, r#"{"a":1}"#);
    }

    #[test]
    fn what_is_put_before_a_place_stands_before_what_replaces_it() {
        check(
            r#"{"id":1}"#,
            |splice| {
                splice.replace_member(Member::Id, b"2");
                splice.insert(6, b" ").insert(6, b"\t");
            },
            "{\"id\": \t2}",
        );
    }

    #[test]
    fn elements_are_taken_off_in_runs() {
        let odd = |value: &[u8]| matches!(value, b"1" | b"3" | b"5");
        for (before, after) in [
            ("[1, 2, 3]", "[1, 3]"),
            ("[2, 4, 1, 2 , 4, 3 , 2, 4]", "[1, 3]"),
            ("[ 2, 4 ]", "[  ]"),
            ("[]", "[]"),
            ("[1 ,3]", "[1 ,3]"),
        ] {
            let text = |array: &str| format!(r#"{{"id":0,"result":{array}}}"#);
            let change = |splice: &mut Splice<'_>| {
                let array = splice.message.span(Member::Result).unwrap();
                splice
                    .replace_member(Member::Id, b"0")
                    .retain_elements(array, odd);
            };
            check(&text(before), change, &text(after));
        }
    }

    #[test]
    fn members_are_taken_off_in_runs() {
        check(
            r#"{"x/a":1, "b":2, "x/c":{"x/d":1}, "x/e":3}"#,
            |splice| {
                let whole = splice.whole();
                splice.retain_members(whole, |entry| !entry.key().starts_with("x/"));
            },
            r#"{"b":2}"#,
        );
    }

    #[test]
    fn a_member_is_put_first() {
        let insert = |splice: &mut Splice<'_>| {
            let whole = splice.whole();
            splice.insert_member(whole, "jsonrpc", b"\"2.0\"");
        };
        check("{}", insert, r#"{"jsonrpc":"2.0"}"#);
        check("{ }", insert, r#"{"jsonrpc":"2.0" }"#);
        check(r#"{ "id":1}"#, insert, r#"{"jsonrpc":"2.0", "id":1}"#);
    }

    #[test]
    fn a_large_body_is_not_copied() {
        let body = "x".repeat(1 << 20);
        let message = message(&format!(r#"{{"id":1,"result":"{body}"}}"#));
        let mut splice = Splice::of(&message);
        splice.replace_member(Member::Id, b"12345");
        let frame = splice.finish();
        assert_eq!(
            frame.to_vec(),
            format!("{{\"id\":12345,\"result\":\"{body}\"}}\n").into_bytes()
        );
        let held = message.bytes().as_ptr_range();
        let shared = frame
            .segments()
            .iter()
            .filter(|segment| held.contains(&segment.as_ptr()));
        assert_eq!(shared.count(), 2);
        assert_eq!(frame.segments().len(), 4);
    }

    proptest! {
        #[test]
        fn all_other_bytes_stay(
            text in samples::readable_object(),
            picked in prop::collection::btree_set(0..Member::COUNT, 0..4),
            filler in prop_oneof![3 => Just(0_usize), 1 => Just(COPY_LIMIT_BYTES)],
        ) {
            // Blanks are part of a message too.
            let text = text.replacen('{', &format!("{{{}", " ".repeat(filler)), 1);
            let message = message(&text);
            let mut expected = text.clone();
            let mut splice = Splice::of(&message);
            let mut spans: Vec<Span> = picked
                .iter()
                .filter_map(|&at| message.span(Member::ALL[at]))
                .collect();
            // Outer spans hold inner ones: keep those that lie beside each other.
            spans.sort();
            spans.dedup_by(|next, kept| next.start() < kept.end());
            for span in &spans {
                splice.replace(*span, b"\"new\"");
            }
            for span in spans.iter().rev() {
                expected.replace_range(span.range(), "\"new\"");
            }
            expected.push('\n');
            let frame = splice.finish();
            prop_assert_eq!(frame.len(), expected.len());
            prop_assert_eq!(frame.to_vec(), expected.as_bytes());
        }
    }
}
