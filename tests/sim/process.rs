//! The processes of one run: a leader that speaks MCP as well as its manners let it, and others
//! that it leaves behind.
//!
//! It hears whole lines only: a frame that is cut in two or mixed with another ends the run of the
//! simulation. It knows which of its own requests were answered, and what it still owes.

use std::collections::BTreeSet;

use mcpd::ids::Generation;
use mcpd::supervise::{ExitStatus, StopSignal};
use serde_json::Value;

use crate::clock::{Clock, Tick};
use crate::pipe::{Outgoing, Pipe};
use crate::random::Random;
use crate::speech::{self, Call, HONEST};
use crate::temper::Temper;

/// Something that a child does of its own accord.
#[derive(Clone, Debug)]
pub(crate) enum Deed {
    /// Answers `initialize`, whatever with.
    Open,
    Answer(Call),
    /// Says something unasked.
    Whim,
    Flood,
    Exit(ExitStatus),
    CloseStdout,
    CloseStdin,
    StopReading,
    ReadAgain,
    /// What was stuck in the kernel is not any more.
    Release,
    /// One of those left behind ends.
    OtherEnds,
}

/// How the launcher answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Launch {
    Well,
    /// No process could be made, for now.
    Resources,
    /// There is no such program.
    NoProgram,
}

/// How the first exchange goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opens {
    Well,
    Never,
    WithError,
    WithNoise,
    Half,
    Twice,
}

/// What an older child does where it is asked for what it does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Discovers {
    Refuses,
    IsSilent,
    Dies,
    TalksNonsense,
    WithHalfALine,
}

/// What a child puts up with and what it does.
#[derive(Clone, Debug)]
pub(crate) struct Manners {
    pub(crate) launch: Launch,
    pub(crate) fails_to_execute: bool,
    discovers: Discovers,
    opens: Opens,
    lies: u64,
    dies: u64,
    whims: u64,
    never_answers: u64,
    leaves_behind: u64,
    ends_with_stdin: bool,
    ends_on_term: bool,
    /// SIGKILL does nothing until it is released.
    is_stuck: bool,
    slowest_ms: u64,
}

impl Manners {
    pub(crate) const fn good() -> Self {
        Self {
            launch: Launch::Well,
            fails_to_execute: false,
            discovers: Discovers::Refuses,
            opens: Opens::Well,
            lies: 0,
            dies: 0,
            whims: 0,
            never_answers: 0,
            leaves_behind: 0,
            ends_with_stdin: true,
            ends_on_term: true,
            is_stuck: false,
            slowest_ms: 50,
        }
    }

    pub(crate) fn draw(temper: &Temper, random: &mut Random) -> Self {
        let bad = |random: &mut Random| random.chance(temper.bad_starts);
        let launch = match bad(random) {
            true => random.weighted(&[
                (6, Launch::Well),
                (3, Launch::Resources),
                (1, Launch::NoProgram),
            ]),
            false => Launch::Well,
        };
        let discovers = match bad(random) {
            true => *random.pick(&[
                Discovers::Refuses,
                Discovers::IsSilent,
                Discovers::Dies,
                Discovers::TalksNonsense,
                Discovers::WithHalfALine,
            ]),
            false => Discovers::Refuses,
        };
        let opens = match bad(random) {
            true => *random.pick(&[
                Opens::Well,
                Opens::Never,
                Opens::WithError,
                Opens::WithNoise,
                Opens::Half,
                Opens::Twice,
            ]),
            false => Opens::Well,
        };
        Self {
            launch,
            fails_to_execute: bad(random) && random.chance(20),
            discovers,
            opens,
            lies: temper.lies,
            dies: temper.dies,
            whims: temper.whims,
            never_answers: temper.lies / 4,
            leaves_behind: temper.stubborn / 8,
            ends_with_stdin: !random.chance(temper.stubborn),
            ends_on_term: !random.chance(temper.stubborn),
            is_stuck: random.chance(temper.stubborn) && random.chance(8),
            slowest_ms: *random.pick(&[5, 200, 5_000, 60_000]),
        }
    }
}

