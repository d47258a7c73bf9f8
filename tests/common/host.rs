//! A host that speaks raw MCP: on a server's socket, or through `mcpd connect`.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::wait::{PATIENCE, Stopwatch, wait_until};

/// One line that the host read, without its newline.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) bytes: Vec<u8>,
    /// The message, or null where it is not plain JSON.
    pub(crate) json: Value,
}

impl Line {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}

/// One end of an attachment.
pub(crate) struct RawHost {
    writer: Option<Box<dyn Write + Send>>,
    incoming: Receiver<Line>,
    /// What was read and not asked for yet, in order.
    backlog: VecDeque<Line>,
    next_id: u64,
    stream: Option<UnixStream>,
    child: Option<Child>,
}

impl std::fmt::Debug for RawHost {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("RawHost")
            .field("backlog", &self.backlog.len())
            .finish_non_exhaustive()
    }
}

impl RawHost {
    /// Connects to a raw socket, which may still be about to appear.
    pub(crate) fn on_socket(path: &Path) -> Self {
        let stream = wait_until(&format!("{} accepts", path.display()), || {
            UnixStream::connect(path).ok()
        });
        Self::on_stream(stream)
    }

    /// Speaks over a stream that is connected already.
    pub(crate) fn on_stream(stream: UnixStream) -> Self {
        let reader = stream.try_clone().expect("a second descriptor");
        let writer = stream.try_clone().expect("a third descriptor");
        let mut host = Self::over(Box::new(writer), reader);
        host.stream = Some(stream);
        host
    }

    /// Starts a command and speaks over its stdin and stdout.
    pub(crate) fn through(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let writer = child.stdin.take().expect("stdin is a pipe");
        let reader = child.stdout.take().expect("stdout is a pipe");
        let mut host = Self::over(Box::new(writer), reader);
        host.child = Some(child);
        host
    }

    /// Starts a command whose stdin and stdout are the other end of `stream`.
    pub(crate) fn beside(mut command: Command, stream: UnixStream) -> Self {
        let child = command.stderr(Stdio::null()).spawn().expect("it starts");
        // Its end must be nobody's but the child's.
        drop(command);
        let mut host = Self::on_stream(stream);
        host.child = Some(child);
        host
    }

    /// Starts a command whose stdin is a pipe with a name, which is made.
    pub(crate) fn through_fifo(mut command: Command, path: &Path) -> Self {
        nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
        let open = |read, write| {
            let mut options = std::fs::File::options();
            options
                .read(read)
                .write(write)
                .open(path)
                .expect("it opens")
        };
        // An end of its own for each would wait for the other (fifo(7)).
        let both = open(true, true);
        let input = open(true, false);
        let writer = open(false, true);
        drop(both);
        let mut child = command
            .stdin(input)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        drop(command);
        let reader = child.stdout.take().expect("stdout is a pipe");
        let mut host = Self::over(Box::new(writer), reader);
        host.child = Some(child);
        host
    }

    fn over(writer: Box<dyn Write + Send>, reader: impl Read + Send + 'static) -> Self {
        let (sender, incoming) = channel();
        thread::spawn(move || {
            let mut reader = BufReader::new(reader);
            let mut bytes = Vec::new();
            while reader
                .read_until(b'\n', &mut bytes)
                .is_ok_and(|count| count > 0)
            {
                if bytes.last() == Some(&b'\n') {
                    bytes.pop();
                }
                let json = serde_json::from_slice(&bytes).unwrap_or_default();
                // The host of a test that is over takes no lines.
                if sender
                    .send(Line {
                        bytes: std::mem::take(&mut bytes),
                        json,
                    })
                    .is_err()
                {
                    return;
                }
            }
        });
        Self {
            writer: Some(writer),
            incoming,
            backlog: VecDeque::new(),
            next_id: 1,
            stream: None,
            child: None,
        }
    }

