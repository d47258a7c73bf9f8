//! `mcpd check [FILE…]`: everything that is wrong with the configuration, at once.
//!
//! Reads files only: it starts nothing, runs no command and asks no daemon. Decides nothing about
//! what is wrong (see [`crate::config`]); exits with 78 if there is any error.

use std::path::{Path, PathBuf};

use super::Context;
use super::error::{CliError, Verdict};
use super::output::{Style, Tone, complain};
use super::places::Places;
use super::server_file::daemon_base;
use crate::config::diagnostics::{Code, Diagnostic, Severity};
use crate::config::environment::Base;
use crate::config::load::{LoadRequest, load, load_daemon_file, load_server_file};
use crate::config::presence::missing_files;
use crate::config::spec::ServerSpec;
use crate::config::watch_set::FolderSight;
use crate::supervise::cgroup::{Controllers, controllers_of_services};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Variables are looked for in the environment of this command; the daemon has its own.

Example:
  mcpd check
  mcpd check calculator
  mcpd check servers.d/calculator.toml")]
pub(crate) struct Arguments {
    /// Files of servers, or their names, to check instead of the whole configuration
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// What a check has found.
#[derive(Debug, Default)]
struct Findings {
    diagnostics: Vec<Diagnostic>,
    /// Servers that were looked at.
    servers: usize,
}

pub(crate) fn cmd_check(context: &Context, arguments: Arguments) -> Result<Verdict, CliError> {
    let places = context.places()?;
    let (base, _) = daemon_base(&places, &context.environment);
    let mut findings = match arguments.files.as_slice() {
        [] => check_all(&places, &base),
        files => check_files(files, &places, &base)?,
    };
    drop_repeated(&mut findings.diagnostics);
    let errors = findings.diagnostics.iter().filter(|one| one.is_error());
    let errors = errors.count();
    if arguments.json || context.json {
        context.output.print_json(&findings.diagnostics)?;
    } else {
        let text = render_findings(&findings.diagnostics, context.output.style);
        context.output.print(&text)?;
        context.output.note(&summary(&findings, errors))?;
    }
    Ok(if errors == 0 {
        Verdict::Done
    } else {
        Verdict::Config
    })
}

/// How many servers, errors and warnings there are.
pub(super) fn count_errors(places: &Places, base: &Base) -> (usize, usize, usize) {
    let mut findings = check_all(places, base);
    drop_repeated(&mut findings.diagnostics);
    let errors = findings.diagnostics.iter().filter(|one| one.is_error());
    let errors = errors.count();
    let warnings = findings.diagnostics.len() - errors;
    (findings.servers, errors, warnings)
}

/// What is wrong with one server's file, or probably not meant.
pub(super) fn check_server(file: &Path, places: &Places, base: &Base) -> Vec<Diagnostic> {
    let found = check_files(&[file.to_owned()], places, base);
    let mut diagnostics = found.map(|found| found.diagnostics).unwrap_or_default();
    // What is wrong with `mcpd.toml` is no news to whoever changes a server.
    diagnostics.retain(|one| one.file == file);
    drop_repeated(&mut diagnostics);
    diagnostics
}

/// Prints the errors of a text, and gives what becomes of the command that met them.
pub(super) fn refuse_errors(context: &Context, errors: &[Diagnostic], message: &str) -> CliError {
    complain(&format!(
        "{}\n",
        render_findings(errors, context.output.style)
    ));
    CliError::config(message)
}

fn check_all(places: &Places, base: &Base) -> Findings {
    let loaded = load(LoadRequest {
        config_dir: places.paths.config_dir(),
        base,
        hash_key: None,
        last_daemon_file: None,
    });
    let mut diagnostics = loaded.errors();
    diagnostics.extend(loaded.warnings);
    let valid = loaded.servers.values().filter_map(|one| one.as_ref().ok());
    let counted = controllers_of_services(base.user().uid);
    for spec in valid.filter(|spec| spec.enabled) {
        diagnostics.extend(missing_files(spec, base));
        diagnostics.extend(vain_limits(spec, counted));
    }
    if loaded.seen.folder == FolderSight::Missing {
        let folder = &loaded.seen.servers_dir;
        let warning = Diagnostic::for_file(
            Severity::Warning,
            Code::File,
            folder,
            "there is no such folder",
        );
        diagnostics.push(warning.with_hint("servers are files NAME.toml in it"));
    }
    Diagnostic::sort(&mut diagnostics);
    Findings {
        diagnostics,
        servers: loaded.servers.len(),
    }
}

/// Checks single files, with the defaults of `mcpd.toml`, which is checked along.
fn check_files(files: &[PathBuf], places: &Places, base: &Base) -> Result<Findings, CliError> {
    let mut findings = Findings::default();
    let daemon_file = match load_daemon_file(places.paths.config_dir(), base) {
        Ok(file) => file.unwrap_or_default(),
        Err(errors) => {
            findings.diagnostics = errors;
            Default::default()
        }
    };
    for file in files {
        if is_daemon_file(file, places) {
            continue;
        }
        findings.servers += 1;
        let named = named_server(file, places);
        let file = std::path::absolute(named.as_deref().unwrap_or(file)).map_err(|error| {
            CliError::usage(format!("cannot use the path {}", file.display())).because(error)
        })?;
        let mut warnings = Vec::new();
        match load_server_file(&file, &daemon_file.defaults, base, &mut warnings) {
            Ok(spec) if spec.enabled => {
                warnings.extend(missing_files(&spec, base));
                let counted = controllers_of_services(base.user().uid);
                warnings.extend(vain_limits(&spec, counted));
            }
            Ok(_) => {}
            Err(errors) => findings.diagnostics.extend(errors),
        }
        findings.diagnostics.append(&mut warnings);
    }
    Diagnostic::sort(&mut findings.diagnostics);
    Ok(findings)
}

/// The limits of `spec` that nobody can hold on this machine. Where the machine could, `status` tells
/// whether the daemon does.
fn vain_limits(spec: &ServerSpec, counted: Controllers) -> Vec<Diagnostic> {
    let limits = &spec.launch.limits;
    let all = [
        (
            "memory",
            limits.memory_bytes.is_some(),
            "memory",
            counted.memory,
        ),
        ("tasks", limits.tasks.is_some(), "pids", counted.pids),
    ];
    let vain = all.into_iter().filter(|(.., is_counted)| !is_counted);
    vain.filter(|(_, is_set, ..)| *is_set)
        .map(|(key, _, controller, _)| {
            let message = format!(
                "`limits.{key}` is not enforced here: your services have no controller \"{controller}\""
            );
            Diagnostic::for_file(Severity::Warning, Code::Value, &spec.file, message)
                .with_key(format!("limits.{key}"))
                .with_hint("it takes a systemd of yours, and cgroup v2 with that controller")
        })
        .collect()
}

/// The file in `servers.d` of a server that was named instead of its file.
fn named_server(named: &Path, places: &Places) -> Option<PathBuf> {
    let bare = named.components().count() == 1 && !named.exists();
    let name = named.to_str().filter(|_| bare)?;
    let stem = name.strip_suffix(".toml").unwrap_or(name);
    Some(places.paths.servers_dir().join(format!("{stem}.toml")))
}

/// A warning about what is an error already says nothing more.
fn drop_repeated(diagnostics: &mut Vec<Diagnostic>) {
    let key = |one: &Diagnostic| (one.file.clone(), one.place, one.key_path.clone());
    let errors = diagnostics.iter().filter(|one| one.is_error());
    let told: Vec<_> = errors.map(key).collect();
    diagnostics.retain(|one| one.is_error() || !told.contains(&key(one)));
}

fn is_daemon_file(file: &Path, places: &Places) -> bool {
    let real = |path: &Path| std::fs::canonicalize(path).ok();
    let own = real(&places.paths.daemon_file());
    own.is_some() && real(file) == own
}

/// One finding after the other, each with its line and hint, apart by a blank line.
pub(super) fn render_findings(diagnostics: &[Diagnostic], style: Style) -> String {
    let each = diagnostics.iter().map(|diagnostic| {
        let text = diagnostic.to_string();
        let tone = match diagnostic.is_error() {
            true => Tone::Bad,
            false => Tone::Warning,
        };
        match text.split_once('\n') {
            Some((first, rest)) => format!("{}\n{rest}\n", style.paint(tone, first)),
            None => format!("{}\n", style.paint(tone, &text)),
        }
    });
    let each: Vec<String> = each.collect();
    each.join("\n")
}

fn summary(findings: &Findings, errors: usize) -> String {
    let count = |number: usize, word: &str| match number {
        1 => format!("1 {word}"),
        number => format!("{number} {word}s"),
    };
    let warnings = findings.diagnostics.len() - errors;
    format!(
        "{}, {}, {}\n",
        count(findings.servers, "server"),
        count(errors, "error"),
        count(warnings, "warning")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::environment::Environment;
    use crate::config::paths::PathFlags;

    /// What is found in a folder of `files`.
    fn check(files: &[(&str, &str)]) -> Findings {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("servers.d")).unwrap();
        for (name, text) in files {
            std::fs::write(root.path().join(name), text).unwrap();
        }
        let flags = PathFlags {
            config: Some(root.path().to_owned()),
            ..PathFlags::default()
        };
        let environment: Environment = [("HOME", root.path())].into_iter().collect();
        let places = Places::find(&flags, &environment).unwrap();
        let base = Base::new(environment, places.user.clone(), None);
        check_all(&places, &base)
    }

    #[test]
    fn all_errors_of_all_files_are_found_at_once() {
        let findings = check(&[
            ("servers.d/a.toml", "comand = \"x\"\n"),
            ("servers.d/b.toml", "command = 1\n"),
            ("servers.d/c.toml", "command = \"sh\"\n"),
        ]);
        let text = render_findings(&findings.diagnostics, Style::default());
        assert_eq!(findings.servers, 3);
        assert!(text.contains("a.toml:1:1: error:"), "{text}");
        assert!(text.contains("b.toml:1:11: error:"), "{text}");
        assert!(!text.contains("c.toml"), "{text}");
    }

    #[test]
    fn a_limit_that_nobody_holds_is_warned_of() {
        let check = |memory, pids, expected: &[&str]| {
            let text =
                "command = \"sh\"\nlimits = { memory = \"1GiB\", tasks = 9, open_files = 99 }\n";
            let root = tempfile::tempdir().unwrap();
            let file = root.path().join("x.toml");
            std::fs::write(&file, text).unwrap();
            let environment: Environment = [("HOME", root.path())].into_iter().collect();
            let places = Places::find(&PathFlags::default(), &environment).unwrap();
            let base = Base::new(environment, places.user, None);
            let spec = load_server_file(&file, &Default::default(), &base, &mut Vec::new());
            let found = vain_limits(&spec.unwrap(), Controllers { memory, pids });
            let keys: Vec<&str> = found.iter().map(|one| &*one.key_path).collect();
            assert_eq!(keys, expected);
        };
        check(true, true, &[]);
        check(false, true, &["limits.memory"]);
        check(false, false, &["limits.memory", "limits.tasks"]);
    }

    #[test]
    fn the_summary_counts() {
        let file = Path::new("a.toml");
        let findings = Findings {
            diagnostics: vec![Diagnostic::file_error(Code::File, file, "gone")],
            servers: 2,
        };
        assert_eq!(summary(&findings, 1), "2 servers, 1 error, 0 warnings\n");
    }
}
