//! The multiplexer of one instance: what can be told to it and asked of it.
//!
//! Holds the tables and hands each event to the file that knows what it means. See the room's own
//! page for the list.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use serde_json::Value;

use super::action::{ChildGone, DropReason, HostFrame, LogLevel, MuxAction};
use super::answers::Failure;
use super::attach::{Attachment, Input};
use super::catalogue::Catalogue;
use super::eras::{Caller, Consults, Listens, Questions, Rounds, Stream, Turns};
use super::faults::{Charges, Noise};
use super::handshake::Welcome;
use super::idle::Idle;
use super::levels::Levels;
use super::limits::{ATTACHMENTS, Pool};
use super::memory::Memory;
use super::queue::Queue;
use super::requests::{OpenRequest, Requests};
use super::service::{Hold, HoldCause, Service};
use super::settings::{HostInfo, MuxConfig};
use super::snapshot::{Counters, HostSnapshot, MuxSnapshot, OldestRequest, Turn};
use super::subscriptions::Subscriptions;
use super::watchdog::Watchdog;
use crate::ids::{Generation, HostKey};
use crate::journal::Ended;
use crate::protocol::{ChildIdentity, Era, ErrorCode, Frame, FrameArena, Line, Opening};
use crate::time::{Moment, earliest};

/// How long a host that ended its input is waited for: after that what it still has open is
/// cancelled.
pub const ANSWERS_AFTER_END: Duration = Duration::from_secs(60 * 60);

/// Another host cannot be attached: there are [`ATTACHMENTS`] already. A request that asks for it
/// is answered with `-31002`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server has {ATTACHMENTS} hosts already")]
pub struct AttachmentsFull;

/// The child that is there now.
#[derive(Debug)]
pub(super) struct Child {
    pub(super) generation: Generation,
    /// The first exchange; before its end no request is written.
    pub(super) opening: Opening,
    /// What it speaks, once it has opened its session.
    pub(super) era: Era,
    /// Whether its end would be laid to our asking, as the shell was told last.
    pub(super) may_die_of_discovery: bool,
    /// What hosts are told of the child, once it has opened its session.
    pub(super) welcome: Option<Welcome>,
    pub(super) charges: Charges,
    pub(super) watchdog: Watchdog,
    /// Bytes of answers to its own requests that it has not taken.
    pub(super) unread_answers_bytes: u64,
    /// The drain that the supervisor has begun.
    pub(super) drain: Option<Drain>,
}

/// How far a drain is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Drain {
    /// Requests of hosts are open. Left when the last of them ends.
    Waiting,
    /// The shell was told that none is.
    Done,
}

/// Many hosts on one child.
#[derive(Debug)]
pub struct Mux {
    pub(super) config: MuxConfig,
    pub(super) pool: Pool,
    pub(super) service: Service,
    /// What is said to those whose wait runs out at the deadline at hand; `null` for nothing.
    pub(super) wait_detail: Value,
    pub(super) child: Option<Child>,
    /// Since when no request can be written; those that arrived earlier wait from then on.
    pub(super) unserved_since: Moment,
    pub(super) hosts: BTreeMap<HostKey, Attachment>,
    /// Hosts that say no more, and how long their last answers are waited for.
    pub(super) ended: BTreeSet<(Moment, HostKey)>,
    pub(super) requests: Requests,
    pub(super) queue: Queue,
    pub(super) subscriptions: Subscriptions,
    /// Calls of legacy hosts on a modern child, for which that may have questions.
    pub(super) consults: Consults,
    /// What a modern child tells us of by itself.
    pub(super) stream: Stream,
    /// Tools of a modern child whose structured content is wrapped for legacy hosts.
    pub(super) wrapped_tools: BTreeSet<String>,
    /// The listen streams of modern hosts on a legacy child.
    pub(super) listens: Listens,
    /// Whose turn it is on a child that may ask something.
    pub(super) turns: Turns,
    /// What legacy hosts were asked.
    pub(super) questions: Questions,
    /// Calls of modern hosts about which something was asked.
    pub(super) rounds: Rounds,
    /// What makes the states of rounds hard to guess.
    pub(super) secret: [u8; 32],
    pub(super) levels: Levels,
    pub(super) catalogue: Catalogue,
    pub(super) noise: Noise,
    pub(super) counters: Counters,
    pub(super) identity: Option<ChildIdentity>,
    pub(super) idle: Idle,
    /// The last child ended while it was asked what it speaks. Until one has opened its session,
    /// the next ones are spoken to in the way that every legacy child knows.
    pub(super) died_of_discovery: bool,
    /// What is told of the server while no child can be asked.
    pub(super) memory: Option<Memory>,
    pub(super) actions: VecDeque<MuxAction>,
    /// Hosts that are to be cut off as soon as the event at hand has been dealt with.
    pub(super) cut_off: BTreeMap<HostKey, DropReason>,
    /// The host that is being taken off every table, for what is told of its calls.
    pub(super) leaving: Option<(HostKey, HostInfo)>,
    /// Hosts that ended their input, or whose last request may just have ended.
    pub(super) ending: Vec<HostKey>,
    /// Whether the shell was told of frames for the child and has not polled them all.
    pub(super) child_was_told: bool,
    pub(super) last_batch: u64,
    /// Where changed messages are built.
    pub(super) arena: FrameArena,
    /// The time of the event at hand.
    pub(super) now: Moment,
}

