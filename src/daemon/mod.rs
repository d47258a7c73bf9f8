//! The daemon: owns every descriptor, every child and every task, and ends them in order.
//!
//! [`run`] lays the ground (folders, lock, logs, the spawner), starts the [`registry`] and stays
//! until it ends. Everything happens on one thread but three things: the spawner, the log writer
//! and looks at `/proc`, none of which may hold up a message.

mod calls;
mod catalog;
mod child_output;
mod clock;
mod command_values;
mod containment;
mod descriptors;
mod eras;
mod errand;
mod facts;
#[cfg(feature = "test-fakes")]
mod faults;
mod handover;
mod hangup;
mod host;
mod host_stream;
mod journal;
mod last_resort;
mod launch;
mod listen;
mod log;
mod named;
mod port;
mod reader;
mod registry;
mod shared;
mod socket;
mod state_record;
mod stderr;
mod systemd;
mod viewer;
pub mod warden;
mod worker;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::sys::stat::{Mode as FileMode, umask};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::runtime;
use tokio::signal::unix::{self as tokio_signal, SignalKind, signal};
use tokio::sync::{RwLock, mpsc};

use crate::config::dirs::{self, DirectoryError};
use crate::config::environment::{Base, Environment, User};
use crate::config::hash_key::load_hash_key;
use crate::config::load::{self, LoadRequest};
use crate::config::paths::{PathError, Paths};
use crate::session::Pool;
use crate::supervise::hierarchy::Containment;
use crate::supervise::records::{Records, Swept, sweep_dead};
use crate::supervise::spawn::Spawner;

use calls::Calls;
use catalog::Catalog;
use command_values::CommandValues;
use facts::DaemonFacts;
use log::Logs;
use registry::{Event, Registry};
use shared::Shared;
use socket::SocketLock;
use systemd::Notifier;

pub use journal::is_stderr_the_journal;
pub use socket::SocketError;
pub use systemd::is_main_process;

/// Events that may wait for the registry.
const INBOX: usize = 64;
/// How long blocking work may hold up the end of the process.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// Where runs are recorded, in the state folder.
const RUNS_DIR: &str = "runs";
/// Rounds of the last sweep, some two seconds.
const LAST_ROUNDS: usize = 100;

/// How a daemon is to run.
#[derive(Debug)]
pub struct DaemonOptions {
    pub paths: Paths,
    /// The environment that it was started with.
    pub environment: Environment,
    pub user: User,
    /// Who started it, for `status`.
    pub started_by: String,
    /// Where the PATH of its environment came from, for `status`.
    pub path_source: String,
    /// Ends by itself when no client has been there for so long.
    pub idle_exit: Option<Duration>,
    /// How surely it is to hold what comes from its servers.
    pub containment: Containment,
    /// The pid of the process that ends what this daemon leaves, if there is one.
    pub warden: Option<u32>,
}

/// Why a daemon cannot run.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    #[error(transparent)]
    Paths(#[from] PathError),
    #[error(transparent)]
    Socket(#[from] SocketError),
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    #[error("cannot {action}")]
    System {
        action: &'static str,
        source: io::Error,
    },
    #[error("the configuration of the daemon cannot be used:\n{0}")]
    Config(String),
}

fn system(action: &'static str) -> impl FnOnce(io::Error) -> DaemonError {
    move |source| DaemonError::System { action, source }
}

/// A host that has handed over its descriptors holds three of ours, a server some eight: many would
/// not fit into the soft limit that a login session has. What is started keeps that one.
fn raise_file_limit() {
    let limits = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limits.maximum,
        ..limits
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "the limit for open descriptors cannot be raised");
    }
}

