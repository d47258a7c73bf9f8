//! One real child: its pidfd, its group, its end.
//!
//! Signals and looks; decides nothing. The leader stays unreaped until somebody asks for it, so
//! that neither its pid nor the number of its group can become a stranger's while we use them.

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::process::{
    PidfdFlags, Signal, WaitId, WaitIdOptions, WaitIdStatus, kill_process_group, pidfd_open,
    pidfd_send_signal, waitid,
};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

use super::cgroup::Leaf;
use super::exec::REPORT_BYTES;
use super::failure::{SpawnFailure, Stage};
use super::inspect::explain;
use super::launcher::{ProcessGroup, TAG_NAME};
use super::process_tree::{
    Leader, Number, Process, has_variable, members_of, read_all, read_process,
};
use super::reap::{Nursery, to_pid};
use super::records::RecordFile;
use super::state::{ExitStatus, StopSignal};
use super::sys;

/// How often a dropped child's survivors are killed and looked for before we move on.
const DROP_ROUNDS: usize = 20;
/// Looks of one sweep: each stops whoever the ones before have missed.
const SWEEP_LOOKS: usize = 16;

/// How the group is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupSignal {
    /// Through the leader's pidfd (Linux 6.9 on), else by the group's number.
    Best,
    /// By the group's number, while the leader is unreaped.
    ByNumber,
}

/// The leader and all that came from it.
#[derive(Debug)]
pub(super) struct Group {
    leader: Leader,
    pidfd: Arc<OwnedFd>,
    /// `NAME=VALUE` as it stands in the environment; empty for a run without a tag.
    tag: Vec<u8>,
    leaf: Option<Leaf>,
    nursery: Arc<Nursery>,
    way: GroupSignal,
    reaped: Mutex<bool>,
    /// Stands until nothing is left.
    record: Mutex<Option<RecordFile>>,
}

impl Group {
    pub(super) fn new(
        leader: Leader,
        pidfd: Arc<OwnedFd>,
        tag: &str,
        leaf: Option<Leaf>,
        nursery: Arc<Nursery>,
        way: GroupSignal,
        record: Option<RecordFile>,
    ) -> Self {
        Self {
            leader,
            pidfd,
            tag: match tag {
                "" => Vec::new(),
                tag => format!("{TAG_NAME}={tag}").into_bytes(),
            },
            leaf,
            nursery,
            way,
            reaped: Mutex::new(false),
            record: Mutex::new(record),
        }
    }

    /// To everybody: the group at once, the leaf at once if they are to die, each other by itself.
    fn send(&self, signals: &[Signal]) -> io::Result<()> {
        let reaped = self.is_reaped();
        // Before anybody dies: only as long as its parent lives can a child without a mark be told
        // from a stranger.
        let found = self.scan(*reaped);
        let mut sent = Ok(());
        if !*reaped {
            for signal in signals {
                sent = sent.and(self.signal_group(*signal));
            }
        }
        let leaf = self.leaf.as_ref().filter(|_| signals == [Signal::KILL]);
        if let Some(leaf) = leaf {
            sent = sent.and(leaf.kill());
        }
        drop(reaped);
        let found = found?;
        let others = found.members.iter().filter(|member| {
            let is_killed = leaf.is_some() && found.contained.contains(&member.pid);
            member.group != self.leader.pid && !is_killed
        });
        sent.and(self.signal_each(others, signals))
    }

    /// To the group alone. The caller holds the lock on `reaped`, which is false.
    fn signal_group(&self, signal: Signal) -> io::Result<()> {
        let sent = match self.way {
            GroupSignal::Best => sys::signal_group(self.pidfd.as_fd(), signal.as_raw()),
            GroupSignal::ByNumber => Err(io::ErrorKind::Unsupported.into()),
        };
        match sent {
            Ok(()) => Ok(()),
            Err(error) if is_gone(&error) => Ok(()),
            // An older kernel knows no such flag (EINVAL), an old one no such call (ENOSYS).
            Err(_) => match to_pid(self.leader.pid) {
                Some(pid) => ignore_gone(kill_process_group(pid, signal).map_err(io::Error::from)),
                None => Ok(()),
            },
        }
    }

