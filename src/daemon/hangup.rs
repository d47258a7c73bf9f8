//! Learning that a peer is gone for good after its input has ended.
//!
//! The end of a host's input is not the end of its attachment: answers that are due still go
//! out. When the host closes the other half too, the kernel says so with EPOLLHUP only, which
//! tokio folds into readiness that is already set by then. An epoll of its own, asked for nothing
//! but that (epoll(7): HUP and ERR are always reported), becomes readable at that moment.

use std::io;
use std::os::fd::AsFd;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use tokio::io::Interest;

use super::descriptors::watched;

/// Returns once neither direction of `socket` is open at the other end.
pub(crate) async fn hung_up(socket: impl AsFd) -> io::Result<()> {
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    epoll.add(&socket, EpollEvent::new(EpollFlags::EPOLLET, 0))?;
    let ready = watched(epoll.0, Interest::READABLE)?;
    drop(ready.readable().await?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::Shutdown;
    use std::os::unix::net::UnixStream;

    #[tokio::test]
    async fn a_half_closed_peer_has_not_hung_up() {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        theirs.shutdown(Shutdown::Write).unwrap();
        assert_eq!(ours.read(&mut [0]).unwrap(), 0);
        let mut wait = Box::pin(hung_up(&ours));
        let early = futures_poll_once(wait.as_mut()).await;
        assert!(early.is_none());
        drop(theirs);
        wait.await.unwrap();
    }

    /// Polls once, after the runtime had a turn to look at its descriptors.
    async fn futures_poll_once<F: Future + Unpin>(mut future: F) -> Option<F::Output> {
        tokio::select! {
            biased;
            output = &mut future => Some(output),
            () = async { for _ in 0..10 { tokio::task::yield_now().await } } => None,
        }
    }
}
