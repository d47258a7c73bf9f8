//! A modern host with a modern child: bytes pass.
//!
//! Decides the few places that differ all the same: a listen is served from our own stream, log
//! messages have no id to go by, the answer to a discovery names what we speak too, and a list that
//! we change may not be kept. Sources: MCP 2026-07-28 `server/discover`, `server/utilities/*`.

use crate::protocol::eras::listen::Filter;
use crate::protocol::{
    ErrorCode, Frame, Member, Message, ModernVersion, Outcome, Span, Splice, Version, json,
};
use crate::session::answers::Failure;
use crate::session::mux::Mux;
use crate::session::queue::Queued;
use crate::session::requests::{HostAsker, OpenRequest, RequestKey};

impl Mux {
    /// What is done here about a modern request for a modern child. True if it is served here.
    pub(in crate::session) fn serves_modern(&mut self, key: RequestKey, queued: &Queued) -> bool {
        let message = &queued.message;
        if message.method() == Some("subscriptions/listen") {
            match Filter::read(message.value(Member::Params).unwrap_or_default()) {
                Ok(filter) => {
                    let asker = self.requests.get(key).and_then(OpenRequest::host).cloned();
                    // It stays open, as a stream.
                    drop(self.hand_over_request(key));
                    if let Some(asker) = asker {
                        self.begin_listen(asker.host, asker.id, filter);
                    }
                }
                Err(complaint) => {
                    let failure = Failure::of_message(ErrorCode::INVALID_PARAMS, complaint);
                    self.fail(key, &failure);
                }
            }
            return true;
        }
        let level = self
            .requests
            .get(key)
            .and_then(|one| one.modern.as_ref()?.level);
        if let Some(level) = level {
            // Noted for whom its messages may be; the child reads the level in the request.
            self.levels.begin_call(key, level);
        }
        false
    }

    /// The child's answer, with the changes that `edits` and a discovery make.
    pub(in crate::session) fn answer_between_moderns(
        &mut self,
        request: &OpenRequest,
        asker: &HostAsker,
        message: &Message,
        edits: &[(Span, Vec<u8>)],
    ) -> Frame {
        let mut splice = Splice::of(message);
        splice.replace_member(Member::Id, asker.id.raw());
        let span = message.span(Member::Result).unwrap_or_default();
        let result = message.value(Member::Result).unwrap_or_default();
        for (place, kept) in edits {
            splice.replace(place.within(span), kept);
        }
        let is_discovery = &*request.method == "server/discover";
        let is_changed = is_discovery || !edits.is_empty();
        if message.outcome() == Some(Outcome::Result) && is_changed {
            for entry in json::members(result) {
                let value = if entry.is("supportedVersions") && is_discovery {
                    Some(common_versions(entry.value))
                } else if entry.is("ttlMs") {
                    Some(b"0".to_vec())
                } else if entry.is("cacheScope") {
                    Some(b"\"private\"".to_vec())
                } else {
                    None
                };
                if let Some(value) = value {
                    splice.replace(entry.span.within(span), &value);
                }
            }
        }
        splice.finish_in(&mut self.arena)
    }
}

/// The modern versions that the child and we know, newest first, and the legacy ones that we add.
fn common_versions(supported: &[u8]) -> Vec<u8> {
    let named: Vec<_> = json::elements(supported)
        .filter_map(|span| json::text(&supported[span.range()]))
        .collect();
    let modern = ModernVersion::ALL
        .iter()
        .rev()
        .map(|version| version.as_str())
        .filter(|version| named.iter().any(|name| name == version));
    let legacy = Version::ALL.iter().rev().map(|version| version.as_str());
    let all: Vec<_> = modern
        .chain(legacy)
        .map(|version| format!("\"{version}\""))
        .collect();
    format!("[{}]", all.join(",")).into_bytes()
}
