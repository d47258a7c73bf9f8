//! A control group of the test's own, for daemons that are given one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use super::home::{Home, MCPD};
use super::wait::{say, wait_until};

/// Tells the groups of one test program apart.
static COUNT: AtomicU32 = AtomicU32::new(0);

/// A group that nobody else uses. Dropping it proves that nothing of it is left.
#[derive(Debug)]
pub(crate) struct ControlGroup {
    folder: PathBuf,
}

impl ControlGroup {
    /// A group with a name that ends in `suffix`; none, and a word on it, where there can be none.
    pub(crate) fn make(test: &str, suffix: &str) -> Option<Self> {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("mcpd-main-{}-{number}{suffix}", std::process::id());
        let folder = own_folder().map(|own| own.join(name));
        let made = folder.filter(|folder| fs::create_dir(folder).is_ok());
        if made.is_none() {
            say(&format!(
                "SKIPPED: {test} needs a version 2 control group that it may divide"
            ));
        }
        made.map(|folder| Self { folder })
    }

    /// `mcpd daemon` with these arguments in this group; `variables` are set for it, in which `$$` is
    /// its pid.
    pub(crate) fn daemon(&self, home: &Home, variables: &str, arguments: &str) -> Command {
        let mut command = home.program_command("sh");
        let procs = self.folder.join("cgroup.procs");
        let script = format!(
            "echo $$ >{} && {variables} exec \"$0\" daemon {arguments}",
            procs.display()
        );
        command.args(["-c", &script, MCPD]);
        command
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The groups of servers in it.
    pub(crate) fn leaves(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.folder).expect("the group").flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter(|name| name.starts_with("server-")).collect()
    }

    fn is_populated(&self) -> bool {
        let events = fs::read_to_string(self.folder.join("cgroup.events"));
        events.expect("the group").contains("populated 1")
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // Whatever it was that failed, nothing of it disturbs the others.
            drop(fs::write(self.folder.join("cgroup.kill"), "1"));
        }
        wait_until("nobody is left in the group", || {
            (!self.is_populated()).then_some(())
        });
        let leaves = self.leaves();
        for name in leaves.iter().map(String::as_str).chain(["supervisor"]) {
            drop(fs::remove_dir(self.folder.join(name)));
        }
        drop(fs::remove_dir(&self.folder));
        if !std::thread::panicking() {
            assert_eq!(leaves, Vec::<String>::new(), "groups of servers are left");
        }
    }
}

/// Where the version 2 group of this process is mounted.
fn own_folder() -> Option<PathBuf> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let mount = mounts.lines().find(|line| line.contains(" - cgroup2 "))?;
    Some(Path::new(mount.split(' ').nth(4)?).join(own))
}
