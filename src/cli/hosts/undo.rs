//! `mcpd hosts undo`: what `hosts use` changed, taken back.
//!
//! Only entries that still are ours go back, to the byte if nobody else changed the file, else beside
//! what others changed in it.

use std::fs;

use super::document;
use super::entry::{members_of, understand};
use super::files::HostFile;
use super::own_command::OwnCommand;
use super::point::{host_named, not_written};
use super::records::{Change, Original, Record, keep_copy};
use super::running::running_pid;
use super::told::{Line, Told, print};
use super::{Meaning, Surroundings, host_ids};
use crate::cli::Context;
use crate::cli::error::{CliError, Verdict};
use crate::cli::places::Places;
use crate::cli::whole_file::{ReplaceError, replace_whole};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  mcpd hosts undo claude-code")]
pub(super) struct UndoArguments {
    /// The host, as `mcpd hosts` shows it, or a configuration file
    #[arg(value_name = "HOST|FILE")]
    host: String,
    /// Entries [default: all that were changed]
    #[arg(value_name = "NAME")]
    names: Vec<String>,
}

pub(super) fn cmd_undo(context: &Context, arguments: UndoArguments) -> Result<Verdict, CliError> {
    let places = context.places()?;
    let around = Surroundings::of(context, &places)?;
    let mut found: Vec<(HostFile, Record)> = Vec::new();
    match host_named(&arguments.host) {
        Some(host) => {
            for record in Record::all(&places, host.id)? {
                found.push((
                    around.recorded_file(host, &record.file, record.format),
                    record,
                ));
            }
        }
        None => {
            let path = std::path::absolute(&arguments.host).unwrap_or_default();
            if let Some(record) = Record::load(&places, &path)? {
                let host = super::find_host(&record.host).unwrap_or(&super::kinds::ANY_HOST);
                found.push((around.recorded_file(host, &path, record.format), record));
            }
        }
    }
    let mut told = Told::default();
    for (file, record) in found {
        undo_file(
            context,
            &places,
            &around,
            &file,
            record,
            &arguments.names,
            &mut told,
        )?;
    }
    if told.is_empty() {
        return Err(
            CliError::usage(format!("nothing of {} is to be undone", arguments.host))
                .hint(format!("hosts are {}", host_ids())),
        );
    }
    print(context, &around.home, &told, false)
}

fn undo_file(
    context: &Context,
    places: &Places,
    around: &Surroundings,
    file: &HostFile,
    mut record: Record,
    names: &[String],
    told: &mut Told,
) -> Result<(), CliError> {
    let is_meant = |change: &Change| {
        names.is_empty() || change.path.last().is_some_and(|name| names.contains(name))
    };
    let changes: Vec<Change> = record
        .entries
        .iter()
        .filter(|one| is_meant(one))
        .cloned()
        .collect();
    if changes.is_empty() {
        return Ok(());
    }
    let text = match file.read() {
        Ok(Some(read)) => read.text,
        Ok(None) => {
            told.warn(format!(
                "{} is gone, and so are its entries",
                file.path.display()
            ));
            record.entries.clear();
            return record.save(places);
        }
        Err(why) => {
            told.push(file, Line::Unreadable(why));
            return Ok(());
        }
    };
    let running = file
        .host
        .rewrites_its_file
        .then(|| running_pid(file.host, &around.home))
        .flatten();
    let own = running.and_then(|_| OwnCommand::of(file.host.id, &context.environment));
    told.copy(keep_copy(places, file, &text)?);
    let is_all = changes.len() == record.entries.len();
    let new = match (&own, whole(&record, &text).filter(|_| is_all)) {
        (Some(own), _) if can_be_told(file, &changes) => {
            told.note(format!(
                "{} runs, so its own command was used",
                file.host.title
            ));
            tell(own, file, &changes, told)?
        }
        (_, Some(original)) => {
            for change in &changes {
                told.push(
                    file,
                    Line::Undone {
                        name: name_of(change),
                    },
                );
            }
            put_back(file, &text, original)?
        }
        (_, None) => {
            let new = undone_text(file, &text, &changes, told);
            write(file, &text, &new)?;
            new
        }
    };
    if let (Some(pid), None) = (running, &own) {
        told.warn(format!(
            "{} runs (pid {pid}) and may write {} again: end it, and look with `mcpd hosts`",
            file.host.title,
            file.path.display()
        ));
    }
    let paths: Vec<Vec<String>> = changes.into_iter().map(|change| change.path).collect();
    record.take(&paths, &new);
    record.save(places)
}

