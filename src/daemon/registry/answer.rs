//! Requests that take time: told to the workers, then followed in what they publish.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::config::diagnostics::Diagnostic;
use crate::control::{
    CONTENT_TYPE, ControlError, DaemonStatus, Desired, EndRecord, ErrorKind, Metrics, Outcome,
    OutcomeKind, Outcomes, SCHEMA, ServerStatus, State, StatusSnapshot, StopStep, render_metrics,
};
use crate::supervise::Mode;
use crate::time::Moment;

use super::super::clock;
use super::super::facts::DaemonFacts;
use super::super::state_record;
use super::super::worker::{Command, Event, Published, WorkerHandle};
use super::{Answer, Registry};

/// How long a status waits for workers to publish before it shows what they published last.
const REFRESH_WAIT: Duration = Duration::from_millis(250);

/// What is asked of servers by name.
#[derive(Clone, Copy, Debug)]
pub(super) enum Verb {
    Start,
    Stop(Mode),
    Restart(Mode),
    ResetFailed,
}

impl Verb {
    fn command(self, acknowledge: tokio::sync::oneshot::Sender<()>) -> Command {
        match self {
            Self::Start => Command::Start(acknowledge),
            Self::Stop(mode) => Command::Stop(mode, acknowledge),
            Self::Restart(mode) => Command::Restart(mode, acknowledge),
            Self::ResetFailed => Command::ResetFailed(acknowledge),
        }
    }

    /// Whether `published` is where this verb wanted to come to; `None` while it is on the way.
    fn verdict(self, published: &Published) -> Option<OutcomeKind> {
        let done = |right: bool| match right {
            true => OutcomeKind::Done,
            false => OutcomeKind::Failed,
        };
        match (self, published.status.state) {
            (Self::ResetFailed, _) => Some(OutcomeKind::Done),
            (Self::Stop(_), State::Stopped) => Some(done(true)),
            (Self::Stop(_), State::Failed) => Some(done(!published.is_unkillable())),
            // Somebody else has started it meanwhile, perhaps so quickly that nobody saw it down.
            (Self::Stop(_), _) if published.status.desired == Desired::Up => Some(done(false)),
            (Self::Stop(_), _) => None,
            (_, State::Running) => Some(done(true)),
            // Policy or an exit by itself may end a start in `stopped`.
            (_, State::Failed | State::Backoff | State::Stopped) => Some(done(false)),
            (_, State::Starting | State::Stopping | State::Unknown) => None,
        }
    }
}

/// The reply to a shutdown that has come to its end.
pub(super) fn no_outcomes() -> Value {
    to_value(&Outcomes::default())
}

/// The snapshot as a collector of figures reads it.
pub(super) fn metrics(snapshot: &StatusSnapshot) -> Value {
    to_value(&Metrics {
        content_type: CONTENT_TYPE.to_owned(),
        text: render_metrics(snapshot),
    })
}

pub(super) fn to_value<T: serde::Serialize>(reply: &T) -> Value {
    // Plain structs with string keys always have a JSON form.
    serde_json::to_value(reply).unwrap_or_default()
}

impl Registry {
    /// Tells the workers of `names` what is wanted and answers when each has come to an end of it.
    pub(super) fn command(&self, names: Vec<String>, verb: Verb, answer: Answer) {
        let begun = clock::now();
        let found: Vec<(String, Option<WorkerHandle>)> = names
            .into_iter()
            .flat_map(|name| {
                let meant: Vec<_> = self
                    .shown(std::slice::from_ref(&name))
                    .map(|(name, slot)| (name.to_string(), Some(slot.worker.clone())))
                    .collect();
                match meant.is_empty() {
                    true => vec![(name, None)],
                    false => meant,
                }
            })
            .collect();
        tokio::spawn(async move {
            let mut followed = tokio::task::JoinSet::new();
            for (at, (name, worker)) in found.into_iter().enumerate() {
                followed.spawn(async move { (at, follow(name, worker, verb, begun).await) });
            }
            let mut outcomes = followed.join_all().await;
            outcomes.sort_by_key(|(at, _)| *at);
            let outcomes = outcomes.into_iter().map(|(_, outcome)| outcome).collect();
            // Whoever asked may have left.
            drop(answer.send(Ok(to_value(&Outcomes { outcomes }))));
        });
    }

    /// Answers with what the workers publish, refreshed where they are quick enough.
    pub(super) fn status(
        &self,
        names: &[String],
        answer: Answer,
        form: fn(&StatusSnapshot) -> Value,
    ) {
        let slots: Vec<(WorkerHandle, Option<String>)> = self
            .shown(names)
            .map(|(_, slot)| (slot.worker.clone(), slot.socket.error()))
            .collect();
        let daemon = self.daemon_status();
        let with_processes = !names.is_empty();
        let facts = self.facts.clone();
        tokio::spawn(async move {
            let mut servers = Vec::with_capacity(slots.len());
            for (worker, socket_error) in slots {
                let mut status = refreshed(&worker).await;
                status.socket_error = socket_error;
                servers.push(status);
            }
            let servers = measure(servers, with_processes, facts).await;
            let snapshot = StatusSnapshot {
                schema: SCHEMA,
                daemon,
                servers,
                last: None,
            };
            // Whoever asked may have left.
            drop(answer.send(Ok(form(&snapshot))));
        });
    }

