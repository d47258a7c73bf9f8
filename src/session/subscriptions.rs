//! Which host holds which resource subscription, counted per uri.
//!
//! Decides when the child has to be told (first holder, last holder, a new child) and who gets an
//! update. Never sends anything: the answers of its methods say what is to be sent.
//!
//! A host holds a uri once, however often it subscribes, as it would with a server of its own (MCP
//! `server/resources`: subscriptions are a set). The child's answer decides whether a first holder
//! holds at all; until then the holding is pending and goes again with an error.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::eras::ListenKey;
use crate::ids::HostKey;

/// Subscriptions that one host may hold; beyond that it is told `overloaded`.
pub(super) const HOLDINGS_PER_HOST: usize = 10_000;

/// The longest uri that can be subscribed to, in bytes as written.
pub(super) const URI_LIMIT_BYTES: usize = 8 * 1024;

/// A uri, as text to compare and as the JSON string that was sent.
#[derive(Clone, Debug)]
pub(super) struct Uri {
    pub(super) text: String,
    pub(super) raw: Bytes,
}

/// Who holds a subscription: a legacy host, or one listen stream of a modern host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Holder {
    pub(super) host: HostKey,
    pub(super) listen: Option<ListenKey>,
}

impl Holder {
    /// A legacy host.
    pub(super) const fn host(host: HostKey) -> Self {
        Self { host, listen: None }
    }
}

/// How far a host has got with a uri.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holding {
    /// Its request is open.
    Pending,
    /// The child, or another holder's subscription, has granted it.
    Granted,
}

/// What the present child knows of a uri.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Upstream {
    /// It was never told.
    Absent,
    /// A request was written whose outcome is open, or was never learned.
    Unsure,
    /// It has granted the subscription.
    Held,
}

#[derive(Debug)]
struct Entry {
    raw: Bytes,
    holders: BTreeMap<Holder, Holding>,
    upstream: Upstream,
}

/// What is to be done with a host's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// The child has to be asked.
    Forward,
    /// Nothing changes for the child: an empty result from here.
    AnswerHere,
    /// The host holds too many.
    Refuse,
}

/// All subscriptions on one child.
#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    by_uri: BTreeMap<String, Entry>,
    held_by_host: BTreeMap<HostKey, usize>,
}

impl Subscriptions {
    /// A host asks for updates of `uri`.
    pub(super) fn subscribe(&mut self, holder: Holder, uri: &Uri) -> Next {
        let held = self.held_by_host.entry(holder.host).or_default();
        let is_new = !self
            .by_uri
            .get(&uri.text)
            .is_some_and(|entry| entry.holders.contains_key(&holder));
        if is_new && *held >= HOLDINGS_PER_HOST {
            return Next::Refuse;
        }
        *held += usize::from(is_new);
        let entry = self
            .by_uri
            .entry(uri.text.clone())
            .or_insert_with(|| Entry {
                raw: uri.raw.clone(),
                holders: BTreeMap::new(),
                upstream: Upstream::Absent,
            });
        if entry.upstream == Upstream::Held {
            entry.holders.insert(holder, Holding::Granted);
            return Next::AnswerHere;
        }
        entry.holders.entry(holder).or_insert(Holding::Pending);
        Next::Forward
    }

    /// A host wants no more updates of `uri`. With the last holder the entry goes, and the child is
    /// asked unless it never knew of it.
    pub(super) fn unsubscribe(&mut self, holder: Holder, uri: &str) -> Next {
        let Some(entry) = self.by_uri.get(uri) else {
            // Whatever the child says to an unsubscription of nothing, its answer is the truth.
            return Next::Forward;
        };
        let (was_holder, upstream) = (entry.holders.contains_key(&holder), entry.upstream);
        self.drop_holder(holder, uri);
        if self.by_uri.contains_key(uri) || (was_holder && upstream == Upstream::Absent) {
            return Next::AnswerHere;
        }
        Next::Forward
    }

