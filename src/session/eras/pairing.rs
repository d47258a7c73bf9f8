//! Which path a request takes: by the era it is of and the era of the child that gets it.
//!
//! Decides the path, never what happens on it.

use crate::protocol::Era;

/// The era of a request beside that of the child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::session) enum Pairing {
    /// Both speak the same way: bytes pass.
    Same(Era),
    /// A modern request for a legacy child.
    ModernHost,
    /// A legacy request for a modern child.
    ModernChild,
}

impl Pairing {
    /// The pairing of a request with a child.
    pub(in crate::session) const fn of(request: Era, child: Era) -> Self {
        match (request, child) {
            (Era::Legacy, Era::Legacy) => Self::Same(Era::Legacy),
            (Era::Modern, Era::Modern) => Self::Same(Era::Modern),
            (Era::Modern, Era::Legacy) => Self::ModernHost,
            (Era::Legacy, Era::Modern) => Self::ModernChild,
        }
    }
}
