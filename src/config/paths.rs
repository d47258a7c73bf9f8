//! Where things are: configuration, sockets and state.
//!
//! It decides all paths from an environment, flags and what the shell saw of a few directories, so
//! that command line, shim and daemon come to the same answer. It never touches the disk; `dirs`
//! does, with the checks.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::environment::Environment;
use super::spec::ServerName;

/// What fits into `sun_path` with its end (`unix(7)`), in bytes.
pub const SOCKET_PATH_LIMIT_BYTES: usize = 107;

/// What the command line says about paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathFlags {
    /// `--config DIR`
    pub config: Option<PathBuf>,
    /// `--socket PATH`
    pub socket: Option<PathBuf>,
    /// `--state DIR`
    pub state: Option<PathBuf>,
}

/// What the shell saw at a path that is to hold sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectoryFact {
    Missing,
    /// Something else than a directory, a link included.
    NotDirectory,
    OtherOwner {
        uid: u32,
    },
    /// Ours, but others may write to it. `mode` is the permission bits.
    OpenToOthers {
        mode: u32,
    },
    Ours,
}

/// The configuration folder before its links are followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigFolder {
    /// The folder that was asked for, absolute.
    pub chosen: PathBuf,
    /// The folder that counts where nobody asks for one.
    pub default: PathBuf,
}

/// What [`Paths::new`] decides upon.
#[derive(Clone, Debug)]
pub struct PathFacts<'a> {
    pub flags: &'a PathFlags,
    pub environment: &'a Environment,
    /// The home directory, see [`super::environment::home`].
    pub home: &'a Path,
    pub uid: u32,
    pub working_directory: &'a Path,
    pub folder: ConfigFolder,
    /// The real path of `folder.chosen`, or the nearest to it that exists and the rest.
    pub real_chosen: PathBuf,
    pub real_default: PathBuf,
    /// What is at `$XDG_RUNTIME_DIR`, if it is set and absolute.
    pub xdg_runtime: Option<DirectoryFact>,
    /// What is at `/run/user/UID`.
    pub run_user: DirectoryFact,
}

/// Why there is no path to go by.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    #[error("{variable} is {}, which {}", path.display(), fault(*fact))]
    UnsafeRuntimeDirectory {
        variable: &'static str,
        path: PathBuf,
        fact: DirectoryFact,
    },
    #[error("socket path {} has {len} bytes, more than the {SOCKET_PATH_LIMIT_BYTES} that fit", path.display())]
    SocketPathTooLong { path: PathBuf, len: usize },
    #[error("neither HOME nor the user database names a home directory")]
    NoHome,
    #[error("cannot read the working directory")]
    NoWorkingDirectory,
}

impl PathError {
    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::UnsafeRuntimeDirectory { .. } => {
                "set XDG_RUNTIME_DIR to a directory of your own with mode 0700, or unset it"
            }
            Self::SocketPathTooLong { .. } => "set --socket or MCPD_SOCKET to a shorter path",
            Self::NoHome => "set HOME to an absolute path",
            Self::NoWorkingDirectory => {
                "change to a directory that exists, or give --config an absolute path"
            }
        }
    }
}

fn fault(fact: DirectoryFact) -> String {
    match fact {
        DirectoryFact::Missing => "does not exist".to_owned(),
        DirectoryFact::NotDirectory => "is no directory".to_owned(),
        DirectoryFact::OtherOwner { uid } => format!("belongs to uid {uid}"),
        DirectoryFact::OpenToOthers { mode } => format!("others may write to (mode {mode:04o})"),
        DirectoryFact::Ours => "is ours".to_owned(),
    }
}

/// All paths of one configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    config_dir: PathBuf,
    is_default: bool,
    runtime_dir: PathBuf,
    /// The directory above `runtime_dir` that has to be made and checked as well, in `/tmp`.
    private_parent: Option<PathBuf>,
    socket: PathBuf,
    socket_is_chosen: bool,
    state_dir: PathBuf,
}

