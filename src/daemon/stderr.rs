//! What a child says on standard error: always read, kept short.
//!
//! Every piece goes to the server's log file and into a short tail for `status` and for errors.
//! Secrets are replaced before anything is kept. Never holds more than one piece and the tail,
//! whatever the child writes: a line without an end (a progress bar drawn with carriage returns)
//! is cut.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::net::unix::pipe;

use crate::config::redact::RedactedStream;

use crate::time::Moment;

use super::clock;
use super::log::ServerLog;
use super::worker::Voice;

/// What one read takes.
const READ_BYTES: usize = 16 << 10;

/// A longer line is cut into pieces of this size.
const PIECE_LIMIT_BYTES: usize = 8 << 10;
/// What a child may have logged at once.
const BURST_BYTES: u64 = 4 << 20;
/// What it may have logged in the long run.
const LOGGED_BYTES_A_SECOND: u64 = 256 << 10;
/// Lines that the tail keeps.
const TAIL_LINES: usize = 50;
/// The tail shows this much of a line.
const TAIL_LINE_CHARS: usize = 500;

/// Cuts a stream of bytes into lines of readable text. Pure.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    held: Vec<u8>,
}

impl Pieces {
    /// Takes `bytes` and hands every finished line to `emit`. `\n` and `\r` both end a line.
    pub(crate) fn feed(&mut self, bytes: &[u8], mut emit: impl FnMut(String)) {
        let mut begin = 0;
        for end in memchr::memchr2_iter(b'\n', b'\r', bytes) {
            self.hold(&bytes[begin..end], &mut emit);
            self.cut(&mut emit);
            begin = end + 1;
        }
        self.hold(&bytes[begin..], &mut emit);
    }

    /// Takes a part of one line.
    fn hold(&mut self, mut part: &[u8], emit: &mut impl FnMut(String)) {
        while self.held.len() + part.len() >= PIECE_LIMIT_BYTES {
            let (piece, rest) = part.split_at(PIECE_LIMIT_BYTES - self.held.len());
            self.held.extend_from_slice(piece);
            self.cut(emit);
            part = rest;
        }
        self.held.extend_from_slice(part);
    }

    /// The stream has ended: what is left is a line too.
    pub(crate) fn finish(&mut self, mut emit: impl FnMut(String)) {
        self.cut(&mut emit);
    }

    fn cut(&mut self, emit: &mut impl FnMut(String)) {
        if !self.held.is_empty() {
            emit(escape(&String::from_utf8_lossy(&self.held)));
            self.held.clear();
        }
    }
}

/// Control characters as escapes, so that a log stays text and a terminal stays whole.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '\t' => escaped.push(char),
            char if char.is_control() => escaped.extend(char.escape_default()),
            char => escaped.push(char),
        }
    }
    escaped
}

/// The last lines of a child, shared between the task that reads and whoever has to explain.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tail {
    lines: Arc<Mutex<VecDeque<String>>>,
}

impl Tail {
    pub(crate) fn push(&self, line: &str) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == TAIL_LINES {
            lines.pop_front();
        }
        lines.push_back(line.chars().take(TAIL_LINE_CHARS).collect());
    }

    /// The last `count` lines, oldest first.
    pub(crate) fn last(&self, count: usize) -> Vec<String> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let skipped = lines.len().saturating_sub(count);
        lines.iter().skip(skipped).cloned().collect()
    }
}

/// How much of a child's standard error is logged: a burst whole, after that so much a second. What
/// is beyond it is read all the same, for a child that cannot write stands still. Pure.
#[derive(Debug)]
pub(crate) struct Allowance {
    left_bytes: u64,
    since: Moment,
    skipped: Skipped,
}

/// What was not logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Skipped {
    lines: u64,
    bytes: u64,
}

impl Allowance {
    pub(crate) const fn new(now: Moment) -> Self {
        Self {
            left_bytes: BURST_BYTES,
            since: now,
            skipped: Skipped { lines: 0, bytes: 0 },
        }
    }

    /// Whether a line of `bytes` is logged. Once one is not, none is until a tenth of the burst is
    /// there again: gaps are long and few.
    pub(crate) fn admit(&mut self, bytes: usize, now: Moment) -> bool {
        let bytes = bytes as u64;
        let earned = (now - self.since).as_millis() * u128::from(LOGGED_BYTES_A_SECOND) / 1000;
        if earned > 0 {
            self.since = now;
            let left = u128::from(self.left_bytes) + earned;
            self.left_bytes = u64::try_from(left).unwrap_or(u64::MAX).min(BURST_BYTES);
        }
        let is_skipping = self.skipped.lines > 0;
        let needed = if is_skipping { BURST_BYTES / 10 } else { bytes };
        if self.left_bytes < needed.max(bytes) {
            self.skipped.lines += 1;
            self.skipped.bytes += bytes;
            return false;
        }
        self.left_bytes -= bytes;
        true
    }

    /// What was left out since this was asked last.
    pub(crate) fn take_skipped(&mut self) -> Option<Skipped> {
        let skipped = std::mem::take(&mut self.skipped);
        (skipped.lines > 0).then_some(skipped)
    }
}

impl std::fmt::Display for Skipped {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (lines, bytes, most) = (self.lines, self.bytes, LOGGED_BYTES_A_SECOND >> 10);
        write!(
            out,
            "{lines} lines of stderr ({bytes} bytes) left out: more than {most} KiB a second"
        )
    }
}

