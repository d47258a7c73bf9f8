//! A request of a modern host, as a legacy child may see it.
//!
//! Decides which of its members belong to the modern era alone. Never touches another byte: the
//! rest passes as the host wrote it.

use crate::protocol::envelope::{META_PREFIX, Member};
use crate::protocol::json::ValueType;
use crate::protocol::message::Message;
use crate::protocol::splice::Splice;

/// Takes off what a legacy child does not know: the `_meta` members of the protocol itself, and
/// what a retry carries. The progress token, trace context and foreign members stay.
pub fn strip_request(splice: &mut Splice<'_>, message: &Message) {
    if let Some(meta) = message.span(Member::ParamsMeta)
        && message.value_type(Member::ParamsMeta) == Some(ValueType::Object)
    {
        splice.retain_members(meta, |entry| {
            !entry.key().as_bytes().starts_with(META_PREFIX)
        });
    }
    if let Some(params) = message.span(Member::Params) {
        splice.retain_members(params, |entry| {
            !entry.is("inputResponses") && !entry.is("requestState")
        });
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[track_caller]
    fn check(params: &str, stripped: &str) {
        let text = |params: &str| format!(r#"{{"id":1,"params":{params},"method":"m"}}"#);
        let message = Message::parse(Bytes::from(text(params))).unwrap();
        let mut splice = Splice::of(&message);
        strip_request(&mut splice, &message);
        let line = String::from_utf8(splice.finish().to_vec()).unwrap();
        assert_eq!(line.trim_end(), text(stripped));
    }

    #[test]
    fn members_of_the_protocol_are_taken_off_and_the_rest_stays() {
        check(
            r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","progressToken":1.0,"io.modelcontextprotocol/clientCapabilities":{}, "traceparent":"t","com.example/io.modelcontextprotocol/x":1},"name":"t"}"#,
            r#"{"_meta":{"progressToken":1.0, "traceparent":"t","com.example/io.modelcontextprotocol/x":1},"name":"t"}"#,
        );
    }

    #[test]
    fn names_are_compared_with_their_escapes_undone() {
        check(
            r#"{"_meta":{"io.modelcontextprotocol\/a":1,"io\u002emodelcontextprotocol/b":2},"input\u0052esponses":{}}"#,
            r#"{"_meta":{}}"#,
        );
    }

    #[test]
    fn what_a_retry_carries_stays_behind() {
        check(
            r#"{"inputResponses":{"a":{}},"name":"t","requestState":"s","arguments":{"requestState":"mine"}}"#,
            r#"{"name":"t","arguments":{"requestState":"mine"}}"#,
        );
    }

    #[test]
    fn without_any_of_it_nothing_changes() {
        for params in ["{}", r#"{"_meta":null}"#, r#"{"_meta":{ "x" : 1 }}"#] {
            check(params, params);
        }
    }
}
