//! All servers, one line each.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::format::{render_age, render_cpu, render_duration, render_size};
use crate::cli::escape::escape;
use crate::cli::output::{Style, Tone};
use crate::cli::table::{Table, cut};
use crate::control::{
    ConfigVerdict, DaemonStatus, ExitStatus, RunResult, ServerStatus, State, StatusSnapshot,
    Substate,
};

/// The most that the last column says; `status NAME` says the rest.
const LAST_LIMIT_CHARS: usize = 120;
const HEADINGS: [&str; 9] = [
    "NAME",
    "STATE",
    "SINCE",
    "PID",
    "RST",
    "CPU",
    "MEM",
    "REQ(in/tot)",
    "LAST",
];
/// What is missed least on a narrow terminal: restarts, memory, processor, requests, pid.
const GIVES_WAY: [usize; 5] = [4, 6, 5, 7, 3];

/// What servers did lately, by name.
#[derive(Debug, Default)]
pub(super) struct Rates(pub(super) BTreeMap<String, Rate>);

/// What one server did lately.
#[derive(Debug)]
pub(super) struct Rate {
    pub(super) requests_per_minute: u64,
    /// Tenths of a percent of one processor, where it could be told.
    pub(super) cpu_usec_per_ms: Option<u64>,
}

/// The daemon's line, the table, and what is wrong beside the servers.
pub(super) fn render_table(
    snapshot: &StatusSnapshot,
    style: Style,
    width: Option<usize>,
    rates: Option<&Rates>,
) -> String {
    let mut text = render_daemon(&snapshot.daemon, width);
    if snapshot.servers.is_empty() {
        let folder = escape(&snapshot.daemon.config_dir);
        // Writing to a string cannot fail.
        _ = writeln!(text, "no servers: {folder}/servers.d holds no NAME.toml");
    } else {
        text.push_str(&render_rows(&snapshot.servers, style, width, rates));
    }
    for error in &snapshot.daemon.errors {
        let line = format!("error: {}", escape(error));
        _ = writeln!(text, "{}", style.paint(Tone::Bad, &line));
    }
    for warning in &snapshot.daemon.warnings {
        let line = format!("warning: {}", escape(warning));
        _ = writeln!(text, "{}", style.paint(Tone::Warning, &line));
    }
    text
}

fn render_daemon(daemon: &DaemonStatus, width: Option<usize>) -> String {
    let mut parts = vec![
        format!("mcpd {}", escape(&daemon.version)),
        format!("pid {}", daemon.pid),
        format!("up {}", render_age(daemon.uptime_ms)),
        format!("gen {}", daemon.generation),
    ];
    let mut named = |name: &str, value: &str| {
        if !value.is_empty() {
            parts.push(format!("{name} {}", escape(value)));
        }
    };
    named("containment", &daemon.containment);
    named("started by", &daemon.started_by);
    named("PATH from", &daemon.path_source);
    named("watcher", &daemon.watcher);
    let mut lines: Vec<String> = Vec::new();
    for part in parts {
        match lines.last_mut() {
            Some(line) if fits(line, &part, width) => {
                line.push_str("  ");
                line.push_str(&part);
            }
            _ => lines.push(part),
        }
    }
    format!("{}\n", lines.join("\n  "))
}

/// Whether a part still fits the line; continuation lines are indented by two.
fn fits(line: &str, part: &str, width: Option<usize>) -> bool {
    width.is_none_or(|width| line.chars().count() + part.chars().count() + 4 <= width)
}

fn render_rows(
    servers: &[ServerStatus],
    style: Style,
    width: Option<usize>,
    rates: Option<&Rates>,
) -> String {
    let mut table = Table::new(&HEADINGS, &GIVES_WAY);
    for server in servers {
        let mut cells = cells(server);
        if let Some(Rates(rates)) = rates {
            show_rate(&mut cells, rates.get(&server.name));
        }
        table.row(cells.to_vec(), &[(1, tone(server))]);
    }
    table.render(style, width)
}

fn tone(server: &ServerStatus) -> Tone {
    match (server.state, server.substate, server.config.status) {
        (State::Failed, _, _) => Tone::Bad,
        (_, _, ConfigVerdict::Invalid) | (State::Backoff, _, _) => Tone::Warning,
        (State::Running, Substate::Unresponsive, _) => Tone::Warning,
        (State::Running, _, _) => Tone::Good,
        _ => Tone::Plain,
    }
}

fn cells(server: &ServerStatus) -> [String; 9] {
    let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    let resources = &server.resources;
    let cpu = resources
        .cpu_usec
        .zip(server.start_age_ms)
        .map(|(usec, age_ms)| render_cpu(usec, age_ms));
    let requests = &server.requests;
    let requests = (requests.total > 0 || server.pid.is_some()).then(|| {
        format!(
            "{}/{}",
            requests.in_flight + requests.waiting,
            requests.total
        )
    });
    [
        escape(&server.name),
        render_state(server),
        or_dash(server.state_age_ms.map(render_age)),
        or_dash(server.pid.map(|pid| pid.to_string())),
        server.restarts_total.to_string(),
        or_dash(cpu),
        or_dash(
            resources
                .memory_current
                .or(resources.rss_sum)
                .map(render_size),
        ),
        or_dash(requests),
        cut(&render_last(server), LAST_LIMIT_CHARS),
    ]
}

