//! Files of servers as commands write them: checked before they are written, the secrets beside them
//! for nobody else.
//!
//! Decides where a file goes and in what order it is written. What is in it is rendered by
//! [`crate::config::render`]; whether it is right is told by the configuration's own parser.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::error::CliError;
use super::places::Places;
use super::whole_file::{ReplaceError, make_folder, replace_whole, write_whole};
use crate::config::diagnostics::{Diagnostic, SourceText};
use crate::config::draft::Draft;
use crate::config::environment::{Base, Environment};
use crate::config::load::{LoadRequest, is_program, load, load_daemon_file};
use crate::config::parse::{Surroundings, parse_server};
use crate::config::render::{NewServer, render_env_file, render_server};
use crate::config::schema::{SCHEMA_LINE, server_schema};
use crate::config::spec::{ServerName, ServerSpec};
use crate::config::suggest::nearest;

/// What stands at the top of the file of the secrets.
const ENV_FILE_HEAD: &str = "# Secrets of this server, for nobody else to read.\n";
/// The name of the schema that editors find by the line at the top of a server's file.
const SCHEMA_FILE: &str = "server.schema.json";

/// The files of one server: the server's, and that of its secrets if it has any.
#[derive(Clone, Debug)]
pub(crate) struct ServerFiles {
    pub(crate) name: ServerName,
    pub(crate) path: PathBuf,
    pub(crate) text: String,
    pub(crate) env_path: PathBuf,
    pub(crate) env_text: Option<String>,
}

/// What is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Existing {
    Nothing,
    /// It says the same.
    Same,
    Other,
}

impl ServerFiles {
    /// The files of `server`, whose secrets are `secrets`; `comments` stand above it.
    pub(crate) fn new(
        places: &Places,
        name: &ServerName,
        mut server: NewServer,
        secrets: &BTreeMap<String, String>,
        comments: &[String],
    ) -> Self {
        let folder = places.paths.servers_dir();
        let env_name = format!("{name}.env");
        if !secrets.is_empty() {
            server.env_file = Some(env_name.clone());
        }
        let mut text = format!("{SCHEMA_LINE}\n");
        for comment in comments {
            text.push_str(&format!("# {comment}\n"));
        }
        text.push_str(&render_server(&server));
        Self {
            name: name.clone(),
            path: folder.join(format!("{name}.toml")),
            text,
            env_path: folder.join(env_name),
            env_text: (!secrets.is_empty())
                .then(|| format!("{ENV_FILE_HEAD}{}", render_env_file(secrets))),
        }
    }

    /// The server of the text.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub(crate) fn check(
        &self,
        base: &Base,
        defaults: &Draft,
    ) -> Result<ServerSpec, Vec<Diagnostic>> {
        check_text(&self.name, &self.path, &self.text, base, defaults)
    }

    /// How what is there compares. Comments do not count.
    pub(crate) fn existing(&self) -> Existing {
        if fs::symlink_metadata(&self.path).is_err() {
            // Secrets without a server are somebody's all the same.
            return match &self.env_text {
                Some(text) if self.env_path.exists() && !holds(&self.env_path, text) => {
                    Existing::Other
                }
                _ => Existing::Nothing,
            };
        }
        let table = |text: &str| text.parse::<toml::Table>().ok();
        let old = fs::read_to_string(&self.path).ok();
        let is_same = old.and_then(|old| table(&old)) == table(&self.text);
        let has_secrets = self
            .env_text
            .as_ref()
            .is_none_or(|text| holds(&self.env_path, text));
        match is_same && has_secrets {
            true => Existing::Same,
            false => Existing::Other,
        }
    }

    /// Writes the files, the secrets first, so that a daemon that looks finds a whole server. With
    /// `force` what is there is replaced.
    pub(crate) fn write(&self, places: &Places, force: bool) -> Result<(), CliError> {
        let folder = places.paths.servers_dir();
        make_folder(&folder).map_err(|error| {
            CliError::config(format!("cannot make {}", folder.display())).because(error)
        })?;
        write_schema(places)?;
        if let Some(text) = &self.env_text {
            write_whole(&self.env_path, text.as_bytes(), 0o600)
                .map_err(|error| unwritable(&self.env_path, error))?;
        }
        let old = fs::read(&self.path).ok().filter(|_| force);
        replace_whole(&self.path, old.as_deref(), self.text.as_bytes()).map_err(|error| match error
        {
            ReplaceError::Changed { .. } if !force => {
                CliError::config(format!("{} is there already", self.path.display()))
                    .hint("--force replaces it")
            }
            error => CliError::config("the server was not written").because(error),
        })
    }
}

