//! Status without a daemon: what files tell.

use std::fmt::Write as _;

use super::unknown_server;
use crate::cli::Context;
use crate::cli::error::{CliError, Verdict};
use crate::cli::escape::escape;
use crate::cli::places::Places;
use crate::config::diagnostics::Diagnostic;
use crate::config::environment::Base;
use crate::config::load::{LoadRequest, Loaded, load};
use crate::config::regular_file::read_regular_file;
use crate::config::spec::{ServerName, ServerSpec};
use crate::control::{
    ConfigStatus, ConfigVerdict, DaemonStatus, END_RECORD_FILE, EndRecord, LastDaemon, SCHEMA,
    STATE_RECORD_FILE, ServerStatus, State, StateRecord, StatusSnapshot, Substate,
};

/// Says that no daemon runs and lists what is configured.
pub(super) fn report(
    context: &Context,
    places: &Places,
    name: Option<&str>,
    json: bool,
) -> Result<Verdict, CliError> {
    let base = Base::new(context.environment.clone(), places.user.clone(), None);
    let loaded = load(LoadRequest {
        config_dir: places.paths.config_dir(),
        base: &base,
        hash_key: None,
        last_daemon_file: None,
    });
    let mut snapshot = snapshot(&loaded, places);
    snapshot.last = last_daemon(places).map(Box::new);
    if let Some(name) = name {
        snapshot.servers.retain(|server| server.name == name);
        if let Some(last) = &mut snapshot.last {
            last.servers.retain(|server| server.name == name);
        }
        if snapshot.servers.is_empty() {
            return Err(unknown_server(name));
        }
    }
    if json {
        context.output.print_json(&snapshot)?;
    } else {
        let ended = places.shutdown_marker().exists();
        context.output.note(&render_offline(&snapshot, ended))?;
    }
    Ok(Verdict::NoDaemon)
}

/// What is configured, in the form of a daemon's snapshot; a pid of 0 says that there is none.
fn snapshot(loaded: &Loaded, places: &Places) -> StatusSnapshot {
    let paths = &places.paths;
    let text = |path: &std::path::Path| path.to_string_lossy().into_owned();
    let stray = loaded.daemon_errors.iter().chain(&loaded.stray);
    StatusSnapshot {
        schema: SCHEMA,
        daemon: DaemonStatus {
            config_dir: text(paths.config_dir()),
            socket: text(&places.socket),
            state_dir: text(paths.state_dir()),
            errors: stray.map(Diagnostic::to_line).collect(),
            ..DaemonStatus::default()
        },
        servers: loaded
            .servers
            .iter()
            .map(|(name, found)| server(name, found.as_ref()))
            .collect(),
        last: None,
    }
}

/// What the daemon of these places that ran last has left word of.
fn last_daemon(places: &Places) -> Option<LastDaemon> {
    let folder = places.paths.state_dir();
    let read = |name| read_regular_file(&folder.join(name)).ok();
    let state = read(STATE_RECORD_FILE)?.bytes;
    let state: StateRecord = serde_json::from_slice(&state).ok()?;
    let daemon = state.snapshot.daemon;
    // Another daemon may have had the same state folder.
    if daemon.socket != places.socket.to_string_lossy() {
        return None;
    }
    let end = read(END_RECORD_FILE)
        .and_then(|file| serde_json::from_slice::<EndRecord>(&file.bytes).ok())
        .filter(|end| end.pid == daemon.pid);
    Some(LastDaemon {
        pid: daemon.pid,
        recorded_at: state.written_at,
        end,
        servers: state.snapshot.servers,
    })
}

fn server(name: &ServerName, found: Result<&ServerSpec, &Vec<Diagnostic>>) -> ServerStatus {
    let mut status = ServerStatus {
        name: name.as_str().to_owned(),
        state: State::Stopped,
        substate: Substate::Dead,
        ..ServerStatus::default()
    };
    match found {
        Ok(spec) => {
            status.description = spec.description.clone();
            status.config.file = Some(spec.file.to_string_lossy().into_owned());
            if !spec.enabled {
                status.substate = Substate::Disabled;
            }
        }
        Err(errors) => {
            if let Some(first) = errors.first() {
                status.config = ConfigStatus {
                    status: ConfigVerdict::Invalid,
                    file: Some(first.file.to_string_lossy().into_owned()),
                    line: first.place.map(|place| place.line.into()),
                    column: first.place.map(|place| place.column.into()),
                    error: Some(first.message.clone()),
                    ..ConfigStatus::default()
                };
            }
        }
    }
    status
}

