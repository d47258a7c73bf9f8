//! Runs with a control group of their own: nobody gets out of it, and it goes with its run.
//!
//! They need a version 2 group in which groups can be made; where there is none, each says so.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::time::sleep;

use super::rig::{World, moved_to_own_process, run_here};
use super::{BY_KILL, BY_STDIN, BY_TERM, ESCAPEE, Spawner};
use crate::config::spec::ResourceLimits;
use crate::ids::Generation;
use crate::supervise::cgroup::{Delegated, Leaf};
use crate::supervise::hierarchy::{folder_of, own_group};
use crate::supervise::*;

/// Neither group nor session nor tag nor parent tell whose it is.
const STRANGER: &str =
    "env -i /usr/bin/setsid /bin/sh -c '(trap \"\" TERM HUP; exec /bin/sleep 1000) & exit'; ";

/// A group of the test's own, with this process in it.
struct OwnGroup {
    before: PathBuf,
    folder: PathBuf,
}

impl OwnGroup {
    /// None where no such group can be made.
    fn enter() -> Option<Self> {
        let before = current_folder()?;
        let folder = before.join(format!("mcpd-test-{}", std::process::id()));
        fs::create_dir(&folder).ok()?;
        let group = Self { before, folder };
        enter(&group.folder).is_ok().then_some(group)
    }

    fn leaves(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.folder).unwrap().flatten();
        entries
            .map(|entry| entry.file_name().into_string().unwrap())
            .filter(|name| name.starts_with("server-"))
            .collect()
    }
}

impl Drop for OwnGroup {
    fn drop(&mut self) {
        // What cannot be undone shows in the folder that stays.
        drop(enter(&self.before));
        drop(fs::remove_dir(self.folder.join("supervisor")));
        drop(fs::remove_dir(&self.folder));
    }
}

fn current_folder() -> Option<PathBuf> {
    let text = fs::read_to_string("/proc/self/cgroup").ok()?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    folder_of(own_group(&text)?, &mounts)
}

fn enter(folder: &Path) -> std::io::Result<()> {
    fs::write(folder.join("cgroup.procs"), std::process::id().to_string())
}

/// Whether groups can be made here; says so where not.
fn can_divide(name: &str) -> bool {
    let trial = current_folder().map(|folder| folder.join(format!("mcpd-try-{name}")));
    let made = trial.is_some_and(|trial| {
        fs::create_dir(&trial).is_ok() && {
            let writable = fs::OpenOptions::new()
                .write(true)
                .open(trial.join("cgroup.procs"));
            fs::remove_dir(&trial).unwrap();
            writable.is_ok()
        }
    });
    if !made {
        let said = format!("SKIPPED: {name} needs a version 2 control group that it may divide\n");
        std::io::stdout().write_all(said.as_bytes()).unwrap();
    }
    made
}

/// Runs `body` in a process and a group of its own, in which runs get leaves; looks for leaks.
fn contained<B: Future<Output = ()>>(name: &str, body: impl FnOnce(World) -> B) {
    if !can_divide(name) || moved_to_own_process(&format!("contained::{name}"), &[]) {
        return;
    }
    let group = OwnGroup::enter().unwrap();
    run_here(GroupSignal::Best, |world| {
        let (delegated, complaints) = Delegated::take().unwrap();
        assert!(complaints.is_empty(), "{complaints:?}");
        assert_eq!(delegated.folder(), group.folder);
        let spawner = Spawner::start().unwrap();
        spawner.contain(delegated);
        body(World { spawner, ..world })
    });
    assert_eq!(group.leaves(), Vec::<String>::new(), "a leaf is left");
}

async fn check(world: &World, script: &str, mode: Mode, expected: super::rig::EndedRunSummary) {
    let ended = world.rig(script).run_and_stop(mode).await;
    assert_eq!(ended, expected, "{script}");
}

/// Fault 21: with a group, nobody gets away who is in no list but its own.
#[test]
fn an_escapee_without_a_mark_is_killed_with_its_group() {
    contained(
        "an_escapee_without_a_mark_is_killed_with_its_group",
        |world| async move {
            for mode in [Mode::Polite, Mode::Kill] {
                let script = format!("{STRANGER} {ESCAPEE} echo ready; cat >/dev/null");
                let by = match mode {
                    Mode::Polite => (RunResult::Success, BY_STDIN),
                    Mode::Kill => (RunResult::Success, BY_KILL),
                };
                check(&world, &script, mode, by).await;
            }
        },
    );
}

#[test]
fn an_escapee_without_a_mark_hears_the_polite_signal() {
    contained(
        "an_escapee_without_a_mark_hears_the_polite_signal",
        |world| async move {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("heard");
            let script = format!(
                "env -i /usr/bin/setsid /bin/sh -c '(trap \"echo x >{}; exit\" TERM; \
                 /bin/sleep 1000 & echo ready >&3; wait) & exit' 3>&1; cat >/dev/null",
                file.display()
            );
            check(
                &world,
                &script,
                Mode::Polite,
                (RunResult::Success, BY_STDIN),
            )
            .await;
            assert!(file.exists());
        },
    );
}

