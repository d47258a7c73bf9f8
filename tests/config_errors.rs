//! Configuration files that are wrong: every error with its place, and no good file suffers.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::json;

use crate::common::{Home, error_code, initialize_params, quoted};

/// C119: what editors and package managers leave beside a file is not a server, and no error.
#[test]
fn leftovers_are_not_servers() {
    let home = Home::new();
    home.fake("a", &[]);
    for name in [
        "a.toml~",
        ".a.toml.swp",
        "a.toml.bak",
        "#a.toml#",
        "4913",
        "a.toml.rpmnew",
        ".DS_Store",
        ".hidden.toml",
    ] {
        home.write(&format!("config/mcpd/servers.d/{name}"), "no TOML at all [");
    }
    symlink("/nowhere", home.path("config/mcpd/servers.d/.#a.toml")).expect("a link");
    fs::create_dir(home.path("config/mcpd/servers.d/x.toml")).expect("a folder");
    home.mcpd(&["check"]).expect_code(0);
    let daemon = home.start();
    let status = daemon.status().expect("status");
    let names: Vec<_> = status["servers"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|server| &server["name"])
        .collect();
    assert_eq!(names, ["a"]);
}

/// Fault 46: a fifo in the folder blocks nothing.
#[test]
fn a_fifo_blocks_nothing() {
    let home = Home::new();
    home.fake("a", &[]);
    nix::unistd::mkfifo(
        &home.path("config/mcpd/servers.d/pipe.toml"),
        nix::sys::stat::Mode::S_IRWXU,
    )
    .expect("a fifo");
    let daemon = home.start();
    daemon.wait_for_state("a", "running");
}

/// What a file takes from elsewhere and is not there is told with its place, all of it at once.
#[test]
fn missing_sources_have_their_place() {
    let home = Home::new();
    home.server(
        "a",
        "command = \"sh\"\nenv_file = \"none.env\"\npass_env = [\"PATH\", \"NOT_THERE\"]\n\
         [env]\nKEY = { file = \"none.key\" }\n",
    );
    let found = home.mcpd(&["check"]).expect_code(78).stdout;
    for place in [
        "a.toml:2:12: error",
        "a.toml:3:21: error",
        "a.toml:5:16: error",
    ] {
        assert!(found.contains(place), "{place}: {found}");
    }
    assert!(found.contains("`mcpd daemon`"), "{found}");
    assert!(
        !found.contains("warning:"),
        "an error needs no warning: {found}"
    );
}

/// `check` warns of what will not be there for the daemon, and of what everybody will see.
#[test]
fn check_warns_of_what_is_missing() {
    let home = Home::new();
    home.server(
        "a",
        "command = \"npx-nowhere\"\nargs = [\"--token\", \"${TOKEN}\"]\ncwd = \"/nowhere\"\n\
         pass_env = [\"GITHUB_USER\"]\n[env]\nTOKEN = { command = [\"pass-nowhere\"] }\n",
    );
    home.settings("path = \"/opt/bin:/usr/bin\"\n");
    let mut command = home.command(&["check"]);
    command.env("GITHUB_USER", "ada");
    let found = home.run(&mut command).expect_code(0).stdout;
    for part in [
        "a.toml:1:11: warning: the program of `command` is not on PATH",
        "searched /opt/bin:/usr/bin",
        "a.toml:2:20: warning: `args[1]` shows the value of `TOKEN`",
        "a.toml:3:7: warning: `cwd` /nowhere is no folder",
        "a.toml:4:13: warning: only a daemon that was started with `GITHUB_USER` has it",
        "warning: the program of `env.TOKEN.command[0]` is not on PATH",
    ] {
        assert!(found.contains(part), "{part}: {found}");
    }
}

