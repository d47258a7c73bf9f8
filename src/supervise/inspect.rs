//! Looks at programs on disk: before a spawn to find them, after a failed one to explain it.
//!
//! Decides nothing about processes; turns what the file system says into words.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use super::failure::{SpawnFailure, Stage};
use super::program::{Interpreter, Probe, error_text, find_program, parse_interpreter, split_path};

/// As much of a file as the kernel reads for the interpreter line (`BINPRM_BUF_SIZE`).
const HEAD_BYTES: u64 = 256;
const ENOENT: i32 = 2;
const ENOEXEC: i32 = 8;
const EACCES: i32 = 13;

/// The file that `command` means on the server's PATH, with an interpreter that is there.
///
/// # Errors
/// [`Stage::Resolve`]: not found, not to be run, or its interpreter is not found.
pub fn resolve(command: &Path, path: &OsStr) -> Result<PathBuf, SpawnFailure> {
    let directories = split_path(path);
    let program = find_program(command, &directories, probe)?;
    if let Some(interpreter) = read_interpreter(&program) {
        check_interpreter(&program, &interpreter, &directories)?;
    }
    Ok(program)
}

/// What stands at `file`.
pub fn probe(file: &Path) -> Probe {
    let metadata = match fs::metadata(file) {
        Ok(metadata) => metadata,
        Err(error) => return probe_error(&error),
    };
    match metadata.file_type() {
        kind if kind.is_dir() => Probe::Directory,
        kind if !kind.is_file() => Probe::NotAFile,
        _ if access(file, Access::EXEC_OK).is_ok() => Probe::Executable,
        _ => Probe::NotExecutable,
    }
}

fn probe_error(error: &io::Error) -> Probe {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Probe::Missing,
        _ => Probe::Unreadable(error.raw_os_error().unwrap_or(EACCES)),
    }
}

fn read_interpreter(program: &Path) -> Option<Interpreter> {
    let mut head = Vec::new();
    let file = fs::File::open(program).ok()?;
    file.take(HEAD_BYTES).read_to_end(&mut head).ok()?;
    parse_interpreter(&head)
}

fn check_interpreter(
    program: &Path,
    interpreter: &Interpreter,
    path: &[PathBuf],
) -> Result<(), SpawnFailure> {
    let named = |why: String| {
        let detail = format!("{}: its first line names {why}", program.display());
        SpawnFailure::new(Stage::Resolve, Some(ENOENT), detail)
    };
    // A relative one counts from the working directory: the kernel will tell.
    if interpreter.file.is_absolute() {
        let file = &interpreter.file;
        match probe(file) {
            Probe::Executable | Probe::Unreadable(_) => {}
            seen => {
                let wrong = match seen {
                    Probe::Missing => "which does not exist",
                    _ => "which cannot be executed",
                };
                let failure = named(format!("the interpreter {}, {wrong}", file.display()));
                return Err(failure.with_hint("install it, or name an interpreter as `command`"));
            }
        }
    }
    if let Some(searched) = &interpreter.searched
        && let Err(failure) = find_program(Path::new(searched), path, probe)
    {
        let hint = failure.hint.clone().unwrap_or_default();
        return Err(named(format!("an interpreter: {failure}")).with_hint(hint));
    }
    Ok(())
}

/// The words for a stage that the shim reported.
pub(super) fn explain(stage: Stage, errno: i32, program: &Path, cwd: &Path) -> SpawnFailure {
    let text = error_text(errno);
    let failure = |detail: String| SpawnFailure::new(stage, Some(errno), detail);
    let program = program.display();
    match (stage, errno) {
        (Stage::Directory, _) => failure(format!("cwd {}: {text}", cwd.display()))
            .with_hint("make the folder, or set `cwd` to one that you may enter"),
        (Stage::Limits, _) => failure(format!("the limit `open_files` cannot be set: {text}"))
            .with_hint(
                "it may not be above the hard limit of the daemon (`ulimit -Hn`, LimitNOFILE)",
            ),
        (Stage::Exec, ENOEXEC) => failure(format!(
            "{program}: is neither a program of this machine nor a script with an interpreter line"
        ))
        .with_hint(
            "begin it with a line such as `#!/bin/sh`, or name its interpreter as `command`",
        ),
        (Stage::Exec, ENOENT) => failure(format!(
            "{program}: its interpreter or dynamic loader does not exist"
        ))
        .with_hint("it may be built for another system or C library"),
        (Stage::Exec, EACCES) => failure(format!("{program}: {text}"))
            .with_hint("check its permissions, and that its file system is not mounted noexec"),
        (Stage::Exec, _) => failure(format!("{program}: {text}")),
        _ => failure(format!(
            "{} failed before the program: {text}",
            stage.as_str()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// A folder with one file of this text and mode, and what becomes of it as a command.
    fn check(text: &str, mode: u32, expected: &str) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("it");
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        let said = match resolve(&file, OsStr::new("/usr/bin:/bin")) {
            Ok(_) => "ok".to_owned(),
            Err(failure) => failure.to_string(),
        };
        let said = said.replace(file.to_str().unwrap(), "IT");
        assert_eq!(said, expected);
    }

    #[test]
    fn each_fault_has_its_own_words() {
        check("#!/bin/sh\n", 0o755, "ok");
        check("#!/bin/sh\n", 0o644, "IT: is not executable");
        check(
            "#!/no/such/sh\n",
            0o755,
            "IT: its first line names the interpreter /no/such/sh, which does not exist",
        );
        check(
            "#!/usr/bin/env no-such-node\n",
            0o755,
            "IT: its first line names an interpreter: no-such-node: not found in PATH \
             (/usr/bin:/bin)",
        );
        check("#!/usr/bin/env sh\n", 0o755, "ok");
    }

    #[test]
    fn what_is_no_file_is_told() {
        let said = |path: &str| {
            resolve(Path::new(path), OsStr::new("/bin"))
                .unwrap_err()
                .detail
        };
        assert_eq!(said("/bin/"), "/bin/: is a directory, not a program");
        assert_eq!(said("/bin/sh/x"), "/bin/sh/x: no such file");
        assert_eq!(said("/dev/null"), "/dev/null: is not a regular file");
    }
}
