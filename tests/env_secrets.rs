//! The environment of a child: what it gets, what it never gets, and that no secret shows anywhere.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Map, Value, json};

use crate::common::{
    FAKE, Home, QUICK, TestDaemon, error_code, initialize_params, quoted, text_of, wait_until,
};

/// The environment of a fake as it sees it itself.
fn environment(daemon: &TestDaemon, name: &str) -> Map<String, Value> {
    let mut host = daemon.socket_host(name);
    host.initialize();
    let answer = host.call("env", json!({}));
    answer["result"]["structuredContent"]
        .as_object()
        .expect("variables")
        .clone()
}

/// C096: a child gets a stated list and its own variables, and nothing of another server or the daemon.
#[test]
fn a_child_sees_its_own_secrets_only() {
    let mut home = Home::new();
    for (name, value) in [
        ("SECRET_A", "one"),
        ("NOTIFY_SOCKET", "/run/x"),
        ("LISTEN_FDS", "1"),
        ("LISTEN_PID", "1"),
        ("LISTEN_FDNAMES", "x"),
        ("WATCHDOG_USEC", "1"),
        ("WATCHDOG_PID", "1"),
        ("INVOCATION_ID", "abc"),
        ("JOURNAL_STREAM", "8:1"),
        ("SYSTEMD_EXEC_PID", "1"),
        ("CREDENTIALS_DIRECTORY", "/run/credentials/x"),
        ("LC_TIME", "C"),
        ("TZ", "Europe/Vienna"),
    ] {
        home.set_env(name, value);
    }
    home.fake_with("one", &[], "[env]\nSECRET_B = \"two\"\n");
    home.fake("two", &[]);
    home.fake_with("three", &[], "pass_env = [\"SECRET_A\"]\n");
    home.fake_with("all", &[], "inherit_env = true\n");
    let daemon = home.start();
    let one = environment(&daemon, "one");
    assert_eq!(one["SECRET_B"], "two");
    let two = environment(&daemon, "two");
    for seen in [&one, &two] {
        assert_eq!(seen["TZ"], "Europe/Vienna");
        assert_eq!(seen["LC_TIME"], "C");
        assert!(
            seen["MCPD_INSTANCE"]
                .as_str()
                .is_some_and(|text| text.contains('/')),
            "{seen:?}"
        );
        assert!(!seen.contains_key("SECRET_A"), "{seen:?}");
        for name in seen.keys() {
            let stated = [
                "HOME",
                "USER",
                "LOGNAME",
                "SHELL",
                "PATH",
                "LANG",
                "TZ",
                "TMPDIR",
                "MCPD_INSTANCE",
                "SECRET_B",
            ];
            let known = stated.contains(&name.as_str())
                || name.starts_with("LC_")
                || name.starts_with("XDG_");
            assert!(known, "{name} is not on the list");
        }
    }
    assert!(!two.contains_key("SECRET_B"), "{two:?}");
    assert_eq!(environment(&daemon, "three")["SECRET_A"], "one");
    let all = environment(&daemon, "all");
    assert_eq!(all["SECRET_A"], "one");
    for name in [
        "NOTIFY_SOCKET",
        "LISTEN_FDS",
        "LISTEN_PID",
        "LISTEN_FDNAMES",
        "WATCHDOG_USEC",
        "WATCHDOG_PID",
        "INVOCATION_ID",
        "JOURNAL_STREAM",
        "SYSTEMD_EXEC_PID",
        "CREDENTIALS_DIRECTORY",
    ] {
        assert!(!all.contains_key(name), "{name} is never passed");
    }
}

/// What the daemon lacks of the base comes from the user database, and without a locale it is UTF-8.
#[test]
fn the_base_is_completed() {
    let mut home = Home::new();
    home.remove_env("SHELL");
    home.remove_env("LANG");
    home.fake("fake", &[]);
    let daemon = home.start();
    let seen = environment(&daemon, "fake");
    assert_eq!(seen["LANG"], "C.UTF-8");
    for name in ["SHELL", "USER", "LOGNAME"] {
        assert!(
            seen[name].as_str().is_some_and(|value| !value.is_empty()),
            "{name}: {seen:?}"
        );
    }
}

