//! The registry: which servers there are, which worker holds each, and what was asked of them.
//!
//! One task owns all of it and answers at once; what takes time (a stop, a status with its look
//! at `/proc`) goes on in a task of its own that only watches what the workers publish. The
//! registry never touches a child.

mod answer;
mod apply;
mod instances;
mod listeners;
mod starts;
mod watching;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use crate::config::diagnostics::Diagnostic;
use crate::config::parse::DaemonFile;
use crate::config::paths::Paths;
use crate::config::spec::{ServerName, ServerSpec};
use crate::control::{ControlError, ErrorKind, Hello, Request, StatusSnapshot};
use crate::ids::HostKey;
use crate::instance::Owner;
use crate::supervise::Mode;
use crate::time::Moment;

use super::clock;
use super::facts::DaemonFacts;
use super::last_resort::contained;
use super::named::{Named, server_of};
use super::shared::Shared;
use super::systemd::render_status;
use super::worker::{
    Command, Event as WorkerEvent, Setting, Ticket, TurnEvent, Worker, WorkerHandle,
};

use listeners::ServerSocket;
use starts::Starts;
use watching::Watching;

/// Attachments of the whole daemon.
const ATTACHMENT_LIMIT: usize = 4096;
/// Workers for names that nobody configured, kept only for the hosts that asked for them.
const STRANGER_LIMIT: usize = 64;

/// How long all servers together may take to end before they are killed, whatever their own
/// deadlines say: with the proof after it the daemon ends within twenty seconds.
const END_BUDGET: Duration = Duration::from_secs(15);
/// How long the last replies may take.
const LAST_REPLIES: Duration = Duration::from_secs(1);

/// A reply on its way to a control connection.
pub(crate) type Answer = oneshot::Sender<Result<serde_json::Value, ControlError>>;

/// What reaches the registry.
#[derive(Debug)]
pub(crate) enum Event {
    Request {
        request: Request,
        answer: Answer,
    },
    Attach {
        server: String,
        /// The working directory of the host, if it has said so.
        directory: Option<PathBuf>,
        answer: oneshot::Sender<Result<Attachment, ControlError>>,
    },
    /// Where the server of this name is held.
    Find {
        server: String,
        answer: oneshot::Sender<Result<WorkerHandle, ControlError>>,
    },
    /// Whether the server whose child this process is may use the control socket.
    MayControl {
        child: u32,
        answer: oneshot::Sender<bool>,
    },
    /// This host holds too much of the pool, whichever worker has it.
    Evict(HostKey),
    /// A worker whose server has no configuration has nothing left to do.
    Unneeded,
    /// Whether the registry lives, and how its servers are.
    Pulse(oneshot::Sender<String>),
    /// What is known without asking or measuring anything.
    Snapshot(oneshot::Sender<StatusSnapshot>),
    /// SIGHUP.
    Reload,
    /// SIGTERM and SIGINT; a second one does not wait for anybody.
    Terminate,
}

/// Where a new host belongs.
#[derive(Debug)]
pub(crate) struct Attachment {
    pub(crate) key: HostKey,
    pub(crate) instance: Arc<str>,
    pub(crate) worker: WorkerHandle,
    pub(crate) ticket: Ticket,
}

/// One server that has a worker.
#[derive(Debug)]
struct Slot {
    named: Arc<Named>,
    worker: WorkerHandle,
    /// It is on its way out, and nobody is attached to it any more.
    is_leaving: bool,
    setting: Setting,
    attachments: usize,
    socket: ServerSocket,
}

