//! `mcpd stop NAME…`: servers down, until `start` or the daemon's next start.

use super::client::PATIENT;
use super::error::{CliError, Verdict};
use super::{Context, outcomes};
use crate::control::{Request, Stop};

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  mcpd stop calculator\n  mcpd stop --now calculator")]
pub(crate) struct Arguments {
    /// Servers to stop
    #[arg(required = true, value_name = "NAME", add = crate::cli::completions::candidates())]
    names: Vec<String>,
    #[command(flatten)]
    format: outcomes::Format,
    /// Kill at once instead of letting open calls finish
    #[arg(long)]
    now: bool,
}

pub(crate) fn cmd_stop(context: &Context, arguments: Arguments) -> Result<Verdict, CliError> {
    let Arguments { names, now, format } = arguments;
    let outcomes = context
        .client()?
        .ask(&Request::Stop(Stop { names, now }), PATIENT)?;
    outcomes::report(context, format, &outcomes)
}
