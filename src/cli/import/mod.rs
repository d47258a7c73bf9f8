//! `mcpd import`: the servers of other hosts' configuration files, as files of `servers.d`.
//!
//! Reads the hosts' files and writes only new files of its own; a host's file is changed by `hosts
//! use` alone. What a server becomes is decided in [`carry`](mod@carry), which servers there are in [`plan`](mod@plan).

mod carry;
mod plan;
mod show;
mod variables;

use self::carry::{Carried, Origin, carry};
use self::plan::{Candidate, Planned, Source, plan, tag_of};
use self::show::{Fate, Report, render_report};
use super::Context;
use super::error::{CliError, Verdict};
use super::hosts::{Entry, HOSTS, HostFile, HostKind, Meaning, Origins, ReadFile, Surroundings};
use super::places::Places;
use super::server_file::{Existing, ServerFiles, daemon_base};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Secrets go to servers.d/NAME.env, which nobody else can read. The hosts' files stay as they are;
`mcpd hosts use HOST` makes a host use the servers through mcpd.

Example:
  mcpd import --dry-run
  mcpd import
  mcpd import cursor ./some/mcp.json")]
pub(crate) struct Arguments {
    /// Hosts or files to import from, instead of all hosts that are found
    #[arg(value_name = "HOST|FILE")]
    from: Vec<String>,
    /// Show what would be written, and write nothing
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Replace files of servers that are there and differ
    #[arg(long)]
    force: bool,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

pub(crate) fn cmd_import(context: &Context, arguments: Arguments) -> Result<Verdict, CliError> {
    let places = context.places()?;
    let surroundings = Surroundings::of(context, &places)?;
    let files = chosen_files(&surroundings, &arguments.from)?;
    let mut report = Report {
        dry_run: arguments.dry_run,
        ..Report::default()
    };
    let mut candidates = Vec::new();
    for file in files {
        match file.read() {
            Ok(Some(read)) => {
                report.files += 1;
                take_entries(
                    context,
                    &places,
                    &surroundings,
                    &read,
                    &mut candidates,
                    &mut report,
                );
            }
            Ok(None) => {}
            Err(why) => report.unreadable.push((file.path, why)),
        }
    }
    for planned in plan(candidates) {
        settle(context, &places, planned, &arguments, &mut report)?;
    }
    if !arguments.dry_run {
        remember(&places, &report)?;
    }
    if arguments.json || context.json {
        context.output.print_json(&report.to_json())?;
    } else {
        let width = context.output.width;
        let text = render_report(&report, &surroundings.home, width, context.output.style);
        context.output.print(&text)?;
    }
    Ok(report.verdict())
}

/// The files of the hosts and the files that were named, or of every host.
fn chosen_files(surroundings: &Surroundings, from: &[String]) -> Result<Vec<HostFile>, CliError> {
    if from.is_empty() {
        let all: Vec<&'static HostKind> = HOSTS.iter().collect();
        return Ok(surroundings.files(&all));
    }
    let mut files = Vec::new();
    for named in from {
        files.extend(surroundings.chosen(named)?);
    }
    Ok(files)
}

/// Sorts the entries of a file into those that can be carried and the rest.
fn take_entries(
    context: &Context,
    places: &Places,
    surroundings: &Surroundings,
    read: &ReadFile,
    candidates: &mut Vec<Candidate>,
    report: &mut Report,
) {
    for entry in &read.entries {
        let source = source_of(&read.file, entry);
        let program = match &entry.meaning {
            Meaning::Program(program) => program,
            Meaning::Ours(_) => {
                report.through_mcpd += 1;
                continue;
            }
            Meaning::Other(why) => {
                report.left.push((source, why.clone()));
                continue;
            }
            Meaning::Nothing => continue,
        };
        let origin = Origin {
            variables: read.file.host.shape.variables,
            environment: &context.environment,
            home: &surroundings.home,
            uid: places.user.uid,
            project: entry.project.as_deref(),
        };
        match carry(program, &origin) {
            Ok(carried) => candidates.push(Candidate {
                name: entry.raw.name().to_owned(),
                source,
                carried,
            }),
            Err(why) => report.left.push((source, why)),
        }
    }
}

fn source_of(file: &HostFile, entry: &Entry) -> Source {
    Source {
        label: file.label(),
        tag: tag_of(file.host.id, entry.project.as_deref()),
        file: file.path.clone(),
        path: entry.raw.path.clone(),
    }
}

/// Writes a server, or says why not.
fn settle(
    context: &Context,
    places: &Places,
    planned: Planned,
    arguments: &Arguments,
    report: &mut Report,
) -> Result<(), CliError> {
    let Planned {
        name,
        sources,
        carried: Carried { server, secrets },
    } = planned;
    let command = std::iter::once(server.command.clone()).chain(server.args.iter().cloned());
    let command: Vec<String> = command.collect();
    let files = ServerFiles::new(places, &name, server, &secrets, &[comment(&sources)]);
    let (base, defaults) = daemon_base(places, &context.environment);
    if let Err(errors) = files.check(&base, &defaults) {
        let first = errors.first().map(|error| error.message.as_str());
        let why = format!("would be refused: {}", first.unwrap_or("it is invalid"));
        let all = sources.into_iter().map(|source| (source, why.clone()));
        report.left.extend(all);
        return Ok(());
    }
    let fate = match files.existing() {
        Existing::Same => Fate::Same,
        Existing::Other if !arguments.force => Fate::Kept,
        existing => {
            if !arguments.dry_run {
                files.write(places, arguments.force)?;
            }
            match existing {
                Existing::Other => Fate::Replaced,
                _ => Fate::Written,
            }
        }
    };
    report.servers.push(show::Server {
        name,
        command,
        sources,
        secrets: secrets.len(),
        fate,
    });
    Ok(())
}

/// Where a server came from, for whoever reads its file.
fn comment(sources: &[Source]) -> String {
    let mut labels: Vec<&str> = sources.iter().map(|source| source.label.as_str()).collect();
    labels.dedup();
    format!("Imported from {}", labels.join(", ")).replace(char::is_control, " ")
}

/// Keeps which entry became which server.
fn remember(places: &Places, report: &Report) -> Result<(), CliError> {
    let known = report.servers.iter().filter(|one| one.fate != Fate::Kept);
    let mut origins = Origins::load(places);
    let mut is_changed = false;
    for server in known {
        for source in &server.sources {
            origins.remember(&source.file, &source.path, server.name.as_str());
            is_changed = true;
        }
    }
    match is_changed {
        true => origins.save(places),
        false => Ok(()),
    }
}
