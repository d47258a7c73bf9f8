//! One instance: the two cores that hold it, driven as the daemon's worker drives them.
//!
//! What `daemon::worker` does with tasks and descriptors is done here with events and pipes, in the
//! same order: events first, then what is due, then actions until both cores are quiet. Beside each
//! step stands what must hold: one child at a time, none before the proof, each request to one child
//! only.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use mcpd::config::spec::{LaunchSpec, ServerSpec};
use mcpd::ids::{Generation, HostKey};
use mcpd::protocol::{Line, LineReader};
use mcpd::session::{Hold, HoldCause, Mux, MuxAction, Service, Unavailable};
use mcpd::supervise::state::CancelReason;
use mcpd::supervise::turns::TurnId;
use mcpd::supervise::{
    Action, Event, ExitStatus, ServiceHint, SpawnFailure, State, Substate, Supervisor,
};
use mcpd::time::{Moment, earliest};
use serde_json::Value;

use crate::clock::Tick;
use crate::orders::Command;
use crate::pipe::Port;
use crate::process::Process;
use crate::scene::Scene;
use crate::starts::Turn;

/// Events that are handed over before the cores are asked what to do, as in the daemon.
const BURST: usize = 32;
/// Events that readers may have waiting for one worker, as in the daemon.
pub(crate) const INBOX: usize = 64;
/// How long hosts that do not read hold up the end, as in the daemon.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The configuration of one server as the worker knows it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Setting {
    pub(crate) spec: Option<Arc<ServerSpec>>,
    pub(crate) verdict: Verdict,
}

/// What is to be said of the server's file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Verdict {
    Ok,
    Invalid(Vec<mcpd::config::diagnostics::Diagnostic>),
    Removed,
    Unknown,
}

impl Setting {
    pub(crate) const fn unknown() -> Self {
        Self {
            spec: None,
            verdict: Verdict::Unknown,
        }
    }

    pub(crate) const fn is_absent(&self) -> bool {
        matches!(self.verdict, Verdict::Unknown | Verdict::Removed)
    }

    pub(crate) fn may_run(&self) -> bool {
        self.spec.as_ref().is_some_and(|spec| spec.enabled)
    }

    pub(crate) fn is_disabled(&self) -> bool {
        self.spec.as_ref().is_some_and(|spec| !spec.enabled)
    }

    pub(crate) fn policy(&self) -> mcpd::config::spec::Policy {
        self.spec
            .as_ref()
            .map_or_else(Default::default, |spec| spec.policy.clone())
    }
}

/// What reaches a worker.
#[derive(Debug)]
pub(crate) enum Inbound {
    Command(Command),
    Arrived(HostKey),
    HostLines(HostKey, Vec<Line>),
    HostEnded(HostKey),
    HostGone(HostKey),
    HostWritable(HostKey),
    Child(Generation, ChildEvent),
    /// The turn to start has come.
    TurnCame(TurnId),
}

/// What happened to the child of one generation.
#[derive(Debug)]
pub(crate) enum ChildEvent {
    Spawned(Result<u32, SpawnFailure>),
    Executed(Result<(), SpawnFailure>),
    Lines(Vec<Line>),
    StdoutEnded,
    StdinWritable,
    Exited(ExitStatus),
    Members(Vec<u32>),
    StopCommandEnded,
}

/// What is kept of a run while it lives.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) generation: Generation,
    /// There was a process.
    pub(crate) has_group: bool,
    pub(crate) stdin: Option<Port>,
    pub(crate) stdout: Option<LineReader>,
    /// The program runs: its stdout is read.
    pub(crate) is_read: bool,
    pub(crate) is_called_off: bool,
}

/// The daemon's end of a host.
#[derive(Debug, Default)]
pub(crate) struct HostPort {
    pub(crate) port: Port,
    pub(crate) is_closing: bool,
}

/// What a child was given, for the promises about ids.
#[derive(Debug, Default)]
pub(crate) struct Given {
    pub(crate) ids: std::collections::BTreeSet<u64>,
    /// The id of its `initialize`.
    pub(crate) was_asked: Option<u64>,
    pub(crate) is_open: bool,
}

#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) name: String,
    pub(crate) place: usize,
    pub(crate) mux: Mux,
    pub(crate) supervisor: Supervisor,
    pub(crate) setting: Setting,
    pub(crate) run: Option<Run>,
    pub(crate) turn: Option<Turn>,
    /// By what a start has succeeded last.
    pub(crate) proven: Option<LaunchSpec>,
    pub(crate) hosts: BTreeMap<HostKey, HostPort>,
    pub(crate) inbox: VecDeque<Inbound>,
    pub(crate) ending: bool,
    pub(crate) farewell: Option<Moment>,
    pub(crate) is_finished: bool,
    /// Every process of every run that is not reaped.
    pub(crate) processes: Vec<Process>,
    pub(crate) given: Given,
    /// Since when no request can be written.
    pub(crate) unserved_since: Option<Moment>,
    wakes_at: Option<Moment>,
    /// Something was ordered or asked for since the last spawn.
    pub(crate) is_asked: bool,
    /// Somebody did not want to wait for an end.
    pub(crate) may_kill: bool,
    /// It has nothing to do with any fault.
    pub(crate) is_calm: bool,
    pub(crate) is_unneeded: bool,
}