/// The owner of all servers.
#[derive(Debug)]
pub(crate) struct Registry {
    shared: Arc<Shared>,
    facts: Arc<DaemonFacts>,
    paths: Paths,
    slots: BTreeMap<Arc<str>, Slot>,
    /// What is applied: the last good specification of each server that still has a file.
    specs: BTreeMap<ServerName, ServerSpec>,
    /// `mcpd.toml` as it was last valid.
    daemon_file: DaemonFile,
    /// Whether that file is there.
    has_daemon_file: bool,
    /// Errors that belong to no server.
    stray: Vec<Diagnostic>,
    watching: Watching,
    /// What the last edit that was noticed set going, and when.
    set_going: Option<(Moment, Vec<WorkerHandle>)>,
    generation: u64,
    workers: JoinSet<()>,
    starts: Starts,
    events: mpsc::Receiver<Event>,
    returned: mpsc::UnboundedReceiver<Arc<str>>,
    tickets: mpsc::UnboundedSender<Arc<str>>,
    /// A daemon for a trial ends by itself when nobody has needed it for so long.
    idle_exit: Option<Duration>,
    last_use: Moment,
    ending: Option<Mode>,
    ending_reason: &'static str,
    /// When servers that still end are not waited for any more.
    kill_at: Option<Moment>,
    /// Who asked for the end, answered when it has come.
    farewells: Vec<Answer>,
}

impl Registry {
    pub(crate) fn new(
        shared: Arc<Shared>,
        facts: Arc<DaemonFacts>,
        paths: Paths,
        (events, turns): (mpsc::Receiver<Event>, mpsc::UnboundedReceiver<TurnEvent>),
        idle_exit: Option<Duration>,
    ) -> Self {
        let (tickets, returned) = mpsc::unbounded_channel();
        Self {
            shared,
            facts,
            paths,
            slots: BTreeMap::new(),
            specs: BTreeMap::new(),
            daemon_file: DaemonFile::default(),
            has_daemon_file: false,
            stray: Vec::new(),
            watching: Watching::default(),
            set_going: None,
            generation: 0,
            workers: JoinSet::new(),
            starts: Starts::new(turns),
            events,
            returned,
            tickets,
            idle_exit,
            last_use: clock::now(),
            ending: None,
            ending_reason: "",
            kill_at: None,
            farewells: Vec::new(),
        }
    }

    /// Serves until the daemon is asked to end and every worker has ended.
    pub(crate) async fn run(mut self) {
        while !(self.ending.is_some() && self.workers.is_empty()) {
            let idle = self.idle_deadline();
            tokio::select! {
                Some(event) = self.events.recv() => self.handle(event).await,
                Some(server) = self.returned.recv() => self.ticket_returned(&server).await,
                Some(ended) = self.workers.join_next() => self.worker_ended(ended),
                () = self.starts.wait() => {}
                () = clock::sleep_until(idle) => {
                    self.end(Mode::Polite, "no client has been there for long").await;
                }
                () = clock::sleep_until(self.kill_at) => {
                    tracing::warn!("the servers take too long to end");
                    self.end(Mode::Kill, "").await;
                }
                // Nothing that has changed matters to a daemon that ends.
                is_due = self.watching.wait(), if self.ending.is_none() => {
                    if is_due {
                        self.look().await;
                    }
                }
            }
        }
        for answer in self.farewells.drain(..) {
            // Whoever asked may have left.
            drop(answer.send(Ok(self::answer::no_outcomes())));
        }
        self.record_end();
        // Nobody is told anything more; replies that are being written still go out.
        drop(self.events);
        let written = tokio::time::timeout(LAST_REPLIES, self.shared.serving.write()).await;
        if written.is_err() {
            tracing::warn!("a control client did not take its last reply");
        }
    }

    async fn handle(&mut self, event: Event) {
        if !matches!(
            event,
            Event::Evict(_) | Event::Pulse(_) | Event::Snapshot(_)
        ) {
            self.last_use = clock::now();
        }
        match event {
            Event::Request { request, answer } => {
                self.look_before(request.names()).await;
                self.request(request, answer).await;
            }
            Event::Attach {
                server,
                directory,
                answer,
            } => {
                self.look_before(std::slice::from_ref(&server)).await;
                let attachment = self.attach(&server, directory);
                // A host that left meanwhile returns its ticket by the drop.
                drop(answer.send(attachment));
            }
            Event::Find { server, answer } => {
                self.look_before(std::slice::from_ref(&server)).await;
                // Whoever asked may have left.
                drop(answer.send(self.find(&server)));
            }
            Event::Evict(host) => self.tell_all(|| Command::Evict(host)).await,
            // Whoever asked may have left.
            // Whoever connected may have left.
            Event::MayControl { child, answer } => drop(answer.send(self.may_control(child))),
            Event::Pulse(answer) => drop(answer.send(self.summary())),
            Event::Snapshot(answer) => drop(answer.send(self.snapshot())),
            Event::Unneeded => self.forget_unneeded().await,
            Event::Reload => self.reload(None, false).await,
            Event::Terminate => {
                let mode = match self.ending {
                    None => Mode::Polite,
                    Some(_) => Mode::Kill,
                };
                self.end(mode, "it got SIGTERM or SIGINT").await;
            }
        }
    }

