//! Under load: what the README promises, with the numbers printed.

use std::collections::BTreeMap;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::common::{Home, RawHost, Stopwatch, initialize_params, let_pass, say, wait_until};

const KILLS: u64 = 100;
const HOSTS: usize = 8;
const OPEN_CALLS: usize = 4;
const STABLE_AFTER: Duration = Duration::from_millis(100);

/// What became of one host's calls.
#[derive(Debug, Default)]
struct Tally {
    sent: u64,
    results: u64,
    errors: BTreeMap<i64, u64>,
    misrouted: u64,
    doubled: u64,
    unanswered: u64,
    dropped: u64,
}

/// A server is killed a hundred times under load: each call gets one result or one error, its own; no host
/// loses its connection.
#[test]
fn a_hundred_kills_lose_nothing() {
    let home = Home::new();
    home.fake_with(
        "fake",
        &[],
        "stable_after = \"100ms\"\ndrain_timeout = \"300ms\"\nstop_timeout = \"500ms\"\n",
    );
    let daemon = home.start();
    daemon.wait_for_state("fake", "running");
    let over = AtomicBool::new(false);
    let answered = AtomicU64::new(0);
    let watch = Stopwatch::start();
    let tallies: Vec<Tally> = thread::scope(|scope| {
        let hosts: Vec<_> = (0..HOSTS)
            .map(|number| {
                let host = daemon.connect_host("fake");
                let (over, answered) = (&over, &answered);
                scope.spawn(move || keep_calling(number, host, over, answered))
            })
            .collect();
        kill_again_and_again(&daemon, &answered);
        over.store(true, Ordering::SeqCst);
        hosts
            .into_iter()
            .map(|host| host.join().expect("a host does not panic"))
            .collect()
    });
    let total = |count: fn(&Tally) -> u64| tallies.iter().map(count).sum::<u64>();
    let errors = tallies.iter().flat_map(|tally| &tally.errors).fold(
        BTreeMap::new(),
        |mut all, (code, count)| {
            *all.entry(*code).or_insert(0_u64) += count;
            all
        },
    );
    say(&format!(
        "{KILLS} kills in {:.1} s, {HOSTS} hosts, {OPEN_CALLS} calls open each: sent {}, results {}, errors {errors:?}, \
         lost {}, doubled {}, misrouted {}, unanswered {}, hosts dropped {}",
        watch.elapsed().as_secs_f64(),
        total(|tally| tally.sent),
        total(|tally| tally.results),
        total(|tally| tally.sent) - total(|tally| tally.results) - errors.values().sum::<u64>(),
        total(|tally| tally.doubled),
        total(|tally| tally.misrouted),
        total(|tally| tally.unanswered),
        total(|tally| tally.dropped),
    ));
    assert_eq!(
        total(|tally| tally.sent),
        total(|tally| tally.results) + errors.values().sum::<u64>()
    );
    for count in [
        total(|tally| tally.doubled),
        total(|tally| tally.misrouted),
        total(|tally| tally.unanswered),
        total(|tally| tally.dropped),
    ] {
        assert_eq!(count, 0);
    }
    assert!(
        errors.keys().all(|code| *code == -31001),
        "only what was open may fail: {errors:?}"
    );
    assert_eq!(daemon.record("fake").starts() as u64, KILLS + 1);
    let handshakes = daemon.record("fake").with_method("initialize").len() as u64;
    assert!(handshakes <= KILLS + 1, "{handshakes} handshakes");
}

/// Kills the child whenever the new one has run long enough to count as stable and has answered calls.
fn kill_again_and_again(daemon: &Home, answered: &AtomicU64) {
    let mut last = 0;
    for _ in 0..KILLS {
        let before = answered.load(Ordering::SeqCst);
        let pid = wait_until("a new child that answers", || {
            let (pid, _) = *daemon.fakes().first()?;
            (pid != last && answered.load(Ordering::SeqCst) > before + 8).then_some(pid)
        });
        last = pid;
        let_pass(STABLE_AFTER * 2);
        kill(Pid::from_raw(pid), Signal::SIGKILL).expect("the child is there");
        wait_until("it is gone", || {
            (!daemon.fakes().iter().any(|(other, _)| *other == pid)).then_some(())
        });
    }
}

