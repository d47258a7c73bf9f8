//! Control groups (`cgroups(7)`, version 2): the one that was given to the daemon, and a leaf in it
//! for each run.
//!
//! A process cannot leave its group unseen, whatever sessions and parents it takes, and a write to
//! `cgroup.kill` ends all of a group at once, those that are being forked included. So a leaf finds
//! and ends what nothing else would. Makes, reads, kills and removes groups; whether a group is
//! ours to divide is decided by whoever calls [`Delegated::take`].

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::hierarchy::{
    SUPERVISOR, folder_of, given_group, is_leaf_name, leaf_name, number_of, own_group,
};
use super::process_tree::read_process;
use super::reap::to_pid;
use crate::config::spec::ResourceLimits;

/// How long leaves of an earlier daemon may take to be empty once they are killed.
const SWEEP_WAIT: Duration = Duration::from_secs(2);
/// Between two looks at them.
const SWEEP_PAUSE: Duration = Duration::from_millis(5);
/// Leaves that may have one name before that is an error.
const NAME_ATTEMPTS: usize = 100;
/// How deep a leaf's own groups are followed.
const DEPTH_LIMIT: usize = 16;

/// The controllers that limits need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Controllers {
    pub memory: bool,
    pub pids: bool,
}

/// A group that is the daemon's to divide, for as long as this lives.
#[derive(Debug)]
pub struct Delegated {
    folder: PathBuf,
    controllers: Controllers,
    /// Locked, so that no two daemons take each other's leaves for leftovers.
    _lock: File,
}

/// What [`Delegated::take`] found and could not mend, a sentence each.
pub type Complaints = Vec<String>;

impl Delegated {
    /// Takes the group in which this process is: moves it to a place of its own below, enables the
    /// controllers, and ends and removes what an earlier daemon left there. Before any spawn.
    ///
    /// # Errors
    /// There is no version 2 group, another daemon has it, or it may not be divided.
    pub fn take() -> io::Result<(Self, Complaints)> {
        let text = fs::read_to_string("/proc/self/cgroup")?;
        let no_group = || io::Error::other("this process is in no group of version 2");
        let own = own_group(&text).ok_or_else(no_group)?;
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        let unseen = || io::Error::other("the group of this process is not mounted");
        let folder = folder_of(given_group(own), &mounts).ok_or_else(unseen)?;
        Self::take_folder(folder)
    }

    /// The same for the group in `folder`.
    pub(super) fn take_folder(folder: PathBuf) -> io::Result<(Self, Complaints)> {
        let lock = File::open(&folder)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| io::Error::other("another daemon has this group"))?;
        let mut complaints = sweep(&folder)?;
        let place = folder.join(SUPERVISOR);
        make_folder(&place)?;
        // The one that started us as itself may watch over us in the same group.
        for pid in [Some(std::process::id()), guardian()].into_iter().flatten() {
            write(&place.join("cgroup.procs"), &pid.to_string())?;
        }
        let controllers = enable_controllers(&folder, &mut complaints);
        let group = Self {
            folder,
            controllers,
            _lock: lock,
        };
        // Whether leaves can be made and joined is seen now, not at the first start of a server.
        let trial = Leaf::at(group.folder.join("server-trial"));
        make_folder(&trial.folder)?;
        let entered = File::options()
            .write(true)
            .open(trial.folder.join("cgroup.procs"));
        trial.remove()?;
        entered?;
        Ok((group, complaints))
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What can be limited below this group.
    pub fn controllers(&self) -> Controllers {
        self.controllers
    }

    /// An empty leaf for the run with this tag, with its limits; none for a run without a tag.
    pub(super) fn make_leaf(&self, tag: &str, limits: &ResourceLimits) -> io::Result<Option<Leaf>> {
        for attempt in 0..NAME_ATTEMPTS {
            let Some(name) = leaf_name(tag, attempt) else {
                return Ok(None);
            };
            let folder = self.folder.join(name);
            match fs::create_dir(&folder) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => {
                    made?;
                    let leaf = Leaf::at(folder);
                    if let Err(error) = leaf.limit(limits, self.controllers) {
                        // Nobody was in it; if it stays, the next daemon's sweep takes it.
                        drop(leaf.remove());
                        return Err(error);
                    }
                    return Ok(Some(leaf));
                }
            }
        }
        Err(io::Error::other("leaves of this name are left over"))
    }
}

