//! Chasing a fault: the last calls of all servers, and the messages as they pass.

use serde_json::{Value, json};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::common::{Home, RawHost, Terminal, TestDaemon, wait_until};

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

/// A viewer of a server that runs, which has been told so.
fn viewer(daemon: &TestDaemon, name: &str, flags: &[&str]) -> RawHost {
    daemon.wait_for_state(name, "running");
    let args: Vec<&str> = ["trace", name, "--json"]
        .iter()
        .chain(flags)
        .copied()
        .collect();
    let mut viewer = RawHost::through(daemon.command(&args));
    next(&mut viewer, "how the server is", |line| {
        line["event"] == "state"
    });
    viewer
}

/// The next line of a viewer that is a message with this method.
fn message(viewer: &mut RawHost, kind: &str, method: &str) -> Value {
    next(viewer, &format!("{kind} {method}"), |line| {
        line["kind"] == kind && line["method"] == method
    })
}

/// `trace` shows each message once, with both ids; bodies only on request, and no secret in them.
#[test]
fn messages_are_shown_as_they_pass() {
    let home = Home::new();
    let quick = format!(
        "{}[env]\nTOKEN = \"correct-horse-battery\"\n",
        crate::common::QUICK
    );
    home.fake_with("alpha", &[], &quick);
    let daemon = home.start();
    let mut bare = viewer(&daemon, "alpha", &[]);
    let mut full = viewer(&daemon, "alpha", &["--bodies", "200"]);
    let mut host = daemon.socket_host("alpha");
    host.initialize();
    let answer = host.call("echo", json!({"text": "correct-horse-battery and more"}));
    let asked = message(&mut bare, "request", "tools/call");
    assert_eq!(asked["tool"], "echo");
    assert_eq!(asked["host_id"], answer["id"]);
    assert!(
        asked["server_id"].is_u64() && asked["bytes"].is_u64(),
        "{asked}"
    );
    assert_eq!(asked["body"], Value::Null);
    let answered = message(&mut bare, "response", "tools/call");
    assert_eq!(answered["host_id"], answer["id"]);
    assert_eq!(answered["server_id"], asked["server_id"]);
    assert_eq!(
        (&answered["outcome"], &answered["direction"]),
        (&json!("ok"), &json!("to-host"))
    );
    assert!(answered["took_us"].is_u64(), "{answered}");
    let shown = message(&mut full, "response", "tools/call")["body"].clone();
    let shown = shown.as_str().expect("a body");
    assert!(shown.contains("\u{2039}TOKEN\u{203a} and more"), "{shown}");
    assert!(!shown.contains("correct-horse"), "{shown}");
    bare.vanish();
    full.vanish();
}

/// What mcpd answers itself is shown as its own; only one host's messages where one is named; and all
/// of it is kept in a file.
#[test]
fn one_host_can_be_followed_and_kept() {
    let home = Home::new();
    home.fake("alpha", &[]);
    let daemon = home.start();
    let file = daemon.path("kept.jsonl");
    let mut hosts = [daemon.socket_host("alpha"), daemon.socket_host("alpha")];
    for host in &mut hosts {
        host.initialize();
    }
    let status = daemon.server_status("alpha");
    let number = status["attachments"][1]["attachment"].to_string();
    let flags = [
        "--host",
        &number,
        "--save",
        file.to_str().expect("a plain path"),
    ];
    let mut viewer = viewer(&daemon, "alpha", &flags);
    hosts[0].call("echo", json!({}));
    hosts[1].ask("ping", json!({}));
    let ping = next(&mut viewer, "a message", |line| line["event"] == "message");
    assert_eq!(
        (&ping["method"], &ping["attachment"].to_string()),
        (&json!("ping"), &number)
    );
    let pong = message(&mut viewer, "response", "ping");
    assert_eq!(
        (&pong["mcpd"], &pong["server_id"]),
        (&json!(true), &Value::Null)
    );
    let kept = wait_until("the file", || {
        let kept = std::fs::read_to_string(&file).ok()?;
        (kept.lines().count() == 3).then_some(kept)
    });
    for line in kept.lines() {
        let line: Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(line["server"], "alpha");
    }
    viewer.vanish();
}

