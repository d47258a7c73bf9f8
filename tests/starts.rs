//! When servers start and when they are let go: turns, demand, idleness.

use serde_json::{Value, json};

use crate::common::{
    FAKE, Home, MCPD, Stopwatch, TestDaemon, error_code, initialize_params, let_pass, quoted,
    wait_until,
};

/// Servers of the daemon that have a process.
fn starting(daemon: &TestDaemon) -> Vec<Value> {
    let status = daemon.status().expect("the daemon answers");
    let servers = status["servers"].as_array().expect("servers").clone();
    servers
        .into_iter()
        .filter(|server| server["state"] == "starting" && server["substate"] != "waiting-for-turn")
        .collect()
}

/// Six servers that take long to start, each with a program of its own, so that nothing but the count holds
/// them back.
fn six_slow(home: &Home) -> Vec<String> {
    let names: Vec<String> = (1..=6).map(|number| format!("slow{number}")).collect();
    for name in &names {
        let link = home.path(&format!("bin/{name}"));
        std::fs::create_dir_all(home.path("bin")).expect("a folder");
        std::os::unix::fs::symlink(FAKE, &link).expect("a link");
        let toml = home.fake_toml(name, &["--chatter", "500", "--initialize", "none"], "");
        let fake = quoted(FAKE);
        let own = quoted(link.to_str().expect("plain"));
        assert!(toml.contains(&fake), "{toml}");
        home.server(name, &toml.replace(&fake, &own));
    }
    names
}

/// At most four servers are started at once; one that a host waits for goes before those that nobody does, and
/// a stop gives its place to the next.
#[test]
fn four_start_at_once_and_a_host_goes_first() {
    let home = Home::new();
    let names = six_slow(&home);
    let daemon = home.start();
    let wait_for_substate = |substate: &str| -> Vec<&String> {
        let count = if substate == "handshake" { 4 } else { 2 };
        wait_until(substate, || {
            let is_there = |name: &&String| daemon.server_status(name)["substate"] == substate;
            let found: Vec<&String> = names.iter().filter(is_there).collect();
            (found.len() == count).then_some(found)
        })
    };
    // Which of them come first is open: they ask at the same time.
    let first = wait_for_substate("handshake");
    let [other, last] = wait_for_substate("waiting-for-turn")[..] else {
        panic!("six servers, four places");
    };
    let waiting = daemon.server_status(last);
    assert_eq!(waiting["substate"], "waiting-for-turn", "{waiting}");
    assert_eq!(waiting["cold"], true, "{waiting}");
    assert!(
        waiting["reason"]
            .as_str()
            .is_some_and(|reason| reason.contains("other servers")),
        "{waiting}"
    );
    assert_eq!(starting(&daemon).len(), 4);
    let mut host = daemon.socket_host(last);
    host.request("initialize", initialize_params("2025-06-18"));
    // The host's word and the stop come by different ways.
    daemon.wait_for(last, "waited for", |status| {
        status["requests"]["waiting"] == 1
    });
    daemon.mcpd(&["stop", "--now", first[0]]).expect_code(0);
    daemon.wait_for(last, "in its handshake", |status| {
        status["substate"] == "handshake"
    });
    assert_eq!(daemon.server_status(other)["substate"], "waiting-for-turn");
    assert_eq!(starting(&daemon).len(), 4);
}

/// Equal launchers start one after the other while no start of their configurations has succeeded.
#[test]
fn equal_cold_launchers_start_one_after_the_other() {
    let home = Home::new();
    home.fake("one", &["--chatter", "500", "--initialize", "none"]);
    let daemon = home.start();
    daemon.wait_for("one", "in its handshake", |status| {
        status["substate"] == "handshake"
    });
    daemon.fake("two", &[]);
    daemon.mcpd(&["reload"]).expect_code(0);
    daemon.wait_for("two", "waiting for its turn", |status| {
        status["substate"] == "waiting-for-turn"
    });
    daemon.mcpd(&["stop", "--now", "one"]).expect_code(0);
    let status = daemon.wait_for_state("two", "running");
    assert_eq!(status["cold"], false, "{status}");
    daemon.mcpd(&["restart", "two"]).expect_code(0);
}

