//! What a fake server wrote down of its life (see `tests/fake/record.rs`).

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use super::wait::wait_until;

/// The record of one server, all its generations in one file.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    path: PathBuf,
}

impl Record {
    pub(crate) const fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// Every entry, as word and text.
    pub(crate) fn entries(&self) -> Vec<(String, String)> {
        let bytes = fs::read(&self.path).unwrap_or_default();
        String::from_utf8_lossy(&bytes)
            .split('\n')
            .filter_map(|line| line.split_once(' '))
            .map(|(word, text)| (word.to_owned(), text.to_owned()))
            .collect()
    }

    /// The texts of one kind of entry.
    pub(crate) fn of(&self, word: &str) -> Vec<String> {
        self.entries()
            .into_iter()
            .filter(|(entry, _)| entry == word)
            .map(|(_, text)| text)
            .collect()
    }

    /// How often the server was started.
    pub(crate) fn starts(&self) -> usize {
        self.of("START").len()
    }

    /// The raw lines that the server read.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.of("IN")
    }

    /// The messages that the server read.
    pub(crate) fn messages(&self) -> Vec<Value> {
        self.lines()
            .iter()
            .map(|line| serde_json::from_str(line).unwrap_or_default())
            .collect()
    }

    /// The messages with this method.
    pub(crate) fn with_method(&self, method: &str) -> Vec<Value> {
        self.messages()
            .into_iter()
            .filter(|message| message["method"] == method)
            .collect()
    }

    /// Waits until the server has read a message with this method `count` times.
    pub(crate) fn wait_for(&self, method: &str, count: usize) -> Vec<Value> {
        wait_until(
            &format!("{count} of {method} in {}", self.path.display()),
            || {
                let messages = self.with_method(method);
                (messages.len() >= count).then_some(messages)
            },
        )
    }

    /// Waits until an entry of this kind is there.
    pub(crate) fn wait_for_entry(&self, word: &str) -> Vec<String> {
        wait_until(
            &format!("an entry {word} in {}", self.path.display()),
            || Some(self.of(word)).filter(|texts| !texts.is_empty()),
        )
    }
}
