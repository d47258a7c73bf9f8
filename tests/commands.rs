//! The command line: verbs, output and exit codes.

use std::fs;
use std::io::Read;
use std::process::Stdio;

use serde_json::json;

use crate::common::{Home, RawHost, error_code, initialize_params, wait_until};

const EXAMPLE: &str = "command = \"mcpd\"\nargs = [\"example-server\"]\n";

fn with_example() -> Home {
    let home = Home::new();
    let toml = EXAMPLE.replace("\"mcpd\"", &crate::common::quoted(crate::common::MCPD));
    home.server("calculator", &toml);
    home
}

/// `call` starts what is needed and prints the result; values are typed, or JSON.
#[test]
fn call_prints_the_result() {
    let home = with_example();
    assert_eq!(
        home.mcpd(&["call", "calculator", "add", "a=2", "b=3"])
            .expect_code(0)
            .stdout,
        "5\n"
    );
    assert_eq!(
        home.mcpd(&["call", "calculator", "divide", "a=1", "b=4"])
            .expect_code(0)
            .stdout,
        "0.25\n"
    );
    assert_eq!(
        home.mcpd(&[
            "call",
            "calculator",
            "multiply",
            "--json",
            "{\"a\": 6, \"b\": 7}"
        ])
        .expect_code(0)
        .stdout,
        "42\n"
    );
}

/// A call that fails says why and ends with 1; one that cannot be meant ends with 2.
#[test]
fn a_failed_call_says_why() {
    let home = with_example();
    let failed = home
        .mcpd(&["call", "calculator", "divide", "a=1", "b=0"])
        .expect_code(1);
    assert!(
        (failed.stdout + &failed.stderr)
            .to_lowercase()
            .contains("zero")
    );
    let unknown = home.mcpd(&["call", "calculator", "fly"]);
    assert_ne!(unknown.code, 0);
    let nobody = home.mcpd(&["call", "nobody", "add"]);
    assert_ne!(nobody.code, 0);
    assert!((nobody.stdout + &nobody.stderr).contains("nobody"));
    home.mcpd(&["call", "calculator"]).expect_code(2);
    home.mcpd(&["call", "calculator", "add", "nonsense"])
        .expect_code(2);
}

/// A call to a server that cannot run says why, its last words and what to do, in words.
#[test]
fn a_call_to_a_failed_server_tells_its_last_words() {
    let home = Home::new();
    home.fake_with(
        "bad",
        &["--stderr", "no licence key", "--exit", "1"],
        "start_limit = 1\n",
    );
    home.server("missing", "command = \"npx-nowhere\"\n");
    let daemon = home.start();
    daemon.wait_for_state("bad", "failed");
    for (name, part) in [("bad", "stderr: no licence key"), ("missing", "`path`")] {
        let outcome = daemon.mcpd(&["call", name, "sum"]).expect_code(1);
        assert!(outcome.stderr.contains(part), "{outcome:?}");
        assert!(!outcome.stderr.contains("{\""), "{outcome:?}");
        assert!(outcome.stderr.contains("\ncommand: "), "{outcome:?}");
        // It was mcpd that spoke, not the server.
        assert!(
            !outcome.stderr.contains("answered initialize"),
            "{outcome:?}"
        );
    }
}

/// `--json` may stand before or behind a verb.
#[test]
fn verbs_print_json() {
    let home = Home::new();
    home.fake("fake", &[]);
    let daemon = home.start();
    daemon.wait_for_state("fake", "running");
    for args in [
        &["--json", "restart", "fake"][..],
        &["restart", "fake", "--json"],
        &["stop", "fake", "--json"],
        &["start", "fake", "--json"],
        &["reset-failed", "fake", "--json"],
    ] {
        let outcome = daemon.mcpd(args).expect_code(0).json();
        assert_eq!(outcome["outcomes"][0]["server"], "fake", "{outcome}");
    }
}

/// `tools` lists what every server, or one, offers, all pages of it.
#[test]
fn tools_lists_every_page() {
    let home = with_example();
    home.fake("fake", &["--page", "4"]);
    let all = home.mcpd(&["tools"]).expect_code(0).stdout;
    for name in ["add", "subtract", "multiply", "divide", "echo", "twice_big"] {
        assert!(all.contains(name), "{name}: {all}");
    }
    let one = home.mcpd(&["tools", "calculator"]).expect_code(0).stdout;
    assert!(one.contains("add") && !one.contains("twice_big"), "{one}");
    let json = home
        .mcpd(&["tools", "calculator", "--json"])
        .expect_code(0)
        .json();
    assert!(json.to_string().contains("inputSchema"), "{json}");
}

/// The example server speaks MCP by itself, with progress and its two switches.
#[test]
fn the_example_is_an_mcp_server() {
    let home = Home::new();
    let mut command = home.command(&["example-server", "--debug"]);
    command.env("CALC_PRECISION", "2");
    let mut host = RawHost::through(command);
    let result = host.initialize();
    assert_eq!(result["protocolVersion"], "2025-11-25");
    assert!(
        host.text("divide", json!({"a": 1, "b": 3}))
            .starts_with("0.33")
    );
    host.end_output();
    let (status, stderr) = host.wait_exit();
    assert!(status.success());
    assert!(!stderr.is_empty(), "--debug says something");
}

