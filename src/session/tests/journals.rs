//! Hosts with a journal: what stands in it at every moment, and a daemon that goes on from one.

use std::sync::Arc;

use super::*;
use crate::journal::tests::{Recorder, fresh};
use crate::journal::{Ended, Image, Writer};

const REGION: usize = 128 << 10;

/// A multiplexer and the journal of its host A.
struct Journaled {
    bench: Bench,
    memory: Arc<Recorder>,
    until: u64,
}

impl Journaled {
    /// Goes on from what an earlier one left.
    fn resume(mut bench: Bench, image: &Image) -> Self {
        let (memory, _) = fresh(REGION, image);
        bench.attach(A);
        let writer = Writer::new(memory.clone());
        bench.mux.resume(A, writer, image, bench.now);
        bench.pump();
        Self {
            bench,
            memory,
            until: 0,
        }
    }

    fn new() -> Self {
        let bench = Bench::serving(config(), &[B]);
        let mut this = Self::resume(bench, &Image::default());
        this.host(&initialize("0", "2025-06-18"));
        assert_eq!(this.bench.take_host(A).len(), 1);
        this
    }

    /// Host A sends a line, and nothing is written yet.
    fn take(&mut self, text: &str) {
        self.until += text.len() as u64 + 1;
        let (line, now) = (line(text), self.bench.now);
        self.bench
            .mux
            .handle_journaled_line(A, line, self.until, now);
    }

    fn host(&mut self, text: &str) {
        self.take(text);
        self.bench.pump();
    }

    fn image(&self) -> Image {
        Image::read(&*self.memory).expect("it can be read at any time")
    }

    /// The ids of the requests that are open, those whose answer has begun with a mark.
    fn open(&self) -> Vec<String> {
        let text = |open: &crate::journal::Open| {
            let mark = if open.has_begun { "!" } else { "" };
            format!("{}{mark}", String::from_utf8_lossy(&open.id))
        };
        self.image().open.iter().map(text).collect()
    }
}

#[test]
fn a_request_is_open_from_its_line_to_the_end_of_its_answer() {
    let mut it = Journaled::new();
    assert_eq!(it.open(), [""; 0]);
    it.take(&call("\"a\""));
    assert_eq!(it.open(), ["\"a\""], "before the child has it");
    it.bench.pump();
    it.bench.take_child();
    let (line, now) = (line(result("5")), it.bench.now);
    it.bench
        .mux
        .handle_child_line(it.bench.generation, line, now);
    assert_eq!(it.open(), ["\"a\""]);
    let frame = it.bench.mux.poll_host_frame(A).expect("the answer");
    assert_eq!(it.open(), ["\"a\"!"]);
    it.bench.mux.host_frame_written(A, frame.frame.len() - 1);
    assert_eq!(it.open(), ["\"a\"!"]);
    it.bench.mux.host_frame_written(A, 1);
    assert_eq!(it.open(), [""; 0]);
    assert!(!it.image().is_half, "a short line is never half written");
}

#[test]
fn a_long_line_is_half_written_until_its_end() {
    let mut it = Journaled::new();
    it.host(&call("1"));
    let long = format!(
        r#"{{"jsonrpc":"2.0","id":5,"result":"{}"}}"#,
        "x".repeat(5000)
    );
    let mut reader = LineReader::new(10_000);
    reader.feed(long.as_bytes());
    let (line, now) = (reader.finish().expect("a line"), it.bench.now);
    it.bench
        .mux
        .handle_child_line(it.bench.generation, line, now);
    assert!(!it.image().is_half);
    let frame = it.bench.mux.poll_host_frame(A).expect("the answer");
    it.bench.mux.host_frame_written(A, 1000);
    assert!(it.image().is_half);
    it.bench.mux.host_frame_written(A, frame.frame.len() - 1000);
    assert!(!it.image().is_half && it.open().is_empty());
}

