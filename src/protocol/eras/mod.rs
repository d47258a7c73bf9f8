//! How a body of one era of MCP becomes one of the other: data in, data out.
//!
//! Decides what a request, a result, an error or a notification looks like on the other side, and
//! which era a message is of. Never knows hosts, children, open requests or the time; what a
//! translation needs to know of a peer is an argument. `session::eras` decides when one is due.
//!
//! | file | question |
//! | --- | --- |
//! | `request` | which era is this request of? |
//!
//! Source: MCP 2026-07-28, `basic/versioning`, `basic/index`, `basic/patterns/*`.

pub mod request;

pub use request::era_of;
