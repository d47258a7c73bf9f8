//! The first exchange with a child, from its start until requests may be written to it.
//!
//! Decides which version is spoken with the child and whether its answer opens a session. It finds
//! this out once a generation and no other file guesses. Never serves a host, and never bounds the
//! whole exchange in time: `start_timeout` does, from outside.
//!
//! Source: MCP 2025-11-25, `basic/lifecycle`, Initialization.

use bytes::Bytes;

use super::frame::Frame;
use super::json::{self, ValueType};
use super::message::{Fault, FaultReason, InvalidReason, Kind, Member, Message, Outcome};
use super::version::Version;
use super::write;
use crate::time::Moment;

/// Upstream ids that the first exchange takes for itself: 1 up to this one. Requests of hosts
/// begin behind it, so that a late answer to the exchange is nobody's.
pub const OPENING_IDS: u64 = 4;

const INITIALIZE_ID: u64 = 1;

/// Bytes of what a child sent that are shown in a refusal.
const SHOWN_BYTES: usize = 300;

/// The exchange with one generation of a child.
#[derive(Debug)]
pub struct Opening {
    phase: Phase,
    client_version: String,
    frame: Option<Frame>,
    result: Option<Result<ChildIdentity, Refusal>>,
}

/// How far the exchange has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Entered at the start. Left for `Done` by the first line that answers `initialize`.
    Initializing,
    /// The outcome is known; later answers are nobody's.
    Done,
}

/// What a child said of itself when its session was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildIdentity {
    /// What is spoken with it.
    pub version: Version,
    /// Its whole `InitializeResult`, byte for byte.
    pub result: Bytes,
    /// The `capabilities` in it, byte for byte.
    pub capabilities: Bytes,
    /// `serverInfo.name`
    pub server_name: Option<String>,
    /// `serverInfo.version`
    pub server_version: Option<String>,
    /// `instructions`
    pub instructions: Option<String>,
}

/// Why a child's session could not be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// One sentence that names what was seen.
    pub text: String,
    /// The child's `error`, byte for byte, if it answered with one.
    pub error: Option<Bytes>,
}

impl ChildIdentity {
    /// The value of the capability `name`, if the child declares it as an object.
    pub fn capability(&self, name: &str) -> Option<&[u8]> {
        let entry = json::find_member(&self.capabilities, name)?;
        (ValueType::of(entry.value) == Some(ValueType::Object)).then_some(entry.value)
    }

    /// Whether the child declares the capability `name`, whatever is in it.
    pub fn offers(&self, name: &str) -> bool {
        self.capability(name).is_some()
    }

    /// Whether `flag` of the capability `name` is `true`: `resources.subscribe` for one.
    pub fn declares(&self, name: &str, flag: &str) -> bool {
        self.capability(name)
            .and_then(|capability| json::find_member(capability, flag))
            .is_some_and(|entry| json::is_true(entry.value))
    }
}

impl Opening {
    /// Begins the exchange with a child that has just started. `client_version` is mcpd's own.
    pub fn new(client_version: &str, _now: Moment) -> Self {
        let mut opening = Self {
            phase: Phase::Initializing,
            client_version: client_version.to_owned(),
            frame: None,
            result: None,
        };
        opening.frame = Some(opening.initialize());
        opening
    }

    /// Takes what the child sent. False if it is not part of the exchange: a `ping`, a
    /// notification, an answer to something else.
    pub fn handle_message(&mut self, message: &Message, _now: Moment) -> bool {
        if self.phase == Phase::Done || !answers_initialize(message) {
            return false;
        }
        self.settle(read_answer(message));
        true
    }

    /// Takes a line of the child that is no message. False if it says nothing about the exchange:
    /// noise is skipped here as everywhere.
    pub fn handle_fault(&mut self, fault: &Fault, _now: Moment) -> bool {
        if self.phase == Phase::Done || !spoils_initialize(fault) {
            return false;
        }
        let text = match fault.reason {
            FaultReason::ContentLength => {
                "the server frames its messages with Content-Length headers; MCP over stdio \
                 separates them by newlines"
                    .to_owned()
            }
            FaultReason::MultiLine => {
                "the server prints multi-line JSON; MCP over stdio needs each message on one line"
                    .to_owned()
            }
            reason => format!(
                "the answer to `initialize` cannot be read: {reason}; it begins `{}`",
                fault.sample_text()
            ),
        };
        self.settle(Err(Refusal { text, error: None }));
        true
    }

    /// Tells the exchange that its deadline may have passed.
    pub fn handle_timeout(&mut self, _now: Moment) {}

    /// When [`Opening::handle_timeout`] is due.
    pub const fn poll_timeout(&self) -> Option<Moment> {
        None
    }

    /// The next line for the child. Everything here goes out before anything else does.
    pub fn poll_frame(&mut self) -> Option<Frame> {
        self.frame.take()
    }

    /// The outcome, once. After a session was opened, a last frame is due first.
    pub fn poll_outcome(&mut self) -> Option<Result<ChildIdentity, Refusal>> {
        self.result.take()
    }

    /// Whether the outcome is known.
    pub fn is_done(&self) -> bool {
        self.phase == Phase::Done
    }

