//! What a child asks of the user or of the host: elicitation, sampling, roots.
//!
//! Decides whether a host can be asked it, how it is put to a modern one, and whether what came
//! back is an answer. Never whom to ask. Sources: MCP 2025-11-25 and 2026-07-28 `client/*`;
//! 2026-07-28 `basic/patterns/mrtr`.

use crate::protocol::envelope::Member;
use crate::protocol::error::ErrorCode;
use crate::protocol::json::{self, Span, ValueType};
use crate::protocol::message::Message;
use crate::protocol::splice::Splice;

/// What a host may be able to do for a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Ability {
    /// `elicitation`, in whatever mode.
    Elicit,
    /// A form; `elicitation: {}` means just that.
    ElicitForm,
    /// A place to visit.
    ElicitUrl,
    /// `sampling`
    Sample,
    /// `sampling.tools`
    SampleWithTools,
    /// `roots`
    Roots,
}

/// What one host declared that it can do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Abilities(u8);

impl Abilities {
    /// Whether this one is among them.
    pub const fn has(self, ability: Ability) -> bool {
        self.0 & (1 << ability as u8) != 0
    }

    const fn add(&mut self, ability: Ability, is_there: bool) {
        if is_there {
            self.0 |= 1 << ability as u8;
        }
    }
}

/// Reads a host's capabilities, from its `initialize` or from one request.
pub fn abilities(capabilities: &[u8]) -> Abilities {
    let object = |outer, name| {
        json::find_member(outer, name)
            .map(|entry| entry.value)
            .filter(|value| ValueType::of(value) == Some(ValueType::Object))
    };
    let mut able = Abilities::default();
    if let Some(elicitation) = object(capabilities, "elicitation") {
        let (form, url) = (object(elicitation, "form"), object(elicitation, "url"));
        able.add(Ability::Elicit, true);
        able.add(Ability::ElicitForm, form.is_some() || url.is_none());
        able.add(Ability::ElicitUrl, url.is_some());
    }
    if let Some(sampling) = object(capabilities, "sampling") {
        able.add(Ability::Sample, true);
        able.add(
            Ability::SampleWithTools,
            object(sampling, "tools").is_some(),
        );
    }
    able.add(Ability::Roots, object(capabilities, "roots").is_some());
    able
}

/// The requests that a child may make of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// `elicitation/create`
    Elicit,
    /// `sampling/createMessage`
    Sample,
    /// `roots/list`
    Roots,
}

/// Why a host cannot be asked: the error that the child gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unaskable {
    /// The code.
    pub code: ErrorCode,
    /// What is said.
    pub text: String,
}

impl Ask {
    /// The question that this method is.
    pub fn of(method: &str) -> Option<Self> {
        Some(match method {
            "elicitation/create" => Self::Elicit,
            "sampling/createMessage" => Self::Sample,
            "roots/list" => Self::Roots,
            _ => return None,
        })
    }

