//! From the servers as they were to the servers as they are: what has to be done, in order.
//!
//! It decides which keys need a new child and which are applied to the running one. It never looks
//! at running processes, and a server that did not change is not in its answer.

use std::collections::{BTreeMap, BTreeSet};

use super::spec::{
    LaunchSpec, Policy, Protocol, ResourceLimits, Restart, ServerName, ServerSpec, Start, ToolRules,
};
use super::units::{render_duration, render_size};

/// What an edit means for one server. Keys are named as in the file (`args`, `env.API_KEY`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The file is gone.
    Remove(ServerName),
    /// `enabled` became false; whatever else changed comes with the new specification.
    Disable(ServerName),
    /// The child does not fit any more; `live` are the keys that would not have needed a new one.
    Restart {
        name: ServerName,
        why: Vec<String>,
        live: Vec<String>,
    },
    /// Nothing that the child was started with: to be applied as it runs. Also whatever changed in a
    /// server that is and was disabled.
    Live { name: ServerName, keys: Vec<String> },
    /// `enabled` became true.
    Enable(ServerName),
    /// A new file.
    Add(ServerName),
}

impl Change {
    pub fn name(&self) -> &ServerName {
        match self {
            Self::Remove(name) | Self::Disable(name) | Self::Enable(name) | Self::Add(name) => name,
            Self::Restart { name, .. } | Self::Live { name, .. } => name,
        }
    }

    /// What comes first: room is made before anything new is started.
    fn rank(&self) -> u8 {
        match self {
            Self::Remove(_) => 0,
            Self::Disable(_) => 1,
            Self::Restart { .. } => 2,
            Self::Live { .. } => 3,
            Self::Enable(_) => 4,
            Self::Add(_) => 5,
        }
    }
}

/// The changes from `old` to `new`: removals first, additions last, by name within a kind.
///
/// A server whose file is bad is to be in `new` with its old specification (as
/// the loader's result gives it), else it counts as removed.
pub fn diff(
    old: &BTreeMap<ServerName, ServerSpec>,
    new: &BTreeMap<ServerName, ServerSpec>,
) -> Vec<Change> {
    let names: BTreeSet<&ServerName> = old.keys().chain(new.keys()).collect();
    let mut changes: Vec<Change> = names
        .into_iter()
        .filter_map(|name| match (old.get(name), new.get(name)) {
            (Some(_), None) => Some(Change::Remove(name.clone())),
            (None, Some(_)) => Some(Change::Add(name.clone())),
            (Some(old), Some(new)) => compare(name, old, new),
            (None, None) => None,
        })
        .collect();
    changes.sort_by_key(Change::rank);
    changes
}

fn compare(name: &ServerName, old: &ServerSpec, new: &ServerSpec) -> Option<Change> {
    let name = name.clone();
    match (old.enabled, new.enabled) {
        (true, false) => return Some(Change::Disable(name)),
        (false, true) => return Some(Change::Enable(name)),
        _ => {}
    }
    let mut why = launch_keys(&old.launch, &new.launch);
    why.extend(content_keys(old, new));
    let mut live = policy_keys(&old.policy, &new.policy);
    // The child was told of its client when it started.
    why.extend(live.extract_if(.., |key| key == "interactive"));
    if old.description != new.description {
        live.push("description".to_owned());
    }
    if !new.enabled {
        live.append(&mut why);
    }
    match (why.is_empty(), live.is_empty()) {
        (true, true) => None,
        (true, false) => Some(Change::Live { name, keys: live }),
        (false, _) => Some(Change::Restart { name, why, live }),
    }
}

/// What changed in the running server, as `key before -> after` where both fit into a line.
pub fn describe_live(old: &ServerSpec, new: &ServerSpec, keys: &[String]) -> String {
    let describe = |key: &String| match live_value(old, key).zip(live_value(new, key)) {
        Some((before, after)) => format!("{key} {before} -> {after}"),
        None => format!("{key} changed"),
    };
    keys.iter().map(describe).collect::<Vec<_>>().join(", ")
}

