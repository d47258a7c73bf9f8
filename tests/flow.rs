//! Flow control: nobody who is slow delays anybody else, and everything that is held has a limit.

use std::io::{ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde_json::json;

use crate::common::{
    Home, MCPD, Stopwatch, TestDaemon, error_code, initialize_params, let_pass, text_of, wait_until,
};

/// C078: a flood of notifications does not hold up the reply behind it.
#[test]
fn a_flood_of_notifications_does_not_block_the_reply() {
    let home = Home::new();
    home.fake("fake", &[]);
    let daemon = home.start();
    let mut host = daemon.connect_host("fake");
    let mut other = daemon.connect_host("fake");
    host.initialize();
    other.initialize();
    assert_eq!(host.text("flood", json!({"n": 5000})), "flooded");
    assert_eq!(
        host.notifications_up_to_now("notifications/message").len(),
        5000
    );
    assert_eq!(other.text("sum", json!({"a": 1})), "1");
}

/// Fault 55: a host that does not read, in the middle of a flood, delays no other host.
#[test]
fn a_host_that_does_not_read_delays_nobody() {
    let home = Home::new();
    home.fake("fake", &[]);
    let daemon = home.start();
    let _deaf = deaf_host(&daemon.server_socket("fake"), 0);
    let mut host = daemon.socket_host("fake");
    host.initialize();
    let watch = Stopwatch::start();
    assert_eq!(
        host.text("flood", json!({"n": 20_000, "bytes": 1000})),
        "flooded"
    );
    assert!(
        watch.elapsed() < Duration::from_secs(20),
        "{:?}",
        watch.elapsed()
    );
    assert_eq!(host.text("sum", json!({"a": 1})), "1");
}

/// C080: what is held for a host that does not read is limited in bytes; then that host is cut, and
/// memory stays bounded; replies to others are never dropped.
#[test]
fn a_host_that_holds_too_much_is_cut() {
    let home = Home::new();
    home.settings("memory_limit = \"128MiB\"\n");
    home.fake("fake", &[]);
    let daemon = home.start();
    let mut host = daemon.socket_host("fake");
    host.initialize();
    let deaf = deaf_host(&daemon.server_socket("fake"), 40);
    for number in 0..20 {
        assert_eq!(host.text("sum", json!({"a": number})), number.to_string());
    }
    wait_until("the deaf host is cut", || {
        (daemon.server_status("fake")["requests"]["hosts"] == 1).then_some(())
    });
    // It need not read to learn of it, and costs no descriptor if it never does.
    deaf.set_nonblocking(true).expect("it is a socket");
    wait_until("its connection has ended", || {
        let error = (&deaf).write_all(b"\n").err()?;
        (error.kind() == ErrorKind::BrokenPipe).then_some(())
    });
    assert!(
        daemon.memory_bytes() < 400 << 20,
        "{} bytes",
        daemon.memory_bytes()
    );
    assert_eq!(host.text("sum", json!({"a": 1})), "1");
    drop(deaf);
}

/// Fault 15: a child that reads nothing: the queue is bounded, then callers are refused; others are not disturbed.
#[test]
fn a_child_that_does_not_read_overloads_only_itself() {
    let home = Home::new();
    home.fake("deaf", &["--stop-reading", "--ignore-eof"]);
    home.fake("fine", &[]);
    let daemon = home.start();
    let mut deaf = daemon.socket_host("deaf");
    let mut fine = daemon.socket_host("fine");
    deaf.initialize();
    fine.initialize();
    let text = "x".repeat(1000);
    for _ in 0..1001 {
        deaf.start_call("echo", json!({"text": text}));
    }
    let refusal = deaf
        .wait_line("a refusal", |line| line.json["error"].is_object())
        .json;
    assert_eq!(error_code(&refusal), -31002, "{refusal}");
    assert_eq!(fine.text("sum", json!({"a": 1})), "1");
    assert_eq!(
        deaf.ask("ping", json!({}))["result"],
        json!({}),
        "ping needs no child"
    );
}

/// A cancellation passes a full queue: it has reserved room, and the call it ends leaves the queue.
#[test]
fn a_cancellation_passes_a_full_queue() {
    let home = Home::new();
    home.fake("fake", &[]);
    let daemon = home.start();
    let mut host = daemon.socket_host("fake");
    host.initialize();
    let sleeping = host.start_call("sleep", json!({"ms": 60_000}));
    let blocked = host.start_call("block", json!({"ms": 2_000}));
    let text = "x".repeat(10_000);
    let waiting: Vec<u64> = (0..900)
        .map(|_| host.start_call("echo", json!({"text": text})))
        .collect();
    host.notify("notifications/cancelled", json!({"requestId": sleeping}));
    host.notify(
        "notifications/cancelled",
        json!({"requestId": waiting[899]}),
    );
    assert_eq!(text_of(&host.answer(blocked)), "reading again");
    for id in &waiting[..899] {
        assert!(host.answer(*id)["result"].is_object());
    }
    daemon.record("fake").wait_for("notifications/cancelled", 1);
    assert!(
        host.everything_up_to_now().is_empty(),
        "a cancelled call is not answered"
    );
}

/// C173: with `max_calls = 1` calls never overlap, hosts take turns, and a cancelled call that waits never runs.
#[test]
fn max_calls_is_a_fair_queue() {
    let home = Home::new();
    home.fake_with("fake", &["--refuse-overlap"], "max_calls = 1\n");
    let daemon = home.start();
    let mut greedy = daemon.socket_host("fake");
    let mut modest = daemon.socket_host("fake");
    greedy.initialize();
    modest.initialize();
    let many: Vec<u64> = (0..50)
        .map(|_| greedy.start_call("sleep", json!({"ms": 40, "text": "fine"})))
        .collect();
    let watch = Stopwatch::start();
    assert_eq!(
        modest.text("sleep", json!({"ms": 1, "text": "my turn"})),
        "my turn"
    );
    assert!(
        watch.elapsed() < Duration::from_millis(1500),
        "it waited behind all: {:?}",
        watch.elapsed()
    );
    let cancelled = greedy.start_call("count", json!({"file": daemon.path("counter")}));
    greedy.notify("notifications/cancelled", json!({"requestId": cancelled}));
    for id in many {
        assert_eq!(text_of(&greedy.answer(id)), "fine");
    }
    assert!(greedy.everything_up_to_now().is_empty());
    assert!(!daemon.path("counter").exists(), "the cancelled call ran");
}

/// Half-open, silent and garbage connections cost nothing; there may be many.
#[test]
fn silent_connections_cost_nothing() {
    let home = Home::new();
    home.fake("fake", &[]);
    let daemon = home.start();
    let baseline = {
        daemon.wait_for_state("fake", "running");
        daemon.open_descriptors()
    };
    let socket = daemon.server_socket("fake");
    let silent: Vec<UnixStream> = (0..100)
        .map(|_| UnixStream::connect(&socket).expect("it accepts"))
        .collect();
    for (number, mut stream) in silent.iter().enumerate() {
        if number % 2 == 0 {
            stream.write_all(b"{\"half\": ").expect("it is open");
        }
    }
    let mut host = daemon.socket_host("fake");
    host.initialize();
    assert_eq!(host.text("sum", json!({"a": 1})), "1");
    drop(silent);
    host.vanish();
    wait_until("their descriptors are closed", || {
        (daemon.open_descriptors() <= baseline).then_some(())
    });
}

/// Fault 55: what a host has half sent is its own: whoever fills the memory with it goes, not a host that asks for little.
#[test]
fn half_lines_count_for_the_hosts_that_send_them() {
    let home = Home::new();
    home.settings("memory_limit = \"24MiB\"\n");
    home.fake("fake", &[]);
    let daemon = home.start();
    let mut modest = daemon.socket_host("fake");
    modest.initialize();
    let socket = daemon.server_socket("fake");
    let half = vec![b'x'; 10 << 20];
    let greedy: Vec<UnixStream> = (0..6)
        .map(|_| {
            let mut stream = UnixStream::connect(&socket).expect("it accepts");
            stream
                .write_all(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"")
                .expect("it is read");
            // One that is cut off meanwhile has failed as it should.
            drop(stream.write_all(&half));
            stream
        })
        .collect();
    wait_until("those that hold too much are detached", || {
        let held = daemon.status()?["daemon"]["held_bytes"].as_u64()?;
        (held > 10 << 20 && held <= 24 << 20).then_some(())
    });
    assert_eq!(modest.text("sum", json!({"a": 1})), "1");
    drop(greedy);
}

/// A host that never reads: its handshake, then so many calls for results of eight megabytes.
fn deaf_host(socket: &std::path::Path, calls: u64) -> UnixStream {
    let mut stream = wait_until("it accepts", || UnixStream::connect(socket).ok());
    let mut lines = format!(
        "{}\n{}\n",
        json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": initialize_params("2025-11-25")}),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
    );
    for id in 1..=calls {
        let call = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params":
            {"name": "big", "arguments": {"bytes": 8_000_000}}});
        lines.push_str(&format!("{call}\n"));
    }
    stream.write_all(lines.as_bytes()).expect("it is read");
    stream
}

/// A daemon that runs out of descriptors neither dies nor spins: it accepts again once there are some.
#[test]
fn a_lack_of_descriptors_is_survived() {
    let home = Home::new();
    home.fake("fake", &[]);
    let mut command = home.program_command("/bin/sh");
    command.args(["-c", "ulimit -n 48; exec \"$0\" daemon", MCPD]);
    let daemon = TestDaemon::start_with(home, command);
    daemon.wait_for_state("fake", "running");
    let mut host = daemon.socket_host("fake");
    host.initialize();
    let socket = daemon.server_socket("fake");
    let crowd: Vec<UnixStream> = (0..80)
        .filter_map(|_| UnixStream::connect(&socket).ok())
        .collect();
    assert_eq!(
        host.text("sum", json!({"a": 1})),
        "1",
        "who is there is served"
    );
    let before = daemon.cpu_time();
    let_pass(Duration::from_secs(1));
    let used = daemon.cpu_time() - before;
    assert!(used < Duration::from_millis(300), "it spins: {used:?}");
    drop(crowd);
    let mut later = daemon.socket_host("fake");
    later.initialize();
    assert_eq!(later.text("sum", json!({"a": 2})), "2");
    assert_eq!(daemon.record("fake").starts(), 1);
}