/// Puts what happens now in the place of what happened on average.
fn show_rate(cells: &mut [String; 9], rate: Option<&Rate>) {
    let Some(rate) = rate else { return };
    if let Some(tenths) = rate.cpu_usec_per_ms {
        cells[5] = render_cpu(tenths, 1);
    }
    let (per_minute, cell) = (rate.requests_per_minute, &mut cells[7]);
    // Writing to a string cannot fail.
    _ = match per_minute {
        0 => Ok(()),
        1..60 => write!(cell, " {per_minute}/min"),
        _ => write!(cell, " {}/s", per_minute / 60),
    };
}

/// `slack: backoff in 14s, exit-code 1 after 400ms: refused`: one server in one line.
pub(crate) fn render_line(server: &ServerStatus) -> String {
    let mut text = format!("{}: {}", escape(&server.name), render_state(server));
    if let (State::Starting, Some(age_ms)) = (server.state, server.start_age_ms) {
        // Writing to a string cannot fail.
        _ = write!(text, " for {}", render_age(age_ms));
    }
    let last = cut(&render_last(server), LAST_LIMIT_CHARS);
    if !last.is_empty() {
        _ = write!(text, ", {last}");
    }
    text
}

/// The state in as many words as it needs.
pub(crate) fn render_state(server: &ServerStatus) -> String {
    let state = server.state.as_str();
    let mut text = match (server.state, server.substate) {
        (State::Running, Substate::Ready)
        | (State::Stopped, Substate::Dead)
        | (State::Unknown, _) => state.to_owned(),
        (State::Backoff, _) => match server.next_attempt_in_ms {
            Some(ms) => format!("{state} in {}", render_age(ms)),
            None => state.to_owned(),
        },
        (_, substate) => format!("{state} {}", substate.as_str()),
    };
    match server.config.status {
        ConfigVerdict::Ok | ConfigVerdict::Unknown => {}
        ConfigVerdict::Invalid => text.push_str(" !config"),
        ConfigVerdict::ChangedPending => text.push_str(" +config"),
        ConfigVerdict::Removed => text.push_str(" -config"),
    }
    text
}

/// The one thing that is most worth knowing about a server.
fn render_last(server: &ServerStatus) -> String {
    let config_error = || {
        let invalid = server.config.status == ConfigVerdict::Invalid;
        invalid.then(|| render_config_error(server)).flatten()
    };
    let reason = || server.reason.as_deref().map(escape);
    let exit = || server.exit.as_ref().map(render_exit);
    let oldest = || {
        let age_ms = server.requests.oldest_ms?;
        let method = server.requests.oldest_method.as_deref().unwrap_or("?");
        Some(format!(
            "oldest request {} ({})",
            render_age(age_ms),
            escape(method)
        ))
    };
    let ended = |exit: &ExitStatus| exit.code.is_some() || exit.signal.is_some();
    let had_process = server.exit.as_ref().is_some_and(ended);
    let said = match server.state {
        State::Failed => reason().or_else(config_error).or_else(exit),
        // Without a process there was no exit worth telling, only the reason.
        State::Backoff if !had_process => reason().or_else(exit),
        State::Backoff => exit().or_else(reason),
        State::Running if server.substate == Substate::Unresponsive => oldest(),
        State::Running => config_error().or_else(reason),
        _ => config_error()
            .or_else(reason)
            .or_else(|| server.stderr_tail.last().map(|line| escape(line))),
    };
    said.unwrap_or_default()
}

/// `jira.toml:4:9 unknown key "comand"`.
pub(crate) fn render_config_error(server: &ServerStatus) -> Option<String> {
    let config = &server.config;
    let error = escape(config.error.as_deref()?);
    let Some(file) = config.file.as_deref() else {
        return Some(error);
    };
    let file = file.rsplit('/').next().unwrap_or(file);
    let mut place = escape(file);
    for number in [config.line, config.column].into_iter().flatten() {
        // Writing to a string cannot fail.
        _ = write!(place, ":{number}");
    }
    Some(format!("{place} {error}"))
}

/// `exit-code 1 after 0.4s: last line`.
pub(crate) fn render_exit(exit: &ExitStatus) -> String {
    // Nothing was started, so there is nothing that exited.
    if let (Some(RunResult::Resources), None, None) = (exit.result, exit.code, exit.signal) {
        return "not started: see the reason".to_owned();
    }
    let word = exit.result.map_or("exited", RunResult::as_str);
    let number = match (exit.result, exit.code, exit.signal) {
        (Some(RunResult::Success), _, _) => String::new(),
        (_, Some(code), _) => format!(" {code}"),
        (_, None, Some(signal)) => format!(" {}", signal_name(signal)),
        (_, None, None) => String::new(),
    };
    let mut text = format!("{word}{number} after {}", render_duration(exit.uptime_ms));
    if let Some(step) = exit.ended_by {
        // Writing to a string cannot fail.
        _ = write!(text, " by {}", step.as_str());
    }
    if let Some(line) = &exit.last_line {
        _ = write!(text, ": {}", escape(line));
    }
    text
}

/// `SIGKILL`; the number of one that has no name here.
fn signal_name(number: i32) -> String {
    match nix::sys::signal::Signal::try_from(number) {
        Ok(signal) => signal.as_str().to_owned(),
        Err(_) => number.to_string(),
    }
}
