//! A legacy host with a modern child: requests, answers and notifications.
//!
//! Decides what of a legacy request reaches the child, and what the host is told of its answer.
//! What the child still wants to know first is in `consulting`, subscriptions and list changes are
//! in `stream`. Sources: MCP 2026-07-28 `basic/index`, `server/*`, `basic/patterns/*`.

use bytes::Bytes;

use crate::ids::HostKey;
use crate::protocol::eras::for_modern::{Client, dress_request};
use crate::protocol::eras::legacy_result::{project_tool_result, project_tools};
use crate::protocol::eras::result::may_ask;
use crate::protocol::{ErrorCode, Frame, Member, Message, Outcome, Span, Splice, json};
use crate::session::answers::{Failure, Fate};
use crate::session::catalogue::ListKind;
use crate::session::levels::Level;
use crate::session::mux::Mux;
use crate::session::queue::Queued;
use crate::session::requests::{HostAsker, OpenRequest, Purpose, RequestKey, UpstreamId};

/// Tools of which is known whether their output is wrapped.
const WRAPPED_LIMIT: usize = 10_000;

impl Mux {
    /// A legacy request has its turn and the child is modern: what is written to the child, if
    /// anything is.
    pub(in crate::session) fn write_for_modern_child(
        &mut self,
        key: RequestKey,
        queued: &Queued,
    ) -> Option<Frame> {
        let purpose = self.requests.get(key)?.purpose.clone();
        match purpose {
            Purpose::SetLevel { asked, .. } => self.keep_level(key, queued.host, asked),
            Purpose::Subscribe(uri) => self.subscribe_by_stream(key, queued.host, uri),
            Purpose::Unsubscribe(_) if self.has_subscriptions() => {
                self.grant_here(key, b"{}");
                self.refresh_stream();
            }
            Purpose::Unsubscribe(_) => self.fail(key, &not_offered("resources/unsubscribe")),
            _ => {
                let message = &queued.message;
                if may_ask(message.method().unwrap_or_default()) {
                    self.keep_for_retry(key, queued.host, message);
                }
                return self.write_dressed(key, message, &[]);
            }
        }
        None
    }

    /// A legacy request in modern dress. `extra` are further members of its `params`.
    pub(super) fn write_dressed(
        &mut self,
        key: RequestKey,
        message: &Message,
        extra: &[Vec<u8>],
    ) -> Option<Frame> {
        let deadline = self
            .config
            .request_timeout
            .map(|timeout| self.now + timeout);
        let host = self.requests.get(key)?.caller()?;
        let UpstreamId(id) = self.requests.mark_written(key, deadline)?;
        let attachment = self.hosts.get(&host)?;
        let id = id.to_string();
        let mut splice = Splice::of(message);
        splice.replace_member(Member::Id, id.as_bytes());
        splice.replace_member(Member::MetaProgressToken, id.as_bytes());
        let client = Client {
            info: &attachment.client_info,
            capabilities: &attachment.capabilities,
            level: self.levels.of(host).map(Level::as_str),
        };
        dress_request(&mut splice, message, &client, extra);
        Some(splice.finish_in(&mut self.arena))
    }

    /// A level goes with each request, so that the child need not be told of it by itself.
    fn keep_level(&mut self, key: RequestKey, host: HostKey, asked: Level) {
        let has_logging = self
            .identity
            .as_ref()
            .is_some_and(|identity| identity.offers("logging"));
        if !has_logging {
            return self.fail(key, &not_offered("logging/setLevel"));
        }
        let sent = self.levels.note_written(host, asked);
        self.requests.note_sent_level(key, sent);
        self.grant_here(key, b"{}");
    }

    /// Whether the child declares that it tells of updates of resources.
    pub(super) fn has_subscriptions(&self) -> bool {
        self.identity
            .as_ref()
            .is_some_and(|identity| identity.declares("resources", "subscribe"))
    }

