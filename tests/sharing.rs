//! Servers of which there is more than one copy: who gets which, and when it ends.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::common::{Home, RawHost, TestDaemon, error_code, wait_until};

const PER_DIRECTORY: &str = "sharing = \"per-directory\"\n";

/// A folder below the home that exists, without links.
fn folder(home: &Home, name: &str) -> PathBuf {
    let path = home.path(name);
    std::fs::create_dir_all(&path).expect("a folder");
    path.canonicalize().expect("it is there")
}

/// A host whose shim says that it is in `directory`.
fn host_in(home: &Home, name: &str, directory: &Path) -> RawHost {
    let mut command = home.command(&["connect", name]);
    command.current_dir(directory);
    let mut host = RawHost::through(command);
    host.initialize();
    host
}

/// The instances of all servers as `status` shows them.
fn rows(daemon: &TestDaemon) -> Vec<Value> {
    let status = daemon.status().expect("a status");
    status["servers"].as_array().cloned().unwrap_or_default()
}

fn names(daemon: &TestDaemon) -> Vec<String> {
    let name = |row: &Value| row["name"].as_str().unwrap_or_default().to_owned();
    rows(daemon).iter().map(name).collect()
}

/// C165: each directory has its own child, started there; hosts of one directory share it.
#[test]
fn hosts_of_one_directory_share_a_child_that_runs_there() {
    let home = Home::new();
    home.fake_with("fs", &[], PER_DIRECTORY);
    let (one, other) = (folder(&home, "one"), folder(&home, "the other"));
    std::os::unix::fs::symlink(&one, home.path("link")).expect("a link");
    let daemon = home.start();
    assert_eq!(names(&daemon), ["fs"], "no instance before a host");
    let mut hosts = [
        host_in(&daemon, "fs", &one),
        host_in(&daemon, "fs", &daemon.path("link")),
        host_in(&daemon, "fs", &other),
    ];
    let told = hosts.each_mut().map(|host| host.text("cwd", json!({})));
    let (one, other) = (one.display().to_string(), other.display().to_string());
    assert_eq!(told, [one.clone(), one.clone(), other.clone()]);
    assert_eq!(
        names(&daemon),
        [format!("fs@{one}"), format!("fs@{other}")],
        "each stands for itself"
    );
    let pids = hosts.each_mut().map(|host| host.text("pid", json!({})));
    assert_eq!(pids[0], pids[1]);
    assert_ne!(pids[0], pids[2]);
    let stopped = daemon.mcpd(&["stop", &format!("fs@{one}")]);
    stopped.expect_code(0);
    daemon.wait_for_state(&format!("fs@{one}"), "stopped");
    daemon.wait_for_state(&format!("fs@{other}"), "running");
    daemon.mcpd(&["start", "fs"]).expect_code(0);
    daemon.wait_for_state(&format!("fs@{one}"), "running");
    assert_eq!(hosts[0].text("cwd", json!({})), one);
}

/// A host that has no directory is told what to do.
#[test]
fn a_raw_socket_has_no_directory() {
    let home = Home::new();
    home.fake_with("fs", &[], PER_DIRECTORY);
    let daemon = home.start();
    let mut host = daemon.socket_host("fs");
    let answer = host.ask("initialize", json!({}));
    assert_eq!(error_code(&answer), -31000);
    let message = answer["error"]["message"].as_str().unwrap_or_default();
    assert!(
        message.contains("mcpd connect fs --directory DIR"),
        "{message}"
    );
    assert_eq!(names(&daemon), ["fs"]);
}

