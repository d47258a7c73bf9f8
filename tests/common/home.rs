//! One home a test: its configuration, runtime and state folders, and an environment built from nothing.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

use super::daemon::TestDaemon;
use super::host::RawHost;
use super::leaks;
use super::record::Record;
use super::wait::wait_until;

/// The program under test.
pub(crate) const MCPD: &str = env!("CARGO_BIN_EXE_mcpd");
/// The fake server.
pub(crate) const FAKE: &str = env!("CARGO_BIN_EXE_fake-mcp");

/// Keys that make a server's end quick enough for a test.
pub(crate) const QUICK: &str = "drain_timeout = \"300ms\"\nstop_timeout = \"500ms\"\n";

/// What a command did.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// The exit code, or 128 and the signal.
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    home: PathBuf,
}

impl Outcome {
    /// Panics unless the command ended with this code.
    #[track_caller]
    pub(crate) fn expect_code(self, code: i32) -> Self {
        assert_eq!(
            self.code, code,
            "stdout: {}\nstderr: {}",
            self.stdout, self.stderr
        );
        self
    }

    /// Standard output with what differs from run to run put in words.
    pub(crate) fn normalised(&self) -> String {
        self.stdout
            .replace(&self.home.display().to_string(), "$HOME")
            .replace(FAKE, "$FAKE")
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", self.stdout))
    }
}

/// A home and everything that is started in it.
#[derive(Debug)]
pub(crate) struct Home {
    folder: TempDir,
    environment: Vec<(OsString, OsString)>,
}

impl Home {
    /// A fresh home with empty folders. The name is short, because a socket path may have 107 bytes.
    pub(crate) fn new() -> Self {
        let folder = tempfile::Builder::new()
            .prefix("mt")
            .tempdir()
            .expect("a temporary folder");
        let home = Self {
            environment: environment_of(folder.path()),
            folder,
        };
        for name in ["config/mcpd/servers.d", "run", "state", "record"] {
            fs::create_dir_all(home.path(name)).expect("a folder of the home");
        }
        // mcpd refuses a runtime folder that others may enter.
        make_private(&home.path("run"));
        home
    }

    /// A path below the home.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file below the home, its folders included.
    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a file stands in a folder")).expect("the folder");
        fs::write(&path, text).expect("the file");
        path
    }

    /// Writes a program below the home.
    pub(crate) fn program(&self, name: &str, text: &str) -> PathBuf {
        use std::os::unix::fs::PermissionsExt;
        let path = self.write(name, text);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("the mode");
        path
    }

    /// Writes `servers.d/NAME.toml`.
    pub(crate) fn server(&self, name: &str, toml: &str) -> PathBuf {
        self.write(&format!("config/mcpd/servers.d/{name}.toml"), toml)
    }

    /// Writes `mcpd.toml`.
    pub(crate) fn settings(&self, toml: &str) -> PathBuf {
        self.write("config/mcpd/mcpd.toml", toml)
    }

    /// A server that is the fake with these switches and a record, with short deadlines for its end.
    pub(crate) fn fake(&self, name: &str, switches: &[&str]) {
        self.fake_with(name, switches, QUICK);
    }

    /// A fake with TOML of its own instead of the short deadlines.
    pub(crate) fn fake_with(&self, name: &str, switches: &[&str], toml: &str) {
        self.server(name, &self.fake_toml(name, switches, toml));
    }

    /// The TOML of a fake; `toml` may end in tables.
    pub(crate) fn fake_toml(&self, name: &str, switches: &[&str], toml: &str) -> String {
        let record = self.record_path(name);
        let mut args = vec!["--record", record.to_str().expect("a plain path")];
        args.extend(switches);
        format!(
            "command = {}\nargs = {}\n{toml}",
            quoted(FAKE),
            array(&args)
        )
    }

    /// A server whose program is the fake in another mode: its first words are `words`.
    pub(crate) fn fake_mode(&self, name: &str, words: &[&str], switches: &[&str], toml: &str) {
        let record = self.record_path(name);
        let mut args = words.to_vec();
        args.extend(["--", "--record", record.to_str().expect("a plain path")]);
        args.extend(switches);
        self.server(
            name,
            &format!(
                "command = {}\nargs = {}\n{toml}",
                quoted(FAKE),
                array(&args)
            ),
        );
    }

    fn record_path(&self, name: &str) -> PathBuf {
        self.path("record").join(name)
    }

    /// What the fake of this name wrote down.
    pub(crate) fn record(&self, name: &str) -> Record {
        Record::at(self.record_path(name))
    }

    /// Sets a variable for everything that is started from now on.
    pub(crate) fn set_env(&mut self, name: &str, value: impl Into<OsString>) {
        self.remove_env(name);
        self.environment.push((name.into(), value.into()));
    }

    /// Takes a variable away.
    pub(crate) fn remove_env(&mut self, name: &str) {
        self.environment.retain(|(given, _)| given != name);
    }

    /// A program in this home's environment and nothing else.
    pub(crate) fn program_command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        command
    }

    /// `mcpd` with these arguments.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = self.program_command(MCPD);
        command.args(args);
        command
    }

    /// Runs `mcpd` to its end.
    #[track_caller]
    pub(crate) fn mcpd(&self, args: &[&str]) -> Outcome {
        self.run(&mut self.command(args))
    }

    /// Runs a command to its end, for which it has its time.
    #[track_caller]
    pub(crate) fn run(&self, command: &mut Command) -> Outcome {
        self.run_then(command, |_| {})
    }

    /// As [`run`](Self::run), and does something once the command has a pid.
    #[track_caller]
    pub(crate) fn run_then(&self, command: &mut Command, then: impl FnOnce(i32)) -> Outcome {
        use std::os::unix::process::ExitStatusExt;
        let output = output_then(COMMAND_LIMIT, command, then);
        let status = output.status;
        Outcome {
            code: status
                .code()
                .unwrap_or_else(|| 128 + status.signal().unwrap_or(0)),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            home: self.folder.path().to_owned(),
        }
    }

    /// Starts `mcpd daemon` and waits until it answers.
    pub(crate) fn start(self) -> TestDaemon {
        TestDaemon::start(self)
    }

    /// The control socket.
    pub(crate) fn control_socket(&self) -> PathBuf {
        self.path("run/mcpd/mcpd.sock")
    }

    /// The raw socket of a server.
    pub(crate) fn server_socket(&self, name: &str) -> PathBuf {
        self.path("run/mcpd/servers").join(name).join("mcp.sock")
    }

    /// A host on the raw socket.
    pub(crate) fn socket_host(&self, name: &str) -> RawHost {
        RawHost::on_socket(&self.server_socket(name))
    }

    /// A host that started `mcpd connect NAME`.
    pub(crate) fn connect_host(&self, name: &str) -> RawHost {
        RawHost::through(self.command(&["connect", name]))
    }

    /// `mcpd status --json`, or none where it says nothing.
    pub(crate) fn status(&self) -> Option<Value> {
        let outcome = self.mcpd(&["status", "--json"]);
        serde_json::from_str(&outcome.stdout).ok()
    }

    /// The pid of the daemon that answers here.
    pub(crate) fn daemon_pid(&self) -> Option<i32> {
        i32::try_from(self.status()?["daemon"]["pid"].as_i64()?).ok()
    }

    /// Kills the daemon that answers here; shims find or start another.
    pub(crate) fn kill_daemon(&self) {
        let pid = self.daemon_pid().expect("a daemon runs");
        kill(Pid::from_raw(pid), Signal::SIGKILL).expect("it is there");
    }

    /// The fake servers, launchers and grandchildren that live in this home.
    pub(crate) fn fakes(&self) -> Vec<(i32, String)> {
        let is_fake = |pid: &i32| {
            let program = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
            program == Path::new(FAKE)
        };
        self.processes()
            .into_iter()
            .filter(|(pid, _)| is_fake(pid))
            .collect()
    }

    /// Every process of this home.
    pub(crate) fn processes(&self) -> Vec<(i32, String)> {
        leaks::processes_of(self.folder.path())
    }
}

