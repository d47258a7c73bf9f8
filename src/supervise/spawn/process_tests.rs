//! Real processes, real signals: what a child may do to stay, and that nothing of it does.
//!
//! Each test runs in a process of its own (see [`rig`]) and ends with the same check: nobody
//! carries the tag, no child is left, dead or alive, and as many descriptors are open as before.

mod contained;
mod recycled;
mod rig;

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::Spawner;
use crate::config::spec::Policy;
use crate::ids::Generation;
use crate::supervise::process_tree::{Leader, measure, read_process};
use crate::supervise::*;
use rig::{PATIENCE, World, alone, quick};

const BY_STDIN: Option<Substate> = Some(Substate::StopStdin);
const BY_TERM: Option<Substate> = Some(Substate::StopSigterm);
const BY_KILL: Option<Substate> = Some(Substate::StopSigkill);

/// How a script ends when it is stopped.
async fn check(world: &World, script: &str, expected: rig::EndedRunSummary) {
    let ended = world.rig(script).run_and_stop(Mode::Polite).await;
    assert_eq!(ended, expected, "{script}");
}

#[test]
fn a_polite_server_ends_with_its_stdin() {
    alone("a_polite_server_ends_with_its_stdin", |world| async move {
        check(
            &world,
            "echo ready; cat >/dev/null",
            (RunResult::Success, BY_STDIN),
        )
        .await;
    });
}

#[test]
fn work_after_the_end_of_stdin_is_let_finish() {
    alone(
        "work_after_the_end_of_stdin_is_let_finish",
        |world| async move {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("flushed");
            let script = format!(
                "echo ready; cat >/dev/null; sleep 0.2; echo x >{}",
                file.display()
            );
            check(&world, &script, (RunResult::Success, BY_STDIN)).await;
            assert!(file.exists());
        },
    );
}

/// Fault 18.
#[test]
fn a_server_that_ignores_the_end_of_stdin_is_terminated() {
    alone(
        "a_server_that_ignores_the_end_of_stdin_is_terminated",
        |world| async move {
            check(
                &world,
                "echo ready; exec sleep 1000",
                (RunResult::Success, BY_TERM),
            )
            .await;
        },
    );
}

/// Fault 19.
#[test]
fn a_server_that_ignores_everything_is_killed() {
    for_both_ways(
        "a_server_that_ignores_everything_is_killed",
        |world| async move {
            let script = "trap '' TERM INT; echo ready; while :; do sleep 1000; done";
            check(&world, script, (RunResult::Signal, BY_KILL)).await;
        },
    );
}

/// The process runs the test both ways by itself: one after the other, in one process.
fn for_both_ways<B: Future<Output = ()>>(name: &str, body: impl Fn(World) -> B) {
    alone(name, async |world: World| {
        body(world.clone()).await;
        let spawner = Spawner::start_with(GroupSignal::ByNumber).unwrap();
        body(World { spawner, ..world }).await;
    });
}

#[test]
fn three_levels_of_launchers_go_with_the_first() {
    for_both_ways(
        "three_levels_of_launchers_go_with_the_first",
        |world| async move {
            let script =
                "sh -c 'sh -c \"sleep 1000\" & wait' & echo ready; trap 'exit 0' TERM; wait";
            check(&world, script, (RunResult::Success, BY_TERM)).await;
        },
    );
}

/// Fault 20.
#[test]
fn a_child_that_outlives_its_leader_is_killed() {
    for_both_ways(
        "a_child_that_outlives_its_leader_is_killed",
        |world| async move {
            let script = "(trap '' TERM; sleep 1000) & trap 'exit 0' TERM; echo ready; wait";
            let mut rig = world.rig(script);
            let began = Instant::now();
            assert_eq!(
                rig.run_and_stop(Mode::Polite).await,
                (RunResult::Success, BY_TERM)
            );
            assert!(
                began.elapsed() >= quick().stop_timeout * 2,
                "it had its time"
            );
        },
    );
}

/// Leaves the group and the session, and is nobody's child but ours.
const ESCAPEE: &str = "setsid sh -c '(trap \"\" TERM HUP; sleep 1000) & exit'; ";

/// Fault 21.
#[test]
fn an_escapee_is_found_by_its_tag() {
    for_both_ways("an_escapee_is_found_by_its_tag", |world| async move {
        let script = format!("{ESCAPEE} echo ready; cat >/dev/null");
        check(&world, &script, (RunResult::Success, BY_STDIN)).await;
    });
}

