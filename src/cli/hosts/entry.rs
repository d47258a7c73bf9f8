//! What an entry of a host's file means: a program that the host starts, a server somewhere else, or
//! mcpd already.
//!
//! It decides that from the entry alone, and what members make it run mcpd instead. It looks at no
//! file and no environment.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::kinds::{CommandShape, HostKind, Shape};

/// An entry as its host understands it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// The host starts this program.
    Program(Program),
    /// The host starts `mcpd connect`, for this server.
    Ours(String),
    /// Not a program of this machine that anybody could start; why.
    Other(String),
    /// Not an entry: a setting beside the entries.
    Nothing,
}

/// What a host starts, in its own words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Program {
    pub(crate) command: String,
    pub(crate) args: Vec<String>,
    pub(crate) env: BTreeMap<String, String>,
    /// Names of variables that are passed on from the host.
    pub(crate) env_names: Vec<String>,
    pub(crate) env_file: Option<String>,
    pub(crate) cwd: Option<String>,
    pub(crate) is_disabled: bool,
}

/// The members that say what is started; all others are the host's own and stay.
const LAUNCH_MEMBERS: [&str; 7] = [
    "command",
    "args",
    "env",
    "environment",
    "env_vars",
    "envFile",
    "cwd",
];

/// Reads an entry.
pub(crate) fn understand(value: &Value, shape: &Shape) -> Meaning {
    let Some(table) = value.as_object() else {
        return Meaning::Nothing;
    };
    let text = |key: &str| table.get(key).and_then(Value::as_str);
    if let Some(address) = shape.addresses.iter().find_map(|key| text(key)) {
        return Meaning::Other(format!("is not local: {}", shown_address(address)));
    }
    if let Some(kind) = text("type").or_else(|| text("transport"))
        && !matches!(kind, "stdio" | "local")
    {
        return Meaning::Other(format!("has the type \"{kind}\", which starts no program"));
    }
    let Some(command) = table.get("command") else {
        return match text("source") {
            Some("extension") => Meaning::Other("belongs to an extension of the host".to_owned()),
            _ if table.contains_key("type") || table.contains_key("args") => {
                Meaning::Other("has no `command`".to_owned())
            }
            // A table of servers, a toggle of one that is elsewhere, a setting.
            _ => Meaning::Nothing,
        };
    };
    match read_program(table, command, shape) {
        Ok(program) => match our_server(&program) {
            Some(server) => Meaning::Ours(server),
            None => Meaning::Program(program),
        },
        Err(why) => Meaning::Other(why),
    }
}

/// The address without what may be a secret in it.
fn shown_address(address: &str) -> String {
    let end = address.find(['?', '#']).unwrap_or(address.len());
    let address = &address[..end];
    match address.split_once("://") {
        Some((scheme, rest)) => {
            let host = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
            format!("{scheme}://{host}")
        }
        None => address.to_owned(),
    }
}

fn read_program(
    table: &Map<String, Value>,
    command: &Value,
    shape: &Shape,
) -> Result<Program, String> {
    // An older form: all of it below `command`.
    if let Some(inner) = command.as_object() {
        let Some(path) = inner.get("path") else {
            return Err("has a `command` without a `path`".to_owned());
        };
        return read_words(inner, path, shape, is_off(table, shape));
    }
    read_words(table, command, shape, is_off(table, shape))
}

fn is_off(table: &Map<String, Value>, shape: &Shape) -> bool {
    let is = |(key, off): &(&str, bool)| table.get(*key).and_then(Value::as_bool) == Some(*off);
    shape.off.iter().any(is)
}

fn read_words(
    table: &Map<String, Value>,
    command: &Value,
    shape: &Shape,
    is_disabled: bool,
) -> Result<Program, String> {
    let mut words = match command {
        Value::String(command) => vec![command.clone()],
        other => strings(other).ok_or("has a `command` that is no text")?,
    };
    if let Some(args) = table.get("args").filter(|args| !args.is_null()) {
        words.extend(strings(args).ok_or("has `args` that are not all text")?);
    }
    if words.first().is_none_or(String::is_empty) {
        return Err("has an empty `command`".to_owned());
    }
    let command = words.remove(0);
    let text = |key: &str| match table.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(format!("has a `{key}` that is no text")),
    };
    Ok(Program {
        command,
        args: words,
        env: variables(table.get(shape.env), shape.env)?,
        env_names: shape
            .env_names
            .and_then(|key| table.get(key))
            .map(variable_names)
            .unwrap_or_default(),
        env_file: text("envFile")?,
        cwd: text("cwd")?,
        is_disabled,
    })
}

fn strings(value: &Value) -> Option<Vec<String>> {
    let text = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        // Hosts pass a number as it is written.
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    value.as_array()?.iter().map(text).collect()
}

fn variables(value: Option<&Value>, key: &str) -> Result<BTreeMap<String, String>, String> {
    let table = match value {
        None | Some(Value::Null) => return Ok(BTreeMap::new()),
        Some(Value::Object(table)) => table,
        Some(_) => return Err(format!("has an `{key}` that is no table")),
    };
    let mut variables = BTreeMap::new();
    for (name, value) in table {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Number(_) | Value::Bool(_) => value.to_string(),
            // VS Code takes a variable away by null; nothing is there to be taken away here.
            Value::Null => continue,
            _ => return Err(format!("has a `{key}.{name}` that is no text")),
        };
        variables.insert(name.clone(), text);
    }
    Ok(variables)
}

