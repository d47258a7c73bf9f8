//! The calls that ended last, kept for whoever asks.
//!
//! A ring of small records in memory, never on disk. Decides how many are kept and what the ends
//! of calls are called; never sees an argument or a result.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::control::{self, AskCalls, CallRecord};
use crate::protocol::ErrorCode;
use crate::session::{CallEnd, CallOutcome};

use super::clock::{self, render_wall};

/// Records that are kept. Each is below a kilobyte, so all of them are below one megabyte.
const KEPT: usize = 1_000;
/// So much of a tool's name is kept.
const NAME_LIMIT_CHARS: usize = 128;
/// The longest that a reply waits for a call.
const WAIT_LIMIT: Duration = Duration::from_secs(60);

/// The last calls of all servers.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    ring: Mutex<Ring>,
    added: Notify,
}

#[derive(Debug, Default)]
struct Ring {
    /// The number of the next record.
    next: u64,
    kept: VecDeque<Kept>,
}

#[derive(Debug)]
struct Kept {
    number: u64,
    server: Arc<str>,
    /// When it ended, as time since 1970-01-01 UTC.
    ended: Duration,
    end: CallEnd,
}

impl Calls {
    /// A call of the instance `server` has ended just now.
    pub(crate) fn note(&self, server: &Arc<str>, mut end: CallEnd) {
        if let Some(tool) = &end.tool
            && tool.len() > NAME_LIMIT_CHARS
        {
            end.tool = Some(tool.chars().take(NAME_LIMIT_CHARS).collect());
        }
        let mut ring = self.ring();
        let number = ring.next;
        ring.next += 1;
        if ring.kept.len() >= KEPT {
            ring.kept.pop_front();
        }
        ring.kept.push_back(Kept {
            number,
            server: server.clone(),
            ended: clock::wall(),
            end,
        });
        drop(ring);
        self.added.notify_waiters();
    }

    /// The calls that are asked for, as soon as there is one or the wait is over.
    pub(crate) async fn answer(&self, ask: &AskCalls) -> control::Calls {
        let wait = Duration::from_millis(ask.wait_ms).min(WAIT_LIMIT);
        let found = async {
            loop {
                let added = self.added.notified();
                tokio::pin!(added);
                // Enabled before looking, so that nothing falls in between.
                added.as_mut().enable();
                let calls = self.find(ask);
                if !calls.calls.is_empty() {
                    return calls;
                }
                added.await;
            }
        };
        match tokio::time::timeout(wait, found).await {
            Ok(calls) => calls,
            Err(_) => self.find(ask),
        }
    }

