//! The shim between the spawner and the program: `mcpd __exec`, hidden, one thread.
//!
//! It reads its plan from descriptor 3, puts this process in order (session, signals, control
//! group, umask, limits, working directory, descriptors) and executes the program. What fails goes to descriptor 4 as
//! stage and error number; the end of that pipe without a word says that the program runs. Its own
//! environment is empty, and it writes nothing else anywhere.

use std::convert::Infallible;
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::SigSet;
use nix::sys::stat::{Mode, umask};
use nix::unistd::{Pid, chdir, execve, getpid, getsid, setsid};

use super::failure::{SpawnFailure, Stage};
use super::launcher::{LaunchPlan, TAG_NAME};
use super::sys;

/// The argument that makes `mcpd` this shim.
pub const ARGUMENT: &str = "__exec";
/// Where the plan is read from.
pub(super) const PLAN_FD: RawFd = 3;
/// Where a failure is written to.
pub(super) const STATUS_FD: RawFd = 4;
/// A failure on the status pipe: the stage, then the error number, little endian.
pub(super) const REPORT_BYTES: usize = 5;
/// What a shim exits with when it fails. Nobody reads it: the report says more.
const FAILED: i32 = 127;
/// Children are worth less to the kernel than the daemon and the person's own programs.
const OOM_SCORE_STEP: i32 = 200;
const OOM_SCORE_LIMIT: i32 = 1000;

/// Descriptors that a program may have open (`setrlimit(2)`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FileLimits {
    /// For who does not raise it, where a daemon that raised its own must not pass that on:
    /// programs that use `select(2)` break above 1,024.
    pub(super) soft: u32,
    pub(super) hard: u32,
}

/// A plan as the shim needs it.
#[derive(Debug, PartialEq, Eq)]
struct Orders {
    program: CString,
    argv: Vec<CString>,
    env: Vec<CString>,
    cwd: PathBuf,
    umask: u32,
    /// Where to enter the control group; empty for none.
    entrance: PathBuf,
    /// The limits for open descriptors, 0 for the one that is inherited.
    open_files: FileLimits,
}

/// Becomes the program of the plan on descriptor 3, or reports why not and exits. `main` calls
/// this before anything else when the first argument is [`ARGUMENT`].
pub fn run() -> ! {
    if let (Ok(plan), Ok(status)) = (sys::take_inherited(PLAN_FD), sys::take_inherited(STATUS_FD)) {
        let Err((stage, errno)) = become_program(File::from(plan));
        let mut report = [0; REPORT_BYTES];
        report[0] = stage.code();
        report[1..].copy_from_slice(&(errno as i32).to_le_bytes());
        // Nobody is left to tell if this fails: the exit code says it.
        drop(File::from(status).write_all(&report));
    }
    std::process::exit(FAILED)
}

fn become_program(mut plan: File) -> Result<Infallible, (Stage, Errno)> {
    let mut bytes = Vec::new();
    plan.read_to_end(&mut bytes)
        .map_err(|_| (Stage::Plan, Errno::last()))?;
    let orders = decode(&bytes).ok_or((Stage::Plan, Errno::EBADMSG))?;
    lead_session().map_err(|errno| (Stage::Session, errno))?;
    clean_signals().map_err(|errno| (Stage::Signals, errno))?;
    enter_group(&orders.entrance).map_err(|errno| (Stage::ControlGroup, errno))?;
    umask(Mode::from_bits_truncate(orders.umask));
    raise_oom_score();
    limit_files(orders.open_files).map_err(|errno| (Stage::Limits, errno))?;
    chdir(&orders.cwd).map_err(|errno| (Stage::Directory, errno))?;
    sys::close_on_exec_from(3).map_err(|_| (Stage::Descriptors, Errno::last()))?;
    execve(&orders.program, &orders.argv, &orders.env).map_err(|errno| (Stage::Exec, errno))
}

/// The spawner asks `posix_spawn` for the session already, so that a group exists as soon as the
/// pid is known; a C library that ignores the flag is made up for here.
fn lead_session() -> Result<(), Errno> {
    if getsid(None::<Pid>)? == getpid() {
        return Ok(());
    }
    setsid().map(drop)
}

/// Rust's runtime ignores SIGPIPE in this very process; children must not.
fn clean_signals() -> Result<(), Errno> {
    sys::reset_signals().map_err(|_| Errno::last())?;
    SigSet::empty().thread_set_mask()
}

