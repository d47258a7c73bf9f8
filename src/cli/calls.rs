//! `mcpd calls [NAME…]`: the last calls, a line each.
//!
//! The daemon keeps them; this asks and aligns. Decides which columns give way in a narrow
//! terminal.

use std::fmt::Write as _;
use std::time::Duration;

use super::Context;
use super::client::{Client, QUICK};
use super::clock;
use super::error::{CliError, Verdict};
use super::escape::escape;
use super::output::{Output, Tone};
use crate::control::{AskCalls, CallOutcome, CallRecord, Calls, Request};
use crate::time::render_wall;

/// Calls that are shown where nothing else is asked for.
const COUNT: u64 = 50;
/// How long one request of `-f` waits for a call.
const WAIT: Duration = Duration::from_secs(30);
/// Narrower than this no column is made.
const MIN_COLUMN: usize = 6;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The daemon remembers the last 1000 calls since its start: never their arguments or results. Times \
are in UTC.

Example:
  mcpd calls
  mcpd calls -f -n 10 calculator")]
pub(crate) struct Arguments {
    /// Servers whose calls to show; without one, all
    #[arg(value_name = "NAME", add = crate::cli::completions::candidates())]
    names: Vec<String>,
    /// Calls to show
    #[arg(short = 'n', long, value_name = "N", default_value_t = COUNT,
          value_parser = clap::value_parser!(u64).range(1..))]
    lines: u64,
    /// Go on and show those that follow
    #[arg(short, long)]
    follow: bool,
    /// Print JSON instead of text: a list, or with -f an object a line
    #[arg(long)]
    json: bool,
}

pub(crate) fn cmd_calls(context: &Context, arguments: Arguments) -> Result<Verdict, CliError> {
    let json = arguments.json || context.json;
    let mut client = context.client()?;
    let mut ask = AskCalls {
        names: arguments.names,
        limit: arguments.lines,
        from: 0,
        wait_ms: 0,
    };
    let first: Calls = client.ask(&Request::Calls(ask.clone()), QUICK)?;
    if arguments.follow {
        ask.limit = 0;
        return follow(context, &mut client, ask, first, json);
    }
    if json {
        context.output.print_json(&first.calls)?;
    } else if first.calls.is_empty() {
        context
            .output
            .note("no call has ended since the daemon started\n")?;
    } else {
        let mut columns = Columns::of(&first.calls, &context.output);
        let text = columns.headings() + &columns.render(&first.calls);
        context.output.print(&text)?;
    }
    Ok(Verdict::Done)
}

/// Prints what is added until the reader leaves or the daemon ends.
fn follow(
    context: &Context,
    client: &mut Client,
    mut ask: AskCalls,
    first: Calls,
    json: bool,
) -> Result<Verdict, CliError> {
    let mut columns = Columns::of(&first.calls, &context.output);
    if !json {
        context.output.print(&columns.headings())?;
    }
    ask.wait_ms = u64::try_from(WAIT.as_millis()).unwrap_or(u64::MAX);
    let mut found = first;
    loop {
        let text = match json {
            true => json_lines(&found.calls)?,
            false => columns.render(&found.calls),
        };
        if !text.is_empty() {
            context.output.print(&text)?;
        }
        ask.from = found.next;
        found = client.ask(&Request::Calls(ask.clone()), WAIT + QUICK)?;
    }
}

fn json_lines(calls: &[CallRecord]) -> Result<String, CliError> {
    let mut text = String::new();
    for call in calls {
        let line = serde_json::to_string(call)
            .map_err(|error| CliError::internal("cannot write JSON").because(error))?;
        text.push_str(&line);
        text.push('\n');
    }
    Ok(text)
}

/// Widths that are kept from line to line, so that what follows stands below what came before.
struct Columns<'a> {
    output: &'a Output,
    today: String,
    /// Host, server, tool.
    widths: [usize; 3],
}

impl<'a> Columns<'a> {
    fn of(calls: &[CallRecord], output: &'a Output) -> Self {
        Self::as_of(calls, output, &render_wall(clock::wall()))
    }

    fn as_of(calls: &[CallRecord], output: &'a Output, now: &str) -> Self {
        let widest = |cell: fn(&CallRecord) -> String| {
            let widths = calls.iter().map(|call| cell(call).chars().count());
            widths.max().unwrap_or(16).max(MIN_COLUMN)
        };
        let today = now.split('T').next().unwrap_or_default().to_owned();
        let is_old = calls.iter().any(|call| !call.at.starts_with(&today));
        let mut widths = [
            widest(host),
            widest(|call| escape(&call.server)),
            widest(tool),
        ];
        // Time, duration, outcome and what stands between the columns.
        let fixed = if is_old { 24 } else { 12 } + 8 + 11 + 5 * 2;
        while let Some(width) = output.width
            && widths.iter().sum::<usize>() + fixed > width
            && let Some(widest) = widths.iter_mut().max()
            && *widest > MIN_COLUMN
        {
            *widest -= 1;
        }
        Self {
            output,
            today: if is_old { String::new() } else { today },
            widths,
        }
    }

