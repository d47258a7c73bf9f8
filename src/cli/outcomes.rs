//! What became of each server that a command named, as text and as an exit code.

use std::fmt::Write as _;

use super::Context;
use super::error::{CliError, Verdict};
use super::escape::escape;
use super::output::{Style, Tone};
use super::status::render_duration;
use crate::control::{Outcome, OutcomeKind, Outcomes, StopStep};

/// How the outcomes are printed.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Format {
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// Prints `outcomes` and judges them. What went as asked is only a comfort.
pub(crate) fn report(
    context: &Context,
    format: Format,
    outcomes: &Outcomes,
) -> Result<Verdict, CliError> {
    if format.json || context.json {
        context.output.print_json(outcomes)?;
        return Ok(judge(outcomes));
    }
    for outcome in &outcomes.outcomes {
        let line = render_outcome(outcome, context.output.style);
        if is_fine(outcome) {
            context.output.note(&line)?;
        } else {
            context.output.print(&line)?;
        }
    }
    Ok(judge(outcomes))
}

fn is_fine(outcome: &Outcome) -> bool {
    matches!(outcome.outcome, OutcomeKind::Done | OutcomeKind::Unchanged)
}

fn judge(outcomes: &Outcomes) -> Verdict {
    if outcomes.outcomes.iter().all(is_fine) {
        Verdict::Done
    } else {
        Verdict::Failed
    }
}

/// One line: the server, its state, and what it took.
pub(crate) fn render_outcome(outcome: &Outcome, style: Style) -> String {
    let (tone, word) = match (outcome.outcome, outcome.state) {
        (OutcomeKind::UnknownServer, _) => (Tone::Bad, "unknown server"),
        (OutcomeKind::Failed, None) => (Tone::Bad, "failed"),
        (OutcomeKind::Failed, Some(state)) => (Tone::Bad, state.as_str()),
        (OutcomeKind::Unchanged, None) => (Tone::Plain, "unchanged"),
        (OutcomeKind::Unchanged, Some(state)) => (Tone::Plain, state.as_str()),
        (OutcomeKind::Done, None) => (Tone::Good, "done"),
        (OutcomeKind::Done, Some(state)) => (Tone::Good, state.as_str()),
    };
    let mut line = format!("{}: {}", escape(&outcome.server), style.paint(tone, word));
    if outcome.outcome == OutcomeKind::Unchanged {
        line.push_str(" already");
    }
    if let Some(step) = outcome.ended_by {
        // Writing to a string cannot fail.
        _ = write!(
            line,
            " ({}, after {})",
            needed(step),
            render_duration(outcome.took_ms)
        );
    }
    if let Some(message) = &outcome.message {
        _ = write!(line, ": {}", escape(message));
    }
    line.push('\n');
    line
}

/// What it took to end a child.
fn needed(step: StopStep) -> &'static str {
    match step {
        StopStep::Exited => "had ended by itself",
        StopStep::StopStdin => "left when its input was closed",
        StopStep::StopSigterm => "needed SIGTERM",
        StopStep::StopSigkill => "needed SIGKILL",
        StopStep::Unknown => "ended",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::State;

    fn check(outcome: OutcomeKind, state: Option<State>, step: Option<StopStep>, expected: &str) {
        let outcome = Outcome {
            server: "web".to_owned(),
            outcome,
            state,
            substate: None,
            message: None,
            ended_by: step,
            took_ms: 5200,
        };
        assert_eq!(render_outcome(&outcome, Style::default()), expected);
    }

    #[test]
    fn a_line_tells_the_truth_about_what_was_needed() {
        let stopped = Some(State::Stopped);
        check(
            OutcomeKind::Done,
            stopped,
            Some(StopStep::StopStdin),
            "web: stopped (left when its input was closed, after 5.2s)\n",
        );
        check(
            OutcomeKind::Done,
            stopped,
            Some(StopStep::StopSigkill),
            "web: stopped (needed SIGKILL, after 5.2s)\n",
        );
        check(
            OutcomeKind::Unchanged,
            stopped,
            None,
            "web: stopped already\n",
        );
        check(
            OutcomeKind::UnknownServer,
            None,
            None,
            "web: unknown server\n",
        );
    }

    #[test]
    fn one_failure_fails_the_command() {
        let outcome = |kind| Outcome {
            server: "a".to_owned(),
            outcome: kind,
            state: None,
            substate: None,
            message: Some("no such\u{1b}[2J".to_owned()),
            ended_by: None,
            took_ms: 0,
        };
        let outcomes = Outcomes {
            outcomes: vec![outcome(OutcomeKind::Done), outcome(OutcomeKind::Failed)],
        };
        assert_eq!(judge(&outcomes), Verdict::Failed);
        let line = render_outcome(&outcomes.outcomes[1], Style::default());
        assert_eq!(line, "a: failed: no such\\e[2J\n");
    }
}
