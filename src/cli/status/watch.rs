//! `mcpd status --watch`: the table again every second, with rates.
//!
//! On a terminal it is drawn in place, on the alternate screen, until `q` or Ctrl-C; the terminal is
//! left as it was found. Elsewhere one table follows the other, with `--json` one line a snapshot.
//! Decides what a rate is; asks the daemon and nothing else, and outlives it.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::termios::{
    LocalFlags, SetArg, SpecialCharacterIndices, Termios, tcgetattr, tcsetattr,
};

use super::table::{Rates, render_table};
use super::{judge, unknown_server};
use crate::cli::Context;
use crate::cli::client::{Client, ConnectError, QUICK};
use crate::cli::clock::Deadline;
use crate::cli::error::{CliError, Verdict};
use crate::cli::output::terminal_width;
use crate::cli::places::Places;
use crate::control::{Request, StatusSnapshot, Targets};

const INTERVAL: Duration = Duration::from_secs(1);
/// Alternate screen, cursor hidden; and back.
const ENTER: &str = "\u{1b}[?1049h\u{1b}[?25l";
const LEAVE: &str = "\u{1b}[?25h\u{1b}[?1049l";
/// To the upper left corner; to the end of a line; to the end of the screen.
const HOME: &str = "\u{1b}[H";
const CLEAR_LINE: &str = "\u{1b}[K";
const CLEAR_REST: &str = "\u{1b}[J";

/// Shows what is going on until somebody has seen enough.
pub(super) fn watch(
    context: &Context,
    places: &Places,
    name: Option<&str>,
    json: bool,
) -> Result<Verdict, CliError> {
    let screen = (context.output.is_terminal && !json)
        .then(Screen::enter)
        .transpose()?;
    let signals = Signals::block(screen.is_some())?;
    let mut source = Source::default();
    let mut before: Option<StatusSnapshot> = None;
    loop {
        let next = Deadline::after(INTERVAL);
        let look = source.look(places, name)?;
        if let Some(now) = &look
            && name.is_some()
            && now.servers.is_empty()
        {
            return Err(unknown_server(name.unwrap_or_default()));
        }
        if json {
            if let Some(now) = &look {
                let line = serde_json::to_string(now)
                    .map_err(|error| CliError::internal("cannot write JSON").because(error))?;
                context.output.print(&format!("{line}\n"))?;
            }
        } else {
            let width = screen.as_ref().map(|_| terminal_width());
            let text = match &look {
                Some(now) => {
                    let rates = rates(before.as_ref(), now);
                    render_table(now, context.output.style, width, Some(&rates))
                }
                None => format!("no daemon is running at {}\n", places.socket.display()),
            };
            match &screen {
                Some(screen) => screen.draw(&text)?,
                None => context.output.print(&format!("{text}\n"))?,
            }
        }
        if look.is_some() {
            before = look;
        }
        if signals.wait(next, screen.is_some())? == Wake::Enough {
            break;
        }
    }
    drop(screen);
    Ok(before.as_ref().map_or(Verdict::NoDaemon, judge))
}

/// What happened a second between two looks; of servers that ran at both.
fn rates(before: Option<&StatusSnapshot>, now: &StatusSnapshot) -> Rates {
    let mut rates = BTreeMap::new();
    let Some(before) = before.filter(|before| before.daemon.pid == now.daemon.pid) else {
        return Rates(rates);
    };
    let past_ms = now.daemon.uptime_ms.saturating_sub(before.daemon.uptime_ms);
    if past_ms == 0 {
        return Rates(rates);
    }
    for server in &now.servers {
        let Some(old) = before.servers.iter().find(|old| old.name == server.name) else {
            continue;
        };
        let requests = server.requests.total.saturating_sub(old.requests.total);
        let cpu_usec = (old.generation == server.generation)
            .then(|| {
                let (old, new) = old.resources.cpu_usec.zip(server.resources.cpu_usec)?;
                Some(new.saturating_sub(old))
            })
            .flatten();
        let rate = super::table::Rate {
            requests_per_minute: requests * 60_000 / past_ms,
            cpu_usec_per_ms: cpu_usec.map(|usec| usec / past_ms),
        };
        rates.insert(server.name.clone(), rate);
    }
    Rates(rates)
}

/// The daemon, asked on one connection while there is one.
#[derive(Default)]
struct Source {
    client: Option<Client>,
}

impl Source {
    /// The state now; `None` while there is no daemon.
    fn look(
        &mut self,
        places: &Places,
        name: Option<&str>,
    ) -> Result<Option<StatusSnapshot>, CliError> {
        let names: Vec<String> = name.iter().map(ToString::to_string).collect();
        let request = Request::Status(Targets { names });
        if let Some(client) = &mut self.client {
            if let Ok(snapshot) = client.ask(&request, QUICK) {
                return Ok(Some(snapshot));
            }
            // It has ended, perhaps to be followed by another.
            self.client = None;
        }
        match Client::connect(places) {
            Ok(client) => {
                let client = self.client.insert(client);
                Ok(client.ask(&request, QUICK).ok())
            }
            Err(ConnectError::NoDaemon(_)) => Ok(None),
            Err(ConnectError::Other(error)) => Err(error),
        }
    }
}

/// Why a wait ended.
#[derive(Debug, PartialEq, Eq)]
enum Wake {
    Look,
    Enough,
}

