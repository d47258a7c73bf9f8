//! The configuration and who edits it: files that are saved in one step or in several, a folder
//! that is moved away, orders, signals. What is applied is decided by the cores of `config`.
//!
//! The counterpart of `daemon::registry`. Files are texts in a table here.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use mcpd::config::diagnostics::{Diagnostic, SourceText};
use mcpd::config::diff::{Change, diff};
use mcpd::config::doubts::{Doubts, Standing};
use mcpd::config::draft::Draft;
use mcpd::config::load::Loaded;
use mcpd::config::lookout::{Coverage, Hint, Lookout};
use mcpd::config::parse::{DaemonFile, Surroundings, parse_server};
use mcpd::config::spec::{DaemonConfig, ServerName, ServerSpec};
use mcpd::config::watch_set::{FolderSight, Seen};
use mcpd::instance::{Applied, Order, Setting, Verdict};
use mcpd::supervise::Mode;

use crate::clock::Tick;
use crate::orders::Command;
use crate::random::Random;
use crate::scene::Scene;
use crate::sim::Sim;
use crate::worker::Inbound;

/// `message_limit` of every server here.
pub(crate) const LARGEST_MESSAGE: usize = 32 << 10;
/// No `start_timeout` is longer here.
pub(crate) const LONGEST_START: Duration = Duration::from_secs(90);
/// After this long without a save, what is on disk is applied.
pub(crate) const SETTLED: Duration = Duration::from_secs(30);

/// A further step of a save.
#[derive(Clone, Debug)]
pub(crate) enum Save {
    /// The file has its text now.
    Written(&'static str, String),
    /// The folder is back.
    Returned,
}

/// One server that has a worker.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) worker: usize,
    pub(crate) setting: Setting,
    pub(crate) attachments: usize,
}

#[derive(Debug)]
pub(crate) struct Registry {
    /// What is on disk.
    pub(crate) files: BTreeMap<&'static str, String>,
    folder: FolderSight,
    pub(crate) slots: BTreeMap<String, Slot>,
    pub(crate) specs: BTreeMap<ServerName, ServerSpec>,
    daemon_file: DaemonFile,
    stray: Vec<Diagnostic>,
    lookout: Lookout,
    doubts: Doubts,
    coverage: Coverage,
    pub(crate) ending: Option<Mode>,
}

impl Registry {
    pub(crate) fn new(scene: &Scene) -> Self {
        let daemon_file = DaemonFile {
            config: DaemonConfig {
                memory_limit_bytes: scene.temper.pool_bytes,
                ..DaemonConfig::default()
            },
            ..DaemonFile::default()
        };
        Self {
            files: BTreeMap::new(),
            folder: FolderSight::Read,
            slots: BTreeMap::new(),
            specs: BTreeMap::new(),
            daemon_file,
            stray: Vec::new(),
            lookout: Lookout::default(),
            doubts: Doubts::default(),
            coverage: match scene.temper.is_deaf {
                true => Coverage::None,
                false => Coverage::Full,
            },
            ending: None,
        }
    }

    /// What the loader would read.
    fn read(&self) -> Loaded {
        let folder = Path::new("/c/servers.d");
        let mut seen = Seen {
            servers_dir: folder.to_owned(),
            folder: self.folder,
            has_daemon_file: true,
            ..Seen::default()
        };
        let mut servers = BTreeMap::new();
        let files = self.files.iter();
        for (name, text) in files.filter(|_| self.folder == FolderSight::Read) {
            seen.server_files.insert(file_of(name));
            servers.insert(server_name(name), parse(name, text));
        }
        Loaded {
            daemon: self.daemon_file.clone(),
            daemon_errors: Vec::new(),
            servers,
            stray: Vec::new(),
            warnings: Vec::new(),
            seen,
        }
    }

    fn standing(&self) -> Standing<'_> {
        let outcome = |(name, slot): (&String, &Slot)| {
            let name = server_name(name);
            let outcome = match &slot.setting.verdict {
                Verdict::Ok => Ok(self.specs.get(&name)?.clone()),
                Verdict::Invalid(errors) => Err(errors.clone()),
                Verdict::Removed | Verdict::Unknown => return None,
            };
            Some((name, outcome))
        };
        Standing {
            servers: self.slots.iter().filter_map(outcome).collect(),
            daemon: &self.daemon_file,
            has_daemon_file: true,
            stray: &self.stray,
        }
    }

    /// After long quiet, what is applied is what is on disk, as far as that is valid.
    pub(crate) fn assert_settled(&self) {
        if self.folder != FolderSight::Read || self.ending.is_some() {
            return;
        }
        for (name, text) in &self.files {
            let applied = self.specs.get(&server_name(name));
            if let Ok(spec) = parse(name, text) {
                assert_eq!(applied, Some(&spec), "{name} is not as its file");
            }
        }
        for name in self.specs.keys() {
            let is_there = self.files.contains_key(name.as_str());
            assert!(is_there, "{name} has no file and is applied");
        }
    }
}

