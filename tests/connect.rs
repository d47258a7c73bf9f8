//! `mcpd connect`: the shim that a host starts.

use std::io::Write;
use std::process::Stdio;
use std::time::Duration;

use serde_json::json;

use crate::common::{Home, Stopwatch, error_code, initialize_params, memory_bytes, wait_until};

/// C202: a host that pipes everything in and ends its output gets every answer, then the shim ends with 0.
#[test]
fn the_end_of_input_does_not_lose_answers() {
    let home = Home::new();
    home.fake("fake", &[]);
    let daemon = home.start();
    let mut child = daemon
        .command(&["connect", "fake"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the shim starts");
    let lines = [
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": initialize_params("2025-11-25")}),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"}),
        json!({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "sleep", "arguments": {"ms": 2000}}}),
    ];
    let mut stdin = child.stdin.take().expect("a pipe");
    for line in &lines {
        writeln!(stdin, "{line}").expect("the shim reads");
    }
    drop(stdin);
    let output = child.wait_with_output().expect("the shim ends");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let ids: Vec<_> = text
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON")["id"].clone())
        .collect();
    assert_eq!(ids, [1, 2, 3], "{text}");
    assert!(output.stderr.is_empty());
}

/// A shim starts the daemon where none runs, and the host notices nothing.
#[test]
fn a_shim_starts_the_daemon() {
    let home = Home::new();
    home.fake("fake", &[]);
    let mut host = home.connect_host("fake");
    host.initialize();
    assert_eq!(host.text("sum", json!({"a": 2, "b": 3})), "5");
    let status = home.status().expect("a daemon runs");
    assert!(
        status["daemon"]["started_by"]
            .as_str()
            .is_some_and(|text| text.contains("connect")),
        "{status}"
    );
    let pid = home.daemon_pid().expect("a pid");
    host.vanish();
    assert_eq!(home.daemon_pid(), Some(pid), "it outlives the shim");
}

/// A host that starts the command twice, a probe and then the session: both are cheap and neither disturbs.
#[test]
fn a_probe_costs_nothing() {
    let home = Home::new();
    home.fake("fake", &[]);
    let daemon = home.start();
    daemon.wait_for_state("fake", "running");
    let watch = Stopwatch::start();
    for _ in 0..10 {
        let mut probe = daemon.connect_host("fake");
        assert_eq!(probe.ask("ping", json!({}))["result"], json!({}));
    }
    assert!(
        watch.elapsed() < Duration::from_secs(5),
        "{:?}",
        watch.elapsed()
    );
    daemon.connect_host("fake").initialize();
    assert_eq!(daemon.record("fake").starts(), 1);
}

/// An unknown server is an error that names it and those there are; the shim stays for the host.
#[test]
fn an_unknown_server_is_explained() {
    let home = Home::new();
    home.fake("github", &[]);
    let daemon = home.start();
    let mut host = daemon.connect_host("gihtub");
    let answer = host.ask("initialize", initialize_params("2025-11-25"));
    assert_eq!(error_code(&answer), -31000);
    assert!(answer.to_string().contains("gihtub"), "{answer}");
    assert!(
        answer["error"]["data"]["detail"]["hint"]
            .as_str()
            .is_some_and(|hint| hint.contains("`mcpd status`") && !hint.contains("mcpd start")),
        "{answer}"
    );
    assert_eq!(host.ask("ping", json!({}))["result"], json!({}));
    assert!(host.is_running());
}

/// The shim writes nothing of its own to stdout, whatever goes wrong.
#[test]
fn only_protocol_reaches_stdout() {
    let home = Home::new();
    home.fake_with(
        "fake",
        &["--exit", "1", "--stderr", "no"],
        "start_timeout = \"1s\"\n",
    );
    let mut host = home.connect_host("fake");
    host.ask("initialize", initialize_params("2025-11-25"));
    host.send_line("garbage");
    host.end_output();
    for line in host.wait_end() {
        assert_eq!(line.json["jsonrpc"], "2.0", "{}", line.text());
    }
}

/// A shim ends when its host's stream ends, and its attachment with it.
#[test]
fn a_shim_ends_with_its_host() {
    let home = Home::new();
    home.fake("fake", &[]);
    let daemon = home.start();
    let mut host = daemon.connect_host("fake");
    host.initialize();
    assert_eq!(daemon.server_status("fake")["requests"]["hosts"], 1);
    host.end_output();
    let (status, _) = host.wait_exit();
    assert!(status.success());
    wait_until("the attachment is gone", || {
        (daemon.server_status("fake")["requests"]["hosts"] == 0).then_some(())
    });
}