/// Somebody whom the leader left behind.
#[derive(Clone, Copy, Debug)]
struct Other {
    ignores_term: bool,
    holds_stdout: bool,
}

#[derive(Debug)]
pub(crate) struct Process {
    name: String,
    worker: usize,
    pub(crate) generation: Generation,
    pub(crate) manners: Manners,
    message_limit: usize,
    /// The leader lives.
    pub(crate) leader: bool,
    /// The launcher has answered.
    pub(crate) is_launched: bool,
    pub(crate) is_executed: bool,
    pub(crate) is_reaped: bool,
    others: Vec<Other>,
    pub(crate) stdin: Pipe,
    pub(crate) stdout: Pipe,
    out: Outgoing,
    input: Vec<u8>,
    reads: bool,
    speaks: bool,
    /// The id of the `initialize` that it has heard.
    was_asked: Option<u64>,
    was_stuck: bool,
    /// It had its SIGTERM.
    was_told: bool,
    /// The daemon did not wait for it to take the last line whole.
    may_be_cut: bool,
    is_reading: bool,
    /// The daemon has been told that there is something to read.
    pub(crate) is_noticed: bool,
    unanswered: Vec<Call>,
    questions: BTreeSet<u64>,
    last_question: u64,
}

impl Process {
    pub(crate) fn new(
        name: &str,
        worker: usize,
        generation: Generation,
        manners: Manners,
        message_limit: usize,
        pipe_bytes: usize,
    ) -> Self {
        let was_stuck = manners.is_stuck;
        Self {
            name: format!("{name}.{generation}"),
            worker,
            generation,
            manners,
            message_limit,
            leader: false,
            is_launched: false,
            is_executed: false,
            is_reaped: false,
            others: Vec::new(),
            stdin: Pipe::new(pipe_bytes),
            stdout: Pipe::new(pipe_bytes),
            out: Outgoing::default(),
            input: Vec::new(),
            reads: true,
            speaks: true,
            was_asked: None,
            was_told: false,
            was_stuck,
            may_be_cut: false,
            is_reading: false,
            is_noticed: false,
            unanswered: Vec::new(),
            questions: BTreeSet::new(),
            last_question: 0,
        }
    }

    /// How many processes of this run live.
    pub(crate) fn living(&self) -> usize {
        usize::from(self.leader) + self.others.len()
    }

    fn does(&self, clock: &mut Clock, least_ms: u64, most_ms: u64, deed: Deed) {
        let delay = clock.random.ms(least_ms, most_ms);
        clock.after(delay, Tick::ChildDoes(self.worker, self.generation, deed));
    }

    /// There may be something to read.
    pub(crate) fn wake(&mut self, clock: &mut Clock) {
        let has_input = !self.stdin.is_empty() || self.stdin.writers == 0;
        if self.leader && self.is_executed && self.reads && has_input && !self.is_reading {
            self.is_reading = true;
            let delay = clock.random.ms(0, 2);
            clock.after(delay, Tick::ChildReads(self.worker, self.generation));
        }
    }

