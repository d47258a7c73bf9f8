//! Moving in and out: `mcpd import`, `mcpd hosts`, `mcpd hosts use` and `undo`, on homes with the files of
//! real hosts.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::common::{Home, MCPD};

const CURSOR: &str = r#"{
  // my servers
  "mcpServers": {
    "github": {
      "command": "npx",
      "args": ["-y", "@modelcontextprotocol/server-github"],
      "env": { "GITHUB_TOKEN": "ghp_0123456789abcdefghij" },
    },
    "linear": { "url": "https://mcp.linear.app/mcp?key=secret" },
    "prompted": { "command": "p", "env": { "K": "${input:key}" } }
  }
}
"#;

const CLAUDE: &str = r#"{
  "numStartups": 3,
  "mcpServers": {
    "GitHub": {"type": "stdio", "command": "npx", "args": ["-y", "@modelcontextprotocol/server-github"], "env": {"GITHUB_TOKEN": "ghp_0123456789abcdefghij"}},
    "files": {"type": "stdio", "command": "npx", "args": ["-y", "files", "--api-key", "abc123"], "env": {}}
  }
}
"#;

const CODEX: &str = "model = \"x\" # fast\n\n[mcp_servers.files]\ncommand = \"npx\"\nargs = [\"-y\", \"other-files\"]\n\n[mcp_servers.files.env]\nLEVEL = \"2\"\n";

/// A home with three hosts.
fn home() -> Home {
    let home = Home::new();
    home.write(".cursor/mcp.json", CURSOR);
    home.write(".claude.json", CLAUDE);
    home.write(".codex/config.toml", CODEX);
    home
}

