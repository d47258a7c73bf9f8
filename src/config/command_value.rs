//! Runs the commands of `{ command = […] }` values and remembers what they printed.
//!
//! A command runs in a session of its own, with the base environment and a desktop's means to ask for
//! a password, nothing on stdin, stderr unread, at most ten seconds; whatever is left of its process
//! group is killed. It decides nothing about what the value is for, and no error ever holds output.

use std::collections::HashMap;
use std::ffi::{CString, OsStr, OsString};
use std::fmt;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, PosixSpawnFlags, posix_spawn};
use nix::sys::signal::SigSet;
use nix::sys::stat::Mode;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus};
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe::Receiver;
use tokio::task::JoinHandle;

use super::environment::Base;
use super::resolve::command_line;
use super::sources::cut_newline;
use super::spec::CommandValue;
use crate::time::Moment;

/// How long a command may take: time enough for a password to be typed would hold up a start.
pub const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);

/// How long its output counts.
pub const KEPT_FOR: Duration = Duration::from_secs(600);

/// The most that a command may print, in bytes.
pub const OUTPUT_LIMIT_BYTES: usize = 64 << 10;

/// The most values that are remembered.
const KEPT_LIMIT: usize = 1_024;

/// `POSIX_SPAWN_SETSID` of glibc 2.26 and musl 1.1.18 (`posix_spawn(3)`), which the bindings lack.
const SPAWN_SETSID: PosixSpawnFlags = PosixSpawnFlags::from_bits_retain(0x80);

/// Why a command gave no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandValueError {
    #[error("`{0}` was not found on the PATH")]
    NotFound(String),
    #[error("`{program}` could not be started: {errno}")]
    Spawn { program: String, errno: Errno },
    #[error("`{program}` ended with exit code {code}")]
    Failed { program: String, code: i32 },
    #[error("`{program}` was ended by signal {signal}")]
    Killed { program: String, signal: i32 },
    #[error("`{0}` took longer than {seconds} s", seconds = COMMAND_TIMEOUT.as_secs())]
    TimedOut(String),
    #[error("`{0}` printed more than {limit} KiB", limit = OUTPUT_LIMIT_BYTES >> 10)]
    TooMuch(String),
    #[error("`{0}` printed nothing")]
    Nothing(String),
    #[error("`{program}` could not be watched: {errno}")]
    Lost { program: String, errno: Errno },
}

/// What commands printed, by command. One for a daemon.
#[derive(Default)]
pub struct CommandValues {
    kept: Mutex<HashMap<CommandValue, Kept>>,
}

struct Kept {
    since: Moment,
    output: Vec<u8>,
}

/// The number of values only.
impl fmt::Debug for CommandValues {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        write!(out, "CommandValues({})", kept.len())
    }
}

impl CommandValues {
    /// What `command` prints, without the one newline at its end: remembered, or run now.
    ///
    /// # Errors
    /// See [`CommandValueError`]. A failure is not remembered.
    pub async fn value(
        &self,
        command: &CommandValue,
        base: &Base,
        now: Moment,
    ) -> Result<Vec<u8>, CommandValueError> {
        if let Some(output) = self.remembered(command, now) {
            return Ok(output);
        }
        let run = Run::new(command, base)?;
        let running = tokio::spawn(run.output(COMMAND_TIMEOUT));
        let output = running
            .await
            .unwrap_or_else(|_| Err(CommandValueError::Nothing(shown(command))))?;
        self.remember(command, &output, now);
        Ok(output)
    }

    /// Forgets all values, so that the next spawn runs its commands again.
    pub fn forget(&self) {
        self.kept
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }

    fn remembered(&self, command: &CommandValue, now: Moment) -> Option<Vec<u8>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|_, value| now.since(value.since) < KEPT_FOR);
        kept.get(command).map(|value| value.output.clone())
    }

    fn remember(&self, command: &CommandValue, output: &[u8], now: Moment) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < KEPT_LIMIT {
            kept.insert(
                command.clone(),
                Kept {
                    since: now,
                    output: output.to_vec(),
                },
            );
        }
    }
}

/// The program as it was written: all that errors say of a command.
fn shown(command: &CommandValue) -> String {
    command.argv.first().cloned().unwrap_or_default()
}

/// One run of a command.
struct Run {
    shown: String,
    program: PathBuf,
    argv: Vec<CString>,
    environment: Vec<CString>,
}

