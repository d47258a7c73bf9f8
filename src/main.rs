//! The program: arguments in, exit code out. Everything else is in the library.
//!
//! It is also the one place that knows both the command line and the daemon.

use std::process::ExitCode;

use mcpd::cli::{self, DaemonRequest, ServeError};
use mcpd::daemon::{self, DaemonError, DaemonOptions};
use mcpd::supervise::exec;
use mcpd::supervise::hierarchy::Containment;

fn main() -> ExitCode {
    // The shim that becomes a server comes before everything: it is no command of a person.
    if std::env::args_os()
        .nth(1)
        .is_some_and(|argument| argument == exec::ARGUMENT)
    {
        exec::run();
    }
    ExitCode::from(cli::run(std::env::args_os(), serve))
}

/// Runs the daemon that the command line asks for.
fn serve(request: DaemonRequest, ready: &mut dyn FnMut()) -> Result<(), ServeError> {
    let options = DaemonOptions {
        paths: request.paths,
        environment: request.environment,
        user: request.user,
        started_by: request.started_by,
        path_source: request.path_source,
        idle_exit: request.idle_exit,
        containment: match request.containment {
            cli::Containment::Cgroup => Containment::Cgroup,
            cli::Containment::Subreaper => Containment::Subreaper,
            cli::Containment::Group => Containment::Group,
        },
        warden: request.warden,
    };
    daemon::run(options, ready).map_err(|error| match error {
        DaemonError::Paths(error) => ServeError::Paths(error),
        DaemonError::Directory(error) => ServeError::Directory(error),
        DaemonError::Config(_) => ServeError::Config(error.to_string()),
        other => ServeError::Other(other.into()),
    })
}
