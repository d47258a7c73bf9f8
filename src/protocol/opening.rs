//! The first exchange with a child, from its start until requests may be written to it.
//!
//! Decides which version is spoken with the child and whether its answer opens a session. It finds
//! this out once a generation and no other file guesses. Never serves a host, and never bounds the
//! whole exchange in time: `start_timeout` does, from outside.
//!
//! Source: MCP 2025-11-25, `basic/lifecycle`, Initialization.

use bytes::Bytes;

use super::envelope::Member;
use super::frame::Frame;
use super::json::{self, ValueType};
use super::message::{Fault, FaultReason, InvalidReason, Kind, Message, Outcome};
use super::version::{Revision, Version};
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
    pub version: Revision,
    /// Its whole `InitializeResult` or `DiscoverResult`, byte for byte.
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
        version: Revision::Legacy(version),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::line::LineReader;
    use crate::protocol::message::Line;

    const RESULT: &str = r#"{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true},"logging":true}, "serverInfo":{"name":"n","version":"1"},"instructions":"do","x":1.0}"#;

    fn begun() -> Opening {
        let mut opening = Opening::new("1.2.3", Moment::ZERO);
        opening.poll_frame().unwrap();
        opening
    }

    /// Hands every line of `stream` over, as the multiplexer does, and says which were taken.
    fn hear(opening: &mut Opening, stream: &str) -> Vec<bool> {
        let mut reader = LineReader::new(1 << 20);
        reader.feed(stream.as_bytes());
        reader.feed(b"\n");
        let lines = std::iter::from_fn(|| reader.poll());
        lines
            .map(|line| match line {
                Line::Message(message) => opening.handle_message(&message, Moment::ZERO),
                Line::Fault(fault) => opening.handle_fault(&fault, Moment::ZERO),
                Line::Batch(_) => false,
            })
            .collect()
    }

    /// `stream` ends the exchange with a refusal that says `text`.
    #[track_caller]
    fn check_refused(stream: &str, text: &str) -> Refusal {
        let mut opening = begun();
        hear(&mut opening, stream);
        assert!(opening.poll_frame().is_none());
        let refusal = opening.poll_outcome().expect("no outcome").unwrap_err();
        assert!(refusal.text.contains(text), "{}", refusal.text);
        refusal
    }

    /// `stream` leaves the exchange open.
    #[track_caller]
    fn check_ignored(stream: &str) {
        let mut opening = begun();
        assert!(hear(&mut opening, stream).iter().all(|taken| !taken));
        assert!(!opening.is_done());
        assert!(opening.poll_outcome().is_none());
    }

    fn answer(result: &str) -> String {
        format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#)
    }

    #[test]
    fn initialize_offers_the_newest_version_and_no_capability() {
        let mut opening = Opening::new("1.2.3", Moment::ZERO);
        let frame = opening.poll_frame().unwrap().to_vec();
        assert_eq!(
            String::from_utf8(frame).unwrap(),
            concat!(
                r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","#,
                r#""capabilities":{},"clientInfo":{"name":"mcpd","version":"1.2.3"}}}"#,
                "\n"
            )
        );
        assert!(opening.poll_frame().is_none());
        assert!(opening.poll_timeout().is_none());
    }

    #[test]
    fn a_valid_answer_opens_the_session_once() {
        let mut opening = begun();
        let second = answer(RESULT).replace("do", "other");
        let taken = hear(&mut opening, &format!("{}\n{second}", answer(RESULT)));
        assert_eq!(taken, [true, false]);
        let initialized = opening.poll_frame().unwrap().to_vec();
        assert_eq!(
            initialized,
            b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n"
        );
        let identity = opening.poll_outcome().unwrap().unwrap();
        assert_eq!(identity.version, Revision::Legacy(Version::V2025_06_18));
        assert_eq!(identity.result, RESULT);
        assert_eq!(identity.server_name.as_deref(), Some("n"));
        assert_eq!(identity.server_version.as_deref(), Some("1"));
        assert_eq!(identity.instructions.as_deref(), Some("do"));
        assert!(identity.offers("tools") && identity.declares("tools", "listChanged"));
        assert!(!identity.offers("logging") && !identity.declares("resources", "subscribe"));
        assert!(opening.poll_outcome().is_none() && opening.poll_frame().is_none());
    }

    #[test]
    fn every_legacy_version_is_taken() {
        for version in Version::ALL {
            let mut opening = begun();
            let result = format!(r#"{{"protocolVersion":"{version}","capabilities":{{}}}}"#);
            hear(&mut opening, &answer(&result));
            let identity = opening.poll_outcome().unwrap().unwrap();
            assert_eq!(identity.version, Revision::Legacy(version));
        }
    }

    #[test]
    fn what_is_not_the_answer_is_left_to_others() {
        check_ignored(r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#);
        check_ignored(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#);
        check_ignored(r#"{"jsonrpc":"2.0","id":2,"result":{}}"#);
        check_ignored(r#"{"jsonrpc":"2.0","id":"1","result":{}}"#);
        check_ignored(r#"{"level":"info"}"#);
        check_ignored("banner\n{starting}\n{\n  \"port\": 1\n}\n[INFO] up");
        check_ignored("{\"method\":\"notifications/message\",\"params\":{\"data\":\"cut");
    }

    #[test]
    fn a_refusal_says_what_was_seen() {
        let refusal = check_refused(
            r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no \"way\""}}"#,
            "refused `initialize`: no \"way\" (code -32602)",
        );
        assert_eq!(
            refusal.error.unwrap(),
            r#"{"code":-32602,"message":"no \"way\""}"#
        );
        check_refused(r#"{"id":1,"error":"no"}"#, "\"no\"");
        check_refused(
            r#"{"id":null,"error":{"message":"m"}}"#,
            "refused `initialize`: m",
        );
        check_refused(r#"{"error":{"message":"m"}}"#, "refused `initialize`: m");
    }

    #[test]
    fn a_malformed_answer_is_refused() {
        for (result, text) in [
            ("5", "`result` is `5`"),
            ("{}", "`protocolVersion` is missing"),
            (r#"{"protocolVersion":1}"#, "`protocolVersion` is `1`"),
            (
                r#"{"protocolVersion":"2026-07-28","capabilities":{}}"#,
                "version `2026-07-28`; mcpd speaks 2024-11-05, 2025-03-26, 2025-06-18, 2025-11-25",
            ),
            (
                r#"{"protocolVersion":"2025-11-25"}"#,
                "`capabilities` is missing",
            ),
            (
                r#"{"protocolVersion":"2025-11-25","capabilities":[]}"#,
                "`capabilities` is `[]`",
            ),
        ] {
            check_refused(&answer(result), text);
        }
        check_refused(r#"{"id":1}"#, "neither `result` nor `error`");
        check_refused(r#"{"id":1,"id":9,"result":{}}"#, "`id` occurs twice");
    }

    #[test]
    fn an_answer_that_cannot_be_read_is_refused_at_once() {
        check_refused("{\"id\":1,\"result\":{\"proto", "cannot be read");
        check_refused("{\"jsonrpc\":\"2.0\",\"result\":{\"proto", "cannot be read");
        check_refused("Content-Length: 30\r\n\r\n{}", "Content-Length");
        check_refused("{\n  \"jsonrpc\": \"2.0\",\n  \"id\": 1", "multi-line JSON");
        check_refused(
            &answer(&format!("\"{}\"", "x".repeat(1 << 21))),
            "longer than the limit",
        );
    }

    #[test]
    fn what_is_shown_is_short() {
        let refusal = check_refused(&answer(&format!("\"{}\"", "é".repeat(5_000))), "…");
        assert!(refusal.text.len() < 500);
    }
}
