//! Starting a daemon, if none runs, on behalf of a command.
//!
//! Two steps, so that the daemon descends from nobody: the command starts `mcpd daemon --detach`,
//! a short-lived process in a session of its own; that one takes the start lock, finds the PATH,
//! starts the daemon and waits until it is ready or has said why not. When it leaves, the daemon
//! belongs to init, and a host that kills all its descendants does not meet it.
//!
//! A transient unit of the user's systemd comes before that, since it has a group of its own and an
//! end in order; nothing is started from a sandbox.
//!
//! Decides what the daemon inherits: no descriptor, no directory, no variable but the base ones.

mod login_path;
mod sandbox;
mod transient;

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use self::login_path::{DEFAULT_PATH, ask_login_shell};
use super::Context;
use super::client::{Client, ConnectError, McpStream};
use super::clock::Deadline;
use super::error::{CliError, Kind};
use super::escape::escape;
use super::places::Places;
use super::service::UserManager;
use crate::config::environment::{Base, Environment};

/// What the started process says when the daemon serves.
pub(crate) const READY: &str = "ready";
/// How long a daemon may take until it serves.
const READY_WAIT: Duration = Duration::from_secs(20);
/// How long a command waits for all of it: other starters, the shell, the daemon.
const START_WAIT: Duration = Duration::from_secs(60);
/// How long a daemon that is ending may take to stop its servers and leave.
const END_WAIT: Duration = Duration::from_secs(25);
/// Daemons that are asked for an attachment while one after the other ends.
const ATTACH_ATTEMPTS: u32 = 3;
/// How often it is tried whether a daemon listens while its lock is waited for.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// A daemon of a trial configuration that was started by itself ends this long after its last
/// client.
const TRIAL_IDLE: Duration = Duration::from_secs(600);
/// What a line of a report begins with that is a hint.
const HINT: &str = "hint: ";
/// How much a failed start may say.
const REPORT_LIMIT_BYTES: u64 = 16 << 10;

/// Whether a daemon that was ended on purpose is started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// A person asks for it, by whatever command.
    Start,
    /// A host needs a daemon, unless the user wants none.
    UnlessShutDown,
}

/// A connection to the daemon, which is started first if none runs. `by` says on whose behalf.
pub(crate) fn connect_or_start(
    context: &Context,
    places: &Places,
    by: &str,
    wish: Wish,
) -> Result<Client, CliError> {
    match Client::connect(places) {
        Ok(client) => return Ok(client),
        Err(ConnectError::Other(error)) => return Err(error),
        Err(ConnectError::NoDaemon(_)) => {}
    }
    if wish == Wish::UnlessShutDown && places.shutdown_marker().exists() {
        return Err(shut_down());
    }
    if let Some(refusal) = sandbox::refusal(places) {
        return Err(refusal);
    }
    // The unit first: what it starts has its resources, its restarts and its end in order. Without a
    // user manager there is nobody to start it.
    let is_unit = places.unit_file.is_some();
    if !(is_unit && UserManager::new(places).start_service()?) {
        start(context, places, by)?;
    }
    Ok(Client::connect(places)?)
}

/// An attachment to the daemon, which is started first if none runs. One that is ending is waited
/// for, and the next one asked.
pub(crate) fn attach_or_start(
    context: &Context,
    places: &Places,
    by: &str,
    wish: Wish,
    mut attach: impl FnMut(Client) -> Result<McpStream, CliError>,
) -> Result<McpStream, CliError> {
    let mut attempts = 0;
    loop {
        let client = connect_or_start(context, places, by, wish)?;
        let process = client.process();
        attempts += 1;
        match attach(client) {
            Err(error) if error.kind == Kind::Unreachable && attempts < ATTACH_ATTEMPTS => {
                if !process.is_some_and(|process| process.wait_for_end(END_WAIT)) {
                    return Err(error);
                }
            }
            settled => return settled,
        }
    }
}

/// What makes an end on purpose undone.
pub(crate) const STARTERS: &str =
    "`mcpd start NAME`, `mcpd call`, `mcpd tools` or `mcpd daemon` starts one";

/// The daemon was ended on purpose and stays so for hosts.
pub(crate) fn shut_down() -> CliError {
    CliError::unreachable("no daemon is running: mcpd was shut down").hint(STARTERS)
}

