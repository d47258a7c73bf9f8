//! `mcpd start NAME…`: servers up, and the daemon with them.

use super::client::PATIENT;
use super::error::{CliError, Verdict};
use super::start_daemon::Wish;
use super::{Context, outcomes};
use crate::control::{Request, Targets};

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  mcpd start calculator")]
pub(crate) struct Arguments {
    /// Servers to start
    #[arg(required = true, value_name = "NAME", add = crate::cli::completions::candidates())]
    names: Vec<String>,
    #[command(flatten)]
    format: outcomes::Format,
}

pub(crate) fn cmd_start(context: &Context, arguments: Arguments) -> Result<Verdict, CliError> {
    let Arguments { names, format } = arguments;
    let mut client = context.client_or_start("mcpd start", Wish::Start)?;
    let outcomes = client.ask(&Request::Start(Targets { names }), PATIENT)?;
    outcomes::report(context, format, &outcomes)
}
