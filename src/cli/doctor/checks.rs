//! What is looked at: folders, the daemon, the service, PATH, programs, limits, the configuration.

use std::collections::BTreeSet;
use std::path::PathBuf;

use nix::sys::resource::{Resource, getrlimit};

use super::{Finding, Grade};
use crate::cli::Context;
use crate::cli::check::count_errors;
use crate::cli::client::{Client, ConnectError, QUICK};
use crate::cli::places::Places;
use crate::cli::server_file::daemon_base;
use crate::cli::service::{SERVICE, UserManager};
use crate::config::environment::Base;
use crate::config::load::{LoadRequest, is_executable, load};
use crate::control::{Request, StatusSnapshot, Targets};

/// Programs that servers are commonly started with, and what each is for.
const RUNTIMES: [(&str, &str); 6] = [
    ("node", "servers in JavaScript"),
    ("npx", "servers from npm"),
    ("python3", "servers in Python"),
    ("uv", "servers in Python"),
    ("uvx", "servers from PyPI"),
    ("docker", "servers in containers"),
];
/// Descriptors below which many hosts and servers are too many.
const FEW_DESCRIPTORS: u64 = 4096;

pub(super) fn all(context: &Context, places: &Places) -> Vec<Finding> {
    let base = daemon_base(places, &context.environment).0;
    let mut findings = vec![folders(places), configuration(places, &base)];
    let snapshot = daemon(places, &mut findings);
    findings.push(service(places));
    findings.push(lingering(places));
    let path = match &snapshot {
        Some(snapshot) => snapshot.daemon.path.clone(),
        None => base.path().to_string_lossy().into_owned(),
    };
    path_folders(&path, &mut findings);
    runtimes(places, &base, &path, &mut findings);
    findings.push(descriptors());
    findings.push(watches());
    findings
}

fn folders(places: &Places) -> Finding {
    const CHECK: &str = "folders";
    if let Err(error) = places.prepare() {
        return Finding::new(CHECK, Grade::Error, error.chain()).remedy(
            "make the folder yours, with mode 0700, or choose another by --socket and --state",
        );
    }
    let paths = &places.paths;
    let found = format!(
        "sockets in {}, state in {}",
        paths.runtime_dir().display(),
        paths.state_dir().display()
    );
    Finding::new(CHECK, Grade::Ok, found)
}

fn configuration(places: &Places, base: &Base) -> Finding {
    const CHECK: &str = "configuration";
    let (servers, errors, warnings) = count_errors(places, base);
    let folder = places.paths.config_dir().display();
    if errors > 0 {
        let found = format!("{errors} errors in {folder}");
        return Finding::new(CHECK, Grade::Error, found).remedy("`mcpd check` shows each");
    }
    if servers == 0 {
        let found = format!("no server in {folder}/servers.d");
        return Finding::new(CHECK, Grade::Note, found).remedy("write servers.d/NAME.toml there");
    }
    let found = format!("{servers} servers in {folder}");
    match warnings {
        0 => Finding::new(CHECK, Grade::Ok, found),
        warnings => Finding::new(
            CHECK,
            Grade::Warning,
            format!("{found}, {warnings} warnings"),
        )
        .remedy("`mcpd check` shows each"),
    }
}

