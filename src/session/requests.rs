//! The table of open requests: who asked, under which id, and how far it has got.
//!
//! Decides the ids that go upstream: small positive integers, never reused within a generation, so
//! that a late answer cannot meet a later request. Keeps what an answer needs and nothing else: a
//! request that was written is never written again, so its bytes are not kept.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::catalogue::ListKind;
use super::eras::ModernCall;
use super::levels::Level;
use super::subscriptions::{Holder, Uri};
use crate::ids::HostKey;
use crate::protocol::eras::sameness::Likeness;
use crate::protocol::opening::OPENING_IDS;
use crate::protocol::{Era, RequestId};
use crate::time::Moment;

/// A request in the table, in order of arrival. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RequestKey(pub(super) u64);

/// The id of a request as the child knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct UpstreamId(pub(super) u64);

/// One batch of a host whose array is not complete yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BatchKey(pub(super) u64);

/// Where an answer goes.
#[derive(Clone, Debug)]
pub(super) struct HostAsker {
    pub(super) host: HostKey,
    /// The host's own id, byte for byte.
    pub(super) id: RequestId,
    /// The array that the answer belongs into.
    pub(super) batch: Option<BatchKey>,
    /// The host's own progress token, byte for byte.
    pub(super) token: Option<Bytes>,
}

/// Who made a request.
#[derive(Clone, Debug)]
pub(super) enum Asker {
    Host(HostAsker),
    /// A modern host that was asked something and has not come back: it knows the request by no id.
    Parked(HostKey),
    /// mcpd itself: what a new child has to be told again, and what nobody wants any more.
    Mux,
}

/// What is done with the answer beyond handing it to the asker.
#[derive(Clone, Debug)]
pub(super) enum Purpose {
    /// Nothing.
    Call,
    /// A host's `initialize` waits for the child's, with the version that the host asked for.
    Initialize {
        asked: String,
    },
    /// One page of a list; the cursor is the raw JSON string that was sent.
    List {
        kind: ListKind,
        cursor: Option<Bytes>,
    },
    Subscribe(Uri),
    /// Our own subscription to a uri of a listen stream of a modern host.
    SubscribeFor(Holder, Uri),
    Unsubscribe(Uri),
    /// `asked` is what the host wants; `sent` is there once it was written.
    SetLevel {
        asked: Level,
        sent: Option<SentLevel>,
    },
}

/// What was written for a host's `logging/setLevel`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SentLevel {
    /// The most verbose level of all hosts, which is what the child was asked for.
    pub(super) level: Level,
    /// The level that the host had before and gets back if the child refuses.
    pub(super) previous: Option<Level>,
}

/// How far a request has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Not written to any child: it waits in the queue, or for the handshake.
    Waiting,
    /// The child has answered, but not completed it: its host, or a stream, is waited for.
    Suspended,
    /// Written to the present child.
    Written {
        id: UpstreamId,
        deadline: Option<Moment>,
    },
}

/// One open request.
#[derive(Clone, Debug)]
pub(super) struct OpenRequest {
    pub(super) asker: Asker,
    pub(super) purpose: Purpose,
    /// The method's name, for `status`.
    pub(super) method: Cow<'static, str>,
    pub(super) arrived: Moment,
    pub(super) progress: Progress,
    /// The era that its asker speaks; of a request of our own, that of the child.
    pub(super) era: Era,
    /// What a modern request says of its host.
    pub(super) modern: Option<Box<ModernCall>>,
    /// Whether it counts for `max_calls`.
    pub(super) is_call: bool,
    /// Whether a progress notification went out for it.
    pub(super) had_progress: bool,
    /// The tool that it calls.
    pub(super) tool: Option<Box<str>>,
    /// The value of the last progress of a modern child that went out.
    pub(super) last_progress: Option<f64>,
}

