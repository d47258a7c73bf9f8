//! What mcpd holds while nothing happens.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::host::Host;
use crate::report::{Figure, Report, median};
use crate::setup::{Setup, Way};

/// Servers and hosts that idle.
const IDLE: usize = 20;
/// How long nothing happens before that is looked at.
const SETTLED: Duration = Duration::from_secs(15);
/// Attachments whose cost in the daemon is measured.
const ATTACHMENTS: usize = 1_000;

pub(crate) fn measure(report: &mut Report, idle: Duration) {
    let names: Vec<String> = (0..IDLE).map(|at| format!("echo{at}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let setup = Setup::with_servers(&names);
    for name in &names {
        // Answered once the server runs.
        drop(setup.initialized(Way::Mcpd, name));
    }
    let daemon = setup.daemon_pid();
    let mut add = |figure, number| report.add(Way::Mcpd, figure, number);
    let alone = setup.initialized(Way::Mcpd, names[0]);
    add(Figure::ShimMemory, pss_kib(alone.pid()));
    alone.end();
    add(Figure::DaemonMemory, pss_kib(daemon));
    let hosts: Vec<Host> = names
        .iter()
        .map(|name| setup.initialized(Way::Mcpd, name))
        .collect();
    let shims = hosts.iter().map(|host| pss_kib(host.pid())).collect();
    add(Figure::ShimMemoryShared, median(shims));
    // What was begun has ended by then: threads for blocking work leave after ten seconds.
    std::thread::sleep(SETTLED);
    let before = switches(daemon);
    std::thread::sleep(idle);
    add(Figure::IdleSwitches, switches(daemon) - before);
    hosts.into_iter().for_each(Host::end);
    add(
        Figure::AttachmentMemory,
        attachment_kib(&setup, daemon, names[0]),
    );
}

fn attachment_kib(setup: &Setup, daemon: u32, name: &str) -> f64 {
    let socket = setup.server_socket(name);
    let before = pss_kib(daemon);
    let hosts: Vec<UnixStream> = (0..ATTACHMENTS)
        .map(|_| {
            let mut stream = UnixStream::connect(&socket).expect("the socket is served");
            let line = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"2025-11-25\",\"capabilities\":{},\"clientInfo\":{\"name\":\"bench\",\"version\":\"1\"}}}\n";
            stream.write_all(line.as_bytes()).expect("it is read");
            let mut answer = String::new();
            let reader = BufReader::new(&stream).read_line(&mut answer);
            assert!(reader.is_ok_and(|count| count > 0), "it is answered");
            stream
        })
        .collect();
    let after = pss_kib(daemon);
    (after - before) / hosts.len() as f64
}

/// Memory of a process, pages that are shared counted in part.
fn pss_kib(pid: u32) -> f64 {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).expect("it runs");
    number_of(&text, "Pss:")
}

/// How often a process's threads have gone to sleep by themselves.
fn switches(pid: u32) -> f64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("it runs");
    tasks
        .filter_map(|task| fs::read_to_string(task.ok()?.path().join("status")).ok())
        .map(|status| number_of(&status, "voluntary_ctxt_switches:"))
        .sum()
}

fn number_of(text: &str, name: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|rest| rest.split_whitespace().next());
    number
        .and_then(|word| word.parse().ok())
        .unwrap_or(f64::NAN)
}
