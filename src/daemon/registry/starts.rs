//! The order of starts, as a part of the registry.
//!
//! Hands to [`Turns`] what workers say and what the clock says, and to workers what it permits.
//! Decides nothing.

use std::collections::HashMap;

use tokio::sync::{mpsc, oneshot};

use crate::supervise::turns::{TurnId, Turns};

use super::super::clock;
use super::super::worker::TurnEvent;

/// Who waits for a turn, and what was said that was not heard yet.
#[derive(Debug)]
pub(super) struct Starts {
    turns: Turns,
    events: mpsc::UnboundedReceiver<TurnEvent>,
    waiting: HashMap<TurnId, oneshot::Sender<()>>,
}

impl Starts {
    pub(super) fn new(events: mpsc::UnboundedReceiver<TurnEvent>) -> Self {
        Self {
            turns: Turns::default(),
            events,
            waiting: HashMap::new(),
        }
    }

    /// Waits for the next thing that happens and does what follows. May be dropped at any time.
    pub(super) async fn wait(&mut self) {
        let deadline = self.turns.poll_timeout();
        let event = tokio::select! {
            Some(event) = self.events.recv() => Some(event),
            () = clock::sleep_until(deadline) => None,
        };
        let now = clock::now();
        match event {
            Some(TurnEvent::Asked { id, starter, came }) => {
                self.waiting.insert(id, came);
                self.turns.handle_asked(id, starter, now);
            }
            Some(TurnEvent::Awaited(id)) => self.turns.handle_awaited(id),
            Some(TurnEvent::Output(id)) => self.turns.handle_output(id, now),
            Some(TurnEvent::Over(id)) => {
                self.waiting.remove(&id);
                self.turns.handle_over(id, now);
            }
            None => self.turns.handle_timeout(now),
        }
        while let Some(id) = self.turns.poll_granted() {
            if let Some(came) = self.waiting.remove(&id) {
                // Whoever asked and left says so by an event of its own.
                came.send(()).unwrap_or(());
            }
        }
    }
}
