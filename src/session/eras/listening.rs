//! `subscriptions/listen` of a modern host on a legacy child.
//!
//! Decides when a stream is acknowledged, what goes out on it and how it ends. The child knows
//! nothing of streams: it is asked with `resources/subscribe`, uri by uri, and its list changes are
//! heard by all. Source: MCP 2026-07-28 `basic/patterns/subscriptions`.

use super::listens::{ListenKey, Phase};
use crate::ids::HostKey;
use crate::protocol::eras::listen::{self, Filter, ListenUri};
use crate::protocol::{Era, Message, RequestId};
use crate::session::answers::Fate;
use crate::session::catalogue::ListKind;
use crate::session::mux::Mux;
use crate::session::requests::Purpose;
use crate::session::service::Service;
use crate::session::subscriptions::{Holder, Next, URI_LIMIT_BYTES, Uri};

impl Mux {
    /// Opens a stream for a host. What the child does not offer is not honoured.
    pub(super) fn begin_listen(&mut self, host: HostKey, id: RequestId, mut filter: Filter) {
        let Some(welcome) = self.child.as_ref().and_then(|child| child.welcome.as_ref()) else {
            return;
        };
        filter.restrict(|changed| {
            ListKind::ALL
                .iter()
                .any(|kind| kind.changed() == changed && welcome.offers(*kind))
        });
        let has_subscriptions = self
            .identity
            .as_ref()
            .is_some_and(|identity| identity.declares("resources", "subscribe"));
        filter
            .uris
            .retain(|uri| has_subscriptions && uri.raw.len() <= URI_LIMIT_BYTES);
        let uris = filter.uris.clone();
        let key = self.listens.add(host, id, filter);
        for uri in uris {
            self.subscribe_listen(key, host, uri);
        }
        self.acknowledge_if_ready(key);
    }

    fn subscribe_listen(&mut self, key: ListenKey, host: HostKey, uri: ListenUri) {
        let ListenUri { text, raw } = uri;
        let uri = Uri { text, raw };
        let holder = Holder {
            host,
            listen: Some(key),
        };
        match self.subscriptions.subscribe(holder, &uri) {
            Next::AnswerHere => self.settle_listen_uri(holder, &uri, Fate::Granted),
            Next::Refuse => self.settle_listen_uri(holder, &uri, Fate::Refused),
            Next::Forward if self.child_era() == Era::Modern => {
                self.await_stream(holder, uri, None);
            }
            Next::Forward => {
                self.subscriptions.note_written(&uri.text);
                let params = [b"{\"uri\":", &uri.raw[..], b"}"].concat();
                let purpose = Purpose::SubscribeFor(holder, uri);
                self.ask_child("resources/subscribe", purpose, Some(&params));
            }
        }
    }

    /// The child has spoken on one uri of a stream, or will not any more.
    pub(in crate::session) fn settle_listen_uri(&mut self, holder: Holder, uri: &Uri, fate: Fate) {
        if fate == Fate::Lost && self.child.is_none() {
            // The next child is asked; until then nothing is promised.
            return;
        }
        if fate == Fate::Granted {
            self.subscriptions.note_granted(Some(holder), &uri.text);
        } else if self
            .subscriptions
            .note_failed(holder, &uri.text, fate == Fate::Refused)
        {
            self.unsubscribe_upstream(uri);
        }
        let Some(key) = holder.listen else { return };
        let Some(listen) = self.listens.get_mut(key) else {
            return;
        };
        if fate != Fate::Granted {
            listen.filter.uris.retain(|one| one.text != uri.text);
        }
        if let Phase::Opening { pending, .. } = &mut listen.phase {
            pending.remove(&uri.text);
        }
        self.acknowledge_if_ready(key);
    }

    /// Promises what is known to be kept, as the first message of the stream.
    fn acknowledge_if_ready(&mut self, key: ListenKey) {
        let Some(listen) = self.listens.get_mut(key) else {
            return;
        };
        let is_ready =
            matches!(&listen.phase, Phase::Opening { pending, .. } if pending.is_empty());
        if !is_ready {
            return;
        }
        let Phase::Opening { held, .. } = std::mem::replace(&mut listen.phase, Phase::Open) else {
            return;
        };
        let host = listen.host;
        let frame = listen::acknowledgement(&listen.id, &listen.filter);
        self.send(host, frame, false);
        for event in held {
            self.send(host, crate::protocol::Frame::whole(event.into()), false);
        }
    }

