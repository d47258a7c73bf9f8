//! The daemon's own end by force, and the small process above it that ends what it leaves.

use std::fs;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::common::{
    Home, MCPD, RawHost, TestDaemon, command_line, error_code, make_private, quoted, say, state_of,
    wait_until, wait_within,
};

/// Servers of every kind that gets away: a launcher's tree, an orphan in a session of its own, one that is deaf to
/// SIGTERM and to the end of its input.
fn add_fugitives(home: &Home) {
    let toml = "stop_timeout = \"500ms\"\n";
    home.fake_mode(
        "tree",
        &["launcher", "--levels", "3"],
        &["--ignore-eof", "--ignore-term"],
        toml,
    );
    for kind in ["double-ignore-term", "setsid-ignore-term"] {
        home.fake_with(kind, &["--ignore-eof", "--grandchild", kind], toml);
    }
    home.fake_with("deaf", &["--ignore-eof", "--ignore-term"], toml);
}

/// Waits until each of them runs.
fn wait_for_fugitives(daemon: &TestDaemon) {
    for name in ["tree", "double-ignore-term", "setsid-ignore-term", "deaf"] {
        daemon.wait_for_state(name, "running");
    }
    for kind in ["double-ignore-term", "setsid-ignore-term"] {
        daemon.record(kind).wait_for_entry("GRANDCHILD");
    }
    assert!(daemon.fakes().len() >= 9, "{:?}", daemon.fakes());
}

/// Whether nothing of a process runs any more; who reaps an orphan of a bare daemon takes its time.
fn is_gone(pid: i32) -> bool {
    matches!(state_of(pid), None | Some('Z'))
}

/// The daemon with options of its own.
fn start_as(home: Home, options: &[&str]) -> TestDaemon {
    let mut command = home.command(&["daemon"]);
    command.args(options);
    TestDaemon::start_with(home, command)
}

/// Fault 31, C005: a daemon that is killed takes everything along, escapees included, and its warden ends as it
/// ended. The next one starts with nothing in its way.
#[test]
fn nothing_survives_a_killed_daemon() {
    let home = Home::new();
    add_fugitives(&home);
    let mut daemon = home.start();
    wait_for_fugitives(&daemon);
    assert_ne!(daemon.pid(), daemon.outer_pid(), "there is a warden");
    daemon.kill();
    assert_eq!(
        daemon.processes(),
        [],
        "the warden waits until nobody is left"
    );
    daemon.start_again();
    wait_for_fugitives(&daemon);
}

/// The warden that is killed takes the daemon along, and that takes everything else.
#[test]
fn nothing_survives_a_killed_warden() {
    let home = Home::new();
    add_fugitives(&home);
    let mut daemon = home.start();
    wait_for_fugitives(&daemon);
    let mut host = daemon.connect_host("deaf");
    host.initialize();
    kill(Pid::from_raw(daemon.outer_pid()), Signal::SIGKILL).expect("it is there");
    assert_eq!(daemon.wait_end(Duration::from_secs(30)).signal(), Some(9));
    let first = daemon.pid();
    wait_until("the daemon ends too", || is_gone(first).then_some(()));
    // The shim sees a crash, and has another daemon started.
    let works = wait_until("the host is served again", || {
        let answer = host.call("sum", json!({"a": 1}));
        if answer["result"].is_object() {
            return Some(answer);
        }
        // What was sent before the crash was seen has an unknown outcome.
        assert_eq!(error_code(&answer), -31006, "{answer}");
        None
    });
    assert_eq!(works["result"]["content"][0]["text"], "1");
    let left: Vec<_> = daemon.processes();
    let second = wait_until("another daemon answers", || daemon.daemon_pid());
    assert_ne!(second, first);
    assert!(left.iter().all(|(pid, _)| *pid != first), "{left:?}");
    let said = fs::read_to_string(daemon.path("daemon.log")).expect("a log");
    assert!(said.contains("warden was killed"), "{said}");
    drop(host);
    daemon.mcpd(&["shutdown"]).expect_code(0);
}