/// Makes memory and tasks countable in the leaves, as far as the kernel and whoever gave us the
/// group let us.
fn enable_controllers(folder: &Path, complaints: &mut Complaints) -> Controllers {
    let offered = read(&folder.join("cgroup.controllers")).unwrap_or_default();
    let mut enable = |name: &str| {
        if !offered.split_whitespace().any(|it| it == name) {
            return false;
        }
        let enabled = write(&folder.join("cgroup.subtree_control"), &format!("+{name}"));
        if let Err(error) = &enabled {
            complaints.push(format!(
                "the controller \"{name}\" cannot be enabled in {}: {error}",
                folder.display()
            ));
        }
        enabled.is_ok()
    };
    Controllers {
        memory: enable("memory"),
        pids: enable("pids"),
    }
}

/// What a service of this user's systemd can be given; nothing where there is no such systemd.
pub fn controllers_of_services(uid: u32) -> Controllers {
    let manager = format!("/user.slice/user-{uid}.slice/user@{uid}.service");
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let folder = folder_of(Path::new(&manager), &mounts);
    let offered = folder.and_then(|folder| read(&folder.join("cgroup.controllers")).ok());
    let offered = offered.unwrap_or_default();
    let has = |name: &str| offered.split_whitespace().any(|it| it == name);
    Controllers {
        memory: has("memory"),
        pids: has("pids"),
    }
}

/// Our parent, if it is this very program and in the same group.
fn guardian() -> Option<u32> {
    let parent = read_process(std::process::id())?.parent;
    let facts = |pid: &str| {
        let program = fs::read_link(format!("/proc/{pid}/exe")).ok()?;
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
        Some((program, own_group(&groups)?.to_owned()))
    };
    let ours = facts("self")?;
    (facts(&parent.to_string())? == ours).then_some(parent)
}

/// Ends and removes every leaf that is there: none of them is ours, for nothing was started yet.
fn sweep(folder: &Path) -> io::Result<Complaints> {
    let mut leaves = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if is_leaf_name(&entry.file_name()) && entry.file_type()?.is_dir() {
            leaves.push(Leaf::at(entry.path()));
        }
    }
    let mut complaints = Complaints::new();
    let mut waited = Duration::ZERO;
    while !leaves.is_empty() && waited < SWEEP_WAIT {
        // A leaf that cannot be killed or removed is tried again and told of in the end.
        leaves.retain(|leaf| {
            drop(leaf.kill());
            leaf.is_populated().unwrap_or(true) || leaf.remove().is_err()
        });
        if !leaves.is_empty() {
            std::thread::sleep(SWEEP_PAUSE);
            waited += SWEEP_PAUSE;
        }
    }
    for leaf in leaves {
        let pids = leaf.processes().unwrap_or_default();
        let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
        complaints.push(format!(
            "an earlier daemon left the group {} with process {}, which does not end",
            leaf.folder.display(),
            pids.join(", ")
        ));
    }
    Ok(complaints)
}

/// The group of one run.
#[derive(Debug)]
pub(super) struct Leaf {
    folder: PathBuf,
}

impl Leaf {
    /// The one in `folder`, which is there already.
    pub(super) fn at(folder: PathBuf) -> Self {
        Self { folder }
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The file by which a process enters.
    pub(super) fn entrance(&self) -> PathBuf {
        self.folder.join("cgroup.procs")
    }

    fn limit(&self, limits: &ResourceLimits, controllers: Controllers) -> io::Result<()> {
        if controllers.memory {
            // What is left of a server after one of its processes is killed is of no use.
            write(&self.folder.join("memory.oom.group"), "1")?;
            if let Some(bytes) = limits.memory_bytes {
                write(&self.folder.join("memory.max"), &bytes.to_string())?;
            }
        }
        if controllers.pids
            && let Some(tasks) = limits.tasks
        {
            write(&self.folder.join("pids.max"), &tasks.to_string())?;
        }
        Ok(())
    }

    /// Sends SIGKILL to everybody in it and below.
    pub(super) fn kill(&self) -> io::Result<()> {
        match write(&self.folder.join("cgroup.kill"), "1") {
            // Linux before 5.14.
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.kill_one_by_one(),
            killed => killed,
        }
    }

    pub(super) fn kill_one_by_one(&self) -> io::Result<()> {
        for number in self.processes()? {
            let Some(pid) = to_pid(number) else { continue };
            let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) else {
                continue;
            };
            // Looked at after the pidfd was opened: what is read is of whom will be signalled.
            if self.holds(number) {
                // Gone meanwhile, or of another user: the next look tells.
                pidfd_send_signal(&pidfd, Signal::KILL).ok();
            }
        }
        Ok(())
    }

