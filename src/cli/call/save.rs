//! Files for what a tool returns that is no text.
//!
//! Decides their names: the file that was named, or one a part in the folder that was named. Never
//! takes a name from a server, and never replaces a file in a folder.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use super::render::{Part, extension};
use crate::cli::error::CliError;

/// Names that are tried for one part.
const NAMES: usize = 10_000;

/// Where parts go.
#[derive(Debug)]
pub(super) struct Saver {
    path: PathBuf,
    /// What names in a folder begin with.
    stem: Option<String>,
    kept: usize,
}

impl Saver {
    /// `path` is a folder if it is there and one, or ends in a slash; then it is made.
    pub(super) fn new(path: PathBuf, tool: &str) -> Result<Self, CliError> {
        let is_named_so = path.as_os_str().as_encoded_bytes().ends_with(b"/");
        if is_named_so {
            std::fs::create_dir_all(&path).map_err(|error| cannot(&path, error))?;
        }
        let stem = path.is_dir().then(|| {
            let plain = |c: char| {
                if c.is_ascii_alphanumeric() || c == '-' {
                    c
                } else {
                    '_'
                }
            };
            tool.chars().map(plain).take(64).collect()
        });
        Ok(Self {
            path,
            stem,
            kept: 0,
        })
    }

    /// Keeps a part that is no text; where.
    pub(super) fn keep(&mut self, part: &Part) -> Result<Option<PathBuf>, CliError> {
        let Part::Bytes {
            mime_type, bytes, ..
        } = part
        else {
            return Ok(None);
        };
        self.kept += 1;
        let Some(stem) = &self.stem else {
            let path = match self.kept {
                1 => self.path.clone(),
                number => numbered(&self.path, number),
            };
            std::fs::write(&path, bytes).map_err(|error| cannot(&path, error))?;
            return Ok(Some(path));
        };
        let ending = extension(mime_type.as_deref());
        for number in self.kept..self.kept + NAMES {
            let path = self.path.join(format!("{stem}-{number}.{ending}"));
            let opened = OpenOptions::new().write(true).create_new(true).open(&path);
            match opened {
                Ok(mut file) => {
                    file.write_all(bytes)
                        .map_err(|error| cannot(&path, error))?;
                    self.kept = number;
                    return Ok(Some(path));
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(cannot(&path, error)),
            }
        }
        Err(CliError::internal(format!(
            "{} is full",
            self.path.display()
        )))
    }
}

/// `shot-2.png` for `shot.png`.
fn numbered(path: &Path, number: usize) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let name = match path.extension() {
        Some(ending) => format!("{stem}-{number}.{}", ending.to_string_lossy()),
        None => format!("{stem}-{number}"),
    };
    path.with_file_name(name)
}

fn cannot(path: &Path, error: std::io::Error) -> CliError {
    CliError::internal(format!("cannot write {}", path.display())).because(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(mime_type: &str) -> Part {
        Part::Bytes {
            label: "image".to_owned(),
            mime_type: Some(mime_type.to_owned()),
            bytes: vec![1, 2],
        }
    }

    #[test]
    fn a_file_is_what_was_named_and_a_second_has_a_number() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shot.png");
        let mut saver = Saver::new(path.clone(), "x").unwrap();
        assert_eq!(saver.keep(&Part::Text("t".to_owned())).unwrap(), None);
        assert_eq!(saver.keep(&part("image/png")).unwrap(), Some(path));
        let second = saver.keep(&part("image/png")).unwrap().unwrap();
        assert_eq!(second, folder.path().join("shot-2.png"));
        assert_eq!(std::fs::read(second).unwrap(), [1, 2]);
    }

    #[test]
    fn in_a_folder_nothing_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join("new/");
        for expected in ["a_b-1.png", "a_b-2.png"] {
            let mut saver = Saver::new(inside.clone(), "a/b").unwrap();
            let kept = saver.keep(&part("image/png")).unwrap().unwrap();
            assert_eq!(kept, inside.join(expected));
        }
    }
}
