//! What mcpd does of its own: telling a new child what the old one knew, ending what has to end,
//! and putting right what an event left behind.
//!
//! Decides which requests of ours a child gets, who is cut off, and when a host may be closed. Our
//! own requests are few and bounded: one level, one a uri, one a list.

use std::time::Duration;

use bytes::Bytes;

use super::action::{ChildGone, CloseReason, LogLevel, MuxAction};
use super::answers::{Failure, Fate};
use super::attach::Input;
use super::catalogue::{ListKind, Resumed, WalkStep, read_page};
use super::faults::Charges;
use super::from_host::name_of;
use super::handshake::Welcome;
use super::levels::Level;
use super::mux::{Child, Drain, Mux};
use super::requests::{Asker, OpenRequest, Progress, Purpose, RequestKey, UpstreamId};
use super::service::{Service, Unavailable, refusal};
use super::settings::Asking;
use super::subscriptions::Uri;
use super::watchdog::Watchdog;
use crate::ids::{Generation, HostKey};
use crate::journal::Ended;
use crate::protocol::opening::{Plan, Refusal, write_own_meta};
use crate::protocol::{
    ChildIdentity, Era, ErrorCode, Member, Message, Opening, Outcome, negotiate, write,
};
use crate::time::{Moment, earliest};

/// How long an answer to a request of our own is waited for. Nothing depends on it but the table.
const OWN_REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

impl Mux {
    /// Starts the first exchange with a child.
    pub(super) fn begin_child(&mut self, generation: Generation, remembered: Option<Era>) {
        if self.child.is_some() {
            // The old one was never reported gone; nothing of it may be left.
            let gone = ChildGone {
                reason: "was replaced".to_owned(),
                detail: serde_json::Value::Null,
            };
            self.end_child(&gone);
        }
        self.requests.begin_generation();
        self.child_was_told = false;
        let plan = Plan {
            choice: self.config.protocol,
            remembered,
            after_death: self.died_of_discovery,
            is_interactive: self.config.asking != Asking::Nobody,
        };
        let opening = Opening::new(&self.config.client_version, plan, self.now);
        self.child = Some(Child {
            generation,
            opening,
            era: Era::Legacy,
            may_die_of_discovery: false,
            welcome: None,
            charges: Charges::default(),
            watchdog: Watchdog::new(self.now),
            unread_answers_bytes: 0,
            drain: None,
        });
        self.go_on_opening();
    }

    /// Does what the first exchange has come to: its frames go out before anything else, and its
    /// outcome opens the session or ends this child.
    pub(super) fn go_on_opening(&mut self) {
        let Some(child) = &mut self.child else { return };
        while let Some(frame) = child.opening.poll_frame() {
            self.queue.push_reserved(frame);
        }
        let may_die = child.opening.may_die_of_discovery();
        if std::mem::replace(&mut child.may_die_of_discovery, may_die) != may_die {
            self.actions.push_back(MuxAction::Excused(may_die));
        }
        if let Some(lesson) = child.opening.poll_lesson() {
            self.actions.push_back(MuxAction::Learnt(lesson));
        }
        match child.opening.poll_outcome() {
            Some(Ok(identity)) => self.open_child(identity),
            Some(Err(refusal)) => self.act(MuxAction::OpeningFailed(opening_failed(&refusal))),
            None => {}
        }
    }

    /// The first exchange may have waited long enough.
    pub(super) fn opening_timeout(&mut self) {
        if let Some(child) = &mut self.child {
            child.opening.handle_timeout(self.now);
            self.go_on_opening();
        }
    }

    /// The child has opened its session: hosts that wait for that are answered, and it is told
    /// what the child before it knew.
    pub(super) fn open_child(&mut self, identity: ChildIdentity) {
        let era = identity.version.era();
        self.died_of_discovery = false;
        let welcome = Welcome::of(&identity, &self.config.server);
        let added = self.learn_identity(&identity);
        self.note_identity(identity);
        if let Some(child) = &mut self.child {
            child.era = era;
            child.welcome = Some(welcome.clone());
        }
        self.answer_initializes(&welcome);
        self.sync_level();
        let again = match era {
            Era::Legacy => self.subscriptions.to_make_again(),
            // One stream asks for them all.
            Era::Modern => Vec::new(),
        };
        for uri in again {
            self.subscribe_upstream(uri);
        }
        let (walked, gone) = self.catalogue.begin_walks(|kind| welcome.offers(kind));
        for kind in walked {
            self.ask_list(kind, None);
        }
        for method in gone.union(&added) {
            self.tell_changed(method);
        }
        self.resume_listens();
        self.refresh_stream();
    }