/// One host that keeps its calls open until it is told to stop, and checks every answer.
fn keep_calling(
    number: usize,
    mut host: RawHost,
    over: &AtomicBool,
    answered: &AtomicU64,
) -> Tally {
    let mut tally = Tally::default();
    host.initialize();
    let mut open: BTreeMap<u64, String> = BTreeMap::new();
    while !over.load(Ordering::SeqCst) || !open.is_empty() {
        while open.len() < OPEN_CALLS && !over.load(Ordering::SeqCst) {
            let text = format!("host {number} call {}", tally.sent);
            let id = host.start_call("sleep", json!({"ms": tally.sent % 5, "text": text}));
            open.insert(id, text);
            tally.sent += 1;
        }
        match host.wait_line_within(Duration::from_secs(30), &|line| !line.json["id"].is_null()) {
            Ok(line) => {
                account(&mut tally, &mut open, &line.json);
                answered.fetch_add(1, Ordering::SeqCst);
            }
            Err(_) => break,
        }
    }
    tally.unanswered = open.len() as u64;
    tally.dropped = u64::from(!host.is_running());
    tally.doubled += host
        .everything_up_to_now()
        .iter()
        .filter(|line| !line.json["id"].is_null())
        .count() as u64;
    tally
}

fn account(tally: &mut Tally, open: &mut BTreeMap<u64, String>, answer: &serde_json::Value) {
    let Some(text) = answer["id"].as_u64().and_then(|id| open.remove(&id)) else {
        tally.doubled += 1;
        return;
    };
    if let Some(code) = answer["error"]["code"].as_i64() {
        *tally.errors.entry(code).or_insert(0) += 1;
    } else if answer["result"]["content"][0]["text"] == text {
        tally.results += 1;
    } else {
        tally.misrouted += 1;
    }
}

/// Twelve hosts within 50 ms, and a server that needs three seconds: one process, one handshake upstream,
/// twelve answered.
#[test]
fn twelve_hosts_share_one_slow_start() {
    let home = Home::new();
    home.fake("fake", &["--ready-after", "3000"]);
    let together = Barrier::new(12);
    let first = Stopwatch::start();
    let daemon = home.start();
    let spread: Vec<(Duration, bool)> = thread::scope(|scope| {
        let hosts: Vec<_> = (0..12)
            .map(|_| {
                let (daemon, together) = (&daemon, &together);
                scope.spawn(move || {
                    let mut host = daemon.connect_host("fake");
                    together.wait();
                    let sent = first.elapsed();
                    let id = host.request("initialize", initialize_params("2025-11-25"));
                    (
                        sent,
                        host.answer(id)["result"]["serverInfo"]["name"] == "fake",
                    )
                })
            })
            .collect();
        hosts
            .into_iter()
            .map(|host| host.join().expect("a host does not panic"))
            .collect()
    });
    let times: Vec<Duration> = spread.iter().map(|(sent, _)| *sent).collect();
    let within = *times.iter().max().expect("twelve") - *times.iter().min().expect("twelve");
    let served = spread.iter().filter(|(_, served)| *served).count();
    let record = daemon.record("fake");
    say(&format!(
        "12 hosts within {within:?} on a 3 s start: {} process, {} upstream initialize, {served} answered",
        record.starts(),
        record.with_method("initialize").len()
    ));
    assert_eq!(
        (
            record.starts(),
            record.with_method("initialize").len(),
            served
        ),
        (1, 1, 12)
    );
}

/// Many servers at once: each is started once, all become ready.
#[test]
fn forty_servers_become_ready() {
    let home = Home::new();
    for number in 0..40 {
        home.fake(&format!("s{number}"), &[]);
    }
    let watch = Stopwatch::start();
    let daemon = home.start();
    for number in 0..40 {
        daemon.wait_for_state(&format!("s{number}"), "running");
    }
    say(&format!(
        "40 servers ready after {:.1} s",
        watch.elapsed().as_secs_f64()
    ));
    for number in 0..40 {
        assert_eq!(daemon.record(&format!("s{number}")).starts(), 1);
    }
}
