//! Hosts and servers of both eras: each behaviour once in each pairing, with the official SDKs on both sides.
//!
//! One server a language speaks both eras; the key `protocol` says which it is asked for, and the host's mode
//! which era the host speaks. `tests/sdk/matrix` runs all of it, with every way to attach.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use super::{STABLE, check, counterpart, run};
use crate::common::{Home, MCPD, TestDaemon, quoted};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Language {
    Python,
    TypeScript,
}

const LEGACY: &str = "legacy";
const MODERN: &str = "2026-07-28";

/// What every pairing of languages can do.
const CHECKS: &[&str] = &[
    "connect",
    "list",
    "call",
    "many",
    "progress_and_cancel",
    "error",
    "elicitation",
    "subscribe",
    "read",
    "prompts",
    "large",
    "crash",
];

/// What the Python server has beside that.
const PYTHON_CHECKS: &[&str] = &["sampling", "roots", "log", "completion"];

fn script(name: &str) -> String {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sdk");
    let path = scripts.join(name);
    path.to_str().expect("a plain path").to_owned()
}

/// The program and the first arguments of a script, or none where its SDK is not installed.
fn program(language: Language, name: &str) -> Option<Vec<String>> {
    match language {
        Language::Python => {
            let python = counterpart("py-modern")?.join("bin/python");
            let python = python.to_str().expect("a plain path").to_owned();
            Some(vec![python, script(&format!("{name}.py"))])
        }
        Language::TypeScript => {
            let folder = counterpart("node")?;
            let folder = folder.to_str().expect("a plain path").to_owned();
            Some(vec![
                "node".to_owned(),
                script(&format!("{name}.mjs")),
                folder,
            ])
        }
    }
}

/// A daemon with the server of a language, which is asked for one era only.
fn daemon(language: Language, protocol: &str) -> Option<TestDaemon> {
    let words = program(language, "eras_server")?;
    let home = Home::new();
    home.settings(&format!(
        "path = {}\n",
        quoted(&std::env::var("PATH").unwrap_or_default())
    ));
    let arguments: Vec<_> = words[1..].iter().map(|word| quoted(word)).collect();
    home.server(
        "eras",
        &format!(
            "command = {}\nargs = [{}]\nprotocol = \"{protocol}\"\ninteractive = true\n{STABLE}[env]\nPYTHONDONTWRITEBYTECODE = \"1\"\n",
            quoted(&words[0]),
            arguments.join(", "),
        ),
    );
    Some(home.start())
}

fn host(home: &Home, language: Language, mode: &str) -> Option<Command> {
    let words = program(language, "eras_host")?;
    let mut command = home.program_command(&words[0]);
    command
        .args(&words[1..])
        .args([mode, MCPD, "connect", "eras"])
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    Some(command)
}

fn expect(names: &BTreeSet<String>, server: Language) {
    check(names, CHECKS);
    if server == Language::Python {
        check(names, PYTHON_CHECKS);
    }
}

fn drive(host_language: Language, mode: &str, server: Language, protocol: &str) {
    let Some(daemon) = daemon(server, protocol) else {
        return;
    };
    let Some(host) = host(&daemon, host_language, mode) else {
        return;
    };
    expect(&run(host), server);
}

#[test]
fn a_legacy_host_with_a_legacy_server() {
    drive(Language::Python, LEGACY, Language::Python, "legacy");
}

#[test]
fn a_modern_python_host_with_a_legacy_server() {
    drive(Language::Python, MODERN, Language::Python, "legacy");
}

#[test]
fn a_modern_typescript_host_with_a_legacy_server() {
    drive(Language::TypeScript, MODERN, Language::TypeScript, "legacy");
}

#[test]
fn a_legacy_host_with_a_modern_server() {
    drive(Language::Python, LEGACY, Language::Python, "modern");
}

#[test]
fn a_modern_python_host_with_a_modern_server() {
    drive(Language::Python, MODERN, Language::Python, "modern");
}

#[test]
fn a_modern_typescript_host_with_a_modern_server() {
    drive(Language::TypeScript, MODERN, Language::TypeScript, "modern");
}

#[test]
fn a_legacy_typescript_host_with_a_modern_server() {
    drive(Language::TypeScript, LEGACY, Language::TypeScript, "modern");
}

/// Two hosts of different eras on one child at once: neither notices the other.
fn share(protocol: &str) {
    let Some(daemon) = daemon(Language::Python, protocol) else {
        return;
    };
    let hosts: Vec<_> = [(Language::Python, LEGACY), (Language::Python, MODERN)]
        .iter()
        .filter_map(|(language, mode)| host(&daemon, *language, mode))
        .collect();
    thread::scope(|scope| {
        let running: Vec<_> = hosts
            .into_iter()
            .map(|mut host| {
                // Each would crash the child under the other's calls, and a log line may be either's.
                host.env("ERAS_LEAVE_OUT", "crash,log");
                scope.spawn(move || run(host))
            })
            .collect();
        for host in running {
            let names = host.join().expect("every check is good");
            check(
                &names,
                &[
                    "call",
                    "many",
                    "elicitation",
                    "sampling",
                    "roots",
                    "subscribe",
                ],
            );
        }
    });
    assert_eq!(daemon.server_status("eras")["generation"], 1);
}

#[test]
fn hosts_of_both_eras_share_a_legacy_child() {
    share("legacy");
}

#[test]
fn hosts_of_both_eras_share_a_modern_child() {
    share("modern");
}
