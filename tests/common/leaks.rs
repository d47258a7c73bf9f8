//! The proof that nothing is left: no process that carries a test's home in its environment, no zombie.
//!
//! Children of mcpd get `HOME` from the daemon, and each test has a home of its own, so the home's path is
//! the mark of everything that belongs to the test.

use std::fs;
use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Every live process with `home` in its environment: pid and command line.
pub(crate) fn processes_of(home: &Path) -> Vec<(i32, String)> {
    let mark = home.as_os_str().as_encoded_bytes();
    let Ok(processes) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    processes
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| {
            // A process that ended meanwhile, or that is somebody else's, has no environment to read.
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.windows(mark.len()).any(|window| window == mark)
        })
        .map(|pid| (pid, command_line(pid)))
        .collect()
}

/// The command line of a process, with blanks between the words.
pub(crate) fn command_line(pid: i32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes)
        .replace('\0', " ")
        .trim_end()
        .to_owned()
}

/// The zombies among the children of a process.
pub(crate) fn zombies_of(pid: i32) -> Vec<i32> {
    children_of(pid)
        .into_iter()
        .filter(|child| state_of(*child) == Some('Z'))
        .collect()
}

/// The children of all threads of a process.
pub(crate) fn children_of(pid: i32) -> Vec<i32> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    tasks
        .flatten()
        .flat_map(|task| {
            let text = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            text.split_whitespace()
                .filter_map(|child| child.parse().ok())
                .collect::<Vec<i32>>()
        })
        .collect()
}

/// The daemon itself, where `pid` is that of its warden; else `pid`.
pub(crate) fn daemon_below(pid: i32) -> i32 {
    let is_daemon = |child: &i32| command_line(*child).contains("--guarded");
    children_of(pid).into_iter().find(is_daemon).unwrap_or(pid)
}

/// The state letter of a process.
pub(crate) fn state_of(pid: i32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

/// Ends what a failed test left, so that it does not disturb the others.
pub(crate) fn sweep(home: &Path) {
    for (pid, _) in processes_of(home) {
        // Already gone is as good.
        kill(Pid::from_raw(pid), Signal::SIGKILL).ok();
    }
}
