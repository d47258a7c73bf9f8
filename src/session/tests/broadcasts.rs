//! What the child says to nobody in particular: list changes, updates, log messages.

use super::*;

const CHANGED: &str = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;

fn log(level: &str) -> String {
    notification(
        "notifications/message",
        &format!(r#"{{"level":"{level}","data":"x"}}"#),
    )
}

fn set_level(id: &str, level: &str) -> String {
    request(id, "logging/setLevel", &format!(r#"{{"level":"{level}"}}"#))
}

fn subscribe(id: &str, uri: &str) -> String {
    request(id, "resources/subscribe", &format!(r#"{{"uri":"{uri}"}}"#))
}

fn unsubscribe(id: &str, uri: &str) -> String {
    request(
        id,
        "resources/unsubscribe",
        &format!(r#"{{"uri":"{uri}"}}"#),
    )
}

fn updated(uri: &str) -> String {
    notification(
        "notifications/resources/updated",
        &format!(r#"{{"uri":"{uri}"}}"#),
    )
}

fn empty(id: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#)
}

#[test]
fn notifications_known_and_unknown_go_to_every_host_as_they_are() {
    let mut bench = Bench::serving(config(), &[A, B]);
    bench.attach(C);
    for text in [
        CHANGED.to_owned(),
        notification("notifications/prompts/list_changed", r#"{"x":1.0}"#),
        notification("notifications/x-foo", r#"{"\ud800":[ ]}"#),
    ] {
        bench.child(&text);
        bench.expect_host(A, &[&text]);
        bench.expect_host(B, &[&text]);
    }
    bench.expect_host(C, &[]);
    bench.child(notification(
        "notifications/cancelled",
        r#"{"requestId":5}"#,
    ));
    bench.expect_host(A, &[]);
}

#[test]
fn a_subscription_is_made_once_and_undone_with_its_last_holder() {
    let mut bench = Bench::serving(config(), &[A, B]);
    bench.host(A, &subscribe("1", "u1"));
    bench.expect_child(&[&subscribe("5", "u1")]);
    bench.child(empty("5"));
    bench.expect_host(A, &[&empty("1")]);
    bench.host(B, &subscribe("1", "\\u0075\\u0031"));
    bench.host(A, &subscribe("2", "u1"));
    bench.expect_host(B, &[&empty("1")]);
    bench.expect_host(A, &[&empty("2")]);
    bench.host(A, &unsubscribe("3", "u1"));
    bench.expect_host(A, &[&empty("3")]);
    bench.expect_child(&[]);
    bench.child(updated("u1"));
    bench.expect_host(A, &[]);
    bench.expect_host(B, &[&updated("u1")]);
    bench.leave(A);
    bench.expect_child(&[]);
    bench.host(B, &unsubscribe("2", "u1"));
    bench.expect_child(&[&unsubscribe("6", "u1")]);
    bench.child(empty("6"));
    bench.expect_host(B, &[&empty("2")]);
    assert!(!bench.mux.is_busy());
}

#[test]
fn a_holder_that_leaves_is_unsubscribed() {
    let mut bench = Bench::serving(config(), &[A]);
    bench.host(A, &subscribe("1", "u1"));
    bench.child(empty("5"));
    bench.host(A, &subscribe("2", "u2"));
    bench.take_child();
    bench.leave(A);
    let told = bench.take_child();
    assert!(told[0].contains("notifications/cancelled"), "{told:?}");
    assert_eq!(told[1..], [unsubscribe("7", "u2"), unsubscribe("8", "u1")]);
}

#[test]
fn updates_find_the_holders_of_the_uri_of_a_prefix_or_all() {
    let mut bench = Bench::serving(config(), &[A, B]);
    for (host, id, uri) in [(A, "5", "file:///a"), (B, "6", "file:///b")] {
        bench.host(host, &subscribe("1", uri));
        bench.child(empty(id));
        bench.take_host(host);
    }
    for (uri, receivers) in [("file:///a", 1), ("file:///b/x", 2), ("db://", 3)] {
        bench.child(updated(uri));
        let got = usize::from(!bench.take_host(A).is_empty())
            + 2 * usize::from(!bench.take_host(B).is_empty());
        assert_eq!(got, receivers, "{uri}");
    }
}

#[test]
fn a_refused_subscription_is_not_held_and_the_host_hears_why() {
    let mut bench = Bench::serving(config(), &[A, B]);
    bench.host(A, &subscribe("1", "u1"));
    bench.child(r#"{"jsonrpc":"2.0","id":5,"error":{"code":-32002,"message":"no"}}"#);
    bench.expect_error(A, "1", -32002);
    bench.child(updated("u1"));
    bench.expect_host(A, &[]);
    bench.host(B, &request("2", "resources/subscribe", "{}"));
    bench.expect_error(B, "2", -32602);
}

#[test]
fn subscriptions_and_levels_are_made_again_for_a_new_child() {
    let mut bench = Bench::serving(config(), &[A, B]);
    bench.host(A, &subscribe("1", "u1"));
    bench.child(empty("5"));
    bench.host(A, &set_level("2", "error"));
    bench.child(empty("6"));
    bench.take_host(A);
    bench.crash();
    bench.host(B, &subscribe("1", "u1"));
    bench.start();
    bench.open();
    bench.expect_child(&[
        &set_level("5", "info"),
        &subscribe("6", "u1"),
        &subscribe("7", "u1"),
    ]);
    for id in ["5", "6", "7"] {
        bench.child(empty(id));
    }
    bench.expect_host(B, &[&empty("1")]);
    bench.child(updated("u1"));
    assert_eq!((bench.take_host(A).len(), bench.take_host(B).len()), (1, 1));
    bench.child(log("warning"));
    assert_eq!((bench.take_host(A).len(), bench.take_host(B).len()), (0, 1));
}

#[test]
fn the_child_gets_the_most_verbose_level_and_each_host_its_own() {
    let mut bench = Bench::serving(config(), &[A, B]);
    bench.child(log("debug"));
    assert_eq!((bench.take_host(A).len(), bench.take_host(B).len()), (1, 1));
    bench.host(A, &set_level("1", "debug"));
    bench.expect_child(&[&set_level("5", "debug")]);
    bench.child(empty("5"));
    bench.host(B, &set_level("1", "error"));
    bench.expect_child(&[]);
    bench.expect_host(A, &[&empty("1")]);
    bench.expect_host(B, &[&empty("1")]);
    for (level, a, b) in [
        ("debug", 1, 0),
        ("warning", 1, 0),
        ("error", 1, 1),
        ("emergency", 1, 1),
    ] {
        bench.child(log(level));
        assert_eq!(
            (bench.take_host(A).len(), bench.take_host(B).len()),
            (a, b),
            "{level}"
        );
    }
    bench.leave(A);
    bench.expect_child(&[&set_level("6", "error")]);
}

#[test]
fn a_host_without_a_level_hears_info_once_another_has_set_one() {
    let mut bench = Bench::serving(config(), &[A, B]);
    bench.host(A, &set_level("1", "error"));
    bench.expect_child(&[&set_level("5", "info")]);
    bench.child(empty("5"));
    bench.take_host(A);
    for (level, a, b) in [("debug", 0, 0), ("info", 0, 1), ("alert", 1, 1)] {
        bench.child(log(level));
        assert_eq!(
            (bench.take_host(A).len(), bench.take_host(B).len()),
            (a, b),
            "{level}"
        );
    }
}

#[test]
fn a_child_without_set_level_answers_the_host_and_is_not_asked_again() {
    let refused = |id: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32601,"message":"no"}}}}"#)
    };
    let mut bench = Bench::serving(config(), &[A]);
    bench.host(A, &set_level("1", "error"));
    bench.child(refused("5"));
    bench.expect_error(A, "1", -32601);
    bench.take_child();
    bench.child(log("debug"));
    assert_eq!(bench.take_host(A).len(), 1);
    bench.crash();
    bench.start();
    bench.open();
    bench.expect_child(&[]);
    bench.host(A, &set_level("2", "chatty"));
    bench.expect_error(A, "2", -32602);
}

#[test]
fn a_refusal_of_our_own_request_for_a_level_harms_nobody() {
    let mut bench = Bench::serving(config(), &[A]);
    bench.host(A, &set_level("1", "error"));
    bench.child(empty("5"));
    bench.crash();
    bench.start();
    bench.open();
    bench.expect_child(&[&set_level("5", "error")]);
    bench.child(r#"{"jsonrpc":"2.0","id":5,"error":{"code":-32601,"message":"no"}}"#);
    bench.expect_child(&[]);
    bench.host(A, &call("2"));
    bench.expect_child(&[&call("6")]);
}

/// Lists `seen` for A, restarts the child and lets it list `now`; whether hosts were told.
#[track_caller]
fn check_restart(seen: &str, now: &str, is_told: bool) {
    let list = |id: &str, tools: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"tools":{tools}}}}}"#)
    };
    let mut bench = Bench::serving(config(), &[A, B]);
    bench.host(A, &request("1", "tools/list", "{}"));
    bench.child(list("5", seen));
    bench.take_host(A);
    bench.crash();
    bench.start();
    bench.open();
    bench.expect_child(&[r#"{"jsonrpc":"2.0","id":5,"method":"tools/list"}"#]);
    bench.child(list("5", now));
    let told: &[&str] = if is_told { &[CHANGED] } else { &[] };
    bench.expect_host(A, told);
    bench.expect_host(B, told);
    bench.expect_quiet();
}

#[test]
fn after_a_restart_hosts_hear_of_lists_only_if_they_differ() {
    check_restart(r#"[{"name":"a"}]"#, r#"[{"name":"a"}]"#, false);
    check_restart(
        r#"[{"name":"a"},{"name":"b"}]"#,
        r#"[ {"name":"b"}, {"name":"a"} ]"#,
        false,
    );
    check_restart(r#"[{"name":"a"}]"#, r#"[{"name":"a"},{"name":"b"}]"#, true);
    check_restart(r#"[{"name":"a"}]"#, r#"[{"name":"a","title":"t"}]"#, true);
}

#[test]
fn a_new_child_that_cannot_list_any_more_is_a_difference() {
    let mut bench = Bench::serving(config(), &[A]);
    bench.host(A, &request("1", "tools/list", "{}"));
    bench.child(r#"{"jsonrpc":"2.0","id":5,"result":{"tools":[{"name":"a"}]}}"#);
    bench.take_host(A);
    bench.crash();
    bench.start();
    bench.child(WELCOME.replace("\"tools\":{},", ""));
    bench.expect_host(A, &[CHANGED]);
}

#[test]
fn a_new_child_is_walked_through_all_its_pages() {
    let page = |id: &str, tool: &str, next: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"tools":["{tool}"]{next}}}}}"#)
    };
    let mut bench = Bench::serving(config(), &[A]);
    bench.host(A, &request("1", "tools/list", "{}"));
    bench.child(page("5", "a", r#","nextCursor":"c\u0031""#));
    bench.host(A, &request("2", "tools/list", r#"{"cursor":"c\u0031"}"#));
    bench.child(page("6", "b", ""));
    bench.crash();
    bench.take_host(A);
    bench.start();
    bench.open();
    bench.child(page("5", "a", r#","nextCursor":"d""#));
    let asked = bench.take_child();
    assert_eq!(asked[1], request("6", "tools/list", r#"{"cursor":"d"}"#));
    bench.child(page("6", "b", ""));
    bench.expect_host(A, &[]);
    assert_eq!(bench.mux.snapshot(bench.now).tools, Some(2));
}

#[test]
fn a_child_that_nobody_has_listed_is_not_asked_to_list() {
    let mut bench = Bench::serving(config(), &[A]);
    bench.crash();
    bench.start();
    bench.open();
    bench.child(CHANGED);
    assert_eq!(bench.take_host(A).len(), 1);
    bench.expect_child(&[]);
}
