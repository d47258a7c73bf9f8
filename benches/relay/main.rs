//! What mcpd costs, beside what a relay costs that understands nothing.
//!
//! `cargo bench` runs one host against one native echo server three ways in one run, in turns
//! (A B C A B C …): directly, through a do-nothing relay (host, shim process, Unix socket, relay
//! process, child), and through mcpd. Times are medians over all turns; what counts are the ratios,
//! since they are taken on the same machine in the same minute. What idle servers, hosts and shims
//! hold, and what a call allocates, is counted beside it. Nothing here is a test: no figure passes or
//! fails. `cargo bench -- --write` does it three times and writes README.md and docs/performance.
//!
//! The program plays all parts but mcpd itself: with `echo`, `last`, `relay` or `shim` as its first
//! argument it is a server, the relay's daemon or the relay's shim; for profilers, with `core N` it passes N calls
//! through what decides, and with `load WINDOW N COMMAND…` it is a host that makes N calls with so
//! many open.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a report is printed"
)]

mod core;
mod host;
mod memory;
mod parts;
mod publish;
mod report;
mod setup;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use host::Host;
use report::{Figure, Report, Row};
use setup::{Setup, Way};

/// Calls measured with one open, in each turn.
const LATENCY_CALLS: usize = 4_000;
/// Calls measured with many open, in each turn.
const THROUGHPUT_CALLS: usize = 20_000;
/// Calls that are open at once where throughput is measured.
const WINDOW: usize = 32;
/// Hosts that share one child, and the calls that each has open.
const HOSTS: usize = 8;
const WINDOW_EACH: usize = 4;
/// Turns: each way is measured so many times.
const TURNS: usize = 4;
/// Bytes of the text that is echoed where throughput in bytes is measured, and how many in a turn.
const LARGE: [(usize, usize); 2] = [(1 << 20, 40), (10 << 20, 8)];
/// Calls of which the allocations are counted.
const COUNTED_CALLS: u64 = 10_000;
/// Runs whose outcomes are written down.
const RUNS: usize = 3;
/// How long nothing happens, in a run that is written down and in any other.
const IDLE: Duration = Duration::from_secs(60);
const SHORT_IDLE: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["echo"] => parts::echo(false),
        ["last"] => parts::echo(true),
        ["relay", socket, kind] => parts::relay(Path::new(socket), kind),
        ["shim", socket] => parts::shim(Path::new(socket)),
        ["load", window, calls, program, ref rest @ ..] => {
            let mut command = std::process::Command::new(program);
            command.args(rest);
            let number = |text: &str| text.parse().expect("a number");
            let mut host = Host::start(command);
            host.initialize();
            let rate = host.calls_a_second(number(calls), number(window), 64);
            println!("{rate:.0} calls a second");
            ExitCode::SUCCESS
        }
        ["core", calls] => {
            let calls = calls.parse().expect("a number of calls");
            println!("{:.3} allocations a call", core::run(calls));
            ExitCode::SUCCESS
        }
        // What `cargo bench` and `cargo test` pass is for other harnesses.
        ref all if all.contains(&"--write") => {
            let runs: Vec<Vec<Row>> = (0..RUNS).map(|_| measure(IDLE)).collect();
            publish::write(&runs);
            ExitCode::SUCCESS
        }
        _ => {
            measure(SHORT_IDLE);
            ExitCode::SUCCESS
        }
    }
}

fn measure(idle: Duration) -> Vec<Row> {
    let mut report = Report::default();
    let setup = Setup::new();
    for turn in 0..TURNS {
        for way in Way::ALL {
            eprintln!("turn {} of {TURNS}: {}", turn + 1, way.name());
            measure_one(&setup, way, &mut report);
        }
    }
    drop(setup);
    eprintln!("idle for {} s", idle.as_secs());
    memory::measure(&mut report, idle);
    let allocations = core::run(COUNTED_CALLS);
    report.add(Way::Mcpd, Figure::Allocations, allocations);
    let rows = report.rows();
    print!("{}", publish::full_table(&rows));
    rows
}

fn measure_one(setup: &Setup, way: Way, report: &mut Report) {
    let mut host = setup.initialized(way, "echo");
    for bytes in [64, 4 << 10] {
        host.call_each(LATENCY_CALLS / 8, bytes);
        report.add_latencies(way, bytes, host.call_each(LATENCY_CALLS, bytes));
    }
    let rate = host.calls_a_second(THROUGHPUT_CALLS, WINDOW, 64);
    report.add(way, Figure::Many, rate);
    match way {
        Way::Direct => report.add(way, Figure::Shared, rate),
        // Each of its hosts has a child of its own: nothing is shared.
        Way::Relay => {}
        Way::Mcpd => report.add(way, Figure::Shared, shared_rate(setup)),
    }
    let mut last = setup.initialized(way, "last");
    for (bytes, calls) in LARGE {
        let mebibytes = |rate: f64| rate * (bytes >> 20) as f64;
        let rate = host.calls_a_second(calls, 1, bytes);
        report.add(way, Figure::Large(bytes), mebibytes(rate));
        let rate = last.calls_a_second(calls, 1, bytes);
        report.add(way, Figure::LargeIdLast(bytes), mebibytes(rate));
    }
    host.end();
    last.end();
    let first_list = setup.time_to_first_list(way);
    report.add(way, Figure::FirstList, first_list);
}

/// Calls a second of all hosts together on one child.
fn shared_rate(setup: &Setup) -> f64 {
    let hosts: Vec<Host> = (0..HOSTS)
        .map(|_| setup.initialized(Way::Mcpd, "echo"))
        .collect();
    let begun = host::now();
    let each = THROUGHPUT_CALLS / HOSTS;
    std::thread::scope(|scope| {
        for mut host in hosts {
            scope.spawn(move || {
                host.calls_a_second(each, WINDOW_EACH, 64);
                host.end();
            });
        }
    });
    (each * HOSTS) as f64 / begun.elapsed().as_secs_f64()
}