    /// Writes bytes as they are.
    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        self.try_send_bytes(bytes).expect("the other end reads");
    }

    /// Writes bytes where the other end may be gone.
    pub(crate) fn try_send_bytes(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        let writer = self
            .writer
            .as_mut()
            .expect("the host has not ended its output");
        writer.write_all(bytes).and_then(|()| writer.flush())
    }

    /// Writes one line.
    pub(crate) fn send_line(&mut self, line: &str) {
        self.send_bytes(format!("{line}\n").as_bytes());
    }

    /// Writes one message.
    pub(crate) fn send(&mut self, message: &Value) {
        self.send_line(&message.to_string());
    }

    /// Writes a notification.
    pub(crate) fn notify(&mut self, method: &str, params: Value) {
        self.send(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
    }

    /// Writes a request with the next id and returns that.
    pub(crate) fn request(&mut self, method: &str, params: Value) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    /// Writes a request and waits for its answer.
    pub(crate) fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.request(method, params);
        self.answer(id)
    }

    /// The handshake, with the newest legacy version; the result of `initialize`.
    pub(crate) fn initialize(&mut self) -> Value {
        self.initialize_as("2025-11-25")
    }

    /// The handshake with a version.
    pub(crate) fn initialize_as(&mut self, version: &str) -> Value {
        let answer = self.ask("initialize", initialize_params(version));
        assert!(
            answer["result"].is_object(),
            "initialize was refused: {answer}"
        );
        self.notify("notifications/initialized", json!({}));
        answer["result"].clone()
    }

    /// Calls a tool and waits; the whole answer.
    pub(crate) fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let id = self.start_call(tool, arguments);
        self.answer(id)
    }

    /// Calls a tool and does not wait.
    pub(crate) fn start_call(&mut self, tool: &str, arguments: Value) -> u64 {
        self.request("tools/call", json!({"name": tool, "arguments": arguments}))
    }

    /// Calls a tool and returns the text of its result.
    #[track_caller]
    pub(crate) fn text(&mut self, tool: &str, arguments: Value) -> String {
        let answer = self.call(tool, arguments);
        text_of(&answer)
    }

    /// Waits for the answer to an id.
    #[track_caller]
    pub(crate) fn answer(&mut self, id: impl Into<Value>) -> Value {
        self.answer_line(id).json
    }

    /// As [`answer`](Self::answer), with the raw line.
    #[track_caller]
    pub(crate) fn answer_line(&mut self, id: impl Into<Value>) -> Line {
        let id = id.into();
        self.wait_line(&format!("an answer to {id}"), |line| {
            line.json["id"] == id && line.json["method"].is_null()
        })
    }

    /// Waits for a notification.
    #[track_caller]
    pub(crate) fn notification(&mut self, method: &str) -> Value {
        self.wait_line(method, |line| line.json["method"] == method)
            .json
    }

    /// Waits for the first line that fits, those kept back included; others are kept.
    #[track_caller]
    pub(crate) fn wait_line(&mut self, what: &str, fits: impl Fn(&Line) -> bool) -> Line {
        self.wait_line_within(PATIENCE, &fits)
            .unwrap_or_else(|why| {
                panic!(
                    "no {what}: {why}; read meanwhile: {}",
                    self.describe_backlog()
                )
            })
    }

    /// As [`wait_line`](Self::wait_line), with a limit of its own; the error says how it ended.
    pub(crate) fn wait_line_within(
        &mut self,
        limit: Duration,
        fits: &dyn Fn(&Line) -> bool,
    ) -> Result<Line, String> {
        if let Some(at) = self.backlog.iter().position(fits) {
            return Ok(self
                .backlog
                .remove(at)
                .expect("the position was just found"));
        }
        let watch = Stopwatch::start();
        loop {
            match self.incoming.recv_timeout(watch.left(limit)) {
                Ok(line) if fits(&line) => return Ok(line),
                Ok(line) => self.backlog.push_back(line),
                Err(RecvTimeoutError::Timeout) => return Err(format!("not within {limit:?}")),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err("the stream has ended".to_owned());
                }
            }
        }
    }

    /// What came up to now, an echo through the child included: whatever the child sent before is here.
    pub(crate) fn everything_up_to_now(&mut self) -> Vec<Line> {
        self.call("echo", json!({"mark": self.next_id}));
        self.backlog.drain(..).collect()
    }

    /// What came up to now with this method (see [`everything_up_to_now`](Self::everything_up_to_now)).
    pub(crate) fn notifications_up_to_now(&mut self, method: &str) -> Vec<Value> {
        let lines = self.everything_up_to_now();
        lines
            .into_iter()
            .map(|line| line.json)
            .filter(|message| message["method"] == method)
            .collect()
    }

    /// Ends the host's output; its input stays open.
    pub(crate) fn end_output(&mut self) {
        self.writer = None;
        if let Some(stream) = &self.stream {
            stream
                .shutdown(Shutdown::Write)
                .expect("the stream is open");
        }
    }

    /// Waits until the other end closes and returns what came before.
    pub(crate) fn wait_end(&mut self) -> Vec<Line> {
        let watch = Stopwatch::start();
        loop {
            match self.incoming.recv_timeout(watch.left(PATIENCE)) {
                Ok(line) => self.backlog.push_back(line),
                Err(RecvTimeoutError::Disconnected) => return self.backlog.drain(..).collect(),
                Err(RecvTimeoutError::Timeout) => {
                    panic!("the stream did not end: {}", self.describe_backlog())
                }
            }
        }
    }

    /// Waits for the end of `mcpd connect`: its status and what it wrote to stderr.
    pub(crate) fn wait_exit(&mut self) -> (ExitStatus, String) {
        let child = self.child.as_mut().expect("this host runs a command");
        let status = wait_until("the shim ends", || {
            child.try_wait().expect("it can be waited for")
        });
        let mut text = String::new();
        if let Some(mut stderr) = child.stderr.take() {
            stderr.read_to_string(&mut text).ok();
        }
        self.child = None;
        (status, text)
    }

    /// The pid of `mcpd connect`.
    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.as_ref().expect("this host runs a command").id()).expect("a pid")
    }

    /// Whether `mcpd connect` still runs.
    pub(crate) fn is_running(&mut self) -> bool {
        self.child
            .as_mut()
            .is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// Goes away without a word, as a host that was killed.
    pub(crate) fn vanish(mut self) {
        self.close();
    }

    fn close(&mut self) {
        self.writer = None;
        if let Some(stream) = self.stream.take() {
            // It may be closed from the other side already.
            stream.shutdown(Shutdown::Both).ok();
        }
        if let Some(mut child) = self.child.take() {
            child.kill().ok();
            child.wait().ok();
        }
    }

    fn describe_backlog(&self) -> String {
        let lines: Vec<String> = self
            .backlog
            .iter()
            .map(|line| line.text().chars().take(300).collect())
            .collect();
        format!("{} lines {lines:#?}", lines.len())
    }
}

impl Drop for RawHost {
    fn drop(&mut self) {
        self.close();
    }
}

/// The parameters of an ordinary `initialize`.
pub(crate) fn initialize_params(version: &str) -> Value {
    json!({"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "raw-host", "version": "1"}})
}

/// The text of a result's first block.
#[track_caller]
pub(crate) fn text_of(answer: &Value) -> String {
    let text = answer["result"]["content"][0]["text"].as_str();
    text.unwrap_or_else(|| panic!("no text in {answer}"))
        .to_owned()
}

/// The code of an error.
#[track_caller]
pub(crate) fn error_code(answer: &Value) -> i64 {
    answer["error"]["code"]
        .as_i64()
        .unwrap_or_else(|| panic!("no error in {answer}"))
}
