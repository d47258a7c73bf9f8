//! What mcpd need not read passes byte for byte.

use serde_json::json;

use crate::common::Home;

/// C190: a result with unknown members at every level, odd spellings of numbers and an order of its own
/// arrives as it was sent; only the id is another.
#[test]
fn a_result_passes_byte_for_byte() {
    let home = Home::new();
    home.fake("fake", &[]);
    let daemon = home.start();
    let mut host = daemon.socket_host("fake");
    host.initialize();
    host.send_line(
        r#"{"jsonrpc":"2.0","id":"mine","method":"tools/call","params":{"name":"reply","arguments":{"kind":"members"}}}"#,
    );
    let line = host
        .wait_line("the reply", |line| line.json["id"] == "mine")
        .text();
    assert_eq!(
        line,
        r#"{"jsonrpc": "2.0", "extra":[1, 2],"id":"mine" ,"result" : {"structuredContent":{"z":1.0,"a":1e2}, "_meta":{"x/y":null},"content":[{"type":"text","text":"t","annotations":{"priority":0.50},"icons":[]}],"unknown":"\u0041"},"after":{}}"#
    );
}

/// C190: an error passes with its data and unknown members.
#[test]
fn an_error_passes_byte_for_byte() {
    let home = Home::new();
    home.fake("fake", &[]);
    let daemon = home.start();
    let mut host = daemon.socket_host("fake");
    host.initialize();
    let id = host.start_call("reply", json!({"kind": "error"}));
    let line = host.answer_line(id).text();
    assert_eq!(
        line,
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32042,"message":"no","data":{{"z":1.50,"a":[1e3]}},"hint":"x"}},"beside":true}}"#
        )
    );
}

/// C190: a request reaches the child as it was sent, but for the id and the progress token.
#[test]
fn a_request_passes_byte_for_byte() {
    let home = Home::new();
    home.fake("fake", &[]);
    let daemon = home.start();
    let mut host = daemon.socket_host("fake");
    host.initialize();
    host.send_line(
        r#"{ "params": {"_meta":{"a/b":1.0,"progressToken":"t","z":[ ]},"name":"echo","arguments":{"z":1.0,"a":1e2,"\u0061b":-0}, "more":{}}, "extra":null,"method":"tools\/call","jsonrpc":"2.0","id":"last"}"#,
    );
    let echoed = host
        .wait_line("the echo", |line| line.json["id"] == "last")
        .text();
    assert!(
        echoed.contains(r#"{"z":1.0,"a":1e2,"\u0061b":-0}"#),
        "{echoed}"
    );
    let record = daemon.record("fake");
    let call = record
        .lines()
        .into_iter()
        .find(|line| line.contains("tools\\/call"))
        .expect("the child saw it");
    let id = serde_json::from_str::<serde_json::Value>(&call).expect("JSON")["id"].to_string();
    assert_eq!(
        call,
        format!(
            r#"{{ "params": {{"_meta":{{"a/b":1.0,"progressToken":{id},"z":[ ]}},"name":"echo","arguments":{{"z":1.0,"a":1e2,"\u0061b":-0}}, "more":{{}}}}, "extra":null,"method":"tools\/call","jsonrpc":"2.0","id":{id}}}"#
        )
    );
}

/// Everything a server offers passes: lists, reads, prompts, completions, and methods nobody knows.
#[test]
fn every_method_passes() {
    let home = Home::new();
    home.fake("fake", &["--page", "5"]);
    let daemon = home.start();
    let mut host = daemon.connect_host("fake");
    host.initialize();
    let first = host.ask("tools/list", json!({}));
    assert_eq!(first["result"]["tools"].as_array().map(Vec::len), Some(5));
    assert_eq!(first["result"]["nextCursor"], "5");
    let second = host.ask("tools/list", json!({"cursor": "5"}));
    assert_ne!(first["result"]["tools"], second["result"]["tools"]);
    for (method, params, member) in [
        ("resources/list", json!({}), "resources"),
        ("resources/templates/list", json!({}), "resourceTemplates"),
        ("resources/read", json!({"uri": "fake://one"}), "contents"),
        ("prompts/list", json!({}), "prompts"),
        ("prompts/get", json!({"name": "greet"}), "messages"),
        (
            "completion/complete",
            json!({"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "a", "value": "o"}}),
            "completion",
        ),
    ] {
        let answer = host.ask(method, params);
        assert!(!answer["result"][member].is_null(), "{method}: {answer}");
    }
    assert_eq!(host.ask("x/unknown", json!({}))["error"]["code"], -32601);
    host.notify("notifications/x-host", json!({"b": 1, "a": 2}));
    let seen = daemon.record("fake").wait_for("notifications/x-host", 1);
    assert_eq!(seen[0]["params"], json!({"b": 1, "a": 2}));
}

/// A tool that the configuration denies is neither listed nor callable, however it is spelled.
#[test]
fn a_denied_tool_is_neither_listed_nor_callable() {
    let home = Home::new();
    home.fake_with(
        "fake",
        &["--page", "7"],
        "[tools]\nallow = [\"s*\", \"echo\", \"crash\"]\ndeny = [\"cr*\"]\n",
    );
    let daemon = home.start();
    let mut host = daemon.socket_host("fake");
    host.initialize();
    let mut names = Vec::new();
    let mut params = json!({});
    loop {
        let answer = host.ask("tools/list", params);
        let page = answer["result"]["tools"].as_array().expect("tools").clone();
        names.extend(
            page.iter()
                .map(|tool| tool["name"].as_str().expect("a name").to_owned()),
        );
        let cursor = answer["result"]["nextCursor"].clone();
        if cursor.is_null() {
            break;
        }
        params = json!({"cursor": cursor});
    }
    assert!(
        names
            .iter()
            .all(|name| name.starts_with('s') || name == "echo"),
        "{names:?}"
    );
    assert!(
        names.contains(&"echo".to_owned()) && names.contains(&"sum".to_owned()),
        "{names:?}"
    );
    for (id, name) in [(901, "crash"), (902, "cr\\u0061sh"), (903, "pid")] {
        host.send_line(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{name}","arguments":{{}}}}}}"#
        ));
        assert_eq!(host.answer(id)["error"]["code"], -31008, "{name}");
    }
    assert_eq!(host.text("sum", json!({"a": 1})), "1");
    assert_eq!(daemon.record("fake").starts(), 1);
}
