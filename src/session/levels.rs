//! Log levels: what each host wants to hear, and what the child is asked for.
//!
//! MCP `server/utilities/logging`: eight levels, those of syslog. A child has one level for its one
//! client, so it is asked for the most verbose that any host wants, and what it says is filtered
//! for each host. A host that set no level counts as `info`, but only once another has set one: as
//! long as nobody cares, the child's own default rules and everything passes.

use std::collections::BTreeMap;

use super::answers::Fate;
use super::requests::{RequestKey, SentLevel};
use crate::ids::HostKey;

/// How serious a log message is. The more serious one is the greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    Debug,
    Info,
    Notice,
    Warning,
    Error,
    Critical,
    Alert,
    Emergency,
}

impl Level {
    const NAMES: [(Self, &'static str); 8] = [
        (Self::Debug, "debug"),
        (Self::Info, "info"),
        (Self::Notice, "notice"),
        (Self::Warning, "warning"),
        (Self::Error, "error"),
        (Self::Critical, "critical"),
        (Self::Alert, "alert"),
        (Self::Emergency, "emergency"),
    ];

    /// The level of this name, exactly as MCP writes it.
    pub(super) fn parse(name: &str) -> Option<Self> {
        Self::NAMES
            .iter()
            .find(|(_, text)| *text == name)
            .map(|(level, _)| *level)
    }

    pub(super) fn as_str(self) -> &'static str {
        Self::NAMES
            .iter()
            .find(|(level, _)| *level == self)
            .map_or("info", |(_, text)| text)
    }
}

/// What a host that set no level gets once another has set one.
const UNSET: Level = Level::Info;

/// The levels of all hosts of one child.
#[derive(Debug, Default)]
pub(super) struct Levels {
    /// Every host whose `initialize` was answered, with the level that it set.
    hosts: BTreeMap<HostKey, Option<Level>>,
    /// Open requests of modern hosts that want to hear log messages, each with its own level.
    calls: BTreeMap<RequestKey, Level>,
    /// What this child is known to have been set to.
    upstream: Option<Level>,
    /// What was written last for the child to be set to, if nothing says that it was not.
    written: Option<Level>,
    /// Requests to set the level that wait, or that the child has not answered.
    open: usize,
    /// Whether this child ever granted a level; one that has no `setLevel` stays as it is.
    was_granted: bool,
    /// Whether this child refused a request of our own.
    gave_up: bool,
}

impl Levels {
    /// A host that may hear log messages from now on.
    pub(super) fn join(&mut self, host: HostKey) {
        self.hosts.entry(host).or_insert(None);
    }

    pub(super) fn leave(&mut self, host: HostKey) {
        self.hosts.remove(&host);
    }

    /// Sets the level of a host that is here and tells which one it had.
    pub(super) fn set(&mut self, host: HostKey, level: Option<Level>) -> Option<Level> {
        match self.hosts.get_mut(&host) {
            Some(slot) => std::mem::replace(slot, level),
            None => None,
        }
    }

    pub(super) fn of(&self, host: HostKey) -> Option<Level> {
        self.hosts.get(&host).copied().flatten()
    }

    /// The level that the child has to have; `None` while nobody cares.
    pub(super) fn wanted(&self) -> Option<Level> {
        let is_set = self.hosts.values().any(Option::is_some) || !self.calls.is_empty();
        (is_set || self.was_granted).then(|| {
            let levels = self.hosts.values().map(|level| level.unwrap_or(UNSET));
            let levels = levels.chain(self.calls.values().copied());
            levels.min().unwrap_or(UNSET)
        })
    }

    /// A request of a modern host that wants to hear log messages of `level` is about to be
    /// written. The level that the child has to be asked for before it.
    pub(super) fn begin_call(&mut self, key: RequestKey, level: Level) -> Option<Level> {
        self.calls.insert(key, level);
        let wanted = self.wanted()?;
        let is_set = self.upstream == Some(wanted) && self.open == 0;
        (!is_set && !self.gave_up && self.written != Some(wanted)).then_some(wanted)
    }

    /// A request has ended. Whether it was one that wanted to hear log messages.
    pub(super) fn end_call(&mut self, key: RequestKey) -> bool {
        self.calls.remove(&key).is_some()
    }

    /// The level of an open request that wants to hear log messages.
    pub(super) fn of_call(&self, key: RequestKey) -> Option<Level> {
        self.calls.get(&key).copied()
    }

    /// Whether the child is known to have the level that would be wanted if `host` had `level`, so
    /// that it need not be asked.
    pub(super) fn has_already(&self, host: HostKey, level: Level) -> bool {
        let others = self.hosts.iter().filter(|(other, _)| **other != host);
        let others = others.map(|(_, level)| level.unwrap_or(UNSET));
        let wanted = others.chain(self.calls.values().copied()).min();
        self.open == 0 && self.upstream == Some(wanted.map_or(level, |wanted| wanted.min(level)))
    }

    /// The level that a request of our own has to set, if no other is under way.
    pub(super) fn own_request(&self) -> Option<Level> {
        let wanted = self.wanted()?;
        let is_due = self.open == 0 && !self.gave_up && self.upstream != Some(wanted);
        is_due.then_some(wanted)
    }

    /// A request of a host to set the level was opened.
    pub(super) fn note_open(&mut self) {
        self.open += 1;
    }

    /// A request of our own to set the level is written.
    pub(super) fn note_own_written(&mut self, level: Level) {
        self.open += 1;
        self.written = Some(level);
    }

    /// A host's request is about to be written: its level counts from here on. What the child has
    /// to be asked for.
    pub(super) fn note_written(&mut self, host: HostKey, asked: Level) -> SentLevel {
        let previous = self.set(host, Some(asked));
        let level = self.wanted().unwrap_or(asked);
        self.written = Some(level);
        SentLevel { level, previous }
    }

