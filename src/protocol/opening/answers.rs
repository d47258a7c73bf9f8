//! What a child's answers in the first exchange say.
//!
//! Reads them and decides what each means by itself: a session, a modern child, a refusal. What
//! follows from two of them together is decided by the exchange.

use bytes::Bytes;

use super::identity::{ChildIdentity, Refusal};
use crate::protocol::envelope::Member;
use crate::protocol::json::{self, ValueType};
use crate::protocol::message::{Fault, FaultReason, InvalidReason, Kind, Message, Outcome};
use crate::protocol::version::{ModernVersion, Revision, Version};

/// Bytes of what a child sent that are shown in a refusal.
const SHOWN_BYTES: usize = 300;

/// 2026-07-28 `basic/versioning`: the version that a request names is not spoken.
const UNSUPPORTED_VERSION: &[u8] = b"-32022";

/// What an answer to `server/discover` says.
#[derive(Debug)]
pub(super) enum Discovered {
    /// The child is modern and speaks a version of ours.
    Modern(Box<ChildIdentity>),
    /// It is modern and speaks a version of ours, but refused the request all the same.
    Again,
    /// It names versions, and of ours only legacy ones.
    LegacyOnly,
    /// It names versions, and none of them is ours.
    Unknown(Refusal),
    /// Anything else: a child that knows nothing of `server/discover`. One sentence.
    NoAnswer(String),
}

/// Whether the line is the answer to our request `id`, whole or not. An error without an id can
/// only be meant for the one request that is open.
pub(super) fn answers(message: &Message, id: u64, is_only_one: bool) -> bool {
    let ours = message.ids().iter().any(|one| one.as_u64() == Some(id));
    if ours {
        return !message.has(Member::Method);
    }
    is_only_one
        && message.kind() == Kind::Response
        && message.id().is_none()
        && message.outcome() == Some(Outcome::Error)
}

/// As [`answers`], for a line that is no message.
pub(super) fn spoils(fault: &Fault, id: u64, is_only_one: bool) -> bool {
    let ours = fault.ids.iter().any(|one| one.as_u64() == Some(id));
    let nobodys = is_only_one && fault.ids.is_empty() && fault.reason.loses_a_message();
    (ours || nobodys) && !fault.has_method
}

/// Why an answer to `method` cannot be read.
pub(super) fn unreadable(fault: &Fault, method: &str) -> Refusal {
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
            "the answer to `{method}` cannot be read: {reason}; it begins `{}`",
            fault.sample_text()
        ),
    };
    Refusal { text, error: None }
}

/// The answer to `initialize`.
pub(super) fn read_initialize(message: &Message) -> Result<ChildIdentity, Refusal> {
    if let Kind::Invalid(reason) = message.kind() {
        return Err(malformed(&invalid(reason)));
    }
    match message.outcome() {
        Some(Outcome::Result) => read_result(message.value(Member::Result).unwrap_or_default()),
        _ => Err(read_error(message.value(Member::Error).unwrap_or_default())),
    }
}

/// The answer to `server/discover`.
pub(super) fn read_discover(message: &Message) -> Discovered {
    if let Kind::Invalid(reason) = message.kind() {
        return Discovered::NoAnswer(invalid(reason));
    }
    match message.outcome() {
        Some(Outcome::Result) => {
            let result = message.value(Member::Result).unwrap_or_default();
            read_discovery(result).unwrap_or_else(|| {
                let seen = cut(&String::from_utf8_lossy(result));
                Discovered::NoAnswer(format!("`result` is `{seen}`"))
            })
        }
        _ => {
            let error = message.value(Member::Error).unwrap_or_default();
            read_unsupported(error).unwrap_or_else(|| Discovered::NoAnswer(shown_error(error)))
        }
    }
}

/// Whether the error that answered `initialize` comes from a child that is modern after all: a
/// server without a handshake is to name its versions in it (2026-07-28 `basic/versioning`).
pub(super) fn names_modern(error: &[u8]) -> bool {
    let code = json::find_member(error, "code").map(|entry| entry.value);
    code == Some(UNSUPPORTED_VERSION)
        || ModernVersion::ALL
            .iter()
            .any(|version| memchr::memmem::find(error, version.as_str().as_bytes()).is_some())
}

