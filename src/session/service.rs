//! Whether requests can be served now, and what becomes of one that waits.
//!
//! Decides between waiting and refusing, from the state of the server as the worker tells it, the
//! deadline of the request and the time. Never looks at the request itself.

use std::time::Duration;

use serde_json::{Value, json};

use crate::protocol::ErrorCode;
use crate::time::Moment;

/// Whether requests can be served now. The worker sets it from the supervisor's state.
#[derive(Clone, Debug, PartialEq)]
pub enum Service {
    /// A child is up. Its handshake may still be running: requests wait for that.
    Serving,
    /// A child is on its way: requests wait in order until their wait runs out.
    Holding(Hold),
    /// No child before `next_attempt`: a request waits if that lies within its wait.
    Backoff {
        /// When the next child is tried.
        next_attempt: Moment,
        /// Why there is none now.
        detail: Unavailable,
    },
    /// Nothing will come by itself (stopped, disabled, failed, removed): refused at once.
    Unavailable(Unavailable),
    /// The server is being stopped, disabled or removed: refused at once.
    Stopping,
}

/// Why requests are held, which is what they are told if the wait runs out.
#[derive(Clone, Debug, PartialEq)]
pub struct Hold {
    /// What is under way.
    pub cause: HoldCause,
    /// What more can be said, such as the last lines of stderr; `null` for nothing.
    pub detail: Value,
}

impl Hold {
    /// Held for `cause`, with nothing more to say.
    pub const fn because(cause: HoldCause) -> Self {
        Self {
            cause,
            detail: Value::Null,
        }
    }
}

/// What is under way while requests are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldCause {
    /// A start: the wait ends in `-31000`.
    Starting,
    /// A restart or reload that somebody asked for: the wait ends in `-31005`.
    Restarting,
}

/// Why a server cannot be used.
#[derive(Clone, Debug, PartialEq)]
pub struct Unavailable {
    /// One sentence: what and why.
    pub message: String,
    /// Command tried, exit code or signal, last lines of stderr, what to do.
    pub detail: Value,
}

/// An error that a waiting request is answered with.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Refusal {
    pub(super) code: ErrorCode,
    pub(super) message: String,
    pub(super) detail: Value,
}

/// What happens to a request that waits until `deadline`; `None` means that it goes on waiting.
pub(super) fn refusal(
    service: &Service,
    server: &str,
    start_timeout: Duration,
    deadline: Moment,
    now: Moment,
) -> Option<Refusal> {
    let ran_out = deadline <= now;
    match service {
        Service::Serving => ran_out.then(|| Refusal {
            code: ErrorCode::SERVER_UNAVAILABLE,
            message: format!(
                "server {server} did not answer `initialize` within start_timeout ({start_timeout:?})"
            ),
            detail: Value::Null,
        }),
        Service::Holding(hold) => ran_out.then(|| held_too_long(hold, server, start_timeout)),
        Service::Backoff { next_attempt, detail } => (ran_out || deadline < *next_attempt)
            .then(|| backed_off(detail, next_attempt.since(now))),
        Service::Unavailable(why) => Some(Refusal {
            code: ErrorCode::SERVER_UNAVAILABLE,
            message: why.message.clone(),
            detail: why.detail.clone(),
        }),
        Service::Stopping => Some(Refusal {
            code: ErrorCode::SERVER_STOPPING,
            message: format!("server {server} is being stopped"),
            detail: Value::Null,
        }),
    }
}

/// The error of a request whose wait for a child ran out.
fn held_too_long(hold: &Hold, server: &str, start_timeout: Duration) -> Refusal {
    let (code, what) = match hold.cause {
        HoldCause::Starting => (ErrorCode::SERVER_UNAVAILABLE, "did not start"),
        HoldCause::Restarting => (
            ErrorCode::SERVER_STOPPING,
            "did not come back from its restart",
        ),
    };
    Refusal {
        code,
        message: format!("server {server} {what} within start_timeout ({start_timeout:?})"),
        detail: hold.detail.clone(),
    }
}

/// The error of a request that would have to wait beyond its time for the next try.
fn backed_off(why: &Unavailable, until_next: Duration) -> Refusal {
    let seconds = until_next.as_millis().div_ceil(1_000);
    let detail = match &why.detail {
        Value::Object(members) => {
            let mut members = members.clone();
            members.insert(
                "next_attempt_in_s".to_owned(),
                json!(u64::try_from(seconds).ok()),
            );
            Value::Object(members)
        }
        other => json!({ "cause": other, "next_attempt_in_s": u64::try_from(seconds).ok() }),
    };
    Refusal {
        code: ErrorCode::SERVER_UNAVAILABLE,
        message: format!("{}; the next try is in {seconds} s", why.message),
        detail,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START_TIMEOUT: Duration = Duration::from_secs(90);

    fn at(seconds: u64) -> Moment {
        Moment::ZERO + Duration::from_secs(seconds)
    }

    fn down(detail: Value) -> Unavailable {
        Unavailable {
            message: "server s exited with code 3".to_owned(),
            detail,
        }
    }

    /// Judges a request with the deadline of 100 s at `now`: the code, or `None` for waiting.
    #[track_caller]
    fn check(service: &Service, now: u64, code: Option<ErrorCode>, says: &str) -> Option<Refusal> {
        let refusal = refusal(service, "s", START_TIMEOUT, at(100), at(now));
        assert_eq!(refusal.as_ref().map(|one| one.code), code);
        let message = refusal.as_ref().map_or("", |one| one.message.as_str());
        assert!(message.contains(says), "{message}");
        refusal
    }

    #[test]
    fn a_start_is_waited_for_until_the_wait_runs_out() {
        let hold = Service::Holding(Hold::because(HoldCause::Starting));
        check(&hold, 99, None, "");
        check(
            &hold,
            100,
            Some(ErrorCode::SERVER_UNAVAILABLE),
            "start_timeout (90s)",
        );
        check(&Service::Serving, 99, None, "");
        check(
            &Service::Serving,
            100,
            Some(ErrorCode::SERVER_UNAVAILABLE),
            "initialize",
        );
    }

    #[test]
    fn a_restart_that_takes_too_long_has_a_code_of_its_own() {
        let hold = Service::Holding(Hold::because(HoldCause::Restarting));
        check(&hold, 99, None, "");
        check(&hold, 100, Some(ErrorCode::SERVER_STOPPING), "restart");
    }

    #[test]
    fn in_backoff_only_those_wait_whose_time_reaches_the_next_try() {
        let detail = down(json!({"exit_code": 3}));
        let near = Service::Backoff {
            next_attempt: at(100),
            detail: detail.clone(),
        };
        check(&near, 90, None, "");
        let far = Service::Backoff {
            next_attempt: at(101),
            detail,
        };
        let refusal = check(&far, 90, Some(ErrorCode::SERVER_UNAVAILABLE), "in 11 s");
        assert_eq!(
            refusal.map(|one| one.detail),
            Some(json!({"exit_code": 3, "next_attempt_in_s": 11}))
        );
    }

    #[test]
    fn what_will_not_come_is_refused_at_once() {
        let service = Service::Unavailable(down(Value::Null));
        check(&service, 0, Some(ErrorCode::SERVER_UNAVAILABLE), "code 3");
        check(
            &Service::Stopping,
            0,
            Some(ErrorCode::SERVER_STOPPING),
            "stopped",
        );
    }
}
