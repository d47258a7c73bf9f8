//! What a worker shows of itself.
//!
//! A snapshot is published when a state changes or somebody asks; readers never wait for it.
//! Decides nothing: it is the cores' own words in the types of the control socket.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::config::resolve::shown_launch;
use crate::config::spec::Start;
use crate::control::{
    AttachmentStatus, CallsStatus, ConfigStatus, ConfigVerdict, Desired, ExecStatus, ExitStatus,
    ProcessStatus, ProtocolStatus, RunResult, ServerStatus, State, StopStatus, StopStep, Substate,
};
use crate::protocol::Era;
use crate::session::{HostSnapshot, MuxSnapshot, Turn};
use crate::supervise::state::EndedRun;
use crate::supervise::{self, SupervisorStatus};
use crate::time::Moment;

use super::super::clock;
use super::super::containment::limits_status;
use super::Worker;
use crate::instance::Verdict;

/// Lines of standard error that `status` shows.
const STATUS_LINES: usize = 10;
/// Lines of standard error that an error towards a host carries.
const ERROR_LINES: usize = 5;

/// What a worker published.
#[derive(Clone, Debug, Default)]
pub(crate) struct Published {
    pub(crate) status: ServerStatus,
}

impl Published {
    /// Whether no child is alive and none is coming by itself.
    pub(crate) fn has_no_child(&self) -> bool {
        let is_at_rest = matches!(self.status.state, State::Stopped | State::Failed);
        is_at_rest && self.status.pid.is_none() && !self.is_unkillable()
    }

    pub(crate) fn is_unkillable(&self) -> bool {
        self.status.substate == Substate::Unkillable
    }

    /// Whether nothing has happened to the child between the two.
    pub(crate) fn same_run(&self, before: &Self) -> bool {
        self.status.state == before.status.state
            && self.status.generation == before.status.generation
    }
}

impl Worker {
    /// Something that `status` shows has changed.
    pub(super) fn mark_changed(&mut self) {
        self.changed = true;
    }

    /// Publishes if something has changed, then acknowledges the commands that led to it.
    pub(super) fn publish(&mut self) {
        if !std::mem::take(&mut self.changed) {
            return;
        }
        let published = Arc::new(Published {
            status: self.status(clock::now()),
        });
        let setting = self.core.setting();
        let is_needed = !setting.is_absent() && !setting.owner.is_part();
        let unneeded = !is_needed && published.has_no_child();
        let state = published.status.state;
        if self.publisher.send_replace(published).status.state != state {
            self.shared.states_changed.notify_one();
            self.shared.states_to_record.notify_one();
        }
        for acknowledge in self.unacknowledged.drain(..) {
            // Whoever waited may have left.
            acknowledge.send(()).unwrap_or(());
        }
        if unneeded {
            self.shared.worker_unneeded();
        }
    }

    fn status(&self, now: Moment) -> ServerStatus {
        let supervisor = self.core.supervisor().status();
        let mux = self.core.mux.snapshot(now);
        let times = Times::at(now);
        let reason = self.reason(&supervisor);
        let (state, substate) = self.states(&supervisor);
        let substate = match (substate, mux.overdue) {
            (Substate::Ready, Some(_)) => Substate::Unresponsive,
            _ => substate,
        };
        ServerStatus {
            name: self.instance.to_string(),
            description: self
                .core
                .setting()
                .spec
                .as_ref()
                .and_then(|spec| spec.description.clone()),
            state,
            substate,
            desired: if supervisor.desired_up {
                Desired::Up
            } else {
                Desired::Down
            },
            start: match self.core.setting().policy().start {
                Start::Boot => "boot".to_owned(),
                Start::Demand => "demand".to_owned(),
            },
            cold: self.core.setting().spec.is_some() && self.core.is_cold(),
            result: (!supervisor.last_runs.is_empty() || supervisor.failure.is_some())
                .then(|| result(supervisor.result)),
            reason,
            config: self.config_status(&supervisor),
            pid: supervisor.pid,
            // A child leads its own group and session.
            pgid: supervisor.pid,
            pidfd_ok: supervisor.pid.is_some(),
            start_time: supervisor.spawned_at.map(|at| times.wall(at)),
            start_age_ms: supervisor.spawned_at.map(|at| times.age_ms(at)),
            ready_time: supervisor.ready_at.map(|at| times.wall(at)),
            ready_age_ms: supervisor.ready_at.map(|at| times.age_ms(at)),
            state_since: Some(times.wall(supervisor.since)),
            state_age_ms: Some(times.age_ms(supervisor.since)),
            generation: supervisor.generation.0,
            restarts_total: supervisor.restarts,
            restarts_unstable: u64::from(supervisor.unstable_runs),
            next_attempt_at: supervisor.next_attempt_at.map(|at| times.wall(at)),
            next_attempt_in_ms: supervisor.next_attempt_at.map(|at| times.until_ms(at)),
            exit: supervisor
                .last_runs
                .first()
                .map(|run| self.exit(run, &times)),
            exits: supervisor
                .last_runs
                .iter()
                .map(|run| self.exit(run, &times))
                .collect(),
            exec: self.exec_status(&supervisor),
            protocol: self.protocol_status(&mux),
            attachments: attachments(&mux),
            requests: calls_status(&mux, self.last_activity, &times),
            stderr_tail: self.past.tail.last(STATUS_LINES),
            violations: mux.counters.noise_lines,
            violation_sample: mux
                .noise_sample
                .as_deref()
                .map(|sample| self.redact_cut(sample)),
            log: Some(
                self.shared
                    .logs
                    .path(self.named.server())
                    .display()
                    .to_string(),
            ),
            log_lost: self.log.lost(),
            stop: stop_status(&supervisor, &times),
            limits: self
                .core
                .setting()
                .spec
                .as_ref()
                .map(|spec| limits_status(&spec.launch.limits))
                .unwrap_or_default(),
            cgroup: self.control_group().map(|it| it.display().to_string()),
            ..ServerStatus::default()
        }
    }

