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

use super::log::ServerLog;
use super::worker::Voice;

/// What one read takes.
const READ_BYTES: usize = 16 << 10;

/// A longer line is cut into pieces of this size.
const PIECE_LIMIT_BYTES: usize = 8 << 10;
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
        for &byte in bytes {
            match byte {
                b'\n' | b'\r' => self.cut(&mut emit),
                _ => self.held.push(byte),
            }
            if self.held.len() >= PIECE_LIMIT_BYTES {
                self.cut(&mut emit);
            }
        }
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
                sink.take(&lines).await;
                return;
            }
            Ok(count) => {
                if let Some(voice) = &sink.voice {
                    voice.heard();
                }
                clean.clear();
                sink.redactor.push(&bytes[..count], &mut clean);
                pieces.feed(&clean, |line| lines.push(line));
                sink.take(&lines).await;
            }
        }
    }
}

impl Sink {
    async fn take(&self, lines: &[String]) {
        for line in lines {
            self.tail.push(line);
            self.log.child_line(&self.instance, line).await;
        }
    }
}

#[cfg(test)]
mod tests {
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
    fn the_tail_keeps_the_last_lines() {
        let tail = Tail::default();
        (0..100).for_each(|number| tail.push(&number.to_string()));
        assert_eq!(tail.last(2), ["98", "99"]);
        assert_eq!(tail.last(1000).len(), TAIL_LINES);
    }
}
