//! A multiplexer with hosts and a child that are lists of lines, for tests of whole exchanges.

mod batches;
mod broadcasts;
mod calls;
mod ends;
mod faults;
mod handshakes;
mod idle;
mod interleavings;
mod journals;
mod judged;
mod limits;
mod modern_children;
mod modern_hosts;
mod questions;
mod recall;
mod restarts;
mod sequences;
mod waiting;
mod watchdog;

#[path = "../../../tests/common/judge.rs"]
mod judge;

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use super::{
    CallEnd, ChildGone, Hold, HoldCause, HostInfo, Mux, MuxAction, MuxConfig, Pool, Service,
    Unavailable,
};
use crate::ids::{Generation, HostKey};
use crate::protocol::{EraChoice, Line, LineReader};
use crate::time::Moment;

use judge::{Judge, Peer, Tainted};

pub(super) const A: HostKey = HostKey(1);
pub(super) const B: HostKey = HostKey(2);
pub(super) const C: HostKey = HostKey(3);

/// Bytes of a line that a bench takes, so that tests of the limit need no large ones.
const LINE_LIMIT_BYTES: usize = 4096;

/// A child's answer to our `initialize`, with every capability.
const WELCOME: &str = r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"prompts":{},"resources":{"subscribe":true},"logging":{}},"serverInfo":{"name":"fake","version":"1"}}}"#;

/// The multiplexer with everything that came out of it.
pub(super) struct Bench {
    pub(super) mux: Mux,
    pub(super) pool: Pool,
    pub(super) now: Moment,
    generation: Generation,
    /// Lines for each host that were not looked at yet.
    hosts: BTreeMap<HostKey, Vec<String>>,
    /// Lines for the child that were not looked at yet.
    child: Vec<String>,
    /// Actions that were not looked at yet, those left out that only say that frames wait.
    pub(super) actions: Vec<MuxAction>,
    /// Calls that have ended.
    pub(super) ended: Vec<CallEnd>,
    child_reader: LineReader,
    judges: Judges,
}

/// What was said on each connection, held against the schemas of its version.
#[derive(Default)]
struct Judges {
    hosts: BTreeMap<HostKey, Judge>,
    child: Option<Judge>,
    tainted: Tainted,
}

impl Judges {
    fn host(&mut self, host: HostKey) -> &mut Judge {
        let tainted = self.tainted.clone();
        let new = || Judge::new(Peer::Host, tainted);
        self.hosts.entry(host).or_insert_with(new)
    }

    fn child(&mut self) -> &mut Judge {
        let tainted = self.tainted.clone();
        let new = || Judge::new(Peer::Child, tainted);
        self.child.get_or_insert_with(new)
    }
}

/// The line that `text` is.
pub(super) fn line(text: impl AsRef<[u8]>) -> Line {
    let mut reader = LineReader::new(LINE_LIMIT_BYTES);
    reader.feed(text.as_ref());
    reader.feed(b"\n");
    reader.poll().expect("a line that is not blank")
}

/// Settings for a child that is known to be legacy.
pub(super) fn config() -> MuxConfig {
    MuxConfig {
        protocol: EraChoice::Legacy,
        ..MuxConfig::of("srv")
    }
}

impl Bench {
    /// A multiplexer without hosts and child.
    pub(super) fn new(config: MuxConfig) -> Self {
        Self::with_pool(config, Pool::new(512 * 1024 * 1024))
    }

    pub(super) fn with_pool(config: MuxConfig, pool: Pool) -> Self {
        Self {
            mux: Mux::new(config, pool.clone()),
            child_reader: LineReader::new(LINE_LIMIT_BYTES),
            pool,
            now: Moment::ZERO + Duration::from_secs(1_000),
            generation: Generation::default(),
            hosts: BTreeMap::new(),
            child: Vec::new(),
            actions: Vec::new(),
            judges: Judges::default(),
            ended: Vec::new(),
        }
    }