    fn note_identity(&mut self, identity: ChildIdentity) {
        if let Some(before) = &self.identity
            && before.version != identity.version
        {
            let (before, version) = (before.version, identity.version);
            let text = format!("speaks MCP {version} now; attached hosts were told by {before}");
            self.log(LogLevel::Info, text);
        }
        self.identity = Some(identity.clone());
        self.act(MuxAction::Opened(identity));
    }

    /// Answers every `initialize` that waited for the child.
    fn answer_initializes(&mut self, welcome: &Welcome) {
        let asking: Vec<_> = self
            .requests
            .waiting()
            .filter_map(|(key, request)| match &request.purpose {
                Purpose::Initialize { asked } => Some((key, negotiate(asked, welcome.version()))),
                _ => None,
            })
            .collect();
        for (key, version) in asking {
            let Some(asker) = self.requests.get(key).and_then(|one| one.host()).cloned() else {
                continue;
            };
            self.open_session(asker.host, version);
            // Before the request goes, which ends it for the journal too.
            self.answer_here(asker.host, None, &asker.id, &welcome.result_for(version));
            self.drop_request(key);
        }
    }

    /// The child is gone: what was written to it is lost, what was not stays.
    pub(super) fn end_child(&mut self, gone: &ChildGone) {
        if self.is_writable() {
            self.unserved_since = self.now;
        }
        if let Some(child) = self.child.take() {
            self.died_of_discovery |= child.opening.may_die_of_discovery();
        }
        self.child_was_told = false;
        self.queue.forget_child();
        self.withdraw_all_questions();
        let server = &self.config.server;
        let detail = serde_json::json!({ "reason": gone.reason, "child": gone.detail });
        let failure = Failure::of_server(
            ErrorCode::SERVER_EXITED,
            server,
            format!(
                "server {server} {} while this request was open; whether it took effect is unknown",
                gone.reason
            ),
            &detail,
        );
        let suspended = self.requests.suspended();
        for key in self.requests.written().into_iter().chain(suspended) {
            self.fail(key, &failure);
        }
        self.forget_stream();
        self.levels.forget_child();
        self.subscriptions.forget_child();
        self.catalogue.forget_child();
    }

    /// Writes a request of our own.
    pub(super) fn ask_child(&mut self, method: &str, purpose: Purpose, params: Option<&[u8]>) {
        let key = self.requests.next_key();
        let request = OpenRequest {
            asker: Asker::Mux,
            purpose,
            method: name_of(method),
            arrived: self.now,
            progress: Progress::Waiting,
            era: self.child_era(),
            modern: None,
            is_call: false,
            had_progress: false,
            tool: None,
            last_progress: None,
        };
        self.requests.insert(key, request);
        let deadline = Some(self.now + OWN_REQUEST_TIMEOUT);
        let dressed = (self.child_era() == Era::Modern).then(|| self.own_params(params));
        if let Some(UpstreamId(id)) = self.requests.mark_written(key, deadline) {
            let params = dressed.as_deref().or(params);
            self.queue.push_reserved(write::request(id, method, params));
        }
    }

    /// The parameters of a request of our own to a modern child.
    fn own_params(&self, params: Option<&[u8]>) -> Vec<u8> {
        let mut out = b"{\"_meta\":".to_vec();
        write_own_meta(&mut out, &self.config.client_version);
        match params.and_then(|params| params.strip_prefix(b"{")) {
            Some(rest) => {
                out.push(b',');
                out.extend_from_slice(rest);
            }
            None => out.push(b'}'),
        }
        out
    }

    fn ask_list(&mut self, kind: ListKind, cursor: Option<&[u8]>) {
        let params = cursor.map(|cursor| [b"{\"cursor\":", cursor, b"}"].concat());
        let purpose = Purpose::List {
            kind,
            cursor: cursor.map(Bytes::copy_from_slice),
        };
        self.ask_child(kind.method(), purpose, params.as_deref());
    }