/// A value that is short and no secret, as it would be written in a file.
fn live_value(spec: &ServerSpec, key: &str) -> Option<String> {
    let policy = &spec.policy;
    let or_none = |value: Option<String>| value.unwrap_or_else(|| "none".to_owned());
    Some(match key {
        "start" => match policy.start {
            Start::Boot => "boot".to_owned(),
            Start::Demand => "demand".to_owned(),
        },
        "watchdog" => or_none(policy.watchdog.map(render_duration)),
        "allow_mcpd" => policy.allow_mcpd.to_string(),
        "idle_stop" => or_none(policy.idle_stop.map(render_duration)),
        "restart" => match policy.restart {
            Restart::Always => "always".to_owned(),
            Restart::OnFailure => "on-failure".to_owned(),
            Restart::No => "no".to_owned(),
        },
        "protocol" => match policy.protocol {
            Protocol::Auto => "auto".to_owned(),
            Protocol::Legacy => "legacy".to_owned(),
            Protocol::Modern => "modern".to_owned(),
        },
        "start_timeout" => render_duration(policy.start_timeout),
        "drain_timeout" => render_duration(policy.drain_timeout),
        "reload_drain_timeout" => render_duration(policy.reload_drain_timeout),
        "stop_timeout" => render_duration(policy.stop_timeout),
        "request_timeout" => or_none(policy.request_timeout.map(render_duration)),
        "stable_after" => render_duration(policy.stable_after),
        "max_calls" => or_none(policy.max_calls.map(|calls| calls.to_string())),
        "start_limit" => policy.start_limit.to_string(),
        "message_limit" => render_size(policy.message_limit_bytes as u64),
        _ => return None,
    })
}

/// The names of the fields that differ. Takes the structs apart, so that a new field does not
/// compile until somebody has said what it means here.
macro_rules! differing {
    ($old:expr, $new:expr, $type:ident { $($field:ident => $key:literal),* $(,)? }, but $($other:ident),*) => {{
        let $type { $($field,)* $($other: _),* } = $old;
        let mut keys: Vec<String> = Vec::new();
        $(if *$field != $new.$field { keys.push($key.to_owned()); })*
        keys
    }};
}

fn launch_keys(old: &LaunchSpec, new: &LaunchSpec) -> Vec<String> {
    let mut keys = differing!(old, new, LaunchSpec {
        command => "command", args => "args", cwd => "cwd", sharing => "sharing", env_file => "env_file",
        pass_env => "pass_env", path => "path", inherit_env => "inherit_env", proxy_env => "proxy_env",
    }, but env, limits);
    keys.extend(differing!(&old.limits, &new.limits, ResourceLimits {
        memory_bytes => "limits.memory", tasks => "limits.tasks",
        open_files => "limits.open_files",
    }, but));
    let names: BTreeSet<&String> = old.env.keys().chain(new.env.keys()).collect();
    let changed = names
        .into_iter()
        .filter(|name| old.env.get(*name) != new.env.get(*name));
    keys.extend(changed.map(|name| format!("env.{name}")));
    keys
}

/// The keys whose text is the same but whose file holds something else now.
fn content_keys(old: &ServerSpec, new: &ServerSpec) -> Vec<String> {
    let changed = new
        .contents
        .iter()
        .filter(|(key, now)| old.contents.get(*key).is_some_and(|before| before != *now));
    changed
        .map(|(key, _)| format!("{key} (contents)"))
        .collect()
}