/// A server may be named instead of its file; a folder that is missing is said.
#[test]
fn check_takes_names() {
    let home = Home::new();
    home.server("a", "comand = \"x\"\n");
    for name in ["a", "a.toml"] {
        let found = home.mcpd(&["check", name]).expect_code(78).stdout;
        assert!(found.contains("a.toml:1:1: error: unknown key"), "{found}");
    }
    let nobody = home.mcpd(&["check", "nobody"]).expect_code(78).stdout;
    assert!(
        nobody.contains("servers.d/nobody.toml: error: no such file"),
        "{nobody}"
    );
    fs::remove_dir_all(home.path("config/mcpd/servers.d")).expect("the folder goes");
    let found = home.mcpd(&["check"]).expect_code(0).stdout;
    assert!(
        found.contains("servers.d: warning: there is no such folder"),
        "{found}"
    );
}

/// C121, fault 46: one broken file of four: three run and can be managed, the fourth is listed with its error.
#[test]
fn one_bad_file_spoils_nothing() {
    let home = Home::new();
    for name in ["one", "two", "three"] {
        home.fake(name, &[]);
    }
    home.server("broken", "command = \"cat\"\nstart_timeout = \"soon\"\n");
    let daemon = home.start();
    for name in ["one", "two", "three"] {
        daemon.wait_for_state(name, "running");
    }
    daemon.mcpd(&["restart", "one"]).expect_code(0);
    let status = daemon.server_status("broken");
    assert_eq!(
        (&status["state"], &status["substate"]),
        (&json!("failed"), &json!("config")),
        "{status}"
    );
    assert_eq!(status["config"]["status"], "invalid");
    assert_eq!(status["config"]["line"], 2);
    let shown = daemon.mcpd(&["status"]).stdout;
    assert!(shown.contains("broken.toml:2:"), "{shown}");
}

/// C123: file, line, column, key path and expected type, for all errors of all files at once.
#[test]
fn every_error_has_its_place() {
    let home = Home::new();
    let cases = [
        (
            "number",
            "command = \"cat\"\n[env]\nPORT = 80\n",
            "number.toml:3:8",
            "env.PORT",
        ),
        (
            "nested",
            "command = \"cat\"\n[tools]\nallow = \"x\"\n",
            "nested.toml:3:9",
            "tools.allow",
        ),
        (
            "element",
            "command = \"cat\"\nargs = [\"a\",\n  5]\n",
            "element.toml:3:3",
            "args[1]",
        ),
        (
            "double",
            "command = \"cat\"\ncommand = \"cat\"\n",
            "double.toml:2:1",
            "command",
        ),
        (
            "unknown",
            "comand = \"cat\"\n",
            "unknown.toml:1:1",
            "command",
        ),
        (
            "syntax",
            "command = \"cat\"\nargs = [\n",
            "syntax.toml:",
            "",
        ),
        (
            "crlf",
            "command = \"cat\"\r\n\tenabled = 5\r\n",
            "crlf.toml:2:12",
            "enabled",
        ),
    ];
    for (name, toml, _, _) in &cases {
        home.server(name, toml);
    }
    let outcome = home.mcpd(&["check"]).expect_code(78);
    let said = outcome.stdout + &outcome.stderr;
    for (name, _, place, key) in &cases {
        assert!(said.contains(place), "{name}, {place}: {said}");
        assert!(said.contains(key), "{name}, {key}: {said}");
    }
    for expected in [
        "`env.PORT` must be a string, not an integer",
        "`tools.allow` must be an array of strings, not a string",
        "`args[1]` must be a string, not an integer",
        "`enabled` must be true or false, not an integer",
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    assert!(said.contains("comand"), "the line is shown: {said}");
}

/// C125: a broken, an unreadable-by-nature, a dangling and an empty file are listed as invalid with the
/// reason; `connect` gives that reason to the host.
#[test]
fn a_bad_file_is_no_missing_server() {
    let home = Home::new();
    home.server("broken", "command = [");
    home.server("empty", "");
    symlink(
        "/nowhere/at/all.toml",
        home.path("config/mcpd/servers.d/dangling.toml"),
    )
    .expect("a link");
    home.write(
        "config/mcpd/servers.d/bytes.toml",
        b"command = \"\xff\xfe\"\n",
    );
    home.server("bad name", "command = \"cat\"\n");
    let outcome = home.mcpd(&["check"]).expect_code(78);
    let said = outcome.stdout + &outcome.stderr;
    for name in ["broken", "empty", "dangling", "bytes", "bad name"] {
        assert!(said.contains(&format!("{name}.toml")), "{name}: {said}");
    }
    let daemon = home.start();
    for name in ["broken", "empty", "dangling", "bytes"] {
        let mut host = daemon.connect_host(name);
        let answer = host.ask("initialize", initialize_params("2025-11-25"));
        assert_eq!(error_code(&answer), -31000, "{name}");
        assert!(
            answer.to_string().contains(&format!("{name}.toml")),
            "{name}: {answer}"
        );
    }
    let shown = daemon.mcpd(&["status"]).stdout;
    assert!(shown.contains("bad name"), "{shown}");
}

/// C125: a file that the user may not read is an error that says so.
#[test]
fn an_unreadable_file_says_so() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    let home = Home::new();
    let file = home.server("closed", "command = \"cat\"\n");
    fs::set_permissions(file, fs::Permissions::from_mode(0o000)).expect("the mode");
    let mut command = home.command(&["check"]);
    if nix::unistd::geteuid().is_root() {
        // Root may read everything, so nobody asks.
        fs::set_permissions(home.path(""), fs::Permissions::from_mode(0o755)).expect("the mode");
        command.uid(65534).gid(65534).env_remove("XDG_RUNTIME_DIR");
    }
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => {
            crate::common::say(&format!("SKIPPED: nobody may not run mcpd here: {error}"));
            return;
        }
    };
    assert_eq!(output.status.code(), Some(78), "{output:?}");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(said.contains("closed.toml"), "{said}");
    assert!(said.contains("permission denied"), "{said}");
}

