//! A modern host with a legacy child: requests and their answers.
//!
//! Decides what of a modern request reaches the child, and what the host is told of its answer.
//! A legacy child may end at a request that it does not know, so such a one is answered here.
//! Sources: MCP 2026-07-28 `basic/index`, `server/discover`, `server/utilities/*`.

use serde_json::json;

use super::retrying::likeness_of;
use crate::ids::HostKey;
use crate::protocol::eras::discover::{discover_result, server_info};
use crate::protocol::eras::for_legacy::strip_request;
use crate::protocol::eras::listen::Filter;
use crate::protocol::eras::result::{Completion, ErrorFate, complete_result, translate_error};
use crate::protocol::eras::{MetadataFault, check_metadata};
use crate::protocol::write::{error_response, result_response};
use crate::protocol::{
    ErrorCode, Frame, Member, Message, ModernVersion, Outcome, Revision, Span, Splice,
};
use crate::session::admission::Incoming;
use crate::session::answers::Failure;
use crate::session::levels::Level;
use crate::session::mux::Mux;
use crate::session::queue::Queued;
use crate::session::requests::{HostAsker, OpenRequest, Purpose, RequestKey, UpstreamId};
use crate::session::settings::Asking;

impl Mux {
    /// What is wrong with the metadata of a modern request; notes what it says of its host.
    pub(in crate::session) fn metadata_complaint(
        &mut self,
        incoming: &Incoming,
    ) -> Option<Failure> {
        let message = &incoming.message;
        match check_metadata(message) {
            Err(MetadataFault::Unsupported(requested)) => {
                let supported = ModernVersion::ALL.map(ModernVersion::as_str);
                return Some(Failure::with_data(
                    ErrorCode::UNSUPPORTED_VERSION,
                    format!("MCP {requested:?} is not spoken here"),
                    &json!({ "supported": supported, "requested": requested }),
                ));
            }
            Err(MetadataFault::Malformed(member)) => {
                return Some(invalid_params(format!(
                    "`{member}` is missing or of the wrong type"
                )));
            }
            Ok(()) => {}
        }
        let level = message.text(Member::MetaLogLevel);
        if message.has(Member::MetaLogLevel) && level.as_deref().and_then(Level::parse).is_none() {
            return Some(invalid_params(format!(
                "`{}` is none of the eight log levels",
                Member::MetaLogLevel
            )));
        }
        self.note_modern_client(incoming.host, message);
        None
    }

    /// What the host calls itself, for `status`, unless a session has said so already.
    fn note_modern_client(&mut self, host: HostKey, message: &Message) {
        let Some(attachment) = self.hosts.get_mut(&host) else {
            return;
        };
        let is_first = attachment.modern.replace(ModernVersion::NEWEST).is_none();
        if is_first && attachment.version().is_none() {
            let info = message.value(Member::MetaClientInfo).unwrap_or_default();
            let name = crate::protocol::json::find_member(info, "name")
                .and_then(|name| crate::protocol::json::text(name.value));
            if let Some(name) = name {
                let name: String = name.chars().take(200).collect();
                attachment.info.client = Some(name.into());
            }
        }
    }

    /// A modern request has its turn and the child is legacy: what is written to the child, if
    /// anything is.
    pub(in crate::session) fn write_for_modern_host(
        &mut self,
        key: RequestKey,
        queued: &Queued,
    ) -> Option<Frame> {
        let method = queued.message.method().unwrap_or_default();
        match method {
            "server/discover" => self.answer_discover(key),
            "subscriptions/listen" => self.take_up_listen(key, &queued.message),
            _ if method.starts_with("tasks/") => {
                let failure = Failure::of_message(
                    ErrorCode::METHOD_NOT_FOUND,
                    "tasks are not offered between two eras of MCP",
                );
                self.fail(key, &failure);
            }
            _ if Self::is_stray_retry(&queued.message) => {
                let failure = invalid_params(
                    "`params.requestState` is unknown, was used, or has expired".to_owned(),
                );
                self.fail(key, &failure);
            }
            _ => return self.write_translated(key, queued),
        }
        None
    }

    fn write_translated(&mut self, key: RequestKey, queued: &Queued) -> Option<Frame> {
        let message = &queued.message;
        let level = self.requests.get(key)?.modern.as_ref()?.level;
        let has_logging = self
            .identity
            .as_ref()
            .is_some_and(|identity| identity.offers("logging"));
        let raised = level
            .filter(|_| has_logging)
            .and_then(|level| self.levels.begin_call(key, level));
        if let Some(raised) = raised {
            self.ask_for_level(raised);
        }
        let deadline = self
            .config
            .request_timeout
            .map(|timeout| self.now + timeout);
        let UpstreamId(id) = self.requests.mark_written(key, deadline)?;
        if self.config.asking != Asking::Nobody {
            self.requests.note_likeness(key, likeness_of(message));
            self.note_turn(key, queued);
        }
        let id = id.to_string();
        let mut splice = Splice::of(message);
        splice.replace_member(Member::Id, id.as_bytes());
        splice.replace_member(Member::MetaProgressToken, id.as_bytes());
        strip_request(&mut splice, message);
        let frame = splice.finish_in(&mut self.arena);
        if raised.is_none() {
            return Some(frame);
        }
        // The level goes first, and both behind nothing: what has reserved room was written before.
        self.queue.push_reserved(frame);
        self.queue.pop_reserved().map(|first| first.frame)
    }

