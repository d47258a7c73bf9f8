//! In a live user session of systemd: one test that does what a person does, and one for each thing
//! that only systemd can show.
//!
//! Outside of a session each test runs itself again inside one, made by the program that
//! `MCPD_SYSTEMD_RIG` names (it runs a command as a user whose systemd is up, and sets `SYSTEMD_RIG`).
//! Where that cannot be, the test says so.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::common::{FAKE, MCPD, RawHost, output_in_time, output_within, quoted, say, wait_until};

/// How long a test may take together with the start of its session or machine.
const SESSION_LIMIT: Duration = Duration::from_secs(400);

/// Runs `inside` in a session; the name is the test's own.
pub(crate) fn in_session(name: &str, inside: impl FnOnce(&Session)) {
    in_session_within(SESSION_LIMIT, name, inside);
}

/// As [`in_session`], with a limit of its own.
pub(crate) fn in_session_within(limit: Duration, name: &str, inside: impl FnOnce(&Session)) {
    let needs = "a live user session of systemd (MCPD_SYSTEMD_RIG, as root)";
    run_in(rig(), limit, needs, name, inside);
}

/// The same where the kernel counts memory and tasks: here if it does, else in a machine of its own.
pub(crate) fn in_machine(name: &str, inside: impl FnOnce(&Session)) {
    let counts = |names: &str| ["memory", "pids"].iter().all(|one| names.contains(one));
    let offered = fs::read_to_string("/sys/fs/cgroup/cgroup.controllers").unwrap_or_default();
    let program = match counts(&offered) {
        true => rig(),
        false => program("MCPD_SYSTEMD_MACHINE", "run-uml"),
    };
    let needs = "a user session of systemd with the controllers memory and pids \
        (MCPD_SYSTEMD_MACHINE, as root)";
    run_in(program, SESSION_LIMIT, needs, name, inside);
}

fn run_in(
    program: Option<PathBuf>,
    limit: Duration,
    needs: &str,
    name: &str,
    inside: impl FnOnce(&Session),
) {
    if std::env::var_os("SYSTEMD_RIG").is_some() {
        let session = Session::new();
        inside(&session);
        session.expect_nothing_left();
        return;
    }
    let Some(program) = program else {
        say(&format!("SKIPPED: {name} needs {needs}"));
        return;
    };
    let own = std::env::current_exe().expect("the test binary");
    let folders: Vec<&str> = [MCPD, FAKE]
        .iter()
        .filter_map(|program| Path::new(program).parent()?.to_str())
        .collect();
    let mut command = Command::new(program);
    command
        .arg(own)
        .args(["--exact", "--nocapture", name])
        .env("SYSTEMD_RIG_KEEP", folders.join(":"))
        .env("SYSTEMD_RIG_BOOT_SECONDS", "240")
        .stdin(Stdio::null());
    let output = output_within(limit, &mut command);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{said}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    for figure in said
        .lines()
        .filter_map(|line| line.find("FIGURE").map(|at| &line[at..]))
    {
        say(figure);
    }
}

/// What makes sessions here.
fn rig() -> Option<PathBuf> {
    program("MCPD_SYSTEMD_RIG", "run")
}

fn program(variable: &str, beside: &str) -> Option<PathBuf> {
    let named = std::env::var_os(variable).map(PathBuf::from);
    let beside = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../shared/systemd-rig")
        .join(beside);
    let program = named.unwrap_or(beside);
    (nix::unistd::geteuid().is_root() && program.exists()).then_some(program)
}

/// What a command said.
pub(crate) struct Said {
    code: Option<i32>,
    text: String,
}

impl Said {
    #[track_caller]
    pub(crate) fn expect(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{}", self.text);
        self.text
    }
}

/// A person's session, with mcpd installed and one server configured.
pub(crate) struct Session {
    home: PathBuf,
    program: PathBuf,
}

