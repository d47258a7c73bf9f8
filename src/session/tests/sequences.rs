//! Random histories: hosts, children, crashes, cancellations, drains and floods in any order.
//!
//! A model beside the multiplexer knows which answers are owed. It holds against every step what the
//! room promises: each request gets one answer, to its asker, with its id as sent, and none once it
//! was cancelled or its host has left; what a child was given is answered when the child dies; no
//! request is given to two children; ids upstream are positive and never used twice; nothing but
//! answers goes to a host before its `initialize` was answered; at the end nothing is held.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::protocol::ErrorCode;

/// One thing that happens. Numbers pick among what is there, whatever their size.
#[derive(Clone, Debug)]
enum Step {
    Attach,
    Initialize {
        host: u8,
        id: u8,
        has_batches: bool,
    },
    Request {
        host: u8,
        id: u8,
        kind: u8,
    },
    Batch {
        host: u8,
        id: u8,
        kind: u8,
    },
    Cancel {
        host: u8,
        id: u8,
    },
    HostNoise {
        host: u8,
        kind: u8,
    },
    End {
        host: u8,
    },
    Leave {
        host: u8,
    },
    Start,
    Open,
    Crash,
    ChildReads {
        frames: u8,
    },
    Answer {
        which: u8,
        kind: u8,
    },
    Progress {
        which: u8,
    },
    ChildSays {
        kind: u8,
    },
    /// A host stops reading, or reads again.
    Stall {
        host: u8,
    },
    /// The child says more than the pool can hold for hosts that do not read.
    Flood,
    Evict {
        host: u8,
    },
    Drain,
    CancelOpen,
    Service {
        kind: u8,
    },
    Pass {
        seconds: u8,
    },
    Configure {
        kind: u8,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (host, id, kind) = (0..4_u8, 0..4_u8, 0..8_u8);
    let which = any::<u8>();
    let step = prop_oneof![
        2 => Just(Step::Attach),
        5 => (host.clone(), id.clone(), any::<bool>())
            .prop_map(|(host, id, has_batches)| Step::Initialize { host, id, has_batches }),
        12 => (host.clone(), id.clone(), kind.clone())
            .prop_map(|(host, id, kind)| Step::Request { host, id, kind }),
        2 => (host.clone(), id.clone(), kind.clone())
            .prop_map(|(host, id, kind)| Step::Batch { host, id, kind }),
        4 => (host.clone(), id).prop_map(|(host, id)| Step::Cancel { host, id }),
        1 => (host.clone(), kind.clone()).prop_map(|(host, kind)| Step::HostNoise { host, kind }),
        1 => host.clone().prop_map(|host| Step::End { host }),
        2 => host.clone().prop_map(|host| Step::Leave { host }),
        4 => Just(Step::Start),
        5 => Just(Step::Open),
        2 => Just(Step::Crash),
        8 => (1..6_u8).prop_map(|frames| Step::ChildReads { frames }),
        8 => (which, kind.clone()).prop_map(|(which, kind)| Step::Answer { which, kind }),
        3 => which.prop_map(|which| Step::Progress { which }),
        2 => kind.clone().prop_map(|kind| Step::ChildSays { kind }),
        1 => host.clone().prop_map(|host| Step::Stall { host }),
        1 => Just(Step::Flood),
        1 => host.prop_map(|host| Step::Evict { host }),
        1 => Just(Step::Drain),
        1 => Just(Step::CancelOpen),
        2 => kind.clone().prop_map(|kind| Step::Service { kind }),
        2 => (0..100_u8).prop_map(|seconds| Step::Pass { seconds }),
        1 => kind.prop_map(|kind| Step::Configure { kind }),
    ];
    prop::collection::vec(step, 1..50)
}

/// What a history begins with: one host, or two that are served, so that the steps that follow
/// meet both beginnings and sessions that run.
fn prelude(serves: bool) -> Vec<Step> {
    if !serves {
        return vec![Step::Attach];
    }
    let initialize = |host| Step::Initialize {
        host,
        id: 0,
        has_batches: host == 0,
    };
    vec![
        Step::Attach,
        Step::Attach,
        Step::Start,
        Step::ChildReads { frames: 1 },
        Step::Open,
        initialize(0),
        initialize(1),
    ]
}

/// So little that a flood fills it.
const POOL_BYTES: usize = 16 * 1024;

/// An answer that a host has to get.
#[derive(Clone, Debug)]
struct Owed {
    tag: u64,
    is_initialize: bool,
    /// Whether it comes in an array, so that it may be ready and not out.
    in_batch: bool,
    /// Whether it may also not come: it was cancelled when it may have been ready.
    is_optional: bool,
}

#[derive(Debug, Default)]
struct HostModel {
    owed: BTreeMap<u8, Owed>,
    /// Ids that were sent while they were open; each is refused once.
    doubled: Vec<u8>,
    is_open: bool,
    has_batches: bool,
    /// Whether it does not read: answers may be out that the model has not seen.
    is_stalled: bool,
}

impl HostModel {
    /// Whether the host may send a request with this id so that it is known what becomes of it: an
    /// answer that is ready and not seen cannot be told from one that is still to come.
    fn may_use(&self, id: u8) -> bool {
        self.owed
            .get(&id)
            .is_none_or(|owed| !owed.in_batch && !self.is_stalled)
    }
}

#[derive(Debug, Default)]
struct ChildModel {
    is_open: bool,
    was_asked: bool,
    /// Ids of all requests that it was given.
    ids: BTreeSet<u64>,
    /// Those that it has not answered, with the tag of a host's request.
    unanswered: Vec<(u64, Option<u64>)>,
}

struct Model {
    mux: Mux,
    pool: Pool,
    now: Moment,
    generation: Generation,
    child: Option<ChildModel>,
    hosts: BTreeMap<HostKey, HostModel>,
    last_host: u64,
    last_tag: u64,
    /// Tags of requests that some child was given.
    written: BTreeSet<u64>,
    /// Tags in lists that some child gave.
    listed: BTreeSet<u64>,
}

impl Model {
    fn new() -> Self {
        let pool = Pool::new(POOL_BYTES as u64);
        Self {
            mux: Mux::new(config(), pool.clone()),
            pool,
            now: Moment::ZERO,
            generation: Generation::default(),
            child: None,
            hosts: BTreeMap::new(),
            last_host: 0,
            last_tag: 0,
            written: BTreeSet::new(),
            listed: BTreeSet::new(),
        }
    }

