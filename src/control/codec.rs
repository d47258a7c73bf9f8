//! Lines of the control socket to typed messages and back.
//!
//! Decides what a well-formed request or reply is and which version can be talked to. Reads and
//! writes no socket: a line comes in without its newline and goes out with one.

use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::PROTOCOL;
use super::request::Request;

/// The longest line of the control socket, either way. A snapshot of a thousand servers with full
/// stderr tails stays far below.
pub const CONTROL_LINE_LIMIT_BYTES: usize = 16 << 20;

/// Who answers; member `mcpd` of the first reply of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Greeting {
    pub version: String,
    pub protocol: u32,
}

impl Greeting {
    /// The greeting of this build.
    pub fn of_this_build() -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            protocol: PROTOCOL,
        }
    }

    /// Whether this build can talk to the peer.
    pub fn check(&self) -> Result<(), VersionMismatch> {
        (self.protocol == PROTOCOL)
            .then_some(())
            .ok_or_else(|| VersionMismatch {
                daemon_version: self.version.clone(),
                daemon_protocol: self.protocol,
            })
    }
}

/// The daemon speaks another protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the running daemon is mcpd {daemon_version} (control protocol {daemon_protocol}), this is mcpd {} (control protocol {PROTOCOL})",
    env!("CARGO_PKG_VERSION")
)]
pub struct VersionMismatch {
    pub daemon_version: String,
    pub daemon_protocol: u32,
}

/// A request with the id that its reply has to carry.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestLine {
    /// A string or a number; `null` where the request had none that can be used.
    pub id: Value,
    pub request: Result<Request, UnreadableRequest>,
}

/// Why a line is no request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnreadableRequest {
    #[error("the line is not JSON: {0}")]
    NotJson(String),
    #[error("the line is no JSON-RPC request: {0}")]
    NotARequest(&'static str),
    #[error("unknown method \"{0}\"")]
    UnknownMethod(String),
    #[error("invalid parameters: {0}")]
    Params(String),
}

impl UnreadableRequest {
    /// The error to answer with.
    pub fn to_error(&self) -> ControlError {
        let kind = match self {
            Self::NotJson(_) => ErrorKind::ParseError,
            Self::NotARequest(_) => ErrorKind::InvalidRequest,
            Self::UnknownMethod(_) => ErrorKind::MethodNotFound,
            Self::Params(_) => ErrorKind::InvalidParams,
        };
        ControlError::new(kind, self.to_string())
    }
}

/// The kinds of error a control request can end with, each with its code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    ParseError,
    InvalidRequest,
    MethodNotFound,
    InvalidParams,
    Internal,
    /// The server or the daemon cannot serve this.
    Unavailable,
    /// A table is full.
    Overloaded,
    /// The daemon is ending.
    Stopping,
    /// Not for this peer.
    NotAllowed,
    /// The configuration as a whole cannot be used.
    Config,
    /// Spelled by a newer daemon.
    Other(i64),
}

impl ErrorKind {
    /// The code on the wire.
    pub const fn code(self) -> i64 {
        match self {
            Self::ParseError => -32700,
            Self::InvalidRequest => -32600,
            Self::MethodNotFound => -32601,
            Self::InvalidParams => -32602,
            Self::Internal => -32603,
            Self::Unavailable => -31000,
            Self::Overloaded => -31002,
            Self::Stopping => -31005,
            Self::NotAllowed => -31008,
            Self::Config => -31078,
            Self::Other(code) => code,
        }
    }

    fn from_code(code: i64) -> Self {
        [
            Self::ParseError,
            Self::InvalidRequest,
            Self::MethodNotFound,
            Self::InvalidParams,
            Self::Internal,
            Self::Unavailable,
            Self::Overloaded,
            Self::Stopping,
            Self::NotAllowed,
            Self::Config,
        ]
        .into_iter()
        .find(|kind| kind.code() == code)
        .unwrap_or(Self::Other(code))
    }
}

/// The error of a reply.
#[derive(Clone, Debug, PartialEq)]
pub struct ControlError {
    pub kind: ErrorKind,
    pub message: String,
    pub data: Option<Value>,
}

impl ControlError {
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            data: None,
        }
    }
}

impl fmt::Display for ControlError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.message)
    }
}

impl std::error::Error for ControlError {}