/// Fault 23: each lives for a moment and leaves the next in a session of its own; who looks at them
/// one by one is always late.
#[test]
fn a_run_from_process_to_process_ends_with_its_group() {
    contained(
        "a_run_from_process_to_process_ends_with_its_group",
        |world| async move {
            let folder = tempfile::tempdir().unwrap();
            let hop = folder.path().join("hop");
            fs::write(
                &hop,
                format!("/usr/bin/setsid /bin/sh {} &\n", hop.display()),
            )
            .unwrap();
            let script = format!(
                "for i in 1 2 3; do sh {} & done; echo ready; cat >/dev/null",
                hop.display()
            );
            let mut rig = world.rig(&script);
            assert_eq!(
                rig.run_and_stop(Mode::Kill).await,
                (RunResult::Success, BY_KILL)
            );
            let rounds = rig
                .done
                .iter()
                .filter(|it| matches!(it, Action::Signal(_)))
                .count();
            assert!(rounds <= 3, "{rounds} rounds");
        },
    );
}

/// A run that made groups of its own inside ends and goes like any other.
#[test]
fn groups_inside_the_group_go_too() {
    contained("groups_inside_the_group_go_too", |world| async move {
        let mut rig = world.rig(
            "read LEAF; mkdir -p $LEAF/one/two; \
             (trap '' TERM; echo 0 >$LEAF/one/two/cgroup.procs; echo ready; exec sleep 1000) & wait",
        );
        rig.start();
        rig.until(Substate::Handshake).await;
        let leaf = rig
            .group
            .as_ref()
            .unwrap()
            .control_group()
            .unwrap()
            .to_owned();
        let told = format!("{}\n", leaf.display());
        rustix::io::write(rig.stdin.as_ref().unwrap(), told.as_bytes()).unwrap();
        rig.until(Substate::Ready).await;
        rig.stop(Mode::Polite);
        rig.until(Substate::Dead).await;
        assert!(!leaf.exists());
    });
}

#[test]
fn a_polite_end_and_a_start_that_fails_leave_no_group() {
    contained(
        "a_polite_end_and_a_start_that_fails_leave_no_group",
        |world| async move {
            let script = "echo ready; cat >/dev/null";
            check(&world, script, Mode::Polite, (RunResult::Success, BY_STDIN)).await;
            let script = "echo ready; exec sleep 1000";
            check(&world, script, Mode::Polite, (RunResult::Success, BY_TERM)).await;
            let mut plan = world.shell("true");
            plan.argv.push("a\0b".into());
            let refused = world.spawner.spawn(plan, Generation(1)).await.unwrap_err();
            assert_eq!(refused.stage, Stage::Configuration);
            let mut rig = world.rig("true");
            let mut plan = world.shell("true");
            plan.program = "/no/such/program".into();
            rig.replace_plan(plan);
            rig.start();
            rig.until(Substate::ExecFailed).await;
        },
    );
}

/// Two runs of one name at once, which the supervisor never makes, have two groups all the same.
#[test]
fn leaves_of_one_name_are_told_apart() {
    contained("leaves_of_one_name_are_told_apart", |world| async move {
        let plan = world.plan("/bin/cat", &[]);
        let one = world
            .spawner
            .spawn(plan.clone(), Generation(1))
            .await
            .unwrap();
        let other = world.spawner.spawn(plan, Generation(1)).await.unwrap();
        let name = |child: &launcher::Child| {
            let folder = child.group.control_group().unwrap();
            folder.file_name().unwrap().to_str().unwrap().to_owned()
        };
        assert_eq!(
            (name(&one), name(&other)),
            ("server-s-1".to_owned(), "server-s-1.1".to_owned())
        );
        // Dropped unreaped: ended on the spot, groups and all.
        for child in [one, other] {
            child.executed.await.unwrap();
        }
    });
}

/// The last handle of a run that nobody ended kills and removes, escapees included.
#[test]
fn a_run_that_nobody_looks_after_leaves_no_group() {
    contained(
        "a_run_that_nobody_looks_after_leaves_no_group",
        |world| async move {
            let mut rig = world.rig(&format!("{STRANGER} trap '' TERM; echo ready; sleep 1000"));
            rig.start();
            rig.until(Substate::Ready).await;
            drop(rig);
        },
    );
}

#[test]
fn a_run_without_a_tag_has_no_group() {
    contained("a_run_without_a_tag_has_no_group", |world| async move {
        let mut plan = world.plan("/bin/cat", &[]);
        plan.tag = String::new();
        let child = world.spawner.spawn(plan, Generation(1)).await.unwrap();
        assert_eq!(child.group.control_group(), None);
    });
}

