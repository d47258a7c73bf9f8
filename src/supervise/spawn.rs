//! The real launcher: one immortal thread that starts processes.
//!
//! It starts this very binary as the [shim](super::exec) by `posix_spawn`, which costs the same
//! however large the daemon is and runs none of its code between fork and exec. Decides nothing.
//!
//! Why a thread of its own: process creation blocks while the kernel copies, and what a kernel
//! ties to the creating thread (parent-death signals, children lists) must not be tied to one that
//! comes and goes.

use std::ffi::CStr;
use std::io::{self, Seek, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;

use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, PosixSpawnFlags, posix_spawn};
use nix::sys::signal::SigSet;
use rustix::fs::{MemfdFlags, OFlags, fcntl_setfl, memfd_create};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    PidfdFlags, Resource, Signal, WaitId, WaitIdOptions, getrlimit, kill_process, pidfd_open,
    waitid,
};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use super::cgroup::{Delegated, Leaf};
use super::child::{self, Group, GroupSignal};
use super::exec::{ARGUMENT, PLAN_FD, STATUS_FD, encode};
use super::failure::{SpawnFailure, Stage};
use super::launcher::{Boxed, Child, LaunchPlan, Launcher};
use super::process_tree::{Leader, read_process};
use super::reap::{Adoptees, Nursery, to_pid};
use super::records::Records;
use super::{sweep, sys};
use crate::ids::Generation;

/// This file as it runs, even when a newer one stands at its path.
const SELF: &CStr = c"/proc/self/exe";
/// Above every number that the shim's descriptors are moved to.
const SAFE_FD: RawFd = 10;
/// `POSIX_SPAWN_SETSID`: glibc since 2.26, musl since 1.1.22.
const SETSID: i32 = nix::libc::POSIX_SPAWN_SETSID as i32;
/// How often adoptees are looked at while any live: SIGCHLD may merge several ends into one.
pub const ADOPTEE_LOOK: Duration = Duration::from_secs(5);

/// Starts processes. Clones share the thread.
#[derive(Clone, Debug)]
pub struct Spawner {
    orders: mpsc::Sender<Order>,
    nursery: Arc<Nursery>,
    /// Where each run gets a control group of its own, from when that is known.
    delegated: Arc<OnceLock<Delegated>>,
}

#[derive(Debug)]
struct Order {
    plan: LaunchPlan,
    generation: Generation,
    answer: oneshot::Sender<Result<Child, SpawnFailure>>,
}

impl Spawner {
    /// Starts the thread. What it starts begins with the soft limit for descriptors that this
    /// process has now.
    ///
    /// # Errors
    /// The thread cannot be made.
    pub fn start() -> io::Result<Self> {
        Self::start_with(GroupSignal::Best)
    }

    /// The same with a stated way to reach groups.
    ///
    /// # Errors
    /// The thread cannot be made.
    pub fn start_with(way: GroupSignal) -> io::Result<Self> {
        sys::keep_exit_statuses();
        let (orders, inbox) = mpsc::channel::<Order>();
        let nursery = Arc::new(Nursery::default());
        let delegated = Arc::new(OnceLock::new());
        let maker = Maker {
            nursery: Arc::clone(&nursery),
            delegated: Arc::clone(&delegated),
            way,
            soft_files: soft_file_limit(),
        };
        std::thread::Builder::new()
            .name("spawner".to_owned())
            .spawn(move || {
                for order in inbox {
                    let made = maker.make(&order.plan, order.generation);
                    // Nobody waits any more: the child goes with its last handle.
                    drop(order.answer.send(made));
                }
            })?;
        Ok(Self {
            orders,
            nursery,
            delegated,
        })
    }

    /// From now on each run with a tag gets a control group in `delegated`. Once.
    pub fn contain(&self, delegated: Delegated) {
        // A second one would only be dropped: the first holds the runs there are.
        drop(self.delegated.set(delegated));
    }

    /// Records every run from here on. To be called once, before the first spawn.
    pub(crate) fn record_in(&self, records: Records) {
        // A second call would come from a second daemon in one process, which only tests have.
        drop(self.nursery.records.set(records));
    }

    /// At the orderly end, when nothing is left.
    pub(crate) fn finish_records(&self) {
        if let Some(records) = self.nursery.records.get() {
            records.finish();
        }
    }

    /// Reaps what we adopted and what has ended, see [`reap`](super::reap).
    ///
    /// # Errors
    /// `/proc` cannot be read.
    pub fn reap_adopted(&self) -> io::Result<Adoptees> {
        self.nursery.reap_adopted()
    }

    /// Ends all that descends from this process, whoever it belonged to, and starts nothing
    /// meanwhile: for the end of the daemon, in order or not. Gives the pids of those that are left
    /// after so many rounds.
    ///
    /// # Errors
    /// `/proc` cannot be read.
    pub(crate) fn end_everything(&self, rounds: usize) -> io::Result<Vec<u32>> {
        // Whoever holds it for longer than this is the one that broke.
        let _nothing_starts = self.nursery.try_lock_patiently();
        sweep::end_descendants(rounds)
    }

