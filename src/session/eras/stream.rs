//! The one `subscriptions/listen` that a modern child has from us.
//!
//! Decides what it asks for: every list that the child says may change, and every uri that anybody
//! holds. When that changes a new stream is opened, and the old one is cancelled only when the new
//! one is acknowledged, so that no event is lost in between. Source: MCP 2026-07-28
//! `basic/patterns/subscriptions`.

use super::modern_child::{not_offered, without_stream};
use crate::ids::HostKey;
use crate::protocol::opening::write_own_meta;
use crate::protocol::{Era, ErrorCode, Frame, Member, Message, Outcome, RequestId, json, write};
use crate::session::answers::{Failure, Fate};
use crate::session::mux::Mux;
use crate::session::requests::RequestKey;
use crate::session::subscriptions::{Holder, Uri};

/// The lists that may change: capability, member of the filter.
const LISTS: [(&str, &str); 3] = [
    ("tools", "toolsListChanged"),
    ("prompts", "promptsListChanged"),
    ("resources", "resourcesListChanged"),
];

/// Who waits for a uri to be acknowledged.
#[derive(Clone, Debug)]
struct Waiter {
    holder: Holder,
    uri: Uri,
    /// The request of a legacy host.
    request: Option<RequestKey>,
    /// The stream that asks for it.
    stream: Option<u64>,
}

/// The stream, and the one that is to take its place.
#[derive(Debug, Default)]
pub(in crate::session) struct Stream {
    current: Option<u64>,
    opening: Option<u64>,
    /// What is wanted has changed since the stream that is opening was asked for.
    is_stale: bool,
    waiters: Vec<Waiter>,
}

impl Mux {
    /// A legacy host subscribes: it is answered when a stream with its uri is acknowledged.
    pub(super) fn subscribe_by_stream(&mut self, key: RequestKey, host: HostKey, uri: Uri) {
        if !self.has_subscriptions() {
            return self.fail(key, &not_offered("resources/subscribe"));
        }
        self.requests.suspend(key);
        self.await_stream(Holder::host(host), uri, Some(key));
    }

    /// Waits for a stream that asks for this uri.
    pub(super) fn await_stream(&mut self, holder: Holder, uri: Uri, request: Option<RequestKey>) {
        self.subscriptions.note_written(&uri.text);
        self.stream.waiters.push(Waiter {
            holder,
            uri,
            request,
            stream: None,
        });
        self.refresh_stream();
    }

    /// What is wanted of the child may be something else now.
    pub(in crate::session) fn refresh_stream(&mut self) {
        if self.child_era() != Era::Modern || !self.is_writable() {
            return;
        }
        if self.stream.opening.is_some() {
            self.stream.is_stale = true;
            return;
        }
        self.stream.is_stale = false;
        let Some(filter) = self.wanted_events() else {
            if let Some(old) = self.stream.current.take() {
                self.cancel_stream(old);
            }
            return;
        };
        let id = self.requests.take_upstream_id();
        let mut params = b"{\"_meta\":".to_vec();
        write_own_meta(&mut params, &self.config.client_version);
        params.extend_from_slice(b",\"notifications\":");
        params.extend_from_slice(&filter);
        params.push(b'}');
        self.queue
            .push_reserved(write::request(id, "subscriptions/listen", Some(&params)));
        self.stream.opening = Some(id);
        for waiter in &mut self.stream.waiters {
            waiter.stream.get_or_insert(id);
        }
    }

    /// The filter for everything that somebody wants to hear; `None` for nothing.
    fn wanted_events(&self) -> Option<Vec<u8>> {
        let identity = self.identity.as_ref()?;
        let mut members: Vec<Vec<u8>> = LISTS
            .iter()
            .filter(|(capability, _)| identity.declares(capability, "listChanged"))
            .map(|(_, member)| format!("\"{member}\":true").into_bytes())
            .collect();
        let uris: Vec<_> = self.subscriptions.uris().map(|raw| raw.to_vec()).collect();
        if !uris.is_empty() && self.has_subscriptions() {
            let array = uris.join(&b',');
            members.push([b"\"resourceSubscriptions\":[", &array[..], b"]"].concat());
        }
        (!members.is_empty()).then(|| [b"{", members.join(&b',').as_slice(), b"}"].concat())
    }

    fn cancel_stream(&mut self, id: u64) {
        let params =
            format!("{{\"requestId\":{id},\"reason\":\"another stream takes its place\"}}");
        let frame = write::notification("notifications/cancelled", Some(params.as_bytes()));
        self.queue.push_reserved(frame);
    }

