//! What the multiplexer of one instance is told about its server.
//!
//! Decides nothing: these are the keys of a server file that matter here, already valid. The
//! daemon fills them from the configuration; `session` never reads that room.

use std::sync::Arc;
use std::time::Duration;

use super::tools::ToolRules;
use crate::protocol::EraChoice;

/// Who answers what a legacy child asks of its client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Asking {
    /// Nobody: the child is told of no client that could.
    #[default]
    Nobody,
    /// Its hosts, who take turns so that each question has one caller (`interactive`).
    Turns,
}

/// The settings of one instance. Every key may change while the child runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MuxConfig {
    /// The name of the server, as in `data.server` of every error.
    pub server: String,
    /// What `clientInfo.version` says upstream: the version of mcpd.
    pub client_version: String,
    /// How long a request waits for a child that can serve it, from its arrival.
    pub start_timeout: Duration,
    /// How long nobody may need the child before [`MuxAction::Idle`](super::MuxAction::Idle).
    pub idle_stop: Option<Duration>,
    /// How long a request may take, from its write to the child.
    pub request_timeout: Option<Duration>,
    /// How long the child may be silent before it is asked, and then before it is given up.
    pub watchdog: Option<Duration>,
    /// How many calls the child may have open at once.
    pub max_calls: Option<usize>,
    /// Which tools hosts may see and call.
    pub tools: ToolRules,
    /// Who answers what a legacy child asks.
    pub asking: Asking,
    /// Which eras may be spoken with the child: counts from the next one on.
    pub protocol: EraChoice,
}

impl MuxConfig {
    /// The defaults of a server file for the server `name`.
    pub fn of(name: impl Into<String>) -> Self {
        Self {
            server: name.into(),
            client_version: env!("CARGO_PKG_VERSION").to_owned(),
            start_timeout: Duration::from_secs(90),
            idle_stop: None,
            request_timeout: None,
            watchdog: None,
            max_calls: None,
            tools: ToolRules::default(),
            asking: Asking::Nobody,
            protocol: EraChoice::Auto,
        }
    }
}

/// What is known of a host when it attaches, for `status`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostInfo {
    /// What the peer said of itself in `attach`, before its own `initialize` says more.
    pub client: Option<Arc<str>>,
    /// The peer's process, where the socket told it.
    pub pid: Option<u32>,
}
