//! `mcpd man`: the manual page of mcpd, or of one of its commands, as troff text.
//!
//! Made from the same words as `--help`.

use clap::CommandFactory;

use super::error::{CliError, Verdict};
use super::{Cli, Context};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  mcpd man status | man -l -")]
pub(crate) struct Arguments {
    /// The command; without it, the page of mcpd itself
    #[arg(value_name = "COMMAND")]
    command: Vec<String>,
}

pub(crate) fn cmd_man(context: &Context, arguments: Arguments) -> Result<Verdict, CliError> {
    let mut page = Cli::command();
    page.build();
    for name in &arguments.command {
        let sub = page.find_subcommand(name).cloned().ok_or_else(|| {
            CliError::usage(format!("there is no command {name:?}"))
                .hint("`mcpd --help` lists all commands")
        })?;
        page = sub;
    }
    let mut text = Vec::new();
    clap_mangen::Man::new(page)
        .render(&mut text)
        .map_err(|error| CliError::internal("cannot write the page").because(error))?;
    context.output.print(&String::from_utf8_lossy(&text))?;
    Ok(Verdict::Done)
}
