//! Numbers that belong to strangers by now, in a pid namespace in which the next number can be chosen.

use std::io::Write;
use std::process::{Child, Command, Stdio};

use super::rig::{World, moved_to_own_process, run_here};
use super::sleep;
use crate::ids::Generation;
use crate::supervise::*;
use std::time::Duration;

/// The number that was given out last in this namespace (`proc_sys_kernel(5)`).
const LAST_PID: &str = "/proc/sys/kernel/ns_last_pid";
const NAMESPACE: [&str; 5] = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"];

/// Whether the number of the next process can be chosen here; says so where not.
fn can_choose(name: &str) -> bool {
    let mut trial = Command::new(NAMESPACE[0]);
    trial.args(&NAMESPACE[1..]).args(["sh", "-c"]);
    trial.arg(format!("echo 300 >{LAST_PID} && sh -c 'test $$ = 301'"));
    let done = trial.stdin(Stdio::null()).stderr(Stdio::null()).status();
    let can = done.is_ok_and(|status| status.success());
    if !can {
        let said =
            format!("SKIPPED: {name} needs a pid namespace in which numbers can be chosen\n");
        std::io::stdout().write_all(said.as_bytes()).unwrap();
    }
    can
}

/// A process that is nobody's but the test's, with this number.
async fn stranger(pid: u32) -> Child {
    loop {
        std::fs::write(LAST_PID, (pid - 1).to_string()).unwrap();
        let mut stranger = Command::new("/bin/sleep")
            .arg("1000")
            .env_clear()
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        if stranger.id() == pid {
            return stranger;
        }
        // A thread of ours took it first.
        stranger.kill().unwrap();
        stranger.wait().unwrap();
        sleep(Duration::from_millis(1)).await;
    }
}

fn in_namespace<B: Future<Output = ()>>(name: &str, body: impl FnOnce(World) -> B) {
    if !can_choose(name) || moved_to_own_process(&format!("recycled::{name}"), &NAMESPACE) {
        return;
    }
    run_here(GroupSignal::Best, body);
}

/// Fault 26: the leader's number, after it was reaped, is a stranger's.
#[test]
fn a_stranger_with_the_leaders_number_is_never_signalled() {
    in_namespace(
        "a_stranger_with_the_leaders_number_is_never_signalled",
        |world| async move {
            let spawning = world.spawner.spawn(world.shell("exit 5"), Generation(1));
            let child = spawning.await.unwrap();
            let pid = child.pid;
            assert_eq!(child.exited.await, ExitStatus::Code(5));
            child.group.reap().unwrap();
            let mut stranger = stranger(pid).await;
            assert!(child.group.members().unwrap().is_empty());
            for signal in [StopSignal::Term, StopSignal::Kill, StopSignal::Sweep] {
                child.group.signal(signal).unwrap();
            }
            drop(child.group);
            // Not even the last handle of a run reaches it.
            assert!(process_tree::read_process(pid).is_some_and(|it| it.is_alive()));
            assert!(stranger.try_wait().unwrap().is_none());
            stranger.kill().unwrap();
            stranger.wait().unwrap();
        },
    );
}

/// Fault 26: so is that of an escapee, while the run goes on.
#[test]
fn a_stranger_with_an_escapees_number_is_never_signalled() {
    in_namespace(
        "a_stranger_with_an_escapees_number_is_never_signalled",
        |world| async move {
            let script = "setsid sh -c '(exec sleep 1000) & echo $!; exit'; cat >/dev/null";
            let mut rig = world.rig(script);
            rig.start();
            rig.until(Substate::Ready).await;
            let printed = String::from_utf8(rig.printed.lock().unwrap().clone()).unwrap();
            let pid: u32 = printed.trim().parse().unwrap();
            let group = rig.group.clone().unwrap();
            assert!(group.members().unwrap().contains(&pid));
            let escapee = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
            rustix::process::kill_process(escapee, rustix::process::Signal::KILL).unwrap();
            while process_tree::read_process(pid).is_some() {
                world.spawner.reap_adopted().unwrap();
                sleep(Duration::from_millis(1)).await;
            }
            let mut stranger = stranger(pid).await;
            assert!(!group.members().unwrap().contains(&pid));
            drop(group);
            rig.stop(Mode::Kill);
            rig.until(Substate::Dead).await;
            assert!(stranger.try_wait().unwrap().is_none());
            stranger.kill().unwrap();
            stranger.wait().unwrap();
        },
    );
}
