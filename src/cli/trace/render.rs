//! One message as one line of text.
//!
//! Decides what stands where and how wide the columns are. Pure.

use std::fmt::Write as _;

use serde_json::Value;

use crate::cli::calls::{cut, render_took};
use crate::cli::escape::escape;
use crate::cli::output::{Output, Style, Tone};
use crate::cli::status::render_size;
use crate::control::{TraceLine, TraceMessage};

/// Columns besides host, method and size: time, arrow, ids, time taken, outcome, and the blanks.
const FIXED: usize = 12 + 2 + 1 + 2 + 2 + 2 + 9 + 2 + 6 + 2 + 12;
/// The size with its blanks.
const SIZE: usize = 6 + 2;
/// A terminal that is narrower has no room for the size.
const ROOMY: usize = 100;
/// Where the line below a message begins.
const INDENT: usize = 17;

/// Makes lines that fit.
#[derive(Debug)]
pub(super) struct Lines {
    style: Style,
    is_terminal: bool,
    has_size: bool,
    host: usize,
    method: usize,
}

impl Lines {
    pub(super) fn new(output: Output) -> Self {
        let has_size = output.width.is_none_or(|width| width >= ROOMY);
        let fixed = FIXED + if has_size { SIZE } else { 0 };
        let room = output.width.map_or(56, |width| width.saturating_sub(fixed));
        let host = (room * 2 / 5).clamp(8, 24);
        Self {
            style: output.style,
            is_terminal: output.is_terminal,
            has_size,
            host,
            method: room.saturating_sub(host).clamp(12, 34),
        }
    }

    pub(super) fn render(&self, line: &TraceLine) -> String {
        match line {
            TraceLine::Message(message) => self.message(message),
            TraceLine::State { at, text, .. } => {
                let text = format!("{}  -  {}", time(at), escape(text));
                format!("{}\n", self.style.paint(Tone::Faint, &text))
            }
            TraceLine::NotShown { count } => {
                let text = match count {
                    1 => "1 message not shown".to_owned(),
                    count => format!("{count} messages not shown"),
                };
                format!("{:INDENT$}{}\n", "", self.style.paint(Tone::Warning, &text))
            }
            TraceLine::Unknown => String::new(),
        }
    }

    fn message(&self, message: &TraceMessage) -> String {
        let arrow = if message.direction == "to-server" {
            "→"
        } else {
            "←"
        };
        let (host_width, method_width) = (self.host, self.method);
        let size = match self.has_size {
            true => format!("  {:>6}", render_size(message.bytes)),
            false => String::new(),
        };
        let took = message.took_us.map(render_took).unwrap_or_default();
        let mut text = format!(
            "{}  {arrow}  {:host_width$}  {:method_width$}  {:9}{size}  {took:>6}  {}",
            time(&message.at),
            cut(&host(message), host_width),
            cut(&what(message), method_width),
            cut(&ids(message), 9),
            self.outcome(message),
        );
        text.truncate(text.trim_end().len());
        text.push('\n');
        if let Some(body) = &message.body {
            // On one line, as it passed: a line end inside would be no message.
            let body = if self.is_terminal {
                escape(body)
            } else {
                body.clone()
            };
            // Writing to a string cannot fail.
            _ = writeln!(
                text,
                "{:INDENT$}{}",
                "",
                self.style.paint(Tone::Faint, &body)
            );
        }
        text
    }

    fn outcome(&self, message: &TraceMessage) -> String {
        match (message.outcome.as_deref(), message.code) {
            (Some("ok"), _) => "ok".to_owned(),
            (Some("tool-error"), _) => self.style.paint(Tone::Warning, "tool error"),
            (Some(_), Some(code)) => self.style.paint(Tone::Bad, &format!("error {code}")),
            (Some(other), None) => escape(other),
            (None, _) if message.kind == "waiting" => self.style.paint(Tone::Warning, "waits"),
            (None, _) if message.kind == "noise" => self.style.paint(Tone::Warning, "no message"),
            (None, _) => String::new(),
        }
    }
}

