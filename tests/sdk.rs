//! Real counterparts: the official SDKs as hosts through `mcpd connect`, real servers as children.
//!
//! The scripts in `tests/sdk` do the checks and print one JSON line each; what is not installed is skipped,
//! loudly and counted by `tests/run`.

mod eras;
mod hosts;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use serde_json::Value;

use crate::common::{Home, MCPD, TestDaemon, output_in_time, quoted, say};

/// Keys that make a crash in the middle of the checks a short one.
const STABLE: &str = "stable_after = \"50ms\"\nstop_timeout = \"2s\"\n";

/// Where `tests/sdk/install` puts the counterparts.
fn installed() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
        .parent()
        .expect("target")
        .join("sdk")
}

/// A counterpart's folder, or none where it is not installed, which is then said.
fn counterpart(name: &str) -> Option<PathBuf> {
    let folder = installed().join(name);
    if folder.join(".installed").exists() {
        return Some(folder);
    }
    let reason = fs::read_to_string(installed().join(format!("{name}.skipped")))
        .unwrap_or_else(|_| "it is not installed, see tests/sdk/install".to_owned());
    say(&format!(
        "SKIPPED: {} needs {name}: {}",
        test_name(),
        reason.trim()
    ));
    None
}

fn test_name() -> String {
    thread::current().name().unwrap_or("a test").to_owned()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sdk {
    PythonLate,
    PythonEarly,
    TypeScript,
}

impl Sdk {
    fn folder(self) -> &'static str {
        match self {
            Self::PythonLate => "py-late",
            Self::PythonEarly => "py-early",
            Self::TypeScript => "node",
        }
    }

    fn label(self) -> &'static str {
        if self == Self::TypeScript {
            "typescript"
        } else {
            "python"
        }
    }

    /// The host with this mode, or none where the SDK is not installed.
    fn host(self, home: &Home, mode: &str, server: &str) -> Option<Command> {
        let folder = counterpart(self.folder())?;
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sdk");
        let mut command = if self == Self::TypeScript {
            let mut command = home.program_command("node");
            command.arg(scripts.join("host.mjs")).arg(folder);
            command
        } else {
            let mut command = home.program_command(folder.join("bin/python"));
            command.arg(scripts.join("host.py"));
            command
        };
        command.args([mode, self.label(), MCPD, "connect", server]);
        if let Some(path) = std::env::var_os("PATH") {
            command.env("PATH", path);
        }
        command
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Some(command)
    }
}

/// Runs a host to its end; the names of its checks, all of which must be good.
fn run(mut command: Command) -> BTreeSet<String> {
    let output = output_in_time(&mut command);
    let text = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    let mut names = BTreeSet::new();
    let mut bad = Vec::new();
    for line in text.lines() {
        let check: Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        names.insert(check["check"].as_str().expect("a name").to_owned());
        if check["ok"] != true {
            bad.push(line.to_owned());
        }
    }
    assert!(bad.is_empty(), "{bad:#?}\n{stderr}");
    assert!(
        output.status.success(),
        "{}: {text}\n{stderr}",
        output.status
    );
    names
}

#[track_caller]
fn check(names: &BTreeSet<String>, wanted: &[&str]) {
    for name in wanted {
        assert!(names.contains(*name), "{name} was not checked: {names:?}");
    }
}

const FAKE_CHECKS: &[&str] = &[
    "initialize",
    "list",
    "call",
    "progress",
    "cancel",
    "error",
    "subscribe",
    "list_changed",
    "log_level",
    "prompts",
    "completion",
    "large",
    "crash",
];

const EVERYTHING_CHECKS: &[&str] = &[
    "initialize",
    "list",
    "call",
    "progress",
    "error",
    "structured",
    "read",
    "subscribe",
    "log_level",
    "prompts",
    "completion",
];

fn fake_daemon() -> TestDaemon {
    let home = Home::new();
    home.fake_with("fake", &["--page", "6"], STABLE);
    home.start()
}

fn drive_the_fake(sdk: Sdk) {
    let daemon = fake_daemon();
    let Some(host) = sdk.host(&daemon, "fake", "fake") else {
        return;
    };
    check(&run(host), FAKE_CHECKS);
    assert_eq!(daemon.record("fake").starts(), 2, "it crashed once");
}