impl OpenRequest {
    /// Its host, unless it is one of our own.
    pub(super) const fn host(&self) -> Option<&HostAsker> {
        match &self.asker {
            Asker::Host(asker) => Some(asker),
            Asker::Parked(_) | Asker::Mux => None,
        }
    }

    /// Whether its host is thinking about a question.
    pub(super) const fn is_parked(&self) -> bool {
        matches!(self.asker, Asker::Parked(_))
    }

    /// Whether it is one of our own.
    pub(super) const fn is_own(&self) -> bool {
        matches!(self.asker, Asker::Mux)
    }

    /// The host on whose behalf it is open.
    pub(super) const fn caller(&self) -> Option<HostKey> {
        match &self.asker {
            Asker::Host(asker) => Some(asker.host),
            Asker::Parked(host) => Some(*host),
            Asker::Mux => None,
        }
    }

    pub(super) const fn is_written(&self) -> bool {
        matches!(self.progress, Progress::Written { .. })
    }
}

/// Ids for which room is kept while none is open.
const SPARE_IDS: usize = 64;

/// The open requests of one host by its own ids, in their order.
#[derive(Debug, Default)]
struct ByHost(Vec<(RequestId, RequestKey)>);

impl ByHost {
    fn place(&self, id: &RequestId) -> Result<usize, usize> {
        self.0.binary_search_by(|(one, _)| one.cmp(id))
    }

    fn get(&self, id: &RequestId) -> Option<RequestKey> {
        self.place(id).ok().map(|at| self.0[at].1)
    }

    /// The last request with an id is the one that counts.
    fn insert(&mut self, id: RequestId, key: RequestKey) {
        match self.place(&id) {
            Ok(at) => self.0[at].1 = key,
            Err(at) => self.0.insert(at, (id, key)),
        }
    }

    fn remove(&mut self, id: &RequestId) {
        if let Ok(at) = self.place(id) {
            self.0.remove(at);
        }
    }
}

/// All requests that are open on one instance.
#[derive(Debug, Default)]
pub(super) struct Requests {
    last_key: u64,
    /// The id that was given last to this child.
    last_upstream: u64,
    open: BTreeMap<RequestKey, OpenRequest>,
    by_host: BTreeMap<HostKey, ByHost>,
    /// One that is empty and keeps its room: a host that calls and calls needs no more memory.
    spare: ByHost,
    by_upstream: BTreeMap<UpstreamId, RequestKey>,
    deadlines: BTreeSet<(Moment, RequestKey)>,
    /// Those that wait; keys grow with the time of arrival, so the first has waited longest.
    waiting: BTreeSet<RequestKey>,
    /// Those that are neither with a child nor waiting for one.
    suspended: BTreeSet<RequestKey>,
    /// Written requests that count for `max_calls`.
    written_calls: usize,
    /// Written requests of hosts, which a drain waits for.
    written_of_hosts: usize,
}

impl Requests {
    /// The next place in the order of arrival.
    pub(super) fn next_key(&mut self) -> RequestKey {
        self.last_key += 1;
        RequestKey(self.last_key)
    }

    /// Opens a request under a key from [`Requests::next_key`]. It waits until it is written.
    pub(super) fn insert(&mut self, key: RequestKey, request: OpenRequest) {
        if let Some(asker) = request.host() {
            self.note_id(asker.host, asker.id.clone(), key);
        }
        self.waiting.insert(key);
        self.open.insert(key, request);
    }

    pub(super) fn get(&self, key: RequestKey) -> Option<&OpenRequest> {
        self.open.get(&key)
    }

    /// The open request that `host` knows as `id`.
    pub(super) fn of_host(&self, host: HostKey, id: &RequestId) -> Option<RequestKey> {
        self.by_host.get(&host)?.get(id)
    }

    /// The open request that the child knows as `id`, whatever the spelling of that number.
    pub(super) fn of_upstream(&self, id: &RequestId) -> Option<RequestKey> {
        self.by_upstream.get(&UpstreamId(id.as_u64()?)).copied()
    }

