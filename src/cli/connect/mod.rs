//! `mcpd connect NAME`: a host's standard input and output, connected to a server.
//!
//! The host started a command and speaks MCP to it; this relays to the daemon, which is started if
//! none runs. Standard output belongs to the protocol alone. Decides which daemon to talk to and
//! when to try again; what the host is told is decided in [`session`].

mod held;
mod memory;
mod queue;
mod relay;
mod session;

use std::path::PathBuf;
use std::time::Duration;

use self::relay::{End, Relay};
use self::session::{Reason, Session};
use super::Context;
use super::client::{Client, DaemonProcess, McpStream};
use super::clock::Deadline;
use super::error::{CliError, Verdict};
use super::output::complain;
use super::places::Places;
use super::start_daemon::{STARTERS, Wish, attach_or_start, shut_down};
use crate::control::Attach;
use crate::journal::Ended;

/// How often a lost daemon is started again while it dies before it has said anything.
const ATTEMPTS: u32 = 3;
/// How long a daemon that is ending may take to leave.
const END_WAIT: Duration = Duration::from_secs(25);
/// How long a daemon that could not be started is not tried again.
const START_PAUSE: Duration = Duration::from_secs(5);

#[derive(Debug, clap::Args)]
#[command(after_help = "\
A host is configured to run this command; it is of little use in a terminal.

Example:
  mcpd connect calculator
  claude mcp add calculator -- mcpd connect calculator")]
pub(crate) struct Arguments {
    /// Server to connect to
    #[arg(value_name = "NAME", add = crate::cli::completions::candidates())]
    name: String,
    /// Working directory of the host [default: the current one]
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
}

impl Arguments {
    /// With nothing but a name.
    pub(crate) fn for_server(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            directory: None,
        }
    }
}

pub(crate) fn cmd_connect(context: &Context, arguments: Arguments) -> Result<Verdict, CliError> {
    let mut door = Door::new(context, arguments);
    let session = Session::new(&door.attach.server);
    let mut relay = Relay::new(session)?;
    let mut trouble = door.open(&mut relay).err();
    loop {
        match relay.run()? {
            End::Host => break,
            End::DaemonLost => trouble = door.reopen(&mut relay).err(),
            End::HostSpeaks => trouble = door.knock(&mut relay).err(),
        }
    }
    match trouble {
        // It has been said already, to the host and on standard error.
        Some(error) => Err(error.silent()),
        None => Ok(Verdict::Done),
    }
}

/// The way to the daemon.
#[derive(Debug)]
struct Door<'a> {
    context: &'a Context,
    /// Or why there are no places at all.
    places: Result<Places, Reason>,
    attach: Attach,
    /// The daemon that serves, or the one that served last.
    process: Option<DaemonProcess>,
    /// Daemons lost in a row that had said nothing.
    lost: u32,
    /// Until when no daemon is started.
    pause: Option<Deadline>,
    /// Whether the last daemon ended because it was told to: then none is started.
    is_ended: bool,
}

impl<'a> Door<'a> {
    fn new(context: &'a Context, arguments: Arguments) -> Self {
        let directory = arguments.directory.or_else(|| std::env::current_dir().ok());
        let directory = directory.and_then(|path| std::path::absolute(path).ok());
        Self {
            context,
            places: context.places().map_err(|error| Reason {
                message: error.chain(),
                hints: error.hints().to_vec(),
            }),
            attach: Attach {
                server: arguments.name,
                client: "connect".to_owned(),
                directory: directory.map(|path| path.to_string_lossy().into_owned()),
                journal: None,
            },
            process: None,
            lost: 0,
            pause: None,
            is_ended: false,
        }
    }

    /// Connects, starting a daemon if that is wanted, or leaves the session without one.
    fn open(&mut self, relay: &mut Relay) -> Result<(), CliError> {
        let (context, attach) = (self.context, &self.attach);
        let opened = self.stream(|places| {
            let by = "mcpd connect";
            attach_or_start(context, places, by, Wish::UnlessShutDown, |client| {
                relay.attach(client, attach)
            })
        });
        if opened.is_err() {
            self.pause = Some(Deadline::after(START_PAUSE));
        }
        self.settle(relay, opened)
    }

