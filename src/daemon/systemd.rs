//! What systemd and the daemon tell each other: the socket that it hands over (sd_listen_fds(3)),
//! readiness, reloads and the end (sd_notify(3)), and the watchdog (sd_watchdog_enabled(3)).
//!
//! Terminals hand the variables of their own unit on, so they count only for the process that they
//! were made for. Notices are sent by a thread of their own: a manager that does not read holds
//! nothing up. The watchdog is fed only by a round trip through the registry, so that it bites when
//! the owner of the state hangs, and not only when the process does.

use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self as std_mpsc, Receiver, SyncSender};
use std::time::Duration;

use nix::sys::socket::{Backlog, UnixAddr, getsockname, listen};
use sd_notify::NotifyState;
use tokio::sync::{Notify, mpsc, oneshot};

use crate::config::environment::Environment;
use crate::control::State;
use crate::supervise::sys::take_inherited;

use super::clock;
use super::registry::Event;

/// The name that mcpd.socket gives its descriptor.
const CONTROL: &str = "control";
/// The first descriptor that a service manager hands over.
const FIRST_LISTENER: RawFd = 3;
/// Notices that may wait to be sent.
const QUEUE: usize = 64;
/// How long the last notices may take.
const LAST_WAIT: Duration = Duration::from_millis(500);
/// How often the status is looked at where no watchdog says how often.
const STATUS_EVERY: Duration = Duration::from_secs(30);
/// Between two looks, however fast servers come and go.
const STATUS_GAP: Duration = Duration::from_millis(250);
/// Servers that are named in a status text.
const NAMED_LIMIT: usize = 5;

/// Whether `environment` was made by systemd for the process `pid`, and not for one of its parents.
pub fn is_main_process(environment: &Environment, pid: u32) -> bool {
    names_process(environment, "SYSTEMD_EXEC_PID", pid)
}

fn names_process(environment: &Environment, variable: &str, pid: u32) -> bool {
    let named = environment.get(variable).and_then(|value| value.to_str());
    named.and_then(|named| named.parse().ok()) == Some(pid)
}

/// The descriptor that is called `control`, if one was handed to the process `pid`.
fn control_descriptor(environment: &Environment, pid: u32) -> Option<RawFd> {
    if !names_process(environment, "LISTEN_PID", pid) {
        return None;
    }
    let count: usize = environment.get("LISTEN_FDS")?.to_str()?.parse().ok()?;
    let mut names = environment.get("LISTEN_FDNAMES")?.to_str()?.split(':');
    let at = names.position(|name| name == CONTROL)?;
    (at < count).then_some(FIRST_LISTENER + RawFd::try_from(at).ok()?)
}

/// How often the watchdog wants to hear from the process `pid`: twice in its time.
fn watchdog_interval(environment: &Environment, pid: u32) -> Option<Duration> {
    if environment.get("WATCHDOG_PID").is_some() && !names_process(environment, "WATCHDOG_PID", pid)
    {
        return None;
    }
    let time = environment.get("WATCHDOG_USEC")?.to_str()?.parse().ok()?;
    let interval = Duration::from_micros(time) / 2;
    (!interval.is_zero()).then_some(interval)
}

/// The listening socket that the service manager made for `path`, if it handed one to the process
/// `pid`: this one, or its warden. To be called once.
///
/// # Errors
/// What was handed over is not open, or is no socket that listens at `path`.
pub(super) fn take_listener(
    environment: &Environment,
    pid: u32,
    path: &Path,
) -> io::Result<Option<OwnedFd>> {
    let Some(descriptor) = control_descriptor(environment, pid) else {
        return Ok(None);
    };
    let listener = take_inherited(descriptor)?;
    nix::fcntl::fcntl(
        &listener,
        nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::FD_CLOEXEC),
    )?;
    let address: UnixAddr = getsockname(std::os::fd::AsRawFd::as_raw_fd(&listener))?;
    if !address.path().is_some_and(|bound| is_same(bound, path)) {
        let bound = address.path().unwrap_or(Path::new("no path")).display();
        let message = format!(
            "the socket of mcpd.socket is at {bound}, not at {}",
            path.display()
        );
        return Err(io::Error::other(message));
    }
    // Whoever connects is shown the process that listened last (SO_PEERCRED, unix(7)): us.
    listen(&listener, Backlog::MAXCONN)?;
    Ok(Some(listener))
}

