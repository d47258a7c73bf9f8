//! Whose turn it is on a legacy child that may ask its client something.
//!
//! Such a child does not say on whose behalf it asks, so calls of different hosts go one after the
//! other: then a question can belong to one caller only. Calls of one legacy host may be open
//! together, since their questions go to the same place; of a modern host each request is a caller
//! of its own, since the question becomes the answer to one of them.

use std::collections::BTreeSet;

use crate::ids::HostKey;
use crate::session::requests::RequestKey;

/// Who may be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::session) enum Caller {
    /// A legacy host, for all that it has open.
    Host(HostKey),
    /// One request of a modern host, between its rounds as well.
    Call(RequestKey),
}

/// The turn, while somebody has it.
#[derive(Debug, Default)]
pub(in crate::session) struct Turns {
    caller: Option<Caller>,
    /// The calls that the caller has open on the child. Never empty while there is a caller.
    calls: BTreeSet<RequestKey>,
}

impl Turns {
    pub(in crate::session) const fn caller(&self) -> Option<Caller> {
        self.caller
    }

    /// A call is written: the turn is its caller's.
    pub(in crate::session) fn take(&mut self, caller: Caller, key: RequestKey) {
        self.caller = Some(caller);
        self.calls.insert(key);
    }

    /// A request has ended. The caller whose turn ended with it.
    pub(in crate::session) fn release(&mut self, key: RequestKey) -> Option<Caller> {
        let was_last = self.calls.remove(&key) && self.calls.is_empty();
        if was_last { self.caller.take() } else { None }
    }
}