impl Worker {
    pub(crate) fn new(
        name: &str,
        place: usize,
        setting: Setting,
        is_calm: bool,
        scene: &mut Scene,
    ) -> Self {
        let policy = setting.policy();
        Self {
            name: name.to_owned(),
            place,
            mux: Mux::new(crate::orders::mux_config(name, &policy), scene.pool.clone()),
            supervisor: Supervisor::new(policy, scene.clock.random.next()),
            setting,
            run: None,
            turn: None,
            proven: None,
            hosts: BTreeMap::new(),
            inbox: VecDeque::new(),
            ending: false,
            farewell: None,
            is_finished: false,
            processes: Vec::new(),
            given: Given::default(),
            unserved_since: Some(scene.clock.now),
            wakes_at: None,
            is_asked: false,
            may_kill: false,
            is_calm,
            is_unneeded: false,
        }
    }

    /// The daemon has made this worker: it begins, and looks at what is to be done.
    pub(crate) fn start(&mut self, scene: &mut Scene) {
        self.begin(scene.clock.now);
        self.turn(scene);
    }

    /// Has the worker wake at `moment`, unless it does so earlier.
    fn wake_at(&mut self, moment: Moment, scene: &mut Scene) {
        let moment = moment.max(scene.clock.now);
        if self.wakes_at.is_none_or(|at| moment < at) {
            self.wakes_at = Some(moment);
            scene.clock.at(moment, Tick::Wake(self.place));
        }
    }

    /// Puts something into the inbox.
    pub(crate) fn post(&mut self, event: Inbound, scene: &mut Scene) {
        if self.is_finished {
            return;
        }
        self.inbox.push_back(event);
        let late = scene.lateness();
        let soon = scene.clock.now + scene.clock.random.ms(0, 1) + late;
        self.wake_at(soon, scene);
    }

    /// Whether a reader may put lines into the inbox.
    pub(crate) fn has_room(&self) -> bool {
        self.inbox.len() < INBOX
    }

    /// One turn of the worker's loop: events, what is due, and all that follows.
    pub(crate) fn wake(&mut self, scene: &mut Scene) {
        if self.wakes_at != Some(scene.clock.now) || self.is_finished {
            return;
        }
        self.wakes_at = None;
        if self.farewell.is_some() {
            return self.say_farewell(scene);
        }
        let now = scene.clock.now;
        for _ in 0..BURST {
            let Some(event) = self.inbox.pop_front() else {
                break;
            };
            self.handle(event, scene);
        }
        self.supervisor.handle_timeout(now);
        self.settle(scene);
        if self.mux.poll_timeout().is_some_and(|due| due <= now) {
            self.mux.explain_waits(Value::Null);
        }
        self.mux.handle_timeout(now);
        self.turn(scene);
    }

    /// The end of a turn: actions, then the wait for whatever is next.
    fn turn(&mut self, scene: &mut Scene) {
        self.settle(scene);
        self.check(scene);
        if self.finishes() {
            self.farewell = Some(scene.clock.now + LAST_WORDS);
            return self.say_farewell(scene);
        }
        if !self.inbox.is_empty() {
            self.wake_at(scene.clock.now, scene);
        }
        let deadline = earliest(self.mux.poll_timeout(), self.supervisor.poll_timeout());
        if let Some(deadline) = deadline {
            let late = scene.lateness();
            self.wake_at(deadline + late, scene);
        }
    }

    fn handle(&mut self, event: Inbound, scene: &mut Scene) {
        let now = scene.clock.now;
        for key in self.hosts.keys() {
            scene.host(*key).ledger.unsettle();
        }
        match event {
            Inbound::Command(command) => {
                self.settle(scene);
                self.handle_command(command, scene);
            }
            Inbound::Arrived(host) => self.arrived(host),
            Inbound::HostLines(host, lines) => {
                for line in lines {
                    scene.hand_over(host, &line, self.mux.has_host(host));
                    self.mux.handle_host_line(host, line, now);
                }
            }
            Inbound::HostEnded(host) => self.mux.handle_host_end(host, now),
            Inbound::HostGone(host) => self.drop_host(host, scene),
            Inbound::HostWritable(host) => {
                if let Some(port) = self.hosts.get_mut(&host) {
                    port.port.is_waiting = false;
                    self.flush_host(host, scene);
                }
            }
            Inbound::TurnCame(id) => {
                if self.turn.as_ref().is_some_and(|turn| turn.id == id) {
                    self.tell(Event::TurnCame, now);
                }
            }
            Inbound::Child(generation, event) => self.handle_child(generation, event, scene),
        }
    }