    /// Sets the child to the most verbose level that a host wants, if it is not there yet.
    pub(super) fn sync_level(&mut self) {
        // A modern child is told with each request.
        if self.is_writable()
            && self.child_era() == Era::Legacy
            && let Some(level) = self.levels.own_request()
        {
            self.ask_for_level(level);
        }
    }

    /// Sets the child to this level.
    pub(super) fn ask_for_level(&mut self, level: Level) {
        self.levels.note_own_written(level);
        let params = format!("{{\"level\":\"{}\"}}", level.as_str());
        let purpose = Purpose::SetLevel {
            asked: level,
            sent: None,
        };
        self.ask_child("logging/setLevel", purpose, Some(params.as_bytes()));
    }

    /// Asks the child for updates of a uri that a host was granted before. Without a child that can
    /// be asked the next one is.
    pub(super) fn subscribe_upstream(&mut self, uri: Uri) {
        if self.child_era() == Era::Modern {
            self.refresh_stream();
        } else if self.is_writable() {
            self.subscriptions.note_written(&uri.text);
            let params = uri_params(&uri.raw);
            let purpose = Purpose::Subscribe(uri);
            self.ask_child("resources/subscribe", purpose, Some(&params));
        }
    }

    /// A host comes with a list that an earlier daemon gave it.
    pub(super) fn resume_list(&mut self, host: HostKey, kind: ListKind, seen: &str) {
        let is_open = self.is_writable();
        match self.catalogue.resume(kind, seen, is_open) {
            Resumed::Same => {}
            Resumed::Unknown => self.ask_list(kind, None),
            Resumed::Other => self.send(host, write::notification(kind.changed(), None), false),
        }
    }

    /// Tells the child to forget a uri that nobody holds any more.
    pub(super) fn unsubscribe_upstream(&mut self, uri: &Uri) {
        if self.child_era() == Era::Modern {
            self.refresh_stream();
        } else if self.is_writable() {
            let params = uri_params(&uri.raw);
            let purpose = Purpose::Unsubscribe(uri.clone());
            self.ask_child("resources/unsubscribe", purpose, Some(&params));
        }
    }

    /// The child has answered a request of our own.
    pub(super) fn own_answer(&mut self, request: &OpenRequest, message: &Message) {
        let is_granted = message.outcome() == Some(Outcome::Result);
        if let Purpose::List { kind, cursor } = &request.purpose {
            let kind = *kind;
            let step = if is_granted {
                let result = message.value(Member::Result).unwrap_or_default();
                self.learn_page(kind, cursor.as_deref(), result);
                let page = read_page(kind, result, &self.config.tools);
                self.catalogue.note_own_page(kind, page)
            } else {
                self.catalogue.note_own_refusal(kind)
            };
            return self.take_step(kind, step);
        }
        self.own_ended(
            request,
            if is_granted {
                Fate::Granted
            } else {
                Fate::Refused
            },
        );
    }

    fn take_step(&mut self, kind: ListKind, step: WalkStep) {
        match step {
            WalkStep::More(cursor) => self.ask_list(kind, Some(&cursor)),
            WalkStep::Changed => self.tell_changed(kind.changed()),
            WalkStep::Same => {}
        }
    }

    /// A request of our own has ended, whichever way.
    pub(super) fn own_ended(&mut self, request: &OpenRequest, fate: Fate) {
        match &request.purpose {
            Purpose::SetLevel { asked, .. } => {
                self.levels.note_own_ended(*asked, fate);
                self.sync_level();
            }
            Purpose::Subscribe(uri) if fate == Fate::Granted => {
                self.subscriptions.note_granted(None, &uri.text);
            }
            Purpose::Subscribe(uri) => {
                let text = "the new process did not grant a subscription of the old one".to_owned();
                self.log(LogLevel::Warn, text);
                if fate == Fate::Refused {
                    self.end_listens_to(&uri.text.clone());
                }
            }
            Purpose::SubscribeFor(holder, uri) => self.settle_listen_uri(*holder, uri, fate),
            Purpose::List { kind, .. } => self.catalogue.abandon_walk(*kind),
            Purpose::Call | Purpose::Initialize { .. } | Purpose::Unsubscribe(_) => {}
        }
    }