/// `["A", { name = "B" }]`
fn variable_names(value: &Value) -> Vec<String> {
    let name = |value: &Value| {
        let name = value.as_str().or_else(|| value.get("name")?.as_str())?;
        Some(name.to_owned())
    };
    value
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(name)
        .collect()
}

/// The server of an entry that runs `mcpd [FLAGS] connect NAME`.
fn our_server(program: &Program) -> Option<String> {
    let is_mcpd = program.command.rsplit('/').next() == Some("mcpd");
    let at = program.args.iter().position(|word| word == "connect")?;
    let name = program.args.get(at + 1)?;
    (is_mcpd && !name.starts_with('-')).then(|| name.clone())
}

/// What an entry starts in place of its server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Connect {
    /// `mcpd`, or where it is.
    pub(crate) program: String,
    /// What stands before `connect`.
    pub(crate) flags: Vec<String>,
    pub(crate) server: String,
}

impl Connect {
    fn args(&self) -> Vec<String> {
        let words = ["connect".to_owned(), self.server.clone()];
        self.flags.iter().cloned().chain(words).collect()
    }
}

/// The members that make an entry run mcpd.
pub(crate) fn connect_members(
    connect: &Connect,
    host: &HostKind,
) -> Vec<(&'static str, Option<Value>)> {
    let mut members = match host.shape.command {
        CommandShape::Apart => vec![
            ("command", Some(json!(connect.program))),
            ("args", Some(json!(connect.args()))),
        ],
        CommandShape::Together => {
            let words: Vec<String> = std::iter::once(connect.program.clone())
                .chain(connect.args())
                .collect();
            vec![("command", Some(json!(words))), ("args", None)]
        }
    };
    let rest = LAUNCH_MEMBERS.iter().skip(2);
    members.extend(rest.map(|name| (*name, None)));
    members
}

/// An entry that runs mcpd where there was none.
pub(crate) fn connect_entry(connect: &Connect, host: &HostKind) -> Map<String, Value> {
    let kind = host.shape.kind.map(|(key, value)| (key, json!(value)));
    let members = connect_members(connect, host);
    let members = members
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)));
    kind.into_iter()
        .chain(members)
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

/// The members that put what `before` started back, and leave the others.
pub(crate) fn members_of(before: &Value) -> Vec<(&'static str, Option<Value>)> {
    LAUNCH_MEMBERS
        .iter()
        .map(|name| (*name, before.get(name).cloned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::hosts::kinds::find_host;

    #[track_caller]
    fn check(host: &str, entry: Value) -> Meaning {
        understand(&entry, &find_host(host).unwrap().shape)
    }

    #[test]
    fn programs_are_read_in_every_shape() {
        let expected = Program {
            command: "npx".to_owned(),
            args: vec!["-y".to_owned(), "srv".to_owned()],
            env: [("A".to_owned(), "1".to_owned())].into(),
            ..Program::default()
        };
        for (host, entry) in [
            (
                "cursor",
                json!({"command": "npx", "args": ["-y", "srv"], "env": {"A": 1}}),
            ),
            (
                "zed",
                json!({"command": {"path": "npx", "args": ["-y", "srv"], "env": {"A": "1"}}}),
            ),
            (
                "opencode",
                json!({"type": "local", "command": ["npx", "-y", "srv"], "environment": {"A": "1"}}),
            ),
        ] {
            assert_eq!(check(host, entry), Meaning::Program(expected.clone()));
        }
    }

    #[test]
    fn what_is_no_program_is_told_apart() {
        let other = |host, entry| match check(host, entry) {
            Meaning::Other(why) => why,
            meaning => panic!("{meaning:?}"),
        };
        let why = other("cursor", json!({"url": "https://u:p@h/mcp?key=secret"}));
        assert_eq!(why, "is not local: https://h/mcp");
        let why = other("claude-code", json!({"type": "sse"}));
        assert_eq!(why, "has the type \"sse\", which starts no program");
        let why = other("zed", json!({"source": "extension", "settings": {}}));
        assert_eq!(why, "belongs to an extension of the host");
        let why = other("cursor", json!({"command": "x", "args": "-y"}));
        assert_eq!(why, "has `args` that are not all text");
        let toggle = check("opencode", json!({"enabled": false}));
        assert_eq!(toggle, Meaning::Nothing);
    }

    #[test]
    fn mcpd_is_known_again() {
        let connect = Connect {
            program: "/opt/mcpd".to_owned(),
            flags: vec!["--config".to_owned(), "/c".to_owned()],
            server: "git".to_owned(),
        };
        for host in crate::cli::hosts::kinds::HOSTS {
            let entry = Value::Object(connect_entry(&connect, host));
            let meaning = understand(&entry, &host.shape);
            assert_eq!(meaning, Meaning::Ours("git".to_owned()), "{entry}");
        }
    }
}
