//! The messages of one instance as somebody sees them who looks: each once, with both of its ids.
//!
//! A message passes twice, between host and mcpd and between mcpd and child, under two ids. What
//! passes on is told at the child's side, where both ids are known and what the server really got
//! and said; the host's side is told where mcpd answers or says something itself, and of what has
//! to wait. Decides nothing about any message, and nothing here runs unless somebody looks.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;

use super::calls::CallOutcome;
use super::mux::Mux;
use crate::ids::HostKey;
use crate::protocol::{Fault, Kind, Line, Member, Message, RequestId};
use crate::time::Moment;

/// Requests that are followed to their answers; beyond, the oldest are let go.
const FOLLOWED: usize = 10_000;
/// Methods that are remembered.
const METHODS: usize = 64;

/// Which way a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    ToServer,
    ToHost,
}

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceKind {
    Request,
    /// A request that has to wait before it is written to the child; told again when it is.
    Waiting,
    Notification,
    Response,
    /// A line that is no message.
    Noise,
}

/// One message.
#[derive(Clone, Debug)]
pub struct Trace {
    pub direction: Direction,
    pub kind: TraceKind,
    /// The host at one end; none where it is nobody's or everybody's.
    pub host: Option<HostKey>,
    /// mcpd itself says it, or gets it.
    pub is_ours: bool,
    pub method: Option<Box<str>>,
    /// The tool, where one is called.
    pub tool: Option<Box<str>>,
    /// The id at the host's side.
    pub host_id: Option<RequestId>,
    /// The id at the child's side.
    pub child_id: Option<RequestId>,
    pub len_bytes: u64,
    /// Of an answer: since its request was written to the child, or arrived.
    pub took: Option<Duration>,
    pub outcome: Option<CallOutcome>,
    /// The message itself, as it passed on that side.
    pub body: Bytes,
}

impl Trace {
    fn of(direction: Direction, kind: TraceKind, message: &Message) -> Self {
        let method = message.method();
        let is_call = method == Some("tools/call");
        let tool = is_call.then(|| message.text(Member::ParamsName)).flatten();
        Self {
            direction,
            kind,
            host: None,
            is_ours: false,
            method: method.map(|method| method.chars().take(100).collect()),
            tool: tool.map(|tool| tool.chars().take(100).collect()),
            host_id: None,
            child_id: None,
            len_bytes: message.bytes().len() as u64,
            took: None,
            outcome: (kind == TraceKind::Response).then(|| CallOutcome::of(message)),
            body: message.bytes().clone(),
        }
    }

    fn noise(direction: Direction, fault: &Fault) -> Self {
        Self {
            direction,
            kind: TraceKind::Noise,
            host: None,
            is_ours: false,
            method: None,
            tool: None,
            host_id: None,
            child_id: None,
            len_bytes: fault.len_bytes,
            took: None,
            outcome: None,
            body: fault.sample.clone(),
        }
    }
}

/// A host with the id that it gave to a request.
pub type Asked = (HostKey, RequestId);

/// A request that is followed to its answer.
#[derive(Clone, Debug)]
struct Followed {
    method: Option<Box<str>>,
    tool: Option<Box<str>>,
    /// When it arrived, then when it was written to the child.
    since: Moment,
    child_id: Option<RequestId>,
    /// Told of neither as written nor as waiting.
    unshown: Option<Box<Trace>>,
    /// The child has answered it, and that was told.
    is_answered: bool,
}

/// Follows what passes. Lines go in at all four sides, [`Trace`]s come out.
#[derive(Debug, Default)]
pub struct Tracer {
    requests: BTreeMap<Asked, Followed>,
    /// Requests of mcpd itself.
    own: BTreeMap<RequestId, Followed>,
    /// Requests that arrived in the turn at hand.
    fresh: Vec<Asked>,
    /// Notifications of hosts that were told and may yet pass on.
    passing: VecDeque<Box<str>>,
    /// Methods of notifications that the child itself sends.
    told: BTreeSet<Box<str>>,
    traces: VecDeque<Trace>,
    now: Moment,
}

