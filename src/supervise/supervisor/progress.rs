//! What the child, the shell and the clock report of one instance.
//!
//! Decides how a run goes on, how it ends and what follows its end. The caller has checked that
//! the generation is the living one.

use super::{DEMAND_PAUSE, EOF_GRACE, PIPE_GRACE, Phase, Supervisor, UNKILLABLE_LOOK};
use crate::config::spec::Restart;
use crate::ids::Generation;
use crate::supervise::backoff::Verdict;
use crate::supervise::failure::{FailureKind, SpawnFailure};
use crate::supervise::run::{Run, render_seconds};
use crate::supervise::state::{
    Action, Cause, ExitStatus, KEPT_RUNS, RunResult, ServiceHint, StopSignal, Substate,
};
use crate::supervise::teardown::{Actions, Limits, Outcome, Purpose, Step, Teardown};
use crate::time::{Moment, earliest};

/// Beginnings.
impl Supervisor {
    /// The only place where a start begins: it waits for its turn first.
    pub(super) fn start(&mut self, cause: Cause, now: Moment) {
        debug_assert!(self.run.is_none(), "a start while something may live");
        self.start_at_once = false;
        self.last_failure = None;
        self.end_turn();
        self.has_turn = true;
        let is_awaited = matches!(cause, Cause::Command | Cause::Demand);
        self.actions.push_back(Action::AskTurn { is_awaited });
        self.enter(Phase::Waiting, cause, now);
    }

    /// The only place that orders a spawn. Deadlines of the start count from here.
    pub(super) fn turn_came(&mut self, now: Moment) {
        if !matches!(self.phase, Phase::Waiting) {
            return;
        }
        debug_assert!(self.run.is_none(), "a spawn while something may live");
        self.generation = self.generation.next();
        self.run = Some(Run::new(self.generation, now));
        self.actions.push_back(Action::Spawn {
            generation: self.generation,
        });
        self.enter(Phase::Spawning, Cause::Turn, now);
    }

    /// Lets others start.
    fn end_turn(&mut self) {
        if std::mem::take(&mut self.has_turn) {
            self.actions.push_back(Action::EndTurn);
        }
    }

    pub(super) fn spawned(&mut self, pid: u32, now: Moment) {
        let Some(run) = self.run.as_mut().filter(|run| run.spawned_at.is_none()) else {
            return;
        };
        run.pid = Some(pid);
        run.spawned_at = Some(now);
        match &mut self.phase {
            Phase::Spawning => self.enter(Phase::Executing, Cause::Spawned, now),
            Phase::Unkillable { .. } => {
                // The answer that was given up on: nobody wants this process.
                self.begin_failure(Step::Kill, false, Cause::Spawned, now);
            }
            _ => self.in_teardown(Cause::Spawned, now, Teardown::handle_spawned),
        }
    }

    pub(super) fn executed(&mut self, now: Moment) {
        if let Some(run) = &mut self.run {
            run.executed_at.get_or_insert(now);
        }
        if matches!(self.phase, Phase::Executing) {
            self.enter(Phase::Handshake, Cause::Executed, now);
        }
    }

    pub(super) fn opened(&mut self, now: Moment) {
        if matches!(self.phase, Phase::Executing | Phase::Handshake) {
            if let Some(run) = &mut self.run {
                run.executed_at.get_or_insert(now);
                run.ready_at = Some(now);
            }
            self.enter(Phase::Ready, Cause::Opened, now);
        }
    }

    pub(super) fn excuse(&mut self, excused: bool) {
        if let Some(run) = &mut self.run {
            run.excused = excused;
        }
    }

    pub(super) fn spawn_failed(&mut self, failure: SpawnFailure, now: Moment) {
        let Some(run) = &mut self.run else { return };
        let was_spawned = run.spawned_at.is_some();
        if run.executed_at.is_some() {
            return;
        }
        run.verdict
            .get_or_insert((RunResult::Resources, failure.detail.clone()));
        run.failure = Some(failure);
        if !was_spawned {
            run.emptied = true;
            self.finish(Cause::SpawnFailed, now);
        } else if matches!(self.phase, Phase::Executing) {
            // The shim ends by itself; the signal only makes sure.
            self.begin_failure(Step::Kill, false, Cause::SpawnFailed, now);
        }
    }
}

