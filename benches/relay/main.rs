//! What mcpd costs, beside what a relay costs that understands nothing.
//!
//! `cargo bench` runs one host against one native echo server three ways in one run, in turns
//! (A B C A B C …): directly, through a do-nothing relay (host, shim process, Unix socket, relay
//! process, child), and through mcpd. Times are medians over all turns; what counts are the ratios,
//! since they are taken on the same machine in the same minute. Nothing here is a test: no figure
//! passes or fails.
//!
//! The program plays all parts but mcpd itself: with `echo`, `relay` or `shim` as its first
//! argument it is the server, the relay's daemon or the relay's shim.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a report is printed"
)]

mod host;
mod parts;
mod report;
mod setup;

use std::path::Path;
use std::process::ExitCode;

use host::Host;
use report::{Figure, Report};
use setup::{Setup, Way};

/// Calls measured with one open, in each turn.
const LATENCY_CALLS: usize = 4_000;
/// Calls measured with many open, in each turn.
const THROUGHPUT_CALLS: usize = 20_000;
/// Calls that are open at once where throughput is measured.
const WINDOW: usize = 32;
/// Turns: each way is measured so many times.
const TURNS: usize = 4;
/// Bytes of the text that is echoed where throughput in bytes is measured.
const LARGE_BYTES: usize = 10 << 20;
/// Large answers in each turn.
const LARGE_CALLS: usize = 8;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    match (arguments.next().as_deref(), arguments.next()) {
        (Some("echo"), _) => parts::echo(),
        (Some("relay"), Some(socket)) => parts::relay(Path::new(&socket)),
        (Some("shim"), Some(socket)) => parts::shim(Path::new(&socket)),
        // What `cargo bench` and `cargo test` pass is for other harnesses.
        _ => measure(),
    }
}

fn measure() -> ExitCode {
    let setup = Setup::new();
    let mut report = Report::default();
    for turn in 0..TURNS {
        for way in Way::ALL {
            eprintln!("turn {} of {TURNS}: {}", turn + 1, way.name());
            measure_one(&setup, way, &mut report);
        }
    }
    print!("{}", report.render());
    ExitCode::SUCCESS
}

fn measure_one(setup: &Setup, way: Way, report: &mut Report) {
    let mut host = Host::start(setup.command(way));
    host.initialize();
    for bytes in [16, 4 << 10] {
        host.call_each(LATENCY_CALLS / 8, bytes);
        report.add_latencies(way, bytes, host.call_each(LATENCY_CALLS, bytes));
    }
    let rate = host.calls_a_second(THROUGHPUT_CALLS, WINDOW, 16);
    report.add(way, Figure::CallsASecond, rate);
    let rate = host.calls_a_second(LARGE_CALLS, 1, LARGE_BYTES);
    let mebibytes = rate * (LARGE_BYTES >> 20) as f64;
    report.add(way, Figure::MebibytesASecond, mebibytes);
    host.end();
    let first_list = setup.time_to_first_list(way);
    report.add(way, Figure::FirstListMicros, first_list);
}
