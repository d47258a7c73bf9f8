//! What is known of the living generation, and the sentence that will be told about its end.
//!
//! Collects facts as they come; decides how a run counts (stable or not, which result). Never
//! decides what happens next.

use std::time::Duration;

use super::failure::SpawnFailure;
use super::state::{EndedRun, ExitStatus, RunResult, Substate};
use crate::ids::Generation;
use crate::time::Moment;

/// One run, from the order to spawn to the proof that nothing is left.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) generation: Generation,
    pub(super) pid: Option<u32>,
    pub(super) requested_at: Moment,
    pub(super) spawned_at: Option<Moment>,
    pub(super) executed_at: Option<Moment>,
    pub(super) ready_at: Option<Moment>,
    pub(super) exit: Option<(ExitStatus, Moment)>,
    /// The kernel killed some of it for want of memory.
    pub(super) oom_killed: bool,
    pub(super) stdout_closed_at: Option<Moment>,
    pub(super) stdin_broken_at: Option<Moment>,
    /// `ChildGone` was told.
    pub(super) told_gone: bool,
    /// The proof was given and the leader is reaped.
    pub(super) emptied: bool,
    /// The first cause of an end that nobody ordered, apart from the exit itself.
    pub(super) verdict: Option<(RunResult, String)>,
    pub(super) failure: Option<SpawnFailure>,
    /// When the end began, by an order or by itself.
    pub(super) ending_at: Option<Moment>,
    /// The end was ordered before the run failed by itself.
    pub(super) ordered: bool,
    /// Its end by itself would not be its fault.
    pub(super) excused: bool,
    /// The order was to kill at once.
    pub(super) kill_ordered: bool,
    pub(super) ended_by: Option<Substate>,
}

impl Run {
    pub(super) fn new(generation: Generation, now: Moment) -> Self {
        Self {
            generation,
            pid: None,
            requested_at: now,
            spawned_at: None,
            executed_at: None,
            ready_at: None,
            exit: None,
            oom_killed: false,
            stdout_closed_at: None,
            stdin_broken_at: None,
            told_gone: false,
            emptied: false,
            verdict: None,
            failure: None,
            ending_at: None,
            ordered: false,
            kill_ordered: false,
            excused: false,
            ended_by: None,
        }
    }

    /// It ended by itself, and that is not its fault.
    pub(super) fn is_excused(&self) -> bool {
        self.excused && self.exit.is_some() && self.verdict.is_none() && self.failure.is_none()
    }

    /// It was ready for `stable_after` when its end began.
    pub(super) fn is_stable(&self, stable_after: Duration, now: Moment) -> bool {
        self.ready_at
            .is_some_and(|ready| self.ending_at.unwrap_or(now).since(ready) >= stable_after)
    }

    /// The pipe that it gave up before it ended.
    pub(super) fn closed_pipe(&self) -> &'static str {
        match (self.stdin_broken_at, self.stdout_closed_at) {
            (Some(_), None) => "stdin",
            _ => "stdout",
        }
    }

    /// Whether the leader's end was the kernel's doing, and not that of a SIGKILL of ours.
    fn ended_by_oom(&self) -> bool {
        let killed = matches!(self.exit, Some((ExitStatus::Signal { number: 9, .. }, _)));
        self.oom_killed && killed && self.ended_by != Some(Substate::StopSigkill)
    }

    /// systemd's result. An ordered end that went the ordered way is a success, whatever signal
    /// or exit code it took (`143` is how shells and Java spell SIGTERM).
    pub(super) fn result(&self) -> RunResult {
        if let Some((result, _)) = &self.verdict {
            return *result;
        }
        let Some((status, _)) = self.exit else {
            return RunResult::Success;
        };
        if self.ended_by_oom() {
            return RunResult::OomKill;
        }
        let as_ordered = match (status, self.ended_by) {
            (_, Some(Substate::StopSigkill)) => self.kill_ordered,
            (ExitStatus::Signal { number: 15, .. } | ExitStatus::Code(143), by) => {
                by == Some(Substate::StopSigterm)
            }
            _ => false,
        };
        if self.ordered && as_ordered {
            RunResult::Success
        } else {
            status.result()
        }
    }

    /// One sentence without a full stop.
    pub(super) fn message(&self) -> String {
        let ended = self.exit.map(|(status, at)| {
            let uptime = render_seconds(at.since(self.spawned_at.unwrap_or(at)));
            let early = match self.ready_at {
                None if !self.ordered && self.verdict.is_none() => {
                    ", before it had answered `initialize`"
                }
                _ => "",
            };
            match self.ended_by_oom() {
                true => format!("killed by the kernel after {uptime}: out of memory{early}"),
                false => format!("{status} after {uptime}{early}"),
            }
        });
        match (&self.verdict, ended) {
            (Some((_, verdict)), _) => verdict.clone(),
            (None, Some(ended)) => ended,
            (None, None) => "ended before it was started".to_owned(),
        }
    }

    pub(super) fn into_ended(self, stable_after: Duration, now: Moment) -> EndedRun {
        let ended_at = self.exit.map_or(now, |(_, at)| at);
        EndedRun {
            generation: self.generation,
            status: self.exit.map(|(status, _)| status),
            result: self.result(),
            message: self.message(),
            ended_at,
            uptime: self
                .spawned_at
                .map_or(Duration::ZERO, |at| ended_at.since(at)),
            stable: self.is_stable(stable_after, now),
            ended_by: self.ended_by,
        }
    }
}

/// `0.4 s`, `12 s`, `3 min`, `2 h`: as exact as a person wants it.
pub(super) fn render_seconds(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..10 => format!("{:.1} s", duration.as_secs_f64()),
        10..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3600),
    }
}
