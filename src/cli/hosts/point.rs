//! `mcpd hosts use`: a host's entries made to start `mcpd connect` instead of their servers.
//!
//! Decides which entries are meant: those that became a server by `import`, those that start the same
//! as the server of their name, and those that were named. It changes what an entry starts and leaves
//! all else of the file as it is.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use super::document::{self, RawEntry};
use super::entry::{Connect, connect_entry, connect_members};
use super::files::{Entry, HostFile, ReadFile};
use super::own_command::OwnCommand;
use super::records::{Change, Original, Record, keep_copy};
use super::running::running_pid;
use super::{HostKind, Meaning, Origins, Program, Surroundings};
use crate::cli::Context;
use crate::cli::error::{CliError, Kind, Verdict};
use crate::cli::places::Places;
use crate::cli::server_file::{Servers, daemon_base};
use crate::cli::server_name::server_name;
use crate::cli::whole_file::replace_whole;
use crate::config::load::is_program;
use crate::config::spec::ServerSpec;

use super::told::{Line, Told, print};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
A dated copy of the file is kept in the state folder; `mcpd hosts undo HOST` takes it all back.

Example:
  mcpd hosts use claude-code
  mcpd hosts use cursor github")]
pub(super) struct UseArguments {
    /// The host, as `mcpd hosts` shows it, or a configuration file
    #[arg(value_name = "HOST|FILE")]
    host: String,
    /// Entries or servers; one that the host does not have is added [default: all that mcpd has]
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Show what would be changed, and change nothing
    #[arg(short = 'n', long)]
    dry_run: bool,
}

/// What the files of one host are to become.
struct Pointing<'a> {
    context: &'a Context,
    places: &'a Places,
    servers: &'a Servers,
    origins: Origins,
    names: &'a [String],
    dry_run: bool,
    told: Told,
    /// The names that were met.
    met: BTreeSet<String>,
}

pub(super) fn cmd_use(context: &Context, arguments: UseArguments) -> Result<Verdict, CliError> {
    let places = context.places()?;
    let surroundings = Surroundings::of(context, &places)?;
    let files = surroundings.chosen(&arguments.host)?;
    let (base, _) = daemon_base(&places, &context.environment);
    let servers = Servers::load(&places, &base);
    let mut pointing = Pointing {
        context,
        places: &places,
        servers: &servers,
        origins: Origins::load(&places),
        names: &arguments.names,
        dry_run: arguments.dry_run,
        told: Told::default(),
        met: BTreeSet::new(),
    };
    for file in &files {
        match file.read() {
            Ok(Some(read)) => pointing.point_file(&read, &surroundings)?,
            Ok(None) => {}
            Err(why) => pointing.told.push(file, Line::Unreadable(why)),
        }
    }
    pointing.add_missing(&arguments.host, &surroundings, &files)?;
    if pointing.told.is_empty() {
        let message = format!("{} has no servers of its own", arguments.host);
        return Err(CliError::new(Kind::Usage, message)
            .hint("name a server of mcpd to add it: `mcpd hosts use HOST NAME`"));
    }
    print(
        context,
        &surroundings.home,
        &pointing.told,
        arguments.dry_run,
    )
}

