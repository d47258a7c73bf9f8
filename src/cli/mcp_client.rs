//! An ordinary MCP host of the legacy era, as small as a command needs it.
//!
//! One request at a time over an attachment. Answers `ping`, hands what else a server asks to an
//! [`Attendant`] if there is one, and cancels the open request when the user interrupts. Decides
//! nothing about tools.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signalfd::SignalFd;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::Context;
use super::attendant::{Answer, Attendant};
use super::client::{Client, McpStream};
use super::clock::Deadline;
use super::error::{CliError, Kind};
use super::escape::escape;
use super::interrupts::interrupts;
use super::output::complain;
use super::places::Places;
use super::start_daemon::{Wish, attach_or_start};
use super::status::{quote, render_line};
use crate::control::{Attach, Request, State, StatusSnapshot, Targets};

/// The newest version with a handshake.
const VERSION: &str = "2025-11-25";
/// The longest message that is taken: above any `message_limit` in use.
const LINE_LIMIT_BYTES: usize = 1 << 30;
/// Pages of a listing that are fetched before it is taken for endless.
const PAGE_LIMIT: usize = 200;

/// The token for the progress of a call, of which there is one at a time.
pub(crate) const PROGRESS_TOKEN: &str = "call";

/// How long nothing is said about a wait.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long the daemon has to take the word that a call is cancelled.
const FAREWELL: Duration = Duration::from_secs(1);

/// What ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Woken {
    Server,
    User,
    Nobody,
}

/// One attachment with its handshake done.
#[derive(Debug)]
pub(crate) struct McpClient {
    server: String,
    stream: UnixStream,
    /// What was read and belongs to no line yet.
    buffer: Vec<u8>,
    asked: u64,
    interrupts: SignalFd,
    /// Who answers for the user.
    attendant: Option<Box<dyn Attendant>>,
    /// Where to ask what a long wait is for; nowhere once that has been told.
    observed: Option<Places>,
}

/// A tool as a server lists it.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Tool {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) title: Option<String>,
    #[serde(default)]
    pub(crate) description: Option<String>,
    #[serde(default)]
    pub(crate) input_schema: Value,
    #[serde(default)]
    pub(crate) output_schema: Value,
    #[serde(default)]
    pub(crate) annotations: Value,
    /// All of it, as the server spelled it.
    #[serde(skip)]
    pub(crate) whole: Value,
}

/// What a message may hold that matters here.
#[derive(Debug, Deserialize)]
struct Incoming<'a> {
    #[serde(default)]
    id: Option<Value>,
    #[serde(default)]
    method: Option<String>,
    #[serde(default)]
    params: Option<Value>,
    #[serde(default, borrow)]
    result: Option<&'a RawValue>,
    #[serde(default)]
    error: Option<IncomingError>,
}

#[derive(Debug, Deserialize)]
struct IncomingError {
    #[serde(default)]
    code: i64,
    #[serde(default)]
    message: String,
    #[serde(default)]
    data: Option<Value>,
}

impl McpClient {
    /// Attaches to `server`, starting a daemon if none runs, and opens a session.
    pub(crate) fn open(
        context: &Context,
        by: &str,
        server: &str,
        attendant: Option<Box<dyn Attendant>>,
    ) -> Result<Self, CliError> {
        let directory = std::env::current_dir().ok();
        let attach = Attach {
            server: server.to_owned(),
            client: by.to_owned(),
            directory: directory.map(|path| path.to_string_lossy().into_owned()),
            journal: None,
        };
        let places = context.places()?;
        let stream = attach_or_start(context, &places, by, Wish::Start, |client| {
            client.attach(attach.clone(), &[])
        })?;
        Self::start(
            server,
            stream,
            attendant,
            Some(places).filter(|_| !context.output.quiet),
        )
    }