impl Mux {
    /// The multiplexer of an instance without a child and without hosts.
    pub fn new(config: MuxConfig, pool: Pool) -> Self {
        Self {
            config,
            pool,
            service: Service::Holding(Hold::because(HoldCause::Starting)),
            wait_detail: Value::Null,
            child: None,
            unserved_since: Moment::ZERO,
            hosts: BTreeMap::new(),
            ended: BTreeSet::new(),
            requests: Requests::default(),
            queue: Queue::default(),
            subscriptions: Subscriptions::default(),
            consults: Consults::default(),
            stream: Stream::default(),
            wrapped_tools: BTreeSet::new(),
            listens: Listens::default(),
            turns: Turns::default(),
            questions: Questions::default(),
            rounds: Rounds::default(),
            secret: [0; 32],
            levels: Levels::default(),
            catalogue: Catalogue::default(),
            noise: Noise::default(),
            counters: Counters::default(),
            identity: None,
            idle: Idle::default(),
            died_of_discovery: false,
            memory: None,
            actions: VecDeque::new(),
            cut_off: BTreeMap::new(),
            leaving: None,
            ending: Vec::new(),
            child_was_told: false,
            last_batch: 0,
            arena: FrameArena::new(),
            now: Moment::ZERO,
        }
    }

    /// Keys what a host could otherwise guess. Random, and the same for no two daemons.
    #[must_use]
    pub fn with_secret(mut self, secret: [u8; 32]) -> Self {
        self.secret = secret;
        self
    }

    /// Takes new settings while everything goes on. Hosts hear of it if they see other tools now.
    pub fn configure(&mut self, config: MuxConfig, now: Moment) {
        self.now = now;
        let were_limited = self.limits_calls();
        let old = std::mem::replace(&mut self.config, config);
        if were_limited != self.limits_calls() {
            self.sort_queue_anew();
        }
        if old.tools != self.config.tools {
            self.tell_tools_changed();
        }
        self.settle();
    }

    /// A host is there. Its lines may follow.
    ///
    /// # Errors
    ///
    /// There are [`ATTACHMENTS`] hosts already; nothing was changed.
    pub fn attach(&mut self, host: HostKey, info: HostInfo) -> Result<(), AttachmentsFull> {
        if self.hosts.len() >= ATTACHMENTS {
            return Err(AttachmentsFull);
        }
        self.hosts.insert(host, Attachment::new(info));
        Ok(())
    }

    /// A host has sent a line.
    pub fn handle_host_line(&mut self, host: HostKey, line: Line, now: Moment) {
        self.now = now;
        if self.hosts.contains_key(&host) {
            self.host_line(host, line);
        }
        self.settle();
    }

    /// A host has ended its input. What is due to it still goes out; then it is closed.
    pub fn handle_host_end(&mut self, host: HostKey, now: Moment) {
        self.now = now;
        if let Some(attachment) = self.hosts.get_mut(&host) {
            if attachment.input == Input::Open {
                let until = now + ANSWERS_AFTER_END;
                attachment.input = Input::Ended(until);
                self.ended.insert((until, host));
            }
            self.ending.push(host);
        }
        self.settle();
    }

    /// A host cannot be written to any more, or its connection was closed. Its open calls are
    /// cancelled upstream. No effect if it is gone already.
    pub fn handle_host_gone(&mut self, host: HostKey, now: Moment) {
        self.now = now;
        self.end_journal(host, Ended::Finished);
        self.forget_host(host);
        self.settle();
    }

    /// Another multiplexer found the pool full and this host holding most of it.
    pub fn evict_host(&mut self, host: HostKey, now: Moment) {
        self.now = now;
        self.cut_off.insert(host, DropReason::PoolFull);
        self.settle();
    }