    /// Marks a request as written and gives it its upstream id.
    pub(super) fn mark_written(
        &mut self,
        key: RequestKey,
        deadline: Option<Moment>,
    ) -> Option<UpstreamId> {
        let request = self.open.get_mut(&key)?;
        self.last_upstream += 1;
        let id = UpstreamId(self.last_upstream);
        request.progress = Progress::Written { id, deadline };
        self.written_calls += usize::from(request.is_call);
        self.written_of_hosts += usize::from(!request.is_own());
        self.waiting.remove(&key);
        self.suspended.remove(&key);
        self.by_upstream.insert(id, key);
        if let Some(deadline) = deadline {
            self.deadlines.insert((deadline, key));
        }
        Some(id)
    }

    /// Notes what was written for a request to set the level.
    pub(super) fn note_sent_level(&mut self, key: RequestKey, level: SentLevel) {
        if let Some(Purpose::SetLevel { sent, .. }) =
            self.open.get_mut(&key).map(|request| &mut request.purpose)
        {
            *sent = Some(level);
        }
    }

    /// Takes a request back from the child, which has answered it in a way that is no end.
    pub(super) fn suspend(&mut self, key: RequestKey) {
        let Some(request) = self.open.get_mut(&key) else {
            return;
        };
        let was = std::mem::replace(&mut request.progress, Progress::Suspended);
        self.waiting.remove(&key);
        self.suspended.insert(key);
        if let Progress::Written { id, deadline } = was {
            self.by_upstream.remove(&id);
            self.written_calls -= usize::from(request.is_call);
            self.written_of_hosts -= usize::from(!request.is_own());
            if let Some(deadline) = deadline {
                self.deadlines.remove(&(deadline, key));
            }
        }
    }

    /// All that are suspended.
    pub(super) fn suspended(&self) -> Vec<RequestKey> {
        self.suspended.iter().copied().collect()
    }

    /// An id for a request of our own that is in no table.
    pub(super) fn take_upstream_id(&mut self) -> u64 {
        self.last_upstream += 1;
        self.last_upstream
    }

    /// Whether this value of progress is above the last one; it is the last one then.
    pub(super) fn advance(&mut self, key: RequestKey, value: f64) -> bool {
        let Some(request) = self.open.get_mut(&key) else {
            return true;
        };
        let is_ahead = request.last_progress.is_none_or(|last| value > last);
        if is_ahead {
            request.last_progress = Some(value);
        }
        is_ahead
    }

    /// Notes that progress went out for a request.
    pub(super) fn mark_progress(&mut self, key: RequestKey) {
        if let Some(request) = self.open.get_mut(&key) {
            request.had_progress = true;
        }
    }

    /// Notes what a retry of a request has to ask again.
    pub(super) fn note_likeness(&mut self, key: RequestKey, likeness: Option<Likeness>) {
        let request = self.open.get_mut(&key);
        if let Some(modern) = request.and_then(|request| request.modern.as_mut()) {
            modern.likeness = likeness;
        }
    }

    /// The host is asked something: its request is answered with that, and the call stays open
    /// without an asker. The asker, if there was one.
    pub(super) fn park(&mut self, key: RequestKey) -> Option<HostAsker> {
        let request = self.open.get_mut(&key)?;
        let host = request.host()?.host;
        let Asker::Host(asker) = std::mem::replace(&mut request.asker, Asker::Parked(host)) else {
            return None;
        };
        request.had_progress = false;
        self.forget_id(&asker);
        Some(asker)
    }

    /// The host has come back to a call with another request.
    pub(super) fn unpark(&mut self, key: RequestKey, asker: HostAsker, mut modern: ModernCall) {
        let Some(request) = self.open.get_mut(&key) else {
            return;
        };
        modern.likeness = request.modern.as_ref().and_then(|before| before.likeness);
        request.modern = Some(Box::new(modern));
        let (host, id) = (asker.host, asker.id.clone());
        request.asker = Asker::Host(asker);
        self.note_id(host, id, key);
    }

