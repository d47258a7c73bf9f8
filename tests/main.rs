//! The behaviour of the real daemon, one module a theme: real processes, real sockets, a fake server that
//! plays the faults, and a home of its own a test.

mod common;

mod flow;
mod framing;
mod handshake;
mod ids;
mod lifecycle;
mod notifications;
mod pass_through;
mod restart;
mod stderr_logs;
