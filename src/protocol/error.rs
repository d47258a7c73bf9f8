//! The error codes that mcpd writes or understands.
//!
//! Decides nothing: it gives each number its one name. Codes of mcpd's own lie outside the ranges
//! that JSON-RPC 2.0 (section 5.1) and MCP reserve, so that a host can tell them from a server's.

use std::fmt;

/// The code of a JSON-RPC error, as it stands in `error.code`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ErrorCode(pub i64);

impl ErrorCode {
    /// JSON-RPC: the line is not JSON.
    pub const PARSE_ERROR: Self = Self(-32700);
    /// JSON-RPC: the JSON is no request, or breaks a rule of the envelope.
    pub const INVALID_REQUEST: Self = Self(-32600);
    /// JSON-RPC: there is no such method here.
    pub const METHOD_NOT_FOUND: Self = Self(-32601);
    /// JSON-RPC: the method is known, its parameters are wrong.
    pub const INVALID_PARAMS: Self = Self(-32602);
    /// JSON-RPC: something broke inside the peer.
    pub const INTERNAL_ERROR: Self = Self(-32603);
    /// MCP up to 2025-11-25: `resources/read` names a resource that does not exist.
    pub const RESOURCE_NOT_FOUND: Self = Self(-32002);

    /// MCP 2026-07-28: the host did not declare a capability that the request needs.
    pub const MISSING_CLIENT_CAPABILITY: Self = Self(-32021);
    /// MCP 2026-07-28: the request names a version that is not spoken here.
    pub const UNSUPPORTED_VERSION: Self = Self(-32022);

    /// The server cannot run: it cannot start, is disabled, unknown, failed or shut down.
    pub const SERVER_UNAVAILABLE: Self = Self(-31000);
    /// The child died while this request was open; the outcome is unknown.
    pub const SERVER_EXITED: Self = Self(-31001);
    /// A queue or a table is full.
    pub const OVERLOADED: Self = Self(-31002);
    /// `request_timeout` passed; the call was cancelled upstream.
    pub const TIMED_OUT: Self = Self(-31003);
    /// The message is larger than `message_limit`, either way.
    pub const MESSAGE_TOO_LARGE: Self = Self(-31004);
    /// A stop, restart or reload is in progress and the wait ran out.
    pub const SERVER_STOPPING: Self = Self(-31005);
    /// The request was open when the daemon went; the outcome is unknown.
    pub const DAEMON_RESTARTED: Self = Self(-31006);
    /// A legacy child asked something that fits no single host.
    pub const CANNOT_ATTRIBUTE: Self = Self(-31007);
    /// The tool is denied by the server's `[tools]`.
    pub const NOT_ALLOWED: Self = Self(-31008);

    /// The name of the code for people, or `None` for a code that mcpd never writes.
    pub const fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::PARSE_ERROR => "parse error",
            Self::INVALID_REQUEST => "invalid request",
            Self::METHOD_NOT_FOUND => "method not found",
            Self::INVALID_PARAMS => "invalid params",
            Self::INTERNAL_ERROR => "internal error",
            Self::RESOURCE_NOT_FOUND => "resource not found",
            Self::MISSING_CLIENT_CAPABILITY => "missing client capability",
            Self::UNSUPPORTED_VERSION => "unsupported protocol version",
            Self::SERVER_UNAVAILABLE => "server unavailable",
            Self::SERVER_EXITED => "server exited",
            Self::OVERLOADED => "overloaded",
            Self::TIMED_OUT => "timed out",
            Self::MESSAGE_TOO_LARGE => "message too large",
            Self::SERVER_STOPPING => "server stopping",
            Self::DAEMON_RESTARTED => "daemon restarted",
            Self::CANNOT_ATTRIBUTE => "cannot attribute",
            Self::NOT_ALLOWED => "not allowed",
            _ => return None,
        })
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}
