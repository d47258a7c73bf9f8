//! How a child ends, and that nothing of it is left. The home's own check proves the second for every test.

use std::fs;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::common::{
    Home, MCPD, QUICK, Stopwatch, TestDaemon, error_code, let_pass, quoted, state_of, text_of,
    wait_until,
};

/// C001, fault 18: a server with a timer that ignores the end of its input is ended all the same, by `stop` and with
/// the daemon.
#[test]
fn a_server_that_ignores_eof_is_ended() {
    let home = Home::new();
    home.fake("one", &["--ignore-eof"]);
    home.fake("two", &["--ignore-eof"]);
    let mut daemon = home.start();
    let stopped = daemon.server_pid("one");
    daemon.server_pid("two");
    daemon.mcpd(&["stop", "one"]).expect_code(0);
    assert!(
        !fs::exists(format!("/proc/{stopped}")).expect("/proc"),
        "{stopped} is still there"
    );
    assert_eq!(
        daemon.record("one").of("EOF").len(),
        1,
        "stdin was closed first"
    );
    assert_eq!(daemon.record("one").of("SIGNAL"), ["SIGTERM"]);
    assert!(daemon.terminate().success());
    assert_eq!(daemon.record("two").of("SIGNAL"), ["SIGTERM"]);
    assert_eq!(daemon.processes(), []);
}

/// C010: a server gets the time to save its state after the end of its input, and that is a success.
#[test]
fn a_server_may_save_its_state() {
    let home = Home::new();
    let saved = home.path("saved");
    home.fake_with(
        "fake",
        &["--save-on-eof", saved.to_str().expect("plain")],
        "stop_timeout = \"5s\"\n",
    );
    let daemon = home.start();
    daemon.server_pid("fake");
    daemon.mcpd(&["stop", "fake"]).expect_code(0);
    assert_eq!(fs::read_to_string(saved).expect("it was saved"), "saved");
    let status = daemon.server_status("fake");
    assert_eq!(
        (&status["state"], &status["result"]),
        (&json!("stopped"), &json!("success")),
        "{status}"
    );
    assert!(daemon.record("fake").of("SIGNAL").is_empty());
}

/// C011, fault 19: a server that ignores everything is ended within the sum of the deadlines, and the log says how.
#[test]
fn a_server_that_ignores_everything_is_killed_in_time() {
    let home = Home::new();
    home.fake("fake", &["--ignore-eof", "--ignore-term", "--ignore-int"]);
    let daemon = home.start();
    let pid = daemon.server_pid("fake");
    let watch = Stopwatch::start();
    daemon.mcpd(&["stop", "fake"]).expect_code(0);
    assert!(
        watch.elapsed() < Duration::from_secs(4),
        "{:?}",
        watch.elapsed()
    );
    assert!(
        !fs::exists(format!("/proc/{pid}")).expect("/proc"),
        "{pid} is still there"
    );
    assert_eq!(daemon.server_status("fake")["state"], "stopped");
    wait_until("the log names the step", || {
        daemon.log().contains("stop-sigkill").then_some(())
    });
}

/// C003: a launcher, a launcher below it and the server below that: nothing survives a stop, twenty times.
#[test]
fn nothing_of_a_launchers_tree_survives_a_stop() {
    let home = Home::new();
    home.fake_mode(
        "fake",
        &["launcher", "--levels", "3"],
        &["--ignore-eof"],
        "drain_timeout = \"100ms\"\nstop_timeout = \"100ms\"\n",
    );
    let daemon = home.start();
    for round in 0..20 {
        daemon.mcpd(&["start", "fake"]).expect_code(0);
        daemon.wait_for_state("fake", "running");
        assert_eq!(daemon.fakes().len(), 4, "round {round}");
        daemon.mcpd(&["stop", "fake"]).expect_code(0);
        assert_eq!(daemon.fakes(), [], "round {round}");
    }
}