impl Run {
    fn new(command: &CommandValue, base: &Base) -> Result<Self, CommandValueError> {
        let shown = shown(command);
        let argv = command_line(&command.argv, &command.folder, &base.home());
        let environment = base.command_value_environment();
        let path = environment.get("PATH").unwrap_or_default();
        let program = argv.first().and_then(|program| find_program(program, path));
        let program = program.ok_or_else(|| CommandValueError::NotFound(shown.clone()))?;
        let variables = environment.iter().filter_map(|(name, value)| {
            let mut pair = name.to_owned();
            pair.push("=");
            pair.push(value);
            CString::new(pair.into_vec()).ok()
        });
        Ok(Self {
            shown,
            program,
            // NUL was refused when the file was read.
            argv: argv
                .into_iter()
                .filter_map(|word| CString::new(word.into_vec()).ok())
                .collect(),
            environment: variables.collect(),
        })
    }

    /// Runs it to its end, or for as long as `limit`. Not to be dropped half way: it runs as a task of
    /// its own.
    async fn output(self, limit: Duration) -> Result<Vec<u8>, CommandValueError> {
        let (pid, stdout) = self.spawn().map_err(|errno| self.spawn_error(errno))?;
        // It ends with the command, which `end` sees to.
        let mut ended = tokio::task::spawn_blocking(move || wait(pid, WaitIdOptions::NOWAIT));
        let read = tokio::time::timeout(limit, self.read(stdout, &mut ended)).await;
        let status = end(pid).await;
        let output =
            read.unwrap_or_else(|_| Err(CommandValueError::TimedOut(self.shown.clone())))?;
        match status.map_err(|errno| self.lost(errno))? {
            Some(status) => self.judge(&status, output),
            None => Err(self.lost(Errno::ECHILD)),
        }
    }

    fn spawn(&self) -> Result<(Pid, OwnedFd), Errno> {
        let (reader, writer) =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(errno)?;
        let mut files = PosixSpawnFileActions::init()?;
        files.add_open(0, "/dev/null", OFlag::O_RDONLY, Mode::empty())?;
        files.add_dup2(writer.as_raw_fd(), 1)?;
        files.add_open(2, "/dev/null", OFlag::O_WRONLY, Mode::empty())?;
        let mut attributes = PosixSpawnAttr::init()?;
        let signals =
            PosixSpawnFlags::POSIX_SPAWN_SETSIGDEF | PosixSpawnFlags::POSIX_SPAWN_SETSIGMASK;
        attributes.set_flags(SPAWN_SETSID | signals)?;
        attributes.set_sigdefault(&SigSet::all())?;
        attributes.set_sigmask(&SigSet::empty())?;
        let pid = posix_spawn(
            self.program.as_path(),
            &files,
            &attributes,
            &self.argv,
            &self.environment,
        )?;
        Pid::from_raw(pid.as_raw())
            .map(|pid| (pid, reader))
            .ok_or(Errno::ESRCH)
    }

    /// What is printed until the command ends; what it left behind may hold the pipe open.
    async fn read(&self, stdout: OwnedFd, ended: &mut Ended) -> Result<Vec<u8>, CommandValueError> {
        let receiver = Receiver::from_owned_fd(stdout);
        let mut stdout = receiver.map_err(|error| {
            self.lost(Errno::from_raw(error.raw_os_error().unwrap_or_default()))
        })?;
        let mut output = Vec::new();
        let mut chunk = [0; 4096];
        let mut running = true;
        while running && output.len() <= OUTPUT_LIMIT_BYTES {
            tokio::select! {
                read = stdout.read(&mut chunk) => match read {
                    Ok(len @ 1..) => output.extend_from_slice(&chunk[..len]),
                    // It may have closed stdout and gone on.
                    Ok(0) | Err(_) => {
                        drop(ended.await);
                        return Ok(output);
                    }
                },
                _ = &mut *ended => running = false,
            }
        }
        while output.len() <= OUTPUT_LIMIT_BYTES {
            // Asked of the kernel: the runtime may not have heard yet that there is something to read.
            match rustix::io::read(&stdout, &mut chunk) {
                Ok(len @ 1..) => output.extend_from_slice(&chunk[..len]),
                Err(rustix::io::Errno::INTR) => {}
                Ok(0) | Err(_) => return Ok(output),
            }
        }
        Err(CommandValueError::TooMuch(self.shown.clone()))
    }

