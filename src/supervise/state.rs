//! The words in which the life of a child is told: states, results, events, actions.
//!
//! Names are systemd's where systemd has one, and stable: they stand in `status --json`.
//! [`supervisor`](super::supervisor) decides how they follow from each other.

use std::fmt;
use std::time::Duration;

use super::failure::SpawnFailure;
use crate::config::spec::Policy;
use crate::ids::Generation;
use crate::time::Moment;

/// The small public state, for people and scripts. [`Substate`] says exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    Stopped,
    Starting,
    Running,
    Stopping,
    Backoff,
    Failed,
}

impl State {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Stopping => "stopping",
            Self::Backoff => "backoff",
            Self::Failed => "failed",
        }
    }
}

/// What is true right now. Each says who enters and who leaves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Substate {
    /// `stopped`: ended on a command, removal or shutdown. Left on `start` or `restart`.
    Dead,
    /// `stopped`: ended or never begun because of `enabled = false`. Left when enabled.
    Disabled,
    /// `stopped`: the first state. Left on the first start or demand.
    NeverStarted,
    /// `stopped`: ended by itself and `restart` does not bring it back. Left on a command or edit.
    Exited,
    /// `stopped`: nobody has needed it for `idle_stop`. Left on a start or demand.
    IdleStopped,
    /// `starting`: other servers are being started; nothing of this one runs. Left when its turn
    /// comes, which silence or `start_timeout` of the others brings about in the end.
    WaitingForTurn,
    /// `starting`: the launcher was asked for a process. Left when it answers.
    Spawn,
    /// `starting`: there is a process, the program is not executed yet. Left on `Executed`.
    Exec,
    /// `starting`: the program runs and has not finished the first exchange. Left on `Opened`.
    Handshake,
    /// `running`: serving.
    Ready,
    /// `running`: an edit waits for the open calls. Left when they are done or the wait is over.
    DrainingForReload,
    /// `stopping`: open calls may finish. Left when they have or at `drain_timeout`.
    Drain,
    /// `stopping`: stdin is closed, or closes as soon as the spawn is answered. Left on exit or at
    /// `stop_timeout`.
    StopStdin,
    /// `stopping`: `stop_command` runs, then the group has its SIGTERM. Left when all is gone or
    /// at `stop_timeout` of each.
    StopSigterm,
    /// `stopping`: the group has its SIGKILL. Left on exit or after [`VERIFY_TIMEOUT`].
    ///
    /// [`VERIFY_TIMEOUT`]: super::teardown::VERIFY_TIMEOUT
    StopSigkill,
    /// `stopping`: the leader is gone, others are looked for. Left when none is left or at the
    /// deadline of the step.
    Verify,
    /// `backoff`: waits for `next_attempt_at`. Left by the timer, a command or an edit.
    AutoRestart,
    /// `failed`: `start_limit` unstable runs in a row. Left on a command, an edit or, a minute
    /// after the last attempt, on demand.
    StartLimitHit,
    /// `failed`: the program or its directory is wrong. Left as `StartLimitHit`.
    ExecFailed,
    /// `failed`: the configuration cannot be expanded. Left on a command or an edit only.
    ConfigFailed,
    /// `failed`: processes outlived SIGKILL (or the launcher never answered). Nothing starts
    /// before they are gone; looked at again every few seconds and on each command.
    Unkillable,
}

impl Substate {
    /// The state that this belongs to.
    pub const fn state(self) -> State {
        match self {
            Self::Dead | Self::Disabled | Self::NeverStarted | Self::Exited | Self::IdleStopped => {
                State::Stopped
            }
            Self::WaitingForTurn | Self::Spawn | Self::Exec | Self::Handshake => State::Starting,
            Self::Ready | Self::DrainingForReload => State::Running,
            Self::Drain
            | Self::StopStdin
            | Self::StopSigterm
            | Self::StopSigkill
            | Self::Verify => State::Stopping,
            Self::AutoRestart => State::Backoff,
            Self::StartLimitHit | Self::ExecFailed | Self::ConfigFailed | Self::Unkillable => {
                State::Failed
            }
        }
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Dead => "dead",
            Self::Disabled => "disabled",
            Self::NeverStarted => "never-started",
            Self::Exited => "exited",
            Self::IdleStopped => "idle-stopped",
            Self::WaitingForTurn => "waiting-for-turn",
            Self::Spawn => "spawn",
            Self::Exec | Self::ExecFailed => "exec",
            Self::Handshake => "handshake",
            Self::Ready => "ready",
            Self::DrainingForReload => "draining-for-reload",
            Self::Drain => "drain",
            Self::StopStdin => "stop-stdin",
            Self::StopSigterm => "stop-sigterm",
            Self::StopSigkill => "stop-sigkill",
            Self::Verify => "verify",
            Self::AutoRestart => "auto-restart",
            Self::StartLimitHit => "start-limit-hit",
            Self::ConfigFailed => "config",
            Self::Unkillable => "unkillable",
        }
    }
}

