//! Figures: what hosts see while children and daemons are killed under load, and what is left of these.
//!
//! A small number of kills in every run of the tests; the full number by `tests/figures/run`, which writes
//! `docs/figures.md`. Each prints one line, and fails unless nothing was lost, doubled or left.

use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::common::{Home, let_pass, wait_until};

mod load;
mod session;

use load::under_load;

/// Keys that make a run of a tenth of a second a stable one.
const QUICK: &str =
    "stable_after = \"100ms\"\ndrain_timeout = \"300ms\"\nstop_timeout = \"500ms\"\n";
/// Longer than `stable_after`.
const STABLE: Duration = Duration::from_millis(200);
/// Answers that hosts must have had before something is killed again.
const PROGRESS: u64 = 8;

/// How often something is killed: the full number where that is asked for.
fn times(full: u64, few: u64) -> u64 {
    match std::env::var_os("MCPD_FIGURES").is_some_and(|what| what == "full") {
        true => full,
        false => few,
    }
}

/// The servers of the figures as TOML files: one that is plain, a launcher's tree that is deaf to everything but
/// SIGKILL, and one that leaves an orphan in a session of its own.
fn servers(file: impl Fn(&str, &[&str], &[&str])) {
    file("plain", &[], &[]);
    file(
        "tree",
        &["launcher", "--levels", "2"],
        &["--ignore-eof", "--ignore-term"],
    );
    file(
        "orphan",
        &[],
        &["--ignore-eof", "--grandchild", "double-ignore-term"],
    );
}

/// A home with the servers of the figures.
fn home() -> Home {
    let home = Home::new();
    servers(|name, mode, switches| match mode {
        [] => home.fake_with(name, switches, QUICK),
        mode => home.fake_mode(name, mode, switches, QUICK),
    });
    home
}

/// Children are killed one after the other: each call gets one result or one error, its own; no host loses its
/// connection, and nothing of a killed child's tree is left.
#[test]
fn kills_of_children_lose_nothing() {
    let kills = times(1000, 100);
    let home = Home::new();
    home.fake_with("plain", &[], QUICK);
    let daemon = home.start();
    let pid_of = || daemon.fakes().first().map(|(pid, _)| *pid);
    let report = under_load(
        &["plain"],
        |name| daemon.connect_host(name),
        |answered| {
            let mut last = 0;
            let mut survivors = 0;
            for _ in 0..kills {
                let before = answered();
                let pid = wait_until("a new child that answers", || {
                    let pid = pid_of()?;
                    (pid != last && answered() > before + PROGRESS).then_some(pid)
                });
                last = pid;
                let_pass(STABLE);
                kill(Pid::from_raw(pid), Signal::SIGKILL).expect("the child is there");
                wait_until("it is gone", || {
                    (!daemon.fakes().iter().any(|(other, _)| *other == pid)).then_some(())
                });
            }
            survivors += daemon.fakes().len().saturating_sub(1) as u64;
            survivors
        },
    );
    report.print(&format!("{kills} kill -9 of children"));
    report.expect_clean(&[-31001]);
    assert_eq!(daemon.record("plain").starts() as u64, kills + 1);
    let handshakes = daemon.record("plain").with_method("initialize").len() as u64;
    assert!(handshakes <= kills + 1, "{handshakes} handshakes");
}

/// The pid that the daemon of this home left when it began to serve.
fn daemon_pid(home: &Home) -> Option<i32> {
    let text = std::fs::read_to_string(home.path("run/mcpd/ready")).ok()?;
    text.parse().ok()
}

/// The daemon is killed again and again, and has only its warden: hosts' shims start it anew, and nothing that it
/// has ever started is left.
#[test]
fn kills_of_the_daemon_under_its_warden_lose_nothing() {
    let kills = times(200, 5);
    let home = home();
    let report = under_load(
        &["plain", "tree", "orphan"],
        |name| home.connect_host(name),
        |answered| {
            let mut last = 0;
            let mut survivors = 0;
            for _ in 0..kills {
                let before = answered();
                let pid = wait_until("a new daemon that serves", || {
                    let pid = daemon_pid(&home)?;
                    (pid != last && answered() > before + PROGRESS).then_some(pid)
                });
                last = pid;
                let started = home.fakes();
                kill(Pid::from_raw(pid), Signal::SIGKILL).expect("the daemon is there");
                wait_until("another daemon serves", || {
                    daemon_pid(&home).filter(|now| *now != pid)
                });
                survivors += left_of(&started, &home.fakes());
            }
            survivors
        },
    );
    report.print(&format!("{kills} kill -9 of the daemon under its warden"));
    report.expect_clean(&[-31000, -31001, -31006]);
    home.mcpd(&["shutdown"]).expect_code(0);
}

/// How many of `before` are among `now`.
fn left_of(before: &[(i32, String)], now: &[(i32, String)]) -> u64 {
    before.iter().filter(|one| now.contains(one)).count() as u64
}

/// The daemon is ended and started in order while hosts call.
#[test]
fn orderly_restarts_lose_nothing() {
    let restarts = times(50, 3);
    let home = home();
    home.mcpd(&["start", "plain"]).expect_code(0);
    let report = under_load(
        &["plain", "tree"],
        |name| home.connect_host(name),
        |answered| {
            for _ in 0..restarts {
                let before = answered();
                wait_until("hosts are served", || {
                    (answered() > before + PROGRESS).then_some(())
                });
                home.mcpd(&["shutdown"]).expect_code(0);
                home.mcpd(&["start", "plain"]).expect_code(0);
            }
            0
        },
    );
    report.print(&format!(
        "{restarts} times `mcpd shutdown` and `mcpd start`"
    ));
    report.expect_clean(&[-31000, -31005, -31006]);
    home.mcpd(&["shutdown"]).expect_code(0);
}