    /// One that serves: a child is open and these hosts have had their `initialize` answered.
    pub(super) fn serving(config: MuxConfig, hosts: &[HostKey]) -> Self {
        let mut bench = Self::new(config);
        bench.start();
        bench.open();
        for host in hosts {
            bench.join(*host, "2025-11-25");
        }
        bench.actions.clear();
        bench
    }

    pub(super) fn attach(&mut self, host: HostKey) {
        self.mux
            .attach(host, HostInfo::default())
            .expect("there is room");
        self.hosts.insert(host, Vec::new());
    }

    /// Attaches a host and has its `initialize` answered.
    pub(super) fn join(&mut self, host: HostKey, version: &str) {
        self.attach(host);
        self.host(host, &initialize("0", version));
        let answer = self.take_host(host);
        assert!(
            answer.len() == 1 && answer[0].contains("\"result\""),
            "{answer:?}"
        );
    }

    /// Starts a child; its handshake is written.
    pub(super) fn start(&mut self) {
        self.generation = self.generation.next();
        self.judges.child = None;
        self.mux.set_service(Service::Serving, self.now);
        self.mux
            .handle_child_started(self.generation, None, self.now);
        self.pump();
    }

    /// The child answers `initialize`; looks at what it gets of the handshake.
    pub(super) fn open(&mut self) {
        let asked = self.take_child();
        assert!(
            asked.len() == 1 && asked[0].contains("\"initialize\""),
            "{asked:?}"
        );
        self.child(WELCOME);
        assert!(!self.child.is_empty());
        assert!(self.child.remove(0).contains("notifications/initialized"));
    }

    /// The child is gone.
    pub(super) fn crash(&mut self) {
        let detail = serde_json::json!({ "signal": "SIGKILL" });
        let gone = ChildGone {
            reason: "was killed by SIGKILL".to_owned(),
            detail,
        };
        self.mux.handle_child_gone(self.generation, &gone, self.now);
        self.mux.set_service(
            Service::Holding(Hold::because(HoldCause::Starting)),
            self.now,
        );
        self.pump();
        self.child.clear();
    }

    /// A host sends a line.
    pub(super) fn host(&mut self, host: HostKey, text: &str) {
        self.judges.host(host).heard(text.as_bytes());
        self.mux.handle_host_line(host, line(text), self.now);
        self.pump();
    }

    /// The child writes a line.
    pub(super) fn child(&mut self, text: impl AsRef<[u8]>) {
        self.judges.child().heard(text.as_ref());
        // One reader for all of its lines: what one line is may depend on the one before it.
        self.child_reader.feed(text.as_ref());
        self.child_reader.feed(b"\n");
        let line = self.child_reader.poll().expect("a line that is not blank");
        self.mux.handle_child_line(self.generation, line, self.now);
        self.pump();
    }

    pub(super) fn leave(&mut self, host: HostKey) {
        self.mux.handle_host_gone(host, self.now);
        self.pump();
    }

    pub(super) fn set_service(&mut self, service: Service) {
        self.mux.set_service(service, self.now);
        self.pump();
    }

