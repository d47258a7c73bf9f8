//! Accepting connections, also when descriptors run out.

use std::io;
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};

/// The pause after an accept that failed, so that a full descriptor table is not asked in a loop.
const PAUSE: Duration = Duration::from_millis(200);

/// Serves every connection in a task of its own, until this task is ended.
pub(crate) async fn accept_each<F>(listener: UnixListener, serve: impl Fn(UnixStream) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::spawn(serve(stream));
            }
            // The peer left before it was its turn.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                tracing::warn!(%error, "cannot accept");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}
