//! The sockets in the file system: who may listen where, and who may come in.
//!
//! Decides nothing about messages. A listener is bound under a lock file, so that two daemons
//! that start at once never remove each other's socket; a socket that is left over is replaced
//! only after a refused connect; anything else at the path is somebody's and stays.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener as StdUnixListener, UnixStream as StdUnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::fcntl::{Flock, FlockArg};
use tokio::net::{UnixListener, UnixStream};

use crate::config::paths::{SOCKET_PATH_LIMIT_BYTES, lock_path};

use crate::control::ENDING_NOTE;

/// How long somebody who only looks whether the lock is held may hold it.
const LOOK_WAIT: Duration = Duration::from_millis(200);
/// Between two tries for the lock.
const LOOK_EVERY: Duration = Duration::from_millis(10);

#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    #[error(
        "the socket path {path:?} has {len} bytes, the system allows {SOCKET_PATH_LIMIT_BYTES}"
    )]
    TooLong { path: PathBuf, len: usize },
    #[error("another daemon holds {path:?}: {holder}")]
    Held { path: PathBuf, holder: String },
    #[error("another program listens on {path:?}")]
    Live { path: PathBuf },
    #[error("{path:?} is in the way: it is {kind}, not a socket")]
    Foreign { path: PathBuf, kind: &'static str },
    #[error("cannot {action} {path:?}")]
    Io {
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> SocketError {
    let path = path.to_owned();
    move |source| SocketError::Io {
        action,
        path,
        source,
    }
}

/// The right to listen on one path, held as long as this lives (flock(2) on a file beside it).
#[derive(Debug)]
pub(crate) struct SocketLock {
    _file: Flock<File>,
}

impl SocketLock {
    /// Takes the lock of `socket`, or says who has it. `owner` is what the next one will be told.
    pub(crate) fn take(socket: &Path, owner: &str) -> Result<Self, SocketError> {
        let path = lock_path(socket);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(nix::libc::O_NOFOLLOW | nix::libc::O_CLOEXEC)
            .open(&path)
            .map_err(failed("open the lock file", &path))?;
        let mut file = match lock_patiently(file) {
            Ok(file) => file,
            Err((mut file, nix::errno::Errno::EWOULDBLOCK)) => {
                let mut holder = String::new();
                // What the holder wrote only helps to explain; without it the refusal stands.
                drop(file.read_to_string(&mut holder));
                let (path, holder) = (socket.to_owned(), holder.trim().to_owned());
                return Err(SocketError::Held { path, holder });
            }
            Err((_, errno)) => return Err(failed("lock", &path)(errno.into())),
        };
        let write = file
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| file.write_all(owner.as_bytes()));
        // A full disk must not keep the daemon from starting: the lock itself holds.
        if let Err(error) = write {
            tracing::warn!(path = ?path, %error, "cannot write the lock file");
        }
        Ok(Self { _file: file })
    }
}

/// Clients take the lock for a moment to see whether there is a daemon; they are outwaited.
fn lock_patiently(mut file: File) -> Result<Flock<File>, (File, nix::errno::Errno)> {
    for _ in 0..LOOK_WAIT.as_millis() / LOOK_EVERY.as_millis() {
        file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Err((file, nix::errno::Errno::EWOULDBLOCK)) => file,
            settled => return settled,
        };
        std::thread::sleep(LOOK_EVERY);
    }
    Flock::lock(file, FlockArg::LockExclusiveNonblock)
}

