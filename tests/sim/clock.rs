//! The virtual clock and what is to happen: it jumps from one event to the next.
//!
//! Events of one moment come in an order that the seed decides. With a trace, all that is told is
//! kept, so that a failing run can be read; without one nothing is even formatted.

use std::cell::RefCell;
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::rc::Rc;
use std::time::Duration;

use mcpd::ids::Generation;
use mcpd::supervise::ExitStatus;
use mcpd::supervise::turns::TurnId;
use mcpd::time::Moment;

use crate::process::Deed;
use crate::random::Random;
use crate::registry::Save;

/// Something that happens at a moment. Numbers are places in the lists of the simulation.
#[derive(Clone, Debug)]
pub(crate) enum Tick {
    /// A worker wakes, for its inbox or for its deadline.
    Wake(usize),
    /// The launcher answers.
    Launched(usize, Generation),
    /// The program is executed, or cannot be.
    Executed(usize, Generation),
    /// A child reads from its stdin.
    ChildReads(usize, Generation),
    ChildDoes(usize, Generation, Deed),
    /// The end of a leader is seen by the daemon.
    ExitSeen(usize, Generation, ExitStatus),
    /// The daemon reads from a child's stdout.
    StdoutRead(usize, Generation),
    /// Somebody has looked who is left of a run.
    Looked(usize, Generation),
    StopCommandEnded(usize, Generation),
    HostActs(usize),
    /// A host reads what it was sent.
    HostReads(usize),
    /// The daemon reads from a host.
    HostRead(usize),
    /// A person does something.
    Operator,
    /// The catalogue was looked at for a worker.
    Recalled(usize, mcpd::config::fingerprint::Fingerprint),
    /// A worker knows what it has to say to ask for its turn to start.
    AskTurn(usize, TurnId),
    /// Somebody has said something about starts, or it is time to look at their order.
    Turns,
    /// A further step of a save.
    Save(Save),
    /// It may be time to look at the files.
    Lookout,
    /// A host holds too much of the pool.
    Evict(mcpd::ids::HostKey),
    /// Faults end: what is broken works again, who is silent speaks.
    Heal,
    /// All is to be quiet now.
    Quiet,
    /// The daemon is told to end.
    Terminate,
}

#[derive(Debug)]
struct Due {
    at: Moment,
    order: (u64, u64),
    tick: Tick,
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> Ordering {
        // The heap gives the greatest first.
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Due {}

/// What was told of a run.
pub(crate) type Trace = Rc<RefCell<Vec<String>>>;

/// The time, what is due, and the chance that decides.
#[derive(Debug)]
pub(crate) struct Clock {
    pub(crate) now: Moment,
    pub(crate) random: Random,
    due: BinaryHeap<Due>,
    count: u64,
    trace: Option<Trace>,
}

impl Clock {
    pub(crate) fn new(seed: u64, trace: Option<Trace>) -> Self {
        Self {
            now: Moment::ZERO,
            random: Random::new(seed),
            due: BinaryHeap::new(),
            count: 0,
            trace,
        }
    }

    /// Has `tick` happen after `delay`.
    pub(crate) fn after(&mut self, delay: Duration, tick: Tick) {
        self.at(self.now + delay, tick);
    }

    /// Has `tick` happen at `moment`, or now if that has passed.
    pub(crate) fn at(&mut self, moment: Moment, tick: Tick) {
        self.count += 1;
        let order = (self.random.next(), self.count);
        let at = moment.max(self.now);
        self.due.push(Due { at, order, tick });
    }

    /// Goes on to the next event. Absent when nothing will ever happen again.
    pub(crate) fn advance(&mut self) -> Option<Tick> {
        let next = self.due.pop()?;
        self.now = next.at;
        Some(next.tick)
    }

    /// Tells what happens, if anybody listens.
    pub(crate) fn tell(&self, who: &str, what: impl FnOnce() -> String) {
        if let Some(trace) = &self.trace {
            let at = self.now.since_origin().as_secs_f64();
            trace
                .borrow_mut()
                .push(format!("{at:>10.4}  {who:<8} {}", what()));
        }
    }
}
