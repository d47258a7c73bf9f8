//! Finds the envelope of a message in its bytes, in one pass and as they arrive.
//!
//! Decides whether a line is one whole value by the grammar of RFC 8259, whether its strings are
//! UTF-8, and where the read members stand. It stops at any byte and goes on from there; it knows
//! brackets as bits, so depth costs no stack; and it looks into no payload further than it must to
//! find its end. A line that breaks the grammar is scanned on leniently, because an `id` behind
//! the break still tells which request has lost its answer. Never holds the bytes: the line reader
//! does, and may let go of those that [`Scanner::forget`] names.

use bytes::Bytes;

use super::id::{ID_LIMIT_BYTES, RequestId};
use super::json::{self, Span};
use super::message::{Envelope, Level, Member, MemberSpan, Message};

/// The deepest nesting that is followed, in brackets. It bounds the memory of the scanner to a
/// mebibyte and lies beyond what a peer that means well could ever write.
pub const DEPTH_LIMIT: usize = 8 * 1024 * 1024;

/// Ids that are remembered of one line.
const IDS_LIMIT: usize = 1_000;

/// Bytes that the remembered ids of one line may hold together.
const IDS_LIMIT_BYTES: usize = 4 * ID_LIMIT_BYTES;

/// The deepest object in which a read member can stand: batch, message, params, meta.
const DEEPEST: usize = 4;

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
    /// The rest of a number.
    Number(Number),
    /// A comma or a closing bracket.
    AfterValue,
    /// Nothing: the value is whole.
    Done,
    /// Anything that looks like structure, after a break.
    Resync,
    /// Only the end of the line.
    Lost,
}

/// Which part of a number came last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Number {
    Minus,
    Zero,
    Integer,
    Point,
    Fraction,
    Exponent,
    ExponentSign,
    ExponentDigits,
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

/// A member whose value is being scanned.
#[derive(Clone, Copy, Debug, Default)]
struct OpenMember {
    member: Option<Member>,
    key_start: usize,
    value_start: usize,
}

