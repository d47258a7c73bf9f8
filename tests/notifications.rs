//! Notifications: who gets them, with which token, and what is made again after a restart.

use std::fs;

use serde_json::{Value, json};

use crate::common::{Home, RawHost, error_code, text_of, wait_until};

fn progress_call(host: &mut RawHost, id: &Value, token: &Value, arguments: &Value) {
    host.send(
        &json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params":
        {"name": "progress", "arguments": arguments, "_meta": {"progressToken": token}}}),
    );
}

/// Progress reaches the host that asked, with the token exactly as sent, also where two hosts chose the same.
#[test]
fn progress_reaches_its_asker_with_its_own_token() {
    let home = Home::new();
    home.fake("fake", &[]);
    let daemon = home.start();
    let mut one = daemon.socket_host("fake");
    let mut two = daemon.socket_host("fake");
    one.initialize();
    two.initialize();
    let token = json!("same token");
    progress_call(&mut one, &json!(100), &token, &json!({"n": 3, "ms": 5}));
    progress_call(&mut two, &json!(100), &token, &json!({"n": 2, "ms": 5}));
    for (host, count) in [(&mut one, 3), (&mut two, 2)] {
        assert_eq!(text_of(&host.answer(100)), "done");
        let progress = host.notifications_up_to_now("notifications/progress");
        assert_eq!(progress.len(), count);
        assert!(
            progress
                .iter()
                .all(|message| message["params"]["progressToken"] == token),
            "{progress:?}"
        );
    }
}

/// C174: progress with a token that is made up, finished or of a host that left reaches nobody.
#[test]
fn stray_progress_reaches_nobody() {
    let home = Home::new();
    home.fake("fake", &[]);
    let daemon = home.start();
    let mut host = daemon.socket_host("fake");
    let mut other = daemon.socket_host("fake");
    let mut leaving = daemon.socket_host("fake");
    for host in [&mut host, &mut other, &mut leaving] {
        host.initialize();
    }
    for kind in ["wrong", "after"] {
        progress_call(&mut host, &json!(kind), &json!(7), &json!({"token": kind}));
        assert_eq!(text_of(&host.answer(kind)), "done");
    }
    progress_call(
        &mut leaving,
        &json!(1000),
        &json!(7),
        &json!({"n": 20, "ms": 20}),
    );
    leaving.notification("notifications/progress");
    leaving.vanish();
    daemon.record("fake").wait_for("notifications/cancelled", 1);
    for host in [&mut host, &mut other] {
        assert_eq!(host.text("sleep", json!({"ms": 600})), "slept");
        assert_eq!(
            host.notifications_up_to_now("notifications/progress"),
            Vec::<Value>::new()
        );
    }
    let status = daemon.server_status("fake");
    assert!(
        status["requests"]["unknown_progress"]
            .as_u64()
            .is_some_and(|count| count >= 6),
        "they are counted: {status}"
    );
    assert!(daemon.mcpd(&["status", "fake"]).stdout.contains("dropped"));
}

/// C176: no total limit by default; a limit that is set counts from the write and cancels upstream.
#[test]
fn a_request_timeout_is_the_only_limit_of_a_call() {
    let home = Home::new();
    home.fake("free", &[]);
    home.fake_with("limited", &[], "request_timeout = \"300ms\"\n");
    let daemon = home.start();
    let mut limited = daemon.socket_host("limited");
    limited.initialize();
    let answer = limited.call("sleep", json!({"ms": 20_000}));
    assert_eq!(error_code(&answer), -31003, "{answer}");
    daemon
        .record("limited")
        .wait_for("notifications/cancelled", 1);
    let mut free = daemon.socket_host("free");
    free.initialize();
    assert_eq!(free.text("sleep", json!({"ms": 2_000})), "slept");
}