impl Session {
    fn new() -> Self {
        let home = PathBuf::from(std::env::var_os("HOME").expect("a home"));
        let program = home.join(".local/bin/mcpd");
        let session = Self { home, program };
        fs::create_dir_all(session.home.join(".local/bin")).expect("a folder");
        fs::create_dir_all(session.path(".config/mcpd/servers.d")).expect("a folder");
        fs::copy(MCPD, &session.program).expect("a copy of mcpd");
        session.write(
            ".config/mcpd/servers.d/fake.toml",
            &format!("command = {}\nstop_timeout = \"500ms\"\n", quoted(FAKE)),
        );
        session
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.home.join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("the folder");
        fs::write(path, text).expect("the file");
    }

    fn run(&self, command: &mut Command) -> Said {
        let output = output_in_time(command.stdin(Stdio::null()));
        Said {
            code: output.status.code(),
            text: String::from_utf8_lossy(&output.stdout).into_owned()
                + &String::from_utf8_lossy(&output.stderr),
        }
    }

    pub(crate) fn mcpd(&self, arguments: &[&str]) -> Said {
        self.run(Command::new(&self.program).args(arguments))
    }

    pub(crate) fn systemctl(&self, arguments: &[&str]) -> Said {
        self.run(Command::new("systemctl").arg("--user").args(arguments))
    }

    /// A property of a unit.
    pub(crate) fn property(&self, unit: &str, name: &str) -> String {
        let said = self.systemctl(&["show", unit, "--value", "-p", name]);
        said.expect(0).trim().to_owned()
    }

    pub(crate) fn status(&self) -> Value {
        let said = self.mcpd(&["status", "--json"]).expect(0);
        serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
    }

    /// The status of one server, whatever is wrong with any.
    pub(crate) fn server(&self, name: &str) -> Value {
        let said = self.mcpd(&["status", "--json"]).text;
        let status: Value = serde_json::from_str(&said).unwrap_or_default();
        let servers = status["servers"].as_array().cloned().unwrap_or_default();
        let found = servers.into_iter().find(|server| server["name"] == name);
        found.unwrap_or_else(|| panic!("{name}: {said}"))
    }

    pub(crate) fn main_pid(&self) -> i32 {
        self.property("mcpd.service", "MainPID")
            .parse()
            .expect("a number")
    }

    /// What the daemon has said of this priority and above.
    fn journal(&self, priority: &str) -> String {
        let arguments = ["--user", "-o", "cat", "-u", "mcpd.service", "-p", priority];
        self.run(Command::new("journalctl").args(arguments)).text
    }

    pub(crate) fn host(&self) -> RawHost {
        self.host_of("fake")
    }

    /// A host of one server.
    pub(crate) fn host_of(&self, server: &str) -> RawHost {
        let mut command = Command::new(&self.program);
        command.args(["connect", server]);
        RawHost::through(command)
    }

    /// The servers that run, with all that they have started.
    pub(crate) fn fakes(&self) -> Vec<i32> {
        self.running(&[Path::new(FAKE)])
    }

    /// Takes back what a test has changed about the service.
    pub(crate) fn remove_drop_in(&self) {
        fs::remove_dir_all(self.path(".config/systemd/user/mcpd.service.d")).expect("the drop-in");
    }

    fn socket(&self) -> PathBuf {
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").expect("a runtime folder");
        PathBuf::from(runtime).join("mcpd/mcpd.sock")
    }

    /// Everything that runs of mcpd or of its servers.
    fn processes(&self) -> Vec<i32> {
        self.running(&[&self.program, Path::new(FAKE)])
    }

    fn running(&self, programs: &[&Path]) -> Vec<i32> {
        let is_ours = |pid: &i32| {
            let program = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
            programs.contains(&program.as_path())
        };
        let listed = fs::read_dir("/proc").expect("/proc").flatten();
        listed
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .filter(is_ours)
            .collect()
    }