    /// Performs what the cores ask for until both are quiet.
    fn settle(&mut self, scene: &mut Scene) {
        loop {
            if let Some(action) = self.supervisor.poll_action() {
                self.perform(action, scene);
            } else if let Some(action) = self.mux.poll_action() {
                self.perform_mux(action, scene);
            } else {
                break;
            }
        }
        for (key, host) in &self.hosts {
            if host.port.current.is_none() {
                scene.host(*key).ledger.settle();
            }
        }
    }

    fn perform(&mut self, action: Action, scene: &mut Scene) {
        let now = scene.clock.now;
        if !matches!(action, Action::SetService(_)) {
            scene.clock.tell(&self.name, || format!("{action:?}"));
        }
        match action {
            Action::AskTurn { is_awaited } => self.ask_turn(is_awaited, scene),
            Action::HurryTurn => self.hurry_turn(scene),
            Action::EndTurn => self.end_turn(scene),
            Action::Spawn { generation } => self.spawn(generation, scene),
            Action::CancelSpawn => self.cancel_spawn(scene),
            Action::Drain => self.begin_drain(now),
            Action::CancelOpen { reason } => self.mux.cancel_open(cancel_code(reason), now),
            Action::CloseStdin => self.close_stdin(scene),
            Action::RunStopCommand { limit } => self.run_stop_command(limit, scene),
            Action::Signal(signal) => self.signal(signal, scene),
            Action::Verify => self.verify(scene),
            Action::ChildGone { message } => self.child_gone(&message, now),
            Action::Reap => self.reap(),
            Action::ClosePipes => self.close_pipes(),
            Action::SetService(hint) => {
                let service = service(&self.name, hint);
                self.mux.set_service(service, now);
            }
            Action::Changed { from, to, .. } => {
                assert_ne!(from, to);
                self.changed(from, to, scene);
                // What was given up on is not waited for any more.
                self.may_kill |= to == Substate::Unkillable;
            }
            Action::Ended(run) => {
                assert!(
                    !(self.is_calm && scene.terminated.is_none()),
                    "{} was disturbed: {run:?}",
                    self.name
                );
            }
        }
    }

    fn perform_mux(&mut self, action: MuxAction, scene: &mut Scene) {
        let now = scene.clock.now;
        match action {
            MuxAction::HostReady(host) => self.flush_host(host, scene),
            MuxAction::CloseHost(host, _) => {
                if let Some(port) = self.hosts.get_mut(&host) {
                    port.is_closing = true;
                    self.flush_host(host, scene);
                }
            }
            MuxAction::DropHost(host, reason) => {
                let who = scene.host(host);
                assert!(
                    !who.ledger.is_calm,
                    "{} host {host} is cut off: {reason:?}",
                    self.name
                );
                self.let_go(host, scene);
            }
            MuxAction::EvictHost(host) => scene.clock.after(Duration::ZERO, Tick::Evict(host)),
            MuxAction::ChildReady => self.flush_child(scene),
            MuxAction::Opened(_) => {
                self.proven = self.setting.spec.as_ref().map(|spec| spec.launch.clone());
                let generation = self.supervisor.generation();
                self.tell(Event::Opened { generation }, now);
            }
            MuxAction::OpeningFailed(why) => {
                let generation = self.supervisor.generation();
                let detail = why.message;
                self.tell(Event::OpeningFailed { generation, detail }, now);
            }
            MuxAction::Excused(excused) => {
                self.is_asked = true;
                let generation = self.supervisor.generation();
                self.tell(
                    Event::Excused {
                        generation,
                        excused,
                    },
                    now,
                );
            }
            // There is no state directory, so nothing is remembered.
            MuxAction::Learnt(_) => {}
            MuxAction::Drained => {
                let generation = self.supervisor.generation();
                self.tell(Event::Drained { generation }, now);
            }
            MuxAction::Idle => self.tell(Event::Idle, now),
            MuxAction::Hung { silence } => {
                let generation = self.supervisor.generation();
                self.tell(
                    Event::Hung {
                        generation,
                        silence,
                    },
                    now,
                );
            }
            MuxAction::Demand => {
                self.is_asked = true;
                self.tell(Event::Demand, now);
            }
            MuxAction::Remembered | MuxAction::CallEnded(_) => {}
            MuxAction::Log(_, text) => scene.clock.tell(&self.name, || format!("log: {text}")),
        }
    }

    pub(crate) fn tell(&mut self, event: Event, now: Moment) {
        self.supervisor.handle(event, now);
    }

