//! What the registry tells a worker: the order goes to the core, the acknowledgement with it.

use tokio::sync::oneshot;

use crate::config::fingerprint::Fingerprint;
use crate::ids::HostKey;
use crate::instance::{Applied, Order, Setting};
use crate::supervise::Mode;
use crate::time::Moment;

use super::super::shared::Shared;
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

impl Worker {
    /// Starts what is to run from the beginning.
    pub(super) fn begin(&mut self, now: Moment) {
        self.core.begin(now);
        self.mark_changed();
    }

    pub(super) fn handle_command(&mut self, command: Command, now: Moment) {
        let (order, acknowledge) = match command {
            Command::Start(acknowledge) => (Order::Start, acknowledge),
            Command::Stop(mode, acknowledge) => (Order::Stop(mode), acknowledge),
            Command::Restart(mode, acknowledge) => (Order::Restart(mode), acknowledge),
            Command::ResetFailed(acknowledge) => (Order::ResetFailed, acknowledge),
            Command::Refresh(acknowledge) => return self.acknowledge(acknowledge),
            Command::Configure(setting, applied, acknowledge) => {
                self.configure(*setting, applied, now);
                return self.acknowledge(acknowledge);
            }
            Command::Evict(host) => return self.core.handle_order(Order::Evict(host), now),
            Command::Shutdown(mode) => {
                self.leave_input();
                return self.core.handle_order(Order::Shutdown(mode), now);
            }
        };
        self.core.handle_order(order, now);
        self.acknowledge(acknowledge);
    }

    /// With the next publication.
    fn acknowledge(&mut self, acknowledge: oneshot::Sender<()>) {
        self.mark_changed();
        self.unacknowledged.push(acknowledge);
    }

    fn configure(&mut self, setting: Setting, applied: Applied, now: Moment) {
        if self.core.setting().is_unknown() && !setting.is_unknown() {
            self.log = self.shared.logs.server(self.named.server());
        }
        if setting.spec.is_some() {
            let limit = setting.policy().message_limit_bytes;
            self.handle.transit.set_limit(limit);
        }
        let configuration = configuration_of(&setting, &self.shared);
        self.core.configure(setting, configuration, applied, now);
    }
}

/// What tells the configuration of the process from others.
pub(super) fn configuration_of(setting: &Setting, shared: &Shared) -> Option<Fingerprint> {
    let spec = setting.spec.as_ref()?;
    Some(spec.launch_fingerprint(&shared.hash_key))
}
