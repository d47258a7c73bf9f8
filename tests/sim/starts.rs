//! Whose turn it is to start, among all servers of the daemon.
//!
//! The counterpart of `daemon::worker::turn` and `daemon::registry::starts`: words go to the core that
//! decides, in the order in which they were said, and its permissions to the workers.

use mcpd::supervise::turns::{Starter, TurnId};

use crate::clock::Tick;
use crate::scene::Scene;
use crate::sim::Sim;
use crate::worker::{Inbound, Worker};

/// What is said of one start.
#[derive(Clone, Debug)]
pub(crate) enum TurnEvent {
    Asked(usize, TurnId, Starter),
    Awaited(TurnId),
    Output(TurnId),
    Over(TurnId),
}

/// A turn that was asked for, until it is given back.
#[derive(Debug)]
pub(crate) struct Turn {
    pub(crate) id: TurnId,
    is_awaited: bool,
    is_cold: bool,
    was_asked: bool,
}

impl Worker {
    pub(crate) fn ask_turn(&mut self, is_awaited: bool, is_cold: bool, scene: &mut Scene) {
        assert!(self.turn.is_none(), "{} has a turn", self.name);
        scene.last_turn += 1;
        let id = TurnId(scene.last_turn);
        self.turn = Some(Turn {
            id,
            is_awaited,
            is_cold,
            was_asked: false,
        });
        self.core.turn_asked(id);
        // The launcher is looked for first.
        let delay = scene.clock.random.ms(0, 10);
        scene.clock.after(delay, Tick::AskTurn(self.place, id));
    }

    /// What had to be known for the question is known.
    pub(crate) fn turn_asked(&mut self, id: TurnId, scene: &mut Scene) {
        let command = self
            .core
            .setting()
            .spec
            .as_ref()
            .map(|spec| &spec.launch.command);
        let launcher = format!("{command:?}").into();
        let Some(turn) = self.turn.as_mut().filter(|turn| turn.id == id) else {
            return;
        };
        turn.was_asked = true;
        let starter = Starter {
            launcher,
            is_cold: turn.is_cold,
            is_awaited: turn.is_awaited,
        };
        scene.say(TurnEvent::Asked(self.place, id, starter));
    }

    pub(crate) fn hurry_turn(&mut self, scene: &mut Scene) {
        if let Some(turn) = &mut self.turn
            && !std::mem::replace(&mut turn.is_awaited, true)
            && turn.was_asked
        {
            scene.say(TurnEvent::Awaited(turn.id));
        }
    }

    pub(crate) fn end_turn(&mut self, scene: &mut Scene) {
        if let Some(turn) = self.turn.take() {
            scene.say(TurnEvent::Over(turn.id));
        }
    }

    /// A child that is being started has printed something.
    pub(crate) fn heard(&self, scene: &mut Scene) {
        if let Some(turn) = &self.turn {
            scene.say(TurnEvent::Output(turn.id));
        }
    }
}

impl Scene {
    /// To the one who keeps the order of starts.
    fn say(&mut self, event: TurnEvent) {
        self.said.push_back(event);
        let delay = self.clock.random.ms(0, 1);
        self.clock.after(delay, Tick::Turns);
    }
}

impl Sim {
    /// Hears what was said of starts, and what the clock says.
    pub(crate) fn order_starts(&mut self) {
        let now = self.scene.clock.now;
        while let Some(event) = self.scene.said.pop_front() {
            match event {
                TurnEvent::Asked(worker, id, starter) => {
                    self.waiting_starts.insert(id, worker);
                    self.turns.handle_asked(id, starter, now);
                }
                TurnEvent::Awaited(id) => self.turns.handle_awaited(id),
                TurnEvent::Output(id) => self.turns.handle_output(id, now),
                TurnEvent::Over(id) => {
                    self.waiting_starts.remove(&id);
                    self.turns.handle_over(id, now);
                }
            }
        }
        self.turns.handle_timeout(now);
        while let Some(id) = self.turns.poll_granted() {
            if let Some(worker) = self.waiting_starts.remove(&id) {
                self.workers[worker].post(Inbound::TurnCame(id), &mut self.scene);
            }
        }
        if let Some(due) = self.turns.poll_timeout() {
            assert!(due > now, "time stands still: starts are due for ever");
            self.scene.clock.at(due, Tick::Turns);
        }
    }
}
