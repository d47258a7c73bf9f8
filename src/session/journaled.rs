//! What of a host goes into its journal, and what a host gets back from one.
//!
//! Decides when a request is noted and when it is over: from the line that brought it to the end of
//! the write that answered it, so that whoever reads the journal after the daemon's end knows which
//! requests nobody will answer. Never reads or writes the memory itself ([`Writer`] does), and does
//! nothing for a host without a journal.

use smallvec::SmallVec;

use super::attach::Session;
use super::catalogue::ListKind;
use super::levels::Level;
use super::limits::WHOLE_WRITE_BYTES;
use super::mux::Mux;
use super::subscriptions::{Holder, Uri};
use crate::ids::HostKey;
use crate::journal::{Change, Ended, Image, Slot, Writer};
use crate::protocol::{Line, LineReader, Message, RequestId, Version, json};
use crate::time::Moment;

/// The requests that one frame answers.
pub(super) type Ends = SmallVec<[Slot; 2]>;

/// One host's journal, and what of it is under way.
#[derive(Debug)]
pub(super) struct Journal {
    writer: Writer,
    /// Where in the host's stream the line at hand ends.
    until: u64,
    open: Vec<(RequestId, Slot)>,
    /// What the frames answer that are being written.
    writing: Ends,
}

impl Journal {
    fn new(writer: Writer) -> Self {
        Self {
            writer,
            until: 0,
            open: Vec::new(),
            writing: Ends::new(),
        }
    }

    /// Takes the slot of a request out, to be closed with its answer.
    pub(super) fn take(&mut self, id: &RequestId) -> Option<Slot> {
        let at = self.open.iter().position(|(open, _)| open == id)?;
        Some(self.open.swap_remove(at).1)
    }

    /// A request ends without an answer.
    pub(super) fn forget(&mut self, id: &RequestId) {
        if let Some(slot) = self.take(id) {
            self.writer.close(slot);
        }
    }

    /// A frame is about to be written, with others only as long as all of them are small.
    pub(super) fn begin_frame(&mut self, len: usize, ends: Ends) {
        for slot in &ends {
            self.writer.begin_answer(*slot);
        }
        self.writing.extend(ends);
        if len > WHOLE_WRITE_BYTES {
            self.writer.set_half(true);
        }
    }

    /// All that was begun is written.
    pub(super) fn end_frames(&mut self) {
        self.writer.set_half(false);
        for slot in self.writing.drain(..) {
            self.writer.close(slot);
        }
    }
}

impl Mux {
    /// Gives an attached host a journal, and the host what stands in it already: it goes on where an
    /// earlier daemon left it.
    pub fn resume(&mut self, host: HostKey, writer: Writer, image: &Image, now: Moment) {
        self.now = now;
        self.counters.answers_in_doubt += image.doubled;
        if let Some(attachment) = self.hosts.get_mut(&host) {
            attachment.journal = Some(Box::new(Journal::new(writer)));
            self.resume_session(host, image);
        }
        self.settle();
    }

    fn resume_session(&mut self, host: HostKey, image: &Image) {
        if let Some(message) = image.initialize.as_deref().and_then(read_message) {
            self.note_client(host, &message);
        }
        let Some(version) = image.told.as_deref().and_then(Version::parse) else {
            return;
        };
        if let Some(attachment) = self.hosts.get_mut(&host) {
            attachment.session = Session::Open(version);
        }
        self.levels.join(host);
        if let Some(level) = image.level.as_deref().and_then(Level::parse) {
            self.levels.set(host, Some(level));
            self.sync_level();
        }
        for raw in &image.subscriptions {
            if let Some(uri) = uri_of(raw)
                && self.subscriptions.resume(Holder::host(host), &uri)
            {
                self.subscribe_upstream(uri);
            }
        }
        for seen in &image.seen {
            if let Some((kind, seen)) = read_seen(seen) {
                self.resume_list(host, kind, seen);
            }
        }
    }