/// The daemon, what it runs as, and the servers that it could not keep up.
fn daemon(places: &Places, findings: &mut Vec<Finding>) -> Option<StatusSnapshot> {
    const CHECK: &str = "daemon";
    let asked = Client::connect(places).and_then(|mut client| {
        client
            .ask::<StatusSnapshot>(&Request::Status(Targets::default()), QUICK)
            .map_err(ConnectError::Other)
    });
    let snapshot = match asked {
        Ok(snapshot) => snapshot,
        Err(ConnectError::NoDaemon(_)) => {
            findings.push(not_running(places));
            return None;
        }
        Err(ConnectError::Other(error)) => {
            let finding = Finding::new(CHECK, Grade::Error, error.chain());
            findings
                .push(finding.remedy("end it (`mcpd shutdown`, or by its pid) and start it again"));
            return None;
        }
    };
    let daemon = &snapshot.daemon;
    let ours = env!("CARGO_PKG_VERSION");
    let runs = format!("runs, pid {}, version {}", daemon.pid, daemon.version);
    findings.push(match daemon.version == ours {
        true => Finding::new(CHECK, Grade::Ok, runs),
        false => Finding::new(CHECK, Grade::Warning, format!("{runs}, this is {ours}"))
            .remedy("restart it: `mcpd shutdown && mcpd start`, or by its service"),
    });
    let containment = format!("{} holds what servers start", daemon.containment);
    findings.push(match daemon.containment.as_str() {
        "cgroup" | "subreaper" => Finding::new("containment", Grade::Ok, containment),
        _ => Finding::new("containment", Grade::Warning, containment)
            .remedy("run the daemon as a service: `mcpd service install`"),
    });
    for warning in &daemon.warnings {
        findings.push(Finding::new(CHECK, Grade::Warning, warning.clone()));
    }
    for server in &snapshot.servers {
        if server.state == crate::control::State::Failed {
            let reason = server.reason.as_deref().unwrap_or("it has failed");
            let finding =
                Finding::new("server", Grade::Error, format!("{}: {reason}", server.name));
            findings.push(finding.remedy(format!("`mcpd status {}` tells more", server.name)));
        }
    }
    Some(snapshot)
}

fn not_running(places: &Places) -> Finding {
    let socket = places.socket.display();
    let is_stale = places.unit_file.is_none() && places.socket.exists();
    let found = match is_stale {
        true => format!("none runs; the socket {socket} was left behind, the next one replaces it"),
        false => "none runs".to_owned(),
    };
    Finding::new("daemon", Grade::Note, found).remedy("hosts and `mcpd start` start one")
}

fn service(places: &Places) -> Finding {
    const CHECK: &str = "service";
    if !places.paths.is_default() {
        let found = "this configuration is not the one of the service";
        return Finding::new(CHECK, Grade::Note, found);
    }
    match UserManager::new(places).show(SERVICE) {
        Err(error) => Finding::new(CHECK, Grade::Note, error.to_string())
            .remedy("without it a daemon that crashes is started again by the next host only"),
        Ok(unit) => {
            let value = |name: &str| unit.get(name).map_or("", String::as_str);
            match (value("LoadState"), value("ActiveState")) {
                ("loaded", "failed") => Finding::new(CHECK, Grade::Error, "systemd gave it up")
                    .remedy(format!(
                        "`journalctl --user -u {SERVICE}` tells why; `systemctl --user reset-failed {SERVICE}` lets it start again"
                    )),
                ("loaded", state) => Finding::new(CHECK, Grade::Ok, format!("installed, {state}")),
                _ => Finding::new(CHECK, Grade::Note, "not installed")
                    .remedy("`mcpd service install` starts it with your session and after a crash"),
            }
        }
    }
}

fn lingering(places: &Places) -> Finding {
    const CHECK: &str = "lingering";
    match UserManager::new(places).lingers() {
        Some(true) => Finding::new(CHECK, Grade::Ok, "services outlive your last session"),
        Some(false) => Finding::new(CHECK, Grade::Note, "services end with your last session")
            .remedy("`loginctl enable-linger` keeps them"),
        None => Finding::new(
            CHECK,
            Grade::Note,
            "cannot be found out: no systemd-logind answers",
        ),
    }
}

