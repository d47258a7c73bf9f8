//! How surely a daemon holds what its servers start, and the limits of a server.
//!
//! A test that needs a control group makes one where it may, and says so where it may not. What needs
//! systemd runs in a live user session, what needs the controllers of memory and tasks in one of a machine
//! that has them.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::json;

use crate::common::{
    ControlGroup, FAKE, Home, QUICK, TestDaemon, error_code, quoted, say, state_of, wait_until,
};
use crate::service::session::{in_machine, in_session};

/// In a session and an environment of its own, nobody's child, and deaf to SIGTERM.
const STRANGER: &str = "double-ignore-term-and-unmarked";

/// The pid of the grandchild that the fake `name` has started last.
fn grandchild(home: &Home, name: &str) -> i32 {
    let entries = home.record(name).wait_for_entry("GRANDCHILD");
    let last = entries.last().expect("an entry");
    let pid = last
        .split(' ')
        .next()
        .and_then(|it| it.strip_prefix("pid="));
    pid.expect("its pid").parse().expect("a number")
}

fn is_alive(pid: i32) -> bool {
    !matches!(state_of(pid), None | Some('Z' | 'X'))
}

/// Fault 21: with a control group nobody gets away; the group is shown, and goes with its run.
#[test]
fn a_server_has_a_control_group_that_goes_with_it() {
    let Some(group) = ControlGroup::make("a_server_has_a_control_group_that_goes_with_it", "")
    else {
        return;
    };
    let home = Home::new();
    home.fake("fake", &["--grandchild", STRANGER]);
    let command = group.daemon(&home, "", "--containment cgroup");
    let daemon = TestDaemon::start_with(home, command);
    let status = daemon.wait_for_state("fake", "running");
    assert_eq!(status["containment"], "cgroup");
    let leaf = status["cgroup"].as_str().expect("a group").to_owned();
    assert_eq!(Path::new(&leaf).parent(), Some(group.folder()));
    let stranger = grandchild(&daemon, "fake");
    let members = fs::read_to_string(format!("{leaf}/cgroup.procs")).expect("the group");
    for pid in [stranger, daemon.server_pid("fake")] {
        assert!(members.lines().any(|line| line == pid.to_string()), "{pid}");
    }
    let whole = daemon.status().expect("a status");
    assert_eq!(whole["daemon"]["containment"], "cgroup");
    assert_eq!(whole["daemon"]["warnings"], json!([]));
    let source = status["resources"]["source"].as_str().expect("a source");
    assert!(source.contains("cgroup"), "{source}");
    let page = daemon.mcpd(&["status", "fake"]).stdout;
    assert!(
        page.contains(&format!("containment: cgroup {leaf}")),
        "{page}"
    );

    daemon.kill_server("fake");
    daemon.wait_for("fake", "the next run", |server| {
        server["state"] == "running" && server["generation"] == 2
    });
    assert!(!is_alive(stranger), "the first stranger is gone");
    assert!(!Path::new(&leaf).exists());
    let stranger = grandchild(&daemon, "fake");
    daemon.mcpd(&["stop", "fake"]).expect_code(0);
    assert!(!is_alive(stranger), "the second stranger is gone");
    assert_eq!(group.leaves(), Vec::<String>::new());
}

/// C005: what a daemon that was killed has left in its groups is ended before anything is started: also what
/// bears no mark of it.
#[test]
fn groups_of_a_killed_daemon_are_swept_at_the_next_start() {
    let Some(group) =
        ControlGroup::make("groups_of_a_killed_daemon_are_swept_at_the_next_start", "")
    else {
        return;
    };
    let home = Home::new();
    let switches = ["--grandchild", STRANGER, "--ignore-eof", "--ignore-term"];
    home.fake("fake", &switches);
    let command = group.daemon(&home, "", "--containment cgroup");
    let mut daemon = TestDaemon::start_with(home, command);
    let (server, stranger) = (daemon.server_pid("fake"), grandchild(&daemon, "fake"));
    assert!(is_alive(server) && is_alive(stranger));
    daemon.signal(Signal::SIGKILL);
    let ended = daemon.wait_end(Duration::from_secs(30));
    assert!(!ended.success(), "{ended:?} {:?}", ended.signal());
    let command = group.daemon(&daemon, "", "--containment cgroup");
    daemon.start_again_with(command);
    // Both were gone when the daemon began to serve, before it started anything.
    assert!(!is_alive(server) && !is_alive(stranger));
    daemon.wait_for_state("fake", "running");
    assert_eq!(group.leaves().len(), 1);
}

