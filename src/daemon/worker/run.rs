//! One run of a child: spawning it, its pipes, and everything that says that it goes on or ends.
//!
//! Each of its descriptors has a task of its own that reads until the end, so that a child is
//! never blocked by us. What they see comes back as events with their generation.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::unix::pipe;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinHandle};

use crate::ids::Generation;
use crate::instance::RunEvent;
use crate::protocol::{ChildIdentity, Lesson, LineReader};
use crate::supervise::launcher::ProcessGroup;
use crate::supervise::state::EndedRun;
use crate::supervise::{self, Cause, Child, ExitStatus, SpawnFailure, Stage, StopSignal, Substate};
use crate::time::Moment;

use super::super::chain;
use super::super::child_output::ChildOutput;
use super::super::launch::{self, Prepared};
use super::super::port::{Flushed, Port};
use super::super::reader::{Lines, Reader};
use super::super::shared::Shared;
use super::super::stderr::{self, Tail};
use super::{Event, Worker, hand_over, part};

/// Requests that are ready leave in one write up to so many bytes; what waits longer than a write
/// takes can still be taken back.
const TOGETHER_BYTES: usize = 4 << 10;
/// How long pipes are read after everything that could write to them is dead.
const PIPE_GRACE: Duration = Duration::from_millis(250);

/// What happened to the child of one generation.
#[derive(Debug)]
pub(crate) enum ChildEvent {
    Spawned(Result<Box<Spawned>, SpawnFailure>),
    Executed(Result<(), SpawnFailure>),
    Lines(Lines),
    StdoutEnded,
    StdinWritable,
    OomKilled,
    Exited(ExitStatus),
    Members(io::Result<Vec<u32>>),
    StopCommandEnded,
}

/// A child together with what it was made from.
#[derive(Debug)]
pub(crate) struct Spawned {
    child: Child,
    prepared: Prepared,
}

/// What is kept of a run while it lives.
#[derive(Debug)]
pub(super) struct Run {
    generation: Generation,
    /// Of its worker.
    inbox: mpsc::Sender<Event>,
    group: Option<Arc<dyn ProcessGroup>>,
    stdin: Option<Port<pipe::Sender>>,
    stdout: Option<Reader<ChildOutput>>,
    tasks: Vec<AbortHandle>,
    stderr: Option<JoinHandle<()>>,
    /// Calls off what leads up to the process.
    cancel: Option<oneshot::Sender<()>>,
}

/// What is known of the last run, alive or not.
#[derive(Debug, Default)]
pub(super) struct Past {
    pub(super) tail: Tail,
    /// What the process of the last start was made from, once there was one.
    pub(super) prepared: Option<Prepared>,
    /// The last stderr line of each ended run, newest last, bounded like the runs themselves.
    pub(super) last_lines: Vec<(Generation, Option<String>)>,
}

