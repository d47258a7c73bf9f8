//! What of a fresh reading is believed at once, and what only if it stays so.
//!
//! Many a save passes through a moment in which a file is gone, empty or half written, a folder is
//! moved away and comes back, a home is not mounted yet. It decides how long such a moment may
//! last before it is taken for what the user wants; until then the servers concerned stay as they
//! are. Everything else of the reading goes on undisturbed. It reads nothing itself, and a reload
//! that somebody asked for never meets it.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use super::diagnostics::Diagnostic;
use super::load::Loaded;
use super::parse::DaemonFile;
use super::spec::{ServerName, ServerSpec};
use super::watch_set::FolderSight;
use crate::time::{Moment, earliest};

/// So long a file must be gone. With the quiet before the first look it is a second.
const GONE_PATIENCE: Duration = Duration::from_millis(750);

/// So long a file must have the same faults. With the quiet before it, less than a second.
const FAULTY_PATIENCE: Duration = Duration::from_millis(500);

/// So long there must be no file at all until that means that no server is wanted.
const EMPTY_PATIENCE: Duration = Duration::from_secs(10);

/// Between two looks while there is no file at all.
const EMPTY_POLL: Duration = Duration::from_secs(2);

/// What is applied: what the next reading is compared with.
#[derive(Debug)]
pub struct Standing<'a> {
    /// Every server that has a file, with what was said of that.
    pub servers: BTreeMap<ServerName, Result<ServerSpec, Vec<Diagnostic>>>,
    pub daemon: &'a DaemonFile,
    /// Whether that is what a file said.
    pub has_daemon_file: bool,
    /// Errors that belong to no server.
    pub stray: &'a [Diagnostic],
}

/// Everything that was seen and is not believed yet.
#[derive(Debug, Default)]
pub struct Doubts {
    gone: BTreeMap<ServerName, Moment>,
    faulty: BTreeMap<ServerName, (Vec<Diagnostic>, Moment)>,
    stray: Option<(Vec<Diagnostic>, Moment)>,
    daemon_file_gone: Option<Moment>,
    empty: Option<Moment>,
    again: Option<Moment>,
    warning: Option<String>,
}

impl Doubts {
    /// Puts what is applied in the place of what is not believed yet.
    pub fn weigh(&mut self, loaded: &mut Loaded, mut applied: Standing<'_>, now: Moment) {
        self.again = None;
        self.warning = None;
        if self.is_all_gone(loaded, &applied, now) {
            self.warning = Some(keeping(
                loaded.seen.folder,
                &loaded.seen.servers_dir,
                &applied,
            ));
            loaded.servers = applied.servers;
            loaded.daemon = applied.daemon.clone();
            loaded.seen.has_daemon_file = applied.has_daemon_file;
            return;
        }
        let gone = applied.has_daemon_file && !loaded.seen.has_daemon_file;
        if self.doubt_daemon_file(gone, now) {
            // Its defaults are part of every server, so that no server was read as it is meant.
            loaded.servers = applied.servers;
            loaded.daemon = applied.daemon.clone();
            loaded.seen.has_daemon_file = true;
            return;
        }
        self.weigh_gone(loaded, &applied, now);
        self.weigh_faulty(loaded, &mut applied, now);
        self.weigh_stray(loaded, applied.stray, now);
    }

    /// Somebody asked for this reading, so everything is meant as it is. A folder that cannot be
    /// read says nothing all the same.
    pub fn believe(&mut self, loaded: &mut Loaded, applied: Standing<'_>) {
        *self = Self::default();
        if loaded.seen.folder == FolderSight::Unreadable {
            loaded.servers = applied.servers;
        }
    }

    /// When to look again at what is not believed yet.
    pub fn poll_timeout(&self) -> Option<Moment> {
        self.again
    }

    /// What the user should know meanwhile.
    pub fn warning(&self) -> Option<&str> {
        self.warning.as_deref()
    }

    /// Whether there is no file of any server where there was one, and not for long enough. What
    /// cannot be read may hold anything, however long.
    fn is_all_gone(&mut self, loaded: &Loaded, applied: &Standing<'_>, now: Moment) -> bool {
        let is_empty = loaded.seen.server_files.is_empty() && !applied.servers.is_empty();
        if !is_empty {
            self.empty = None;
            return false;
        }
        let since = *self.empty.get_or_insert(now);
        let until = match loaded.seen.folder {
            FolderSight::Unreadable => None,
            FolderSight::Missing | FolderSight::Read => Some(since + EMPTY_PATIENCE),
        };
        if until.is_some_and(|until| until <= now) {
            return false;
        }
        self.look_again(earliest(until, Some(now + EMPTY_POLL)));
        true
    }

