//! What an import did, or would do, as text and as JSON.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::plan::Source;
use crate::cli::error::Verdict;
use crate::cli::escape::escape;
use crate::cli::hosts::short_path;
use crate::cli::output::{Style, Tone};
use crate::cli::table::Table;
use crate::config::arg_secrets::mask_arguments;
use crate::config::spec::ServerName;

/// What became of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Written,
    /// A file that said something else is gone.
    Replaced,
    /// A file says the same already.
    Same,
    /// A file says something else and stays.
    Kept,
}

/// One server of the table.
#[derive(Clone, Debug)]
pub(super) struct Server {
    pub(super) name: ServerName,
    pub(super) command: Vec<String>,
    pub(super) sources: Vec<Source>,
    pub(super) secrets: usize,
    pub(super) fate: Fate,
}

/// All that an import has to say.
#[derive(Clone, Debug, Default)]
pub(super) struct Report {
    pub(super) dry_run: bool,
    /// Files that were read.
    pub(super) files: usize,
    pub(super) servers: Vec<Server>,
    /// Entries that were not carried, and why.
    pub(super) left: Vec<(Source, String)>,
    /// Entries that run mcpd already.
    pub(super) through_mcpd: usize,
    pub(super) unreadable: Vec<(PathBuf, String)>,
}

impl Report {
    pub(super) fn verdict(&self) -> Verdict {
        let is_kept = self.servers.iter().any(|one| one.fate == Fate::Kept);
        match is_kept || !self.unreadable.is_empty() {
            true => Verdict::Degraded,
            false => Verdict::Done,
        }
    }

    pub(super) fn to_json(&self) -> Value {
        let source = |source: &Source| json!({"host": source.label, "file": source.file, "entry": source.path});
        let servers = self.servers.iter().map(|server| {
            json!({
                "name": server.name.as_str(),
                "command": shown_words(&server.command),
                "from": server.sources.iter().map(source).collect::<Vec<_>>(),
                "secrets": server.secrets,
                "result": self.word(server.fate),
            })
        });
        let left = self
            .left
            .iter()
            .map(|(from, why)| json!({"from": source(from), "reason": why}));
        let unreadable = self
            .unreadable
            .iter()
            .map(|(file, why)| json!({"file": file, "reason": why}));
        json!({
            "dry_run": self.dry_run,
            "servers": servers.collect::<Vec<_>>(),
            "left": left.collect::<Vec<_>>(),
            "unreadable": unreadable.collect::<Vec<_>>(),
            "through_mcpd": self.through_mcpd,
        })
    }

    fn word(&self, fate: Fate) -> &'static str {
        match (fate, self.dry_run) {
            (Fate::Written, false) => "written",
            (Fate::Written, true) => "would be written",
            (Fate::Replaced, false) => "replaced",
            (Fate::Replaced, true) => "would be replaced",
            (Fate::Same, _) => "there already",
            (Fate::Kept, _) => "another is there",
        }
    }
}

fn shown_words(words: &[String]) -> Vec<String> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    mask_arguments(&words)
}

pub(super) fn render_report(
    report: &Report,
    home: &Path,
    width: Option<usize>,
    style: Style,
) -> String {
    let mut text = String::new();
    if !report.servers.is_empty() {
        text.push_str(&servers_table(report).render(style, width));
    } else if report.left.is_empty() && report.unreadable.is_empty() {
        text.push_str(match (report.files, report.through_mcpd) {
            (0, _) => "no configuration of a host was found\n",
            (_, 0) => "the hosts' configuration has no servers\n",
            (_, _) => "every server that was found goes through mcpd already\n",
        });
    }
    let sections = [
        (!report.left.is_empty(), "not carried:", left_table(report)),
        (
            !report.unreadable.is_empty(),
            "not read:",
            unreadable_table(report, home),
        ),
    ];
    for (is_there, title, table) in sections {
        if is_there {
            let gap = if text.is_empty() { "" } else { "\n" };
            // Writing to a string cannot fail.
            _ = write!(text, "{gap}{title}\n{}", table.render(style, width));
        }
    }
    push_next_steps(&mut text, report);
    text
}

