//! One host's stream across the deaths of daemons: the pure part of `mcpd connect`.
//!
//! Bytes pass in both directions as they come; beside them the lines are read to know which
//! requests are open and how the host opened its session. It decides what the host is told when
//! the daemon is lost (open requests get `-31006`, their outcome being unknown; nothing is sent
//! twice), what a new daemon is told, and what is answered when there is no daemon at all (`-31000`
//! with the reason; at once, or after a while if one is expected).
//!
//! While a daemon speaks with the host itself nothing passes here, and what has become of the host
//! is read from the journal afterwards. It never connects, waits or reads a clock, and a message
//! passing through is never changed.

use bytes::Bytes;
use smallvec::SmallVec;

use super::held::{Held, Ids};
use super::queue::Queue;
use crate::journal::{Image, Open};
use crate::protocol::write::{error_response, result_response};
use crate::protocol::{
    ErrorCode, Fault, Kind, Line, LineReader, Member, Message, Outcome, RequestId,
};
use crate::time::Moment;

/// Longer lines pass too, but only their ids are known; so an `initialize` beyond it could not be
/// sent again.
const LINE_LIMIT_BYTES: usize = 1 << 20;
/// How much may wait for one side before the other is no longer read.
pub(super) const HELD_LIMIT_BYTES: usize = 256 << 10;
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
    /// The daemon speaks with the host itself.
    Handed,
    /// There is none. Requests wait for one if it is expected.
    Down {
        reason: Reason,
        is_expected: bool,
    },
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
    held: Held,
    /// What the journals have said of the host's session so far.
    known: Image,
    to_host: Queue,
    to_daemon: Queue,
}

impl Session {
    /// A session on `server`; without a daemon as yet.
    pub(crate) fn new(server: &str) -> Self {
        Self {
            server: server.to_owned(),
            link: Link::Down {
                reason: Reason::default(),
                is_expected: true,
            },
            opened: None,
            open: Vec::new(),
            from_host: LineReader::new(LINE_LIMIT_BYTES),
            from_daemon: LineReader::new(LINE_LIMIT_BYTES),
            spoiled: None,
            host_has_ended: false,
            held: Held::default(),
            known: Image::default(),
            to_host: Queue::default(),
            to_daemon: Queue::default(),
        }
    }

    /// What a daemon that is asked to serve this session is given to go on from.
    pub(crate) fn image(&self) -> Image {
        let mut input = Vec::new();
        if let Some(opened) = self.opened.as_ref().filter(|opened| !opened.answered) {
            input.extend_from_slice(&opened.initialize);
            input.push(b'\n');
        }
        input.extend(self.held.bytes());
        Image {
            input,
            ..self.known.clone()
        }
    }

    /// Whether a daemon can go on with the host's input where it is now, and nothing of ours is on
    /// its way to the host.
    pub(crate) fn can_hand_over(&self) -> bool {
        self.spoiled.is_none() && self.to_host.len() == 0
    }

    /// A daemon has taken what [`Session::image`] gave, and speaks with the host itself.
    pub(crate) fn handle_handed(&mut self) {
        self.link = Link::Handed;
        self.held.clear();
        self.opened = None;
        self.known.doubled = 0;
        self.from_host = LineReader::new(LINE_LIMIT_BYTES);
        // It will find that out itself.
        self.host_has_ended = false;
    }

    /// A daemon serves this session from now on, through us. Without a journal it has to be told how
    /// the host opened its session.
    pub(crate) fn handle_connected(&mut self, has_journal: bool, now: Moment) {
        self.from_daemon = LineReader::new(LINE_LIMIT_BYTES);
        self.to_daemon.clear();
        self.link = Link::Up;
        if has_journal {
            self.known.doubled = 0;
        }
        if let Some(opened) = &self.opened
            && !(has_journal && opened.answered)
        {
            self.to_daemon.push_line(&opened.initialize);
            if opened.answered {
                self.link = Link::Replaying;
            }
        }
        let held = self.held.bytes();
        self.held.clear();
        let arriving = std::mem::replace(&mut self.from_host, LineReader::new(LINE_LIMIT_BYTES));
        let spoiled = self.spoiled.take();
        self.handle_host(&held, now);
        if spoiled.is_some() {
            // What the host had begun to write to a daemon that is gone cannot be finished.
            (self.spoiled, self.from_host) = (spoiled, arriving);
        }
    }

