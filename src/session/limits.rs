//! How much may be held, and who goes when it is too much.
//!
//! One [`Pool`] of bytes serves the whole daemon; each multiplexer has a handle to it. It decides
//! who is to be detached when it is full: the host that holds most, whichever server it uses. It
//! never refuses bytes, because an answer may not be dropped; the detached host makes the room.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::ids::HostKey;

/// Requests that one host may have open.
pub const OPEN_PER_HOST: usize = 1_000;
/// Requests of hosts that may be open on one child, waiting ones included.
pub const OPEN_PER_CHILD: usize = 10_000;
/// Hosts that may be attached to one instance.
pub const ATTACHMENTS: usize = 4_096;
/// Bytes that may wait for a host to read them, if they are more than one message.
pub const UNREAD_PER_HOST_BYTES: u64 = 64 * 1024 * 1024;
/// What a pipe takes as a whole or not at all (`PIPE_BUF` of Linux, pipe(7)); a stream socket does
/// too.
pub(super) const WHOLE_WRITE_BYTES: usize = 4096;
/// Bytes of requests that may wait for a child, if they are more than one message.
pub(super) const QUEUE_BYTES: u64 = 64 * 1024 * 1024;
/// Notifications of hosts that may wait for a child.
pub(super) const QUEUED_NOTIFICATIONS: usize = 10_000;
/// Bytes of answers to the child's own requests that may wait for it to read them. A child that
/// asks on and on without reading gets no further answers; all else of this class is bounded by
/// the tables it stems from.
pub(super) const UNREAD_ANSWERS_TO_CHILD_BYTES: u64 = 16 * 1024 * 1024;

/// The bytes that the daemon holds, with who holds them. Handles share one account.
#[derive(Clone, Debug)]
pub struct Pool(Arc<Mutex<Ledger>>);

#[derive(Debug)]
struct Ledger {
    limit_bytes: u64,
    used_bytes: u64,
    /// Bytes that no host can be charged with, such as a line that a child has half written.
    unowned_bytes: u64,
    by_host: BTreeMap<HostKey, u64>,
    /// Hosts that are on their way out, so that one full pool does not detach more than it must.
    leaving: BTreeSet<HostKey>,
}

impl Pool {
    /// A pool of `limit_bytes` (`memory_limit`).
    pub fn new(limit_bytes: u64) -> Self {
        Self(Arc::new(Mutex::new(Ledger {
            limit_bytes,
            used_bytes: 0,
            unowned_bytes: 0,
            by_host: BTreeMap::new(),
            leaving: BTreeSet::new(),
        })))
    }

    /// Changes the limit; what is over it goes with the next bytes that come.
    pub fn set_limit(&self, limit_bytes: u64) {
        self.ledger().limit_bytes = limit_bytes;
    }

    /// The most that may be held.
    pub fn limit_bytes(&self) -> u64 {
        self.ledger().limit_bytes
    }

    /// Bytes held by everybody.
    pub fn used_bytes(&self) -> u64 {
        let ledger = self.ledger();
        ledger.used_bytes + ledger.unowned_bytes
    }

    /// Bytes held by one host.
    pub fn held_by(&self, host: HostKey) -> u64 {
        self.ledger().by_host.get(&host).copied().unwrap_or(0)
    }

    /// Counts the line that is arriving from a host, or from a child (`None`): `before` was counted
    /// for it so far, `now` is held now. If the pool is full by that: the host that has to go.
    #[must_use]
    pub fn recount_arriving(
        &self,
        owner: Option<HostKey>,
        before: u64,
        now: u64,
    ) -> Option<HostKey> {
        let mut ledger = self.ledger();
        match owner {
            Some(host) => {
                ledger.give_back(host, before);
                ledger.take(host, now);
            }
            None => {
                ledger.unowned_bytes = (ledger.unowned_bytes + now).saturating_sub(before);
            }
        }
        if now > before {
            ledger.largest_if_full()
        } else {
            None
        }
    }

    /// A host that was named as the one to go stays for now; it will be named again.
    pub fn put_off(&self, host: HostKey) {
        self.ledger().leaving.remove(&host);
    }

    /// Charges `host` with `bytes`. If the pool is full now: the host that has to go.
    #[must_use]
    pub(super) fn take(&self, host: HostKey, bytes: u64) -> Option<HostKey> {
        let mut ledger = self.ledger();
        ledger.take(host, bytes);
        ledger.largest_if_full()
    }

