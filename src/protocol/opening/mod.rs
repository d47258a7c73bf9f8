//! The first exchange with a child, from its start until requests may be written to it.
//!
//! Decides which era and version is spoken with the child and whether its answer opens a session.
//! It finds this out once a generation and no other file guesses. Never serves a host, and never
//! bounds the whole exchange in time: `start_timeout` does, from outside.
//!
//! A child may be legacy or modern, and nothing but its answers tells. So `server/discover` goes
//! first; a child that does not know it says so, or says nothing, or ends. Silence may also be a
//! launcher that has not read anything yet, so nobody is killed for it: `initialize` follows on the
//! same child, and the answers may come in either order.
//!
//! Sources: MCP 2025-11-25 `basic/lifecycle`, Initialization; 2026-07-28 `basic/transports/stdio`,
//! Backward Compatibility, and `server/discover`.

mod answers;
mod identity;
#[cfg(test)]
mod tests;

use std::time::Duration;

use super::frame::Frame;
use super::json;
use super::message::{Fault, FaultReason, Message};
use super::version::{Era, ModernVersion, Version};
use super::write;
use crate::time::Moment;

use answers::Discovered;
pub use identity::{ChildIdentity, Refusal};

/// Upstream ids that the first exchange takes for itself: 1 up to this one. Requests of hosts
/// begin behind it, so that a late answer to the exchange is nobody's.
pub const OPENING_IDS: u64 = 4;

/// How long an answer to `server/discover` is waited for before `initialize` follows it.
pub const DISCOVER_PATIENCE: Duration = Duration::from_secs(5);

/// What a legacy child is told of its client where hosts answer what it asks: all that any of them
/// may be able to do. Roots are those of the host that is asked, so nothing is said of changes.
const INTERACTIVE: &[u8] =
    br#"{"elicitation":{"form":{},"url":{}},"sampling":{"tools":{}},"roots":{}}"#;

const INITIALIZE_ID: u64 = 1;
const DISCOVER_ID: u64 = 2;
/// The second `server/discover`, to a child that turned out modern after it had refused something.
const DISCOVER_AGAIN_ID: u64 = 3;

/// Which eras may be spoken with a server: the key `protocol`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EraChoice {
    /// What the child turns out to speak.
    #[default]
    Auto,
    /// `initialize` and nothing else.
    Legacy,
    /// `server/discover` and nothing else.
    Modern,
}

/// How the exchange with one generation begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// What the configuration says.
    pub choice: EraChoice,
    /// What a child of exactly this configuration was found to speak before.
    pub remembered: Option<Era>,
    /// The child before this one ended while it was asked what it speaks.
    pub after_death: bool,
    /// Whether a legacy child is told that its client answers what it asks.
    pub is_interactive: bool,
}

impl Plan {
    fn discovers(self) -> bool {
        match self.choice {
            EraChoice::Legacy => false,
            EraChoice::Modern => true,
            EraChoice::Auto => !self.after_death && self.remembered != Some(Era::Legacy),
        }
    }
}

/// What is to be remembered of children of this configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lesson {
    /// They speak this.
    Era(Era),
    /// What was remembered is not true any more.
    Forget,
}

/// The exchange with one generation of a child.
#[derive(Debug)]
pub struct Opening {
    phase: Phase,
    plan: Plan,
    client_version: String,
    frames: Vec<Frame>,
    result: Option<Result<ChildIdentity, Refusal>>,
    lesson: Option<Lesson>,
    /// Whether the child has answered anything of the exchange.
    heard: bool,
    /// Whether `server/discover` was written and not answered.
    owes_discovery: bool,
    /// Whether the era was taken from silence, which proves nothing.
    is_guess: bool,
}

