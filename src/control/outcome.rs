//! The replies of the control socket, but for the status snapshot.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::status::{State, Substate};

/// The daemon introduces itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Hello {
    pub version: String,
    /// [`super::PROTOCOL`] of the daemon.
    pub protocol: u32,
    pub pid: u32,
    /// The configuration folder it serves.
    pub config_dir: String,
}

/// The state of all servers, for whatever collects figures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Metrics {
    /// The media type of the text, for whoever serves it further.
    pub content_type: String,
    /// OpenMetrics 1.0.
    pub text: String,
}

/// The connection is a raw MCP stream from the next byte on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Attached {
    /// The instance that serves this attachment (`NAME`, `NAME@DIRECTORY`, `NAME#N`).
    pub instance: String,
    /// Unique in the life of the daemon.
    pub attachment: u64,
    /// Whether the daemon keeps the journal that came with the request, and has gone on from it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub journal: bool,
    /// Whether it speaks with the host by the descriptors that came too. Then nothing more is said
    /// on this connection; it lasts as long as the attachment.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub handed: bool,
}

/// What became of each server that a request named.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Outcomes {
    pub outcomes: Vec<Outcome>,
}

/// What became of one server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    pub server: String,
    pub outcome: OutcomeKind,
    #[serde(default)]
    pub state: Option<State>,
    #[serde(default)]
    pub substate: Option<Substate>,
    /// Why it failed, or what is worth knowing; one sentence.
    #[serde(default)]
    pub message: Option<String>,
    /// The step that ended the child, where one was ended.
    #[serde(default)]
    pub ended_by: Option<StopStep>,
    /// From the request to this outcome, in milliseconds.
    #[serde(default)]
    pub took_ms: u64,
}

/// How it went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OutcomeKind {
    /// As asked.
    Done,
    /// It was so already.
    Unchanged,
    /// Not as asked; the message says why.
    Failed,
    /// No such server.
    UnknownServer,
}

/// The step of a teardown after which nothing was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum StopStep {
    /// It left before the teardown began.
    Exited,
    /// Its input was closed.
    StopStdin,
    /// Its group got SIGTERM.
    StopSigterm,
    /// Its group got SIGKILL.
    StopSigkill,
    /// Spelled by a newer daemon.
    #[serde(other)]
    Unknown,
}

/// What a reload changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReloadReport {
    /// The configuration before and after; equal if nothing changed.
    pub from_generation: u64,
    pub to_generation: u64,
    pub took_ms: u64,
    /// One for each server that is not as before, and each whose file is invalid.
    pub changes: Vec<ReloadChange>,
    /// Errors that belong to no server, each with its place.
    pub errors: Vec<String>,
}

/// What a reload did to one server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReloadChange {
    pub server: String,
    pub change: ChangeKind,
    /// What follows or why, one line: `starting`, `args changed (drained 2 requests)`.
    #[serde(default)]
    pub detail: String,
    /// A start that followed has failed; told only if it was waited for.
    #[serde(default)]
    pub failed: bool,
}

/// The kinds of change, in the order in which a report lists them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeKind {
    Added,
    /// A change that needs a new child.
    Restart,
    /// A change that was applied to the running child.
    Live,
    /// Its file is invalid: it goes on as it was.
    Kept,
    /// Its file is new and invalid: it does not run.
    Invalid,
    Removed,
}