fn render_offline(snapshot: &StatusSnapshot, ended: bool) -> String {
    let why = if ended { " (mcpd was shut down)" } else { "" };
    let mut text = format!(
        "no daemon is running{why} at {}\n",
        escape(&snapshot.daemon.socket)
    );
    if let Some(last) = &snapshot.last {
        _ = writeln!(text, "{}", render_last(last));
    }
    let folder = escape(&snapshot.daemon.config_dir);
    if snapshot.servers.is_empty() {
        // Writing to a string cannot fail.
        _ = writeln!(text, "no servers are configured in {folder}/servers.d");
    } else {
        _ = writeln!(text, "configured in {folder}:");
    }
    let names = snapshot.servers.iter().map(|server| server.name.len());
    let width = names.max().unwrap_or(0);
    for server in &snapshot.servers {
        let said = super::table::render_config_error(server)
            .or_else(|| server.description.as_deref().map(escape))
            .unwrap_or_default();
        let off = match server.substate {
            Substate::Disabled => "(disabled) ",
            _ => "",
        };
        let line = format!("  {:width$}  {off}{said}", server.name);
        _ = writeln!(text, "{}", line.trim_end());
        if let Some(was) = snapshot
            .last
            .as_ref()
            .and_then(|last| render_was(last, &server.name))
        {
            _ = writeln!(text, "  {:width$}  {was}", "");
        }
    }
    for error in &snapshot.daemon.errors {
        _ = writeln!(text, "error: {}", escape(error));
    }
    text
}

/// Why the last daemon ended.
fn render_last(last: &LastDaemon) -> String {
    let pid = last.pid;
    match &last.end {
        Some(end) => {
            let how = if end.orderly { "ended" } else { "broke" };
            let (at, reason) = (escape(&end.at), escape(&end.reason));
            format!("the last one (pid {pid}) {how} at {at}: {reason}")
        }
        None => format!(
            "the last one (pid {pid}) ended without a word after {}: it was killed, or the machine went down",
            escape(&last.recorded_at)
        ),
    }
}

/// What a server was when that was last recorded, unless it was simply down.
fn render_was(last: &LastDaemon, name: &str) -> Option<String> {
    let server = last.servers.iter().find(|server| server.name == name)?;
    let reason = server.reason.as_deref().map(escape);
    match (server.state, reason) {
        (State::Stopped, _) => None,
        (state, Some(reason)) => Some(format!("was {}: {reason}", state.as_str())),
        (state, None) => Some(format!("was {}", state.as_str())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_configured_is_listed_with_its_errors() {
        let named = |name: &str| ServerStatus {
            name: name.to_owned(),
            substate: Substate::Dead,
            ..ServerStatus::default()
        };
        let mut calculator = named("calculator");
        calculator.description = Some("Four operations".to_owned());
        let mut off = named("off");
        off.substate = Substate::Disabled;
        let mut jira = named("jira");
        jira.config = ConfigStatus {
            status: ConfigVerdict::Invalid,
            file: Some("/c/servers.d/jira.toml".to_owned()),
            line: Some(4),
            column: Some(9),
            error: Some("unknown key \"comand\"".to_owned()),
            ..ConfigStatus::default()
        };
        let snapshot = StatusSnapshot {
            daemon: DaemonStatus {
                config_dir: "/c".to_owned(),
                socket: "/r/mcpd.sock".to_owned(),
                ..DaemonStatus::default()
            },
            servers: vec![calculator, jira, off],
            ..StatusSnapshot::default()
        };
        insta::assert_snapshot!(render_offline(&snapshot, true), @r#"
        no daemon is running (mcpd was shut down) at /r/mcpd.sock
        configured in /c:
          calculator  Four operations
          jira        jira.toml:4:9 unknown key "comand"
          off         (disabled)
        "#);
        let mut was = named("calculator");
        was.state = State::Failed;
        was.reason = Some("exited with code 1".to_owned());
        let mut last = LastDaemon {
            pid: 7,
            recorded_at: "2026-11-30T12:00:00.000Z".to_owned(),
            end: None,
            servers: vec![was, named("off")],
        };
        let after = |last: &LastDaemon| {
            let last = Some(Box::new(last.clone()));
            let snapshot = StatusSnapshot {
                last,
                ..snapshot.clone()
            };
            render_offline(&snapshot, false)
        };
        insta::assert_snapshot!(after(&last), @r#"
        no daemon is running at /r/mcpd.sock
        the last one (pid 7) ended without a word after 2026-11-30T12:00:00.000Z: it was killed, or the machine went down
        configured in /c:
          calculator  Four operations
                      was failed: exited with code 1
          jira        jira.toml:4:9 unknown key "comand"
          off         (disabled)
        "#);
        last.end = Some(EndRecord {
            pid: 7,
            at: "2026-11-30T12:00:01.000Z".to_owned(),
            orderly: false,
            reason: "panic in thread main at src/x.rs:1: no".to_owned(),
        });
        let said = after(&last);
        assert!(said.contains("(pid 7) broke at 2026-11-30T12:00:01.000Z: panic in thread main"));
    }
}
