//! What the multiplexer asks its shell to do, and what the shell tells it of a child's end.
//!
//! Decides nothing: closed lists of names.

use std::time::Duration;

use serde_json::Value;

use super::calls::CallEnd;
use super::service::Unavailable;
use crate::ids::HostKey;
use crate::protocol::{ChildIdentity, Frame, Lesson};

/// Something that the shell has to do now.
#[derive(Clone, Debug, PartialEq)]
pub enum MuxAction {
    /// Frames wait for this host: poll them with `Mux::poll_host_frame` until there are none.
    HostReady(HostKey),
    /// Nothing more is due to this host. Write the frames that are left, then close it and call
    /// `Mux::handle_host_gone`.
    CloseHost(HostKey, CloseReason),
    /// This host is detached already: close its connection without writing anything more.
    DropHost(HostKey, DropReason),
    /// Frames wait for the child: poll them with `Mux::poll_child_frame` until there are none.
    ChildReady,
    /// The handshake with the child is done.
    Opened(ChildIdentity),
    /// The first exchange came to nothing: refused, or answered in a way that makes no sense.
    OpeningFailed(Unavailable),
    /// The child was asked what it speaks, and some end at that: until told otherwise, its end by
    /// itself is not to be counted against it.
    Excused(bool),
    /// What children of this configuration speak, for the next start.
    Learnt(Lesson),
    /// A drain was begun and no request of a host is open on the child any more.
    Drained,
    /// A request came and there is no child: start one if that is allowed.
    Demand,
    /// Nobody has needed the child for `idle_stop`.
    Idle,
    /// What is remembered of the server is not what it was: see `Mux::memory`.
    Remembered,
    /// The child was asked by the watchdog and has said nothing at all for so long.
    Hung { silence: Duration },
    /// A call of a host has ended.
    CallEnded(Box<CallEnd>),
    /// A line for the server's log.
    Log(LogLevel, String),
    /// The pool is full and this host of another instance holds most: pass it to that instance's
    /// `Mux::evict_host`.
    EvictHost(HostKey),
}

/// Why an attachment ends in good order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The host ended its input and has got every answer that was due.
    Finished,
    /// The host ended its input and its last answers did not come within
    /// [`ANSWERS_AFTER_END`](super::ANSWERS_AFTER_END).
    GaveUp,
}

/// Why a host is cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// It does not read: too many bytes wait for it.
    UnreadBytes,
    /// The daemon's pool is full and this host holds most of it.
    PoolFull,
}

/// How loud a line for the log is. What a peer sent is never louder than `Debug`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// Holds what a peer sent.
    Debug,
    /// Worth knowing.
    Info,
    /// Something is wrong with the server.
    Warn,
}

/// How a child ended, for the requests that were open on it.
#[derive(Clone, Debug, PartialEq)]
pub struct ChildGone {
    /// A few words: `exited with code 1`, `was killed by SIGKILL`, `closed its stdout`.
    pub reason: String,
    /// What more can be said: exit code or signal, last lines of stderr.
    pub detail: Value,
}

/// One frame for a host.
#[derive(Clone, Debug)]
pub struct HostFrame {
    /// The bytes.
    pub frame: Frame,
    /// Whether it has to start a write of its own: an answer to a request that had progress. Hosts
    /// exist that take a progress notification which arrives together with its answer for one of
    /// an ended request.
    pub own_write: bool,
}
