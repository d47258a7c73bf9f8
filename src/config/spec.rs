//! A server as it is configured, valid throughout.
//!
//! `parse` makes a [`ServerSpec`] from text or reports what is wrong; nothing beyond `config`
//! ever sees a half-valid one. Values that come from elsewhere (files, commands, the daemon's
//! environment) are named here and read when a child is spawned.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::expand::Template;

/// The name of a server: the stem of its file, `[A-Za-z0-9][A-Za-z0-9._-]{0,63}`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerName(String);

impl ServerName {
    /// The name in `text`, if `text` is one.
    pub fn parse(text: &str) -> Option<Self> {
        let first = text.bytes().next()?;
        let rest = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        (text.len() <= 64 && first.is_ascii_alphanumeric() && text.bytes().all(rest))
            .then(|| Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for ServerName {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&self.0)
    }
}

/// One server of `servers.d`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSpec {
    pub name: ServerName,
    /// The file as it is named in `servers.d`; relative paths count from its folder.
    pub file: PathBuf,
    pub description: Option<String>,
    pub enabled: bool,
    /// What a spawn needs: a change here restarts the child.
    pub launch: LaunchSpec,
    /// How the child is held and used: a change here is applied live.
    pub policy: Policy,
}

/// What decides the process itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchSpec {
    pub command: Template,
    pub args: Vec<Template>,
    pub cwd: Option<Template>,
    pub env: BTreeMap<String, EnvValue>,
    pub env_file: Option<PathBuf>,
    pub pass_env: Vec<String>,
    pub path: Vec<String>,
    pub inherit_env: bool,
    pub proxy_env: bool,
}

/// Where the value of one variable of `[env]` comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EnvValue {
    Text(Template),
    /// The contents of a file, one trailing newline cut.
    File(PathBuf),
    /// The standard output of a command, run for a spawn only.
    Command(Vec<String>),
}

/// When a child that ended is started again (systemd's names and meanings).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Restart {
    #[default]
    Always,
    OnFailure,
    No,
}

/// How the child is held and used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    pub restart: Restart,
    pub start_timeout: Duration,
    pub drain_timeout: Duration,
    pub stop_timeout: Duration,
    pub stop_command: Option<Vec<String>>,
    pub request_timeout: Option<Duration>,
    pub max_calls: Option<u32>,
    pub stable_after: Duration,
    pub start_limit: u32,
    pub message_limit_bytes: usize,
    pub tools: ToolRules,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            restart: Restart::Always,
            start_timeout: Duration::from_secs(90),
            drain_timeout: Duration::from_secs(2),
            stop_timeout: Duration::from_secs(5),
            stop_command: None,
            request_timeout: None,
            max_calls: None,
            stable_after: Duration::from_secs(60),
            start_limit: 10,
            message_limit_bytes: 64 << 20,
            tools: ToolRules::default(),
        }
    }
}

/// `[tools]`: which tools hosts may see and call. Names with `*` for any run of characters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolRules {
    /// Absent: every tool that is not denied.
    pub allow: Option<Vec<String>>,
    pub deny: Vec<String>,
}
