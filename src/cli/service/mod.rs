//! `mcpd service`: the daemon as a service of the user's systemd.
//!
//! Decides which unit files there are to be and what has to be told to systemd for it; systemd runs
//! the daemon then. Touches no unit that it did not write.

mod captured_path;
mod install;
mod status;
mod systemctl;
mod uninstall;
mod units;

use std::path::PathBuf;

use super::Context;
use super::error::{CliError, Verdict};
use super::places::{Places, own_units_dir};
use crate::config::paths::PathFlags;

pub(crate) use self::systemctl::UserManager;

/// The unit that runs the daemon.
pub(crate) const SERVICE: &str = "mcpd.service";
/// The unit that keeps its socket.
pub(crate) const SOCKET: &str = "mcpd.socket";

#[derive(Debug, clap::Args)]
#[command(after_help = "\
systemd then starts the daemon with your session, starts it again if it fails, and keeps its socket \
open meanwhile.

Example:
  mcpd service install
  mcpd service status")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Write the units for this program, enable and start them; again after an upgrade
    #[command(after_help = "Example:\n  mcpd service install --restart")]
    Install(install::Arguments),
    /// Stop the service and remove its units
    #[command(after_help = "Example:\n  mcpd service uninstall")]
    Uninstall,
    /// Show the units, the socket and whether they outlive your session
    #[command(after_help = "Example:\n  mcpd service status --json")]
    Status(status::Arguments),
}

pub(crate) fn cmd_service(context: &Context, arguments: Arguments) -> Result<Verdict, CliError> {
    let service = Service::find(context)?;
    match arguments.verb {
        Verb::Install(arguments) => install::cmd_install(context, &service, arguments),
        Verb::Uninstall => uninstall::cmd_uninstall(context, &service),
        Verb::Status(arguments) => status::cmd_status(context, &service, arguments),
    }
}

/// What the commands work on.
#[derive(Debug)]
struct Service {
    places: Places,
    manager: UserManager,
    /// Where the units are written.
    folder: PathBuf,
}

impl Service {
    fn find(context: &Context) -> Result<Self, CliError> {
        let places = context.places()?;
        let mut plain = context.environment.clone();
        for variable in ["MCPD_CONFIG", "MCPD_SOCKET", "MCPD_STATE"] {
            plain.remove(variable);
        }
        if Places::find(&PathFlags::default(), &plain)?.paths != places.paths {
            return Err(CliError::usage(
                "the service is for the default configuration, socket and state",
            )
            .hint("leave --config, --socket, --state and their variables away"));
        }
        Ok(Self {
            manager: UserManager::new(&places),
            folder: own_units_dir(&context.environment, &places.user),
            places,
        })
    }
}
