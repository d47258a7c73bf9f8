//! Signals: all are recorded; some are then obeyed, some are not.
//!
//! They are blocked in every thread and read from a descriptor, so that no handler runs and nothing
//! here needs unsafe code.

use std::thread;

pub(crate) use nix::sys::signal::Signal;
use nix::sys::signal::{SigSet, raise};
use nix::sys::signalfd::SignalFd;

use crate::record::Record;

/// What the process does on a signal, after it was recorded.
pub(crate) type Answer = Box<dyn Fn(Signal) -> Obey + Send>;

/// Whether a signal has its default effect.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Obey {
    Yes,
    No,
}

/// Takes over the signals that a supervisor or a terminal might send. Called before any thread starts.
pub(crate) fn take_over(record: Record, answer: Answer) {
    let mut set = SigSet::empty();
    for signal in [
        Signal::SIGTERM,
        Signal::SIGINT,
        Signal::SIGHUP,
        Signal::SIGQUIT,
        Signal::SIGCONT,
        Signal::SIGUSR1,
    ] {
        set.add(signal);
    }
    set.thread_block().expect("signals can be blocked");
    let incoming = SignalFd::new(&set).expect("a signal descriptor opens");
    thread::spawn(move || {
        while let Ok(Some(info)) = incoming.read_signal() {
            let Ok(signal) = Signal::try_from(info.ssi_signo as i32) else {
                continue;
            };
            record.add("SIGNAL", signal.as_str().as_bytes());
            if signal != Signal::SIGCONT && answer(signal) == Obey::Yes {
                die_of(signal);
            }
        }
    });
}

/// Ends this process by a signal, with its default effect.
pub(crate) fn die_of(signal: Signal) {
    let mut set = SigSet::empty();
    set.add(signal);
    set.thread_unblock().expect("signals can be unblocked");
    raise(signal).expect("a process may signal itself");
}

/// Reads `KILL` or `SIGKILL`.
pub(crate) fn named(name: &str) -> Signal {
    let full = if name.starts_with("SIG") {
        name.to_owned()
    } else {
        format!("SIG{name}")
    };
    full.parse()
        .unwrap_or_else(|_| panic!("{name} is no signal"))
}
