//! `mcpd status`: the truth about every server, for people and for programs.

use serde_json::json;

use crate::common::{Home, initialize_params, wait_until};

/// The table for people: a line a server with its state, what is next and why.
#[test]
fn the_table_tells_state_and_reason() {
    let home = Home::new();
    home.fake("good", &[]);
    home.fake("crashing", &["--stderr", "no licence key", "--exit", "1"]);
    home.server("missing", "command = \"no-such-program\"\n");
    home.server("broken", "comand = \"cat\"\n");
    let daemon = home.start();
    daemon.wait_for_state("good", "running");
    daemon.wait_for_state("crashing", "backoff");
    daemon.wait_for_state("missing", "failed");
    let outcome = daemon.mcpd(&["status"]);
    let line = |name: &str| {
        let found = outcome.stdout.lines().find(|line| line.starts_with(name));
        found
            .unwrap_or_else(|| panic!("no line for {name}: {}", outcome.stdout))
            .to_owned()
    };
    assert!(line("good").contains("running"));
    assert!(
        line("crashing").contains("backoff") && line("crashing").contains("no licence key"),
        "{}",
        line("crashing")
    );
    assert!(
        line("missing").contains("failed") && line("missing").contains("no-such-program"),
        "{}",
        line("missing")
    );
    assert!(
        line("broken").contains("broken.toml:1:1"),
        "{}",
        line("broken")
    );
    assert_eq!(outcome.code, 3, "something has failed");
    assert!(
        !outcome.stdout.contains('\u{1b}'),
        "no colour where it is piped"
    );
}

/// The JSON has its schema, its version, and every member for every server.
#[test]
fn the_json_is_complete() {
    let home = Home::new();
    home.fake_with(
        "fake",
        &["--stderr", "hello"],
        "description = \"A fake\"\n[env]\nKEY = \"value\"\n",
    );
    let daemon = home.start();
    let mut host = daemon.socket_host("fake");
    host.initialize();
    host.text("sum", json!({"a": 1}));
    host.call("nothing", json!({}));
    let open = host.start_call("stall", json!({}));
    daemon.record("fake").wait_for("tools/call", 3);
    let status = daemon.status().expect("status");
    assert_eq!(status["schema"], 1);
    assert_eq!(status["daemon"]["version"], env!("CARGO_PKG_VERSION"));
    assert!(status["daemon"]["containment"].is_string(), "{status}");
    let server = daemon.server_status("fake");
    for member in [
        "name",
        "state",
        "substate",
        "desired",
        "result",
        "config",
        "pid",
        "pgid",
        "pidfd_ok",
        "start_time",
        "ready_time",
        "state_since",
        "generation",
        "restarts_total",
        "restarts_unstable",
        "next_attempt_at",
        "exit",
        "exec",
        "protocol",
        "requests",
        "resources",
        "containment",
        "stderr_tail",
        "violations",
        "stop",
    ] {
        assert!(
            server.get(member).is_some(),
            "{member} is missing: {server}"
        );
    }
    assert_eq!(server["description"], "A fake");
    assert_eq!(server["pid"], server["pgid"]);
    assert_eq!(server["requests"]["in_flight"], 1);
    assert_eq!(server["requests"]["oldest_method"], "tools/call");
    assert!(
        server["requests"]["total"]
            .as_u64()
            .is_some_and(|total| total >= 3),
        "{server}"
    );
    assert_eq!(server["protocol"]["version"], "2025-11-25");
    assert_eq!(server["protocol"]["server_name"], "fake");
    assert!(server["exec"]["env_names"].to_string().contains("KEY"));
    assert!(!server["exec"].to_string().contains("value"));
    assert!(
        server["resources"]["rss_sum"]
            .as_u64()
            .or(server["resources"]["memory_current"].as_u64())
            > Some(100_000),
        "{server}"
    );
    assert!(server["stderr_tail"].to_string().contains("hello"));
    host.notify("notifications/cancelled", json!({"requestId": open}));
    wait_until("nothing is open", || {
        (daemon.server_status("fake")["requests"]["in_flight"] == 0).then_some(())
    });
}

