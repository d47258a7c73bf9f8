//! What a line is: a message with its envelope, a batch, or a fault.
//!
//! Decides the kind of a message from the members that stand in it. Never what is done about it,
//! and never anything from a payload: of those, spans are known and no more.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use smallvec::SmallVec;

use super::id::RequestId;
use super::json::{self, Span, ValueType};

/// The members that mcpd reads in a message. Each is compared after unescaping, wherever it stands
/// at its level, and may stand there once (design 5, read members).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Member {
    /// `jsonrpc`
    Jsonrpc,
    /// `id`
    Id,
    /// `method`
    Method,
    /// `params`
    Params,
    /// `result`
    Result,
    /// `error`
    Error,
    /// `params.name`: of a tool or prompt.
    ParamsName,
    /// `params.uri`: of a resource.
    ParamsUri,
    /// `params.level`: of `logging/setLevel` and `notifications/message`.
    ParamsLevel,
    /// `params.requestId`: of `notifications/cancelled`.
    ParamsRequestId,
    /// `params.progressToken`: of `notifications/progress`; elsewhere it is payload.
    ParamsProgressToken,
    /// `params._meta`
    ParamsMeta,
    /// `params._meta.progressToken`
    MetaProgressToken,
}

/// The objects in which read members stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// The message itself.
    Message,
    /// `params`
    Params,
    /// `params._meta`
    Meta,
}

impl Member {
    /// How many there are.
    pub(crate) const COUNT: usize = 13;

    /// Every member, in the order of the enum.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Jsonrpc,
        Self::Id,
        Self::Method,
        Self::Params,
        Self::Result,
        Self::Error,
        Self::ParamsName,
        Self::ParamsUri,
        Self::ParamsLevel,
        Self::ParamsRequestId,
        Self::ParamsProgressToken,
        Self::ParamsMeta,
        Self::MetaProgressToken,
    ];

    /// The member that is called `name` (escapes undone) in an object of that level.
    pub(crate) fn find(level: Level, name: &[u8]) -> Option<Self> {
        Some(match (level, name) {
            (Level::Message, b"jsonrpc") => Self::Jsonrpc,
            (Level::Message, b"id") => Self::Id,
            (Level::Message, b"method") => Self::Method,
            (Level::Message, b"params") => Self::Params,
            (Level::Message, b"result") => Self::Result,
            (Level::Message, b"error") => Self::Error,
            (Level::Params, b"name") => Self::ParamsName,
            (Level::Params, b"uri") => Self::ParamsUri,
            (Level::Params, b"level") => Self::ParamsLevel,
            (Level::Params, b"requestId") => Self::ParamsRequestId,
            (Level::Params, b"progressToken") => Self::ParamsProgressToken,
            (Level::Params, b"_meta") => Self::ParamsMeta,
            (Level::Meta, b"progressToken") => Self::MetaProgressToken,
            _ => return None,
        })
    }

    /// The level that this member's value is, if mcpd reads members in it.
    pub(crate) const fn opens(self) -> Option<Level> {
        match self {
            Self::Params => Some(Level::Params),
            Self::ParamsMeta => Some(Level::Meta),
            _ => None,
        }
    }

    /// Where the member stands, for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Jsonrpc => "jsonrpc",
            Self::Id => "id",
            Self::Method => "method",
            Self::Params => "params",
            Self::Result => "result",
            Self::Error => "error",
            Self::ParamsName => "params.name",
            Self::ParamsUri => "params.uri",
            Self::ParamsLevel => "params.level",
            Self::ParamsRequestId => "params.requestId",
            Self::ParamsProgressToken => "params.progressToken",
            Self::ParamsMeta => "params._meta",
            Self::MetaProgressToken => "params._meta.progressToken",
        }
    }
}

impl fmt::Display for Member {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// Where one read member stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MemberSpan {
    /// Where its name starts, the quote included.
    pub(crate) key_start: u32,
    pub(crate) value: Span,
}

