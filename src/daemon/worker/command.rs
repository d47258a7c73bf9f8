//! What the registry tells a worker, and the configuration as the worker knows it.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::oneshot;

use crate::config::diagnostics::Diagnostic;
use crate::config::fingerprint::Fingerprint;
use crate::config::spec::{Policy, Protocol, ServerSpec, Start};
use crate::ids::HostKey;
use crate::protocol::EraChoice;
use crate::session::{Asking, MuxConfig, Service, ToolRules};
use crate::supervise::{self, Cause, Mode};
use crate::time::Moment;

use super::Worker;

/// One order. Each that carries a sender is acknowledged once what came of it is published.
#[derive(Debug)]
pub(crate) enum Command {
    Start(oneshot::Sender<()>),
    Stop(Mode, oneshot::Sender<()>),
    Restart(Mode, oneshot::Sender<()>),
    ResetFailed(oneshot::Sender<()>),
    /// Publish now.
    Refresh(oneshot::Sender<()>),
    Configure(Box<Setting>, Applied, oneshot::Sender<()>),
    Evict(HostKey),
    /// The daemon ends, or nobody needs this worker any more.
    Shutdown(Mode),
}

/// How a new configuration reaches the running child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Applied {
    /// It does not concern the child (only what is known of the file has changed).
    Noted,
    Live,
    Restart,
}

/// The configuration of one server as the worker knows it.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    /// What runs; absent if there never was a valid file, or the file is gone.
    pub(crate) spec: Option<Arc<ServerSpec>>,
    pub(crate) verdict: Verdict,
    /// The file that the server has, had or would have.
    pub(crate) file: PathBuf,
    /// The configuration in which `spec` was applied.
    pub(crate) generation: u64,
    /// Tells `spec` from others, for `status`.
    pub(crate) hash: Option<Fingerprint>,
}

/// What is to be said of the server's file.
#[derive(Clone, Debug)]
pub(crate) enum Verdict {
    Ok,
    /// At least one error; the last good specification, if any, stays.
    Invalid(Vec<Diagnostic>),
    /// It was there and is gone.
    Removed,
    /// It never was.
    Unknown,
}

impl Setting {
    /// Of a name that has no file.
    pub(crate) fn unknown(file: PathBuf) -> Self {
        Self {
            spec: None,
            verdict: Verdict::Unknown,
            file,
            generation: 0,
            hash: None,
        }
    }

    pub(crate) fn is_unknown(&self) -> bool {
        matches!(self.verdict, Verdict::Unknown)
    }

    /// Whether nothing in the file system stands for this server.
    pub(crate) fn is_absent(&self) -> bool {
        matches!(self.verdict, Verdict::Unknown | Verdict::Removed)
    }

    /// Whether there is a valid specification that is not disabled.
    pub(crate) fn may_run(&self) -> bool {
        self.spec.as_ref().is_some_and(|spec| spec.enabled)
    }

    pub(crate) fn is_disabled(&self) -> bool {
        self.spec.as_ref().is_some_and(|spec| !spec.enabled)
    }

    pub(crate) fn policy(&self) -> Policy {
        self.spec
            .as_ref()
            .map_or_else(Policy::default, |spec| spec.policy.clone())
    }

    /// Why nothing is served, where the server's file is the reason.
    pub(crate) fn fault(&self, name: &str) -> Option<String> {
        let file = self.file.display();
        match (&self.spec, &self.verdict) {
            (_, Verdict::Removed) => Some(format!("server \"{name}\" was removed: {file} is gone")),
            (_, Verdict::Unknown) => Some(format!(
                "no server \"{name}\" is configured: there is no {file}"
            )),
            (None, Verdict::Invalid(errors)) => {
                let first = errors
                    .first()
                    .map(Diagnostic::to_line_with_hint)
                    .unwrap_or_default();
                Some(format!(
                    "the configuration of \"{name}\" is invalid: {first}"
                ))
            }
            (Some(spec), _) if !spec.enabled => {
                Some(format!("server \"{name}\" is disabled in {file}"))
            }
            _ => None,
        }
    }

    /// What to do about that fault.
    pub(crate) fn remedy(&self) -> Option<String> {
        let file = self.file.display();
        match (&self.spec, &self.verdict) {
            (_, Verdict::Removed | Verdict::Unknown) => Some(format!(
                "`mcpd status` lists the servers; to have this one, write {file} and run `mcpd reload`"
            )),
            (None, Verdict::Invalid(_)) => Some(
                "`mcpd check` shows all that is wrong; `mcpd reload` applies what you mend"
                    .to_owned(),
            ),
            (Some(spec), _) if !spec.enabled => Some(format!(
                "set `enabled = true` in {file} and run `mcpd reload`"
            )),
            _ => None,
        }
    }
}

/// The order that an enabled server begins with.
const fn want(start: Start, cause: Cause) -> supervise::Event {
    match start {
        Start::Boot => supervise::Event::Start { cause },
        Start::Demand => supervise::Event::Offer { cause },
    }
}

