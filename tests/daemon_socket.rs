//! The daemon and its sockets: one daemon, private folders, the same place for everybody.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::common::{
    Home, MCPD, QUICK, RawHost, Stopwatch, TestDaemon, error_code, initialize_params, let_pass,
    make_private, wait_until, wait_within,
};

fn mode(path: &Path) -> u32 {
    fs::metadata(path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
        .permissions()
        .mode()
        & 0o777
}

/// Sockets are 0600 in folders of 0700.
#[test]
fn sockets_are_private() {
    let home = Home::new();
    home.fake("fake", &[]);
    let daemon = home.start();
    daemon.wait_for_state("fake", "running");
    for (path, wanted) in [
        (daemon.control_socket(), 0o600),
        (daemon.server_socket("fake"), 0o600),
        (daemon.path("run/mcpd"), 0o700),
        (daemon.path("run/mcpd/servers/fake"), 0o700),
        (daemon.path("state/mcpd"), 0o700),
    ] {
        assert_eq!(mode(&path), wanted, "{}", path.display());
    }
}

/// Fault 51, C192: the socket that a crash left is replaced, and what the crashed daemon left running is not doubled.
#[test]
fn a_stale_socket_is_replaced() {
    let home = Home::new();
    home.fake("fake", &[]);
    let mut daemon = home.start();
    daemon.wait_for_state("fake", "running");
    daemon.kill();
    assert!(daemon.control_socket().exists(), "a crash leaves the file");
    // The fake ends by the end of its input.
    wait_until("its child has ended", || {
        daemon.fakes().is_empty().then_some(())
    });
    daemon.start_again();
    let mut host = daemon.socket_host("fake");
    host.initialize();
    assert_eq!(host.text("sum", json!({"a": 1})), "1");
}

/// C192: a regular file, a link and the socket of another program are left alone, with a clear error.
#[test]
fn foreign_files_at_the_socket_are_left_alone() {
    let home = Home::new();
    let socket = home.control_socket();
    fs::create_dir_all(home.path("run/mcpd")).expect("the folder");
    make_private(&home.path("run/mcpd"));
    fs::write(&socket, "somebody's").expect("a file");
    let outcome = home.mcpd(&["daemon"]);
    assert_ne!(outcome.code, 0);
    assert!(outcome.stderr.contains("mcpd.sock"), "{}", outcome.stderr);
    assert_eq!(
        fs::read_to_string(&socket).expect("it is still there"),
        "somebody's"
    );
    fs::remove_file(&socket).expect("it was ours");

    symlink(home.path("nowhere"), &socket).expect("a link");
    let outcome = home.mcpd(&["daemon"]);
    assert_ne!(outcome.code, 0);
    assert!(
        fs::symlink_metadata(&socket)
            .expect("it is still there")
            .is_symlink()
    );
    fs::remove_file(&socket).expect("it was ours");

    let listener = UnixListener::bind(&socket).expect("another program's socket");
    let outcome = home.mcpd(&["daemon"]);
    assert_ne!(outcome.code, 0);
    drop(UnixStream::connect(&socket).expect("it still listens"));
    drop(listener);
    fs::remove_file(&socket).expect("it was ours");
}

/// Fault 51: a second daemon for the same socket is refused with the first's pid and configuration.
#[test]
fn a_second_daemon_is_refused() {
    let home = Home::new();
    home.fake("fake", &[]);
    let daemon = home.start();
    let pid = daemon.daemon_pid().expect("a daemon");
    let watch = Stopwatch::start();
    let outcome = daemon.mcpd(&["daemon"]);
    assert_ne!(outcome.code, 0);
    assert!(watch.elapsed() < Duration::from_secs(5));
    assert!(
        outcome.stderr.contains(&pid.to_string()),
        "{}",
        outcome.stderr
    );
    assert!(outcome.stderr.contains("config/mcpd"), "{}", outcome.stderr);
    assert!(daemon.status().is_some(), "the first goes on");
}

/// C194: thirty shims at once and no daemon: one daemon, all served; again with a stale socket.
#[test]
fn many_shims_start_one_daemon() {
    let home = Home::new();
    home.fake("fake", &[]);
    for stale in [false, true] {
        let mut hosts: Vec<RawHost> = (0..30).map(|_| home.connect_host("fake")).collect();
        let ids: Vec<u64> = hosts
            .iter_mut()
            .map(|host| host.request("initialize", initialize_params("2025-11-25")))
            .collect();
        for (host, id) in hosts.iter_mut().zip(ids) {
            assert_eq!(
                host.answer(id)["result"]["serverInfo"]["name"],
                "fake",
                "stale: {stale}"
            );
        }
        let daemons: Vec<_> = home
            .processes()
            .into_iter()
            .filter(|(_, line)| line.contains(" daemon"))
            .collect();
        // A small parent process may watch over the daemon.
        assert!((1..=2).contains(&daemons.len()), "{daemons:?}");
        assert_eq!(home.record("fake").starts(), if stale { 2 } else { 1 });
        drop(hosts);
        if !stale {
            let pid = home.daemon_pid().expect("a daemon");
            kill(Pid::from_raw(pid), Signal::SIGKILL).expect("it is there");
            wait_until("everything of it has ended", || {
                home.processes().is_empty().then_some(())
            });
        }
    }
}

/// C194: shims that come while the old daemon is ending wait for its end, and one of them starts the next one:
/// all are served.
#[test]
fn shims_that_meet_an_ending_daemon_are_served() {
    let home = Home::new();
    home.fake_with("slow", &["--ignore-eof"], "stop_timeout = \"1s\"\n");
    home.fake("fake", &[]);
    let mut daemon = home.start();
    daemon.wait_for_state("slow", "running");
    daemon.wait_for_state("fake", "running");
    daemon.signal(Signal::SIGTERM);
    let mut hosts: Vec<RawHost> = (0..30).map(|_| daemon.connect_host("fake")).collect();
    let ids: Vec<u64> = hosts
        .iter_mut()
        .map(|host| host.request("initialize", initialize_params("2025-11-25")))
        .collect();
    assert!(daemon.wait_end(Duration::from_secs(20)).success());
    for (host, id) in hosts.iter_mut().zip(ids) {
        let answer = host.answer(id);
        assert_eq!(answer["result"]["serverInfo"]["name"], "fake", "{answer}");
    }
    // It answers from what it remembers, before its server has started.
    wait_until("the server of the new daemon starts", || {
        (daemon.record("fake").starts() >= 2).then_some(())
    });
    daemon.wait_for_state("fake", "running");
    assert_eq!(daemon.record("fake").starts(), 2, "one new daemon");
    daemon.mcpd(&["shutdown"]).expect_code(0);
}

/// C196: without `XDG_RUNTIME_DIR` all commands meet in a private fall-back.
#[test]
fn everybody_meets_without_a_runtime_folder() {
    check_fall_back(|home| home.remove_env("XDG_RUNTIME_DIR"));
}

/// C196: one that is set and not there is as good as none.
#[test]
fn everybody_meets_where_the_runtime_folder_is_missing() {
    check_fall_back(|home| home.set_env("XDG_RUNTIME_DIR", home.path("nowhere")));
}

/// Connects and asks for status, and proves that both met in a private folder of the fall-back.
fn check_fall_back(without: impl FnOnce(&mut Home)) {
    let uid = nix::unistd::geteuid();
    let mut home = Home::new();
    without(&mut home);
    home.set_env("TMPDIR", home.path("tmp"));
    // A configuration of its own, so that the user's daemon is not met in the shared fall-back.
    let config = home.path("config/trial");
    fs::create_dir_all(config.join("servers.d")).expect("the folder");
    fs::write(
        config.join("servers.d/fake.toml"),
        home.fake_toml("fake", &[], ""),
    )
    .expect("the file");
    home.set_env("MCPD_CONFIG", &config);
    let mut host = home.connect_host("fake");
    host.initialize();
    let status = home.mcpd(&["status", "--json"]).json();
    let socket = status["daemon"]["socket"]
        .as_str()
        .expect("a path")
        .to_owned();
    let folder = Path::new(&socket).parent().expect("a folder");
    let parent = folder.parent().expect("a folder");
    assert!(
        parent == Path::new(&format!("/run/user/{uid}"))
            || folder.starts_with(format!("/tmp/mcpd-{uid}")),
        "{socket}"
    );
    assert_eq!(mode(folder), 0o700);
    assert_eq!(
        fs::metadata(folder).expect("the folder").uid(),
        uid.as_raw()
    );
    host.vanish();
    home.mcpd(&["shutdown"]).expect_code(0);
    // What the test left in a shared folder is its own to remove.
    fs::remove_dir_all(folder).ok();
    // Goes only if it is empty: another daemon of the user may live in it.
    fs::remove_dir(parent).ok();
}

/// C196: a runtime folder that others may enter is refused, by every command alike, with the path.
#[test]
fn an_unsafe_runtime_folder_is_refused() {
    let mut home = Home::new();
    home.fake("fake", &[]);
    let open = home.path("open");
    fs::create_dir(&open).expect("the folder");
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).expect("the mode");
    home.set_env("XDG_RUNTIME_DIR", &open);
    let outcome = home.mcpd(&["daemon"]);
    assert_ne!(outcome.code, 0);
    assert!(outcome.stderr.contains("open"), "{}", outcome.stderr);
    let mut host = home.connect_host("fake");
    let answer = host.ask("initialize", initialize_params("2025-11-25"));
    assert!(answer.to_string().contains("open"), "{answer}");
    assert!(!open.join("mcpd").exists(), "nothing was put there");
}

