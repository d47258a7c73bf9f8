//! Standard output and standard error of a command.
//!
//! Everything that a command prints goes through here, so that a closed pipe ends it silently and
//! colour is decided once. Decides whether to colour; never what is said.

use std::io::{self, IsTerminal, Write};

use super::error::CliError;

/// When to colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ColorChoice {
    /// On a terminal, unless NO_COLOR is set.
    #[default]
    Auto,
    Always,
    Never,
}

/// How a command speaks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    pub(crate) style: Style,
    pub(crate) quiet: bool,
    /// Whether a person's terminal shows the output.
    pub(crate) is_terminal: bool,
    /// The columns of that terminal. What goes elsewhere is not made to fit anything.
    pub(crate) width: Option<usize>,
}

/// Whether text may carry colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Style {
    pub(crate) color: bool,
}

/// The few colours in use, by what they mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    Good,
    Warning,
    Bad,
    Faint,
}

impl Style {
    /// `text` in the colour for `tone`.
    pub(crate) fn paint(self, tone: Tone, text: &str) -> String {
        let code = match tone {
            Tone::Plain => return text.to_owned(),
            Tone::Good => "32",
            Tone::Warning => "33",
            Tone::Bad => "31",
            Tone::Faint => "2",
        };
        if self.color {
            format!("\u{1b}[{code}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }
}

impl Output {
    pub(crate) fn new(choice: ColorChoice, quiet: bool) -> Self {
        // NO_COLOR counts when it is set and not empty (no-color.org).
        let forbidden = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let is_terminal = io::stdout().is_terminal();
        let color = match choice {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto => !forbidden && !dumb && is_terminal,
        };
        Self {
            style: Style { color },
            quiet,
            is_terminal,
            width: is_terminal.then(terminal_width),
        }
    }

    /// Prints `text` as it is.
    pub(crate) fn print(&self, text: &str) -> Result<(), CliError> {
        print_bytes(text.as_bytes())
    }

    /// Prints what somebody else wrote: made harmless for a terminal, untouched for a pipe.
    pub(crate) fn print_foreign(&self, text: &str) -> Result<(), CliError> {
        if self.is_terminal {
            return self.print(&super::escape::escape_lines(text));
        }
        self.print(text)
    }

    /// Prints what only comforts; nothing with `-q`.
    pub(crate) fn note(&self, text: &str) -> Result<(), CliError> {
        if self.quiet {
            return Ok(());
        }
        self.print(text)
    }

    /// Prints `value` as indented JSON.
    pub(crate) fn print_json<T: serde::Serialize>(&self, value: &T) -> Result<(), CliError> {
        let mut text = serde_json::to_vec_pretty(value)
            .map_err(|error| CliError::internal("cannot write JSON").because(error))?;
        text.push(b'\n');
        print_bytes(&text)
    }
}

/// Columns of the terminal on standard output: `COLUMNS` if it says so, else what the terminal
/// says, else 80.
pub(crate) fn terminal_width() -> usize {
    let chosen = std::env::var("COLUMNS").ok();
    let chosen = chosen.and_then(|columns| columns.parse().ok());
    let told = || rustix::termios::tcgetwinsize(io::stdout()).ok();
    chosen
        .or_else(|| told().map(|size| usize::from(size.ws_col)))
        .filter(|columns| *columns > 0)
        .unwrap_or(80)
}

fn print_bytes(bytes: &[u8]) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    Ok(out.flush()?)
}

/// Says something on standard error. Whoever closed it does not want to know.
pub(crate) fn complain(text: &str) {
    drop(io::stderr().lock().write_all(text.as_bytes()));
}