impl Tracer {
    /// A host has sent a line.
    pub fn host_line(&mut self, host: HostKey, line: &Line, now: Moment) {
        self.now = now;
        match line {
            Line::Message(message) => self.host_message(host, message),
            Line::Batch(batch) => {
                for message in batch.messages() {
                    self.host_message(host, message);
                }
            }
            Line::Fault(fault) => self.tell(Trace {
                host: Some(host),
                ..Trace::noise(Direction::ToServer, fault)
            }),
        }
    }

    fn host_message(&mut self, host: HostKey, message: &Message) {
        let trace = |kind| Trace {
            host: Some(host),
            host_id: message.id().cloned(),
            ..Trace::of(Direction::ToServer, kind, message)
        };
        match (message.kind(), message.id()) {
            (Kind::Request, Some(id)) => {
                let trace = trace(TraceKind::Request);
                let asked = (host, id.clone());
                self.fresh.push(asked.clone());
                self.follow(asked, trace);
            }
            (Kind::Request | Kind::Invalid(_), _) => self.tell(trace(TraceKind::Noise)),
            (Kind::Notification, _) => {
                let trace = trace(TraceKind::Notification);
                self.passing.extend(trace.method.clone());
                if self.passing.len() > METHODS {
                    self.passing.pop_front();
                }
                self.tell(trace);
            }
            (Kind::Response, _) => self.tell(trace(TraceKind::Response)),
        }
    }

    /// Something was handed out to be written to the child; `asked` is whose request it is.
    pub fn child_frame(&mut self, frame: Bytes, asked: Option<Asked>, now: Moment) {
        self.now = now;
        let Some(message) = parse(frame) else { return };
        let trace = |kind| Trace {
            child_id: message.id().cloned(),
            ..Trace::of(Direction::ToServer, kind, &message)
        };
        match (message.kind(), asked) {
            (Kind::Request, Some(asked)) => self.request_written(asked, trace(TraceKind::Request)),
            (Kind::Request, None) => {
                let trace = trace(TraceKind::Request);
                let followed = self.followed(&trace);
                if let Some(id) = trace.child_id.clone() {
                    keep(&mut self.own, id, followed);
                }
                self.tell_ours(trace);
            }
            (Kind::Notification, _) => {
                let trace = trace(TraceKind::Notification);
                let passed = self
                    .passing
                    .iter()
                    .position(|one| Some(one) == trace.method.as_ref());
                match passed {
                    Some(at) => drop(self.passing.remove(at)),
                    None => self.tell_ours(trace),
                }
            }
            (Kind::Response | Kind::Invalid(_), _) => self.tell_ours(trace(TraceKind::Response)),
        }
    }

    fn request_written(&mut self, asked: Asked, trace: Trace) {
        let mut followed = self.followed(&trace);
        let (host, host_id) = asked.clone();
        if let Some(known) = self.requests.remove(&asked) {
            // What the host asked for, where the child was asked in another way.
            followed.method = known.method.or(followed.method);
            followed.tool = known.tool.or(followed.tool);
        }
        keep(&mut self.requests, asked, followed);
        self.tell(Trace {
            host: Some(host),
            host_id: Some(host_id),
            ..trace
        });
    }

    /// The child has written a line; `asked` is whose request it answers or belongs to.
    pub fn child_line(&mut self, line: &Line, asked: Option<Asked>, now: Moment) {
        self.now = now;
        match line {
            Line::Message(message) => self.child_message(message, asked),
            Line::Batch(batch) => {
                for message in batch.messages() {
                    self.child_message(message, None);
                }
            }
            Line::Fault(fault) => self.tell(Trace::noise(Direction::ToHost, fault)),
        }
    }