/// Ends.
impl Supervisor {
    /// A run that failed by itself and must be ended.
    pub(super) fn fail(&mut self, result: RunResult, message: String, cause: Cause, now: Moment) {
        let step = match self.phase {
            Phase::Spawning => Step::Launching,
            Phase::Executing | Phase::Handshake | Phase::Ready => Step::StopStdin,
            _ => return,
        };
        if let Some(run) = &mut self.run {
            run.verdict = Some((result, message));
        }
        self.begin_failure(step, false, cause, now);
    }

    fn begin_failure(&mut self, step: Step, leader_gone: bool, cause: Cause, now: Moment) {
        if let Some(run) = &mut self.run {
            run.ending_at.get_or_insert(now);
        }
        let limits = Limits::of(&self.policy, Purpose::Failure);
        let actions = &mut self.actions;
        let teardown = Teardown::begin(Purpose::Failure, limits, step, leader_gone, now, actions);
        self.enter(Phase::Stopping(teardown), cause, now);
    }

    pub(super) fn stdout_closed(&mut self, now: Moment) {
        let Some(run) = &mut self.run else { return };
        run.stdout_closed_at.get_or_insert(now);
        if run.exit.is_some() {
            self.tell_gone();
            self.finish_if_proved(Cause::StdoutClosed, now);
        }
    }

    /// It cannot be written to. Usually it is about to end, so that it is given as long as after
    /// the end of its stdout; what it says meanwhile is heard.
    pub(super) fn stdin_broken(&mut self, now: Moment) {
        if let Some(run) = &mut self.run {
            run.stdin_broken_at.get_or_insert(now);
        }
    }

    /// What ended by this is known with the leader's exit.
    pub(super) fn oom_killed(&mut self) {
        if let Some(run) = &mut self.run {
            run.oom_killed = true;
        }
    }

    pub(super) fn exited(&mut self, status: ExitStatus, now: Moment) {
        let Some(run) = self.run.as_mut().filter(|run| run.exit.is_none()) else {
            return;
        };
        run.exit = Some((status, now));
        let stdout_closed = run.stdout_closed_at.is_some();
        if stdout_closed {
            self.tell_gone();
        }
        match &mut self.phase {
            Phase::Executing | Phase::Handshake | Phase::Ready => {
                self.begin_failure(Step::StopStdin, true, Cause::Exited, now);
            }
            Phase::Stopping(teardown) => {
                let ended_by = teardown.step().substate();
                if let Some(run) = &mut self.run {
                    run.ended_by = ended_by;
                }
                self.in_teardown(Cause::Exited, now, Teardown::handle_leader_gone);
            }
            Phase::Unkillable { look_at, .. } => *look_at = now,
            Phase::Idle(_)
            | Phase::Waiting
            | Phase::Spawning
            | Phase::Backoff { .. }
            | Phase::Failed { .. } => {}
        }
    }

    pub(super) fn emptied(&mut self, now: Moment) {
        let Some(run) = &mut self.run else { return };
        // A proof that is older than the leader's end proves nothing.
        if run.exit.is_none() || run.emptied {
            return;
        }
        run.emptied = true;
        self.actions.push_back(Action::Reap);
        self.finish_if_proved(Cause::Emptied, now);
    }

    pub(super) fn holders(&mut self, pids: Vec<u32>, now: Moment) {
        if self.run.as_ref().is_some_and(|run| run.emptied) {
            return;
        }
        match &mut self.phase {
            Phase::Stopping(_) => {
                self.in_teardown(Cause::Holders, now, |teardown, now, actions| {
                    teardown.handle_holders(pids, now, actions);
                });
            }
            Phase::Unkillable { teardown, .. } => teardown.set_holders(pids),
            _ => {}
        }
    }

    /// Runs a step of the teardown, if one is under way, and logs where it led.
    pub(super) fn in_teardown(
        &mut self,
        cause: Cause,
        now: Moment,
        step: impl FnOnce(&mut Teardown, Moment, &mut Actions),
    ) {
        if let Phase::Stopping(teardown) = &mut self.phase {
            step(teardown, now, &mut self.actions);
            self.note_change(cause, now);
        }
    }