/// The file of a socket that this process bound. It is removed by [`Self::remove`] only, and only
/// while it is still the one that was bound.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl SocketFile {
    fn new(path: &Path) -> io::Result<Self> {
        let found = std::fs::symlink_metadata(path)?;
        Ok(Self {
            path: path.to_owned(),
            device: found.dev(),
            inode: found.ino(),
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the file. Where the folder was emptied by others, another daemon may have bound the
    /// same path since, and its socket stays.
    pub(crate) fn remove(self) {
        let is_ours = std::fs::symlink_metadata(&self.path)
            .is_ok_and(|found| (found.dev(), found.ino()) == (self.device, self.inode));
        if is_ours {
            // Somebody may have been quicker.
            drop(std::fs::remove_file(&self.path));
        }
    }
}

/// Listens on `path`, mode 0600. The caller holds the lock that covers it.
pub(crate) fn bind(path: &Path) -> Result<(UnixListener, SocketFile), SocketError> {
    let len = path.as_os_str().len();
    if len > SOCKET_PATH_LIMIT_BYTES {
        let path = path.to_owned();
        return Err(SocketError::TooLong { path, len });
    }
    clear_stale(path)?;
    let listener = UnixListener::bind(path).map_err(failed("listen on", path))?;
    std::fs::set_permissions(path, Permissions::from_mode(0o600))
        .map_err(failed("set the mode of", path))?;
    let file = SocketFile::new(path).map_err(failed("look at", path))?;
    Ok((listener, file))
}

/// Listens on the socket at `path` that a service manager has made. The caller holds the lock that
/// covers it.
pub(crate) fn adopt(listener: OwnedFd, path: &Path) -> Result<UnixListener, SocketError> {
    let listener = StdUnixListener::from(listener);
    listener
        .set_nonblocking(true)
        .and_then(|()| UnixListener::from_std(listener))
        .map_err(failed("listen on", path))
}

/// Leaves word for clients that the daemon of this socket is ending, though the socket itself stays
/// and takes connections: they would be the next daemon's, and bring it to life.
pub(crate) fn note_ending(socket: &Path) {
    let path = lock_path(socket);
    let noted = OpenOptions::new()
        .append(true)
        .custom_flags(nix::libc::O_NOFOLLOW | nix::libc::O_CLOEXEC)
        .open(&path)
        .and_then(|mut file| file.write_all(ENDING_NOTE.as_bytes()));
    if let Err(error) = noted {
        tracing::warn!(path = ?path, %error, "cannot write the lock file");
    }
}

/// Removes what a dead daemon left at `path`; refuses to touch anything else.
fn clear_stale(path: &Path) -> Result<(), SocketError> {
    let kind = match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed("look at", path)(error)),
        Ok(found) => found.file_type(),
    };
    if !kind.is_socket() {
        let kind = match kind {
            kind if kind.is_symlink() => "a symbolic link",
            kind if kind.is_dir() => "a folder",
            kind if kind.is_file() => "a file",
            _ => "a special file",
        };
        let path = path.to_owned();
        return Err(SocketError::Foreign { path, kind });
    }
    match StdUnixStream::connect(path) {
        Ok(_) => Err(SocketError::Live {
            path: path.to_owned(),
        }),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path).map_err(failed("remove the stale socket", path))
        }
        Err(error) => Err(failed("try", path)(error)),
    }
}

/// Who is at the other end, as the kernel says (SO_PEERCRED, unix(7)).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    pub(crate) uid: u32,
    pub(crate) pid: Option<i32>,
}

pub(crate) fn peer(stream: &UnixStream) -> io::Result<Peer> {
    let credentials = stream.peer_cred()?;
    Ok(Peer {
        uid: credentials.uid(),
        pid: credentials.pid(),
    })
}

/// The process right below this one that `pid` descends from or is, if it does (as children and
/// adopted orphans do).
pub(crate) fn ancestor_below_us(pid: i32) -> Option<u32> {
    let ours = std::process::id();
    let mut at = pid.unsigned_abs();
    // A chain cannot be longer than the process table; the bound ends a walk over a changing one.
    for _ in 0..1024 {
        match parent_of(at) {
            Some(parent) if parent == ours => return Some(at),
            Some(parent) if parent > 1 => at = parent,
            _ => return None,
        }
    }
    None
}

/// The parent of a process: the second field after the name in `/proc/PID/stat` (proc(5)).
fn parent_of(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let after_name = &stat[stat.rfind(')')? + 1..];
    after_name.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    #[tokio::test]
    async fn a_left_over_socket_is_replaced_and_a_live_one_is_not() {
        let dir = scratch();
        let path = dir.path().join("s");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let listener = bind(&path).unwrap();
        assert!(matches!(bind(&path), Err(SocketError::Live { .. })));
        drop(listener);
        bind(&path).unwrap();
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
    }

    #[tokio::test]
    async fn what_is_no_socket_stays() {
        let dir = scratch();
        let file = dir.path().join("file");
        std::fs::write(&file, "mine").unwrap();
        assert!(matches!(
            bind(&file),
            Err(SocketError::Foreign { kind: "a file", .. })
        ));
        let link = dir.path().join("link");
        std::os::unix::fs::symlink("nowhere", &link).unwrap();
        assert!(matches!(bind(&link), Err(SocketError::Foreign { .. })));
        assert_eq!(std::fs::read(&file).unwrap(), b"mine");
    }

    #[tokio::test]
    async fn a_path_that_is_too_long_is_named_with_its_length() {
        let path = PathBuf::from(format!("/tmp/{}", "x".repeat(200)));
        assert!(matches!(
            bind(&path),
            Err(SocketError::TooLong { len: 205, .. })
        ));
    }

    #[test]
    fn the_second_holder_is_told_of_the_first() {
        let dir = scratch();
        let path = dir.path().join("s");
        let first = SocketLock::take(&path, "pid 7").unwrap();
        match SocketLock::take(&path, "pid 8") {
            Err(SocketError::Held { holder, .. }) => assert_eq!(holder, "pid 7"),
            other => panic!("{other:?}"),
        }
        drop(first);
        SocketLock::take(&path, "pid 8").unwrap();
    }

    #[test]
    fn descent_follows_parents() {
        assert_eq!(ancestor_below_us(1), None);
        let own = i32::try_from(std::process::id()).unwrap();
        assert_eq!(ancestor_below_us(own), None);
    }
}