/// Where no warden is wanted, the process that was started is the daemon; where systemd runs it there is none
/// either, unless one is asked for.
#[test]
fn a_warden_is_there_when_it_is_wanted() {
    let check = |variables: &str, option: &str, expected: bool| {
        let home = Home::new();
        let mut command = home.program_command("sh");
        let script = format!("{variables} exec \"$0\" daemon --warden {option}");
        command.args(["-c", &script, MCPD]);
        let daemon = TestDaemon::start_with(home, command);
        let is_guarded = daemon.pid() != daemon.outer_pid();
        assert_eq!(is_guarded, expected, "{variables} {option}");
        let status = daemon.status().expect("it answers");
        let warden = status["daemon"]["warden"].as_i64();
        let outer = Some(i64::from(daemon.outer_pid()));
        assert_eq!(warden, outer.filter(|_| expected), "{status}");
    };
    check("", "auto", true);
    check("", "never", false);
    check("SYSTEMD_EXEC_PID=$$", "auto", false);
    check("SYSTEMD_EXEC_PID=$$", "always", true);
    check("SYSTEMD_EXEC_PID=1", "auto", true);
}

/// What is sent to the warden reaches the daemon: a reload, an end, and a second one that does not wait. It ends as
/// the daemon ends, by code and by signal.
#[test]
fn signals_to_the_warden_are_the_daemons() {
    let home = Home::new();
    home.fake_with(
        "fake",
        &["--ignore-eof", "--ignore-term"],
        "stop_timeout = \"60s\"\n",
    );
    let mut daemon = home.start();
    daemon.wait_for_state("fake", "running");
    let warden = Pid::from_raw(daemon.outer_pid());
    daemon.fake("later", &[]);
    kill(warden, Signal::SIGHUP).expect("it is there");
    daemon.wait_for_state("later", "running");
    kill(warden, Signal::SIGTERM).expect("it is there");
    daemon.record("fake").wait_for_entry("EOF");
    kill(warden, Signal::SIGTERM).expect("it is there");
    assert_eq!(daemon.wait_end(Duration::from_secs(20)).code(), Some(0));
    assert_eq!(daemon.processes(), []);

    daemon.start_again();
    daemon.signal(Signal::SIGABRT);
    assert_eq!(daemon.wait_end(Duration::from_secs(30)).signal(), Some(6));
    assert_eq!(daemon.processes(), []);
}

/// An error of the daemon's start is seen through the warden as without it.
#[test]
fn a_start_that_fails_is_seen_through_the_warden() {
    let home = Home::new();
    home.settings("memory_limit = \"lots\"\n");
    for option in ["always", "never"] {
        let outcome = home.mcpd(&["daemon", "--warden", option]).expect_code(78);
        assert!(outcome.stderr.contains("mcpd.toml"), "{}", outcome.stderr);
    }
}

/// A daemon that was started in the background has a warden too, in a session apart from whoever started it, with
/// nothing of it open.
#[test]
fn a_detached_daemon_has_a_warden() {
    let home = Home::new();
    add_fugitives(&home);
    home.mcpd(&["daemon", "--detach"]).expect_code(0);
    let daemon = home.daemon_pid().expect("a daemon");
    let status = home.status().expect("it answers");
    let warden = status["daemon"]["warden"].as_i64().expect("a warden");
    let line = command_line(i32::try_from(warden).expect("a pid"));
    assert!(line.starts_with("mcpd daemon"), "{line}");
    let open: Vec<_> = fs::read_dir(format!("/proc/{warden}/fd"))
        .expect("its descriptors")
        .flatten()
        .filter_map(|entry| fs::read_link(entry.path()).ok())
        .collect();
    let strange = |path: &&std::path::PathBuf| {
        let name = path.to_string_lossy();
        name != "/dev/null" && !name.ends_with("daemon.log") && !name.contains("signalfd")
    };
    assert!(open.iter().all(|path| !strange(&path)), "{open:?}");
    let folder = fs::read_link(format!("/proc/{warden}/cwd")).expect("a folder");
    assert_eq!(folder.to_str(), Some("/"));
    wait_until("the servers run", || {
        (home.fakes().len() >= 9).then_some(())
    });
    kill(Pid::from_raw(daemon), Signal::SIGKILL).expect("it is there");
    wait_within(Duration::from_secs(30), "nothing is left", || {
        home.processes().is_empty().then_some(())
    });
}

