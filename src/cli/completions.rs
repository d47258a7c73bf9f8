//! `mcpd completions`: what makes a shell complete the commands, and the names of the servers.
//!
//! The shell asks `mcpd` itself at every completion, so that it knows the servers of that moment.
//! They are the files of `servers.d`: no daemon is asked or started, and nothing is said of what is
//! wrong.

use std::ffi::OsString;

use clap::CommandFactory;
use clap_complete::env::{Bash, CompleteEnv, EnvCompleter, Fish, Zsh};
use clap_complete::{ArgValueCandidates, CompletionCandidate};

use super::error::{CliError, Verdict};
use super::places::Places;
use super::{Cli, Context};
use crate::config::dirs::read_environment;
use crate::config::paths::PathFlags;

/// The variable by which a shell says that it wants to know what may follow.
const VARIABLE: &str = "MCPD_COMPLETE";

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Put one of these into the shell's own configuration:
  bash: source <(mcpd completions bash)
  zsh:  source <(mcpd completions zsh)
  fish: mcpd completions fish | source

Example:
  mcpd completions bash >~/.local/share/bash-completion/completions/mcpd")]
pub(crate) struct Arguments {
    #[arg(value_enum, value_name = "SHELL")]
    shell: Shell,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

pub(crate) fn cmd_completions(
    context: &Context,
    arguments: Arguments,
) -> Result<Verdict, CliError> {
    let shell: &dyn EnvCompleter = match arguments.shell {
        Shell::Bash => &Bash,
        Shell::Zsh => &Zsh,
        Shell::Fish => &Fish,
    };
    let mut text = Vec::new();
    shell
        .write_registration(VARIABLE, "mcpd", "mcpd", "mcpd", &mut text)
        .map_err(|error| CliError::internal("cannot write the script").because(error))?;
    context.output.print(&String::from_utf8_lossy(&text))?;
    Ok(Verdict::Done)
}

/// Answers a shell that asks what may follow. Whether it was one.
pub(super) fn answer(arguments: &[OsString]) -> bool {
    std::env::var_os(VARIABLE).is_some_and(|shell| !shell.is_empty()) && {
        let directory = std::env::current_dir().ok();
        CompleteEnv::with_factory(Cli::command)
            .var(VARIABLE)
            .try_complete(arguments.iter().cloned(), directory.as_deref())
            // A shell that asks wrongly is not spoken to.
            .unwrap_or(true)
    }
}

/// For an argument that names servers.
pub(super) fn candidates() -> ArgValueCandidates {
    ArgValueCandidates::new(servers)
}

/// The servers that there are files of.
fn servers() -> Vec<CompletionCandidate> {
    let Ok(places) = Places::find(&PathFlags::default(), &read_environment()) else {
        return Vec::new();
    };
    let folder = places.paths.config_dir().join("servers.d");
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = files
        .filter_map(|file| {
            let name = file.file_name().into_string().ok()?;
            let name = name.strip_suffix(".toml")?;
            (!name.starts_with('.')).then(|| name.to_owned())
        })
        .collect();
    names.sort();
    names.into_iter().map(CompletionCandidate::new).collect()
}
