//! The command line's end of the control socket: blocking, one request at a time.
//!
//! Decides how long to wait and what an answer means for the exit code. Never starts a daemon
//! (see `start_daemon`) and never touches a server.

use std::fs::{File, TryLockError};
use std::io::{self, ErrorKind as IoKind, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde::de::DeserializeOwned;

use super::clock::Deadline;
use super::error::{CliError, Kind};
use super::escape::escape;
use super::output::complain;
use super::places::Places;
use crate::control::{
    Attach, Attached, CONTROL_LINE_LIMIT_BYTES, ENDING_NOTE, ErrorKind, Hello, Request,
    UnreadableReply, decode_reply, encode_request,
};

/// For what the daemon answers from memory.
pub(crate) const QUICK: Duration = Duration::from_secs(10);
/// For what waits for servers. Their own deadlines end it long before.
pub(crate) const PATIENT: Duration = Duration::from_secs(600);

/// Descriptors that a request may have with it.
const DESCRIPTORS: usize = 3;

/// How much a daemon may say of itself in its lock file.
const LOCK_TEXT_LIMIT_BYTES: u64 = 16 << 10;

/// Why there is no connection.
#[derive(Debug)]
pub(crate) enum ConnectError {
    /// Nothing listens: the socket is missing or was left behind.
    NoDaemon(CliError),
    /// Something is there, or in the way, that cannot be talked to.
    Other(CliError),
}

impl From<ConnectError> for CliError {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::NoDaemon(error) | ConnectError::Other(error) => error,
        }
    }
}

/// One connection to the daemon.
#[derive(Debug)]
pub(crate) struct Client {
    stream: UnixStream,
    /// What was read past the last reply.
    surplus: Vec<u8>,
    asked: u64,
}

/// A connection that has become a raw MCP stream.
#[derive(Debug)]
pub(crate) struct McpStream {
    pub(crate) stream: UnixStream,
    /// Bytes of the stream that came with the reply.
    pub(crate) surplus: Vec<u8>,
    /// Who is at the other end.
    pub(crate) process: Option<DaemonProcess>,
    /// What the daemon said of it.
    pub(crate) attached: Attached,
}

impl Client {
    /// Connects to the daemon of `places`.
    pub(crate) fn connect(places: &Places) -> Result<Self, ConnectError> {
        places.check_runtime_dir().map_err(ConnectError::Other)?;
        let served = match is_served(&places.socket) {
            // Without a lock file no daemon has ever been here, unless there is no seeing it.
            None => places.unit_file.is_none(),
            Some(served) => served,
        };
        if !served {
            let gone = io::Error::from(IoKind::NotFound);
            return Self::connect_by_note(places).ok_or_else(|| refused(&places.socket, gone));
        }
        match Self::connect_to(&places.socket) {
            Ok(client) if places.paths.socket_is_chosen() => client.compare_folders(places),
            Err(ConnectError::NoDaemon(error)) => {
                Self::connect_by_note(places).ok_or(ConnectError::NoDaemon(error))
            }
            other => other,
        }
    }

    /// Says once if the daemon of a socket that was chosen serves another configuration than the one
    /// that was chosen with it.
    fn compare_folders(mut self, places: &Places) -> Result<Self, ConnectError> {
        static TOLD: Once = Once::new();
        if TOLD.is_completed() {
            return Ok(self);
        }
        let Ok(hello) = self.ask::<Hello>(&Request::Hello, QUICK) else {
            // The command itself will be told what is wrong.
            return Self::connect_to(&places.socket);
        };
        let real = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let ours = places.paths.config_dir();
        TOLD.call_once(|| {
            if real(Path::new(&hello.config_dir)) != real(ours) {
                complain(&format!(
                    "note: the daemon at {} serves {}, not {}\n",
                    places.socket.display(),
                    escape(&hello.config_dir),
                    ours.display()
                ));
            }
        });
        Ok(self)
    }

    /// A daemon of the same state folder that was started with another `XDG_RUNTIME_DIR`.
    fn connect_by_note(places: &Places) -> Option<Self> {
        if places.paths.socket_is_chosen() {
            return None;
        }
        let noted = std::fs::read_to_string(places.socket_note()).ok()?;
        let noted = PathBuf::from(noted.trim_end_matches('\n'));
        (noted.is_absolute() && noted != places.socket && is_served(&noted) != Some(false))
            .then(|| Self::connect_to(&noted).ok())
            .flatten()
    }

