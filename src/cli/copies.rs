//! Dated copies of files, kept where only their owner can read them.
//!
//! Decides the name of a copy and how many there are. What is copied, and why, its caller knows.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::clock::date_for_a_name;
use super::whole_file::{make_folder, write_whole};

/// Copies with the same beginning of their names that are kept.
const COPY_LIMIT: usize = 20;

/// Writes `HEAD-DATE-NAME` into `folder`, which is made if it is missing.
pub(crate) fn keep_copy(
    folder: &Path,
    head: &str,
    name: &str,
    contents: &[u8],
) -> io::Result<PathBuf> {
    make_folder(folder)?;
    let date = date_for_a_name();
    let plain = folder.join(format!("{head}-{date}-{name}"));
    // Two within a second.
    let numbered = (2_u32..).map(|number| folder.join(format!("{head}-{date}.{number}-{name}")));
    let mut paths = std::iter::once(plain).chain(numbered);
    let path = paths.find(|path| !path.exists()).unwrap_or_default();
    write_whole(&path, contents, 0o600)?;
    drop_old_copies(folder, head, name);
    Ok(path)
}

/// Old copies go; one too many is no harm.
fn drop_old_copies(folder: &Path, head: &str, name: &str) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut copies: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| {
            let found = path.file_name().unwrap_or_default().to_string_lossy();
            found.starts_with(&format!("{head}-")) && found.ends_with(&format!("-{name}"))
        })
        .collect();
    copies.sort();
    let surplus = copies.len().saturating_sub(COPY_LIMIT);
    for path in &copies[..surplus] {
        drop(fs::remove_file(path));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_have_names_of_their_own_and_the_oldest_go() {
        let folder = tempfile::tempdir().unwrap();
        let keep =
            |number: usize| keep_copy(folder.path(), "a", "b", number.to_string().as_bytes());
        let first = keep(0).unwrap();
        let paths: Vec<PathBuf> = (1..=COPY_LIMIT)
            .map(|number| keep(number).unwrap())
            .collect();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), COPY_LIMIT);
        let last = fs::read_to_string(paths.last().unwrap()).unwrap();
        assert_eq!(last, COPY_LIMIT.to_string());
        keep_copy(folder.path(), "other", "b", b"").unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), COPY_LIMIT + 1);
        drop(first);
    }
}
