//! A host's own descriptors in the daemon's hands, and what the host sees of the daemon's end.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};

use serde_json::{Value, json};

use crate::common::{Home, RawHost, error_code, initialize_params, wait_until};

/// How a host reaches its shim.
#[derive(Clone, Copy, Debug)]
enum Way {
    Pipes,
    Sockets,
    /// Its input is a pipe with a name, which is not handed over.
    Relayed,
}

fn host(home: &Home, way: Way) -> RawHost {
    let mut command = home.command(&["connect", "fake"]);
    match way {
        Way::Pipes => RawHost::through(command),
        Way::Sockets => {
            let (ours, theirs) = UnixStream::pair().expect("two sockets");
            let second = theirs.try_clone().expect("a second descriptor");
            command
                .stdin(OwnedFd::from(theirs))
                .stdout(OwnedFd::from(second));
            RawHost::beside(command, ours)
        }
        Way::Relayed => RawHost::through_fifo(command, &home.path("input")),
    }
}

/// The host ends its output: what it gets after that.
fn finish(mut host: RawHost) -> Vec<String> {
    host.end_output();
    host.wait_end().iter().map(|line| line.text()).collect()
}

/// C033: the daemon is killed with calls open, again and again. Each gets one error, whichever way the
/// host speaks; the next call works, and the host is never asked for a handshake again.
fn check_kills(way: Way) {
    let home = Home::new();
    home.fake("fake", &[]);
    let mut host = host(&home, way);
    host.initialize();
    for round in 0..3 {
        let open: Vec<u64> = (0..40)
            .map(|_| host.start_call("sleep", json!({"ms": 120_000})))
            .collect();
        assert_eq!(host.text("sum", json!({"a": round})), round.to_string());
        home.kill_daemon();
        for id in open {
            assert_eq!(error_code(&host.answer(id)), -31006, "{way:?}");
        }
        assert_eq!(
            host.text("sum", json!({"a": round, "b": 1})),
            (round + 1).to_string()
        );
    }
    assert!(host.is_running());
    let rest = finish(host);
    assert!(rest.is_empty(), "nothing is said twice: {rest:?}");
}

#[test]
fn a_killed_daemon_costs_the_open_calls_of_a_host_with_pipes() {
    check_kills(Way::Pipes);
}

#[test]
fn a_killed_daemon_costs_the_open_calls_of_a_host_with_sockets() {
    check_kills(Way::Sockets);
}

#[test]
fn a_killed_daemon_costs_the_open_calls_of_a_host_that_is_relayed() {
    check_kills(Way::Relayed);
}

/// C033: what a host has subscribed to and its level hold in the next daemon, and it says nothing again.
#[test]
fn subscriptions_and_levels_outlive_the_daemon() {
    for way in [Way::Pipes, Way::Relayed] {
        let home = Home::new();
        home.fake("fake", &[]);
        let mut host = host(&home, way);
        host.initialize();
        let uri = json!({"uri": "fake://one"});
        for (method, params) in [
            ("resources/subscribe", uri.clone()),
            ("logging/setLevel", json!({"level": "debug"})),
        ] {
            assert_eq!(host.ask(method, params)["result"], json!({}), "{way:?}");
        }
        let open = host.start_call("sleep", json!({"ms": 120_000}));
        home.record("fake").wait_for("tools/call", 1);
        home.kill_daemon();
        // The next daemon has come once it is answered.
        assert_eq!(error_code(&host.answer(open)), -31006, "{way:?}");
        assert_eq!(host.text("sum", json!({"a": 1})), "1", "{way:?}");
        for method in ["resources/subscribe", "logging/setLevel"] {
            home.record("fake").wait_for(method, 2);
        }
        host.call("log", json!({"level": "debug", "text": "heard"}));
        host.notification("notifications/message");
        host.call("update", uri);
        host.notification("notifications/resources/updated");
        finish(host);
    }
}

/// Large messages pass whole in both directions, whichever way the host speaks.
#[test]
fn large_messages_pass_both_ways() {
    for way in [Way::Pipes, Way::Sockets, Way::Relayed] {
        let home = Home::new();
        home.fake("fake", &[]);
        let mut host = host(&home, way);
        host.initialize();
        let text = "y".repeat(10 << 20);
        let answer = host.call("echo", json!({"text": text}));
        let echoed = answer["result"]["structuredContent"]["text"].as_str();
        assert!(echoed == Some(&text), "{way:?}: not what was sent");
        assert_eq!(host.text("sum", json!({"a": 1})), "1", "{way:?}");
        finish(host);
    }
}