/// A host that closes its output's reader is a host that has gone.
#[test]
fn a_host_that_stops_listening_is_gone() {
    let home = Home::new();
    home.fake("fake", &[]);
    let daemon = home.start();
    let mut child = daemon
        .command(&["connect", "fake"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the shim starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    writeln!(stdin, "{}", json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": initialize_params("2025-11-25")}))
        .expect("it reads");
    drop(child.stdout.take());
    writeln!(
        stdin,
        "{}",
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "pid"}})
    )
    .ok();
    wait_until("the shim ends", || {
        child.try_wait().expect("it can be waited for")
    });
    wait_until("the attachment is gone", || {
        (daemon.server_status("fake")["requests"]["hosts"] == 0).then_some(())
    });
}

/// C169: ten shims to one server are one process tree, and a shim is small.
#[test]
fn a_shim_is_small_and_shares_the_server() {
    let home = Home::new();
    home.fake("fake", &[]);
    let daemon = home.start();
    let mut hosts: Vec<_> = (0..10).map(|_| daemon.connect_host("fake")).collect();
    for host in &mut hosts {
        host.initialize();
    }
    assert_eq!(daemon.fakes().len(), 1);
    for host in &hosts {
        let bytes = memory_bytes(host.pid());
        assert!(bytes < 24 << 20, "{bytes} bytes");
    }
}

/// `connect` without a name, or with one too many, is a usage error.
#[test]
fn connect_wants_one_name() {
    let home = Home::new();
    home.mcpd(&["connect"]).expect_code(2);
    home.mcpd(&["connect", "one", "two"]).expect_code(2);
}

/// A server that was stopped on purpose stays stopped for hosts, with the reason, until it is started.
#[test]
fn a_stopped_server_stays_stopped_for_hosts() {
    let home = Home::new();
    home.fake("fake", &[]);
    let daemon = home.start();
    let mut host = daemon.connect_host("fake");
    host.initialize();
    daemon.mcpd(&["stop", "fake"]).expect_code(0);
    let answer = host.call("sum", json!({"a": 1}));
    assert_eq!(error_code(&answer), -31000, "{answer}");
    assert!(
        answer.to_string().contains("stopped") && answer.to_string().contains("mcpd status fake"),
        "why, and what tells more: {answer}"
    );
    assert_eq!(daemon.record("fake").starts(), 1);
    daemon.mcpd(&["start", "fake"]).expect_code(0);
    assert_eq!(host.text("sum", json!({"a": 1})), "1");
}

/// A stop cancels what is still open at the end of the drain, with an error for its host.
#[test]
fn a_stop_ends_open_calls_with_an_error() {
    let home = Home::new();
    home.fake("fake", &[]);
    let daemon = home.start();
    let mut host = daemon.connect_host("fake");
    host.initialize();
    let short = host.start_call("sleep", json!({"ms": 100, "text": "in time"}));
    let long = host.start_call("sleep", json!({"ms": 60_000}));
    daemon.record("fake").wait_for("tools/call", 2);
    daemon.mcpd(&["stop", "fake"]).expect_code(0);
    assert_eq!(
        host.answer(short)["result"]["content"][0]["text"],
        "in time"
    );
    assert_eq!(error_code(&host.answer(long)), -31005);
    daemon.record("fake").wait_for("notifications/cancelled", 1);
}

/// At the daemon's own end every open request gets an error before the stream ends.
#[test]
fn the_daemons_end_leaves_no_request_unanswered() {
    let home = Home::new();
    home.fake("fake", &[]);
    let mut daemon = home.start();
    let mut host = daemon.socket_host("fake");
    host.initialize();
    let id = host.start_call("sleep", json!({"ms": 60_000}));
    daemon.record("fake").wait_for("tools/call", 1);
    assert!(daemon.terminate().success());
    assert_eq!(error_code(&host.answer(id)), -31006);
    host.wait_end();
}

/// A host on a raw socket that ends its output gets the answers that are due, then the stream ends.
#[test]
fn a_half_closed_socket_gets_its_answers() {
    let home = Home::new();
    home.fake("fake", &[]);
    let daemon = home.start();
    let mut host = daemon.socket_host("fake");
    host.initialize();
    let id = host.start_call("sleep", json!({"ms": 700, "text": "due"}));
    host.end_output();
    assert_eq!(host.answer(id)["result"]["content"][0]["text"], "due");
    assert!(host.wait_end().is_empty());
}
