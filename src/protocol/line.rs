//! Cuts a stream of bytes into lines and says of each what it is.
//!
//! Decides where a line ends (at a newline, whatever else Unicode or a terminal calls one), what
//! may stand before a message on its line, and which bytes are held: a message's once, noise not
//! at all, and of a line beyond the limit only an id that is still arriving. Never reads or
//! writes: the shell reads into [`LineReader::spare`].

use bytes::{Buf, Bytes, BytesMut};
use memchr::memchr2;
use smallvec::SmallVec;

use super::envelope::Member;
use super::id::RequestId;
use super::json;
use super::message::{Batch, BatchItem, Fault, FaultReason, Line, Message, SAMPLE_BYTES};
use super::scan::{Scan, Scanner, Verdict};

/// Most elements of one batch.
pub const BATCH_LIMIT: usize = 1_000;

/// Bytes for which [`LineReader::spare`] has room, at least.
const SPARE_BYTES: usize = 4 * 1024;

/// Bytes that are taken from the allocator at once while lines are short.
const CHUNK_BYTES: usize = 16 * 1024;

/// A line beyond this length takes its memory along, so that the reader does not keep it for the
/// short lines that follow.
const LARGE_BYTES: usize = 256 * 1024;

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// Takes bytes in pieces of any size and gives lines.
#[derive(Debug)]
pub struct LineReader {
    limit_bytes: usize,
    /// What has come and is not let go of; begins in the current line.
    buffer: BytesMut,
    place: Place,
    /// Outside a message: how much of the buffer has been looked at.
    looked: usize,
    /// In a message: where it starts in the buffer.
    start: usize,
    scanner: Scanner,
    /// Whether something that belongs to no message stood on this line.
    noise: bool,
    /// Whether the line before this one only opened a bracket, as the first line of a message
    /// does that is printed over several.
    opened: bool,
    /// Whether the line is beyond the limit and no longer kept.
    overlong: bool,
    /// Bytes of this line that have been let go of.
    gone_bytes: u64,
    /// Bytes of whole lines that were handed out or passed over.
    consumed_bytes: u64,
    /// The first of those.
    sample: SmallVec<[u8; SAMPLE_BYTES]>,
}

/// What the reader is in the middle of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Nothing but blanks yet.
    Start,
    /// Behind an escape character that may begin a terminal control sequence.
    Escape,
    /// In such a sequence (ECMA-48, section 5.4).
    Sequence,
    /// In something that is no message.
    Noise,
    /// In an object or array.
    Json,
}

/// A message of which a part has come.
#[derive(Debug)]
pub struct Arriving<'reader> {
    /// The readable ids at its top level so far.
    pub ids: &'reader [RequestId],
    /// Whether a top-level `method` has come, so that it is no answer.
    pub has_method: bool,
    /// Bytes that have come.
    pub len_bytes: usize,
}

impl LineReader {
    /// A reader that holds no line longer than `limit_bytes` (4 GiB at the most), its ending not
    /// counted.
    pub fn new(limit_bytes: usize) -> Self {
        let mut reader = Self {
            limit_bytes: 0,
            buffer: BytesMut::new(),
            place: Place::Start,
            looked: 0,
            start: 0,
            scanner: Scanner::new(),
            noise: false,
            opened: false,
            overlong: false,
            gone_bytes: 0,
            consumed_bytes: 0,
            sample: SmallVec::new(),
        };
        reader.set_limit(limit_bytes);
        reader
    }

    /// Changes the limit, for the line that is arriving too.
    pub fn set_limit(&mut self, limit_bytes: usize) {
        // Spans are 32 bits wide, and some bytes beyond the limit are held for a moment.
        self.limit_bytes = limit_bytes.min(u32::MAX as usize - 1024);
    }

    /// Where the shell appends what it has read. There is room for some kilobytes at least.
    pub fn spare(&mut self) -> &mut BytesMut {
        if self.buffer.capacity() - self.buffer.len() < SPARE_BYTES {
            // Also takes memory back that earlier lines have stopped using.
            self.buffer.reserve(CHUNK_BYTES);
        }
        &mut self.buffer
    }

