//! What may be open and held, and who goes.

use super::super::{ATTACHMENTS, AttachmentsFull, DropReason, OPEN_PER_CHILD, OPEN_PER_HOST};
use super::*;

const MIB: usize = 1024 * 1024;

/// A result of `len` bytes and more for this upstream id, as a line without a limit.
fn large(id: u64, len: usize) -> Line {
    let mut reader = LineReader::new(1024 * MIB);
    reader.feed(
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":"{}"}}"#,
            "x".repeat(len)
        )
        .as_bytes(),
    );
    reader.finish().expect("a line")
}

#[test]
fn a_host_may_have_a_bounded_number_of_requests_open() {
    let mut bench = Bench::serving(config(), &[A, B]);
    for id in 0..OPEN_PER_HOST {
        bench.host(A, &call(&format!("\"{id}\"")));
    }
    bench.expect_host(A, &[]);
    bench.host(A, &call("1"));
    bench.expect_error(A, "1", -31002);
    bench.host(B, &call("1"));
    bench.expect_host(B, &[]);
    bench.child(result("5"));
    bench.take_host(A);
    bench.host(A, &call("1"));
    bench.expect_host(A, &[]);
}

#[test]
fn a_child_may_have_a_bounded_number_of_requests_open() {
    let mut bench = Bench::serving(config(), &[]);
    for host in 0..=(OPEN_PER_CHILD / OPEN_PER_HOST) as u64 {
        let host = HostKey(100 + host);
        bench.join(host, "2025-11-25");
        for id in 0..OPEN_PER_HOST {
            bench
                .mux
                .handle_host_line(host, line(call(&format!("\"{id}\""))), bench.now);
        }
    }
    bench.pump();
    let last = HostKey(100 + (OPEN_PER_CHILD / OPEN_PER_HOST) as u64);
    let refused = bench.take_host(last);
    assert_eq!(refused.len(), OPEN_PER_HOST);
    assert!(refused.iter().all(|answer| answer.contains("-31002")));
    assert_eq!(bench.mux.snapshot(bench.now).open, OPEN_PER_CHILD);
}

#[test]
fn an_instance_has_a_bounded_number_of_attachments() {
    let mut bench = Bench::new(config());
    for host in 0..ATTACHMENTS as u64 {
        bench.attach(HostKey(host));
    }
    let extra = HostKey(ATTACHMENTS as u64);
    assert_eq!(
        bench.mux.attach(extra, HostInfo::default()),
        Err(AttachmentsFull)
    );
    bench.leave(A);
    bench.attach(extra);
}

