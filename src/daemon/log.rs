//! The log files of the servers: one folder, a few files a server, bounded in size.
//!
//! One thread writes them all, so that a slow disk never holds up a message. It decides when a
//! file is full (rotation); it never decides what is logged. Whoever reads a child's standard
//! error waits for this thread for a bounded time and then drops the line, counted: a log that
//! cannot be written never blocks the child.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::mpsc;

use super::clock;

/// All files of one server together hold at most this much: four times [`FILE_LIMIT_BYTES`].
const FILE_LIMIT_BYTES: u64 = 16 << 20;
/// `NAME.log` is being written, `NAME.log.1` is the one before it, and so on.
const OLD_FILES: usize = 3;
/// Lines that may wait for the disk, all servers together.
const QUEUE_LINES: usize = 512;
/// How long a reader of standard error waits for the disk before it drops a line.
const QUEUE_WAIT: Duration = Duration::from_secs(1);

/// What the writer is told.
enum Order {
    Write(Entry),
    /// Nobody writes for this server any more.
    Close(Arc<str>),
}

/// One line for one server's file.
struct Entry {
    server: Arc<str>,
    text: String,
    health: Arc<Health>,
}

/// What could not be written, for `status`.
#[derive(Debug, Default)]
struct Health {
    dropped: AtomicU64,
    failed: AtomicU64,
}

/// Where the logs of all servers go.
#[derive(Clone, Debug)]
pub(crate) struct Logs {
    sender: mpsc::Sender<Order>,
    folder: Arc<Path>,
}

/// The writer; it ends when the last [`Logs`] and [`ServerLog`] are gone.
#[derive(Debug)]
pub(crate) struct LogThread(JoinHandle<()>);

impl Logs {
    /// Starts the writer for `folder`.
    pub(crate) fn start(folder: &Path) -> io::Result<(Self, LogThread)> {
        let (sender, receiver) = mpsc::channel(QUEUE_LINES);
        let writer = Writer::new(folder.to_owned());
        let thread = std::thread::Builder::new()
            .name("mcpd-logs".to_owned())
            .spawn(move || writer.run(receiver))?;
        let folder = Arc::from(folder);
        Ok((Self { sender, folder }, LogThread(thread)))
    }

    pub(crate) fn server(&self, name: &str) -> ServerLog {
        ServerLog(Arc::new(End {
            server: Arc::from(name),
            sender: Some(self.sender.clone()),
            health: Arc::default(),
        }))
    }

    /// A log that is kept nowhere.
    pub(crate) fn nowhere(name: &str) -> ServerLog {
        ServerLog(Arc::new(End {
            server: Arc::from(name),
            sender: None,
            health: Arc::default(),
        }))
    }

    /// The file that is written for `server`.
    pub(crate) fn path(&self, server: &str) -> PathBuf {
        log_path(&self.folder, server)
    }
}

impl LogThread {
    /// Lets everything reach the files.
    pub(crate) fn finish(self) {
        // A writer that panicked has said so; there is nothing left to do for it.
        drop(self.0.join());
    }
}

/// Where one server's lines go. Its file is closed when the last of these is gone.
#[derive(Clone, Debug)]
pub(crate) struct ServerLog(Arc<End>);

#[derive(Debug)]
struct End {
    server: Arc<str>,
    /// None where nothing is to be kept.
    sender: Option<mpsc::Sender<Order>>,
    health: Arc<Health>,
}