    fn forget_id(&mut self, asker: &HostAsker) {
        if let Some(ids) = self.by_host.get_mut(&asker.host) {
            ids.remove(&asker.id);
            if ids.0.is_empty()
                && let Some(ids) = self.by_host.remove(&asker.host)
                && ids.0.capacity() <= SPARE_IDS
            {
                self.spare = ids;
            }
        }
    }

    fn note_id(&mut self, host: HostKey, id: RequestId, key: RequestKey) {
        let spare = &mut self.spare;
        let ids = self
            .by_host
            .entry(host)
            .or_insert_with(|| std::mem::take(spare));
        ids.insert(id, key);
    }

    /// Closes a request.
    pub(super) fn remove(&mut self, key: RequestKey) -> Option<OpenRequest> {
        let request = self.open.remove(&key)?;
        self.waiting.remove(&key);
        self.suspended.remove(&key);
        if let Progress::Written { id, deadline, .. } = request.progress {
            self.by_upstream.remove(&id);
            self.written_calls -= usize::from(request.is_call);
            self.written_of_hosts -= usize::from(!request.is_own());
            if let Some(deadline) = deadline {
                self.deadlines.remove(&(deadline, key));
            }
        }
        if let Some(asker) = request.host() {
            self.forget_id(asker);
        }
        Some(request)
    }

    /// A new child's ids count from the beginning, behind those of the first exchange. Nothing that
    /// was written to the old one may be open any more.
    pub(super) fn begin_generation(&mut self) {
        debug_assert!(self.by_upstream.is_empty(), "a request outlived its child");
        self.last_upstream = OPENING_IDS;
    }

    /// The one request that is written and not answered, if it is only one.
    pub(super) fn only_written(&self) -> Option<RequestKey> {
        let mut written = self.by_upstream.values();
        match (written.next(), written.next()) {
            (Some(&key), None) => Some(key),
            _ => None,
        }
    }

    /// When the request of a host arrived that was written first and waits for the child.
    pub(super) fn oldest_written(&self) -> Option<Moment> {
        let mut written = self
            .by_upstream
            .values()
            .filter_map(|key| self.open.get(key));
        let waited_for = written.find(|request| !request.is_own() && !request.is_parked());
        waited_for.map(|request| request.arrived)
    }

    /// All that are written to the present child.
    pub(super) fn written(&self) -> Vec<RequestKey> {
        self.by_upstream.values().copied().collect()
    }

    /// All that wait for a child, longest first.
    pub(super) fn waiting(&self) -> impl Iterator<Item = (RequestKey, &OpenRequest)> {
        self.waiting
            .iter()
            .filter_map(|key| Some((*key, self.open.get(key)?)))
    }

    /// All requests of a host.
    pub(super) fn all_of(&self, host: HostKey) -> Vec<RequestKey> {
        self.by_host
            .get(&host)
            .into_iter()
            .flat_map(|ids| ids.0.iter().map(|(_, key)| *key))
            .collect()
    }

    /// How many requests a host has open.
    pub(super) fn count_of(&self, host: HostKey) -> usize {
        self.by_host.get(&host).map_or(0, |ids| ids.0.len())
    }

    /// Written requests that count for `max_calls`.
    pub(super) const fn written_calls(&self) -> usize {
        self.written_calls
    }

    /// Written requests of hosts.
    pub(super) const fn written_of_hosts(&self) -> usize {
        self.written_of_hosts
    }

    /// How many are open, our own included.
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    /// When the first written request times out.
    pub(super) fn next_deadline(&self) -> Option<Moment> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// A written request that has timed out.
    pub(super) fn expired(&self, now: Moment) -> Option<RequestKey> {
        self.deadlines
            .first()
            .filter(|(deadline, _)| *deadline <= now)
            .map(|(_, key)| *key)
    }

