//! The handshake: once with the child, any number of times with hosts.

use std::time::Duration;

use super::*;
use crate::protocol::{Revision, Version};

const ASKED: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"mcpd","version":"VERSION"}}}"#;
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

#[test]
fn hosts_that_come_at_any_time_share_one_upstream_handshake() {
    let mut bench = Bench::new(config());
    bench.attach(A);
    bench.host(A, &initialize("7", "2025-11-25"));
    bench.start();
    bench.attach(B);
    bench.host(B, &initialize("\"x\"", "2025-06-18"));
    bench.expect_child(&[&ASKED.replace("VERSION", env!("CARGO_PKG_VERSION"))]);
    bench.expect_host(A, &[]);
    bench.child(WELCOME);
    bench.expect_child(&[INITIALIZED]);
    let told = |id: &str, version: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{{"protocolVersion":"{version}","capabilities":{{"tools":{{"listChanged":true}},"prompts":{{"listChanged":true}},"resources":{{"listChanged":true,"subscribe":true}},"logging":{{}}}},"serverInfo":{{"name":"fake","version":"1"}}}}}}"#
        )
    };
    bench.expect_host(A, &[&told("7", "2025-11-25")]);
    bench.expect_host(B, &[&told("\"x\"", "2025-06-18")]);
    bench.attach(C);
    bench.host(C, &initialize("1.0", "2024-11-05"));
    bench.expect_host(C, &[&told("1.0", "2024-11-05")]);
    bench.expect_child(&[]);
    assert!(matches!(
        &bench.actions[..],
        [
            MuxAction::Demand,
            MuxAction::Remembered,
            MuxAction::Opened(_)
        ]
    ));
}

#[test]
fn twelve_hosts_before_the_start_are_all_answered() {
    let mut bench = Bench::new(config());
    for host in 1..=12 {
        bench.attach(HostKey(host));
        bench.host(HostKey(host), &initialize("0", "2025-11-25"));
    }
    bench.start();
    bench.open();
    for host in 1..=12 {
        assert_eq!(bench.take_host(HostKey(host)).len(), 1);
    }
    bench.expect_child(&[]);
}

#[test]
fn a_host_is_told_the_older_of_its_version_and_the_childs() {
    let mut bench = Bench::new(config());
    bench.start();
    bench.child(WELCOME.replace("2025-11-25", "2025-03-26"));
    for (host, asked, told) in [
        (1, "2025-11-25", "2025-03-26"),
        (2, "2024-11-05", "2024-11-05"),
        (3, "2026-07-28", "2025-03-26"),
        (4, "1.0", "2025-03-26"),
    ] {
        bench.attach(HostKey(host));
        bench.host(HostKey(host), &initialize("1", asked));
        let answer = bench.take_host(HostKey(host)).join("");
        assert!(
            answer.contains(&format!("\"protocolVersion\":\"{told}\"")),
            "{answer}"
        );
    }
}

#[test]
fn a_repeated_initialize_is_answered_again_and_hosts_own_initialized_is_taken_in() {
    let mut bench = Bench::serving(config(), &[A]);
    bench.host(A, &notification("notifications/initialized", "{}"));
    bench.host(A, &initialize("8", "2025-03-26"));
    assert!(bench.take_host(A).join("").contains("2025-03-26"));
    bench.expect_child(&[]);
    assert_eq!(
        bench.mux.snapshot(bench.now).hosts[0].version,
        Some(Revision::Legacy(Version::V2025_03_26))
    );
}

