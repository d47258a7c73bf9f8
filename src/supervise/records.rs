//! The records of runs on disk, and the sweep of what a dead daemon left.
//!
//! Each daemon has a folder of its own below `runs/`, named by the first part of its tags, with a
//! file `owner` that names its socket and that it holds locked for as long as it lives. A daemon
//! that starts sweeps the folders of the same owner whose lock is free, before it spawns anything.
//! Folders of others, and of daemons that live, are not even read. A disk that takes no record
//! keeps nobody from being served: that is told once.

use std::collections::HashSet;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::Signal;

use super::process_tree::{Leader, Number, Process, members_of, read_all, read_process};
use super::record::{Judgement, Place, RunRecord};
use super::sweep::{self, end_all, pause, signal_all, tagged};

/// The file that a living daemon holds locked.
const OWNER_FILE: &str = "owner";
/// What every record's name ends in.
const RECORD_ENDING: &str = ".json";
/// No record, and no owner, is longer.
const RECORD_LIMIT_BYTES: u64 = 16 << 10;
/// Folders of dead daemons that are looked at in one start.
const FOLDER_LIMIT: usize = 256;
/// Records of one daemon that are looked at.
const RECORD_LIMIT: usize = 20_000;
/// Looks at those that got SIGTERM, before SIGKILL: about a second.
const TERM_ROUNDS: usize = 50;

/// Where a daemon keeps the records of its runs.
#[derive(Debug)]
pub(crate) struct Records {
    folder: PathBuf,
    place: Place,
    /// Locked until the daemon ends, in whatever way.
    _owner: File,
    is_told: AtomicBool,
}

/// One record on disk.
#[derive(Debug)]
pub(super) struct RecordFile(PathBuf);

impl RecordFile {
    /// Nothing of the run is left.
    pub(super) fn remove(self) {
        // A later start finds nobody with this number, or a stranger, and removes it then.
        drop(fs::remove_file(self.0));
    }
}

impl Records {
    /// Makes the folder `runs/run_id` for a daemon that is known as `owner`.
    ///
    /// # Errors
    /// It cannot be made, or the machine does not tell where we are.
    pub(crate) fn begin(runs: &Path, run_id: &str, owner: &str) -> io::Result<Self> {
        let folder = runs.join(run_id);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder)?;
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(folder.join(OWNER_FILE))?;
        file.try_lock().map_err(io::Error::from)?;
        file.write_all(owner.as_bytes())?;
        Ok(Self {
            folder,
            place: read_place()?,
            _owner: file,
            is_told: AtomicBool::new(false),
        })
    }

    /// Notes a process that was just made.
    pub(super) fn note(
        &self,
        leader: Leader,
        tag: &str,
        leaf: Option<&Path>,
    ) -> Option<RecordFile> {
        let record = RunRecord {
            pid: leader.pid,
            start_ticks: Some(leader.start_ticks),
            place: self.place.clone(),
            tag: tag.to_owned(),
            leaf: leaf.map(|leaf| leaf.to_string_lossy().into_owned()),
        };
        // With the start time, so that a number that comes again is another file.
        let name = format!("{}-{}{RECORD_ENDING}", leader.pid, leader.start_ticks);
        let path = self.folder.join(name);
        match write(&path, &record) {
            Ok(()) => {
                self.is_told.store(false, Ordering::Relaxed);
                Some(RecordFile(path))
            }
            Err(error) => {
                if !self.is_told.swap(true, Ordering::Relaxed) {
                    tracing::warn!(%error, folder = ?self.folder, "runs cannot be recorded");
                }
                None
            }
        }
    }

    /// At an orderly end: nothing is left, so nothing is to be swept.
    pub(crate) fn finish(&self) {
        drop(fs::remove_file(self.folder.join(OWNER_FILE)));
        // Stays if a record stays, for the next start to look at.
        drop(fs::remove_dir(&self.folder));
    }
}

fn write(path: &Path, record: &RunRecord) -> io::Result<()> {
    let text = serde_json::to_vec(record)?;
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?;
    // One write: a daemon that is killed leaves all of it or nothing.
    file.write_all(&text)
}

/// What a start found and did.
#[derive(Debug, Default)]
pub(crate) struct Swept {
    /// Processes that an earlier daemon left and that were ended.
    pub(crate) ended: Vec<u32>,
    /// Those that could not be ended.
    pub(crate) left: Vec<u32>,
    /// What was left alone, each with why.
    pub(crate) strangers: Vec<String>,
    /// What could not be looked at.
    pub(crate) errors: Vec<String>,
}

