//! An answer of a legacy child, as a modern host may see it.
//!
//! Decides what is added to a result and which error codes a modern host may not see. Spliced,
//! never rebuilt: every byte that is not named here passes as it came. Sources: MCP 2026-07-28
//! `basic/index` (responses, error codes), `server/utilities/caching`.

use super::SERVER_INFO;
use super::question::{Ability, abilities};
use crate::protocol::error::ErrorCode;
use crate::protocol::json::{self, Span, ValueType, write_text};
use crate::protocol::splice::Splice;

/// The requests whose complete results carry caching hints.
const CACHEABLE: &[&str] = &[
    "server/discover",
    "tools/list",
    "prompts/list",
    "resources/list",
    "resources/templates/list",
    "resources/read",
];

/// The requests that may be answered with `input_required`.
pub fn may_ask(method: &str) -> bool {
    matches!(method, "tools/call" | "prompts/get" | "resources/read")
}

/// What a result becomes.
#[derive(Clone, Copy, Debug)]
pub struct Completion<'a> {
    /// The method of the request that it answers.
    pub method: &'a str,
    /// The child's `serverInfo`, a whole JSON object.
    pub server_info: &'a [u8],
    /// Whether the child's own caching hints count: not where its list was changed on the way.
    pub keeps_hints: bool,
}

/// Makes the result at `span` of the message that is spliced, which holds `result`, a complete one
/// of the modern era. False, and nothing is changed, if it is no object and so no result at all.
pub fn complete_result(
    splice: &mut Splice<'_>,
    span: Span,
    result: &[u8],
    completion: &Completion<'_>,
) -> bool {
    if ValueType::of(result) != Some(ValueType::Object) {
        return false;
    }
    let is_cacheable = CACHEABLE.contains(&completion.method);
    let mut missing = Missing::of(is_cacheable);
    for entry in json::members(result) {
        let place = entry.span.within(span);
        if entry.is("resultType") {
            missing.result_type = false;
            splice.replace(place, b"\"complete\"");
        } else if entry.is("_meta") {
            missing.meta = false;
            complete_meta(splice, place, entry.value, completion.server_info);
        } else if is_cacheable && entry.is("ttlMs") {
            missing.ttl = false;
            if !(completion.keeps_hints && is_time(entry.value)) {
                splice.replace(place, b"0");
            }
        } else if is_cacheable && entry.is("cacheScope") {
            missing.scope = false;
            if !(completion.keeps_hints && is_scope(entry.value)) {
                splice.replace(place, b"\"private\"");
            }
        }
    }
    let added = missing.members(completion.server_info);
    insert_members(splice, span, result, &added);
    true
}

/// Which members a result lacks.
struct Missing {
    result_type: bool,
    meta: bool,
    ttl: bool,
    scope: bool,
}

impl Missing {
    const fn of(is_cacheable: bool) -> Self {
        Self {
            result_type: true,
            meta: true,
            ttl: is_cacheable,
            scope: is_cacheable,
        }
    }

    /// The members, with a comma between them.
    fn members(&self, server_info: &[u8]) -> Vec<u8> {
        let mut members: Vec<Vec<u8>> = Vec::new();
        if self.result_type {
            members.push(b"\"resultType\":\"complete\"".to_vec());
        }
        if self.meta {
            members.push([b"\"_meta\":", meta_of(server_info).as_slice()].concat());
        }
        if self.ttl {
            members.push(b"\"ttlMs\":0".to_vec());
        }
        if self.scope {
            members.push(b"\"cacheScope\":\"private\"".to_vec());
        }
        members.join(&b',')
    }
}

/// Puts `members` first in the object at `span`, whose bytes are `object`.
fn insert_members(splice: &mut Splice<'_>, span: Span, object: &[u8], members: &[u8]) {
    if members.is_empty() {
        return;
    }
    let has_others = json::members(object).next().is_some();
    let comma: &[u8] = if has_others { b"," } else { b"" };
    splice.insert(span.start() + 1, &[members, comma].concat());
}

