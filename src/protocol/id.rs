//! Request ids: the bytes they were sent as, and when two of them are the same id.
//!
//! Decides equality: type and value, as JSON has them, so `1`, `1.0` and `1e0` are one id and `1`
//! and `"1"` are two. Never changes an id: an answer carries the very bytes that the
//! request had. An id owns its bytes, because a slice would keep the line it came from in memory
//! for as long as the request is open.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

use smallvec::SmallVec;

use super::json;

/// The longest id that is taken, in bytes as written, quotes and escapes included.
pub const ID_LIMIT_BYTES: usize = 64 * 1024;

/// The id of a request: a JSON string or number.
#[derive(Clone)]
pub struct RequestId {
    /// Forty bytes hold a UUID with its quotes without an allocation.
    raw: SmallVec<[u8; 40]>,
    key: Key,
}

/// What an id is compared by, as far as it cannot be read off `raw` directly.
#[derive(Clone)]
enum Key {
    Integer(i64),
    Decimal(Box<Decimal>),
    PlainText,
    EscapedText(Box<[u8]>),
}

/// A number that is no small integer: `digits` × 10^`exponent`, without zeros at either end.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Decimal {
    negative: bool,
    exponent: i64,
    digits: Vec<u8>,
}

/// The type and value of an id.
#[derive(PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Value<'id> {
    Integer(i64),
    Decimal(&'id Decimal),
    Text(&'id [u8]),
}

impl RequestId {
    /// Reads an id from the JSON value `raw`.
    ///
    /// `None` for what is no id: other types, more than [`ID_LIMIT_BYTES`], and numbers whose
    /// exponent has more than 18 digits, because their value could not be compared.
    pub fn parse(raw: &[u8]) -> Option<Self> {
        if raw.len() > ID_LIMIT_BYTES {
            return None;
        }
        let key = match raw {
            [b'"', text @ .., b'"'] => Key::of_text(text),
            [b'-' | b'0'..=b'9', ..] => Key::of_number(raw)?,
            _ => return None,
        };
        let raw = SmallVec::from_slice(raw);
        Some(Self { raw, key })
    }

    /// The id exactly as it was sent.
    pub fn raw(&self) -> &[u8] {
        &self.raw
    }

    /// The number, if the id is an integer from 0 up to 10^18, however it was spelled.
    pub fn as_u64(&self) -> Option<u64> {
        match self.key {
            Key::Integer(number) => u64::try_from(number).ok(),
            _ => None,
        }
    }

    /// Bytes that this id holds outside itself.
    pub fn held_bytes(&self) -> usize {
        let raw = if self.raw.spilled() {
            self.raw.capacity()
        } else {
            0
        };
        let key = match &self.key {
            Key::Integer(_) | Key::PlainText => 0,
            Key::Decimal(decimal) => size_of::<Decimal>() + decimal.digits.capacity(),
            Key::EscapedText(text) => text.len(),
        };
        raw + key
    }

    fn value(&self) -> Value<'_> {
        match &self.key {
            Key::Integer(number) => Value::Integer(*number),
            Key::Decimal(decimal) => Value::Decimal(decimal),
            Key::PlainText => Value::Text(&self.raw[1..self.raw.len() - 1]),
            Key::EscapedText(text) => Value::Text(text),
        }
    }
}

impl From<u64> for RequestId {
    fn from(number: u64) -> Self {
        let mut digits = itoa_buffer();
        Self::parse(write_decimal(&mut digits, number))
            .expect("the digits of a number are a valid id")
    }
}

/// Room for the digits of any `u64`.
pub(crate) const fn itoa_buffer() -> [u8; 20] {
    [0; 20]
}

/// The digits of `number`, written to the end of `buffer`; allocates nothing.
pub(crate) fn write_decimal(buffer: &mut [u8; 20], mut number: u64) -> &[u8] {
    let mut start = buffer.len();
    loop {
        start -= 1;
        buffer[start] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &buffer[start..];
        }
    }
}

impl Key {
    fn of_text(text: &[u8]) -> Self {
        match json::unescape(text) {
            std::borrow::Cow::Borrowed(_) => Self::PlainText,
            std::borrow::Cow::Owned(text) => Self::EscapedText(text.into()),
        }
    }

    fn of_number(raw: &[u8]) -> Option<Self> {
        let (negative, number) = match raw {
            [b'-', number @ ..] => (true, number),
            number => (false, number),
        };
        if number.len() <= 18 && number.iter().all(u8::is_ascii_digit) {
            return Some(Self::of_small(negative, number, 0));
        }
        let mantissa_len = number
            .iter()
            .position(|byte| matches!(byte, b'e' | b'E'))
            .unwrap_or(number.len());
        let (mantissa, exponent) = number.split_at(mantissa_len);
        let exponent = parse_exponent(exponent)?;
        let point = mantissa.iter().position(|&byte| byte == b'.');
        let fraction_len = point.map_or(0, |at| mantissa.len() - at - 1);
        let mut digits: Vec<u8> = mantissa
            .iter()
            .copied()
            .filter(u8::is_ascii_digit)
            .skip_while(|&digit| digit == b'0')
            .collect();
        let significant = digits
            .iter()
            .rposition(|&digit| digit != b'0')
            .map_or(0, |at| at + 1);
        // Both lengths are below the limit of an id, far from where an i64 ends.
        let exponent = exponent - fraction_len as i64 + (digits.len() - significant) as i64;
        digits.truncate(significant);
        if digits.is_empty() {
            return Some(Self::Integer(0));
        }
        if exponent >= 0 && digits.len() as i64 + exponent <= 18 {
            return Some(Self::of_small(negative, &digits, exponent));
        }
        Some(Self::Decimal(Box::new(Decimal {
            negative,
            exponent,
            digits,
        })))
    }