    fn expect_nothing_left(&self) {
        self.mcpd(&["service", "uninstall"]).expect(0);
        wait_until("nothing runs any more", || {
            self.processes().is_empty().then_some(())
        });
        assert!(!self.path(".config/systemd/user/mcpd.service").exists());
        assert!(!self.path(".config/systemd/user/mcpd.socket").exists());
        assert!(!self.socket().exists(), "the socket is still there");
        for unit in ["mcpd.service", "mcpd.socket"] {
            assert_eq!(self.property(unit, "LoadState"), "not-found");
            assert_eq!(self.property(unit, "ActiveState"), "inactive");
        }
    }
}

/// `install`, a call, `status`, `install` again, `uninstall`, as a person does it.
#[test]
fn the_service_is_installed_used_and_removed() {
    in_session(
        "service::session::the_service_is_installed_used_and_removed",
        |session| {
            session.mcpd(&["service", "status"]).expect(4);
            let said = session.mcpd(&["service", "install"]).expect(0);
            assert!(said.contains("enabled and active"), "{said}");
            assert!(said.contains("lingering is enabled"), "{said}");
            assert!(!said.contains("build folder"), "{said}");
            assert_eq!(session.property("mcpd.service", "ActiveState"), "active");
            let settings = fs::read_to_string(session.path(".config/mcpd/mcpd.toml"));
            assert!(settings.expect("mcpd.toml").starts_with("path = \"/"));
            let said = session
                .mcpd(&["call", "fake", "sum", "a=2", "b=3"])
                .expect(0);
            assert_eq!(said.trim(), "5");
            let status = session.status();
            assert_eq!(status["daemon"]["containment"], "cgroup");
            assert_eq!(status["daemon"]["started_by"], "systemd mcpd.service");
            assert_eq!(status["daemon"]["path_source"], "mcpd.toml");
            wait_until("systemd knows how the servers are", || {
                let said = session.mcpd(&["service", "status"]).expect(0);
                said.contains("1 server: 1 running").then_some(())
            });

            let pid = session.main_pid();
            let again = session.mcpd(&["service", "install"]).expect(0);
            assert!(!again.contains("wrote"), "{again}");
            assert_eq!(session.main_pid(), pid, "it was not disturbed");
            // As an upgrade finds it that has another unit.
            let unit = session.path(".config/systemd/user/mcpd.service");
            let text = fs::read_to_string(&unit).expect("the unit");
            fs::write(&unit, text.replace("TasksMax=4096", "TasksMax=99")).expect("the unit");
            let said = session.mcpd(&["service", "install"]).expect(0);
            assert!(said.contains("--restart"), "{said}");
            assert_eq!(session.main_pid(), pid, "it was not disturbed");
            session.mcpd(&["service", "install", "--restart"]).expect(0);
            assert_ne!(session.main_pid(), pid);

            session.systemctl(&["reload", "mcpd.service"]).expect(0);
            session.mcpd(&["reload", "--wait"]).expect(0);
            wait_until("the reload is over for systemd", || {
                (session.property("mcpd.service", "ActiveState") == "active").then_some(())
            });
            session.systemctl(&["stop", "mcpd.service"]).expect(0);
            assert_eq!(session.property("mcpd.service", "Result"), "success");
            session.mcpd(&["service", "uninstall"]).expect(0);
            let said = session.mcpd(&["service", "uninstall"]).expect(0);
            assert!(said.contains("no unit"), "{said}");
        },
    );
}

/// A daemon that a command started makes room for the service when told to, and keeps its hosts.
#[test]
fn a_daemon_of_a_command_makes_room_when_told() {
    in_session(
        "service::session::a_daemon_of_a_command_makes_room_when_told",
        |session| {
            let mut host = session.host();
            host.initialize();
            let said = session.mcpd(&["service", "install"]).expect(3);
            assert!(said.contains("--restart"), "{said}");
            assert!(!session.path(".config/systemd/user/mcpd.service").exists());
            session.mcpd(&["service", "install", "--restart"]).expect(0);
            let status = session.status();
            assert_eq!(status["daemon"]["started_by"], "systemd mcpd.service");
            assert_eq!(host.text("sum", json!({"a": 1})), "1");
        },
    );
}

