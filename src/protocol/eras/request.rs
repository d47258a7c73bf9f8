//! Which era a request is of.
//!
//! Decides it from the request alone, by the one member that only modern requests have. Whether
//! that version is spoken here, and whether the rest of its metadata is there, is not looked at.

use crate::protocol::{Era, Member, Message};

/// The era of a request. Only `_meta.io.modelcontextprotocol/protocolVersion` marks a modern one:
/// legacy requests have a `_meta` too, with other members of the same prefix (`related-task`).
///
/// Notifications say nothing of an era; the request that one names does.
pub fn era_of(request: &Message) -> Era {
    if request.has(Member::MetaProtocolVersion) {
        Era::Modern
    } else {
        Era::Legacy
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[track_caller]
    fn check(params: &str, era: Era) {
        let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{params}}}"#);
        let message = Message::parse(Bytes::from(text)).expect("a message");
        assert_eq!(era_of(&message), era, "{params}");
    }

    #[test]
    fn only_a_version_in_the_metadata_is_modern() {
        let key = "io.modelcontextprotocol/";
        check("{}", Era::Legacy);
        check(r#"{"_meta":{"progressToken":1}}"#, Era::Legacy);
        check(
            &format!(r#"{{"_meta":{{"{key}related-task":{{}}}}}}"#),
            Era::Legacy,
        );
        check(
            &format!(r#"{{"_meta":{{"{key}clientInfo":{{}}}}}}"#),
            Era::Legacy,
        );
        check(
            &format!(r#"{{"{key}protocolVersion":"2026-07-28"}}"#),
            Era::Legacy,
        );
        check(
            &format!(r#"{{"_meta":{{"{key}protocolVersion":"2026-07-28"}}}}"#),
            Era::Modern,
        );
        check(
            &format!(r#"{{"_meta":{{"{key}protocolVersion":7}}}}"#),
            Era::Modern,
        );
        check(
            r#"{"_meta":{"io.modelcontextprotocol\/protocolVersion":"x"}}"#,
            Era::Modern,
        );
    }
}
