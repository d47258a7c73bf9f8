//! What persons, edits, hosts and the daemon want of one instance.
//!
//! Decides what an order means in each phase. Every order is taken at once; what it leads to may
//! have to wait for the end of what runs.

use super::{Phase, Supervisor};
use crate::config::spec::Policy;
use crate::supervise::state::{Action, Cause, Mode, Substate};
use crate::supervise::teardown::{Limits, Purpose, Step, Teardown};
use crate::time::Moment;

impl Supervisor {
    pub(super) fn start_ordered(&mut self, cause: Cause, now: Moment) {
        if self.closing || self.removed {
            return;
        }
        self.desired_up = true;
        match &mut self.phase {
            Phase::Idle(_) | Phase::Backoff { .. } | Phase::Failed { .. } => {
                self.forget_failures(cause);
                self.start(cause, now);
            }
            Phase::Waiting if cause == Cause::Command => self.actions.push_back(Action::HurryTurn),
            Phase::Waiting
            | Phase::Spawning
            | Phase::Executing
            | Phase::Handshake
            | Phase::Ready => {}
            Phase::Stopping(teardown) => {
                self.start_at_once = true;
                teardown.repurpose(Purpose::Restart, &self.policy, now);
            }
            Phase::Unkillable { look_at, .. } => {
                self.start_at_once = true;
                *look_at = now;
            }
        }
    }

    /// From a rest that only a start leaves to one that a demand leaves too.
    pub(super) fn offer(&mut self, cause: Cause, now: Moment) {
        if self.closing || self.removed || self.desired_up {
            return;
        }
        self.rest = Substate::NeverStarted;
        if let Phase::Idle(_) = self.phase {
            self.enter(Phase::Idle(self.rest), cause, now);
        }
    }

    /// Ends a child that nobody needs. Whoever needs it meanwhile brings it up again.
    pub(super) fn idle(&mut self, now: Moment) {
        if matches!(self.phase, Phase::Ready) {
            self.desired_up = false;
            self.rest = Substate::IdleStopped;
            self.end_ordered(Purpose::Stop, Cause::Idle, now);
        }
    }

    /// Whether it is down, or on its way there, until somebody needs it.
    pub fn rests_on_demand(&self) -> bool {
        let rests = |rest| matches!(rest, Substate::IdleStopped | Substate::NeverStarted);
        match self.phase {
            Phase::Idle(rest) => rests(rest),
            Phase::Stopping(_) => !self.desired_up && rests(self.rest),
            _ => false,
        }
    }

    pub(super) fn stop(&mut self, purpose: Purpose, cause: Cause, mode: Mode, now: Moment) {
        self.desired_up = false;
        self.start_at_once = false;
        self.rest = match cause {
            Cause::Disabled => Substate::Disabled,
            _ => Substate::Dead,
        };
        match &mut self.phase {
            Phase::Idle(_) | Phase::Waiting | Phase::Backoff { .. } | Phase::Failed { .. } => {
                self.enter(Phase::Idle(self.rest), cause, now);
            }
            Phase::Unkillable { look_at, .. } => *look_at = now,
            Phase::Stopping(teardown) => {
                teardown.repurpose(purpose, &self.policy, now);
            }
            Phase::Spawning | Phase::Executing | Phase::Handshake | Phase::Ready => {
                self.end_ordered(purpose, cause, now);
            }
        }
        if mode == Mode::Kill {
            self.kill(cause, now);
        }
    }

    fn kill(&mut self, cause: Cause, now: Moment) {
        if let Some(run) = &mut self.run {
            run.kill_ordered = true;
        }
        self.in_teardown(cause, now, Teardown::kill);
    }

    pub(super) fn restart(&mut self, purpose: Purpose, cause: Cause, now: Moment) {
        let living = matches!(
            self.phase,
            Phase::Spawning | Phase::Executing | Phase::Handshake | Phase::Ready
        );
        if !living {
            self.start_ordered(cause, now);
        } else if !self.closing && !self.removed {
            self.desired_up = true;
            self.start_at_once = true;
            self.end_ordered(purpose, cause, now);
        }
    }

    pub(super) fn reset_failed(&mut self, now: Moment) {
        self.backoff.reset();
        let waits = matches!(
            self.phase,
            Phase::Failed { .. } | Phase::Backoff { .. } | Phase::Unkillable { .. }
        );
        if waits && self.desired_up {
            self.start_ordered(Cause::Command, now);
        }
    }

    pub(super) fn reconfigure(&mut self, restart: bool, policy: Policy, now: Moment) {
        self.policy = policy;
        self.removed = false;
        if restart && self.desired_up {
            self.restart(Purpose::Reload, Cause::Edit, now);
        }
    }

    /// A demand never shortens a back-off: the timer's attempt is the one that serves it.
    pub(super) fn demand(&mut self, now: Moment) {
        if self.closing || self.removed {
            return;
        }
        let rests_on_demand = self.rests_on_demand();
        match &mut self.phase {
            Phase::Idle(_) if rests_on_demand => {
                self.desired_up = true;
                self.start(Cause::Demand, now);
            }
            Phase::Waiting => self.actions.push_back(Action::HurryTurn),
            Phase::Stopping(teardown) if rests_on_demand => {
                self.desired_up = true;
                self.start_at_once = true;
                teardown.repurpose(Purpose::Restart, &self.policy, now);
            }
            Phase::Failed {
                retry_at: Some(retry_at),
                ..
            } if now >= *retry_at => self.start(Cause::Demand, now),
            _ => {}
        }
    }

    /// A person or an edit starts with a clean slate; the daemon and hosts do not.
    fn forget_failures(&mut self, cause: Cause) {
        if matches!(cause, Cause::Command | Cause::Edit) {
            self.backoff.reset();
        }
    }

    /// Begins the end of a living run because somebody wants it. Only a session that is open has
    /// calls to wait for.
    fn end_ordered(&mut self, purpose: Purpose, cause: Cause, now: Moment) {
        let step = match self.phase {
            Phase::Ready => Step::Drain,
            Phase::Spawning => Step::Launching,
            _ => Step::StopStdin,
        };
        if let Some(run) = &mut self.run {
            run.ordered = true;
            run.ending_at.get_or_insert(now);
        }
        let limits = Limits::of(&self.policy, purpose);
        let teardown = Teardown::begin(purpose, limits, step, false, now, &mut self.actions);
        self.enter(Phase::Stopping(teardown), cause, now);
    }
}