    /// Tells everybody who may hear it that a list is another one.
    fn tell_changed(&mut self, method: &'static str) {
        self.broadcast(&write::notification(method, None));
        self.tell_listens_changed(method, None);
    }

    /// Hosts see other tools from now on, whatever the child lists.
    pub(super) fn tell_tools_changed(&mut self) {
        self.catalogue.forget_tools();
        let has_tools = self
            .identity
            .as_ref()
            .is_some_and(|identity| identity.offers("tools"));
        if has_tools {
            self.tell_changed(ListKind::Tools.changed());
        }
    }

    /// Tells the child that nobody waits for a request any more, if it has seen it.
    pub(super) fn cancel_upstream(&mut self, key: RequestKey, reason: &str) {
        let progress = self.requests.get(key).map(|request| request.progress);
        if let Some(Progress::Written {
            id: UpstreamId(id), ..
        }) = progress
        {
            let params = format!("{{\"requestId\":{id},\"reason\":\"{reason}\"}}");
            let frame = write::notification("notifications/cancelled", Some(params.as_bytes()));
            self.queue.push_reserved(frame);
        }
    }

    /// Ends all that hosts have open on the child.
    pub(super) fn cancel_written(&mut self, code: ErrorCode) {
        let server = &self.config.server;
        let failure = if code == ErrorCode::DAEMON_RESTARTED {
            Failure::daemon_ended(server)
        } else {
            let text = format!(
                "server {server} is being stopped or restarted; this request was cancelled"
            );
            Failure::of_server(code, server, text, &serde_json::Value::Null)
        };
        let suspended = self.requests.suspended();
        for key in self.requests.written().into_iter().chain(suspended) {
            if self
                .requests
                .get(key)
                .is_some_and(|request| !request.is_own())
            {
                self.cancel_upstream(key, "the server is being stopped");
                self.fail(key, &failure);
            }
        }
    }

    /// Ends all that no child has seen.
    pub(super) fn fail_waiting(&mut self, failure: &Failure) {
        let waiting: Vec<_> = self.requests.waiting().map(|(key, _)| key).collect();
        for key in waiting {
            self.fail(key, failure);
        }
    }

    /// Ends the requests whose `request_timeout` has passed, and our own that nobody answers.
    pub(super) fn expire_written(&mut self) {
        while let Some(key) = self.requests.expired(self.now) {
            self.cancel_upstream(key, "request_timeout has passed");
            let server = &self.config.server;
            let timeout = self.config.request_timeout.unwrap_or_default();
            let text =
                format!("server {server} did not answer within request_timeout ({timeout:?})");
            let failure =
                Failure::of_server(ErrorCode::TIMED_OUT, server, text, &serde_json::Value::Null);
            self.fail(key, &failure);
        }
    }

    /// When the wait of what waits for a child ends first. What was there while the child still
    /// served waits from its end.
    pub(super) fn next_wait_end(&self) -> Option<Moment> {
        let request = self.requests.waiting().next();
        let first = earliest(
            request.map(|(_, request)| request.arrived),
            self.queue.first_notification(),
        )?;
        Some(self.wait_end(first))
    }

    fn wait_end(&self, arrived: Moment) -> Moment {
        arrived.max(self.unserved_since) + self.config.start_timeout
    }

    /// Drops the notifications that have waited in vain: a notification brings no child up, so
    /// there may be none for as long as nobody asks for anything.
    fn expire_notifications(&mut self) {
        while let Some(arrived) = self.queue.first_notification() {
            if self.wait_end(arrived) > self.now {
                return;
            }
            let Some(queued) = self.queue.take_first_notification() else {
                return;
            };
            self.pool.give_back(queued.host, queued.len());
            self.counters.dropped += 1;
        }
    }

