//! Finds the envelope of a message in its bytes, in one pass and as they arrive.
//!
//! Decides whether a line is one whole value by the grammar of RFC 8259, whether its strings are
//! UTF-8, and where the read members stand. It stops at any byte and goes on from there; it knows
//! brackets as bits, so depth costs no stack; and it looks into no payload further than it must to
//! find its end. A line that breaks the grammar is scanned on leniently, because an `id` behind
//! the break still tells which request has lost its answer. Never holds the bytes: the line reader
//! does, and may let go of those that `Scanner::forget` names.

use bytes::Bytes;

use super::envelope::{Envelope, Tracker};
use super::grammar::{BracketStack, Number, Sequence, escape_len, skip_plain, utf8_len};
use super::id::ID_LIMIT_BYTES;
use super::message::Message;

/// The deepest nesting that is followed, in brackets. It bounds the memory of the scanner to a
/// mebibyte and lies beyond what a peer that means well could ever write.
pub const DEPTH_LIMIT: usize = 8 * 1024 * 1024;

/// What the scanner expects next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// A value.
    Value,
    /// The first item of an array, or its end.
    ItemOrEnd,
    /// The first member of an object, or its end.
    KeyOrEnd,
    /// A member.
    Key,
    /// The rest of a member's name.
    KeyText,
    /// The colon behind a name.
    Colon,
    /// The rest of a string.
    Text,
    /// The rest of a number; `Scanner::number` says which part came last.
    Number,
    /// A comma or a closing bracket.
    AfterValue,
    /// Nothing: the value is whole.
    Done,
    /// Anything that looks like structure, after a break.
    Resync,
    /// Only the end of the line.
    Lost,
}

/// Where one step of the scan has led.
enum Step {
    /// All before this byte is done.
    On(usize),
    /// The bytes from here on are the start of something that has not wholly arrived.
    Wait(usize),
    /// The newline stands here.
    LineEnd(usize),
    /// A carriage return stands here that ends noise; what follows is looked at afresh.
    Restart(usize),
}

/// How far a scan came. Places are in what is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scan {
    /// All that has come is scanned, and the line goes on.
    Pending,
    /// The newline stands here.
    LineEnd(usize),
    /// What came so far is no message. A carriage return stands here, behind which there may be
    /// one: progress bars end in one.
    Restart(usize),
}

/// The state of one line. All positions count from the line's first bracket.
#[derive(Debug)]
pub(crate) struct Scanner {
    state: State,
    /// Bytes that have been scanned.
    position: usize,
    /// Bytes that the reader has let go of already.
    base: usize,
    number: Number,
    stack: BracketStack,
    tracker: Tracker,
    /// Where the name, string or number that is being scanned starts.
    token_start: usize,
    broken: bool,
    invalid_utf8: bool,
    too_deep: bool,
    /// Whether a carriage return stands between two tokens.
    returns: bool,
    /// Where the whole value ends.
    end: usize,
    /// Where something begins that stands behind the whole value.
    trailing: Option<usize>,
}

/// What came of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// One whole valid value that ends there.
    Whole {
        end: usize,
        is_array: bool,
    },
    Broken,
    /// Valid so far, and cut between two tokens.
    CutBetweenTokens,
    InvalidUtf8,
    TooDeep,
}

impl Scanner {
    pub(crate) fn new() -> Self {
        Self {
            state: State::Value,
            position: 0,
            base: 0,
            number: Number::Minus,
            stack: BracketStack::default(),
            tracker: Tracker::default(),
            token_start: 0,
            broken: false,
            invalid_utf8: false,
            too_deep: false,
            returns: false,
            end: 0,
            trailing: None,
        }
    }

    /// Makes ready for the next line and keeps small buffers.
    pub(crate) fn reset(&mut self) {
        self.state = State::Value;
        self.position = 0;
        self.base = 0;
        self.stack.clear();
        self.tracker.reset();
        self.broken = false;
        self.invalid_utf8 = false;
        self.too_deep = false;
        self.returns = false;
        self.trailing = None;
    }