    /// Appends `bytes`, copied.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole line. Blank lines are passed over.
    pub fn poll(&mut self) -> Option<Line> {
        loop {
            let Some(newline) = self.find_newline() else {
                self.let_go();
                return None;
            };
            self.consumed_bytes += self.gone_bytes + newline as u64 + 1;
            if self.place == Place::Start && !self.noise {
                self.buffer.advance(newline + 1);
                self.begin_line();
                continue;
            }
            let line = self.take_line(newline);
            self.begin_line();
            return Some(line);
        }
    }

    /// At the end of input: what is left, as if a newline had followed. Call after the last line
    /// has been polled.
    pub fn finish(&mut self) -> Option<Line> {
        if self.is_mid_line() {
            self.buffer.extend_from_slice(b"\n");
        }
        self.poll()
    }

    /// Bytes held for the line that is arriving.
    pub fn held_bytes(&self) -> usize {
        self.buffer.len() + self.sample.len() + self.scanner.held_bytes()
    }

    /// Where in the stream the lines end that [`LineReader::poll`] has gone through.
    pub fn consumed_bytes(&self) -> u64 {
        self.consumed_bytes
    }

    /// Whether a part of a line has come and its newline has not.
    pub fn is_mid_line(&self) -> bool {
        self.gone_bytes > 0 || !self.buffer.is_empty()
    }

