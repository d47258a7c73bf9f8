//! How long to wait before the next run, and when to give up.
//!
//! Decides delays from the count of unstable runs in a row and from a seed. Never looks at a
//! clock: the length of a run is told to it.

use std::time::Duration;

/// The longest jitter of a restart at once after a stable run.
pub const PROMPT_JITTER: Duration = Duration::from_millis(100);
/// The delay after the first unstable run.
pub const FIRST_DELAY: Duration = Duration::from_secs(1);
/// No delay grows past this, before jitter.
pub const LONGEST_DELAY: Duration = Duration::from_secs(60);
/// Jitter of a delay, in per cent either way, since a lost network fells all servers together.
pub const JITTER_PERCENT: u64 = 20;

/// What follows from the end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    RetryAfter(Duration),
    /// As many unstable runs in a row as `start_limit` allows.
    GiveUp,
}

/// Counts unstable runs in a row.
#[derive(Clone, Debug)]
pub struct Backoff {
    unstable: u32,
    random: u64,
}

impl Backoff {
    /// `seed` decides the jitter, nothing else; give each instance another.
    pub const fn new(seed: u64) -> Self {
        Self {
            unstable: 0,
            random: seed,
        }
    }

    /// Unstable runs in a row so far.
    pub const fn unstable_runs(&self) -> u32 {
        self.unstable
    }

    /// Takes over the unstable runs that somebody else has counted.
    pub const fn count(&mut self, unstable: u32) {
        self.unstable = unstable;
    }

    /// Forgets the unstable runs: a person or an edit asked for a fresh start.
    pub const fn reset(&mut self) {
        self.unstable = 0;
    }

    /// A run ended after it had been ready for long enough: restart at once, count anew.
    pub fn stable_run_ended(&mut self) -> Verdict {
        self.unstable = 0;
        let jitter_us = self.next_below(duration_us(PROMPT_JITTER) + 1);
        Verdict::RetryAfter(Duration::from_micros(jitter_us))
    }

    /// A run ended too early. `start_limit` 0 never gives up.
    pub fn unstable_run_ended(&mut self, start_limit: u32) -> Verdict {
        self.unstable = self.unstable.saturating_add(1);
        if start_limit != 0 && self.unstable >= start_limit {
            return Verdict::GiveUp;
        }
        Verdict::RetryAfter(self.delay())
    }

    fn delay(&mut self) -> Duration {
        let doublings = self.unstable.saturating_sub(1).min(16);
        let plain_us = duration_us(
            FIRST_DELAY
                .saturating_mul(1 << doublings)
                .min(LONGEST_DELAY),
        );
        let spread_us = plain_us * JITTER_PERCENT / 100;
        Duration::from_micros(plain_us - spread_us + self.next_below(2 * spread_us + 1))
    }

    /// SplitMix64 (Steele, Lea, Flood 2014): jitter needs no more than this.
    fn next_below(&mut self, bound: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound.max(1)
    }
}

/// Whole microseconds; every constant here is far below the limit.
fn duration_us(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The nominal delays in seconds after 1, 2, 3… unstable runs, each within its jitter.
    fn check(seed: u64, start_limit: u32, nominal_s: &[u64], gives_up: bool) {
        let mut backoff = Backoff::new(seed);
        for nominal in nominal_s {
            let Verdict::RetryAfter(delay) = backoff.unstable_run_ended(start_limit) else {
                panic!("gave up early");
            };
            let nominal = Duration::from_secs(*nominal);
            assert!(delay >= nominal * 80 / 100, "{delay:?} for {nominal:?}");
            assert!(delay <= nominal * 120 / 100, "{delay:?} for {nominal:?}");
        }
        if gives_up {
            assert_eq!(backoff.unstable_run_ended(start_limit), Verdict::GiveUp);
        }
    }

    #[test]
    fn delays_double_to_a_minute_and_end_at_the_limit() {
        for seed in 0..200 {
            check(seed, 10, &[1, 2, 4, 8, 16, 32, 60, 60, 60], true);
        }
    }

    #[test]
    fn no_limit_never_gives_up() {
        check(
            7,
            0,
            &[1, 2, 4, 8, 16, 32, 60, 60, 60, 60, 60, 60, 60, 60],
            false,
        );
    }

    #[test]
    fn a_limit_of_one_gives_up_at_once() {
        check(7, 1, &[], true);
    }

    #[test]
    fn a_stable_run_restarts_at_once_and_counts_anew() {
        let mut backoff = Backoff::new(1);
        for _ in 0..5 {
            assert_ne!(backoff.unstable_run_ended(10), Verdict::GiveUp);
        }
        let Verdict::RetryAfter(delay) = backoff.stable_run_ended() else {
            panic!("gave up after a stable run");
        };
        assert!(delay <= PROMPT_JITTER);
        assert_eq!(backoff.unstable_runs(), 0);
    }

    #[test]
    fn seeds_differ() {
        let delays: std::collections::HashSet<_> = (0..50)
            .map(|seed| format!("{:?}", Backoff::new(seed).unstable_run_ended(10)))
            .collect();
        assert!(delays.len() > 40);
    }
}