    /// Scans what is new in `held`: the line's bytes behind those that were forgotten, as far as
    /// they have come.
    pub(crate) fn scan(&mut self, held: &[u8]) -> Scan {
        let mut at = self.position - self.base;
        let mut found = Scan::Pending;
        while at < held.len() {
            match self.step(held, at) {
                Step::On(next) => {
                    at = next;
                    continue;
                }
                Step::Wait(next) => at = next,
                Step::LineEnd(next) => {
                    at = next;
                    found = Scan::LineEnd(next);
                }
                Step::Restart(next) => {
                    at = next;
                    found = Scan::Restart(next);
                }
            }
            break;
        }
        self.position = self.base + at;
        found
    }

    /// How many of the first bytes of what is held will never be looked at again, if the line is
    /// not to be kept. From then on `held` must begin behind them.
    pub(crate) fn forget(&mut self) -> usize {
        let keeps_token = match self.state {
            State::KeyText => self.tracker.watches(self.stack.depth()),
            State::Text | State::Number => self.tracker.in_id(self.stack.depth()),
            _ => false,
        };
        // A name or id beyond the limit is not going to be read anyway.
        let keeps_token = keeps_token && self.position - self.token_start <= ID_LIMIT_BYTES + 2;
        let keep_from = if keeps_token {
            self.token_start.max(self.base)
        } else {
            self.position
        };
        let forgotten = keep_from - self.base;
        self.base = keep_from;
        forgotten
    }

    /// Bytes scanned.
    pub(crate) const fn position(&self) -> usize {
        self.position
    }

    /// Bytes of memory beside the line itself.
    pub(crate) fn held_bytes(&self) -> usize {
        self.stack.held_bytes() + self.tracker.held_bytes()
    }

    /// What the line is, once it has ended.
    pub(crate) fn verdict(&self) -> Verdict {
        if self.too_deep {
            return Verdict::TooDeep;
        }
        if self.invalid_utf8 {
            return Verdict::InvalidUtf8;
        }
        if self.broken {
            return Verdict::Broken;
        }
        match self.state {
            State::Done => Verdict::Whole {
                end: self.end,
                is_array: self.tracker.is_array(),
            },
            State::Text | State::KeyText | State::Number => Verdict::Broken,
            _ => Verdict::CutBetweenTokens,
        }
    }

    /// What is known of the message by now, while it may still be arriving.
    pub(crate) const fn envelope(&self) -> &Envelope {
        self.tracker.envelope()
    }

    /// Takes the envelope of a line that has ended.
    #[inline]
    pub(crate) fn take_envelope(&mut self) -> Envelope {
        self.tracker.take_envelope()
    }

    /// Where something begins that stands behind the whole value.
    pub(crate) const fn trailing(&self) -> Option<usize> {
        self.trailing
    }

    /// Whether a carriage return stands between two tokens of the value.
    pub(crate) const fn has_returns(&self) -> bool {
        self.returns
    }

    /// Elements of the array that the line is, as far as they have come.
    pub(crate) const fn items(&self) -> usize {
        self.tracker.items()
    }

    /// Whether the name of a read member was seen at the top level of a message.
    pub(crate) const fn saw_member(&self) -> bool {
        self.tracker.saw_member()
    }

