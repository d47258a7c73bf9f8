//! What a line of the child means.
//!
//! Decides whose answer it is, who hears of a notification, and what the child's own requests are
//! answered with. Nothing that a child writes ends its session.

use super::action::LogLevel;
use super::admission::is_request_method;
use super::answers::Failure;
use super::attach::Attachment;
use super::faults::{complaint, describe};
use super::levels::Level;
use super::limits::UNREAD_ANSWERS_TO_CHILD_BYTES;
use super::mux::Mux;
use super::settings::Asking;
use crate::ids::HostKey;
use crate::protocol::eras::question::Ask;
use crate::protocol::write::{error_response, result_response};
use crate::protocol::{
    BatchItem, Era, ErrorCode, Fault, FaultReason, Frame, Kind, Line, Member, Message, Outcome,
    RequestId, Splice, shown,
};

impl Mux {
    /// Takes a line of the present child.
    pub(super) fn child_line(&mut self, line: Line) {
        match line {
            Line::Message(message) => self.child_message(&message),
            // Allowed in 2025-03-26 only, but each element finds its way by itself.
            Line::Batch(batch) => {
                for item in batch.items {
                    match item {
                        BatchItem::Message(message) => self.child_message(&message),
                        BatchItem::Invalid(bytes) => {
                            self.note_noise("an element of a batch is no object", &bytes);
                        }
                    }
                }
            }
            Line::Fault(fault) => self.child_fault(&fault),
        }
    }

    fn child_message(&mut self, message: &Message) {
        if message.recovered_noise() {
            self.note_noise(
                "something stood before a message on its line",
                message.bytes(),
            );
        }
        let Some(child) = &mut self.child else { return };
        child.charges.note_message();
        if child.opening.handle_message(message, self.now) {
            return self.go_on_opening();
        }
        match message.kind() {
            Kind::Request => self.child_request(message),
            // A log line in JSON may well have a `method`. Hosts get what is a message only.
            Kind::Notification if !message.is_jsonrpc_two() => {
                self.note_noise("`jsonrpc` is not \"2.0\"", message.bytes());
            }
            Kind::Notification => self.child_notification(message),
            Kind::Response => self.child_response(message),
            Kind::Invalid(reason) => self.child_invalid(message, &reason.to_string()),
        }
    }

    fn child_response(&mut self, message: &Message) {
        if self.is_stream_answer(message) {
            return;
        }
        let key = match message.id() {
            Some(id) => self.requests.of_upstream(id),
            // JSON-RPC 2.0, section 5.1: an error without an id answers a request whose id could
            // not be read. With one request open it can only be that.
            None if message.outcome() == Some(Outcome::Error) => self.requests.only_written(),
            None => None,
        };
        match key {
            Some(key) => self.answer(key, message),
            None => self.counters.late_answers += 1,
        }
    }

    /// A message that breaks the envelope. If it answers anything, by any id that stands in it,
    /// nobody can say how: an error for each.
    fn child_invalid(&mut self, message: &Message, reason: &str) {
        if message.has(Member::Method) {
            if let (true, Some(id)) = (message.has(Member::Id), message.id()) {
                let frame =
                    error_response(Some(id), None, ErrorCode::INVALID_REQUEST, reason, None);
                self.answer_child(frame);
            }
        } else {
            let mut keys: Vec<_> = message
                .ids()
                .iter()
                .filter_map(|id| self.requests.of_upstream(id))
                .collect();
            keys.dedup();
            let failure = self.unreadable(ErrorCode::INTERNAL_ERROR, reason);
            for key in keys {
                self.fail(key, &failure);
            }
        }
        self.note_noise(reason, message.bytes());
    }

    fn unreadable(&self, code: ErrorCode, reason: &str) -> Failure {
        let server = &self.config.server;
        let message = format!("server {server}: {reason}");
        Failure::of_server(code, server, message, &serde_json::Value::Null)
    }

    /// A line that is no message: its requests get an error, and it is counted.
    fn child_fault(&mut self, fault: &Fault) {
        let Some(child) = &mut self.child else { return };
        if child.opening.handle_fault(fault, self.now) {
            self.go_on_opening();
        } else {
            let code = if fault.reason == FaultReason::TooLong {
                ErrorCode::MESSAGE_TOO_LARGE
            } else {
                ErrorCode::INTERNAL_ERROR
            };
            let charged = child.charges.charge(fault, &self.requests);
            let failure = self.unreadable(code, &describe(fault));
            for key in charged {
                self.fail(key, &failure);
            }
            self.answer_unreadable_request(fault, code);
        }
        let report = self
            .noise
            .note(&complaint(fault), fault.sample_text(), self.now);
        self.log_all(report);
    }

    /// A request of the child that could not be read but for its id: it must not wait for ever.
    fn answer_unreadable_request(&mut self, fault: &Fault, code: ErrorCode) {
        if let (true, [id]) = (fault.has_method, fault.ids.as_slice()) {
            let text = fault.reason.to_string();
            self.answer_child(error_response(Some(id), None, code, &text, None));
        }
    }

    /// A request of the child. Unless its client answers questions it was told of no capability, so
    /// that a correct one asks for nothing but `ping`.
    fn child_request(&mut self, message: &Message) {
        let Some(id) = message.id() else { return };
        let method = message.method().unwrap_or_default();
        if self.child_era() == Era::Modern {
            // It may write none, and gets no answers (2026-07-28 `basic/transports/stdio`).
            self.counters.dropped += 1;
            return;
        }
        let frame = match Ask::of(method) {
            Some(ask) if self.may_be_asked() => return self.child_asks(ask, id, message),
            _ if method == "ping" => result_response(id, b"{}"),
            _ => method_not_found(id, message),
        };
        self.answer_child(frame);
    }