impl Pointing<'_> {
    fn point_file(&mut self, read: &ReadFile, around: &Surroundings) -> Result<(), CliError> {
        let mut chosen = Vec::new();
        for entry in &read.entries {
            match self.choose(&read.file, entry) {
                Choice::Use(server) => chosen.push((entry.raw.clone(), server)),
                Choice::Leave(why) => {
                    let name = entry.raw.name().to_owned();
                    self.told.push(&read.file, Line::Left { name, why });
                }
                Choice::Already(server) => {
                    let name = entry.raw.name().to_owned();
                    self.told.push(&read.file, Line::Already { name, server });
                }
                Choice::Pass => {}
            }
        }
        if chosen.is_empty() {
            return Ok(());
        }
        if self.dry_run {
            for (raw, server) in chosen {
                let name = raw.name().to_owned();
                self.told.push(&read.file, Line::Used { name, server });
            }
            return Ok(());
        }
        self.change(read, &chosen, around)
    }

    fn choose(&mut self, file: &HostFile, entry: &Entry) -> Choice {
        let name = entry.raw.name();
        let known = self.origins.server_of(&file.path, &entry.raw);
        let known = known.filter(|server| self.servers.has(server));
        let server = known.map_or_else(|| server_name(name), str::to_owned);
        let mut asked = self.names.iter();
        let is_named = asked.any(|asked| asked == name || *asked == server);
        if !self.names.is_empty() && !is_named {
            return Choice::Pass;
        }
        let asked = self
            .names
            .iter()
            .filter(|asked| *asked == name || **asked == server);
        self.met.extend(asked.cloned());
        let program = match &entry.meaning {
            Meaning::Ours(server) => return Choice::Already(server.clone()),
            Meaning::Other(why) => return Choice::Leave(why.clone()),
            Meaning::Nothing => return Choice::Pass,
            Meaning::Program(program) => program,
        };
        if !self.servers.has(&server) {
            return Choice::Leave(
                "is no server of mcpd yet: `mcpd import` takes it over".to_owned(),
            );
        }
        let is_same = || match self.servers.spec(&server) {
            Some(spec) => starts_the_same(program, spec),
            None => false,
        };
        match known.is_some() || is_named || is_same() {
            true => Choice::Use(server),
            false => Choice::Leave(format!(
                "does not start what the server {server} starts; name it to use that all the same"
            )),
        }
    }

    /// Changes entries of a file that is there.
    fn change(
        &mut self,
        read: &ReadFile,
        chosen: &[(RawEntry, String)],
        around: &Surroundings,
    ) -> Result<(), CliError> {
        let file = &read.file;
        let copy = keep_copy(self.places, file, &read.text)?;
        let running = file
            .host
            .rewrites_its_file
            .then(|| running_pid(file.host, &around.home))
            .flatten();
        let own = running.and_then(|_| OwnCommand::of(file.host.id, &self.context.environment));
        let text = match own {
            Some(own)
                if chosen
                    .iter()
                    .all(|(raw, _)| OwnCommand::can_change(&raw.path, &Value::Null)) =>
            {
                self.told.note(format!(
                    "{} runs, so its own command was used",
                    file.host.title
                ));
                self.change_by(&own, read, chosen)?
            }
            _ => {
                let text = self.changed_text(read, chosen)?;
                replace_whole(&file.path, Some(read.text.as_bytes()), text.as_bytes())
                    .map_err(|error| not_written(file, error))?;
                if let Some(pid) = running {
                    self.told.warn(format!(
                        "{} runs (pid {pid}) and may write {} again: end it, and look with `mcpd hosts`",
                        file.host.title,
                        file.path.display()
                    ));
                }
                text
            }
        };
        let changes = chosen.iter().filter_map(|(raw, _)| {
            Some(Change {
                path: raw.path.clone(),
                before: document::entry_text(&read.text, file.format, &raw.path),
                after: document::entry_text(&text, file.format, &raw.path)?,
            })
        });
        let mut record =
            Record::load(self.places, &file.path)?.unwrap_or_else(|| Record::new(file));
        let original = Original::Copy(copy.clone());
        record.add(changes.collect(), Some(&read.text), original, &text);
        record.save(self.places)?;
        for (raw, server) in chosen {
            let name = raw.name().to_owned();
            let server = server.clone();
            self.told.push(file, Line::Used { name, server });
        }
        self.told.copy(copy);
        Ok(())
    }

    fn connect(&self, server: &str) -> Result<Connect, CliError> {
        Ok(Connect {
            program: own_program(self.context)?,
            flags: flags(self.context, self.places),
            server: server.to_owned(),
        })
    }

    /// The text with the entries changed, and nothing else; that is looked at before it is believed.
    fn changed_text(
        &self,
        read: &ReadFile,
        chosen: &[(RawEntry, String)],
    ) -> Result<String, CliError> {
        let file = &read.file;
        let mut text = read.text.clone();
        for (raw, server) in chosen {
            let members = connect_members(&self.connect(server)?, file.host);
            text = document::set_members(&text, file.format, &raw.path, &members)
                .ok_or_else(|| not_understood(file, raw.name()))?;
        }
        let new = file
            .understand(&text)
            .map_err(|why| not_understood(file, &why))?;
        let is_right = |old: &Entry| {
            let now = new.iter().find(|entry| entry.raw.path == old.raw.path);
            let chosen = chosen.iter().find(|(raw, _)| raw.path == old.raw.path);
            match (now, chosen) {
                (Some(now), Some((_, server))) => now.meaning == Meaning::Ours(server.clone()),
                (Some(now), None) => now.raw == old.raw,
                (None, _) => false,
            }
        };
        match new.len() == read.entries.len() && read.entries.iter().all(is_right) {
            true => Ok(text),
            false => Err(not_understood(file, "an entry")),
        }
    }

    fn change_by(
        &mut self,
        own: &OwnCommand,
        read: &ReadFile,
        chosen: &[(RawEntry, String)],
    ) -> Result<String, CliError> {
        let file = &read.file;
        for (raw, server) in chosen {
            let mut value = raw.value.clone();
            for (name, member) in connect_members(&self.connect(server)?, file.host) {
                match (value.as_object_mut(), member) {
                    (Some(table), Some(member)) => _ = table.insert(name.to_owned(), member),
                    (Some(table), None) => _ = table.shift_remove(name),
                    (None, _) => {}
                }
            }
            own.set(&raw.path, Some(&value)).map_err(|why| {
                CliError::server(format!("{} could not be told", file.host.title))
                    .because(why)
                    .hint("end it and run this again; the dated copy has what was there")
            })?;
        }
        let now = file.read().ok().flatten();
        let is_ours = |read: &ReadFile, (raw, server): &(RawEntry, String)| {
            let entry = read.entries.iter().find(|entry| entry.raw.path == raw.path);
            entry.is_some_and(|entry| entry.meaning == Meaning::Ours(server.clone()))
        };
        match now {
            Some(now) if chosen.iter().all(|one| is_ours(&now, one)) => Ok(now.text),
            _ => Err(CliError::server(format!(
                "the own command of {} did not write what it was asked to",
                file.host.title
            ))
            .hint("end it and run this again; the dated copy has what was there")),
        }
    }

    /// Adds the servers that were named and that the host does not have.
    fn add_missing(
        &mut self,
        named: &str,
        around: &Surroundings,
        files: &[HostFile],
    ) -> Result<(), CliError> {
        let missing: Vec<&String> = self
            .names
            .iter()
            .filter(|name| !self.met.contains(*name))
            .collect();
        for name in missing {
            if !self.servers.has(name) {
                return Err(self.servers.unknown(name));
            }
            let file = match super::find_host(named) {
                Some(host) => around.main_file(host),
                None => files.first().cloned(),
            };
            let Some(file) = file else { continue };
            if self.dry_run {
                let name = name.clone();
                self.told.push(&file, Line::Added { name });
            } else {
                self.add(&file, name)?;
            }
        }
        Ok(())
    }

    fn add(&mut self, file: &HostFile, name: &str) -> Result<(), CliError> {
        let read = file.read().map_err(|why| not_understood(file, &why))?;
        let old = read.as_ref().map(|read| read.text.as_str());
        let mut path = insert_root(file, old.unwrap_or_default());
        path.push(name.to_owned());
        let entry = connect_entry(&self.connect(name)?, file.host);
        let text = document::insert_entry(old.unwrap_or_default(), file.format, &path, &entry)
            .ok_or_else(|| not_understood(file, name))?;
        let original = match old {
            Some(old) => {
                let copy = keep_copy(self.places, file, old)?;
                self.told.copy(copy.clone());
                Original::Copy(copy)
            }
            None => Original::Missing,
        };
        replace_whole(&file.path, old.map(str::as_bytes), text.as_bytes())
            .map_err(|error| not_written(file, error))?;
        let change = Change {
            after: document::entry_text(&text, file.format, &path).unwrap_or_default(),
            path,
            before: None,
        };
        let mut record =
            Record::load(self.places, &file.path)?.unwrap_or_else(|| Record::new(file));
        record.add(vec![change], old, original, &text);
        record.save(self.places)?;
        let name = name.to_owned();
        self.told.push(file, Line::Added { name });
        Ok(())
    }
}

