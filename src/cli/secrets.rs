//! Literal secrets of a new server, taken out of its file.
//!
//! It decides which values go to the file that nobody else can read, and by which variables the
//! server's file names them. It writes nothing.

use std::collections::BTreeMap;

use crate::config::arg_secrets::secret_arguments;
use crate::config::expand::is_variable_name;
use crate::config::render::NewServer;

/// Takes literal secrets out of the arguments; a variable stands in the place of each.
pub(crate) fn move_argument_secrets(
    server: &mut NewServer,
    secrets: &mut BTreeMap<String, String>,
) {
    // A file of secrets that is somebody else's stays what it is, and there can be only one.
    if server.env_file.is_some() {
        return;
    }
    let words: Vec<String> = std::iter::once(server.command.clone())
        .chain(server.args.iter().cloned())
        .collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    for (at, start) in secret_arguments(&words) {
        let word = words[at];
        let start = start + (word[start..].len() - word[start..].trim_start().len());
        let value = &word[start..];
        let name = variable_for(words[at - 1], &word[..start], value, server, secrets);
        server.args[at - 1] = format!("{}${{{name}}}", &word[..start]);
        secrets.insert(name, value.to_owned());
    }
}

/// A name for the secret behind `--api-key` or `API_KEY=`: `API_KEY`.
fn variable_for(
    before: &str,
    start: &str,
    value: &str,
    server: &NewServer,
    secrets: &BTreeMap<String, String>,
) -> String {
    let said = match start.trim_end_matches(['=', ':', ' ']) {
        "" if before.starts_with('-') => before,
        start => start,
    };
    let upper = |character: char| match character.is_ascii_alphanumeric() {
        true => character.to_ascii_uppercase(),
        false => '_',
    };
    let said: String = said.trim_start_matches('-').chars().map(upper).collect();
    let said = said.trim_matches('_');
    let name = match is_variable_name(said) && said.len() <= 40 {
        true => said,
        false => "SECRET",
    };
    let is_free = |name: &str| {
        !server.env.contains_key(name) && secrets.get(name).is_none_or(|old| old == value)
    };
    let numbered = (2_u32..).map(|number| format!("{name}_{number}"));
    std::iter::once(name.to_owned())
        .chain(numbered)
        .find(|name| is_free(name))
        .unwrap_or_default()
}
