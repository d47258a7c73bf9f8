//! What became of a host's entries, as text and as an exit code.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::{HostFile, short_path};
use crate::cli::Context;
use crate::cli::error::{CliError, Verdict};
use crate::cli::escape::escape;
use crate::cli::output::{Style, Tone, complain};

/// One thing to say about a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// An entry starts mcpd now.
    Used {
        name: String,
        server: String,
    },
    Added {
        name: String,
    },
    Already {
        name: String,
        server: String,
    },
    Undone {
        name: String,
    },
    Left {
        name: String,
        why: String,
    },
    Unreadable(String),
}

/// All that is to be said, in order.
#[derive(Debug, Default)]
pub(super) struct Told {
    files: Vec<(String, PathBuf, Vec<Line>)>,
    notes: Vec<String>,
    warnings: Vec<String>,
    copies: Vec<PathBuf>,
}

impl Told {
    pub(super) fn push(&mut self, file: &HostFile, line: Line) {
        match self
            .files
            .iter_mut()
            .find(|(_, path, _)| *path == file.path)
        {
            Some((_, _, lines)) => lines.push(line),
            None => self
                .files
                .push((file.label(), file.path.clone(), vec![line])),
        }
    }

    pub(super) fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    pub(super) fn warn(&mut self, warning: String) {
        self.warnings.push(warning);
    }

    pub(super) fn copy(&mut self, copy: PathBuf) {
        self.copies.push(copy);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.files.is_empty() && self.warnings.is_empty()
    }

    fn lines(&self) -> impl Iterator<Item = &Line> {
        self.files.iter().flat_map(|(_, _, lines)| lines)
    }

    /// What was left for a reason that stays is no failure.
    fn verdict(&self) -> Verdict {
        let is_bad = self.lines().any(|line| matches!(line, Line::Unreadable(_)));
        match is_bad || !self.warnings.is_empty() {
            true => Verdict::Degraded,
            false => Verdict::Done,
        }
    }
}

/// Prints what became of the entries.
pub(super) fn print(
    context: &Context,
    home: &Path,
    told: &Told,
    dry_run: bool,
) -> Result<Verdict, CliError> {
    context
        .output
        .note(&render(told, home, dry_run, context.output.style))?;
    for warning in &told.warnings {
        complain(&format!("warning: {}\n", escape(warning)));
    }
    Ok(told.verdict())
}

fn render(told: &Told, home: &Path, dry_run: bool, style: Style) -> String {
    let mut text = String::new();
    for (label, path, lines) in &told.files {
        let path = escape(&short_path(path, home));
        // Writing to a string cannot fail.
        _ = writeln!(
            text,
            "{}  {}",
            escape(label),
            style.paint(Tone::Faint, &path)
        );
        for line in lines {
            let (mark, tone, said) = words(line);
            let mark = style.paint(tone, mark);
            _ = writeln!(text, "  {mark} {said}");
        }
    }
    for note in &told.notes {
        _ = writeln!(text, "{}", escape(note));
    }
    for copy in &told.copies {
        let copy = escape(&short_path(copy, home));
        _ = writeln!(
            text,
            "{}",
            style.paint(Tone::Faint, &format!("a copy is in {copy}"))
        );
    }
    let is_change = |line: &Line| matches!(line, Line::Used { .. } | Line::Added { .. });
    if dry_run {
        text.push_str("nothing was changed\n");
    } else if told.lines().any(is_change) {
        text.push_str("a host that runs has to be restarted, or its servers\n");
    }
    text
}

fn words(line: &Line) -> (&'static str, Tone, String) {
    match line {
        Line::Used { name, server } => (
            "~",
            Tone::Good,
            format!("{} -> mcpd connect {}", escape(name), escape(server)),
        ),
        Line::Added { name } => (
            "+",
            Tone::Good,
            format!("{0} -> mcpd connect {0}", escape(name)),
        ),
        Line::Already { name, server } => (
            "=",
            Tone::Plain,
            format!(
                "{} -> mcpd connect {} already",
                escape(name),
                escape(server)
            ),
        ),
        Line::Undone { name } => ("~", Tone::Good, format!("{} as it was", escape(name))),
        Line::Left { name, why } => (
            "-",
            Tone::Warning,
            format!("{} is left: it {}", escape(name), escape(why)),
        ),
        Line::Unreadable(why) => {
            let first = why.lines().next().unwrap_or_default();
            ("!", Tone::Bad, format!("cannot be read: {}", escape(first)))
        }
    }
}
