//! How a body of one era of MCP becomes one of the other: data in, data out.
//!
//! Decides what a request, a result, an error or a notification looks like on the other side, and
//! which era a message is of. Never knows hosts, children, open requests or the time; what a
//! translation needs to know of a peer is an argument. `session::eras` decides when one is due.
//!
//! | file | question |
//! | --- | --- |
//! | `request` | which era is this request of, does it say what it must? |
//! | `for_legacy` | what does a legacy child see of a modern request? |
//! | `for_modern` | what does a modern child see of a legacy request? |
//! | `input` | what does a modern child still want to know? |
//! | `legacy_result` | what does a legacy host see of a modern child's answer? |
//! | `result` | what does a modern host see of a legacy child's answer? |
//! | `discover` | what is a modern host told of a legacy child? |
//! | `listen` | what does a listen ask for, what do the messages of its stream carry? |
//! | `question` | can a host be asked this, how is it put, is this an answer? |
//! | `sameness` | does a retry ask what was asked first? |
//!
//! Source: MCP 2026-07-28, `basic/versioning`, `basic/index`, `basic/patterns/*`.

pub mod discover;
pub mod for_legacy;
pub mod for_modern;
pub mod input;
pub mod legacy_result;
pub mod listen;
pub mod question;
pub mod request;
pub mod result;
pub mod sameness;

pub use request::{MetadataFault, check_metadata, era_of};

/// `_meta` of a result: which server it came from.
pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";

/// `_meta` of a notification: the listen stream that it belongs to.
pub const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
