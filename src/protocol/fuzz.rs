//! A million lines that nobody meant well with, at any split.
//!
//! Every stream is made from a number. A stream that fails is printed with that number and as
//! bytes, so that it can be put into a table of the line reader's tests.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::envelope::Member;
use super::frame::FrameArena;
use super::line::LineReader;
use super::message::{FaultReason, Line, Message, SAMPLE_BYTES};
use super::splice::Splice;

const LINES: usize = 1_000_000;

const LINES_OF_A_STREAM: usize = 50;

/// Most bytes that are fed at once.
const PIECE_LIMIT: usize = 600;

/// What peers write, well-formed; lines are made by damaging these.
const SEEDS: &[&str] = &[
    r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"h","version":"1"}}}"#,
    r#"{"method":"tools/call","params":{"name":"add","arguments":{"a":2,"b":[1.5e3,null,true]},"_meta":{"progressToken":"p"}},"jsonrpc":"2.0","id":"a-b"}"#,
    r#"{"result":{"content":[{"type":"text","text":"line\n \u00e9 \ud83d\ude00 é 漢 🦀"}],"isError":false},"jsonrpc":"2.0","id":12}"#,
    r#"{"jsonrpc":"2.0","id":9007199254740993,"error":{"code":-32601,"message":"no","data":{"x":[]}}}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7,"progress":0.5}}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"a","reason":"\ud83d"}}"#,
    r#"[{"jsonrpc":"2.0","id":1,"result":{}},{"jsonrpc":"2.0","method":"m"},[],5]"#,
    r#"{"\u0069d":1,"id":2,"method":"m"}"#,
    "Listening on http://localhost:3000",
    "\u{1b}[33mwarning\u{1b}[0m: slow",
    "[####    ] 50%\r{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{}}",
    "Content-Length: 52\r",
    "\u{feff}{}",
    "",
    " \t\r",
];

/// Bytes that matter to the reader, to be put anywhere.
const PIECES: &[&[u8]] = &[
    b"\"",
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\r",
    b"\n",
    b"\0",
    b"\x1b[",
    b"\xEF\xBB\xBF",
    b"\xEF",
    b"\xC3",
    b"\xED\xA0\x80",
    b"\xF0\x9F",
    b"\xFF\xFE",
    b"\\u",
    b"\\ud83d",
    b"-",
    b"1e",
    b"nul",
    b"\"id\":",
    b"\"method\":\"m\",",
    b"\"id\":[",
    b"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
];

/// SplitMix64: small, and the same everywhere.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    /// A number below `end`, which is not zero.
    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn pick<Item>(&mut self, items: &[Item]) -> usize {
        self.below(items.len())
    }
}

fn damage(line: &mut Vec<u8>, numbers: &mut Numbers) {
    let at = numbers.below(line.len() + 1);
    match numbers.below(8) {
        0 => line.truncate(at),
        1 => {
            let len = numbers.below(9);
            line.drain(at..(at + len).min(line.len()));
        }
        2 if at < line.len() => line[at] = numbers.next() as u8,
        3 => {
            // A part of the line once more, which doubles members.
            let end = at + numbers.below(line.len() - at + 1);
            line.extend_from_within(at..end);
        }
        4 => {
            let seed = SEEDS[numbers.pick(SEEDS)].as_bytes();
            line.splice(at..at, seed.iter().copied());
        }
        _ => {
            let piece = PIECES[numbers.pick(PIECES)];
            line.splice(at..at, piece.iter().copied());
        }
    }
}

fn push_line(stream: &mut Vec<u8>, numbers: &mut Numbers) {
    let mut line = match numbers.below(16) {
        0 => (0..numbers.below(120))
            .map(|_| numbers.next() as u8)
            .collect(),
        1 => (0..numbers.below(30))
            .flat_map(|_| PIECES[numbers.pick(PIECES)].to_vec())
            .collect(),
        _ => SEEDS[numbers.pick(SEEDS)].as_bytes().to_vec(),
    };
    for _ in 0..numbers.below(4) {
        damage(&mut line, numbers);
    }
    stream.append(&mut line);
    stream.extend_from_slice(if numbers.below(8) == 0 {
        b"\r\n"
    } else {
        b"\n"
    });
}

