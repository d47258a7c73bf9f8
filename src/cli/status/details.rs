//! One server in full.

use std::fmt::Write as _;

use serde_json::Value;

use super::format::{render_age, render_cpu, render_size};
use super::hosts::render_host;
use super::table::{render_config_error, render_exit, render_state};
use crate::cli::escape::escape;
use crate::cli::output::{Style, Tone};
use crate::control::{LimitsStatus, ProcessStatus, ServerStatus, State};

/// Lines of standard error that are shown.
const TAIL_LINES: usize = 10;

/// Everything about one server, a line a fact; facts that there are none of are left out.
pub(crate) fn render_details(server: &ServerStatus, style: Style) -> String {
    let mut page = Page::default();
    let title = match &server.description {
        Some(description) => format!("{} - {}", escape(&server.name), escape(description)),
        None => escape(&server.name),
    };
    page.text = format!("{title}\n");
    life(&mut page, server, style);
    what_is_run(&mut page, server);
    protocol(&mut page, server);
    use_of_it(&mut page, server);
    teardown(&mut page, server);
    trouble(&mut page, server);
    page.text
}

#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    fn fact(&mut self, name: &str, value: impl AsRef<str>) {
        // Writing to a string cannot fail.
        _ = writeln!(self.text, "{name:>12}: {}", value.as_ref());
    }

    fn fact_if(&mut self, name: &str, value: Option<String>) {
        if let Some(value) = value {
            self.fact(name, value);
        }
    }

    /// A list under one name, an item a line.
    fn list(&mut self, name: &str, items: impl IntoIterator<Item = String>) {
        let mut name = name;
        for item in items {
            if name.is_empty() {
                _ = writeln!(self.text, "{:14}{item}", "");
            } else {
                self.fact(name, item);
            }
            name = "";
        }
    }
}

fn life(page: &mut Page, server: &ServerStatus, style: Style) {
    let tone = match server.state {
        State::Running => Tone::Good,
        State::Failed => Tone::Bad,
        State::Backoff => Tone::Warning,
        _ => Tone::Plain,
    };
    let mut state = style.paint(tone, &render_state(server));
    if let Some(age_ms) = server.state_age_ms {
        // Writing to a string cannot fail.
        _ = write!(state, " for {}", render_age(age_ms));
    }
    if let Some(since) = &server.state_since {
        _ = write!(state, " (since {})", escape(since));
    }
    page.fact("state", state);
    page.fact_if("reason", server.reason.as_deref().map(escape));
    page.fact_if(
        "next attempt",
        server.next_attempt_in_ms.map(|ms| {
            let at = server.next_attempt_at.as_deref().unwrap_or("-");
            format!("in {} ({})", render_age(ms), escape(at))
        }),
    );
    let mut config = escape(server.config.file.as_deref().unwrap_or("-"));
    if let Some(hash) = &server.config.hash {
        _ = write!(
            config,
            " ({}, gen {})",
            escape(hash),
            server.config.generation
        );
    }
    page.fact("config", config);
    page.fact_if("config error", render_config_error(server));
    page.fact(
        "runs",
        format!(
            "generation {}, {} restarts, {} unstable in a row",
            server.generation, server.restarts_total, server.restarts_unstable
        ),
    );
    page.fact_if("start", how_it_starts(server));
    page.fact_if("ready after", ready_after(server));
}

/// When it is started, and whether that is new to it. A daemon of an older version does not say.
fn how_it_starts(server: &ServerStatus) -> Option<String> {
    let when = match server.start.as_str() {
        "" => return None,
        "boot" => "with the daemon",
        "demand" => "when a host needs it",
        other => other,
    };
    let cold = match server.cold {
        true => ", cold (no start of this configuration has succeeded yet)",
        false => "",
    };
    Some(format!("{}{cold}", escape(when)))
}

/// From the spawn to the end of the handshake, as far as both are known.
fn ready_after(server: &ServerStatus) -> Option<String> {
    let ms = server.start_age_ms?.checked_sub(server.ready_age_ms?)?;
    Some(super::format::render_duration(ms))
}

