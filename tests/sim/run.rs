//! One run of a child as the worker sees it: its spawn, its pipes, the words that tell of its end.
//!
//! The counterpart of `daemon::worker::run`, with processes that are played.

use mcpd::ids::Generation;
use mcpd::instance::RunEvent;
use mcpd::protocol::{Kind, Line, LineReader, Outcome};
use mcpd::supervise::{SpawnFailure, Stage, StopSignal};
use serde::Deserialize;

use crate::clock::Tick;
use crate::pipe::{Flushed, Port};
use crate::process::{Launch, Manners, Process};
use crate::scene::Scene;
use crate::worker::{ChildEvent, Given, Inbound, Run, Worker};

/// What is read of a frame for a child.
#[derive(Debug, Deserialize)]
struct Upstream {
    id: Option<u64>,
    method: Option<String>,
    #[serde(default)]
    params: UpstreamParams,
}

#[derive(Debug, Default, Deserialize)]
struct UpstreamParams {
    tag: Option<u64>,
    #[serde(rename = "requestId")]
    request_id: Option<u64>,
}

impl Worker {
    pub(crate) fn process(&mut self, generation: Generation) -> Option<&mut Process> {
        self.processes
            .iter_mut()
            .find(|process| process.generation == generation)
    }

    fn living_process(&mut self) -> Option<&mut Process> {
        let generation = self.run.as_ref()?.generation;
        self.process(generation)
    }

    pub(crate) fn spawn(&mut self, generation: Generation, scene: &mut Scene) {
        assert!(
            self.processes.is_empty(),
            "{}: {generation} starts while {} is not gone",
            self.name,
            self.processes[0].name()
        );
        assert!(self.core.setting().may_run(), "{} may not run", self.name);
        let manners = match self.is_calm || scene.is_healed {
            true => Manners::good(),
            false => Manners::draw(&scene.temper, &mut scene.clock.random),
        };
        let (pipe_bytes, limit) = (scene.pipe_bytes(), self.limit());
        self.processes.push(Process::new(
            &self.name, self.place, generation, manners, limit, pipe_bytes,
        ));
        self.given = Given::default();
        self.is_asked = false;
        self.run = Some(Run {
            generation,
            has_group: false,
            stdin: None,
            stdout: None,
            is_read: false,
            is_called_off: false,
        });
        let most = *scene.clock.random.pick(&[1, 100, 15_000]);
        let delay = match self.is_calm {
            true => scene.clock.random.ms(0, 50),
            false => scene.clock.random.ms(0, most),
        };
        scene
            .clock
            .after(delay, Tick::Launched(self.place, generation));
    }

    pub(crate) fn limit(&self) -> usize {
        self.core.setting().policy().message_limit_bytes
    }

    /// What leads up to the process is called off, if it has not gone too far.
    pub(crate) fn cancel_spawn(&mut self, scene: &mut Scene) {
        if let Some(run) = &mut self.run
            && !run.has_group
            && scene.clock.random.chance(50)
        {
            run.is_called_off = true;
            let generation = run.generation;
            let delay = scene.clock.random.ms(0, 20);
            scene
                .clock
                .after(delay, Tick::Launched(self.place, generation));
        }
    }

    /// The launcher answers, once.
    pub(crate) fn launched(&mut self, generation: Generation, scene: &mut Scene) {
        let is_dropped = self.is_finished;
        let is_called_off = self.run.as_ref().is_some_and(|run| run.is_called_off);
        let Some(process) = self.process(generation).filter(|it| !it.is_launched) else {
            return;
        };
        process.is_launched = true;
        if is_dropped {
            return self.processes.clear();
        }
        let refuse = |stage, errno| Err(SpawnFailure::new(stage, errno, "cannot be started"));
        let outcome = match process.manners.launch {
            _ if is_called_off => refuse(Stage::Environment, None),
            Launch::Well => Ok(u32::try_from(generation.0).unwrap_or(u32::MAX)),
            Launch::Resources => refuse(Stage::Spawn, Some(11)),
            Launch::NoProgram => refuse(Stage::Resolve, None),
        };
        match outcome {
            Ok(_) => {
                process.leader = true;
                let delay = scene.clock.random.ms(0, 20);
                scene
                    .clock
                    .after(delay, Tick::Executed(self.place, generation));
            }
            Err(_) => self.processes.retain(|it| it.generation != generation),
        }
        self.post(
            Inbound::Child(generation, ChildEvent::Spawned(outcome)),
            scene,
        );
    }

