//! What `status` shows of the sessions of one instance.
//!
//! Decides nothing; a snapshot is a copy, so that whoever reads it waits for nobody.

use std::time::Duration;

use crate::ids::HostKey;
use crate::protocol::{ChildIdentity, Revision};

/// The sessions of one instance at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MuxSnapshot {
    /// Every host that is attached.
    pub hosts: Vec<HostSnapshot>,
    /// Requests of hosts that are written and not answered.
    pub open: usize,
    /// Requests of hosts that no child has seen.
    pub waiting: usize,
    /// Uris that somebody is subscribed to.
    pub subscriptions: usize,
    /// The open request that arrived first.
    pub oldest: Option<OldestRequest>,
    /// How long an open request has met silence, once that is longer than it should be.
    pub overdue: Option<Duration>,
    /// What was counted since the instance exists.
    pub counters: Counters,
    /// The last line on stdout that was no message, fit to be shown.
    pub noise_sample: Option<String>,
    /// What the child said of itself; the last one's while there is none.
    pub child: Option<ChildIdentity>,
    /// How many tools hosts see, as far as a host has listed them all.
    pub tools: Option<usize>,
}

/// One attached host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostSnapshot {
    /// Its key.
    pub key: HostKey,
    /// What it calls itself.
    pub client: Option<String>,
    /// Its process.
    pub pid: Option<u32>,
    /// The version it was told, once its `initialize` was answered; without a session, the one that
    /// its last request named.
    pub version: Option<Revision>,
    /// Its requests that are written and not answered.
    pub open: usize,
    /// Its requests that no child has seen.
    pub waiting: usize,
    /// How it stands where hosts take turns on a child that may ask something.
    pub turn: Turn,
    /// Bytes that are held for it.
    pub held_bytes: u64,
}

/// How a host stands where hosts take turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Turn {
    /// It calls nothing, or nobody has to wait.
    #[default]
    None,
    /// Its call is open on the child, or waits for its answer to a question.
    Has,
    /// Its calls wait for another host's to end.
    Waits,
}

/// The request that has been open longest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OldestRequest {
    /// Time since it arrived.
    pub age: Duration,
    /// Its method.
    pub method: String,
}

/// Numbers that only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests of hosts, those answered here included.
    pub requests: u64,
    /// Errors that hosts were answered with, the child's own included.
    pub errors: u64,
    /// Lines on the child's stdout that were no message.
    pub noise_lines: u64,
    /// Answers of the child to no open request: late, doubled or made up.
    pub late_answers: u64,
    /// Progress notifications with a token of no open request.
    pub unknown_progress: u64,
    /// Requests that may have been answered twice: their answer was being written when an earlier
    /// daemon was lost, and nobody knows whether it arrived.
    pub answers_in_doubt: u64,
    /// Messages of either side that fit nowhere and were dropped.
    pub dropped: u64,
}
