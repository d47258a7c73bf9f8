//! Calling by hand: schemas as people read them, arguments in all their forms, and the person at the
//! terminal while a call runs.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::common::{Home, Terminal};

const EXAMPLE: &str = "command = \"mcpd\"\nargs = [\"example-server\"]\n";

/// A tool in full: what it does, what it takes, how it is called.
#[test]
fn a_tool_is_shown_in_full() {
    let home = Home::new();
    home.server("calculator", EXAMPLE);
    let daemon = home.start();
    let page = daemon
        .mcpd(&["tools", "calculator", "divide"])
        .expect_code(0);
    for part in [
        "divide",
        "Arguments",
        "number, required",
        "mcpd call calculator divide a=1 b=1",
    ] {
        assert!(page.stdout.contains(part), "{part}: {}", page.stdout);
    }
    let raw = daemon
        .mcpd(&["tools", "calculator", "divide", "--json"])
        .json();
    assert_eq!(raw["name"], "divide");
    assert_eq!(raw["inputSchema"]["properties"]["a"]["type"], "number");
    let unknown = daemon
        .mcpd(&["tools", "calculator", "divid"])
        .expect_code(1);
    assert!(
        unknown.stderr.contains("did you mean \"divide\"?"),
        "{}",
        unknown.stderr
    );
}

/// Arguments as words, members of objects, JSON, files, and standard input.
#[test]
fn arguments_can_be_given_in_many_ways() {
    let home = Home::new();
    home.fake("alpha", &[]);
    let text = home.write("text", "from a file");
    let daemon = home.start();
    let file = format!("file=@{}", text.display());
    let words = [
        "call",
        "alpha",
        "echo",
        "a.b=1",
        "none:=null",
        "list:=[1, \"x\"]",
        &file,
    ];
    let said = daemon.mcpd(&words).expect_code(0).stdout;
    let echoed: serde_json::Value = serde_json::from_str(&said).expect("the arguments");
    let expected = json!({"a": {"b": 1}, "none": null, "list": [1, "x"], "file": "from a file"});
    assert_eq!(echoed, expected);
    let mut command = daemon.command(&["call", "alpha", "echo", "-"]);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin
        .write_all(b"{\"deep\":\n{\"a\":[]}}")
        .expect("the arguments");
    drop(stdin);
    let output = child.wait_with_output().expect("its end");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout).trim(),
        r#"{"deep": {"a":[]}}"#
    );
    let gone = daemon
        .mcpd(&["call", "alpha", "echo", "a=@/no/such/file"])
        .expect_code(2);
    assert!(gone.stderr.contains("/no/such/file"), "{}", gone.stderr);
}

/// Images go into the file or folder that was named, and are told of otherwise.
#[test]
fn images_are_kept() {
    let home = Home::new();
    home.fake("alpha", &[]);
    let daemon = home.start();
    let told = daemon
        .mcpd(&["call", "alpha", "image", "bytes=3"])
        .expect_code(0);
    assert_eq!(told.stdout, "[image image/png, 3 bytes: --save keeps it]\n");
    let file = daemon.path("shot.png");
    let path = file.to_str().expect("a plain path");
    let kept = daemon
        .mcpd(&["call", "alpha", "image", "bytes=300", "--save", path])
        .expect_code(0);
    assert!(
        kept.stdout.contains(&format!("kept in {path}")),
        "{}",
        kept.stdout
    );
    assert_eq!(fs::read(&file).expect("the image").len(), 300);
    let folder = format!("{}/", daemon.path("shots").display());
    daemon
        .mcpd(&["call", "alpha", "image", "--save", &folder])
        .expect_code(0);
    assert!(daemon.path("shots/image-1.png").exists());
}

/// Progress is a bar on a terminal that leaves nothing behind, and a line each where it is piped.
#[test]
fn progress_is_shown() {
    let home = Home::new();
    home.fake("alpha", &[]);
    let daemon = home.start();
    let piped = daemon
        .mcpd(&["call", "alpha", "progress", "n=3", "ms=1"])
        .expect_code(0);
    assert_eq!(
        piped.stderr,
        "progress 1/3: step 1\nprogress 2/3: step 2\nprogress 3/3: step 3\n"
    );
    let quiet = daemon
        .mcpd(&["-q", "call", "alpha", "progress", "n=3", "ms=1"])
        .expect_code(0);
    assert_eq!(quiet.stderr, "");
    let command = daemon.command(&["call", "alpha", "progress", "n=100", "ms=30"]);
    let mut terminal = Terminal::run(command, 24, 80);
    terminal.wait_for("[#####");
    let (status, screen) = terminal.wait_end();
    assert_eq!(status.code(), Some(0));
    assert!(!screen.contains('#') && !screen.contains('%'), "{screen}");
}

