//! Whether a retry asks the same thing as the request that it repeats.
//!
//! Decides by value: the order of members, blanks and escapes say nothing, numbers are compared as
//! they are written. Looks at the method and at the parameters without what a retry adds. A digest
//! stands for them, so that nothing of a large request is kept while somebody thinks about an
//! answer.

use std::borrow::Cow;

use crate::protocol::json::{self, ValueType};

/// Deeper than this, values are compared byte for byte.
const DEPTH_LIMIT: usize = 64;

/// What a request asks, in few bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Likeness([u8; 32]);

/// The likeness of a request: its method and its `params`, empty if it has none.
pub fn likeness(method: &str, params: &[u8]) -> Likeness {
    let mut hasher = blake3::Hasher::new();
    write_bytes(&mut hasher, method.as_bytes());
    let ignored = |name: &str| matches!(name, "_meta" | "inputResponses" | "requestState");
    write_object(&mut hasher, params, 0, ignored);
    Likeness(*hasher.finalize().as_bytes())
}

fn write_value(hasher: &mut blake3::Hasher, value: &[u8], depth: usize) {
    match ValueType::of(value) {
        _ if depth >= DEPTH_LIMIT => {
            hasher.update(b"r");
            write_bytes(hasher, value);
        }
        Some(ValueType::Object) => write_object(hasher, value, depth, |_| false),
        Some(ValueType::Array) => {
            hasher.update(b"[");
            for span in json::elements(value) {
                write_value(hasher, &value[span.range()], depth + 1);
            }
            hasher.update(b"]");
        }
        Some(ValueType::Text) => {
            hasher.update(b"t");
            let inner = json::raw_text(value).unwrap_or_default();
            write_bytes(hasher, &json::unescape(inner));
        }
        _ => {
            hasher.update(b"s");
            write_bytes(hasher, value);
        }
    }
}

fn write_object(
    hasher: &mut blake3::Hasher,
    object: &[u8],
    depth: usize,
    ignored: impl Fn(&str) -> bool,
) {
    let mut members: Vec<(Cow<'_, str>, &[u8])> = json::members(object)
        .map(|entry| (entry.key(), entry.value))
        .filter(|(name, _)| !ignored(name))
        .collect();
    // Stable, so that doubled members keep their order.
    members.sort_by(|(one, _), (other, _)| one.cmp(other));
    hasher.update(b"{");
    for (name, value) in members {
        write_bytes(hasher, name.as_bytes());
        write_value(hasher, value, depth + 1);
    }
    hasher.update(b"}");
}

/// The length goes first, so that no two sequences look alike.
fn write_bytes(hasher: &mut blake3::Hasher, bytes: &[u8]) {
    hasher.update(&(bytes.len() as u64).to_le_bytes());
    hasher.update(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(one: &str, other: &str, is_same: bool) {
        let same = likeness("m", one.as_bytes()) == likeness("m", other.as_bytes());
        assert_eq!(same, is_same, "{one} and {other}");
    }

    #[test]
    fn order_blanks_escapes_and_what_a_retry_adds_say_nothing() {
        check(
            r#"{"a":1,"b":[true,"x"]}"#,
            r#"{ "b":[ true,"\u0078"], "\u0061" : 1 }"#,
            true,
        );
        check(
            r#"{"name":"t","_meta":{"progressToken":1}}"#,
            r#"{"inputResponses":{"k":{}},"name":"t","requestState":"s","_meta":{}}"#,
            true,
        );
        check("{}", "", true);
    }

    #[test]
    fn values_types_and_places_count() {
        check(r#"{"a":1}"#, r#"{"a":"1"}"#, false);
        check(r#"{"a":1}"#, r#"{"a":1.0}"#, false);
        check(r#"{"a":["b","c"]}"#, r#"{"a":["c","b"]}"#, false);
        check(r#"{"a":["bc"]}"#, r#"{"a":["b","c"]}"#, false);
        check(r#"{"a":{"_meta":1}}"#, r#"{"a":{}}"#, false);
        check(r#"{"a":[[]]}"#, r#"{"a":[[],[]]}"#, false);
        assert_ne!(likeness("m", b"{}"), likeness("n", b"{}"));
    }

    #[test]
    fn depth_costs_no_stack() {
        let deep = |inner: &str| {
            format!(
                "{{\"a\":{}{inner}{}}}",
                "[".repeat(50_000),
                "]".repeat(50_000)
            )
        };
        check(&deep("1"), &deep("1"), true);
        check(&deep("1"), &deep("2"), false);
    }
}
