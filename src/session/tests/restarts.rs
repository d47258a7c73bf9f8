//! Crash, restart, drain: what becomes of requests.

use std::time::Duration;

use super::*;
use crate::protocol::ErrorCode;

#[test]
fn what_was_open_when_the_child_died_is_answered_each_to_its_host() {
    let mut bench = Bench::serving(config(), &[A, B]);
    for id in ["1", "2", "3", "4", "5"] {
        bench.host(A, &call(id));
        bench.host(B, &call(id));
    }
    bench.crash();
    for host in [A, B] {
        let answers = bench.take_host(host);
        assert_eq!(answers.len(), 5);
        for (id, answer) in (1..).zip(answers) {
            let answer: Value = serde_json::from_str(&answer).expect("valid JSON");
            assert_eq!(
                (&answer["id"], &answer["error"]["code"]),
                (&id.into(), &(-31001).into())
            );
            assert_eq!(answer["error"]["data"]["server"], "srv");
            assert_eq!(
                answer["error"]["data"]["detail"]["reason"],
                "was killed by SIGKILL"
            );
            assert_eq!(
                answer["error"]["data"]["detail"]["child"]["signal"],
                "SIGKILL"
            );
            let message = answer["error"]["message"].as_str().expect("text");
            assert!(message.contains("unknown"), "{message}");
        }
    }
    bench.expect_quiet();
}

