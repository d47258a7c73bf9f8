//! A server as it is configured, valid throughout.
//!
//! `parse` makes a [`ServerSpec`] from text or reports what is wrong; nothing beyond `config`
//! ever sees a half-valid one. Values that come from elsewhere (files, commands, the daemon's
//! environment) are named here and read when a child is spawned.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::expand::Template;
use super::fingerprint::{Fingerprint, HashKey};

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

/// Whether an entry of `servers.d` by this name is a server, if it is a file. All else is an
/// editor's or a package's leftover.
pub fn is_server_file_name(name: &OsStr) -> bool {
    let name = name.as_bytes();
    name.ends_with(b".toml") && !name.starts_with(b".")
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
    /// Keyed hashes of what `env_file`, `{ file }` and `{ credential }` values held when the file was loaded, by key
    /// (`env_file`, `env.NAME`), so that a change of the contents is seen without keeping them.
    pub contents: BTreeMap<String, Fingerprint>,
}

impl ServerSpec {
    /// The folder that relative paths of the server's file count from.
    pub fn folder(&self) -> &Path {
        self.file.parent().unwrap_or(Path::new("/"))
    }

    /// One hash of everything in here, so that two configurations can be told apart where they are
    /// shown. Keyed, because values of the environment go into it.
    pub fn fingerprint(&self, key: &HashKey) -> Fingerprint {
        self.hash(format!("{self:?}"), key)
    }

    /// One hash of what the process is made from, which is what its behaviour follows from.
    pub fn launch_fingerprint(&self, key: &HashKey) -> Fingerprint {
        self.hash(format!("{:?}", self.launch), key)
    }

    /// Contents are shown short by `Debug`, so they are spelled out beside it.
    fn hash(&self, mut text: String, key: &HashKey) -> Fingerprint {
        for (name, contents) in &self.contents {
            text.push_str(&format!(" {name}={contents}"));
        }
        Fingerprint::of(key, text.as_bytes())
    }

    /// The files that values of its environment come from.
    pub fn sources(&self) -> impl Iterator<Item = &Path> {
        let values = self.launch.env.values().filter_map(|value| match value {
            EnvValue::File(path) => Some(path.as_path()),
            EnvValue::Text(_) | EnvValue::Command(_) | EnvValue::Credential(_) => None,
        });
        self.launch.env_file.as_deref().into_iter().chain(values)
    }
}

/// What decides the process itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchSpec {
    pub command: Template,
    pub args: Vec<Template>,
    pub cwd: Option<Template>,
    /// Who has a process of their own; it decides where that is started, and for whom.
    pub sharing: Sharing,
    pub env: BTreeMap<String, EnvValue>,
    /// Absolute.
    pub env_file: Option<PathBuf>,
    /// Names to be taken from the daemon's own environment.
    pub pass_env: Vec<String>,
    /// Folders to be put before PATH, absolute.
    pub path: Vec<PathBuf>,
    /// Whether the child gets the daemon's whole environment.
    pub inherit_env: bool,
    /// Whether the child gets the proxy and CA variables.
    pub proxy_env: bool,
    pub limits: ResourceLimits,
}

/// `[limits]`: what a child and all that comes from it may use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceLimits {
    /// Of all its processes together, where a control group can count it.
    pub memory_bytes: Option<u64>,
    /// Processes and threads, where a control group can count them.
    pub tasks: Option<u32>,
    /// Descriptors of each process.
    pub open_files: Option<u32>,
}

/// Where the value of one variable of `[env]` comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EnvValue {
    Text(Template),
    /// The contents of a file, one trailing newline cut. Absolute.
    File(PathBuf),
    /// The standard output of a command, run for a spawn only, one trailing newline cut.
    Command(CommandValue),
    /// What systemd gives the service under this name, one trailing newline cut
    /// (`LoadCredential=`, systemd.exec(5)).
    Credential(String),
}

