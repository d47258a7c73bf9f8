//! The shell around a [`Session`]: descriptors, poll(2), and nothing else. While the daemon speaks with
//! the host itself, this only waits for the end of either.
//!
//! Host and daemon are served by one thread that never blocks on either: standard input is read
//! only when there is something to read, and standard output gets no more than it can take, since
//! its descriptor may be shared and must not be made non-blocking.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, send};
use rustix::fs::inotify;

use super::memory::JournalFile;
use super::session::{Reason, Session};
use crate::cli::client::{Client, McpStream};
use crate::cli::clock::now;
use crate::cli::error::CliError;
use crate::control::Attach;
use crate::journal::{self, Ended, Image};
use crate::supervise::sys::give_back_code;

/// How much is read at once.
const CHUNK_BYTES: usize = 64 << 10;
/// What a pipe takes without blocking once poll(2) says that it takes anything (PIPE_BUF, pipe(7)).
const PIPE_CHUNK_BYTES: usize = 4096;

/// Added to a wait, because poll(2) counts in whole milliseconds and must not be early.
const ROUNDING: Duration = Duration::from_millis(1);

/// Why the relay has paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The host has gone, and all that was due has been written.
    Host,
    /// The daemon has gone, the host has not.
    DaemonLost,
    /// There is no daemon, and either the host says something or a daemon may have appeared.
    HostSpeaks,
}

/// Which descriptor an entry of the poll set stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    HostInput,
    HostOutput,
    Daemon,
    Folder,
}

/// One host and, most of the time, one daemon.
#[derive(Debug)]
pub(crate) struct Relay {
    session: Session,
    input: File,
    output: File,
    output_is_socket: bool,
    daemon: Option<UnixStream>,
    daemon_has_spoken: bool,
    /// What the present attachment, or the last one, is recorded in.
    journal: Option<JournalFile>,
    /// Whether the daemon speaks with the host by our own descriptors.
    is_handed: bool,
    /// How the last attachment ended.
    ended: Ended,
    /// Whether a daemon is to be looked for once all has been said to the host.
    is_look_due: bool,
    /// Whether the daemon has been told that the host has ended.
    half_closed: bool,
    /// The runtime folder, watched for a daemon that appears while there is none.
    folder: Option<OwnedFd>,
    /// Whether the door was just tried, so that what the host says is answered now.
    tried: bool,
    chunk: Vec<u8>,
}

