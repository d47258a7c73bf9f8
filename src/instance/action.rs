//! What an instance asks its shell to do, and what the shell tells it.
//!
//! Decides nothing: closed lists of names.

use std::time::Duration;

use serde_json::Value;

use crate::config::fingerprint::Fingerprint;
use crate::ids::{Generation, HostKey};
use crate::protocol::{ChildIdentity, Era, Lesson};
use crate::session::{CallEnd, DropReason};
use crate::supervise::state::EndedRun;
use crate::supervise::{Cause, ExitStatus, Mode, ServiceHint, SpawnFailure, StopSignal, Substate};

/// Something that a person or the registry orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Start,
    Stop(Mode),
    Restart(Mode),
    ResetFailed,
    Evict(HostKey),
    /// The daemon ends, or nobody needs this instance any more.
    Shutdown(Mode),
}

/// What happened to the child of one generation. What it says goes to the multiplexer directly.
#[derive(Debug)]
pub enum RunEvent {
    Spawned {
        pid: u32,
    },
    /// No process was made, or the program was not executed.
    SpawnFailed(SpawnFailure),
    /// The program runs; `remembered` is what programs made from the same were found to speak.
    Executed {
        remembered: Option<Era>,
    },
    StdoutEnded,
    StdinBroken,
    OomKilled,
    Exited(ExitStatus),
    /// Somebody has looked who is left: these, or nobody.
    Left(Vec<u32>),
    /// Somebody tried to look and saw nothing, which proves nothing.
    Unseen,
    StopCommandEnded,
    /// What should always work did not.
    Broken(String),
}

/// Something that the shell has to do now.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Put it into words: answered at once by [`Instance::explain`](super::Instance::explain).
    Explain(Matter),
    /// Ask for the turn to start; answered by `turn_asked`, then by `handle_turn_came`.
    AskTurn {
        is_awaited: bool,
        is_cold: bool,
    },
    /// Somebody waits for the turn that was asked for.
    HurryTurn,
    /// Give the turn back.
    EndTurn,
    Spawn {
        generation: Generation,
    },
    CancelSpawn,
    /// End the child's input, after what still fits.
    CloseStdin,
    RunStopCommand {
        limit: Duration,
    },
    Signal(StopSignal),
    /// Look who is left.
    Verify,
    Reap,
    /// Forget the run and its pipes.
    ClosePipes,
    /// Poll this host's frames.
    HostReady(HostKey),
    /// Close this host once its frames are written.
    CloseHost(HostKey),
    /// Close this host now.
    DropHost(HostKey, DropReason),
    /// Pass it to the instance that has this host.
    EvictHost(HostKey),
    /// Poll the child's frames.
    ChildReady,
    Opened(ChildIdentity),
    Learnt(Lesson),
    /// Look up what is remembered of this configuration; answered by `recall`.
    Recall(Fingerprint),
    /// Keep what is remembered now, as that of this configuration.
    Keep(Fingerprint),
    /// For the log: every transition with its cause.
    Changed {
        from: Substate,
        to: Substate,
        cause: Cause,
    },
    /// For log and status: a run is over.
    Ended(EndedRun),
    /// A call of a host has ended.
    CallEnded(Box<CallEnd>),
    /// A line for the server's log.
    Log(String),
}

/// Something that peers may be told of, which only the shell can say well: it knows the last words
/// of the child, and what must not be repeated.
#[derive(Clone, Debug, PartialEq)]
pub enum Matter {
    /// How requests are served from now on.
    Service(ServiceHint),
    /// The child answers no more; so it was put.
    ChildGone(String),
    /// The first exchange came to nothing; so it was put.
    OpeningFailed(String),
    /// Requests have waited too long for a child.
    Waits,
}

/// A [`Matter`] in words.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Words {
    /// One sentence, where the matter has one.
    pub sentence: String,
    /// What more can be said to a host (`data.detail`).
    pub detail: Value,
}