fn what_is_run(page: &mut Page, server: &ServerStatus) {
    let exec = &server.exec;
    page.fact_if("program", exec.program.as_deref().map(escape));
    if !exec.argv.is_empty() {
        let words: Vec<String> = exec.argv.iter().map(|word| quote(word)).collect();
        page.fact("command", words.join(" "));
    }
    page.fact_if("cwd", exec.cwd.as_deref().map(escape));
    if !exec.env_names.is_empty() {
        page.fact("environment", escape(&exec.env_names.join(" ")));
    }
    page.fact_if(
        "start failed",
        exec.failed_stage.as_deref().map(|stage| {
            let errno = exec.errno.map(|errno| {
                let text = std::io::Error::from_raw_os_error(errno);
                format!(": {text}")
            });
            format!("at {}{}", escape(stage), errno.unwrap_or_default())
        }),
    );
    page.fact_if(
        "pid",
        server.pid.map(|pid| {
            let group = server.pgid.map(|pgid| format!(", group {pgid}"));
            format!("{pid}{}", group.unwrap_or_default())
        }),
    );
    if !server.containment.is_empty() {
        let group = server.cgroup.as_deref();
        let group = group.map(|group| format!(" {}", escape(group)));
        page.fact(
            "containment",
            escape(&server.containment) + &group.unwrap_or_default(),
        );
    }
    limits(page, &server.limits);
    page.list("processes", tree(&server.processes));
}

fn limits(page: &mut Page, limits: &LimitsStatus) {
    let parts: Vec<String> = [
        limits
            .memory
            .map(|bytes| format!("memory {}", render_size(bytes))),
        limits.tasks.map(|tasks| format!("{tasks} tasks")),
        limits
            .open_files
            .map(|files| format!("{files} descriptors a process")),
    ]
    .into_iter()
    .flatten()
    .collect();
    if !parts.is_empty() {
        page.fact("limits", parts.join(", "));
    }
    if !limits.not_enforced.is_empty() {
        let names = limits.not_enforced.join(", ");
        let because = limits.not_enforced_because.as_deref().unwrap_or("-");
        page.fact("not enforced", escape(&format!("{names}: {because}")));
    }
}

/// A word as a shell would take it.
pub(crate) fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@,+%${}~".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", escape(word).replace('\'', "'\\''"))
    }
}

/// The processes with each one under its parent. One whose parent is not there (it was adopted) is
/// a root of its own.
fn tree(processes: &[ProcessStatus]) -> Vec<String> {
    let is_root = |process: &&ProcessStatus| {
        !processes
            .iter()
            .any(|other| other.pid == process.ppid && other.pid != process.pid)
    };
    let mut lines = Vec::with_capacity(processes.len());
    for root in processes.iter().filter(is_root) {
        branch(root, processes, "", "", &mut lines);
    }
    lines
}

fn branch(
    root: &ProcessStatus,
    all: &[ProcessStatus],
    own_indent: &str,
    indent: &str,
    lines: &mut Vec<String>,
) {
    // Pids that name each other as parents would go round for ever; no tree is larger than all.
    if lines.len() >= all.len() {
        return;
    }
    lines.push(format!("{own_indent}{}", process(root)));
    let children: Vec<&ProcessStatus> = all
        .iter()
        .filter(|child| child.ppid == root.pid && child.pid != root.pid)
        .collect();
    for (at, child) in children.iter().enumerate() {
        let is_last = at + 1 == children.len();
        let (corner, line) = if is_last {
            ("└─ ", "   ")
        } else {
            ("├─ ", "│  ")
        };
        let (own, below) = (format!("{indent}{corner}"), format!("{indent}{line}"));
        branch(child, all, &own, &below, lines);
    }
}

fn process(process: &ProcessStatus) -> String {
    let memory = process.rss.map(|rss| format!(" {}", render_size(rss)));
    let waits = process.wchan.as_deref();
    let waits = waits.map(|place| format!(", waits in {}", escape(place)));
    format!(
        "{} {} {} (parent {}, group {}, session {}){}{}",
        process.pid,
        escape(&process.state),
        escape(&process.name),
        process.ppid,
        process.pgid,
        process.sid,
        memory.unwrap_or_default(),
        waits.unwrap_or_default()
    )
}