    /// Takes `bytes` off the charge of `host`.
    pub(super) fn give_back(&self, host: HostKey, bytes: u64) {
        self.ledger().give_back(host, bytes);
    }

    /// Gives back all that `host` holds.
    pub(super) fn close(&self, host: HostKey) {
        let mut ledger = self.ledger();
        let held = ledger.by_host.remove(&host).unwrap_or(0);
        ledger.used_bytes -= held;
        ledger.leaving.remove(&host);
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        // Every change to the ledger is complete before anything in it could panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ledger {
    fn take(&mut self, host: HostKey, bytes: u64) {
        if bytes > 0 {
            self.used_bytes += bytes;
            *self.by_host.entry(host).or_default() += bytes;
        }
    }

    fn give_back(&mut self, host: HostKey, bytes: u64) {
        let Some(held) = self.by_host.get_mut(&host) else {
            return;
        };
        let returned = bytes.min(*held);
        *held -= returned;
        if *held == 0 {
            self.by_host.remove(&host);
        }
        self.used_bytes -= returned;
    }

    fn largest_if_full(&mut self) -> Option<HostKey> {
        let leaving: u64 = self
            .leaving
            .iter()
            .filter_map(|host| self.by_host.get(host))
            .sum();
        if self.used_bytes + self.unowned_bytes - leaving <= self.limit_bytes {
            return None;
        }
        let (&largest, _) = self
            .by_host
            .iter()
            .filter(|(host, _)| !self.leaving.contains(host))
            .max_by_key(|(_, bytes)| **bytes)?;
        self.leaving.insert(largest);
        Some(largest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: HostKey = HostKey(1);
    const B: HostKey = HostKey(2);

    #[test]
    fn a_full_pool_names_the_largest_holder_once() {
        let pool = Pool::new(100);
        assert_eq!(pool.take(A, 60), None);
        assert_eq!(pool.take(B, 40), None);
        assert_eq!(pool.take(B, 1), Some(A));
        assert_eq!(pool.take(B, 1), None, "the room that A makes is enough");
        pool.close(A);
        assert_eq!(pool.used_bytes(), 42);
        assert_eq!(pool.take(B, 59), Some(B));
    }

    #[test]
    fn bytes_come_back_and_never_more_than_were_taken() {
        let pool = Pool::new(100);
        assert_eq!(pool.take(A, 60), None);
        pool.give_back(A, 20);
        assert_eq!(pool.held_by(A), 40);
        pool.give_back(A, 1_000);
        pool.give_back(B, 1_000);
        assert_eq!((pool.used_bytes(), pool.held_by(A)), (0, 0));
    }

    #[test]
    fn bytes_without_an_owner_count_too() {
        let pool = Pool::new(100);
        assert_eq!(pool.recount_arriving(None, 0, 90), None);
        assert_eq!(pool.take(A, 11), Some(A));
        assert_eq!(pool.recount_arriving(None, 90, 0), None);
        assert_eq!(pool.used_bytes(), 11);
    }

    #[test]
    fn a_line_that_arrives_is_charged_to_the_host_that_sends_it() {
        let pool = Pool::new(100);
        assert_eq!(pool.recount_arriving(Some(A), 0, 60), None);
        assert_eq!(pool.recount_arriving(Some(A), 60, 90), None);
        assert_eq!(pool.held_by(A), 90);
        assert_eq!(pool.take(B, 20), Some(A), "not the one that holds little");
        pool.close(A);
        assert_eq!(pool.recount_arriving(Some(A), 90, 0), None);
        assert_eq!(pool.used_bytes(), 20);
    }

    #[test]
    fn a_line_that_arrives_may_fill_the_pool_by_itself() {
        let pool = Pool::new(100);
        assert_eq!(pool.take(B, 20), None);
        assert_eq!(pool.recount_arriving(Some(A), 0, 90), Some(A));
        pool.close(A);
        assert_eq!(pool.recount_arriving(None, 0, 90), Some(B));
    }

    #[test]
    fn a_host_whose_going_was_put_off_is_named_again() {
        let pool = Pool::new(100);
        assert_eq!(pool.take(A, 101), Some(A));
        assert_eq!(pool.take(A, 1), None, "it is on its way");
        pool.put_off(A);
        assert_eq!(pool.take(A, 1), Some(A));
    }

    #[test]
    fn handles_share_one_account() {
        let pool = Pool::new(100);
        let other = pool.clone();
        assert_eq!(pool.take(A, 90), None);
        assert_eq!(other.take(B, 11), Some(A));
    }
}
