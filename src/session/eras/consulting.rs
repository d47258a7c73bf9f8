//! What a modern child wants to know before it completes a call of a legacy host.
//!
//! Decides when its questions go to the host, as ordinary requests side by side, and when the call
//! is sent again with the answers. A call is with the child or with the host, never with both, and
//! belongs to one process: nothing goes to another. Source: MCP 2026-07-28 `basic/patterns/mrtr`.

use std::collections::BTreeMap;
use std::time::Duration;

use super::modern_child::failure_of;
use crate::ids::HostKey;
use crate::protocol::eras::input::{Input, InputQuestion, ModernResult, read_modern_result};
use crate::protocol::eras::question::{Ask, abilities};
use crate::protocol::json::{self, ValueType};
use crate::protocol::{Era, ErrorCode, Member, Message, Outcome, RequestId, Version, write};
use crate::session::answers::{Failure, is_well_formed};
use crate::session::mux::Mux;
use crate::session::requests::RequestKey;
use crate::time::Moment;

/// Rounds of questions for one call.
const ROUNDS: u32 = 10;
/// The first pause before a call that only has a state is sent again; doubled each time.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How long such a call is sent again and again without a `request_timeout`.
const PATIENCE: Duration = Duration::from_secs(600);

/// A call that a modern child may still have questions about.
#[derive(Debug)]
pub(in crate::session) struct Consult {
    host: HostKey,
    /// The call as the host sent it.
    message: Message,
    rounds: u32,
    /// Questions that the host was not asked yet: it has not said that it is ready.
    unasked: Vec<InputQuestion>,
    /// Those that it was asked, by the id that it knows them by.
    asked: BTreeMap<u64, InputQuestion>,
    /// Keys and answers.
    answers: Vec<(Vec<u8>, Vec<u8>)>,
    state: Option<Vec<u8>>,
    pause: Duration,
    retry_at: Option<Moment>,
    /// When a call that makes no progress is given up.
    until: Option<Moment>,
}

/// All calls of legacy hosts on a modern child.
#[derive(Debug, Default)]
pub(in crate::session) struct Consults {
    open: BTreeMap<RequestKey, Consult>,
}

impl Consults {
    pub(in crate::session) fn next_deadline(&self) -> Option<Moment> {
        self.open.values().filter_map(|one| one.retry_at).min()
    }

    #[cfg(test)]
    pub(in crate::session) fn len(&self) -> usize {
        self.open.len()
    }

    fn of_question(&self, host: HostKey, id: u64) -> Option<RequestKey> {
        self.open
            .iter()
            .find(|(_, one)| one.host == host && one.asked.contains_key(&id))
            .map(|(key, _)| *key)
    }
}

impl Mux {
    /// A call is about to be written that may have to be written again.
    pub(super) fn keep_for_retry(&mut self, key: RequestKey, host: HostKey, message: &Message) {
        self.hold(host, message.bytes().len() as u64);
        let consult = Consult {
            host,
            message: message.clone(),
            rounds: 0,
            unasked: Vec::new(),
            asked: BTreeMap::new(),
            answers: Vec::new(),
            state: None,
            pause: FIRST_PAUSE,
            retry_at: None,
            until: None,
        };
        self.consults.open.insert(key, consult);
    }

    /// Whether the child's result is not the answer yet, or one that must not be.
    pub(in crate::session) fn is_consulted(&mut self, key: RequestKey, message: &Message) -> bool {
        let Some(request) = self.requests.get(key) else {
            return false;
        };
        let is_translated = request.era == Era::Legacy && self.child_era() == Era::Modern;
        let Some(host) = request.host().map(|asker| asker.host) else {
            return false;
        };
        if !is_translated || message.outcome() != Some(Outcome::Result) {
            return false;
        }
        let result = message.value(Member::Result).unwrap_or_default();
        let capabilities = self.hosts.get(&host).map(|one| one.capabilities.clone());
        let able = abilities(capabilities.as_deref().unwrap_or_default());
        match read_modern_result(&request.method, result, able) {
            ModernResult::Complete => return false,
            ModernResult::Input(input) => self.consult(key, input),
            ModernResult::Wrong(complaint) => self.fail_wrong(key, &complaint),
        }
        true
    }

    fn fail_wrong(&mut self, key: RequestKey, complaint: &str) {
        let server = &self.config.server;
        let text = format!("server {server} gave a result that cannot be served: {complaint}");
        let code = ErrorCode::INTERNAL_ERROR;
        let failure = Failure::of_server(code, server, text, &serde_json::Value::Null);
        self.fail(key, &failure);
    }

    fn consult(&mut self, key: RequestKey, input: Input) {
        let Some(consult) = self.consults.open.get_mut(&key) else {
            return self.fail_wrong(key, "it wants input for a call that cannot be sent again");
        };
        self.requests.suspend(key);
        consult.state = input.state;
        consult.answers.clear();
        if input.questions.is_empty() {
            let limit = self.config.request_timeout.unwrap_or(PATIENCE);
            let until = *consult.until.get_or_insert(self.now + limit);
            let retry_at = self.now + consult.pause;
            consult.pause = (consult.pause * 2).min(LONGEST_PAUSE);
            consult.retry_at = Some(retry_at);
            if retry_at > until {
                self.fail_wrong(
                    key,
                    "it wanted the call again and again and never completed it",
                );
            }
            return;
        }
        consult.rounds += 1;
        consult.unasked = input.questions;
        if consult.rounds > ROUNDS {
            let complaint = format!("it asked more than {ROUNDS} times");
            return self.fail_wrong(key, &complaint);
        }
        self.ask_what_is_due(key);
    }