/// Whether two paths lead to one file: a runtime directory may have more than one name.
fn is_same(one: &Path, other: &Path) -> bool {
    let file = |path: &Path| nix::sys::stat::stat(path).map(|found| (found.st_dev, found.st_ino));
    one == other || file(one).is_ok_and(|found| file(other) == Ok(found))
}

/// One thing that systemd is told.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Notice {
    Ready,
    Reloading,
    Stopping,
    Alive,
    Status(String),
}

impl Notice {
    /// What is sent for it.
    fn states(&self) -> io::Result<Vec<NotifyState<'_>>> {
        Ok(match self {
            Self::Ready => vec![NotifyState::Ready],
            // Without the time, systemd could not tell which reload this is (sd_notify(3)).
            Self::Reloading => {
                vec![NotifyState::Reloading, NotifyState::monotonic_usec_now()?]
            }
            Self::Stopping => vec![NotifyState::Stopping],
            Self::Alive => vec![NotifyState::Watchdog],
            Self::Status(text) => vec![NotifyState::Status(text)],
        })
    }
}

fn send(notices: &[Notice]) -> io::Result<()> {
    let states: Vec<Vec<NotifyState<'_>>> = notices
        .iter()
        .map(Notice::states)
        .collect::<io::Result<_>>()?;
    sd_notify::notify(&states.concat())
}

/// Tells systemd what the daemon does; nobody, where systemd does not run it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notifier {
    notices: Option<SyncSender<Vec<Notice>>>,
    watchdog: Option<Duration>,
}

/// The thread that sends.
#[derive(Debug)]
pub(super) struct NotifierThread {
    ended: Option<Receiver<()>>,
}

impl NotifierThread {
    /// Waits for the last notices. Every [`Notifier`] must be gone.
    pub(super) fn finish(self) {
        if let Some(ended) = self.ended {
            // The sender hangs up, or takes too long: systemd sees the exit anyway.
            ended.recv_timeout(LAST_WAIT).unwrap_or(());
        }
    }
}

impl Notifier {
    /// Begins to talk to systemd, if it runs this process as the main one of a unit.
    pub(super) fn start(environment: &Environment) -> io::Result<(Self, NotifierThread)> {
        let pid = std::process::id();
        let wanted = environment.get_filled("NOTIFY_SOCKET").is_some();
        if !wanted || !is_main_process(environment, pid) {
            return Ok((Self::default(), NotifierThread { ended: None }));
        }
        let (notices, inbox) = std_mpsc::sync_channel::<Vec<Notice>>(QUEUE);
        let (end, ended) = std_mpsc::channel::<()>();
        std::thread::Builder::new()
            .name("mcpd-notify".to_owned())
            .spawn(move || {
                for notices in inbox {
                    if let Err(error) = send(&notices) {
                        tracing::warn!(%error, "systemd cannot be told");
                    }
                }
                drop(end);
            })?;
        let notifier = Self {
            notices: Some(notices),
            watchdog: watchdog_interval(environment, pid),
        };
        Ok((notifier, NotifierThread { ended: Some(ended) }))
    }

    fn tell(&self, notices: Vec<Notice>) {
        if let Some(queue) = &self.notices
            && queue.try_send(notices).is_err()
        {
            // The manager is far behind; a watchdog that is not fed says the rest.
            tracing::warn!("systemd does not listen");
        }
    }

    /// The daemon serves.
    pub(super) fn ready(&self, status: String) {
        self.tell(vec![Notice::Ready, Notice::Status(status)]);
    }

    /// The configuration is read again, until what is returned goes.
    pub(super) fn reloading(&self) -> Reloading {
        self.tell(vec![Notice::Reloading]);
        Reloading(self.clone())
    }

    /// The daemon ends.
    pub(super) fn stopping(&self) {
        let status = Notice::Status("stopping the servers".to_owned());
        self.tell(vec![Notice::Stopping, status]);
    }

    /// Why the daemon cannot run.
    pub(super) fn failed(&self, reason: &str) {
        let first = reason.lines().collect::<Vec<_>>().join(" ");
        self.tell(vec![Notice::Status(first)]);
    }
}

/// A reload that goes on.
#[derive(Debug)]
pub(crate) struct Reloading(Notifier);