    /// The child has taken up a stream.
    pub(super) fn stream_acknowledged(&mut self, message: &Message) {
        let Some(id) = stream_id(message).filter(|id| self.stream.opening == Some(*id)) else {
            self.counters.dropped += 1;
            return;
        };
        self.stream.opening = None;
        if let Some(old) = self.stream.current.replace(id) {
            self.cancel_stream(old);
        }
        let params = message.value(Member::Params).unwrap_or_default();
        let honoured: Vec<String> = json::find_member(params, "notifications")
            .and_then(|entry| json::find_member(entry.value, "resourceSubscriptions"))
            .map(|entry| {
                json::elements(entry.value)
                    .filter_map(|span| json::text(&entry.value[span.range()]))
                    .map(|uri| uri.into_owned())
                    .collect()
            })
            .unwrap_or_default();
        for uri in &honoured {
            self.subscriptions.note_granted(None, uri);
        }
        self.settle_waiters(id, |uri| honoured.contains(&uri.text));
        if self.stream.is_stale {
            self.refresh_stream();
        }
    }

    fn settle_waiters(&mut self, stream: u64, is_honoured: impl Fn(&Uri) -> bool) {
        let (settled, kept) = std::mem::take(&mut self.stream.waiters)
            .into_iter()
            .partition(|waiter| waiter.stream == Some(stream));
        self.stream.waiters = kept;
        let settled: Vec<Waiter> = settled;
        for Waiter {
            holder,
            uri,
            request,
            ..
        } in settled
        {
            let is_honoured = is_honoured(&uri);
            match request {
                Some(key) if is_honoured => self.grant_here(key, b"{}"),
                Some(key) => {
                    let text = "the server does not tell of updates of this resource";
                    let failure = Failure::of_message(ErrorCode::INVALID_PARAMS, text);
                    self.fail(key, &failure);
                }
                None => {
                    let fate = if is_honoured {
                        Fate::Granted
                    } else {
                        Fate::Refused
                    };
                    self.settle_listen_uri(holder, &uri, fate);
                }
            }
        }
    }

    /// The child has answered a request for a stream: it ended, or never began. False if the answer
    /// is none of that kind.
    pub(in crate::session) fn is_stream_answer(&mut self, message: &Message) -> bool {
        let Some(id) = message.id().and_then(RequestId::as_u64) else {
            return false;
        };
        let is_ours = self.stream.current == Some(id) || self.stream.opening == Some(id);
        if is_ours {
            if message.outcome() == Some(Outcome::Error) {
                self.log(
                    crate::session::LogLevel::Warn,
                    "refused `subscriptions/listen`: updates and list changes are not heard of"
                        .to_owned(),
                );
            }
            self.lose_stream(id);
        }
        is_ours
    }

    /// The child has ended a stream. Its other cancellations mean nothing.
    pub(super) fn stream_cancelled(&mut self, message: &Message) {
        let id = message
            .value(Member::ParamsRequestId)
            .and_then(RequestId::parse)
            .and_then(|id| id.as_u64());
        match id {
            Some(id) => self.lose_stream(id),
            None => self.counters.dropped += 1,
        }
    }

    /// A stream is no more. Another one is opened when somebody wants something new: a child that
    /// ends each one at once is not to be asked for ever.
    fn lose_stream(&mut self, id: u64) {
        if self.stream.current == Some(id) {
            self.stream.current = None;
        } else if self.stream.opening == Some(id) {
            self.stream.opening = None;
            self.settle_waiters(id, |_| false);
            if std::mem::take(&mut self.stream.is_stale) {
                self.refresh_stream();
            }
        } else {
            self.counters.dropped += 1;
        }
    }

    /// Something happened that the stream tells of. Until a new one is acknowledged the old one
    /// counts; after that it only repeats what the new one says.
    pub(super) fn stream_event(&mut self, message: &Message) {
        let is_current = stream_id(message).is_some_and(|id| self.stream.current == Some(id));
        let Some(event) = Some(message)
            .filter(|_| is_current)
            .and_then(without_stream)
        else {
            self.counters.dropped += 1;
            return;
        };
        match event.method().unwrap_or_default() {
            "notifications/resources/updated" => self.child_updated(&event),
            method => {
                self.broadcast(&Frame::line(event.bytes().clone()));
                self.tell_listens_changed(method, Some(&event));
            }
        }
    }

    /// The child is gone, and its streams with it.
    pub(in crate::session) fn forget_stream(&mut self) {
        self.stream = Stream::default();
    }
}

/// The stream that a notification belongs to.
fn stream_id(message: &Message) -> Option<u64> {
    message
        .value(Member::MetaSubscriptionId)
        .and_then(RequestId::parse)?
        .as_u64()
}