/// How the last run ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RunResult {
    /// Exit code 0, or an end that was ordered and polite.
    #[default]
    Success,
    ExitCode,
    Signal,
    CoreDump,
    /// `start_timeout` passed.
    Timeout,
    /// The first exchange was refused or malformed, or stdout closed while the process lived on.
    Protocol,
    /// It said nothing for longer than its watchdog allows.
    Watchdog,
    /// The kernel killed it because there was no memory left.
    OomKill,
    /// There was no run: the process could not be made or the program not executed.
    Resources,
    /// The last of `start_limit` unstable runs in a row.
    StartLimitHit,
    /// mcpd itself failed this server.
    InternalError,
}

impl RunResult {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::ExitCode => "exit-code",
            Self::Signal => "signal",
            Self::CoreDump => "core-dump",
            Self::Timeout => "timeout",
            Self::Protocol => "protocol",
            Self::OomKill => "oom-kill",
            Self::Resources => "resources",
            Self::StartLimitHit => "start-limit-hit",
            Self::Watchdog => "watchdog",
            Self::InternalError => "internal-error",
        }
    }
}

/// How a process ended, as `waitid(2)` tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitStatus {
    Code(i32),
    Signal { number: i32, core_dumped: bool },
}

impl ExitStatus {
    /// The result that a run with this end has when nobody ordered the end.
    pub const fn result(self) -> RunResult {
        match self {
            Self::Code(0) => RunResult::Success,
            Self::Code(_) => RunResult::ExitCode,
            Self::Signal {
                core_dumped: true, ..
            } => RunResult::CoreDump,
            Self::Signal { .. } => RunResult::Signal,
        }
    }
}

impl fmt::Display for ExitStatus {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // 127 is what shells and launchers give when what they were to run is not there.
            Self::Code(127) => out.write_str(
                "exited with code 127 (started, then did not find a program that it was to run)",
            ),
            Self::Code(code) => write!(out, "exited with code {code}"),
            Self::Signal {
                number,
                core_dumped,
            } => {
                write!(out, "ended by signal {number}")?;
                if let Some(name) = signal_name(*number) {
                    write!(out, " ({name})")?;
                }
                if *core_dumped {
                    out.write_str(", core dumped")?;
                }
                Ok(())
            }
        }
    }
}

/// Names of the signals that end programs, `signal(7)`, numbers of x86 and ARM.
const fn signal_name(number: i32) -> Option<&'static str> {
    Some(match number {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        5 => "SIGTRAP",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        10 => "SIGUSR1",
        11 => "SIGSEGV",
        12 => "SIGUSR2",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        31 => "SIGSYS",
        _ => return None,
    })
}

/// Why something was ordered or changed. Stands in the log beside every transition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The daemon starts its enabled servers.
    Boot,
    /// A person's command.
    Command,
    /// A host waits for the server.
    Demand,
    /// An edit of the configuration.
    Edit,
    /// `enabled = false`.
    Disabled,
    /// The file is gone.
    Removed,
    /// `idle_stop` passed without a request.
    Idle,
    /// Its turn to start has come.
    Turn,
    /// The daemon itself ends.
    Shutdown,
    /// The back-off ran out.
    Timer,
    /// The launcher made a process.
    Spawned,
    /// The launcher or the program's execution failed.
    SpawnFailed,
    /// The program was executed.
    Executed,
    /// The first exchange is done.
    Opened,
    /// The first exchange was refused.
    OpeningFailed,
    /// `start_timeout` passed.
    StartTimeout,
    /// It said nothing for longer than its watchdog allows.
    Watchdog,
    /// The leader ended.
    Exited,
    /// It ended while it was asked what it speaks, and a fresh one is spoken to in another way.
    Excused,
    /// stdout ended and the leader did not within a second.
    StdoutClosed,
    /// All calls are answered.
    Drained,
    /// The deadline of a teardown step.
    Deadline,
    /// `stop_command` is done.
    StopCommandEnded,
    /// Nothing is left.
    Emptied,
    /// Something is left.
    Holders,
    /// The worker or another part of mcpd broke.
    Internal,
}

