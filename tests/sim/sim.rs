//! One run: a daemon with its servers and hosts, from its first moment to its last.
//!
//! First everything goes wrong that the seed says; then faults end and all that is owed must come;
//! then all falls silent and nothing may be held; then the daemon ends and nothing may be left.
//! Some daemons are told to end in the middle of it all.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use mcpd::ids::HostKey;
use mcpd::instance::{Order, Setting};
use mcpd::protocol::LineReader;
use mcpd::supervise::State;
use mcpd::supervise::turns::{TurnId, Turns};
use mcpd::time::Moment;

use crate::clock::{Tick, Trace};
use crate::host::{Host, Presence};
use crate::orders::Command;
use crate::process::Process;
use crate::registry::{self, Registry, SETTLED};
use crate::scene::{Scene, place_of};
use crate::worker::{Inbound, Worker};

/// No run has more events than this, but for one that turns in circles.
const EVENTS: usize = 2_000_000;
/// Nor so many in one moment.
const EVENTS_AT_ONCE: usize = 20_000;

/// What came of a run.
#[derive(Debug, Default)]
pub(crate) struct Account {
    pub(crate) events: usize,
    /// Answers by code; 0 for results.
    pub(crate) answers: BTreeMap<i64, u64>,
    pub(crate) virtual_time: Duration,
    pub(crate) spawns: u64,
}

#[derive(Debug)]
pub(crate) struct Sim {
    pub(crate) scene: Scene,
    pub(crate) workers: Vec<Worker>,
    pub(crate) registry: Registry,
    pub(crate) turns: Turns,
    /// Workers whose turn has not come.
    pub(crate) waiting_starts: BTreeMap<TurnId, usize>,
    pub(crate) is_quiet: bool,
    pub(crate) last_save: Moment,
    is_over_since: Option<Moment>,
}

impl Sim {
    pub(crate) fn new(seed: u64, trace: Option<Trace>) -> Self {
        let scene = Scene::new(seed, trace);
        let registry = Registry::new(&scene);
        Self {
            scene,
            workers: Vec::new(),
            registry,
            turns: Turns::default(),
            waiting_starts: BTreeMap::new(),
            is_quiet: false,
            last_save: Moment::ZERO,
            is_over_since: None,
        }
    }

    /// Plays it to the end.
    pub(crate) fn play(mut self) -> Account {
        self.set_up();
        let mut events = 0;
        let (mut at, mut at_once) = (Moment::ZERO, 0);
        while let Some(tick) = self.scene.clock.advance() {
            events += 1;
            let now = self.scene.clock.now;
            at_once = if now == at { at_once + 1 } else { 0 };
            at = now;
            assert!(events < EVENTS, "the run turns in circles");
            assert!(at_once < EVENTS_AT_ONCE, "time stands still");
            self.happen(tick);
            self.check_pool();
        }
        self.assert_over();
        Account {
            events,
            answers: self.scene.answers(),
            virtual_time: self.scene.clock.now.since_origin(),
            spawns: self
                .workers
                .iter()
                .map(|worker| worker.core.supervisor().generation().0)
                .sum(),
        }
    }

    fn set_up(&mut self) {
        if self.scene.temper.has_calm {
            let text = "command = \"x\"\nmessage_limit = \"32KiB\"\n";
            self.registry.files.insert("calm", text.to_owned());
        }
        for name in ["alpha", "beta"] {
            let text = registry::draw_file(&mut self.scene.clock.random);
            self.registry.files.insert(name, text);
        }
        self.reload();
        for _ in 0..=self.scene.clock.random.below(6) {
            self.attach();
        }
        let length = Duration::from_secs(*self.scene.clock.random.pick(&[5, 60, 400]));
        for _ in 0..self.scene.clock.random.below(self.scene.temper.deeds + 1) {
            let delay = self.scene.clock.random.ms(0, 1 + length.as_secs() * 1_000);
            self.scene.clock.after(delay, Tick::Operator);
        }
        let clock = &mut self.scene.clock;
        if self.scene.temper.ends_early {
            let delay = clock.random.ms(0, 1 + length.as_secs() * 1_000);
            clock.after(delay, Tick::Terminate);
            if clock.random.chance(50) {
                let again = delay + clock.random.ms(0, 15_000);
                clock.after(again, Tick::Terminate);
            }
        }
        clock.after(length, Tick::Heal);
    }

