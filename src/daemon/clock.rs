//! The one reader of clocks.
//!
//! Cores are handed [`Moment`]s; they come from here. Tokio's clock is read, so that a test with
//! paused time moves everything together. Wall time is for people only: no decision rests on it.

use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use crate::time::Moment;
pub(crate) use crate::time::render_wall;

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
