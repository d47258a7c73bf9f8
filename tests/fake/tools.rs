//! The tools of the fake server: honest ones, and ones that misbehave as a peer.
//!
//! Each tool is one function from a call to a result, or to none where it has answered by itself or never
//! will. Results are JSON text, so that what a test sends comes back byte for byte.

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::process;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::server::{Server, write_stderr, write_stderr_lines};
use crate::{pause, signals, tree};

/// One tool.
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    pub(crate) help: &'static str,
    /// Whether it runs beside other calls, in a thread.
    pub(crate) slow: bool,
    pub(crate) run: fn(&Server, &Call) -> Option<String>,
}

const fn quick(
    name: &'static str,
    help: &'static str,
    run: fn(&Server, &Call) -> Option<String>,
) -> Tool {
    Tool {
        name,
        help,
        slow: false,
        run,
    }
}

const fn slow(
    name: &'static str,
    help: &'static str,
    run: fn(&Server, &Call) -> Option<String>,
) -> Tool {
    Tool {
        name,
        help,
        slow: true,
        run,
    }
}

/// Every tool there is.
pub(crate) const TOOLS: &[Tool] = &[
    quick("echo", "the arguments, byte for byte", echo),
    quick("sum", "a + b", sum),
    slow(
        "sleep",
        "answers text after ms; ends without an answer if cancelled",
        sleep,
    ),
    slow("late", "answers after ms, twice, also if cancelled", late),
    slow(
        "progress",
        "n notifications ms apart, then a result; token: right | wrong | after",
        progress,
    ),
    quick("crash", "ends by signal or with exit, never answers", crash),
    quick(
        "count",
        "adds a line to file; die = true ends the process before the answer",
        count,
    ),
    quick("big", "a text of so many bytes", big),
    quick("image", "an image of so many bytes", image),
    quick("env", "the environment", env),
    quick("fds", "the open descriptors", fds),
    quick("cwd", "the working directory", cwd),
    quick("args", "the arguments of the process", args),
    quick("pid", "the process id", pid),
    quick(
        "process",
        "pid, group, session, terminal, umask",
        process_facts,
    ),
    quick("signals", "the signal state at start", signal_state),
    quick(
        "list_changed",
        "sends the list_changed notification of kind",
        list_changed,
    ),
    quick("log", "n log messages of level", log),
    quick("update", "sends an update for uri", update),
    quick("notify", "sends method with params", notify),
    quick("noise", "n pieces of noise of kind, then a result", noise),
    quick(
        "flood",
        "n log messages of bytes each, then a result",
        flood,
    ),
    quick(
        "stderr",
        "bytes to stderr, as lines, cr, utf8 or text",
        stderr,
    ),
    quick(
        "allocate",
        "takes so many bytes of memory for good",
        allocate,
    ),
    quick(
        "fork",
        "starts n processes that stay, tells how many it could",
        fork,
    ),
    quick("stall", "never answers", stall),
    quick("block", "reads nothing for ms, then answers", block),
    quick(
        "reply",
        "answers in the malformed or unusual way of kind",
        reply,
    ),
    slow(
        "ask",
        "sends a request of its own and returns the answer",
        ask,
    ),
    quick(
        "twice_big",
        "two replies' worth of bytes between notifications",
        twice_big,
    ),
];

/// One call, with its arguments as they came.
pub(crate) struct Call {
    pub(crate) id: String,
    pub(crate) name: String,
    arguments: Box<RawValue>,
    token: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
struct Params {
    name: String,
    arguments: Option<Box<RawValue>>,
    #[serde(rename = "_meta")]
    meta: Option<Meta>,
}

#[derive(Deserialize)]
struct Meta {
    #[serde(rename = "progressToken")]
    token: Option<Box<RawValue>>,
}

impl Call {
    pub(crate) fn parse(id: &str, params: &str) -> Result<Self, String> {
        let params: Params =
            serde_json::from_str(params).map_err(|_| "params do not fit".to_owned())?;
        let empty = || RawValue::from_string("{}".to_owned()).expect("an object");
        Ok(Self {
            id: id.to_owned(),
            name: params.name,
            arguments: params.arguments.unwrap_or_else(empty),
            token: params.meta.and_then(|meta| meta.token),
        })
    }

    fn argument(&self, name: &str) -> Value {
        let arguments: Value = serde_json::from_str(self.arguments.get()).unwrap_or_default();
        arguments.get(name).cloned().unwrap_or_default()
    }

    fn text(&self, name: &str, default: &str) -> String {
        self.argument(name).as_str().unwrap_or(default).to_owned()
    }

