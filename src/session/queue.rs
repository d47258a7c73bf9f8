//! What waits to be written to the child.
//!
//! Decides the order. First what has reserved room and is never dropped: our handshake, answers to
//! the child, cancellations, and what a new child is told again. Then what hosts sent, in the order
//! in which it came. With `max_calls`, calls wait for a free place and hosts take turns for it,
//! while everything that is no call passes them.
//!
//! What hosts sent survives the child: it was never written, so the next child may have it.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use super::limits::{QUEUE_BYTES, QUEUED_NOTIFICATIONS};
use super::requests::RequestKey;
use crate::ids::HostKey;
use crate::protocol::eras::era_of;
use crate::protocol::{Era, Frame, Message};
use crate::time::Moment;

/// Something that a host sent and that no child has seen.
#[derive(Clone, Debug)]
pub(super) struct Queued {
    pub(super) host: HostKey,
    pub(super) message: Message,
    /// Whether it waits for a free place among `max_calls`.
    pub(super) is_limited: bool,
    /// Whether it is a request: those are in the table of requests under the same key.
    pub(super) is_request: bool,
    /// When it came.
    pub(super) arrived: Moment,
}

impl Queued {
    /// Bytes of the message.
    pub(super) fn len(&self) -> u64 {
        self.message.bytes().len() as u64
    }
}

/// Something that has reserved room.
#[derive(Clone, Debug)]
pub(super) struct Reserved {
    pub(super) frame: Frame,
    /// Whether it answers a request of the child; those are bounded by what the child leaves unread.
    pub(super) is_answer: bool,
}

/// Whose calls may go, of those that wait for a free place or for their turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallGate {
    Nobody,
    /// This host's alone.
    Only(HostKey),
    Any,
}

/// The order of what goes to the child.
#[derive(Debug, Default)]
pub(super) struct Queue {
    reserved: VecDeque<Reserved>,
    plain: BTreeMap<RequestKey, Queued>,
    /// Calls that `max_calls` may hold back, by host, in the order of arrival.
    calls: BTreeMap<HostKey, BTreeMap<RequestKey, Queued>>,
    /// The host that had the last turn.
    last_turn: Option<HostKey>,
    bytes: u64,
    /// Those among `plain`, with their arrival.
    notifications: BTreeMap<RequestKey, Moment>,
}

impl Queue {
    /// Adds a frame that is never dropped.
    pub(super) fn push_reserved(&mut self, frame: Frame) {
        self.reserved.push_back(Reserved {
            frame,
            is_answer: false,
        });
    }

    /// Adds an answer to a request of the child.
    pub(super) fn push_reserved_answer(&mut self, frame: Frame) {
        self.reserved.push_back(Reserved {
            frame,
            is_answer: true,
        });
    }

    pub(super) fn pop_reserved(&mut self) -> Option<Reserved> {
        self.reserved.pop_front()
    }

    pub(super) fn has_reserved(&self) -> bool {
        !self.reserved.is_empty()
    }

    /// Whether `message` still fits. One message always does, whatever its size.
    pub(super) fn has_room(&self, message: &Message, is_request: bool) -> bool {
        let is_bounded = is_request || self.notifications.len() < QUEUED_NOTIFICATIONS;
        is_bounded && (self.bytes == 0 || self.bytes + message.bytes().len() as u64 <= QUEUE_BYTES)
    }

    /// Adds what a host sent, under its place in the order of arrival.
    pub(super) fn push(&mut self, key: RequestKey, queued: Queued) {
        self.bytes += queued.len();
        if !queued.is_request {
            self.notifications.insert(key, queued.arrived);
        }
        if queued.is_limited {
            self.calls
                .entry(queued.host)
                .or_default()
                .insert(key, queued);
        } else {
            self.plain.insert(key, queued);
        }
    }

    /// Takes out a request that is not to be written any more.
    pub(super) fn remove(&mut self, key: RequestKey, host: HostKey) -> Option<Queued> {
        let queued = self
            .plain
            .remove(&key)
            .or_else(|| self.take_call(host, key))?;
        self.forget(key, &queued);
        Some(queued)
    }

    /// Takes out the notifications of a host, or of all. Requests go one by one.
    pub(super) fn take_notifications(&mut self, of: Option<HostKey>) -> Vec<Queued> {
        let is_taken = |key: &RequestKey| {
            let queued = self.plain.get(key)?;
            of.is_none_or(|host| host == queued.host)
                .then_some((*key, queued.host))
        };
        let keys: Vec<_> = self.notifications.keys().filter_map(is_taken).collect();
        keys.into_iter()
            .filter_map(|(key, host)| self.remove(key, host))
            .collect()
    }