/// A view goes on through the server's restart, and says so when the daemon goes.
#[test]
fn a_view_outlives_the_server_but_not_the_daemon() {
    let home = Home::new();
    home.fake("alpha", &[]);
    let mut daemon = home.start();
    let mut viewer = viewer(&daemon, "alpha", &[]);
    daemon.kill_server("alpha");
    let state = |line: &Value| {
        line["event"] == "state"
            && line["text"]
                .as_str()
                .is_some_and(|text| text.contains("-> ready"))
    };
    next(&mut viewer, "the next run", state);
    let mut host = daemon.socket_host("alpha");
    host.initialize();
    host.call("echo", json!({}));
    message(&mut viewer, "response", "tools/call");
    host.vanish();
    daemon.terminate();
    let (status, stderr) = viewer.wait_exit();
    assert_eq!(status.code(), Some(4), "{stderr}");
    assert!(stderr.contains("the daemon has ended"), "{stderr}");
    let outcome = daemon.mcpd(&["trace", "alpha"]).expect_code(4);
    assert!(
        outcome.stderr.contains("no daemon is running"),
        "{}",
        outcome.stderr
    );
    daemon.start_again();
    let outcome = daemon.mcpd(&["trace", "nobody"]).expect_code(3);
    assert!(
        outcome
            .stderr
            .contains("no server \"nobody\" is configured"),
        "{}",
        outcome.stderr
    );
}

/// A viewer that stands still delays no call, and is told how much it missed.
#[test]
fn a_viewer_that_does_not_keep_up_misses_messages() {
    let home = Home::new();
    home.fake("alpha", &[]);
    let daemon = home.start();
    let mut viewer = viewer(&daemon, "alpha", &["--bodies", "10000"]);
    let pid = Pid::from_raw(viewer.pid());
    kill(pid, Signal::SIGSTOP).expect("it is there");
    let mut host = daemon.socket_host("alpha");
    host.initialize();
    for _ in 0..1_500 {
        host.call("echo", json!({"text": "x".repeat(1_000)}));
    }
    kill(pid, Signal::SIGCONT).expect("it is there");
    let missed = next(&mut viewer, "what was missed", |line| {
        line["event"] == "not-shown"
    });
    assert!(missed["count"].as_u64() > Some(0), "{missed}");
    host.call("pid", json!({}));
    next(&mut viewer, "what follows", |line| line["tool"] == "pid");
    viewer.vanish();
}

/// On a terminal it is a line a message; Ctrl-C and a reader that leaves end it, and that is no failure.
#[test]
fn a_view_ends_with_ctrl_c_and_with_its_reader() {
    let home = Home::new();
    home.fake("alpha", &[]);
    let daemon = home.start();
    daemon.wait_for_state("alpha", "running");
    let mut terminal = Terminal::run(daemon.command(&["trace", "alpha"]), 24, 100);
    terminal.wait_for("ready");
    let mut host = daemon.socket_host("alpha");
    host.initialize();
    host.call("echo", json!({}));
    terminal.wait_for("tools/call echo");
    let screen = terminal.wait_for("ok");
    assert!(
        screen.contains("watching alpha; Ctrl-C ends it"),
        "{screen}"
    );
    assert!(screen.contains('\u{2192}') && screen.lines().all(|line| line.chars().count() <= 100));
    kill(Pid::from_raw(terminal.pid()), Signal::SIGINT).expect("the signal");
    let (status, _) = terminal.wait_end();
    assert_eq!(status.code(), Some(0));
    let mut piped = daemon.program_command("sh");
    piped.args([
        "-c",
        "{ \"$MCPD\" trace alpha; echo \"left $?\" >&2; } | head -n 1",
    ]);
    piped.env("MCPD", crate::common::MCPD);
    // Nothing more passes, so only the reader's end can end it.
    let outcome = daemon.run(&mut piped).expect_code(0);
    assert_eq!(outcome.stderr, "left 0\n");
}