fn path_folders(path: &str, findings: &mut Vec<Finding>) {
    const CHECK: &str = "PATH";
    let folders: Vec<PathBuf> = std::env::split_paths(path).collect();
    let missing: Vec<String> = folders
        .iter()
        .filter(|folder| !folder.is_dir())
        .map(|folder| folder.display().to_string())
        .collect();
    findings.push(match (folders.len(), missing.as_slice()) {
        (0, _) => Finding::new(CHECK, Grade::Error, "it is empty")
            .remedy("set `path` in mcpd.toml, or install the service from your shell"),
        (count, []) => Finding::new(CHECK, Grade::Ok, format!("{count} folders, all there")),
        (count, missing) => Finding::new(
            CHECK,
            Grade::Note,
            format!("{count} folders, not there: {}", missing.join(", ")),
        ),
    });
}

/// Programs that servers are started with: an error where a server needs one that is not found.
fn runtimes(places: &Places, base: &Base, path: &str, findings: &mut Vec<Finding>) {
    const CHECK: &str = "programs";
    let needed = needed_programs(places, base);
    let mut found = Vec::new();
    let mut absent = Vec::new();
    for (program, purpose) in RUNTIMES {
        match is_on_path(program, path) {
            true => found.push(program),
            false if needed.contains(program) => findings.push(
                Finding::new(
                    CHECK,
                    Grade::Error,
                    format!("a server needs {program}, which is not on PATH"),
                )
                .remedy("install it, or name its folder in `path` of the server or of mcpd.toml"),
            ),
            false => absent.push(format!("{program} ({purpose})")),
        }
    }
    let mut said = match found.as_slice() {
        [] => "none of the common ones is found".to_owned(),
        found => format!("found {}", found.join(", ")),
    };
    if !absent.is_empty() {
        said.push_str(&format!(
            "; not found and not needed: {}",
            absent.join(", ")
        ));
    }
    findings.push(Finding::new(CHECK, Grade::Ok, said));
}

/// The names of programs that enabled servers are started by.
fn needed_programs(places: &Places, base: &Base) -> BTreeSet<String> {
    let loaded = load(LoadRequest {
        config_dir: places.paths.config_dir(),
        base,
        hash_key: None,
        last_daemon_file: None,
    });
    let valid = loaded.servers.values().filter_map(|one| one.as_ref().ok());
    valid
        // A server with folders of its own may find what the daemon does not.
        .filter(|spec| spec.enabled && spec.launch.path.is_empty())
        .map(|spec| spec.launch.command.text().to_owned())
        .collect()
}

fn is_on_path(program: &str, path: &str) -> bool {
    std::env::split_paths(path).any(|folder| is_executable(&folder.join(program)))
}

fn descriptors() -> Finding {
    const CHECK: &str = "descriptors";
    match getrlimit(Resource::RLIMIT_NOFILE) {
        Ok((_, hard)) if hard >= FEW_DESCRIPTORS => {
            Finding::new(CHECK, Grade::Ok, format!("up to {hard} for a process"))
        }
        Ok((_, hard)) => Finding::new(CHECK, Grade::Warning, format!("only {hard} for a process"))
            .remedy("raise the hard limit (`ulimit -Hn`, limits.conf(5), DefaultLimitNOFILE=)"),
        Err(error) => Finding::new(CHECK, Grade::Note, format!("cannot be found out: {error}")),
    }
}

/// inotify(7): what the kernel lets one user watch.
fn watches() -> Finding {
    const CHECK: &str = "watches";
    let read = |name: &str| {
        let path = format!("/proc/sys/fs/inotify/{name}");
        std::fs::read_to_string(path)
            .ok()?
            .trim()
            .parse::<u64>()
            .ok()
    };
    match rustix::fs::inotify::init(rustix::fs::inotify::CreateFlags::CLOEXEC) {
        Ok(_) => {
            let instances = read("max_user_instances").unwrap_or_default();
            Finding::new(
                CHECK,
                Grade::Ok,
                format!("edits are noticed at once ({instances} instances for a user)"),
            )
        }
        Err(error) => Finding::new(
            CHECK,
            Grade::Warning,
            format!("no inotify instance is left ({error}): edits are noticed every 5 s"),
        )
        .remedy("raise fs.inotify.max_user_instances (sysctl.d(5))"),
    }
}
