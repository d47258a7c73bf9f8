//! One server with its child and its hosts: the two cores that hold it, and what each has to know
//! of the other.
//!
//! [`Mux`] owns what hosts and child say to each other, [`Supervisor`] owns whether a child runs.
//! An [`Instance`] owns both and decides what passes between them, in which order, and which of the
//! shell's news still count. Its shell is the daemon's worker; the simulation in `tests/sim` is
//! another, so that what is tried there is what ships. It does no I/O: lines and frames go between
//! the shell and [`Instance::mux`] directly, all else by [`Action`]s and the `handle_*` calls.

mod action;
mod order;
mod setting;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use crate::config::fingerprint::Fingerprint;
use crate::ids::Generation;
use crate::protocol::ErrorCode;
use crate::session::{ChildGone, Hold, HoldCause, Memory, Mux, MuxAction, Service, Unavailable};
use crate::supervise::state::CancelReason;
use crate::supervise::turns::TurnId;
use crate::supervise::{self, ServiceHint, State, Supervisor};
use crate::time::{Moment, earliest};

pub use action::{Action, Matter, Order, RunEvent, Words};
pub use order::mux_config;
pub use setting::{Applied, DIRECTORY_IDLE, Owner, Setting, Verdict};

/// The run that the shell was asked to begin and has not been told to forget.
#[derive(Clone, Copy, Debug)]
struct Run {
    generation: Generation,
    /// What it is made from.
    configuration: Option<Fingerprint>,
}

/// One server: see the page above.
#[derive(Debug)]
pub struct Instance {
    name: String,
    /// What hosts and child say to each other. The shell hands it lines and takes frames from it.
    pub mux: Mux,
    supervisor: Supervisor,
    setting: Setting,
    /// Tells what the process of the present setting is made from.
    configuration: Option<Fingerprint>,
    /// The configuration by which a start has succeeded last.
    proven: Option<Fingerprint>,
    run: Option<Run>,
    /// The turn that was asked for and not given back.
    turn: Option<TurnId>,
    /// Its hosts belong to instances beside it from now on.
    is_dismissing: bool,
    /// It ends for good.
    is_ending: bool,
    /// The multiplexer has not been told yet what time it is.
    owes_time: bool,
    /// What was decided here.
    actions: VecDeque<Action>,
}

impl Instance {
    /// The instance `name` of a setting, whose process is made from `configuration`.
    pub fn new(
        name: &str,
        setting: Setting,
        configuration: Option<Fingerprint>,
        (mux, supervisor): (Mux, Supervisor),
    ) -> Self {
        Self {
            name: name.to_owned(),
            mux,
            supervisor,
            setting,
            configuration,
            proven: None,
            run: None,
            turn: None,
            is_dismissing: false,
            is_ending: false,
            owes_time: false,
            actions: VecDeque::new(),
        }
    }

    pub const fn supervisor(&self) -> &Supervisor {
        &self.supervisor
    }

    pub const fn setting(&self) -> &Setting {
        &self.setting
    }

    /// What tells the present configuration of the process from others.
    pub const fn configuration(&self) -> Option<Fingerprint> {
        self.configuration
    }

    /// Whether no success of the present configuration is known.
    pub fn is_cold(&self) -> bool {
        self.proven.is_none() || self.proven != self.configuration
    }

    /// Whether this is the run that has not been forgotten.
    pub fn is_running(&self, generation: Generation) -> bool {
        self.run.is_some_and(|run| run.generation == generation)
    }

    /// Whether it has been told to end and has nothing left to do.
    pub fn is_finished(&self) -> bool {
        self.is_ending && matches!(self.supervisor.state(), State::Stopped | State::Failed)
    }

    /// Whether its hosts are to be let go now, since they belong to instances beside it and nothing
    /// more is to be told to them here. True once.
    pub fn take_dismissal(&mut self) -> bool {
        let is_down = matches!(self.supervisor.state(), State::Stopped | State::Failed);
        is_down && std::mem::take(&mut self.is_dismissing)
    }

    /// When [`Instance::handle_timeout`] has to be called next.
    pub fn poll_timeout(&self) -> Option<Moment> {
        earliest(self.mux.poll_timeout(), self.supervisor.poll_timeout())
    }

    /// Time has passed. The supervisor hears of it first: it knows why a start took too long, a
    /// waiting request only that. The multiplexer hears of it when what follows from that is done.
    pub fn handle_timeout(&mut self, now: Moment) {
        self.supervisor.handle_timeout(now);
        self.owes_time = true;
    }