fn servers_table(report: &Report) -> Table<'static> {
    let mut table = Table::new(&["SERVER", "RESULT", "SECRETS", "FROM", "RUNS"], &[2, 3]);
    for server in &report.servers {
        let mut labels: Vec<&str> = Vec::new();
        for source in &server.sources {
            if !labels.contains(&source.label.as_str()) {
                labels.push(&source.label);
            }
        }
        let tone = match server.fate {
            Fate::Written | Fate::Replaced => Tone::Good,
            Fate::Same => Tone::Plain,
            Fate::Kept => Tone::Warning,
        };
        let secrets = match server.secrets {
            0 => "-".to_owned(),
            number => number.to_string(),
        };
        table.row(
            vec![
                server.name.to_string(),
                report.word(server.fate).to_owned(),
                secrets,
                escape(&labels.join(", ")),
                escape(&shown_words(&server.command).join(" ")),
            ],
            &[(1, tone)],
        );
    }
    table
}

fn left_table(report: &Report) -> Table<'static> {
    let mut table = Table::new(&["ENTRY", "FROM", "BECAUSE IT"], &[]);
    for (source, why) in &report.left {
        let name = source.path.last().map_or("", String::as_str);
        let cells = vec![escape(name), escape(&source.label), escape(why)];
        table.row(cells, &[(0, Tone::Warning)]);
    }
    table
}

fn unreadable_table(report: &Report, home: &Path) -> Table<'static> {
    let mut table = Table::new(&["FILE", "BECAUSE"], &[]);
    for (file, why) in &report.unreadable {
        let first = why.lines().next().unwrap_or_default();
        let cells = vec![escape(&short_path(file, home)), escape(first)];
        table.row(cells, &[(0, Tone::Bad)]);
    }
    table
}

fn push_next_steps(text: &mut String, report: &Report) {
    let is_kept = |server: &Server| server.fate == Fate::Kept;
    if report.servers.iter().any(is_kept) {
        text.push_str("\nwhat another file stands in the way of is replaced with --force\n");
    }
    if report.dry_run || report.servers.iter().all(is_kept) {
        return;
    }
    text.push_str("\n`mcpd hosts use HOST` makes a host use them through mcpd\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(label: &str, entry: &str) -> Source {
        Source {
            label: label.to_owned(),
            tag: label.to_owned(),
            file: PathBuf::from("/home/ada/x.json"),
            path: vec!["mcpServers".to_owned(), entry.to_owned()],
        }
    }

    fn report() -> Report {
        let server = |name: &str, words: &[&str], fate, secrets| Server {
            name: ServerName::parse(name).unwrap(),
            command: words.iter().map(|word| (*word).to_owned()).collect(),
            sources: vec![
                source("Claude Code", name),
                source("Cursor (project)", name),
            ],
            secrets,
            fate,
        };
        let github = ["npx", "-y", "@modelcontextprotocol/server-github"];
        let database = [
            "uvx",
            "db",
            "postgres://u:pw@h/d",
            "--a-long-flag",
            "with its value",
        ];
        Report {
            files: 2,
            servers: vec![
                server("github", &github, Fate::Written, 1),
                server("db", &database, Fate::Kept, 0),
            ],
            left: vec![(
                source("Zed", "far"),
                "is not local: https://example.com".to_owned(),
            )],
            unreadable: vec![(
                PathBuf::from("/home/ada/.cursor/mcp.json"),
                "Expected comma on line 2 column 9".to_owned(),
            )],
            ..Report::default()
        }
    }

    #[test]
    fn a_report_in_80_and_120_columns() {
        let mut shown = String::new();
        for width in [80, 120] {
            for color in [false, true] {
                let style = Style { color };
                let text = render_report(&report(), Path::new("/home/ada"), Some(width), style);
                let plain = render_report(
                    &report(),
                    Path::new("/home/ada"),
                    Some(width),
                    Style::default(),
                );
                assert!(
                    plain.lines().all(|line| line.chars().count() <= width),
                    "{plain}"
                );
                shown.push_str(&format!("{width}\n{}\n", text.replace('\u{1b}', "\\e")));
            }
        }
        assert!(!shown.contains("pw@"), "{shown}");
        insta::assert_snapshot!(shown);
    }
}