/// What becomes of an entry.
enum Choice {
    Use(String),
    Already(String),
    Leave(String),
    /// Nobody asked for it.
    Pass,
}

/// Whether an entry and a server have the same command line, as far as that can be read off.
fn starts_the_same(program: &Program, spec: &ServerSpec) -> bool {
    let launch = &spec.launch;
    let args = launch.args.iter().map(|argument| argument.text());
    program.command == launch.command.text() && args.eq(program.args.iter().map(String::as_str))
}

/// Where a new entry goes: the deepest table of entries that is there, else the first of the format.
fn insert_root(file: &HostFile, text: &str) -> Vec<String> {
    let plain = file.roots.iter().filter(|root| !root.contains(&"*"));
    let is_there = |root: &&&[&str]| {
        let (last, above) = root.split_last().unwrap_or((&"", &[]));
        let above: Vec<&[&str]> = vec![above];
        let found = document::entries(text, file.format, &above).unwrap_or_default();
        found
            .iter()
            .any(|entry| entry.name() == *last && entry.value.is_object())
    };
    let there = plain.clone().filter(is_there).max_by_key(|root| root.len());
    let root = there.or_else(|| plain.clone().next());
    let keys = root.into_iter().flat_map(|root| root.iter());
    keys.map(|key| (*key).to_owned()).collect()
}