/// Fault 21: every kind of grandchild is gone after a stop: in the group, in a session of its own, orphaned, deaf to
/// SIGTERM, holding stdout.
#[test]
fn no_grandchild_gets_away() {
    let home = Home::new();
    let kinds = [
        "group",
        "group-ignore-term",
        "setsid",
        "setsid-ignore-term",
        "double",
        "double-ignore-term",
        "double-ignore-term-and-keep-stdout",
    ];
    for kind in kinds {
        home.fake(kind, &["--grandchild", kind]);
    }
    let daemon = home.start();
    for kind in kinds {
        daemon.wait_for_state(kind, "running");
        daemon.record(kind).wait_for_entry("GRANDCHILD");
        daemon.mcpd(&["stop", kind]).expect_code(0);
        let mark = daemon.path("record").join(kind).display().to_string();
        let left: Vec<_> = daemon
            .fakes()
            .into_iter()
            .filter(|(_, line)| line.ends_with(&mark))
            .collect();
        assert_eq!(left, [], "{kind}");
    }
}

/// Fault 22: the end of the leader is seen at once although an escaped grandchild holds its stdout, and the next copy
/// starts only after that one is gone too.
#[test]
fn a_held_stdout_does_not_hide_the_leaders_end() {
    let home = Home::new();
    home.fake(
        "fake",
        &["--grandchild", "double-ignore-term-and-keep-stdout"],
    );
    let daemon = home.start();
    let mut host = daemon.socket_host("fake");
    host.initialize();
    let grandchild = daemon.record("fake").wait_for_entry("GRANDCHILD")[0].clone();
    let id = host.start_call("stall", json!({}));
    daemon.record("fake").wait_for("tools/call", 1);
    let watch = Stopwatch::start();
    let pid = daemon.server_pid("fake");
    kill(Pid::from_raw(pid), Signal::SIGKILL).expect("the child is there");
    assert_eq!(error_code(&host.answer(id)), -31001);
    assert!(
        watch.elapsed() < Duration::from_secs(3),
        "{:?}",
        watch.elapsed()
    );
    daemon.wait_for("fake", "the next run", |server| {
        server["state"] == "running" && server["generation"] == 2
    });
    let old = grandchild
        .split(' ')
        .next()
        .and_then(|pid| pid.strip_prefix("pid="))
        .expect("its pid");
    assert!(
        !fs::exists(format!("/proc/{old}")).expect("/proc"),
        "{old} is still there"
    );
}

/// C006, fault 41: a server is not ended by a thread of the daemon that retires after idling.
#[test]
fn an_idle_server_is_left_alone() {
    let home = Home::new();
    home.fake("fake", &[]);
    let daemon = home.start();
    let mut host = daemon.connect_host("fake");
    host.initialize();
    let pid = host.text("pid", json!({}));
    // The default keep-alive of blocking threads is ten seconds.
    let_pass(Duration::from_secs(12));
    assert_eq!(host.text("pid", json!({})), pid);
    assert!(daemon.record("fake").of("SIGNAL").is_empty());
}

/// C008: end of input, SIGTERM and a wait come before SIGKILL, so that docker can pass the signal on.
#[test]
fn a_launcher_gets_the_time_to_pass_sigterm_on() {
    let home = Home::new();
    home.fake_mode(
        "box",
        &["docker"],
        &["--ignore-eof"],
        "drain_timeout = \"100ms\"\nstop_timeout = \"2s\"\n",
    );
    let daemon = home.start();
    daemon.wait_for_state("box", "running");
    daemon.mcpd(&["stop", "box"]).expect_code(0);
    let record = daemon.record("box");
    assert_eq!(record.of("EOF").len(), 1);
    assert_eq!(
        record.of("SIGNAL"),
        ["SIGTERM"],
        "the container was told by its client"
    );
}

/// C008: a stop command runs as a part of the teardown.
#[test]
fn a_stop_command_is_run() {
    let home = Home::new();
    let mark = home.path("stopped");
    let toml = format!(
        "stop_command = [\"/bin/sh\", \"-c\", \"echo $1 > {}\", \"sh\", \"now\"]\n{QUICK}",
        mark.display()
    );
    home.fake_with("fake", &["--ignore-eof"], &toml);
    let daemon = home.start();
    daemon.wait_for_state("fake", "running");
    daemon.mcpd(&["stop", "fake"]).expect_code(0);
    assert_eq!(fs::read_to_string(mark).expect("the command ran"), "now\n");
}

