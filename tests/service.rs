//! The daemon as a service of systemd, and `mcpd service`.
//!
//! What systemd does to a process can be done by a test too, with a shell between that knows its own
//! pid. What only systemd itself can show runs in a live user session: see [`session`].

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::common::{Home, MCPD, TestDaemon, make_private, wait_until};

pub(crate) mod session;

/// Where systemd listens, and what it was told.
struct Manager {
    socket: UnixDatagram,
    heard: Vec<String>,
}

impl Manager {
    fn at(path: &Path) -> Self {
        let socket = UnixDatagram::bind(path).expect("a notify socket");
        let wait = Some(Duration::from_millis(10));
        socket.set_read_timeout(wait).expect("a time-out");
        let heard = Vec::new();
        Self { socket, heard }
    }

    /// Waits until something was said that contains each of `parts`.
    fn expect(&mut self, parts: &[&str]) -> String {
        let mut last = String::new();
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            wait_until("systemd is told", || {
                let mut buffer = [0; 4096];
                if let Ok(length) = self.socket.recv(&mut buffer) {
                    let said = String::from_utf8_lossy(&buffer[..length]).into_owned();
                    self.heard.push(said.clone());
                    last = said;
                    if parts.iter().all(|part| last.contains(part)) {
                        return Some(last.clone());
                    }
                }
                None
            })
        }));
        found.unwrap_or_else(|_| panic!("not told {parts:?}, but {:?}", self.heard))
    }
}

/// `mcpd daemon` as systemd would start it: with `variables` in which `$$` is its pid.
fn main_process(home: &Home, variables: &str) -> Command {
    let mut command = home.program_command("sh");
    command.args(["-c", &format!("{variables} exec \"$0\" daemon"), MCPD]);
    command
}

/// Readiness, reloads, the watchdog, the state of the servers and the end, each told in its words.
#[test]
fn systemd_is_told_what_the_daemon_does() {
    let mut home = Home::new();
    home.fake("fake", &[]);
    let mut manager = Manager::at(&home.path("notify"));
    let notify = home.path("notify");
    home.set_env("NOTIFY_SOCKET", notify);
    let command = main_process(
        &home,
        "SYSTEMD_EXEC_PID=$$ WATCHDOG_PID=$$ WATCHDOG_USEC=400000",
    );
    let mut daemon = TestDaemon::start_with(home, command);
    manager.expect(&["READY=1\n", "STATUS=1 server: "]);
    manager.expect(&["WATCHDOG=1\n"]);
    daemon.wait_for_state("fake", "running");
    manager.expect(&["STATUS=1 server: 1 running; 0 hosts\n"]);
    daemon.mcpd(&["reload", "--wait"]).expect_code(0);
    let reloading = manager.expect(&["RELOADING=1\n"]);
    assert!(reloading.contains("\nMONOTONIC_USEC="), "{reloading}");
    manager.expect(&["READY=1\n"]);
    daemon.signal(Signal::SIGTERM);
    manager.expect(&["STOPPING=1\n", "STATUS=stopping"]);
    assert_eq!(daemon.wait_end(Duration::from_secs(30)).code(), Some(0));
}

/// Variables that a terminal handed on mean nothing: neither is anybody told, nor is a descriptor
/// taken.
#[test]
fn what_was_meant_for_another_process_is_ignored() {
    let mut home = Home::new();
    home.fake("fake", &[]);
    let manager = Manager::at(&home.path("notify"));
    let notify = home.path("notify");
    home.set_env("NOTIFY_SOCKET", notify);
    for (name, value) in [
        ("SYSTEMD_EXEC_PID", "1"),
        ("WATCHDOG_USEC", "100000"),
        ("INVOCATION_ID", "0123456789abcdef"),
        ("LISTEN_PID", "1"),
        ("LISTEN_FDS", "1"),
        ("LISTEN_FDNAMES", "control"),
    ] {
        home.set_env(name, value);
    }
    let mut daemon = home.start();
    daemon.wait_for_state("fake", "running");
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.wait_end(Duration::from_secs(30)).code(), Some(0));
    let mut buffer = [0; 16];
    manager.socket.set_nonblocking(true).expect("a flag");
    assert!(manager.socket.recv(&mut buffer).is_err(), "nobody was told");
}

