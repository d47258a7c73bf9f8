//! Ctrl-C and SIGTERM as something that can be waited for beside other things.

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use super::error::CliError;

/// Ctrl-C and SIGTERM as a descriptor, from now on.
pub(crate) fn interrupts() -> Result<SignalFd, CliError> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGINT);
    signals.add(Signal::SIGTERM);
    let failed = |error: Errno| CliError::internal("cannot wait for signals").because(error);
    signals.thread_block().map_err(failed)?;
    SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK).map_err(failed)
}