    /// The host that a number picks.
    fn pick(&self, number: u8) -> Option<HostKey> {
        let count = self.hosts.len().max(1);
        self.hosts.keys().nth(usize::from(number) % count).copied()
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Attach => self.attach(),
            Step::Initialize {
                host,
                id,
                has_batches,
            } => self.initialize(host, id, has_batches),
            Step::Request { host, id, kind } => self.request(host, id, kind),
            Step::Batch { host, id, kind } => self.batch(host, id, kind),
            Step::Cancel { host, id } => self.cancel(host, id),
            Step::HostNoise { host, kind } => self.host_noise(host, kind),
            Step::End { host } => {
                if let Some(host) = self.pick(host) {
                    self.mux.handle_host_end(host, self.now);
                }
            }
            Step::Leave { host } => {
                if let Some(host) = self.pick(host) {
                    self.hosts.remove(&host);
                    self.mux.handle_host_gone(host, self.now);
                }
            }
            Step::Start => self.start(),
            Step::Open => self.open(),
            Step::Crash => self.crash(),
            Step::ChildReads { frames } => self.child_reads(frames),
            Step::Answer { which, kind } => self.answer(which, kind),
            Step::Progress { which } => self.progress(which),
            Step::ChildSays { kind } => self.child_says(kind),
            Step::Stall { host } => self.stall(host),
            Step::Flood => self.flood(),
            Step::Evict { host } => {
                if let Some(host) = self.pick(host) {
                    self.mux.evict_host(host, self.now);
                }
            }
            Step::Drain => self.mux.begin_drain(self.now),
            Step::CancelOpen => self.mux.cancel_open(ErrorCode::SERVER_STOPPING, self.now),
            Step::Service { kind } => self.service(kind),
            Step::Pass { seconds } => self.pass(seconds),
            Step::Configure { kind } => self.configure(kind),
        }
        self.pump();
    }

