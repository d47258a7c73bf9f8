//! What `/proc` tells of processes: who belongs to whom, and what they use.
//!
//! Reads and adds up; decides who is a member of a run (by group, session, descent or tag) and
//! nothing else. Field numbers are those of `proc_pid_stat(5)`.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::{self, Read};
use std::time::Duration;

use nix::unistd::{SysconfVar, sysconf};

/// No environment that is looked through for a tag is read further than this.
const ENVIRONMENT_LIMIT_BYTES: u64 = 4 << 20;

/// One line of `/proc/PID/stat`, as far as it matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    pub pid: u32,
    /// The first 15 bytes of the program's name, or what it calls itself.
    pub name: String,
    /// `R`, `S`, `D`, `T`, `Z` and so on.
    pub state: char,
    pub parent: u32,
    pub group: u32,
    pub session: u32,
    pub threads: u32,
    /// User and system time, in clock ticks.
    pub cpu_ticks: u64,
    /// Since boot, in clock ticks.
    pub start_ticks: u64,
    /// Resident pages.
    pub resident_pages: u64,
}

impl Process {
    /// The process that this line of `/proc/PID/stat` tells of.
    pub fn parse(line: &str) -> Option<Self> {
        // The name stands in parentheses and may hold any byte, these included: the last one ends it.
        let (pid, rest) = line.split_once(" (")?;
        let (name, rest) = rest.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        // `fields[0]` is field 3 of the manual page.
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        let small = |field: usize| u32::try_from(number(field)?).ok();
        Some(Self {
            pid: pid.parse().ok()?,
            name: name.to_owned(),
            state: fields.first()?.chars().next()?,
            parent: small(4)?,
            group: small(5)?,
            session: small(6)?,
            threads: small(20)?,
            cpu_ticks: number(14)? + number(15)?,
            start_ticks: number(22)?,
            resident_pages: number(24)?,
        })
    }

    /// Whether anything of it still runs. A zombie whose first thread has left while others go on
    /// has more than one thread.
    pub fn is_alive(&self) -> bool {
        match self.state {
            'Z' | 'X' | 'x' => self.threads > 1,
            _ => true,
        }
    }
}

/// The process `pid`, if there is one.
pub fn read_process(pid: u32) -> Option<Process> {
    let bytes = fs::read(format!("/proc/{pid}/stat")).ok()?;
    Process::parse(&String::from_utf8_lossy(&bytes))
}

/// All processes. One that ends meanwhile is left out.
///
/// # Errors
/// `/proc` itself cannot be read.
pub fn read_all() -> io::Result<Vec<Process>> {
    let mut all = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        if let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) {
            all.extend(read_process(pid));
        }
    }
    Ok(all)
}

/// Who leads a run, for good: a pid alone may be somebody else's by now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leader {
    pub pid: u32,
    pub start_ticks: u64,
}

/// Whether the leader's number is its own still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    /// It runs, or is a zombie that nobody has reaped: group and session are its too.
    Held,
    /// It was reaped: whoever has this number, or a group or session of it, is a stranger.
    Free,
}

/// The living processes of a run among `all`: those of the leader's group or session, those that
/// are `marked`, and whoever descends from one of these. Never the process `ourselves`.
pub fn members_of(
    leader: Leader,
    number: Number,
    all: &[Process],
    ourselves: u32,
    mut is_marked: impl FnMut(u32) -> bool,
) -> Vec<u32> {
    let mut belongs: HashSet<u32> = HashSet::new();
    for process in all {
        let by_number = number == Number::Held
            && (process.pid == leader.pid
                || process.group == leader.pid
                || process.session == leader.pid);
        let not_older = process.start_ticks >= leader.start_ticks && process.pid != ourselves;
        if not_older && (by_number || (process.is_alive() && is_marked(process.pid))) {
            belongs.insert(process.pid);
        }
    }
    add_descendants(&mut belongs, all, ourselves);
    let mut members: Vec<u32> = all
        .iter()
        .filter(|process| belongs.contains(&process.pid) && process.is_alive())
        .map(|process| process.pid)
        .collect();
    members.sort_unstable();
    members
}

/// The living processes among `all` that descend from `root`, itself left out.
pub fn descendants_of(root: u32, all: Vec<Process>) -> Vec<Process> {
    let mut belongs = HashSet::from([root]);
    add_descendants(&mut belongs, &all, root);
    belongs.remove(&root);
    all.into_iter()
        .filter(|process| belongs.contains(&process.pid) && process.is_alive())
        .collect()
}

/// The living processes among `all` that are one of `seeds` or descend from one, but neither this
/// process nor any that it descends from.
pub fn with_descendants(mut seeds: HashSet<u32>, all: Vec<Process>) -> Vec<Process> {
    let ourselves = std::process::id();
    add_descendants(&mut seeds, &all, ourselves);
    let parents: HashMap<u32, u32> = all.iter().map(|it| (it.pid, it.parent)).collect();
    let mut at = Some(ourselves);
    // A chain cannot be longer than the list; the bound ends a walk over a torn one.
    for _ in 0..=all.len() {
        let Some(pid) = at else { break };
        seeds.remove(&pid);
        at = parents.get(&pid).copied();
    }
    all.into_iter()
        .filter(|process| seeds.contains(&process.pid) && process.is_alive())
        .collect()
}