    fn tell_gone(&mut self) {
        let Some(run) = self.run.as_mut().filter(|run| !run.told_gone) else {
            return;
        };
        run.told_gone = true;
        let message = match run.exit {
            Some(_) => run.message(),
            None => format!("closed its {}", run.closed_pipe()),
        };
        self.actions.push_back(Action::ChildGone { message });
    }

    /// Answers may still stand in the pipe after the leader's end: not before they had their time.
    fn finish_if_proved(&mut self, cause: Cause, now: Moment) {
        let proved = |run: &Run| run.emptied && run.told_gone;
        if self.run.as_ref().is_some_and(proved) {
            self.finish(cause, now);
        }
    }

    /// Nothing is left: records the run and decides what follows.
    fn finish(&mut self, cause: Cause, now: Moment) {
        if self
            .run
            .as_ref()
            .is_some_and(|run| run.spawned_at.is_some())
        {
            self.tell_gone();
            self.actions.push_back(Action::ClosePipes);
        }
        let Some(run) = self.run.take() else { return };
        let (ordered, excused) = (run.ordered, run.is_excused());
        let requested_at = run.requested_at;
        self.last_failure = run.failure.clone();
        let ended = run.into_ended(self.policy.stable_after, now);
        let (stable, result) = (ended.stable, ended.result);
        self.actions.push_back(Action::Ended(ended.clone()));
        self.last_runs.push_front(ended);
        self.last_runs.truncate(KEPT_RUNS);

        if !self.desired_up || self.closing || self.removed {
            self.enter(Phase::Idle(self.rest), cause, now);
        } else if self.start_at_once || ordered {
            self.backoff.reset();
            self.start(cause, now);
        } else if excused {
            self.start(Cause::Excused, now);
        } else {
            self.follow_failure(stable, result, requested_at, cause, now);
        }
    }

    pub(super) fn follow_failure(
        &mut self,
        stable: bool,
        result: RunResult,
        requested_at: Moment,
        cause: Cause,
        now: Moment,
    ) {
        let kind = self.last_failure.as_ref().map(SpawnFailure::kind);
        let retry_at = Some(requested_at + DEMAND_PAUSE);
        let stays_down = match self.policy.restart {
            Restart::Always => false,
            Restart::OnFailure => result == RunResult::Success,
            Restart::No => true,
        };
        let failed = |why, retry_at| Phase::Failed {
            why,
            retry_at,
            offered: false,
        };
        let phase = match kind {
            Some(FailureKind::Config) => failed(Substate::ConfigFailed, None),
            Some(FailureKind::Exec) => failed(Substate::ExecFailed, retry_at),
            Some(FailureKind::Resources) | None if stays_down => Phase::Idle(Substate::Exited),
            Some(FailureKind::Resources) | None => match self.verdict(stable) {
                Verdict::RetryAfter(delay) => Phase::Backoff { until: now + delay },
                Verdict::GiveUp => failed(Substate::StartLimitHit, retry_at),
            },
        };
        self.enter(phase, cause, now);
    }

    fn verdict(&mut self, stable: bool) -> Verdict {
        if stable {
            self.backoff.stable_run_ended()
        } else {
            self.backoff.unstable_run_ended(self.policy.start_limit)
        }
    }
}

/// The clock.
impl Supervisor {
    pub(super) fn start_deadline(&self) -> Option<Moment> {
        let run = self.run.as_ref()?;
        Some(run.spawned_at.unwrap_or(run.requested_at) + self.policy.start_timeout)
    }

    /// When stdout and the leader's end must have followed each other.
    pub(super) fn pipe_deadline(&self) -> Option<Moment> {
        let run = self.run.as_ref().filter(|run| !run.told_gone)?;
        let after_exit = run.exit.map(|(_, at)| at + PIPE_GRACE);
        let closed_at = earliest(run.stdout_closed_at, run.stdin_broken_at);
        let after_close = closed_at.map(|at| at + EOF_GRACE);
        earliest(after_exit, after_close)
    }

