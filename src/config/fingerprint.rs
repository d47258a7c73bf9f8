//! Keyed hashes of what must not be kept: equal contents, equal hash, and no way back.
//!
//! The key is random and the user's own, so that a hash that shows up somewhere cannot be tried
//! against guesses.

use std::fmt;

/// The key of the user's hashes, 32 random bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct HashKey(pub [u8; 32]);

impl fmt::Debug for HashKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("HashKey(‹…›)")
    }
}

/// What a piece of contents hashes to under a key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    pub fn of(key: &HashKey, contents: &[u8]) -> Self {
        Self(*blake3::keyed_hash(&key.0, contents).as_bytes())
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Fingerprint({:02x}{:02x}…)", self.0[0], self.0[1])
    }
}

/// The first eight bytes in hexadecimal: enough to tell two apart, short enough to show.
impl fmt::Display for Fingerprint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..8]
            .iter()
            .try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}
