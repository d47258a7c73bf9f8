//! `subscriptions/listen` of a modern host: what it asks for, and the messages of its stream.
//!
//! Decides what of a filter can be read and what every message of a stream carries. Never who gets
//! one. Source: MCP 2026-07-28 `basic/patterns/subscriptions`.

use bytes::Bytes;

use super::SUBSCRIPTION_ID;
use crate::protocol::envelope::Member;
use crate::protocol::frame::Frame;
use crate::protocol::id::RequestId;
use crate::protocol::json::{self, ValueType, write_text};
use crate::protocol::message::Message;
use crate::protocol::splice::Splice;
use crate::protocol::write;

/// The kinds of list change that a stream may carry: the filter's member and the notification.
const KINDS: [(&str, &str); 3] = [
    ("toolsListChanged", "notifications/tools/list_changed"),
    ("promptsListChanged", "notifications/prompts/list_changed"),
    (
        "resourcesListChanged",
        "notifications/resources/list_changed",
    ),
];

/// A uri of a filter: as text to compare, and as the JSON string that was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenUri {
    /// Escapes undone.
    pub text: String,
    /// With its quotes.
    pub raw: Bytes,
}

/// What a stream is to carry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// In the order of [`KINDS`].
    kinds: [bool; 3],
    /// Each once, in the order in which they were named.
    pub uris: Vec<ListenUri>,
}

impl Filter {
    /// Reads `params.notifications` of the request.
    ///
    /// # Errors
    /// What is wrong with it, for `-32602`.
    pub fn read(params: &[u8]) -> Result<Self, String> {
        let filter = json::find_member(params, "notifications")
            .map(|entry| entry.value)
            .filter(|value| ValueType::of(value) == Some(ValueType::Object))
            .ok_or("`params.notifications` is missing or is no object")?;
        let mut read = Self::default();
        for (slot, (name, _)) in read.kinds.iter_mut().zip(KINDS) {
            *slot = read_flag(filter, name)?;
        }
        if let Some(entry) = json::find_member(filter, "resourceSubscriptions") {
            read.uris = read_uris(entry.value)?;
        }
        Ok(read)
    }

    /// Whether the notification called `method` belongs on the stream.
    pub fn wants(&self, method: &str) -> bool {
        KINDS
            .iter()
            .zip(self.kinds)
            .any(|((_, changed), wanted)| wanted && *changed == method)
    }

    /// Leaves only those kinds of list change that `offers` names, by their notification.
    pub fn restrict(&mut self, offers: impl Fn(&str) -> bool) {
        for (slot, (_, changed)) in self.kinds.iter_mut().zip(KINDS) {
            *slot &= offers(changed);
        }
    }

    /// The filter as an acknowledgement says it: what is not there is left out.
    fn write(&self, out: &mut Vec<u8>) {
        let mut members: Vec<Vec<u8>> = KINDS
            .iter()
            .zip(self.kinds)
            .filter(|(_, wanted)| *wanted)
            .map(|((name, _), _)| format!("\"{name}\":true").into_bytes())
            .collect();
        if !self.uris.is_empty() {
            let uris: Vec<&[u8]> = self.uris.iter().map(|uri| &uri.raw[..]).collect();
            members.push(
                [
                    b"\"resourceSubscriptions\":[",
                    uris.join(&b',').as_slice(),
                    b"]",
                ]
                .concat(),
            );
        }
        out.push(b'{');
        out.extend_from_slice(&members.join(&b','));
        out.push(b'}');
    }
}

fn read_flag(filter: &[u8], name: &str) -> Result<bool, String> {
    match json::find_member(filter, name).map(|entry| entry.value) {
        None | Some(b"false") => Ok(false),
        Some(b"true") => Ok(true),
        Some(_) => Err(format!("`params.notifications.{name}` is no boolean")),
    }
}

fn read_uris(array: &[u8]) -> Result<Vec<ListenUri>, String> {
    let complaint = || "`params.notifications.resourceSubscriptions` is no list of uris".to_owned();
    if ValueType::of(array) != Some(ValueType::Array) {
        return Err(complaint());
    }
    let mut uris: Vec<ListenUri> = Vec::new();
    let mut seen = std::collections::BTreeSet::new();
    for span in json::elements(array) {
        let raw = &array[span.range()];
        let text = json::text(raw).ok_or_else(complaint)?.into_owned();
        if seen.insert(text.clone()) {
            // Copied: a slice would keep the whole request for as long as the stream is open.
            let raw = Bytes::copy_from_slice(raw);
            uris.push(ListenUri { text, raw });
        }
    }
    Ok(uris)
}

/// The first message of a stream: what is promised.
pub fn acknowledgement(id: &RequestId, honoured: &Filter) -> Frame {
    let mut params = meta_of(id);
    params.extend_from_slice(b",\"notifications\":");
    honoured.write(&mut params);
    params.push(b'}');
    write::notification("notifications/subscriptions/acknowledged", Some(&params))
}

/// The result that ends a stream in good order.
pub fn closing_result(id: &RequestId) -> Frame {
    let mut result = b"{\"resultType\":\"complete\",".to_vec();
    result.extend_from_slice(&meta_of(id)[1..]);
    result.push(b'}');
    write::result_response(id, &result)
}

/// What tells a host that a stream is no more.
pub fn cancelled(id: &RequestId, reason: &str) -> Frame {
    let mut params = b"{\"requestId\":".to_vec();
    params.extend_from_slice(id.raw());
    params.extend_from_slice(b",\"reason\":");
    write_text(&mut params, reason);
    params.push(b'}');
    write::notification("notifications/cancelled", Some(&params))
}

/// A notification without parameters, on a stream.
pub fn bare_event(id: &RequestId, method: &str) -> Frame {
    let mut params = meta_of(id);
    params.push(b'}');
    write::notification(method, Some(&params))
}

