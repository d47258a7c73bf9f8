//! Bringing the workers in line with the files.
//!
//! `config` has decided what changed; here each change becomes an order to the one worker it
//! concerns. A file that is bad changes nothing for its server but what is said of it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use crate::config::diagnostics::Diagnostic;
use crate::config::diff::{Change, describe_live, diff};
use crate::config::doubts::Standing;
use crate::config::load::{self, LoadRequest, Loaded};
use crate::config::spec::{ServerName, ServerSpec, Start};
use crate::config::watch_set::WatchSet;
use crate::control::{
    ChangeKind, ControlError, ReloadChange, ReloadReport, ServerStatus, State, Substate,
};
use crate::instance::Owner;
use crate::time::Moment;

use super::super::clock;
use super::super::named::{Named, server_of};
use super::super::worker::{
    Applied, Command, Event as WorkerEvent, Setting, Verdict, WorkerHandle,
};
use super::answer::internal;
use super::watching::{Watching, watch_set};
use super::{Answer, Registry, Slot};

/// The one key of the daemon that cannot change while it runs.
const PATH_IS_FIXED: &str =
    "mcpd.toml: a change of `path` takes effect when the daemon is started again";

/// An edit that was noticed so long ago is one that the next `reload` is about.
const JUST: Duration = Duration::from_secs(10);

/// An order for one worker, and how it is told to whoever asked for the reload.
struct Step {
    name: ServerName,
    applied: Applied,
    /// Whether anything is not as it was; a file that stays as bad as it was is told all the same.
    is_news: bool,
    report: Option<(ChangeKind, String)>,
}

impl Step {
    fn into_report(self) -> Option<ReloadChange> {
        let (change, detail) = self.report?;
        Some(ReloadChange {
            server: self.name.to_string(),
            change,
            detail,
            failed: false,
        })
    }
}

/// A worker that a reload gave something to do.
struct Touched {
    worker: WorkerHandle,
    /// Calls that were open when its child was told to end, and errors that hosts had had by then.
    drain: Option<(u64, u64)>,
}

impl Touched {
    /// Tells in the report which calls the end of the child waits for.
    fn of(worker: WorkerHandle, step: &mut Step) -> Self {
        let requests = worker.published.borrow().status.requests.clone();
        let open = requests.in_flight;
        let drains = step.applied == Applied::Restart && open > 0;
        if drains && let Some((_, detail)) = &mut step.report {
            // Writing to a string cannot fail.
            _ = write!(detail, " (draining {})", render_requests(open));
        }
        Self {
            worker,
            drain: drains.then_some((open, requests.errors)),
        }
    }
}

impl Registry {
    /// The configuration that the daemon begins with.
    pub(in super::super) async fn apply_first(&mut self, mut loaded: Loaded) {
        let begun = clock::now();
        let set = watch_set(self.paths.config_dir(), &loaded.seen);
        self.weigh(&mut loaded, &set, Watching::believe);
        let (report, _) = self.apply(loaded, begun).await;
        for error in &report.errors {
            tracing::warn!("{error}");
        }
    }

    /// Reads all files, since something may have changed, and applies what has and is not doubtful.
    pub(super) async fn look(&mut self) {
        let begun = clock::now();
        match self.read().await {
            Ok((mut loaded, set)) => {
                self.weigh(&mut loaded, &set, Watching::weigh);
                let (report, touched) = self.apply(loaded, begun).await;
                log(&report);
                if !touched.is_empty() {
                    let workers = touched.into_iter().map(|one| one.worker).collect();
                    self.set_going = Some((clock::now(), workers));
                }
            }
            Err(error) => tracing::error!("{}", error.message),
        }
    }

    /// Looks at once where somebody asks for a server that is not known, and may just have been
    /// added.
    pub(super) async fn look_before(&mut self, names: &[String]) {
        let is_known = |name: &String| {
            let slot = self.slots.get(server_of(name));
            slot.is_some_and(|slot| !slot.setting.is_absent())
        };
        if self.ending.is_none() && !names.iter().all(is_known) && self.watching.has_news() {
            self.watching.begin_look();
            self.look().await;
        }
    }

