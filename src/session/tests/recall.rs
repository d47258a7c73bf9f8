//! Hosts that come while no child can be asked are told what a child said before.

use serde_json::Value;

use super::super::{
    Hold, HoldCause, MuxAction, MuxConfig, Service, ToolRules, read_memory, render_memory,
};
use super::{A, B, Bench, call, config, initialize, request, unavailable};

const TOOLS: &str = r#"{"tools":[{"name":"ls", "n":1.0,"inputSchema":{"type":"object"}},{"name":"rm","inputSchema":{"type":"object"}}]}"#;

fn list(id: &str) -> String {
    request(id, "tools/list", "{}")
}

fn answer(id: u64, result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
}

/// What a child leaves behind whose tools a host has listed.
fn learned() -> Vec<u8> {
    let mut bench = Bench::serving(config(), &[A]);
    bench.host(A, &list("1"));
    bench.child(answer(5, TOOLS));
    assert!(bench.actions.contains(&MuxAction::Remembered));
    render_memory("c", bench.mux.memory())
}

/// A multiplexer that knows that, with its child on the way.
fn knowing(config: MuxConfig) -> Bench {
    let mut bench = Bench::new(config);
    let memory = read_memory(&learned(), "c", "srv").expect("it was just written");
    bench.mux.remember(memory);
    bench.set_service(Service::Holding(Hold::because(HoldCause::Starting)));
    bench.attach(A);
    bench
}

/// What a host is told by these lines, as JSON.
fn told(bench: &mut Bench, line: &str) -> Vec<Value> {
    bench.host(A, line);
    let lines = bench.take_host(A);
    let read = |line: &String| serde_json::from_str(line).expect("JSON");
    lines.iter().map(read).collect()
}

#[test]
fn a_host_is_answered_at_once_and_its_calls_wait() {
    let mut bench = knowing(config());
    let welcome = told(&mut bench, &initialize("1", "2025-06-18"));
    assert_eq!(welcome[0]["result"]["protocolVersion"], "2025-06-18");
    assert_eq!(welcome[0]["result"]["serverInfo"]["name"], "fake");
    assert_eq!(
        welcome[0]["result"]["capabilities"]["tools"]["listChanged"],
        true
    );
    bench.host(A, &list("2"));
    let expected = format!(r#"{{"jsonrpc":"2.0","id":2,"result":{TOOLS}}}"#);
    bench.expect_host(A, &[&expected]);
    assert_eq!(bench.actions, [], "nobody has to start a child for that");
    bench.host(A, &call("3"));
    assert_eq!(bench.actions, [MuxAction::Demand]);
    bench.expect_host(A, &[]);
    bench.start();
    bench.open();
    // Our own look at the list comes first, then the call.
    let written = bench.take_child();
    assert_eq!(written.len(), 2, "{written:?}");
    assert!(written[0].contains("tools/list") && written[1].contains("tools/call"));
}

#[test]
fn the_rules_for_tools_are_those_of_now() {
    let mut bench = knowing(MuxConfig {
        tools: ToolRules {
            allow: None,
            deny: vec!["rm".to_owned()],
        },
        ..config()
    });
    told(&mut bench, &initialize("1", "2025-11-25"));
    bench.host(A, &list("2"));
    bench.expect_host(
        A,
        &[r#"{"jsonrpc":"2.0","id":2,"result":{"tools":[{"name":"ls", "n":1.0,"inputSchema":{"type":"object"}}]}}"#],
    );
}

/// A host that listed from memory, and a child that lists `now`: what the host is told then.
#[track_caller]
fn check_difference(now: &str, expected: &[&str]) {
    let mut bench = knowing(config());
    told(&mut bench, &initialize("1", "2025-11-25"));
    told(&mut bench, &list("2"));
    bench.start();
    bench.open();
    bench.child(answer(5, now));
    bench.expect_host(A, expected);
}

#[test]
fn a_difference_is_told_when_the_child_is_there() {
    check_difference(TOOLS, &[]);
    let changed = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
    check_difference(
        r#"{"tools":[{"name":"ls", "n":1.0,"inputSchema":{"type":"object"}}]}"#,
        &[changed],
    );
}

#[test]
fn a_ready_child_is_asked_itself() {
    let mut bench = knowing(config());
    told(&mut bench, &initialize("1", "2025-11-25"));
    bench.start();
    bench.open();
    bench.host(A, &list("2"));
    bench.expect_host(A, &[]);
    assert!(bench.take_child()[0].contains("tools/list"));
}

#[test]
fn a_server_that_cannot_run_is_not_played_from_memory() {
    for service in [
        Service::Unavailable(unavailable("failed")),
        Service::Stopping,
    ] {
        let mut bench = knowing(config());
        bench.set_service(service);
        let refused = told(&mut bench, &initialize("1", "2025-11-25"));
        assert!(refused[0]["error"].is_object(), "{refused:?}");
    }
}

#[test]
fn a_child_that_says_that_a_list_changed_takes_it_from_memory() {
    let mut bench = Bench::serving(config(), &[A]);
    bench.host(A, &list("1"));
    bench.child(answer(5, TOOLS));
    bench.actions.clear();
    bench.child(r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#);
    assert_eq!(bench.actions, [MuxAction::Remembered]);
    bench.crash();
    bench.set_service(Service::Holding(Hold::because(HoldCause::Starting)));
    bench.join(B, "2025-11-25");
    bench.host(B, &list("7"));
    bench.expect_host(B, &[]);
}

#[test]
fn what_another_child_offers_more_is_told_to_hosts_that_were_told_less() {
    let mut bench = knowing(config());
    told(&mut bench, &initialize("1", "2025-11-25"));
    let less = String::from_utf8(render_memory("c", bench.mux.memory())).expect("text");
    let less = less.replacen("\"prompts\":{},", "", 1);
    let mut bench = Bench::new(config());
    bench
        .mux
        .remember(read_memory(less.as_bytes(), "c", "srv").expect("valid"));
    bench.set_service(Service::Holding(Hold::because(HoldCause::Starting)));
    bench.attach(A);
    told(&mut bench, &initialize("1", "2025-11-25"));
    bench.start();
    bench.open();
    bench.expect_host(
        A,
        &[r#"{"jsonrpc":"2.0","method":"notifications/prompts/list_changed"}"#],
    );
}