    /// The child's answer as a legacy host gets it. `edits` are those of its result that stand for
    /// denied tools; the answer is well formed.
    pub(in crate::session) fn answer_for_legacy_host(
        &mut self,
        request: &OpenRequest,
        asker: &HostAsker,
        message: &Message,
        edits: &[(Span, Vec<u8>)],
    ) -> Frame {
        let mut splice = Splice::of(message);
        splice.replace_member(Member::Id, asker.id.raw());
        if message.outcome() != Some(Outcome::Result) {
            let error = message.span(Member::Error).unwrap_or_default();
            let code = message
                .value(Member::Error)
                .and_then(|error| json::find_member(error, "code"))
                .filter(|entry| is_modern_code(entry.value));
            if let Some(entry) = code {
                let code = ErrorCode::INTERNAL_ERROR.to_string();
                splice.replace(entry.span.within(error), code.as_bytes());
            }
            return splice.finish_in(&mut self.arena);
        }
        let span = message.span(Member::Result).unwrap_or_default();
        let result = message.value(Member::Result).unwrap_or_default();
        let is_tools = matches!(
            request.purpose,
            Purpose::List {
                kind: ListKind::Tools,
                ..
            }
        );
        if is_tools {
            if let Some(entry) = json::find_member(result, "tools") {
                let kept = edits.iter().find(|(place, _)| *place == entry.span);
                let array = kept.map_or(entry.value, |(_, kept)| kept);
                let tools = project_tools(array);
                for (name, is_wrapped) in tools.wrapped {
                    self.note_wrapped(name, is_wrapped);
                }
                splice.replace(entry.span.within(span), &tools.array);
            }
        } else if &*request.method == "tools/call" {
            let is_wrapped = request
                .tool
                .as_ref()
                .is_some_and(|name| self.wrapped_tools.contains(&**name));
            if let Some(projected) = project_tool_result(result, is_wrapped) {
                splice.replace(span, &projected);
            }
        }
        splice.finish_in(&mut self.arena)
    }

    fn note_wrapped(&mut self, name: String, is_wrapped: bool) {
        if !is_wrapped {
            self.wrapped_tools.remove(&name);
        } else if self.wrapped_tools.len() < WRAPPED_LIMIT {
            self.wrapped_tools.insert(name);
        }
    }

    /// Takes a notification of a modern child whose session is open.
    pub(in crate::session) fn modern_child_notification(&mut self, message: &Message) {
        match message.method().unwrap_or_default() {
            "notifications/progress" if !self.is_ahead(message) => self.counters.dropped += 1,
            "notifications/progress" => self.child_progress(message),
            "notifications/subscriptions/acknowledged" => self.stream_acknowledged(message),
            "notifications/cancelled" => self.stream_cancelled(message),
            _ if message.has(Member::MetaSubscriptionId) => self.stream_event(message),
            _ => self.counters.dropped += 1,
        }
    }

    /// Whether a value of progress is above the last one that went out for its request.
    fn is_ahead(&mut self, message: &Message) -> bool {
        let token = message
            .value(Member::ParamsProgressToken)
            .and_then(crate::protocol::RequestId::parse);
        let Some(key) = token.and_then(|token| self.requests.of_upstream(&token)) else {
            return true;
        };
        let params = message.value(Member::Params).unwrap_or_default();
        let value = json::find_member(params, "progress")
            .and_then(|entry| std::str::from_utf8(entry.value).ok())
            .and_then(|text| text.parse::<f64>().ok());
        match value {
            Some(value) => self.requests.advance(key, value),
            None => true,
        }
    }

    /// Answers a request of a host from here with a result, and settles what hung on it.
    pub(super) fn grant_here(&mut self, key: RequestKey, result: &[u8]) {
        let Some(request) = self.take_request(key) else {
            return;
        };
        if let Some(asker) = request.host() {
            let (host, batch, id) = (asker.host, asker.batch, asker.id.clone());
            self.answer_here(host, batch, &id, result);
        }
        self.close(&request, Fate::Granted);
    }
}

/// The codes that only the modern era knows (2026-07-28 `basic/index`, Error Codes).
fn is_modern_code(code: &[u8]) -> bool {
    std::str::from_utf8(code)
        .ok()
        .and_then(|code| code.parse::<i64>().ok())
        .is_some_and(|code| (-32099..=-32020).contains(&code))
}

pub(super) fn not_offered(method: &str) -> Failure {
    Failure::of_message(
        ErrorCode::METHOD_NOT_FOUND,
        format!("the server does not offer `{method}`"),
    )
}

/// `error` of a host as an error of ours.
pub(super) fn failure_of(error: &[u8]) -> Failure {
    let part = |name| json::find_member(error, name).map(|entry| entry.value);
    let code = part("code")
        .and_then(|code| std::str::from_utf8(code).ok())
        .and_then(|code| code.parse().ok());
    let message = part("message").and_then(json::text);
    Failure {
        code: code.map_or(ErrorCode::INTERNAL_ERROR, ErrorCode),
        message: message.map_or_else(
            || "the host answered with an error that has no message".to_owned(),
            |message| message.into_owned(),
        ),
        data: part("data").map(<[u8]>::to_vec),
    }
}

/// The line without the id of the stream that it came on: a legacy host knows of none.
pub(super) fn without_stream(message: &Message) -> Option<Message> {
    let mut splice = Splice::of(message);
    splice.remove_member(Member::MetaSubscriptionId);
    let line = splice.finish().to_vec();
    let line = line.strip_suffix(b"\n")?;
    Message::parse(Bytes::copy_from_slice(line))
}