/// C178: a host that dies has its open calls cancelled upstream, with the child's ids; others go on.
#[test]
fn a_departed_hosts_calls_are_cancelled_upstream() {
    let home = Home::new();
    home.fake("fake", &[]);
    let daemon = home.start();
    let mut leaving = daemon.connect_host("fake");
    let mut staying = daemon.connect_host("fake");
    leaving.initialize();
    staying.initialize();
    for _ in 0..3 {
        leaving.start_call("sleep", json!({"ms": 20_000}));
    }
    let record = daemon.record("fake");
    let calls = record.wait_for("tools/call", 3);
    let kept = staying.start_call("sleep", json!({"ms": 1_500, "text": "kept"}));
    record.wait_for("tools/call", 4);
    leaving.vanish();
    let cancelled = record.wait_for("notifications/cancelled", 3);
    let mut ids: Vec<_> = cancelled
        .iter()
        .filter_map(|one| one["params"]["requestId"].as_u64())
        .collect();
    let mut wanted: Vec<_> = calls
        .iter()
        .filter_map(|call| call["id"].as_u64())
        .collect();
    ids.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(ids, wanted);
    assert_eq!(text_of(&staying.answer(kept)), "kept");
}

/// A host's cancellation reaches the child with the child's id; no answer follows; other calls go on.
#[test]
fn a_cancellation_is_mapped_and_ends_the_call() {
    let home = Home::new();
    home.fake("fake", &[]);
    let daemon = home.start();
    let mut host = daemon.socket_host("fake");
    host.initialize();
    host.send(
        &json!({"jsonrpc": "2.0", "id": "abc", "method": "tools/call", "params":
        {"name": "sleep", "arguments": {"ms": 20_000}}}),
    );
    let record = daemon.record("fake");
    let call = &record.wait_for("tools/call", 1)[0];
    host.notify(
        "notifications/cancelled",
        json!({"requestId": "abc", "reason": "enough"}),
    );
    let cancelled = &record.wait_for("notifications/cancelled", 1)[0];
    assert_eq!(cancelled["params"]["requestId"], call["id"]);
    assert_eq!(cancelled["params"]["reason"], "enough");
    host.notify("notifications/cancelled", json!({"requestId": "unknown"}));
    host.notify("notifications/cancelled", json!({}));
    assert!(host.everything_up_to_now().is_empty());
    assert_eq!(record.with_method("notifications/cancelled").len(), 1);
}

/// C180: cancelling one's own `initialize` sends nothing upstream and does not stop a shared start.
#[test]
fn cancelling_initialize_disturbs_nobody() {
    let home = Home::new();
    home.fake("fake", &["--ready-after", "1500"]);
    let daemon = home.start();
    let mut one = daemon.socket_host("fake");
    let mut two = daemon.socket_host("fake");
    let id = one.request("initialize", crate::common::initialize_params("2025-11-25"));
    one.notify("notifications/cancelled", json!({"requestId": id}));
    two.initialize();
    assert_eq!(two.text("sum", json!({"a": 1})), "1");
    assert!(
        daemon
            .record("fake")
            .with_method("notifications/cancelled")
            .is_empty()
    );
}

/// C182: after a restart with other tools every host is told; after one with the same tools nobody is.
#[test]
fn a_restart_announces_only_a_changed_catalogue() {
    let home = Home::new();
    let toolset = home.write("toolset", "v1");
    home.fake("fake", &["--toolset", toolset.to_str().expect("plain")]);
    let daemon = home.start();
    let mut host = daemon.socket_host("fake");
    host.initialize();
    let names = |answer: &Value| answer["result"]["tools"].as_array().expect("tools").len();
    assert_eq!(names(&host.ask("tools/list", json!({}))), 1);
    daemon.mcpd(&["restart", "fake"]).expect_code(0);
    daemon.wait_for("fake", "the second run", |server| {
        server["state"] == "running" && server["generation"] == 2
    });
    assert_eq!(
        host.notifications_up_to_now("notifications/tools/list_changed")
            .len(),
        0
    );
    fs::write(&toolset, "v2").expect("the toolset");
    daemon.mcpd(&["restart", "fake"]).expect_code(0);
    host.notification("notifications/tools/list_changed");
    assert_eq!(names(&host.ask("tools/list", json!({}))), 2);
}

