//! What a host sees when its server dies and comes back.

use std::fs;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::common::{Home, Stopwatch, error_code, let_pass, text_of};

/// Keys that make a run of a tenth of a second a stable one.
const STABLE: &str =
    "stable_after = \"100ms\"\ndrain_timeout = \"300ms\"\nstop_timeout = \"500ms\"\n";

/// C024: a server that dies comes back on the same attachment, with the same handshake.
#[test]
fn a_host_keeps_its_attachment_when_its_server_dies() {
    let home = Home::new();
    home.fake_with("fake", &["--crash-after-calls", "3"], STABLE);
    let daemon = home.start();
    let mut host = daemon.connect_host("fake");
    host.initialize();
    for number in 0..7 {
        // A call that reaches the child in the moment of its death may have run: it would be an error.
        let generation = 1 + number / 3;
        daemon.wait_for("fake", "this run", |server| {
            server["state"] == "running" && server["generation"] == generation
        });
        assert_eq!(host.text("sum", json!({"a": number})), number.to_string());
    }
    let record = daemon.record("fake");
    assert_eq!(record.starts(), 3);
    let handshakes = record.wait_for("initialize", 3);
    assert_eq!(handshakes[0]["params"], handshakes[1]["params"]);
    record.wait_for("notifications/initialized", 3);
}

/// C025: calls that are open when the server dies get an error within a second, each to its own host.
#[test]
fn open_calls_fail_within_a_second() {
    let home = Home::new();
    home.fake_with("fake", &[], STABLE);
    let daemon = home.start();
    let mut one = daemon.connect_host("fake");
    let mut two = daemon.connect_host("fake");
    one.initialize();
    two.initialize();
    let first: Vec<u64> = (0..5).map(|_| one.start_call("stall", json!({}))).collect();
    let second: Vec<u64> = (0..5).map(|_| two.start_call("stall", json!({}))).collect();
    daemon.record("fake").wait_for("tools/call", 10);
    let pid = Pid::from_raw(daemon.server_pid("fake"));
    let watch = Stopwatch::start();
    kill(pid, Signal::SIGKILL).expect("the child is there");
    for (host, ids) in [(&mut one, first), (&mut two, second)] {
        for id in ids {
            let answer = host.answer(id);
            assert_eq!(error_code(&answer), -31001, "{answer}");
            assert_eq!(answer["error"]["data"]["server"], "fake");
        }
    }
    assert!(
        watch.elapsed() < Duration::from_secs(1),
        "{:?}",
        watch.elapsed()
    );
    for host in [&mut one, &mut two] {
        assert_eq!(host.text("sum", json!({"a": 1})), "1");
        assert!(
            host.everything_up_to_now().is_empty(),
            "one answer a request"
        );
    }
}

/// C035: a call that may have run is never run again; the error says that its outcome is unknown.
#[test]
fn a_call_is_never_replayed() {
    let home = Home::new();
    let counter = home.path("counter");
    home.fake_with("fake", &[], STABLE);
    let daemon = home.start();
    let mut host = daemon.connect_host("fake");
    host.initialize();
    let answer = host.call("count", json!({"file": counter, "die": true}));
    assert_eq!(error_code(&answer), -31001);
    assert!(
        answer["error"]["message"]
            .as_str()
            .is_some_and(|text| text.contains("unknown")),
        "{answer}"
    );
    daemon.wait_for("fake", "the second run", |server| {
        server["state"] == "running" && server["generation"] == 2
    });
    assert_eq!(host.text("sum", json!({"a": 1})), "1");
    assert_eq!(fs::read_to_string(&counter).expect("the counter"), "1\n");
}

/// C027: a server that takes its time is started once and waited for.
#[test]
fn a_slow_start_is_one_start() {
    let home = Home::new();
    home.fake("fake", &["--ready-after", "4000"]);
    let daemon = home.start();
    let mut host = daemon.connect_host("fake");
    host.initialize();
    assert_eq!(host.text("sum", json!({"a": 1})), "1");
    assert_eq!(daemon.record("fake").starts(), 1);
}

/// C029, fault 5: servers that exit at once are tried with growing delays, whoever asks how often, and their last
/// words are shown.
#[test]
fn servers_that_exit_at_once_do_not_storm() {
    let home = Home::new();
    for number in 0..4 {
        home.fake(
            &format!("bad{number}"),
            &["--stderr", "no licence key", "--exit", "1"],
        );
    }
    let daemon = home.start();
    let mut hosts: Vec<_> = (0..9)
        .map(|number| daemon.socket_host(&format!("bad{}", number % 4)))
        .collect();
    let watch = Stopwatch::start();
    let mut refused = 0;
    while watch.elapsed() < Duration::from_secs(8) {
        for host in &mut hosts {
            let id = host.request("initialize", crate::common::initialize_params("2025-11-25"));
            let answered =
                host.wait_line_within(Duration::from_millis(100), &|line| line.json["id"] == id);
            refused += usize::from(answered.is_ok());
        }
    }
    for number in 0..4 {
        // 1, 2, 4 s less 20 %: at most four tries and one on demand within eight seconds.
        let starts = daemon.record(&format!("bad{number}")).starts();
        assert!(
            (2..=6).contains(&starts),
            "{starts} starts, {refused} refusals"
        );
    }
    let status = daemon.server_status("bad0");
    assert_eq!(status["state"], "backoff", "{status}");
    assert!(
        status["stderr_tail"].to_string().contains("no licence key"),
        "{status}"
    );
}

