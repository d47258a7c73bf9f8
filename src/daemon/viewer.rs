//! A connection on which somebody looks at the messages of a server.
//!
//! Writes what the worker sends, in order, and what it could not send as a number. Ends with the
//! viewer, the worker or the daemon; never delays the worker, whose lines wait in a bounded queue.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot};

use crate::control::{AskTrace, ControlError, TraceLine};

use super::host::{stopping, write_all};
use super::registry;
use super::shared::Shared;
use super::worker::{Event, Viewer, WorkerHandle};

/// Lines that may wait for one viewer.
const QUEUE: usize = 1_000;

/// The worker of the server that somebody wants to look at.
pub(super) async fn find_worker(
    shared: &Shared,
    server: &str,
) -> Result<WorkerHandle, ControlError> {
    let (answer, answered) = oneshot::channel();
    let server = server.to_owned();
    let event = registry::Event::Find { server, answer };
    if shared.registry.send(event).await.is_err() {
        return Err(stopping());
    }
    answered.await.unwrap_or_else(|_| Err(stopping()))
}

/// Shows until one of them goes.
pub(super) async fn show(
    stream: &UnixStream,
    ask: AskTrace,
    worker: &WorkerHandle,
) -> io::Result<()> {
    let (lines, mut shown) = mpsc::channel(QUEUE);
    let missed = Arc::new(AtomicU64::new(0));
    let viewer = Viewer {
        ask,
        lines,
        missed: missed.clone(),
    };
    if worker
        .inbox
        .send(Event::Watched(Box::new(viewer)))
        .await
        .is_err()
    {
        return Ok(());
    }
    tokio::select! {
        ended = write_lines(stream, &mut shown, &missed) => ended,
        () = wait_for_end(stream) => Ok(()),
    }
}

async fn write_lines(
    stream: &UnixStream,
    shown: &mut mpsc::Receiver<TraceLine>,
    missed: &AtomicU64,
) -> io::Result<()> {
    while let Some(line) = shown.recv().await {
        write_line(stream, &line).await?;
        // What found no room came behind all that has been written now.
        if shown.is_empty() {
            let count = missed.swap(0, Ordering::Relaxed);
            if count > 0 {
                write_line(stream, &TraceLine::NotShown { count }).await?;
            }
        }
    }
    Ok(())
}

async fn write_line(stream: &UnixStream, line: &TraceLine) -> io::Result<()> {
    let mut bytes = serde_json::to_vec(line)?;
    bytes.push(b'\n');
    write_all(stream, &bytes).await
}

/// Waits until the viewer has gone; it has nothing more to say.
async fn wait_for_end(stream: &UnixStream) {
    let mut nothing = [0; 64];
    while stream.readable().await.is_ok() {
        match stream.try_read(&mut nothing) {
            Ok(1..) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Ok(0) | Err(_) => return,
        }
    }
}