    fn connect_to(socket: &Path) -> Result<Self, ConnectError> {
        let stream = UnixStream::connect(socket).map_err(|error| refused(socket, error))?;
        check_peer(&stream, socket).map_err(ConnectError::Other)?;
        Ok(Self {
            stream,
            surplus: Vec::new(),
            asked: 0,
        })
    }

    /// Asks and waits for the answer, at most `patience`.
    pub(crate) fn ask<T: DeserializeOwned>(
        &mut self,
        request: &Request,
        patience: Duration,
    ) -> Result<T, CliError> {
        self.ask_with(request, &[], patience)
    }

    /// Asks and hands descriptors over with the request.
    fn ask_with<T: DeserializeOwned>(
        &mut self,
        request: &Request,
        descriptors: &[BorrowedFd<'_>],
        patience: Duration,
    ) -> Result<T, CliError> {
        self.asked += 1;
        let line = encode_request(self.asked, request)
            .map_err(|error| CliError::internal("cannot write the request").because(error))?;
        let written = self.write_with(&line, descriptors);
        // A daemon that refuses says why and hangs up, perhaps before it was asked anything.
        let answer = self.read_line(Deadline::after(patience), request.method());
        let line = match (answer, written) {
            (Ok(line), _) => line,
            (Err(error), Ok(())) => return Err(error),
            (Err(_), Err(error)) => {
                let closed = CliError::unreachable("the daemon closed the connection");
                return Err(closed.because(error));
            }
        };
        match decode_reply(self.asked, &line) {
            Ok(Ok(result)) => Ok(result),
            Ok(Err(error)) => Err(refusal(error.kind, error)),
            Err(error) => Err(unreadable(error)),
        }
    }

    fn write_with(&mut self, line: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        if descriptors.is_empty() {
            return self.stream.write_all(line);
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        if !beside.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(IoKind::InvalidInput.into());
        }
        let slices = [io::IoSlice::new(line)];
        let sent = sendmsg(&self.stream, &slices, &mut beside, SendFlags::NOSIGNAL)?;
        self.stream.write_all(&line[sent..])
    }

    /// Makes the connection a raw MCP stream, or the companion of the descriptors that are given
    /// with the request.
    pub(crate) fn attach(
        mut self,
        attach: Attach,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<McpStream, CliError> {
        let attached = self.ask_with(&Request::Attach(attach), descriptors, QUICK)?;
        self.stream
            .set_read_timeout(None)
            .map_err(|error| CliError::internal("cannot use the connection").because(error))?;
        Ok(McpStream {
            process: self.process(),
            attached,
            stream: self.stream,
            surplus: self.surplus,
        })
    }

    /// Asks for something after whose reply lines follow; those are read by whoever gets the stream.
    pub(crate) fn follow(mut self, request: &Request) -> Result<(UnixStream, Vec<u8>), CliError> {
        let _: serde_json::Value = self.ask(request, QUICK)?;
        self.stream
            .set_read_timeout(None)
            .map_err(|error| CliError::internal("cannot use the connection").because(error))?;
        Ok((self.stream, self.surplus))
    }

    /// The daemon's process; `None` if it cannot be had. Taken while it is connected, so that it
    /// is no other that has got its number since.
    pub(crate) fn process(&self) -> Option<DaemonProcess> {
        let peer = getsockopt(&self.stream, PeerCredentials).ok()?;
        let pid = rustix::process::Pid::from_raw(peer.pid())?;
        let handle = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok()?;
        Some(DaemonProcess {
            pid: peer.pid(),
            handle,
        })
    }

    fn read_some(&mut self, buffer: &mut [u8], deadline: Deadline) -> io::Result<usize> {
        let left = deadline.left();
        if left.is_zero() {
            return Err(IoKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        self.stream.read(buffer)
    }

    /// The next line without its newline; what follows it stays in `surplus`.
    fn read_line(&mut self, deadline: Deadline, method: &str) -> Result<Vec<u8>, CliError> {
        let mut buffer = vec![0; 16 << 10];
        let mut scanned = 0;
        loop {
            if let Some(at) = memchr::memchr(b'\n', &self.surplus[scanned..]) {
                let rest = self.surplus.split_off(scanned + at + 1);
                let mut line = std::mem::replace(&mut self.surplus, rest);
                line.pop();
                return Ok(line);
            }
            scanned = self.surplus.len();
            if scanned > CONTROL_LINE_LIMIT_BYTES {
                return Err(CliError::internal("the daemon's reply is too long"));
            }
            match self.read_some(&mut buffer, deadline) {
                Ok(0) => return Err(hung_up(method)),
                Ok(count) => self.surplus.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == IoKind::Interrupted => {}
                Err(error) => return Err(no_answer(method, error)),
            }
        }
    }
}

/// The process of a daemon, held so that its end can be waited for.
#[derive(Debug)]
pub(crate) struct DaemonProcess {
    pub(crate) pid: i32,
    handle: OwnedFd,
}

impl DaemonProcess {
    /// Waits until it has ended, at most `patience`. Whether it has.
    pub(crate) fn wait_for_end(&self, patience: Duration) -> bool {
        let deadline = Deadline::after(patience);
        loop {
            let timeout = PollTimeout::try_from(deadline.left()).unwrap_or(PollTimeout::MAX);
            let mut polled = [PollFd::new(self.handle.as_fd(), PollFlags::POLLIN)];
            match poll(&mut polled, timeout) {
                Ok(ready) => return ready > 0,
                Err(nix::errno::Errno::EINTR) => {}
                Err(_) => return false,
            }
        }
    }
}

/// Whether a daemon serves `socket`, as its lock tells; `None` if there is no lock to go by. A socket
/// may be there without a daemon: systemd keeps it, and starts one for whoever connects, which is
/// not for a command to do that only wants to know.
fn is_served(socket: &Path) -> Option<bool> {
    let mut path = socket.as_os_str().to_owned();
    path.push(".lock");
    let mut lock = File::open(PathBuf::from(path)).ok()?;
    match lock.try_lock_shared() {
        // Let go at once: the next daemon outwaits it.
        Ok(()) => Some(false),
        Err(TryLockError::Error(_)) => None,
        Err(TryLockError::WouldBlock) => {
            let mut holder = Vec::new();
            let read = (&mut lock)
                .take(LOCK_TEXT_LIMIT_BYTES)
                .read_to_end(&mut holder);
            Some(read.is_err() || !holder.ends_with(ENDING_NOTE.as_bytes()))
        }
    }
}

fn refused(socket: &Path, error: io::Error) -> ConnectError {
    let place = socket.display();
    match error.kind() {
        IoKind::NotFound | IoKind::ConnectionRefused => ConnectError::NoDaemon(
            CliError::unreachable(format!("no daemon is running at {place}"))
                .hint("`mcpd start`, `mcpd call`, `mcpd tools` and `mcpd connect` start one; `mcpd daemon` runs one in the foreground"),
        ),
        _ => ConnectError::Other(
            CliError::unreachable(format!("cannot connect to {place}")).because(error),
        ),
    }
}

/// Only a daemon of this user is talked to: a request may name files and carry arguments.
fn check_peer(stream: &UnixStream, socket: &Path) -> Result<(), CliError> {
    let place = socket.display();
    let peer = getsockopt(stream, PeerCredentials).map_err(|error| {
        CliError::unreachable(format!("cannot tell who listens at {place}")).because(error)
    })?;
    let uid = nix::unistd::getuid().as_raw();
    if peer.uid() == uid {
        return Ok(());
    }
    let other = peer.uid();
    Err(CliError::unreachable(format!(
        "{place} is served by user {other}, not by user {uid}"
    )))
}

fn hung_up(method: &str) -> CliError {
    CliError::unreachable(format!("the daemon ended before it answered `{method}`"))
}

fn no_answer(method: &str, error: io::Error) -> CliError {
    match error.kind() {
        IoKind::WouldBlock | IoKind::TimedOut => {
            CliError::unreachable(format!("the daemon does not answer `{method}`"))
        }
        _ => CliError::unreachable(format!("cannot read the answer to `{method}`")).because(error),
    }
}

/// A reply that is an error, with the exit code it stands for.
fn refusal(kind: ErrorKind, error: crate::control::ControlError) -> CliError {
    let kind = match kind {
        ErrorKind::Config => Kind::Config,
        ErrorKind::InvalidParams => Kind::Usage,
        // There is no daemon any more, as far as this request goes.
        ErrorKind::Stopping => Kind::Unreachable,
        ErrorKind::ParseError | ErrorKind::InvalidRequest | ErrorKind::Internal => Kind::Internal,
        _ => Kind::Server,
    };
    CliError::new(kind, error.message)
}

fn unreadable(error: UnreadableReply) -> CliError {
    match error {
        UnreadableReply::Version(mismatch) => CliError::unreachable(mismatch.to_string())
            .hint("end it with the version that started it, then start it again"),
        other => CliError::internal("cannot read the daemon's answer").because(other),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::control::{Greeting, encode_reply};

    /// A client whose daemon has already said `lines` and will say no more; and the daemon's end,
    /// which has to live so that requests can still be written.
    fn client(lines: &[u8]) -> (Client, UnixStream) {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(lines).unwrap();
        theirs.shutdown(std::net::Shutdown::Write).unwrap();
        let client = Client {
            stream: ours,
            surplus: Vec::new(),
            asked: 0,
        };
        (client, theirs)
    }

    fn reply<T: serde::Serialize>(id: u64, result: &T) -> Vec<u8> {
        encode_reply(
            &Value::from(id),
            Ok(result),
            Some(&Greeting::of_this_build()),
        )
        .unwrap()
    }

    #[test]
    fn what_follows_the_answer_to_attach_belongs_to_the_stream() {
        let mut lines = reply(1, &Attached::default());
        lines.extend_from_slice(b"{\"jsonrpc\"");
        let (client, _daemon) = client(&lines);
        let stream = client.attach(Attach::default(), &[]).unwrap();
        assert_eq!(stream.surplus, b"{\"jsonrpc\"");
    }

    #[test]
    fn answers_come_in_the_order_of_the_questions() {
        let mut lines = reply(1, &Hello::default());
        lines.extend(reply(2, &Hello::default()));
        let (mut client, _daemon) = client(&lines);
        for _ in 0..2 {
            client.ask::<Hello>(&Request::Hello, QUICK).unwrap();
        }
    }

    #[test]
    fn a_refusal_is_heard_from_a_daemon_that_has_hung_up() {
        let refusal = crate::control::ControlError::new(ErrorKind::NotAllowed, "not you");
        let greeting = Greeting::of_this_build();
        let refused: Result<&Hello, _> = Err(&refusal);
        let line = encode_reply(&Value::Null, refused, Some(&greeting)).unwrap();
        let (mut client, daemon) = client(&line);
        drop(daemon);
        let error = client.ask::<Hello>(&Request::Hello, QUICK).unwrap_err();
        assert_eq!(error.kind, Kind::Server);
        assert!(error.render().contains("not you"), "{}", error.render());
    }

    #[test]
    fn a_daemon_that_hangs_up_is_unreachable() {
        let (mut client, _daemon) = client(b"");
        let error = client.ask::<Hello>(&Request::Hello, QUICK).unwrap_err();
        assert_eq!(error.kind, Kind::Unreachable);
    }

    #[test]
    fn the_lock_tells_whether_a_daemon_serves() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("s");
        assert_eq!(is_served(&socket), None);
        let path = folder.path().join("s.lock");
        std::fs::write(&path, "pid 7").unwrap();
        assert_eq!(is_served(&socket), Some(false), "a crash leaves the file");
        let lock = File::open(&path).unwrap();
        lock.lock().unwrap();
        assert_eq!(is_served(&socket), Some(true));
        std::fs::write(&path, format!("pid 7{ENDING_NOTE}")).unwrap();
        assert_eq!(is_served(&socket), Some(false), "it is ending");
        drop(lock);
        assert_eq!(is_served(&socket), Some(false));
    }

    #[test]
    fn a_missing_socket_means_no_daemon() {
        let folder = tempfile::tempdir().unwrap();
        let error = Client::connect_to(&folder.path().join("s")).unwrap_err();
        assert!(matches!(error, ConnectError::NoDaemon(_)));
    }
}
