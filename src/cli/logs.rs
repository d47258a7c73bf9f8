//! `mcpd logs NAME`: what a server wrote to standard error.
//!
//! Reads the log files and nothing else, so that it works without a daemon. Decides which lines
//! are the last ones, across the files that rotation leaves behind.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::inotify;

use super::Context;
use super::error::{CliError, Verdict};
use crate::config::spec::ServerName;

/// Files that rotation keeps beside the one that is written: `NAME.log.1` is the newest of them.
const OLD_FILES: usize = 3;

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  mcpd logs calculator\n  mcpd logs -f -n 20 calculator")]
pub(crate) struct Arguments {
    /// Server whose log to show
    #[arg(value_name = "NAME")]
    name: String,
    /// Go on and show what is added
    #[arg(short, long)]
    follow: bool,
    /// Lines to show
    #[arg(short = 'n', long, value_name = "N", default_value_t = 100)]
    lines: usize,
}

pub(crate) fn cmd_logs(context: &Context, arguments: Arguments) -> Result<Verdict, CliError> {
    if context.json {
        return Err(CliError::usage(
            "`mcpd logs` has no JSON to print: a log is text",
        ));
    }
    let name = &arguments.name;
    // The name becomes part of a path.
    if ServerName::parse(name).is_none() {
        return Err(CliError::usage(format!("{name:?} is no name of a server")));
    }
    let folder = context.places()?.paths.logs_dir();
    let log = Log {
        path: folder.join(format!("{name}.log")),
    };
    // Watching begins before reading, so that nothing falls in between.
    let watch = arguments.follow.then(|| watch(&folder)).transpose()?;
    let current = log.open()?;
    if current.is_none() && watch.is_none() && !log.old(1).exists() {
        return Err(CliError::server(format!("there is no log of {name:?}"))
            .hint(format!("it would be {}", log.path.display())));
    }
    let (tail, current) = log.tail(current, arguments.lines)?;
    print_lines(context, &tail)?;
    match watch {
        Some(watch) => follow(context, &log, current, &watch),
        None => Ok(Verdict::Done),
    }
}

#[derive(Debug)]
struct Log {
    path: PathBuf,
}

impl Log {
    /// The file that is being written; none if the server has never said anything.
    fn open(&self) -> Result<Option<File>, CliError> {
        match File::open(&self.path) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(cannot_read(&self.path, error)),
        }
    }

    fn old(&self, number: usize) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        path.push(format!(".{number}"));
        path.into()
    }

    /// The last `count` lines; and the newest file, read to its end. Files are bounded in size by
    /// whoever writes them, so each is read whole.
    fn tail(
        &self,
        current: Option<File>,
        count: usize,
    ) -> Result<(Vec<u8>, Option<File>), CliError> {
        let mut text = Vec::new();
        let mut current = current;
        if let Some(file) = &mut current {
            file.read_to_end(&mut text)
                .map_err(|error| cannot_read(&self.path, error))?;
        }
        for number in 1..=OLD_FILES {
            if last_lines(&text, count).len() < text.len() {
                break;
            }
            match std::fs::read(self.old(number)) {
                Ok(mut older) => {
                    older.append(&mut text);
                    text = older;
                }
                Err(_) => break,
            }
        }
        Ok((last_lines(&text, count).to_vec(), current))
    }
}

/// The last `count` lines of `text`; a last line without newline counts.
fn last_lines(text: &[u8], count: usize) -> &[u8] {
    if count == 0 {
        return &[];
    }
    let body = text.strip_suffix(b"\n").unwrap_or(text);
    let newlines = memchr::memrchr_iter(b'\n', body);
    match newlines.take(count).nth(count - 1) {
        Some(at) => &text[at + 1..],
        None => text,
    }
}

fn print_lines(context: &Context, bytes: &[u8]) -> Result<(), CliError> {
    context
        .output
        .print_foreign(&String::from_utf8_lossy(bytes))
}

/// Prints what is added until the reader leaves, across rotations.
fn follow(
    context: &Context,
    log: &Log,
    mut current: Option<File>,
    watch: &OwnedFd,
) -> Result<Verdict, CliError> {
    let mut events = [0; 4096];
    loop {
        if let Some(file) = &mut current {
            print_rest(context, log, file)?;
        }
        if is_replaced(log, current.as_ref()) {
            // Nothing is added to the old file once it has been moved away, so this is its end.
            if let Some(file) = &mut current {
                print_rest(context, log, file)?;
            }
            current = log.open()?;
            continue;
        }
        match rustix::io::read(watch, &mut events) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => {
                let error = io::Error::from(error);
                return Err(CliError::internal("cannot watch the logs").because(error));
            }
        }
    }
}

fn print_rest(context: &Context, log: &Log, file: &mut File) -> Result<(), CliError> {
    let mut added = Vec::new();
    file.read_to_end(&mut added)
        .map_err(|error| cannot_read(&log.path, error))?;
    if added.is_empty() {
        return Ok(());
    }
    print_lines(context, &added)
}

/// Whether another file stands at the path now.
fn is_replaced(log: &Log, current: Option<&File>) -> bool {
    let Ok(found) = std::fs::metadata(&log.path) else {
        return false;
    };
    let identity = |found: std::fs::Metadata| (found.dev(), found.ino());
    let held = current.and_then(|file| file.metadata().ok()).map(identity);
    held != Some(identity(found))
}

fn watch(folder: &Path) -> Result<OwnedFd, CliError> {
    let failed = |error: rustix::io::Errno| {
        let error = io::Error::from(error);
        CliError::internal(format!("cannot watch {}", folder.display())).because(error)
    };
    let descriptor = inotify::init(inotify::CreateFlags::CLOEXEC).map_err(failed)?;
    let events =
        inotify::WatchFlags::MODIFY | inotify::WatchFlags::CREATE | inotify::WatchFlags::MOVED_TO;
    inotify::add_watch(&descriptor, folder, events).map_err(failed)?;
    Ok(descriptor)
}

fn cannot_read(path: &Path, error: io::Error) -> CliError {
    CliError::internal(format!("cannot read {}", path.display())).because(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, count: usize, expected: &str) {
        let lines = last_lines(text.as_bytes(), count);
        assert_eq!(std::str::from_utf8(lines).unwrap(), expected);
    }

    #[test]
    fn the_last_lines() {
        check("a\nb\nc\n", 2, "b\nc\n");
        check("a\nb\nc", 2, "b\nc");
        check("a\nb\n", 9, "a\nb\n");
        check("\n\n", 1, "\n");
        check("a\n", 0, "");
        check("", 3, "");
    }

    #[test]
    fn lines_are_gathered_across_rotations() {
        let folder = tempfile::tempdir().unwrap();
        let log = Log {
            path: folder.path().join("a.log"),
        };
        std::fs::write(log.old(2), "1\n2\n").unwrap();
        std::fs::write(log.old(1), "3\n4\n").unwrap();
        std::fs::write(&log.path, "5\n").unwrap();
        let (tail, _) = log.tail(log.open().unwrap(), 4).unwrap();
        assert_eq!(tail, b"2\n3\n4\n5\n");
        assert!(!is_replaced(&log, log.open().unwrap().as_ref()));
        let old = log.open().unwrap();
        std::fs::rename(&log.path, log.old(1)).unwrap();
        assert!(!is_replaced(&log, old.as_ref()), "nothing new is there yet");
        std::fs::write(&log.path, "6\n").unwrap();
        assert!(is_replaced(&log, old.as_ref()));
    }
}
