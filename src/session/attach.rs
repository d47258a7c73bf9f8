//! One host on one server: how far its handshake is, and what waits for it.
//!
//! Decides nothing beyond its own state. Its requests are in the table of requests, its level and
//! its subscriptions with those of all hosts.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::action::HostFrame;
use super::batch::BatchAnswer;
use super::journaled::{Ends, Journal};
use super::outbox::Outbox;
use super::requests::BatchKey;
use super::settings::HostInfo;
use crate::protocol::{ModernVersion, RequestId, Revision, Version};
use crate::time::Moment;

/// How far the handshake of a host is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Session {
    /// The host sent no `initialize`. Left when it does.
    #[default]
    New,
    /// Its first `initialize` waits for the child. Requests that follow it wait behind it. Left to
    /// `Open` with the answer, back to `New` with an error.
    Asked,
    /// It was told this version. Another `initialize` may change the version, nothing ends it.
    Open(Version),
}

/// What is still to come from a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Input {
    /// Lines may come. Left when the host ends its input.
    #[default]
    Open,
    /// Nothing more comes; answers that are due are waited for until this moment. Left when the
    /// last of them is out, or at that moment.
    Ended(Moment),
    /// The shell was told to close it.
    Closing,
}

/// One host.
#[derive(Debug, Default)]
pub(super) struct Attachment {
    pub(super) info: HostInfo,
    pub(super) session: Session,
    pub(super) outbox: Outbox,
    pub(super) batches: BTreeMap<BatchKey, BatchAnswer>,
    pub(super) input: Input,
    /// What its last `initialize` said that it can do, a whole JSON value; empty before one.
    pub(super) capabilities: Bytes,
    /// What its last `initialize` said that it is, a whole JSON value; empty before one.
    pub(super) client_info: Bytes,
    /// Whether it has said that its session is ready; before that it is asked nothing.
    pub(super) is_ready: bool,
    /// The modern version that its last modern request named; it may have a session beside that.
    pub(super) modern: Option<ModernVersion>,
    pub(super) journal: Option<Box<Journal>>,
}

impl Attachment {
    pub(super) fn new(info: HostInfo) -> Self {
        Self {
            info,
            ..Self::default()
        }
    }

    /// Takes the note of a request, to be closed with its answer.
    pub(super) fn take_noted(&mut self, id: &RequestId) -> Ends {
        let journal = self.journal.as_deref_mut();
        journal
            .and_then(|journal| journal.take(id))
            .into_iter()
            .collect()
    }

    /// Has what was polled for it leave, journal first.
    pub(super) fn hand_out(&mut self, (polled, ends): (HostFrame, Ends)) -> HostFrame {
        if let Some(journal) = &mut self.journal {
            journal.begin_frame(polled.frame.len(), ends);
        }
        polled
    }

    /// The version that the host was told.
    pub(super) const fn version(&self) -> Option<Version> {
        match self.session {
            Session::Open(version) => Some(version),
            Session::New | Session::Asked => None,
        }
    }

    /// What the host speaks, as far as it has shown it.
    pub(super) fn revision(&self) -> Option<Revision> {
        let of_session = self.version().map(Revision::Legacy);
        of_session.or(self.modern.map(Revision::Modern))
    }

    /// The version by whose rules an error without an id is written: of a host without a session
    /// that speaks the modern era, the newest legacy one, which has the same rule.
    pub(super) const fn version_of_errors(&self) -> Option<Version> {
        match (self.session, self.modern) {
            (Session::New | Session::Asked, Some(_)) => Some(Version::NEWEST),
            _ => self.version(),
        }
    }

    /// Whether anything that is not an answer may be sent to it.
    pub(super) const fn is_open(&self) -> bool {
        matches!(self.session, Session::Open(_))
    }
}
