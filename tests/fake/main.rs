//! `fake-mcp`: one MCP server that plays every fault that a real one was ever seen with.
//!
//! It is told by switches what to do wrong as a process, and by tool calls what to do wrong as a peer,
//! and it records what it saw, so that a test can tell what reached the child. It decides nothing about
//! mcpd and never checks anything itself. Blocking code and threads only: it has to start fast.

mod eras;
mod options;
mod output;
mod record;
mod server;
mod signals;
mod tools;
mod tree;

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use nix::poll::{PollTimeout, poll};

use options::{Options, SWITCHES};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args_os()
        .skip(1)
        .map(|arg| arg.to_string_lossy().into_owned())
        .collect();
    match args.first().map(String::as_str) {
        Some("--help") => print_help(),
        Some("launcher") => tree::launcher(&args[1..]),
        Some("docker") => tree::docker(&args[1..]),
        Some("grandchild") => tree::grandchild(&args[1..]),
        Some("double-fork") => tree::double_fork(&args[1..]),
        _ => match Options::parse(&args) {
            Ok(options) => server::serve(options),
            Err(problem) => {
                writeln!(std::io::stderr(), "fake-mcp: {problem}").ok();
                ExitCode::from(2)
            }
        },
    }
}

fn print_help() -> ExitCode {
    let mut text = String::from(
        "A fake MCP server on standard input and output.\n\n\
         fake-mcp [SWITCH]…\n\
         fake-mcp launcher [--levels N] [--record FILE] -- SWITCH…\n\
         fake-mcp docker [-t] [--record FILE] -- SWITCH…\n\nSwitches:\n",
    );
    for switch in SWITCHES {
        let name = format!("{} {}", switch.name, switch.value.unwrap_or(""));
        text.push_str(&format!("  {name:28} {}\n", switch.help));
    }
    text.push_str("\nTools:\n");
    for tool in tools::TOOLS {
        text.push_str(&format!("  {:28} {}\n", tool.name, tool.help));
    }
    text.push_str("\nKinds of the tool reply:\n");
    for kind in output::REPLY_KINDS {
        text.push_str(&format!("  {kind}\n"));
    }
    text.push_str("\nKinds of noise:\n");
    for kind in output::NOISE_KINDS {
        text.push_str(&format!("  {kind}\n"));
    }
    std::io::stdout().write_all(text.as_bytes()).ok();
    ExitCode::SUCCESS
}

/// Does nothing for a while: the delay of a slow server.
pub(crate) fn pause(delay: Duration) {
    let mut left = delay.as_millis();
    while left > 0 {
        let step = left.min(60_000);
        poll(
            &mut [],
            PollTimeout::try_from(step as i32).expect("a minute fits"),
        )
        .ok();
        left -= step;
    }
}

/// Stays until it is killed, but never for ever: a test that failed must leave nothing behind.
pub(crate) fn linger() -> ExitCode {
    pause(Duration::from_secs(300));
    ExitCode::from(99)
}
