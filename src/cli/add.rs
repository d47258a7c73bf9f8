//! `mcpd add NAME -- COMMAND ARGS…`: a new server, as a file of `servers.d`.
//!
//! Decides what of a command line and of `-e` goes into the file and what beside it: literal secrets
//! go to a file for nobody else. A path is meant from where the command is typed, and written so that
//! it is right from everywhere. Nothing is written unless all of it is valid.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::Context;
use super::applied::{Deed, Done, apply};
use super::check::{check_server, refuse_errors, render_findings};
use super::error::{CliError, Verdict};
use super::hosts::short_path;
use super::output::complain;
use super::places::Places;
use super::secrets::move_argument_secrets;
use super::server_file::{Existing, ServerFiles, daemon_base};
use crate::config::arg_secrets::looks_like_secret;
use crate::config::environment::{Environment, home};
use crate::config::expand::is_variable_name;
use crate::config::render::{NewServer, NewValue, escape_template};
use crate::config::spec::ServerName;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Secrets, in -e or in the arguments, go to servers.d/NAME.env, which nobody else can read. `-e NAME`
alone takes the value from here, so that it is in no history. `${NAME}` in a value or an argument is
filled in when the server starts.

Example:
  mcpd add github -e GITHUB_TOKEN -- npx -y @modelcontextprotocol/server-github
  mcpd add notes --cwd . -- python3 server.py")]
