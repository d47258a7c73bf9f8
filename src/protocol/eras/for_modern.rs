//! What a legacy host says, as a modern child understands it, and what such a host is told of one.
//!
//! Decides the metadata of a request and the answer to `initialize`. Never whose they are: the
//! host's own words are arguments. Sources: MCP 2026-07-28 `basic/index`, `server/discover`;
//! 2025-11-25 `basic/lifecycle`.

use crate::protocol::envelope::Member;
use crate::protocol::json::{self, Span, ValueType};
use crate::protocol::message::Message;
use crate::protocol::opening::ChildIdentity;
use crate::protocol::splice::Splice;
use crate::protocol::version::{ModernVersion, Version};

/// The extensions that are data and nothing else, so that they pass between eras.
const DATA_EXTENSIONS: [&str; 1] = ["io.modelcontextprotocol/ui"];

/// What a host said of itself in its `initialize`, and since.
#[derive(Clone, Copy, Debug)]
pub struct Client<'a> {
    /// `clientInfo`, a whole JSON object, or nothing.
    pub info: &'a [u8],
    /// `capabilities`, a whole JSON object, or nothing.
    pub capabilities: &'a [u8],
    /// The log level that it set.
    pub level: Option<&'a str>,
}

/// Gives a legacy request the metadata of a modern one, and takes off what only a legacy one has.
/// `extra` are further members of `params`, as `"name":value`.
pub fn dress_request(
    splice: &mut Splice<'_>,
    message: &Message,
    client: &Client<'_>,
    extra: &[Vec<u8>],
) {
    let meta = client.metadata();
    let Some(params) = message.span(Member::Params) else {
        let mut value = [b"{\"_meta\":{", meta.as_slice(), b"}"].concat();
        for member in extra {
            value.push(b',');
            value.extend_from_slice(member);
        }
        value.push(b'}');
        let whole = splice.whole();
        splice.insert_member(whole, "params", &value);
        return;
    };
    let mut added = extra.to_vec();
    let is_kept = |entry: &json::Entry<'_>| {
        !["task", "inputResponses", "requestState"]
            .iter()
            .any(|name| entry.is(name))
    };
    match message.span(Member::ParamsMeta) {
        Some(inner) => {
            let is_foreign = |entry: &json::Entry<'_>| {
                [
                    "protocolVersion",
                    "clientInfo",
                    "clientCapabilities",
                    "logLevel",
                ]
                .iter()
                .all(|name| entry.key() != format!("io.modelcontextprotocol/{name}"))
            };
            put_first(splice, message, inner, &[meta], is_foreign);
        }
        None => added.push([b"\"_meta\":{", meta.as_slice(), b"}"].concat()),
    }
    put_first(splice, message, params, &added, is_kept);
}

/// Puts `added` first in the object at `object`, and leaves of it only what `is_kept` wants.
fn put_first(
    splice: &mut Splice<'_>,
    message: &Message,
    object: Span,
    added: &[Vec<u8>],
    is_kept: impl Fn(&json::Entry<'_>) -> bool,
) {
    let bytes = message.bytes().get(object.range()).unwrap_or_default();
    let has_more = json::members(bytes).any(|entry| is_kept(&entry));
    splice.retain_members(object, |entry| is_kept(entry));
    if added.is_empty() {
        return;
    }
    let mut members = added.join(&b',');
    if has_more {
        members.push(b',');
    }
    splice.insert(object.start() + 1, &members);
}

impl Client<'_> {
    /// The members of `_meta` that a modern request has to have.
    fn metadata(&self) -> Vec<u8> {
        let mut out = b"\"io.modelcontextprotocol/protocolVersion\":".to_vec();
        json::write_text(&mut out, ModernVersion::NEWEST.as_str());
        if ValueType::of(self.info) == Some(ValueType::Object) {
            out.extend_from_slice(b",\"io.modelcontextprotocol/clientInfo\":");
            out.extend_from_slice(self.info);
        }
        out.extend_from_slice(b",\"io.modelcontextprotocol/clientCapabilities\":");
        out.extend_from_slice(&modern_capabilities(self.capabilities));
        if let Some(level) = self.level {
            out.extend_from_slice(b",\"io.modelcontextprotocol/logLevel\":");
            json::write_text(&mut out, level);
        }
        out
    }
}

/// The capabilities of a legacy host as a modern child may know them: no tasks, no word of changing
/// roots, no extension that is more than data.
fn modern_capabilities(capabilities: &[u8]) -> Vec<u8> {
    rebuilt(capabilities, |entry| {
        if entry.is("tasks") {
            None
        } else if entry.is("roots") {
            let is_kept = |inner: &json::Entry<'_>| !inner.is("listChanged");
            Some(rebuilt(entry.value, |inner| {
                is_kept(inner).then(|| inner.value.to_vec())
            }))
        } else {
            passing(entry)
        }
    })
}

/// The capabilities of a modern child as a legacy host may know them.
fn legacy_capabilities(capabilities: &[u8]) -> Vec<u8> {
    rebuilt(capabilities, |entry| {
        if entry.is("tasks") {
            None
        } else {
            passing(entry)
        }
    })
}

fn passing(entry: &json::Entry<'_>) -> Option<Vec<u8>> {
    if !entry.is("extensions") {
        return Some(entry.value.to_vec());
    }
    let extensions = rebuilt(entry.value, |inner| {
        let is_data = DATA_EXTENSIONS.iter().any(|name| inner.is(name));
        is_data.then(|| inner.value.to_vec())
    });
    (extensions != b"{}").then_some(extensions)
}

