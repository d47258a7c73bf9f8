//! mcpd owns a person's local MCP servers: it spawns each one as its own child, keeps it alive,
//! and lets any number of hosts share it over a Unix socket.
//!
//! This page is the map. Each folder is a room with one job; imports between rooms point one way,
//! and a test (`tests/architecture.rs`) keeps them so.
//!
//! | room | kind | job |
//! | --- | --- | --- |
//! | [`cli`] | shell | one file a command: arguments in, text and an exit code out |
//! | [`config`] | core and shell | TOML text to valid [`config::spec::ServerSpec`]s, or to all that is wrong with it; old and new to a list of changes |
//! | [`protocol`] | core | bytes to lines, a line's envelope and ids, splicing, the first exchange with a child |
//! | [`journal`] | core | what is known of a host after its daemon was lost |
//! | [`session`] | core | many hosts on one child: every queue, every open request, every subscription |
//! | [`supervise`] | core and shell | the life of one child, from the spawn to the proof that nothing of it is left |
//! | [`instance`] | core | one server with its child and its hosts: what session and supervision have to know of each other |
//! | [`control`] | core | what the command line and the daemon say to each other; the status snapshot |
//! | [`daemon`] | shell | owns everything: sockets, one worker an instance, the registry |
//!
//! Two small files belong to all of them: [`time`] (a core is told the time, it never reads a
//! clock) and [`ids`] (names for spawns and attachments).
//!
//! # Core and shell
//!
//! A core takes events and the time and is asked what to do next: `handle_*(…, now)`,
//! `handle_timeout(now)`, `poll_action()`, `poll_timeout()`. It does no I/O. A shell waits for an
//! event or for the one deadline, hands it over, performs the actions and waits again; it decides
//! nothing. Queues of bytes belong to the core: the shell pulls the next frame when the descriptor
//! takes one, so that nothing is lost with a descriptor and every held byte is counted once.
//!
//! # Flows
//!
//! 1. **Call.** `daemon::host` reads bytes into a [`protocol`] `LineReader`; the worker hands each
//!    line to [`session::Mux`], which splices the id and queues it; the worker writes it to the
//!    child. The answer comes back the same way.
//! 2. **Edit.** `config::watch` hears that something may have changed, `config::lookout` says when
//!    to look; `config::load` reads all files, `config::doubts` holds back what may be a save half
//!    done, `config::diff` says what changed, the registry tells the workers concerned and nobody
//!    else.
//! 3. **Crash.** The child's pidfd or the end of its output wakes the worker; `supervise` decides
//!    on the restart, `session` fails what was open and keeps what was not sent; `instance` carries
//!    the word between them, so that the worker decides nothing.
//! 4. **The end.** On SIGTERM the registry stops all workers at once, each goes through its
//!    teardown, and the daemon leaves when every one has proved that nothing is left.
//! 5. **Status.** Workers publish snapshots; the control socket reads them.
//!
//! # Invariants
//!
//! - At most one live child an instance; a new one starts only after the old one's end was proved.
//! - Events of an older generation change nothing.
//! - Each request gets one reply, to its asker, with the id exactly as sent.
//! - A request that was open when a child died is answered with an error and never replayed.
//! - A bad configuration file never stops a running server, and never disturbs another.
//! - Every waiting state has a deadline; every queue, table and retry has a limit.

pub mod cli;
pub mod config;
pub mod control;
pub mod daemon;
pub mod ids;
pub mod instance;
pub mod journal;
pub mod protocol;
pub mod session;
pub mod supervise;
pub mod time;
