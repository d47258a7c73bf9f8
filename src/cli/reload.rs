//! `mcpd reload`: the configuration read again, and what that changed.

use std::fmt::Write as _;

use super::Context;
use super::client::PATIENT;
use super::error::{CliError, Verdict};
use super::escape::escape;
use super::output::{Style, Tone};
use super::status::render_duration;
use crate::control::{ChangeKind, ReloadChange, ReloadReport, Request};

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  mcpd reload --wait")]
pub(crate) struct Arguments {
    /// Return only when every stop and start that follows has ended
    #[arg(long)]
    wait: bool,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

pub(crate) fn cmd_reload(context: &Context, arguments: Arguments) -> Result<Verdict, CliError> {
    let wait = arguments.wait;
    let report: ReloadReport = context.client()?.ask(&Request::Reload { wait }, PATIENT)?;
    let verdict = judge(&report);
    if arguments.json || context.json {
        context.output.print_json(&report)?;
    } else if verdict == Verdict::Done {
        context
            .output
            .note(&render_report(&report, context.output.style))?;
    } else {
        context
            .output
            .print(&render_report(&report, context.output.style))?;
    }
    Ok(verdict)
}

fn judge(report: &ReloadReport) -> Verdict {
    let invalid = |change| matches!(change, ChangeKind::Kept | ChangeKind::Invalid);
    let bad = |one: &ReloadChange| one.failed || invalid(one.change);
    if report.errors.is_empty() && !report.changes.iter().any(bad) {
        Verdict::Done
    } else {
        Verdict::Degraded
    }
}

/// The difference, one line a server, marked like a diff.
fn render_report(report: &ReloadReport, style: Style) -> String {
    let mut text = if report.from_generation == report.to_generation {
        format!("nothing changed, generation {}\n", report.to_generation)
    } else {
        format!(
            "reloaded generation {} -> {} in {}\n",
            report.from_generation,
            report.to_generation,
            render_duration(report.took_ms)
        )
    };
    let names = report.changes.iter().map(|one| one.server.chars().count());
    let width = names.max().unwrap_or(0);
    for one in &report.changes {
        let (mark, tone, word) = match one.change {
            ChangeKind::Added => ("+", Tone::Good, "added"),
            ChangeKind::Restart => ("~", Tone::Warning, "restart"),
            ChangeKind::Live => ("=", Tone::Plain, "live"),
            ChangeKind::Kept => ("!", Tone::Bad, "kept"),
            ChangeKind::Invalid => ("!", Tone::Bad, "invalid"),
            ChangeKind::Removed => ("-", Tone::Warning, "removed"),
        };
        let server = format!("{:width$}", escape(&one.server));
        let head = style.paint(tone, &format!("  {mark} {server}"));
        let separator = match one.change {
            _ if one.detail.is_empty() => "",
            // `kept on generation 9: why`
            ChangeKind::Kept => " ",
            _ => ": ",
        };
        // Writing to a string cannot fail.
        _ = writeln!(text, "{head}  {word}{separator}{}", escape(&one.detail));
    }
    for error in &report.errors {
        _ = writeln!(
            text,
            "{}",
            style.paint(Tone::Bad, &format!("  ! {}", escape(error)))
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::ReloadChange;

    fn change(server: &str, change: ChangeKind, detail: &str) -> ReloadChange {
        ReloadChange {
            server: server.to_owned(),
            change,
            detail: detail.to_owned(),
            failed: false,
        }
    }

    #[test]
    fn a_reload_reads_like_a_diff() {
        let report = ReloadReport {
            from_generation: 12,
            to_generation: 13,
            took_ms: 180,
            changes: vec![
                change("github", ChangeKind::Added, "starting"),
                change(
                    "pg",
                    ChangeKind::Restart,
                    "args changed (drained 2 requests)",
                ),
                change("slack", ChangeKind::Live, "stable_after 60s -> 120s"),
                change(
                    "jira",
                    ChangeKind::Kept,
                    "on generation 9: jira.toml:4:9 unknown key \"comand\"",
                ),
                change("old", ChangeKind::Removed, "stopping"),
            ],
            errors: vec!["servers.d/ünfug.toml: the stem is no name".to_owned()],
        };
        assert_eq!(judge(&report), Verdict::Degraded);
        insta::assert_snapshot!(render_report(&report, Style::default()), @r#"
        reloaded generation 12 -> 13 in 180ms
          + github  added: starting
          ~ pg      restart: args changed (drained 2 requests)
          = slack   live: stable_after 60s -> 120s
          ! jira    kept on generation 9: jira.toml:4:9 unknown key "comand"
          - old     removed: stopping
          ! servers.d/ünfug.toml: the stem is no name
        "#);
    }

    #[test]
    fn nothing_changed_is_said() {
        let report = ReloadReport {
            from_generation: 3,
            to_generation: 3,
            ..ReloadReport::default()
        };
        assert_eq!(judge(&report), Verdict::Done);
        let text = render_report(&report, Style::default());
        assert_eq!(text, "nothing changed, generation 3\n");
    }
}