fn policy_keys(old: &Policy, new: &Policy) -> Vec<String> {
    let mut keys = differing!(old, new, Policy {
        start => "start", idle_stop => "idle_stop", watchdog => "watchdog", allow_mcpd => "allow_mcpd",
        restart => "restart", start_timeout => "start_timeout", drain_timeout => "drain_timeout",
        reload_drain_timeout => "reload_drain_timeout",
        stop_timeout => "stop_timeout", stop_command => "stop_command",
        request_timeout => "request_timeout", max_calls => "max_calls",
        stable_after => "stable_after", start_limit => "start_limit",
        message_limit_bytes => "message_limit", interactive => "interactive", protocol => "protocol",
    }, but tools);
    keys.extend(differing!(&old.tools, &new.tools, ToolRules {
        allow => "tools.allow", deny => "tools.deny",
    }, but));
    keys
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::diagnostics::SourceText;
    use crate::config::draft::Draft;
    use crate::config::fingerprint::{Fingerprint, HashKey};
    use crate::config::parse::{Surroundings, parse_server};
    use proptest::prelude::*;
    use std::path::Path;

    type Servers = BTreeMap<ServerName, ServerSpec>;

    fn servers(files: &[(&str, &str)]) -> Servers {
        let surroundings = Surroundings {
            home: Path::new("/h"),
            is_program: &|_| true,
        };
        let read = |(name, text): &(&str, &str)| {
            let name = ServerName::parse(name).unwrap();
            let source = SourceText::new(Path::new("/c/servers.d/x.toml"), text);
            let spec = parse_server(&name, &source, &Draft::default(), surroundings).unwrap();
            (name, spec)
        };
        files.iter().map(read).collect()
    }

    fn shown(changes: &[Change]) -> Vec<String> {
        let show = |change: &Change| match change {
            Change::Remove(name) => format!("remove {name}"),
            Change::Disable(name) => format!("disable {name}"),
            Change::Restart { name, why, live } => format!("restart {name}: {why:?} {live:?}"),
            Change::Live { name, keys } => format!("live {name}: {keys:?}"),
            Change::Enable(name) => format!("enable {name}"),
            Change::Add(name) => format!("add {name}"),
        };
        changes.iter().map(show).collect()
    }

    /// One server whose file was `old` and is `new`.
    #[track_caller]
    fn check(old: &str, new: &str, expected: &[&str]) {
        assert_eq!(
            shown(&diff(&servers(&[("x", old)]), &servers(&[("x", new)]))),
            expected
        );
    }

    #[test]
    fn removals_come_first_and_additions_last() {
        let old = servers(&[
            ("a-gone", "command = \"x\""),
            ("b-off", "command = \"x\""),
            ("c-new-args", "command = \"x\""),
            ("d-live", "command = \"x\""),
            ("e-on", "command = \"x\"\nenabled = false"),
            ("f-same", "command = \"x\""),
        ]);
        let new = servers(&[
            ("0-new", "command = \"x\""),
            ("b-off", "command = \"x\"\nenabled = false"),
            ("c-new-args", "command = \"x\"\nargs = [\"a\"]"),
            ("d-live", "command = \"x\"\nrestart = \"no\""),
            ("e-on", "command = \"x\""),
            ("f-same", "# moved\n\ncommand = \"x\""),
        ]);
        assert_eq!(
            shown(&diff(&old, &new)),
            [
                "remove a-gone",
                "disable b-off",
                "restart c-new-args: [\"args\"] []",
                "live d-live: [\"restart\"]",
                "enable e-on",
                "add 0-new",
            ]
        );
    }

    #[test]
    fn every_key_is_either_for_a_new_child_or_live() {
        let plain = "command = \"x\"\n";
        for (line, key) in [
            ("args = [\"a\"]", "args"),
            ("cwd = \"/\"", "cwd"),
            ("env_file = \"e\"", "env_file"),
            ("pass_env = [\"A\"]", "pass_env"),
            ("path = [\"/p\"]", "path"),
            ("inherit_env = true", "inherit_env"),
            ("interactive = true", "interactive"),
            ("proxy_env = false", "proxy_env"),
            ("limits.memory = \"1GiB\"", "limits.memory"),
            ("limits.tasks = 9", "limits.tasks"),
            ("limits.open_files = 99", "limits.open_files"),
            ("env.A = \"1\"", "env.A"),
            ("env.A = { command = [\"c\"] }", "env.A"),
        ] {
            check(
                plain,
                &format!("{plain}{line}"),
                &[&format!("restart x: [{key:?}] []")],
            );
        }
        for (line, key) in [
            ("description = \"d\"", "description"),
            ("watchdog = \"1m\"", "watchdog"),
            ("allow_mcpd = true", "allow_mcpd"),
            ("restart = \"no\"", "restart"),
            ("start_timeout = \"1s\"", "start_timeout"),
            ("drain_timeout = \"1s\"", "drain_timeout"),
            ("reload_drain_timeout = \"1s\"", "reload_drain_timeout"),
            ("stop_timeout = \"1s\"", "stop_timeout"),
            ("stop_command = [\"s\"]", "stop_command"),
            ("request_timeout = \"1s\"", "request_timeout"),
            ("max_calls = 1", "max_calls"),
            ("stable_after = \"1s\"", "stable_after"),
            ("start_limit = 1", "start_limit"),
            ("message_limit = \"1MiB\"", "message_limit"),
            ("protocol = \"legacy\"", "protocol"),
            ("tools.allow = [\"a\"]", "tools.allow"),
            ("tools.deny = [\"a\"]", "tools.deny"),
        ] {
            check(
                plain,
                &format!("{plain}{line}"),
                &[&format!("live x: [{key:?}]")],
            );
        }
        check(plain, "command = \"y\"\n", &["restart x: [\"command\"] []"]);
    }

    #[test]
    fn a_restart_tells_what_else_changed() {
        let (old, new) = (
            "command = \"x\"",
            "command = \"x\"\nargs = [\"a\"]\nrestart = \"no\"",
        );
        check(old, new, &["restart x: [\"args\"] [\"restart\"]"]);
    }

    #[test]
    fn what_changes_live_is_told_with_its_values() {
        let check = |old: &str, new: &str, expected: &str| {
            let read = |text: &str| servers(&[("x", &format!("command = \"x\"\n{text}"))]);
            let (old, new) = (read(old), read(new));
            let [Change::Live { name, keys }] = &diff(&old, &new)[..] else {
                panic!("{new:?} is not live")
            };
            assert_eq!(describe_live(&old[name], &new[name], keys), expected);
        };
        check("", "stable_after = \"2m\"", "stable_after 60s -> 120s");
        check(
            "",
            "request_timeout = \"1500ms\"",
            "request_timeout none -> 1500ms",
        );
        check("max_calls = 2", "", "max_calls 2 -> none");
        check("", "start_timeout = \"1h\"", "start_timeout 90s -> 1h");
        check(
            "",
            "message_limit = \"1MiB\"",
            "message_limit 64MiB -> 1MiB",
        );
        check(
            "",
            "start_limit = 3\nrestart = \"no\"\ntools.deny = [\"x\"]",
            "restart always -> no, start_limit 10 -> 3, tools.deny changed",
        );
        check("", "description = \"d\"", "description changed");
        check(
            "",
            "drain_timeout = \"10m\"\nstop_timeout = \"1s\"",
            "drain_timeout 2s -> 10m, stop_timeout 5s -> 1s",
        );
    }

    #[test]
    fn a_disabled_server_takes_everything_as_it_is() {
        let (old, new) = (
            "command = \"x\"\nenabled = false",
            "command = \"y\"\nenabled = false",
        );
        check(old, new, &["live x: [\"command\"]"]);
    }

    #[test]
    fn contents_count_through_their_hashes() {
        let text = "command = \"x\"\nenv_file = \"e\"\nenv.K = { file = \"k\" }";
        let with = |contents: &[(&str, &str)]| {
            let mut servers = servers(&[("x", text)]);
            let key = HashKey([1; 32]);
            for spec in servers.values_mut() {
                let hash = |(name, text): &(&str, &str)| {
                    ((*name).to_owned(), Fingerprint::of(&key, text.as_bytes()))
                };
                spec.contents = contents.iter().map(hash).collect();
            }
            servers
        };
        let old = with(&[("env_file", "1"), ("env.K", "1")]);
        assert_eq!(diff(&old, &with(&[("env_file", "1"), ("env.K", "1")])), []);
        assert_eq!(
            shown(&diff(&old, &with(&[("env_file", "2"), ("env.K", "2")]))),
            ["restart x: [\"env.K (contents)\", \"env_file (contents)\"] []"]
        );
        // Without hashes nothing is known, and nothing is assumed.
        assert_eq!(diff(&old, &with(&[])), []);
    }

    #[test]
    fn hashes_of_different_keys_differ() {
        let of = |key: u8| Fingerprint::of(&HashKey([key; 32]), b"contents");
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
        assert_eq!(of(1).to_string().len(), 16);
        assert_eq!(format!("{:?}", HashKey([7; 32])), "HashKey(‹…›)");
    }

    proptest! {
        #[test]
        fn each_server_is_named_at_most_once_and_only_if_it_differs(
            old in prop::collection::btree_map("[a-d]", "command = \"[xy]\"\n(enabled = false\n)?(max_calls = 1)?", 0..4),
            new in prop::collection::btree_map("[a-d]", "command = \"[xy]\"\n(enabled = false\n)?(max_calls = 1)?", 0..4),
        ) {
            let read = |files: &BTreeMap<String, String>| {
                let files: Vec<(&str, &str)> =
                    files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
                servers(&files)
            };
            let (old, new) = (read(&old), read(&new));
            let changes = diff(&old, &new);
            let mut named: Vec<&ServerName> = changes.iter().map(Change::name).collect();
            named.sort();
            let mut differing: Vec<&ServerName> =
                old.keys().chain(new.keys()).filter(|name| old.get(name) != new.get(name)).collect();
            differing.sort();
            differing.dedup();
            prop_assert_eq!(named, differing);
            prop_assert!(diff(&new, &new).is_empty());
        }
    }
}
