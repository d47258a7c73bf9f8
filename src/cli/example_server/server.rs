//! The example server without its streams: one line in, what to do about it out.
//!
//! Speaks both eras of MCP, request by request: what is the same in both is here, what only the
//! modern one has in `modern`. Decides every answer but that of a slow call, which is given when its
//! time has passed.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::arithmetic::{Operation, render_number};
use super::modern;
use super::reply::{Reply, refusal, tool_text};
use crate::protocol::Version;

/// The resource that holds the last result.
pub(super) const LAST: &str = "calculator://last";
/// The most users that are asked at once.
const ASKED_LIMIT: usize = 32;
/// The longest a slow call takes.
const SECONDS_LIMIT: f64 = 3600.0;
/// The most steps a slow call takes.
const STEPS_LIMIT: u64 = 1000;
/// The levels of a log message, the most verbose first (MCP, logging).
pub(super) const LEVELS: [&str; 8] = [
    "debug",
    "info",
    "notice",
    "warning",
    "error",
    "critical",
    "alert",
    "emergency",
];

/// The tool that asks the user something.
pub(super) const GREET: &str = "greet";
pub(super) const INSTRUCTIONS: &str = "Calculates with two numbers at a time. The resource \
                                       calculator://last holds the last result.";

/// What the server offers, in both eras.
pub(super) fn capabilities() -> Value {
    json!({
        "tools": {},
        "resources": {"subscribe": true},
        "logging": {},
    })
}

pub(super) fn server_info() -> Value {
    json!({"name": "calculator", "version": env!("CARGO_PKG_VERSION")})
}

/// What the user is asked, as the params of `elicitation/create`.
pub(super) fn question() -> Value {
    json!({
        "message": "What is your name?",
        "requestedSchema": {
            "type": "object",
            "properties": {"name": {"type": "string", "title": "Your name"}},
            "required": ["name"],
        },
    })
}

/// The result of `greet` for what the user answered.
pub(super) fn greeting(answer: &Value) -> String {
    match (
        answer["action"].as_str(),
        answer["content"]["name"].as_str(),
    ) {
        (Some("accept"), Some(name)) => tool_text(&format!("hello, {name}"), false),
        (Some("decline" | "cancel"), _) => tool_text("hello, whoever you are", false),
        _ => tool_text("the answer could not be read", true),
    }
}

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
    /// How its request is answered.
    pub(super) reply: Reply,
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
        self.reply.result(&tool_text(&text, false))
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
    #[serde(default)]
    result: Value,
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
pub(super) struct Refusal {
    pub(super) code: i64,
    pub(super) message: String,
}

impl Refusal {
    pub(super) fn params(message: impl Into<String>) -> Self {
        let message = message.into();
        Self {
            code: -32602,
            message,
        }
    }
}

/// One host.
#[derive(Debug)]
pub(super) struct Server {
    precision: usize,
    version: Version,
    /// The last result; nothing has been calculated yet without one.
    last: Option<String>,
    subscribed: bool,
    /// Listen streams of a modern host that carry the resource, by their ids as they were spelled.
    pub(super) listens: Vec<String>,
    /// The least severe level that the host wants to hear, once it has said so: of a session, or of
    /// the modern request at hand.
    pub(super) level: Option<usize>,
    /// Whether the host of the session can ask its user something.
    can_ask: bool,
    last_asked: u64,
    /// Calls that wait for the user, by the id of our question.
    asked: BTreeMap<u64, Reply>,
}

impl Server {
    pub(super) fn new(precision: usize) -> Self {
        Self {
            precision,
            version: Version::NEWEST,
            last: None,
            subscribed: false,
            listens: Vec::new(),
            level: None,
            can_ask: false,
            last_asked: 0,
            asked: BTreeMap::new(),
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
            (Some(method), None) => self.handle_notification(&method, line),
            (None, Some(id)) => self.handle_answer(id.get(), &incoming.result),
            (None, None) => Vec::new(),
        }
    }

    fn handle_notification(&mut self, method: &str, line: &str) -> Vec<Act> {
        let tokens: Tokens<'_> = serde_json::from_str(line).unwrap_or_default();
        match (method, tokens.params.request_id) {
            ("notifications/cancelled", Some(id)) => {
                self.listens.retain(|listen| listen != id.get());
                self.asked.retain(|_, reply| reply.id() != id.get());
                vec![Act::Cancel(id.get().to_owned())]
            }
            _ => Vec::new(),
        }
    }

    /// The user has answered; an answer to nothing that we asked means nothing.
    fn handle_answer(&mut self, id: &str, answer: &Value) -> Vec<Act> {
        let reply = id.parse().ok().and_then(|id| self.asked.remove(&id));
        let greeted = reply.map(|reply| reply.result(&greeting(answer)));
        greeted.map(Act::Send).into_iter().collect()
    }

    fn handle_request(&mut self, method: &str, id: &str, params: &Value, line: &str) -> Vec<Act> {
        if !params["_meta"][modern::VERSION_KEY].is_null() {
            return self.handle_modern(method, id, params, line);
        }
        let reply = Reply::legacy(id);
        let answer = match method {
            "initialize" => Ok(self.initialize(params)),
            "ping" => Ok(json!({})),
            "tools/list" => Ok(json!({"tools": self.tools()})),
            "tools/call" if params["name"] == GREET => return self.ask_user(reply),
            "tools/call" => return self.call(&reply, params, line),
            "resources/list" => Ok(json!({"resources": [Self::resource()]})),
            "resources/templates/list" => Ok(json!({"resourceTemplates": []})),
            // The code of the legacy revisions (MCP 2025-11-25, resources, error handling).
            "resources/read" => self.read(params, -32002),
            "resources/subscribe" => self.subscribe(params, true),
            "resources/unsubscribe" => self.subscribe(params, false),
            "logging/setLevel" => self.set_level(params),
            other => Err(Refusal {
                code: -32601,
                message: format!("unknown method {other}"),
            }),
        };
        vec![Act::Send(reply.answered(answer))]
    }