/// Runs a daemon until it is told to end; `ready` is called once it can be reached.
///
/// # Errors
/// It could not begin. Once it has begun it always ends well.
pub fn run(options: DaemonOptions, ready: impl FnOnce()) -> Result<(), DaemonError> {
    let _journal = journal::start().map_err(system("start the log"))?;
    // Before anything else is opened, so that what is handed over cannot be taken for our own.
    let started = options.warden.unwrap_or_else(std::process::id);
    let handed = systemd::take_listener(&options.environment, started, options.paths.socket()?);
    let (notifier, notifier_thread) =
        Notifier::start(&options.environment).map_err(system("start to notify"))?;
    let given = Given {
        listener: handed.unwrap_or_else(|error| {
            tracing::warn!(%error, "the socket that was handed over cannot be used");
            None
        }),
        notifier: notifier.clone(),
    };
    let inherited = umask(FileMode::from_bits_truncate(0o077));
    let spawner = Spawner::start().map_err(system("start the spawner"))?;
    raise_file_limit();
    last_resort::prepare(options.paths.state_dir(), &spawner);
    let everything = spawner.clone();
    if let Some(warden) = options.warden {
        warden::watch(warden, || {
            last_resort::crash("its warden was killed", Signal::SIGKILL);
        })
        .map_err(system("watch the warden"))?;
    }
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(system("start the runtime"))?;
    let begun = runtime.block_on(async {
        let signals = Signals::listen().map_err(system("listen for signals"))?;
        Daemon::begin(options, given, spawner, inherited.bits(), signals).await
    });
    let ended = begun.map(|daemon| {
        let Daemon {
            registry,
            log_thread,
            lock,
            ..
        } = daemon;
        ready();
        notifier.ready(registry.summary());
        runtime.block_on(registry.run());
        (log_thread, lock)
    });
    // What was not a server's, such as an agent that a command of a value has started.
    match everything.end_everything(LAST_ROUNDS) {
        Ok(left) if left.is_empty() => everything.finish_records(),
        left => tracing::warn!(?left, "not all has ended"),
    }
    if let Err(error) = &ended {
        notifier.failed(&chain(error));
    }
    // Tasks hold the last senders of the log, and of notices.
    runtime.shutdown_timeout(LAST_WAIT);
    drop(notifier);
    notifier_thread.finish();
    let (log_thread, lock) = ended?;
    log_thread.finish();
    drop(lock);
    Ok(())
}

/// What came with the start, from a service manager.
struct Given {
    listener: Option<OwnedFd>,
    notifier: Notifier,
}

/// Everything that a running daemon consists of.
struct Daemon {
    registry: Registry,
    log_thread: log::LogThread,
    lock: SocketLock,
}

impl Daemon {
    async fn begin(
        options: DaemonOptions,
        given: Given,
        spawner: Spawner,
        umask: u32,
        signals: Signals,
    ) -> Result<Self, DaemonError> {
        let DaemonOptions {
            paths,
            environment,
            user,
            started_by,
            path_source,
            idle_exit,
            containment,
            warden,
        } = options;
        let socket_path = paths.socket()?.to_owned();
        let lock = take_place(&paths, &user, &socket_path)?;
        let mut warnings = Vec::new();
        // With the lock held, so that no leaf of a daemon that lives is taken for a leftover.
        let containment = containment::establish(containment, &spawner, &mut warnings);
        let seed = u64::from_ne_bytes(random().map_err(system("read randomness"))?);
        let run_id = format!("{seed:016x}");
        warnings.extend(take_over(&paths, &socket_path, &run_id, &spawner));
        log_warnings(&warnings);
        let catalog = Catalog::open(paths.catalog_dir(), user.uid);
        let (base, path_source) = base(&paths, environment, user, path_source)?;
        let hash_key =
            load_hash_key(&paths.hash_key_file()).map_err(system("keep a key for hashes"))?;
        let loaded = load::load(LoadRequest {
            config_dir: paths.config_dir(),
            base: &base,
            hash_key: Some(&hash_key),
            last_daemon_file: None,
        });
        let limit = loaded.daemon.config.memory_limit_bytes;
        let (logs, log_thread) =
            Logs::start(&paths.logs_dir()).map_err(system("start the log writer"))?;
        let (listener, socket_file) = match given.listener {
            Some(listener) => (socket::adopt(listener, &socket_path)?, None),
            None => {
                let (listener, file) = socket::bind(&socket_path)?;
                (listener, Some(file))
            }
        };
        let (sender, events) = mpsc::channel(INBOX);
        let (turns, turn_events) = mpsc::unbounded_channel();
        tokio::spawn(reap_orphans(spawner.clone()));
        let secret = random().map_err(system("read randomness"))?;
        let shared = Arc::new(Shared {
            launcher: Arc::new(spawner),
            base,
            hash_key,
            eras: Arc::new(eras::Eras::load(paths.eras_file())),
            command_values: CommandValues::default(),
            calls: Calls::default(),
            catalog,
            pool: Pool::new(limit),
            logs,
            umask,
            run_id,
            seed: AtomicU64::new(seed),
            secret,
            host_keys: AtomicU64::new(0),
            registry: sender.clone(),
            turns,
            turn_ids: AtomicU64::new(0),
            serving: RwLock::new(()),
            states_changed: Arc::default(),
            states_to_record: Arc::default(),
        });
        let accepting = shared.clone();
        let listening = tokio::spawn(listen::accept_each(listener, move |stream| {
            host::serve_control(stream, accepting.clone())
        }));
        let facts = Arc::new(DaemonFacts {
            started_at: clock::wall(),
            started: clock::now(),
            started_by,
            path_source,
            config_dir: paths.config_dir().to_owned(),
            socket: socket_path,
            state_dir: paths.state_dir().to_owned(),
            containment,
            warden,
            warnings,
            listener: Mutex::new(Some((listening.abort_handle(), socket_file))),
            notifier: given.notifier.clone(),
        });
        tokio::spawn(systemd::keep_told(
            given.notifier,
            shared.states_changed.clone(),
            sender.clone(),
        ));
        state_record::forget_end(paths.state_dir());
        tokio::spawn(state_record::keep(
            paths.state_dir().to_owned(),
            shared.states_to_record.clone(),
            sender.clone(),
        ));
        signals.forward(&sender);
        let mut registry = Registry::new(shared, facts, paths, (events, turn_events), idle_exit);
        registry.apply_first(loaded).await;
        Ok(Self {
            registry,
            log_thread,
            lock,
        })
    }
}

