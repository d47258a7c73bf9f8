//! The three ways to the same echo server, each ready to be used.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use tempfile::TempDir;

use crate::host::{Host, now};

/// The program under measurement.
const MCPD: &str = env!("CARGO_BIN_EXE_mcpd");
/// Connections that are timed to their first `tools/list`.
const CONNECTS: usize = 10;
/// How long a part may take until it can be used.
const READY: Duration = Duration::from_secs(20);

/// How the host reaches the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Way {
    Direct,
    Relay,
    Mcpd,
}

impl Way {
    pub(crate) const ALL: [Self; 3] = [Self::Direct, Self::Relay, Self::Mcpd];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Relay => "do-nothing relay",
            Self::Mcpd => "mcpd",
        }
    }
}

/// A relay and a daemon of mcpd that serve one echo server each, until this is dropped.
pub(crate) struct Setup {
    folder: TempDir,
    program: PathBuf,
    relay: Child,
    daemon: Child,
}

impl Setup {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder for sockets");
        let program = std::env::current_exe().expect("our own file");
        let servers = folder.path().join("config/servers.d");
        std::fs::create_dir_all(&servers).expect("a folder for the configuration");
        // A JSON string is a basic string of TOML too.
        let command = serde_json::Value::from(program.display().to_string());
        let text = format!("command = {command}\nargs = [\"echo\"]\n");
        std::fs::write(servers.join("echo.toml"), text).expect("a server file");
        let relay = Command::new(&program)
            .arg("relay")
            .arg(folder.path().join("relay.sock"))
            .spawn();
        let daemon = mcpd(folder.path())
            .arg("daemon")
            .env("MCPD_LOG", "off")
            .spawn();
        let setup = Self {
            relay: relay.expect("the relay runs"),
            daemon: daemon.expect("the daemon runs"),
            folder,
            program,
        };
        setup.wait_for("relay.sock");
        setup.wait_for("mcpd.sock");
        for way in Way::ALL {
            setup.time_to_first_list(way);
        }
        setup
    }

    /// The command that a host starts.
    pub(crate) fn command(&self, way: Way) -> Command {
        let mut command = Command::new(&self.program);
        match way {
            Way::Direct => {
                command.arg("echo");
            }
            Way::Relay => {
                command
                    .arg("shim")
                    .arg(self.folder.path().join("relay.sock"));
            }
            Way::Mcpd => {
                command = mcpd(self.folder.path());
                command.args(["connect", "echo"]);
            }
        }
        command
    }

    /// Microseconds from the start of the command to its first list of tools; the median of some.
    pub(crate) fn time_to_first_list(&self, way: Way) -> f64 {
        let mut took: Vec<f64> = (0..CONNECTS)
            .map(|_| {
                let begun = now();
                let mut host = Host::start(self.command(way));
                host.initialize();
                host.list();
                let took = begun.elapsed();
                host.end();
                took.as_secs_f64() * 1e6
            })
            .collect();
        took.sort_by(f64::total_cmp);
        took[took.len() / 2]
    }

    fn wait_for(&self, socket: &str) {
        let path = self.folder.path().join(socket);
        let begun = now();
        while UnixStream::connect(&path).is_err() {
            assert!(begun.elapsed() < READY, "{} is not served", path.display());
            std::thread::yield_now();
        }
    }
}

impl Drop for Setup {
    fn drop(&mut self) {
        // Both are ours; one that has ended already needs nothing.
        let shutdown = mcpd(self.folder.path()).args(["-q", "shutdown"]).status();
        if !shutdown.is_ok_and(|status| status.success()) {
            drop(self.daemon.kill());
        }
        drop(self.relay.kill());
        drop(self.relay.wait());
        drop(self.daemon.wait());
    }
}

/// `mcpd` with everything in `folder`.
fn mcpd(folder: &Path) -> Command {
    let mut command = Command::new(MCPD);
    command
        .env("MCPD_CONFIG", folder.join("config"))
        .env("MCPD_SOCKET", folder.join("mcpd.sock"))
        .env("MCPD_STATE", folder.join("state"));
    command
}
