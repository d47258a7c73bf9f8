//! The person at the terminal while a call runs: progress is shown, questions are put.
//!
//! Decides what can be asked here: a form, consent to a place to visit, the folder that is being
//! worked in. Without a terminal every question is declined, aloud. Never opens a place itself and
//! never samples a model.

use std::io::{self, IsTerminal};
use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signalfd::SignalFd;
use serde_json::{Map, Value, json};

use super::form::{Field, fields};
use super::progress::{render_bar, render_progress};
use crate::cli::attendant::{Answer, Attendant};
use crate::cli::error::CliError;
use crate::cli::escape::{escape, escape_lines};
use crate::cli::output::{complain, terminal_width};

/// To the beginning of the line, and clear it.
const CLEAR: &str = "\r\u{1b}[K";

/// The most that is taken as one answer.
const LINE_LIMIT_BYTES: usize = 64 << 10;

/// Whoever ran the command.
#[derive(Debug)]
pub(super) struct Person {
    server: String,
    quiet: bool,
    /// Whether a person reads standard error.
    is_watched: bool,
    /// Whether a person can answer, too.
    can_answer: bool,
    /// What was typed and not used.
    typed: Vec<u8>,
    /// A bar is on the screen.
    has_bar: bool,
    told: bool,
}

/// What a line was asked for and came to.
enum Typed {
    Line(String),
    /// Ctrl-D.
    End,
    /// Ctrl-C.
    Interrupted,
}

impl Person {
    pub(super) fn new(server: &str, quiet: bool) -> Self {
        let is_watched = io::stderr().is_terminal();
        Self {
            server: server.to_owned(),
            quiet,
            is_watched,
            can_answer: is_watched && io::stdin().is_terminal(),
            typed: Vec::new(),
            has_bar: false,
            told: false,
        }
    }

    fn clear_bar(&mut self) {
        if std::mem::take(&mut self.has_bar) {
            complain(CLEAR);
        }
    }

    fn elicit(&mut self, params: &Value, signals: &SignalFd) -> Result<Answer, CliError> {
        let message = params["message"].as_str().unwrap_or("(no text)");
        if !self.can_answer {
            if !std::mem::replace(&mut self.told, true) {
                complain(&format!(
                    "{} asks: {}\nnote: declined, because there is no terminal to answer at\n",
                    escape(&self.server),
                    escape(message)
                ));
            }
            return Ok(action("decline"));
        }
        self.clear_bar();
        let server = escape(&self.server);
        complain(&format!("{server} asks: {}\n", escape_lines(message)));
        if params["mode"] == "url" {
            return self.consent(params, signals);
        }
        let fields = fields(&params["requestedSchema"]);
        if fields.is_empty() {
            return self.confirm("accept? (y or n) ", signals);
        }
        complain("(Ctrl-D declines, Ctrl-C cancels the call)\n");
        let mut content = Map::new();
        for field in &fields {
            match self.fill_in(field, &mut content, signals)? {
                Typed::Line(_) => {}
                Typed::End => return Ok(action("decline")),
                Typed::Interrupted => return Ok(Answer::Interrupted),
            }
        }
        Ok(Answer::Result(
            json!({"action": "accept", "content": content}),
        ))
    }

    fn fill_in(
        &mut self,
        field: &Field,
        content: &mut Map<String, Value>,
        signals: &SignalFd,
    ) -> Result<Typed, CliError> {
        complain(&field.explanation());
        loop {
            complain(&field.prompt());
            let typed = self.type_line(signals)?;
            let Typed::Line(line) = &typed else {
                complain("\n");
                return Ok(typed);
            };
            match field.read(line, content) {
                Ok(()) => return Ok(typed),
                Err(complaint) => complain(&format!("  {complaint}\n")),
            }
        }
    }

    /// A server wants the user to visit a place: whoever reads it decides, and goes there alone.
    fn consent(&mut self, params: &Value, signals: &SignalFd) -> Result<Answer, CliError> {
        let url = params["url"].as_str().unwrap_or("(no address)");
        complain(&format!(
            "It wants you to visit\n  {}\nmcpd does not open it. Do so only if you trust the place.\n",
            escape(url)
        ));
        self.confirm("will you? (y or n) ", signals)
    }