/// A group that may be written to is not ours for that: neither at a terminal, nor in a unit that systemd does
/// not know to be delegated.
#[test]
fn a_group_is_not_taken_because_it_can_be() {
    for (suffix, variables) in [("", ""), (".service", "SYSTEMD_EXEC_PID=$$")] {
        let Some(group) = ControlGroup::make("a_group_is_not_taken_because_it_can_be", suffix)
        else {
            return;
        };
        let home = Home::new();
        home.fake("fake", &[]);
        let command = group.daemon(&home, variables, "");
        let daemon = TestDaemon::start_with(home, command);
        let status = daemon.wait_for_state("fake", "running");
        assert_eq!(status["containment"], "subreaper");
        assert_eq!(group.leaves(), Vec::<String>::new());
        drop(daemon);
    }
}

/// A second daemon in one group takes nothing of the first for a leftover.
#[test]
fn a_group_has_one_daemon() {
    let Some(group) = ControlGroup::make("a_group_has_one_daemon", "") else {
        return;
    };
    let start = || {
        let home = Home::new();
        home.fake("fake", &[]);
        let command = group.daemon(&home, "", "--containment cgroup");
        TestDaemon::start_with(home, command)
    };
    let first = start();
    let pid = first.server_pid("fake");
    let second = start();
    let status = second.wait_for_state("fake", "running");
    assert_eq!(status["containment"], "subreaper");
    let warnings = second.status().expect("a status")["daemon"]["warnings"].to_string();
    assert!(
        warnings.contains("another daemon has this group"),
        "{warnings}"
    );
    assert_eq!(first.server_pid("fake"), pid);
    drop(second);
    assert_eq!(first.server_pid("fake"), pid);
}

/// Fault 21: where not even orphans come to the daemon, `status` says so; the mark is still found.
#[test]
fn the_weakest_level_is_told_and_still_finds_the_mark() {
    let home = Home::new();
    home.fake("fake", &["--grandchild", "double-ignore-term"]);
    let command = home.command(&["daemon", "--containment", "group"]);
    let daemon = TestDaemon::start_with(home, command);
    let status = daemon.wait_for_state("fake", "running");
    assert_eq!(status["containment"], "group");
    assert_eq!(status["cgroup"], json!(null));
    let grandchild = grandchild(&daemon, "fake");
    daemon.mcpd(&["stop", "fake"]).expect_code(0);
    // Nobody of ours reaps it: its new parent does.
    wait_until("it is gone", || (!is_alive(grandchild)).then_some(()));
}

/// A group of the older kind, whose processes can be frozen so that not even SIGKILL ends them.
struct Freezer(PathBuf);

impl Freezer {
    fn make(test: &str) -> Option<Self> {
        let folder = Path::new("/sys/fs/cgroup/freezer");
        let folder = folder.join(format!("mcpd-main-{}", std::process::id()));
        let made = fs::create_dir(&folder).is_ok() && folder.join("freezer.state").exists();
        if !made {
            say(&format!(
                "SKIPPED: {test} needs the freezer of cgroup version 1"
            ));
        }
        made.then_some(Self(folder))
    }

    fn set(&self, state: &str) {
        fs::write(self.0.join("freezer.state"), state).expect("the state");
        wait_until("it is in that state", || {
            let now = fs::read_to_string(self.0.join("freezer.state"));
            (now.expect("the state").trim() == state).then_some(())
        });
    }

    fn freeze(&self, pid: i32) {
        fs::write(self.0.join("cgroup.procs"), pid.to_string()).expect("the process");
        self.set("FROZEN");
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        self.set("THAWED");
        // It is empty once what was killed has gone.
        wait_until("nobody is in the freezer", || fs::remove_dir(&self.0).ok());
    }
}

