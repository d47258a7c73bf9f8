//! The real daemon in a home of its own.

use std::fs::File;
use std::ops::Deref;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::home::{Home, Outcome};
use super::leaks;
use super::wait::{wait_until, wait_within};

/// A running `mcpd daemon`. Dropping it ends it in order and proves that it left nothing.
#[derive(Debug)]
pub(crate) struct TestDaemon {
    /// What the test started: the daemon, or its warden.
    child: Option<Child>,
    /// The daemon itself.
    pid: i32,
    // Last, so that its check comes after the daemon's end.
    home: Home,
}

impl Deref for TestDaemon {
    type Target = Home;
    fn deref(&self) -> &Home {
        &self.home
    }
}

impl TestDaemon {
    /// Starts it and waits until it listens.
    pub(crate) fn start(home: Home) -> Self {
        let command = home.command(&["daemon"]);
        Self::start_with(home, command)
    }

    /// As [`start`](Self::start), by a command that in the end is the daemon.
    pub(crate) fn start_with(home: Home, mut command: Command) -> Self {
        let log = File::create(home.path("daemon.log")).expect("the daemon's log");
        let errors = log.try_clone().expect("a second descriptor");
        let mut child = command
            .stdout(log)
            .stderr(errors)
            .stdin(Stdio::null())
            .spawn()
            .expect("mcpd starts");
        let socket = home.control_socket();
        wait_until("the daemon listens", || {
            if let Some(status) = child.try_wait().expect("the daemon can be waited for") {
                let log = std::fs::read_to_string(home.path("daemon.log")).unwrap_or_default();
                panic!("the daemon ended at once, {status}: {log}");
            }
            UnixStream::connect(&socket).ok()
        });
        let outer = i32::try_from(child.id()).expect("a pid");
        Self {
            child: Some(child),
            pid: leaks::daemon_below(outer),
            home,
        }
    }

    /// The pid of the daemon itself.
    pub(crate) const fn pid(&self) -> i32 {
        self.pid
    }

    /// The pid of the process that the test started: the daemon's warden, or the daemon.
    pub(crate) fn outer_pid(&self) -> i32 {
        i32::try_from(self.child.as_ref().expect("it runs").id()).expect("a pid")
    }

