//! A host: what it sends, when it reads, when it leaves. Some behave, some do not.
//!
//! It checks that the bytes it gets are the frames that were made for it, whole and in order.

use std::collections::VecDeque;
use std::time::Duration;

use mcpd::ids::HostKey;
use mcpd::protocol::{Frame, LineReader};

use crate::clock::{Clock, Tick};
use crate::ledger::{Asked, Id, Ledger, Meaning};
use crate::pipe::{Outgoing, Pipe};
use crate::temper::Temper;

/// A line that a host has sent and that the daemon has not taken.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) text: String,
    pub(crate) meaning: Meaning,
}

/// How much of a host is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    There,
    /// It has ended its input and still reads.
    HalfClosed,
    Gone,
}

#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) key: HostKey,
    place: usize,
    pub(crate) worker: usize,
    pub(crate) ledger: Ledger,
    pub(crate) to_daemon: Pipe,
    pub(crate) to_host: Pipe,
    out: Outgoing,
    pub(crate) sent: VecDeque<Sent>,
    /// What the daemon's reader has of its input; absent once the reader has ended.
    pub(crate) reader: Option<LineReader>,
    pub(crate) is_noticed: bool,
    /// Bytes of frames that were made for it and have not arrived.
    expected: VecDeque<u8>,
    pub(crate) presence: Presence,
    is_reading: bool,
    is_lazy: bool,
    /// How much it still does.
    budget: u64,
    has_asked: bool,
    has_batches: bool,
    /// It has read an answer that says so.
    may_batch: bool,
    heard: Vec<u8>,
    last_id: u64,
}

impl Host {
    pub(crate) fn new(
        place: usize,
        key: HostKey,
        worker: usize,
        is_calm: bool,
        pipe_bytes: usize,
        clock: &mut Clock,
    ) -> Self {
        Self {
            key,
            place,
            worker,
            ledger: Ledger::new(format!("host {key}"), is_calm),
            to_daemon: Pipe::new(pipe_bytes),
            to_host: Pipe::new(pipe_bytes),
            out: Outgoing::default(),
            sent: VecDeque::new(),
            reader: None,
            is_noticed: false,
            expected: VecDeque::new(),
            presence: Presence::There,
            is_reading: false,
            is_lazy: false,
            budget: clock.random.below(40),
            has_asked: false,
            has_batches: clock.random.chance(25),
            may_batch: false,
            heard: Vec::new(),
            last_id: 0,
        }
    }

    fn name(&self) -> String {
        format!("host {}", self.key)
    }

    /// Does one thing, and decides when the next follows.
    pub(crate) fn act(&mut self, temper: &Temper, last_tag: &mut u64, clock: &mut Clock) {
        if self.presence == Presence::Gone || self.budget == 0 {
            return;
        }
        self.budget -= 1;
        let is_rude = !self.ledger.is_calm && clock.random.chance(temper.rude_hosts);
        if self.presence == Presence::HalfClosed {
            if is_rude {
                self.leave(clock);
            }
        } else if !(self.has_asked || is_rude && clock.random.chance(20)) {
            self.initialize(last_tag, clock);
        } else if is_rude {
            self.be_rude(last_tag, clock);
        } else {
            self.be_usual(last_tag, clock);
        }
        if !self.ledger.is_calm && clock.random.chance(temper.lazy_hosts) && !self.is_lazy {
            self.is_lazy = true;
            let delay = clock.random.ms(10, 60_000);
            clock.after(delay, Tick::HostReads(self.place));
        }
        let most = *clock.random.pick(&[1, 50, 2_000, 20_000]);
        let delay = clock.random.ms(0, most);
        clock.after(delay, Tick::HostActs(self.place));
    }

    fn initialize(&mut self, last_tag: &mut u64, clock: &mut Clock) {
        self.has_asked = true;
        let version = match self.has_batches {
            true => "2025-03-26",
            false => clock
                .random
                .pick(&["2025-11-25", "2025-06-18", "2024-11-05"]),
        };
        let id = self.id(clock);
        let raw = &id.raw;
        let text = format!(
            r#"{{"jsonrpc":"2.0","id":{raw},"method":"initialize","params":{{"protocolVersion":"{version}","capabilities":{{}},"clientInfo":{{"name":"h","version":"1"}}}}}}"#
        );
        *last_tag += 1;
        let asked = Asked {
            id,
            tag: *last_tag,
            method: "initialize",
            token: None,
        };
        self.send(text, Meaning::Request(asked), clock);
        let text = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        self.send(text.to_owned(), Meaning::Nothing, clock);
    }

