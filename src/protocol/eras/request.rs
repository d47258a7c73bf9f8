//! Which era a request is of, and whether a modern one says of itself what it must.
//!
//! Decides the era from the request alone, by the one member that only modern requests have.

use crate::protocol::json::ValueType;
use crate::protocol::{Era, Member, Message, ModernVersion};

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

/// What is wrong with the metadata of a modern request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetadataFault {
    /// It names a version that is not spoken here; a legacy one is none that a request can name.
    Unsupported(String),
    /// This member is missing or of the wrong type.
    Malformed(Member),
}

/// Looks at the metadata that every modern request carries (`basic/index`, `_meta`).
///
/// # Errors
/// The first thing that is wrong with it.
pub fn check_metadata(request: &Message) -> Result<(), MetadataFault> {
    let version = request
        .text(Member::MetaProtocolVersion)
        .ok_or(MetadataFault::Malformed(Member::MetaProtocolVersion))?;
    if ModernVersion::parse(&version).is_none() {
        let shown = version.chars().take(100).collect();
        return Err(MetadataFault::Unsupported(shown));
    }
    for (member, is_required) in [
        (Member::MetaClientCapabilities, true),
        (Member::MetaClientInfo, false),
    ] {
        match request.value_type(member) {
            Some(ValueType::Object) => {}
            None if !is_required => {}
            _ => return Err(MetadataFault::Malformed(member)),
        }
    }
    Ok(())
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

    #[track_caller]
    fn metadata(members: &[(&str, &str)], expected: Result<(), MetadataFault>) {
        let members: Vec<_> = members
            .iter()
            .map(|(name, value)| format!(r#""io.modelcontextprotocol/{name}":{value}"#))
            .collect();
        let text = format!(
            r#"{{"id":1,"method":"m","params":{{"_meta":{{{}}}}}}}"#,
            members.join(",")
        );
        let message = Message::parse(Bytes::from(text)).expect("a message");
        assert_eq!(check_metadata(&message), expected, "{members:?}");
    }

    #[test]
    fn a_modern_request_says_its_version_and_what_its_host_can_do() {
        let (version, able) = ("protocolVersion", ("clientCapabilities", "{}"));
        metadata(&[(version, "\"2026-07-28\""), able], Ok(()));
        metadata(
            &[(version, "\"2026-07-28\""), able, ("clientInfo", "{}")],
            Ok(()),
        );
        for old in ["2025-11-25", "2024-11-05", "2027-01-01", ""] {
            let unsupported = MetadataFault::Unsupported(old.to_owned());
            metadata(&[(version, &format!("\"{old}\"")), able], Err(unsupported));
        }
        let malformed = |member| Err(MetadataFault::Malformed(member));
        metadata(
            &[(version, "7"), able],
            malformed(Member::MetaProtocolVersion),
        );
        metadata(
            &[(version, "\"2026-07-28\"")],
            malformed(Member::MetaClientCapabilities),
        );
        metadata(
            &[(version, "\"2026-07-28\""), ("clientCapabilities", "[]")],
            malformed(Member::MetaClientCapabilities),
        );
        metadata(
            &[(version, "\"2026-07-28\""), able, ("clientInfo", "null")],
            malformed(Member::MetaClientInfo),
        );
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