impl Drop for Home {
    /// Ends a daemon that a shim started, then proves that nothing of this home is left.
    fn drop(&mut self) {
        if std::thread::panicking() {
            leaks::sweep(self.folder.path());
            return;
        }
        if self.control_socket().exists() && !self.processes().is_empty() {
            // Whether it could be told is seen by what is left.
            self.mcpd(&["shutdown"]);
        }
        let home = self.folder.path().to_owned();
        let left = std::panic::catch_unwind(|| {
            wait_until("the processes of the home end", || {
                leaks::processes_of(&home).is_empty().then_some(())
            });
        });
        if left.is_err() {
            let left = leaks::processes_of(&home);
            leaks::sweep(&home);
            panic!("left behind: {left:?}");
        }
    }
}

/// How long any command may take; none should come near.
const COMMAND_LIMIT: Duration = Duration::from_secs(60);

/// What a command said, or a panic that names it if it does not end.
#[track_caller]
pub(crate) fn output_in_time(command: &mut Command) -> Output {
    output_within(COMMAND_LIMIT, command)
}

/// The same with a limit of its own.
#[track_caller]
pub(crate) fn output_within(limit: Duration, command: &mut Command) -> Output {
    output_then(limit, command, |_| {})
}

#[track_caller]
fn output_then(limit: Duration, command: &mut Command, then: impl FnOnce(i32)) -> Output {
    let shown = format!("{command:?}");
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{shown}: {error}"));
    let pid = Pid::from_raw(i32::try_from(child.id()).expect("a pid"));
    let (sender, output) = channel();
    // The one who waited too long has left already.
    thread::spawn(move || sender.send(child.wait_with_output()).ok());
    then(pid.as_raw());
    output
        .recv_timeout(limit)
        .unwrap_or_else(|_| {
            kill(pid, Signal::SIGKILL).ok();
            panic!("{shown} did not end within {limit:?}");
        })
        .expect("a child can be waited for")
}

fn environment_of(home: &Path) -> Vec<(OsString, OsString)> {
    let below = |name: &str| home.join(name).into_os_string();
    vec![
        ("HOME".into(), home.into()),
        ("XDG_CONFIG_HOME".into(), below("config")),
        ("XDG_RUNTIME_DIR".into(), below("run")),
        ("XDG_STATE_HOME".into(), below("state")),
        ("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into()),
        ("SHELL".into(), "/bin/sh".into()),
        ("LANG".into(), "C.UTF-8".into()),
    ]
}

/// Takes group and others off a folder's mode.
pub(crate) fn make_private(folder: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).expect("the mode");
}

/// A TOML string.
pub(crate) fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// A TOML array of strings.
pub(crate) fn array(items: &[&str]) -> String {
    Value::from(items.to_vec()).to_string()
}
