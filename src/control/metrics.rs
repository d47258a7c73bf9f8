//! A snapshot as OpenMetrics text, for whatever collects figures.
//!
//! Decides names, types and labels (OpenMetrics 1.0, section "Text Format"); every figure is one of
//! the snapshot. Host names, tools and anything else that a peer made up never become labels.

use std::fmt::Write as _;

use super::{ConfigVerdict, ServerStatus, State, StatusSnapshot};

/// The media type of the text.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

const STATES: [State; 6] = [
    State::Stopped,
    State::Starting,
    State::Running,
    State::Stopping,
    State::Backoff,
    State::Failed,
];

/// The snapshot as OpenMetrics text, its end marked.
pub fn render_metrics(snapshot: &StatusSnapshot) -> String {
    let mut text = Text::default();
    let daemon = &snapshot.daemon;
    text.family("mcpd_build", "info", "Version of the daemon.");
    text.sample("mcpd_build_info", &[("version", &daemon.version)], 1);
    text.family("mcpd_uptime_seconds", "gauge", "Age of the daemon.");
    text.float("mcpd_uptime_seconds", &[], daemon.uptime_ms, 1_000);
    text.single(
        "mcpd_config_generation",
        "Configurations applied so far.",
        daemon.generation,
    );
    text.single("mcpd_hosts", "Hosts attached.", daemon.attachments);
    text.single(
        "mcpd_held_bytes",
        "Bytes of messages held for slow readers.",
        daemon.held_bytes,
    );
    states(&mut text, &snapshot.servers);
    for (name, help, value) in GAUGES {
        text.of_each(name, "gauge", help, &snapshot.servers, value);
    }
    for (name, help, value) in COUNTERS {
        text.of_each(name, "counter", help, &snapshot.servers, value);
    }
    cpu(&mut text, &snapshot.servers);
    text.0.push_str("# EOF\n");
    text.0
}

type Value = fn(&ServerStatus) -> Option<u64>;

const GAUGES: [(&str, &str, Value); 8] = [
    (
        "mcpd_server_config_valid",
        "Whether the server's file is valid as it is now.",
        |server| Some(u64::from(server.config.status != ConfigVerdict::Invalid)),
    ),
    (
        "mcpd_server_hosts",
        "Hosts attached to the server.",
        |server| Some(server.requests.hosts),
    ),
    (
        "mcpd_server_requests_open",
        "Requests written to the server and not answered.",
        |server| Some(server.requests.in_flight),
    ),
    (
        "mcpd_server_requests_waiting",
        "Requests that the server has not seen yet.",
        |server| Some(server.requests.waiting),
    ),
    (
        "mcpd_server_unstable_runs",
        "Runs in a row that ended before they were stable.",
        |server| Some(server.restarts_unstable),
    ),
    (
        "mcpd_server_memory_bytes",
        "Memory of the server's processes.",
        |server| server.resources.memory_current.or(server.resources.rss_sum),
    ),
    (
        "mcpd_server_tasks",
        "Processes and threads of the server.",
        |server| server.resources.tasks,
    ),
    (
        "mcpd_server_descriptors",
        "Open descriptors of the server's processes.",
        |server| server.resources.fds,
    ),
];

const COUNTERS: [(&str, &str, Value); 6] = [
    (
        "mcpd_server_spawns",
        "Processes started for the server.",
        |server| Some(server.generation),
    ),
    (
        "mcpd_server_restarts",
        "Starts after an end that nobody asked for.",
        |server| Some(server.restarts_total),
    ),
    ("mcpd_server_requests", "Requests of hosts.", |server| {
        Some(server.requests.total)
    }),
    (
        "mcpd_server_errors",
        "Errors that hosts were answered with.",
        |server| Some(server.requests.errors),
    ),
    (
        "mcpd_server_noise_lines",
        "Lines on the server's stdout that were no message.",
        |server| Some(server.violations),
    ),
    (
        "mcpd_server_log_lost_lines",
        "Lines for the server's log that were dropped.",
        |server| Some(server.log_lost),
    ),
];

