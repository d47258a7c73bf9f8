//! Accepting connections, also when descriptors run out.

use std::io;
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};

use crate::time::Moment;

use super::clock;
use super::last_resort::contained;

/// The pause after an accept that failed, so that a full descriptor table is not asked in a loop.
const PAUSE: Duration = Duration::from_millis(200);

/// Between two reports of accepts that fail.
const TELL_EVERY: Duration = Duration::from_secs(60);

/// Serves every connection in a task of its own, until this task is ended.
pub(crate) async fn accept_each<F>(listener: UnixListener, serve: impl Fn(UnixStream) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut told_at: Option<Moment> = None;
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // What a connection breaks is that connection.
                tokio::spawn(contained(serve(stream)));
            }
            // The peer left before it was its turn.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                let now = clock::now();
                if told_at.is_none_or(|at| now.since(at) >= TELL_EVERY) {
                    told_at = Some(now);
                    tracing::warn!(%error, "cannot accept");
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}
