//! Ends processes in rounds until nobody is left: for ends at which no worker looks after them.
//!
//! The warden ends what a dead daemon left, a daemon that breaks ends what it started, and a new one
//! ends what an earlier one left behind. Decides how a round goes on; who is meant is the caller's
//! to say. Signals only through a pidfd whose process was looked at after it was opened, so that a
//! number that is somebody else's by now is not signalled.

use std::collections::HashSet;
use std::io;

use nix::poll::{PollTimeout, poll};
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::launcher::TAG_NAME;
use super::process_tree::{
    Process, descendants_of, read_all, read_process, read_variable, with_descendants,
};
use super::reap::{children, to_pid};

/// Rounds until those that are left are given up: with the pauses between them some ten seconds.
pub(crate) const ROUNDS: usize = 500;
/// After so many rounds in a row that found somebody new, processes are forked faster than they
/// are killed one by one.
const RACE_ROUNDS: usize = 3;
/// Between two rounds, in milliseconds: short at first, for most are gone at once.
const PAUSES_MS: [u16; 4] = [1, 2, 5, 10];
const LAST_PAUSE_MS: u16 = 20;

/// Kills whoever `find` names, again and again, until two looks in a row name nobody or `rounds`
/// are over; gives the pids of those that are left.
///
/// # Errors
/// `find` failed: nothing is proved then.
pub(crate) fn end_all(
    mut find: impl FnMut() -> io::Result<Vec<Process>>,
    rounds: usize,
) -> io::Result<Vec<u32>> {
    let mut race = Race::default();
    let mut left = Vec::new();
    let mut was_empty = false;
    for round in 0..rounds {
        let found = find()?;
        left = found.iter().map(|process| process.pid).collect();
        if found.is_empty() {
            // One that was born behind the place where the first look was is seen by the second.
            if was_empty {
                break;
            }
            was_empty = true;
            continue;
        }
        was_empty = false;
        if race.is_seen(&found) {
            signal_all(&found, Signal::STOP);
        }
        signal_all(&found, Signal::KILL);
        pause(round);
    }
    Ok(left)
}

/// Kills all that descends from this process and lives, until there is nobody.
///
/// # Errors
/// `/proc` cannot be read.
pub(crate) fn end_descendants(rounds: usize) -> io::Result<Vec<u32>> {
    let ourselves = std::process::id();
    let find = || {
        // Whoever descends from us descends from a child of ours, and of these the kernel has a
        // list: usually there is none, and all of `/proc` need not be read to know that.
        match children()?.is_empty() {
            true => Ok(Vec::new()),
            false => Ok(descendants_of(ourselves, read_all()?)),
        }
    };
    end_all(find, rounds)
}

/// Kills whoever carries the tag of a run that is `tags` and a number, and all that descends from
/// these.
///
/// # Errors
/// `/proc` cannot be read.
pub(crate) fn end_runs(tags: &str) -> io::Result<Vec<u32>> {
    let is_run = |tag: &str| {
        let number = tag.strip_prefix(tags);
        number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
    };
    end_all(|| Ok(tagged(read_all()?, is_run)), ROUNDS)
}

/// The living processes among `all` whose tag `is_meant`, and all that descends from these. Never
/// this one nor those that it descends from.
pub(crate) fn tagged(all: Vec<Process>, is_meant: impl Fn(&str) -> bool) -> Vec<Process> {
    let carries = |process: &&Process| {
        process.is_alive() && read_tag(process.pid).is_some_and(|tag| is_meant(&tag))
    };
    let seeds = all.iter().filter(carries).map(|process| process.pid);
    let seeds = seeds.collect();
    with_descendants(seeds, all)
}

fn read_tag(pid: u32) -> Option<String> {
    read_variable(pid, TAG_NAME.as_bytes()).and_then(|tag| String::from_utf8(tag).ok())
}

/// Sends `signal` to each of `processes` that is still the one that was seen.
pub(crate) fn signal_all(processes: &[Process], signal: Signal) {
    for process in processes {
        let Some(pid) = to_pid(process.pid) else {
            continue;
        };
        let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) else {
            continue;
        };
        let is_same =
            read_process(process.pid).is_some_and(|now| now.start_ticks == process.start_ticks);
        if is_same {
            // Gone meanwhile, or of another user: the next look tells.
            pidfd_send_signal(&pidfd, signal).ok();
        }
    }
}

/// Waits a moment between two looks.
pub(crate) fn pause(round: usize) {
    let pause = PAUSES_MS.get(round).copied().unwrap_or(LAST_PAUSE_MS);
    // A signal that interrupts only makes the pause shorter.
    poll(&mut [], PollTimeout::from(pause)).ok();
}

/// Sees whether processes are forked while others are killed.
#[derive(Debug, Default)]
struct Race {
    known: HashSet<(u32, u64)>,
    rounds: usize,
}

impl Race {
    /// Takes in what a round found. A race is on when somebody new was found in one round after
    /// the other; then all are stopped before any is killed, so that none forks in between.
    fn is_seen(&mut self, found: &[Process]) -> bool {
        let is_first = self.known.is_empty();
        let mut has_new = false;
        for process in found {
            has_new |= self.known.insert((process.pid, process.start_ticks));
        }
        self.rounds = match has_new && !is_first {
            true => self.rounds + 1,
            false => 0,
        };
        self.rounds >= RACE_ROUNDS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32) -> Process {
        let line = format!("{pid} (p) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {pid} 0 0 0");
        Process::parse(&line).unwrap()
    }

    #[test]
    fn a_race_is_seen_only_when_round_after_round_finds_somebody_new() {
        let check = |rounds: &[&[u32]], expected| {
            let mut race = Race::default();
            let seen = rounds.iter().map(|pids| {
                let found: Vec<Process> = pids.iter().map(|pid| process(*pid)).collect();
                race.is_seen(&found)
            });
            assert_eq!(seen.last(), Some(expected), "{rounds:?}");
        };
        check(&[&[1, 2, 3]], false);
        check(&[&[1], &[1], &[1], &[1], &[1]], false);
        check(&[&[1], &[1, 2], &[2], &[3], &[3, 4]], false);
        check(&[&[1], &[2], &[3], &[4]], true);
    }

    #[test]
    fn rounds_go_on_until_two_looks_find_nobody() {
        let mut looks = vec![0, 0, 1, 0, 0];
        let left = end_all(
            || {
                // Nobody has this number: the highest that Linux gives is below it.
                let found = looks.remove(0);
                Ok(vec![process((1 << 22) + 1); found])
            },
            5,
        );
        assert!(left.unwrap().is_empty());
        assert_eq!(looks, [1, 0, 0], "two looks were enough");
    }

    #[test]
    fn what_cannot_be_ended_is_named_after_the_last_round() {
        let left = end_all(|| Ok(vec![process((1 << 22) + 1)]), 3);
        assert_eq!(left.unwrap(), vec![(1 << 22) + 1]);
    }
}
