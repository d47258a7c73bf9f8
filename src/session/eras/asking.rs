//! A legacy child asks its client something: elicitation, sampling, roots.
//!
//! Decides who is asked, which is exactly one caller or nobody, and takes the answers of legacy
//! hosts back. What becomes of a question to a modern host is in `retrying`. Source: MCP 2025-11-25
//! `client/*`.

use super::questions::{QUESTIONS_LIMIT, Question};
use super::turns::Caller;
use crate::ids::HostKey;
use crate::protocol::eras::question::{Ask, abilities};
use crate::protocol::write::{self, error_response};
use crate::protocol::{Era, ErrorCode, Frame, Member, Message, RequestId, Splice, json};
use crate::session::answers::is_well_formed;
use crate::session::mux::Mux;
use crate::session::queue::{CallGate, Queued};
use crate::session::requests::RequestKey;
use crate::session::settings::Asking;

impl Mux {
    /// Which waiting calls may go, as far as turns decide it.
    pub(in crate::session) fn turn_gate(&self) -> CallGate {
        if self.config.asking != Asking::Turns || self.child_era() == Era::Modern {
            return CallGate::Any;
        }
        match self.turns.caller() {
            None => CallGate::Any,
            Some(Caller::Call(_)) => CallGate::Nobody,
            Some(Caller::Host(host)) => {
                // Whoever is asked may have to call something to find the answer.
                let may_go_on = self.queue.is_only_caller(host) || self.questions.has_any(host);
                let is_legacy = self.queue.next_era(host) == Some(Era::Legacy);
                if may_go_on && is_legacy {
                    CallGate::Only(host)
                } else {
                    CallGate::Nobody
                }
            }
        }
    }

    /// A call was written: from here on it may be asked about.
    pub(in crate::session) fn note_turn(&mut self, key: RequestKey, queued: &Queued) {
        let Some(request) = self.requests.get(key) else {
            return;
        };
        let takes_turns = self.config.asking == Asking::Turns && self.child_era() == Era::Legacy;
        if takes_turns && request.is_call {
            let caller = match request.era {
                Era::Legacy => Caller::Host(queued.host),
                Era::Modern => Caller::Call(key),
            };
            self.turns.take(caller, key);
        }
    }

    /// A request has left its table: if a legacy host's turn ends with it, what that host was asked
    /// belongs to nothing any more.
    pub(in crate::session) fn end_turn(&mut self, key: RequestKey) {
        if let Some(Caller::Host(host)) = self.turns.release(key) {
            self.withdraw_questions(host, "the call that it belongs to has ended");
        }
    }

    /// The child asks something. It is put to the one who can be meant, or refused: never a guess.
    pub(in crate::session) fn child_asks(&mut self, ask: Ask, id: &RequestId, message: &Message) {
        if !message.is_jsonrpc_two() {
            let text = "`jsonrpc` is not \"2.0\"";
            return self.refuse_question(id, ErrorCode::INVALID_REQUEST, text);
        }
        match self.turns.caller() {
            Some(Caller::Host(host)) => self.ask_host(host, ask, id, message),
            Some(Caller::Call(key)) => self.ask_in_round(key, ask, id, message),
            None => self.refuse_question(
                id,
                ErrorCode::CANNOT_ATTRIBUTE,
                "no call is open to which the question could belong",
            ),
        }
    }

    /// Puts a question to a legacy host, as it came but for the id and the token.
    fn ask_host(&mut self, host: HostKey, ask: Ask, id: &RequestId, message: &Message) {
        let Some(attachment) = self.hosts.get(&host) else {
            return;
        };
        let params = message.value(Member::Params).unwrap_or_default();
        if let Err(unaskable) = ask.check(params, abilities(&attachment.capabilities)) {
            return self.refuse_question(id, unaskable.code, &unaskable.text);
        }
        if self.questions.len() >= QUESTIONS_LIMIT {
            return self.refuse_question(id, ErrorCode::OVERLOADED, "too many questions are open");
        }
        let token = message.value(Member::MetaProgressToken);
        let question = Question {
            child_id: id.clone(),
            token: token.map(bytes::Bytes::copy_from_slice),
        };
        let own_id = self.questions.add(host, question).to_string();
        if let Some(entry) = json::find_member(params, "elicitationId")
            && let Some(elicitation) = json::text(entry.value)
        {
            self.questions
                .note_elicitation(elicitation.into_owned(), host);
        }
        let mut splice = Splice::of(message);
        splice.replace_member(Member::Id, own_id.as_bytes());
        splice.replace_member(Member::MetaProgressToken, own_id.as_bytes());
        if let Some(params) = message.span(Member::Params) {
            splice.retain_members(params, |entry| !entry.is("task"));
        }
        let frame = splice.finish_in(&mut self.arena);
        self.send(host, frame, false);
    }

