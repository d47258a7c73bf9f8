//! The PATH of the terminal that installs the service, kept in `mcpd.toml`: systemd's own has no
//! version manager in it.
//!
//! A line is added to the file, everything else in it stays byte for byte. A `path` that is there
//! already is never changed.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::cli::error::CliError;
use crate::cli::whole_file::write_whole;

/// What became of `path`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Captured {
    Written,
    /// It says the same already.
    Same,
    /// It says something else, which stays.
    Kept,
    /// PATH says nothing that could be kept.
    Nothing,
}

/// The folders of a PATH that mean the same everywhere, each once.
fn lasting_folders(path: &OsStr) -> Vec<&str> {
    let mut folders = Vec::new();
    for folder in path.as_bytes().split(|byte| *byte == b':') {
        let Ok(folder) = std::str::from_utf8(folder) else {
            continue;
        };
        let is_lasting = folder.starts_with('/') && !folder.chars().any(char::is_control);
        if is_lasting && !folders.contains(&folder) {
            folders.push(folder);
        }
    }
    folders
}

/// The file with the line for `path`, or what speaks against it.
fn with_path(text: &str, path: &str) -> Result<(Captured, Option<String>), toml::de::Error> {
    let table: toml::Table = text.parse()?;
    if let Some(old) = table.get("path") {
        let old = match old {
            toml::Value::Array(folders) => folders
                .iter()
                .filter_map(toml::Value::as_str)
                .collect::<Vec<_>>()
                .join(":"),
            other => other.as_str().unwrap_or_default().to_owned(),
        };
        let captured = if old == path {
            Captured::Same
        } else {
            Captured::Kept
        };
        return Ok((captured, None));
    }
    let newline = if text.contains("\r\n") { "\r\n" } else { "\n" };
    // Before any table; and after the comment at the top, which may be about the whole file.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let top: usize = text
        .split_inclusive('\n')
        .take_while(|line| line.starts_with('#') && line.ends_with('\n'))
        .map(str::len)
        .sum();
    let (head, rest) = text.split_at(top);
    // A TOML basic string is spelled like a JSON one as long as no control character is in it.
    let line = format!("path = {}{newline}", serde_json::Value::from(path));
    Ok((Captured::Written, Some(format!("{head}{line}{rest}"))))
}

/// Adds `path` to `file`, which is made if there is none.
pub(super) fn capture(file: &Path, path: &OsStr) -> Result<Captured, CliError> {
    let folders = lasting_folders(path);
    if folders.is_empty() {
        return Ok(Captured::Nothing);
    }
    let place = file.display();
    let old = match fs::read_to_string(file) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => {
            return Err(CliError::config(format!("cannot read {place}")).because(error));
        }
    };
    let (captured, text) = with_path(old.as_deref().unwrap_or_default(), &folders.join(":"))
        .map_err(|error| {
            CliError::config(format!("{place} is invalid, so PATH cannot be kept in it"))
                .because(error)
                .hint("`mcpd check` shows all that is wrong")
        })?;
    let Some(text) = text else {
        return Ok(captured);
    };
    let write = || {
        // A link stays one: people keep their configuration in other places.
        let real = match old {
            Some(_) => fs::canonicalize(file)?,
            None => file.to_owned(),
        };
        let mode = fs::metadata(&real).map_or(0o600, |found| found.permissions().mode() & 0o777);
        if let Some(folder) = real.parent() {
            fs::create_dir_all(folder)?;
        }
        write_whole(&real, text.as_bytes(), mode)
    };
    write().map_err(|error| {
        CliError::config(format!("cannot write {place}"))
            .because(error)
            .hint(format!(
                "add this line to it yourself: path = {}",
                serde_json::Value::from(folders.join(":"))
            ))
    })?;
    Ok(captured)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let (captured, new) = with_path(text, "/a:/b").unwrap();
        assert_eq!(captured, Captured::Written);
        let new = new.unwrap();
        assert_eq!(new, expected);
        let table: toml::Table = new.parse().unwrap();
        assert_eq!(table["path"].as_str(), Some("/a:/b"));
    }

    #[test]
    fn the_line_stands_before_all_tables_and_the_rest_stays() {
        check("", "path = \"/a:/b\"\n");
        check(
            "# mine\n# all of it\n\n[defaults]\nrestart = \"no\" # so\n",
            "# mine\n# all of it\npath = \"/a:/b\"\n\n[defaults]\nrestart = \"no\" # so\n",
        );
        check(
            "memory_limit = \"1GiB\"\r\n",
            "path = \"/a:/b\"\r\nmemory_limit = \"1GiB\"\r\n",
        );
        check("# no end", "path = \"/a:/b\"\n# no end");
    }

    #[test]
    fn a_path_that_is_there_stays() {
        for (text, expected) in [
            ("path = \"/a:/b\"", Captured::Same),
            ("path = [\"/a\", \"/b\"]", Captured::Same),
            ("path = \"/mine\"", Captured::Kept),
        ] {
            assert_eq!(with_path(text, "/a:/b").unwrap(), (expected, None));
        }
        assert!(with_path("path = ", "/a").is_err());
    }

    #[test]
    fn only_folders_that_mean_the_same_everywhere_are_kept() {
        let folders = lasting_folders(OsStr::new("/a:.::bin:/b:/a:~/x"));
        assert_eq!(folders, ["/a", "/b"]);
    }

    #[test]
    fn a_link_stays_a_link_and_a_mode_a_mode() {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().join("dotfiles.toml");
        let link = folder.path().join("mcpd.toml");
        fs::write(&real, "[defaults]\n").unwrap();
        fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        assert_eq!(capture(&link, OsStr::new("/a")).unwrap(), Captured::Written);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        let found = fs::metadata(&real).unwrap();
        assert_eq!(found.permissions().mode() & 0o777, 0o640);
        let text = fs::read_to_string(&real).unwrap();
        assert_eq!(text, "path = \"/a\"\n[defaults]\n");
        assert_eq!(capture(&link, OsStr::new("/a")).unwrap(), Captured::Same);
        assert_eq!(capture(&link, OsStr::new("")).unwrap(), Captured::Nothing);
    }
}
