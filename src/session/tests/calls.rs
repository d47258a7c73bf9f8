//! Calls and their answers: ids, bytes, progress, cancellation.

use super::*;
use crate::protocol::ErrorCode;
use crate::session::{CallOutcome, ToolRules};

#[test]
fn hosts_with_equal_ids_get_their_own_answers() {
    let mut bench = Bench::serving(config(), &[A, B]);
    bench.host(A, &call("1"));
    bench.host(B, &call("1"));
    bench.expect_child(&[&call("5"), &call("6")]);
    bench.child(result("6"));
    bench.expect_host(B, &[r#"{"jsonrpc":"2.0","id":1,"result":{"n":6}}"#]);
    bench.child(result("5"));
    bench.expect_host(A, &[r#"{"jsonrpc":"2.0","id":1,"result":{"n":5}}"#]);
    bench.expect_quiet();
}

#[test]
fn ids_come_back_byte_for_byte() {
    let mut bench = Bench::serving(config(), &[A]);
    let long = format!("\"{}\"", "i".repeat(3_000));
    let ids = [
        "2147483648",
        "9007199254740993",
        "18446744073709551616",
        "1.5",
        "1e3",
        "-1",
        "1.0",
        "\"1\"",
        "\"\\u0031x\"",
        "\"\\ud83d\"",
        "0",
        &long,
    ];
    for (number, id) in (5..).zip(ids) {
        bench.host(A, &call(id));
        bench.expect_child(&[&call(&number.to_string())]);
        bench.child(format!(
            r#"{{"result":{{}},"id":{number},"jsonrpc":"2.0"}}"#
        ));
        bench.expect_host(
            A,
            &[&format!(r#"{{"result":{{}},"id":{id},"jsonrpc":"2.0"}}"#)],
        );
    }
}

#[test]
fn the_child_may_spell_the_id_as_it_likes_but_not_as_text() {
    let mut bench = Bench::serving(config(), &[A]);
    bench.host(A, &call("1"));
    bench.child(r#"{"jsonrpc":"2.0","id":"5","result":{}}"#);
    bench.expect_host(A, &[]);
    bench.child(r#"{"jsonrpc":"2.0","id":5.0,"result":{}}"#);
    bench.expect_host(A, &[r#"{"jsonrpc":"2.0","id":1,"result":{}}"#]);
}

#[test]
fn an_id_that_is_open_is_refused_and_may_be_used_again_later() {
    let mut bench = Bench::serving(config(), &[A]);
    bench.host(A, &call("1"));
    bench.host(A, &call("1.0"));
    bench.expect_error(A, "1.0", -32600);
    bench.child(result("5"));
    bench.expect_host(A, &[r#"{"jsonrpc":"2.0","id":1,"result":{"n":5}}"#]);
    bench.take_child();
    bench.host(A, &call("1"));
    bench.expect_child(&[&call("6")]);
}

#[test]
fn every_other_byte_passes() {
    let mut bench = Bench::serving(config(), &[A]);
    let params = r#"{ "name" : "t", "arguments":{"a":1.0e0,"a":2,"\ud800":"\udc00"}, "_meta":{"x":[ ]},"zz":null }"#;
    bench.host(A, &format!(r#"{{ "params":{params},"extra":1.00, "method":"tools\/call","jsonrpc":"2.0","id" : "u" }}"#));
    bench.expect_child(&[&format!(
        r#"{{ "params":{params},"extra":1.00, "method":"tools\/call","jsonrpc":"2.0","id" : 5 }}"#
    )]);
    let body = r#"{"content":[ {"type":"text","text":"\ud83d"} ],"structuredContent":{"n":1.10},"_meta":{}}"#;
    bench.child(format!(
        r#"{{"beside":true, "result":{body}, "jsonrpc":"2.0", "id":5}}"#
    ));
    bench.expect_host(
        A,
        &[&format!(
            r#"{{"beside":true, "result":{body}, "jsonrpc":"2.0", "id":"u"}}"#
        )],
    );
    bench.host(A, &call("2"));
    bench.child(
        r#"{"jsonrpc":"2.0","id":6,"error":{"code":-1,"message":"m","data":{"k":1.0},"x":[]}}"#,
    );
    bench.expect_host(
        A,
        &[r#"{"jsonrpc":"2.0","id":2,"error":{"code":-1,"message":"m","data":{"k":1.0},"x":[]}}"#],
    );
}

#[test]
fn late_and_second_answers_are_dropped_and_counted() {
    let mut bench = Bench::serving(config(), &[A]);
    bench.host(A, &call("1"));
    bench.child(result("5"));
    bench.take_host(A);
    bench.child(result("5"));
    bench.child(result("77"));
    bench.join(B, "2025-11-25");
    bench.host(B, &call("1"));
    bench.child(result("5"));
    bench.expect_host(A, &[]);
    bench.expect_host(B, &[]);
    assert_eq!(bench.mux.snapshot(bench.now).counters.late_answers, 3);
}

#[test]
fn progress_is_mapped_both_ways_and_ends_with_the_answer() {
    let mut bench = Bench::serving(config(), &[A, B]);
    let with_token = |id: &str, token: &str| {
        request(
            id,
            "tools/call",
            &format!(r#"{{"name":"t","_meta":{{"progressToken":{token}}}}}"#),
        )
    };
    let progress = |token: &str| {
        notification(
            "notifications/progress",
            &format!(r#"{{"progressToken":{token},"progress":1}}"#),
        )
    };
    bench.host(A, &with_token("1", "\"tok\""));
    bench.host(B, &with_token("1", "\"tok\""));
    bench.host(B, &call("2"));
    bench.expect_child(&[&with_token("5", "5"), &with_token("6", "6"), &call("7")]);
    bench.child(progress("6"));
    bench.expect_host(B, &[&progress("\"tok\"")]);
    for unknown in ["\"tok\"", "7", "99", "\"6\"", "null"] {
        bench.child(progress(unknown));
    }
    bench.child(result("6"));
    bench.child(progress("6"));
    assert_eq!(bench.take_host(B).len(), 1);
    bench.expect_host(A, &[]);
    assert_eq!(bench.mux.snapshot(bench.now).counters.unknown_progress, 6);
}

#[test]
fn an_answer_that_had_progress_starts_a_write_of_its_own() {
    let mut bench = Bench::serving(config(), &[A]);
    bench.host(
        A,
        &request(
            "1",
            "tools/call",
            r#"{"name":"t","_meta":{"progressToken":1}}"#,
        ),
    );
    bench.host(A, &call("2"));
    let lines = [
        notification(
            "notifications/progress",
            r#"{"progressToken":5,"progress":1}"#,
        ),
        result("5"),
        result("6"),
    ];
    for text in &lines {
        bench
            .mux
            .handle_child_line(Generation(1), line(text), bench.now);
    }
    let marks: Vec<_> = std::iter::from_fn(|| bench.mux.poll_host_frame(A))
        .map(|one| one.own_write)
        .collect();
    assert_eq!(marks, [false, true, false]);
}

#[test]
fn a_cancelled_call_is_cancelled_upstream_and_has_no_answer() {
    let mut bench = Bench::serving(config(), &[A]);
    bench.host(A, &call("\"a\""));
    bench.take_child();
    let cancel = |id: &str| {
        notification(
            "notifications/cancelled",
            &format!(r#"{{"reason":"why","requestId":{id}}}"#),
        )
    };
    bench.host(A, &cancel("\"b\""));
    bench.host(A, &cancel("\"\\u0061\""));
    bench.expect_child(&[&cancel("5")]);
    bench.expect_quiet();
    bench.child(result("5"));
    bench.expect_host(A, &[]);
    bench.host(A, &cancel("\"a\""));
    bench.host(A, &notification("notifications/cancelled", "{}"));
    bench.expect_child(&[]);
}

#[test]
fn one_host_cannot_cancel_for_another() {
    let mut bench = Bench::serving(config(), &[A, B]);
    bench.host(A, &call("1"));
    bench.take_child();
    bench.host(
        B,
        &notification("notifications/cancelled", r#"{"requestId":1}"#),
    );
    bench.host(
        B,
        &notification("notifications/cancelled", r#"{"requestId":5}"#),
    );
    bench.expect_child(&[]);
    bench.child(result("5"));
    assert_eq!(bench.take_host(A).len(), 1);
}

#[test]
fn the_calls_of_a_host_that_leaves_are_cancelled_and_no_others() {
    let mut bench = Bench::serving(config(), &[A, B]);
    for id in ["1", "2", "3"] {
        bench.host(A, &call(id));
    }
    bench.host(B, &call("1"));
    bench.take_child();
    bench.leave(A);
    let cancels = bench.take_child();
    assert_eq!(cancels.len(), 3);
    for (id, cancel) in (5..8).zip(&cancels) {
        assert!(cancel.contains("notifications/cancelled"));
        assert!(cancel.contains(&format!("\"requestId\":{id},")), "{cancel}");
    }
    for id in ["5", "6", "7", "8"] {
        bench.child(result(id));
    }
    assert_eq!(bench.take_host(B).len(), 1);
    bench.expect_quiet();
}

#[test]
fn a_childs_requests_are_answered_here_with_its_own_ids() {
    let mut bench = Bench::serving(config(), &[A, B]);
    bench.host(A, &call("1"));
    bench.take_child();
    for id in ["5", "\"r\"", "1.0"] {
        bench.child(request(id, "roots/list", "{}"));
        let answer = bench.take_child().join("");
        assert!(answer.contains(&format!("\"id\":{id},")), "{answer}");
        assert!(answer.contains("-32601"), "{answer}");
    }
    bench.expect_host(A, &[]);
    bench.host(A, r#"{"jsonrpc":"2.0","id":5,"result":{"roots":[]}}"#);
    bench.expect_child(&[]);
    bench.child(result("5"));
    assert_eq!(bench.take_host(A).len(), 1);
    bench.expect_host(B, &[]);
}

#[test]
fn answers_that_are_not_quite_ones_are_made_so() {
    for (answer, told) in [
        (
            r#"{"jsonrpc":"2.0","id":5,"result":{"a":1.0},"error":null}"#,
            r#""result":{"a":1.0}}"#,
        ),
        (
            r#"{"jsonrpc":"2.0","id":5,"result":null,"error":{"code":1,"message":"m"}}"#,
            r#""error":{"code":1,"message":"m"}}"#,
        ),
        (
            r#"{"jsonrpc":"2.0","id":5,"result":{},"error":{"code":1,"message":"m"}}"#,
            r#""error":{"code":1,"message":"m"}}"#,
        ),
        (r#"{"id":5,"result":{"a":1.0}}"#, r#""result":{"a":1.0}}"#),
    ] {
        let mut bench = Bench::serving(config(), &[A]);
        bench.host(A, &call("9"));
        bench.child(answer);
        bench.expect_host(A, &[&format!(r#"{{"jsonrpc":"2.0","id":9,{told}"#)]);
    }
    for answer in [
        r#"{"jsonrpc":"2.0","id":5}"#,
        r#"{"jsonrpc":"2.0","id":5,"error":"boom"}"#,
        r#"{"jsonrpc":"2.0","id":5,"error":null}"#,
    ] {
        let mut bench = Bench::serving(config(), &[A]);
        bench.host(A, &call("9"));
        bench.child(answer);
        bench.expect_error(A, "9", -32603);
        bench.expect_quiet();
    }
}

#[test]
fn an_error_without_an_id_is_for_the_only_open_request() {
    let error = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"parse"}}"#;
    let mut bench = Bench::serving(config(), &[A]);
    bench.child(error);
    bench.host(A, &call("1"));
    bench.host(A, &call("2"));
    bench.child(error);
    bench.expect_host(A, &[]);
    bench.child(result("5"));
    bench.take_host(A);
    bench.child(error);
    bench.expect_error(A, "2", -32700);
    assert_eq!(bench.mux.snapshot(bench.now).counters.late_answers, 2);
}

#[test]
fn a_denied_tool_is_neither_listed_nor_callable() {
    let tools = ToolRules {
        allow: None,
        deny: vec!["rm*".to_owned()],
    };
    let mut bench = Bench::serving(MuxConfig { tools, ..config() }, &[A]);
    bench.host(
        A,
        &request("1", "tools/call", r#"{"n\u0061me":"r\u006dx"}"#),
    );
    let error = bench.expect_error(A, "1", -31008);
    assert_eq!(error["data"]["detail"]["tool"], "rmx");
    bench.host(
        A,
        &request("2", "tools/call", r#"{"name":"ls","name":"rm"}"#),
    );
    bench.expect_error(A, "2", -32600);
    bench.host(A, &request("3", "tools/call", r#"{"name":["rm"]}"#));
    bench.expect_error(A, "3", -32602);
    bench.expect_child(&[]);
    let list = |id, tools| {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"tools":[{tools}], "z":1.0}}}}"#)
    };
    bench.host(A, &request("4", "tools/list", "{}"));
    bench.child(list(5, r#"{"name":"ls"}, {"name":"rm"}"#));
    bench.expect_host(A, &[&list(4, r#"{"name":"ls"}"#)]);
    // An answer that has to be repaired does not get around the rules.
    bench.host(A, &request("5", "tools/list", "{}"));
    bench.child(r#"{"id":6,"result":{"tools":[{"name":"rm"}]}}"#);
    bench.expect_host(A, &[r#"{"jsonrpc":"2.0","id":5,"result":{"tools":[]}}"#]);
}

#[test]
fn other_rules_for_tools_make_hosts_list_again() {
    let mut bench = Bench::serving(config(), &[A]);
    let tools = ToolRules {
        allow: Some(vec!["a".to_owned()]),
        deny: Vec::new(),
    };
    bench
        .mux
        .configure(MuxConfig { tools, ..config() }, bench.now);
    bench.pump();
    bench.expect_host(
        A,
        &[r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#],
    );
}

#[test]
fn tasks_are_not_served_where_hosts_share() {
    let mut bench = Bench::serving(config(), &[A]);
    for method in ["tasks/get", "tasks/list", "tasks/cancel", "tasks/result"] {
        bench.host(A, &request("1", method, r#"{"taskId":"x"}"#));
        bench.expect_error(A, "1", -32601);
    }
    bench.child(notification(
        "notifications/tasks/status",
        r#"{"taskId":"x"}"#,
    ));
    bench.expect_host(A, &[]);
    bench.expect_child(&[]);
}

#[test]
fn other_notifications_of_a_host_keep_their_place_among_its_requests() {
    let mut bench = Bench::serving(config(), &[A]);
    bench.judges.tainted.add("notifications/x");
    let other = notification("notifications/x", r#"{"k":1.0}"#);
    bench.mux.handle_host_line(A, line(call("1")), bench.now);
    bench.mux.handle_host_line(A, line(&other), bench.now);
    bench.mux.handle_host_line(A, line(call("2")), bench.now);
    bench.pump();
    bench.expect_child(&[&call("5"), &other, &call("6")]);
    bench.host(A, &notification("notifications/roots/list_changed", "{}"));
    bench.host(
        A,
        &notification("notifications/progress", r#"{"progressToken":5}"#),
    );
    bench.expect_child(&[]);
}

#[test]
fn a_thousand_rounds_of_equal_ids_are_never_swapped() {
    let mut bench = Bench::serving(config(), &[A, B]);
    for round in 0..1_000_u64 {
        bench.host(A, &call("1"));
        bench.host(B, &call("1"));
        let (for_a, for_b) = (5 + 2 * round, 6 + 2 * round);
        let mut order = [for_a, for_b];
        order.rotate_left(usize::from(round % 3 == 0));
        for id in order {
            bench.child(result(&id.to_string()));
        }
        let told = |id| format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"n":{id}}}}}"#);
        bench.expect_host(A, &[&told(for_a)]);
        bench.expect_host(B, &[&told(for_b)]);
    }
    bench.expect_quiet();
}

/// Each call is told of once when it ends, with who called what and how it ended.
#[test]
fn the_end_of_a_call_is_told() {
    let mut config = config();
    config.request_timeout = Some(Duration::from_secs(5));
    config.tools.deny = vec!["denied".to_owned()];
    let mut bench = Bench::serving(config, &[A, B]);
    let named = |id: &str, tool: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}"}}}}"#
        )
    };
    bench.host(A, &named("1", "one"));
    bench.child(result("5"));
    bench.host(A, &named("2", "two"));
    bench.child(r#"{"jsonrpc":"2.0","id":6,"error":{"code":-32602,"message":"no"}}"#);
    bench.host(A, &named("3", "three"));
    bench.host(
        A,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3}}"#,
    );
    bench.host(A, &named("4", "denied"));
    bench.host(B, &named("5", "left"));
    bench.leave(B);
    bench.host(A, &named("6", "late"));
    bench.pass(Duration::from_secs(5));
    bench.host(A, &named("7", "lost"));
    bench.host(A, r#"{"jsonrpc":"2.0","id":8,"method":"tools/list"}"#);
    bench.crash();
    let told = bench.ended.iter().map(|end| {
        (
            end.host,
            end.tool.as_deref().unwrap_or_default(),
            end.outcome,
        )
    });
    let failed = CallOutcome::Failed;
    assert_eq!(
        told.collect::<Vec<_>>(),
        [
            (A, "one", CallOutcome::Done),
            (A, "two", CallOutcome::Refused(-32602)),
            (A, "three", CallOutcome::Cancelled),
            (A, "denied", failed(ErrorCode::NOT_ALLOWED)),
            (B, "left", CallOutcome::Cancelled),
            (A, "late", failed(ErrorCode::TIMED_OUT)),
            (A, "lost", failed(ErrorCode::SERVER_EXITED)),
        ]
    );
    assert_eq!(bench.ended[5].took, Duration::from_secs(5));
}
