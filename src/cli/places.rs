//! Where everything lies, as the commands need it.
//!
//! The rule itself is [`crate::config::paths`]; this adds the few files that only the command line
//! knows, and says what is in the way in its words. Makes no folder but through
//! [`Places::prepare`].

use std::path::{Path, PathBuf};

use super::error::CliError;
use crate::config::dirs::{
    DirectoryError, check_runtime_dir, current_user, find_paths, prepare_runtime_dir,
    prepare_state_dir,
};
use crate::config::environment::{Environment, User};
use crate::config::paths::{PathError, PathFlags, Paths};

/// The places of one configuration, and whose they are.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    pub(crate) paths: Paths,
    pub(crate) user: User,
    /// `mcpd.sock`, which fits into an address.
    pub(crate) socket: PathBuf,
}

impl Places {
    /// The places that flags and environment lead to.
    pub(crate) fn find(flags: &PathFlags, environment: &Environment) -> Result<Self, CliError> {
        let user = current_user();
        let paths = find_paths(flags, environment, &user).map_err(refused)?;
        if (flags.config.is_some() || environment.get_filled("MCPD_CONFIG").is_some())
            && !paths.is_default()
        {
            check_config_dir(paths.config_dir())?;
        }
        let socket = paths.socket().map_err(refused)?.to_owned();
        Ok(Self {
            paths,
            user,
            socket,
        })
    }

    /// The file that keeps shims from starting a daemon that was ended on purpose.
    pub(crate) fn shutdown_marker(&self) -> PathBuf {
        self.beside_socket(".shutdown")
    }

    /// The file in which a daemon that has ended in order leaves its pid, so that shims which lose
    /// it do not take it for a crash.
    pub(crate) fn ended_marker(&self) -> PathBuf {
        self.beside_socket(".ended")
    }

    /// The lock under which a daemon is started, so that many starters end with one.
    pub(crate) fn start_lock(&self) -> PathBuf {
        self.beside_socket(".start")
    }

    /// A file of this one daemon: several sockets may lie in one folder.
    fn beside_socket(&self, ending: &str) -> PathBuf {
        let mut path = self.socket.clone().into_os_string();
        path.push(ending);
        path.into()
    }

    /// Where a running daemon notes its socket. Whoever computes another path, because
    /// `XDG_RUNTIME_DIR` is set at one end only, finds it here.
    pub(crate) fn socket_note(&self) -> PathBuf {
        self.paths.state_dir().join("socket")
    }

    /// What a daemon that was started for a host writes to standard error. Not beside the logs of
    /// the servers: one of them may be called "daemon".
    pub(crate) fn daemon_log(&self) -> PathBuf {
        self.paths.state_dir().join("daemon.log")
    }

    /// Makes the folders of sockets and state, private to the user, or says what is in the way. The
    /// one of the logs is not needed to serve.
    pub(crate) fn prepare(&self) -> Result<(), CliError> {
        prepare_runtime_dir(&self.paths, &self.user).map_err(unusable)?;
        prepare_state_dir(&self.paths, &self.user).map_err(unusable)
    }

    /// Refuses a runtime folder that somebody else could write to. One that is missing is fine:
    /// there is no daemon then.
    pub(crate) fn check_runtime_dir(&self) -> Result<(), CliError> {
        check_runtime_dir(&self.paths, &self.user).map_err(unusable)
    }
}

/// A configuration that was named must be there, or a mistyped path would pass for an empty one.
fn check_config_dir(path: &Path) -> Result<(), CliError> {
    let place = path.display();
    match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => Err(CliError::config(format!("{place} is not a folder"))
            .hint("--config takes the folder that holds mcpd.toml and servers.d")),
        Err(error) => {
            let message = format!("cannot use the configuration folder {place}");
            Err(CliError::config(message).because(error))
        }
    }
}

pub(crate) fn refused(error: PathError) -> CliError {
    let hint = error.hint();
    CliError::config("cannot tell where the files of mcpd are")
        .because(error)
        .hint(hint)
}

pub(crate) fn unusable(error: DirectoryError) -> CliError {
    CliError::config("cannot use a folder of mcpd").because(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::error::Kind;

    /// What `--config NAME` leads to, in an environment with nothing but a home.
    fn check(root: &Path, name: &str) -> Result<Places, CliError> {
        let flags = PathFlags {
            config: Some(root.join(name)),
            ..PathFlags::default()
        };
        let environment: Environment = [("HOME", root)].into_iter().collect();
        Places::find(&flags, &environment)
    }

    #[test]
    fn a_configuration_that_is_missing_or_a_file_is_named() {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("file"), "").unwrap();
        for name in ["missing", "file"] {
            let error = check(root.path(), name).unwrap_err();
            assert_eq!(error.kind, Kind::Config);
            assert!(error.message.contains(name), "{}", error.message);
        }
    }

    #[test]
    fn folders_are_made_and_private() {
        use std::os::unix::fs::MetadataExt;
        let root = tempfile::tempdir().unwrap();
        let flags = PathFlags {
            socket: Some(root.path().join("run/mcpd.sock")),
            state: Some(root.path().join("state")),
            config: None,
        };
        let environment: Environment = [("HOME", root.path())].into_iter().collect();
        let places = Places::find(&flags, &environment).unwrap();
        places.prepare().unwrap();
        for folder in ["run", "state"] {
            let found = std::fs::metadata(root.path().join(folder)).unwrap();
            assert_eq!(found.mode() & 0o777, 0o700, "{folder}");
        }
    }
}