    /// What the daemon wrote to its terminal.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.home.path("daemon.log")).unwrap_or_default()
    }

    /// The status of one server's only instance.
    pub(crate) fn server_status(&self, name: &str) -> Value {
        let outcome = self.home.mcpd(&["status", name, "--json"]);
        let status = outcome.json();
        let servers = status["servers"].as_array().expect("servers is a list");
        let found = servers.iter().find(|server| server["name"] == name);
        found
            .unwrap_or_else(|| panic!("{name} is not in {status}"))
            .clone()
    }

    /// Waits until a server's status is as wanted.
    pub(crate) fn wait_for(
        &self,
        name: &str,
        what: &str,
        wanted: impl Fn(&Value) -> bool,
    ) -> Value {
        let mut last = Value::Null;
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            wait_until(what, || {
                last = self.server_status(name);
                wanted(&last).then(|| last.clone())
            })
        }));
        found.unwrap_or_else(|_| panic!("{name}: {what}; the last status was {last:#}"))
    }

    /// Waits until a server is in a state.
    pub(crate) fn wait_for_state(&self, name: &str, state: &str) -> Value {
        self.wait_for(name, &format!("state {state}"), |server| {
            server["state"] == state
        })
    }

    /// The pid of a running server.
    pub(crate) fn server_pid(&self, name: &str) -> i32 {
        let status = self.wait_for_state(name, "running");
        i32::try_from(status["pid"].as_i64().expect("a running server has a pid")).expect("a pid")
    }

    /// Kills a server's child and waits until that was seen.
    pub(crate) fn kill_server(&self, name: &str) {
        let pid = self.server_pid(name);
        kill(Pid::from_raw(pid), Signal::SIGKILL).expect("the child is there");
        self.wait_for(name, "its child's end is seen", |server| {
            server["pid"] != pid
        });
    }

    /// Sends a signal to the daemon itself.
    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid()), signal).expect("the daemon is there");
    }

    /// `mcpd reload --wait` after `edit`, which the daemon notices in no other way: it stands still until it
    /// is asked.
    pub(crate) fn reload_after(&self, edit: impl FnOnce()) -> Outcome {
        // Nothing that happened before is left to be looked at.
        self.home.mcpd(&["reload"]);
        self.signal(Signal::SIGSTOP);
        edit();
        let mut command = self.home.command(&["reload", "--wait"]);
        self.home.run_then(&mut command, |pid| {
            wait_until("the request is made", || {
                (leaks::state_of(pid) == Some('S')).then_some(())
            });
            self.signal(Signal::SIGCONT);
        })
    }

    /// Waits for the daemon's end.
    pub(crate) fn wait_end(&mut self, limit: Duration) -> ExitStatus {
        let child = self.child.as_mut().expect("it runs");
        let status = wait_within(limit, "the daemon ends", || {
            child.try_wait().expect("it can be waited for")
        });
        self.child = None;
        status
    }

    /// Ends the daemon by SIGTERM, as whoever started it would.
    pub(crate) fn terminate(&mut self) -> ExitStatus {
        kill(Pid::from_raw(self.outer_pid()), Signal::SIGTERM).expect("it is there");
        self.wait_end(Duration::from_secs(30))
    }

    /// Ends the daemon by SIGKILL: nothing of it runs any more, its children may where it had no warden.
    pub(crate) fn kill(&mut self) {
        self.signal(Signal::SIGKILL);
        assert_eq!(self.wait_end(Duration::from_secs(10)).signal(), Some(9));
    }

    /// Starts a daemon again in the same home.
    pub(crate) fn start_again(&mut self) {
        let command = self.home.command(&["daemon"]);
        self.start_again_with(command);
    }

    /// As [`start_again`](Self::start_again), with options.
    pub(crate) fn start_again_as(&mut self, options: &[&str]) {
        let mut command = self.home.command(&["daemon"]);
        command.args(options);
        self.start_again_with(command);
    }

    /// As [`start_again`](Self::start_again), by a command that in the end is the daemon.
    pub(crate) fn start_again_with(&mut self, command: Command) {
        assert!(self.child.is_none(), "the old daemon has ended");
        let home = std::mem::replace(&mut self.home, Home::new());
        let mut again = Self::start_with(home, command);
        std::mem::swap(self, &mut again);
    }

    /// The number of descriptors that the daemon holds.
    pub(crate) fn open_descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid()))
            .expect("the daemon is there")
            .count()
    }

    /// The zombies that the daemon has not reaped.
    pub(crate) fn zombies(&self) -> Vec<i32> {
        leaks::zombies_of(self.pid())
    }

    /// The resident memory of the daemon in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        memory_bytes(self.pid())
    }

    /// The processor time that the daemon has used.
    pub(crate) fn cpu_time(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid()))
            .expect("the daemon is there");
        let fields: Vec<&str> = stat
            .rsplit_once(')')
            .expect("a name")
            .1
            .split_whitespace()
            .collect();
        let ticks: u64 = fields[11..13]
            .iter()
            .map(|field| field.parse::<u64>().expect("a number"))
            .sum();
        Duration::from_millis(ticks * 10)
    }
}

/// The resident memory of a process in bytes.
pub(crate) fn memory_bytes(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .unwrap_or("0");
    line.split_whitespace()
        .next()
        .and_then(|number| number.parse::<u64>().ok())
        .unwrap_or(0)
        * 1024
}

impl Drop for TestDaemon {
    fn drop(&mut self) {
        let Some(child) = &mut self.child else { return };
        if std::thread::panicking() {
            child.kill().ok();
            child.wait().ok();
            return;
        }
        wait_within(
            Duration::from_secs(8),
            "the daemon has reaped every zombie",
            || self.zombies().is_empty().then_some(()),
        );
        let status = self.terminate();
        assert!(
            status.success(),
            "the daemon ended with {status}: {}",
            self.log()
        );
        assert!(
            !self.home.control_socket().exists(),
            "the control socket is still there"
        );
    }
}
