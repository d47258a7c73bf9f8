//! `mcpd shutdown`: the daemon and all servers end, and stay so until somebody starts them.

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use super::client::{Client, ConnectError, PATIENT, QUICK};
use super::error::{CliError, Kind, Verdict};
use super::places::Places;
use super::service::UserManager;
use super::{Context, outcomes};
use crate::control::{Hello, Outcomes, Request};

/// How long the daemon may take to leave once its servers are down.
const END_WAIT: Duration = Duration::from_secs(10);

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  mcpd shutdown")]
pub(crate) struct Arguments {
    /// Kill the servers at once instead of letting open calls finish
    #[arg(long)]
    now: bool,
    #[command(flatten)]
    format: outcomes::Format,
}

pub(crate) fn cmd_shutdown(context: &Context, arguments: Arguments) -> Result<Verdict, CliError> {
    let places = context.places()?;
    let manager = places
        .unit_file
        .is_some()
        .then(|| UserManager::new(&places))
        .filter(UserManager::keeps_socket);
    let client = match (Client::connect(&places), &manager) {
        (Ok(client), None) => Some(client),
        (Ok(mut client), Some(_)) => {
            // Whoever may not end the daemon may not have systemd do it either.
            let _: Hello = client.ask(&Request::Hello, QUICK)?;
            Some(client)
        }
        // No daemon, but the next connection would start one.
        (Err(ConnectError::NoDaemon(_)), Some(_)) => None,
        (Err(error), _) => return Err(error.into()),
    };
    // Before anything ends: a shim that sees the daemon go must already find the marker.
    let marker = places.shutdown_marker();
    let is_ours = leave_marker(&marker)?;
    let begun = manager.as_ref().map_or(Ok(()), UserManager::begin_stop);
    let ended = match (begun, client) {
        (Err(error), _) => Err(error.into()),
        // The daemon is asked too, since systemd could not tell it how much of a hurry it is.
        (Ok(()), Some(client)) => end_daemon(client, &places, arguments.now),
        (Ok(()), None) => Ok(Outcomes::default()),
    };
    let stopped = manager.as_ref().map_or(Ok(()), UserManager::stop);
    if ended.is_err() && is_ours && Client::connect(&places).is_ok() {
        // The daemon goes on, so nothing was shut down by us; somebody else's marker stays.
        drop(std::fs::remove_file(&marker));
    }
    let outcomes = ended?;
    stopped?;
    outcomes::report(context, arguments.format, &outcomes)
}

fn end_daemon(mut client: Client, places: &Places, now: bool) -> Result<Outcomes, CliError> {
    let process = client.process();
    let answer: Result<Outcomes, CliError> = client.ask(&Request::Shutdown { now }, PATIENT);
    let ends = match &answer {
        Ok(_) => true,
        Err(error) => error.kind == Kind::Unreachable,
    };
    // One that refuses goes on.
    let has_ended = ends && process.is_none_or(|process| process.wait_for_end(END_WAIT));
    match answer {
        Ok(_) if !has_ended => Err(CliError::server(
            "the daemon has stopped all servers but does not end",
        )),
        // It has done as it was told and had no time left to say so.
        Err(error) if error.kind == Kind::Unreachable && Client::connect(places).is_err() => {
            Ok(Outcomes::default())
        }
        answer => answer,
    }
}

/// Makes the marker; false if it stands already.
fn leave_marker(path: &Path) -> Result<bool, CliError> {
    let made = OpenOptions::new()
        .create_new(true)
        .append(true)
        .mode(0o600)
        .open(path);
    match made {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
        Err(error) => {
            let message = format!("cannot write {}", path.display());
            Err(CliError::internal(message).because(error))
        }
    }
}
