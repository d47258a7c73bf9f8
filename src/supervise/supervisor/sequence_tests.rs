//! Any order of orders, events and time: what must hold after each step.
//!
//! A model of the machine stands in for the shell. It knows which process lives, answers what it is
//! asked (late, if the sequence wants that) and watches every action.

use std::collections::VecDeque;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::supervise::backoff::PROMPT_JITTER;
use crate::supervise::failure::Stage;
use crate::supervise::state::{ExitStatus, State, StopSignal};
use crate::supervise::teardown::{Limits, SPAWN_ANSWER_TIMEOUT};

/// As many sequences as CI has to see.
const SEQUENCES: u32 = 10_000;

#[derive(Clone, Debug)]
enum Step {
    Order(Order),
    Child(Deed),
    /// The shell answers the oldest thing it owes.
    Answer,
    /// An event of a generation that is long gone, or not there yet.
    Stale(Deed),
    Wait(u32),
}

#[derive(Clone, Copy, Debug)]
enum Order {
    Start,
    Demand,
    Stop,
    StopNow,
    Restart,
    ResetFailed,
    Edit { restart: bool, quick: bool },
    Remove,
    Shutdown,
    Offer,
    Idle,
}

#[derive(Clone, Copy, Debug)]
enum Deed {
    Execute,
    FailToExecute(i32),
    Open,
    RefuseToOpen,
    CloseStdin,
    CloseStdout,
    Exit(i32),
    LeaveBehind,
    Break,
}

/// Bits of what a child puts up with.
#[derive(Clone, Copy, Debug)]
struct Manners(u8);

impl Manners {
    fn ends_with_stdin(self) -> bool {
        self.0 & 1 == 0
    }
    fn ends_on_term(self) -> bool {
        self.0 & 2 == 0
    }
    fn ends_on_kill(self) -> bool {
        self.0 & 12 != 12
    }
}

#[derive(Debug)]
struct Process {
    generation: Generation,
    leader: bool,
    others: u32,
    executed: bool,
}

#[derive(Debug)]
struct Model {
    supervisor: Supervisor,
    now: Moment,
    manners: Manners,
    /// From the order to spawn until `Reap`, or a refusal.
    occupied: Option<Generation>,
    process: Option<Process>,
    owed: VecDeque<Event>,
    /// When a stop must be over that nothing has contradicted since.
    stop_by: Option<Moment>,
    closed: bool,
    /// A turn was asked for and not given back.
    has_turn: bool,
}

fn order() -> impl Strategy<Value = Order> {
    prop_oneof![
        4 => Just(Order::Start),
        3 => Just(Order::Demand),
        3 => Just(Order::Stop),
        1 => Just(Order::StopNow),
        3 => Just(Order::Restart),
        1 => Just(Order::ResetFailed),
        2 => (any::<bool>(), any::<bool>())
            .prop_map(|(restart, quick)| Order::Edit { restart, quick }),
        1 => Just(Order::Remove),
        1 => Just(Order::Offer),
        2 => Just(Order::Idle),
    ]
}

fn deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        4 => Just(Deed::Execute),
        1 => prop_oneof![Just(2), Just(11)].prop_map(Deed::FailToExecute),
        4 => Just(Deed::Open),
        1 => Just(Deed::RefuseToOpen),
        1 => Just(Deed::CloseStdin),
        1 => Just(Deed::CloseStdout),
        2 => (0..2).prop_map(Deed::Exit),
        1 => Just(Deed::LeaveBehind),
        1 => Just(Deed::Break),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => order().prop_map(Step::Order),
        5 => deed().prop_map(Step::Child),
        5 => Just(Step::Answer),
        1 => deed().prop_map(Step::Stale),
        4 => prop_oneof![0_u32..50, 0_u32..3_000, 0_u32..120_000].prop_map(Step::Wait),
    ]
}

