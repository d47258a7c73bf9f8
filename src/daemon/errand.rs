//! A command that is run for its output or its effect and ends soon: `{ command = … }` values and
//! `stop_command`.
//!
//! It goes through the same launcher as a server, so it gets the same clean process and is reaped
//! by the same owner. It carries no tag: what it leaves behind on purpose (an agent that keeps a
//! passphrase) is not ours to end.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::unix::pipe;

use crate::config::environment::Environment;
use crate::ids::Generation;
use crate::supervise::launcher::ProcessGroup;
use crate::supervise::{ExitStatus, LaunchPlan, Launcher, SpawnFailure, StopSignal, inspect};

use super::launch::pairs;

/// The most that a command may print.
const OUTPUT_LIMIT_BYTES: usize = 64 << 10;
/// How long a killed command may take to be gone.
const KILL_WAIT: Duration = Duration::from_secs(2);

/// What to run.
#[derive(Debug)]
pub(crate) struct Errand {
    pub(crate) argv: Vec<OsString>,
    pub(crate) environment: Environment,
    pub(crate) cwd: PathBuf,
    pub(crate) umask: u32,
    pub(crate) limit: Duration,
}

/// Why it came to nothing. Never holds what it printed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ErrandError {
    #[error("the command is empty")]
    Empty,
    #[error(transparent)]
    Spawn(#[from] SpawnFailure),
    #[error("{0}")]
    Ended(ExitStatus),
    #[error("it took longer than {0:?}")]
    TimedOut(Duration),
    #[error("it printed more than {} KiB", OUTPUT_LIMIT_BYTES >> 10)]
    TooMuch,
    #[error("it printed nothing")]
    Nothing,
    #[error("its output cannot be read")]
    Output(#[source] io::Error),
}

impl Errand {
    /// Runs it to its end and gives what it printed. Nothing of its group is left afterwards.
    ///
    /// # Errors
    /// It could not be run, did not end in time, or did not end well.
    pub(crate) async fn run(self, launcher: &dyn Launcher) -> Result<Vec<u8>, ErrandError> {
        let limit = self.limit;
        let mut child = launcher.spawn(self.plan()?, Generation::default()).await?;
        drop(child.stdin);
        let group = child.group;
        let quiet = tokio::spawn(discard(child.stderr));
        let work = async {
            child.executed.as_mut().await?;
            let (output, status) = tokio::join!(read(child.stdout, &*group), child.exited.as_mut());
            match status {
                ExitStatus::Code(0) => output,
                status => Err(ErrandError::Ended(status)),
            }
        };
        let outcome = tokio::time::timeout(limit, work).await;
        let outcome = outcome.unwrap_or(Err(ErrandError::TimedOut(limit)));
        end(&*group).await;
        quiet.abort();
        outcome
    }

    fn plan(self) -> Result<LaunchPlan, ErrandError> {
        let path = self.environment.get("PATH").unwrap_or_default();
        let program = self.argv.first().ok_or(ErrandError::Empty)?;
        Ok(LaunchPlan {
            program: inspect::resolve(Path::new(program), path)?,
            env: pairs(&self.environment),
            argv: self.argv,
            cwd: self.cwd,
            umask: self.umask,
            tag: String::new(),
        })
    }
}

/// Kills what is left of the group and reaps the leader.
async fn end(group: &dyn ProcessGroup) {
    let deadline = tokio::time::Instant::now() + KILL_WAIT;
    loop {
        // Whatever is refused here shows in the reaping, which is tried until the deadline.
        drop(group.signal(StopSignal::Kill));
        match group.reap() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            _ => return,
        }
        if tokio::time::Instant::now() >= deadline {
            // The handle's own drop is the last resort.
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// What the command prints until its pipe ends or the limit is passed, which also ends it.
async fn read(stdout: OwnedFd, group: &dyn ProcessGroup) -> Result<Vec<u8>, ErrandError> {
    let stdout = pipe::Receiver::from_owned_fd(stdout).map_err(ErrandError::Output)?;
    let mut output = Vec::new();
    loop {
        stdout.readable().await.map_err(ErrandError::Output)?;
        match stdout.try_read_buf(&mut output) {
            Ok(0) => return Ok(output),
            Ok(_) if output.len() > OUTPUT_LIMIT_BYTES => {
                drop(group.signal(StopSignal::Kill));
                return Err(ErrandError::TooMuch);
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(ErrandError::Output(error)),
        }
    }
}

async fn discard(stderr: OwnedFd) {
    let Ok(stderr) = pipe::Receiver::from_owned_fd(stderr) else {
        return;
    };
    let mut bytes = [0; 4096];
    while stderr.readable().await.is_ok() {
        match stderr.try_read(&mut bytes) {
            Ok(0) => return,
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return,
            _ => {}
        }
    }
}
