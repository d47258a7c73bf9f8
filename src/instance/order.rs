//! What an instance makes of orders and of new configurations.

use crate::config::fingerprint::Fingerprint;
use crate::config::spec::{Policy, Protocol, Start};
use crate::protocol::EraChoice;
use crate::session::{Asking, MuxConfig, ToolRules};
use crate::supervise::{Cause, Event, Mode, ServiceHint};
use crate::time::Moment;

use super::{Action, Applied, Instance, Matter, Order, Setting};

/// The order that an enabled server begins with.
const fn want(start: Start, cause: Cause) -> Event {
    match start {
        Start::Boot => Event::Start { cause },
        Start::Demand => Event::Offer { cause },
    }
}

/// The part of a policy that concerns the multiplexer.
pub fn mux_config(name: &str, policy: &Policy) -> MuxConfig {
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

impl Instance {
    /// Starts what is to run from the beginning.
    pub fn begin(&mut self, now: Moment) {
        let event = match &self.setting.spec {
            Some(spec) if self.setting.may_run() => want(spec.policy.start, Cause::Boot),
            Some(_) if !self.setting.is_split() => Event::Stop {
                cause: Cause::Disabled,
                mode: Mode::Polite,
            },
            Some(_) | None => Event::Remove,
        };
        self.tell(event, now);
    }

    /// An order. What was decided before it is done first: poll the actions before.
    pub fn handle_order(&mut self, order: Order, now: Moment) {
        let cause = Cause::Command;
        match order {
            Order::Start if self.setting.may_run() => self.tell(Event::Start { cause }, now),
            Order::Restart(mode) if self.setting.may_run() => self.restart(mode, now),
            Order::Start | Order::Restart(_) => {}
            Order::Stop(mode) => {
                // What is disabled stays so: a stop takes nothing from it.
                let cause = match self.setting.is_disabled() {
                    true => Cause::Disabled,
                    false => cause,
                };
                self.tell(Event::Stop { cause, mode }, now);
            }
            Order::ResetFailed => self.tell(Event::ResetFailed, now),
            Order::Evict(host) => self.mux.evict_host(host, now),
            Order::Shutdown(mode) => {
                self.is_ending = true;
                self.tell(Event::Shutdown { mode }, now);
            }
        }
    }

    /// A restart that does not wait is a kill and a start.
    fn restart(&mut self, mode: Mode, now: Moment) {
        let cause = Cause::Command;
        match mode {
            Mode::Polite => self.tell(Event::Restart { cause }, now),
            Mode::Kill => {
                self.tell(Event::Stop { cause, mode }, now);
                self.tell(Event::Start { cause }, now);
            }
        }
    }

    /// Takes on a configuration: the specification is complete and valid, or there is none. A spawn
    /// that was decided a moment ago needs the file that an edit may take away: poll the actions
    /// before.
    pub fn configure(
        &mut self,
        setting: Setting,
        configuration: Option<Fingerprint>,
        applied: Applied,
        now: Moment,
    ) {
        let was_enabled = self.setting.may_run();
        let before = self.setting.policy().start;
        self.setting = setting;
        if self.configuration != configuration {
            self.configuration = configuration;
            // What was known is not known of this one.
            self.mux.remember(None);
            self.actions.extend(configuration.map(Action::Recall));
        }
        let spec = self.setting.spec.clone();
        let Some(spec) = spec.filter(|_| !self.setting.is_split()) else {
            self.is_dismissing = self.setting.is_split() && self.setting.is_enabled();
            self.tell(Event::Remove, now);
            // What is wrong with the file may be something else than before.
            let message = String::new();
            let matter = Matter::Service(ServiceHint::Unavailable { message });
            self.actions.push_back(Action::Explain(matter));
            return;
        };
        if applied == Applied::Noted {
            return;
        }
        // What rested until somebody needs it is to run with the daemon now.
        let starts_now = spec.policy.start == Start::Boot
            && before == Start::Demand
            && self.supervisor.rests_on_demand();
        let policy = Box::new(self.setting.policy());
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
