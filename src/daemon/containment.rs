//! How surely the daemon holds what comes from its servers: established once, before any spawn.
//!
//! Takes the strongest level that was asked for and that the machine gives; what it does not give
//! becomes a warning in `status`, never a reason not to serve.

use crate::config::spec::ResourceLimits;
use crate::control::{LimitsStatus, ServerStatus};
use crate::supervise::cgroup::{Controllers, Delegated};
use crate::supervise::hierarchy::Containment;
use crate::supervise::reap::become_subreaper;
use crate::supervise::spawn::Spawner;

/// What holds from the start of the daemon to its end.
#[derive(Debug)]
pub(crate) struct Established {
    pub(crate) level: Containment,
    pub(crate) controllers: Controllers,
}

/// Establishes `wanted` or, with a warning, what comes next below it.
pub(super) fn establish(
    wanted: Containment,
    spawner: &Spawner,
    warnings: &mut Vec<String>,
) -> Established {
    let nothing = |level| Established {
        level,
        controllers: Controllers::default(),
    };
    if wanted == Containment::Group {
        return nothing(Containment::Group);
    }
    if let Err(error) = become_subreaper() {
        warnings.push(format!("orphans of servers go to init: {error}"));
        return nothing(Containment::Group);
    }
    if wanted == Containment::Subreaper {
        return nothing(Containment::Subreaper);
    }
    match Delegated::take() {
        Ok((delegated, complaints)) => {
            warnings.extend(complaints);
            tracing::info!(group = %delegated.folder().display(), "servers have control groups");
            let controllers = delegated.controllers();
            spawner.contain(delegated);
            Established {
                level: Containment::Cgroup,
                controllers,
            }
        }
        Err(error) => {
            warnings.push(format!("servers have no control groups: {error}"));
            nothing(Containment::Subreaper)
        }
    }
}

/// The limits of a server for `status`, with what is configured in vain.
pub(super) fn limits_status(limits: &ResourceLimits) -> LimitsStatus {
    LimitsStatus {
        memory: limits.memory_bytes,
        tasks: limits.tasks.map(u64::from),
        open_files: limits.open_files.map(u64::from),
        not_enforced: Vec::new(),
        not_enforced_because: None,
    }
}

impl Established {
    /// Notes which limits of `server` nobody holds.
    pub(super) fn judge(&self, server: &mut ServerStatus) {
        let limits = &mut server.limits;
        let mut missing = Vec::new();
        if limits.memory.is_some() && !self.controllers.memory {
            limits.not_enforced.push("memory".to_owned());
            missing.push("memory");
        }
        if limits.tasks.is_some() && !self.controllers.pids {
            limits.not_enforced.push("tasks".to_owned());
            missing.push("pids");
        }
        if !missing.is_empty() {
            limits.not_enforced_because = Some(match self.level {
                Containment::Cgroup => {
                    format!("its control group has no controller {}", missing.join(", "))
                }
                Containment::Subreaper | Containment::Group => {
                    "it has no control group, see `mcpd service install`".to_owned()
                }
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(level: Containment, controllers: Controllers, expected: (&[&str], Option<&str>)) {
        let limits = ResourceLimits {
            memory_bytes: Some(1 << 20),
            tasks: Some(9),
            open_files: Some(99),
        };
        let mut server = ServerStatus {
            limits: limits_status(&limits),
            ..ServerStatus::default()
        };
        Established { level, controllers }.judge(&mut server);
        let because = server.limits.not_enforced_because.as_deref();
        assert_eq!(server.limits.not_enforced, expected.0);
        assert_eq!(because, expected.1);
    }

    #[test]
    fn what_nobody_counts_is_not_enforced() {
        let none = Controllers::default();
        let (memory, pids) = (true, true);
        let both = Controllers { memory, pids };
        let one = Controllers { pids, ..none };
        let no_group = "it has no control group, see `mcpd service install`";
        let all: (&[&str], _) = (&["memory", "tasks"], Some(no_group));
        check(Containment::Subreaper, none, all);
        check(Containment::Group, none, all);
        let reason = "its control group has no controller memory";
        check(Containment::Cgroup, one, (&["memory"], Some(reason)));
        check(Containment::Cgroup, both, (&[], None));
    }
}