    /// A host has sent a line that ends at `until` in its stream. Once this returns, the line has
    /// been acted on.
    pub fn handle_journaled_line(&mut self, host: HostKey, line: Line, until: u64, now: Moment) {
        if let Some(journal) = self.journal(host) {
            journal.until = until;
        }
        self.handle_host_line(host, line, now);
        // Nothing has been written to anybody yet: what this line led to waits to be polled.
        if let Some(journal) = self.journal(host) {
            journal.writer.act_until(until);
        }
    }

    /// A host that has a journal belongs to another multiplexer from now on.
    pub fn hand_over(&mut self, host: HostKey, now: Moment) {
        self.now = now;
        self.end_journal(host, Ended::Ending);
        self.forget_host(host);
        self.settle();
    }

    /// Leaves word in the journal of a host how its attachment ended.
    pub fn end_journal(&mut self, host: HostKey, ended: Ended) {
        if let Some(journal) = self.journal(host) {
            journal.writer.end(ended);
        }
    }

    /// Notes a request that came with the line at hand. False if there is no room for it.
    pub(super) fn note_request(&mut self, host: HostKey, id: &RequestId, method: &str) -> bool {
        let Some(journal) = self.journal(host) else {
            return true;
        };
        let is_initialize = method == "initialize";
        let slot = journal.writer.open(id.raw(), journal.until, is_initialize);
        journal.open.extend(slot.map(|slot| (id.clone(), slot)));
        slot.is_some()
    }

    /// Notes a request that is refused for what it is. One that finds no room has its answer, if the
    /// daemon lives that long.
    pub(super) fn note_refused(&mut self, host: HostKey, id: Option<&RequestId>) {
        if let Some(id) = id {
            self.note_request(host, id, "");
        }
    }

    /// A request is over and no answer will go out for it.
    pub(super) fn forget_noted(&mut self, host: HostKey, id: &RequestId) {
        if let Some(journal) = self.journal(host) {
            journal.forget(id);
        }
    }

    /// Notes something of the session of a host. What there is no room for is not made again after
    /// the daemon's end, which the log says once for each.
    pub(super) fn note_change(&mut self, host: HostKey, change: Change<'_>) {
        let Some(journal) = self.journal(host) else {
            return;
        };
        if !journal.writer.record(change) {
            let text =
                format!("the journal of host {host} is full: it will not outlive this daemon");
            self.log(super::LogLevel::Info, text);
        }
    }

    /// Notes the level that a host has.
    pub(super) fn note_level(&mut self, host: HostKey) {
        if let Some(level) = self.levels.of(host) {
            self.note_change(host, Change::Level(level.as_str().as_bytes()));
        }
    }

    /// Notes whether a host holds a uri.
    pub(super) fn note_subscription(&mut self, host: HostKey, uri: &Uri, is_held: bool) {
        let change = match is_held {
            true => Change::Subscribed(&uri.raw),
            false => Change::Unsubscribed(&uri.raw),
        };
        self.note_change(host, change);
    }

    /// Notes what a host has seen of a list by now.
    pub(super) fn note_seen(&mut self, host: HostKey, kind: ListKind) {
        if self.journal(host).is_none() {
            return;
        }
        if let Some(seen) = self.catalogue.describe(kind) {
            let record = format!("{} {seen}", kind.method());
            self.note_change(host, Change::Seen(record.as_bytes()));
        }
    }

    fn journal(&mut self, host: HostKey) -> Option<&mut Journal> {
        self.hosts.get_mut(&host)?.journal.as_deref_mut()
    }
}

/// The one message of a line.
fn read_message(line: &[u8]) -> Option<Message> {
    let mut reader = LineReader::new(line.len());
    reader.feed(line);
    match reader.finish() {
        Some(Line::Message(message)) => Some(message),
        _ => None,
    }
}

fn uri_of(raw: &[u8]) -> Option<Uri> {
    Some(Uri {
        text: json::text(raw)?.into_owned(),
        raw: bytes::Bytes::copy_from_slice(raw),
    })
}

fn read_seen(record: &[u8]) -> Option<(ListKind, &str)> {
    let (method, seen) = std::str::from_utf8(record).ok()?.split_once(' ')?;
    let kind = ListKind::ALL
        .into_iter()
        .find(|kind| kind.method() == method)?;
    Some((kind, seen))
}
