//! One host's stream across the deaths of daemons: the pure part of `mcpd connect`.
//!
//! Bytes pass in both directions as they come; beside them the lines are read to know which
//! requests are open and how the host opened its session. It decides what the host is told when
//! the daemon is lost (open requests get `-31006`, their outcome being unknown; nothing is sent
//! twice), what a new daemon is told (the host's own `initialize` and `initialized`), and what is
//! answered when there is no daemon at all (`-31000` with the reason). It never connects, waits or
//! reads a clock, and a message passing through is never changed.

use std::collections::VecDeque;

use bytes::Bytes;
use smallvec::SmallVec;

use crate::protocol::write::error_response;
use crate::protocol::{
    BatchItem, ErrorCode, Fault, Kind, Line, LineReader, Member, Message, Outcome, RequestId,
};

/// Longer lines pass too, but only their ids are known; so an `initialize` beyond it could not be
/// sent again.
const LINE_LIMIT_BYTES: usize = 1 << 20;
/// How much may wait for one side before the other is no longer read.
const HELD_LIMIT_BYTES: usize = 256 << 10;
/// Open requests that are remembered. The daemon allows a host a thousand.
const OPEN_LIMIT: usize = 4096;

/// Why requests cannot be served.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reason {
    pub(crate) message: String,
    pub(crate) hints: Vec<String>,
}

/// Where the daemon is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Link {
    Up,
    /// A new daemon has been sent the host's `initialize`; its answer is not for the host.
    Replaying,
    Down(Reason),
}

/// How the host opened its session.
#[derive(Debug)]
struct Opened {
    id: RequestId,
    /// The request as the host sent it, without its newline.
    initialize: Bytes,
    answered: bool,
    /// The notification, once the host has sent it.
    initialized: Option<Bytes>,
}

/// One host on one server, whatever daemon is behind it.
#[derive(Debug)]
pub(crate) struct Session {
    server: String,
    link: Link,
    opened: Option<Opened>,
    open: Vec<RequestId>,
    from_host: LineReader,
    from_daemon: LineReader,
    /// Whether the line that the host is writing has been begun towards a daemon that is gone, or
    /// while there was none, and the code its request is to be answered with.
    spoiled: Option<ErrorCode>,
    host_has_ended: bool,
    to_host: Queue,
    to_daemon: Queue,
}

impl Session {
    /// A session on `server`; without a daemon as yet.
    pub(crate) fn new(server: &str) -> Self {
        Self {
            server: server.to_owned(),
            link: Link::Down(Reason::default()),
            opened: None,
            open: Vec::new(),
            from_host: LineReader::new(LINE_LIMIT_BYTES),
            from_daemon: LineReader::new(LINE_LIMIT_BYTES),
            spoiled: None,
            host_has_ended: false,
            to_host: Queue::default(),
            to_daemon: Queue::default(),
        }
    }

    /// A daemon serves this session from now on.
    pub(crate) fn handle_connected(&mut self) {
        self.from_daemon = LineReader::new(LINE_LIMIT_BYTES);
        self.to_daemon.clear();
        self.link = Link::Up;
        if let Some(opened) = &self.opened {
            self.to_daemon.push_line(&opened.initialize);
            if opened.answered {
                self.link = Link::Replaying;
            }
        }
        // What the host has begun to write cannot be finished towards a daemon that has not seen
        // its beginning.
        if self.from_host.is_mid_line() {
            self.spoiled.get_or_insert(ErrorCode::SERVER_UNAVAILABLE);
        }
    }

    /// There is no daemon, and why.
    pub(crate) fn handle_unreachable(&mut self, reason: Reason) {
        self.link = Link::Down(reason);
        // An `initialize` that no daemon will answer any more.
        if let Some(opened) = self.opened.take_if(|opened| !opened.answered) {
            self.refuse(&opened.id, ErrorCode::SERVER_UNAVAILABLE);
        }
    }

    /// The daemon has gone without being asked to.
    pub(crate) fn handle_daemon_lost(&mut self) {
        self.link = Link::Down(Reason {
            message: "the daemon has ended".to_owned(),
            hints: Vec::new(),
        });
        self.to_daemon.clear();
        // A message that was cut in half must not run into the next one.
        self.to_host.end_line();
        if self.from_host.is_mid_line() && self.spoiled.is_none() {
            self.spoiled = Some(ErrorCode::DAEMON_RESTARTED);
        }
        for id in std::mem::take(&mut self.open) {
            self.refuse(&id, ErrorCode::DAEMON_RESTARTED);
        }
    }

