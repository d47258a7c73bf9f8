//! The warden: a small process above a daemon that no service manager looks after.
//!
//! One thread, no runtime. It starts the daemon, hands signals on to it, and when the daemon has
//! ended, however that was, kills whatever it left and ends in the same way. As an ancestor that
//! adopts orphans (`PR_SET_CHILD_SUBREAPER(2const)`) it reaches every process that ever came from
//! the daemon, also those that left their session and their parents. Decides nothing about servers.
//!
//! A daemon whose warden was killed ends too, as by a crash: see [`watch`].

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill, raise, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

use crate::supervise::reap::become_subreaper;
use crate::supervise::{sweep, sys};

/// The option by which a daemon is told the pid of its warden.
pub const GUARDED_OPTION: &str = "--guarded";

/// What the daemon is told as if it had been sent to it. Its own answer to each is the warden's.
const FORWARDED: [Signal; 6] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];
/// Those of a terminal that would stop the warden, and only it.
const IGNORED: [Signal; 3] = [Signal::SIGTSTP, Signal::SIGTTIN, Signal::SIGTTOU];

/// A daemon that runs below this process.
#[derive(Debug)]
pub struct Warden {
    daemon: Pid,
    signals: SignalFd,
}

impl Warden {
    /// Starts a daemon by this very program with `arguments` (without the program's name). The
    /// caller has one thread and no other children.
    ///
    /// # Errors
    /// This process cannot adopt orphans or hear signals, or the daemon cannot be started.
    pub fn start(arguments: impl IntoIterator<Item = OsString>) -> io::Result<Self> {
        become_subreaper()?;
        sys::keep_exit_statuses();
        let mut heard = SigSet::from(Signal::SIGCHLD);
        for signal in FORWARDED.into_iter().chain(IGNORED) {
            heard.add(signal);
        }
        // The daemon inherits the mask and lifts it once it listens, so that no signal is lost to
        // one that has only begun. Ignored ones are heard too while they are blocked (signal(7)).
        sigprocmask(SigmaskHow::SIG_BLOCK, Some(&heard), None)?;
        let signals = SignalFd::with_flags(&heard, SfdFlags::SFD_CLOEXEC)?;
        let child = Command::new("/proc/self/exe")
            .arg0("mcpd")
            .args(arguments)
            .args([GUARDED_OPTION, &std::process::id().to_string()])
            .spawn()?;
        let daemon = Pid::from_raw(i32::try_from(child.id()).map_err(io::Error::other)?);
        Ok(Self { daemon, signals })
    }

    /// Stays until the daemon has ended, ends what it left, and says how it ended.
    ///
    /// # Errors
    /// Signals or children cannot be waited for; the daemon then sees its warden end.
    pub fn stay(self) -> io::Result<ExitStatus> {
        let ended = loop {
            if let Some(status) = self.reap()? {
                break status;
            }
            self.hear()?;
        };
        match sweep::end_descendants(sweep::ROUNDS) {
            Ok(left) if left.is_empty() => {}
            Ok(left) => complain(&format!("cannot end what the daemon left: {left:?}")),
            Err(error) => complain(&format!("cannot end what the daemon left: {error}")),
        }
        Ok(ended)
    }

    /// Waits for a signal and hands it on.
    fn hear(&self) -> io::Result<()> {
        match self.signals.read_signal() {
            Ok(Some(heard)) => {
                let number = i32::try_from(heard.ssi_signo).map_err(io::Error::other)?;
                let signal = Signal::try_from(number)?;
                if FORWARDED.contains(&signal) {
                    // It is our child and unreaped, so the number is its own.
                    kill(self.daemon, signal)?;
                }
                Ok(())
            }
            Ok(None) | Err(Errno::EINTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Reaps every child that has ended. Gives the daemon's end if it is among them. Nobody else
    /// in this process waits for children, so any may be taken.
    fn reap(&self) -> io::Result<Option<ExitStatus>> {
        let mut daemon = None;
        loop {
            let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG;
            match waitid(Id::All, flags) {
                Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return Ok(daemon),
                Ok(ended) if ended.pid() == Some(self.daemon) => daemon = status_of(ended),
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// An end in the words of the standard library.
fn status_of(ended: WaitStatus) -> Option<ExitStatus> {
    match ended {
        WaitStatus::Exited(_, code) => Some(ExitStatus::from_raw(code << 8)),
        WaitStatus::Signaled(_, signal, _) => Some(ExitStatus::from_raw(signal as i32)),
        _ => None,
    }
}

/// Ends this process as the daemon ended: with its code, or by its signal, so that whoever waits
/// for the warden sees the daemon's end.
pub fn end_like(status: ExitStatus) -> ! {
    if let Some(signal) = status
        .signal()
        .and_then(|number| Signal::try_from(number).ok())
    {
        // One core is enough, and the daemon's is the one that tells something.
        _ = setrlimit(Resource::RLIMIT_CORE, 0, 0);
        _ = sys::reset_signals();
        _ = SigSet::empty().thread_set_mask();
        _ = raise(signal);
    }
    // 128 and the signal is how a shell spells an end that could not be imitated.
    let code = status.code();
    std::process::exit(code.unwrap_or_else(|| 128 + status.signal().unwrap_or(0)))
}

/// Calls `lost` if the warden `pid` ends before this process does.
///
/// # Errors
/// It has ended already, or cannot be watched.
pub(super) fn watch(pid: u32, lost: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let number = i32::try_from(pid).map_err(io::Error::other)?;
    let number = rustix::process::Pid::from_raw(number).ok_or(io::ErrorKind::InvalidInput)?;
    let flags = rustix::process::PidfdFlags::empty();
    let pidfd = rustix::process::pidfd_open(number, flags)?;
    // After the descriptor was opened: it is our parent's, or the number was somebody else's.
    if nix::unistd::getppid().as_raw().unsigned_abs() != pid {
        return Err(io::Error::other("the warden has ended"));
    }
    std::thread::Builder::new()
        .name("mcpd-warden".to_owned())
        .spawn(move || {
            let mut polled = [PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)];
            while !matches!(poll(&mut polled, PollTimeout::NONE), Ok(ready) if ready > 0) {}
            lost();
        })?;
    Ok(())
}

fn complain(text: &str) {
    // There is nobody else to tell.
    drop(writeln!(io::stderr(), "mcpd: {text}"));
}