/// The configuration folder that flags and environment ask for, and the default one.
pub fn config_folder(
    flags: &PathFlags,
    environment: &Environment,
    home: &Path,
    working_directory: &Path,
) -> ConfigFolder {
    let default = xdg_dir(environment, "XDG_CONFIG_HOME", home, ".config").join("mcpd");
    let chosen = flag_or_variable(flags.config.as_deref(), environment, "MCPD_CONFIG");
    // Taken apart and put together again, so that `--config .` does not leave `/.` in every message.
    let tidy = |dir: PathBuf| working_directory.join(dir).components().collect();
    let chosen = chosen.map_or_else(|| default.clone(), tidy);
    ConfigFolder { chosen, default }
}

/// The folder of all of a person's configuration.
pub fn config_home(environment: &Environment, home: &Path) -> PathBuf {
    xdg_dir(environment, "XDG_CONFIG_HOME", home, ".config")
}

/// The folder of what programs keep for a person.
pub fn data_home(environment: &Environment, home: &Path) -> PathBuf {
    xdg_dir(environment, "XDG_DATA_HOME", home, ".local/share")
}

/// `$XDG_RUNTIME_DIR`, unless it is empty or relative, which the specification tells to ignore.
pub fn xdg_runtime_dir(environment: &Environment) -> Option<PathBuf> {
    absolute(environment.get("XDG_RUNTIME_DIR"))
}

/// Where systemd keeps the runtime directory of a user.
pub fn run_user_dir(uid: u32) -> PathBuf {
    PathBuf::from(format!("/run/user/{uid}"))
}

impl Paths {
    /// Decides all paths.
    ///
    /// # Errors
    /// An `XDG_RUNTIME_DIR` that exists and is not safe to hold sockets, unless `--socket` or
    /// `MCPD_SOCKET` says where they go.
    pub fn new(facts: &PathFacts<'_>) -> Result<Self, PathError> {
        let is_default = facts.real_chosen == facts.real_default;
        let own = if is_default {
            "mcpd".to_owned()
        } else {
            hashed_name(&facts.real_chosen)
        };
        let socket = flag_or_variable(
            facts.flags.socket.as_deref(),
            facts.environment,
            "MCPD_SOCKET",
        )
        .map(|path| facts.working_directory.join(path));
        let (runtime_dir, private_parent) = match &socket {
            Some(socket) => (socket.parent().unwrap_or(Path::new("/")).to_owned(), None),
            None => runtime_dir(facts, is_default, &own)?,
        };
        let state_dir = flag_or_variable(
            facts.flags.state.as_deref(),
            facts.environment,
            "MCPD_STATE",
        )
        .map_or_else(
            || {
                xdg_dir(
                    facts.environment,
                    "XDG_STATE_HOME",
                    facts.home,
                    ".local/state",
                )
                .join(own)
            },
            |path| facts.working_directory.join(path),
        );
        Ok(Self {
            config_dir: facts.folder.chosen.clone(),
            is_default,
            socket_is_chosen: socket.is_some(),
            socket: socket.unwrap_or_else(|| runtime_dir.join("mcpd.sock")),
            runtime_dir,
            private_parent,
            state_dir,
        })
    }

    /// The configuration folder as it was named, absolute.
    pub fn config_dir(&self) -> &Path {
        &self.config_dir
    }

    /// Whether it is the user's own configuration, and not that of a trial.
    pub fn is_default(&self) -> bool {
        self.is_default
    }

    pub fn servers_dir(&self) -> PathBuf {
        self.config_dir.join("servers.d")
    }

    pub fn daemon_file(&self) -> PathBuf {
        self.config_dir.join("mcpd.toml")
    }

    /// The directory of the sockets, made and checked by [`super::dirs::prepare_runtime_dir`].
    pub fn runtime_dir(&self) -> &Path {
        &self.runtime_dir
    }

    /// A directory above it that is ours alone too, if there is one.
    pub fn private_parent(&self) -> Option<&Path> {
        self.private_parent.as_deref()
    }

    /// Whether `--socket` or `MCPD_SOCKET` named the socket, so that its directory is the user's.
    pub fn socket_is_chosen(&self) -> bool {
        self.socket_is_chosen
    }

    /// `mcpd.sock`.
    ///
    /// # Errors
    /// The path does not fit into a socket address.
    pub fn socket(&self) -> Result<&Path, PathError> {
        check_socket_path(&self.socket)?;
        Ok(&self.socket)
    }