    /// Does what is due first.
    pub(super) fn one_timeout(&mut self, now: Moment) {
        if self.pipe_deadline().is_some_and(|due| now >= due) {
            self.pipe_timeout(now);
            return;
        }
        match &mut self.phase {
            Phase::Spawning | Phase::Executing | Phase::Handshake => self.start_timeout(now),
            Phase::Stopping(teardown) => {
                let outcome = teardown.handle_timeout(now, &mut self.actions);
                if outcome == Outcome::Unkillable {
                    self.give_up(now);
                } else {
                    self.note_change(Cause::Deadline, now);
                }
            }
            Phase::Backoff { .. } => self.start(Cause::Timer, now),
            Phase::Failed { offered, .. } => *offered = true,
            Phase::Unkillable { .. } => self.look_at_unkillable(now),
            Phase::Idle(_) | Phase::Waiting | Phase::Ready => {}
        }
    }

    fn pipe_timeout(&mut self, now: Moment) {
        self.tell_gone();
        if self.run.as_ref().is_some_and(|run| run.exit.is_some()) {
            self.finish_if_proved(Cause::Deadline, now);
            return;
        }
        let pipe = self.run.as_ref().map_or("stdout", Run::closed_pipe);
        let message = format!("closed its {pipe} and did not end");
        self.in_teardown(Cause::StdoutClosed, now, Teardown::handle_drained);
        self.fail(RunResult::Protocol, message, Cause::StdoutClosed, now);
    }

    fn start_timeout(&mut self, now: Moment) {
        let limit = render_seconds(self.policy.start_timeout);
        let missing = match self.phase {
            Phase::Spawning => "there was a process",
            Phase::Executing => "its program was executed",
            _ => "it had answered `initialize`",
        };
        let message = format!("start_timeout ({limit}) passed before {missing}");
        self.fail(RunResult::Timeout, message, Cause::StartTimeout, now);
    }

    fn give_up(&mut self, now: Moment) {
        let idle = Phase::Idle(Substate::Dead);
        if let Phase::Stopping(teardown) = std::mem::replace(&mut self.phase, idle) {
            let look_at = now + UNKILLABLE_LOOK;
            let phase = Phase::Unkillable { teardown, look_at };
            self.tell_gone();
            self.enter(phase, Cause::Deadline, now);
        }
    }

    fn look_at_unkillable(&mut self, now: Moment) {
        let Some(run) = &self.run else { return };
        let (spawned, gone) = (run.spawned_at.is_some(), run.exit.is_some());
        if let Phase::Unkillable { look_at, .. } = &mut self.phase {
            *look_at = now + UNKILLABLE_LOOK;
        }
        if spawned {
            self.actions.push_back(Action::Signal(StopSignal::Sweep));
        }
        if gone {
            self.actions.push_back(Action::Verify);
        }
    }
}

/// What the others are told.
impl Supervisor {
    pub(super) fn if_living(&mut self, generation: Generation, then: impl FnOnce(&mut Self)) {
        if self
            .run
            .as_ref()
            .is_some_and(|run| run.generation == generation)
        {
            then(self);
        }
    }

    pub(super) fn enter(&mut self, phase: Phase, cause: Cause, now: Moment) {
        // A start that failed holds its turn until nothing of it is left.
        let is_starting = matches!(
            phase,
            Phase::Waiting
                | Phase::Spawning
                | Phase::Executing
                | Phase::Handshake
                | Phase::Stopping(_)
        );
        if !is_starting {
            self.end_turn();
        }
        self.phase = phase;
        self.note_change(cause, now);
    }

    pub(super) fn note_change(&mut self, cause: Cause, now: Moment) {
        let to = self.substate();
        if to != self.shown {
            let from = std::mem::replace(&mut self.shown, to);
            self.since = now;
            self.actions.push_back(Action::Changed { from, to, cause });
        }
    }

    fn substate(&self) -> Substate {
        match &self.phase {
            Phase::Idle(substate) => *substate,
            Phase::Waiting => Substate::WaitingForTurn,
            Phase::Spawning => Substate::Spawn,
            Phase::Executing => Substate::Exec,
            Phase::Handshake => Substate::Handshake,
            Phase::Ready => Substate::Ready,
            Phase::Stopping(teardown) => teardown.substate(),
            Phase::Backoff { .. } => Substate::AutoRestart,
            Phase::Failed { why, .. } => *why,
            Phase::Unkillable { .. } => Substate::Unkillable,
        }
    }