/// A command whose output is a value. Compared by its text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommandValue {
    /// Program and arguments as they were written, at least the program.
    pub argv: Vec<String>,
    /// What a relative program counts from.
    pub folder: Arc<Path>,
}

/// What `mcpd.toml` says about the daemon itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaemonConfig {
    /// The PATH of the user's shell, captured; absent: to be found out.
    pub path: Option<String>,
    /// How much all queues together may hold.
    pub memory_limit_bytes: u64,
}

impl Default for DaemonConfig {
    fn default() -> Self {
        Self {
            path: None,
            memory_limit_bytes: 512 << 20,
        }
    }
}

/// When a child that ended is started again (systemd's names and meanings).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Restart {
    #[default]
    Always,
    OnFailure,
    No,
}

/// When a child is started without anybody's command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// With the daemon.
    #[default]
    Boot,
    /// When a host's request needs it.
    Demand,
}

/// How many processes there are of one server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sharing {
    /// One for all hosts.
    #[default]
    Shared,
    /// One for each host.
    PerHost,
    /// One for each working directory of the hosts, started there.
    PerDirectory,
}

/// Which eras of MCP may be spoken with the child.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// What it turns out to speak.
    #[default]
    Auto,
    Legacy,
    Modern,
}

/// How the child is held and used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    pub start: Start,
    /// How long nothing may be asked of the child before it is ended; never zero.
    pub idle_stop: Option<Duration>,
    /// How long the child may be silent before it is asked, and then before it is started anew;
    /// never zero.
    pub watchdog: Option<Duration>,
    /// Whether processes of this server may use the control socket.
    pub allow_mcpd: bool,
    pub restart: Restart,
    /// From the spawn to the end of the first exchange; never zero.
    pub start_timeout: Duration,
    /// How long open calls may go on once a stop has begun.
    pub drain_timeout: Duration,
    /// The same where an edit is the reason.
    pub reload_drain_timeout: Duration,
    /// For each of the steps stdin and TERM.
    pub stop_timeout: Duration,
    /// Program and arguments as they were written; see [`super::resolve::command_line`].
    pub stop_command: Option<Vec<String>>,
    /// From the write to the child; never zero.
    pub request_timeout: Option<Duration>,
    /// Calls open at the child at once; never zero.
    pub max_calls: Option<u32>,
    /// A run that lasts longer resets the back-off.
    pub stable_after: Duration,
    /// Unstable runs in a row until `failed`; never zero.
    pub start_limit: u32,
    pub message_limit_bytes: usize,
    /// Whether hosts answer what the child asks of its client. The child is told when it starts.
    pub interactive: bool,
    pub tools: ToolRules,
    /// Counts from the next start on.
    pub protocol: Protocol,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            start: Start::Boot,
            idle_stop: None,
            watchdog: None,
            allow_mcpd: false,
            restart: Restart::Always,
            start_timeout: Duration::from_secs(90),
            drain_timeout: Duration::from_secs(2),
            reload_drain_timeout: Duration::from_secs(30),
            stop_timeout: Duration::from_secs(5),
            stop_command: None,
            request_timeout: None,
            max_calls: None,
            stable_after: Duration::from_secs(60),
            start_limit: 10,
            message_limit_bytes: 64 << 20,
            interactive: false,
            tools: ToolRules::default(),
            protocol: Protocol::Auto,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_of_letters_digits_and_three_signs() {
        let longest = "n".repeat(64);
        for name in ["a", "9", "calc.v2", "a_b-c", &longest] {
            assert_eq!(
                ServerName::parse(name)
                    .map(|name| name.to_string())
                    .as_deref(),
                Some(name)
            );
        }
        let too_long = "n".repeat(65);
        for name in [
            "", "-a", ".a", "_a", "a b", "a/b", "ä", "a\n", "..", &too_long,
        ] {
            assert_eq!(ServerName::parse(name), None, "{name:?}");
        }
    }
}
