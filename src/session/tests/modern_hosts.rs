//! Modern hosts on a legacy child: requests, answers, discovery, log levels.

use super::*;

/// Capabilities of a host that can do nothing.
const NOTHING: &str = "{}";

/// A modern request with this raw id: `members` are further members of `params`, each behind a
/// comma.
pub(super) fn modern(id: &str, method: &str, capabilities: &str, members: &str) -> String {
    with_meta(
        id,
        method,
        &format!(r#","io.modelcontextprotocol/clientCapabilities":{capabilities}"#),
        members,
    )
}

fn with_meta(id: &str, method: &str, meta: &str, members: &str) -> String {
    request(
        id,
        method,
        &format!(
            r#"{{"_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28"{meta}}}{members}}}"#
        ),
    )
}

/// The `_meta` that results carry.
pub(super) const META: &str =
    r#""_meta":{"io.modelcontextprotocol/serverInfo":{"name":"fake","version":"1"}}"#;

/// A bench that serves, with this host attached and silent.
pub(super) fn serving(host: HostKey) -> Bench {
    let mut bench = Bench::serving(config(), &[]);
    bench.attach(host);
    bench
}

#[test]
fn a_call_goes_without_what_the_child_does_not_know_and_comes_back_complete() {
    let mut bench = serving(A);
    bench.host(
        A,
        &with_meta(
            "\"x\"",
            "tools/call",
            r#","progressToken":"p","io.modelcontextprotocol/clientCapabilities":{},"traceparent":"t""#,
            r#","name":"t","inputResponses":{}"#,
        ),
    );
    bench.expect_child(&[
        r#"{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"_meta":{"progressToken":5,"traceparent":"t"},"name":"t"}}"#,
    ]);
    bench.child(r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":5,"progress":1}}"#);
    bench.child(r#"{"jsonrpc":"2.0","id":5,"result":{"content":[1.0]}}"#);
    bench.expect_host(
        A,
        &[
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1}}"#,
            &format!(
                r#"{{"jsonrpc":"2.0","id":"x","result":{{"resultType":"complete",{META},"content":[1.0]}}}}"#
            ),
        ],
    );
    bench.expect_quiet();
}

#[test]
fn a_list_carries_caching_hints_and_a_bad_answer_is_repaired_first() {
    let mut bench = serving(A);
    bench.host(A, &modern("1", "tools/list", NOTHING, ""));
    bench.take_child();
    bench.child(r#"{"id":5,"result":{"tools":[]},"error":null}"#);
    bench.expect_host(
        A,
        &[&format!(
            r#"{{"jsonrpc":"2.0","id":1,"result":{{"resultType":"complete",{META},"ttlMs":0,"cacheScope":"private","tools":[]}}}}"#
        )],
    );
    bench.host(A, &modern("2", "tools/list", NOTHING, ""));
    bench.child(r#"{"jsonrpc":"2.0","id":6,"result":null}"#);
    bench.expect_error(A, "2", -32603);
    bench
        .expect_child(&[r#"{"jsonrpc":"2.0","id":6,"method":"tools/list","params":{"_meta":{}}}"#]);
}

#[test]
fn denied_tools_are_not_listed_and_the_list_is_not_cached() {
    let mut config = config();
    config.tools.deny = vec!["bad".to_owned()];
    let mut bench = Bench::serving(config, &[]);
    bench.attach(A);
    bench.host(A, &modern("1", "tools/list", NOTHING, ""));
    bench.child(r#"{"jsonrpc":"2.0","id":5,"result":{"tools":[{"name":"bad"},{"name":"ok"}],"ttlMs":9,"cacheScope":"public"}}"#);
    bench.expect_host(
        A,
        &[&format!(
            r#"{{"jsonrpc":"2.0","id":1,"result":{{"resultType":"complete",{META},"tools":[{{"name":"ok"}}],"ttlMs":0,"cacheScope":"private"}}}}"#
        )],
    );
    bench.host(A, &modern("2", "tools/call", NOTHING, r#","name":"bad""#));
    bench.expect_error(A, "2", -31008);
}

#[test]
fn errors_of_the_old_era_are_translated() {
    let mut bench = serving(A);
    bench.host(A, &modern("1", "resources/read", NOTHING, r#","uri":"a""#));
    bench.child(r#"{"jsonrpc":"2.0","id":5,"error":{"code":-32002,"message":"gone"}}"#);
    bench.expect_error(A, "1", -32602);
    bench.host(A, &modern("2", "tools/call", NOTHING, r#","name":"t""#));
    bench.child(r#"{"jsonrpc":"2.0","id":6,"error":{"code":-32022,"message":"x"}}"#);
    let error = bench.expect_error(A, "2", -32603);
    assert_eq!(error["data"]["code"], -32022);
    bench.host(A, &modern("3", "tools/call", NOTHING, r#","name":"t""#));
    bench.child(r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32601,"message":"no","data":1.0}}"#);
    bench.expect_host(
        A,
        &[r#"{"jsonrpc":"2.0","id":3,"error":{"code":-32601,"message":"no","data":1.0}}"#],
    );
}

/// C153: discovery is answered without a word to the child, and `initialize` still works.
#[test]
fn discovery_is_answered_here_and_initialize_may_follow() {
    let mut bench = serving(A);
    bench.host(A, &modern("\"d\"", "server/discover", NOTHING, ""));
    bench.expect_child(&[]);
    bench.expect_host(
        A,
        &[&format!(
            r#"{{"jsonrpc":"2.0","id":"d","result":{{"resultType":"complete","supportedVersions":["2026-07-28","2025-11-25","2025-06-18","2025-03-26","2024-11-05"],"capabilities":{{"tools":{{"listChanged":true}},"prompts":{{"listChanged":true}},"resources":{{"listChanged":true,"subscribe":true}},"logging":{{}}}},{META},"ttlMs":0,"cacheScope":"private"}}}}"#
        )],
    );
    bench.host(A, &initialize("1", "2025-06-18"));
    assert_eq!(bench.take_host(A).len(), 1);
    bench.expect_child(&[]);
    bench.expect_quiet();
}

#[test]
fn discovery_waits_for_the_child() {
    let mut bench = Bench::new(config());
    bench.attach(A);
    bench.host(A, &modern("1", "server/discover", NOTHING, ""));
    assert_eq!(bench.actions, [MuxAction::Demand]);
    bench.start();
    bench.expect_host(A, &[]);
    bench.open();
    assert!(bench.take_host(A).join("").contains("supportedVersions"));
    bench.expect_quiet();
}

/// C157: a host that never sends `initialize` is served, and the child sees no request that it
/// could not know.
#[test]
fn metadata_is_judged_before_anything_is_written() {
    let mut bench = serving(A);
    let capabilities = r#","io.modelcontextprotocol/clientCapabilities":{}"#;
    for (version, code) in [("2025-11-25", -32022), ("1.0", -32022)] {
        let text = with_meta("1", "tools/list", capabilities, "").replace("2026-07-28", version);
        bench.host(A, &text);
        let error = bench.expect_error(A, "1", code);
        assert_eq!(
            error["data"],
            serde_json::json!({"supported": ["2026-07-28"], "requested": version})
        );
    }
    bench.host(A, &with_meta("2", "tools/list", "", ""));
    bench.expect_error(A, "2", -32602);
    bench.host(A, &request("3", "tools/list", "{}"));
    bench.expect_error(A, "3", -32602);
    for method in [
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
        "tasks/list",
        "tasks/result",
        "tasks/get",
    ] {
        bench.host(A, &modern("4", method, NOTHING, ""));
        bench.expect_error(A, "4", -32601);
    }
    let loud = format!(r#"{capabilities},"io.modelcontextprotocol/logLevel":"loud""#);
    bench.host(A, &with_meta("5", "tools/list", &loud, ""));
    bench.expect_error(A, "5", -32602);
    let twice = format!("{capabilities}{capabilities}");
    bench.host(A, &with_meta("6", "tools/list", &twice, ""));
    bench.expect_error(A, "6", -32600);
    bench.host(A, r#"{"jsonrpc":"2.0","id":9,"result":{}}"#);
    bench.expect_host(A, &[]);
    bench.expect_child(&[]);
}

#[test]
fn an_error_without_an_id_has_none_for_a_modern_host() {
    let mut bench = serving(A);
    bench.host(A, &modern("1", "server/discover", NOTHING, ""));
    bench.take_host(A);
    bench.host(A, "{broken");
    let lines = bench.take_host(A);
    assert!(!lines[0].contains("\"id\""), "{lines:?}");
}

#[test]
fn a_legacy_session_and_modern_requests_share_an_attachment() {
    let mut bench = Bench::serving(config(), &[A]);
    bench.host(A, &modern("1", "tools/list", NOTHING, ""));
    bench.host(A, &request("2", "tools/list", "{}"));
    bench.take_child();
    bench.child(r#"{"jsonrpc":"2.0","id":5,"result":{"tools":[]}}"#);
    bench.child(r#"{"jsonrpc":"2.0","id":6,"result":{"tools":[]}}"#);
    let lines = bench.take_host(A);
    assert!(lines[0].contains("resultType"));
    assert_eq!(
        lines[1],
        r#"{"jsonrpc":"2.0","id":2,"result":{"tools":[]}}"#
    );
}

#[test]
fn cancelling_and_dying_are_as_for_any_host() {
    let mut bench = serving(A);
    bench.host(A, &modern("1", "tools/call", NOTHING, r#","name":"t""#));
    bench.take_child();
    bench.host(
        A,
        &notification("notifications/cancelled", r#"{"requestId":1}"#),
    );
    bench.expect_child(&[&notification(
        "notifications/cancelled",
        r#"{"requestId":5}"#,
    )]);
    bench.child(r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":5,"progress":1}}"#);
    bench.child(r#"{"jsonrpc":"2.0","id":5,"result":{}}"#);
    bench.expect_host(A, &[]);
    bench.host(A, &modern("2", "tools/call", NOTHING, r#","name":"t""#));
    bench.crash();
    bench.expect_error(A, "2", -31001);
    bench.expect_quiet();
}

fn logging(id: &str, level: &str) -> String {
    let meta = format!(
        r#","io.modelcontextprotocol/clientCapabilities":{{}},"io.modelcontextprotocol/logLevel":"{level}""#
    );
    with_meta(id, "tools/call", &meta, r#","name":"t""#)
}

fn set_level(id: u64, level: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"logging/setLevel","params":{{"level":"{level}"}}}}"#
    )
}

fn says(level: &str) -> String {
    notification(
        "notifications/message",
        &format!(r#"{{"level":"{level}","data":"x"}}"#),
    )
}

#[test]
fn a_level_is_raised_before_the_call_and_set_back_behind_it() {
    let mut bench = serving(A);
    bench.host(A, &logging("1", "debug"));
    bench.expect_child(&[
        &set_level(5, "debug"),
        r#"{"jsonrpc":"2.0","id":6,"method":"tools/call","params":{"_meta":{},"name":"t"}}"#,
    ]);
    bench.child(says("debug"));
    bench.expect_host(A, &[&says("debug")]);
    bench.child(r#"{"jsonrpc":"2.0","id":5,"result":{}}"#);
    bench.child(r#"{"jsonrpc":"2.0","id":6,"result":{}}"#);
    assert_eq!(bench.take_host(A).len(), 1);
    bench.expect_child(&[&set_level(7, "info")]);
    bench.child(says("error"));
    bench.expect_host(A, &[]);
    bench.child(r#"{"jsonrpc":"2.0","id":7,"result":{}}"#);
    bench.expect_quiet();
}

#[test]
fn a_level_goes_back_to_what_legacy_hosts_want() {
    let mut bench = Bench::serving(config(), &[B]);
    bench.host(
        B,
        &request("9", "logging/setLevel", r#"{"level":"warning"}"#),
    );
    bench.child(r#"{"jsonrpc":"2.0","id":5,"result":{}}"#);
    bench.attach(A);
    bench.host(A, &logging("1", "debug"));
    bench.child(r#"{"jsonrpc":"2.0","id":6,"result":{}}"#);
    bench.take_child();
    bench.take_host(B);
    bench.child(says("info"));
    bench.expect_host(B, &[]);
    bench.child(says("error"));
    assert_eq!(bench.take_host(B).len(), 1);
    assert_eq!(bench.take_host(A).len(), 2);
    bench.child(r#"{"jsonrpc":"2.0","id":7,"result":{}}"#);
    bench.expect_child(&[&set_level(8, "warning")]);
}

#[test]
fn a_log_message_goes_to_a_modern_host_only_if_it_can_be_nobody_elses() {
    let mut bench = Bench::serving(config(), &[B]);
    bench.attach(A);
    bench.attach(C);
    bench.host(A, &logging("1", "info"));
    bench.child(says("debug"));
    bench.expect_host(A, &[]);
    bench.host(A, &modern("2", "tools/call", NOTHING, r#","name":"t""#));
    bench.child(says("info"));
    assert_eq!(bench.take_host(A).len(), 1, "once, whatever is open");
    bench.host(C, &logging("1", "debug"));
    bench.child(says("info"));
    bench.expect_host(A, &[]);
    bench.expect_host(C, &[]);
    assert_eq!(
        bench.take_host(B).len(),
        2,
        "a legacy host hears by its level"
    );
}

#[test]
fn a_child_without_logging_is_not_asked_for_a_level() {
    let mut bench = Bench::new(config());
    bench.start();
    bench.child(WELCOME.replace(r#","logging":{}"#, ""));
    bench.take_child();
    bench.attach(A);
    bench.host(A, &logging("1", "debug"));
    assert_eq!(bench.take_child().len(), 1);
}

fn listen(id: &str, notifications: &str) -> String {
    let members = format!(r#","notifications":{notifications}"#);
    modern(id, "subscriptions/listen", NOTHING, &members)
}

fn acknowledged(id: &str, notifications: &str) -> String {
    notification(
        "notifications/subscriptions/acknowledged",
        &format!(
            r#"{{"_meta":{{"io.modelcontextprotocol/subscriptionId":{id}}},"notifications":{notifications}}}"#
        ),
    )
}

fn on_stream(id: &str, method: &str, members: &str) -> String {
    notification(
        method,
        &format!(r#"{{"_meta":{{"io.modelcontextprotocol/subscriptionId":{id}}}{members}}}"#),
    )
}

const TOOLS: &str = "notifications/tools/list_changed";
const UPDATED: &str = "notifications/resources/updated";

#[test]
fn a_listen_is_acknowledged_first_and_only_carries_what_was_asked_for() {
    let mut bench = serving(A);
    bench.host(A, &listen("\"l\"", r#"{"toolsListChanged":true}"#));
    bench.expect_host(A, &[&acknowledged("\"l\"", r#"{"toolsListChanged":true}"#)]);
    bench.child(notification(TOOLS, "{}"));
    bench.child(notification("notifications/prompts/list_changed", "{}"));
    bench.child(notification("notifications/x", "{}"));
    bench.expect_host(A, &[&on_stream("\"l\"", TOOLS, "")]);
    bench.expect_child(&[]);
    assert!(bench.mux.is_busy());
    bench.host(A, &listen("\"l\"", "{}"));
    bench.expect_error(A, "\"l\"", -32600);
    bench.host(
        A,
        &notification("notifications/cancelled", r#"{"requestId":"l"}"#),
    );
    bench.child(notification(TOOLS, "{}"));
    bench.expect_host(A, &[]);
    assert!(!bench.mux.is_busy());
}

#[test]
fn a_listen_promises_the_uris_that_the_child_granted_and_holds_events_until_then() {
    let mut bench = serving(A);
    bench.host(
        A,
        &listen(
            "1",
            r#"{"resourceSubscriptions":["a","b"],"toolsListChanged":true}"#,
        ),
    );
    bench.expect_child(&[
        r#"{"jsonrpc":"2.0","id":5,"method":"resources/subscribe","params":{"uri":"a"}}"#,
        r#"{"jsonrpc":"2.0","id":6,"method":"resources/subscribe","params":{"uri":"b"}}"#,
    ]);
    bench.child(r#"{"jsonrpc":"2.0","id":5,"result":{}}"#);
    for _ in 0..2 {
        bench.child(notification(UPDATED, r#"{"uri":"a"}"#));
        bench.child(notification(TOOLS, "{}"));
    }
    bench.expect_host(A, &[]);
    bench.child(r#"{"jsonrpc":"2.0","id":6,"error":{"code":-32002,"message":"no"}}"#);
    bench.expect_host(
        A,
        &[
            &acknowledged(
                "1",
                r#"{"toolsListChanged":true,"resourceSubscriptions":["a"]}"#,
            ),
            &on_stream("1", UPDATED, r#","uri":"a""#),
            &on_stream("1", TOOLS, ""),
        ],
    );
    bench.host(A, &listen("2", r#"{"resourceSubscriptions":["a"]}"#));
    bench.expect_host(
        A,
        &[&acknowledged("2", r#"{"resourceSubscriptions":["a"]}"#)],
    );
    bench.child(notification(UPDATED, r#"{"uri":"a"}"#));
    bench.expect_host(
        A,
        &[
            &on_stream("1", UPDATED, r#","uri":"a""#),
            &on_stream("2", UPDATED, r#","uri":"a""#),
        ],
    );
    bench.host(
        A,
        &notification("notifications/cancelled", r#"{"requestId":1}"#),
    );
    bench.expect_child(&[]);
    bench.host(
        A,
        &notification("notifications/cancelled", r#"{"requestId":2}"#),
    );
    bench.expect_child(&[
        r#"{"jsonrpc":"2.0","id":7,"method":"resources/unsubscribe","params":{"uri":"a"}}"#,
    ]);
    bench.child(r#"{"jsonrpc":"2.0","id":7,"result":{}}"#);
    bench.expect_quiet();
}

#[test]
fn what_the_child_does_not_offer_is_not_promised() {
    let mut bench = Bench::new(config());
    bench.start();
    bench.child(
        r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"resources":{}},"serverInfo":{"name":"fake","version":"1"}}}"#,
    );
    bench.take_child();
    bench.attach(A);
    bench.host(
        A,
        &listen(
            "1",
            r#"{"toolsListChanged":true,"promptsListChanged":true,"resourceSubscriptions":["a"]}"#,
        ),
    );
    bench.expect_host(A, &[&acknowledged("1", r#"{"toolsListChanged":true}"#)]);
    bench.expect_child(&[]);
    bench.host(A, &listen("2", "{}"));
    bench.expect_host(A, &[&acknowledged("2", "{}")]);
    bench.host(A, &modern("3", "subscriptions/listen", NOTHING, ""));
    bench.expect_error(A, "3", -32602);
}

#[test]
fn a_listen_outlives_a_child_and_ends_when_none_will_come() {
    let mut bench = serving(A);
    let filter = r#"{"resourceSubscriptions":["a"]}"#;
    bench.host(A, &listen("1", filter));
    bench.take_child();
    bench.crash();
    bench.expect_host(A, &[]);
    bench.start();
    bench.open();
    bench.expect_child(&[
        r#"{"jsonrpc":"2.0","id":5,"method":"resources/subscribe","params":{"uri":"a"}}"#,
    ]);
    bench.child(r#"{"jsonrpc":"2.0","id":5,"result":{}}"#);
    bench.expect_host(A, &[&acknowledged("1", filter)]);
    bench.crash();
    bench.start();
    bench.open();
    bench.take_child();
    bench.child(r#"{"jsonrpc":"2.0","id":5,"result":{}}"#);
    bench.child(notification(UPDATED, r#"{"uri":"a"}"#));
    bench.expect_host(A, &[&on_stream("1", UPDATED, r#","uri":"a""#)]);
    bench.set_service(Service::Unavailable(unavailable("down")));
    let lines = bench.take_host(A);
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains(r#""method":"notifications/cancelled","params":{"requestId":1,"#));
}

#[test]
fn a_listen_that_we_end_is_closed_by_its_result() {
    let mut bench = serving(A);
    bench.host(A, &listen("1", "{}"));
    bench.take_host(A);
    bench.set_service(Service::Stopping);
    let lines = bench.take_host(A);
    assert_eq!(
        lines[0],
        r#"{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":1}}}"#
    );
    assert!(lines[1].contains("notifications/cancelled"), "{lines:?}");
    assert_eq!(lines.len(), 2);
}

#[test]
fn a_listen_ends_where_the_next_child_keeps_less() {
    let mut bench = serving(A);
    bench.host(A, &listen("1", r#"{"resourceSubscriptions":["a"]}"#));
    bench.child(r#"{"jsonrpc":"2.0","id":5,"result":{}}"#);
    bench.crash();
    bench.take_host(A);
    bench.start();
    bench.open();
    bench.child(r#"{"jsonrpc":"2.0","id":5,"error":{"code":-32602,"message":"no"}}"#);
    let lines = bench.take_host(A);
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert_eq!(bench.mux.listens.len(), 0);
}

#[test]
fn a_host_that_leaves_takes_its_streams_along() {
    let mut bench = serving(A);
    bench.host(A, &listen("1", r#"{"resourceSubscriptions":["a"]}"#));
    bench.child(r#"{"jsonrpc":"2.0","id":5,"result":{}}"#);
    bench.take_child();
    bench.leave(A);
    bench.expect_child(&[
        r#"{"jsonrpc":"2.0","id":6,"method":"resources/unsubscribe","params":{"uri":"a"}}"#,
    ]);
    bench.child(r#"{"jsonrpc":"2.0","id":6,"result":{}}"#);
    assert_eq!(bench.mux.listens.len(), 0);
    bench.expect_quiet();
}
