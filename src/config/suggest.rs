//! The key that was probably meant.
//!
//! It decides by likeness, and by what the configuration files of other MCP hosts call the same
//! thing. It never changes what was written.

/// What others call it, and what to write here.
const OTHER_NAMES: [(&str, &str); 22] = [
    ("cmd", "`command`"),
    ("program", "`command`"),
    ("executable", "`command`"),
    ("argv", "`args`"),
    ("arguments", "`args`"),
    ("environment", "`[env]`"),
    ("envs", "`[env]`"),
    ("env_vars", "`[env]`"),
    ("envfile", "`env_file`"),
    ("dotenv", "`env_file`"),
    ("directory", "`cwd`"),
    ("dir", "`cwd`"),
    ("working_dir", "`cwd`"),
    ("working_directory", "`cwd`"),
    ("workdir", "`cwd`"),
    ("disabled", "`enabled = false`"),
    ("timeout", "`request_timeout` or `start_timeout`"),
    ("allow", "`[tools] allow`"),
    ("deny", "`[tools] deny`"),
    (
        "alwaysallow",
        "nothing: hosts decide which calls need a question",
    ),
    (
        "autoapprove",
        "nothing: hosts decide which calls need a question",
    ),
    ("name", "nothing: the file's name is the server's name"),
];

/// Keys of hosts that say how a server is reached.
const TRANSPORT_NAMES: [&str; 4] = ["type", "transport", "url", "headers"];

/// A hint for a key that does not exist, if one is near.
pub(super) fn hint_for_key(key: &str, known: &[&str]) -> Option<String> {
    let plain = normal(key);
    if TRANSPORT_NAMES.contains(&plain.as_str()) {
        return Some(
            "mcpd runs local servers over stdin and stdout; there is no transport to choose"
                .to_owned(),
        );
    }
    if let Some(key) = known.iter().find(|key| normal(key) == plain) {
        return Some(format!("did you mean `{key}`?"));
    }
    if let Some((_, instead)) = OTHER_NAMES.iter().find(|(other, _)| normal(other) == plain) {
        return Some(match instead.strip_prefix("nothing: ") {
            Some(reason) => format!("take it out: {reason}"),
            None => format!("did you mean {instead}?"),
        });
    }
    nearest(key, known)
        .or_else(|| the_longer(key, known))
        .map(|key| format!("did you mean `{key}`?"))
}

/// The only key that begins with the whole word `key`.
fn the_longer<'k>(key: &str, known: &[&'k str]) -> Option<&'k str> {
    let begins = |known: &&&str| {
        known
            .strip_prefix(key)
            .is_some_and(|rest| rest.starts_with('_'))
    };
    let mut longer = known.iter().filter(begins);
    longer.next().filter(|_| longer.next().is_none()).copied()
}

/// The nearest of `known`, if it is near: a third of it may differ.
pub fn nearest<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    let plain = normal(word);
    let distance = |key: &str| strsim::damerau_levenshtein(&plain, &normal(key));
    let (key, distance) = known
        .iter()
        .map(|key| (*key, distance(key)))
        .min_by_key(|(_, distance)| *distance)?;
    (distance <= (key.len() / 3).max(1) && distance < plain.len()).then_some(key)
}

/// `startTimeout`, `start-timeout` and `start_timeout` are the same word.
fn normal(key: &str) -> String {
    // A key of any length is compared by its beginning; no key is nearly as long.
    key.chars()
        .take(64)
        .filter(|character| !"_-".contains(*character))
        .flat_map(char::to_lowercase)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(key: &str, expected: Option<&str>) {
        let known = [
            "command",
            "args",
            "cwd",
            "env",
            "env_file",
            "start_timeout",
            "stop_timeout",
            "path",
        ];
        assert_eq!(hint_for_key(key, &known).as_deref(), expected, "{key}");
    }

    #[test]
    fn slips_other_spellings_and_other_names_are_known() {
        check("comand", Some("did you mean `command`?"));
        check("commnad", Some("did you mean `command`?"));
        check("startTimeout", Some("did you mean `start_timeout`?"));
        check("start-timeout", Some("did you mean `start_timeout`?"));
        check("arg", Some("did you mean `args`?"));
        check("environment", Some("did you mean `[env]`?"));
        check("workingDirectory", Some("did you mean `cwd`?"));
        check("disabled", Some("did you mean `enabled = false`?"));
        check(
            "autoApprove",
            Some("take it out: hosts decide which calls need a question"),
        );
        check(
            "url",
            Some("mcpd runs local servers over stdin and stdout; there is no transport to choose"),
        );
        check("start", Some("did you mean `start_timeout`?"));
        check("zzz", None);
        check("", None);
        check(&"x".repeat(10_000), None);
    }
}
