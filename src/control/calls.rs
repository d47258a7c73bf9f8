//! The last calls, as the daemon tells of them: who called what, how long it took, how it ended.
//!
//! Arguments and results are not part of it.

use serde::{Deserialize, Serialize};

/// Which calls are asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AskCalls {
    /// Servers; all without a name.
    pub names: Vec<String>,
    /// The most that are told, the last ones; 0 for all.
    pub limit: u64,
    /// Those with this number and after it; see [`Calls::next`].
    pub from: u64,
    /// How long the reply may wait for a call while there is none to tell of.
    pub wait_ms: u64,
}

/// Calls in the order in which they ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Calls {
    pub calls: Vec<CallRecord>,
    /// The number of the next call that ends, whichever server it is of.
    pub next: u64,
}

/// One call that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallRecord {
    /// Counts the calls of this daemon.
    pub number: u64,
    /// When its request arrived, RFC 3339 in UTC.
    pub at: String,
    /// What the host calls itself.
    #[serde(default)]
    pub client: Option<String>,
    /// The host's process.
    #[serde(default)]
    pub pid: Option<u32>,
    /// The number of the attachment.
    pub attachment: u64,
    /// The instance that was called.
    pub server: String,
    pub method: String,
    /// The tool, where one was called.
    #[serde(default)]
    pub tool: Option<String>,
    pub took_us: u64,
    pub outcome: CallOutcome,
    /// The code of an error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<i64>,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CallOutcome {
    Ok,
    /// The tool itself says that it failed.
    ToolError,
    /// An error of the server, or of mcpd.
    Error,
    /// `request_timeout` passed.
    TimedOut,
    /// The server ended meanwhile.
    Exited,
    /// The host cancelled it, or left.
    Cancelled,
    /// Spelled by a newer daemon.
    #[serde(other)]
    Unknown,
}

impl CallOutcome {
    /// The outcome in words.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::ToolError => "tool error",
            Self::Error => "error",
            Self::TimedOut => "timed out",
            Self::Exited => "exited",
            Self::Cancelled => "cancelled",
            Self::Unknown => "unknown",
        }
    }
}
