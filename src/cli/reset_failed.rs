//! `mcpd reset-failed NAME…`: failures forgotten, so that a server may start again.

use super::client::PATIENT;
use super::error::{CliError, Verdict};
use super::{Context, outcomes};
use crate::control::{Request, Targets};

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  mcpd reset-failed calculator")]
pub(crate) struct Arguments {
    /// Servers whose failures to forget
    #[arg(required = true, value_name = "NAME", add = crate::cli::completions::candidates())]
    names: Vec<String>,
    #[command(flatten)]
    format: outcomes::Format,
}

pub(crate) fn cmd_reset_failed(
    context: &Context,
    arguments: Arguments,
) -> Result<Verdict, CliError> {
    let Arguments { names, format } = arguments;
    let outcomes = context
        .client()?
        .ask(&Request::ResetFailed(Targets { names }), PATIENT)?;
    outcomes::report(context, format, &outcomes)
}