    /// The next thing to do, until there is none. Each is done before the next is asked for.
    pub fn poll_action(&mut self, now: Moment) -> Option<Action> {
        loop {
            if let Some(action) = self.actions.pop_front() {
                return Some(action);
            }
            let next = if let Some(action) = self.supervisor.poll_action() {
                self.of_supervisor(action, now)
            } else if let Some(action) = self.mux.poll_action() {
                self.of_mux(action, now)
            } else if std::mem::take(&mut self.owes_time) {
                self.tell_time(now)
            } else {
                return None;
            };
            if next.is_some() {
                return next;
            }
        }
    }

    fn tell_time(&mut self, now: Moment) -> Option<Action> {
        if self.mux.poll_timeout().is_some_and(|due| due <= now) {
            return Some(Action::Explain(Matter::Waits));
        }
        self.mux.handle_timeout(now);
        None
    }

    /// What the supervisor wants: of the shell, or of the multiplexer.
    fn of_supervisor(&mut self, action: supervise::Action, now: Moment) -> Option<Action> {
        use supervise::Action as Wish;
        Some(match action {
            Wish::AskTurn { is_awaited } => Action::AskTurn {
                is_awaited: is_awaited || self.mux.has_waiting(),
                is_cold: self.is_cold(),
            },
            Wish::HurryTurn => Action::HurryTurn,
            Wish::EndTurn => {
                self.turn = None;
                Action::EndTurn
            }
            Wish::Spawn { generation } => {
                self.run = Some(Run {
                    generation,
                    configuration: self.configuration,
                });
                Action::Spawn { generation }
            }
            Wish::CancelSpawn => Action::CancelSpawn,
            Wish::Drain => {
                self.mux.begin_drain(now);
                return None;
            }
            Wish::CancelOpen { reason } => {
                self.mux.cancel_open(cancel_code(reason), now);
                return None;
            }
            Wish::CloseStdin => Action::CloseStdin,
            Wish::RunStopCommand { limit } => Action::RunStopCommand { limit },
            Wish::Signal(signal) => Action::Signal(signal),
            Wish::Verify => Action::Verify,
            Wish::ChildGone { message } => Action::Explain(Matter::ChildGone(message)),
            Wish::Reap => Action::Reap,
            Wish::ClosePipes => {
                self.run = None;
                Action::ClosePipes
            }
            Wish::SetService(hint) => return self.set_service(hint, now),
            Wish::Changed { from, to, cause } => Action::Changed { from, to, cause },
            Wish::Ended(run) => Action::Ended(run),
        })
    }

    /// What the multiplexer wants: of the shell, or of the supervisor.
    fn of_mux(&mut self, action: MuxAction, now: Moment) -> Option<Action> {
        use supervise::Event;
        let generation = self.supervisor.generation();
        let (event, action) = match action {
            MuxAction::HostReady(host) => (None, Some(Action::HostReady(host))),
            MuxAction::CloseHost(host, _) => (None, Some(Action::CloseHost(host))),
            MuxAction::DropHost(host, reason) => (None, Some(Action::DropHost(host, reason))),
            MuxAction::EvictHost(host) => (None, Some(Action::EvictHost(host))),
            MuxAction::ChildReady => (None, Some(Action::ChildReady)),
            MuxAction::Opened(identity) => {
                self.proven = self.run.and_then(|run| run.configuration);
                let opened = Event::Opened { generation };
                (Some(opened), Some(Action::Opened(identity)))
            }
            MuxAction::OpeningFailed(why) => {
                let matter = Matter::OpeningFailed(why.message);
                (None, Some(Action::Explain(matter)))
            }
            MuxAction::Excused(excused) => {
                let excused = Event::Excused {
                    generation,
                    excused,
                };
                (Some(excused), None)
            }
            MuxAction::Learnt(lesson) => (None, Some(Action::Learnt(lesson))),
            MuxAction::Drained => (Some(Event::Drained { generation }), None),
            MuxAction::Demand => (Some(Event::Demand), None),
            MuxAction::Idle => (Some(Event::Idle), None),
            MuxAction::Hung { silence } => {
                let hung = Event::Hung {
                    generation,
                    silence,
                };
                (Some(hung), None)
            }
            MuxAction::Remembered => (None, self.keep()),
            MuxAction::CallEnded(end) => (None, Some(Action::CallEnded(end))),
            MuxAction::Log(_, text) => (None, Some(Action::Log(text))),
        };
        if let Some(event) = event {
            self.tell(event, now);
        }
        action
    }

    fn tell(&mut self, event: supervise::Event, now: Moment) {
        self.supervisor.handle(event, now);
    }

    /// What needs no words is told at once.
    fn set_service(&mut self, hint: ServiceHint, now: Moment) -> Option<Action> {
        match hint {
            ServiceHint::Serving => self.mux.set_service(Service::Serving, now),
            ServiceHint::Stopping => self.mux.set_service(Service::Stopping, now),
            hint => return Some(Action::Explain(Matter::Service(hint))),
        }
        None
    }

