//! The configuration files of hosts that are on this machine, found and read.
//!
//! Looks at the places of the table and reads what is there; decides nothing about what an entry
//! means, and writes nothing.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::document::{Format, RawEntry, entries};
use super::entry::{Meaning, understand};
use super::kinds::{ANY_HOST, ANY_ROOTS, Base, HOSTS, HostKind, Place, Scope, find_host, host_ids};
use crate::cli::Context;
use crate::cli::error::CliError;
use crate::cli::places::Places;
use crate::config::environment::{Environment, home};
use crate::config::paths::config_home;
use crate::config::regular_file::{ReadError, read_regular_file_up_to};

/// Hosts keep much in their files beside their servers: histories, settings, caches.
const HOST_FILE_LIMIT_BYTES: u64 = 64 << 20;
/// More folders of profiles than anybody has.
const PROFILE_LIMIT: usize = 256;
/// Folders above the working directory in which a project may begin.
const ANCESTOR_LIMIT: usize = 32;

/// A file of a host.
#[derive(Clone, Debug)]
pub(crate) struct HostFile {
    pub(crate) host: &'static HostKind,
    pub(crate) scope: Scope,
    pub(crate) path: PathBuf,
    pub(crate) format: Format,
    pub(crate) roots: &'static [&'static [&'static str]],
    /// The folder that the file is about, if it is about one.
    pub(crate) project: Option<PathBuf>,
}

/// A file that was read.
#[derive(Clone, Debug)]
pub(crate) struct ReadFile {
    pub(crate) file: HostFile,
    pub(crate) text: String,
    pub(crate) entries: Vec<Entry>,
}

/// An entry and what it means.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) raw: RawEntry,
    pub(crate) meaning: Meaning,
    /// The folder that the entry is for, if it is for one.
    pub(crate) project: Option<PathBuf>,
}

impl HostFile {
    /// `Claude Code`, or `Claude Code (project)`.
    pub(crate) fn label(&self) -> String {
        match self.scope {
            Scope::User => self.host.title.to_owned(),
            Scope::File => self.path.display().to_string(),
            scope => format!("{} ({})", self.host.title, scope.as_str()),
        }
    }

    /// Reads the file; nothing if there is none.
    ///
    /// # Errors
    /// Why it cannot be read or understood.
    pub(crate) fn read(&self) -> Result<Option<ReadFile>, String> {
        let contents = match read_regular_file_up_to(&self.path, HOST_FILE_LIMIT_BYTES) {
            Ok(contents) => contents,
            Err(ReadError::Missing) => return Ok(None),
            Err(error) => return Err(error.to_string()),
        };
        let text = String::from_utf8(contents.bytes).map_err(|_| "is not UTF-8".to_owned())?;
        let entries = self.understand(&text)?;
        Ok(Some(ReadFile {
            file: self.clone(),
            text,
            entries,
        }))
    }

    /// The entries of a text as if it were the file's.
    pub(crate) fn understand(&self, text: &str) -> Result<Vec<Entry>, String> {
        let raw = entries(text, self.format, self.roots)?;
        let understood = raw.into_iter().filter_map(|raw| {
            let meaning = understand(&raw.value, &self.host.shape);
            let of_project = self
                .roots
                .iter()
                .any(|root| root.first() == Some(&"projects") && raw.path[0] == "projects");
            let project = match of_project {
                true => raw.path.get(1).map(PathBuf::from),
                false => self.project.clone(),
            };
            (meaning != Meaning::Nothing).then_some(Entry {
                raw,
                meaning,
                project,
            })
        });
        Ok(understood.collect())
    }
}

/// Where to look.
#[derive(Clone, Debug)]
pub(crate) struct Surroundings {
    pub(crate) home: PathBuf,
    config_home: PathBuf,
    environment: Environment,
    working_directory: PathBuf,
}

impl Surroundings {
    pub(crate) fn of(context: &Context, places: &Places) -> Result<Self, CliError> {
        let home = home(&context.environment, &places.user);
        let working_directory = std::env::current_dir().map_err(|error| {
            CliError::internal("cannot tell the working directory").because(error)
        })?;
        Ok(Self {
            config_home: config_home(&context.environment, &home),
            home,
            environment: context.environment.clone(),
            working_directory,
        })
    }

