//! When to look at the files again.
//!
//! What the kernel says of files are hints: something may have changed. It decides how long to
//! wait for more of them, so that a save that takes several steps is seen as one, and how often to
//! look where hints cannot be relied upon. What an edit means is found out by looking, from the
//! contents. While nothing happens and every folder is watched there is nothing to wait for.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use crate::time::{Moment, earliest};

/// So long nothing more must have happened.
const QUIET: Duration = Duration::from_millis(250);

/// So long a new file is given to be closed by whoever writes it. A file may also be put into its
/// place with its contents (link(2)), of which no close is ever heard.
const OPEN_QUIET: Duration = Duration::from_millis(700);

/// Later than so long after the first hint nobody looks, whatever still happens.
const LONGEST: Duration = Duration::from_secs(2);

/// Between two looks where nothing can be watched.
const POLL: Duration = Duration::from_secs(5);

/// Between two looks where not everything can be watched.
const RESCAN: Duration = Duration::from_secs(60);

/// New files that are waited for at once.
const OPEN_FILES_LIMIT: usize = 1_024;

/// What may have happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hint {
    /// Something is not as it was, or the kernel does not know what.
    Changed,
    /// A new file, of which the writer has not said yet that it is complete.
    Opened(PathBuf),
    /// A file that was written is complete.
    Closed(PathBuf),
}

/// How much of what matters is watched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Coverage {
    /// Everything: no hint, no change.
    #[default]
    Full,
    /// Some folders cannot be watched.
    Partial,
    /// The kernel watches nothing more for this user.
    None,
}

/// The times at which the files are looked at.
#[derive(Debug, Default)]
pub struct Lookout {
    /// The first and the last hint since the last look.
    hints: Option<(Moment, Moment)>,
    open: BTreeSet<PathBuf>,
    coverage: Coverage,
    last_look: Moment,
    /// Something that was seen is to be looked at again.
    again: Option<Moment>,
}

impl Lookout {
    pub fn handle_hint(&mut self, hint: Hint, now: Moment) {
        match hint {
            Hint::Changed => {}
            Hint::Opened(file) if self.open.len() < OPEN_FILES_LIMIT => {
                self.open.insert(file);
            }
            Hint::Opened(_) => {}
            Hint::Closed(file) => {
                self.open.remove(&file);
            }
        }
        let first = self.hints.map_or(now, |(first, _)| first);
        self.hints = Some((first, now));
    }

    /// The files were looked at; what was doubtful is to be seen again at `again`.
    pub fn handle_look(&mut self, coverage: Coverage, again: Option<Moment>, now: Moment) {
        self.coverage = coverage;
        self.again = again;
        self.last_look = now;
    }

    /// When to look, if at all.
    pub fn poll_timeout(&self) -> Option<Moment> {
        let every = |period: Duration| Some(self.last_look + period);
        let regular = match self.coverage {
            Coverage::Full => None,
            Coverage::Partial => every(RESCAN),
            Coverage::None => every(POLL),
        };
        // A hint says that more is coming: what was doubtful is looked at together with it.
        match self.hints {
            Some(_) => earliest(self.settled_at(), regular),
            None => earliest(self.again, regular),
        }
    }

    /// Whether it is time to look. Whoever is told so looks; hints from now on are for the next
    /// time.
    pub fn handle_timeout(&mut self, now: Moment) -> bool {
        let is_due = self.poll_timeout().is_some_and(|deadline| deadline <= now);
        if is_due {
            self.begin_look();
        }
        is_due
    }

    /// Whether something has happened that nobody has looked at yet.
    pub fn has_hints(&self) -> bool {
        self.hints.is_some()
    }

    /// Somebody looks anyway.
    pub fn begin_look(&mut self) {
        self.hints = None;
        self.again = None;
        self.open.clear();
    }

