//! The words of JSON, as far as they can be cut by the end of what has arrived.
//!
//! Decides what a number, an escape and a character may look like (RFC 8259, RFC 3629) and which
//! brackets are open. Never knows what any of it means.

/// Which part of a number came last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Number {
    Minus,
    Zero,
    Integer,
    Point,
    Fraction,
    Exponent,
    ExponentSign,
    ExponentDigits,
}

impl Number {
    /// The part that a number begins with `byte` is in.
    pub(super) const fn first(byte: u8) -> Self {
        match byte {
            b'-' => Self::Minus,
            b'0' => Self::Zero,
            _ => Self::Integer,
        }
    }

    /// The part that `byte` continues with (RFC 8259, section 6).
    pub(super) fn then(self, byte: u8) -> Option<Self> {
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

    pub(super) const fn may_end(self) -> bool {
        matches!(
            self,
            Self::Zero | Self::Integer | Self::Fraction | Self::ExponentDigits
        )
    }
}

/// A sequence of several bytes inside a string.
pub(super) enum Sequence {
    Whole(usize),
    /// What has come of it is right so far.
    Cut,
    Wrong,
}

/// The escape that starts at `at` (RFC 8259, section 7). Surrogates need not be paired.
pub(super) fn escape_len(held: &[u8], at: usize) -> Sequence {
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
pub(super) fn utf8_len(held: &[u8], at: usize) -> Sequence {
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
pub(super) fn skip_plain(held: &[u8], at: usize) -> usize {
    let mut at = at;
    // Most strings end within a word; a long one goes on in blocks.
    if let Some(found) = special_in_word(held, at) {
        if found < WORD_BYTES {
            return at + found;
        }
        at += WORD_BYTES;
    }
    while held.get(at..at + BLOCK_BYTES).is_some_and(is_plain_block) {
        at += BLOCK_BYTES;
    }
    while let Some(found) = special_in_word(held, at) {
        if found < WORD_BYTES {
            return at + found;
        }
        at += WORD_BYTES;
    }
    while held.get(at).is_some_and(|&byte| !is_special(byte)) {
        at += 1;
    }
    at
}

const WORD_BYTES: usize = 8;

const BLOCK_BYTES: usize = 32;

/// Signed, everything from 0x80 up is negative and so below the blank, as the controls are.
const fn is_special(byte: u8) -> bool {
    ((byte as i8) < 0x20) | (byte == b'"') | (byte == b'\\')
}

/// No early exit, so that the compiler makes it a few vector compares.
fn is_plain_block(block: &[u8]) -> bool {
    let found = block
        .iter()
        .fold(0, |found, &byte| found | u8::from(is_special(byte)));
    found == 0
}

/// How many of the eight bytes at `at` are plain before one that is not; `None` if there are not
/// eight.
fn special_in_word(held: &[u8], at: usize) -> Option<usize> {
    const ONES: u64 = u64::from_le_bytes([1; WORD_BYTES]);
    const HIGHS: u64 = ONES << 7;
    let word = held.get(at..)?.first_chunk::<WORD_BYTES>()?;
    let word = u64::from_le_bytes(*word);
    // A byte's high bit is set where the byte is zero, or behind such a byte: the first is right
    // (H. S. Warren, Hacker's Delight, "Find First 0-Byte").
    let zero = |word: u64| word.wrapping_sub(ONES) & !word;
    let control = word.wrapping_sub(ONES * 0x20) & !word;
    let quote = zero(word ^ (ONES * b'"' as u64));
    let backslash = zero(word ^ (ONES * b'\\' as u64));
    let found = (word | control | quote | backslash) & HIGHS;
    Some(found.trailing_zeros() as usize / 8)
}

/// Which kind of bracket is open at each depth, one bit each.
#[derive(Debug, Default)]
pub(super) struct BracketStack {
    depth: usize,
    /// The innermost up to 64.
    top: u64,
    /// Those further out, in words of 64.
    rest: Vec<u64>,
}

impl BracketStack {
    pub(super) const fn depth(&self) -> usize {
        self.depth
    }

    pub(super) fn push(&mut self, is_object: bool) {
        if self.depth > 0 && self.depth.is_multiple_of(64) {
            self.rest.push(self.top);
        }
        self.top = self.top << 1 | u64::from(is_object);
        self.depth += 1;
    }

    pub(super) fn pop(&mut self) {
        self.depth = self.depth.saturating_sub(1);
        self.top >>= 1;
        if self.depth > 0 && self.depth.is_multiple_of(64) {
            self.top = self.rest.pop().unwrap_or_default();
        }
    }

    /// Whether the innermost bracket is an object's.
    pub(super) const fn is_object(&self) -> bool {
        self.depth > 0 && self.top & 1 == 1
    }

    pub(super) fn clear(&mut self) {
        self.depth = 0;
        self.top = 0;
        self.rest.clear();
        self.rest.shrink_to(64);
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.rest.len() * size_of::<u64>()
    }
}
