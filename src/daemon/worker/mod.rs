//! One task an instance: the shell around the two cores that hold it.
//!
//! [`Mux`] owns what hosts and child say to each other, [`Supervisor`] owns whether a child runs.
//! The worker owns the descriptors. It waits for an event or for the earlier of the cores'
//! deadlines, hands it over, performs what they ask for until both are quiet, and waits again. It
//! decides nothing: where one core has to know of the other, the worker only carries the word.

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
use crate::session::{DropReason, Hold, HoldCause, Mux, MuxAction, Service, Unavailable};
use crate::supervise::state::CancelReason;
use crate::supervise::turns::TurnId;
use crate::supervise::{self, Action, ServiceHint, Supervisor};
use crate::time::{Moment, earliest};

use super::clock;
use super::log::{Logs, ServerLog};
use super::reader::{Lines, Transit};
use super::shared::Shared;

pub(crate) use attachments::{Arrival, Ticket};
pub(crate) use command::{Applied, Command, Setting, Verdict};
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
    shared: Arc<Shared>,
    setting: Setting,
    log: ServerLog,
    mux: Mux,
    supervisor: Supervisor,
    run: Option<run::Run>,
    /// Held from the wish to start until the server is ready or the attempt is over.
    turn: Option<turn::Turn>,
    /// The configuration by which a start has succeeded last.
    proven: Option<Fingerprint>,
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
    ending: bool,
    /// The one before it broke.
    is_replacement: bool,
}

impl Worker {
    /// A worker for the server `name`, not running yet: spawn [`Worker::run`].
    pub(crate) fn new(name: &str, shared: Arc<Shared>, setting: Setting) -> (Self, WorkerHandle) {
        let (sender, inbox) = mpsc::channel(INBOX);
        let (publisher, published) = watch::channel(Arc::default());
        let handle = WorkerHandle {
            inbox: sender,
            transit: Transit::new(shared.clone(), setting.policy().message_limit_bytes),
            published,
        };
        let policy = setting.policy();
        let worker = Self {
            instance: Arc::from(name),
            // A name that nobody configured leaves no file: whoever connects may make up any.
            log: match setting.is_unknown() {
                true => Logs::nowhere(name),
                false => shared.logs.server(name),
            },
            mux: Mux::new(command::mux_config(name, &policy), shared.pool.clone())
                .with_secret(shared.secret),
            supervisor: Supervisor::new(policy, shared.random_seed()),
            run: None,
            turn: None,
            proven: None,
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
            ending: false,
            is_replacement: false,
            setting,
            shared,
        };
        (worker, handle)
    }