impl Run {
    /// Has `work` done as long as the run is there.
    fn add_part(&mut self, work: impl Future<Output = ()> + Send + 'static) {
        self.tasks.retain(|task| !task.is_finished());
        let part = part::spawn(self.inbox.clone(), work);
        self.tasks.push(part.abort_handle());
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl Worker {
    /// Asks the launcher for a process. Reading what the environment needs may take a while, so
    /// it happens in a task.
    pub(super) fn spawn(&mut self, generation: Generation) {
        let Some(spec) = self.core.setting().spec.clone() else {
            debug_assert!(false, "the supervisor starts only what is configured");
            return;
        };
        self.past.tail = Tail::default();
        // By the values of the child that said it, before they are forgotten.
        if let Some(sample) = self.core.mux.noise_sample() {
            let sample = self.redact_cut(sample);
            self.core.mux.replace_noise_sample(sample);
        }
        // What the last run was made from is not what this one is tried with.
        self.past.prepared = None;
        let shared = self.shared.clone();
        let tell = self.teller(generation);
        let (cancel, cancelled) = oneshot::channel::<()>();
        let tags = shared.tags(self.named.file_name());
        let named = self.named.clone();
        let is_replacement = self.is_replacement;
        let task = part::spawn(self.handle.inbox.clone(), async move {
            let prepare = async {
                if is_replacement {
                    end_leftovers(&shared, tags).await?;
                }
                launch::prepare(&spec, &shared, &named, generation).await
            };
            let prepared = tokio::select! {
                prepared = prepare => prepared,
                _ = cancelled => Err(called_off()),
            };
            let outcome = match prepared {
                Ok((plan, prepared)) => match shared.launcher.spawn(plan, generation).await {
                    Ok(child) => Ok(Box::new(Spawned { child, prepared })),
                    Err(failure) => Err(launch::conceal(&prepared.redactor, failure)),
                },
                Err(failure) => Err(failure),
            };
            tell(ChildEvent::Spawned(outcome)).await;
        });
        self.run = Some(Run {
            generation,
            inbox: self.handle.inbox.clone(),
            group: None,
            stdin: None,
            stdout: None,
            tasks: vec![task.abort_handle()],
            stderr: None,
            cancel: Some(cancel),
        });
    }

    pub(super) fn cancel_spawn(&mut self) {
        if let Some(run) = &mut self.run {
            run.cancel = None;
        }
    }

    pub(super) fn handle_child(&mut self, generation: Generation, event: ChildEvent, now: Moment) {
        if !self.core.is_running(generation) {
            return;
        }
        match event {
            ChildEvent::Spawned(Ok(spawned)) => self.spawned(*spawned, now),
            ChildEvent::Spawned(Err(failure)) => {
                self.tell(generation, RunEvent::SpawnFailed(failure), now);
            }
            ChildEvent::Executed(Err(failure)) => {
                let failure = match &self.past.prepared {
                    Some(prepared) => launch::conceal(&prepared.redactor, failure),
                    None => failure,
                };
                self.tell(generation, RunEvent::SpawnFailed(failure), now);
            }
            ChildEvent::Executed(Ok(())) => self.executed(generation, now),
            ChildEvent::Lines(lines) => {
                self.last_activity = Some(now);
                if let Some(turn) = &self.turn {
                    turn.voice().heard();
                }
                lines.each(|line, _| {
                    if let Some(viewers) = &mut self.viewers {
                        viewers.child_line(&line, &self.core.mux, now);
                    }
                    self.core.mux.handle_child_line(generation, line, now);
                });
            }
            ChildEvent::StdinWritable => self.stdin_writable(now),
            ChildEvent::StdoutEnded => self.tell(generation, RunEvent::StdoutEnded, now),
            ChildEvent::OomKilled => self.tell(generation, RunEvent::OomKilled, now),
            ChildEvent::Exited(status) => self.tell(generation, RunEvent::Exited(status), now),
            ChildEvent::Members(found) => self.members(generation, found, now),
            ChildEvent::StopCommandEnded => {
                self.tell(generation, RunEvent::StopCommandEnded, now);
            }
        }
    }

    fn tell(&mut self, generation: Generation, event: RunEvent, now: Moment) {
        self.core.handle_run(generation, event, now);
    }

    /// There is a process: take its descriptors, and watch for its end.
    fn spawned(&mut self, spawned: Spawned, now: Moment) {
        let Spawned { child, prepared } = spawned;
        let (generation, pid) = (child.generation, child.pid);
        let executed = self.teller(generation);
        let exited = self.teller(generation);
        let pipes = pipe::Sender::from_owned_fd(child.stdin).and_then(|stdin| {
            Ok((
                stdin,
                ChildOutput::new(child.stdout)?,
                pipe::Receiver::from_owned_fd(child.stderr)?,
            ))
        });
        let Some(run) = &mut self.run else { return };
        // Not to be kept by this: its last handle ends what nobody looks after any more.
        let group = Arc::downgrade(&child.group);
        run.group = Some(child.group);
        run.add_part(async move {
            executed(ChildEvent::Executed(child.executed.await)).await;
        });
        run.add_part(async move {
            let status = child.exited.await;
            if group.upgrade().is_some_and(|group| group.was_oom_killed()) {
                exited(ChildEvent::OomKilled).await;
            }
            exited(ChildEvent::Exited(status)).await;
        });
        let broken = match pipes {
            Ok((stdin, stdout, stderr)) => {
                run.stdin = Some(Port::new(Arc::new(stdin)));
                let lines = LineReader::new(self.core.setting().policy().message_limit_bytes);
                run.stdout = Some(Reader::new(
                    Arc::new(stdout),
                    lines,
                    self.handle.transit.clone(),
                    None,
                ));
                let sink = stderr::Sink {
                    instance: self.instance.clone(),
                    log: self.log.clone(),
                    tail: self.past.tail.clone(),
                    redactor: prepared.redactor.stream(),
                    voice: self.turn.as_ref().map(super::turn::Turn::voice),
                };
                let draining = stderr::drain(stderr, sink);
                run.stderr = Some(part::spawn(self.handle.inbox.clone(), draining));
                None
            }
            Err(error) => Some(error),
        };
        self.past.prepared = Some(prepared);
        self.tell(generation, RunEvent::Spawned { pid }, now);
        if let Some(error) = broken {
            let detail = format!("cannot use the pipes of the child: {error}");
            self.tell(generation, RunEvent::Broken(detail), now);
        }
    }

    /// The program runs: from here on it is spoken to and listened to.
    fn executed(&mut self, generation: Generation, now: Moment) {
        let inbox = self.handle.inbox.clone();
        let Some(run) = &mut self.run else { return };
        if let Some(stdout) = run.stdout.take() {
            run.add_part(read_stdout(stdout, generation, inbox));
        }
        let remembered = self
            .past
            .prepared
            .as_ref()
            .and_then(|prepared| self.shared.eras.of(&prepared.era_key));
        self.tell(generation, RunEvent::Executed { remembered }, now);
    }

    fn stdin_writable(&mut self, now: Moment) {
        if let Some(port) = self.run.as_mut().and_then(|run| run.stdin.as_mut()) {
            port.woken();
            self.flush_child(now);
        }
    }

    /// Writes what is queued for the child until its pipe takes no more.
    pub(super) fn flush_child(&mut self, now: Moment) {
        let Some(run) = &mut self.run else { return };
        let generation = run.generation;
        let Some(port) = &mut run.stdin else { return };
        loop {
            if port.is_free() {
                while port.held_bytes() < TOGETHER_BYTES
                    && let Some(frame) = self.core.mux.poll_child_frame(now)
                {
                    if let Some(viewers) = &mut self.viewers {
                        viewers.child_frame(&frame, &self.core.mux, now);
                    }
                    port.put(frame);
                }
                if port.is_free() {
                    return;
                }
            }
            match port.flush() {
                Flushed::Whole => {}
                Flushed::Full => {
                    let inbox = self.handle.inbox.clone();
                    port.wait(async move {
                        let event = Event::Child(generation, ChildEvent::StdinWritable);
                        // A worker that has gone waits for nobody.
                        drop(inbox.send(event).await);
                    });
                    return;
                }
                Flushed::Broken(error) => {
                    // The child reads no more. What it still says is heard; what it was not told
                    // stays with the multiplexer until the supervisor has ended this run.
                    run.stdin = None;
                    self.stdin_broken(generation, &error, now);
                    return;
                }
            }
        }
    }

    fn stdin_broken(&mut self, generation: Generation, error: &io::Error, now: Moment) {
        self.log.event(
            &self.instance,
            &format!("cannot write to its stdin: {error}"),
        );
        self.tell(generation, RunEvent::StdinBroken, now);
    }

    /// The handshake is done.
    pub(super) fn log_opened(&self, identity: &ChildIdentity) {
        let name = identity.server_name.as_deref().unwrap_or("(no name)");
        let version = identity.server_version.as_deref().unwrap_or("(no version)");
        let protocol = identity.version.as_str();
        let text = stderr::escape(&format!("opened: {name} {version}, MCP {protocol}"));
        self.log.event(&self.instance, &self.redact(&text));
    }

    /// What children of this configuration speak is known now, or is not known any more.
    pub(super) fn learnt(&self, lesson: Lesson) {
        if let Some(prepared) = &self.past.prepared {
            self.shared.eras.learn(prepared.era_key.clone(), lesson);
        }
    }

    /// What the multiplexer has to say, into the server's log; what a peer sent is redacted.
    pub(super) fn log_mux(&self, text: &str) {
        let text = self.redact_cut(&stderr::escape(text));
        self.log.event(&self.instance, &text);
    }

    /// Ends the child's input: everything queued that fits goes out, no line is cut in two.
    pub(super) fn close_stdin(&mut self, now: Moment) {
        self.flush_child(now);
        if let Some(run) = &mut self.run {
            run.stdin = None;
        }
    }

    pub(super) fn run_stop_command(&mut self, limit: Duration) {
        let prepared = self.past.prepared.as_ref();
        let errand = prepared.and_then(|prepared| prepared.stop_command(limit));
        let Some(run) = &mut self.run else { return };
        let (generation, log) = (run.generation, self.log.clone());
        let (instance, inbox) = (self.instance.clone(), self.handle.inbox.clone());
        let shared = self.shared.clone();
        run.add_part(async move {
            if let Some(errand) = errand {
                let outcome = errand.run(&*shared.launcher).await;
                let text = match outcome {
                    Ok(_) => "stop_command: done".to_owned(),
                    Err(error) => format!("stop_command: {}", chain(&error)),
                };
                log.event(&instance, &text);
            }
            let event = Event::Child(generation, ChildEvent::StopCommandEnded);
            // A worker that has gone waits for nobody.
            drop(inbox.send(event).await);
        });
    }

    pub(super) fn signal(&self, signal: StopSignal) {
        let Some(group) = self.run.as_ref().and_then(|run| run.group.clone()) else {
            return;
        };
        let (log, instance) = (self.log.clone(), self.instance.clone());
        let send = move || {
            if let Err(error) = group.signal(signal) {
                log.event(&instance, &format!("cannot signal: {error}"));
            }
        };
        match signal {
            StopSignal::Term | StopSignal::Kill => send(),
            // Many looks at all of `/proc`, away from this thread; it has only to come before the
            // next look at who is left, not before anything else.
            StopSignal::Sweep => drop(part::spawn_blocking(send)),
        }
    }

    /// The folder of the control group in which the run is.
    pub(super) fn control_group(&self) -> Option<&Path> {
        self.run.as_ref()?.group.as_ref()?.control_group()
    }

    /// Looks who is left, away from this thread: it reads all of `/proc`.
    pub(super) fn verify(&mut self) {
        let Some(group) = self.run.as_ref().and_then(|run| run.group.clone()) else {
            return;
        };
        let Some(run) = &mut self.run else { return };
        let (generation, inbox) = (run.generation, self.handle.inbox.clone());
        run.add_part(async move {
            let looked = part::spawn_blocking(move || group.members()).await;
            let found = looked.unwrap_or_else(|panic| Err(io::Error::other(panic)));
            let event = Event::Child(generation, ChildEvent::Members(found));
            // A worker that has gone waits for nobody.
            drop(inbox.send(event).await);
        });
    }

    fn members(&mut self, generation: Generation, found: io::Result<Vec<u32>>, now: Moment) {
        let event = match found {
            Ok(pids) => RunEvent::Left(pids),
            Err(error) => {
                self.log
                    .event(&self.instance, &format!("cannot tell who is left: {error}"));
                RunEvent::Unseen
            }
        };
        self.tell(generation, event, now);
    }

    pub(super) fn reap(&self) {
        let Some(group) = self.run.as_ref().and_then(|run| run.group.as_ref()) else {
            return;
        };
        if let Err(error) = group.reap() {
            self.log
                .event(&self.instance, &format!("cannot reap: {error}"));
        }
    }

    /// Forgets the run. Its standard error may still hold last words.
    pub(super) fn close_pipes(&mut self) {
        let Some(mut run) = self.run.take() else {
            return;
        };
        let Some(mut stderr) = run.stderr.take() else {
            return;
        };
        tokio::spawn(async move {
            if tokio::time::timeout(PIPE_GRACE, &mut stderr).await.is_err() {
                stderr.abort();
            }
        });
    }

    pub(super) fn log_change(&mut self, from: Substate, to: Substate, cause: Cause) {
        self.mark_changed();
        let text = format!("{} -> {} ({})", from.as_str(), to.as_str(), cause.as_str());
        self.log.event(&self.instance, &text);
        self.show_state(&text);
        tracing::info!(
            server = &*self.instance,
            from = from.as_str(),
            to = to.as_str(),
            cause = cause.as_str(),
            "state"
        );
    }

    pub(super) fn log_end(&mut self, ended: &EndedRun) {
        let last = self.past.tail.last(1).pop();
        self.past.last_lines.push((ended.generation, last));
        let surplus = self
            .past
            .last_lines
            .len()
            .saturating_sub(supervise::state::KEPT_RUNS);
        self.past.last_lines.drain(..surplus);
        let step = ended.ended_by.map_or("by itself", Substate::as_str);
        self.log
            .event(&self.instance, &format!("{}; ended {step}", ended.message));
    }

    /// A function that sends events of one generation to this worker.
    fn teller(
        &self,
        generation: Generation,
    ) -> impl Fn(ChildEvent) -> Told + Send + 'static + use<> {
        let inbox = self.handle.inbox.clone();
        move |event| {
            let inbox = inbox.clone();
            Box::pin(async move {
                // A worker that has gone waits for nobody.
                drop(inbox.send(Event::Child(generation, event)).await);
            })
        }
    }
}

/// Ends what may be left of the run of a worker that broke: nothing starts beside it.
async fn end_leftovers(shared: &Shared, tags: String) -> Result<(), SpawnFailure> {
    let refused = |detail| Err(SpawnFailure::new(Stage::Spawn, None, detail));
    match shared.launcher.sweep(tags).await {
        Ok(left) if left.is_empty() => Ok(()),
        Ok(left) => refused(format!("processes of the run before are left: {left:?}")),
        Err(error) => refused(format!("cannot look for the run before: {error}")),
    }
}

fn called_off() -> SpawnFailure {
    SpawnFailure::new(Stage::Environment, None, "the start was called off")
}

type Told = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

/// Hands over everything that the child says until its output ends.
async fn read_stdout(
    mut stdout: Reader<ChildOutput>,
    generation: Generation,
    inbox: mpsc::Sender<Event>,
) {
    let said = |event| Event::Child(generation, event);
    // A pipe that fails to be read has no more to say.
    while let Ok(Some(lines)) = stdout.next().await {
        // A worker that has gone waits for nobody.
        drop(hand_over(&inbox, said(ChildEvent::Lines(lines))).await);
    }
    drop(inbox.send(said(ChildEvent::StdoutEnded)).await);
}
