//! Whole pages of status, with fixed pids and times.

use super::*;
use crate::cli::output::Style;
use crate::control::{
    CallsStatus, ConfigStatus, DaemonStatus, Desired, ExecStatus, ExitStatus, LimitsStatus,
    ProcessStatus, ProtocolStatus, ResourceStatus, RunResult, SCHEMA, StopStatus,
};

fn server(name: &str, state: State, substate: Substate) -> ServerStatus {
    ServerStatus {
        name: name.to_owned(),
        state,
        substate,
        desired: Desired::Up,
        ..ServerStatus::default()
    }
}

fn running(name: &str, pid: u32, age_ms: u64) -> ServerStatus {
    ServerStatus {
        pid: Some(pid),
        pgid: Some(pid),
        state_age_ms: Some(age_ms),
        start_age_ms: Some(age_ms + 1_200),
        ready_age_ms: Some(age_ms),
        ..server(name, State::Running, Substate::Ready)
    }
}

fn github() -> ServerStatus {
    ServerStatus {
        requests: CallsStatus {
            in_flight: 1,
            total: 884,
            ..CallsStatus::default()
        },
        resources: ResourceStatus {
            source: Some("tree".to_owned()),
            rss_sum: Some(142 << 20),
            cpu_usec: Some(23_600_000),
            ..ResourceStatus::default()
        },
        ..running("github", 5120, 7_860_000)
    }
}

fn postgres() -> ServerStatus {
    ServerStatus {
        substate: Substate::Unresponsive,
        restarts_total: 2,
        requests: CallsStatus {
            in_flight: 3,
            total: 1201,
            oldest_ms: Some(41_000),
            oldest_method: Some("tools/call".to_owned()),
            ..CallsStatus::default()
        },
        ..running("postgres", 5188, 41_000)
    }
}

fn slack() -> ServerStatus {
    ServerStatus {
        state_age_ms: Some(2_000),
        next_attempt_in_ms: Some(14_000),
        next_attempt_at: Some("2026-01-02T03:04:19Z".to_owned()),
        restarts_total: 5,
        restarts_unstable: 5,
        exit: Some(ExitStatus {
            result: Some(RunResult::ExitCode),
            code: Some(1),
            uptime_ms: 400,
            last_line: Some("\u{1b}[31mECONNREFUSED\u{1b}[0m api.slack.com".to_owned()),
            ..ExitStatus::default()
        }),
        ..server("slack", State::Backoff, Substate::AutoRestart)
    }
}

fn jira() -> ServerStatus {
    ServerStatus {
        config: ConfigStatus {
            status: ConfigVerdict::Invalid,
            file: Some("/home/me/.config/mcpd/servers.d/jira.toml".to_owned()),
            line: Some(4),
            column: Some(9),
            error: Some("unknown key \"comand\"".to_owned()),
            ..ConfigStatus::default()
        },
        ..running("jira", 5201, 32_400_000)
    }
}

fn web() -> ServerStatus {
    ServerStatus {
        state_age_ms: Some(600_000),
        reason: Some("uvx: not found in PATH (3 folders), see `mcpd status web`".to_owned()),
        ..server("web", State::Failed, Substate::Exec)
    }
}

fn snapshot(servers: Vec<ServerStatus>) -> StatusSnapshot {
    StatusSnapshot {
        last: None,
        schema: SCHEMA,
        daemon: DaemonStatus {
            pid: 4121,
            version: "0.4.0".to_owned(),
            uptime_ms: 273_600_000,
            generation: 13,
            containment: "subreaper".to_owned(),
            started_by: "mcpd connect".to_owned(),
            path_source: "login shell".to_owned(),
            config_dir: "/home/me/.config/mcpd".to_owned(),
            ..DaemonStatus::default()
        },
        servers,
    }
}

#[test]
fn the_table_tells_each_servers_state_and_why() {
    let snapshot = snapshot(vec![github(), postgres(), slack(), jira(), web()]);
    insta::assert_snapshot!(render_table(&snapshot, Style::default(), None, None));
    assert_eq!(judge(&snapshot), Verdict::Failed);
}

