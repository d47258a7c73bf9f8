//! What hosts are told from memory while no child can be asked, and what the child teaches.
//!
//! Decides that a legacy host's `initialize` and its lists are answered at once where a child is on
//! its way or comes on demand, and was seen before under the same configuration. All else waits for
//! the child. What turns out otherwise is told by `list_changed` when the child is there.

use std::collections::BTreeSet;

use super::admission::Incoming;
use super::catalogue::{ListKind, read_page};
use super::handshake::Welcome;
use super::memory::Memory;
use super::mux::Mux;
use super::service::Service;
use super::{LogLevel, MuxAction};
use crate::protocol::{ChildIdentity, Member, json};

impl Mux {
    /// What is remembered of the server under the configuration that it has now; nothing if it has
    /// never run under it.
    pub fn remember(&mut self, memory: Option<Memory>) {
        self.memory = memory;
    }

    /// What would be told of the server; worth keeping after [`MuxAction::Remembered`].
    pub const fn memory(&self) -> Option<&Memory> {
        self.memory.as_ref()
    }

    /// What may be told while the child has not spoken yet.
    pub(super) fn recalled(&self) -> Option<&Memory> {
        let is_coming = matches!(self.service, Service::Serving | Service::Holding(_));
        self.memory.as_ref().filter(|_| is_coming)
    }

    /// What hosts are told of the child, by itself or from memory.
    pub(super) fn known_welcome(&self) -> Option<&Welcome> {
        let of_child = self.child.as_ref().and_then(|child| child.welcome.as_ref());
        of_child.or_else(|| self.recalled().map(Memory::welcome))
    }

    /// The answer to a request for a list of a child that is not ready, denied tools taken out.
    pub(super) fn recall_list(&mut self, method: &str, incoming: &Incoming) -> Option<Vec<u8>> {
        if self.is_writable() {
            return None;
        }
        let kind = ListKind::ALL
            .into_iter()
            .find(|kind| kind.method() == method)?;
        let params = incoming.message.value(Member::Params).unwrap_or_default();
        let cursor = json::find_member(params, "cursor").map(|entry| entry.value);
        let mut result = self.recalled()?.page(kind, cursor)?.to_vec();
        let mut page = read_page(kind, &result, &self.config.tools);
        for (span, kept) in std::mem::take(&mut page.edits).into_iter().rev() {
            result.splice(span.range(), kept);
        }
        // A child that lists otherwise is found out like one that was restarted.
        self.catalogue.note_page(kind, cursor, page);
        self.note_seen(incoming.host, kind);
        Some(result)
    }

    /// The child has said what it is. Lists that it did not offer before are new to hosts that were
    /// told otherwise.
    pub(super) fn learn_identity(&mut self, identity: &ChildIdentity) -> BTreeSet<&'static str> {
        let learned = Memory::of(identity, &self.config.server);
        let Some(earlier) = self.memory.take() else {
            self.memory = learned;
            self.act(MuxAction::Remembered);
            return BTreeSet::new();
        };
        if earlier.has_identity(identity) {
            self.memory = Some(earlier);
            return BTreeSet::new();
        }
        let text =
            "answered `initialize` otherwise than before; attached hosts keep what they were told";
        self.log(LogLevel::Info, text.to_owned());
        let is_offered = |kind: &ListKind| {
            learned
                .as_ref()
                .is_some_and(|memory| memory.welcome().offers(*kind))
        };
        let added = ListKind::ALL
            .into_iter()
            .filter(|kind| is_offered(kind) && !earlier.welcome().offers(*kind))
            .map(ListKind::changed)
            .collect();
        self.memory = learned.map(|memory| memory.with_lists_of(earlier));
        self.act(MuxAction::Remembered);
        added
    }

    /// The child has given a page of a list.
    pub(super) fn learn_page(&mut self, kind: ListKind, cursor: Option<&[u8]>, result: &[u8]) {
        if json::find_member(result, kind.member()).is_none() {
            // No list that any host could read.
            return;
        }
        let next = super::catalogue::next_cursor(result);
        if let Some(memory) = &mut self.memory
            && memory.note_page(kind, cursor, result, next)
        {
            self.act(MuxAction::Remembered);
        }
    }

    /// The child says that a list is another one now.
    pub(super) fn unlearn_lists(&mut self, method: &str) {
        let Some(memory) = &mut self.memory else {
            return;
        };
        let changed = ListKind::ALL
            .into_iter()
            .filter(|kind| kind.changed() == method);
        if changed.filter(|kind| memory.forget_list(*kind)).count() > 0 {
            self.act(MuxAction::Remembered);
        }
    }
}
