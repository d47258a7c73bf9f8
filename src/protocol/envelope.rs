//! Which places of a message matter, and where in its bytes they are.
//!
//! Decides which members are read, at which level, and what happens when one stands twice. Never
//! looks at the grammar: the scanner does, and reports what begins and ends. So a member of a new
//! revision of MCP is one line in each table here.

use std::borrow::Cow;
use std::fmt;

use smallvec::SmallVec;

use super::id::{ID_LIMIT_BYTES, RequestId};
use super::json::{self, Span};

/// Ids that are remembered of one line.
const IDS_LIMIT: usize = 1_000;

/// Bytes that the remembered ids of one line may hold together.
const IDS_LIMIT_BYTES: usize = 4 * ID_LIMIT_BYTES;

/// What the names of `_meta` begin with that MCP reserves for itself (2026-07-28 `basic/index`).
pub const META_PREFIX: &[u8] = b"io.modelcontextprotocol/";

/// The deepest object in which a read member can stand: batch, message, params, meta.
const DEEPEST: usize = 4;

/// The members that mcpd reads in a message. Each is compared after unescaping, wherever it stands
/// at its level, and may stand there once.
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
    /// `params._meta.io.modelcontextprotocol/protocolVersion`: marks a request as modern.
    MetaProtocolVersion,
    /// `params._meta.io.modelcontextprotocol/clientInfo`
    MetaClientInfo,
    /// `params._meta.io.modelcontextprotocol/clientCapabilities`
    MetaClientCapabilities,
    /// `params._meta.io.modelcontextprotocol/logLevel`
    MetaLogLevel,
    /// `params._meta.io.modelcontextprotocol/subscriptionId`: of what belongs to a listen.
    MetaSubscriptionId,
    /// `params.inputResponses`: of a request that is sent again with answers.
    ParamsInputResponses,
    /// `params.requestState`: of a request that is sent again.
    ParamsRequestState,
}

/// The objects in which read members stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// An array of messages; it has elements and no members.
    Batch,
    /// The message itself.
    Message,
    /// `params`
    Params,
    /// `params._meta`
    Meta,
}

