//! The measuring host: blocking, over the pipes of a command.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// What one read takes.
const READ_BYTES: usize = 256 << 10;

pub(crate) struct Host {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    line: Vec<u8>,
    next_id: u64,
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

impl Host {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the command runs");
        let input = child.stdin.take().expect("a pipe");
        let output = child.stdout.take().expect("a pipe");
        Self {
            child,
            input,
            output: BufReader::with_capacity(READ_BYTES, output),
            line: Vec::new(),
            next_id: 1,
        }
    }

    pub(crate) fn initialize(&mut self) {
        self.send(
            "initialize",
            r#"{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}"#,
        );
        self.receive();
        self.write("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n");
    }

    pub(crate) fn list(&mut self) {
        self.send("tools/list", "{}");
        self.receive();
    }

    /// Calls one after the other; how long each took.
    pub(crate) fn call_each(&mut self, calls: usize, bytes: usize) -> Vec<Duration> {
        let mut took = Vec::with_capacity(calls);
        for _ in 0..calls {
            let begun = now();
            self.call(bytes);
            self.receive();
            took.push(begun.elapsed());
        }
        took
    }

    /// Calls with `window` of them open at any time.
    pub(crate) fn calls_a_second(&mut self, calls: usize, window: usize, bytes: usize) -> f64 {
        let begun = now();
        let mut sent = 0;
        for received in 0..calls {
            while sent < calls && sent - received < window {
                self.call(bytes);
                sent += 1;
            }
            self.receive();
        }
        calls as f64 / begun.elapsed().as_secs_f64()
    }

    /// The process of the command.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Closes the input and waits for the end.
    pub(crate) fn end(mut self) {
        drop(self.input);
        self.child.wait().expect("the command ends");
    }

    fn call(&mut self, bytes: usize) {
        self.send(
            "tools/call",
            &format!(r#"{{"name":"echo","arguments":{{"bytes":{bytes}}}}}"#),
        );
    }

    fn send(&mut self, method: &str, params: &str) {
        let id = self.next_id;
        self.next_id += 1;
        self.write(&format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{method}\",\"params\":{params}}}\n"
        ));
    }

    fn write(&mut self, line: &str) {
        self.input
            .write_all(line.as_bytes())
            .expect("the command reads");
    }

    fn receive(&mut self) {
        self.line.clear();
        let read = self.output.read_until(b'\n', &mut self.line);
        assert!(read.is_ok_and(|count| count > 0), "the command has ended");
        let answered = memchr::memmem::find(&self.line[..self.line.len().min(512)], b"\"result\"");
        let answered = answered.or_else(|| {
            memchr::memmem::find(&self.line, b"\"error\"")
                .is_none()
                .then_some(0)
        });
        assert!(
            answered.is_some(),
            "no result: {}",
            String::from_utf8_lossy(&self.line)
        );
    }
}
