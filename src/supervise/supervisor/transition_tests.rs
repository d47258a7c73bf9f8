//! Each way from one state to another, under a clock that the tests move.

use super::*;
use crate::config::spec::Restart;
use crate::supervise::failure::Stage;
use crate::supervise::state::{CancelReason, ExitStatus, KEPT_RUNS, StopSignal};
use crate::supervise::teardown::{SPAWN_ANSWER_TIMEOUT, VERIFY_TIMEOUT};

const ONE: Generation = Generation(1);
const TWO: Generation = Generation(2);
const CRASH: ExitStatus = ExitStatus::Code(1);
const TERMINATED: ExitStatus = ExitStatus::Signal {
    number: 15,
    core_dumped: false,
};
const KILLED: ExitStatus = ExitStatus::Signal {
    number: 9,
    core_dumped: false,
};

/// A supervisor, the time in milliseconds, and what was done since the last look.
struct Play {
    supervisor: Supervisor,
    now_ms: u64,
    /// Whether a turn that is asked for comes at once.
    has_turns: bool,
}

impl Play {
    fn new(policy: Policy) -> Self {
        Self {
            supervisor: Supervisor::new(policy, 1),
            now_ms: 0,
            has_turns: true,
        }
    }

    /// One whose first child serves.
    fn ready(policy: Policy) -> Self {
        let mut play = Self::new(policy);
        play.start();
        play.up(ONE);
        play.actions();
        play
    }

    fn now(&self) -> Moment {
        Moment::from_origin(Duration::from_millis(self.now_ms))
    }

    fn tell(&mut self, event: Event) -> &mut Self {
        let now = self.now();
        self.supervisor.handle(event, now);
        if self.has_turns {
            self.take_turn();
        }
        self
    }

    /// Nobody else starts: the turn comes at once.
    fn take_turn(&mut self) {
        let actions = &mut self.supervisor.actions;
        let asked = actions.len();
        actions.retain(|action| !matches!(action, Action::AskTurn { .. }));
        if actions.len() < asked {
            let now = self.now();
            self.supervisor.handle(Event::TurnCame, now);
        }
    }

    fn start(&mut self) -> &mut Self {
        self.tell(Event::Start { cause: Cause::Boot })
    }

    fn stop(&mut self, mode: Mode) -> &mut Self {
        let cause = Cause::Command;
        self.tell(Event::Stop { cause, mode })
    }

    fn restart(&mut self) -> &mut Self {
        let cause = Cause::Command;
        self.tell(Event::Restart { cause })
    }

    fn up(&mut self, generation: Generation) -> &mut Self {
        self.tell(Event::Spawned {
            generation,
            pid: 100,
        });
        self.tell(Event::Executed { generation });
        self.tell(Event::Opened { generation })
    }

    /// The leader ends, its stdout with it, and nobody is left.
    fn down(&mut self, generation: Generation, status: ExitStatus) -> &mut Self {
        self.tell(Event::Exited { generation, status });
        self.tell(Event::StdoutClosed { generation });
        self.tell(Event::Emptied { generation })
    }

    /// Lets time pass, deadline by deadline.
    fn pass(&mut self, duration: Duration) -> &mut Self {
        let end = self.now() + duration;
        while let Some(due) = self.supervisor.poll_timeout()
            && due <= end
        {
            let due_ms = u64::try_from(due.since_origin().as_millis()).unwrap();
            self.now_ms = self.now_ms.max(due_ms + 1);
            let now = self.now();
            self.supervisor.handle_timeout(now);
            if self.has_turns {
                self.take_turn();
            }
        }
        let end_ms = u64::try_from(end.since_origin().as_millis()).unwrap();
        self.now_ms = self.now_ms.max(end_ms);
        self
    }

    fn actions(&mut self) -> Vec<Action> {
        std::iter::from_fn(|| self.supervisor.poll_action()).collect()
    }

    /// What the shell has to do, without what is only told.
    fn deeds(&mut self) -> Vec<Action> {
        let mut actions = self.actions();
        actions.retain(|action| {
            !matches!(
                action,
                Action::Changed { .. }
                    | Action::SetService(_)
                    | Action::Ended(_)
                    | Action::HurryTurn
                    | Action::EndTurn
            )
        });
        actions
    }

    #[track_caller]
    fn check(&self, substate: Substate) {
        assert_eq!(self.supervisor.status().substate, substate);
    }