    /// There is no daemon, and why. One that `is_expected` is waited for by the host's requests.
    pub(crate) fn handle_unreachable(&mut self, reason: Reason, is_expected: bool, now: Moment) {
        self.link = Link::Down {
            reason,
            is_expected,
        };
        // An `initialize` that the daemon before has not answered waits like any other.
        if let Some(opened) = self.opened.take_if(|opened| !opened.answered) {
            let line = [&opened.initialize[..], b"\n"].concat();
            let ids = SmallVec::from_iter([opened.id]);
            self.held.push_line_first(line, ids, now);
        }
        if !is_expected {
            for id in self.held.give_up() {
                self.refuse(&id, ErrorCode::SERVER_UNAVAILABLE);
            }
            if self.from_host.is_mid_line() {
                self.spoil(ErrorCode::SERVER_UNAVAILABLE);
            }
        }
    }

    fn spoil(&mut self, code: ErrorCode) {
        self.held.drop_arriving();
        self.spoiled.get_or_insert(code);
    }

    /// Answers what has waited too long for a daemon.
    pub(crate) fn handle_timeout(&mut self, now: Moment) {
        for id in self.held.expire(now) {
            self.refuse(&id, ErrorCode::SERVER_UNAVAILABLE);
        }
        if self.held.is_stuck(now) {
            self.spoil(ErrorCode::SERVER_UNAVAILABLE);
        }
    }

    /// When [`Session::handle_timeout`] has to be called next.
    pub(crate) fn poll_timeout(&self) -> Option<Moment> {
        self.held.next_end()
    }