/// The time of day of an RFC 3339 time.
fn time(at: &str) -> &str {
    let time = at.split_once('T').map_or(at, |(_, time)| time);
    time.trim_end_matches('Z')
}

fn host(message: &TraceMessage) -> String {
    let name = message.client.as_deref().map(escape);
    match (name, message.attachment) {
        (Some(name), Some(number)) => format!("{name}#{number}"),
        (None, Some(number)) => format!("#{number}"),
        _ => "-".to_owned(),
    }
}

fn what(message: &TraceMessage) -> String {
    let method = message
        .method
        .as_deref()
        .map_or_else(|| "-".to_owned(), escape);
    match &message.tool {
        Some(tool) => format!("{method} {}", escape(tool)),
        None => method,
    }
}

/// `7:12`: the host's id and the server's; `mcpd` stands where the message went no further.
fn ids(message: &TraceMessage) -> String {
    let id = |id: &Value| match id {
        Value::Null => String::new(),
        Value::String(text) => escape(text),
        other => other.to_string(),
    };
    let (host, server) = (id(&message.host_id), id(&message.server_id));
    match (message.mcpd, message.attachment) {
        (true, Some(_)) => format!("{host}:mcpd"),
        (true, None) => format!("mcpd:{server}"),
        (false, _) if host.is_empty() && server.is_empty() => String::new(),
        (false, _) => format!("{host}:{server}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(width: Option<usize>) -> Lines {
        Lines::new(Output {
            style: Style { color: false },
            quiet: false,
            is_terminal: width.is_some(),
            width,
        })
    }

    fn message() -> TraceMessage {
        TraceMessage {
            at: "2026-11-30T21:40:07.123Z".to_owned(),
            server: "calculator".to_owned(),
            direction: "to-server".to_owned(),
            kind: "request".to_owned(),
            attachment: Some(3),
            client: Some("claude-code".to_owned()),
            method: Some("tools/call".to_owned()),
            tool: Some("add".to_owned()),
            host_id: 7.into(),
            server_id: 12.into(),
            bytes: 143,
            ..TraceMessage::default()
        }
    }

    #[test]
    fn a_message_is_a_line() {
        let answer = TraceMessage {
            direction: "to-host".to_owned(),
            kind: "response".to_owned(),
            took_us: Some(6_900),
            outcome: Some("ok".to_owned()),
            ..message()
        };
        let refused = TraceMessage {
            outcome: Some("error".to_owned()),
            code: Some(-31001),
            mcpd: true,
            server_id: Value::Null,
            body: Some("{\"a\":\u{1b}}".to_owned()),
            ..answer.clone()
        };
        let lines = lines(Some(120));
        let all = [message(), answer, refused]
            .map(|one| lines.message(&one))
            .concat();
        assert_eq!(
            all,
            "\
21:40:07.123  →  claude-code#3             tools/call add                      7:12         143B
21:40:07.123  ←  claude-code#3             tools/call add                      7:12         143B  6.90ms  ok
21:40:07.123  ←  claude-code#3             tools/call add                      7:mcpd       143B  6.90ms  error -31001
                 {\"a\":\\e}
"
        );
    }

    #[test]
    fn a_narrow_terminal_is_enough() {
        let lines = lines(Some(80));
        let answer = TraceMessage {
            took_us: Some(123),
            outcome: Some("error".to_owned()),
            code: Some(-31001),
            ..message()
        };
        let text = lines.message(&answer);
        assert!(text.chars().count() <= 81, "{text}");
    }

    #[test]
    fn what_is_no_message_has_a_line_too() {
        let lines = lines(None);
        assert_eq!(
            lines.render(&TraceLine::NotShown { count: 3 }),
            "                 3 messages not shown\n"
        );
        let state = TraceLine::State {
            at: "2026-11-30T21:40:07.123Z".to_owned(),
            server: "calculator".to_owned(),
            text: "running -> stopping".to_owned(),
        };
        assert_eq!(
            lines.render(&state),
            "21:40:07.123  -  running -> stopping\n"
        );
        assert_eq!(lines.render(&TraceLine::Unknown), "");
    }
}
