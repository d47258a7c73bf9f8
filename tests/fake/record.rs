//! What the fake server writes down, so that a test can say what upstream saw.
//!
//! One line an entry, a word and a text: `START pid=…`, `IN {…}`, `EOF`, `SIGNAL SIGTERM`, `SAID …`.
//! Every entry is one write in append mode, so that processes of one tree may share a file.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::{Arc, Mutex};

/// Longest piece of a line that is kept; the length is always there.
const KEPT_BYTES: usize = 256 * 1024;

/// The open record, or none where `--record` was not given.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    file: Option<Arc<Mutex<File>>>,
}

impl Record {
    pub(crate) fn open(path: Option<&str>) -> Self {
        let file = path.map(|path| {
            let file = OpenOptions::new()
                .create(true)
                .append(true)
                .open(path)
                .expect("the record opens");
            Arc::new(Mutex::new(file))
        });
        Self { file }
    }

    /// Adds one entry.
    pub(crate) fn add(&self, word: &str, text: &[u8]) {
        let Some(file) = &self.file else { return };
        let mut line = word.as_bytes().to_vec();
        line.push(b' ');
        line.extend_from_slice(&text[..text.len().min(KEPT_BYTES)]);
        if text.len() > KEPT_BYTES {
            line.extend_from_slice(format!(" … {} bytes", text.len()).as_bytes());
        }
        line.push(b'\n');
        // A record that cannot be written shows in the test that reads it.
        file.lock().expect("no writer panics").write_all(&line).ok();
    }
}
