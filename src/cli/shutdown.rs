//! `mcpd shutdown`: the daemon and all servers end, and stay so until somebody starts them.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::client::{Client, PATIENT, QUICK};
use super::error::{CliError, Verdict};
use super::{Context, outcomes};
use crate::control::{Outcomes, Request};

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  mcpd shutdown")]
pub(crate) struct Arguments {
    /// Kill the servers at once instead of letting open calls finish
    #[arg(long)]
    now: bool,
}

pub(crate) fn cmd_shutdown(context: &Context, arguments: Arguments) -> Result<Verdict, CliError> {
    let places = context.places()?;
    let mut client = Client::connect(&places)?;
    // Before the request: a shim that sees the daemon end must already find the marker.
    let marker = places.shutdown_marker();
    leave_marker(&marker)?;
    let now = arguments.now;
    let outcomes: Outcomes = match client.ask(&Request::Shutdown { now }, PATIENT) {
        Ok(outcomes) => outcomes,
        Err(error) => {
            // The daemon goes on, so nothing was shut down.
            if Client::connect(&places).is_ok() {
                drop(std::fs::remove_file(&marker));
            }
            return Err(error);
        }
    };
    if !client.wait_for_end(QUICK) {
        return Err(CliError::server(
            "the daemon has stopped all servers but does not end",
        ));
    }
    outcomes::report(context, &outcomes)
}

fn leave_marker(path: &Path) -> Result<(), CliError> {
    OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path)
        .map(drop)
        .map_err(|error| {
            CliError::internal(format!("cannot write {}", path.display())).because(error)
        })
}
