//! Whether a child still says something.
//!
//! By default nobody asks: an open request that has met silence for [`OVERDUE`] only shows in
//! `status`, for a server may be busy for minutes. With `watchdog` a child that has said nothing for
//! so long is asked (`ping`, to a modern child `server/discover`), and one that says nothing for as
//! long again hangs. Anything that it says counts, whatever it is.
//!
//! Decides when to ask and when to give up; never what is done with a child that hangs.

use std::time::Duration;

use super::action::MuxAction;
use super::mux::Mux;
use super::requests::Purpose;
use crate::protocol::Era;
use crate::protocol::opening::write_own_meta;
use crate::time::Moment;

/// How long an open request may meet silence before `status` calls its child unresponsive.
pub(super) const OVERDUE: Duration = Duration::from_secs(30);

/// What is known of one child.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watchdog {
    heard_at: Moment,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Left when it was silent for too long.
    Listening,
    /// It was asked. Left when it says something, or at that moment.
    Asked(Moment),
    /// It was given up. Never left.
    GivenUp,
}

impl Watchdog {
    pub(super) const fn new(now: Moment) -> Self {
        Self {
            heard_at: now,
            stage: Stage::Listening,
        }
    }

    /// The child has said something.
    pub(super) fn heard(&mut self, now: Moment) {
        self.heard_at = now;
        if self.stage != Stage::GivenUp {
            self.stage = Stage::Listening;
        }
    }

    fn deadline(&self, patience: Duration) -> Option<Moment> {
        match self.stage {
            Stage::Listening => Some(self.heard_at + patience),
            Stage::Asked(until) => Some(until),
            Stage::GivenUp => None,
        }
    }
}

impl Mux {
    /// When the child is asked next, or given up.
    pub(super) fn watchdog_deadline(&self) -> Option<Moment> {
        let patience = self.config.watchdog?;
        let child = self.child.as_ref().filter(|_| self.is_writable())?;
        child.watchdog.deadline(patience)
    }

    /// Asks a silent child, or gives it up.
    pub(super) fn expire_watchdog(&mut self) {
        let Some(patience) = self.config.watchdog else {
            return;
        };
        if self.watchdog_deadline().is_none_or(|at| at > self.now) {
            return;
        }
        let (now, era) = (self.now, self.child_era());
        let Some(child) = &mut self.child else { return };
        if child.watchdog.stage == Stage::Listening {
            child.watchdog.stage = Stage::Asked(now + patience);
            match era {
                Era::Legacy => self.ask_child("ping", Purpose::Call, None),
                Era::Modern => {
                    let mut params = b"{\"_meta\":".to_vec();
                    write_own_meta(&mut params, &self.config.client_version);
                    params.push(b'}');
                    self.ask_child("server/discover", Purpose::Call, Some(&params));
                }
            }
            return;
        }
        child.watchdog.stage = Stage::GivenUp;
        let silence = now - child.watchdog.heard_at;
        self.act(MuxAction::Hung { silence });
    }

    /// How long an open request has met nothing but silence, once that is longer than it should.
    pub(super) fn overdue(&self, now: Moment) -> Option<Duration> {
        let child = self.child.as_ref()?;
        let asked_at = self.requests.oldest_written()?;
        let silence = now - asked_at.max(child.watchdog.heard_at);
        (silence >= OVERDUE).then_some(silence)
    }
}