/// A key of the documentation that this version does not have is refused by name.
#[test]
fn a_key_of_a_later_version_is_refused_by_name() {
    let home = Home::new();
    home.server("new", "command = \"cat\"\nsharing = \"per-host\"\n");
    let outcome = home.mcpd(&["check"]).expect_code(78);
    let said = outcome.stdout + &outcome.stderr;
    assert!(
        said.contains("new.toml:2:1") && said.contains("sharing"),
        "{said}"
    );
}

/// An unusable `mcpd.toml` is refused by the daemon with its place and code 78.
#[test]
fn a_bad_mcpd_toml_is_refused() {
    let home = Home::new();
    home.fake("fake", &[]);
    home.settings("memory_limit = \"lots\"\n");
    let outcome = home.mcpd(&["daemon"]).expect_code(78);
    assert!(
        (outcome.stdout + &outcome.stderr).contains("mcpd.toml:1:"),
        "it says where"
    );
}

/// `[defaults]` holds for every server; the server's own key wins.
#[test]
fn defaults_hold_for_every_server() {
    let home = Home::new();
    home.settings("[defaults]\nstart_limit = 1\nprotocol = \"legacy\"\n");
    home.fake_with("one", &["--exit", "1"], "");
    home.fake_with("two", &["--exit", "1"], "start_limit = 2\n");
    let daemon = home.start();
    daemon.wait_for_state("one", "failed");
    daemon.wait_for_state("two", "failed");
    assert_eq!(daemon.record("one").starts(), 1);
    assert_eq!(daemon.record("two").starts(), 2);
}

/// A reload that is waited for tells of a start that failed, and status names what was tried.
#[test]
fn a_reload_that_is_waited_for_tells_of_a_failed_start() {
    let home = Home::new();
    home.fake("fake", &[]);
    let daemon = home.start();
    daemon.wait_for_state("fake", "running");
    let report = daemon.reload_after(|| {
        daemon.server("fake", "command = \"no-such-program\"\n");
        daemon.server("quits", "command = \"sh\"\nargs = [\"-c\", \"exit 3\"]\n");
    });
    assert_eq!(report.code, 1, "{report:?}");
    for part in [
        "failed: ",
        "no-such-program",
        "backoff: ",
        "exited with code 3",
    ] {
        assert!(report.stdout.contains(part), "{part}: {}", report.stdout);
    }
    let status = daemon.server_status("fake");
    assert_eq!(status["exec"]["argv"][0], "no-such-program", "{status}");
    assert_eq!(
        status["exec"]["program"],
        serde_json::Value::Null,
        "{status}"
    );
}

