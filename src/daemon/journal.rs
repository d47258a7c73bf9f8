//! The daemon's own log: `tracing` events as lines on standard error, where the journal or a file
//! of the state directory takes them.
//!
//! A thread of its own writes them. Standard error may be a pipe that nobody reads; then lines are
//! dropped, and nothing else is held up by it.

use std::io::{self, Write};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::time::Duration;

use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;

/// Lines that may wait for standard error.
const QUEUE_LINES: usize = 256;
/// How long the last lines may take to be written.
const LAST_WAIT: Duration = Duration::from_millis(200);
/// Names how much is logged: `error`, `warn`, `info` (the default), `debug`, `trace` or `off`.
const LEVEL_VARIABLE: &str = "MCPD_LOG";

/// Ends the log in good order when it goes.
#[derive(Debug)]
pub(crate) struct Journal {
    ended: Receiver<()>,
    lines: SyncSender<Vec<u8>>,
}

/// Starts the log. Only the first call of a process has an effect on what is logged.
pub(crate) fn start() -> io::Result<Journal> {
    let (lines, inbox) = mpsc::sync_channel::<Vec<u8>>(QUEUE_LINES);
    let (end, ended) = mpsc::channel();
    std::thread::Builder::new()
        .name("mcpd-journal".to_owned())
        .spawn(move || {
            for line in inbox {
                if line.is_empty() {
                    break;
                }
                // There is nowhere left to complain.
                drop(io::stderr().write_all(&line));
            }
            // Whoever waited may have given up.
            end.send(()).unwrap_or(());
        })?;
    let level = std::env::var(LEVEL_VARIABLE).ok();
    let level = level.and_then(|level| level.parse().ok());
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(level.unwrap_or(LevelFilter::INFO))
        .with_ansi(false)
        .with_target(false)
        .with_writer(Writer(lines.clone()))
        .finish();
    // A subscriber that stands already stays.
    drop(tracing::subscriber::set_global_default(subscriber));
    Ok(Journal { ended, lines })
}

impl Drop for Journal {
    fn drop(&mut self) {
        // An empty line is the end; if the queue is full nobody reads, and nothing is waited for.
        if self.lines.try_send(Vec::new()).is_ok() {
            self.ended.recv_timeout(LAST_WAIT).unwrap_or(());
        }
    }
}

/// Hands whole events to the thread. `tracing_subscriber` writes each with one call.
#[derive(Clone, Debug)]
struct Writer(SyncSender<Vec<u8>>);

impl Write for Writer {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        if !event.is_empty() {
            // A full queue drops the event: see the top of this file.
            drop(self.0.try_send(event.to_vec()));
        }
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Writer {
    type Writer = Self;
    fn make_writer(&self) -> Self {
        self.clone()
    }
}
