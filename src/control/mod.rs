//! What the command line and the daemon say to each other on `mcpd.sock`.
//!
//! One JSON-RPC message a line. Every request has an id, every request gets one reply. The first
//! reply of a connection carries a [`Greeting`], whatever was asked, so that a client learns the
//! daemon's version without a round trip of its own. After a successful `attach` the connection is
//! no longer ours: every further byte, in both directions, is a raw MCP stream.
//!
//! This room holds data and its spelling. It opens no socket, reads no clock and knows no state
//! machine: the daemon turns its own states into these types, the command line renders them.

mod calls;
mod codec;
mod metrics;
mod outcome;
mod record;
mod request;
mod status;
mod trace;

pub use calls::{AskCalls, CallOutcome, CallRecord, Calls};
pub use codec::{
    CONTROL_LINE_LIMIT_BYTES, ControlError, ErrorKind, Greeting, RequestLine, UnreadableReply,
    UnreadableRequest, VersionMismatch, decode_reply, decode_request, encode_reply, encode_request,
};
pub use metrics::{CONTENT_TYPE, render_metrics};
pub use outcome::{
    Attached, ChangeKind, Hello, Metrics, Outcome, OutcomeKind, Outcomes, ReloadChange,
    ReloadReport, StopStep,
};
pub use record::{END_RECORD_FILE, EndRecord, STATE_RECORD_FILE, StateRecord};
pub use request::{Attach, Request, Stop, Targets};
pub use status::{
    AttachmentStatus, CallsStatus, ConfigStatus, ConfigVerdict, DaemonStatus, Desired, ExecStatus,
    ExitStatus, LastDaemon, LimitsStatus, ProcessStatus, ProtocolStatus, ResourceStatus, RunResult,
    SCHEMA, ServerStatus, State, StatusSnapshot, StopStatus, Substate,
};
pub use trace::{AskTrace, TraceLine, TraceMessage};

/// The version of this protocol. It grows when an older peer could misread a newer one; a new
/// method or member is no such case.
pub const PROTOCOL: u32 = 1;

/// What a daemon that is ending writes at the end of its lock file where its socket stays behind for
/// the next one. Clients then take it for gone.
pub const ENDING_NOTE: &str = ", ending";
