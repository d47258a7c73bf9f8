//! What passes between the two cores of an instance, and what does not.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::config::diagnostics::SourceText;
use crate::config::draft::Draft;
use crate::config::fingerprint::HashKey;
use crate::config::parse::{Surroundings, parse_server};
use crate::config::spec::ServerName;
use crate::session::Pool;
use crate::supervise::{ExitStatus, Mode};

const NOW: Moment = Moment::ZERO;

fn print(text: &str) -> Option<Fingerprint> {
    Some(Fingerprint::of(&HashKey([0; 32]), text.as_bytes()))
}

fn setting(text: &str) -> Setting {
    let surroundings = Surroundings {
        home: Path::new("/h"),
        is_program: &|_| true,
    };
    let name = ServerName::parse("a").unwrap();
    let source = SourceText::new(Path::new("/c/servers.d/a.toml"), text);
    let spec = parse_server(&name, &source, &Draft::default(), surroundings).unwrap();
    Setting {
        spec: Some(Arc::new(spec)),
        verdict: Verdict::Ok,
        ..Setting::unknown(PathBuf::new())
    }
}

/// An instance that has begun with the configuration `x`.
fn begun() -> Instance {
    let setting = setting("command = \"x\"\n");
    let policy = setting.policy();
    let mux = Mux::new(mux_config("a", &policy), Pool::new(1 << 20));
    let supervisor = Supervisor::new(policy, 1);
    let mut instance = Instance::new("a", setting, print("x"), (mux, supervisor));
    instance.begin(NOW);
    instance
}

/// Performs everything; what was to be put into words is put.
fn settle(instance: &mut Instance, now: Moment) -> Vec<Action> {
    let mut seen = Vec::new();
    while let Some(action) = instance.poll_action(now) {
        if let Action::Explain(matter) = &action {
            instance.explain(matter.clone(), Words::default(), now);
        }
        seen.push(action);
    }
    seen
}

/// An instance whose first run was asked for.
fn spawning() -> (Instance, Generation) {
    let mut instance = begun();
    settle(&mut instance, NOW);
    instance.turn_asked(TurnId(1));
    instance.handle_turn_came(TurnId(1), NOW);
    settle(&mut instance, NOW);
    let generation = instance.supervisor().generation();
    assert!(instance.is_running(generation));
    (instance, generation)
}

#[test]
fn a_turn_that_was_given_back_starts_nothing() {
    let mut instance = begun();
    settle(&mut instance, NOW);
    instance.turn_asked(TurnId(1));
    instance.handle_order(Order::Stop(Mode::Polite), NOW);
    assert!(settle(&mut instance, NOW).contains(&Action::EndTurn));
    instance.handle_order(Order::Start, NOW);
    settle(&mut instance, NOW);
    instance.turn_asked(TurnId(2));
    instance.handle_turn_came(TurnId(1), NOW);
    assert_eq!(settle(&mut instance, NOW), []);
    instance.handle_turn_came(TurnId(2), NOW);
    let seen = settle(&mut instance, NOW);
    let is_spawn = |action: &Action| matches!(action, Action::Spawn { .. });
    assert!(seen.iter().any(is_spawn), "{seen:?}");
}

#[test]
fn news_of_a_run_that_is_forgotten_change_nothing() {
    let (mut instance, generation) = spawning();
    let stranger = Generation(generation.0 + 1);
    let exited = || RunEvent::Exited(ExitStatus::Code(1));
    instance.handle_run(stranger, exited(), NOW);
    assert_eq!(settle(&mut instance, NOW), []);
    instance.handle_run(generation, RunEvent::Spawned { pid: 5 }, NOW);
    instance.handle_run(generation, exited(), NOW);
    instance.handle_run(generation, RunEvent::StdoutEnded, NOW);
    assert!(settle(&mut instance, NOW).contains(&Action::Verify));
    instance.handle_run(generation, RunEvent::Left(Vec::new()), NOW);
    assert!(settle(&mut instance, NOW).contains(&Action::ClosePipes));
    assert!(!instance.is_running(generation));
    instance.handle_run(generation, exited(), NOW);
    assert_eq!(settle(&mut instance, NOW), []);
}

#[test]
fn who_could_not_be_looked_at_is_not_gone() {
    let (mut instance, generation) = spawning();
    instance.handle_run(generation, RunEvent::Spawned { pid: 5 }, NOW);
    instance.handle_run(generation, RunEvent::Exited(ExitStatus::Code(1)), NOW);
    settle(&mut instance, NOW);
    instance.handle_run(generation, RunEvent::Unseen, NOW);
    assert!(!settle(&mut instance, NOW).contains(&Action::Reap));
    assert!(instance.is_running(generation));
}

#[test]
fn the_supervisor_hears_first_that_time_has_passed() {
    let (mut instance, generation) = spawning();
    instance.handle_run(generation, RunEvent::Spawned { pid: 5 }, NOW);
    instance.handle_run(generation, RunEvent::Executed { remembered: None }, NOW);
    settle(&mut instance, NOW);
    let late = NOW + Duration::from_secs(600);
    instance.handle_timeout(late);
    let seen = settle(&mut instance, late);
    let of_start = seen
        .iter()
        .position(|it| matches!(it, Action::Changed { .. }));
    let of_wait = seen
        .iter()
        .position(|it| *it == Action::Explain(Matter::Waits));
    assert!(of_start.is_some(), "{seen:?}");
    assert!(of_wait.is_none_or(|at| Some(at) > of_start), "{seen:?}");
    assert!(instance.poll_timeout().is_none_or(|due| due > late));
}

#[test]
fn what_was_decided_under_a_configuration_is_not_remembered_of_another() {
    let (mut instance, _) = spawning();
    let edited = setting("command = \"y\"\n");
    instance.configure(edited, print("y"), Applied::Restart, NOW);
    let seen = settle(&mut instance, NOW);
    assert!(seen.contains(&Action::Recall(print("y").unwrap())));
    // The child that is on its way out was made from another.
    instance.keep_again();
    assert_eq!(settle(&mut instance, NOW), []);
    assert!(!instance.recall(print("x").unwrap(), None));
    assert!(instance.is_cold());
    assert!(instance.recall(print("y").unwrap(), None));
    assert!(!instance.is_cold());
}

#[test]
fn a_stop_takes_nothing_from_what_is_disabled() {
    let mut instance = begun();
    let disabled = setting("command = \"x\"\nenabled = false\n");
    instance.configure(disabled, print("x"), Applied::Live, NOW);
    settle(&mut instance, NOW);
    instance.handle_order(Order::Stop(Mode::Polite), NOW);
    instance.handle_order(Order::Start, NOW);
    settle(&mut instance, NOW);
    let status = instance.supervisor().status();
    assert_eq!(status.substate, supervise::Substate::Disabled);
    assert!(!instance.is_finished());
    instance.handle_order(Order::Shutdown(Mode::Polite), NOW);
    settle(&mut instance, NOW);
    assert!(instance.is_finished());
}