/// Fault 35: a stop and a removal while the turn is waited for leave nothing to be started.
#[test]
fn what_waits_for_its_turn_can_be_stopped_and_removed() {
    let home = Home::new();
    home.fake("a", &["--chatter", "500", "--initialize", "none"]);
    let daemon = home.start();
    daemon.wait_for("a", "in its handshake", |status| {
        status["substate"] == "handshake"
    });
    daemon.fake("b", &[]);
    daemon.fake("c", &[]);
    daemon.mcpd(&["reload"]).expect_code(0);
    for name in ["b", "c"] {
        daemon.wait_for(name, "waiting for its turn", |status| {
            status["substate"] == "waiting-for-turn"
        });
    }
    daemon.mcpd(&["stop", "b"]).expect_code(0);
    std::fs::remove_file(daemon.path("config/mcpd/servers.d/c.toml")).expect("the file was there");
    daemon.mcpd(&["reload", "--wait"]).expect_code(0);
    daemon.mcpd(&["stop", "--now", "a"]).expect_code(0);
    assert_eq!(daemon.server_status("b")["substate"], "dead");
    assert_eq!(daemon.record("b").starts() + daemon.record("c").starts(), 0);
}

/// C043: a start goes on when the host that caused it has given up, and the next host is served by it.
#[test]
fn a_start_goes_on_without_the_host_that_caused_it() {
    let home = Home::new();
    home.fake_with(
        "fake",
        &["--initialize-after", "500"],
        "start = \"demand\"\n",
    );
    let daemon = home.start();
    let mut host = daemon.socket_host("fake");
    host.request("initialize", initialize_params("2025-06-18"));
    daemon.wait_for_state("fake", "starting");
    host.vanish();
    let mut next = daemon.socket_host("fake");
    next.initialize();
    assert_eq!(next.text("sleep", json!({"ms": 0, "text": "here"})), "here");
    assert_eq!(daemon.record("fake").starts(), 1);
}

/// C041: fifteen servers whose launcher fails if two of it run at once all start, none of them twice.
#[test]
fn a_launcher_that_bears_no_second_one_starts_all_its_servers() {
    let home = Home::new();
    let lock = home.path("installing");
    let launcher = home.program(
        "npx",
        &format!(
            "#!/bin/sh\nmkdir {lock} || exit 1\nsleep 0.05\nrmdir {lock}\nexec {MCPD} example-server\n",
            lock = lock.display()
        ),
    );
    let command = quoted(&launcher.display().to_string());
    let names: Vec<String> = (0..15).map(|number| format!("s{number}")).collect();
    for name in &names {
        home.server(name, &format!("command = {command}\nargs = [{name:?}]\n"));
    }
    let daemon = home.start();
    for name in &names {
        let status = daemon.wait_for_state(name, "running");
        assert_eq!(status["generation"], 1, "{status}");
        assert_eq!(status["exits"], json!([]), "{status}");
    }
}

/// A server that starts on demand does so for the first request, and only then.
#[test]
fn a_server_on_demand_starts_with_the_first_request() {
    let home = Home::new();
    home.fake_with("fake", &[], "start = \"demand\"\n");
    home.fake("other", &[]);
    let daemon = home.start();
    daemon.wait_for_state("other", "running");
    let status = daemon.server_status("fake");
    assert_eq!(status["state"], "stopped", "{status}");
    assert_eq!(status["substate"], "never-started", "{status}");
    assert_eq!(status["start"], "demand", "{status}");
    let shown = daemon.mcpd(&["status", "fake"]).expect_code(0);
    assert!(
        shown.stdout.contains("when a host needs it"),
        "{}",
        shown.stdout
    );
    let mut host = daemon.connect_host("fake");
    host.initialize();
    assert_eq!(host.text("sleep", json!({"ms": 0, "text": "here"})), "here");
    assert_eq!(daemon.record("fake").starts(), 1);
}

