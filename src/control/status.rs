//! The status snapshot: the daemon and one element an instance.
//!
//! The member names and the spelling of every value are a contract (`--json`, schema 1). Every
//! member is always present, `null` where there is nothing to say; new ones may be added. Times
//! are RFC 3339 strings made by the shell, each with its age on the monotonic clock beside it
//! (`…_age_ms`, or `…_in_ms` for what lies ahead), which is what a reader should count with.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::record::EndRecord;

/// The version of the snapshot's form.
pub const SCHEMA: u32 = 1;

/// Everything that `mcpd status` shows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct StatusSnapshot {
    pub schema: u32,
    pub daemon: DaemonStatus,
    pub servers: Vec<ServerStatus>,
    /// Where no daemon runs: the one that ran last.
    pub last: Option<Box<LastDaemon>>,
}

/// A daemon that runs no more, as far as it left word.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LastDaemon {
    pub pid: u32,
    /// When it recorded what `servers` tells.
    pub recorded_at: String,
    /// When and why it ended; nothing where it was killed or the machine went down.
    pub end: Option<EndRecord>,
    pub servers: Vec<ServerStatus>,
}

/// The daemon itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct DaemonStatus {
    pub pid: u32,
    pub version: String,
    pub protocol: u32,
    pub started_at: Option<String>,
    pub uptime_ms: u64,
    /// Who started it: `mcpd connect`, `terminal`, a unit.
    pub started_by: String,
    /// Where its PATH came from: `mcpd.toml`, `login shell`, `environment`, `default`.
    pub path_source: String,
    /// The PATH on which commands of servers are looked for.
    pub path: String,
    pub config_dir: String,
    pub socket: String,
    pub state_dir: String,
    /// `cgroup`, `subreaper` or `group`.
    pub containment: String,
    /// The process that ends what a killed daemon leaves; none under systemd, which does that itself.
    pub warden: Option<u32>,
    /// What tells it of edits: `inotify`, or `polling` where the kernel watches nothing more.
    pub watcher: String,
    /// Counts the configurations that were applied.
    pub generation: u64,
    /// Bytes of messages held for slow readers, of all servers.
    pub held_bytes: u64,
    /// The most that may be held (`memory_limit`).
    pub pool_limit_bytes: u64,
    /// Hosts attached.
    pub attachments: u64,
    /// Configuration errors that belong to no server, each with its place.
    pub errors: Vec<String>,
    /// What else the user should know, one sentence each.
    pub warnings: Vec<String>,
}

/// One instance.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ServerStatus {
    pub name: String,
    pub description: Option<String>,
    pub state: State,
    pub substate: Substate,
    pub desired: Desired,
    /// What starts it: `boot` or `demand`.
    pub start: String,
    /// Whether no success of this configuration is known, so that its launcher may have to fetch
    /// what it runs.
    pub cold: bool,
    /// How the last run ended.
    pub result: Option<RunResult>,
    /// What is wrong or goes on, one line: the failure, the last stderr line of a slow start.
    pub reason: Option<String>,
    pub config: ConfigStatus,
    pub pid: Option<u32>,
    pub pgid: Option<u32>,
    /// Whether a pidfd is held.
    pub pidfd_ok: bool,
    /// When the child was spawned.
    pub start_time: Option<String>,
    pub start_age_ms: Option<u64>,
    /// When its handshake was done.
    pub ready_time: Option<String>,
    pub ready_age_ms: Option<u64>,
    pub state_since: Option<String>,
    pub state_age_ms: Option<u64>,
    /// Counts spawns.
    pub generation: u64,
    pub restarts_total: u64,
    /// Runs in a row that ended before they were stable.
    pub restarts_unstable: u64,
    pub next_attempt_at: Option<String>,
    pub next_attempt_in_ms: Option<u64>,
    /// The last exit; `null` while there was none.
    pub exit: Option<ExitStatus>,
    /// The last exits, newest first, at most five.
    pub exits: Vec<ExitStatus>,
    pub exec: ExecStatus,
    pub protocol: ProtocolStatus,
    pub requests: CallsStatus,
    pub resources: ResourceStatus,
    pub limits: LimitsStatus,
    /// `cgroup`, `subreaper` or `group`.
    pub containment: String,
    /// The folder of its control group, while it has one.
    pub cgroup: Option<String>,
    /// Who is attached.
    pub attachments: Vec<AttachmentStatus>,
    /// The processes of its tree, the leader first; only where one server was asked for.
    pub processes: Vec<ProcessStatus>,
    pub stderr_tail: Vec<String>,
    /// Lines on its stdout that were no message.
    pub violations: u64,
    /// The last of them, cut to 200 bytes.
    pub violation_sample: Option<String>,
    /// Its log file.
    pub log: Option<String>,
    /// Lines for its log that were dropped or could not be written.
    pub log_lost: u64,
    /// Why its raw socket is missing, if it is.
    pub socket_error: Option<String>,
    pub stop: StopStatus,
}