#[test]
fn a_start_without_a_process_shows_its_reason() {
    let exit = ExitStatus {
        result: Some(RunResult::Resources),
        ..ExitStatus::default()
    };
    let vault = ServerStatus {
        next_attempt_in_ms: Some(2_000),
        reason: Some("the command of `env.X` gave no value".to_owned()),
        exit: Some(exit.clone()),
        exits: vec![exit],
        ..server("vault", State::Backoff, Substate::AutoRestart)
    };
    let table = render_table(&snapshot(vec![vault.clone()]), Style::default(), None, None);
    assert!(
        table.contains("the command of `env.X` gave no value"),
        "{table}"
    );
    let details = render_details(&vault, Style::default());
    assert!(
        details.contains("exits: not started: see the reason"),
        "{details}"
    );
}

/// What the README shows is what is printed.
#[test]
fn the_readme_shows_a_real_table() {
    let minute = 68_000;
    let mut snapshot = snapshot(vec![
        ServerStatus {
            resources: ResourceStatus {
                rss_sum: Some(142 << 20),
                cpu_usec: Some(230_000),
                ..ResourceStatus::default()
            },
            requests: CallsStatus {
                in_flight: 1,
                total: 84,
                ..CallsStatus::default()
            },
            ..running("github", 5120, minute)
        },
        ServerStatus {
            resources: ResourceStatus {
                rss_sum: Some(88 << 20),
                cpu_usec: Some(2_000),
                ..ResourceStatus::default()
            },
            requests: CallsStatus {
                total: 12,
                ..CallsStatus::default()
            },
            config: ConfigStatus {
                line: Some(1),
                column: Some(1),
                error: Some("unknown key `comand`, did you mean `command`?".to_owned()),
                ..jira().config
            },
            ..running("jira", 5201, minute)
        },
        ServerStatus {
            state_age_ms: Some(minute),
            reason: Some(
                "server \"off\" is disabled in ~/.config/mcpd/servers.d/off.toml".to_owned(),
            ),
            ..server("off", State::Stopped, Substate::Disabled)
        },
        slack(),
        ServerStatus {
            state_age_ms: Some(minute),
            reason: Some("uvx: not found in PATH (/usr/local/bin:/usr/bin:/bin)".to_owned()),
            ..server("web", State::Failed, Substate::Exec)
        },
    ]);
    if let Some(exit) = &mut snapshot.servers[3].exit {
        exit.last_line = Some("ECONNREFUSED api.slack.com".to_owned());
    }
    snapshot.daemon.version = "0.1.0".to_owned();
    snapshot.daemon.watcher = "inotify".to_owned();
    let readme = include_str!("../../../README.md");
    let shown = readme.split("$ mcpd status\n").nth(1).unwrap();
    let shown = shown.split("```").next().unwrap();
    assert_eq!(render_table(&snapshot, Style::default(), None, None), shown);
}