    /// The states, where a file that never was valid counts as a failure.
    fn states(&self, supervisor: &SupervisorStatus) -> (State, Substate) {
        match (&self.core.setting().spec, &self.core.setting().verdict) {
            (None, Verdict::Invalid(_)) if supervisor.state == supervise::State::Stopped => {
                (State::Failed, Substate::Config)
            }
            (Some(_), Verdict::Ok)
                if self.core.setting().is_split()
                    && supervisor.state == supervise::State::Stopped =>
            {
                (State::Stopped, Substate::NeverStarted)
            }
            _ => (state(supervisor.state), substate(supervisor.substate)),
        }
    }

    /// The one sentence that matters, secrets taken out.
    fn reason(&self, supervisor: &SupervisorStatus) -> Option<String> {
        let fault = self.core.setting().fault(&self.instance);
        let is_disabled = self.core.setting().is_disabled();
        let hint = match &fault {
            // Other faults of a file are said with their own hints.
            Some(_) => self.core.setting().remedy().filter(|_| is_disabled),
            None => supervisor.hint.clone(),
        };
        let mut message = fault.unwrap_or_else(|| supervisor.message.clone());
        if let Some(hint) = hint.filter(|_| !message.is_empty()) {
            message = format!("{message} ({hint})");
        }
        if message.is_empty() && supervisor.state == supervise::State::Starting {
            // A slow start is explained best by what it said last.
            message = self.past.tail.last(1).pop().unwrap_or_default();
        }
        (!message.is_empty()).then(|| self.redact(&message))
    }

    fn config_status(&self, supervisor: &SupervisorStatus) -> ConfigStatus {
        let mut status = ConfigStatus {
            file: Some(self.core.setting().file.display().to_string()),
            generation: self.core.setting().generation,
            hash: self.core.setting().hash.map(|hash| hash.to_string()),
            ..ConfigStatus::default()
        };
        let is_pending = supervisor.substate == supervise::Substate::DrainingForReload;
        match &self.core.setting().verdict {
            Verdict::Ok if is_pending => status.status = ConfigVerdict::ChangedPending,
            Verdict::Ok => {}
            Verdict::Removed | Verdict::Unknown => status.status = ConfigVerdict::Removed,
            Verdict::Invalid(errors) => {
                status.status = ConfigVerdict::Invalid;
                if let Some(first) = errors.first() {
                    status.line = first.place.map(|place| u64::from(place.line));
                    status.column = first.place.map(|place| u64::from(place.column));
                    status.error = Some(match &first.hint {
                        Some(hint) => format!("{}, {hint}", first.message),
                        None => first.message.clone(),
                    });
                }
            }
        }
        status
    }

    fn exec_status(&self, supervisor: &SupervisorStatus) -> ExecStatus {
        let failure = supervisor.failure.as_ref();
        // Until there is a process for this start, the configuration is all there is to show of it.
        let prepared = self.past.prepared.as_ref();
        let shown = match (prepared, &self.core.setting().spec) {
            (Some(prepared), _) => prepared.shown.clone(),
            (None, Some(spec)) => shown_launch(spec),
            (None, None) => crate::config::resolve::ShownLaunch::default(),
        };
        ExecStatus {
            program: prepared.map(|prepared| prepared.program.display().to_string()),
            argv: shown.argv,
            cwd: (!shown.cwd.is_empty()).then_some(shown.cwd),
            env_names: shown.env_names,
            failed_stage: failure.map(|failure| failure.stage.as_str().to_owned()),
            errno: failure.and_then(|failure| failure.errno),
        }
    }

