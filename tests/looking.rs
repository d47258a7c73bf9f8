//! Looking: `status` that is watched and that tells who is attached, and logs of several servers.

use std::fs;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::common::{Home, RawHost, Terminal, wait_until};

/// `status --watch` draws in place, follows what happens, fits a terminal that changes, and leaves
/// the terminal as it found it.
#[test]
fn status_is_watched_in_place() {
    let home = Home::new();
    home.fake("alpha", &[]);
    home.server(
        "beta",
        "command = \"no-such-program-in-any-of-the-usual-places\"\n",
    );
    let daemon = home.start();
    daemon.wait_for_state("alpha", "running");
    let mut terminal = Terminal::run(daemon.command(&["status", "--watch"]), 24, 60);
    let screen = terminal.wait_for("no-such-program");
    assert!(terminal.is_alternate());
    assert!(
        screen.lines().all(|line| line.chars().count() <= 60),
        "{screen}"
    );
    assert!(screen.starts_with("mcpd "), "drawn from the top: {screen}");
    let mut host = daemon.socket_host("alpha");
    host.initialize();
    for _ in 0..100 {
        host.ask("ping", json!({}));
    }
    terminal.wait_for("/10");
    assert_eq!(daemon.mcpd(&["stop", "alpha"]).code, 0);
    terminal.wait_for("alpha  stopped");
    terminal.type_keys("q");
    let (status, screen) = terminal.wait_end();
    assert_eq!(status.code(), Some(3), "a server has failed");
    assert!(!terminal.is_alternate());
    assert!(screen.trim().is_empty(), "{screen}");
}

/// Ctrl-C ends it as well as `q`, and it waits for a daemon that has gone.
#[test]
fn a_watch_outlives_the_daemon() {
    let home = Home::new();
    home.fake("alpha", &[]);
    let mut daemon = home.start();
    daemon.wait_for_state("alpha", "running");
    let mut terminal = Terminal::run(daemon.command(&["status", "-w"]), 24, 80);
    terminal.wait_for("running");
    daemon.terminate();
    terminal.wait_for("no daemon is running");
    daemon.start_again();
    terminal.wait_for("running");
    kill(Pid::from_raw(terminal.pid()), Signal::SIGINT).expect("the signal");
    let (status, _) = terminal.wait_end();
    assert_eq!(status.code(), Some(0));
    assert!(!terminal.is_alternate());
}

/// Where it is piped, `--watch --json` is one line a snapshot.
#[test]
fn watched_snapshots_are_lines_where_they_are_piped() {
    let home = Home::new();
    home.fake("alpha", &[]);
    let daemon = home.start();
    daemon.wait_for_state("alpha", "running");
    let mut watch = RawHost::through(daemon.command(&["status", "--watch", "--json"]));
    for _ in 0..2 {
        let line = watch.wait_line("a snapshot", |_| true).text();
        let snapshot: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(snapshot["servers"][0]["name"], "alpha");
    }
    watch.vanish();
}

/// `status --hosts` names each host: what it calls itself, its process, its version, what is open.
#[test]
fn attached_hosts_are_shown() {
    let home = Home::new();
    home.fake("alpha", &[]);
    let daemon = home.start();
    assert_eq!(
        daemon.mcpd(&["status", "--hosts"]).stdout,
        "no host is attached\n"
    );
    let mut host = daemon.socket_host("alpha");
    host.initialize_as("2025-06-18");
    let call = host.start_call("sleep", json!({"ms": 600_000}));
    let mut shim = daemon.connect_host("alpha");
    shim.initialize();
    let ours = std::process::id().to_string();
    let shown = wait_until("both hosts", || {
        let shown = daemon.mcpd(&["status", "--hosts"]).stdout;
        let named = shown.lines().filter(|line| line.contains(&ours)).count();
        // The shim's parent is this test, as the peer of the socket is.
        (named == 2 && shown.contains("2025-06-18")).then_some(shown)
    });
    let line = shown.lines().find(|line| line.contains("2025-06-18"));
    let words: Vec<&str> = line.expect("the host").split_whitespace().collect();
    assert_eq!(words[0], "alpha");
    assert_eq!(
        words[words.len() - 4..words.len() - 1],
        ["1", "0", "-"],
        "{shown}"
    );
    let page = daemon.mcpd(&["status", "alpha"]).stdout;
    assert!(page.contains("2025-06-18, 1 open"), "{page}");
    host.notify("notifications/cancelled", json!({"requestId": call}));
}