/// C013, C015: a hundred stops and a hundred crashes, of launcher trees too, leave no zombie and no
/// descriptor, under a limit of 256.
#[test]
fn stops_and_crashes_leak_nothing() {
    let home = Home::new();
    let toml = "stable_after = \"10ms\"\ndrain_timeout = \"100ms\"\nstop_timeout = \"500ms\"\n";
    home.fake_with("plain", &[], toml);
    home.fake_mode("tree", &["launcher"], &[], toml);
    let mut command = home.program_command("/bin/sh");
    command.args(["-c", "ulimit -n 256; exec \"$0\" daemon", MCPD]);
    let daemon = TestDaemon::start_with(home, command);
    let mut plain = daemon.socket_host("plain");
    let mut tree = daemon.socket_host("tree");
    plain.initialize();
    tree.initialize();
    let baseline = daemon.open_descriptors();
    for round in 0..50 {
        for name in ["plain", "tree"] {
            daemon.mcpd(&["restart", name]).expect_code(0);
        }
        for host in [&mut plain, &mut tree] {
            assert_eq!(
                error_code(&host.call("crash", json!({}))),
                -31001,
                "round {round}"
            );
            assert_eq!(host.text("sum", json!({"a": 1})), "1", "round {round}");
        }
    }
    wait_until("every child is reaped", || {
        daemon.zombies().is_empty().then_some(())
    });
    wait_until("the descriptors are back to where they were", || {
        (daemon.open_descriptors() <= baseline).then_some(())
    });
}

/// The soft limit of a login session is raised for the daemon, so that many hosts find room; programs
/// begin with the one that was.
#[test]
fn a_soft_limit_for_descriptors_is_for_the_programs() {
    let home = Home::new();
    home.fake("fake", &[]);
    let mut command = home.program_command("/bin/sh");
    command.args(["-c", "ulimit -Sn 64; exec \"$0\" daemon", MCPD]);
    let daemon = TestDaemon::start_with(home, command);
    let limits = fs::read_to_string(format!("/proc/{}/limits", daemon.server_pid("fake")));
    let limits = limits.expect("it runs");
    let soft = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))
        .and_then(|rest| rest.split_whitespace().next());
    assert_eq!(soft, Some("64"), "{limits}");
    let mut hosts: Vec<_> = (0..30).map(|_| daemon.connect_host("fake")).collect();
    for host in &mut hosts {
        host.initialize();
    }
    assert!(daemon.open_descriptors() > 64);
}

/// C017: a server that writes for ever and does not react to anything is killed in time.
#[test]
fn a_spinning_server_is_killed() {
    let home = Home::new();
    home.fake("fake", &["--spin-on-epipe", "--ignore-term"]);
    let daemon = home.start();
    let mut host = daemon.socket_host("fake");
    host.initialize();
    let watch = Stopwatch::start();
    daemon.mcpd(&["restart", "fake"]).expect_code(0);
    assert!(
        watch.elapsed() < Duration::from_secs(6),
        "{:?}",
        watch.elapsed()
    );
    assert_eq!(host.text("sum", json!({"a": 1})), "1");
    daemon.mcpd(&["stop", "fake"]).expect_code(0);
    assert_eq!(daemon.fakes(), []);
    let before = daemon.cpu_time();
    let_pass(Duration::from_secs(1));
    assert!(
        daemon.cpu_time() - before < Duration::from_millis(100),
        "the daemon spins"
    );
}

/// C019, fault 17: a server that shuts its stdin and stays is restarted; its caller gets an error; others go on.
#[test]
fn a_shut_stdin_is_one_servers_failure() {
    let home = Home::new();
    home.fake("shut", &["--close-stdin"]);
    home.fake("fine", &[]);
    let daemon = home.start();
    let mut shut = daemon.socket_host("shut");
    let mut fine = daemon.socket_host("fine");
    shut.initialize();
    fine.initialize();
    let busy = fine.start_call("sleep", json!({"ms": 1500, "text": "undisturbed"}));
    let answer = shut.call("echo", json!({"text": "x".repeat(300 * 1024)}));
    assert!([-31000, -31001].contains(&error_code(&answer)), "{answer}");
    assert_eq!(text_of(&fine.answer(busy)), "undisturbed");
    wait_until("it is started again", || {
        (daemon.record("shut").starts() > 1).then_some(())
    });
    assert_eq!(daemon.record("fine").starts(), 1);
}