    /// Reaps adoptees for ever: on every SIGCHLD, and now and then while any live.
    ///
    /// # Errors
    /// The signal cannot be listened to.
    pub async fn reap_on_signal(&self) -> io::Result<()> {
        let mut ended = signal(SignalKind::child())?;
        loop {
            let adoptees = self.reap_adopted()?;
            if adoptees.living.is_empty() {
                ended.recv().await;
            } else {
                // Either way it is time to look again.
                drop(tokio::time::timeout(ADOPTEE_LOOK, ended.recv()).await);
            }
        }
    }
}

impl Launcher for Spawner {
    fn spawn(
        &self,
        plan: LaunchPlan,
        generation: Generation,
    ) -> Boxed<Result<Child, SpawnFailure>> {
        let (answer, made) = oneshot::channel();
        let order = Order {
            plan,
            generation,
            answer,
        };
        let sent = self.orders.send(order);
        Box::pin(async move {
            let dead = || SpawnFailure::new(Stage::Spawn, None, "the spawner thread has ended");
            sent.map_err(|_| dead())?;
            made.await.map_err(|_| dead())?
        })
    }

    fn sweep(&self, tags: String) -> Boxed<io::Result<Vec<u32>>> {
        Box::pin(async move {
            // It reads all of `/proc`, some milliseconds and more than once.
            let swept = tokio::task::spawn_blocking(move || sweep::end_runs(&tags));
            swept
                .await
                .unwrap_or_else(|panic| Err(io::Error::other(panic)))
        })
    }
}

/// What the thread owns.
/// 0 where it is without a limit or not known: then it is inherited.
fn soft_file_limit() -> u32 {
    let soft = getrlimit(Resource::Nofile).current.unwrap_or(0);
    u32::try_from(soft).unwrap_or(0)
}

#[derive(Debug)]
struct Maker {
    nursery: Arc<Nursery>,
    delegated: Arc<OnceLock<Delegated>>,
    way: GroupSignal,
    /// The soft limit for descriptors that programs begin with.
    soft_files: u32,
}

/// Both ends of everything between us and one child.
struct Plumbing {
    ours: Ends,
    theirs: Ends,
    plan: OwnedFd,
}

/// A process that was just made, with our side of its pipes.
struct Made {
    ours: Ends,
    pid: u32,
    pidfd: OwnedFd,
}

/// One side of the four pipes.
struct Ends {
    stdin: OwnedFd,
    stdout: OwnedFd,
    stderr: OwnedFd,
    status: OwnedFd,
}

impl Maker {
    fn make(&self, plan: &LaunchPlan, generation: Generation) -> Result<Child, SpawnFailure> {
        let leaf = self.make_leaf(plan)?;
        let entrance = leaf.as_ref().map(Leaf::entrance).unwrap_or_default();
        let made = self.make_piped(plan, &entrance);
        let Made { ours, pid, pidfd } = made.inspect_err(|_| {
            // Nobody is in it; what stays is the next daemon's to sweep.
            drop(leaf.as_ref().map(Leaf::remove));
        })?;
        let leader = Leader {
            pid,
            // It is unreaped, so it is there; without `/proc` nothing could be proved anyway.
            start_ticks: read_process(pid).map_or(0, |process| process.start_ticks),
        };
        // At once, so that a daemon that is killed from here on leaves word of it.
        let records = self.nursery.records.get();
        let folder = leaf.as_ref().map(Leaf::folder);
        let record = records.and_then(|records| records.note(leader, &plan.tag, folder));
        let pidfd = Arc::new(pidfd);
        let group = Group::new(
            leader,
            Arc::clone(&pidfd),
            &plan.tag,
            leaf,
            Arc::clone(&self.nursery),
            self.way,
            record,
        );
        let (program, cwd): (PathBuf, PathBuf) = (plan.program.clone(), plan.cwd.clone());
        Ok(Child {
            generation,
            pid,
            start_ticks: leader.start_ticks,
            stdin: ours.stdin,
            stdout: ours.stdout,
            stderr: ours.stderr,
            executed: Box::pin(child::executed(ours.status, program, cwd)),
            exited: Box::pin(child::exited(pidfd)),
            group: Arc::new(group),
        })
    }

    fn make_leaf(&self, plan: &LaunchPlan) -> Result<Option<Leaf>, SpawnFailure> {
        let Some(delegated) = self.delegated.get() else {
            return Ok(None);
        };
        let made = delegated.make_leaf(&plan.tag, &plan.limits);
        made.map_err(|error| {
            let detail = format!("cannot make its control group: {error}");
            SpawnFailure::new(Stage::ControlGroup, error.raw_os_error(), detail)
        })
    }

