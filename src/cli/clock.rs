//! The command line's own clock. Nothing here reaches a core but as a [`Duration`].

use std::time::{Duration, Instant, SystemTime};

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
