//! `mcpd shutdown`: the daemon and all servers end, and stay so until somebody starts them.

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use super::client::{Client, PATIENT};
use super::error::{CliError, Kind, Verdict};
use super::{Context, outcomes};
use crate::control::{Outcomes, Request};

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
    let mut client = Client::connect(&places)?;
    // Before the request: a shim that sees the daemon end must already find the marker.
    let marker = places.shutdown_marker();
    let is_ours = leave_marker(&marker)?;
    let process = client.process();
    let Arguments { now, format } = arguments;
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
        Ok(outcomes) => outcomes::report(context, format, &outcomes),
        // It has done as it was told and had no time left to say so.
        Err(error) if error.kind == Kind::Unreachable && Client::connect(&places).is_err() => {
            outcomes::report(context, format, &Outcomes::default())
        }
        Err(error) => {
            // The daemon goes on, so nothing was shut down by us; somebody else's marker stays.
            if is_ours {
                drop(std::fs::remove_file(&marker));
            }
            Err(error)
        }
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