    fn start(
        server: &str,
        stream: McpStream,
        attendant: Option<Box<dyn Attendant>>,
        observed: Option<Places>,
    ) -> Result<Self, CliError> {
        let capabilities = attendant
            .as_ref()
            .map_or_else(|| json!({}), |attendant| attendant.capabilities());
        let mut client = Self {
            server: server.to_owned(),
            stream: stream.stream,
            buffer: stream.surplus,
            asked: 0,
            interrupts: interrupts()?,
            attendant,
            observed,
        };
        let params = json!({
            "protocolVersion": VERSION,
            "capabilities": capabilities,
            "clientInfo": {"name": "mcpd-cli", "version": env!("CARGO_PKG_VERSION")},
        });
        client.request("initialize", &params.to_string())?;
        client
            .send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string())?;
        Ok(client)
    }

    /// Asks and waits for the result, as the server spelled it. `params` is a JSON object.
    pub(crate) fn request(
        &mut self,
        method: &str,
        params: &str,
    ) -> Result<Box<RawValue>, CliError> {
        let result = self.exchange(method, params);
        if let Some(attendant) = &mut self.attendant {
            attendant.end();
        }
        result
    }

    fn exchange(&mut self, method: &str, params: &str) -> Result<Box<RawValue>, CliError> {
        self.asked += 1;
        let id = self.asked;
        self.send(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":{},"params":{params}}}"#,
            Value::from(method)
        ))?;
        loop {
            let line = self.next_line(id, method)?;
            // A line that cannot be read is not the answer we can wait for; the daemon has
            // checked that it is JSON.
            let Ok(incoming) = serde_json::from_slice::<Incoming<'_>>(&line) else {
                return Err(CliError::new(
                    Kind::Call,
                    "the server's message cannot be read",
                ));
            };
            match incoming {
                Incoming {
                    method: Some(asked),
                    id: Some(asked_id),
                    params,
                    ..
                } => {
                    let goes_on = self.answer(&asked, &asked_id, params.as_ref())?;
                    if !goes_on {
                        return Err(self.cancel(id, method));
                    }
                }
                Incoming {
                    method: Some(told),
                    params: Some(params),
                    ..
                } if told == "notifications/progress"
                    && params["progressToken"] == PROGRESS_TOKEN =>
                {
                    if let Some(attendant) = &mut self.attendant {
                        attendant.progress(&params);
                    }
                }
                Incoming {
                    id: Some(answered),
                    error: Some(error),
                    ..
                } if answered.as_u64() == Some(id) => return Err(self.failure(method, &error)),
                Incoming {
                    id: Some(answered),
                    result: Some(result),
                    ..
                } if answered.as_u64() == Some(id) => return Ok(result.to_owned()),
                _ => {}
            }
        }
    }

    /// All tools of the server, page by page.
    pub(crate) fn tools(&mut self) -> Result<Vec<Tool>, CliError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Page {
            #[serde(default)]
            tools: Vec<Value>,
            #[serde(default)]
            next_cursor: Option<String>,
        }
        let mut tools = Vec::new();
        let mut params = json!({});
        for _ in 0..PAGE_LIMIT {
            let result = self.request("tools/list", &params.to_string())?;
            let unreadable = |error| {
                let message = format!("the list of tools of {:?} cannot be read", self.server);
                CliError::new(Kind::Call, message).because(error)
            };
            let page: Page = serde_json::from_str(result.get()).map_err(unreadable)?;
            for whole in page.tools {
                let tool = Tool::deserialize(&whole).map_err(unreadable)?;
                tools.push(Tool { whole, ..tool });
            }
            match page.next_cursor {
                Some(cursor) => params = json!({"cursor": cursor}),
                None => return Ok(tools),
            }
        }
        let message = format!("the list of tools of {:?} does not end", self.server);
        Err(CliError::new(Kind::Call, message))
    }

    /// Answers what a server asks of its host. False if the user wants no more of it.
    fn answer(
        &mut self,
        method: &str,
        id: &Value,
        params: Option<&Value>,
    ) -> Result<bool, CliError> {
        let refusal = || {
            let text = format!("the command line does not offer {method}");
            Ok(Answer::Error(-32601, text))
        };
        let answer = match (method, &mut self.attendant) {
            ("ping", _) => Ok(Answer::Result(json!({}))),
            (_, Some(attendant)) => {
                attendant.answer(method, params.unwrap_or(&Value::Null), &self.interrupts)
            }
            (_, None) => refusal(),
        };
        let line = match answer? {
            Answer::Result(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
            Answer::Error(code, message) => json!({"jsonrpc": "2.0", "id": id, "error": {
                "code": code, "message": message,
            }}),
            Answer::Interrupted => return Ok(false),
        };
        self.send(&line.to_string())?;
        Ok(true)
    }

    fn failure(&self, method: &str, error: &IncomingError) -> CliError {
        let IncomingError {
            code,
            message,
            data,
        } = error;
        let server = &self.server;
        let detail = data.as_ref().and_then(|data| data.get("detail"));
        let detail = detail.filter(|detail| detail.as_str() != Some(message));
        if *code > -31000 || *code <= -32000 {
            let told = format!("{server} answered {method} with an error: {message} ({code})");
            let failure = CliError::new(Kind::Call, told);
            let fact = detail.map(|detail| match detail {
                Value::String(text) => escape(text),
                other => escape(&other.to_string()),
            });
            return fact.into_iter().fold(failure, CliError::fact);
        }
        // The server said nothing of the kind: mcpd did, in its stead.
        let told = match message.contains(server.as_str()) {
            true => format!("{message} ({code})"),
            false => format!("{server}: {message} ({code})"),
        };
        let failure = CliError::new(Kind::Call, told);
        let failure = detail
            .map_or(Vec::new(), facts)
            .into_iter()
            .fold(failure, CliError::fact);
        let remedy = detail.and_then(|detail| detail.get("hint")?.as_str());
        remedy
            .map(escape)
            .into_iter()
            .chain([format!("`mcpd status {server}` tells more")])
            .fold(failure, CliError::hint)
    }

    fn send(&mut self, message: &str) -> Result<(), CliError> {
        let line = format!("{message}\n");
        self.stream.write_all(line.as_bytes()).map_err(|error| {
            CliError::unreachable("the daemon closed the connection").because(error)
        })
    }

    /// The next line of the server, while `request` waits for its answer.
    fn next_line(&mut self, id: u64, method: &str) -> Result<Vec<u8>, CliError> {
        let mut scanned = 0;
        let mut chunk = vec![0; 64 << 10];
        loop {
            if let Some(at) = memchr::memchr(b'\n', &self.buffer[scanned..]) {
                let rest = self.buffer.split_off(scanned + at + 1);
                return Ok(std::mem::replace(&mut self.buffer, rest));
            }
            scanned = self.buffer.len();
            if scanned > LINE_LIMIT_BYTES {
                return Err(CliError::new(
                    Kind::Call,
                    "the server's message is too long",
                ));
            }
            let patience = self.observed.is_some().then_some(PATIENCE);
            match self.wait(patience)? {
                Woken::Server => {}
                Woken::User => return Err(self.cancel(id, method)),
                Woken::Nobody => {
                    self.explain_wait();
                    continue;
                }
            }
            match self.stream.read(&mut chunk) {
                Ok(0) => {
                    let message = format!("the daemon ended before {method} was answered");
                    return Err(CliError::unreachable(message));
                }
                Ok(count) => self.buffer.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    return Err(CliError::unreachable("the connection broke").because(error));
                }
            }
        }
    }

    /// Says once what the server does meanwhile, unless it is simply at work.
    fn explain_wait(&mut self) {
        let Some(places) = self.observed.take() else {
            return;
        };
        let request = Request::Status(Targets {
            names: vec![self.server.clone()],
        });
        // A wait that cannot be explained is waited all the same.
        let answer = Client::connect(&places)
            .map_err(CliError::from)
            .and_then(|mut client| client.ask::<StatusSnapshot>(&request, PATIENCE));
        let servers = answer.map_or(Vec::new(), |snapshot| snapshot.servers);
        let down = servers.iter().find(|server| server.state != State::Running);
        if let Some(server) = down {
            complain(&format!("waiting for {}\n", render_line(server)));
        }
    }

    /// Waits for the server or for the user, at most `patience` if there is any.
    fn wait(&self, patience: Option<Duration>) -> Result<Woken, CliError> {
        let timeout = patience.and_then(|patience| PollTimeout::try_from(patience).ok());
        let mut polled = [
            PollFd::new(self.stream.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.interrupts.as_fd(), PollFlags::POLLIN),
        ];
        loop {
            match poll(&mut polled, timeout.unwrap_or(PollTimeout::NONE)) {
                Ok(0) => return Ok(Woken::Nobody),
                Ok(_) => break,
                Err(Errno::EINTR) => {}
                Err(error) => return Err(CliError::internal("cannot wait").because(error)),
            }
        }
        Ok(match polled[1].any() {
            Some(true) => Woken::User,
            _ => Woken::Server,
        })
    }

    /// Withdraws the open request, and waits shortly until the daemon has taken the word: it ends
    /// the attachment when nothing is due any more. `initialize` must not be cancelled (MCP,
    /// cancellation).
    fn cancel(&mut self, id: u64, method: &str) -> CliError {
        if method != "initialize" {
            let notice = json!({
                "jsonrpc": "2.0",
                "method": "notifications/cancelled",
                "params": {"requestId": id, "reason": "interrupted by the user"},
            });
            // A connection that has ended cancels too.
            let told = self.send(&notice.to_string()).is_ok();
            if told && self.stream.shutdown(std::net::Shutdown::Write).is_ok() {
                self.wait_for_farewell();
            }
        }
        CliError::new(Kind::Interrupted, "interrupted")
    }

    fn wait_for_farewell(&mut self) {
        let deadline = Deadline::after(FAREWELL);
        let mut nothing = [0; 4096];
        loop {
            let left = deadline.left();
            if left.is_zero() || self.stream.set_read_timeout(Some(left)).is_err() {
                return;
            }
            match self.stream.read(&mut nothing) {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    }
}

/// What the `data.detail` of the daemon's own errors tells a person beside what to do: the command
/// that was tried and the last lines of stderr, which the message does not say.
fn facts(detail: &Value) -> Vec<String> {
    let texts = |name: &str| {
        let list = detail.get(name).and_then(Value::as_array);
        let texts = list.into_iter().flatten().filter_map(Value::as_str);
        texts.map(str::to_owned).collect::<Vec<_>>()
    };
    let command: Vec<String> = texts("command").iter().map(|word| quote(word)).collect();
    let command = (!command.is_empty()).then(|| format!("command: {}", command.join(" ")));
    let said = texts("stderr").into_iter();
    command
        .into_iter()
        .chain(said.map(|line| format!("stderr: {}", escape(&line))))
        .collect()
}

#[cfg(test)]
mod tests {
    use crate::control::Attached;
    use std::io::{BufRead, BufReader};

    use super::*;

    /// Runs `act` against a server that answers each message by `serve`; gives what was sent.
    fn check<T>(
        serve: impl Fn(&Value) -> Vec<Value> + Send + 'static,
        act: impl FnOnce(&mut McpClient) -> Result<T, CliError>,
    ) -> (Result<T, CliError>, Vec<Value>) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let server = std::thread::spawn(move || {
            let mut out = theirs.try_clone().unwrap();
            let mut seen = Vec::new();
            for line in BufReader::new(theirs).lines() {
                let message: Value = serde_json::from_str(&line.unwrap()).unwrap();
                for answer in serve(&message) {
                    out.write_all(format!("{answer}\n").as_bytes()).unwrap();
                }
                seen.push(message);
            }
            seen
        });
        let stream = McpStream {
            stream: ours,
            surplus: Vec::new(),
            process: None,
            attached: Attached::default(),
        };
        let mut client = McpClient::start("calc", stream, None, None).unwrap();
        let result = act(&mut client);
        drop(client);
        (result, server.join().unwrap())
    }

    fn answer(message: &Value, result: Value) -> Vec<Value> {
        let id = &message["id"];
        vec![json!({"jsonrpc": "2.0", "id": id, "result": result})]
    }

    #[test]
    fn a_session_is_opened_and_listings_are_followed_to_their_end() {
        let serve = |message: &Value| match message["method"].as_str() {
            Some("tools/list") if message["params"]["cursor"].is_null() => answer(
                message,
                json!({"tools": [{"name": "a"}], "nextCursor": "2"}),
            ),
            Some("tools/list") => answer(message, json!({"tools": [{"name": "b"}]})),
            Some("initialize") => answer(message, json!({})),
            _ => Vec::new(),
        };
        let (tools, seen) = check(serve, McpClient::tools);
        let names: Vec<String> = tools.unwrap().into_iter().map(|tool| tool.name).collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(seen[0]["params"]["clientInfo"]["name"], "mcpd-cli");
        assert_eq!(seen[1]["method"], "notifications/initialized");
    }

    #[test]
    fn what_a_server_asks_is_answered_while_we_wait() {
        let serve = |message: &Value| match message["method"].as_str() {
            Some("tools/call") => vec![
                json!({"jsonrpc": "2.0", "id": "p", "method": "ping"}),
                json!({"jsonrpc": "2.0", "id": 1, "method": "roots/list"}),
                json!({"jsonrpc": "2.0", "id": message["id"], "result": {"ok": true}}),
            ],
            Some("initialize") => answer(message, json!({})),
            _ => Vec::new(),
        };
        let (result, seen) = check(serve, |client| client.request("tools/call", "{}"));
        assert_eq!(result.unwrap().get(), r#"{"ok":true}"#);
        assert_eq!(seen[3], json!({"jsonrpc": "2.0", "id": "p", "result": {}}));
        assert_eq!(seen[4]["error"]["code"], -32601);
    }

    #[test]
    fn an_error_is_told_with_its_detail() {
        let serve = |message: &Value| match message["method"].as_str() {
            Some("initialize") => answer(message, json!({})),
            Some("tools/call") => vec![json!({"jsonrpc": "2.0", "id": message["id"], "error": {
                "code": -31000, "message": "calc cannot run", "data": {"detail": {
                    "command": ["x", "a b"], "stderr": ["no\u{1b}such file"],
                    "hint": "write it", "more": "mcpd status calc",
                }},
            }})],
            _ => Vec::new(),
        };
        let (result, _) = check(serve, |client| client.request("tools/call", "{}"));
        let error = result.unwrap_err();
        assert_eq!(error.kind, Kind::Call);
        assert_eq!(
            error.render(),
            "error: calc cannot run (-31000)\ncommand: x 'a b'\nstderr: no\\esuch file\n\
             hint: write it\nhint: `mcpd status calc` tells more\n"
        );
    }
}