    /// A host comes in, to a server or to a name that is none.
    fn attach(&mut self) {
        let random = &mut self.scene.clock.random;
        let mut name = random.weighted(&[(8, "alpha"), (8, "beta"), (5, "calm"), (1, "nobody")]);
        if name == "calm" && !self.scene.temper.has_calm {
            name = "alpha";
        }
        if !self.registry.slots.contains_key(name) {
            self.add_slot(name, Setting::unknown(PathBuf::new()));
        }
        let Some(slot) = self.registry.slots.get_mut(name) else {
            return;
        };
        slot.attachments += 1;
        let worker = slot.worker;
        let place = self.scene.hosts.len();
        let key = HostKey(place as u64 + 1);
        let (is_calm, pipe_bytes) = (name == "calm", self.scene.pipe_bytes());
        let host = Host::new(
            place,
            key,
            worker,
            is_calm,
            pipe_bytes,
            &mut self.scene.clock,
        );
        self.scene.hosts.push(host);
        let limit = self.workers[worker].limit();
        self.scene.host(key).reader = Some(LineReader::new(limit));
        self.workers[worker].post(Inbound::Arrived(key), &mut self.scene);
        let delay = self.scene.clock.random.ms(0, 3_000);
        self.scene.clock.after(delay, Tick::HostActs(place));
    }

    pub(crate) fn add_worker(&mut self, name: &str, setting: Setting) -> usize {
        let place = self.workers.len();
        let is_calm = name == "calm";
        let mut worker = Worker::new(name, place, setting, is_calm, &mut self.scene);
        worker.start(&mut self.scene);
        self.workers.push(worker);
        place
    }

    fn happen(&mut self, tick: Tick) {
        let scene = &mut self.scene;
        match tick {
            Tick::Wake(worker) => {
                self.workers[worker].wake(scene);
                self.after_turn(worker);
            }
            Tick::Launched(worker, generation) => self.workers[worker].launched(generation, scene),
            Tick::Executed(worker, generation) => self.workers[worker].executed(generation, scene),
            Tick::ChildReads(worker, generation) => {
                self.workers[worker].child_reads(generation, scene);
            }
            Tick::ChildDoes(worker, generation, deed) => {
                if let Some(process) = self.workers[worker].process(generation) {
                    process.act(deed, &mut scene.clock);
                    self.workers[worker].wake_writer(generation, scene);
                }
            }
            Tick::ExitSeen(worker, generation, status) => {
                let event = crate::worker::ChildEvent::Exited(status);
                self.workers[worker].post(Inbound::Child(generation, event), scene);
            }
            Tick::StdoutRead(worker, generation) => {
                self.workers[worker].read_stdout(generation, scene);
            }
            Tick::Looked(worker, generation) => self.workers[worker].looked(generation, scene),
            Tick::StopCommandEnded(worker, generation) => {
                let event = crate::worker::ChildEvent::StopCommandEnded;
                self.workers[worker].post(Inbound::Child(generation, event), scene);
            }
            Tick::HostActs(host) => self.host_acts(host),
            Tick::HostReads(place) => {
                scene.hosts[place].read(&mut scene.clock);
                let (key, worker) = (scene.hosts[place].key, scene.hosts[place].worker);
                self.workers[worker].wake_host_writer(key, scene);
            }
            Tick::HostRead(place) => {
                let (key, worker) = (scene.hosts[place].key, scene.hosts[place].worker);
                self.workers[worker].read_host(key, scene);
            }
            Tick::Recalled(worker, configuration) => {
                self.workers[worker].post(Inbound::Recalled(configuration), scene);
            }
            Tick::AskTurn(worker, id) => self.workers[worker].turn_asked(id, scene),
            Tick::Turns => self.order_starts(),
            Tick::Operator => self.operate(),
            Tick::Save(save) => self.go_on_saving(save),
            Tick::Lookout => self.lookout(),
            Tick::Evict(host) => {
                let workers: Vec<usize> =
                    self.registry.slots.values().map(|it| it.worker).collect();
                for worker in workers {
                    self.order(worker, Command::Order(Order::Evict(host)));
                }
            }
            Tick::Heal => self.heal(),
            Tick::Quiet => self.fall_silent(),
            Tick::Terminate => self.terminate(),
        }
    }

    /// Whoever holds most goes as soon as too much is held.
    fn check_pool(&mut self) {
        let (now, pool) = (self.scene.clock.now, &self.scene.pool);
        if pool.used_bytes() <= pool.limit_bytes() {
            self.is_over_since = None;
            return;
        }
        let since = *self.is_over_since.get_or_insert(now);
        let patience = Duration::from_millis(100) + self.scene.longest_lateness();
        assert!(
            now.since(since) <= patience,
            "the pool stays over its limit"
        );
    }