/// Goes where the program and all that comes from it are to be found again. 0 is the writer.
fn enter_group(entrance: &Path) -> Result<(), Errno> {
    if entrance.as_os_str().is_empty() {
        return Ok(());
    }
    let entered = File::options()
        .write(true)
        .open(entrance)
        .and_then(|mut file| file.write_all(b"0"));
    entered.map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(0)))
}

fn limit_files(limits: FileLimits) -> Result<(), Errno> {
    if limits == FileLimits::default() {
        return Ok(());
    }
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    let or = |wanted: u32, inherited| {
        if wanted == 0 {
            inherited
        } else {
            wanted.into()
        }
    };
    let (soft, hard) = (or(limits.soft, soft), or(limits.hard, hard));
    setrlimit(Resource::RLIMIT_NOFILE, soft.min(hard), hard)
}

/// Best effort: a kernel that refuses leaves the child as it is.
fn raise_oom_score() {
    const FILE: &str = "/proc/self/oom_score_adj";
    let now = std::fs::read_to_string(FILE).ok();
    if let Some(now) = now.and_then(|text| text.trim().parse::<i32>().ok()) {
        let raised = (now + OOM_SCORE_STEP).min(OOM_SCORE_LIMIT);
        drop(std::fs::write(FILE, raised.to_string()));
    }
}

/// The bytes of `plan` for descriptor 3, with the file by which the control group is entered and
/// the soft limit for descriptors where the plan has none: numbers and lengths as little endian
/// `u32`, strings as they are, so that what is not UTF-8 passes.
///
/// # Errors
/// Something holds a NUL byte, which no argument, variable or path can (`execve(2)`).
pub(super) fn encode(
    plan: &LaunchPlan,
    entrance: &Path,
    soft_files: u32,
) -> Result<Vec<u8>, SpawnFailure> {
    // First, where a look at the environment of a foreign process finds it soonest.
    let tag = (!plan.tag.is_empty()).then(|| OsString::from(format!("{TAG_NAME}={}", plan.tag)));
    let mut env = Vec::from_iter(tag);
    for (name, value) in &plan.env {
        if name != TAG_NAME {
            env.push([name.as_os_str(), value].join(OsStr::new("=")));
        }
    }
    let mut bytes = plan.umask.to_le_bytes().to_vec();
    // Both where it is told, or the program could take back what the soft one takes.
    let (soft, hard) = match plan.limits.open_files {
        Some(limit) => (limit, limit),
        None => (soft_files, 0),
    };
    bytes.extend(soft.to_le_bytes());
    bytes.extend(hard.to_le_bytes());
    put(&mut bytes, "the control group", entrance.as_os_str())?;
    put(&mut bytes, "the working directory", plan.cwd.as_os_str())?;
    put(&mut bytes, "the program's path", plan.program.as_os_str())?;
    put_all(&mut bytes, "an argument", &plan.argv)?;
    put_all(&mut bytes, "an environment variable", &env)?;
    Ok(bytes)
}

fn put_all(bytes: &mut Vec<u8>, what: &str, all: &[OsString]) -> Result<(), SpawnFailure> {
    put_length(bytes, what, all.len())?;
    all.iter().try_for_each(|one| put(bytes, what, one))
}

fn put(bytes: &mut Vec<u8>, what: &str, text: &OsStr) -> Result<(), SpawnFailure> {
    if text.as_bytes().contains(&0) {
        let detail = format!("{what} holds a NUL byte");
        return Err(SpawnFailure::new(Stage::Configuration, None, detail));
    }
    put_length(bytes, what, text.len())?;
    bytes.extend_from_slice(text.as_bytes());
    Ok(())
}

fn put_length(bytes: &mut Vec<u8>, what: &str, length: usize) -> Result<(), SpawnFailure> {
    let length = u32::try_from(length).map_err(|_| {
        let detail = format!("{what} is too long");
        SpawnFailure::new(Stage::Exec, Some(Errno::E2BIG as i32), detail)
    })?;
    bytes.extend_from_slice(&length.to_le_bytes());
    Ok(())
}

fn decode(bytes: &[u8]) -> Option<Orders> {
    let mut rest = bytes;
    let umask = take_number(&mut rest)?;
    let open_files = FileLimits {
        soft: take_number(&mut rest)?,
        hard: take_number(&mut rest)?,
    };
    let entrance = take_path(&mut rest)?;
    let cwd = take_path(&mut rest)?;
    let program = CString::new(take_bytes(&mut rest)?).ok()?;
    let argv = take_all(&mut rest)?;
    let env = take_all(&mut rest)?;
    rest.is_empty().then_some(Orders {
        program,
        argv,
        env,
        cwd,
        umask,
        entrance,
        open_files,
    })
}

