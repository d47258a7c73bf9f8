//! Ids: each host keeps its own, byte for byte, and the child sees small positive integers.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::common::{Home, error_code, text_of};

/// C127: two hosts use the same ids; each gets its own replies, whatever their order.
#[test]
fn equal_ids_of_two_hosts_do_not_cross() {
    let home = Home::new();
    home.fake("fake", &[]);
    let daemon = home.start();
    let mut slow = daemon.socket_host("fake");
    let mut fast = daemon.socket_host("fake");
    slow.initialize();
    fast.initialize();
    for round in 0..1000_u64 {
        let (one, other) = (format!("slow {round}"), format!("fast {round}"));
        let first = slow.start_call("sleep", json!({"ms": round % 4, "text": one}));
        let second = fast.start_call("sleep", json!({"ms": (round + 2) % 4, "text": other}));
        assert_eq!(first, second, "both count alike");
        assert_eq!(text_of(&fast.answer(second)), other);
        assert_eq!(text_of(&slow.answer(first)), one);
    }
}

/// C129: an id may be used again after its reply; while it is open a second request with it is refused.
#[test]
fn an_open_id_is_refused_a_second_time() {
    let home = Home::new();
    home.fake("fake", &[]);
    let daemon = home.start();
    let mut host = daemon.socket_host("fake");
    host.initialize();
    let call = |tool: &str, arguments: Value| json!({"jsonrpc": "2.0", "id": 1000, "method": "tools/call", "params": {"name": tool, "arguments": arguments}});
    host.send(&call("sleep", json!({"ms": 500, "text": "first"})));
    host.send(&call("echo", json!({})));
    assert_eq!(error_code(&host.answer(1000)), -32600);
    assert_eq!(text_of(&host.answer(1000)), "first");
    for _ in 0..3 {
        host.send(&call("sum", json!({"a": 1, "b": 1})));
        assert_eq!(text_of(&host.answer(1000)), "2");
    }
}

/// C131, C066: an id comes back in the bytes in which it was sent, or is refused, but never changed.
#[test]
fn an_id_comes_back_byte_for_byte() {
    let home = Home::new();
    home.fake("fake", &["--strict-ids"]);
    let daemon = home.start();
    let mut host = daemon.socket_host("fake");
    host.initialize();
    let long = format!("\"{}\"", "i".repeat(10_000));
    let ids = [
        "0",
        "-1",
        "2147483648",
        "9007199254740993",
        "18446744073709551616",
        "1.5",
        "1e3",
        "1E+3",
        "1.0",
        "-0",
        "\"1\"",
        "\"\"",
        "\"\\u0031\"",
        "\"\\ud83d\"",
        "\"caf\u{e9}\"",
        "\"a\\\"b\"",
        "123456789012345678901234567890",
        &long,
    ];
    for id in ids {
        host.send_line(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"sum","arguments":{{"a":1}}}}}}"#
        ));
        let wanted = format!("\"id\":{id}");
        let line = host.wait_line(&wanted, |line| line.text().contains(&wanted));
        assert!(line.text().contains("\"result\""), "{}", line.text());
    }
}

/// C131: a host may hold `1`, `"1"` and `2` open together; `1.0` is `1`.
#[test]
fn ids_are_equal_by_type_and_value() {
    let home = Home::new();
    home.fake("fake", &[]);
    let daemon = home.start();
    let mut host = daemon.socket_host("fake");
    host.initialize();
    let mut send = |id: &str, ms: u64, text: &str| {
        host.send_line(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"sleep","arguments":{{"ms":{ms},"text":"{text}"}}}}}}"#
        ));
    };
    send("100", 800, "number");
    send("\"100\"", 400, "string");
    send("100.0", 0, "the number again");
    send("\"\\u0031\\u0030\\u0030\"", 0, "the string again");
    let refused = host.wait_line("a refusal", |line| line.text().contains("\"id\":100.0"));
    assert_eq!(error_code(&refused.json), -32600);
    let refused = host.wait_line("a refusal", |line| {
        line.text().contains(r#""id":"\u0031\u0030\u0030""#)
    });
    assert_eq!(error_code(&refused.json), -32600);
    assert_eq!(text_of(&host.answer("100")), "string");
    assert_eq!(text_of(&host.answer(100)), "number");
}

