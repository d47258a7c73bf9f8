//! The figures that only a live user session of systemd can give.

use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use super::load::under_load;
use super::{PROGRESS, QUICK, servers, times};
use crate::common::{FAKE, error_code, quoted, wait_until};
use crate::service::session::{Session, in_session_within};

/// How long all kills may take.
const LIMIT: Duration = Duration::from_secs(1800);

/// The servers of the figures in a session's home.
fn add_servers(session: &Session) {
    servers(|name, mode, switches| {
        let mut words: Vec<&str> = mode.to_vec();
        if !mode.is_empty() {
            words.push("--");
        }
        words.extend(switches);
        let toml = format!(
            "command = {}\nargs = {}\n{QUICK}",
            quoted(FAKE),
            json!(words)
        );
        session.write(&format!(".config/mcpd/servers.d/{name}.toml"), &toml);
    });
}

/// Fault 30: systemd's daemon is killed again and again; nothing that it has started is left, and hosts see errors
/// for what was open.
#[test]
fn kills_of_the_daemon_under_systemd_lose_nothing() {
    let name = "figures::session::kills_of_the_daemon_under_systemd_lose_nothing";
    in_session_within(LIMIT, name, |session| {
        let kills = times(200, 4);
        add_servers(session);
        session.write(
            ".config/systemd/user/mcpd.service.d/quick.conf",
            "[Unit]\nStartLimitIntervalSec=0\n[Service]\nRestartSec=100ms\n",
        );
        session.mcpd(&["service", "install"]).expect(0);
        let report = under_load(
            &["plain", "tree", "orphan"],
            |server| session.host_of(server),
            |answered| {
                let mut survivors = 0;
                let mut last = 0;
                for _ in 0..kills {
                    let before = answered();
                    let pid = wait_until("a new daemon that serves", || {
                        let pid = session.main_pid();
                        (pid != 0 && pid != last && answered() > before + PROGRESS).then_some(pid)
                    });
                    last = pid;
                    let started = session.fakes();
                    kill(Pid::from_raw(pid), Signal::SIGKILL).expect("it runs");
                    wait_until("another daemon", || {
                        let now = session.main_pid();
                        (now != 0 && now != pid).then_some(())
                    });
                    let now = session.fakes();
                    survivors += started.iter().filter(|one| now.contains(one)).count() as u64;
                }
                survivors
            },
        );
        report.print(&format!("{kills} kill -9 of the daemon under systemd"));
        report.expect_clean(&[-31000, -31001, -31006]);
        session.remove_drop_in();
    });
}

/// systemd restarts the daemon in order while hosts call.
#[test]
fn restarts_by_systemd_lose_nothing() {
    let name = "figures::session::restarts_by_systemd_lose_nothing";
    in_session_within(LIMIT, name, |session| {
        let restarts = times(50, 3);
        add_servers(session);
        session.write(
            ".config/systemd/user/mcpd.service.d/quick.conf",
            "[Unit]\nStartLimitIntervalSec=0\n",
        );
        session.mcpd(&["service", "install"]).expect(0);
        let report = under_load(
            &["plain", "tree"],
            |server| session.host_of(server),
            |answered| {
                for _ in 0..restarts {
                    let before = answered();
                    wait_until("hosts are served", || {
                        (answered() > before + PROGRESS).then_some(())
                    });
                    session.systemctl(&["restart", "mcpd.service"]).expect(0);
                }
                0
            },
        );
        report.print(&format!("{restarts} times `systemctl --user restart`"));
        report.expect_clean(&[-31000, -31005, -31006]);
        session.remove_drop_in();
    });
}

/// With the units as they are shipped, a daemon that is killed too often is started no more: hosts keep their shims
/// and are told why and what to do, and nobody starts a second daemon.
#[test]
fn the_start_limit_of_systemd_is_told() {
    let name = "figures::session::the_start_limit_of_systemd_is_told";
    in_session_within(LIMIT, name, |session| {
        session.mcpd(&["service", "install"]).expect(0);
        let mut host = session.host_of("fake");
        host.initialize();
        // Between two tries it is "activating".
        let is_over = || session.property("mcpd.service", "ActiveState") == "failed";
        let mut last = 0;
        // The units allow ten starts in five minutes.
        for _ in 0..20 {
            let pid = wait_until("a daemon, or none for good", || {
                let pid = session.main_pid();
                (is_over() || (pid != 0 && pid != last)).then_some(pid)
            });
            if is_over() {
                break;
            }
            last = pid;
            // It may have ended meanwhile.
            kill(Pid::from_raw(pid), Signal::SIGKILL).ok();
        }
        assert!(is_over(), "systemd gives up");
        let answer = wait_until("the host is told of it", || {
            let answer = host.call("sum", json!({"a": 1}));
            (answer["error"].is_object() && error_code(&answer) == -31000).then_some(answer)
        });
        assert!(answer.to_string().contains("reset-failed"), "{answer}");
        assert!(host.is_running());
        assert_eq!(session.property("mcpd.service", "ActiveState"), "failed");
        session.mcpd(&["status"]).expect(4);
        session
            .systemctl(&["reset-failed", "mcpd.service", "mcpd.socket"])
            .expect(0);
        session
            .systemctl(&["start", "mcpd.socket", "mcpd.service"])
            .expect(0);
        wait_until("the host is served again", || {
            host.call("sum", json!({"a": 1}))["result"]
                .is_object()
                .then_some(())
        });
    });
}
