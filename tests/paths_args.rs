//! Where a server runs and with which words: no shell, no guess, no surprise.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use serde_json::json;

use crate::common::{
    FAKE, Home, QUICK, RawHost, TestDaemon, error_code, initialize_params, quoted,
};

fn cwd(daemon: &TestDaemon, name: &str) -> String {
    let mut host = daemon.socket_host(name);
    host.initialize();
    host.text("cwd", json!({}))
}

/// C105: without `cwd` a server runs in the home directory, whatever the daemon's own is.
#[test]
fn the_default_directory_is_the_home() {
    let home = Home::new();
    home.fake("fake", &[]);
    let mut command = home.command(&["daemon"]);
    command.current_dir("/");
    let daemon = TestDaemon::start_with(home, command);
    assert_eq!(cwd(&daemon, "fake"), real(&daemon.path("")));
}

/// C107: a leading `~/` of an argument is the home directory; elsewhere a tilde is itself.
#[test]
fn a_leading_tilde_is_the_home() {
    let home = Home::new();
    home.server(
        "fake",
        &format!(
            "command = {}\nargs = [\"--stderr\", \"~/data\", \"--stderr\", \"--dir=~/data\", \"--stderr\", \"a~b\", \"--stderr\", \"~\"]\n{QUICK}",
            quoted(FAKE)
        ),
    );
    let daemon = home.start();
    let mut host = daemon.socket_host("fake");
    host.initialize();
    let args = host.call("args", json!({}))["result"]["structuredContent"]["args"].clone();
    assert_eq!(args[1], daemon.path("data").display().to_string());
    assert_eq!(args[3], "--dir=~/data");
    assert_eq!(args[5], "a~b");
}

/// C108: `cwd` is honoured, absolute, relative to the file and with a variable, also after a crash and a
/// reload.
#[test]
fn the_configured_directory_is_honoured() {
    let home = Home::new();
    for name in [
        "absolute",
        "config/mcpd/servers.d/relative",
        "tilde",
        "later",
    ] {
        fs::create_dir_all(home.path(name)).expect("a folder");
    }
    let stable = "stable_after = \"50ms\"\n";
    home.fake_with(
        "absolute",
        &[],
        &format!(
            "cwd = {}\n{stable}",
            quoted(home.path("absolute").to_str().expect("plain"))
        ),
    );
    home.fake_with("relative", &[], &format!("cwd = \"relative\"\n{stable}"));
    home.fake_with("tilde", &[], &format!("cwd = \"~/tilde\"\n{stable}"));
    home.fake_with(
        "variable",
        &[],
        &format!("cwd = \"${{HOME}}/absolute\"\n{stable}"),
    );
    let daemon = home.start();
    let wanted = [
        ("absolute", "absolute"),
        ("relative", "config/mcpd/servers.d/relative"),
        ("tilde", "tilde"),
        ("variable", "absolute"),
    ];
    for (name, folder) in wanted {
        assert_eq!(cwd(&daemon, name), real(&daemon.path(folder)), "{name}");
        daemon.kill_server(name);
        assert_eq!(
            cwd(&daemon, name),
            real(&daemon.path(folder)),
            "{name} after a crash"
        );
    }
    daemon.fake_with("tilde", &[], "cwd = \"~/later\"\n");
    daemon.mcpd(&["reload", "--wait"]).expect_code(0);
    assert_eq!(cwd(&daemon, "tilde"), real(&daemon.path("later")));
}

/// A directory that is not there is a failed start that names it and the stage.
#[test]
fn a_missing_directory_is_named() {
    let home = Home::new();
    home.fake_with("fake", &[], "cwd = \"~/nowhere\"\n");
    let daemon = home.start();
    let status = daemon.wait_for_state("fake", "failed");
    assert_eq!(status["substate"], "exec", "{status}");
    assert!(status.to_string().contains("nowhere"), "{status}");
    assert_eq!(daemon.record("fake").starts(), 0);
}