    /// Reads all files and applies what changed; with `wait` the answer comes when every stop and
    /// start that follows has ended.
    pub(super) async fn reload(&mut self, answer: Option<Answer>, wait: bool) {
        if self.ending.is_some() {
            return;
        }
        let _reloading = self.facts.notifier.reloading();
        let begun = clock::now();
        self.watching.begin_look();
        let outcome = match self.read().await {
            Ok((mut loaded, set)) => {
                self.weigh(&mut loaded, &set, Watching::believe);
                let (report, mut touched) = self.apply(loaded, begun).await;
                log(&report);
                touched.extend(self.just_set_going(begun));
                Ok((report, touched))
            }
            Err(error) => Err(error),
        };
        let Some(answer) = answer else { return };
        tokio::spawn(async move {
            let reply = match outcome {
                Ok((mut report, touched)) => {
                    if wait {
                        settle(touched, &mut report.changes).await;
                    }
                    report.took_ms = millis_since(begun);
                    serde_json::to_value(report).map_err(|error| internal(error.to_string()))
                }
                Err(error) => Err(error),
            };
            // Whoever asked may have left.
            drop(answer.send(reply));
        });
    }

    /// The workers that are busy with an edit which was noticed just before somebody asked for it
    /// to be applied.
    fn just_set_going(&mut self, now: Moment) -> Vec<Touched> {
        let touch = |worker| Touched {
            worker,
            drain: None,
        };
        match self.set_going.take() {
            Some((at, workers)) if now.since(at) < JUST => workers.into_iter().map(touch).collect(),
            _ => Vec::new(),
        }
    }

    /// Reads the whole folder, away from the runtime's thread, and finds out what to watch of it.
    async fn read(&self) -> Result<(Loaded, WatchSet), ControlError> {
        let (config_dir, shared) = (self.paths.config_dir().to_owned(), self.shared.clone());
        let last = self.daemon_file.clone();
        let reading = tokio::task::spawn_blocking(move || {
            let loaded = load::load(LoadRequest {
                config_dir: &config_dir,
                base: &shared.base,
                hash_key: Some(&shared.hash_key),
                last_daemon_file: Some(&last),
            });
            let set = watch_set(&config_dir, &loaded.seen);
            (loaded, set)
        });
        reading
            .await
            .map_err(|panic| internal(format!("the configuration cannot be read: {panic}")))
    }

