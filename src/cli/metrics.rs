//! `mcpd metrics`: the state of all servers as OpenMetrics text.
//!
//! The daemon makes the text; this prints it.

use super::Context;
use super::client::QUICK;
use super::error::{CliError, Verdict};
use crate::control::{Metrics, Request};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
For a collector that reads files, such as the textfile collector of the node exporter:
  mcpd metrics >mcpd.prom.new && mv mcpd.prom.new mcpd.prom

Example:
  mcpd metrics | grep mcpd_server_restarts_total")]
pub(crate) struct Arguments {}

pub(crate) fn cmd_metrics(context: &Context, _: Arguments) -> Result<Verdict, CliError> {
    let metrics: Metrics = context.client()?.ask(&Request::Metrics, QUICK)?;
    context.output.print(&metrics.text)?;
    Ok(Verdict::Done)
}
