//! Where a host of one era meets a child of the other.
//!
//! Both may be of either era: a child for its whole life (`protocol::opening` finds out), a host
//! request by request, and both kinds may come on one attachment. So the pairing is picked for each
//! request, and only when it leaves the queue: no earlier is it sure which child gets it.
//!
//! | pairing | path | file |
//! | --- | --- | --- |
//! | same era | bytes pass, as the table of the design says | `upstream`, `answers`, `both_modern` |
//! | modern host, legacy child | translated | `modern_host` |
//! | legacy host, modern child | translated | `modern_child`, `consulting`, `stream` |
//!
//! The mux asks at four places, and each of the two paths answers all four: a request is written
//! (`Mux::write_queued`), an answer comes, a notification of the child comes, a host answers a
//! question or cancels. A listen stream of a modern host is no request of a legacy child: `listens`
//! keeps them, `listening` feeds them. What a legacy child asks of its client goes to one caller:
//! `turns` sees to it that there is only one, `asking` puts the question to a legacy host
//! (`questions`) or makes it the answer to a modern request, which comes again with an answer
//! (`rounds`, `retrying`). Bodies are rewritten by `protocol::eras`; what is kept here is kept by open
//! request, and goes with it.

mod asking;
mod both_modern;
mod call;
mod consulting;
mod listening;
mod listens;
pub(super) mod modern_child;
pub(super) mod modern_host;
mod pairing;
mod questions;
mod retrying;
mod rounds;
mod stream;
mod turns;

pub(super) use call::ModernCall;
pub(super) use consulting::Consults;
pub(super) use listens::{ListenKey, Listens};
pub(super) use pairing::Pairing;
pub(super) use questions::Questions;
pub(super) use rounds::{Ending, RoundKey, Rounds};
pub(super) use stream::Stream;
pub(super) use turns::{Caller, Turns};
