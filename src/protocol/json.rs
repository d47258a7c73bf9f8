//! A cursor over JSON that has been found valid, and the few bytes of JSON that mcpd writes.
//!
//! Decides nothing about messages. It walks by skipping, so depth costs no stack and a payload is
//! never decoded; strings are unescaped only where a caller compares one. Bytes that are not
//! valid after all end the walk early, they never panic.

use std::borrow::Cow;

use memchr::memchr2;

/// Where a value stands in the bytes of its message: from `start`, up to but without `end`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    start: u32,
    end: u32,
}

impl Span {
    /// A span of a message, whose length always fits in 32 bits (see `LineReader::new`).
    pub const fn new(start: usize, end: usize) -> Self {
        Self {
            start: start as u32,
            end: end as u32,
        }
    }

    /// The first byte.
    pub const fn start(self) -> usize {
        self.start as usize
    }

    /// The byte behind the last.
    pub const fn end(self) -> usize {
        self.end as usize
    }

    /// Bytes covered.
    pub const fn len(self) -> usize {
        self.end().saturating_sub(self.start())
    }

    /// Whether it covers nothing.
    pub const fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The span as an index into the message.
    pub const fn range(self) -> std::ops::Range<usize> {
        self.start()..self.end()
    }

    /// A span of the value at `self`, seen from the message in which that value stands.
    pub const fn within(self, outer: Self) -> Self {
        Self::new(outer.start() + self.start(), outer.start() + self.end())
    }
}

/// The type of a JSON value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueType {
    /// `{…}`
    Object,
    /// `[…]`
    Array,
    /// `"…"`
    Text,
    /// A number.
    Number,
    /// `true` or `false`
    Boolean,
    /// `null`
    Null,
}

impl ValueType {
    /// The type of the value that starts `value`, white space before it allowed.
    pub fn of(value: &[u8]) -> Option<Self> {
        Some(match value.get(skip_space(value, 0))? {
            b'{' => Self::Object,
            b'[' => Self::Array,
            b'"' => Self::Text,
            b'-' | b'0'..=b'9' => Self::Number,
            b't' | b'f' => Self::Boolean,
            b'n' => Self::Null,
            _ => return None,
        })
    }
}

/// One member of an object.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'json> {
    /// The name as written, without its quotes.
    raw_key: &'json [u8],
    /// The value's bytes.
    pub value: &'json [u8],
    /// Where the member's name starts, its quote included.
    pub key_start: usize,
    /// Where the value stands in the object that is walked.
    pub span: Span,
}

impl<'json> Entry<'json> {
    /// Whether the member is called `name`, escapes undone.
    pub fn is(&self, name: &str) -> bool {
        text_is(self.raw_key, name)
    }

    /// The member's name, escapes undone; lone surrogates become U+FFFD.
    pub fn key(&self) -> Cow<'json, str> {
        to_str(unescape(self.raw_key))
    }
}

/// The members of the object that `object` holds, in order, each as often as it stands there.
///
/// Empty for a value that is no object.
pub fn members(object: &[u8]) -> Members<'_> {
    Members {
        walk: Walk::into(object, b'{'),
    }
}

/// See [`members`].
#[derive(Clone, Debug)]
pub struct Members<'json> {
    walk: Walk<'json>,
}

impl<'json> Iterator for Members<'json> {
    type Item = Entry<'json>;

    fn next(&mut self) -> Option<Entry<'json>> {
        let json = self.walk.json;
        let key_start = self.walk.next_start()?;
        let key_end = skip_value(json, key_start)?;
        let colon = skip_space(json, key_end);
        if json.get(key_start) != Some(&b'"') || json.get(colon) != Some(&b':') {
            self.walk.at = None;
            return None;
        }
        let start = skip_space(json, colon + 1);
        let end = self.walk.skip_to_end(start)?;
        Some(Entry {
            raw_key: &json[key_start + 1..key_end - 1],
            value: &json[start..end],
            key_start,
            span: Span::new(start, end),
        })
    }
}

