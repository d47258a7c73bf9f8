//! One task an instance: the shell around the core that holds it.
//!
//! [`Instance`] owns what hosts and child say to each other and whether a child runs. The worker
//! owns the descriptors. It waits for an event or for the core's deadline, hands it over, performs
//! what it is asked for until the core is quiet, and waits again. It decides nothing.

mod attachments;
mod catalog;
mod command;
mod part;
mod publish;
mod run;
mod turn;
mod viewers;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};

use crate::config::fingerprint::Fingerprint;
use crate::control::{self, Desired};
use crate::ids::{Generation, HostKey};
use crate::instance::{Action, Instance, Matter, Words, mux_config};
use crate::session::{DropReason, Mux};
use crate::supervise::turns::TurnId;
use crate::supervise::{self, ServiceHint, Supervisor};
use crate::time::Moment;

use super::clock;
use super::log::{Logs, ServerLog};
use super::named::Named;
use super::reader::{Lines, Transit};
use super::shared::Shared;
use super::stderr;

pub(crate) use crate::instance::{Applied, Setting, Verdict};
pub(crate) use attachments::{Arrival, Ticket};
pub(crate) use command::Command;
pub(crate) use part::caught;
pub(crate) use publish::Published;
pub(crate) use turn::{TurnEvent, Voice};
pub(crate) use viewers::Viewer;

/// Events that may wait for one worker.
const INBOX: usize = 64;
/// Events that are handed over before the cores are asked what to do.
const BURST: usize = 32;
/// How long hosts that do not read hold up the end.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// What reaches a worker.
#[derive(Debug)]
pub(crate) enum Event {
    Command(Command),
    Arrived(Box<Arrival>),
    HostLines(HostKey, Lines),
    /// The host's input has ended; answers that are due still go out.
    HostEnded(HostKey),
    /// Neither direction is open any more.
    HostGone(HostKey),
    HostWritable(HostKey),
    Child(Generation, run::ChildEvent),
    /// What the catalogue has of this configuration.
    Recalled(Fingerprint, Vec<u8>),
    /// A write to the catalogue has ended.
    Saved,
    /// Somebody looks at what passes.
    Watched(Box<Viewer>),
    /// The turn to start has come.
    TurnCame(TurnId),
    /// A task of the worker broke, and the worker with it.
    PartBroke(part::Broken),
}

/// Hands an event of the message path to a worker. Nearly always there is room, and then nothing has
/// to be set up to wait for it.
///
/// # Errors
/// The worker has gone.
pub(crate) async fn hand_over(
    inbox: &mpsc::Sender<Event>,
    event: Event,
) -> Result<(), mpsc::error::SendError<Event>> {
    match inbox.try_send(event) {
        Ok(()) => Ok(()),
        Err(mpsc::error::TrySendError::Full(event)) => inbox.send(event).await,
        Err(mpsc::error::TrySendError::Closed(event)) => Err(mpsc::error::SendError(event)),
    }
}

/// How the rest of the daemon reaches a worker.
#[derive(Clone, Debug)]
pub(crate) struct WorkerHandle {
    pub(crate) inbox: mpsc::Sender<Event>,
    pub(crate) transit: Transit,
    pub(crate) published: watch::Receiver<Arc<Published>>,
}

/// One instance with everything that it holds open.
#[derive(Debug)]
pub(crate) struct Worker {
    instance: Arc<str>,
    /// What that is called elsewhere.
    named: Arc<Named>,
    shared: Arc<Shared>,
    log: ServerLog,
    core: Instance,
    run: Option<run::Run>,
    /// Held from the wish to start until the server is ready or the attempt is over.
    turn: Option<turn::Turn>,
    saving: catalog::Saving,
    hosts: HashMap<HostKey, attachments::Host>,
    /// Those who look at what passes; mostly nobody.
    viewers: Option<Box<viewers::Viewers>>,
    /// What the last run was, for `status` when none is alive.
    past: run::Past,
    inbox: mpsc::Receiver<Event>,
    handle: WorkerHandle,
    publisher: watch::Sender<Arc<Published>>,
    /// Something that `status` shows has changed since the last publication.
    changed: bool,
    /// Commands that are acknowledged with the next publication.
    unacknowledged: Vec<oneshot::Sender<()>>,
    /// When a host or the child last said something.
    last_activity: Option<Moment>,
    /// The one before it broke.
    is_replacement: bool,
}