/// What is done with every message on its way, so that this too meets every input.
fn use_message(message: &Message, arena: &mut FrameArena) {
    let mut splice = Splice::of(message);
    splice
        .replace_member(Member::Id, b"77")
        .replace_member(Member::MetaProgressToken, b"77");
    let frame = splice.finish_in(arena);
    assert_eq!(
        frame.segments().last().and_then(|segment| segment.last()),
        Some(&b'\n')
    );
    // What mcpd has changed, a peer must still be able to read.
    let mut changed = LineReader::new(1 << 20);
    for segment in frame.segments() {
        changed.feed(segment);
    }
    let read = changed.poll();
    assert!(
        matches!(&read, Some(Line::Message(again)) if again.kind() == message.kind() || message.ids().is_empty()),
        "{read:?}"
    );
    assert!(changed.poll().is_none());
}

/// What has come out of all streams.
#[derive(Default)]
struct Met {
    messages: usize,
    batches: usize,
    reasons: HashSet<FaultReason>,
    arena: FrameArena,
}

impl Met {
    fn take(&mut self, line: &Line) {
        match line {
            Line::Message(message) => {
                self.messages += 1;
                use_message(message, &mut self.arena);
            }
            Line::Batch(batch) => {
                self.batches += 1;
                for message in batch.messages() {
                    use_message(message, &mut self.arena);
                }
            }
            Line::Fault(fault) => {
                self.reasons.insert(fault.reason);
                assert!(fault.sample_text().len() <= SAMPLE_BYTES * 8);
            }
        }
    }
}

/// Feeds `stream` in pieces and hands over what comes out.
fn read_in_pieces(stream: &[u8], limit: usize, numbers: &mut Numbers, mut take: impl FnMut(Line)) {
    let mut reader = LineReader::new(limit);
    let mut rest = stream;
    while !rest.is_empty() {
        let most = if numbers.below(4) == 0 {
            3
        } else {
            PIECE_LIMIT
        };
        let (piece, behind) = rest.split_at((1 + numbers.below(most)).min(rest.len()));
        rest = behind;
        reader.feed(piece);
        while let Some(line) = reader.poll() {
            take(line);
        }
        let held = reader.held_bytes();
        assert!(
            held <= limit + SAMPLE_BYTES + 2 * PIECE_LIMIT,
            "{held} bytes held"
        );
    }
    if let Some(line) = reader.finish() {
        take(line);
    }
    assert_eq!(reader.held_bytes(), 0);
}

fn try_stream(number: u64, met: &mut Met) -> usize {
    let mut numbers = Numbers(number);
    let mut stream = Vec::new();
    for _ in 0..LINES_OF_A_STREAM {
        push_line(&mut stream, &mut numbers);
    }
    let limit = [40, 200, 1 << 20][numbers.below(3)];
    let newlines = stream.iter().filter(|&&byte| byte == b'\n').count();
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let mut found = Vec::new();
        let mut count = 0;
        // What comes out of another split is compared for some, as it costs the most here.
        let compare = number.is_multiple_of(8);
        read_in_pieces(&stream, limit, &mut numbers, |line| {
            met.take(&line);
            count += 1;
            if compare {
                found.push(format!("{line:?}"));
            }
        });
        assert!(count <= newlines, "more lines than newlines");
        if compare {
            let mut again = Vec::new();
            read_in_pieces(&stream, limit, &mut numbers, |line| {
                again.push(format!("{line:?}"));
            });
            assert_eq!(found, again);
        }
    }));
    if outcome.is_err() {
        let bytes = stream.escape_ascii();
        panic!("stream {number} with limit {limit} failed: b\"{bytes}\"");
    }
    newlines
}

#[test]
fn a_million_lines_are_read_without_panic_or_loss() {
    let mut met = Met::default();
    let mut lines = 0;
    let mut number = 0;
    while lines < LINES {
        lines += try_stream(number, &mut met);
        number += 1;
    }
    // The test means nothing if damage leaves no message whole, or every one.
    assert!(met.messages > LINES / 10, "{} messages", met.messages);
    assert!(met.batches > LINES / 100, "{} batches", met.batches);
    for reason in [
        FaultReason::NotJson,
        FaultReason::Truncated,
        FaultReason::MultiLine,
        FaultReason::InvalidUtf8,
        FaultReason::TooLong,
        FaultReason::ContentLength,
    ] {
        assert!(met.reasons.contains(&reason), "no line was {reason:?}");
    }
}