/// Fault 22.
#[test]
fn an_escapee_that_holds_stdout_delays_nobody() {
    alone(
        "an_escapee_that_holds_stdout_delays_nobody",
        |world| async move {
            let mut rig = world.rig(&format!("{ESCAPEE} echo ready; exit 3"));
            rig.start();
            rig.until(Substate::Verify).await;
            let exited = Instant::now();
            rig.until(Substate::AutoRestart).await;
            assert_eq!(rig.last(), (RunResult::ExitCode, None));
            // TERM does nothing to it, KILL does: one `stop_timeout`, not the escapee's life.
            assert!(exited.elapsed() < Duration::from_secs(20));
            rig.stop(Mode::Polite);
        },
    );
}

/// Fault 23.
#[test]
fn a_crowd_that_grows_while_it_is_killed_is_gone_in_the_end() {
    alone(
        "a_crowd_that_grows_while_it_is_killed_is_gone_in_the_end",
        |world| async move {
            let script =
                "trap '' TERM; echo ready; while :; do setsid sleep 1000 & sleep 0.005; done";
            let ended = world.rig(script).run_and_stop(Mode::Kill).await;
            assert_eq!(ended, (RunResult::Success, BY_KILL));
        },
    );
}

/// Fault 24.
#[test]
fn a_stopped_process_hears_the_signal() {
    alone("a_stopped_process_hears_the_signal", |world| async move {
        check(
            &world,
            "echo ready; kill -STOP $$",
            (RunResult::Success, BY_TERM),
        )
        .await;
    });
}

/// Fault 16.
#[test]
fn stdout_that_closes_alone_ends_the_run() {
    alone(
        "stdout_that_closes_alone_ends_the_run",
        |world| async move {
            let mut rig = world.rig("echo ready; exec >&-; exec sleep 1000");
            rig.start();
            rig.until(Substate::AutoRestart).await;
            assert_eq!(rig.last().0, RunResult::Protocol);
            let gone = |action: &Action| matches!(action, Action::ChildGone { .. });
            assert_eq!(rig.done.iter().filter(|it| gone(it)).count(), 1);
            rig.stop(Mode::Polite);
        },
    );
}

/// Fault 9.
#[test]
fn a_start_that_takes_too_long_names_its_limit() {
    alone(
        "a_start_that_takes_too_long_names_its_limit",
        |world| async move {
            let mut rig = world.rig("exec sleep 1000");
            rig.set_policy(Policy {
                start_timeout: Duration::from_millis(300),
                ..quick()
            });
            rig.start();
            rig.until(Substate::AutoRestart).await;
            let run = rig.supervisor.status().last_runs.remove(0);
            assert_eq!(run.result, RunResult::Timeout);
            assert_eq!(
                run.message,
                "start_timeout (0.3 s) passed before it had answered `initialize`"
            );
            rig.stop(Mode::Polite);
        },
    );
}

#[test]
fn ends_are_told_apart() {
    alone("ends_are_told_apart", |world| async move {
        for (script, status) in [
            ("exit 0", ExitStatus::Code(0)),
            ("exit 7", ExitStatus::Code(7)),
            ("no-such-program-here", ExitStatus::Code(127)),
            (
                "kill -KILL $$",
                ExitStatus::Signal {
                    number: 9,
                    core_dumped: false,
                },
            ),
        ] {
            assert_eq!(world.run_to_end(world.shell(script)).await.1, status);
        }
    });
}

/// What is said of a plan that cannot be executed.
async fn check_refused(world: &World, change: impl FnOnce(&mut LaunchPlan), said: &str) {
    let mut plan = world.shell("true");
    change(&mut plan);
    let mut rig = world.rig("true");
    rig.replace_plan(plan);
    rig.start();
    rig.until(Substate::ExecFailed).await;
    let status = rig.supervisor.status();
    assert_eq!(status.state, State::Failed);
    assert_eq!(status.message, said);
    assert_eq!(status.restarts, 0, "no retry");
}

