//! The few kernel calls that nix and rustix have no safe form of.
//!
//! The only file of this room with `unsafe`; each block says why it is sound. Decides nothing.

#![allow(
    unsafe_code,
    reason = "raw system calls and an inherited descriptor; every block is argued"
)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use nix::libc;
use tokio::io::{Interest, unix::AsyncFd};

/// `PIDFD_SIGNAL_PROCESS_GROUP` of `pidfd_send_signal(2)`, Linux 6.9.
const SIGNAL_PROCESS_GROUP: libc::c_uint = 1 << 2;

/// `CLOSE_RANGE_CLOEXEC` of `close_range(2)`, Linux 5.11.
const CLOSE_RANGE_CLOEXEC: libc::c_uint = 1 << 2;

/// The highest signal number of Linux on the ports that we build for.
const LAST_SIGNAL: libc::c_int = 64;

/// Takes ownership of a descriptor that this process was started with. To be called once for each
/// number, by the exec shim for what the spawner gave it, and by the daemon for what a service
/// manager gave it (sd_listen_fds(3)).
pub(crate) fn take_inherited(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: F_GETFD has no argument and no effect; it only tells whether `fd` is open.
    if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `fd` is open, and nothing else in this process knows of it: whoever started it put
    // it there.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Gives the pages of this process's code back; what is needed again is read again. A process that
/// is about to sleep for long holds little but its data then.
pub(crate) fn give_back_code() {
    // Without it the pages stay, which costs memory and nothing else.
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    for (start, len) in maps.lines().filter_map(code_of_a_file) {
        // SAFETY: a mapping of a file that is executable and cannot be written, so its pages are
        // as they are in the file, and the next access reads them from there (madvise(2),
        // MADV_DONTNEED). This function's own page comes back the same way.
        unsafe { libc::madvise(start as *mut libc::c_void, len, libc::MADV_DONTNEED) };
    }
}

/// Where the mapping is that a line of `/proc/PID/maps` tells of, and how long, if it is private
/// code of a file (proc_pid_maps(5)).
fn code_of_a_file(line: &str) -> Option<(usize, usize)> {
    let mut words = line.split_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let (permissions, inode) = (words.next()?, words.nth(2)?);
    let [start, end] = [start, end].map(|text| usize::from_str_radix(text, 16).ok());
    (permissions == "r-xp" && inode != "0").then_some((start?, end? - start?))
}

/// Sends `signal` to the whole group that the process behind `pidfd` leads. It cannot reach a
/// stranger, even after the leader was reaped.
pub(super) fn signal_group(pidfd: BorrowedFd<'_>, signal: libc::c_int) -> io::Result<()> {
    // SAFETY: pidfd_send_signal(2) takes a descriptor, a number, a siginfo pointer that may be
    // null, and flags; it reads no other memory.
    let sent = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            pidfd.as_raw_fd(),
            signal,
            std::ptr::null::<libc::siginfo_t>(),
            SIGNAL_PROCESS_GROUP,
        )
    };
    if sent < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Gives every signal its default disposition. glibc's `sigaction` refuses 32 and 33, which it
/// uses itself; ignored ones of these would be inherited too, so the kernel is asked directly.
pub(crate) fn reset_signals() -> io::Result<()> {
    // The kernel's struct sigaction: handler (SIG_DFL is 0), flags, restorer and an 8-byte mask,
    // in whichever order the port has them. All zero in any order; with room to spare.
    let default = [0_u64; 8];
    for signal in 1..=LAST_SIGNAL {
        if signal == libc::SIGKILL || signal == libc::SIGSTOP {
            continue;
        }
        // SAFETY: `default` is readable, larger than the kernel's structure and aligned for it;
        // the old action is not asked for; 8 is the size of the kernel's mask.
        let set = unsafe {
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                default.as_ptr(),
                std::ptr::null_mut::<u64>(),
                8_usize,
            )
        };
        if set < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Watches a pidfd: it is readable once the process has ended (`pidfd_open(2)`).
pub(super) fn watch(pidfd: Arc<OwnedFd>) -> io::Result<AsyncFd<Arc<OwnedFd>>> {
    // SAFETY: an `Arc<OwnedFd>` gives the same open descriptor for as long as it lives.
    let watched = unsafe { AsyncFd::register_with_interest(pidfd, Interest::READABLE) };
    Ok(watched?)
}

/// Makes sure that children that end become zombies: a process that was started with SIGCHLD
/// ignored loses their exit status (`wait(2)`, notes). A handler that is installed stays.
pub(crate) fn keep_exit_statuses() {
    // SAFETY: both structures are plain data, valid when zeroed; the second call is made only when
    // the signal is ignored, so no handler of anybody is lost.
    unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(libc::SIGCHLD, std::ptr::null(), &raw mut now) == 0
            && now.sa_sigaction == libc::SIG_IGN
        {
            let default: libc::sigaction = std::mem::zeroed();
            libc::sigaction(libc::SIGCHLD, &raw const default, std::ptr::null_mut());
        }
    }
}

/// Marks every descriptor from `first` on as close-on-exec.
pub(super) fn close_on_exec_from(first: libc::c_uint) -> io::Result<()> {
    // SAFETY: close_range(2) takes three numbers; with this flag it closes nothing.
    let marked = unsafe {
        libc::syscall(
            libc::SYS_close_range,
            first,
            libc::c_uint::MAX,
            CLOSE_RANGE_CLOEXEC,
        )
    };
    if marked == 0 {
        return Ok(());
    }
    close_on_exec_one_by_one(first)
}

/// The same for a kernel before 5.11.
fn close_on_exec_one_by_one(first: libc::c_uint) -> io::Result<()> {
    let open: Vec<RawFd> = std::fs::read_dir("/proc/self/fd")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|fd| i64::from(*fd) >= i64::from(first))
        .collect();
    for fd in open {
        // SAFETY: F_SETFD changes a flag of a number; one that is closed by now is only an error,
        // and nothing can hold that number meanwhile, for the shim has one thread.
        unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
    Ok(())
}

/// In tests the test binary itself is the shim: it is called as `/proc/self/exe __exec` like the
/// real one. What stands in `.init_array` runs before the test harness sees the arguments.
#[cfg(test)]
mod test_shim {
    extern "C" fn run_as_shim() {
        if std::env::args_os().nth(1).is_some_and(|it| it == "__exec") {
            crate::supervise::exec::run();
        }
    }

    // SAFETY: the loader calls the functions of this section once, before `main` and in the only
    // thread; the function has the C calling convention and may ignore its arguments.
    #[used]
    #[unsafe(link_section = ".init_array")]
    static RUN_AS_SHIM: extern "C" fn() = run_as_shim;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_of_files_is_given_back() {
        let place = |line| code_of_a_file(line);
        assert_eq!(
            place("55d0-55e0 r-xp 00002000 fd:01 42 /usr/bin/mcpd"),
            Some((0x55d0, 0x10))
        );
        for other in [
            "55d0-55e0 r--p 00002000 fd:01 42 /usr/bin/mcpd",
            "55d0-55e0 rw-p 00002000 fd:01 42 /usr/bin/mcpd",
            "7ffe-7fff r-xp 00000000 00:00 0 [vdso]",
            "55d0-55e0 r-xp",
            "",
        ] {
            assert_eq!(place(other), None, "{other}");
        }
    }

    #[test]
    fn code_that_was_given_back_still_runs() {
        give_back_code();
        assert_eq!("mcpd".len(), 4);
        give_back_code();
    }
}