/// C196: a runtime folder of another user is refused, with whose it is and what to do, to the host and once on
/// standard error.
#[test]
fn a_foreign_runtime_folder_is_refused() {
    let mut home = Home::new();
    home.fake("fake", &[]);
    let foreign = if nix::unistd::geteuid().is_root() {
        let folder = home.path("foreign");
        fs::create_dir(&folder).expect("the folder");
        make_private(&folder);
        std::os::unix::fs::chown(&folder, Some(65534), None).expect("root may give it away");
        folder
    } else {
        Path::new("/").to_owned()
    };
    home.set_env("XDG_RUNTIME_DIR", &foreign);
    home.mcpd(&["daemon"]).expect_code(78);
    let mut host = home.connect_host("fake");
    let answer = host.ask("initialize", initialize_params("2025-11-25"));
    assert_eq!(error_code(&answer), -31000);
    for part in ["belongs to uid", "unset it"] {
        assert!(answer.to_string().contains(part), "{part}: {answer}");
    }
    host.end_output();
    let (status, stderr) = host.wait_exit();
    assert!(!status.success());
    assert_eq!(stderr.matches("belongs to uid").count(), 1, "{stderr}");
}

/// C196: a shim without `XDG_RUNTIME_DIR` meets the daemon that has one, and starts no second.
#[test]
fn a_shim_without_a_runtime_folder_meets_the_daemon() {
    let home = Home::new();
    home.fake("fake", &[]);
    let daemon = home.start();
    let pid = daemon.daemon_pid();
    for args in [&["connect", "fake"][..], &["status", "--json"]] {
        let mut command = daemon.command(args);
        command.env_remove("XDG_RUNTIME_DIR");
        if args[0] == "status" {
            let status = daemon.run(&mut command).expect_code(0).json();
            assert_eq!(status["daemon"]["pid"].as_i64(), pid.map(i64::from));
        } else {
            RawHost::through(command).initialize();
        }
    }
    assert_eq!(daemon.record("fake").starts(), 1);
}

