//! `mcpd daemon`: the daemon itself, in the foreground or for a command that needs one.
//!
//! Decides what it is told about its start and how it reports that it serves. What it does then is
//! decided in [`crate::daemon`].

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use super::Context;
use super::error::{CliError, Verdict};
use super::output::complain;
use super::places::{Places, refused, unusable};
use super::service::UserManager;
use super::start_daemon::{READY, detach, inherited_descriptors};
use crate::config::dirs::DirectoryError;
use crate::config::environment::{Environment, User};
use crate::config::paths::{PathError, Paths};
use crate::daemon::is_stderr_the_journal;
use crate::daemon::warden::{self, Warden};

/// What a daemon is told about its start.
#[derive(Debug)]
pub struct DaemonRequest {
    pub paths: Paths,
    /// The environment that it was started with.
    pub environment: Environment,
    pub user: User,
    /// Who started it, for `status`.
    pub started_by: String,
    /// Where the PATH of its environment came from, for `status`.
    pub path_source: String,
    /// It ends by itself when no client has been there for so long.
    pub idle_exit: Option<Duration>,
    /// The pid of the process that ends what this daemon leaves, if there is one.
    pub warden: Option<u32>,
    pub containment: Containment,
}

/// How surely a daemon is to hold what comes from its servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Containment {
    /// In control groups, below the one that the daemon is in: it must be the daemon's alone
    Cgroup,
    /// As the parent of all orphans
    Subreaper,
    /// By process group, session and environment only
    Group,
}

/// Runs a daemon until it ends, and calls its second argument once it can be reached. The program
/// hands it in: the command line knows no daemon, only how to ask for one.
pub type Serve = fn(DaemonRequest, &mut dyn FnMut()) -> Result<(), ServeError>;

/// Why a daemon could not run, as far as exit codes tell it apart.
#[derive(Debug)]
pub enum ServeError {
    Paths(PathError),
    Directory(DirectoryError),
    /// Its configuration cannot be used.
    Config(String),
    Other(Box<dyn std::error::Error + Send + Sync>),
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Commands that need a daemon start one by themselves; this runs it in the foreground.

Unless systemd runs it, a small process of its own, the warden, stays above the daemon: should the
daemon be killed, the warden ends all that it has started. Signals to the warden reach the daemon,
and it ends as the daemon does. A unit that wants one (--warden always) is of Type=exec.

Example:
  mcpd daemon
  mcpd daemon --detach")]
pub(crate) struct Arguments {
    /// Run in the background, and return when it can be reached
    #[arg(long)]
    detach: bool,
    /// Whether a small process above the daemon ends what a killed daemon leaves
    #[arg(long, value_enum, value_name = "WHEN", default_value_t)]
    warden: WardenChoice,
    /// The warden of this daemon
    #[arg(long, hide = true, value_name = "PID")]
    guarded: Option<u32>,
    /// Who asks for it, for `status`
    #[arg(long, hide = true)]
    started_by: Option<String>,
    /// Where PATH came from, for `status`
    #[arg(long, hide = true, default_value = "environment")]
    path_source: String,
    /// Write a line to standard output once it can be reached, and nothing else ever
    #[arg(long, hide = true)]
    ready_on_stdout: bool,
    /// End after so many seconds without a client
    #[arg(long, hide = true, value_name = "SECONDS")]
    idle_exit: Option<u64>,
    /// How surely it holds what its servers start [default: cgroup under a unit of systemd with
    /// Delegate=yes, else subreaper]
    #[arg(long, value_enum, value_name = "LEVEL")]
    containment: Option<Containment>,
}

/// When there is a warden.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum WardenChoice {
    /// Where systemd does not run the daemon
    #[default]
    Auto,
    Always,
    Never,
}

pub(crate) fn cmd_daemon(context: &Context, arguments: Arguments) -> Result<Verdict, CliError> {
    let places = context.places()?;
    if arguments.detach {
        let by = arguments.started_by.as_deref();
        detach(context, &places, by.unwrap_or("mcpd daemon --detach"))?;
        context.output.print(&format!("{READY}\n"))?;
        return Ok(Verdict::Done);
    }
    let is_main = is_main_process();
    let wants_warden = match arguments.warden {
        WardenChoice::Auto => !is_main,
        WardenChoice::Always => true,
        WardenChoice::Never => false,
    };
    if wants_warden && arguments.guarded.is_none() {
        return guard(&arguments);
    }
    if arguments.guarded.is_some() {
        // Apart from the warden, so that a terminal's signals come once: through it.
        _ = nix::unistd::setsid();
    }
    if !arguments.ready_on_stdout {
        return match serve(context, &places, arguments, &mut None) {
            Err(error) if is_stderr_the_journal() => {
                complain(&as_errors(&error.render()));
                Err(error.silent())
            }
            served => served.map(|()| Verdict::Done),
        };
    }
    // A session of its own, apart from the process that started it (setsid(2)).
    _ = nix::unistd::setsid();
    let mut report = Some(take_stdout()?);
    let served = serve(context, &places, arguments, &mut report);
    if let (Err(error), Some(mut report)) = (&served, report) {
        // Whoever waits is told; it may have given up.
        drop(report.write_all(error.render().as_bytes()));
    }
    served.map(|()| Verdict::Done)
}

