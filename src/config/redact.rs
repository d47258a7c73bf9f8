//! Takes secret values out of what is logged or shown.
//!
//! It decides what is replaced: every value of eight bytes or more that the server was given, each
//! long enough line of such a value too (a key in several lines is printed line by line), the longest
//! first. It never decides what a secret is; `environment` lists them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Shorter values are left: `8` or `true` would black out half of every log.
pub const SECRET_MIN_BYTES: usize = 8;

/// So much of the beginning of a secret is not shown where a text was cut.
const TELLING_BYTES: usize = 4;

/// The values to be replaced and the names to put in their place.
#[derive(Clone)]
pub struct Redactor {
    /// Longest first; among equals the one whose name comes first.
    secrets: Arc<[Secret]>,
    /// Whether a secret begins with this byte, so that most bytes are passed at once.
    first_bytes: Arc<[bool; 256]>,
}

struct Secret {
    value: Box<[u8]>,
    replacement: String,
}

impl Default for Redactor {
    fn default() -> Self {
        Self::new(std::iter::empty::<(&str, &[u8])>())
    }
}

/// Names only.
impl fmt::Debug for Redactor {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_list()
            .entries(self.secrets.iter().map(|secret| &secret.replacement))
            .finish()
    }
}

impl Redactor {
    /// Replaces each value by `‹NAME›`. Values below [`SECRET_MIN_BYTES`] are left out.
    pub fn new<'v>(named: impl IntoIterator<Item = (impl AsRef<str>, &'v [u8])>) -> Self {
        let mut values: BTreeMap<&[u8], String> = BTreeMap::new();
        for (name, value) in named {
            let lines = value
                .split(|byte| *byte == b'\n')
                .map(<[u8]>::trim_ascii_end);
            for piece in std::iter::once(value).chain(lines) {
                if piece.len() >= SECRET_MIN_BYTES {
                    values
                        .entry(piece)
                        .or_insert_with(|| format!("‹{}›", name.as_ref()));
                }
            }
        }
        let mut secrets: Vec<Secret> = values
            .into_iter()
            .map(|(value, replacement)| Secret {
                value: value.into(),
                replacement,
            })
            .collect();
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.value.len()));
        let mut first_bytes = [false; 256];
        for secret in &secrets {
            first_bytes[usize::from(secret.value[0])] = true;
        }
        Self {
            secrets: secrets.into(),
            first_bytes: Arc::new(first_bytes),
        }
    }

    /// Whether nothing is ever replaced.
    pub fn is_empty(&self) -> bool {
        self.secrets.is_empty()
    }

    /// `bytes` without secrets.
    pub fn bytes(&self, bytes: &[u8]) -> Vec<u8> {
        let mut clean = Vec::with_capacity(bytes.len());
        let done = self.pass(bytes, true, &mut clean);
        debug_assert_eq!(done, bytes.len());
        clean
    }

    /// `text` without secrets.
    pub fn text(&self, text: &str) -> String {
        String::from_utf8_lossy(&self.bytes(text.as_bytes())).into_owned()
    }

    /// `text` without secrets, where `text` may have been cut: an end that is the beginning of a
    /// secret, long enough to tell something, goes too.
    pub fn cut_text(&self, text: &str) -> String {
        let bytes = text.as_bytes();
        let mut clean = Vec::with_capacity(bytes.len());
        let done = self.pass(bytes, false, &mut clean);
        let rest = &bytes[done..];
        if rest.len() >= TELLING_BYTES {
            clean.extend_from_slice("…".as_bytes());
        } else {
            self.pass(rest, true, &mut clean);
        }
        String::from_utf8_lossy(&clean).into_owned()
    }

    /// A filter for bytes that arrive in pieces.
    pub fn stream(&self) -> RedactedStream {
        RedactedStream {
            redactor: self.clone(),
            held: Vec::new(),
        }
    }

    /// Passes `bytes` on to `out` and returns how many were dealt with. Unless `last`, it stops
    /// where what is left may be the beginning of a secret.
    fn pass(&self, bytes: &[u8], last: bool, out: &mut Vec<u8>) -> usize {
        let mut at = 0;
        while at < bytes.len() {
            let plain = bytes[at..]
                .iter()
                .take_while(|byte| !self.first_bytes[usize::from(**byte)]);
            let plain_len = plain.count();
            out.extend_from_slice(&bytes[at..at + plain_len]);
            at += plain_len;
            let rest = &bytes[at..];
            if rest.is_empty() || (!last && self.may_begin(rest)) {
                break;
            }
            match self
                .secrets
                .iter()
                .find(|secret| rest.starts_with(&secret.value))
            {
                Some(secret) => {
                    out.extend_from_slice(secret.replacement.as_bytes());
                    at += secret.value.len();
                }
                None => {
                    out.push(rest[0]);
                    at += 1;
                }
            }
        }
        at
    }

    /// Whether `rest` is the beginning of a secret but not the whole of it.
    fn may_begin(&self, rest: &[u8]) -> bool {
        // Longest first: once they are no longer than what is there, none of the others is.
        let longer = self
            .secrets
            .iter()
            .take_while(|secret| secret.value.len() > rest.len());
        longer
            .into_iter()
            .any(|secret| secret.value.starts_with(rest))
    }
}

