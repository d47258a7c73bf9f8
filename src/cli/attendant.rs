//! Whoever looks after a request of the command line while it is open.

use nix::sys::signalfd::SignalFd;
use serde_json::Value;

use super::error::CliError;

/// What became of a server's question.
#[derive(Debug)]
pub(crate) enum Answer {
    Result(Value),
    /// A code and what is said.
    Error(i64, String),
    /// The user wants the whole call to end.
    Interrupted,
}

/// Whoever looks after a request while it is open.
pub(crate) trait Attendant: std::fmt::Debug {
    /// What `initialize` says that this host can do.
    fn capabilities(&self) -> Value;
    /// The params of a `notifications/progress`.
    fn progress(&mut self, params: &Value);
    /// Answers what the server asks; the user may break it off by one of `signals`.
    fn answer(
        &mut self,
        method: &str,
        params: &Value,
        signals: &SignalFd,
    ) -> Result<Answer, CliError>;
    /// The request has ended.
    fn end(&mut self);
}
