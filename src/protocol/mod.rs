//! Lines, messages and their envelope, ids, versions, and the first exchange with a child.
//!
//! Decides what a line of bytes is and how it is changed on its way; never who it is for.

pub mod envelope;
pub mod eras;
pub mod error;
pub mod frame;
mod grammar;
pub mod id;
pub mod json;
pub mod line;
pub mod message;
pub mod opening;
pub mod scan;
pub mod splice;
pub mod version;
pub mod write;

pub use envelope::Member;
pub use error::ErrorCode;
pub use frame::{Frame, FrameArena};
pub use id::RequestId;
pub use json::Span;
pub use line::LineReader;
pub use message::{
    Batch, BatchItem, Fault, FaultReason, InvalidReason, Kind, Line, Message, Outcome, shown,
};
pub use opening::{ChildIdentity, EraChoice, Lesson, Opening};
pub use splice::Splice;
pub use version::{Era, ModernVersion, Revision, Version, negotiate};

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod samples;