/// Ends what dead daemons known as `owner` have left. To be called before anything is spawned, by
/// whoever has the right to be the daemon of that name.
pub(crate) fn sweep_dead(runs: &Path, owner: &str) -> Swept {
    let mut swept = Swept::default();
    let here = match read_place() {
        Ok(here) => here,
        Err(error) => {
            swept
                .errors
                .push(format!("cannot tell which boot this is: {error}"));
            return swept;
        }
    };
    let Ok(folders) = fs::read_dir(runs) else {
        // No daemon has been here yet.
        return swept;
    };
    for folder in folders.flatten().take(FOLDER_LIMIT) {
        let folder = folder.path();
        // Held until the folder is gone, so that two starts do not sweep it at once.
        let Some(_owner) = take_dead(&folder, owner) else {
            continue;
        };
        if let Err(error) = sweep_one(&folder, &here, &mut swept) {
            swept.errors.push(format!("{}: {error}", folder.display()));
        }
    }
    swept
}

/// The owner's file of `folder`, locked, if that is of `owner` and its daemon is dead.
fn take_dead(folder: &Path, owner: &str) -> Option<File> {
    let path = folder.join(OWNER_FILE);
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK)
        .open(path)
        .ok()?;
    file.try_lock().ok()?;
    let mut text = String::new();
    (&mut file)
        .take(RECORD_LIMIT_BYTES)
        .read_to_string(&mut text)
        .ok()?;
    (text == owner).then_some(file)
}

fn sweep_one(folder: &Path, here: &Place, swept: &mut Swept) -> io::Result<()> {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let run_id = format!("{name}/");
    let mut leaders = Vec::new();
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)?.flatten().take(RECORD_LIMIT) {
        let path = entry.path();
        if !path.to_string_lossy().ends_with(RECORD_ENDING) {
            continue;
        }
        match read_record(&path) {
            Some(record) => leaders.extend(judge(&record, here, swept)),
            None => {
                let place = path.display();
                swept.strangers.push(format!("{place}: it cannot be read"));
            }
        }
        files.push(path);
    }
    let mut met = HashSet::new();
    let left = end_gently(|| {
        let found = belonging(&leaders, &run_id)?;
        met.extend(found.iter().map(|process| process.pid));
        Ok(found)
    })?;
    swept
        .ended
        .extend(met.into_iter().filter(|pid| !left.contains(pid)));
    if left.is_empty() {
        for path in files {
            drop(fs::remove_file(path));
        }
        drop(fs::remove_file(folder.join(OWNER_FILE)));
        // Something of somebody else's in it keeps it.
        drop(fs::remove_dir(folder));
    }
    swept.left.extend(left);
    Ok(())
}

fn read_record(path: &Path) -> Option<RunRecord> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK)
        .open(path)
        .ok()?;
    let mut text = Vec::new();
    file.take(RECORD_LIMIT_BYTES).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

/// The leader that `record` tells of, if it lives.
fn judge(record: &RunRecord, here: &Place, swept: &mut Swept) -> Option<(Leader, String)> {
    let now = read_process(record.pid);
    let group = read_group(record.pid);
    match record.judge(here, now.as_ref(), group.as_deref()) {
        Judgement::Ours => {
            let leader = Leader {
                pid: record.pid,
                start_ticks: record.start_ticks?,
            };
            Some((leader, record.tag.clone()))
        }
        Judgement::Gone | Judgement::OtherBoot => None,
        Judgement::Stranger(why) => {
            let (pid, tag) = (record.pid, &record.tag);
            swept
                .strangers
                .push(format!("pid {pid} (recorded for {tag:?}): {why}"));
            None
        }
    }
}

/// Who lives of the runs of one daemon: trees of leaders that are still the ones that were noted,
/// and whoever carries one of its tags, which escapees do that have no record.
fn belonging(leaders: &[(Leader, String)], run_id: &str) -> io::Result<Vec<Process>> {
    let all = read_all()?;
    let ourselves = std::process::id();
    let mut pids: HashSet<u32> = HashSet::new();
    for (leader, _) in leaders {
        // Its group and session are its own only as long as it is there itself.
        let is_there = all
            .iter()
            .any(|process| (process.pid, process.start_ticks) == (leader.pid, leader.start_ticks));
        if is_there {
            pids.extend(members_of(*leader, Number::Held, &all, ourselves, |_| {
                false
            }));
        }
    }
    let of_tag = tagged(all.clone(), |tag| tag.starts_with(run_id));
    pids.extend(of_tag.iter().map(|process| process.pid));
    Ok(all
        .into_iter()
        .filter(|process| pids.contains(&process.pid) && process.is_alive())
        .collect())
}

/// SIGTERM first, for launchers that pass it on to what only they can reach; then SIGKILL in
/// rounds.
fn end_gently(mut find: impl FnMut() -> io::Result<Vec<Process>>) -> io::Result<Vec<u32>> {
    let found = find()?;
    signal_all(&found, Signal::TERM);
    signal_all(&found, Signal::CONT);
    for round in 0..TERM_ROUNDS {
        if find()?.is_empty() {
            break;
        }
        pause(round);
    }
    end_all(find, sweep::ROUNDS)
}

