//! A short command, run to its end for what it prints: `{ command = … }` values, `stop_command`,
//! the login shell's PATH.
//!
//! It is spawned, watched and proved gone like any child, so that nothing of it is left behind
//! either: a job that a profile started in the background ends with it. Decides nothing about what
//! the output means.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use thiserror::Error;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::time::{sleep, timeout};

use super::failure::SpawnFailure;
use super::launcher::{LaunchPlan, Launcher, ProcessGroup};
use super::state::{ExitStatus, StopSignal};
use crate::ids::Generation;

/// How long the rest of the output is waited for once the command has ended.
const PIPE_GRACE: Duration = Duration::from_millis(250);
/// How often survivors are killed and looked for, [`LOOK`] apart.
const ROUNDS: usize = 40;
const LOOK: Duration = Duration::from_millis(10);

/// What a command left. `Debug` shows no output: it may be a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Captured {
    pub status: ExitStatus,
    /// At most the limit that was asked for.
    pub stdout: Vec<u8>,
    /// At most the limit that was asked for.
    pub stderr: Vec<u8>,
    /// Something was longer than the limit.
    pub truncated: bool,
}

impl fmt::Debug for Captured {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Captured")
            .field("status", &self.status)
            .field("stdout_bytes", &self.stdout.len())
            .field("stderr_bytes", &self.stderr.len())
            .field("truncated", &self.truncated)
            .finish()
    }
}

/// Why there is nothing.
#[derive(Debug, Error)]
pub enum CaptureError {
    #[error(transparent)]
    Spawn(#[from] SpawnFailure),
    #[error("did not end within {} s", .limit.as_secs_f64())]
    TimedOut { limit: Duration },
    #[error("cannot read its output")]
    Output(#[source] io::Error),
}

/// Runs `plan` with an empty stdin for at most `limit`; keeps at most `output_limit_bytes` of each
/// stream and reads on past that. The plan must have a tag of its own: whoever carries it is ended
/// with the command.
///
/// # Errors
/// It cannot be started, does not end in time, or its output cannot be read.
pub async fn capture(
    launcher: &dyn Launcher,
    plan: LaunchPlan,
    limit: Duration,
    output_limit_bytes: usize,
) -> Result<Captured, CaptureError> {
    let child = launcher.spawn(plan, Generation::default()).await?;
    drop(child.stdin);
    let group = child.group;
    let ran = timeout(limit, async {
        child.executed.await?;
        let out = read(child.stdout, output_limit_bytes);
        let err = read(child.stderr, output_limit_bytes);
        let both = async { tokio::join!(out, err) };
        let mut both = std::pin::pin!(both);
        let mut exited = child.exited;
        tokio::select! {
            read = &mut both => Ok((exited.await, read)),
            status = &mut exited => {
                // Somebody may hold the pipes still; it goes, and with it what it held.
                match timeout(PIPE_GRACE, &mut both).await {
                    Ok(read) => Ok((status, read)),
                    Err(_) => {
                        end(group.as_ref()).await;
                        Ok((status, both.await))
                    }
                }
            }
        }
    })
    .await;
    end(group.as_ref()).await;
    let (status, (stdout, stderr)) = match ran {
        Ok(Ok(ran)) => ran,
        Ok(Err(failure)) => return Err(CaptureError::Spawn(failure)),
        Err(_) => return Err(CaptureError::TimedOut { limit }),
    };
    let (stdout, stderr) = (
        stdout.map_err(CaptureError::Output)?,
        stderr.map_err(CaptureError::Output)?,
    );
    Ok(Captured {
        status,
        truncated: stdout.1 || stderr.1,
        stdout: stdout.0,
        stderr: stderr.0,
    })
}

/// The first bytes of a stream, and whether there were more.
async fn read(stream: OwnedFd, limit_bytes: usize) -> io::Result<(Vec<u8>, bool)> {
    let mut stream = pipe::Receiver::from_owned_fd(stream)?;
    let (mut kept, mut more) = (Vec::new(), false);
    let mut chunk = [0; 4096];
    loop {
        let length = stream.read(&mut chunk).await?;
        if length == 0 {
            return Ok((kept, more));
        }
        let room = limit_bytes.saturating_sub(kept.len()).min(length);
        kept.extend_from_slice(&chunk[..room]);
        more |= room < length;
    }
}

/// Kills what is left in rounds, then reaps. What outlives this is killed again and handed to the
/// rounds over the adoptees when the last handle goes.
async fn end(group: &dyn ProcessGroup) {
    for _ in 0..ROUNDS {
        if group.members().is_ok_and(|left| left.is_empty()) && group.reap().is_ok() {
            return;
        }
        if let Err(error) = group.signal(StopSignal::Kill) {
            tracing::debug!(error = %error, "cannot end what a command left behind");
        }
        sleep(LOOK).await;
    }
}
