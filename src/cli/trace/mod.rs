//! `mcpd trace NAME`: the messages between hosts and a server as they pass, a line each.
//!
//! The daemon sends lines while this is connected and does nothing for it otherwise. This prints
//! them, keeps them in a file if asked, and ends with Ctrl-C, its reader, or the daemon.

mod render;

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signalfd::SignalFd;

use self::render::Lines;
use super::Context;
use super::error::{CliError, Kind, Verdict};
use super::interrupts::interrupts;
use super::output::complain;
use crate::control::{AskTrace, CONTROL_LINE_LIMIT_BYTES, Request, TraceLine};

/// So much of a body is shown where nothing else is asked for.
const BODY_BYTES: u32 = 400;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
→ goes to the server, ← to the host. An id is shown as the host has it and, behind the colon, as \
the server has it; `mcpd` stands where a message goes no further than mcpd itself. The time of an answer counts \
from the write to the server. Bodies are shown only on request, and the secrets of the server are \
replaced in them. Times are in UTC. Ctrl-C ends it.

Example:
  mcpd trace calculator
  mcpd trace github --host claude-code --bodies
  mcpd trace github --save trace.jsonl")]
pub(crate) struct Arguments {
    /// Server whose messages to show
    #[arg(value_name = "NAME", add = crate::cli::completions::candidates())]
    name: String,
    /// Show those of one host: a part of its name, its pid, or the number of its attachment
    #[arg(long, value_name = "HOST")]
    host: Option<String>,
    /// Write them to this file too, a JSON object a line; what is there is replaced
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Show so many bytes of each message [default: 400]
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "400")]
    bodies: Option<u32>,
    /// Print a JSON object a line instead of text
    #[arg(long)]
    json: bool,
}

pub(crate) fn cmd_trace(context: &Context, arguments: Arguments) -> Result<Verdict, CliError> {
    debug_assert_eq!(BODY_BYTES.to_string(), "400", "the help says so");
    let json = arguments.json || context.json;
    let client = context.client()?;
    // Blocked before anything is shown, so that none is lost.
    let signals = interrupts()?;
    let (stream, surplus) = client.follow(&Request::Trace(AskTrace {
        server: arguments.name.clone(),
        host: arguments.host,
        bodies: arguments.bodies,
    }))?;
    let save = arguments.save.map(open).transpose()?;
    if context.output.is_terminal && !context.output.quiet && !json {
        complain(&format!(
            "watching {}; Ctrl-C ends it\n",
            super::escape::escape(&arguments.name)
        ));
    }
    let viewer = Viewer {
        context,
        stream,
        signals,
        save,
        lines: (!json).then(|| Lines::new(context.output)),
    };
    viewer.run(surplus)
}

/// Readable by its owner only: bodies may be in it.
fn open(path: PathBuf) -> Result<(PathBuf, File), CliError> {
    let opened = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&path);
    match opened {
        Ok(file) => Ok((path, file)),
        Err(error) => {
            let message = format!("cannot write {}", path.display());
            Err(CliError::internal(message).because(error))
        }
    }
}

/// What ended a wait.
enum Woken {
    Daemon,
    User,
    /// Nobody reads the output any more.
    Reader,
}

struct Viewer<'a> {
    context: &'a Context,
    stream: UnixStream,
    signals: SignalFd,
    save: Option<(PathBuf, File)>,
    /// How lines become text; absent where they stay JSON.
    lines: Option<Lines>,
}

impl Viewer<'_> {
    fn run(mut self, mut held: Vec<u8>) -> Result<Verdict, CliError> {
        let mut chunk = vec![0; 64 << 10];
        loop {
            self.show(&mut held)?;
            if held.len() > CONTROL_LINE_LIMIT_BYTES {
                return Err(CliError::internal("a line of the daemon is too long"));
            }
            match self.wait()? {
                Woken::User | Woken::Reader => return Ok(Verdict::Done),
                Woken::Daemon => {}
            }
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(ended()),
                Ok(count) => held.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(ended().because(error)),
            }
        }
    }

    /// Shows all whole lines of `held`, in one write.
    fn show(&mut self, held: &mut Vec<u8>) -> Result<(), CliError> {
        let Some(end) = memchr::memrchr(b'\n', held) else {
            return Ok(());
        };
        let rest = held.split_off(end + 1);
        let whole = std::mem::replace(held, rest);
        if let Some((path, file)) = &mut self.save {
            file.write_all(&whole).map_err(|error| {
                CliError::internal(format!("cannot write {}", path.display())).because(error)
            })?;
        }
        let Some(lines) = &mut self.lines else {
            return self.context.output.print(&String::from_utf8_lossy(&whole));
        };
        let mut text = String::new();
        for line in whole
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
        {
            // What cannot be read is of a newer daemon.
            let line = serde_json::from_slice(line).unwrap_or(TraceLine::Unknown);
            text.push_str(&lines.render(&line));
        }
        self.context.output.print(&text)
    }

    fn wait(&self) -> Result<Woken, CliError> {
        let stdout = io::stdout();
        let mut polled = [
            PollFd::new(self.stream.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.signals.as_fd(), PollFlags::POLLIN),
            // A pipe whose reader has left tells so without being asked for anything (poll(2)).
            PollFd::new(stdout.as_fd(), PollFlags::empty()),
        ];
        loop {
            match poll(&mut polled, PollTimeout::NONE) {
                Ok(_) => break,
                Err(Errno::EINTR) => {}
                Err(error) => return Err(CliError::internal("cannot wait").because(error)),
            }
        }
        Ok(match polled.map(|one| one.any().unwrap_or(false)) {
            [_, true, _] => Woken::User,
            [_, _, true] => Woken::Reader,
            _ => Woken::Daemon,
        })
    }
}

fn ended() -> CliError {
    CliError::new(
        Kind::Unreachable,
        "the daemon has ended, or the server is not its own any more",
    )
    .hint("`mcpd status` tells more")
}