/// Fault 25: what outlives SIGKILL is failed and named with where it waits, nothing is started in its place, the
/// daemon's own end is not held up; once it is gone, all is well.
#[test]
fn what_cannot_be_killed_is_told_and_not_replaced() {
    let Some(freezer) = Freezer::make("what_cannot_be_killed_is_told_and_not_replaced") else {
        return;
    };
    let home = Home::new();
    home.fake("fake", &[]);
    let mut daemon = home.start();
    let pid = daemon.server_pid("fake");
    freezer.freeze(pid);
    let said = daemon.mcpd(&["stop", "fake"]).expect_code(3);
    let said = said.stdout + &said.stderr;
    assert!(
        said.contains(&format!("outlived SIGKILL: process {pid}")),
        "{said}"
    );
    let status = daemon.server_status("fake");
    assert_eq!(
        (&status["state"], &status["substate"]),
        (&json!("failed"), &json!("unkillable"))
    );
    let holder = &status["stop"]["holders"][0];
    assert_eq!(holder["pid"], pid, "{status}");
    assert!(
        holder["state"].is_string() && holder["name"] == "fake-mcp",
        "{status}"
    );
    let page = daemon.mcpd(&["status", "fake"]).stdout;
    assert!(page.contains(&format!("held up by: {pid} ")), "{page}");
    daemon.mcpd(&["start", "fake"]).expect_code(3);
    assert_eq!(daemon.record("fake").starts(), 1);
    // Gone at last: what was asked for happens.
    freezer.set("THAWED");
    let status = daemon.wait_for_state("fake", "running");
    assert_eq!(status["generation"], 2);

    freezer.freeze(daemon.server_pid("fake"));
    daemon.signal(Signal::SIGTERM);
    let ended = daemon.wait_end(Duration::from_secs(30));
    assert_eq!(ended.code(), Some(0));
    drop(freezer);
}

const LIMITS: &str = "[limits]\nmemory = \"64MiB\"\ntasks = 20\nopen_files = 64\n";

/// A limit that nobody holds is said to be none; descriptors are limited everywhere.
#[test]
fn limits_that_nobody_holds_are_named() {
    let home = Home::new();
    home.fake_with("fake", &[], &format!("{QUICK}{LIMITS}"));
    let command = home.command(&["daemon", "--containment", "subreaper"]);
    let daemon = TestDaemon::start_with(home, command);
    let status = daemon.wait_for_state("fake", "running");
    assert_eq!(
        status["limits"],
        json!({
            "memory": 64 << 20, "tasks": 20, "open_files": 64,
            "not_enforced": ["memory", "tasks"],
            "not_enforced_because": "it has no control group, see `mcpd service install`",
        })
    );
    let page = daemon.mcpd(&["status", "fake"]).stdout;
    assert!(
        page.contains("limits: memory 64M, 20 tasks, 64 descriptors a process"),
        "{page}"
    );
    assert!(
        page.contains("not enforced: memory, tasks: it has no"),
        "{page}"
    );
    let limits = fs::read_to_string(format!("/proc/{}/limits", daemon.server_pid("fake")));
    let limits = limits.expect("the limits");
    let files = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    let words: Vec<&str> = files.expect("a line").split_whitespace().collect();
    assert_eq!(words[3..5], ["64", "64"]);
}

/// Where the group has no controllers, limits of memory and tasks are said to be none.
#[test]
fn limits_without_a_controller_are_named() {
    let Some(group) = ControlGroup::make("limits_without_a_controller_are_named", "") else {
        return;
    };
    let offered = fs::read_to_string(group.folder().join("cgroup.controllers"));
    if offered.expect("the group").contains("memory") {
        say("SKIPPED: limits_without_a_controller_are_named needs a machine without them");
        return;
    }
    let home = Home::new();
    home.fake_with("fake", &[], &format!("{QUICK}{LIMITS}"));
    let command = group.daemon(&home, "", "--containment cgroup");
    let daemon = TestDaemon::start_with(home, command);
    let status = daemon.wait_for_state("fake", "running");
    assert_eq!(
        status["limits"]["not_enforced_because"],
        "its control group has no controller memory, pids"
    );
}