    fn step(&mut self, held: &[u8], at: usize) -> Step {
        let byte = held[at];
        match self.state {
            State::Text | State::KeyText => self.string(held, at),
            State::Colon => match byte {
                b':' => self.expect(State::Value, at),
                _ => self.between(byte, at),
            },
            State::AfterValue => match byte {
                b',' => self.comma(held, at),
                b'}' | b']' if self.closes(byte) => self.close(at),
                _ => self.between(byte, at),
            },
            State::Value => self.value(held, at),
            State::Key => match byte {
                b'"' => self.begin_token(State::KeyText, at),
                _ => self.between(byte, at),
            },
            State::KeyOrEnd => match byte {
                b'"' => self.begin_token(State::KeyText, at),
                b'}' => self.close(at),
                _ => self.between(byte, at),
            },
            State::ItemOrEnd => match byte {
                b']' => self.close(at),
                _ => self.value(held, at),
            },
            State::Number => self.number(held, at),
            State::Done => self.behind_the_end(byte, at),
            State::Resync => self.resync(byte, at),
            State::Lost => memchr::memchr(b'\n', &held[at..])
                .map_or(Step::On(held.len()), |len| Step::LineEnd(at + len)),
        }
    }

    /// A byte that is not what is expected: a blank, the newline, or a break of the grammar.
    fn between(&mut self, byte: u8, at: usize) -> Step {
        match byte {
            b' ' | b'\t' => Step::On(at + 1),
            b'\r' => {
                self.returns = true;
                Step::On(at + 1)
            }
            b'\n' => Step::LineEnd(at),
            _ => self.break_at(at),
        }
    }

    fn expect(&mut self, state: State, at: usize) -> Step {
        self.state = state;
        Step::On(at + 1)
    }

    fn value(&mut self, held: &[u8], at: usize) -> Step {
        match held[at] {
            b'"' => {
                self.begin_value(at);
                self.begin_token(State::Text, at)
            }
            byte @ (b'{' | b'[') => {
                self.begin_value(at);
                self.open_bracket(byte == b'{', at)
            }
            byte @ (b'-' | b'0'..=b'9') => {
                self.begin_value(at);
                self.number = Number::first(byte);
                self.begin_token(State::Number, at)
            }
            b't' => self.literal(b"true", held, at),
            b'f' => self.literal(b"false", held, at),
            b'n' => self.literal(b"null", held, at),
            byte => self.between(byte, at),
        }
    }

    fn literal(&mut self, word: &[u8], held: &[u8], at: usize) -> Step {
        let end = at + word.len();
        if held[at..].starts_with(word) {
            self.begin_value(at);
            self.end_value(held, end);
            return Step::On(end);
        }
        if held.len() < end && word.starts_with(&held[at..]) {
            return Step::Wait(at);
        }
        self.break_at(at)
    }

    fn number(&mut self, held: &[u8], start: usize) -> Step {
        let mut at = start;
        while let Some(&byte) = held.get(at) {
            let Some(next) = self.number.then(byte) else {
                return self.number_ends(byte, held, at);
            };
            self.number = next;
            at += 1;
        }
        Step::On(at)
    }

    fn number_ends(&mut self, byte: u8, held: &[u8], at: usize) -> Step {
        match byte {
            // More digits may have been lost with the rest of the line.
            b'\n' => Step::LineEnd(at),
            b',' | b'}' | b']' | b' ' | b'\t' | b'\r' if self.number.may_end() => {
                self.end_value(held, at);
                Step::On(at)
            }
            _ => self.break_at(at),
        }
    }

    /// The rest of a string or name, or as much as has come.
    fn string(&mut self, held: &[u8], start: usize) -> Step {
        let mut at = start;
        loop {
            at = skip_plain(held, at);
            match held.get(at) {
                None => return Step::On(at),
                Some(b'"') => return self.end_string(held, at),
                Some(b'\\') => match escape_len(held, at) {
                    Sequence::Whole(len) => at += len,
                    Sequence::Cut => return Step::Wait(at),
                    Sequence::Wrong => {
                        self.broken = true;
                        at += 1;
                    }
                },
                Some(b'\n') => return Step::LineEnd(at),
                Some(0x80..) => match utf8_len(held, at) {
                    Sequence::Whole(len) => at += len,
                    Sequence::Cut => return Step::Wait(at),
                    Sequence::Wrong => {
                        self.invalid_utf8 = true;
                        at += 1;
                    }
                },
                Some(b'\r') if !self.tracker.saw_member() => {
                    self.broken = true;
                    return Step::Restart(at);
                }
                // A control character. The string may still close, and an id may follow.
                Some(_) => {
                    self.broken = true;
                    at += 1;
                }
            }
        }
    }

