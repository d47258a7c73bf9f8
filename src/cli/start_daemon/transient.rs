//! A daemon as a transient unit of the user's systemd, where no unit is installed.
//!
//! Decides what such a unit is made of: what the installed one has, as far as it needs no file. It
//! is gone when the daemon ends. Where systemd does not take it the caller starts the daemon itself.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use crate::cli::places::Places;
use crate::cli::service::UserManager;
use crate::config::environment::Environment;

/// As in the installed unit; there the reasons stand.
const PROPERTIES: [&str; 10] = [
    "NotifyAccess=main",
    "TimeoutStartSec=20",
    "TimeoutStopSec=30",
    "WatchdogSec=30",
    "KillMode=mixed",
    "Delegate=yes",
    "OOMPolicy=continue",
    "TasksMax=4096",
    "LimitNOFILE=65536",
    "WorkingDirectory=/",
];

/// What the daemon is started with.
pub(super) struct Wanted<'w> {
    pub(super) by: &'w str,
    pub(super) path: &'w OsStr,
    pub(super) path_source: &'w str,
    pub(super) environment: &'w Environment,
    pub(super) options: Vec<OsString>,
}

/// Starts the unit and waits until the daemon serves. False if it does not, for whatever reason.
pub(super) fn start(places: &Places, wanted: &Wanted<'_>) -> bool {
    // Sockets elsewhere are not those of the session that systemd knows.
    let is_of_session = places
        .paths
        .runtime_dir()
        .parent()
        .is_some_and(|folder| folder.join("systemd/private").exists());
    let Some(program) = own_file().filter(|_| is_of_session) else {
        return false;
    };
    let unit = format!("mcpd-{}.service", std::process::id());
    let arguments = arguments(&unit, &program, wanted);
    match UserManager::new(places).run_transient(&arguments) {
        Ok(()) => true,
        Err(error) => {
            // Into the log of the daemon that is started instead; nobody reads ours.
            tracing::debug!(%error, "no transient unit");
            false
        }
    }
}

/// Our own file, unless another one stands at its path by now.
fn own_file() -> Option<PathBuf> {
    let named = std::env::current_exe().ok()?;
    let (ours, there) = (Path::new("/proc/self/exe"), std::fs::metadata(&named).ok()?);
    let ours = std::fs::metadata(ours).ok()?;
    let id = |file: &std::fs::Metadata| {
        use std::os::unix::fs::MetadataExt;
        (file.dev(), file.ino())
    };
    (id(&ours) == id(&there)).then_some(named)
}

fn arguments(unit: &str, program: &Path, wanted: &Wanted<'_>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = ["--user", "--quiet", "--collect", "--service-type=notify"]
        .map(OsString::from)
        .to_vec();
    arguments.push(format!("--unit={unit}").into());
    arguments.push("--description=Supervisor for local MCP servers".into());
    for property in PROPERTIES {
        arguments.push(format!("--property={property}").into());
    }
    let path = [("PATH".as_ref(), wanted.path)];
    let others = wanted
        .environment
        .iter()
        .filter(|(name, _)| *name != "PATH");
    for (name, value) in others.chain(path) {
        arguments.push(
            [OsStr::new("--setenv="), name, "=".as_ref(), value]
                .into_iter()
                .collect(),
        );
    }
    arguments.extend(["--".into(), program.into(), "daemon".into()]);
    arguments.extend([
        "--started-by".into(),
        format!("{} ({unit})", wanted.by).into(),
        "--path-source".into(),
        wanted.path_source.into(),
    ]);
    arguments.extend(wanted.options.iter().cloned());
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_daemon_gets_the_base_the_path_and_its_places() {
        let environment: Environment = [("HOME", "/h"), ("PATH", "/host")].into_iter().collect();
        let wanted = Wanted {
            by: "mcpd connect x",
            path: "/bin:/o=p".as_ref(),
            path_source: "login shell",
            environment: &environment,
            options: vec!["--state".into(), "/s t".into()],
        };
        let arguments = arguments("mcpd-7.service", Path::new("/x/mcpd"), &wanted);
        let has = |text: &str| arguments.iter().any(|argument| argument == text);
        assert!(
            has("--setenv=HOME=/h") && has("--setenv=PATH=/bin:/o=p"),
            "{arguments:?}"
        );
        assert!(!has("--setenv=PATH=/host"));
        let command = arguments.iter().skip_while(|argument| *argument != "--");
        let command: Vec<&str> = command.skip(1).filter_map(|word| word.to_str()).collect();
        assert_eq!(
            command,
            [
                "/x/mcpd",
                "daemon",
                "--started-by",
                "mcpd connect x (mcpd-7.service)",
                "--path-source",
                "login shell",
                "--state",
                "/s t",
            ]
        );
    }
}