    /// A child was started: the first exchange begins. `remembered` is what children of exactly
    /// this configuration were found to speak before.
    pub fn handle_child_started(
        &mut self,
        generation: Generation,
        remembered: Option<Era>,
        now: Moment,
    ) {
        self.now = now;
        self.begin_child(generation, remembered);
        self.settle();
    }

    /// The child has written a line. Lines of another generation are ignored.
    pub fn handle_child_line(&mut self, generation: Generation, line: Line, now: Moment) {
        self.now = now;
        let child = self.child.as_mut();
        if let Some(child) = child.filter(|child| child.generation == generation) {
            child.watchdog.heard(now);
            self.child_line(line);
        }
        self.settle();
    }

    /// The child is gone, or is no longer to be listened to. What was written to it is answered
    /// with `-31001`; what was not waits for the next one.
    pub fn handle_child_gone(&mut self, generation: Generation, gone: &ChildGone, now: Moment) {
        self.now = now;
        if self
            .child
            .as_ref()
            .is_some_and(|child| child.generation == generation)
        {
            self.end_child(gone);
        }
        self.settle();
    }

    /// Says whether requests can be served now, and judges those that wait.
    pub fn set_service(&mut self, service: Service, now: Moment) {
        self.now = now;
        self.service = service;
        self.judge_listens();
        self.judge_waiting();
        self.settle();
    }

    /// Writes no more requests to this child. [`MuxAction::Drained`] follows when none is open.
    pub fn begin_drain(&mut self, now: Moment) {
        self.now = now;
        if self.is_writable() {
            self.unserved_since = self.now;
        }
        if let Some(child) = &mut self.child {
            child.drain.get_or_insert(Drain::Waiting);
        }
        self.settle();
    }

    /// Ends what is still open at the end of a drain: cancelled upstream, answered with `code`.
    /// With [`ErrorCode::DAEMON_RESTARTED`] also what waits.
    pub fn cancel_open(&mut self, code: ErrorCode, now: Moment) {
        self.now = now;
        self.cancel_written(code);
        if code == ErrorCode::DAEMON_RESTARTED {
            self.fail_waiting(&Failure::daemon_ended(&self.config.server));
            self.lose_listens("the daemon ended");
        }
        self.settle();
    }

    /// Does what is due. Calling it early is harmless.
    pub fn handle_timeout(&mut self, now: Moment) {
        self.now = now;
        self.opening_timeout();
        self.expire_written();
        self.expire_rounds();
        self.expire_pauses();
        self.judge_waiting();
        self.expire_ended();
        self.expire_idle();
        self.expire_watchdog();
        self.settle();
        self.wait_detail = Value::Null;
    }

    /// What is known at this moment, for those whose wait [`Mux::handle_timeout`] is about to end:
    /// the child may have said on stderr why it is not ready.
    pub fn explain_waits(&mut self, detail: Value) {
        self.wait_detail = detail;
    }

    /// When [`Mux::handle_timeout`] has to be called next.
    pub fn poll_timeout(&self) -> Option<Moment> {
        let written = self.requests.next_deadline();
        let waiting = if self.is_writable() {
            None
        } else {
            self.next_wait_end()
        };
        let ended = self.ended.first().map(|(until, _)| *until);
        let idle = self.idle_deadline();
        let opening = self
            .child
            .as_ref()
            .and_then(|child| child.opening.poll_timeout());
        let opening = earliest(opening, self.consults.next_deadline());
        let of_child = earliest(earliest(written, waiting), opening);
        let of_child = earliest(of_child, self.watchdog_deadline());
        let of_hosts = earliest(earliest(ended, idle), self.rounds.next_deadline());
        earliest(of_child, of_hosts)
    }

    /// What the shell has to do next.
    pub fn poll_action(&mut self) -> Option<MuxAction> {
        self.actions.pop_front()
    }

    /// The next frame for the child's stdin; ask when the pipe can take more. A request counts as
    /// written from here on and is never handed out again.
    pub fn poll_child_frame(&mut self, now: Moment) -> Option<Frame> {
        self.now = now;
        let frame = self.next_child_frame();
        if frame.is_none() {
            self.child_was_told = false;
        }
        // A request may have been answered here instead of being written.
        self.settle();
        frame
    }

    /// The next frame for a host.
    pub fn poll_host_frame(&mut self, host: HostKey) -> Option<HostFrame> {
        let attachment = self.hosts.get_mut(&host)?;
        let polled = attachment.outbox.poll()?;
        Some(attachment.hand_out(polled))
    }

