//! Edits that nobody announces: every way in which people, editors and package managers save a file.
//!
//! The daemon watches; no test here asks for a reload unless that is what it is about.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::common::{
    Home, QUICK, Stopwatch, TestDaemon, error_code, let_pass, quoted, say, wait_until,
};

/// So long a test waits to see that nothing happens: longer than any doubt about a single file lasts.
const NOTHING_FOR: Duration = Duration::from_millis(1_800);

/// Within so much an edit is to be seen, on a machine that has other things to do as well.
const SOON: Duration = Duration::from_secs(2);

const FOLDER: &str = "config/mcpd/servers.d";

fn file(home: &Home, name: &str) -> PathBuf {
    home.path(FOLDER).join(format!("{name}.toml"))
}

/// The TOML of a fake that lists this many tools a page: which version of a file runs is seen by its
/// arguments.
fn version(home: &Home, name: &str, number: usize) -> String {
    home.fake_toml(name, &["--page", &number.to_string()], QUICK)
}

/// Waits until the server runs by this version of its file, whether or not it is there yet.
fn wait_for_version(daemon: &TestDaemon, name: &str, number: usize) -> Value {
    wait_until(&format!("version {number} of {name} runs"), || {
        let status = daemon.status()?;
        let servers = status["servers"].as_array()?;
        let server = servers.iter().find(|server| server["name"] == name)?;
        let last = server["exec"]["argv"].as_array()?.last()?.as_str()?;
        let runs = server["state"] == "running" && last == number.to_string();
        runs.then(|| server.clone())
    })
}

fn daemon_status(daemon: &TestDaemon) -> Value {
    daemon.status().expect("a status")["daemon"].clone()
}

fn generation(daemon: &TestDaemon) -> u64 {
    daemon_status(daemon)["generation"]
        .as_u64()
        .expect("a number")
}

/// Whether a warning of the daemon says this.
fn warns(daemon: &TestDaemon, what: &str) -> bool {
    daemon_status(daemon)["warnings"].to_string().contains(what)
}

/// A daemon with the first version of these servers, all running, and what a fresh start looks at again
/// already seen.
fn start(home: Home, names: &[&str]) -> TestDaemon {
    for name in names {
        home.server(name, &version(&home, name, 1));
    }
    started(home.start(), names)
}

fn started(daemon: TestDaemon, names: &[&str]) -> TestDaemon {
    for name in names {
        wait_for_version(&daemon, name, 1);
    }
    daemon
}

/// A way to give a file another text.
type Save<'a> = &'a dyn Fn(&str);

/// Replaces a file as careful programs do.
fn save_by_rename(path: &Path, text: &str) {
    let beside = path.with_extension("toml.tmp");
    fs::write(&beside, text).expect("the new file");
    fs::rename(&beside, path).expect("it takes the old one's place");
}