/// What the scanner found of a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Envelope {
    /// One bit a member that is there.
    pub(crate) present: u16,
    pub(crate) spans: [MemberSpan; Member::COUNT],
    /// The first read member that stood twice at its level.
    pub(crate) duplicate: Option<Member>,
    /// Every top-level id that could be read, in order.
    pub(crate) ids: SmallVec<[RequestId; 1]>,
}

impl Envelope {
    pub(crate) const fn has(&self, member: Member) -> bool {
        self.present & (1 << member as u8) != 0
    }

    pub(crate) fn note(&mut self, member: Member, span: MemberSpan) {
        if self.has(member) && self.duplicate.is_none() {
            self.duplicate = Some(member);
        }
        self.present |= 1 << member as u8;
        self.spans[member as usize] = span;
    }

    pub(crate) fn clear(&mut self) {
        self.present = 0;
        self.duplicate = None;
        self.ids.clear();
    }
}

/// What a message is, as far as its envelope says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// `method` and a readable `id`.
    Request,
    /// `method` and no `id`.
    Notification,
    /// `result` or `error`, or both; see [`Message::outcome`]. Its id may be missing or unreadable.
    Response,
    /// None of these, or one that breaks a rule of the envelope.
    Invalid(InvalidReason),
}

/// Why a JSON object is no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InvalidReason {
    /// A read member stands twice at its level.
    Duplicate(Member),
    /// `method` is there and no string.
    MethodNotText,
    /// `method` stands beside `result` or `error`.
    MethodAndAnswer,
    /// A request whose `id` is neither a string nor a number, or is a number that cannot be
    /// compared.
    IdType,
    /// The id is longer than `ID_LIMIT_BYTES`.
    IdTooLong,
    /// `params` is there and no object.
    ParamsNotObject,
    /// Neither `method` nor `result` nor `error`.
    Nothing,
    /// An element of a batch that is no object.
    NotAnObject,
}

impl fmt::Display for InvalidReason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Duplicate(member) => write!(out, "`{member}` occurs twice"),
            Self::MethodNotText => out.write_str("`method` is not a string"),
            Self::MethodAndAnswer => out.write_str("`method` stands beside `result` or `error`"),
            Self::IdType => out.write_str("`id` is neither a string nor a number"),
            Self::IdTooLong => out.write_str("`id` is longer than 64 KiB"),
            Self::ParamsNotObject => out.write_str("`params` is not an object"),
            Self::Nothing => out.write_str("neither `method` nor `result` nor `error` is there"),
            Self::NotAnObject => out.write_str("a message must be a JSON object"),
        }
    }
}

/// Which of the two answers a response is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// `result`
    Result,
    /// `error`
    Error,
}

/// One JSON object, its bytes exactly as they came, without line ending, BOM or blanks around it.
#[derive(Clone, Debug)]
pub struct Message {
    bytes: Bytes,
    envelope: Envelope,
    /// The method where it was written with escapes; else it is read off the bytes.
    unescaped_method: Option<Box<str>>,
    recovered_noise: bool,
}

impl Message {
    pub(crate) fn new(bytes: Bytes, envelope: Envelope, recovered_noise: bool) -> Self {
        let mut message = Self {
            bytes,
            envelope,
            unescaped_method: None,
            recovered_noise,
        };
        if let Some(Cow::Owned(method)) = message.text(Member::Method) {
            message.unescaped_method = Some(method.into());
        }
        message
    }

    /// The whole message.
    pub const fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Whether something stood before it on its line, a progress bar for one.
    pub const fn recovered_noise(&self) -> bool {
        self.recovered_noise
    }