    /// Its method.
    pub const fn method(self) -> &'static str {
        match self {
            Self::Elicit => "elicitation/create",
            Self::Sample => "sampling/createMessage",
            Self::Roots => "roots/list",
        }
    }

    /// Whether a host that is `able` can be asked this, with these `params`.
    ///
    /// # Errors
    /// It did not declare the capability (`-32601`) or the mode of it (`-32602`).
    pub fn check(self, params: &[u8], able: Abilities) -> Result<(), Unaskable> {
        let lacks = |what: &str| {
            Err(Unaskable {
                code: ErrorCode::METHOD_NOT_FOUND,
                text: format!(
                    "the host cannot be asked for `{}`: it declared no {what}",
                    self.method()
                ),
            })
        };
        let wrong = |text: &str| {
            Err(Unaskable {
                code: ErrorCode::INVALID_PARAMS,
                text: text.to_owned(),
            })
        };
        match self {
            Self::Elicit if !able.has(Ability::Elicit) => lacks("elicitation"),
            Self::Elicit => match mode_of(params) {
                Some(Mode::Form) if able.has(Ability::ElicitForm) => Ok(()),
                Some(Mode::Url) if able.has(Ability::ElicitUrl) => Ok(()),
                Some(Mode::Form) => wrong("the host did not declare elicitation in form mode"),
                Some(Mode::Url) => wrong("the host did not declare elicitation in url mode"),
                None => wrong("`params.mode` is neither \"form\" nor \"url\""),
            },
            Self::Sample if !able.has(Ability::Sample) => lacks("sampling"),
            Self::Sample if asks_for_tools(params) && !able.has(Ability::SampleWithTools) => {
                wrong("the host did not declare sampling with tools")
            }
            Self::Sample => Ok(()),
            Self::Roots if !able.has(Ability::Roots) => lacks("roots"),
            Self::Roots => Ok(()),
        }
    }

    /// Whether `answer` is a result that the child can read.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check_answer(self, answer: &[u8]) -> Result<(), &'static str> {
        let member = |name| json::find_member(answer, name).map(|entry| entry.value);
        let is = |name, wanted| member(name).and_then(ValueType::of) == Some(wanted);
        if ValueType::of(answer) != Some(ValueType::Object) {
            return Err("it is no object");
        }
        match self {
            Self::Elicit => {
                let action = member("action").and_then(json::text);
                if !matches!(action.as_deref(), Some("accept" | "decline" | "cancel")) {
                    return Err("`action` is neither \"accept\" nor \"decline\" nor \"cancel\"");
                }
                match member("content") {
                    Some(_) if !is("content", ValueType::Object) => Err("`content` is no object"),
                    _ => Ok(()),
                }
            }
            Self::Sample => {
                let has_content =
                    is("content", ValueType::Object) || is("content", ValueType::Array);
                if !has_content || !is("role", ValueType::Text) || !is("model", ValueType::Text) {
                    return Err("`role`, `content` or `model` is missing");
                }
                Ok(())
            }
            Self::Roots => {
                let roots = member("roots").unwrap_or_default();
                let is_root = |span: Span| {
                    json::find_member(&roots[span.range()], "uri")
                        .is_some_and(|uri| json::raw_text(uri.value).is_some())
                };
                let is_list = ValueType::of(roots) == Some(ValueType::Array);
                if is_list && json::elements(roots).all(is_root) {
                    Ok(())
                } else {
                    Err("`roots` is no list of roots")
                }
            }
        }
    }
}

/// How the user is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Form,
    Url,
}

fn mode_of(params: &[u8]) -> Option<Mode> {
    match json::find_member(params, "mode") {
        None => Some(Mode::Form),
        Some(entry) => match json::text(entry.value).as_deref() {
            Some("form") => Some(Mode::Form),
            Some("url") => Some(Mode::Url),
            _ => None,
        },
    }
}

fn asks_for_tools(params: &[u8]) -> bool {
    json::members(params).any(|entry| entry.is("tools") || entry.is("toolChoice"))
}

/// A question of a legacy child as a member of `inputRequests`, its key left out: the method and
/// the params, without what only the legacy era knows.
pub fn input_request(ask: Ask, message: &Message) -> Vec<u8> {
    let mut out = format!("{{\"method\":\"{}\"", ask.method()).into_bytes();
    if message.value_type(Member::Params) == Some(ValueType::Object) {
        out.extend_from_slice(b",\"params\":");
        out.extend_from_slice(&params_for_modern(message));
    }
    out.push(b'}');
    out
}