    /// Bytes from the host.
    pub(crate) fn handle_host(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let end = memchr::memchr(b'\n', bytes).map_or(bytes.len(), |at| at + 1);
            let (piece, rest) = bytes.split_at(end);
            self.handle_host_piece(piece);
            bytes = rest;
        }
    }

    /// Bytes of one line.
    fn handle_host_piece(&mut self, piece: &[u8]) {
        let down = matches!(self.link, Link::Down(_));
        if down {
            self.spoiled.get_or_insert(ErrorCode::SERVER_UNAVAILABLE);
        }
        if self.spoiled.is_none() {
            self.to_daemon.push(piece);
        }
        self.from_host.feed(piece);
        if let Some(line) = self.from_host.poll() {
            self.note_host_line(line);
        }
        if piece.ends_with(b"\n") {
            self.spoiled = None;
        }
    }

    /// The host will say no more. Answers that are due still go out.
    pub(crate) fn handle_host_end(&mut self) {
        self.host_has_ended = true;
        if let Some(line) = self.from_host.finish() {
            self.note_host_line(line);
        }
    }

    /// Bytes from the daemon.
    pub(crate) fn handle_daemon(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let end = memchr::memchr(b'\n', bytes).map_or(bytes.len(), |at| at + 1);
            let (piece, rest) = bytes.split_at(end);
            if self.link == Link::Up {
                self.to_host.push(piece);
            }
            self.from_daemon.feed(piece);
            if let Some(line) = self.from_daemon.poll() {
                self.note_daemon_line(line);
            }
            bytes = rest;
        }
    }

    fn note_host_line(&mut self, line: Line) {
        match line {
            Line::Message(message) => self.note_host_message(&message),
            Line::Batch(batch) => {
                for item in &batch.items {
                    if let BatchItem::Message(message) = item {
                        self.note_host_message(message);
                    }
                }
            }
            // Whoever serves it answers it under its id, as far as there is one.
            Line::Fault(Fault {
                ids,
                has_method: true,
                ..
            }) => self.note_requests(&ids),
            Line::Fault(_) => {}
        }
    }

    fn note_host_message(&mut self, message: &Message) {
        match (message.kind(), message.method(), message.id()) {
            (Kind::Request, Some("initialize"), Some(id)) => self.note_initialize(message, id),
            (Kind::Request, _, Some(id)) => self.note_requests(std::slice::from_ref(id)),
            (Kind::Notification, Some("notifications/initialized"), _) => {
                if let Some(opened) = &mut self.opened {
                    opened.initialized = Some(message.bytes().clone());
                }
            }
            (Kind::Notification, Some("notifications/cancelled"), _) => {
                let cancelled = message.value(Member::ParamsRequestId);
                if let Some(id) = cancelled.and_then(RequestId::parse) {
                    self.close(&id);
                }
            }
            _ => {}
        }
    }

    fn note_initialize(&mut self, message: &Message, id: &RequestId) {
        if let Some(code) = self.spoiled {
            self.refuse(id, code);
            return;
        }
        self.opened = Some(Opened {
            id: id.clone(),
            initialize: message.bytes().clone(),
            answered: false,
            initialized: None,
        });
    }

    fn note_requests(&mut self, ids: &[RequestId]) {
        for id in ids {
            match self.spoiled {
                Some(code) => self.refuse(id, code),
                None if self.open.len() < OPEN_LIMIT => self.open.push(id.clone()),
                None => {}
            }
        }
    }

    fn note_daemon_line(&mut self, line: Line) {
        match line {
            Line::Message(message) if self.link == Link::Replaying => self.note_replayed(&message),
            Line::Message(message) => self.note_daemon_message(&message),
            Line::Batch(batch) => {
                for item in &batch.items {
                    if let BatchItem::Message(message) = item {
                        self.note_daemon_message(message);
                    }
                }
            }
            Line::Fault(Fault {
                ids,
                has_method: false,
                ..
            }) => self.note_answers(&ids, None),
            Line::Fault(_) => {}
        }
    }

    fn note_daemon_message(&mut self, message: &Message) {
        if message.kind() == Kind::Response {
            let ids: SmallVec<[RequestId; 1]> = message.id().into_iter().cloned().collect();
            self.note_answers(&ids, message.outcome());
        }
    }

    fn note_answers(&mut self, ids: &[RequestId], outcome: Option<Outcome>) {
        for id in ids {
            let waiting = |opened: &&mut Opened| !opened.answered && opened.id == *id;
            match self.opened.as_mut().filter(waiting) {
                // A session that was refused is none: there is nothing to open again.
                Some(_) if outcome == Some(Outcome::Error) => self.opened = None,
                Some(opened) => opened.answered = true,
                None => self.close(id),
            }
        }
    }

    /// A message of a new daemon before it has answered the repeated `initialize`.
    fn note_replayed(&mut self, message: &Message) {
        let answer = self.opened.as_ref().is_some_and(|opened| {
            message.kind() == Kind::Response && message.id() == Some(&opened.id)
        });
        if !answer {
            self.to_host.push_line(message.bytes());
            return;
        }
        self.link = Link::Up;
        let initialized = self
            .opened
            .as_ref()
            .and_then(|one| one.initialized.as_ref());
        if let Some(initialized) = initialized
            && message.outcome() != Some(Outcome::Error)
        {
            self.to_daemon.push_line(initialized);
        }
    }

    fn close(&mut self, id: &RequestId) {
        if let Some(at) = self.open.iter().position(|open| open == id) {
            self.open.swap_remove(at);
        }
    }

    fn refuse(&mut self, id: &RequestId, code: ErrorCode) {
        let (message, hints) = match &self.link {
            Link::Down(reason) if code == ErrorCode::SERVER_UNAVAILABLE => {
                (reason.message.as_str(), reason.hints.as_slice())
            }
            Link::Up | Link::Replaying if code == ErrorCode::SERVER_UNAVAILABLE => (
                "the request was begun while there was no daemon; send it again",
                &[][..],
            ),
            _ => (
                "the mcpd daemon ended while this request was open; its outcome is unknown",
                &[][..],
            ),
        };
        let mut detail = serde_json::json!({"reason": message});
        if !hints.is_empty() {
            detail["hint"] = hints.join("; ").into();
        }
        let data = serde_json::json!({"server": self.server, "detail": detail}).to_string();
        let frame = error_response(Some(id), None, code, message, Some(data.as_bytes()));
        for segment in frame.segments() {
            self.to_host.push(segment);
        }
    }

    /// Whether the host's bytes can be taken now.
    pub(crate) fn wants_host(&self) -> bool {
        !self.host_has_ended
            && self.link != Link::Replaying
            && self.to_daemon.len() < HELD_LIMIT_BYTES
            && self.to_host.len() < HELD_LIMIT_BYTES
    }

    /// Whether the daemon's bytes can be taken now.
    pub(crate) fn wants_daemon(&self) -> bool {
        self.to_host.len() < HELD_LIMIT_BYTES
    }

    /// Whether the daemon may be told that the host has ended.
    pub(crate) fn can_end(&self) -> bool {
        self.host_has_ended && self.link == Link::Up && self.to_daemon.len() == 0
    }

    /// Whether no daemon serves this session.
    pub(crate) fn is_down(&self) -> bool {
        matches!(self.link, Link::Down(_))
    }

    /// Whether the host holds an open session that a daemon could go on with.
    pub(crate) fn is_opened(&self) -> bool {
        self.opened.is_some()
    }

    pub(crate) fn host_has_ended(&self) -> bool {
        self.host_has_ended
    }

    /// Bytes for the host.
    pub(crate) fn for_host(&mut self) -> &mut Queue {
        &mut self.to_host
    }

    /// Bytes for the daemon.
    pub(crate) fn for_daemon(&mut self) -> &mut Queue {
        &mut self.to_daemon
    }
}

