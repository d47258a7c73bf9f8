//! A worker's turn to start among all servers of the daemon.
//!
//! Carries words between one worker and the registry, which owns the order: asked for, awaited,
//! heard of, over. Decides nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use crate::config::spec::ServerSpec;
use crate::supervise::turns::{Starter, TurnId};
use crate::time::Moment;

use super::super::clock;
use super::super::launch::launcher_of;
use super::super::shared::Shared;
use super::{Event, Worker, part};

/// A child that prints without a pause is heard of so often.
const HEARD_EVERY: Duration = Duration::from_secs(1);

/// What the registry is told of one start.
#[derive(Debug)]
pub(crate) enum TurnEvent {
    Asked {
        id: TurnId,
        starter: Starter,
        came: oneshot::Sender<()>,
    },
    Awaited(TurnId),
    Output(TurnId),
    Over(TurnId),
}

/// A turn that was asked for, until it is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    id: TurnId,
    voice: Voice,
    is_awaited: Arc<AtomicBool>,
    asking: AbortHandle,
}

/// Says that a child that is being started has printed something.
#[derive(Clone, Debug)]
pub(crate) struct Voice(Arc<VoiceState>);

#[derive(Debug)]
struct VoiceState {
    id: TurnId,
    events: mpsc::UnboundedSender<TurnEvent>,
    /// Absent once the start is over and nobody listens any more.
    next: Mutex<Option<Moment>>,
}

impl Voice {
    pub(crate) fn heard(&self) {
        let now = clock::now();
        let mut next = self.0.next.lock().unwrap_or_else(PoisonError::into_inner);
        if next.is_some_and(|next| next <= now) {
            *next = Some(now + HEARD_EVERY);
            self.say(TurnEvent::Output(self.0.id));
        }
    }

    fn say(&self, event: TurnEvent) {
        // Without a registry there is no order to keep.
        drop(self.0.events.send(event));
    }
}

impl Turn {
    fn ask(
        shared: Arc<Shared>,
        spec: Arc<ServerSpec>,
        is_cold: bool,
        is_awaited: bool,
        inbox: mpsc::Sender<Event>,
    ) -> Self {
        let id = shared.next_turn();
        let voice = Voice(Arc::new(VoiceState {
            id,
            events: shared.turns.clone(),
            next: Mutex::new(Some(Moment::ZERO)),
        }));
        let is_awaited = Arc::new(AtomicBool::new(is_awaited));
        let asking = part::spawn(inbox.clone(), {
            let (voice, is_awaited) = (voice.clone(), is_awaited.clone());
            async move {
                // Looks at the folders of PATH, one of which may be on a network.
                let looking = part::spawn_blocking(move || launcher_of(&spec, &shared.base));
                let launcher = looking.await.unwrap_or_default();
                let (came, waited) = oneshot::channel();
                let starter = Starter {
                    launcher: launcher.into(),
                    is_cold,
                    is_awaited: is_awaited.load(Ordering::Relaxed),
                };
                voice.say(TurnEvent::Asked { id, starter, came });
                // A daemon whose registry has gone starts nothing any more.
                if waited.await.is_ok() {
                    drop(inbox.send(Event::TurnCame(id)).await);
                }
            }
        });
        Self {
            id,
            voice,
            is_awaited,
            asking: asking.abort_handle(),
        }
    }

    /// Somebody waits for this start.
    pub(super) fn hurry(&self) {
        if !self.is_awaited.swap(true, Ordering::Relaxed) {
            self.voice.say(TurnEvent::Awaited(self.id));
        }
    }

    pub(super) fn voice(&self) -> Voice {
        self.voice.clone()
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.asking.abort();
        let state = &self.voice.0;
        *state.next.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.voice.say(TurnEvent::Over(self.id));
    }
}

impl Worker {
    pub(super) fn ask_turn(&mut self, is_awaited: bool, is_cold: bool) {
        let Some(spec) = self.core.setting().spec.clone() else {
            debug_assert!(false, "the supervisor starts only what is configured");
            return;
        };
        let inbox = self.handle.inbox.clone();
        let turn = Turn::ask(self.shared.clone(), spec, is_cold, is_awaited, inbox);
        self.core.turn_asked(turn.id);
        self.turn = Some(turn);
    }
}
