//! Chasing a fault: the last calls of all servers, and the messages as they pass.

use serde_json::{Value, json};

use crate::common::{Home, RawHost, wait_until};

/// The next line of a command that follows something.
fn next(follower: &mut RawHost, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
    let line = follower.wait_line(what, |line| fits(&line.json));
    line.json
}

/// `calls` tells who called what and how it ended, and nothing of what was said.
#[test]
fn the_last_calls_are_told_without_what_was_said() {
    let home = Home::new();
    home.fake("alpha", &[]);
    home.fake("beta", &["--die-on-call"]);
    let daemon = home.start();
    assert_eq!(
        daemon.mcpd(&["calls"]).expect_code(0).stdout,
        "no call has ended since the daemon started\n"
    );
    let mut alpha = daemon.socket_host("alpha");
    alpha.initialize();
    alpha.call("echo", json!({"secret": "never to be seen"}));
    let open = alpha.start_call("sleep", json!({"ms": 600_000}));
    alpha.notify("notifications/cancelled", json!({"requestId": open}));
    let mut beta = daemon.socket_host("beta");
    beta.initialize();
    beta.call("echo", json!({}));
    let calls = wait_until("three calls", || {
        let calls = daemon.mcpd(&["calls", "--json"]).json();
        (calls.as_array()?.len() == 3).then_some(calls)
    });
    let told: Vec<[&Value; 4]> = calls
        .as_array()
        .expect("a list")
        .iter()
        .map(|call| {
            [
                &call["server"],
                &call["tool"],
                &call["outcome"],
                &call["pid"],
            ]
        })
        .collect();
    let ours = json!(std::process::id());
    assert_eq!(
        told[0],
        [&json!("alpha"), &json!("echo"), &json!("ok"), &ours]
    );
    assert_eq!(told[1][1..3], [&json!("sleep"), &json!("cancelled")]);
    assert_eq!(
        told[2][..3],
        [&json!("beta"), &json!("echo"), &json!("exited")]
    );
    let table = daemon.mcpd(&["calls", "-n", "1", "beta"]).stdout;
    assert_eq!(table.lines().count(), 2, "{table}");
    assert!(
        table.starts_with("TIME") && table.contains("exited"),
        "{table}"
    );
    let all = daemon.mcpd(&["calls"]).stdout + &calls.to_string();
    assert!(!all.contains("never to be seen"), "{all}");
}

/// `calls -f` goes on, and ends silently with its reader.
#[test]
fn calls_are_followed() {
    let home = Home::new();
    home.fake("alpha", &[]);
    let daemon = home.start();
    let mut host = daemon.socket_host("alpha");
    host.initialize();
    let mut follower = RawHost::through(daemon.command(&["calls", "-f", "--json"]));
    for tool in ["echo", "pid"] {
        host.call(tool, json!({}));
        let call = next(&mut follower, tool, |call| call["tool"] == tool);
        assert_eq!(call["outcome"], "ok");
    }
    follower.vanish();
}