    /// The shim with its pipes, on its way to become the program.
    fn make_piped(&self, plan: &LaunchPlan, entrance: &Path) -> Result<Made, SpawnFailure> {
        let bytes = encode(plan, entrance, self.soft_files)?;
        let plumbing = lay_plumbing(&bytes).map_err(|error| {
            let detail = format!("cannot make pipes: {error}");
            SpawnFailure::new(Stage::Pipe, error.raw_os_error(), detail)
        })?;
        let (pid, pidfd) = self.make_process(&plumbing).map_err(|error| {
            let detail = format!("cannot make a process: {error}");
            SpawnFailure::new(Stage::Spawn, error.raw_os_error(), detail)
        })?;
        // Not their ends: with our copies of them the end of a stream would never be seen.
        let Plumbing { ours, .. } = plumbing;
        Ok(Made { ours, pid, pidfd })
    }

    /// Spawn, pidfd and registration under one lock: see [`Nursery`].
    fn make_process(&self, plumbing: &Plumbing) -> io::Result<(u32, OwnedFd)> {
        let actions = file_actions(plumbing)?;
        let attributes = attributes()?;
        let argv = [c"mcpd", &shim_argument()];
        let mut leaders = self.nursery.lock();
        let pid = posix_spawn::<CStr, &CStr, &CStr>(SELF, &actions, &attributes, &argv, &[])?;
        let number = pid.as_raw().unsigned_abs();
        let pid = to_pid(number).ok_or(io::ErrorKind::InvalidData)?;
        match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(pidfd) => {
                leaders.insert(number);
                Ok((number, pidfd))
            }
            Err(error) => {
                // It is our child and unreaped, so this number is still its own.
                kill_process(pid, Signal::KILL).ok();
                waitid(WaitId::Pid(pid), WaitIdOptions::EXITED).ok();
                Err(error.into())
            }
        }
    }
}

fn shim_argument() -> std::ffi::CString {
    std::ffi::CString::new(ARGUMENT).expect("the argument is a constant without NUL")
}

fn lay_plumbing(plan: &[u8]) -> io::Result<Plumbing> {
    let pipe = || pipe_with(PipeFlags::CLOEXEC);
    let (their_stdin, our_stdin) = pipe()?;
    let (our_stdout, their_stdout) = pipe()?;
    let (our_stderr, their_stderr) = pipe()?;
    let (our_status, their_status) = pipe()?;
    for ours in [&our_stdin, &our_stdout, &our_stderr, &our_status] {
        fcntl_setfl(ours, OFlags::NONBLOCK)?;
    }
    let mut memory = std::fs::File::from(memfd_create("mcpd-plan", MemfdFlags::CLOEXEC)?);
    memory.write_all(plan)?;
    memory.rewind()?;
    Ok(Plumbing {
        ours: Ends {
            stdin: our_stdin,
            stdout: our_stdout,
            stderr: our_stderr,
            status: our_status,
        },
        theirs: Ends {
            stdin: lift(their_stdin)?,
            stdout: lift(their_stdout)?,
            stderr: lift(their_stderr)?,
            status: lift(their_status)?,
        },
        plan: lift(OwnedFd::from(memory))?,
    })
}

/// Moves a descriptor out of the way of the numbers 0 to 4, which are overwritten one after
/// another in the shim.
fn lift(fd: OwnedFd) -> io::Result<OwnedFd> {
    if fd.as_raw_fd() >= SAFE_FD {
        return Ok(fd);
    }
    rustix::io::fcntl_dupfd_cloexec(&fd, SAFE_FD).map_err(io::Error::from)
}

fn file_actions(plumbing: &Plumbing) -> io::Result<PosixSpawnFileActions> {
    let theirs = &plumbing.theirs;
    let mut actions = PosixSpawnFileActions::init()?;
    for (fd, number) in [
        (&theirs.stdin, 0),
        (&theirs.stdout, 1),
        (&theirs.stderr, 2),
        (&plumbing.plan, PLAN_FD),
        (&theirs.status, STATUS_FD),
    ] {
        actions.add_dup2(fd.as_raw_fd(), number)?;
    }
    Ok(actions)
}

/// A session of its own, nothing blocked, nothing ignored: from the first instruction on, so that
/// a stop that comes early meets a process like any other.
fn attributes() -> io::Result<PosixSpawnAttr> {
    let mut attributes = PosixSpawnAttr::init()?;
    attributes.set_sigmask(&SigSet::empty())?;
    attributes.set_sigdefault(&SigSet::all())?;
    attributes.set_flags(
        PosixSpawnFlags::POSIX_SPAWN_SETSIGMASK
            | PosixSpawnFlags::POSIX_SPAWN_SETSIGDEF
            | PosixSpawnFlags::from_bits_retain(SETSID),
    )?;
    Ok(attributes)
}

#[cfg(test)]
mod process_tests;