/// `metrics` is OpenMetrics text with a sample for each server.
#[test]
fn metrics_are_told() {
    let home = Home::new();
    home.fake("alpha", &[]);
    let daemon = home.start();
    daemon.wait_for_state("alpha", "running");
    let text = daemon.mcpd(&["metrics"]).expect_code(0).stdout;
    assert!(text.ends_with("# EOF\n"), "{text}");
    let running = "mcpd_server_state{server=\"alpha\",mcpd_server_state=\"running\"} 1";
    assert!(text.contains(running), "{text}");
    assert!(
        text.contains("mcpd_server_spawns_total{server=\"alpha\"} 1"),
        "{text}"
    );
}

/// `doctor` looks at everything without a daemon and with one, makes a real round trip, and leaves nothing.
#[test]
fn the_doctor_finds_what_is_wrong() {
    let home = Home::new();
    home.fake("alpha", &[]);
    home.server("needy", "command = \"uvx\"\nargs = [\"x\"]\npath = []\n");
    let alone = home.mcpd(&["doctor"]);
    assert_eq!(alone.code, 3, "uvx is not there: {}", alone.stdout);
    let said = alone.stdout;
    for part in [
        "daemon: none runs",
        "needs uvx",
        "round trip: a daemon of its own",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert_eq!(home.processes(), [], "nothing is left of the round trip");
    let left: Vec<_> = fs::read_dir(home.path("run/mcpd"))
        .map(|entries| entries.flatten().map(|entry| entry.file_name()).collect())
        .unwrap_or_default();
    assert!(
        left.iter()
            .all(|name| !name.to_string_lossy().starts_with("doctor")),
        "{left:?}"
    );
    fs::remove_file(home.path("config/mcpd/servers.d/needy.toml")).expect("the file");
    let daemon = home.start();
    daemon.wait_for_state("alpha", "running");
    let findings = daemon.mcpd(&["doctor", "--json"]).json();
    let of = |check: &str| {
        let found = findings.as_array().expect("a list").iter();
        found
            .clone()
            .find(|finding| finding["check"] == check)
            .cloned()
    };
    assert_eq!(
        of("daemon").expect("the daemon")["grade"],
        "ok",
        "{findings}"
    );
    assert_eq!(
        of("round trip").expect("the trip")["grade"],
        "ok",
        "{findings}"
    );
    assert_eq!(
        of("configuration").expect("it")["grade"],
        "ok",
        "{findings}"
    );
}

/// Logs of all servers come by time, and are chosen by age and pattern.
#[test]
fn logs_of_several_servers_come_together() {
    let home = Home::new();
    home.fake("alpha", &["--stderr", "Alpha speaks"]);
    home.fake("beta", &["--stderr", "beta speaks"]);
    let daemon = home.start();
    let logs = wait_until("both logs", || {
        let logs = daemon.mcpd(&["logs"]).stdout;
        (logs.contains("Alpha speaks") && logs.contains("beta speaks")).then_some(logs)
    });
    let times: Vec<&str> = logs.lines().map(|line| &line[..24]).collect();
    assert!(times.is_sorted(), "{logs}");
    let only = |arguments: &[&str]| daemon.mcpd(&[&["logs"], arguments].concat()).stdout;
    assert_eq!(only(&["--grep", "speaks"]).lines().count(), 2);
    assert_eq!(only(&["--grep", "Alpha"]).lines().count(), 1);
    assert_eq!(only(&["beta", "--grep", "alpha"]), "");
    assert_eq!(only(&["--grep", "speaks", "-n", "1"]).lines().count(), 1);
    assert_eq!(
        only(&["--since", "1h", "--grep", "speaks"]).lines().count(),
        2
    );
    assert_eq!(only(&["--since", "2999"]), "");
    let wrong = daemon.mcpd(&["logs", "--since", "yesterday"]);
    assert_eq!(wrong.code, 2);
    assert!(wrong.stderr.contains("10m"), "{}", wrong.stderr);
    assert_eq!(daemon.mcpd(&["logs", "--grep", "("]).code, 2);
}

/// A log that did not exist when `logs -f` began is followed as well.
#[test]
fn logs_of_all_servers_are_followed() {
    let home = Home::new();
    home.fake("alpha", &["--stderr", "alpha speaks"]);
    let daemon = home.start();
    daemon.wait_for_state("alpha", "running");
    let mut follower = RawHost::through(daemon.command(&["logs", "-f", "--grep", "speaks"]));
    follower.wait_line("the first", |line| line.text().contains("alpha speaks"));
    daemon.reload_after(|| daemon.fake("beta", &["--stderr", "beta speaks"]));
    follower.wait_line("the second", |line| line.text().contains("beta speaks"));
    follower.vanish();
}
