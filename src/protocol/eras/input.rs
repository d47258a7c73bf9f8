//! What a modern child still wants to know before it completes a request.
//!
//! Reads an `InputRequiredResult` and says what is wrong with one that must not be. Never asks
//! anybody. Source: MCP 2026-07-28 `basic/patterns/mrtr`.

use super::question::{Abilities, Ask};
use super::result::may_ask;
use crate::protocol::json::{self, ValueType};

/// What kind of result a modern child gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModernResult {
    /// The final one.
    Complete,
    /// More is wanted first.
    Input(Input),
    /// One that must not be; a sentence.
    Wrong(String),
}

/// What is wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Input {
    /// The questions, none if only the state goes back.
    pub questions: Vec<InputQuestion>,
    /// `requestState`, the JSON string byte for byte.
    pub state: Option<Vec<u8>>,
}

/// One question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputQuestion {
    /// Its key, with its quotes, byte for byte.
    pub key: Vec<u8>,
    pub ask: Ask,
    /// A whole JSON object; empty if there is none.
    pub params: Vec<u8>,
}

/// Questions of one result.
const QUESTIONS_LIMIT: usize = 100;

/// Reads the result of a request for `method` of a host that can do `able`.
pub fn read_modern_result(method: &str, result: &[u8], able: Abilities) -> ModernResult {
    let part = |name| json::find_member(result, name).map(|entry| entry.value);
    let kind = part("resultType").map(|kind| (json::text(kind), kind));
    match &kind {
        None => return ModernResult::Complete,
        Some((Some(kind), _)) if kind == "complete" => return ModernResult::Complete,
        Some((Some(kind), _)) if kind == "input_required" => {}
        Some((_, raw)) => {
            return wrong(format!("`resultType` is {}", String::from_utf8_lossy(raw)));
        }
    }
    if !may_ask(method) {
        return wrong(format!("`{method}` may not want further input"));
    }
    let state = part("requestState");
    if state.is_some_and(|state| json::raw_text(state).is_none()) {
        return wrong("`requestState` is not a string".to_owned());
    }
    let mut input = Input {
        questions: Vec::new(),
        state: state.map(<[u8]>::to_vec),
    };
    match part("inputRequests") {
        Some(requests) if ValueType::of(requests) == Some(ValueType::Object) => {
            for entry in json::members(requests) {
                let key = quoted_key(requests, &entry);
                match read_question(key, entry.value, able) {
                    Ok(question) => input.questions.push(question),
                    Err(complaint) => return wrong(complaint),
                }
            }
        }
        Some(_) => return wrong("`inputRequests` is not an object".to_owned()),
        None => {}
    }
    if input.questions.is_empty() && input.state.is_none() {
        return wrong("neither a question nor `requestState` is there".to_owned());
    }
    if input.questions.len() > QUESTIONS_LIMIT {
        return wrong(format!("more than {QUESTIONS_LIMIT} questions at once"));
    }
    ModernResult::Input(input)
}

fn quoted_key(object: &[u8], entry: &json::Entry<'_>) -> Vec<u8> {
    let end = json::skip_value(object, entry.key_start).unwrap_or(entry.key_start);
    object[entry.key_start..end].to_vec()
}

fn read_question(key: Vec<u8>, question: &[u8], able: Abilities) -> Result<InputQuestion, String> {
    let part = |name| json::find_member(question, name).map(|entry| entry.value);
    let method = part("method").and_then(json::text).unwrap_or_default();
    let ask = Ask::of(&method).ok_or_else(|| {
        let method: String = method.chars().take(100).collect();
        format!("{method:?} is nothing that a host can be asked")
    })?;
    let params = part("params").unwrap_or_default();
    ask.check(params, able)
        .map_err(|unaskable| unaskable.text)?;
    let params = params.to_vec();
    Ok(InputQuestion { key, ask, params })
}

fn wrong(complaint: String) -> ModernResult {
    ModernResult::Wrong(complaint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::eras::question::abilities;

    fn read(method: &str, result: &str) -> ModernResult {
        let able = abilities(br#"{"elicitation":{},"roots":{}}"#);
        read_modern_result(method, result.as_bytes(), able)
    }

    #[test]
    fn what_is_complete_passes() {
        assert_eq!(read("tools/list", "{}"), ModernResult::Complete);
        let result = r#"{"resultType":"complete","requestState":7}"#;
        assert_eq!(read("tools/call", result), ModernResult::Complete);
    }

    #[test]
    fn questions_and_state_are_read_byte_for_byte() {
        let result = r#"{"resultType":"input_required","requestState":"a\u0062","inputRequests":{"q\u0031":{"method":"elicitation/create","params":{"message":"m","requestedSchema":{"type":"object","properties":{}}}},"r":{"method":"roots/list"}}}"#;
        let ModernResult::Input(input) = read("tools/call", result) else {
            panic!("{:?}", read("tools/call", result));
        };
        assert_eq!(input.state.as_deref(), Some(&br#""a\u0062""#[..]));
        let keys: Vec<_> = input.questions.iter().map(|one| &one.key[..]).collect();
        assert_eq!(keys, [&br#""q\u0031""#[..], br#""r""#]);
        assert_eq!(input.questions[1].ask, Ask::Roots);
    }

    #[test]
    fn what_must_not_be_is_told() {
        for (method, result, says) in [
            (
                "tools/list",
                r#"{"resultType":"input_required","requestState":"s"}"#,
                "`tools/list`",
            ),
            (
                "tools/call",
                r#"{"resultType":"task"}"#,
                "`resultType` is \"task\"",
            ),
            ("tools/call", r#"{"resultType":7}"#, "`resultType` is 7"),
            (
                "tools/call",
                r#"{"resultType":"input_required"}"#,
                "neither",
            ),
            (
                "tools/call",
                r#"{"resultType":"input_required","inputRequests":{}}"#,
                "neither",
            ),
            (
                "tools/call",
                r#"{"resultType":"input_required","inputRequests":[]}"#,
                "object",
            ),
            (
                "tools/call",
                r#"{"resultType":"input_required","requestState":7}"#,
                "string",
            ),
            (
                "tools/call",
                r#"{"resultType":"input_required","inputRequests":{"q":{"method":"ping"}}}"#,
                "ping",
            ),
            (
                "tools/call",
                r#"{"resultType":"input_required","inputRequests":{"q":{"method":"sampling/createMessage","params":{}}}}"#,
                "sampling",
            ),
        ] {
            match read(method, result) {
                ModernResult::Wrong(text) => assert!(text.contains(says), "{text}"),
                other => panic!("{result}: {other:?}"),
            }
        }
    }
}
