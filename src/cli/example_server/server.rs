//! The example server without its streams: one line in, what to do about it out.
//!
//! Speaks the legacy revisions of MCP. Decides every answer but that of a slow call, which is
//! given when its time has passed.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::arithmetic::{Operation, render_number};
use crate::protocol::Version;

/// The resource that holds the last result.
const LAST: &str = "calculator://last";
/// The longest a slow call takes.
const SECONDS_LIMIT: f64 = 3600.0;
/// The most steps a slow call takes.
const STEPS_LIMIT: u64 = 1000;
/// The levels of a log message, the most verbose first (MCP, logging).
const LEVELS: [&str; 8] = [
    "debug",
    "info",
    "notice",
    "warning",
    "error",
    "critical",
    "alert",
    "emergency",
];

/// What to do about a line.
#[derive(Debug)]
pub(super) enum Act {
    /// Write this message.
    Send(String),
    /// Begin a call that takes its time.
    Begin(SlowCall),
    /// Forget the call with this id, as it was spelled.
    Cancel(String),
}

/// A call of `slow`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SlowCall {
    /// The request's id, as it was spelled.
    pub(super) id: String,
    /// The token for progress, as it was spelled, if there was one.
    pub(super) token: Option<String>,
    pub(super) seconds: f64,
    pub(super) steps: u64,
}

impl SlowCall {
    /// The news that `step` steps are done.
    pub(super) fn progress(&self, step: u64) -> Option<String> {
        let token = self.token.as_ref()?;
        let steps = self.steps;
        Some(format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":{step},"total":{steps},"message":"step {step} of {steps}"}}}}"#
        ))
    }

    /// The answer once all steps are done.
    pub(super) fn result(&self) -> String {
        let text = format!("slept {} s in {} steps", self.seconds, self.steps);
        result(&self.id, &tool_text(&text, false))
    }
}

/// What a host may send.
#[derive(Debug, Deserialize)]
struct Incoming<'a> {
    #[serde(default, borrow)]
    id: Option<&'a RawValue>,
    #[serde(default)]
    method: Option<String>,
    #[serde(default)]
    params: Value,
}

/// Tokens are given back as they came, so they are read apart from the rest.
#[derive(Debug, Default, Deserialize)]
struct Tokens<'a> {
    #[serde(default, borrow)]
    params: TokenParams<'a>,
}

#[derive(Debug, Default, Deserialize)]
struct TokenParams<'a> {
    #[serde(default, borrow, rename = "_meta")]
    meta: TokenMeta<'a>,
    #[serde(default, borrow, rename = "requestId")]
    request_id: Option<&'a RawValue>,
}

#[derive(Debug, Default, Deserialize)]
struct TokenMeta<'a> {
    #[serde(default, borrow, rename = "progressToken")]
    progress_token: Option<&'a RawValue>,
}

/// An error that answers a request.
#[derive(Debug)]
struct Refusal {
    code: i64,
    message: String,
}

impl Refusal {
    fn params(message: impl Into<String>) -> Self {
        let message = message.into();
        Self {
            code: -32602,
            message,
        }
    }
}

/// One session.
#[derive(Debug)]
pub(super) struct Server {
    precision: usize,
    version: Version,
    /// The last result; nothing has been calculated yet without one.
    last: Option<String>,
    subscribed: bool,
    /// The least severe level that the host wants to hear, once it has said so.
    level: Option<usize>,
}

impl Server {
    pub(super) fn new(precision: usize) -> Self {
        Self {
            precision,
            version: Version::NEWEST,
            last: None,
            subscribed: false,
            level: None,
        }
    }