#[test]
fn ping_is_answered_at_once_at_any_time_and_both_ways() {
    let mut bench = Bench::new(config());
    bench.attach(A);
    bench.host(A, r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#);
    bench.expect_host(A, &[r#"{"jsonrpc":"2.0","id":"p","result":{}}"#]);
    bench.start();
    bench.child(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#);
    assert!(bench.take_child()[1].contains(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#));
    bench.child(WELCOME);
    bench.expect_child(&[INITIALIZED]);
}

#[test]
fn before_initialize_other_requests_are_refused_and_say_so() {
    let mut bench = Bench::serving(config(), &[]);
    bench.attach(A);
    bench.host(A, &call("1"));
    let error = bench.expect_error(A, "1", -32602);
    assert!(
        error["message"]
            .as_str()
            .is_some_and(|text| text.contains("initialize"))
    );
    bench.host(A, &notification("notifications/x", "{}"));
    bench.expect_child(&[]);
}

#[test]
fn what_follows_an_initialize_that_waits_waits_behind_it() {
    let mut bench = Bench::new(config());
    bench.attach(A);
    bench.host(A, &initialize("0", "2025-11-25"));
    bench.host(A, &notification("notifications/initialized", "{}"));
    bench.host(A, &call("1"));
    bench.start();
    bench.open();
    bench.expect_child(&[&call("5")]);
    assert_eq!(bench.take_host(A).len(), 1);
}

#[test]
fn a_second_answer_to_initialize_is_dropped_and_counted() {
    let mut bench = Bench::serving(config(), &[A]);
    bench.child(WELCOME.replace("fake", "other"));
    bench.expect_host(A, &[]);
    assert_eq!(bench.mux.snapshot(bench.now).counters.late_answers, 1);
    bench.host(A, &initialize("2", "2025-11-25"));
    assert!(bench.take_host(A).join("").contains("\"fake\""));
}

#[test]
fn nothing_of_the_child_reaches_a_host_before_its_initialize_was_answered() {
    let mut bench = Bench::new(config());
    bench.attach(A);
    bench.host(A, &initialize("0", "2025-11-25"));
    bench.start();
    for _ in 0..4 {
        bench.child(notification("notifications/tools/list_changed", "{}"));
    }
    bench.child(notification(
        "notifications/message",
        r#"{"level":"error","data":"x"}"#,
    ));
    bench.expect_host(A, &[]);
    bench.attach(B);
    bench.open();
    bench.child(notification("notifications/tools/list_changed", "{}"));
    assert_eq!(bench.take_host(A).len(), 2);
    bench.expect_host(B, &[]);
}

#[test]
fn a_cancelled_initialize_is_answered_all_the_same() {
    let mut bench = Bench::new(config());
    for host in [A, B] {
        bench.attach(host);
        bench.host(host, &initialize("0", "2025-11-25"));
    }
    bench.start();
    bench.host(
        A,
        &notification("notifications/cancelled", r#"{"requestId":0}"#),
    );
    bench.open();
    bench.expect_child(&[]);
    assert_eq!((bench.take_host(A).len(), bench.take_host(B).len()), (1, 1));
}

#[test]
fn a_start_goes_on_when_the_host_that_wanted_it_leaves() {
    let mut bench = Bench::new(config());
    bench.attach(A);
    bench.host(A, &initialize("0", "2025-11-25"));
    bench.start();
    bench.leave(A);
    bench.open();
    bench.expect_child(&[]);
    bench.expect_quiet();
    bench.join(B, "2025-11-25");
}

#[test]
fn a_refused_initialize_is_reported_with_what_the_child_said() {
    let mut bench = Bench::new(config());
    bench.attach(A);
    bench.host(A, &initialize("0", "2025-11-25"));
    bench.start();
    bench.actions.clear();
    bench.child(r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"no licence"}}"#);
    let [MuxAction::OpeningFailed(why)] = &bench.actions[..] else {
        panic!("{:?}", bench.actions);
    };
    assert!(why.message.contains("no licence"));
    let why = why.clone();
    bench.expect_host(A, &[]);
    bench.crash();
    bench.set_service(Service::Unavailable(why));
    let error = bench.expect_error(A, "0", -31000);
    assert_eq!(error["data"]["server"], "srv");
    assert_eq!(error["data"]["detail"]["message"], "no licence");
    bench.expect_quiet();
}

#[test]
fn results_of_initialize_that_make_no_sense_are_reported() {
    for (result, says) in [
        ("[]", "result"),
        (
            r#"{"protocolVersion":"2026-07-28","capabilities":{}}"#,
            "2026-07-28",
        ),
        (r#"{"capabilities":{}}"#, "protocolVersion"),
    ] {
        let mut bench = Bench::new(config());
        bench.start();
        bench.child(format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#));
        let [MuxAction::OpeningFailed(why)] = &bench.actions[..] else {
            panic!("{:?}", bench.actions);
        };
        assert!(why.message.contains(says), "{}", why.message);
    }
}

#[test]
fn an_initialize_waits_no_longer_than_start_timeout() {
    let mut bench = Bench::new(config());
    bench.attach(A);
    bench.host(A, &initialize("0", "2025-11-25"));
    bench.start();
    bench.pass(Duration::from_secs(89));
    bench.expect_host(A, &[]);
    bench.pass(Duration::from_secs(1));
    let error = bench.expect_error(A, "0", -31000);
    assert!(
        error["message"]
            .as_str()
            .is_some_and(|text| text.contains("90s"))
    );
    bench.host(A, &call("1"));
    bench.expect_error(A, "1", -32602);
}

#[test]
fn an_initialize_whose_wait_runs_out_is_told_what_is_known() {
    let mut bench = Bench::new(config());
    bench.attach(A);
    bench.host(A, &initialize("0", "2025-11-25"));
    bench.start();
    let detail = serde_json::json!({"stderr": ["Ok to proceed?"]});
    bench.mux.explain_waits(detail.clone());
    bench.pass(Duration::from_secs(90));
    let error = bench.expect_error(A, "0", -31000);
    assert_eq!(error["data"]["detail"], detail, "{error}");
}

#[test]
fn initialize_must_say_a_version() {
    let mut bench = Bench::serving(config(), &[]);
    bench.attach(A);
    bench.host(A, &request("1", "initialize", "{}"));
    bench.expect_error(A, "1", -32602);
    bench.host(A, &request("2", "initialize", r#"{"protocolVersion":7}"#));
    bench.expect_error(A, "2", -32602);
}
