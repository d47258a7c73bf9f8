//! What a server writes to stderr, where it goes, and what is never written anywhere.

use std::fs;
use std::process::Stdio;

use serde_json::json;

use crate::common::{Home, QUICK, RawHost, TestDaemon, make_private, wait_until};

/// C081: a server that writes a megabyte to stderr inside a call is not held up; the tail is kept.
#[test]
fn stderr_is_always_drained() {
    let home = Home::new();
    home.fake("fake", &[]);
    let daemon = home.start();
    let mut host = daemon.connect_host("fake");
    host.initialize();
    assert_eq!(host.text("stderr", json!({"bytes": 1_000_000})), "written");
    host.call("stderr", json!({"kind": "text", "text": "the last words"}));
    let status = daemon.wait_for("fake", "the tail", |server| {
        server["stderr_tail"].to_string().contains("the last words")
    });
    assert!(
        status["stderr_tail"]
            .as_array()
            .is_some_and(|tail| tail.len() <= 100),
        "{status}"
    );
    let logs = daemon
        .mcpd(&["logs", "fake", "-n", "3"])
        .expect_code(0)
        .stdout;
    assert!(logs.contains("the last words"), "{logs}");
    assert_eq!(logs.lines().count(), 3, "{logs}");
}

/// Fault 14: ten megabytes before the handshake are no deadlock.
#[test]
fn a_flood_on_stderr_does_not_block_the_start() {
    let home = Home::new();
    home.fake("fake", &["--stderr-bytes", "10000000"]);
    let daemon = home.start();
    daemon.socket_host("fake").initialize();
}

/// C083: progress bars without a newline and invalid UTF-8 grow no line without limit; the log stays text.
#[test]
fn endless_stderr_lines_are_cut() {
    let home = Home::new();
    home.fake("fake", &[]);
    let daemon = home.start();
    let mut host = daemon.socket_host("fake");
    host.initialize();
    let before = daemon.memory_bytes();
    for (kind, bytes) in [("cr", 20_000_000), ("utf8", 3_000_000)] {
        host.call("stderr", json!({"kind": kind, "bytes": bytes}));
    }
    host.call("stderr", json!({"kind": "text", "text": "\nafterwards"}));
    daemon.wait_for("fake", "the tail", |server| {
        server["stderr_tail"].to_string().contains("afterwards")
    });
    assert!(
        daemon.memory_bytes() < before + (64 << 20),
        "{} then {}",
        before,
        daemon.memory_bytes()
    );
    for file in log_files(&daemon) {
        let text = fs::read(&file).expect("the log");
        assert!(
            std::str::from_utf8(&text).is_ok(),
            "{} is not UTF-8",
            file.display()
        );
        let longest = text
            .split(|byte| *byte == b'\n')
            .map(<[u8]>::len)
            .max()
            .unwrap_or(0);
        assert!(longest < 64 * 1024, "a line of {longest} bytes");
    }
}

/// C084: the shim's stderr has nothing of the server's.
#[test]
fn server_stderr_stays_out_of_the_hosts_terminal() {
    let home = Home::new();
    home.fake("fake", &["--stderr", "chatter at the start"]);
    let daemon = home.start();
    let mut host = daemon.connect_host("fake");
    host.initialize();
    host.call(
        "stderr",
        json!({"kind": "text", "text": "chatter in a call"}),
    );
    host.end_output();
    let (status, stderr) = host.wait_exit();
    assert!(status.success());
    assert_eq!(stderr, "");
    wait_until("the log has it", || {
        daemon
            .mcpd(&["logs", "fake"])
            .stdout
            .contains("chatter in a call")
            .then_some(())
    });
}

