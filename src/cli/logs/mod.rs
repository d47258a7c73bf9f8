//! `mcpd logs [NAME…]`: what servers wrote to standard error, and what became of them.
//!
//! Reads the log files and nothing else, so that it works without a daemon. `file` is one server's
//! log, `select` says which lines are shown; this file follows what is added.

mod file;
mod select;

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::inotify;

use self::file::Log;
use self::select::{Filter, merge};
use super::Context;
use super::clock;
use super::error::{CliError, Verdict};
use crate::config::spec::ServerName;

/// Lines that are shown where nothing else is asked for.
const LINES: usize = 100;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Times are in UTC. A pattern without capitals matches both cases.

Example:
  mcpd logs calculator
  mcpd logs -f -n 20 calculator
  mcpd logs --since 10m --grep 'error|refused'")]
pub(crate) struct Arguments {
    /// Servers whose logs to show; without one, all
    #[arg(value_name = "NAME", add = crate::cli::completions::candidates())]
    names: Vec<String>,
    /// Go on and show what is added
    #[arg(short, long)]
    follow: bool,
    /// Lines to show [default: 100, all with --since]
    #[arg(short = 'n', long, value_name = "N")]
    lines: Option<usize>,
    /// Show what is not older: 10m, 1h30m, or a time such as 2026-11-30T21:00
    #[arg(short, long, value_name = "TIME")]
    since: Option<String>,
    /// Show lines that match this regular expression
    #[arg(short, long, value_name = "PATTERN")]
    grep: Option<String>,
}

pub(crate) fn cmd_logs(context: &Context, arguments: Arguments) -> Result<Verdict, CliError> {
    if context.json {
        return Err(CliError::usage(
            "`mcpd logs` has no JSON to print: a log is text",
        ));
    }
    let filter = filter(&arguments)?;
    let count = match (arguments.lines, &arguments.since) {
        (None, Some(_)) => None,
        (lines, _) => Some(lines.unwrap_or(LINES)),
    };
    let folder = context.places()?.paths.logs_dir();
    // Watching begins before reading, so that nothing falls in between.
    let watch = arguments.follow.then(|| watch(&folder)).transpose()?;
    let mut logs = match arguments.names.is_empty() {
        true => Logs::all(&folder),
        false => Logs::named(&folder, &arguments.names, watch.is_some())?,
    };
    let text = logs.read(&filter, count)?;
    context.output.print_foreign(&text)?;
    match watch {
        Some(watch) => follow(context, &mut logs, &filter, &watch),
        None => Ok(Verdict::Done),
    }
}

fn filter(arguments: &Arguments) -> Result<Filter, CliError> {
    let since = arguments.since.as_deref();
    let pattern = arguments.grep.as_deref();
    Ok(Filter {
        since: since
            .map(|since| Filter::parse_since(since, clock::wall()))
            .transpose()?,
        pattern: pattern.map(Filter::parse_pattern).transpose()?,
    })
}

/// The logs that are shown.
struct Logs<'a> {
    folder: &'a Path,
    logs: Vec<Log>,
    /// Whether logs that appear later belong to them.
    is_all: bool,
}

impl<'a> Logs<'a> {
    fn all(folder: &'a Path) -> Self {
        let mut logs = Self {
            folder,
            logs: Vec::new(),
            is_all: true,
        };
        logs.find_new();
        logs
    }

    /// The logs of `names`; where nobody waits for them, each must be there.
    fn named(folder: &'a Path, names: &[String], may_come: bool) -> Result<Self, CliError> {
        let mut logs = Vec::with_capacity(names.len());
        for name in names {
            // The name becomes part of a path.
            if ServerName::parse(name).is_none() {
                return Err(CliError::usage(format!("{name:?} is no name of a server")));
            }
            let log = Log::of(folder, name);
            if !may_come && !log.exists() {
                return Err(CliError::server(format!("there is no log of {name:?}"))
                    .hint(format!("it would be {}", log.path().display())));
            }
            logs.push(log);
        }
        Ok(Self {
            folder,
            logs,
            is_all: false,
        })
    }

    /// Takes in the logs that were made since.
    fn find_new(&mut self) {
        let Ok(entries) = std::fs::read_dir(self.folder) else {
            // Without a folder there are no logs yet.
            return;
        };
        let mut names: Vec<String> = entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter_map(|name| Some(name.strip_suffix(".log")?.to_owned()))
            .filter(|name| ServerName::parse(name).is_some())
            .collect();
        names.sort();
        for name in names {
            let log = Log::of(self.folder, &name);
            if !self.logs.iter().any(|known| known.path() == log.path()) {
                self.logs.push(log);
            }
        }
    }

    fn read(&mut self, filter: &Filter, count: Option<usize>) -> Result<String, CliError> {
        let mut texts = Vec::with_capacity(self.logs.len());
        for log in &mut self.logs {
            let text = log.read(|text| filter.reaches(text, count))?;
            texts.push(String::from_utf8_lossy(&text).into_owned());
        }
        Ok(merge(&texts, filter, count))
    }

    fn added(&mut self, filter: &Filter) -> Result<String, CliError> {
        if self.is_all {
            self.find_new();
        }
        let mut texts = Vec::with_capacity(self.logs.len());
        for log in &mut self.logs {
            texts.push(String::from_utf8_lossy(&log.added()?).into_owned());
        }
        Ok(merge(&texts, filter, None))
    }
}

/// Prints what is added until the reader leaves.
fn follow(
    context: &Context,
    logs: &mut Logs<'_>,
    filter: &Filter,
    watch: &OwnedFd,
) -> Result<Verdict, CliError> {
    let mut events = [0; 4096];
    loop {
        let added = logs.added(filter)?;
        if !added.is_empty() {
            context.output.print_foreign(&added)?;
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
