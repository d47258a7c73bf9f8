//! `mcpd doctor`: what stands between this machine and a daemon that serves, and what to do about it.
//!
//! Each check looks and reports; none changes anything, and only the round trip starts something: a
//! daemon of its own in a folder of its own, which goes with it. Decides the exit code from the
//! worst finding.

mod checks;
mod round_trip;

use std::fmt::Write as _;

use serde::Serialize;

use super::Context;
use super::error::{CliError, Verdict};
use super::escape::escape;
use super::output::{Style, Tone};
use super::table::wrap;

/// Where the text of a finding begins.
const INDENT: usize = 14;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes: 0 nothing is wrong, 1 something could be better, 3 something does not work.

Example:
  mcpd doctor")]
pub(crate) struct Arguments {
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Grade {
    Ok,
    /// Worth knowing.
    Note,
    Warning,
    Error,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Finding {
    check: &'static str,
    grade: Grade,
    /// What was seen, one sentence.
    found: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

impl Finding {
    fn new(check: &'static str, grade: Grade, found: impl Into<String>) -> Self {
        Self {
            check,
            grade,
            found: found.into(),
            remedy: None,
        }
    }

    fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }
}

pub(crate) fn cmd_doctor(context: &Context, arguments: Arguments) -> Result<Verdict, CliError> {
    let places = context.places()?;
    let mut findings = checks::all(context, &places);
    findings.push(round_trip::check(context));
    if arguments.json || context.json {
        context.output.print_json(&findings)?;
    } else {
        let text = render(&findings, context.output.style, context.output.width);
        context.output.note(&text)?;
    }
    Ok(judge(&findings))
}

fn judge(findings: &[Finding]) -> Verdict {
    match findings.iter().map(|finding| finding.grade).max() {
        Some(Grade::Error) => Verdict::Failed,
        Some(Grade::Warning) => Verdict::Degraded,
        Some(Grade::Note | Grade::Ok) | None => Verdict::Done,
    }
}

fn render(findings: &[Finding], style: Style, width: Option<usize>) -> String {
    let room = width.map_or(usize::MAX, |width| width.saturating_sub(INDENT).max(20));
    let mut text = String::new();
    for finding in findings {
        let (word, tone) = match finding.grade {
            Grade::Ok => ("ok", Tone::Good),
            Grade::Note => ("note", Tone::Plain),
            Grade::Warning => ("warning", Tone::Warning),
            Grade::Error => ("error", Tone::Bad),
        };
        let found = format!("{}: {}", finding.check, escape(&finding.found));
        let mut lines = wrap(&found, room);
        if let Some(remedy) = &finding.remedy {
            lines.extend(wrap(&format!("-> {}", escape(remedy)), room));
        }
        for (at, line) in lines.iter().enumerate() {
            let head = if at == 0 { word } else { "" };
            let painted = style.paint(tone, &format!("{head:>width$}", width = INDENT - 2));
            // Writing to a string cannot fail.
            _ = writeln!(text, "{painted}  {line}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_told_with_their_remedies() {
        let findings = [
            Finding::new("daemon", Grade::Ok, "runs, pid 7"),
            Finding::new("PATH", Grade::Warning, "/opt/nowhere is no folder").remedy("take it out"),
        ];
        assert_eq!(
            render(&findings, Style::default(), None),
            "          ok  daemon: runs, pid 7\n     warning  PATH: /opt/nowhere is no folder\n              \
             -> take it out\n"
        );
        assert_eq!(judge(&findings), Verdict::Degraded);
        assert_eq!(judge(&findings[..1]), Verdict::Done);
        let narrow = render(&findings, Style::default(), Some(40));
        assert!(
            narrow.lines().all(|line| line.chars().count() <= 40),
            "{narrow}"
        );
    }
}