    /// The worker that takes the place of one that broke, which had published `before`. Its child
    /// was killed with it; whatever may be left of that is ended before another is started.
    pub(crate) fn after_panic(
        name: &str,
        shared: Arc<Shared>,
        setting: Setting,
        before: &Published,
    ) -> (Self, WorkerHandle) {
        let (mut worker, handle) = Self::new(name, shared, setting);
        let before = &before.status;
        let known = supervise::Broken {
            generation: Generation(before.generation),
            unstable_runs: u32::try_from(before.restarts_unstable).unwrap_or(u32::MAX),
            desired_up: before.desired == Desired::Up && worker.setting.may_run(),
            on_demand: matches!(
                before.substate,
                control::Substate::NeverStarted | control::Substate::IdleStopped
            ),
        };
        worker.supervisor = Supervisor::after_internal_error(
            worker.setting.policy(),
            worker.shared.random_seed(),
            known,
            clock::now(),
        );
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
            self.show_traces();
            self.publish();
            if self.is_finished() {
                break;
            }
            self.wait().await;
        }
        self.farewell().await;
    }

    /// Waits for something to happen and hands it to the core concerned.
    async fn wait(&mut self) {
        let deadline = earliest(self.mux.poll_timeout(), self.supervisor.poll_timeout());
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
        let now = clock::now();
        // The supervisor first: it knows why a start took too long, a waiting request only that.
        self.supervisor.handle_timeout(now);
        self.settle();
        if self.mux.poll_timeout().is_some_and(|due| due <= now) {
            self.mux.explain_waits(self.explain_detail());
        }
        self.mux.handle_timeout(now);
    }

    fn handle(&mut self, event: Event) {
        let now = clock::now();
        match event {
            Event::Command(command) => {
                // What was decided under the configuration so far is done by it: a spawn that was
                // decided a moment ago needs the file that an edit may take away.
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
                    self.mux.handle_journaled_line(host, line, until, now);
                });
            }
            Event::HostEnded(host) => self.mux.handle_host_end(host, now),
            Event::HostGone(host) => self.drop_host(host, now),
            Event::HostWritable(host) => self.host_writable(host, now),
            Event::Child(generation, event) => self.handle_child(generation, event, now),
            Event::Recalled(configuration, text) => self.recall(configuration, &text),
            Event::Saved => self.saved(),
            Event::Watched(viewer) => self.add_viewer(*viewer),
            Event::TurnCame(id) => self.turn_came(id, now),
            Event::PartBroke(broken) => broken.resume(),
        }
    }

    /// Performs what the cores ask for until both are quiet.
    fn settle(&mut self) {
        let now = clock::now();
        loop {
            if let Some(action) = self.supervisor.poll_action() {
                self.perform(action, now);
            } else if let Some(action) = self.mux.poll_action() {
                self.perform_mux(action, now);
            } else {
                return;
            }
        }
    }

    fn perform(&mut self, action: Action, now: Moment) {
        match action {
            Action::AskTurn { is_awaited } => self.ask_turn(is_awaited),
            Action::HurryTurn => self.turn.iter().for_each(turn::Turn::hurry),
            Action::EndTurn => self.turn = None,
            Action::Spawn { generation } => self.spawn(generation),
            Action::CancelSpawn => self.cancel_spawn(),
            Action::Drain => self.mux.begin_drain(now),
            Action::CancelOpen { reason } => self.mux.cancel_open(cancel_code(reason), now),
            Action::CloseStdin => self.close_stdin(now),
            Action::RunStopCommand { limit } => self.run_stop_command(limit),
            Action::Signal(signal) => self.signal(signal),
            Action::Verify => self.verify(),
            Action::ChildGone { message } => self.child_gone(message, now),
            Action::Reap => self.reap(),
            Action::ClosePipes => self.close_pipes(),
            Action::SetService(hint) => {
                let service = self.service(hint);
                self.mux.set_service(service, now);
            }
            Action::Changed { from, to, cause } => self.log_change(from, to, cause),
            Action::Ended(run) => self.log_end(&run),
        }
    }

    fn perform_mux(&mut self, action: MuxAction, now: Moment) {
        match action {
            MuxAction::HostReady(host) => self.flush_host(host, now),
            MuxAction::CloseHost(host, _) => self.close_host(host, now),
            MuxAction::DropHost(host, reason) => {
                self.log.event(
                    &self.instance,
                    &format!("host {host} detached: {}", cut_off(reason)),
                );
                self.let_go(host);
            }
            MuxAction::EvictHost(host) => self.shared.evict(host),
            MuxAction::ChildReady => self.flush_child(now),
            MuxAction::Opened(identity) => self.opened(&identity, now),
            MuxAction::OpeningFailed(why) => self.opening_failed(why, now),
            MuxAction::Excused(excused) => {
                let generation = self.supervisor.generation();
                self.tell(
                    supervise::Event::Excused {
                        generation,
                        excused,
                    },
                    now,
                );
            }
            MuxAction::Learnt(lesson) => self.learnt(lesson),
            MuxAction::Drained => {
                let generation = self.supervisor.generation();
                self.tell(supervise::Event::Drained { generation }, now);
            }
            MuxAction::Hung { silence } => self.hung(silence, now),
            MuxAction::Demand => self.tell(supervise::Event::Demand, now),
            MuxAction::Remembered => self.learned(),
            MuxAction::Idle => self.tell(supervise::Event::Idle, now),
            MuxAction::CallEnded(end) => self.shared.calls.note(&self.instance, *end),
            MuxAction::Log(_, text) => self.log_mux(&text),
        }
    }

    fn tell(&mut self, event: supervise::Event, now: Moment) {
        self.supervisor.handle(event, now);
    }

    /// The hint of the supervisor in the words of the multiplexer.
    fn service(&self, hint: ServiceHint) -> Service {
        match hint {
            ServiceHint::Serving => Service::Serving,
            ServiceHint::Holding { ordered: true } => {
                Service::Holding(self.hold(HoldCause::Restarting))
            }
            ServiceHint::Holding { ordered: false } | ServiceHint::OnDemand => {
                Service::Holding(self.hold(HoldCause::Starting))
            }
            ServiceHint::Stopping => Service::Stopping,
            ServiceHint::Backoff {
                next_attempt_at,
                message,
            } => Service::Backoff {
                next_attempt: next_attempt_at,
                detail: self.unavailable(message),
            },
            ServiceHint::Unavailable { message } => Service::Unavailable(self.unavailable(message)),
        }
    }

    /// Why requests wait, with what the child said last in case that the wait runs out.
    fn hold(&self, cause: HoldCause) -> Hold {
        Hold {
            cause,
            detail: self.explain_detail(),
        }
    }

    /// Whether the worker has nothing left to do.
    fn is_finished(&self) -> bool {
        let state = self.supervisor.state();
        self.ending && matches!(state, supervise::State::Stopped | supervise::State::Failed)
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
    fn unavailable(&self, message: String) -> Unavailable {
        let name = &self.instance;
        let state = self.supervisor.state().as_str();
        let message = match self.setting.fault(name) {
            Some(fault) => fault,
            None if message.is_empty() => format!("server \"{name}\" is {state}"),
            None => format!("server \"{name}\" is {state}: {message}"),
        };
        Unavailable {
            message: self.redact(&message),
            detail: self.explain_detail(),
        }
    }
}

fn cut_off(reason: DropReason) -> &'static str {
    match reason {
        DropReason::UnreadBytes => "it does not read, and too much waits for it",
        DropReason::PoolFull => "memory_limit is reached, and it holds most of it",
    }
}

fn cancel_code(reason: CancelReason) -> crate::protocol::ErrorCode {
    match reason {
        CancelReason::ServerStopping => crate::protocol::ErrorCode::SERVER_STOPPING,
        CancelReason::DaemonEnding => crate::protocol::ErrorCode::DAEMON_RESTARTED,
    }
}