    /// What the workers published last, without a look at their processes.
    pub(super) fn snapshot(&self) -> StatusSnapshot {
        StatusSnapshot {
            schema: SCHEMA,
            daemon: self.daemon_status(),
            servers: self
                .shown(&[])
                .map(|(_, slot)| slot.worker.published.borrow().status.clone())
                .collect(),
            last: None,
        }
    }

    /// Leaves word of how and why this daemon ended.
    pub(super) fn record_end(&self) {
        let folder = &self.facts.state_dir;
        state_record::write_state(folder, &state_record::now(self.snapshot()));
        let end = EndRecord {
            pid: std::process::id(),
            at: clock::render_wall(clock::wall()),
            orderly: true,
            reason: self.ending_reason.to_owned(),
        };
        if let Err(error) = state_record::write_end(folder, &end) {
            tracing::warn!(%error, ?folder, "the end cannot be recorded");
        }
    }

    fn daemon_status(&self) -> DaemonStatus {
        let mut daemon = self.facts.status(&self.shared);
        daemon.generation = self.generation;
        self.watching.name().clone_into(&mut daemon.watcher);
        daemon.warnings.extend(self.watching.warnings());
        daemon.attachments = self.attachments() as u64;
        daemon.errors = self
            .stray
            .iter()
            .map(Diagnostic::to_line_with_hint)
            .collect();
        daemon
    }
}

/// What a worker publishes now, or published last if it is not quick enough.
async fn refreshed(worker: &WorkerHandle) -> ServerStatus {
    let (acknowledge, refreshed) = tokio::sync::oneshot::channel();
    let ask = async {
        let event = Event::Command(Command::Refresh(acknowledge));
        if worker.inbox.send(event).await.is_ok() {
            // A worker that ends instead leaves its last words.
            drop(refreshed.await);
        }
    };
    // Late is as good as never here: what was published last is shown.
    drop(tokio::time::timeout(REFRESH_WAIT, ask).await);
    worker.published.borrow().status.clone()
}

/// Adds what the process trees use; reads `/proc`, so away from the runtime's thread.
async fn measure(
    servers: Vec<ServerStatus>,
    with_processes: bool,
    facts: Arc<DaemonFacts>,
) -> Vec<ServerStatus> {
    let unmeasured = servers.clone();
    let measured = tokio::task::spawn_blocking(move || {
        let mut servers = servers;
        facts.measure(&mut servers, with_processes);
        servers
    });
    measured.await.unwrap_or(unmeasured)
}

async fn follow(name: String, worker: Option<WorkerHandle>, verb: Verb, begun: Moment) -> Outcome {
    let Some(mut worker) = worker else {
        return Outcome {
            message: Some(format!("no server \"{name}\" is configured")),
            ..outcome(name, OutcomeKind::UnknownServer, begun)
        };
    };
    let before = worker.published.borrow().clone();
    let (acknowledge, heard) = tokio::sync::oneshot::channel();
    let event = Event::Command(verb.command(acknowledge));
    if worker.inbox.send(event).await.is_err() || heard.await.is_err() {
        return Outcome {
            message: Some("the daemon is ending".to_owned()),
            ..outcome(name, OutcomeKind::Failed, begun)
        };
    }
    // The worker has published what came of the command before it acknowledged it.
    let unchanged = worker.published.borrow().same_run(&before);
    let reached = worker
        .published
        .wait_for(|published| verb.verdict(published).is_some())
        .await
        .map(|published| (**published).clone());
    let Ok(published) = reached else {
        return Outcome {
            message: Some("the daemon is ending".to_owned()),
            ..outcome(name, OutcomeKind::Failed, begun)
        };
    };
    let overtaken = matches!(verb, Verb::Stop(_)) && published.status.desired == Desired::Up;
    let kind = verb.verdict(&published).unwrap_or(OutcomeKind::Failed);
    let kind = if kind == OutcomeKind::Done && unchanged {
        OutcomeKind::Unchanged
    } else {
        kind
    };
    Outcome {
        state: Some(published.status.state),
        substate: Some(published.status.substate),
        message: match overtaken {
            true => Some("another command started it again".to_owned()),
            false => published.status.reason.clone(),
        },
        ended_by: ended_by(verb, &before, &published),
        ..outcome(name, kind, begun)
    }
}

/// The step that ended the child that ran before, if one ran.
fn ended_by(verb: Verb, before: &Published, after: &Published) -> Option<StopStep> {
    let ends = matches!(verb, Verb::Stop(_) | Verb::Restart(_));
    let ran = before.status.pid.is_some();
    let exits = &after.status.exits;
    let ended = exits
        .iter()
        .find(|exit| exit.generation == before.status.generation)?;
    (ends && ran).then_some(ended.ended_by.unwrap_or(StopStep::Exited))
}

fn outcome(server: String, outcome: OutcomeKind, begun: Moment) -> Outcome {
    Outcome {
        server,
        outcome,
        state: None,
        substate: None,
        message: None,
        ended_by: None,
        took_ms: u64::try_from((clock::now() - begun).as_millis()).unwrap_or(u64::MAX),
    }
}

/// An error for a reply that cannot be made.
pub(super) fn internal(message: impl Into<String>) -> ControlError {
    ControlError::new(ErrorKind::Internal, message)
}
