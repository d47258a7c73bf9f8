//! What a line of a host means.
//!
//! Decides what is answered here, what is refused, and what waits for the child. Sources: MCP
//! 2025-11-25 `basic/lifecycle`, `basic/utilities/*`, `server/*`; JSON-RPC 2.0.

use bytes::Bytes;

use super::action::MuxAction;
use super::answers::Failure;
use super::attach::Session;
use super::batch::BatchAnswer;
use super::catalogue::{CURSOR_LIMIT_BYTES, ListKind};
use super::levels::Level;
use super::limits::{OPEN_PER_CHILD, OPEN_PER_HOST};
use super::mux::Mux;
use super::queue::Queued;
use super::requests::{
    Asker, BatchKey, HostAsker, OpenRequest, Progress, Purpose, RequestKey, UpstreamId,
};
use super::service::{Refusal, Service, refusal};
use super::subscriptions::{Next, URI_LIMIT_BYTES, Uri};
use crate::ids::HostKey;
use crate::protocol::id::ID_LIMIT_BYTES;
use crate::protocol::{
    Batch, BatchItem, ErrorCode, Fault, FaultReason, Kind, Line, Member, Message, RequestId,
    Splice, Version, json, negotiate,
};

/// A request of a host while it is looked at.
#[derive(Clone, Debug)]
struct Incoming {
    host: HostKey,
    id: RequestId,
    batch: Option<BatchKey>,
    message: Message,
}

/// What is to be done with a request after a look at it.
enum Decision {
    /// It is answered here with this result.
    Answer(&'static [u8]),
    Refuse(Failure),
    /// It waits for the child, for this purpose.
    Forward(Purpose),
}

impl Mux {
    /// Takes a line of a host that is attached.
    pub(super) fn host_line(&mut self, host: HostKey, line: Line) {
        match line {
            Line::Message(message) => self.host_message(host, message, None),
            Line::Batch(batch) => self.host_batch(host, batch),
            Line::Fault(fault) => self.host_fault(host, &fault),
        }
    }

    fn host_message(&mut self, host: HostKey, message: Message, batch: Option<BatchKey>) {
        match message.kind() {
            Kind::Request => {
                let Some(id) = message.id().cloned() else {
                    return;
                };
                self.host_request(Incoming {
                    host,
                    id,
                    batch,
                    message,
                });
            }
            Kind::Notification => self.host_notification(host, message),
            // No request of a child is ever passed on, so no host has one to answer.
            Kind::Response => self.counters.dropped += 1,
            Kind::Invalid(reason) => {
                let failure = Failure::of_message(ErrorCode::INVALID_REQUEST, reason.to_string());
                self.refuse(host, batch, message.id(), &failure);
            }
        }
    }

    /// An array. Only 2025-03-26 has them (`basic/index`, Batching); there, the answers to it make
    /// one array again.
    fn host_batch(&mut self, host: HostKey, batch: Batch) {
        let version = self
            .hosts
            .get(&host)
            .and_then(|attachment| attachment.version());
        let complaint = match version {
            Some(version) if !version.has_batches() => Some(format!(
                "MCP {version} has no batches: send one message a line"
            )),
            None => Some("a batch may not come before `initialize` was answered".to_owned()),
            Some(_) if batch.items.is_empty() => Some("the batch is empty".to_owned()),
            Some(_) => None,
        };
        if let Some(complaint) = complaint {
            let failure = Failure::of_message(ErrorCode::INVALID_REQUEST, complaint);
            return self.refuse(host, None, None, &failure);
        }
        self.last_batch += 1;
        let key = BatchKey(self.last_batch);
        if let Some(attachment) = self.hosts.get_mut(&host) {
            attachment.batches.insert(key, BatchAnswer::begin());
        }
        for item in batch.items {
            self.host_batch_item(host, key, item);
        }
        let answer = self
            .hosts
            .get_mut(&host)
            .and_then(|host| host.batches.get_mut(&key));
        if let Some(answer) = answer {
            answer.end_reading();
        }
        self.finish_batch(host, key);
    }