    fn initialize(&mut self, params: &Value) -> Value {
        let asked = params["protocolVersion"].as_str().unwrap_or_default();
        self.version = Version::parse(asked).unwrap_or(Version::NEWEST);
        self.can_ask = params["capabilities"]["elicitation"].is_object();
        json!({
            "protocolVersion": self.version.as_str(),
            "capabilities": capabilities(),
            "serverInfo": server_info(),
            "instructions": INSTRUCTIONS,
        })
    }

    /// Asks the user of a session who they are; the call waits for the answer.
    fn ask_user(&mut self, reply: Reply) -> Vec<Act> {
        if !self.can_ask {
            let why = "this host cannot ask its user anything";
            return vec![Act::Send(reply.result(&tool_text(why, true)))];
        }
        if self.asked.len() >= ASKED_LIMIT {
            let why = "too many users are asked at once";
            return vec![Act::Send(reply.result(&tool_text(why, true)))];
        }
        self.last_asked += 1;
        self.asked.insert(self.last_asked, reply);
        let question = json!({
            "jsonrpc": "2.0",
            "id": self.last_asked,
            "method": "elicitation/create",
            "params": question(),
        });
        vec![Act::Send(question.to_string())]
    }

    /// Whether the host knows structured results.
    fn is_structured(&self) -> bool {
        self.version >= Version::V2025_06_18
    }

    pub(super) fn tools(&self) -> Vec<Value> {
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
        tools.push(json!({
            "name": GREET,
            "description": "Ask the user for a name, and greet them",
            "inputSchema": {"type": "object", "properties": {}},
        }));
        tools
    }

    pub(super) fn call(&mut self, reply: &Reply, params: &Value, line: &str) -> Vec<Act> {
        let arguments = &params["arguments"];
        let name = params["name"].as_str().unwrap_or_default();
        if name == "slow" {
            return vec![match slow_call(reply, arguments, line) {
                Ok(call) => Act::Begin(call),
                Err(why) => Act::Send(reply.result(&tool_text(&why, true))),
            }];
        }
        let known = Operation::ALL.into_iter().find(|one| one.name() == name);
        let Some(operation) = known else {
            let refused = Refusal::params(format!("unknown tool {name:?}"));
            return vec![Act::Send(reply.answered(Err(refused)))];
        };
        let outcome = number(arguments, "a")
            .and_then(|a| Ok((a, number(arguments, "b")?)))
            .and_then(|(a, b)| operation.apply(a, b).map_err(str::to_owned));
        match outcome {
            Ok(value) => self.calculated(reply, operation, arguments, value),
            Err(why) => vec![Act::Send(reply.result(&tool_text(&why, true)))],
        }
    }

    /// The answer to a calculation, and the news of it for whoever asked to be told.
    fn calculated(
        &mut self,
        reply: &Reply,
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
        for listen in &self.listens {
            acts.push(Act::Send(modern::updated(listen)));
        }
        acts.push(Act::Send(reply.result(&answer)));
        acts
    }

    pub(super) fn resource() -> Value {
        json!({
            "uri": LAST,
            "name": "last",
            "description": "The last result",
            "mimeType": "text/plain",
        })
    }

    /// The resource, or the error of this code that it is unknown.
    pub(super) fn read(&self, params: &Value, unknown: i64) -> Result<Value, Refusal> {
        known_uri(params, unknown)?;
        let text = self
            .last
            .as_deref()
            .unwrap_or("nothing has been calculated yet");
        Ok(json!({"contents": [{"uri": LAST, "mimeType": "text/plain", "text": text}]}))
    }

    fn subscribe(&mut self, params: &Value, wanted: bool) -> Result<Value, Refusal> {
        known_uri(params, -32002)?;
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

fn known_uri(params: &Value, unknown: i64) -> Result<(), Refusal> {
    let uri = params["uri"].as_str().unwrap_or_default();
    if uri == LAST {
        return Ok(());
    }
    Err(Refusal {
        code: unknown,
        message: format!("no resource {uri:?}"),
    })
}

fn number(arguments: &Value, name: &str) -> Result<f64, String> {
    arguments[name]
        .as_f64()
        .ok_or_else(|| format!("{name:?} must be a number"))
}

fn slow_call(reply: &Reply, arguments: &Value, line: &str) -> Result<SlowCall, String> {
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
        reply: reply.clone(),
        token: token.map(|token| token.get().to_owned()),
        seconds,
        steps,
    })
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
    fn a_session_that_can_ask_its_user_is_asked() {
        let hello = request(
            "initialize",
            r#"{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{}}}"#,
        );
        let greet = request("tools/call", r#"{"name":"greet"}"#);
        let answers = sent(&[
            &hello,
            &greet,
            r#"{"jsonrpc":"2.0","id":1,"result":{"action":"accept","content":{"name":"Ada"}}}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{"action":"cancel"}}"#,
        ]);
        assert_eq!(answers[1]["method"], "elicitation/create");
        assert_eq!(answers[2]["result"]["content"][0]["text"], "hello, Ada");
        assert_eq!(answers.len(), 3, "the second answer is to nothing");
        let answers = sent(&[
            &hello,
            &greet,
            r#"{"id":1,"error":{"code":1,"message":""}}"#,
        ]);
        assert_eq!(answers[2]["result"]["isError"], true);
        assert_eq!(sent(&[&greet])[0]["result"]["isError"], true);
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
