//! Those who look at the messages of an instance, and what each is sent.
//!
//! Exists only while somebody looks; else each message costs one branch. A viewer that does not
//! keep up loses lines, is told how many, and delays nobody. Bodies are cut and have their secrets
//! replaced before they leave the worker.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::Value;
use tokio::sync::mpsc;

use crate::config::redact::Redactor;
use crate::control::{AskTrace, TraceLine, TraceMessage};
use crate::ids::HostKey;
use crate::protocol::json::unescape;
use crate::protocol::{Frame, Line, RequestId};
use crate::session::{CallOutcome, Direction, Mux, Trace, TraceKind, Tracer};
use crate::time::Moment;

use super::super::clock;
use super::Worker;

/// The most that is shown of one body.
const BODY_LIMIT_BYTES: u32 = 64 << 10;
/// Viewers of one instance.
const VIEWERS: usize = 16;

/// Somebody who looks.
#[derive(Debug)]
pub(crate) struct Viewer {
    pub(crate) ask: AskTrace,
    pub(crate) lines: mpsc::Sender<TraceLine>,
    /// Lines that found no room.
    pub(crate) missed: Arc<AtomicU64>,
}

impl Viewer {
    /// Whether it is still there.
    fn show(&self, line: TraceLine) -> bool {
        match self.lines.try_send(line) {
            Ok(()) => true,
            Err(mpsc::error::TrySendError::Full(_)) => {
                self.missed.fetch_add(1, Ordering::Relaxed);
                true
            }
            Err(mpsc::error::TrySendError::Closed(_)) => false,
        }
    }

    fn wants(&self, message: &TraceMessage) -> bool {
        let Some(wanted) = &self.ask.host else {
            return true;
        };
        let is = |number: Option<u64>| number.is_some_and(|number| number.to_string() == *wanted);
        is(message.attachment)
            || is(message.pid.map(u64::from))
            || message
                .client
                .as_ref()
                .is_some_and(|client| client.contains(wanted.as_str()))
    }

    fn show_message(&self, message: &TraceMessage) -> bool {
        if !self.wants(message) {
            return !self.lines.is_closed();
        }
        let mut message = message.clone();
        match self.ask.bodies {
            None => message.body = None,
            Some(limit) => cut(&mut message.body, limit),
        }
        self.show(TraceLine::Message(Box::new(message)))
    }
}

fn cut(body: &mut Option<String>, limit: u32) {
    if let Some(body) = body {
        let mut end = usize::try_from(limit).unwrap_or(usize::MAX).min(body.len());
        while !body.is_char_boundary(end) {
            end -= 1;
        }
        if end < body.len() {
            body.truncate(end);
            body.push('…');
        }
    }
}

/// All who look, and what they see.
#[derive(Debug, Default)]
pub(super) struct Viewers {
    tracer: Tracer,
    viewers: Vec<Viewer>,
}

impl Viewers {
    pub(super) fn host_line(&mut self, host: HostKey, line: &Line, now: Moment) {
        self.tracer.host_line(host, line, now);
    }

    pub(super) fn child_line(&mut self, line: &Line, mux: &Mux, now: Moment) {
        self.tracer.child_line(line, mux.asker_of_line(line), now);
    }

    pub(super) fn host_frame(&mut self, host: HostKey, frame: &Frame, now: Moment) {
        self.tracer.host_frame(host, frame.to_vec().into(), now);
    }

    pub(super) fn child_frame(&mut self, frame: &Frame, mux: &Mux, now: Moment) {
        let bytes = bytes::Bytes::from(frame.to_vec());
        let line = bytes.slice(..bytes.len().saturating_sub(1));
        let id = crate::protocol::Message::parse(line).and_then(|message| message.id().cloned());
        let asked = id.and_then(|id| mux.asker_of(&id));
        self.tracer.child_frame(bytes, asked, now);
    }

    /// The longest body that somebody wants.
    fn body_limit(&self) -> Option<u32> {
        let wanted = self.viewers.iter().filter_map(|viewer| viewer.ask.bodies);
        wanted.max().map(|limit| limit.min(BODY_LIMIT_BYTES))
    }
}

impl Worker {
    /// Somebody looks from here on, and is told first how the server is.
    pub(super) fn add_viewer(&mut self, viewer: Viewer) {
        let substate = self.core.supervisor().status().substate.as_str();
        viewer.show(self.state_line(substate));
        let viewers = self.viewers.get_or_insert_default();
        if viewers.viewers.len() < VIEWERS {
            viewers.viewers.push(viewer);
        }
        // One too many is let go, and its stream ends.
    }

    /// Tells those who look what has passed since the last time.
    pub(super) fn show_traces(&mut self) {
        let Some(mut viewers) = self.viewers.take() else {
            return;
        };
        viewers.tracer.end_turn();
        let limit = viewers.body_limit();
        while let Some(trace) = viewers.tracer.poll() {
            let message = self.trace_message(trace, limit);
            viewers
                .viewers
                .retain(|viewer| viewer.show_message(&message));
        }
        viewers.viewers.retain(|viewer| !viewer.lines.is_closed());
        if !viewers.viewers.is_empty() {
            self.viewers = Some(viewers);
        }
    }

    /// Tells those who look that the server is in another state, after what was said before.
    pub(super) fn show_state(&mut self, text: &str) {
        self.show_traces();
        if self.viewers.is_none() {
            return;
        }
        let line = self.state_line(text);
        if let Some(viewers) = &mut self.viewers {
            viewers.viewers.retain(|viewer| viewer.show(line.clone()));
        }
    }

    fn state_line(&self, text: &str) -> TraceLine {
        TraceLine::State {
            at: clock::render_wall(clock::wall()),
            server: self.instance.to_string(),
            text: text.to_owned(),
        }
    }