/// Fault 40: a daemon that was started with SIGHUP ignored and SIGTERM blocked handles both, and its children are
/// like any others.
#[test]
fn a_daemon_with_odd_signals_is_like_any_other() {
    for option in ["always", "never"] {
        let home = Home::new();
        let signals = home.path("signals");
        let script = format!(
            // No command is run for it: some shells block all signals while they start one.
            "while read -r line; do case $line in Sig*) echo \"$line\";; esac; done < /proc/$$/status > {}; exec cat",
            signals.display()
        );
        home.server(
            "shell",
            &format!(
                "command = \"/bin/sh\"\nargs = [\"-c\", {}]\n",
                quoted(&script)
            ),
        );
        let mut command = home.program_command("python3");
        let script = "import os, signal, sys\n\
            signal.signal(signal.SIGHUP, signal.SIG_IGN)\n\
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n\
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGCHLD])\n\
            os.execv(sys.argv[1], ['mcpd', 'daemon', '--warden', sys.argv[2]])\n";
        command.args(["-c", script, MCPD, option]);
        let mut daemon = TestDaemon::start_with(home, command);
        let seen = wait_until("the child has written", || {
            let seen = fs::read_to_string(&signals).unwrap_or_default();
            seen.contains("SigCgt").then_some(seen)
        });
        for mask in ["SigBlk", "SigIgn"] {
            let line = seen.lines().find(|line| line.starts_with(mask));
            assert!(
                line.is_some_and(|line| line.ends_with("0000000000000000")),
                "{line:?}"
            );
        }
        daemon.fake("later", &[]);
        kill(Pid::from_raw(daemon.outer_pid()), Signal::SIGHUP).expect("it is there");
        daemon.wait_for_state("later", "running");
        assert_eq!(daemon.terminate().code(), Some(0), "{option}");
    }
}

/// A SIGTERM that comes while the daemon starts ends it well whenever it comes: nothing is left of it, not even its
/// socket.
#[test]
fn a_start_can_be_ended_at_any_moment() {
    for option in ["always", "never"] {
        for step in 0..12 {
            let home = Home::new();
            home.fake("fake", &["--ignore-eof"]);
            let mut child = home
                .command(&["daemon", "--warden", option])
                .stderr(fs::File::create(home.path("daemon.log")).expect("a log"))
                .process_group(0)
                .spawn()
                .expect("it starts");
            // The steps of a start leave these behind one after the other.
            let places = [
                "state/mcpd",
                "run/mcpd/mcpd.sock.lock",
                "run/mcpd/mcpd.sock",
            ];
            if let Some(place) = places.get(step % 4) {
                wait_until("the start has come so far", || {
                    home.path(place).exists().then_some(())
                });
            }
            let outer = i32::try_from(child.id()).expect("a pid");
            kill(Pid::from_raw(outer), Signal::SIGTERM).expect("it is there");
            let status = wait_until("it ends", || {
                child.try_wait().expect("it can be waited for")
            });
            let is_well = status.code() == Some(0) || status.signal() == Some(15);
            assert!(is_well, "{option} {step}: {status}");
            if step % 4 == 2 {
                assert_eq!(status.code(), Some(0), "the socket was there: {option}");
            }
            assert!(!home.control_socket().exists(), "{option} {step}");
            assert_eq!(home.processes(), [], "{option} {step}");
        }
    }
}

