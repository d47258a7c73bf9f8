//! How a child ends, and that nothing of it is left. The home's own check proves the second for every test.

use std::fs;
use std::time::Duration;

use serde_json::json;

use crate::common::{Home, Stopwatch, wait_until};

/// C001: a server with a timer that ignores the end of its input is ended all the same, by `stop` and with
/// the daemon.
#[test]
fn a_server_that_ignores_eof_is_ended() {
    let home = Home::new();
    home.fake("one", &["--ignore-eof"]);
    home.fake("two", &["--ignore-eof"]);
    let mut daemon = home.start();
    let stopped = daemon.server_pid("one");
    daemon.server_pid("two");
    daemon.mcpd(&["stop", "one"]).expect_code(0);
    assert!(
        !fs::exists(format!("/proc/{stopped}")).expect("/proc"),
        "{stopped} is still there"
    );
    assert_eq!(
        daemon.record("one").of("EOF").len(),
        1,
        "stdin was closed first"
    );
    assert_eq!(daemon.record("one").of("SIGNAL"), ["SIGTERM"]);
    assert!(daemon.terminate().success());
    assert_eq!(daemon.record("two").of("SIGNAL"), ["SIGTERM"]);
    assert_eq!(daemon.processes(), []);
}

/// C010: a server gets the time to save its state after the end of its input, and that is a success.
#[test]
fn a_server_may_save_its_state() {
    let home = Home::new();
    let saved = home.path("saved");
    home.fake_with(
        "fake",
        &["--save-on-eof", saved.to_str().expect("plain")],
        "stop_timeout = \"5s\"\n",
    );
    let daemon = home.start();
    daemon.server_pid("fake");
    daemon.mcpd(&["stop", "fake"]).expect_code(0);
    assert_eq!(fs::read_to_string(saved).expect("it was saved"), "saved");
    let status = daemon.server_status("fake");
    assert_eq!(
        (&status["state"], &status["result"]),
        (&json!("stopped"), &json!("success")),
        "{status}"
    );
    assert!(daemon.record("fake").of("SIGNAL").is_empty());
}

/// C011: a server that ignores everything is ended within the sum of the deadlines, and the log says how.
#[test]
fn a_server_that_ignores_everything_is_killed_in_time() {
    let home = Home::new();
    home.fake("fake", &["--ignore-eof", "--ignore-term", "--ignore-int"]);
    let daemon = home.start();
    let pid = daemon.server_pid("fake");
    let watch = Stopwatch::start();
    daemon.mcpd(&["stop", "fake"]).expect_code(0);
    assert!(
        watch.elapsed() < Duration::from_secs(4),
        "{:?}",
        watch.elapsed()
    );
    assert!(
        !fs::exists(format!("/proc/{pid}")).expect("/proc"),
        "{pid} is still there"
    );
    assert_eq!(daemon.server_status("fake")["state"], "stopped");
    wait_until("the log names the step", || {
        daemon.log().contains("stop-sigkill").then_some(())
    });
}