    /// To each of `members`, by a pidfd that is opened first and whose process is looked at after
    /// that: if it began when the member did, it is the member.
    fn signal_each<'m>(
        &self,
        members: impl Iterator<Item = &'m Process>,
        signals: &[Signal],
    ) -> io::Result<()> {
        for member in members {
            let Some(number) = to_pid(member.pid) else {
                continue;
            };
            let Ok(pidfd) = pidfd_open(number, PidfdFlags::empty()) else {
                continue;
            };
            let now = read_process(member.pid);
            if now.is_some_and(|now| now.start_ticks == member.start_ticks) {
                for signal in signals {
                    let sent = pidfd_send_signal(&pidfd, *signal).map_err(io::Error::from);
                    ignore_gone(sent)?;
                }
            }
        }
        Ok(())
    }

    /// Stops everybody until a look finds nobody new, then kills them all: those that are stopped
    /// fork no more. What stops neither is met again by the next round.
    fn sweep(&self) -> io::Result<()> {
        let mut stopped: HashSet<(u32, u64)> = HashSet::new();
        for _ in 0..SWEEP_LOOKS {
            let mut members = self.scan(*self.is_reaped())?.members;
            members.retain(|it| stopped.insert((it.pid, it.start_ticks)));
            if members.is_empty() {
                break;
            }
            self.signal_each(members.iter(), &[Signal::STOP])?;
        }
        self.send(&[Signal::KILL])
    }

    /// The living members as of now.
    fn scan(&self, is_reaped: bool) -> io::Result<Found> {
        let number = match is_reaped {
            true => Number::Free,
            false => Number::Held,
        };
        let mut all = read_all()?;
        // After the look at all: whoever has taken the number of one that was seen there began
        // later, which shows when it is to be signalled.
        let contained = match &self.leaf {
            Some(leaf) => leaf.processes()?,
            None => Vec::new(),
        };
        let members = members_of(self.leader, number, &all, std::process::id(), |pid| {
            contained.contains(&pid) || (!self.tag.is_empty() && has_variable(pid, &self.tag))
        });
        all.retain(|process| members.binary_search(&process.pid).is_ok());
        Ok(Found {
            members: all,
            contained,
        })
    }

    /// Everybody that the leaf holds; an error where it holds somebody who cannot be seen.
    fn contained(&self) -> io::Result<Vec<u32>> {
        let Some(leaf) = &self.leaf else {
            return Ok(Vec::new());
        };
        for _ in 0..2 {
            if !leaf.is_populated()? {
                return Ok(Vec::new());
            }
            let pids = leaf.processes()?;
            if !pids.is_empty() {
                return Ok(pids);
            }
        }
        Err(io::Error::other(
            "the control group holds somebody who is not seen",
        ))
    }

    fn forget_record(&self) {
        let mut record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(record) = record.take() {
            record.remove();
        }
    }

    fn is_reaped(&self) -> MutexGuard<'_, bool> {
        self.reaped.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What one look found.
#[derive(Debug)]
struct Found {
    members: Vec<Process>,
    /// Whoever is in the leaf, members or not.
    contained: Vec<u32>,
}

impl ProcessGroup for Group {
    fn signal(&self, signal: StopSignal) -> io::Result<()> {
        match signal {
            StopSignal::Term => self.send(&[Signal::TERM, Signal::CONT]),
            StopSignal::Kill => self.send(&[Signal::KILL]),
            StopSignal::Sweep => self.sweep(),
        }
    }

    fn members(&self) -> io::Result<Vec<u32>> {
        // A process that was born behind the place where the first look was is seen by the second.
        for _ in 0..2 {
            let scanned = self.scan(*self.is_reaped())?.members;
            let mut members = match self.contained() {
                Err(error) if scanned.is_empty() => return Err(error),
                contained => contained.unwrap_or_default(),
            };
            members.extend(scanned.iter().map(|process| process.pid));
            members.sort_unstable();
            members.dedup();
            if !members.is_empty() {
                return Ok(members);
            }
        }
        Ok(Vec::new())
    }

    fn reap(&self) -> io::Result<()> {
        let mut reaped = self.is_reaped();
        if *reaped {
            return Ok(());
        }
        let mut leaders = self.nursery.lock();
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        if waitid(WaitId::PidFd(self.pidfd.as_fd()), options)?.is_none() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        leaders.remove(&self.leader.pid);
        *reaped = true;
        self.forget_record();
        match &self.leaf {
            Some(leaf) => leaf.remove(),
            None => Ok(()),
        }
    }

    fn control_group(&self) -> Option<&Path> {
        self.leaf.as_ref().map(Leaf::folder)
    }

    fn was_oom_killed(&self) -> bool {
        self.leaf.as_ref().is_some_and(Leaf::was_oom_killed)
    }
}

/// Nobody looks after this run any more: end it without waiting. What is still dying is left to
/// the rounds over the adoptees, a leaf that is not empty yet to the sweep of the next daemon.
impl Drop for Group {
    fn drop(&mut self) {
        if *self.is_reaped() {
            return;
        }
        for round in 0..DROP_ROUNDS {
            // Whatever the kernel refuses here, there is nobody to tell and the next step is the same.
            drop(self.signal(match round {
                0 => StopSignal::Kill,
                _ => StopSignal::Sweep,
            }));
            if self.members().is_ok_and(|left| left.is_empty()) {
                self.forget_record();
                break;
            }
        }
        if self.reap().is_err() {
            self.nursery.lock().remove(&self.leader.pid);
            if let Some(leaf) = &self.leaf {
                drop(leaf.remove());
            }
        }
    }
}