impl Drop for Reloading {
    fn drop(&mut self) {
        self.0.tell(vec![Notice::Ready]);
    }
}

/// Tells systemd that the registry lives, and what there is to say, as long as it does.
pub(super) async fn keep_told(
    notifier: Notifier,
    changed: Arc<Notify>,
    registry: mpsc::Sender<Event>,
) {
    if notifier.notices.is_none() {
        return;
    }
    let mut told = String::new();
    loop {
        let interval = notifier.watchdog.unwrap_or(STATUS_EVERY);
        let deadline = clock::sleep_until(Some(clock::now() + interval));
        tokio::select! {
            () = deadline => {}
            () = changed.notified() => {}
        }
        let (answer, heard) = oneshot::channel();
        if registry.send(Event::Pulse(answer)).await.is_err() {
            return;
        }
        let Ok(status) = heard.await else { return };
        let mut notices = Vec::new();
        if notifier.watchdog.is_some() {
            notices.push(Notice::Alive);
        }
        if status != told {
            told.clone_from(&status);
            notices.push(Notice::Status(status));
        }
        if !notices.is_empty() {
            notifier.tell(notices);
        }
        clock::sleep_until(Some(clock::now() + STATUS_GAP)).await;
    }
}

/// All servers in one line, those in trouble by name.
pub(super) fn render_status(servers: &[(&str, State)], hosts: usize) -> String {
    if servers.is_empty() {
        return "no servers are configured".to_owned();
    }
    let count = |state| servers.iter().filter(|(_, found)| *found == state).count();
    let plural = |number: usize, word: &str| match number {
        1 => format!("1 {word}"),
        number => format!("{number} {word}s"),
    };
    let mut parts = vec![format!("{} running", count(State::Running))];
    for (state, word) in [
        (State::Starting, "starting"),
        (State::Stopping, "stopping"),
        (State::Stopped, "stopped"),
    ] {
        let number = count(state);
        if number > 0 {
            parts.push(format!("{number} {word}"));
        }
    }
    for (state, word) in [(State::Backoff, "in backoff"), (State::Failed, "failed")] {
        let named: Vec<&str> = servers
            .iter()
            .filter(|(_, found)| *found == state)
            .map(|(name, _)| *name)
            .collect();
        if !named.is_empty() {
            let more = if named.len() > NAMED_LIMIT {
                ", …"
            } else {
                ""
            };
            let names = named[..named.len().min(NAMED_LIMIT)].join(", ");
            parts.push(format!("{} {word} ({names}{more})", named.len()));
        }
    }
    format!(
        "{}: {}; {}",
        plural(servers.len(), "server"),
        parts.join(", "),
        plural(hosts, "host")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(pairs: &[(&str, &str)]) -> Environment {
        pairs.iter().copied().collect()
    }

    #[test]
    fn only_the_process_that_they_name_heeds_the_variables() {
        let of = |pid| environment(&[("SYSTEMD_EXEC_PID", pid), ("NOTIFY_SOCKET", "/n")]);
        assert!(is_main_process(&of("7"), 7));
        for pid in ["8", "", "7x", "-7"] {
            assert!(!is_main_process(&of(pid), 7), "{pid}");
        }
        // As a terminal has them that is a service itself.
        let inherited = environment(&[("INVOCATION_ID", "x"), ("NOTIFY_SOCKET", "/n")]);
        assert!(!is_main_process(&inherited, 7));
    }

    #[test]
    fn the_control_descriptor_goes_by_its_name() {
        let check = |pid, count, names, expected| {
            let environment = environment(&[
                ("LISTEN_PID", pid),
                ("LISTEN_FDS", count),
                ("LISTEN_FDNAMES", names),
            ]);
            let found = control_descriptor(&environment, 7);
            assert_eq!(found, expected, "{pid} {count} {names}");
        };
        check("7", "1", "control", Some(3));
        check("7", "3", "stored:x:control", Some(5));
        check("8", "1", "control", None);
        check("7", "1", "x:control", None);
        check("7", "1", "unknown", None);
        check("7", "many", "control", None);
        check("", "", "", None);
        assert_eq!(control_descriptor(&environment(&[]), 7), None);
    }

    #[test]
    fn the_watchdog_hears_from_us_twice_in_its_time() {
        let check = |pairs: &[(&str, &str)], expected| {
            assert_eq!(watchdog_interval(&environment(pairs), 7), expected);
        };
        let half = Some(Duration::from_secs(15));
        check(&[("WATCHDOG_USEC", "30000000")], half);
        check(
            &[("WATCHDOG_USEC", "30000000"), ("WATCHDOG_PID", "7")],
            half,
        );
        check(
            &[("WATCHDOG_USEC", "30000000"), ("WATCHDOG_PID", "8")],
            None,
        );
        check(&[("WATCHDOG_USEC", "0")], None);
        check(&[("WATCHDOG_USEC", "soon")], None);
        check(&[], None);
    }

    #[test]
    fn notices_have_the_words_of_systemd() {
        let check = |notice: Notice, expected: &[&str]| {
            let said: Vec<String> = notice
                .states()
                .unwrap()
                .iter()
                .map(ToString::to_string)
                .collect();
            assert_eq!(said, expected);
        };
        check(Notice::Ready, &["READY=1"]);
        check(Notice::Stopping, &["STOPPING=1"]);
        check(Notice::Alive, &["WATCHDOG=1"]);
        check(Notice::Status("fine".to_owned()), &["STATUS=fine"]);
        let said = Notice::Reloading;
        let said = said.states().unwrap();
        assert_eq!(said[0].to_string(), "RELOADING=1");
        let time = said[1].to_string();
        let time = time.strip_prefix("MONOTONIC_USEC=").unwrap();
        assert!(time.parse::<u64>().unwrap() > 0);
    }

    /// What is sent in a minute to a watchdog of ten seconds, by a registry that answers the first
    /// `answers` times.
    async fn notices_of_a_minute(answers: usize) -> Vec<Notice> {
        let (notices, sent) = std_mpsc::sync_channel(QUEUE);
        let notifier = Notifier {
            notices: Some(notices),
            watchdog: Some(Duration::from_secs(5)),
        };
        let (registry, mut events) = mpsc::channel(1);
        let told = tokio::spawn(keep_told(notifier, Arc::default(), registry));
        let mut unanswered = Vec::new();
        let mut answers = answers;
        let asked = async {
            while let Some(Event::Pulse(answer)) = events.recv().await {
                if answers > 0 {
                    answers -= 1;
                    answer.send("fine".to_owned()).unwrap();
                } else {
                    unanswered.push(answer);
                }
            }
        };
        let minute = Duration::from_secs(60);
        assert!(tokio::time::timeout(minute, asked).await.is_err());
        told.abort();
        sent.try_iter().flatten().collect()
    }

    #[tokio::test(start_paused = true)]
    async fn the_watchdog_is_fed_only_while_the_registry_answers() {
        let alive =
            |notices: &[Notice]| notices.iter().filter(|one| **one == Notice::Alive).count();
        assert!(alive(&notices_of_a_minute(usize::MAX).await) > 10);
        assert_eq!(alive(&notices_of_a_minute(2).await), 2);
        assert_eq!(notices_of_a_minute(0).await, []);
    }

    #[tokio::test(start_paused = true)]
    async fn a_status_is_told_when_it_changes() {
        let status = Notice::Status("fine".to_owned());
        let told = notices_of_a_minute(usize::MAX).await;
        assert_eq!(told.iter().filter(|one| **one == status).count(), 1);
    }

    #[test]
    fn the_status_counts_servers_and_names_those_in_trouble() {
        let check = |servers: &[(&str, State)], hosts, expected| {
            assert_eq!(render_status(servers, hosts), expected);
        };
        check(&[], 0, "no servers are configured");
        check(&[("a", State::Running)], 1, "1 server: 1 running; 1 host");
        check(
            &[
                ("a", State::Running),
                ("b", State::Failed),
                ("c", State::Backoff),
                ("d", State::Starting),
                ("e", State::Failed),
                ("f", State::Stopped),
            ],
            3,
            "6 servers: 1 running, 1 starting, 1 stopped, 1 in backoff (c), 2 failed (b, e); 3 hosts",
        );
        let many: Vec<(&str, State)> = vec![("x", State::Failed); 7];
        let said = render_status(&many, 0);
        assert!(
            said.ends_with("7 failed (x, x, x, x, x, …); 0 hosts"),
            "{said}"
        );
    }
}
