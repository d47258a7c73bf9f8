//! What a worker remembers of its server from one daemon to the next.
//!
//! Carries between the multiplexer, which decides what is worth telling, and the file in which it
//! is kept. Nothing is written that holds a value which the server was given.

use std::time::Duration;

use crate::config::fingerprint::Fingerprint;
use crate::config::spec::Sharing;
use crate::protocol::json::unescape;
use crate::session::{read_memory, render_memory};

use super::{Event, Worker, part};

/// How long the file is waited for before the worker begins without it.
const READ_WAIT: Duration = Duration::from_secs(1);

/// How far the file is behind.
#[derive(Debug, Default)]
pub(super) struct Saving {
    /// A write is under way.
    is_writing: bool,
    /// Something was learned since it began.
    is_behind: bool,
    /// What was written last.
    last: Option<Fingerprint>,
}

impl Worker {
    /// Looks up what is known of the server, before anything else happens.
    pub(super) async fn recall_first(&mut self) {
        if self.is_remembered()
            && let Some(configuration) = self.core.configuration()
        {
            let reading = self.reading();
            // A disk that does not answer costs the memory, not the start.
            if let Ok(Ok(Some(text))) = tokio::time::timeout(READ_WAIT, reading).await {
                self.recall(configuration, &text);
            }
        }
    }

    /// The configuration of the process is another one: what was known is not known of it.
    pub(super) fn recall_anew(&self, configuration: Fingerprint) {
        if !self.is_remembered() {
            return;
        }
        let (reading, inbox) = (self.reading(), self.handle.inbox.clone());
        part::spawn(self.handle.inbox.clone(), async move {
            if let Ok(Some(text)) = reading.await {
                // A worker that has gone needs no memory.
                drop(inbox.send(Event::Recalled(configuration, text)).await);
            }
        });
    }

    /// What an instance offers may follow from its directory or its host: it is remembered only where
    /// there is one for all.
    fn is_remembered(&self) -> bool {
        self.core.setting().sharing() == Sharing::Shared
    }

    fn reading(&self) -> tokio::task::JoinHandle<Option<Vec<u8>>> {
        let (catalog, instance) = (self.shared.catalog.clone(), self.instance.clone());
        part::spawn_blocking(move || catalog.read(&instance))
    }

    pub(super) fn recall(&mut self, configuration: Fingerprint, text: &[u8]) {
        if let Some(memory) = read_memory(text, &configuration.to_string(), &self.instance)
            && self.core.recall(configuration, memory)
        {
            self.mark_changed();
        }
    }

    /// One write at a time: what is learned meanwhile goes into the next.
    pub(super) fn save(&mut self, configuration: Fingerprint) {
        if !self.is_remembered() {
            return;
        }
        if self.saving.is_writing {
            self.saving.is_behind = true;
            return;
        }
        let name = configuration.to_string();
        let mut text = render_memory(&name, self.core.mux.memory());
        if self.holds_secret(&text) {
            text = render_memory(&name, None);
        }
        let written = Some(Fingerprint::of(&self.shared.hash_key, &text));
        if self.saving.last == written {
            return;
        }
        self.saving.last = written;
        self.saving.is_writing = true;
        let (catalog, instance) = (self.shared.catalog.clone(), self.instance.clone());
        let inbox = self.handle.inbox.clone();
        part::spawn(self.handle.inbox.clone(), async move {
            let server = instance.clone();
            let writing = part::spawn_blocking(move || catalog.write(&instance, &text));
            if let Ok(Err(error)) = writing.await {
                tracing::warn!(server = &*server, %error, "what it offers is not remembered");
            }
            // A worker that has gone has no more to save.
            drop(inbox.send(Event::Saved).await);
        });
    }

    pub(super) fn saved(&mut self) {
        self.saving.is_writing = false;
        if std::mem::take(&mut self.saving.is_behind) {
            self.core.keep_again();
        }
    }

    /// Whether a value that the server was given stands in `text`, in plain or escaped.
    fn holds_secret(&self, text: &[u8]) -> bool {
        let Some(prepared) = &self.past.prepared else {
            return false;
        };
        let plain = unescape(text);
        let redactor = &prepared.redactor;
        redactor.bytes(text) != text || redactor.bytes(&plain) != *plain
    }
}
