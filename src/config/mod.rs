//! Configuration: from folders, text and an environment to servers that are valid throughout.
//!
//! The core compares and fills in: [`expand`] (`${NAME}`), [`environment`] (what a child is given),
//! [`resolve`] (what a spawn needs), [`diff`] (what an edit touches), [`redact`] (what is never shown)
//! and [`paths`] (where things are).
//!
//! Nothing here starts or stops a server, and no value of an environment is ever part of a message.

pub mod arg_secrets;
pub mod diagnostics;
pub mod diff;
pub mod environment;
pub mod expand;
pub mod fingerprint;
pub mod paths;
pub mod redact;
pub mod resolve;
pub mod spec;
