//! A journal as a whole: what it says when its writer has gone, and what a new one begins with.

use std::collections::BTreeSet;

use super::writer::{put_record, record, slot, slot_at, slots_for};
use super::{
    ACTED_AT, BASE_AT, Change, DOUBLED_AT, ENDED_AT, Ended, HALF_AT, ID_BYTES, INPUT_AT, LOST_AT,
    MAGIC, MAGIC_AT, MORE_ID_BYTES, Memory, PAGE_BYTES, RECORDS_BYTES, REGION_AT, SLOTS,
    SLOTS_USED_AT, STATE_AT, VERSION, VERSION_AT, WORD_BYTES, input_side, records_side, region_of,
};

/// What is looked at at once for the end of the input.
const LOOK_BYTES: usize = 64 << 10;

/// A request that was open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Open {
    /// Its id, as it was sent.
    pub id: Vec<u8>,
    /// Whether its answer may have been written.
    pub has_begun: bool,
    pub is_initialize: bool,
}

/// All that a journal says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// The host's `initialize`, a whole line.
    pub initialize: Option<Vec<u8>>,
    /// The version that the host was told in answer to it.
    pub told: Option<String>,
    pub level: Option<String>,
    /// The uris that the host holds, JSON strings.
    pub subscriptions: BTreeSet<Vec<u8>>,
    /// What the host has seen of each list, as it was recorded.
    pub seen: Vec<Vec<u8>>,
    pub open: Vec<Open>,
    /// Bytes of the host that were not acted on.
    pub input: Vec<u8>,
    /// Whether the line that those begin with has lost its beginning.
    pub is_input_cut: bool,
    pub is_half: bool,
    pub ended: Ended,
    /// How much was acted on.
    pub acted: u64,
    /// Requests that were answered twice, as far as is known.
    pub doubled: u64,
}

/// Why a journal cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    #[error("it is no journal of an attachment")]
    Foreign,
    #[error("its version is {0}, not {VERSION}")]
    Version(u64),
    #[error("its {0} is damaged")]
    Damaged(&'static str),
}

impl Image {
    /// Reads a journal that nobody writes to.
    ///
    /// # Errors
    ///
    /// It is none, or none of this version, or something that is no writer wrote to it.
    pub fn read(memory: &dyn Memory) -> Result<Self, Unreadable> {
        let mut image = Self::default();
        if memory.len() < INPUT_AT || memory.load(MAGIC_AT) != MAGIC {
            return Err(Unreadable::Foreign);
        }
        let version = memory.load(VERSION_AT);
        if version != u64::from(VERSION) {
            return Err(Unreadable::Version(version));
        }
        image.ended = Ended::of_word(memory.load(ENDED_AT));
        image.is_half = memory.load(HALF_AT) != 0;
        image.doubled = memory.load(DOUBLED_AT);
        image.acted = memory.load(ACTED_AT);
        image.read_session(memory)?;
        image.read_open(memory)?;
        image.read_input(memory)?;
        Ok(image)
    }

    /// Reads what the records come to.
    pub(super) fn read_session(&mut self, memory: &dyn Memory) -> Result<(), Unreadable> {
        let word = memory.load(STATE_AT);
        let len = (word >> 1) as usize;
        if len > RECORDS_BYTES {
            return Err(Unreadable::Damaged("session"));
        }
        let mut records = vec![0; len];
        memory.read(records_side(word & 1), &mut records);
        let mut rest = records.as_slice();
        while let Some((head, behind)) = rest.split_first_chunk::<{ record::HEAD_BYTES }>() {
            let len = u32::from_le_bytes([head[1], head[2], head[3], head[4]]) as usize;
            let (bytes, behind) = behind
                .split_at_checked(len)
                .ok_or(Unreadable::Damaged("session"))?;
            self.take_record(head[0], bytes);
            rest = behind;
        }
        Ok(())
    }

    fn take_record(&mut self, kind: u8, bytes: &[u8]) {
        let text = || Some(String::from_utf8_lossy(bytes).into_owned());
        match kind {
            record::INITIALIZE => self.initialize = Some(bytes.to_vec()),
            record::TOLD => self.told = text(),
            record::LEVEL => self.level = text(),
            record::SUBSCRIBED => drop(self.subscriptions.insert(bytes.to_vec())),
            record::UNSUBSCRIBED => drop(self.subscriptions.remove(bytes)),
            record::SEEN => {
                self.seen.retain(|seen| name_of(seen) != name_of(bytes));
                self.seen.push(bytes.to_vec());
            }
            // Of a newer writer that kept the version: it can be done without.
            _ => {}
        }
    }