    /// What the message is. A message that has a read member twice is never anything but invalid.
    pub fn kind(&self) -> Kind {
        if let Some(member) = self.duplicates() {
            return Kind::Invalid(InvalidReason::Duplicate(member));
        }
        let answer = self.has(Member::Result) || self.has(Member::Error);
        match (self.has(Member::Method), answer) {
            (true, true) => Kind::Invalid(InvalidReason::MethodAndAnswer),
            (true, false) => self.kind_of_call(),
            (false, true) => Kind::Response,
            (false, false) => Kind::Invalid(InvalidReason::Nothing),
        }
    }

    fn kind_of_call(&self) -> Kind {
        if self.value_type(Member::Method) != Some(ValueType::Text) {
            return Kind::Invalid(InvalidReason::MethodNotText);
        }
        if !matches!(
            self.value_type(Member::Params),
            None | Some(ValueType::Object)
        ) {
            return Kind::Invalid(InvalidReason::ParamsNotObject);
        }
        match (self.span(Member::Id), self.id()) {
            (None, _) => Kind::Notification,
            (Some(_), Some(_)) => Kind::Request,
            (Some(span), None) if span.len() > super::id::ID_LIMIT_BYTES => {
                Kind::Invalid(InvalidReason::IdTooLong)
            }
            (Some(_), None) => Kind::Invalid(InvalidReason::IdType),
        }
    }

    /// Which answer a response is: `error` wherever there is one that is not `null`, else
    /// `result`. The other member, if it is there, says nothing and may be taken off.
    pub fn outcome(&self) -> Option<Outcome> {
        let error = self.value_type(Member::Error);
        match (self.has(Member::Result), error) {
            (_, Some(ValueType::Null)) if self.has(Member::Result) => Some(Outcome::Result),
            (_, Some(_)) => Some(Outcome::Error),
            (true, None) => Some(Outcome::Result),
            (false, None) => None,
        }
    }

    /// The id, if exactly one stood there and it is a string or a number.
    pub fn id(&self) -> Option<&RequestId> {
        match self.envelope.duplicate {
            Some(Member::Id) => None,
            _ => self.envelope.ids.first(),
        }
    }

    /// Every readable id at the top level, normally one; more where `id` was doubled.
    pub fn ids(&self) -> &[RequestId] {
        &self.envelope.ids
    }

    /// The method, escapes undone; `None` if there is none or it is no string.
    pub fn method(&self) -> Option<&str> {
        if let Some(method) = &self.unescaped_method {
            return Some(method);
        }
        let method = self.value(Member::Method).and_then(json::raw_text)?;
        std::str::from_utf8(method).ok()
    }

    /// Whether `jsonrpc` is there and is `"2.0"`. Children without it are common and served.
    pub fn is_jsonrpc_two(&self) -> bool {
        self.value(Member::Jsonrpc)
            .and_then(json::raw_text)
            .is_some_and(|version| json::text_is(version, "2.0"))
    }

    /// The first read member that stood twice at its level.
    ///
    /// `params.progressToken` is read in `notifications/progress` only; elsewhere it passes.
    pub fn duplicates(&self) -> Option<Member> {
        self.envelope.duplicate.filter(|&member| {
            member != Member::ParamsProgressToken || self.method() == Some("notifications/progress")
        })
    }

    /// Whether the member is there.
    pub fn has(&self, member: Member) -> bool {
        self.envelope.has(member)
    }

    /// Where the member's value stands.
    pub fn span(&self, member: Member) -> Option<Span> {
        self.member_span(member).map(|found| found.value)
    }

    pub(crate) fn member_span(&self, member: Member) -> Option<MemberSpan> {
        self.has(member)
            .then(|| self.envelope.spans[member as usize])
    }

    /// The member's value as it stands, borrowed.
    pub fn value(&self, member: Member) -> Option<&[u8]> {
        self.span(member)
            .and_then(|span| self.bytes.get(span.range()))
    }

    /// The type of the member's value.
    pub fn value_type(&self, member: Member) -> Option<ValueType> {
        self.value(member).and_then(ValueType::of)
    }