    fn doubt_daemon_file(&mut self, gone: bool, now: Moment) -> bool {
        if !gone {
            self.daemon_file_gone = None;
            return false;
        }
        let until = *self.daemon_file_gone.get_or_insert(now) + GONE_PATIENCE;
        // Where the whole folder was awaited for long, so was this.
        if until <= now || self.empty.is_some() {
            return false;
        }
        self.look_again(Some(until));
        true
    }

    fn weigh_gone(&mut self, loaded: &mut Loaded, applied: &Standing<'_>, now: Moment) {
        let before = std::mem::take(&mut self.gone);
        // All of them were awaited together.
        if self.empty.is_some() {
            return;
        }
        for (name, outcome) in &applied.servers {
            if loaded.servers.contains_key(name) {
                continue;
            }
            let since = before.get(name).copied().unwrap_or(now);
            if since + GONE_PATIENCE > now {
                loaded.servers.insert(name.clone(), outcome.clone());
                self.gone.insert(name.clone(), since);
                self.look_again(Some(since + GONE_PATIENCE));
            }
        }
    }

    fn weigh_faulty(&mut self, loaded: &mut Loaded, applied: &mut Standing<'_>, now: Moment) {
        let mut before = std::mem::take(&mut self.faulty);
        let is_news = |name: &ServerName, errors: &Vec<Diagnostic>| !matches!(applied.servers.get(name), Some(Err(known)) if known == errors);
        let news: Vec<(ServerName, Vec<Diagnostic>)> = loaded
            .servers
            .iter()
            .filter_map(|(name, outcome)| {
                let errors = outcome.as_ref().err()?;
                is_news(name, errors).then(|| (name.clone(), errors.clone()))
            })
            .collect();
        for (name, errors) in news {
            let since = match before.remove(&name) {
                Some((known, since)) if known == errors => since,
                _ => now,
            };
            if since + FAULTY_PATIENCE <= now {
                continue;
            }
            match applied.servers.remove(&name) {
                Some(outcome) => loaded.servers.insert(name.clone(), outcome),
                None => loaded.servers.remove(&name),
            };
            self.faulty.insert(name, (errors, since));
            self.look_again(Some(since + FAULTY_PATIENCE));
        }
    }

    fn weigh_stray(&mut self, loaded: &mut Loaded, applied: &[Diagnostic], now: Moment) {
        let before = self.stray.take();
        let found: Vec<Diagnostic> = loaded.all_stray().cloned().collect();
        let is_worse = found.iter().any(|error| !applied.contains(error));
        if !is_worse {
            return;
        }
        let since = match before {
            Some((known, since)) if known == found => since,
            _ => now,
        };
        if since + FAULTY_PATIENCE <= now {
            return;
        }
        loaded.daemon_errors.clear();
        loaded.stray = applied.to_vec();
        self.stray = Some((found, since));
        self.look_again(Some(since + FAULTY_PATIENCE));
    }

    fn look_again(&mut self, at: Option<Moment>) {
        self.again = earliest(self.again, at);
    }
}

