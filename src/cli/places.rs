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
use crate::config::environment::{Environment, User, home};
use crate::config::paths::{PathError, PathFlags, Paths, config_home, data_home};

/// The places of one configuration, and whose they are.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    pub(crate) paths: Paths,
    pub(crate) user: User,
    /// `mcpd.sock`, which fits into an address.
    pub(crate) socket: PathBuf,
    /// The unit file by which systemd runs the daemon of these places, if one is installed.
    pub(crate) unit_file: Option<PathBuf>,
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
        // The service knows nothing of places that a terminal has chosen.
        let is_service = paths.is_default()
            && !paths.socket_is_chosen()
            && flags.state.is_none()
            && environment.get_filled("MCPD_STATE").is_none();
        let unit_file = is_service
            .then(|| find_unit_file(environment, &user))
            .flatten();
        Ok(Self {
            paths,
            user,
            socket,
            unit_file,
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

    /// The file that a daemon makes once it serves and takes away when it ends, so that shims which
    /// wait for one see it come. The socket may be there all the time.
    pub(crate) fn ready_file(&self) -> PathBuf {
        self.paths.runtime_dir().join("ready")
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

/// Where a person's own units lie (systemd.unit(5)).
pub(crate) fn own_units_dir(environment: &Environment, user: &User) -> PathBuf {
    config_home(environment, &home(environment, user)).join("systemd/user")
}

/// The first unit file of the daemon in the order in which systemd looks for it. One that is masked
/// is a link to `/dev/null`, and so no file.
fn find_unit_file(environment: &Environment, user: &User) -> Option<PathBuf> {
    let own = own_units_dir(environment, user);
    let data = data_home(environment, &home(environment, user)).join("systemd/user");
    let others = [
        Path::new("/etc/systemd/user"),
        &data,
        Path::new("/usr/local/lib/systemd/user"),
        Path::new("/usr/lib/systemd/user"),
    ];
    let mut folders = std::iter::once(own.as_path()).chain(others);
    let file = folders.find_map(|folder| {
        let file = folder.join("mcpd.service");
        file.exists().then_some(file)
    })?;
    file.is_file().then_some(file)
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

    /// The unit file that is found with `flags` in the home `root`.
    fn unit_file(root: &Path, flags: &PathFlags) -> Option<PathBuf> {
        let environment: Environment = [("HOME", root)].into_iter().collect();
        Places::find(flags, &environment).unwrap().unit_file
    }

    #[test]
    fn the_service_is_that_of_the_default_places() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join(".config/systemd/user/mcpd.service");
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, "").unwrap();
        let plain = PathFlags::default();
        assert_eq!(unit_file(root.path(), &plain), Some(file));
        let socket = Some(root.path().join("s"));
        let state = Some(root.path().join("state"));
        for flags in [
            PathFlags {
                socket,
                ..plain.clone()
            },
            PathFlags { state, ..plain },
        ] {
            assert_eq!(unit_file(root.path(), &flags), None, "{flags:?}");
        }
    }

    #[test]
    fn a_unit_that_is_masked_is_none() {
        let root = tempfile::tempdir().unwrap();
        let own = root.path().join(".config/systemd/user/mcpd.service");
        let shared = root.path().join(".local/share/systemd/user/mcpd.service");
        for file in [&own, &shared] {
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        }
        std::fs::write(&shared, "").unwrap();
        let plain = PathFlags::default();
        assert_eq!(unit_file(root.path(), &plain), Some(shared));
        std::os::unix::fs::symlink("/dev/null", &own).unwrap();
        assert_eq!(unit_file(root.path(), &plain), None);
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
