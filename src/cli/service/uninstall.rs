//! `mcpd service uninstall`: the service stopped and its units gone.
//!
//! Removes what `install` wrote and nothing else: drop-ins, `mcpd.toml` and all state stay.

use std::fmt::Write as _;
use std::fs;

use super::units::{Found, unit_files};
use super::{SERVICE, SOCKET, Service};
use crate::cli::Context;
use crate::cli::error::{CliError, Verdict};

pub(super) fn cmd_uninstall(context: &Context, service: &Service) -> Result<Verdict, CliError> {
    // Whatever program they run, they are told by what they describe.
    let units = unit_files(&service.folder, "", 0);
    let mut ours = Vec::new();
    for unit in &units {
        if unit.compare()? != Found::Missing {
            ours.push(unit);
        }
    }
    if ours.is_empty() {
        let folder = service.folder.display();
        context
            .output
            .note(&format!("no unit of mcpd is in {folder}\n"))?;
        return Ok(Verdict::Done);
    }
    let manager = &service.manager;
    manager.version()?;
    let names: Vec<&str> = ours.iter().map(|unit| unit.unit).collect();
    for verb in ["stop", "disable"] {
        manager.tell(&[&[verb], names.as_slice()].concat())?;
    }
    let mut report = String::new();
    for unit in ours {
        let place = unit.path.display();
        fs::remove_file(&unit.path)
            .map_err(|error| CliError::internal(format!("cannot remove {place}")).because(error))?;
        // Writing to a string cannot fail.
        _ = writeln!(report, "removed {place}");
    }
    manager.tell(&["daemon-reload"])?;
    for unit in [SERVICE, SOCKET] {
        // Fails where there is nothing left to forget.
        drop(manager.tell(&["reset-failed", unit]));
        let drop_ins = service.folder.join(format!("{unit}.d"));
        if drop_ins.exists() {
            _ = writeln!(report, "your drop-ins stay: {}", drop_ins.display());
        }
    }
    context.output.note(&report)?;
    Ok(Verdict::Done)
}