    fn number(&self, name: &str, default: u64) -> u64 {
        let value = self.argument(name);
        value
            .as_u64()
            .or_else(|| value.as_str()?.parse().ok())
            .unwrap_or(default)
    }

    fn delay(&self) -> Duration {
        Duration::from_millis(self.number("ms", 0))
    }
}

/// A result with one block of text.
pub(crate) fn text_result(text: &str) -> String {
    format!(
        r#"{{"content":[{{"type":"text","text":{}}}]}}"#,
        Value::from(text)
    )
}

fn echo(_: &Server, call: &Call) -> Option<String> {
    Some(format!(
        r#"{{"content":[],"structuredContent":{}}}"#,
        call.arguments.get()
    ))
}

fn sum(_: &Server, call: &Call) -> Option<String> {
    Some(text_result(
        &(call.number("a", 0) + call.number("b", 0)).to_string(),
    ))
}

fn sleep(server: &Server, call: &Call) -> Option<String> {
    if server.wait_cancelled(&call.id, call.delay()) {
        return None;
    }
    Some(text_result(&call.text("text", "slept")))
}

fn late(server: &Server, call: &Call) -> Option<String> {
    pause(call.delay());
    server.result(&call.id, &text_result("late once"));
    Some(text_result("late twice"))
}

fn progress(server: &Server, call: &Call) -> Option<String> {
    let kind = call.text("token", "right");
    let token = match (kind.as_str(), &call.token) {
        ("wrong", _) => "\"made up\"".to_owned(),
        (_, Some(token)) => token.get().to_owned(),
        (_, None) => return Some(text_result("no token")),
    };
    let count = call.number("n", 3);
    let send = |number: u64| {
        server.notify(
            "notifications/progress",
            &format!(r#"{{"progressToken":{token},"progress":{number},"total":{count},"message":"step {number}"}}"#),
        );
    };
    if kind == "after" {
        server.result(&call.id, &text_result("done"));
    }
    for number in 1..=count {
        send(number);
        pause(call.delay());
    }
    (kind != "after").then(|| text_result("done"))
}

fn crash(_: &Server, call: &Call) -> Option<String> {
    pause(call.delay());
    match call.argument("exit").as_u64() {
        Some(code) => process::exit(code as i32),
        None => signals::die_of(signals::named(&call.text("signal", "KILL"))),
    }
    None
}

fn count(_: &Server, call: &Call) -> Option<String> {
    let path = call.text("file", "");
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .expect("the counter opens");
    file.write_all(b"1\n").expect("the counter can be written");
    if call.argument("die") == Value::Bool(true) {
        signals::die_of(signals::Signal::SIGKILL);
    }
    Some(text_result("counted"))
}

fn big(_: &Server, call: &Call) -> Option<String> {
    Some(format!(
        r#"{{"content":[{{"type":"text","text":"{}"}}]}}"#,
        "b".repeat(call.number("bytes", 1) as usize)
    ))
}

fn image(_: &Server, call: &Call) -> Option<String> {
    // Four digits are three bytes, all of them zero.
    let data = "AAAA".repeat(call.number("bytes", 3).div_ceil(3) as usize);
    Some(format!(
        r#"{{"content":[{{"type":"image","mimeType":"image/png","data":"{data}"}}]}}"#
    ))
}

fn env(_: &Server, _: &Call) -> Option<String> {
    let variables: serde_json::Map<String, Value> = std::env::vars_os()
        .map(|(name, value)| {
            (
                name.to_string_lossy().into_owned(),
                value.to_string_lossy().into(),
            )
        })
        .collect();
    Some(format!(
        r#"{{"content":[],"structuredContent":{}}}"#,
        Value::Object(variables)
    ))
}

fn fds(_: &Server, _: &Call) -> Option<String> {
    let mut open = Vec::new();
    for entry in fs::read_dir("/proc/self/fd")
        .expect("/proc is there")
        .flatten()
    {
        let target = fs::read_link(entry.path()).unwrap_or_default();
        open.push(format!(
            "{} {}",
            entry.file_name().to_string_lossy(),
            target.to_string_lossy()
        ));
    }
    open.sort();
    Some(format!(
        r#"{{"content":[],"structuredContent":{{"fds":{}}}}}"#,
        Value::from(open)
    ))
}

fn cwd(_: &Server, _: &Call) -> Option<String> {
    let cwd = std::env::current_dir().unwrap_or_default();
    Some(text_result(&cwd.to_string_lossy()))
}

fn args(_: &Server, _: &Call) -> Option<String> {
    let args: Vec<String> = std::env::args_os()
        .skip(1)
        .map(|arg| arg.to_string_lossy().into_owned())
        .collect();
    Some(format!(
        r#"{{"content":[],"structuredContent":{{"args":{}}}}}"#,
        Value::from(args)
    ))
}

fn pid(_: &Server, _: &Call) -> Option<String> {
    Some(text_result(&process::id().to_string()))
}

fn process_facts(_: &Server, _: &Call) -> Option<String> {
    Some(text_result(&tree::describe_process()))
}

fn signal_state(server: &Server, _: &Call) -> Option<String> {
    Some(text_result(&server.status_at_start))
}

fn list_changed(server: &Server, call: &Call) -> Option<String> {
    server.notify(
        &format!("notifications/{}/list_changed", call.text("kind", "tools")),
        "{}",
    );
    Some(text_result("sent"))
}

fn log(server: &Server, call: &Call) -> Option<String> {
    let level = call.text("level", "info");
    for number in 1..=call.number("n", 1) {
        let data = Value::from(call.text("text", &format!("message {number}")));
        server.notify(
            "notifications/message",
            &format!(r#"{{"level":"{level}","logger":"fake","data":{data}}}"#),
        );
    }
    Some(text_result("logged"))
}

fn update(server: &Server, call: &Call) -> Option<String> {
    let uri = Value::from(call.text("uri", "fake://one"));
    server.notify(
        "notifications/resources/updated",
        &format!(r#"{{"uri":{uri}}}"#),
    );
    Some(text_result("updated"))
}

fn notify(server: &Server, call: &Call) -> Option<String> {
    server.notify(
        &call.text("method", "notifications/x-foo"),
        &call.argument("params").to_string(),
    );
    Some(text_result("notified"))
}

fn noise(server: &Server, call: &Call) -> Option<String> {
    for _ in 0..call.number("n", 1) {
        server.output.noise(&call.text("kind", "text"));
    }
    Some(text_result("noisy"))
}

fn flood(server: &Server, call: &Call) -> Option<String> {
    let data = "f".repeat(call.number("bytes", 10) as usize);
    for number in 0..call.number("n", 5000) {
        server.notify(
            "notifications/message",
            &format!(r#"{{"level":"info","data":"{number} {data}"}}"#),
        );
    }
    Some(text_result("flooded"))
}

fn stderr(_: &Server, call: &Call) -> Option<String> {
    let bytes = call.number("bytes", 1_000_000);
    match call.text("kind", "lines").as_str() {
        "lines" => write_stderr_lines(bytes),
        "text" => write_stderr(format!("{}\n", call.text("text", "words")).as_bytes()),
        kind => {
            let piece: &[u8] = if kind == "cr" {
                b"progress 50% of a long download\r"
            } else {
                b"caf\xe9 \xff\xfe\r"
            };
            let mut block = String::new().into_bytes();
            while block.len() < 64 * 1024 {
                block.extend_from_slice(piece);
            }
            let mut left = bytes as usize;
            while left > 0 {
                let step = left.min(block.len());
                write_stderr(&block[..step]);
                left -= step;
            }
        }
    }
    Some(text_result("written"))
}

fn allocate(_: &Server, call: &Call) -> Option<String> {
    // No page of zeros is any memory: each must be written to.
    let memory = vec![1_u8; call.number("bytes", 0) as usize];
    std::mem::forget(memory);
    Some(text_result("taken"))
}

fn fork(_: &Server, call: &Call) -> Option<String> {
    let started = (0..call.number("n", 1)).take_while(|_| tree::start_sitter().is_ok());
    Some(text_result(&started.count().to_string()))
}

fn stall(_: &Server, _: &Call) -> Option<String> {
    None
}

fn block(_: &Server, call: &Call) -> Option<String> {
    pause(call.delay());
    Some(text_result("reading again"))
}

fn reply(server: &Server, call: &Call) -> Option<String> {
    let kind = call.text("kind", "plain");
    server
        .output
        .reply(&kind, &call.id, &text_result(&format!("reply {kind}")));
    None
}

fn ask(server: &Server, call: &Call) -> Option<String> {
    let params = call.argument("params");
    let params = if params.is_null() {
        "{}".to_owned()
    } else {
        params.to_string()
    };
    let answer = server.ask(&call.text("method", "roots/list"), &params);
    Some(text_result(&answer))
}

fn twice_big(server: &Server, call: &Call) -> Option<String> {
    let mut between = String::new();
    for number in 0..call.number("n", 1000) {
        writeln!(between, r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"level":"info","data":{number}}}}}"#)
            .expect("a string takes everything");
    }
    server.output.bytes(between.as_bytes());
    big(server, call)
}