#[test]
fn an_empty_configuration_is_said() {
    insta::assert_snapshot!(render_table(&snapshot(Vec::new()), Style::default(), None, None), @r"
    mcpd 0.4.0  pid 4121  up 3d 4h  gen 13  containment subreaper  started by mcpd connect  PATH from login shell
    no servers: /home/me/.config/mcpd/servers.d holds no NAME.toml
    ");
}

#[test]
fn colour_is_only_in_the_state() {
    let text = render_table(&snapshot(vec![github()]), Style { color: true }, None, None);
    assert!(text.contains("\u{1b}[32mrunning"), "{text}");
}

#[test]
fn the_details_of_a_server_that_is_being_stopped_are_whole() {
    let exit = ExitStatus {
        at_age_ms: Some(90_000),
        ..slack().exit.unwrap()
    };
    let holder = ProcessStatus {
        pid: 5121,
        ppid: 5120,
        pgid: 5120,
        sid: 5120,
        state: "S".to_owned(),
        name: "node".to_owned(),
        rss: Some(88 << 20),
        wchan: Some("pipe_read".to_owned()),
    };
    let server = ServerStatus {
        description: Some("Issues and pull requests".to_owned()),
        state: State::Stopping,
        substate: Substate::StopStdin,
        state_since: Some("2026-01-02T03:04:05Z".to_owned()),
        generation: 3,
        restarts_total: 2,
        config: ConfigStatus {
            file: Some("/home/me/.config/mcpd/servers.d/github.toml".to_owned()),
            hash: Some("9f86d081".to_owned()),
            generation: 13,
            ..ConfigStatus::default()
        },
        exec: ExecStatus {
            program: Some("/usr/bin/node".to_owned()),
            argv: vec![
                "node".to_owned(),
                "my server.js".to_owned(),
                "${TOKEN}".to_owned(),
            ],
            cwd: Some("/home/me".to_owned()),
            env_names: vec!["HOME".to_owned(), "TOKEN".to_owned()],
            ..ExecStatus::default()
        },
        protocol: ProtocolStatus {
            era: Some("legacy".to_owned()),
            version: Some("2025-11-25".to_owned()),
            server_name: Some("github".to_owned()),
            server_version: Some("1.2".to_owned()),
            capabilities: Some(serde_json::json!({"tools": {}, "logging": {}})),
            tools: Some(12),
        },
        containment: "cgroup".to_owned(),
        cgroup: Some("/sys/fs/cgroup/mcpd.service/server-github-3".to_owned()),
        limits: LimitsStatus {
            memory: Some(2 << 30),
            tasks: Some(64),
            open_files: Some(1024),
            not_enforced: vec!["memory".to_owned()],
            not_enforced_because: Some("its control group has no controller memory".to_owned()),
        },
        processes: vec![holder.clone()],
        stop: StopStatus {
            phase: Some(Substate::StopStdin),
            deadline: None,
            deadline_in_ms: Some(4_000),
            holders: vec![holder],
        },
        violations: 36,
        violation_sample: Some("\u{1b}[33mstarting\u{1b}[0m".to_owned()),
        exits: vec![exit],
        stderr_tail: (1..=12).map(|n| format!("line {n}")).collect(),
        log: Some("/home/me/.local/state/mcpd/logs/github.log".to_owned()),
        ..github()
    };
    insta::assert_snapshot!(render_details(&server, Style::default()));
}

#[test]
fn the_details_of_a_failed_start_name_stage_and_cause() {
    let server = ServerStatus {
        exec: ExecStatus {
            argv: vec!["uvx".to_owned()],
            failed_stage: Some("resolve".to_owned()),
            errno: Some(2),
            ..ExecStatus::default()
        },
        ..web()
    };
    insta::assert_snapshot!(render_details(&server, Style::default()));
}

#[test]
fn exit_codes_follow_the_worst_server() {
    let check = |servers, expected| assert_eq!(judge(&snapshot(servers)), expected);
    check(vec![github()], Verdict::Done);
    check(vec![github(), slack()], Verdict::Degraded);
    check(vec![jira()], Verdict::Degraded);
    check(vec![postgres()], Verdict::Degraded);
    check(vec![slack(), web()], Verdict::Failed);
}

#[test]
fn a_stray_error_degrades() {
    let mut snapshot = snapshot(vec![github()]);
    snapshot
        .daemon
        .errors
        .push("mcpd.toml:1:1 unknown key".to_owned());
    assert_eq!(judge(&snapshot), Verdict::Degraded);
}

#[test]
fn a_start_without_a_process_is_explained_by_its_reason() {
    let vault = ServerStatus {
        next_attempt_in_ms: Some(14_000),
        reason: Some("the command of `env.TOKEN` gave no value: exited with code 3".to_owned()),
        exit: Some(ExitStatus {
            result: Some(RunResult::Resources),
            ..ExitStatus::default()
        }),
        ..server("vault", State::Backoff, Substate::AutoRestart)
    };
    let page = render_table(&snapshot(vec![vault]), Style::default(), None, None);
    assert!(
        page.contains("  the command of `env.TOKEN` gave no value"),
        "{page}"
    );
}
