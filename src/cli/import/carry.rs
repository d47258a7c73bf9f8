//! What a host starts, as a server of mcpd.
//!
//! It decides what the file of the server holds, which values are secrets and go to a file of their
//! own, and why an entry cannot be carried. It writes nothing.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use super::variables::Translator;
use crate::cli::hosts::{Program, Variables};
use crate::cli::secrets::move_argument_secrets;
use crate::config::arg_secrets::looks_like_secret;
use crate::config::env_file::parse_env_file;
use crate::config::environment::Environment;
use crate::config::expand::is_variable_name;
use crate::config::regular_file::read_regular_file;
use crate::config::render::{NewServer, NewValue, escape_template};

/// A server, and the values that stand in a file beside it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Carried {
    /// Without `env_file`, unless the entry named one that can stay where it is.
    pub(super) server: NewServer,
    pub(super) secrets: BTreeMap<String, String>,
}

/// What surrounds an entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin<'a> {
    pub(super) variables: Variables,
    pub(super) environment: &'a Environment,
    pub(super) home: &'a Path,
    pub(super) uid: u32,
    /// The folder in which the host starts it, if that is known.
    pub(super) project: Option<&'a Path>,
}

/// The server that does what `program` does.
///
/// # Errors
/// Why there is none, as the end of a sentence about the entry.
pub(super) fn carry(program: &Program, origin: &Origin<'_>) -> Result<Carried, String> {
    let mut translator = Translator {
        variables: origin.variables,
        environment: origin.environment,
        project: origin.project,
        looked_up: BTreeMap::new(),
    };
    let command = translator.translate(&program.command)?;
    let mut carried = Carried {
        server: NewServer {
            command: place_command(&command, program, origin)?,
            cwd: working_directory(program, &mut translator, origin)?,
            is_disabled: program.is_disabled,
            ..NewServer::default()
        },
        secrets: BTreeMap::new(),
    };
    for argument in &program.args {
        let argument = translator.translate(argument)?;
        carried.server.args.push(argument);
    }
    for (name, value) in &program.env {
        carry_variable(&mut carried, name, value, &mut translator)?;
    }
    for name in &program.env_names {
        // A host passes on what is there and misses nothing.
        if !carried.server.env.contains_key(name) && !carried.secrets.contains_key(name) {
            translator.pass_on(name);
        }
    }
    add_looked_up(&mut carried, translator.looked_up)?;
    if let Some(env_file) = &program.env_file {
        carry_env_file(&mut carried, env_file, origin)?;
    }
    move_argument_secrets(&mut carried.server, &mut carried.secrets);
    Ok(carried)
}

/// Where a program with a slash is: hosts look from where they start it, mcpd from the file.
fn place_command(command: &str, program: &Program, origin: &Origin<'_>) -> Result<String, String> {
    let is_relative =
        command.contains('/') && !command.starts_with(['/', '~']) && !command.starts_with("${");
    if !is_relative {
        return Ok(command.to_owned());
    }
    let folder = match &program.cwd {
        Some(cwd) if cwd.starts_with('/') => Some(Path::new(cwd)),
        _ => origin.project,
    };
    let folder = folder
        .ok_or_else(|| format!("starts {command}, which depends on where the host was started"))?;
    as_text(&join(folder, Path::new(command)))
}

fn working_directory(
    program: &Program,
    translator: &mut Translator<'_>,
    origin: &Origin<'_>,
) -> Result<Option<String>, String> {
    let Some(cwd) = &program.cwd else {
        let project = origin.project.map(as_text).transpose()?;
        return Ok(project.map(|project| escape_template(&project)));
    };
    let cwd = translator.translate(cwd)?;
    if cwd.starts_with(['/', '~', '$']) {
        return Ok(Some(cwd));
    }
    let project = origin.project.ok_or_else(|| {
        format!("has the `cwd` {cwd}, which depends on where the host was started")
    })?;
    as_text(&join(project, Path::new(&cwd))).map(Some)
}

/// `folder/path` without the dots.
fn join(folder: &Path, path: &Path) -> PathBuf {
    let mut joined = folder.to_owned();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => _ = joined.pop(),
            other => joined.push(other),
        }
    }
    joined
}

fn as_text(path: &Path) -> Result<String, String> {
    let text = path.to_str().map(str::to_owned);
    text.ok_or_else(|| format!("stands in {}, which is not UTF-8", path.display()))
}

fn carry_variable(
    carried: &mut Carried,
    name: &str,
    value: &str,
    translator: &mut Translator<'_>,
) -> Result<(), String> {
    let template = translator.translate(value)?;
    // What `NAME = "${NAME}"` means is said by the file of the secrets.
    if template == format!("${{{name}}}") && translator.looked_up.contains_key(name) {
        return Ok(());
    }
    let is_literal = template == escape_template(value);
    // The lines of an `env_file` have names of this kind only.
    let is_secret = is_literal && is_variable_name(name) && looks_like_secret(name, value);
    if is_secret {
        carried.secrets.insert(name.to_owned(), value.to_owned());
    } else {
        let value = NewValue::Text(template);
        carried.server.env.insert(name.to_owned(), value);
    }
    Ok(())
}

