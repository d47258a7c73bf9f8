//! How a request ends: with the child's answer, with an error of ours, or without a word.
//!
//! Decides what the host is told and puts the tables right that hung on the request. Each request
//! leaves the table here and nowhere else, which is why it is answered once.

use bytes::Bytes;
use serde_json::{Value, json};

use super::action::{DropReason, MuxAction};
use super::attach::{Input, Session};
use super::calls::CallOutcome;
use super::catalogue::read_page;
use super::eras::{Ending, Pairing};
use super::journaled::Ends;
use super::mux::Mux;
use super::requests::{BatchKey, HostAsker, OpenRequest, Purpose, RequestKey};
use super::service::Refusal;
use super::subscriptions::Holder;
use crate::ids::HostKey;
use crate::protocol::json::ValueType;
use crate::protocol::write::{error_response, result_response};
use crate::protocol::{Era, ErrorCode, Frame, Member, Message, Outcome, RequestId, Span, Splice};

/// An error of ours.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    pub(super) code: ErrorCode,
    pub(super) message: String,
    /// `error.data`, a whole JSON value.
    pub(super) data: Option<Vec<u8>>,
}

impl Failure {
    /// An error about a message, not about the server.
    pub(super) fn of_message(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            data: None,
        }
    }

    /// An error about a message, with what more there is to say of it.
    pub(super) fn with_data(code: ErrorCode, message: impl Into<String>, data: &Value) -> Self {
        Self {
            code,
            message: message.into(),
            data: Some(data.to_string().into_bytes()),
        }
    }

    /// An error that names the server in `data`, with what more is known.
    pub(super) fn of_server(
        code: ErrorCode,
        server: &str,
        message: impl Into<String>,
        detail: &Value,
    ) -> Self {
        let data = if detail.is_null() {
            json!({ "server": server })
        } else {
            json!({ "server": server, "detail": detail })
        };
        Self {
            code,
            message: message.into(),
            data: Some(data.to_string().into_bytes()),
        }
    }

    /// The error of a request that waited, or would have to wait, in vain.
    pub(super) fn refused(refusal: Refusal, server: &str) -> Self {
        Self::of_server(refusal.code, server, refusal.message, &refusal.detail)
    }

    /// The daemon ends and takes the request along.
    pub(super) fn daemon_ended(server: &str) -> Self {
        Self::of_server(
            ErrorCode::DAEMON_RESTARTED,
            server,
            "the daemon ended while this request was open; whether it took effect is unknown",
            &Value::Null,
        )
    }
}

/// What the child did to a request, for the tables that hang on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It was answered with a result.
    Granted,
    /// It was answered with an error.
    Refused,
    /// Nobody knows, or no child ever saw it: cancelled, timed out, its host or child gone.
    Lost,
}

impl Mux {
    /// The child has answered a request of a host.
    pub(super) fn answer(&mut self, key: RequestKey, message: &Message) {
        if self.is_consulted(key, message) {
            return;
        }
        let Some(request) = self.take_request(key) else {
            return;
        };
        if request.is_parked() {
            self.note_call_end(request.clone(), CallOutcome::of(message));
            let ending = Ending::Answered(Box::new(message.clone()));
            return self.keep_ending(key, request, ending);
        }
        self.end_round(key);
        let outcome = message.outcome();
        let Some(asker) = request.host() else {
            self.own_answer(&request, message);
            return;
        };
        let frame = self.answer_frame(&request, asker, message);
        let fate = match outcome {
            Some(Outcome::Result) => Fate::Granted,
            Some(Outcome::Error) | None => Fate::Refused,
        };
        self.counters.errors += u64::from(fate == Fate::Refused);
        let id = Some(&asker.id);
        self.deliver(asker.host, asker.batch, id, frame, request.had_progress);
        self.close(&request, fate);
        if request.is_call {
            self.note_call_end(request, CallOutcome::of(message));
        }
    }

