//! What the daemon writes of itself into its state folder, for a status without it.
//!
//! Each file is replaced whole. A disk that takes nothing holds nothing up: that is told once.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Serialize;
use tokio::sync::{Notify, mpsc, oneshot};

use crate::control::{END_RECORD_FILE, EndRecord, STATE_RECORD_FILE, StateRecord, StatusSnapshot};

use super::clock;
use super::registry::Event;

/// Between two records, however fast servers come and go.
const GAP: Duration = Duration::from_secs(1);

/// Records how the daemon is whenever the state of a server has changed, as long as the registry
/// lives.
pub(super) async fn keep(state_dir: PathBuf, changed: Arc<Notify>, registry: mpsc::Sender<Event>) {
    loop {
        changed.notified().await;
        let (answer, heard) = oneshot::channel();
        if registry.send(Event::Snapshot(answer)).await.is_err() {
            return;
        }
        let Ok(snapshot) = heard.await else { return };
        let folder = state_dir.clone();
        // A slow disk must not hold up a message.
        let written = tokio::task::spawn_blocking(move || write_state(&folder, &now(snapshot)));
        if let Err(error) = written.await {
            tracing::error!(%error, "the state is not recorded any more");
            return;
        }
        clock::sleep_until(Some(clock::now() + GAP)).await;
    }
}

/// A record of `snapshot` with the present time.
pub(super) fn now(snapshot: StatusSnapshot) -> StateRecord {
    StateRecord {
        written_at: clock::render_wall(clock::wall()),
        snapshot,
    }
}

/// Writes how the daemon is now.
pub(super) fn write_state(state_dir: &Path, record: &StateRecord) {
    static IS_TOLD: AtomicBool = AtomicBool::new(false);
    match replace(&state_dir.join(STATE_RECORD_FILE), record) {
        Ok(()) => IS_TOLD.store(false, Ordering::Relaxed),
        Err(error) => {
            if !IS_TOLD.swap(true, Ordering::Relaxed) {
                tracing::warn!(%error, folder = ?state_dir, "the state cannot be recorded");
            }
        }
    }
}

/// Writes why the daemon ended.
pub(super) fn write_end(state_dir: &Path, record: &EndRecord) -> io::Result<()> {
    replace(&state_dir.join(END_RECORD_FILE), record)
}

/// Forgets why the one before ended: this one has begun.
pub(super) fn forget_end(state_dir: &Path) {
    // Usually there is one; a record that stays names another pid than ours.
    drop(fs::remove_file(state_dir.join(END_RECORD_FILE)));
}

fn replace(path: &Path, record: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_vec(record)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let fresh = path.with_file_name(format!(".{name}.{}", std::process::id()));
    let written = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .custom_flags(nix::libc::O_NOFOLLOW)
        .open(&fresh)
        .and_then(|mut file| file.write_all(&text))
        .and_then(|()| fs::rename(&fresh, path));
    if written.is_err() {
        // Whatever is left of it; that it may not be there at all is fine.
        drop(fs::remove_file(&fresh));
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_record_is_replaced_whole_and_private() {
        let folder = tempfile::tempdir().unwrap();
        for pid in [7, 8] {
            let record = EndRecord {
                pid,
                ..EndRecord::default()
            };
            write_end(folder.path(), &record).unwrap();
            let path = folder.path().join(END_RECORD_FILE);
            let text = fs::read(&path).unwrap();
            assert_eq!(serde_json::from_slice::<EndRecord>(&text).unwrap(), record);
            let mode = fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        forget_end(folder.path());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