/// Where no unit is installed a command has systemd run the daemon in a unit of its own, so that even its
/// SIGKILL leaves nothing of it, and the host goes on with the next.
#[test]
fn a_transient_unit_holds_a_daemon_of_a_command() {
    in_session(
        "service::session::a_transient_unit_holds_a_daemon_of_a_command",
        |session| {
            let mut host = session.host();
            host.initialize();
            let daemon = session.status()["daemon"].clone();
            let by = daemon["started_by"].as_str().expect("a text");
            let unit = by
                .strip_prefix("mcpd connect (")
                .and_then(|by| by.strip_suffix(')'))
                .unwrap_or_else(|| panic!("{by}"));
            assert_eq!(session.property(unit, "ActiveState"), "active");
            assert_eq!(daemon["path_source"], "login shell");
            assert_eq!(session.property(unit, "MainPID"), daemon["pid"].to_string());
            let before = session.processes();
            let pid = i32::try_from(daemon["pid"].as_i64().expect("a pid")).expect("a pid");
            kill(Pid::from_raw(pid), Signal::SIGKILL).expect("it is there");
            wait_until("nothing of it is left", || {
                let left = session.processes();
                let is_old = |one: &i32| *one != host.pid() && before.contains(one);
                (!left.iter().any(is_old)).then_some(())
            });
            assert_eq!(host.text("sum", json!({"a": 1})), "1");
            session.mcpd(&["shutdown"]).expect(0);
        },
    );
}

/// From a sandbox nothing is started, and the reason is told.
#[test]
fn a_sandbox_starts_no_daemon() {
    in_session("service::session::a_sandbox_starts_no_daemon", |session| {
        let user = format!("--map-user={}", nix::unistd::geteuid());
        for (options, kind) in [
            (vec!["--user", &user], "user namespace"),
            (
                vec!["--user", "--map-root-user", "--mount"],
                "mount namespace",
            ),
        ] {
            let mut command = Command::new("unshare");
            command.args(&options).arg(&session.program);
            let said = session.run(command.args(["tools", "fake"]));
            if said.text.contains("unshare failed") {
                say(&format!("SKIPPED: this kernel makes no {kind} for a user"));
                continue;
            }
            assert!(said.text.contains("sandbox"), "{kind}: {}", said.text);
            assert_eq!(said.code, Some(4), "{}", said.text);
        }
        assert!(session.processes().is_empty());
    });
}

/// A configuration folder that is a link to somewhere else, and that others may not enter.
#[test]
fn a_linked_configuration_is_served_and_stays_private() {
    in_session(
        "service::session::a_linked_configuration_is_served_and_stays_private",
        |session| {
            use std::os::unix::fs::PermissionsExt;
            let (link, real) = (session.path(".config/mcpd"), session.path("dotfiles"));
            fs::rename(&link, &real).expect("a folder");
            std::os::unix::fs::symlink(&real, &link).expect("a link");
            fs::set_permissions(&real, fs::Permissions::from_mode(0o700)).expect("the mode");
            session.mcpd(&["service", "install"]).expect(0);
            let said = session
                .mcpd(&["call", "fake", "sum", "a=2", "b=3"])
                .expect(0);
            assert_eq!(said.trim(), "5");
            for folder in [real, session.path(".local/state/mcpd")] {
                let mode = fs::metadata(&folder)
                    .expect("a folder")
                    .permissions()
                    .mode();
                assert_eq!(mode & 0o777, 0o700, "{}", folder.display());
            }
        },
    );
}