/// Starts the daemon below this process and becomes its warden, which ends as the daemon does.
fn guard(arguments: &Arguments) -> Result<Verdict, CliError> {
    let failed = |error: io::Error| CliError::internal("cannot watch over a daemon").because(error);
    if arguments.ready_on_stdout {
        // A session of its own, apart from the process that started it (setsid(2)).
        _ = nix::unistd::setsid();
    }
    let ours = inherited_descriptors()?;
    let mut handed_on: Vec<OsString> = std::env::args_os().skip(1).collect();
    if arguments.started_by.is_none() {
        // Only the process that was started knows by whom.
        handed_on.extend(["--started-by".into(), started_by().into()]);
    }
    let warden = Warden::start(handed_on).map_err(failed)?;
    // All of these are the daemon's from here on.
    for descriptor in ours {
        // One that is not open any more is as good as closed.
        _ = nix::unistd::close(descriptor);
    }
    if arguments.ready_on_stdout {
        drop(take_stdout()?);
    }
    // No folder is held for longer than it is needed.
    _ = std::env::set_current_dir("/");
    warden::end_like(warden.stay().map_err(failed)?)
}

fn serve(
    context: &Context,
    places: &Places,
    arguments: Arguments,
    report: &mut Option<File>,
) -> Result<(), CliError> {
    places.prepare()?;
    let request = DaemonRequest {
        paths: places.paths.clone(),
        environment: context.environment.clone(),
        user: places.user.clone(),
        started_by: arguments.started_by.unwrap_or_else(started_by),
        path_source: arguments.path_source,
        idle_exit: arguments.idle_exit.map(Duration::from_secs),
        containment: arguments
            .containment
            .unwrap_or_else(|| find_containment(places)),
        warden: arguments.guarded,
    };
    let note = places.socket_note();
    let ended = (context.serve)(request, &mut || {
        // The daemon can be reached, so it is wanted.
        drop(std::fs::remove_file(places.shutdown_marker()));
        drop(std::fs::remove_file(places.ended_marker()));
        // Only clients with another XDG_RUNTIME_DIR need the note.
        drop(std::fs::write(&note, places.socket.as_os_str().as_bytes()));
        // A crash has left the last one's, and only a file that is made anew is noticed.
        drop(std::fs::remove_file(places.ready_file()));
        drop(std::fs::write(
            places.ready_file(),
            std::process::id().to_string(),
        ));
        if let Some(mut report) = report.take() {
            // Whoever waited may have given up; the daemon serves all the same.
            drop(writeln!(report, "{READY}"));
        }
    });
    ended.map_err(failed)?;
    drop(std::fs::remove_file(places.ready_file()));
    // Shims that cannot read it start a daemon again, as after a crash.
    let pid = std::process::id().to_string();
    drop(std::fs::write(places.ended_marker(), pid));
    Ok(())
}

/// Whether this is the main process of a unit of systemd.
fn is_main_process() -> bool {
    // Inherited by terminals, where it names another process.
    let unit = std::env::var("SYSTEMD_EXEC_PID").ok();
    unit.is_some_and(|pid| pid == std::process::id().to_string())
}

/// A control group is ours to divide if it is that of our own unit and the unit says so; never
/// merely because we may write to it, as to the group of any application.
fn find_containment(places: &Places) -> Containment {
    let cgroup = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let unit = unit_of(&cgroup).filter(|_| is_main_process());
    match unit.is_some_and(|unit| UserManager::new(places).delegates_to(unit)) {
        true => Containment::Cgroup,
        false => Containment::Subreaper,
    }
}

/// Who started a daemon that was not told.
fn started_by() -> String {
    if is_main_process() {
        let cgroup = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        return unit_of(&cgroup)
            .map_or_else(|| "systemd".to_owned(), |unit| format!("systemd {unit}"));
    }
    match io::IsTerminal::is_terminal(&io::stdin()) {
        true => "terminal".to_owned(),
        false => "command".to_owned(),
    }
}

/// Each line with the priority of an error, as the journal takes it (sd-daemon(3)).
fn as_errors(text: &str) -> String {
    text.lines().map(|line| format!("<3>{line}\n")).collect()
}

/// The service whose process has `cgroup`, the text of `/proc/self/cgroup` (cgroups(7)).
fn unit_of(cgroup: &str) -> Option<&str> {
    let path = cgroup.lines().find_map(|line| {
        line.strip_prefix("0::")
            .or_else(|| line.strip_prefix("1:name=systemd:"))
    })?;
    // Below it there may be groups of its own making.
    path.rsplit('/').find(|part| part.ends_with(".service"))
}

/// Standard output for the one report; afterwards nothing of it is left in the daemon.
fn take_stdout() -> Result<File, CliError> {
    let failed = |error: io::Error| CliError::internal("cannot use standard output").because(error);
    let report = io::stdout().as_fd().try_clone_to_owned().map_err(failed)?;
    let null = File::options()
        .write(true)
        .open("/dev/null")
        .map_err(failed)?;
    nix::unistd::dup2_stdout(&null).map_err(|error| failed(error.into()))?;
    Ok(File::from(report))
}

fn failed(error: ServeError) -> CliError {
    match error {
        ServeError::Paths(error) => refused(error),
        ServeError::Directory(error) => unusable(error),
        ServeError::Config(message) => CliError::config(message),
        ServeError::Other(error) => CliError::internal("the daemon cannot run").because(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_is_the_innermost_service_of_the_control_group() {
        let check = |cgroup: &str, expected| assert_eq!(unit_of(cgroup), expected, "{cgroup}");
        let slice = "0::/user.slice/user-1000.slice/user@1000.service/app.slice";
        check(&format!("{slice}/mcpd.service\n"), Some("mcpd.service"));
        check(
            &format!("{slice}/mcpd.service/supervisor\n"),
            Some("mcpd.service"),
        );
        let hybrid = "12:pids:/x\n1:name=systemd:/user.slice/mcpd.service\n0::/x.service\n";
        check(hybrid, Some("mcpd.service"));
        check("0::/\n", None);
        check("", None);
    }
}