/// Fault 16: a server that closes its stdout and stays is torn down after a second and restarted.
#[test]
fn a_closed_stdout_ends_the_run() {
    let home = Home::new();
    home.fake("fake", &["--close-stdout", "--ignore-eof"]);
    let daemon = home.start();
    let mut host = daemon.socket_host("fake");
    host.initialize();
    let answer = host.call("sum", json!({}));
    assert!([-31000, -31001].contains(&error_code(&answer)), "{answer}");
    wait_until("it is started again", || {
        (daemon.record("fake").starts() > 1).then_some(())
    });
}

/// C022: a child has its own session and group and no terminal; Ctrl-C reaches the daemon alone, which then
/// ends its children in order.
#[test]
fn an_interrupt_reaches_the_daemon_alone() {
    use std::os::unix::process::CommandExt;
    let home = Home::new();
    home.fake("fake", &[]);
    let mut command = home.command(&["daemon"]);
    command.process_group(0);
    let mut daemon = TestDaemon::start_with(home, command);
    let mut host = daemon.socket_host("fake");
    host.initialize();
    let facts = host.text("process", json!({}));
    let pid = daemon.server_pid("fake");
    for fact in [
        format!("pid={pid}"),
        format!("pgid={pid}"),
        format!("sid={pid}"),
        "tty=false".to_owned(),
    ] {
        assert!(facts.split(' ').any(|seen| seen == fact), "{fact}: {facts}");
    }
    kill(Pid::from_raw(-daemon.outer_pid()), Signal::SIGINT).expect("the group is there");
    assert!(daemon.wait_end(Duration::from_secs(20)).success());
    let record = daemon.record("fake");
    assert!(record.of("SIGNAL").is_empty(), "{:?}", record.of("SIGNAL"));
    assert_eq!(
        record.of("END").len(),
        1,
        "it ended by the end of its input"
    );
}

/// C022: the same in a real terminal: the daemon has it, its child cannot reach it, and the Ctrl-C that is typed
/// there is for the daemon.
#[test]
fn a_typed_interrupt_reaches_the_daemon_alone() {
    use std::io::Write;
    let home = Home::new();
    home.fake("fake", &[]);
    let terminal = nix::pty::openpty(None, None).expect("a terminal");
    let place = nix::unistd::ttyname(&terminal.slave).expect("its name");
    let mut command = home.program_command("/bin/sh");
    command
        .args(["-c", "exec setsid --ctty \"$0\" daemon < \"$1\"", MCPD])
        .arg(place);
    let mut daemon = TestDaemon::start_with(home, command);
    let stat = fs::read_to_string(format!("/proc/{}/stat", daemon.outer_pid())).expect("it runs");
    let after_name = stat.rsplit_once(')').expect("a name").1;
    let terminal_number = after_name.split_whitespace().nth(4);
    assert_ne!(terminal_number, Some("0"), "the daemon has a terminal");
    let mut host = daemon.socket_host("fake");
    host.initialize();
    let facts = host.text("process", json!({}));
    assert!(facts.contains("tty=false"), "{facts}");
    fs::File::from(terminal.master.try_clone().expect("a descriptor"))
        .write_all(b"\x03")
        .expect("Ctrl-C is typed");
    assert!(daemon.wait_end(Duration::from_secs(20)).success());
    let record = daemon.record("fake");
    assert!(record.of("SIGNAL").is_empty(), "{:?}", record.of("SIGNAL"));
    assert_eq!(record.of("EOF").len(), 1);
}

/// Fault 24: a child that was stopped (SIGSTOP) is ended like any other.
#[test]
fn a_stopped_process_is_ended() {
    let home = Home::new();
    home.fake("fake", &[]);
    let daemon = home.start();
    kill(Pid::from_raw(daemon.server_pid("fake")), Signal::SIGSTOP).expect("the child is there");
    daemon.mcpd(&["stop", "fake"]).expect_code(0);
    assert_eq!(daemon.fakes(), []);
}

/// SIGTERM with twenty servers, three of them deaf: all in parallel, within the daemon's deadline.
#[test]
fn the_daemon_ends_its_servers_side_by_side() {
    let home = Home::new();
    for number in 0..20 {
        let deaf: &[&str] = if number < 3 {
            &["--ignore-eof", "--ignore-term"]
        } else {
            &[]
        };
        home.fake_with(&format!("s{number}"), deaf, "stop_timeout = \"2s\"\n");
    }
    let mut daemon = home.start();
    for number in 0..20 {
        daemon.wait_for_state(&format!("s{number}"), "running");
    }
    let watch = Stopwatch::start();
    assert!(daemon.terminate().success());
    assert!(
        watch.elapsed() < Duration::from_secs(10),
        "{:?}",
        watch.elapsed()
    );
    assert_eq!(daemon.processes(), []);
}