fn protocol(page: &mut Page, server: &ServerStatus) {
    let protocol = &server.protocol;
    page.fact_if(
        "protocol",
        protocol.version.as_deref().map(|version| {
            let era = protocol.era.as_deref().unwrap_or("-");
            format!("{} ({})", escape(version), escape(era))
        }),
    );
    page.fact_if(
        "server",
        protocol.server_name.as_deref().map(|name| {
            let version = protocol.server_version.as_deref().unwrap_or("");
            escape(format!("{name} {version}").trim_end())
        }),
    );
    if let Some(Value::Object(offered)) = &protocol.capabilities {
        let names: Vec<&str> = offered.keys().map(String::as_str).collect();
        page.fact("offers", escape(&names.join(" ")));
    }
    page.fact_if("tools", protocol.tools.map(|count| count.to_string()));
}

fn use_of_it(page: &mut Page, server: &ServerStatus) {
    let requests = &server.requests;
    match server.attachments.is_empty() {
        true => page.fact("hosts", requests.hosts.to_string()),
        false => page.list("hosts", server.attachments.iter().map(render_host)),
    }
    page.fact(
        "requests",
        format!(
            "{} open, {} waiting, {} in total, {} errors",
            requests.in_flight, requests.waiting, requests.total, requests.errors
        ),
    );
    page.fact_if(
        "oldest",
        requests.oldest_ms.map(|ms| {
            let method = requests.oldest_method.as_deref().unwrap_or("-");
            format!("{} ({})", render_age(ms), escape(method))
        }),
    );
    page.fact_if(
        "last active",
        requests
            .last_activity_age_ms
            .map(|ms| format!("{} ago", render_age(ms))),
    );
    let resources = &server.resources;
    let mut parts = Vec::new();
    if let Some(bytes) = resources.memory_current.or(resources.rss_sum) {
        parts.push(format!("memory {}", render_size(bytes)));
    }
    if let Some(bytes) = resources.memory_peak {
        parts.push(format!("peak {}", render_size(bytes)));
    }
    if let Some((usec, age_ms)) = resources.cpu_usec.zip(server.start_age_ms) {
        parts.push(format!("cpu {}", render_cpu(usec, age_ms)));
    }
    if let Some(tasks) = resources.tasks {
        parts.push(format!("{tasks} tasks"));
    }
    if let Some(fds) = resources.fds {
        parts.push(format!("{fds} descriptors"));
    }
    if let Some(source) = &resources.source {
        parts.push(format!("by {}", escape(source)));
    }
    if !parts.is_empty() {
        page.fact("uses", parts.join(", "));
    }
}

fn teardown(page: &mut Page, server: &ServerStatus) {
    let Some(phase) = server.stop.phase else {
        return;
    };
    let left = server.stop.deadline_in_ms.map(render_age);
    let left = left.map(|left| format!(", next step in {left}"));
    page.fact(
        "stopping",
        format!("{}{}", phase.as_str(), left.unwrap_or_default()),
    );
    page.list("held up by", server.stop.holders.iter().map(process));
}

fn trouble(page: &mut Page, server: &ServerStatus) {
    page.fact_if("raw socket", server.socket_error.as_deref().map(escape));
    if server.violations > 0 {
        page.fact("noise", format!("{} lines on stdout", server.violations));
        page.fact_if("sample", server.violation_sample.as_deref().map(escape));
    }
    if server.requests.late_answers > 0 {
        let count = server.requests.late_answers;
        page.fact("late answers", count.to_string());
    }
    if server.requests.answers_in_doubt > 0 {
        let count = server.requests.answers_in_doubt;
        page.fact("in doubt", format!("{count} answers of a lost daemon"));
    }
    let strays = server.requests.unknown_progress + server.requests.dropped;
    if strays > 0 {
        page.fact("dropped", format!("{strays} messages that fit nowhere"));
    }
    page.list(
        "exits",
        server.exits.iter().map(|exit| {
            let ago = exit.at_age_ms.map(|ms| format!(", {} ago", render_age(ms)));
            format!("{}{}", render_exit(exit), ago.unwrap_or_default())
        }),
    );
    let skipped = server.stderr_tail.len().saturating_sub(TAIL_LINES);
    page.list(
        "stderr",
        server
            .stderr_tail
            .iter()
            .skip(skipped)
            .map(|line| escape(line)),
    );
    page.fact_if("log", server.log.as_deref().map(escape));
}