/// Bytes that arrive in pieces, without secrets: the same as if they had come at once.
#[derive(Debug)]
pub struct RedactedStream {
    redactor: Redactor,
    /// What may be the beginning of a secret: shorter than the longest one.
    held: Vec<u8>,
}

impl RedactedStream {
    /// Takes the next piece; what is certain goes to `out`.
    pub fn push(&mut self, piece: &[u8], out: &mut Vec<u8>) {
        if self.held.is_empty() {
            let done = self.redactor.pass(piece, false, out);
            self.held.extend_from_slice(&piece[done..]);
        } else {
            self.held.extend_from_slice(piece);
            let done = self.redactor.pass(&self.held, false, out);
            self.held.drain(..done);
        }
    }

    /// Lets go of what was held: at the end of input, or where waiting for more would keep a line
    /// from being seen.
    pub fn flush(&mut self, out: &mut Vec<u8>) {
        let held = std::mem::take(&mut self.held);
        self.redactor.pass(&held, true, out);
    }

    /// How many bytes are held back.
    pub fn held_bytes(&self) -> usize {
        self.held.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(secrets: &[(&str, &str)], input: &str, expected: &str) {
        let redactor = Redactor::new(
            secrets
                .iter()
                .map(|(name, value)| (*name, value.as_bytes())),
        );
        assert_eq!(redactor.text(input), expected);
    }

    #[test]
    fn replaces_each_value_by_its_name() {
        check(
            &[("TOKEN", "s3cr3t-value")],
            "got s3cr3t-value, s3cr3t-value",
            "got ‹TOKEN›, ‹TOKEN›",
        );
    }

    #[test]
    fn leaves_values_below_eight_bytes() {
        check(
            &[("N", "1234567"), ("M", "12345678")],
            "1234567 12345678",
            "1234567 ‹M›",
        );
    }

    #[test]
    fn takes_the_longest_value_first() {
        check(
            &[("SHORT", "abcdefgh"), ("LONG", "abcdefghij")],
            "abcdefghij abcdefgh",
            "‹LONG› ‹SHORT›",
        );
    }

    #[test]
    fn finds_a_value_after_a_false_beginning() {
        check(&[("T", "aaaaaaab")], "aaaaaaaaaab", "aaa‹T›");
    }

    #[test]
    fn catches_each_line_of_a_value_in_several_lines() {
        let key = "-----BEGIN KEY-----\r\nMIIEvQIBADANBg\nend";
        check(&[("KEY", key)], "line: MIIEvQIBADANBg.", "line: ‹KEY›.");
        check(&[("KEY", key)], key, "‹KEY›");
    }

    #[test]
    fn a_cut_shows_no_beginning_of_a_value() {
        let redactor = Redactor::new([("TOKEN", b"s3cr3t-value".as_slice())]);
        let check = |text, clean| assert_eq!(redactor.cut_text(text), clean);
        check("key s3cr3t-val", "key …");
        check("key s3cr3t-value", "key ‹TOKEN›");
        check("it is s3", "it is s3");
        check("plain", "plain");
    }

    #[test]
    fn debug_names_no_value() {
        let redactor = Redactor::new([("TOKEN", b"s3cr3t-value".as_slice())]);
        assert_eq!(format!("{redactor:?}"), r#"["‹TOKEN›"]"#);
    }

    #[test]
    fn a_stream_holds_back_no_more_than_the_beginning_of_a_value() {
        let redactor = Redactor::new([("TOKEN", b"s3cr3t-value".as_slice())]);
        let mut stream = redactor.stream();
        let mut out = Vec::new();
        stream.push(b"a line\ns3cr3", &mut out);
        assert_eq!(out, b"a line\n");
        assert_eq!(stream.held_bytes(), 5);
        stream.push(b"!", &mut out);
        assert_eq!(out, b"a line\ns3cr3!");
    }

    proptest! {
        #[test]
        fn any_split_gives_what_the_whole_gives(
            secrets in prop::collection::vec("[ab]{8,12}", 0..4),
            text in "[abc\n]{0,80}",
            cuts in prop::collection::vec(0usize..80, 0..6),
        ) {
            let named = secrets.iter().map(|value| ("N", value.as_bytes()));
            let redactor = Redactor::new(named);
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.push(text.len());
            cuts.sort_unstable();
            let mut stream = redactor.stream();
            let mut out = Vec::new();
            let mut from = 0;
            for cut in cuts {
                stream.push(&text.as_bytes()[from..cut], &mut out);
                from = cut;
            }
            stream.flush(&mut out);
            prop_assert_eq!(&out, &redactor.bytes(text.as_bytes()));
            let shown = String::from_utf8(out).unwrap();
            for secret in &secrets {
                prop_assert!(!shown.contains(secret.as_str()));
            }
        }
    }
}