fn policy(quick: bool) -> Policy {
    Policy {
        stop_command: quick.then(|| vec!["x".into()]),
        start_limit: if quick { 3 } else { 10 },
        stable_after: Duration::from_secs(if quick { 1 } else { 60 }),
        ..Policy::default()
    }
}

impl Model {
    fn new(seed: u64, manners: u8) -> Self {
        Self {
            supervisor: Supervisor::new(policy(false), seed),
            now: Moment::ZERO,
            manners: Manners(manners),
            occupied: None,
            process: None,
            owed: VecDeque::new(),
            stop_by: None,
            closed: false,
            has_turn: false,
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Order(order) => self.order(*order),
            Step::Child(deed) => self.deed(*deed),
            Step::Answer => {
                if let Some(event) = self.owed.pop_front() {
                    self.tell(event);
                }
            }
            Step::Stale(deed) => self.stale(*deed),
            Step::Wait(ms) => self.wait(Duration::from_millis(u64::from(*ms))),
        }
    }

    fn order(&mut self, order: Order) {
        let cause = Cause::Command;
        let (event, keeps_stop) = match order {
            Order::Start => (Event::Start { cause }, false),
            Order::Restart => (Event::Restart { cause }, false),
            Order::Demand => (Event::Demand, true),
            Order::ResetFailed => (Event::ResetFailed, true),
            Order::Offer => (Event::Offer { cause }, false),
            Order::Idle => (Event::Idle, false),
            Order::Edit { restart, quick } => {
                let policy = Box::new(policy(quick));
                (Event::Reconfigured { restart, policy }, true)
            }
            Order::Stop => {
                return self.stop(Event::Stop {
                    cause,
                    mode: Mode::Polite,
                });
            }
            Order::StopNow => {
                return self.stop(Event::Stop {
                    cause,
                    mode: Mode::Kill,
                });
            }
            Order::Remove => return self.stop(Event::Remove),
            Order::Shutdown => {
                self.closed = true;
                return self.stop(Event::Shutdown { mode: Mode::Polite });
            }
        };
        if !keeps_stop {
            self.stop_by = None;
        }
        self.tell(event);
    }

    fn stop(&mut self, event: Event) {
        let limits = Limits::of(&self.supervisor.policy, Purpose::Stop);
        // A policy that changed since the teardown began may have had one step more.
        let longest = Limits {
            has_stop_command: true,
            ..limits
        };
        let by = self.now + SPAWN_ANSWER_TIMEOUT + longest.sum() + PIPE_GRACE;
        self.stop_by.get_or_insert(by);
        self.tell(event);
    }

    /// What the child does, if there is one that can.
    fn deed(&mut self, deed: Deed) {
        let Some(process) = &mut self.process else {
            return;
        };
        let generation = process.generation;
        if !process.leader || (!process.executed && !matches!(deed, Deed::Execute)) {
            if let (Deed::FailToExecute(errno), true) = (deed, process.leader) {
                process.leader = false;
                self.owed
                    .push_back(deed_event(Deed::FailToExecute(errno), generation));
                self.owe_end(generation, ExitStatus::Code(127));
            }
            return;
        }
        match deed {
            Deed::Execute => process.executed = true,
            Deed::LeaveBehind => {
                process.others += 1;
                return;
            }
            Deed::FailToExecute(_) => return,
            Deed::Exit(code) => return self.end_leader(ExitStatus::Code(code)),
            Deed::Open
            | Deed::RefuseToOpen
            | Deed::CloseStdin
            | Deed::CloseStdout
            | Deed::Break => {}
        }
        self.owed.push_back(deed_event(deed, generation));
    }

    fn end_leader(&mut self, status: ExitStatus) {
        if let Some(process) = self.process.as_mut().filter(|it| it.leader) {
            process.leader = false;
            let generation = process.generation;
            self.owe_end(generation, status);
        }
    }

    fn owe_end(&mut self, generation: Generation, status: ExitStatus) {
        self.owed.push_back(Event::Exited { generation, status });
        self.owed.push_back(Event::StdoutClosed { generation });
    }

