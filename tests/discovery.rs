//! What a child answers to `server/discover`, and what is spoken with it then: real processes that give
//! every answer that was seen, odd ones included.

use serde_json::{Value, json};

use crate::common::{Home, TestDaemon};

/// A daemon whose server answers a discovery so, and the server's status once it runs.
fn running(switches: &[&str]) -> (TestDaemon, Value) {
    let home = Home::new();
    home.fake("fake", switches);
    let daemon = home.start();
    let status = daemon.wait_for_state("fake", "running");
    (daemon, status)
}

/// The server serves a legacy host and is in this era, and no start of it counted as failed.
#[track_caller]
fn expect(daemon: &TestDaemon, status: &Value, era: &str, starts: usize) {
    let spoken = &status["protocol"]["era"];
    assert_eq!(spoken, era, "{status:#}");
    assert_eq!(status["restarts_unstable"], 0, "{status:#}");
    assert_eq!(status["last_error"], Value::Null, "{status:#}");
    let mut host = daemon.socket_host("fake");
    host.initialize();
    assert_eq!(host.text("sum", json!({"a": 2, "b": 3})), "5");
    let attachment = &daemon.server_status("fake")["attachments"][0];
    let translated = match era {
        "modern" => json!("legacy host, modern server"),
        _ => Value::Null,
    };
    assert_eq!(attachment["translated"], translated, "{attachment}");
    let record = daemon.record("fake");
    assert_eq!(record.starts(), starts, "starts of the server");
    let handshakes = record.with_method("notifications/initialized").len();
    assert_eq!(handshakes, usize::from(era == "legacy"));
}

/// C155: any error means legacy, whatever its code, and `initialize` follows on the same child.
#[test]
fn an_error_at_discovery_means_legacy() {
    for kind in ["-32602", "-32000", "0", "-32020", "-32021", "no-message"] {
        let (daemon, status) = running(&["--discover", kind]);
        expect(&daemon, &status, "legacy", 1);
        assert_eq!(
            daemon.record("fake").with_method("initialize").len(),
            1,
            "{kind}"
        );
    }
}

/// C153: a child that ends at any request before `initialize` gets a fresh start that begins with it.
#[test]
fn a_child_that_exits_at_discovery_is_started_again_as_legacy() {
    let (daemon, status) = running(&["--discover", "exit"]);
    expect(&daemon, &status, "legacy", 2);
    let (daemon, status) = running(&["--strict-opening"]);
    expect(&daemon, &status, "legacy", 2);
}

/// A child that says nothing to a discovery gets `initialize` too, and nobody is killed.
#[test]
fn a_child_that_hangs_at_discovery_is_legacy() {
    let (daemon, status) = running(&["--discover", "none"]);
    expect(&daemon, &status, "legacy", 1);
}

/// A modern child is spoken to as one: no `initialize`, and legacy hosts are served all the same.
#[test]
fn a_discovery_that_is_answered_means_modern() {
    let (daemon, status) = running(&["--discover", "modern"]);
    expect(&daemon, &status, "modern", 1);
    assert!(daemon.record("fake").with_method("initialize").is_empty());
    let mut host = daemon.socket_host("fake");
    host.initialize();
    let shown = daemon.mcpd(&["status", "fake"]).stdout;
    let told = "2025-11-25 (translated: legacy host, modern server)";
    assert!(shown.contains(told), "{shown}");
    let shown = daemon.mcpd(&["status", "--hosts"]).stdout;
    assert!(shown.contains("2025-11-25 (translated)"), "{shown}");
}

/// `-32022` says what the child speaks: a modern version that is common counts first.
#[test]
fn a_refusal_that_names_versions_tells_the_era() {
    let (daemon, status) = running(&["--discover", "names=2026-07-28+2025-11-25"]);
    expect(&daemon, &status, "modern", 1);
    let (daemon, status) = running(&["--discover", "names=2025-11-25"]);
    expect(&daemon, &status, "legacy", 1);
}

/// With no version in common the server has failed, and the reason names what it speaks.
#[test]
fn a_child_without_a_version_in_common_has_failed_and_says_so() {
    let home = Home::new();
    home.fake_with(
        "fake",
        &["--discover", "names=2099-01-01"],
        "start_limit = 1\n",
    );
    let daemon = home.start();
    let status = daemon.wait_for_state("fake", "failed");
    assert!(status.to_string().contains("2099-01-01"), "{status:#}");
}

/// A launcher that reads nothing until long after the discovery is not killed for it: both questions wait
/// for it, and what it answers then counts, in any order.
#[test]
fn a_launcher_that_reads_late_is_told_by_its_answers() {
    let (daemon, status) = running(&["--read-late"]);
    expect(&daemon, &status, "legacy", 1);
    let (daemon, status) = running(&["--read-late", "--discover", "none"]);
    expect(&daemon, &status, "legacy", 1);
    let (daemon, status) = running(&["--read-late", "--discover", "modern"]);
    expect(&daemon, &status, "modern", 1);
}

/// A discovery that is answered after `initialize` was refused still means modern.
#[test]
fn a_late_answer_to_the_discovery_means_modern() {
    let (daemon, status) = running(&["--discover", "late"]);
    expect(&daemon, &status, "modern", 1);
}

/// If both succeed the session holds, and the next child is asked in the modern way.
#[test]
fn a_session_that_is_open_stays_and_the_next_child_is_modern() {
    let (daemon, status) = running(&["--read-late", "--discover", "both"]);
    expect(&daemon, &status, "legacy", 1);
    assert_eq!(
        daemon.record("fake").with_method("server/discover").len(),
        1
    );
}

/// What was found out is remembered: a child of the same configuration is not asked again.
#[test]
fn a_legacy_child_is_not_asked_twice() {
    let (daemon, status) = running(&["--discover", "-32602"]);
    expect(&daemon, &status, "legacy", 1);
    daemon.kill_server("fake");
    daemon.wait_for_state("fake", "running");
    let record = daemon.record("fake");
    assert_eq!(record.with_method("server/discover").len(), 1);
    assert_eq!(record.with_method("initialize").len(), 2);
}