/// The warden is small: it needs no more memory of its own than the daemon does before it has done anything.
#[test]
fn the_warden_is_small() {
    let home = Home::new();
    let daemon = home.start();
    let private = |pid: i32| {
        let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).expect("it runs");
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("Private_Dirty:"));
        let number = line.and_then(|line| line.trim().strip_suffix(" kB"));
        number
            .and_then(|number| number.trim().parse::<u64>().ok())
            .expect("a number")
    };
    let (warden, whole) = (private(daemon.outer_pid()), private(daemon.pid()));
    say(&format!(
        "private memory: warden {warden} KiB, daemon {whole} KiB"
    ));
    assert!(warden < 1500, "{warden} KiB");
    let threads = fs::read_dir(format!("/proc/{}/task", daemon.outer_pid()));
    assert_eq!(threads.expect("its threads").count(), 1);
}

/// A stranger that the test started is not the daemon's, whatever happens to that.
#[test]
fn a_stranger_is_left_alone() {
    let home = Home::new();
    add_fugitives(&home);
    let mut stranger = Command::new("sleep")
        .arg("300")
        .spawn()
        .expect("a stranger");
    let mut daemon = home.start();
    wait_for_fugitives(&daemon);
    daemon.kill();
    assert!(stranger.try_wait().expect("it can be waited for").is_none());
    stranger.kill().expect("it is there");
    stranger.wait().expect("it was ended");
    drop(start_as(Home::new(), &["--warden", "never"]));
}

/// The options of a daemon that has nobody above it.
const BARE: &[&str] = &["--warden", "never"];

/// Fault 32, C005, C167: what a daemon left that was killed with nobody above it is ended by the next one before
/// anything is started: a server that holds an exclusive lock finds it free.
#[test]
fn what_a_killed_daemon_left_is_swept_by_the_next() {
    let home = Home::new();
    add_fugitives(&home);
    let lock = home.path("lock");
    home.fake_with(
        "locked",
        &[
            "--lock",
            lock.to_str().expect("plain"),
            "--ignore-eof",
            "--ignore-term",
        ],
        "",
    );
    let mut daemon = start_as(home, BARE);
    wait_for_fugitives(&daemon);
    daemon.wait_for_state("locked", "running");
    daemon.kill();
    let left = daemon.fakes();
    assert!(left.len() >= 5, "the deaf ones live on: {left:?}");
    daemon.start_again_as(BARE);
    for (pid, line) in &left {
        assert!(is_gone(*pid), "{line}");
    }
    wait_for_fugitives(&daemon);
    daemon.wait_for_state("locked", "running");
    let logs = daemon.mcpd(&["logs", "locked", "-n", "1000"]).stdout;
    assert!(!logs.contains("locked by another copy"), "{logs}");
    assert!(daemon.log().contains("ended what an earlier daemon left"));
}

/// A record for each run, that goes with it; no folder is left by an end in order.
#[test]
fn records_come_and_go_with_runs() {
    let home = Home::new();
    home.fake("one", &[]);
    home.fake("two", &[]);
    let mut daemon = home.start();
    let (one, two) = (daemon.server_pid("one"), daemon.server_pid("two"));
    let records = |daemon: &TestDaemon| {
        let runs = fs::read_dir(daemon.path("state/mcpd/runs")).expect("the folder");
        let mut names: Vec<String> = runs
            .flatten()
            .flat_map(|run| fs::read_dir(run.path()).expect("a folder").flatten())
            .filter_map(|record| record.file_name().into_string().ok())
            .filter_map(|name| Some(name.split_once('-')?.0.to_owned()))
            .collect();
        names.sort();
        names
    };
    let mut expected = vec![one.to_string(), two.to_string()];
    expected.sort();
    assert_eq!(records(&daemon), expected);
    daemon.mcpd(&["stop", "one"]).expect_code(0);
    assert_eq!(records(&daemon), [two.to_string()]);
    assert!(daemon.terminate().success());
    let runs = fs::read_dir(daemon.path("state/mcpd/runs")).expect("the folder");
    assert_eq!(runs.count(), 0);
}