    fn confirm(&mut self, prompt: &str, signals: &SignalFd) -> Result<Answer, CliError> {
        loop {
            complain(prompt);
            match self.type_line(signals)? {
                Typed::Line(line) => match line.trim().to_ascii_lowercase().as_str() {
                    "y" | "yes" => return Ok(action("accept")),
                    "n" | "no" => return Ok(action("decline")),
                    _ => {}
                },
                Typed::End => {
                    complain("\n");
                    return Ok(action("decline"));
                }
                Typed::Interrupted => {
                    complain("\n");
                    return Ok(Answer::Interrupted);
                }
            }
        }
    }

    /// The next line that is typed.
    fn type_line(&mut self, signals: &SignalFd) -> Result<Typed, CliError> {
        let stdin = io::stdin();
        let mut buffer = [0; 4096];
        loop {
            if let Some(end) = memchr::memchr(b'\n', &self.typed) {
                let rest = self.typed.split_off(end + 1);
                let line = std::mem::replace(&mut self.typed, rest);
                return Ok(Typed::Line(String::from_utf8_lossy(&line).into_owned()));
            }
            if self.typed.len() > LINE_LIMIT_BYTES {
                return Err(CliError::usage("the answer is too long"));
            }
            let mut polled = [
                PollFd::new(stdin.as_fd(), PollFlags::POLLIN),
                PollFd::new(signals.as_fd(), PollFlags::POLLIN),
            ];
            match poll(&mut polled, PollTimeout::NONE) {
                Ok(_) if polled[1].any() == Some(true) => return Ok(Typed::Interrupted),
                Ok(_) => {}
                Err(Errno::EINTR) => continue,
                Err(error) => return Err(CliError::internal("cannot wait").because(error)),
            }
            match rustix::io::read(stdin.as_fd(), &mut buffer) {
                // The terminal has gone, or Ctrl-D was typed.
                Ok(0) | Err(rustix::io::Errno::IO) => {
                    self.typed.clear();
                    return Ok(Typed::End);
                }
                Ok(count) => self.typed.extend_from_slice(&buffer[..count]),
                Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
                Err(error) => {
                    let error = io::Error::from(error);
                    return Err(CliError::internal("cannot read the answer").because(error));
                }
            }
        }
    }
}

impl Attendant for Person {
    fn capabilities(&self) -> Value {
        json!({"elicitation": {"form": {}, "url": {}}, "roots": {}})
    }

    fn progress(&mut self, params: &Value) {
        if self.quiet {
            return;
        }
        if !self.is_watched {
            return complain(&format!("{}\n", render_progress(params)));
        }
        self.has_bar = true;
        complain(&format!("{CLEAR}{}", render_bar(params, terminal_width())));
    }

    fn answer(
        &mut self,
        method: &str,
        params: &Value,
        signals: &SignalFd,
    ) -> Result<Answer, CliError> {
        match method {
            "elicitation/create" => self.elicit(params, signals),
            "roots/list" => Ok(Answer::Result(json!({"roots": roots()}))),
            "sampling/createMessage" => Ok(Answer::Error(
                -32601,
                "the command line has no model that could be sampled".to_owned(),
            )),
            _ => Ok(Answer::Error(
                -32601,
                format!("the command line does not offer {method}"),
            )),
        }
    }

    fn end(&mut self) {
        self.clear_bar();
    }
}

fn action(action: &str) -> Answer {
    Answer::Result(json!({ "action": action }))
}

/// The folder that the command was run in.
fn roots() -> Vec<Value> {
    let Ok(folder) = std::env::current_dir() else {
        return Vec::new();
    };
    let name = folder
        .file_name()
        .map(|name| name.to_string_lossy().into_owned());
    let uri = file_uri(std::os::unix::ffi::OsStrExt::as_bytes(folder.as_os_str()));
    vec![json!({"uri": uri, "name": name.unwrap_or_default()})]
}

/// A path as a `file:` URI (RFC 8089), everything escaped that has a meaning in one.
fn file_uri(path: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut uri = "file://".to_owned();
    for &byte in path {
        match byte {
            b'/' | b'-' | b'.' | b'_' | b'~' => uri.push(char::from(byte)),
            byte if byte.is_ascii_alphanumeric() => uri.push(char::from(byte)),
            // Writing to a string cannot fail.
            byte => _ = write!(uri, "%{byte:02X}"),
        }
    }
    uri
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_a_uri() {
        assert_eq!(file_uri(b"/home/a b/\xc3\xa4"), "file:///home/a%20b/%C3%A4");
    }
}
