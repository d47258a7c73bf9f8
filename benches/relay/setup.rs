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

/// A daemon of mcpd with some echo servers, and a relay for each of them if there is to be one, until
/// this is dropped.
pub(crate) struct Setup {
    folder: TempDir,
    program: PathBuf,
    relays: Vec<Child>,
    daemon: Child,
}

impl Setup {
    /// With one server that writes the id first, and one that writes it last.
    pub(crate) fn new() -> Self {
        let names = ["echo", "last"];
        let mut setup = Self::with_servers(&names);
        for name in names {
            let socket = setup.folder.path().join(format!("{name}.sock"));
            let mut relay = Command::new(&setup.program);
            let relay = relay.arg("relay").arg(socket).arg(name).spawn();
            setup.relays.push(relay.expect("the relay runs"));
            setup.wait_for(&format!("{name}.sock"));
        }
        for way in Way::ALL {
            setup.time_to_first_list(way);
        }
        drop(setup.initialized(Way::Mcpd, "last"));
        setup
    }

    /// A daemon with these servers and no relay.
    pub(crate) fn with_servers(names: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder for sockets");
        let program = std::env::current_exe().expect("our own file");
        let servers = folder.path().join("config/servers.d");
        std::fs::create_dir_all(&servers).expect("a folder for the configuration");
        // A JSON string is a basic string of TOML too.
        let command = serde_json::Value::from(program.display().to_string());
        for name in names {
            let kind = if *name == "last" { "last" } else { "echo" };
            let text = format!("command = {command}\nargs = [\"{kind}\"]\n");
            std::fs::write(servers.join(format!("{name}.toml")), text).expect("a server file");
        }
        let daemon = mcpd(folder.path())
            .arg("daemon")
            .env("MCPD_LOG", "off")
            .spawn();
        let setup = Self {
            relays: Vec::new(),
            daemon: daemon.expect("the daemon runs"),
            folder,
            program,
        };
        setup.wait_for("mcpd.sock");
        setup
    }

    /// A host that has its `initialize` answered.
    pub(crate) fn initialized(&self, way: Way, server: &str) -> Host {
        let mut host = Host::start(self.command(way, server));
        host.initialize();
        host
    }

    pub(crate) fn daemon_pid(&self) -> u32 {
        // The process that was started is its warden.
        let status = mcpd(self.folder.path()).args(["status", "--json"]).output();
        let status = status.expect("the daemon answers").stdout;
        let status: serde_json::Value = serde_json::from_slice(&status).expect("JSON");
        let pid = status["daemon"]["pid"]
            .as_u64()
            .expect("the daemon has a pid");
        u32::try_from(pid).expect("a pid")
    }

    pub(crate) fn server_socket(&self, name: &str) -> PathBuf {
        self.folder
            .path()
            .join("servers")
            .join(name)
            .join("mcp.sock")
    }

    /// The command that a host starts.
    pub(crate) fn command(&self, way: Way, server: &str) -> Command {
        let mut command = Command::new(&self.program);
        match way {
            Way::Direct => {
                command.arg(server);
            }
            Way::Relay => {
                let socket = self.folder.path().join(format!("{server}.sock"));
                command.arg("shim").arg(socket);
            }
            Way::Mcpd => {
                command = mcpd(self.folder.path());
                command.args(["connect", server]);
            }
        }
        command
    }

    /// Microseconds from the start of the command to its first list of tools; the median of some.
    pub(crate) fn time_to_first_list(&self, way: Way) -> f64 {
        let mut took: Vec<f64> = (0..CONNECTS)
            .map(|_| {
                let begun = now();
                let mut host = self.initialized(way, "echo");
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
        for relay in &mut self.relays {
            drop(relay.kill());
            drop(relay.wait());
        }
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