/// A daemon of another configuration that was started by itself ends some time after its last client; that of
/// the default configuration stays.
#[test]
fn a_trial_daemon_ends_after_its_last_client() {
    let home = Home::new();
    home.fake("fake", &[]);
    let trial = home.path("trial");
    fs::create_dir_all(trial.join("servers.d")).expect("the folder");
    fs::write(
        trial.join("servers.d/other.toml"),
        home.fake_toml("other", &[], QUICK),
    )
    .expect("the file");
    let trial = trial.to_str().expect("plain").to_owned();
    home.connect_host("fake").initialize();
    home.mcpd(&["--config", &trial, "start", "other"])
        .expect_code(0);
    let daemons: Vec<String> = home
        .processes()
        .into_iter()
        .map(|(_, line)| line)
        .filter(|line| line.starts_with("mcpd daemon") && !line.contains("--guarded"))
        .collect();
    assert_eq!(daemons.len(), 2, "{daemons:?}");
    for line in daemons {
        assert_eq!(
            line.contains("--idle-exit 600"),
            line.contains(&trial),
            "{line}"
        );
    }
    home.mcpd(&["--config", &trial, "shutdown"]).expect_code(0);

    let mut daemon = home
        .command(&["--config", &trial, "daemon", "--idle-exit", "1"])
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("it starts");
    wait_until("it answers", || {
        (home.mcpd(&["--config", &trial, "status", "-q"]).code != 4).then_some(())
    });
    let mut host = RawHost::through(home.command(&["--config", &trial, "connect", "other"]));
    host.initialize();
    let_pass(Duration::from_millis(2500));
    assert_eq!(host.text("sum", json!({"a": 1})), "1", "it has a client");
    assert!(daemon.try_wait().expect("it can be waited for").is_none());
    host.vanish();
    let status = wait_until("it ends by itself", || {
        daemon.try_wait().expect("it can be waited for")
    });
    assert!(status.success(), "{status}");
}

