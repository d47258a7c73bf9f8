//! What the README says is true: its two commands, its tables, its links.

use std::fs;
use std::path::Path;

use crate::common::{Home, MCPD, wait_until};

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn readme() -> String {
    fs::read_to_string(repository().join("README.md")).expect("the README")
}

/// The first command, from the checkout, with an empty home: it starts the daemon and prints 5.
#[test]
fn the_first_command_prints_five() {
    assert!(readme().contains("cargo run --release -- --config . call calculator add a=2 b=3"));
    let home = Home::new();
    let mut command = home.command(&["--config", ".", "call", "calculator", "add", "a=2", "b=3"]);
    command.current_dir(repository());
    // `cargo run` puts nothing on PATH; the example finds mcpd by itself.
    let outcome = home.run(&mut command).expect_code(0);
    assert_eq!(outcome.stdout, "5\n");
    let mut shutdown = home.command(&["--config", ".", "shutdown"]);
    shutdown.current_dir(repository());
    home.run(&mut shutdown).expect_code(0);
    wait_until("nothing is left of the trial", || {
        home.processes().is_empty().then_some(())
    });
}

/// The second command is there and can be run.
#[test]
fn the_second_command_exists() {
    use std::os::unix::fs::PermissionsExt;
    assert!(readme().contains("\ntests/run\n"));
    for script in ["tests/run", "tests/sdk/install", ".ci/run"] {
        let mode = fs::metadata(repository().join(script))
            .expect(script)
            .permissions()
            .mode();
        assert_ne!(mode & 0o111, 0, "{script} can be run");
    }
    let ci = fs::read_to_string(repository().join(".ci/run")).expect(".ci/run");
    assert!(ci.contains("tests/run"), "CI runs the README's command");
    let home = Home::new();
    let help = home.run(
        home.program_command(repository().join("tests/run"))
            .arg("--help"),
    );
    assert!(help.expect_code(0).stdout.contains("usage: tests/run"));
}

/// Every command of the command line is in the README, and every key that a server file may have.
#[test]
fn the_reference_is_complete() {
    let readme = readme();
    let home = Home::new();
    let help = home.mcpd(&["--help"]).expect_code(0).stdout;
    let listed = help
        .split("Commands:")
        .nth(1)
        .unwrap_or_else(|| panic!("{help}"));
    let names = listed
        .lines()
        .skip(1)
        .take_while(|line| !line.trim().is_empty());
    for name in names
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
    {
        assert!(
            readme.contains(&format!("`{name}")),
            "`{name}` is not in the README"
        );
    }
    for key in [
        "command",
        "args",
        "cwd",
        "description",
        "enabled",
        "env",
        "env_file",
        "pass_env",
        "path",
        "inherit_env",
        "proxy_env",
        "restart",
        "start_timeout",
        "drain_timeout",
        "reload_drain_timeout",
        "stop_timeout",
        "stop_command",
        "request_timeout",
        "max_calls",
        "stable_after",
        "start_limit",
        "message_limit",
        "protocol",
        "interactive",
        "sharing",
        "memory_limit",
        "memory",
        "tasks",
        "open_files",
        "allow",
        "deny",
    ] {
        assert!(
            readme.contains(&format!("`{key}`")),
            "`{key}` is not in the README"
        );
    }
}

/// The TOML examples of the README are valid for this program.
#[test]
fn the_toml_examples_are_valid() {
    let readme = readme();
    let mut checked = 0;
    for block in readme.split("```toml\n").skip(1) {
        let toml = block.split("```").next().expect("a closed block");
        if !toml.contains("command = \"") || toml.contains("[mcp_servers") {
            continue;
        }
        let home = Home::new();
        use std::os::unix::fs::PermissionsExt;
        for name in [
            "config/mcpd/servers.d/.env",
            "config/mcpd/servers.d/github.env",
            ".secrets/api-key",
        ] {
            let path = home.write(name, "A=1\n");
            fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("the mode");
        }
        home.server("example", toml);
        // In the environment of a daemon that starts by itself: nothing but the base.
        home.mcpd(&["check"]).expect_code(0);
        checked += 1;
    }
    assert!(checked > 0, "the README shows a server file");
}

/// Every server file that the repository ships is valid.
#[test]
fn shipped_server_files_are_valid() {
    let home = Home::new();
    let mut command = home.command(&["--config", ".", "check"]);
    command.current_dir(repository());
    home.run(&mut command).expect_code(0);
    assert!(Path::new(MCPD).exists());
}

/// Relative links of the README lead somewhere.
#[test]
fn links_lead_somewhere() {
    for part in readme().split("](").skip(1) {
        let link = part.split([')', '#']).next().expect("a link");
        if !link.is_empty() && !link.contains("://") {
            assert!(repository().join(link).exists(), "{link}");
        }
    }
}
