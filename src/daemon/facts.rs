//! What is true of the daemon as a whole, for `status`.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use tokio::task::AbortHandle;

use crate::control::{AttachmentStatus, DaemonStatus, PROTOCOL, ProcessStatus, ServerStatus};
use crate::supervise::cgroup::{LeafUsage, measure_leaf};
use crate::supervise::process_tree::{self, Leader, Process, Usage};
use crate::time::Moment;

use super::clock;
use super::containment::Established;
use super::shared::Shared;
use super::socket::{self, SocketFile};
use super::systemd::Notifier;

/// What the kernel calls a shim.
const SHIM_NAME: &str = "mcpd";

/// Fixed at the start, but for the listener that is ended once.
#[derive(Debug)]
pub(crate) struct DaemonFacts {
    pub(crate) started_at: Duration,
    pub(crate) started: Moment,
    pub(crate) started_by: String,
    pub(crate) path_source: String,
    pub(crate) config_dir: PathBuf,
    pub(crate) socket: PathBuf,
    pub(crate) state_dir: PathBuf,
    pub(crate) containment: Established,
    pub(crate) warden: Option<u32>,
    pub(crate) warnings: Vec<String>,
    /// With the file of the control socket, if it is ours: a service manager keeps its own, for the
    /// next daemon.
    pub(crate) listener: Mutex<Option<(AbortHandle, Option<SocketFile>)>>,
    pub(crate) notifier: Notifier,
}

impl DaemonFacts {
    /// No further connection is accepted on the control socket; its file goes with it if it is ours.
    pub(crate) fn stop_listening(&self) {
        let mut listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((task, file)) = listener.take() {
            task.abort();
            match file {
                Some(file) => file.remove(),
                None => socket::note_ending(&self.socket),
            }
        }
    }

    /// Without what only the registry knows.
    pub(crate) fn status(&self, shared: &Shared) -> DaemonStatus {
        let uptime = clock::now() - self.started;
        DaemonStatus {
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            protocol: PROTOCOL,
            started_at: Some(clock::render_wall(self.started_at)),
            uptime_ms: u64::try_from(uptime.as_millis()).unwrap_or(u64::MAX),
            started_by: self.started_by.clone(),
            path_source: self.path_source.clone(),
            path: shared.base.path().to_string_lossy().into_owned(),
            config_dir: self.config_dir.display().to_string(),
            socket: self.socket.display().to_string(),
            state_dir: self.state_dir.display().to_string(),
            containment: self.containment.level.as_str().to_owned(),
            warden: self.warden,
            held_bytes: shared.pool.used_bytes(),
            pool_limit_bytes: shared.pool.limit_bytes(),
            warnings: self.warnings.clone(),
            ..DaemonStatus::default()
        }
    }

    /// Adds to each server what its processes use and may use, and with `with_processes` which they
    /// are.
    pub(crate) fn measure(&self, servers: &mut [ServerStatus], with_processes: bool) {
        for server in servers {
            self.containment
                .level
                .as_str()
                .clone_into(&mut server.containment);
            self.containment.judge(server);
            for holder in &mut server.stop.holders {
                if let Some(process) = process_tree::read_process(holder.pid) {
                    *holder = process_status(&process);
                    holder.wchan = process_tree::read_wait_channel(process.pid);
                }
            }
            server.attachments.iter_mut().for_each(name_host);
            let Some(pid) = server.pid else { continue };
            let Some(process) = process_tree::read_process(pid) else {
                continue;
            };
            let leader = Leader {
                pid,
                start_ticks: process.start_ticks,
            };
            if let Ok(usage) = process_tree::measure(leader) {
                fill(server, &usage, with_processes);
            }
            if let Some(group) = &server.cgroup {
                let usage = measure_leaf(Path::new(group));
                fill_by_group(server, &usage);
            }
        }
    }
}

fn fill(server: &mut ServerStatus, usage: &Usage, with_processes: bool) {
    server.resources.source = Some(format!("tree ({})", usage.memory_kind.as_str()));
    server.resources.memory_current = Some(usage.memory_bytes);
    server.resources.rss_sum = Some(usage.memory_bytes);
    server.resources.cpu_usec = u64::try_from(usage.cpu.as_micros()).ok();
    server.resources.tasks = Some(usage.tasks);
    server.resources.fds = Some(usage.descriptors);
    if with_processes {
        server.processes = usage.processes.iter().map(process_status).collect();
    }
}

/// What the kernel has counted is better than what was added up.
fn fill_by_group(server: &mut ServerStatus, usage: &LeafUsage) {
    let resources = &mut server.resources;
    if let Some(cpu) = usage.cpu {
        resources.cpu_usec = u64::try_from(cpu.as_micros()).ok();
    }
    if let Some(tasks) = usage.tasks {
        resources.tasks = Some(tasks);
    }
    if let Some(bytes) = usage.memory_bytes {
        resources.memory_current = Some(bytes);
        resources.memory_peak = usage.memory_peak_bytes;
        resources.source = Some("cgroup".to_owned());
    } else if usage.cpu.is_some() {
        let tree = resources.source.take().unwrap_or_default();
        resources.source = Some(format!("{tree}, cpu by cgroup"));
    }
}

/// Names the host behind an attachment: the peer's process, or the parent of a shim.
fn name_host(attachment: &mut AttachmentStatus) {
    let Some(peer) = attachment.pid.and_then(process_tree::read_process) else {
        return;
    };
    let is_shim = peer.name == SHIM_NAME;
    let host = match is_shim {
        true => process_tree::read_process(peer.parent).filter(|host| host.pid > 1),
        false => Some(peer),
    };
    if let Some(host) = host {
        attachment.host_pid = Some(host.pid);
        attachment.host_name = Some(host.name);
    }
}

fn process_status(process: &Process) -> ProcessStatus {
    ProcessStatus {
        pid: process.pid,
        ppid: process.parent,
        pgid: process.group,
        sid: process.session,
        state: process.state.to_string(),
        name: process.name.clone(),
        rss: None,
        wchan: None,
    }
}
