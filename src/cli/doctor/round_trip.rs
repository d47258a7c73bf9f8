//! A call through a daemon of our own to the example server, as a host would make it.
//!
//! Everything it makes lies in one folder under the runtime folder, and is gone afterwards.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use super::{Finding, Grade};
use crate::cli::Context;
use crate::cli::error::CliError;

const CHECK: &str = "round trip";

/// Starts a daemon with the example server, calls a tool, and ends it.
pub(super) fn check(context: &Context) -> Finding {
    match make(context) {
        Ok(trial) => {
            let finding = trial.run();
            trial.end();
            finding
        }
        Err(error) => Finding::new(CHECK, Grade::Error, error.chain()),
    }
}

struct Trial {
    folder: PathBuf,
    program: PathBuf,
}

fn make(context: &Context) -> Result<Trial, CliError> {
    let places = context.places()?;
    places.prepare()?;
    let id = std::process::id();
    let folder = places.paths.runtime_dir().join(format!("doctor-{id}"));
    let failed = |error: std::io::Error| {
        CliError::internal(format!("cannot write in {}", folder.display())).because(error)
    };
    let servers = folder.join("servers.d");
    std::fs::create_dir_all(&servers).map_err(failed)?;
    let text = "command = \"mcpd\"\nargs = [\"example-server\"]\n";
    std::fs::write(servers.join("example.toml"), text).map_err(failed)?;
    // Never the path that it was started by: the file there may be another version by now.
    let program = PathBuf::from("/proc/self/exe");
    let program = std::fs::read_link(&program).map_err(failed)?;
    Ok(Trial { folder, program })
}

impl Trial {
    fn run(&self) -> Finding {
        let call = self.mcpd(&["call", "example", "add", "a=2", "b=3"]);
        match call {
            Ok(output) if output.status.success() => {
                let said = String::from_utf8_lossy(&output.stdout);
                match said.trim() {
                    "5" => Finding::new(
                        CHECK,
                        Grade::Ok,
                        "a daemon of its own was started, and its example server added 2 and 3",
                    ),
                    said => Finding::new(CHECK, Grade::Error, format!("2 and 3 made {said:?}")),
                }
            }
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr);
                let first = said.lines().next().unwrap_or("nothing was said");
                Finding::new(CHECK, Grade::Error, format!("the call failed: {first}"))
                    .remedy("`mcpd call` on a server of yours tells more")
            }
            Err(error) => {
                let program = self.program.display();
                Finding::new(
                    CHECK,
                    Grade::Error,
                    format!("cannot run {program}: {error}"),
                )
                .remedy("install mcpd again")
            }
        }
    }

    fn mcpd(&self, arguments: &[&str]) -> std::io::Result<Output> {
        Command::new(&self.program)
            .arg("--config")
            .arg(&self.folder)
            .arg("--socket")
            .arg(self.folder.join("s"))
            .arg("--state")
            .arg(self.folder.join("state"))
            .args(arguments)
            .stdin(Stdio::null())
            .output()
    }

    fn end(self) {
        // A daemon that never came cannot be ended; one that will not go ends when it is idle.
        drop(self.mcpd(&["shutdown", "--now"]));
        remove(&self.folder);
    }
}

/// Removes the folder that this trial made, and nothing else.
fn remove(folder: &Path) {
    // What stays is small, and the runtime folder goes with the session.
    drop(std::fs::remove_dir_all(folder));
}
