//! mcpd owns a person's local MCP servers and shares each with any number of hosts.

pub mod cli;
pub mod config;
pub mod control;
pub mod daemon;
pub mod ids;
pub mod protocol;
pub mod session;
pub mod supervise;
pub mod time;
