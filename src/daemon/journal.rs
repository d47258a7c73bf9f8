//! The daemon's own log: `tracing` events as lines on standard error, where the journal or a file
//! of the state directory takes them.
//!
//! The journal has its own time, and takes the level as a prefix of each line (sd-daemon(3)).
//!
//! A thread of its own writes them. Standard error may be a pipe that nobody reads; then lines are
//! dropped, and nothing else is held up by it.

use std::io::{self, Write};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::time::Duration;

use tracing::{Level, Metadata};
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
    let to_journal = is_stderr_the_journal();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(level.unwrap_or(LevelFilter::INFO))
        .with_ansi(false)
        .with_target(false)
        .with_level(!to_journal)
        .with_writer(Writers {
            lines: lines.clone(),
            to_journal,
        });
    // A subscriber that stands already stays.
    drop(match to_journal {
        true => tracing::subscriber::set_global_default(subscriber.without_time().finish()),
        false => tracing::subscriber::set_global_default(subscriber.finish()),
    });
    Ok(Journal { ended, lines })
}

/// Whether standard error leads to the journal, whoever else inherited the variable that says so.
pub fn is_stderr_the_journal() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else {
        return false;
    };
    nix::sys::stat::fstat(io::stderr())
        .is_ok_and(|found| is_stream(&stream, found.st_dev, found.st_ino))
}

/// Whether `stream`, a value of `JOURNAL_STREAM` (systemd.exec(5)), names this file.
fn is_stream(stream: &str, device: u64, inode: u64) -> bool {
    stream
        .split_once(':')
        .is_some_and(|(named_device, named_inode)| {
            named_device.parse() == Ok(device) && named_inode.parse() == Ok(inode)
        })
}

/// The priority of syslog(3) for a level, as a line of the journal begins with it.
fn prefix(level: Level) -> &'static str {
    match level {
        Level::ERROR => "<3>",
        Level::WARN => "<4>",
        Level::INFO => "<6>",
        Level::DEBUG | Level::TRACE => "<7>",
    }
}

/// `event` with `prefix` before each of its lines.
fn prefixed(event: &[u8], prefix: &str) -> Vec<u8> {
    let mut text = Vec::with_capacity(event.len() + prefix.len());
    for line in event.split_inclusive(|byte| *byte == b'\n') {
        text.extend_from_slice(prefix.as_bytes());
        text.extend_from_slice(line);
    }
    text
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
#[derive(Debug)]
struct Writer<'a> {
    lines: &'a SyncSender<Vec<u8>>,
    prefix: &'static str,
}

impl Write for Writer<'_> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        if !event.is_empty() {
            // A full queue drops the event: see the top of this file.
            drop(self.lines.try_send(prefixed(event, self.prefix)));
        }
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Makes a writer for each event.
#[derive(Debug)]
struct Writers {
    lines: SyncSender<Vec<u8>>,
    to_journal: bool,
}

impl<'a> MakeWriter<'a> for Writers {
    type Writer = Writer<'a>;

    fn make_writer(&'a self) -> Writer<'a> {
        Writer {
            lines: &self.lines,
            prefix: "",
        }
    }

    fn make_writer_for(&'a self, event: &Metadata<'_>) -> Writer<'a> {
        Writer {
            lines: &self.lines,
            prefix: match self.to_journal {
                true => prefix(*event.level()),
                false => "",
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_journal_is_known_by_device_and_inode() {
        assert!(is_stream("8:1234", 8, 1234));
        for other in ["8:1235", "9:1234", "8", "", "8:1234:5", "a:b"] {
            assert!(!is_stream(other, 8, 1234), "{other}");
        }
    }

    #[test]
    fn every_line_of_an_event_has_its_priority() {
        assert_eq!(
            prefixed(b"one\ntwo\n", prefix(Level::WARN)),
            b"<4>one\n<4>two\n"
        );
        assert_eq!(prefixed(b"one\n", ""), b"one\n");
    }
}
