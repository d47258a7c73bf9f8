//! What all workers share: the clock, the hosts, the pool, and who asked for what.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use mcpd::ids::{Generation, HostKey};
use mcpd::protocol::{Kind, Line};
use mcpd::session::Pool;
use mcpd::time::Moment;

use crate::clock::{Clock, Trace};
use crate::host::{Host, Presence};
use crate::ledger::{Asked, Meaning};
use crate::random::Random;
use crate::starts::TurnEvent;
use crate::temper::Temper;

#[derive(Debug)]
pub(crate) struct Scene {
    pub(crate) clock: Clock,
    pub(crate) temper: Temper,
    /// By the number of their keys.
    pub(crate) hosts: Vec<Host>,
    pub(crate) pool: Pool,
    pub(crate) last_tag: u64,
    /// Requests that some child was given.
    written: BTreeSet<u64>,
    /// Faults have ended.
    pub(crate) is_healed: bool,
    /// The daemon was told to end.
    pub(crate) terminated: Option<Moment>,
    /// Words about starts that were not heard yet.
    pub(crate) said: VecDeque<TurnEvent>,
    pub(crate) last_turn: u64,
    /// What is remembered of each server, as text on a disk.
    pub(crate) catalog: BTreeMap<String, Vec<u8>>,
    /// Hosts that were let go and that the registry has not heard of.
    pub(crate) let_go: Vec<HostKey>,
}

/// Where the host with this key is in the list.
pub(crate) fn place_of(key: HostKey) -> usize {
    usize::try_from(key.0).expect("few hosts") - 1
}

impl Scene {
    pub(crate) fn new(seed: u64, trace: Option<Trace>) -> Self {
        let temper = Temper::of(&mut Random::new(seed ^ 0x5eed));
        let clock = Clock::new(seed, trace);
        clock.tell("seed", || format!("{seed}: {temper:?}"));
        Self {
            pool: Pool::new(temper.pool_bytes),
            clock,
            temper,
            hosts: Vec::new(),
            last_tag: 0,
            written: BTreeSet::new(),
            is_healed: false,
            terminated: None,
            said: VecDeque::new(),
            last_turn: 0,
            catalog: BTreeMap::new(),
            let_go: Vec::new(),
        }
    }

    pub(crate) fn host(&mut self, key: HostKey) -> &mut Host {
        &mut self.hosts[place_of(key)]
    }

    pub(crate) fn pipe_bytes(&self) -> usize {
        usize::try_from(self.temper.pipe_bytes).expect("a pipe fits into memory")
    }

    /// By how much a worker wakes late this time.
    pub(crate) fn lateness(&mut self) -> Duration {
        let most = self.temper.lateness_ms;
        match most > 0 && self.clock.random.chance(10) {
            true => self.clock.random.ms(0, most),
            false => Duration::ZERO,
        }
    }

    /// The most by which two turns of a worker can be late.
    pub(crate) fn longest_lateness(&self) -> Duration {
        Duration::from_millis(2 * self.temper.lateness_ms + 100)
    }

    /// A line of a host is handed over: it must be the one that was sent, and is entered for what
    /// it means.
    pub(crate) fn hand_over(&mut self, key: HostKey, line: &Line, is_attached: bool) {
        let now = self.clock.now;
        let host = self.host(key);
        let is_gone = host.presence == Presence::Gone;
        let Some(sent) = host.sent.pop_front() else {
            assert!(is_gone, "host {key} has sent no such line: {line:?}");
            return host.ledger.lose_track();
        };
        let meaning = match (sent.meaning, line) {
            // Not every worker has the limit that the line is too long for.
            (Meaning::Fault(Some(id)), Line::Message(message))
                if message.kind() == Kind::Request =>
            {
                Meaning::Request(Asked {
                    id,
                    tag: 0,
                    method: "",
                    token: None,
                })
            }
            (meaning @ Meaning::Request(_), Line::Message(message)) => {
                let is_same = message.bytes() == sent.text.as_bytes();
                assert!(
                    is_same || is_gone,
                    "host {key}: {line:?} is not as it was sent"
                );
                meaning
            }
            (Meaning::Request(_), line) => {
                assert!(is_gone, "host {key} has sent a request and not {line:?}");
                return host.ledger.lose_track();
            }
            (meaning, _) => meaning,
        };
        if is_attached {
            host.ledger.enter(&meaning, now);
        }
    }

    /// A request is given to a child: once, and only if somebody waits for it.
    pub(crate) fn note_written(
        &mut self,
        name: &str,
        tag: u64,
        generation: Generation,
        shown: &str,
    ) {
        let is_first = self.written.insert(tag);
        assert!(is_first, "{name}: {shown} was given to a child before");
        let is_awaited = self
            .hosts
            .iter_mut()
            .any(|host| host.ledger.note_written(tag, generation));
        assert!(is_awaited, "{name}: nobody waits for {shown}");
    }

    /// The daemon has closed its end of a host.
    pub(crate) fn let_go(&mut self, key: HostKey) {
        let host = &mut self.hosts[place_of(key)];
        self.clock
            .tell(&format!("host {key}"), || "is let go".to_owned());
        host.reader = None;
        host.to_daemon.close_reader();
        host.to_host.writers = 0;
        host.fall_silent();
        self.let_go.push(key);
    }

    /// How hosts were answered, by code; 0 for results.
    pub(crate) fn answers(&self) -> BTreeMap<i64, u64> {
        let mut sum = BTreeMap::new();
        for (code, count) in self.hosts.iter().flat_map(|host| &host.ledger.answers) {
            *sum.entry(*code).or_default() += count;
        }
        sum
    }
}