    fn begin_drain(&mut self, now: Moment) {
        self.unserved_since.get_or_insert(now);
        self.mux.begin_drain(now);
    }

    /// What must hold where the state changes.
    fn changed(&self, from: Substate, to: Substate, scene: &Scene) {
        let name = &self.name;
        let living: usize = self.processes.iter().map(Process::living).sum();
        if to.state() == State::Stopped {
            assert_eq!(living, 0, "{name} is {} and lives", to.as_str());
        }
        if to == Substate::WaitingForTurn && from.state() == State::Stopping {
            assert!(self.is_asked, "{name} starts again without a pause");
        }
        // A late look at the clock may find a deadline passed for which there was no time.
        if to == Substate::Unkillable && scene.temper.lateness_ms < 500 {
            let is_excused = |process: &Process| !process.is_launched || process.was_stuck();
            assert!(
                self.processes.iter().any(is_excused),
                "{name} is given up and could be killed"
            );
        }
    }

    fn finishes(&self) -> bool {
        self.ending && matches!(self.supervisor.state(), State::Stopped | State::Failed)
    }

    /// Gives hosts a moment to take their last answers, then lets everything go.
    fn say_farewell(&mut self, scene: &mut Scene) {
        while let Some(event) = self.inbox.pop_front() {
            match event {
                Inbound::HostWritable(host) => {
                    if let Some(port) = self.hosts.get_mut(&host) {
                        port.port.is_waiting = false;
                        self.flush_host(host, scene);
                    }
                }
                Inbound::HostGone(host) => self.drop_host(host, scene),
                _ => {}
            }
        }
        let until = self.farewell.unwrap_or_default();
        let waits = self.hosts.values().any(|host| host.port.current.is_some());
        if waits && scene.clock.now < until {
            return self.wake_at(until, scene);
        }
        for key in self.hosts.keys() {
            let host = scene.host(*key);
            let due: Vec<_> = host.ledger.open().collect();
            assert!(due.is_empty(), "{} ends and owes {due:#?}", self.name);
        }
        for key in self.hosts.keys().copied().collect::<Vec<_>>() {
            self.let_go(key, scene);
            self.mux.handle_host_gone(key, scene.clock.now);
        }
        self.is_finished = true;
        scene.clock.tell(&self.name, || "worker ends".to_owned());
    }

    /// What holds after each turn.
    fn check(&mut self, scene: &mut Scene) {
        let state = self.supervisor.state();
        let waits = matches!(state, State::Starting | State::Stopping | State::Backoff);
        if waits {
            assert!(
                self.turn.is_some() || self.supervisor.poll_timeout().is_some(),
                "{} is {} without a deadline",
                self.name,
                state.as_str()
            );
        }
        let patience = crate::registry::LONGEST_START + scene.longest_lateness() * 2;
        let generation = self.run.as_ref().map(|run| run.generation);
        for key in self.hosts.keys() {
            let now = scene.clock.now;
            for owed in scene.host(*key).ledger.open() {
                let is_lost = owed.written.is_some() && owed.written != generation;
                assert!(
                    !is_lost,
                    "{}: {owed:?} outlived the child that has it",
                    self.name
                );
                if let (Some(since), None) = (self.unserved_since, owed.written) {
                    let waited = now.since(since.max(owed.arrived));
                    assert!(
                        waited <= patience,
                        "{}: {owed:?} has waited {waited:?} for a start",
                        self.name
                    );
                }
            }
        }
        self.is_unneeded =
            self.setting.is_absent() && state == State::Stopped && !self.supervisor.is_occupied();
    }
}

/// The hint of the supervisor in the words of the multiplexer, as the daemon says it.
fn service(name: &str, hint: ServiceHint) -> Service {
    let unavailable = |message: String| Unavailable {
        message: format!("server \"{name}\": {message}"),
        detail: Value::Null,
    };
    match hint {
        ServiceHint::Serving => Service::Serving,
        ServiceHint::Holding { ordered: true } => {
            Service::Holding(Hold::because(HoldCause::Restarting))
        }
        ServiceHint::Holding { ordered: false } | ServiceHint::OnDemand => {
            Service::Holding(Hold::because(HoldCause::Starting))
        }
        ServiceHint::Stopping => Service::Stopping,
        ServiceHint::Backoff {
            next_attempt_at,
            message,
        } => Service::Backoff {
            next_attempt: next_attempt_at,
            detail: unavailable(message),
        },
        ServiceHint::Unavailable { message } => Service::Unavailable(unavailable(message)),
    }
}

const fn cancel_code(reason: CancelReason) -> mcpd::protocol::ErrorCode {
    match reason {
        CancelReason::ServerStopping => mcpd::protocol::ErrorCode::SERVER_STOPPING,
        CancelReason::DaemonEnding => mcpd::protocol::ErrorCode::DAEMON_RESTARTED,
    }
}