/// Bytes on their way to one side.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    bytes: VecDeque<u8>,
    /// Whether something of an unfinished line was put in last.
    mid_line: bool,
}

impl Queue {
    fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
        if let Some(last) = bytes.last() {
            self.mid_line = *last != b'\n';
        }
    }

    fn push_line(&mut self, line: &[u8]) {
        self.push(line);
        self.push(b"\n");
    }

    fn end_line(&mut self) {
        if self.mid_line {
            self.push(b"\n");
        }
    }

    fn clear(&mut self) {
        self.bytes = VecDeque::new();
        self.mid_line = false;
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The next bytes to write; all of them may take more than one look.
    pub(crate) fn front(&self) -> &[u8] {
        self.bytes.as_slices().0
    }

    /// The first `count` bytes have been written.
    pub(crate) fn advance(&mut self, count: usize) {
        self.bytes.drain(..count.min(self.bytes.len()));
        if self.bytes.is_empty() {
            // A large message must not leave its memory behind.
            self.bytes.shrink_to(HELD_LIMIT_BYTES / 4);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}"#;
    const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    const WELCOME: &str = r#"{"jsonrpc":"2.0","id":0,"result":{}}"#;
    const CALL: &str = r#"{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{}}"#;
    const ANSWER: &str = r#"{"jsonrpc":"2.0","id":"a","result":{"x":1}}"#;

    fn take(queue: &mut Queue) -> String {
        let bytes: Vec<u8> = queue.bytes.drain(..).collect();
        String::from_utf8(bytes).unwrap()
    }

    fn lines(texts: &[&str]) -> String {
        texts.iter().map(|text| format!("{text}\n")).collect()
    }

    fn host(session: &mut Session, texts: &[&str]) {
        session.handle_host(lines(texts).as_bytes());
    }

    fn daemon(session: &mut Session, texts: &[&str]) {
        session.handle_daemon(lines(texts).as_bytes());
    }

    /// What each side has been given since the last look.
    #[track_caller]
    fn check(session: &mut Session, to_host: &[&str], to_daemon: &[&str]) {
        assert_eq!(take(session.for_host()), lines(to_host), "to the host");
        assert_eq!(
            take(session.for_daemon()),
            lines(to_daemon),
            "to the daemon"
        );
    }

    /// A session whose handshake is done.
    fn opened() -> Session {
        let mut session = Session::new("calc");
        session.handle_connected();
        host(&mut session, &[INITIALIZE]);
        daemon(&mut session, &[WELCOME]);
        host(&mut session, &[INITIALIZED]);
        check(&mut session, &[WELCOME], &[INITIALIZE, INITIALIZED]);
        session
    }

    fn code_of(line: &str) -> (serde_json::Value, i64) {
        let value: serde_json::Value = serde_json::from_str(line).unwrap();
        (
            value["id"].clone(),
            value["error"]["code"].as_i64().unwrap(),
        )
    }

    #[test]
    fn bytes_pass_as_they_come() {
        let mut session = opened();
        session.handle_host(b"{\"jsonrpc\" :");
        assert_eq!(take(session.for_daemon()), "{\"jsonrpc\" :");
        session.handle_daemon(b"\r\n{\"half");
        assert_eq!(take(session.for_host()), "\r\n{\"half");
    }

    #[test]
    fn a_lost_daemon_costs_the_open_requests_and_nothing_else() {
        let mut session = opened();
        let other = r#"{"jsonrpc":"2.0","id":7,"method":"tools/list"}"#;
        host(&mut session, &[CALL, other]);
        daemon(&mut session, &[ANSWER]);
        check(&mut session, &[ANSWER], &[CALL, other]);
        session.handle_daemon_lost();
        let told = take(session.for_host());
        assert_eq!(code_of(told.trim_end()), (7.into(), -31006));

        session.handle_connected();
        check(&mut session, &[], &[INITIALIZE]);
        assert!(!session.wants_host(), "requests wait for the handshake");
        daemon(&mut session, &[WELCOME]);
        check(&mut session, &[], &[INITIALIZED]);
        host(&mut session, &[CALL]);
        daemon(&mut session, &[ANSWER]);
        check(&mut session, &[ANSWER], &[CALL]);
    }

    #[test]
    fn an_initialize_that_was_not_answered_is_asked_again_and_its_answer_passes() {
        let mut session = Session::new("calc");
        session.handle_connected();
        host(&mut session, &[INITIALIZE]);
        session.handle_daemon_lost();
        check(&mut session, &[], &[]);
        session.handle_connected();
        daemon(&mut session, &[WELCOME]);
        check(&mut session, &[WELCOME], &[INITIALIZE]);
    }

    #[test]
    fn a_cancelled_request_gets_nothing_when_the_daemon_is_lost() {
        let mut session = opened();
        let cancel =
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"a"}}"#;
        host(&mut session, &[CALL, cancel]);
        session.handle_daemon_lost();
        check(&mut session, &[], &[]);
    }

    #[test]
    fn lines_that_were_cut_in_half_stay_apart_from_what_follows() {
        let mut session = opened();
        host(&mut session, &[CALL]);
        session.handle_daemon(br#"{"jsonrpc":"2.0","id":"a","resu"#);
        session.handle_host(br#"{"jsonrpc":"2.0","id":9,"#);
        session.handle_daemon_lost();
        let told = take(session.for_host());
        let told: Vec<&str> = told.lines().collect();
        assert_eq!(told[0], r#"{"jsonrpc":"2.0","id":"a","resu"#);
        assert_eq!(code_of(told[1]), ("a".into(), -31006));

        // The rest of the host's line is not sent to a daemon that has not seen its beginning.
        session.handle_connected();
        daemon(&mut session, &[WELCOME]);
        session.handle_host(b"\"method\":\"ping\"}\n");
        let told = take(session.for_host());
        assert_eq!(code_of(told.trim_end()), (9.into(), -31006));
        assert_eq!(
            take(session.for_daemon()),
            lines(&[INITIALIZE, INITIALIZED])
        );
    }

    #[test]
    fn without_a_daemon_every_request_is_told_why() {
        let mut session = Session::new("calc");
        session.handle_unreachable(Reason {
            message: "cannot make the folder /x: Read-only file system (os error 30)".to_owned(),
            hints: vec!["free it".to_owned()],
        });
        host(&mut session, &[INITIALIZE, INITIALIZED, CALL]);
        let told = take(session.for_host());
        let told: Vec<&str> = told.lines().collect();
        assert_eq!(told.len(), 2);
        assert_eq!(code_of(told[0]), (0.into(), -31000));
        assert!(told[0].contains("/x: Read-only file system (os error 30)"));
        let error: serde_json::Value = serde_json::from_str(told[0]).unwrap();
        assert_eq!(error["error"]["data"]["detail"]["hint"], "free it");
        assert_eq!(code_of(told[1]), ("a".into(), -31000));
        assert!(!session.is_opened());
    }

    #[test]
    fn a_handshake_that_fails_for_want_of_a_daemon_is_answered() {
        let mut session = Session::new("calc");
        session.handle_connected();
        host(&mut session, &[INITIALIZE]);
        session.handle_daemon_lost();
        session.handle_unreachable(Reason::default());
        let told = take(session.for_host());
        assert_eq!(code_of(told.trim_end()), (0.into(), -31000));
    }

    #[test]
    fn the_end_of_the_host_waits_for_what_is_due() {
        let mut session = opened();
        host(&mut session, &[CALL]);
        session.handle_host_end();
        assert!(!session.can_end());
        check(&mut session, &[], &[CALL]);
        assert!(session.can_end());
        daemon(&mut session, &[ANSWER]);
        check(&mut session, &[ANSWER], &[]);
    }

    #[test]
    fn a_message_of_any_size_passes_without_being_held() {
        let mut session = opened();
        let large = format!(
            r#"{{"jsonrpc":"2.0","method":"tools/call","params":{{"x":"{}"}},"id":5}}"#,
            "y".repeat(3 << 20)
        );
        session.handle_host(large.as_bytes());
        assert!(session.from_host.held_bytes() < 2 << 20);
        session.handle_host(b"\n");
        assert_eq!(take(session.for_daemon()).len(), large.len() + 1);
        session.handle_daemon_lost();
        let told = take(session.for_host());
        assert_eq!(code_of(told.trim_end()), (5.into(), -31006));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]
        /// However the bytes are cut and wherever the daemon dies, each request is answered once.
        #[test]
        fn each_request_is_answered_once(
            cut in 1_usize..40,
            die_after in 0_usize..20,
            count in 1_u32..12,
        ) {
            let mut session = opened();
            let mut seen = Vec::new();
            for id in 0..count {
                let request = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"m\"}}\n");
                for piece in request.as_bytes().chunks(cut) {
                    session.handle_host(piece);
                }
                let asked = take(session.for_daemon());
                let served = asked.contains(&format!("\"id\":{id},\"method\":\"m\""));
                if id as usize == die_after {
                    session.handle_daemon_lost();
                    session.handle_connected();
                    daemon(&mut session, &[WELCOME]);
                } else if served {
                    let answer = format!("{{\"id\":{id},\"jsonrpc\":\"2.0\",\"result\":1}}\n");
                    for piece in answer.as_bytes().chunks(cut) {
                        session.handle_daemon(piece);
                    }
                }
                for line in take(session.for_host()).lines() {
                    let value: serde_json::Value = serde_json::from_str(line).unwrap();
                    seen.push(value["id"].as_u64().unwrap());
                }
            }
            let expected: Vec<u64> = (0..u64::from(count)).collect();
            prop_assert_eq!(seen, expected);
            prop_assert!(session.open.is_empty());
        }
    }
}