    /// The next frame for a host, if it may share a write with those that were polled before.
    pub fn poll_host_frame_beside(&mut self, host: HostKey) -> Option<HostFrame> {
        let attachment = self.hosts.get_mut(&host)?;
        let polled = attachment.outbox.poll_beside()?;
        Some(attachment.hand_out(polled))
    }

    /// So many bytes of polled frames were written to a host: they are not held any more.
    pub fn host_frame_written(&mut self, host: HostKey, bytes: usize) {
        if let Some(attachment) = self.hosts.get_mut(&host) {
            let written = attachment.outbox.note_written(bytes as u64);
            self.pool.give_back(host, written);
            if let Some(journal) = &mut attachment.journal
                && attachment.outbox.is_written()
            {
                journal.end_frames();
            }
        }
    }

    /// Whether a host is attached.
    pub fn has_host(&self, host: HostKey) -> bool {
        self.hosts.contains_key(&host)
    }

    /// Whether anything keeps the child from being stopped for idleness: an open or waiting
    /// request, or a subscription.
    pub fn is_busy(&self) -> bool {
        self.requests.len() > 0
            || self.subscriptions.len() > 0
            || self.listens.len() > 0
            || self.rounds.len() > 0
    }

    /// Whether a request of a host waits for a child.
    pub fn has_waiting(&self) -> bool {
        self.requests.waiting().any(|(_, one)| one.host().is_some())
    }

    /// The last line of noise, as it is kept.
    pub fn noise_sample(&self) -> Option<&str> {
        self.noise.sample()
    }

    /// Puts another text in the place of that line: it outlives the child that said it, and with
    /// it what is known of that child's secrets.
    pub fn replace_noise_sample(&mut self, sample: String) {
        self.noise.replace_sample(sample);
    }

    /// What `status` shows.
    pub fn snapshot(&self, now: Moment) -> MuxSnapshot {
        let waiting = self
            .requests
            .waiting()
            .filter(|(_, one)| one.host().is_some())
            .count();
        MuxSnapshot {
            hosts: self
                .hosts
                .iter()
                .map(|(key, host)| self.host_snapshot(*key, host))
                .collect(),
            open: self.requests.written_of_hosts(),
            waiting,
            subscriptions: self.subscriptions.len(),
            oldest: self.requests.oldest().map(|request| OldestRequest {
                age: now.since(request.arrived),
                method: request.method.to_string(),
            }),
            overdue: self.overdue(now),
            counters: Counters {
                noise_lines: self.noise.lines(),
                ..self.counters
            },
            noise_sample: self.noise.sample().map(str::to_owned),
            child: self.identity.clone(),
            tools: self.catalogue.tools(),
        }
    }

    fn host_snapshot(&self, key: HostKey, host: &Attachment) -> HostSnapshot {
        let of_this_host =
            |request: &&OpenRequest| request.host().is_some_and(|asker| asker.host == key);
        let waiting = self.requests.waiting().map(|(_, request)| request);
        let waiting = waiting.filter(of_this_host).count();
        HostSnapshot {
            key,
            client: host.info.client.as_deref().map(str::to_owned),
            pid: host.info.pid,
            version: host.revision(),
            open: self.requests.count_of(key) - waiting,
            waiting,
            turn: self.turn_of(key),
            held_bytes: self.pool.held_by(key),
        }
    }

    /// How a host stands where hosts take turns.
    fn turn_of(&self, host: HostKey) -> Turn {
        let has_it = match self.turns.caller() {
            Some(Caller::Host(caller)) => caller == host,
            Some(Caller::Call(key)) => {
                self.requests.get(key).and_then(OpenRequest::caller) == Some(host)
            }
            None => false,
        };
        match self.turns.caller() {
            Some(_) if has_it => Turn::Has,
            Some(_) if self.queue.calls_of(host) > 0 => Turn::Waits,
            _ => Turn::None,
        }
    }

    /// Whether requests may be written to the child now.
    pub(super) fn is_writable(&self) -> bool {
        self.child
            .as_ref()
            .is_some_and(|child| child.welcome.is_some() && child.drain.is_none())
    }

    /// The era of the child; legacy while there is none, or none that is open.
    pub(super) fn child_era(&self) -> Era {
        self.child.as_ref().map_or(Era::Legacy, |child| child.era)
    }

    pub(super) fn act(&mut self, action: MuxAction) {
        self.actions.push_back(action);
    }

    pub(super) fn log(&mut self, level: LogLevel, text: String) {
        self.act(MuxAction::Log(level, text));
    }
}