    fn child_message(&mut self, message: &Message, asked: Option<Asked>) {
        let trace = |kind| Trace {
            child_id: message.id().cloned(),
            host: asked.as_ref().map(|(host, _)| *host),
            ..Trace::of(Direction::ToHost, kind, message)
        };
        match message.kind() {
            Kind::Request => self.tell(trace(TraceKind::Request)),
            Kind::Notification => {
                let trace = trace(TraceKind::Notification);
                if self.told.len() < METHODS {
                    self.told.extend(trace.method.clone());
                }
                self.tell(trace);
            }
            Kind::Response => {
                let trace = trace(TraceKind::Response);
                match asked {
                    Some(asked) => self.answered(asked, trace),
                    None => self.own_answered(trace),
                }
            }
            Kind::Invalid(_) => self.tell(trace(TraceKind::Noise)),
        }
    }

    fn answered(&mut self, asked: Asked, mut trace: Trace) {
        let mut followed = match self.requests.remove(&asked) {
            Some(followed) => {
                trace.took = Some(self.now.since(followed.since));
                followed
            }
            // It was written before anybody looked.
            None => self.followed(&trace),
        };
        followed.is_answered = true;
        trace.method.clone_from(&followed.method);
        trace.tool.clone_from(&followed.tool);
        trace.host_id = Some(asked.1.clone());
        keep(&mut self.requests, asked, followed);
        self.tell(trace);
    }

    fn own_answered(&mut self, mut trace: Trace) {
        let known = trace.child_id.as_ref().and_then(|id| self.own.remove(id));
        if let Some(known) = known {
            trace.took = Some(self.now.since(known.since));
            trace.method = known.method;
            return self.tell_ours(trace);
        }
        self.tell(trace);
    }

    /// Something was handed out to be written to a host.
    pub fn host_frame(&mut self, host: HostKey, frame: Bytes, now: Moment) {
        self.now = now;
        // The elements of an array were told when the child said them.
        let Some(message) = parse(frame) else { return };
        let trace = |kind| Trace {
            host: Some(host),
            host_id: message.id().cloned(),
            ..Trace::of(Direction::ToHost, kind, &message)
        };
        match message.kind() {
            Kind::Request => self.tell_ours(trace(TraceKind::Request)),
            Kind::Notification => {
                let trace = trace(TraceKind::Notification);
                if !trace
                    .method
                    .as_ref()
                    .is_some_and(|method| self.told.contains(method))
                {
                    self.tell_ours(trace);
                }
            }
            Kind::Response | Kind::Invalid(_) => {
                self.answer_handed_out(host, trace(TraceKind::Response));
            }
        }
    }

    fn answer_handed_out(&mut self, host: HostKey, mut trace: Trace) {
        let asked = trace.host_id.clone().map(|id| (host, id));
        let followed = asked.and_then(|asked| self.requests.remove(&asked));
        if let Some(mut followed) = followed {
            if followed.is_answered {
                return;
            }
            if let Some(request) = followed.unshown.take() {
                self.tell(*request);
            }
            trace.took = Some(self.now.since(followed.since));
            trace.method = followed.method;
            trace.tool = followed.tool;
            trace.child_id = followed.child_id;
        }
        self.tell_ours(trace);
    }

    /// All that follows from the events so far has happened: requests that were neither passed on
    /// nor answered wait.
    pub fn end_turn(&mut self) {
        for asked in std::mem::take(&mut self.fresh) {
            let unshown = self
                .requests
                .get_mut(&asked)
                .and_then(|one| one.unshown.take());
            if let Some(request) = unshown {
                self.tell(Trace {
                    kind: TraceKind::Waiting,
                    ..*request
                });
            }
        }
    }

    /// A host has gone: nothing of it is answered any more.
    pub fn host_gone(&mut self, host: HostKey) {
        self.requests.retain(|(of, _), _| *of != host);
    }

    /// What there is to tell, oldest first.
    pub fn poll(&mut self) -> Option<Trace> {
        self.traces.pop_front()
    }

    fn follow(&mut self, asked: Asked, trace: Trace) {
        let mut followed = self.followed(&trace);
        followed.child_id = None;
        followed.unshown = Some(Box::new(trace));
        keep(&mut self.requests, asked, followed);
    }

