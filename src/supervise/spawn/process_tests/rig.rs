//! What the process tests share: a process of their own each, a small worker that plays the
//! daemon's part, and the check that nothing is left.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::future::Future;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::config::spec::{Policy, ResourceLimits};
use crate::ids::Generation;
use crate::supervise::process_tree::read_all;
use crate::supervise::spawn::Spawner;
use crate::supervise::*;
use crate::time::Moment;

/// Set in the process that runs one test alone.
const ALONE: &str = "MCPD_TEST_ALONE";
/// Nothing here takes longer, whatever the machine does meanwhile.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// Runs `body` in a process of its own, as a subreaper, and looks for leaks after it.
///
/// Descriptors, children and dispositions belong to a process: in the one that all tests share,
/// none of them could be counted.
pub(super) fn alone<B: Future<Output = ()>>(name: &str, body: impl FnOnce(World) -> B) {
    alone_with(name, GroupSignal::Best, body);
}

pub(super) fn alone_with<B: Future<Output = ()>>(
    name: &str,
    way: GroupSignal,
    body: impl FnOnce(World) -> B,
) {
    let path = format!("supervise::spawn::process_tests::{name}");
    if std::env::var_os(ALONE).is_none_or(|it| it != *path) {
        return run_alone(&path, &[]);
    }
    run_here(way, body);
}

/// Runs the rest of the test `name` in a process of its own, started through `wrapper`; false in that process.
pub(super) fn moved_to_own_process(name: &str, wrapper: &[&str]) -> bool {
    let path = format!("supervise::spawn::process_tests::{name}");
    let is_elsewhere = std::env::var_os(ALONE).is_none_or(|it| it != *path);
    if is_elsewhere {
        run_alone(&path, wrapper);
    }
    is_elsewhere
}

/// The body of a test that has its process already.
pub(super) fn run_here<B: Future<Output = ()>>(way: GroupSignal, body: impl FnOnce(World) -> B) {
    reap::become_subreaper().unwrap();
    // The first runtime of a process makes descriptors for signals that stay for good.
    drop(build_runtime());
    let before = open_descriptors();
    let spawner = Spawner::start_with(way).unwrap();
    let world = World {
        spawner: spawner.clone(),
        run: format!("test-{}", std::process::id()),
    };
    let tag = world.run.clone();
    let runtime = build_runtime();
    runtime.block_on(async {
        timeout(PATIENCE, body(world)).await.expect("in time");
        timeout(PATIENCE, no_child_left(&spawner))
            .await
            .expect("no zombie, no child");
    });
    drop(runtime);
    let tag = format!("{}={tag}/", launcher::TAG_NAME).into_bytes();
    let tagged = |pid| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.windows(tag.len()).any(|window| window == tag)
    };
    let all = read_all().unwrap().into_iter();
    let left: Vec<_> = all.filter(|it| tagged(it.pid)).collect();
    assert_eq!(left, [], "somebody carries the tag still");
    // The thread of a spawner that is gone lets go of its own a moment later.
    for _ in 0..1_000_000 {
        if open_descriptors() == before {
            return;
        }
        std::thread::yield_now();
    }
    panic!("{} descriptors leaked", open_descriptors() - before);
}

fn build_runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