/// Twelve hosts that come while a server takes its time share one start, and each is served.
#[test]
fn twelve_hosts_wait_for_one_slow_start() {
    let home = Home::new();
    home.fake_with("fake", &["--ready-after", "1500"], "start = \"demand\"\n");
    let daemon = home.start();
    let mut hosts: Vec<_> = (0..12).map(|_| daemon.socket_host("fake")).collect();
    let asked: Vec<u64> = hosts
        .iter_mut()
        .map(|host| host.request("initialize", initialize_params("2025-06-18")))
        .collect();
    for (host, id) in hosts.iter_mut().zip(asked) {
        let answer = host.answer(id);
        assert!(answer["result"]["capabilities"].is_object(), "{answer}");
    }
    for (number, host) in hosts.iter_mut().enumerate() {
        let text = number.to_string();
        assert_eq!(host.text("sleep", json!({"ms": 0, "text": text})), text);
    }
    assert_eq!(daemon.record("fake").starts(), 1);
}

/// C003: a launcher with three levels below it is ended for idleness twenty times, and nothing survives;
/// hosts that are attached and silent do not hold it and are served again.
#[test]
fn nothing_of_a_launchers_tree_survives_idleness() {
    let home = Home::new();
    home.fake_mode(
        "fake",
        &["launcher", "--levels", "3"],
        &["--ignore-eof"],
        "idle_stop = \"1ms\"\ndrain_timeout = \"100ms\"\nstop_timeout = \"100ms\"\n",
    );
    let daemon = home.start();
    let mut host = daemon.socket_host("fake");
    host.initialize();
    for round in 0..20 {
        daemon.wait_for("fake", "stopped for idleness", |status| {
            status["substate"] == "idle-stopped"
        });
        assert_eq!(daemon.fakes(), [], "round {round}");
        let text = round.to_string();
        assert_eq!(host.text("sleep", json!({"ms": 0, "text": text})), text);
    }
}

/// C171: an open call and a subscription hold a server that would be idle; what ends them lets it go.
#[test]
fn calls_and_subscriptions_hold_a_server() {
    let home = Home::new();
    home.fake_with("fake", &[], "idle_stop = \"100ms\"\n");
    let daemon = home.start();
    let mut host = daemon.socket_host("fake");
    host.initialize();
    let uri = json!({"uri": "fake://one"});
    let answer = host.ask("resources/subscribe", uri.clone());
    assert!(answer["result"].is_object(), "{answer}");
    let pid = daemon.server_pid("fake");
    let watch = Stopwatch::start();
    // A call that takes several times as long, and the subscription after it.
    host.call("sleep", json!({"ms": 600}));
    let_pass(std::time::Duration::from_millis(500));
    assert!(watch.elapsed() > std::time::Duration::from_secs(1));
    assert_eq!(daemon.server_pid("fake"), pid);
    host.ask("resources/unsubscribe", uri);
    let status = daemon.wait_for("fake", "stopped for idleness", |status| {
        status["substate"] == "idle-stopped"
    });
    let reason = status["reason"].as_str().expect("a reason");
    assert!(reason.contains("idle_stop"), "{status}");
    // A person's stop holds; hosts do not bring it back.
    daemon.mcpd(&["stop", "fake"]).expect_code(0);
    let refused = host.call("echo", json!({"text": "x"}));
    assert_eq!(error_code(&refused), -31000, "{refused}");
    assert_eq!(daemon.record("fake").starts(), 1);
}

/// `start` and `idle_stop` are applied to what runs, and `boot` starts what waited to be needed.
#[test]
fn start_and_idle_stop_change_live() {
    let home = Home::new();
    home.fake_with("fake", &[], "start = \"demand\"\n");
    let daemon = home.start();
    let reload = daemon.reload_after(|| daemon.fake_with("fake", &[], "start = \"boot\"\n"));
    assert!(
        reload.stdout.contains("start demand -> boot"),
        "{}",
        reload.stdout
    );
    let pid = daemon.server_pid("fake");
    let reload = daemon.reload_after(|| {
        daemon.fake_with("fake", &[], "start = \"demand\"\nidle_stop = \"1h\"\n");
    });
    assert!(
        reload.stdout.contains("idle_stop none -> 1h"),
        "{}",
        reload.stdout
    );
    assert_eq!(daemon.server_pid("fake"), pid);
    daemon.reload_after(|| {
        daemon.fake_with("fake", &[], "start = \"demand\"\nidle_stop = \"10ms\"\n");
    });
    daemon.wait_for("fake", "stopped for idleness", |status| {
        status["substate"] == "idle-stopped"
    });
}

