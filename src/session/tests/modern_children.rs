//! Legacy and modern hosts on a modern child: whole exchanges.

use std::time::Duration;

use serde_json::{Value, json};

use super::*;

const DISCOVERY: &str = r#"{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true},"resources":{"subscribe":true},"logging":{}},"ttlMs":9,"cacheScope":"public","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"m","version":"1"}}}"#;

/// A host that can be asked for forms and roots.
const ABLE: &str = r#"{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{},"roots":{"listChanged":true}},"clientInfo":{"name":"h","version":"1"}}"#;

/// A modern child that serves these legacy hosts, and its first stream.
struct Scene {
    bench: Bench,
}

impl Scene {
    fn with(hosts: &[HostKey]) -> Self {
        let mut bench = Bench::new(MuxConfig {
            protocol: EraChoice::Auto,
            ..MuxConfig::of("srv")
        });
        bench.start();
        let asked = bench.take_child().join("");
        assert!(asked.contains("server/discover"), "{asked}");
        bench.child(format!(
            r#"{{"jsonrpc":"2.0","id":2,"result":{DISCOVERY}}}"#
        ));
        let mut scene = Self { bench };
        let listen = scene.written();
        assert_eq!(listen["method"], "subscriptions/listen");
        assert_eq!(
            listen["params"]["notifications"],
            json!({"toolsListChanged": true})
        );
        scene.acknowledge(&listen);
        for host in hosts {
            scene.bench.attach(*host);
            scene.bench.host(*host, &request("0", "initialize", ABLE));
            let told = scene.got(*host);
            assert_eq!(told["result"]["protocolVersion"], "2025-11-25", "{told}");
            scene.bench.host(
                *host,
                r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
            );
        }
        scene
    }

    /// The one line that the child got.
    #[track_caller]
    fn written(&mut self) -> Value {
        let lines = self.bench.take_child();
        assert_eq!(lines.len(), 1, "{lines:?}");
        serde_json::from_str(&lines[0]).expect("JSON")
    }

    /// The one line that a host got.
    #[track_caller]
    fn got(&mut self, host: HostKey) -> Value {
        let lines = self.bench.take_host(host);
        assert_eq!(lines.len(), 1, "{lines:?}");
        serde_json::from_str(&lines[0]).expect("JSON")
    }

    fn acknowledge(&mut self, listen: &Value) {
        let params = json!({
            "_meta": {"io.modelcontextprotocol/subscriptionId": listen["id"]},
            "notifications": listen["params"]["notifications"],
        });
        self.bench.child(notification(
            "notifications/subscriptions/acknowledged",
            &params.to_string(),
        ));
    }

    /// The child answers a request that it was given.
    fn answer(&mut self, asked: &Value, result: &str) {
        self.bench.child(format!(
            r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#,
            asked["id"]
        ));
    }

    /// A host calls, and the child wants to know something.
    fn consulted(&mut self, host: HostKey, questions: &str) -> Value {
        self.bench.host(host, &call("7"));
        let asked = self.written();
        self.answer(
            &asked,
            &format!(r#"{{"resultType":"input_required","requestState":"s\u0061","inputRequests":{questions}}}"#),
        );
        asked
    }
}

const FORM: &str = r#"{"method":"elicitation/create","params":{"mode":"form","message":"m","requestedSchema":{"type":"object","properties":{}}}}"#;

#[test]
fn a_legacy_host_is_told_what_a_modern_child_declares() {
    let mut scene = Scene::with(&[]);
    scene.bench.attach(A);
    scene.bench.host(A, &initialize("0", "2025-06-18"));
    let told = scene.got(A);
    assert_eq!(
        told["result"],
        json!({
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {"listChanged": true}, "resources": {"subscribe": true}, "logging": {}},
            "serverInfo": {"name": "m", "version": "1"},
        })
    );
}