    fn followed(&self, trace: &Trace) -> Followed {
        Followed {
            method: trace.method.clone(),
            tool: trace.tool.clone(),
            since: self.now,
            child_id: trace.child_id.clone(),
            unshown: None,
            is_answered: false,
        }
    }

    fn tell(&mut self, trace: Trace) {
        self.traces.push_back(trace);
    }

    fn tell_ours(&mut self, trace: Trace) {
        self.tell(Trace {
            is_ours: true,
            ..trace
        });
    }
}

impl Mux {
    /// Whose request the child knows by this id.
    pub fn asker_of(&self, child_id: &RequestId) -> Option<Asked> {
        let key = self.requests.of_upstream(child_id)?;
        let asker = self.requests.get(key)?.host()?;
        Some((asker.host, asker.id.clone()))
    }

    /// Whose request a line of the child answers, or tells the progress of.
    pub fn asker_of_line(&self, line: &Line) -> Option<Asked> {
        let Line::Message(message) = line else {
            return None;
        };
        match message.kind() {
            Kind::Response => self.asker_of(message.id()?),
            Kind::Notification => {
                let token = message.value(Member::ParamsProgressToken)?;
                self.asker_of(&RequestId::parse(token)?)
            }
            Kind::Request | Kind::Invalid(_) => None,
        }
    }

    /// What a host calls itself, and its process.
    pub fn host_name(&self, host: HostKey) -> (Option<&str>, Option<u32>) {
        let info = self.hosts.get(&host).map(|attachment| &attachment.info);
        let client = info.and_then(|info| info.client.as_deref());
        (client, info.and_then(|info| info.pid))
    }
}

/// Keeps one more, at the cost of the first where there are too many.
fn keep<K: Ord>(table: &mut BTreeMap<K, Followed>, key: K, followed: Followed) {
    if table.len() >= FOLLOWED {
        table.pop_first();
    }
    table.insert(key, followed);
}