/// The state, as small as systemd's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    #[default]
    Stopped,
    Starting,
    Running,
    Stopping,
    Backoff,
    Failed,
    /// Spelled by a newer daemon.
    #[serde(other)]
    Unknown,
}

/// The state, exactly. The spellings are a contract.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Substate {
    // stopped
    Dead,
    Disabled,
    #[default]
    NeverStarted,
    Exited,
    IdleStopped,
    // starting
    WaitingForTurn,
    Spawn,
    Exec,
    Handshake,
    // running
    Ready,
    Unresponsive,
    DrainingForReload,
    // stopping
    Drain,
    StopStdin,
    StopSigterm,
    StopSigkill,
    Verify,
    // backoff
    AutoRestart,
    // failed, `exec` being shared with starting
    StartLimitHit,
    Config,
    Protocol,
    Unkillable,
    /// Spelled by a newer daemon.
    #[serde(other)]
    Unknown,
}

/// What is wanted, whatever is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Desired {
    Up,
    #[default]
    Down,
}

/// How a run ended, in systemd's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RunResult {
    Success,
    ExitCode,
    Signal,
    CoreDump,
    /// `start_timeout` passed.
    Timeout,
    Watchdog,
    Protocol,
    OomKill,
    /// The spawn itself failed.
    Resources,
    StartLimitHit,
    InternalError,
    /// Spelled by a newer daemon.
    #[serde(other)]
    Unknown,
}

/// The configuration of one server and what is wrong with its file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ConfigStatus {
    pub status: ConfigVerdict,
    pub file: Option<String>,
    /// Place of the error, from 1.
    pub line: Option<u64>,
    pub column: Option<u64>,
    pub error: Option<String>,
    /// The configuration under which the server runs.
    pub generation: u64,
    /// Of what the server was made from; keyed, so that it tells nothing of secrets.
    pub hash: Option<String>,
}

/// Whether a server runs by its file as it is now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ConfigVerdict {
    #[default]
    Ok,
    /// The file is invalid; the last good configuration holds.
    Invalid,
    /// A change waits for open calls.
    ChangedPending,
    /// The file is gone; the server is going.
    Removed,
    /// Spelled by a newer daemon.
    #[serde(other)]
    Unknown,
}

/// One exit of a child.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ExitStatus {
    pub result: Option<RunResult>,
    pub code: Option<i32>,
    pub signal: Option<i32>,
    pub core: bool,
    pub oom: bool,
    pub at: Option<String>,
    pub at_age_ms: Option<u64>,
    /// How long the child had lived.
    pub uptime_ms: u64,
    pub generation: u64,
    /// The teardown step that ended it, where it was ended.
    pub ended_by: Option<super::StopStep>,
    /// Its last stderr line.
    pub last_line: Option<String>,
}

/// What is run. Expanded values never stand here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ExecStatus {
    /// The program's file as it was resolved.
    pub program: Option<String>,
    /// As written in the configuration, unexpanded.
    pub argv: Vec<String>,
    pub cwd: Option<String>,
    pub env_names: Vec<String>,
    /// The stage at which the last start failed, and its errno.
    pub failed_stage: Option<String>,
    pub errno: Option<i32>,
}

/// What the child speaks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ProtocolStatus {
    /// `legacy` or `modern`.
    pub era: Option<String>,
    pub version: Option<String>,
    pub server_name: Option<String>,
    pub server_version: Option<String>,
    pub capabilities: Option<Value>,
    /// How many tools it offers, once a listing was seen.
    pub tools: Option<u64>,
}