/// A second SIGTERM goes straight to SIGKILL, and still nothing is left.
#[test]
fn a_second_sigterm_kills() {
    let home = Home::new();
    home.fake_with(
        "fake",
        &[
            "--ignore-eof",
            "--ignore-term",
            "--grandchild",
            "double-ignore-term",
        ],
        "",
    );
    let mut daemon = home.start();
    daemon.wait_for_state("fake", "running");
    let watch = Stopwatch::start();
    daemon.signal(Signal::SIGTERM);
    daemon.record("fake").wait_for_entry("EOF");
    daemon.signal(Signal::SIGTERM);
    daemon.wait_end(Duration::from_secs(10));
    assert!(
        watch.elapsed() < Duration::from_secs(5),
        "{:?}",
        watch.elapsed()
    );
    assert_eq!(daemon.processes(), []);
}

/// C167: whatever is asked in whatever order, there is never a second copy: each holds an exclusive lock.
#[test]
fn a_storm_of_restarts_never_makes_two_copies() {
    let home = Home::new();
    let lock = home.path("lock");
    home.fake("fake", &["--lock", lock.to_str().expect("plain")]);
    let daemon = home.start();
    daemon.wait_for_state("fake", "running");
    std::thread::scope(|scope| {
        for number in 0..6 {
            let daemon = &daemon;
            scope.spawn(move || {
                for round in 0..8 {
                    let verb = ["restart", "start", "stop", "restart"][(number + round) % 4];
                    daemon.mcpd(&[verb, "fake"]);
                }
            });
        }
    });
    daemon.mcpd(&["start", "fake"]).expect_code(0);
    let status = daemon.wait_for_state("fake", "running");
    let logs = daemon.mcpd(&["logs", "fake", "-n", "1000"]).stdout;
    assert!(!logs.contains("locked by another copy"), "{logs}");
    assert_eq!(daemon.fakes().len(), 1, "{status}");
}

/// A server that is still starting can be stopped; nothing of it is left.
#[test]
fn a_start_can_be_stopped() {
    let home = Home::new();
    home.fake("fake", &["--ready-after", "60000"]);
    let daemon = home.start();
    daemon.record("fake").wait_for_entry("START");
    daemon.mcpd(&["stop", "fake"]).expect_code(0);
    assert_eq!(daemon.fakes(), []);
    assert_eq!(daemon.server_status("fake")["state"], "stopped");
}

/// A child starts with an empty mask, default signals and descriptors 0 to 2, also where the daemon was
/// started with SIGHUP ignored and SIGTERM blocked; the daemon itself handles both.
#[test]
fn a_child_starts_clean() {
    let home = Home::new();
    let (signals, descriptors) = (home.path("signals"), home.path("descriptors"));
    let script = format!(
        "(exec ls /proc/$$/fd > {}); while read -r line; do case $line in Sig[BI]*) echo \"$line\";; esac; done \
         < /proc/$$/status > {}; exec cat > /dev/null",
        descriptors.display(),
        signals.display()
    );
    home.server(
        "probe",
        &format!(
            "command = \"/bin/sh\"\nargs = [\"-c\", {}]\n{QUICK}",
            quoted(&script)
        ),
    );
    let mut command = home.program_command("/usr/bin/env");
    command.args(["--block-signal=TERM", "--ignore-signal=HUP", MCPD, "daemon"]);
    let daemon = TestDaemon::start_with(home, command);
    wait_until("the child looked at itself", || {
        fs::read_to_string(&signals)
            .ok()
            .filter(|text| text.lines().count() == 2)
    });
    let seen = fs::read_to_string(signals).expect("the signals");
    for line in seen.lines().filter(|line| line.starts_with("Sig")) {
        assert!(line.ends_with("0000000000000000"), "{seen}");
    }
    assert_eq!(
        fs::read_to_string(descriptors).expect("the descriptors"),
        "0\n1\n2\n"
    );
    // SIGHUP is a reload and SIGTERM an end: the drop of the daemon proves the second.
    daemon.signal(Signal::SIGHUP);
    assert!(daemon.status().is_some());
}

