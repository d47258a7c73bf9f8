//! The life of one child, from its spawn to the proof that nothing of it is left.
//!
//! The core decides and does no I/O: [`state`] names things, [`supervisor`] owns the states of one
//! instance, [`teardown`] the steps of its end, [`backoff`] the waits between runs, [`program`]
//! which file a command means, [`turns`] which of all servers may start now, [`hierarchy`] what the
//! kernel says of control groups. The shell acts and decides nothing: [`spawn`] starts processes
//! through [`exec`], `child` signals, watches and reaps one of them, [`cgroup`] gives each run a
//! group of its own, [`reap`] ends the zombies that the daemon adopts, `records` keeps for a later
//! daemon what it needs to know of them, `sweep` ends those that nobody looks after any more,
//! [`process_tree`] reads `/proc`.
//!
//! One rule above all: a new child is started only after the old one, its group, its session and
//! everything that carries its tag were seen to be gone.

pub mod backoff;
pub mod failure;
pub mod hierarchy;
pub mod program;
mod run;
pub mod state;
pub mod supervisor;
pub mod teardown;
pub mod turns;

pub mod cgroup;
mod child;
pub mod exec;
#[cfg(any(test, feature = "test-fakes"))]
pub mod fake;
pub mod inspect;
pub mod launcher;
pub mod process_tree;
pub mod reap;
mod record;
pub(crate) mod records;
pub mod spawn;
pub(crate) mod sweep;
pub(crate) mod sys;

pub use child::GroupSignal;
pub use failure::{FailureKind, SpawnFailure, Stage};
pub use launcher::{Child, LaunchPlan, Launcher, ProcessGroup};
pub use state::{
    Action, Cause, Event, ExitStatus, Mode, RunResult, ServiceHint, State, StopSignal, Substate,
    SupervisorStatus,
};
pub use supervisor::{Broken, Supervisor};