/// What is added or enabled with `start = "demand"` waits to be needed, and the reload says so.
#[test]
fn an_added_server_on_demand_is_not_started() {
    let daemon = Home::new().start();
    let reload = daemon.reload_after(|| daemon.fake_with("fake", &[], "start = \"demand\"\n"));
    assert!(
        reload.stdout.contains("fake") && reload.stdout.contains("started when a host needs it"),
        "{}",
        reload.stdout
    );
    assert_eq!(daemon.server_status("fake")["substate"], "never-started");
    daemon.reload_after(|| {
        daemon.fake_with("fake", &[], "start = \"demand\"\nenabled = false\n");
    });
    assert_eq!(daemon.server_status("fake")["substate"], "disabled");
    daemon.reload_after(|| daemon.fake_with("fake", &[], "start = \"demand\"\n"));
    let mut host = daemon.socket_host("fake");
    host.initialize();
    assert_eq!(daemon.record("fake").starts(), 1);
}

/// C044: a server that has run before is known: a host that comes while it starts again is answered at once, its call
/// waits, and nothing of the child's secrets is kept.
#[test]
fn a_host_of_a_slow_start_is_answered_from_memory() {
    let home = Home::new();
    let toml = "start = \"demand\"\n[env]\nAPI_KEY = \"s3cret-value\"\n";
    home.fake_with("fake", &["--initialize-after", "700"], toml);
    let mut daemon = home.start();
    let mut host = daemon.socket_host("fake");
    let first = host.initialize();
    let tools = host.ask("tools/list", json!({}));
    let kept = daemon.path("state/mcpd/catalog/fake.json");
    wait_until("the list is kept", || {
        let text = std::fs::read_to_string(&kept).ok()?;
        text.contains("tools/list").then_some(())
    });
    let text = std::fs::read_to_string(&kept).expect("it is kept");
    assert!(!text.contains("s3cret-value"), "{text}");
    host.vanish();
    assert!(daemon.terminate().success());
    daemon.start_again();
    assert_eq!(daemon.server_status("fake")["cold"], false);
    let mut host = daemon.socket_host("fake");
    assert_eq!(host.initialize()["result"], first["result"]);
    assert_eq!(host.ask("tools/list", json!({}))["result"], tools["result"]);
    assert_eq!(daemon.server_status("fake")["state"], "stopped");
    assert_eq!(host.text("sleep", json!({"ms": 0, "text": "here"})), "here");
    assert_eq!(daemon.record("fake").starts(), 2);
}

/// What was kept of another configuration, or is no catalogue, is not believed; what changed is told.
#[test]
fn memory_is_of_one_configuration_and_differences_are_told() {
    let home = Home::new();
    let toolset = home.write("toolset", "v1");
    let toolset = toolset.to_str().expect("plain");
    home.fake_with(
        "fake",
        &["--toolset", toolset],
        "start = \"demand\"\nidle_stop = \"50ms\"\n",
    );
    let daemon = home.start();
    let mut host = daemon.socket_host("fake");
    host.initialize();
    let tools = host.ask("tools/list", json!({}));
    let idle = |status: &Value| status["substate"] == "idle-stopped";
    daemon.wait_for("fake", "stopped for idleness", idle);
    daemon.write("toolset", "v2");
    let starts = daemon.record("fake").starts();
    let mut late = daemon.socket_host("fake");
    late.initialize();
    assert_eq!(late.ask("tools/list", json!({}))["result"], tools["result"]);
    assert_eq!(daemon.record("fake").starts(), starts);
    late.call("echo", json!({}));
    late.notification("notifications/tools/list_changed");
    assert_ne!(late.ask("tools/list", json!({}))["result"], tools["result"]);
    daemon.wait_for("fake", "stopped for idleness", idle);
    let toml = "start = \"demand\"\n[env]\nNEW = \"1\"\n";
    daemon.reload_after(|| daemon.fake_with("fake", &["--toolset", toolset], toml));
    assert_eq!(daemon.server_status("fake")["cold"], true);
}