    /// The files of `hosts` that are there, each once, in the order of the table.
    pub(crate) fn files(&self, hosts: &[&'static HostKind]) -> Vec<HostFile> {
        let mut files: Vec<HostFile> = Vec::new();
        let mut seen = Vec::new();
        for host in hosts {
            for place in host.places {
                for (path, project) in self.paths(place) {
                    // Not followed: a link that leads nowhere is worth a word.
                    if fs::symlink_metadata(&path).is_err() {
                        continue;
                    }
                    let real = fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
                    if !seen.contains(&real) {
                        seen.push(real);
                        files.push(host_file(host, place, path, project));
                    }
                }
            }
        }
        files
    }

    /// The files of the host that was named, or the file.
    pub(crate) fn chosen(&self, named: &str) -> Result<Vec<HostFile>, CliError> {
        if let Some(host) = find_host(named).filter(|_| !named.contains('/')) {
            return Ok(self.files(&[host]));
        }
        let file = self.named_file(Path::new(named)).map_err(|error| {
            CliError::usage(format!("{named} is neither a host nor a file"))
                .because(error)
                .hint(format!("hosts are {}", host_ids()))
        })?;
        Ok(vec![file])
    }

    /// A file that was changed before, as that of `host`.
    pub(super) fn recorded_file(
        &self,
        host: &'static HostKind,
        path: &Path,
        format: Format,
    ) -> HostFile {
        let known = self
            .named_file(path)
            .ok()
            .filter(|file| file.host.id == host.id);
        known.unwrap_or_else(|| HostFile {
            host,
            scope: Scope::File,
            path: path.to_owned(),
            format,
            roots: ANY_ROOTS,
            project: None,
        })
    }

    /// The file of the user in which `host` looks for entries, whether it is there or not; the one
    /// that is there, if one is.
    pub(crate) fn main_file(&self, host: &'static HostKind) -> Option<HostFile> {
        let of_user = |place: &&Place| place.scope == Scope::User;
        let all = host.places.iter().filter(of_user).flat_map(|place| {
            let paths = self.paths(place).into_iter();
            paths.map(move |(path, project)| host_file(host, place, path, project))
        });
        let all: Vec<HostFile> = all.collect();
        let there = all.iter().find(|file| file.path.exists());
        there.or(all.first()).cloned()
    }

    /// The file that was named: as that of the host whose place it is, else as anybody's.
    fn named_file(&self, path: &Path) -> io::Result<HostFile> {
        let path = std::path::absolute(path)?;
        let real = fs::canonicalize(&path)?;
        let known: Vec<&'static HostKind> = HOSTS.iter().collect();
        let is_it = |file: &HostFile| fs::canonicalize(&file.path).is_ok_and(|path| path == real);
        if let Some(file) = self.files(&known).into_iter().find(is_it) {
            return Ok(file);
        }
        if let Some(file) = of_another_project(&path) {
            return Ok(file);
        }
        let is_toml = path.extension().is_some_and(|ending| ending == "toml");
        Ok(HostFile {
            host: &ANY_HOST,
            scope: Scope::File,
            project: path.parent().map(Path::to_owned),
            path,
            format: match is_toml {
                true => Format::Toml,
                false => Format::Json,
            },
            roots: ANY_ROOTS,
        })
    }

    /// The paths of a place, and the project of each.
    fn paths(&self, place: &Place) -> Vec<(PathBuf, Option<PathBuf>)> {
        let base = match place.base {
            Base::Home => self.home.clone(),
            Base::ConfigHome => self.config_home.clone(),
            Base::Variable(name, below_home) => {
                let named = self.environment.get_filled(name).map(PathBuf::from);
                named.unwrap_or_else(|| self.home.join(below_home))
            }
            Base::Project => {
                let with_project = |folder: PathBuf| (folder.join(place.path), Some(folder));
                return self
                    .project_folders()
                    .into_iter()
                    .map(with_project)
                    .collect();
            }
        };
        let paths = match place.path.split_once("/*/") {
            Some((above, below)) => each_folder(&base.join(above), below),
            None => vec![base.join(place.path)],
        };
        paths.into_iter().map(|path| (path, None)).collect()
    }

    /// The working directory and what is above it in the same repository, but never the home.
    fn project_folders(&self) -> Vec<PathBuf> {
        let above: Vec<&Path> = self
            .working_directory
            .ancestors()
            .take(ANCESTOR_LIMIT)
            .take_while(|folder| *folder != self.home && folder.parent().is_some())
            .collect();
        let top = above.iter().position(|folder| folder.join(".git").exists());
        let count = top.map_or(1, |top| top + 1).min(above.len());
        above[..count]
            .iter()
            .map(|path| path.to_path_buf())
            .collect()
    }
}

fn host_file(
    host: &'static HostKind,
    place: &Place,
    path: PathBuf,
    project: Option<PathBuf>,
) -> HostFile {
    HostFile {
        host,
        scope: place.scope,
        path,
        format: place.format,
        roots: place.roots,
        project,
    }
}

/// A file at the place of a project, of whichever project.
fn of_another_project(path: &Path) -> Option<HostFile> {
    HOSTS.iter().find_map(|host| {
        let mut places = host.places.iter();
        let place =
            places.find(|place| place.base == Base::Project && path.ends_with(place.path))?;
        let depth = Path::new(place.path).components().count();
        let project = path.ancestors().nth(depth).map(Path::to_owned);
        Some(host_file(host, place, path.to_owned(), project))
    })
}

fn each_folder(above: &Path, below: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(above).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries
        .take(PROFILE_LIMIT)
        .map(|entry| entry.path().join(below))
        .collect();
    paths.sort();
    paths
}
