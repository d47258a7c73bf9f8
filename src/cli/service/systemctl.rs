//! The user's systemd, asked through `systemctl --user`.
//!
//! Programs are run directly, never by a shell, with nothing of ours but an environment that makes
//! them speak plainly; each has its time. Decides what an answer means, never what to do about it.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::process::{Command, Stdio};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use super::{SERVICE, SOCKET};
use crate::cli::clock::Deadline;
use crate::cli::error::CliError;
use crate::cli::places::Places;

/// For what systemd answers from memory.
const QUICK: Duration = Duration::from_secs(30);
/// For what a unit that is starting asks about itself, which has its own time to start.
const AT_START: Duration = Duration::from_secs(5);
/// For starts and stops: above the time-outs of the units.
const PATIENT: Duration = Duration::from_secs(90);
/// How much an answer may have.
const ANSWER_LIMIT_BYTES: u64 = 1 << 20;
/// Where programs of the system are if PATH does not lead to them.
const SYSTEM_FOLDERS: [&str; 2] = ["/usr/bin", "/bin"];
/// The exit code of systemd for a unit whose configuration cannot be used (sysexits(3)).
const EX_CONFIG: &str = "78";

/// Why nothing came of a request.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ManagerError {
    #[error("this system has no systemd: {0} is not installed")]
    NoSystemd(&'static str),
    #[error("no systemd user manager answers: {0}")]
    NoManager(String),
    #[error("{0}")]
    Refused(String),
    #[error("`{0}` takes too long")]
    TooLate(String),
    #[error("cannot run {0}")]
    Io(&'static str, #[source] io::Error),
}

impl ManagerError {
    /// Whether there is no manager that could run a service.
    pub(crate) fn is_absence(&self) -> bool {
        matches!(self, Self::NoSystemd(_) | Self::NoManager(_))
    }
}

impl From<ManagerError> for CliError {
    fn from(error: ManagerError) -> Self {
        let hint = match &error {
            ManagerError::NoSystemd(_) => {
                "without systemd, commands that need a daemon start one by themselves"
            }
            ManagerError::NoManager(_) => {
                "log in as this user (su and sudo do not reach its systemd), or let `loginctl enable-linger` start it"
            }
            ManagerError::Refused(_) | ManagerError::TooLate(_) | ManagerError::Io(..) => {
                return Self::server("systemd cannot be used").because(error);
            }
        };
        Self::server("systemd cannot be used")
            .because(error)
            .hint(hint)
    }
}

/// The properties of one unit, by name.
pub(crate) type Properties = BTreeMap<String, String>;

/// The systemd of this user.
#[derive(Clone, Debug)]
pub(crate) struct UserManager {
    /// What its programs need to find it.
    runtime_dir: Option<OsString>,
}

impl UserManager {
    pub(crate) fn new(places: &Places) -> Self {
        // A host may have been started without the variable; our sockets lie below the same folder.
        let runtime_dir = places.paths.runtime_dir().parent();
        let is_users = runtime_dir.is_some_and(|folder| folder.starts_with("/run/user"));
        Self {
            runtime_dir: runtime_dir
                .filter(|_| is_users && std::env::var_os("XDG_RUNTIME_DIR").is_none())
                .map(|folder| folder.as_os_str().to_owned()),
        }
    }

    /// The version of the manager, if one answers; 0 if it says none.
    pub(crate) fn version(&self) -> Result<u32, ManagerError> {
        let answer = self.ask(&["show", "--property=Version"], QUICK)?;
        let properties = parse_properties(&answer);
        Ok(properties
            .get("Version")
            .map_or(0, |text| parse_version(text)))
    }

    /// `start`, `stop`, `enable` and so on.
    pub(crate) fn tell(&self, arguments: &[&str]) -> Result<(), ManagerError> {
        self.ask(arguments, PATIENT).map(drop)
    }

    /// Starts the service and waits until it is ready, or says why it is not. Gives false if there is
    /// no manager to start it.
    pub(crate) fn start_service(&self) -> Result<bool, CliError> {
        match self.tell(&["start", SERVICE]) {
            Ok(()) => Ok(true),
            Err(error) if error.is_absence() => Ok(false),
            Err(error) => Err(self.explain(error)),
        }
    }

    /// Has the service and its socket stopped, without waiting for it.
    pub(crate) fn begin_stop(&self) -> Result<(), ManagerError> {
        self.tell(&["--no-block", "stop", SERVICE, SOCKET])
    }

    /// Stops the service and its socket.
    pub(crate) fn stop(&self) -> Result<(), ManagerError> {
        self.tell(&["stop", SERVICE, SOCKET])
    }

    /// Whether the socket waits for whoever connects.
    pub(crate) fn keeps_socket(&self) -> bool {
        self.show(SOCKET).is_ok_and(|properties| {
            properties
                .get("ActiveState")
                .is_some_and(|it| it == "active")
        })
    }

    /// A failure of the service, with what systemd knows of it.
    pub(crate) fn explain(&self, error: ManagerError) -> CliError {
        // Without the properties the error stands for itself.
        let properties = self.show(SERVICE).unwrap_or_default();
        let value = |name: &str| properties.get(name).map_or("", String::as_str);
        let message = format!("systemd cannot start {SERVICE}");
        let failed = match value("ExecMainStatus") {
            // It has said itself what it cannot use.
            EX_CONFIG if !value("StatusText").is_empty() => {
                CliError::config(format!("{message}: {}", value("StatusText")))
            }
            EX_CONFIG => CliError::config(message),
            _ => CliError::unreachable(message),
        };
        let failed = failed
            .because(error)
            .hint(format!("`journalctl --user -u {SERVICE}` tells more"));
        if value("Result") == "start-limit-hit" || value("ActiveState") == "failed" {
            let hint = format!("once it is mended: `systemctl --user reset-failed {SERVICE}`");
            return failed.hint(hint);
        }
        failed
    }

    /// What systemd knows of a unit, whether it is there or not.
    pub(crate) fn show(&self, unit: &str) -> Result<Properties, ManagerError> {
        let answer = self.ask(&["show", unit], QUICK)?;
        Ok(parse_properties(&answer))
    }

    /// Whether the control group of a unit is for the unit itself to divide (`Delegate=`,
    /// systemd.resource-control(5)). Asked, because a unit of a user bears no other sign of it.
    pub(crate) fn delegates_to(&self, unit: &str) -> bool {
        let arguments = ["show", unit, "--property=Delegate", "--value"];
        self.ask(&arguments, AT_START)
            .is_ok_and(|answer| answer.trim() == "yes")
    }

    /// The variables of the manager.
    pub(crate) fn environment(&self) -> Result<Properties, ManagerError> {
        let answer = self.ask(&["show-environment"], QUICK)?;
        Ok(parse_properties(&answer))
    }

    /// Whether the units outlive the last session of this user; `None` if logind does not say.
    pub(crate) fn lingers(&self) -> Option<bool> {
        let user = nix::unistd::getuid().to_string();
        let arguments = ["show-user", &user, "--property=Linger", "--value"];
        match self.run("loginctl", &arguments, QUICK).ok()?.trim() {
            "yes" => Some(true),
            "no" => Some(false),
            _ => None,
        }
    }

    /// Makes and starts a unit that is gone when it has ended, and waits until it is ready.
    pub(crate) fn run_transient(&self, arguments: &[OsString]) -> Result<(), ManagerError> {
        self.run("systemd-run", arguments, PATIENT).map(drop)
    }

    fn ask(&self, arguments: &[&str], wait: Duration) -> Result<String, ManagerError> {
        let arguments: Vec<&str> = ["--user", "--no-pager"]
            .iter()
            .chain(arguments)
            .copied()
            .collect();
        self.run("systemctl", &arguments, wait)
    }

    /// Runs a program of systemd to its end and gives its standard output.
    fn run(
        &self,
        program: &'static str,
        arguments: &[impl AsRef<OsStr>],
        wait: Duration,
    ) -> Result<String, ManagerError> {
        let deadline = Deadline::after(wait);
        let mut child = self.spawn(program, arguments)?;
        let (sender, answers) = sync_channel(2);
        let pipes: [(bool, Option<Box<dyn Read + Send>>); 2] = [
            (true, child.stdout.take().map(|pipe| Box::new(pipe) as _)),
            (false, child.stderr.take().map(|pipe| Box::new(pipe) as _)),
        ];
        for (is_stdout, pipe) in pipes {
            let sender = sender.clone();
            std::thread::spawn(move || {
                let mut said = Vec::new();
                if let Some(pipe) = pipe {
                    // What was read until an error is what there is.
                    drop(pipe.take(ANSWER_LIMIT_BYTES).read_to_end(&mut said));
                }
                // Whoever waited may have lost its patience.
                drop(sender.send((is_stdout, said)));
            });
        }
        let (mut stdout, mut stderr) = (String::new(), String::new());
        for _ in 0..2 {
            let Ok((is_stdout, said)) = answers.recv_timeout(deadline.left()) else {
                // It may just have ended by itself.
                drop(child.kill());
                drop(child.wait());
                let words = arguments.iter().map(|word| word.as_ref().to_string_lossy());
                let words: Vec<_> = words.collect();
                return Err(ManagerError::TooLate(format!(
                    "{program} {}",
                    words.join(" ")
                )));
            };
            let said = String::from_utf8_lossy(&said).into_owned();
            *(if is_stdout { &mut stdout } else { &mut stderr }) = said;
        }
        let status = child
            .wait()
            .map_err(|error| ManagerError::Io(program, error))?;
        if status.success() {
            return Ok(stdout);
        }
        Err(judge(&stderr, &status.to_string()))
    }

    fn spawn(
        &self,
        program: &'static str,
        arguments: &[impl AsRef<OsStr>],
    ) -> Result<std::process::Child, ManagerError> {
        let candidates = std::iter::once(program.to_owned())
            .chain(SYSTEM_FOLDERS.map(|folder| format!("{folder}/{program}")));
        for candidate in candidates {
            let mut command = Command::new(candidate);
            command
                .args(arguments)
                .env("LC_ALL", "C.UTF-8")
                .env("SYSTEMD_COLORS", "0")
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped());
            if let Some(folder) = &self.runtime_dir {
                command.env("XDG_RUNTIME_DIR", folder);
            }
            match command.spawn() {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                spawned => return spawned.map_err(|error| ManagerError::Io(program, error)),
            }
        }
        Err(ManagerError::NoSystemd(program))
    }
}