pub(crate) fn server_name(name: &str) -> ServerName {
    ServerName::parse(name).expect("a name of a server")
}

fn file_of(name: &str) -> PathBuf {
    PathBuf::from(format!("/c/servers.d/{name}.toml"))
}

fn parse(name: &str, text: &str) -> Result<ServerSpec, Vec<Diagnostic>> {
    let surroundings = Surroundings {
        home: Path::new("/h"),
        is_program: &|_| true,
    };
    let source = SourceText::new(&file_of(name), text);
    parse_server(&server_name(name), &source, &Draft::default(), surroundings)
}

/// A valid file; which settings it has is up to chance.
pub(crate) fn draw_file(random: &mut Random) -> String {
    let mut text = format!(
        "command = \"x\"\nmessage_limit = \"32KiB\"\nargs = [\"{}\"]\n",
        random.below(2)
    );
    let mut maybe = |percent: u64, lines: &[&str]| {
        if random.chance(percent) {
            text.push_str(random.pick::<&str>(lines));
            text.push('\n');
        }
    };
    maybe(8, &["enabled = false"]);
    maybe(30, &["start_timeout = \"3s\"", "start_timeout = \"20s\""]);
    maybe(30, &["drain_timeout = \"0s\"", "drain_timeout = \"20s\""]);
    maybe(30, &["reload_drain_timeout = \"1s\""]);
    maybe(30, &["stop_timeout = \"0s\"", "stop_timeout = \"1s\""]);
    maybe(15, &["stop_command = [\"s\"]"]);
    maybe(
        30,
        &["request_timeout = \"2s\"", "request_timeout = \"30s\""],
    );
    maybe(30, &["max_calls = 1", "max_calls = 3"]);
    maybe(15, &["restart = \"on-failure\"", "restart = \"no\""]);
    maybe(15, &["start = \"demand\""]);
    maybe(15, &["idle_stop = \"1s\"", "idle_stop = \"20s\""]);
    maybe(30, &["stable_after = \"1s\""]);
    maybe(20, &["start_limit = 2", "start_limit = 5"]);
    maybe(15, &["tools.deny = [\"t1\"]", "tools.deny = [\"t2\"]"]);
    maybe(10, &["description = \"d\"", "# a comment"]);
    text
}

/// An order for one worker.
struct Step {
    name: ServerName,
    applied: Applied,
}

impl Sim {
    /// What happens on disk is told, unless nothing tells.
    fn hint(&mut self, hint: Hint) {
        if self.registry.coverage == Coverage::Full {
            let now = self.scene.clock.now;
            self.registry.lookout.handle_hint(hint, now);
        }
        self.schedule_look();
    }

    fn schedule_look(&mut self) {
        if let Some(at) = self.registry.lookout.poll_timeout()
            && self.registry.ending.is_none()
            && !self.is_quiet_and_deaf()
        {
            self.scene.clock.at(at, Tick::Lookout);
        }
    }

    /// Where files are polled for ever there is always something to come; not at the very end.
    fn is_quiet_and_deaf(&self) -> bool {
        self.is_quiet && self.registry.coverage == Coverage::None
    }

    pub(crate) fn lookout(&mut self) {
        let now = self.scene.clock.now;
        if self.registry.ending.is_none() && self.registry.lookout.handle_timeout(now) {
            let mut loaded = self.registry.read();
            let mut doubts = std::mem::take(&mut self.registry.doubts);
            doubts.weigh(&mut loaded, self.registry.standing(), now);
            self.looked(doubts, loaded);
        }
    }

    /// Somebody asked for a look: what is there is meant.
    pub(crate) fn reload(&mut self) {
        if self.registry.ending.is_some() {
            return;
        }
        self.registry.lookout.begin_look();
        let mut loaded = self.registry.read();
        let mut doubts = std::mem::take(&mut self.registry.doubts);
        doubts.believe(&mut loaded, self.registry.standing());
        self.looked(doubts, loaded);
    }