/// C085: a daemon whose own stderr nobody reads blocks no child; each server has a log of its own.
#[test]
fn nobody_reading_the_daemons_stderr_blocks_no_child() {
    let home = Home::new();
    home.fake("one", &[]);
    home.fake("two", &[]);
    let mut child = home
        .command(&["daemon"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut host = home.socket_host("one");
    host.initialize();
    for _ in 0..20 {
        assert_eq!(host.text("stderr", json!({"bytes": 200_000})), "written");
        assert_eq!(host.text("noise", json!({"n": 200})), "noisy");
    }
    host.call("stderr", json!({"kind": "text", "text": "from one"}));
    wait_until("the log has it", || {
        home.mcpd(&["logs", "one"])
            .stdout
            .contains("from one")
            .then_some(())
    });
    assert!(!home.mcpd(&["logs", "two"]).stdout.contains("from one"));
    home.mcpd(&["shutdown"]).expect_code(0);
    assert!(child.wait().expect("it ends").success());
}

/// C087: payloads are not logged: hundreds of megabytes through the daemon leave no trace in any log.
#[test]
fn payloads_are_not_logged() {
    let home = Home::new();
    home.fake("fake", &[]);
    let daemon = home.start();
    let mut host = daemon.socket_host("fake");
    host.initialize();
    for _ in 0..20 {
        assert_eq!(
            host.text("big", json!({"bytes": 10_000_000})).len(),
            10_000_000
        );
    }
    let logged: u64 = log_files(&daemon)
        .iter()
        .map(|file| fs::metadata(file).map_or(0, |data| data.len()))
        .sum();
    assert!(logged < 1 << 20, "{logged} bytes");
    assert!(daemon.log().len() < 1 << 20);
}

/// A server's log is rotated while it runs and never larger than its cap in all its files.
#[test]
fn a_log_is_capped() {
    const FILE: u64 = 16 << 20;
    let home = Home::new();
    home.fake("fake", &[]);
    for folder in ["state/mcpd", "state/mcpd/logs"] {
        fs::create_dir_all(home.path(folder)).expect("the folder");
        make_private(&home.path(folder));
    }
    // As full as they get; what is in them does not matter.
    for (name, size) in [
        ("fake.log", FILE - 1_000),
        ("fake.log.1", FILE),
        ("fake.log.2", FILE),
        ("fake.log.3", FILE),
    ] {
        let file = fs::File::create(home.path(&format!("state/mcpd/logs/{name}")));
        file.expect("the file").set_len(size).expect("the size");
    }
    let daemon = home.start();
    let mut host = daemon.socket_host("fake");
    host.initialize();
    host.call("stderr", json!({"bytes": 1_000_000}));
    host.call("stderr", json!({"kind": "text", "text": "the end"}));
    wait_until("the log has it", || {
        daemon
            .mcpd(&["logs", "fake"])
            .stdout
            .contains("the end")
            .then_some(())
    });
    let sizes: Vec<u64> = log_files(&daemon)
        .iter()
        .map(|file| fs::metadata(file).map_or(0, |data| data.len()))
        .collect();
    assert!(
        sizes.len() == 4 && sizes.iter().sum::<u64>() <= 4 * FILE,
        "{sizes:?}"
    );
    let newest = fs::metadata(daemon.path("state/mcpd/logs/fake.log")).expect("the log");
    assert!(newest.len() < FILE / 2, "a new one was begun");
}

/// Fault 14: what a child writes to stderr without end is logged at a bounded rate, and the log says what is
/// missing; its last words are kept.
#[test]
fn endless_stderr_is_rate_limited() {
    let home = Home::new();
    home.fake("fake", &[]);
    let daemon = home.start();
    let mut host = daemon.socket_host("fake");
    host.initialize();
    host.call("stderr", json!({"bytes": 20_000_000}));
    host.call("stderr", json!({"kind": "text", "text": "the last words"}));
    daemon.wait_for("fake", "the tail", |server| {
        server["stderr_tail"].to_string().contains("the last words")
    });
    daemon.mcpd(&["stop", "fake"]).expect_code(0);
    let logs = daemon.mcpd(&["logs", "fake", "--grep", "left out"]).stdout;
    assert!(logs.contains("lines of stderr"), "{logs}");
    let logged: u64 = log_files(&daemon)
        .iter()
        .map(|file| fs::metadata(file).map_or(0, |data| data.len()))
        .sum();
    assert!(logged < 15_000_000, "{logged} bytes");
}

/// A log that cannot be written blocks no child.
#[test]
fn a_log_that_cannot_be_written_blocks_nobody() {
    let home = Home::new();
    home.fake("fake", &[]);
    // A folder where the file should be: even root cannot write to it.
    fs::create_dir_all(home.path("state/mcpd/logs/fake.log")).expect("the folder");
    for folder in ["state/mcpd", "state/mcpd/logs"] {
        make_private(&home.path(folder));
    }
    let daemon = home.start();
    let mut host = daemon.socket_host("fake");
    host.initialize();
    assert_eq!(host.text("stderr", json!({"bytes": 1_000_000})), "written");
    assert!(
        daemon.server_status("fake")["stderr_tail"]
            .as_array()
            .is_some_and(|tail| !tail.is_empty())
    );
}

/// The log of a server that is gone is closed: names that come and go cost no descriptor.
#[test]
fn the_log_of_a_removed_server_is_closed() {
    let home = Home::new();
    home.fake("stays", &[]);
    let daemon = home.start();
    daemon.wait_for_state("stays", "running");
    let open_logs = || {
        let open = fs::read_dir(format!("/proc/{}/fd", daemon.pid())).expect("the daemon is there");
        let targets = open.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
        let logs = targets.filter(|target| target.starts_with(daemon.path("state/mcpd/logs")));
        logs.collect::<Vec<_>>()
    };
    for name in ["one", "two", "three"] {
        daemon.fake(name, &[]);
        daemon.mcpd(&["reload", "--wait"]).expect_code(0);
        daemon.wait_for_state(name, "running");
        fs::remove_file(daemon.path(&format!("config/mcpd/servers.d/{name}.toml")))
            .expect("its file");
        daemon.mcpd(&["reload", "--wait"]).expect_code(0);
    }
    wait_until("only the log that is in use is open", || {
        (open_logs() == [daemon.path("state/mcpd/logs/stays.log")]).then_some(())
    });
    // It is opened again for a server of the same name.
    daemon.fake("one", &[]);
    daemon.mcpd(&["reload", "--wait"]).expect_code(0);
    daemon.wait_for_state("one", "running");
    wait_until("the log goes on", || {
        let log = fs::read_to_string(daemon.path("state/mcpd/logs/one.log")).ok()?;
        (log.matches("handshake -> ready").count() == 2).then_some(())
    });
}

/// `logs -f` shows what comes, across a restart, until it is interrupted; a log without a server is an error.
#[test]
fn logs_can_be_followed() {
    let home = Home::new();
    home.fake_with("fake", &["--stderr", "a start"], QUICK);
    let daemon = home.start();
    daemon.wait_for_state("fake", "running");
    let mut follower = RawHost::through(daemon.command(&["logs", "fake", "-f", "-n", "5"]));
    follower.wait_line("the first start", |line| line.text().contains("a start"));
    daemon.mcpd(&["restart", "fake"]).expect_code(0);
    follower.wait_line("the second start", |line| line.text().contains("a start"));
    let mut host = daemon.socket_host("fake");
    host.initialize();
    host.call("stderr", json!({"kind": "text", "text": "live"}));
    follower.wait_line("a live line", |line| line.text().contains("live"));
    assert_ne!(daemon.mcpd(&["logs", "nobody"]).code, 0);
}

/// A name that nobody configured leaves no file, however many are made up.
#[test]
fn a_made_up_name_leaves_no_log() {
    let home = Home::new();
    home.fake("fake", &[]);
    let daemon = home.start();
    daemon.wait_for_state("fake", "running");
    for number in 0..20 {
        let mut host = daemon.connect_host(&format!("made-up-{number}"));
        let answer = host.ask("initialize", crate::common::initialize_params("2025-11-25"));
        assert!(answer["error"].is_object(), "{answer}");
    }
    assert_ne!(daemon.mcpd(&["logs", "made-up-0"]).code, 0);
    let files = log_files(&daemon);
    assert!(
        files.iter().all(|file| file.ends_with("fake.log")),
        "{files:?}"
    );
    // Once it is configured it has one.
    let mut host = daemon.connect_host("late");
    host.ask("ping", json!({}));
    daemon.fake("late", &["--stderr", "first words"]);
    daemon.mcpd(&["reload", "--wait"]).expect_code(0);
    wait_until("its log", || {
        daemon
            .mcpd(&["logs", "late"])
            .stdout
            .contains("first words")
            .then_some(())
    });
}

/// Control bytes of a server's stderr do not reach a terminal as such.
#[test]
fn control_bytes_are_escaped() {
    let home = Home::new();
    home.fake("fake", &["--stderr", "\u{1b}]0;title\u{7}\u{1b}[2Jred"]);
    let daemon = home.start();
    daemon.wait_for("fake", "the tail", |server| {
        server["stderr_tail"].to_string().contains("red")
    });
    for args in [&["status", "fake"][..], &["logs", "fake"]] {
        let shown = daemon.mcpd(args).stdout;
        assert!(!shown.contains(['\u{1b}', '\u{7}']), "{args:?}: {shown:?}");
    }
}

fn log_files(daemon: &TestDaemon) -> Vec<std::path::PathBuf> {
    let folder = daemon.path("state/mcpd/logs");
    let entries =
        fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.is_file())
        .collect()
}
