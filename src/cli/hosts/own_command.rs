//! Claude Code's own command, by which its file is changed while it runs: it writes that file itself,
//! from what it read when it began.
//!
//! Decides what the command is asked; never whether it is used. It is given no secret: an argument can
//! be read by every user of the machine.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use serde_json::Value;

use crate::cli::clock::Deadline;
use crate::config::environment::Environment;
use crate::config::load::is_program;

/// How long it may take; it starts an interpreter first.
const COMMAND_WAIT: Duration = Duration::from_secs(30);
/// How much of what it says is looked at.
const SAID_LIMIT_BYTES: u64 = 64 << 10;

const PROGRAM: &str = "claude";

/// The command, where it can be used.
#[derive(Debug)]
pub(super) struct OwnCommand {
    search_path: std::ffi::OsString,
}

impl OwnCommand {
    /// The command of the host `id`, if it has one and it is there.
    pub(super) fn of(id: &str, environment: &Environment) -> Option<Self> {
        let search_path = environment.get("PATH")?.to_owned();
        let is_there = id == "claude-code" && is_program(Path::new(PROGRAM), &search_path);
        is_there.then_some(Self { search_path })
    }

    /// Whether an entry is of a kind that the command can change.
    pub(super) fn can_change(path: &[String], value: &Value) -> bool {
        let has_env = value
            .get("env")
            .and_then(Value::as_object)
            .is_some_and(|env| !env.is_empty());
        scope_of(path).is_some() && !has_env
    }

    /// Makes `value` the entry at `path`; without a value there is none afterwards.
    ///
    /// # Errors
    /// What the command said.
    pub(super) fn set(&self, path: &[String], value: Option<&Value>) -> Result<(), String> {
        let (scope, folder) = scope_of(path).ok_or("it has no command for this entry")?;
        let name = path.last().map_or("", String::as_str);
        // It refuses to add what is there. What is not there cannot be removed, and need not.
        let removed = self.run(
            &["mcp", "remove", "--scope", scope, "--", name],
            folder.as_deref(),
        );
        match value {
            None => removed,
            Some(value) => {
                let text = value.to_string();
                let words = ["mcp", "add-json", "--scope", scope, "--", name, &text];
                self.run(&words, folder.as_deref())
            }
        }
    }

    fn run(&self, arguments: &[&str], folder: Option<&Path>) -> Result<(), String> {
        let deadline = Deadline::after(COMMAND_WAIT);
        let mut command = Command::new(PROGRAM);
        command.args(arguments).env("PATH", &self.search_path);
        if let Some(folder) = folder {
            command.current_dir(folder);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let mut child = command
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{PROGRAM}: {error}"))?;
        let (sender, ended) = sync_channel(1);
        let stderr = child.stderr.take();
        std::thread::spawn(move || {
            let mut said = Vec::new();
            if let Some(pipe) = stderr {
                // What was read until an error is what there is.
                drop(pipe.take(SAID_LIMIT_BYTES).read_to_end(&mut said));
            }
            // Whoever waited may have lost its patience.
            drop(sender.send(said));
        });
        let Ok(said) = ended.recv_timeout(deadline.left()) else {
            // It may just have ended by itself.
            drop(child.kill());
            drop(child.wait());
            return Err(format!("{PROGRAM} mcp did not end within {COMMAND_WAIT:?}"));
        };
        let status = child.wait().map_err(|error| error.to_string())?;
        if status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&said);
        let last = said.trim().lines().last().unwrap_or_default();
        Err(format!("{PROGRAM} mcp ended with {status}: {last}"))
    }
}

/// The scope of an entry as the command calls it, and the folder in which it counts.
fn scope_of(path: &[String]) -> Option<(&'static str, Option<PathBuf>)> {
    match path {
        [root, _] if root == "mcpServers" => Some(("user", None)),
        [root, folder, _, _] if root == "projects" && Path::new(folder).is_dir() => {
            Some(("local", Some(PathBuf::from(folder))))
        }
        _ => None,
    }
}