/// C029, fault 4: ten unstable runs in a row, or as many as `start_limit` says, are failed, with the reason.
#[test]
fn the_start_limit_ends_in_failed() {
    let home = Home::new();
    home.fake_with(
        "fake",
        &["--stderr", "no licence key", "--exit", "1"],
        "start_limit = 3\nprotocol = \"legacy\"\n",
    );
    let daemon = home.start();
    let status = daemon.wait_for_state("fake", "failed");
    assert_eq!(status["substate"], "start-limit-hit");
    assert_eq!(daemon.record("fake").starts(), 3);
    let mut host = daemon.socket_host("fake");
    let answer = host.ask("initialize", crate::common::initialize_params("2025-11-25"));
    assert_eq!(error_code(&answer), -31000);
    assert!(answer.to_string().contains("no licence key"), "{answer}");
    daemon.mcpd(&["reset-failed", "fake"]).expect_code(0);
}

/// C031: a server that answers the handshake and dies soon after is no stable one: its delays grow.
#[test]
fn a_handshake_alone_does_not_reset_the_back_off() {
    let home = Home::new();
    home.fake("fake", &["--exit-after", "100"]);
    let daemon = home.start();
    let_pass(Duration::from_secs(7));
    let starts = daemon.record("fake").starts();
    assert!((2..=5).contains(&starts), "{starts} starts in 7 s");
}

/// C039, fault 52: nothing storms after the daemon was stopped for a while; a child that died meanwhile is found.
#[test]
fn a_stopped_daemon_catches_up_quietly() {
    let home = Home::new();
    home.fake_with("dies", &[], STABLE);
    home.fake_with("lives", &[], STABLE);
    let daemon = home.start();
    let mut dies = daemon.connect_host("dies");
    let mut lives = daemon.connect_host("lives");
    dies.initialize();
    lives.initialize();
    let (dead, alive) = (daemon.server_pid("dies"), daemon.server_pid("lives"));
    daemon.signal(Signal::SIGSTOP);
    kill(Pid::from_raw(dead), Signal::SIGKILL).expect("the child is there");
    let_pass(Duration::from_secs(3));
    daemon.signal(Signal::SIGCONT);
    assert_eq!(dies.text("sum", json!({"a": 1})), "1");
    assert_eq!(lives.text("sum", json!({"a": 1})), "1");
    assert_eq!(daemon.server_pid("lives"), alive);
    assert_eq!(daemon.record("dies").starts(), 2);
    assert_eq!(daemon.record("lives").starts(), 1);
}

/// C039, second half: a child that was stopped for a while recovers and is not killed for it.
#[test]
fn a_stopped_child_recovers() {
    let home = Home::new();
    home.fake("fake", &[]);
    let daemon = home.start();
    let mut host = daemon.connect_host("fake");
    host.initialize();
    let pid = Pid::from_raw(daemon.server_pid("fake"));
    kill(pid, Signal::SIGSTOP).expect("the child is there");
    let id = host.start_call("sum", json!({"a": 1}));
    let_pass(Duration::from_secs(3));
    kill(pid, Signal::SIGCONT).expect("the child is there");
    assert_eq!(text_of(&host.answer(id)), "1");
    assert_eq!(daemon.record("fake").starts(), 1);
}

/// C047: a launcher that asks instead of starting: the start times out and the error shows the question.
#[test]
fn a_question_at_the_start_shows_in_the_error() {
    let home = Home::new();
    home.fake_with(
        "fake",
        &[
            "--ask-first",
            "Ok to proceed? (y)\n",
            "--ready-after",
            "60000",
        ],
        "start_timeout = \"1s\"\nstart_limit = 1\nstop_timeout = \"300ms\"\n",
    );
    let daemon = home.start();
    let mut host = daemon.connect_host("fake");
    let answer = host.ask("initialize", crate::common::initialize_params("2025-11-25"));
    assert_eq!(error_code(&answer), -31000);
    let text = answer.to_string();
    assert!(text.contains("Ok to proceed?"), "{text}");
    assert!(text.contains("start_timeout"), "{text}");
}