/// C015: a child sees no socket, lock, log or pipe of another server.
#[test]
fn a_child_sees_nothing_of_the_daemon() {
    let home = Home::new();
    home.fake("one", &[]);
    home.fake("two", &[]);
    let daemon = home.start();
    daemon.wait_for_state("one", "running");
    let mut host = daemon.socket_host("two");
    host.initialize();
    let answer = host.call("fds", json!({}));
    let open = answer["result"]["structuredContent"]["fds"]
        .as_array()
        .expect("a list")
        .clone();
    for descriptor in open.iter().filter_map(|descriptor| descriptor.as_str()) {
        let (number, target) = descriptor.split_once(' ').expect("number and target");
        let standard = number.parse::<u32>().is_ok_and(|number| number <= 2);
        let own =
            target.contains("signalfd") || target.ends_with("/fd") || target.contains("/record/");
        assert!(standard || own, "{descriptor}");
    }
}

/// Fault 42: many servers start at once; closing the input of one reaches it: no other child holds its pipe.
#[test]
fn the_end_of_input_reaches_each_of_many_servers() {
    let home = Home::new();
    for number in 0..30 {
        home.fake_with(&format!("s{number}"), &[], "stop_timeout = \"20s\"\n");
    }
    let daemon = home.start();
    for number in 0..30 {
        daemon.wait_for_state(&format!("s{number}"), "running");
    }
    for number in [0, 15, 29] {
        let name = format!("s{number}");
        daemon.mcpd(&["stop", &name]).expect_code(0);
        assert!(
            daemon.record(&name).of("SIGNAL").is_empty(),
            "{name} needed a signal"
        );
    }
}

/// Fault 56: an orphan that the daemon adopted is reaped when it ends, although a managed child lives on.
#[test]
fn an_adopted_orphan_is_reaped() {
    let home = Home::new();
    home.fake("fake", &["--grandchild", "double"]);
    let daemon = home.start();
    daemon.wait_for_state("fake", "running");
    let facts = daemon.record("fake").wait_for_entry("GRANDCHILD")[0].clone();
    let pid: i32 = facts
        .split(' ')
        .next()
        .and_then(|pid| pid.strip_prefix("pid=")?.parse().ok())
        .expect("its pid");
    kill(Pid::from_raw(pid), Signal::SIGKILL).expect("it is there");
    wait_until("it is reaped", || state_of(pid).is_none().then_some(()));
    assert_eq!(daemon.record("fake").starts(), 1);
}

/// A server that exits 0 by itself is restarted, as `restart` says; one that need not be is left alone.
#[test]
fn the_restart_policy_decides_what_comes_back() {
    let home = Home::new();
    home.fake_with(
        "no",
        &["--exit", "3"],
        "restart = \"no\"\nprotocol = \"legacy\"\n",
    );
    home.fake_with(
        "clean",
        &["--exit", "0"],
        "restart = \"on-failure\"\nprotocol = \"legacy\"\n",
    );
    home.fake_with("always", &["--exit", "0"], "restart = \"always\"\n");
    let daemon = home.start();
    wait_until("always comes back", || {
        (daemon.record("always").starts() > 1).then_some(())
    });
    for (name, result) in [("no", "exit-code"), ("clean", "success")] {
        let status = daemon.wait_for(name, "it has ended", |server| server["result"] == result);
        assert!(
            ["stopped", "failed"].contains(&status["state"].as_str().expect("a state")),
            "{status}"
        );
        assert_eq!(daemon.record(name).starts(), 1, "{name}");
    }
}

/// A stop that a start overtakes is answered all the same, and the server runs.
#[test]
fn an_overtaken_stop_is_answered() {
    let home = Home::new();
    home.fake_with("fake", &["--ignore-eof"], "stop_timeout = \"1s\"\n");
    let daemon = home.start();
    let pid = daemon.server_pid("fake");
    std::thread::scope(|scope| {
        let stop = scope.spawn(|| daemon.mcpd(&["stop", "fake"]));
        daemon.wait_for_state("fake", "stopping");
        daemon.mcpd(&["start", "fake"]).expect_code(0);
        let stopped = stop.join().expect("stop is answered");
        assert!([0, 1, 3].contains(&stopped.code), "{stopped:?}");
    });
    assert_ne!(daemon.server_pid("fake"), pid);
}