/// One host that is attached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AttachmentStatus {
    /// Unique in the life of the daemon.
    pub attachment: u64,
    /// What the host calls itself, else how it attached.
    pub client: Option<String>,
    /// The process at the other end of the connection: the host, or a shim that it started.
    pub pid: Option<u32>,
    /// The host's process and its name, where they can be told: a shim's parent.
    pub host_pid: Option<u32>,
    pub host_name: Option<String>,
    /// `legacy` or `modern`, as far as it has shown it.
    pub era: Option<String>,
    /// The protocol version that it was told, or that its last request named.
    pub version: Option<String>,
    /// Between which eras its messages are translated, host first: `legacy host, modern server`.
    pub translated: Option<String>,
    /// Its requests that are written and not answered.
    pub open: u64,
    /// Its requests that the server has not seen yet.
    pub waiting: u64,
    /// Where hosts take turns (`interactive`): `has` or `waits`, while somebody has it.
    pub turn: Option<String>,
    /// Bytes that wait for it to read.
    pub held_bytes: u64,
}

/// The requests of hosts. On the wire this is `requests`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CallsStatus {
    /// Hosts attached to this instance.
    pub hosts: u64,
    pub in_flight: u64,
    /// Not yet written to the child.
    pub waiting: u64,
    pub total: u64,
    pub errors: u64,
    /// Age of the oldest open one, and its method.
    pub oldest_ms: Option<u64>,
    pub oldest_method: Option<String>,
    pub last_activity: Option<String>,
    pub last_activity_age_ms: Option<u64>,
    /// Answers that belong to no open request.
    pub late_answers: u64,
    /// Progress of no open request.
    pub unknown_progress: u64,
    /// Requests that may have been answered twice, by a daemon that was lost and for want of it.
    pub answers_in_doubt: u64,
    /// Other messages of either side that fit nowhere.
    pub dropped: u64,
}

/// What it may use, as configured; `null` for no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LimitsStatus {
    pub memory: Option<u64>,
    pub tasks: Option<u64>,
    pub open_files: Option<u64>,
    /// Those of the above that nobody holds here.
    pub not_enforced: Vec<String>,
    pub not_enforced_because: Option<String>,
}

/// What the tree uses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ResourceStatus {
    /// Where the numbers come from: `cgroup` or `tree` (summed over `/proc`).
    pub source: Option<String>,
    pub memory_current: Option<u64>,
    pub memory_peak: Option<u64>,
    pub rss_sum: Option<u64>,
    pub cpu_usec: Option<u64>,
    pub tasks: Option<u64>,
    pub fds: Option<u64>,
}

/// One process of a tree.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ProcessStatus {
    pub pid: u32,
    pub ppid: u32,
    pub pgid: u32,
    pub sid: u32,
    /// The letter of `/proc/PID/stat`.
    pub state: String,
    /// `comm`, never the arguments: they may hold secrets.
    pub name: String,
    pub rss: Option<u64>,
    /// Where in the kernel it waits, of those that hold a stop up.
    pub wchan: Option<String>,
}

/// A teardown that goes on; all empty otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct StopStatus {
    pub phase: Option<Substate>,
    pub deadline: Option<String>,
    pub deadline_in_ms: Option<u64>,
    /// Who is still there.
    pub holders: Vec<ProcessStatus>,
}

impl State {
    /// The spelling on the wire and on the screen.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Stopping => "stopping",
            Self::Backoff => "backoff",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
        }
    }
}

impl Substate {
    /// The spelling on the wire and on the screen.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Dead => "dead",
            Self::Disabled => "disabled",
            Self::NeverStarted => "never-started",
            Self::Exited => "exited",
            Self::IdleStopped => "idle-stopped",
            Self::WaitingForTurn => "waiting-for-turn",
            Self::Spawn => "spawn",
            Self::Exec => "exec",
            Self::Handshake => "handshake",
            Self::Ready => "ready",
            Self::Unresponsive => "unresponsive",
            Self::DrainingForReload => "draining-for-reload",
            Self::Drain => "drain",
            Self::StopStdin => "stop-stdin",
            Self::StopSigterm => "stop-sigterm",
            Self::StopSigkill => "stop-sigkill",
            Self::Verify => "verify",
            Self::AutoRestart => "auto-restart",
            Self::StartLimitHit => "start-limit-hit",
            Self::Config => "config",
            Self::Protocol => "protocol",
            Self::Unkillable => "unkillable",
            Self::Unknown => "unknown",
        }
    }
}

impl RunResult {
    /// The spelling on the wire and on the screen.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::ExitCode => "exit-code",
            Self::Signal => "signal",
            Self::CoreDump => "core-dump",
            Self::Timeout => "timeout",
            Self::Watchdog => "watchdog",
            Self::Protocol => "protocol",
            Self::OomKill => "oom-kill",
            Self::Resources => "resources",
            Self::StartLimitHit => "start-limit-hit",
            Self::InternalError => "internal-error",
            Self::Unknown => "unknown",
        }
    }
}