/// A reload touches only what changed: added, changed, live, broken and removed files each in their way.
#[test]
fn a_reload_touches_only_what_changed() {
    let home = Home::new();
    for name in ["same", "live", "changed", "broken", "removed"] {
        home.fake(name, &[]);
    }
    let daemon = home.start();
    let pid = |name: &str| daemon.server_pid(name);
    let before = [
        pid("same"),
        pid("live"),
        pid("changed"),
        pid("broken"),
        pid("removed"),
    ];
    let mut host = daemon.connect_host("changed");
    host.initialize();
    let mut orphan = daemon.connect_host("removed");
    orphan.initialize();

    let report = daemon.reload_after(|| {
        daemon.fake_with(
            "live",
            &[],
            "drain_timeout = \"300ms\"\nstop_timeout = \"400ms\"\nrequest_timeout = \"1h\"\n",
        );
        daemon.fake("changed", &["--page", "3"]);
        daemon.server("broken", "comand = 5\n");
        fs::remove_file(daemon.path("config/mcpd/servers.d/removed.toml")).expect("the file");
        daemon.fake("added", &[]);
    });
    assert_eq!(report.code, 1, "one file is invalid: {report:?}");
    for line in ["+ added", "~ changed", "= live", "! broken", "- removed"] {
        assert!(report.stdout.contains(line), "{line}: {}", report.stdout);
    }
    assert!(
        report.stdout.contains("did you mean") || report.stdout.contains("\"command\""),
        "{}",
        report.stdout
    );

    assert_eq!(pid("same"), before[0]);
    assert_eq!(pid("live"), before[1]);
    assert_ne!(pid("changed"), before[2]);
    assert_eq!(
        pid("broken"),
        before[3],
        "it runs by its last good configuration"
    );
    assert_eq!(
        daemon.server_status("broken")["config"]["status"],
        "invalid"
    );
    daemon.wait_for_state("added", "running");
    assert_eq!(
        host.ask("tools/list", json!({}))["result"]["tools"]
            .as_array()
            .map(Vec::len),
        Some(3)
    );
    assert_eq!(
        error_code(&orphan.call("sum", json!({}))),
        -31000,
        "its attachment stays and is told"
    );
    daemon.fake("removed", &[]);
    daemon.fake("broken", &[]);
    daemon.mcpd(&["reload", "--wait"]).expect_code(0);
    assert_eq!(
        orphan.text("sum", json!({"a": 1})),
        "1",
        "it lives on when the server returns"
    );
    assert_eq!(daemon.server_status("broken")["config"]["status"], "ok");
}

/// A restart by an edit lets open calls finish, and status says meanwhile that a change is pending; a reload that
/// waits ends when the new child serves.
#[test]
fn a_reload_that_waits_sees_the_new_child() {
    let home = Home::new();
    home.fake("fake", &[]);
    let daemon = home.start();
    let mut host = daemon.socket_host("fake");
    host.initialize();
    let open = host.start_call("sleep", json!({"ms": 1_500, "text": "kept"}));
    daemon.record("fake").wait_for("tools/call", 1);
    daemon.fake("fake", &["--page", "3"]);
    std::thread::scope(|scope| {
        let reload = scope.spawn(|| {
            daemon.mcpd(&["reload", "--wait"]).expect_code(0);
            daemon.server_status("fake")
        });
        let pending = daemon.wait_for("fake", "the change is seen", |server| {
            server["substate"] == "draining-for-reload"
        });
        assert_eq!(pending["config"]["status"], "changed-pending", "{pending}");
        assert_eq!(pending["state"], "running");
        let status = reload.join().expect("the reload ends");
        assert_eq!(
            (&status["state"], &status["generation"]),
            (&json!("running"), &json!(2)),
            "{status}"
        );
        assert_eq!(status["config"]["status"], "ok");
    });
    assert_eq!(host.answer(open)["result"]["content"][0]["text"], "kept");
}