/// Where the pieces of one child go.
#[derive(Debug)]
pub(crate) struct Sink {
    pub(crate) instance: Arc<str>,
    pub(crate) log: ServerLog,
    pub(crate) tail: Tail,
    pub(crate) redactor: RedactedStream,
    /// Who is to know that it is not silent, while it is being started.
    pub(crate) voice: Option<Voice>,
}

/// Reads `stderr` to its end.
pub(crate) async fn drain(stderr: pipe::Receiver, mut sink: Sink) {
    let mut allowance = Allowance::new(clock::now());
    let mut pieces = Pieces::default();
    let mut bytes = vec![0; READ_BYTES];
    let mut clean = Vec::new();
    loop {
        let read = match stderr.readable().await {
            Ok(()) => stderr.try_read(&mut bytes),
            Err(error) => Err(error),
        };
        let mut lines = Vec::new();
        match read {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Ok(0) | Err(_) => {
                clean.clear();
                sink.redactor.flush(&mut clean);
                pieces.feed(&clean, |line| lines.push(line));
                pieces.finish(|line| lines.push(line));
                sink.take(&lines, &mut allowance).await;
                sink.tell_skipped(&mut allowance);
                return;
            }
            Ok(count) => {
                #[cfg(feature = "test-fakes")]
                super::faults::in_reader(&bytes[..count]);
                if let Some(voice) = &sink.voice {
                    voice.heard();
                }
                clean.clear();
                sink.redactor.push(&bytes[..count], &mut clean);
                pieces.feed(&clean, |line| lines.push(line));
                sink.take(&lines, &mut allowance).await;
            }
        }
    }
}

impl Sink {
    async fn take(&self, lines: &[String], allowance: &mut Allowance) {
        let skipped = lines.len().saturating_sub(TAIL_LINES);
        lines[skipped..]
            .iter()
            .for_each(|line| self.tail.push(line));
        let now = clock::now();
        for line in lines {
            if allowance.admit(line.len(), now) {
                self.tell_skipped(allowance);
                self.log.child_line(&self.instance, line).await;
            }
        }
    }

    fn tell_skipped(&self, allowance: &mut Allowance) {
        if let Some(skipped) = allowance.take_skipped() {
            self.log.event(&self.instance, &skipped.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn check(input: &[u8], lines: &[&str]) {
        let mut seen = Vec::new();
        let mut pieces = Pieces::default();
        for chunk in input.chunks(3) {
            pieces.feed(chunk, |line| seen.push(line));
        }
        pieces.finish(|line| seen.push(line));
        assert_eq!(seen, lines);
    }

    #[test]
    fn lines_end_at_newlines_and_carriage_returns() {
        check(b"one\ntwo\r\nthree", &["one", "two", "three"]);
        check(b"10%\r20%\r\n", &["10%", "20%"]);
        check(b"\n\n", &[]);
    }

    #[test]
    fn what_is_no_text_stays_readable() {
        check(
            b"a\xff\x1b[31mb\tc\0\n",
            &["a\u{fffd}\\u{1b}[31mb\tc\\u{0}"],
        );
    }

    #[test]
    fn an_endless_line_is_cut() {
        let mut count = 0;
        let mut pieces = Pieces::default();
        for _ in 0..1024 {
            pieces.feed(&[b'x'; 1024], |line| {
                count += 1;
                assert_eq!(line.len(), PIECE_LIMIT_BYTES);
            });
        }
        assert_eq!(count, 128);
    }

    #[test]
    fn a_flood_is_logged_at_a_bounded_rate() {
        let at = |ms| Moment::from_origin(Duration::from_millis(ms));
        let mut allowance = Allowance::new(at(0));
        let mut logged = 0;
        let mut gaps = 0;
        for ms in 0..60_000 {
            // A megabyte and more a second.
            if allowance.admit(1_000, at(ms)) {
                logged += 1_000;
                gaps += usize::from(allowance.take_skipped().is_some());
            }
        }
        let most = BURST_BYTES + 60 * LOGGED_BYTES_A_SECOND;
        assert!(logged > most / 2 && logged <= most, "{logged}");
        assert!(gaps > 1 && gaps < 60, "{gaps}");
    }

    #[test]
    fn what_is_left_out_is_counted() {
        let at = |ms| Moment::from_origin(Duration::from_millis(ms));
        let mut allowance = Allowance::new(at(0));
        let burst = usize::try_from(BURST_BYTES).unwrap();
        assert!(allowance.admit(burst, at(0)));
        assert!(allowance.take_skipped().is_none());
        assert!(!allowance.admit(10, at(0)));
        assert!(!allowance.admit(20, at(1)));
        let skipped = Skipped {
            lines: 2,
            bytes: 30,
        };
        assert_eq!(allowance.take_skipped(), Some(skipped));
        assert!(allowance.admit(20, at(60_000)));
    }

    #[test]
    fn the_tail_keeps_the_last_lines() {
        let tail = Tail::default();
        (0..100).for_each(|number| tail.push(&number.to_string()));
        assert_eq!(tail.last(2), ["98", "99"]);
        assert_eq!(tail.last(1000).len(), TAIL_LINES);
    }
}
