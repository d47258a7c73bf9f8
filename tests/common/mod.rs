//! The test bench: a home of its own a test, the real daemon in it, hosts that speak raw MCP.
//!
//! It starts processes, waits for states under deadlines and proves at the end that nothing is left. It
//! never asserts what mcpd should do: that is for the modules of `tests/main.rs`.

mod control_group;
mod daemon;
mod home;
mod host;
mod leaks;
mod record;
mod terminal;
mod wait;

pub(crate) use control_group::ControlGroup;
pub(crate) use daemon::{TestDaemon, memory_bytes};
pub(crate) use home::{
    FAKE, Home, MCPD, QUICK, make_private, output_in_time, output_within, quoted,
};
pub(crate) use host::{RawHost, error_code, initialize_params, text_of};
pub(crate) use leaks::{command_line, state_of};
pub(crate) use terminal::Terminal;
pub(crate) use wait::{Stopwatch, let_pass, say, wait_until, wait_within};
