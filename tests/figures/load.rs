//! Hosts that keep calling whatever happens, and what became of each of their calls.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::common::{RawHost, Stopwatch, let_pass, say};

/// Hosts at once.
const HOSTS: usize = 8;
/// Calls that each keeps open.
const OPEN_CALLS: usize = 4;
/// How long a host that was refused thinks about it.
const REFUSED_PAUSE: Duration = Duration::from_millis(50);
/// How long a host waits for any answer before its calls count as lost.
const ANSWER_WAIT: Duration = Duration::from_secs(60);

/// What became of the calls of one host, or of all.
#[derive(Debug, Default)]
struct Tally {
    sent: u64,
    results: u64,
    errors: BTreeMap<i64, u64>,
    misrouted: u64,
    /// Second answers that take nothing back.
    doubled: u64,
    /// -31006 for a call whose answer had come: it had begun when the daemon went.
    in_doubt: u64,
    unanswered: u64,
    half_lines: u64,
    dropped: u64,
    /// The first error of each code.
    samples: BTreeMap<i64, String>,
}

/// What hosts saw, and what was left of the processes.
#[derive(Debug)]
pub(super) struct Report {
    total: Tally,
    survivors: u64,
    seconds: f64,
}

/// Has hosts call the servers `names` in turn, each through what `connect` gives, while `disturb` does what it
/// does; that is handed a count of answers so far, and gives the number of processes that were left.
pub(super) fn under_load(
    names: &[&str],
    connect: impl Fn(&str) -> RawHost,
    disturb: impl FnOnce(&dyn Fn() -> u64) -> u64,
) -> Report {
    let (over, answered) = (AtomicBool::new(false), AtomicU64::new(0));
    let watch = Stopwatch::start();
    thread::scope(|scope| {
        let hosts: Vec<_> = (0..HOSTS)
            .map(|number| {
                let mut host = connect(names[number % names.len()]);
                // Before anything is disturbed: a host that is refused its beginning has none.
                host.initialize();
                let (over, answered) = (&over, &answered);
                scope.spawn(move || keep_calling(number, host, over, answered))
            })
            .collect();
        let disturbed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            disturb(&|| answered.load(Ordering::SeqCst))
        }));
        // Also where it failed: nothing waits for hosts that never end.
        over.store(true, Ordering::SeqCst);
        let mut total = Tally::default();
        for host in hosts {
            total.add(host.join().expect("a host does not panic"));
        }
        Report {
            total,
            survivors: disturbed.unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            seconds: watch.elapsed().as_secs_f64(),
        }
    })
}

impl Report {
    /// Prints the figures in one line, which `tests/figures/run` makes a row of.
    pub(super) fn print(&self, what: &str) {
        let Tally {
            sent,
            results,
            errors,
            misrouted,
            doubled,
            in_doubt,
            half_lines,
            dropped,
            ..
        } = &self.total;
        let errors: Vec<String> = errors
            .iter()
            .map(|(code, count)| format!("{count} × {code}"))
            .collect();
        let errors = match errors.is_empty() {
            true => "none".to_owned(),
            false => errors.join(", "),
        };
        say(&format!(
            "FIGURE | {what} | {:.0} s | {sent} | {results} | {errors} | {} | {doubled} | {in_doubt} | {half_lines} \
             | {misrouted} | {dropped} | {} |",
            self.seconds,
            self.total.lost(),
            self.survivors
        ));
    }

    /// Fails unless each call had one answer of its own, by an error only of these codes, and nothing was left.
    #[track_caller]
    pub(super) fn expect_clean(&self, codes: &[i64]) {
        let total = &self.total;
        assert_eq!(total.lost(), 0, "lost: {total:?}");
        for (what, count) in [
            ("doubled", total.doubled),
            ("misrouted", total.misrouted),
            ("hosts dropped", total.dropped),
            ("survivors", self.survivors),
        ] {
            assert_eq!(count, 0, "{what}: {total:?}");
        }
        assert!(
            total.errors.keys().all(|code| codes.contains(code)),
            "only {codes:?} may be: {total:?}"
        );
    }
}

impl Tally {
    /// Calls that never had an answer.
    fn lost(&self) -> u64 {
        self.unanswered
    }

    fn add(&mut self, other: Self) {
        self.sent += other.sent;
        self.results += other.results;
        for (code, sample) in other.samples {
            self.samples.entry(code).or_insert(sample);
        }
        for (code, count) in other.errors {
            *self.errors.entry(code).or_insert(0) += count;
        }
        self.misrouted += other.misrouted;
        self.doubled += other.doubled;
        self.in_doubt += other.in_doubt;
        self.unanswered += other.unanswered;
        self.half_lines += other.half_lines;
        self.dropped += other.dropped;
    }

    fn account(&mut self, calls: &mut Calls, answer: &Value) {
        let id = answer["id"].as_u64().unwrap_or(0);
        let code = answer["error"]["code"].as_i64();
        let Some(text) = calls.open.remove(&id) else {
            match (calls.answered.contains(&id), code) {
                (true, Some(-31006)) => self.in_doubt += 1,
                (true, _) => self.doubled += 1,
                (false, _) => self.misrouted += 1,
            }
            return;
        };
        calls.answered.insert(id);
        match code {
            Some(code) => {
                *self.errors.entry(code).or_insert(0) += 1;
                let sample = || answer["error"].to_string();
                self.samples.entry(code).or_insert_with(sample);
            }
            None if answer["result"]["content"][0]["text"] == text => self.results += 1,
            None => self.misrouted += 1,
        }
    }
}

/// The calls of one host: what each asked for, and which were answered.
#[derive(Debug, Default)]
struct Calls {
    open: BTreeMap<u64, String>,
    answered: BTreeSet<u64>,
}

/// One host that keeps its calls open until it is told to stop, and checks every answer.
fn keep_calling(
    number: usize,
    mut host: RawHost,
    over: &AtomicBool,
    answered: &AtomicU64,
) -> Tally {
    let mut tally = Tally::default();
    let mut calls = Calls::default();
    while !over.load(Ordering::SeqCst) || !calls.open.is_empty() {
        while calls.open.len() < OPEN_CALLS && !over.load(Ordering::SeqCst) {
            let text = format!("host {number} call {}", tally.sent);
            let id = host.start_call("sleep", json!({"ms": tally.sent % 5, "text": text}));
            calls.open.insert(id, text);
            tally.sent += 1;
        }
        let Ok(line) = host.wait_line_within(ANSWER_WAIT, &|line| !line.json["method"].is_string())
        else {
            break;
        };
        if line.json.is_null() {
            tally.half_lines += 1;
            continue;
        }
        tally.account(&mut calls, &line.json);
        if line.json["result"].is_object() {
            answered.fetch_add(1, Ordering::SeqCst);
        } else if line.json["error"]["code"] != -31006 {
            // A host that is told that nobody serves it does not ask again at once.
            let_pass(REFUSED_PAUSE);
        }
    }
    tally.unanswered = calls.open.len() as u64;
    tally.dropped = u64::from(!host.is_running());
    if tally.dropped == 0 && tally.unanswered == 0 {
        // Whatever was on its way to this host has come when a last call is answered.
        let last = host.start_call("sleep", json!({"ms": 0, "text": "last"}));
        calls.open.insert(last, "last".to_owned());
        tally.sent += 1;
        while calls.open.contains_key(&last) {
            match host.wait_line_within(ANSWER_WAIT, &|line| line.json["id"].is_u64()) {
                Ok(line) => tally.account(&mut calls, &line.json),
                Err(_) => break,
            }
        }
        tally.unanswered = calls.open.len() as u64;
    }
    tally
}
