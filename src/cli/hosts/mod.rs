//! `mcpd hosts`: the hosts of this machine, which of their servers go through mcpd, and making them.
//!
//! | file | what it is |
//! | --- | --- |
//! | `kinds` | the table of hosts: places, formats, keys |
//! | `files` | the files that are there |
//! | `document` | text in, text out: an entry changed, all else as it was |
//! | `entry` | what an entry means |
//! | `origins`, `records` | what is kept: which entry became which server, what was changed |
//! | `running`, `own_command` | hosts that run, and their own commands |
//! | `list`, `point`, `undo` | the three commands |

#[cfg(test)]
mod corpus_tests;
mod document;
mod entry;
mod files;
mod kinds;
mod list;
mod origins;
mod own_command;
mod point;
mod records;
mod running;
mod told;
mod undo;

use std::path::{Path, PathBuf};

pub(crate) use self::entry::{Meaning, Program};
pub(crate) use self::files::{Entry, HostFile, ReadFile, Surroundings};
pub(crate) use self::kinds::{HOSTS, HostKind, Variables, find_host, host_ids};
pub(crate) use self::origins::Origins;
use super::Context;
use super::error::{CliError, Verdict};

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "\
Example:
  mcpd hosts
  mcpd hosts use claude-code
  mcpd hosts undo claude-code")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<HostsCommand>,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum HostsCommand {
    /// Make a host start its servers through mcpd
    Use(point::UseArguments),
    /// Take back what `use` changed
    Undo(undo::UndoArguments),
}

pub(crate) fn cmd_hosts(context: &Context, arguments: Arguments) -> Result<Verdict, CliError> {
    match arguments.command {
        None => list::cmd_list(context, arguments.json || context.json),
        Some(HostsCommand::Use(arguments)) => point::cmd_use(context, arguments),
        Some(HostsCommand::Undo(arguments)) => undo::cmd_undo(context, arguments),
    }
}

/// A path as people write it.
pub(crate) fn short_path(path: &Path, home: &Path) -> String {
    match path.strip_prefix(home) {
        Ok(below) => PathBuf::from("~").join(below).display().to_string(),
        Err(_) => path.display().to_string(),
    }
}