    fn stale(&mut self, deed: Deed) {
        let living = self.supervisor.generation();
        for generation in [Generation(living.0.wrapping_sub(1)), living.next()] {
            let before = format!("{:?}", self.supervisor);
            let event = deed_event(deed, generation);
            self.supervisor.handle(event, self.now);
            self.supervisor
                .handle(Event::Emptied { generation }, self.now);
            assert_eq!(format!("{:?}", self.supervisor), before, "stale");
        }
    }

    fn tell(&mut self, event: Event) {
        self.supervisor.handle(event, self.now);
        self.perform();
        self.check();
    }

    /// The shell answers at once before time passes: it is the clock that is under test here.
    fn wait(&mut self, duration: Duration) {
        let end = self.now + duration;
        loop {
            while let Some(event) = self.owed.pop_front() {
                self.tell(event);
            }
            let Some(due) = self.supervisor.poll_timeout().filter(|due| *due <= end) else {
                break;
            };
            self.now = self.now.max(due);
            self.supervisor.handle_timeout(self.now);
            let next = self.supervisor.poll_timeout();
            assert!(next.is_none_or(|next| next > self.now), "time stands still");
            self.perform();
            self.check();
        }
        self.now = end;
        self.check();
    }

    fn perform(&mut self) {
        while let Some(action) = self.supervisor.poll_action() {
            self.act(action);
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::AskTurn { .. } => {
                assert!(!self.has_turn, "two turns");
                self.has_turn = true;
                self.owed.push_back(Event::TurnCame);
            }
            Action::EndTurn => {
                assert!(self.has_turn, "a turn given back twice");
                self.has_turn = false;
                // The shell knows which turn an answer is for.
                self.owed.retain(|event| *event != Event::TurnCame);
            }
            Action::Spawn { generation } => self.spawn(generation),
            Action::CloseStdin if self.manners.ends_with_stdin() => {
                self.end_leader(ExitStatus::Code(0));
            }
            Action::Signal(signal) => self.signal(signal),
            Action::Verify => self.verify(),
            Action::Reap => {
                let process = self.process.take().expect("a process to reap");
                assert!(!process.leader && process.others == 0, "reaped too early");
                self.occupied = None;
            }
            Action::Drain => self.owed.push_back(Event::Drained {
                generation: self.supervisor.generation(),
            }),
            Action::RunStopCommand { .. } => self.owed.push_back(Event::StopCommandEnded {
                generation: self.supervisor.generation(),
            }),
            Action::Changed { from, to, .. } => {
                assert_ne!(from, to);
                if to == Substate::AutoRestart {
                    self.check_delay();
                }
            }
            Action::HurryTurn
            | Action::CloseStdin
            | Action::CancelSpawn
            | Action::CancelOpen { .. }
            | Action::ChildGone { .. }
            | Action::ClosePipes
            | Action::SetService(_)
            | Action::Ended(_) => {}
        }
    }

    fn spawn(&mut self, generation: Generation) {
        assert_eq!(self.occupied, None, "two children");
        assert!(!self.closed, "a spawn after the end");
        assert!(self.supervisor.desired_up, "a spawn that nobody wants");
        self.occupied = Some(generation);
        if self.manners.0 & 48 == 48 {
            self.occupied = None;
            let failure = SpawnFailure::new(Stage::Spawn, Some(11), "no");
            self.owed.push_back(Event::SpawnFailed {
                generation,
                failure,
            });
            return;
        }
        self.process = Some(Process {
            generation,
            leader: true,
            others: u32::from(self.manners.0 >> 6),
            executed: false,
        });
        self.owed.push_back(Event::Spawned { generation, pid: 7 });
    }