/// A host with its pipes in our hands, read by the test as it likes.
struct Slow {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Slow {
    fn new(home: &Home) -> Self {
        let mut child = home
            .command(&["connect", "fake"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the shim starts");
        let output = BufReader::with_capacity(1, child.stdout.take().expect("a pipe"));
        let mut this = Self { child, output };
        this.send("initialize", 0, initialize_params("2025-11-25"));
        assert!(this.line()["result"].is_object());
        this
    }

    fn send(&mut self, method: &str, id: u32, params: Value) {
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        let input = self.child.stdin.as_mut().expect("a pipe");
        writeln!(input, "{message}").expect("it is read");
    }

    fn call(&mut self, id: u32, tool: &str, arguments: Value) {
        self.send(
            "tools/call",
            id,
            json!({"name": tool, "arguments": arguments}),
        );
    }

    fn raw_line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("UTF-8");
        line
    }

    fn line(&mut self) -> Value {
        serde_json::from_str(&self.raw_line()).expect("a message")
    }

    fn end(mut self) -> std::process::ExitStatus {
        drop(self.child.stdin.take());
        self.child.wait().expect("it ends")
    }
}

/// A line that was half written when the daemon was killed is ended before anything else is said, and
/// its request gets an error.
#[test]
fn a_half_written_line_is_ended() {
    let home = Home::new();
    home.fake("fake", &[]);
    let mut slow = Slow::new(&home);
    slow.call(7, "echo", json!({"text": "z".repeat(1 << 20)}));
    let mut begun = [0; 100];
    slow.output
        .read_exact(&mut begun)
        .expect("the answer begins");
    home.kill_daemon();
    let rest = slow.raw_line();
    assert!(
        rest.ends_with("z\n"),
        "cut in the middle: {} bytes",
        rest.len()
    );
    let error = slow.line();
    assert_eq!((&error["id"], error_code(&error)), (&json!(7), -31006));
    slow.call(8, "sum", json!({"a": 8}));
    assert_eq!(slow.line()["id"], 8, "and no blank line between");
    assert!(slow.end().success());
}

/// A request of which the daemon had read a part when it was killed is served by the next one.
#[test]
fn a_half_read_line_is_not_lost() {
    let home = Home::new();
    home.fake("fake", &[]);
    let mut slow = Slow::new(&home);
    let text = json!({"jsonrpc": "2.0", "id": 5, "method": "tools/call",
        "params": {"name": "echo", "arguments": {"text": "w".repeat(300_000)}}})
    .to_string();
    let (head, tail) = text.split_at(200_000);
    let input = slow.child.stdin.as_mut().expect("a pipe");
    input.write_all(head.as_bytes()).expect("it is read");
    home.kill_daemon();
    writeln!(slow.child.stdin.as_mut().expect("a pipe"), "{tail}").expect("it is read");
    let answer = slow.line();
    let echoed = answer["result"]["structuredContent"]["text"].as_str();
    assert_eq!(
        echoed.map(str::len),
        Some(300_000),
        "{:.200}",
        answer.to_string()
    );
    assert!(slow.end().success());
}

/// The descriptors of a host keep their mode: they are shared with others.
#[test]
fn the_mode_of_the_hosts_descriptors_stays() {
    let home = Home::new();
    home.fake("fake", &[]);
    for way in [Way::Pipes, Way::Sockets] {
        let mut host = host(&home, way);
        host.initialize();
        for descriptor in [0, 1] {
            let info = std::fs::read_to_string(format!("/proc/{}/fdinfo/{descriptor}", host.pid()))
                .expect("the shim runs");
            let flags = info
                .lines()
                .find_map(|line| line.strip_prefix("flags:"))
                .expect("flags");
            let flags = i32::from_str_radix(flags.trim(), 8).expect("octal");
            assert_eq!(
                flags & nix::libc::O_NONBLOCK,
                0,
                "{way:?} {descriptor}: {info}"
            );
        }
        finish(host);
    }
}

/// C200: an orderly end is waited out by the shim: it starts nothing, and what the host asks meanwhile is
/// served by the next daemon, in the session of before.
#[test]
fn a_restart_is_waited_out() {
    let home = Home::new();
    home.fake("fake", &[]);
    let mut daemon = home.start();
    let mut host = daemon.connect_host("fake");
    host.initialize();
    assert_eq!(host.text("sum", json!({"a": 1})), "1");
    assert!(daemon.terminate().success());
    let waiting = host.start_call("sum", json!({"a": 2}));
    daemon.start_again();
    assert_eq!(host.answer(waiting)["result"]["content"][0]["text"], "2");
    assert_eq!(host.text("sum", json!({"a": 3})), "3");
    assert!(host.is_running());
}

/// `shutdown` is not undone by a shim: what is asked is answered with how to start one, and served once
/// somebody has.
#[test]
fn a_shutdown_holds_and_is_explained() {
    let home = Home::new();
    home.fake("fake", &[]);
    let mut host = home.connect_host("fake");
    host.initialize();
    home.mcpd(&["shutdown"]).expect_code(0);
    let answer = host.call("sum", json!({"a": 1}));
    assert_eq!(error_code(&answer), -31000, "{answer}");
    assert!(answer.to_string().contains("mcpd start"), "{answer}");
    assert_eq!(host.ask("ping", json!({}))["result"], json!({}));
    home.mcpd(&["status"]).expect_code(4);
    let daemon = home.start();
    wait_until("the host is served again", || {
        (host.call("sum", json!({"a": 4}))["result"]["content"][0]["text"] == "4").then_some(())
    });
    drop(host);
    drop(daemon);
}