fn add_descendants(belongs: &mut HashSet<u32>, all: &[Process], ourselves: u32) {
    let mut children: HashMap<u32, Vec<&Process>> = HashMap::new();
    for process in all {
        children.entry(process.parent).or_default().push(process);
    }
    let is_member = |process: &&Process| belongs.contains(&process.pid);
    let mut unseen: Vec<&Process> = all.iter().filter(is_member).collect();
    while let Some(parent) = unseen.pop() {
        for child in children.get(&parent.pid).into_iter().flatten() {
            // A child that is older than its parent is that of an earlier process of the number.
            let is_its = child.pid != ourselves && child.start_ticks >= parent.start_ticks;
            if is_its && belongs.insert(child.pid) {
                unseen.push(child);
            }
        }
    }
}

/// Where in the kernel `pid` waits, if it does and we may know.
pub fn read_wait_channel(pid: u32) -> Option<String> {
    let channel = fs::read_to_string(format!("/proc/{pid}/wchan")).ok()?;
    (!matches!(channel.as_str(), "" | "0")).then_some(channel)
}

/// Whether the environment that `pid` was executed with has the variable `entry` (`NAME=VALUE`).
/// One that cannot be read has not.
pub fn has_variable(pid: u32, entry: &[u8]) -> bool {
    let mut environment = Vec::new();
    let read = fs::File::open(format!("/proc/{pid}/environ")).and_then(|file| {
        file.take(ENVIRONMENT_LIMIT_BYTES)
            .read_to_end(&mut environment)
    });
    read.is_ok() && environment.split(|byte| *byte == 0).any(|it| it == entry)
}

/// The value of the variable `name` in the environment that `pid` was executed with, if that can
/// be read and has it.
pub fn read_variable(pid: u32, name: &[u8]) -> Option<Vec<u8>> {
    let mut environment = Vec::new();
    let file = fs::File::open(format!("/proc/{pid}/environ")).ok()?;
    file.take(ENVIRONMENT_LIMIT_BYTES)
        .read_to_end(&mut environment)
        .ok()?;
    let mut entries = environment.split(|byte| *byte == 0);
    entries.find_map(|entry| Some(entry.strip_prefix(name)?.strip_prefix(b"=")?.to_vec()))
}

/// How memory was counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryKind {
    /// Shared pages divided by their users: the sum is true.
    Proportional,
    /// Shared pages counted for each: the sum is too high.
    Resident,
}

impl MemoryKind {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Proportional => "pss",
            Self::Resident => "rss",
        }
    }
}

/// What the tree of a run uses now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    pub memory_bytes: u64,
    pub memory_kind: MemoryKind,
    /// User and system time of the processes that live.
    pub cpu: Duration,
    /// Threads of all processes.
    pub tasks: u64,
    /// Open descriptors of all processes that let us look.
    pub descriptors: u64,
    pub processes: Vec<Process>,
}

/// Measures the tree of `leader`: its group, session and descendants, without a look at anybody's
/// environment. Reads `/proc` once: on demand, never on a timer.
///
/// # Errors
/// `/proc` cannot be read.
pub fn measure(leader: Leader) -> io::Result<Usage> {
    let all = read_all()?;
    let ourselves = std::process::id();
    let members: HashSet<u32> = members_of(leader, Number::Held, &all, ourselves, |_| false)
        .into_iter()
        .collect();
    let processes: Vec<Process> = all
        .into_iter()
        .filter(|process| members.contains(&process.pid))
        .collect();
    let (memory_bytes, memory_kind) = measure_memory(&processes);
    Ok(Usage {
        memory_bytes,
        memory_kind,
        cpu: ticks_to_duration(processes.iter().map(|it| it.cpu_ticks).sum()),
        tasks: processes.iter().map(|it| u64::from(it.threads)).sum(),
        descriptors: processes.iter().map(|it| count_descriptors(it.pid)).sum(),
        processes,
    })
}

/// Proportional if every process lets us see that, else resident for all: never a mixture.
fn measure_memory(processes: &[Process]) -> (u64, MemoryKind) {
    let proportional: Option<u64> = processes.iter().map(|it| read_pss_bytes(it.pid)).sum();
    match proportional {
        Some(bytes) => (bytes, MemoryKind::Proportional),
        None => {
            let pages: u64 = processes.iter().map(|it| it.resident_pages).sum();
            (
                pages * system_value(SysconfVar::PAGE_SIZE, 4096),
                MemoryKind::Resident,
            )
        }
    }
}

fn read_pss_bytes(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    let kilobytes: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

fn count_descriptors(pid: u32) -> u64 {
    fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, |entries| entries.count() as u64)
}

/// Clock ticks as time.
pub fn ticks_to_duration(ticks: u64) -> Duration {
    let per_second = system_value(SysconfVar::CLK_TCK, 100);
    Duration::from_millis(ticks.saturating_mul(1000) / per_second)
}

