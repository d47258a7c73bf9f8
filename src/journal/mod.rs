//! The journal of an attachment: what has to be known of it if the daemon ends without a word.
//!
//! `mcpd connect` gives the daemon a piece of memory and keeps it. The daemon writes into it as it
//! works ([`Writer`], [`Input`]); whoever holds the memory afterwards reads off it what has become of
//! the host ([`Image`]). This room is the layout and its rules. It maps, reads and writes nothing by
//! itself: a [`Memory`] is handed to it.
//!
//! # What holds at any instruction
//!
//! The writer may stop between any two stores. Everything takes effect by a single store of one
//! word, after what belongs to it:
//!
//! - **Input.** The host's bytes are read right into the memory, behind those that were not acted
//!   on and into zeros, so that a read which was the last thing that happened is not lost: what was
//!   read ends at the last byte that is not zero (a message has no zero byte). `acted` says how much
//!   of the stream has been acted on.
//! - **Open requests.** A slot holds an id and the place in the stream where its line ends. Until
//!   `acted` has reached that place the slot does not count: the line is still in the input, and the
//!   request has gone nowhere.
//! - **Answers.** A slot is marked before its answer is written and freed after. One that is found
//!   marked may have been answered already.
//! - **Lines.** What the kernel takes as a whole or not at all is never half a line. Before a longer
//!   one begins the journal says that a line is half written, and after its end that none is.
//! - **The session** (`initialize`, level, subscriptions) is a list of records that only grows. When
//!   its side is full it is written anew to the other side, and one store changes sides.
//!
//! # Limits
//!
//! Each part has a size, and what happens when it is full is the caller's to answer: a request
//! without a slot is refused as overloaded, a subscription that cannot be recorded is not made again,
//! and a line that is longer than the input is marked as lost: what is left of it is skipped.

mod image;
mod input;
mod writer;

use std::fmt;

pub use image::{Image, Open, Unreadable};
pub use input::{Input, Room};
pub use writer::{Change, Slot, Writer};

/// Memory that outlives whoever writes to it.
///
/// Offsets of words are multiples of eight and within [`Memory::len`]; the caller sees to it.
pub trait Memory: fmt::Debug + Send + Sync {
    /// Its size in bytes.
    fn len(&self) -> usize;
    /// Whether there is none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Reads one word.
    fn load(&self, at: usize) -> u64;
    /// Writes one word in one piece, after all that was written before.
    fn store(&self, at: usize, word: u64);
    /// Reads bytes.
    fn read(&self, at: usize, bytes: &mut [u8]);
    /// Writes bytes, in no particular order.
    fn write(&self, at: usize, bytes: &[u8]);
    /// Writes zeros.
    fn clear(&self, at: usize, len: usize);
}

/// The version of the layout.
pub const VERSION: u32 = 1;

/// Bytes of a line of a host that the input has room for beside what waits to be acted on.
pub const LINE_LIMIT_BYTES: usize = 64 << 20;

/// The smallest size of a whole journal.
pub const SIZE: usize = size_for(LINE_LIMIT_BYTES);

/// The size of a journal for a host whose lines have at most `line_limit` bytes.
pub const fn size_for(line_limit: usize) -> usize {
    let region = (line_limit + INPUT_SLACK_BYTES).next_multiple_of(PAGE_BYTES);
    INPUT_AT + 2 * region
}

/// What a line that arrives may share the input with: lines on their way to be acted on.
const INPUT_SLACK_BYTES: usize = 32 << 20;

const PAGE_BYTES: usize = 4096;
const WORD_BYTES: usize = size_of::<u64>();

/// What a journal begins with.
const MAGIC: u64 = u64::from_le_bytes(*b"mcpdjrnl");

// The words of the head.
const MAGIC_AT: usize = 0;
const VERSION_AT: usize = 8;
/// How much of the stream has been acted on.
const ACTED_AT: usize = 16;
/// Where in the stream the input begins, and in its lowest bit on which side it is.
const BASE_AT: usize = 24;
/// The length of the session's records, and in its lowest bit on which side they are.
const STATE_AT: usize = 32;
/// Not zero while a line to the host is half written.
const HALF_AT: usize = 40;
/// How the attachment ended, as a number of [`Ended`].
const ENDED_AT: usize = 48;
/// Answers that went out twice, as far as is known.
const DOUBLED_AT: usize = 56;
/// Zero, or one more than the place in the stream up to which a line was lost that goes on there.
const LOST_AT: usize = 64;
/// Slots from this one on were never used.
const SLOTS_USED_AT: usize = 72;
/// The size of one side of the input.
const REGION_AT: usize = 80;

const SLOTS_AT: usize = 256;
const SLOT_BYTES: usize = 64;
/// Open requests of one host, ids of more than 48 bytes counting for several.
const SLOTS: usize = 2048;
/// Bytes of an id in its first slot, and in each that follows.
const ID_BYTES: usize = 48;
const MORE_ID_BYTES: usize = 56;

const RECORDS_AT: usize = (SLOTS_AT + SLOTS * SLOT_BYTES).next_multiple_of(PAGE_BYTES);
/// One side of the session's records.
const RECORDS_BYTES: usize = 1 << 20;

const INPUT_AT: usize = RECORDS_AT + 2 * RECORDS_BYTES;

/// How an attachment has ended, as the daemon left word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ended {
    /// Without a word: the daemon was lost.
    #[default]
    Lost,
    /// The host has left, or has got all that was due to it.
    Finished,
    /// The daemon let this host go, and goes on.
    Detached,
    /// The daemon ends in order.
    Ending,
}

impl Ended {
    const fn word(self) -> u64 {
        match self {
            Self::Lost => 0,
            Self::Finished => 1,
            Self::Detached => 2,
            Self::Ending => 3,
        }
    }

    const fn of_word(word: u64) -> Self {
        match word {
            1 => Self::Finished,
            2 => Self::Detached,
            3 => Self::Ending,
            _ => Self::Lost,
        }
    }
}

/// The size of one side of the input in a journal of `len` bytes.
const fn region_of(len: usize) -> usize {
    let each = len.saturating_sub(INPUT_AT) / 2;
    each - each % PAGE_BYTES
}

/// Where a side of the input begins.
const fn input_side(region: usize, side: u64) -> usize {
    INPUT_AT + region * (side & 1) as usize
}

/// Where a side of the session's records begins.
const fn records_side(side: u64) -> usize {
    RECORDS_AT + RECORDS_BYTES * (side & 1) as usize
}

#[cfg(test)]
pub(crate) mod tests;