/// Under systemd the group of a unit with `Delegate=yes` is taken, on versions that put the daemon into a group
/// of its own and on those that do not; that of another unit is left alone.
#[test]
fn the_group_of_a_unit_is_taken_if_it_is_delegated() {
    in_session(
        "containment::the_group_of_a_unit_is_taken_if_it_is_delegated",
        |session| {
            session.write(
                ".config/mcpd/servers.d/fake.toml",
                &format!(
                    "command = {}\nargs = [\"--grandchild\", \"{STRANGER}\", \"--record\", {}]\n{QUICK}",
                    quoted(FAKE),
                    quoted(session.path("record").to_str().expect("a plain path")),
                ),
            );
            session.mcpd(&["service", "install"]).expect(0);
            session.mcpd(&["call", "fake", "sum", "a=2"]).expect(0);
            let status = session.status();
            assert_eq!(status["daemon"]["containment"], "cgroup", "{status}");
            assert_eq!(status["daemon"]["warnings"], json!([]));
            let leaf = status["servers"][0]["cgroup"].as_str().expect("a group");
            assert!(leaf.ends_with("/mcpd.service/server-fake-1"), "{leaf}");
            let own = fs::read_to_string(format!("/proc/{}/cgroup", session.main_pid()));
            let own = own.expect("the daemon runs");
            assert!(own.contains("/mcpd.service/supervisor\n"), "{own}");
            let strangers = || {
                let members = fs::read_to_string(format!("{leaf}/cgroup.procs"));
                members.unwrap_or_default().lines().count()
            };
            wait_until("the stranger is there", || (strangers() >= 2).then_some(()));
            session.mcpd(&["stop", "fake"]).expect(0);
            assert!(!Path::new(leaf).exists());
            session.mcpd(&["start", "fake"]).expect(0);

            session.write(
                ".config/systemd/user/mcpd.service.d/whole.conf",
                "[Service]\nDelegate=no\nDelegateSubgroup=\n",
            );
            session.systemctl(&["daemon-reload"]).expect(0);
            session.systemctl(&["restart", "mcpd.service"]).expect(0);
            session.mcpd(&["call", "fake", "sum", "a=2"]).expect(0);
            assert_eq!(session.status()["daemon"]["containment"], "subreaper");
            fs::remove_dir_all(session.path(".config/systemd/user/mcpd.service.d"))
                .expect("the drop-in");
        },
    );
}

/// Fault 50: a server that takes more memory than it may is ended whole and told as such, others live on; one
/// that starts more than it may cannot.
#[test]
fn memory_and_tasks_are_limited_where_they_are_counted() {
    in_machine(
        "containment::memory_and_tasks_are_limited_where_they_are_counted",
        |session| {
            session.write(
                ".config/mcpd/servers.d/fake.toml",
                &format!("command = {}\n{QUICK}{LIMITS}", quoted(FAKE)),
            );
            session.write(
                ".config/mcpd/servers.d/other.toml",
                &format!("command = {}\n{QUICK}", quoted(FAKE)),
            );
            session.mcpd(&["service", "install"]).expect(0);
            let said = session.mcpd(&["call", "fake", "fork", "n=100"]).expect(0);
            let started: u32 = said.trim().parse().expect("a number");
            assert!((1..20).contains(&started), "{started} started");
            let resources = session.server("fake")["resources"].clone();
            assert_eq!(resources["source"], "cgroup", "{resources}");
            assert!(resources["tasks"].as_u64() > Some(1), "{resources}");
            assert_eq!(session.server("fake")["limits"]["not_enforced"], json!([]));
            let other = session.server("other")["pid"].clone();

            let mut host = session.host();
            host.initialize();
            let answer = host.call("allocate", json!({"bytes": 256 << 20}));
            assert_eq!(error_code(&answer), -31001, "{answer}");
            assert!(answer.to_string().contains("out of memory"), "{answer}");
            let fake = wait_until("it is back", || {
                Some(session.server("fake")).filter(|server| server["state"] == "running")
            });
            assert_eq!(fake["exit"]["result"], "oom-kill", "{fake}");
            assert_eq!(fake["exit"]["oom"], true);
            assert_eq!(
                session.server("other")["pid"],
                other,
                "others are not touched"
            );
            assert_eq!(host.text("sum", json!({"a": 1})), "1");
            assert_eq!(session.property("mcpd.service", "NRestarts"), "0");
        },
    );
}