/// The message in a frame, without its newline.
fn parse(frame: Bytes) -> Option<Message> {
    let len = frame.len().checked_sub(1)?;
    Message::parse(frame.slice(..len))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::LineReader;

    const A: HostKey = HostKey(1);

    fn line(text: &str) -> Line {
        let mut reader = LineReader::new(1 << 20);
        reader.feed(text.as_bytes());
        reader.feed(b"\n");
        reader.poll().expect("a line")
    }

    fn frame(text: &str) -> Bytes {
        format!("{text}\n").into()
    }

    fn id(text: &str) -> RequestId {
        RequestId::parse(text.as_bytes()).expect("an id")
    }

    fn at(ms: u64) -> Moment {
        Moment::ZERO + Duration::from_millis(ms)
    }

    /// What was told, a line each: direction, kind, host's id, child's id, method, time, outcome.
    fn told(tracer: &mut Tracer) -> Vec<String> {
        let raw = |id: Option<RequestId>| {
            id.map_or_else(
                || "-".to_owned(),
                |id| String::from_utf8_lossy(id.raw()).into_owned(),
            )
        };
        std::iter::from_fn(|| tracer.poll())
            .map(|trace| {
                let by = if trace.is_ours { " mcpd" } else { "" };
                let took = trace.took.map(|took| format!(" {}ms", took.as_millis()));
                let outcome = trace.outcome.map(|outcome| format!(" {outcome:?}"));
                format!(
                    "{:?} {:?}{by} {}:{} {}{}{}",
                    trace.direction,
                    trace.kind,
                    raw(trace.host_id),
                    raw(trace.child_id),
                    trace.method.as_deref().unwrap_or("-"),
                    took.unwrap_or_default(),
                    outcome.unwrap_or_default()
                )
            })
            .collect()
    }

    const CALL: &str =
        r#"{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"add"}}"#;
    const WRITTEN: &str =
        r#"{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"add"}}"#;
    const ANSWER: &str = r#"{"jsonrpc":"2.0","id":5,"result":{}}"#;
    const DELIVERED: &str = r#"{"jsonrpc":"2.0","id":"a","result":{}}"#;

    #[test]
    fn a_call_that_passes_is_two_lines_with_both_ids() {
        let mut tracer = Tracer::default();
        let asked = Some((A, id("\"a\"")));
        tracer.host_line(A, &line(CALL), at(0));
        tracer.child_frame(frame(WRITTEN), asked.clone(), at(2));
        tracer.end_turn();
        tracer.child_line(&line(ANSWER), asked, at(9));
        tracer.host_frame(A, frame(DELIVERED), at(9));
        tracer.end_turn();
        assert_eq!(
            told(&mut tracer),
            [
                "ToServer Request \"a\":5 tools/call",
                "ToHost Response \"a\":5 tools/call 7ms Done"
            ]
        );
        assert!(tracer.requests.is_empty() && tracer.own.is_empty());
    }

    #[test]
    fn a_call_that_waits_is_told_and_told_again_when_it_goes() {
        let mut tracer = Tracer::default();
        tracer.host_line(A, &line(CALL), at(0));
        tracer.end_turn();
        tracer.child_frame(frame(WRITTEN), Some((A, id("\"a\""))), at(50));
        assert_eq!(
            told(&mut tracer),
            [
                "ToServer Waiting \"a\":- tools/call",
                "ToServer Request \"a\":5 tools/call"
            ]
        );
        let lost = r#"{"jsonrpc":"2.0","id":"a","error":{"code":-31001,"message":"x"}}"#;
        tracer.host_frame(A, frame(lost), at(60));
        assert_eq!(
            told(&mut tracer),
            ["ToHost Response mcpd \"a\":5 tools/call 10ms Refused(-31001)"]
        );
    }

    #[test]
    fn what_mcpd_answers_and_asks_itself_is_told_as_its_own() {
        let mut tracer = Tracer::default();
        let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
        tracer.host_line(A, &line(ping), at(0));
        tracer.host_frame(A, frame(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#), at(0));
        tracer.end_turn();
        tracer.child_frame(frame(ping), None, at(1));
        tracer.child_line(
            &line(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#),
            None,
            at(3),
        );
        assert_eq!(
            told(&mut tracer),
            [
                "ToServer Request 1:- ping",
                "ToHost Response mcpd 1:- ping 0ms Done",
                "ToServer Request mcpd -:1 ping",
                "ToHost Response mcpd -:1 ping 2ms Done",
            ]
        );
    }

    #[test]
    fn a_notification_is_told_once_either_way() {
        let mut tracer = Tracer::default();
        let cancelled =
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
        tracer.host_line(A, &line(cancelled), at(0));
        tracer.child_frame(frame(cancelled), None, at(0));
        tracer.child_frame(frame(cancelled), None, at(0));
        let log = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{}}"#;
        tracer.child_line(&line(log), None, at(1));
        tracer.host_frame(A, frame(log), at(1));
        let changed = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
        tracer.host_frame(A, frame(changed), at(2));
        tracer.child_line(&line("banner"), None, at(3));
        assert_eq!(
            told(&mut tracer),
            [
                "ToServer Notification -:- notifications/cancelled",
                "ToServer Notification mcpd -:- notifications/cancelled",
                "ToHost Notification -:- notifications/message",
                "ToHost Notification mcpd -:- notifications/tools/list_changed",
                "ToHost Noise -:- -",
            ]
        );
    }

    #[test]
    fn an_answer_to_what_was_asked_before_anybody_looked_is_told_once() {
        let mut tracer = Tracer::default();
        tracer.child_line(&line(ANSWER), Some((A, id("\"a\""))), at(9));
        tracer.host_frame(A, frame(DELIVERED), at(9));
        assert_eq!(told(&mut tracer), ["ToHost Response \"a\":5 - Done"]);
        tracer.host_line(A, &line(CALL), at(10));
        tracer.host_gone(A);
        tracer.end_turn();
        assert!(tracer.requests.is_empty() && told(&mut tracer).is_empty());
    }
}