/// The object with each member's value as `value` has it, without those for which it has none.
fn rebuilt(object: &[u8], value: impl Fn(&json::Entry<'_>) -> Option<Vec<u8>>) -> Vec<u8> {
    let members: Vec<Vec<u8>> = json::members(object)
        .filter_map(|entry| {
            let name = &object[entry.key_start..entry.span.start()];
            Some([name, &value(&entry)?].concat())
        })
        .collect();
    [b"{", members.join(&b',').as_slice(), b"}"].concat()
}

/// The `InitializeResult` that a legacy host gets from what a modern child said of itself. `server`
/// names it if it does not name itself.
pub fn initialize_result(identity: &ChildIdentity, server: &str) -> Vec<u8> {
    let mut out = b"{\"protocolVersion\":".to_vec();
    json::write_text(&mut out, Version::NEWEST.as_str());
    out.extend_from_slice(b",\"capabilities\":");
    out.extend_from_slice(&legacy_capabilities(&identity.capabilities));
    out.extend_from_slice(b",\"serverInfo\":");
    if ValueType::of(&identity.server_info) == Some(ValueType::Object) {
        out.extend_from_slice(&identity.server_info);
    } else {
        out.extend_from_slice(b"{\"name\":");
        json::write_text(&mut out, server);
        out.extend_from_slice(b",\"version\":\"0\"}");
    }
    if let Some(entry) = json::find_member(&identity.result, "instructions") {
        out.extend_from_slice(b",\"instructions\":");
        out.extend_from_slice(entry.value);
    }
    out.push(b'}');
    out
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::protocol::version::Revision;

    const META: &str = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"h"},"io.modelcontextprotocol/clientCapabilities":{"roots":{},"elicitation":{}}"#;

    /// A request with `before` is written with `after`; `META` stands for the metadata.
    #[track_caller]
    fn check(before: &str, after: &str, extra: &[&str]) {
        let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m"{before}}}"#);
        let message = Message::parse(Bytes::from(text)).expect("a message");
        let client = Client {
            info: br#"{"name":"h"}"#,
            capabilities: br#"{"roots":{"listChanged":true},"tasks":{},"elicitation":{},"extensions":{"x/y":{}}}"#,
            level: None,
        };
        let extra: Vec<Vec<u8>> = extra.iter().map(|one| one.as_bytes().to_vec()).collect();
        let mut splice = Splice::of(&message);
        dress_request(&mut splice, &message, &client, &extra);
        let written = String::from_utf8(splice.finish().to_vec()).expect("text");
        let value: serde_json::Value = serde_json::from_str(&written).expect(&written);
        assert_eq!(
            value["params"].to_string(),
            after.replace("META", META),
            "{written}"
        );
    }

    #[test]
    fn metadata_is_added_wherever_there_is_room_for_it() {
        check("", r#"{"_meta":{META}}"#, &[]);
        check(r#","params":{}"#, r#"{"_meta":{META}}"#, &[]);
        check(r#","params":{"a":1.0}"#, r#"{"_meta":{META},"a":1.0}"#, &[]);
        check(
            r#","params":{"a":1,"_meta":{"progressToken":7}}"#,
            r#"{"a":1,"_meta":{META,"progressToken":7}}"#,
            &[],
        );
        check(r#","params":{"_meta":{}}"#, r#"{"_meta":{META}}"#, &[]);
    }

    #[test]
    fn what_only_a_legacy_request_has_is_taken_off() {
        check(
            r#","params":{"task":{"ttl":1}}"#,
            r#"{"_meta":{META}}"#,
            &[],
        );
        check(
            r#","params":{ "task":{},"name":"t","requestState":"x","_meta":{"io.modelcontextprotocol/logLevel":"info","k":1}}"#,
            r#"{"name":"t","_meta":{META,"k":1}}"#,
            &[],
        );
    }

    #[test]
    fn answers_and_state_go_along() {
        let extra = [r#""inputResponses":{"q":{}}"#, r#""requestState":"s""#];
        check(
            r#","params":{"name":"t"}"#,
            r#"{"inputResponses":{"q":{}},"requestState":"s","_meta":{META},"name":"t"}"#,
            &extra,
        );
        check(
            "",
            r#"{"_meta":{META},"inputResponses":{"q":{}},"requestState":"s"}"#,
            &extra,
        );
    }

    #[test]
    fn a_legacy_host_is_told_what_a_modern_child_declares() {
        let capabilities = br#"{"tools":{},"resources":{"subscribe":true},"tasks":{},"extensions":{"io.modelcontextprotocol/tasks":{},"io.modelcontextprotocol/ui":{"a":1}}}"#;
        let result = br#"{"resultType":"complete","instructions":"do","ttlMs":5}"#;
        let mut identity = ChildIdentity::read(
            Revision::Modern(ModernVersion::NEWEST),
            result,
            capabilities,
            br#"{"name":"m","version":"2"}"#,
        );
        let told = |identity: &ChildIdentity| {
            String::from_utf8(initialize_result(identity, "srv")).expect("text")
        };
        assert_eq!(
            told(&identity),
            r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"resources":{"subscribe":true},"extensions":{"io.modelcontextprotocol/ui":{"a":1}}},"serverInfo":{"name":"m","version":"2"},"instructions":"do"}"#
        );
        identity.server_info = Bytes::new();
        assert!(told(&identity).contains(r#""serverInfo":{"name":"srv","version":"0"}"#));
    }
}