/// Fault 27: a record whose process is another by now, or that says too little, harms nobody and is told.
#[test]
fn strangers_with_a_recorded_number_are_left_alone() {
    let home = Home::new();
    home.fake("fake", &[]);
    let mut stranger = Command::new("sleep")
        .arg("300")
        .spawn()
        .expect("a stranger");
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("a boot");
    let namespace = fs::read_link("/proc/self/ns/pid").expect("a namespace");
    let owner = home.control_socket();
    home.write("state/mcpd/runs/dead/owner", owner.to_str().expect("plain"));
    make_private(&home.path("state/mcpd"));
    let mut record = json!({
        "pid": stranger.id(), "start_ticks": 1, "boot": boot.trim(),
        "pid_namespace": namespace.to_str(), "tag": "dead/fake/1", "leaf": null
    });
    home.write("state/mcpd/runs/dead/1-1.json", record.to_string());
    record["start_ticks"] = json!(null);
    home.write("state/mcpd/runs/dead/1-2.json", record.to_string());
    record["boot"] = json!("another");
    home.write("state/mcpd/runs/dead/1-3.json", record.to_string());
    home.write("state/mcpd/runs/dead/1-4.json", "{");
    let daemon = home.start();
    daemon.wait_for_state("fake", "running");
    assert!(stranger.try_wait().expect("it can be waited for").is_none());
    let log = daemon.log();
    for part in ["started at another time", "no start time", "1-4.json"] {
        assert!(log.contains(part), "{part}: {log}");
    }
    assert!(
        !daemon.path("state/mcpd/runs/dead").exists(),
        "it is told once"
    );
    stranger.kill().expect("it is there");
    stranger.wait().expect("it was ended");
}

/// Two daemons with one state folder and a socket each never sweep what is the other's, neither while that runs nor
/// after it was killed.
#[test]
fn daemons_do_not_sweep_each_other() {
    let home = Home::new();
    home.fake_with(
        "deaf",
        &["--ignore-eof", "--ignore-term"],
        "stop_timeout = \"500ms\"\n",
    );
    let mut first = start_as(home, BARE);
    let pid = first.server_pid("deaf");
    let socket = first.path("run/other.sock");
    let second = |command: &str| {
        let arguments = ["--socket", socket.to_str().expect("plain"), command];
        first.command(&arguments)
    };
    let start_second = || {
        let mut child = second("daemon")
            .args(BARE)
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        wait_until("the second one serves", || {
            UnixStream::connect(&socket).ok().map(drop)
        });
        assert!(child.try_wait().expect("it can be waited for").is_none());
        child
    };
    let mut other = start_second();
    wait_until("its server runs", || {
        (first.fakes().len() == 2).then_some(())
    });
    assert_eq!(
        first.server_pid("deaf"),
        pid,
        "the first one's server lives on"
    );
    kill(
        Pid::from_raw(i32::try_from(other.id()).expect("a pid")),
        Signal::SIGKILL,
    )
    .expect("it runs");
    other.wait().expect("it was killed");
    let of_other: Vec<_> = first
        .fakes()
        .into_iter()
        .filter(|(other, _)| *other != pid)
        .collect();
    assert_eq!(of_other.len(), 1, "{of_other:?}");
    first.kill();
    first.start_again_as(BARE);
    assert!(is_gone(pid), "its own was swept");
    assert!(!is_gone(of_other[0].0), "the other's was not");
    let arguments = ["--socket", "run/other.sock", "daemon", "--warden", "never"];
    let mut other = first
        .command(&arguments)
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    wait_until("the second one has swept too", || {
        is_gone(of_other[0].0).then_some(())
    });
    wait_until("it serves", || {
        let arguments = ["--socket", "run/other.sock", "shutdown"];
        (first.mcpd(&arguments).code == 0).then_some(())
    });
    other.wait().expect("it ends");
}