    /// Whether `child` is the child of a server that may control mcpd. One that was adopted belongs to
    /// nobody who could be asked.
    fn may_control(&self, child: u32) -> bool {
        self.slots.values().any(|slot| {
            let spec = slot.setting.spec.as_ref();
            spec.is_some_and(|spec| spec.policy.allow_mcpd)
                && slot.worker.published.borrow().status.pid == Some(child)
        })
    }

    /// All servers in one line.
    pub(crate) fn summary(&self) -> String {
        let servers: Vec<_> = self
            .shown(&[])
            .map(|(name, slot)| (&**name, slot.worker.published.borrow().status.state))
            .collect();
        render_status(&servers, self.attachments())
    }

    async fn request(&mut self, request: Request, answer: Answer) {
        match request {
            Request::Hello => self.hello(answer),
            Request::Status(targets) => self.status(&targets.names, answer, answer::to_value),
            Request::Metrics => self.status(&[], answer, answer::metrics),
            Request::Start(targets) => self.command(targets.names, answer::Verb::Start, answer),
            Request::Stop(stop) => {
                self.command(stop.names, answer::Verb::Stop(mode(stop.now)), answer);
            }
            Request::Restart(stop) => {
                self.command(stop.names, answer::Verb::Restart(mode(stop.now)), answer);
            }
            Request::ResetFailed(targets) => {
                self.command(targets.names, answer::Verb::ResetFailed, answer);
            }
            Request::Reload { wait } => self.reload(Some(answer), wait).await,
            Request::Shutdown { now } => {
                self.farewells.push(answer);
                self.end(mode(now), "`mcpd shutdown` was run").await;
            }
            // These are served by the connection itself.
            Request::Attach(_) | Request::Calls(_) | Request::Trace(_) => drop(answer.send(Err(
                ControlError::new(ErrorKind::Internal, "this is not served here"),
            ))),
        }
    }

    fn hello(&self, answer: Answer) {
        let hello = Hello {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            protocol: crate::control::PROTOCOL,
            pid: std::process::id(),
            config_dir: self.paths.config_dir().display().to_string(),
        };
        let reply = serde_json::to_value(hello)
            .map_err(|error| ControlError::new(ErrorKind::Internal, error.to_string()));
        // Whoever asked may have left.
        drop(answer.send(reply));
    }

    /// The worker for a new host, made if there is none.
    fn attach(
        &mut self,
        asked: &str,
        directory: Option<PathBuf>,
    ) -> Result<Attachment, ControlError> {
        #[cfg(feature = "test-fakes")]
        super::faults::in_registry(asked);
        let refuse = |kind, message: String| Err(ControlError::new(kind, message));
        if self.ending.is_some() {
            return refuse(ErrorKind::Stopping, "the daemon is ending".to_owned());
        }
        if ServerName::parse(server_of(asked)).is_none() {
            let message = format!(
                "{asked:?} cannot be the name of a server: letters, digits, `.`, `_` and `-` only, at most 64"
            );
            return refuse(ErrorKind::InvalidParams, message);
        }
        if self.attachments() >= ATTACHMENT_LIMIT {
            let message = format!("{ATTACHMENT_LIMIT} hosts are attached already");
            return refuse(ErrorKind::Overloaded, message);
        }
        let key = self.shared.next_host();
        let name = self.place(asked, directory, key)?;
        let Some(slot) = self.slots.get_mut(&name) else {
            return refuse(ErrorKind::Internal, "the worker is gone".to_owned());
        };
        slot.attachments += 1;
        Ok(Attachment {
            key,
            instance: name.clone(),
            worker: slot.worker.clone(),
            ticket: Ticket {
                server: name,
                returned: self.tickets.clone(),
            },
        })
    }

