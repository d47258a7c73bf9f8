//! A question of a legacy child on a call of a modern host, and the retry that answers it.
//!
//! Decides what a retry must be to count as one, what its answers do, and how a call ends whose
//! host is away. The child sees one call throughout. Source: MCP 2026-07-28 `basic/patterns/mrtr`.

use super::ModernCall;
use super::rounds::{Asked, Ending, QUESTIONS_PER_CALL, ROUNDS_LIMIT, Round, RoundKey, Stage};
use crate::ids::HostKey;
use crate::protocol::eras::question::{Ask, abilities, input_request};
use crate::protocol::eras::result::{input_required, may_ask};
use crate::protocol::eras::sameness::likeness;
use crate::protocol::json::{self, ValueType};
use crate::protocol::write::result_response;
use crate::protocol::{Era, ErrorCode, Member, Message, RequestId};
use crate::session::admission::Incoming;
use crate::session::answers::Failure;
use crate::session::mux::Mux;
use crate::session::requests::{HostAsker, OpenRequest, RequestKey};

impl Mux {
    /// The child asks something while this call of a modern host has the turn.
    pub(super) fn ask_in_round(
        &mut self,
        call: RequestKey,
        ask: Ask,
        id: &RequestId,
        message: &Message,
    ) {
        let Some(request) = self.requests.get(call) else {
            return;
        };
        let (Some(modern), opener) = (&request.modern, request.caller()) else {
            return;
        };
        let params = message.value(Member::Params).unwrap_or_default();
        if let Err(unaskable) = ask.check(params, abilities(&modern.capabilities)) {
            return self.refuse_question(id, unaskable.code, &unaskable.text);
        }
        let (Some(likeness), Some(opener)) = (modern.likeness, opener) else {
            return;
        };
        if self.rounds.of_call(call).is_none() && self.rounds.len() >= ROUNDS_LIMIT {
            return self.refuse_question(id, ErrorCode::OVERLOADED, "too many questions are open");
        }
        let key = self.rounds.open(call, opener, likeness);
        let Some(round) = self.rounds.get_mut(key) else {
            return;
        };
        if round.questions.len() >= QUESTIONS_PER_CALL {
            return self.refuse_question(id, ErrorCode::OVERLOADED, "too many questions are open");
        }
        round.add(Asked {
            child_id: id.clone(),
            ask,
            params: params.to_vec(),
            request: input_request(ask, message),
            is_put: false,
            is_withdrawn: false,
        });
        let had_progress = self.requests.get(call).is_some_and(|one| one.had_progress);
        if let Some(asker) = self.requests.park(call) {
            self.put_questions(key, &asker, had_progress);
            self.note_answered(&asker);
        }
    }

    /// Answers a request of the host with all that is open, under a new state.
    fn put_questions(&mut self, key: RoundKey, asker: &HostAsker, own_write: bool) {
        let server = self.config.server.clone();
        let state = self.rounds.new_state(key, &self.secret, &server, self.now);
        let Some(round) = self.rounds.get_mut(key) else {
            return;
        };
        let requests = round.put();
        let result = input_required(&requests, Some(&state), &self.server_info());
        let frame = result_response(&asker.id, &result);
        self.deliver(asker.host, asker.batch, Some(&asker.id), frame, own_write);
    }

    /// The round that a request comes back to, if it is a retry that we wait for.
    pub(in crate::session) fn round_of(&self, incoming: &Incoming) -> Option<RoundKey> {
        let state = incoming.message.text(Member::ParamsRequestState)?;
        self.rounds.of_state(&state)
    }

    /// Whether a request claims to be a retry of something that is not waited for. A child is
    /// never given the state of another.
    pub(super) fn is_stray_retry(message: &Message) -> bool {
        message.has(Member::ParamsRequestState) && may_ask(message.method().unwrap_or_default())
    }

