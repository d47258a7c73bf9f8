//! A legacy host with a modern child.
//!
//! Not served yet by any child: none is taken for modern.

use crate::protocol::{ErrorCode, Frame};
use crate::session::answers::Failure;
use crate::session::mux::Mux;
use crate::session::queue::Queued;
use crate::session::requests::RequestKey;

impl Mux {
    /// A legacy request has its turn and the child is modern: what is written to the child, if
    /// anything is.
    pub(in crate::session) fn write_for_modern_child(
        &mut self,
        key: RequestKey,
        _queued: &Queued,
    ) -> Option<Frame> {
        let failure = Failure::of_message(
            ErrorCode::INTERNAL_ERROR,
            "the server speaks a version of MCP that this host does not",
        );
        self.fail(key, &failure);
        None
    }
}