    /// Ends a request with an error of ours. A request of our own just ends.
    pub(super) fn fail(&mut self, key: RequestKey, failure: &Failure) {
        let Some(request) = self.take_request(key) else {
            return;
        };
        if request.is_parked() {
            self.note_call_end(request.clone(), CallOutcome::Failed(failure.code));
            return self.keep_ending(key, request, Ending::Failed(failure.clone()));
        }
        self.end_round(key);
        let Some(asker) = request.host() else {
            self.own_ended(&request, Fate::Lost);
            return;
        };
        let frame = self.error_frame(asker.host, Some(&asker.id), failure);
        let id = Some(&asker.id);
        self.deliver(asker.host, asker.batch, id, frame, request.had_progress);
        self.close(&request, Fate::Lost);
        let is_initialize = matches!(request.purpose, Purpose::Initialize { .. });
        if is_initialize && self.session_of(asker.host) == Session::New {
            self.fail_behind_initialize(asker.host, failure);
        }
        self.note_call_end(request, CallOutcome::Failed(failure.code));
    }

    /// What a host sent behind an `initialize` that came to nothing has no session to belong to.
    fn fail_behind_initialize(&mut self, host: HostKey, failure: &Failure) {
        for key in self.requests.all_of(host) {
            self.fail(key, failure);
        }
    }

    /// Ends a request without a word: it was cancelled, or its host is gone.
    pub(super) fn drop_request(&mut self, key: RequestKey) {
        let Some(request) = self.hand_over_request(key) else {
            return;
        };
        if let Some(asker) = request.host() {
            self.forget_noted(asker.host, &asker.id);
        }
        self.note_call_end(request, CallOutcome::Cancelled);
    }

    /// Takes a request out of the table that something else goes on with under its id.
    pub(super) fn hand_over_request(&mut self, key: RequestKey) -> Option<OpenRequest> {
        let request = self.take_request(key)?;
        self.end_round(key);
        self.close(&request, Fate::Lost);
        Some(request)
    }

    /// Answers a message of a host that never became an open request.
    pub(super) fn refuse(
        &mut self,
        host: HostKey,
        batch: Option<BatchKey>,
        id: Option<&RequestId>,
        failure: &Failure,
    ) {
        let frame = self.error_frame(host, id, failure);
        self.deliver(host, batch, id, frame, false);
    }

    /// Answers a request of a host from here.
    pub(super) fn answer_here(
        &mut self,
        host: HostKey,
        batch: Option<BatchKey>,
        id: &RequestId,
        result: &[u8],
    ) {
        self.deliver(host, batch, Some(id), result_response(id, result), false);
    }

    /// Hands an answer to its host, or puts it into the array that it belongs into.
    pub(super) fn deliver(
        &mut self,
        host: HostKey,
        batch: Option<BatchKey>,
        id: Option<&RequestId>,
        frame: Frame,
        own_write: bool,
    ) {
        let Some(attachment) = self.hosts.get_mut(&host) else {
            return;
        };
        let ends = id.map(|id| attachment.take_noted(id)).unwrap_or_default();
        match batch.and_then(|key| attachment.batches.get_mut(&key)) {
            Some(answers) => {
                let bytes = frame.len() as u64;
                answers.add(frame, ends);
                self.hold(host, bytes);
            }
            None => self.send_answer(host, frame, own_write, ends),
        }
    }

    /// Puts a frame that is no answer into the outbox of a host.
    pub(super) fn send(&mut self, host: HostKey, frame: Frame, own_write: bool) {
        self.send_answer(host, frame, own_write, Ends::new());
    }

    pub(super) fn send_answer(&mut self, host: HostKey, frame: Frame, own_write: bool, ends: Ends) {
        let Some(attachment) = self.hosts.get_mut(&host) else {
            return;
        };
        let bytes = frame.len() as u64;
        let is_first = attachment.outbox.push(frame, own_write, ends);
        if attachment.outbox.is_too_full() {
            self.cut_off.insert(host, DropReason::UnreadBytes);
        }
        if is_first {
            self.act(MuxAction::HostReady(host));
        }
        self.hold(host, bytes);
    }

    /// Charges a host with bytes; whoever has to go because of it goes after this event.
    pub(super) fn hold(&mut self, host: HostKey, bytes: u64) {
        let Some(largest) = self.pool.take(host, bytes) else {
            return;
        };
        if self.hosts.contains_key(&largest) {
            self.cut_off.insert(largest, DropReason::PoolFull);
        } else {
            self.act(MuxAction::EvictHost(largest));
        }
    }