    /// An integer below 10^18: `digits` with `zeros` more behind them.
    fn of_small(negative: bool, digits: &[u8], zeros: i64) -> Self {
        let mut number = 0_i64;
        for digit in digits {
            number = number * 10 + i64::from(digit - b'0');
        }
        for _ in 0..zeros {
            number *= 10;
        }
        Self::Integer(if negative { -number } else { number })
    }
}

/// The value of `e+10`; nothing at all is zero.
fn parse_exponent(exponent: &[u8]) -> Option<i64> {
    let (negative, digits) = match exponent {
        [] => return Some(0),
        [_, b'-', digits @ ..] => (true, digits),
        [_, b'+', digits @ ..] | [_, digits @ ..] => (false, digits),
    };
    let zeros = digits.iter().take_while(|&&digit| digit == b'0').count();
    let digits = &digits[zeros..];
    if digits.len() > 18 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    match Key::of_small(negative, digits, 0) {
        Key::Integer(exponent) => Some(exponent),
        _ => None,
    }
}

impl PartialEq for RequestId {
    fn eq(&self, other: &Self) -> bool {
        self.value() == other.value()
    }
}

impl Eq for RequestId {}

impl PartialOrd for RequestId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for RequestId {
    fn cmp(&self, other: &Self) -> Ordering {
        self.value().cmp(&other.value())
    }
}

impl Hash for RequestId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.value().hash(state);
    }
}

impl fmt::Debug for RequestId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "RequestId({})", String::from_utf8_lossy(&self.raw))
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&String::from_utf8_lossy(&self.raw))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn id(raw: &str) -> RequestId {
        RequestId::parse(raw.as_bytes()).unwrap()
    }

    fn hash(id: &RequestId) -> u64 {
        let mut hasher = std::hash::DefaultHasher::new();
        id.hash(&mut hasher);
        hasher.finish()
    }

    /// `spellings` are one id, and no other group's.
    #[track_caller]
    fn check(groups: &[&[&str]]) {
        for (group, spellings) in groups.iter().enumerate() {
            for (other_group, others) in groups.iter().enumerate() {
                for (one, other) in spellings
                    .iter()
                    .flat_map(|one| others.iter().map(move |other| (*one, *other)))
                {
                    let same = group == other_group;
                    assert_eq!(id(one) == id(other), same, "{one} and {other}");
                    assert_eq!(id(one).cmp(&id(other)).is_eq(), same, "{one} and {other}");
                    if same {
                        assert_eq!(hash(&id(one)), hash(&id(other)), "{one} and {other}");
                    }
                }
            }
        }
    }

    #[test]
    fn ids_are_equal_if_type_and_value_are() {
        check(&[
            &[
                "1", "1.0", "1e0", "10e-1", "0.1E+1", "1.000", "100e-2", "1e00",
            ],
            &["\"1\"", "\"\\u0031\""],
            &["0", "-0", "0.0", "0e99", "-0.0e-5"],
            &["\"\""],
            &["-1", "-1.0", "-10e-1"],
            &["1.5", "15e-1", "0.15e1"],
            &["1e3", "1000", "1E+3"],
            &["2147483648"],
            &["9007199254740993", "9007199254740993.0"],
            &["9007199254740992"],
            &[
                "18446744073709551616",
                "18446744073709551616.00",
                "1844674407370955161600e-2",
            ],
            &["18446744073709551615"],
            &["1e400", "10e399"],
            &["1e-400"],
            &["1000000000000000000", "1e18"],
            &["999999999999999999"],
            &["\"1.0\""],
            &["\"\\ud83d\"", "\"\\uD83D\""],
            &["\"\\ude00\""],
            &["\"\u{1F600}\"", "\"\\ud83d\\ude00\""],
            &["\"a/b\"", "\"a\\/b\""],
        ]);
    }

    #[test]
    fn what_is_no_id_is_refused() {
        for raw in [
            "null",
            "true",
            "{}",
            "[]",
            "",
            "\"",
            "1e9999999999999999999",
        ] {
            assert!(RequestId::parse(raw.as_bytes()).is_none(), "{raw}");
        }
        let long = format!("\"{}\"", "x".repeat(ID_LIMIT_BYTES - 2));
        assert!(RequestId::parse(long.as_bytes()).is_some());
        assert!(RequestId::parse(format!("{long} ").as_bytes()).is_none());
    }

    #[test]
    fn ids_of_our_own_read_back() {
        assert_eq!(id("7.0").as_u64(), Some(7));
        assert_eq!(id("\"7\"").as_u64(), None);
        assert_eq!(id("-7").as_u64(), None);
        assert_eq!(id("7.5").as_u64(), None);
        assert_eq!(RequestId::from(4711).raw(), b"4711");
        assert_eq!(RequestId::from(0).raw(), b"0");
        assert_eq!(RequestId::from(u64::MAX).raw(), b"18446744073709551615");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(raw in prop::collection::vec(any::<u8>(), 0..40)) {
            if let Some(id) = RequestId::parse(&raw) {
                prop_assert_eq!(id.raw(), &raw[..]);
                prop_assert_eq!(&id, &id.clone());
            }
        }

        #[test]
        fn numbers_that_are_equal_as_fractions_are_equal_ids(
            digits in 0_i64..100_000, exponent in -4_i64..5, other_digits in 0_i64..100_000, other_exponent in -4_i64..5,
        ) {
            let one = id(&format!("{digits}e{exponent}"));
            let other = id(&format!("{other_digits}E{other_exponent}"));
            let scaled = |digits: i64, exponent: i64| digits * 10_i64.pow((exponent + 4) as u32);
            prop_assert_eq!(one == other, scaled(digits, exponent) == scaled(other_digits, other_exponent));
        }
    }
}
