//! Silence of a child: what is said of it, and what a watchdog does about it.

use std::time::Duration;

use super::super::{MuxAction, MuxConfig};
use super::{A, Bench, call, config, notification, result};

/// `watchdog = "40s"`.
fn forty_seconds() -> MuxConfig {
    MuxConfig {
        watchdog: Some(Duration::from_secs(40)),
        ..config()
    }
}

/// What the child was sent and how often it was given up after so many seconds.
fn after(bench: &mut Bench, seconds: u64) -> (Vec<String>, usize) {
    bench.pass(Duration::from_secs(seconds));
    let actions = std::mem::take(&mut bench.actions);
    let hung = |action: &&MuxAction| matches!(action, MuxAction::Hung { .. });
    (bench.take_child(), actions.iter().filter(hung).count())
}

#[test]
fn a_silent_child_is_asked_and_then_given_up_once() {
    let mut bench = Bench::serving(forty_seconds(), &[A]);
    assert_eq!(after(&mut bench, 39), (vec![], 0));
    let ping = r#"{"jsonrpc":"2.0","id":5,"method":"ping"}"#.to_owned();
    assert_eq!(after(&mut bench, 1), (vec![ping], 0));
    assert_eq!(after(&mut bench, 39), (vec![], 0));
    assert_eq!(after(&mut bench, 1), (vec![], 1));
    assert_eq!(after(&mut bench, 1000).1, 0, "once");
}

#[test]
fn anything_that_the_child_says_counts() {
    let mut bench = Bench::serving(forty_seconds(), &[A]);
    for _ in 0..3 {
        assert_eq!(after(&mut bench, 39), (vec![], 0));
        bench.child(notification(
            "notifications/message",
            r#"{"level":"info","data":1}"#,
        ));
    }
    assert_eq!(after(&mut bench, 40).0.len(), 1);
    bench.child(r#"{"jsonrpc":"2.0","id":5,"result":{}}"#);
    assert_eq!(
        after(&mut bench, 39),
        (vec![], 0),
        "its answer is one of them"
    );
}

#[test]
fn without_a_watchdog_nobody_asks() {
    let mut bench = Bench::serving(config(), &[A]);
    assert_eq!(after(&mut bench, 100_000), (vec![], 0));
    assert_eq!(bench.mux.poll_timeout(), None);
}

#[test]
fn a_request_that_meets_silence_is_overdue() {
    let mut bench = Bench::serving(config(), &[A]);
    let overdue = |bench: &Bench| bench.mux.snapshot(bench.now).overdue;
    bench.pass(Duration::from_secs(100));
    assert_eq!(overdue(&bench), None, "nothing is asked of it");
    bench.host(A, &call("1"));
    bench.pass(Duration::from_secs(29));
    assert_eq!(overdue(&bench), None);
    bench.pass(Duration::from_secs(1));
    assert_eq!(overdue(&bench), Some(Duration::from_secs(30)));
    bench.child("a word that is no message");
    assert_eq!(overdue(&bench), None, "it is alive");
    bench.pass(Duration::from_secs(30));
    assert!(overdue(&bench).is_some());
    bench.child(result("5"));
    assert_eq!(overdue(&bench), None);
}
