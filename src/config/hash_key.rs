//! The key of the user's hashes: made once, kept in the state directory, for its owner only.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use super::fingerprint::HashKey;
use super::regular_file::read_regular_file;

/// Reads the key at `path`, or makes one. A file that is no key, or that others can read, is
/// replaced: all that is lost is the memory of what was equal.
///
/// # Errors
/// The random source cannot be read, or the file cannot be written.
pub fn load_hash_key(path: &Path) -> io::Result<HashKey> {
    if let Ok(contents) = read_regular_file(path)
        && contents.mode & 0o077 == 0
        && let Ok(key) = <[u8; 32]>::try_from(contents.bytes.as_slice())
    {
        return Ok(HashKey(key));
    }
    let mut key = [0; 32];
    File::open("/dev/urandom")?.read_exact(&mut key)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let fresh = path.with_file_name(format!(".{name}.{}", std::process::id()));
    let written = write_key(&fresh, &key).and_then(|()| fs::rename(&fresh, path));
    if written.is_err() {
        // Whatever is left of it; that it may not be there at all is fine.
        drop(fs::remove_file(&fresh));
    }
    written.map(|()| HashKey(key))
}

fn write_key(path: &Path, key: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(key)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn the_key_is_made_once_and_for_its_owner_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hash.key");
        let key = load_hash_key(&path).unwrap();
        assert_eq!(load_hash_key(&path).unwrap(), key);
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_key_that_others_can_read_or_that_is_none_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hash.key");
        fs::write(&path, [7; 32]).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let key = load_hash_key(&path).unwrap();
        assert_ne!(key, HashKey([7; 32]));
        fs::write(&path, "short").unwrap();
        assert_ne!(load_hash_key(&path).unwrap(), key);
    }
}
