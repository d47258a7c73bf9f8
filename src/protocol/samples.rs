//! Strategies for the tests of this room: JSON as peers write it, and what is nearly JSON.

use proptest::prelude::*;
use proptest::sample::select;

/// Names that are read, each in more than one spelling, and some that are not.
const NAMES: &[&str] = &[
    "jsonrpc",
    "id",
    r"\u0069d",
    r"i\u0064",
    "ID",
    "method",
    r"m\u0065thod",
    "params",
    "result",
    "error",
    "name",
    r"n\u0061me",
    "uri",
    "level",
    "requestId",
    "_meta",
    r"\u005fmeta",
    "progressToken",
    r"progress\u0054oken",
    "",
    "x",
    "é",
    r"\\",
    r#"\""#,
];

const SCALARS: &[&str] = &[
    "0",
    "-0",
    "1",
    "1.0",
    "1e0",
    "-12.5E+3",
    "18446744073709551616",
    "true",
    "false",
    "null",
    r#""""#,
    r#""1""#,
    r#""\u0031""#,
    r#""2.0""#,
    r#""tools/call""#,
    r#""notifications/progress""#,
    r#""\" } ] , \\""#,
    r#""\n\t\/""#,
    r#""é – 漢字 🦀""#,
    "\"\u{2028}\"",
    r#""0123456789abcdef0123456789abcdef0123456789abcdef""#,
];

/// Values whose escapes `serde_json` cannot turn into a `String`.
const LONE: &[&str] = &[r#""\ud83d""#, r#""\ude00x""#, r#""\uD83D\u0041""#];

fn blank() -> impl Strategy<Value = &'static str> {
    prop_oneof![8 => Just(""), 1 => Just(" "), 1 => select(&["\t", "\r", "  "][..])]
}

fn name() -> impl Strategy<Value = &'static str> {
    select(NAMES)
}

fn object_of(value: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    let member = (name(), blank(), blank(), value).prop_map(|(name, one, other, value)| {
        format!("{one}\"{name}\"{other}:{one}{value}{other}")
    });
    prop::collection::vec(member, 0..7).prop_map(|members| format!("{{{}}}", members.join(",")))
}

fn array_of(value: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    (prop::collection::vec(value, 0..4), blank())
        .prop_map(|(items, blank)| format!("[{}{blank}]", items.join(",")))
}

fn value_with(
    scalars: impl Strategy<Value = &'static str> + 'static,
) -> impl Strategy<Value = String> {
    scalars
        .prop_map(str::to_owned)
        .prop_recursive(5, 40, 6, |inner| {
            let inner = inner.boxed();
            prop_oneof![3 => object_of(inner.clone()), 1 => array_of(inner)]
        })
}

/// Any JSON value.
pub(super) fn value() -> impl Strategy<Value = String> {
    value_with(prop_oneof![9 => select(SCALARS), 1 => select(LONE)])
}

/// An object without lone surrogates, so that `serde_json` can read every name and value.
pub(super) fn readable_object() -> impl Strategy<Value = String> {
    object_of(value_with(select(SCALARS)))
}

/// An object, or an array of anything.
pub(super) fn document() -> impl Strategy<Value = String> {
    prop_oneof![4 => object_of(value()), 1 => array_of(value())]
}

/// Bytes that mean something to a reader of lines of JSON.
const PIECES: &[&[u8]] = &[
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\"",
    b"\\",
    b"\\u12",
    b"\\ud83d",
    b"\"id\":1",
    b"\"method\":\"m\"",
    b"\"id\"",
    b"\"result\":{",
    b"nul",
    b"null",
    b"true",
    b"-",
    b"0",
    b"1.",
    b"1e",
    b"\r",
    b"\t",
    b" ",
    b"\0",
    b"\x1b[33m",
    b"\x1b",
    b"\xEF\xBB\xBF",
    b"\xEF",
    b"\xC3",
    b"\xA9",
    b"\xED\xA0\x80",
    b"\xF0\x9F",
    b"\xFF",
    b"x",
    b"Content-Length: 12",
    b"\"jsonrpc\": \"2.0\",",
];

/// One change to a text.
#[derive(Clone, Debug)]
pub(super) enum Mutation {
    Insert(usize, &'static [u8]),
    Remove(usize, usize),
    Replace(usize, u8),
    Cut(usize),
}

pub(super) fn mutation() -> impl Strategy<Value = Mutation> {
    prop_oneof![
        4 => (any::<usize>(), select(PIECES)).prop_map(|(at, piece)| Mutation::Insert(at, piece)),
        2 => (any::<usize>(), 1_usize..5).prop_map(|(at, len)| Mutation::Remove(at, len)),
        2 => (any::<usize>(), any::<u8>()).prop_map(|(at, byte)| Mutation::Replace(at, byte)),
        1 => any::<usize>().prop_map(Mutation::Cut),
    ]
}

/// `text` with the changes made to it, in order.
pub(super) fn mutated(text: &[u8], mutations: &[Mutation]) -> Vec<u8> {
    let mut text = text.to_vec();
    for mutation in mutations {
        let place = |at: &usize| at % (text.len() + 1);
        match mutation {
            Mutation::Insert(at, piece) => {
                let at = place(at);
                text.splice(at..at, piece.iter().copied());
            }
            Mutation::Remove(at, len) => {
                let at = place(at);
                text.drain(at..(at + len).min(text.len()));
            }
            Mutation::Replace(at, byte) => {
                let at = place(at);
                if let Some(old) = text.get_mut(at) {
                    *old = *byte;
                }
            }
            Mutation::Cut(at) => text.truncate(place(at)),
        }
    }
    text
}

/// Anything that may stand on a line, its ending left out.
pub(super) fn near_json() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        3 => document().prop_map(String::into_bytes),
        6 => (document(), prop::collection::vec(mutation(), 1..4))
            .prop_map(|(text, mutations)| mutated(text.as_bytes(), &mutations)),
        3 => prop::collection::vec(select(PIECES), 0..12).prop_map(|pieces| pieces.concat()),
        1 => prop::collection::vec(any::<u8>(), 0..20),
    ]
}