    /// A calm host uses each id once; others have few, so that they meet.
    fn id(&mut self, clock: &mut Clock) -> Id {
        if self.ledger.is_calm {
            self.last_id += 1;
            let number = self.last_id;
            return Id {
                raw: number.to_string(),
                same_as: number.to_string(),
            };
        }
        let number = clock.random.below(7) + 1;
        let (raw, same_as) = match clock.random.below(6) {
            0 => (format!("{number}.0"), number.to_string()),
            1 => (format!("\"{number}\""), format!("text {number}")),
            2 => (format!("\"\\u003{number}\""), format!("text {number}")),
            3 => (format!("-{number}"), format!("-{number}")),
            _ => (number.to_string(), number.to_string()),
        };
        Id { raw, same_as }
    }

    fn request(&mut self, last_tag: &mut u64, clock: &mut Clock) -> (String, Meaning) {
        let kinds: &[(u64, &str, &str)] = &[
            (20, "tools/call", r#""name":"t1""#),
            (3, "tools/list", r#""x":1"#),
            (2, "resources/list", r#""x":1"#),
            (2, "ping", r#""x":1"#),
            (3, "resources/subscribe", r#""uri":"u0""#),
            (2, "resources/subscribe", r#""uri":"u1""#),
            (2, "resources/unsubscribe", r#""uri":"u0""#),
            (2, "logging/setLevel", r#""level":"debug""#),
            (1, "logging/setLevel", r#""level":"error""#),
            (1, "prompts/get", r#""name":"p""#),
        ];
        let weights: Vec<(u64, usize)> = kinds
            .iter()
            .enumerate()
            .map(|(at, (weight, ..))| (*weight, at))
            .collect();
        let (_, method, params) = kinds[clock.random.weighted(&weights)];
        *last_tag += 1;
        let (tag, id) = (*last_tag, self.id(clock));
        let token = match clock.random.below(3) {
            0 => Some(tag.to_string()),
            1 => Some(format!("\"t{tag}\"")),
            _ => None,
        };
        let meta = token
            .as_ref()
            .map(|token| format!(r#","_meta":{{"progressToken":{token}}}"#))
            .unwrap_or_default();
        let raw = &id.raw;
        let text = match clock.random.chance(30) {
            true => format!(
                r#"{{"method":"{method}","params":{{{params},"tag":{tag}{meta}}},"jsonrpc":"2.0","id":{raw}}}"#
            ),
            false => format!(
                r#"{{"jsonrpc":"2.0","id":{raw},"method":"{method}","params":{{{params},"tag":{tag}{meta}}}}}"#
            ),
        };
        let asked = Asked {
            id,
            tag,
            method,
            token,
        };
        (text, Meaning::Request(asked))
    }

    fn be_usual(&mut self, last_tag: &mut u64, clock: &mut Clock) {
        if self.may_batch && clock.random.chance(20) {
            return self.batch(last_tag, clock);
        }
        for _ in 0..clock.random.below(4) {
            let (text, meaning) = self.request(last_tag, clock);
            self.send(text, meaning, clock);
        }
        if !self.ledger.is_calm && clock.random.chance(25) {
            self.cancel(clock);
        }
        if clock.random.chance(10) {
            let text = r#"{"jsonrpc":"2.0","method":"notifications/x","params":{}}"#;
            self.send(text.to_owned(), Meaning::Nothing, clock);
        }
    }

    fn cancel(&mut self, clock: &mut Clock) {
        let id = self.id(clock);
        let raw = &id.raw;
        let text = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{raw}}}}}"#
        );
        self.send(text, Meaning::Cancel(id), clock);
    }

    fn batch(&mut self, last_tag: &mut u64, clock: &mut Clock) {
        let count = clock.random.below(4) + 1;
        let (texts, meanings): (Vec<_>, Vec<_>) =
            (0..count).map(|_| self.request(last_tag, clock)).unzip();
        self.send(
            format!("[{}]", texts.join(",")),
            Meaning::Batch(meanings),
            clock,
        );
    }

    fn be_rude(&mut self, last_tag: &mut u64, clock: &mut Clock) {
        match clock.random.below(12) {
            0 => self.send("not a message".to_owned(), Meaning::Fault(None), clock),
            1 => self.send("[]".to_owned(), Meaning::Fault(None), clock),
            2 => {
                let id = self.id(clock);
                let text = format!(
                    r#"{{"jsonrpc":"2.0","id":{},"method":"x","params":{{"#,
                    id.raw
                );
                self.send(text, Meaning::Fault(Some(id)), clock);
            }
            3 => {
                let text = r#"{"jsonrpc":"2.0","id":5,"result":{}}"#;
                self.send(text.to_owned(), Meaning::Nothing, clock);
            }
            4 => self.initialize(last_tag, clock),
            5 => self.out.push(b"\n  \r\n"),
            6 => {
                for _ in 0..clock.random.below(60) {
                    let (text, meaning) = self.request(last_tag, clock);
                    self.send(text, meaning, clock);
                }
            }
            7 => {
                let id = self.id(clock);
                let filling = "z".repeat(crate::registry::LARGEST_MESSAGE + 1);
                let text = format!(
                    r#"{{"jsonrpc":"2.0","method":"tools/call","params":{{"x":"{filling}"}},"id":{}}}"#,
                    id.raw
                );
                self.send(text, Meaning::Fault(Some(id)), clock);
            }
            8 => self.end(clock),
            9 => self.leave(clock),
            10 => {
                self.out.push(br#"{"jsonrpc":"2.0","id":1,"meth"#);
                self.flush(clock);
                self.leave(clock);
            }
            _ => self.cancel(clock),
        }
        self.flush(clock);
    }

    fn send(&mut self, text: String, meaning: Meaning, clock: &mut Clock) {
        clock.tell(&self.name(), || {
            format!("sends {}", text.chars().take(160).collect::<String>())
        });
        self.out.push(text.as_bytes());
        self.out.push(b"\n");
        self.sent.push_back(Sent { text, meaning });
        self.flush(clock);
    }

    /// Moves what it has to say into its socket.
    pub(crate) fn flush(&mut self, clock: &mut Clock) {
        if self.out.pump(&mut self.to_daemon) {
            self.notice(clock);
        }
        if self.presence != Presence::There && self.out.is_empty() && self.to_daemon.writers > 0 {
            self.to_daemon.writers = 0;
            self.notice(clock);
        }
    }

    /// Has the daemon see that there is something to read, or the end.
    pub(crate) fn notice(&mut self, clock: &mut Clock) {
        let is_readable = !self.to_daemon.is_empty() || self.to_daemon.writers == 0;
        if is_readable && self.reader.is_some() && !self.is_noticed {
            self.is_noticed = true;
            let delay = clock.random.ms(0, 1);
            clock.after(delay, Tick::HostRead(self.place));
        }
    }

    /// Ends its input; what it has said still goes out.
    pub(crate) fn end(&mut self, clock: &mut Clock) {
        clock.tell(&self.name(), || "ends its input".to_owned());
        self.presence = Presence::HalfClosed;
        self.flush(clock);
    }

    /// Closes everything at once.
    pub(crate) fn leave(&mut self, clock: &mut Clock) {
        if self.presence == Presence::Gone {
            return;
        }
        clock.tell(&self.name(), || "leaves".to_owned());
        self.presence = Presence::Gone;
        self.out.clear();
        self.to_host.close_reader();
        self.flush(clock);
        clock.after(Duration::ZERO, Tick::HostRead(self.place));
    }

    /// The daemon has made a frame for it.
    pub(crate) fn expect(&mut self, frame: &Frame, is_ending: bool, clock: &Clock) {
        let bytes = frame.to_vec();
        clock.tell(&self.name(), || {
            let text = String::from_utf8_lossy(&bytes);
            format!(
                "is sent {}",
                text.trim_end().chars().take(200).collect::<String>()
            )
        });
        self.ledger.note_frame(&bytes, is_ending);
        self.expected.extend(bytes);
    }

    /// There may be something to read.
    pub(crate) fn wake(&mut self, clock: &mut Clock) {
        if !self.to_host.is_empty() && !self.is_reading && !self.is_lazy {
            self.is_reading = true;
            let delay = clock.random.ms(0, 2);
            clock.after(delay, Tick::HostReads(self.place));
        }
    }

    /// Reads what there is.
    pub(crate) fn read(&mut self, clock: &mut Clock) {
        (self.is_reading, self.is_lazy) = (false, false);
        let most = match clock.random.chance(20) {
            true => clock.random.index(100) + 1,
            false => usize::MAX,
        };
        for byte in self.to_host.read(most) {
            assert_eq!(
                self.expected.pop_front(),
                Some(byte),
                "{}: a frame is cut or mixed",
                self.name()
            );
            self.heard.push(byte);
            if byte == b'\n' {
                let line = std::mem::take(&mut self.heard);
                self.may_batch |=
                    String::from_utf8_lossy(&line).contains(r#""protocolVersion":"2025-03-26""#);
            }
        }
        self.wake(clock);
    }

    /// Is on its best behaviour from now on.
    pub(crate) fn heal(&mut self, clock: &mut Clock) {
        self.budget = self.budget.min(3);
        if self.is_lazy {
            clock.after(Duration::ZERO, Tick::HostReads(self.place));
        }
    }

    /// Says nothing more.
    pub(crate) fn fall_silent(&mut self) {
        self.budget = 0;
    }
}