    /// The member's value if it is a string, escapes undone and lone surrogates replaced.
    pub fn text(&self, member: Member) -> Option<Cow<'_, str>> {
        self.value(member).and_then(json::text)
    }

    /// A part of the message that shares its memory. Empty if the span is not of this message.
    pub fn slice(&self, span: Span) -> Bytes {
        if span.start() <= span.end() && span.end() <= self.bytes.len() {
            self.bytes.slice(span.range())
        } else {
            Bytes::new()
        }
    }
}

/// A JSON array of messages.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The elements in order.
    pub items: Vec<BatchItem>,
    /// The whole array.
    pub bytes: Bytes,
}

/// One element of a batch.
#[derive(Clone, Debug)]
pub enum BatchItem {
    /// An object; its kind may still be invalid.
    Message(Box<Message>),
    /// No object: a nested array, a number, …
    Invalid(Bytes),
}

/// A line that is no message.
#[derive(Clone, Debug)]
pub struct Fault {
    /// What is wrong with it.
    pub reason: FaultReason,
    /// Every readable top-level id that was seen, so that its request can be answered.
    pub ids: SmallVec<[RequestId; 1]>,
    /// Whether a top-level `method` was seen: then it is no answer.
    pub has_method: bool,
    /// Length of the line, its ending left out.
    pub len_bytes: u64,
    /// The first bytes of the line, at most [`SAMPLE_BYTES`], as they came.
    pub sample: Bytes,
}

/// Bytes of a faulty line that are kept to be shown.
pub const SAMPLE_BYTES: usize = 200;

/// Why a line is no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FaultReason {
    /// It does not start as an object or array does: a banner, colours, a number, a string.
    NotJson,
    /// It starts as one and breaks off, breaks the grammar, or goes on behind its end. A raw
    /// control character in a string is of this kind.
    Truncated,
    /// As [`FaultReason::Truncated`], but it ends between two tokens with all before it valid, as
    /// the lines of a message do that is printed over several.
    MultiLine,
    /// Bytes in a string that are not UTF-8.
    InvalidUtf8,
    /// Longer than the limit.
    TooLong,
    /// A header of the framing that language servers use.
    ContentLength,
    /// Nested deeper than `DEPTH_LIMIT`.
    TooDeep,
    /// A batch of more than `BATCH_LIMIT` elements.
    BatchTooLong,
}

impl FaultReason {
    /// Whether something that could have been a message was lost, so that a request may wait for
    /// an answer that will not come. Plain noise loses nothing.
    pub const fn loses_a_message(self) -> bool {
        !matches!(self, Self::NotJson | Self::ContentLength)
    }
}

impl fmt::Display for FaultReason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::NotJson => "the line is not a JSON object",
            Self::Truncated => "the line is not one whole, valid JSON object",
            Self::MultiLine => {
                "the line ends inside a JSON object; a message must stand on one line"
            }
            Self::InvalidUtf8 => "the line is not valid UTF-8",
            Self::TooLong => "the message is longer than the limit",
            Self::ContentLength => {
                "the line is a Content-Length header; messages are separated by newlines here, \
                 without headers"
            }
            Self::TooDeep => "the message is nested too deep",
            Self::BatchTooLong => "the batch has too many elements",
        })
    }
}

impl Fault {
    /// The sample with control characters escaped and bytes that are no text replaced, fit for a
    /// terminal or a log.
    pub fn sample_text(&self) -> String {
        let text = String::from_utf8_lossy(&self.sample);
        let mut shown = String::with_capacity(text.len());
        for character in text.chars() {
            if character.is_control() {
                shown.extend(character.escape_default());
            } else {
                shown.push(character);
            }
        }
        shown
    }
}

/// One line of a stream. Blank lines are none.
#[derive(Clone, Debug)]
pub enum Line {
    /// A JSON object.
    Message(Message),
    /// A JSON array.
    Batch(Batch),
    /// Anything else.
    Fault(Fault),
}
