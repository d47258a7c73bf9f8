//! What a worker is ordered, and what it tells its cores then.
//!
//! The counterpart of `daemon::worker::command`.

use std::sync::Arc;

use mcpd::config::spec::{Policy, ServerSpec, Start};
use mcpd::ids::HostKey;
use mcpd::session::{MuxConfig, Service, ToolRules, Unavailable};
use mcpd::supervise::{Cause, Event, Mode};
use mcpd::time::Moment;
use serde_json::Value;

use crate::scene::Scene;
use crate::worker::{Setting, Worker};

/// One order.
#[derive(Clone, Debug)]
pub(crate) enum Command {
    Start,
    Stop(Mode),
    Restart(Mode),
    ResetFailed,
    Configure(Box<Setting>, Applied),
    Evict(HostKey),
    Shutdown(Mode),
}

/// Whether an order is in a hurry, for those that can be.
const fn mode_of(command: &Command) -> Option<Mode> {
    match command {
        Command::Stop(mode) | Command::Restart(mode) | Command::Shutdown(mode) => Some(*mode),
        _ => None,
    }
}

/// How a new configuration reaches the running child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Applied {
    Noted,
    Live,
    Restart,
}

/// The order that an enabled server begins with.
const fn want(start: Start, cause: Cause) -> Event {
    match start {
        Start::Boot => Event::Start { cause },
        Start::Demand => Event::Offer { cause },
    }
}

/// The part of a policy that concerns the multiplexer.
pub(crate) fn mux_config(name: &str, policy: &Policy) -> MuxConfig {
    MuxConfig {
        start_timeout: policy.start_timeout,
        idle_stop: policy.idle_stop,
        request_timeout: policy.request_timeout,
        max_calls: policy.max_calls.map(|calls| calls as usize),
        tools: ToolRules {
            allow: policy.tools.allow.clone(),
            deny: policy.tools.deny.clone(),
        },
        ..MuxConfig::of(name)
    }
}

impl Worker {
    /// Starts what is to run from the beginning.
    pub(crate) fn begin(&mut self, now: Moment) {
        let event = match &self.setting.spec {
            Some(spec) if spec.enabled => want(spec.policy.start, Cause::Boot),
            Some(_) => Event::Stop {
                cause: Cause::Disabled,
                mode: Mode::Polite,
            },
            None => Event::Remove,
        };
        self.tell(event, now);
    }

    pub(crate) fn handle_command(&mut self, command: Command, scene: &mut Scene) {
        let now = scene.clock.now;
        scene.clock.tell(&self.name, || match &command {
            Command::Configure(setting, applied) => {
                let enabled = setting.spec.as_ref().map(|spec| spec.enabled);
                format!("configured: {applied:?}, enabled {enabled:?}")
            }
            command => format!("ordered: {command:?}"),
        });
        self.is_asked = true;
        let (mode, cause) = (mode_of(&command), Cause::Command);
        self.may_kill |= mode == Some(Mode::Kill);
        match command {
            Command::Start => {
                if self.setting.may_run() {
                    self.tell(Event::Start { cause }, now);
                }
            }
            Command::Stop(mode) => {
                let cause = match self.setting.is_disabled() {
                    true => Cause::Disabled,
                    false => cause,
                };
                self.tell(Event::Stop { cause, mode }, now);
            }
            Command::Restart(mode) => self.restart(mode, now),
            Command::ResetFailed => self.tell(Event::ResetFailed, now),
            Command::Configure(setting, applied) => self.configure(*setting, applied, now),
            Command::Evict(host) => self.mux.evict_host(host, now),
            Command::Shutdown(mode) => {
                self.ending = true;
                self.tell(Event::Shutdown { mode }, now);
            }
        }
    }

    fn restart(&mut self, mode: Mode, now: Moment) {
        if !self.setting.may_run() {
            return;
        }
        let cause = Cause::Command;
        match mode {
            Mode::Polite => self.tell(Event::Restart { cause }, now),
            Mode::Kill => {
                self.tell(Event::Stop { cause, mode }, now);
                self.tell(Event::Start { cause }, now);
            }
        }
    }

    /// Takes on a configuration: the specification is complete and valid, or there is none.
    fn configure(&mut self, setting: Setting, applied: Applied, now: Moment) {
        let was_enabled = self.setting.may_run();
        let before = self.setting.policy().start;
        self.setting = setting;
        let Some(spec) = self.setting.spec.clone() else {
            self.tell(Event::Remove, now);
            let why = Unavailable {
                message: format!("server \"{}\" has no valid file", self.name),
                detail: Value::Null,
            };
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
        let was_up = (was_enabled, starts_now);
        self.apply(&spec, applied, was_up, now);
    }

    fn apply(
        &mut self,
        spec: &Arc<ServerSpec>,
        applied: Applied,
        (was_enabled, starts_now): (bool, bool),
        now: Moment,
    ) {
        let policy = Box::new(spec.policy.clone());
        self.mux.configure(mux_config(&self.name, &policy), now);
        let restart = applied == Applied::Restart && was_enabled && spec.enabled;
        self.tell(Event::Reconfigured { restart, policy }, now);
        match (was_enabled, spec.enabled) {
            (false, true) => self.tell(want(spec.policy.start, Cause::Edit), now),
            (true, true) if starts_now => self.tell(want(Start::Boot, Cause::Edit), now),
            (true, false) => {
                let (cause, mode) = (Cause::Disabled, Mode::Polite);
                self.tell(Event::Stop { cause, mode }, now);
            }
            _ => {}
        }
    }
}