    fn end_string(&mut self, held: &[u8], at: usize) -> Step {
        if self.state == State::Text {
            self.end_value(held, at + 1);
            return Step::On(at + 1);
        }
        let depth = self.stack.depth();
        if self.tracker.watches(depth) {
            let name = self
                .token_start
                .checked_sub(self.base)
                .and_then(|start| held.get(start + 1..at));
            self.tracker.named(depth, self.token_start, name);
        }
        // Most colons follow at once.
        if held.get(at + 1) == Some(&b':') {
            return self.expect(State::Value, at + 1);
        }
        self.expect(State::Colon, at)
    }

    fn begin_token(&mut self, state: State, at: usize) -> Step {
        self.token_start = self.base + at;
        self.expect(state, at)
    }

    fn begin_value(&mut self, at: usize) {
        let depth = self.stack.depth();
        if self.tracker.watches(depth) {
            self.tracker.value_began(depth, self.base + at);
        }
    }

    /// A value has ended before `end` in `held`.
    fn end_value(&mut self, held: &[u8], end: usize) {
        self.state = State::AfterValue;
        let depth = self.stack.depth();
        if self.tracker.watches(depth) {
            let base = self.base;
            let raw = |start: usize| held.get(start.checked_sub(base)?..end);
            self.tracker.value_ended(depth, base + end, raw);
        }
    }

    fn open_bracket(&mut self, is_object: bool, at: usize) -> Step {
        let outer = self.stack.depth();
        if outer == DEPTH_LIMIT {
            self.too_deep = true;
            return self.expect(State::Lost, at);
        }
        self.stack.push(is_object);
        if outer == 0 || self.tracker.watches(outer) {
            self.tracker.opened(outer, is_object);
        }
        let next = if is_object {
            State::KeyOrEnd
        } else {
            State::ItemOrEnd
        };
        self.expect(next, at)
    }

    fn closes(&self, byte: u8) -> bool {
        self.stack.depth() > 0 && self.stack.is_object() == (byte == b'}')
    }

    fn close(&mut self, at: usize) -> Step {
        self.tracker.closed(self.stack.depth());
        self.stack.pop();
        if self.stack.depth() == 0 {
            self.state = State::Done;
            self.end = self.base + at + 1;
        } else {
            self.end_value(&[], at + 1);
        }
        Step::On(at + 1)
    }

    fn comma(&mut self, held: &[u8], at: usize) -> Step {
        match (self.stack.is_object(), held.get(at + 1)) {
            (false, _) => self.expect(State::Value, at),
            // Most names follow at once.
            (true, Some(b'"')) => self.begin_token(State::KeyText, at + 1),
            (true, _) => self.expect(State::Key, at),
        }
    }

    /// Behind the whole value only blanks may stand. Another object may be a second message whose
    /// newline was lost; its id is wanted too.
    fn behind_the_end(&mut self, byte: u8, at: usize) -> Step {
        match byte {
            b'\n' => return Step::LineEnd(at),
            b'\r' if self.broken && !self.tracker.saw_member() => return Step::Restart(at),
            b' ' | b'\t' | b'\r' => return Step::On(at + 1),
            _ => {}
        }
        self.broken = true;
        self.trailing.get_or_insert(self.base + at);
        if byte == b'{' {
            return self.open_bracket(true, at);
        }
        Step::On(at + 1)
    }

    /// The grammar is broken at this byte, which is looked at again as mere structure.
    fn break_at(&mut self, at: usize) -> Step {
        self.broken = true;
        self.state = State::Resync;
        self.tracker.broke(self.stack.depth());
        Step::On(at)
    }