/// C184: a list change reaches every host, declared or not; unknown notifications pass unchanged.
#[test]
fn list_changes_and_unknown_notifications_reach_every_host() {
    let home = Home::new();
    home.fake(
        "fake",
        &["--capabilities", r#"{"tools":{},"resources":{}}"#],
    );
    let daemon = home.start();
    let mut one = daemon.socket_host("fake");
    let mut two = daemon.socket_host("fake");
    let result = one.initialize();
    assert_eq!(
        result["capabilities"]["tools"]["listChanged"], true,
        "{result}"
    );
    two.initialize();
    one.call("list_changed", json!({"kind": "tools"}));
    one.call(
        "notify",
        json!({"method": "notifications/x-foo", "params": {"z": 1, "a": [1.50]}}),
    );
    for host in [&mut one, &mut two] {
        host.notification("notifications/tools/list_changed");
        assert_eq!(
            host.notification("notifications/x-foo")["params"],
            json!({"z": 1, "a": [1.50]})
        );
    }
}

/// A list change does not reach a host whose `initialize` has not been answered.
#[test]
fn a_host_hears_nothing_before_its_handshake() {
    let home = Home::new();
    home.fake("fake", &[]);
    let daemon = home.start();
    let mut early = daemon.socket_host("fake");
    assert_eq!(early.ask("ping", json!({}))["result"], json!({}));
    let mut host = daemon.socket_host("fake");
    host.initialize();
    host.call("list_changed", json!({}));
    host.notification("notifications/tools/list_changed");
    let id = early.request("initialize", crate::common::initialize_params("2025-11-25"));
    let first = early.wait_line("the first line", |_| true);
    assert_eq!(first.json["id"], id);
}

/// C186: subscriptions are counted per uri, released when a host leaves, and made again after a restart.
#[test]
fn subscriptions_are_counted_and_made_again() {
    let home = Home::new();
    home.fake("fake", &[]);
    let daemon = home.start();
    let record = daemon.record("fake");
    let mut one = daemon.connect_host("fake");
    let mut two = daemon.connect_host("fake");
    one.initialize();
    two.initialize();
    let uri = json!({"uri": "fake://one"});
    for host in [&mut one, &mut two] {
        assert_eq!(
            host.ask("resources/subscribe", uri.clone())["result"],
            json!({})
        );
    }
    assert_eq!(
        one.ask("resources/subscribe", uri.clone())["result"],
        json!({})
    );
    assert_eq!(
        one.ask("resources/unsubscribe", uri.clone())["result"],
        json!({})
    );
    one.call("update", uri.clone());
    two.notification("notifications/resources/updated");
    assert!(
        one.notifications_up_to_now("notifications/resources/updated")
            .is_empty()
    );
    assert!(
        record.with_method("resources/unsubscribe").is_empty(),
        "two still holds it"
    );

    assert_eq!(
        one.ask("resources/subscribe", uri.clone())["result"],
        json!({})
    );
    one.vanish();
    let before = record.with_method("resources/subscribe").len();
    daemon.kill_server("fake");
    record.wait_for("resources/subscribe", before + 1);
    assert!(two.call("update", uri.clone())["result"].is_object());
    two.notification("notifications/resources/updated");
    two.vanish();
    record.wait_for("resources/unsubscribe", 1);
}

/// Each host has its own level; the child is asked for the most verbose of them.
#[test]
fn log_levels_are_kept_for_each_host() {
    let home = Home::new();
    home.fake("fake", &[]);
    let daemon = home.start();
    let mut quiet = daemon.socket_host("fake");
    let mut loud = daemon.socket_host("fake");
    let mut unset = daemon.socket_host("fake");
    for host in [&mut quiet, &mut loud, &mut unset] {
        host.initialize();
    }
    assert_eq!(
        quiet.ask("logging/setLevel", json!({"level": "error"}))["result"],
        json!({})
    );
    assert_eq!(
        loud.ask("logging/setLevel", json!({"level": "debug"}))["result"],
        json!({})
    );
    let levels = || -> Vec<Value> {
        daemon
            .record("fake")
            .with_method("logging/setLevel")
            .iter()
            .map(|one| one["params"]["level"].clone())
            .collect()
    };
    assert_eq!(levels().last(), Some(&json!("debug")));
    for level in ["debug", "info", "error"] {
        loud.call("log", json!({"level": level, "text": level}));
    }
    let heard = |host: &mut RawHost| -> Vec<Value> {
        let messages = host.notifications_up_to_now("notifications/message");
        messages
            .iter()
            .map(|message| message["params"]["level"].clone())
            .collect()
    };
    assert_eq!(heard(&mut loud), ["debug", "info", "error"]);
    assert_eq!(heard(&mut unset), ["info", "error"]);
    assert_eq!(heard(&mut quiet), ["error"]);
    let invalid = loud.ask("logging/setLevel", json!({"level": "shout"}));
    assert_eq!(error_code(&invalid), -32602, "{invalid}");
    let before = levels().len();
    daemon.kill_server("fake");
    wait_until("the level is set again", || {
        (levels().len() > before).then_some(())
    });
    assert_eq!(levels().last(), Some(&json!("debug")));
}

/// C188: a child that refuses a level refuses it to the host that asked; nothing else suffers.
#[test]
fn a_refused_level_is_the_askers_error_only() {
    let home = Home::new();
    home.fake("fake", &["--refuse-level"]);
    let daemon = home.start();
    let mut host = daemon.socket_host("fake");
    host.initialize();
    assert_eq!(
        error_code(&host.ask("logging/setLevel", json!({"level": "debug"}))),
        -32601
    );
    daemon.kill_server("fake");
    daemon.wait_for_state("fake", "running");
    assert_eq!(host.text("sum", json!({"a": 1})), "1");
    assert!(host.everything_up_to_now().is_empty());
}

/// C037: a child that never answers ping is never restarted for that.
#[test]
fn a_child_that_drops_ping_is_left_alone() {
    let home = Home::new();
    home.fake("fake", &["--drop-ping"]);
    let daemon = home.start();
    let mut host = daemon.socket_host("fake");
    host.initialize();
    assert_eq!(
        host.ask("ping", json!({}))["result"],
        json!({}),
        "ping is answered locally"
    );
    assert_eq!(host.text("sleep", json!({"ms": 3_000})), "slept");
    assert_eq!(daemon.record("fake").starts(), 1);
    assert!(daemon.record("fake").with_method("ping").is_empty());
}

/// A request of a shared child is answered at once: nobody offered it a capability; its ping is answered.
#[test]
fn a_childs_question_is_refused_and_its_ping_answered() {
    let home = Home::new();
    home.fake("fake", &[]);
    let daemon = home.start();
    let mut host = daemon.socket_host("fake");
    host.initialize();
    let initialize = &daemon.record("fake").with_method("initialize")[0];
    assert_eq!(
        initialize["params"]["capabilities"],
        json!({}),
        "nothing is declared that nobody offers"
    );
    assert_eq!(host.text("ask", json!({"method": "ping"})), "{}");
    let refused = host.text("ask", json!({"method": "sampling/createMessage"}));
    assert!(refused.contains("-32601"), "{refused}");
    let everything = host.everything_up_to_now();
    assert!(
        everything.is_empty(),
        "the host hears nothing of it: {everything:?}"
    );
}

/// An update for a uri that nobody subscribed reaches the holders of a prefix of it; where there are none,
/// every holder of any.
#[test]
fn an_update_finds_its_holders() {
    let home = Home::new();
    home.fake("fake", &[]);
    let daemon = home.start();
    let mut exact = daemon.socket_host("fake");
    let mut prefix = daemon.socket_host("fake");
    let mut none = daemon.socket_host("fake");
    for (host, uri) in [
        (&mut exact, Some("fake://folder/file")),
        (&mut prefix, Some("fake://folder/")),
        (&mut none, None),
    ] {
        host.initialize();
        if let Some(uri) = uri {
            assert_eq!(
                host.ask("resources/subscribe", json!({"uri": uri}))["result"],
                json!({})
            );
        }
    }
    for (uri, holders) in [
        ("fake://folder/file", [1, 0, 0]),
        ("fake://folder/other", [0, 1, 0]),
        ("other://place", [1, 1, 0]),
    ] {
        none.call("update", json!({"uri": uri}));
        let heard = [&mut exact, &mut prefix, &mut none].map(|host| {
            host.notifications_up_to_now("notifications/resources/updated")
                .len()
        });
        assert_eq!(heard, holders, "{uri}");
    }
}