/// C133: the child gets small positive integers as ids and progress tokens, never the same twice.
#[test]
fn upstream_ids_are_small_positive_integers() {
    let home = Home::new();
    home.fake("fake", &["--strict-ids"]);
    let daemon = home.start();
    let mut host = daemon.socket_host("fake");
    host.initialize();
    for number in 0..20 {
        let id = format!("0b2c-uuid-{number}");
        host.send(
            &json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params":
            {"name": "progress", "arguments": {"n": 1}, "_meta": {"progressToken": id}}}),
        );
        assert_eq!(text_of(&host.answer(id.clone())), "done");
        assert_eq!(
            host.notification("notifications/progress")["params"]["progressToken"],
            id
        );
    }
    let mut seen = BTreeSet::new();
    for message in daemon
        .record("fake")
        .messages()
        .iter()
        .filter(|message| !message["id"].is_null())
    {
        let id = message["id"]
            .as_u64()
            .unwrap_or_else(|| panic!("{message}"));
        assert!((1..1000).contains(&id), "{id}");
        assert!(seen.insert(id), "{id} was used twice");
        if let Some(token) = message.pointer("/params/_meta/progressToken") {
            assert_eq!(token.as_u64(), Some(id));
        }
    }
}

/// C135: replies that come late, twice or to nobody are dropped, and the session lives.
#[test]
fn late_and_second_replies_reach_nobody() {
    let home = Home::new();
    home.fake("fake", &[]);
    let daemon = home.start();
    let mut one = daemon.socket_host("fake");
    let mut two = daemon.socket_host("fake");
    one.initialize();
    two.initialize();
    let cancelled = one.start_call("late", json!({"ms": 300}));
    daemon.record("fake").wait_for("tools/call", 1);
    one.notify("notifications/cancelled", json!({"requestId": cancelled}));
    two.start_call("late", json!({"ms": 300}));
    daemon.record("fake").wait_for("tools/call", 2);
    two.vanish();
    daemon.record("fake").wait_for("notifications/cancelled", 2);
    let mut three = daemon.socket_host("fake");
    three.initialize();
    assert_eq!(
        text_of(&three.call("sleep", json!({"ms": 800, "text": "mine"}))),
        "mine"
    );
    for host in [&mut one, &mut three] {
        let strays = host.everything_up_to_now();
        assert!(strays.is_empty(), "{strays:?}");
    }
    // Two calls, each answered twice and too late.
    let status = daemon.server_status("fake");
    assert_eq!(status["requests"]["late_answers"], 4, "{status}");
}

/// C137: replies with both members or without `jsonrpc` go to their caller; one with neither is an error.
#[test]
fn odd_replies_still_reach_their_caller() {
    let home = Home::new();
    home.fake("fake", &[]);
    let daemon = home.start();
    let mut host = daemon.socket_host("fake");
    host.initialize();
    for kind in ["both", "no-jsonrpc", "unknown-id", "twice", "id-last"] {
        assert_eq!(
            text_of(&host.call("reply", json!({"kind": kind}))),
            format!("reply {kind}"),
            "{kind}"
        );
    }
    assert_eq!(
        error_code(&host.call("reply", json!({"kind": "null-both"}))),
        -32000
    );
    let neither = host.call("reply", json!({"kind": "neither"}));
    assert!(neither["error"].is_object(), "{neither}");
    for kind in ["null-id", "no-id"] {
        let answer = host.call("reply", json!({"kind": kind}));
        assert!(
            answer["error"].is_object(),
            "the only open request fails with it: {answer}"
        );
    }
    assert_eq!(host.text("sum", json!({"a": 1})), "1");
}