    fn host_acts(&mut self, place: usize) {
        let scene = &mut self.scene;
        let host = &mut scene.hosts[place];
        host.act(&scene.temper, &mut scene.last_tag, &mut scene.clock);
        let (key, worker, presence) = (host.key, host.worker, host.presence);
        self.workers[worker].wake_host_writer(key, scene);
        let is_worth_another = presence == Presence::Gone && scene.hosts.len() < 12;
        if is_worth_another && scene.clock.random.chance(30) && self.registry.ending.is_none() {
            self.attach();
        }
    }

    /// What follows from a worker's turn for the registry.
    fn after_turn(&mut self, worker: usize) {
        let let_go = std::mem::take(&mut self.scene.let_go);
        for key in &let_go {
            let name = &self.workers[self.scene.hosts[place_of(*key)].worker].name;
            if let Some(slot) = self.registry.slots.get_mut(name)
                && slot.worker == self.scene.hosts[place_of(*key)].worker
            {
                slot.attachments -= 1;
            }
        }
        let is_unneeded = self.workers[worker].is_unneeded && self.registry.ending.is_none();
        if is_unneeded || !let_go.is_empty() {
            self.forget_unneeded();
        }
    }

    /// Faults end.
    fn heal(&mut self) {
        self.scene.clock.tell("world", || "faults end".to_owned());
        self.scene.is_healed = true;
        self.scene.temper.lies = 0;
        self.scene.temper.rude_hosts = 0;
        self.scene.temper.lazy_hosts = 0;
        let clock = &mut self.scene.clock;
        for worker in &mut self.workers {
            for process in &mut worker.processes {
                process.heal(clock);
            }
        }
        for host in &mut self.scene.hosts {
            host.heal(clock);
        }
        // The longest wait that anybody can have from here on, several times over.
        clock.after(Duration::from_secs(1_200), Tick::Quiet);
    }

    /// Everything that was owed has come. From here on nobody wants anything.
    fn fall_silent(&mut self) {
        self.scene.clock.tell("world", || "all is quiet".to_owned());
        if self.registry.ending.is_none() {
            self.assert_served();
        }
        self.is_quiet = true;
        for host in &mut self.scene.hosts {
            host.fall_silent();
            host.leave(&mut self.scene.clock);
        }
        self.scene
            .clock
            .after(Duration::from_secs(120), Tick::Terminate);
    }

    fn assert_served(&self) {
        for host in &self.scene.hosts {
            let is_attached = self.workers[host.worker].core.mux.has_host(host.key);
            if is_attached {
                host.ledger.assert_settled("after all faults");
            }
        }
        for worker in self.workers.iter().filter(|worker| !worker.is_finished) {
            let state = worker.core.supervisor().state();
            let is_moving = matches!(state, State::Starting | State::Stopping | State::Backoff);
            assert!(!is_moving, "{} is still {}", worker.name, state.as_str());
            worker.processes.iter().for_each(Process::assert_quiet);
            let snapshot = worker.core.mux.snapshot(self.scene.clock.now);
            let held = (snapshot.open, snapshot.waiting);
            assert_eq!(held, (0, 0), "{} holds requests", worker.name);
        }
        let now = self.scene.clock.now;
        if now.since(self.last_save) > SETTLED {
            self.registry.assert_settled();
        }
        let held = self.scene.pool.used_bytes();
        assert_eq!(held, 0, "bytes are held where all has arrived");
    }

    /// The last moment: nothing is left.
    fn assert_over(&self) {
        for worker in &self.workers {
            let name = &worker.name;
            assert!(worker.is_finished, "{name} never ends");
            let state = worker.core.supervisor().state();
            let living: usize = worker.processes.iter().map(Process::living).sum();
            assert!(
                living == 0 || state == State::Failed,
                "{name}: {living} processes outlive the daemon"
            );
            let snapshot = worker.core.mux.snapshot(self.scene.clock.now);
            let held = (snapshot.open, snapshot.waiting, snapshot.subscriptions);
            assert_eq!(held, (0, 0, 0), "{name} holds something at the end");
            assert!(!worker.core.mux.is_busy(), "{name} is busy at the end");
        }
        let held = self.scene.pool.used_bytes();
        assert_eq!(held, 0, "bytes are held at the end");
    }
}