/// Puts `new` in the place of a server's file that is still `old`. A link is written through, since
/// people keep their files elsewhere.
pub(crate) fn replace_server(path: &Path, old: &[u8], new: &[u8]) -> Result<(), CliError> {
    replace_whole(path, Some(old), new).map_err(|error| {
        let is_changed = matches!(error, ReplaceError::Changed { .. });
        let failed = CliError::config("the server stays as it was").because(error);
        match fs::read_link(path) {
            _ if is_changed => failed.hint("look at it and try again"),
            Ok(target) => failed.hint(format!(
                "the file is a link to {}: change it where that comes from",
                target.display()
            )),
            Err(_) => failed,
        }
    })
}

fn holds(path: &Path, text: &str) -> bool {
    fs::read(path).is_ok_and(|found| found == text.as_bytes())
}

fn unwritable(path: &Path, error: std::io::Error) -> CliError {
    CliError::config(format!("cannot write {}", path.display())).because(error)
}

/// Puts the schema where the files of servers refer to it.
pub(crate) fn write_schema(places: &Places) -> Result<(), CliError> {
    let path = places.paths.config_dir().join(SCHEMA_FILE);
    let text = server_schema();
    if holds(&path, &text) {
        return Ok(());
    }
    write_whole(&path, text.as_bytes(), 0o644).map_err(|error| unwritable(&path, error))
}

/// The server that `text` would be as the file of `name`.
///
/// # Errors
/// Everything that is wrong with it.
pub(crate) fn check_text(
    name: &ServerName,
    path: &Path,
    text: &str,
    base: &Base,
    defaults: &Draft,
) -> Result<ServerSpec, Vec<Diagnostic>> {
    let home = base.home();
    let is_program = |path: &Path| is_program(path, base.path());
    let surroundings = Surroundings {
        home: &home,
        is_program: &is_program,
    };
    parse_server(name, &SourceText::new(path, text), defaults, surroundings)
}

/// The servers that are configured.
#[derive(Debug)]
pub(crate) struct Servers {
    found: BTreeMap<ServerName, Option<ServerSpec>>,
}

impl Servers {
    pub(crate) fn load(places: &Places, base: &Base) -> Self {
        let loaded = load(LoadRequest {
            config_dir: places.paths.config_dir(),
            base,
            hash_key: None,
            last_daemon_file: None,
        });
        let found = loaded.servers.into_iter();
        Self {
            found: found.map(|(name, found)| (name, found.ok())).collect(),
        }
    }

    /// Whether there is a server of this name, valid or not.
    pub(crate) fn has(&self, name: &str) -> bool {
        ServerName::parse(name).is_some_and(|name| self.found.contains_key(&name))
    }

    /// The server, if it is valid.
    pub(crate) fn spec(&self, name: &str) -> Option<&ServerSpec> {
        self.found.get(&ServerName::parse(name)?)?.as_ref()
    }

    /// The servers that are valid.
    pub(crate) fn valid(&self) -> impl Iterator<Item = &ServerSpec> {
        self.found.values().flatten()
    }

    /// What to say of a name that is none.
    pub(crate) fn unknown(&self, name: &str) -> CliError {
        let error = CliError::usage(format!("no server is named {name:?}"));
        let names: Vec<&str> = self.found.keys().map(ServerName::as_str).collect();
        match (nearest(name, &names), names.is_empty()) {
            (Some(near), _) => error.hint(format!("did you mean {near:?}?")),
            (None, true) => {
                error.hint("there is none yet: `mcpd add` makes one, `mcpd import` takes over those of other hosts")
            }
            (None, false) => error.hint("`mcpd status` lists them all"),
        }
    }
}

/// What the daemon would build on, and what `mcpd.toml` says for all servers, as far as it is known
/// here.
pub(crate) fn daemon_base(places: &Places, environment: &Environment) -> (Base, Draft) {
    let base = Base::new(environment.clone(), places.user.clone(), None);
    // What is wrong with the file is told by `check`.
    let file = load_daemon_file(places.paths.config_dir(), &base);
    let file = file.ok().flatten().unwrap_or_default();
    let base = match &file.config.path {
        Some(path) => Base::new(environment.clone(), places.user.clone(), Some(path.into())),
        None => base,
    };
    (base, file.defaults)
}
