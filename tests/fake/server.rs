//! The fake server itself: starting, the message loop, the handshake, the lists and the end.
//!
//! It plays the faults of the process and of the handshake. What a call does wrong is in `tools`.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{self, ExitCode};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use nix::fcntl::{Flock, FlockArg};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::options::Options;
use crate::output::Output;
use crate::record::Record;
use crate::signals::{self, Obey};
use crate::tools::{self, Call};
use crate::{eras, linger, pause, tree};

/// Speaks every legacy version, the newest preferred.
const VERSIONS: &str = "2025-11-25,2025-06-18,2025-03-26,2024-11-05";

const CAPABILITIES: &str = r#"{"tools":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true},"prompts":{"listChanged":true},"logging":{},"completions":{}}"#;

/// The envelope of what was read; everything inside stays as it came.
#[derive(Debug, Deserialize)]
struct Envelope<'l> {
    #[serde(borrow)]
    id: Option<&'l RawValue>,
    #[serde(borrow)]
    method: Option<Cow<'l, str>>,
    #[serde(borrow)]
    params: Option<&'l RawValue>,
    #[serde(borrow)]
    result: Option<&'l RawValue>,
    #[serde(borrow)]
    error: Option<&'l RawValue>,
}

/// What the threads of slow calls share with the message loop.
#[derive(Debug, Default)]
struct Shared {
    initializes: u32,
    initialized: u32,
    discoveries: u32,
    /// The id of a discovery that was not answered yet.
    open_discovery: Option<String>,
    is_modern: bool,
    calls_answered: u64,
    running: u64,
    cancelled: HashSet<String>,
    /// Answers of the client to our own requests, by id.
    answers: HashMap<String, String>,
    next_own_id: u64,
}

/// One running fake server.
pub(crate) struct Server {
    pub(crate) options: Options,
    pub(crate) record: Record,
    pub(crate) output: Output,
    /// `/proc/self/status` as it was before any signal was blocked.
    pub(crate) status_at_start: String,
    /// The tools offered: all, or those of the toolset.
    toolset: Option<String>,
    shared: Mutex<Shared>,
    changed: Condvar,
}

/// Runs until the end of input, or longer where a switch says so.
pub(crate) fn serve(options: Options) -> ExitCode {
    let status_at_start = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let record = Record::open(options.text("--record"));
    let (ignore_term, ignore_int) = (options.has("--ignore-term"), options.has("--ignore-int"));
    signals::take_over(
        record.clone(),
        Box::new(move |signal| match signal {
            signals::Signal::SIGTERM if ignore_term => Obey::No,
            signals::Signal::SIGINT if ignore_int => Obey::No,
            _ => Obey::Yes,
        }),
    );
    record.add("START", tree::describe_process().as_bytes());
    if let Some(code) = start(&options, &record) {
        return code;
    }
    let _lock = match options.text("--lock").map(take_lock) {
        Some(None) => {
            write_stderr(b"the resource is locked by another copy\n");
            return ExitCode::from(1);
        }
        Some(lock) => lock,
        None => None,
    };
    let toolset = options
        .text("--toolset")
        .map(|path| fs::read_to_string(path).unwrap_or_default());
    let server = Arc::new(Server {
        output: Output::new(options.has("--spin-on-epipe")),
        options,
        record,
        status_at_start,
        toolset,
        shared: Mutex::new(Shared::default()),
        changed: Condvar::new(),
    });
    server.write_banner();
    if let Some(delay_ms) = server.options.number("--ready-after") {
        pause(Duration::from_millis(delay_ms));
    }
    if server.options.has("--read-late") {
        eras::wait_for_second_write();
    }
    server.read_messages();
    server.end_of_input()
}

/// What happens before anything is written to stdout; a code ends the process.
fn start(options: &Options, record: &Record) -> Option<ExitCode> {
    for text in options.all("--stderr") {
        write_stderr(format!("{text}\n").as_bytes());
    }
    if let Some(bytes) = options.number("--stderr-bytes") {
        write_stderr_lines(bytes);
    }
    if let Some(ms) = options.number("--chatter") {
        std::thread::spawn(move || {
            loop {
                write_stderr(b"still at it\n");
                pause(Duration::from_millis(ms));
            }
        });
    }
    for kind in options.all("--grandchild") {
        tree::start_grandchild(kind, options.text("--record"));
    }
    if let Some(name) = options.text("--die-of") {
        signals::die_of(signals::named(name));
    }
    if let Some(code) = options.number("--exit") {
        return Some(ExitCode::from(u8::try_from(code).expect("an exit code")));
    }
    if let Some(question) = options.text("--ask-first") {
        write_stderr(question.as_bytes());
        let mut answer = String::new();
        io::stdin().lock().read_line(&mut answer).ok();
        record.add("ANSWER", answer.trim_end().as_bytes());
    }
    None
}

