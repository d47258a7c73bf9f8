//! `idle_stop`: what holds a child that nobody asks anything, and what does not.

use std::time::Duration;

use super::super::{Hold, HoldCause, MuxAction, MuxConfig, Service};
use super::{A, Bench, call, config, request, result};

/// `idle_stop = "10s"`.
fn ten_seconds() -> MuxConfig {
    MuxConfig {
        idle_stop: Some(Duration::from_secs(10)),
        ..config()
    }
}

/// What was asked of the shell after so many seconds, demands and idleness only.
fn after(bench: &mut Bench, seconds: u64) -> Vec<MuxAction> {
    bench.pass(Duration::from_secs(seconds));
    let mut actions = std::mem::take(&mut bench.actions);
    actions.retain(|action| matches!(action, MuxAction::Idle | MuxAction::Demand));
    actions
}

#[test]
fn a_silent_host_does_not_hold_the_child() {
    let mut bench = Bench::serving(ten_seconds(), &[A]);
    assert_eq!(after(&mut bench, 9), []);
    assert_eq!(after(&mut bench, 1), [MuxAction::Idle]);
    assert_eq!(after(&mut bench, 100), [], "told once");
}

#[test]
fn it_counts_from_the_end_of_the_last_request() {
    let mut bench = Bench::serving(ten_seconds(), &[A]);
    after(&mut bench, 9);
    bench.host(A, &call("1"));
    assert_eq!(after(&mut bench, 100), [], "a call is open");
    bench.child(result("5"));
    assert_eq!(after(&mut bench, 9), []);
    bench.host(A, r#"{"jsonrpc":"2.0","id":3,"method":"ping"}"#);
    assert_eq!(after(&mut bench, 1), [MuxAction::Idle], "a ping is no need");
}

#[test]
fn a_subscription_holds_the_child_until_its_host_has_left() {
    let mut bench = Bench::serving(ten_seconds(), &[A]);
    let uri = r#"{"uri":"a:b"}"#;
    bench.host(A, &request("1", "resources/subscribe", uri));
    bench.child(r#"{"jsonrpc":"2.0","id":5,"result":{}}"#);
    assert_eq!(after(&mut bench, 100), []);
    bench.leave(A);
    bench.child(r#"{"jsonrpc":"2.0","id":6,"result":{}}"#);
    assert_eq!(after(&mut bench, 10), [MuxAction::Idle]);
}

#[test]
fn a_request_while_the_idle_child_is_ended_asks_for_the_next() {
    let mut bench = Bench::serving(ten_seconds(), &[A]);
    assert_eq!(after(&mut bench, 10), [MuxAction::Idle]);
    bench.mux.begin_drain(bench.now);
    bench.set_service(Service::Holding(Hold::because(HoldCause::Starting)));
    bench.host(A, &call("1"));
    assert_eq!(after(&mut bench, 0), [MuxAction::Demand]);
    bench.crash();
    bench.start();
    bench.open();
    bench.expect_child(&[&call("5")]);
}

#[test]
fn the_setting_is_applied_live() {
    let mut bench = Bench::serving(config(), &[A]);
    assert_eq!(after(&mut bench, 1_000), []);
    bench.mux.configure(ten_seconds(), bench.now);
    assert_eq!(after(&mut bench, 0), [MuxAction::Idle]);
}
