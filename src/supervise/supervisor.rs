//! The states of one instance and every way from one to another.
//!
//! Decides when to spawn, when to end, when to wait and when to give up. Orders and events come in
//! through [`Supervisor::handle`], one at a time, so that a stop during a start, a start during a
//! stop and a storm of restarts are a sequence like any other. Never spawns while anything of the
//! run before may live: `run` is present from the order to spawn to the proof.

mod orders;
mod progress;

use std::collections::VecDeque;
use std::time::Duration;

use super::backoff::Backoff;
use super::failure::SpawnFailure;
use super::run::{Run, render_seconds};
use super::state::{
    Action, Cause, EndedRun, Event, Mode, RunResult, ServiceHint, State, Substate, SupervisorStatus,
};
use super::teardown::{Purpose, Teardown};
use crate::config::spec::Policy;
use crate::ids::Generation;
use crate::time::{Moment, earliest};

/// How long a child may live on after it closed its stdout.
pub const EOF_GRACE: Duration = Duration::from_secs(1);
/// How long stdout may go on after the leader's end: somebody may still hold it.
pub const PIPE_GRACE: Duration = Duration::from_millis(250);
/// A demand starts a failed server at most once in this time.
pub const DEMAND_PAUSE: Duration = Duration::from_secs(60);
/// How often survivors of SIGKILL are looked at again.
pub const UNKILLABLE_LOOK: Duration = Duration::from_secs(5);

/// One an instance. Not to be shared: events go through one mailbox.
#[derive(Debug)]
pub struct Supervisor {
    policy: Policy,
    backoff: Backoff,
    phase: Phase,
    /// Present as long as a process of the generation may live.
    run: Option<Run>,
    generation: Generation,
    desired_up: bool,
    /// Where a stop leads: `Dead` or `Disabled`, or one of those that a demand leaves.
    rest: Substate,
    /// A turn to start was asked for and not given back.
    has_turn: bool,
    /// A person or an edit wants the next run at once when this one is gone.
    start_at_once: bool,
    /// The file is gone: nothing starts before a new configuration.
    removed: bool,
    /// The daemon ends: nothing ever starts again.
    closing: bool,
    last_failure: Option<SpawnFailure>,
    last_runs: VecDeque<EndedRun>,
    since: Moment,
    shown: Substate,
    hinted: Option<ServiceHint>,
    actions: VecDeque<Action>,
}

/// What is known of an instance whose worker broke.
#[derive(Clone, Copy, Debug)]
pub struct Broken {
    pub generation: Generation,
    /// Unstable runs in a row, without the one that broke.
    pub unstable_runs: u32,
    pub desired_up: bool,
    /// A demand brings it up.
    pub on_demand: bool,
}

#[derive(Debug)]
enum Phase {
    /// `stopped`, whichever.
    Idle(Substate),
    /// A turn to start was asked for. Nothing runs.
    Waiting,
    Spawning,
    Executing,
    Handshake,
    Ready,
    Stopping(Teardown),
    Backoff {
        until: Moment,
    },
    Failed {
        why: Substate,
        /// From when on a demand may try again; never if absent.
        retry_at: Option<Moment>,
        /// That moment has come.
        offered: bool,
    },
    Unkillable {
        teardown: Teardown,
        look_at: Moment,
    },
}

impl Supervisor {
    /// A supervisor of a server that nobody has asked for yet. `seed` decides the jitter.
    pub fn new(policy: Policy, seed: u64) -> Self {
        Self {
            policy,
            backoff: Backoff::new(seed),
            phase: Phase::Idle(Substate::NeverStarted),
            run: None,
            generation: Generation::default(),
            desired_up: false,
            rest: Substate::Dead,
            has_turn: false,
            start_at_once: false,
            removed: false,
            closing: false,
            last_failure: None,
            last_runs: VecDeque::new(),
            since: Moment::ZERO,
            shown: Substate::NeverStarted,
            hinted: None,
            actions: VecDeque::new(),
        }
    }

    /// A supervisor of a server whose last run ended because mcpd itself broke: that counts as an
    /// unstable run, so that one which breaks at each start is not started for ever.
    pub fn after_internal_error(policy: Policy, seed: u64, known: Broken, now: Moment) -> Self {
        let mut this = Self::new(policy, seed);
        this.generation = known.generation;
        this.desired_up = known.desired_up;
        this.backoff.count(known.unstable_runs);
        let result = RunResult::InternalError;
        this.last_runs.push_front(EndedRun {
            generation: known.generation,
            status: None,
            result,
            message: "mcpd itself failed this server".to_owned(),
            ended_at: now,
            uptime: Duration::ZERO,
            stable: false,
            ended_by: None,
        });
        if this.desired_up {
            this.follow_failure(false, result, now, Cause::Internal, now);
        } else {
            let rest = match known.on_demand {
                true => Substate::NeverStarted,
                false => Substate::Dead,
            };
            this.enter(Phase::Idle(rest), Cause::Internal, now);
        }
        this.announce();
        this
    }