fn take_lock(path: &str) -> Option<Flock<fs::File>> {
    let file = fs::File::options()
        .create(true)
        .append(true)
        .open(path)
        .expect("the lock file opens");
    Flock::lock(file, FlockArg::LockExclusiveNonblock).ok()
}

pub(crate) fn write_stderr(bytes: &[u8]) {
    io::stderr().write_all(bytes).ok();
}

/// Writes this many bytes as numbered lines.
pub(crate) fn write_stderr_lines(bytes: u64) {
    let mut written = 0;
    let mut number = 0_u64;
    while written < bytes {
        let line = format!("stderr line {number:010} {}\n", ".".repeat(70));
        write_stderr(line.as_bytes());
        written += line.len() as u64;
        number += 1;
    }
}

impl Server {
    fn write_banner(&self) {
        let lines = self.options.number("--banner-lines").unwrap_or(1);
        for kind in self.options.all("--banner") {
            for _ in 0..lines {
                self.output.noise(kind);
            }
        }
    }

    fn read_messages(self: &Arc<Self>) {
        let mut input =
            BufReader::with_capacity(256 * 1024, SlowStdin(self.options.has("--read-slowly")));
        let mut line = Vec::new();
        loop {
            line.clear();
            match input.read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => return,
                Ok(_) => self.handle_line(&line),
            }
        }
    }

    fn handle_line(self: &Arc<Self>, line: &[u8]) {
        let text = line.strip_suffix(b"\n").unwrap_or(line);
        if text.ends_with(b"\r") && self.options.has("--exit-on-cr") {
            process::exit(7);
        }
        self.record.add("IN", text);
        let Ok(envelope) = serde_json::from_slice::<Envelope<'_>>(text) else {
            self.output.line(
                r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"not a message"}}"#,
            );
            return;
        };
        match (envelope.id, envelope.method.as_deref()) {
            (Some(id), Some(method)) => self.handle_request(id.get(), method, envelope.params),
            (None, Some(method)) => self.handle_notification(method, envelope.params),
            (Some(id), None) => self.handle_answer(id.get(), envelope.result.or(envelope.error)),
            (None, None) => {}
        }
    }

    fn handle_request(self: &Arc<Self>, id: &str, method: &str, params: Option<&RawValue>) {
        if self.options.has("--strict-opening")
            && method != "ping"
            && method != "initialize"
            && self.lock().initializes == 0
        {
            process::exit(8);
        }
        if self.options.has("--strict-ids") && !is_small_integer(id) {
            self.error(id, -32600, "ids must be integers from 1 to 2^31");
            return;
        }
        let params = params.map_or("{}", RawValue::get);
        match method {
            "server/discover" => eras::discovered(self, id),
            "subscriptions/listen" if self.is_modern() => eras::acknowledge(self, id, params),
            "initialize" if eras::refuses_initialize(self, id) => {}
            "initialize" => self.handle_initialize(id, params),
            "ping" if self.options.has("--drop-ping") => {}
            "ping" => self.result(id, "{}"),
            "logging/setLevel" if self.options.has("--refuse-level") => self.error(id, -32601, "Method not found"),
            "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe" => self.result(id, "{}"),
            "tools/list" => self.list_tools(id, params),
            "tools/call" => self.handle_call(id, params),
            "resources/list" => self.result(id, r#"{"resources":[{"uri":"fake://one","name":"one"},{"uri":"fake://two","name":"two"}]}"#),
            "resources/templates/list" => self.result(id, r#"{"resourceTemplates":[]}"#),
            "resources/read" => self.result(id, r#"{"contents":[{"uri":"fake://one","text":"one"}]}"#),
            "prompts/list" => self.result(id, r#"{"prompts":[{"name":"greet"}]}"#),
            "prompts/get" => self.result(id, r#"{"messages":[{"role":"user","content":{"type":"text","text":"hello"}}]}"#),
            "completion/complete" => self.result(id, r#"{"completion":{"values":["one"]}}"#),
            _ => self.error(id, -32601, "Method not found"),
        }
    }

    fn handle_initialize(self: &Arc<Self>, id: &str, params: &str) {
        let count = {
            let mut shared = self.lock();
            shared.initializes += 1;
            shared.initializes
        };
        if count > 1 && self.options.has("--once") {
            process::exit(9);
        }
        let (id, params) = (id.to_owned(), params.to_owned());
        match self.options.number("--initialize-after") {
            Some(delay_ms) => {
                let server = Arc::clone(self);
                thread::spawn(move || {
                    pause(Duration::from_millis(delay_ms));
                    server.answer_initialize(&id, &params);
                });
            }
            None => self.answer_initialize(&id, &params),
        }
    }

    fn answer_initialize(&self, id: &str, params: &str) {
        let asked = serde_json::from_str::<serde_json::Value>(params)
            .ok()
            .and_then(|params| params["protocolVersion"].as_str().map(str::to_owned))
            .unwrap_or_default();
        let spoken: Vec<&str> = self
            .options
            .text("--versions")
            .unwrap_or(VERSIONS)
            .split(',')
            .collect();
        let version = spoken
            .iter()
            .find(|version| **version == asked)
            .unwrap_or(&spoken[0]);
        let capabilities = self.options.text("--capabilities").unwrap_or(CAPABILITIES);
        let result = format!(
            r#"{{"protocolVersion":"{version}","capabilities":{capabilities},"serverInfo":{{"name":"fake","version":"1.0"}},"instructions":"pid {}"}}"#,
            process::id()
        );
        if self.options.has("--notify-first") {
            for _ in 0..4 {
                self.notify("notifications/tools/list_changed", "{}");
            }
            self.notify(
                "notifications/message",
                r#"{"level":"error","data":"too early"}"#,
            );
        }
        match self.options.text("--initialize") {
            None => self.result(id, &result),
            Some("none") => {}
            Some("error") => self.error(id, -32603, "the licence has expired"),
            Some("unsupported") => self.result(id, &result.replace(version, "2099-01-01")),
            Some("garbage") => self.result(id, "[1,2,3]"),
            Some("content-length") => self.output.reply("content-length", id, &result),
            Some("twice") => {
                self.result(id, &result);
                self.result(id, &result.replace("\"fake\"", "\"impostor\""));
            }
            Some("exit") => process::exit(5),
            Some(other) => panic!("unknown --initialize {other}"),
        }
        eras::after_initialize(self);
    }

    /// Notes a discovery, and says which one it is.
    pub(crate) fn count_discovery(&self, id: &str) -> u32 {
        let mut shared = self.lock();
        shared.open_discovery = Some(id.to_owned());
        shared.discoveries += 1;
        shared.discoveries
    }

    /// The discovery that was not answered yet.
    pub(crate) fn take_discovery(&self) -> Option<String> {
        self.lock().open_discovery.take()
    }

    /// Speaks the modern era from now on, if no session was opened.
    pub(crate) fn become_modern(&self) {
        let mut shared = self.lock();
        shared.is_modern = shared.initializes == 0;
    }

    fn is_modern(&self) -> bool {
        self.lock().is_modern
    }

    fn handle_notification(self: &Arc<Self>, method: &str, params: Option<&RawValue>) {
        match method {
            "notifications/initialized" => self.handle_initialized(),
            "notifications/cancelled" => {
                let id = params
                    .and_then(|params| serde_json::from_str::<serde_json::Value>(params.get()).ok())
                    .map(|params| params["requestId"].to_string());
                self.lock().cancelled.extend(id);
                self.changed.notify_all();
            }
            _ => {}
        }
    }

    fn handle_initialized(self: &Arc<Self>) {
        let count = {
            let mut shared = self.lock();
            shared.initialized += 1;
            shared.initialized
        };
        if count > 1 && self.options.has("--once") {
            process::exit(9);
        }
        if let Some(delay_ms) = self.options.number("--exit-after") {
            thread::spawn(move || {
                pause(Duration::from_millis(delay_ms));
                process::exit(1);
            });
        }
        let null = fs::File::options()
            .read(true)
            .write(true)
            .open("/dev/null")
            .expect("/dev/null opens");
        if self.options.has("--close-stdout") {
            nix::unistd::dup2_stdout(&null).expect("stdout can be replaced");
            linger();
        }
        if self.options.has("--close-stdin") {
            nix::unistd::dup2_stdin(&null).expect("stdin can be replaced");
            linger();
        }
        if self.options.has("--stop-reading") {
            linger();
        }
    }

    fn handle_answer(&self, id: &str, answer: Option<&RawValue>) {
        let answer = answer.map_or("null", RawValue::get).to_owned();
        self.lock().answers.insert(id.to_owned(), answer);
        self.changed.notify_all();
    }

    fn list_tools(&self, id: &str, params: &str) {
        let offered: Vec<String> = tools::TOOLS
            .iter()
            .filter(|tool| self.offers(tool.name))
            .map(|tool| {
                format!(
                    r#"{{"name":"{}","description":"{}","inputSchema":{{"type":"object"}}}}"#,
                    tool.name, tool.help
                )
            })
            .collect();
        let page = self
            .options
            .number("--page")
            .map_or(offered.len(), |page| page as usize);
        let from = serde_json::from_str::<serde_json::Value>(params)
            .ok()
            .and_then(|params| {
                params["cursor"]
                    .as_str()
                    .and_then(|cursor| cursor.parse::<usize>().ok())
            })
            .unwrap_or(0);
        let until = (from + page).min(offered.len());
        let cursor = if until < offered.len() {
            format!(r#","nextCursor":"{until}""#)
        } else {
            String::new()
        };
        self.result(
            id,
            &format!(
                r#"{{"tools":[{}]{cursor}}}"#,
                offered[from.min(until)..until].join(",")
            ),
        );
    }

    fn offers(&self, tool: &str) -> bool {
        match self.toolset.as_deref().map(str::trim) {
            None => true,
            Some("v2") => tool == "echo" || tool == "sum",
            Some(_) => tool == "echo",
        }
    }

    fn handle_call(self: &Arc<Self>, id: &str, params: &str) {
        if self.options.has("--die-on-call") {
            signals::die_of(signals::Signal::SIGKILL);
        }
        let call = match Call::parse(id, params) {
            Ok(call) => call,
            Err(problem) => return self.error(id, -32602, &problem),
        };
        let Some(tool) = tools::TOOLS
            .iter()
            .find(|tool| tool.name == call.name && self.offers(tool.name))
        else {
            return self.error(id, -32602, "Unknown tool");
        };
        let overlaps = self.enter() > 1 && self.options.has("--refuse-overlap");
        if tool.slow {
            let server = Arc::clone(self);
            thread::spawn(move || server.run(tool, &call, overlaps));
        } else {
            self.run(tool, &call, overlaps);
        }
    }

    fn run(&self, tool: &tools::Tool, call: &Call, overlaps: bool) {
        let result = (tool.run)(self, call);
        self.lock().running -= 1;
        let Some(result) = result else { return };
        if let Some(kind) = self.options.text("--before-reply") {
            self.output.noise(kind);
        }
        let result = if overlaps {
            tools::text_result("wrong: two calls overlapped")
        } else {
            result
        };
        self.result(&call.id, &result);
        let answered = {
            let mut shared = self.lock();
            shared.calls_answered += 1;
            shared.calls_answered
        };
        if self.options.number("--crash-after-calls") == Some(answered) {
            process::exit(1);
        }
    }

    fn enter(&self) -> u64 {
        let mut shared = self.lock();
        shared.running += 1;
        shared.running
    }

    /// Waits until the request is cancelled, or until the time is up; true if it was cancelled.
    pub(crate) fn wait_cancelled(&self, id: &str, limit: Duration) -> bool {
        let (shared, _) = self
            .changed
            .wait_timeout_while(self.lock(), limit, |shared| !shared.cancelled.contains(id))
            .expect("no thread panics with the lock");
        shared.cancelled.contains(id)
    }

    /// Asks the client and waits for its answer.
    pub(crate) fn ask(&self, method: &str, params: &str) -> String {
        let id = {
            let mut shared = self.lock();
            shared.next_own_id += 1;
            shared.next_own_id.to_string()
        };
        self.output.line(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#
        ));
        let (mut shared, _) = self
            .changed
            .wait_timeout_while(self.lock(), Duration::from_secs(20), |shared| {
                !shared.answers.contains_key(&id)
            })
            .expect("no thread panics with the lock");
        shared
            .answers
            .remove(&id)
            .unwrap_or_else(|| "no answer".to_owned())
    }

    pub(crate) fn notify(&self, method: &str, params: &str) {
        self.output.line(&format!(
            r#"{{"jsonrpc":"2.0","method":"{method}","params":{params}}}"#
        ));
    }

    pub(crate) fn result(&self, id: &str, result: &str) {
        let result = match self.is_modern() {
            true => Cow::Owned(eras::complete(result)),
            false => Cow::Borrowed(result),
        };
        self.output.line(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#
        ));
    }

    pub(crate) fn error(&self, id: &str, code: i32, message: &str) {
        self.output.line(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":"{message}"}}}}"#
        ));
    }

    fn end_of_input(&self) -> ExitCode {
        self.record.add("EOF", b"");
        if let Some(path) = self.options.text("--save-on-eof") {
            pause(Duration::from_millis(400));
            fs::write(path, "saved").expect("the state can be saved");
        }
        while self.options.has("--spin-on-epipe") {
            self.output.line("still here");
        }
        if self.options.has("--ignore-eof") {
            return linger();
        }
        self.record.add("END", b"");
        ExitCode::SUCCESS
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().expect("no thread panics with the lock")
    }
}

/// Standard input, read in small slow steps where the switch says so.
struct SlowStdin(bool);

impl Read for SlowStdin {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if !self.0 {
            return io::stdin().read(buffer);
        }
        pause(Duration::from_millis(5));
        let limit = buffer.len().min(64 * 1024);
        io::stdin().read(&mut buffer[..limit])
    }
}

fn is_small_integer(id: &str) -> bool {
    id.parse::<u64>()
        .is_ok_and(|id| (1..=1 << 31).contains(&id))
}
