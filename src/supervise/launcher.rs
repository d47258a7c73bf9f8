//! The one seam for processes: what the daemon asks for and what it gets.
//!
//! [`Spawner`](super::spawn::Spawner) is the real one; tests of the daemon bring their own.
//! Never decides whether a child is to run or to end.

use std::ffi::OsString;
use std::fmt;
use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use super::failure::SpawnFailure;
use super::state::{ExitStatus, StopSignal};
use crate::config::spec::ResourceLimits;
use crate::ids::Generation;

/// The name of the environment variable that marks everything that comes from one run.
pub const TAG_NAME: &str = "MCPD_INSTANCE";

/// A future that can be kept beside others in a worker.
pub type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Everything that a spawn needs, resolved and expanded. `Debug` shows no value of it that could
/// be a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct LaunchPlan {
    /// The file to execute, found already; relative to nothing.
    pub program: PathBuf,
    /// The whole argument list, the program's name first.
    pub argv: Vec<OsString>,
    /// The whole environment but the tag.
    pub env: Vec<(OsString, OsString)>,
    pub cwd: PathBuf,
    /// The umask that the daemon was started with.
    pub umask: u32,
    /// What it and all that comes from it may use, as far as that can be held.
    pub limits: ResourceLimits,
    /// `UUID/SERVER/GENERATION`, the value of [`TAG_NAME`], put first into the environment.
    /// Empty for a run whose descendants are not all to be found again.
    pub tag: String,
}

impl fmt::Debug for LaunchPlan {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("LaunchPlan")
            .field("program", &self.program)
            .field("args", &self.argv.len().saturating_sub(1))
            .field("env", &self.env.len())
            .field("tag", &self.tag)
            .finish_non_exhaustive()
    }
}

/// Makes children.
pub trait Launcher: Send + Sync + fmt::Debug {
    /// Makes a process for `plan`. Resolves as soon as there is one; [`Child::executed`] then
    /// tells whether the program came to run.
    ///
    /// A caller that no longer wants the answer may drop the future: a child that nobody takes is
    /// killed and reaped.
    fn spawn(&self, plan: LaunchPlan, generation: Generation)
    -> Boxed<Result<Child, SpawnFailure>>;

    /// Ends whoever carries a tag that is `tags` and a generation, of runs that nobody holds any
    /// more. Gives the pids of those that are left.
    fn sweep(&self, tags: String) -> Boxed<io::Result<Vec<u32>>>;
}

/// A process that was just made. Take it apart: each part may live in a task of its own.
pub struct Child {
    pub generation: Generation,
    pub pid: u32,
    /// When it began, in clock ticks since boot: `/proc/PID/stat` field 22. With the pid it names
    /// one process for good.
    pub start_ticks: u64,
    /// Our end, non-blocking, close-on-exec.
    pub stdin: OwnedFd,
    /// Our end, non-blocking, close-on-exec.
    pub stdout: OwnedFd,
    /// Our end, non-blocking, close-on-exec.
    pub stderr: OwnedFd,
    /// Resolves once: the program runs, or why it does not.
    pub executed: Boxed<Result<(), SpawnFailure>>,
    /// Resolves once, when the leader has ended. It is not reaped by that.
    pub exited: Boxed<ExitStatus>,
    pub group: Arc<dyn ProcessGroup>,
}

impl fmt::Debug for Child {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Child")
            .field("generation", &self.generation)
            .field("pid", &self.pid)
            .field("start_ticks", &self.start_ticks)
            .finish_non_exhaustive()
    }
}

/// The leader and all that came from it. When the last handle goes and the leader was not reaped,
/// everything is killed on the spot.
pub trait ProcessGroup: Send + Sync + fmt::Debug {
    /// Signals the leader's group and every member outside it. Somebody who is gone already is no
    /// error.
    ///
    /// # Errors
    /// What the kernel refused (`EPERM` for a member that changed its user).
    fn signal(&self, signal: StopSignal) -> io::Result<()>;

    /// The living processes of this run: of the group, of the session, descendants of those, and
    /// whoever carries the tag. Reads all of `/proc`, some milliseconds: for teardowns only.
    ///
    /// # Errors
    /// `/proc` cannot be read; nothing is proved then.
    fn members(&self) -> io::Result<Vec<u32>>;

    /// Reaps the leader if it has ended. To be called when [`Self::members`] is empty.
    ///
    /// # Errors
    /// The leader lives (`WouldBlock`), or the kernel refused.
    fn reap(&self) -> io::Result<()>;

    /// The folder of the control group in which all of this run is, if it has one. It goes with
    /// the reaping.
    fn control_group(&self) -> Option<&Path> {
        None
    }

    /// Whether the kernel killed any of this run because there was no memory left. Known only of a
    /// run with a control group whose memory is counted, and only until it is reaped.
    fn was_oom_killed(&self) -> bool {
        false
    }
}
