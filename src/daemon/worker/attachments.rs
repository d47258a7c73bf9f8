//! The hosts of one instance: their descriptors, and when they are written to and let go.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use crate::ids::HostKey;
use crate::journal::Ended;
use crate::session::HostInfo;
use crate::time::Moment;

use super::super::clock;
use super::super::handover::Kept;
use super::super::host_stream::HostStream;
use super::super::port::{Flushed, Port};
use super::{Event, Worker};

/// A host that has come in, with its descriptor.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) key: HostKey,
    pub(crate) info: HostInfo,
    pub(crate) output: Arc<HostStream>,
    pub(crate) journal: Option<Box<Kept>>,
    /// The task that reads from it; ended when the host is let go.
    pub(crate) reader: AbortHandle,
    /// The task that waits for the end of a host that is spoken with by its own descriptors.
    pub(crate) watcher: Option<AbortHandle>,
    pub(crate) ticket: Ticket,
}

/// Counts one attachment of a worker with the registry, for as long as it lives.
#[derive(Debug)]
pub(crate) struct Ticket {
    pub(crate) server: Arc<str>,
    pub(crate) returned: mpsc::UnboundedSender<Arc<str>>,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        // Without a registry there is nobody left who counts.
        drop(self.returned.send(self.server.clone()));
    }
}

/// A host with its descriptor.
#[derive(Debug)]
pub(super) struct Host {
    port: Port<HostStream>,
    reader: AbortHandle,
    /// Holds the connection of a host that is not spoken with by it.
    watcher: Option<AbortHandle>,
    /// Let go as soon as all that is queued for it is written.
    closing: bool,
    _ticket: Ticket,
}

impl Host {
    /// Lets its descriptors go, the connection last: its end tells that the others are free.
    fn end(self) {
        self.reader.abort();
        drop(self.port);
        if let Some(watcher) = self.watcher {
            watcher.abort();
        }
    }
}

impl Worker {
    pub(super) fn handle_arrival(&mut self, arrival: Arrival, now: Moment) {
        #[cfg(feature = "test-fakes")]
        super::super::faults::in_worker(arrival.info.client.as_deref());
        let host = Host {
            port: Port::new(arrival.output),
            reader: arrival.reader,
            watcher: arrival.watcher,
            closing: false,
            _ticket: arrival.ticket,
        };
        match self.core.mux.attach(arrival.key, arrival.info) {
            Ok(()) => {
                drop(self.hosts.insert(arrival.key, host));
                if let Some(kept) = arrival.journal {
                    let Kept { writer, image } = *kept;
                    self.core.mux.resume(arrival.key, writer, &image, now);
                }
            }
            Err(full) => {
                self.log.event(
                    &self.instance,
                    &format!("host {} refused: {full}", arrival.key),
                );
                host.end();
            }
        }
    }

    pub(super) fn host_writable(&mut self, key: HostKey, now: Moment) {
        if let Some(host) = self.hosts.get_mut(&key) {
            host.port.woken();
            self.flush_host(key, now);
        }
    }

    /// Writes what is queued for a host until its descriptor takes no more.
    pub(super) fn flush_host(&mut self, key: HostKey, now: Moment) {
        let Some(host) = self.hosts.get_mut(&key) else {
            return;
        };
        loop {
            if host.port.is_free() {
                let Some(first) = self.core.mux.poll_host_frame(key) else {
                    break;
                };
                let mut polled = Some(first);
                while let Some(next) = polled {
                    if let Some(viewers) = &mut self.viewers {
                        viewers.host_frame(key, &next.frame, now);
                    }
                    host.port.put(next.frame);
                    polled = self.core.mux.poll_host_frame_beside(key);
                }
            }
            let held = host.port.held_bytes();
            let flushed = host.port.flush();
            self.core
                .mux
                .host_frame_written(key, held - host.port.held_bytes());
            match flushed {
                Flushed::Whole => {}
                Flushed::Full => {
                    let inbox = self.handle.inbox.clone();
                    // A worker that has gone waits for nobody.
                    host.port.wait(async move {
                        drop(inbox.send(Event::HostWritable(key)).await);
                    });
                    return;
                }
                Flushed::Broken(error) => {
                    tracing::debug!(server = &*self.instance, host = %key, %error, "host is gone");
                    self.drop_host(key, now);
                    return;
                }
            }
        }
        if host.closing {
            self.drop_host(key, now);
        }
    }

    /// The attachment has ended well: its last frames are written, then it is closed.
    pub(super) fn close_host(&mut self, key: HostKey, now: Moment) {
        if let Some(host) = self.hosts.get_mut(&key) {
            host.closing = true;
            self.flush_host(key, now);
        }
    }

    /// The attachment has ended at once.
    pub(super) fn drop_host(&mut self, key: HostKey, now: Moment) {
        self.core.mux.handle_host_gone(key, now);
        self.let_go(key);
    }

    pub(super) fn let_go(&mut self, key: HostKey) {
        self.viewer_host_gone(key);
        if let Some(host) = self.hosts.remove(&key) {
            host.end();
        }
    }

    /// Lets the hosts go that come back by themselves, when nothing is left to be told to them.
    pub(super) fn dismiss(&mut self) {
        if self.has_unwritten_hosts() || !self.core.take_dismissal() {
            return;
        }
        let with_shim = |(key, host): (&HostKey, &Host)| host.watcher.is_some().then_some(*key);
        let keys: Vec<HostKey> = self.hosts.iter().filter_map(with_shim).collect();
        for key in keys {
            self.core.mux.hand_over(key, clock::now());
            self.let_go(key);
        }
        self.mark_changed();
    }

    pub(super) fn has_unwritten_hosts(&self) -> bool {
        self.hosts.values().any(|host| !host.port.is_free())
    }

    /// Reads no more from hosts that outlive this daemon: what they say from now on is for the next
    /// one.
    pub(super) fn leave_input(&self) {
        for host in self.hosts.values().filter(|host| host.watcher.is_some()) {
            host.reader.abort();
        }
    }

    pub(super) fn let_all_go(&mut self) {
        for (key, host) in self.hosts.drain() {
            self.core.mux.end_journal(key, Ended::Ending);
            host.end();
        }
    }
}