    pub(super) fn refuse_question(&mut self, id: &RequestId, code: ErrorCode, text: &str) {
        self.answer_child(error_response(Some(id), None, code, text, None));
    }

    /// A host has answered something. What it was not asked is dropped.
    pub(in crate::session) fn host_response(&mut self, host: HostKey, message: &Message) {
        let own_id = message.id().and_then(RequestId::as_u64);
        let Some(question) = own_id.and_then(|id| self.questions.take(host, id)) else {
            self.counters.dropped += 1;
            return;
        };
        let frame = if is_well_formed(message) {
            let mut splice = Splice::of(message);
            splice.replace_member(Member::Id, question.child_id.raw());
            splice.finish_in(&mut self.arena)
        } else {
            error_response(
                Some(&question.child_id),
                None,
                ErrorCode::INTERNAL_ERROR,
                "the host's answer is neither a result nor an error",
                None,
            )
        };
        self.answer_child(frame);
    }

    /// A host tells how far it is with a question: the child hears it by its own token.
    pub(in crate::session) fn host_progress(&mut self, host: HostKey, message: &Message) {
        let own_id = message
            .value(Member::ParamsProgressToken)
            .and_then(RequestId::parse)
            .and_then(|token| token.as_u64());
        let token = own_id
            .and_then(|id| self.questions.get(host, id))
            .and_then(|question| question.token.clone());
        let Some(token) = token else {
            self.counters.dropped += 1;
            return;
        };
        let mut splice = Splice::of(message);
        splice.replace_member(Member::ParamsProgressToken, &token);
        let frame = splice.finish_in(&mut self.arena);
        self.answer_child(frame);
    }

    /// The child does not want to know any more. True if it was a question.
    pub(in crate::session) fn child_cancelled(&mut self, message: &Message) {
        let id = message
            .value(Member::ParamsRequestId)
            .and_then(RequestId::parse);
        let Some(id) = id else { return };
        if let Some((host, own_id)) = self.questions.take_of_child(&id) {
            let mut splice = Splice::of(message);
            splice.replace_member(Member::ParamsRequestId, own_id.to_string().as_bytes());
            let frame = splice.finish_in(&mut self.arena);
            self.send(host, frame, false);
        } else if let Some(asked) = self.rounds.question_of_child(&id) {
            asked.is_withdrawn = true;
        } else {
            self.counters.dropped += 1;
        }
    }

    /// A visit to a url is over: the host that was sent there is told, and nobody else.
    pub(in crate::session) fn child_elicitation_complete(&mut self, message: &Message) {
        let params = message.value(Member::Params).unwrap_or_default();
        let id =
            json::find_member(params, "elicitationId").and_then(|entry| json::text(entry.value));
        match id.and_then(|id| self.questions.end_elicitation(&id)) {
            Some(host) => self.send(host, Frame::line(message.bytes().clone()), false),
            None => self.counters.dropped += 1,
        }
    }

    /// Takes back all that a legacy host was asked, and tells the child that nobody will answer.
    fn withdraw_questions(&mut self, host: HostKey, reason: &str) {
        for (own_id, question) in self.questions.take_of(host) {
            self.send(host, withdrawal(own_id, reason), false);
            self.refuse_question(&question.child_id, ErrorCode::INTERNAL_ERROR, reason);
        }
    }

    /// A host has left: what it was asked is answered for it.
    pub(in crate::session) fn answer_for_departed(&mut self, host: HostKey) {
        self.questions.forget_elicitations(host);
        for (_, question) in self.questions.take_of(host) {
            let text = "the host that was asked has left";
            self.refuse_question(&question.child_id, ErrorCode::INTERNAL_ERROR, text);
        }
    }

    /// The child is gone and wants no answers.
    pub(in crate::session) fn withdraw_all_questions(&mut self) {
        for (host, own_id) in self.questions.take_all() {
            self.send(host, withdrawal(own_id, "the server is gone"), false);
        }
    }
}

/// What tells a host that a question of ours needs no answer.
fn withdrawal(own_id: u64, reason: &str) -> Frame {
    let params = format!("{{\"requestId\":{own_id},\"reason\":\"{reason}\"}}");
    write::notification("notifications/cancelled", Some(params.as_bytes()))
}
