//! Looks at the machine for `paths`, and makes the directories that are ours alone.
//!
//! It reads the process's environment, the user database and what is at a few paths. It decides
//! nothing about where things are; it only refuses a directory that others could get into.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use super::environment::{Environment, User, home};
use super::paths::{
    DirectoryFact, PathError, PathFacts, PathFlags, Paths, config_folder, run_user_dir,
    xdg_runtime_dir,
};

/// Why a directory cannot hold sockets or state.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    #[error("cannot make {}", path.display())]
    Make { path: PathBuf, source: io::Error },
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} is no directory of its own (a link or a file)", path.display())]
    NotDirectory { path: PathBuf },
    #[error("{} belongs to uid {uid}", path.display())]
    OtherOwner { path: PathBuf, uid: u32 },
    #[error("others may write to {} (mode {mode:04o})", path.display())]
    OpenToOthers { path: PathBuf, mode: u32 },
}

/// The environment of this process.
pub fn read_environment() -> Environment {
    std::env::vars_os().collect()
}

/// What the user database says of the user of this process; without an entry only the uid is known.
pub fn current_user() -> User {
    let uid = nix::unistd::getuid();
    match nix::unistd::User::from_uid(uid) {
        Ok(Some(user)) => User {
            uid: uid.as_raw(),
            name: user.name.into(),
            home: user.dir,
            shell: user.shell,
        },
        _ => User {
            uid: uid.as_raw(),
            name: "".into(),
            home: PathBuf::new(),
            shell: PathBuf::new(),
        },
    }
}

/// All paths, for this process. Command line, shim and daemon all ask this function.
///
/// # Errors
/// As [`Paths::new`]; also if there is neither a home directory nor a working directory to go by.
pub fn find_paths(
    flags: &PathFlags,
    environment: &Environment,
    user: &User,
) -> Result<Paths, PathError> {
    let home = home(environment, user);
    if !home.is_absolute() {
        return Err(PathError::NoHome);
    }
    let working_directory = std::env::current_dir().map_err(|_| PathError::NoWorkingDirectory)?;
    let folder = config_folder(flags, environment, &home, &working_directory);
    Paths::new(&PathFacts {
        flags,
        environment,
        home: &home,
        uid: user.uid,
        working_directory: &working_directory,
        real_chosen: real_path(&folder.chosen),
        real_default: real_path(&folder.default),
        folder,
        xdg_runtime: xdg_runtime_dir(environment).map(|path| look_at(&path, user.uid)),
        run_user: look_at(&run_user_dir(user.uid), user.uid),
    })
}

/// The path without links, as far as it exists: a folder that is made later keeps its name.
fn real_path(path: &Path) -> PathBuf {
    for existing in path.ancestors() {
        if let Ok(real) = fs::canonicalize(existing) {
            return match path.strip_prefix(existing) {
                Ok(rest) if rest.as_os_str().is_empty() => real,
                Ok(rest) => real.join(rest),
                Err(_) => path.to_owned(),
            };
        }
    }
    path.to_owned()
}

/// What is at `path`, as far as sockets are concerned. The last component may not be a link.
fn look_at(path: &Path, uid: u32) -> DirectoryFact {
    let Ok(metadata) = fs::symlink_metadata(path) else {
        return DirectoryFact::Missing;
    };
    let mode = metadata.mode() & 0o7777;
    if !metadata.is_dir() {
        DirectoryFact::NotDirectory
    } else if metadata.uid() != uid {
        DirectoryFact::OtherOwner {
            uid: metadata.uid(),
        }
    } else if mode & 0o022 != 0 {
        DirectoryFact::OpenToOthers { mode }
    } else {
        DirectoryFact::Ours
    }
}

/// Makes the directories of the sockets, 0700, and checks them.
///
/// # Errors
/// A directory that cannot be made, is a link, belongs to somebody else, or that others may write to.
pub fn prepare_runtime_dir(paths: &Paths, user: &User) -> Result<(), DirectoryError> {
    if let Some(parent) = paths.private_parent() {
        make_private(parent, user.uid)?;
    }
    if paths.socket_is_chosen() {
        // The user's own choice: it is checked, and made if missing, but its mode is theirs.
        make_missing(paths.runtime_dir())?;
        return check_safe(paths.runtime_dir(), user.uid);
    }
    make_private(paths.runtime_dir(), user.uid)
}

/// Checks the directory of the sockets before a client trusts what is in it.
///
/// # Errors
/// As [`prepare_runtime_dir`]; a directory that is missing is no error, nobody listens there.
pub fn check_runtime_dir(paths: &Paths, user: &User) -> Result<(), DirectoryError> {
    for path in paths
        .private_parent()
        .into_iter()
        .chain([paths.runtime_dir()])
    {
        if look_at(path, user.uid) != DirectoryFact::Missing {
            check_safe(path, user.uid)?;
        }
    }
    Ok(())
}