/// C109, C111: blanks, quotes, `#`, emoji and a tilde in program, directory and arguments pass as they are.
#[test]
fn special_characters_in_paths_pass() {
    let home = Home::new();
    let folder = "a b~c'd\"e#f😀";
    let program = home.program(
        &format!("{folder}/my server"),
        &format!("#!/bin/sh\nexec {FAKE} \"$@\"\n"),
    );
    home.server(
        "odd",
        &format!(
            "command = {}\nargs = [\"--stderr\", {}]\ncwd = {}\n{QUICK}",
            quoted(program.to_str().expect("UTF-8")),
            quoted("$(touch pwned) `x` ; & | * ? \\ \n end"),
            quoted(home.path(folder).to_str().expect("UTF-8"))
        ),
    );
    let daemon = home.start();
    assert_eq!(cwd(&daemon, "odd"), real(&daemon.path(folder)));
    let mut host = daemon.socket_host("odd");
    host.initialize();
    let args = host.call("args", json!({}))["result"]["structuredContent"]["args"].clone();
    assert_eq!(args[1], "$(touch pwned) `x` ; & | * ? \\ \n end");
    assert!(!daemon.path(folder).join("pwned").exists());
}

/// C109: a configuration folder may have any name, one that is not UTF-8 included: its servers run, relative
/// programs and directories are found, and hosts reach them.
#[test]
fn a_configuration_folder_may_have_any_name() {
    let home = Home::new();
    for name in ["a b~c'd\"e#f😀".as_bytes(), b"conf \xff"] {
        let folder = home.path("").join(OsStr::from_bytes(name));
        let servers = folder.join("servers.d");
        fs::create_dir_all(&servers).expect("the folder");
        std::os::unix::fs::symlink(FAKE, servers.join("my server")).expect("the program");
        let toml = format!("command = \"./my server\"\ncwd = \".\"\n{QUICK}");
        fs::write(servers.join("fake.toml"), toml).expect("the file");
        let mcpd = |args: &[&str]| {
            let mut command = home.command(args);
            command.arg("--config").arg(&folder);
            home.run(&mut command)
        };
        mcpd(&["check"]).expect_code(0);
        let called = mcpd(&["call", "fake", "cwd"]).expect_code(0);
        let place = fs::canonicalize(&servers).expect("it is there");
        assert_eq!(called.stdout, format!("{}\n", place.to_string_lossy()));
        let mut command = home.command(&["connect", "fake", "--config"]);
        command.arg(&folder);
        let mut host = RawHost::through(command);
        host.initialize();
        assert_eq!(host.text("sum", json!({"a": 1})), "1");
        drop(host);
        mcpd(&["shutdown"]).expect_code(0);
    }
}

/// C111: a command that holds blanks and is no file is an error with the split form to paste.
#[test]
fn a_command_line_in_command_is_explained() {
    let home = Home::new();
    home.server("fake", "command = \"npx -y some-server\"\n");
    let outcome = home.mcpd(&["check"]).expect_code(78);
    let said = outcome.stdout + &outcome.stderr;
    assert!(
        said.contains("command = \"npx\"") && said.contains("\"-y\", \"some-server\""),
        "{said}"
    );
}

