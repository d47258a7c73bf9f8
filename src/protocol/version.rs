//! The legacy revisions of MCP and which of them a host is told.
//!
//! Decides the version that `initialize` is answered with; never what a revision means for the
//! messages that pass.

use std::fmt;

/// A legacy revision of MCP: one with the `initialize` handshake. Older sorts before newer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// The first revision.
    V2024_11_05,
    /// The only revision that knows JSON-RPC batches.
    V2025_03_26,
    /// The revision that took batches out again.
    V2025_06_18,
    /// The newest revision with a handshake.
    V2025_11_25,
}

impl Version {
    /// What mcpd offers to a child.
    pub const NEWEST: Self = Self::V2025_11_25;

    /// Every legacy revision, oldest first.
    pub const ALL: [Self; 4] = [
        Self::V2024_11_05,
        Self::V2025_03_26,
        Self::V2025_06_18,
        Self::V2025_11_25,
    ];

    /// The revision as it is written in `protocolVersion`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V2024_11_05 => "2024-11-05",
            Self::V2025_03_26 => "2025-03-26",
            Self::V2025_06_18 => "2025-06-18",
            Self::V2025_11_25 => "2025-11-25",
        }
    }

    /// The revision that `text` names exactly, if it is one of the four.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|version| version.as_str() == text)
    }

    /// Whether a peer of this revision may send JSON-RPC batches (2025-03-26 `basic/index`).
    pub const fn has_batches(self) -> bool {
        matches!(self, Self::V2025_03_26)
    }

    /// Whether an error that answers no readable id carries `id: null`; 2025-11-25 made `id`
    /// optional there and its schema does not allow `null`.
    pub const fn writes_null_id(self) -> bool {
        !matches!(self, Self::V2025_11_25)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

/// The version that a host which asked for `asked` is told, where the child speaks `child`.
///
/// A revision that mcpd knows is taken as asked, but never newer than the child's; anything else,
/// modern and unknown strings included, gets the newest one that the child allows.
pub fn negotiate(asked: &str, child: Version) -> Version {
    Version::parse(asked).map_or(child, |version| version.min(child))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(asked: &str, child: Version, told: Version) {
        assert_eq!(
            negotiate(asked, child),
            told,
            "{asked} with a child of {child}"
        );
    }

    #[test]
    fn a_known_version_is_taken_but_never_newer_than_the_child() {
        check("2025-11-25", Version::V2024_11_05, Version::V2024_11_05);
        check("2024-11-05", Version::V2025_11_25, Version::V2024_11_05);
        check("2025-06-18", Version::V2025_06_18, Version::V2025_06_18);
    }

    #[test]
    fn anything_else_gets_what_the_child_speaks() {
        check("2026-07-28", Version::V2025_06_18, Version::V2025_06_18);
        check("", Version::V2024_11_05, Version::V2024_11_05);
        check("2025-11-25 ", Version::V2025_11_25, Version::V2025_11_25);
    }

    #[test]
    fn names_read_back() {
        for version in Version::ALL {
            assert_eq!(Version::parse(version.as_str()), Some(version));
        }
        assert!(Version::ALL.is_sorted());
    }
}
