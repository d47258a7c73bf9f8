//! Questions of a legacy child: turns, hosts of both eras, retries.

use std::time::Duration;

use super::modern_hosts::{META, modern};
use super::*;
use crate::session::Asking;
use crate::session::snapshot::Turn;

const ABLE: &str = r#"{"elicitation":{},"sampling":{},"roots":{}}"#;

/// A bench whose child may ask; these legacy hosts can do everything.
fn asking(legacy: &[HostKey], modern: &[HostKey]) -> Bench {
    let mut config = config();
    config.asking = Asking::Turns;
    let mut bench = Bench::serving(config, &[]);
    for host in legacy {
        bench.attach(*host);
        let text = initialize("0", "2025-11-25")
            .replace(r#""capabilities":{}"#, &format!(r#""capabilities":{ABLE}"#));
        bench.host(*host, &text);
        bench.take_host(*host);
    }
    for host in modern {
        bench.attach(*host);
    }
    bench
}

/// A modern `tools/call` with further members of `params`.
fn calls(id: &str, members: &str) -> String {
    modern(id, "tools/call", ABLE, &format!(r#","name":"t"{members}"#))
}

/// What the child sees of a modern call.
fn seen(id: u64) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"_meta":{{}},"name":"t"}}}}"#
    )
}

/// The child asks for the roots.
fn asks(id: &str) -> String {
    request(id, "roots/list", "{}")
}

const ROOTS: &str = r#"{"roots":[{"uri":"file:///a"}]}"#;

/// The host was given these questions in answer to `id`: the state.
#[track_caller]
fn expect_asked(bench: &mut Bench, host: HostKey, id: &str, requests: &str) -> String {
    let lines = bench.take_host(host);
    assert_eq!(lines.len(), 1, "{lines:?}");
    let answer: Value = serde_json::from_str(&lines[0]).expect("JSON");
    let state = answer["result"]["requestState"].as_str().expect("a state");
    assert_eq!(
        lines[0],
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{{"resultType":"input_required","inputRequests":{{{requests}}},"requestState":"{state}",{META}}}}}"#
        )
    );
    state.to_owned()
}

