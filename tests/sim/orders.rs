//! What a worker is ordered.
//!
//! The counterpart of `daemon::worker::command`.

use mcpd::instance::{Applied, Order, Setting};
use mcpd::supervise::Mode;

use crate::scene::Scene;
use crate::worker::{Worker, configuration_of};

/// One word of the registry.
#[derive(Clone, Debug)]
pub(crate) enum Command {
    Order(Order),
    Configure(Box<Setting>, Applied),
}

impl Worker {
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
        match command {
            Command::Configure(setting, applied) => {
                let configuration = configuration_of(&setting);
                self.core.configure(*setting, configuration, applied, now);
            }
            Command::Order(order) => {
                self.may_kill |= is_in_a_hurry(order);
                self.core.handle_order(order, now);
            }
        }
    }
}

const fn is_in_a_hurry(order: Order) -> bool {
    match order {
        Order::Stop(mode) | Order::Restart(mode) | Order::Shutdown(mode) => {
            matches!(mode, Mode::Kill)
        }
        Order::Start | Order::ResetFailed | Order::Evict(_) => false,
    }
}