/// C089: a program of a version manager is found on the PATH that `mcpd.toml` names, though the daemon's own
/// is bare; the child gets that PATH too.
#[test]
fn a_captured_path_finds_the_program() {
    let mut home = Home::new();
    home.set_env("PATH", "/usr/bin:/bin");
    let manager = home.path(".nvm/versions/bin");
    home.program(
        ".nvm/versions/bin/npx",
        &format!("#!/bin/sh\nexec {FAKE} \"$@\"\n"),
    );
    home.settings(&format!(
        "path = {}\n",
        quoted(&format!("{}:/usr/bin:/bin", manager.display()))
    ));
    home.server("node", &format!("command = \"npx\"\n{QUICK}"));
    let daemon = home.start();
    let seen = environment(&daemon, "node");
    assert!(
        seen["PATH"]
            .as_str()
            .is_some_and(|path| path.starts_with(manager.to_str().expect("plain"))),
        "{seen:?}"
    );
    let status = daemon.server_status("node");
    assert_eq!(
        status["exec"]["program"],
        manager.join("npx").display().to_string()
    );
}

/// C089: the server's own `path` is put before PATH.
#[test]
fn a_servers_path_comes_first() {
    let home = Home::new();
    home.program("tools/npx", &format!("#!/bin/sh\nexec {FAKE} \"$@\"\n"));
    home.server(
        "node",
        &format!("command = \"npx\"\npath = [\"~/tools\"]\n{QUICK}"),
    );
    let daemon = home.start();
    let tools = daemon.path("tools").display().to_string();
    let seen = environment(&daemon, "node");
    assert!(
        seen["PATH"]
            .as_str()
            .is_some_and(|path| path.starts_with(&format!("{tools}:"))),
        "{seen:?}"
    );
}

