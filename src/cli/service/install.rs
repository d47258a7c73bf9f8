//! `mcpd service install`: the units written, enabled and started, and what a person should know.
//!
//! May be run again: what is as it should be stays untouched. A daemon that runs is ended only when
//! told to, since the calls that are open in it would fail.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::captured_path::{Captured, capture};
use super::systemctl::Properties;
use super::units::{Found, UnitFile, render_program, unit_files};
use super::{SERVICE, SOCKET, Service};
use crate::cli::Context;
use crate::cli::client::{Client, ConnectError, PATIENT, QUICK};
use crate::cli::error::{CliError, Verdict};
use crate::config::environment::home;
use crate::control::{Hello, Outcomes, Request};

/// How long a daemon may take to end.
const END_WAIT: Duration = Duration::from_secs(30);
/// Variables that decide where mcpd looks for its files, and what holds below home without them.
const PLACE_VARIABLES: [(&str, &str); 2] = [
    ("XDG_CONFIG_HOME", ".config"),
    ("XDG_STATE_HOME", ".local/state"),
];

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Restart a daemon that runs, so that a new unit or program takes effect
    #[arg(long)]
    restart: bool,
}

pub(super) fn cmd_install(
    context: &Context,
    service: &Service,
    arguments: Arguments,
) -> Result<Verdict, CliError> {
    let program = own_program()?;
    let word = render_program(&program).ok_or_else(|| {
        CliError::server(format!("{} cannot stand in a unit", program.display()))
            .hint("install mcpd at a path of plain characters")
    })?;
    let version = service.manager.version()?;
    check_manager(context, service)?;
    let units = unit_files(&service.folder, &word, version);
    let found = compare(&units)?;
    let before = service.manager.show(SERVICE)?;
    make_room(service, &before, arguments.restart)?;
    let mut report = String::new();
    if is_in_build_folder(&program) {
        say(
            &mut report,
            &format!(
                "warning: {} lies in a build folder, and goes with it; `cargo install --path .` puts mcpd in a lasting place",
                program.display()
            ),
        );
    }
    keep_path(context, service, &mut report)?;
    // Made before systemd would make them, with its own mode.
    service.places.prepare()?;
    for (unit, found) in units.iter().zip(found) {
        if found != Found::Same {
            unit.write()?;
            say(&mut report, &format!("wrote {}", unit.path.display()));
        }
    }
    bring_up(service, &units, found, &before, arguments, &mut report)?;
    tell_of_lingering(service, &mut report);
    context.output.note(&report)?;
    Ok(Verdict::Done)
}

fn say(report: &mut String, line: &str) {
    // Writing to a string cannot fail.
    _ = writeln!(report, "{line}");
}

/// The file that runs now.
fn own_program() -> Result<PathBuf, CliError> {
    let failed = |error| CliError::internal("cannot tell where this program is").because(error);
    let program = std::env::current_exe().map_err(failed)?;
    match program.is_file() {
        true => Ok(program),
        // The kernel adds " (deleted)" to its name (proc(5)).
        false => Err(CliError::server(format!(
            "{}: this program has been replaced or removed since it started",
            program.display()
        ))
        .hint("run the new one")),
    }
}

/// Whether a path lies where cargo builds, which `cargo clean` empties.
fn is_in_build_folder(program: &Path) -> bool {
    program.ancestors().skip(1).any(|folder| {
        folder.join(".rustc_info.json").exists()
            || folder.file_name().is_some_and(|name| name == "target")
    })
}

/// The service finds its files by the manager's variables, not by those of this terminal.
fn check_manager(context: &Context, service: &Service) -> Result<(), CliError> {
    let theirs = service.manager.environment()?;
    let home = home(&context.environment, &service.places.user);
    for (variable, below_home) in PLACE_VARIABLES {
        let folder = |value: Option<&OsStr>| {
            let named = value.map(PathBuf::from).filter(|path| path.is_absolute());
            named.unwrap_or_else(|| home.join(below_home))
        };
        let ours = folder(context.environment.get(variable));
        let theirs = folder(theirs.get(variable).map(OsStr::new));
        if ours != theirs {
            return Err(CliError::config(format!(
                "{variable} is {} here and {} for the systemd user manager, so the service would look elsewhere",
                ours.display(),
                theirs.display()
            ))
            .hint(format!(
                "set it for both in ~/.config/environment.d, or run this without {variable}"
            )));
        }
    }
    Ok(())
}

fn compare(units: &[UnitFile; 2]) -> Result<[Found; 2], CliError> {
    Ok([units[0].compare()?, units[1].compare()?])
}