#[test]
fn a_host_stays_and_its_next_call_goes_to_the_next_child() {
    let mut bench = Bench::serving(config(), &[A]);
    bench.crash();
    bench.host(A, &call("4"));
    bench.expect_host(A, &[]);
    bench.start();
    bench.open();
    bench.expect_child(&[&call("5")]);
    bench.child(result("5"));
    bench.expect_host(A, &[r#"{"jsonrpc":"2.0","id":4,"result":{"n":5}}"#]);
}

#[test]
fn what_was_never_written_goes_to_the_next_child_in_order_and_nothing_twice() {
    let mut bench = Bench::serving(config(), &[A, B]);
    for (host, id) in [(A, "1"), (B, "1"), (A, "2"), (B, "2")] {
        bench.mux.handle_host_line(host, line(call(id)), bench.now);
    }
    assert!(
        bench.mux.poll_child_frame(bench.now).is_some(),
        "one is written"
    );
    bench.crash();
    bench.expect_error(A, "1", -31001);
    bench.expect_host(B, &[]);
    bench.host(A, &call("3"));
    bench.start();
    bench.open();
    bench.expect_child(&[&call("5"), &call("6"), &call("7"), &call("8")]);
    for id in ["8", "7", "6", "5"] {
        bench.child(result(id));
    }
    bench.expect_host(
        A,
        &[
            r#"{"jsonrpc":"2.0","id":3,"result":{"n":8}}"#,
            r#"{"jsonrpc":"2.0","id":2,"result":{"n":6}}"#,
        ],
    );
}

#[test]
fn a_child_of_an_older_generation_is_not_listened_to() {
    let mut bench = Bench::serving(config(), &[A]);
    bench.crash();
    bench.start();
    bench.open();
    bench.host(A, &call("1"));
    bench
        .mux
        .handle_child_line(Generation(1), line(result("5")), bench.now);
    let gone = ChildGone {
        reason: "exited".to_owned(),
        detail: Value::Null,
    };
    bench.mux.handle_child_gone(Generation(1), &gone, bench.now);
    bench.pump();
    bench.expect_host(A, &[]);
    bench.child(result("5"));
    assert_eq!(bench.take_host(A).len(), 1);
}

#[test]
fn a_drain_waits_for_open_calls_and_holds_new_ones() {
    let mut bench = Bench::serving(config(), &[A]);
    bench.host(A, &call("1"));
    bench.take_child();
    bench.mux.begin_drain(bench.now);
    bench.set_service(Service::Holding(Hold::because(HoldCause::Restarting)));
    bench.host(A, &call("2"));
    bench.expect_child(&[]);
    assert!(bench.actions.is_empty());
    bench.child(result("5"));
    assert_eq!(bench.actions, [MuxAction::Drained]);
    assert_eq!(bench.take_host(A).len(), 1);
    bench.crash();
    bench.start();
    bench.open();
    bench.expect_child(&[&call("5")]);
}

#[test]
fn a_drain_without_open_calls_is_done_at_once() {
    let mut bench = Bench::serving(config(), &[A]);
    bench.mux.begin_drain(bench.now);
    bench.pump();
    assert_eq!(bench.actions, [MuxAction::Drained]);
}

#[test]
fn calls_left_at_the_end_of_a_drain_are_cancelled_and_told() {
    let mut bench = Bench::serving(config(), &[A]);
    bench.host(A, &call("1"));
    bench.take_child();
    bench.mux.begin_drain(bench.now);
    bench.set_service(Service::Holding(Hold::because(HoldCause::Restarting)));
    bench.host(A, &call("2"));
    bench.mux.cancel_open(ErrorCode::SERVER_STOPPING, bench.now);
    bench.pump();
    let told = bench.take_child();
    assert!(
        told.len() == 1 && told[0].contains("\"requestId\":5,"),
        "{told:?}"
    );
    bench.expect_error(A, "1", -31005);
    assert_eq!(bench.actions, [MuxAction::Drained]);
    bench.child(result("5"));
    bench.expect_host(A, &[]);
}

#[test]
fn a_stop_refuses_what_waits_and_what_comes() {
    let mut bench = Bench::serving(config(), &[A]);
    bench.crash();
    bench.host(A, &call("1"));
    bench.set_service(Service::Stopping);
    bench.expect_error(A, "1", -31005);
    bench.host(A, &call("2"));
    bench.expect_error(A, "2", -31005);
    bench.host(A, r#"{"jsonrpc":"2.0","id":3,"method":"ping"}"#);
    bench.expect_host(A, &[r#"{"jsonrpc":"2.0","id":3,"result":{}}"#]);
    bench.expect_quiet();
}

#[test]
fn a_stop_lets_open_calls_finish_and_refuses_new_ones() {
    let mut bench = Bench::serving(config(), &[A]);
    bench.host(A, &call("1"));
    bench.set_service(Service::Stopping);
    bench.mux.begin_drain(bench.now);
    bench.host(A, &call("2"));
    bench.expect_error(A, "2", -31005);
    bench.child(result("5"));
    bench.expect_host(A, &[r#"{"jsonrpc":"2.0","id":1,"result":{"n":5}}"#]);
}

#[test]
fn the_end_of_the_daemon_takes_open_and_waiting_calls_along() {
    let mut bench = Bench::serving(config(), &[A]);
    bench.host(A, &call("1"));
    bench.mux.begin_drain(bench.now);
    bench.host(A, &call("2"));
    bench.attach(B);
    bench
        .mux
        .cancel_open(ErrorCode::DAEMON_RESTARTED, bench.now);
    bench.pump();
    let answers = bench.take_host(A);
    assert_eq!(
        answers
            .iter()
            .filter(|answer| answer.contains("-31006"))
            .count(),
        2
    );
    bench.take_child();
    assert_eq!(bench.mux.requests.len(), 0);
}

#[test]
fn a_call_that_takes_longer_than_request_timeout_is_cancelled() {
    let request_timeout = Some(Duration::from_secs(10));
    let mut bench = Bench::serving(
        MuxConfig {
            request_timeout,
            ..config()
        },
        &[A],
    );
    bench.host(
        A,
        &request(
            "1",
            "tools/call",
            r#"{"name":"t","_meta":{"progressToken":1}}"#,
        ),
    );
    bench.take_child();
    bench.pass(Duration::from_secs(9));
    bench.child(notification(
        "notifications/progress",
        r#"{"progressToken":5,"progress":1}"#,
    ));
    assert_eq!(bench.take_host(A).len(), 1);
    bench.pass(Duration::from_secs(1));
    bench.expect_error(A, "1", -31003);
    assert!(bench.take_child().join("").contains("\"requestId\":5,"));
    bench.child(result("5"));
    bench.expect_host(A, &[]);
    bench.expect_quiet();
}

#[test]
fn without_request_timeout_a_call_may_take_any_time() {
    let mut bench = Bench::serving(config(), &[A]);
    bench.host(A, &call("1"));
    bench.pass(Duration::from_secs(1_000_000));
    bench.child(result("5"));
    assert_eq!(bench.take_host(A).len(), 1);
}

#[test]
fn a_child_that_never_answers_pings_is_not_asked_for_any() {
    let mut bench = Bench::serving(config(), &[A]);
    bench.take_child();
    bench.pass(Duration::from_secs(1_000_000));
    bench.expect_child(&[]);
    assert!(bench.actions.is_empty());
}
