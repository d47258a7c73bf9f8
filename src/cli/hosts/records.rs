//! What was changed in a host's file, so that it can be undone: the entries as they were and as they
//! were left, and a dated copy of the whole file.
//!
//! All of it is in the state folder, private: a copy holds what the host's file holds, and beside that
//! file it might be shared or taken for one.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::document::Format;
use super::files::HostFile;
use super::origins::kept_folder;
use crate::cli::copies;
use crate::cli::error::CliError;
use crate::cli::places::Places;
use crate::cli::whole_file::{make_folder, write_whole};

/// What was changed in one file and is not undone yet.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub(super) struct Record {
    pub(super) host: String,
    pub(super) file: PathBuf,
    pub(super) format: Format,
    pub(super) entries: Vec<Change>,
    /// The file before the first of the changes, if nobody else changed it between them.
    pub(super) original: Option<Original>,
    /// A hash of the file after the last of them.
    written: String,
}

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) struct Change {
    pub(super) path: Vec<String>,
    /// The text of the entry; nothing if there was none.
    pub(super) before: Option<String>,
    pub(super) after: String,
}

/// A file as it was.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Original {
    Missing,
    Copy(PathBuf),
}

impl Record {
    pub(super) fn new(file: &HostFile) -> Self {
        Self {
            host: file.host.id.to_owned(),
            file: file.path.clone(),
            format: file.format,
            entries: Vec::new(),
            original: None,
            written: String::new(),
        }
    }

    /// What is kept of a file, if anything was changed in it.
    pub(super) fn load(places: &Places, file: &Path) -> Result<Option<Self>, CliError> {
        let path = record_path(places, file);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(unreadable(&path, error)),
        };
        let record = serde_json::from_slice(&text);
        record.map(Some).map_err(|error| unreadable(&path, error))
    }

    /// The records of one host.
    pub(super) fn all(places: &Places, host: &str) -> Result<Vec<Self>, CliError> {
        let folder = records_folder(places);
        let mut records = Vec::new();
        let mut paths: Vec<PathBuf> = fs::read_dir(&folder)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|ending| ending == "json"))
            .collect();
        paths.sort();
        for path in paths {
            let text = fs::read(&path).map_err(|error| unreadable(&path, error))?;
            let record: Self =
                serde_json::from_slice(&text).map_err(|error| unreadable(&path, error))?;
            if record.host == host {
                records.push(record);
            }
        }
        Ok(records)
    }

    /// Whether the file still is what was written last.
    pub(super) fn is_untouched(&self, text: &str) -> bool {
        self.written == hash(text)
    }

    /// Notes changes that lead from `old` (kept as `copy`) to `new`.
    pub(super) fn add(
        &mut self,
        changes: Vec<Change>,
        old: Option<&str>,
        copy: Original,
        new: &str,
    ) {
        let is_first = self.entries.is_empty();
        if is_first {
            self.original = Some(copy);
        } else if !old.is_some_and(|old| self.is_untouched(old)) {
            self.original = None;
        }
        for change in changes {
            match self.entries.iter_mut().find(|one| one.path == change.path) {
                // What it was before the first change is what it goes back to.
                Some(known) => known.after = change.after,
                None => self.entries.push(change),
            }
        }
        self.written = hash(new);
    }

    /// Notes that entries were undone, which led to `new`.
    pub(super) fn take(&mut self, paths: &[Vec<String>], new: &str) {
        self.entries.retain(|one| !paths.contains(&one.path));
        // The copy has the entries that are undone as they were, but not the way back to it.
        self.original = None;
        self.written = hash(new);
    }

    pub(super) fn save(&self, places: &Places) -> Result<(), CliError> {
        let path = record_path(places, &self.file);
        let write = || {
            if self.entries.is_empty() {
                return match fs::remove_file(&path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                    _ => Ok(()),
                };
            }
            make_folder(&records_folder(places))?;
            write_whole(&path, &serde_json::to_vec_pretty(self)?, 0o600)
        };
        write().map_err(|error| {
            CliError::internal(format!("cannot write {}", path.display())).because(error)
        })
    }
}

fn unreadable(path: &Path, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> CliError {
    CliError::internal(format!("cannot read {}", path.display()))
        .because(error)
        .hint("it tells what was changed in a host's file; the dated copies lie beside its folder")
}

fn records_folder(places: &Places) -> PathBuf {
    kept_folder(places).join("changes")
}

fn record_path(places: &Places, file: &Path) -> PathBuf {
    let name = &hash(&file.to_string_lossy())[..16];
    records_folder(places).join(format!("{name}.json"))
}

fn hash(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex().to_string()
}

/// Keeps a dated copy of a file.
pub(super) fn keep_copy(places: &Places, file: &HostFile, text: &str) -> Result<PathBuf, CliError> {
    let folder = kept_folder(places).join("copies");
    let name = file.path.file_name().unwrap_or_default().to_string_lossy();
    let of_this_file = &hash(&file.path.to_string_lossy())[..8];
    let head = format!("{}-{of_this_file}", file.host.id);
    copies::keep_copy(&folder, &head, &name, text.as_bytes()).map_err(|error| {
        CliError::internal(format!("cannot keep a copy in {}", folder.display()))
            .because(error)
            .hint("nothing was changed")
    })
}
