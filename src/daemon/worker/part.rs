//! The tasks of a worker: one that breaks is the worker's own fault, and nobody else's.
//!
//! What reads and starts for a worker runs beside it. A panic there must neither end the daemon nor
//! leave a worker that waits for ever: it is carried into the worker, which ends by it and is
//! replaced, see [`super::super::last_resort`]. Decides nothing.

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Poll;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::super::last_resort::{contained, contained_call};
use super::Event;

/// What a task said when it broke.
pub(crate) struct Broken(Box<dyn Any + Send>);

impl std::fmt::Debug for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Broken")
    }
}

impl Broken {
    /// Goes on with the panic where it belongs. It has been told when it happened.
    pub(super) fn resume(self) -> ! {
        std::panic::resume_unwind(self.0)
    }
}

/// Runs `work` as a part of the worker that reads `inbox`.
pub(super) fn spawn(
    inbox: mpsc::Sender<Event>,
    work: impl Future<Output = ()> + Send + 'static,
) -> JoinHandle<()> {
    tokio::spawn(async move {
        if let Err(broken) = caught(work).await {
            // A worker that has gone is broken by nothing.
            drop(inbox.send(Event::PartBroke(broken)).await);
        }
    })
}

/// Runs `work` to its end, or to its panic.
pub(crate) async fn caught<W: Future + Send>(work: W) -> Result<W::Output, Broken> {
    let mut work = Box::pin(contained(work));
    // What broke is not looked at again.
    poll_fn(
        |context| match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context))) {
            Ok(poll) => poll.map(Ok),
            Err(panic) => Poll::Ready(Err(Broken(panic))),
        },
    )
    .await
}

/// Runs `work` on a thread where it may block. Its panic is the error of the handle.
pub(super) fn spawn_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    tokio::task::spawn_blocking(|| contained_call(work))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_reaches_the_worker_with_its_words() {
        let (sender, mut inbox) = mpsc::channel(1);
        spawn(sender, async { panic!("as told") }).await.unwrap();
        let Some(Event::PartBroke(broken)) = inbox.recv().await else {
            unreachable!("nothing else is sent");
        };
        let carried = catch_unwind(AssertUnwindSafe(|| broken.resume())).unwrap_err();
        assert_eq!(carried.downcast_ref::<&str>(), Some(&"as told"));
    }

    #[tokio::test]
    async fn a_part_that_does_its_work_says_nothing() {
        let (sender, mut inbox) = mpsc::channel(1);
        spawn(sender, tokio::task::yield_now()).await.unwrap();
        assert!(inbox.recv().await.is_none());
    }

    #[tokio::test]
    async fn blocking_work_that_breaks_is_an_error_of_its_own() {
        let failed = spawn_blocking(|| panic!("as told")).await;
        let failed: Result<(), _> = failed;
        assert!(failed.unwrap_err().is_panic());
    }
}