/// C047: the same where the host came before there was a process, so that its own wait runs out first.
#[test]
fn a_question_shows_to_a_host_that_came_first() {
    let home = Home::new();
    home.fake_with(
        "fake",
        &[
            "--ask-first",
            "Ok to proceed? (y)\n",
            "--ready-after",
            "60000",
        ],
        "start_timeout = \"2s\"\nstart_limit = 1\nstop_timeout = \"300ms\"\n\
         [env]\nKEY = { command = [\"/bin/sh\", \"-c\", \"sleep 1; echo value\"] }\n",
    );
    let daemon = home.start();
    let mut host = daemon.socket_host("fake");
    let answer = host.ask("initialize", crate::common::initialize_params("2025-11-25"));
    assert_eq!(error_code(&answer), -31000);
    for part in ["start_timeout", "2s", "Ok to proceed?"] {
        assert!(answer.to_string().contains(part), "{part}: {answer}");
    }
}

/// C048: hosts that come together while a server starts share one process and one handshake.
#[test]
fn hosts_that_come_together_share_one_start() {
    let home = Home::new();
    home.fake("fake", &["--ready-after", "1500"]);
    let daemon = home.start();
    let mut hosts: Vec<_> = (0..12).map(|_| daemon.connect_host("fake")).collect();
    let ids: Vec<u64> = hosts
        .iter_mut()
        .map(|host| host.request("initialize", crate::common::initialize_params("2025-11-25")))
        .collect();
    for (host, id) in hosts.iter_mut().zip(ids) {
        assert_eq!(host.answer(id)["result"]["serverInfo"]["name"], "fake");
    }
    assert_eq!(daemon.record("fake").starts(), 1);
    assert_eq!(daemon.record("fake").with_method("initialize").len(), 1);
}

/// Requests that arrive while a server restarts wait in order and go to the new child.
#[test]
fn requests_wait_for_the_new_child() {
    let home = Home::new();
    home.fake_with("fake", &["--ready-after", "800"], STABLE);
    let daemon = home.start();
    let mut host = daemon.connect_host("fake");
    host.initialize();
    daemon.kill_server("fake");
    let ids: Vec<u64> = (0..20)
        .map(|number| host.start_call("sum", json!({"a": number})))
        .collect();
    for (number, id) in ids.into_iter().enumerate() {
        assert_eq!(text_of(&host.answer(id)), number.to_string());
    }
}

/// A server that dies of every call answers everything else; each call is one error and one restart.
#[test]
fn a_server_that_dies_of_every_call_is_no_storm() {
    let home = Home::new();
    home.fake_with("fake", &["--die-on-call"], STABLE);
    let daemon = home.start();
    let mut host = daemon.connect_host("fake");
    host.initialize();
    for _ in 0..3 {
        assert_eq!(error_code(&host.call("sum", json!({}))), -31001);
        assert!(host.ask("prompts/list", json!({}))["result"].is_object());
    }
    // The list may have been told from memory while the fourth was on its way.
    daemon.wait_for_state("fake", "running");
    assert_eq!(daemon.record("fake").starts(), 4);
}

/// A request whose wait ends before the next try is refused at once, with the time of that try.
#[test]
fn a_refusal_in_backoff_tells_the_next_try() {
    let home = Home::new();
    home.fake_with(
        "fake",
        &["--stderr", "no licence key", "--exit", "1"],
        "start_timeout = \"500ms\"\n",
    );
    let daemon = home.start();
    daemon.wait_for("fake", "a delay of two seconds", |server| {
        server["state"] == "backoff" && server["next_attempt_in_ms"].as_u64() > Some(1_500)
    });
    let mut host = daemon.connect_host("fake");
    let watch = Stopwatch::start();
    let answer = host.ask("initialize", crate::common::initialize_params("2025-11-25"));
    assert!(
        watch.elapsed() < Duration::from_secs(3),
        "{:?}",
        watch.elapsed()
    );
    assert_eq!(error_code(&answer), -31000, "{answer}");
    let text = answer["error"].to_string();
    assert!(
        text.contains("no licence key") && text.contains("next"),
        "{text}"
    );
}

/// A child that hangs is started again by its watchdog, and its hosts stay: the next request is served by the
/// new one.
#[test]
fn a_watched_child_that_hangs_is_started_again() {
    let home = Home::new();
    home.fake_with("fake", &[], "watchdog = \"1s\"\nstop_timeout = \"100ms\"\n");
    let daemon = home.start();
    let mut host = daemon.socket_host("fake");
    host.initialize();
    let pid = Pid::from_raw(daemon.server_pid("fake"));
    kill(pid, Signal::SIGSTOP).expect("the child is there");
    let status = daemon.wait_for("fake", "the next one", |server| {
        server["state"] == "running" && server["pid"] != pid.as_raw()
    });
    assert_eq!(status["exits"][0]["result"], "watchdog", "{status}");
    let answer = host.call("echo", json!({"text": "again"}));
    assert_eq!(
        answer["result"]["structuredContent"]["text"], "again",
        "{answer}"
    );
}