    /// Sends the array of a batch once it is complete.
    pub(super) fn finish_batch(&mut self, host: HostKey, key: BatchKey) {
        let Some(attachment) = self.hosts.get_mut(&host) else {
            return;
        };
        if !attachment
            .batches
            .get(&key)
            .is_some_and(|batch| batch.is_complete())
        {
            return;
        }
        if let Some(mut batch) = attachment.batches.remove(&key) {
            let ends = batch.take_ends();
            self.pool.give_back(host, batch.bytes());
            if let Some(frame) = batch.into_frame() {
                self.send_answer(host, frame, true, ends);
            }
        }
    }

    /// Takes a request out of its table, and out of the queue if it waits there.
    pub(super) fn take_request(&mut self, key: RequestKey) -> Option<OpenRequest> {
        let request = self.requests.remove(key)?;
        if let Some(asker) = request.host()
            && let Some(queued) = self.queue.remove(key, asker.host)
        {
            self.pool.give_back(asker.host, queued.len());
        }
        if self.levels.end_call(key) {
            self.sync_level();
        }
        self.end_turn(key);
        self.end_consult(key);
        Some(request)
    }

    /// Puts right what hung on a request that has left its table.
    pub(super) fn close(&mut self, request: &OpenRequest, fate: Fate) {
        let Some(asker) = request.host() else { return };
        self.settle_purpose(request, asker, fate);
        self.note_answered(asker);
    }

    /// A request of a host has its answer, or will have none: what waited for that.
    pub(super) fn note_answered(&mut self, asker: &HostAsker) {
        let attachment = self.hosts.get_mut(&asker.host);
        if let Some(attachment) = attachment {
            if attachment.input != Input::Open {
                self.ending.push(asker.host);
            }
            if let Some(key) = asker.batch {
                if let Some(batch) = attachment.batches.get_mut(&key) {
                    batch.close();
                }
                self.finish_batch(asker.host, key);
            }
        }
    }

    fn settle_purpose(&mut self, request: &OpenRequest, asker: &HostAsker, fate: Fate) {
        let host = asker.host;
        match &request.purpose {
            Purpose::Call | Purpose::List { .. } | Purpose::SubscribeFor(..) => {}
            Purpose::Initialize { .. } => self.note_initialize_lost(host),
            Purpose::Subscribe(uri) if fate == Fate::Granted => {
                let holder = Holder::host(host);
                self.subscriptions.note_granted(Some(holder), &uri.text);
                self.note_subscription(host, uri, true);
            }
            Purpose::Subscribe(uri) => {
                let was_refused = fate == Fate::Refused;
                let holder = Holder::host(host);
                if self
                    .subscriptions
                    .note_failed(holder, &uri.text, was_refused)
                {
                    self.unsubscribe_upstream(uri);
                }
            }
            Purpose::Unsubscribe(uri) => {
                // Nobody held it when the host asked. If the child never saw that request, and
                // nobody has come to hold it since, it has to be told by us.
                if !request.is_written() && !self.subscriptions.is_held(&uri.text) {
                    self.unsubscribe_upstream(uri);
                }
            }
            Purpose::SetLevel { asked, sent } => {
                self.levels.note_ended(host, *asked, *sent, fate);
                self.note_level(host);
                self.sync_level();
            }
        }
    }

    /// A host's `initialize` came to nothing; unless another one waits it is as new.
    fn note_initialize_lost(&mut self, host: HostKey) {
        let still_asks = self
            .requests
            .all_of(host)
            .into_iter()
            .filter_map(|key| self.requests.get(key))
            .any(|other| matches!(other.purpose, Purpose::Initialize { .. }));
        if let Some(attachment) = self.hosts.get_mut(&host)
            && attachment.session == Session::Asked
            && !still_asks
        {
            attachment.session = Session::New;
        }
    }

