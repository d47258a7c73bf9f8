//! What legacy hosts were asked and have not answered.
//!
//! Keeps under which id of ours a host knows a question, and whose answer it will be. Never sends
//! anything: `asking` does.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::ids::HostKey;
use crate::protocol::RequestId;

/// Questions that may be open on one child.
pub(super) const QUESTIONS_LIMIT: usize = 1_000;

/// Url elicitations whose end may still be told.
const ELICITATIONS_LIMIT: usize = 1_000;

/// One question of a legacy child.
#[derive(Clone, Debug)]
pub(super) struct Question {
    /// The child's own id, byte for byte.
    pub(super) child_id: RequestId,
    /// The child's own progress token, byte for byte.
    pub(super) token: Option<Bytes>,
}

/// All that are open.
#[derive(Debug, Default)]
pub(in crate::session) struct Questions {
    last: u64,
    open: BTreeMap<(HostKey, u64), Question>,
    /// Which host was sent to which place.
    elicitations: BTreeMap<String, HostKey>,
}

impl Questions {
    /// An id for something else that a host is asked.
    pub(super) fn next_id(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Adds one: the id under which the host gets it.
    pub(super) fn add(&mut self, host: HostKey, question: Question) -> u64 {
        self.last += 1;
        self.open.insert((host, self.last), question);
        self.last
    }

    pub(super) fn get(&self, host: HostKey, id: u64) -> Option<&Question> {
        self.open.get(&(host, id))
    }

    /// Takes off the one that `host` knows as `id`.
    pub(super) fn take(&mut self, host: HostKey, id: u64) -> Option<Question> {
        self.open.remove(&(host, id))
    }

    /// Takes off all of a host, each with the id under which it knows it.
    pub(super) fn take_of(&mut self, host: HostKey) -> Vec<(u64, Question)> {
        let ids: Vec<_> = self
            .open
            .range((host, 0)..=(host, u64::MAX))
            .map(|((_, id), _)| *id)
            .collect();
        ids.into_iter()
            .filter_map(|id| Some((id, self.take(host, id)?)))
            .collect()
    }

    /// Takes off the one that the child knows as `id`, with its host.
    pub(super) fn take_of_child(&mut self, id: &RequestId) -> Option<(HostKey, u64)> {
        let key = self
            .open
            .iter()
            .find(|(_, question)| question.child_id == *id)
            .map(|(key, _)| *key)?;
        self.open.remove(&key);
        Some(key)
    }

    /// Takes off everything: the child is gone.
    pub(super) fn take_all(&mut self) -> Vec<(HostKey, u64)> {
        self.elicitations.clear();
        std::mem::take(&mut self.open).into_keys().collect()
    }

    /// Whether a host is being asked something.
    pub(in crate::session) fn has_any(&self, host: HostKey) -> bool {
        let of_host = (host, 0)..=(host, u64::MAX);
        self.open.range(of_host).next().is_some()
    }

    pub(in crate::session) fn len(&self) -> usize {
        self.open.len()
    }

    /// A host was sent to a place; when the visit is over it alone is told.
    pub(super) fn note_elicitation(&mut self, id: String, host: HostKey) {
        if self.elicitations.len() < ELICITATIONS_LIMIT {
            self.elicitations.insert(id, host);
        }
    }

    /// The host that was sent there.
    pub(super) fn end_elicitation(&mut self, id: &str) -> Option<HostKey> {
        self.elicitations.remove(id)
    }

    /// A host is gone and hears of nothing any more.
    pub(super) fn forget_elicitations(&mut self, host: HostKey) {
        self.elicitations.retain(|_, sent| *sent != host);
    }
}
