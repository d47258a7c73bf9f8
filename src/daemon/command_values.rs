//! The outputs of `{ command = … }` values: run for a spawn, kept for a while.
//!
//! A password manager asks its user; it is not asked again at every restart of a server. Nothing
//! that a command printed is ever shown.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::config::diagnostics::{Code, Diagnostic};
use crate::config::resolve::{Sources, command_line};
use crate::config::sources::{Credentials, cut_newline, read_file_sources};
use crate::config::spec::{CommandValue, EnvValue, ServerSpec};
use crate::time::Moment;

use super::chain;
use super::clock;
use super::errand::{Errand, ErrandError};
use super::shared::Shared;

/// How long a command may take: time enough for a password to be typed would hold up a start.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);
/// How long its output counts.
const KEPT_FOR: Duration = Duration::from_secs(600);
/// The most values that are remembered.
const KEPT_LIMIT: usize = 1024;

/// What commands printed, by command.
#[derive(Default)]
pub(crate) struct CommandValues {
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
    fn remembered(&self, command: &CommandValue, now: Moment) -> Option<Vec<u8>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|_, value| now.since(value.since) < KEPT_FOR);
        kept.get(command).map(|value| value.output.clone())
    }

    fn remember(&self, command: &CommandValue, output: Vec<u8>, since: Moment) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < KEPT_LIMIT {
            kept.insert(command.clone(), Kept { since, output });
        }
    }
}

/// Everything that the environment of `spec` takes from files and commands. Files are read on a
/// thread of their own, since a home directory may be on a network.
///
/// # Errors
/// Whatever cannot be read or run; no message holds a value.
pub(crate) async fn read_sources(
    spec: &ServerSpec,
    shared: &Shared,
) -> Result<Sources, Vec<Diagnostic>> {
    let (copy, uid) = (spec.clone(), shared.base.user().uid);
    let folder = shared.base.credentials_dir().map(Path::to_owned);
    let read = tokio::task::spawn_blocking(move || {
        let credentials = Credentials::of_daemon(folder.as_deref());
        read_file_sources(&copy, uid, credentials, None)
    });
    let broken_off = |_| {
        let message = "reading the files of its values was broken off";
        vec![Diagnostic::file_error(Code::File, &spec.file, message)]
    };
    let mut sources = read.await.map_err(broken_off)??.sources;
    let mut errors = Vec::new();
    for (name, value) in &spec.launch.env {
        let EnvValue::Command(command) = value else {
            continue;
        };
        match value_of(command, shared).await {
            Ok(output) => drop(sources.values.insert(name.clone(), output)),
            Err(error) => {
                let key = format!("env.{name}");
                let message = format!("the command of `{key}` gave no value: {}", chain(&error));
                let error = Diagnostic::file_error(Code::CommandValue, &spec.file, message);
                errors.push(error.with_key(key));
            }
        }
    }
    if errors.is_empty() {
        Ok(sources)
    } else {
        Err(errors)
    }
}

async fn value_of(command: &CommandValue, shared: &Shared) -> Result<Vec<u8>, ErrandError> {
    if let Some(output) = shared.command_values.remembered(command, clock::now()) {
        return Ok(output);
    }
    let home = shared.base.home();
    let errand = Errand {
        argv: command_line(&command.argv, Path::new(&*command.folder), &home),
        environment: shared.base.command_value_environment(),
        cwd: home,
        umask: shared.umask,
        limit: COMMAND_TIMEOUT,
    };
    let output = cut_newline(errand.run(&*shared.launcher).await?);
    if output.is_empty() {
        return Err(ErrandError::Nothing);
    }
    shared
        .command_values
        .remember(command, output.clone(), clock::now());
    Ok(output)
}
