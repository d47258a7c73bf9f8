//! How rough a run is: what its seed makes likely.
//!
//! Some runs are calm and busy, some have one fault that never stops, some have all of them. Decides
//! likelihoods only.

use crate::random::Random;

/// Likelihoods in per cent, and limits.
#[derive(Clone, Debug)]
pub(crate) struct Temper {
    /// An answer of a child is not a plain one.
    pub(crate) lies: u64,
    /// A child dies while it writes.
    pub(crate) dies: u64,
    /// A start fails or hangs in one way or another.
    pub(crate) bad_starts: u64,
    /// A child does not end as it should.
    pub(crate) stubborn: u64,
    /// A child says or does something of its own accord, each time it is read from.
    pub(crate) whims: u64,
    /// A host does something that it should not.
    pub(crate) rude_hosts: u64,
    /// A host stops reading for a while.
    pub(crate) lazy_hosts: u64,
    /// What a person does.
    pub(crate) deeds: u64,
    /// A worker wakes late, by up to so many milliseconds.
    pub(crate) lateness_ms: u64,
    /// Most bytes that one pipe holds.
    pub(crate) pipe_bytes: u64,
    /// One server has nothing to do with any fault.
    pub(crate) has_calm: bool,
    /// The daemon's pool; small ones only where nobody who is to be calm can hold most of it.
    pub(crate) pool_bytes: u64,
    /// The end comes in the middle of everything.
    pub(crate) ends_early: bool,
    /// Nothing tells of edits.
    pub(crate) is_deaf: bool,
}

impl Temper {
    pub(crate) fn of(random: &mut Random) -> Self {
        let mut likelihood = |most: u64| match random.below(4) {
            0 => 0,
            1 => random.below(most / 4 + 1),
            _ => random.below(most + 1),
        };
        let (lies, dies) = (likelihood(60), likelihood(8));
        let (bad_starts, stubborn) = (likelihood(50), likelihood(70));
        let (whims, rude_hosts, lazy_hosts) = (likelihood(20), likelihood(40), likelihood(20));
        let deeds = likelihood(24);
        let has_calm = random.chance(50);
        let pools: &[u64] = match has_calm {
            true => &[1 << 20, 512 << 20],
            false => &[8 << 10, 32 << 10, 512 << 20],
        };
        Self {
            has_calm,
            lies,
            dies,
            bad_starts,
            stubborn,
            whims,
            rude_hosts,
            lazy_hosts,
            deeds,
            lateness_ms: *random.pick(&[0, 0, 20, 300, 3_000]),
            pipe_bytes: *random.pick(&[200, 4_096, 65_536]),
            pool_bytes: *random.pick(pools),
            ends_early: random.chance(30),
            is_deaf: random.chance(10),
        }
    }
}
