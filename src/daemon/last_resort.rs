//! The end of a daemon that broke: a panic that no worker can be blamed for, or a lost warden.
//!
//! Nothing is orderly any more, so it says why in the state folder, kills all that it has started,
//! on whatever thread noticed, and goes as by a crash: hosts' shims see that it was one. A panic in
//! a worker is that one server's fault and ends nothing else, see [`contained`]. Decides nothing
//! about servers.

use std::cell::Cell;
use std::future::Future;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::{Signal, raise};

use crate::control::EndRecord;
use crate::supervise::spawn::Spawner;
use crate::supervise::sweep;

use super::clock;
use super::state_record::write_end;

/// What it takes to end a broken daemon: set once, when there is something to end.
#[derive(Debug)]
struct LastResort {
    state_dir: PathBuf,
    spawner: Spawner,
}

static LAST_RESORT: OnceLock<LastResort> = OnceLock::new();

thread_local! {
    /// What runs on this thread is somebody's who survives its panic.
    static IS_CONTAINED: Cell<bool> = const { Cell::new(false) };
}

/// From here on a panic that is not [`contained`] ends the daemon and all that it has started.
pub(super) fn prepare(state_dir: &Path, spawner: &Spawner) {
    let resort = LastResort {
        state_dir: state_dir.to_owned(),
        spawner: spawner.clone(),
    };
    if LAST_RESORT.set(resort).is_err() {
        // A second daemon in one process: only tests have that.
        return;
    }
    std::panic::set_hook(Box::new(|panic| {
        let told = panic.payload_as_str().unwrap_or("(no words)");
        let place = panic.location().map_or_else(String::new, |place| {
            format!(" at {}:{}", place.file(), place.line())
        });
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("(no name)");
        let reason = format!("panic in thread {name}{place}: {told}");
        if IS_CONTAINED.get() {
            tracing::error!(reason, "a part of the daemon broke");
        } else {
            crash(&reason, Signal::SIGABRT);
        }
    }));
}

/// Ends everything at once, and this process by `signal`.
pub(super) fn crash(reason: &str, signal: Signal) -> ! {
    static HAS_BEGUN: AtomicBool = AtomicBool::new(false);
    if HAS_BEGUN.swap(true, Ordering::SeqCst) {
        // Another thread is at it, and takes this one along.
        loop {
            std::thread::park();
        }
    }
    // The log's thread may be the one that broke.
    drop(writeln!(io::stderr(), "mcpd: the daemon ends: {reason}"));
    if let Some(LastResort { state_dir, spawner }) = LAST_RESORT.get() {
        let record = EndRecord {
            pid: std::process::id(),
            at: clock::render_wall(clock::wall()),
            orderly: false,
            reason: reason.to_owned(),
        };
        // Without the note, an end without a word says half of it.
        drop(write_end(state_dir, &record));
        match spawner.end_everything(sweep::ROUNDS) {
            Ok(left) if left.is_empty() => {}
            left => drop(writeln!(io::stderr(), "mcpd: not all has ended: {left:?}")),
        }
    }
    _ = raise(signal);
    std::process::abort()
}

/// Runs `work` as a part of somebody who survives its panic and deals with it.
pub(super) fn contained<W: Future + Send>(work: W) -> impl Future<Output = W::Output> + Send {
    let mut work = Box::pin(work);
    std::future::poll_fn(move |context| {
        let _mark = Mark::set();
        work.as_mut().poll(context)
    })
}

/// The same for work that does not wait for others.
pub(super) fn contained_call<T>(work: impl FnOnce() -> T) -> T {
    let _mark = Mark::set();
    work()
}

/// The mark on a thread, taken off whichever way the work ends.
struct Mark(bool);

impl Mark {
    fn set() -> Self {
        Self(IS_CONTAINED.replace(true))
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        IS_CONTAINED.set(self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_mark_is_on_the_thread_only_while_the_work_is_polled() {
        let work = contained(async {
            assert!(IS_CONTAINED.get());
            tokio::task::yield_now().await;
            assert!(IS_CONTAINED.get());
            contained(async {}).await;
            assert!(IS_CONTAINED.get(), "an inner one leaves the outer");
        });
        work.await;
        assert!(!IS_CONTAINED.get());
        let failed = tokio::spawn(contained(async { panic!("as told") })).await;
        assert!(failed.unwrap_err().is_panic());
        assert!(!IS_CONTAINED.get());
    }
}
