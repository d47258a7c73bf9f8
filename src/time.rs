//! The time as the cores see it: a number that somebody hands to them.
//!
//! A core never reads a clock. The daemon reads one clock (`daemon::clock`), turns it into a
//! [`Moment`] and passes it along; tests and the simulation make moments up.

use std::ops::{Add, AddAssign, Sub};
use std::time::Duration;

/// A point on the monotonic clock, counted from an origin that is fixed for the life of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(Duration);

impl Moment {
    /// The origin itself.
    pub const ZERO: Self = Self(Duration::ZERO);

    /// The moment that lies `elapsed` after the origin.
    pub const fn from_origin(elapsed: Duration) -> Self {
        Self(elapsed)
    }

    /// How far this moment lies behind the origin.
    pub const fn since_origin(self) -> Duration {
        self.0
    }

    /// The time from `earlier` to this moment; zero if `earlier` is in fact later.
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Moment {
    type Output = Self;
    fn add(self, delay: Duration) -> Self {
        Self(self.0.saturating_add(delay))
    }
}

impl AddAssign<Duration> for Moment {
    fn add_assign(&mut self, delay: Duration) {
        *self = *self + delay;
    }
}

impl Sub for Moment {
    type Output = Duration;
    fn sub(self, earlier: Self) -> Duration {
        self.since(earlier)
    }
}

/// The earlier of two deadlines, where either may be absent.
pub fn earliest(one: Option<Moment>, other: Option<Moment>) -> Option<Moment> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