/// A child that answers with an id of another type or spelling: `5.0` is `5`; `"5"` is not, and the call ends.
#[test]
fn a_reply_is_matched_by_type_and_value() {
    let home = Home::new();
    home.fake("fake", &[]);
    let daemon = home.start();
    let mut host = daemon.socket_host("fake");
    host.initialize();
    assert_eq!(
        text_of(&host.call("reply", json!({"kind": "float-id"}))),
        "reply float-id"
    );
    let id = host.start_call("reply", json!({"kind": "string-id"}));
    assert_eq!(host.text("sum", json!({"a": 1})), "1");
    host.notify("notifications/cancelled", json!({"requestId": id}));
    assert!(
        host.everything_up_to_now().is_empty(),
        "nobody gets an answer that is not theirs"
    );
}

/// C139: an array from a host of the revision that has them is answered with an array; each request is routed.
#[test]
fn a_batch_is_answered_with_a_batch_where_the_revision_has_them() {
    let home = Home::new();
    home.fake("fake", &[]);
    let daemon = home.start();
    let mut host = daemon.socket_host("fake");
    host.initialize_as("2025-03-26");
    host.send_line(
        r#"[{"jsonrpc":"2.0","id":71,"method":"tools/call","params":{"name":"sum","arguments":{"a":1}}},{"jsonrpc":"2.0","method":"notifications/x-foo"},{"jsonrpc":"2.0","id":72,"method":"ping"}]"#,
    );
    let answer = host.wait_line("an array", |line| line.json.is_array()).json;
    let ids: BTreeSet<u64> = answer
        .as_array()
        .expect("an array")
        .iter()
        .filter_map(|one| one["id"].as_u64())
        .collect();
    assert_eq!(ids, BTreeSet::from([71, 72]), "{answer}");
    host.send_line("[]");
    assert_eq!(
        error_code(
            &host
                .wait_line("a refusal", |line| line.json["error"].is_object())
                .json
        ),
        -32600
    );
    host.send_line(r#"[{"jsonrpc":"2.0","method":"notifications/x-bar"}]"#);
    assert!(
        host.everything_up_to_now().is_empty(),
        "no answer to notifications"
    );
    let arrays = daemon
        .record("fake")
        .lines()
        .into_iter()
        .filter(|line| line.starts_with('['))
        .count();
    assert_eq!(arrays, 0, "the child never gets an array");
}

/// C139: from any other revision an array is `-32600`, nested arrays too.
#[test]
fn a_batch_is_refused_where_the_revision_has_none() {
    let home = Home::new();
    home.fake("fake", &[]);
    let daemon = home.start();
    let mut host = daemon.socket_host("fake");
    host.initialize_as("2025-06-18");
    for line in [
        "[]",
        "[[]]",
        r#"[{"jsonrpc":"2.0","id":5000,"method":"ping"}]"#,
    ] {
        host.send_line(line);
        let refusal = host
            .wait_line("a refusal", |line| line.json["error"].is_object())
            .json;
        assert_eq!(error_code(&refusal), -32600, "{line}: {refusal}");
    }
    assert_eq!(host.ask("ping", json!({}))["result"], json!({}));
}

/// C139: replies in an array of the child reach their owners.
#[test]
fn an_array_of_the_child_is_taken_apart() {
    let home = Home::new();
    home.fake("fake", &[]);
    let daemon = home.start();
    let mut host = daemon.socket_host("fake");
    host.initialize();
    assert_eq!(
        text_of(&host.call("reply", json!({"kind": "array"}))),
        "reply array"
    );
    assert_eq!(
        host.notification("notifications/message")["params"]["data"],
        "beside"
    );
}

/// C140: many hosts at once, many calls each: every reply is right.
#[test]
fn five_hundred_calls_of_ten_hosts_get_their_own_replies() {
    let home = Home::new();
    home.fake("fake", &[]);
    let daemon = home.start();
    let mut hosts: Vec<_> = (0..10).map(|_| daemon.socket_host("fake")).collect();
    for host in &mut hosts {
        host.initialize();
    }
    let mut open = Vec::new();
    for call in 0..50 {
        for (number, host) in hosts.iter_mut().enumerate() {
            open.push((
                number,
                call,
                host.start_call("echo", json!({"host": number, "call": call})),
            ));
        }
    }
    for (number, call, id) in open {
        let answer = hosts[number].answer(id);
        assert_eq!(
            answer["result"]["structuredContent"],
            json!({"host": number, "call": call})
        );
    }
}