/// The socket stays when the service stops, and whoever connects starts it; asking does not.
#[test]
fn the_socket_starts_the_service() {
    in_session(
        "service::session::the_socket_starts_the_service",
        |session| {
            session.mcpd(&["service", "install"]).expect(0);
            session.systemctl(&["stop", "mcpd.service"]).expect(0);
            assert!(session.socket().exists());
            session.mcpd(&["status"]).expect(4);
            assert_eq!(session.property("mcpd.service", "ActiveState"), "inactive");
            let mut stream = UnixStream::connect(session.socket()).expect("it listens");
            stream
                .write_all(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"hello\"}\n")
                .expect("a request");
            wait_until("the service runs", || {
                (session.property("mcpd.service", "ActiveState") == "active").then_some(())
            });
            drop(stream);
            session.systemctl(&["stop", "mcpd.service"]).expect(0);
            let said = session
                .mcpd(&["call", "fake", "sum", "a=2", "b=3"])
                .expect(0);
            assert_eq!(said.trim(), "5");
            assert_eq!(
                session.status()["daemon"]["started_by"],
                "systemd mcpd.service"
            );
        },
    );
}

/// `shutdown` ends the socket too, no host brings the daemon back, and `start` does.
#[test]
fn a_shutdown_is_not_undone() {
    in_session("service::session::a_shutdown_is_not_undone", |session| {
        session.mcpd(&["service", "install"]).expect(0);
        let mut host = session.host();
        host.initialize();
        session.mcpd(&["shutdown"]).expect(0);
        for unit in ["mcpd.service", "mcpd.socket"] {
            assert_eq!(session.property(unit, "ActiveState"), "inactive", "{unit}");
        }
        let answer = host.call("sum", json!({"a": 1}));
        assert!(answer["error"].is_object(), "{answer}");
        assert_eq!(session.property("mcpd.service", "ActiveState"), "inactive");
        session.mcpd(&["start", "fake"]).expect(0);
        assert_eq!(session.property("mcpd.service", "ActiveState"), "active");
        assert_eq!(host.text("sum", json!({"a": 1})), "1");
        // Again where only the socket waits.
        session.systemctl(&["stop", "mcpd.service"]).expect(0);
        session.mcpd(&["shutdown"]).expect(0);
        assert_eq!(session.property("mcpd.socket", "ActiveState"), "inactive");
    });
}

/// A restart by systemd keeps the host; so does a crash, after which nothing of the old run is left.
#[test]
fn a_host_outlives_restarts_and_a_crash() {
    in_session(
        "service::session::a_host_outlives_restarts_and_a_crash",
        |session| {
            session.mcpd(&["service", "install"]).expect(0);
            let mut host = session.host();
            host.initialize();
            assert_eq!(host.text("sum", json!({"a": 1})), "1");
            session.systemctl(&["restart", "mcpd.service"]).expect(0);
            assert_eq!(host.text("sum", json!({"a": 2})), "2");
            let before = session.processes();
            let pid = session.main_pid();
            kill(Pid::from_raw(pid), Signal::SIGKILL).expect("it runs");
            wait_until("it is back", || {
                let now = session.main_pid();
                (now != 0
                    && now != pid
                    && session.property("mcpd.service", "ActiveState") == "active")
                    .then_some(())
            });
            assert_eq!(session.property("mcpd.service", "NRestarts"), "1");
            let shim = host.pid();
            for survivor in session.processes() {
                assert!(
                    survivor == shim || !before.contains(&survivor),
                    "{survivor} survived"
                );
            }
            assert_eq!(host.text("sum", json!({"a": 3})), "3");
        },
    );
}

/// A configuration that cannot be used is told at once, and systemd does not try again.
#[test]
fn an_unusable_configuration_is_told_and_not_tried_again() {
    in_session(
        "service::session::an_unusable_configuration_is_told_and_not_tried_again",
        |session| {
            session.mcpd(&["service", "install"]).expect(0);
            session.mcpd(&["shutdown"]).expect(0);
            session.write(".config/mcpd/mcpd.toml", "memory_limit = \"lots\"\n");
            let said = session.mcpd(&["start", "fake"]).expect(78);
            assert!(said.contains("mcpd.toml:1:"), "{said}");
            assert_eq!(session.property("mcpd.service", "ExecMainStatus"), "78");
            assert_eq!(session.property("mcpd.service", "NRestarts"), "0");
            session.mcpd(&["service", "status"]).expect(3);
            let journal = session.journal("err");
            assert!(journal.contains("error: "), "{journal}");
        },
    );
}