fn keeping(sight: FolderSight, folder: &Path, applied: &Standing<'_>) -> String {
    let what = match sight {
        FolderSight::Missing => "is missing",
        FolderSight::Read => "is empty",
        FolderSight::Unreadable => "cannot be read",
    };
    let count = applied.servers.len();
    let (servers, go) = match count {
        1 => ("server", "goes"),
        _ => ("servers", "go"),
    };
    let for_now = match sight {
        FolderSight::Unreadable => "until it can be",
        FolderSight::Missing | FolderSight::Read => "for now",
    };
    format!(
        "{} {what}: {count} {servers} {go} on {for_now}",
        folder.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::diagnostics::{Code, SourceText};
    use crate::config::draft::Draft;
    use crate::config::parse::{Surroundings, parse_server};
    use crate::config::watch_set::Seen;
    use std::path::PathBuf;

    type Servers = BTreeMap<ServerName, Result<ServerSpec, Vec<Diagnostic>>>;

    fn at(ms: u64) -> Moment {
        Moment::from_origin(Duration::from_millis(ms))
    }

    fn error(message: &str) -> Diagnostic {
        Diagnostic::file_error(Code::Syntax, Path::new("/c/servers.d/x.toml"), message)
    }

    /// Servers by name, each with the argument of its command, or `!` and what is wrong with it.
    fn servers(shown: &[(&str, &str)]) -> Servers {
        let read = |(name, text): &(&str, &str)| {
            let name = ServerName::parse(name).unwrap();
            if let Some(message) = text.strip_prefix('!') {
                return (name, Err(vec![error(message)]));
            }
            let surroundings = Surroundings {
                home: Path::new("/h"),
                is_program: &|_| true,
            };
            let text = format!("command = \"x\"\nargs = [\"{text}\"]");
            let source = SourceText::new(Path::new("/c/servers.d/x.toml"), &text);
            let spec = parse_server(&name, &source, &Draft::default(), surroundings).unwrap();
            (name, Ok(spec))
        };
        shown.iter().map(read).collect()
    }

    /// The bench: what is applied, and the doubts of a fresh reading.
    struct Bench {
        doubts: Doubts,
        applied: Servers,
        stray: Vec<Diagnostic>,
        daemon: DaemonFile,
        has_daemon_file: bool,
    }

    impl Bench {
        fn new(applied: &[(&str, &str)]) -> Self {
            Self {
                doubts: Doubts::default(),
                applied: servers(applied),
                stray: Vec::new(),
                daemon: DaemonFile::default(),
                has_daemon_file: false,
            }
        }

        fn reading(found: &[(&str, &str)]) -> Loaded {
            let servers = servers(found);
            Loaded {
                daemon: DaemonFile::default(),
                daemon_errors: Vec::new(),
                stray: Vec::new(),
                warnings: Vec::new(),
                seen: Seen {
                    server_files: servers
                        .keys()
                        .map(|name| PathBuf::from(name.as_str()))
                        .collect(),
                    servers_dir: "/c/servers.d".into(),
                    ..Seen::default()
                },
                servers,
            }
        }

        /// Weighs and applies a reading.
        fn weigh(&mut self, ms: u64, mut loaded: Loaded) {
            self.judge(&mut loaded, |doubts, loaded, applied| {
                doubts.weigh(loaded, applied, at(ms));
            });
        }

        /// Applies a reading that somebody asked for.
        fn believe(&mut self, mut loaded: Loaded) {
            self.judge(&mut loaded, Doubts::believe);
        }

        fn judge(
            &mut self,
            loaded: &mut Loaded,
            judge: impl FnOnce(&mut Doubts, &mut Loaded, Standing<'_>),
        ) {
            let applied = Standing {
                servers: self.applied.clone(),
                daemon: &self.daemon,
                has_daemon_file: self.has_daemon_file,
                stray: &self.stray,
            };
            judge(&mut self.doubts, loaded, applied);
            self.stray = loaded.all_stray().cloned().collect();
            self.applied = loaded.servers.clone();
            self.has_daemon_file = loaded.seen.has_daemon_file;
        }

        #[track_caller]
        fn check(
            &mut self,
            ms: u64,
            found: &[(&str, &str)],
            expected: &[(&str, &str)],
            again: u64,
        ) {
            self.weigh(ms, Self::reading(found));
            assert_eq!(self.applied, servers(expected));
            let again = (again > 0).then(|| at(again));
            assert_eq!(self.doubts.poll_timeout(), again);
        }
    }

    const TWO: [(&str, &str); 2] = [("a", "1"), ("b", "1")];

    #[test]
    fn what_is_valid_is_believed_at_once() {
        let mut bench = Bench::new(&TWO);
        let found = [("a", "2"), ("b", "1"), ("c", "1")];
        bench.check(0, &found, &found, 0);
    }

    #[test]
    fn a_file_is_gone_once_it_stays_away() {
        let mut bench = Bench::new(&TWO);
        bench.check(0, &[("a", "1")], &TWO, 750);
        bench.check(700, &[("a", "2")], &[("a", "2"), ("b", "1")], 750);
        bench.check(750, &[("a", "2")], &[("a", "2")], 0);
    }

    #[test]
    fn a_file_that_returns_was_never_gone() {
        let mut bench = Bench::new(&TWO);
        bench.check(0, &[("a", "1")], &TWO, 750);
        bench.check(600, &TWO, &TWO, 0);
        bench.check(700, &[("a", "1")], &TWO, 1_450);
    }

    #[test]
    fn a_fault_is_told_once_it_stays() {
        let mut bench = Bench::new(&TWO);
        bench.check(
            0,
            &[("a", "!half"), ("b", "2")],
            &[("a", "1"), ("b", "2")],
            500,
        );
        let now = [("a", "!other"), ("b", "2")];
        bench.check(400, &now, &[("a", "1"), ("b", "2")], 900);
        bench.check(900, &now, &now, 0);
        bench.check(1_000, &now, &now, 0);
        bench.check(1_100, &[("a", "!third"), ("b", "2")], &now, 1_600);
        bench.check(1_200, &TWO, &TWO, 0);
    }

    #[test]
    fn a_new_file_that_is_half_written_is_not_there_yet() {
        let mut bench = Bench::new(&[("a", "1")]);
        bench.check(0, &[("a", "1"), ("b", "!half")], &[("a", "1")], 500);
        bench.check(300, &TWO, &TWO, 0);
    }

    #[test]
    fn a_folder_without_files_means_no_servers_only_after_long() {
        let mut bench = Bench::new(&TWO);
        bench.check(0, &[], &TWO, 2_000);
        assert_eq!(
            bench.doubts.warning(),
            Some("/c/servers.d is empty: 2 servers go on for now")
        );
        for second in (2..9).step_by(2) {
            bench.check(second * 1_000, &[], &TWO, (second + 2) * 1_000);
        }
        bench.check(9_000, &[], &TWO, 10_000);
        bench.check(10_000, &[], &[], 0);
        assert_eq!(bench.doubts.warning(), None);
        bench.check(10_100, &[], &[], 0);
    }

    #[test]
    fn a_folder_that_returns_starts_anew() {
        let mut bench = Bench::new(&TWO);
        bench.check(0, &[], &TWO, 2_000);
        bench.check(2_000, &TWO, &TWO, 0);
        bench.check(3_000, &[], &TWO, 5_000);
    }

    #[test]
    fn an_unreadable_folder_removes_nothing_ever() {
        let mut bench = Bench::new(&[("a", "1")]);
        for ms in [0, 9_000, 20_000, 100_000] {
            let mut loaded = Bench::reading(&[]);
            loaded.seen.folder = FolderSight::Unreadable;
            bench.weigh(ms, loaded);
            assert_eq!(bench.applied, servers(&[("a", "1")]));
            assert_eq!(bench.doubts.poll_timeout(), Some(at(ms + 2_000)));
            assert_eq!(
                bench.doubts.warning(),
                Some("/c/servers.d cannot be read: 1 server goes on until it can be")
            );
        }
    }

    #[test]
    fn the_daemons_own_file_is_gone_once_it_stays_away() {
        let mut bench = Bench::new(&TWO);
        bench.has_daemon_file = true;
        let changed = [("a", "default"), ("b", "default")];
        bench.check(0, &changed, &TWO, 750);
        bench.check(750, &changed, &changed, 0);
    }

    #[test]
    fn errors_that_belong_to_no_server_are_told_once_they_stay() {
        let mut bench = Bench::new(&TWO);
        let with_error = || {
            let mut loaded = Bench::reading(&TWO);
            loaded.daemon_errors = vec![error("half")];
            loaded
        };
        bench.weigh(0, with_error());
        assert_eq!(bench.stray, []);
        assert_eq!(bench.doubts.poll_timeout(), Some(at(500)));
        bench.weigh(500, with_error());
        assert_eq!(bench.stray, [error("half")]);
        bench.weigh(600, Bench::reading(&TWO));
        assert_eq!(bench.stray, []);
        assert_eq!(bench.doubts.poll_timeout(), None);
    }

    #[test]
    fn a_reload_that_is_asked_for_ends_all_doubts() {
        let mut bench = Bench::new(&TWO);
        bench.check(0, &[], &TWO, 2_000);
        bench.believe(Bench::reading(&[]));
        assert_eq!(bench.applied, servers(&[]));
        assert_eq!(bench.doubts.poll_timeout(), None);
        assert_eq!(bench.doubts.warning(), None);
    }

    #[test]
    fn nobody_can_ask_for_what_cannot_be_read() {
        let mut bench = Bench::new(&TWO);
        let mut loaded = Bench::reading(&[]);
        loaded.seen.folder = FolderSight::Unreadable;
        bench.believe(loaded);
        assert_eq!(bench.applied, servers(&TWO));
    }
}
