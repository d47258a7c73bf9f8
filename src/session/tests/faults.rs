//! Lines that are no messages, of either side.

use super::*;

#[test]
fn noise_of_a_child_reaches_no_host_and_is_counted() {
    let mut bench = Bench::serving(config(), &[A]);
    bench.host(A, &call("1"));
    for noise in [
        "Server listening",
        "{not json}",
        "7",
        "\"text\"",
        "\u{1b}[33mwarn\u{1b}[0m",
        "[1]",
    ] {
        bench.child(noise);
    }
    bench.expect_host(A, &[]);
    bench.child(result("5"));
    assert_eq!(bench.take_host(A).len(), 1);
    let snapshot = bench.mux.snapshot(bench.now);
    assert_eq!(snapshot.counters.noise_lines, 6);
    assert!(snapshot.noise_sample.is_some());
    let logs = bench
        .actions
        .iter()
        .filter(|action| matches!(action, MuxAction::Log(..)))
        .count();
    assert_eq!(
        logs, 4,
        "one report for each of two kinds, not for each line"
    );
}

#[test]
fn an_answer_that_is_too_long_is_an_error_for_its_request() {
    let mut bench = Bench::serving(config(), &[A, B]);
    bench.host(A, &call("1"));
    bench.host(B, &call("1"));
    let long = "x".repeat(LINE_LIMIT_BYTES);
    bench.child(format!(
        r#"{{"jsonrpc":"2.0","result":{{"t":"{long}"}},"id":6}}"#
    ));
    let error = bench.expect_error(B, "1", -31004);
    assert_eq!(error["data"]["server"], "srv");
    bench.expect_host(A, &[]);
    bench.child(result("5"));
    assert_eq!(bench.take_host(A).len(), 1);
    bench.expect_quiet();
}

#[test]
fn an_answer_that_cannot_be_read_is_an_error_for_its_request() {
    for answer in [
        &b"{\"jsonrpc\":\"2.0\",\"id\":5,\"result\":{\"t\":\"\xFF\xFE\"}}"[..],
        b"{\"jsonrpc\":\"2.0\",\"id\":5,\"result\":{\"t\":\"a\tb\"}}",
        b"{\"jsonrpc\":\"2.0\",\"id\":5,\"result\":{",
        b"{\"jsonrpc\":\"2.0\",\"result\":{",
    ] {
        let mut bench = Bench::serving(config(), &[A]);
        bench.host(A, &call("1"));
        bench.child(answer);
        bench.expect_error(A, "1", -32603);
        bench.host(A, &call("2"));
        bench.child(result("6"));
        assert_eq!(bench.take_host(A).len(), 1);
    }
}

#[test]
fn json_over_many_lines_ends_its_request_and_harms_no_other() {
    let mut bench = Bench::serving(config(), &[A]);
    bench.host(A, &call("1"));
    bench.child("{");
    bench.expect_host(A, &[]);
    bench.child("  \"jsonrpc\": \"2.0\",");
    let error = bench.expect_error(A, "1", -32603);
    assert!(
        error["message"]
            .as_str()
            .is_some_and(|text| text.contains("multi-line JSON"))
    );
    bench.host(A, &call("2"));
    for text in ["  \"id\": 5,", "  \"result\": {", "  {", "  }", "}"] {
        bench.child(text);
    }
    bench.expect_host(A, &[]);
    bench.child(result("6"));
    assert_eq!(bench.take_host(A).len(), 1);
    let log = format!("{:?}", bench.actions);
    assert!(log.contains("multi-line JSON"), "{log}");
}

