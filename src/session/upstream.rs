//! What is written to the child next.
//!
//! Decides when a request may go and gives it the id and the token that the child knows it by. From
//! here on the request is written: it is never handed out again, whatever becomes of the child.

use super::eras::Pairing;
use super::limits;
use super::mux::Mux;
use super::queue::{CallGate, Queued, Reserved};
use super::requests::{Purpose, RequestKey, UpstreamId};
use crate::protocol::{Era, Frame, Member, Splice};

impl Mux {
    /// The next frame: what has reserved room, in order, then what hosts sent.
    pub(super) fn next_child_frame(&mut self) -> Option<Frame> {
        let child = self.child.as_mut()?;
        if let Some(Reserved { frame, is_answer }) = self.queue.pop_reserved() {
            if is_answer {
                child.unread_answers_bytes -= frame.len() as u64;
            }
            return Some(frame);
        }
        while self.is_writable() {
            let (key, queued) = self.queue.pop(self.call_gate())?;
            self.pool.give_back(queued.host, queued.len());
            if let Some(frame) = self.write_queued(key, &queued) {
                return Some(frame);
            }
        }
        None
    }

    /// Whether [`Mux::next_child_frame`] would give one.
    pub(super) fn has_child_frame(&self) -> bool {
        self.queue.has_reserved() || (self.is_writable() && self.queue.has_next(self.call_gate()))
    }

    /// Which of the calls that wait may go now.
    fn call_gate(&self) -> CallGate {
        if self.free_calls() == 0 {
            CallGate::Nobody
        } else {
            self.turn_gate()
        }
    }

    /// How many more calls may be open on the child.
    fn free_calls(&self) -> usize {
        let limit = self.config.max_calls.unwrap_or(limits::OPEN_PER_CHILD);
        limit.saturating_sub(self.requests.written_calls())
    }

    /// Writes what has its turn, by the way that its era and the child's make. Nothing, if it was
    /// answered here.
    pub(super) fn write_queued(&mut self, key: RequestKey, queued: &Queued) -> Option<Frame> {
        if !queued.is_request {
            return Some(Frame::line(queued.message.bytes().clone()));
        }
        let era = self.requests.get(key)?.era;
        match Pairing::of(era, self.child_era()) {
            Pairing::Same(Era::Modern) if self.serves_modern(key, queued) => None,
            Pairing::Same(_) => self.write_same(key, queued),
            Pairing::ModernHost => self.write_for_modern_host(key, queued),
            Pairing::ModernChild => self.write_for_modern_child(key, queued),
        }
    }

    fn write_same(&mut self, key: RequestKey, queued: &Queued) -> Option<Frame> {
        let deadline = self
            .config
            .request_timeout
            .map(|timeout| self.now + timeout);
        let UpstreamId(id) = self.requests.mark_written(key, deadline)?;
        self.note_turn(key, queued);
        let id = id.to_string();
        let mut splice = Splice::of(&queued.message);
        splice.replace_member(Member::Id, id.as_bytes());
        splice.replace_member(Member::MetaProgressToken, id.as_bytes());
        match self.requests.get(key).map(|request| &request.purpose) {
            Some(Purpose::Subscribe(uri)) => self.subscriptions.note_written(&uri.text),
            Some(Purpose::SetLevel { asked, .. }) => {
                let sent = self.levels.note_written(queued.host, *asked);
                let level = format!("\"{}\"", sent.level.as_str());
                splice.replace_member(Member::ParamsLevel, level.as_bytes());
                self.requests.note_sent_level(key, sent);
            }
            _ => {}
        }
        Some(splice.finish_in(&mut self.arena))
    }
}
