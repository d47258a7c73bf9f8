//! Whether a request of a host is answered here, refused, or waits for the child.
//!
//! Decides only: the order in which rules take precedence, and what a request is for. `from_host`
//! does what is decided. Sources: MCP 2025-11-25 `basic/lifecycle`, `basic/utilities/*`, `server/*`.

use bytes::Bytes;

use super::action::MuxAction;
use super::answers::Failure;
use super::attach::Session;
use super::catalogue::{CURSOR_LIMIT_BYTES, ListKind};
use super::eras::RoundKey;
use super::levels::Level;
use super::limits::{OPEN_PER_CHILD, OPEN_PER_HOST};
use super::mux::Mux;
use super::requests::{BatchKey, Purpose};
use super::service::{HoldCause, Refusal, Service, refusal};
use super::subscriptions::{Holder, Next, URI_LIMIT_BYTES, Uri};
use crate::ids::HostKey;
use crate::protocol::eras::era_of;
use crate::protocol::id::ID_LIMIT_BYTES;
use crate::protocol::{Era, ErrorCode, Member, Message, RequestId, json};

/// A request of a host while it is looked at.
#[derive(Clone, Debug)]
pub(super) struct Incoming {
    pub(super) host: HostKey,
    pub(super) id: RequestId,
    pub(super) batch: Option<BatchKey>,
    pub(super) message: Message,
}

/// What is to be done with a request after a look at it.
pub(super) enum Decision {
    /// It is answered here with this result.
    Answer(&'static [u8]),
    /// It is answered here with this result, which a child has given before.
    Recall(Vec<u8>),
    Refuse(Failure),
    /// It waits for the child, for this purpose.
    Forward(Purpose),
    /// It comes back with an answer to a question.
    Retry(RoundKey),
}

/// What the requests of MCP are called, of every version; its notifications are all called
/// `notifications/…`.
const REQUESTS: &[&str] = &[
    "completion/",
    "elicitation/",
    "initialize",
    "logging/",
    "ping",
    "prompts/",
    "resources/",
    "roots/",
    "sampling/",
    "server/",
    "subscriptions/",
    "tasks/",
    "tools/",
];

/// Whether a method is one that wants an answer. A message of it without an id is none that MCP
/// knows, and a peer that looks at the method alone would do it, past every rule that there is for
/// requests.
pub(super) fn is_request_method(method: &str) -> bool {
    REQUESTS.iter().any(|name| match name.strip_suffix('/') {
        Some(_) => method.starts_with(name),
        None => method == *name,
    })
}

impl Mux {
    /// Looks at a request in the order in which rules take precedence: those of JSON-RPC, those of
    /// the handshake, those of the server's settings, limits, and last whether a child can come.
    pub(super) fn decide(&mut self, incoming: &Incoming) -> Decision {
        let message = &incoming.message;
        if let Some(complaint) = self.envelope_complaint(incoming) {
            return Decision::Refuse(Failure::of_message(ErrorCode::INVALID_REQUEST, complaint));
        }
        let method = message.method().unwrap_or_default();
        let era = era_of(message);
        if let Some(decision) = decide_by_era(method, era) {
            return decision;
        }
        if era == Era::Modern
            && let Some(failure) = self.metadata_complaint(incoming)
        {
            return Decision::Refuse(failure);
        }
        if method == "initialize" {
            return self.decide_initialize(incoming);
        }
        if era == Era::Legacy && self.session_of(incoming.host) == Session::New {
            // Where nobody can serve, an `initialize` was refused too: what follows hears the same
            // reason, not that it came too early.
            if let Some(refusal) = self.refusal_on_arrival() {
                return Decision::Refuse(Failure::refused(refusal, &self.config.server));
            }
            return invalid_params(format!("`{method}` may not come before `initialize`"));
        }
        if era == Era::Legacy && matches!(method, "server/discover" | "subscriptions/listen") {
            return Decision::Refuse(Failure::of_message(
                ErrorCode::METHOD_NOT_FOUND,
                format!("`{method}` needs the metadata of MCP 2026-07-28 in `_meta`"),
            ));
        }
        if let Some(failure) = self.tool_complaint(method, message) {
            return Decision::Refuse(failure);
        }
        if era == Era::Modern
            && let Some(round) = self.round_of(incoming)
        {
            return Decision::Retry(round);
        }
        if era == Era::Legacy
            && let Some(result) = self.recall_list(method, incoming)
        {
            return Decision::Recall(result);
        }
        if let Some(failure) = self.cannot_wait(incoming.host, message) {
            return Decision::Refuse(failure);
        }
        self.decide_purpose(method, incoming)
    }