/// C089, fault 1: a program that is not found: the error lists the command, the PATH and what to do.
#[test]
fn a_missing_program_names_path_and_remedy() {
    let home = Home::new();
    home.server("node", "command = \"npx-nowhere\"\n");
    let daemon = home.start();
    let status = daemon.wait_for_state("node", "failed");
    assert_eq!(status["substate"], "exec");
    let mut host = daemon.socket_host("node");
    let answer = host.ask("initialize", initialize_params("2025-11-25"));
    assert_eq!(error_code(&answer), -31000);
    let text = answer.to_string();
    for part in ["npx-nowhere", "/usr/local/bin", "`path`", "mcpd.toml"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// C091: a login shell that prints, reads, waits and starts jobs is asked once, in time, away from every
/// protocol pipe, and its failure is not fatal.
#[test]
fn a_talkative_login_shell_disturbs_nobody() {
    let mut home = Home::new();
    let asked = home.path("asked");
    let shell = home.program(
        "shell",
        &format!(
            "#!/bin/sh\necho asked >> {}\necho WELCOME\nread line\nsleep 60 &\nsleep 60\n",
            asked.display()
        ),
    );
    home.set_env("SHELL", &shell);
    home.fake("fake", &[]);
    let mut host = home.connect_host("fake");
    host.initialize();
    assert_eq!(host.text("sum", json!({"a": 1})), "1");
    let mut other = home.connect_host("fake");
    other.initialize();
    assert!(host.everything_up_to_now().is_empty());
    assert_eq!(
        fs::read_to_string(asked)
            .expect("it was asked")
            .lines()
            .count(),
        1
    );
    home.mcpd(&["shutdown"]).expect_code(0);
    wait_until("nothing of the shell is left", || {
        home.processes()
            .iter()
            .all(|(_, line)| !line.contains("sleep"))
            .then_some(())
    });
}

/// A login shell's PATH is used by a daemon that a shim started.
#[test]
fn the_login_shells_path_is_used() {
    let mut home = Home::new();
    home.set_env("PATH", "/usr/bin:/bin");
    home.program("managed/npx", &format!("#!/bin/sh\nexec {FAKE} \"$@\"\n"));
    let managed = home.path("managed");
    let shell = home.program(
        "shell",
        &format!(
            "#!/bin/sh\necho banner\nexport PATH={}:/usr/bin:/bin\nwhile [ $# -gt 1 ]; do shift; done\nexec /bin/sh -c \"$1\"\n",
            managed.display()
        ),
    );
    home.set_env("SHELL", &shell);
    home.server("node", &format!("command = \"npx\"\n{QUICK}"));
    let mut host = home.connect_host("node");
    host.initialize();
    assert_eq!(host.text("sum", json!({"a": 1})), "1");
    let status = home.status().expect("status");
    assert!(
        status["daemon"]["path"]
            .as_str()
            .is_some_and(|path| path.contains("managed")),
        "{status}"
    );
}

/// The first host's PATH, secrets and directory do not leak into a daemon that its shim starts.
#[test]
fn the_first_host_does_not_leak_into_the_daemon() {
    let home = Home::new();
    home.fake("fake", &[]);
    let mut command = home.command(&["connect", "fake"]);
    command
        .env("HOST_SECRET", "leak")
        .env("PATH", "/host/only:/usr/bin:/bin")
        .current_dir("/usr");
    let mut host = crate::common::RawHost::through(command);
    host.initialize();
    let answer = host.call("env", json!({})).to_string();
    assert!(
        !answer.contains("leak") && !answer.contains("/host/only"),
        "{answer}"
    );
    let pid = home.daemon_pid().expect("a daemon");
    let environ = fs::read(format!("/proc/{pid}/environ")).expect("its environment");
    assert!(!String::from_utf8_lossy(&environ).contains("leak"));
    assert_eq!(
        fs::read_link(format!("/proc/{pid}/cwd")).expect("its directory"),
        std::path::Path::new("/")
    );
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd"))
        .expect("its descriptors")
        .flatten();
    let targets: Vec<_> = descriptors
        .filter_map(|entry| fs::read_link(entry.path()).ok())
        .collect();
    assert!(
        targets
            .iter()
            .all(|target| !target.to_string_lossy().contains("/dev/tty")),
        "{targets:?}"
    );
}

/// C092: `${NAME}` is expanded in `env`, `args`, `cwd` and `command`, with defaults, twice in a value.
#[test]
fn variables_are_expanded_everywhere() {
    let mut home = Home::new();
    home.set_env("PROJECT", "demo");
    fs::create_dir_all(home.path("demo/work")).expect("a folder");
    let toml = format!(
        "command = \"{}\"\nargs = [\"--stderr\", \"${{PROJECT}}-${{PROJECT}}-${{NOPE:-x}}-$${{PROJECT}}-$PROJECT\"]\n\
         cwd = \"${{HOME}}/${{PROJECT}}/work\"\npass_env = [\"PROJECT\", \"PROGRAM\"]\n{QUICK}[env]\nA = \"a${{PROJECT}}b\"\n",
        "${PROGRAM}"
    );
    home.set_env("PROGRAM", FAKE);
    home.server("fake", &toml);
    let daemon = home.start();
    assert_eq!(environment(&daemon, "fake")["A"], "ademob");
    let mut host = daemon.socket_host("fake");
    host.initialize();
    assert!(host.text("cwd", json!({})).ends_with("/demo/work"));
    let answer = host.call("args", json!({}));
    assert_eq!(
        answer["result"]["structuredContent"]["args"][1],
        "demo-demo-x-${PROJECT}-$PROJECT"
    );
    let status = daemon.server_status("fake");
    assert!(
        status["exec"]["argv"].to_string().contains("${PROJECT}"),
        "shown unexpanded: {status}"
    );
}

/// C093: forms of other hosts are named with their line, and the documented ones are not.
#[test]
fn look_alike_variables_are_named() {
    let home = Home::new();
    let forms = [
        "${env:NAME}",
        "${workspaceFolder:x}",
        "{{NAME}}",
        "%NAME%",
        "$NAME",
    ];
    for (number, form) in forms.iter().enumerate() {
        home.server(
            &format!("s{number}"),
            &format!("command = \"cat\"\nargs = [{}]\n", quoted(form)),
        );
    }
    let outcome = home.mcpd(&["check"]);
    let said = outcome.stdout + &outcome.stderr;
    for (number, form) in forms.iter().enumerate() {
        assert!(
            said.contains(&format!("s{number}.toml:2:")),
            "{form}: {said}"
        );
    }
    assert_eq!(outcome.code, 78, "the first two are errors");
}

/// C095: a missing variable stops its own server, named with key and file; the others run.
#[test]
fn a_missing_variable_stops_one_server() {
    let home = Home::new();
    home.server("broken", "command = \"cat\"\n[env]\nKEY = \"${NOPE}\"\n");
    home.fake("one", &[]);
    home.fake("two", &[]);
    let daemon = home.start();
    for name in ["one", "two"] {
        daemon.wait_for_state(name, "running");
    }
    let status = daemon.server_status("broken").to_string();
    for part in ["NOPE", "KEY", "broken.toml"] {
        assert!(status.contains(part), "{part}: {status}");
    }
    let mut host = daemon.socket_host("broken");
    let answer = host.ask("initialize", initialize_params("2025-11-25"));
    assert_eq!(error_code(&answer), -31000);
    assert!(answer.to_string().contains("NOPE"), "{answer}");
}

/// A name of `pass_env` that the daemon lacks is an error.
#[test]
fn a_missing_pass_env_is_an_error() {
    let home = Home::new();
    home.server("fake", "command = \"cat\"\npass_env = [\"NOT_THERE\"]\n");
    let daemon = home.start();
    let status = daemon.server_status("fake").to_string();
    assert!(status.contains("NOT_THERE"), "{status}");
}

/// C098: proxy and CA variables pass by default, in both cases, unless they hold a password or are turned off.
#[test]
fn proxy_variables_pass() {
    let mut home = Home::new();
    let names = [
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
        "NO_PROXY",
        "http_proxy",
        "https_proxy",
        "all_proxy",
        "no_proxy",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "NODE_EXTRA_CA_CERTS",
        "REQUESTS_CA_BUNDLE",
    ];
    for name in names {
        home.set_env(name, format!("http://proxy.example/{name}"));
    }
    home.set_env("HTTPS_PROXY", "http://user:secret-word@proxy.example");
    home.fake("on", &[]);
    home.fake_with("off", &[], "proxy_env = false\n");
    let daemon = home.start();
    let (on, off) = (environment(&daemon, "on"), environment(&daemon, "off"));
    for name in names {
        assert_eq!(on.contains_key(name), name != "HTTPS_PROXY", "{name}");
        assert!(!off.contains_key(name), "{name}");
    }
}

/// C098: they reach a child also through a daemon that the connecting shim started.
#[test]
fn a_shims_proxy_variables_pass() {
    let mut home = Home::new();
    home.set_env("https_proxy", "http://proxy.example");
    home.set_env("NODE_EXTRA_CA_CERTS", "/etc/own.pem");
    home.set_env("ALL_PROXY", "socks5://user:secret-word@proxy.example");
    home.fake("fake", &[]);
    let mut host = home.connect_host("fake");
    host.initialize();
    let answer = host.call("env", json!({}));
    let seen = &answer["result"]["structuredContent"];
    assert_eq!(seen["https_proxy"], "http://proxy.example", "{seen}");
    assert_eq!(seen["NODE_EXTRA_CA_CERTS"], "/etc/own.pem", "{seen}");
    assert!(seen["ALL_PROXY"].is_null(), "{seen}");
}

/// C100: the forms of an environment file.
#[test]
fn an_env_file_is_read_as_people_write_it() {
    let home = Home::new();
    let file = home.write(
        "config/mcpd/servers.d/.env",
        "# a comment\n\nexport A=1\nB=\"x y\"\nC='l#t'\nD=v # note\nE=a#b\nF=\nG=\"a\\nb\"\n  H = spaced  \nI='$HOME ${HOME}'\n",
    );
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("the mode");
    home.fake_with("fake", &[], "env_file = \".env\"\n[env]\nE = \"wins\"\n");
    let daemon = home.start();
    let seen = environment(&daemon, "fake");
    for (name, value) in [
        ("A", "1"),
        ("B", "x y"),
        ("C", "l#t"),
        ("D", "v"),
        ("E", "wins"),
        ("F", ""),
        ("G", "a\nb"),
        ("H", "spaced"),
        ("I", "$HOME ${HOME}"),
    ] {
        assert_eq!(seen[name], value, "{name}");
    }
}

/// C104: an environment file that others may read is refused.
#[test]
fn a_readable_env_file_is_refused() {
    let home = Home::new();
    let file = home.write("config/mcpd/servers.d/open.env", "A=1\n");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("the mode");
    home.fake_with("fake", &[], "env_file = \"open.env\"\n");
    let outcome = home.mcpd(&["check"]).expect_code(78);
    let said = outcome.stdout + &outcome.stderr;
    assert!(said.contains("open.env"), "{said}");
}

/// C104: `check` warns of a server's file that holds a secret and that others may read.
#[test]
fn a_readable_file_with_a_secret_is_warned_of() {
    let home = Home::new();
    let toml = "command = \"cat\"\n[env]\nAPI_TOKEN = \"ghp_0123456789abcdefghij\"\n";
    for (name, mode) in [("open", 0o644), ("closed", 0o600)] {
        let file = home.server(name, toml);
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("the mode");
    }
    let outcome = home.mcpd(&["check"]).expect_code(0);
    let said = outcome.stdout + &outcome.stderr;
    assert!(said.contains("open.toml:3:"), "{said}");
    assert!(said.contains("others can read"), "{said}");
    assert!(!said.contains("closed.toml"), "{said}");
    assert!(!said.contains("ghp_0123"), "{said}");
}

/// Values from a file and from a command; a command that fails is a failed start with its reason.
#[test]
fn values_come_from_files_and_commands() {
    let home = Home::new();
    home.write("secret", "from the file\n");
    fs::set_permissions(home.path("secret"), fs::Permissions::from_mode(0o600)).expect("the mode");
    home.fake_with(
        "fake",
        &[],
        "[env]\nA = { file = \"~/secret\" }\nB = { command = [\"/bin/sh\", \"-c\", \"echo from the command\"] }\n",
    );
    home.fake_with("bad", &[], "start_limit = 1\n[env]\nA = { command = [\"/bin/sh\", \"-c\", \"echo locked >&2; exit 3\"] }\n");
    let daemon = home.start();
    let seen = environment(&daemon, "fake");
    assert_eq!(seen["A"], "from the file");
    assert_eq!(seen["B"], "from the command");
    let status = daemon.wait_for_state("bad", "failed");
    assert!(
        status.to_string().contains("env.A") && status.to_string().contains("code 3"),
        "{status}"
    );
    assert_eq!(daemon.record("bad").starts(), 0);
}

/// A credential of the service is a value, hidden like any other; one that is missing is named.
#[test]
fn values_come_from_credentials() {
    let mut home = Home::new();
    home.write("credentials/gh", "verysecretvalue\n");
    let folder = home.path("credentials");
    home.set_env("CREDENTIALS_DIRECTORY", folder);
    home.fake_with(
        "fake",
        &["--stderr", "key is ${TOKEN}, bye"],
        "[env]\nTOKEN = { credential = \"gh\" }\n",
    );
    home.fake_with("bad", &[], "[env]\nTOKEN = { credential = \"none\" }\n");
    let daemon = home.start();
    assert_eq!(environment(&daemon, "fake")["TOKEN"], "verysecretvalue");
    let status = daemon.wait_for("fake", "its stderr is seen", |server| {
        server["stderr_tail"].to_string().contains("bye")
    });
    assert!(
        status["stderr_tail"].to_string().contains("‹TOKEN›"),
        "{status}"
    );
    let bad = daemon.server_status("bad").to_string();
    assert!(bad.contains("credential `none` of `env.TOKEN`"), "{bad}");
}

/// C102: no command line that mcpd builds holds a secret; the shim's has the server's name only.
#[test]
fn no_command_line_holds_a_secret() {
    let home = Home::new();
    home.fake_with("fake", &[], "[env]\nAPI_KEY = \"verysecretvalue\"\n");
    let mut host = home.connect_host("fake");
    host.initialize();
    let processes = home.processes();
    assert!(processes.len() >= 3, "{processes:?}");
    for (pid, line) in &processes {
        assert!(!line.contains("verysecretvalue"), "{pid} {line}");
    }
    let shim = crate::common::command_line(host.pid());
    assert!(shim.ends_with("connect fake"), "{shim}");
}

/// Secrets are replaced wherever a server says them: stderr tail, log, status, errors to hosts.
#[test]
fn a_secret_that_a_server_prints_is_replaced() {
    let home = Home::new();
    home.fake_with(
        "fake",
        &["--stderr", "key is ${API_KEY}, bye", "--exit", "1"],
        "start_limit = 1\n[env]\nAPI_KEY = \"verysecretvalue\"\n",
    );
    let daemon = home.start();
    let status = daemon.wait_for_state("fake", "failed");
    assert!(
        status["stderr_tail"].to_string().contains("‹API_KEY›"),
        "{status}"
    );
    let mut host = daemon.socket_host("fake");
    let answer = host.ask("initialize", initialize_params("2025-11-25"));
    let shown = [
        daemon.mcpd(&["status", "fake"]).stdout,
        daemon.mcpd(&["status", "--json"]).stdout,
        daemon.mcpd(&["logs", "fake"]).stdout,
        answer.to_string(),
        daemon.log(),
    ];
    for text in &shown {
        assert!(!text.contains("verysecretvalue"), "{text}");
    }
    assert!(shown[2].contains("‹API_KEY›"), "{}", shown[2]);
    for entry in walk(&daemon.path("state")) {
        let bytes = fs::read(&entry).expect("a state file");
        let text = String::from_utf8_lossy(&bytes);
        assert!(!text.contains("verysecretvalue"), "{}", entry.display());
    }
}

/// What a server said with a value that was changed since stays without that value, and so does the
/// name that it gives itself.
#[test]
fn a_secret_that_was_changed_is_still_replaced() {
    let mut home = Home::new();
    home.set_env("MCPD_LOG", "trace");
    let keys = |value: &str, script: &str| {
        format!(
            "command = \"/bin/sh\"\nargs = [\"-c\", {}]\nprotocol = \"legacy\"\n[env]\nAPI_KEY = {}\n",
            quoted(script),
            quoted(value)
        )
    };
    let answer = r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"'$API_KEY'","version":"1"}}}"#;
    let script =
        format!("read -r line; echo \"banner $API_KEY\"; echo '{answer}'; cat > /dev/null");
    home.server("talker", &keys("oldsecretvalue", &script));
    let daemon = home.start();
    daemon.wait_for("talker", "its banner was seen", |server| {
        server["state"] == "running" && server["violations"] == 1
    });
    daemon.server(
        "talker",
        &keys(
            "newsecretvalue",
            &script.replace("echo \"banner $API_KEY\"; ", ""),
        ),
    );
    daemon.mcpd(&["reload", "--wait"]).expect_code(0);
    let status = daemon.wait_for("talker", "the new one runs", |server| {
        server["state"] == "running" && server["generation"] == 2
    });
    assert_eq!(status["violation_sample"], "banner ‹API_KEY›", "{status}");
    let log = daemon.mcpd(&["logs", "talker"]).stdout;
    assert!(log.contains("opened: ‹API_KEY› 1"), "{log}");
    for text in [log, status.to_string(), daemon.log()] {
        assert!(!text.contains("secretvalue"), "{text}");
    }
}

