//! What a line of a host means.
//!
//! Takes batches apart, does with requests what `admission` decides, and decides itself what becomes
//! of notifications and of lines that are no messages. Sources: JSON-RPC 2.0; MCP 2025-11-25
//! `basic/utilities/cancellation`; 2025-03-26 `basic/index`, Batching.

use std::borrow::Cow;

use bytes::Bytes;

use super::admission::{Decision, Incoming, is_request_method};
use super::answers::Failure;
use super::attach::Session;
use super::batch::BatchAnswer;
use super::eras::ModernCall;
use super::mux::Mux;
use super::queue::Queued;
use super::requests::{
    Asker, BatchKey, HostAsker, OpenRequest, Progress, Purpose, RequestKey, UpstreamId,
};
use super::settings::Asking;
use crate::ids::HostKey;
use crate::journal::Change;
use crate::protocol::eras::era_of;
use crate::protocol::{
    Batch, BatchItem, Era, ErrorCode, Fault, FaultReason, Kind, Line, Member, Message, RequestId,
    Splice, Version, json, negotiate,
};

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
                if !self.note_request(host, &id, message.method().unwrap_or_default()) {
                    let failure = Failure::of_message(
                        ErrorCode::OVERLOADED,
                        "the list of this host's open requests is full",
                    );
                    return self.refuse(host, batch, Some(&id), &failure);
                }
                self.host_request(Incoming {
                    host,
                    id,
                    batch,
                    message,
                });
            }
            Kind::Notification => self.host_notification(host, message),
            Kind::Response if self.consult_answered(host, &message) => {}
            Kind::Response => self.host_response(host, &message),
            Kind::Invalid(reason) => {
                let failure = Failure::of_message(ErrorCode::INVALID_REQUEST, reason.to_string());
                self.note_refused(host, message.id());
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
        self.note_refused(host, id);
        self.refuse(host, None, id, &failure);
    }

    fn host_request(&mut self, incoming: Incoming) {
        self.counters.requests += 1;
        match self.decide(&incoming) {
            Decision::Answer(result) => {
                self.answer_here(incoming.host, incoming.batch, &incoming.id, result);
            }
            Decision::Recall(result) => {
                self.answer_here(incoming.host, incoming.batch, &incoming.id, &result);
            }
            Decision::Refuse(failure) => {
                self.note_call_refused(&incoming, failure.code);
                self.refuse(incoming.host, incoming.batch, Some(&incoming.id), &failure);
            }
            Decision::Retry(round) => self.take_retry(incoming, round),
            Decision::Forward(Purpose::Initialize { asked }) => {
                self.begin_initialize(incoming, asked);
            }
            Decision::Forward(purpose) => self.enqueue_request(incoming, purpose),
        }
    }

    /// Answers `initialize` if the child has said what it is, else lets it wait for that.
    fn begin_initialize(&mut self, incoming: Incoming, asked: String) {
        self.note_client(incoming.host, &incoming.message);
        let line = incoming.message.bytes().clone();
        self.note_change(incoming.host, Change::Initialize(&line));
        if let Some(welcome) = self.known_welcome() {
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
            self.note_change(host, Change::Told(version.as_str().as_bytes()));
        }
    }

    /// What the host calls itself, for `status`, and what it can do.
    pub(super) fn note_client(&mut self, host: HostKey, initialize: &Message) {
        let params = initialize.value(Member::Params).unwrap_or_default();
        let name = json::find_member(params, "clientInfo")
            .and_then(|info| json::find_member(info.value, "name"))
            .and_then(|name| json::text(name.value))
            .map(|name| name.chars().take(200).collect::<String>());
        let capabilities = json::find_member(params, "capabilities").map(|entry| entry.value);
        let Some(attachment) = self.hosts.get_mut(&host) else {
            return;
        };
        // Copied: a slice would keep the whole line for as long as the host is here.
        let info = json::find_member(params, "clientInfo").map(|entry| entry.value);
        attachment.client_info = Bytes::copy_from_slice(info.unwrap_or_default());
        attachment.capabilities = Bytes::copy_from_slice(capabilities.unwrap_or_default());
        if let Some(name) = name {
            attachment.info.client = Some(name.into());
        }
    }

    fn enqueue_request(&mut self, incoming: Incoming, purpose: Purpose) {
        let is_call = is_call(&incoming.message);
        let is_limited = self.limits_calls() && is_call;
        let (host, message) = (incoming.host, incoming.message.clone());
        let key = self.open_request(incoming, purpose, is_call);
        self.enqueue(
            key,
            Queued {
                host,
                message,
                is_limited,
                is_request: true,
                arrived: self.now,
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
        let key = self.requests.next_key();
        let era = era_of(&message);
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
            method: name_of(message.method().unwrap_or_default()),
            arrived: self.now,
            progress: Progress::Waiting,
            era,
            modern: (era == Era::Modern).then(|| Box::new(ModernCall::of(&message))),
            is_call,
            had_progress: false,
            tool: tool_of(&message),
            last_progress: None,
        };
        if let Some(asker) = request.host() {
            self.note_opened(asker);
        }
        self.requests.insert(key, request);
        key
    }

    /// A request is open from here on: the array that its answer belongs into waits for it.
    pub(super) fn note_opened(&mut self, asker: &HostAsker) {
        let batch = asker
            .batch
            .and_then(|key| self.hosts.get_mut(&asker.host)?.batches.get_mut(&key));
        if let Some(batch) = batch {
            batch.open();
        }
    }

    fn host_notification(&mut self, host: HostKey, message: Message) {
        let method = message.method().unwrap_or_default();
        match method {
            // Ours goes out once a child; the shared session is not the host's to begin.
            "notifications/initialized" => self.host_is_ready(host),
            "notifications/cancelled" => self.host_cancelled(host, &message),
            "notifications/progress" => self.host_progress(host, &message),
            // These belong to changing roots and to tasks, neither of which is offered.
            "notifications/roots/list_changed" | "notifications/tasks/status" => {
                self.counters.dropped += 1;
            }
            _ if is_request_method(method) => self.counters.dropped += 1,
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
                arrived: self.now,
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
        let Some(id) = id else { return };
        let Some(key) = self.requests.of_host(host, &id) else {
            return self.cancel_listen(host, &id);
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

    pub(super) fn session_of(&self, host: HostKey) -> Session {
        self.hosts
            .get(&host)
            .map_or(Session::New, |attachment| attachment.session)
    }

    /// Whether calls wait for a place or a turn, while all else passes them.
    pub(super) fn limits_calls(&self) -> bool {
        self.config.max_calls.is_some() || self.config.asking == Asking::Turns
    }

    /// Whether calls are limited has changed: sorts those that wait by the new rule.
    pub(super) fn sort_queue_anew(&mut self) {
        let is_limited = self.limits_calls();
        self.queue
            .set_limited(|queued| is_limited && queued.is_request && is_call(&queued.message));
    }
}

/// What a request of this method is told by: the names of the specification take no memory.
pub(super) fn name_of(method: &str) -> Cow<'static, str> {
    const KNOWN: [&str; 14] = [
        "tools/call",
        "tools/list",
        "resources/read",
        "resources/list",
        "resources/templates/list",
        "resources/subscribe",
        "resources/unsubscribe",
        "prompts/get",
        "prompts/list",
        "completion/complete",
        "logging/setLevel",
        "server/discover",
        "initialize",
        "ping",
    ];
    match KNOWN.into_iter().find(|known| *known == method) {
        Some(known) => Cow::Borrowed(known),
        None => Cow::Owned(method.chars().take(100).collect()),
    }
}

/// The tool that a request calls: what its answer looks like may depend on it.
pub(super) fn tool_of(message: &Message) -> Option<Box<str>> {
    let is_call = message.method() == Some("tools/call");
    let name = is_call
        .then(|| message.text(Member::ParamsName))
        .flatten()?;
    (name.len() <= 1_000).then(|| name.as_ref().into())
}

/// Whether a request counts for `max_calls`: those that do work. Lists and the like pass.
pub(super) fn is_call(message: &Message) -> bool {
    matches!(
        message.method(),
        Some("tools/call" | "prompts/get" | "resources/read")
    )
}