/// `start`, `stop`, `restart` and `reset-failed` take several names and are true when they return.
#[test]
fn verbs_are_true_when_they_return() {
    let home = Home::new();
    home.fake("one", &[]);
    home.fake("two", &[]);
    home.fake_with("bad", &["--exit", "1"], "start_limit = 1\n");
    let daemon = home.start();
    daemon.wait_for_state("one", "running");
    daemon.wait_for_state("two", "running");
    daemon.mcpd(&["stop", "one", "two"]).expect_code(0);
    for name in ["one", "two"] {
        assert_eq!(daemon.server_status(name)["state"], "stopped");
    }
    daemon.mcpd(&["stop", "one"]).expect_code(0);
    daemon.mcpd(&["start", "one", "two"]).expect_code(0);
    let pid = daemon.server_pid("one");
    daemon.mcpd(&["restart", "one"]).expect_code(0);
    assert_ne!(daemon.server_pid("one"), pid);
    daemon.wait_for_state("bad", "failed");
    daemon.mcpd(&["reset-failed", "bad"]).expect_code(0);
    let unknown = daemon.mcpd(&["start", "one", "nobody"]);
    assert_ne!(unknown.code, 0);
    assert!((unknown.stdout + &unknown.stderr).contains("nobody"));
    daemon.mcpd(&["start"]).expect_code(2);
}

/// `shutdown` ends the daemon and all its servers; without one it says so with 4.
#[test]
fn shutdown_ends_everything() {
    let home = Home::new();
    home.fake("fake", &[]);
    let mut host = home.connect_host("fake");
    host.initialize();
    home.mcpd(&["shutdown"]).expect_code(0);
    assert_eq!(home.fakes(), []);
    assert!(!home.control_socket().exists());
    home.mcpd(&["shutdown"]).expect_code(4);
}

/// After a shutdown only hosts are held back: what a person asks for starts the daemon again.
#[test]
fn a_shutdown_holds_back_hosts_only() {
    let home = with_example();
    for args in [
        &["call", "calculator", "add", "a=2", "b=3"][..],
        &["tools", "calculator"],
        &["tools"],
        &["start", "calculator"],
    ] {
        home.mcpd(&["start", "calculator"]).expect_code(0);
        home.mcpd(&["shutdown"]).expect_code(0);
        let mut host = home.connect_host("calculator");
        let refused = host.ask("initialize", initialize_params("2025-11-25"));
        assert_eq!(error_code(&refused), -31000);
        let detail = &refused["error"]["data"]["detail"];
        assert!(detail["reason"].is_string(), "{refused}");
        let hint = detail["hint"].as_str().unwrap_or_default();
        assert!(hint.contains("`mcpd call`"), "{refused}");
        home.mcpd(args).expect_code(0);
        host.initialize();
    }
}

/// A shutdown concerns one daemon, whatever other sockets lie in its folder.
#[test]
fn a_shutdown_is_of_one_socket() {
    let home = with_example();
    let socket = |name: &str| home.path(name).display().to_string();
    let (one, other) = (socket("run/one.sock"), socket("run/other.sock"));
    let call = |socket: &str| {
        let args = [
            "--socket",
            socket,
            "call",
            "calculator",
            "add",
            "a=2",
            "b=3",
        ];
        home.mcpd(&args).expect_code(0);
    };
    call(&one);
    home.mcpd(&["--socket", &one, "shutdown"]).expect_code(0);
    let mut host = RawHost::through(home.command(&["--socket", &other, "connect", "calculator"]));
    host.initialize();
    home.mcpd(&["--socket", &other, "shutdown"]).expect_code(0);
}

/// A socket that was chosen may lead to the daemon of another configuration: that is said.
#[test]
fn another_configurations_daemon_is_noticed() {
    let home = with_example();
    fs::create_dir_all(home.path("other/servers.d")).expect("a folder");
    let other = home.path("other").display().to_string();
    let socket = home.control_socket().display().to_string();
    home.mcpd(&["start", "calculator"]).expect_code(0);
    let mixed = home.mcpd(&["--config", &other, "--socket", &socket, "status"]);
    assert_eq!(
        mixed.stderr.matches("note: the daemon at").count(),
        1,
        "{mixed:?}"
    );
    let own = home.mcpd(&["--socket", &socket, "status"]).expect_code(0);
    assert_eq!(own.stderr, "");
}

/// A folder that cannot be used is a matter of configuration, whoever finds out.
#[test]
fn an_unusable_folder_is_configuration() {
    let home = with_example();
    for args in [
        &["--state", "/proc/none", "start", "calculator"][..],
        &["--state", "/proc/none", "call", "calculator", "add"],
        &["--state", "/proc/none", "daemon"],
    ] {
        let refused = home.mcpd(args).expect_code(78);
        assert!(refused.stderr.contains("/proc/none"), "{refused:?}");
    }
}

