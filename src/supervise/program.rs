//! Which file a command means, and why none or not this one.
//!
//! Decides by what it is told of files; never looks at one itself ([`inspect`](super::inspect)
//! does). A command with a slash is that file; a bare one is searched on the server's PATH. Nothing
//! is split, nothing is quoted, no shell is asked.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::failure::{SpawnFailure, Stage};

/// What stands at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    Missing,
    Directory,
    /// A pipe, socket or device.
    NotAFile,
    NotExecutable,
    Executable,
    /// The error number of the look.
    Unreadable(i32),
}

/// The directories of a PATH in order. Relative and empty ones mean the working directory of
/// whoever asks, which for a daemon is nobody's: they are left out.
pub fn split_path(path: &OsStr) -> Vec<PathBuf> {
    std::env::split_paths(path)
        .filter(|directory| directory.is_absolute())
        .collect()
}

/// The file that `command` means.
///
/// # Errors
/// [`Stage::Resolve`], each case in its own words; for a bare command with the directories
/// searched and the remedy.
pub fn find_program(
    command: &Path,
    path: &[PathBuf],
    probe: impl Fn(&Path) -> Probe,
) -> Result<PathBuf, SpawnFailure> {
    if command.as_os_str().as_bytes().contains(&b'/') {
        return match probe(command) {
            Probe::Executable => Ok(command.to_owned()),
            seen => Err(wrong_file(command, seen)),
        };
    }
    // Like execvp(3): a file that cannot be run does not end the search, but is named if it does
    // not succeed.
    let mut refused = None;
    for directory in path {
        let file = directory.join(command);
        match probe(&file) {
            Probe::Executable => return Ok(file),
            Probe::NotExecutable => refused = refused.or(Some(file)),
            Probe::Missing | Probe::Directory | Probe::NotAFile | Probe::Unreadable(_) => {}
        }
    }
    Err(match refused {
        Some(file) => wrong_file(&file, Probe::NotExecutable),
        None => not_found(command, path),
    })
}

fn wrong_file(file: &Path, seen: Probe) -> SpawnFailure {
    let shown = file.display();
    let (errno, detail, hint) = match seen {
        Probe::Missing | Probe::Executable => (
            2,
            format!("{shown}: no such file"),
            "check `command` in the server's file".to_owned(),
        ),
        Probe::Directory => (
            21,
            format!("{shown}: is a directory, not a program"),
            "name the program inside it".to_owned(),
        ),
        Probe::NotAFile => (
            13,
            format!("{shown}: is not a regular file"),
            "name a program".to_owned(),
        ),
        Probe::NotExecutable => (
            13,
            format!("{shown}: is not executable"),
            format!("run `chmod +x {shown}`, or name its interpreter as `command`"),
        ),
        Probe::Unreadable(errno) => (
            errno,
            format!("{shown}: {}", error_text(errno)),
            "check the permissions of its folders".to_owned(),
        ),
    };
    SpawnFailure::new(Stage::Resolve, Some(errno), detail).with_hint(hint)
}

fn not_found(command: &Path, path: &[PathBuf]) -> SpawnFailure {
    let command = command.display();
    let searched = render_path(path);
    SpawnFailure::new(
        Stage::Resolve,
        Some(2),
        format!("{command}: not found in PATH ({searched})"),
    )
    .with_hint(
        "give its folder as `path` in the server's file or under [defaults] in mcpd.toml, or the \
         full path as `command`",
    )
}

fn render_path(path: &[PathBuf]) -> String {
    let directories: Vec<String> = path.iter().map(|it| it.display().to_string()).collect();
    match directories.len() {
        0 => "which is empty".to_owned(),
        _ => directories.join(":"),
    }
}

/// The words of the C library for an error number.
pub(super) fn error_text(errno: i32) -> String {
    let text = std::io::Error::from_raw_os_error(errno).to_string();
    match text.split_once(" (os error") {
        Some((words, _)) => words.to_lowercase(),
        None => text,
    }
}

/// What runs a script, from its first line (`execve(2)`, interpreter scripts).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interpreter {
    /// The file named by the line.
    pub file: PathBuf,
    /// The bare program that `env` is to find on PATH, if the line is of that kind.
    pub searched: Option<OsString>,
}

