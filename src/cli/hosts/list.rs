//! `mcpd hosts`: what each host has, and what of it goes through mcpd.

use std::path::Path;

use serde_json::{Value, json};

use super::files::{Entry, HostFile, ReadFile, Surroundings};
use super::{HOSTS, HostKind, Meaning, short_path};
use crate::cli::Context;
use crate::cli::error::{CliError, Verdict};
use crate::cli::escape::escape;
use crate::cli::output::{Style, Tone};
use crate::cli::table::Table;
use crate::config::arg_secrets::mask_arguments;

/// A file, and what is in it or why that cannot be told.
type Looked = (HostFile, Result<ReadFile, String>);

pub(super) fn cmd_list(context: &Context, json: bool) -> Result<Verdict, CliError> {
    let places = context.places()?;
    let surroundings = Surroundings::of(context, &places)?;
    let all: Vec<&'static HostKind> = HOSTS.iter().collect();
    let looked: Vec<Looked> = surroundings
        .files(&all)
        .into_iter()
        .filter_map(|file| match file.read() {
            Ok(Some(read)) => Some((file, Ok(read))),
            Ok(None) => None,
            Err(why) => Some((file, Err(why))),
        })
        .collect();
    if json {
        let files: Vec<Value> = looked.iter().map(file_json).collect();
        context.output.print_json(&files)?;
    } else {
        let width = context.output.width;
        let text = render(&looked, &surroundings.home, width, context.output.style);
        context.output.print(&text)?;
    }
    let is_broken = looked.iter().any(|(_, read)| read.is_err());
    Ok(match is_broken {
        true => Verdict::Degraded,
        false => Verdict::Done,
    })
}

fn file_json((file, read): &Looked) -> Value {
    let entry = |entry: &Entry| {
        let (state, server, reason) = match &entry.meaning {
            Meaning::Ours(server) => ("mcpd", Some(server), None),
            Meaning::Other(why) => ("other", None, Some(why)),
            Meaning::Program(_) | Meaning::Nothing => ("direct", None, None),
        };
        json!({"name": entry.raw.name(), "state": state, "server": server, "reason": reason})
    };
    let entries = read.as_ref().map(|read| read.entries.iter().map(entry));
    json!({
        "host": file.host.id,
        "scope": file.scope,
        "file": file.path,
        "error": read.as_ref().err(),
        "servers": entries.map(Iterator::collect::<Vec<_>>).unwrap_or_default(),
    })
}

fn render(looked: &[Looked], home: &Path, width: Option<usize>, style: Style) -> String {
    if looked.is_empty() {
        return "no configuration of a host was found\n".to_owned();
    }
    let mut table = Table::new(&["HOST", "SERVER", "FILE", "RUNS"], &[2]);
    for (file, read) in looked {
        let mut head = (escape(&file.label()), escape(&short_path(&file.path, home)));
        let rows = match read {
            Ok(read) if read.entries.is_empty() => {
                vec![(Tone::Faint, "-".to_owned(), "no servers".to_owned())]
            }
            Ok(read) => read.entries.iter().map(row).collect(),
            Err(why) => {
                let first = why.lines().next().unwrap_or_default();
                vec![(Tone::Bad, "?".to_owned(), escape(first))]
            }
        };
        for (tone, name, runs) in rows {
            // What a row has in common with the one above is said once.
            let (host, path) = std::mem::take(&mut head);
            table.row(vec![host, name, path, runs], &[(1, tone), (2, Tone::Faint)]);
        }
    }
    table.render(style, width)
}

fn row(entry: &Entry) -> (Tone, String, String) {
    let name = escape(entry.raw.name());
    match &entry.meaning {
        Meaning::Ours(server) => (Tone::Good, name, format!("mcpd connect {}", escape(server))),
        Meaning::Program(program) => {
            let words: Vec<&str> = std::iter::once(program.command.as_str())
                .chain(program.args.iter().map(String::as_str))
                .collect();
            (Tone::Plain, name, escape(&mask_arguments(&words).join(" ")))
        }
        Meaning::Other(why) => (Tone::Faint, name, escape(why)),
        Meaning::Nothing => (Tone::Faint, name, String::new()),
    }
}