    /// The child's answer as the host gets it: its own id, every other byte as it came, unless
    /// denied tools have to be taken out or the answer is not one that a host could read.
    pub(super) fn answer_frame(
        &mut self,
        request: &OpenRequest,
        asker: &HostAsker,
        message: &Message,
    ) -> Frame {
        let edits = match &request.purpose {
            Purpose::List { kind, cursor } if message.outcome() == Some(Outcome::Result) => {
                let result = message.value(Member::Result).unwrap_or_default();
                let mut page = read_page(*kind, result, &self.config.tools);
                let edits = std::mem::take(&mut page.edits);
                self.catalogue.note_page(*kind, cursor.as_deref(), page);
                self.note_seen(asker.host, *kind);
                self.learn_page(*kind, cursor.as_deref(), result);
                edits
            }
            _ => Vec::new(),
        };
        let is_translated = Pairing::of(request.era, self.child_era()) == Pairing::ModernHost;
        if !is_well_formed(message) {
            let frame = repaired(message, &edits, asker, &self.config.server);
            return match Message::parse(Bytes::from(frame.to_vec()).slice(..frame.len() - 1)) {
                Some(message) if is_translated => {
                    self.answer_for_modern_host(request, asker, &message, &[])
                }
                _ => frame,
            };
        }
        if is_translated {
            return self.answer_for_modern_host(request, asker, message, &edits);
        }
        match Pairing::of(request.era, self.child_era()) {
            Pairing::ModernChild => {
                return self.answer_for_legacy_host(request, asker, message, &edits);
            }
            Pairing::Same(Era::Modern) => {
                return self.answer_between_moderns(request, asker, message, &edits);
            }
            Pairing::Same(Era::Legacy) | Pairing::ModernHost => {}
        }
        let mut splice = Splice::of(message);
        splice.replace_member(Member::Id, asker.id.raw());
        let result = message.span(Member::Result).unwrap_or_default();
        for (span, kept) in &edits {
            splice.replace(span.within(result), kept);
        }
        splice.finish_in(&mut self.arena)
    }

    /// An error of ours for a host.
    pub(super) fn error_frame(
        &mut self,
        host: HostKey,
        id: Option<&RequestId>,
        failure: &Failure,
    ) -> Frame {
        self.counters.errors += 1;
        let version = self
            .hosts
            .get(&host)
            .and_then(|attachment| attachment.version_of_errors());
        error_response(
            id,
            version,
            failure.code,
            &failure.message,
            failure.data.as_deref(),
        )
    }
}

/// Whether an answer is one by JSON-RPC 2.0, section 5: version, id, and either a result or an
/// error that is an object.
pub(super) fn is_well_formed(message: &Message) -> bool {
    let has_one = message.has(Member::Result) != message.has(Member::Error);
    let error = message.value_type(Member::Error);
    message.is_jsonrpc_two()
        && message.has(Member::Id)
        && has_one
        && error.is_none_or(|kind| kind == ValueType::Object)
}

/// An answer that JSON-RPC does not allow, made one that it does: the bytes of `error` if there is
/// one that is not null, else those of `result`; an error that is no object becomes the data of one;
/// an answer with neither becomes an error that says so. Other members of such an answer are lost.
fn repaired(
    message: &Message,
    edits: &[(Span, Vec<u8>)],
    asker: &HostAsker,
    server: &str,
) -> Frame {
    let value = |member| message.value(member).unwrap_or_default();
    match message.outcome() {
        Some(Outcome::Result) => {
            let mut result = value(Member::Result).to_vec();
            for (span, kept) in edits.iter().rev() {
                result.splice(span.range(), kept.iter().copied());
            }
            result_response(&asker.id, &result)
        }
        Some(Outcome::Error) if message.value_type(Member::Error) == Some(ValueType::Object) => {
            raw_error(&asker.id, value(Member::Error))
        }
        Some(Outcome::Error) => error_response(
            Some(&asker.id),
            None,
            ErrorCode::INTERNAL_ERROR,
            &format!("server {server} answered with an error that is no object"),
            Some(value(Member::Error)),
        ),
        None => error_response(
            Some(&asker.id),
            None,
            ErrorCode::INTERNAL_ERROR,
            &format!("server {server} answered with neither a result nor an error"),
            None,
        ),
    }
}

/// An error response around the child's own error object.
fn raw_error(id: &RequestId, error: &[u8]) -> Frame {
    let head: &[u8] = b"{\"jsonrpc\":\"2.0\",\"id\":";
    Frame::line([head, id.raw(), b",\"error\":", error, b"}"].concat())
}
