//! Which entry of a host became which server, so that `hosts use` knows what `import` knew.
//!
//! A small file in the state folder. Nothing depends on it being there: without it entries are known
//! by their names.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::document::RawEntry;
use crate::cli::error::CliError;
use crate::cli::places::Places;
use crate::cli::whole_file::{make_folder, write_whole};

/// By file and keys of the entry, the server.
#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct Origins {
    entries: BTreeMap<PathBuf, Vec<(Vec<String>, String)>>,
}

/// The folder of what is kept about hosts: private, since backups hold what hosts' files hold.
pub(crate) fn kept_folder(places: &Places) -> PathBuf {
    places.paths.state_dir().join("hosts")
}

fn origins_file(places: &Places) -> PathBuf {
    kept_folder(places).join("imported.json")
}

impl Origins {
    /// What was kept; nothing if that cannot be read.
    pub(crate) fn load(places: &Places) -> Self {
        let text = fs::read(origins_file(places)).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    pub(crate) fn remember(&mut self, file: &Path, path: &[String], server: &str) {
        let entries = self.entries.entry(file.to_owned()).or_default();
        entries.retain(|(known, _)| known != path);
        entries.push((path.to_vec(), server.to_owned()));
    }

    pub(crate) fn server_of(&self, file: &Path, entry: &RawEntry) -> Option<&str> {
        let entries = self.entries.get(file)?;
        let found = entries.iter().find(|(path, _)| *path == entry.path)?;
        Some(&found.1)
    }

    pub(crate) fn save(&self, places: &Places) -> Result<(), CliError> {
        let path = origins_file(places);
        let write = || {
            make_folder(&kept_folder(places))?;
            write_whole(&path, &serde_json::to_vec_pretty(self)?, 0o600)
        };
        write().map_err(|error: std::io::Error| {
            CliError::internal(format!("cannot write {}", path.display())).because(error)
        })
    }
}
