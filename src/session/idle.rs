//! Since when nobody has needed the child: `idle_stop`.
//!
//! Decides when the child may be ended for idleness. An open or waiting request and a subscription
//! need it; hosts that are attached and silent do not. Never ends anything itself.

use super::action::MuxAction;
use super::mux::Mux;
use crate::time::Moment;

/// How long the child has been of no use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Idle {
    since: Option<Moment>,
    /// The shell was told; nothing more is said until somebody has needed the child.
    was_told: bool,
}

impl Mux {
    /// When the shell is to be told that nobody needs the child.
    pub(super) fn idle_deadline(&self) -> Option<Moment> {
        let since = self.idle.since.filter(|_| !self.idle.was_told)?;
        Some(since + self.config.idle_stop?)
    }

    /// Looks whether the event at hand has made the child needed, or not needed any more.
    pub(super) fn note_need(&mut self) {
        if self.is_busy() || !self.is_writable() {
            self.idle = Idle::default();
        } else {
            self.idle.since.get_or_insert(self.now);
        }
    }

    /// Tells the shell once that nobody has needed the child for `idle_stop`.
    pub(super) fn expire_idle(&mut self) {
        if self.idle_deadline().is_some_and(|due| due <= self.now) {
            self.idle.was_told = true;
            self.act(MuxAction::Idle);
        }
    }
}
