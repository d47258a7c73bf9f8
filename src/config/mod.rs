//! Room config

pub mod expand;
pub mod spec;