    /// Takes a retry: its answers go to the child, and it gets what the call comes to.
    pub(in crate::session) fn take_retry(&mut self, incoming: Incoming, key: RoundKey) {
        let Some(round) = self.rounds.get(key) else {
            return;
        };
        if let Err(complaint) = check_retry(round, &incoming.message) {
            let failure = Failure::of_message(ErrorCode::INVALID_PARAMS, complaint);
            return self.refuse(incoming.host, incoming.batch, Some(&incoming.id), &failure);
        }
        self.rounds.use_state(key);
        self.pass_answers(key, &incoming.message);
        let modern = ModernCall::of(&incoming.message);
        self.refuse_what_it_cannot(key, &modern);
        let asker = HostAsker {
            host: incoming.host,
            id: incoming.id,
            batch: incoming.batch,
            token: incoming
                .message
                .value(Member::MetaProgressToken)
                .map(bytes::Bytes::copy_from_slice),
        };
        let Some(round) = self.rounds.get(key) else {
            return;
        };
        let Stage::Open(call) = round.stage else {
            return self.give_ending(key, &asker);
        };
        if round.questions.values().all(|asked| asked.is_withdrawn) {
            self.note_opened(&asker);
            self.requests.unpark(call, asker, modern);
        } else {
            self.put_questions(key, &asker, false);
        }
    }

    /// The host's answers become the child's; what it left out stays open.
    fn pass_answers(&mut self, key: RoundKey, message: &Message) {
        let Some(round) = self.rounds.get_mut(key) else {
            return;
        };
        let responses = message
            .value(Member::ParamsInputResponses)
            .unwrap_or_default();
        let mut answers = Vec::new();
        round.questions.retain(|name, asked| {
            let response = json::find_member(responses, name).filter(|_| asked.is_put);
            let Some(response) = response else {
                return !asked.is_withdrawn;
            };
            if !asked.is_withdrawn {
                answers.push(result_response(&asked.child_id, response.value));
            }
            false
        });
        for answer in answers {
            self.answer_child(answer);
        }
    }

    /// A retry says anew what its host can do; what it cannot is not asked again.
    fn refuse_what_it_cannot(&mut self, key: RoundKey, modern: &ModernCall) {
        let able = abilities(&modern.capabilities);
        let mut refused = Vec::new();
        if let Some(round) = self.rounds.get_mut(key) {
            round.questions.retain(|_, asked| {
                let checked = asked.ask.check(&asked.params, able);
                if let Err(unaskable) = &checked {
                    refused.push((asked.child_id.clone(), unaskable.clone()));
                }
                checked.is_ok()
            });
        }
        for (id, unaskable) in refused {
            self.refuse_question(&id, unaskable.code, &unaskable.text);
        }
    }

    /// The call has ended while the host was thinking: the retry gets what it came to.
    fn give_ending(&mut self, key: RoundKey, asker: &HostAsker) {
        let Some(round) = self.rounds.remove(key) else {
            return;
        };
        let Stage::Ended {
            request,
            ending,
            held_bytes,
        } = round.stage
        else {
            return;
        };
        self.pool.give_back(round.opener, held_bytes);
        let frame = match ending {
            Ending::Answered(message) => self.answer_frame(&request, asker, &message),
            Ending::Failed(failure) => self.error_frame(asker.host, Some(&asker.id), &failure),
        };
        self.deliver(asker.host, asker.batch, Some(&asker.id), frame, false);
    }

    /// A call whose host is thinking has ended. What it came to waits for the retry.
    pub(in crate::session) fn keep_ending(
        &mut self,
        call: RequestKey,
        request: OpenRequest,
        ending: Ending,
    ) {
        let Some(key) = self.rounds.of_call(call) else {
            return;
        };
        self.refuse_questions_of(key, "the call that it belongs to has ended");
        let Some(opener) = self.rounds.get(key).map(|round| round.opener) else {
            return;
        };
        let ending = match ending {
            // Copied: a slice would keep the memory that the line was read into.
            Ending::Answered(message) => {
                let copy = bytes::Bytes::copy_from_slice(message.bytes());
                Ending::Answered(Message::parse(copy).map_or(message, Box::new))
            }
            failed @ Ending::Failed(_) => failed,
        };
        let held_bytes = match &ending {
            Ending::Answered(message) => message.bytes().len() as u64,
            Ending::Failed(_) => 0,
        };
        let stage = Stage::Ended {
            request: Box::new(request),
            ending,
            held_bytes,
        };
        self.rounds.end_call(key, stage);
        self.hold(opener, held_bytes);
    }

