//! The requests of the control socket.
//!
//! Decides how a method name and its parameters become a [`Request`]; never what is done with it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::calls::AskCalls;
use super::codec::UnreadableRequest;
use super::trace::AskTrace;

/// One thing that is asked of the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Who are you? Answered with [`super::Hello`].
    Hello,
    /// The state of these servers, of all without a name. Answered with [`super::StatusSnapshot`]
    /// from what the workers published last; never waits for a worker.
    Status(Targets),
    /// The state of all servers as OpenMetrics text. Answered with [`super::Metrics`].
    Metrics,
    /// The last calls. Answered with [`super::Calls`].
    Calls(AskCalls),
    /// Show the messages of a server on this connection from now on. Answered with `{}`, then with
    /// [`super::TraceLine`]s.
    Trace(AskTrace),
    /// Want these servers up. Answered with [`super::Outcomes`] when each is up or cannot be.
    Start(Targets),
    /// Want these servers down. Answered with [`super::Outcomes`] when nothing of them is left.
    Stop(Stop),
    /// Stop and start. Answered with [`super::Outcomes`].
    Restart(Stop),
    /// Forget failures and their count. Answered with [`super::Outcomes`].
    ResetFailed(Targets),
    /// End the daemon. Answered with [`super::Outcomes`] when every server is down; then the
    /// connection closes and the process ends.
    Shutdown {
        /// Skip to the kill step.
        now: bool,
    },
    /// Read the configuration again. Answered with [`super::ReloadReport`].
    Reload {
        /// Reply only when every stop and start that follows has ended.
        wait: bool,
    },
    /// Make this connection a raw MCP stream. Answered with [`super::Attached`].
    Attach(Attach),
}

/// Server names; what no name means is said by the request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Targets {
    pub names: Vec<String>,
}

/// Which servers to stop, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Stop {
    pub names: Vec<String>,
    /// Skip to the kill step.
    pub now: bool,
}

/// Who attaches to what.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attach {
    /// The server's name.
    pub server: String,
    /// What attaches, for people (`connect`, `call`); never used to decide anything.
    #[serde(default)]
    pub client: String,
    /// The working directory of the host, absolute; for servers shared by directory.
    #[serde(default)]
    pub directory: Option<String>,
    /// The version of the journal that comes with this request, the first of its descriptors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub journal: Option<u32>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct ShutdownParams {
    now: bool,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct ReloadParams {
    wait: bool,
}

impl Request {
    /// The servers that it is about, as far as it names any.
    pub fn names(&self) -> &[String] {
        match self {
            Self::Status(targets) | Self::Start(targets) | Self::ResetFailed(targets) => {
                &targets.names
            }
            Self::Stop(stop) | Self::Restart(stop) => &stop.names,
            Self::Calls(ask) => &ask.names,
            Self::Trace(ask) => std::slice::from_ref(&ask.server),
            Self::Attach(attach) => std::slice::from_ref(&attach.server),
            Self::Hello | Self::Metrics | Self::Shutdown { .. } | Self::Reload { .. } => &[],
        }
    }

    /// The method's name on the wire.
    pub fn method(&self) -> &'static str {
        match self {
            Self::Hello => "hello",
            Self::Status(_) => "status",
            Self::Metrics => "metrics",
            Self::Calls(_) => "calls",
            Self::Trace(_) => "trace",
            Self::Start(_) => "start",
            Self::Stop(_) => "stop",
            Self::Restart(_) => "restart",
            Self::ResetFailed(_) => "reset-failed",
            Self::Shutdown { .. } => "shutdown",
            Self::Reload { .. } => "reload",
            Self::Attach(_) => "attach",
        }
    }

    /// The parameters on the wire.
    pub(super) fn params(&self) -> serde_json::Result<Value> {
        match self {
            Self::Hello | Self::Metrics => Ok(Value::Object(serde_json::Map::new())),
            Self::Status(targets) | Self::Start(targets) | Self::ResetFailed(targets) => {
                serde_json::to_value(targets)
            }
            Self::Stop(stop) | Self::Restart(stop) => serde_json::to_value(stop),
            Self::Calls(ask) => serde_json::to_value(ask),
            Self::Trace(ask) => serde_json::to_value(ask),
            Self::Shutdown { now } => serde_json::to_value(ShutdownParams { now: *now }),
            Self::Reload { wait } => serde_json::to_value(ReloadParams { wait: *wait }),
            Self::Attach(attach) => serde_json::to_value(attach),
        }
    }

    /// The request that `method` and `params` spell. Members that are not known are ignored, so
    /// that a newer client can talk to an older daemon.
    pub(super) fn from_parts(method: &str, params: Value) -> Result<Self, UnreadableRequest> {
        Ok(match method {
            "hello" => Self::Hello,
            "status" => Self::Status(read(params)?),
            "metrics" => Self::Metrics,
            "calls" => Self::Calls(read(params)?),
            "trace" => Self::Trace(read(params)?),
            "start" => Self::Start(read(params)?),
            "stop" => Self::Stop(read(params)?),
            "restart" => Self::Restart(read(params)?),
            "reset-failed" => Self::ResetFailed(read(params)?),
            "shutdown" => Self::Shutdown {
                now: read::<ShutdownParams>(params)?.now,
            },
            "reload" => Self::Reload {
                wait: read::<ReloadParams>(params)?.wait,
            },
            "attach" => Self::Attach(read(params)?),
            other => return Err(UnreadableRequest::UnknownMethod(other.to_owned())),
        })
    }
}

/// Parameters as `T`; absent ones read as an empty object.
fn read<T: serde::de::DeserializeOwned>(params: Value) -> Result<T, UnreadableRequest> {
    let params = match params {
        Value::Null => Value::Object(serde_json::Map::new()),
        given => given,
    };
    serde_json::from_value(params).map_err(|source| UnreadableRequest::Params(source.to_string()))
}
