//! Configuration: from folders, text and an environment to servers that are valid throughout.
//!
//! The core reads text and compares results: [`parse`] (TOML to a [`spec::ServerSpec`] or every
//! error), [`expand`] (`${NAME}`), [`env_file`], [`environment`] (what a child is given),
//! [`resolve`] (what a spawn needs), [`diff`] (what an edit touches), [`advice`] (what `mcpd check`
//! warns of), [`render`] and [`edit`] (what commands write), [`redact`] (what is never shown), [`paths`] (where things are), and for edits
//! [`watch_set`] (what to watch), [`lookout`] (when to look) and [`doubts`] (what to believe). The
//! shell does the reading: [`load`], [`sources`], [`regular_file`], [`hash_key`], [`dirs`] and [`presence`]; and
//! the watching: [`watch`]. The commands of
//! `{ command = … }` values are run by the daemon, which reaps what it starts.
//!
//! Nothing here starts or stops a server, and no value of an environment is ever part of a message.

pub mod advice;
pub mod arg_secrets;
pub mod diagnostics;
pub mod diff;
pub mod dirs;
pub mod doubts;
pub mod draft;
pub mod edit;
pub mod env_file;
pub mod environment;
pub mod expand;
pub mod fingerprint;
pub mod hash_key;
mod keys;
pub mod load;
mod look_alikes;
pub mod lookout;
pub mod parse;
pub mod paths;
pub mod presence;
pub mod redact;
pub mod regular_file;
pub mod render;
pub mod resolve;
pub mod schema;
pub mod sources;
pub mod spec;
pub mod suggest;
mod table;
pub(crate) mod units;
pub mod watch;
pub mod watch_set;