/// The state of one line. All positions count from the line's first bracket.
#[derive(Debug)]
pub(crate) struct Scanner {
    state: State,
    /// Bytes that have been scanned.
    position: usize,
    /// Bytes that the reader has let go of already.
    base: usize,
    stack: BracketStack,
    /// At each depth that can matter, the member whose value is being scanned there.
    open: [OpenMember; DEEPEST + 1],
    /// At each depth that can matter, what the object there is.
    levels: [Option<Level>; DEEPEST + 1],
    /// Where the name, string or number that is being scanned starts.
    token_start: usize,
    escaped: bool,
    is_array: bool,
    items: usize,
    /// Whether the name of a read member was seen at the top level of a message. A broken line
    /// without one is noise that happens to start with a bracket, as log lines do.
    saw_member: bool,
    broken: bool,
    invalid_utf8: bool,
    too_deep: bool,
    /// Where the whole value ends.
    end: usize,
    /// Where something begins that stands behind the whole value.
    trailing: Option<usize>,
    ids_bytes: usize,
    envelope: Envelope,
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
            stack: BracketStack::default(),
            open: Default::default(),
            levels: [None; DEEPEST + 1],
            token_start: 0,
            escaped: false,
            is_array: false,
            items: 0,
            saw_member: false,
            broken: false,
            invalid_utf8: false,
            too_deep: false,
            end: 0,
            trailing: None,
            ids_bytes: 0,
            envelope: Envelope::default(),
        }
    }

    /// Makes ready for the next line and keeps small buffers.
    pub(crate) fn reset(&mut self) {
        self.state = State::Value;
        self.position = 0;
        self.base = 0;
        self.stack.clear();
        self.open = Default::default();
        self.levels = [None; DEEPEST + 1];
        self.escaped = false;
        self.is_array = false;
        self.items = 0;
        self.saw_member = false;
        self.broken = false;
        self.invalid_utf8 = false;
        self.too_deep = false;
        self.trailing = None;
        self.ids_bytes = 0;
        self.envelope.clear();
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
            State::KeyText => self.level().is_some(),
            State::Text | State::Number(_) => self.in_id(),
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
        self.stack.held_bytes() + self.ids_bytes
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
                is_array: self.is_array,
            },
            State::Text | State::KeyText | State::Number(_) => Verdict::Broken,
            _ => Verdict::CutBetweenTokens,
        }
    }

    /// What is known of the message by now, while it may still be arriving.
    pub(crate) const fn envelope(&self) -> &Envelope {
        &self.envelope
    }

    /// Takes the envelope of a line that has ended.
    pub(crate) fn take_envelope(&mut self) -> Envelope {
        std::mem::take(&mut self.envelope)
    }

    /// Where something begins that stands behind the whole value.
    pub(crate) const fn trailing(&self) -> Option<usize> {
        self.trailing
    }

    /// Elements of the array that the line is, as far as they have come.
    pub(crate) const fn items(&self) -> usize {
        self.items
    }

    /// Whether the name of a read member was seen at the top level of a message.
    pub(crate) const fn saw_member(&self) -> bool {
        self.saw_member
    }

    fn step(&mut self, held: &[u8], at: usize) -> Step {
        let byte = held[at];
        match self.state {
            State::Text | State::KeyText => return self.string(held, at),
            State::Number(number) => return self.number(number, held, at),
            State::Lost => {
                return memchr::memchr(b'\n', &held[at..])
                    .map_or(Step::On(held.len()), |len| Step::LineEnd(at + len));
            }
            _ if byte == b'\n' => return Step::LineEnd(at),
            State::Resync => return self.resync(byte, at),
            State::Done if byte == b'\r' && self.broken && !self.saw_member => {
                return Step::Restart(at);
            }
            _ if matches!(byte, b' ' | b'\t' | b'\r') => return Step::On(at + 1),
            State::Done => return self.behind_the_end(byte, at),
            _ => {}
        }
        match (self.state, byte) {
            (State::Key | State::KeyOrEnd, b'"') => self.begin_key(at),
            (State::KeyOrEnd, b'}') | (State::ItemOrEnd, b']') => return self.close(at),
            (State::Colon, b':') => self.state = State::Value,
            (State::AfterValue, b',') => self.comma(),
            (State::AfterValue, b'}' | b']') if self.closes(byte) => return self.close(at),
            (State::Value | State::ItemOrEnd, _) => return self.value(held, at),
            _ => return self.break_at(at),
        }
        Step::On(at + 1)
    }

    fn value(&mut self, held: &[u8], at: usize) -> Step {
        match held[at] {
            b'"' => {
                self.begin_value(at);
                self.begin_token(at);
                self.state = State::Text;
            }
            b'{' => {
                self.begin_value(at);
                self.open_bracket(true);
            }
            b'[' => {
                self.begin_value(at);
                self.open_bracket(false);
            }
            digit @ (b'-' | b'0'..=b'9') => {
                self.begin_value(at);
                self.begin_token(at);
                self.state = State::Number(match digit {
                    b'-' => Number::Minus,
                    b'0' => Number::Zero,
                    _ => Number::Integer,
                });
            }
            b't' => return self.literal(b"true", held, at),
            b'f' => return self.literal(b"false", held, at),
            b'n' => return self.literal(b"null", held, at),
            _ => return self.break_at(at),
        }
        Step::On(at + 1)
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

    fn number(&mut self, number: Number, held: &[u8], start: usize) -> Step {
        let mut number = number;
        let mut at = start;
        while let Some(&byte) = held.get(at) {
            let Some(next) = number.then(byte) else {
                if number.may_end() {
                    self.end_value(held, at);
                    return Step::On(at);
                }
                return self.break_at(at);
            };
            number = next;
            at += 1;
        }
        self.state = State::Number(number);
        Step::On(at)
    }

    /// The rest of a string or name, or as much as has come.
    fn string(&mut self, held: &[u8], start: usize) -> Step {
        let mut at = start;
        loop {
            at = skip_plain(held, at);
            match held.get(at) {
                None => return Step::On(at),
                Some(b'"') => {
                    self.end_string(held, at);
                    return Step::On(at + 1);
                }
                Some(b'\\') => match escape_len(held, at) {
                    Sequence::Whole(len) => {
                        self.escaped = true;
                        at += len;
                    }
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
                Some(b'\r') if !self.saw_member => {
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

    fn end_string(&mut self, held: &[u8], at: usize) {
        if self.state == State::Text {
            self.end_value(held, at + 1);
            return;
        }
        self.state = State::Colon;
        if let Some(level) = self.level() {
            let member = self.token(held, at).and_then(|quoted| {
                let name = &quoted[1..];
                if self.escaped {
                    Member::find(level, &json::unescape(name))
                } else {
                    Member::find(level, name)
                }
            });
            self.saw_member |= level == Level::Message && member.is_some();
            let key_start = self.token_start;
            self.open[self.stack.depth()] = OpenMember {
                member,
                key_start,
                value_start: 0,
            };
        }
    }

    /// The bytes of the token that is being scanned, up to `end` in `held`; `None` if its start
    /// has been let go of.
    fn token<'held>(&self, held: &'held [u8], end: usize) -> Option<&'held [u8]> {
        let start = self.token_start.checked_sub(self.base)?;
        held.get(start..end)
    }

    fn begin_key(&mut self, at: usize) {
        self.begin_token(at);
        self.state = State::KeyText;
    }

    fn begin_token(&mut self, at: usize) {
        self.token_start = self.base + at;
        self.escaped = false;
    }

    fn begin_value(&mut self, at: usize) {
        let depth = self.stack.depth();
        if depth <= DEEPEST {
            self.open[depth].value_start = self.base + at;
            if depth == 1 && self.is_array {
                self.items += 1;
            }
        }
    }

    /// A value has ended before `end` in `held`.
    fn end_value(&mut self, held: &[u8], end: usize) {
        self.state = State::AfterValue;
        let depth = self.stack.depth();
        if depth > DEEPEST {
            return;
        }
        let OpenMember {
            member: Some(member),
            key_start,
            value_start,
        } = std::mem::take(&mut self.open[depth])
        else {
            return;
        };
        if member == Member::Id {
            self.note_id(held, value_start, end);
        }
        let value = Span::new(value_start, self.base + end);
        let key_start = key_start as u32;
        self.envelope.note(member, MemberSpan { key_start, value });
    }

    fn note_id(&mut self, held: &[u8], value_start: usize, end: usize) {
        let raw = value_start
            .checked_sub(self.base)
            .and_then(|start| held.get(start..end));
        let Some(id) = raw.and_then(RequestId::parse) else {
            return;
        };
        let bytes = id.held_bytes();
        if self.envelope.ids.len() < IDS_LIMIT && self.ids_bytes + bytes <= IDS_LIMIT_BYTES {
            self.ids_bytes += bytes;
            self.envelope.ids.push(id);
        }
    }

    fn open_bracket(&mut self, is_object: bool) {
        let outer = self.stack.depth();
        if outer == DEPTH_LIMIT {
            self.too_deep = true;
            self.state = State::Lost;
            return;
        }
        self.stack.push(is_object);
        if outer == 0 {
            self.is_array = !is_object;
        }
        if outer < DEEPEST {
            self.open[outer + 1] = OpenMember::default();
            self.levels[outer + 1] = self.level_of_inner(outer).filter(|_| is_object);
        }
        self.state = if is_object {
            State::KeyOrEnd
        } else {
            State::ItemOrEnd
        };
    }

    /// What an object would be that opens inside the bracket at depth `outer`.
    fn level_of_inner(&self, outer: usize) -> Option<Level> {
        match outer {
            0 => Some(Level::Message),
            1 if self.is_array => Some(Level::Message),
            _ => self.open[outer].member.and_then(Member::opens),
        }
    }

    /// What the innermost bracket is, if members are read in it.
    fn level(&self) -> Option<Level> {
        let depth = self.stack.depth();
        if depth <= DEEPEST {
            self.levels[depth]
        } else {
            None
        }
    }

    fn in_id(&self) -> bool {
        let depth = self.stack.depth();
        depth <= DEEPEST && self.open[depth].member == Some(Member::Id)
    }

    fn closes(&self, byte: u8) -> bool {
        self.stack.depth() > 0 && self.stack.is_object() == (byte == b'}')
    }

    fn close(&mut self, at: usize) -> Step {
        self.stack.pop();
        if self.stack.depth() == 0 {
            self.state = State::Done;
            self.end = self.base + at + 1;
        } else {
            self.end_value(&[], at + 1);
        }
        Step::On(at + 1)
    }

    fn comma(&mut self) {
        self.state = if self.stack.is_object() {
            State::Key
        } else {
            State::Value
        };
    }

    /// Something stands behind the whole value. Another object may be a second message whose
    /// newline was lost; its id is wanted too.
    fn behind_the_end(&mut self, byte: u8, at: usize) -> Step {
        self.broken = true;
        self.trailing.get_or_insert(self.base + at);
        if byte == b'{' {
            self.open_bracket(true);
        }
        Step::On(at + 1)
    }

    /// The grammar is broken at this byte, which is looked at again as mere structure.
    fn break_at(&mut self, at: usize) -> Step {
        self.broken = true;
        self.state = State::Resync;
        let depth = self.stack.depth();
        if depth <= DEEPEST {
            self.open[depth] = OpenMember::default();
        }
        Step::On(at)
    }

    fn resync(&mut self, byte: u8, at: usize) -> Step {
        match byte {
            b'\r' if !self.saw_member => return Step::Restart(at),
            b'"' if self.stack.is_object() => self.begin_key(at),
            b'"' => {
                self.begin_token(at);
                self.state = State::Text;
            }
            b'{' | b'[' => self.open_bracket(byte == b'{'),
            b'}' | b']' if self.closes(byte) => return self.close(at),
            b',' => self.comma(),
            _ => {}
        }
        Step::On(at + 1)
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

impl Number {
    /// The part that `byte` continues with (RFC 8259, section 6).
    fn then(self, byte: u8) -> Option<Self> {
        Some(match (self, byte) {
            (Self::Minus, b'0') => Self::Zero,
            (Self::Minus, b'1'..=b'9') => Self::Integer,
            (Self::Integer, b'0'..=b'9') => Self::Integer,
            (Self::Zero | Self::Integer, b'.') => Self::Point,
            (Self::Point | Self::Fraction, b'0'..=b'9') => Self::Fraction,
            (Self::Zero | Self::Integer | Self::Fraction, b'e' | b'E') => Self::Exponent,
            (Self::Exponent, b'+' | b'-') => Self::ExponentSign,
            (Self::Exponent | Self::ExponentSign | Self::ExponentDigits, b'0'..=b'9') => {
                Self::ExponentDigits
            }
            _ => return None,
        })
    }

    const fn may_end(self) -> bool {
        matches!(
            self,
            Self::Zero | Self::Integer | Self::Fraction | Self::ExponentDigits
        )
    }
}

/// A sequence of several bytes inside a string.
enum Sequence {
    Whole(usize),
    /// What has come of it is right so far.
    Cut,
    Wrong,
}

/// The escape that starts at `at` (RFC 8259, section 7). Surrogates need not be paired.
fn escape_len(held: &[u8], at: usize) -> Sequence {
    match held.get(at + 1) {
        None => Sequence::Cut,
        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Sequence::Whole(2),
        Some(b'u') => {
            let digits = &held[at + 2..held.len().min(at + 6)];
            match (digits.iter().all(u8::is_ascii_hexdigit), digits.len()) {
                (true, 4) => Sequence::Whole(6),
                (true, _) => Sequence::Cut,
                (false, _) => Sequence::Wrong,
            }
        }
        Some(_) => Sequence::Wrong,
    }
}

/// The character of several bytes that starts at `at` (RFC 3629, section 4).
fn utf8_len(held: &[u8], at: usize) -> Sequence {
    let (len, second) = match held[at] {
        0xC2..=0xDF => (2, 0x80..=0xBF),
        0xE0 => (3, 0xA0..=0xBF),
        0xE1..=0xEC | 0xEE..=0xEF => (3, 0x80..=0xBF),
        0xED => (3, 0x80..=0x9F),
        0xF0 => (4, 0x90..=0xBF),
        0xF1..=0xF3 => (4, 0x80..=0xBF),
        0xF4 => (4, 0x80..=0x8F),
        _ => return Sequence::Wrong,
    };
    let rest = &held[at + 1..held.len().min(at + len)];
    let right = rest.iter().enumerate().all(|(place, byte)| match place {
        0 => second.contains(byte),
        _ => matches!(byte, 0x80..=0xBF),
    });
    match (right, rest.len() == len - 1) {
        (true, true) => Sequence::Whole(len),
        (true, false) => Sequence::Cut,
        (false, _) => Sequence::Wrong,
    }
}

/// The first byte at or after `at` that means something in a string: a quote, a backslash, a
/// control character, or a byte that is not ASCII.
fn skip_plain(held: &[u8], at: usize) -> usize {
    // Signed, everything from 0x80 up is negative and so below the blank, as the controls are.
    let special = |byte: u8| (byte as i8) < 0x20 || byte == b'"' || byte == b'\\';
    let mut at = at;
    // No early exit inside a block, so that the compiler makes it a few vector compares.
    while let Some(block) = held.get(at..at + BLOCK_BYTES) {
        let found = block
            .iter()
            .fold(false, |found, &byte| found | special(byte));
        if found {
            break;
        }
        at += BLOCK_BYTES;
    }
    while held.get(at).is_some_and(|&byte| !special(byte)) {
        at += 1;
    }
    at
}

const BLOCK_BYTES: usize = 32;

/// Which kind of bracket is open at each depth, one bit each.
#[derive(Debug, Default)]
struct BracketStack {
    depth: usize,
    /// The innermost up to 64.
    top: u64,
    /// Those further out, in words of 64.
    rest: Vec<u64>,
}

impl BracketStack {
    const fn depth(&self) -> usize {
        self.depth
    }

    fn push(&mut self, is_object: bool) {
        if self.depth > 0 && self.depth.is_multiple_of(64) {
            self.rest.push(self.top);
        }
        self.top = self.top << 1 | u64::from(is_object);
        self.depth += 1;
    }

    fn pop(&mut self) {
        self.depth = self.depth.saturating_sub(1);
        self.top >>= 1;
        if self.depth > 0 && self.depth.is_multiple_of(64) {
            self.top = self.rest.pop().unwrap_or_default();
        }
    }

    /// Whether the innermost bracket is an object's.
    const fn is_object(&self) -> bool {
        self.depth > 0 && self.top & 1 == 1
    }

    fn clear(&mut self) {
        self.depth = 0;
        self.top = 0;
        self.rest.clear();
        self.rest.shrink_to(64);
    }

    fn held_bytes(&self) -> usize {
        self.rest.capacity() * size_of::<u64>()
    }
}