/// Faults 2 and 3.
#[test]
fn what_cannot_be_executed_fails_at_once_in_its_own_words() {
    alone(
        "what_cannot_be_executed_fails_at_once_in_its_own_words",
        |world| async move {
            let folder = tempfile::tempdir().unwrap();
            let file = |name: &str, text: &str, mode: u32| {
                use std::os::unix::fs::PermissionsExt;
                let path = folder.path().join(name);
                std::fs::write(&path, text).unwrap();
                std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
                path
            };
            let text = file("text", "hello\n", 0o755);
            let plain = file("plain", "#!/bin/sh\n", 0o644);
            let orphan = file("orphan", "#!/no/such/sh\n", 0o755);
            let neither = format!(
                "{}: is neither a program of this machine nor a script with an interpreter line",
                text.display()
            );
            check_refused(&world, |plan| plan.program = text, &neither).await;
            let denied = format!("{}: permission denied", plain.display());
            check_refused(&world, |plan| plan.program = plain, &denied).await;
            let lost = format!(
                "{}: its interpreter or dynamic loader does not exist",
                orphan.display()
            );
            check_refused(&world, |plan| plan.program = orphan, &lost).await;
            let no_cwd = "cwd /no/such/folder: no such file or directory";
            check_refused(&world, |plan| plan.cwd = "/no/such/folder".into(), no_cwd).await;
            let no_folder = "cwd /bin/sh: not a directory";
            check_refused(&world, |plan| plan.cwd = "/bin/sh".into(), no_folder).await;
        },
    );
}

/// Fault 39.
#[test]
fn a_child_has_what_it_should_and_nothing_else() {
    alone(
        "a_child_has_what_it_should_and_nothing_else",
        |world| async move {
            // The daemon blocks SIGTERM and holds a descriptor that is not close-on-exec; SIGHUP is
            // ignored by `run_alone`.
            let mut term = nix::sys::signal::SigSet::empty();
            term.add(nix::sys::signal::Signal::SIGTERM);
            term.thread_block().unwrap();
            let spawner = Spawner::start().unwrap();
            let world = World { spawner, ..world };
            let (leaky, _other) = rustix::pipe::pipe().unwrap();
            assert_eq!(
                rustix::io::fcntl_getfd(&leaky).unwrap(),
                rustix::io::FdFlags::empty()
            );

            let env = world.output(world.plan("/usr/bin/env", &[])).await;
            let expected = format!("MCPD_INSTANCE={}/s/1\nPATH=/usr/bin:/bin\n", world.run);
            assert_eq!(env, expected);

            let status = world
                .output(world.plan("/bin/cat", &["/proc/self/status"]))
                .await;
            let field = |name: &str| {
                let line = status.lines().find_map(|line| line.strip_prefix(name));
                line.unwrap().trim().to_owned()
            };
            assert_eq!(field("SigBlk:"), "0000000000000000");
            assert_eq!(field("SigIgn:"), "0000000000000000");
            assert_eq!(field("Umask:"), "0027");

            let descriptors = world
                .output(world.plan("/bin/ls", &["/proc/self/fd"]))
                .await;
            assert_eq!(descriptors, "0\n1\n2\n3\n", "3 is how ls looks");

            let stat = world
                .output(world.plan("/bin/cat", &["/proc/self/stat"]))
                .await;
            let fields: Vec<&str> = stat.split(' ').collect();
            assert_eq!(
                (fields[0], fields[0]),
                (fields[4], fields[5]),
                "leads group and session"
            );
            assert_eq!(fields[6], "0", "no terminal");

            let score = world
                .output(world.plan("/bin/cat", &["/proc/self/oom_score_adj"]))
                .await;
            let ours = std::fs::read_to_string("/proc/self/oom_score_adj").unwrap();
            let ours: i32 = ours.trim().parse().unwrap();
            assert_eq!(score.trim(), (ours + 200).min(1000).to_string());
        },
    );
}

#[test]
fn arguments_pass_byte_for_byte() {
    alone("arguments_pass_byte_for_byte", |world| async move {
        use std::os::unix::ffi::OsStringExt;
        let odd = b"a b\t'\"$(x) \xff\xfe #~\n".to_vec();
        let mut plan = world.plan("/usr/bin/printf", &["%s"]);
        plan.argv.push(std::ffi::OsString::from_vec(odd.clone()));
        assert_eq!(world.run_to_end(plan).await.0, odd);
    });
}

#[test]
fn a_large_plan_passes() {
    alone("a_large_plan_passes", |world| async move {
        let mut plan = world.plan("/usr/bin/printenv", &["BIG"]);
        plan.env.push(("BIG".into(), "x".repeat(100_000).into()));
        assert_eq!(world.output(plan).await.len(), 100_001);
    });
}