#[test]
fn a_child_that_does_not_read_fills_a_bounded_queue() {
    let mut bench = Bench::serving(config(), &[A, B]);
    let mut reader = LineReader::new(1024 * MIB);
    let params = format!(r#"{{"name":"{}"}}"#, "x".repeat(16 * MIB));
    for id in ["1", "2", "3", "4"] {
        reader.feed(request(id, "tools/call", &params).as_bytes());
        reader.feed(b"\n");
        bench
            .mux
            .handle_host_line(A, reader.poll().expect("a line"), bench.now);
    }
    while bench.mux.poll_action().is_some() {}
    let answer = bench
        .mux
        .poll_host_frame(A)
        .expect("the fourth has no room");
    assert!(text(&answer.frame.to_vec()).contains("-31002"));
    // What has reserved room goes on, and goes first.
    bench.mux.handle_child_line(
        Generation(1),
        line(r#"{"jsonrpc":"2.0","id":9,"method":"ping"}"#),
        bench.now,
    );
    let first = bench
        .mux
        .poll_child_frame(bench.now)
        .expect("the answer to the ping");
    assert_eq!(
        text(&first.to_vec()),
        r#"{"jsonrpc":"2.0","id":9,"result":{}}"#
    );
    bench.mux.handle_host_line(B, line(call("1")), bench.now);
    assert_eq!(
        bench.mux.poll_host_frame(B).map(|one| one.frame.len()),
        None
    );
}

#[test]
fn a_child_that_asks_without_reading_gets_a_bounded_number_of_answers() {
    let mut bench = Bench::serving(config(), &[A]);
    let id = format!("\"{}\"", "i".repeat(4_000));
    for _ in 0..6_000 {
        let ping = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
        bench
            .mux
            .handle_child_line(Generation(1), line(ping), bench.now);
    }
    let dropped = bench.mux.snapshot(bench.now).counters.dropped;
    assert!(dropped > 1_000, "{dropped}");
    bench.pump();
    let read = bench.take_child().len() as u64;
    assert_eq!(read, 6_000 - dropped);
    // What was read makes room for as much again.
    for _ in 0..read {
        let ping = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
        bench
            .mux
            .handle_child_line(Generation(1), line(ping), bench.now);
    }
    bench.pump();
    assert_eq!(bench.take_child().len() as u64, read);
}

#[test]
fn a_host_that_does_not_read_is_detached_and_delays_nobody() {
    let mut bench = Bench::serving(config(), &[A, B]);
    for id in 0..9 {
        bench.host(A, &call(&format!("\"{id}\"")));
    }
    bench.host(B, &call("1"));
    bench.take_child();
    for id in 5..13 {
        bench
            .mux
            .handle_child_line(Generation(1), large(id, 8 * MIB), bench.now);
    }
    assert!(!bench.mux.has_host(A));
    assert_eq!(bench.pool.held_by(A), 0);
    bench.pump();
    assert!(
        bench
            .actions
            .contains(&MuxAction::DropHost(A, DropReason::UnreadBytes))
    );
    let cancelled = bench.take_child();
    assert_eq!(
        cancelled.len(),
        1,
        "the call that was still open: {cancelled:?}"
    );
    bench.child(result("14"));
    assert_eq!(bench.take_host(B).len(), 1);
}

#[test]
fn one_answer_of_any_size_passes() {
    let mut bench = Bench::serving(config(), &[A]);
    bench.judges.tainted.add("tools/call");
    bench.host(A, &call("1"));
    bench
        .mux
        .handle_child_line(Generation(1), large(5, 65 * MIB), bench.now);
    bench.pump();
    assert_eq!(bench.take_host(A).len(), 1);
    bench.expect_quiet();
}

#[test]
fn five_thousand_log_messages_before_an_answer_do_not_delay_it() {
    let mut bench = Bench::serving(config(), &[A]);
    bench.host(A, &call("1"));
    for _ in 0..5_000 {
        let log = notification("notifications/message", r#"{"level":"info","data":"x"}"#);
        bench
            .mux
            .handle_child_line(Generation(1), line(log), bench.now);
    }
    bench.child(result("5"));
    let got = bench.take_host(A);
    assert_eq!(got.len(), 5_001);
    assert!(got[5_000].contains("\"result\""));
}

#[test]
fn a_full_pool_detaches_the_largest_holder_wherever_it_is() {
    let pool = Pool::new(10_000);
    let mut one = Bench::with_pool(config(), pool.clone());
    one.start();
    one.open();
    one.join(A, "2025-11-25");
    one.host(A, &call("1"));
    one.mux
        .handle_child_line(Generation(1), large(5, 6_000), one.now);
    let mut other = Bench::with_pool(config(), pool.clone());
    other.start();
    other.open();
    other.join(B, "2025-11-25");
    other.host(B, &call("1"));
    other.actions.clear();
    other
        .mux
        .handle_child_line(Generation(1), large(5, 5_000), other.now);
    let evicted: Vec<_> = std::iter::from_fn(|| other.mux.poll_action())
        .filter(|action| matches!(action, MuxAction::EvictHost(_)))
        .collect();
    assert_eq!(evicted, [MuxAction::EvictHost(A)]);
    one.mux.evict_host(A, one.now);
    one.pump();
    assert!(
        one.actions
            .contains(&MuxAction::DropHost(A, DropReason::PoolFull))
    );
    assert!(!one.mux.has_host(A) && other.mux.has_host(B));
}
