//! The watch over the configuration's files, as a part of the registry.
//!
//! It waits for hints of the kernel and for the times that `config::lookout` names, and hands what
//! was read to `config::doubts`. It decides nothing: when to look and what to believe is theirs.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::config::doubts::{Doubts, Standing};
use crate::config::load::Loaded;
use crate::config::lookout::{Coverage, Hint, Lookout};
use crate::config::watch::{Armed, Heard, Watcher, look_at};
use crate::config::watch_set::{Seen, WatchSet};

use super::super::clock;
use super::super::descriptors::watched;

/// What is watched, and what was seen of late.
#[derive(Debug, Default)]
pub(super) struct Watching {
    /// None while the user has no instance left.
    watcher: Option<(Watcher, AsyncFd<OwnedFd>)>,
    lookout: Lookout,
    doubts: Doubts,
    coverage: Coverage,
    warning: Option<String>,
}

impl Watching {
    /// Waits for something to happen and returns whether it is time to look at the files. May be
    /// dropped at any time: what has happened is not lost.
    pub(super) async fn wait(&mut self) -> bool {
        let deadline = self.lookout.poll_timeout();
        let heard = tokio::select! {
            heard = hear(self.watcher.as_ref()) => heard,
            () = clock::sleep_until(deadline) => Ok(Vec::new()),
        };
        self.handle(heard);
        self.lookout.handle_timeout(clock::now())
    }

    /// Whether something has happened that nobody has looked at yet.
    pub(super) fn has_news(&mut self) -> bool {
        if let Some((watcher, _)) = &self.watcher {
            self.handle(watcher.read().map(|heard| heard.hints));
        }
        self.lookout.has_hints()
    }

    fn handle(&mut self, heard: io::Result<Vec<Hint>>) {
        let now = clock::now();
        match heard {
            Ok(hints) => {
                for hint in hints {
                    self.lookout.handle_hint(hint, now);
                }
            }
            Err(error) => {
                tracing::warn!(%error, "the watch over the configuration has ended");
                self.watcher = None;
                self.lookout.handle_hint(Hint::Changed, now);
            }
        }
    }

    /// Somebody asked for a look, which sees all that has happened until now.
    pub(super) fn begin_look(&mut self) {
        self.has_news();
        self.lookout.begin_look();
    }

    /// The files were read as somebody asked for it: they are meant as they are.
    pub(super) fn believe(&mut self, loaded: &mut Loaded, applied: Standing<'_>, set: &WatchSet) {
        self.doubts.believe(loaded, applied);
        self.looked(set);
    }

    /// The files were read on a hint: takes from the reading what is doubtful.
    pub(super) fn weigh(&mut self, loaded: &mut Loaded, applied: Standing<'_>, set: &WatchSet) {
        let before = self.doubts.warning().map(str::to_owned);
        self.doubts.weigh(loaded, applied, clock::now());
        if let Some(warning) = self
            .doubts
            .warning()
            .filter(|now| before.as_deref() != Some(*now))
        {
            tracing::warn!("{warning}");
        }
        self.looked(set);
    }

    /// Watches what the files were read from.
    fn looked(&mut self, set: &WatchSet) {
        let now = clock::now();
        let armed = self.arm(set);
        self.lookout
            .handle_look(armed.coverage, self.doubts.poll_timeout(), now);
        if armed.is_wider {
            // What happened between the look and the watch was not heard of.
            self.lookout.handle_hint(Hint::Changed, now);
        }
        if let Some(warning) = armed
            .warning
            .as_ref()
            .filter(|_| self.warning != armed.warning)
        {
            tracing::warn!("{warning}");
        }
        self.coverage = armed.coverage;
        self.warning = armed.warning;
    }

    fn arm(&mut self, set: &WatchSet) -> Armed {
        if self.watcher.is_none() {
            match open() {
                Ok(watcher) => self.watcher = Some(watcher),
                Err(error) => return unavailable(&error),
            }
        }
        let watcher = self.watcher.as_mut();
        watcher.map_or_else(Armed::default, |(watcher, _)| watcher.arm(set))
    }

    /// What tells of edits, for `status`.
    pub(super) fn name(&self) -> &'static str {
        match self.coverage {
            Coverage::Full | Coverage::Partial => "inotify",
            Coverage::None => "polling",
        }
    }

    /// What the user should know.
    pub(super) fn warnings(&self) -> impl Iterator<Item = String> {
        let how_often = match self.coverage {
            Coverage::Full => "",
            Coverage::Partial => "; the files are read every 60 s as well",
            Coverage::None => "; the files are read every 5 s instead",
        };
        let warning = self.warning.as_ref();
        let watch = warning.map(|warning| format!("{warning}{how_often}"));
        let doubts = self.doubts.warning().map(str::to_owned);
        watch.into_iter().chain(doubts)
    }
}

/// The folders to watch; looks at the disk.
pub(super) fn watch_set(config_dir: &Path, seen: &Seen) -> WatchSet {
    WatchSet::derive(config_dir, seen, look_at)
}

async fn hear(watcher: Option<&(Watcher, AsyncFd<OwnedFd>)>) -> io::Result<Vec<Hint>> {
    let Some((watcher, descriptor)) = watcher else {
        return std::future::pending().await;
    };
    let mut ready = descriptor.readable().await?;
    let Heard { hints, is_all } = watcher.read()?;
    if is_all {
        ready.clear_ready();
    }
    Ok(hints)
}

fn open() -> io::Result<(Watcher, AsyncFd<OwnedFd>)> {
    let watcher = Watcher::open()?;
    let descriptor = watched(watcher.as_fd().try_clone_to_owned()?, Interest::READABLE)?;
    Ok((watcher, descriptor))
}

fn unavailable(error: &io::Error) -> Armed {
    Armed {
        is_wider: false,
        coverage: Coverage::None,
        warning: Some(format!(
            "the configuration cannot be watched by inotify: {error}"
        )),
    }
}