    fn signal(&mut self, signal: StopSignal) {
        let (number, obeyed) = match signal {
            StopSignal::Term => (15, self.manners.ends_on_term()),
            StopSignal::Kill | StopSignal::Sweep => (9, self.manners.ends_on_kill()),
        };
        if obeyed {
            self.end_leader(ExitStatus::Signal {
                number,
                core_dumped: false,
            });
            if signal != StopSignal::Term
                && let Some(process) = &mut self.process
            {
                process.others = 0;
            }
        }
    }

    fn verify(&mut self) {
        let Some(process) = &self.process else {
            panic!("nothing to verify");
        };
        let generation = process.generation;
        let living = process.others + u32::from(process.leader);
        self.owed.push_back(match living {
            0 => Event::Emptied { generation },
            living => Event::Holders {
                generation,
                pids: (1..=living).collect(),
            },
        });
    }

    fn check_delay(&self) {
        let status = self.supervisor.status();
        let next = status.next_attempt_at.expect("a back-off has an end");
        let wait = next.since(self.now);
        match status.last_runs.first() {
            Some(run) if run.stable => assert!(wait <= PROMPT_JITTER),
            _ => {
                assert!(wait >= Duration::from_millis(800), "{wait:?}");
                assert!(wait <= Duration::from_secs(72), "{wait:?}");
            }
        }
    }

    fn check(&self) {
        let status = self.supervisor.status();
        assert_eq!(status.state, status.substate.state());
        if self.occupied.is_some() {
            assert!(self.supervisor.is_occupied(), "forgotten");
        }
        let waits = match status.state {
            State::Starting => status.substate != Substate::WaitingForTurn,
            State::Stopping | State::Backoff => true,
            State::Running => status.substate != Substate::Ready,
            State::Failed => {
                status.substate != Substate::ConfigFailed
                    && self.supervisor.hinted != Some(ServiceHint::OnDemand)
            }
            State::Stopped => false,
        };
        match status.state {
            State::Starting => assert!(self.has_turn, "a start without its turn"),
            State::Stopping => {}
            _ => assert!(!self.has_turn, "a turn kept"),
        }
        if waits {
            assert!(self.supervisor.poll_timeout().is_some(), "no deadline");
        }
        if self.stop_by.is_some_and(|by| self.now > by) {
            let over =
                matches!(status.state, State::Stopped) || status.substate == Substate::Unkillable;
            assert!(over, "still {:?}", status.substate);
        }
    }
}

fn deed_event(deed: Deed, generation: Generation) -> Event {
    match deed {
        Deed::Execute => Event::Executed { generation },
        Deed::FailToExecute(errno) => Event::SpawnFailed {
            generation,
            failure: SpawnFailure::new(Stage::Exec, Some(errno), "no"),
        },
        Deed::Open => Event::Opened { generation },
        Deed::RefuseToOpen => Event::OpeningFailed {
            generation,
            detail: "no".to_owned(),
        },
        Deed::CloseStdin => Event::StdinBroken { generation },
        Deed::CloseStdout => Event::StdoutClosed { generation },
        Deed::Exit(code) => Event::Exited {
            generation,
            status: ExitStatus::Code(code),
        },
        Deed::LeaveBehind => Event::Holders {
            generation,
            pids: vec![9],
        },
        Deed::Break => Event::Broken {
            generation,
            detail: "no".to_owned(),
        },
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: SEQUENCES,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn whatever_happens_there_is_one_child_and_an_end(
        seed in any::<u64>(),
        manners in any::<u8>(),
        steps in prop::collection::vec(step(), 1..50),
    ) {
        let mut model = Model::new(seed, manners);
        model.order(Order::Start);
        for step in &steps {
            model.step(step);
        }
        model.order(Order::Shutdown);
        model.wait(Duration::from_secs(60));
        if model.manners.ends_on_kill() {
            prop_assert_eq!(model.supervisor.status().state, State::Stopped);
            prop_assert!(!model.supervisor.is_occupied());
            prop_assert_eq!(model.supervisor.poll_timeout(), None);
        }
    }
}
