//! A launcher without processes, for tests of whoever uses one.
//!
//! A [`FakeLauncher`] hands each child's other side to the test as a [`FakeChild`]: the far ends of
//! its pipes, and the power to execute, to fail, to end and to leave somebody behind. Decides
//! nothing but what its [`Manners`] say about signals.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::sync::{mpsc, watch};

use super::failure::{SpawnFailure, Stage};
use super::launcher::{Boxed, Child, LaunchPlan, Launcher, ProcessGroup};
use super::state::{ExitStatus, StopSignal};
use crate::ids::Generation;

/// What a fake child does about signals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manners {
    /// Ends on either signal.
    Polite,
    /// Ends on SIGKILL only.
    IgnoresTerm,
    /// Never ends.
    Unkillable,
}

/// Makes fake children. Clones share the test.
#[derive(Clone, Debug)]
pub struct FakeLauncher {
    children: mpsc::UnboundedSender<FakeChild>,
    shared: Arc<Mutex<Orders>>,
    last_pid: Arc<AtomicU32>,
}

#[derive(Debug)]
struct Orders {
    refuse: Vec<SpawnFailure>,
    manners: Manners,
}

/// The far side of one child.
#[derive(Debug)]
pub struct FakeChild {
    pub generation: Generation,
    pub plan: LaunchPlan,
    pub pid: u32,
    /// What the daemon writes comes out here. Non-blocking.
    pub stdin: OwnedFd,
    /// Taken by the test, or closed when the child ends.
    pub stdout: Option<OwnedFd>,
    pub stderr: Option<OwnedFd>,
    /// What happens to the child; clone it to keep it when this is taken apart.
    pub control: FakeControl,
}

/// The strings of one child.
#[derive(Clone, Debug)]
pub struct FakeControl {
    body: Arc<Body>,
}

#[derive(Debug)]
struct Body {
    pid: u32,
    manners: Manners,
    facts: Mutex<Facts>,
    executed: watch::Sender<Option<Result<(), SpawnFailure>>>,
    exit: watch::Sender<Option<ExitStatus>>,
}

#[derive(Debug, Default)]
struct Facts {
    signals: Vec<StopSignal>,
    left_behind: Vec<u32>,
    reaped: bool,
}

impl FakeLauncher {
    /// A launcher whose children obey, and where they come out.
    pub fn new() -> (Self, mpsc::UnboundedReceiver<FakeChild>) {
        let (children, made) = mpsc::unbounded_channel();
        let shared = Orders {
            refuse: Vec::new(),
            manners: Manners::Polite,
        };
        let launcher = Self {
            children,
            shared: Arc::new(Mutex::new(shared)),
            last_pid: Arc::new(AtomicU32::new(1_000_000)),
        };
        (launcher, made)
    }

    /// The manners of all children from now on.
    pub fn set_manners(&self, manners: Manners) {
        lock(&self.shared).manners = manners;
    }

    /// The next spawn fails with this; several are taken in order.
    pub fn refuse_next(&self, failure: SpawnFailure) {
        lock(&self.shared).refuse.push(failure);
    }

    fn make(&self, plan: LaunchPlan, generation: Generation) -> Result<Child, SpawnFailure> {
        let manners = {
            let mut orders = lock(&self.shared);
            if !orders.refuse.is_empty() {
                return Err(orders.refuse.remove(0));
            }
            orders.manners
        };
        let broken = |error: io::Error| {
            SpawnFailure::new(Stage::Pipe, error.raw_os_error(), error.to_string())
        };
        let (far_stdin, stdin) = pipe().map_err(broken)?;
        let (stdout, far_stdout) = pipe().map_err(broken)?;
        let (stderr, far_stderr) = pipe().map_err(broken)?;
        let pid = self.last_pid.fetch_add(1, Ordering::Relaxed);
        let body = Arc::new(Body {
            pid,
            manners,
            facts: Mutex::default(),
            executed: watch::Sender::new(None),
            exit: watch::Sender::new(None),
        });
        let far = FakeChild {
            generation,
            plan,
            pid,
            stdin: far_stdin,
            stdout: Some(far_stdout),
            stderr: Some(far_stderr),
            control: FakeControl {
                body: Arc::clone(&body),
            },
        };
        // A test that looks at no child any more has nothing to be told.
        drop(self.children.send(far));
        Ok(Child {
            generation,
            pid,
            start_ticks: u64::from(pid),
            stdin,
            stdout,
            stderr,
            executed: Box::pin(first(body.executed.subscribe(), Ok(()))),
            exited: Box::pin(first(body.exit.subscribe(), ExitStatus::Code(-1))),
            group: body,
        })
    }
}

impl Launcher for FakeLauncher {
    fn sweep(&self, _tags: String) -> Boxed<io::Result<Vec<u32>>> {
        // Its children live in this process and end with their handles.
        Box::pin(async { Ok(Vec::new()) })
    }

    fn spawn(
        &self,
        plan: LaunchPlan,
        generation: Generation,
    ) -> Boxed<Result<Child, SpawnFailure>> {
        let made = self.make(plan, generation);
        Box::pin(async move { made })
    }
}

impl FakeControl {
    /// The program runs.
    pub fn execute(&self) {
        self.body.executed.send_replace(Some(Ok(())));
    }