fn run_alone(path: &str, wrapper: &[&str]) {
    // SIGHUP ignored, as `nohup` leaves it: children must be normal all the same.
    let output = Command::new("/bin/sh")
        .args(["-c", "trap '' HUP; exec \"$@\"", "sh"])
        .args(wrapper)
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", path, "--nocapture", "--test-threads=1"])
        .env(ALONE, path)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

async fn no_child_left(spawner: &Spawner) {
    while spawner.reap_adopted().unwrap() != reap::Adoptees::default()
        || !reap::children().unwrap().is_empty()
    {
        sleep(Duration::from_millis(5)).await;
    }
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// What a test has.
#[derive(Clone, Debug)]
pub(super) struct World {
    pub(super) spawner: Spawner,
    pub(super) run: String,
}

impl World {
    pub(super) fn plan(&self, program: &str, args: &[&str]) -> LaunchPlan {
        let name = Path::new(program).file_name().unwrap().to_owned();
        LaunchPlan {
            program: program.into(),
            argv: std::iter::once(name)
                .chain(args.iter().map(OsString::from))
                .collect(),
            env: vec![("PATH".into(), "/usr/bin:/bin".into())],
            cwd: "/".into(),
            umask: 0o027,
            limits: ResourceLimits::default(),
            tag: format!("{}/s/1", self.run),
        }
    }

    pub(super) fn shell(&self, script: &str) -> LaunchPlan {
        self.plan("/bin/sh", &["-c", script])
    }

    pub(super) fn rig(&self, script: &str) -> Rig {
        Rig::new(self.spawner.clone(), self.shell(script))
    }

    /// What `plan` prints.
    pub(super) async fn output(&self, plan: LaunchPlan) -> String {
        String::from_utf8(self.run_to_end(plan).await.0).unwrap()
    }

    /// What `plan` prints, and how it ends by itself.
    pub(super) async fn run_to_end(&self, plan: LaunchPlan) -> (Vec<u8>, ExitStatus) {
        let child = self.spawner.spawn(plan, Generation(1)).await.unwrap();
        drop(child.stdin);
        child.executed.await.unwrap();
        let mut printed = Vec::new();
        let mut stdout = pipe::Receiver::from_owned_fd(child.stdout).unwrap();
        stdout.read_to_end(&mut printed).await.unwrap();
        let status = child.exited.await;
        assert!(child.group.members().unwrap().is_empty());
        child.group.reap().unwrap();
        (printed, status)
    }
}

/// Time-outs short enough for a test, long enough for a slow machine to tell the steps apart.
pub(super) fn quick() -> Policy {
    Policy {
        drain_timeout: Duration::ZERO,
        stop_timeout: Duration::from_millis(500),
        start_timeout: Duration::from_secs(20),
        stable_after: Duration::ZERO,
        ..Policy::default()
    }
}

/// One supervisor and its real child. The first bytes on stdout stand for the first exchange.
#[derive(Debug)]
pub(super) struct Rig {
    pub(super) supervisor: Supervisor,
    pub(super) group: Option<Arc<dyn ProcessGroup>>,
    pub(super) stdin: Option<OwnedFd>,
    /// Everything that was done, newest last.
    pub(super) done: VecDeque<Action>,
    pub(super) printed: Arc<Mutex<Vec<u8>>>,
    plan: LaunchPlan,
    launcher: Spawner,
    events: mpsc::UnboundedSender<Event>,
    inbox: mpsc::UnboundedReceiver<Event>,
    origin: Instant,
}

impl Rig {
    fn new(launcher: Spawner, plan: LaunchPlan) -> Self {
        let (events, inbox) = mpsc::unbounded_channel();
        Self {
            supervisor: Supervisor::new(quick(), 7),
            group: None,
            stdin: None,
            done: VecDeque::new(),
            printed: Arc::default(),
            plan,
            launcher,
            events,
            inbox,
            origin: Instant::now(),
        }
    }

    pub(super) fn replace_plan(&mut self, plan: LaunchPlan) {
        self.plan = plan;
    }

    pub(super) fn set_policy(&mut self, policy: Policy) {
        let policy = Box::new(policy);
        self.tell(Event::Reconfigured {
            restart: false,
            policy,
        });
    }

    pub(super) fn now(&self) -> Moment {
        Moment::from_origin(self.origin.elapsed())
    }

    pub(super) fn tell(&mut self, event: Event) {
        let now = self.now();
        self.supervisor.handle(event, now);
        self.act();
    }

    pub(super) fn start(&mut self) {
        self.tell(Event::Start {
            cause: Cause::Command,
        });
    }

    pub(super) fn stop(&mut self, mode: Mode) {
        self.tell(Event::Stop {
            cause: Cause::Command,
            mode,
        });
    }

    /// Works until the supervisor is in `substate`.
    pub(super) async fn until(&mut self, substate: Substate) {
        while self.supervisor.status().substate != substate {
            self.step().await;
        }
    }

    /// Starts, waits for `ready`, stops, waits for the proof; the run as it was recorded.
    pub(super) async fn run_and_stop(&mut self, mode: Mode) -> EndedRunSummary {
        self.start();
        self.until(Substate::Ready).await;
        self.stop(mode);
        self.until(Substate::Dead).await;
        self.last()
    }

    pub(super) fn last(&self) -> EndedRunSummary {
        let run = self.supervisor.status().last_runs.remove(0);
        (run.result, run.ended_by)
    }

    async fn step(&mut self) {
        let due = self.supervisor.poll_timeout();
        let due = due.map(|due| self.origin + due.since_origin());
        let asleep = async {
            match due {
                Some(due) => sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            event = self.inbox.recv() => self.tell(event.expect("we hold a sender")),
            () = asleep => {
                let now = self.now();
                self.supervisor.handle_timeout(now);
                self.act();
            }
        }
    }

    fn act(&mut self) {
        while let Some(action) = self.supervisor.poll_action() {
            self.perform(&action);
            self.done.push_back(action);
        }
    }

    fn perform(&mut self, action: &Action) {
        let generation = self.supervisor.generation();
        match action {
            Action::AskTurn { .. } => {
                let now = self.now();
                self.supervisor.handle(Event::TurnCame, now);
            }
            Action::Spawn { generation } => self.spawn(*generation),
            Action::CloseStdin => self.stdin = None,
            Action::Signal(signal) => {
                if let Some(group) = &self.group {
                    group.signal(*signal).unwrap();
                }
            }
            Action::Verify => {
                let group = self.group.as_ref().expect("a child to verify");
                let pids = group.members().unwrap();
                self.events
                    .send(match pids.is_empty() {
                        true => Event::Emptied { generation },
                        false => Event::Holders { generation, pids },
                    })
                    .unwrap();
            }
            Action::Reap => self
                .group
                .as_ref()
                .expect("a child to reap")
                .reap()
                .unwrap(),
            Action::ClosePipes => (self.stdin, self.group) = (None, None),
            Action::Drain => self.events.send(Event::Drained { generation }).unwrap(),
            Action::RunStopCommand { .. } => {
                self.events
                    .send(Event::StopCommandEnded { generation })
                    .unwrap();
            }
            Action::HurryTurn
            | Action::EndTurn
            | Action::CancelSpawn
            | Action::CancelOpen { .. }
            | Action::ChildGone { .. }
            | Action::SetService(_)
            | Action::Changed { .. }
            | Action::Ended(_) => {}
        }
    }

    /// The rig waits for the process here: a test has nothing else to do.
    fn spawn(&mut self, generation: Generation) {
        let spawning = self.launcher.spawn(self.plan.clone(), generation);
        let child = match block_on_thread(spawning) {
            Ok(child) => child,
            Err(failure) => {
                let event = Event::SpawnFailed {
                    generation,
                    failure,
                };
                return self.events.send(event).unwrap();
            }
        };
        let pid = child.pid;
        self.group = Some(child.group);
        self.stdin = Some(child.stdin);
        self.events
            .send(Event::Spawned { generation, pid })
            .unwrap();
        let events = self.events.clone();
        let printed = Arc::clone(&self.printed);
        tokio::spawn(read(child.stdout, generation, events, printed));
        let events = self.events.clone();
        tokio::spawn(async move {
            let event = match child.executed.await {
                Ok(()) => Event::Executed { generation },
                Err(failure) => Event::SpawnFailed {
                    generation,
                    failure,
                },
            };
            drop(events.send(event));
            let status = child.exited.await;
            drop(events.send(Event::Exited { generation, status }));
        });
    }
}

pub(super) type EndedRunSummary = (RunResult, Option<Substate>);

/// The spawner's thread answers by itself: nothing of our runtime is needed meanwhile.
fn block_on_thread<T>(future: launcher::Boxed<T>) -> T {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let mut future = future;
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut context = std::task::Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            std::task::Poll::Ready(value) => return value,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}

async fn read(
    stdout: OwnedFd,
    generation: Generation,
    events: mpsc::UnboundedSender<Event>,
    printed: Arc<Mutex<Vec<u8>>>,
) {
    let mut stdout = pipe::Receiver::from_owned_fd(stdout).unwrap();
    let mut chunk = [0; 4096];
    let mut opened = false;
    // A rig that is gone hears nothing.
    while let Ok(length) = tokio::select! {
        read = stdout.read(&mut chunk) => read,
        () = events.closed() => return,
    } && length > 0
    {
        printed.lock().unwrap().extend_from_slice(&chunk[..length]);
        if !std::mem::replace(&mut opened, true) {
            drop(events.send(Event::Opened { generation }));
        }
    }
    drop(events.send(Event::StdoutClosed { generation }));
}