    /// `mcpd.sock`, however long its path is: for messages.
    pub fn socket_as_named(&self) -> &Path {
        &self.socket
    }

    /// The folder above the raw sockets of all servers.
    pub fn server_sockets_dir(&self) -> PathBuf {
        self.runtime_dir.join("servers")
    }

    /// The folder that is mounted to hand one server to a container.
    pub fn server_socket_dir(&self, name: &ServerName) -> PathBuf {
        self.server_sockets_dir().join(name.as_str())
    }

    /// `servers/NAME/mcp.sock`.
    ///
    /// # Errors
    /// The path does not fit into a socket address; then only this raw socket is missing.
    pub fn server_socket(&self, name: &ServerName) -> Result<PathBuf, PathError> {
        let path = self.server_socket_dir(name).join("mcp.sock");
        check_socket_path(&path)?;
        Ok(path)
    }

    /// The lock that is held by the one daemon of this socket.
    pub fn lock_file(&self) -> PathBuf {
        lock_path(&self.socket)
    }

    pub fn state_dir(&self) -> &Path {
        &self.state_dir
    }

    pub fn logs_dir(&self) -> PathBuf {
        self.state_dir.join("logs")
    }

    pub fn catalog_dir(&self) -> PathBuf {
        self.state_dir.join("catalog")
    }

    /// What children were found to speak.
    pub fn eras_file(&self) -> PathBuf {
        self.state_dir.join("eras.json")
    }

    /// The key of the user's hashes, see [`super::fingerprint`].
    pub fn hash_key_file(&self) -> PathBuf {
        self.state_dir.join("hash.key")
    }
}

fn runtime_dir(
    facts: &PathFacts<'_>,
    is_default: bool,
    own: &str,
) -> Result<(PathBuf, Option<PathBuf>), PathError> {
    let named = xdg_runtime_dir(facts.environment).zip(facts.xdg_runtime);
    match named {
        Some((path, DirectoryFact::Ours)) => return Ok((path.join(own), None)),
        // A login that has ended, or a variable that came through sudo: as if it were not set.
        Some((_, DirectoryFact::Missing)) | None => {}
        Some((path, fact)) => {
            return Err(PathError::UnsafeRuntimeDirectory {
                variable: "XDG_RUNTIME_DIR",
                path,
                fact,
            });
        }
    }
    if facts.run_user == DirectoryFact::Ours {
        return Ok((run_user_dir(facts.uid).join(own), None));
    }
    let temporary = PathBuf::from(format!("/tmp/mcpd-{}", facts.uid));
    match is_default {
        true => Ok((temporary, None)),
        false => Ok((temporary.join(own), Some(temporary))),
    }
}

/// Names the folders of a configuration that is not the default one. Eight digits, since a socket
/// path is short.
fn hashed_name(real_path: &Path) -> String {
    let hash = blake3::hash(real_path.as_os_str().as_bytes()).to_hex();
    format!("mcpd-{}", &hash[..8])
}

/// The lock of the socket at this path.
pub fn lock_path(socket: &Path) -> PathBuf {
    let mut path = socket.as_os_str().to_owned();
    path.push(".lock");
    path.into()
}

fn check_socket_path(path: &Path) -> Result<(), PathError> {
    let len = path.as_os_str().len();
    if len > SOCKET_PATH_LIMIT_BYTES {
        return Err(PathError::SocketPathTooLong {
            path: path.to_owned(),
            len,
        });
    }
    Ok(())
}

fn flag_or_variable(
    flag: Option<&Path>,
    environment: &Environment,
    variable: &str,
) -> Option<PathBuf> {
    flag.map(Path::to_owned)
        .or_else(|| environment.get_filled(variable).map(PathBuf::from))
}

/// A directory of the XDG base directory specification, which tells to ignore relative ones.
fn xdg_dir(environment: &Environment, variable: &str, home: &Path, below_home: &str) -> PathBuf {
    absolute(environment.get(variable)).unwrap_or_else(|| home.join(below_home))
}