/// Makes the state directory, 0700, with what is above it.
///
/// # Errors
/// A directory that cannot be made, belongs to somebody else, or that others may write to.
pub fn prepare_state_dir(paths: &Paths, user: &User) -> Result<(), DirectoryError> {
    make_missing(paths.state_dir())?;
    // A link is fine here: people move their state to another disk.
    let real = fs::canonicalize(paths.state_dir()).map_err(|source| DirectoryError::Read {
        path: paths.state_dir().to_owned(),
        source,
    })?;
    check_safe(&real, user.uid)
}

/// Makes `path` if it is missing, 0700, checks it, and takes others' rights to look into it away.
pub fn make_private(path: &Path, uid: u32) -> Result<(), DirectoryError> {
    make_missing(path)?;
    check_safe(path, uid)?;
    let mode = fs::symlink_metadata(path).map(|metadata| metadata.mode() & 0o777);
    if mode.is_ok_and(|mode| mode != 0o700) {
        fs::set_permissions(path, fs::Permissions::from_mode(0o700)).map_err(|source| {
            DirectoryError::Make {
                path: path.to_owned(),
                source,
            }
        })?;
    }
    Ok(())
}

fn make_missing(path: &Path) -> Result<(), DirectoryError> {
    if let Some(parent) = path.parent().filter(|parent| !parent.exists()) {
        make_missing(parent)?;
    }
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(source) => Err(DirectoryError::Make {
            path: path.to_owned(),
            source,
        }),
    }
}

fn check_safe(path: &Path, uid: u32) -> Result<(), DirectoryError> {
    let path = path.to_owned();
    match look_at(&path, uid) {
        DirectoryFact::Ours => Ok(()),
        DirectoryFact::Missing => Err(DirectoryError::Read {
            path,
            source: io::ErrorKind::NotFound.into(),
        }),
        DirectoryFact::NotDirectory => Err(DirectoryError::NotDirectory { path }),
        DirectoryFact::OtherOwner { uid } => Err(DirectoryError::OtherOwner { path, uid }),
        DirectoryFact::OpenToOthers { mode } => Err(DirectoryError::OpenToOthers { path, mode }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uid() -> u32 {
        nix::unistd::getuid().as_raw()
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn a_missing_directory_is_made_for_us_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b");
        make_private(&path, uid()).unwrap();
        assert_eq!(
            (mode(&path), mode(&folder.path().join("a"))),
            (0o700, 0o700)
        );
    }

    #[test]
    fn a_directory_that_others_may_read_is_closed() {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        make_private(folder.path(), uid()).unwrap();
        assert_eq!(mode(folder.path()), 0o700);
    }

    #[test]
    fn a_directory_that_others_may_write_to_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let error = make_private(folder.path(), uid()).unwrap_err();
        let expected = format!(
            "others may write to {} (mode 0777)",
            folder.path().display()
        );
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn a_link_and_a_file_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (link, file) = (folder.path().join("link"), folder.path().join("file"));
        std::os::unix::fs::symlink(folder.path(), &link).unwrap();
        fs::write(&file, "").unwrap();
        for path in [link, file] {
            assert!(matches!(
                make_private(&path, uid()),
                Err(DirectoryError::NotDirectory { .. })
            ));
        }
    }

    #[test]
    fn a_directory_of_another_user_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let error = make_private(folder.path(), uid() + 1).unwrap_err();
        assert!(
            matches!(error, DirectoryError::OtherOwner { .. }),
            "{error}"
        );
    }

    #[test]
    fn a_linked_configuration_folder_is_the_folder_it_points_to() {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().join("real");
        fs::create_dir(&real).unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let user = User {
            uid: uid(),
            name: "a".into(),
            home: folder.path().into(),
            shell: "/bin/sh".into(),
        };
        let environment = [("XDG_RUNTIME_DIR", folder.path())].into_iter().collect();
        let runtime = |config: &Path| {
            let flags = PathFlags {
                config: Some(config.to_owned()),
                ..PathFlags::default()
            };
            find_paths(&flags, &environment, &user)
                .unwrap()
                .runtime_dir()
                .to_owned()
        };
        assert_eq!(runtime(&real), runtime(&link));
        assert_ne!(runtime(&real), runtime(&folder.path().join("missing")));
    }

    #[test]
    fn without_any_home_there_are_no_paths() {
        let user = User {
            uid: uid(),
            name: "".into(),
            home: PathBuf::new(),
            shell: PathBuf::new(),
        };
        let found = find_paths(&PathFlags::default(), &Environment::default(), &user);
        assert_eq!(found, Err(PathError::NoHome));
    }
}