/// There are 32, and a 33rd only once one of them has ended.
#[test]
fn directories_are_limited() {
    let home = Home::new();
    home.fake_with(
        "fs",
        &[],
        "sharing = \"per-directory\"\nstart = \"demand\"\n",
    );
    let folders: Vec<_> = (0..33).map(|at| folder(&home, &format!("d{at}"))).collect();
    let daemon = home.start();
    let mut hosts: Vec<RawHost> = folders[..32]
        .iter()
        .map(|folder| {
            let mut command = daemon.command(&["connect", "fs"]);
            command.current_dir(folder);
            RawHost::through(command)
        })
        .collect();
    wait_until("32 instances", || {
        (names(&daemon).len() == 32).then_some(())
    });
    let mut command = daemon.command(&["connect", "fs"]);
    command.current_dir(&folders[32]);
    let mut late = RawHost::through(command);
    let answer = late.ask("initialize", json!({}));
    assert!(
        answer["error"]["message"]
            .to_string()
            .contains("32 directories"),
        "{answer}"
    );
    // Nothing was ever asked of its child, so with the host the instance is gone.
    hosts.pop();
    wait_until("room", || (names(&daemon).len() == 31).then_some(()));
    let mut next = host_in(&daemon, "fs", &folders[32]);
    assert_eq!(
        next.text("cwd", json!({})),
        folders[32].display().to_string()
    );
}

/// An edit reaches every copy, and a change of `sharing` moves hosts to where they belong.
#[test]
fn hosts_move_when_the_sharing_changes() {
    let home = Home::new();
    home.fake("fs", &[]);
    let one = folder(&home, "one");
    let daemon = home.start();
    let mut host = host_in(&daemon, "fs", &one);
    let first = host.text("pid", json!({}));
    daemon
        .reload_after(|| daemon.fake_with("fs", &[], PER_DIRECTORY))
        .expect_code(0);
    let instance = format!("fs@{}", one.display());
    daemon.wait_for_state(&instance, "running");
    assert_ne!(host.text("pid", json!({})), first);
    assert_eq!(host.text("cwd", json!({})), one.display().to_string());
    assert_eq!(names(&daemon), [&*instance]);
    let edited = format!("{PER_DIRECTORY}[env]\nA = \"1\"\n");
    let before = host.text("pid", json!({}));
    daemon
        .reload_after(|| daemon.fake_with("fs", &[], &edited))
        .expect_code(0);
    assert_ne!(host.text("pid", json!({})), before, "an edit reaches it");
    daemon
        .reload_after(|| daemon.fake("fs", &[]))
        .expect_code(0);
    daemon.wait_for_state("fs", "running");
    wait_until("the instance is gone", || {
        (names(&daemon) == ["fs"]).then_some(())
    });
    assert_ne!(host.text("cwd", json!({})), one.display().to_string());
}

/// After an end in order each host finds its own directory again.
#[test]
fn hosts_of_directories_outlive_the_daemon() {
    let home = Home::new();
    home.fake_with("fs", &[], PER_DIRECTORY);
    let folders = [folder(&home, "one"), folder(&home, "two")];
    let mut daemon = home.start();
    let mut hosts = folders
        .each_ref()
        .map(|folder| host_in(&daemon, "fs", folder));
    let mut check = |daemon: &TestDaemon| {
        for (host, folder) in hosts.iter_mut().zip(&folders) {
            assert_eq!(host.text("cwd", json!({})), folder.display().to_string());
        }
        assert_eq!(names(daemon).len(), 2);
    };
    check(&daemon);
    daemon.terminate();
    daemon.start_again();
    check(&daemon);
}

/// After a crash each host finds its own directory again, in the daemon that the first of them starts.
#[test]
fn hosts_of_directories_outlive_a_crash() {
    let home = Home::new();
    home.fake_with("fs", &[], PER_DIRECTORY);
    let folders = [folder(&home, "one"), folder(&home, "two")];
    let mut hosts = folders
        .each_ref()
        .map(|folder| host_in(&home, "fs", folder));
    for _ in 0..2 {
        for (host, folder) in hosts.iter_mut().zip(&folders) {
            assert_eq!(host.text("cwd", json!({})), folder.display().to_string());
        }
        let status = home.mcpd(&["status", "--json"]).json();
        assert_eq!(
            status["servers"].as_array().map(Vec::len),
            Some(2),
            "{status}"
        );
        home.kill_daemon();
    }
}
