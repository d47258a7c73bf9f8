//! How a session begins: one handshake a child, any number of hosts.

use serde_json::json;

use crate::common::{Home, error_code};

/// The host is answered from what the child said of itself.
#[test]
fn initialize_is_answered_from_the_child() {
    let home = Home::new();
    home.fake("fake", &[]);
    let daemon = home.start();
    let mut host = daemon.socket_host("fake");
    let result = host.initialize();
    assert_eq!(result["serverInfo"]["name"], "fake");
    assert_eq!(result["protocolVersion"], "2025-11-25");
    assert!(
        result["instructions"]
            .as_str()
            .is_some_and(|text| text.starts_with("pid ")),
        "{result}"
    );
    assert_eq!(result["capabilities"]["resources"]["subscribe"], true);
    assert_eq!(host.text("sum", json!({"a": 2, "b": 3})), "5");
}

/// C141: the server sees one `initialize` and one `initialized`, whoever comes when.
#[test]
fn a_child_is_initialized_once_for_all_hosts() {
    let home = Home::new();
    home.fake("fake", &["--once", "--initialize-after", "500"]);
    let daemon = home.start();
    let mut one = daemon.socket_host("fake");
    let mut two = daemon.connect_host("fake");
    let first = one.request("initialize", crate::common::initialize_params("2025-11-25"));
    let second = two.initialize();
    assert_eq!(one.answer(first)["result"], second);
    one.notify("notifications/initialized", json!({}));
    let mut three = daemon.socket_host("fake");
    three.initialize();
    for host in [&mut one, &mut two, &mut three] {
        assert_eq!(host.text("sum", json!({"a": 1, "b": 1})), "2");
    }
    let record = daemon.record("fake");
    assert_eq!(record.with_method("initialize").len(), 1);
    assert_eq!(record.with_method("notifications/initialized").len(), 1);
    assert_eq!(record.starts(), 1);
}

/// C143: the first reply to `initialize` counts, a second is dropped and counted.
#[test]
fn a_second_initialize_reply_is_dropped() {
    let home = Home::new();
    home.fake("fake", &["--initialize", "twice"]);
    let daemon = home.start();
    let mut host = daemon.socket_host("fake");
    assert_eq!(host.initialize()["serverInfo"]["name"], "fake");
    assert_eq!(host.everything_up_to_now().len(), 0);
    let mut other = daemon.socket_host("fake");
    assert_eq!(other.initialize()["serverInfo"]["name"], "fake");
    assert_eq!(daemon.server_status("fake")["requests"]["late_answers"], 1);
}

/// A host that initializes again is answered again, with nothing sent upstream.
#[test]
fn a_repeated_initialize_is_answered_again() {
    let home = Home::new();
    home.fake("fake", &["--once"]);
    let daemon = home.start();
    let mut host = daemon.socket_host("fake");
    let first = host.initialize();
    assert_eq!(host.initialize(), first);
    assert_eq!(host.text("sum", json!({"a": 1, "b": 2})), "3");
}

/// C145: the host sees the version that the child speaks, not the one it asked for.
#[test]
fn the_version_is_the_childs() {
    let home = Home::new();
    home.fake("fake", &["--versions", "2024-11-05"]);
    let daemon = home.start();
    let mut host = daemon.socket_host("fake");
    assert_eq!(
        host.initialize_as("2025-11-25")["protocolVersion"],
        "2024-11-05"
    );
}

/// C147: each host gets the version that it asked for if that is one of ours and not newer than the child's;
/// anything else gets the newest that the child allows.
#[test]
fn each_host_gets_a_version_that_it_can_speak() {
    let home = Home::new();
    home.fake("fake", &["--versions", "2025-06-18,2025-03-26,2024-11-05"]);
    let daemon = home.start();
    let cases = [
        ("2025-11-25", "2025-06-18"),
        ("2025-06-18", "2025-06-18"),
        ("2025-03-26", "2025-03-26"),
        ("2024-11-05", "2024-11-05"),
        ("2026-07-28", "2025-06-18"),
        ("1999-01-01", "2025-06-18"),
    ];
    for (asked, answered) in cases {
        let mut host = daemon.socket_host("fake");
        assert_eq!(
            host.initialize_as(asked)["protocolVersion"],
            answered,
            "asked for {asked}"
        );
    }
    assert_eq!(daemon.record("fake").with_method("initialize").len(), 1);
}

/// C149: what a child says before its `initialize` reply reaches no host before the host's own.
#[test]
fn nothing_precedes_the_initialize_reply() {
    let home = Home::new();
    home.fake("fake", &["--notify-first"]);
    let daemon = home.start();
    let mut host = daemon.socket_host("fake");
    let id = host.request("initialize", crate::common::initialize_params("2025-11-25"));
    let first = host.wait_line("the first line", |_| true);
    assert_eq!(first.json["id"], id, "{}", first.text());
}

/// C151: ping is answered at once, before the handshake and while the child still starts.
#[test]
fn ping_is_answered_before_initialize() {
    let home = Home::new();
    home.fake("fake", &["--ready-after", "3000"]);
    let daemon = home.start();
    let mut host = daemon.connect_host("fake");
    let pinged = host.ask("ping", json!({}));
    assert_eq!(pinged["result"], json!({}));
    assert_ne!(
        daemon.server_status("fake")["state"],
        "running",
        "ping waited for the child"
    );
    host.initialize();
    assert_eq!(
        daemon.record("fake").with_method("ping").len(),
        0,
        "ping is answered locally"
    );
}

/// Before `initialize` only ping is served; the error says so.
#[test]
fn a_request_before_initialize_is_refused() {
    let home = Home::new();
    home.fake_with("fake", &["--strict-opening"], "protocol = \"legacy\"\n");
    let daemon = home.start();
    let mut host = daemon.socket_host("fake");
    let answer = host.ask("tools/list", json!({}));
    assert!(
        answer["error"]["message"]
            .as_str()
            .is_some_and(|text| text.contains("initialize")),
        "{answer}"
    );
    host.initialize();
    assert_eq!(daemon.record("fake").starts(), 1);
}

/// A child that refuses `initialize` is reported with what it said, to the host and in status.
#[test]
fn a_refused_initialize_reaches_the_host_with_its_reason() {
    let home = Home::new();
    home.fake_with("fake", &["--initialize", "error"], "start_limit = 1\n");
    let daemon = home.start();
    let mut host = daemon.socket_host("fake");
    let answer = host.ask("initialize", crate::common::initialize_params("2025-11-25"));
    assert_eq!(error_code(&answer), -31000);
    assert!(
        answer.to_string().contains("the licence has expired"),
        "{answer}"
    );
    let status = daemon.wait_for_state("fake", "failed");
    assert!(status.to_string().contains("protocol"), "{status}");
}
