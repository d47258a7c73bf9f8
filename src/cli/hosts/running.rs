//! Whether a host runs, as `/proc` tells.
//!
//! Looks at processes of the same user with the same home, since another home has other files. It
//! signals nobody.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::HostKind;

/// More of an environment than decides.
const LOOK_LIMIT: usize = 65_536;

/// The pid of a process of `host` that uses the files below `home`.
pub(super) fn running_pid(host: &HostKind, home: &Path) -> Option<u32> {
    let own = std::process::id();
    let uid = nix::unistd::getuid().as_raw();
    let entries = fs::read_dir("/proc").ok()?.take(LOOK_LIMIT).flatten();
    let mut found: Vec<u32> = entries
        .filter(|entry| entry.metadata().is_ok_and(|found| found.uid() == uid))
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| *pid != own && is_host(*pid, host) && has_home(*pid, home))
        .collect();
    found.sort_unstable();
    found.first().copied()
}

/// By the name of the process, of its program, or of the script that an interpreter runs.
fn is_host(pid: u32, host: &HostKind) -> bool {
    let named = |name: &[u8]| host.processes.iter().any(|known| known.as_bytes() == name);
    let comm = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    if named(comm.trim_ascii_end()) {
        return true;
    }
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    words.split(|byte| *byte == 0).take(2).any(|word| {
        let name = Path::new(OsStr::from_bytes(word)).file_name();
        name.is_some_and(|name| named(name.as_bytes()))
    })
}

fn has_home(pid: u32, home: &Path) -> bool {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let expected = home.as_os_str().as_bytes();
    environment
        .split(|byte| *byte == 0)
        .any(|variable| variable.strip_prefix(b"HOME=") == Some(expected))
}
