//! Waiting for a state, under a deadline; the only clock of the tests and their only pause.

use std::io::Write;
use std::time::{Duration, Instant};

use nix::poll::{PollTimeout, poll};

/// How long a test waits for what must happen soon. Far above any deadline that is tested, because the
/// machines that run this are slow and busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Between two looks at a state that no descriptor announces.
const LOOK_EVERY_MS: u16 = 10;

/// Waits until `condition` gives a value; panics with `what` if it does not.
pub(crate) fn wait_until<T>(what: &str, condition: impl FnMut() -> Option<T>) -> T {
    wait_within(PATIENCE, what, condition)
}

/// As [`wait_until`], with a limit of its own.
pub(crate) fn wait_within<T>(
    limit: Duration,
    what: &str,
    mut condition: impl FnMut() -> Option<T>,
) -> T {
    let watch = Stopwatch::start();
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(watch.elapsed() < limit, "{what}: not within {limit:?}");
        poll(&mut [], PollTimeout::from(LOOK_EVERY_MS)).ok();
    }
}

/// Lets time pass where the passing of time itself is what is tested.
pub(crate) fn let_pass(time: Duration) {
    let watch = Stopwatch::start();
    wait_within(time * 2 + PATIENCE, "time passes", || {
        (watch.elapsed() >= time).then_some(())
    });
}

/// Measures what took how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    #[allow(clippy::disallowed_methods, reason = "real processes take real time")]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn elapsed(self) -> Duration {
        self.0.elapsed()
    }

    /// What is left of `limit`.
    pub(crate) fn left(self, limit: Duration) -> Duration {
        limit.saturating_sub(self.elapsed())
    }
}

/// Prints a line that is seen even where the test passes: counts, and what was skipped.
pub(crate) fn say(text: &str) {
    writeln!(std::io::stdout(), "{text}").ok();
}