    /// After a daemon has gone. One that ended on purpose is waited for; a crash is made good.
    fn reopen(&mut self, relay: &mut Relay) -> Result<(), CliError> {
        if !relay.may_attach() {
            return Ok(());
        }
        self.lost = if relay.daemon_has_spoken() {
            1
        } else {
            self.lost + 1
        };
        // It may be there still and have closed this one connection.
        if let Ok(stream) = self.attach_only(relay) {
            return self.settle(relay, Ok(stream));
        }
        let ended = match relay.ended() {
            Some(Ended::Ending) => Some(self.told_to_end()),
            // A daemon that keeps a journal says so when it ends in order.
            Some(_) => None,
            None => self.has_ended_in_order(),
        };
        if let Some(error) = ended {
            self.is_ended = true;
            self.leave(relay, &error, true);
            return Err(error);
        }
        // systemd itself counts the starts of a unit, and says why it makes no more of them.
        let places = self.places.as_ref();
        let is_service = places.is_ok_and(|places| places.unit_file.is_some());
        if self.lost > ATTEMPTS && !is_service {
            let error = CliError::unreachable("the daemon ends again and again")
                .hint("its log is daemon.log in the folder of the logs");
            self.pause = Some(Deadline::after(START_PAUSE));
            return self.settle(relay, Err(error));
        }
        self.open(relay)
    }

    /// While there is none: is there one by now?
    fn knock(&mut self, relay: &mut Relay) -> Result<(), CliError> {
        if !relay.may_attach() {
            return Ok(());
        }
        let waiting = self.pause.is_some_and(|pause| !pause.left().is_zero());
        if waiting || self.is_ended {
            let opened = self.attach_only(relay);
            return match opened {
                // The reason that was given before still holds.
                Err(error) => Err(error),
                opened => self.settle(relay, opened),
            };
        }
        self.open(relay)
    }

    /// Whether the last daemon went because it was told to, as far as can be known once its
    /// process has ended. Then nothing is started: the next daemon is waited for.
    fn has_ended_in_order(&self) -> Option<CliError> {
        let places = self.places.as_ref().ok()?;
        if places.shutdown_marker().exists() {
            return Some(shut_down());
        }
        let process = self.process.as_ref()?;
        process.wait_for_end(END_WAIT);
        if places.shutdown_marker().exists() {
            return Some(shut_down());
        }
        let noted = std::fs::read_to_string(places.ended_marker()).ok()?;
        (noted == process.pid.to_string()).then(|| self.told_to_end())
    }

    /// What is said while a daemon that ended on purpose has no successor.
    fn told_to_end(&self) -> CliError {
        let places = self.places.as_ref();
        if places.is_ok_and(|places| places.shutdown_marker().exists()) {
            return shut_down();
        }
        CliError::unreachable("the daemon was told to end, and none has been started since")
            .hint(STARTERS)
    }

    fn stream(
        &self,
        connect: impl FnOnce(&Places) -> Result<McpStream, CliError>,
    ) -> Result<McpStream, CliError> {
        match &self.places {
            Ok(places) => connect(places),
            Err(Reason { message, hints }) => {
                let error = CliError::config(message.clone());
                Err(hints.iter().fold(error, CliError::hint))
            }
        }
    }

    /// An attachment to a daemon that runs.
    fn attach_only(&self, relay: &mut Relay) -> Result<McpStream, CliError> {
        self.stream(|places| relay.attach(Client::connect(places)?, &self.attach))
    }

    fn settle(
        &mut self,
        relay: &mut Relay,
        opened: Result<McpStream, CliError>,
    ) -> Result<(), CliError> {
        match opened {
            Ok(mut stream) => {
                self.process = stream.process.take();
                self.is_ended = false;
                relay.connect(stream)
            }
            Err(error) => {
                complain(&error.render());
                self.leave(relay, &error, false);
                Err(error)
            }
        }
    }

    /// Leaves the host without a daemon for now.
    fn leave(&self, relay: &mut Relay, error: &CliError, is_expected: bool) {
        let places = self.places.as_ref().ok();
        let watched = places.map(|places| places.paths.runtime_dir());
        let reason = Reason {
            message: format!(
                "mcpd cannot serve {:?}: {}",
                self.attach.server,
                error.chain()
            ),
            hints: error.hints().to_vec(),
        };
        relay.disconnect(reason, is_expected, watched);
    }
}
