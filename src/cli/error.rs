//! How a command ends: exit codes, and errors with their kind, cause chain and hints.
//!
//! | code | meaning |
//! | --- | --- |
//! | 0 | done |
//! | 1 | something is degraded, or the call failed |
//! | 2 | usage |
//! | 3 | something failed |
//! | 4 | no daemon |
//! | 78 | configuration |
//! | 130 | ended by Ctrl-C |

use std::error::Error as StdError;
use std::fmt::Write as _;
use std::io;

/// How a command that could do its work ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Done,
    /// Something is not as it should be, or the call itself failed.
    Degraded,
    /// Something has failed.
    Failed,
    /// The answer was given from files: no daemon runs.
    NoDaemon,
    /// The configuration has errors.
    Config,
}

impl Verdict {
    /// The process's exit code.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Degraded => 1,
            Self::Failed => 3,
            Self::NoDaemon => 4,
            Self::Config => 78,
        }
    }
}

/// What kind of thing went wrong; each has one exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The command line asks for something that cannot be meant.
    Usage,
    /// A file or setting of the user is invalid.
    Config,
    /// No daemon answers.
    Unreachable,
    /// The daemon or a server answered with an error.
    Server,
    /// The call was made and failed.
    Call,
    /// The system refused something, or this program is wrong.
    Internal,
    /// The user has ended it.
    Interrupted,
    /// Whoever read our output has left. Silent, and no failure.
    BrokenPipe,
}

impl Kind {
    /// The process's exit code.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::BrokenPipe => 0,
            Self::Call => 1,
            Self::Usage => 2,
            Self::Server | Self::Internal => 3,
            Self::Unreachable => 4,
            Self::Config => 78,
            Self::Interrupted => 130,
        }
    }
}

/// A command could not do its work.
#[derive(Debug)]
pub(crate) struct CliError {
    pub(crate) kind: Kind,
    /// What failed, on what, and what was seen.
    pub(crate) message: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
    /// What else is known, a line each.
    facts: Vec<String>,
    /// What to do about it, one sentence each.
    hints: Vec<String>,
    /// Whether it has been told already, so that only the exit code is left to give.
    told: bool,
}

impl CliError {
    pub(crate) fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            source: None,
            facts: Vec::new(),
            hints: Vec::new(),
            told: false,
        }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Kind::Usage, message)
    }

    pub(crate) fn config(message: impl Into<String>) -> Self {
        Self::new(Kind::Config, message)
    }

    pub(crate) fn unreachable(message: impl Into<String>) -> Self {
        Self::new(Kind::Unreachable, message)
    }

    pub(crate) fn server(message: impl Into<String>) -> Self {
        Self::new(Kind::Server, message)
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(Kind::Internal, message)
    }

    /// Adds the cause; it is printed after the message.
    pub(crate) fn because(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Adds what else is known.
    pub(crate) fn fact(mut self, fact: impl Into<String>) -> Self {
        self.facts.push(fact.into());
        self
    }

    /// Adds what the user can do.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// The same error with nothing but what is wrong.
    pub(crate) fn without_hints(mut self) -> Self {
        self.hints.clear();
        self
    }

    /// The same error, of which nothing is printed any more.
    pub(crate) fn silent(mut self) -> Self {
        self.told = true;
        self
    }

    /// Message and causes in one line, as a host gets to see it.
    pub(crate) fn chain(&self) -> String {
        let mut text = self.message.clone();
        let mut cause: Option<&dyn StdError> = match &self.source {
            Some(source) => Some(source.as_ref()),
            None => None,
        };
        while let Some(error) = cause {
            let said = error.to_string();
            // Some errors already repeat their source in their own text.
            if !text.ends_with(&said) {
                text.push_str(": ");
                text.push_str(&said);
            }
            cause = error.source();
        }
        text
    }

    /// The hints in one line each, for a host's `data`.
    pub(crate) fn hints(&self) -> &[String] {
        &self.hints
    }

    /// What standard error gets to see; empty for a closed pipe.
    pub(crate) fn render(&self) -> String {
        if self.told || self.kind == Kind::BrokenPipe {
            return String::new();
        }
        let mut text = format!("error: {}\n", super::escape::escape_lines(&self.chain()));
        for fact in &self.facts {
            // Writing to a string cannot fail.
            _ = writeln!(text, "{fact}");
        }
        for hint in &self.hints {
            _ = writeln!(text, "hint: {hint}");
        }
        text
    }
}

/// Errors of writing to standard output. They are the only ones that become a [`CliError`] by
/// themselves: a closed pipe must be silent wherever it is met.
impl From<io::Error> for CliError {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::new(Kind::BrokenPipe, "the reader of the output has left");
        }
        Self::internal("cannot write the output").because(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(error: &CliError, code: u8, text: &str) {
        assert_eq!(error.kind.code(), code);
        assert_eq!(error.render(), text);
    }

    #[test]
    fn causes_follow_on_one_line_and_hints_on_their_own() {
        let cause = io::Error::other("disk full");
        let error = CliError::unreachable("no daemon answers")
            .because(cause)
            .hint("start it");
        check(
            &error,
            4,
            "error: no daemon answers: disk full\nhint: start it\n",
        );
    }

    #[test]
    fn a_closed_pipe_is_silent_and_no_failure() {
        let error = CliError::from(io::Error::from(io::ErrorKind::BrokenPipe));
        check(&error, 0, "");
    }

    #[test]
    fn each_kind_has_its_code() {
        for (kind, code) in [
            (Kind::Call, 1),
            (Kind::Usage, 2),
            (Kind::Server, 3),
            (Kind::Internal, 3),
            (Kind::Config, 78),
            (Kind::Interrupted, 130),
        ] {
            assert_eq!(kind.code(), code);
        }
    }
}
