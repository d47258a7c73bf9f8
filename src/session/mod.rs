//! Any number of hosts on one child: the multiplexer.
//!
//! [`Mux`] is the one type that the shell drives: lines, ends and the time go in, frames and
//! [`MuxAction`]s come out. It owns everything that waits to be written, to hosts and to the child.
//! It decides who gets an answer, what reaches the child and in which order; it never reads, writes,
//! spawns, or looks at a clock, and it never changes a byte of `params`, `result` or `error` beyond
//! what the tables of the design list.
//!
//! | file | question |
//! | --- | --- |
//! | `mux` | what can be told to it and asked of it? |
//! | `from_host`, `from_child` | what does this line mean? |
//! | `admission` | is a request answered here, refused, or does it wait? |
//! | `answers` | how does a request end, and who is told what? |
//! | `calls` | what is told of a call when it has ended? |
//! | `upstream` | what is written to the child next? |
//! | `upkeep` | what does mcpd itself ask of a child, and who is to be cut off or let go? |
//! | `attach`, `outbox`, `batch` | how far is one host, what waits for it? |
//! | `requests`, `queue` | which requests are open, which wait, in which order? |
//! | `handshake` | what are hosts told of the child? |
//! | `subscriptions`, `levels`, `catalogue`, `tools` | who holds, hears, has seen, may call what? |
//! | `memory`, `recall` | what is told of a server while no child can be asked? |
//! | `idle` | since when has nobody needed the child? |
//! | `service` | does a request wait, or is it refused? |
//! | `journaled` | what is kept for the time after a crash, and taken up from before one? |
//! | `faults` | which request has lost its answer? |
//! | `eras` | what becomes of a request whose host speaks another era than the child? |
//! | `watchdog` | does the child still say something? |
//! | `trace` | what does somebody see who looks at what passes? |
//! | `limits` | how much may be held? |
//!
//! The invariants, each of which the sequence test in `tests` holds against random histories: a
//! request gets one answer, to its asker, with its id as sent, and none once it is cancelled or its
//! host has left; nothing that was written to a child is written to another; nothing but answers
//! goes to a host before its `initialize` was answered; when nothing is open nothing is held.

mod action;
mod admission;
mod answers;
mod attach;
mod batch;
mod calls;
mod catalogue;
mod eras;
mod faults;
mod from_child;
mod from_host;
mod handshake;
mod idle;
mod journaled;
mod levels;
mod limits;
mod memory;
mod mux;
mod outbox;
mod queue;
mod recall;
mod requests;
mod service;
mod settings;
mod snapshot;
mod subscriptions;
mod tools;
mod trace;
mod upkeep;
mod upstream;
mod watchdog;

#[cfg(test)]
mod tests;

pub use action::{ChildGone, CloseReason, DropReason, HostFrame, LogLevel, MuxAction};
pub use calls::{CallEnd, CallOutcome};
pub use limits::{ATTACHMENTS, OPEN_PER_CHILD, OPEN_PER_HOST, Pool, UNREAD_PER_HOST_BYTES};
pub use memory::{Memory, read_memory, render_memory};
pub use mux::{ANSWERS_AFTER_END, AttachmentsFull, Mux};
pub use service::{Hold, HoldCause, Service, Unavailable};
pub use settings::{Asking, HostInfo, MuxConfig};
pub use snapshot::{Counters, HostSnapshot, MuxSnapshot, OldestRequest, Turn};
pub use tools::ToolRules;
pub use trace::{Asked, Direction, Trace, TraceKind, Tracer};