/// A constant of the system, or what it is everywhere if it is not told.
fn system_value(name: SysconfVar, usual: u64) -> u64 {
    let value = sysconf(name).ok().flatten();
    value
        .and_then(|value| u64::try_from(value).ok())
        .filter(|value| *value > 0)
        .unwrap_or(usual)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "42 (a (b) c) S 7 42 42 0 -1 4194560 1 2 3 4 50 60 0 0 20 0 3 0 \
        9876 1000 11 18446744073709551615 1 2 3 4 5 6 7 8 9 0 0 0 17 1 0 0 0 0 0";

    fn process(pid: u32, parent: u32, group: u32, session: u32, state: char) -> Process {
        Process {
            pid,
            name: String::new(),
            state,
            parent,
            group,
            session,
            threads: 1,
            cpu_ticks: 0,
            start_ticks: u64::from(pid),
            resident_pages: 0,
        }
    }

    /// The members of the run that 10 leads; 1 is the daemon, 90 carries the tag.
    fn check(all: &[Process], expected: &[u32]) {
        let leader = Leader {
            pid: 10,
            start_ticks: 10,
        };
        let found = members_of(leader, Number::Held, all, 1, |pid| pid == 90);
        assert_eq!(found, expected);
    }

    #[test]
    fn a_name_with_parentheses_and_blanks_is_read() {
        let process = Process::parse(LINE).unwrap();
        assert_eq!(process.name, "a (b) c");
        assert_eq!((process.pid, process.parent, process.group), (42, 7, 42));
        assert_eq!((process.threads, process.cpu_ticks), (3, 110));
        assert_eq!((process.start_ticks, process.resident_pages), (9876, 11));
        assert_eq!(Process::parse("42 (x"), None);
    }

    #[test]
    fn group_session_descent_and_tag_make_a_member() {
        check(
            &[
                process(1, 0, 1, 1, 'S'),
                process(10, 1, 10, 10, 'S'),
                process(11, 10, 10, 10, 'S'),
                process(12, 1, 12, 10, 'S'),
                process(13, 11, 13, 13, 'S'),
                process(20, 1, 20, 20, 'S'),
                process(90, 1, 90, 90, 'S'),
                process(91, 90, 91, 91, 'S'),
            ],
            &[10, 11, 12, 13, 90, 91],
        );
    }

    #[test]
    fn zombies_count_only_while_a_thread_lives() {
        let mut threaded = process(12, 10, 10, 10, 'Z');
        threaded.threads = 2;
        let dead = process(11, 10, 10, 10, 'Z');
        check(&[process(10, 1, 10, 10, 'Z'), dead, threaded], &[12]);
    }

    #[test]
    fn an_older_process_with_the_same_number_is_a_stranger() {
        let mut older = process(50, 2, 10, 10, 'S');
        older.start_ticks = 3;
        check(&[process(10, 1, 10, 10, 'Z'), older], &[]);
    }

    #[test]
    fn a_child_that_is_older_than_its_parent_is_a_strangers() {
        let mut older = process(50, 11, 50, 50, 'S');
        older.start_ticks = 10;
        let all = [
            process(10, 1, 10, 10, 'S'),
            process(11, 10, 10, 10, 'S'),
            older,
        ];
        check(&all, &[10, 11]);
    }

    /// Fault 26: the numbers of a leader that was reaped are anybody's.
    #[test]
    fn the_numbers_of_a_reaped_leader_are_strangers() {
        let leader = Leader {
            pid: 10,
            start_ticks: 10,
        };
        let mut stranger = process(10, 2, 10, 10, 'S');
        stranger.start_ticks = 99;
        let all = [
            stranger,
            process(90, 1, 90, 90, 'S'),
            process(91, 90, 91, 91, 'S'),
        ];
        let found = members_of(leader, Number::Free, &all, 1, |pid| pid == 90);
        assert_eq!(found, [90, 91]);
    }

    #[test]
    fn descendants_are_found_below_others_and_live() {
        let found = descendants_of(
            10,
            vec![
                process(1, 0, 1, 1, 'S'),
                process(10, 1, 10, 10, 'S'),
                process(11, 10, 11, 11, 'Z'),
                process(12, 11, 12, 12, 'S'),
                process(13, 1, 10, 10, 'S'),
            ],
        );
        let pids: Vec<u32> = found.iter().map(|process| process.pid).collect();
        assert_eq!(pids, [12]);
    }

    #[test]
    fn the_daemon_is_never_a_member() {
        let mut daemon = process(1, 10, 10, 10, 'S');
        daemon.start_ticks = 99;
        check(&[daemon], &[]);
    }

    #[test]
    fn we_can_measure_ourselves() {
        let me = read_process(std::process::id()).unwrap();
        let all = read_all().unwrap();
        assert!(all.iter().any(|it| it.pid == me.pid));
        let leader = Leader {
            pid: me.pid,
            start_ticks: me.start_ticks,
        };
        // Ourselves is left out by rule: a measurement of the daemon is another's.
        let usage = measure(leader).unwrap();
        assert!(usage.processes.iter().all(|it| it.pid != me.pid));
    }
}