    /// What [`Action::Explain`] asked for, in words.
    pub fn explain(&mut self, matter: Matter, words: Words, now: Moment) {
        match matter {
            Matter::Service(hint) => self.mux.set_service(service(hint, words), now),
            Matter::ChildGone(_) => {
                if let Some(run) = self.run {
                    let gone = ChildGone {
                        reason: words.sentence,
                        detail: words.detail,
                    };
                    self.mux.handle_child_gone(run.generation, &gone, now);
                }
            }
            Matter::OpeningFailed(_) => {
                let generation = self.supervisor.generation();
                let detail = words.sentence;
                self.tell(supervise::Event::OpeningFailed { generation, detail }, now);
            }
            Matter::Waits => {
                self.mux.explain_waits(words.detail);
                self.mux.handle_timeout(now);
            }
        }
    }

    /// Something happened to a run, which may be one that is forgotten.
    pub fn handle_run(&mut self, generation: Generation, event: RunEvent, now: Moment) {
        use supervise::Event;
        if !self.is_running(generation) {
            return;
        }
        let event = match event {
            RunEvent::Spawned { pid } => Event::Spawned { generation, pid },
            RunEvent::SpawnFailed(failure) => Event::SpawnFailed {
                generation,
                failure,
            },
            RunEvent::Executed { remembered } => {
                self.tell(Event::Executed { generation }, now);
                return self.mux.handle_child_started(generation, remembered, now);
            }
            RunEvent::StdoutEnded => Event::StdoutClosed { generation },
            RunEvent::StdinBroken => Event::StdinBroken { generation },
            RunEvent::OomKilled => Event::OomKilled { generation },
            RunEvent::Exited(status) => Event::Exited { generation, status },
            RunEvent::Left(pids) if pids.is_empty() => Event::Emptied { generation },
            RunEvent::Left(pids) => Event::Holders { generation, pids },
            // Nothing is proved: as long as the step lasts it is tried again.
            RunEvent::Unseen => Event::Holders {
                generation,
                pids: Vec::new(),
            },
            RunEvent::StopCommandEnded => Event::StopCommandEnded { generation },
            RunEvent::Broken(detail) => Event::Broken { generation, detail },
        };
        self.tell(event, now);
    }

    /// The turn was asked for under this name.
    pub const fn turn_asked(&mut self, id: TurnId) {
        self.turn = Some(id);
    }

    /// A turn has come, which may be one that was given back meanwhile.
    pub fn handle_turn_came(&mut self, id: TurnId, now: Moment) {
        if self.turn == Some(id) {
            self.tell(supervise::Event::TurnCame, now);
        }
    }

    /// What was kept of a configuration. Whether it is of use.
    pub fn recall(&mut self, configuration: Fingerprint, memory: Option<Memory>) -> bool {
        // What a child has said meanwhile is newer.
        let is_wanted = self.configuration == Some(configuration) && self.mux.memory().is_none();
        if is_wanted {
            self.proven = Some(configuration);
            self.mux.remember(memory);
        }
        is_wanted
    }

    /// What was to be kept has been, and more was learned meanwhile.
    pub fn keep_again(&mut self) {
        let action = self.keep();
        self.actions.extend(action);
    }

    /// What is remembered has changed: whether that is worth keeping.
    fn keep(&mut self) -> Option<Action> {
        let of_child = self.run.and_then(|run| run.configuration);
        match self.configuration {
            Some(configuration) if of_child == Some(configuration) => {
                Some(Action::Keep(configuration))
            }
            // It was spawned before the last edit, and is on its way out.
            _ => {
                self.mux.remember(None);
                None
            }
        }
    }
}

/// The hint of the supervisor in the words of the multiplexer.
fn service(hint: ServiceHint, words: Words) -> Service {
    let Words { sentence, detail } = words;
    let hold = |cause, detail| Service::Holding(Hold { cause, detail });
    let unavailable = |detail| Unavailable {
        message: sentence,
        detail,
    };
    match hint {
        ServiceHint::Serving => Service::Serving,
        ServiceHint::Stopping => Service::Stopping,
        ServiceHint::Holding { ordered: true } => hold(HoldCause::Restarting, detail),
        ServiceHint::Holding { ordered: false } | ServiceHint::OnDemand => {
            hold(HoldCause::Starting, detail)
        }
        ServiceHint::Backoff {
            next_attempt_at, ..
        } => Service::Backoff {
            next_attempt: next_attempt_at,
            detail: unavailable(detail),
        },
        ServiceHint::Unavailable { .. } => Service::Unavailable(unavailable(detail)),
    }
}

const fn cancel_code(reason: CancelReason) -> ErrorCode {
    match reason {
        CancelReason::ServerStopping => ErrorCode::SERVER_STOPPING,
        CancelReason::DaemonEnding => ErrorCode::DAEMON_RESTARTED,
    }
}