    fn judge(&self, status: &WaitIdStatus, output: Vec<u8>) -> Result<Vec<u8>, CommandValueError> {
        let program = self.shown.clone();
        match (status.exit_status(), status.terminating_signal()) {
            (Some(0), _) => {}
            (Some(code), _) => return Err(CommandValueError::Failed { program, code }),
            (None, signal) => {
                return Err(CommandValueError::Killed {
                    program,
                    signal: signal.unwrap_or_default(),
                });
            }
        }
        let value = cut_newline(output);
        if value.is_empty() {
            Err(CommandValueError::Nothing(program))
        } else {
            Ok(value)
        }
    }

    fn spawn_error(&self, errno: Errno) -> CommandValueError {
        CommandValueError::Spawn {
            program: self.shown.clone(),
            errno,
        }
    }

    fn lost(&self, errno: Errno) -> CommandValueError {
        CommandValueError::Lost {
            program: self.shown.clone(),
            errno,
        }
    }
}

/// The wait for a command on a thread of its own.
type Ended = JoinHandle<Result<Option<WaitIdStatus>, Errno>>;

fn wait(pid: Pid, how: WaitIdOptions) -> Result<Option<WaitIdStatus>, Errno> {
    rustix::process::waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | how).map_err(errno)
}

/// Kills what is left of the command's group, then takes the command's status: as long as nobody has,
/// the number of the group cannot be another's.
async fn end(pid: Pid) -> Result<Option<WaitIdStatus>, Errno> {
    // An error means that nothing was left to kill.
    rustix::process::kill_process_group(pid, Signal::KILL).ok();
    // A killed process ends soon, but not always at once (a disk that does not answer).
    let waited = tokio::task::spawn_blocking(move || wait(pid, WaitIdOptions::empty())).await;
    waited.map_err(|_| Errno::ECANCELED)?
}

fn errno(error: rustix::io::Errno) -> Errno {
    Errno::from_raw(error.raw_os_error())
}

/// The file of a program: itself if it has a slash, else the first executable of its name in `path`.
pub fn find_program(program: &OsStr, path: &OsStr) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(program));
    }
    let folders = path
        .as_bytes()
        .split(|byte| *byte == b':')
        .map(|folder| PathBuf::from(OsString::from_vec(folder.to_vec())));
    folders
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(program))
        .find(|file| is_executable(file))
}

