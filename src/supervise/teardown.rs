//! The steps by which a run is ended, each with a deadline.
//!
//! drain, stop-stdin, (`stop_command`,) stop-sigterm, stop-sigkill, and the proof that nothing is
//! left. `stop_command` runs between stop-stdin and SIGTERM, only if closing stdin did not end the
//! child, and has `stop_timeout` like the other two. Decides when to go on to the next step and
//! when to look again for survivors. Never decides what follows the end: that is
//! [`supervisor`](super::supervisor).

use std::collections::VecDeque;
use std::time::Duration;

use super::state::{Action, CancelReason, Mode, StopSignal, StopStatus, Substate};
use crate::config::spec::Policy;
use crate::time::Moment;

/// From SIGKILL until nothing may be left.
pub const VERIFY_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a launcher that owes an answer is waited for once the run is to end.
pub const SPAWN_ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Rounds of the last step that only kill; those after them stop everybody first.
pub const PLAIN_KILL_ROUNDS: u32 = 2;
/// The first wait before survivors are looked for again; doubles up to [`LONGEST_LOOK`].
pub const FIRST_LOOK: Duration = Duration::from_millis(5);
/// The longest such wait.
pub const LONGEST_LOOK: Duration = Duration::from_millis(160);

/// What is to be done, in order.
pub type Actions = VecDeque<Action>;

/// What a run is ended for. Decides how long calls may finish and what new requests are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    Stop,
    Restart,
    /// A restart by an edit: longer patience, still `running` while it drains.
    Reload,
    Shutdown,
    /// The child failed or ended: no call of it can finish.
    Failure,
}

/// Where a teardown stands. The order is the order in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// The launcher has not answered yet: nothing can be signalled.
    Launching,
    Drain,
    StopStdin,
    StopCommand,
    Term,
    Kill,
}

impl Step {
    /// The step in the words of the log, for those that can end a child.
    pub const fn substate(self) -> Option<Substate> {
        match self {
            Self::Launching | Self::Drain => None,
            Self::StopStdin => Some(Substate::StopStdin),
            Self::StopCommand | Self::Term => Some(Substate::StopSigterm),
            Self::Kill => Some(Substate::StopSigkill),
        }
    }
}

/// The deadlines of the steps, fixed when the teardown begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub drain: Duration,
    pub stop: Duration,
    pub has_stop_command: bool,
}

impl Limits {
    /// The deadlines that `policy` has for `purpose`.
    pub fn of(policy: &Policy, purpose: Purpose) -> Self {
        Self {
            drain: match purpose {
                Purpose::Reload => policy.reload_drain_timeout,
                Purpose::Failure => Duration::ZERO,
                Purpose::Stop | Purpose::Restart | Purpose::Shutdown => policy.drain_timeout,
            },
            stop: policy.stop_timeout,
            has_stop_command: policy.stop_command.is_some(),
        }
    }

    /// The longest that a teardown takes from its begin to the proof or to `unkillable`, once the
    /// launcher has answered.
    pub fn sum(self) -> Duration {
        let stops = if self.has_stop_command { 3 } else { 2 };
        self.drain + self.stop * stops + VERIFY_TIMEOUT
    }
}

/// Whether the deadline of the last step has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Outcome {
    GoesOn,
    Unkillable,
}

/// The end of one run, under way.
#[derive(Clone, Debug)]
pub struct Teardown {
    purpose: Purpose,
    limits: Limits,
    step: Step,
    began: Moment,
    deadline: Moment,
    leader_gone: bool,
    stdin_closed: bool,
    mode: Mode,
    look: Look,
    /// Answers of the last step that found somebody.
    kill_rounds: u32,
    holders: Vec<u32>,
}

/// When survivors are looked for.
#[derive(Clone, Copy, Debug)]
enum Look {
    /// Not before the leader ends.
    Waits,
    /// `Verify` is out, its answer is due.
    Asked,
    At(Moment),
}

impl Teardown {
    /// Begins at `step`; `leader_gone` if the leader's end is what began it.
    pub fn begin(
        purpose: Purpose,
        limits: Limits,
        step: Step,
        leader_gone: bool,
        now: Moment,
        actions: &mut Actions,
    ) -> Self {
        let mut teardown = Self {
            purpose,
            limits,
            step,
            began: now,
            deadline: now,
            leader_gone,
            stdin_closed: false,
            mode: Mode::Polite,
            look: Look::Waits,
            kill_rounds: 0,
            holders: Vec::new(),
        };
        teardown.enter(step, now, actions);
        if leader_gone {
            teardown.look_now(actions);
        }
        teardown
    }

    pub fn purpose(&self) -> Purpose {
        self.purpose
    }

    pub fn step(&self) -> Step {
        self.step
    }

    /// Another order came in while this one is under way. A stop shortens a reload's drain; no
    /// order ever prolongs a step.
    pub fn repurpose(&mut self, purpose: Purpose, policy: &Policy, now: Moment) {
        if self.purpose == Purpose::Failure {
            return;
        }
        self.purpose = purpose;
        if self.step == Step::Drain {
            let limit = Limits::of(policy, purpose).drain;
            self.deadline = self.deadline.min(now + limit);
        }
    }

    /// Jumps to SIGKILL, unless that was sent already.
    pub fn kill(&mut self, now: Moment, actions: &mut Actions) {
        self.mode = Mode::Kill;
        match self.step {
            // Sent already, or nothing to signal yet.
            Step::Kill | Step::Launching => {}
            Step::Drain => {
                actions.push_back(self.cancel());
                self.enter(Step::Kill, now, actions);
            }
            Step::StopStdin | Step::StopCommand | Step::Term => {
                self.enter(Step::Kill, now, actions);
            }
        }
    }