/// One server in full: program, arguments, process tree, last words, last exits.
#[test]
fn one_server_is_shown_in_full() {
    let home = Home::new();
    home.fake_with(
        "fake",
        &["--stderr", "words at the start"],
        "stable_after = \"50ms\"\n",
    );
    let daemon = home.start();
    daemon.wait_for_state("fake", "running");
    daemon.kill_server("fake");
    daemon.wait_for("fake", "the second run", |server| {
        server["state"] == "running" && server["generation"] == 2
    });
    let shown = daemon.mcpd(&["status", "fake"]).normalised();
    for part in [
        "running",
        "$FAKE",
        "fake.toml",
        "words at the start",
        "SIGKILL",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let unknown = daemon.mcpd(&["status", "nobody"]);
    assert_ne!(unknown.code, 0);
    assert!((unknown.stdout + &unknown.stderr).contains("nobody"));
}

/// The exit code tells: all fine, something degraded, something failed, no daemon.
#[test]
fn the_exit_code_tells() {
    let home = Home::new();
    home.fake("good", &[]);
    home.fake_with("bad", &["--exit", "1"], "start_limit = 1\n");
    home.fake("crashing", &["--exit", "1"]);
    home.mcpd(&["status", "-q"]).expect_code(4);
    let daemon = home.start();
    daemon.wait_for_state("good", "running");
    daemon.wait_for_state("bad", "failed");
    daemon.wait_for_state("crashing", "backoff");
    let quiet = daemon.mcpd(&["status", "-q", "good"]).expect_code(0);
    assert_eq!(quiet.stdout, "");
    daemon.mcpd(&["status", "-q", "crashing"]).expect_code(1);
    daemon.mcpd(&["status", "-q", "bad"]).expect_code(3);
}

/// Fault 6: exits are told apart: a code, a signal, a timed-out start, each with its result.
#[test]
fn results_are_told_apart() {
    let home = Home::new();
    let once = "start_limit = 1\nstop_timeout = \"300ms\"\n";
    home.fake_with("code", &["--exit", "7"], once);
    home.fake_with("killed", &["--die-of", "KILL"], once);
    home.fake_with("aborted", &["--die-of", "ABRT"], once);
    home.fake_with(
        "silent",
        &["--initialize", "none"],
        &format!("start_timeout = \"500ms\"\n{once}"),
    );
    home.fake_with("refusing", &["--initialize", "error"], once);
    home.fake_with("leaving", &["--initialize", "exit"], once);
    home.fake_with("garbage", &["--initialize", "garbage"], once);
    home.fake_with("future", &["--initialize", "unsupported"], once);
    let daemon = home.start();
    for (name, results) in [
        ("code", &["exit-code"][..]),
        ("killed", &["signal"]),
        ("aborted", &["signal", "core-dump"]),
        ("silent", &["timeout"]),
        ("refusing", &["protocol"]),
        ("leaving", &["exit-code"]),
        ("garbage", &["protocol"]),
        ("future", &["protocol"]),
    ] {
        let status = daemon.wait_for_state(name, "failed");
        let last = status["exit"]["result"]
            .as_str()
            .or(status["result"].as_str())
            .expect("a result");
        assert!(results.contains(&last), "{name}: {status:#}");
    }
    assert_eq!(daemon.server_status("code")["exit"]["code"], 7);
    assert_eq!(daemon.server_status("killed")["exit"]["signal"], 9);
}

/// Without a daemon `status` says so, what is configured, and starts nothing.
#[test]
fn status_works_without_a_daemon() {
    let home = Home::new();
    home.fake("fake", &[]);
    let outcome = home.mcpd(&["status"]).expect_code(4);
    assert!(
        (outcome.stdout + &outcome.stderr).contains("fake"),
        "what is configured"
    );
    assert_eq!(home.processes(), []);
    assert_eq!(home.record("fake").starts(), 0);
}

/// A server that is still starting shows its substate and its last stderr line.
#[test]
fn a_slow_start_shows_what_it_says() {
    let home = Home::new();
    home.fake(
        "fake",
        &[
            "--stderr",
            "downloading the world",
            "--ready-after",
            "60000",
        ],
    );
    let daemon = home.start();
    let status = daemon.wait_for("fake", "its words", |server| {
        server["stderr_tail"].to_string().contains("downloading")
    });
    assert_eq!(
        (&status["state"], &status["substate"]),
        (&json!("starting"), &json!("handshake")),
        "{status}"
    );
    let shown = daemon.mcpd(&["status"]).stdout;
    assert!(shown.contains("downloading the world"), "{shown}");
}

/// A start that fails before there is a process is told of by its own command, not by the last one
/// that ran.
#[test]
fn a_failed_start_shows_the_command_that_failed() {
    let home = Home::new();
    home.fake("fake", &[]);
    let daemon = home.start();
    daemon.wait_for_state("fake", "running");
    daemon.server("fake", "command = \"/no/such/program\"\n");
    daemon.mcpd(&["reload"]).expect_code(0);
    let status = daemon.wait_for_state("fake", "failed");
    assert_eq!(status["exec"]["argv"], json!(["/no/such/program"]));
    assert_eq!(status["exec"]["program"], json!(null));
    let mut host = daemon.socket_host("fake");
    let answer = host.ask("initialize", initialize_params("2025-11-25"));
    let detail = &answer["error"]["data"]["detail"];
    assert_eq!(detail["command"], json!(["/no/such/program"]), "{answer}");
    assert_eq!(detail["program"], json!(null), "{answer}");
}

/// The hash of a configuration tells it from others: it changes with the file's meaning, and with nothing else.
#[test]
fn the_hash_tells_configurations_apart() {
    let home = Home::new();
    home.fake_with("fake", &[], "[env]\nKEY = \"one\"\n");
    let daemon = home.start();
    let hash = || {
        let hash = daemon.server_status("fake")["config"]["hash"].clone();
        hash.as_str().expect("a hash").to_owned()
    };
    let first = hash();
    assert!(daemon.mcpd(&["status", "fake"]).stdout.contains(&first));
    daemon.mcpd(&["reload", "--wait"]).expect_code(0);
    assert_eq!(hash(), first);
    daemon.fake_with("fake", &[], "[env]\nKEY = \"two\"\n");
    daemon.mcpd(&["reload", "--wait"]).expect_code(0);
    let second = hash();
    assert_ne!(second, first);
    daemon.server("fake", "comand = 5\n");
    daemon.mcpd(&["reload", "--wait"]).expect_code(1);
    assert_eq!(hash(), second, "the one by which it runs");
}