impl super::StopStep {
    /// The spelling on the wire and on the screen.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Exited => "exited",
            Self::StopStdin => "stop-stdin",
            Self::StopSigterm => "stop-sigterm",
            Self::StopSigkill => "stop-sigkill",
            Self::Unknown => "unknown",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The spelling that serde gives and the one on the screen are the same.
    fn check<T: Serialize>(value: T, text: &str) {
        assert_eq!(
            serde_json::to_value(value).unwrap(),
            Value::String(text.to_owned())
        );
    }

    #[test]
    fn spellings_on_the_wire_and_on_the_screen_agree() {
        use Substate as S;
        for state in [
            State::Stopped,
            State::Starting,
            State::Running,
            State::Stopping,
            State::Backoff,
            State::Failed,
        ] {
            check(state, state.as_str());
        }
        for substate in [
            S::Dead,
            S::Disabled,
            S::NeverStarted,
            S::Exited,
            S::IdleStopped,
            S::WaitingForTurn,
            S::Spawn,
            S::Exec,
            S::Handshake,
            S::Ready,
            S::Unresponsive,
            S::DrainingForReload,
            S::Drain,
            S::StopStdin,
            S::StopSigterm,
            S::StopSigkill,
            S::Verify,
            S::AutoRestart,
            S::StartLimitHit,
            S::Config,
            S::Protocol,
            S::Unkillable,
        ] {
            check(substate, substate.as_str());
        }
        for result in [
            RunResult::Success,
            RunResult::ExitCode,
            RunResult::Signal,
            RunResult::CoreDump,
            RunResult::Timeout,
            RunResult::Watchdog,
            RunResult::Protocol,
            RunResult::OomKill,
            RunResult::Resources,
            RunResult::StartLimitHit,
            RunResult::InternalError,
        ] {
            check(result, result.as_str());
        }
    }

    #[test]
    fn every_member_of_the_contract_is_present_even_when_empty() {
        let server = serde_json::to_value(ServerStatus::default()).unwrap();
        for (member, inner) in [
            ("name", &[][..]),
            ("state", &[]),
            ("substate", &[]),
            ("desired", &[]),
            ("result", &[]),
            (
                "config",
                &[
                    "status",
                    "file",
                    "line",
                    "column",
                    "error",
                    "generation",
                    "hash",
                ],
            ),
            ("pid", &[]),
            ("pgid", &[]),
            ("pidfd_ok", &[]),
            ("start_time", &[]),
            ("ready_time", &[]),
            ("state_since", &[]),
            ("generation", &[]),
            ("restarts_total", &[]),
            ("restarts_unstable", &[]),
            ("next_attempt_at", &[]),
            ("exit", &[]),
            ("exec", &["program", "argv", "cwd", "env_names"]),
            (
                "protocol",
                &[
                    "era",
                    "version",
                    "server_name",
                    "server_version",
                    "capabilities",
                ],
            ),
            (
                "requests",
                &["in_flight", "total", "errors", "oldest_ms", "last_activity"],
            ),
            (
                "resources",
                &[
                    "memory_current",
                    "memory_peak",
                    "rss_sum",
                    "cpu_usec",
                    "tasks",
                    "fds",
                ],
            ),
            ("containment", &[]),
            ("stderr_tail", &[]),
            ("violations", &[]),
            ("stop", &["phase", "deadline", "holders"]),
        ] {
            let value = server.get(member).expect(member);
            for name in inner {
                assert!(value.get(name).is_some(), "{member}.{name}");
            }
        }
        let exit = serde_json::to_value(ExitStatus::default()).unwrap();
        for name in ["code", "signal", "core", "oom", "at", "uptime_ms"] {
            assert!(exit.get(name).is_some(), "exit.{name}");
        }
    }

    #[test]
    fn a_newer_daemons_words_and_members_can_be_read() {
        let text = r#"{"schema":1,"daemon":{"pid":1,"new":true},"servers":[
            {"name":"a","state":"hibernating","substate":"deep","result":"moonshine","x":1}]}"#;
        let snapshot: StatusSnapshot = serde_json::from_str(text).unwrap();
        assert_eq!(snapshot.servers[0].state, State::Unknown);
        assert_eq!(snapshot.servers[0].substate, Substate::Unknown);
        assert_eq!(snapshot.servers[0].result, Some(RunResult::Unknown));
    }
}