/// A socket path that is too long is an error with the path, its length and what to set.
#[test]
fn a_long_socket_path_is_an_error() {
    let mut home = Home::new();
    home.fake("fake", &[]);
    let long = home.path(&"l".repeat(100));
    fs::create_dir(&long).expect("the folder");
    make_private(&long);
    home.set_env("XDG_RUNTIME_DIR", &long);
    let outcome = home.mcpd(&["daemon"]);
    assert_ne!(outcome.code, 0);
    let length = long.join("mcpd/mcpd.sock").as_os_str().len().to_string();
    for part in ["lllll", &length, "107", "MCPD_SOCKET"] {
        assert!(outcome.stderr.contains(part), "{part}: {}", outcome.stderr);
    }
}

/// Where only one server's own path is too long, only that raw socket is missing, and status says so.
#[test]
fn a_long_server_name_loses_only_its_raw_socket() {
    let home = Home::new();
    let name = "n".repeat(64);
    let fits = home.server_socket(&name).as_os_str().len() <= 107;
    home.fake(&name, &[]);
    let daemon = home.start();
    let mut host = daemon.connect_host(&name);
    host.initialize();
    assert_eq!(host.text("sum", json!({"a": 1})), "1");
    let status = daemon.server_status(&name);
    assert_eq!(status["socket_error"].is_null(), fits, "{status}");
}

/// C198: a daemon that cannot listen: the shim answers `initialize` with the path and the reason in time,
/// says it on stderr, and its exit code tells it.
#[test]
fn a_daemon_that_cannot_listen_is_explained() {
    let mut home = Home::new();
    home.fake("fake", &[]);
    // A file in the place of the folder: nobody, root included, can make a socket there.
    let blocked = home.path("blocked");
    fs::create_dir(&blocked).expect("the folder");
    make_private(&blocked);
    fs::write(blocked.join("mcpd"), "in the way").expect("a file");
    home.set_env("XDG_RUNTIME_DIR", &blocked);
    let mut host = home.connect_host("fake");
    let watch = Stopwatch::start();
    let answer = host.ask("initialize", initialize_params("2025-11-25"));
    assert!(
        watch.elapsed() < Duration::from_secs(3),
        "{:?}",
        watch.elapsed()
    );
    assert_eq!(error_code(&answer), -31000);
    assert!(answer.to_string().contains("blocked/mcpd"), "{answer}");
    host.end_output();
    let (status, stderr) = host.wait_exit();
    assert!(!status.success());
    assert!(stderr.contains("blocked/mcpd"), "{stderr}");
}

/// C198: a daemon that ends at once: the shim says why, within its time.
#[test]
fn a_daemon_that_ends_at_once_is_explained() {
    let home = Home::new();
    home.fake("fake", &[]);
    home.settings("memory_limit = \"lots\"\n");
    let mut host = home.connect_host("fake");
    let answer = host.ask("initialize", initialize_params("2025-11-25"));
    assert_eq!(error_code(&answer), -31000);
    assert!(answer.to_string().contains("mcpd.toml"), "{answer}");
}

