//! What every worker and every connection of one daemon has in common.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{Notify, RwLock, mpsc};

use crate::config::environment::Base;
use crate::config::fingerprint::HashKey;
use crate::ids::{Generation, HostKey};
use crate::session::Pool;
use crate::supervise::Launcher;
use crate::supervise::turns::TurnId;

use super::calls::Calls;
use super::catalog::Catalog;
use super::command_values::CommandValues;
use super::eras::Eras;
use super::log::Logs;
use super::registry;
use super::worker::TurnEvent;

/// Shared by reference; nothing in here is anybody's state but counters.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) launcher: Arc<dyn Launcher>,
    pub(crate) base: Base,
    /// For hashes that tell nothing of what they were made from.
    pub(crate) hash_key: HashKey,
    /// What children were found to speak.
    pub(crate) eras: Arc<Eras>,
    /// The outputs of `{ command }` values, kept for a while.
    pub(crate) command_values: CommandValues,
    /// What servers said of themselves.
    pub(crate) catalog: Catalog,
    /// The calls that ended last.
    pub(crate) calls: Calls,
    pub(crate) pool: Pool,
    pub(crate) logs: Logs,
    /// The umask that the daemon was started with, which is what children get.
    pub(crate) umask: u32,
    /// Marks everything that comes from this daemon: the first part of every tag.
    pub(crate) run_id: String,
    /// Where randomness comes from: read once, then counted on.
    pub(crate) seed: AtomicU64,
    /// Keys what hosts must not guess. Unlike the seed it shows up nowhere.
    pub(crate) secret: [u8; 32],
    pub(crate) host_keys: AtomicU64,
    pub(crate) registry: mpsc::Sender<registry::Event>,
    /// To whoever keeps the order of starts. Each start says a bounded number of things a second.
    pub(crate) turns: mpsc::UnboundedSender<TurnEvent>,
    pub(crate) turn_ids: AtomicU64,
    /// Read while a control request is served, so that the end waits for replies being written.
    pub(crate) serving: RwLock<()>,
    /// Some server is in another state than before.
    pub(crate) states_changed: Arc<Notify>,
    /// The same for the record of states.
    pub(crate) states_to_record: Arc<Notify>,
}

impl Shared {
    /// A seed for the jitter of one supervisor.
    pub(crate) fn random_seed(&self) -> u64 {
        // The golden ratio keeps consecutive seeds far apart.
        self.seed
            .fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed)
    }

    pub(crate) fn next_host(&self) -> HostKey {
        HostKey(self.host_keys.fetch_add(1, Ordering::Relaxed) + 1)
    }

    pub(crate) fn next_turn(&self) -> TurnId {
        TurnId(self.turn_ids.fetch_add(1, Ordering::Relaxed))
    }

    /// The value of `MCPD_INSTANCE` for one run of one instance.
    pub(crate) fn tag(&self, instance: &str, generation: Generation) -> String {
        format!("{}/{instance}/{generation}", self.run_id)
    }

    /// What the tags of all runs of one instance begin with; the number of the run follows.
    pub(crate) fn tags(&self, instance: &str) -> String {
        format!("{}/{instance}/", self.run_id)
    }

    /// A worker without a configuration has nothing left to do.
    pub(crate) fn worker_unneeded(&self) {
        if self.registry.try_send(registry::Event::Unneeded).is_err() {
            // The registry looks again when the next host leaves.
            tracing::debug!("a worker that is not needed stays for now");
        }
    }

    /// Has a host detached that holds too much, whichever worker it belongs to.
    pub(crate) fn evict(&self, host: HostKey) {
        if self
            .registry
            .try_send(registry::Event::Evict(host))
            .is_err()
        {
            // The registry is behind; the pool names a host again with the next bytes.
            self.pool.put_off(host);
            tracing::debug!(%host, "eviction put off");
        }
    }
}
