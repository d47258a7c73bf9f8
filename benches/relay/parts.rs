//! The parts of the benchmark that are processes of their own: the echo server, and a relay that
//! does nothing but copy.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

/// What one read of a copy takes.
const COPY_BYTES: usize = 64 << 10;

/// A native MCP server that answers `tools/call` with a text of the length that was asked for.
/// Finds what it needs by searching, so that its own cost hides nothing of what is measured.
///
/// With `id_last` the id stands behind the result, as the TypeScript SDK writes it.
pub(crate) fn echo(id_last: bool) -> ExitCode {
    let mut input = BufReader::with_capacity(COPY_BYTES, io::stdin().lock());
    let mut output = io::stdout().lock();
    let mut line = String::new();
    loop {
        line.clear();
        match input.read_line(&mut line) {
            Ok(0) | Err(_) => return ExitCode::SUCCESS,
            Ok(_) => {}
        }
        let Some(id) = after(&line, "\"id\":") else {
            continue;
        };
        let id: String = id.chars().take_while(char::is_ascii_digit).collect();
        let result = if line.contains("\"tools/call\"") {
            let bytes = after(&line, "\"bytes\":").map_or(0, leading_number);
            let text = "x".repeat(bytes);
            format!(r#"{{"content":[{{"type":"text","text":"{text}"}}]}}"#)
        } else if line.contains("\"initialize\"") {
            r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"echo","version":"1"}}"#.to_owned()
        } else {
            r#"{"tools":[{"name":"echo","inputSchema":{"type":"object"}}]}"#.to_owned()
        };
        let answer = if id_last {
            format!("{{\"result\":{result},\"jsonrpc\":\"2.0\",\"id\":{id}}}\n")
        } else {
            format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}\n")
        };
        if output
            .write_all(answer.as_bytes())
            .and_then(|()| output.flush())
            .is_err()
        {
            return ExitCode::SUCCESS;
        }
    }
}

fn after<'t>(text: &'t str, mark: &str) -> Option<&'t str> {
    text.find(mark).map(|at| &text[at + mark.len()..])
}

fn leading_number(text: &str) -> usize {
    let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or(0)
}

/// The do-nothing relay's daemon: one echo server of this kind for each connection, two copying
/// threads.
pub(crate) fn relay(socket: &Path, kind: &str) -> ExitCode {
    let listener = UnixListener::bind(socket).expect("a socket of our own");
    let program = std::env::current_exe().expect("our own file");
    for stream in listener.incoming() {
        let Ok(stream) = stream else { continue };
        let child = Command::new(&program)
            .arg(kind)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut child = child.expect("an echo server");
        let (to, from) = (child.stdin.take(), child.stdout.take());
        let back = stream.try_clone().expect("a second handle");
        std::thread::spawn(move || copy(stream, to.expect("a pipe"), |_| {}));
        std::thread::spawn(move || {
            copy(from.expect("a pipe"), back, close_writing);
            // Nothing can be done about a server that cannot be waited for.
            drop(child.wait());
        });
    }
    ExitCode::SUCCESS
}

/// The do-nothing relay's shim.
pub(crate) fn shim(socket: &Path) -> ExitCode {
    let stream = UnixStream::connect(socket).expect("the relay listens");
    let back = stream.try_clone().expect("a second handle");
    std::thread::spawn(move || copy(io::stdin(), stream, close_writing));
    copy(back, io::stdout(), |_| {});
    ExitCode::SUCCESS
}

fn close_writing(stream: &UnixStream) {
    // The other end may be gone already.
    drop(stream.shutdown(Shutdown::Write));
}

fn copy<W: Write>(mut from: impl Read, mut to: W, end: impl Fn(&W)) {
    let mut bytes = vec![0; COPY_BYTES];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if to
            .write_all(&bytes[..count])
            .and_then(|()| to.flush())
            .is_err()
        {
            break;
        }
    }
    end(&to);
}