    /// The status pipe tells whether the program runs.
    pub(crate) fn executed(&mut self, generation: Generation, scene: &mut Scene) {
        let Some(process) = self.process(generation).filter(|it| it.leader) else {
            // It was killed before it got so far: the pipe ends all the same.
            let event = ChildEvent::Executed(Ok(()));
            return self.post(Inbound::Child(generation, event), scene);
        };
        let outcome = match process.manners.fails_to_execute {
            true => Err(SpawnFailure::new(Stage::Exec, Some(2), "not there")),
            false => Ok(()),
        };
        if outcome.is_ok() {
            process.is_executed = true;
            process.wake(&mut scene.clock);
        } else {
            process.exit(mcpd::supervise::ExitStatus::Code(127), &mut scene.clock);
        }
        self.post(
            Inbound::Child(generation, ChildEvent::Executed(outcome)),
            scene,
        );
    }

    pub(crate) fn handle_child(
        &mut self,
        generation: Generation,
        event: ChildEvent,
        scene: &mut Scene,
    ) {
        let now = scene.clock.now;
        if !self.core.is_running(generation) {
            return;
        }
        match event {
            ChildEvent::Spawned(Ok(pid)) => {
                if let Some(run) = &mut self.run {
                    run.has_group = true;
                    run.stdin = Some(Port::default());
                    let limit = self.core.setting().policy().message_limit_bytes;
                    run.stdout = Some(LineReader::new(limit));
                }
                self.tell(generation, RunEvent::Spawned { pid }, now);
            }
            ChildEvent::Spawned(Err(failure)) | ChildEvent::Executed(Err(failure)) => {
                self.tell(generation, RunEvent::SpawnFailed(failure), now);
            }
            ChildEvent::Executed(Ok(())) => self.begin_session(generation, scene),
            ChildEvent::Lines(lines) => {
                self.heard(scene);
                for line in lines {
                    self.note_child_line(&line, scene);
                    self.core.mux.handle_child_line(generation, line, now);
                }
            }
            ChildEvent::StdoutEnded => self.tell(generation, RunEvent::StdoutEnded, now),
            ChildEvent::StdinWritable => {
                if let Some(port) = self.run.as_mut().and_then(|run| run.stdin.as_mut()) {
                    port.is_waiting = false;
                    self.flush_child(scene);
                }
            }
            ChildEvent::Exited(status) => self.tell(generation, RunEvent::Exited(status), now),
            ChildEvent::Members(pids) => self.tell(generation, RunEvent::Left(pids), now),
            ChildEvent::StopCommandEnded => {
                self.tell(generation, RunEvent::StopCommandEnded, now);
            }
        }
    }

    /// The program runs: from here on it is spoken to and listened to.
    fn begin_session(&mut self, generation: Generation, scene: &mut Scene) {
        if let Some(run) = &mut self.run {
            run.is_read = run.stdout.is_some();
        }
        if let Some(process) = self.process(generation) {
            process.is_noticed = false;
            process.notice(&mut scene.clock);
        }
        let now = scene.clock.now;
        let remembered = None;
        self.tell(generation, RunEvent::Executed { remembered }, now);
    }

    /// The first answer that opens a session; from then on requests may be written.
    fn note_child_line(&mut self, line: &Line, scene: &Scene) {
        let asked = self.given.was_asked;
        let opens = |message: &mcpd::protocol::Message| {
            message.kind() == Kind::Response
                && asked.is_some()
                && message.id().and_then(|id| id.as_u64()) == asked
                && message.outcome() == Some(Outcome::Result)
        };
        if let Line::Message(message) = line
            && opens(message)
            && !self.given.is_open
        {
            self.given.is_open = true;
            self.unserved_since = None;
            scene.clock.tell(&self.name, || "session opens".to_owned());
        }
    }