fn is_gone(error: &io::Error) -> bool {
    error.raw_os_error() == Some(nix::libc::ESRCH)
}

fn ignore_gone(sent: io::Result<()>) -> io::Result<()> {
    match sent {
        Err(error) if is_gone(&error) => Ok(()),
        sent => sent,
    }
}

/// Resolves when the leader has ended; leaves it unreaped (`WNOWAIT` of `waitid(2)`).
pub(super) async fn exited(pidfd: Arc<OwnedFd>) -> ExitStatus {
    let Ok(readable) = sys::watch(Arc::clone(&pidfd)) else {
        return exited_by_thread(pidfd).await;
    };
    loop {
        let Ok(mut guard) = readable.readable().await else {
            return exited_by_thread(pidfd).await;
        };
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        match waitid(WaitId::PidFd(pidfd.as_fd()), options) {
            Ok(Some(status)) => return read_status(&status),
            Ok(None) => guard.clear_ready(),
            Err(error) => return lost_status(error),
        }
    }
}

/// Where no more descriptors can be watched (`epoll_ctl(2)`, ENOSPC), a thread waits.
async fn exited_by_thread(pidfd: Arc<OwnedFd>) -> ExitStatus {
    let waiting = tokio::task::spawn_blocking(move || {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        match waitid(WaitId::PidFd(pidfd.as_fd()), options) {
            Ok(Some(status)) => read_status(&status),
            Ok(None) => lost_status(rustix::io::Errno::CHILD),
            Err(error) => lost_status(error),
        }
    });
    let lost = |_| lost_status(rustix::io::Errno::CHILD);
    waiting.await.unwrap_or_else(lost)
}

fn read_status(status: &WaitIdStatus) -> ExitStatus {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => ExitStatus::Code(code),
        (None, number) => ExitStatus::Signal {
            number: number.unwrap_or_default(),
            core_dumped: status.dumped(),
        },
    }
}

/// Somebody else took the status, which nobody may; the process has ended all the same.
fn lost_status(error: rustix::io::Errno) -> ExitStatus {
    tracing::error!(error = %error, "the exit status of a child was lost");
    ExitStatus::Code(-1)
}

/// Resolves when the status pipe tells: its end without a word means that the program runs.
pub(super) async fn executed(
    status: OwnedFd,
    program: PathBuf,
    cwd: PathBuf,
) -> Result<(), SpawnFailure> {
    let broken = |error: io::Error| {
        let detail = format!("cannot read the status pipe: {error}");
        SpawnFailure::new(Stage::Pipe, error.raw_os_error(), detail)
    };
    let mut status = pipe::Receiver::from_owned_fd(status).map_err(broken)?;
    let mut report = Vec::with_capacity(REPORT_BYTES);
    status.read_to_end(&mut report).await.map_err(broken)?;
    let Some((code, errno)) = report.split_first() else {
        return Ok(());
    };
    let stage = Stage::from_code(*code).unwrap_or(Stage::Plan);
    let errno = errno.try_into().map_or(0, i32::from_le_bytes);
    Err(explain(stage, errno, &program, &cwd))
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::{CommandExt, ExitStatusExt};
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// A process in a group of its own, so that a group that is signalled is never ours.
    fn sleeper() -> Child {
        Command::new("/bin/sleep")
            .arg("1000")
            .stdin(Stdio::null())
            .process_group(0)
            .spawn()
            .unwrap()
    }

    /// Fault 26: a number that was seen as a member's and is somebody else's by now.
    #[test]
    fn who_began_at_another_time_is_not_signalled() {
        let (leader, mut stranger) = (sleeper(), sleeper());
        let pidfd = pidfd_open(to_pid(leader.id()).unwrap(), PidfdFlags::empty()).unwrap();
        let seen = read_process(leader.id()).unwrap();
        let identity = Leader {
            pid: seen.pid,
            start_ticks: seen.start_ticks,
        };
        let (pidfd, nursery) = (Arc::new(pidfd), Arc::default());
        let way = GroupSignal::Best;
        let group = Group::new(identity, pidfd, "", None, nursery, way, None);
        let now = read_process(stranger.id()).unwrap();
        let earlier = Process {
            start_ticks: now.start_ticks - 1,
            ..now.clone()
        };
        group
            .signal_each([earlier].iter(), &[Signal::TERM])
            .unwrap();
        group.signal_each([now].iter(), &[Signal::KILL]).unwrap();
        // The first that reached it is the one that ended it.
        assert_eq!(stranger.wait().unwrap().signal(), Some(9));
        // With the group goes the leader, reaped.
        drop(group);
        assert_eq!(read_process(leader.id()), None);
    }
}
