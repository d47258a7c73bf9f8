//! What a daemon leaves in its state folder for a status without it: how it was, and why it ended.
//!
//! Two files, because the second one must be writable by a daemon that breaks and can no longer
//! tell how it was. A crash without a word leaves the first one only, and so tells itself.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::status::StatusSnapshot;

/// The file with the [`StateRecord`], in the state folder.
pub const STATE_RECORD_FILE: &str = "daemon.json";
/// The file with the [`EndRecord`], in the state folder.
pub const END_RECORD_FILE: &str = "daemon-end.json";

/// How the daemon and its servers were when something last changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StateRecord {
    /// RFC 3339.
    pub written_at: String,
    pub snapshot: StatusSnapshot,
}

/// Why a daemon ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct EndRecord {
    /// Of the daemon that ended.
    pub pid: u32,
    /// RFC 3339.
    pub at: String,
    /// It ended because it was told to.
    pub orderly: bool,
    /// One sentence without a full stop.
    pub reason: String,
}