fn invalid(reason: InvalidReason) -> String {
    match reason {
        InvalidReason::Nothing => "neither `result` nor `error` is there".to_owned(),
        reason => reason.to_string(),
    }
}

/// A `DiscoverResult`; `None` for what is none.
fn read_discovery(result: &[u8]) -> Option<Discovered> {
    let part = |name| json::find_member(result, name).map(|entry| entry.value);
    let is_complete = part("resultType").is_none_or(|kind| {
        json::raw_text(kind).is_some_and(|kind| json::text_is(kind, "complete"))
    });
    let capabilities =
        part("capabilities").filter(|value| ValueType::of(value) == Some(ValueType::Object))?;
    let supported = version_names(part("supportedVersions")?)?;
    if !is_complete {
        return None;
    }
    let Some(version) = newest_modern(&supported) else {
        return Some(without_modern(&supported));
    };
    let meta = part("_meta").unwrap_or_default();
    let info = json::find_member(meta, "io.modelcontextprotocol/serverInfo");
    Some(Discovered::Modern(Box::new(ChildIdentity::read(
        Revision::Modern(version),
        result,
        capabilities,
        info.map(|entry| entry.value).unwrap_or_default(),
    ))))
}

/// An `UnsupportedProtocolVersionError` that names versions; `None` for any other error.
fn read_unsupported(error: &[u8]) -> Option<Discovered> {
    let code = json::find_member(error, "code")?.value;
    let data = json::find_member(error, "data")?.value;
    if code != UNSUPPORTED_VERSION {
        return None;
    }
    let supported = version_names(json::find_member(data, "supported")?.value)?;
    Some(match newest_modern(&supported) {
        Some(_) => Discovered::Again,
        None => without_modern(&supported),
    })
}

fn version_names(array: &[u8]) -> Option<Vec<String>> {
    let names: Option<Vec<String>> = json::elements(array)
        .map(|span| json::text(&array[span.range()]).map(|name| name.into_owned()))
        .collect();
    names.filter(|names| !names.is_empty())
}

fn newest_modern(supported: &[String]) -> Option<ModernVersion> {
    let versions = supported.iter();
    versions.filter_map(|name| ModernVersion::parse(name)).max()
}

fn without_modern(supported: &[String]) -> Discovered {
    if supported.iter().any(|name| Version::parse(name).is_some()) {
        return Discovered::LegacyOnly;
    }
    let modern = ModernVersion::ALL.iter().map(|version| version.as_str());
    let ours: Vec<&str> = modern.chain(Version::ALL.map(Version::as_str)).collect();
    Discovered::Unknown(Refusal {
        text: format!(
            "the server speaks only MCP {}; mcpd speaks {}",
            cut(&supported.join(", ")),
            ours.join(", ")
        ),
        error: None,
    })
}

fn shown_error(error: &[u8]) -> String {
    let part = |name| json::find_member(error, name).map(|entry| entry.value);
    let message = part("message").and_then(json::text);
    let code = part("code").map(|code| String::from_utf8_lossy(code).into_owned());
    match (message, code) {
        (Some(message), Some(code)) => format!("{} (code {code})", cut(&message)),
        (Some(message), None) => cut(&message),
        (None, _) => cut(&String::from_utf8_lossy(error)),
    }
}

fn read_error(error: &[u8]) -> Refusal {
    Refusal {
        text: format!("the server refused `initialize`: {}", shown_error(error)),
        error: Some(Bytes::copy_from_slice(error)),
    }
}

impl ChildIdentity {
    /// What an `InitializeResult` says, if it is one that opens a session.
    pub fn of_initialize(result: &[u8]) -> Option<Self> {
        read_result(result).ok()
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
    Ok(ChildIdentity::read(
        Revision::Legacy(version),
        result,
        capabilities,
        part("serverInfo").unwrap_or_default(),
    ))
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