    /// A new child is open: it is asked for what the old one had not answered for.
    pub(in crate::session) fn resume_listens(&mut self) {
        for key in self.listens.keys() {
            let Some(listen) = self.listens.get(key) else {
                continue;
            };
            let Phase::Opening { pending, .. } = &listen.phase else {
                continue;
            };
            let host = listen.host;
            let uris: Vec<_> = listen
                .filter
                .uris
                .iter()
                .filter(|uri| pending.contains(&uri.text))
                .cloned()
                .collect();
            for uri in uris {
                self.subscribe_listen(key, host, uri);
            }
        }
    }

    /// A list of the child is another one: streams that asked for that hear it, in the child's words
    /// if it said so itself.
    pub(in crate::session) fn tell_listens_changed(
        &mut self,
        method: &str,
        message: Option<&Message>,
    ) {
        for key in self.listens.keys_where(|one| one.filter.wants(method)) {
            match message {
                Some(message) => self.tell_listen(key, message),
                None => {
                    if let Some(listen) = self.listens.get(key) {
                        let frame = listen::bare_event(&listen.id, method);
                        self.send_on_listen(key, frame);
                    }
                }
            }
        }
    }

    /// Puts a notification of the child on a stream.
    pub(in crate::session) fn tell_listen(&mut self, key: ListenKey, message: &Message) {
        if let Some(listen) = self.listens.get(key) {
            let frame = listen::event(&listen.id, message);
            self.send_on_listen(key, frame);
        }
    }

    fn send_on_listen(&mut self, key: ListenKey, frame: crate::protocol::Frame) {
        let Some(listen) = self.listens.get_mut(key) else {
            return;
        };
        if !listen.hold(&frame) {
            let host = listen.host;
            self.send(host, frame, false);
        }
    }

    /// The host wants no more of a stream; unknown ids are ignored.
    pub(in crate::session) fn cancel_listen(&mut self, host: HostKey, id: &RequestId) {
        if let Some(key) = self.listens.of_host(host, id) {
            self.take_listen(key);
            self.forget_noted(host, id);
        }
    }

    /// The child takes no more part in this uri: streams that were promised it end, so that their
    /// hosts ask again.
    pub(in crate::session) fn end_listens_to(&mut self, uri: &str) {
        let holding = |one: &super::listens::Listen| {
            one.phase == Phase::Open && one.filter.uris.iter().any(|held| held.text == uri)
        };
        for key in self.listens.keys_where(holding) {
            self.close_listen(key, "the server no longer offers all of it");
        }
    }

    /// What becomes of streams when no child will come by itself.
    pub(in crate::session) fn judge_listens(&mut self) {
        match self.service {
            Service::Stopping => {
                for key in self.listens.keys() {
                    self.close_listen(key, "the server is being stopped");
                }
            }
            Service::Unavailable(_) => self.lose_listens("the server is gone"),
            Service::Serving | Service::Holding(_) | Service::Backoff { .. } => {}
        }
    }

    /// Ends all streams without the result that would say that they ended in good order.
    pub(in crate::session) fn lose_listens(&mut self, reason: &str) {
        for key in self.listens.keys() {
            if let Some(listen) = self.take_listen(key) {
                self.send(listen.host, listen::cancelled(&listen.id, reason), false);
                self.forget_noted(listen.host, &listen.id);
            }
        }
    }

    /// Ends a stream in good order.
    fn close_listen(&mut self, key: ListenKey, reason: &str) {
        if let Some(listen) = self.take_listen(key) {
            let result = listen::closing_result(&listen.id);
            let noted = self.hosts.get_mut(&listen.host);
            let ends = noted.map(|host| host.take_noted(&listen.id));
            self.send_answer(listen.host, result, false, ends.unwrap_or_default());
            self.send(listen.host, listen::cancelled(&listen.id, reason), false);
        }
    }

    /// Takes a stream off the table, and off what it held with the child.
    fn take_listen(&mut self, key: ListenKey) -> Option<super::listens::Listen> {
        let listen = self.listens.remove(key)?;
        let holder = Holder {
            host: listen.host,
            listen: Some(key),
        };
        for ListenUri { text, raw } in &listen.filter.uris {
            if self.subscriptions.is_held_by(holder, text)
                && self.subscriptions.unsubscribe(holder, text) == Next::Forward
            {
                self.unsubscribe_upstream(&Uri {
                    text: text.clone(),
                    raw: raw.clone(),
                });
            }
        }
        Some(listen)
    }
}