    /// A request to subscribe, a host's or our own, was written to the child.
    pub(super) fn note_written(&mut self, uri: &str) {
        if let Some(entry) = self.by_uri.get_mut(uri)
            && entry.upstream == Upstream::Absent
        {
            entry.upstream = Upstream::Unsure;
        }
    }

    /// The child granted `holder` the uri, or, without one, a subscription that was made again.
    pub(super) fn note_granted(&mut self, holder: Option<Holder>, uri: &str) {
        let Some(entry) = self.by_uri.get_mut(uri) else {
            return;
        };
        entry.upstream = Upstream::Held;
        if let Some(holding) = holder.and_then(|holder| entry.holders.get_mut(&holder)) {
            *holding = Holding::Granted;
        }
    }

    /// The request of `holder` ended in any other way. Whether the child has to be told to forget the
    /// uri: nobody holds it, and it may have been granted after all.
    #[must_use]
    pub(super) fn note_failed(&mut self, holder: Holder, uri: &str, was_refused: bool) -> bool {
        let Some(entry) = self.by_uri.get(uri) else {
            return false;
        };
        if entry.holders.get(&holder) != Some(&Holding::Pending) {
            return false;
        }
        let may_be_held = entry.upstream != Upstream::Absent && !was_refused;
        self.drop_holder(holder, uri);
        may_be_held && !self.by_uri.contains_key(uri)
    }

    /// A host is gone. The uris that the child has to be told to forget.
    #[must_use]
    pub(super) fn leave(&mut self, host: HostKey) -> Vec<Uri> {
        self.held_by_host.remove(&host);
        let mut forgotten = Vec::new();
        self.by_uri.retain(|text, entry| {
            let before = entry.holders.len();
            entry.holders.retain(|holder, _| holder.host != host);
            let is_last = entry.holders.len() < before && entry.holders.is_empty();
            if is_last && entry.upstream != Upstream::Absent {
                forgotten.push(Uri {
                    text: text.clone(),
                    raw: entry.raw.clone(),
                });
            }
            !is_last
        });
        forgotten
    }

    /// The child is gone and has taken its subscriptions along.
    pub(super) fn forget_child(&mut self) {
        for entry in self.by_uri.values_mut() {
            entry.upstream = Upstream::Absent;
        }
    }

    /// The uris that a new child has to be told: those that somebody was granted before. Pending
    /// ones have a request of their own in the queue.
    pub(super) fn to_make_again(&self) -> Vec<Uri> {
        self.by_uri
            .iter()
            .filter(|(_, entry)| entry.holders.values().any(|one| *one == Holding::Granted))
            .map(|(text, entry)| Uri {
                text: text.clone(),
                raw: entry.raw.clone(),
            })
            .collect()
    }

    /// A host comes that was granted `uri` by an earlier daemon. Whether the child has to be asked.
    pub(super) fn resume(&mut self, holder: Holder, uri: &Uri) -> bool {
        let next = self.subscribe(holder, uri);
        let Some(entry) = self.by_uri.get_mut(&uri.text) else {
            return false;
        };
        entry.holders.insert(holder, Holding::Granted);
        next == Next::Forward && entry.upstream == Upstream::Absent
    }

    /// Whether anybody holds `uri`.
    pub(super) fn is_held(&self, uri: &str) -> bool {
        self.by_uri.contains_key(uri)
    }

    /// Whether `holder` holds `uri`, or has asked for it.
    pub(super) fn is_held_by(&self, holder: Holder, uri: &str) -> bool {
        let entry = self.by_uri.get(uri);
        entry.is_some_and(|entry| entry.holders.contains_key(&holder))
    }

    /// Who gets an update of `uri`: the holders of exactly that uri, else of a prefix of it (MCP
    /// `server/resources`: an update may name a sub-resource), else all holders.
    pub(super) fn receivers(&self, uri: Option<&str>) -> Vec<Holder> {
        let exact = uri.and_then(|uri| self.by_uri.get(uri));
        if let Some(entry) = exact {
            return entry.holders.keys().copied().collect();
        }
        let prefixed = self.holders_where(|held| uri.is_some_and(|uri| uri.starts_with(held)));
        if prefixed.is_empty() {
            self.holders_where(|_| true)
        } else {
            prefixed
        }
    }

