//! What a line is: a message with its envelope, a batch, or a fault.
//!
//! Decides the kind of a message from the members that stand in it. Never what is done about it,
//! and never anything from a payload: of those, spans are known and no more.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use smallvec::SmallVec;

use super::envelope::{Envelope, Member, MemberSpan};
use super::id::{ID_LIMIT_BYTES, RequestId};
use super::json::{self, Span, ValueType};

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
    #[inline]
    pub(crate) fn new(bytes: Bytes, envelope: Envelope, recovered_noise: bool) -> Self {
        let unescaped_method = unescape_method(&bytes, &envelope);
        Self {
            bytes,
            envelope,
            unescaped_method,
            recovered_noise,
        }
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
            (Some(span), None) if span.len() > ID_LIMIT_BYTES => {
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

/// The method, if it is written with escapes.
fn unescape_method(bytes: &[u8], envelope: &Envelope) -> Option<Box<str>> {
    if !envelope.has(Member::Method) {
        return None;
    }
    let span = envelope.spans[Member::Method as usize].value;
    let value = bytes.get(span.range())?;
    if value.contains(&b'\\') {
        json::text(value).map(Box::from)
    } else {
        None
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

impl Batch {
    /// The elements that are messages.
    pub fn messages(&self) -> impl Iterator<Item = &Message> {
        self.items.iter().filter_map(|item| match item {
            BatchItem::Message(message) => Some(&**message),
            BatchItem::Invalid(_) => None,
        })
    }
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
        shown(&self.sample)
    }
}

/// The start of `bytes`, at most [`SAMPLE_BYTES`] of them, with control characters escaped and what
/// is no text replaced: fit for a terminal or a log.
pub fn shown(bytes: &[u8]) -> String {
    let start = &bytes[..bytes.len().min(SAMPLE_BYTES)];
    let text = String::from_utf8_lossy(start);
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

/// One line of a stream. Blank lines are none.
#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly every line is a message, and a box would cost each an allocation"
)]
pub enum Line {
    /// A JSON object.
    Message(Message),
    /// A JSON array.
    Batch(Batch),
    /// Anything else.
    Fault(Fault),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> Message {
        Message::parse(Bytes::copy_from_slice(text.as_bytes())).unwrap()
    }

    #[track_caller]
    fn check(text: &str, kind: Kind) {
        assert_eq!(message(text).kind(), kind, "{text}");
    }

    #[test]
    fn kinds_follow_from_the_members() {
        check(r#"{"method":"m","id":1}"#, Kind::Request);
        check(r#"{"id":"","method":"m","params":{}}"#, Kind::Request);
        check(r#"{"method":"m"}"#, Kind::Notification);
        check(r#"{"id":1,"result":{}}"#, Kind::Response);
        check(r#"{"id":1,"error":{}}"#, Kind::Response);
        check(r#"{"error":{}}"#, Kind::Response);
        check(r#"{"id":null,"error":{}}"#, Kind::Response);
        check(r#"{"id":1,"result":null,"error":null}"#, Kind::Response);
    }

    #[test]
    fn what_breaks_a_rule_is_invalid() {
        let long = format!(r#"{{"method":"m","id":"{}"}}"#, "x".repeat(ID_LIMIT_BYTES));
        for (text, reason) in [
            ("{}", InvalidReason::Nothing),
            (r#"{"jsonrpc":"2.0","id":1}"#, InvalidReason::Nothing),
            (r#"{"method":1,"id":1}"#, InvalidReason::MethodNotText),
            (
                r#"{"method":"m","id":1,"result":{}}"#,
                InvalidReason::MethodAndAnswer,
            ),
            (r#"{"method":"m","id":null}"#, InvalidReason::IdType),
            (r#"{"method":"m","id":[1]}"#, InvalidReason::IdType),
            (
                r#"{"method":"m","id":1,"params":[]}"#,
                InvalidReason::ParamsNotObject,
            ),
            (
                r#"{"method":"m","params":null}"#,
                InvalidReason::ParamsNotObject,
            ),
            (&long, InvalidReason::IdTooLong),
        ] {
            check(text, Kind::Invalid(reason));
        }
    }

    #[test]
    fn a_read_member_may_stand_once() {
        for (text, member) in [
            (r#"{"id":1,"\u0069d":2,"method":"m"}"#, Member::Id),
            (r#"{"method":"m","method":"m"}"#, Member::Method),
            (r#"{"params":{},"params":{},"method":"m"}"#, Member::Params),
            (r#"{"id":1,"result":1,"result":2}"#, Member::Result),
            (
                r#"{"method":"m","params":{"name":"a","n\u0061me":"b"}}"#,
                Member::ParamsName,
            ),
            (
                r#"{"method":"m","params":{"uri":"a","uri":"b"}}"#,
                Member::ParamsUri,
            ),
            (
                r#"{"method":"m","params":{"_meta":{},"_meta":{}}}"#,
                Member::ParamsMeta,
            ),
            (
                r#"{"method":"m","params":{"_meta":{"progressToken":1,"progressToken":1}}}"#,
                Member::MetaProgressToken,
            ),
            (
                r#"{"params":{"progressToken":1,"progressToken":1},"method":"notifications/progress"}"#,
                Member::ParamsProgressToken,
            ),
        ] {
            assert_eq!(message(text).duplicates(), Some(member), "{text}");
            check(text, Kind::Invalid(InvalidReason::Duplicate(member)));
        }
        assert_eq!(message(r#"{"id":1,"id":2,"result":{}}"#).ids().len(), 2);
        assert_eq!(message(r#"{"id":1,"id":2,"result":{}}"#).id(), None);
    }

    #[test]
    fn elsewhere_duplicates_pass() {
        for text in [
            r#"{"method":"m","a":1,"a":2}"#,
            r#"{"method":"m","params":{"arguments":{"name":1,"name":2},"x":1,"x":1}}"#,
            r#"{"method":"m","params":{"_meta":{"a":1,"a":1},"meta":{"progressToken":1,"progressToken":1}}}"#,
            r#"{"method":"tools/call","params":{"progressToken":1,"progressToken":1}}"#,
            r#"{"method":"m","name":"a","name":"b"}"#,
        ] {
            check(text, Kind::Notification);
        }
        check(
            r#"{"id":1,"result":{"id":1,"id":2,"name":"a","name":"b"}}"#,
            Kind::Response,
        );
    }

    #[test]
    fn an_answer_is_an_error_if_there_is_one() {
        for (text, outcome) in [
            (r#"{"id":1,"result":{}}"#, Some(Outcome::Result)),
            (
                r#"{"id":1,"result":{},"error":null}"#,
                Some(Outcome::Result),
            ),
            (
                r#"{"id":1,"result":null,"error":null}"#,
                Some(Outcome::Result),
            ),
            (r#"{"id":1,"result":null,"error":{}}"#, Some(Outcome::Error)),
            (r#"{"id":1,"result":{},"error":{}}"#, Some(Outcome::Error)),
            (r#"{"id":1,"error":null}"#, Some(Outcome::Error)),
            (r#"{"id":1}"#, None),
        ] {
            assert_eq!(message(text).outcome(), outcome, "{text}");
        }
    }

    #[test]
    fn names_and_texts_are_unescaped() {
        let escaped = message(
            r#"{"m\u0065thod":"tools\/c\u0061ll","params":{"name":"\ud83d","uri":5},"jsonrpc":"2\u002e0"}"#,
        );
        assert_eq!(escaped.method(), Some("tools/call"));
        assert_eq!(
            escaped.text(Member::ParamsName).unwrap(),
            "\u{FFFD}\u{FFFD}\u{FFFD}"
        );
        assert_eq!(escaped.text(Member::ParamsUri), None);
        assert!(escaped.is_jsonrpc_two());
        assert!(!message(r#"{"jsonrpc":2.0}"#).is_jsonrpc_two());
        assert_eq!(
            &escaped.slice(escaped.span(Member::ParamsUri).unwrap())[..],
            b"5"
        );
        assert!(escaped.slice(Span::new(5, 5_000)).is_empty());
    }

    #[test]
    fn only_a_whole_object_is_a_message() {
        for text in ["", "{", "[]", "{} ", " {}", "{}{}", "{}\n", "5"] {
            assert!(
                Message::parse(Bytes::from_static(text.as_bytes())).is_none(),
                "{text:?}"
            );
        }
    }

    #[test]
    fn control_bytes_are_escaped_where_noise_is_shown() {
        assert_eq!(shown(b"\x1b[33mx\xff"), "\\u{1b}[33mx\u{fffd}");
    }
}
