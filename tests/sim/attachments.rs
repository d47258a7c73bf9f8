//! The hosts of one instance, as the worker holds them: when they are written to and let go.
//!
//! The counterpart of `daemon::worker::attachments`.

use mcpd::ids::HostKey;
use mcpd::protocol::{Line, LineReader};
use mcpd::session::HostInfo;

use crate::pipe::Flushed;
use crate::scene::Scene;
use crate::worker::{HostPort, Inbound, Worker};

impl Worker {
    pub(crate) fn arrived(&mut self, key: HostKey) {
        let attached = self.core.mux.attach(key, HostInfo::default());
        attached.expect("fewer hosts than there may be");
        self.hosts.insert(key, HostPort::default());
    }

    /// Writes what is queued for a host until its socket takes no more.
    pub(crate) fn flush_host(&mut self, key: HostKey, scene: &mut Scene) {
        let is_ending = scene.terminated.is_some();
        let Some(port) = self.hosts.get_mut(&key) else {
            return;
        };
        let host = &mut scene.hosts[crate::scene::place_of(key)];
        loop {
            if port.port.current.is_none() {
                let Some(frame) = self.core.mux.poll_host_frame(key) else {
                    break;
                };
                host.expect(&frame.frame, is_ending, &scene.clock);
                port.port.current = Some(frame.frame);
            }
            let held = port.port.held_bytes();
            let flushed = port.port.flush(&mut host.to_host);
            let written = held - port.port.held_bytes();
            self.core.mux.host_frame_written(key, written);
            host.wake(&mut scene.clock);
            match flushed {
                Flushed::Whole => {}
                Flushed::Full => {
                    port.port.is_waiting = true;
                    return;
                }
                Flushed::Broken => return self.drop_host(key, scene),
            }
        }
        if port.is_closing {
            self.drop_host(key, scene);
        }
    }

    /// Tells the worker that a host's socket takes more, if it waits for that.
    pub(crate) fn wake_host_writer(&mut self, key: HostKey, scene: &mut Scene) {
        let host = scene.host(key);
        let is_ready = host.to_host.free() > 0 || host.to_host.reader_gone;
        if let Some(port) = self.hosts.get_mut(&key)
            && port.port.is_waiting
            && is_ready
        {
            port.port.is_waiting = false;
            self.post(Inbound::HostWritable(key), scene);
        }
    }

    /// The attachment has ended at once.
    pub(crate) fn drop_host(&mut self, key: HostKey, scene: &mut Scene) {
        self.core.mux.handle_host_gone(key, scene.clock.now);
        self.let_go(key, scene);
    }

    pub(crate) fn let_go(&mut self, key: HostKey, scene: &mut Scene) {
        if self.hosts.remove(&key).is_some() {
            scene.let_go(key);
        }
    }

    /// The daemon reads what a host has sent.
    pub(crate) fn read_host(&mut self, key: HostKey, scene: &mut Scene) {
        let has_room = self.has_room();
        let place = crate::scene::place_of(key);
        let host = &mut scene.hosts[place];
        host.is_noticed = false;
        if host.reader.is_none() {
            if host.to_host.reader_gone {
                self.post(Inbound::HostGone(key), scene);
            }
            return;
        }
        if !has_room {
            host.is_noticed = true;
            let delay = scene.clock.random.ms(1, 20);
            let tick = crate::clock::Tick::HostRead(place);
            return scene.clock.after(delay, tick);
        }
        let most = match scene.clock.random.chance(20) {
            true => scene.clock.random.index(100) + 1,
            false => usize::MAX,
        };
        let bytes = host.to_daemon.read(most);
        host.flush(&mut scene.clock);
        let is_over = host.to_daemon.is_at_end();
        let is_hung_up = is_over && host.to_host.reader_gone;
        let limit = self.limit();
        let lines = read_lines(&mut host.reader, &bytes, limit, is_over);
        if !is_over {
            host.notice(&mut scene.clock);
        }
        if !lines.is_empty() {
            self.post(Inbound::HostLines(key, lines), scene);
        }
        if is_over {
            self.post(Inbound::HostEnded(key), scene);
        }
        if is_hung_up {
            self.post(Inbound::HostGone(key), scene);
        }
    }
}

/// The lines that came with `bytes`; at the end also what no newline ended.
fn read_lines(
    slot: &mut Option<LineReader>,
    bytes: &[u8],
    limit: usize,
    is_over: bool,
) -> Vec<Line> {
    let Some(reader) = slot else {
        return Vec::new();
    };
    reader.set_limit(limit);
    reader.feed(bytes);
    let mut lines: Vec<Line> = std::iter::from_fn(|| reader.poll()).collect();
    if is_over {
        lines.extend(reader.finish());
        *slot = None;
    }
    lines
}