    /// Tells the multiplexer if what hosts are to expect has changed.
    pub(super) fn announce(&mut self) {
        let hint = self.hint();
        if self.hinted.as_ref() != Some(&hint) {
            self.hinted = Some(hint.clone());
            self.actions.push_back(Action::SetService(hint));
        }
    }

    fn hint(&self) -> ServiceHint {
        match &self.phase {
            Phase::Idle(Substate::NeverStarted | Substate::IdleStopped) => ServiceHint::OnDemand,
            Phase::Failed { offered: true, .. } => ServiceHint::OnDemand,
            Phase::Waiting | Phase::Spawning | Phase::Executing => {
                ServiceHint::Holding { ordered: false }
            }
            Phase::Handshake | Phase::Ready => ServiceHint::Serving,
            Phase::Stopping(teardown) if self.desired_up => ServiceHint::Holding {
                ordered: teardown.purpose() != Purpose::Failure,
            },
            Phase::Stopping(_) if self.rests_on_demand() => ServiceHint::OnDemand,
            Phase::Stopping(_) => ServiceHint::Stopping,
            Phase::Backoff { until } => ServiceHint::Backoff {
                next_attempt_at: *until,
                message: self.message(),
            },
            Phase::Idle(_) | Phase::Failed { .. } | Phase::Unkillable { .. } => {
                ServiceHint::Unavailable {
                    message: self.message(),
                }
            }
        }
    }

    pub(super) fn result(&self) -> RunResult {
        match self.phase {
            Phase::Failed {
                why: Substate::StartLimitHit,
                ..
            } => RunResult::StartLimitHit,
            _ => self
                .last_runs
                .front()
                .map_or(RunResult::Success, |run| run.result),
        }
    }

    pub(super) fn message(&self) -> String {
        let last = || {
            self.last_runs
                .front()
                .map_or_else(String::new, |run| run.message.clone())
        };
        match &self.phase {
            Phase::Idle(Substate::Disabled) => "disabled in its file".to_owned(),
            Phase::Idle(Substate::Dead) if self.closing => "mcpd is ending".to_owned(),
            Phase::Idle(Substate::Dead) if self.removed => "its file was removed".to_owned(),
            Phase::Idle(Substate::Dead) => "stopped on request".to_owned(),
            Phase::Idle(Substate::NeverStarted) => "started when a host needs it".to_owned(),
            Phase::Idle(Substate::IdleStopped) => {
                "idle_stop passed without a request; started when a host needs it".to_owned()
            }
            Phase::Waiting => "other servers are being started first".to_owned(),
            Phase::Failed {
                why: Substate::StartLimitHit,
                ..
            } => format!(
                "given up after {} unstable runs in a row (start_limit); the last one {}",
                self.backoff.unstable_runs(),
                last(),
            ),
            Phase::Unkillable { teardown, .. } => unkillable_message(teardown, self.run.as_ref()),
            Phase::Idle(_) | Phase::Backoff { .. } | Phase::Failed { .. } => last(),
            Phase::Stopping(_) => self
                .run
                .as_ref()
                .filter(|run| run.verdict.is_some() || run.exit.is_some())
                .map_or_else(String::new, Run::message),
            Phase::Spawning | Phase::Executing | Phase::Handshake | Phase::Ready => String::new(),
        }
    }
}

/// Who is left as far as it is known: the leader until it ends, then whom a look has found.
pub(super) fn holders(teardown: &Teardown, run: Option<&Run>) -> Vec<u32> {
    let leader = run.and_then(|run| run.pid.filter(|_| run.exit.is_none()));
    let found = teardown.holders().iter().copied();
    let mut pids: Vec<u32> = leader.into_iter().chain(found).collect();
    pids.sort_unstable();
    pids.dedup();
    pids
}

fn unkillable_message(teardown: &Teardown, run: Option<&Run>) -> String {
    let pids = holders(teardown, run);
    match pids.is_empty() {
        true => "the launcher owes an answer; nothing starts before it".to_owned(),
        false => {
            let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
            format!("outlived SIGKILL: process {}", pids.join(", "))
        }
    }
}