/// How far the exchange has come.
#[derive(Debug)]
enum Phase {
    /// Entered at the start. `server/discover` is out alone; left with its answer, or at that
    /// moment for `Both`. Without a moment there is nothing to fall back to.
    Discovering { until: Option<Moment> },
    /// `initialize` was sent after a silence, and `server/discover` is still out. Left with the
    /// answer to either.
    Both,
    /// The child is modern by a late answer, and `initialize` is still out: if that succeeds, a
    /// session is there already. Left with its answer, or at that moment.
    Late {
        identity: Box<ChildIdentity>,
        until: Moment,
    },
    /// `initialize` was refused, and `server/discover` is still out: it may be modern. Left with
    /// the answer, or at that moment; without one the refusal says that there will be an answer.
    Refused {
        refusal: Refusal,
        until: Option<Moment>,
    },
    /// `initialize` is out alone. Left with its answer.
    Initializing,
    /// Something was refused in words that only a modern child has, and `server/discover` was sent
    /// again. Left with the answer.
    Again { refusal: Refusal },
    /// The outcome is known.
    Done,
}

impl Opening {
    /// Begins the exchange with a child that has just started. `client_version` is mcpd's own.
    pub fn new(client_version: &str, plan: Plan, now: Moment) -> Self {
        let mut opening = Self {
            phase: Phase::Initializing,
            plan,
            client_version: client_version.to_owned(),
            frames: Vec::new(),
            result: None,
            lesson: None,
            heard: false,
            owes_discovery: false,
            is_guess: false,
        };
        if plan.discovers() {
            let until = (plan.choice == EraChoice::Auto).then(|| now + DISCOVER_PATIENCE);
            opening.discover(DISCOVER_ID);
            opening.phase = Phase::Discovering { until };
        } else {
            opening.initialize();
        }
        opening
    }

    /// Takes what the child sent. False if it is not part of the exchange: a `ping`, a
    /// notification, an answer to something else.
    pub fn handle_message(&mut self, message: &Message, now: Moment) -> bool {
        if self.is_discovery(|id, is_only_one| answers::answers(message, id, is_only_one)) {
            self.discovered(answers::read_discover(message), now);
        } else if self.awaits_initialize()
            && answers::answers(message, INITIALIZE_ID, !self.owes_discovery)
        {
            self.initialized(answers::read_initialize(message), now);
        } else {
            return false;
        }
        true
    }

    /// Takes a line of the child that is no message. False if it says nothing about the exchange:
    /// noise is skipped here as everywhere.
    pub fn handle_fault(&mut self, fault: &Fault, now: Moment) -> bool {
        if self.is_done() {
            return false;
        }
        if fault.reason == FaultReason::ContentLength {
            self.settle(Err(answers::unreadable(fault, "initialize")));
        } else if self.is_discovery(|id, is_only_one| answers::spoils(fault, id, is_only_one)) {
            let seen = answers::unreadable(fault, "server/discover").text;
            self.discovered(Discovered::NoAnswer(seen), now);
        } else if self.awaits_initialize()
            && answers::spoils(fault, INITIALIZE_ID, !self.owes_discovery)
        {
            self.initialized(Err(answers::unreadable(fault, "initialize")), now);
        } else {
            return false;
        }
        true
    }

    /// Tells the exchange that its deadline may have passed.
    pub fn handle_timeout(&mut self, now: Moment) {
        if self.poll_timeout().is_none_or(|due| now < due) {
            return;
        }
        match std::mem::replace(&mut self.phase, Phase::Done) {
            Phase::Discovering { .. } => {
                self.is_guess = true;
                self.initialize();
                self.phase = Phase::Both;
            }
            Phase::Late { identity, .. } => self.settle(Ok(*identity)),
            Phase::Refused { refusal, .. } => self.settle(Err(refusal)),
            // None of these has a deadline.
            phase => self.phase = phase,
        }
    }

    /// When [`Opening::handle_timeout`] is due.
    pub fn poll_timeout(&self) -> Option<Moment> {
        match &self.phase {
            Phase::Discovering { until } | Phase::Refused { until, .. } => *until,
            Phase::Late { until, .. } => Some(*until),
            Phase::Both | Phase::Initializing | Phase::Again { .. } | Phase::Done => None,
        }
    }

