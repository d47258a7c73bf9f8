//! Bringing the workers in line with the files.
//!
//! `config` has decided what changed; here each change becomes an order to the one worker it
//! concerns. A file that is bad changes nothing for its server but what is said of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::config::diagnostics::Diagnostic;
use crate::config::diff::{Change, diff};
use crate::config::load::{self, LoadRequest, Loaded};
use crate::config::spec::{ServerName, ServerSpec};
use crate::control::{ChangeKind, ReloadChange, ReloadReport, State};
use crate::time::Moment;

use super::super::clock;
use super::super::worker::{
    Applied, Command, Event as WorkerEvent, Setting, Verdict, WorkerHandle,
};
use super::answer::internal;
use super::{Answer, Registry};

/// The one key of the daemon that cannot change while it runs.
const PATH_IS_FIXED: &str =
    "mcpd.toml: a change of `path` takes effect when the daemon is started again";

/// An order for one worker, and how it is told to whoever asked for the reload.
struct Step {
    name: ServerName,
    applied: Applied,
    report: Option<(ChangeKind, String)>,
}

impl Registry {
    /// The configuration that the daemon begins with.
    pub(in super::super) async fn apply_first(&mut self, loaded: Loaded) {
        let begun = clock::now();
        let (report, _) = self.apply(loaded, begun).await;
        for error in &report.errors {
            tracing::warn!("{error}");
        }
    }

    /// Reads all files and applies what changed; with `wait` the answer comes when every stop and
    /// start that follows has ended.
    pub(super) async fn reload(&mut self, answer: Option<Answer>, wait: bool) {
        if self.ending.is_some() {
            return;
        }
        let begun = clock::now();
        let (config_dir, shared) = (self.paths.config_dir().to_owned(), self.shared.clone());
        let last = self.daemon_file.clone();
        let loaded = tokio::task::spawn_blocking(move || {
            load::load(LoadRequest {
                config_dir: &config_dir,
                base: &shared.base,
                hash_key: Some(&shared.hash_key),
                last_daemon_file: Some(&last),
            })
        });
        let outcome = match loaded.await {
            Ok(loaded) => Ok(self.apply(loaded, begun).await),
            Err(panic) => Err(internal(format!(
                "the configuration cannot be read: {panic}"
            ))),
        };
        let Some(answer) = answer else { return };
        tokio::spawn(async move {
            let reply = match outcome {
                Ok((mut report, touched)) => {
                    if wait {
                        settle(touched).await;
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

    async fn apply(&mut self, loaded: Loaded, begun: Moment) -> (ReloadReport, Vec<WorkerHandle>) {
        let specs = loaded.effective(&self.specs);
        let mut invalid: BTreeMap<ServerName, Vec<Diagnostic>> = loaded
            .servers
            .into_iter()
            .filter_map(|(name, outcome)| outcome.err().map(|errors| (name, errors)))
            .collect();
        let changes = diff(&self.specs, &specs);
        let mut steps: Vec<Step> = changes
            .into_iter()
            .map(|change| step(change, &specs))
            .collect();
        self.add_verdict_steps(&mut steps, &specs, &invalid);
        let from_generation = self.generation;
        if !steps.is_empty() {
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
        for step in steps {
            touched.extend(self.take(&step, &mut invalid).await);
            if let Some((change, detail)) = step.report {
                let server = step.name.to_string();
                report.changes.push(ReloadChange {
                    server,
                    change,
                    detail,
                });
            }
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
            let kind = match specs.contains_key(name) {
                true => ChangeKind::Kept,
                false => ChangeKind::Invalid,
            };
            let detail = errors
                .iter()
                .map(Diagnostic::to_line_with_hint)
                .collect::<Vec<_>>()
                .join("; ");
            steps.push(Step {
                name: name.clone(),
                applied: Applied::Noted,
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
                    report: (!stands).then(|| (ChangeKind::Removed, String::new())),
                });
            }
        }
    }

    /// Gives one worker its new setting, and makes the worker if there is none.
    async fn take(
        &mut self,
        step: &Step,
        invalid: &mut BTreeMap<ServerName, Vec<Diagnostic>>,
    ) -> Option<WorkerHandle> {
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
            spec,
            verdict,
            file,
            generation,
            hash,
        };
        match self.slots.get_mut(name) {
            Some(slot) => {
                slot.setting = setting.clone();
                let (acknowledge, heard) = tokio::sync::oneshot::channel();
                let command = Command::Configure(Box::new(setting), step.applied, acknowledge);
                let event = WorkerEvent::Command(command);
                if slot.worker.inbox.send(event).await.is_ok() {
                    // A worker that ends instead needs no configuration.
                    drop(heard.await);
                }
            }
            None => self.add_slot(name, setting),
        }
        let slot = self.slots.get_mut(name)?;
        if stands {
            slot.socket.open(&step.name, &self.paths, &self.shared);
        } else {
            slot.socket.close();
        }
        Some(slot.worker.clone())
    }
}

fn step(change: Change, specs: &BTreeMap<ServerName, ServerSpec>) -> Step {
    let name = change.name().clone();
    let enabled = specs.get(&name).is_some_and(|spec| spec.enabled);
    let starting = if enabled { "starting" } else { "disabled" };
    let (applied, kind, detail) = match change {
        Change::Remove(_) => (Applied::Live, ChangeKind::Removed, "stopping".to_owned()),
        Change::Add(_) => (Applied::Live, ChangeKind::Added, starting.to_owned()),
        Change::Enable(_) => (
            Applied::Live,
            ChangeKind::Restart,
            "enabled, starting".to_owned(),
        ),
        Change::Disable(_) => (
            Applied::Live,
            ChangeKind::Live,
            "disabled, stopping".to_owned(),
        ),
        Change::Live { keys, .. } => (
            Applied::Live,
            ChangeKind::Live,
            format!("{} changed", keys.join(", ")),
        ),
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
        report: Some((kind, detail)),
    }
}

/// Waits until no worker is on its way from one state to another.
async fn settle(workers: Vec<WorkerHandle>) {
    for mut worker in workers {
        // A worker that has ended has settled.
        drop(
            worker
                .published
                .wait_for(|published| {
                    !matches!(published.status.state, State::Starting | State::Stopping)
                })
                .await,
        );
    }
}

fn millis_since(begun: Moment) -> u64 {
    u64::try_from((clock::now() - begun).as_millis()).unwrap_or(u64::MAX)
}