    /// Whether the process `pid` is in it or below.
    fn holds(&self, pid: u32) -> bool {
        let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        // The mount may show a part of the tree only, so the leaf's own name has to do.
        let name = self.folder.file_name();
        own_group(&text).is_some_and(|group| group.iter().any(|part| Some(part) == name))
    }

    /// Whether anybody lives in it or below. A zombie does not.
    pub(super) fn is_populated(&self) -> io::Result<bool> {
        match read(&self.folder.join("cgroup.events")) {
            Ok(events) => Ok(number_of(&events, "populated") != Some(0)),
            // Removed already.
            Err(error) if is_gone(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Everybody in it and below.
    pub(super) fn processes(&self) -> io::Result<Vec<u32>> {
        let mut pids = Vec::new();
        collect(&self.folder, DEPTH_LIMIT, &mut pids)?;
        pids.sort_unstable();
        pids.dedup();
        Ok(pids)
    }

    /// Whether the kernel killed anybody in it because there was no memory left.
    pub(super) fn was_oom_killed(&self) -> bool {
        let events = read(&self.folder.join("memory.events")).unwrap_or_default();
        number_of(&events, "oom_kill").is_some_and(|count| count > 0)
    }

    /// Removes it and what was made below it; nobody may be in it any more.
    pub(super) fn remove(&self) -> io::Result<()> {
        remove(&self.folder, DEPTH_LIMIT)
    }
}

/// What a leaf has used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeafUsage {
    pub memory_bytes: Option<u64>,
    pub memory_peak_bytes: Option<u64>,
    /// All that ever ran in it, not only who lives.
    pub cpu: Option<Duration>,
    pub tasks: Option<u64>,
}

/// What the leaf in `folder` has used, as far as its controllers count it.
pub fn measure_leaf(folder: &Path) -> LeafUsage {
    let number = |file: &str| read(&folder.join(file)).ok()?.trim().parse().ok();
    let cpu = read(&folder.join("cpu.stat")).unwrap_or_default();
    LeafUsage {
        memory_bytes: number("memory.current"),
        memory_peak_bytes: number("memory.peak"),
        cpu: number_of(&cpu, "usage_usec").map(Duration::from_micros),
        tasks: number("pids.current"),
    }
}

fn collect(folder: &Path, depth: usize, pids: &mut Vec<u32>) -> io::Result<()> {
    match read(&folder.join("cgroup.procs")) {
        Ok(text) => pids.extend(text.lines().filter_map(|line| line.parse::<u32>().ok())),
        Err(error) if is_gone(&error) => return Ok(()),
        // A group of threads lists its processes above (EOPNOTSUPP).
        Err(error) if error.kind() == io::ErrorKind::Unsupported => {}
        Err(error) => return Err(error),
    }
    if depth > 0 {
        for below in groups_below(folder)? {
            collect(&below, depth - 1, pids)?;
        }
    }
    Ok(())
}

fn remove(folder: &Path, depth: usize) -> io::Result<()> {
    if depth > 0 {
        for below in groups_below(folder)? {
            remove(&below, depth - 1)?;
        }
    }
    match fs::remove_dir(folder) {
        Err(error) if is_gone(&error) => Ok(()),
        removed => removed,
    }
}

fn groups_below(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if is_gone(&error) => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut groups = Vec::new();
    for entry in entries {
        let entry = entry?;
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            groups.push(entry.path());
        }
    }
    Ok(groups)
}

/// A group that was removed: its folder is not there, or its files were open and are dead.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(nix::libc::ENODEV)
}

fn make_folder(folder: &Path) -> io::Result<()> {
    match fs::create_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

fn read(file: &Path) -> io::Result<String> {
    fs::read_to_string(file)
}

/// One write, which is how these files take a value; never makes a file.
fn write(file: &Path, value: &str) -> io::Result<()> {
    File::options()
        .write(true)
        .open(file)?
        .write_all(value.as_bytes())
}