impl Cause {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Boot => "boot",
            Self::Command => "command",
            Self::Demand => "demand",
            Self::Edit => "edit",
            Self::Disabled => "disabled",
            Self::Removed => "removed",
            Self::Idle => "idle",
            Self::Turn => "turn",
            Self::Shutdown => "shutdown",
            Self::Timer => "timer",
            Self::Spawned => "spawned",
            Self::SpawnFailed => "spawn-failed",
            Self::Executed => "executed",
            Self::Opened => "opened",
            Self::OpeningFailed => "opening-failed",
            Self::StartTimeout => "start-timeout",
            Self::Watchdog => "watchdog",
            Self::Exited => "exited",
            Self::Excused => "excused",
            Self::StdoutClosed => "stdout-closed",
            Self::Drained => "drained",
            Self::Deadline => "deadline",
            Self::StopCommandEnded => "stop-command-ended",
            Self::Emptied => "emptied",
            Self::Holders => "holders",
            Self::Internal => "internal",
        }
    }
}

/// How much patience a stop has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// All steps in order.
    Polite,
    /// SIGKILL at once (`--now`, a second SIGTERM), then the proof all the same.
    Kill,
}

/// What happened. Those with a generation change nothing unless it is the living one.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The server is wanted; an explicit one also forgets earlier failures.
    Start { cause: Cause },
    /// The server is not wanted before somebody needs it ([`Event::Demand`]).
    Offer { cause: Cause },
    /// Nobody has needed the server for `idle_stop`: as a stop, until a demand.
    Idle,
    /// The turn that [`Action::AskTurn`] asked for has come.
    TurnCame,
    /// The server is not wanted (`Command`, `Disabled`).
    Stop { cause: Cause, mode: Mode },
    /// End what runs and start anew, or just start.
    Restart { cause: Cause },
    /// Forget earlier failures; a failed server that is wanted starts again.
    ResetFailed,
    /// A new valid configuration. `restart` if what a spawn needs has changed.
    Reconfigured { restart: bool, policy: Box<Policy> },
    /// The file is gone: as a stop, and nothing starts until a new configuration comes.
    Remove,
    /// The daemon ends: as a stop, and nothing ever starts again.
    Shutdown { mode: Mode },
    /// A request waits and nothing serves it.
    Demand,
    /// The launcher made a process.
    Spawned { generation: Generation, pid: u32 },
    /// The launcher made none, or the program was not executed after `Spawned`.
    SpawnFailed {
        generation: Generation,
        failure: SpawnFailure,
    },
    /// The status pipe ended: `execve` succeeded.
    Executed { generation: Generation },
    /// The first exchange is done.
    Opened { generation: Generation },
    /// The first exchange was refused or malformed; `detail` is one sentence.
    OpeningFailed {
        generation: Generation,
        detail: String,
    },
    /// Whether the child's end, should it come by itself now, is to be laid to what it was asked:
    /// then a fresh one starts at once, and nothing is counted.
    Excused {
        generation: Generation,
        excused: bool,
    },
    /// End of the child's stdout, everything before it handed over.
    StdoutClosed { generation: Generation },
    /// A write to the child's stdin failed: it reads no more.
    StdinBroken { generation: Generation },
    /// The kernel killed some of this run because there was no memory left; told before `Exited`.
    OomKilled { generation: Generation },
    /// The leader ended and is not reaped.
    Exited {
        generation: Generation,
        status: ExitStatus,
    },
    /// No call is open any more (asked for by `Drain`).
    Drained { generation: Generation },
    /// `stop_command` ended, well or not (asked for by `RunStopCommand`).
    StopCommandEnded { generation: Generation },
    /// Answer to `Verify`: nothing is left but the unreaped leader.
    Emptied { generation: Generation },
    /// Answer to `Verify`: these processes live.
    Holders {
        generation: Generation,
        pids: Vec<u32>,
    },
    /// The watchdog asked, and the child has said nothing for so long.
    Hung {
        generation: Generation,
        silence: Duration,
    },
    /// mcpd itself failed this run (a pipe that breaks in an impossible way, a panic).
    Broken {
        generation: Generation,
        detail: String,
    },
}

/// The signals of a teardown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopSignal {
    /// SIGTERM, then SIGCONT so that a stopped process hears it.
    Term,
    Kill,
    /// SIGSTOP to one after the other until nobody new is found, then SIGKILL: for those who fork
    /// faster than they are found and killed.
    Sweep,
}

/// What open calls are told when a drain runs out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelReason {
    /// -31005
    ServerStopping,
    /// -31006
    DaemonEnding,
}