/// Starts a daemon through a short-lived process and waits until it serves.
fn start(context: &Context, places: &Places, by: &str) -> Result<(), CliError> {
    let (reader, writer) = pipe()?;
    let report = writer
        .try_clone()
        .map_err(|error| CliError::internal("cannot copy a pipe").because(error))?;
    let mut command = this_program();
    command
        .args(["daemon", "--detach", "--started-by", by])
        .args(options(places))
        .env_clear()
        .envs(base_environment(context, places).iter())
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(writer)
        .stderr(report);
    let child = command.spawn().map_err(cannot_spawn)?;
    // The write ends in `command` must go, or the pipe never ends.
    drop(command);
    wait_until_ready(child, File::from(reader), START_WAIT, Vec::new)
}

/// The second step, in the short-lived process.
pub(crate) fn detach(context: &Context, places: &Places, by: &str) -> Result<(), CliError> {
    leave_the_host()?;
    places.prepare()?;
    let _lock = take_start_lock(places)?;
    if is_served(places)? {
        return Ok(());
    }
    let environment = base_environment(context, places);
    let (path, source) = find_path(places, &environment);
    let mut options = options(places);
    if !places.paths.is_default() {
        options.extend([
            "--idle-exit".into(),
            TRIAL_IDLE.as_secs().to_string().into(),
        ]);
    }
    let wanted = transient::Wanted {
        by,
        path: &path,
        path_source: source,
        environment: &environment,
        options: options.clone(),
    };
    // What fails there fails here too, and says why.
    if transient::start(places, &wanted) {
        return Ok(());
    }
    let (reader, writer) = pipe()?;
    let log_path = places.daemon_log();
    let log = open_log(&log_path)?;
    let logged = log.metadata().map_or(0, |found| found.len());
    let mut command = this_program();
    command
        .args(["daemon", "--ready-on-stdout", "--started-by", by])
        .args(["--path-source", source])
        .args(options)
        .env_clear()
        .envs(environment.iter())
        .env("PATH", path)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(writer)
        .stderr(log);
    let child = command.spawn().map_err(cannot_spawn)?;
    drop(command);
    wait_until_ready(child, File::from(reader), READY_WAIT, || {
        last_words(&log_path, logged)
    })
}

/// Cuts what ties this process to the host that started it.
fn leave_the_host() -> Result<(), CliError> {
    for descriptor in inherited_descriptors()? {
        // One that is not open any more is as good as closed.
        _ = nix::unistd::close(descriptor);
    }
    // Fails only for the leader of a group (setsid(2)), which has a session or a shell of its own.
    _ = nix::unistd::setsid();
    std::env::set_current_dir("/")
        .map_err(|error| CliError::internal("cannot go to /").because(error))
}

/// Descriptors above standard error. Called before this process opens any of its own.
pub(super) fn inherited_descriptors() -> Result<Vec<i32>, CliError> {
    let listing = std::fs::read_dir("/proc/self/fd")
        .map_err(|error| CliError::internal("cannot list /proc/self/fd").because(error))?;
    let mut open: Vec<i32> = listing
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|descriptor| *descriptor > 2)
        .collect();
    // The listing's own is closed by now, and its number will be another's.
    open.retain(|descriptor| std::fs::read_link(format!("/proc/self/fd/{descriptor}")).is_ok());
    Ok(open)
}

/// What passes from the host to the daemon: who and where the user is and how the network is
/// reached. Its PATH, its secrets and all else stay behind.
fn base_environment(context: &Context, places: &Places) -> Environment {
    let base = Base::new(
        context.environment.clone(),
        places.user.clone(),
        Some(DEFAULT_PATH.into()),
    );
    base.layer(false, true).0
}

/// Waits for the right to start. Whoever holds it leaves within its own deadlines.
fn take_start_lock(places: &Places) -> Result<File, CliError> {
    let path = places.start_lock();
    let failed = |error: io::Error| {
        CliError::internal(format!("cannot lock {}", path.display())).because(error)
    };
    let file = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .custom_flags(nix::libc::O_NOFOLLOW)
        .open(&path)
        .map_err(failed)?;
    file.lock().map_err(failed)?;
    Ok(file)
}