    /// The message of which a part has come, as far as it has been polled.
    pub fn arriving(&self) -> Option<Arriving<'_>> {
        let envelope = self.scanner.envelope();
        (self.place == Place::Json).then(|| Arriving {
            ids: &envelope.ids,
            has_method: envelope.has(Member::Method),
            len_bytes: self.scanner.position(),
        })
    }

    /// Where the current line ends in the buffer.
    fn find_newline(&mut self) -> Option<usize> {
        loop {
            if self.place != Place::Json {
                let newline = self.look_for_start();
                if newline.is_some() || self.place != Place::Json {
                    return newline;
                }
            }
            match self.scanner.scan(&self.buffer[self.start..]) {
                Scan::Pending => return None,
                Scan::LineEnd(at) => return Some(self.start + at),
                Scan::Restart(at) => self.restart(self.start + at + 1),
            }
        }
    }

    /// Looks at the buffer up to the start of a message or the newline.
    fn look_for_start(&mut self) -> Option<usize> {
        while let Some(&byte) = self.buffer.get(self.looked) {
            match (self.place, byte) {
                (_, b'\n') => return Some(self.looked),
                (_, b'\r') => self.place = Place::Start,
                (Place::Start, b' ' | b'\t') => {}
                (Place::Start, b'{' | b'[') => {
                    self.place = Place::Json;
                    self.start = self.looked;
                    return None;
                }
                (Place::Start, 0xEF) if self.is_at_mark()? => {
                    self.looked += BYTE_ORDER_MARK.len();
                    continue;
                }
                (Place::Start, 0x1B) => self.place = Place::Escape,
                (Place::Escape, b'[') => self.place = Place::Sequence,
                (Place::Sequence, 0x20..=0x3F) => {}
                (Place::Sequence, 0x40..=0x7E) => {
                    self.noise = true;
                    self.place = Place::Start;
                }
                _ => {
                    self.pass_noise();
                    continue;
                }
            }
            self.looked += 1;
        }
        None
    }

    /// Whether a whole byte order mark comes next; `None` if that cannot be told yet.
    fn is_at_mark(&self) -> Option<bool> {
        let rest = &self.buffer[self.looked..];
        if rest.len() < BYTE_ORDER_MARK.len() && BYTE_ORDER_MARK.starts_with(rest) {
            return None;
        }
        Some(rest.starts_with(BYTE_ORDER_MARK))
    }

    fn pass_noise(&mut self) {
        self.place = Place::Noise;
        self.noise = true;
        let rest = &self.buffer[self.looked..];
        self.looked += memchr2(b'\n', b'\r', rest).unwrap_or(rest.len());
    }

    /// What came up to `at` in the buffer is noise; a message may follow.
    fn restart(&mut self, at: usize) {
        self.drop_front(at);
        self.scanner.reset();
        self.noise = true;
        self.overlong = false;
        self.place = Place::Start;
        self.looked = 0;
        self.start = 0;
    }

    /// Lets go of what need not be held while the line goes on.
    fn let_go(&mut self) {
        if self.place != Place::Json {
            self.drop_front(self.looked);
            self.looked = 0;
            return;
        }
        // One byte more may still be the carriage return of the line's ending.
        if self.scanner.position() > self.limit_bytes + 1 {
            self.overlong = true;
        }
        if self.overlong {
            let forgotten = self.scanner.forget();
            self.drop_front(self.start + forgotten);
            self.start = 0;
        }
    }

    /// Lets go of the first `len` bytes of the buffer, which are of the current line.
    fn drop_front(&mut self, len: usize) {
        let room = SAMPLE_BYTES - self.sample.len();
        self.sample.extend_from_slice(&self.buffer[..len.min(room)]);
        self.gone_bytes += len as u64;
        self.buffer.advance(len);
        if len > LARGE_BYTES {
            // The buffer would keep the memory of what was let go of.
            self.buffer = BytesMut::from(&self.buffer[..]);
        }
    }

    /// The line that ends at `newline` in the buffer.
    #[inline]
    fn take_line(&mut self, newline: usize) -> Line {
        if self.place == Place::Json {
            return self.take_json(newline);
        }
        self.drop_front(newline);
        let reason = self.noise_reason();
        self.opened = false;
        self.take_fault(0, reason)
    }

    fn begin_line(&mut self) {
        if self.place == Place::Json {
            self.scanner.reset();
        }
        self.place = Place::Start;
        self.looked = 0;
        self.start = 0;
        self.noise = false;
        self.overlong = false;
        self.gone_bytes = 0;
        self.sample.clear();
    }

    #[inline]
    fn take_json(&mut self, newline: usize) -> Line {
        let verdict = self.scanner.verdict();
        self.opened = verdict == Verdict::CutBetweenTokens && !self.scanner.saw_member();
        if self.is_too_long(newline) {
            let noise = verdict == Verdict::Broken && !self.scanner.saw_member();
            let reason = if noise {
                FaultReason::NotJson
            } else {
                FaultReason::TooLong
            };
            return self.take_fault(newline, reason);
        }
        match verdict {
            Verdict::Whole { is_array: true, .. } if self.scanner.items() > BATCH_LIMIT => {
                self.take_fault(newline, FaultReason::BatchTooLong)
            }
            Verdict::Whole { end, is_array } => {
                let start = self.start;
                let mut bytes = self.take_bytes(newline).slice(start..start + end);
                if self.scanner.has_returns() {
                    bytes = without_returns(&bytes);
                }
                if is_array {
                    Line::Batch(split_batch(bytes))
                } else {
                    Line::Message(Message::new(
                        bytes,
                        self.scanner.take_envelope(),
                        self.noise,
                    ))
                }
            }
            _ => {
                let reason = self.broken_reason(verdict, newline);
                self.take_fault(newline, reason)
            }
        }
    }

    fn is_too_long(&self, newline: usize) -> bool {
        let message = &self.buffer[self.start..newline];
        let len = message.len() - usize::from(message.last() == Some(&b'\r'));
        self.overlong || len > self.limit_bytes
    }

    fn broken_reason(&self, verdict: Verdict, newline: usize) -> FaultReason {
        let trailing = self.scanner.trailing().unwrap_or(newline - self.start);
        // In that framing no newline follows a body: the next header stands on its line.
        if is_header(&self.buffer[self.start + trailing..newline]) {
            return FaultReason::ContentLength;
        }
        match verdict {
            Verdict::TooDeep => FaultReason::TooDeep,
            _ if !self.scanner.saw_member() => FaultReason::NotJson,
            Verdict::CutBetweenTokens => FaultReason::MultiLine,
            Verdict::InvalidUtf8 => FaultReason::InvalidUtf8,
            _ => FaultReason::Truncated,
        }
    }

    /// What a line without any message in it is, going by how it begins.
    fn noise_reason(&self) -> FaultReason {
        if is_header(&self.sample) {
            FaultReason::ContentLength
        } else if self.opened && is_first_member(&self.sample) {
            FaultReason::MultiLine
        } else {
            FaultReason::NotJson
        }
    }

    fn take_fault(&mut self, newline: usize, reason: FaultReason) -> Line {
        let room = SAMPLE_BYTES - self.sample.len();
        self.sample
            .extend_from_slice(&self.buffer[..newline.min(room)]);
        let len_bytes = self.gone_bytes + newline as u64;
        drop(self.take_bytes(newline));
        let envelope = self.scanner.take_envelope();
        Line::Fault(Fault {
            reason,
            has_method: envelope.has(Member::Method),
            ids: envelope.ids,
            len_bytes,
            sample: Bytes::copy_from_slice(&self.sample),
        })
    }

    /// The buffer up to the newline.
    fn take_bytes(&mut self, newline: usize) -> Bytes {
        let line = self.buffer.split_to(newline + 1).freeze();
        if line.len() > LARGE_BYTES {
            self.buffer = BytesMut::from(&self.buffer[..]);
        }
        line
    }
}