/// Reaps what the daemon adopts, as long as it runs.
async fn reap_orphans(spawner: Spawner) {
    if let Err(error) = spawner.reap_on_signal().await {
        tracing::error!(%error, "orphans are not reaped any more");
    }
}

/// Makes the folders, and takes the right to be the daemon of `socket`.
fn take_place(paths: &Paths, user: &User, socket: &Path) -> Result<SocketLock, DaemonError> {
    dirs::prepare_runtime_dir(paths, user)?;
    dirs::prepare_state_dir(paths, user)?;
    dirs::make_private(&paths.logs_dir(), user.uid)?;
    let owner = format!(
        "pid {}, configuration {}",
        std::process::id(),
        paths.config_dir().display()
    );
    Ok(SocketLock::take(socket, &owner)?)
}

/// Ends what an earlier daemon of this socket left, before anything is spawned, and has this one's
/// runs recorded. Gives what the user should know.
fn take_over(paths: &Paths, socket: &Path, run_id: &str, spawner: &Spawner) -> Vec<String> {
    let runs = paths.state_dir().join(RUNS_DIR);
    let owner = socket.to_string_lossy();
    let Swept {
        ended,
        left,
        strangers,
        errors,
    } = sweep_dead(&runs, &owner);
    if !ended.is_empty() {
        tracing::warn!(pids = ?ended, "ended what an earlier daemon left");
    }
    for stranger in strangers {
        tracing::warn!("left alone: {stranger}");
    }
    for error in errors {
        tracing::warn!("what an earlier daemon left cannot be looked for: {error}");
    }
    match Records::begin(&runs, run_id, &owner) {
        Ok(records) => spawner.record_in(records),
        Err(error) => tracing::warn!(%error, folder = ?runs, "runs cannot be recorded"),
    }
    match left.is_empty() {
        true => Vec::new(),
        false => vec![format!(
            "processes of an earlier daemon cannot be ended: {left:?}"
        )],
    }
}

fn log_warnings(warnings: &[String]) {
    for warning in warnings {
        tracing::warn!("{warning}");
    }
}

/// What children are built from, and where its PATH came from.
fn base(
    paths: &Paths,
    environment: Environment,
    user: User,
    path_source: String,
) -> Result<(Base, String), DaemonError> {
    let plain = Base::new(environment.clone(), user.clone(), None);
    let file = load::load_daemon_file(paths.config_dir(), &plain).map_err(|errors| {
        let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
        DaemonError::Config(lines.join("\n"))
    })?;
    match file.and_then(|file| file.config.path) {
        Some(path) => {
            let base = Base::new(environment, user, Some(OsString::from(path)));
            Ok((base, "mcpd.toml".to_owned()))
        }
        None => Ok((plain, path_source)),
    }
}

/// The signals that are the registry's to answer.
struct Signals {
    terminate: tokio_signal::Signal,
    interrupt: tokio_signal::Signal,
    hangup: tokio_signal::Signal,
}

impl Signals {
    /// From here on they wait to be answered, and end nobody. Only then they are let in: whoever
    /// started us may have blocked them, as the warden does so that none comes too early.
    fn listen() -> io::Result<Self> {
        let signals = Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        };
        sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)?;
        Ok(signals)
    }

    /// Turns them into events of the registry.
    fn forward(self, sender: &mpsc::Sender<Event>) {
        forward(self.terminate, sender, || Event::Terminate);
        forward(self.interrupt, sender, || Event::Terminate);
        forward(self.hangup, sender, || Event::Reload);
    }
}

fn forward(mut signal: tokio_signal::Signal, sender: &mpsc::Sender<Event>, event: fn() -> Event) {
    let sender = sender.clone();
    tokio::spawn(async move {
        while signal.recv().await.is_some() {
            if sender.send(event()).await.is_err() {
                return;
            }
        }
    });
}

/// Bytes from the kernel (random(4)).
fn random<const COUNT: usize>() -> io::Result<[u8; COUNT]> {
    let mut bytes = [0; COUNT];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// An error and its causes in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
