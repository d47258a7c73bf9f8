//! Changing servers by command: `mcpd add`, `remove`, `edit`, `enable` and `disable`, with and without a daemon.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::common::{FAKE, Home, QUICK, Terminal};

fn server(home: &Home, name: &str) -> String {
    let path = home.path(&format!("config/mcpd/servers.d/{name}"));
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("the file").permissions().mode() & 0o777
}

/// An editor that runs `script` with the file as `$1`.
fn set_editor(home: &mut Home, script: &str) {
    let editor = home.program("editor", &format!("#!/bin/sh\nset -e\n{script}\n"));
    home.set_env("EDITOR", editor);
}

/// What is left in `servers.d` of an edit.
fn copies(home: &Home) -> Vec<String> {
    let entries = fs::read_dir(home.path("config/mcpd/servers.d")).expect("the folder");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    let names = names.map(|name| name.to_string_lossy().into_owned());
    names.filter(|name| name.starts_with('.')).collect()
}

#[test]
fn a_server_is_added_and_its_secrets_are_for_nobody_else() {
    let mut home = Home::new();
    home.set_env("FROM_HERE", "only here");
    let outcome = home
        .mcpd(&[
            "add",
            "web",
            "-e",
            "WEB_TOKEN=tok-123456",
            "-e",
            "LEVEL=info",
            "-e",
            "FROM_HERE",
            "--cwd",
            "state",
            "--",
            FAKE,
            "--api-key",
            "abc123",
        ])
        .expect_code(0);
    assert!(
        outcome.stdout.contains("no daemon is running"),
        "{outcome:?}"
    );
    assert!(!outcome.stdout.contains("tok-"), "{outcome:?}");
    let text = server(&home, "web.toml");
    assert!(text.starts_with("#:schema "), "{text}");
    assert!(text.contains("LEVEL = \"info\""), "{text}");
    assert!(text.contains("\"--api-key\", \"${API_KEY}\""), "{text}");
    let cwd = format!("cwd = \"{}\"", home.path("state").display());
    assert!(text.contains(&cwd), "{text}");
    let secrets = server(&home, "web.env");
    for line in [
        "WEB_TOKEN=tok-123456\n",
        "API_KEY=abc123\n",
        "FROM_HERE=\"only here\"\n",
    ] {
        assert!(secrets.contains(line), "{secrets}");
    }
    assert_eq!(mode(&home.path("config/mcpd/servers.d/web.env")), 0o600);
    home.mcpd(&["check"]).expect_code(0);
    // What is there stays unless it is meant to go.
    let again = home.mcpd(&["add", "web", "--", FAKE]).expect_code(2);
    assert!(again.stderr.contains("mcpd edit web"), "{again:?}");
    assert_eq!(server(&home, "web.toml"), text);
    home.mcpd(&["add", "web", "--force", "--", FAKE])
        .expect_code(0);
    assert_ne!(server(&home, "web.toml"), text);
}

#[test]
fn a_server_that_cannot_be_is_not_added() {
    let home = Home::new();
    for (args, code, part) in [
        (
            &["add", "no/name", "--", "x"][..],
            2,
            "begins with a letter",
        ),
        (
            &["add", "x", "-e", "UNSET", "--", "x"],
            2,
            "is not set here",
        ),
        (
            &["add", "x", "--", "npx -y server"],
            78,
            "args = [\"-y\", \"server\"]",
        ),
        (&["add", "x"], 2, "COMMAND"),
    ] {
        let outcome = home.mcpd(args).expect_code(code);
        assert!(outcome.stderr.contains(part), "{outcome:?}");
    }
    assert_eq!(
        fs::read_dir(home.path("config/mcpd/servers.d"))
            .expect("it")
            .count(),
        0
    );
    // One that may be is added, and what it lacks is said.
    let outcome = home.mcpd(&["add", "x", "--", "npx-nowhere"]).expect_code(0);
    assert!(outcome.stderr.contains("is not on PATH"), "{outcome:?}");
}

#[test]
fn the_daemon_follows_at_once() {
    let home = Home::new();
    home.server("other", "command = \"npx-nowhere\"\n");
    let daemon = home.start();
    let record = daemon.path("record/web");
    let record = record.to_str().expect("a plain path");
    let outcome = daemon
        .mcpd(&["add", "web", "--", FAKE, "--record", record])
        .expect_code(0);
    assert!(outcome.stdout.ends_with("web: running\n"), "{outcome:?}");
    let outcome = daemon.mcpd(&["disable", "web"]).expect_code(0);
    assert!(
        outcome.stdout.contains("web: stopped disabled"),
        "{outcome:?}"
    );
    let outcome = daemon.mcpd(&["disable", "web"]).expect_code(0);
    assert_eq!(outcome.stdout, "web: disabled already\n");
    let outcome = daemon
        .mcpd(&["enable", "web", "--json"])
        .expect_code(0)
        .json();
    assert_eq!(outcome["changes"][0]["done"], "enabled", "{outcome}");
    assert_eq!(outcome["changes"][0]["state"], "running", "{outcome}");
    assert_eq!(outcome["daemon"], true);
    // A server that fails is told with its reason.
    let outcome = daemon
        .mcpd(&["add", "bad", "--", "npx-nowhere"])
        .expect_code(3);
    assert!(outcome.stdout.contains("bad: failed"), "{outcome:?}");
    daemon.mcpd(&["remove", "web", "bad"]).expect_code(0);
    daemon.mcpd(&["status", "web"]).expect_code(3);
}