    /// Whether the child was told that its client answers questions.
    fn may_be_asked(&self) -> bool {
        self.config.asking != Asking::Nobody && self.child_era() == Era::Legacy
    }

    pub(super) fn answer_child(&mut self, frame: Frame) {
        let Some(child) = &mut self.child else { return };
        let bytes = frame.len() as u64;
        if child.unread_answers_bytes + bytes > UNREAD_ANSWERS_TO_CHILD_BYTES {
            self.counters.dropped += 1;
            return;
        }
        child.unread_answers_bytes += bytes;
        self.queue.push_reserved_answer(frame);
    }

    fn child_notification(&mut self, message: &Message) {
        let method = message.method().unwrap_or_default();
        self.unlearn_lists(method);
        if method == "notifications/message" {
            return self.child_log(message);
        }
        let is_open = self
            .child
            .as_ref()
            .is_some_and(|child| child.welcome.is_some());
        if !is_open {
            // Hosts hear nothing of a session that does not exist yet. After a restart our own
            // look at its lists tells them what has changed.
            self.counters.dropped += 1;
            return;
        }
        if self.child_era() == Era::Modern {
            return self.modern_child_notification(message);
        }
        match method {
            "notifications/progress" => self.child_progress(message),
            "notifications/resources/updated" => self.child_updated(message),
            "notifications/cancelled" => self.child_cancelled(message),
            "notifications/elicitation/complete" => self.child_elicitation_complete(message),
            // Tasks are offered to nobody.
            "notifications/tasks/status" => self.counters.dropped += 1,
            _ if is_request_method(method) => self.counters.dropped += 1,
            // Known ones, declared or not, and unknown ones alike: everybody hears them.
            _ => {
                self.broadcast(&Frame::line(message.bytes().clone()));
                self.tell_listens_changed(method, Some(message));
            }
        }
    }

    /// Progress goes to the host whose request it is of, with the token that the host gave.
    pub(super) fn child_progress(&mut self, message: &Message) {
        let token = message
            .value(Member::ParamsProgressToken)
            .and_then(RequestId::parse);
        let key = token.and_then(|token| self.requests.of_upstream(&token));
        let asker = key
            .and_then(|key| self.requests.get(key))
            .and_then(|request| request.host())
            .and_then(|asker| Some((asker.host, asker.token.clone()?)));
        let (Some(key), Some((host, token))) = (key, asker) else {
            self.counters.unknown_progress += 1;
            return;
        };
        self.requests.mark_progress(key);
        let mut splice = Splice::of(message);
        splice.replace_member(Member::ParamsProgressToken, &token);
        let frame = splice.finish_in(&mut self.arena);
        self.send(host, frame, false);
    }

    pub(super) fn child_updated(&mut self, message: &Message) {
        let uri = message.text(Member::ParamsUri);
        let holders = self.subscriptions.receivers(uri.as_deref());
        let (streams, hosts): (Vec<_>, Vec<_>) =
            holders.into_iter().partition(|one| one.listen.is_some());
        let hosts = hosts.into_iter().map(|holder| holder.host).collect();
        self.send_to(hosts, &Frame::line(message.bytes().clone()));
        for listen in streams.into_iter().filter_map(|holder| holder.listen) {
            self.tell_listen(listen, message);
        }
    }

    fn child_log(&mut self, message: &Message) {
        let level = message.text(Member::ParamsLevel);
        let level = level.as_deref().and_then(Level::parse);
        let is_modern = self.child_era() == Era::Modern;
        let hosts: Vec<_> = self
            .hosts
            .keys()
            .copied()
            .filter(|host| self.levels.hears(*host, level))
            .filter(|host| self.hosts.get(host).is_some_and(Attachment::is_open))
            // A modern child speaks of nothing but open requests, and does not say of which.
            .filter(|host| !is_modern || self.requests.count_of(*host) > 0)
            .collect();
        let frame = Frame::line(message.bytes().clone());
        if let Some(host) = self.modern_hearer(level)
            && !hosts.contains(&host)
        {
            self.send(host, frame.clone(), false);
        }
        self.send_to(hosts, &frame);
    }

    /// Sends a notification to every host whose `initialize` was answered.
    pub(super) fn broadcast(&mut self, frame: &Frame) {
        let hosts = self.hosts.keys().copied().collect();
        self.send_to(hosts, frame);
    }

    fn send_to(&mut self, hosts: Vec<HostKey>, frame: &Frame) {
        for host in hosts {
            if self
                .hosts
                .get(&host)
                .is_some_and(|attachment| attachment.is_open())
            {
                self.send(host, frame.clone(), false);
            }
        }
    }

    fn note_noise(&mut self, reason: &str, bytes: &[u8]) {
        let report = self.noise.note(reason, shown(bytes), self.now);
        self.log_all(report);
    }

    fn log_all(&mut self, report: Vec<(LogLevel, String)>) {
        for (level, text) in report {
            self.log(level, text);
        }
    }
}

fn method_not_found(id: &RequestId, message: &Message) -> Frame {
    let method: String = message
        .method()
        .unwrap_or_default()
        .chars()
        .take(100)
        .collect();
    let text = format!("no host can be asked for `{method}`: hosts share this server");
    error_response(Some(id), None, ErrorCode::METHOD_NOT_FOUND, &text, None)
}