    /// The program could not be executed; the shim ends.
    pub fn fail_to_execute(&self, failure: SpawnFailure) {
        self.body.executed.send_replace(Some(Err(failure)));
        self.exit(ExitStatus::Code(127));
    }

    /// The leader ends. Its pipes are the test's to close.
    pub fn exit(&self, status: ExitStatus) {
        self.body.end(status);
    }

    /// These live on after the leader, until SIGKILL.
    pub fn leave_behind(&self, pids: &[u32]) {
        lock(&self.body.facts).left_behind = pids.to_vec();
    }

    /// Every signal so far.
    pub fn signals(&self) -> Vec<StopSignal> {
        lock(&self.body.facts).signals.clone()
    }

    pub fn is_reaped(&self) -> bool {
        lock(&self.body.facts).reaped
    }

    /// Resolves when the child has ended, so that a fake server can end with it.
    pub async fn ended(&self) -> ExitStatus {
        first(self.body.exit.subscribe(), ExitStatus::Code(-1)).await
    }
}

impl Body {
    fn end(&self, status: ExitStatus) {
        self.exit.send_if_modified(|exit| {
            let first = exit.is_none();
            exit.get_or_insert(status);
            first
        });
    }
}

impl ProcessGroup for Body {
    fn signal(&self, signal: StopSignal) -> io::Result<()> {
        let mut facts = lock(&self.facts);
        facts.signals.push(signal);
        let (number, obeys) = match signal {
            StopSignal::Term => (15, self.manners == Manners::Polite),
            StopSignal::Kill | StopSignal::Sweep => (9, self.manners != Manners::Unkillable),
        };
        if obeys && signal != StopSignal::Term {
            facts.left_behind.clear();
        }
        drop(facts);
        if obeys {
            self.end(ExitStatus::Signal {
                number,
                core_dumped: false,
            });
        }
        Ok(())
    }

    fn members(&self) -> io::Result<Vec<u32>> {
        let mut members = lock(&self.facts).left_behind.clone();
        if self.exit.borrow().is_none() {
            members.insert(0, self.pid);
        }
        Ok(members)
    }

    fn reap(&self) -> io::Result<()> {
        if self.exit.borrow().is_none() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        lock(&self.facts).reaped = true;
        Ok(())
    }
}

/// The first value that a channel gets, or `otherwise` if its sender goes before.
async fn first<T: Clone + Send + Sync>(mut channel: watch::Receiver<Option<T>>, otherwise: T) -> T {
    match channel.wait_for(Option::is_some).await {
        Ok(value) => value.clone().unwrap_or(otherwise),
        Err(_) => otherwise,
    }
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
    fcntl_setfl(&read, OFlags::NONBLOCK)?;
    fcntl_setfl(&write, OFlags::NONBLOCK)?;
    Ok((read, write))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::spec::ResourceLimits;

    fn plan() -> LaunchPlan {
        LaunchPlan {
            program: "/bin/true".into(),
            argv: vec!["true".into()],
            env: Vec::new(),
            cwd: "/".into(),
            umask: 0o022,
            limits: ResourceLimits::default(),
            tag: "u/s/1".into(),
        }
    }

    /// The end of a child with these manners after these signals.
    async fn check(manners: Manners, signals: &[StopSignal], ends: bool) {
        let (launcher, mut made) = FakeLauncher::new();
        launcher.set_manners(manners);
        let child = launcher.spawn(plan(), Generation(1)).await.unwrap();
        let far = made.recv().await.unwrap();
        far.control.execute();
        child.executed.await.unwrap();
        for signal in signals {
            child.group.signal(*signal).unwrap();
        }
        assert_eq!(child.group.members().unwrap().is_empty(), ends);
        assert_eq!(child.group.reap().is_ok(), ends);
        assert_eq!(far.control.signals(), signals);
        assert_eq!(far.control.is_reaped(), ends);
    }

    #[tokio::test]
    async fn fakes_have_manners() {
        use StopSignal::{Kill, Term};
        check(Manners::Polite, &[Term], true).await;
        check(Manners::IgnoresTerm, &[Term], false).await;
        check(Manners::IgnoresTerm, &[Term, Kill], true).await;
        check(Manners::Unkillable, &[Term, Kill], false).await;
    }

    #[tokio::test]
    async fn a_refused_spawn_and_a_failed_exec_are_told() {
        let (launcher, mut made) = FakeLauncher::new();
        let failure = SpawnFailure::new(Stage::Exec, Some(2), "gone");
        launcher.refuse_next(failure.clone());
        let refused = launcher.spawn(plan(), Generation(1)).await.unwrap_err();
        assert_eq!(refused, failure);
        let child = launcher.spawn(plan(), Generation(2)).await.unwrap();
        let far = made.recv().await.unwrap();
        far.control.leave_behind(&[7]);
        far.control.fail_to_execute(failure.clone());
        assert_eq!(child.executed.await, Err(failure));
        assert_eq!(child.exited.await, ExitStatus::Code(127));
        assert_eq!(child.group.members().unwrap(), [7]);
        assert_eq!(far.control.ended().await, ExitStatus::Code(127));
    }
}