    fn protocol_status(&self, mux: &MuxSnapshot) -> ProtocolStatus {
        let Some(child) = &mux.child else {
            return ProtocolStatus::default();
        };
        let redacted = |text: &Option<String>| text.as_deref().map(|text| self.redact(text));
        ProtocolStatus {
            era: Some(child.version.era().as_str().to_owned()),
            version: Some(child.version.as_str().to_owned()),
            server_name: redacted(&child.server_name),
            server_version: redacted(&child.server_version),
            // Capabilities that cannot be shown (a lone surrogate in a name) are left out.
            capabilities: serde_json::from_slice(&child.capabilities).ok(),
            tools: mux.tools.map(|count| count as u64),
        }
    }

    fn exit(&self, run: &EndedRun, times: &Times) -> ExitStatus {
        let last_line = self
            .past
            .last_lines
            .iter()
            .find(|(of, _)| *of == run.generation);
        let (code, signal, core) = match run.status {
            Some(supervise::ExitStatus::Code(code)) => (Some(code), None, false),
            Some(supervise::ExitStatus::Signal {
                number,
                core_dumped,
            }) => (None, Some(number), core_dumped),
            None => (None, None, false),
        };
        ExitStatus {
            result: Some(result(run.result)),
            code,
            signal,
            core,
            oom: run.result == supervise::RunResult::OomKill,
            at: Some(times.wall(run.ended_at)),
            at_age_ms: Some(times.age_ms(run.ended_at)),
            uptime_ms: millis(run.uptime),
            generation: run.generation.0,
            ended_by: run.ended_by.map(stop_step),
            last_line: last_line.and_then(|(_, line)| line.clone()),
        }
    }

    /// What an error towards a host says beyond its sentence (`data.detail`).
    pub(super) fn explain_detail(&self) -> Value {
        let supervisor = self.core.supervisor().status();
        let exec = self.exec_status(&supervisor);
        let last = supervisor.last_runs.first();
        let name = &self.instance;
        let (state, substate) = self.states(&supervisor);
        let mut detail = json!({
            "state": state.as_str(),
            "substate": substate.as_str(),
            "command": exec.argv,
            "stderr": self.past.tail.last(ERROR_LINES),
            "more": format!("mcpd status {name}; mcpd logs {name}"),
        });
        if let Some(program) = exec.program {
            detail["program"] = json!(program);
        }
        match last.and_then(|run| run.status) {
            Some(supervise::ExitStatus::Code(code)) => detail["exit_code"] = json!(code),
            Some(supervise::ExitStatus::Signal { number, .. }) => detail["signal"] = json!(number),
            None => {}
        }
        let to_start = (supervisor.state == supervise::State::Stopped)
            .then(|| format!("`mcpd start {name}` starts it"));
        let remedy = self
            .core
            .setting()
            .remedy()
            .or(supervisor.hint)
            .or(to_start);
        if let Some(hint) = remedy {
            detail["hint"] = json!(hint);
        }
        detail
    }

    /// Takes the secrets of the last run out of `text`.
    pub(super) fn redact(&self, text: &str) -> String {
        match &self.past.prepared {
            Some(prepared) => prepared.redactor.text(text),
            None => text.to_owned(),
        }
    }

    /// The same for a text that may have been cut.
    pub(super) fn redact_cut(&self, text: &str) -> String {
        match &self.past.prepared {
            Some(prepared) => prepared.redactor.cut_text(text),
            None => text.to_owned(),
        }
    }
}

/// Turns moments into what people read, all as seen at one moment.
struct Times {
    now: Moment,
    wall: std::time::Duration,
}

impl Times {
    fn at(now: Moment) -> Self {
        Self {
            now,
            wall: clock::wall(),
        }
    }

    fn wall(&self, moment: Moment) -> String {
        let wall = if moment > self.now {
            self.wall.saturating_add(moment - self.now)
        } else {
            self.wall.saturating_sub(self.now - moment)
        };
        clock::render_wall(wall)
    }

    fn age_ms(&self, moment: Moment) -> u64 {
        millis(self.now - moment)
    }

    fn until_ms(&self, moment: Moment) -> u64 {
        millis(moment - self.now)
    }
}

fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn calls_status(mux: &MuxSnapshot, last_activity: Option<Moment>, times: &Times) -> CallsStatus {
    CallsStatus {
        hosts: mux.hosts.len() as u64,
        in_flight: mux.open as u64,
        waiting: mux.waiting as u64,
        total: mux.counters.requests,
        errors: mux.counters.errors,
        oldest_ms: mux.oldest.as_ref().map(|oldest| millis(oldest.age)),
        oldest_method: mux.oldest.as_ref().map(|oldest| oldest.method.clone()),
        last_activity: last_activity.map(|at| times.wall(at)),
        last_activity_age_ms: last_activity.map(|at| times.age_ms(at)),
        late_answers: mux.counters.late_answers,
        answers_in_doubt: mux.counters.answers_in_doubt,
        unknown_progress: mux.counters.unknown_progress,
        dropped: mux.counters.dropped,
    }
}

fn attachments(mux: &MuxSnapshot) -> Vec<AttachmentStatus> {
    let spoken = mux.child.as_ref().map(|child| child.version.era());
    mux.hosts
        .iter()
        .map(|host| attachment(host, spoken))
        .collect()
}

fn attachment(host: &HostSnapshot, spoken: Option<Era>) -> AttachmentStatus {
    let era = host.version.map(|version| version.era());
    let pairing = era.zip(spoken).filter(|(host, child)| host != child);
    AttachmentStatus {
        attachment: host.key.0,
        client: host.client.clone(),
        pid: host.pid,
        era: era.map(|era| era.as_str().to_owned()),
        version: host.version.map(|version| version.as_str().to_owned()),
        translated: pairing
            .map(|(host, child)| format!("{} host, {} server", host.as_str(), child.as_str())),
        open: host.open as u64,
        waiting: host.waiting as u64,
        turn: match host.turn {
            Turn::None => None,
            Turn::Has => Some("has".to_owned()),
            Turn::Waits => Some("waits".to_owned()),
        },
        held_bytes: host.held_bytes,
        ..AttachmentStatus::default()
    }
}

fn stop_status(supervisor: &SupervisorStatus, times: &Times) -> StopStatus {
    let Some(stop) = &supervisor.stop else {
        return StopStatus::default();
    };
    let holder = |pid: &u32| ProcessStatus {
        pid: *pid,
        ..ProcessStatus::default()
    };
    StopStatus {
        phase: Some(substate(stop.phase)),
        deadline: Some(times.wall(stop.deadline)),
        deadline_in_ms: Some(times.until_ms(stop.deadline)),
        holders: stop.holders.iter().map(holder).collect(),
    }
}

fn state(state: supervise::State) -> State {
    match state {
        supervise::State::Stopped => State::Stopped,
        supervise::State::Starting => State::Starting,
        supervise::State::Running => State::Running,
        supervise::State::Stopping => State::Stopping,
        supervise::State::Backoff => State::Backoff,
        supervise::State::Failed => State::Failed,
    }
}

fn substate(substate: supervise::Substate) -> Substate {
    use supervise::Substate as From;
    match substate {
        From::Dead => Substate::Dead,
        From::Disabled => Substate::Disabled,
        From::NeverStarted => Substate::NeverStarted,
        From::Exited => Substate::Exited,
        From::IdleStopped => Substate::IdleStopped,
        From::WaitingForTurn => Substate::WaitingForTurn,
        From::Spawn => Substate::Spawn,
        From::Exec | From::ExecFailed => Substate::Exec,
        From::Handshake => Substate::Handshake,
        From::Ready => Substate::Ready,
        From::DrainingForReload => Substate::DrainingForReload,
        From::Drain => Substate::Drain,
        From::StopStdin => Substate::StopStdin,
        From::StopSigterm => Substate::StopSigterm,
        From::StopSigkill => Substate::StopSigkill,
        From::Verify => Substate::Verify,
        From::AutoRestart => Substate::AutoRestart,
        From::StartLimitHit => Substate::StartLimitHit,
        From::ConfigFailed => Substate::Config,
        From::Unkillable => Substate::Unkillable,
    }
}

fn result(result: supervise::RunResult) -> RunResult {
    use supervise::RunResult as From;
    match result {
        From::Success => RunResult::Success,
        From::ExitCode => RunResult::ExitCode,
        From::Signal => RunResult::Signal,
        From::CoreDump => RunResult::CoreDump,
        From::Timeout => RunResult::Timeout,
        From::Protocol => RunResult::Protocol,
        From::OomKill => RunResult::OomKill,
        From::Resources => RunResult::Resources,
        From::StartLimitHit => RunResult::StartLimitHit,
        From::Watchdog => RunResult::Watchdog,
        From::InternalError => RunResult::InternalError,
    }
}

fn stop_step(step: supervise::Substate) -> StopStep {
    match step {
        supervise::Substate::StopStdin => StopStep::StopStdin,
        supervise::Substate::StopSigterm => StopStep::StopSigterm,
        supervise::Substate::StopSigkill => StopStep::StopSigkill,
        _ => StopStep::Exited,
    }
}