/// The signals that end or redraw, taken out of the way of the default action while the screen is
/// ours.
struct Signals(Option<SignalFd>);

impl Signals {
    fn block(on_screen: bool) -> Result<Self, CliError> {
        if !on_screen {
            return Ok(Self(None));
        }
        let failed = |error| CliError::internal("cannot wait for signals").because(error);
        let mut set = SigSet::empty();
        for signal in [
            Signal::SIGINT,
            Signal::SIGTERM,
            Signal::SIGHUP,
            Signal::SIGWINCH,
        ] {
            set.add(signal);
        }
        set.thread_block().map_err(failed)?;
        let descriptor = SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
            .map_err(failed)?;
        Ok(Self(Some(descriptor)))
    }

    /// Waits for the next look, for a signal or for a key.
    fn wait(&self, next: Deadline, with_keys: bool) -> Result<Wake, CliError> {
        let failed = |error| CliError::internal("cannot wait").because(error);
        loop {
            let left = next.left();
            if left.is_zero() {
                return Ok(Wake::Look);
            }
            let stdin = io::stdin();
            let mut polled = Vec::with_capacity(2);
            if let Some(signals) = &self.0 {
                polled.push(PollFd::new(signals.as_fd(), PollFlags::POLLIN));
            }
            if with_keys {
                polled.push(PollFd::new(stdin.as_fd(), PollFlags::POLLIN));
            }
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            match poll(&mut polled, timeout) {
                Ok(0) => return Ok(Wake::Look),
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(error) => return Err(failed(error)),
            }
            if let Some(signals) = &self.0
                && let Some(signal) = signals.read_signal().map_err(failed)?
            {
                let resized = signal.ssi_signo == Signal::SIGWINCH as u32;
                return Ok(if resized { Wake::Look } else { Wake::Enough });
            }
            let has_key = with_keys
                && polled
                    .last()
                    .and_then(PollFd::revents)
                    .is_some_and(|events| !events.is_empty());
            if has_key && wants_to_leave() {
                return Ok(Wake::Enough);
            }
        }
    }
}

/// Reads what was typed. `q` and the end of input are enough.
fn wants_to_leave() -> bool {
    let mut keys = [0; 64];
    match nix::unistd::read(io::stdin().as_fd(), &mut keys) {
        Ok(0) | Err(_) => true,
        Ok(count) => keys[..count].iter().any(|key| matches!(key, b'q' | b'Q')),
    }
}

/// The terminal while it is ours.
struct Screen {
    /// How standard input was, if it is a terminal.
    before: Option<Termios>,
}

impl Screen {
    fn enter() -> Result<Self, CliError> {
        let before = tcgetattr(io::stdin().as_fd()).ok();
        if let Some(before) = &before {
            let mut keys = before.clone();
            keys.local_flags
                .remove(LocalFlags::ICANON | LocalFlags::ECHO);
            keys.control_chars[SpecialCharacterIndices::VMIN as usize] = 1;
            keys.control_chars[SpecialCharacterIndices::VTIME as usize] = 0;
            // Without it `q` needs an Enter; nothing worse.
            tcsetattr(io::stdin().as_fd(), SetArg::TCSANOW, &keys).unwrap_or(());
        }
        let screen = Self { before };
        write(ENTER)?;
        Ok(screen)
    }

    /// Draws over what is there, so that nothing flickers.
    fn draw(&self, text: &str) -> Result<(), CliError> {
        let lines = text.replace('\n', &format!("{CLEAR_LINE}\r\n"));
        write(&format!("{HOME}{lines}{CLEAR_REST}"))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that is gone needs no tidying.
        drop(write(LEAVE));
        if let Some(before) = &self.before {
            tcsetattr(io::stdin().as_fd(), SetArg::TCSANOW, before).unwrap_or(());
        }
    }
}

fn write(text: &str) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::ServerStatus;

    fn snapshot(uptime_ms: u64, generation: u64, total: u64, cpu_usec: u64) -> StatusSnapshot {
        let mut server = ServerStatus {
            name: "a".to_owned(),
            generation,
            ..ServerStatus::default()
        };
        server.requests.total = total;
        server.resources.cpu_usec = Some(cpu_usec);
        let mut snapshot = StatusSnapshot::default();
        snapshot.daemon.pid = 1;
        snapshot.daemon.uptime_ms = uptime_ms;
        snapshot.servers.push(server);
        snapshot
    }

    fn check(before: &StatusSnapshot, now: &StatusSnapshot, expected: Option<(u64, Option<u64>)>) {
        let Rates(rates) = rates(Some(before), now);
        let found = rates
            .get("a")
            .map(|rate| (rate.requests_per_minute, rate.cpu_usec_per_ms));
        assert_eq!(found, expected);
    }

    #[test]
    fn rates_are_of_what_happened_between_two_looks() {
        let before = snapshot(1_000, 3, 10, 5_000);
        check(
            &before,
            &snapshot(3_000, 3, 30, 105_000),
            Some((600, Some(50))),
        );
        // Another run has used nothing of what the last one had.
        check(&before, &snapshot(3_000, 4, 30, 500), Some((600, None)));
        check(&before, &snapshot(1_000, 3, 10, 5_000), None);
        let mut other = snapshot(3_000, 3, 30, 9_000);
        other.daemon.pid = 2;
        check(&before, &other, None);
    }
}