fn complete_meta(splice: &mut Splice<'_>, place: Span, meta: &[u8], server_info: &[u8]) {
    if ValueType::of(meta) != Some(ValueType::Object) {
        splice.replace(place, &meta_of(server_info));
        return;
    }
    let mut is_there = false;
    for entry in json::members(meta).filter(|entry| entry.is(SERVER_INFO)) {
        is_there = true;
        splice.replace(entry.span.within(place), server_info);
    }
    if !is_there {
        splice.insert_member(place, SERVER_INFO, server_info);
    }
}

/// The `_meta` of a result of our own.
pub(super) fn meta_of(server_info: &[u8]) -> Vec<u8> {
    let mut meta = b"{".to_vec();
    write_text(&mut meta, SERVER_INFO);
    meta.push(b':');
    meta.extend_from_slice(server_info);
    meta.push(b'}');
    meta
}

/// Whether it is a time to live: an integer that is not negative, and one that every host can hold.
fn is_time(value: &[u8]) -> bool {
    (1..=15).contains(&value.len()) && value.iter().all(u8::is_ascii_digit)
}

fn is_scope(value: &[u8]) -> bool {
    json::raw_text(value)
        .is_some_and(|scope| json::text_is(scope, "public") || json::text_is(scope, "private"))
}

/// What an error of a legacy child becomes for a modern host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ErrorFate {
    /// It passes as it is.
    Pass,
    /// It gives way to this error. The message is the child's own.
    Becomes {
        /// The code that the host may see.
        code: ErrorCode,
        /// What is said.
        message: String,
        /// `error.data`, a whole JSON value.
        data: Option<Vec<u8>>,
    },
    /// The child wants the user to visit these places first: a whole `InputRequiredResult`, without
    /// a state, since the retry is a call of its own.
    Asks(Vec<u8>),
}

/// Decides what becomes of `error`, the child's error object, that answers a request for `method` of
/// a host with these `capabilities`.
pub fn translate_error(
    error: &[u8],
    method: &str,
    capabilities: &[u8],
    server_info: &[u8],
) -> ErrorFate {
    let part = |name| json::find_member(error, name).map(|entry| entry.value);
    let code = part("code").and_then(integer);
    let text = part("message").and_then(json::text);
    let message = text.as_deref().unwrap_or("the server gave no message");
    let data = part("data").map(<[u8]>::to_vec);
    let becomes = |code, data| ErrorFate::Becomes {
        code,
        message: message.to_owned(),
        data,
    };
    match code {
        Some(-32042) if may_ask(method) => {
            match urls_asked(data.as_deref().unwrap_or_default(), server_info) {
                Some(asks) if abilities(capabilities).has(Ability::ElicitUrl) => {
                    ErrorFate::Asks(asks)
                }
                Some(_) => becomes(
                    ErrorCode::MISSING_CLIENT_CAPABILITY,
                    Some(b"{\"requiredCapabilities\":{\"elicitation\":{\"url\":{}}}}".to_vec()),
                ),
                None => becomes(ErrorCode::INTERNAL_ERROR, Some(hidden(error))),
            }
        }
        Some(-32002) if method == "resources/read" => becomes(ErrorCode::INVALID_PARAMS, data),
        Some(-32002 | -32099..=-32020) | None => {
            becomes(ErrorCode::INTERNAL_ERROR, Some(hidden(error)))
        }
        Some(_) if text.is_some() => ErrorFate::Pass,
        Some(code) => becomes(ErrorCode(code), data),
    }
}

/// The code and the data of an error whose code may not be shown as such.
fn hidden(error: &[u8]) -> Vec<u8> {
    let members: Vec<_> = ["code", "data"]
        .into_iter()
        .filter_map(|name| {
            let value = json::find_member(error, name)?.value;
            Some([b"\"", name.as_bytes(), b"\":", value].concat())
        })
        .collect();
    [b"{", members.join(&b',').as_slice(), b"}"].concat()
}

fn integer(value: &[u8]) -> Option<i64> {
    std::str::from_utf8(value).ok()?.parse().ok()
}