    /// Takes in what happened.
    pub fn handle(&mut self, event: Event, now: Moment) {
        match event {
            Event::Start { cause } => self.start_ordered(cause, now),
            Event::Offer { cause } => self.offer(cause, now),
            Event::Idle => self.idle(now),
            Event::TurnCame => self.turn_came(now),
            Event::Stop { cause, mode } => self.stop(Purpose::Stop, cause, mode, now),
            Event::Restart { cause } => self.restart(Purpose::Restart, cause, now),
            Event::ResetFailed => self.reset_failed(now),
            Event::Reconfigured { restart, policy } => self.reconfigure(restart, *policy, now),
            Event::Remove => {
                self.removed = true;
                self.stop(Purpose::Stop, Cause::Removed, Mode::Polite, now);
            }
            Event::Shutdown { mode } => {
                self.closing = true;
                self.stop(Purpose::Shutdown, Cause::Shutdown, mode, now);
            }
            Event::Demand => self.demand(now),
            Event::Spawned { generation, pid } => self.if_living(generation, |this| {
                this.spawned(pid, now);
            }),
            Event::SpawnFailed {
                generation,
                failure,
            } => self.if_living(generation, |this| this.spawn_failed(failure, now)),
            Event::Executed { generation } => self.if_living(generation, |this| {
                this.executed(now);
            }),
            Event::Opened { generation } => self.if_living(generation, |this| this.opened(now)),
            Event::OpeningFailed { generation, detail } => self.if_living(generation, |this| {
                this.fail(RunResult::Protocol, detail, Cause::OpeningFailed, now);
            }),
            Event::Excused {
                generation,
                excused,
            } => self.if_living(generation, |this| this.excuse(excused)),
            Event::Hung {
                generation,
                silence,
            } => self.if_living(generation, |this| {
                let silence = render_seconds(silence);
                let message = format!("said nothing for {silence}, though it was asked (watchdog)");
                this.fail(RunResult::Watchdog, message, Cause::Watchdog, now);
            }),
            Event::Broken { generation, detail } => self.if_living(generation, |this| {
                this.fail(RunResult::InternalError, detail, Cause::Internal, now);
            }),
            Event::StdoutClosed { generation } => self.if_living(generation, |this| {
                this.stdout_closed(now);
            }),
            Event::StdinBroken { generation } => self.if_living(generation, |this| {
                this.stdin_broken(now);
            }),
            Event::OomKilled { generation } => self.if_living(generation, Self::oom_killed),
            Event::Exited { generation, status } => self.if_living(generation, |this| {
                this.exited(status, now);
            }),
            Event::Drained { generation } => self.if_living(generation, |this| {
                this.in_teardown(Cause::Drained, now, Teardown::handle_drained);
            }),
            Event::StopCommandEnded { generation } => self.if_living(generation, |this| {
                let cause = Cause::StopCommandEnded;
                this.in_teardown(cause, now, Teardown::handle_stop_command_ended);
            }),
            Event::Emptied { generation } => self.if_living(generation, |this| this.emptied(now)),
            Event::Holders { generation, pids } => self.if_living(generation, |this| {
                this.holders(pids, now);
            }),
        }
        self.announce();
    }

    /// The next moment at which [`Self::handle_timeout`] has something to do. Absent only when
    /// nothing runs and nothing is to come.
    pub fn poll_timeout(&self) -> Option<Moment> {
        let phase = match &self.phase {
            Phase::Idle(_) | Phase::Waiting => None,
            Phase::Spawning | Phase::Executing | Phase::Handshake => self.start_deadline(),
            Phase::Ready => None,
            Phase::Stopping(teardown) => Some(teardown.poll_timeout()),
            Phase::Backoff { until } => Some(*until),
            Phase::Failed {
                retry_at, offered, ..
            } => retry_at.filter(|_| !offered),
            Phase::Unkillable { look_at, .. } => Some(*look_at),
        };
        earliest(phase, self.pipe_deadline())
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Moment) {
        // Every round moves a deadline or leaves a phase; the bound is for a clock that jumped far.
        for _ in 0..16 {
            if self.poll_timeout().is_none_or(|due| now < due) {
                break;
            }
            self.one_timeout(now);
        }
        self.announce();
    }

    /// The next thing to do.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// The state alone: [`Self::status`] copies all that is known, which is too much for a question
    /// that is asked with every message.
    pub fn state(&self) -> State {
        self.shown.state()
    }

    /// The living generation, or the last.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Whether a process of this instance may live.
    pub fn is_occupied(&self) -> bool {
        self.run.is_some()
    }

    /// Everything for `status`.
    pub fn status(&self) -> SupervisorStatus {
        let run = self.run.as_ref();
        SupervisorStatus {
            state: self.shown.state(),
            substate: self.shown,
            desired_up: self.desired_up,
            result: self.result(),
            message: self.message(),
            hint: self.last_failure.as_ref().and_then(|it| it.hint.clone()),
            failure: self.last_failure.clone(),
            generation: self.generation,
            pid: run.and_then(|run| run.pid),
            since: self.since,
            spawned_at: run.and_then(|run| run.spawned_at),
            executed_at: run.and_then(|run| run.executed_at),
            ready_at: run.and_then(|run| run.ready_at),
            restarts: self.generation.0.saturating_sub(1),
            unstable_runs: self.backoff.unstable_runs(),
            next_attempt_at: match self.phase {
                Phase::Backoff { until } => Some(until),
                _ => None,
            },
            stop: match &self.phase {
                Phase::Stopping(teardown) | Phase::Unkillable { teardown, .. } => {
                    Some(teardown.status(progress::holders(teardown, run)))
                }
                _ => None,
            },
            last_runs: self.last_runs.iter().cloned().collect(),
        }
    }
}

#[cfg(test)]
mod sequence_tests;
#[cfg(test)]
mod transition_tests;