    /// A call has ended with its host there, or without a word: its questions go with it.
    pub(in crate::session) fn end_round(&mut self, call: RequestKey) {
        if let Some(key) = self.rounds.of_call(call) {
            self.refuse_questions_of(key, "the call that it belongs to has ended");
            self.rounds.remove(key);
        }
    }

    fn refuse_questions_of(&mut self, key: RoundKey, text: &str) {
        let Some(round) = self.rounds.get_mut(key) else {
            return;
        };
        let questions = std::mem::take(&mut round.questions);
        for asked in questions.into_values().filter(|one| !one.is_withdrawn) {
            self.refuse_question(&asked.child_id, ErrorCode::INTERNAL_ERROR, text);
        }
    }

    /// Gives up the calls whose hosts did not come back in time.
    pub(in crate::session) fn expire_rounds(&mut self) {
        for key in self.rounds.expired(self.now) {
            self.give_up(key, "the host did not come back with an answer");
        }
    }

    /// A host has left, and the calls that it opened go with it, whoever came back to them.
    pub(in crate::session) fn end_rounds_of(&mut self, host: HostKey) {
        for key in self.rounds.opened_by(host) {
            self.give_up(key, "the host that opened the call has left");
        }
    }

    fn give_up(&mut self, key: RoundKey, reason: &str) {
        self.refuse_questions_of(key, reason);
        let Some(round) = self.rounds.remove(key) else {
            return;
        };
        match round.stage {
            Stage::Open(call) => {
                self.cancel_upstream(call, reason);
                if self
                    .requests
                    .get(call)
                    .is_some_and(|one| one.host().is_some())
                {
                    let failure = Failure::of_message(ErrorCode::INTERNAL_ERROR, reason);
                    self.fail(call, &failure);
                } else {
                    self.drop_request(call);
                }
            }
            Stage::Ended { held_bytes, .. } => self.pool.give_back(round.opener, held_bytes),
        }
    }
}

/// Whether a request is the retry that a round waits for.
fn check_retry(round: &Round, message: &Message) -> Result<(), String> {
    let method = message.method().unwrap_or_default();
    let params = message.value(Member::Params).unwrap_or_default();
    if likeness(method, params) != round.likeness {
        return Err("`params.requestState` belongs to another request".to_owned());
    }
    let Some(responses) = message.value(Member::ParamsInputResponses) else {
        return Ok(());
    };
    if ValueType::of(responses) != Some(ValueType::Object) {
        return Err("`params.inputResponses` is no object".to_owned());
    }
    for (name, asked) in round.questions.iter().filter(|(_, asked)| asked.is_put) {
        let answer = json::find_member(responses, name);
        if let Some(answer) = answer
            && let Err(complaint) = asked.ask.check_answer(answer.value)
        {
            return Err(format!(
                "`params.inputResponses.{name}` is no answer to `{}`: {complaint}",
                asked.ask.method()
            ));
        }
    }
    Ok(())
}

/// A request of a modern host for a legacy child that may be asked about.
pub(super) fn likeness_of(message: &Message) -> Option<crate::protocol::eras::sameness::Likeness> {
    let method = message.method().filter(|method| may_ask(method))?;
    let params = message.value(Member::Params).unwrap_or_default();
    debug_assert_eq!(crate::protocol::eras::era_of(message), Era::Modern);
    Some(likeness(method, params))
}