fn name_of(change: &Change) -> String {
    change.path.last().cloned().unwrap_or_default()
}

/// The file as it was, where nobody else has changed it.
fn whole(record: &Record, text: &str) -> Option<Option<String>> {
    if !record.is_untouched(text) {
        return None;
    }
    match record.original.as_ref()? {
        Original::Missing => Some(None),
        Original::Copy(path) => fs::read_to_string(path).ok().map(Some),
    }
}

fn put_back(file: &HostFile, text: &str, original: Option<String>) -> Result<String, CliError> {
    let Some(original) = original else {
        // Nobody can have changed it but within the blink of an eye; the dated copy has it.
        fs::remove_file(&file.path).map_err(|source| {
            let path = file.path.clone();
            not_written(file, ReplaceError::Io { path, source })
        })?;
        return Ok(String::new());
    };
    write(file, text, &original)?;
    Ok(original)
}

fn write(file: &HostFile, old: &str, new: &str) -> Result<(), CliError> {
    if old == new {
        return Ok(());
    }
    replace_whole(&file.path, Some(old.as_bytes()), new.as_bytes())
        .map_err(|error| not_written(file, error))
}

/// The text with each entry as it was, as far as it still is ours.
fn undone_text(file: &HostFile, text: &str, changes: &[Change], told: &mut Told) -> String {
    let mut text = text.to_owned();
    for change in changes.iter().rev() {
        let name = name_of(change);
        match undo_entry(file, &text, change) {
            Ok(new) => {
                text = new;
                told.push(file, Line::Undone { name });
            }
            Err(why) => told.push(
                file,
                Line::Left {
                    name,
                    why: why.to_owned(),
                },
            ),
        }
    }
    text
}

fn undo_entry(file: &HostFile, text: &str, change: &Change) -> Result<String, &'static str> {
    let (format, path) = (file.format, &change.path);
    let Some(now) = document::entry_text(text, format, path) else {
        return Err("is gone");
    };
    let value = document::entry_value(&now, format, path).unwrap_or_default();
    if !matches!(understand(&value, &file.host.shape), Meaning::Ours(_)) {
        return Err("was changed to start something else");
    }
    let new = match &change.before {
        None => document::remove_entry(text, format, path),
        Some(before) if now == change.after => document::replace_entry(text, format, path, before),
        // Somebody else has added to it, which stays.
        Some(before) => {
            let before = document::entry_value(before, format, path).unwrap_or_default();
            document::set_members(text, format, path, &members_of(&before))
        }
    };
    new.ok_or("cannot be changed")
}

fn can_be_told(file: &HostFile, changes: &[Change]) -> bool {
    changes.iter().all(|change| {
        let before = change.before.as_deref();
        let value = before.and_then(|text| document::entry_value(text, file.format, &change.path));
        OwnCommand::can_change(&change.path, &value.unwrap_or_default())
    })
}

fn tell(
    own: &OwnCommand,
    file: &HostFile,
    changes: &[Change],
    told: &mut Told,
) -> Result<String, CliError> {
    for change in changes {
        let before = change.before.as_deref();
        let value = before.and_then(|text| document::entry_value(text, file.format, &change.path));
        own.set(&change.path, value.as_ref()).map_err(|why| {
            CliError::server(format!("{} could not be told", file.host.title))
                .because(why)
                .hint("end it and run this again")
        })?;
        told.push(
            file,
            Line::Undone {
                name: name_of(change),
            },
        );
    }
    let now = file.read().ok().flatten();
    Ok(now.map(|now| now.text).unwrap_or_default())
}