    fn last(&self) -> EndedRun {
        self.supervisor.status().last_runs.remove(0)
    }
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn exec_failure() -> SpawnFailure {
    SpawnFailure::new(Stage::Exec, Some(2), "/no/such: no such file").with_hint("make it")
}

fn spawn(generation: Generation) -> Action {
    Action::Spawn { generation }
}

#[test]
fn a_start_goes_step_by_step_to_ready() {
    let mut play = Play::new(Policy::default());
    play.check(Substate::NeverStarted);
    play.start().check(Substate::Spawn);
    assert_eq!(play.deeds(), [spawn(ONE)]);
    let generation = ONE;
    play.tell(Event::Spawned { generation, pid: 7 });
    play.check(Substate::Exec);
    play.tell(Event::Executed { generation });
    play.check(Substate::Handshake);
    play.tell(Event::Opened { generation });
    play.check(Substate::Ready);
    assert_eq!(play.supervisor.status().pid, Some(7));
    assert_eq!(play.supervisor.poll_timeout(), None, "idle is idle");
}

#[test]
fn every_transition_is_told_with_its_cause() {
    let mut play = Play::new(Policy::default());
    play.start().up(ONE).stop(Mode::Polite);
    let told: Vec<_> = play
        .actions()
        .into_iter()
        .filter_map(|action| match action {
            Action::Changed { from, to, cause } => Some((from, to, cause)),
            _ => None,
        })
        .collect();
    assert_eq!(
        told,
        [
            (
                Substate::NeverStarted,
                Substate::WaitingForTurn,
                Cause::Boot
            ),
            (Substate::WaitingForTurn, Substate::Spawn, Cause::Turn),
            (Substate::Spawn, Substate::Exec, Cause::Spawned),
            (Substate::Exec, Substate::Handshake, Cause::Executed),
            (Substate::Handshake, Substate::Ready, Cause::Opened),
            (Substate::Ready, Substate::Drain, Cause::Command),
        ]
    );
}

#[test]
fn a_polite_stop_drains_closes_stdin_and_proves() {
    let mut play = Play::ready(Policy::default());
    play.stop(Mode::Polite).check(Substate::Drain);
    assert_eq!(play.deeds(), [Action::Drain]);
    play.tell(Event::Drained { generation: ONE });
    play.check(Substate::StopStdin);
    assert_eq!(play.deeds(), [Action::CloseStdin]);
    play.tell(Event::StdoutClosed { generation: ONE });
    let status = ExitStatus::Code(0);
    let generation = ONE;
    play.tell(Event::Exited { generation, status });
    play.check(Substate::Verify);
    play.tell(Event::Emptied { generation });
    play.check(Substate::Dead);
    let message = "exited with code 0 after 0.0 s".to_owned();
    let gone = Action::ChildGone { message };
    assert_eq!(
        play.deeds(),
        [gone, Action::Verify, Action::Reap, Action::ClosePipes]
    );
    let last = play.last();
    assert_eq!(last.result, RunResult::Success);
    assert_eq!(last.ended_by, Some(Substate::StopStdin));
}

#[test]
fn a_stop_that_nothing_helps_goes_through_every_step_to_unkillable() {
    let policy = Policy {
        stop_command: Some(vec!["docker".into()]),
        ..Policy::default()
    };
    let limit = policy.stop_timeout;
    let mut play = Play::ready(policy.clone());
    play.stop(Mode::Polite);
    assert_eq!(play.deeds(), [Action::Drain]);
    play.pass(policy.drain_timeout + seconds(1));
    let reason = CancelReason::ServerStopping;
    assert_eq!(
        play.deeds(),
        [Action::CancelOpen { reason }, Action::CloseStdin]
    );
    play.pass(limit).check(Substate::StopSigterm);
    assert_eq!(play.deeds(), [Action::RunStopCommand { limit }]);
    play.pass(limit).check(Substate::StopSigterm);
    assert_eq!(play.deeds(), [Action::Signal(StopSignal::Term)]);
    play.pass(limit).check(Substate::StopSigkill);
    assert_eq!(play.deeds(), [Action::Signal(StopSignal::Kill)]);
    play.pass(VERIFY_TIMEOUT).check(Substate::Unkillable);
    let status = play.supervisor.status();
    assert_eq!(status.message, "outlived SIGKILL: process 100");
}

/// Fault 25.
#[test]
fn nothing_starts_before_an_unkillable_one_is_gone() {
    let mut play = Play::ready(Policy::default());
    play.stop(Mode::Kill).pass(seconds(3));
    play.check(Substate::Unkillable);
    let stop = play.supervisor.status().stop;
    assert_eq!(stop.map(|stop| stop.holders), Some(vec![100]), "the leader");
    play.actions();
    play.start().restart().tell(Event::Demand).pass(seconds(60));
    play.check(Substate::Unkillable);
    assert!(
        play.deeds()
            .iter()
            .all(|it| *it == Action::Signal(StopSignal::Sweep))
    );
    play.tell(Event::Exited {
        generation: ONE,
        status: KILLED,
    });
    play.pass(UNKILLABLE_LOOK);
    assert!(play.deeds().contains(&Action::Verify));
    play.tell(Event::Holders {
        generation: ONE,
        pids: vec![8, 9],
    });
    assert_eq!(
        play.supervisor.status().message,
        "outlived SIGKILL: process 8, 9"
    );
    play.tell(Event::Emptied { generation: ONE });
    play.check(Substate::Spawn);
    assert_eq!(play.deeds(), [Action::Reap, Action::ClosePipes, spawn(TWO)]);
}

#[test]
fn an_end_for_want_of_memory_is_told_as_such() {
    let check = |oom: bool, status, expected| {
        let mut play = Play::ready(Policy::default());
        if oom {
            play.tell(Event::OomKilled { generation: ONE });
        }
        play.pass(seconds(3)).down(ONE, status);
        let run = play.last();
        assert_eq!((run.result, run.message.as_str()), expected);
    };
    let oom = "killed by the kernel after 3.0 s: out of memory";
    check(true, KILLED, (RunResult::OomKill, oom));
    let killed = "ended by signal 9 (SIGKILL) after 3.0 s";
    check(false, KILLED, (RunResult::Signal, killed));
    // It was another of its processes, and this one ended for a reason of its own.
    let crashed = "exited with code 1 after 3.0 s";
    check(true, CRASH, (RunResult::ExitCode, crashed));
}

/// A kill of ours stays ours, whatever the kernel did before.
#[test]
fn a_kill_that_was_ordered_is_no_end_for_want_of_memory() {
    let mut play = Play::ready(Policy::default());
    play.tell(Event::OomKilled { generation: ONE });
    play.stop(Mode::Kill).down(ONE, KILLED);
    assert_eq!(play.last().result, RunResult::Success);
}

#[test]
fn a_second_stop_with_kill_jumps() {
    let mut play = Play::ready(Policy::default());
    play.stop(Mode::Polite).actions();
    play.stop(Mode::Kill).check(Substate::StopSigkill);
    let reason = CancelReason::ServerStopping;
    assert_eq!(
        play.deeds(),
        [
            Action::CancelOpen { reason },
            Action::CloseStdin,
            Action::Signal(StopSignal::Kill)
        ]
    );
    play.down(ONE, KILLED).check(Substate::Dead);
    assert_eq!(play.last().result, RunResult::Success);
}

#[test]
fn a_shutdown_tells_open_calls_so_and_is_final() {
    let mut play = Play::ready(Policy::default());
    play.tell(Event::Shutdown { mode: Mode::Polite });
    play.pass(seconds(2));
    let reason = CancelReason::DaemonEnding;
    assert!(play.deeds().contains(&Action::CancelOpen { reason }));
    play.down(ONE, TERMINATED).check(Substate::Dead);
    play.actions();
    play.start()
        .restart()
        .tell(Event::Demand)
        .tell(Event::ResetFailed);
    assert_eq!(play.deeds(), []);
    assert_eq!(play.supervisor.status().message, "mcpd is ending");
}

#[test]
fn a_signal_that_was_ours_is_no_failure_and_a_kill_is_told() {
    let mut play = Play::ready(Policy::default());
    play.stop(Mode::Polite).pass(seconds(8));
    play.check(Substate::StopSigterm);
    play.down(ONE, TERMINATED);
    assert_eq!(play.last().result, RunResult::Success);
    let mut play = Play::ready(Policy::default());
    play.stop(Mode::Polite).pass(seconds(13));
    play.check(Substate::StopSigkill);
    play.down(ONE, KILLED);
    assert_eq!(play.last().result, RunResult::Signal);
    assert_eq!(play.last().ended_by, Some(Substate::StopSigkill));
}

#[test]
fn whoever_outlives_the_leader_is_terminated_and_killed() {
    let mut play = Play::ready(Policy::default());
    let generation = ONE;
    play.tell(Event::Exited {
        generation,
        status: CRASH,
    });
    assert_eq!(play.deeds(), [Action::CloseStdin, Action::Verify]);
    let pids = vec![8];
    play.tell(Event::Holders { generation, pids });
    assert_eq!(play.deeds(), [Action::Signal(StopSignal::Term)]);
    play.pass(seconds(1));
    assert!(play.deeds().contains(&Action::Verify));
    play.pass(seconds(5)).check(Substate::Verify);
    assert!(play.deeds().contains(&Action::Signal(StopSignal::Kill)));
    play.tell(Event::Emptied { generation });
    play.check(Substate::AutoRestart);
}

#[test]
fn stdout_may_end_a_second_before_the_process() {
    let mut play = Play::ready(Policy::default());
    let generation = ONE;
    play.tell(Event::StdoutClosed { generation });
    play.pass(Duration::from_millis(900)).check(Substate::Ready);
    assert_eq!(play.deeds(), []);
    play.pass(Duration::from_millis(200))
        .check(Substate::StopStdin);
    let message = "closed its stdout".to_owned();
    assert_eq!(
        play.deeds(),
        [Action::ChildGone { message }, Action::CloseStdin],
        "no drain"
    );
    play.down(ONE, ExitStatus::Code(0))
        .check(Substate::AutoRestart);
    assert_eq!(play.last().result, RunResult::Protocol);
}

#[test]
fn a_child_that_reads_no_more_is_ended_like_one_that_says_no_more() {
    let mut play = Play::ready(Policy::default());
    let generation = ONE;
    play.tell(Event::StdinBroken { generation });
    play.pass(Duration::from_millis(900)).check(Substate::Ready);
    play.pass(Duration::from_millis(200))
        .check(Substate::StopStdin);
    let message = "closed its stdin".to_owned();
    assert!(play.deeds().contains(&Action::ChildGone { message }));
    play.down(ONE, ExitStatus::Code(0))
        .check(Substate::AutoRestart);
    assert_eq!(play.last().message, "closed its stdin and did not end");
}

#[test]
fn stdout_that_closes_during_a_drain_ends_the_drain() {
    let policy = Policy {
        drain_timeout: seconds(60),
        ..Policy::default()
    };
    let mut play = Play::ready(policy);
    play.stop(Mode::Polite);
    play.tell(Event::StdoutClosed { generation: ONE });
    play.pass(seconds(2)).check(Substate::StopStdin);
    play.down(ONE, ExitStatus::Code(0)).check(Substate::Dead);
}

#[test]
fn answers_in_the_pipe_have_their_time_after_the_exit() {
    let mut play = Play::ready(Policy::default());
    let generation = ONE;
    play.tell(Event::Exited {
        generation,
        status: CRASH,
    });
    play.tell(Event::Emptied { generation });
    play.pass(Duration::from_millis(200))
        .check(Substate::Verify);
    assert!(
        !play
            .deeds()
            .iter()
            .any(|it| matches!(it, Action::ChildGone { .. }))
    );
    play.pass(Duration::from_millis(100))
        .check(Substate::AutoRestart);
    let message = "exited with code 1 after 0.0 s".to_owned();
    assert_eq!(
        play.deeds(),
        [Action::ChildGone { message }, Action::ClosePipes]
    );
}

#[test]
fn a_proof_older_than_the_exit_proves_nothing() {
    let mut play = Play::ready(Policy::default());
    play.tell(Event::Emptied { generation: ONE });
    play.check(Substate::Ready);
    assert_eq!(play.deeds(), []);
}

#[test]
fn whoever_is_found_after_the_kill_is_killed_too() {
    let mut play = Play::ready(Policy::default());
    let generation = ONE;
    play.stop(Mode::Kill);
    play.tell(Event::Exited {
        generation,
        status: KILLED,
    });
    play.actions();
    for pid in 8..16 {
        let pids = vec![pid];
        play.tell(Event::Holders { generation, pids });
        // Two rounds are for those who were slow to die; then somebody forks.
        let signal = match pid {
            8 | 9 => StopSignal::Kill,
            _ => StopSignal::Sweep,
        };
        assert_eq!(play.deeds(), [Action::Signal(signal)]);
        play.pass(Duration::from_millis(170))
            .check(Substate::Verify);
        assert!(play.deeds().contains(&Action::Verify));
    }
}

#[test]
fn a_program_that_cannot_run_fails_at_once_and_is_retried_on_demand_once_a_minute() {
    let mut play = Play::new(Policy::default());
    play.start().actions();
    let generation = ONE;
    let failure = exec_failure();
    play.tell(Event::Spawned { generation, pid: 7 });
    play.tell(Event::SpawnFailed {
        generation,
        failure,
    });
    play.down(ONE, ExitStatus::Code(127))
        .check(Substate::ExecFailed);
    let status = play.supervisor.status();
    assert_eq!(status.result, RunResult::Resources);
    assert_eq!(status.message, "/no/such: no such file");
    assert_eq!(status.hint.as_deref(), Some("make it"));
    play.pass(seconds(30)).tell(Event::Demand);
    play.check(Substate::ExecFailed);
    play.actions();
    play.pass(seconds(31));
    assert_eq!(play.actions(), [Action::SetService(ServiceHint::OnDemand)]);
    play.tell(Event::Demand).check(Substate::Spawn);
    let failure = exec_failure();
    play.tell(Event::SpawnFailed {
        generation: TWO,
        failure,
    });
    play.tell(Event::Demand).check(Substate::ExecFailed);
    play.restart().check(Substate::Spawn);
}

#[test]
fn a_configuration_that_cannot_be_expanded_waits_for_an_edit() {
    let mut play = Play::new(Policy::default());
    play.start();
    let failure = SpawnFailure::new(Stage::Configuration, None, "${NOPE} in `args` is not set");
    play.tell(Event::SpawnFailed {
        generation: ONE,
        failure,
    });
    play.check(Substate::ConfigFailed);
    play.pass(seconds(3600)).tell(Event::Demand);
    play.check(Substate::ConfigFailed);
    let policy = Box::default();
    play.tell(Event::Reconfigured {
        restart: true,
        policy,
    });
    play.check(Substate::Spawn);
}

#[test]
fn a_lack_of_resources_is_retried_by_the_clock() {
    let mut play = Play::new(Policy::default());
    play.start();
    let failure = SpawnFailure::new(Stage::Spawn, Some(11), "cannot make a process");
    play.tell(Event::SpawnFailed {
        generation: ONE,
        failure,
    });
    play.check(Substate::AutoRestart);
    play.pass(seconds(2)).check(Substate::Spawn);
}

/// Fault 4.
#[test]
fn unstable_runs_back_off_and_are_given_up() {
    let mut play = Play::new(Policy::default());
    play.start();
    for run in 1..=10 {
        let generation = Generation(run);
        play.up(generation).down(generation, CRASH);
        assert_eq!(
            play.supervisor.status().unstable_runs,
            u32::try_from(run).unwrap()
        );
        if run < 10 {
            play.check(Substate::AutoRestart);
            play.tell(Event::Demand).check(Substate::AutoRestart);
            play.pass(seconds(73)).check(Substate::Spawn);
        }
    }
    play.check(Substate::StartLimitHit);
    let status = play.supervisor.status();
    assert_eq!(status.result, RunResult::StartLimitHit);
    assert!(
        status.message.contains("10 unstable runs"),
        "{}",
        status.message
    );
    // Half open: one demand, one try, and back.
    play.pass(seconds(61)).tell(Event::Demand);
    play.check(Substate::Spawn);
    let generation = Generation(11);
    play.up(generation).down(generation, CRASH);
    play.check(Substate::StartLimitHit);
    play.tell(Event::ResetFailed).check(Substate::Spawn);
    assert_eq!(play.supervisor.status().unstable_runs, 0);
}

/// Faults 7 and 8.
#[test]
fn a_stable_run_is_followed_at_once_and_a_short_one_is_not() {
    for (ready_s, stable) in [(61, true), (59, false)] {
        let mut play = Play::ready(Policy::default());
        play.pass(seconds(ready_s)).down(ONE, CRASH);
        play.check(Substate::AutoRestart);
        let status = play.supervisor.status();
        let wait = status.next_attempt_at.unwrap().since(play.now());
        assert_eq!(wait <= Duration::from_millis(100), stable, "{wait:?}");
        assert_eq!(play.last().stable, stable);
    }
}

#[test]
fn restart_has_the_meaning_of_systemd() {
    use Restart::{Always, No, OnFailure};
    for (restart, status, substate) in [
        (Always, ExitStatus::Code(0), Substate::AutoRestart),
        (OnFailure, ExitStatus::Code(0), Substate::Exited),
        (OnFailure, CRASH, Substate::AutoRestart),
        (No, CRASH, Substate::Exited),
    ] {
        let mut play = Play::ready(Policy {
            restart,
            ..Policy::default()
        });
        play.down(ONE, status).check(substate);
        play.tell(Event::Demand).check(substate);
        play.restart().check(Substate::Spawn);
    }
}

#[test]
fn a_start_that_takes_too_long_is_ended_without_a_drain() {
    let mut play = Play::new(Policy::default());
    let generation = ONE;
    play.start().tell(Event::Spawned { generation, pid: 7 });
    play.tell(Event::Executed { generation }).actions();
    play.pass(seconds(89)).check(Substate::Handshake);
    play.pass(seconds(2)).check(Substate::StopStdin);
    assert_eq!(play.deeds(), [Action::CloseStdin]);
    play.down(ONE, TERMINATED).check(Substate::AutoRestart);
    let last = play.last();
    assert_eq!(last.result, RunResult::Timeout);
    assert_eq!(
        last.message,
        "start_timeout (90 s) passed before it had answered `initialize`"
    );
}

#[test]
fn a_refused_opening_is_an_unstable_run() {
    let mut play = Play::new(Policy::default());
    let generation = ONE;
    play.start().tell(Event::Spawned { generation, pid: 7 });
    play.tell(Event::Executed { generation });
    play.tell(Event::OpeningFailed {
        generation,
        detail: "refused `initialize`: -32602 no".to_owned(),
    });
    play.check(Substate::StopStdin);
    play.down(ONE, ExitStatus::Code(0))
        .check(Substate::AutoRestart);
    assert_eq!(play.last().result, RunResult::Protocol);
    assert_eq!(play.last().message, "refused `initialize`: -32602 no");
}

#[test]
fn an_end_that_is_excused_is_not_counted_and_the_next_start_is_at_once() {
    for restart in [Restart::Always, Restart::No] {
        let mut play = Play::new(Policy {
            restart,
            ..Policy::default()
        });
        let (generation, excused) = (ONE, true);
        play.start().tell(Event::Spawned { generation, pid: 7 });
        play.tell(Event::Executed { generation });
        play.tell(Event::Excused {
            generation,
            excused,
        });
        play.down(ONE, CRASH).check(Substate::Spawn);
        let status = play.supervisor.status();
        assert_eq!((status.generation, status.unstable_runs), (TWO, 0));
    }
}

#[test]
fn an_excuse_that_is_taken_back_or_meets_an_order_counts_for_nothing() {
    let executed = || {
        let mut play = Play::new(Policy::default());
        let (generation, excused) = (ONE, true);
        play.start().tell(Event::Spawned { generation, pid: 7 });
        play.tell(Event::Executed { generation });
        play.tell(Event::Excused {
            generation,
            excused,
        });
        play
    };
    let mut play = executed();
    play.tell(Event::Excused {
        generation: ONE,
        excused: false,
    });
    play.down(ONE, CRASH).check(Substate::AutoRestart);
    executed()
        .stop(Mode::Polite)
        .down(ONE, CRASH)
        .check(Substate::Dead);
    let mut play = executed();
    play.pass(seconds(91)).check(Substate::StopStdin);
    play.down(ONE, TERMINATED).check(Substate::AutoRestart);
}

#[test]
fn an_exit_before_ready_says_so() {
    let mut play = Play::new(Policy::default());
    play.start().tell(Event::Spawned {
        generation: ONE,
        pid: 7,
    });
    play.tell(Event::Executed { generation: ONE });
    play.pass(Duration::from_millis(400)).down(ONE, CRASH);
    assert_eq!(
        play.last().message,
        "exited with code 1 after 0.4 s, before it had answered `initialize`"
    );
}

#[test]
fn a_stop_during_a_spawn_waits_for_the_answer() {
    let mut play = Play::new(Policy::default());
    play.start().actions();
    play.stop(Mode::Polite).check(Substate::StopStdin);
    assert_eq!(play.deeds(), [Action::CancelSpawn], "nothing to signal yet");
    play.tell(Event::Spawned {
        generation: ONE,
        pid: 7,
    });
    assert_eq!(play.deeds(), [Action::CloseStdin]);
    play.down(ONE, ExitStatus::Code(0)).check(Substate::Dead);
}

#[test]
fn a_start_that_was_called_off_is_over_with_its_answer() {
    let mut play = Play::new(Policy::default());
    play.start().stop(Mode::Polite);
    play.tell(Event::SpawnFailed {
        generation: ONE,
        failure: SpawnFailure::new(Stage::Environment, None, "the start was called off"),
    });
    play.check(Substate::Dead);
    play.start().check(Substate::Spawn);
}

#[test]
fn a_launcher_that_never_answers_holds_the_next_start() {
    let mut play = Play::new(Policy::default());
    play.start().stop(Mode::Kill);
    play.pass(SPAWN_ANSWER_TIMEOUT).pass(seconds(1));
    play.check(Substate::Unkillable);
    play.start().check(Substate::Unkillable);
    play.actions();
    play.tell(Event::Spawned {
        generation: ONE,
        pid: 7,
    });
    assert_eq!(
        play.deeds(),
        [Action::CloseStdin, Action::Signal(StopSignal::Kill)]
    );
    play.down(ONE, KILLED);
    play.check(Substate::Spawn);
}

#[test]
fn a_start_during_a_stop_follows_it() {
    let mut play = Play::ready(Policy::default());
    play.stop(Mode::Polite).actions();
    play.start();
    let hint = play.actions();
    assert_eq!(
        hint,
        [Action::SetService(ServiceHint::Holding { ordered: true })]
    );
    play.down(ONE, ExitStatus::Code(0)).check(Substate::Spawn);
    assert_eq!(play.supervisor.generation(), TWO);
}

#[test]
fn a_stop_during_a_restart_wins() {
    let mut play = Play::ready(Policy::default());
    play.restart().stop(Mode::Polite);
    play.down(ONE, ExitStatus::Code(0)).check(Substate::Dead);
}

#[test]
fn an_edit_waits_longer_for_calls_and_stays_running() {
    let mut play = Play::ready(Policy::default());
    let edit = |restart| Event::Reconfigured {
        restart,
        policy: Box::default(),
    };
    play.tell(edit(false)).check(Substate::Ready);
    assert_eq!(play.deeds(), []);
    play.tell(edit(true)).check(Substate::DrainingForReload);
    play.pass(Policy::default().reload_drain_timeout - seconds(1));
    play.check(Substate::DrainingForReload);
    play.stop(Mode::Polite).pass(seconds(2));
    play.check(Substate::StopStdin);
}

#[test]
fn a_live_edit_moves_the_deadline_of_a_start() {
    let mut play = Play::new(Policy::default());
    play.start().tell(Event::Spawned {
        generation: ONE,
        pid: 7,
    });
    let policy = Box::new(Policy {
        start_timeout: seconds(300),
        ..Policy::default()
    });
    play.tell(Event::Reconfigured {
        restart: false,
        policy,
    });
    play.pass(seconds(200)).check(Substate::Exec);
}

#[test]
fn a_removed_server_stays_down_until_it_returns() {
    let mut play = Play::ready(Policy::default());
    play.tell(Event::Remove).check(Substate::Drain);
    play.down(ONE, ExitStatus::Code(0)).check(Substate::Dead);
    play.start().check(Substate::Dead);
    assert_eq!(play.supervisor.status().message, "its file was removed");
    let policy = Box::default();
    play.tell(Event::Reconfigured {
        restart: true,
        policy,
    });
    play.start().check(Substate::Spawn);
}

#[test]
fn a_disabled_server_says_so() {
    let mut play = Play::new(Policy::default());
    play.tell(Event::Stop {
        cause: Cause::Disabled,
        mode: Mode::Polite,
    });
    play.check(Substate::Disabled);
    play.tell(Event::Demand).check(Substate::Disabled);
}

#[test]
fn a_demand_starts_what_was_never_started() {
    let mut play = Play::new(Policy::default());
    play.tell(Event::Demand).check(Substate::Spawn);
}

#[test]
fn a_failure_of_ours_is_an_internal_error() {
    let mut play = Play::ready(Policy::default());
    play.tell(Event::Broken {
        generation: ONE,
        detail: "the worker broke".to_owned(),
    });
    play.down(ONE, TERMINATED).check(Substate::AutoRestart);
    assert_eq!(play.last().result, RunResult::InternalError);
}

#[test]
fn the_stop_command_is_followed_by_the_signal() {
    let mut play = Play::ready(Policy {
        stop_command: Some(vec!["docker".into()]),
        ..Policy::default()
    });
    play.stop(Mode::Polite).pass(seconds(8)).actions();
    play.tell(Event::StopCommandEnded { generation: ONE });
    assert_eq!(play.deeds(), [Action::Signal(StopSignal::Term)]);
}

#[test]
fn results_follow_the_exit() {
    let core = ExitStatus::Signal {
        number: 11,
        core_dumped: true,
    };
    for (status, result, words) in [
        (
            ExitStatus::Code(0),
            RunResult::Success,
            "exited with code 0",
        ),
        (CRASH, RunResult::ExitCode, "exited with code 1"),
        (KILLED, RunResult::Signal, "ended by signal 9 (SIGKILL)"),
        (
            core,
            RunResult::CoreDump,
            "ended by signal 11 (SIGSEGV), core dumped",
        ),
    ] {
        let mut play = Play::ready(Policy::default());
        play.down(ONE, status);
        assert_eq!(play.last().result, result);
        assert!(play.last().message.starts_with(words));
    }
}

#[test]
fn no_more_runs_are_kept_than_are_shown() {
    let mut play = Play::ready(Policy::default());
    for run in 1..20 {
        play.down(Generation(run), CRASH).restart();
        play.up(Generation(run + 1));
    }
    let status = play.supervisor.status();
    assert_eq!(status.last_runs.len(), KEPT_RUNS);
    assert_eq!(status.last_runs[0].generation, Generation(19));
    assert_eq!(status.restarts, 19);
}

/// A supervisor whose turns come when the test says so.
fn waiting(cause: Cause) -> Play {
    let mut play = Play::new(Policy::default());
    play.has_turns = false;
    play.tell(Event::Start { cause });
    play.check(Substate::WaitingForTurn);
    play
}

fn turns(play: &mut Play) -> Vec<Action> {
    let mut actions = play.actions();
    actions.retain(|action| {
        matches!(
            action,
            Action::AskTurn { .. } | Action::HurryTurn | Action::EndTurn | Action::Spawn { .. }
        )
    });
    actions
}

#[test]
fn nothing_is_spawned_before_its_turn_and_the_start_counts_from_there() {
    let mut play = waiting(Cause::Boot);
    let ask = Action::AskTurn { is_awaited: false };
    assert_eq!(turns(&mut play), [ask]);
    play.pass(seconds(1_000));
    play.check(Substate::WaitingForTurn);
    play.tell(Event::TurnCame);
    assert_eq!(turns(&mut play), [spawn(ONE)]);
    play.pass(seconds(89)).check(Substate::Spawn);
    play.up(ONE);
    assert_eq!(turns(&mut play), [Action::EndTurn]);
}

#[test]
fn a_start_that_somebody_waits_for_says_so() {
    let mut play = waiting(Cause::Command);
    assert_eq!(turns(&mut play), [Action::AskTurn { is_awaited: true }]);
    let mut play = waiting(Cause::Boot);
    turns(&mut play);
    play.tell(Event::Demand);
    assert_eq!(turns(&mut play), [Action::HurryTurn]);
    play.start();
    assert_eq!(turns(&mut play), []);
    let cause = Cause::Command;
    play.tell(Event::Restart { cause });
    assert_eq!(turns(&mut play), [Action::HurryTurn]);
}

/// Fault 35: a stop before the turn has come leaves nothing to end.
#[test]
fn a_stop_gives_the_turn_back() {
    for event in [
        Event::Stop {
            cause: Cause::Command,
            mode: Mode::Polite,
        },
        Event::Remove,
        Event::Shutdown { mode: Mode::Kill },
    ] {
        let mut play = waiting(Cause::Boot);
        turns(&mut play);
        play.tell(event).check(Substate::Dead);
        assert_eq!(turns(&mut play), [Action::EndTurn]);
        play.tell(Event::TurnCame).check(Substate::Dead);
        assert_eq!(turns(&mut play), []);
    }
}

#[test]
fn a_start_that_fails_holds_its_turn_until_nothing_of_it_is_left() {
    let mut play = waiting(Cause::Boot);
    play.tell(Event::TurnCame);
    play.tell(Event::Spawned {
        generation: ONE,
        pid: 1,
    });
    play.tell(Event::Executed { generation: ONE });
    turns(&mut play);
    play.pass(seconds(91)).check(Substate::StopStdin);
    assert_eq!(turns(&mut play), []);
    play.down(ONE, CRASH).check(Substate::AutoRestart);
    assert_eq!(turns(&mut play), [Action::EndTurn]);
}

#[test]
fn a_restart_of_a_start_asks_for_another_turn() {
    let mut play = waiting(Cause::Boot);
    play.tell(Event::TurnCame);
    play.tell(Event::Spawned {
        generation: ONE,
        pid: 1,
    });
    turns(&mut play);
    play.restart().down(ONE, TERMINATED);
    play.check(Substate::WaitingForTurn);
    let asked = Action::AskTurn { is_awaited: false };
    assert_eq!(turns(&mut play), [Action::EndTurn, asked]);
}

#[test]
fn what_is_offered_starts_on_demand() {
    let mut play = Play::new(Policy::default());
    play.tell(Event::Offer { cause: Cause::Boot });
    play.check(Substate::NeverStarted);
    assert_eq!(play.deeds(), []);
    play.tell(Event::Demand).check(Substate::Spawn);

    // What is stopped by a person is offered again by an edit only.
    let mut play = Play::ready(Policy::default());
    play.stop(Mode::Polite);
    play.tell(Event::Drained { generation: ONE });
    play.down(ONE, TERMINATED).check(Substate::Dead);
    play.tell(Event::Demand).check(Substate::Dead);
    play.tell(Event::Offer { cause: Cause::Edit });
    play.tell(Event::Demand).check(Substate::Spawn);
}

#[test]
fn an_idle_child_is_ended_and_a_demand_brings_it_back() {
    let mut play = Play::ready(Policy::default());
    play.tell(Event::Idle).check(Substate::Drain);
    play.tell(Event::Drained { generation: ONE });
    play.down(ONE, TERMINATED).check(Substate::IdleStopped);
    let hinted = |action: &Action| matches!(action, Action::SetService(ServiceHint::OnDemand));
    assert!(
        play.actions().iter().any(hinted),
        "hosts may ask all the time"
    );
    play.tell(Event::Demand).check(Substate::Spawn);
    play.up(TWO).check(Substate::Ready);
}

#[test]
fn a_demand_while_an_idle_child_is_ended_is_served_by_the_next() {
    let mut play = Play::ready(Policy::default());
    play.tell(Event::Idle);
    play.tell(Event::Demand);
    play.tell(Event::Drained { generation: ONE });
    play.down(ONE, TERMINATED).check(Substate::Spawn);
    assert!(play.supervisor.status().desired_up);
}

#[test]
fn only_what_serves_can_be_idle() {
    let mut play = Play::new(Policy::default());
    play.tell(Event::Idle).check(Substate::NeverStarted);
    play.start();
    play.tell(Event::Idle).check(Substate::Spawn);
}

/// Fault 37: where the machine has no process, memory or descriptor left, the start is tried again.
#[test]
fn a_launcher_that_lacks_what_it_needs_is_tried_again() {
    for (stage, errno) in [(Stage::Spawn, 11), (Stage::Spawn, 12), (Stage::Pipe, 24)] {
        let mut play = Play::new(Policy::default());
        play.start();
        play.tell(Event::SpawnFailed {
            generation: ONE,
            failure: SpawnFailure::new(stage, Some(errno), "no"),
        });
        play.check(Substate::AutoRestart);
        assert_eq!(play.last().result, RunResult::Resources);
        play.pass(seconds(2)).check(Substate::Spawn);
        play.up(TWO).check(Substate::Ready);
    }
}
