//! What makes mcpd a part of a person's shell and editor: completions, manual pages, schemas.

use std::fs;

use serde_json::Value;

use crate::common::Home;

/// A shell is told the servers of that moment, and the commands.
#[test]
fn a_shell_is_told_commands_and_servers() {
    let home = Home::new();
    home.fake("github", &[]);
    home.server("broken", "no toml at all");
    let told = |words: &[&str]| {
        let mut command = home.command(&["--"]);
        command.args(words);
        command.env("MCPD_COMPLETE", "bash");
        command.env("_CLAP_COMPLETE_INDEX", (words.len() - 1).to_string());
        command.env("_CLAP_IFS", "\n");
        let outcome = home.run(&mut command).expect_code(0);
        assert_eq!(outcome.stderr, "");
        outcome.stdout
    };
    let servers = told(&["mcpd", "status", ""]);
    assert!(
        servers.contains("github") && servers.contains("broken"),
        "{servers}"
    );
    assert!(told(&["mcpd", "rest"]).contains("restart"));
    assert!(!home.control_socket().exists(), "nothing is started for it");
    for shell in ["bash", "zsh", "fish"] {
        let script = home.mcpd(&["completions", shell]).expect_code(0).stdout;
        assert!(script.contains("MCPD_COMPLETE"), "{script}");
    }
}

/// Each command has a manual page, made from the words of its `--help`.
#[test]
fn each_command_has_a_manual_page() {
    let home = Home::new();
    let page = home.mcpd(&["man"]).expect_code(0).stdout;
    assert!(page.contains(".TH mcpd 1"), "{page}");
    for command in ["status", "connect", "hosts", "add"] {
        let page = home.mcpd(&["man", command]).expect_code(0).stdout;
        assert!(page.contains(&format!(".TH mcpd-{command} 1")), "{page}");
    }
    let page = home.mcpd(&["man", "hosts", "use"]).expect_code(0).stdout;
    assert!(page.contains(".TH mcpd-hosts-use 1"), "{page}");
    let refused = home.mcpd(&["man", "nothing"]).expect_code(2).stderr;
    assert!(refused.contains("\"nothing\""), "{refused}");
}

/// The version has the number that scripts look for, and the commit where it is known.
#[test]
fn the_version_has_number_and_commit() {
    let home = Home::new();
    let said = home.mcpd(&["--version"]).expect_code(0).stdout;
    let number = format!("mcpd {}", env!("CARGO_PKG_VERSION"));
    let rest = said.strip_prefix(&number).expect("the number leads").trim();
    assert!(
        rest.is_empty() || (rest.starts_with('(') && rest.ends_with(')')),
        "{said}"
    );
}

fn schema(home: &Home, what: &str) -> jsonschema::Validator {
    let text = home.mcpd(&["schema", what]).expect_code(0).stdout;
    let schema: Value = serde_json::from_str(&text).expect("JSON");
    jsonschema::validator_for(&schema).expect("a schema")
}

/// What `status --json` prints, of servers in many states, keeps to its schema.
#[test]
fn status_keeps_to_its_schema() {
    let home = Home::new();
    home.fake("good", &[]);
    home.fake("bad", &["--exit", "1"]);
    home.server("missing", "command = \"/no/such/program\"\n");
    home.server("broken", "comand = 1\n");
    let schema = schema(&home, "status");
    let daemon = home.start();
    daemon.wait_for_state("good", "running");
    daemon.wait_for_state("bad", "backoff");
    daemon.wait_for_state("missing", "failed");
    let mut host = daemon.connect_host("good");
    host.initialize();
    let status = daemon.mcpd(&["status", "--json"]).json();
    assert!(
        status["servers"]
            .as_array()
            .is_some_and(|all| all.len() >= 3)
    );
    if let Err(error) = schema.validate(&status) {
        panic!("{error} at {}", error.instance_path());
    }
}

/// The example of the repository keeps to the schema of a server's file, a wrong key does not.
#[test]
fn a_servers_file_keeps_to_its_schema() {
    let home = Home::new();
    let schema = schema(&home, "config");
    let read = |text: &str| -> Value { toml::from_str(text).expect("TOML") };
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/servers.d/calculator.toml");
    let example = fs::read_to_string(example).expect("it is there");
    assert!(schema.is_valid(&read(&example)));
    assert!(schema.is_valid(&read(
        "command = \"x\"\nidle_stop = \"5m\"\n[limits]\nmemory = \"1GiB\"\n"
    )));
    assert!(!schema.is_valid(&read("comand = \"x\"\n")));
    assert!(!schema.is_valid(&read("command = \"x\"\nstart = \"never\"\n")));
}
