//! Requests that wait for a child, and those that need not.

use std::time::Duration;

use super::*;

fn backoff(bench: &Bench, seconds: u64) -> Service {
    Service::Backoff {
        next_attempt: bench.now + Duration::from_secs(seconds),
        detail: unavailable("server srv exited with code 1"),
    }
}

#[test]
fn a_request_without_a_child_asks_for_one() {
    let mut bench = Bench::serving(config(), &[A]);
    bench.crash();
    bench.host(A, r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#);
    assert!(bench.actions.is_empty());
    bench.host(A, &call("2"));
    assert_eq!(bench.actions, [MuxAction::Demand]);
}

#[test]
fn a_wait_ends_with_start_timeout_from_the_arrival() {
    let mut bench = Bench::serving(config(), &[A]);
    bench.crash();
    bench.host(A, &call("1"));
    bench.pass(Duration::from_secs(30));
    bench.host(A, &call("2"));
    bench.pass(Duration::from_secs(60));
    bench.expect_error(A, "1", -31000);
    bench.set_service(Service::Holding(Hold::because(HoldCause::Restarting)));
    bench.pass(Duration::from_secs(30));
    bench.expect_error(A, "2", -31005);
    bench.expect_quiet();
}

#[test]
fn a_notification_that_nothing_brings_a_child_for_is_dropped_in_the_end() {
    let mut bench = Bench::serving(config(), &[A]);
    bench.crash();
    bench.set_service(Service::Holding(Hold::because(HoldCause::Starting)));
    bench.host(A, &notification("notifications/x", "{}"));
    assert!(bench.pool.used_bytes() > 0);
    bench.pass(Duration::from_secs(90));
    assert_eq!(bench.pool.used_bytes(), 0);
    bench.expect_quiet();
    bench.start();
    bench.open();
    bench.expect_child(&[]);
}

#[test]
fn requests_behind_an_initialize_that_came_to_nothing_go_with_it() {
    let mut bench = Bench::new(config());
    bench.attach(A);
    bench.host(A, &initialize("1", "2025-11-25"));
    bench.pass(Duration::from_secs(30));
    bench.host(A, &call("2"));
    bench.pass(Duration::from_secs(60));
    let answers = bench.take_host(A);
    assert_eq!(answers.len(), 2, "{answers:?}");
    assert!(answers.iter().all(|answer| answer.contains("-31000")));
    // The host may begin again; nothing of before reaches the child.
    bench.host(A, &initialize("3", "2025-11-25"));
    bench.start();
    bench.open();
    bench.expect_child(&[]);
    assert_eq!(bench.take_host(A).len(), 1);
    bench.expect_quiet();
}

#[test]
fn a_call_that_waited_while_the_child_served_waits_on_from_its_end() {
    let mut bench = Bench::serving(
        MuxConfig {
            max_calls: Some(1),
            ..config()
        },
        &[A],
    );
    bench.host(A, &call("1"));
    bench.host(A, &call("2"));
    bench.pass(Duration::from_secs(500));
    bench.crash();
    bench.expect_error(A, "1", -31001);
    bench.pass(Duration::from_secs(89));
    bench.expect_host(A, &[]);
    bench.pass(Duration::from_secs(1));
    bench.expect_error(A, "2", -31000);
}

#[test]
fn in_backoff_a_request_waits_only_if_the_next_try_is_near() {
    let mut bench = Bench::serving(config(), &[A]);
    bench.crash();
    bench.host(A, &call("1"));
    bench.set_service(backoff(&bench, 90));
    bench.expect_host(A, &[]);
    bench.pass(Duration::from_secs(10));
    bench.set_service(backoff(&bench, 81));
    let error = bench.expect_error(A, "1", -31000);
    assert!(
        error["message"]
            .as_str()
            .is_some_and(|text| text.contains("in 81 s"))
    );
    bench.host(A, &call("2"));
    bench.expect_host(A, &[]);
    bench.set_service(backoff(&bench, 91));
    bench.expect_error(A, "2", -31000);
    bench.host(A, &call("3"));
    bench.expect_error(A, "3", -31000);
}

#[test]
fn a_server_that_cannot_run_says_why_at_once() {
    let mut bench = Bench::serving(config(), &[A]);
    bench.crash();
    bench.host(A, &call("1"));
    bench.host(A, &notification("notifications/x", "{}"));
    let detail = serde_json::json!({ "stderr": ["boom"] });
    bench.set_service(Service::Unavailable(Unavailable {
        message: "npx was not found".to_owned(),
        detail,
    }));
    let error = bench.expect_error(A, "1", -31000);
    assert_eq!(error["message"], "npx was not found");
    assert_eq!(
        error["data"],
        serde_json::json!({"server":"srv","detail":{"stderr":["boom"]}})
    );
    bench.attach(B);
    bench.host(B, &initialize("0", "2025-11-25"));
    bench.expect_error(B, "0", -31000);
    bench.expect_quiet();
}

#[test]
fn a_host_may_cancel_what_waits_and_the_child_never_sees_it() {
    let mut bench = Bench::serving(config(), &[A]);
    bench.crash();
    bench.host(A, &call("1"));
    bench.host(
        A,
        &notification("notifications/cancelled", r#"{"requestId":1}"#),
    );
    bench.expect_quiet();
    bench.start();
    bench.open();
    bench.expect_child(&[]);
    bench.expect_host(A, &[]);
}

#[test]
fn with_max_calls_hosts_take_turns_and_lists_pass() {
    let mut bench = Bench::serving(
        MuxConfig {
            max_calls: Some(1),
            ..config()
        },
        &[A, B],
    );
    for id in ["1", "2", "3"] {
        bench.host(A, &call(id));
    }
    bench.host(B, &call("1"));
    bench.host(B, &request("2", "prompts/list", "{}"));
    bench.expect_child(&[&call("5"), &request("6", "prompts/list", "{}")]);
    bench.host(
        A,
        &notification("notifications/cancelled", r#"{"requestId":2}"#),
    );
    bench.child(result("5"));
    bench.expect_child(&[&call("7")]);
    bench.child(result("7"));
    assert!(bench.take_host(B).join("").contains("\"id\":1,"));
    bench.expect_child(&[&call("8")]);
    bench.child(result("8"));
    let told: Vec<_> = bench.take_host(A);
    assert!(told.len() == 2 && told[1].contains("\"id\":3,"), "{told:?}");
}

#[test]
fn fifty_parallel_calls_go_one_by_one_where_asked() {
    let mut bench = Bench::serving(
        MuxConfig {
            max_calls: Some(1),
            ..config()
        },
        &[A, B],
    );
    for id in 0..25 {
        bench.host(A, &call(&format!("\"{id}\"")));
        bench.host(B, &call(&format!("\"{id}\"")));
    }
    for upstream in 5..55 {
        let id = upstream.to_string();
        bench.expect_child(&[&call(&id)]);
        bench.child(result(&id));
    }
    assert_eq!(
        (bench.take_host(A).len(), bench.take_host(B).len()),
        (25, 25)
    );
    bench.expect_quiet();
}

#[test]
fn max_calls_may_change_while_calls_wait() {
    let mut bench = Bench::serving(
        MuxConfig {
            max_calls: Some(1),
            ..config()
        },
        &[A],
    );
    for id in ["1", "2", "3"] {
        bench.host(A, &call(id));
    }
    bench.expect_child(&[&call("5")]);
    bench.mux.configure(
        MuxConfig {
            max_calls: Some(2),
            ..config()
        },
        bench.now,
    );
    bench.pump();
    bench.expect_child(&[&call("6")]);
    bench.mux.configure(config(), bench.now);
    bench.pump();
    bench.expect_child(&[&call("7")]);
}