fn read_place() -> io::Result<Place> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let pid_namespace = fs::read_link("/proc/self/ns/pid")?;
    Ok(Place {
        boot: boot.trim().to_owned(),
        pid_namespace: pid_namespace.to_string_lossy().into_owned(),
    })
}

/// The control group of `pid` in the unified hierarchy (cgroups(7)).
fn read_group(pid: u32) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("0::"))?;
    Some(line.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command};

    /// Somebody who lives, with a tag or without.
    fn sleeper(tag: Option<&str>) -> Child {
        let mut command = Command::new("/bin/sleep");
        command.arg("300").env_clear().process_group(0);
        if let Some(tag) = tag {
            command.env(super::super::launcher::TAG_NAME, tag);
        }
        command.spawn().unwrap()
    }

    fn leader(child: &Child) -> Leader {
        let start_ticks = read_process(child.id()).unwrap().start_ticks;
        Leader {
            pid: child.id(),
            start_ticks,
        }
    }

    fn has_ended(child: &mut Child) -> bool {
        child.try_wait().unwrap().is_some()
    }

    #[test]
    fn a_dead_daemons_leftovers_are_ended_and_nobody_else() {
        let runs = tempfile::tempdir().unwrap();
        let id = format!("dead{}", std::process::id());
        let dead = Records::begin(runs.path(), &id, "/s").unwrap();
        let mut recorded = sleeper(None);
        let mut tagged = sleeper(Some(&format!("{id}/x/1")));
        let mut foreign = sleeper(Some(&format!("{id}x/x/1")));
        let mut recycled = sleeper(None);
        drop(dead.note(leader(&recorded), &format!("{id}/y/1"), None));
        let stale = Leader {
            start_ticks: 1,
            ..leader(&recycled)
        };
        drop(dead.note(stale, &format!("{id}/z/1"), None));
        drop(dead);
        let other = format!("alive{}", std::process::id());
        let alive = Records::begin(runs.path(), &other, "/s").unwrap();
        let mut held = sleeper(Some(&format!("{other}/x/1")));
        drop(alive.note(leader(&held), &format!("{other}/x/1"), None));

        assert!(sweep_dead(runs.path(), "/other").ended.is_empty());
        let mut swept = sweep_dead(runs.path(), "/s");
        swept.ended.sort_unstable();
        let mut expected = vec![recorded.id(), tagged.id()];
        expected.sort_unstable();
        assert_eq!(swept.ended, expected, "{swept:?}");
        assert_eq!(swept.strangers.len(), 1, "{swept:?}");
        assert!(swept.strangers[0].contains("another time"), "{swept:?}");
        assert!(
            swept.left.is_empty() && swept.errors.is_empty(),
            "{swept:?}"
        );
        for child in [&mut recorded, &mut tagged] {
            child.wait().unwrap();
        }
        for child in [&mut foreign, &mut recycled, &mut held] {
            assert!(!has_ended(child));
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let folders = fs::read_dir(runs.path()).unwrap().flatten();
        let names: Vec<_> = folders.map(|folder| folder.file_name()).collect();
        assert_eq!(names, [other.as_str()]);
        drop(fs::remove_file(
            alive.folder.join(format!("{}-0.json", held.id())),
        ));
    }

    #[test]
    fn an_orderly_end_leaves_no_folder_and_a_record_is_removed_alone() {
        let runs = tempfile::tempdir().unwrap();
        let records = Records::begin(runs.path(), "r", "/s").unwrap();
        let ourselves = Leader {
            pid: std::process::id(),
            start_ticks: 1,
        };
        let file = records.note(ourselves, "", None).unwrap();
        assert_eq!(fs::read_dir(&records.folder).unwrap().count(), 2);
        file.remove();
        records.finish();
        assert_eq!(fs::read_dir(runs.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_is_no_record_is_reported_and_removed() {
        let runs = tempfile::tempdir().unwrap();
        drop(Records::begin(runs.path(), "r", "/s").unwrap());
        fs::write(runs.path().join("r/1-1.json"), "{\"pid\": 1").unwrap();
        let swept = sweep_dead(runs.path(), "/s");
        assert_eq!(swept.strangers.len(), 1, "{swept:?}");
        assert_eq!(fs::read_dir(runs.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_disk_that_takes_no_record_is_no_failure() {
        let runs = tempfile::tempdir().unwrap();
        let records = Records::begin(runs.path(), "r", "/s").unwrap();
        fs::remove_dir_all(runs.path()).unwrap();
        let nobody = Leader {
            pid: 1,
            start_ticks: 1,
        };
        assert!(records.note(nobody, "", None).is_none());
    }
}