    /// The daemon that was relayed to has gone. `image` is what its journal says, if it kept one.
    pub(crate) fn handle_daemon_lost(&mut self, image: Option<Image>) {
        self.go_down();
        if let Some(image) = image {
            self.learn(image);
        }
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

    /// The daemon that spoke with the host itself has gone, and this is what its journal says.
    pub(crate) fn handle_handed_lost(&mut self, mut image: Image, now: Moment) {
        self.go_down();
        self.held.clear();
        self.from_host = LineReader::new(LINE_LIMIT_BYTES);
        if image.is_half {
            self.to_host.push(b"\n");
        }
        for open in std::mem::take(&mut image.open) {
            self.take_up(&open, &mut image, now);
        }
        if image.is_input_cut {
            self.spoiled = Some(ErrorCode::DAEMON_RESTARTED);
        }
        let input = std::mem::take(&mut image.input);
        self.learn(image);
        self.handle_host(&input, now);
    }

    /// A request that was open when the daemon went. A handshake has no effect and is done again.
    fn take_up(&mut self, open: &Open, image: &mut Image, now: Moment) {
        let Some(id) = RequestId::parse(&open.id) else {
            return;
        };
        match &image.initialize {
            Some(line) if open.is_initialize => {
                let line = [line, &b"\n"[..]].concat();
                self.held.push_line(line, SmallVec::from_iter([id]), now);
            }
            _ => {
                image.doubled += u64::from(open.has_begun);
                self.refuse(&id, ErrorCode::DAEMON_RESTARTED);
            }
        }
    }

    fn go_down(&mut self) {
        self.link = Link::Down {
            reason: Reason {
                message: "the daemon has ended".to_owned(),
                hints: Vec::new(),
            },
            is_expected: true,
        };
    }

    /// Keeps what a journal says of the host's session.
    fn learn(&mut self, image: Image) {
        let doubled = self.known.doubled + image.doubled;
        self.known = Image {
            initialize: image.initialize,
            told: image.told,
            level: image.level,
            subscriptions: image.subscriptions,
            seen: image.seen,
            doubled,
            ..Image::default()
        };
    }

    /// Bytes from the host.
    pub(crate) fn handle_host(&mut self, mut bytes: &[u8], now: Moment) {
        while !bytes.is_empty() {
            let end = memchr::memchr(b'\n', bytes).map_or(bytes.len(), |at| at + 1);
            let (piece, rest) = bytes.split_at(end);
            self.handle_host_piece(piece, now);
            bytes = rest;
        }
    }

    /// Bytes of one line.
    fn handle_host_piece(&mut self, piece: &[u8], now: Moment) {
        if matches!(
            self.link,
            Link::Down {
                is_expected: false,
                ..
            }
        ) {
            self.spoil(ErrorCode::SERVER_UNAVAILABLE);
        }
        let is_down = self.is_down();
        match self.spoiled {
            Some(_) => {}
            None if is_down => self.held.push(piece, now),
            None => self.to_daemon.push(piece),
        }
        self.from_host.feed(piece);
        match self.from_host.poll() {
            Some(line) if is_down && self.spoiled.is_none() => self.hold(line, now),
            Some(line) => self.note_host_line(line),
            // A blank one.
            None if piece.ends_with(b"\n") => self.held.drop_arriving(),
            None => {}
        }
        if piece.ends_with(b"\n") {
            self.spoiled = None;
        }
    }

    /// The host will say no more. Answers that are due still go out.
    pub(crate) fn handle_host_end(&mut self, now: Moment) {
        self.host_has_ended = true;
        match self.from_host.finish() {
            Some(line) if self.is_down() && self.spoiled.is_none() => self.hold(line, now),
            Some(line) => self.note_host_line(line),
            None => {}
        }
    }

    /// A line that waits for a daemon.
    fn hold(&mut self, line: Line, now: Moment) {
        let mut ids = Ids::new();
        match &line {
            Line::Message(message) => {
                if self.is_settled_here(message) {
                    self.held.drop_arriving();
                    return;
                }
                ids.extend(request_of(message));
            }
            Line::Batch(batch) => {
                for message in batch.messages() {
                    ids.extend(request_of(message));
                }
            }
            Line::Fault(fault) if fault.has_method => ids.extend(fault.ids.iter().cloned()),
            Line::Fault(_) => {}
        }
        self.held.end_line(ids, now);
    }

    /// What needs no daemon: a sign of life, and taking back what waits.
    fn is_settled_here(&mut self, message: &Message) -> bool {
        match (message.kind(), message.method(), message.id()) {
            (Kind::Request, Some("ping"), Some(id)) => {
                let frame = result_response(id, b"{}");
                for segment in frame.segments() {
                    self.to_host.push(segment);
                }
                true
            }
            (Kind::Notification, Some("notifications/cancelled"), _) => {
                let cancelled = message.value(Member::ParamsRequestId);
                if let Some(id) = cancelled.and_then(RequestId::parse) {
                    self.held.cancel(&id);
                }
                true
            }
            _ => false,
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
                for message in batch.messages() {
                    self.note_host_message(message);
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
                for message in batch.messages() {
                    self.note_daemon_message(message);
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
            Link::Down { reason, .. } if code == ErrorCode::SERVER_UNAVAILABLE => {
                (reason.message.as_str(), reason.hints.as_slice())
            }
            Link::Up | Link::Replaying | Link::Handed if code == ErrorCode::SERVER_UNAVAILABLE => (
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
            && !matches!(self.link, Link::Replaying | Link::Handed)
            && (!self.is_down() || self.held.has_room() || self.spoiled.is_some())
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
        matches!(self.link, Link::Down { .. })
    }

    /// Whether something waits for a daemon that is to come.
    pub(crate) fn holds_something(&self) -> bool {
        !self.held.is_empty()
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

/// The id of a message that wants an answer.
fn request_of(message: &Message) -> Option<RequestId> {
    (message.kind() == Kind::Request).then(|| message.id().cloned())?
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const T: Moment = Moment::ZERO;
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
        session.handle_host(lines(texts).as_bytes(), T);
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
        session.handle_connected(false, T);
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
        session.handle_host(b"{\"jsonrpc\" :", T);
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
        session.handle_daemon_lost(None);
        let told = take(session.for_host());
        assert_eq!(code_of(told.trim_end()), (7.into(), -31006));

        session.handle_connected(false, T);
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
        session.handle_connected(false, T);
        host(&mut session, &[INITIALIZE]);
        session.handle_daemon_lost(None);
        check(&mut session, &[], &[]);
        session.handle_connected(false, T);
        daemon(&mut session, &[WELCOME]);
        check(&mut session, &[WELCOME], &[INITIALIZE]);
    }

    #[test]
    fn a_cancelled_request_gets_nothing_when_the_daemon_is_lost() {
        let mut session = opened();
        let cancel =
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"a"}}"#;
        host(&mut session, &[CALL, cancel]);
        session.handle_daemon_lost(None);
        check(&mut session, &[], &[]);
    }

    #[test]
    fn lines_that_were_cut_in_half_stay_apart_from_what_follows() {
        let mut session = opened();
        host(&mut session, &[CALL]);
        session.handle_daemon(br#"{"jsonrpc":"2.0","id":"a","resu"#);
        session.handle_host(br#"{"jsonrpc":"2.0","id":9,"#, T);
        session.handle_daemon_lost(None);
        let told = take(session.for_host());
        let told: Vec<&str> = told.lines().collect();
        assert_eq!(told[0], r#"{"jsonrpc":"2.0","id":"a","resu"#);
        assert_eq!(code_of(told[1]), ("a".into(), -31006));

        // The rest of the host's line is not sent to a daemon that has not seen its beginning.
        session.handle_connected(false, T);
        daemon(&mut session, &[WELCOME]);
        session.handle_host(b"\"method\":\"ping\"}\n", T);
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
        session.handle_unreachable(
            Reason {
                message: "cannot make the folder /x: Read-only file system (os error 30)"
                    .to_owned(),
                hints: vec!["free it".to_owned()],
            },
            false,
            T,
        );
        host(&mut session, &[INITIALIZE, INITIALIZED, CALL]);
        let told = take(session.for_host());
        let told: Vec<&str> = told.lines().collect();
        assert_eq!(told.len(), 2);
        assert_eq!(code_of(told[0]), (0.into(), -31000));
        assert!(told[0].contains("/x: Read-only file system (os error 30)"));
        let error: serde_json::Value = serde_json::from_str(told[0]).unwrap();
        assert_eq!(error["error"]["data"]["detail"]["hint"], "free it");
        assert_eq!(code_of(told[1]), ("a".into(), -31000));
    }

    #[test]
    fn a_handshake_that_fails_for_want_of_a_daemon_is_answered() {
        let mut session = Session::new("calc");
        session.handle_connected(false, T);
        host(&mut session, &[INITIALIZE]);
        session.handle_daemon_lost(None);
        session.handle_unreachable(Reason::default(), false, T);
        let told = take(session.for_host());
        assert_eq!(code_of(told.trim_end()), (0.into(), -31000));
    }

    #[test]
    fn the_end_of_the_host_waits_for_what_is_due() {
        let mut session = opened();
        host(&mut session, &[CALL]);
        session.handle_host_end(T);
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
        session.handle_host(large.as_bytes(), T);
        assert!(session.from_host.held_bytes() < 2 << 20);
        session.handle_host(b"\n", T);
        assert_eq!(take(session.for_daemon()).len(), large.len() + 1);
        session.handle_daemon_lost(None);
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
                    session.handle_host(piece, T);
                }
                let asked = take(session.for_daemon());
                let served = asked.contains(&format!("\"id\":{id},\"method\":\"m\""));
                if id as usize == die_after {
                    session.handle_daemon_lost(None);
                    session.handle_connected(false, T);
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