/// The elements of the array that `array` holds, in order, as spans of `array`.
///
/// Empty for a value that is no array.
pub fn elements(array: &[u8]) -> Elements<'_> {
    Elements {
        walk: Walk::into(array, b'['),
    }
}

/// See [`elements`].
#[derive(Clone, Debug)]
pub struct Elements<'json> {
    walk: Walk<'json>,
}

impl Iterator for Elements<'_> {
    type Item = Span;

    fn next(&mut self) -> Option<Span> {
        let start = self.walk.next_start()?;
        let end = self.walk.skip_to_end(start)?;
        Some(Span::new(start, end))
    }
}

/// A place between two items of an object or array.
#[derive(Clone, Debug)]
struct Walk<'json> {
    json: &'json [u8],
    /// Where the next item or the closing bracket is looked for; `None` at the end.
    at: Option<usize>,
}

impl<'json> Walk<'json> {
    fn into(json: &'json [u8], bracket: u8) -> Self {
        let open = skip_space(json, 0);
        let at = (json.get(open) == Some(&bracket)).then_some(open + 1);
        Self { json, at }
    }

    /// Where the next item starts.
    fn next_start(&mut self) -> Option<usize> {
        let start = skip_space(self.json, self.at.take()?);
        match self.json.get(start)? {
            b'}' | b']' => None,
            b',' => Some(skip_space(self.json, start + 1)),
            _ => Some(start),
        }
    }

    /// Where the item's value ends, having moved behind it.
    fn skip_to_end(&mut self, start: usize) -> Option<usize> {
        let end = skip_value(self.json, start)?;
        self.at = Some(end);
        Some(end)
    }
}

/// The last member of `object` called `name`, which is the one that most parsers would take.
pub fn find_member<'json>(object: &'json [u8], name: &str) -> Option<Entry<'json>> {
    members(object).filter(|entry| entry.is(name)).last()
}

/// The text of the JSON string `value`, escapes undone and lone surrogates replaced by U+FFFD;
/// `None` if the value is no string.
pub fn text(value: &[u8]) -> Option<Cow<'_, str>> {
    raw_text(value).map(|inner| to_str(unescape(inner)))
}

/// What stands between the quotes of the JSON string `value`.
pub fn raw_text(value: &[u8]) -> Option<&[u8]> {
    match value {
        [b'"', inner @ .., b'"'] => Some(inner),
        _ => None,
    }
}

/// Whether what stands between the quotes of a JSON string is `name`, escapes undone.
pub fn text_is(inner: &[u8], name: &str) -> bool {
    inner == name.as_bytes() || (inner.len() > name.len() && *unescape(inner) == *name.as_bytes())
}

/// Whether the value is `true`.
pub fn is_true(value: &[u8]) -> bool {
    value == b"true"
}