#[test]
fn each_request_says_for_whom_it_is() {
    let mut scene = Scene::with(&[A]);
    scene
        .bench
        .host(A, &request("1", "logging/setLevel", r#"{"level":"debug"}"#));
    assert_eq!(scene.got(A)["result"], json!({}));
    scene.bench.expect_child(&[]);
    scene.bench.host(
        A,
        &request(
            "\"x\"",
            "tools/call",
            r#"{"name":"t","task":{},"_meta":{"progressToken":"p"}}"#,
        ),
    );
    let asked = scene.written();
    assert_eq!(
        asked["params"],
        json!({
            "name": "t",
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientInfo": {"name": "h", "version": "1"},
                "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}, "roots": {}},
                "io.modelcontextprotocol/logLevel": "debug",
                "progressToken": asked["id"],
            },
        })
    );
    for value in ["1", "0.5", "1", "2.5"] {
        let params = format!(r#"{{"progressToken":{},"progress":{value}}}"#, asked["id"]);
        scene
            .bench
            .child(notification("notifications/progress", &params));
    }
    let heard = scene.bench.take_host(A);
    assert_eq!(heard.len(), 2, "progress only grows: {heard:?}");
    assert!(heard[0].contains(r#""progressToken":"p""#));
    scene.answer(
        &asked,
        r#"{"resultType":"complete","content":[],"structuredContent":[1]}"#,
    );
    let got = scene.got(A);
    assert_eq!(got["id"], "x");
    assert_eq!(got["result"]["structuredContent"], json!({"result": [1]}));
    scene.bench.expect_quiet();
}

#[test]
fn questions_go_side_by_side_and_the_call_is_sent_again_with_the_answers() {
    let mut scene = Scene::with(&[A, B]);
    let asked = scene.consulted(
        A,
        &format!(r#"{{"q\u0031":{FORM},"r":{{"method":"roots/list"}}}}"#),
    );
    let questions = scene.bench.take_host(A);
    assert_eq!(questions.len(), 2, "{questions:?}");
    assert!(questions[0].contains("elicitation/create") && questions[1].contains("roots/list"));
    assert_eq!(scene.bench.take_host(B).len(), 0, "nobody else is asked");
    let id = |line: &str| serde_json::from_str::<Value>(line).expect("JSON")["id"].clone();
    let roots = format!(
        r#"{{"jsonrpc":"2.0","id":{},"result":{{"roots":[]}}}}"#,
        id(&questions[1])
    );
    let decline = format!(
        r#"{{"jsonrpc":"2.0","id":{},"result":{{"action":"decline"}}}}"#,
        id(&questions[0])
    );
    scene.bench.host(B, &roots);
    scene.bench.host(A, &roots);
    scene.bench.expect_child(&[]);
    scene.bench.host(A, &decline);
    let lines = scene.bench.take_child();
    assert!(
        lines[0].contains(r#""requestState":"s\u0061""#),
        "{lines:?}"
    );
    assert!(
        lines[0].contains(r#""q\u0031":{"action":"decline"}"#),
        "{lines:?}"
    );
    let again: Value = serde_json::from_str(&lines[0]).expect("JSON");
    assert_ne!(again["id"], asked["id"]);
    assert_eq!(again["params"]["name"], "t");
    scene.bench.expect_host(A, &[]);
    scene.answer(&again, r#"{"resultType":"complete","content":[]}"#);
    assert_eq!(scene.got(A)["id"], 7);
    scene.bench.expect_quiet();
}

#[test]
fn an_error_of_the_host_ends_its_call_and_withdraws_the_other_questions() {
    let mut scene = Scene::with(&[A]);
    scene.consulted(A, &format!(r#"{{"a":{FORM},"b":{FORM}}}"#));
    let questions = scene.bench.take_host(A);
    let first: Value = serde_json::from_str(&questions[0]).expect("JSON");
    scene.bench.host(
        A,
        &format!(
            r#"{{"jsonrpc":"2.0","id":{},"error":{{"code":-1,"message":"no"}}}}"#,
            first["id"]
        ),
    );
    let lines = scene.bench.take_host(A);
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].contains("notifications/cancelled"), "{lines:?}");
    assert!(lines[1].contains(r#""code":-1"#), "{lines:?}");
    scene.bench.expect_child(&[]);
    scene.bench.expect_quiet();
}

#[test]
fn a_call_whose_questions_are_open_can_be_cancelled_and_dies_with_its_child() {
    let mut scene = Scene::with(&[A]);
    scene.consulted(A, &format!(r#"{{"a":{FORM}}}"#));
    scene.bench.take_host(A);
    scene.bench.host(
        A,
        &notification("notifications/cancelled", r#"{"requestId":7}"#),
    );
    assert_eq!(scene.got(A)["method"], "notifications/cancelled");
    scene.bench.expect_child(&[]);
    scene.bench.expect_quiet();
    scene.consulted(A, &format!(r#"{{"a":{FORM}}}"#));
    scene.bench.take_host(A);
    scene.bench.crash();
    let lines = scene.bench.take_host(A);
    assert!(
        lines.iter().any(|line| line.contains("-31001")),
        "{lines:?}"
    );
    scene.bench.expect_quiet();
    scene.bench.leave(A);
}

#[test]
fn a_call_with_nothing_but_a_state_is_sent_again_with_growing_pauses() {
    let mut scene = Scene::with(&[A]);
    scene.bench.host(A, &call("7"));
    for _ in 0..3 {
        let asked = scene.written();
        scene.answer(
            &asked,
            r#"{"resultType":"input_required","requestState":"s"}"#,
        );
        scene.bench.expect_child(&[]);
        scene.bench.pass(Duration::from_secs(1));
    }
    let asked = scene.written();
    assert_eq!(asked["params"]["requestState"], "s");
    assert_eq!(asked["params"].get("inputResponses"), None);
    scene.answer(&asked, r#"{"content":[]}"#);
    assert_eq!(scene.got(A)["id"], 7);
    scene.bench.expect_quiet();
}

#[test]
fn what_must_not_be_is_an_internal_error() {
    let mut scene = Scene::with(&[A]);
    scene.consulted(
        A,
        r#"{"a":{"method":"sampling/createMessage","params":{}}}"#,
    );
    scene.bench.expect_error(A, "7", -32603);
    scene.bench.host(A, &request("8", "tools/list", "{}"));
    let asked = scene.written();
    scene.answer(
        &asked,
        r#"{"resultType":"input_required","requestState":"s"}"#,
    );
    scene.bench.expect_error(A, "8", -32603);
    scene.bench.host(A, &call("9"));
    let asked = scene.written();
    scene.bench.child(format!(
        r#"{{"jsonrpc":"2.0","id":{},"error":{{"code":-32021,"message":"m","data":{{"k":1}}}}}}"#,
        asked["id"]
    ));
    let error = scene.bench.expect_error(A, "9", -32603);
    assert_eq!(
        (&error["message"], &error["data"]),
        (&json!("m"), &json!({"k": 1}))
    );
    for round in 0..11 {
        if round == 0 {
            scene.consulted(A, &format!(r#"{{"a":{FORM}}}"#));
        }
        let question = scene.got(A);
        if round == 10 {
            assert_eq!(question["error"]["code"], -32603, "{question}");
            break;
        }
        scene.bench.host(
            A,
            &format!(
                r#"{{"jsonrpc":"2.0","id":{},"result":{{"action":"cancel"}}}}"#,
                question["id"]
            ),
        );
        let again = scene.written();
        scene.answer(
            &again,
            &format!(r#"{{"resultType":"input_required","inputRequests":{{"a":{FORM}}}}}"#),
        );
    }
    scene.bench.expect_quiet();
}

#[test]
fn nothing_is_asked_before_the_host_is_ready() {
    let mut scene = Scene::with(&[]);
    scene.bench.attach(A);
    scene.bench.host(A, &request("0", "initialize", ABLE));
    scene.bench.take_host(A);
    scene.consulted(A, &format!(r#"{{"a":{FORM}}}"#));
    scene.bench.expect_host(A, &[]);
    scene.bench.host(
        A,
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
    );
    assert_eq!(scene.got(A)["method"], "elicitation/create");
}

#[test]
fn one_stream_carries_what_everybody_holds() {
    let mut scene = Scene::with(&[A, B]);
    scene
        .bench
        .host(A, &request("1", "resources/subscribe", r#"{"uri":"u:1"}"#));
    let listen = scene.written();
    assert_eq!(
        listen["params"]["notifications"],
        json!({"toolsListChanged": true, "resourceSubscriptions": ["u:1"]})
    );
    scene
        .bench
        .host(B, &request("1", "resources/subscribe", r#"{"uri":"u:2"}"#));
    scene.bench.expect_child(&[]);
    scene.bench.expect_host(A, &[]);
    scene.acknowledge(&listen);
    assert_eq!(scene.got(A)["result"], json!({}));
    let lines = scene.bench.take_child();
    assert!(
        lines[0].contains("notifications/cancelled"),
        "the old one goes: {lines:?}"
    );
    let second: Value = serde_json::from_str(&lines[1]).expect("JSON");
    assert_eq!(
        second["params"]["notifications"]["resourceSubscriptions"],
        json!(["u:1", "u:2"])
    );
    let update = |id: &Value| {
        let params = json!({"uri": "u:1", "_meta": {"io.modelcontextprotocol/subscriptionId": id}});
        notification("notifications/resources/updated", &params.to_string())
    };
    scene.bench.child(update(&listen["id"]));
    let event = scene.got(A);
    assert_eq!(event["params"], json!({"uri": "u:1", "_meta": {}}));
    // The child does not honour the second one.
    let params = json!({"_meta": {"io.modelcontextprotocol/subscriptionId": second["id"]}, "notifications": {"toolsListChanged": true, "resourceSubscriptions": ["u:1"]}});
    scene.bench.child(notification(
        "notifications/subscriptions/acknowledged",
        &params.to_string(),
    ));
    scene.bench.expect_error(B, "1", -32602);
    scene.bench.child(update(&listen["id"]));
    scene.bench.expect_host(A, &[]);
    let params = json!({"_meta": {"io.modelcontextprotocol/subscriptionId": second["id"]}});
    scene.bench.child(notification(
        "notifications/tools/list_changed",
        &params.to_string(),
    ));
    assert_eq!(
        (
            scene.bench.take_host(A).len(),
            scene.bench.take_host(B).len()
        ),
        (1, 1)
    );
}

#[test]
fn a_new_child_is_asked_for_all_of_it_again() {
    let mut scene = Scene::with(&[A]);
    scene
        .bench
        .host(A, &request("1", "resources/subscribe", r#"{"uri":"u:1"}"#));
    let listen = scene.written();
    scene.acknowledge(&listen);
    scene.bench.take_host(A);
    scene.bench.take_child();
    scene.bench.crash();
    scene.bench.start();
    scene.bench.take_child();
    scene.bench.child(format!(
        r#"{{"jsonrpc":"2.0","id":2,"result":{DISCOVERY}}}"#
    ));
    let listen = scene.written();
    assert_eq!(
        listen["params"]["notifications"]["resourceSubscriptions"],
        json!(["u:1"])
    );
    scene.bench.leave(A);
}

#[test]
fn modern_passes_to_modern() {
    let mut scene = Scene::with(&[]);
    scene.bench.attach(B);
    let meta = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"x":1.0}"#;
    scene.bench.host(
        B,
        &request(
            "\"c\"",
            "tools/call",
            &format!(r#"{{"name":"t","requestState":"a\u0062",{meta}}}"#),
        ),
    );
    let lines = scene.bench.take_child();
    assert!(
        lines[0].contains(&format!(
            r#"{{"name":"t","requestState":"a\u0062",{meta}}}"#
        )),
        "{lines:?}"
    );
    let asked: Value = serde_json::from_str(&lines[0]).expect("JSON");
    scene.answer(
        &asked,
        r#"{"resultType":"input_required","requestState":"n\u0065w"}"#,
    );
    scene.bench.expect_host(B, &[r#"{"jsonrpc":"2.0","id":"c","result":{"resultType":"input_required","requestState":"n\u0065w"}}"#]);
    scene
        .bench
        .host(B, &request("2", "server/discover", &format!("{{{meta}}}")));
    let asked = scene.written();
    scene.answer(&asked, DISCOVERY);
    let told = scene.got(B);
    assert_eq!(
        told["result"]["supportedVersions"],
        json!([
            "2026-07-28",
            "2025-11-25",
            "2025-06-18",
            "2025-03-26",
            "2024-11-05"
        ])
    );
    assert_eq!(
        (&told["result"]["ttlMs"], &told["result"]["cacheScope"]),
        (&json!(0), &json!("private"))
    );
    scene.bench.host(
        B,
        &request(
            "\"l\"",
            "subscriptions/listen",
            &format!(r#"{{"notifications":{{"toolsListChanged":true}},{meta}}}"#),
        ),
    );
    let acknowledged = scene.got(B);
    assert_eq!(
        acknowledged["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"],
        "l"
    );
    scene
        .bench
        .child(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#);
    scene.bench.expect_child(&[]);
}