impl ServerLog {
    /// A line that the child wrote. Waits for the disk, but not long.
    pub(crate) async fn child_line(&self, instance: &str, line: &str) {
        let Some(sender) = &self.0.sender else { return };
        let entry = self.entry(instance, "stderr", line);
        if sender.send_timeout(entry, QUEUE_WAIT).await.is_err() {
            self.0.health.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Something that happened to the server, told by the daemon. Never waits.
    pub(crate) fn event(&self, instance: &str, text: &str) {
        let Some(sender) = &self.0.sender else { return };
        let entry = self.entry(instance, "mcpd", text);
        if sender.try_send(entry).is_err() {
            self.0.health.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Lines dropped or not written so far.
    pub(crate) fn lost(&self) -> u64 {
        let health = &self.0.health;
        health.dropped.load(Ordering::Relaxed) + health.failed.load(Ordering::Relaxed)
    }

    fn entry(&self, instance: &str, source: &str, line: &str) -> Order {
        let time = clock::render_wall(clock::wall());
        Order::Write(Entry {
            server: self.0.server.clone(),
            text: format!("{time} {instance} {source}: {line}\n"),
            health: self.0.health.clone(),
        })
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let Some(sender) = &self.sender else { return };
        // A full queue loses this: the file stays open until a server of that name goes again.
        drop(sender.try_send(Order::Close(self.server.clone())));
    }
}

struct Writer {
    folder: PathBuf,
    files: HashMap<Arc<str>, OpenFile>,
    warned: bool,
}

struct OpenFile {
    file: File,
    len: u64,
}

impl Writer {
    fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            files: HashMap::new(),
            warned: false,
        }
    }

    fn run(mut self, mut receiver: mpsc::Receiver<Order>) {
        while let Some(order) = receiver.blocking_recv() {
            let entry = match order {
                Order::Write(entry) => entry,
                Order::Close(server) => {
                    self.files.remove(&server);
                    continue;
                }
            };
            if let Err(error) = self.write(&entry) {
                self.files.remove(&entry.server);
                entry.health.failed.fetch_add(1, Ordering::Relaxed);
                if !std::mem::replace(&mut self.warned, true) {
                    tracing::warn!(server = &*entry.server, %error, "cannot write the log");
                }
            }
        }
    }

    fn write(&mut self, entry: &Entry) -> io::Result<()> {
        let path = log_path(&self.folder, &entry.server);
        let size = entry.text.len() as u64;
        // A file that somebody removed would take all further lines with it.
        let has_name = |file: &OpenFile| file.file.metadata().is_ok_and(|found| found.nlink() > 0);
        if !self.files.get(&entry.server).is_some_and(has_name) {
            self.files.insert(entry.server.clone(), open(&path)?);
        }
        let open_file = self
            .files
            .get_mut(&entry.server)
            .ok_or(io::ErrorKind::NotFound)?;
        if open_file.len + size > FILE_LIMIT_BYTES {
            rotate(&path)?;
            *open_file = open(&path)?;
        }
        open_file.len += size;
        open_file.file.write_all(entry.text.as_bytes())
    }
}

/// The file that is being written for `server`.
pub(crate) fn log_path(folder: &Path, server: &str) -> PathBuf {
    folder.join(format!("{server}.log"))
}

fn open(path: &Path) -> io::Result<OpenFile> {
    let file = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(nix::libc::O_NOFOLLOW)
        .open(path)?;
    let len = file.metadata()?.len();
    Ok(OpenFile { file, len })
}

fn rotate(path: &Path) -> io::Result<()> {
    let old = |number: usize| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{number}"));
        PathBuf::from(name)
    };
    for number in (1..OLD_FILES).rev() {
        match std::fs::rename(old(number), old(number + 1)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    std::fs::rename(path, old(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_reach_the_file_and_old_files_are_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let (logs, thread) = Logs::start(folder.path()).unwrap();
        let log = logs.server("calc");
        let line = "x".repeat(1 << 20);
        for _ in 0..90 {
            log.child_line("calc", &line).await;
        }
        log.event("calc", "last");
        drop((log, logs));
        thread.finish();
        let current = std::fs::read_to_string(log_path(folder.path(), "calc")).unwrap();
        assert!(current.ends_with("calc mcpd: last\n"));
        let sizes: u64 = std::fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().metadata().unwrap().len())
            .sum();
        assert!(sizes <= 64 << 20, "{sizes}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 4);
    }

    #[test]
    fn a_file_that_was_removed_is_made_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = log_path(folder.path(), "calc");
        let mut writer = Writer::new(folder.path().to_owned());
        let entry = Entry {
            server: Arc::from("calc"),
            text: "a line\n".to_owned(),
            health: Arc::default(),
        };
        writer.write(&entry).unwrap();
        std::fs::remove_file(&path).unwrap();
        writer.write(&entry).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "a line\n");
        drop(folder);
        assert!(writer.write(&entry).is_err());
    }

    #[tokio::test]
    async fn a_folder_that_cannot_be_written_is_counted() {
        let (logs, thread) = Logs::start(Path::new("/proc/nowhere")).unwrap();
        let log = logs.server("calc");
        log.child_line("calc", "lost").await;
        let health = log.0.health.clone();
        drop((log, logs));
        thread.finish();
        assert_eq!(health.failed.load(Ordering::Relaxed), 1);
    }
}