    fn looked(&mut self, doubts: Doubts, loaded: Loaded) {
        let (coverage, now) = (self.registry.coverage, self.scene.clock.now);
        let again = doubts.poll_timeout();
        self.registry.doubts = doubts;
        self.registry.lookout.handle_look(coverage, again, now);
        self.apply(loaded);
        self.schedule_look();
    }

    fn apply(&mut self, loaded: Loaded) {
        let specs = loaded.effective(&self.registry.specs);
        let invalid: BTreeMap<ServerName, Vec<Diagnostic>> = loaded
            .servers
            .into_iter()
            .filter_map(|(name, outcome)| outcome.err().map(|errors| (name, errors)))
            .collect();
        let before = std::mem::replace(&mut self.registry.specs, specs);
        for name in invalid.keys() {
            let (old, new) = (before.get(name), self.registry.specs.get(name));
            assert_eq!(old, new, "a bad file changed what {name} runs on");
        }
        let mut steps: Vec<Step> = diff(&before, &self.registry.specs)
            .into_iter()
            .map(|change| Step {
                name: change.name().clone(),
                applied: match change {
                    Change::Restart { .. } => Applied::Restart,
                    _ => Applied::Live,
                },
            })
            .collect();
        self.add_verdicts(&mut steps, &invalid);
        for step in steps {
            self.take(&step, invalid.get(&step.name));
        }
        self.forget_unneeded();
    }

    /// Servers of whose file something else is to be said than before.
    fn add_verdicts(&self, steps: &mut Vec<Step>, invalid: &BTreeMap<ServerName, Vec<Diagnostic>>) {
        let has_step: BTreeSet<ServerName> = steps.iter().map(|step| step.name.clone()).collect();
        let noted = |name: &ServerName| Step {
            name: name.clone(),
            applied: Applied::Noted,
        };
        for (name, errors) in invalid {
            let slot = self.registry.slots.get(name.as_str());
            let known = slot.map(|slot| &slot.setting.verdict);
            if !matches!(known, Some(Verdict::Invalid(known)) if known == errors) {
                steps.push(noted(name));
            }
        }
        for (name, slot) in &self.registry.slots {
            let name = server_name(name);
            let was_bad = matches!(slot.setting.verdict, Verdict::Invalid(_));
            if was_bad && !has_step.contains(&name) && !invalid.contains_key(&name) {
                steps.push(noted(&name));
            }
        }
    }

    /// Gives one worker its new setting, and makes the worker if there is none.
    fn take(&mut self, step: &Step, errors: Option<&Vec<Diagnostic>>) {
        let name = step.name.as_str();
        let spec = self.registry.specs.get(&step.name).cloned().map(Arc::new);
        let verdict = match errors {
            Some(errors) => Verdict::Invalid(errors.clone()),
            None if spec.is_some() => Verdict::Ok,
            None => Verdict::Removed,
        };
        let setting = Setting {
            spec,
            verdict,
            ..Setting::unknown(PathBuf::new())
        };
        match self.registry.slots.get_mut(name) {
            Some(slot) => {
                let worker = slot.worker;
                let is_calm = self.workers[worker].is_calm;
                assert!(!is_calm, "{name} is told of somebody else's edit");
                slot.setting = setting.clone();
                let command = Command::Configure(Box::new(setting), step.applied);
                self.order(worker, command);
            }
            None => self.add_slot(name, setting),
        }
    }

    pub(crate) fn order(&mut self, worker: usize, command: Command) {
        self.workers[worker].post(Inbound::Command(command), &mut self.scene);
    }

    pub(crate) fn add_slot(&mut self, name: &str, setting: Setting) {
        let worker = self.add_worker(name, setting.clone());
        let slot = Slot {
            worker,
            setting,
            attachments: 0,
        };
        self.registry.slots.insert(name.to_owned(), slot);
    }

    /// Lets workers go that have no configuration, no host and no child.
    pub(crate) fn forget_unneeded(&mut self) {
        let unneeded: Vec<String> = self
            .registry
            .slots
            .iter()
            .filter(|(_, slot)| slot.setting.is_absent() && slot.attachments == 0)
            .filter(|(_, slot)| self.workers[slot.worker].is_unneeded)
            .map(|(name, _)| name.clone())
            .collect();
        for name in unneeded {
            if let Some(slot) = self.registry.slots.remove(&name) {
                self.order(slot.worker, Command::Order(Order::Shutdown(Mode::Polite)));
            }
        }
    }

