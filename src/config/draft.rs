//! The keys that one file says something about, before those it leaves out are filled in.
//!
//! It decides what holds where a key is missing: what `[defaults]` of `mcpd.toml` says, then the
//! default of the documentation. It checks nothing; `keys` has.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::expand::Template;
use super::spec::{
    EnvValue, LaunchSpec, Policy, Protocol, ResourceLimits, Restart, ServerName, ServerSpec,
    Sharing, Start, ToolRules,
};

/// The keys of a file or of `[defaults]` that are there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Draft {
    pub(super) command: Option<Template>,
    pub(super) args: Option<Vec<Template>>,
    pub(super) cwd: Option<Template>,
    pub(super) sharing: Option<Sharing>,
    pub(super) description: Option<String>,
    pub(super) enabled: Option<bool>,
    pub(super) env: BTreeMap<String, EnvValue>,
    pub(super) env_file: Option<PathBuf>,
    pub(super) pass_env: Option<Vec<String>>,
    pub(super) path: Option<Vec<PathBuf>>,
    pub(super) inherit_env: Option<bool>,
    pub(super) proxy_env: Option<bool>,
    pub(super) limits_memory_bytes: Option<u64>,
    pub(super) limits_tasks: Option<u32>,
    pub(super) limits_open_files: Option<u32>,
    pub(super) start: Option<Start>,
    pub(super) idle_stop: Option<Duration>,
    pub(super) watchdog: Option<Duration>,
    pub(super) allow_mcpd: Option<bool>,
    pub(super) restart: Option<Restart>,
    pub(super) start_timeout: Option<Duration>,
    pub(super) drain_timeout: Option<Duration>,
    pub(super) reload_drain_timeout: Option<Duration>,
    pub(super) stop_timeout: Option<Duration>,
    pub(super) stop_command: Option<Vec<String>>,
    pub(super) request_timeout: Option<Duration>,
    pub(super) max_calls: Option<u32>,
    pub(super) stable_after: Option<Duration>,
    pub(super) start_limit: Option<u32>,
    pub(super) message_limit_bytes: Option<usize>,
    pub(super) protocol: Option<Protocol>,
    pub(super) interactive: Option<bool>,
    pub(super) tools_allow: Option<Vec<String>>,
    pub(super) tools_deny: Option<Vec<String>>,
}

impl Draft {
    /// What is missing here is taken from `other`; variables of both count, ours first.
    pub(super) fn or(mut self, other: &Self) -> Self {
        macro_rules! fill {
            ($($field:ident),* $(,)?) => { $(self.$field = self.$field.or_else(|| other.$field.clone());)* };
        }
        fill!(
            command,
            args,
            cwd,
            sharing,
            description,
            enabled,
            env_file,
            pass_env,
            path,
            inherit_env,
            proxy_env,
            limits_memory_bytes,
            limits_tasks,
            limits_open_files,
            start,
            idle_stop,
            watchdog,
            allow_mcpd,
            restart,
            start_timeout,
            drain_timeout,
            reload_drain_timeout,
            stop_timeout,
            stop_command,
            request_timeout,
            max_calls,
            stable_after,
            start_limit,
            message_limit_bytes,
            protocol,
            interactive,
            tools_allow,
            tools_deny,
        );
        for (name, value) in &other.env {
            self.env
                .entry(name.clone())
                .or_insert_with(|| value.clone());
        }
        self
    }

    /// The specification, if there is a command. The rest has defaults.
    pub(super) fn into_spec(self, name: &ServerName, file: &Path) -> Option<ServerSpec> {
        let usual = Policy::default();
        Some(ServerSpec {
            name: name.clone(),
            file: file.to_owned(),
            description: self.description,
            enabled: self.enabled.unwrap_or(true),
            launch: LaunchSpec {
                command: self.command?,
                args: self.args.unwrap_or_default(),
                cwd: self.cwd,
                sharing: self.sharing.unwrap_or_default(),
                env: self.env,
                env_file: self.env_file,
                pass_env: self.pass_env.unwrap_or_default(),
                path: self.path.unwrap_or_default(),
                inherit_env: self.inherit_env.unwrap_or(false),
                proxy_env: self.proxy_env.unwrap_or(true),
                limits: ResourceLimits {
                    memory_bytes: self.limits_memory_bytes,
                    tasks: self.limits_tasks,
                    open_files: self.limits_open_files,
                },
            },
            policy: Policy {
                start: self.start.unwrap_or(usual.start),
                idle_stop: self.idle_stop,
                watchdog: self.watchdog,
                allow_mcpd: self.allow_mcpd.unwrap_or(usual.allow_mcpd),
                restart: self.restart.unwrap_or(usual.restart),
                start_timeout: self.start_timeout.unwrap_or(usual.start_timeout),
                drain_timeout: self.drain_timeout.unwrap_or(usual.drain_timeout),
                reload_drain_timeout: self
                    .reload_drain_timeout
                    .unwrap_or(usual.reload_drain_timeout),
                stop_timeout: self.stop_timeout.unwrap_or(usual.stop_timeout),
                stop_command: self.stop_command,
                request_timeout: self.request_timeout,
                max_calls: self.max_calls,
                stable_after: self.stable_after.unwrap_or(usual.stable_after),
                start_limit: self.start_limit.unwrap_or(usual.start_limit),
                message_limit_bytes: self
                    .message_limit_bytes
                    .unwrap_or(usual.message_limit_bytes),
                interactive: self.interactive.unwrap_or(usual.interactive),
                tools: ToolRules {
                    allow: self.tools_allow,
                    deny: self.tools_deny.unwrap_or_default(),
                },
                protocol: self.protocol.unwrap_or(usual.protocol),
            },
            contents: BTreeMap::new(),
        })
    }
}
