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

/// A wall time as RFC 3339 with milliseconds, in UTC.
pub fn render_wall(since_epoch: Duration) -> String {
    let seconds = since_epoch.as_secs();
    let (year, month, day) = civil(i64::try_from(seconds / 86_400).unwrap_or(0));
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    let millis = since_epoch.subsec_millis();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// The proleptic Gregorian date of a day counted from 1970-01-01 (days of an era of 400 years).
fn civil(day: i64) -> (i64, i64, i64) {
    let shifted = day + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day_of_month)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wall_time_is_rendered_as_rfc_3339() {
        let check = |millis, text| assert_eq!(render_wall(Duration::from_millis(millis)), text);
        check(0, "1970-01-01T00:00:00.000Z");
        check(951_827_696_789, "2000-02-29T12:34:56.789Z");
        check(1_796_083_199_001, "2026-11-30T23:59:59.001Z");
        check(4_107_542_400_000, "2100-03-01T00:00:00.000Z");
    }
}