    fn answer_discover(&mut self, key: RequestKey) {
        let (Some(identity), Some(asker)) = (
            &self.identity,
            self.requests.get(key).and_then(|request| request.host()),
        ) else {
            return;
        };
        let Revision::Legacy(version) = identity.version else {
            return;
        };
        let capabilities = self
            .child
            .as_ref()
            .and_then(|child| child.welcome.as_ref())
            .map_or(&b"{}"[..], |welcome| welcome.capabilities());
        let result = discover_result(
            version,
            capabilities,
            identity.instructions.as_deref(),
            &self.server_info(),
        );
        let asker = asker.clone();
        self.answer_here(asker.host, asker.batch, &asker.id, &result);
        self.drop_request(key);
    }

    fn take_up_listen(&mut self, key: RequestKey, message: &Message) {
        let params = message.value(Member::Params).unwrap_or_default();
        match Filter::read(params) {
            Ok(filter) => {
                let Some(asker) = self.requests.get(key).and_then(|one| one.host()).cloned() else {
                    return;
                };
                // It stays open, as a stream.
                drop(self.hand_over_request(key));
                self.begin_listen(asker.host, asker.id, filter);
            }
            Err(complaint) => self.fail(key, &invalid_params(complaint)),
        }
    }

    /// The child's name, as results carry it.
    pub(super) fn server_info(&self) -> Vec<u8> {
        let result = self.identity.as_ref().map(|identity| &identity.result[..]);
        server_info(result.unwrap_or_default(), &self.config.server)
    }

    /// The child's answer as a modern host gets it. `edits` are those of its result that stand for
    /// denied tools; the answer is well formed.
    pub(in crate::session) fn answer_for_modern_host(
        &mut self,
        request: &OpenRequest,
        asker: &HostAsker,
        message: &Message,
        edits: &[(Span, Vec<u8>)],
    ) -> Frame {
        let server_info = self.server_info();
        if message.outcome() != Some(Outcome::Result) {
            return translated_error(request, asker, message, &server_info);
        }
        let mut splice = Splice::of(message);
        splice.replace_member(Member::Id, asker.id.raw());
        let span = message.span(Member::Result).unwrap_or_default();
        for (place, kept) in edits {
            splice.replace(place.within(span), kept);
        }
        let completion = Completion {
            method: &request.method,
            server_info: &server_info,
            keeps_hints: !self.changes_list(&request.purpose),
        };
        let result = message.value(Member::Result).unwrap_or_default();
        if complete_result(&mut splice, span, result, &completion) {
            return splice.finish_in(&mut self.arena);
        }
        error_response(
            Some(&asker.id),
            None,
            ErrorCode::INTERNAL_ERROR,
            &format!(
                "server {} answered with a result that is no object",
                self.config.server
            ),
            None,
        )
    }

    /// Whether what the child says of a list's freshness may be wrong for what hosts see of it.
    fn changes_list(&self, purpose: &Purpose) -> bool {
        matches!(purpose, Purpose::List { .. }) && !self.config.tools.is_empty()
    }

    /// The host that hears a log message of the child because of a modern request: only where the
    /// message can belong to no other host's (2026-07-28 `server/utilities/logging`: it belongs to
    /// the request that asked for it).
    pub(in crate::session) fn modern_hearer(&self, level: Option<Level>) -> Option<HostKey> {
        let level = level?;
        let mut only = None;
        let mut is_wanted = false;
        for key in self.requests.written() {
            let Some(host) = self.requests.get(key).and_then(OpenRequest::caller) else {
                continue;
            };
            if *only.get_or_insert(host) != host {
                return None;
            }
            is_wanted |= self.levels.of_call(key).is_some_and(|asked| asked <= level);
        }
        only.filter(|_| is_wanted)
    }
}

fn translated_error(
    request: &OpenRequest,
    asker: &HostAsker,
    message: &Message,
    server_info: &[u8],
) -> Frame {
    let error = message.value(Member::Error).unwrap_or_default();
    let capabilities = request
        .modern
        .as_ref()
        .map_or(&b"{}"[..], |modern| &modern.capabilities);
    match translate_error(error, &request.method, capabilities, server_info) {
        ErrorFate::Pass => {
            let mut splice = Splice::of(message);
            splice.replace_member(Member::Id, asker.id.raw());
            splice.finish()
        }
        ErrorFate::Becomes {
            code,
            message,
            data,
        } => error_response(Some(&asker.id), None, code, &message, data.as_deref()),
        ErrorFate::Asks(result) => result_response(&asker.id, &result),
    }
}

fn invalid_params(complaint: String) -> Failure {
    Failure::of_message(ErrorCode::INVALID_PARAMS, complaint)
}
