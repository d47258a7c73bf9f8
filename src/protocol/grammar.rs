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
