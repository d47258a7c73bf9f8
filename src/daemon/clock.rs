//! The one reader of clocks.
//!
//! Cores are handed [`Moment`]s; they come from here. Tokio's clock is read, so that a test with
//! paused time moves everything together. Wall time is for people only: no decision rests on it.

use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use crate::time::Moment;

static ORIGIN: OnceLock<Instant> = OnceLock::new();

/// Now, on the monotonic clock (`CLOCK_MONOTONIC`, which stands still in suspend).
pub(crate) fn now() -> Moment {
    let origin = *ORIGIN.get_or_init(Instant::now);
    Moment::from_origin(Instant::now().saturating_duration_since(origin))
}

/// `moment` as tokio's timers want it.
pub(crate) fn instant(moment: Moment) -> Instant {
    *ORIGIN.get_or_init(Instant::now) + moment.since_origin()
}

/// Waits until `deadline`; for ever without one.
pub(crate) async fn sleep_until(deadline: Option<Moment>) {
    match deadline {
        Some(moment) => tokio::time::sleep_until(instant(moment)).await,
        None => std::future::pending().await,
    }
}

/// The wall clock, as time since 1970-01-01 UTC.
#[expect(clippy::disallowed_methods, reason = "the one reader of wall time")]
pub(crate) fn wall() -> Duration {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
}

/// A wall time as RFC 3339 with milliseconds, in UTC.
pub(crate) fn render_wall(since_epoch: Duration) -> String {
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
