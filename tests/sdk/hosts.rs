//! A real host that runs without a model: it is pointed at mcpd by its own configuration file, lists tools
//! and calls one.

use std::process::Stdio;

use serde_json::json;

use super::counterpart;
use crate::common::{Home, MCPD, TestDaemon};

/// A daemon with the example server and the host's configuration, or none where hosts are not installed.
fn daemon() -> Option<(TestDaemon, String)> {
    counterpart("node-hosts")?;
    let home = Home::new();
    home.server(
        "calculator",
        "command = \"mcpd\"\nargs = [\"example-server\"]\n",
    );
    let config = json!({"mcpServers": {"calculator": {
        "command": MCPD, "args": ["connect", "calculator"],
        "env": {"XDG_RUNTIME_DIR": home.path("run"), "XDG_CONFIG_HOME": home.path("config"),
                "XDG_STATE_HOME": home.path("state")},
    }}});
    let path = home.write("hosts.json", config.to_string());
    Some((home.start(), path.display().to_string()))
}

/// What a host prints.
fn host(daemon: &TestDaemon, program: &str, args: &[&str]) -> String {
    let folder = counterpart("node-hosts").expect("it was there");
    let mut command = daemon.program_command("node");
    command
        .arg(folder.join("node_modules").join(program))
        .args(args);
    if let Some(path) = std::env::var_os("PATH") {
        command.env("PATH", path);
    }
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    daemon.run(&mut command).expect_code(0).stdout
}

#[test]
fn mcporter_lists_and_calls() {
    let Some((daemon, config)) = daemon() else {
        return;
    };
    let mcporter = |args: &[&str]| {
        let args = [&["--config", config.as_str()], args].concat();
        host(&daemon, "mcporter/dist/cli.js", &args)
    };
    let listed = mcporter(&["list", "calculator"]);
    assert!(
        listed.contains("add") && listed.contains("divide"),
        "{listed}"
    );
    let called = mcporter(&["call", "calculator.add", "a=2", "b=3"]);
    assert!(called.contains('5'), "{called}");
}