    /// Lets time pass, with every deadline on the way.
    pub(super) fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        while let Some(next) = self.mux.poll_timeout().filter(|next| *next <= until) {
            self.now = self.now.max(next);
            self.mux.handle_timeout(self.now);
            self.pump();
            assert!(
                self.mux.poll_timeout().is_none_or(|next| next > self.now),
                "a timer stays due"
            );
        }
        self.now = until;
    }

    /// Does what the shell would do.
    pub(super) fn pump(&mut self) {
        while let Some(action) = self.mux.poll_action() {
            match action {
                MuxAction::HostReady(host) => self.pump_host(host),
                MuxAction::ChildReady => {
                    while let Some(frame) = self.mux.poll_child_frame(self.now) {
                        let frame = text(&frame.to_vec());
                        judged(self.judges.child().wrote(frame.as_bytes()));
                        self.child.push(frame);
                    }
                }
                MuxAction::CallEnded(end) => self.ended.push(*end),
                other => self.actions.push(other),
            }
        }
        assert_eq!(
            self.mux
                .poll_host_frame(HostKey(u64::MAX))
                .map(|one| one.own_write),
            None
        );
    }

    fn pump_host(&mut self, host: HostKey) {
        while let Some(next) = self.mux.poll_host_frame(host) {
            self.mux.host_frame_written(host, next.frame.len());
            let frame = text(&next.frame.to_vec());
            judged(self.judges.host(host).wrote(frame.as_bytes()));
            self.hosts.entry(host).or_default().push(frame);
        }
    }

    /// What a host has got since the last look.
    pub(super) fn take_host(&mut self, host: HostKey) -> Vec<String> {
        std::mem::take(self.hosts.entry(host).or_default())
    }

    /// What the child has got since the last look.
    pub(super) fn take_child(&mut self) -> Vec<String> {
        std::mem::take(&mut self.child)
    }

    #[track_caller]
    pub(super) fn expect_host(&mut self, host: HostKey, lines: &[&str]) {
        assert_eq!(self.take_host(host), lines, "what host {host} got");
    }

    #[track_caller]
    pub(super) fn expect_child(&mut self, lines: &[&str]) {
        assert_eq!(self.take_child(), lines, "what the child got");
    }

    /// The one line that a host got must be an error with this code, for this raw id.
    #[track_caller]
    pub(super) fn expect_error(&mut self, host: HostKey, id: &str, code: i64) -> Value {
        let lines = self.take_host(host);
        assert_eq!(lines.len(), 1, "{lines:?}");
        let id = format!("\"id\":{id},");
        assert!(lines[0].contains(&id), "{} has {id}", lines[0]);
        let answer: Value = serde_json::from_str(&lines[0]).expect("valid JSON");
        assert_eq!(answer["error"]["code"], code, "{}", lines[0]);
        answer["error"].clone()
    }

    /// Nothing is open, nothing is held.
    #[track_caller]
    pub(super) fn expect_quiet(&mut self) {
        assert_eq!(self.mux.requests.len(), 0);
        assert_eq!(self.mux.consults.len(), 0);
        assert!(self.mux.queue.is_empty());
        assert_eq!(self.mux.listens.len(), 0);
        assert_eq!((self.mux.rounds.len(), self.mux.questions.len()), (0, 0));
        assert_eq!(self.mux.turns.caller(), None);
        assert_eq!(self.pool.used_bytes(), 0);
        assert_eq!(self.mux.poll_timeout(), None);
    }
}

#[track_caller]
fn judged(verdict: Result<(), String>) {
    if let Err(why) = verdict {
        panic!("a message does not fit the schema of its version, {why}");
    }
}

fn text(frame: &[u8]) -> String {
    let line = frame.strip_suffix(b"\n").expect("a frame is a whole line");
    assert!(!line.contains(&b'\n'), "one frame is one line");
    String::from_utf8_lossy(line).into_owned()
}

pub(super) fn initialize(id: &str, version: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"initialize","params":{{"protocolVersion":"{version}","capabilities":{{}},"clientInfo":{{"name":"h","version":"1"}}}}}}"#
    )
}

/// A `tools/call` with this raw id.
pub(super) fn call(id: &str) -> String {
    request(id, "tools/call", r#"{"name":"t"}"#)
}

pub(super) fn request(id: &str, method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)
}

pub(super) fn notification(method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{params}}}"#)
}

/// A result for this raw id.
pub(super) fn result(id: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"n":{id}}}}}"#)
}

pub(super) fn unavailable(message: &str) -> Unavailable {
    Unavailable {
        message: message.to_owned(),
        detail: Value::Null,
    }
}