    fn attach(&mut self) {
        if self.hosts.len() < 4 {
            self.last_host += 1;
            let host = HostKey(self.last_host);
            self.mux
                .attach(host, HostInfo::default())
                .expect("there is room");
            self.hosts.insert(host, HostModel::default());
        }
    }

    /// Notes that an answer is owed, or a refusal if the id is open.
    fn owe(&mut self, host: HostKey, id: u8, is_initialize: bool, in_batch: bool) -> u64 {
        self.last_tag += 1;
        let tag = self.last_tag;
        let model = self.hosts.get_mut(&host).expect("picked from them");
        match model.owed.entry(id) {
            Entry::Occupied(_) => model.doubled.push(id),
            Entry::Vacant(place) => {
                place.insert(Owed {
                    tag,
                    is_initialize,
                    in_batch,
                    is_optional: false,
                });
            }
        }
        tag
    }

    fn initialize(&mut self, host: u8, id: u8, has_batches: bool) {
        let Some(host) = self.pick(host) else { return };
        // An answer that is ready in an array cannot be told from an open one: its id is left alone.
        if !self.hosts[&host].may_use(id) {
            return;
        }
        self.owe(host, id, true, false);
        let version = if has_batches {
            "2025-03-26"
        } else {
            "2025-11-25"
        };
        let text = super::initialize(&id.to_string(), version);
        self.mux.handle_host_line(host, line(text), self.now);
    }

    fn request(&mut self, host: u8, id: u8, kind: u8) {
        let Some(host) = self.pick(host) else { return };
        if !self.hosts[&host].may_use(id) {
            return;
        }
        let tag = self.owe(host, id, false, false);
        self.mux
            .handle_host_line(host, line(request_text(id, kind, tag)), self.now);
    }

    fn batch(&mut self, host: u8, id: u8, kind: u8) {
        let Some(host) = self.pick(host) else { return };
        let other = (id + 1) % 4;
        let model = &self.hosts[&host];
        let is_free = !model.owed.contains_key(&id) && !model.owed.contains_key(&other);
        // Which version a host has that does not read is not known here.
        if !model.has_batches || model.is_stalled || !is_free {
            return;
        }
        let texts = [id, other].map(|id| {
            let tag = self.owe(host, id, false, true);
            request_text(id, kind, tag)
        });
        self.mux
            .handle_host_line(host, line(format!("[{}]", texts.join(","))), self.now);
    }

