//! Calls of modern hosts on which a legacy child has asked something.
//!
//! Keeps what was asked, under which state the host may come back, and what became of the call
//! meanwhile. The child's call stays open from round to round; of the host's requests each is
//! answered. Never sends anything: `retrying` does. Source: MCP 2026-07-28 `basic/patterns/mrtr`.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::ids::HostKey;
use crate::protocol::eras::question::Ask;
use crate::protocol::eras::sameness::Likeness;
use crate::protocol::{Message, RequestId};
use crate::session::answers::Failure;
use crate::session::requests::{OpenRequest, RequestKey};
use crate::time::Moment;

/// How long a host may think about a question.
pub(super) const PATIENCE: Duration = Duration::from_secs(10 * 60);

/// Calls with questions that may be kept on one instance.
pub(super) const ROUNDS_LIMIT: usize = 1_000;

/// Questions that one call may have open.
pub(super) const QUESTIONS_PER_CALL: usize = 100;

/// One call with questions, unique on its multiplexer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::session) struct RoundKey(u64);

/// One question.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    /// The child's own id, byte for byte.
    pub(super) child_id: RequestId,
    pub(super) ask: Ask,
    /// `params` as the child wrote them.
    pub(super) params: Vec<u8>,
    /// The member of `inputRequests`, its key left out.
    pub(super) request: Vec<u8>,
    /// Whether the host has it; else it came meanwhile and goes into the next round.
    pub(super) is_put: bool,
    /// Whether the child does not want to know any more. An answer is taken and dropped.
    pub(super) is_withdrawn: bool,
}

/// What the call came to while its host was thinking.
#[derive(Clone, Debug)]
pub(in crate::session) enum Ending {
    Answered(Box<Message>),
    Failed(Failure),
}

/// Where the call is.
#[derive(Clone, Debug)]
pub(super) enum Stage {
    /// Open on the child. Left when it ends between two rounds.
    Open(RequestKey),
    /// Ended between two rounds: the retry gets this at once.
    Ended {
        request: Box<OpenRequest>,
        ending: Ending,
        /// Bytes that the opener is charged with.
        held_bytes: u64,
    },
}

/// One call with its questions.
#[derive(Clone, Debug)]
pub(super) struct Round {
    /// The attachment that opened the call; it ends with that.
    pub(super) opener: HostKey,
    /// What was asked, which a retry has to ask again.
    pub(super) likeness: Likeness,
    pub(super) stage: Stage,
    pub(super) questions: BTreeMap<String, Asked>,
    last_question: u64,
    /// Under which the host may come back, and until when; none while its request is open.
    state: Option<(String, Moment)>,
}

impl Round {
    /// Adds a question under a key that is unique in the call.
    pub(super) fn add(&mut self, asked: Asked) {
        self.last_question += 1;
        let key = format!("q{}", self.last_question);
        self.questions.insert(key, asked);
    }

    /// The members of `inputRequests`, all that is open; from here on the host has them.
    pub(super) fn put(&mut self) -> Vec<u8> {
        self.questions.retain(|_, asked| !asked.is_withdrawn);
        let mut members = Vec::new();
        for (key, asked) in &mut self.questions {
            asked.is_put = true;
            members.push([b"\"", key.as_bytes(), b"\":", &asked.request].concat());
        }
        members.join(&b',')
    }
}

/// All calls with questions.
#[derive(Debug, Default)]
pub(in crate::session) struct Rounds {
    last: u64,
    last_state: u64,
    all: BTreeMap<RoundKey, Round>,
    by_call: BTreeMap<RequestKey, RoundKey>,
    by_state: BTreeMap<String, RoundKey>,
}

impl Rounds {
    /// The round of a call, a new one if it has none.
    pub(super) fn open(
        &mut self,
        call: RequestKey,
        opener: HostKey,
        likeness: Likeness,
    ) -> RoundKey {
        if let Some(key) = self.by_call.get(&call) {
            return *key;
        }
        self.last += 1;
        let key = RoundKey(self.last);
        self.by_call.insert(call, key);
        self.all.insert(
            key,
            Round {
                opener,
                likeness,
                stage: Stage::Open(call),
                questions: BTreeMap::new(),
                last_question: 0,
                state: None,
            },
        );
        key
    }

    pub(super) fn get(&self, key: RoundKey) -> Option<&Round> {
        self.all.get(&key)
    }

    pub(super) fn get_mut(&mut self, key: RoundKey) -> Option<&mut Round> {
        self.all.get_mut(&key)
    }

    pub(super) fn of_call(&self, call: RequestKey) -> Option<RoundKey> {
        self.by_call.get(&call).copied()
    }

    /// The round to which a host may come back with this state.
    pub(in crate::session) fn of_state(&self, state: &str) -> Option<RoundKey> {
        self.by_state.get(state).copied()
    }

    /// Gives a round a state that nobody can guess who does not know `secret`.
    pub(super) fn new_state(
        &mut self,
        key: RoundKey,
        secret: &[u8; 32],
        server: &str,
        now: Moment,
    ) -> String {
        self.last_state += 1;
        let mut hasher = blake3::Hasher::new_keyed(secret);
        hasher.update(server.as_bytes());
        hasher.update(&self.last_state.to_le_bytes());
        let state = hasher.finalize().to_hex().to_string();
        self.use_state(key);
        if let Some(round) = self.all.get_mut(&key) {
            round.state = Some((state.clone(), now + PATIENCE));
            self.by_state.insert(state.clone(), key);
        }
        state
    }

    /// The state of a round is good for nothing any more.
    pub(super) fn use_state(&mut self, key: RoundKey) {
        let state = self.all.get_mut(&key).and_then(|round| round.state.take());
        if let Some((state, _)) = state {
            self.by_state.remove(&state);
        }
    }

    /// The call of a round has ended while its host was thinking.
    pub(super) fn end_call(&mut self, key: RoundKey, stage: Stage) {
        if let Some(round) = self.all.get_mut(&key)
            && let Stage::Open(call) = std::mem::replace(&mut round.stage, stage)
        {
            self.by_call.remove(&call);
        }
    }

    pub(super) fn remove(&mut self, key: RoundKey) -> Option<Round> {
        self.use_state(key);
        let round = self.all.remove(&key)?;
        if let Stage::Open(call) = round.stage {
            self.by_call.remove(&call);
        }
        Some(round)
    }

    /// The rounds that a host has opened.
    pub(super) fn opened_by(&self, host: HostKey) -> Vec<RoundKey> {
        let opened = self.all.iter().filter(|(_, round)| round.opener == host);
        opened.map(|(key, _)| *key).collect()
    }

    /// The question that the child knows as `id`.
    pub(super) fn question_of_child(&mut self, id: &RequestId) -> Option<&mut Asked> {
        self.all
            .values_mut()
            .flat_map(|round| round.questions.values_mut())
            .find(|asked| asked.child_id == *id && !asked.is_withdrawn)
    }

    /// When the first host has thought for too long.
    pub(in crate::session) fn next_deadline(&self) -> Option<Moment> {
        let states = self.all.values().filter_map(|round| round.state.as_ref());
        states.map(|(_, until)| *until).min()
    }

    /// Those whose hosts have thought for too long.
    pub(super) fn expired(&self, now: Moment) -> Vec<RoundKey> {
        let is_over = |round: &Round| matches!(round.state, Some((_, until)) if until <= now);
        let expired = self.all.iter().filter(|(_, round)| is_over(round));
        expired.map(|(key, _)| *key).collect()
    }

    pub(in crate::session) fn len(&self) -> usize {
        self.all.len()
    }
}