/// The params without `task`, `elicitationId` and `_meta.progressToken`.
fn params_for_modern(message: &Message) -> Vec<u8> {
    let Some(params) = message.span(Member::Params) else {
        return b"{}".to_vec();
    };
    let mut splice = Splice::of(message);
    splice.retain_members(params, |entry| {
        !entry.is("task") && !entry.is("elicitationId")
    });
    splice.remove_member(Member::MetaProgressToken);
    let line = splice.finish().to_vec();
    // Everything is changed inside of `params`, so what stands around it is as long as it was.
    let behind = message.bytes().len() - params.end() + 1;
    line[params.start()..line.len() - behind].to_vec()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn ask(method: &str, params: &str, capabilities: &str) -> Result<(), i64> {
        Ask::of(method)
            .unwrap()
            .check(params.as_bytes(), abilities(capabilities.as_bytes()))
            .map_err(|unaskable| unaskable.code.0)
    }

    #[test]
    fn a_host_is_asked_what_it_declared() {
        let elicit = "elicitation/create";
        let sample = "sampling/createMessage";
        for (method, params, capabilities, expected) in [
            (elicit, "{}", "{}", Err(-32601)),
            (elicit, "{}", r#"{"elicitation":true}"#, Err(-32601)),
            (elicit, "{}", r#"{"elicitation":{}}"#, Ok(())),
            (
                elicit,
                r#"{"mode":"form"}"#,
                r#"{"elicitation":{}}"#,
                Ok(()),
            ),
            (
                elicit,
                r#"{"mode":"url"}"#,
                r#"{"elicitation":{}}"#,
                Err(-32602),
            ),
            (
                elicit,
                r#"{"mode":"url"}"#,
                r#"{"elicitation":{"url":{}}}"#,
                Ok(()),
            ),
            (elicit, "{}", r#"{"elicitation":{"url":{}}}"#, Err(-32602)),
            (
                elicit,
                "{}",
                r#"{"elicitation":{"url":{},"form":{}}}"#,
                Ok(()),
            ),
            (
                elicit,
                r#"{"mode":"voice"}"#,
                r#"{"elicitation":{}}"#,
                Err(-32602),
            ),
            (sample, "{}", r#"{"roots":{}}"#, Err(-32601)),
            (sample, "{}", r#"{"sampling":{}}"#, Ok(())),
            (sample, r#"{"tools":[]}"#, r#"{"sampling":{}}"#, Err(-32602)),
            (
                sample,
                r#"{"toolChoice":{}}"#,
                r#"{"sampling":{}}"#,
                Err(-32602),
            ),
            (
                sample,
                r#"{"tools":[]}"#,
                r#"{"sampling":{"tools":{}}}"#,
                Ok(()),
            ),
            ("roots/list", "", r#"{"sampling":{}}"#, Err(-32601)),
            ("roots/list", "", r#"{"roots":{}}"#, Ok(())),
        ] {
            assert_eq!(
                ask(method, params, capabilities),
                expected,
                "{method} {params} {capabilities}"
            );
        }
        assert_eq!(Ask::of("tools/list"), None);
    }

    #[track_caller]
    fn answer(method: &str, text: &str, is_one: bool) {
        let checked = Ask::of(method).unwrap().check_answer(text.as_bytes());
        assert_eq!(checked.is_ok(), is_one, "{method}: {text}: {checked:?}");
    }

    #[test]
    fn an_answer_is_what_the_child_can_read() {
        let elicit = "elicitation/create";
        answer(elicit, r#"{"action":"accept","content":{"a":1}}"#, true);
        answer(elicit, r#"{"action":"d\u0065cline"}"#, true);
        answer(elicit, r#"{"action":"cancel","x":1}"#, true);
        answer(elicit, r#"{"action":"maybe"}"#, false);
        answer(elicit, r#"{"action":"accept","content":[]}"#, false);
        answer(elicit, "null", false);
        let sample = "sampling/createMessage";
        answer(
            sample,
            r#"{"role":"assistant","model":"m","content":{}}"#,
            true,
        );
        answer(
            sample,
            r#"{"role":"assistant","model":"m","content":[]}"#,
            true,
        );
        answer(sample, r#"{"role":"assistant","content":{}}"#, false);
        answer("roots/list", r#"{"roots":[{"uri":"file:///a"}]}"#, true);
        answer("roots/list", r#"{"roots":[]}"#, true);
        answer("roots/list", r#"{"roots":[{}]}"#, false);
        answer("roots/list", "{}", false);
    }

    #[track_caller]
    fn put(line: &str, expected: &str) {
        let message = Message::parse(Bytes::copy_from_slice(line.as_bytes())).unwrap();
        let ask = Ask::of(message.method().unwrap()).unwrap();
        let request = input_request(ask, &message);
        assert_eq!(String::from_utf8_lossy(&request), expected);
    }

    #[test]
    fn a_question_is_put_without_what_only_the_legacy_era_knows() {
        put(
            r#"{"jsonrpc":"2.0","params":{"mode":"url","task":{"ttl":1},"url":"https://a","elicitationId":"e","message":"m"},"id":7,"method":"elicitation/create"}"#,
            r#"{"method":"elicitation/create","params":{"mode":"url","url":"https://a","message":"m"}}"#,
        );
        put(
            r#"{"id":7,"method":"sampling/createMessage","params":{ "_meta":{"progressToken":7,"x":1.0}, "maxTokens":5}}"#,
            r#"{"method":"sampling/createMessage","params":{ "_meta":{"x":1.0}, "maxTokens":5}}"#,
        );
        put(
            r#"{"id":7,"method":"roots/list"}"#,
            r#"{"method":"roots/list"}"#,
        );
        put(
            r#"{"id":7,"method":"roots/list","params":{"_meta":{"progressToken":1}}}"#,
            r#"{"method":"roots/list","params":{"_meta":{}}}"#,
        );
    }
}