    /// The daemon reads what a child has said.
    pub(crate) fn read_stdout(&mut self, generation: Generation, scene: &mut Scene) {
        let has_room = self.has_room();
        let is_read = self
            .run
            .as_ref()
            .is_some_and(|run| run.generation == generation && run.is_read);
        let Some(process) = self.process(generation).filter(|_| is_read) else {
            return;
        };
        process.is_noticed = false;
        if !has_room {
            process.is_noticed = true;
            let delay = scene.clock.random.ms(1, 20);
            return scene
                .clock
                .after(delay, Tick::StdoutRead(self.place, generation));
        }
        let most = match scene.clock.random.chance(20) {
            true => scene.clock.random.index(60) + 1,
            false => usize::MAX,
        };
        let bytes = process.stdout.read(most);
        process.pump(&mut scene.clock);
        let is_over = process.stdout.is_at_end();
        if !is_over {
            process.notice(&mut scene.clock);
        }
        let Some(reader) = self.run.as_mut().and_then(|run| run.stdout.as_mut()) else {
            return;
        };
        reader.feed(&bytes);
        let mut lines: Vec<Line> = std::iter::from_fn(|| reader.poll()).collect();
        if is_over {
            lines.extend(reader.finish());
        }
        if !lines.is_empty() {
            self.post(Inbound::Child(generation, ChildEvent::Lines(lines)), scene);
        }
        if is_over {
            if let Some(run) = &mut self.run {
                run.is_read = false;
            }
            self.post(Inbound::Child(generation, ChildEvent::StdoutEnded), scene);
        }
    }

    /// A child reads from its stdin, which may make room there.
    pub(crate) fn child_reads(&mut self, generation: Generation, scene: &mut Scene) {
        let Some(process) = self.process(generation) else {
            return;
        };
        process.read(&mut scene.clock);
        self.wake_writer(generation, scene);
    }

    /// Tells the worker that a child's stdin takes more, or never will, if it waits for that.
    pub(crate) fn wake_writer(&mut self, generation: Generation, scene: &mut Scene) {
        let is_ready = self
            .process(generation)
            .is_none_or(|process| process.stdin.free() > 0 || process.stdin.reader_gone);
        let run = self.run.as_mut().filter(|run| run.generation == generation);
        if let Some(port) = run.and_then(|run| run.stdin.as_mut())
            && port.is_waiting
            && is_ready
        {
            // Told once: the worker asks again if it has to.
            port.is_waiting = false;
            self.post(Inbound::Child(generation, ChildEvent::StdinWritable), scene);
        }
    }

    /// Writes what is queued for the child until its pipe takes no more.
    pub(crate) fn flush_child(&mut self, scene: &mut Scene) {
        let Some(generation) = self.run.as_ref().map(|run| run.generation) else {
            return;
        };
        loop {
            let now = scene.clock.now;
            let Some(port) = self.run.as_mut().and_then(|run| run.stdin.as_mut()) else {
                return;
            };
            if port.current.is_none() {
                let Some(frame) = self.core.mux.poll_child_frame(now) else {
                    return;
                };
                self.note_child_frame(&frame.to_vec(), scene);
                if let Some(port) = self.run.as_mut().and_then(|run| run.stdin.as_mut()) {
                    port.current = Some(frame);
                }
            }
            match self.flush_stdin(generation) {
                Flushed::Whole => {}
                Flushed::Full => {
                    if let Some(port) = self.run.as_mut().and_then(|run| run.stdin.as_mut()) {
                        port.is_waiting = true;
                    }
                    break;
                }
                Flushed::Broken => {
                    if let Some(run) = &mut self.run {
                        run.stdin = None;
                    }
                    self.tell(generation, RunEvent::StdinBroken, now);
                    return;
                }
            }
            if let Some(process) = self.process(generation) {
                process.wake(&mut scene.clock);
            }
        }
        if let Some(process) = self.process(generation) {
            process.wake(&mut scene.clock);
        }
    }

