//! What a modern request says of its host, kept for as long as the request is open.
//!
//! Decides nothing. Nothing of it is taken from an earlier request (MCP 2026-07-28 `basic/index`,
//! Statelessness): each says for itself what its host can do.

use bytes::Bytes;

use crate::protocol::eras::sameness::Likeness;
use crate::protocol::{Member, Message};
use crate::session::levels::Level;

/// The metadata of one modern request.
#[derive(Clone, Debug)]
pub(in crate::session) struct ModernCall {
    /// `clientCapabilities`, a whole JSON object.
    pub(super) capabilities: Bytes,
    /// `logLevel`: what it wants to hear.
    pub(super) level: Option<Level>,
    /// What a retry of it has to ask again, where the child may ask something about it.
    pub(in crate::session) likeness: Option<Likeness>,
}

impl ModernCall {
    /// Reads what was found to be well formed when the request came.
    pub(in crate::session) fn of(message: &Message) -> Self {
        // Copied: a slice would keep the whole message for as long as the call is open.
        let capabilities = message
            .value(Member::MetaClientCapabilities)
            .map_or_else(|| Bytes::from_static(b"{}"), Bytes::copy_from_slice);
        let level = message.text(Member::MetaLogLevel);
        Self {
            capabilities,
            level: level.as_deref().and_then(Level::parse),
            likeness: None,
        }
    }
}