/// A secret in a path is replaced too where the start fails over that path, at whatever stage.
#[test]
fn a_secret_in_a_path_that_is_missing_is_replaced() {
    let home = Home::new();
    let secret = "[env]\nAPI_KEY = \"verysecretvalue\"\n";
    let not_a_program = home.write("verysecretvalue/program", "not even executable");
    let in_that_folder = not_a_program.display().to_string();
    let in_that_folder = in_that_folder.replace("verysecretvalue", "${API_KEY}");
    let broken = home.program("verysecretvalue/broken", "#!/no/such/interpreter\n");
    let broken = broken.display().to_string();
    let broken = broken.replace("verysecretvalue", "${API_KEY}");
    for (name, keys) in [
        ("program", "command = \"/no/${API_KEY}\"\n".to_owned()),
        ("mode", format!("command = {}\n", quoted(&in_that_folder))),
        ("interpreter", format!("command = {}\n", quoted(&broken))),
        (
            "folder",
            "command = \"/bin/sh\"\ncwd = \"/no/${API_KEY}\"\n".to_owned(),
        ),
    ] {
        home.server(name, &format!("{keys}{secret}"));
    }
    let daemon = home.start();
    let mut shown = Vec::new();
    for name in ["program", "mode", "interpreter", "folder"] {
        let status = daemon.wait_for_state(name, "failed");
        let reason = status["reason"].as_str().unwrap_or_default();
        assert!(reason.contains("‹API_KEY›"), "{status}");
        let mut host = daemon.socket_host(name);
        let answer = host.ask("initialize", initialize_params("2025-11-25"));
        shown.push(answer.to_string());
        shown.push(daemon.mcpd(&["status", name]).stdout);
        shown.push(daemon.mcpd(&["logs", name]).stdout);
    }
    shown.push(daemon.mcpd(&["status", "--json"]).stdout);
    shown.push(daemon.log());
    for text in &shown {
        assert!(!text.contains("verysecretvalue"), "{text}");
    }
    for entry in walk(&daemon.path("state")) {
        let bytes = fs::read(&entry).expect("a state file");
        let text = String::from_utf8_lossy(&bytes);
        assert!(!text.contains("verysecretvalue"), "{}", entry.display());
    }
}

