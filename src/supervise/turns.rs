//! Whose turn it is to start: one for all servers of a daemon.
//!
//! Decides which of the starts that wait may spawn now: at most [`PLACES`] at once, equal cold
//! launchers one after the other, those that a host or a person waits for before those that nobody
//! does. A start holds its place until its server is ready or the attempt is over; one that says
//! nothing for [`SILENCE`] gives it up, since a download that hangs must not hold up the others.
//! Never starts or ends anything itself.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::time::Moment;

/// Starts that may be under way at once: cold launchers swamp small machines.
pub const PLACES: usize = 4;
/// A start that has printed nothing for so long does not hold others back any more.
pub const SILENCE: Duration = Duration::from_secs(20);
/// A start that has waited for so long goes with those that somebody waits for, in the order of
/// their arrival, so that none waits for ever.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// One attempt to start. Grows with each, so that it tells the order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TurnId(pub u64);

/// What has to be known of a start to find its turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Starter {
    /// The program that its command means; two are equal if this is.
    pub launcher: Arc<str>,
    /// No success is known of this configuration: a launcher may have to fetch what it runs.
    pub is_cold: bool,
    /// A host or a person waits for it.
    pub is_awaited: bool,
}

/// The starts that wait and those that are under way.
#[derive(Debug, Default)]
pub struct Turns {
    waiting: BTreeMap<TurnId, Waiting>,
    /// Those that hold a place.
    holding: BTreeMap<TurnId, Holding>,
    granted: VecDeque<TurnId>,
}

#[derive(Debug)]
struct Waiting {
    starter: Starter,
    since: Moment,
}

#[derive(Debug)]
struct Holding {
    /// Present while it is cold: nobody else may start this launcher cold.
    cold_launcher: Option<Arc<str>>,
    heard_at: Moment,
}

impl Turns {
    /// A server is to be started.
    pub fn handle_asked(&mut self, id: TurnId, starter: Starter, now: Moment) {
        let waiting = Waiting {
            starter,
            since: now,
        };
        self.waiting.insert(id, waiting);
        self.grant(now);
    }

    /// Somebody waits for this start now.
    pub fn handle_awaited(&mut self, id: TurnId) {
        if let Some(waiting) = self.waiting.get_mut(&id) {
            waiting.starter.is_awaited = true;
        }
    }

    /// It has printed something.
    pub fn handle_output(&mut self, id: TurnId, now: Moment) {
        self.grant(now);
        if let Some(holding) = self.holding.get_mut(&id) {
            holding.heard_at = now;
        }
    }

    /// It is ready, has failed or is not wanted any more.
    pub fn handle_over(&mut self, id: TurnId, now: Moment) {
        self.waiting.remove(&id);
        self.holding.remove(&id);
        self.granted.retain(|granted| *granted != id);
        self.grant(now);
    }

    /// Lets those go whose silence frees a place.
    pub fn handle_timeout(&mut self, now: Moment) {
        self.grant(now);
    }

    /// When [`Self::handle_timeout`] has something to do.
    pub fn poll_timeout(&self) -> Option<Moment> {
        let heard_at = self.holding.values().map(|holding| holding.heard_at);
        let first = heard_at.min().filter(|_| !self.waiting.is_empty())?;
        Some(first + SILENCE)
    }

    /// The next start that may spawn.
    pub fn poll_granted(&mut self) -> Option<TurnId> {
        self.granted.pop_front()
    }

    fn grant(&mut self, now: Moment) {
        // Silence counts for good: a start that speaks up again takes no place from anybody.
        self.holding
            .retain(|_, holding| now.since(holding.heard_at) < SILENCE);
        while self.holding.len() < PLACES
            && let Some(id) = self.next(now)
            && let Some(waiting) = self.waiting.remove(&id)
        {
            let Starter {
                launcher, is_cold, ..
            } = waiting.starter;
            let holding = Holding {
                cold_launcher: is_cold.then_some(launcher),
                heard_at: now,
            };
            self.holding.insert(id, holding);
            self.granted.push_back(id);
        }
    }