    fn headings(&self) -> String {
        let [host, server, tool] = self.widths;
        let time = if self.today.is_empty() { 24 } else { 12 };
        let line = format!(
            "{:time$}  {:host$}  {:server$}  {:tool$}  {:>8}  OUTCOME",
            "TIME", "HOST", "SERVER", "TOOL", "TOOK"
        );
        format!("{}\n", self.output.style.paint(Tone::Faint, &line))
    }

    fn render(&mut self, calls: &[CallRecord]) -> String {
        let mut text = String::new();
        for call in calls {
            let time = match call.at.strip_prefix(&format!("{}T", self.today)) {
                Some(time) => time.trim_end_matches('Z'),
                None => &call.at,
            };
            let [host_width, server_width, tool_width] = self.widths;
            // Writing to a string cannot fail.
            _ = writeln!(
                text,
                "{time}  {:host_width$}  {:server_width$}  {:tool_width$}  {:>8}  {}",
                cut(&host(call), host_width),
                cut(&escape(&call.server), server_width),
                cut(&tool(call), tool_width),
                render_took(call.took_us),
                self.output.style.paint(tone(call), &outcome(call)),
            );
        }
        text
    }
}

/// The host's name and process: `claude-code (4711)`.
fn host(call: &CallRecord) -> String {
    let name = call
        .client
        .as_deref()
        .map_or_else(|| "-".to_owned(), escape);
    match call.pid {
        Some(pid) => format!("{name} ({pid})"),
        None => name,
    }
}

/// What was called: the tool, else the method.
fn tool(call: &CallRecord) -> String {
    escape(call.tool.as_deref().unwrap_or(&call.method))
}

fn outcome(call: &CallRecord) -> String {
    match (call.outcome, call.code) {
        (CallOutcome::Error, Some(code)) => format!("error {code}"),
        (outcome, _) => outcome.as_str().to_owned(),
    }
}

fn tone(call: &CallRecord) -> Tone {
    match call.outcome {
        CallOutcome::Ok => Tone::Plain,
        CallOutcome::ToolError | CallOutcome::Cancelled => Tone::Warning,
        _ => Tone::Bad,
    }
}

/// `text` in at most `width` columns.
pub(super) fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(width.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

/// A length of time with the unit that keeps three digits: `85µs`, `1.52ms`, `340ms`, `2m 3s`.
pub(super) fn render_took(us: u64) -> String {
    match us {
        0..1_000 => format!("{us}µs"),
        1_000..10_000 => format!("{}.{:02}ms", us / 1_000, us % 1_000 / 10),
        10_000..100_000 => format!("{}.{}ms", us / 1_000, us % 1_000 / 100),
        _ => super::status::render_duration(us / 1_000),
    }
}

#[cfg(test)]
mod tests {
    use super::super::output::Style;
    use super::*;

    fn call(tool: &str, took_us: u64, outcome: CallOutcome, code: Option<i64>) -> CallRecord {
        CallRecord {
            number: 1,
            at: "2026-11-30T21:40:07.123Z".to_owned(),
            client: Some("claude-code".to_owned()),
            pid: Some(4711),
            attachment: 3,
            server: "calculator".to_owned(),
            method: "tools/call".to_owned(),
            tool: Some(tool.to_owned()),
            took_us,
            outcome,
            code,
        }
    }

    fn render(width: Option<usize>, now: &str) -> String {
        let output = Output {
            style: Style { color: false },
            quiet: false,
            is_terminal: width.is_some(),
            width,
        };
        let calls = [
            call("add", 85, CallOutcome::Ok, None),
            call(
                "multiply_very_large_numbers",
                1_520,
                CallOutcome::ToolError,
                None,
            ),
            call("div\u{1b}ide", 2_100_000, CallOutcome::Error, Some(-32602)),
            call("slow", 90_000_000, CallOutcome::TimedOut, Some(-31003)),
        ];
        let mut columns = Columns::as_of(&calls, &output, now);
        columns.headings() + &columns.render(&calls)
    }

    #[test]
    fn calls_stand_in_columns() {
        assert_eq!(
            render(None, "2026-11-30T22:00:00.000Z"),
            "\
TIME          HOST                SERVER      TOOL                             TOOK  OUTCOME
21:40:07.123  claude-code (4711)  calculator  add                              85µs  ok
21:40:07.123  claude-code (4711)  calculator  multiply_very_large_numbers    1.52ms  tool error
21:40:07.123  claude-code (4711)  calculator  div\\eide                         2.1s  error -32602
21:40:07.123  claude-code (4711)  calculator  slow                           1m 30s  timed out
"
        );
    }

    #[test]
    fn a_narrow_terminal_cuts_the_widest_and_another_day_is_told() {
        let text = render(Some(80), "2026-12-01T00:00:00.000Z");
        assert!(
            text.lines().all(|line| line.chars().count() <= 81),
            "{text}"
        );
        assert!(text.contains("2026-11-30T21:40:07.123Z  "), "{text}");
        assert!(text.contains('…'), "{text}");
    }
}