    /// Takes out the notification that came first.
    pub(super) fn take_first_notification(&mut self) -> Option<Queued> {
        let key = *self.notifications.first_key_value()?.0;
        let host = self.plain.get(&key)?.host;
        self.remove(key, host)
    }

    /// When the notification that came first did so.
    pub(super) fn first_notification(&self) -> Option<Moment> {
        self.notifications.values().next().copied()
    }

    /// Takes the next one, if there is one that may go.
    pub(super) fn pop(&mut self, gate: CallGate) -> Option<(RequestKey, Queued)> {
        let plain = self.plain.first_key_value().map(|(key, _)| *key);
        let call = self.next_call(gate);
        let (key, queued) = match (plain, call) {
            // A host's own order holds as long as there is a place: what came earlier goes first.
            (Some(plain), Some((_, call))) if plain < call => self.plain.pop_first()?,
            (_, Some((host, call))) => {
                self.last_turn = Some(host);
                (call, self.take_call(host, call)?)
            }
            _ => self.plain.pop_first()?,
        };
        self.forget(key, &queued);
        Some((key, queued))
    }

    /// Whether [`Queue::pop`] would give something.
    pub(super) fn has_next(&self, gate: CallGate) -> bool {
        !self.plain.is_empty() || self.next_call(gate).is_some()
    }

    /// Whether no calls wait but those of `host`.
    pub(super) fn is_only_caller(&self, host: HostKey) -> bool {
        self.calls.keys().all(|other| *other == host)
    }

    /// The era of the call of `host` that waits longest.
    pub(super) fn next_era(&self, host: HostKey) -> Option<Era> {
        let (_, first) = self.calls.get(&host)?.first_key_value()?;
        Some(era_of(&first.message))
    }

    /// Calls of `host` that wait.
    pub(super) fn calls_of(&self, host: HostKey) -> usize {
        self.calls.get(&host).map_or(0, BTreeMap::len)
    }

    /// Sorts everything anew, because whether calls are limited has changed.
    pub(super) fn set_limited(&mut self, is_limited: impl Fn(&Queued) -> bool) {
        let calls = std::mem::take(&mut self.calls).into_values().flatten();
        let all: BTreeMap<_, _> = std::mem::take(&mut self.plain)
            .into_iter()
            .chain(calls)
            .collect();
        self.bytes = 0;
        for (key, mut queued) in all {
            queued.is_limited = is_limited(&queued);
            self.push(key, queued);
        }
    }

    /// The child is gone: what was meant for it alone goes too.
    pub(super) fn forget_child(&mut self) {
        self.reserved.clear();
    }