    fn envelope_complaint(&self, incoming: &Incoming) -> Option<String> {
        if !incoming.message.is_jsonrpc_two() {
            return Some("`jsonrpc` is not \"2.0\"".to_owned());
        }
        let method = incoming.message.method().unwrap_or_default();
        if method.starts_with("notifications/") {
            // A child that looks at the method alone would take a foreign id or token from it.
            return Some(format!("`{method}` is a notification and has no id"));
        }
        let token = incoming.message.value(Member::MetaProgressToken);
        if token.is_some_and(|token| token.len() > ID_LIMIT_BYTES) {
            return Some("the progress token is longer than 64 KiB".to_owned());
        }
        let (host, id) = (incoming.host, &incoming.id);
        let is_open =
            self.requests.of_host(host, id).is_some() || self.listens.of_host(host, id).is_some();
        is_open.then(|| "a request with this id is open already".to_owned())
    }

    /// `initialize`: the version that the host asks for.
    fn decide_initialize(&mut self, incoming: &Incoming) -> Decision {
        if incoming.batch.is_some() {
            let failure = Failure::of_message(
                ErrorCode::INVALID_REQUEST,
                "`initialize` may not stand in a batch",
            );
            return Decision::Refuse(failure);
        }
        let params = incoming.message.value(Member::Params).unwrap_or_default();
        let asked =
            json::find_member(params, "protocolVersion").and_then(|entry| json::text(entry.value));
        let Some(asked) = asked else {
            return invalid_params(
                "`params.protocolVersion` is missing or is no string".to_owned(),
            );
        };
        let is_welcomed = self.known_welcome().is_some();
        if !is_welcomed && let Some(failure) = self.cannot_wait(incoming.host, &incoming.message) {
            return Decision::Refuse(failure);
        }
        Decision::Forward(Purpose::Initialize {
            asked: asked.chars().take(40).collect(),
        })
    }

    /// What `[tools]` says against a request.
    fn tool_complaint(&self, method: &str, message: &Message) -> Option<Failure> {
        if method != "tools/call" || self.config.tools.is_empty() {
            return None;
        }
        let Some(name) = message.text(Member::ParamsName) else {
            let complaint = "`params.name` is missing or is no string";
            return Some(Failure::of_message(ErrorCode::INVALID_PARAMS, complaint));
        };
        if self.config.tools.allows(&name) {
            return None;
        }
        let server = &self.config.server;
        Some(Failure::of_server(
            ErrorCode::NOT_ALLOWED,
            server,
            format!("the tool is not allowed by [tools] of server {server}"),
            &serde_json::json!({ "tool": name.chars().take(200).collect::<String>() }),
        ))
    }

    /// Why a request cannot wait for the child: a table is full, or no child will come in time.
    fn cannot_wait(&mut self, host: HostKey, message: &Message) -> Option<Failure> {
        let open = self.requests.count_of(host) + self.listens.count_of(host);
        let full = if open >= OPEN_PER_HOST {
            Some(format!("this host has {OPEN_PER_HOST} requests open"))
        } else if self.requests.len() >= OPEN_PER_CHILD {
            Some(format!("the server has {OPEN_PER_CHILD} requests open"))
        } else if !self.queue.has_room(message, true) {
            Some("the server does not read and its queue is full".to_owned())
        } else {
            None
        };
        if let Some(full) = full {
            let code = ErrorCode::OVERLOADED;
            return Some(Failure::of_server(
                code,
                &self.config.server,
                full,
                &serde_json::Value::Null,
            ));
        }
        if self.needs_start() && !self.actions.contains(&MuxAction::Demand) {
            self.act(MuxAction::Demand);
        }
        let refusal = self.refusal_on_arrival()?;
        Some(Failure::refused(refusal, &self.config.server))
    }

    /// Whether somebody has to bring a child up. One that is ended because nobody needed it is as
    /// good as none; one that is ended on an order is followed by the next without a word.
    fn needs_start(&self) -> bool {
        let starting = HoldCause::Starting;
        match &self.child {
            None => true,
            Some(child) if child.drain.is_some() => {
                matches!(&self.service, Service::Holding(hold) if hold.cause == starting)
            }
            Some(_) => false,
        }
    }

    /// Why a request that arrives now is refused at once.
    pub(super) fn refusal_on_arrival(&self) -> Option<Refusal> {
        let is_final = matches!(self.service, Service::Unavailable(_) | Service::Stopping);
        if self.is_writable() && !is_final {
            return None;
        }
        let start_timeout = self.config.start_timeout;
        refusal(
            &self.service,
            &self.config.server,
            start_timeout,
            self.now + start_timeout,
            self.now,
        )
    }