/// What is answered here, refused or cancelled is in no list for ever.
#[test]
fn every_request_that_ends_leaves_the_journal() {
    let mut it = Journaled::new();
    for text in [
        r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#,
        r#"{"jsonrpc":"1.0","id":2,"method":"tools/call"}"#,
        r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":[]}"#,
        r#"{"jsonrpc":"2.0","id":4,"method":"server/discover"}"#,
        r#"{"jsonrpc":"2.0","id":5,"id":5,"method":"tools/call"}"#,
        r#"{"jsonrpc":"2.0","id":6,"method":"tools/call","params":{}"#,
        r#"[{"jsonrpc":"2.0","id":7,"method":"ping"}]"#,
    ] {
        it.host(text);
        assert_eq!(it.bench.take_host(A).len(), 1, "{text}");
        assert_eq!(it.open(), [""; 0], "{text}");
    }
    it.host(&call("8"));
    it.host(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":8}}"#);
    assert_eq!(it.open(), [""; 0]);
    it.host(&call("9"));
    it.bench.crash();
    assert_eq!(it.bench.take_host(A).len(), 1);
    assert_eq!(it.open(), [""; 0]);
}

#[test]
fn an_initialize_that_waits_is_marked_as_one() {
    let bench = Bench::new(config());
    let mut it = Journaled::resume(bench, &Image::default());
    it.host(&initialize("0", "2025-06-18"));
    let image = it.image();
    assert!(image.open[0].is_initialize && image.told.is_none());
    assert_eq!(
        image.initialize.as_deref(),
        Some(initialize("0", "2025-06-18").as_bytes())
    );
    it.bench.start();
    it.bench.open();
    let image = it.image();
    assert_eq!(image.told.as_deref(), Some("2025-06-18"));
    assert_eq!(image.open, []);
}

/// A daemon that comes after another: the host's level and subscriptions hold, and it is asked nothing.
#[test]
fn a_session_goes_on_in_the_next_daemon() {
    let mut it = Journaled::new();
    it.host(r#"{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"debug"}}"#);
    it.bench.child(r#"{"jsonrpc":"2.0","id":5,"result":{}}"#);
    for (id, uri) in [("6", "file:///a"), ("7", "file:///b")] {
        it.host(&format!(
            r#"{{"jsonrpc":"2.0","id":"{uri}","method":"resources/subscribe","params":{{"uri":"{uri}"}}}}"#
        ));
        it.bench
            .child(format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#));
    }
    it.host(
        r#"{"jsonrpc":"2.0","id":1,"method":"resources/unsubscribe","params":{"uri":"file:///a"}}"#,
    );
    it.bench.child(r#"{"jsonrpc":"2.0","id":8,"result":{}}"#);
    it.bench.mux.end_journal(A, Ended::Ending);
    let image = it.image();
    assert_eq!(
        (image.ended, image.level.as_deref()),
        (Ended::Ending, Some("debug"))
    );

    let mut next = Journaled::resume(Bench::new(config()), &image);
    next.bench.start();
    next.bench.open();
    let told = next.bench.take_child();
    assert!(
        told.iter().any(|line| line.contains("\"level\":\"debug\"")),
        "{told:?}"
    );
    assert!(
        told.iter().any(|line| line.contains("file:///b")),
        "{told:?}"
    );
    assert!(
        !told.iter().any(|line| line.contains("file:///a")),
        "{told:?}"
    );
    let update = r#"{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"file:///b"}}"#;
    next.bench.child(update);
    next.bench.expect_host(A, &[update]);
    next.host(&call("1"));
    assert_eq!(next.bench.take_child().len(), 1, "no second handshake");
    assert_eq!(next.image().told, image.told);
}

/// Hosts are told of another list only if it is another one.
#[test]
fn lists_are_compared_across_daemons() {
    const LIST: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    let tools = |id: u32, name: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"tools":[{{"name":"{name}"}}]}}}}"#)
    };
    let mut it = Journaled::new();
    it.host(LIST);
    it.bench.child(tools(5, "one"));
    let image = it.image();
    for (name, heard) in [("one", 0), ("two", 1)] {
        let mut next = Journaled::resume(Bench::new(config()), &image);
        next.bench.start();
        next.bench.open();
        assert_eq!(next.bench.take_child().len(), 1, "the list is asked for");
        next.bench.child(tools(5, name));
        assert_eq!(next.bench.take_host(A).len(), heard, "{name}");
    }
    let mut late = Bench::new(config());
    late.start();
    late.open();
    let mut late = Journaled::resume(late, &image);
    late.bench.child(tools(5, "two"));
    assert_eq!(late.bench.take_host(A).len(), 1);
}

#[test]
fn a_full_list_of_requests_refuses_the_next() {
    let mut it = Journaled::new();
    it.bench.judges.tainted.add("tools/call");
    let id = format!("\"{}\"", "x".repeat(60_000));
    let line = |number: u32| {
        let text = format!(
            r#"{{"jsonrpc":"2.0","id":{},"method":"tools/call"}}"#,
            id.replacen('x', &number.to_string(), 1)
        );
        let mut reader = LineReader::new(100_000);
        reader.feed(text.as_bytes());
        reader.finish().expect("a line")
    };
    let now = it.bench.now;
    it.bench.mux.handle_journaled_line(A, line(1), 1, now);
    it.bench.mux.handle_journaled_line(A, line(2), 2, now);
    it.bench.pump();
    let answers = it.bench.take_host(A);
    assert!(
        answers.len() == 1 && answers[0].contains("-31002"),
        "{}",
        answers.len()
    );
    assert_eq!(it.open().len(), 1);
}