/// Ctrl-C cancels the call at the server, and the command says so by its exit code.
#[test]
fn ctrl_c_cancels_the_call() {
    let home = Home::new();
    home.fake("alpha", &[]);
    let daemon = home.start();
    let command = daemon.command(&["call", "alpha", "sleep", "ms=600000"]);
    let mut terminal = Terminal::run(command, 24, 80);
    daemon.record("alpha").wait_for("tools/call", 1);
    kill(Pid::from_raw(terminal.pid()), Signal::SIGINT).expect("the signal");
    let (status, screen) = terminal.wait_end();
    assert_eq!(status.code(), Some(130), "{screen}");
    assert!(screen.contains("interrupted"), "{screen}");
    let cancelled = daemon
        .record("alpha")
        .wait_for("notifications/cancelled", 1);
    assert_eq!(cancelled[0]["params"]["reason"], "interrupted by the user");
    daemon
        .mcpd(&["call", "alpha", "sum", "a=1", "b=2"])
        .expect_code(0);
}

/// A question of the server is put at the terminal; what does not fit is asked again; without a terminal
/// it is declined aloud.
#[test]
fn questions_are_answered_at_the_terminal() {
    let home = Home::new();
    home.server("calculator", EXAMPLE);
    let daemon = home.start();
    let greet = ["call", "calculator", "greet"];
    let mut terminal = Terminal::run(daemon.command(&greet), 24, 80);
    terminal.wait_for("Your name (required):");
    terminal.type_keys("\n");
    terminal.wait_for("an answer is needed here");
    terminal.type_keys("Ada\n");
    terminal.wait_for("hello, Ada");
    assert_eq!(terminal.wait_end().0.code(), Some(0));
    let mut terminal = Terminal::run(daemon.command(&greet), 24, 80);
    terminal.wait_for("calculator asks: What is your name?");
    terminal.type_keys("\u{4}");
    terminal.wait_for("hello, whoever you are");
    assert_eq!(terminal.wait_end().0.code(), Some(0));
    let mut terminal = Terminal::run(daemon.command(&greet), 24, 80);
    terminal.wait_for("Your name (required):");
    kill(Pid::from_raw(terminal.pid()), Signal::SIGINT).expect("the signal");
    assert_eq!(terminal.wait_end().0.code(), Some(130));
    let piped = daemon.mcpd(&greet).expect_code(0);
    assert_eq!(piped.stdout, "hello, whoever you are\n");
    assert!(
        piped
            .stderr
            .contains("declined, because there is no terminal"),
        "{}",
        piped.stderr
    );
}

/// A server of the legacy era may ask too, where its file says so: a place to visit, the folders; a model
/// is not offered.
#[test]
fn a_legacy_server_may_ask_for_consent_and_folders() {
    let home = Home::new();
    home.fake_with(
        "alpha",
        &[],
        &format!("{}interactive = true\n", crate::common::QUICK),
    );
    let daemon = home.start();
    let roots = daemon
        .mcpd(&["call", "alpha", "ask", "method=roots/list"])
        .expect_code(0);
    assert!(roots.stdout.contains("file:///"), "{}", roots.stdout);
    let sampled = daemon
        .mcpd(&["call", "alpha", "ask", "method=sampling/createMessage"])
        .stdout;
    assert!(sampled.contains("-32601"), "{sampled}");
    let params = json!({
        "mode": "url", "message": "Please log in", "url": "https://example.org/login",
        "elicitationId": "1",
    });
    let params = format!("params:={params}");
    let ask = ["call", "alpha", "ask", "method=elicitation/create", &params];
    let mut terminal = Terminal::run(daemon.command(&ask), 24, 80);
    let screen = terminal.wait_for("will you? (y or n)");
    assert!(screen.contains("https://example.org/login"), "{screen}");
    terminal.type_keys("y\n");
    terminal.wait_for("accept");
    assert_eq!(terminal.wait_end().0.code(), Some(0));
}

/// A reader that leaves early is no failure of the call.
#[test]
fn a_closed_pipe_is_silent() {
    let home = Home::new();
    home.fake("alpha", &[]);
    let daemon = home.start();
    let mut piped = daemon.program_command("sh");
    let line = "{ \"$MCPD\" call alpha big bytes=1000000; echo \"code $?\" >&2; } | head -c 3";
    piped.args(["-c", line]).env("MCPD", crate::common::MCPD);
    let outcome = daemon.run(&mut piped).expect_code(0);
    assert_eq!(
        (outcome.stdout.as_str(), outcome.stderr.as_str()),
        ("bbb", "code 0\n")
    );
}
