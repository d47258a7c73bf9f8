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
use crate::config::spec::ResourceLimits;
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
            let stdout =
                pipe::Receiver::from_owned_fd(child.stdout).map_err(ErrandError::Output)?;
            let mut output = Vec::new();
            // What it left behind may hold the pipe open: the output ends with the command.
            let status = tokio::select! {
                status = child.exited.as_mut() => status,
                failed = read(&stdout, &mut output) => match failed {
                    Some(error) => return Err(error),
                    None => child.exited.as_mut().await,
                },
            };
            take_rest(&stdout, &mut output)?;
            match status {
                ExitStatus::Code(0) => Ok(output),
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
            limits: ResourceLimits::default(),
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

/// Takes what the command prints until its pipe ends; an error if that is too much.
async fn read(stdout: &pipe::Receiver, output: &mut Vec<u8>) -> Option<ErrandError> {
    loop {
        if let Err(error) = stdout.readable().await {
            return Some(ErrandError::Output(error));
        }
        match stdout.try_read_buf(output) {
            Ok(0) => return None,
            Ok(_) if output.len() > OUTPUT_LIMIT_BYTES => return Some(ErrandError::TooMuch),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Some(ErrandError::Output(error)),
        }
    }
}

/// Takes what stands in the pipe now. Asks the kernel itself: the runtime may not have heard yet
/// of the last bytes before the command's end.
fn take_rest(stdout: &pipe::Receiver, output: &mut Vec<u8>) -> Result<(), ErrandError> {
    let mut bytes = [0; 4096];
    while output.len() <= OUTPUT_LIMIT_BYTES {
        match rustix::io::read(stdout, &mut bytes) {
            Ok(0) | Err(rustix::io::Errno::AGAIN) => return Ok(()),
            Ok(count) => output.extend_from_slice(&bytes[..count]),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(ErrandError::Output(error.into())),
        }
    }
    Err(ErrandError::TooMuch)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::supervise::spawn::Spawner;

    async fn shell(script: &str, limit: Duration) -> Result<Vec<u8>, ErrandError> {
        let errand = Errand {
            argv: ["sh", "-c", script].map(OsString::from).to_vec(),
            environment: [("PATH", "/usr/bin:/bin")].into_iter().collect(),
            cwd: PathBuf::from("/"),
            umask: 0o022,
            limit,
        };
        errand.run(&Spawner::start().unwrap()).await
    }

    const LONG: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn what_a_command_prints_is_its_value() {
        assert_eq!(shell("printf secret", LONG).await.unwrap(), b"secret");
        assert_eq!(shell("echo noise >&2", LONG).await.unwrap(), b"");
    }

    #[tokio::test]
    async fn a_command_that_fails_says_how() {
        let error = shell("exit 3", LONG).await.unwrap_err();
        assert!(
            matches!(error, ErrandError::Ended(ExitStatus::Code(3))),
            "{error}"
        );
        let error = shell("yes | head -c 100000", LONG).await.unwrap_err();
        assert!(matches!(error, ErrandError::TooMuch), "{error}");
    }

    #[tokio::test]
    async fn a_command_that_hangs_is_ended() {
        let error = shell("cat </dev/zero >/dev/null", Duration::from_millis(200))
            .await
            .unwrap_err();
        assert!(matches!(error, ErrandError::TimedOut(_)), "{error}");
    }

    #[tokio::test]
    async fn what_it_left_behind_does_not_hold_up_its_value() {
        // The job keeps the pipe open until it is killed with the group.
        let value = shell(
            "cat /dev/zero >/dev/null 2>&1 & cat /dev/zero | cat >/dev/null & printf v",
            LONG,
        );
        assert_eq!(value.await.unwrap(), b"v");
    }
}
