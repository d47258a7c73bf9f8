//! Arrays of messages.

use super::*;

fn serving(version: &str) -> Bench {
    let mut bench = Bench::serving(config(), &[]);
    bench.join(A, version);
    bench.join(B, "2025-11-25");
    bench
}

#[test]
fn a_batch_is_taken_apart_and_answered_with_one_array() {
    let mut bench = serving("2025-03-26");
    let other = notification("notifications/x", "{}");
    bench.host(A, &format!("[{},{other},{}]", call("1"), call("2")));
    bench.expect_child(&[&call("5"), &other, &call("6")]);
    bench.child(result("6"));
    bench.expect_host(A, &[]);
    bench.child(result("5"));
    bench.expect_host(
        A,
        &[r#"[{"jsonrpc":"2.0","id":2,"result":{"n":6}},{"jsonrpc":"2.0","id":1,"result":{"n":5}}]"#],
    );
    bench.expect_quiet();
}

#[test]
fn what_is_answered_here_stands_in_the_array_too() {
    let mut bench = serving("2025-03-26");
    let ping = r#"{"jsonrpc":"2.0","id":3,"method":"ping"}"#;
    bench.host(
        A,
        &format!("[{ping},7,[],{}]", initialize("4", "2025-03-26")),
    );
    let answers = bench.take_host(A);
    assert_eq!(answers.len(), 1);
    let answers: Vec<Value> = serde_json::from_str(&answers[0]).expect("an array");
    assert_eq!(
        answers[0],
        serde_json::json!({"jsonrpc":"2.0","id":3,"result":{}})
    );
    for (answer, id) in answers[1..]
        .iter()
        .zip([Value::Null, Value::Null, 4.into()])
    {
        assert_eq!(
            (&answer["id"], &answer["error"]["code"]),
            (&id, &(-32600).into())
        );
    }
    bench.expect_quiet();
}

#[test]
fn notifications_alone_and_cancelled_calls_get_no_array() {
    let mut bench = serving("2025-03-26");
    bench.host(A, &format!("[{}]", notification("notifications/x", "{}")));
    bench.host(A, &format!("[{}]", call("1")));
    bench.host(
        A,
        &notification("notifications/cancelled", r#"{"requestId":1}"#),
    );
    bench.expect_host(A, &[]);
    bench.expect_quiet();
}

#[test]
fn an_empty_batch_and_one_of_a_host_without_batches_are_refused() {
    let mut bench = serving("2025-03-26");
    bench.host(A, "[]");
    bench.expect_error(A, "null", -32600);
    bench.host(B, &format!("[{}]", call("1")));
    let answer = bench.take_host(B).join("");
    assert!(
        answer.contains("-32600") && !answer.contains("\"id\""),
        "{answer}"
    );
    bench.attach(C);
    bench.host(C, &format!("[{}]", initialize("1", "2025-03-26")));
    bench.expect_error(C, "null", -32600);
    bench.expect_child(&[]);
}

#[test]
fn the_answers_in_an_array_of_a_child_find_their_hosts() {
    let mut bench = serving("2025-06-18");
    bench.host(A, &call("1"));
    bench.host(B, &call("1"));
    let changed = notification("notifications/tools/list_changed", "{}");
    bench.child(format!("[{},{changed},{}, 7]", result("6"), result("5")));
    bench.expect_host(
        A,
        &[&changed, r#"{"jsonrpc":"2.0","id":1,"result":{"n":5}}"#],
    );
    bench.expect_host(
        B,
        &[r#"{"jsonrpc":"2.0","id":1,"result":{"n":6}}"#, &changed],
    );
}

#[test]
fn a_crash_completes_the_array() {
    let mut bench = serving("2025-03-26");
    bench.host(A, &format!("[{},{}]", call("1"), call("2")));
    bench.child(result("5"));
    bench.crash();
    let answers = bench.take_host(A);
    assert_eq!(answers.len(), 1);
    assert!(
        answers[0].contains("-31001") && answers[0].contains("\"n\":5"),
        "{answers:?}"
    );
}
