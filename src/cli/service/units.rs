//! The two unit files: what is in them, and whether those on disk are ours.
//!
//! The texts are the repository's `systemd/`, filled in with the program's path.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::{SERVICE, SOCKET};
use crate::cli::error::CliError;
use crate::cli::whole_file::write_whole;

const SERVICE_TEXT: &str = include_str!("../../../systemd/mcpd.service");
const SOCKET_TEXT: &str = include_str!("../../../systemd/mcpd.socket");

/// The first systemd that has a state folder for user units in the place for state. Before, it takes
/// `~/.config/mcpd` for it, which holds the configuration: it opens that folder to others at each
/// start, and does not start at all if that is a link.
const STATE_FOLDER_SINCE: u32 = 254;
/// What asks for the state folder. mcpd makes its own where it is not asked for.
const STATE_FOLDER_LINE: &str = "StateDirectory=mcpd\n";

/// What stands for the program in the repository's unit.
const PLACEHOLDER: &str = "/absolute/path/of/the/installed/mcpd";

/// One unit file as it is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UnitFile {
    pub(super) unit: &'static str,
    pub(super) path: PathBuf,
    pub(super) text: String,
}

/// How a file on disk compares to ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Missing,
    Same,
    /// Written by us, for another program or by another version.
    Other,
}

/// Both unit files for a program and a version of systemd.
pub(super) fn unit_files(folder: &Path, program: &str, version: u32) -> [UnitFile; 2] {
    let mut service = SERVICE_TEXT.replace(PLACEHOLDER, program);
    if version < STATE_FOLDER_SINCE {
        service = service.replace(STATE_FOLDER_LINE, "");
    }
    [
        UnitFile {
            unit: SOCKET,
            path: folder.join(SOCKET),
            text: SOCKET_TEXT.to_owned(),
        },
        UnitFile {
            unit: SERVICE,
            path: folder.join(SERVICE),
            text: service,
        },
    ]
}

/// `program` as a word of `ExecStart=` (systemd.service(5), "Command lines"), or nothing if there is
/// no such word for it.
pub(super) fn render_program(program: &Path) -> Option<String> {
    let text = program.to_str()?;
    if !program.is_absolute() || text.chars().any(char::is_control) {
        return None;
    }
    // A specifier begins with %; the program itself knows no variables, but $ must not become one.
    let text = text.replace('%', "%%").replace('$', "$$");
    let is_plain = |letter: char| letter.is_alphanumeric() || "/._-+@:,=%~".contains(letter);
    if text.chars().all(is_plain) {
        return Some(text);
    }
    Some(format!(
        "\"{}\"",
        text.replace('\\', "\\\\").replace('"', "\\\"")
    ))
}

impl UnitFile {
    /// Compares with what is on disk.
    ///
    /// # Errors
    /// It cannot be read, or somebody else has put it there.
    pub(super) fn compare(&self) -> Result<Found, CliError> {
        let place = self.path.display();
        let kind = match fs::symlink_metadata(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Missing),
            Err(error) => {
                let message = format!("cannot look at {place}");
                return Err(CliError::internal(message).because(error));
            }
            Ok(found) => found.file_type(),
        };
        if !kind.is_file() {
            return Err(not_ours(&self.path, "it is no plain file"));
        }
        let text = fs::read_to_string(&self.path)
            .map_err(|error| CliError::internal(format!("cannot read {place}")).because(error))?;
        if text == self.text {
            return Ok(Found::Same);
        }
        let description = self
            .text
            .lines()
            .find(|line| line.starts_with("Description="));
        match text.lines().any(|line| Some(line) == description) {
            true => Ok(Found::Other),
            false => Err(not_ours(&self.path, "it describes another unit")),
        }
    }

    /// Writes the file.
    pub(super) fn write(&self) -> Result<(), CliError> {
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        let made = fs::DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(folder);
        made.and_then(|()| write_whole(&self.path, self.text.as_bytes(), 0o644))
            .map_err(|error| {
                CliError::internal(format!("cannot write {}", self.path.display())).because(error)
            })
    }
}

fn not_ours(path: &Path, why: &str) -> CliError {
    CliError::server(format!(
        "{} was not written by mcpd: {why}",
        path.display()
    ))
    .hint("whatever put it there has to take it away first; your own changes go into a drop-in: `systemctl --user edit mcpd.service`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_units_run_the_program_that_wrote_them() {
        let [socket, service] = unit_files(Path::new("/u"), "/opt/mcpd", 255);
        assert_eq!(service.path, Path::new("/u/mcpd.service"));
        assert!(service.text.contains("\nExecStart=/opt/mcpd daemon\n"));
        assert!(
            service
                .text
                .contains("\nExecReload=/opt/mcpd reload --wait\n")
        );
        assert!(!service.text.contains(PLACEHOLDER));
        assert!(service.text.contains(STATE_FOLDER_LINE));
        let [_, older] = unit_files(Path::new("/u"), "/opt/mcpd", 252);
        assert_eq!(older.text, service.text.replace(STATE_FOLDER_LINE, ""));
        assert!(socket.text.contains("\nFileDescriptorName=control\n"));
    }

    #[test]
    fn a_program_is_one_word_of_the_command_line() {
        let check = |path: &str, expected: Option<&str>| {
            assert_eq!(
                render_program(Path::new(path)).as_deref(),
                expected,
                "{path}"
            );
        };
        check("/usr/bin/mcpd", Some("/usr/bin/mcpd"));
        check("/home/ädä/mcpd", Some("/home/ädä/mcpd"));
        check("/my tools/mcpd", Some("\"/my tools/mcpd\""));
        check("/100%/mcpd", Some("/100%%/mcpd"));
        check("/a$b/mcpd", Some("\"/a$$b/mcpd\""));
        check("/a\"b\\/mcpd", Some("\"/a\\\"b\\\\/mcpd\""));
        check("/a\nb", None);
        check("mcpd", None);
    }

    #[test]
    fn only_what_mcpd_wrote_is_ours() {
        let folder = tempfile::tempdir().unwrap();
        let [_, service] = unit_files(folder.path(), "/opt/mcpd", 255);
        assert_eq!(service.compare().unwrap(), Found::Missing);
        service.write().unwrap();
        assert_eq!(service.compare().unwrap(), Found::Same);
        let [_, newer] = unit_files(folder.path(), "/usr/bin/mcpd", 255);
        assert_eq!(newer.compare().unwrap(), Found::Other);
        fs::write(&service.path, "[Unit]\nDescription=mine\n").unwrap();
        assert!(service.compare().is_err());
        fs::remove_file(&service.path).unwrap();
        std::os::unix::fs::symlink("/dev/null", &service.path).unwrap();
        assert!(service.compare().is_err());
        let left: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
        assert_eq!(left.len(), 1);
    }
}