    /// The request of a host that arrived first, of all that are open.
    pub(super) fn oldest(&self) -> Option<&OpenRequest> {
        self.open.values().find(|request| request.host().is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: HostKey = HostKey(1);
    const B: HostKey = HostKey(2);

    fn request(host: HostKey, id: &str) -> OpenRequest {
        OpenRequest {
            asker: Asker::Host(HostAsker {
                host,
                id: RequestId::parse(id.as_bytes()).expect("a valid id"),
                batch: None,
                token: None,
            }),
            purpose: Purpose::Call,
            method: "tools/call".into(),
            arrived: Moment::ZERO,
            progress: Progress::Waiting,
            era: Era::Legacy,
            modern: None,
            is_call: true,
            had_progress: false,
            tool: None,
            last_progress: None,
        }
    }

    fn open(requests: &mut Requests, host: HostKey, id: &str) -> RequestKey {
        let key = requests.next_key();
        requests.insert(key, request(host, id));
        key
    }

    fn id(text: &str) -> RequestId {
        RequestId::parse(text.as_bytes()).expect("a valid id")
    }

    #[test]
    fn equal_ids_of_two_hosts_are_two_requests() {
        let mut requests = Requests::default();
        let (one, other) = (open(&mut requests, A, "1"), open(&mut requests, B, "1"));
        assert_eq!(requests.of_host(A, &id("1.0")), Some(one));
        assert_eq!(requests.of_host(B, &id("1e0")), Some(other));
        assert_eq!(requests.of_host(A, &id("\"1\"")), None);
    }

    #[test]
    fn upstream_ids_count_up_and_are_not_reused_within_a_generation() {
        let mut requests = Requests::default();
        requests.begin_generation();
        let first = OPENING_IDS + 1;
        for expected in first..=first + 2 {
            let key = open(&mut requests, A, "7");
            assert_eq!(requests.mark_written(key, None), Some(UpstreamId(expected)));
            assert!(requests.remove(key).is_some());
        }
        let late = RequestId::from(first + 2);
        assert_eq!(
            requests.of_upstream(&late),
            None,
            "an answer that comes late finds nothing"
        );
        requests.begin_generation();
        let key = open(&mut requests, A, "7");
        assert_eq!(requests.mark_written(key, None), Some(UpstreamId(first)));
        assert_eq!(requests.of_upstream(&id(&format!("{first}.0"))), Some(key));
        assert_eq!(requests.of_upstream(&id(&format!("\"{first}\""))), None);
    }

    #[test]
    fn every_index_is_empty_when_all_are_closed() {
        let mut requests = Requests::default();
        let deadline = Moment::ZERO + std::time::Duration::from_secs(1);
        let keys = [open(&mut requests, A, "1"), open(&mut requests, B, "2")];
        requests.mark_written(keys[0], Some(deadline));
        assert_eq!(
            (requests.written_calls(), requests.written_of_hosts()),
            (1, 1)
        );
        assert_eq!(requests.expired(deadline), Some(keys[0]));
        for key in keys {
            assert!(requests.remove(key).is_some());
            assert!(requests.remove(key).is_none());
        }
        assert_eq!(
            (
                requests.written_calls(),
                requests.written_of_hosts(),
                requests.len()
            ),
            (0, 0, 0)
        );
        assert_eq!(requests.next_deadline(), None);
        assert!(requests.by_host.is_empty() && requests.by_upstream.is_empty());
        assert_eq!(requests.waiting().count(), 0);
    }

    #[test]
    fn the_only_written_one_is_known() {
        let mut requests = Requests::default();
        let (one, other) = (open(&mut requests, A, "1"), open(&mut requests, B, "2"));
        assert_eq!(requests.only_written(), None);
        requests.mark_written(one, None);
        assert_eq!(requests.only_written(), Some(one));
        requests.mark_written(other, None);
        assert_eq!(requests.only_written(), None);
    }
}
