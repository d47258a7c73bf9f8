//! What a call costs in the parts that decide: from a host's line to the child's, and back.
//!
//! The same code as in the daemon, without descriptors, so that what it does can be counted: by the
//! allocator below, and by `valgrind --tool=callgrind` around `relay core N`.

#![expect(unsafe_code, reason = "an allocator that counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mcpd::ids::{Generation, HostKey};
use mcpd::protocol::{EraChoice, LineReader};
use mcpd::session::{HostInfo, Mux, MuxConfig, Pool, Service};
use mcpd::time::Moment;

/// What the child says to `initialize`, behind its id.
const WELCOME: &str = r#""result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"echo","version":"1"}}}"#;
/// Calls before anything is counted, so that tables and buffers have their size.
const WARM_UP: u64 = 1_000;

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: everything is left to the system's allocator; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as the caller promised.
        unsafe { System.realloc(place, layout, size) }
    }
}

/// A multiplexer between one host and one child.
struct Cores {
    mux: Mux,
    host: HostKey,
    generation: Generation,
    from_host: LineReader,
    from_child: LineReader,
    now: Moment,
}

impl Cores {
    fn new() -> Self {
        let config = MuxConfig {
            protocol: EraChoice::Legacy,
            ..MuxConfig::of("echo")
        };
        let mut cores = Self {
            mux: Mux::new(config, Pool::new(512 << 20)),
            host: HostKey(1),
            generation: Generation::default().next(),
            from_host: LineReader::new(64 << 20),
            from_child: LineReader::new(64 << 20),
            now: Moment::ZERO,
        };
        cores.mux.set_service(Service::Serving, cores.now);
        cores
            .mux
            .handle_child_started(cores.generation, None, cores.now);
        cores
            .mux
            .attach(cores.host, HostInfo::default())
            .expect("there is room");
        cores
    }

    /// Passes a line of the host on; what the child gets of it, in `to_child`.
    fn host_says(&mut self, line: &[u8], to_child: &mut Vec<u8>) {
        self.from_host.spare().extend_from_slice(line);
        while let Some(line) = self.from_host.poll() {
            self.mux.handle_host_line(self.host, line, self.now);
        }
        self.drain(to_child);
    }

    fn child_says(&mut self, line: &[u8], to_child: &mut Vec<u8>) -> usize {
        self.from_child.spare().extend_from_slice(line);
        while let Some(line) = self.from_child.poll() {
            self.mux.handle_child_line(self.generation, line, self.now);
        }
        self.drain(to_child)
    }

    /// Takes what waits for both sides; how many bytes there were for the host.
    fn drain(&mut self, to_child: &mut Vec<u8>) -> usize {
        to_child.clear();
        while self.mux.poll_action().is_some() {}
        while let Some(frame) = self.mux.poll_child_frame(self.now) {
            for segment in frame.segments() {
                to_child.extend_from_slice(segment);
            }
        }
        let mut for_host = 0;
        while let Some(next) = self.mux.poll_host_frame(self.host) {
            for_host += next.frame.len();
            self.mux.host_frame_written(self.host, next.frame.len());
        }
        for_host
    }
}

/// Passes `calls` calls and their answers; the allocations of one of them.
pub(crate) fn run(calls: u64) -> f64 {
    let mut cores = Cores::new();
    let mut to_child = Vec::with_capacity(4096);
    let (mut line, mut answer) = (Vec::with_capacity(4096), Vec::with_capacity(4096));
    cores.drain(&mut to_child);
    write_line(&mut answer, id_of(&to_child), WELCOME);
    cores.child_says(&answer, &mut to_child);
    cores.host_says(b"{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"2025-11-25\",\"capabilities\":{},\"clientInfo\":{\"name\":\"b\",\"version\":\"1\"}}}\n", &mut to_child);
    let mut before = 0;
    for call in 1..=WARM_UP + calls {
        if call == WARM_UP + 1 {
            before = ALLOCATIONS.load(Ordering::Relaxed);
        }
        cores.now += Duration::from_micros(50);
        write_line(
            &mut line,
            call,
            "\"method\":\"tools/call\",\"params\":{\"name\":\"echo\",\"arguments\":{\"bytes\":16}}}",
        );
        cores.host_says(&line, &mut to_child);
        let id = id_of(&to_child);
        write_line(
            &mut answer,
            id,
            "\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"xxxxxxxxxxxxxxxx\"}]}}",
        );
        let got = cores.child_says(&answer, &mut to_child);
        assert!(got > 0, "each call is answered");
    }
    let counted = ALLOCATIONS.load(Ordering::Relaxed) - before;
    counted as f64 / calls as f64
}

fn write_line(line: &mut Vec<u8>, id: u64, rest: &str) {
    use std::io::Write as _;
    line.clear();
    writeln!(line, "{{\"jsonrpc\":\"2.0\",\"id\":{id},{rest}").expect("memory takes it");
}

/// The id under which the child was asked.
fn id_of(line: &[u8]) -> u64 {
    let mark = b"\"id\":";
    let at = memchr::memmem::find(line, mark).expect("a request has an id") + mark.len();
    line[at..]
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .fold(0, |id, digit| id * 10 + u64::from(digit - b'0'))
}