impl Member {
    /// How many there are.
    pub(crate) const COUNT: usize = 20;

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
        Self::MetaProtocolVersion,
        Self::MetaClientInfo,
        Self::MetaClientCapabilities,
        Self::MetaLogLevel,
        Self::MetaSubscriptionId,
        Self::ParamsInputResponses,
        Self::ParamsRequestState,
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
            (Level::Params, b"inputResponses") => Self::ParamsInputResponses,
            (Level::Params, b"requestState") => Self::ParamsRequestState,
            (Level::Meta, b"progressToken") => Self::MetaProgressToken,
            (Level::Meta, _) => return Self::find_reserved(name.strip_prefix(META_PREFIX)?),
            _ => return None,
        })
    }

    /// The member of `params._meta` that is called so behind the prefix that MCP reserves.
    fn find_reserved(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"protocolVersion" => Self::MetaProtocolVersion,
            b"clientInfo" => Self::MetaClientInfo,
            b"clientCapabilities" => Self::MetaClientCapabilities,
            b"logLevel" => Self::MetaLogLevel,
            b"subscriptionId" => Self::MetaSubscriptionId,
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
            Self::MetaProtocolVersion => "params._meta.io.modelcontextprotocol/protocolVersion",
            Self::MetaClientInfo => "params._meta.io.modelcontextprotocol/clientInfo",
            Self::MetaClientCapabilities => {
                "params._meta.io.modelcontextprotocol/clientCapabilities"
            }
            Self::MetaLogLevel => "params._meta.io.modelcontextprotocol/logLevel",
            Self::MetaSubscriptionId => "params._meta.io.modelcontextprotocol/subscriptionId",
            Self::ParamsInputResponses => "params.inputResponses",
            Self::ParamsRequestState => "params.requestState",
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
    pub(crate) present: u32,
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

/// A member whose value is being scanned.
#[derive(Clone, Copy, Debug, Default)]
struct OpenMember {
    member: Option<Member>,
    key_start: usize,
    value_start: usize,
}

/// Follows the scanner through one line and fills the envelope.
///
/// Depths count the brackets that are open; places count from the first of them.
#[derive(Debug, Default)]
pub(super) struct Tracker {
    /// At each depth that can matter, the member whose value is being scanned there.
    open: [OpenMember; DEEPEST + 1],
    /// At each depth that can matter, what the object there is.
    levels: [Option<Level>; DEEPEST + 1],
    is_array: bool,
    items: usize,
    saw_member: bool,
    ids_bytes: usize,
    envelope: Envelope,
}

impl Tracker {
    /// Makes ready for the next line.
    pub(super) fn reset(&mut self) {
        self.open = Default::default();
        self.levels = Default::default();
        self.is_array = false;
        self.items = 0;
        self.saw_member = false;
        self.ids_bytes = 0;
        self.envelope.clear();
    }

    /// Whether what stands right inside the bracket at this depth matters. Nothing else need be
    /// reported but brackets.
    #[inline]
    pub(super) fn watches(&self, depth: usize) -> bool {
        depth <= DEEPEST && self.levels[depth].is_some()
    }

    /// A bracket has opened inside the one at depth `outer`, which is the outermost or watched.
    pub(super) fn opened(&mut self, outer: usize, is_object: bool) {
        let level = match outer {
            0 if is_object => Some(Level::Message),
            0 => Some(Level::Batch),
            _ if !is_object => None,
            _ if self.levels[outer] == Some(Level::Batch) => Some(Level::Message),
            _ => self.open[outer].member.and_then(Member::opens),
        };
        self.is_array |= level == Some(Level::Batch);
        if let Some(inner) = self.levels.get_mut(outer + 1) {
            *inner = level;
            self.open[outer + 1] = OpenMember::default();
        }
    }

    /// The bracket at this depth has closed.
    #[inline]
    pub(super) fn closed(&mut self, depth: usize) {
        if let Some(level) = self.levels.get_mut(depth) {
            *level = None;
        }
    }

    /// A member's name has ended. `raw_name` is what stood between its quotes, `None` if that is
    /// longer than any name that is read.
    pub(super) fn named(&mut self, depth: usize, key_start: usize, raw_name: Option<&[u8]>) {
        let Some(level) = self.levels.get(depth).copied().flatten() else {
            return;
        };
        let member = raw_name.and_then(|name| {
            // As good as every name is written without escapes.
            Member::find(level, name).or_else(|| match json::unescape(name) {
                Cow::Borrowed(_) => None,
                Cow::Owned(name) => Member::find(level, &name),
            })
        });
        self.saw_member |= level == Level::Message && member.is_some();
        self.open[depth] = OpenMember {
            member,
            key_start,
            value_start: 0,
        };
    }

    /// A value has begun at `start` at a watched depth.
    pub(super) fn value_began(&mut self, depth: usize, start: usize) {
        self.open[depth].value_start = start;
        self.items += usize::from(self.levels[depth] == Some(Level::Batch));
    }

    /// The value that began last at this watched depth ends before `end`. `raw` gives its bytes
    /// from where it began, if they are still held.
    pub(super) fn value_ended<'line>(
        &mut self,
        depth: usize,
        end: usize,
        raw: impl FnOnce(usize) -> Option<&'line [u8]>,
    ) {
        let open = std::mem::take(&mut self.open[depth]);
        let Some(member) = open.member else {
            return;
        };
        if member == Member::Id {
            self.note_id(raw(open.value_start));
        }
        let key_start = open.key_start as u32;
        let value = Span::new(open.value_start, end);
        self.envelope.note(member, MemberSpan { key_start, value });
    }

    fn note_id(&mut self, raw: Option<&[u8]>) {
        let Some(id) = raw.and_then(RequestId::parse) else {
            return;
        };
        let bytes = id.held_bytes();
        if self.envelope.ids.len() < IDS_LIMIT && self.ids_bytes + bytes <= IDS_LIMIT_BYTES {
            self.ids_bytes += bytes;
            self.envelope.ids.push(id);
        }
    }

    /// The grammar is broken at this depth: the member there has no value.
    pub(super) fn broke(&mut self, depth: usize) {
        if let Some(open) = self.open.get_mut(depth) {
            *open = OpenMember::default();
        }
    }

    /// Whether the value at this depth is an id.
    pub(super) fn in_id(&self, depth: usize) -> bool {
        self.open
            .get(depth)
            .is_some_and(|open| open.member == Some(Member::Id))
    }

    /// Whether the line is an array, and so a batch.
    pub(super) const fn is_array(&self) -> bool {
        self.is_array
    }

    /// Elements of that array, as far as they have come.
    pub(super) const fn items(&self) -> usize {
        self.items
    }

    /// Whether the name of a read member was seen at the top level of a message. A broken line
    /// without one is noise that happens to start with a bracket, as log lines do.
    pub(super) const fn saw_member(&self) -> bool {
        self.saw_member
    }

    /// Bytes held for ids.
    pub(super) fn held_bytes(&self) -> usize {
        self.ids_bytes + self.envelope.ids.len() * size_of::<RequestId>()
    }

    /// What has been found so far.
    pub(super) const fn envelope(&self) -> &Envelope {
        &self.envelope
    }

    /// Takes what has been found. The spans are copied once and not cleared: those of members that
    /// are not there are never looked at.
    #[inline]
    pub(super) fn take_envelope(&mut self) -> Envelope {
        Envelope {
            present: self.envelope.present,
            spans: self.envelope.spans,
            duplicate: self.envelope.duplicate,
            ids: std::mem::take(&mut self.envelope.ids),
        }
    }
}
