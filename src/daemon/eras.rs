//! What children were found to speak, kept from one daemon to the next.
//!
//! A file under the state directory, by configuration: command, arguments, folder, and size and
//! time of the program, hashed by the user's key so that no argument can be read off it. Decides
//! nothing of what it is used for; what is lost with it is found out again.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Map, Value};
use tokio::task::JoinHandle;

use crate::config::fingerprint::{Fingerprint, HashKey};
use crate::config::regular_file::read_regular_file;
use crate::protocol::{Era, Lesson};
use crate::supervise::LaunchPlan;

/// Configurations that are remembered; with more, the one that was learnt first is forgotten.
const LIMIT: usize = 1_000;

/// The eras of all configurations that are known.
#[derive(Debug)]
pub(crate) struct Eras {
    path: PathBuf,
    /// In the order in which they were learnt.
    known: Mutex<Map<String, Value>>,
}

impl Eras {
    /// What the file at `path` says. One that cannot be read says nothing.
    pub(crate) fn load(path: PathBuf) -> Self {
        let contents = read_regular_file(&path).map(|file| file.bytes);
        let known = contents
            .ok()
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .unwrap_or_default();
        let known = Mutex::new(known);
        Self { path, known }
    }

    /// What children of this configuration speak.
    pub(crate) fn of(&self, key: &str) -> Option<Era> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let name = known.get(key)?.as_str()?;
        [Era::Legacy, Era::Modern]
            .into_iter()
            .find(|era| era.as_str() == name)
    }

    /// Takes in what a child has taught, and writes it down without holding anybody up; nobody has
    /// to wait for that.
    pub(crate) fn learn(self: &Arc<Self>, key: String, lesson: Lesson) -> JoinHandle<()> {
        {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            known.shift_remove(&key);
            if let Lesson::Era(era) = lesson {
                known.insert(key, Value::from(era.as_str()));
            }
            while known.len() > LIMIT
                && let Some(first) = known.keys().next().cloned()
            {
                known.shift_remove(&first);
            }
        }
        let eras = Arc::clone(self);
        tokio::task::spawn_blocking(move || {
            if let Err(error) = eras.write() {
                tracing::warn!(%error, path = %eras.path.display(), "cannot remember an era");
            }
        })
    }

    /// Writes all that is known at this moment; two that write at once write the same in the end,
    /// because each holds the table while it does.
    fn write(&self) -> io::Result<()> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = Value::Object(known.clone()).to_string();
        text.push('\n');
        let fresh = self
            .path
            .with_extension(format!("{}.new", std::process::id()));
        fs::write(&fresh, text)
            .and_then(|()| fs::rename(&fresh, &self.path))
            .inspect_err(|_| drop(fs::remove_file(&fresh)))
    }
}

/// Under what the era of a launch is kept. `program` is the file that is executed.
pub(crate) fn key(plan: &LaunchPlan, program: &Path, hash_key: &HashKey) -> String {
    let mut text = Vec::new();
    let mut add = |part: &[u8]| {
        text.extend_from_slice(&(part.len() as u64).to_le_bytes());
        text.extend_from_slice(part);
    };
    add(program.as_os_str().as_encoded_bytes());
    add(plan.cwd.as_os_str().as_encoded_bytes());
    for argument in &plan.argv {
        add(argument.as_encoded_bytes());
    }
    // A program that cannot be looked at is not started either.
    if let Ok(found) = fs::metadata(program) {
        add(&found.size().to_le_bytes());
        add(&found.mtime().to_le_bytes());
        add(&found.mtime_nsec().to_le_bytes());
    }
    Fingerprint::of(hash_key, &text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_learnt_is_read_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("eras.json");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("a runtime");
        let eras = Arc::new(Eras::load(path.clone()));
        let lessons = [
            ("a", Lesson::Era(Era::Modern)),
            ("b", Lesson::Era(Era::Legacy)),
            ("c", Lesson::Era(Era::Legacy)),
            ("c", Lesson::Forget),
        ];
        // The end of a runtime drops what has not begun yet, so each is waited for.
        runtime.block_on(async {
            let writes = lessons.map(|(key, lesson)| eras.learn(key.to_owned(), lesson));
            for write in writes {
                write.await.expect("it is written");
            }
        });
        let again = Eras::load(path.clone());
        assert_eq!(again.of("a"), Some(Era::Modern));
        assert_eq!(again.of("b"), Some(Era::Legacy));
        assert_eq!((again.of("c"), again.of("d")), (None, None));
        assert_eq!(fs::read_dir(folder.path()).expect("readable").count(), 1);
    }

    #[test]
    fn a_file_that_makes_no_sense_says_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("eras.json");
        for text in ["", "[]", "{\"a\":1}", "{\"a\":\"later\"}", "\u{0}"] {
            fs::write(&path, text).expect("written");
            assert_eq!(Eras::load(path.clone()).of("a"), None, "{text}");
        }
    }
}
