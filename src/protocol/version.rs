//! The revisions of MCP, their two eras, and which legacy one a host is told.
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

/// The two ways in which MCP has been spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Era {
    /// A session that `initialize` opens; up to 2025-11-25.
    Legacy,
    /// No session: each request says its version, its client and what that can do.
    Modern,
}

impl Era {
    /// The name of the era, as `status` and the state file have it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            Self::Modern => "modern",
        }
    }
}

impl fmt::Display for Era {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

/// A modern revision of MCP. Older sorts before newer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ModernVersion {
    /// The revision that took the handshake out.
    V2026_07_28,
}

impl ModernVersion {
    /// What mcpd asks a child for.
    pub const NEWEST: Self = Self::V2026_07_28;

    /// Every modern revision, oldest first.
    pub const ALL: [Self; 1] = [Self::V2026_07_28];

    /// The revision as it is written in `_meta`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V2026_07_28 => "2026-07-28",
        }
    }

    /// The revision that `text` names exactly, if it is one of them.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|version| version.as_str() == text)
    }
}

impl fmt::Display for ModernVersion {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

/// What is spoken with a peer: a revision of either era.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Revision {
    Legacy(Version),
    Modern(ModernVersion),
}

impl Revision {
    pub const fn era(self) -> Era {
        match self {
            Self::Legacy(_) => Era::Legacy,
            Self::Modern(_) => Era::Modern,
        }
    }

    /// The revision as it is written on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Legacy(version) => version.as_str(),
            Self::Modern(version) => version.as_str(),
        }
    }

    /// The newest legacy revision that a host of a child of this revision can be told: a modern
    /// child is translated for, so nothing of it holds a host back.
    pub const fn newest_for_legacy_hosts(self) -> Version {
        match self {
            Self::Legacy(version) => version,
            Self::Modern(_) => Version::NEWEST,
        }
    }
}

impl fmt::Display for Revision {
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
        for version in ModernVersion::ALL {
            assert_eq!(ModernVersion::parse(version.as_str()), Some(version));
            assert_eq!(Version::parse(version.as_str()), None);
        }
        assert!(ModernVersion::ALL.is_sorted());
    }
}