fn read(home: &Home, name: &str) -> String {
    fs::read_to_string(home.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn server(home: &Home, name: &str) -> String {
    read(home, &format!("config/mcpd/servers.d/{name}"))
}

#[test]
fn servers_move_in_and_their_files_are_right() {
    let home = home();
    let outcome = home.mcpd(&["import"]).expect_code(0);
    assert!(!outcome.stdout.contains("ghp_0123"), "{}", outcome.stdout);
    assert!(!outcome.stdout.contains("secret\""), "{}", outcome.stdout);
    let github = server(&home, "GitHub.toml");
    assert!(
        github.starts_with("#:schema ../server.schema.json\n"),
        "{github}"
    );
    assert!(github.contains("env_file = \"GitHub.env\""), "{github}");
    assert!(home.path("config/mcpd/server.schema.json").exists());
    let secrets = home.path("config/mcpd/servers.d/GitHub.env");
    let mode = fs::metadata(&secrets)
        .expect("the secrets")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(server(&home, "GitHub.env").contains("GITHUB_TOKEN=ghp_0123456789abcdefghij\n"));
    assert!(server(&home, "files.toml").contains("\"--api-key\", \"${API_KEY}\""));
    assert!(server(&home, "files-codex.toml").contains("LEVEL = \"2\""));
    home.mcpd(&["check"]).expect_code(0);
    // A second time there is nothing to do, and nothing is touched.
    let again = home.mcpd(&["import"]).expect_code(0);
    assert!(again.stdout.contains("there already"), "{}", again.stdout);
    assert!(!again.stdout.contains("written"), "{}", again.stdout);
    for (name, text) in [(".cursor/mcp.json", CURSOR), (".claude.json", CLAUDE)] {
        assert_eq!(read(&home, name), text);
    }
}

#[test]
fn a_dry_run_writes_nothing_and_another_file_stays() {
    let home = home();
    home.mcpd(&["import", "--dry-run"]).expect_code(0);
    let count = |home: &Home| {
        let entries = fs::read_dir(home.path("config/mcpd/servers.d"));
        entries.expect("the folder").count()
    };
    assert_eq!(count(&home), 0);
    home.server("files", "command = \"mine\"\n");
    let outcome = home.mcpd(&["import"]).expect_code(1);
    assert!(
        outcome.stdout.contains("another is there"),
        "{}",
        outcome.stdout
    );
    assert_eq!(server(&home, "files.toml"), "command = \"mine\"\n");
    home.mcpd(&["import", "--force"]).expect_code(0);
    assert!(server(&home, "files.toml").contains("\"npx\""));
}

#[test]
fn what_cannot_be_carried_has_its_reason() {
    let home = home();
    let outcome = home.mcpd(&["--json", "import", "cursor"]).expect_code(0);
    let report = outcome.json();
    let reason = |name: &str| {
        let left = report["left"].as_array().expect("a list");
        let is_it = |one: &&serde_json::Value| one["from"]["entry"][1] == name;
        let one = left.iter().find(is_it).expect(name);
        one["reason"].as_str().expect("a reason").to_owned()
    };
    assert_eq!(reason("linear"), "is not local: https://mcp.linear.app/mcp");
    assert!(reason("prompted").contains("mcpd asks nobody"));
}

#[test]
fn a_broken_file_is_named_and_the_others_count() {
    let home = home();
    home.write("config/zed/settings.json", "{\n  \"a\": 1\n  \"b\": 2\n}\n");
    let outcome = home.mcpd(&["import"]).expect_code(1);
    assert!(
        outcome.stdout.contains("zed/settings.json"),
        "{}",
        outcome.stdout
    );
    assert!(outcome.stdout.contains("line 2"), "{}", outcome.stdout);
    assert!(outcome.stdout.contains("GitHub"), "{}", outcome.stdout);
}

#[test]
fn variables_of_the_terminal_become_secrets_of_the_server() {
    let mut home = Home::new();
    home.write(
        ".cursor/mcp.json",
        r#"{"mcpServers": {"api": {"command": "api", "args": ["--t=${env:API_T}"], "env": {"API_T": "${env:API_T}"}}}}"#,
    );
    let outcome = home.mcpd(&["import"]).expect_code(0);
    assert!(
        outcome.stdout.contains("is not set here"),
        "{}",
        outcome.stdout
    );
    home.set_env("API_T", "from the terminal");
    home.mcpd(&["import"]).expect_code(0);
    assert!(server(&home, "api.env").contains("API_T=\"from the terminal\"\n"));
    home.remove_env("API_T");
    home.mcpd(&["check"]).expect_code(0);
}

#[test]
fn hosts_use_mcpd_and_go_back_to_the_byte() {
    let home = home();
    home.mcpd(&["import"]).expect_code(0);
    for host in ["cursor", "claude-code", "codex"] {
        home.mcpd(&["hosts", "use", host]).expect_code(0);
    }
    let cursor = read(&home, ".cursor/mcp.json");
    assert!(cursor.contains("// my servers"), "{cursor}");
    assert!(cursor.contains("[\"connect\", \"GitHub\"]"), "{cursor}");
    assert!(
        cursor.contains(MCPD),
        "not on PATH, so with its path: {cursor}"
    );
    assert!(!cursor.contains("ghp_"), "{cursor}");
    assert!(cursor.contains("linear.app"), "{cursor}");
    let codex = read(&home, ".codex/config.toml");
    assert!(
        codex.contains("args = [\"connect\", \"files-codex\"]"),
        "{codex}"
    );
    assert!(codex.starts_with("model = \"x\" # fast\n"), "{codex}");
    let listed = home.mcpd(&["hosts"]).expect_code(0);
    assert_eq!(
        listed.stdout.matches("mcpd connect").count(),
        4,
        "{}",
        listed.stdout
    );
    for host in ["cursor", "claude-code", "codex"] {
        home.mcpd(&["hosts", "undo", host]).expect_code(0);
    }
    assert_eq!(read(&home, ".cursor/mcp.json"), CURSOR);
    assert_eq!(read(&home, ".claude.json"), CLAUDE);
    assert_eq!(read(&home, ".codex/config.toml"), CODEX);
    home.mcpd(&["hosts", "undo", "cursor"]).expect_code(2);
}

#[test]
fn undo_keeps_what_others_changed() {
    let home = home();
    home.mcpd(&["import"]).expect_code(0);
    home.mcpd(&["hosts", "use", "cursor"]).expect_code(0);
    home.mcpd(&["hosts", "use", "codex"]).expect_code(0);
    let cursor = read(&home, ".cursor/mcp.json");
    let theirs = cursor
        .replace("\"linear\"", "\"lin ear\"")
        .replace("// my", "// our");
    home.write(".cursor/mcp.json", &theirs);
    let codex = read(&home, ".codex/config.toml");
    home.write(
        ".codex/config.toml",
        format!("{codex}\n[mcp_servers.new]\ncommand = \"new\"\n"),
    );
    home.mcpd(&["hosts", "undo", "cursor"]).expect_code(0);
    home.mcpd(&["hosts", "undo", "codex"]).expect_code(0);
    let expected = CURSOR
        .replace("\"linear\"", "\"lin ear\"")
        .replace("// my", "// our");
    assert_eq!(read(&home, ".cursor/mcp.json"), expected);
    let expected = format!("{CODEX}\n[mcp_servers.new]\ncommand = \"new\"\n");
    assert_eq!(read(&home, ".codex/config.toml"), expected);
}

#[test]
fn an_entry_that_starts_something_else_now_is_left_alone() {
    let home = home();
    home.mcpd(&["import"]).expect_code(0);
    home.mcpd(&["hosts", "use", "cursor"]).expect_code(0);
    let theirs = r#"{"mcpServers": {"github": {"command": "mine"}}}"#;
    home.write(".cursor/mcp.json", theirs);
    let outcome = home.mcpd(&["hosts", "undo", "cursor"]).expect_code(0);
    assert!(
        outcome.stdout.contains("something else"),
        "{}",
        outcome.stdout
    );
    assert_eq!(read(&home, ".cursor/mcp.json"), theirs);
}

#[test]
fn a_server_is_added_to_a_host_that_lacks_it_and_taken_away_again() {
    let home = Home::new();
    home.server("calc", "command = \"mcpd\"\nargs = [\"example-server\"]\n");
    for (host, file, keys) in [
        ("cursor", ".cursor/mcp.json", "mcpServers"),
        ("vscode", "config/Code/User/mcp.json", "servers"),
        ("zed", "config/zed/settings.json", "context_servers"),
        ("codex", ".codex/config.toml", "mcp_servers"),
        ("opencode", "config/opencode/opencode.json", "mcp"),
    ] {
        home.mcpd(&["hosts", "use", host, "calc"]).expect_code(0);
        let text = read(&home, file);
        assert!(text.contains(keys) && text.contains("calc"), "{text}");
        let outcome = home.mcpd(&["hosts", "use", host, "calc"]).expect_code(0);
        assert!(outcome.stdout.contains("already"), "{}", outcome.stdout);
        assert_eq!(read(&home, file), text);
        home.mcpd(&["hosts", "undo", host]).expect_code(0);
        assert!(!home.path(file).exists(), "{host}");
    }
    let outcome = home
        .mcpd(&["hosts", "use", "cursor", "calk"])
        .expect_code(2);
    assert!(
        outcome.stderr.contains("did you mean \"calc\""),
        "{}",
        outcome.stderr
    );
    let outcome = home.mcpd(&["hosts", "use", "emacs"]).expect_code(2);
    assert!(outcome.stderr.contains("claude-code"), "{}", outcome.stderr);
}

#[test]
fn links_and_modes_of_a_hosts_file_stay() {
    let home = home();
    home.mcpd(&["import"]).expect_code(0);
    let real = home.path("dotfiles.json");
    fs::rename(home.path(".cursor/mcp.json"), &real).expect("the move");
    fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).expect("the mode");
    std::os::unix::fs::symlink(&real, home.path(".cursor/mcp.json")).expect("the link");
    home.mcpd(&["hosts", "use", "cursor"]).expect_code(0);
    let found = fs::symlink_metadata(home.path(".cursor/mcp.json")).expect("the link");
    assert!(found.is_symlink());
    let mode = fs::metadata(&real).expect("the file").permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
    assert!(read(&home, "dotfiles.json").contains("connect"));
}

/// Claude Code writes its file itself while it runs: it is asked to, where no secret would stand in an
/// argument.
#[test]
fn a_running_claude_code_is_told_by_its_own_command() {
    let mut home = home();
    home.mcpd(&["import"]).expect_code(0);
    // Its command, which notes what it is asked and writes what it would write.
    let script = "#!/bin/sh\n[ \"$1\" = mcp ] || { read end; exit; }\n\
        printf '%s\\n' \"$*\" >> ~/asked\n[ \"$2\" = remove ] || cp ~/after.json ~/.claude.json\n";
    home.program("bin/claude", script);
    let connect = |name: &str| {
        format!(r#"{{"type": "stdio", "command": "mcpd", "args": ["connect", "{name}"]}}"#)
    };
    let (github, files) = (connect("GitHub"), connect("files"));
    home.write(
        "after.json",
        format!(r#"{{"mcpServers": {{"GitHub": {github}, "files": {files}}}}}"#),
    );
    let path = format!("{}:/usr/bin:/bin", home.path("bin").display());
    home.set_env("PATH", path);
    let mut running = home
        .program_command(home.path("bin/claude"))
        .stdin(std::process::Stdio::piped())
        .spawn()
        .expect("it runs");
    let outcome = home.mcpd(&["hosts", "use", "claude-code"]);
    running.kill().ok();
    running.wait().ok();
    let outcome = outcome.expect_code(0);
    assert!(
        outcome.stdout.contains("its own command"),
        "{}",
        outcome.stdout
    );
    let asked = read(&home, "asked");
    assert!(
        asked.contains("mcp remove --scope user -- GitHub\n"),
        "{asked}"
    );
    assert!(
        asked.contains("mcp add-json --scope user -- GitHub {"),
        "{asked}"
    );
    assert!(!asked.contains("ghp_"), "{asked}");
}

/// What a pipe gets, whole, with and without colour. What a terminal of 80 or 120 columns gets is tested
/// beside the code.
#[test]
fn the_tables_of_import_and_hosts() {
    let home = home();
    let mut shown = String::new();
    for color in ["never", "always"] {
        for command in [&["import", "-n"][..], &["hosts"]] {
            let mut args = vec!["--color", color];
            args.extend(command);
            let outcome = home.mcpd(&args).expect_code(0);
            let text = outcome.normalised().replace('\u{1b}', "\\e");
            shown.push_str(&format!("$ mcpd {}\n{text}\n", args.join(" ")));
        }
    }
    insta::assert_snapshot!(shown);
}