    fn settled_at(&self) -> Option<Moment> {
        let quiet = if self.open.is_empty() {
            QUIET
        } else {
            OPEN_QUIET
        };
        let (first, last) = self.hints?;
        Some((last + quiet).min(first + LONGEST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(ms: u64) -> Moment {
        Moment::from_origin(Duration::from_millis(ms))
    }

    fn file(name: &str) -> PathBuf {
        PathBuf::from(name)
    }

    /// The times of the looks that follow these hints, until nothing is to come.
    fn looks(hints: &[(u64, Hint)]) -> Vec<u64> {
        let mut lookout = Lookout::default();
        let mut hints = hints.iter().peekable();
        let mut looks = Vec::new();
        loop {
            let deadline = lookout.poll_timeout();
            let next = hints.peek().map(|(ms, _)| at(*ms));
            match (deadline, next) {
                (None, None) => return looks,
                (Some(deadline), next) if next.is_none_or(|next| deadline <= next) => {
                    assert!(lookout.handle_timeout(deadline));
                    lookout.handle_look(Coverage::Full, None, deadline);
                    let elapsed = deadline.since_origin().as_millis();
                    looks.push(u64::try_from(elapsed).unwrap());
                }
                (_, _) => {
                    let (ms, hint) = hints.next().unwrap();
                    assert!(!lookout.handle_timeout(at(ms - 1)));
                    lookout.handle_hint(hint.clone(), at(*ms));
                }
            }
        }
    }

    #[track_caller]
    fn check(hints: &[(u64, Hint)], expected: &[u64]) {
        assert_eq!(looks(hints), expected);
    }

    #[test]
    fn idle_is_idle() {
        assert_eq!(Lookout::default().poll_timeout(), None);
        check(&[], &[]);
    }

    #[test]
    fn a_save_in_several_steps_is_one() {
        let steps = [
            (100, Hint::Changed),
            (200, Hint::Changed),
            (430, Hint::Changed),
        ];
        check(&steps, &[680]);
    }

    #[test]
    fn whatever_still_happens_somebody_looks() {
        let steps: Vec<(u64, Hint)> = (1..30).map(|step| (step * 100, Hint::Changed)).collect();
        check(&steps, &[2_100, 3_150]);
    }

    #[test]
    fn a_new_file_is_given_the_time_to_be_written() {
        check(
            &[
                (100, Hint::Opened(file("a"))),
                (750, Hint::Closed(file("a"))),
            ],
            &[1_000],
        );
        check(&[(100, Hint::Opened(file("a")))], &[800]);
        let both = [
            (100, Hint::Opened(file("a"))),
            (200, Hint::Opened(file("b"))),
            (300, Hint::Closed(file("a"))),
            (950, Hint::Closed(file("b"))),
        ];
        check(&both, &[1_200]);
    }

    #[test]
    fn what_is_doubtful_is_looked_at_again() {
        let mut lookout = Lookout::default();
        lookout.handle_look(Coverage::Full, Some(at(700)), at(200));
        assert_eq!(lookout.poll_timeout(), Some(at(700)));
        lookout.handle_hint(Hint::Changed, at(600));
        assert_eq!(lookout.poll_timeout(), Some(at(850)));
        assert!(lookout.handle_timeout(at(850)));
        assert_eq!(lookout.poll_timeout(), None);
    }

    #[test]
    fn what_cannot_be_watched_is_looked_at_now_and_then() {
        let mut lookout = Lookout::default();
        for (coverage, next) in [
            (Coverage::Full, None),
            (Coverage::Partial, Some(at(60_100))),
            (Coverage::None, Some(at(5_100))),
        ] {
            lookout.handle_look(coverage, None, at(100));
            assert_eq!(lookout.poll_timeout(), next, "{coverage:?}");
        }
        lookout.handle_hint(Hint::Changed, at(200));
        assert_eq!(lookout.poll_timeout(), Some(at(450)));
    }

    fn hint() -> impl Strategy<Value = Hint> {
        prop_oneof![
            Just(Hint::Changed),
            "[ab]".prop_map(|name| Hint::Opened(file(&name))),
            "[ab]".prop_map(|name| Hint::Closed(file(&name))),
        ]
    }

    proptest! {
        /// Each hint is followed by a look, not before it was quiet for a while and never too late;
        /// after the last look there is nothing to wait for.
        #[test]
        fn every_hint_is_followed_by_one_look_in_time(
            steps in prop::collection::vec((1_u64..1_500, hint()), 1..60),
        ) {
            let mut now = 0;
            let hints: Vec<(u64, Hint)> = steps
                .into_iter()
                .map(|(pause, hint)| { now += pause; (now, hint) })
                .collect();
            let looks = looks(&hints);
            let (quiet, longest) = (250, 2_000);
            let mut from = 0;
            for look in &looks {
                let seen: Vec<u64> = hints
                    .iter()
                    .map(|(ms, _)| *ms)
                    .filter(|ms| (from..*look).contains(ms))
                    .collect();
                let (first, last) = (*seen.first().unwrap(), *seen.last().unwrap());
                prop_assert!(*look <= first + longest);
                prop_assert!(*look == first + longest || *look >= last + quiet);
                from = *look;
            }
            prop_assert!(hints.iter().all(|(ms, _)| *ms < from || looks.contains(&from)));
            prop_assert!(hints.last().unwrap().0 < from);
        }
    }
}