fn add_looked_up(carried: &mut Carried, looked_up: BTreeMap<String, String>) -> Result<(), String> {
    for (name, value) in looked_up {
        let is_other = carried.server.env.contains_key(&name)
            || carried.secrets.get(&name).is_some_and(|old| *old != value);
        if is_other {
            return Err(format!("uses {name} with two values"));
        }
        carried.secrets.insert(name, value);
    }
    Ok(())
}

/// An `envFile` stays where it is if mcpd may use it as it is and nothing is to be added; else what it
/// holds is copied.
fn carry_env_file(carried: &mut Carried, named: &str, origin: &Origin<'_>) -> Result<(), String> {
    let mut translator = Translator {
        variables: origin.variables,
        environment: origin.environment,
        project: origin.project,
        looked_up: BTreeMap::new(),
    };
    let text = translator.translate(named)?;
    let text = text.replace("${HOME}", &origin.home.to_string_lossy());
    let path = match (text.strip_prefix("~/"), origin.project) {
        (Some(rest), _) => origin.home.join(rest),
        (None, _) if text.starts_with('/') => PathBuf::from(&text),
        (None, Some(project)) => join(project, Path::new(&text)),
        (None, None) => {
            return Err(format!(
                "has the `envFile` {named}, which depends on where the host was started"
            ));
        }
    };
    let contents = read_regular_file(&path)
        .map_err(|error| format!("has the `envFile` {}: {error}", path.display()))?;
    let text = String::from_utf8_lossy(&contents.bytes);
    let pairs = parse_env_file(&text).map_err(|errors| {
        let first = errors.first().map(ToString::to_string).unwrap_or_default();
        format!("has the `envFile` {}, {first}", path.display())
    })?;
    let is_private = contents.mode & 0o077 == 0 && contents.uid == origin.uid;
    if is_private && carried.secrets.is_empty() {
        carried.server.env_file = Some(as_text(&path)?);
        return Ok(());
    }
    for (name, value) in pairs {
        if !carried.server.env.contains_key(&name) {
            carried.secrets.entry(name).or_insert(value);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(command: &str, args: &[&str]) -> Program {
        Program {
            command: command.to_owned(),
            args: args.iter().map(|word| (*word).to_owned()).collect(),
            ..Program::default()
        }
    }

    fn carried(program: &Program, project: Option<&str>) -> Result<Carried, String> {
        let environment = Environment::default();
        carry(
            program,
            &Origin {
                variables: Variables::None,
                environment: &environment,
                home: Path::new("/home/ada"),
                uid: 1000,
                project: project.map(Path::new),
            },
        )
    }

    #[test]
    fn secrets_leave_the_file_and_the_arguments() {
        let mut program = program("npx", &["srv", "--api-key", "abc", "--level=2"]);
        for (name, value) in [
            ("GITHUB_TOKEN", "x"),
            ("LEVEL", "info"),
            ("A", "ghp_0123456789abcdef"),
        ] {
            program.env.insert(name.to_owned(), value.to_owned());
        }
        let carried = carried(&program, None).unwrap();
        assert_eq!(
            carried.server.args,
            ["srv", "--api-key", "${API_KEY}", "--level=2"]
        );
        let left: Vec<&String> = carried.server.env.keys().collect();
        assert_eq!(left, ["LEVEL"]);
        let moved: Vec<(&str, &str)> = carried
            .secrets
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        assert_eq!(
            moved,
            [
                ("A", "ghp_0123456789abcdef"),
                ("API_KEY", "abc"),
                ("GITHUB_TOKEN", "x")
            ]
        );
    }

    #[test]
    fn two_secrets_never_share_a_name() {
        let program = program("srv", &["--token", "one", "--token", "two", "TOKEN=one"]);
        let carried = carried(&program, None).unwrap();
        assert_eq!(
            carried.server.args,
            [
                "--token",
                "${TOKEN}",
                "--token",
                "${TOKEN_2}",
                "TOKEN=${TOKEN}"
            ]
        );
    }

    #[test]
    fn relative_programs_count_from_the_project_or_are_refused() {
        let program = program("./bin/../srv", &[]);
        let found = carried(&program, Some("/src/app")).unwrap().server;
        assert_eq!(found.command, "/src/app/srv");
        assert_eq!(found.cwd.as_deref(), Some("/src/app"));
        let why = carried(&program, None).unwrap_err();
        assert!(why.contains("depends on where"), "{why}");
    }
}
