//! The configuration of one server, as its instance knows it.
//!
//! Says what runs and what is to be said of the file; it never reads one.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::config::diagnostics::Diagnostic;
use crate::config::fingerprint::Fingerprint;
use crate::config::spec::{Policy, ServerSpec, Sharing};

/// How long the child of a directory stays that nobody asks anything, where the file does not say.
pub const DIRECTORY_IDLE: Duration = Duration::from_secs(10 * 60);

/// Whose instance it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Owner {
    /// Everybody's.
    #[default]
    Server,
    /// Of the hosts in this directory.
    Directory(PathBuf),
    /// Of one attachment, by its number.
    Host(u64),
}

impl Owner {
    /// The directory that it is started in, where its hosts decide that.
    pub fn directory(&self) -> Option<&Path> {
        match self {
            Self::Directory(directory) => Some(directory),
            Self::Server | Self::Host(_) => None,
        }
    }

    /// Whether it is one of several, and not the server's own.
    pub fn is_part(&self) -> bool {
        *self != Self::Server
    }

    /// Whether a server that is shared so has such instances.
    pub fn fits(&self, sharing: Sharing) -> bool {
        match self {
            Self::Server => true,
            Self::Directory(_) => sharing == Sharing::PerDirectory,
            Self::Host(_) => sharing == Sharing::PerHost,
        }
    }
}

/// How a new configuration reaches the running child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// It does not concern the child (only what is known of the file has changed).
    Noted,
    Live,
    Restart,
}

/// The configuration of one server as its instance knows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// What runs; absent if there never was a valid file, or the file is gone.
    pub spec: Option<Arc<ServerSpec>>,
    pub verdict: Verdict,
    /// The file that the server has, had or would have.
    pub file: PathBuf,
    /// Whose instance it is for.
    pub owner: Owner,
    /// The configuration in which `spec` was applied.
    pub generation: u64,
    /// Tells `spec` from others, for `status`.
    pub hash: Option<Fingerprint>,
}

/// What is to be said of the server's file.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    Ok,
    /// At least one error; the last good specification, if any, stays.
    Invalid(Vec<Diagnostic>),
    /// It was there and is gone.
    Removed,
    /// It never was.
    Unknown,
}

impl Setting {
    /// Of a name that has no file.
    pub fn unknown(file: PathBuf) -> Self {
        Self {
            spec: None,
            verdict: Verdict::Unknown,
            file,
            owner: Owner::Server,
            generation: 0,
            hash: None,
        }
    }

    pub fn is_unknown(&self) -> bool {
        matches!(self.verdict, Verdict::Unknown)
    }

    /// Whether nothing in the file system stands for this server.
    pub fn is_absent(&self) -> bool {
        matches!(self.verdict, Verdict::Unknown | Verdict::Removed)
    }

    /// The same for one of the server's instances.
    #[must_use]
    pub fn of(&self, owner: Owner) -> Self {
        Self {
            owner,
            ..self.clone()
        }
    }

    /// Whether there is a valid specification that is not disabled, and a child of its own.
    pub fn may_run(&self) -> bool {
        self.is_enabled() && !self.is_split()
    }

    pub fn is_enabled(&self) -> bool {
        self.spec.as_ref().is_some_and(|spec| spec.enabled)
    }

    /// How hosts share the server, as far as it is known.
    pub fn sharing(&self) -> Sharing {
        let spec = self.spec.as_ref();
        spec.map_or(Sharing::Shared, |spec| spec.launch.sharing)
    }

    /// Whether it only stands for instances beside it.
    pub fn is_split(&self) -> bool {
        !self.owner.is_part() && self.sharing() != Sharing::Shared
    }

    pub fn is_disabled(&self) -> bool {
        self.spec.as_ref().is_some_and(|spec| !spec.enabled)
    }

    pub fn policy(&self) -> Policy {
        let spec = self.spec.as_ref();
        let mut policy = spec.map_or_else(Policy::default, |spec| spec.policy.clone());
        if self.owner.directory().is_some() {
            policy.idle_stop.get_or_insert(DIRECTORY_IDLE);
        }
        policy
    }

    /// Why nothing is served, where the server's file is the reason.
    pub fn fault(&self, name: &str) -> Option<String> {
        let file = self.file.display();
        match (&self.spec, &self.verdict) {
            (_, Verdict::Removed) => Some(format!("server \"{name}\" was removed: {file} is gone")),
            (_, Verdict::Unknown) => Some(format!(
                "no server \"{name}\" is configured: there is no {file}"
            )),
            (None, Verdict::Invalid(errors)) => {
                let first = errors
                    .first()
                    .map(Diagnostic::to_line_with_hint)
                    .unwrap_or_default();
                Some(format!(
                    "the configuration of \"{name}\" is invalid: {first}"
                ))
            }
            (Some(spec), _) if !spec.enabled => {
                Some(format!("server \"{name}\" is disabled in {file}"))
            }
            (Some(_), _) if self.is_split() => Some(match self.sharing() {
                Sharing::PerDirectory => {
                    format!("\"{name}\" runs once for each directory, and no host is there")
                }
                Sharing::PerHost | Sharing::Shared => {
                    format!("\"{name}\" runs once for each host, and no host is there")
                }
            }),
            _ => None,
        }
    }

    /// What to do about that fault.
    pub fn remedy(&self) -> Option<String> {
        let file = self.file.display();
        match (&self.spec, &self.verdict) {
            (_, Verdict::Removed | Verdict::Unknown) => Some(format!(
                "`mcpd status` lists the servers; to have this one, write {file} and run `mcpd reload`"
            )),
            (None, Verdict::Invalid(_)) => Some(
                "`mcpd check` shows all that is wrong; `mcpd reload` applies what you mend"
                    .to_owned(),
            ),
            (Some(spec), _) if !spec.enabled => Some(format!(
                "set `enabled = true` in {file} and run `mcpd reload`"
            )),
            _ => None,
        }
    }
}