#[test]
fn a_child_outlives_the_thread_that_asked_for_it() {
    alone(
        "a_child_outlives_the_thread_that_asked_for_it",
        |world| async move {
            let plan = world.shell("trap 'echo signal; exit' TERM HUP; echo ready; cat >/dev/null");
            let asked = world.clone();
            let thread = std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .build()
                    .unwrap();
                runtime
                    .block_on(asked.spawner.spawn(plan, Generation(1)))
                    .unwrap()
            });
            let child = thread.join().unwrap();
            let mut stdout = tokio::net::unix::pipe::Receiver::from_owned_fd(child.stdout).unwrap();
            let mut said = [0; 6];
            tokio::io::AsyncReadExt::read_exact(&mut stdout, &mut said)
                .await
                .unwrap();
            assert_eq!(&said, b"ready\n");
            assert!(child.group.members().unwrap().contains(&child.pid));
            drop(child.stdin);
            assert_eq!(child.exited.await, ExitStatus::Code(0));
            let mut rest = Vec::new();
            tokio::io::AsyncReadExt::read_to_end(&mut stdout, &mut rest)
                .await
                .unwrap();
            assert_eq!(rest, b"", "no signal was seen");
            child.group.reap().unwrap();
        },
    );
}

/// Fault 42.
#[test]
fn no_pipe_leaks_from_one_child_into_another() {
    alone(
        "no_pipe_leaks_from_one_child_into_another",
        |world| async move {
            let mut children = Vec::new();
            let spawning: Vec<_> = (0..50)
                .map(|number| {
                    let mut plan = world.plan("/bin/cat", &[]);
                    plan.tag = format!("{}/s/{number}", world.run);
                    world.spawner.spawn(plan, Generation(number))
                })
                .collect();
            for spawning in spawning {
                children.push(spawning.await.unwrap());
            }
            // If any other child held the far end too, this one would read on for ever.
            for child in children {
                drop(child.stdin);
                assert_eq!(child.exited.await, ExitStatus::Code(0));
                assert!(child.group.members().unwrap().is_empty());
                child.group.reap().unwrap();
            }
        },
    );
}

#[test]
fn a_hundred_starts_and_stops_leave_nothing() {
    alone(
        "a_hundred_starts_and_stops_leave_nothing",
        |world| async move {
            let mut rig = world.rig("sleep 1000 & echo ready; cat >/dev/null; kill $!");
            for _ in 0..100 {
                assert_eq!(rig.run_and_stop(Mode::Polite).await.0, RunResult::Success);
            }
        },
    );
}

#[test]
fn a_hundred_crashes_leave_nothing() {
    alone("a_hundred_crashes_leave_nothing", |world| async move {
        // Every run is stable at once, so each restart follows within 100 ms.
        let mut rig = world.rig("sleep 1000 & echo ready; kill -SEGV $$");
        rig.start();
        for _ in 0..100 {
            rig.until(Substate::AutoRestart).await;
            rig.tell(Event::Start {
                cause: Cause::Command,
            });
        }
        rig.stop(Mode::Kill);
        rig.until(Substate::Dead).await;
    });
}

#[test]
fn a_storm_of_restarts_is_one_child_at_a_time() {
    alone(
        "a_storm_of_restarts_is_one_child_at_a_time",
        |world| async move {
            let mut rig = world.rig("echo ready; cat >/dev/null");
            rig.start();
            for _ in 0..100 {
                rig.tell(Event::Restart {
                    cause: Cause::Command,
                });
            }
            rig.until(Substate::Ready).await;
            rig.stop(Mode::Polite);
            rig.until(Substate::Dead).await;
            let (mut living, mut spawns) = (0, 0);
            for action in &rig.done {
                match action {
                    Action::Spawn { .. } => (living, spawns) = (living + 1, spawns + 1),
                    Action::ClosePipes => living -= 1,
                    _ => {}
                }
                assert!((0..=1).contains(&living));
            }
            assert!(spawns <= 3, "{spawns} spawns");
        },
    );
}

#[test]
fn a_leader_stays_unreaped_until_it_is_asked_for() {
    alone(
        "a_leader_stays_unreaped_until_it_is_asked_for",
        |world| async move {
            let spawning = world.spawner.spawn(world.shell("exit 5"), Generation(1));
            let child = spawning.await.unwrap();
            assert_eq!(child.exited.await, ExitStatus::Code(5));
            for _ in 0..3 {
                assert_eq!(
                    world.spawner.reap_adopted().unwrap(),
                    reap::Adoptees::default()
                );
            }
            assert!(read_process(child.pid).is_some_and(|it| !it.is_alive()));
            child.group.reap().unwrap();
            assert_eq!(read_process(child.pid), None);
            child.group.reap().unwrap();
            // A signal after the end reaches nobody and is no error.
            child.group.signal(StopSignal::Kill).unwrap();
        },
    );
}

