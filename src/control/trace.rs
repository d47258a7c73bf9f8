//! A live view of the messages of one server, as the daemon sends it: a JSON object a line.
//!
//! Nothing of what hosts and servers say is part of it unless bodies are asked for.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Whose messages to tell of, and how much of them. After the reply the connection carries
/// [`TraceLine`]s until either end closes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AskTrace {
    pub server: String,
    /// Only those of hosts with this in their name, or with this process or attachment number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// So many bytes of each message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bodies: Option<u32>,
}

/// One line of a view.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum TraceLine {
    Message(Box<TraceMessage>),
    /// The server is in another state.
    State {
        at: String,
        server: String,
        /// Substate and cause, as in the log.
        text: String,
    },
    /// The viewer did not keep up.
    NotShown {
        count: u64,
    },
    /// Spelled by a newer daemon.
    #[serde(other)]
    Unknown,
}

/// One message.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TraceMessage {
    /// RFC 3339 in UTC.
    pub at: String,
    pub server: String,
    /// `to-server` or `to-host`.
    pub direction: String,
    /// `request`, `waiting` (a request that is not written to the server yet), `notification`,
    /// `response` or `noise` (no message).
    pub kind: String,
    /// The host at one end; absent where it is nobody's or everybody's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attachment: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// mcpd itself says it, or gets it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub mcpd: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The id at the host's side.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub host_id: Value,
    /// The id at the server's side.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub server_id: Value,
    pub bytes: u64,
    /// Of a response: since its request was written to the server, or arrived.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub took_us: Option<u64>,
    /// Of a response: `ok`, `tool-error` or `error`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// The code of an error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<i64>,
    /// The beginning of the message, secrets replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_back_and_newer_ones_passed() {
        let line = TraceLine::Message(Box::new(TraceMessage {
            method: Some("ping".to_owned()),
            host_id: Value::from("a"),
            ..TraceMessage::default()
        }));
        let text = serde_json::to_string(&line).unwrap();
        assert!(text.starts_with(r#"{"event":"message","at""#), "{text}");
        assert_eq!(serde_json::from_str::<TraceLine>(&text).unwrap(), line);
        let newer = r#"{"event":"weather","is":"fine"}"#;
        assert_eq!(
            serde_json::from_str::<TraceLine>(newer).unwrap(),
            TraceLine::Unknown
        );
    }
}