#[test]
fn a_doubled_id_is_an_error_for_each_request_that_it_names() {
    let mut bench = Bench::serving(config(), &[A, B, C]);
    for host in [A, B, C] {
        bench.host(host, &call("1"));
    }
    bench.child(r#"{"jsonrpc":"2.0","id":5,"result":{},"\u0069d":6}"#);
    bench.expect_error(A, "1", -32603);
    bench.expect_error(B, "1", -32603);
    bench.expect_host(C, &[]);
    bench.child(r#"{"jsonrpc":"2.0","id":7,"result":{},"result":{}}"#);
    bench.expect_error(C, "1", -32603);
    bench.expect_quiet();
}

#[test]
fn bad_lines_of_a_host_are_answered_and_its_session_goes_on() {
    let mut bench = Bench::new(config());
    bench.start();
    bench.open();
    bench.join(A, "2025-06-18");
    bench.join(B, "2025-11-25");
    for bad in ["not json", "{\"jsonrpc\":", "Content-Length: 20"] {
        bench.host(A, bad);
        bench.expect_error(A, "null", -32700);
        bench.host(B, bad);
        let answer = bench.take_host(B).join("");
        assert!(
            answer.contains("-32700") && !answer.contains("\"id\""),
            "{answer}"
        );
    }
    bench.attach(C);
    bench.host(C, "not json");
    bench.expect_error(C, "null", -32700);
    bench.expect_child(&[]);
    bench.host(A, r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#);
    assert_eq!(bench.take_host(A).len(), 1);
}

#[test]
fn a_host_line_that_is_too_long_is_answered_by_its_id() {
    let mut bench = Bench::serving(config(), &[A]);
    let long = "x".repeat(LINE_LIMIT_BYTES);
    bench.host(
        A,
        &request("7", "tools/call", &format!(r#"{{"name":"{long}"}}"#)),
    );
    bench.expect_error(A, "7", -31004);
    bench.expect_child(&[]);
}

#[test]
fn broken_envelopes_of_a_host_are_refused() {
    let mut bench = Bench::serving(config(), &[A]);
    for (bad, id) in [
        (r#"{"jsonrpc":"2.0","id":1,"method":"x","params":[]}"#, "1"),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"x","params":null}"#,
            "1",
        ),
        (r#"{"jsonrpc":"2.0","id":1,"method":7}"#, "1"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"x","method":"y"}"#, "1"),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"x","params":{},"params":{}}"#,
            "1",
        ),
        (r#"{"jsonrpc":"1.0","id":1,"method":"x"}"#, "1"),
        (r#"{"id":1,"method":"x"}"#, "1"),
        (r#"{"jsonrpc":"2.0","id":1}"#, "1"),
    ] {
        bench.host(A, bad);
        bench.expect_error(A, id, -32600);
    }
    for bad in [
        r#"{"jsonrpc":"2.0","id":1,"method":"x","id":2}"#,
        r#"{"jsonrpc":"2.0","id":null,"method":"x"}"#,
        r#"{"jsonrpc":"2.0","id":{},"method":"x"}"#,
        "{}",
    ] {
        bench.host(A, bad);
        let answer = bench.take_host(A).join("");
        assert!(
            answer.contains("-32600") && !answer.contains("\"id\""),
            "{answer}"
        );
    }
    bench.host(A, r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
    bench.expect_host(A, &[]);
    bench.expect_child(&[]);
}

#[test]
fn requests_of_a_child_that_cannot_be_read_are_answered_too() {
    let mut bench = Bench::serving(config(), &[A]);
    bench.host(A, &call("1"));
    bench.take_child();
    let long = "x".repeat(LINE_LIMIT_BYTES);
    bench.child(request(
        "5",
        "sampling/createMessage",
        &format!(r#"{{"x":"{long}"}}"#),
    ));
    let answer = bench.take_child().join("");
    assert!(
        answer.contains("\"id\":5,") && answer.contains("-31004"),
        "{answer}"
    );
    bench.child(r#"{"jsonrpc":"2.0","id":5,"method":"x","params":[]}"#);
    assert!(bench.take_child().join("").contains("-32600"));
    bench.expect_host(A, &[]);
}

#[test]
fn a_message_behind_a_progress_bar_is_recovered() {
    let mut bench = Bench::serving(config(), &[A]);
    bench.host(A, &call("1"));
    bench.child(format!("10%\r20%\r{}", result("5")));
    assert_eq!(bench.take_host(A).len(), 1);
    assert_eq!(bench.mux.snapshot(bench.now).counters.noise_lines, 1);
}

#[test]
fn a_request_method_without_an_id_reaches_neither_side() {
    let mut bench = Bench::serving(config(), &[A, B]);
    for method in [
        "tools/call",
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/unsubscribe",
        "server/discover",
        "sampling/createMessage",
    ] {
        bench.host(A, &notification(method, r#"{"name":"t","level":"debug"}"#));
        bench.child(notification(method, r#"{"name":"t"}"#));
    }
    bench.expect_child(&[]);
    bench.expect_host(A, &[]);
    bench.expect_host(B, &[]);
    let own = notification("initialized/x", "{}");
    bench.host(A, &own);
    bench.expect_child(&[&own]);
}

#[test]
fn a_notification_with_an_id_is_refused_and_touches_no_foreign_request() {
    let mut bench = Bench::serving(config(), &[A, B]);
    bench.host(A, &call("1"));
    assert!(bench.take_child()[0].contains("\"id\":5"));
    bench.host(
        B,
        &request("1", "notifications/cancelled", r#"{"requestId":5}"#),
    );
    bench.expect_child(&[]);
    bench.expect_error(B, "1", -32600);
    bench.child(result("5"));
    assert_eq!(bench.take_host(A).len(), 1);
}

#[test]
fn json_of_a_child_that_is_no_message_is_noise_whatever_members_it_has() {
    let mut bench = Bench::serving(config(), &[A]);
    bench.child(r#"{"method":"GET","path":"/","status":200}"#);
    bench.child(r#"{"jsonrpc":"1.0","method":"notifications/message","params":{}}"#);
    bench.expect_host(A, &[]);
    assert_eq!(bench.mux.snapshot(bench.now).counters.noise_lines, 2);
}