    fn find(&self, ask: &AskCalls) -> control::Calls {
        let ring = self.ring();
        let wanted = |kept: &&Kept| {
            kept.number >= ask.from
                && (ask.names.is_empty() || ask.names.iter().any(|name| **name == *kept.server))
        };
        let limit = match ask.limit {
            0 => KEPT,
            limit => usize::try_from(limit).unwrap_or(KEPT),
        };
        let mut calls: Vec<CallRecord> = ring
            .kept
            .iter()
            .rev()
            .filter(wanted)
            .take(limit)
            .map(record)
            .collect();
        calls.reverse();
        control::Calls {
            calls,
            next: ring.next,
        }
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        // What is in it is whole at any time: nothing in between can panic.
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn record(kept: &Kept) -> CallRecord {
    let end = &kept.end;
    let (outcome, code) = match end.outcome {
        CallOutcome::Done => (control::CallOutcome::Ok, None),
        CallOutcome::ToolError => (control::CallOutcome::ToolError, None),
        CallOutcome::Cancelled => (control::CallOutcome::Cancelled, None),
        CallOutcome::Refused(code) => (control::CallOutcome::Error, Some(code)),
        CallOutcome::Failed(code) if code == ErrorCode::TIMED_OUT => {
            (control::CallOutcome::TimedOut, Some(code.0))
        }
        CallOutcome::Failed(code) if code == ErrorCode::SERVER_EXITED => {
            (control::CallOutcome::Exited, Some(code.0))
        }
        CallOutcome::Failed(code) => (control::CallOutcome::Error, Some(code.0)),
    };
    CallRecord {
        number: kept.number,
        at: render_wall(kept.ended.saturating_sub(end.took)),
        client: end.client.as_deref().map(str::to_owned),
        pid: end.pid,
        attachment: end.host.0,
        server: kept.server.to_string(),
        method: end.method.to_string(),
        tool: end.tool.as_deref().map(str::to_owned),
        took_us: u64::try_from(end.took.as_micros()).unwrap_or(u64::MAX),
        outcome,
        code,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::HostKey;

    fn end(tool: &str, outcome: CallOutcome) -> CallEnd {
        CallEnd {
            host: HostKey(7),
            client: Some("claude-code".into()),
            pid: Some(1),
            method: "tools/call".into(),
            tool: Some(tool.into()),
            took: Duration::from_micros(1_500),
            outcome,
        }
    }

    fn note(calls: &Calls, server: &str, tool: &str) {
        calls.note(&server.into(), end(tool, CallOutcome::Done));
    }

    fn names(calls: &control::Calls) -> Vec<&str> {
        let tools = calls.calls.iter().map(|call| call.tool.as_deref());
        tools.map(Option::unwrap_or_default).collect()
    }

    #[tokio::test]
    async fn the_last_are_told_in_order_and_by_server() {
        let calls = Calls::default();
        for (server, tool) in [("a", "1"), ("b", "2"), ("a", "3")] {
            note(&calls, server, tool);
        }
        let all = calls.answer(&AskCalls::default()).await;
        assert_eq!((names(&all), all.next), (vec!["1", "2", "3"], 3));
        let ask = AskCalls {
            names: vec!["a".to_owned()],
            limit: 1,
            ..AskCalls::default()
        };
        assert_eq!(names(&calls.answer(&ask).await), ["3"]);
    }

    #[tokio::test]
    async fn only_so_many_are_kept_and_names_are_cut() {
        let calls = Calls::default();
        for _ in 0..=KEPT {
            note(&calls, "a", &"x".repeat(1_000));
        }
        let all = calls.answer(&AskCalls::default()).await;
        assert_eq!((all.calls.len(), all.calls[0].number), (KEPT, 1));
        assert_eq!(names(&all)[0].len(), NAME_LIMIT_CHARS);
    }

    #[tokio::test(start_paused = true)]
    async fn a_reply_waits_for_the_next_call_or_the_end_of_the_wait() {
        let calls = Arc::new(Calls::default());
        note(&calls, "a", "1");
        let ask = AskCalls {
            from: 1,
            wait_ms: 1_000,
            ..AskCalls::default()
        };
        let nothing = calls.answer(&ask).await;
        assert_eq!((names(&nothing), nothing.next), (vec![], 1));
        let waiting = tokio::spawn({
            let (calls, ask) = (calls.clone(), ask.clone());
            async move { calls.answer(&ask).await }
        });
        tokio::task::yield_now().await;
        note(&calls, "b", "2");
        assert_eq!(names(&waiting.await.unwrap()), ["2"]);
    }

    #[tokio::test]
    async fn ends_have_names() {
        let calls = Calls::default();
        let failed = |code| CallOutcome::Failed(code);
        for (outcome, name, code) in [
            (
                CallOutcome::ToolError,
                control::CallOutcome::ToolError,
                None,
            ),
            (
                CallOutcome::Cancelled,
                control::CallOutcome::Cancelled,
                None,
            ),
            (
                CallOutcome::Refused(-32602),
                control::CallOutcome::Error,
                Some(-32602),
            ),
            (
                failed(ErrorCode::TIMED_OUT),
                control::CallOutcome::TimedOut,
                Some(-31003),
            ),
            (
                failed(ErrorCode::SERVER_EXITED),
                control::CallOutcome::Exited,
                Some(-31001),
            ),
            (
                failed(ErrorCode::OVERLOADED),
                control::CallOutcome::Error,
                Some(-31002),
            ),
        ] {
            calls.note(&"a".into(), end("t", outcome));
            let ask = AskCalls {
                limit: 1,
                ..AskCalls::default()
            };
            let told = calls.answer(&ask).await.calls.remove(0);
            assert_eq!((told.outcome, told.code), (name, code));
        }
    }
}