    fn read_open(&mut self, memory: &dyn Memory) -> Result<(), Unreadable> {
        let used = memory.load(SLOTS_USED_AT) as usize;
        let mut at = 0;
        while at < used.min(SLOTS) {
            let word = memory.load(slot_at(at));
            let state = word & slot::STATE;
            if state != slot::OPEN && state != slot::BEGUN {
                at += 1;
                continue;
            }
            let len = (word >> slot::LEN_SHIFT) as usize;
            let count = slots_for(len);
            if at + count > SLOTS {
                return Err(Unreadable::Damaged("list of requests"));
            }
            let until = memory.load(slot_at(at) + WORD_BYTES);
            // Its line is still in the input, and will be read again.
            if until <= self.acted {
                self.open.push(Open {
                    id: read_id(memory, at, len),
                    has_begun: state == slot::BEGUN,
                    is_initialize: word & slot::INITIALIZE != 0,
                });
            }
            at += count;
        }
        Ok(())
    }

    fn read_input(&mut self, memory: &dyn Memory) -> Result<(), Unreadable> {
        let word = memory.load(BASE_AT);
        let (base, side) = (word >> 1, word & 1);
        let region = memory.load(REGION_AT) as usize;
        if !region.is_multiple_of(PAGE_BYTES) || region > region_of(memory.len()) {
            return Err(Unreadable::Damaged("input"));
        }
        self.is_input_cut = memory.load(LOST_AT) > self.acted;
        // A line was being given up when it ended: what is there begins where that line goes on.
        let done = self.acted.saturating_sub(base) as usize;
        if done > region {
            return Err(Unreadable::Damaged("input"));
        }
        let start = input_side(region, side);
        let mut at = done;
        while at < region {
            let mut piece = vec![0; LOOK_BYTES.min(region - at)];
            memory.read(start + at, &mut piece);
            let Some(last) = piece.iter().rposition(|byte| *byte != 0) else {
                break;
            };
            let is_whole = last + 1 == piece.len();
            at += piece.len();
            piece.truncate(last + 1);
            self.input.extend_from_slice(&piece);
            if !is_whole {
                break;
            }
        }
        Ok(())
    }

    /// Writes the beginning of a journal to memory that is all zeros: the session and the input.
    /// Requests that are open are no daemon's yet and are not written. Gives how many bytes of the
    /// input there was room for.
    pub fn write(&self, memory: &dyn Memory) -> usize {
        let region = region_of(memory.len());
        let len = self.write_session(memory, 0);
        memory.store(STATE_AT, (len as u64) << 1);
        memory.store(DOUBLED_AT, self.doubled);
        memory.store(REGION_AT, region as u64);
        let input = &self.input[..self.input.len().min(region)];
        memory.write(input_side(region, 0), input);
        memory.store(VERSION_AT, u64::from(VERSION));
        memory.store(MAGIC_AT, MAGIC);
        input.len()
    }

    /// Writes the session to a side that does not count; how long it is. What there is no room for
    /// is left out.
    pub(super) fn write_session(&self, memory: &dyn Memory, side: u64) -> usize {
        let put = |len, change| put_record(memory, side, len, change).unwrap_or(len);
        self.changes().fold(0, put)
    }

    /// The session as changes from nothing.
    fn changes(&self) -> impl Iterator<Item = Change<'_>> {
        let initialize = self.initialize.as_deref().map(Change::Initialize);
        let told = self.told.as_deref().map(str::as_bytes).map(Change::Told);
        let level = self.level.as_deref().map(str::as_bytes).map(Change::Level);
        let subscriptions = self.subscriptions.iter();
        [initialize, told, level]
            .into_iter()
            .flatten()
            .chain(self.seen.iter().map(|seen| Change::Seen(seen)))
            .chain(subscriptions.map(|uri| Change::Subscribed(uri)))
    }
}

fn read_id(memory: &dyn Memory, first: usize, len: usize) -> Vec<u8> {
    let mut id = vec![0; len];
    let (head, rest) = id.split_at_mut(len.min(ID_BYTES));
    memory.read(slot_at(first) + 2 * WORD_BYTES, head);
    for (at, piece) in (first + 1..).zip(rest.chunks_mut(MORE_ID_BYTES)) {
        memory.read(slot_at(at) + WORD_BYTES, piece);
    }
    id
}

/// The name of the list that a record of it begins with.
fn name_of(seen: &[u8]) -> &[u8] {
    seen.split(|byte| *byte == b' ').next().unwrap_or_default()
}