/// C115, fault 43: however a file is saved, it is seen once, and soon.
#[test]
fn every_way_to_save_is_one_reload() {
    let daemon = start(Home::new(), &["a", "other"]);
    let path = file(&daemon, "a");
    let other = daemon.server_pid("other");
    let in_place = |text: &str| fs::write(&path, text).expect("the file");
    let by_rename = |text: &str| save_by_rename(&path, text);
    let like_vim = |text: &str| {
        let folder = path.parent().expect("a folder");
        fs::write(folder.join("4913"), "").expect("the probe");
        fs::remove_file(folder.join("4913")).expect("the probe");
        fs::rename(&path, folder.join("a.toml~")).expect("the old one");
        fs::write(&path, text).expect("the new one");
        fs::remove_file(folder.join("a.toml~")).expect("the old one");
    };
    let by_link = |text: &str| {
        let beside = path.with_extension("tmp");
        fs::write(&beside, text).expect("the new file");
        fs::remove_file(&path).expect("the old file");
        fs::hard_link(&beside, &path).expect("a link");
        fs::remove_file(&beside).expect("the other name");
    };
    let ways: [(&str, Save<'_>); 4] = [
        ("in place", &in_place),
        ("by rename", &by_rename),
        ("like vim", &like_vim),
        ("by link", &by_link),
    ];
    for (number, (way, save)) in ways.iter().enumerate() {
        let before = generation(&daemon);
        let text = version(&daemon, "a", number + 2);
        let watch = Stopwatch::start();
        save(&text);
        wait_until(way, || (generation(&daemon) > before).then_some(()));
        let took = watch.elapsed();
        assert!(took < SOON, "{way}: seen after {took:?}");
        wait_for_version(&daemon, "a", number + 2);
        assert_eq!(generation(&daemon), before + 1, "{way}");
    }
    assert_eq!(daemon.record("a").starts(), ways.len() + 1);
    assert_eq!(daemon.server_pid("other"), other);
}

/// C115: the whole configuration folder is moved away and back: nobody notices; what was edited on the way
/// is seen.
#[test]
fn a_folder_that_is_moved_and_back_stops_nothing() {
    let daemon = start(Home::new(), &["a", "b"]);
    let (here, away) = (daemon.path("config/mcpd"), daemon.path("config/away"));
    let pids = [daemon.server_pid("a"), daemon.server_pid("b")];
    fs::rename(&here, &away).expect("away");
    wait_until("the daemon misses it", || {
        warns(&daemon, "is missing").then_some(())
    });
    assert_eq!([daemon.server_pid("a"), daemon.server_pid("b")], pids);
    fs::rename(&away, &here).expect("back");
    wait_until("the daemon has it back", || {
        (!warns(&daemon, "is missing")).then_some(())
    });
    assert_eq!([daemon.server_pid("a"), daemon.server_pid("b")], pids);

    fs::rename(&here, &away).expect("away");
    fs::write(away.join("servers.d/a.toml"), version(&daemon, "a", 2)).expect("the file");
    fs::rename(&away, &here).expect("back");
    wait_for_version(&daemon, "a", 2);
    assert_eq!(daemon.server_pid("b"), pids[1]);
    // The folder that is there is the one that is watched.
    fs::write(file(&daemon, "b"), version(&daemon, "b", 2)).expect("the file");
    wait_for_version(&daemon, "b", 2);
}

/// C117: a save that passes through a moment without a file.
#[test]
fn a_file_that_is_gone_for_a_moment_was_never_gone() {
    let daemon = start(Home::new(), &["a", "b"]);
    let pid = daemon.server_pid("a");
    let before = generation(&daemon);
    let path = file(&daemon, "a");
    fs::remove_file(&path).expect("the file");
    let_pass(Duration::from_millis(300));
    fs::write(&path, version(&daemon, "a", 1)).expect("the file");
    let_pass(NOTHING_FOR);
    assert_eq!(daemon.server_pid("a"), pid);
    assert_eq!(generation(&daemon), before);
    assert_eq!(daemon.record("a").starts(), 1);

    fs::remove_file(&path).expect("the file");
    let_pass(Duration::from_millis(300));
    fs::write(&path, version(&daemon, "a", 2)).expect("the file");
    wait_for_version(&daemon, "a", 2);
    assert_eq!(generation(&daemon), before + 1);
    assert_eq!(daemon.record("a").starts(), 2);
}

/// A file that stays away is a server that is not wanted any more; the others go on.
#[test]
fn a_file_that_stays_away_removes_its_server() {
    let daemon = start(Home::new(), &["a", "b"]);
    let pid = daemon.server_pid("b");
    fs::remove_file(file(&daemon, "a")).expect("the file");
    wait_until("it is removed", || {
        let status = daemon.status()?;
        let servers = status["servers"].as_array()?;
        servers
            .iter()
            .all(|server| server["name"] != "a")
            .then_some(())
    });
    assert_eq!(daemon.server_pid("b"), pid);
    daemon.server("c", &version(&daemon, "c", 1));
    wait_for_version(&daemon, "c", 1);
}

/// Content decides: a save with the same content, a touch, a comment: nothing is applied.
#[test]
fn a_save_without_a_change_is_none() {
    let daemon = start(Home::new(), &["a"]);
    let before = generation(&daemon);
    let pid = daemon.server_pid("a");
    let text = version(&daemon, "a", 1);
    let path = file(&daemon, "a");
    save_by_rename(&path, &text);
    fs::write(&path, format!("# a comment\n\n{text}")).expect("the file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("the mode");
    let_pass(NOTHING_FOR);
    assert_eq!(generation(&daemon), before);
    assert_eq!(daemon.server_pid("a"), pid);
}

/// C119: what editors, desktops and package managers leave is neither a server nor a reason to look.
#[test]
fn litter_that_appears_is_no_server() {
    let daemon = start(Home::new(), &["a"]);
    let before = generation(&daemon);
    for name in [
        "a.toml~",
        ".a.toml.swp",
        "a.toml.bak",
        "#a.toml#",
        "4913",
        "a.toml.rpmnew",
        ".DS_Store",
    ] {
        daemon.write(&format!("{FOLDER}/{name}"), "no TOML at all [");
    }
    symlink("/nowhere", daemon.path(&format!("{FOLDER}/.#a.toml"))).expect("a link");
    fs::create_dir(daemon.path(&format!("{FOLDER}/x.toml"))).expect("a folder");
    nix::unistd::mkfifo(
        &daemon.path(&format!("{FOLDER}/pipe.toml")),
        nix::sys::stat::Mode::S_IRWXU,
    )
    .expect("a fifo");
    let_pass(NOTHING_FOR);
    let status = daemon.status().expect("a status");
    assert_eq!(
        status["servers"].as_array().map(Vec::len),
        Some(1),
        "{status}"
    );
    assert_eq!(status["daemon"]["errors"], json!([]));
    assert_eq!(generation(&daemon), before);
}

/// Fault 43: a file that is truncated and written slowly is seen once, when it is complete.
#[test]
fn a_slow_writer_is_waited_for() {
    let daemon = start(Home::new(), &["a"]);
    let before = generation(&daemon);
    let text = version(&daemon, "a", 2);
    for (name, wanted) in [("a", 2), ("new", 2)] {
        let text = text.replace("record/a", &format!("record/{name}"));
        let mut writer = fs::File::create(file(&daemon, name)).expect("the file");
        let chunks: Vec<&[u8]> = text.as_bytes().chunks(text.len().div_ceil(5)).collect();
        for chunk in chunks {
            writer.write_all(chunk).expect("written");
            let_pass(Duration::from_millis(120));
        }
        drop(writer);
        wait_for_version(&daemon, name, wanted);
    }
    assert_eq!(generation(&daemon), before + 2);
    assert_eq!(daemon.record("a").starts(), 2);
    assert_eq!(daemon.record("new").starts(), 1);
    assert!(!daemon.log().contains("Invalid"), "{}", daemon.log());
}

/// A file that fails to parse and is right again at once is not spoken of; one that stays wrong is, within
/// a second, and its server runs on.
#[test]
fn a_half_written_file_is_not_reported() {
    let daemon = start(Home::new(), &["a"]);
    let before = generation(&daemon);
    let pid = daemon.server_pid("a");
    let path = file(&daemon, "a");
    fs::write(&path, "command = \"x\nargs = [").expect("the file");
    let_pass(Duration::from_millis(350));
    fs::write(&path, version(&daemon, "a", 1)).expect("the file");
    let_pass(NOTHING_FOR);
    assert_eq!(generation(&daemon), before);
    assert!(!daemon.log().contains("a.toml"), "{}", daemon.log());

    fs::write(&path, "comand = \"x\"\n").expect("the file");
    let watch = Stopwatch::start();
    let status = daemon.wait_for("a", "the fault is shown", |status| {
        status["config"]["status"] == "invalid"
    });
    assert!(watch.elapsed() < SOON, "{:?}", watch.elapsed());
    assert_eq!(status["config"]["line"], 1);
    assert_eq!(daemon.server_pid("a"), pid);
    // The same fault, seen again because of somebody else's edit, is no news.
    let invalid = generation(&daemon);
    daemon.server("b", &version(&daemon, "b", 1));
    wait_for_version(&daemon, "b", 1);
    assert_eq!(generation(&daemon), invalid + 1);
    fs::write(&path, version(&daemon, "a", 2)).expect("the file");
    let status = wait_for_version(&daemon, "a", 2);
    assert_eq!(status["config"]["status"], "ok");
}

/// Sets a file's times to one second after 1970, as Nix does with all.
fn make_old(path: &Path) {
    let old = std::time::UNIX_EPOCH + Duration::from_secs(1);
    let times = fs::FileTimes::new().set_modified(old).set_accessed(old);
    let file = fs::File::open(path).expect("the file");
    file.set_times(times).expect("the times");
}

/// A link that is changed as `ln -sfn` and package managers do it: a new one is renamed over it.
fn retarget(link: &Path, target: &Path) {
    let beside = link.with_extension("new-link");
    symlink(target, &beside).expect("a link");
    fs::rename(&beside, link).expect("it takes the old one's place");
}

/// Fault 44: a file that is a link into a folder of versions, all from 1970.
#[test]
fn a_link_that_is_retargeted_is_an_edit() {
    let home = Home::new();
    for number in 1..=3 {
        let text = version(&home, "a", number);
        let path = home.write(&format!("store/{number}-a/a.toml"), text);
        make_old(&path);
    }
    let link = file(&home, "a");
    symlink(home.path("store/1-a/a.toml"), &link).expect("a link");
    let daemon = started(home.start(), &["a"]);
    for number in 2..=3 {
        let before = generation(&daemon);
        let target = daemon.path(&format!("store/{number}-a/a.toml"));
        retarget(&link, &target);
        wait_for_version(&daemon, "a", number);
        assert_eq!(generation(&daemon), before + 1);
    }
    // What the link leads to now is watched, and what it led to is not.
    let text = version(&daemon, "a", 4);
    save_by_rename(&daemon.path("store/3-a/a.toml"), &text);
    wait_for_version(&daemon, "a", 4);
    assert_eq!(daemon.record("a").starts(), 4);
}

/// Fault 44: the folder of servers is a link, and so is one above the configuration; each is swapped.
#[test]
fn folders_that_are_links_may_be_swapped() {
    let home = Home::new();
    for generation in 1..=3 {
        for name in ["a", "b"] {
            let number = if name == "a" { generation } else { 1 };
            let text = version(&home, name, number);
            let path = home.write(
                &format!("profile-{generation}/mcpd/servers.d/{name}.toml"),
                text,
            );
            make_old(&path);
        }
    }
    fs::remove_dir_all(home.path("config/mcpd")).expect("the folder");
    fs::remove_dir(home.path("config")).expect("the folder above");
    symlink(home.path("profile-1"), home.path("config")).expect("a link");
    let daemon = started(home.start(), &["a", "b"]);
    let pid = daemon.server_pid("b");
    retarget(&daemon.path("config"), &daemon.path("profile-2"));
    wait_for_version(&daemon, "a", 2);
    // The folder of servers becomes a link too.
    let servers = daemon.path("profile-2/mcpd/servers.d");
    fs::rename(&servers, daemon.path("kept")).expect("the old folder");
    symlink(daemon.path("profile-3/mcpd/servers.d"), &servers).expect("a link");
    wait_for_version(&daemon, "a", 3);
    retarget(&servers, &daemon.path("kept"));
    wait_for_version(&daemon, "a", 2);
    assert_eq!(daemon.server_pid("b"), pid);
    assert_eq!(daemon.record("b").starts(), 1);
}

/// Fault 44: a folder above the configuration is replaced, with no link anywhere.
#[test]
fn a_folder_above_may_be_replaced() {
    let daemon = start(Home::new(), &["a", "b"]);
    let pid = daemon.server_pid("b");
    for name in ["a", "b"] {
        let number = if name == "a" { 2 } else { 1 };
        let text = version(&daemon, name, number);
        daemon.write(&format!("other/mcpd/servers.d/{name}.toml"), text);
    }
    fs::rename(daemon.path("config"), daemon.path("old")).expect("the old one");
    fs::rename(daemon.path("other"), daemon.path("config")).expect("the new one");
    wait_for_version(&daemon, "a", 2);
    assert_eq!(daemon.server_pid("b"), pid);
}

/// Fault 45: a folder that is empty for three seconds, or deleted and made again, stops nothing.
#[test]
fn an_empty_folder_stops_nothing_for_a_while() {
    let daemon = start(Home::new(), &["a", "b"]);
    let pids = || [daemon.server_pid("a"), daemon.server_pid("b")];
    let before = (pids(), generation(&daemon));
    let save = |number| {
        for name in ["a", "b"] {
            daemon.server(name, &version(&daemon, name, number));
        }
    };
    for name in ["a", "b"] {
        fs::remove_file(file(&daemon, name)).expect("the file");
    }
    wait_until("it is said", || warns(&daemon, "is empty").then_some(()));
    let_pass(Duration::from_secs(3));
    assert_eq!((pids(), generation(&daemon)), before);
    save(1);
    wait_until("all is well", || {
        (!warns(&daemon, "is empty")).then_some(())
    });
    assert_eq!((pids(), generation(&daemon)), before);

    fs::remove_dir_all(daemon.path("config")).expect("the folder");
    wait_until("it is said", || warns(&daemon, "is missing").then_some(()));
    assert_eq!((pids(), generation(&daemon)), before);
    save(2);
    for name in ["a", "b"] {
        wait_for_version(&daemon, name, 2);
    }
    // Whoever asks for a reload means what is there.
    fs::remove_dir_all(daemon.path(FOLDER)).expect("the folder");
    daemon.mcpd(&["reload", "--wait"]).expect_code(0);
    assert_eq!(daemon.status().expect("a status")["servers"], json!([]));
    assert_eq!(daemon.fakes(), []);
}

/// A folder that stays empty for ten seconds is meant to be empty.
#[test]
fn a_folder_that_stays_empty_removes_all() {
    let daemon = start(Home::new(), &["a"]);
    let watch = Stopwatch::start();
    fs::remove_file(file(&daemon, "a")).expect("the file");
    wait_until("the server is removed", || {
        (daemon.status()?["servers"] == json!([])).then_some(())
    });
    let took = watch.elapsed();
    assert!(took > Duration::from_secs(9), "after {took:?}");
    assert!(!warns(&daemon, "is empty"));
    daemon.server("a", &version(&daemon, "a", 2));
    wait_for_version(&daemon, "a", 2);
}

/// Fault 48: a key that the child does not depend on is applied to the one that runs.
#[test]
fn a_live_key_keeps_the_child() {
    let daemon = start(Home::new(), &["a"]);
    let pid = daemon.server_pid("a");
    let report = daemon.reload_after(|| {
        let text = version(&daemon, "a", 1);
        daemon.server("a", &format!("{text}stable_after = \"2m\"\n"));
    });
    let report = report.expect_code(0).stdout;
    assert!(
        report.contains("= a  live: stable_after 60s -> 120s"),
        "{report}"
    );
    let before = generation(&daemon);
    let text = version(&daemon, "a", 1);
    daemon.server(
        "a",
        &format!("{text}stable_after = \"3m\"\ndescription = \"live\"\n"),
    );
    daemon.wait_for("a", "the description is shown", |status| {
        status["description"] == "live"
    });
    assert_eq!(generation(&daemon), before + 1);
    assert_eq!(daemon.server_pid("a"), pid);
}

/// A restart by an edit lets open calls end, up to a limit of its own, and the report tells how many.
#[test]
fn a_restart_by_an_edit_waits_for_open_calls() {
    let home = Home::new();
    home.fake("a", &[]);
    let daemon = home.start();
    let mut host = daemon.socket_host("a");
    host.initialize();
    let mut edit = |number: usize, toml: &str, ms: u64| {
        let before = daemon.record("a").with_method("tools/call").len();
        let calls: Vec<u64> = (0..2)
            .map(|_| host.start_call("sleep", json!({"ms": ms, "text": "whole"})))
            .collect();
        daemon.record("a").wait_for("tools/call", before + 2);
        let report = daemon.reload_after(|| {
            let toml = format!("{QUICK}{toml}");
            let text = daemon.fake_toml("a", &["--page", &number.to_string()], &toml);
            daemon.server("a", &text);
        });
        let answers: Vec<Value> = calls.into_iter().map(|call| host.answer(call)).collect();
        (report.expect_code(0).stdout, answers)
    };
    // By default 30 s, whatever `drain_timeout` says.
    let (report, answers) = edit(2, "", 1_500);
    assert!(
        report.contains("args changed (drained 2 requests)"),
        "{report}"
    );
    for answer in answers {
        assert_eq!(answer["result"]["content"][0]["text"], "whole");
    }
    let (report, answers) = edit(3, "reload_drain_timeout = \"300ms\"\n", 60_000);
    assert!(
        report.contains("(2 requests were open, not all were drained)"),
        "{report}"
    );
    for answer in answers {
        assert_eq!(error_code(&answer), -31005, "{answer}");
    }
}

/// Whoever asks for a server right after its file was written need not wait until that is noticed.
#[test]
fn a_server_that_was_just_added_can_be_used() {
    let daemon = start(Home::new(), &["a"]);
    for number in 0..5 {
        let name = format!("new-{number}");
        daemon.server(&name, &version(&daemon, &name, 1));
        match number % 2 {
            0 => {
                daemon.mcpd(&["start", &name]).expect_code(0);
            }
            _ => {
                let mut host = daemon.connect_host(&name);
                host.initialize();
                assert_eq!(host.text("sum", json!({"a": 1})), "1");
            }
        }
    }
}

/// Fault 49: a secret that is changed where it stands restarts its server, and shows nowhere.
#[test]
fn a_changed_secret_restarts_and_shows_nowhere() {
    let home = Home::new();
    let secret = |number: usize| format!("s3cret-number-{number}-of-many");
    let write = |home: &Home, name: &str, text: &str| {
        let path = home.path(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("the folder");
        let beside = path.with_extension("tmp");
        fs::write(&beside, text).expect("the file");
        fs::set_permissions(&beside, fs::Permissions::from_mode(0o600)).expect("the mode");
        fs::rename(&beside, &path).expect("it takes its place");
    };
    write(&home, "secrets/env", &format!("TOKEN={}\n", secret(1)));
    write(&home, "keys/key", &secret(1));
    home.fake_with(
        "a",
        &[],
        &format!(
            "env_file = {}\n",
            quoted(home.path("secrets/env").to_str().expect("plain"))
        ),
    );
    home.fake_with("b", &[], "[env]\nKEY = { file = \"~/keys/key\" }\n");
    let daemon = home.start();
    let shown = |name: &str, variable: &str| {
        let mut host = daemon.socket_host(name);
        host.initialize();
        host.call("env", json!({}))["result"]["structuredContent"][variable].clone()
    };
    assert_eq!(shown("a", "TOKEN"), secret(1));
    assert_eq!(shown("b", "KEY"), secret(1));
    write(&daemon, "secrets/env", &format!("TOKEN={}\n", secret(2)));
    wait_until("the new token is there", || {
        (shown("a", "TOKEN") == secret(2)).then_some(())
    });
    assert_eq!(daemon.record("b").starts(), 1);
    write(&daemon, "keys/key", &secret(2));
    wait_until("the new key is there", || {
        (shown("b", "KEY") == secret(2)).then_some(())
    });
    assert_eq!(daemon.record("a").starts(), 2);
    // A file that others may read is refused, and taken when that is put right.
    let path = daemon.path("secrets/env");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("the mode");
    daemon.wait_for("a", "it is refused", |status| {
        status["config"]["status"] == "invalid"
    });
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("the mode");
    daemon.wait_for("a", "it is taken", |status| {
        status["config"]["status"] == "ok"
    });
    // So is one that comes back after its server had to do without it.
    fs::rename(&path, daemon.path("away")).expect("away");
    daemon.wait_for("a", "it is missed", |status| {
        status["config"]["status"] == "invalid"
    });
    fs::rename(daemon.path("away"), &path).expect("back");
    daemon.wait_for("a", "it is found", |status| {
        status["config"]["status"] == "ok"
    });
    assert_eq!(daemon.record("a").starts(), 2);
    let mut told = daemon.log();
    for args in [
        &["status", "--json"][..],
        &["status", "a"],
        &["logs", "a"],
        &["logs", "b"],
    ] {
        let outcome = daemon.mcpd(args);
        told += &(outcome.stdout + &outcome.stderr);
    }
    for path in files_below(&daemon.path("state")) {
        told += &String::from_utf8_lossy(&fs::read(path).unwrap_or_default());
    }
    for number in [1, 2] {
        assert!(
            !told.contains(&secret(number)),
            "secret {number} shows: {told}"
        );
    }
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("the folder").flatten();
    let paths = entries.map(|entry| entry.path());
    paths
        .flat_map(|path| match path.is_dir() {
            true => files_below(&path),
            false => vec![path],
        })
        .collect()
}

/// `mcpd.toml` is watched like a server's file: its defaults are everybody's.
#[test]
fn an_edit_of_the_defaults_reaches_every_server() {
    let daemon = start(Home::new(), &["a", "b"]);
    let pids = || [daemon.server_pid("a"), daemon.server_pid("b")];
    let before = pids();
    daemon.settings("[defaults]\ndescription = \"everybody's\"\n");
    for name in ["a", "b"] {
        daemon.wait_for(name, "the default is there", |status| {
            status["description"] == "everybody's"
        });
    }
    daemon.settings("[defaults]\ncomand = 1\n");
    wait_until("the fault is shown", || {
        let errors = daemon_status(&daemon)["errors"].to_string();
        errors.contains("mcpd.toml:2:").then_some(())
    });
    assert_eq!(daemon.server_status("a")["description"], "everybody's");
    fs::remove_file(daemon.path("config/mcpd/mcpd.toml")).expect("the file");
    daemon.wait_for("a", "the default is gone", |status| {
        status["description"].is_null()
    });
    assert_eq!(daemon_status(&daemon)["errors"], json!([]));
    assert_eq!(pids(), before);
}

/// Fault 47: more has happened than the kernel can tell: the daemon looks for itself.
#[test]
fn an_overflow_of_the_queue_loses_no_edit() {
    let limit = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap_or_default();
    let limit: usize = limit.trim().parse().unwrap_or(16_384);
    if limit > 100_000 {
        say("SKIPPED: this machine's inotify queue is too long to be filled in a test");
        return;
    }
    let daemon = start(Home::new(), &["a"]);
    let litter = daemon.path(&format!("{FOLDER}/4913"));
    daemon.signal(Signal::SIGSTOP);
    for _ in 0..=limit / 2 {
        fs::write(&litter, "").expect("litter");
        fs::remove_file(&litter).expect("litter");
    }
    // Of this the kernel tells nothing any more.
    fs::write(file(&daemon, "a"), version(&daemon, "a", 2)).expect("the file");
    daemon.signal(Signal::SIGCONT);
    wait_for_version(&daemon, "a", 2);
    assert_eq!(daemon_status(&daemon)["watcher"], "inotify");
    fs::write(file(&daemon, "a"), version(&daemon, "a", 3)).expect("the file");
    wait_for_version(&daemon, "a", 3);
}

/// A daemon in a user namespace of its own, where one limit of inotify is as given; none where this machine
/// allows no such namespace.
fn start_limited(home: Home, limit: &str, value: usize) -> Option<TestDaemon> {
    let trial = Command::new("unshare").args(["-U", "-r", "true"]).status();
    if !trial.is_ok_and(|status| status.success()) {
        say("SKIPPED: limits of inotify need a user namespace, which this machine does not allow");
        return None;
    }
    let script = format!("echo {value} > /proc/sys/user/{limit} && exec \"$0\" daemon");
    let mut command = home.program_command("unshare");
    command.args(["-U", "-r", "sh", "-c", &script, crate::common::MCPD]);
    Some(TestDaemon::start_with(home, command))
}

/// Fault 47: no instance, or no watch, is left: the files are read every five seconds, and `status` says so.
#[test]
fn without_inotify_the_files_are_polled() {
    for (limit, value) in [("max_inotify_instances", 0), ("max_inotify_watches", 2)] {
        let home = Home::new();
        home.server("a", &version(&home, "a", 1));
        let Some(daemon) = start_limited(home, limit, value) else {
            return;
        };
        let daemon = started(daemon, &["a"]);
        let status = daemon_status(&daemon);
        assert_eq!(status["watcher"], "polling", "{limit}: {status}");
        assert!(
            status["warnings"].to_string().contains("every 5 s"),
            "{limit}: {status}"
        );
        let shown = daemon.mcpd(&["status"]).stdout;
        assert!(shown.contains("watcher polling"), "{limit}: {shown}");
        let pid = daemon.server_pid("a");
        let before = generation(&daemon);
        fs::write(file(&daemon, "a"), version(&daemon, "a", 2)).expect("the file");
        wait_for_version(&daemon, "a", 2);
        assert_eq!(generation(&daemon), before + 1, "{limit}");
        assert_ne!(daemon.server_pid("a"), pid, "{limit}");

        // With the next look that finds some, the kernel watches again.
        let pid = daemon.pid().to_string();
        let script = format!("echo 1000 > /proc/sys/user/{limit}");
        let raise = [
            "-t",
            &pid,
            "-U",
            "--preserve-credentials",
            "sh",
            "-c",
            &script,
        ];
        let status = Command::new("nsenter").args(raise).status();
        assert!(status.is_ok_and(|status| status.success()), "{limit}");
        wait_until("inotify is back", || {
            (daemon_status(&daemon)["watcher"] == "inotify").then_some(())
        });
        assert_eq!(daemon_status(&daemon)["warnings"], json!([]), "{limit}");
    }
}

/// While nothing happens nothing is done: no timer, no look.
#[test]
fn a_daemon_that_watches_sleeps() {
    let daemon = start(Home::new(), &["a"]);
    let switches = || {
        let status = fs::read_to_string(format!("/proc/{}/status", daemon.pid())).expect("it runs");
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        let count = line.and_then(|count| count.trim().parse::<u64>().ok());
        count.expect("a count")
    };
    let_pass(NOTHING_FOR);
    let before = switches();
    let_pass(Duration::from_secs(4));
    let woken = switches() - before;
    assert!(woken <= 2, "woken {woken} times");
    // Reading what is watched is no edit.
    fs::read_to_string(file(&daemon, "a")).expect("the file");
    let read = switches() - before;
    assert!(read <= 2, "woken {read} times by a reader");
}