    /// The launcher answered with a process: it has no session to drain.
    pub fn handle_spawned(&mut self, now: Moment, actions: &mut Actions) {
        if self.step == Step::Launching {
            let step = match self.mode {
                Mode::Polite => Step::StopStdin,
                Mode::Kill => Step::Kill,
            };
            self.enter(step, now, actions);
        }
    }

    /// No call is open any more, or none can be answered any more.
    pub fn handle_drained(&mut self, now: Moment, actions: &mut Actions) {
        if self.step == Step::Drain {
            self.enter(Step::StopStdin, now, actions);
        }
    }

    pub fn handle_stop_command_ended(&mut self, now: Moment, actions: &mut Actions) {
        if self.step == Step::StopCommand {
            self.enter(Step::Term, now, actions);
        }
    }

    /// The leader ended: from now on it is the others that count.
    pub fn handle_leader_gone(&mut self, now: Moment, actions: &mut Actions) {
        self.leader_gone = true;
        self.handle_drained(now, actions);
        if matches!(self.look, Look::Waits) {
            self.look_now(actions);
        }
    }

    /// Somebody is left. A step that waited for the leader to go by itself is over with that.
    pub fn handle_holders(&mut self, pids: Vec<u32>, now: Moment, actions: &mut Actions) {
        self.holders = pids;
        match self.step {
            Step::Launching | Step::StopCommand | Step::Term => {}
            Step::Drain | Step::StopStdin => self.enter(Step::Term, now, actions),
            // A fork may have slipped between two rounds: every round kills whom it found, and
            // when that was not enough, nobody may fork meanwhile.
            Step::Kill => {
                let signal = match self.kill_rounds {
                    0..PLAIN_KILL_ROUNDS => StopSignal::Kill,
                    _ => StopSignal::Sweep,
                };
                self.kill_rounds = self.kill_rounds.saturating_add(1);
                actions.push_back(Action::Signal(signal));
            }
        }
        // The pause grows with the age of the step, so that it needs no memory of its own.
        let pause = (now.since(self.began) / 2).clamp(FIRST_LOOK, LONGEST_LOOK);
        self.look = Look::At(now + pause);
    }

    /// Goes on where a deadline has passed.
    pub fn handle_timeout(&mut self, now: Moment, actions: &mut Actions) -> Outcome {
        if let Look::At(moment) = self.look
            && now >= moment
        {
            self.look_now(actions);
        }
        if now < self.deadline {
            return Outcome::GoesOn;
        }
        let next = match self.step {
            Step::Launching | Step::Kill => return Outcome::Unkillable,
            Step::Drain => {
                actions.push_back(self.cancel());
                Step::StopStdin
            }
            Step::StopStdin if self.limits.has_stop_command && !self.leader_gone => {
                Step::StopCommand
            }
            Step::StopStdin | Step::StopCommand => Step::Term,
            Step::Term => Step::Kill,
        };
        self.enter(next, now, actions);
        Outcome::GoesOn
    }

    /// The next moment at which [`Self::handle_timeout`] has something to do.
    pub fn poll_timeout(&self) -> Moment {
        match self.look {
            Look::At(moment) => moment.min(self.deadline),
            Look::Waits | Look::Asked => self.deadline,
        }
    }

    pub fn substate(&self) -> Substate {
        match self.step {
            Step::Drain if self.purpose == Purpose::Reload => Substate::DrainingForReload,
            Step::Drain => Substate::Drain,
            _ if self.leader_gone => Substate::Verify,
            Step::Launching | Step::StopStdin => Substate::StopStdin,
            Step::StopCommand | Step::Term => Substate::StopSigterm,
            Step::Kill => Substate::StopSigkill,
        }
    }

    pub fn status(&self, holders: Vec<u32>) -> StopStatus {
        StopStatus {
            phase: self.substate(),
            deadline: self.deadline,
            holders,
        }
    }

    /// Notes who is left without doing anything about it.
    pub fn set_holders(&mut self, pids: Vec<u32>) {
        self.holders = pids;
    }

    /// Who is known to be left.
    pub fn holders(&self) -> &[u32] {
        &self.holders
    }

    fn enter(&mut self, step: Step, now: Moment, actions: &mut Actions) {
        self.step = step;
        self.began = now;
        if step >= Step::StopStdin && !self.stdin_closed {
            self.stdin_closed = true;
            actions.push_back(Action::CloseStdin);
        }
        let limit = match step {
            Step::Launching => {
                actions.push_back(Action::CancelSpawn);
                SPAWN_ANSWER_TIMEOUT
            }
            Step::Drain => {
                actions.push_back(Action::Drain);
                self.limits.drain
            }
            Step::StopStdin => self.limits.stop,
            Step::StopCommand => {
                actions.push_back(Action::RunStopCommand {
                    limit: self.limits.stop,
                });
                self.limits.stop
            }
            Step::Term => {
                actions.push_back(Action::Signal(StopSignal::Term));
                self.limits.stop
            }
            Step::Kill => {
                actions.push_back(Action::Signal(StopSignal::Kill));
                VERIFY_TIMEOUT
            }
        };
        self.deadline = now + limit;
        // A signal works at once or not at all: look soon, whatever the pause had grown to.
        if let Look::At(_) = self.look {
            self.look = Look::At(now + FIRST_LOOK);
        }
    }

    fn look_now(&mut self, actions: &mut Actions) {
        self.look = Look::Asked;
        actions.push_back(Action::Verify);
    }

    fn cancel(&self) -> Action {
        Action::CancelOpen {
            reason: match self.purpose {
                Purpose::Shutdown => CancelReason::DaemonEnding,
                Purpose::Stop | Purpose::Restart | Purpose::Reload | Purpose::Failure => {
                    CancelReason::ServerStopping
                }
            },
        }
    }
}