impl Relay {
    /// A relay between this process's standard input and output and a daemon that is to come.
    pub(crate) fn new(session: Session) -> Result<Self, CliError> {
        let own = |descriptor: BorrowedFd<'_>| {
            descriptor
                .try_clone_to_owned()
                .map(File::from)
                .map_err(|error| {
                    CliError::internal("cannot use standard input and output").because(error)
                })
        };
        let output = own(io::stdout().as_fd())?;
        let kind = output.metadata().map(|found| found.file_type());
        Ok(Self {
            session,
            input: own(io::stdin().as_fd())?,
            output_is_socket: kind.is_ok_and(|kind| kind.is_socket()),
            output,
            daemon: None,
            daemon_has_spoken: false,
            journal: None,
            is_handed: false,
            ended: Ended::Lost,
            is_look_due: false,
            half_closed: false,
            folder: None,
            tried: false,
            chunk: vec![0; CHUNK_BYTES],
        })
    }

    /// Goes on with this daemon.
    pub(crate) fn connect(&mut self, stream: McpStream) -> Result<(), CliError> {
        stream
            .stream
            .set_nonblocking(true)
            .map_err(|error| CliError::internal("cannot use the connection").because(error))?;
        self.daemon = Some(stream.stream);
        self.is_handed = stream.attached.handed;
        self.daemon_has_spoken = false;
        self.half_closed = false;
        self.folder = None;
        self.tried = false;
        if self.is_handed {
            self.session.handle_handed();
            // From here on nothing is to be done until the daemon or the host ends.
            give_back_code();
        } else {
            let has_journal = stream.attached.journal;
            self.session.handle_connected(has_journal, now());
            self.session.handle_daemon(&stream.surplus);
        }
        Ok(())
    }

    /// Asks a daemon to serve the host, by its own descriptors if that can be. What becomes of them
    /// is the daemon's from here on: if no answer comes, the journal tells what has happened.
    pub(crate) fn attach(
        &mut self,
        client: Client,
        attach: &Attach,
    ) -> Result<McpStream, CliError> {
        let image = self.session.image();
        let Ok(journal) = JournalFile::new(&image) else {
            return client.attach(attach.clone(), &[]);
        };
        let mut descriptors = vec![journal.as_fd()];
        if self.session.can_hand_over() {
            descriptors.extend([self.input.as_fd(), self.output.as_fd()]);
        }
        let attach = Attach {
            journal: Some(journal::VERSION),
            ..attach.clone()
        };
        let attached = client.attach(attach, &descriptors);
        if attached.is_ok() {
            self.journal = Some(journal);
        } else if let Ok(left) = Image::read(&journal)
            && (left.acted > 0 || left.input != image.input)
        {
            self.session.handle_handed_lost(left, now());
            self.flush_output();
        }
        attached
    }

    /// Whether another daemon may be asked now. While something is being said to the host that it
    /// has not taken, none may speak with it; it is looked for one as soon as that is done.
    pub(crate) fn may_attach(&mut self) -> bool {
        self.is_look_due = self.session.for_host().len() > 0;
        !self.is_look_due
    }

    /// How the attachment that was lost has ended, if a journal tells.
    pub(crate) fn ended(&self) -> Option<Ended> {
        self.journal.as_ref().map(|_| self.ended)
    }

    /// Goes on without a daemon and looks out for one in `folder`. If it is expected, what the host
    /// asks waits for it.
    pub(crate) fn disconnect(&mut self, reason: Reason, is_expected: bool, folder: Option<&Path>) {
        self.session.handle_unreachable(reason, is_expected, now());
        self.tried = true;
        if self.folder.is_none() {
            self.folder = folder.and_then(watch);
            // A daemon may have come before it was looked out for.
            self.tried = false;
        }
    }

    /// Whether the daemon that was lost had said anything.
    pub(crate) fn daemon_has_spoken(&self) -> bool {
        self.daemon_has_spoken
    }

    /// Relays until something has to be decided.
    pub(crate) fn run(&mut self) -> Result<End, CliError> {
        loop {
            if self.session.can_end() && !self.half_closed {
                self.end_towards_daemon();
            }
            if self.is_done() {
                return Ok(End::Host);
            }
            if self.is_look_due && self.session.for_host().len() == 0 {
                self.is_look_due = false;
                return Ok(End::DaemonLost);
            }
            let ready = self.wait()?;
            self.session.handle_timeout(now());
            if let Some(end) = self.serve(&ready)? {
                return Ok(end);
            }
        }
    }

    /// Without a daemon nothing more can become due once the host has ended.
    fn is_done(&mut self) -> bool {
        self.session.host_has_ended()
            && self.session.is_down()
            && !self.session.holds_something()
            && self.session.for_host().len() == 0
    }

    fn end_towards_daemon(&mut self) {
        if let Some(daemon) = &self.daemon {
            // An error means that it has gone, which reading will show.
            drop(daemon.shutdown(Shutdown::Write));
        }
        self.half_closed = true;
    }

    /// Waits until one of the descriptors that matter now is ready.
    fn wait(&mut self) -> Result<Vec<(Side, PollFlags)>, CliError> {
        let mut sides = Vec::with_capacity(4);
        let mut polled = Vec::with_capacity(4);
        let mut add = |side, descriptor, events| {
            sides.push(side);
            polled.push(PollFd::new(descriptor, events));
        };
        let output_events = match self.session.for_host().len() {
            // Also without events a dead output is reported.
            0 => PollFlags::empty(),
            _ => PollFlags::POLLOUT,
        };
        let mut daemon_events = PollFlags::empty();
        daemon_events.set(
            PollFlags::POLLIN,
            self.is_handed || self.session.wants_daemon(),
        );
        daemon_events.set(PollFlags::POLLOUT, self.session.for_daemon().len() > 0);
        add(Side::HostOutput, self.output.as_fd(), output_events);
        if self.session.wants_host() {
            add(Side::HostInput, self.input.as_fd(), PollFlags::POLLIN);
        }
        if let Some(daemon) = &self.daemon
            && !daemon_events.is_empty()
        {
            add(Side::Daemon, daemon.as_fd(), daemon_events);
        }
        if let Some(folder) = &self.folder {
            add(Side::Folder, folder.as_fd(), PollFlags::POLLIN);
        }
        loop {
            let wait = self
                .session
                .poll_timeout()
                .map(|until| until.since(now()) + ROUNDING);
            let timeout = wait.map_or(PollTimeout::NONE, |wait| {
                PollTimeout::try_from(wait).unwrap_or(PollTimeout::MAX)
            });
            match poll(&mut polled, timeout) {
                Ok(_) => break,
                Err(nix::errno::Errno::EINTR) => {}
                Err(error) => return Err(CliError::internal("cannot wait").because(error)),
            }
        }
        let flags = polled
            .iter()
            .map(|one| one.revents().unwrap_or(PollFlags::empty()));
        let ready = sides.into_iter().zip(flags);
        Ok(ready.filter(|(_, flags)| !flags.is_empty()).collect())
    }

    fn serve(&mut self, ready: &[(Side, PollFlags)]) -> Result<Option<End>, CliError> {
        for (side, flags) in ready {
            let end = match side {
                Side::HostOutput => self.serve_output(*flags)?,
                Side::Daemon => self.serve_daemon(*flags),
                Side::HostInput => self.serve_input()?,
                Side::Folder => self.serve_folder(),
            };
            if end.is_some() {
                return Ok(end);
            }
        }
        Ok(None)
    }

    fn serve_output(&mut self, flags: PollFlags) -> Result<Option<End>, CliError> {
        if flags.contains(PollFlags::POLLOUT) {
            return self.write_output();
        }
        // Nobody reads any more: the attachment ends at once.
        let dead = PollFlags::POLLERR | PollFlags::POLLHUP | PollFlags::POLLNVAL;
        Ok(flags.intersects(dead).then_some(End::Host))
    }

    fn write_output(&mut self) -> Result<Option<End>, CliError> {
        let front = self.session.for_host().front();
        let written = if self.output_is_socket {
            send(
                self.output.as_raw_fd(),
                front,
                MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL,
            )
            .map_err(io::Error::from)
        } else {
            let len = front.len().min(PIPE_CHUNK_BYTES);
            self.output.write(&front[..len])
        };
        match written {
            Ok(count) => {
                self.session.for_host().advance(count);
                Ok(None)
            }
            Err(error) if is_later(&error) => Ok(None),
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(Some(End::Host)),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => Ok(Some(End::Host)),
            Err(error) => Err(CliError::internal("cannot write to the host").because(error)),
        }
    }

    /// Writes what the host takes at once: finding another daemon may take a while, and the host
    /// should not wait for it to learn what became of its requests.
    fn flush_output(&mut self) {
        while self.session.for_host().len() > 0 {
            let mut polled = [PollFd::new(self.output.as_fd(), PollFlags::POLLOUT)];
            let is_ready = poll(&mut polled, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
                && polled[0].revents() == Some(PollFlags::POLLOUT);
            let held = self.session.for_host().len();
            // Whatever goes wrong is met again, and acted upon, in the loop.
            if !is_ready
                || !matches!(self.write_output(), Ok(None))
                || self.session.for_host().len() == held
            {
                return;
            }
        }
    }

    fn serve_input(&mut self) -> Result<Option<End>, CliError> {
        if self.session.is_down() && !self.tried {
            self.tried = true;
            return Ok(Some(End::HostSpeaks));
        }
        self.tried = false;
        match self.input.read(&mut self.chunk) {
            Ok(0) => self.session.handle_host_end(now()),
            Ok(count) => {
                self.session.handle_host(&self.chunk[..count], now());
                self.write_daemon();
            }
            Err(error) if is_later(&error) => {}
            // A host's socket that was reset, a terminal that was hung up: it has gone.
            Err(_) => return Ok(Some(End::Host)),
        }
        Ok(None)
    }

    fn serve_daemon(&mut self, flags: PollFlags) -> Option<End> {
        if flags.contains(PollFlags::POLLOUT) {
            self.write_daemon();
        }
        let readable = PollFlags::POLLIN | PollFlags::POLLHUP | PollFlags::POLLERR;
        if !flags.intersects(readable) {
            return None;
        }
        let daemon = self.daemon.as_mut()?;
        match daemon.read(&mut self.chunk) {
            // There is nothing that it could have to say.
            Ok(1..) if self.is_handed => None,
            Ok(count) if count > 0 => {
                self.daemon_has_spoken = true;
                self.session.handle_daemon(&self.chunk[..count]);
                None
            }
            Err(error) if is_later(&error) => None,
            // The end, orderly or not.
            Ok(_) | Err(_) => self.daemon_ended(),
        }
    }

    fn daemon_ended(&mut self) -> Option<End> {
        self.daemon = None;
        let image = self.journal.as_ref().map(|journal| Image::read(journal));
        let image = image.and_then(Result::ok);
        self.ended = image.as_ref().map_or(Ended::Lost, |image| image.ended);
        if std::mem::take(&mut self.is_handed) {
            if self.ended == Ended::Finished {
                return Some(End::Host);
            }
            let image = image.unwrap_or_default();
            self.daemon_has_spoken = image.acted > 0;
            self.session.handle_handed_lost(image, now());
            self.flush_output();
            return Some(End::DaemonLost);
        }
        self.session.handle_daemon_lost(image);
        self.flush_output();
        // After the host's own end this is the answer to it.
        (!self.session.host_has_ended()).then_some(End::DaemonLost)
    }

    /// Writes as much as the daemon takes. That it has gone is found out by reading.
    fn write_daemon(&mut self) {
        let Some(daemon) = &mut self.daemon else {
            return;
        };
        while self.session.for_daemon().len() > 0 {
            match daemon.write(self.session.for_daemon().front()) {
                Ok(count) if count > 0 => self.session.for_daemon().advance(count),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Ok(_) | Err(_) => return,
            }
        }
    }

    fn serve_folder(&mut self) -> Option<End> {
        let folder = self.folder.as_ref()?;
        // What happened does not matter: it is a reason to look.
        match rustix::io::read(folder, &mut self.chunk) {
            Ok(_) => Some(End::HostSpeaks),
            Err(_) => None,
        }
    }
}

fn is_later(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// A descriptor that becomes readable when something is made in `folder`. Without one the host's
/// next request finds a new daemon.
fn watch(folder: &Path) -> Option<OwnedFd> {
    let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
    let descriptor = inotify::init(flags).ok()?;
    // A socket is there before it listens; the change of its mode comes after that, and last comes
    // the file that says that a daemon is ready.
    let events = inotify::WatchFlags::CREATE | inotify::WatchFlags::ATTRIB;
    inotify::add_watch(&descriptor, folder, events).ok()?;
    Some(descriptor)
}
