//! The listen streams of modern hosts on a legacy child.
//!
//! Keeps which streams there are, what each carries and what is held until it is acknowledged.
//! Never sends anything: `listening` does.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::HostKey;
use crate::protocol::eras::listen::Filter;
use crate::protocol::{Frame, RequestId};

/// Events that are held for one stream until it is acknowledged.
const HELD_LIMIT: usize = 1_000;

/// One listen stream, unique on its multiplexer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::session) struct ListenKey(pub(in crate::session) u64);

/// How far a stream is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The child has not answered for all uris yet: events are held. Left to `Open` with the
    /// acknowledgement, which is the first message of a stream.
    Opening {
        /// Uris that it has not answered for.
        pending: BTreeSet<String>,
        held: Vec<Vec<u8>>,
    },
    /// Acknowledged.
    Open,
}

/// One stream.
#[derive(Clone, Debug)]
pub(super) struct Listen {
    pub(super) host: HostKey,
    /// The id of the host's request, byte for byte: every message of the stream carries it.
    pub(super) id: RequestId,
    /// What is honoured; until it is acknowledged, what is asked for and not yet refused.
    pub(super) filter: Filter,
    pub(super) phase: Phase,
}

impl Listen {
    /// Holds an event of a stream that is not acknowledged; false if it is to be sent at once. One
    /// that is held already says the same thing again.
    pub(super) fn hold(&mut self, frame: &Frame) -> bool {
        let Phase::Opening { held, .. } = &mut self.phase else {
            return false;
        };
        let bytes = frame.to_vec();
        if held.len() < HELD_LIMIT && !held.contains(&bytes) {
            held.push(bytes);
        }
        true
    }
}

/// All streams.
#[derive(Debug, Default)]
pub(in crate::session) struct Listens {
    last: u64,
    open: BTreeMap<ListenKey, Listen>,
}

impl Listens {
    /// Adds a stream that waits for the child's word on these uris.
    pub(super) fn add(&mut self, host: HostKey, id: RequestId, filter: Filter) -> ListenKey {
        self.last += 1;
        let key = ListenKey(self.last);
        let pending = filter.uris.iter().map(|uri| uri.text.clone()).collect();
        let phase = Phase::Opening {
            pending,
            held: Vec::new(),
        };
        self.open.insert(
            key,
            Listen {
                host,
                id,
                filter,
                phase,
            },
        );
        key
    }

    pub(super) fn get(&self, key: ListenKey) -> Option<&Listen> {
        self.open.get(&key)
    }

    pub(super) fn get_mut(&mut self, key: ListenKey) -> Option<&mut Listen> {
        self.open.get_mut(&key)
    }

    pub(super) fn remove(&mut self, key: ListenKey) -> Option<Listen> {
        self.open.remove(&key)
    }

    /// All there are.
    pub(super) fn keys(&self) -> Vec<ListenKey> {
        self.open.keys().copied().collect()
    }

    /// Those that `wanted` picks.
    pub(super) fn keys_where(&self, wanted: impl Fn(&Listen) -> bool) -> Vec<ListenKey> {
        let picked = self.open.iter().filter(|(_, listen)| wanted(listen));
        picked.map(|(key, _)| *key).collect()
    }

    /// The stream that `host` knows as `id`.
    pub(in crate::session) fn of_host(&self, host: HostKey, id: &RequestId) -> Option<ListenKey> {
        self.open
            .iter()
            .find(|(_, listen)| listen.host == host && listen.id == *id)
            .map(|(key, _)| *key)
    }

    /// How many a host has.
    pub(in crate::session) fn count_of(&self, host: HostKey) -> usize {
        self.open
            .values()
            .filter(|listen| listen.host == host)
            .count()
    }

    /// A host is gone; what its streams held with the child goes with the host's subscriptions.
    pub(in crate::session) fn leave(&mut self, host: HostKey) {
        self.open.retain(|_, listen| listen.host != host);
    }

    /// How many there are.
    pub(in crate::session) fn len(&self) -> usize {
        self.open.len()
    }
}