    fn host_batch_item(&mut self, host: HostKey, key: BatchKey, item: BatchItem) {
        match item {
            BatchItem::Message(message) => self.host_message(host, *message, Some(key)),
            BatchItem::Invalid(_) => {
                let failure = Failure::of_message(
                    ErrorCode::INVALID_REQUEST,
                    "an element of a batch must be an object",
                );
                self.refuse(host, Some(key), None, &failure);
            }
        }
    }

    /// A line that is no message. It is answered with its id if exactly one could be read; what
    /// looks like an answer is not answered.
    fn host_fault(&mut self, host: HostKey, fault: &Fault) {
        if !fault.ids.is_empty() && !fault.has_method {
            self.counters.dropped += 1;
            return;
        }
        let code = match fault.reason {
            FaultReason::TooLong => ErrorCode::MESSAGE_TOO_LARGE,
            FaultReason::TooDeep | FaultReason::BatchTooLong => ErrorCode::INVALID_REQUEST,
            _ => ErrorCode::PARSE_ERROR,
        };
        let id = match fault.ids.as_slice() {
            [id] => Some(id),
            _ => None,
        };
        let failure = Failure::of_message(code, fault.reason.to_string());
        self.refuse(host, None, id, &failure);
    }

    fn host_request(&mut self, incoming: Incoming) {
        self.counters.requests += 1;
        match self.decide(&incoming) {
            Decision::Answer(result) => {
                self.answer_here(incoming.host, incoming.batch, &incoming.id, result);
            }
            Decision::Refuse(failure) => {
                self.refuse(incoming.host, incoming.batch, Some(&incoming.id), &failure);
            }
            Decision::Forward(Purpose::Initialize { asked }) => {
                self.begin_initialize(incoming, asked);
            }
            Decision::Forward(purpose) => self.enqueue_request(incoming, purpose),
        }
    }