    fn settle(&mut self, result: Result<ChildIdentity, Refusal>) {
        self.phase = Phase::Done;
        self.frame = result
            .is_ok()
            .then(|| write::notification("notifications/initialized", None));
        self.result = Some(result);
    }

    /// No client capability is declared: a child must not ask what nobody answers.
    fn initialize(&self) -> Frame {
        let mut params = b"{\"protocolVersion\":".to_vec();
        json::write_text(&mut params, Version::NEWEST.as_str());
        params.extend_from_slice(
            b",\"capabilities\":{},\"clientInfo\":{\"name\":\"mcpd\",\"version\":",
        );
        json::write_text(&mut params, &self.client_version);
        params.extend_from_slice(b"}}");
        write::request(INITIALIZE_ID, "initialize", Some(&params))
    }
}

/// Whether the line is the answer, whole or not. An error without an id can only be meant for the
/// one request that is open.
fn answers_initialize(message: &Message) -> bool {
    let ours = message
        .ids()
        .iter()
        .any(|id| id.as_u64() == Some(INITIALIZE_ID));
    if ours {
        return !message.has(Member::Method);
    }
    message.kind() == Kind::Response
        && message.id().is_none()
        && message.outcome() == Some(Outcome::Error)
}

fn spoils_initialize(fault: &Fault) -> bool {
    let ours = fault
        .ids
        .iter()
        .any(|id| id.as_u64() == Some(INITIALIZE_ID));
    let nobodys = fault.ids.is_empty() && fault.reason.loses_a_message();
    fault.reason == FaultReason::ContentLength || (ours || nobodys) && !fault.has_method
}

fn read_answer(message: &Message) -> Result<ChildIdentity, Refusal> {
    if let Kind::Invalid(reason) = message.kind() {
        return Err(malformed(&match reason {
            InvalidReason::Nothing => "neither `result` nor `error` is there".to_owned(),
            reason => reason.to_string(),
        }));
    }
    match message.outcome() {
        Some(Outcome::Result) => read_result(message.value(Member::Result).unwrap_or_default()),
        _ => Err(read_error(message.value(Member::Error).unwrap_or_default())),
    }
}

fn read_error(error: &[u8]) -> Refusal {
    let part = |name| json::find_member(error, name).map(|entry| entry.value);
    let message = part("message").and_then(json::text);
    let code = part("code").map(|code| String::from_utf8_lossy(code).into_owned());
    let seen = match (message, code) {
        (Some(message), Some(code)) => format!("{} (code {code})", cut(&message)),
        (Some(message), None) => cut(&message),
        (None, _) => cut(&String::from_utf8_lossy(error)),
    };
    Refusal {
        text: format!("the server refused `initialize`: {seen}"),
        error: Some(Bytes::copy_from_slice(error)),
    }
}

fn read_result(result: &[u8]) -> Result<ChildIdentity, Refusal> {
    let part = |name| json::find_member(result, name).map(|entry| entry.value);
    if ValueType::of(result) != Some(ValueType::Object) {
        return Err(malformed(&format!("`result` is {}", shown(Some(result)))));
    }
    let version = part("protocolVersion");
    let Some(named) = version.and_then(json::text) else {
        return Err(malformed(&format!(
            "`protocolVersion` is {}",
            shown(version)
        )));
    };
    let version = Version::parse(&named).ok_or_else(|| unknown_version(&named))?;
    let capabilities = part("capabilities")
        .filter(|value| ValueType::of(value) == Some(ValueType::Object))
        .ok_or_else(|| {
            malformed(&format!(
                "`capabilities` is {}",
                shown(part("capabilities"))
            ))
        })?;
    let server_info = part("serverInfo").unwrap_or_default();
    let of_server = |name| {
        let value = json::find_member(server_info, name)?.value;
        Some(json::text(value)?.into_owned())
    };
    Ok(ChildIdentity {
        version,
        // Copied: a slice would hold on to the memory that the line was read into.
        result: Bytes::copy_from_slice(result),
        capabilities: Bytes::copy_from_slice(capabilities),
        server_name: of_server("name"),
        server_version: of_server("version"),
        instructions: part("instructions")
            .and_then(json::text)
            .map(|text| text.into_owned()),
    })
}

fn unknown_version(named: &str) -> Refusal {
    let known = Version::ALL.map(Version::as_str).join(", ");
    Refusal {
        text: format!(
            "the server answered `initialize` with protocol version `{}`; mcpd speaks {known}",
            cut(named)
        ),
        error: None,
    }
}

fn malformed(what: &str) -> Refusal {
    Refusal {
        text: format!("the answer to `initialize` is malformed: {what}"),
        error: None,
    }
}

fn shown(value: Option<&[u8]>) -> String {
    value.map_or_else(
        || "missing".to_owned(),
        |value| format!("`{}`", cut(&String::from_utf8_lossy(value))),
    )
}

fn cut(text: &str) -> String {
    let end = text.floor_char_boundary(SHOWN_BYTES);
    if end == text.len() {
        text.to_owned()
    } else {
        format!("{}…", &text[..end])
    }
}