#[test]
fn removed_servers_can_come_back() {
    let home = Home::new();
    home.mcpd(&["add", "a", "-e", "A_KEY=k", "--", FAKE])
        .expect_code(0);
    home.server(
        "b",
        &format!("command = \"{FAKE}\"\nenv_file = \"a.env\"\n"),
    );
    let text = server(&home, "a.toml");
    let unknown = home.mcpd(&["remove", "a", "bb"]).expect_code(2);
    assert!(
        unknown.stderr.contains("did you mean \"b\"?"),
        "{unknown:?}"
    );
    // Another server uses its secrets, so that they stay.
    home.mcpd(&["remove", "a"]).expect_code(0);
    assert!(!home.path("config/mcpd/servers.d/a.toml").exists());
    assert!(server(&home, "a.env").contains("A_KEY=k"));
    home.server("a", &text);
    let outcome = home.mcpd(&["remove", "a", "b"]).expect_code(0);
    let folder = home.path("config/mcpd/servers.d");
    assert_eq!(fs::read_dir(&folder).expect("it").count(), 0);
    // The lines that it says bring everything back.
    for line in outcome
        .stdout
        .lines()
        .filter(|line| line.starts_with("  cp "))
    {
        let mut shell = home.program_command("/bin/sh");
        home.run(shell.args(["-c", line])).expect_code(0);
    }
    assert_eq!(server(&home, "a.toml"), text);
    assert_eq!(mode(&folder.join("a.env")), 0o600);
    home.mcpd(&["check"]).expect_code(0);
}

#[test]
fn one_key_changes_and_nothing_else() {
    let home = Home::new();
    let text = format!("# mine\r\ncommand = \"{FAKE}\"  # it\r\n\r\n[env]\r\nA = \"1\"\r\n");
    let real = home.write("dotfiles/x.toml", &text);
    let link = home.path("config/mcpd/servers.d/x.toml");
    std::os::unix::fs::symlink(&real, &link).expect("a link");
    home.mcpd(&["disable", "x"]).expect_code(0);
    assert!(fs::symlink_metadata(&link).expect("it").is_symlink());
    let expected = text.replace("# it\r\n", "# it\r\nenabled = false\r\n");
    assert_eq!(server(&home, "x.toml"), expected);
    home.mcpd(&["enable", "x"]).expect_code(0);
    assert_eq!(server(&home, "x.toml"), expected.replace("false", "true"));
    home.server("broken", "command = 1\n");
    let outcome = home.mcpd(&["disable", "x", "broken"]).expect_code(78);
    assert!(outcome.stderr.contains("broken.toml:1:11"), "{outcome:?}");
    assert_eq!(server(&home, "x.toml"), expected.replace("false", "true"));
}

#[test]
fn an_edit_counts_only_if_it_is_valid() {
    let mut home = Home::new();
    let text = format!("command = \"{FAKE}\"\n{QUICK}");
    home.server("x", &text);
    set_editor(&mut home, "true");
    let outcome = home.mcpd(&["edit", "x"]).expect_code(0);
    assert_eq!(outcome.stdout, "nothing was changed\n");
    set_editor(&mut home, "echo 'comand = 1' >> \"$1\"");
    let outcome = home.mcpd(&["edit", "x"]).expect_code(78);
    assert!(
        outcome.stderr.contains("did you mean `command`?"),
        "{outcome:?}"
    );
    assert_eq!(server(&home, "x.toml"), text);
    let kept = copies(&home);
    assert_eq!(kept.len(), 1, "{kept:?}");
    assert!(outcome.stderr.contains(&kept[0]), "{outcome:?}");
    assert!(server(&home, &kept[0]).ends_with("comand = 1\n"));
    fs::remove_file(home.path("config/mcpd/servers.d").join(&kept[0])).expect("the copy");
    set_editor(&mut home, "echo '# good' >> \"$1\"");
    home.mcpd(&["edit", "x"]).expect_code(0);
    assert_eq!(server(&home, "x.toml"), format!("{text}# good\n"));
    set_editor(&mut home, "exit 3");
    home.mcpd(&["edit", "x"]).expect_code(3);
    home.mcpd(&["edit", "y"]).expect_code(2);
    assert_eq!(copies(&home), Vec::<String>::new());
}

#[test]
fn an_edit_never_overwrites_what_another_wrote_meanwhile() {
    let mut home = Home::new();
    let file = home.server("x", &format!("command = \"{FAKE}\"\n"));
    let script = format!(
        "echo '# other' >> {}\necho '# mine' >> \"$1\"",
        file.display()
    );
    set_editor(&mut home, &script);
    let outcome = home.mcpd(&["edit", "x"]).expect_code(78);
    assert!(outcome.stderr.contains("changed by another"), "{outcome:?}");
    assert!(server(&home, "x.toml").ends_with("# other\n"));
    assert_eq!(copies(&home).len(), 1);
}

#[test]
fn a_terminal_is_asked_whether_to_edit_again() {
    let mut home = Home::new();
    home.server("x", &format!("command = \"{FAKE}\"\n"));
    // Wrong at first, right the second time.
    let script = "if grep -q wrong \"$1\"; then sed -i 's/^wrong.*/# right/' \"$1\"; else echo 'wrong = 1' >> \"$1\"; fi";
    set_editor(&mut home, script);
    let mut terminal = Terminal::run(home.command(&["edit", "x"]), 24, 100);
    let screen = terminal.wait_for("Edit again?");
    assert!(screen.contains("unknown key `wrong`"), "{screen}");
    terminal.type_keys("\n");
    let (status, screen) = terminal.wait_end();
    assert!(status.success(), "{screen}");
    assert!(server(&home, "x.toml").ends_with("# right\n"));
    assert_eq!(copies(&home), Vec::<String>::new());
}