/// What has nothing to say says that, and `-q` leaves what was asked for.
#[test]
fn silence_is_explained_or_asked_for() {
    let home = Home::new();
    home.fake_with("off", &[], "enabled = false\n");
    let none = home.mcpd(&["tools"]).expect_code(0);
    assert!(none.stderr.contains("no server runs"), "{none:?}");
    assert_eq!(home.mcpd(&["-q", "tools"]).expect_code(0).stderr, "");
    home.mcpd(&["--json", "logs", "off"]).expect_code(2);
    home.mcpd(&["shutdown"]).expect_code(0);
    let told = home.mcpd(&["stop", "off"]).expect_code(4);
    assert!(told.stderr.contains("hint: "), "{told:?}");
    let quiet = home.mcpd(&["-q", "stop", "off"]).expect_code(4);
    assert!(!quiet.stderr.contains("hint: "), "{quiet:?}");
}

/// A command that waits for a server says what for, unless it is told to be quiet.
#[test]
fn a_long_wait_is_explained() {
    let home = Home::new();
    home.fake_with(
        "bad",
        &["--stderr", "no licence key", "--exit", "1"],
        "start_limit = 3\n",
    );
    let waited = home.mcpd(&["call", "bad", "sum"]).expect_code(1);
    assert!(waited.stderr.contains("waiting for bad: "), "{waited:?}");
    assert!(waited.stderr.contains("no licence key"), "{waited:?}");
    home.mcpd(&["reset-failed", "bad"]).expect_code(0);
    let quiet = home.mcpd(&["-q", "call", "bad", "sum"]).expect_code(1);
    assert!(!quiet.stderr.contains("waiting for"), "{quiet:?}");
}

/// Commands that need a daemon and find none say so with 4; `check` and `logs` need none.
#[test]
fn commands_without_a_daemon() {
    let home = Home::new();
    home.fake("fake", &[]);
    for args in [&["stop", "fake"][..], &["restart", "fake"], &["reload"]] {
        home.mcpd(args).expect_code(4);
    }
    home.mcpd(&["check"]).expect_code(0);
    {
        let mut host = home.connect_host("fake");
        host.initialize();
        host.call("stderr", json!({"kind": "text", "text": "kept"}));
        wait_until("the log has it", || {
            home.mcpd(&["logs", "fake"])
                .stdout
                .contains("kept")
                .then_some(())
        });
    }
    home.mcpd(&["shutdown"]).expect_code(0);
    assert!(
        home.mcpd(&["logs", "fake"])
            .expect_code(0)
            .stdout
            .contains("kept"),
        "logs reads the file"
    );
}

/// Every command has help with an example.
#[test]
fn every_command_has_help_with_an_example() {
    let home = Home::new();
    let commands = [
        "daemon",
        "connect",
        "status",
        "start",
        "stop",
        "restart",
        "reset-failed",
        "shutdown",
        "reload",
        "check",
        "logs",
        "tools",
        "call",
        "example-server",
    ];
    let overview = home.mcpd(&["--help"]).expect_code(0).stdout;
    for command in commands {
        assert!(overview.contains(command), "{command}: {overview}");
        let help = home.mcpd(&[command, "--help"]).expect_code(0).stdout;
        assert!(help.contains(&format!("mcpd {command}")), "{help}");
        assert!(help.to_lowercase().contains("example"), "{help}");
    }
    home.mcpd(&["no-such-command"]).expect_code(2);
    home.mcpd(&["status", "--no-such-flag"]).expect_code(2);
    let version = home.mcpd(&["--version"]).expect_code(0).stdout;
    assert!(version.contains(env!("CARGO_PKG_VERSION")), "{version}");
}

/// A reader that leaves early is no failure and no message.
#[test]
fn a_closed_pipe_is_no_error() {
    let home = Home::new();
    for number in 0..40 {
        home.fake_with(&format!("server{number}"), &[], "enabled = false\n");
    }
    let daemon = home.start();
    let mut child = daemon
        .command(&["status", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    drop(child.stdout.take());
    let mut stderr = String::new();
    child
        .stderr
        .take()
        .expect("a pipe")
        .read_to_string(&mut stderr)
        .expect("it is text");
    child.wait().expect("it ends");
    assert_eq!(stderr, "");
}

/// Colour only where it is asked for, or on a terminal without `NO_COLOR`.
#[test]
fn colour_is_asked_for() {
    let home = Home::new();
    home.fake("fake", &[]);
    let daemon = home.start();
    daemon.wait_for_state("fake", "running");
    assert!(
        daemon
            .mcpd(&["status", "--color", "always"])
            .stdout
            .contains('\u{1b}')
    );
    assert!(
        !daemon
            .mcpd(&["status", "--color", "auto"])
            .stdout
            .contains('\u{1b}')
    );
    assert!(
        !daemon
            .mcpd(&["status", "--color", "never"])
            .stdout
            .contains('\u{1b}')
    );
}