/// What a failed program meant.
fn judge(stderr: &str, status: &str) -> ManagerError {
    let said = stderr.trim();
    let first = said.lines().next().unwrap_or_default().to_owned();
    if first.contains("Failed to connect to bus") || first.contains("has not been booted") {
        return ManagerError::NoManager(first);
    }
    let said = said.lines().collect::<Vec<_>>().join(" ");
    ManagerError::Refused(match said.is_empty() {
        true => format!("systemctl ended with {status}"),
        false => said,
    })
}

/// The number of `252.38-1~deb12u1` and the like.
fn parse_version(text: &str) -> u32 {
    let end = text.find(|letter: char| !letter.is_ascii_digit());
    text[..end.unwrap_or(text.len())].parse().unwrap_or(0)
}

/// `NAME=VALUE` lines.
fn parse_properties(text: &str) -> Properties {
    text.lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_are_split_at_the_first_sign() {
        let properties = parse_properties("Id=mcpd.service\nEnvironment=A=1 B=2\nEmpty=\nnoise\n");
        assert_eq!(properties["Environment"], "A=1 B=2");
        assert_eq!(properties["Empty"], "");
        assert_eq!(properties.len(), 3);
    }

    #[test]
    fn a_version_is_its_first_number() {
        for (text, expected) in [
            ("252.38-1~deb12u1", 252),
            ("257", 257),
            ("v259", 0),
            ("", 0),
        ] {
            assert_eq!(parse_version(text), expected, "{text}");
        }
    }

    #[test]
    fn a_missing_manager_is_told_from_a_refusal() {
        let no_bus = "Failed to connect to bus: No medium found\n";
        assert!(judge(no_bus, "").is_absence());
        let refused = judge("Unit x.service not found.\nSee logs.\n", "");
        assert!(!refused.is_absence());
        assert_eq!(refused.to_string(), "Unit x.service not found. See logs.");
        let silent = judge("", "exit status: 1");
        assert_eq!(silent.to_string(), "systemctl ended with exit status: 1");
    }
}
