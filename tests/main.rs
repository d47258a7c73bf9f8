//! The behaviour of the real daemon, one module a theme: real processes, real sockets, a fake server that
//! plays the faults, and a home of its own a test.

mod common;

mod handshake;
mod ids;
mod lifecycle;
mod notifications;
mod restart;