/// Whether `path` is a file that somebody may execute.
pub fn is_executable(path: &Path) -> bool {
    std::fs::metadata(path)
        .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::environment::{Environment, User};
    use rustix::event::{PollFd, PollFlags};
    use rustix::process::PidfdFlags;

    fn base() -> Base {
        let user = User {
            uid: 1,
            name: "ada".into(),
            home: "/".into(),
            shell: "/bin/sh".into(),
        };
        let environment = [
            ("PATH", "/usr/bin:/bin"),
            ("DISPLAY", ":9"),
            ("SECRET_A", "1"),
        ];
        Base::new(environment.into_iter().collect::<Environment>(), user, None)
    }

    fn command(argv: &[&str]) -> CommandValue {
        CommandValue {
            argv: argv.iter().map(|word| (*word).to_owned()).collect(),
            folder: Path::new("/").into(),
        }
    }

    fn shell(script: &str) -> CommandValue {
        command(&["sh", "-c", script])
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    }

    /// What a command gives, in a runtime of its own.
    fn run(command: &CommandValue) -> Result<String, String> {
        let runtime = runtime();
        let values = CommandValues::default();
        let value = runtime.block_on(values.value(command, &base(), Moment::ZERO));
        value
            .map(|bytes| String::from_utf8(bytes).unwrap())
            .map_err(|error| error.to_string())
    }

    #[track_caller]
    fn check(script: &str, expected: Result<&str, &str>) {
        assert_eq!(
            run(&shell(script)),
            expected.map(str::to_owned).map_err(str::to_owned)
        );
    }

    #[test]
    fn output_is_the_value_without_its_last_newline() {
        check("printf 'a\\nb\\n'", Ok("a\nb"));
        check("printf 'a\\n\\n'", Ok("a\n"));
        check("printf a", Ok("a"));
        check("printf 'a\\r\\n'", Ok("a"));
        check("head -c 60000 /dev/zero | tr '\\0' x | wc -c", Ok("60000"));
    }

    #[test]
    fn it_sees_the_base_and_the_desktop_and_no_secret() {
        check(
            "printf '%s %s' \"$DISPLAY\" \"${SECRET_A-none}\"",
            Ok(":9 none"),
        );
    }

    #[test]
    fn it_leads_a_session_of_its_own_and_reads_nothing() {
        check(
            "test \"$(ps -o sid= -p $$ | tr -d ' ')\" = $$ && cat && printf own",
            Ok("own"),
        );
    }

    #[test]
    fn signals_are_as_a_new_process_expects_them() {
        for field in ["SigIgn", "SigBlk"] {
            let script = format!("sed -n 's/^{field}:\\t//p' /proc/self/status");
            let set = u64::from_str_radix(&run(&shell(&script)).unwrap(), 16).unwrap();
            // Signals 1 to 31; the C library keeps 32 and 33 to itself.
            assert_eq!(set & 0x7fff_ffff, 0, "{field}");
        }
    }

    #[test]
    fn failures_are_told_apart_and_never_repeat_output() {
        check(
            "echo s3cr3t; echo s3cr3t >&2; exit 3",
            Err("`sh` ended with exit code 3"),
        );
        check("echo s3cr3t; kill -9 $$", Err("`sh` was ended by signal 9"));
        check("echo; exit 0", Err("`sh` printed nothing"));
        check(
            "head -c 70000 /dev/zero",
            Err("`sh` printed more than 64 KiB"),
        );
        assert_eq!(
            run(&command(&["no-such-program"])),
            Err("`no-such-program` was not found on the PATH".to_owned())
        );
        assert_eq!(
            run(&command(&["/etc/passwd"])),
            Err("`/etc/passwd` could not be started: EACCES: Permission denied".to_owned())
        );
    }

    #[test]
    fn what_it_leaves_behind_neither_holds_up_nor_lives_on() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pid");
        let script = format!("sleep 1000 & echo $! > {}; printf done", file.display());
        check(&script, Ok("done"));
        let pid: i32 = std::fs::read_to_string(&file)
            .unwrap()
            .trim()
            .parse()
            .unwrap();
        // It was killed before the value was given; that it is gone may take a moment.
        let pid = Pid::from_raw(pid).unwrap();
        let Ok(pidfd) = rustix::process::pidfd_open(pid, PidfdFlags::empty()) else {
            return;
        };
        let mut ended = [PollFd::new(&pidfd, PollFlags::IN)];
        let deadline = rustix::event::Timespec {
            tv_sec: 5,
            tv_nsec: 0,
        };
        assert_eq!(rustix::event::poll(&mut ended, Some(&deadline)), Ok(1));
    }

    #[test]
    fn one_that_takes_too_long_is_ended() {
        let runtime = runtime();
        let run = Run::new(&shell("trap '' TERM; exec sleep 1000"), &base()).unwrap();
        let ended = runtime.block_on(run.output(Duration::from_millis(20)));
        assert_eq!(ended.unwrap_err().to_string(), "`sh` took longer than 10 s");
    }

    #[test]
    fn an_endless_writer_is_ended() {
        check("yes", Err("`sh` printed more than 64 KiB"));
    }

    #[test]
    fn a_value_is_kept_for_ten_minutes() {
        let folder = tempfile::tempdir().unwrap();
        let count = shell(&format!(
            "echo x >> {0}/n; wc -l < {0}/n",
            folder.path().display()
        ));
        let runtime = runtime();
        let values = CommandValues::default();
        let at = |seconds: u64| {
            let now = Moment::from_origin(Duration::from_secs(seconds));
            let value = runtime
                .block_on(values.value(&count, &base(), now))
                .unwrap();
            String::from_utf8(value).unwrap().trim().to_owned()
        };
        assert_eq!([at(0), at(599), at(600), at(601)], ["1", "1", "2", "2"]);
        values.forget();
        assert_eq!(at(602), "3");
        assert_eq!(format!("{values:?}"), "CommandValues(1)");
    }

    #[test]
    fn a_failure_is_not_kept() {
        let folder = tempfile::tempdir().unwrap();
        let once = shell(&format!(
            "test -e {0}/f && printf ok || {{ touch {0}/f; exit 1; }}",
            folder.path().display()
        ));
        let runtime = runtime();
        let values = CommandValues::default();
        let value = || runtime.block_on(values.value(&once, &base(), Moment::ZERO));
        assert!(value().is_err());
        assert_eq!(value().unwrap(), b"ok");
    }

    #[test]
    fn programs_are_found_in_absolute_folders_only() {
        let found = |program: &str, path: &str| find_program(program.as_ref(), path.as_ref());
        assert_eq!(
            found("sh", "relative::/nonexistent:/bin"),
            Some("/bin/sh".into())
        );
        assert_eq!(found("sh", ""), None);
        assert_eq!(found("etc", "/"), None);
        assert_eq!(found("/any/where", ""), Some("/any/where".into()));
    }
}