/// Fault 53: a state folder that takes no record and no state keeps nobody from being served; each is told once.
#[test]
fn a_state_folder_that_takes_nothing_is_no_obstacle() {
    let home = Home::new();
    home.fake("fake", &[]);
    home.write("state/mcpd/runs", "in the way");
    home.write("state/mcpd/daemon.json/in", "the way");
    make_private(&home.path("state/mcpd"));
    let daemon = home.start();
    let mut host = daemon.connect_host("fake");
    host.initialize();
    for number in 0..3 {
        daemon.mcpd(&["restart", "fake"]).expect_code(0);
        assert_eq!(host.text("sum", json!({"a": number})), number.to_string());
    }
    wait_until("it is told", || {
        daemon
            .log()
            .contains("the state cannot be recorded")
            .then_some(())
    });
    let log = daemon.log();
    assert_eq!(
        log.matches("the state cannot be recorded").count(),
        1,
        "{log}"
    );
    assert_eq!(log.matches("runs cannot be recorded").count(), 1, "{log}");
}

/// Asks for a fault of the daemon itself.
fn ask_for_fault(home: &Home, server: &str, client: &str) -> RawHost {
    let mut host = RawHost::on_socket(&home.control_socket());
    host.send(
        &json!({"jsonrpc": "2.0", "id": 1, "method": "attach", "params":
        {"server": server, "client": client, "directory": "/"}}),
    );
    host
}

/// Fault 33: a panic in what holds one server is that server's end with all that came from it, an `internal-error`,
/// and a new start; nobody else notices, and its hosts are served again.
#[test]
fn a_panic_of_a_worker_is_one_servers_restart() {
    let home = Home::new();
    add_fugitives(&home);
    home.fake("other", &[]);
    let daemon = home.start();
    wait_for_fugitives(&daemon);
    let other = daemon.server_pid("other");
    let mut host = daemon.connect_host("tree");
    host.initialize();
    let mark = daemon.path("record/tree").display().to_string();
    let of_tree = |(_, line): &(i32, String)| line.contains(&mark);
    let before: Vec<_> = daemon.fakes().into_iter().filter(of_tree).collect();
    assert_eq!(before.len(), 4, "{before:?}");
    let _asking = ask_for_fault(&daemon, "tree", "fault-panic");
    let status = daemon.wait_for("tree", "it runs again", |server| {
        server["state"] == "running" && server["generation"] == 2
    });
    assert_eq!(status["exit"]["result"], "internal-error", "{status}");
    for (pid, line) in before {
        assert!(is_gone(pid), "{line}");
    }
    assert_eq!(daemon.server_pid("other"), other);
    let works = wait_until("the host is served again", || {
        let answer = host.call("sum", json!({"a": 1}));
        answer["result"].is_object().then_some(answer)
    });
    assert_eq!(works["result"]["content"][0]["text"], "1");
    wait_until("the log says why", || {
        daemon
            .log()
            .contains("a fault that was asked for")
            .then_some(())
    });
}

/// Fault 33: a panic in what reads for a server is that server's end, and nobody else's.
#[test]
fn a_panic_of_a_reader_is_one_servers_restart() {
    let home = Home::new();
    home.fake("other", &[]);
    home.fake("poisoned", &["--stderr", "fault-panic"]);
    let daemon = home.start();
    let status = daemon.wait_for("poisoned", "it is started again", |server| {
        server["generation"].as_u64() >= Some(2)
    });
    assert_eq!(status["exit"]["result"], "internal-error", "{status}");
    daemon.wait_for_state("other", "running");
    let mut host = daemon.connect_host("other");
    host.initialize();
    assert_eq!(
        host.call("sum", json!({"a": 1}))["result"]["content"][0]["text"],
        "1"
    );
}

