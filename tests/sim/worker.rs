//! One instance: the core that ships, driven as the daemon's worker drives it.
//!
//! What `daemon::worker` does with tasks and descriptors is done here with events and pipes, in the
//! same order: events first, then what is due, then actions until the core is quiet. Beside each
//! step stands what must hold: one child at a time, none before the proof, each request to one child
//! only.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use mcpd::config::fingerprint::{Fingerprint, HashKey};
use mcpd::ids::{Generation, HostKey};
use mcpd::instance::{Action, Instance, Matter, RunEvent, Setting, Words, mux_config};
use mcpd::protocol::{Line, LineReader};
use mcpd::session::{Mux, read_memory, render_memory};
use mcpd::supervise::turns::TurnId;
use mcpd::supervise::{ExitStatus, ServiceHint, SpawnFailure, State, Substate, Supervisor};
use mcpd::time::Moment;
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
    /// The catalogue was looked at for this configuration.
    Recalled(Fingerprint),
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
    pub(crate) core: Instance,
    pub(crate) run: Option<Run>,
    pub(crate) turn: Option<Turn>,
    pub(crate) hosts: BTreeMap<HostKey, HostPort>,
    pub(crate) inbox: VecDeque<Inbound>,
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
        let mux = Mux::new(mux_config(name, &policy), scene.pool.clone());
        let supervisor = Supervisor::new(policy, scene.clock.random.next());
        let configuration = configuration_of(&setting);
        Self {
            name: name.to_owned(),
            place,
            core: Instance::new(name, setting, configuration, (mux, supervisor)),
            run: None,
            turn: None,
            hosts: BTreeMap::new(),
            inbox: VecDeque::new(),
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
        if let Some(configuration) = self.core.configuration() {
            self.recall(configuration, scene);
        }
        self.core.begin(scene.clock.now);
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
        self.core.handle_timeout(now);
        self.turn(scene);
    }

    /// The end of a turn: actions, then the wait for whatever is next.
    fn turn(&mut self, scene: &mut Scene) {
        self.settle(scene);
        self.check(scene);
        if self.core.is_finished() {
            self.farewell = Some(scene.clock.now + LAST_WORDS);
            return self.say_farewell(scene);
        }
        if !self.inbox.is_empty() {
            self.wake_at(scene.clock.now, scene);
        }
        if let Some(deadline) = self.core.poll_timeout() {
            let late = scene.lateness();
            self.wake_at(deadline + late, scene);
        }
    }

    fn handle(&mut self, event: Inbound, scene: &mut Scene) {
        let now = scene.clock.now;
        if matches!(event, Inbound::Command(_)) {
            // What was decided under the configuration so far is done by it.
            self.settle(scene);
        }
        for key in self.hosts.keys() {
            scene.host(*key).ledger.unsettle();
        }
        match event {
            Inbound::Command(command) => self.handle_command(command, scene),
            Inbound::Arrived(host) => self.arrived(host),
            Inbound::HostLines(host, lines) => {
                self.is_asked = true;
                for line in lines {
                    scene.hand_over(host, &line, self.core.mux.has_host(host));
                    self.core.mux.handle_host_line(host, line, now);
                }
            }
            Inbound::HostEnded(host) => self.core.mux.handle_host_end(host, now),
            Inbound::HostGone(host) => self.drop_host(host, scene),
            Inbound::HostWritable(host) => {
                if let Some(port) = self.hosts.get_mut(&host) {
                    port.port.is_waiting = false;
                    self.flush_host(host, scene);
                }
            }
            Inbound::TurnCame(id) => self.core.handle_turn_came(id, now),
            Inbound::Recalled(configuration) => self.recall(configuration, scene),
            Inbound::Child(generation, event) => self.handle_child(generation, event, scene),
        }
    }

    /// Performs what the core asks for until it is quiet.
    pub(crate) fn settle(&mut self, scene: &mut Scene) {
        let now = scene.clock.now;
        while let Some(action) = self.core.poll_action(now) {
            self.perform(action, scene);
        }
        for (key, host) in &self.hosts {
            if host.port.current.is_none() {
                scene.host(*key).ledger.settle();
            }
        }
    }

    fn perform(&mut self, action: Action, scene: &mut Scene) {
        let now = scene.clock.now;
        if !matches!(action, Action::Log(_)) {
            scene.clock.tell(&self.name, || format!("{action:?}"));
        }
        match action {
            Action::Explain(matter) => self.explain(matter, now),
            Action::AskTurn {
                is_awaited,
                is_cold,
            } => self.ask_turn(is_awaited, is_cold, scene),
            Action::HurryTurn => self.hurry_turn(scene),
            Action::EndTurn => self.end_turn(scene),
            Action::Spawn { generation } => self.spawn(generation, scene),
            Action::CancelSpawn => self.cancel_spawn(scene),
            Action::CloseStdin => self.close_stdin(scene),
            Action::RunStopCommand { limit } => self.run_stop_command(limit, scene),
            Action::Signal(signal) => self.signal(signal, scene),
            Action::Verify => self.verify(scene),
            Action::Reap => self.reap(),
            Action::ClosePipes => self.close_pipes(),
            Action::HostReady(host) => self.flush_host(host, scene),
            Action::CloseHost(host) => {
                if let Some(port) = self.hosts.get_mut(&host) {
                    port.is_closing = true;
                    self.flush_host(host, scene);
                }
            }
            Action::DropHost(host, reason) => {
                let who = scene.host(host);
                assert!(
                    !who.ledger.is_calm,
                    "{} host {host} is cut off: {reason:?}",
                    self.name
                );
                self.let_go(host, scene);
            }
            Action::EvictHost(host) => scene.clock.after(Duration::ZERO, Tick::Evict(host)),
            Action::ChildReady => self.flush_child(scene),
            Action::Recall(configuration) => {
                let delay = scene.clock.random.ms(0, 50);
                let tick = Tick::Recalled(self.place, configuration);
                scene.clock.after(delay, tick);
            }
            Action::Keep(configuration) => {
                let text = render_memory(&configuration.to_string(), self.core.mux.memory());
                scene.catalog.insert(self.name.clone(), text);
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
            Action::Opened(_) | Action::Learnt(_) | Action::CallEnded(_) => {}
            Action::Log(text) => scene.clock.tell(&self.name, || format!("log: {text}")),
        }
    }

    /// Says it as it was put, as one who knows no secrets.
    fn explain(&mut self, matter: Matter, now: Moment) {
        let sentence = match &matter {
            Matter::Service(
                ServiceHint::Backoff { message, .. } | ServiceHint::Unavailable { message },
            )
            | Matter::ChildGone(message)
            | Matter::OpeningFailed(message) => message.clone(),
            Matter::Service(_) | Matter::Waits => String::new(),
        };
        if matches!(matter, Matter::ChildGone(_)) {
            self.given.is_open = false;
            self.unserved_since.get_or_insert(now);
        }
        let detail = Value::Null;
        self.core.explain(matter, Words { sentence, detail }, now);
    }

    /// What the catalogue has of a configuration.
    fn recall(&mut self, configuration: Fingerprint, scene: &Scene) {
        let text = scene.catalog.get(&self.name);
        let name = configuration.to_string();
        let memory = text.and_then(|text| read_memory(text, &name, &self.name));
        if let Some(memory) = memory {
            self.core.recall(configuration, memory);
        }
    }

    pub(crate) fn tell(&mut self, generation: Generation, event: RunEvent, now: Moment) {
        self.core.handle_run(generation, event, now);
    }

    /// What must hold where the state changes.
    fn changed(&mut self, from: Substate, to: Substate, scene: &Scene) {
        if to.state() == State::Stopping {
            self.unserved_since.get_or_insert(scene.clock.now);
        }
        let name = &self.name;
        let living: usize = self.processes.iter().map(Process::living).sum();
        if to.state() == State::Stopped {
            assert_eq!(living, 0, "{name} is {} and lives", to.as_str());
        }
        if to == Substate::WaitingForTurn && from.state() == State::Stopping {
            let is_asked = self.is_asked || self.core.mux.has_waiting();
            assert!(is_asked, "{name} starts again without a pause");
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
            self.core.mux.handle_host_gone(key, scene.clock.now);
        }
        self.is_finished = true;
        scene.clock.tell(&self.name, || "worker ends".to_owned());
    }

    /// What holds after each turn.
    fn check(&mut self, scene: &mut Scene) {
        let state = self.core.supervisor().state();
        let waits = matches!(state, State::Starting | State::Stopping | State::Backoff);
        if waits {
            assert!(
                self.turn.is_some() || self.core.supervisor().poll_timeout().is_some(),
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
        self.is_unneeded = self.core.setting().is_absent()
            && state == State::Stopped
            && !self.core.supervisor().is_occupied();
    }
}

/// What tells the configuration of the process from others.
pub(crate) fn configuration_of(setting: &Setting) -> Option<Fingerprint> {
    let spec = setting.spec.as_ref()?;
    Some(spec.launch_fingerprint(&HashKey([7; 32])))
}