/// A configuration folder other than the default has sockets and state of its own.
#[test]
fn another_configuration_is_another_daemon() {
    let home = Home::new();
    home.fake("fake", &[]);
    let trial = home.path("trial");
    fs::create_dir_all(trial.join("servers.d")).expect("the folder");
    fs::write(
        trial.join("servers.d/other.toml"),
        home.fake_toml("other", &[], ""),
    )
    .expect("the file");
    let daemon = home.start();
    let trial = trial.to_str().expect("plain").to_owned();
    let called = daemon
        .mcpd(&["--config", &trial, "call", "other", "sum", "a=2", "b=3"])
        .expect_code(0);
    assert_eq!(called.stdout, "5\n");
    let other = daemon
        .mcpd(&["--config", &trial, "status", "--json"])
        .json();
    assert_ne!(
        other["daemon"]["pid"].as_i64(),
        daemon.daemon_pid().map(i64::from)
    );
    assert_eq!(other["servers"].as_array().map(Vec::len), Some(1));
    daemon
        .mcpd(&["--config", &trial, "shutdown"])
        .expect_code(0);
    assert!(daemon.status().is_some(), "the first is not touched");
}

/// Fault 36: the control socket answers by id, survives garbage, and two clients at once get their own replies.
#[test]
fn control_replies_are_matched_by_id() {
    let home = Home::new();
    home.fake("fake", &[]);
    let daemon = home.start();
    let mut one = RawHost::on_socket(&daemon.control_socket());
    let mut two = RawHost::on_socket(&daemon.control_socket());
    for round in 0..50 {
        for (host, name) in [(&mut one, "one"), (&mut two, "two")] {
            host.send(
                &json!({"jsonrpc": "2.0", "id": format!("{name} {round}"), "method": "status"}),
            );
        }
    }
    for round in 0..50 {
        for (host, name) in [(&mut one, "one"), (&mut two, "two")] {
            let answer = host.answer(format!("{name} {round}"));
            assert_eq!(answer["result"]["servers"][0]["name"], "fake", "{answer}");
        }
    }
    one.send_line("garbage");
    assert_eq!(
        error_code(
            &one.wait_line("a refusal", |line| line.json["error"].is_object())
                .json
        ),
        -32700
    );
    one.send(&json!({"jsonrpc": "2.0", "id": 7, "method": "fly"}));
    assert_eq!(error_code(&one.answer(7)), -32601);
    let mut three = RawHost::on_socket(&daemon.control_socket());
    three.send(&json!({"jsonrpc": "2.0", "id": 1, "method": "hello"}));
    let hello = three.answer(1);
    assert!(
        hello["mcpd"]["version"].is_string() || hello["result"]["version"].is_string(),
        "{hello}"
    );
}

/// `attach` on the control socket makes the connection a raw stream to the server, which is all that shims of
/// older versions ask for.
#[test]
fn attach_makes_a_raw_stream() {
    let home = Home::new();
    home.fake("fake", &[]);
    let daemon = home.start();
    let mut host = RawHost::on_socket(&daemon.control_socket());
    host.send(
        &json!({"jsonrpc": "2.0", "id": 1000, "method": "attach", "params":
        {"server": "fake", "client": "test", "directory": "/"}}),
    );
    assert!(host.answer(1000)["result"].is_object());
    host.initialize();
    assert_eq!(host.text("sum", json!({"a": 1})), "1");
}

/// A child of ours, and what descends from it, is refused on the control socket.
#[test]
fn a_child_cannot_reach_the_control_socket() {
    let home = Home::new();
    let said = home.path("said");
    let script = format!(
        "({} status; echo \"code $?\") > {} 2>&1; exec cat > /dev/null",
        crate::common::MCPD,
        said.display()
    );
    home.server(
        "nosy",
        &format!(
            "command = \"/bin/sh\"\nargs = [\"-c\", {}]\n",
            crate::common::quoted(&script)
        ),
    );
    let daemon = home.start();
    let text = wait_until("it has tried", || {
        fs::read_to_string(&said)
            .ok()
            .filter(|text| text.contains("code "))
    });
    assert!(!text.contains("code 0"), "{text}");
    assert!(daemon.status().is_some());
}

