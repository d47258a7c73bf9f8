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
use crate::config::spec::{ServerName, ServerSpec};
use crate::control::{
    ConfigStatus, ConfigVerdict, DaemonStatus, SCHEMA, ServerStatus, State, StatusSnapshot,
    Substate,
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
    if let Some(name) = name {
        snapshot.servers.retain(|server| server.name == name);
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
    }
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
    }
    for error in &snapshot.daemon.errors {
        _ = writeln!(text, "error: {}", escape(error));
    }
    text
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
    }
}