    /// The next line for the child. Everything here goes out before anything else does.
    pub fn poll_frame(&mut self) -> Option<Frame> {
        (!self.frames.is_empty()).then(|| self.frames.remove(0))
    }

    /// The outcome, once. After a session was opened, a last frame is due first.
    pub fn poll_outcome(&mut self) -> Option<Result<ChildIdentity, Refusal>> {
        self.result.take()
    }

    /// What is to be remembered, once. It may still come after the outcome.
    pub fn poll_lesson(&mut self) -> Option<Lesson> {
        self.lesson.take()
    }

    /// Whether the outcome is known.
    pub fn is_done(&self) -> bool {
        matches!(self.phase, Phase::Done)
    }

    /// Whether the child, should it end now, may have ended because it was asked what it speaks: it
    /// was, it has answered nothing, and a fresh one can be spoken to in another way.
    pub fn may_die_of_discovery(&self) -> bool {
        self.plan.choice == EraChoice::Auto && self.owes_discovery && !self.heard && !self.is_done()
    }

    /// Whether `is_it` says so of a `server/discover` of ours that is not answered.
    fn is_discovery(&self, is_it: impl Fn(u64, bool) -> bool) -> bool {
        let id = match self.phase {
            Phase::Again { .. } => DISCOVER_AGAIN_ID,
            _ => DISCOVER_ID,
        };
        let is_only_one = !self.awaits_initialize() && !self.is_done();
        self.owes_discovery && is_it(id, is_only_one)
    }

    fn awaits_initialize(&self) -> bool {
        matches!(
            self.phase,
            Phase::Both | Phase::Late { .. } | Phase::Initializing
        )
    }

    /// `server/discover` was answered.
    fn discovered(&mut self, answer: Discovered, now: Moment) {
        self.heard = true;
        self.owes_discovery = false;
        let phase = std::mem::replace(&mut self.phase, Phase::Done);
        match (phase, answer) {
            // A session is there already; the next child will be asked in the modern way.
            (Phase::Done, Discovered::Modern(_)) => self.learn(Lesson::Era(Era::Modern)),
            (Phase::Done, _) => {}
            (Phase::Both, Discovered::Modern(identity)) => {
                let until = now + DISCOVER_PATIENCE;
                self.phase = Phase::Late { identity, until };
            }
            (_, Discovered::Modern(identity)) => self.settle(Ok(*identity)),
            (Phase::Both, answer) => {
                self.is_guess = false;
                self.phase = match answer {
                    Discovered::Again => self.again(contradiction()),
                    _ => Phase::Initializing,
                };
            }
            (Phase::Refused { refusal, .. } | Phase::Again { refusal }, _) => {
                self.settle(Err(refusal));
            }
            (_, Discovered::Again) => self.phase = self.again(contradiction()),
            (_, Discovered::Unknown(refusal)) => self.settle(Err(refusal)),
            (_, answer) if self.plan.choice == EraChoice::Modern => {
                self.settle(Err(not_modern(&answer)));
            }
            (_, Discovered::LegacyOnly | Discovered::NoAnswer(_)) => {
                self.initialize();
                self.phase = Phase::Initializing;
            }
        }
    }

    /// `initialize` was answered.
    fn initialized(&mut self, answer: Result<ChildIdentity, Refusal>, now: Moment) {
        self.heard = true;
        let phase = std::mem::replace(&mut self.phase, Phase::Done);
        match (phase, answer) {
            (Phase::Late { identity, .. }, Err(_)) => self.settle(Ok(*identity)),
            (Phase::Late { .. }, Ok(identity)) => {
                self.settle(Ok(identity));
                self.learn(Lesson::Era(Era::Modern));
            }
            (_, Ok(identity)) => self.settle(Ok(identity)),
            (Phase::Both, Err(refusal)) => {
                let until = (!refusal.names_modern()).then(|| now + DISCOVER_PATIENCE);
                self.phase = Phase::Refused { refusal, until };
            }
            (_, Err(refusal))
                if self.plan.choice == EraChoice::Auto
                    && !self.plan.discovers()
                    && refusal.names_modern() =>
            {
                self.phase = self.again(refusal);
            }
            (_, Err(refusal)) => self.settle(Err(refusal)),
        }
    }

