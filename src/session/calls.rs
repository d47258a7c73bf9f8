//! What is told of a call when it has ended.
//!
//! Decides which requests are calls and what their ends are called. Says who called what and how
//! that ended, for the list of the last calls; never what was given or came back.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use memchr::memmem;

use super::action::MuxAction;
use super::admission::Incoming;
use super::from_host::{is_call, name_of, tool_of};
use super::mux::Mux;
use super::requests::OpenRequest;
use crate::ids::HostKey;
use crate::protocol::{ErrorCode, Member, Message, Outcome, json};

/// A call that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallEnd {
    pub host: HostKey,
    /// What the host calls itself, and its process.
    pub client: Option<Arc<str>>,
    pub pid: Option<u32>,
    pub method: Cow<'static, str>,
    /// The tool, where one was called.
    pub tool: Option<Box<str>>,
    /// From the arrival of the request.
    pub took: Duration,
    pub outcome: CallOutcome,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallOutcome {
    /// With a result.
    Done,
    /// With a result by which the tool says that it failed.
    ToolError,
    /// The server answered with an error of this code.
    Refused(i64),
    /// mcpd answered in its stead.
    Failed(ErrorCode),
    /// The host wanted no answer any more, or has left.
    Cancelled,
}

impl CallOutcome {
    /// What the child's answer says.
    pub(super) fn of(message: &Message) -> Self {
        let value = |member| message.value(member).unwrap_or_default();
        match message.outcome() {
            Some(Outcome::Result) if is_tool_error(value(Member::Result)) => Self::ToolError,
            Some(Outcome::Result) => Self::Done,
            Some(Outcome::Error) => {
                let code = json::find_member(value(Member::Error), "code");
                let code =
                    code.and_then(|entry| std::str::from_utf8(entry.value).ok()?.parse().ok());
                Self::Refused(code.unwrap_or(ErrorCode::INTERNAL_ERROR.0))
            }
            None => Self::Refused(ErrorCode::INTERNAL_ERROR.0),
        }
    }
}

/// Whether a result says `"isError": true`. A result may be large, and this is asked of each: only
/// one in which such a member stands somewhere is walked.
fn is_tool_error(result: &[u8]) -> bool {
    memmem::find(result, b"\"isError\"").is_some()
        && json::find_member(result, "isError").is_some_and(|entry| json::is_true(entry.value))
}

impl Mux {
    /// A request was refused before it was in any table.
    pub(super) fn note_call_refused(&mut self, incoming: &Incoming, code: ErrorCode) {
        if !is_call(&incoming.message) {
            return;
        }
        let method = incoming.message.method().unwrap_or_default();
        self.tell_call_end(CallEnd {
            host: incoming.host,
            client: None,
            pid: None,
            method: name_of(method),
            tool: tool_of(&incoming.message),
            took: Duration::ZERO,
            outcome: CallOutcome::Failed(code),
        });
    }

    /// A request has left its table: tells of it if it was a call of a host.
    pub(super) fn note_call_end(&mut self, request: OpenRequest, outcome: CallOutcome) {
        let Some(host) = request.caller().filter(|_| request.is_call) else {
            return;
        };
        self.tell_call_end(CallEnd {
            host,
            client: None,
            pid: None,
            method: request.method,
            tool: request.tool,
            took: self.now.since(request.arrived),
            outcome,
        });
    }

    /// Tells of it with the name of its host.
    fn tell_call_end(&mut self, mut end: CallEnd) {
        let attached = self.hosts.get(&end.host).map(|attachment| &attachment.info);
        let leaving = self.leaving.as_ref().filter(|(key, _)| *key == end.host);
        if let Some(info) = attached.or(leaving.map(|(_, info)| info)) {
            end.client = info.client.clone();
            end.pid = info.pid;
        }
        self.act(MuxAction::CallEnded(Box::new(end)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(answer: &str, expected: CallOutcome) {
        let message = Message::parse(answer.to_owned().into()).expect("a message");
        assert_eq!(CallOutcome::of(&message), expected, "{answer}");
    }

    #[test]
    fn an_answer_tells_how_the_call_ended() {
        check(
            r#"{"jsonrpc":"2.0","id":1,"result":{"content":[]}}"#,
            CallOutcome::Done,
        );
        check(
            r#"{"jsonrpc":"2.0","id":1,"result":{"content":[],"isError" : true}}"#,
            CallOutcome::ToolError,
        );
        check(
            r#"{"jsonrpc":"2.0","id":1,"result":{"isError":false}}"#,
            CallOutcome::Done,
        );
        check(
            r#"{"jsonrpc":"2.0","id":1,"error":{"message":"no","code":-32602}}"#,
            CallOutcome::Refused(-32602),
        );
    }

    #[test]
    fn only_the_results_own_member_counts() {
        check(
            r#"{"jsonrpc":"2.0","id":1,"result":{"structuredContent":{"isError":true}}}"#,
            CallOutcome::Done,
        );
        check(
            r#"{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"\"isError\":true"}]}}"#,
            CallOutcome::Done,
        );
    }
}