    /// Looks at a request in the order in which rules take precedence: those of JSON-RPC, those of
    /// the handshake, those of the server's settings, limits, and last whether a child can come.
    fn decide(&mut self, incoming: &Incoming) -> Decision {
        let message = &incoming.message;
        if let Some(complaint) = self.envelope_complaint(incoming) {
            return Decision::Refuse(Failure::of_message(ErrorCode::INVALID_REQUEST, complaint));
        }
        let method = message.method().unwrap_or_default();
        let is_modern = has_modern_version(message);
        if let Some(decision) = decide_by_era(method, is_modern) {
            return decision;
        }
        if method == "initialize" {
            return self.decide_initialize(incoming);
        }
        if self.session_of(incoming.host) == Session::New {
            return invalid_params(format!("`{method}` may not come before `initialize`"));
        }
        if let Some(failure) = self.tool_complaint(method, message) {
            return Decision::Refuse(failure);
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
        let token = incoming.message.value(Member::MetaProgressToken);
        if token.is_some_and(|token| token.len() > ID_LIMIT_BYTES) {
            return Some("the progress token is longer than 64 KiB".to_owned());
        }
        let is_open = self.requests.of_host(incoming.host, &incoming.id).is_some();
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
        let is_welcomed = self
            .child
            .as_ref()
            .is_some_and(|child| child.welcome.is_some());
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
        let full = if self.requests.count_of(host) >= OPEN_PER_HOST {
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
        if self.child.is_none() && !self.actions.contains(&MuxAction::Demand) {
            self.act(MuxAction::Demand);
        }
        let refusal = self.refusal_on_arrival()?;
        Some(Failure::refused(refusal, &self.config.server))
    }

    /// Why a request that arrives now is refused at once.
    fn refusal_on_arrival(&self) -> Option<Refusal> {
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
            return Decision::Answer(b"{}");
        }
        self.levels.note_open();
        Decision::Forward(Purpose::SetLevel { asked, sent: None })
    }

    fn decide_subscription(&mut self, is_subscribe: bool, host: HostKey, uri: Uri) -> Decision {
        let next = if is_subscribe {
            self.subscriptions.subscribe(host, &uri)
        } else {
            self.subscriptions.unsubscribe(host, &uri.text)
        };
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

    /// Answers `initialize` if the child has said what it is, else lets it wait for that.
    fn begin_initialize(&mut self, incoming: Incoming, asked: String) {
        self.note_client(&incoming);
        if let Some(child) = &self.child
            && let Some(welcome) = &child.welcome
        {
            let version = negotiate(&asked, welcome.version());
            let result = welcome.result_for(version);
            self.open_session(incoming.host, version);
            return self.answer_here(incoming.host, None, &incoming.id, &result);
        }
        if let Some(attachment) = self.hosts.get_mut(&incoming.host)
            && attachment.session == Session::New
        {
            attachment.session = Session::Asked;
        }
        self.open_request(incoming, Purpose::Initialize { asked }, false);
    }

    /// From here on the host may be told of things.
    pub(super) fn open_session(&mut self, host: HostKey, version: Version) {
        if let Some(attachment) = self.hosts.get_mut(&host) {
            attachment.session = Session::Open(version);
            self.levels.join(host);
        }
    }

    /// What the host calls itself, for `status`.
    fn note_client(&mut self, incoming: &Incoming) {
        let params = incoming.message.value(Member::Params).unwrap_or_default();
        let name = json::find_member(params, "clientInfo")
            .and_then(|info| json::find_member(info.value, "name"))
            .and_then(|name| json::text(name.value))
            .map(|name| name.chars().take(200).collect());
        if let (Some(attachment), Some(name)) = (self.hosts.get_mut(&incoming.host), name) {
            attachment.info.client = Some(name);
        }
    }

    fn enqueue_request(&mut self, incoming: Incoming, purpose: Purpose) {
        let is_call = is_call(&incoming.message);
        let is_limited = self.config.max_calls.is_some() && is_call;
        let (host, message) = (incoming.host, incoming.message.clone());
        let key = self.open_request(incoming, purpose, is_call);
        self.enqueue(
            key,
            Queued {
                host,
                message,
                is_limited,
                is_request: true,
            },
        );
    }

    fn enqueue(&mut self, key: RequestKey, queued: Queued) {
        self.hold(queued.host, queued.message.bytes().len() as u64);
        self.queue.push(key, queued);
    }

    /// Puts a request into the table, where it waits.
    fn open_request(&mut self, incoming: Incoming, purpose: Purpose, is_call: bool) -> RequestKey {
        let Incoming {
            host,
            id,
            batch,
            message,
        } = incoming;
        let answers = batch.and_then(|key| self.hosts.get_mut(&host)?.batches.get_mut(&key));
        if let Some(answers) = answers {
            answers.open();
        }
        let key = self.requests.next_key();
        let request = OpenRequest {
            asker: Asker::Host(HostAsker {
                host,
                id,
                batch,
                // Copied: a slice would keep the whole message for as long as the call is open.
                token: message
                    .value(Member::MetaProgressToken)
                    .map(Bytes::copy_from_slice),
            }),
            purpose,
            method: message
                .method()
                .unwrap_or_default()
                .chars()
                .take(100)
                .collect(),
            arrived: self.now,
            progress: Progress::Waiting,
            is_call,
            had_progress: false,
        };
        self.requests.insert(key, request);
        key
    }

    fn host_notification(&mut self, host: HostKey, message: Message) {
        let method = message.method().unwrap_or_default();
        match method {
            // Ours goes out once a child; the shared session is not the host's to begin.
            "notifications/initialized" => {}
            "notifications/cancelled" => self.host_cancelled(host, &message),
            // These belong to a child's requests, to roots and to tasks, none of which is offered.
            "notifications/progress"
            | "notifications/roots/list_changed"
            | "notifications/tasks/status" => self.counters.dropped += 1,
            _ => self.enqueue_notification(host, message),
        }
    }

    /// Any other notification waits with the requests, so that it keeps its place among them.
    fn enqueue_notification(&mut self, host: HostKey, message: Message) {
        let may_wait = message.is_jsonrpc_two()
            && self.session_of(host) != Session::New
            && self.queue.has_room(&message, false)
            && self.refusal_on_arrival().is_none();
        if !may_wait {
            self.counters.dropped += 1;
            return;
        }
        let key = self.requests.next_key();
        self.enqueue(
            key,
            Queued {
                host,
                message,
                is_limited: false,
                is_request: false,
            },
        );
    }

    /// The host wants no answer any more. What the child has seen it is told to stop; its
    /// `initialize` a host may not cancel (`basic/utilities/cancellation`), and others wait for the
    /// same start.
    fn host_cancelled(&mut self, host: HostKey, message: &Message) {
        let id = message
            .value(Member::ParamsRequestId)
            .and_then(RequestId::parse);
        let Some(key) = id.and_then(|id| self.requests.of_host(host, &id)) else {
            return;
        };
        let Some(request) = self.requests.get(key) else {
            return;
        };
        if matches!(request.purpose, Purpose::Initialize { .. }) {
            return;
        }
        if let Progress::Written {
            id: UpstreamId(id), ..
        } = request.progress
        {
            let mut splice = Splice::of(message);
            splice.replace_member(Member::ParamsRequestId, id.to_string().as_bytes());
            let frame = splice.finish_in(&mut self.arena);
            self.queue.push_reserved(frame);
        }
        self.drop_request(key);
    }

    fn session_of(&self, host: HostKey) -> Session {
        self.hosts
            .get(&host)
            .map_or(Session::New, |attachment| attachment.session)
    }

    /// Whether calls are limited has changed: sorts those that wait by the new rule.
    pub(super) fn sort_queue_anew(&mut self) {
        let is_limited = self.config.max_calls.is_some();
        self.queue
            .set_limited(|queued| is_limited && queued.is_request && is_call(&queued.message));
    }
}

/// What is decided by era alone. The modern era is not served yet, and a legacy child may end at a
/// request that it does not expect, so none of it is passed on.
fn decide_by_era(method: &str, is_modern: bool) -> Option<Decision> {
    let not_found = |what: String| {
        Some(Decision::Refuse(Failure::of_message(
            ErrorCode::METHOD_NOT_FOUND,
            what,
        )))
    };
    match method {
        "server/discover" => {
            not_found("`server/discover` is not served: use `initialize`".to_owned())
        }
        "ping" | "initialize" if is_modern => not_found(format!(
            "`{method}` is not part of the version that the request names"
        )),
        "ping" => Some(Decision::Answer(b"{}")),
        _ if is_modern => Some(Decision::Refuse(Failure::of_message(
            ErrorCode::INVALID_REQUEST,
            "requests with a protocol version of their own are not served: use `initialize`",
        ))),
        _ if method.starts_with("tasks/") => {
            not_found("tasks are not offered by a server that hosts share".to_owned())
        }
        _ => None,
    }
}

fn invalid_params(complaint: String) -> Decision {
    Decision::Refuse(Failure::of_message(ErrorCode::INVALID_PARAMS, complaint))
}

/// Whether the request says for itself which version it is of, as MCP has it from 2026-07-28 on.
fn has_modern_version(message: &Message) -> bool {
    let meta = message.value(Member::ParamsMeta).unwrap_or_default();
    json::find_member(meta, "io.modelcontextprotocol/protocolVersion").is_some()
}

/// Whether a request counts for `max_calls`: those that do work. Lists and the like pass.
fn is_call(message: &Message) -> bool {
    matches!(
        message.method(),
        Some("tools/call" | "prompts/get" | "resources/read")
    )
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