/// A process of the test that sits in the group `name` below `folder`.
fn sitting_in(folder: &Path, name: &str) -> Child {
    let group = folder.join(name);
    fs::create_dir_all(&group).unwrap();
    let sitter = Command::new("/bin/sleep")
        .arg("1000")
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    fs::write(group.join("cgroup.procs"), sitter.id().to_string()).unwrap();
    sitter
}

/// Whoever is in the group holds its end up, also one that is older than the run and bears no sign of it.
#[test]
fn a_guest_in_the_group_is_waited_for_and_ended() {
    contained(
        "a_guest_in_the_group_is_waited_for_and_ended",
        |world| async move {
            let mut guest = Command::new("/bin/sleep").arg("1000").spawn().unwrap();
            let began = process_tree::read_process(guest.id()).unwrap().start_ticks;
            let mut rig = world.rig("echo ready; cat >/dev/null");
            rig.start();
            rig.until(Substate::Ready).await;
            let leader = rig.supervisor.status().pid.unwrap();
            let leader = process_tree::read_process(leader).unwrap();
            assert!(leader.start_ticks >= began);
            let leaf = rig.group.as_ref().unwrap().control_group().unwrap();
            fs::write(leaf.join("cgroup.procs"), guest.id().to_string()).unwrap();
            rig.stop(Mode::Polite);
            rig.until(Substate::Dead).await;
            assert!(!guest.wait().unwrap().success());
        },
    );
}

/// C005: what an earlier daemon left in its groups is ended before anything is started, and nobody
/// else is.
#[test]
fn leaves_of_an_earlier_daemon_are_swept() {
    let name = "leaves_of_an_earlier_daemon_are_swept";
    if !can_divide(name) || moved_to_own_process(&format!("contained::{name}"), &[]) {
        return;
    }
    let group = OwnGroup::enter().unwrap();
    let mut leftovers = [
        sitting_in(&group.folder, "server-old-7"),
        sitting_in(&group.folder, "server-old-8/inside/deep"),
    ];
    fs::create_dir(group.folder.join("server-empty-1")).unwrap();
    let mut stranger = sitting_in(&group.folder, "other");
    let (delegated, complaints) = Delegated::take().unwrap();
    assert!(complaints.is_empty(), "{complaints:?}");
    assert_eq!(group.leaves(), Vec::<String>::new());
    for leftover in &mut leftovers {
        assert!(!leftover.wait().unwrap().success());
    }
    assert!(stranger.try_wait().unwrap().is_none(), "it lives");
    let second = Delegated::take_folder(group.folder.clone());
    assert_eq!(
        second.unwrap_err().to_string(),
        "another daemon has this group"
    );
    drop(delegated);
    stranger.kill().unwrap();
    stranger.wait().unwrap();
    fs::remove_dir(group.folder.join("other")).unwrap();
}

/// Linux before 5.14 cannot kill a group at once.
#[test]
fn a_group_is_killed_one_by_one_where_it_must_be() {
    let name = "a_group_is_killed_one_by_one_where_it_must_be";
    if !can_divide(name) || moved_to_own_process(&format!("contained::{name}"), &[]) {
        return;
    }
    let group = OwnGroup::enter().unwrap();
    let mut sitters = [
        sitting_in(&group.folder, "server-old-7"),
        sitting_in(&group.folder, "server-old-7/inside"),
    ];
    let leaf = Leaf::at(group.folder.join("server-old-7"));
    leaf.kill_one_by_one().unwrap();
    for sitter in &mut sitters {
        assert!(!sitter.wait().unwrap().success());
    }
    leaf.remove().unwrap();
    assert_eq!(group.leaves(), Vec::<String>::new());
}

/// What a leaf counts without any controller is there.
#[test]
fn a_leaf_tells_what_was_used() {
    contained("a_leaf_tells_what_was_used", |world| async move {
        let mut rig = world.rig("i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done; echo ready; cat");
        rig.start();
        rig.until(Substate::Ready).await;
        let group = rig.group.clone().unwrap();
        let leaf = group.control_group().unwrap();
        while cgroup::measure_leaf(leaf).cpu.unwrap().is_zero() {
            sleep(Duration::from_millis(5)).await;
        }
        assert!(!group.was_oom_killed());
        drop(group);
        rig.stop(Mode::Kill);
        rig.until(Substate::Dead).await;
    });
}

#[test]
fn open_files_are_limited_for_good() {
    super::alone(
        "contained::open_files_are_limited_for_good",
        |world| async move {
            let mut plan = world.shell("ulimit -Sn; ulimit -Hn");
            plan.limits = ResourceLimits {
                open_files: Some(64),
                ..ResourceLimits::default()
            };
            assert_eq!(world.output(plan).await, "64\n64\n");
        },
    );
}