/// Why a line is no reply to what was asked.
#[derive(Debug, thiserror::Error)]
pub enum UnreadableReply {
    #[error("the daemon's reply is not JSON")]
    NotJson(#[source] serde_json::Error),
    #[error("the daemon's reply has id {seen}, not {expected}")]
    OtherId { seen: Value, expected: u64 },
    #[error("the daemon's reply has neither result nor error")]
    Empty,
    #[error("the daemon's reply is not of the expected form")]
    Form(#[source] serde_json::Error),
    #[error(transparent)]
    Version(#[from] VersionMismatch),
}

/// The line for `request`, newline included.
pub fn encode_request(id: u64, request: &Request) -> serde_json::Result<Vec<u8>> {
    #[derive(Serialize)]
    struct Wire<'a> {
        jsonrpc: &'a str,
        id: u64,
        method: &'a str,
        params: Value,
    }
    line(&Wire {
        jsonrpc: "2.0",
        id,
        method: request.method(),
        params: request.params()?,
    })
}

/// The request in `text`, which has no newline.
pub fn decode_request(text: &[u8]) -> RequestLine {
    let unreadable = |id: Value, why| RequestLine {
        id,
        request: Err(why),
    };
    let value: Value = match serde_json::from_slice(text) {
        Ok(value) => value,
        Err(why) => return unreadable(Value::Null, UnreadableRequest::NotJson(why.to_string())),
    };
    let Value::Object(mut members) = value else {
        return unreadable(
            Value::Null,
            UnreadableRequest::NotARequest("it is no object"),
        );
    };
    let Some(id @ (Value::String(_) | Value::Number(_))) = members.remove("id") else {
        return unreadable(
            Value::Null,
            UnreadableRequest::NotARequest("\"id\" must be a string or a number"),
        );
    };
    if members.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        return unreadable(
            id,
            UnreadableRequest::NotARequest("\"jsonrpc\" must be \"2.0\""),
        );
    }
    let Some(Value::String(method)) = members.remove("method") else {
        return unreadable(
            id,
            UnreadableRequest::NotARequest("\"method\" must be a string"),
        );
    };
    let params = members.remove("params").unwrap_or(Value::Null);
    RequestLine {
        id,
        request: Request::from_parts(&method, params),
    }
}

/// The line for a reply, newline included. `greeting` goes with the first reply of a connection.
pub fn encode_reply<T: Serialize>(
    id: &Value,
    result: Result<&T, &ControlError>,
    greeting: Option<&Greeting>,
) -> serde_json::Result<Vec<u8>> {
    #[derive(Serialize)]
    struct WireError<'a> {
        code: i64,
        message: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        data: Option<&'a Value>,
    }
    #[derive(Serialize)]
    struct Wire<'a, T> {
        jsonrpc: &'a str,
        id: &'a Value,
        #[serde(skip_serializing_if = "Option::is_none")]
        mcpd: Option<&'a Greeting>,
        #[serde(skip_serializing_if = "Option::is_none")]
        result: Option<&'a T>,
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<WireError<'a>>,
    }
    line(&Wire {
        jsonrpc: "2.0",
        id,
        mcpd: greeting,
        result: result.ok(),
        error: result.err().map(|error| WireError {
            code: error.kind.code(),
            message: &error.message,
            data: error.data.as_ref(),
        }),
    })
}

/// The reply to request `expected` in `text`, which has no newline. A greeting, where there is
/// one, is checked before anything else is believed.
pub fn decode_reply<T: DeserializeOwned>(
    expected: u64,
    text: &[u8],
) -> Result<Result<T, ControlError>, UnreadableReply> {
    #[derive(Deserialize)]
    struct WireError {
        code: i64,
        message: String,
        data: Option<Value>,
    }
    #[derive(Deserialize)]
    struct Wire {
        #[serde(default)]
        id: Value,
        mcpd: Option<Greeting>,
        result: Option<Value>,
        error: Option<WireError>,
    }
    let wire: Wire = serde_json::from_slice(text).map_err(UnreadableReply::NotJson)?;
    if let Some(greeting) = &wire.mcpd {
        greeting.check()?;
    }
    if let Some(error) = wire.error {
        return Ok(Err(ControlError {
            kind: ErrorKind::from_code(error.code),
            message: error.message,
            data: error.data,
        }));
    }
    if wire.id.as_u64() != Some(expected) {
        return Err(UnreadableReply::OtherId {
            seen: wire.id,
            expected,
        });
    }
    let result = wire.result.ok_or(UnreadableReply::Empty)?;
    serde_json::from_value(result)
        .map(Ok)
        .map_err(UnreadableReply::Form)
}