    /// A host's request has ended. Unless it was granted, the host is back at its previous level.
    pub(super) fn note_ended(
        &mut self,
        host: HostKey,
        asked: Level,
        sent: Option<SentLevel>,
        fate: Fate,
    ) {
        self.open = self.open.saturating_sub(1);
        let Some(sent) = sent else { return };
        match fate {
            Fate::Granted => self.note_granted(sent.level),
            Fate::Refused => self.written = None,
            // Nobody knows which level the child has now.
            Fate::Lost => {
                self.upstream = None;
                self.written = None;
            }
        }
        if fate != Fate::Granted && self.of(host) == Some(asked) {
            self.set(host, sent.previous);
        }
    }

    /// Our own request has ended. A child that refuses is not asked again before a host asks.
    pub(super) fn note_own_ended(&mut self, level: Level, fate: Fate) {
        self.open = self.open.saturating_sub(1);
        match fate {
            Fate::Granted => self.note_granted(level),
            Fate::Refused | Fate::Lost => {
                self.gave_up = true;
                self.written = None;
            }
        }
    }

    fn note_granted(&mut self, level: Level) {
        self.upstream = Some(level);
        self.was_granted = true;
        self.gave_up = false;
    }

    /// The child is gone; the next one starts with its own default.
    pub(super) fn forget_child(&mut self) {
        self.upstream = None;
        self.written = None;
        self.was_granted = false;
        self.gave_up = false;
    }

    /// Whether `host` hears a message of `level`; one of an unknown level is heard by all.
    pub(super) fn hears(&self, host: HostKey, level: Option<Level>) -> bool {
        let (Some(level), true) = (level, self.wanted().is_some()) else {
            return true;
        };
        level >= self.of(host).unwrap_or(UNSET)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: HostKey = HostKey(1);
    const B: HostKey = HostKey(2);

    /// The level wanted upstream with these two hosts, and who hears `message`.
    #[track_caller]
    fn check(
        a: Option<&str>,
        b: Option<&str>,
        wanted: Option<&str>,
        message: &str,
        hears: [bool; 2],
    ) {
        let mut levels = Levels::default();
        for (host, level) in [(A, a), (B, b)] {
            levels.join(host);
            levels.set(host, level.and_then(Level::parse));
        }
        assert_eq!(levels.wanted().map(Level::as_str), wanted);
        let level = Level::parse(message);
        assert_eq!(
            [levels.hears(A, level), levels.hears(B, level)],
            hears,
            "{message}"
        );
    }

    #[test]
    fn the_most_verbose_is_asked_for_and_each_hears_its_own() {
        check(
            Some("error"),
            Some("debug"),
            Some("debug"),
            "info",
            [false, true],
        );
        check(
            Some("error"),
            Some("warning"),
            Some("warning"),
            "error",
            [true, true],
        );
        check(
            Some("emergency"),
            Some("alert"),
            Some("alert"),
            "alert",
            [false, true],
        );
    }

    #[test]
    fn who_set_none_counts_as_info_once_another_set_one() {
        check(Some("debug"), None, Some("debug"), "debug", [true, false]);
        check(Some("error"), None, Some("info"), "info", [false, true]);
    }

    #[test]
    fn as_long_as_nobody_set_one_all_passes() {
        check(None, None, None, "debug", [true, true]);
    }

    #[test]
    fn an_unknown_level_is_heard_by_all() {
        check(
            Some("error"),
            Some("error"),
            Some("error"),
            "chatty",
            [true, true],
        );
    }

    #[test]
    fn when_the_last_who_set_one_leaves_the_child_goes_back_to_info() {
        let mut levels = Levels::default();
        levels.join(A);
        levels.join(B);
        ask(&mut levels, A, Level::Debug, Fate::Granted);
        assert!(levels.has_already(B, Level::Error));
        levels.leave(A);
        assert_eq!(levels.own_request(), Some(Level::Info));
        assert!(!levels.hears(B, Some(Level::Debug)));
        levels.forget_child();
        assert_eq!(levels.wanted(), None);
    }

    /// A host's request from its arrival to its end.
    fn ask(levels: &mut Levels, host: HostKey, level: Level, fate: Fate) {
        levels.note_open();
        assert!(!levels.has_already(host, level), "one is under way");
        let sent = levels.note_written(host, level);
        assert_eq!(levels.own_request(), None, "one is under way");
        levels.note_ended(host, level, Some(sent), fate);
    }

    #[test]
    fn a_lost_request_leaves_the_child_in_doubt() {
        let mut levels = Levels::default();
        levels.join(A);
        levels.join(B);
        ask(&mut levels, A, Level::Error, Fate::Granted);
        ask(&mut levels, B, Level::Debug, Fate::Lost);
        assert_eq!(levels.own_request(), Some(Level::Info));
        levels.note_open();
        levels.note_own_ended(Level::Info, Fate::Refused);
        assert_eq!(
            levels.own_request(),
            None,
            "a child that refuses is not asked again"
        );
    }

    #[test]
    fn a_new_child_is_asked_for_what_hosts_have_set() {
        let mut levels = Levels::default();
        levels.join(A);
        ask(&mut levels, A, Level::Error, Fate::Granted);
        levels.forget_child();
        assert_eq!(levels.own_request(), Some(Level::Error));
    }

    #[test]
    fn a_child_without_set_level_is_left_alone() {
        let mut levels = Levels::default();
        levels.join(A);
        ask(&mut levels, A, Level::Error, Fate::Refused);
        assert_eq!(levels.own_request(), None);
        assert!(levels.hears(A, Some(Level::Debug)));
    }
}