/// What requests of hosts are to expect.
#[derive(Clone, Debug, PartialEq)]
pub enum ServiceHint {
    /// A program runs; the first exchange may still be under way.
    Serving,
    /// A child comes without anybody doing anything: requests wait in order. `ordered` while the
    /// one before it is being ended because somebody asked for that.
    Holding { ordered: bool },
    /// Nothing runs; a request that waits brings it up ([`Event::Demand`]).
    OnDemand,
    /// Requests wait if the next attempt lies within their patience.
    Backoff {
        next_attempt_at: Moment,
        message: String,
    },
    /// A stop is in progress: new requests are refused.
    Stopping,
    /// Requests are answered at once; one sentence says why.
    Unavailable { message: String },
}

/// What the shell is to do. All concern the living generation.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Ask for this server's turn to start among all others; answered by `TurnCame`. `is_awaited`
    /// where somebody waits for it.
    AskTurn { is_awaited: bool },
    /// Somebody waits for the turn that was asked for.
    HurryTurn,
    /// The start is over, or not wanted any more: others may have the turn.
    EndTurn,
    /// Make a process; answered by `Spawned` or `SpawnFailed`, then `Executed` or `SpawnFailed`.
    Spawn { generation: Generation },
    /// Nobody wants the process that was asked for. What leads up to it (a command that asks for a
    /// password) is called off and answered by `SpawnFailed`; one that is being made is still
    /// answered by `Spawned`.
    CancelSpawn,
    /// Answer new requests by the service hint, say `Drained` when no call is open.
    Drain,
    /// The drain is over: cancel what is open, upstream too.
    CancelOpen { reason: CancelReason },
    /// Finish the line being written, then close the child's stdin. A child that does not read
    /// is not waited for: close at the latest when the pipe is full.
    CloseStdin,
    /// Run `stop_command` for at most this long; say `StopCommandEnded`.
    RunStopCommand { limit: Duration },
    /// To the group and to each escapee.
    Signal(StopSignal),
    /// Look who is left; answered by `Emptied` or `Holders`.
    Verify,
    /// The child answers no more: open calls get -31001 with this sentence.
    ChildGone { message: String },
    /// Reap the leader.
    Reap,
    /// Close what is still open of the child's pipes and forget the child.
    ClosePipes,
    /// Tell the multiplexer.
    SetService(ServiceHint),
    /// For the log: every transition with its cause.
    Changed {
        from: Substate,
        to: Substate,
        cause: Cause,
    },
    /// For log and status: a run is over.
    Ended(EndedRun),
}

/// One run that is over.
#[derive(Clone, Debug, PartialEq)]
pub struct EndedRun {
    pub generation: Generation,
    /// Absent if the leader was never seen to end (no process was made).
    pub status: Option<ExitStatus>,
    pub result: RunResult,
    /// One sentence: how it ended and after how long.
    pub message: String,
    pub ended_at: Moment,
    /// From the spawn to the end of the leader.
    pub uptime: Duration,
    /// It was ready for `stable_after`.
    pub stable: bool,
    /// The step of the teardown that ended the leader, if one did:
    /// `stop-stdin`, `stop-sigterm` or `stop-sigkill`.
    pub ended_by: Option<Substate>,
}

/// Where a teardown stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StopStatus {
    pub phase: Substate,
    pub deadline: Moment,
    /// Who is known to hold it up.
    pub holders: Vec<u32>,
}

/// Everything that `status` wants to know.
#[derive(Clone, Debug, PartialEq)]
pub struct SupervisorStatus {
    pub state: State,
    pub substate: Substate,
    /// Whether the server is wanted.
    pub desired_up: bool,
    /// Of the last run that ended, or of the failure that stands now.
    pub result: RunResult,
    /// One sentence on why it is as it is; empty when there is nothing to say.
    pub message: String,
    /// What to do about it, where that is known.
    pub hint: Option<String>,
    /// The last failure to start, while it explains the state.
    pub failure: Option<SpawnFailure>,
    pub generation: Generation,
    pub pid: Option<u32>,
    /// Since when the substate holds.
    pub since: Moment,
    pub spawned_at: Option<Moment>,
    pub executed_at: Option<Moment>,
    pub ready_at: Option<Moment>,
    /// Spawns after the first.
    pub restarts: u64,
    /// Unstable runs in a row.
    pub unstable_runs: u32,
    pub next_attempt_at: Option<Moment>,
    pub stop: Option<StopStatus>,
    /// The last [`KEPT_RUNS`], newest first.
    pub last_runs: Vec<EndedRun>,
}

/// How many ended runs are kept for status.
pub const KEPT_RUNS: usize = 5;