/// The part of a policy that concerns the multiplexer.
pub(super) fn mux_config(name: &str, policy: &Policy) -> MuxConfig {
    MuxConfig {
        watchdog: policy.watchdog,
        server: name.to_owned(),
        client_version: env!("CARGO_PKG_VERSION").to_owned(),
        start_timeout: policy.start_timeout,
        idle_stop: policy.idle_stop,
        request_timeout: policy.request_timeout,
        max_calls: policy.max_calls.map(|calls| calls as usize),
        asking: match policy.interactive {
            true => Asking::Turns,
            false => Asking::Nobody,
        },
        tools: ToolRules {
            allow: policy.tools.allow.clone(),
            deny: policy.tools.deny.clone(),
        },
        protocol: match policy.protocol {
            Protocol::Auto => EraChoice::Auto,
            Protocol::Legacy => EraChoice::Legacy,
            Protocol::Modern => EraChoice::Modern,
        },
    }
}

impl Worker {
    /// Starts what is to run from the beginning.
    pub(super) fn begin(&mut self, now: Moment) {
        let event = match &self.setting.spec {
            Some(spec) if spec.enabled => want(spec.policy.start, Cause::Boot),
            Some(_) => supervise::Event::Stop {
                cause: Cause::Disabled,
                mode: Mode::Polite,
            },
            None => supervise::Event::Remove,
        };
        self.tell(event, now);
        self.mark_changed();
    }

    pub(super) fn handle_command(&mut self, command: Command, now: Moment) {
        let cause = Cause::Command;
        let acknowledge = match command {
            Command::Start(acknowledge) => {
                if self.setting.may_run() {
                    self.tell(supervise::Event::Start { cause }, now);
                }
                acknowledge
            }
            Command::Stop(mode, acknowledge) => {
                // What is disabled stays so: a stop takes nothing from it.
                let cause = match self.setting.is_disabled() {
                    true => Cause::Disabled,
                    false => cause,
                };
                self.tell(supervise::Event::Stop { cause, mode }, now);
                acknowledge
            }
            Command::Restart(mode, acknowledge) => {
                self.restart(mode, now);
                acknowledge
            }
            Command::ResetFailed(acknowledge) => {
                self.tell(supervise::Event::ResetFailed, now);
                acknowledge
            }
            Command::Refresh(acknowledge) => acknowledge,
            Command::Configure(setting, applied, acknowledge) => {
                self.configure(*setting, applied, now);
                acknowledge
            }
            Command::Evict(host) => {
                self.mux.evict_host(host, now);
                return;
            }
            Command::Shutdown(mode) => {
                self.ending = true;
                self.leave_input();
                self.tell(supervise::Event::Shutdown { mode }, now);
                return;
            }
        };
        self.mark_changed();
        self.unacknowledged.push(acknowledge);
    }

    /// A restart that does not wait is a kill and a start.
    fn restart(&mut self, mode: Mode, now: Moment) {
        if !self.setting.may_run() {
            return;
        }
        let cause = Cause::Command;
        match mode {
            Mode::Polite => self.tell(supervise::Event::Restart { cause }, now),
            Mode::Kill => {
                self.tell(supervise::Event::Stop { cause, mode }, now);
                self.tell(supervise::Event::Start { cause }, now);
            }
        }
    }

    /// Takes on a configuration: the specification is complete and valid, or there is none.
    fn configure(&mut self, setting: Setting, applied: Applied, now: Moment) {
        let was_enabled = self.setting.may_run();
        let was_unknown = self.setting.is_unknown();
        let before = self.setting.policy().start;
        let configuration = self.configuration();
        self.setting = setting;
        if was_unknown && !self.setting.is_unknown() {
            self.log = self.shared.logs.server(&self.instance);
        }
        if self.configuration() != configuration {
            self.recall_anew();
        }
        let Some(spec) = self.setting.spec.clone() else {
            self.tell(supervise::Event::Remove, now);
            // What is wrong with the file may be something else than before.
            let why = self.unavailable(String::new());
            self.mux.set_service(Service::Unavailable(why), now);
            return;
        };
        if applied == Applied::Noted {
            return;
        }
        // What rested until somebody needs it is to run with the daemon now.
        let starts_now = spec.policy.start == Start::Boot
            && before == Start::Demand
            && self.supervisor.rests_on_demand();
        let policy = Box::new(spec.policy.clone());
        self.handle.transit.set_limit(policy.message_limit_bytes);
        self.mux.configure(mux_config(&self.instance, &policy), now);
        let restart = applied == Applied::Restart && was_enabled && spec.enabled;
        self.tell(supervise::Event::Reconfigured { restart, policy }, now);
        match (was_enabled, spec.enabled) {
            (false, true) => self.tell(want(spec.policy.start, Cause::Edit), now),
            (true, true) if starts_now => self.tell(want(Start::Boot, Cause::Edit), now),
            (true, false) => {
                let (cause, mode) = (Cause::Disabled, Mode::Polite);
                self.tell(supervise::Event::Stop { cause, mode }, now);
            }
            _ => {}
        }
    }
}