    /// What to do about `line`.
    pub(super) fn handle(&mut self, line: &str) -> Vec<Act> {
        // serde reads arrays as structures too; batches are not offered here.
        if line.starts_with('[') {
            let refused = refusal("null", -32600, "batches are not supported");
            return vec![Act::Send(refused)];
        }
        let incoming: Incoming<'_> = match serde_json::from_str(line) {
            Ok(incoming) => incoming,
            Err(error) => {
                let code = if error.is_data() { -32600 } else { -32700 };
                return vec![Act::Send(refusal("null", code, &error.to_string()))];
            }
        };
        match (incoming.method, incoming.id) {
            (Some(method), Some(id)) => {
                self.handle_request(&method, id.get(), &incoming.params, line)
            }
            (Some(method), None) => Self::handle_notification(&method, line),
            // We ask nothing, so an answer means nothing.
            (None, _) => Vec::new(),
        }
    }

    fn handle_notification(method: &str, line: &str) -> Vec<Act> {
        let tokens: Tokens<'_> = serde_json::from_str(line).unwrap_or_default();
        match (method, tokens.params.request_id) {
            ("notifications/cancelled", Some(id)) => vec![Act::Cancel(id.get().to_owned())],
            _ => Vec::new(),
        }
    }

    fn handle_request(&mut self, method: &str, id: &str, params: &Value, line: &str) -> Vec<Act> {
        let answer = match method {
            "initialize" => Ok(self.initialize(params)),
            "ping" => Ok(json!({})),
            "tools/list" => Ok(json!({"tools": self.tools()})),
            "tools/call" => return self.call(id, params, line),
            "resources/list" => Ok(json!({"resources": [Self::resource()]})),
            "resources/templates/list" => Ok(json!({"resourceTemplates": []})),
            "resources/read" => self.read(params),
            "resources/subscribe" => self.subscribe(params, true),
            "resources/unsubscribe" => self.subscribe(params, false),
            "logging/setLevel" => self.set_level(params),
            other => Err(Refusal {
                code: -32601,
                message: format!("unknown method {other}"),
            }),
        };
        vec![Act::Send(answered(id, answer))]
    }

    fn initialize(&mut self, params: &Value) -> Value {
        let asked = params["protocolVersion"].as_str().unwrap_or_default();
        self.version = Version::parse(asked).unwrap_or(Version::NEWEST);
        json!({
            "protocolVersion": self.version.as_str(),
            "capabilities": {
                "tools": {},
                "resources": {"subscribe": true},
                "logging": {},
            },
            "serverInfo": {"name": "calculator", "version": env!("CARGO_PKG_VERSION")},
            "instructions": "Calculates with two numbers at a time. The resource \
                             calculator://last holds the last result.",
        })
    }

    /// Whether the host knows structured results.
    fn is_structured(&self) -> bool {
        self.version >= Version::V2025_06_18
    }

    fn tools(&self) -> Vec<Value> {
        let number = |description: &str| json!({"type": "number", "description": description});
        let mut tools: Vec<Value> = Operation::ALL
            .into_iter()
            .map(|operation| {
                let mut tool = json!({
                    "name": operation.name(),
                    "description": operation.description(),
                    "inputSchema": {
                        "type": "object",
                        "properties": {"a": number("first number"), "b": number("second number")},
                        "required": ["a", "b"],
                    },
                });
                if self.is_structured() {
                    tool["outputSchema"] = json!({
                        "type": "object",
                        "properties": {"result": {"type": "number"}},
                        "required": ["result"],
                    });
                }
                tool
            })
            .collect();
        tools.push(json!({
            "name": "slow",
            "description": "Take some seconds, in steps, and report progress",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "seconds": number("how long it takes, 3 by default"),
                    "steps": {"type": "integer", "description": "in how many steps, 3 by default"},
                },
            },
        }));
        tools
    }

    fn call(&mut self, id: &str, params: &Value, line: &str) -> Vec<Act> {
        let arguments = &params["arguments"];
        let name = params["name"].as_str().unwrap_or_default();
        if name == "slow" {
            return vec![match slow_call(id, arguments, line) {
                Ok(call) => Act::Begin(call),
                Err(why) => Act::Send(result(id, &tool_text(&why, true))),
            }];
        }
        let known = Operation::ALL.into_iter().find(|one| one.name() == name);
        let Some(operation) = known else {
            let refused = Refusal::params(format!("unknown tool {name:?}"));
            return vec![Act::Send(answered(id, Err(refused)))];
        };
        let outcome = number(arguments, "a")
            .and_then(|a| Ok((a, number(arguments, "b")?)))
            .and_then(|(a, b)| operation.apply(a, b).map_err(str::to_owned));
        match outcome {
            Ok(value) => self.calculated(id, operation, arguments, value),
            Err(why) => vec![Act::Send(result(id, &tool_text(&why, true)))],
        }
    }

    /// The answer to a calculation, and the news of it for whoever asked to be told.
    fn calculated(
        &mut self,
        id: &str,
        operation: Operation,
        arguments: &Value,
        value: f64,
    ) -> Vec<Act> {
        let number = render_number(value, self.precision);
        let mut answer = tool_text(&number, false);
        if self.is_structured() {
            answer.pop();
            answer.push_str(&format!(r#","structuredContent":{{"result":{number}}}}}"#));
        }
        let mut acts = Vec::with_capacity(3);
        if self.level == Some(0) {
            let said = format!("{}{arguments} = {number}", operation.name());
            let params = json!({"level": LEVELS[0], "logger": "calculator", "data": said});
            acts.push(notification("notifications/message", &params));
        }
        self.last = Some(number);
        if self.subscribed {
            let params = json!({"uri": LAST});
            acts.push(notification("notifications/resources/updated", &params));
        }
        acts.push(Act::Send(result(id, &answer)));
        acts
    }

    fn resource() -> Value {
        json!({
            "uri": LAST,
            "name": "last",
            "description": "The last result",
            "mimeType": "text/plain",
        })
    }

    fn read(&self, params: &Value) -> Result<Value, Refusal> {
        known_uri(params)?;
        let text = self
            .last
            .as_deref()
            .unwrap_or("nothing has been calculated yet");
        Ok(json!({"contents": [{"uri": LAST, "mimeType": "text/plain", "text": text}]}))
    }

    fn subscribe(&mut self, params: &Value, wanted: bool) -> Result<Value, Refusal> {
        known_uri(params)?;
        self.subscribed = wanted;
        Ok(json!({}))
    }

    fn set_level(&mut self, params: &Value) -> Result<Value, Refusal> {
        let asked = params["level"].as_str().unwrap_or_default();
        let Some(level) = LEVELS.iter().position(|level| *level == asked) else {
            return Err(Refusal::params(format!("unknown level {asked:?}")));
        };
        self.level = Some(level);
        Ok(json!({}))
    }
}

fn known_uri(params: &Value) -> Result<(), Refusal> {
    let uri = params["uri"].as_str().unwrap_or_default();
    if uri == LAST {
        return Ok(());
    }
    // The code of the legacy revisions (MCP 2025-11-25, resources, error handling).
    Err(Refusal {
        code: -32002,
        message: format!("no resource {uri:?}"),
    })
}

fn number(arguments: &Value, name: &str) -> Result<f64, String> {
    arguments[name]
        .as_f64()
        .ok_or_else(|| format!("{name:?} must be a number"))
}

fn slow_call(id: &str, arguments: &Value, line: &str) -> Result<SlowCall, String> {
    let seconds = match &arguments["seconds"] {
        Value::Null => 3.0,
        given => given.as_f64().unwrap_or(-1.0),
    };
    if !(0.0..=SECONDS_LIMIT).contains(&seconds) {
        return Err(format!(
            "\"seconds\" must be a number from 0 to {SECONDS_LIMIT}"
        ));
    }
    let steps = match &arguments["steps"] {
        Value::Null => 3,
        given => given.as_u64().unwrap_or(0),
    };
    if !(1..=STEPS_LIMIT).contains(&steps) {
        return Err(format!(
            "\"steps\" must be a whole number from 1 to {STEPS_LIMIT}"
        ));
    }
    let tokens: Tokens<'_> = serde_json::from_str(line).unwrap_or_default();
    let token = tokens.params.meta.progress_token;
    Ok(SlowCall {
        id: id.to_owned(),
        token: token.map(|token| token.get().to_owned()),
        seconds,
        steps,
    })
}

/// The result of a tool that says `text`, as JSON.
fn tool_text(text: &str, is_error: bool) -> String {
    let text = Value::from(text);
    format!(r#"{{"content":[{{"type":"text","text":{text}}}],"isError":{is_error}}}"#)
}

fn answered(id: &str, answer: Result<Value, Refusal>) -> String {
    match answer {
        Ok(value) => result(id, &value.to_string()),
        Err(Refusal { code, message }) => refusal(id, code, &message),
    }
}

/// The answer to `id`; both are JSON already.
fn result(id: &str, result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
}

fn refusal(id: &str, code: i64, message: &str) -> String {
    let message = Value::from(message);
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":{message}}}}}"#)
}

/// The error for one call more than can be held.
pub(super) fn too_many(id: &str) -> String {
    result(id, &tool_text("too many slow calls at once", true))
}

fn notification(method: &str, params: &Value) -> Act {
    let message = json!({"jsonrpc": "2.0", "method": method, "params": params});
    Act::Send(message.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a fresh server sends for `lines`.
    fn sent(lines: &[&str]) -> Vec<Value> {
        let mut server = Server::new(10);
        let acts = lines.iter().flat_map(|line| server.handle(line));
        acts.map(|act| match act {
            Act::Send(text) => serde_json::from_str(&text).unwrap(),
            other => panic!("{other:?}"),
        })
        .collect()
    }

    fn call(id: &str, name: &str, a: &str, b: &str) -> String {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{name}","arguments":{{"a":{a},"b":{b}}}}}}}"#
        )
    }

    fn request(method: &str, params: &str) -> String {
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#)
    }

    #[test]
    fn all_legacy_versions_are_spoken_and_the_newest_is_offered_to_others() {
        for (asked, given) in [
            ("2024-11-05", "2024-11-05"),
            ("2025-03-26", "2025-03-26"),
            ("2025-06-18", "2025-06-18"),
            ("2025-11-25", "2025-11-25"),
            ("2099-01-01", "2025-11-25"),
        ] {
            let params = format!(r#"{{"protocolVersion":"{asked}"}}"#);
            let answers = sent(&[&request("initialize", &params)]);
            assert_eq!(answers[0]["result"]["protocolVersion"], given);
        }
    }

    #[test]
    fn a_result_is_text_and_structured() {
        let answers = sent(&[&call("7", "add", "2", "3")]);
        let result = &answers[0]["result"];
        assert_eq!(result["content"][0]["text"], "5");
        assert_eq!(result["structuredContent"], json!({"result": 5}));
        assert_eq!(result["isError"], false);
    }

    #[test]
    fn an_older_host_gets_text_only() {
        let answers = sent(&[
            &request("initialize", r#"{"protocolVersion":"2025-03-26"}"#),
            &call("7", "add", "2", "3"),
            &request("tools/list", "{}"),
        ]);
        assert!(answers[1]["result"]["structuredContent"].is_null());
        assert!(answers[2]["result"]["tools"][0]["outputSchema"].is_null());
    }

    #[test]
    fn a_failure_of_the_tool_is_a_result() {
        for (line, said) in [
            (call("1", "divide", "1", "0"), "cannot divide by zero"),
            (call("1", "add", "\"x\"", "0"), "\"a\" must be a number"),
        ] {
            let result = &sent(&[&line])[0]["result"];
            assert_eq!(result["isError"], true);
            assert_eq!(result["content"][0]["text"], said);
        }
    }

    #[test]
    fn ids_come_back_as_they_were_spelled() {
        for id in ["\"\\u0031\"", "18446744073709551616", "1.0"] {
            let mut server = Server::new(10);
            let acts = server.handle(&call(id, "add", "1", "1"));
            let [Act::Send(text)] = acts.as_slice() else {
                panic!("{acts:?}");
            };
            assert!(text.contains(&format!("\"id\":{id},")), "{text}");
        }
    }

    #[test]
    fn a_subscriber_hears_of_each_result() {
        let uri = r#"{"uri":"calculator://last"}"#;
        let answers = sent(&[
            &request("resources/subscribe", uri),
            &call("2", "add", "2", "3"),
            &request("resources/read", uri),
            &request("resources/unsubscribe", uri),
            &call("3", "add", "2", "4"),
        ]);
        assert_eq!(answers[1]["method"], "notifications/resources/updated");
        assert_eq!(answers[3]["result"]["contents"][0]["text"], "5");
        assert_eq!(answers.len(), 6);
    }

    #[test]
    fn a_log_message_comes_when_asked_for() {
        let quiet = sent(&[
            &request("logging/setLevel", r#"{"level":"info"}"#),
            &call("2", "add", "2", "3"),
        ]);
        assert_eq!(quiet.len(), 2);
        let answers = sent(&[
            &request("logging/setLevel", r#"{"level":"debug"}"#),
            &call("2", "add", "2", "3"),
        ]);
        assert_eq!(answers[1]["method"], "notifications/message");
        assert_eq!(answers[1]["params"]["level"], "debug");
    }

    #[test]
    fn what_is_unknown_is_refused() {
        for (line, code) in [
            (request("fly", "{}"), -32601),
            (request("tools/call", r#"{"name":"fly"}"#), -32602),
            (request("resources/read", r#"{"uri":"x"}"#), -32002),
            (request("logging/setLevel", r#"{"level":"x"}"#), -32602),
            ("{".to_owned(), -32700),
            ("[]".to_owned(), -32600),
        ] {
            assert_eq!(sent(&[&line])[0]["error"]["code"], code, "{line}");
        }
    }

    #[test]
    fn notifications_and_answers_are_met_with_silence() {
        for line in [
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
        ] {
            assert!(sent(&[line]).is_empty(), "{line}");
        }
    }

    #[test]
    fn a_slow_call_keeps_id_and_token() {
        let mut server = Server::new(10);
        let line = r#"{"jsonrpc":"2.0","id":"s","method":"tools/call","params":{"name":"slow","arguments":{"seconds":0.5,"steps":2},"_meta":{"progressToken":1.0}}}"#;
        let acts = server.handle(line);
        let [Act::Begin(call)] = acts.as_slice() else {
            panic!("{acts:?}");
        };
        let progress: Value = serde_json::from_str(&call.progress(1).unwrap()).unwrap();
        assert_eq!(progress["params"]["progress"], 1);
        assert!(call.progress(1).unwrap().contains("\"progressToken\":1.0,"));
        let result: Value = serde_json::from_str(&call.result()).unwrap();
        assert_eq!(result["id"], "s");
        assert_eq!(
            result["result"]["content"][0]["text"],
            "slept 0.5 s in 2 steps"
        );
    }

    #[test]
    fn a_cancellation_names_its_call() {
        let mut server = Server::new(10);
        let line =
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"s"}}"#;
        let acts = server.handle(line);
        assert!(matches!(acts.as_slice(), [Act::Cancel(id)] if id == "\"s\""));
    }
}