/// Fault 56.
#[test]
fn adoptees_are_reaped_while_a_leader_is_not() {
    alone(
        "adoptees_are_reaped_while_a_leader_is_not",
        |world| async move {
            let script = "for i in 1 2 3 4 5 6 7 8 9; do (sleep 0.01 &) ; done; exit 0";
            let child = world
                .spawner
                .spawn(world.shell(script), Generation(1))
                .await
                .unwrap();
            assert_eq!(child.exited.await, ExitStatus::Code(0));
            let spawner = world.spawner.clone();
            let reaper = tokio::spawn(async move { spawner.reap_on_signal().await });
            while reap::children().unwrap() != [child.pid] {
                sleep(Duration::from_millis(5)).await;
            }
            reaper.abort();
            assert!(reaper.await.unwrap_err().is_cancelled());
            child.group.reap().unwrap();
        },
    );
}

#[test]
fn strangers_that_were_adopted_go_with_the_daemon() {
    alone(
        "strangers_that_were_adopted_go_with_the_daemon",
        |world| async move {
            // Without the tag, and nobody's descendant: nobody's member.
            let script = "env -i /usr/bin/setsid /bin/sh -c '/bin/sleep 1000 & exit'; exit 0";
            let child = world
                .spawner
                .spawn(world.shell(script), Generation(1))
                .await
                .unwrap();
            assert_eq!(child.exited.await, ExitStatus::Code(0));
            while world.spawner.reap_adopted().unwrap().living.len() != 1 {
                sleep(Duration::from_millis(5)).await;
            }
            assert!(child.group.members().unwrap().is_empty());
            child.group.reap().unwrap();
            let left = world
                .spawner
                .end_everything(crate::supervise::sweep::ROUNDS);
            assert!(left.unwrap().is_empty());
        },
    );
}

#[test]
fn a_child_that_nobody_takes_is_ended() {
    alone("a_child_that_nobody_takes_is_ended", |world| async move {
        let script = format!("{ESCAPEE} trap '' TERM; echo ready; sleep 1000");
        let dropped = world.spawner.spawn(world.shell(&script), Generation(1));
        drop(dropped);
        let taken = world
            .spawner
            .spawn(world.shell(&script), Generation(2))
            .await
            .unwrap();
        drop(taken);
    });
}

/// Fault 17.
#[test]
fn a_closed_stdin_is_an_error_and_no_more() {
    alone(
        "a_closed_stdin_is_an_error_and_no_more",
        |world| async move {
            let mut rig = world.rig("exec 0<&-; echo ready; exec sleep 1000");
            rig.start();
            rig.until(Substate::Ready).await;
            let stdin = rig.stdin.as_ref().unwrap();
            assert_eq!(
                rustix::io::write(stdin, b"{}\n"),
                Err(rustix::io::Errno::PIPE)
            );
            rig.stop(Mode::Kill);
            rig.until(Substate::Dead).await;
        },
    );
}

#[test]
fn a_run_without_a_tag_ends_nobody_else() {
    alone("a_run_without_a_tag_ends_nobody_else", |world| async move {
        let mut plan = world.plan("/bin/cat", &[]);
        plan.tag = String::new();
        let one = world
            .spawner
            .spawn(plan.clone(), Generation(1))
            .await
            .unwrap();
        let other = world.spawner.spawn(plan, Generation(1)).await.unwrap();
        one.executed.await.unwrap();
        other.executed.await.unwrap();
        one.group.signal(StopSignal::Kill).unwrap();
        assert!(matches!(
            one.exited.await,
            ExitStatus::Signal { number: 9, .. }
        ));
        one.group.reap().unwrap();
        drop(other.stdin);
        assert_eq!(other.exited.await, ExitStatus::Code(0));
        other.group.reap().unwrap();
    });
}

#[test]
fn a_tree_is_measured() {
    alone("a_tree_is_measured", |world| async move {
        let mut rig = world.rig("sleep 1000 & sleep 1000 & echo ready; cat >/dev/null; kill 0");
        rig.start();
        rig.until(Substate::Ready).await;
        let pid = rig.supervisor.status().pid.unwrap();
        let start_ticks = read_process(pid).unwrap().start_ticks;
        let measured = timeout(PATIENCE, async {
            loop {
                let usage = measure(Leader { pid, start_ticks }).unwrap();
                if usage
                    .processes
                    .iter()
                    .filter(|it| it.name == "sleep")
                    .count()
                    == 2
                {
                    break usage;
                }
                sleep(Duration::from_millis(5)).await;
            }
        });
        let usage = measured.await.unwrap();
        assert!(usage.tasks >= 3 && usage.memory_bytes > 0 && usage.descriptors >= 9);
        rig.stop(Mode::Polite);
        rig.until(Substate::Dead).await;
    });
}