    fn cancel(&mut self, host: u8, id: u8) {
        let Some(host) = self.pick(host) else { return };
        let model = self.hosts.get_mut(&host).expect("picked from them");
        match model.owed.get_mut(&id) {
            Some(owed) if owed.in_batch || (model.is_stalled && !owed.is_initialize) => {
                owed.is_optional = true;
            }
            Some(owed) if !owed.is_initialize => {
                model.owed.remove(&id);
            }
            _ => {}
        }
        let text = notification(
            "notifications/cancelled",
            &format!(r#"{{"requestId":{id}}}"#),
        );
        self.mux.handle_host_line(host, line(text), self.now);
    }

    fn host_noise(&mut self, host: u8, kind: u8) {
        let Some(host) = self.pick(host) else { return };
        let text = match kind % 4 {
            0 => notification("notifications/initialized", "{}"),
            1 => notification("notifications/x", "{}"),
            2 => r#"{"jsonrpc":"2.0","id":5,"result":{}}"#.to_owned(),
            _ => r#"{"jsonrpc":"2.0","method":"notifications/x","params":[]}"#.to_owned(),
        };
        if kind % 4 < 3 {
            self.mux.handle_host_line(host, line(text), self.now);
        }
    }

    fn start(&mut self) {
        if self.child.is_none() {
            self.generation = self.generation.next();
            self.child = Some(ChildModel::default());
            self.mux
                .handle_child_started(self.generation, None, self.now);
            self.mux.set_service(Service::Serving, self.now);
        }
    }

    fn open(&mut self) {
        if let Some(child) = &mut self.child
            && child.was_asked
            && !child.is_open
        {
            child.is_open = true;
            self.child_line(WELCOME);
        }
    }

    fn crash(&mut self) {
        let Some(child) = self.child.take() else {
            return;
        };
        let gone = ChildGone {
            reason: "exited with code 1".to_owned(),
            detail: Value::Null,
        };
        self.mux.handle_child_gone(self.generation, &gone, self.now);
        self.pump();
        for (_, tag) in child.unanswered {
            let is_owed = self
                .hosts
                .values()
                .filter(|host| !host.is_stalled)
                .flat_map(|host| host.owed.values())
                .any(|owed| Some(owed.tag) == tag && !owed.in_batch);
            assert!(!is_owed, "request {tag:?} outlived its child");
        }
        // A line of the dead child that was still in the pipe.
        self.child_line(&result("5"));
    }

    fn child_reads(&mut self, frames: u8) {
        for _ in 0..frames {
            let Some(frame) = self.mux.poll_child_frame(self.now) else {
                return;
            };
            self.note_child_frame(&text(&frame.to_vec()));
        }
    }

    fn note_child_frame(&mut self, frame: &str) {
        let child = self
            .child
            .as_mut()
            .expect("frames are for a child that is there");
        if let Some(id) = number_after(frame, "\"requestId\":") {
            assert!(
                child.ids.contains(&id),
                "{frame} names a request of this child"
            );
        }
        let Some(id) = number_after(frame, "{\"jsonrpc\":\"2.0\",\"id\":") else {
            return;
        };
        if !frame.contains("\"method\":") {
            return;
        }
        assert!(id > 0 && child.ids.insert(id), "id {id} was used before");
        if frame.contains("\"initialize\"") {
            assert!(!child.was_asked, "initialize is sent once a child");
            child.was_asked = true;
            return;
        }
        assert!(child.is_open, "{frame} came before the handshake was done");
        let tag = number_after(frame, "\"tag\":");
        child.unanswered.push((id, tag));
        if let Some(tag) = tag {
            assert!(self.written.insert(tag), "request {tag} was written twice");
            let is_owed = |host: &HostModel| host.owed.values().any(|owed| owed.tag == tag);
            assert!(
                self.hosts.values().any(is_owed),
                "nobody waits for request {tag}"
            );
        }
    }

    fn answer(&mut self, which: u8, kind: u8) {
        let Some(child) = &mut self.child else { return };
        if child.unanswered.is_empty() {
            return;
        }
        let at = usize::from(which) % child.unanswered.len();
        let (id, tag) = child.unanswered[at];
        // One kind of answer in eight is given twice.
        if kind != 7 {
            child.unanswered.remove(at);
        }
        let tag = tag.unwrap_or(0);
        if kind == 2 {
            self.listed.insert(tag);
        }
        let text = match kind {
            0 => format!(
                r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-1,"message":"m","tag":{tag}}}}}"#
            ),
            1 => format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"#),
            2 => format!(
                r#"{{"jsonrpc":"2.0","id":{id},"result":{{"tag":{tag},"tools":["{which}"]}}}}"#
            ),
            _ => format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"tag":{tag}}}}}"#),
        };
        self.child_line(&text);
    }

    fn progress(&mut self, which: u8) {
        let Some(child) = &self.child else { return };
        // Any id that it was ever given, ended or not, and now and then one that it was not.
        let id = child
            .ids
            .iter()
            .nth(usize::from(which) % (child.ids.len() + 1))
            .copied();
        let params = format!(
            r#"{{"progressToken":{},"progress":1}}"#,
            id.unwrap_or(1_000_000)
        );
        self.child_line(&notification("notifications/progress", &params));
    }

    fn child_says(&mut self, kind: u8) {
        if self.child.is_none() {
            return;
        }
        let text = match kind {
            0 => notification("notifications/tools/list_changed", "{}"),
            1 => notification("notifications/message", r#"{"level":"error","data":1}"#),
            2 => notification("notifications/resources/updated", r#"{"uri":"u0"}"#),
            3 => r#"{"jsonrpc":"2.0","id":5,"method":"ping"}"#.to_owned(),
            4 => r#"{"jsonrpc":"2.0","id":5,"method":"roots/list"}"#.to_owned(),
            5 => "a banner".to_owned(),
            6 => result("999999"),
            _ => notification("notifications/x", "{}"),
        };
        self.child_line(&text);
    }

    fn stall(&mut self, host: u8) {
        let Some(host) = self.pick(host) else { return };
        let model = self.hosts.get_mut(&host).expect("picked from them");
        model.is_stalled = !model.is_stalled;
        if !model.is_stalled {
            self.host_reads(host);
            // It has seen all that was out: what was cancelled and is not there does not come.
            if let Some(model) = self.hosts.get_mut(&host) {
                model
                    .owed
                    .retain(|_, owed| owed.in_batch || !owed.is_optional);
            }
        }
    }

    fn flood(&mut self) {
        if self.child.is_some() {
            let params = format!(r#"{{"x":"{}"}}"#, "x".repeat(POOL_BYTES / 8));
            for _ in 0..9 {
                self.child_line(&notification("notifications/x", &params));
                self.pump();
            }
        }
        let is_over = self.pool.used_bytes() > POOL_BYTES as u64;
        assert!(!is_over, "the pool is over its limit");
    }

    fn service(&mut self, kind: u8) {
        let service = match kind {
            0 => Service::Unavailable(unavailable("it is disabled")),
            1 => Service::Stopping,
            2 | 3 => Service::Backoff {
                next_attempt: self.now + Duration::from_secs(u64::from(kind) * 40),
                detail: unavailable("it exited"),
            },
            4 => Service::Holding(Hold::because(HoldCause::Restarting)),
            _ => Service::Serving,
        };
        self.mux.set_service(service, self.now);
    }

    fn pass(&mut self, seconds: u8) {
        self.now += Duration::from_secs(u64::from(seconds));
        self.mux.handle_timeout(self.now);
        let next = self.mux.poll_timeout();
        assert!(next.is_none_or(|next| next > self.now), "a timer stays due");
    }

    fn configure(&mut self, kind: u8) {
        let config = MuxConfig {
            max_calls: (kind & 1 == 0).then_some(1),
            request_timeout: (kind % 4 < 2).then_some(Duration::from_secs(50)),
            ..config()
        };
        self.mux.configure(config, self.now);
    }

    fn child_line(&mut self, text: &str) {
        self.mux
            .handle_child_line(self.generation, line(text), self.now);
    }

    /// Lets every host read all it has and does what the actions say.
    fn pump(&mut self) {
        while let Some(action) = self.mux.poll_action() {
            match action {
                MuxAction::HostReady(host) if self.reads(host) => self.host_reads(host),
                MuxAction::DropHost(host, _) => {
                    self.hosts.remove(&host);
                }
                MuxAction::CloseHost(host, _) => {
                    self.host_reads(host);
                    let model = self.hosts.remove(&host).expect("it was not gone");
                    let is_owed = model.owed.values().any(|owed| !owed.is_optional);
                    assert!(!is_owed, "closed with answers due: {model:?}");
                    self.mux.handle_host_gone(host, self.now);
                }
                _ => {}
            }
        }
    }

    fn reads(&self, host: HostKey) -> bool {
        self.hosts.get(&host).is_some_and(|model| !model.is_stalled)
    }

    fn host_reads(&mut self, host: HostKey) {
        while let Some(next) = self.mux.poll_host_frame(host) {
            self.mux.host_frame_written(host, next.frame.len());
            let frame = text(&next.frame.to_vec());
            if frame.starts_with('[') {
                let answers: Vec<Value> = serde_json::from_str(&frame).expect("an array");
                for answer in answers {
                    self.note_host_frame(host, &answer.to_string());
                }
            } else {
                self.note_host_frame(host, &frame);
            }
        }
    }

    fn note_host_frame(&mut self, host: HostKey, frame: &str) {
        let model = self
            .hosts
            .get_mut(&host)
            .expect("nothing comes for a host that is gone");
        let Some(id) = number_after(frame, "{\"jsonrpc\":\"2.0\",\"id\":") else {
            assert!(
                model.is_open,
                "{frame} came before `initialize` was answered"
            );
            if let Some(token) = number_after(frame, "\"progressToken\":") {
                let mut owed = model.owed.values();
                assert!(
                    owed.any(|owed| owed.tag == token),
                    "progress of an ended request"
                );
            }
            return;
        };
        let id = u8::try_from(id).expect("ids as they were sent");
        if frame.contains("is open already") {
            let at = model
                .doubled
                .iter()
                .position(|one| *one == id)
                .expect("an id was doubled");
            model.doubled.remove(at);
            return;
        }
        let owed = model
            .owed
            .remove(&id)
            .unwrap_or_else(|| panic!("{frame} was not owed"));
        if let Some(tag) = number_after(frame, "\"tag\":") {
            // A list may be told from memory while no child can be asked.
            let is_recalled = frame.contains("\"tools\":") && self.listed.contains(&tag);
            assert!(
                tag == owed.tag || is_recalled,
                "{frame} answers another request than {owed:?}"
            );
        }
        if frame.contains("\"protocolVersion\":") {
            assert!(owed.is_initialize);
            model.is_open = true;
            model.has_batches = frame.contains("2025-03-26");
        }
    }

    /// Ends everything: whatever is owed comes, and nothing stays behind.
    fn finish(mut self) {
        self.crash();
        self.mux.set_service(
            Service::Unavailable(unavailable("it is disabled")),
            self.now,
        );
        self.pump();
        for host in self.hosts.keys().copied().collect::<Vec<_>>() {
            self.host_reads(host);
        }
        assert_eq!(
            self.pool.used_bytes(),
            0,
            "bytes are held for hosts that have all"
        );
        for (host, model) in &self.hosts {
            let is_owed = model.owed.values().any(|owed| !owed.is_optional);
            assert!(
                !is_owed && model.doubled.is_empty(),
                "host {host} waits for ever: {model:?}"
            );
        }
        for host in std::mem::take(&mut self.hosts).into_keys() {
            self.mux.handle_host_gone(host, self.now);
        }
        assert_eq!(self.mux.requests.len(), 0, "requests are left");
        assert!(self.mux.queue.is_empty(), "something waits in the queue");
        assert_eq!(self.mux.subscriptions.len(), 0, "subscriptions are left");
        assert_eq!(self.pool.used_bytes(), 0, "bytes are held");
        assert_eq!(self.mux.poll_timeout(), None);
    }
}

/// A request with this id whose tag is in its parameters and is its progress token.
fn request_text(id: u8, kind: u8, tag: u64) -> String {
    let (method, params) = match kind {
        0 => ("resources/subscribe", r#""uri":"u0""#),
        1 => ("resources/unsubscribe", r#""uri":"u0""#),
        2 => ("logging/setLevel", r#""level":"error""#),
        3 => ("logging/setLevel", r#""level":"debug""#),
        4 => ("tools/list", r#""x":1"#),
        5 => ("completion/complete", r#""x":1"#),
        _ => ("tools/call", r#""name":"t""#),
    };
    let params = format!(r#"{{{params},"tag":{tag},"_meta":{{"progressToken":{tag}}}}}"#);
    super::request(&id.to_string(), method, &params)
}

/// The number that stands behind the first `mark`.
fn number_after(text: &str, mark: &str) -> Option<u64> {
    let (_, rest) = text.split_once(mark)?;
    let end = rest
        .find(|byte: char| !byte.is_ascii_digit())
        .unwrap_or(rest.len());
    rest[..end].parse().ok()
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 10_000,
        // A failure prints its history; tests leave no files behind.
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_history_keeps_the_promises_of_the_room(serves in any::<bool>(), steps in steps()) {
        let mut model = Model::new();
        for step in prelude(serves).iter().chain(&steps) {
            model.step(step);
        }
        model.finish();
    }
}