    /// Hosts of all servers.
    fn attachments(&self) -> usize {
        self.slots.values().map(|slot| slot.attachments).sum()
    }

    fn add_slot(&mut self, named: Arc<Named>, setting: Setting) -> Arc<str> {
        let name = named.name().clone();
        let (worker, handle) = Worker::new(named.clone(), self.shared.clone(), setting.clone());
        self.workers.spawn(contained(worker.run()));
        let slot = Slot {
            worker: handle,
            setting,
            named,
            is_leaving: false,
            attachments: 0,
            socket: ServerSocket::default(),
        };
        self.slots.insert(name.clone(), slot);
        name
    }

    /// A worker has ended. One that ended by a panic has let its hosts and its child go; another
    /// takes its place, so that one server's fault is one server's restart.
    fn worker_ended(&mut self, ended: Result<(), tokio::task::JoinError>) {
        self.slots
            .retain(|_, slot| !(slot.is_leaving && slot.worker.inbox.is_closed()));
        let Err(error) = ended else { return };
        tracing::error!(%error, "a worker failed");
        if self.ending.is_some() {
            return;
        }
        for slot in self.slots.values_mut() {
            if slot.worker.inbox.is_closed() {
                let setting = slot.setting.clone();
                let before = slot.worker.published.borrow().clone();
                let shared = self.shared.clone();
                let (worker, handle) =
                    Worker::after_panic(slot.named.clone(), shared, setting, &before);
                self.workers.spawn(contained(worker.run()));
                slot.worker = handle;
            }
        }
    }

    async fn ticket_returned(&mut self, name: &str) {
        self.last_use = clock::now();
        if let Some(slot) = self.slots.get_mut(name) {
            slot.attachments -= 1;
            if slot.attachments == 0 && matches!(slot.setting.owner, Owner::Host(_)) {
                slot.dismiss().await;
            }
        }
        self.forget_unneeded().await;
    }

    /// Lets workers go that have no host and no child, and that no file stands for.
    async fn forget_unneeded(&mut self) {
        let is_unneeded = |_: &Arc<str>, slot: &mut Slot| {
            let is_needed = !slot.setting.is_absent() && !slot.setting.owner.is_part();
            !is_needed && slot.attachments == 0 && slot.worker.published.borrow().has_no_child()
        };
        let unneeded: Vec<Slot> = self
            .slots
            .extract_if(.., is_unneeded)
            .map(|(_, slot)| slot)
            .collect();
        for slot in unneeded {
            tell(&slot.worker, Command::Shutdown(Mode::Polite)).await;
        }
    }

    async fn tell_all(&self, command: impl Fn() -> Command) {
        for slot in self.slots.values() {
            tell(&slot.worker, command()).await;
        }
    }

    /// Ends all workers at once; with `Kill`, those that are ending already do not wait any more.
    async fn end(&mut self, mode: Mode, why: &'static str) {
        if self.ending == Some(Mode::Kill) || self.ending == Some(mode) {
            return;
        }
        if self.ending.is_none() {
            self.ending_reason = why;
        }
        self.ending = Some(mode);
        self.kill_at = (mode == Mode::Polite).then(|| clock::now() + END_BUDGET);
        self.facts.notifier.stopping();
        self.facts.stop_listening();
        // Nothing opens one again: a daemon that ends applies no configuration.
        for slot in self.slots.values_mut() {
            slot.socket.close();
        }
        self.tell_all(|| Command::Shutdown(mode)).await;
    }

    fn idle_deadline(&self) -> Option<Moment> {
        let limit = self.idle_exit?;
        let in_use = self.ending.is_some() || self.attachments() > 0;
        (!in_use).then_some(self.last_use + limit)
    }
}

fn mode(now: bool) -> Mode {
    if now { Mode::Kill } else { Mode::Polite }
}

/// Hands a command to a worker. One that has ended needs none.
async fn tell(worker: &WorkerHandle, command: Command) {
    drop(worker.inbox.send(WorkerEvent::Command(command)).await);
}
