//! Process trees: launchers as npx and docker are, and grandchildren that try to get away.
//!
//! Everything here ends by itself after five minutes, so that a failed test leaves nothing for ever.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use nix::sys::signal::kill;
use nix::unistd::{Pid, getpgrp, getsid, setsid};

use crate::record::Record;
use crate::signals::{self, Obey};
use crate::{linger, pause};

/// Pid, parent, group, session and terminal, for the record and the tool `process`.
pub(crate) fn describe_process() -> String {
    let session = getsid(None).map_or(-1, Pid::as_raw);
    let terminal = std::fs::File::open("/dev/tty").is_ok();
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let umask = status
        .lines()
        .find_map(|line| line.strip_prefix("Umask:"))
        .unwrap_or("")
        .trim();
    format!(
        "pid={} ppid={} pgid={} sid={session} tty={terminal} umask={umask}",
        std::process::id(),
        nix::unistd::getppid(),
        getpgrp()
    )
}

fn fake(mode: &str) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("fake-mcp").arg(mode);
    command
}

/// Starts a grandchild of one kind and leaves it alone.
#[allow(
    clippy::zombie_processes,
    reason = "nobody waiting for it is the fault that is played"
)]
pub(crate) fn start_grandchild(kind: &str, record: Option<&str>) {
    let mut command = fake(if kind.starts_with("double") {
        "double-fork"
    } else {
        "grandchild"
    });
    for part in kind
        .split_once('-')
        .map_or("", |(_, parts)| parts)
        .split("-and-")
    {
        match part {
            "" => {}
            "ignore-term" => drop(command.arg("--ignore-term")),
            "keep-stdout" => drop(command.arg("--keep-stdout")),
            "unmarked" => drop(command.env_clear()),
            other => panic!("unknown grandchild {other}"),
        }
    }
    if kind.starts_with("setsid") || kind.starts_with("double") {
        command.arg("--setsid");
    }
    if let Some(record) = record {
        command.args(["--record", record]);
    }
    command.stdin(Stdio::null()).stderr(Stdio::null());
    if !kind.contains("keep-stdout") {
        command.stdout(Stdio::null());
    }
    let mut child = command.spawn().expect("a grandchild starts");
    if kind.starts_with("double") {
        child.wait().expect("the first fork ends at once");
    }
}

/// Starts a process that only stays.
#[allow(
    clippy::zombie_processes,
    reason = "nobody waiting for it is the fault that is played"
)]
pub(crate) fn start_sitter() -> std::io::Result<()> {
    let mut command = fake("grandchild");
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(Stdio::null()).spawn().map(drop)
}

/// Starts the grandchild and exits, so that the grandchild is an orphan.
#[allow(
    clippy::zombie_processes,
    reason = "nobody waiting for it is the fault that is played"
)]
pub(crate) fn double_fork(args: &[String]) -> ExitCode {
    let mut command = fake("grandchild");
    command.args(args).spawn().expect("a grandchild starts");
    ExitCode::SUCCESS
}

/// A process that only stays.
pub(crate) fn grandchild(args: &[String]) -> ExitCode {
    if args.iter().any(|arg| arg == "--setsid") {
        // Fails only for a group leader, which a spawned process is not.
        setsid().ok();
    }
    let record = Record::open(after(args, "--record"));
    let ignore = args.iter().any(|arg| arg == "--ignore-term");
    signals::take_over(
        record.clone(),
        Box::new(move |_| if ignore { Obey::No } else { Obey::Yes }),
    );
    record.add("GRANDCHILD", describe_process().as_bytes());
    linger()
}

/// npx, uvx, sh: starts the real server below itself and waits for it. Ends on SIGTERM without telling
/// anybody, as most launchers do.
pub(crate) fn launcher(args: &[String]) -> ExitCode {
    let (own, server) = split(args);
    let levels: u32 =
        after(own, "--levels").map_or(1, |levels| levels.parse().expect("--levels N"));
    let mut command = if levels > 1 {
        let mut command = fake("launcher");
        command.args(["--levels", &(levels - 1).to_string(), "--"]);
        command
    } else {
        Command::new("/proc/self/exe")
    };
    let mut child = command.args(server).spawn().expect("the server starts");
    exit_as(&mut child)
}

/// docker run: the container lives in a session of its own and outlives its client, unless the client
/// gets 300 ms after SIGTERM to pass the signal on.
pub(crate) fn docker(args: &[String]) -> ExitCode {
    let (own, server) = split(args);
    if own.iter().any(|arg| arg == "-t" || arg == "-it") {
        crate::server::write_stderr(b"the input device is not a TTY\n");
        return ExitCode::from(1);
    }
    let container = Arc::new(AtomicI32::new(0));
    let told = Arc::clone(&container);
    let record = Record::open(after(own, "--record"));
    signals::take_over(
        record,
        Box::new(move |signal| {
            pause(Duration::from_millis(300));
            let pid = told.load(Ordering::SeqCst);
            if pid > 0 {
                kill(Pid::from_raw(pid), signal).ok();
            }
            Obey::No
        }),
    );
    let mut command = Command::new("/proc/self/exe");
    // A group of its own is what a session is to a signal.
    command.args(server).process_group(0);
    let mut child = command.spawn().expect("the container starts");
    container.store(child.id() as i32, Ordering::SeqCst);
    exit_as(&mut child)
}

fn exit_as(child: &mut Child) -> ExitCode {
    let status = child.wait().expect("the child can be waited for");
    ExitCode::from(status.code().map_or(1, |code| code as u8))
}

fn split(args: &[String]) -> (&[String], &[String]) {
    let at = args
        .iter()
        .position(|arg| arg == "--")
        .unwrap_or(args.len());
    (&args[..at], args.get(at + 1..).unwrap_or_default())
}

fn after<'a>(args: &'a [String], name: &str) -> Option<&'a str> {
    let at = args.iter().position(|arg| arg == name)?;
    args.get(at + 1).map(String::as_str)
}