/// One sample a state, of which one is 1.
fn states(text: &mut Text, servers: &[ServerStatus]) {
    text.family("mcpd_server_state", "stateset", "State of the server.");
    for server in servers {
        for state in STATES {
            let labels = [
                ("server", server.name.as_str()),
                ("mcpd_server_state", state.as_str()),
            ];
            text.sample(
                "mcpd_server_state",
                &labels,
                u64::from(server.state == state),
            );
        }
    }
}

fn cpu(text: &mut Text, servers: &[ServerStatus]) {
    let name = "mcpd_server_cpu_seconds";
    text.family(name, "counter", "Processor time of the server's processes.");
    for server in servers {
        if let Some(usec) = server.resources.cpu_usec {
            let labels = [("server", server.name.as_str())];
            text.float(&format!("{name}_total"), &labels, usec, 1_000_000);
        }
    }
}

#[derive(Default)]
struct Text(String);

impl Text {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string cannot fail.
        _ = writeln!(self.0, "# TYPE {name} {kind}\n# HELP {name} {help}");
    }

    fn single(&mut self, name: &str, help: &str, value: u64) {
        self.family(name, "gauge", help);
        self.sample(name, &[], value);
    }

    fn of_each(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        servers: &[ServerStatus],
        value: Value,
    ) {
        self.family(name, kind, help);
        let total = if kind == "counter" { "_total" } else { "" };
        for server in servers {
            if let Some(value) = value(server) {
                self.sample(
                    &format!("{name}{total}"),
                    &[("server", &server.name)],
                    value,
                );
            }
        }
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: u64) {
        self.line(name, labels, &value.to_string());
    }

    /// `value` in units of which `per_one` make one.
    fn float(&mut self, name: &str, labels: &[(&str, &str)], value: u64, per_one: u64) {
        let digits = per_one.ilog10() as usize;
        let (whole, part) = (value / per_one, value % per_one);
        self.line(name, labels, &format!("{whole}.{part:0digits$}"));
    }

    fn line(&mut self, name: &str, labels: &[(&str, &str)], value: &str) {
        self.0.push_str(name);
        let labels: Vec<String> = labels
            .iter()
            .map(|(name, value)| format!("{name}=\"{}\"", escape(value)))
            .collect();
        if !labels.is_empty() {
            _ = write!(self.0, "{{{}}}", labels.join(","));
        }
        _ = writeln!(self.0, " {value}");
    }
}

/// As a label's value has to be written.
fn escape(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_becomes_text_that_a_collector_reads() {
        let mut server = ServerStatus {
            name: "a\"b".to_owned(),
            state: State::Running,
            restarts_total: 3,
            ..ServerStatus::default()
        };
        server.resources.cpu_usec = Some(1_500_000);
        let mut snapshot = StatusSnapshot::default();
        snapshot.daemon.version = "1.2.3".to_owned();
        snapshot.daemon.uptime_ms = 61_005;
        snapshot.servers.push(server);
        let text = render_metrics(&snapshot);
        for line in [
            "# TYPE mcpd_build info",
            "mcpd_build_info{version=\"1.2.3\"} 1",
            "mcpd_uptime_seconds 61.005",
            "mcpd_server_state{server=\"a\\\"b\",mcpd_server_state=\"running\"} 1",
            "mcpd_server_state{server=\"a\\\"b\",mcpd_server_state=\"failed\"} 0",
            "mcpd_server_restarts_total{server=\"a\\\"b\"} 3",
            "mcpd_server_cpu_seconds_total{server=\"a\\\"b\"} 1.500000",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
        // What is not known is left out, not zero.
        assert!(!text.contains("mcpd_server_memory_bytes{"));
    }

    #[test]
    fn every_family_is_told_once_and_before_its_samples() {
        let text = render_metrics(&StatusSnapshot::default());
        let families: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE "))
            .collect();
        let mut unique = families.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), families.len());
    }
}
