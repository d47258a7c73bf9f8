//! The fake server's eras: what it says to `server/discover`, and how it speaks as a modern server.
//!
//! It plays every answer to a discovery that a server was seen to give, odd ones included. A modern one
//! differs from the legacy one by what is here alone; its lists and tools are the same.

use std::os::fd::AsFd;
use std::process;
use std::time::Duration;

use crate::pause;
use crate::server::Server;

const MODERN: &str = "2026-07-28";
const UNSUPPORTED: i32 = -32022;

/// How it answers `server/discover`: the switch `--discover`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Discovery<'o> {
    /// With an error of this code.
    Refused(i32),
    /// With an error without a message.
    WithoutMessage,
    /// Not at all.
    Silent,
    /// By ending.
    Exits,
    /// As a modern server, which refuses `initialize`.
    Modern,
    /// As a modern server, once `initialize` was refused.
    Late,
    /// As a modern server, once `initialize` was answered as by a legacy one.
    AfterSession,
    /// With `-32022`, which names these versions; once more as a modern server if one is modern.
    Names(&'o str),
}

impl<'o> Discovery<'o> {
    fn of(server: &'o Server) -> Self {
        let Some(text) = server.options.text("--discover") else {
            return Self::Refused(-32601);
        };
        match text {
            "no-message" => Self::WithoutMessage,
            "none" => Self::Silent,
            "exit" => Self::Exits,
            "modern" => Self::Modern,
            "late" => Self::Late,
            "both" => Self::AfterSession,
            other => match (other.strip_prefix("names="), other.parse()) {
                (Some(versions), _) => Self::Names(versions),
                (None, Ok(code)) => Self::Refused(code),
                (None, Err(_)) => panic!("unknown --discover {other}"),
            },
        }
    }
}

/// Answers `server/discover`, or does what else the switch says.
pub(crate) fn discovered(server: &Server, id: &str) {
    let count = server.count_discovery(id);
    match Discovery::of(server) {
        Discovery::Refused(code) => server.error(id, code, "no such method"),
        Discovery::WithoutMessage => server.output.line(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32601}}}}"#
        )),
        Discovery::Silent | Discovery::Late | Discovery::AfterSession => {}
        Discovery::Exits => process::exit(6),
        Discovery::Modern => welcome(server, id),
        Discovery::Names(versions) if count > 1 && versions.contains(MODERN) => welcome(server, id),
        Discovery::Names(versions) => unsupported(server, id, versions),
    }
}

/// Whether `initialize` is refused, which is then done.
pub(crate) fn refuses_initialize(server: &Server, id: &str) -> bool {
    match Discovery::of(server) {
        Discovery::Modern => unsupported(server, id, MODERN),
        Discovery::Late => {
            unsupported(server, id, MODERN);
            answer_late(server);
        }
        _ => return false,
    }
    true
}

/// What follows an answer to `initialize`.
pub(crate) fn after_initialize(server: &Server) {
    if Discovery::of(server) == Discovery::AfterSession {
        answer_late(server);
    }
}

fn answer_late(server: &Server) {
    if let Some(id) = server.take_discovery() {
        welcome(server, &id);
    }
}

fn unsupported(server: &Server, id: &str, versions: &str) {
    let names: Vec<String> = versions
        .split('+')
        .map(|name| format!("\"{name}\""))
        .collect();
    server.output.line(&format!(
        r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{UNSUPPORTED},"message":"Unsupported protocol version","data":{{"supported":[{}],"requested":"x"}}}}}}"#,
        names.join(",")
    ));
}

/// The answer of a modern server, which it is from then on unless a session is open.
fn welcome(server: &Server, id: &str) {
    server.become_modern();
    server.output.line(&format!(
        r#"{{"jsonrpc":"2.0","id":{id},"result":{{"resultType":"complete","supportedVersions":["{MODERN}"],"capabilities":{{"tools":{{"listChanged":true}},"resources":{{"subscribe":true}},"prompts":{{}},"logging":{{}},"completions":{{}}}},"ttlMs":0,"cacheScope":"private","_meta":{{"io.modelcontextprotocol/serverInfo":{{"name":"fake","version":"1.0"}}}}}}}}"#
    ));
}

/// A result as a modern server gives it.
pub(crate) fn complete(result: &str) -> String {
    let rest = result.strip_prefix('{').expect("an object");
    let comma = if rest.trim_start().starts_with('}') {
        ""
    } else {
        ","
    };
    format!(r#"{{"resultType":"complete","ttlMs":0,"cacheScope":"private"{comma}{rest}"#)
}

/// Acknowledges a stream of events, which stays open.
pub(crate) fn acknowledge(server: &Server, id: &str, params: &str) {
    let params: serde_json::Value = serde_json::from_str(params).unwrap_or_default();
    server.notify(
        "notifications/subscriptions/acknowledged",
        &format!(
            r#"{{"_meta":{{"io.modelcontextprotocol/subscriptionId":{id}}},"notifications":{}}}"#,
            params["notifications"]
        ),
    );
}

/// Waits until somebody has written, and then once more: a launcher that reads late.
pub(crate) fn wait_for_second_write() {
    let waiting = || rustix::io::ioctl_fionread(std::io::stdin().as_fd()).unwrap_or(0);
    let mut first = 0;
    // Never for ever: a test that failed must leave nothing behind.
    for _ in 0..30_000 {
        match waiting() {
            now if first > 0 && now > first => return,
            now => first = now,
        }
        pause(Duration::from_millis(10));
    }
}