    fn resync(&mut self, byte: u8, at: usize) -> Step {
        match byte {
            b'\n' => Step::LineEnd(at),
            b'\r' if !self.tracker.saw_member() => Step::Restart(at),
            b'"' if self.stack.is_object() => self.begin_token(State::KeyText, at),
            b'"' => self.begin_token(State::Text, at),
            b'{' | b'[' => self.open_bracket(byte == b'{', at),
            b'}' | b']' if self.closes(byte) => self.close(at),
            b',' => self.comma(&[], at),
            _ => Step::On(at + 1),
        }
    }
}

impl Message {
    /// The message that `bytes` are: one whole JSON object and nothing around it.
    pub fn parse(bytes: Bytes) -> Option<Self> {
        let mut scanner = Scanner::new();
        let starts = bytes.first() == Some(&b'{');
        if !starts || scanner.scan(&bytes) != Scan::Pending {
            return None;
        }
        match scanner.verdict() {
            Verdict::Whole { end, .. } if end == bytes.len() => {
                Some(Self::new(bytes, scanner.take_envelope(), false))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use proptest::prelude::*;
    use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
    use serde_json::value::RawValue;

    use super::*;
    use crate::protocol::envelope::{Level, Member};
    use crate::protocol::id::RequestId;
    use crate::protocol::samples;

    /// What an independent reader finds in an object, every pair in order.
    struct Pairs<'json>(Vec<(String, &'json RawValue)>);

    impl<'json> Deserialize<'json> for Pairs<'json> {
        fn deserialize<D: Deserializer<'json>>(reader: D) -> Result<Self, D::Error> {
            struct Collect;
            impl<'json> Visitor<'json> for Collect {
                type Value = Pairs<'json>;

                fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                    out.write_str("an object")
                }

                fn visit_map<A: MapAccess<'json>>(
                    self,
                    mut map: A,
                ) -> Result<Pairs<'json>, A::Error> {
                    let mut pairs = Vec::new();
                    while let Some((name, value)) = map.next_entry()? {
                        pairs.push((name, value));
                    }
                    Ok(Pairs(pairs))
                }
            }
            reader.deserialize_map(Collect)
        }
    }

    /// The envelope as the slow way finds it: by reading objects, and what lies in them, again.
    #[derive(Default)]
    struct Reference {
        members: Vec<(Member, std::ops::Range<usize>)>,
        duplicates: Vec<Member>,
        ids: Vec<RequestId>,
    }

    impl Reference {
        fn of(json: &str) -> Self {
            let mut reference = Self::default();
            reference.walk(json, json, Level::Message);
            reference
        }

        fn walk(&mut self, whole: &str, object: &str, level: Level) {
            let Ok(Pairs(pairs)) = serde_json::from_str(object) else {
                return;
            };
            for (name, value) in pairs {
                if let Some(member) = Member::find(level, name.as_bytes()) {
                    self.note(whole, member, value.get());
                }
            }
        }

        fn note(&mut self, whole: &str, member: Member, value: &str) {
            if let Some(inner) = member.opens() {
                self.walk(whole, value, inner);
            }
            if self.members.iter().any(|(seen, _)| *seen == member) {
                self.duplicates.push(member);
                self.members.retain(|(seen, _)| *seen != member);
            }
            let start = value.as_ptr() as usize - whole.as_ptr() as usize;
            self.members.push((member, start..start + value.len()));
            if member == Member::Id {
                self.ids.extend(RequestId::parse(value.as_bytes()));
            }
        }
    }

    /// Scans `line`, which ends in a newline, in the pieces that `cuts` makes of it.
    fn scan_in_pieces(line: &[u8], cuts: &[usize]) -> (Scanner, Scan) {
        let mut scanner = Scanner::new();
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (line.len() + 1)).collect();
        cuts.sort_unstable();
        for cut in cuts {
            let scan = scanner.scan(&line[..cut]);
            if scan != Scan::Pending {
                return (scanner, scan);
            }
        }
        let scan = scanner.scan(line);
        (scanner, scan)
    }

    fn with_newline(line: &[u8]) -> Vec<u8> {
        [line, b"\n"].concat()
    }

    #[track_caller]
    fn check(line: &str, verdict: Verdict, ids: &[&str]) {
        let bytes = with_newline(line.as_bytes());
        let (scanner, scan) = scan_in_pieces(&bytes, &[]);
        assert_eq!(scan, Scan::LineEnd(line.len()), "{line}");
        assert_eq!(scanner.verdict(), verdict, "{line}");
        let found: Vec<&[u8]> = scanner.envelope().ids.iter().map(RequestId::raw).collect();
        assert_eq!(
            found,
            ids.iter().map(|id| id.as_bytes()).collect::<Vec<_>>(),
            "{line}"
        );
    }

    fn whole(line: &str) -> Verdict {
        Verdict::Whole {
            end: line.trim_end().len(),
            is_array: line.starts_with('['),
        }
    }

    #[test]
    fn ids_are_found_wherever_they_stand() {
        for (line, ids) in [
            (r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, &["1"][..]),
            (
                r#"{"result":{"id":2},"jsonrpc":"2.0","id":"a"}  "#,
                &["\"a\""],
            ),
            (r#"{"\u0069d" : 1.0 }"#, &["1.0"]),
            (r#"{"id":1,"id":2}"#, &["1", "2"]),
            (r#"{"id":null}"#, &[]),
            (r#"{"id":{"id":1}}"#, &[]),
            (r#"{"id":[1]}"#, &[]),
            (r#"{"id":true}"#, &[]),
            (r#"{"params":{"id":1,"params":{"id":3}}}"#, &[]),
            (r#"[{"id":1},{"id":2},[{"id":3}],4]"#, &["1", "2"]),
        ] {
            check(line, whole(line), ids);
        }
    }

    #[test]
    fn an_id_is_found_behind_what_breaks_the_line() {
        for (line, ids) in [
            (r#"{"result":NaN,"id":5}"#, &["5"][..]),
            (
                r#"{"result":[NaN,-Infinity,{"a":undefined}],"id":5}"#,
                &["5"],
            ),
            (r#"{"result":{"a":1,},"id":5}"#, &["5"]),
            (r#"{"result":{"a" 1},"id":5}"#, &["5"]),
            (r#"{"result":1 "id":5}"#, &["5"]),
            (r#"{"result" "id":5}"#, &["5"]),
            ("{\"result\":\"a\tb\",\"id\":5}", &["5"]),
            (r#"{"result":"\x","id":5}"#, &["5"]),
            (r#"{"id":5,"result":{"text":"cut of"#, &["5"]),
            (r#"{"id":5}}"#, &["5"]),
            (r#"{"id":5}{"id":6}"#, &["5", "6"]),
            (r#"{"id":01}"#, &[]),
            (r#"{"id":1"#, &[]),
        ] {
            check(line, Verdict::Broken, ids);
        }
    }

    #[test]
    fn a_line_that_ends_between_tokens_is_told_apart() {
        for line in [
            "{",
            "[",
            r#"{"id": 1,"#,
            r#"{"result": {"a": []}"#,
            r#"{"id""#,
            r#"{"id":"#,
        ] {
            let ids = if line.contains(",") { &["1"][..] } else { &[] };
            check(line, Verdict::CutBetweenTokens, ids);
        }
        check(r#"{"resu"#, Verdict::Broken, &[]);
        check(r#"{"id":12"#, Verdict::Broken, &[]);
    }

    #[test]
    fn depth_has_no_end_that_matters() {
        for depth in [1, 63, 64, 65, 126, 127, 128, 129, 5_000, 200_000] {
            let mixed = "[{\"a\":".repeat(depth);
            let closed = "}]".repeat(depth);
            let line = format!("{{\"params\":{mixed}0{closed},\"id\":7}}");
            check(&line, whole(&line), &["7"]);
            let wrong = format!(
                "{{\"params\":{mixed}0{}]}},\"id\":7}}",
                "}]".repeat(depth - 1)
            );
            let bytes = with_newline(wrong.as_bytes());
            assert_eq!(scan_in_pieces(&bytes, &[]).0.verdict(), Verdict::Broken);
        }
    }

    #[test]
    fn beyond_the_depth_limit_only_the_newline_is_looked_for() {
        let mut scanner = Scanner::new();
        let deep = vec![b'['; DEPTH_LIMIT + 1];
        assert_eq!(scanner.scan(&deep), Scan::Pending);
        assert_eq!(scanner.verdict(), Verdict::TooDeep);
        assert!(scanner.held_bytes() <= DEPTH_LIMIT / 8 * 2);
        let line = with_newline(&deep);
        assert_eq!(scanner.scan(&line), Scan::LineEnd(deep.len()));
        scanner.reset();
        assert!(scanner.held_bytes() <= 1024);
    }

    #[test]
    fn what_is_forgotten_is_not_missed() {
        let line = br#"{"a":"some text \u00e9 that is long","\u0069d":"an id","method":"m"}"#;
        let line = with_newline(line);
        for step in 1..9 {
            let mut scanner = Scanner::new();
            let mut held = Vec::new();
            let mut ended = false;
            for piece in line.chunks(step) {
                held.extend_from_slice(piece);
                ended = matches!(scanner.scan(&held), Scan::LineEnd(_));
                held.drain(..scanner.forget());
                assert!(held.len() <= 24, "{} bytes held", held.len());
            }
            assert!(ended);
            assert_eq!(scanner.envelope().ids[0].raw(), b"\"an id\"");
            assert!(scanner.envelope().has(Member::Method));
            assert!(matches!(scanner.verdict(), Verdict::Whole { .. }));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn exactly_what_is_json_is_whole(text in samples::near_json()) {
            let mut text = text;
            text.retain(|&byte| byte != b'\n');
            let start = text.iter().position(|byte| matches!(byte, b'{' | b'[')).unwrap_or(0);
            let text = &text[start..];
            prop_assume!(matches!(text.first(), Some(b'{' | b'[')));
            let line = with_newline(text);
            let (scanner, scan) = scan_in_pieces(&line, &[]);
            let is_json = serde_json::from_slice::<&RawValue>(text).is_ok();
            let is_whole = scan == Scan::LineEnd(text.len()) && matches!(scanner.verdict(), Verdict::Whole { .. });
            prop_assert_eq!(is_whole, is_json, "{:?}", String::from_utf8_lossy(text));
        }

        #[test]
        fn any_cut_gives_the_same(text in samples::near_json(), cuts in prop::collection::vec(any::<usize>(), 0..6)) {
            let start = text.iter().position(|byte| matches!(byte, b'{' | b'[')).unwrap_or(0);
            let line = with_newline(&text[start..]);
            prop_assume!(matches!(line[0], b'{' | b'['));
            let (one, one_scan) = scan_in_pieces(&line, &[]);
            let (other, other_scan) = scan_in_pieces(&line, &cuts);
            prop_assert_eq!(one_scan, other_scan);
            prop_assert_eq!(one.verdict(), other.verdict());
            prop_assert_eq!(one.envelope(), other.envelope());
        }

        #[test]
        fn spans_are_those_of_a_slow_reader(text in samples::readable_object()) {
            let line = with_newline(text.as_bytes());
            let (scanner, _) = scan_in_pieces(&line, &[]);
            let envelope = scanner.envelope();
            let reference = Reference::of(&text);
            for member in Member::ALL {
                let expected = reference.members.iter().find(|(found, _)| *found == member);
                let found = envelope.has(member).then(|| envelope.spans[member as usize].value.range());
                prop_assert_eq!(found, expected.map(|(_, range)| range.clone()), "{}", member);
            }
            prop_assert_eq!(envelope.duplicate, reference.duplicates.first().copied());
            prop_assert_eq!(&envelope.ids[..], &reference.ids[..]);
        }
    }
}