/// The interpreter that the first bytes of a file name, if they do.
pub fn parse_interpreter(head: &[u8]) -> Option<Interpreter> {
    let line = head
        .strip_prefix(b"#!")?
        .split(|byte| *byte == b'\n')
        .next()?;
    let mut words = line
        .split(|byte| matches!(byte, b' ' | b'\t'))
        .filter(|word| !word.is_empty());
    let file = PathBuf::from(OsStr::from_bytes(words.next()?));
    let mut argument = words.next();
    let is_env = file.file_name() == Some(OsStr::new("env"));
    if argument == Some(b"-S") {
        argument = words.next();
    }
    // Options and assignments of `env` are beyond us: then nothing is said of what it finds.
    let plain = |word: &&[u8]| is_env && !word.starts_with(b"-") && !word.contains(&b'=');
    Some(Interpreter {
        file,
        searched: argument
            .filter(plain)
            .map(|word| OsStr::from_bytes(word).to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn world(file: &Path) -> Probe {
        match file.to_str() {
            Some("/a/tool" | "/b/tool" | "/opt/my tool/run it") => Probe::Executable,
            Some("/a/plain" | "/b/text") => Probe::NotExecutable,
            Some("/b/plain") => Probe::Executable,
            Some("/a/folder") => Probe::Directory,
            Some("/a/pipe") => Probe::NotAFile,
            Some("/locked/x") => Probe::Unreadable(13),
            _ => Probe::Missing,
        }
    }

    fn check(command: &str, expected: Result<&str, &str>) {
        let path = [PathBuf::from("/a"), PathBuf::from("/b")];
        let found = find_program(Path::new(command), &path, world);
        let found = found.as_deref().map(|it| it.to_str().unwrap());
        assert_eq!(
            found.map_err(ToString::to_string),
            expected.map_err(str::to_owned)
        );
    }

    #[test]
    fn a_bare_command_is_searched_in_order() {
        check("tool", Ok("/a/tool"));
        check("plain", Ok("/b/plain"));
        check("gone", Err("gone: not found in PATH (/a:/b)"));
        check("text", Err("/b/text: is not executable"));
        check("folder", Err("folder: not found in PATH (/a:/b)"));
    }

    #[test]
    fn a_path_is_taken_as_it_is() {
        check("/a/tool", Ok("/a/tool"));
        check("/opt/my tool/run it", Ok("/opt/my tool/run it"));
        check("/a/none", Err("/a/none: no such file"));
        check("/a/folder", Err("/a/folder: is a directory, not a program"));
        check("/a/pipe", Err("/a/pipe: is not a regular file"));
        check("/a/plain", Err("/a/plain: is not executable"));
        check("/locked/x", Err("/locked/x: permission denied"));
    }

    #[test]
    fn an_empty_path_is_said_to_be_empty() {
        let failure = find_program(Path::new("npx"), &[], world).unwrap_err();
        assert_eq!(failure.detail, "npx: not found in PATH (which is empty)");
        assert!(failure.hint.unwrap().contains("[defaults]"));
    }

    #[test]
    fn relative_parts_of_a_path_are_left_out() {
        let split = split_path(OsStr::new("/a::bin:.:/b"));
        assert_eq!(split, [PathBuf::from("/a"), PathBuf::from("/b")]);
    }

    #[test]
    fn interpreters_are_read_as_the_kernel_reads_them() {
        let check = |line: &str, expected: Option<(&str, Option<&str>)>| {
            let found = parse_interpreter(line.as_bytes());
            let expected = expected.map(|(file, searched)| Interpreter {
                file: file.into(),
                searched: searched.map(OsString::from),
            });
            assert_eq!(found, expected, "{line}");
        };
        check("#!/bin/sh\nx", Some(("/bin/sh", None)));
        check("#! /bin/sh -e\n", Some(("/bin/sh", None)));
        check(
            "#!/usr/bin/env node\n",
            Some(("/usr/bin/env", Some("node"))),
        );
        check(
            "#!/usr/bin/env -S node --x\n",
            Some(("/usr/bin/env", Some("node"))),
        );
        check("#!/usr/bin/env A=1 node\n", Some(("/usr/bin/env", None)));
        check("echo hi\n", None);
        check("#!\n", None);
    }
}