pub(crate) struct Arguments {
    /// What to call it: letters, digits, `.`, `_` and `-`
    #[arg(value_name = "NAME")]
    name: String,
    /// A variable for it; without a value, the one that is set here
    #[arg(short, long, value_name = "NAME[=VALUE]")]
    env: Vec<String>,
    /// Where it starts, instead of the home folder
    #[arg(long, value_name = "DIR")]
    cwd: Option<String>,
    /// What `mcpd status` says of it
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// Replace a server of this name
    #[arg(long)]
    force: bool,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

pub(crate) fn cmd_add(context: &Context, arguments: Arguments) -> Result<Verdict, CliError> {
    let places = context.places()?;
    let json = arguments.json || context.json;
    let name = parse_name(&arguments.name)?;
    let here = std::env::current_dir()
        .map_err(|error| CliError::usage("cannot tell which folder this is").because(error))?;
    let (server, secrets) = new_server(&arguments, &context.environment, &here)?;
    let files = ServerFiles::new(&places, &name, server, &secrets, &[]);
    let (base, defaults) = daemon_base(&places, &context.environment);
    if let Err(errors) = files.check(&base, &defaults) {
        return Err(refuse_errors(context, &errors, "the server was not added"));
    }
    let existing = files.existing();
    if existing == Existing::Other && !arguments.force {
        return Err(is_there(&files));
    }
    if existing != Existing::Same {
        files.write(&places, arguments.force)?;
    }
    let done = Done {
        server: name.to_string(),
        done: match existing {
            Existing::Nothing => Deed::Added,
            Existing::Same => Deed::Unchanged,
            Existing::Other => Deed::Replaced,
        },
        files: written(&files),
    };
    if !json {
        tell(context, &places, &arguments, &done, secrets.len())?;
    }
    apply(context, &places, vec![done], json)
}

/// The name of a new server.
fn parse_name(text: &str) -> Result<ServerName, CliError> {
    let error = || {
        let message = format!("{text:?} cannot be the name of a server");
        CliError::usage(message).hint(
            "it begins with a letter or a digit, and goes on with letters, digits, `.`, `_` and `-`, at most 64",
        )
    };
    ServerName::parse(text).ok_or_else(error)
}

fn is_there(files: &ServerFiles) -> CliError {
    let path = match files.path.exists() {
        true => &files.path,
        false => &files.env_path,
    };
    CliError::usage(format!("{} is there already", path.display())).hint(format!(
        "`mcpd edit {}` changes it, --force replaces it",
        files.name
    ))
}

/// What the file holds, and the secrets that it does not.
fn new_server(
    arguments: &Arguments,
    environment: &Environment,
    here: &Path,
) -> Result<(NewServer, BTreeMap<String, String>), CliError> {
    let (program, words) = arguments.command.split_first().ok_or_else(no_command)?;
    let mut server = NewServer {
        command: from_here(program, here)?,
        args: words.to_vec(),
        cwd: match &arguments.cwd {
            Some(folder) => Some(absolute(folder, here)?),
            None => None,
        },
        description: arguments.description.clone(),
        ..NewServer::default()
    };
    let mut secrets = BTreeMap::new();
    for given in &arguments.env {
        take_variable(&mut server, &mut secrets, given, environment)?;
    }
    move_argument_secrets(&mut server, &mut secrets);
    Ok((server, secrets))
}

fn no_command() -> CliError {
    CliError::usage("there is no command").hint("mcpd add NAME -- COMMAND ARGUMENT…")
}

/// `NAME=VALUE`, or `NAME` for the value that it has here.
fn take_variable(
    server: &mut NewServer,
    secrets: &mut BTreeMap<String, String>,
    given: &str,
    environment: &Environment,
) -> Result<(), CliError> {
    let (name, value, is_secret) = match given.split_once('=') {
        Some((name, value)) => {
            let is_literal = !value.contains("${");
            let is_secret = is_literal && looks_like_secret(name, value);
            (name, value.to_owned(), is_secret)
        }
        None => {
            let value = environment.get(given).and_then(|value| value.to_str());
            let value = value.ok_or_else(|| {
                CliError::usage(format!("the variable {given} is not set here"))
                    .hint(format!("set it, or write -e {given}=VALUE"))
            })?;
            (given, value.to_owned(), true)
        }
    };
    // The lines of an `env_file` have names of this kind only.
    if !is_variable_name(name) {
        // Not what was given: it may be a secret without its name.
        return Err(CliError::usage("-e takes NAME=VALUE or NAME")
            .hint("a name has letters, digits and `_`, and begins with no digit"));
    }
    if is_secret {
        server.env.remove(name);
        secrets.insert(name.to_owned(), value);
    } else {
        secrets.remove(name);
        server.env.insert(name.to_owned(), NewValue::Text(value));
    }
    Ok(())
}

/// A program with a slash is meant from here; the file would count from its own folder.
fn from_here(program: &str, here: &Path) -> Result<String, CliError> {
    match program.contains('/') && !program.starts_with("${") {
        true => absolute(program, here),
        false => Ok(program.to_owned()),
    }
}

/// `path` from the root, without `.` and `..`; `~/` and `${…}` stay for the daemon.
fn absolute(path: &str, here: &Path) -> Result<String, CliError> {
    if path == "~" || path.starts_with(['/', '$']) || path.starts_with("~/") {
        return Ok(path.to_owned());
    }
    let mut joined = here.to_owned();
    for component in Path::new(path).components() {
        match component {
            std::path::Component::CurDir => {}
            std::path::Component::ParentDir => _ = joined.pop(),
            other => joined.push(other),
        }
    }
    let text = joined.to_str().map(escape_template);
    text.ok_or_else(|| CliError::usage(format!("{} is not UTF-8", joined.display())))
}

fn written(files: &ServerFiles) -> Vec<PathBuf> {
    let secrets = files.env_text.is_some().then(|| files.env_path.clone());
    std::iter::once(files.path.clone()).chain(secrets).collect()
}

/// Says what was written, and what is probably not meant.
fn tell(
    context: &Context,
    places: &Places,
    arguments: &Arguments,
    done: &Done,
    secrets: usize,
) -> Result<(), CliError> {
    let home = home(&context.environment, &places.user);
    for (number, file) in done.files.iter().enumerate() {
        let verb = match done.done {
            Deed::Unchanged => "is there already:",
            _ => "wrote",
        };
        let note = match (number, secrets) {
            (0, _) => String::new(),
            (_, 1) => " (1 secret, for nobody else to read)".to_owned(),
            (_, count) => format!(" ({count} secrets, for nobody else to read)"),
        };
        let line = format!("{verb} {}{note}\n", short_path(file, &home));
        context.output.note(&line)?;
    }
    let (base, _) = daemon_base(places, &context.environment);
    if let Some(file) = done.files.first() {
        let warnings = check_server(file, places, &base);
        complain(&render_findings(&warnings, context.output.style));
    }
    if let Some(argument) = a_file_of_here(arguments) {
        complain(&format!(
            "note: {argument} is a file here, but the server starts in the home folder; --cwd . lets it start here\n"
        ));
    }
    Ok(())
}

/// The first argument that names a file of this folder and will not, where the server starts.
fn a_file_of_here(arguments: &Arguments) -> Option<&str> {
    let mut words = arguments.command.iter().skip(1);
    let is_relative = |word: &&String| !word.starts_with(['/', '~', '-', '$']);
    let found = words.find(|word| is_relative(word) && Path::new(word.as_str()).is_file());
    found
        .filter(|_| arguments.cwd.is_none())
        .map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(command: &[&str], env: &[&str]) -> Arguments {
        let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        Arguments {
            name: "x".to_owned(),
            env: owned(env),
            cwd: None,
            description: None,
            force: false,
            json: false,
            command: owned(command),
        }
    }

    fn added(command: &[&str], env: &[&str]) -> (NewServer, BTreeMap<String, String>) {
        let environment: Environment = [("SET", "here")].into_iter().collect();
        new_server(
            &arguments(command, env),
            &environment,
            Path::new("/src/app"),
        )
        .unwrap()
    }

    #[test]
    fn secrets_go_beside_the_file_and_the_rest_into_it() {
        let (server, secrets) = added(
            &["npx", "--api-key", "abc"],
            &["LEVEL=a=b", "GH_TOKEN=ghp_x", "SET", "A_TOKEN=${GH_TOKEN}"],
        );
        assert_eq!(server.args, ["--api-key", "${API_KEY}"]);
        let kept: Vec<&String> = server.env.keys().collect();
        assert_eq!(kept, ["A_TOKEN", "LEVEL"]);
        assert_eq!(server.env["LEVEL"], NewValue::Text("a=b".to_owned()));
        let moved: Vec<(&str, &str)> = secrets
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        assert_eq!(
            moved,
            [("API_KEY", "abc"), ("GH_TOKEN", "ghp_x"), ("SET", "here")]
        );
    }

    #[test]
    fn paths_are_meant_from_here() {
        for (program, expected) in [
            ("./bin/../srv", "/src/app/srv"),
            ("../srv", "/src/srv"),
            ("/bin/srv", "/bin/srv"),
            ("~/srv", "~/srv"),
            ("${HOME}/srv", "${HOME}/srv"),
            ("srv", "srv"),
        ] {
            assert_eq!(added(&[program], &[]).0.command, expected);
        }
    }

    #[test]
    fn a_variable_that_is_none_is_refused_and_not_shown() {
        let environment = Environment::default();
        for given in ["UNSET", "=x", "ghp_0123 456=", "1A=b"] {
            let arguments = arguments(&["x"], &[given]);
            let error = new_server(&arguments, &environment, Path::new("/")).unwrap_err();
            assert_eq!(error.kind.code(), 2);
            assert!(!error.render().contains("ghp_"), "{}", error.render());
        }
    }
}