    fn settle(&mut self, result: Result<ChildIdentity, Refusal>) {
        self.phase = Phase::Done;
        let lesson = match &result {
            Ok(identity) => Lesson::Era(identity.version.era()),
            Err(_) => Lesson::Forget,
        };
        if matches!(lesson, Lesson::Era(Era::Legacy)) {
            self.frames
                .push(write::notification("notifications/initialized", None));
        }
        // Silence proves nothing about a legacy child; an answer to `server/discover` is no silence.
        if !(self.is_guess && lesson == Lesson::Era(Era::Legacy)) {
            self.learn(lesson);
        }
        self.result = Some(result);
    }

    fn learn(&mut self, lesson: Lesson) {
        let known = self.plan.remembered.map(Lesson::Era);
        let is_news = match lesson {
            Lesson::Forget => known.is_some(),
            Lesson::Era(_) => known != Some(lesson),
        };
        self.lesson = (self.plan.choice == EraChoice::Auto && is_news).then_some(lesson);
    }

    /// Asks again in the modern way; `refusal` is what is said if that comes to nothing.
    fn again(&mut self, refusal: Refusal) -> Phase {
        self.discover(DISCOVER_AGAIN_ID);
        Phase::Again { refusal }
    }

    fn discover(&mut self, id: u64) {
        self.owes_discovery = true;
        let mut params = b"{\"_meta\":".to_vec();
        write_own_meta(&mut params, &self.client_version);
        params.push(b'}');
        self.frames
            .push(write::request(id, "server/discover", Some(&params)));
    }

    /// No client capability is declared that nobody has: it would change what the child does, and a
    /// child must not ask what nobody answers.
    fn initialize(&mut self) {
        let mut params = b"{\"protocolVersion\":".to_vec();
        json::write_text(&mut params, Version::NEWEST.as_str());
        params.extend_from_slice(b",\"capabilities\":");
        params.extend_from_slice(match self.plan.is_interactive {
            true => INTERACTIVE,
            false => b"{}",
        });
        params.extend_from_slice(b",\"clientInfo\":");
        write_own_info(&mut params, &self.client_version);
        params.push(b'}');
        self.frames
            .push(write::request(INITIALIZE_ID, "initialize", Some(&params)));
    }
}

/// The `_meta` of a modern request that mcpd makes for itself: it can do nothing for a server.
pub fn write_own_meta(out: &mut Vec<u8>, client_version: &str) {
    out.extend_from_slice(b"{\"io.modelcontextprotocol/protocolVersion\":");
    json::write_text(out, ModernVersion::NEWEST.as_str());
    out.extend_from_slice(b",\"io.modelcontextprotocol/clientInfo\":");
    write_own_info(out, client_version);
    out.extend_from_slice(b",\"io.modelcontextprotocol/clientCapabilities\":{}}");
}

fn write_own_info(out: &mut Vec<u8>, client_version: &str) {
    out.extend_from_slice(b"{\"name\":\"mcpd\",\"version\":");
    json::write_text(out, client_version);
    out.push(b'}');
}

impl Refusal {
    fn names_modern(&self) -> bool {
        self.error.as_deref().is_some_and(answers::names_modern)
    }
}

fn contradiction() -> Refusal {
    Refusal {
        text: format!(
            "the server names MCP {} among its versions and refuses it",
            ModernVersion::NEWEST
        ),
        error: None,
    }
}

fn not_modern(answer: &Discovered) -> Refusal {
    let seen = match answer {
        Discovered::NoAnswer(seen) => seen.as_str(),
        _ => "it names legacy versions only",
    };
    Refusal {
        text: format!(
            "`protocol = \"modern\"` is set, but `server/discover` was not answered by a modern \
             server: {seen}"
        ),
        error: None,
    }
}
