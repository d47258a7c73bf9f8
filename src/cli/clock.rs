//! The command line's own clock. Nothing here reaches a core but as a [`Duration`] or a [`Moment`].

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime};

use crate::time::{Moment, render_wall};

/// Now, from the first call on.
pub(crate) fn now() -> Moment {
    static ORIGIN: OnceLock<Deadline> = OnceLock::new();
    let origin = ORIGIN.get_or_init(|| Deadline::after(Duration::ZERO));
    Moment::from_origin(origin.passed())
}

/// A point from which a wait is bounded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline(Instant);

impl Deadline {
    /// The deadline that lies `wait` ahead.
    #[expect(
        clippy::disallowed_methods,
        reason = "commands run without the daemon and its clock; they only bound their own waits"
    )]
    pub(crate) fn after(wait: Duration) -> Self {
        Self(Instant::now() + wait)
    }

    /// How long ago it was.
    #[expect(clippy::disallowed_methods, reason = "as above")]
    fn passed(self) -> Duration {
        Instant::now().saturating_duration_since(self.0)
    }

    /// What is left; zero once it has passed.
    #[expect(clippy::disallowed_methods, reason = "as above")]
    pub(crate) fn left(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }
}

/// The wall clock, as time since 1970-01-01 UTC.
#[expect(clippy::disallowed_methods, reason = "people name times of day")]
pub(crate) fn wall() -> Duration {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
}

/// The time as part of a file's name: `2026-11-30T21-40-07`, in UTC.
pub(crate) fn date_for_a_name() -> String {
    let text = render_wall(Duration::from_secs(wall().as_secs())).replace(':', "-");
    text.trim_end_matches(".000Z").to_owned()
}