/// `mcpd` if that is what a host would find, else where this program is.
fn own_program(context: &Context) -> Result<String, CliError> {
    let failed = |error| CliError::internal("cannot tell where this program is").because(error);
    let own = std::env::current_exe().map_err(failed)?;
    let real = std::fs::canonicalize(&own).unwrap_or_else(|_| own.clone());
    let search_path = context.environment.get("PATH").unwrap_or_default();
    let first = std::env::split_paths(search_path).find_map(|folder| {
        let found = folder.join("mcpd");
        is_program(&found, search_path).then_some(found)
    });
    if first.is_some_and(|first| std::fs::canonicalize(first).is_ok_and(|first| first == real)) {
        return Ok("mcpd".to_owned());
    }
    own.into_os_string().into_string().map_err(|own| {
        CliError::server(format!(
            "this program is at {}, which no host's file can say",
            Path::new(&own).display()
        ))
    })
}

/// The flags that lead to these places from anywhere.
fn flags(context: &Context, places: &Places) -> Vec<String> {
    let mut flags = Vec::new();
    let mut flag = |name: &str, path: &Path| {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        flags.extend([name.to_owned(), path.to_string_lossy().into_owned()]);
    };
    if !places.paths.is_default() {
        flag("--config", places.paths.config_dir());
    }
    if let Some(socket) = &context.flags.socket {
        flag("--socket", socket);
    }
    if let Some(state) = &context.flags.state {
        flag("--state", state);
    }
    flags
}

fn not_understood(file: &HostFile, what: &str) -> CliError {
    let path = file.path.display();
    CliError::config(format!(
        "{path} was left as it is: {what} cannot be changed in it"
    ))
    .hint("change it by hand: command \"mcpd\", args [\"connect\", \"NAME\"]")
}

pub(super) fn not_written(
    file: &HostFile,
    error: crate::cli::whole_file::ReplaceError,
) -> CliError {
    CliError::server(format!(
        "the configuration of {} was left as it is",
        file.host.title
    ))
    .because(error)
    .hint("run this again")
}

/// A host that was named.
pub(super) fn host_named(name: &str) -> Option<&'static HostKind> {
    super::find_host(name).filter(|_| !name.contains('/'))
}
