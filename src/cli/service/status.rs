//! `mcpd service status`: the units, the socket, and whether they outlive the session.
//!
//! Asks systemd only, and never the daemon: a connection would start it.

use std::fmt::Write as _;

use serde::Serialize;

use super::systemctl::Properties;
use super::{SERVICE, SOCKET, Service};
use crate::cli::Context;
use crate::cli::error::{CliError, Verdict};
use crate::cli::escape::escape;

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// What is known of one unit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
struct UnitStatus {
    name: &'static str,
    /// As systemd has it: `loaded`, `not-found`, `masked`, …
    load: String,
    /// `enabled`, `disabled`, …
    enabled: String,
    active: String,
    sub: String,
    result: String,
    file: Option<String>,
    /// The file has changed since systemd read it.
    needs_reload: bool,
    pid: Option<u32>,
    restarts: Option<u32>,
    /// What the daemon says of itself.
    status: Option<String>,
    /// Where a socket listens.
    listen: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
struct ServiceStatus {
    schema: u32,
    service: UnitStatus,
    socket: UnitStatus,
    /// Whether the units outlive the last session; nothing if that cannot be found out.
    lingers: Option<bool>,
}

pub(super) fn cmd_status(
    context: &Context,
    service: &Service,
    arguments: Arguments,
) -> Result<Verdict, CliError> {
    let manager = &service.manager;
    let status = ServiceStatus {
        schema: 1,
        service: unit(SERVICE, &manager.show(SERVICE)?),
        socket: unit(SOCKET, &manager.show(SOCKET)?),
        lingers: manager.lingers(),
    };
    if arguments.json || context.json {
        context.output.print_json(&status)?;
    } else {
        context.output.note(&render(&status))?;
    }
    Ok(judge(&status))
}

fn unit(name: &'static str, properties: &Properties) -> UnitStatus {
    let text = |name: &str| properties.get(name).cloned().unwrap_or_default();
    let filled = |name: &str| Some(text(name)).filter(|value| !value.is_empty());
    UnitStatus {
        name,
        load: text("LoadState"),
        enabled: text("UnitFileState"),
        active: text("ActiveState"),
        sub: text("SubState"),
        result: text("Result"),
        file: filled("FragmentPath"),
        needs_reload: text("NeedDaemonReload") == "yes",
        pid: text("MainPID").parse().ok().filter(|pid| *pid != 0),
        restarts: text("NRestarts").parse().ok(),
        status: filled("StatusText"),
        listen: filled("Listen"),
    }
}

fn judge(status: &ServiceStatus) -> Verdict {
    let units = [&status.service, &status.socket];
    if units.iter().any(|unit| unit.active == "failed") {
        Verdict::Failed
    } else if status.service.active != "active" {
        Verdict::NoDaemon
    } else if units.iter().all(|unit| unit.active == "active") {
        Verdict::Done
    } else {
        Verdict::Degraded
    }
}

fn render(status: &ServiceStatus) -> String {
    if status.service.load == "not-found" && status.socket.load == "not-found" {
        return "mcpd is not installed as a service; `mcpd service install` does that\n".to_owned();
    }
    let mut text = String::new();
    for unit in [&status.service, &status.socket] {
        let result = match unit.result.as_str() {
            "" | "success" => String::new(),
            result => format!(", {result}"),
        };
        let pid = unit.pid.map(|pid| format!(", pid {pid}"));
        let enabled = match unit.enabled.as_str() {
            "" => &unit.load,
            enabled => enabled,
        };
        // Writing to a string cannot fail.
        _ = writeln!(
            text,
            "{:14}{enabled}, {} ({}){result}{}",
            unit.name,
            unit.active,
            unit.sub,
            pid.unwrap_or_default()
        );
        let restarts = unit.restarts.filter(|restarts| *restarts > 0);
        let lines = [
            ("says", unit.status.clone()),
            ("restarts", restarts.map(|restarts| restarts.to_string())),
            ("listens at", unit.listen.clone()),
            ("file", unit.file.clone()),
        ];
        for (name, value) in lines {
            if let Some(value) = value {
                _ = writeln!(text, "  {name:12}{}", escape(&value));
            }
        }
        if unit.needs_reload {
            _ = writeln!(
                text,
                "  its file has changed: `systemctl --user daemon-reload`"
            );
        }
    }
    if status.service.active == "failed" {
        _ = writeln!(
            text,
            "`journalctl --user -u {SERVICE}` tells why; `systemctl --user reset-failed {SERVICE}` lets it start again"
        );
    }
    _ = match status.lingers {
        Some(true) => writeln!(text, "lingering     yes: runs from boot on"),
        Some(false) => writeln!(
            text,
            "lingering     no: ends with your last session (`loginctl enable-linger`)"
        ),
        None => writeln!(text, "lingering     unknown"),
    };
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn properties(pairs: &[(&str, &str)]) -> Properties {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        pairs.iter().map(own).collect()
    }

    fn running() -> ServiceStatus {
        let service = properties(&[
            ("LoadState", "loaded"),
            ("UnitFileState", "enabled"),
            ("ActiveState", "active"),
            ("SubState", "running"),
            ("Result", "success"),
            ("MainPID", "41"),
            ("NRestarts", "2"),
            ("StatusText", "1 server: 1 running; 2 hosts"),
            ("FragmentPath", "/h/.config/systemd/user/mcpd.service"),
        ]);
        let socket = properties(&[
            ("LoadState", "loaded"),
            ("UnitFileState", "enabled"),
            ("ActiveState", "active"),
            ("SubState", "running"),
            ("MainPID", "0"),
            ("Listen", "/run/user/1000/mcpd/mcpd.sock (Stream)"),
        ]);
        ServiceStatus {
            schema: 1,
            service: unit(SERVICE, &service),
            socket: unit(SOCKET, &socket),
            lingers: Some(false),
        }
    }

    #[test]
    fn a_service_that_runs_is_told_whole() {
        assert_eq!(judge(&running()), Verdict::Done);
        insta::assert_snapshot!(render(&running()), @r"
        mcpd.service  enabled, active (running), pid 41
          says        1 server: 1 running; 2 hosts
          restarts    2
          file        /h/.config/systemd/user/mcpd.service
        mcpd.socket   enabled, active (running)
          listens at  /run/user/1000/mcpd/mcpd.sock (Stream)
        lingering     no: ends with your last session (`loginctl enable-linger`)
        ");
    }

    #[test]
    fn what_is_not_there_is_said() {
        let missing = properties(&[("LoadState", "not-found"), ("ActiveState", "inactive")]);
        let status = ServiceStatus {
            service: unit(SERVICE, &missing),
            socket: unit(SOCKET, &missing),
            ..ServiceStatus::default()
        };
        assert_eq!(judge(&status), Verdict::NoDaemon);
        assert!(render(&status).contains("mcpd service install"));
    }

    #[test]
    fn a_failed_unit_is_a_failure() {
        let mut status = running();
        status.service.active = "failed".to_owned();
        status.service.result = "start-limit-hit".to_owned();
        assert_eq!(judge(&status), Verdict::Failed);
        assert!(render(&status).contains("reset-failed"));
        let mut status = running();
        status.socket.active = "inactive".to_owned();
        assert_eq!(judge(&status), Verdict::Degraded);
    }
}
