//! Ends of attachments.

use super::super::{ANSWERS_AFTER_END, CloseReason};
use super::*;

#[test]
fn the_end_of_input_waits_for_answers_that_are_due() {
    let mut bench = Bench::serving(config(), &[A]);
    bench.host(A, &call("1"));
    bench.mux.handle_host_end(A, bench.now);
    bench.pump();
    assert!(bench.actions.is_empty());
    bench.child(result("5"));
    assert_eq!(bench.take_host(A).len(), 1);
    assert_eq!(
        bench.actions,
        [MuxAction::CloseHost(A, CloseReason::Finished)]
    );
    bench.leave(A);
    assert!(!bench.mux.has_host(A));
    bench.expect_quiet();
}

#[test]
fn a_whole_session_may_be_piped_in_before_the_child_is_there() {
    let mut bench = Bench::new(config());
    bench.attach(A);
    bench.host(A, &initialize("0", "2025-11-25"));
    bench.host(A, &notification("notifications/initialized", "{}"));
    bench.host(A, &request("1", "tools/list", "{}"));
    bench.host(A, &call("2"));
    bench.mux.handle_host_end(A, bench.now);
    bench.pump();
    bench.start();
    bench.open();
    bench.child(result("5"));
    bench.actions.clear();
    bench.child(result("6"));
    assert_eq!(bench.take_host(A).len(), 3);
    assert_eq!(
        bench.actions,
        [MuxAction::CloseHost(A, CloseReason::Finished)]
    );
}

#[test]
fn an_end_with_nothing_due_closes_at_once() {
    let mut bench = Bench::serving(config(), &[A]);
    bench.mux.handle_host_end(A, bench.now);
    bench.pump();
    assert_eq!(
        bench.actions,
        [MuxAction::CloseHost(A, CloseReason::Finished)]
    );
    bench.mux.handle_host_end(A, bench.now);
    bench.pump();
    assert_eq!(bench.actions.len(), 1);
}

#[test]
fn the_last_answers_are_waited_for_within_bounds() {
    let mut bench = Bench::serving(config(), &[A]);
    bench.host(A, &call("1"));
    bench.take_child();
    bench.mux.handle_host_end(A, bench.now);
    bench.pass(ANSWERS_AFTER_END);
    assert_eq!(
        bench.actions,
        [MuxAction::CloseHost(A, CloseReason::GaveUp)]
    );
    assert!(
        bench
            .take_child()
            .join("")
            .contains("notifications/cancelled")
    );
    assert_eq!(bench.mux.poll_timeout(), None);
}

#[test]
fn a_server_that_cannot_run_answers_before_it_closes() {
    let mut bench = Bench::new(config());
    bench.set_service(Service::Unavailable(unavailable("srv is disabled")));
    bench.attach(A);
    bench.host(A, &initialize("0", "2025-11-25"));
    bench.expect_error(A, "0", -31000);
    bench.mux.handle_host_end(A, bench.now);
    bench.pump();
    assert!(
        bench
            .actions
            .contains(&MuxAction::CloseHost(A, CloseReason::Finished))
    );
}

#[test]
fn lines_of_a_host_that_is_gone_do_nothing() {
    let mut bench = Bench::serving(config(), &[A]);
    bench.leave(A);
    bench.host(A, &call("1"));
    bench.leave(A);
    bench.mux.handle_host_end(A, bench.now);
    bench.pump();
    bench.expect_child(&[]);
    bench.expect_quiet();
}
