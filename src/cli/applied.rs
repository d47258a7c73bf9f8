//! What became of servers whose files a command has changed: the daemon, if one runs, reads them at
//! once, and the command tells how they are then.
//!
//! Decides the exit code: 0 done, 1 a server is degraded, 3 one has failed. Never starts a daemon: a
//! changed file is done as it is, and counts whenever one starts.

use std::path::PathBuf;
use std::time::Duration;

use nix::poll::{PollTimeout, poll};

use super::Context;
use super::client::{Client, ConnectError, PATIENT, QUICK};
use super::clock::Deadline;
use super::error::{CliError, Verdict};
use super::output::complain;
use super::places::Places;
use super::status::{judge_servers, render_line};
use crate::control::{
    ReloadReport, Request, ServerStatus, State, StatusSnapshot, Substate, Targets,
};

/// Servers have deadlines of their own; a longer one is not waited for.
const SETTLE_PATIENCE: Duration = Duration::from_secs(120);
/// So soon a server begins to start if it does so by itself.
const BEGIN_PATIENCE: Duration = Duration::from_secs(2);
/// A wait that is longer is explained.
const SILENCE: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(50);

/// What was done with the file of one server.
#[derive(Clone, Debug, serde::Serialize)]
pub(crate) struct Done {
    pub(crate) server: String,
    pub(crate) done: Deed,
    /// The files that were written, or the copies of those that were removed.
    pub(crate) files: Vec<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Deed {
    Added,
    Replaced,
    Removed,
    Edited,
    Enabled,
    Disabled,
    Unchanged,
}

/// All of it, for `--json`.
#[derive(Debug, serde::Serialize)]
struct Report {
    changes: Vec<Change>,
    /// Whether a daemon runs and has read the files.
    daemon: bool,
}

#[derive(Debug, serde::Serialize)]
struct Change {
    #[serde(flatten)]
    done: Done,
    /// Nothing without a daemon, and of servers that are gone.
    state: Option<State>,
    reason: Option<String>,
}

/// Has the daemon read the files, and prints how the servers are then.
pub(crate) fn apply(
    context: &Context,
    places: &Places,
    done: Vec<Done>,
    json: bool,
) -> Result<Verdict, CliError> {
    let names: Vec<String> = done.iter().map(|one| one.server.clone()).collect();
    let is_changed = done.iter().any(|one| one.done != Deed::Unchanged);
    let statuses = match is_changed {
        true => tell_daemon(places, &names)?,
        false => Some(Vec::new()),
    };
    if json {
        context
            .output
            .print_json(&report(done, statuses.as_deref()))?;
    } else if is_changed {
        say(context, statuses.as_deref())?;
    }
    Ok(judge_servers(&statuses.unwrap_or_default()))
}

/// The servers of these names as the daemon has them once it has read all files and no server is on
/// its way any more. None where no daemon runs.
fn tell_daemon(places: &Places, names: &[String]) -> Result<Option<Vec<ServerStatus>>, CliError> {
    let mut client = match Client::connect(places) {
        Ok(client) => client,
        Err(ConnectError::NoDaemon(_)) => return Ok(None),
        Err(ConnectError::Other(error)) => return Err(error),
    };
    // What it tells of other files is theirs. The daemon may have seen the edit before it was asked,
    // so that the state of the servers says more than its report.
    let _: ReloadReport = client.ask(&Request::Reload { wait: false }, PATIENT)?;
    let all = Deadline::after(SETTLE_PATIENCE);
    let begin = Deadline::after(BEGIN_PATIENCE);
    let mut explain = Some(Deadline::after(SILENCE));
    loop {
        let targets = Targets {
            names: names.to_vec(),
        };
        let snapshot: StatusSnapshot = client.ask(&Request::Status(targets), QUICK)?;
        let moving = |server: &&ServerStatus| {
            is_moving(server) || (is_about_to_start(server) && !begin.left().is_zero())
        };
        let Some(server) = snapshot.servers.iter().find(moving) else {
            return Ok(Some(snapshot.servers));
        };
        if all.left().is_zero() {
            return Ok(Some(snapshot.servers));
        }
        if explain
            .take_if(|silence| silence.left().is_zero())
            .is_some()
        {
            complain(&format!("waiting for {}\n", render_line(server)));
        }
        pause(POLL);
    }
}

fn is_moving(server: &ServerStatus) -> bool {
    matches!(server.state, State::Starting | State::Stopping)
        || server.substate == Substate::DrainingForReload
}

/// Whether the daemon knows of a server that it has not got round to yet.
fn is_about_to_start(server: &ServerStatus) -> bool {
    server.substate == Substate::NeverStarted && server.start == "boot"
}

/// Lets a while pass.
fn pause(wait: Duration) {
    let timeout = PollTimeout::try_from(wait).unwrap_or(PollTimeout::ZERO);
    // A signal only makes it shorter.
    _ = poll(&mut [], timeout);
}

fn say(context: &Context, statuses: Option<&[ServerStatus]>) -> Result<(), CliError> {
    let Some(statuses) = statuses else {
        return context
            .output
            .note("no daemon is running: this counts when one starts\n");
    };
    for status in statuses {
        let line = format!("{}\n", render_line(status));
        match judge_servers(std::slice::from_ref(status)) {
            Verdict::Done => context.output.note(&line)?,
            _ => context.output.print(&line)?,
        }
    }
    Ok(())
}

fn report(done: Vec<Done>, statuses: Option<&[ServerStatus]>) -> Report {
    let changes = done.into_iter().map(|done| {
        let mut all = statuses.into_iter().flatten();
        let status = all.find(|status| status.name == done.server);
        Change {
            state: status.map(|status| status.state),
            reason: status.and_then(|status| status.reason.clone()),
            done,
        }
    });
    Report {
        changes: changes.collect(),
        daemon: statuses.is_some(),
    }
}