/// A daemon that somebody else started holds the socket; the service takes its place.
fn make_room(service: &Service, before: &Properties, restart: bool) -> Result<(), CliError> {
    let mut client = match Client::connect(&service.places) {
        Ok(client) => client,
        Err(ConnectError::NoDaemon(_)) => return Ok(()),
        Err(ConnectError::Other(error)) => return Err(error),
    };
    let hello: Hello = client.ask(&Request::Hello, QUICK)?;
    if before.get("MainPID") == Some(&hello.pid.to_string()) {
        return Ok(());
    }
    if !restart {
        let message = format!(
            "a daemon (pid {}) runs that is not the service's",
            hello.pid
        );
        return Err(CliError::server(message).hint(
            "`mcpd service install --restart` ends it and starts the service; hosts stay connected",
        ));
    }
    let process = client.process();
    let asked: Result<Outcomes, CliError> = client.ask(&Request::Shutdown { now: false }, PATIENT);
    match process {
        Some(process) if !process.wait_for_end(END_WAIT) => {
            asked.map(drop)?;
            let message = format!("the daemon (pid {}) does not end", hello.pid);
            Err(CliError::server(message))
        }
        Some(_) => Ok(()),
        None => asked.map(drop),
    }
}

/// Keeps the PATH of this terminal in `mcpd.toml`.
fn keep_path(context: &Context, service: &Service, report: &mut String) -> Result<(), CliError> {
    let file = service.places.paths.daemon_file();
    let path = context.environment.get("PATH").unwrap_or_default();
    let place = file.display();
    match capture(&file, path)? {
        Captured::Written => say(
            report,
            &format!("kept the PATH of this terminal in {place}"),
        ),
        Captured::Same => {}
        Captured::Kept => say(
            report,
            &format!(
                "{place} has a `path` of its own, which stays; the PATH of this terminal is another"
            ),
        ),
        Captured::Nothing => say(report, "PATH is empty here: the service uses systemd's"),
    }
    Ok(())
}

/// Tells systemd of the units and has them run.
fn bring_up(
    service: &Service,
    units: &[UnitFile; 2],
    found: [Found; 2],
    before: &Properties,
    arguments: Arguments,
    report: &mut String,
) -> Result<(), CliError> {
    let manager = &service.manager;
    let was_active = before
        .get("ActiveState")
        .is_some_and(|state| state == "active");
    manager.tell(&["daemon-reload"])?;
    for unit in units {
        let shown = manager.show(unit.unit)?;
        let read = shown.get("FragmentPath").map_or("", String::as_str);
        if Path::new(read) != unit.path {
            let message = format!(
                "systemd reads {} from {read:?}, not from {}",
                unit.unit,
                unit.path.display()
            );
            return Err(CliError::server(message));
        }
    }
    manager.tell(&["enable", SERVICE, SOCKET])?;
    let changed = found.contains(&Found::Other);
    if was_active && !arguments.restart {
        if changed {
            say(
                report,
                "the service still runs by its old unit; `mcpd service install --restart` restarts it",
            );
        }
    } else {
        if was_active && found[0] == Found::Other {
            // A socket cannot be made anew below its service.
            manager.tell(&["stop", SERVICE, SOCKET])?;
        }
        // Fails where nothing has failed.
        drop(manager.tell(&["reset-failed", SERVICE, SOCKET]));
        let verb = if was_active { "restart" } else { "start" };
        let begun = manager.tell(&["start", SOCKET]);
        begun
            .and_then(|()| manager.tell(&[verb, SERVICE]))
            .map_err(|error| match error.is_absence() {
                true => error.into(),
                false => manager.explain(error),
            })?;
    }
    let mut client = Client::connect(&service.places)?;
    let hello: Hello = client.ask(&Request::Hello, QUICK)?;
    say(
        report,
        &format!("{SERVICE} is enabled and active (pid {})", hello.pid),
    );
    if hello.version != env!("CARGO_PKG_VERSION") {
        say(
            report,
            &format!(
                "it is version {}; `mcpd service install --restart` restarts it",
                hello.version
            ),
        );
    }
    Ok(())
}

fn tell_of_lingering(service: &Service, report: &mut String) {
    match service.manager.lingers() {
        Some(true) => say(report, "it runs from boot on (lingering is enabled)"),
        Some(false) => say(
            report,
            "it ends with your last session; `loginctl enable-linger` has it run from boot on",
        ),
        None => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn build_folders_are_known_by_name_or_by_what_cargo_leaves() {
        let root = tempfile::tempdir().unwrap();
        let other = root.path().join("out");
        std::fs::create_dir_all(other.join("debug")).unwrap();
        std::fs::write(other.join(".rustc_info.json"), "{}").unwrap();
        assert!(is_in_build_folder(Path::new("/x/mcpd/target/release/mcpd")));
        assert!(is_in_build_folder(&other.join("debug/mcpd")));
        assert!(!is_in_build_folder(Path::new("/home/ada/.cargo/bin/mcpd")));
        assert!(!is_in_build_folder(&root.path().join("target")));
    }
}