    pub(super) fn viewer_host_gone(&mut self, host: HostKey) {
        if let Some(viewers) = &mut self.viewers {
            viewers.tracer.host_gone(host);
        }
    }

    fn trace_message(&self, trace: Trace, limit: Option<u32>) -> TraceMessage {
        let (client, pid) = trace
            .host
            .map_or((None, None), |host| self.core.mux.host_name(host));
        let (outcome, code) = trace.outcome.map_or((None, None), outcome);
        let redactor = self
            .past
            .prepared
            .as_ref()
            .map(|prepared| &prepared.redactor);
        TraceMessage {
            at: clock::render_wall(clock::wall()),
            server: self.instance.to_string(),
            direction: match trace.direction {
                Direction::ToServer => "to-server",
                Direction::ToHost => "to-host",
            }
            .to_owned(),
            kind: kind(trace.kind).to_owned(),
            attachment: trace.host.map(|host| host.0),
            client: client.map(str::to_owned),
            pid,
            mcpd: trace.is_ours,
            method: trace.method.map(|text| self.redact_cut(&text)),
            tool: trace.tool.map(|text| self.redact_cut(&text)),
            host_id: trace.host_id.map_or(Value::Null, |id| self.id(&id)),
            server_id: trace.child_id.map_or(Value::Null, |id| self.id(&id)),
            bytes: trace.len_bytes,
            took_us: trace
                .took
                .map(|took| u64::try_from(took.as_micros()).unwrap_or(u64::MAX)),
            outcome: outcome.map(str::to_owned),
            code,
            body: limit.map(|limit| body(&trace.body, limit, redactor)),
        }
    }

    /// An id as JSON; as text where it is none that can be shown.
    fn id(&self, id: &RequestId) -> Value {
        let raw = String::from_utf8_lossy(&id.raw()[..id.raw().len().min(200)]);
        let raw = self.redact_cut(&raw);
        serde_json::from_str(&raw).unwrap_or(Value::String(raw))
    }
}

const fn kind(kind: TraceKind) -> &'static str {
    match kind {
        TraceKind::Request => "request",
        TraceKind::Waiting => "waiting",
        TraceKind::Notification => "notification",
        TraceKind::Response => "response",
        TraceKind::Noise => "noise",
    }
}

const fn outcome(outcome: CallOutcome) -> (Option<&'static str>, Option<i64>) {
    match outcome {
        CallOutcome::Done => (Some("ok"), None),
        CallOutcome::ToolError => (Some("tool-error"), None),
        CallOutcome::Refused(code) => (Some("error"), Some(code)),
        CallOutcome::Failed(code) => (Some("error"), Some(code.0)),
        CallOutcome::Cancelled => (Some("cancelled"), None),
    }
}

/// The beginning of a message without secrets. JSON may spell a secret with escapes, which cannot
/// be replaced in place: then nothing is shown.
fn body(bytes: &[u8], limit: u32, redactor: Option<&Redactor>) -> String {
    let limit = usize::try_from(limit)
        .unwrap_or(usize::MAX)
        .min(bytes.len());
    let mut text = String::from_utf8_lossy(&bytes[..limit]).into_owned();
    let is_cut = limit < bytes.len();
    if is_cut && text.ends_with('\u{fffd}') {
        text.pop();
    }
    let Some(redactor) = redactor.filter(|redactor| !redactor.is_empty()) else {
        return ending(text, is_cut);
    };
    let plain = redactor.text(&text);
    let bare = String::from_utf8_lossy(&unescape(plain.as_bytes())).into_owned();
    if redactor.text(&bare) != bare {
        return "‹withheld: a secret in escapes›".to_owned();
    }
    ending(redactor.cut_text(&text), is_cut)
}

fn ending(mut text: String, is_cut: bool) -> String {
    if is_cut && !text.ends_with('…') {
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_cut_and_hold_no_secret() {
        let redactor = Redactor::new([("TOKEN", &b"hunter2hunter2"[..])]);
        let check = |text: &str, limit, expected: &str| {
            assert_eq!(body(text.as_bytes(), limit, Some(&redactor)), expected);
        };
        check(r#"{"a":"hunter2hunter2"}"#, 100, r#"{"a":"‹TOKEN›"}"#);
        check(r#"{"a":"hunter2hunter2"}"#, 12, r#"{"a":"…"#);
        check(r#"{"a":"plain"}"#, 7, r#"{"a":"p…"#);
        check(
            r#"{"a":"hunter2\u0068unter2"}"#,
            100,
            "‹withheld: a secret in escapes›",
        );
        check("äöü", 3, "ä…");
    }

    #[test]
    fn a_viewer_that_does_not_keep_up_loses_lines_and_one_that_left_is_forgotten() {
        let (lines, mut shown) = mpsc::channel(1);
        let missed = Arc::new(AtomicU64::new(0));
        let viewer = Viewer {
            ask: AskTrace {
                host: Some("code".to_owned()),
                ..AskTrace::default()
            },
            lines,
            missed: missed.clone(),
        };
        let from = |client: &str| TraceMessage {
            client: Some(client.to_owned()),
            body: Some("unwanted".to_owned()),
            ..TraceMessage::default()
        };
        assert!(viewer.show_message(&from("zed")), "it wants none of that");
        for _ in 0..3 {
            assert!(viewer.show_message(&from("claude-code")));
        }
        assert_eq!(missed.load(Ordering::Relaxed), 2);
        let Ok(TraceLine::Message(message)) = shown.try_recv() else {
            panic!("a message was shown");
        };
        assert_eq!(message.body, None);
        drop(shown);
        assert!(!viewer.show_message(&from("claude-code")));
        assert!(!viewer.show_message(&from("zed")));
    }
}