fn absolute(value: Option<&OsStr>) -> Option<PathBuf> {
    value.map(PathBuf::from).filter(|path| path.is_absolute())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Case {
        environment: Vec<(&'static str, &'static str)>,
        flags: PathFlags,
        xdg_runtime: Option<DirectoryFact>,
        run_user: DirectoryFact,
    }

    impl Default for Case {
        fn default() -> Self {
            Self {
                environment: vec![("XDG_RUNTIME_DIR", "/run/user/1000")],
                flags: PathFlags::default(),
                xdg_runtime: Some(DirectoryFact::Ours),
                run_user: DirectoryFact::Ours,
            }
        }
    }

    impl Case {
        fn paths(&self) -> Result<Paths, PathError> {
            let environment: Environment = self.environment.iter().copied().collect();
            let (home, here) = (Path::new("/home/ada"), Path::new("/here"));
            let folder = config_folder(&self.flags, &environment, home, here);
            Paths::new(&PathFacts {
                flags: &self.flags,
                environment: &environment,
                home,
                uid: 1000,
                working_directory: here,
                real_chosen: folder.chosen.clone(),
                real_default: folder.default.clone(),
                folder,
                xdg_runtime: self.xdg_runtime,
                run_user: self.run_user,
            })
        }
    }

    /// Folder, socket and state.
    #[track_caller]
    fn check(case: &Case, expected: [&str; 3]) {
        let paths = case.paths().unwrap();
        let got = [
            paths.config_dir(),
            paths.socket().unwrap(),
            paths.state_dir(),
        ];
        assert_eq!(got, expected.map(Path::new));
    }

    fn name(text: &str) -> ServerName {
        ServerName::parse(text).unwrap()
    }

    #[test]
    fn the_default_follows_the_base_directories() {
        let mut case = Case::default();
        let expected = [
            "/home/ada/.config/mcpd",
            "/run/user/1000/mcpd/mcpd.sock",
            "/home/ada/.local/state/mcpd",
        ];
        check(&case, expected);
        case.environment
            .extend([("XDG_CONFIG_HOME", "/c"), ("XDG_STATE_HOME", "/s")]);
        check(
            &case,
            ["/c/mcpd", "/run/user/1000/mcpd/mcpd.sock", "/s/mcpd"],
        );
    }

    #[test]
    fn relative_and_empty_base_directories_do_not_count() {
        let environment = vec![
            ("XDG_CONFIG_HOME", "c"),
            ("XDG_STATE_HOME", ""),
            ("XDG_RUNTIME_DIR", "r"),
        ];
        let case = Case {
            environment,
            xdg_runtime: None,
            ..Case::default()
        };
        check(
            &case,
            [
                "/home/ada/.config/mcpd",
                "/run/user/1000/mcpd/mcpd.sock",
                "/home/ada/.local/state/mcpd",
            ],
        );
    }

    #[test]
    fn another_folder_has_sockets_and_state_of_its_own() {
        let mut case = Case::default();
        case.flags.config = Some("./checkout/.".into());
        let paths = case.paths().unwrap();
        assert_eq!(paths.config_dir(), Path::new("/here/checkout"));
        assert!(!paths.is_default());
        let own = paths
            .runtime_dir()
            .file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned();
        assert!(own.starts_with("mcpd-") && own.len() == 13, "{own}");
        assert_eq!(
            paths.state_dir().file_name().unwrap().to_str().unwrap(),
            own
        );

        let mut same = Case::default();
        same.environment.push(("MCPD_CONFIG", "/here/checkout"));
        assert_eq!(same.paths().unwrap(), paths);
    }

    #[test]
    fn the_default_folder_named_by_hand_is_still_the_default() {
        let mut case = Case::default();
        case.flags.config = Some("/home/ada/.config/mcpd".into());
        assert!(case.paths().unwrap().is_default());
    }

    #[test]
    fn flags_win_over_variables_and_empty_variables_do_not_count() {
        let mut case = Case::default();
        case.environment.extend([
            ("MCPD_SOCKET", "/v/m.sock"),
            ("MCPD_STATE", "state"),
            ("MCPD_CONFIG", ""),
        ]);
        check(
            &case,
            ["/home/ada/.config/mcpd", "/v/m.sock", "/here/state"],
        );
        case.flags.socket = Some("f.sock".into());
        case.flags.state = Some("/f".into());
        check(&case, ["/home/ada/.config/mcpd", "/here/f.sock", "/f"]);
        let socket = case.paths().unwrap().server_socket(&name("calc")).unwrap();
        assert_eq!(socket, Path::new("/here/servers/calc/mcp.sock"));
    }

    #[test]
    fn without_a_runtime_directory_both_ends_meet() {
        let expected = "/run/user/1000/mcpd/mcpd.sock";
        let unset = Case {
            environment: vec![],
            xdg_runtime: None,
            ..Case::default()
        };
        let gone = Case {
            xdg_runtime: Some(DirectoryFact::Missing),
            ..Case::default()
        };
        for case in [Case::default(), unset, gone] {
            assert_eq!(case.paths().unwrap().socket().unwrap(), Path::new(expected));
        }
    }

    #[test]
    fn without_a_directory_of_ours_there_is_a_private_one_in_tmp() {
        for run_user in [
            DirectoryFact::Missing,
            DirectoryFact::OtherOwner { uid: 0 },
            DirectoryFact::OpenToOthers { mode: 0o777 },
            DirectoryFact::NotDirectory,
        ] {
            let mut case = Case {
                environment: vec![],
                xdg_runtime: None,
                run_user,
                ..Case::default()
            };
            let paths = case.paths().unwrap();
            assert_eq!(
                paths.socket().unwrap(),
                Path::new("/tmp/mcpd-1000/mcpd.sock")
            );
            assert_eq!(paths.private_parent(), None);
            case.flags.config = Some("/checkout".into());
            let paths = case.paths().unwrap();
            assert_eq!(paths.private_parent(), Some(Path::new("/tmp/mcpd-1000")));
            assert!(paths.runtime_dir().starts_with("/tmp/mcpd-1000/"));
        }
    }

    #[test]
    fn an_unsafe_runtime_directory_is_refused() {
        let refused = |fact| {
            let case = Case {
                xdg_runtime: Some(fact),
                ..Case::default()
            };
            case.paths().unwrap_err().to_string()
        };
        assert_eq!(
            refused(DirectoryFact::OtherOwner { uid: 1001 }),
            "XDG_RUNTIME_DIR is /run/user/1000, which belongs to uid 1001"
        );
        assert_eq!(
            refused(DirectoryFact::OpenToOthers { mode: 0o777 }),
            "XDG_RUNTIME_DIR is /run/user/1000, which others may write to (mode 0777)"
        );
        assert_eq!(
            refused(DirectoryFact::NotDirectory),
            "XDG_RUNTIME_DIR is /run/user/1000, which is no directory"
        );
    }

    #[test]
    fn a_chosen_socket_needs_no_runtime_directory() {
        let mut case = Case {
            xdg_runtime: Some(DirectoryFact::OtherOwner { uid: 1 }),
            ..Case::default()
        };
        case.flags.socket = Some("/mine/m.sock".into());
        assert!(case.paths().is_ok());
    }

    #[test]
    fn a_socket_path_of_108_bytes_is_an_error_with_its_length() {
        let mut case = Case::default();
        for (len, fits) in [(107, true), (108, false)] {
            let path = format!("/{}", "s".repeat(len - 1));
            case.flags.socket = Some(path.clone().into());
            let paths = case.paths().unwrap();
            match paths.socket() {
                Ok(_) => assert!(fits),
                Err(error) => {
                    assert!(!fits);
                    let expected =
                        format!("socket path {path} has 108 bytes, more than the 107 that fit");
                    assert_eq!(error.to_string(), expected);
                    assert_eq!(
                        error.hint(),
                        "set --socket or MCPD_SOCKET to a shorter path"
                    );
                }
            }
        }
    }

    #[test]
    fn a_long_name_costs_only_its_own_raw_socket() {
        let mut case = Case::default();
        case.flags.socket = Some(format!("/{}/mcpd.sock", "d".repeat(60)).into());
        let paths = case.paths().unwrap();
        assert!(paths.socket().is_ok());
        assert!(paths.server_socket(&name("short")).is_ok());
        assert!(paths.server_socket(&name(&"n".repeat(64))).is_err());
    }

    #[test]
    fn the_lock_lies_beside_the_socket() {
        let paths = Case::default().paths().unwrap();
        assert_eq!(
            paths.lock_file(),
            Path::new("/run/user/1000/mcpd/mcpd.sock.lock")
        );
    }
}