fn take_path(rest: &mut &[u8]) -> Option<PathBuf> {
    Some(Path::new(OsStr::from_bytes(take_bytes(rest)?)).to_owned())
}

fn take_all(rest: &mut &[u8]) -> Option<Vec<CString>> {
    let count = take_number(rest)?;
    (0..count)
        .map(|_| CString::new(take_bytes(rest)?).ok())
        .collect()
}

fn take_bytes<'b>(rest: &mut &'b [u8]) -> Option<&'b [u8]> {
    let length = usize::try_from(take_number(rest)?).ok()?;
    let (taken, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(taken)
}

fn take_number(rest: &mut &[u8]) -> Option<u32> {
    let (number, after) = rest.split_first_chunk::<4>()?;
    *rest = after;
    Some(u32::from_le_bytes(*number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::spec::ResourceLimits;
    use proptest::prelude::*;
    use std::os::unix::ffi::OsStringExt;

    fn plan(argv: Vec<Vec<u8>>, env: Vec<(Vec<u8>, Vec<u8>)>) -> LaunchPlan {
        let text = OsString::from_vec;
        LaunchPlan {
            program: "/bin/true".into(),
            argv: argv.into_iter().map(text).collect(),
            env: env.into_iter().map(|(n, v)| (text(n), text(v))).collect(),
            cwd: "/".into(),
            umask: 0o027,
            limits: ResourceLimits {
                open_files: Some(99),
                ..ResourceLimits::default()
            },
            tag: "u/s/1".into(),
        }
    }

    fn encoded(plan: &LaunchPlan) -> Result<Vec<u8>, SpawnFailure> {
        encode(plan, Path::new("/g/cgroup.procs"), 1024)
    }

    fn words() -> impl Strategy<Value = Vec<Vec<u8>>> {
        prop::collection::vec(prop::collection::vec(1_u8.., 0..20), 0..6)
    }

    proptest! {
        #[test]
        fn any_bytes_but_nul_pass(argv in words(), names in words(), values in words()) {
            let env = names.into_iter().zip(values).collect::<Vec<_>>();
            let orders = decode(&encoded(&plan(argv.clone(), env.clone())).unwrap()).unwrap();
            let got: Vec<Vec<u8>> = orders.argv.into_iter().map(CString::into_bytes).collect();
            prop_assert_eq!(got, argv);
            prop_assert_eq!(orders.env[0].as_bytes(), b"MCPD_INSTANCE=u/s/1");
            prop_assert_eq!(orders.env.len(), env.len() + 1);
            prop_assert_eq!(orders.umask, 0o027);
            prop_assert_eq!(orders.open_files, FileLimits { soft: 99, hard: 99 });
            prop_assert_eq!(orders.entrance, Path::new("/g/cgroup.procs"));
        }

        #[test]
        fn a_cut_plan_is_refused(cut in 0_usize..90) {
            let whole = encoded(&plan(vec![b"a".to_vec()], Vec::new())).unwrap();
            prop_assume!(cut < whole.len());
            prop_assert_eq!(decode(&whole[..cut]), None);
        }
    }

    #[test]
    fn a_nul_byte_is_an_error_of_the_configuration() {
        let failure = encoded(&plan(vec![b"a\0b".to_vec()], Vec::new())).unwrap_err();
        assert_eq!(failure.stage, Stage::Configuration);
        assert_eq!(failure.detail, "an argument holds a NUL byte");
    }

    #[test]
    fn without_a_limit_only_the_soft_one_is_told() {
        let mut plan = plan(Vec::new(), Vec::new());
        plan.limits.open_files = None;
        let orders = decode(&encoded(&plan).unwrap()).unwrap();
        assert_eq!(
            orders.open_files,
            FileLimits {
                soft: 1024,
                hard: 0
            }
        );
    }

    #[test]
    fn a_tag_of_the_configuration_is_replaced() {
        let forged = vec![(TAG_NAME.into(), b"forged".to_vec())];
        let orders = decode(&encoded(&plan(Vec::new(), forged)).unwrap()).unwrap();
        assert_eq!(orders.env.len(), 1);
    }
}