    /// What a request is for, and whether it changes anything for the child.
    fn decide_purpose(&mut self, method: &str, incoming: &Incoming) -> Decision {
        let message = &incoming.message;
        match method {
            "logging/setLevel" => self.decide_level(incoming),
            "resources/subscribe" | "resources/unsubscribe" => {
                let Some(uri) = uri_of(message) else {
                    return invalid_params(format!(
                        "`params.uri` is missing, no string, or longer than {URI_LIMIT_BYTES} bytes"
                    ));
                };
                self.decide_subscription(method == "resources/subscribe", incoming.host, uri)
            }
            _ => match ListKind::ALL
                .into_iter()
                .find(|kind| kind.method() == method)
            {
                Some(kind) => decide_list(kind, message),
                None => Decision::Forward(Purpose::Call),
            },
        }
    }

    fn decide_level(&mut self, incoming: &Incoming) -> Decision {
        let level = incoming.message.text(Member::ParamsLevel);
        let Some(asked) = level.as_deref().and_then(Level::parse) else {
            return invalid_params("`params.level` is none of the eight log levels".to_owned());
        };
        self.levels.join(incoming.host);
        if self.is_writable() && self.levels.has_already(incoming.host, asked) {
            self.levels.set(incoming.host, Some(asked));
            self.note_level(incoming.host);
            return Decision::Answer(b"{}");
        }
        self.levels.note_open();
        Decision::Forward(Purpose::SetLevel { asked, sent: None })
    }

    fn decide_subscription(&mut self, is_subscribe: bool, host: HostKey, uri: Uri) -> Decision {
        let next = if is_subscribe {
            self.subscriptions.subscribe(Holder::host(host), &uri)
        } else {
            self.subscriptions
                .unsubscribe(Holder::host(host), &uri.text)
        };
        if !is_subscribe || next == Next::AnswerHere {
            self.note_subscription(host, &uri, is_subscribe);
        }
        match next {
            Next::AnswerHere => Decision::Answer(b"{}"),
            Next::Refuse => Decision::Refuse(Failure::of_server(
                ErrorCode::OVERLOADED,
                &self.config.server,
                "this host holds too many subscriptions",
                &serde_json::Value::Null,
            )),
            Next::Forward if is_subscribe => Decision::Forward(Purpose::Subscribe(uri)),
            Next::Forward => Decision::Forward(Purpose::Unsubscribe(uri)),
        }
    }
}

/// What is decided by era alone.
fn decide_by_era(method: &str, era: Era) -> Option<Decision> {
    let not_found = |what: String| {
        Some(Decision::Refuse(Failure::of_message(
            ErrorCode::METHOD_NOT_FOUND,
            what,
        )))
    };
    match (era, method) {
        (
            Era::Modern,
            "initialize"
            | "ping"
            | "logging/setLevel"
            | "resources/subscribe"
            | "resources/unsubscribe"
            | "tasks/list"
            | "tasks/result",
        ) => not_found(format!(
            "`{method}` is not part of the version that the request names"
        )),
        (Era::Legacy, "ping") => Some(Decision::Answer(b"{}")),
        (Era::Legacy, _) if method.starts_with("tasks/") => {
            not_found("tasks are not offered by a server that hosts share".to_owned())
        }
        _ => None,
    }
}

fn invalid_params(complaint: String) -> Decision {
    Decision::Refuse(Failure::of_message(ErrorCode::INVALID_PARAMS, complaint))
}

fn uri_of(message: &Message) -> Option<Uri> {
    let raw = message.value(Member::ParamsUri)?;
    let text = message.text(Member::ParamsUri)?;
    (raw.len() <= URI_LIMIT_BYTES).then(|| Uri {
        text: text.into_owned(),
        raw: Bytes::copy_from_slice(raw),
    })
}

fn decide_list(kind: ListKind, message: &Message) -> Decision {
    let params = message.value(Member::Params).unwrap_or_default();
    let cursor = json::find_member(params, "cursor").map(|entry| entry.value);
    if cursor.is_some_and(|cursor| cursor.len() > CURSOR_LIMIT_BYTES) {
        return invalid_params(format!(
            "`params.cursor` is longer than {CURSOR_LIMIT_BYTES} bytes"
        ));
    }
    let cursor = cursor.map(Bytes::copy_from_slice);
    Decision::Forward(Purpose::List { kind, cursor })
}
