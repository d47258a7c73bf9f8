//! A modern host with a legacy child.
//!
//! Not served: such a request is refused when its turn comes, and the child never sees it, because a
//! legacy child may end at a request that it does not expect.

use crate::protocol::{ErrorCode, Frame};
use crate::session::answers::Failure;
use crate::session::mux::Mux;
use crate::session::queue::Queued;
use crate::session::requests::RequestKey;

impl Mux {
    /// A modern request has its turn and the child is legacy: what is written to the child, if
    /// anything is.
    pub(in crate::session) fn write_for_modern_host(
        &mut self,
        key: RequestKey,
        _queued: &Queued,
    ) -> Option<Frame> {
        let failure = Failure::of_message(
            ErrorCode::INVALID_REQUEST,
            "requests with a protocol version of their own are not served: use `initialize`",
        );
        self.fail(key, &failure);
        None
    }
}