    /// A legacy host has said that its session is ready: it may be asked now.
    pub(in crate::session) fn host_is_ready(&mut self, host: HostKey) {
        if let Some(attachment) = self.hosts.get_mut(&host) {
            attachment.is_ready = true;
        }
        let keys: Vec<_> = self.consults.open.keys().copied().collect();
        for key in keys {
            self.ask_what_is_due(key);
        }
    }

    fn ask_what_is_due(&mut self, key: RequestKey) {
        let Some(consult) = self.consults.open.get_mut(&key) else {
            return;
        };
        let host = consult.host;
        let Some(attachment) = self.hosts.get(&host).filter(|one| one.is_ready) else {
            return;
        };
        let version = attachment.version();
        let mut frames = Vec::new();
        for question in std::mem::take(&mut consult.unasked) {
            let id = self.questions.next_id();
            let params = legacy_params(&question, version, id);
            let params = (!params.is_empty()).then_some(&params[..]);
            frames.push(write::request(id, question.ask.method(), params));
            consult.asked.insert(id, question);
        }
        for frame in frames {
            self.send(host, frame, false);
        }
    }

    /// Takes a host's answer to a question of a modern child. False if it is none.
    pub(in crate::session) fn consult_answered(
        &mut self,
        host: HostKey,
        message: &Message,
    ) -> bool {
        let id = message.id().and_then(RequestId::as_u64);
        let Some((id, key)) = id.and_then(|id| Some((id, self.consults.of_question(host, id)?)))
        else {
            return false;
        };
        let Some(consult) = self.consults.open.get_mut(&key) else {
            return false;
        };
        let Some(question) = consult.asked.remove(&id) else {
            return false;
        };
        if !is_well_formed(message) {
            self.fail_wrong(key, "the host's answer to its question is no answer");
            return true;
        }
        if message.outcome() == Some(Outcome::Error) {
            let failure = failure_of(message.value(Member::Error).unwrap_or_default());
            self.fail(key, &failure);
            return true;
        }
        let answer = message.value(Member::Result).unwrap_or_default();
        if let Err(complaint) = question.ask.check_answer(answer) {
            self.fail_wrong(key, complaint);
            return true;
        }
        consult.answers.push((question.key, answer.to_vec()));
        if consult.asked.is_empty() && consult.unasked.is_empty() {
            self.send_again(key);
        }
        true
    }

    /// Sends the call again, with what there is to say.
    fn send_again(&mut self, key: RequestKey) {
        let Some(consult) = self.consults.open.get_mut(&key) else {
            return;
        };
        consult.retry_at = None;
        let mut extra = Vec::new();
        let answers = std::mem::take(&mut consult.answers);
        if !answers.is_empty() {
            let members: Vec<_> = answers
                .iter()
                .map(|(key, answer)| [&key[..], b":", answer].concat())
                .collect();
            extra.push(
                [
                    b"\"inputResponses\":{",
                    members.join(&b',').as_slice(),
                    b"}",
                ]
                .concat(),
            );
        }
        if let Some(state) = consult.state.take() {
            extra.push([b"\"requestState\":", &state[..]].concat());
        }
        let message = consult.message.clone();
        if let Some(frame) = self.write_dressed(key, &message, &extra) {
            self.queue.push_reserved(frame);
        }
    }

    /// Sends the calls again whose pause is over.
    pub(in crate::session) fn expire_pauses(&mut self) {
        let now = self.now;
        let due: Vec<_> = self
            .consults
            .open
            .iter()
            .filter(|(_, one)| one.retry_at.is_some_and(|at| at <= now))
            .map(|(key, _)| *key)
            .collect();
        for key in due {
            self.send_again(key);
        }
    }

    /// A call has left its table: what its host is still asked for it is taken back.
    pub(in crate::session) fn end_consult(&mut self, key: RequestKey) {
        let Some(consult) = self.consults.open.remove(&key) else {
            return;
        };
        let host = consult.host;
        self.pool
            .give_back(host, consult.message.bytes().len() as u64);
        for id in consult.asked.into_keys() {
            let params = format!("{{\"requestId\":{id},\"reason\":\"the call has ended\"}}");
            let frame = write::notification("notifications/cancelled", Some(params.as_bytes()));
            self.send(host, frame, false);
        }
    }
}

/// The parameters of a question for a host of this version: a visit needs an id since 2025-11-25.
fn legacy_params(question: &InputQuestion, version: Option<Version>, id: u64) -> Vec<u8> {
    let params = &question.params;
    let is_visit = question.ask == Ask::Elicit
        && json::find_member(params, "mode").is_some_and(|mode| mode.value == b"\"url\"");
    let has_id = json::find_member(params, "elicitationId").is_some();
    let inside = json::skip_space(params, 0) + 1;
    if !is_visit || has_id || version.is_none() || ValueType::of(params) != Some(ValueType::Object)
    {
        return params.clone();
    }
    let member = format!("\"elicitationId\":\"mcpd-{id}\",");
    [&params[..inside], member.as_bytes(), &params[inside..]].concat()
}
