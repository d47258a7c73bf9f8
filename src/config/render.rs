//! The text of a server's file and of the file with its secrets, for commands that write them.
//!
//! It decides the order of the keys and how a value is quoted. It never decides what a server is:
//! the texts it is given are templates already (see [`expand`](super::expand)).

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::table::quote;

/// Longer arrays get a line an element.
const ARRAY_WIDTH_CHARS: usize = 80;

/// What a new server's file is to hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewServer {
    pub command: String,
    pub args: Vec<String>,
    pub cwd: Option<String>,
    pub description: Option<String>,
    pub is_disabled: bool,
    pub env_file: Option<String>,
    pub pass_env: Vec<String>,
    pub env: BTreeMap<String, NewValue>,
}

/// The value of a variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NewValue {
    Text(String),
    /// The contents of a file.
    File(String),
}

/// The text of a server's file.
pub fn render_server(server: &NewServer) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let mut line = |key: &str, value: String| _ = writeln!(text, "{key} = {value}");
    line("command", quote(&server.command));
    if !server.args.is_empty() {
        line("args", render_array(&server.args));
    }
    if let Some(cwd) = &server.cwd {
        line("cwd", quote(cwd));
    }
    if let Some(description) = &server.description {
        line("description", quote(description));
    }
    if server.is_disabled {
        line("enabled", "false".to_owned());
    }
    if let Some(env_file) = &server.env_file {
        line("env_file", quote(env_file));
    }
    if !server.pass_env.is_empty() {
        line("pass_env", render_array(&server.pass_env));
    }
    if !server.env.is_empty() {
        text.push_str("\n[env]\n");
    }
    for (name, value) in &server.env {
        let value = match value {
            NewValue::Text(value) => quote(value),
            NewValue::File(file) => format!("{{ file = {} }}", quote(file)),
        };
        _ = writeln!(text, "{} = {value}", render_key(name));
    }
    text
}

fn render_array(words: &[String]) -> String {
    let words: Vec<String> = words.iter().map(|word| quote(word)).collect();
    let on_one_line = format!("[{}]", words.join(", "));
    if on_one_line.chars().count() <= ARRAY_WIDTH_CHARS {
        return on_one_line;
    }
    format!("[\n    {},\n]", words.join(",\n    "))
}

fn render_key(name: &str) -> String {
    let bare = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    match !name.is_empty() && name.bytes().all(bare) {
        true => name.to_owned(),
        false => quote(name),
    }
}

/// The lines of an `env_file`, which [`parse_env_file`](super::env_file::parse_env_file) reads as the
/// same pairs.
pub fn render_env_file(pairs: &BTreeMap<String, String>) -> String {
    let mut text = String::new();
    for (name, value) in pairs {
        // Writing to a string cannot fail.
        _ = writeln!(text, "{name}={}", quote_env_value(value));
    }
    text
}

fn quote_env_value(value: &str) -> String {
    let is_plain =
        |character: char| character.is_ascii_alphanumeric() || "_-./:@%+,=~^".contains(character);
    if !value.is_empty() && value.chars().all(is_plain) {
        return value.to_owned();
    }
    let mut quoted = String::from('"');
    for character in value.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '$' => quoted.push_str("\\$"),
            character => quoted.push(character),
        }
    }
    quoted.push('"');
    quoted
}

/// `text` so that a template says just that.
pub fn escape_template(text: &str) -> String {
    text.replace("${", "$${")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::env_file::parse_env_file;
    use proptest::prelude::*;

    #[test]
    fn a_file_reads_as_in_the_documentation() {
        let server = NewServer {
            command: "npx".to_owned(),
            args: vec!["-y".to_owned(), "say \"hi\"".to_owned()],
            cwd: Some("/srv/a b".to_owned()),
            env_file: Some("x.env".to_owned()),
            is_disabled: true,
            env: [
                ("A".to_owned(), NewValue::Text("tab\there".to_owned())),
                ("odd name".to_owned(), NewValue::File("~/.key".to_owned())),
            ]
            .into(),
            ..NewServer::default()
        };
        let expected = "command = \"npx\"\nargs = [\"-y\", \"say \\\"hi\\\"\"]\ncwd = \"/srv/a b\"\n\
            enabled = false\nenv_file = \"x.env\"\n\n[env]\nA = \"tab\\there\"\n\
            \"odd name\" = { file = \"~/.key\" }\n";
        assert_eq!(render_server(&server), expected);
    }

    #[test]
    fn a_long_array_has_a_line_an_element() {
        let words = vec!["x".repeat(50), "y".repeat(50)];
        let text = render_array(&words);
        assert_eq!(text.lines().count(), 4, "{text}");
    }

    proptest! {
        #[test]
        fn any_server_is_read_back(
            command in ".+", args in prop::collection::vec(".*", 0..4), value in ".*",
        ) {
            let server = NewServer {
                command: command.clone(),
                args: args.clone(),
                env: [("A".to_owned(), NewValue::Text(value.clone()))].into(),
                ..NewServer::default()
            };
            let table: toml::Table = render_server(&server).parse().unwrap();
            prop_assert_eq!(table["command"].as_str(), Some(command.as_str()));
            let read: Vec<&str> = table.get("args").and_then(toml::Value::as_array)
                .into_iter().flatten().filter_map(toml::Value::as_str).collect();
            prop_assert_eq!(read, args);
            prop_assert_eq!(table["env"]["A"].as_str(), Some(value.as_str()));
        }

        #[test]
        fn any_value_of_an_env_file_is_read_back(value in "[^\0]*") {
            let pairs: BTreeMap<String, String> = [("A".to_owned(), value)].into();
            let read = parse_env_file(&render_env_file(&pairs)).unwrap();
            prop_assert_eq!(read.into_iter().collect::<BTreeMap<_, _>>(), pairs);
        }
    }
}