/// SIGHUP applies what changed, as `reload` does.
#[test]
fn a_hangup_is_a_reload() {
    let home = Home::new();
    home.fake("one", &[]);
    let daemon = home.start();
    let pid = daemon.server_pid("one");
    daemon.fake("two", &[]);
    daemon.signal(nix::sys::signal::Signal::SIGHUP);
    daemon.socket_host("two").initialize();
    assert_eq!(daemon.server_pid("one"), pid);
}

/// A reload with nothing changed disturbs nobody.
#[test]
fn a_reload_without_a_change_is_none() {
    let home = Home::new();
    home.fake("fake", &[]);
    let daemon = home.start();
    let mut host = daemon.socket_host("fake");
    host.initialize();
    let open = host.start_call("sleep", json!({"ms": 800, "text": "undisturbed"}));
    daemon.mcpd(&["reload", "--wait"]).expect_code(0);
    assert_eq!(
        host.answer(open)["result"]["content"][0]["text"],
        "undisturbed"
    );
    assert_eq!(daemon.record("fake").starts(), 1);
}

/// `enabled = false` is a stopped server that says why; enabling it starts it.
#[test]
fn a_disabled_server_says_so() {
    let home = Home::new();
    home.fake_with("fake", &[], "enabled = false\n");
    let daemon = home.start();
    let status = daemon.server_status("fake");
    assert_eq!(
        (&status["state"], &status["substate"]),
        (&json!("stopped"), &json!("disabled")),
        "{status}"
    );
    let mut host = daemon.connect_host("fake");
    let answer = host.ask("initialize", initialize_params("2025-11-25"));
    assert_eq!(error_code(&answer), -31000);
    assert!(answer.to_string().contains("disabled"), "{answer}");
    daemon.fake("fake", &[]);
    daemon.mcpd(&["reload", "--wait"]).expect_code(0);
    host.initialize();
    assert_eq!(host.text("sum", json!({"a": 1})), "1");
}

/// A disabled server stays down whoever asks, and every answer says what to do; a stop takes nothing from that.
#[test]
fn a_disabled_server_cannot_be_started() {
    let home = Home::new();
    home.fake_with("fake", &[], "enabled = false\n");
    let daemon = home.start();
    let mut host = daemon.connect_host("fake");
    for args in [
        &["start", "fake"][..],
        &["restart", "fake"],
        &["restart", "--now", "fake"],
    ] {
        let outcome = daemon.mcpd(args).expect_code(3);
        for part in ["disabled", "`enabled = true`", "`mcpd reload`"] {
            assert!(outcome.stdout.contains(part), "{args:?}: {outcome:?}");
        }
    }
    daemon.mcpd(&["stop", "fake"]).expect_code(0);
    daemon.mcpd(&["reset-failed", "fake"]).expect_code(0);
    let answer = host.ask("initialize", initialize_params("2025-11-25"));
    assert!(
        answer["error"]["data"]["detail"]["hint"]
            .as_str()
            .is_some_and(|hint| hint.contains("`enabled = true`")),
        "{answer}"
    );
    daemon.mcpd(&["call", "fake", "sum", "a=1"]).expect_code(1);
    assert_eq!(daemon.server_status("fake")["substate"], "disabled");
    assert_eq!(daemon.record("fake").starts(), 0);
}

/// `check` of single files, and a file that does not exist.
#[test]
fn check_takes_files() {
    let home = Home::new();
    let good = home.write("elsewhere/good.toml", "command = \"cat\"\n");
    let bad = home.write(
        "elsewhere/bad.toml",
        format!("command = {}\nbogus = 1\n", quoted("cat")),
    );
    home.mcpd(&["check", good.to_str().expect("plain")])
        .expect_code(0);
    let outcome = home
        .mcpd(&[
            "check",
            good.to_str().expect("plain"),
            bad.to_str().expect("plain"),
        ])
        .expect_code(78);
    assert!((outcome.stdout + &outcome.stderr).contains("bad.toml:2:1"));
    assert_ne!(home.mcpd(&["check", "/no/such/file.toml"]).code, 0);
}