impl Worker {
    /// A worker for the instance of this name, not running yet: spawn [`Worker::run`].
    pub(crate) fn new(
        named: Arc<Named>,
        shared: Arc<Shared>,
        setting: Setting,
    ) -> (Self, WorkerHandle) {
        let supervisor = Supervisor::new(setting.policy(), shared.random_seed());
        Self::holding(named, shared, setting, supervisor)
    }

    fn holding(
        named: Arc<Named>,
        shared: Arc<Shared>,
        setting: Setting,
        supervisor: Supervisor,
    ) -> (Self, WorkerHandle) {
        let name: &str = named.name();
        let mux = Mux::new(mux_config(name, &setting.policy()), shared.pool.clone())
            .with_secret(shared.secret);
        let configuration = command::configuration_of(&setting, &shared);
        let (sender, inbox) = mpsc::channel(INBOX);
        let (publisher, published) = watch::channel(Arc::default());
        let handle = WorkerHandle {
            inbox: sender,
            transit: Transit::new(shared.clone(), setting.policy().message_limit_bytes),
            published,
        };
        let worker = Self {
            instance: named.name().clone(),
            // A name that nobody configured leaves no file: whoever connects may make up any.
            log: match setting.is_unknown() {
                true => Logs::nowhere(named.server()),
                false => shared.logs.server(named.server()),
            },
            core: Instance::new(name, setting, configuration, (mux, supervisor)),
            named: named.clone(),
            run: None,
            turn: None,
            saving: catalog::Saving::default(),
            hosts: HashMap::new(),
            viewers: None,
            past: run::Past::default(),
            inbox,
            handle: handle.clone(),
            publisher,
            changed: false,
            last_activity: None,
            unacknowledged: Vec::new(),
            is_replacement: false,
            shared,
        };
        (worker, handle)
    }

    /// The worker that takes the place of one that broke, which had published `before`. Its child
    /// was killed with it; whatever may be left of that is ended before another is started.
    pub(crate) fn after_panic(
        named: Arc<Named>,
        shared: Arc<Shared>,
        setting: Setting,
        before: &Published,
    ) -> (Self, WorkerHandle) {
        let before = &before.status;
        let known = supervise::Broken {
            generation: Generation(before.generation),
            unstable_runs: u32::try_from(before.restarts_unstable).unwrap_or(u32::MAX),
            desired_up: before.desired == Desired::Up && setting.may_run(),
            on_demand: matches!(
                before.substate,
                control::Substate::NeverStarted | control::Substate::IdleStopped
            ),
        };
        let (policy, seed) = (setting.policy(), shared.random_seed());
        let supervisor = Supervisor::after_internal_error(policy, seed, known, clock::now());
        let (mut worker, handle) = Self::holding(named, shared, setting, supervisor);
        worker.is_replacement = true;
        worker.mark_changed();
        (worker, handle)
    }

    /// Works until the daemon ends or the server is given up, and leaves nothing behind.
    pub(crate) async fn run(mut self) {
        self.recall_first().await;
        if !self.is_replacement {
            self.begin(clock::now());
        }
        loop {
            self.settle();
            self.dismiss();
            self.show_traces();
            self.publish();
            if self.core.is_finished() {
                break;
            }
            self.wait().await;
        }
        self.farewell().await;
    }

    /// Waits for something to happen and hands it over.
    async fn wait(&mut self) {
        let deadline = self.core.poll_timeout();
        tokio::select! {
            biased;
            event = self.inbox.recv() => {
                // The worker holds a sender itself, so there is always another event.
                if let Some(event) = event {
                    self.handle(event);
                }
                for _ in 1..BURST {
                    let Ok(event) = self.inbox.try_recv() else { break };
                    self.handle(event);
                }
            }
            () = clock::sleep_until(deadline) => {}
        }
        self.core.handle_timeout(clock::now());
    }

    fn handle(&mut self, event: Event) {
        let now = clock::now();
        match event {
            Event::Command(command) => {
                // What was decided under the configuration so far is done by it.
                self.settle();
                self.handle_command(command, now);
            }
            Event::Arrived(arrival) => self.handle_arrival(*arrival, now),
            Event::HostLines(host, lines) => {
                self.last_activity = Some(now);
                lines.each(|line, until| {
                    if let Some(viewers) = &mut self.viewers {
                        viewers.host_line(host, &line, now);
                    }
                    self.core.mux.handle_journaled_line(host, line, until, now);
                });
            }
            Event::HostEnded(host) => self.core.mux.handle_host_end(host, now),
            Event::HostGone(host) => self.drop_host(host, now),
            Event::HostWritable(host) => self.host_writable(host, now),
            Event::Child(generation, event) => self.handle_child(generation, event, now),
            Event::Recalled(configuration, text) => self.recall(configuration, &text),
            Event::Saved => self.saved(),
            Event::Watched(viewer) => self.add_viewer(*viewer),
            Event::TurnCame(id) => self.core.handle_turn_came(id, now),
            Event::PartBroke(broken) => broken.resume(),
        }
    }

