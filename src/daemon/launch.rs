//! From a server's specification to the plan of one launch.
//!
//! Reads what the environment takes from files and commands, fills in the names, finds the
//! program. What goes wrong here is a failure to start like any other.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::config::diagnostics::{Code, Diagnostic};
use crate::config::environment::{Base, Environment};
use crate::config::expand::expand_home;
use crate::config::redact::Redactor;
use crate::config::resolve::{Program, ResolvedLaunch, ShownLaunch, resolve};
use crate::config::spec::ServerSpec;
use crate::ids::Generation;
use crate::supervise::{LaunchPlan, SpawnFailure, Stage, inspect};

use super::command_values::read_sources;
use super::eras;
use super::errand::Errand;
use super::named::Named;
use super::shared::Shared;

/// The command that means this very program, whatever PATH says and wherever it was started from.
const OURSELVES: &str = "mcpd";
/// Our own file, even when a newer one stands at its path (proc(5)); the shim that executes it is
/// the same file.
const OUR_FILE: &str = "/proc/self/exe";

/// What is known of a launch afterwards.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    /// The file that is executed.
    pub(crate) program: PathBuf,
    pub(crate) shown: ShownLaunch,
    pub(crate) redactor: Redactor,
    /// Under what the era of such a child is remembered.
    pub(crate) era_key: String,
    environment: Environment,
    cwd: PathBuf,
    umask: u32,
    stop_command: Option<Vec<OsString>>,
}

impl Prepared {
    /// `stop_command` in the child's environment and folder, for at most `limit`; `None` where
    /// there is none.
    pub(crate) fn stop_command(&self, limit: Duration) -> Option<Errand> {
        Some(Errand {
            argv: self.stop_command.clone()?,
            environment: self.environment.clone(),
            cwd: self.cwd.clone(),
            umask: self.umask,
            limit,
        })
    }
}

/// Everything that the launcher needs for `generation` of this instance of `spec`.
///
/// # Errors
/// What cannot be read, filled in or found.
pub(crate) async fn prepare(
    spec: &ServerSpec,
    shared: &Shared,
    named: &Named,
    generation: Generation,
) -> Result<(LaunchPlan, Prepared), SpawnFailure> {
    let sources = read_sources(spec, shared)
        .await
        .map_err(|errors| refused(&errors))?;
    let mut launch = resolve(spec, &shared.base, &sources).map_err(|errors| refused(&errors))?;
    if let Some(directory) = named.owner().directory() {
        directory.clone_into(&mut launch.cwd);
        launch.shown.cwd = directory.display().to_string();
    }
    let (executed, shown) =
        program(&launch).map_err(|failure| conceal(&launch.redactor, failure))?;
    let plan = LaunchPlan {
        program: executed,
        argv: launch.argv,
        env: pairs(&launch.environment),
        cwd: launch.cwd.clone(),
        umask: shared.umask,
        limits: spec.launch.limits.clone(),
        tag: shared.tag(named.file_name(), generation),
    };
    let era_key = eras::key(&plan, &shown, &shared.hash_key);
    let prepared = Prepared {
        program: shown,
        shown: launch.shown,
        redactor: launch.redactor,
        era_key,
        environment: launch.environment,
        cwd: launch.cwd,
        umask: shared.umask,
        stop_command: launch.stop_command,
    };
    Ok((plan, prepared))
}

/// The program that starts `spec`, as far as its text tells: what tells equal launchers. Nothing is
/// read or run for it, so that what only a start finds out is left out.
pub(crate) fn launcher_of(spec: &ServerSpec, base: &Base) -> String {
    let command = spec.launch.command.text();
    let own = spec.launch.path.iter().map(PathBuf::as_path);
    let path = std::env::join_paths(own.chain([]))
        .map(|own| match own.is_empty() {
            true => base.path().to_owned(),
            false => [&own, OsStr::new(":"), base.path()].into_iter().collect(),
        })
        .unwrap_or_default();
    let file = match command {
        OURSELVES => return OURSELVES.to_owned(),
        name if !name.contains('/') => PathBuf::from(name),
        file => spec.folder().join(expand_home(file, &base.home())),
    };
    match inspect::resolve(&file, &path) {
        Ok(program) => program.display().to_string(),
        Err(_) => command.to_owned(),
    }
}

/// `failure` without the values that the server was given: a path that is missing may hold one.
pub(crate) fn conceal(redactor: &Redactor, failure: SpawnFailure) -> SpawnFailure {
    SpawnFailure {
        detail: redactor.text(&failure.detail),
        hint: failure.hint.map(|hint| redactor.text(&hint)),
        ..failure
    }
}

/// Names and values as a launch plan has them.
pub(crate) fn pairs(environment: &Environment) -> Vec<(OsString, OsString)> {
    let owned = |(name, value): (&OsStr, &OsStr)| (name.to_owned(), value.to_owned());
    environment.iter().map(owned).collect()
}

/// The file to execute, and the file to show.
fn program(launch: &ResolvedLaunch) -> Result<(PathBuf, PathBuf), SpawnFailure> {
    let path = launch.environment.get("PATH").unwrap_or_default();
    let file = match &launch.program {
        Program::Name(name) if name == OURSELVES => {
            return Ok(ourselves());
        }
        Program::Name(name) => inspect::resolve(Path::new(name), path)?,
        Program::File(file) => inspect::resolve(file, path)?,
    };
    Ok((file.clone(), file))
}

/// Our own file: under its name, so that process lists show it, unless another stands there now.
fn ourselves() -> (PathBuf, PathBuf) {
    let named = std::env::current_exe().unwrap_or_else(|_| PathBuf::from(OURSELVES));
    let same = std::fs::metadata(&named)
        .and_then(|there| Ok((there, std::fs::metadata(OUR_FILE)?)))
        .is_ok_and(|(there, ours)| there.dev() == ours.dev() && there.ino() == ours.ino());
    match same {
        true => (named.clone(), named),
        false => (PathBuf::from(OUR_FILE), named),
    }
}

/// The first of `errors` as a failure, with its hint; the others are counted.
fn refused(errors: &[Diagnostic]) -> SpawnFailure {
    let Some(first) = errors.first() else {
        return SpawnFailure::new(Stage::Environment, None, "the environment cannot be made");
    };
    // A command that gives no value may do better next time; the rest needs an edit.
    let stage = match first.code {
        Code::CommandValue => Stage::Environment,
        _ => Stage::Configuration,
    };
    let mut detail = first.to_line();
    if errors.len() > 1 {
        detail = format!("{detail} (and {} more)", errors.len() - 1);
    }
    let failure = SpawnFailure::new(stage, None, detail);
    match &first.hint {
        Some(hint) => failure.with_hint(hint.clone()),
        None => failure,
    }
}