fn line<T: Serialize>(wire: &T) -> serde_json::Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec(wire)?;
    bytes.push(b'\n');
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{Attach, Hello, Stop, Targets};

    /// What is encoded is what is decoded, in one line.
    fn check(request: Request) {
        let bytes = encode_request(7, &request).unwrap();
        let (newline, text) = bytes.split_last().unwrap();
        assert_eq!(*newline, b'\n');
        assert!(!text.contains(&b'\n'));
        let decoded = decode_request(text);
        assert_eq!(decoded.id, Value::from(7));
        assert_eq!(decoded.request, Ok(request));
    }

    #[test]
    fn every_request_survives_the_wire() {
        let names = vec!["a".to_owned(), "b\nc".to_owned()];
        let targets = Targets {
            names: names.clone(),
        };
        for request in [
            Request::Hello,
            Request::Status(targets.clone()),
            Request::Metrics,
            Request::Start(targets.clone()),
            Request::Stop(Stop {
                names: names.clone(),
                now: true,
            }),
            Request::Restart(Stop { names, now: false }),
            Request::ResetFailed(targets),
            Request::Shutdown { now: true },
            Request::Reload { wait: true },
            Request::Attach(Attach {
                server: "a".to_owned(),
                client: "connect".to_owned(),
                directory: Some("/x".to_owned()),
                journal: None,
            }),
        ] {
            check(request);
        }
    }

    #[test]
    fn parameters_may_be_left_out() {
        let decoded = decode_request(br#"{"jsonrpc":"2.0","id":"x","method":"status"}"#);
        assert_eq!(decoded.request, Ok(Request::Status(Targets::default())));
        assert_eq!(decoded.id, Value::from("x"));
    }

    #[test]
    fn a_line_that_is_no_request_says_why() {
        for (text, code) in [
            ("hello", -32700),
            ("[]", -32600),
            (r#"{"jsonrpc":"2.0","method":"hello"}"#, -32600),
            (r#"{"jsonrpc":"2.0","id":null,"method":"hello"}"#, -32600),
            (r#"{"id":1,"method":"hello"}"#, -32600),
            (r#"{"jsonrpc":"2.0","id":1}"#, -32600),
            (r#"{"jsonrpc":"2.0","id":1,"method":"fly"}"#, -32601),
            (r#"{"jsonrpc":"2.0","id":1,"method":"attach"}"#, -32602),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"stop","params":{"names":1}}"#,
                -32602,
            ),
        ] {
            let error = decode_request(text.as_bytes()).request.unwrap_err();
            assert_eq!(error.to_error().kind.code(), code, "{text}");
        }
    }

    fn reply(protocol: u32, id: u64) -> Vec<u8> {
        let greeting = Greeting {
            version: "9.9.9".to_owned(),
            protocol,
        };
        let hello = Hello {
            pid: 5,
            ..Hello::default()
        };
        let mut bytes = encode_reply(&Value::from(id), Ok(&hello), Some(&greeting)).unwrap();
        assert_eq!(bytes.pop(), Some(b'\n'));
        bytes
    }

    #[test]
    fn a_reply_survives_the_wire() {
        let hello: Hello = decode_reply(1, &reply(PROTOCOL, 1)).unwrap().unwrap();
        assert_eq!(hello.pid, 5);
    }

    #[test]
    fn another_protocol_is_named_before_anything_is_read() {
        let error = decode_reply::<Hello>(1, &reply(PROTOCOL + 1, 1)).unwrap_err();
        let UnreadableReply::Version(mismatch) = error else {
            panic!("{error}");
        };
        assert!(mismatch.to_string().contains("mcpd 9.9.9"));
    }

    #[test]
    fn a_reply_to_something_else_is_refused() {
        let error = decode_reply::<Hello>(1, &reply(PROTOCOL, 2)).unwrap_err();
        assert!(matches!(error, UnreadableReply::OtherId { .. }));
    }

    #[test]
    fn an_error_reply_keeps_its_kind_message_and_data() {
        let mut error = ControlError::new(ErrorKind::Unavailable, "gone");
        error.data = Some(Value::from(1));
        let bytes = encode_reply::<Hello>(&Value::Null, Err(&error), None).unwrap();
        let decoded = decode_reply::<Hello>(1, &bytes).unwrap().unwrap_err();
        assert_eq!(decoded, error);
    }
}