    /// Whether nothing waits, of either kind.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.reserved.is_empty() && self.plain.is_empty() && self.calls.is_empty()
    }

    /// The first call of the host whose turn it is: the next key after the last one's.
    fn next_call(&self, gate: CallGate) -> Option<(HostKey, RequestKey)> {
        match gate {
            CallGate::Nobody => return None,
            CallGate::Only(host) => {
                let (key, _) = self.calls.get(&host)?.first_key_value()?;
                return Some((host, *key));
            }
            CallGate::Any => {}
        }
        let after = self.last_turn.map_or(Bound::Unbounded, Bound::Excluded);
        let (host, calls) = self
            .calls
            .range((after, Bound::Unbounded))
            .next()
            .or_else(|| self.calls.first_key_value())?;
        Some((*host, *calls.first_key_value()?.0))
    }

    fn take_call(&mut self, host: HostKey, key: RequestKey) -> Option<Queued> {
        let calls = self.calls.get_mut(&host)?;
        let queued = calls.remove(&key);
        if calls.is_empty() {
            self.calls.remove(&host);
        }
        queued
    }

    fn forget(&mut self, key: RequestKey, queued: &Queued) {
        self.bytes -= queued.len();
        self.notifications.remove(&key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Line, LineReader};

    const A: HostKey = HostKey(1);
    const B: HostKey = HostKey(2);

    fn message(text: &str) -> Message {
        let mut reader = LineReader::new(100 * 1024 * 1024);
        reader.feed(text.as_bytes());
        match reader.finish() {
            Some(Line::Message(message)) => message,
            other => panic!("{text} is no message: {other:?}"),
        }
    }

    fn queued(host: HostKey, is_limited: bool) -> Queued {
        Queued {
            host,
            message: message(r#"{"jsonrpc":"2.0","id":1,"method":"m"}"#),
            is_limited,
            is_request: true,
            arrived: Moment::ZERO,
        }
    }

    /// Queues the given (host, whether it is a call) in order and pops with `free` places: the keys
    /// that come out, counted from 1.
    #[track_caller]
    fn check(items: &[(HostKey, bool)], free: usize, expected: &[u64]) {
        let mut queue = Queue::default();
        for (key, (host, is_call)) in (1..).zip(items) {
            queue.push(RequestKey(key), queued(*host, *is_call));
        }
        let mut free = free;
        let mut order = Vec::new();
        let gate = |free: usize| match free {
            0 => CallGate::Nobody,
            _ => CallGate::Any,
        };
        while let Some((RequestKey(key), queued)) = queue.pop(gate(free)) {
            free -= usize::from(queued.is_limited);
            order.push(key);
        }
        assert_eq!(order, expected);
        assert!(!queue.has_next(gate(free)));
    }

    #[test]
    fn what_came_first_goes_first() {
        check(&[(A, false), (B, false), (A, false)], 0, &[1, 2, 3]);
        check(&[(A, true), (A, false), (A, true)], 9, &[1, 2, 3]);
    }

    #[test]
    fn hosts_take_turns_for_the_free_places() {
        check(&[(A, true), (A, true), (A, true), (B, true)], 3, &[1, 4, 2]);
    }

    #[test]
    fn one_host_alone_may_have_the_turn() {
        let mut queue = Queue::default();
        for (key, host) in [(1, B), (2, A), (3, A)] {
            queue.push(RequestKey(key), queued(host, true));
        }
        assert!(!queue.is_only_caller(A));
        assert_eq!(
            (queue.calls_of(A), queue.next_era(A)),
            (2, Some(Era::Legacy))
        );
        assert_eq!(queue.pop(CallGate::Nobody).map(|(key, _)| key), None);
        let only = queue.pop(CallGate::Only(A)).map(|(key, _)| key);
        assert_eq!(only, Some(RequestKey(2)));
        assert!(!queue.has_next(CallGate::Only(HostKey(9))));
        // The one who had the turn waits for the others.
        assert_eq!(
            queue.pop(CallGate::Any).map(|(key, _)| key),
            Some(RequestKey(1))
        );
        assert!(queue.is_only_caller(A));
    }

    #[test]
    fn what_is_no_call_passes_calls_that_have_no_place() {
        check(
            &[(A, true), (A, true), (A, false), (B, false)],
            1,
            &[1, 3, 4],
        );
        check(&[(A, true), (B, false)], 0, &[2]);
    }

    #[test]
    fn what_has_reserved_room_waits_for_nothing_and_goes_with_the_child() {
        let mut queue = Queue::default();
        queue.push(RequestKey(1), queued(A, false));
        queue.push_reserved(Frame::line("1"));
        queue.push_reserved_answer(Frame::line("2"));
        assert!(queue.pop_reserved().is_some_and(|one| !one.is_answer));
        queue.forget_child();
        assert!(!queue.has_reserved() && queue.has_next(CallGate::Nobody));
    }

    #[test]
    fn the_bytes_that_wait_are_bounded_but_one_message_always_fits() {
        let mut queue = Queue::default();
        let large = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{{"x":"{}"}}}}"#,
            "x".repeat(usize::try_from(QUEUE_BYTES).expect("fits"))
        );
        let large = Queued {
            message: message(&large),
            ..queued(A, false)
        };
        assert!(queue.has_room(&large.message, true));
        queue.push(RequestKey(1), large.clone());
        assert!(!queue.has_room(&queued(A, false).message, true));
        assert!(queue.remove(RequestKey(1), A).is_some());
        assert!(queue.has_room(&large.message, true));
    }

    #[test]
    fn notifications_are_bounded_by_number() {
        let mut queue = Queue::default();
        let notification = Queued {
            is_request: false,
            ..queued(A, false)
        };
        for key in 0..QUEUED_NOTIFICATIONS as u64 {
            assert!(queue.has_room(&notification.message, false));
            queue.push(RequestKey(key), notification.clone());
        }
        assert!(!queue.has_room(&notification.message, false));
        assert!(queue.has_room(&notification.message, true));
        assert_eq!(queue.take_notifications(Some(B)).len(), 0);
        assert_eq!(
            queue.take_notifications(Some(A)).len(),
            QUEUED_NOTIFICATIONS
        );
        assert!(queue.is_empty());
    }

    #[test]
    fn a_new_limit_sorts_what_waits() {
        let mut queue = Queue::default();
        for (key, host) in [(1, A), (2, A), (3, B)] {
            queue.push(RequestKey(key), queued(host, false));
        }
        queue.set_limited(|_| true);
        assert!(!queue.has_next(CallGate::Nobody));
        let order: Vec<_> = std::iter::from_fn(|| queue.pop(CallGate::Any))
            .map(|(key, _)| key.0)
            .collect();
        assert_eq!(order, [1, 3, 2]);
    }
}