/// Where the folder of the sockets was removed beneath a daemon, another one takes its place. What
/// it listens on outlives the end of the first.
#[test]
fn a_daemon_that_ends_leaves_the_sockets_of_another() {
    let home = Home::new();
    home.fake("fake", &[]);
    let mut daemon = home.start();
    let mut old = daemon.socket_host("fake");
    old.initialize();
    fs::remove_dir_all(daemon.path("run/mcpd")).expect("the folder");
    daemon.mcpd(&["start", "fake"]).expect_code(0);
    let second = daemon.daemon_pid().expect("a second daemon");
    assert_ne!(second, daemon.pid());
    assert!(daemon.terminate().success());
    assert_eq!(daemon.daemon_pid(), Some(second));
    let mut host = daemon.socket_host("fake");
    host.initialize();
    daemon.mcpd(&["shutdown"]).expect_code(0);
}

/// A `shutdown` that is refused says so at once. It takes nothing for ended on purpose, and
/// nothing back that somebody else has ended.
#[test]
fn a_shutdown_by_a_child_is_refused_at_once() {
    let home = Home::new();
    let (said, marker) = (home.path("said"), home.path("run/mcpd/mcpd.sock.shutdown"));
    let script = format!(
        "({mcpd} shutdown; echo \"code $?\"; test -e {marker} && echo left; touch {marker}; \
         {mcpd} shutdown; echo \"again $?\") > {said} 2>&1; exec cat",
        mcpd = MCPD,
        said = said.display(),
        marker = marker.display()
    );
    home.server(
        "nosy",
        &format!(
            "command = \"/bin/sh\"\nargs = [\"-c\", {}]\n",
            crate::common::quoted(&script)
        ),
    );
    let daemon = home.start();
    let text = wait_within(Duration::from_secs(8), "it has been told twice", || {
        fs::read_to_string(&said)
            .ok()
            .filter(|text| text.contains("again "))
    });
    assert!(text.contains("may not control mcpd"), "{text}");
    assert!(
        text.contains("code 3") && text.contains("again 3"),
        "{text}"
    );
    assert!(!text.contains("left"), "{text}");
    assert!(marker.exists(), "another shutdown's marker is gone");
    assert!(daemon.status().is_some());
}

/// Fault 38: a lack of descriptors is told now and then, not at every try for as long as it lasts.
#[test]
fn a_lack_of_descriptors_does_not_fill_the_log() {
    let home = Home::new();
    let mut command = home.program_command("/bin/sh");
    command.args(["-c", "ulimit -n 48; exec \"$0\" daemon", MCPD]);
    let daemon = TestDaemon::start_with(home, command);
    let held: Vec<UnixStream> = (0..60)
        .map(|_| UnixStream::connect(daemon.control_socket()).expect("it is queued"))
        .collect();
    wait_until("the lack is told", || {
        daemon.log().contains("cannot accept").then_some(())
    });
    let_pass(Duration::from_secs(1));
    assert_eq!(daemon.log().matches("cannot accept").count(), 1);
    drop(held);
    wait_until("it accepts again", || daemon.status());
}

/// The daemon idles: no timer, no scan, no poll while nothing happens.
#[test]
fn an_idle_daemon_uses_no_time() {
    let home = Home::new();
    home.fake("fake", &[]);
    let daemon = home.start();
    let mut host = daemon.socket_host("fake");
    host.initialize();
    let before = daemon.cpu_time();
    let_pass(Duration::from_secs(3));
    assert!(
        daemon.cpu_time() - before <= Duration::from_millis(20),
        "{:?}",
        daemon.cpu_time() - before
    );
}

/// `allow_mcpd` lets the processes of that server use the control socket, as soon as it is written.
#[test]
fn a_server_may_be_allowed_to_control_mcpd() {
    let home = Home::new();
    let said = home.path("said");
    let script = format!(
        "while :; do {MCPD} status nosy --json > {said}.new 2>&1; mv {said}.new {said}; sleep 0.1; done & exec {MCPD} example-server",
        said = said.display()
    );
    let toml = format!(
        "command = \"/bin/sh\"\nargs = [\"-c\", {}]\n",
        crate::common::quoted(&script)
    );
    home.server("nosy", &toml);
    let daemon = home.start();
    let says = |text: &str| {
        wait_until(&format!("it is told {text:?}"), || {
            let told = fs::read_to_string(&said).ok()?;
            told.contains(text).then_some(())
        });
    };
    says("may not control mcpd");
    daemon.reload_after(|| {
        daemon.server("nosy", &format!("{toml}allow_mcpd = true\n"));
    });
    says("\"name\": \"nosy\"");
}