    fn next(&self, now: Moment) -> Option<TurnId> {
        let is_urgent =
            |waiting: &Waiting| waiting.starter.is_awaited || now.since(waiting.since) >= PATIENCE;
        let free = self
            .waiting
            .iter()
            .filter(|(_, waiting)| !self.is_held_back(&waiting.starter));
        let first = free.min_by_key(|(id, waiting)| (!is_urgent(waiting), **id));
        first.map(|(id, _)| *id)
    }

    fn is_held_back(&self, starter: &Starter) -> bool {
        let is_same = |holding: &Holding| holding.cold_launcher.as_ref() == Some(&starter.launcher);
        starter.is_cold && self.holding.values().any(is_same)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn starter(launcher: &str, is_cold: bool, is_awaited: bool) -> Starter {
        Starter {
            launcher: Arc::from(launcher),
            is_cold,
            is_awaited,
        }
    }

    fn at(seconds: u64) -> Moment {
        Moment::ZERO + Duration::from_secs(seconds)
    }

    fn granted(turns: &mut Turns) -> Vec<u64> {
        std::iter::from_fn(|| turns.poll_granted())
            .map(|id| id.0)
            .collect()
    }

    /// Turns with these starts asked for at once, numbered from 0.
    fn asked(starters: &[Starter]) -> Turns {
        let mut turns = Turns::default();
        for (id, starter) in (0..).zip(starters) {
            turns.handle_asked(TurnId(id), starter.clone(), at(0));
        }
        turns
    }

    #[test]
    fn four_start_at_once_and_the_others_follow_in_order() {
        let warm: Vec<Starter> = (0..6).map(|_| starter("npx", false, false)).collect();
        let mut turns = asked(&warm);
        assert_eq!(granted(&mut turns), [0, 1, 2, 3]);
        turns.handle_over(TurnId(2), at(1));
        assert_eq!(granted(&mut turns), [4]);
        turns.handle_over(TurnId(0), at(1));
        assert_eq!(granted(&mut turns), [5]);
    }

    #[test]
    fn equal_launchers_follow_each_other_while_cold() {
        let mut turns = asked(&[
            starter("npx", true, false),
            starter("npx", true, false),
            starter("uvx", true, false),
            starter("npx", false, false),
        ]);
        assert_eq!(granted(&mut turns), [0, 2, 3]);
        turns.handle_over(TurnId(0), at(1));
        assert_eq!(granted(&mut turns), [1]);
    }

    #[test]
    fn those_that_somebody_waits_for_go_first() {
        let mut all: Vec<Starter> = (0..6).map(|_| starter("x", false, false)).collect();
        all.push(starter("x", false, true));
        let mut turns = asked(&all);
        assert_eq!(granted(&mut turns), [0, 1, 2, 3]);
        turns.handle_awaited(TurnId(5));
        for (ended, next) in [(0, 5), (1, 6), (2, 4)] {
            turns.handle_over(TurnId(ended), at(1));
            assert_eq!(granted(&mut turns), [next]);
        }
    }

    #[test]
    fn a_long_wait_is_as_good_as_somebody_who_waits() {
        let mut turns = asked(&vec![starter("x", false, false); 5]);
        assert_eq!(granted(&mut turns), [0, 1, 2, 3]);
        for second in (0..=60).step_by(10) {
            for id in 0..4 {
                turns.handle_output(TurnId(id), at(second));
            }
        }
        turns.handle_asked(TurnId(9), starter("x", false, true), at(60));
        turns.handle_over(TurnId(0), at(60));
        assert_eq!(granted(&mut turns), [4]);
    }

    #[test]
    fn silence_frees_the_place_and_the_launcher_for_good() {
        let mut turns = asked(&[starter("npx", true, false), starter("npx", true, false)]);
        assert_eq!(granted(&mut turns), [0]);
        turns.handle_output(TurnId(0), at(15));
        assert_eq!(turns.poll_timeout(), Some(at(35)));
        turns.handle_timeout(at(34));
        assert!(granted(&mut turns).is_empty());
        turns.handle_timeout(at(35));
        assert_eq!(granted(&mut turns), [1]);
        turns.handle_output(TurnId(0), at(36));
        assert_eq!(turns.holding.len(), 1);
    }

    #[test]
    fn a_start_that_is_not_wanted_any_more_is_not_granted() {
        let mut turns = asked(&vec![starter("x", true, false); 2]);
        turns.handle_over(TurnId(1), at(0));
        turns.handle_over(TurnId(0), at(0));
        assert!(granted(&mut turns).is_empty());
        assert_eq!(turns.poll_timeout(), None);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Ask(u8, bool, bool),
        Await(usize),
        Output(usize),
        Over(usize),
        Wait(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0..3u8, any::<bool>(), any::<bool>()).prop_map(|(l, c, a)| Step::Ask(l, c, a)),
            1 => (0..20usize).prop_map(Step::Await),
            2 => (0..20usize).prop_map(Step::Output),
            3 => (0..20usize).prop_map(Step::Over),
            2 => (0..30u64).prop_map(Step::Wait),
        ]
    }

