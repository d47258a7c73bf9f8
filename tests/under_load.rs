//! Under load: what the README promises, with the numbers printed.

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use crate::common::{Home, Stopwatch, initialize_params, say};

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