    /// Reads what there is, or a part of it.
    pub(crate) fn read(&mut self, clock: &mut Clock) {
        self.is_reading = false;
        if !self.leader || !self.reads {
            return;
        }
        let most = match clock.random.chance(20) {
            true => clock.random.index(50) + 1,
            false => usize::MAX,
        };
        let bytes = self.stdin.read(most);
        self.input.extend(bytes);
        while let Some(end) = self.input.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.input.drain(..=end).collect();
            self.hear(&line[..end], clock);
        }
        if self.stdin.is_at_end() {
            let is_whole = self.input.is_empty() || self.may_be_cut;
            assert!(is_whole, "{}: a line is cut in two", self.name);
            self.reads = false;
            if self.manners.ends_with_stdin {
                let most = self.manners.slowest_ms.min(1_000);
                self.does(clock, 0, most, Deed::Exit(ExitStatus::Code(0)));
            }
        }
        if clock.random.chance(self.manners.whims) {
            self.act_up(clock);
        }
        self.wake(clock);
    }

    /// Something that nobody asked for.
    fn act_up(&self, clock: &mut Clock) {
        let deed = clock
            .random
            .weighted(&[(8, 0), (2, 1), (2, 2), (1, 3), (1, 4), (2, 5), (1, 6)]);
        let deed = match deed {
            0 => Deed::Whim,
            1 => Deed::Flood,
            2 => Deed::Exit(ExitStatus::Code(1)),
            3 => Deed::CloseStdout,
            4 => Deed::CloseStdin,
            5 => Deed::StopReading,
            _ => Deed::Exit(ExitStatus::Signal {
                number: 11,
                core_dumped: true,
            }),
        };
        self.does(clock, 0, 500, deed);
    }

    fn hear(&mut self, line: &[u8], clock: &mut Clock) {
        let shown = String::from_utf8_lossy(line).into_owned();
        clock.tell(&self.name, || format!("hears {shown}"));
        let message: Value = serde_json::from_slice(line)
            .unwrap_or_else(|error| panic!("{} hears no message ({error}): {shown}", self.name));
        assert_eq!(message["jsonrpc"], "2.0", "{} hears {shown}", self.name);
        let method = message["method"].as_str();
        match (method, message["id"].as_u64()) {
            (Some("server/discover"), Some(id)) => self.discover(id, clock),
            (Some("initialize"), Some(id)) => {
                assert!(self.was_asked.replace(id).is_none(), "asked twice");
                let most = self.manners.slowest_ms;
                if self.manners.opens != Opens::Never {
                    self.does(clock, 0, most, Deed::Open);
                }
            }
            (Some(method), Some(id)) => {
                let call = Call {
                    id,
                    tag: message["params"]["tag"].as_u64(),
                    method: method.to_owned(),
                };
                self.unanswered.push(call.clone());
                if !clock.random.chance(self.manners.never_answers) {
                    let most = self.manners.slowest_ms;
                    self.does(clock, 0, most, Deed::Answer(call));
                }
            }
            (Some("notifications/cancelled"), None) => {
                let id = message["params"]["requestId"].as_u64();
                // Some stop, some answer all the same.
                if clock.random.chance(50) {
                    self.unanswered.retain(|call| Some(call.id) != id);
                }
            }
            (Some(_), None) => {}
            (None, Some(id)) => {
                let was_asked = self.questions.remove(&id);
                assert!(was_asked, "{} never asked {id}", self.name);
            }
            (None, None) => panic!("{} hears {shown}", self.name),
        }
    }

    pub(crate) fn act(&mut self, deed: Deed, clock: &mut Clock) {
        if let Deed::OtherEnds = deed {
            if let Some(other) = self.others.pop() {
                self.stdout.writers -= u32::from(other.holds_stdout);
                self.notice(clock);
            }
            return;
        }
        if let Deed::Release = deed {
            // What it was sent meanwhile reaches it now.
            self.manners.is_stuck = false;
            let status = ExitStatus::Signal {
                number: 9,
                core_dumped: false,
            };
            self.exit(status, clock);
            return;
        }
        if !self.leader {
            return;
        }
        match deed {
            Deed::Open => self.open(clock),
            Deed::Answer(call) => self.answer(&call, clock),
            Deed::Whim => self.whim(clock),
            Deed::Flood => {
                for _ in 0..clock.random.below(40) {
                    self.whim(clock);
                }
            }
            Deed::Exit(status) => self.exit(status, clock),
            Deed::CloseStdout => {
                if std::mem::take(&mut self.speaks) {
                    clock.tell(&self.name, || "closes its stdout".to_owned());
                    self.out.clear();
                    self.stdout.writers -= 1;
                    self.notice(clock);
                }
            }
            Deed::CloseStdin => {
                clock.tell(&self.name, || "closes its stdin".to_owned());
                self.reads = false;
                self.stdin.close_reader();
            }
            Deed::StopReading => {
                clock.tell(&self.name, || "stops reading".to_owned());
                if !self.stdin.reader_gone && self.reads {
                    self.reads = false;
                    self.does(clock, 1, 40_000, Deed::ReadAgain);
                }
            }
            Deed::ReadAgain => {
                self.reads = !self.stdin.reader_gone;
                self.wake(clock);
            }
            Deed::Release | Deed::OtherEnds => {}
        }
    }

    /// Whether it was stuck in the kernel, now or earlier.
    pub(crate) const fn was_stuck(&self) -> bool {
        self.was_stuck
    }

    /// A program is asked to end before it is made to, unless somebody is in a hurry.
    pub(crate) fn assert_asked_first(&mut self, signal: StopSignal, may_kill: bool) {
        match signal {
            StopSignal::Term => self.was_told = true,
            StopSignal::Kill | StopSignal::Sweep => {
                let is_fair = self.was_told || may_kill || !self.leader || !self.is_executed;
                assert!(is_fair, "{} is killed and was not told to end", self.name);
            }
        }
    }

    /// It is asked what it cannot know.
    fn discover(&mut self, id: u64, clock: &mut Clock) {
        let head = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id}");
        let text = match self.manners.discovers {
            Discovers::Refuses => {
                format!("{head},\"error\":{{\"code\":-32601,\"message\":\"no\"}}}}\n")
            }
            Discovers::TalksNonsense => format!("{head},\"result\":{{\"x\":1}}}}\n"),
            Discovers::WithHalfALine => format!("{head},\"result\":{{\n"),
            Discovers::IsSilent => return,
            Discovers::Dies => return self.exit(ExitStatus::Code(1), clock),
        };
        self.say(text.as_bytes(), clock);
    }

    fn open(&mut self, clock: &mut Clock) {
        let Some(id) = self.was_asked else { return };
        let head = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id}");
        let welcome = format!("{head},\"result\":{}}}\n", speech::WELCOME);
        let text = match self.manners.opens {
            Opens::Well => welcome,
            Opens::Never => return,
            Opens::WithError => {
                format!("{head},\"error\":{{\"code\":-1,\"message\":\"no\"}}}}\n")
            }
            Opens::WithNoise => format!("starting…\n\n{{\"level\":\"info\"}}\n{welcome}"),
            Opens::Half => format!("{head},\"result\":{{\n"),
            Opens::Twice => format!("{welcome}{welcome}"),
        };
        self.say(text.as_bytes(), clock);
    }

    fn answer(&mut self, call: &Call, clock: &mut Clock) {
        let Some(at) = self.unanswered.iter().position(|one| one.id == call.id) else {
            return;
        };
        self.unanswered.remove(at);
        let shape = match clock.random.chance(self.manners.lies) {
            true => *clock.random.pick(speech::ALL),
            false => *clock.random.pick(HONEST),
        };
        if clock.random.chance(self.manners.leaves_behind) {
            self.others_join(clock);
        }
        let (generation, limit) = (self.generation.0, self.message_limit);
        let text = speech::answer(shape, call, generation, limit, &mut clock.random);
        self.say(&text, clock);
    }

    /// The leader starts another process.
    fn others_join(&mut self, clock: &mut Clock) {
        let other = Other {
            ignores_term: clock.random.chance(50),
            holds_stdout: clock.random.chance(50),
        };
        self.stdout.writers += u32::from(other.holds_stdout);
        self.others.push(other);
        if clock.random.chance(50) {
            self.does(clock, 0, 20_000, Deed::OtherEnds);
        }
    }

    fn whim(&mut self, clock: &mut Clock) {
        let (text, is_question) = speech::whim(self.last_question + 1, &mut clock.random);
        if is_question && self.speaks {
            self.last_question += 1;
            self.questions.insert(self.last_question);
        }
        self.say(text.as_bytes(), clock);
    }

    /// Writes, and now and then dies before it has written all.
    fn say(&mut self, text: &[u8], clock: &mut Clock) {
        if !self.speaks {
            return;
        }
        let shown = || {
            let text = String::from_utf8_lossy(text);
            text.chars().take(160).collect::<String>()
        };
        clock.tell(&self.name, || format!("says {:?}", shown()));
        if clock.random.chance(self.manners.dies) {
            let cut = clock.random.index(text.len() + 1);
            self.out.push(&text[..cut]);
            self.pump(clock);
            return self.exit(ExitStatus::Code(3), clock);
        }
        self.out.push(text);
        self.pump(clock);
    }

    /// Moves what it has to say into the pipe.
    pub(crate) fn pump(&mut self, clock: &mut Clock) {
        if self.leader && self.out.pump(&mut self.stdout) {
            self.notice(clock);
        }
    }

    /// Has the daemon see that there is something to read, or the end.
    pub(crate) fn notice(&mut self, clock: &mut Clock) {
        let is_readable = !self.stdout.is_empty() || self.stdout.writers == 0;
        if is_readable && !self.is_noticed {
            self.is_noticed = true;
            let delay = clock.random.ms(0, 1);
            clock.after(delay, Tick::StdoutRead(self.worker, self.generation));
        }
    }

    /// The leader ends.
    pub(crate) fn exit(&mut self, status: ExitStatus, clock: &mut Clock) {
        if !std::mem::take(&mut self.leader) {
            return;
        }
        clock.tell(&self.name, || status.to_string());
        self.out.clear();
        self.stdin.close_reader();
        if std::mem::take(&mut self.speaks) {
            self.stdout.writers -= 1;
        }
        self.notice(clock);
        let delay = clock.random.ms(0, 30);
        clock.after(delay, Tick::ExitSeen(self.worker, self.generation, status));
    }

    /// The daemon closes stdin although the pipe is full.
    pub(crate) const fn forgive_cut_line(&mut self) {
        self.may_be_cut = true;
    }

    /// The daemon has closed the child's stdin.
    pub(crate) fn stdin_closed(&mut self, clock: &mut Clock) {
        self.stdin.writers = 0;
        self.wake(clock);
    }

    pub(crate) fn signal(&mut self, signal: StopSignal, clock: &mut Clock) {
        clock.tell(&self.name, || format!("gets {signal:?}"));
        let (number, is_obeyed) = match signal {
            StopSignal::Term => (15, self.manners.ends_on_term),
            StopSignal::Kill | StopSignal::Sweep => (9, !self.manners.is_stuck),
        };
        let ends = |other: &Other| signal != StopSignal::Term || !other.ignores_term;
        for other in self.others.iter().filter(|other| ends(other)) {
            self.stdout.writers -= u32::from(other.holds_stdout);
        }
        self.others.retain(|other| !ends(other));
        self.notice(clock);
        if self.leader && is_obeyed {
            let status = ExitStatus::Signal {
                number,
                core_dumped: false,
            };
            self.does(clock, 0, 5, Deed::Exit(status));
        } else if self.leader && signal != StopSignal::Term {
            self.does(clock, 1_000, 30_000, Deed::Release);
        }
    }

    /// Faults end: it reads, answers all that it owes, and ends when it is told to.
    pub(crate) fn heal(&mut self, clock: &mut Clock) {
        let stuck = self.manners.is_stuck;
        let opens = std::mem::replace(&mut self.manners, Manners::good()).opens;
        self.manners.is_stuck = false;
        if stuck && self.leader {
            self.does(clock, 0, 10, Deed::Whim);
        }
        if opens == Opens::Never && self.was_asked.is_some() {
            self.does(clock, 0, 10, Deed::Open);
        }
        self.does(clock, 0, 10, Deed::ReadAgain);
        if !self.speaks {
            // Somebody else may hold its stdout open, so that nobody sees that it says nothing.
            self.does(clock, 0, 10, Deed::Exit(ExitStatus::Code(0)));
        }
        for call in self.unanswered.clone() {
            self.does(clock, 0, 1_000, Deed::Answer(call));
        }
    }

    /// What is wrong with a run that has been quiet for long.
    pub(crate) fn assert_quiet(&self) {
        if self.leader && self.speaks && self.is_executed && !self.stdin.reader_gone {
            assert!(
                self.questions.is_empty(),
                "{}: questions {:?} were never answered",
                self.name,
                self.questions
            );
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}
