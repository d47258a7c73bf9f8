//! `mcpd remove NAME…`: servers gone from `servers.d`, each with a dated copy of its files.
//!
//! Decides which files belong to a server: its own, and `NAME.env` unless another server uses that.
//! What a link points to is never touched.

use std::fs;
use std::path::{Path, PathBuf};

use super::Context;
use super::applied::{Deed, Done, apply};
use super::copies::keep_copy;
use super::error::{CliError, Verdict};
use super::places::Places;
use super::server_file::{Servers, daemon_base};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The files are kept in the state folder, and the command says how to bring them back.

Example:
  mcpd remove github")]
pub(crate) struct Arguments {
    /// Servers to remove
    #[arg(required = true, value_name = "NAME", add = crate::cli::completions::candidates())]
    names: Vec<String>,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

pub(crate) fn cmd_remove(context: &Context, arguments: Arguments) -> Result<Verdict, CliError> {
    let places = context.places()?;
    let json = arguments.json || context.json;
    let (base, _) = daemon_base(&places, &context.environment);
    let servers = Servers::load(&places, &base);
    // All or nothing: a mistyped name removes no other server.
    for name in &arguments.names {
        if !servers.has(name) {
            return Err(servers.unknown(name));
        }
    }
    let mut names = arguments.names;
    names.sort();
    names.dedup();
    let mut done = Vec::new();
    for name in &names {
        let removed = files_of(&places, &servers, name, &names);
        let copies = remove(&places, &removed)?;
        if !json {
            context.output.note(&render(name, &removed, &copies))?;
        }
        done.push(Done {
            server: name.clone(),
            done: Deed::Removed,
            files: copies,
        });
    }
    apply(context, &places, done, json)
}

/// The files that go with a server. `going` are all that are removed.
fn files_of(places: &Places, servers: &Servers, name: &str, going: &[String]) -> Vec<PathBuf> {
    let folder = places.paths.servers_dir();
    let env_file = folder.join(format!("{name}.env"));
    let is_used = |path: &Path| {
        let mut others = servers
            .valid()
            .filter(|spec| !going.iter().any(|name| *name == spec.name.as_str()));
        others.any(|spec| spec.launch.env_file.as_deref() == Some(path))
    };
    let with_secrets = env_file.exists() && !is_used(&env_file);
    let file = folder.join(format!("{name}.toml"));
    std::iter::once(file)
        .chain(with_secrets.then_some(env_file))
        .collect()
}

/// Keeps copies of `files`, then removes them.
fn remove(places: &Places, files: &[PathBuf]) -> Result<Vec<PathBuf>, CliError> {
    let folder = places.paths.state_dir().join("removed");
    let mut copies = Vec::new();
    for file in files {
        let failed = |error| {
            CliError::config(format!("cannot keep a copy of {}", file.display()))
                .because(error)
                .hint("nothing was removed")
        };
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let copy = fs::read(file).and_then(|text| keep_copy(&folder, "removed", &name, &text));
        copies.push(copy.map_err(failed)?);
    }
    // The server before its secrets, or it would be read without them.
    for file in files {
        fs::remove_file(file).map_err(|error| {
            CliError::config(format!("cannot remove {}", file.display())).because(error)
        })?;
    }
    Ok(copies)
}

fn render(name: &str, files: &[PathBuf], copies: &[PathBuf]) -> String {
    let mut text = format!("removed {name}; to bring it back:\n");
    // Its secrets first, or it would be read without them.
    for (file, copy) in files.iter().zip(copies).rev() {
        text.push_str(&format!("  cp -p {} {}\n", quoted(copy), quoted(file)));
    }
    text
}

/// A path as a shell takes it.
fn quoted(path: &Path) -> String {
    super::status::quote(&path.to_string_lossy())
}