/// A notification of the child as it goes out on a stream: with the stream's id in its `_meta`.
pub fn event(id: &RequestId, message: &Message) -> Frame {
    let mut splice = Splice::of(message);
    let meta = |id: &RequestId| [meta_object(id).as_slice()].concat();
    match (
        message.span(Member::Params),
        message.span(Member::ParamsMeta),
    ) {
        (None, _) => {
            let mut params = meta_of(id);
            params.push(b'}');
            splice.insert_member(splice.whole(), "params", &params);
        }
        (Some(params), None) => {
            splice.insert_member(params, "_meta", &meta(id));
        }
        (Some(_), Some(place)) => {
            let value = message.value(Member::ParamsMeta).unwrap_or_default();
            if ValueType::of(value) != Some(ValueType::Object) {
                splice.replace(place, &meta(id));
                return splice.finish();
            }
            let mut is_there = false;
            for entry in json::members(value).filter(|entry| entry.is(SUBSCRIPTION_ID)) {
                is_there = true;
                splice.replace(entry.span.within(place), id.raw());
            }
            if !is_there {
                splice.insert_member(place, SUBSCRIPTION_ID, id.raw());
            }
        }
    }
    splice.finish()
}

fn meta_object(id: &RequestId) -> Vec<u8> {
    [b"{\"", SUBSCRIPTION_ID.as_bytes(), b"\":", id.raw(), b"}"].concat()
}

/// An object that is begun with the `_meta` of a stream and still open.
fn meta_of(id: &RequestId) -> Vec<u8> {
    [b"{\"_meta\":", meta_object(id).as_slice()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id() -> RequestId {
        RequestId::parse(b"\"l\\u0031\"").unwrap()
    }

    const META: &str = r#""_meta":{"io.modelcontextprotocol/subscriptionId":"l\u0031"}"#;

    #[track_caller]
    fn check(frame: &Frame, expected: &str) {
        let line = String::from_utf8(frame.to_vec()).unwrap();
        assert_eq!(
            line.trim_end(),
            format!(r#"{{"jsonrpc":"2.0",{expected}}}"#)
        );
    }

    #[test]
    fn a_filter_is_read_and_said_again_without_what_is_not_wanted() {
        let mut filter = Filter::read(
            br#"{"notifications":{"toolsListChanged":true,"promptsListChanged":false,"resourcesListChanged":true,"resourceSubscriptions":["a:\/b","a:/b","c"],"x":1}}"#,
        )
        .unwrap();
        assert!(filter.wants("notifications/tools/list_changed"));
        assert!(!filter.wants("notifications/prompts/list_changed"));
        filter.restrict(|method| method != "notifications/resources/list_changed");
        assert_eq!(filter.uris.len(), 2);
        check(
            &acknowledgement(&id(), &filter),
            &format!(
                r#""method":"notifications/subscriptions/acknowledged","params":{{{META},"notifications":{{"toolsListChanged":true,"resourceSubscriptions":["a:\/b","c"]}}}}"#
            ),
        );
    }

    #[test]
    fn an_empty_filter_is_one_too() {
        let filter = Filter::read(br#"{"notifications":{}}"#).unwrap();
        check(
            &acknowledgement(&id(), &filter),
            &format!(
                r#""method":"notifications/subscriptions/acknowledged","params":{{{META},"notifications":{{}}}}"#
            ),
        );
    }

    #[test]
    fn a_filter_that_cannot_be_read_is_refused() {
        for params in [
            "{}",
            r#"{"notifications":[]}"#,
            r#"{"notifications":{"toolsListChanged":1}}"#,
            r#"{"notifications":{"resourceSubscriptions":"a"}}"#,
            r#"{"notifications":{"resourceSubscriptions":["a",1]}}"#,
        ] {
            assert!(Filter::read(params.as_bytes()).is_err(), "{params}");
        }
    }

    #[test]
    fn a_stream_ends_with_a_result_and_a_cancellation() {
        check(
            &closing_result(&id()),
            &format!(r#""id":"l\u0031","result":{{"resultType":"complete",{META}}}"#),
        );
        check(
            &cancelled(&id(), "gone"),
            r#""method":"notifications/cancelled","params":{"requestId":"l\u0031","reason":"gone"}"#,
        );
        check(
            &bare_event(&id(), "notifications/tools/list_changed"),
            &format!(r#""method":"notifications/tools/list_changed","params":{{{META}}}"#),
        );
    }

    #[test]
    fn an_event_of_the_child_carries_the_streams_id() {
        for (from, to) in [
            (
                r#"{"jsonrpc":"2.0","method":"n"}"#,
                format!(r#"{{"params":{{{META}}},"jsonrpc":"2.0","method":"n"}}"#),
            ),
            (
                r#"{"method":"n","params":{"uri":"a"}}"#,
                format!(r#"{{"method":"n","params":{{{META},"uri":"a"}}}}"#),
            ),
            (
                r#"{"method":"n","params":{"_meta":{"x":1}}}"#,
                r#"{"method":"n","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"l\u0031","x":1}}}"#.to_owned(),
            ),
            (
                r#"{"method":"n","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":4}}}"#,
                format!(r#"{{"method":"n","params":{{{META}}}}}"#),
            ),
            (
                r#"{"method":"n","params":{"_meta":null}}"#,
                format!(r#"{{"method":"n","params":{{{META}}}}}"#),
            ),
        ] {
            let message = Message::parse(Bytes::copy_from_slice(from.as_bytes())).unwrap();
            let line = String::from_utf8(event(&id(), &message).to_vec()).unwrap();
            assert_eq!(line.trim_end(), to);
        }
    }
}