fn retry(id: &str, state: &str, responses: &str) -> String {
    calls(
        id,
        &format!(r#","requestState":"{state}","inputResponses":{responses}"#),
    )
}

/// C159: the question goes to the host whose call it belongs to, its answer to the child with the
/// child's id. C163: ids of both sides overlap.
#[test]
fn a_legacy_host_is_asked_by_a_request_and_its_answer_passes() {
    let mut bench = asking(&[A, B], &[]);
    bench.host(A, &call("1"));
    bench.expect_child(&[&call("5")]);
    bench.child(r#"{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{"_meta":{"progressToken":"p"},"task":{},"x":1.0}}"#);
    bench.expect_host(
        A,
        &[r#"{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{"_meta":{"progressToken":1},"x":1.0}}"#],
    );
    bench.expect_host(B, &[]);
    bench.host(A, r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}"#);
    bench.host(A, r#"{"jsonrpc":"2.0","id":1,"result":{"y":2.0}}"#);
    bench.host(B, r#"{"jsonrpc":"2.0","id":1,"result":{"y":3.0}}"#);
    bench.expect_child(&[
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1}}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{"y":2.0}}"#,
    ]);
    bench.child(result("5"));
    bench.expect_host(A, &[r#"{"jsonrpc":"2.0","id":1,"result":{"n":5}}"#]);
    bench.expect_quiet();
}

#[test]
fn a_question_without_a_caller_or_without_the_capability_is_refused() {
    let mut bench = asking(&[A], &[B]);
    bench.child(asks("\"q\""));
    assert!(bench.take_child()[0].contains("-31007"));
    bench.join(C, "2025-11-25");
    bench.host(C, &call("1"));
    bench.child(asks("7"));
    assert!(bench.take_child()[1].contains(r#""id":7,"error":{"code":-32601"#));
    bench.child(result("5"));
    bench.host(B, &modern("2", "tools/call", "{}", r#","name":"t""#));
    bench.child(asks("8"));
    assert!(bench.take_child()[1].contains(r#""id":8,"error":{"code":-32601"#));
    bench.child(result("6"));
    bench.host(B, &calls("3", ""));
    bench.child(request("9", "elicitation/create", r#"{"mode":"url"}"#));
    assert!(bench.take_child()[1].contains(r#""id":9,"error":{"code":-32602"#));
    bench.child(request("10", "tasks/list", "{}"));
    assert!(bench.take_child()[0].contains("-32601"));
}

#[test]
fn unless_it_was_told_of_somebody_a_child_asks_nobody() {
    let mut bench = Bench::serving(config(), &[A]);
    bench.host(A, &call("1"));
    bench.take_child();
    bench.child(asks("1"));
    assert!(bench.take_child()[0].contains("-32601"));
    bench.expect_host(A, &[]);
}

/// C161: of two hosts that call at once only one has its call open on the child.
#[test]
fn hosts_take_turns_and_status_knows_who_waits() {
    let mut bench = asking(&[A, B], &[C]);
    bench.host(A, &call("1"));
    bench.host(A, &call("2"));
    bench.expect_child(&[&call("5"), &call("6")]);
    bench.host(B, &call("1"));
    bench.host(
        B,
        &request("l", "tools/list", "{}").replace("\"id\":l", "\"id\":9"),
    );
    bench.host(C, &calls("1", ""));
    bench.host(A, &call("3"));
    bench.expect_child(&[&request("7", "tools/list", "{}")]);
    let turns = |bench: &Bench| {
        let hosts = bench.mux.snapshot(bench.now).hosts;
        hosts.iter().map(|host| host.turn).collect::<Vec<_>>()
    };
    assert_eq!(turns(&bench), [Turn::Has, Turn::Waits, Turn::Waits]);
    bench.child(result("5"));
    bench.expect_child(&[]);
    bench.child(result("6"));
    bench.expect_child(&[&call("8")]);
    bench.child(result("8"));
    bench.expect_child(&[&seen(9)]);
    assert_eq!(turns(&bench), [Turn::Waits, Turn::None, Turn::Has]);
    bench.child(r#"{"jsonrpc":"2.0","id":9,"result":{}}"#);
    bench.expect_child(&[&call("10")]);
}

#[test]
fn a_host_that_is_being_asked_may_call_to_find_the_answer() {
    let mut bench = asking(&[A, B], &[]);
    bench.host(A, &call("1"));
    bench.host(B, &call("1"));
    bench.child(asks("1"));
    bench.host(A, &call("2"));
    bench.expect_child(&[&call("5"), &call("6")]);
}

#[test]
fn what_a_host_was_asked_is_withdrawn_when_its_turn_ends() {
    let mut bench = asking(&[A], &[]);
    bench.host(A, &call("1"));
    bench.child(asks("\"q\""));
    bench.take_child();
    bench.take_host(A);
    bench.child(result("5"));
    let lines = bench.take_host(A);
    assert!(lines[0].contains(r#""method":"notifications/cancelled","params":{"requestId":1,"#));
    assert_eq!(lines.len(), 2);
    assert!(bench.take_child()[0].contains(r#""id":"q","error":{"code":-32603"#));
    bench.host(A, r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
    bench.expect_child(&[]);
    bench.expect_quiet();
}

#[test]
fn a_child_may_withdraw_what_it_asked() {
    let mut bench = asking(&[A], &[]);
    bench.host(A, &call("1"));
    bench.child(asks("7"));
    bench.take_host(A);
    bench.child(notification(
        "notifications/cancelled",
        r#"{"requestId":7,"reason":"r"}"#,
    ));
    bench.expect_host(
        A,
        &[&notification(
            "notifications/cancelled",
            r#"{"requestId":1,"reason":"r"}"#,
        )],
    );
    bench.child(result("5"));
    assert_eq!(bench.take_host(A).len(), 1);
    bench.expect_quiet();
}

#[test]
fn a_host_that_leaves_answers_with_an_error() {
    let mut bench = asking(&[A, B], &[]);
    bench.host(A, &call("1"));
    bench.host(B, &call("1"));
    bench.child(asks("7"));
    bench.take_child();
    bench.leave(A);
    let lines = bench.take_child();
    assert!(
        lines[0].contains(r#""id":7,"error":{"code":-32603"#),
        "{lines:?}"
    );
    assert!(lines[1].contains("notifications/cancelled"));
    assert_eq!(lines[2], call("6"));
}

#[test]
fn a_host_hears_that_a_question_died_with_the_child() {
    let mut bench = asking(&[A], &[]);
    bench.host(A, &call("1"));
    bench.child(asks("7"));
    bench.take_host(A);
    bench.crash();
    let lines = bench.take_host(A);
    assert!(lines[0].contains("notifications/cancelled"), "{lines:?}");
    assert!(lines[1].contains("-31001"));
    bench.expect_quiet();
}

#[test]
fn the_end_of_a_visit_is_told_to_the_host_that_was_sent() {
    let mut bench = asking(&[B], &[]);
    bench.attach(A);
    let url = r#""capabilities":{"elicitation":{"url":{}}}"#;
    let text = initialize("0", "2025-11-25").replace(r#""capabilities":{}"#, url);
    bench.host(A, &text);
    bench.host(A, &call("1"));
    bench.child(request(
        "7",
        "elicitation/create",
        r#"{"mode":"url","elicitationId":"e"}"#,
    ));
    bench.take_host(A);
    let done = notification(
        "notifications/elicitation/complete",
        r#"{"elicitationId":"e"}"#,
    );
    bench.child(&done);
    bench.expect_host(A, &[&done]);
    bench.child(&done);
    bench.expect_host(A, &[]);
    bench.expect_host(B, &[]);
}

#[test]
fn a_modern_host_gets_the_question_as_its_answer_and_comes_back() {
    let mut bench = asking(&[], &[A]);
    bench.host(A, &calls("1", r#","arguments":{"a":1,"b":2}"#));
    bench.take_child();
    bench.child(request(
        "\"q\"",
        "elicitation/create",
        r#"{"message":"m","requestedSchema":{"type":"object","properties":{}}}"#,
    ));
    let state = expect_asked(
        &mut bench,
        A,
        "1",
        r#""q1":{"method":"elicitation/create","params":{"message":"m","requestedSchema":{"type":"object","properties":{}}}}"#,
    );
    assert!(state.len() >= 32);
    // The id of a request that was answered means nothing any more.
    bench.host(
        A,
        &notification("notifications/cancelled", r#"{"requestId":1}"#),
    );
    bench.expect_child(&[]);
    let answer = r#"{"q1":{"action":"accept","content":{"a":1.0}},"else":7}"#;
    bench.host(
        A,
        &calls(
            "2",
            &format!(
                r#","requestState":"{state}","inputResponses":{answer},"arguments":{{"b":2,"a":1}}"#
            ),
        ),
    );
    bench.expect_child(&[
        r#"{"jsonrpc":"2.0","id":"q","result":{"action":"accept","content":{"a":1.0}}}"#,
    ]);
    bench.expect_host(A, &[]);
    bench.child(r#"{"jsonrpc":"2.0","id":5,"result":{"content":[]}}"#);
    bench.expect_host(
        A,
        &[&format!(
            r#"{{"jsonrpc":"2.0","id":2,"result":{{"resultType":"complete",{META},"content":[]}}}}"#
        )],
    );
    bench.host(A, &retry("3", &state, answer));
    bench.expect_error(A, "3", -32602);
    bench.expect_quiet();
}

#[test]
fn a_retry_must_be_the_same_request_with_a_good_answer_and_may_be_mended() {
    let mut bench = asking(&[], &[A, B]);
    bench.host(A, &calls("1", ""));
    bench.child(asks("7"));
    let state = expect_asked(
        &mut bench,
        A,
        "1",
        r#""q1":{"method":"roots/list","params":{}}"#,
    );
    bench.take_child();
    for (text, id) in [
        (retry("2", "made-up", "{}"), "2"),
        (
            retry("3", &state, "{}").replace(r#""name":"t""#, r#""name":"u""#),
            "3",
        ),
        (
            retry("4", &state, "{}").replace("tools/call", "prompts/get"),
            "4",
        ),
        (retry("5", &state, r#"{"q1":{"roots":7}}"#), "5"),
        (retry("6", &state, "[]"), "6"),
    ] {
        bench.host(A, &text);
        // An unknown state waits for its turn before it is judged.
        if id != "2" {
            bench.expect_error(A, id, -32602);
        }
    }
    bench.expect_child(&[]);
    // A refused retry does not use up the state; another attachment may have it.
    bench.host(B, &retry("\"b\"", &state, &format!(r#"{{"q1":{ROOTS}}}"#)));
    bench.expect_child(&[&format!(r#"{{"jsonrpc":"2.0","id":7,"result":{ROOTS}}}"#)]);
    bench.child(r#"{"jsonrpc":"2.0","id":5,"result":{}}"#);
    assert!(bench.take_host(B)[0].contains(r#""id":"b","result""#));
    bench.expect_error(A, "2", -32602);
    bench.expect_quiet();
}

/// The parameters of a question that is a form.
const FORM: &str = r#"{"message":"m","requestedSchema":{"type":"object","properties":{}}}"#;

#[test]
fn what_a_retry_leaves_out_or_came_meanwhile_goes_into_the_next_round() {
    let mut bench = asking(&[], &[A]);
    bench.host(A, &calls("1", ""));
    bench.child(asks("7"));
    bench.child(request("8", "elicitation/create", FORM));
    let first = expect_asked(
        &mut bench,
        A,
        "1",
        r#""q1":{"method":"roots/list","params":{}}"#,
    );
    bench.take_child();
    let elicit = &format!(r#""q2":{{"method":"elicitation/create","params":{FORM}}}"#);
    bench.host(A, &retry("2", &first, "{}"));
    let both = format!(r#""q1":{{"method":"roots/list","params":{{}}}},{elicit}"#);
    let second = expect_asked(&mut bench, A, "2", &both);
    assert_ne!(first, second);
    bench.host(A, &retry("3", &second, &format!(r#"{{"q1":{ROOTS}}}"#)));
    let third = expect_asked(&mut bench, A, "3", elicit);
    bench.expect_child(&[&format!(r#"{{"jsonrpc":"2.0","id":7,"result":{ROOTS}}}"#)]);
    bench.host(A, &retry("4", &third, r#"{"q2":{"action":"decline"}}"#));
    bench.expect_child(&[r#"{"jsonrpc":"2.0","id":8,"result":{"action":"decline"}}"#]);
    bench.child(asks("9"));
    let fourth = expect_asked(
        &mut bench,
        A,
        "4",
        r#""q3":{"method":"roots/list","params":{}}"#,
    );
    bench.host(A, &retry("5", &fourth, &format!(r#"{{"q3":{ROOTS}}}"#)));
    bench.child(r#"{"jsonrpc":"2.0","id":5,"result":{}}"#);
    assert!(bench.take_host(A)[0].contains(r#""id":5"#));
    bench.take_child();
    bench.expect_quiet();
}

#[test]
fn progress_has_the_token_of_the_retry_and_none_between_rounds() {
    let mut bench = asking(&[], &[A]);
    let token = |text: String, token: &str| {
        text.replace(
            r#""_meta":{"#,
            &format!(r#""_meta":{{"progressToken":{token},"#),
        )
    };
    let progress = |token: &str| {
        notification(
            "notifications/progress",
            &format!(r#"{{"progressToken":{token},"progress":1}}"#),
        )
    };
    bench.host(A, &token(calls("1", ""), "\"one\""));
    bench.child(progress("5"));
    bench.expect_host(A, &[&progress("\"one\"")]);
    bench.child(asks("7"));
    let state = expect_asked(
        &mut bench,
        A,
        "1",
        r#""q1":{"method":"roots/list","params":{}}"#,
    );
    bench.child(progress("5"));
    bench.expect_host(A, &[]);
    let answer = format!(r#"{{"q1":{ROOTS}}}"#);
    bench.host(A, &token(retry("2", &state, &answer), "\"two\""));
    bench.child(progress("5"));
    bench.expect_host(A, &[&progress("\"two\"")]);
}

#[test]
fn a_call_that_ends_between_rounds_waits_for_the_retry() {
    for dies in [false, true] {
        let mut bench = asking(&[], &[A]);
        bench.host(A, &calls("1", ""));
        bench.child(asks("7"));
        let state = expect_asked(
            &mut bench,
            A,
            "1",
            r#""q1":{"method":"roots/list","params":{}}"#,
        );
        if dies {
            bench.crash();
        } else {
            bench.child(r#"{"jsonrpc":"2.0","id":5,"result":{"content":[]}}"#);
        }
        bench.expect_host(A, &[]);
        bench.take_child();
        bench.host(A, &retry("2", &state, &format!(r#"{{"q1":{ROOTS}}}"#)));
        if dies {
            bench.expect_error(A, "2", -31001);
        } else {
            bench.expect_host(
                A,
                &[&format!(
                    r#"{{"jsonrpc":"2.0","id":2,"result":{{"resultType":"complete",{META},"content":[]}}}}"#
                )],
            );
        }
        bench.expect_child(&[]);
        bench.expect_quiet();
    }
}

#[test]
fn a_host_that_does_not_come_back_is_given_up() {
    let mut bench = asking(&[], &[A, B]);
    bench.host(A, &calls("1", ""));
    bench.host(B, &calls("1", ""));
    bench.child(asks("7"));
    bench.take_child();
    let state = expect_asked(
        &mut bench,
        A,
        "1",
        r#""q1":{"method":"roots/list","params":{}}"#,
    );
    bench.pass(Duration::from_secs(599));
    bench.expect_child(&[]);
    bench.pass(Duration::from_secs(1));
    let lines = bench.take_child();
    assert!(
        lines[0].contains(r#""id":7,"error":{"code":-32603"#),
        "{lines:?}"
    );
    assert!(lines[1].contains(r#""notifications/cancelled","params":{"requestId":5"#));
    assert_eq!(lines[2], seen(6));
    bench.host(A, &retry("2", &state, "{}"));
    bench.child(r#"{"jsonrpc":"2.0","id":6,"result":{}}"#);
    bench.expect_error(A, "2", -32602);
    assert_eq!(bench.take_host(B).len(), 1);
    bench.expect_quiet();
}

#[test]
fn a_call_ends_with_the_host_that_opened_it() {
    let mut bench = asking(&[], &[A, B]);
    bench.host(A, &calls("1", ""));
    bench.child(asks("7"));
    let state = expect_asked(
        &mut bench,
        A,
        "1",
        r#""q1":{"method":"roots/list","params":{}}"#,
    );
    bench.host(B, &retry("2", &state, &format!(r#"{{"q1":{ROOTS}}}"#)));
    bench.take_child();
    bench.leave(A);
    bench.expect_error(B, "2", -32603);
    assert!(bench.take_child()[0].contains("notifications/cancelled"));
    bench.expect_quiet();
}

#[test]
fn cancelling_a_retry_cancels_the_call() {
    let mut bench = asking(&[], &[A]);
    bench.host(A, &calls("1", ""));
    bench.child(asks("7"));
    bench.child(asks("8"));
    let state = expect_asked(
        &mut bench,
        A,
        "1",
        r#""q1":{"method":"roots/list","params":{}}"#,
    );
    bench.child(notification(
        "notifications/cancelled",
        r#"{"requestId":8}"#,
    ));
    bench.host(A, &retry("2", &state, &format!(r#"{{"q1":{ROOTS}}}"#)));
    bench.take_child();
    bench.expect_host(A, &[]);
    bench.host(
        A,
        &notification("notifications/cancelled", r#"{"requestId":2}"#),
    );
    bench.expect_child(&[&notification(
        "notifications/cancelled",
        r#"{"requestId":5}"#,
    )]);
    bench.child(r#"{"jsonrpc":"2.0","id":5,"result":{}}"#);
    bench.expect_host(A, &[]);
    bench.expect_quiet();
}

#[test]
fn a_question_that_the_child_withdrew_needs_no_answer() {
    let mut bench = asking(&[], &[A]);
    bench.host(A, &calls("1", ""));
    bench.child(asks("7"));
    let state = expect_asked(
        &mut bench,
        A,
        "1",
        r#""q1":{"method":"roots/list","params":{}}"#,
    );
    bench.child(notification(
        "notifications/cancelled",
        r#"{"requestId":7}"#,
    ));
    bench.take_child();
    bench.expect_host(A, &[]);
    bench.host(A, &retry("2", &state, &format!(r#"{{"q1":{ROOTS}}}"#)));
    bench.expect_child(&[]);
    bench.child(r#"{"jsonrpc":"2.0","id":5,"result":{}}"#);
    assert_eq!(bench.take_host(A).len(), 1);
    bench.expect_quiet();
}

#[test]
fn a_stop_ends_what_waits_for_its_host() {
    let mut bench = asking(&[], &[A]);
    bench.host(A, &calls("1", ""));
    bench.child(asks("7"));
    let state = expect_asked(
        &mut bench,
        A,
        "1",
        r#""q1":{"method":"roots/list","params":{}}"#,
    );
    bench.mux.begin_drain(bench.now);
    bench.pump();
    assert!(!bench.actions.contains(&MuxAction::Drained));
    bench
        .mux
        .cancel_open(crate::protocol::ErrorCode::SERVER_STOPPING, bench.now);
    bench.pump();
    assert!(bench.actions.contains(&MuxAction::Drained));
    bench.host(A, &retry("2", &state, "{}"));
    bench.expect_error(A, "2", -31005);
}