/// One url request for each of `data.elicitations`; `None` if there is none that could be shown.
fn urls_asked(data: &[u8], server_info: &[u8]) -> Option<Vec<u8>> {
    let asked = json::find_member(data, "elicitations")?.value;
    let mut requests = Vec::new();
    for (number, span) in json::elements(asked).enumerate() {
        let one = &asked[span.range()];
        let text = |name| {
            let value = json::find_member(one, name)?.value;
            json::raw_text(value).is_some().then_some(value)
        };
        let (message, url) = (text("message")?, text("url")?);
        let key = format!("\"url-{}\":", number + 1);
        requests.push(
            [
                key.as_bytes(),
                b"{\"method\":\"elicitation/create\",\"params\":{\"mode\":\"url\",\"message\":",
                message,
                b",\"url\":",
                url,
                b"}}",
            ]
            .concat(),
        );
    }
    if requests.is_empty() {
        return None;
    }
    Some(input_required(&requests.join(&b','), None, server_info))
}

/// An `InputRequiredResult`: `requests` are the members of `inputRequests`.
pub fn input_required(requests: &[u8], state: Option<&str>, server_info: &[u8]) -> Vec<u8> {
    let mut result = b"{\"resultType\":\"input_required\",\"inputRequests\":{".to_vec();
    result.extend_from_slice(requests);
    result.push(b'}');
    if let Some(state) = state {
        result.extend_from_slice(b",\"requestState\":");
        write_text(&mut result, state);
    }
    result.extend_from_slice(b",\"_meta\":");
    result.extend_from_slice(&meta_of(server_info));
    result.push(b'}');
    result
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::protocol::envelope::Member;
    use crate::protocol::message::Message;

    const INFO: &[u8] = br#"{"name":"s","version":"1"}"#;
    const META: &str =
        r#""_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1"}}"#;

    fn completed(method: &str, result: &str, keeps_hints: bool) -> Option<String> {
        let text = format!(r#"{{"id":1,"result":{result}}}"#);
        let message = Message::parse(Bytes::from(text)).unwrap();
        let mut splice = Splice::of(&message);
        let span = message.span(Member::Result).unwrap();
        let completion = Completion {
            method,
            server_info: INFO,
            keeps_hints,
        };
        complete_result(&mut splice, span, result.as_bytes(), &completion).then(|| {
            let line = String::from_utf8(splice.finish().to_vec()).unwrap();
            line.trim_end()
                .trim_start_matches(r#"{"id":1,"result":"#)
                .strip_suffix('}')
                .unwrap()
                .to_owned()
        })
    }

    #[track_caller]
    fn check(method: &str, result: &str, expected: &str) {
        assert_eq!(completed(method, result, true).as_deref(), Some(expected));
    }

    #[test]
    fn a_result_says_that_it_is_complete_and_whose_it_is() {
        check(
            "tools/call",
            r#"{ "content":[1.0],"x":"\ud83d"}"#,
            &format!(r#"{{"resultType":"complete",{META}, "content":[1.0],"x":"\ud83d"}}"#),
        );
        check(
            "tools/call",
            "{}",
            &format!(r#"{{"resultType":"complete",{META}}}"#),
        );
        check(
            "tools/call",
            r#"{"result\u0054ype":"input_required","_meta":{"a":1,"io.modelcontextprotocol/serverInfo":7}}"#,
            r#"{"result\u0054ype":"complete","_meta":{"a":1,"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1"}}}"#,
        );
        check(
            "tools/call",
            r#"{"_meta":{"a":1},"resultType":1}"#,
            r#"{"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1"},"a":1},"resultType":"complete"}"#,
        );
        check(
            "tools/call",
            r#"{"_meta":null,"ttlMs":"odd"}"#,
            &format!(r#"{{"resultType":"complete",{META},"ttlMs":"odd"}}"#),
        );
    }

    #[test]
    fn lists_and_reads_carry_caching_hints() {
        for method in CACHEABLE {
            check(
                method,
                r#"{"tools":[]}"#,
                &format!(
                    r#"{{"resultType":"complete",{META},"ttlMs":0,"cacheScope":"private","tools":[]}}"#
                ),
            );
        }
        check(
            "tools/list",
            r#"{"ttlMs":5000,"cacheScope":"public"}"#,
            &format!(r#"{{"resultType":"complete",{META},"ttlMs":5000,"cacheScope":"public"}}"#),
        );
        check(
            "tools/list",
            r#"{"ttlMs":-1,"cacheScope":"shared"}"#,
            &format!(r#"{{"resultType":"complete",{META},"ttlMs":0,"cacheScope":"private"}}"#),
        );
        assert_eq!(
            completed("tools/list", r#"{"ttlMs":5,"cacheScope":"public"}"#, false),
            Some(format!(
                r#"{{"resultType":"complete",{META},"ttlMs":0,"cacheScope":"private"}}"#
            ))
        );
    }

    #[test]
    fn what_is_no_object_is_no_result() {
        for result in ["null", "[]", "7", "\"x\""] {
            assert_eq!(completed("tools/call", result, true), None);
        }
    }

    #[track_caller]
    fn error(text: &str, method: &str, code: i64, data: Option<&str>) {
        let fate = translate_error(text.as_bytes(), method, b"{}", INFO);
        let ErrorFate::Becomes {
            code: seen,
            data: given,
            ..
        } = &fate
        else {
            panic!("{fate:?}");
        };
        assert_eq!(seen.0, code, "{text}");
        let given = given.as_ref().map(|data| String::from_utf8_lossy(data));
        assert_eq!(given.as_deref(), data, "{text}");
    }

    #[test]
    fn codes_that_a_modern_host_may_not_see_are_hidden() {
        error(
            r#"{"code":-32002,"message":"m","data":{"uri":"u"}}"#,
            "resources/read",
            -32602,
            Some(r#"{"uri":"u"}"#),
        );
        error(
            r#"{"code":-32002,"message":"m"}"#,
            "tools/call",
            -32603,
            Some(r#"{"code":-32002}"#),
        );
        for code in [-32020, -32021, -32022, -32099] {
            error(
                &format!(r#"{{"code":{code},"message":"m","data":1}}"#),
                "tools/call",
                -32603,
                Some(&format!(r#"{{"code":{code},"data":1}}"#)),
            );
        }
        error(
            r#"{"code":1.5,"message":"m"}"#,
            "x",
            -32603,
            Some(r#"{"code":1.5}"#),
        );
        error(r#"{"message":"m"}"#, "x", -32603, Some("{}"));
        error(r#"{"code":-32000}"#, "x", -32000, None);
    }

    #[test]
    fn other_errors_pass() {
        for code in [-32700, -32603, -32602, -32019, -32000, -32100, -1, 7] {
            let text = format!(r#"{{"code":{code},"message":"m","data":{{}}}}"#);
            let fate = translate_error(text.as_bytes(), "tools/call", b"{}", INFO);
            assert_eq!(fate, ErrorFate::Pass, "{text}");
        }
    }

    const URLS: &str = r#"{"code":-32042,"message":"m","data":{"elicitations":[{"mode":"url","elicitationId":"e","url":"https://a","message":"go"},{"url":"https://b","message":"\u0041"}]}}"#;

    #[test]
    fn a_url_that_must_be_visited_first_is_asked_for() {
        let able = br#"{"elicitation":{"url":{}}}"#;
        let fate = translate_error(URLS.as_bytes(), "tools/call", able, INFO);
        let expected = format!(
            r#"{{"resultType":"input_required","inputRequests":{{"url-1":{{"method":"elicitation/create","params":{{"mode":"url","message":"go","url":"https://a"}}}},"url-2":{{"method":"elicitation/create","params":{{"mode":"url","message":"\u0041","url":"https://b"}}}}}},{META}}}"#
        );
        assert_eq!(fate, ErrorFate::Asks(expected.into_bytes()));
    }

    #[test]
    fn a_host_that_cannot_visit_a_url_is_told_what_it_lacks() {
        error(
            URLS,
            "tools/call",
            -32021,
            Some(r#"{"requiredCapabilities":{"elicitation":{"url":{}}}}"#),
        );
        error(
            r#"{"code":-32042,"message":"m","data":{"elicitations":[]}}"#,
            "tools/call",
            -32603,
            Some(r#"{"code":-32042,"data":{"elicitations":[]}}"#),
        );
        let fate = translate_error(URLS.as_bytes(), "tools/list", b"{}", INFO);
        assert!(matches!(
            fate,
            ErrorFate::Becomes {
                code: ErrorCode::INTERNAL_ERROR,
                ..
            }
        ));
    }
}
