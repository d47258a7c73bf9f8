//! `mcpd enable NAME…` and `mcpd disable NAME…`: whether a server may run, by the key `enabled` of its
//! file. Nothing else of a file changes.

use std::fs;
use std::path::PathBuf;

use super::Context;
use super::applied::{Deed, Done, apply};
use super::check::refuse_errors;
use super::error::{CliError, Verdict};
use super::places::Places;
use super::server_file::{Servers, check_text, daemon_base, replace_server};
use crate::config::draft::Draft;
use crate::config::edit::set_enabled;
use crate::config::environment::Base;
use crate::config::spec::ServerName;

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  mcpd enable github")]
pub(crate) struct EnableArguments {
    #[command(flatten)]
    servers: Arguments,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Hosts stay connected, and get an error until the server is enabled again.

Example:
  mcpd disable github")]
pub(crate) struct DisableArguments {
    #[command(flatten)]
    servers: Arguments,
}

#[derive(Debug, clap::Args)]
struct Arguments {
    /// The servers
    #[arg(required = true, value_name = "NAME", add = crate::cli::completions::candidates())]
    names: Vec<String>,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

pub(crate) fn cmd_enable(
    context: &Context,
    arguments: EnableArguments,
) -> Result<Verdict, CliError> {
    set_all(context, arguments.servers, true)
}

pub(crate) fn cmd_disable(
    context: &Context,
    arguments: DisableArguments,
) -> Result<Verdict, CliError> {
    set_all(context, arguments.servers, false)
}

/// A file that is to be written.
struct Edit {
    name: String,
    file: PathBuf,
    old: String,
    /// Nothing where it says so already.
    new: Option<String>,
}

fn set_all(context: &Context, arguments: Arguments, enabled: bool) -> Result<Verdict, CliError> {
    let places = context.places()?;
    let json = arguments.json || context.json;
    let (base, defaults) = daemon_base(&places, &context.environment);
    let servers = Servers::load(&places, &base);
    let mut edits = Vec::new();
    // All are read before any is written: a mistyped name changes no other server.
    for name in &arguments.names {
        let name = ServerName::parse(name)
            .filter(|name| servers.has(name.as_str()))
            .ok_or_else(|| servers.unknown(name))?;
        edits.push(plan(context, &places, &name, enabled, &base, &defaults)?);
    }
    let mut done = Vec::new();
    for edit in edits {
        let deed = match (&edit.new, enabled) {
            (None, _) => Deed::Unchanged,
            (Some(_), true) => Deed::Enabled,
            (Some(_), false) => Deed::Disabled,
        };
        if let Some(new) = &edit.new {
            replace_server(&edit.file, edit.old.as_bytes(), new.as_bytes())?;
        } else if !json {
            let word = if enabled { "enabled" } else { "disabled" };
            context
                .output
                .note(&format!("{}: {word} already\n", edit.name))?;
        }
        done.push(Done {
            server: edit.name,
            done: deed,
            files: vec![edit.file],
        });
    }
    apply(context, &places, done, json)
}

fn plan(
    context: &Context,
    places: &Places,
    name: &ServerName,
    enabled: bool,
    base: &Base,
    defaults: &Draft,
) -> Result<Edit, CliError> {
    let file = places.paths.servers_dir().join(format!("{name}.toml"));
    let old = fs::read_to_string(&file).map_err(|error| {
        CliError::config(format!("cannot read {}", file.display())).because(error)
    })?;
    let refused = |errors: Vec<_>| {
        refuse_errors(context, &errors, "a file with errors is not changed")
            .hint(format!("`mcpd edit {name}` mends it"))
    };
    let spec = check_text(name, &file, &old, base, defaults).map_err(refused)?;
    let new = match spec.enabled == enabled {
        true => None,
        false => set_enabled(&old, enabled),
    };
    if let Some(new) = &new {
        check_text(name, &file, new, base, defaults).map_err(refused)?;
    }
    Ok(Edit {
        name: name.to_string(),
        file,
        old,
        new,
    })
}
