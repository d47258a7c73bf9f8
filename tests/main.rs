//! The behaviour of the real daemon, one module a theme: real processes, real sockets, a fake server that
//! plays the faults, and a home of its own a test.
//!
//! A number such as `C024` names a fault that users of local servers met in the field; the comment beside it
//! tells it. Each has at least one test, so that it can be found again by its number.

mod common;

mod belonging;
mod calling;
mod chasing;
mod commands;
mod config_errors;
mod connect;
mod containment;
mod coverage;
mod daemon_socket;
mod discovery;
mod editing;
mod env_secrets;
mod figures;
mod flow;
mod framing;
mod handover;
mod handshake;
mod ids;
mod lifecycle;
mod looking;
mod moving;
mod notifications;
mod pass_through;
mod paths_args;
mod pictures;
mod readme;
mod reload;
mod restart;
mod sdk;
mod service;
mod sharing;
mod starts;
mod status;
mod stderr_logs;
mod under_load;
mod warden;