/// C104: `check` warns of literal secrets in `args` and shows none of them; status masks them.
#[test]
fn secrets_in_arguments_are_warned_of_and_masked() {
    let home = Home::new();
    home.server("db", "command = \"cat\"\nargs = [\"--password\", \"hunter2hunter2\", \"--token=ghp_0123456789abcdefghij\"]\n");
    let outcome = home.mcpd(&["check"]);
    let said = outcome.stdout + &outcome.stderr;
    assert!(
        said.contains("db.toml") && said.contains("warning"),
        "{said}"
    );
    assert!(
        !said.contains("hunter2") && !said.contains("ghp_0123"),
        "{said}"
    );
    let daemon = home.start();
    daemon.server_status("db");
    for args in [&["status", "db"][..], &["status", "--json"]] {
        let shown = daemon.mcpd(args).stdout;
        assert!(
            !shown.contains("hunter2") && !shown.contains("ghp_0123"),
            "{shown}"
        );
    }
}

/// C168: the same command with other variables is another server.
#[test]
fn equal_commands_with_other_variables_are_two_servers() {
    let home = Home::new();
    home.fake_with("one", &[], "[env]\nWHO = \"1\"\n");
    home.fake_with("two", &[], "[env]\nWHO = \"2\"\n");
    let daemon = home.start();
    assert_eq!(environment(&daemon, "one")["WHO"], "1");
    assert_eq!(environment(&daemon, "two")["WHO"], "2");
    let mut host = daemon.socket_host("one");
    host.initialize();
    let pid = text_of(&host.call("pid", json!({})));
    assert_ne!(pid, daemon.server_pid("two").to_string());
}

fn walk(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder").flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.is_file() {
                found.push(path);
            }
        }
    }
    found
}
