//! From the servers as they were to the servers as they are: what has to be done, in order.
//!
//! It decides which keys need a new child and which are applied to the running one. It never looks
//! at running processes, and a server that did not change is not in its answer.

use std::collections::{BTreeMap, BTreeSet};

use super::spec::{LaunchSpec, Policy, ServerName, ServerSpec, ToolRules};

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
        command => "command", args => "args", cwd => "cwd", env_file => "env_file",
        pass_env => "pass_env", path => "path", inherit_env => "inherit_env", proxy_env => "proxy_env",
    }, but env);
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
        restart => "restart", start_timeout => "start_timeout", drain_timeout => "drain_timeout",
        stop_timeout => "stop_timeout", stop_command => "stop_command",
        request_timeout => "request_timeout", max_calls => "max_calls",
        stable_after => "stable_after", start_limit => "start_limit",
        message_limit_bytes => "message_limit",
    }, but tools);
    keys.extend(differing!(&old.tools, &new.tools, ToolRules {
        allow => "tools.allow", deny => "tools.deny",
    }, but));
    keys
}