/// The socket of mcpd.socket is served and left behind; the lock is held all the same.
#[test]
fn a_socket_that_was_handed_over_is_served_and_stays() {
    let home = Home::new();
    home.fake("fake", &[]);
    fs::create_dir(home.path("run/mcpd")).expect("the folder");
    make_private(&home.path("run/mcpd"));
    let listener = UnixListener::bind(home.control_socket()).expect("a socket");
    let handed = OwnedFd::from(listener.try_clone().expect("a second descriptor"));
    let mut command = home.program_command("sh");
    let script = "exec 3<&0 </dev/null; SYSTEMD_EXEC_PID=$$ LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=control exec \"$0\" daemon";
    command
        .args(["-c", script, MCPD])
        .stdin(Stdio::from(handed));
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("a daemon");
    let pid = i32::try_from(child.id()).expect("a pid");
    wait_until("the daemon serves", || {
        (home.daemon_pid() == Some(pid)).then_some(())
    });
    assert_ne!(home.mcpd(&["daemon"]).code, 0, "a second one is refused");
    let mut host = home.connect_host("fake");
    host.initialize();
    drop(host);
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), Signal::SIGTERM).expect("it is there");
    let ended = child.wait().expect("its end");
    assert_eq!(ended.code(), Some(0));
    assert!(home.control_socket().exists(), "it is not ours to remove");
    // Whoever asks whether there is a daemon is not one to start it.
    home.mcpd(&["status"]).expect_code(4);
    listener.set_nonblocking(true).expect("a flag");
    while listener.accept().is_ok() {}
    home.mcpd(&["status"]).expect_code(4);
    assert!(listener.accept().is_err(), "nobody has knocked");
    drop(UnixStream::connect(home.control_socket()).expect("it listens still"));
    drop(listener);
    fs::remove_file(home.control_socket()).expect("the test made it");
}

/// In the journal, each line begins with its priority, and there is no second time.
#[test]
fn lines_for_the_journal_have_a_priority_and_no_time() {
    let home = Home::new();
    home.server("-bad", "");
    let command = main_process(&home, "JOURNAL_STREAM=$(stat -Lc %d:%i /proc/self/fd/2)");
    let daemon = TestDaemon::start_with(home, command);
    let log = wait_until("it is logged", || {
        Some(daemon.log()).filter(|log| log.contains("-bad"))
    });
    for line in log.lines() {
        let rest = line
            .strip_prefix("<4>")
            .or_else(|| line.strip_prefix("<6>"));
        let rest = rest.unwrap_or_else(|| panic!("no priority: {line}"));
        assert!(!rest.starts_with("20") && !rest.contains("WARN"), "{line}");
    }
}

/// The same variable where standard error is something else.
#[test]
fn lines_for_a_file_have_a_time() {
    let mut home = Home::new();
    home.set_env("JOURNAL_STREAM", "8:1");
    home.server("-bad", "");
    let daemon = home.start();
    let log = wait_until("it is logged", || {
        Some(daemon.log()).filter(|log| log.contains("-bad"))
    });
    assert!(log.starts_with("20") && log.contains("WARN"), "{log}");
}

/// Without a systemd of the user, `mcpd service` says what is missing and changes nothing.
#[test]
fn without_a_user_manager_nothing_is_installed() {
    let home = Home::new();
    for verb in ["install", "status"] {
        let outcome = home.mcpd(&["service", verb]).expect_code(3);
        assert!(outcome.stderr.contains("systemd"), "{}", outcome.stderr);
        assert!(outcome.stderr.contains("\nhint: "), "{}", outcome.stderr);
    }
    assert!(!home.path("config/systemd").exists());
    assert!(!home.path("config/mcpd/mcpd.toml").exists());
    let outcome = home.mcpd(&["service", "uninstall"]).expect_code(0);
    assert!(outcome.stdout.contains("no unit"), "{}", outcome.stdout);
}

/// The service is for the default places only.
#[test]
fn a_trial_is_no_service() {
    let home = Home::new();
    let mut command = home.command(&["--config", ".", "service", "install"]);
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    let outcome = home.run(&mut command).expect_code(2);
    assert!(outcome.stderr.contains("default"), "{}", outcome.stderr);
}

/// Without a manager to start it, a unit that is installed keeps nobody from being served.
#[test]
fn a_unit_without_a_manager_is_no_obstacle() {
    let home = Home::new();
    home.fake("fake", &[]);
    home.write("config/systemd/user/mcpd.service", "[Service]\n");
    let outcome = home.mcpd(&["call", "fake", "sum", "a=2", "b=3"]);
    assert_eq!(outcome.expect_code(0).stdout, "5\n");
    home.mcpd(&["shutdown"]).expect_code(0);
}