/// Whether a daemon can be reached: another starter may have been faster. One that holds the lock
/// but does not listen is about to do so, or about to leave; either is waited for.
fn is_served(places: &Places) -> Result<bool, CliError> {
    let deadline = Deadline::after(END_WAIT);
    let mut is_free = None;
    loop {
        match Client::connect(places) {
            Ok(_) => return Ok(true),
            Err(ConnectError::Other(error)) => return Err(error),
            Err(ConnectError::NoDaemon(_)) => {}
        }
        let is_free = is_free.get_or_insert_with(|| wait_for_lock(&places.paths.lock_file()));
        match is_free.recv_timeout(LOOK_EVERY) {
            Err(RecvTimeoutError::Timeout) if !deadline.left().is_zero() => {}
            // It is free, or cannot be had, which is the daemon's to judge.
            Ok(()) | Err(_) => return Ok(false),
        }
    }
}

/// Says so once nobody holds the lock of a daemon any more.
fn wait_for_lock(path: &Path) -> Receiver<()> {
    let (sender, receiver) = sync_channel(1);
    // Without the file there is no holder.
    if let Ok(lock) = File::open(path) {
        std::thread::spawn(move || {
            // Held for no longer than it takes to see that it can be: the daemon wants it.
            if lock.lock_shared().is_ok() {
                drop(lock);
                // Whoever waited may have lost its patience.
                _ = sender.send(());
            }
        });
    }
    receiver
}

/// The PATH of the daemon and where it came from.
fn find_path(places: &Places, environment: &Environment) -> (OsString, &'static str) {
    if has_path_of_its_own(places.paths.config_dir()) {
        return (DEFAULT_PATH.into(), "mcpd.toml");
    }
    match ask_login_shell(environment, &places.user.shell) {
        Some(path) => (path, "login shell"),
        None => (DEFAULT_PATH.into(), "default"),
    }
}

/// Whether `mcpd.toml` names the PATH, so that no shell needs to be asked. An invalid file is
/// reported by the daemon.
fn has_path_of_its_own(config_dir: &Path) -> bool {
    std::fs::read_to_string(config_dir.join("mcpd.toml"))
        .ok()
        .and_then(|text| text.parse::<toml::Table>().ok())
        .is_some_and(|table| table.contains_key("path"))
}

fn open_log(path: &Path) -> Result<File, CliError> {
    OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .custom_flags(nix::libc::O_NOFOLLOW)
        .open(path)
        .map_err(|error| {
            CliError::internal(format!("cannot open the log {}", path.display())).because(error)
        })
}

/// This very file, even if a newer one has taken its place.
fn this_program() -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("mcpd");
    command
}

/// The options that lead the daemon to the same places. What follows from variables that it gets
/// too is not spelled out.
fn options(places: &Places) -> Vec<OsString> {
    let paths = &places.paths;
    let mut options: Vec<OsString> = vec!["--state".into(), paths.state_dir().into()];
    if paths.socket_is_chosen() {
        options.extend(["--socket".into(), places.socket.clone().into()]);
    }
    if !paths.is_default() {
        options.extend(["--config".into(), paths.config_dir().into()]);
    }
    options
}

fn pipe() -> Result<(OwnedFd, OwnedFd), CliError> {
    let (reader, writer) =
        io::pipe().map_err(|error| CliError::internal("cannot make a pipe").because(error))?;
    Ok((reader.into(), writer.into()))
}

fn cannot_spawn(error: io::Error) -> CliError {
    CliError::unreachable("cannot start the daemon from /proc/self/exe").because(error)
}

