//! Who our children are, and the end of those that we only adopted.
//!
//! The daemon is a subreaper: what a child leaves behind becomes ours and would stay a zombie.
//! Adoptees are reaped one by one, never by a wait for any child, which could take the exit status
//! of a leader that somebody is still looking at. Decides only who is an adoptee: whoever is our
//! child and not in the `Nursery`.
//!
//! So nothing else in the daemon may start processes: short commands go through the launcher like
//! servers, and have their place in the nursery too.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};

use rustix::process::{Pid, WaitId, WaitIdOptions, set_child_subreaper, waitid};

use super::process_tree::read_all;
use super::records::Records;
use super::sweep::pause;

/// Looks at a lock that is held before it is gone without: about a second.
const LOCK_LOOKS: usize = 50;

/// The leaders that are not reaped yet. Spawn and registration, reaping and removal, and every
/// round over the adoptees happen under its lock: a child that dies at once is not taken for an
/// adoptee, and a number that is free again is not taken for the one before.
#[derive(Debug, Default)]
pub(super) struct Nursery {
    leaders: Mutex<HashSet<u32>>,
    /// Where runs are recorded for a later daemon, once that is known.
    pub(super) records: OnceLock<Records>,
}

/// What one round found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Adoptees {
    /// Zombies that are no more.
    pub reaped: Vec<u32>,
    /// Those that live.
    pub living: Vec<u32>,
}

/// Makes orphans of our children ours (`PR_SET_CHILD_SUBREAPER(2const)`). Once, at the start of
/// the daemon, before any spawn.
///
/// # Errors
/// The kernel refused; without it an escapee goes to the session's init.
pub fn become_subreaper() -> io::Result<()> {
    // Any process number but none sets the attribute.
    set_child_subreaper(Some(Pid::INIT)).map_err(io::Error::from)
}

impl Nursery {
    /// A panic elsewhere leaves the set as it was: it is only ever changed whole.
    pub(super) fn lock(&self) -> MutexGuard<'_, HashSet<u32>> {
        self.leaders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`Self::lock`], but gives up where it is held for long: by a thread that broke.
    pub(super) fn try_lock_patiently(&self) -> Option<MutexGuard<'_, HashSet<u32>>> {
        for round in 0..LOCK_LOOKS {
            match self.leaders.try_lock() {
                Ok(leaders) => return Some(leaders),
                Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) => pause(round),
            }
        }
        None
    }

    /// Reaps every adoptee that has ended and names the others.
    pub(super) fn reap_adopted(&self) -> io::Result<Adoptees> {
        let leaders = self.lock();
        let mut adoptees = Adoptees::default();
        for pid in children()? {
            if leaders.contains(&pid) {
                continue;
            }
            match reap_one(pid) {
                Ok(true) => adoptees.reaped.push(pid),
                Ok(false) => adoptees.living.push(pid),
                // Not our child any more.
                Err(_) => {}
            }
        }
        Ok(adoptees)
    }
}

fn reap_one(pid: u32) -> io::Result<bool> {
    let pid = to_pid(pid).ok_or(io::ErrorKind::InvalidInput)?;
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    Ok(waitid(WaitId::Pid(pid), options)?.is_some())
}

pub(super) fn to_pid(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().and_then(Pid::from_raw)
}

/// The children of all our threads. The kernel keeps lists of them by thread; one that is built
/// without these lists makes us look at everybody's parent.
pub(super) fn children() -> io::Result<Vec<u32>> {
    match children_by_thread() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => children_by_parent(),
        listed => listed,
    }
}

fn children_by_thread() -> io::Result<Vec<u32>> {
    let mut children = Vec::new();
    let ours = std::process::id().to_string();
    for entry in fs::read_dir("/proc/self/task")? {
        let thread = entry?.file_name();
        let file = std::path::Path::new("/proc/self/task").join(&thread);
        match fs::read_to_string(file.join("children")) {
            Ok(list) => children.extend(parse_list(&list)),
            // Another thread that has ended meanwhile; the first one never does.
            Err(_) if thread.to_str() != Some(&ours) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(children)
}

fn children_by_parent() -> io::Result<Vec<u32>> {
    let ours = std::process::id();
    let all = read_all()?.into_iter();
    Ok(all
        .filter(|it| it.parent == ours)
        .map(|it| it.pid)
        .collect())
}

fn parse_list(list: &str) -> impl Iterator<Item = u32> {
    list.split_whitespace().filter_map(|it| it.parse().ok())
}