    /// Performs what the core asks for until it is quiet.
    fn settle(&mut self) {
        let now = clock::now();
        while let Some(action) = self.core.poll_action(now) {
            self.perform(action, now);
        }
    }

    fn perform(&mut self, action: Action, now: Moment) {
        match action {
            Action::Explain(matter) => {
                let words = self.words(&matter);
                self.core.explain(matter, words, now);
            }
            Action::AskTurn {
                is_awaited,
                is_cold,
            } => self.ask_turn(is_awaited, is_cold),
            Action::HurryTurn => self.turn.iter().for_each(turn::Turn::hurry),
            Action::EndTurn => self.turn = None,
            Action::Spawn { generation } => self.spawn(generation),
            Action::CancelSpawn => self.cancel_spawn(),
            Action::CloseStdin => self.close_stdin(now),
            Action::RunStopCommand { limit } => self.run_stop_command(limit),
            Action::Signal(signal) => self.signal(signal),
            Action::Verify => self.verify(),
            Action::Reap => self.reap(),
            Action::ClosePipes => self.close_pipes(),
            Action::HostReady(host) => self.flush_host(host, now),
            Action::CloseHost(host) => self.close_host(host, now),
            Action::DropHost(host, reason) => {
                self.log.event(
                    &self.instance,
                    &format!("host {host} detached: {}", cut_off(reason)),
                );
                self.let_go(host);
            }
            Action::EvictHost(host) => self.shared.evict(host),
            Action::ChildReady => self.flush_child(now),
            Action::Opened(identity) => self.log_opened(&identity),
            Action::Learnt(lesson) => self.learnt(lesson),
            Action::Recall(configuration) => self.recall_anew(configuration),
            Action::Keep(configuration) => self.save(configuration),
            Action::Changed { from, to, cause } => self.log_change(from, to, cause),
            Action::Ended(run) => self.log_end(&run),
            Action::CallEnded(end) => self.shared.calls.note(&self.instance, *end),
            Action::Log(text) => self.log_mux(&text),
        }
    }

    /// Puts a matter into words, secrets taken out.
    fn words(&self, matter: &Matter) -> Words {
        let sentence = match matter {
            Matter::Service(
                ServiceHint::Backoff { message, .. } | ServiceHint::Unavailable { message },
            ) => self.unavailable(message),
            Matter::ChildGone(message) => self.redact(message),
            Matter::OpeningFailed(message) => self.redact(&stderr::escape(message)),
            Matter::Service(_) | Matter::Waits => String::new(),
        };
        let detail = self.explain_detail();
        Words { sentence, detail }
    }

    /// Gives hosts a moment to take their last answers, then lets everything go.
    async fn farewell(mut self) {
        let deadline = clock::now() + LAST_WORDS;
        while self.has_unwritten_hosts() && clock::now() < deadline {
            tokio::select! {
                event = self.inbox.recv() => match event {
                    Some(Event::HostWritable(host)) => self.host_writable(host, clock::now()),
                    Some(Event::HostGone(host)) => self.drop_host(host, clock::now()),
                    _ => {}
                },
                () = clock::sleep_until(Some(deadline)) => {}
            }
        }
        self.let_all_go();
    }

    /// Why nothing is served: the file's fault in its own words, else the state and its reason.
    fn unavailable(&self, message: &str) -> String {
        let name = &self.instance;
        let state = self.core.supervisor().state().as_str();
        let message = match self.core.setting().fault(name) {
            Some(fault) => fault,
            None if message.is_empty() => format!("server \"{name}\" is {state}"),
            None => format!("server \"{name}\" is {state}: {message}"),
        };
        self.redact(&message)
    }
}

fn cut_off(reason: DropReason) -> &'static str {
    match reason {
        DropReason::UnreadBytes => "it does not read, and too much waits for it",
        DropReason::PoolFull => "memory_limit is reached, and it holds most of it",
    }
}