    /// A signal to the daemon: the second does not wait for anybody.
    pub(crate) fn terminate(&mut self) {
        let mode = match self.registry.ending {
            None => Mode::Polite,
            Some(_) => Mode::Kill,
        };
        if self.registry.ending == Some(Mode::Kill) {
            return;
        }
        self.scene
            .clock
            .tell("daemon", || format!("is told to end: {mode:?}"));
        self.registry.ending = Some(mode);
        self.scene.terminated.get_or_insert(self.scene.clock.now);
        let workers: Vec<usize> = self.registry.slots.values().map(|it| it.worker).collect();
        for worker in workers {
            self.order(worker, Command::Order(Order::Shutdown(mode)));
        }
    }

    /// A person does one thing.
    pub(crate) fn operate(&mut self) {
        let random = &mut self.scene.clock.random;
        let name = *random.pick(&["alpha", "beta"]);
        match random.below(16) {
            0..=2 => self.write(name),
            3 => self.write_slowly(name),
            4 => self.write_badly(name),
            5 => self.replace(name),
            6 => self.remove(name),
            7 => self.move_folder(),
            8 => {
                if self.registry.folder == FolderSight::Read {
                    self.reload();
                }
            }
            _ => self.command(name),
        }
    }

    fn command(&mut self, name: &str) {
        let Some(slot) = self.registry.slots.get(name) else {
            return;
        };
        let worker = slot.worker;
        let mode = match self.scene.clock.random.chance(30) {
            true => Mode::Kill,
            false => Mode::Polite,
        };
        let command = match self.scene.clock.random.below(8) {
            0..=2 => Command::Order(Order::Start),
            3 => Command::Order(Order::Stop(mode)),
            4..=6 => Command::Order(Order::Restart(mode)),
            _ => Command::Order(Order::ResetFailed),
        };
        if self.registry.ending.is_none() {
            self.order(worker, command);
        }
    }

    fn save(&mut self, name: &'static str, text: String) {
        self.scene
            .clock
            .tell("disk", || format!("{name}: {text:?}"));
        self.registry.files.insert(name, text);
        self.last_save = self.scene.clock.now;
        self.hint(Hint::Changed);
    }

    fn write(&mut self, name: &'static str) {
        let text = draw_file(&mut self.scene.clock.random);
        self.save(name, text);
    }

    /// An editor that empties the file and then writes it, with a pause.
    fn write_slowly(&mut self, name: &'static str) {
        let text = draw_file(&mut self.scene.clock.random);
        let cut = self.scene.clock.random.index(text.len());
        self.save(name, text[..cut].to_owned());
        let delay = self.scene.clock.random.ms(1, 900);
        let save = Tick::Save(Save::Written(name, text));
        self.scene.clock.after(delay, save);
    }

    fn write_badly(&mut self, name: &'static str) {
        let bad = self.scene.clock.random.pick(&[
            "comand = \"x\"\n",
            "command = \"x\"\nargs = 5\n",
            "command = [\n",
            "",
        ]);
        self.save(name, (*bad).to_owned());
    }

    /// An editor that removes the file and writes another in its place.
    fn replace(&mut self, name: &'static str) {
        self.remove(name);
        let text = draw_file(&mut self.scene.clock.random);
        let delay = self.scene.clock.random.ms(1, 1_500);
        let save = Tick::Save(Save::Written(name, text));
        self.scene.clock.after(delay, save);
    }

    fn remove(&mut self, name: &'static str) {
        self.scene.clock.tell("disk", || format!("{name} is gone"));
        self.registry.files.remove(name);
        self.last_save = self.scene.clock.now;
        self.hint(Hint::Changed);
    }

    /// The folder is away for a while: not so long that it is meant, where somebody is to be calm.
    fn move_folder(&mut self) {
        let sight = self
            .scene
            .clock
            .random
            .pick(&[FolderSight::Missing, FolderSight::Unreadable]);
        let is_short = self.scene.temper.has_calm || self.scene.clock.random.chance(50);
        let most = if is_short { 7_000 } else { 14_000 };
        self.registry.folder = *sight;
        self.scene
            .clock
            .tell("disk", || format!("folder: {sight:?}"));
        self.last_save = self.scene.clock.now;
        let delay = self.scene.clock.random.ms(1, most);
        self.scene.clock.after(delay, Tick::Save(Save::Returned));
        self.hint(Hint::Changed);
    }

    /// A further step of a save.
    pub(crate) fn go_on_saving(&mut self, save: Save) {
        match save {
            Save::Written(name, text) => self.save(name, text),
            Save::Returned => {
                self.scene
                    .clock
                    .tell("disk", || "folder is back".to_owned());
                self.registry.folder = FolderSight::Read;
                self.last_save = self.scene.clock.now;
                self.hint(Hint::Changed);
            }
        }
    }
}