/// C113: docker that wants a terminal: `check` warns, and the start error shows what docker said.
#[test]
fn docker_with_a_terminal_is_warned_of() {
    let home = Home::new();
    home.program(
        "bin/docker",
        "#!/bin/sh\nfor word; do case $word in -it|-t) echo 'the input device is not a TTY' >&2; exit 1;; esac; done\n",
    );
    home.server(
        "box",
        "command = \"docker\"\nargs = [\"run\", \"-it\", \"image\"]\npath = [\"~/bin\"]\nstart_limit = 1\n",
    );
    let outcome = home.mcpd(&["check"]);
    let said = outcome.stdout + &outcome.stderr;
    for part in ["-it", "terminal", "--rm", "--init"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let daemon = home.start();
    let status = daemon.wait_for_state("box", "failed");
    assert!(
        status["stderr_tail"].to_string().contains("not a TTY"),
        "{status}"
    );
}

/// C008, C047: `check` warns of docker without `--rm`, `-i` or `--init`, and of npx without `-y`.
#[test]
fn check_knows_the_usual_launchers() {
    let home = Home::new();
    home.server("box", "command = \"docker\"\nargs = [\"run\", \"image\"]\n");
    home.server("node", "command = \"npx\"\nargs = [\"some-server\"]\n");
    home.server(
        "words",
        "command = \"cat\"\nargs = [\"--port 80 --host x\"]\n",
    );
    let outcome = home.mcpd(&["check"]);
    let said = outcome.stdout + &outcome.stderr;
    for part in ["--rm", "-i", "--init", "-y", "words.toml:2:"] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

/// C114, fault 2: six ways not to start, six messages.
#[test]
fn failures_to_start_are_told_apart() {
    let home = Home::new();
    let plain = home.write("plain", "#!/bin/sh\n");
    let folder = home.path("folder");
    fs::create_dir_all(&folder).expect("a folder");
    let interpreter = home.program("interpreter", "#!/no/such/interpreter\n");
    let text = home.program("text", "just words\n");
    let cases: [(&str, String, &[&str]); 6] = [
        (
            "missing",
            "/no/such/program".to_owned(),
            &["/no/such/program", "not found", "no such"],
        ),
        (
            "plain",
            plain.display().to_string(),
            &["execut", "permission"],
        ),
        ("folder", folder.display().to_string(), &["director"]),
        (
            "interpreter",
            interpreter.display().to_string(),
            &["/no/such/interpreter"],
        ),
        (
            "text",
            text.display().to_string(),
            &["interpreter line", "#!", "format"],
        ),
        ("shell", "/bin/sh".to_owned(), &["127"]),
    ];
    for (name, command, _) in &cases {
        let args = if *name == "shell" {
            "args = [\"-c\", \"exit 127\"]\nstart_limit = 1\n"
        } else {
            ""
        };
        home.server(name, &format!("command = {}\n{args}", quoted(command)));
    }
    let daemon = home.start();
    let mut messages = Vec::new();
    for (name, _, parts) in &cases {
        let status = daemon.wait_for_state(name, "failed");
        let mut host = daemon.socket_host(name);
        let answer = host.ask("initialize", initialize_params("2025-11-25"));
        assert_eq!(error_code(&answer), -31000);
        let text = answer["error"].to_string().to_lowercase();
        assert!(
            parts.iter().any(|part| text.contains(&part.to_lowercase())),
            "{name}: {answer}"
        );
        let substate = if *name == "shell" {
            "start-limit-hit"
        } else {
            "exec"
        };
        assert_eq!(status["substate"], substate, "{name}: {status}");
        messages.push(
            answer["error"]["message"]
                .to_string()
                .replace(&*status["name"].to_string(), ""),
        );
    }
    messages.sort();
    messages.dedup();
    assert_eq!(messages.len(), cases.len(), "{messages:#?}");
}

/// A failed start by a missing program is tried again when its file is there and a host asks, or on restart.
#[test]
fn a_program_that_appears_is_started() {
    let home = Home::new();
    home.server("late", &format!("command = \"~/late\"\n{QUICK}"));
    let daemon = home.start();
    daemon.wait_for_state("late", "failed");
    daemon.program("late", &format!("#!/bin/sh\nexec {FAKE} \"$@\"\n"));
    daemon.mcpd(&["restart", "late"]).expect_code(0);
    daemon.wait_for_state("late", "running");
}

/// A relative command counts from the folder of the file as it is named, not of what a link points to.
#[test]
fn a_relative_command_counts_from_the_named_file() {
    let home = Home::new();
    home.program(
        "config/mcpd/servers.d/tool",
        &format!("#!/bin/sh\nexec {FAKE} \"$@\"\n"),
    );
    let real_file = home.write(
        "elsewhere/linked.toml",
        format!("command = \"./tool\"\n{QUICK}"),
    );
    std::os::unix::fs::symlink(real_file, home.path("config/mcpd/servers.d/linked.toml"))
        .expect("a link");
    let daemon = home.start();
    let mut host = daemon.socket_host("linked");
    host.initialize();
    let program = daemon.server_status("linked")["exec"]["program"].clone();
    let program = program.as_str().expect("the resolved program");
    assert_eq!(
        real(program.as_ref()),
        real(&daemon.path("config/mcpd/servers.d/tool"))
    );
}

/// A program that is a link runs.
#[test]
fn a_program_may_be_a_link() {
    let home = Home::new();
    std::os::unix::fs::symlink(FAKE, home.path("link")).expect("a link");
    home.server("fake", &format!("command = \"~/link\"\n{QUICK}"));

    let daemon = home.start();
    let mut host = daemon.socket_host("fake");
    host.initialize();
    assert_eq!(host.text("sum", json!({"a": 1})), "1");
}

fn real(path: &std::path::Path) -> String {
    fs::canonicalize(path)
        .expect("it is there")
        .display()
        .to_string()
}