/// Fault 33: what a host says that breaks its reader ends that host's attachment, and no other's.
#[test]
fn a_panic_over_a_hosts_bytes_is_that_hosts_end() {
    let home = Home::new();
    home.fake("one", &[]);
    let daemon = home.start();
    let pid = daemon.server_pid("one");
    let mut good = daemon.connect_host("one");
    good.initialize();
    let mut bad = RawHost::on_socket(&daemon.server_socket("one"));
    bad.send_bytes(b"fault-panic\n");
    assert!(bad.wait_end().is_empty());
    let mut shim = daemon.connect_host("one");
    shim.send_bytes(b"fault-panic\n");
    shim.wait_exit();
    assert_eq!(
        good.call("sum", json!({"a": 1}))["result"]["content"][0]["text"],
        "1"
    );
    assert_eq!(daemon.server_pid("one"), pid);
}

/// Fault 33: a panic that is no single server's ends the daemon and all that it has started, with nobody above it
/// too; `status` says why afterwards, and the next daemon starts as ever.
#[test]
fn a_panic_of_the_daemon_leaves_nothing_and_says_why() {
    for options in [BARE, &[]] {
        let home = Home::new();
        add_fugitives(&home);
        let mut daemon = start_as(home, options);
        wait_for_fugitives(&daemon);
        drop(ask_for_fault(&daemon, "fault-panic", "x"));
        assert_eq!(daemon.wait_end(Duration::from_secs(30)).signal(), Some(6));
        assert_eq!(daemon.processes(), [], "{options:?}");
        let outcome = daemon.mcpd(&["status"]).expect_code(4);
        assert!(
            outcome.stdout.contains("a fault that was asked for"),
            "{}",
            outcome.stdout
        );
        daemon.start_again();
        wait_for_fugitives(&daemon);
    }
}

/// Without a daemon, `status` tells how the last one ended and how its servers were.
#[test]
fn status_tells_of_the_last_daemon() {
    let home = Home::new();
    home.fake("good", &[]);
    home.fake("bad", &["--stderr", "no licence key", "--exit", "1"]);
    let mut daemon = home.start();
    daemon.wait_for_state("good", "running");
    daemon.wait_for_state("bad", "backoff");
    let pid = daemon.pid();
    let file = daemon.path("state/mcpd/daemon.json");
    wait_until("the state is recorded", || {
        let text = fs::read_to_string(&file).ok()?;
        (text.contains("no licence key") && text.contains("\"running\"")).then_some(())
    });
    daemon.kill();
    let said = daemon.mcpd(&["status"]).expect_code(4).stdout;
    assert!(
        said.contains(&format!("(pid {pid}) ended without a word")),
        "{said}"
    );
    assert!(said.contains("was running"), "{said}");
    let last = daemon.mcpd(&["status", "--json"]).json()["last"].clone();
    assert_eq!(last["pid"], pid, "{last}");
    assert!(last["end"].is_null(), "{last}");
    daemon.start_again();
    daemon.wait_for_state("good", "running");
    assert!(daemon.terminate().success());
    let last = daemon.mcpd(&["status", "--json"]).json()["last"].clone();
    assert_eq!(last["end"]["orderly"], true, "{last}");
    assert!(
        last["end"]["reason"].to_string().contains("SIGTERM"),
        "{last}"
    );
}

/// Fault 28: servers whose own deadlines are long do not hold up the daemon's end for longer than its budget.
#[test]
fn the_daemon_ends_within_its_budget() {
    let home = Home::new();
    for number in 0..3 {
        home.fake_with(
            &format!("deaf{number}"),
            &["--ignore-eof", "--ignore-term"],
            "stop_timeout = \"10m\"\n",
        );
    }
    let mut daemon = home.start();
    for number in 0..3 {
        daemon.wait_for_state(&format!("deaf{number}"), "running");
    }
    // Far more than the twenty seconds, for machines that are busy; far less than the servers' own.
    kill(Pid::from_raw(daemon.outer_pid()), Signal::SIGTERM).expect("it is there");
    assert_eq!(daemon.wait_end(Duration::from_secs(60)).code(), Some(0));
    assert_eq!(daemon.processes(), []);
}