    /// The places held, as somebody sees it who knows only what was said and granted.
    #[derive(Default)]
    struct Watcher {
        asked: BTreeMap<u64, Starter>,
        holding: BTreeMap<u64, Moment>,
        done: BTreeSet<u64>,
    }

    impl Watcher {
        fn look(&mut self, turns: &mut Turns, now: Moment) {
            self.holding.retain(|_, heard| now.since(*heard) < SILENCE);
            for id in granted(turns) {
                assert!(!self.done.contains(&id), "{id} is over");
                self.holding.insert(id, now);
                assert!(self.done.insert(id), "granted twice");
            }
            assert!(self.holding.len() <= PLACES);
            let cold: Vec<&Arc<str>> = self
                .holding
                .keys()
                .map(|id| &self.asked[id])
                .filter(|starter| starter.is_cold)
                .map(|starter| &starter.launcher)
                .collect();
            let distinct: BTreeSet<_> = cold.iter().collect();
            assert_eq!(distinct.len(), cold.len(), "equal cold launchers at once");
            let may_go =
                |starter: &Starter| !(starter.is_cold && cold.contains(&&starter.launcher));
            let idle = self
                .asked
                .iter()
                .filter(|(id, starter)| !self.done.contains(id) && may_go(starter))
                .count();
            assert!(idle == 0 || self.holding.len() == PLACES, "a free place");
        }
    }

    proptest! {
        /// Never more than four, never two equal cold launchers, no place idle while somebody could
        /// have it, and in the end everybody has had a turn.
        #[test]
        fn places_are_few_and_nobody_starves(steps in prop::collection::vec(step(), 0..120)) {
            let (mut turns, mut watcher, mut now) = (Turns::default(), Watcher::default(), at(0));
            let mut next = 0;
            let pick = |watcher: &Watcher, at: usize| {
                let asked: Vec<u64> = watcher.asked.keys().copied().collect();
                (!asked.is_empty()).then(|| asked[at % asked.len()])
            };
            for step in steps {
                match step {
                    Step::Ask(launcher, cold, awaited) => {
                        let starter = starter(&launcher.to_string(), cold, awaited);
                        watcher.asked.insert(next, starter.clone());
                        turns.handle_asked(TurnId(next), starter, now);
                        next += 1;
                    }
                    Step::Await(at) => if let Some(id) = pick(&watcher, at) {
                        turns.handle_awaited(TurnId(id));
                    },
                    Step::Output(at) => if let Some(id) = pick(&watcher, at) {
                        turns.handle_output(TurnId(id), now);
                        if let Some(heard) = watcher.holding.get_mut(&id)
                            && now.since(*heard) < SILENCE
                        {
                            *heard = now;
                        }
                    },
                    Step::Over(at) => if let Some(id) = pick(&watcher, at) {
                        watcher.holding.remove(&id);
                        watcher.done.insert(id);
                        turns.handle_over(TurnId(id), now);
                    },
                    Step::Wait(seconds) => {
                        now += Duration::from_secs(seconds);
                        turns.handle_timeout(now);
                    }
                }
                watcher.look(&mut turns, now);
            }
            // Whoever holds a place and says nothing gives it up, so that all have their turn.
            for _ in 0..next {
                now += SILENCE;
                turns.handle_timeout(now);
                watcher.look(&mut turns, now);
            }
            prop_assert!(watcher.asked.keys().all(|id| watcher.done.contains(id)));
            prop_assert_eq!(turns.poll_timeout(), None);
        }
    }
}