    /// Every uri that somebody holds or wants, as it was sent.
    pub(super) fn uris(&self) -> impl Iterator<Item = &Bytes> {
        self.by_uri.values().map(|entry| &entry.raw)
    }

    /// How many uris are held.
    pub(super) fn len(&self) -> usize {
        self.by_uri.len()
    }

    /// The holders of all uris that `wanted` picks, each once.
    fn holders_where(&self, wanted: impl Fn(&str) -> bool) -> Vec<Holder> {
        let mut holders: Vec<Holder> = self
            .by_uri
            .iter()
            .filter(|(uri, _)| wanted(uri))
            .flat_map(|(_, entry)| entry.holders.keys().copied())
            .collect();
        holders.sort_unstable();
        holders.dedup();
        holders
    }

    fn drop_holder(&mut self, holder: Holder, uri: &str) {
        let Some(entry) = self.by_uri.get_mut(uri) else {
            return;
        };
        if entry.holders.remove(&holder).is_some()
            && let Some(held) = self.held_by_host.get_mut(&holder.host)
        {
            *held -= 1;
        }
        if entry.holders.is_empty() {
            self.by_uri.remove(uri);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Holder = Holder::host(HostKey(1));
    const B: Holder = Holder::host(HostKey(2));
    const C: Holder = Holder::host(HostKey(3));

    fn uri(text: &str) -> Uri {
        Uri {
            text: text.to_owned(),
            raw: Bytes::from(format!("\"{text}\"")),
        }
    }

    /// A host subscribes and the child grants it.
    #[track_caller]
    fn check_granted(subscriptions: &mut Subscriptions, holder: Holder, text: &str, next: Next) {
        assert_eq!(subscriptions.subscribe(holder, &uri(text)), next);
        if next == Next::Forward {
            subscriptions.note_written(text);
            subscriptions.note_granted(Some(holder), text);
        }
    }

    #[test]
    fn the_child_is_told_of_the_first_and_the_last_holder_only() {
        let mut subscriptions = Subscriptions::default();
        check_granted(&mut subscriptions, A, "u1", Next::Forward);
        check_granted(&mut subscriptions, A, "u1", Next::AnswerHere);
        check_granted(&mut subscriptions, B, "u1", Next::AnswerHere);
        assert_eq!(subscriptions.unsubscribe(A, "u1"), Next::AnswerHere);
        assert!(subscriptions.leave(A.host).is_empty());
        assert_eq!(subscriptions.receivers(Some("u1")), [B]);
        assert_eq!(subscriptions.unsubscribe(B, "u1"), Next::Forward);
        assert_eq!(subscriptions.len(), 0);
    }

    #[test]
    fn a_holder_that_leaves_releases_its_share() {
        let mut subscriptions = Subscriptions::default();
        check_granted(&mut subscriptions, A, "u1", Next::Forward);
        check_granted(&mut subscriptions, B, "u1", Next::AnswerHere);
        assert!(subscriptions.leave(A.host).is_empty());
        let forgotten: Vec<_> = subscriptions
            .leave(B.host)
            .into_iter()
            .map(|uri| uri.raw)
            .collect();
        assert_eq!(forgotten, ["\"u1\""]);
    }

    #[test]
    fn a_new_child_is_told_again_of_what_was_granted() {
        let mut subscriptions = Subscriptions::default();
        check_granted(&mut subscriptions, A, "u1", Next::Forward);
        assert_eq!(subscriptions.subscribe(B, &uri("u2")), Next::Forward);
        subscriptions.forget_child();
        let again: Vec<_> = subscriptions
            .to_make_again()
            .into_iter()
            .map(|uri| uri.text)
            .collect();
        assert_eq!(again, ["u1"]);
        // Not yet granted by the new child, so a second holder has to ask it.
        assert_eq!(subscriptions.subscribe(B, &uri("u1")), Next::Forward);
        subscriptions.note_granted(None, "u1");
        assert_eq!(subscriptions.subscribe(C, &uri("u1")), Next::AnswerHere);
    }

    #[test]
    fn a_refused_subscription_is_not_held() {
        let mut subscriptions = Subscriptions::default();
        assert_eq!(subscriptions.subscribe(A, &uri("u1")), Next::Forward);
        subscriptions.note_written("u1");
        assert!(!subscriptions.note_failed(A, "u1", true));
        assert_eq!(subscriptions.len(), 0);
    }

    #[test]
    fn a_subscription_cancelled_after_its_write_is_undone() {
        let mut subscriptions = Subscriptions::default();
        assert_eq!(subscriptions.subscribe(A, &uri("u1")), Next::Forward);
        assert!(
            !subscriptions.note_failed(A, "u1", false),
            "never written, nothing to undo"
        );
        assert_eq!(subscriptions.subscribe(A, &uri("u1")), Next::Forward);
        subscriptions.note_written("u1");
        assert!(subscriptions.note_failed(A, "u1", false));
        assert_eq!(subscriptions.len(), 0);
    }

    #[test]
    fn updates_go_to_the_exact_holders_else_by_prefix_else_to_all() {
        let mut subscriptions = Subscriptions::default();
        check_granted(&mut subscriptions, A, "file:///a", Next::Forward);
        check_granted(&mut subscriptions, B, "file:///a/b", Next::Forward);
        check_granted(&mut subscriptions, C, "db://x", Next::Forward);
        assert_eq!(subscriptions.receivers(Some("file:///a")), [A]);
        assert_eq!(subscriptions.receivers(Some("file:///a/b/c")), [A, B]);
        assert_eq!(subscriptions.receivers(Some("http://else")), [A, B, C]);
        assert_eq!(subscriptions.receivers(None), [A, B, C]);
    }

    #[test]
    fn the_last_holder_without_a_child_is_answered_here() {
        let mut subscriptions = Subscriptions::default();
        check_granted(&mut subscriptions, A, "u1", Next::Forward);
        subscriptions.forget_child();
        assert_eq!(subscriptions.unsubscribe(A, "u1"), Next::AnswerHere);
        assert_eq!(subscriptions.unsubscribe(A, "u1"), Next::Forward);
    }

    #[test]
    fn streams_of_one_host_hold_apart_and_go_with_it() {
        let mut subscriptions = Subscriptions::default();
        let stream = |number| Holder {
            host: A.host,
            listen: Some(ListenKey(number)),
        };
        check_granted(&mut subscriptions, stream(1), "u1", Next::Forward);
        check_granted(&mut subscriptions, stream(2), "u1", Next::AnswerHere);
        check_granted(&mut subscriptions, A, "u1", Next::AnswerHere);
        assert_eq!(
            subscriptions.receivers(Some("u1")),
            [A, stream(1), stream(2)]
        );
        assert_eq!(subscriptions.unsubscribe(stream(1), "u1"), Next::AnswerHere);
        assert_eq!(subscriptions.leave(A.host).len(), 1);
        assert_eq!(subscriptions.len(), 0);
    }

    #[test]
    fn a_host_holds_a_bounded_number() {
        let mut subscriptions = Subscriptions::default();
        for number in 0..HOLDINGS_PER_HOST {
            assert_eq!(
                subscriptions.subscribe(A, &uri(&number.to_string())),
                Next::Forward
            );
        }
        assert_eq!(subscriptions.subscribe(A, &uri("more")), Next::Refuse);
        assert_eq!(subscriptions.subscribe(A, &uri("0")), Next::Forward);
        assert_eq!(subscriptions.unsubscribe(A, "0"), Next::AnswerHere);
        assert_eq!(subscriptions.subscribe(A, &uri("more")), Next::Forward);
    }
}
