//! Cuts a stream of bytes into lines and says of each what it is.
//!
//! Decides where a line ends (at a newline, whatever else Unicode or a terminal calls one), what
//! may stand before a message on its line, and which bytes are held: a message's once, noise not
//! at all, and of a line beyond the limit only an id that is still arriving. Never reads or
//! writes: the shell reads into [`LineReader::spare`].

use bytes::{Buf, Bytes, BytesMut};
use memchr::memchr2;
use smallvec::SmallVec;

use super::id::RequestId;
use super::json;
use super::message::{Batch, BatchItem, Fault, FaultReason, Line, Member, Message, SAMPLE_BYTES};
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
            if let Some(line) = self.take_line(newline) {
                return Some(line);
            }
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
    }

    /// The line that ends at `newline` in the buffer, or `None` for a blank one.
    fn take_line(&mut self, newline: usize) -> Option<Line> {
        let line = match self.place {
            Place::Start if !self.noise => {
                self.buffer.advance(newline + 1);
                None
            }
            Place::Json => Some(self.take_json(newline)),
            _ => {
                let reason = self.noise_reason(newline);
                self.opened = false;
                Some(self.take_fault(newline, reason))
            }
        };
        self.begin_line();
        line
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
                let bytes = self.take_bytes(newline).slice(start..start + end);
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

    fn noise_reason(&self, newline: usize) -> FaultReason {
        let sample = if self.sample.is_empty() {
            &self.buffer[..newline]
        } else {
            &self.sample
        };
        if is_header(sample) {
            FaultReason::ContentLength
        } else if self.opened && is_first_member(sample) {
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