/// A whole message with a blank for each carriage return between its tokens. To a reader with
/// universal newlines (Python's text files are such) a carriage return ends a line, and what stands
/// between two of them would be a message of its own, with an id and a tool that nobody looked at.
/// In a string it cannot stand (RFC 8259, section 7).
fn without_returns(bytes: &[u8]) -> Bytes {
    let blank = |byte: &u8| if *byte == b'\r' { b' ' } else { *byte };
    bytes.iter().map(blank).collect()
}

/// Whether a line is a header of the framing that language servers use.
fn is_header(line: &[u8]) -> bool {
    const NAME: &[u8] = b"content-length:";
    let start = json::skip_space(line, 0);
    line.get(start..start + NAME.len())
        .is_some_and(|name| name.eq_ignore_ascii_case(NAME))
}

/// Whether a line, which follows a lone opening bracket, is the first member of a message that is
/// printed over several lines. Names that objects of every kind have, `id` for one, do not count.
fn is_first_member(line: &[u8]) -> bool {
    let line = &line[json::skip_space(line, 0)..];
    [&b"\"jsonrpc\":"[..], b"\"result\":", b"\"error\":"]
        .iter()
        .any(|name| line.starts_with(name))
}

/// The elements of the array that `bytes` are. They share its memory.
fn split_batch(bytes: Bytes) -> Batch {
    let items = json::elements(&bytes)
        .map(|span| {
            let item = bytes.slice(span.range());
            match Message::parse(item.clone()) {
                Some(message) => BatchItem::Message(Box::new(message)),
                None => BatchItem::Invalid(item),
            }
        })
        .collect();
    Batch { items, bytes }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::protocol::message::Kind;
    use crate::protocol::samples;

    const LIMIT: usize = 1_000;

    /// What a line came to, in words: `message BYTES`, `batch N`, `REASON ids`.
    fn describe(line: &Line) -> String {
        match line {
            Line::Message(message) => {
                let noise = if message.recovered_noise() {
                    "recovered "
                } else {
                    ""
                };
                format!("{noise}{}", String::from_utf8_lossy(message.bytes()))
            }
            Line::Batch(batch) => format!("batch of {}", batch.items.len()),
            Line::Fault(fault) => {
                let ids = fault.ids.iter().map(|id| format!(" {id}"));
                format!("{:?}{}", fault.reason, ids.collect::<String>())
            }
        }
    }

    fn read(reader: &mut LineReader, stream: &[u8]) -> Vec<Line> {
        reader.feed(stream);
        std::iter::from_fn(|| reader.poll()).collect()
    }

    /// Feeds `stream` whole and byte by byte; both must give `lines`.
    #[track_caller]
    fn check(stream: impl AsRef<[u8]>, lines: &[&str]) {
        let stream = stream.as_ref();
        for step in [stream.len().max(1), 1] {
            let mut reader = LineReader::new(LIMIT);
            let mut found = Vec::new();
            for piece in stream.chunks(step) {
                found.extend(read(&mut reader, piece));
            }
            found.extend(reader.finish());
            let found: Vec<String> = found.iter().map(describe).collect();
            assert_eq!(
                found,
                lines,
                "in steps of {step}: {}",
                String::from_utf8_lossy(stream)
            );
            assert_eq!(reader.held_bytes(), 0);
            assert!(!reader.is_mid_line());
            let is_open = !stream.is_empty() && !stream.ends_with(b"\n");
            let len = stream.len() + usize::from(is_open);
            assert_eq!(
                reader.consumed_bytes(),
                len as u64,
                "every byte is of a line"
            );
        }
    }

    #[test]
    fn blank_lines_are_no_lines() {
        check("\n   \n\r\n\t\n \t \r\n{}\n\n", &["{}"]);
        check("  {\"a\": 1}\t\r\n", &["{\"a\": 1}"]);
        check("", &[]);
        check(" ", &[]);
    }

    #[test]
    fn a_line_ends_at_a_newline_and_nowhere_else() {
        check(
            "{\"a\":\"\u{2028}\u{85}\u{0b}\"}\n".replace('\u{0b}', ""),
            &["{\"a\":\"\u{2028}\u{85}\"}"],
        );
        check("{}\r\n{}\r\n", &["{}", "{}"]);
    }

    #[test]
    fn no_carriage_return_passes_inside_a_message() {
        check("{\"a\":\r1}\n", &["{\"a\": 1}"]);
        check(
            "{\r\"a\"\r:\r[\r{}\r,\r1\r]\r,\r\"b\":\"\\r\"\r}\r\r\n{\"c\":1}\n",
            &["{ \"a\" : [ {} , 1 ] , \"b\":\"\\r\" }", "{\"c\":1}"],
        );
        check("[{\"a\":\r1},\r{}]\n", &["batch of 2"]);
        let mut reader = LineReader::new(LIMIT);
        let lines = read(&mut reader, b"[{\"a\":\r1},\r{}]\n");
        let [Line::Batch(batch)] = &lines[..] else {
            panic!("one batch: {lines:?}");
        };
        assert!(!batch.bytes.contains(&b'\r'));
        let BatchItem::Message(first) = &batch.items[0] else {
            panic!("a message: {batch:?}");
        };
        assert_eq!(&first.bytes()[..], b"{\"a\": 1}");
    }

    #[test]
    fn what_is_let_go_of_takes_its_memory_along() {
        let beyond = vec![b'x'; LARGE_BYTES * 4];
        for start in ["{\"id\":1,\"result\":\"", "{\"noise\r", "noise "] {
            let mut reader = LineReader::new(LARGE_BYTES * 2);
            reader.feed(start.as_bytes());
            reader.feed(&beyond);
            assert!(reader.poll().is_none());
            let spare = reader.spare();
            assert!(spare.capacity() <= 2 * CHUNK_BYTES, "{}", spare.capacity());
        }
    }

    #[test]
    fn a_byte_order_mark_is_cut() {
        check("\u{FEFF}{}\n\u{FEFF}{}\n\u{FEFF}\n", &["{}", "{}"]);
        check(b"\xEF\xBBx\n", &["NotJson"]);
    }

    #[test]
    fn noise_is_no_message_and_ends_nothing() {
        let noise = [
            "Server listening on port 3000",
            "{starting up}",
            "{'python': True}",
            "{",
            "{\"level\":\"info\",}",
            "[INFO] ready",
            "[1/5] installing",
            "42",
            "\"quoted\"",
            "null",
            "\u{1b}[33mwarn\u{1b}[0m",
            "\u{1b}[0m",
            "\u{1b}]0;title\u{7}",
        ];
        for line in noise {
            check(
                format!("{line}\n{{\"id\":1}}\n"),
                &["NotJson", "{\"id\":1}"],
            );
        }
        check(b"\xFF\xFE\n{}\n", &["NotJson", "{}"]);
    }

    #[test]
    fn a_message_behind_a_progress_bar_is_recovered() {
        check("10%\r50%\r{\"id\":1}\n", &["recovered {\"id\":1}"]);
        check("[##  ] 50%\r{\"id\":1}\n", &["recovered {\"id\":1}"]);
        check(
            "[warn] it's \"50%\r  {\"id\":1}\r\n",
            &["recovered {\"id\":1}"],
        );
        check("{50}\r{\"id\":1}\n", &["recovered {\"id\":1}"]);
        check("\u{1b}[2K\u{1b}[1G{\"id\":1}\n", &["recovered {\"id\":1}"]);
        check(
            "50%\u{1b}[2K\r\u{1b}[0m{\"id\":1}\n{}\n",
            &["recovered {\"id\":1}", "{}"],
        );
        check("10%\r50%\r\n", &["NotJson"]);
        check("50% {\"id\":1}\n", &["NotJson"]);
        let endless = "50%\r".repeat(LIMIT);
        check(
            format!("{endless}{{\"id\":1}}\n"),
            &["recovered {\"id\":1}"],
        );
    }

    #[test]
    fn half_json_names_its_requests() {
        check("{\"id\":1,\"result\":{\"te\n{}\n", &["Truncated 1", "{}"]);
        check(
            "{\"result\":\"\u{1}\",\"id\":\"x\"}\n",
            &["Truncated \"x\""],
        );
        check("{\"id\":1}{\"id\":2}\n", &["Truncated 1 2"]);
        check("{\"id\":1} trailing\n", &["Truncated 1"]);
        check("{\"id\":1,\"id\":2,}\n", &["Truncated 1 2"]);
        check("[{\"id\":1},{\"id\":2}\n", &["MultiLine 1 2"]);
        // The line is cut where more digits may have followed.
        check("{\"jsonrpc\":\"2.0\",\"id\":12\n", &["Truncated"]);
    }

    #[test]
    fn bytes_that_are_not_utf8_do_not_hide_the_id() {
        for wrong in [
            &b"\xFF\xFE"[..],
            b"\xC3",
            b"\xED\xA0\x80",
            b"\xC0\x80",
            b"\xF5\x80\x80\x80",
        ] {
            let line = [b"{\"result\":\"a", wrong, b"b\",\"id\":3}\n{}\n"].concat();
            check(line, &["InvalidUtf8 3", "{}"]);
        }
    }

    #[test]
    fn lone_surrogates_and_depth_pass() {
        for line in [
            r#"{"id":"\ud83d","\ude00":["\udc00"]}"#.to_owned(),
            format!(
                "{{\"id\":1,\"params\":{}{}}}",
                "[".repeat(400),
                "]".repeat(400)
            ),
        ] {
            check(format!("{line}\n"), &[&line]);
        }
    }

    #[test]
    fn a_line_beyond_the_limit_gives_its_id() {
        let filler = "x".repeat(LIMIT);
        check(
            format!("{{\"result\":\"{filler}\",\"id\":9}}\n{{}}\n"),
            &["TooLong 9", "{}"],
        );
        check(
            format!("{{\"id\":\"\\u0061\",\"params\":\"{filler}\"}}\n"),
            &["TooLong \"\\u0061\""],
        );
        check(format!("{{\"a\":\"{filler}\"}}\n"), &["TooLong"]);
        check(
            format!("[{{\"id\":1,\"a\":\"{filler}\"}},{{\"id\":2}}]\n"),
            &["TooLong 1 2"],
        );
        check(format!("[{filler}]\n{{}}\n"), &["NotJson", "{}"]);
        check(format!("{filler}{filler}\n{{}}\n"), &["NotJson", "{}"]);
        // A megabyte of blanks is still a blank line.
        check(format!("{}\n", " ".repeat(2 * LIMIT)), &[]);
    }

    #[test]
    fn the_limit_counts_the_line_without_its_ending() {
        let overhead = "{\"a\":\"\"}".len();
        let exact = format!("{{\"a\":\"{}\"}}", "x".repeat(LIMIT - overhead));
        check(format!("{exact}\n"), &[&exact]);
        check(format!("{exact}\r\n"), &[&exact]);
        check(format!("{exact} \n"), &["TooLong"]);
        check(exact.replacen('x', "xx", 1), &["TooLong"]);
    }

    #[test]
    fn large_lines_pass_whole_and_give_their_memory_back() {
        let mut reader = LineReader::new(64 << 20);
        for len in [65_535, 65_536, 65_537, 1 << 20, 15 << 20] {
            let line = format!("{{\"id\":1,\"result\":\"{}\"}}", "x".repeat(len));
            let mut lines = Vec::new();
            for piece in line.as_bytes().chunks(1 << 16) {
                lines.extend(read(&mut reader, piece));
            }
            lines.extend(read(&mut reader, b"\n{}\n"));
            assert_eq!(lines.len(), 2);
            assert!(matches!(&lines[0], Line::Message(message) if *message.bytes() == line));
            assert_eq!(reader.held_bytes(), 0);
            drop(lines);
            assert!(reader.spare().capacity() <= 2 * LARGE_BYTES);
        }
    }

    #[test]
    fn a_line_without_end_costs_no_memory() {
        for start in ["progress ", "{\"a\":\"", "{\"a\":[", " "] {
            let mut reader = LineReader::new(LIMIT);
            reader.feed(start.as_bytes());
            for _ in 0..500 {
                let spare = reader.spare();
                let room = spare.capacity() - spare.len();
                spare.extend_from_slice(&vec![b' '; room]);
                assert!(reader.poll().is_none());
                assert!(reader.held_bytes() <= SAMPLE_BYTES);
                assert!(reader.buffer.capacity() <= 2 * CHUNK_BYTES);
            }
        }
    }

    #[test]
    fn framing_of_language_servers_is_recognised() {
        check(
            "Content-Length: 17\r\n\r\n{\"method\":\"ping\"}content-length: 9\r\n",
            &["ContentLength", "ContentLength"],
        );
        check("Content-Type: x\r\n", &["NotJson"]);
    }

    #[test]
    fn a_message_over_several_lines_is_told_apart_from_noise() {
        check(
            "{\n  \"jsonrpc\": \"2.0\",\n  \"id\": 1,\n  \"result\": {}\n}\n{}\n",
            &[
                "NotJson",
                "MultiLine",
                "NotJson",
                "NotJson",
                "NotJson",
                "{}",
            ],
        );
        check(
            "{ \"jsonrpc\": \"2.0\", \"id\": 1,\n\"result\": {}}\n",
            &["MultiLine 1", "NotJson"],
        );
        check(
            "{\n  \"port\": 3000\n}\n",
            &["NotJson", "NotJson", "NotJson"],
        );
        check("x\n  \"jsonrpc\": \"2.0\",\n", &["NotJson", "NotJson"]);
    }

    #[test]
    fn a_batch_is_taken_apart() {
        check("[]\n", &["batch of 0"]);
        check("[{\"id\":1},[],5, {\"id\":2} ]\n", &["batch of 4"]);
        let mut reader = LineReader::new(LIMIT);
        let lines = read(
            &mut reader,
            b" [{\"id\":1,\"method\":\"a\"},[{}],{\"id\":1,\"id\":2}]\n",
        );
        let [Line::Batch(batch)] = &lines[..] else {
            panic!("{lines:?}");
        };
        assert_eq!(batch.bytes[0], b'[');
        let kinds: Vec<Option<Kind>> = batch
            .items
            .iter()
            .map(|item| match item {
                BatchItem::Message(message) => Some(message.kind()),
                BatchItem::Invalid(_) => None,
            })
            .collect();
        assert_eq!(kinds[0], Some(Kind::Request));
        assert_eq!(kinds[1], None);
        assert!(matches!(kinds[2], Some(Kind::Invalid(_))));
    }

    #[test]
    fn a_batch_without_end_is_refused() {
        let mut reader = LineReader::new(1 << 20);
        let items = vec!["{}"; BATCH_LIMIT + 1].join(",");
        let lines = read(&mut reader, format!("[{items}]\n").as_bytes());
        assert_eq!(describe(&lines[0]), "BatchTooLong");
    }

    #[test]
    fn a_fault_shows_how_its_line_begins() {
        let mut reader = LineReader::new(LIMIT);
        let line = format!("\u{1b}[31mé\t{}\n", "x".repeat(500));
        let mut lines = Vec::new();
        for piece in line.as_bytes().chunks(7) {
            lines.extend(read(&mut reader, piece));
        }
        let [Line::Fault(fault)] = &lines[..] else {
            panic!("{lines:?}");
        };
        assert_eq!(fault.sample, line.as_bytes()[..SAMPLE_BYTES]);
        assert_eq!(fault.len_bytes, line.len() as u64 - 1);
        assert!(fault.sample_text().starts_with("\\u{1b}[31mé\\txxx"));
    }

    #[test]
    fn an_answer_is_known_before_it_is_whole() {
        let mut reader = LineReader::new(LIMIT);
        assert!(reader.arriving().is_none());
        reader.feed(b"{\"jsonrpc\":\"2.0\",\"id\":41,\"result\":{\"content\":[\"");
        assert!(reader.poll().is_none());
        let arriving = reader.arriving().unwrap();
        assert_eq!(arriving.ids[0].as_u64(), Some(41));
        assert!(!arriving.has_method);
        assert_eq!(arriving.len_bytes, 47);
    }

    #[test]
    fn the_limit_can_change_while_a_line_arrives() {
        let mut reader = LineReader::new(LIMIT);
        reader.feed(b"{\"id\":1,\"a\":\"0123456789");
        assert!(reader.poll().is_none());
        reader.set_limit(10);
        let lines = read(&mut reader, b"\"}\n{\"id\":2}\n");
        assert_eq!(
            lines.iter().map(describe).collect::<Vec<_>>(),
            ["TooLong 1", "{\"id\":2}"]
        );
    }

    #[test]
    fn short_lines_in_turn_allocate_one_chunk() {
        let mut reader = LineReader::new(LIMIT);
        let mut chunks = std::collections::BTreeSet::new();
        for _ in 0..10_000 {
            let spare = reader.spare();
            spare.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n");
            let Some(Line::Message(message)) = reader.poll() else {
                panic!("no message");
            };
            chunks.insert(message.bytes().as_ptr() as usize / CHUNK_BYTES);
        }
        assert!(chunks.len() <= 2, "{} chunks", chunks.len());
    }

    fn stream() -> impl Strategy<Value = Vec<u8>> {
        let ending = prop::sample::select(&["\n", "\n", "\r\n", "\n\n", "\r", " \n"][..]);
        prop::collection::vec((samples::near_json(), ending), 0..8).prop_map(|lines| {
            let lines = lines.into_iter();
            lines
                .flat_map(|(line, ending)| [line, ending.as_bytes().to_vec()].concat())
                .collect()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1_000))]

        #[test]
        fn any_split_gives_the_same_lines(
            stream in stream(),
            pieces in prop::collection::vec(1_usize..40, 1..40),
            limit in prop_oneof![Just(16_usize), Just(60), Just(100_000)],
        ) {
            let mut whole = LineReader::new(limit);
            let mut expected = read(&mut whole, &stream);
            expected.extend(whole.finish());
            let mut reader = LineReader::new(limit);
            let mut found = Vec::new();
            let mut rest = &stream[..];
            for len in pieces.iter().cycle() {
                let (piece, behind) = rest.split_at((*len).min(rest.len()));
                found.extend(read(&mut reader, piece));
                prop_assert!(reader.held_bytes() <= limit + SAMPLE_BYTES + 1024);
                rest = behind;
                if rest.is_empty() {
                    break;
                }
            }
            found.extend(reader.finish());
            prop_assert_eq!(format!("{found:?}"), format!("{expected:?}"));
        }
    }
}
