//! The pictures of the README: the real commands in a real terminal, on a small world of servers.
//!
//! `tests/pictures/make` writes them; the test here makes them again and compares what they say. What
//! differs from run to run and from machine to machine (numbers, paths, how the daemon holds its
//! servers) is left out of that.

#[path = "pictures/svg.rs"]
mod svg;

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::common::{Home, MCPD, RawHost, Terminal, TestDaemon, wait_until};

const COLUMNS: u16 = 120;

/// Servers that are well, and others as people have them.
fn world() -> TestDaemon {
    let home = Home::new();
    let program = format!("#!/bin/sh\nexec {MCPD} example-server\n");
    home.program("bin/github-mcp", &program);
    home.program("bin/notes-mcp", &program);
    home.program(
        "bin/jira-mcp",
        "#!/bin/sh\necho 'jira: 401 Unauthorized, the token has expired' >&2\nexit 1\n",
    );
    let of = |name: &str, more: &str| format!("command = \"~/bin/{name}-mcp\"\n{more}");
    home.server(
        "github",
        &of(
            "github",
            "args = [\"--read-only\"]\ndescription = \"Issues and pull requests\"\n",
        ),
    );
    home.server("jira", &of("jira", "start_limit = 1\n"));
    home.server("notes", &of("notes", ""));
    home.server("old", &of("notes", "enabled = false\n"));
    home.server("web", "command = \"fetch-mcp\"\n");
    let daemon = home.start();
    for name in ["github", "notes"] {
        daemon.wait_for_state(name, "running");
    }
    for name in ["jira", "web"] {
        daemon.wait_for_state(name, "failed");
    }
    daemon
}

/// A host that says who it is.
fn host(daemon: &TestDaemon, server: &str, name: &str) -> RawHost {
    let mut host = daemon.socket_host(server);
    host.ask(
        "initialize",
        json!({"protocolVersion": "2025-11-25", "capabilities": {},
               "clientInfo": {"name": name, "version": "2.0"}}),
    );
    host.notify("notifications/initialized", json!({}));
    host
}

/// The screen of a command that has ended, or is ended once it shows `until`.
fn screen(daemon: &TestDaemon, args: &[&str], rows: u16, until: Option<&str>) -> Terminal {
    let mut terminal = Terminal::run(daemon.command(args), rows, COLUMNS);
    if let Some(text) = until {
        terminal.wait_for(text);
    } else {
        terminal.wait_end();
    }
    terminal
}

/// Compares a picture with the one in `docs`, or writes it there.
fn picture(daemon: &TestDaemon, name: &str, args: &[&str], terminal: &Terminal) {
    let mut rows = terminal.with_screen(svg::rows);
    let home = daemon.path("").display().to_string();
    let home = home.trim_end_matches('/');
    let programs = Path::new(MCPD)
        .parent()
        .expect("a folder")
        .display()
        .to_string();
    // What a host's process is called is the name of this test's program, cut short.
    let ours = fs::read_to_string("/proc/self/comm").expect("our name");
    for row in &mut rows {
        svg::replace(row, ours.trim_end(), "host");
        svg::replace(row, &format!("{home}/config"), "/home/ada/.config");
        svg::replace(row, &format!("{home}/state"), "/home/ada/.local/state");
        svg::replace(row, home, "/home/ada");
        svg::replace(row, "~/config", "~/.config");
        svg::replace(row, &programs, "/usr/local/bin");
    }
    let command = format!("mcpd {}", args.join(" "));
    let made = svg::render(&command, &rows, COLUMNS);
    let path = docs().join(format!("{name}.svg"));
    if std::env::var_os("MCPD_PICTURES").is_some_and(|wish| wish == "write") {
        fs::write(&path, made).expect("the picture");
        return;
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(
        said(&kept),
        said(&made),
        "{} is not current: tests/pictures/make makes it anew\n{}",
        path.display(),
        svg::text(&rows)
    );
}

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs")
}

/// The words of a picture without those that differ from run to run or from machine to machine.
fn said(svg: &str) -> Vec<String> {
    let texts = svg.lines().filter_map(|line| {
        let (_, text) = line.split_once('>')?;
        Some(text.split('<').next().unwrap_or_default())
    });
    let texts = texts.filter(|text| {
        !["containment", "cgroup", "pid "]
            .iter()
            .any(|word| text.contains(word))
    });
    texts
        .flat_map(str::split_whitespace)
        .filter(|word| {
            word.chars()
                .all(|c| c.is_alphabetic() || "-_:.,'/".contains(c))
        })
        .filter(|word| !word.contains('/') && word.chars().any(char::is_alphabetic))
        .map(str::to_owned)
        .collect()
}

#[test]
fn the_pictures_are_current() {
    let daemon = world();
    let mut claude = host(&daemon, "github", "claude-code");
    let mut zed = host(&daemon, "github", "zed");
    claude.call("add", json!({"a": 2, "b": 3}));
    zed.call("add", json!({"a": 2, "b": 3}));
    for (name, args) in [
        ("status", &["status"][..]),
        ("status-name", &["status", "github"]),
    ] {
        let terminal = screen(&daemon, args, 60, None);
        picture(&daemon, name, args, &terminal);
    }
    let args = ["trace", "github"];
    let mut terminal = screen(&daemon, &args, 24, Some("ready"));
    claude.call("multiply", json!({"a": 6, "b": 7}));
    terminal.wait_for("multiply");
    claude.call("divide", json!({"a": 1, "b": 0}));
    zed.ask("ping", json!({}));
    let slow = json!({"name": "slow", "arguments": {"seconds": 0.2, "steps": 2}, "_meta": {"progressToken": 1}});
    zed.ask("tools/call", slow);
    claude.ask("resources/read", json!({"uri": "calculator://nothing"}));
    terminal.wait_for("error -");
    picture(&daemon, "trace", &args, &terminal);
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(terminal.pid()),
        nix::sys::signal::Signal::SIGINT,
    )
    .expect("it is there");
    terminal.wait_end();
}

#[test]
fn the_picture_of_check_is_current() {
    let home = Home::new();
    home.server(
        "github",
        "comand = \"npx\"\nargs = [\"@modelcontextprotocol/server-github\"]\n",
    );
    home.server(
        "web",
        "command = \"npx\"\nargs = [\"server-fetch\", \"--token\", \"ghp_0123456789abcdefghij\"]\nstart_timeout = \"soon\"\n",
    );
    home.program("bin/npx", "#!/bin/sh\n");
    let daemon = home.start();
    wait_until("the daemon has read them", || daemon.status());
    let terminal = screen(&daemon, &["check"], 40, None);
    picture(&daemon, "check", &["check"], &terminal);
}