    /// Answers those that wait in vain.
    pub(super) fn judge_waiting(&mut self) {
        let is_final = matches!(self.service, Service::Unavailable(_) | Service::Stopping);
        if self.is_writable() && !is_final {
            return;
        }
        let (server, start_timeout) = (&self.config.server, self.config.start_timeout);
        let refused: Vec<_> = self
            .requests
            .waiting()
            .filter_map(|(key, request)| {
                let end = self.wait_end(request.arrived);
                let mut refusal = refusal(&self.service, server, start_timeout, end, self.now)?;
                if !is_final && !self.wait_detail.is_null() {
                    refusal.detail = self.wait_detail.clone();
                }
                Some((key, refusal))
            })
            .collect();
        for (key, refusal) in refused {
            let failure = Failure::refused(refusal, &self.config.server);
            self.fail(key, &failure);
        }
        self.expire_notifications();
        if is_final {
            for queued in self.queue.take_notifications(None) {
                self.pool.give_back(queued.host, queued.len());
                self.counters.dropped += 1;
            }
        }
    }

    /// Closes the hosts that ended their input and whose last answers did not come.
    pub(super) fn expire_ended(&mut self) {
        let later = self
            .ended
            .split_off(&(self.now + Duration::from_nanos(1), HostKey(0)));
        for (_, host) in std::mem::replace(&mut self.ended, later) {
            self.drop_requests_of(host, "the host has ended its input");
            self.close_host(host, CloseReason::GaveUp);
        }
    }

    fn drop_requests_of(&mut self, host: HostKey, reason: &str) {
        for key in self.requests.all_of(host) {
            self.cancel_upstream(key, reason);
            self.drop_request(key);
        }
    }

    fn close_host(&mut self, host: HostKey, reason: CloseReason) {
        if let Some(attachment) = self.hosts.get_mut(&host)
            && attachment.input != Input::Closing
        {
            let input = std::mem::replace(&mut attachment.input, Input::Closing);
            self.forget_end(host, input);
            self.act(MuxAction::CloseHost(host, reason));
        }
    }

    /// Nothing is waited for any more of a host whose input was so far.
    fn forget_end(&mut self, host: HostKey, input: Input) {
        if let Input::Ended(until) = input {
            self.ended.remove(&(until, host));
        }
    }

    /// Takes a host off every table; its calls are cancelled upstream. Others keep what they share
    /// with it.
    pub(super) fn forget_host(&mut self, host: HostKey) {
        let Some(attachment) = self.hosts.remove(&host) else {
            return;
        };
        self.forget_end(host, attachment.input);
        self.leaving = Some((host, attachment.info));
        self.end_rounds_of(host);
        self.answer_for_departed(host);
        self.drop_requests_of(host, "the host has left");
        self.listens.leave(host);
        for uri in self.subscriptions.leave(host) {
            self.unsubscribe_upstream(&uri);
        }
        self.levels.leave(host);
        self.sync_level();
        self.queue.take_notifications(Some(host));
        self.pool.close(host);
        self.leaving = None;
    }

    /// Does what an event has left to be done. Every event ends here.
    pub(super) fn settle(&mut self) {
        while let Some((host, reason)) = self.cut_off.pop_first() {
            if self.hosts.contains_key(&host) {
                self.end_journal(host, Ended::Detached);
                self.forget_host(host);
                self.act(MuxAction::DropHost(host, reason));
            }
        }
        for host in std::mem::take(&mut self.ending) {
            self.close_if_finished(host);
        }
        let is_drained = self.requests.written_of_hosts() == 0;
        if let Some(child) = &mut self.child
            && child.drain == Some(Drain::Waiting)
            && is_drained
        {
            child.drain = Some(Drain::Done);
            self.act(MuxAction::Drained);
        }
        self.note_need();
        if !self.child_was_told && self.has_child_frame() {
            self.child_was_told = true;
            self.act(MuxAction::ChildReady);
        }
    }

    fn close_if_finished(&mut self, host: HostKey) {
        let is_finished = self.requests.count_of(host) == 0
            && self.hosts.get(&host).is_some_and(|attachment| {
                matches!(attachment.input, Input::Ended(_)) && attachment.batches.is_empty()
            });
        if is_finished {
            self.close_host(host, CloseReason::Finished);
        }
    }
}

fn uri_params(raw: &Bytes) -> Vec<u8> {
    [b"{\"uri\":", &raw[..], b"}"].concat()
}

fn opening_failed(refusal: &Refusal) -> Unavailable {
    let error = refusal
        .error
        .as_ref()
        .and_then(|error| serde_json::from_slice(error).ok());
    Unavailable {
        message: refusal.text.clone(),
        detail: error.unwrap_or(serde_json::Value::Null),
    }
}