    /// Has a reading judged against what is applied.
    fn weigh(
        &mut self,
        loaded: &mut Loaded,
        set: &WatchSet,
        judge: impl FnOnce(&mut Watching, &mut Loaded, Standing<'_>, &WatchSet),
    ) {
        let outcome = |(name, slot): (&Arc<str>, &Slot)| {
            let name = ServerName::parse(name)?;
            let outcome = match &slot.setting.verdict {
                Verdict::Ok => Ok(self.specs.get(&name)?.clone()),
                Verdict::Invalid(errors) => Err(errors.clone()),
                Verdict::Removed | Verdict::Unknown => return None,
            };
            Some((name, outcome))
        };
        let standing = Standing {
            servers: self.slots.iter().filter_map(outcome).collect(),
            daemon: &self.daemon_file,
            has_daemon_file: self.has_daemon_file,
            stray: &self.stray,
        };
        judge(&mut self.watching, loaded, standing, set);
    }

    async fn apply(&mut self, loaded: Loaded, begun: Moment) -> (ReloadReport, Vec<Touched>) {
        let specs = loaded.effective(&self.specs);
        let mut invalid: BTreeMap<ServerName, Vec<Diagnostic>> = loaded
            .servers
            .into_iter()
            .filter_map(|(name, outcome)| outcome.err().map(|errors| (name, errors)))
            .collect();
        let changes = diff(&self.specs, &specs);
        let mut steps: Vec<Step> = changes
            .into_iter()
            .map(|change| step(change, &self.specs, &specs))
            .collect();
        self.add_verdict_steps(&mut steps, &specs, &invalid);
        let from_generation = self.generation;
        if steps.iter().any(|step| step.is_news) {
            self.generation += 1;
        }
        self.specs = specs;
        self.stray = loaded.daemon_errors;
        self.stray.extend(loaded.stray);
        self.shared
            .pool
            .set_limit(loaded.daemon.config.memory_limit_bytes);
        let path_changed = self.daemon_file.config.path != loaded.daemon.config.path;
        self.daemon_file = loaded.daemon;
        self.has_daemon_file = loaded.seen.has_daemon_file;
        let mut report = ReloadReport {
            from_generation,
            to_generation: self.generation,
            errors: self
                .stray
                .iter()
                .map(Diagnostic::to_line_with_hint)
                .collect(),
            ..ReloadReport::default()
        };
        if path_changed && from_generation > 0 {
            report.errors.push(PATH_IS_FIXED.to_owned());
        }
        let mut touched = Vec::new();
        for mut step in steps {
            if step.is_news
                && let Some(workers) = self.take(&step, &mut invalid).await
            {
                for worker in workers {
                    touched.push(Touched::of(worker, &mut step));
                }
            }
            report.changes.extend(step.into_report());
        }
        self.forget_unneeded().await;
        report.took_ms = millis_since(begun);
        (report, touched)
    }

    /// Steps for servers whose file became bad, stays bad in another way, or is good again as it
    /// was.
    fn add_verdict_steps(
        &self,
        steps: &mut Vec<Step>,
        specs: &BTreeMap<ServerName, ServerSpec>,
        invalid: &BTreeMap<ServerName, Vec<Diagnostic>>,
    ) {
        for (name, errors) in invalid {
            let lines: Vec<String> = errors.iter().map(Diagnostic::to_line_with_hint).collect();
            let lines = lines.join("; ");
            let slot = self.slots.get(name.as_str());
            let (kind, detail) = match slot.filter(|_| specs.contains_key(name)) {
                Some(slot) => {
                    let detail = format!("on generation {}: {lines}", slot.setting.generation);
                    (ChangeKind::Kept, detail)
                }
                None => (ChangeKind::Invalid, lines),
            };
            let verdict = slot.map(|slot| &slot.setting.verdict);
            let is_known = matches!(verdict, Some(Verdict::Invalid(known)) if known == errors);
            steps.push(Step {
                name: name.clone(),
                applied: Applied::Noted,
                is_news: !is_known,
                report: Some((kind, detail)),
            });
        }
        for (name, slot) in &self.slots {
            let Some(name) = ServerName::parse(name) else {
                continue;
            };
            let was_bad = matches!(slot.setting.verdict, Verdict::Invalid(_));
            let has_step = steps.iter().any(|step| step.name == name);
            let stands = specs.contains_key(&name) || invalid.contains_key(&name);
            if was_bad && !has_step {
                // Good again as it was, or gone before it was ever good.
                steps.push(Step {
                    name,
                    applied: Applied::Noted,
                    is_news: true,
                    report: (!stands).then(|| (ChangeKind::Removed, String::new())),
                });
            }
        }
    }

    /// Gives one server its new setting, and makes its worker if there is none.
    async fn take(
        &mut self,
        step: &Step,
        invalid: &mut BTreeMap<ServerName, Vec<Diagnostic>>,
    ) -> Option<Vec<WorkerHandle>> {
        let name = step.name.as_str();
        let spec = self
            .specs
            .get(&step.name)
            .map(|spec| Arc::new(spec.clone()));
        let stands = spec.is_some() || invalid.contains_key(&step.name);
        let verdict = match invalid.remove(&step.name) {
            Some(errors) => Verdict::Invalid(errors),
            None if stands => Verdict::Ok,
            None => Verdict::Removed,
        };
        let file = match &spec {
            Some(spec) => spec.file.clone(),
            None => self.paths.servers_dir().join(format!("{name}.toml")),
        };
        let generation = match (step.applied, self.slots.get(name)) {
            (Applied::Noted, Some(slot)) => slot.setting.generation,
            _ => self.generation,
        };
        let hash = spec
            .as_ref()
            .map(|spec| spec.fingerprint(&self.shared.hash_key));
        let setting = Setting {
            owner: Owner::Server,
            spec,
            verdict,
            file,
            generation,
            hash,
        };
        let mut workers = self.take_instances(name, &setting, step.applied).await;
        match self.slots.get_mut(name) {
            Some(slot) => slot.configure(setting, step.applied).await,
            None => {
                let named = Named::new(name, Owner::Server, &self.shared.hash_key);
                self.add_slot(Arc::new(named), setting);
            }
        }
        let slot = self.slots.get_mut(name)?;
        workers.push(slot.worker.clone());
        if stands {
            slot.socket.open(&step.name, &self.paths, &self.shared);
        } else {
            slot.socket.close();
        }
        Some(workers)
    }

    /// Gives the instances of a server its new setting. Those that it has no more of end.
    async fn take_instances(
        &mut self,
        server: &str,
        setting: &Setting,
        applied: Applied,
    ) -> Vec<WorkerHandle> {
        let mut workers = Vec::new();
        for slot in self.slots.values_mut() {
            let owner = slot.setting.owner.clone();
            if !owner.is_part() || &**slot.named.server() != server || slot.is_leaving {
                continue;
            }
            // Without a specification nothing says that they are not to be there.
            let fits = setting.spec.is_none() || owner.fits(setting.sharing());
            match fits {
                true => {
                    let setting = setting.of(owner);
                    slot.configure(setting, applied).await;
                }
                false => slot.dismiss().await,
            }
            workers.push(slot.worker.clone());
        }
        workers
    }
}

impl Slot {
    async fn configure(&mut self, setting: Setting, applied: Applied) {
        self.setting = setting.clone();
        let (acknowledge, heard) = tokio::sync::oneshot::channel();
        let command = Command::Configure(Box::new(setting), applied, acknowledge);
        let event = WorkerEvent::Command(command);
        if self.worker.inbox.send(event).await.is_ok() {
            // A worker that ends instead needs no configuration.
            drop(heard.await);
        }
    }
}

type Specs = BTreeMap<ServerName, ServerSpec>;

fn step(change: Change, before: &Specs, specs: &Specs) -> Step {
    let name = change.name().clone();
    let spec = specs.get(&name);
    let starting = match spec
        .filter(|spec| spec.enabled)
        .map(|spec| spec.policy.start)
    {
        None => "disabled",
        Some(Start::Boot) => "starting",
        Some(Start::Demand) => "started when a host needs it",
    };
    let (applied, kind, detail) = match change {
        Change::Remove(_) => (Applied::Live, ChangeKind::Removed, "stopping".to_owned()),
        Change::Add(_) => (Applied::Live, ChangeKind::Added, starting.to_owned()),
        Change::Enable(_) => (
            Applied::Live,
            ChangeKind::Restart,
            format!("enabled, {starting}"),
        ),
        Change::Disable(_) => (
            Applied::Live,
            ChangeKind::Live,
            "disabled, stopping".to_owned(),
        ),
        Change::Live { name, keys } => {
            let (old, new) = (before.get(&name), specs.get(&name));
            let spec = old.zip(new);
            let detail = spec.map(|(old, new)| describe_live(old, new, &keys));
            (Applied::Live, ChangeKind::Live, detail.unwrap_or_default())
        }
        Change::Restart { why, live, .. } => {
            let keys = [why, live].concat().join(", ");
            (
                Applied::Restart,
                ChangeKind::Restart,
                format!("{keys} changed"),
            )
        }
    };
    Step {
        name,
        applied,
        is_news: true,
        report: Some((kind, detail)),
    }
}

/// Whether a server is not on its way from one state to another, nor about to be.
fn has_settled(status: &ServerStatus) -> bool {
    !matches!(status.state, State::Starting | State::Stopping)
        && status.substate != Substate::DrainingForReload
}

/// Waits until no worker is on its way from one state to another, and tells what became of the
/// calls that were waited for.
async fn settle(touched: Vec<Touched>, changes: &mut [ReloadChange]) {
    for Touched { mut worker, drain } in touched {
        // A worker that has ended has settled.
        let settled = worker
            .published
            .wait_for(|published| has_settled(&published.status))
            .await;
        let Ok(published) = settled else { continue };
        let status = &published.status;
        let Some(change) = changes.iter_mut().find(|one| one.server == status.name) else {
            continue;
        };
        if let Some((open, errors)) = drain {
            // With an error among the answers nobody can say how many were calls cut off.
            let requests = render_requests(open);
            let outcome = match status.requests.errors == errors {
                true => format!("(drained {requests})"),
                false => format!("({requests} were open, not all were drained)"),
            };
            let draining = format!("(draining {requests})");
            change.detail = change.detail.replace(&draining, &outcome);
        }
        tell_failure(change, status);
    }
}

/// Adds to a change that the start which followed has failed, and why.
fn tell_failure(change: &mut ReloadChange, status: &ServerStatus) {
    let starts = matches!(change.change, ChangeKind::Added | ChangeKind::Restart);
    if starts && matches!(status.state, State::Failed | State::Backoff) {
        let reason = status.reason.as_deref().unwrap_or("no reason known");
        change.failed = true;
        let state = status.state.as_str();
        change.detail = format!("{}; {state}: {reason}", change.detail);
    }
}

fn render_requests(count: u64) -> String {
    let noun = if count == 1 { "request" } else { "requests" };
    format!("{count} {noun}")
}

/// One line a change. A file's faults never hold a value.
fn log(report: &ReloadReport) {
    if report.from_generation == report.to_generation {
        return;
    }
    for one in &report.changes {
        tracing::info!(
            generation = report.to_generation,
            server = one.server,
            change = ?one.change,
            "{}",
            one.detail
        );
    }
}

fn millis_since(begun: Moment) -> u64 {
    u64::try_from((clock::now() - begun).as_millis()).unwrap_or(u64::MAX)
}
