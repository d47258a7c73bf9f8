//! `mcpd status [NAME]`: what the daemon and its servers are doing.
//!
//! Decides the exit code from the snapshot: 0 all fine, 1 something is degraded, 3 something has
//! failed, 4 no daemon. Never starts anything.

mod details;
mod format;
mod hosts;
mod offline;
mod table;
#[cfg(test)]
mod tests;
mod watch;

pub(crate) use self::details::quote;
pub(crate) use self::format::{render_duration, render_size};
pub(crate) use self::table::render_line;

use self::details::render_details;
use self::hosts::render_hosts;
use self::table::render_table;
use super::Context;
use super::client::{Client, ConnectError, QUICK};
use super::error::{CliError, Verdict};
use crate::control::{
    ConfigVerdict, Request, ServerStatus, State, StatusSnapshot, Substate, Targets,
};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
CPU is the share of one processor over the life of the child.
Exit codes: 0 all fine, 1 something is degraded, 3 something has failed, 4 no daemon.

Example:
  mcpd status
  mcpd status calculator
  mcpd status --watch
  mcpd status --hosts
  mcpd status --json | jq '.servers[].state'")]
pub(crate) struct Arguments {
    /// Show everything about this server
    #[arg(value_name = "NAME", add = crate::cli::completions::candidates())]
    name: Option<String>,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    /// Show who is attached instead
    #[arg(long, conflicts_with = "watch")]
    hosts: bool,
    /// Show it again every second, with rates, until `q` or Ctrl-C
    #[arg(short, long)]
    watch: bool,
}

pub(crate) fn cmd_status(context: &Context, arguments: Arguments) -> Result<Verdict, CliError> {
    let json = arguments.json || context.json;
    let places = context.places()?;
    if arguments.watch {
        return watch::watch(context, &places, arguments.name.as_deref(), json);
    }
    let mut client = match Client::connect(&places) {
        Ok(client) => client,
        Err(ConnectError::NoDaemon(_)) => {
            return offline::report(context, &places, arguments.name.as_deref(), json);
        }
        Err(ConnectError::Other(error)) => return Err(error),
    };
    let names = arguments.name.iter().cloned().collect();
    let snapshot: StatusSnapshot = client.ask(&Request::Status(Targets { names }), QUICK)?;
    if let Some(name) = &arguments.name
        && snapshot.servers.is_empty()
    {
        return Err(unknown_server(name));
    }
    if arguments.hosts && !json {
        let text = render_hosts(&snapshot, context.output.style, context.output.width);
        context.output.note(&text)?;
    } else {
        show(context, &snapshot, arguments.name.is_some(), json)?;
    }
    Ok(judge(&snapshot))
}

fn unknown_server(name: &str) -> CliError {
    CliError::server(format!("no server is named {name:?}")).hint("`mcpd status` lists them all")
}

fn show(
    context: &Context,
    snapshot: &StatusSnapshot,
    in_full: bool,
    json: bool,
) -> Result<(), CliError> {
    let style = context.output.style;
    if json {
        return context.output.print_json(snapshot);
    }
    if !in_full {
        return context
            .output
            .note(&render_table(snapshot, style, context.output.width, None));
    }
    let pages: Vec<String> = snapshot
        .servers
        .iter()
        .map(|server| render_details(server, style))
        .collect();
    context.output.note(&pages.join("\n"))
}

/// What a snapshot means for the exit code.
fn judge(snapshot: &StatusSnapshot) -> Verdict {
    match judge_servers(&snapshot.servers) {
        Verdict::Done if !snapshot.daemon.errors.is_empty() => Verdict::Degraded,
        verdict => verdict,
    }
}

/// The same of servers alone.
pub(crate) fn judge_servers(servers: &[ServerStatus]) -> Verdict {
    if servers.iter().any(|server| server.state == State::Failed) {
        Verdict::Failed
    } else if servers.iter().any(is_degraded) {
        Verdict::Degraded
    } else {
        Verdict::Done
    }
}

fn is_degraded(server: &ServerStatus) -> bool {
    server.state == State::Backoff
        || server.substate == Substate::Unresponsive
        || server.config.status == ConfigVerdict::Invalid
}