#[test]
fn a_late_python_host_keeps_its_session() {
    drive_the_fake(Sdk::PythonLate);
}

#[test]
fn an_early_python_host_keeps_its_session() {
    drive_the_fake(Sdk::PythonEarly);
}

#[test]
fn a_typescript_host_keeps_its_session() {
    drive_the_fake(Sdk::TypeScript);
}

/// A daemon with the reference server that has everything.
fn everything_daemon() -> Option<TestDaemon> {
    let script = counterpart("node")?
        .join("node_modules/@modelcontextprotocol/server-everything/dist/index.js");
    let home = Home::new();
    home.settings(&format!(
        "path = {}\n",
        quoted(&std::env::var("PATH").unwrap_or_default())
    ));
    let script = quoted(script.to_str().expect("a plain path"));
    home.server(
        "everything",
        &format!("command = \"node\"\nargs = [{script}]\nstop_timeout = \"2s\"\n"),
    );
    Some(home.start())
}

fn drive_everything(sdk: Sdk) {
    let Some(daemon) = everything_daemon() else {
        return;
    };
    let Some(host) = sdk.host(&daemon, "everything", "everything") else {
        return;
    };
    check(&run(host), EVERYTHING_CHECKS);
}

#[test]
fn a_python_host_uses_server_everything() {
    drive_everything(Sdk::PythonLate);
}

#[test]
fn a_typescript_host_uses_server_everything() {
    drive_everything(Sdk::TypeScript);
}

/// A server from the Python reference servers, with a Python and a TypeScript host at once.
#[test]
fn two_hosts_share_a_time_server() {
    let Some(folder) = counterpart("py-time") else {
        return;
    };
    let home = Home::new();
    let program = folder.join("bin/mcp-server-time");
    home.server(
        "time",
        &format!(
            "command = {}\nstop_timeout = \"2s\"\n",
            quoted(program.to_str().expect("a plain path"))
        ),
    );
    let daemon = home.start();
    run_together(&daemon, "time", "time", &["initialize", "list", "call"]);
    assert_eq!(daemon.server_status("time")["generation"], 1);
}

/// The built-in example, through a daemon that the first host's shim starts.
#[test]
fn two_hosts_share_the_example_server() {
    let home = Home::new();
    home.server(
        "calculator",
        &format!("command = {}\nargs = [\"example-server\"]\n", quoted(MCPD)),
    );
    run_together(
        &home,
        "calculator",
        "calculator",
        &["initialize", "list", "call", "error"],
    );
}

/// A Python and a TypeScript host at once on one child, with the same ids and tokens: calls, progress,
/// cancellations, levels and subscriptions of each stay its own.
#[test]
fn two_sdk_hosts_share_one_child() {
    let daemon = fake_daemon();
    run_together(
        &daemon,
        "together",
        "fake",
        &["initialize", "calls", "cancel", "level", "subscribe"],
    );
    // Where no SDK is installed nobody has waited for it yet.
    daemon.wait_for_state("fake", "running");
    let record = daemon.record("fake");
    let ids = |messages: Vec<Value>, pointer: &str| -> BTreeSet<String> {
        let found = messages.iter().filter_map(|one| one.pointer(pointer));
        found.map(ToString::to_string).collect()
    };
    let mut long = record.with_method("tools/call");
    long.retain(|call| call.pointer("/params/arguments/ms") == Some(&Value::from(60_000)));
    assert_eq!(
        ids(
            record.with_method("notifications/cancelled"),
            "/params/requestId"
        ),
        ids(long, "/id"),
        "each cancelled its own call"
    );
    assert_eq!(
        (record.starts(), record.with_method("initialize").len()),
        (1, 1)
    );
}

/// Runs a host of each SDK at the same time.
fn run_together(home: &Home, mode: &str, server: &str, wanted: &[&str]) {
    let hosts: Vec<Command> = [Sdk::PythonLate, Sdk::TypeScript]
        .iter()
        .filter_map(|sdk| sdk.host(home, mode, server))
        .collect();
    thread::scope(|scope| {
        let running: Vec<_> = hosts
            .into_iter()
            .map(|host| scope.spawn(move || run(host)))
            .collect();
        for host in running {
            check(&host.join().expect("every check is good"), wanted);
        }
    });
}
