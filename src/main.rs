//! The program: arguments in, exit code out. Everything else is in the library.

use std::process::ExitCode;

use mcpd::supervise::exec;

fn main() -> ExitCode {
    // The shim that becomes a server comes before everything: it is no command of a person.
    if std::env::args_os()
        .nth(1)
        .is_some_and(|argument| argument == exec::ARGUMENT)
    {
        exec::run();
    }
    ExitCode::from(mcpd::cli::run(std::env::args_os()))
}