    fn flush_stdin(&mut self, generation: Generation) -> Flushed {
        let process = self
            .processes
            .iter_mut()
            .find(|process| process.generation == generation);
        let port = self.run.as_mut().and_then(|run| run.stdin.as_mut());
        match (process, port) {
            (Some(process), Some(port)) => port.flush(&mut process.stdin),
            _ => Flushed::Broken,
        }
    }

    /// What must hold of each frame that a child is given.
    fn note_child_frame(&mut self, frame: &[u8], scene: &mut Scene) {
        let shown = String::from_utf8_lossy(frame);
        let name = &self.name;
        let message: Upstream = serde_json::from_slice(frame)
            .unwrap_or_else(|error| panic!("{name} is sent no message ({error}): {shown}"));
        if let Some(id) = message.params.request_id {
            let is_known = self.given.ids.contains(&id);
            assert!(is_known, "{name}: {shown} names no request of this child");
        }
        let (Some(method), Some(id)) = (message.method, message.id) else {
            return;
        };
        let is_new = id > 0 && self.given.ids.insert(id);
        assert!(is_new, "{name}: id {id} was used before: {shown}");
        if method == "initialize" {
            let before = self.given.was_asked.replace(id);
            assert!(before.is_none(), "{name} is asked to open twice");
            return;
        }
        if method == "server/discover" {
            // Its end by that is no fault of its own, and another starts at once.
            self.is_asked = true;
            return;
        }
        assert!(
            self.given.is_open,
            "{name}: {shown} comes before the session is open"
        );
        let generation = self.core.supervisor().generation();
        if let Some(tag) = message.params.tag {
            scene.note_written(name, tag, generation, &shown);
        }
    }

    pub(crate) fn close_stdin(&mut self, scene: &mut Scene) {
        self.flush_child(scene);
        let Some(run) = &mut self.run else { return };
        let port = run.stdin.take();
        // A line that could not be finished dies with a child that does not read.
        let is_cut = port.is_some_and(|port| port.current.is_some());
        if let Some(process) = self.living_process() {
            if is_cut {
                process.forgive_cut_line();
            }
            process.stdin_closed(&mut scene.clock);
        }
    }

    pub(crate) fn run_stop_command(&self, limit: std::time::Duration, scene: &mut Scene) {
        if let Some(run) = &self.run {
            let delay = limit * u32::try_from(scene.clock.random.below(3)).unwrap_or(0) / 2;
            let tick = Tick::StopCommandEnded(self.place, run.generation);
            scene.clock.after(delay, tick);
        }
    }

    pub(crate) fn signal(&mut self, signal: StopSignal, scene: &mut Scene) {
        let has_group = self.run.as_ref().is_some_and(|run| run.has_group);
        let may_kill = self.may_kill;
        if let Some(process) = self.living_process().filter(|_| has_group) {
            process.assert_asked_first(signal, may_kill);
            process.signal(signal, &mut scene.clock);
        }
    }

    pub(crate) fn verify(&self, scene: &mut Scene) {
        if let Some(run) = self.run.as_ref().filter(|run| run.has_group) {
            let delay = scene.clock.random.ms(0, 20);
            scene
                .clock
                .after(delay, Tick::Looked(self.place, run.generation));
        }
    }

    /// Somebody has looked: this is what was seen.
    pub(crate) fn looked(&mut self, generation: Generation, scene: &mut Scene) {
        let living = self.process(generation).map_or(0, |it| it.living());
        let pids = (1..=u32::try_from(living).unwrap_or(u32::MAX)).collect();
        self.post(Inbound::Child(generation, ChildEvent::Members(pids)), scene);
    }

    pub(crate) fn reap(&mut self) {
        let name = self.name.clone();
        let process = self.living_process().expect("something to reap");
        assert_eq!(process.living(), 0, "{name} is reaped and not gone");
        process.is_reaped = true;
    }

    /// Forgets the run.
    pub(crate) fn close_pipes(&mut self) {
        let Some(run) = self.run.take() else { return };
        self.processes.retain(|process| {
            let is_over = process.generation == run.generation;
            let is_gone = process.is_reaped && process.living() == 0;
            assert!(
                !is_over || is_gone,
                "{} is forgotten and lives",
                process.name()
            );
            !is_over
        });
    }
}