/// Reads what the started process says until it is ready, has failed or takes too long. What else
/// there is to go by, in case that it says nothing, comes from `last_words`.
fn wait_until_ready(
    mut child: Child,
    mut pipe: File,
    wait: Duration,
    last_words: impl FnOnce() -> Vec<String>,
) -> Result<(), CliError> {
    let deadline = Deadline::after(wait);
    let mut said = Vec::new();
    let mut buffer = [0; 1024];
    loop {
        if !is_readable(&pipe, deadline.left()) {
            let message = format!(
                "the daemon (pid {}) was not ready within {} s",
                child.id(),
                wait.as_secs()
            );
            let error = CliError::unreachable(message);
            return Err(last_words().into_iter().fold(error, CliError::hint));
        }
        match pipe.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => said.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                return Err(CliError::unreachable("cannot hear the daemon").because(error));
            }
        }
        if said.strip_suffix(b"\n") == Some(READY.as_bytes()) {
            // The short-lived process is reaped; the daemon goes on, and nothing is to reap.
            drop(child.try_wait());
            return Ok(());
        }
        if said.len() as u64 > REPORT_LIMIT_BYTES {
            break;
        }
    }
    let status = child
        .wait()
        .map_err(|error| CliError::unreachable("the daemon is lost").because(error))?;
    let said = String::from_utf8_lossy(&said);
    let hints = if said.trim().is_empty() {
        last_words()
    } else {
        Vec::new()
    };
    let error = failure(&said, status);
    Err(hints.into_iter().fold(error, CliError::hint))
}

fn is_readable(pipe: &File, wait: Duration) -> bool {
    let timeout = PollTimeout::try_from(wait).unwrap_or(PollTimeout::MAX);
    let mut polled = [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)];
    // A signal that interrupts is no reason to give up; the next round has the same deadline.
    !wait.is_zero()
        && match poll(&mut polled, timeout) {
            Ok(ready) => ready > 0,
            Err(nix::errno::Errno::EINTR) => is_readable(pipe, wait),
            Err(_) => false,
        }
}

/// The error that a started process printed, as if it were our own.
fn failure(said: &str, status: std::process::ExitStatus) -> CliError {
    let kind = match status.code() {
        Some(code) if code == i32::from(Kind::Config.code()) => Kind::Config,
        _ => Kind::Unreachable,
    };
    let (hints, message): (Vec<&str>, Vec<&str>) =
        said.lines().partition(|line| line.starts_with(HINT));
    let message = message.join("\n");
    let message = message.trim();
    let message = match message.strip_prefix("error: ").unwrap_or(message) {
        "" => format!("the daemon ended before it was ready ({status})"),
        message => message.to_owned(),
    };
    let error = CliError::new(kind, message);
    let hints = hints.into_iter().filter_map(|line| line.strip_prefix(HINT));
    hints.fold(error, CliError::hint)
}

/// The last line that the daemon logged since `from`, and where the log is.
fn last_words(log: &Path, from: u64) -> Vec<String> {
    let read = || {
        let mut file = File::open(log)?;
        file.seek(SeekFrom::Start(from))?;
        let mut text = Vec::new();
        file.take(REPORT_LIMIT_BYTES).read_to_end(&mut text)?;
        io::Result::Ok(text)
    };
    let text = read().unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let last = text.lines().rfind(|line| !line.trim().is_empty());
    let last = last.map(|line| format!("its log ends with: {}", escape(line)));
    let place = format!("the log is {}", log.display());
    last.into_iter().chain([place]).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use super::*;

    /// The error for what a started process said and how it ended.
    fn check(said: &str, code: i32, expected: &str) {
        let error = failure(said, ExitStatus::from_raw(code << 8));
        assert_eq!(error.render(), expected);
    }

    #[test]
    fn the_daemons_own_words_reach_the_caller() {
        check(
            "error: cannot listen on /x: Read-only file system (os error 30)\nhint: free it\n",
            3,
            "error: cannot listen on /x: Read-only file system (os error 30)\nhint: free it\n",
        );
    }

    #[test]
    fn a_report_of_several_lines_stays_whole() {
        check(
            "error: the configuration is invalid:\n/c/mcpd.toml:1:1: error: no\n",
            78,
            "error: the configuration is invalid:\n/c/mcpd.toml:1:1: error: no\n",
        );
    }

    #[test]
    fn a_daemon_without_words_is_told_by_its_exit() {
        check(
            "",
            9,
            "error: the daemon ended before it was ready (exit status: 9)\n",
        );
    }

    #[test]
    fn a_configuration_error_stays_one() {
        let error = failure("error: x", ExitStatus::from_raw(78 << 8));
        assert_eq!(error.kind, Kind::Config);
    }

    #[test]
    fn a_path_in_the_configuration_saves_asking_a_shell() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!has_path_of_its_own(folder.path()));
        std::fs::write(folder.path().join("mcpd.toml"), "path = [\"/a\"]").unwrap();
        assert!(has_path_of_its_own(folder.path()));
    }
}