/// What the journal has of the daemon has priorities; a credential of the unit reaches the server.
#[test]
fn the_journal_and_credentials_are_the_services() {
    in_session(
        "service::session::the_journal_and_credentials_are_the_services",
        |session| {
            session.write("secret", "from systemd\n");
            let secret = session.path("secret");
            session.write(
                ".config/systemd/user/mcpd.service.d/secret.conf",
                &format!("[Service]\nLoadCredential=gh:{}\n", secret.display()),
            );
            session.write(
                ".config/mcpd/servers.d/fake.toml",
                &format!(
                    "command = {}\ninherit_env = true\n[env]\nTOKEN = {{ credential = \"gh\" }}\n",
                    quoted(FAKE)
                ),
            );
            session.write(".config/mcpd/servers.d/-bad.toml", "");
            session.mcpd(&["service", "install"]).expect(0);
            let said = session.mcpd(&["call", "fake", "env"]).expect(0);
            assert!(said.contains("from systemd"), "{said}");
            for private in [
                "NOTIFY_SOCKET",
                "LISTEN_FDS",
                "WATCHDOG_USEC",
                "INVOCATION_ID",
                "JOURNAL_STREAM",
                "SYSTEMD_EXEC_PID",
                "CREDENTIALS_DIRECTORY",
            ] {
                assert!(!said.contains(private), "{private}: {said}");
            }
            let journal = session.journal("warning");
            assert!(journal.contains("-bad"), "{journal}");
            assert!(!journal.contains("WARN"), "{journal}");
            fs::remove_dir_all(session.path(".config/systemd/user/mcpd.service.d"))
                .expect("the drop-in");
        },
    );
}

/// Fault 34: a daemon that hangs is killed by the watchdog, with all that it has started, and comes back: one
/// that does nothing at all, and one in which only the owner of the state does nothing.
#[test]
fn a_daemon_that_hangs_is_replaced() {
    in_session(
        "service::session::a_daemon_that_hangs_is_replaced",
        |session| {
            session.write(
                ".config/systemd/user/mcpd.service.d/quick.conf",
                "[Service]\nWatchdogSec=2\nTimeoutAbortSec=1\n",
            );
            session.mcpd(&["service", "install"]).expect(0);
            expect_replaced(session, |pid| {
                kill(Pid::from_raw(pid), Signal::SIGSTOP).expect("it runs");
            });
            expect_replaced(session, |_| {
                let mut stream = UnixStream::connect(session.socket()).expect("it listens");
                let attach = r#"{"jsonrpc":"2.0","id":1,"method":"attach","params":{"server":"fault-block","client":"x","directory":"/"}}"#;
                writeln!(stream, "{attach}").expect("it reads");
                // Until the daemon's end: it cannot answer.
                let mut answer = String::new();
                stream.read_to_string(&mut answer).unwrap_or(0);
                assert_eq!(answer, "");
            });
            fs::remove_dir_all(session.path(".config/systemd/user/mcpd.service.d"))
                .expect("the drop-in");
        },
    );
}

/// The daemon, which `hang` keeps from working, is ended by the watchdog with all that it has started.
fn expect_replaced(session: &Session, hang: impl FnOnce(i32)) {
    session.mcpd(&["call", "fake", "sum", "a=1"]).expect(0);
    let (pid, before) = (session.main_pid(), session.processes());
    hang(pid);
    wait_until("another runs", || {
        let now = session.main_pid();
        let active = session.property("mcpd.service", "ActiveState") == "active";
        (now != 0 && now != pid && active).then_some(())
    });
    for survivor in session.processes() {
        assert!(!before.contains(&survivor), "{survivor} survived");
    }
    let told = ["--user", "-o", "cat", "-n", "200"];
    let journal = session.run(Command::new("journalctl").args(told));
    let ended = format!("Killing process {pid} ");
    assert!(journal.text.contains("watchdog"), "{}", journal.text);
    assert!(journal.text.contains(&ended), "{}", journal.text);
}