fn to_str(text: Cow<'_, [u8]>) -> Cow<'_, str> {
    match text {
        Cow::Borrowed(text) => String::from_utf8_lossy(text),
        Cow::Owned(text) => match String::from_utf8(text) {
            Ok(text) => Cow::Owned(text),
            Err(error) => Cow::Owned(String::from_utf8_lossy(error.as_bytes()).into_owned()),
        },
    }
}

/// The first byte at or after `at` that is no white space.
pub(crate) fn skip_space(json: &[u8], at: usize) -> usize {
    let rest = json.get(at..).unwrap_or_default();
    let space = rest
        .iter()
        .position(|byte| !matches!(byte, b' ' | b'\t' | b'\r' | b'\n'));
    at + space.unwrap_or(rest.len())
}

/// The end of the value that starts at `start`.
pub(crate) fn skip_value(json: &[u8], start: usize) -> Option<usize> {
    match json.get(start)? {
        b'"' => skip_string(json, start),
        b'{' | b'[' => skip_container(json, start),
        b'}' | b']' | b',' | b':' => None,
        _ => Some(skip_scalar(json, start)),
    }
}

fn skip_scalar(json: &[u8], start: usize) -> usize {
    let end = json[start..].iter().position(|byte| {
        matches!(
            byte,
            b',' | b'}' | b']' | b' ' | b'\t' | b'\r' | b'\n' | b':'
        )
    });
    end.map_or(json.len(), |len| start + len)
}

fn skip_string(json: &[u8], start: usize) -> Option<usize> {
    let mut at = start + 1;
    loop {
        at += memchr2(b'"', b'\\', json.get(at..)?)?;
        if json[at] == b'"' {
            return Some(at + 1);
        }
        at += 2;
    }
}

fn skip_container(json: &[u8], start: usize) -> Option<usize> {
    let mut at = start;
    let mut depth = 0_usize;
    loop {
        match json.get(at)? {
            b'"' => {
                at = skip_string(json, at)?;
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => {
                depth -= 1;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
        at += 1;
    }
}

/// Undoes the escapes of what stands between the quotes of a JSON string.
///
/// Borrows where there are none. A lone surrogate becomes its three bytes of WTF-8, so that two
/// strings are equal here exactly if they are equal as JSON has them (RFC 8259, section 8.2).
pub fn unescape(inner: &[u8]) -> Cow<'_, [u8]> {
    let Some(first) = memchr::memchr(b'\\', inner) else {
        return Cow::Borrowed(inner);
    };
    let mut text = Vec::with_capacity(inner.len());
    let mut at = 0;
    let mut next = first;
    loop {
        text.extend_from_slice(&inner[at..next]);
        at = undo_escape(inner, next, &mut text);
        match memchr::memchr(b'\\', &inner[at..]) {
            Some(len) => next = at + len,
            None => break,
        }
    }
    text.extend_from_slice(&inner[at..]);
    Cow::Owned(text)
}

/// Undoes the escape at `at` and says where it ends.
fn undo_escape(inner: &[u8], at: usize, text: &mut Vec<u8>) -> usize {
    let plain = match inner.get(at + 1) {
        Some(b'u') => return undo_unicode(inner, at, text),
        Some(b'b') => 8,
        Some(b'f') => 12,
        Some(b'n') => b'\n',
        Some(b'r') => b'\r',
        Some(b't') => b'\t',
        Some(&other) => other,
        None => b'\\',
    };
    text.push(plain);
    (at + 2).min(inner.len())
}

fn undo_unicode(inner: &[u8], at: usize, text: &mut Vec<u8>) -> usize {
    let Some(unit) = unicode_escape(inner, at) else {
        text.push(b'\\');
        return at + 1;
    };
    if let (0xD800..=0xDBFF, Some(low @ 0xDC00..=0xDFFF)) = (unit, unicode_escape(inner, at + 6)) {
        push_wtf8(text, 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00));
        return at + 12;
    }
    push_wtf8(text, unit);
    at + 6
}

/// The value of the `\uXXXX` that stands at `at`.
fn unicode_escape(inner: &[u8], at: usize) -> Option<u32> {
    let [b'\\', b'u', digits @ ..] = inner.get(at..at + 6)? else {
        return None;
    };
    digits.iter().try_fold(0, |value, &digit| {
        Some(value * 16 + char::from(digit).to_digit(16)?)
    })
}

fn push_wtf8(text: &mut Vec<u8>, point: u32) {
    match char::from_u32(point) {
        Some(character) => {
            text.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        }
        // A lone surrogate: the bytes that UTF-8 would give it, were it allowed there.
        None => text.extend_from_slice(&[
            0xE0 | (point >> 12) as u8,
            0x80 | (point >> 6 & 0x3F) as u8,
            0x80 | (point & 0x3F) as u8,
        ]),
    }
}

/// Appends `text` as a JSON string, quotes included.
pub fn write_text(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let mut plain = 0;
    for (at, byte) in text.bytes().enumerate() {
        let short = match byte {
            b'"' => b'"',
            b'\\' => b'\\',
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            0..0x20 => b'u',
            _ => continue,
        };
        out.extend_from_slice(&text.as_bytes()[plain..at]);
        out.extend_from_slice(&[b'\\', short]);
        if short == b'u' {
            let digit = |value: u8| b"0123456789abcdef"[usize::from(value & 15)];
            out.extend_from_slice(&[b'0', b'0', digit(byte >> 4), digit(byte)]);
        }
        plain = at + 1;
    }
    out.extend_from_slice(&text.as_bytes()[plain..]);
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check_members(object: &str, expected: &[(&str, &str)]) {
        let found: Vec<(String, String)> = members(object.as_bytes())
            .map(|entry| {
                assert_eq!(&object.as_bytes()[entry.span.range()], entry.value);
                assert_eq!(object.as_bytes()[entry.key_start], b'"');
                let value = String::from_utf8(entry.value.to_vec()).unwrap();
                (entry.key().into_owned(), value)
            })
            .collect();
        let found: Vec<(&str, &str)> = found
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()))
            .collect();
        assert_eq!(found, expected);
    }

    #[track_caller]
    fn check_elements(array: &str, expected: &[&str]) {
        let found: Vec<&str> = elements(array.as_bytes())
            .map(|span| &array[span.range()])
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn members_are_walked_in_order() {
        check_members("{}", &[]);
        check_members(" { } ", &[]);
        check_members("[1]", &[]);
        check_members(
            r#"{ "a" : 1 , "b":{"c":[{}, "}"]},"\u0061":"\"" , "é":null}"#,
            &[
                ("a", "1"),
                ("b", r#"{"c":[{}, "}"]}"#),
                ("a", r#""\"""#),
                ("é", "null"),
            ],
        );
    }

    #[test]
    fn elements_are_walked_in_order() {
        check_elements("[]", &[]);
        check_elements("{}", &[]);
        check_elements(
            r#"[1, [2,3] ,"],",{"a":[]},-1e3]"#,
            &["1", "[2,3]", r#""],""#, r#"{"a":[]}"#, "-1e3"],
        );
    }

    #[test]
    fn the_last_of_two_members_counts() {
        let object = br#"{"name":"a","n\u0061me":"b"}"#;
        assert_eq!(find_member(object, "name").unwrap().value, b"\"b\"");
        assert!(find_member(object, "nam").is_none());
    }

    #[test]
    fn depth_costs_no_stack() {
        let depth = 200_000;
        let deep = format!("[{}{}]", "[".repeat(depth), "]".repeat(depth));
        check_elements(&deep, &[&deep[1..deep.len() - 1]]);
    }

    #[test]
    fn lone_surrogates_stay_apart() {
        assert_eq!(&*unescape(br"\ud83d\ude00"), "\u{1F600}".as_bytes());
        assert_eq!(&*unescape(br"\ud83d"), &[0xED, 0xA0, 0xBD]);
        assert_eq!(
            &*unescape(br"\ude00\ud83d"),
            &[0xED, 0xB8, 0x80, 0xED, 0xA0, 0xBD]
        );
        assert_eq!(text(br#""a\ud83d""#).unwrap(), "a\u{FFFD}\u{FFFD}\u{FFFD}");
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(original in ".*") {
            let mut written = Vec::new();
            write_text(&mut written, &original);
            prop_assert_eq!(&text(&written).unwrap(), &original);
            prop_assert_eq!(serde_json::from_slice::<String>(&written).unwrap(), original);
        }

        #[test]
        fn any_bytes_end_the_walk(json in prop::collection::vec(prop::sample::select(&br#"{}[]",:\u01 atn"#[..]), 0..30)) {
            for entry in members(&json) {
                prop_assert!(entry.span.end() <= json.len());
                drop(entry.key());
            }
            for span in elements(&json) {
                prop_assert!(span.end() <= json.len());
            }
        }
    }
}
