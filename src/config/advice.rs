//! What is valid and probably not meant: the warnings of `mcpd check`.
//!
//! It looks at the text of one file alone, so that it can warn of a file that has errors too. It
//! never keeps a server from running, and it shows no literal secret that it finds.

use std::ops::Range;

use toml::de::{DeTable, DeValue};

use super::arg_secrets::{looks_like_secret, secret_arguments};
use super::diagnostics::{Code, Diagnostic, Severity, SourceText};
use super::environment::is_passed_to_daemon;
use super::keys::SERVER_KEYS;
use super::look_alikes::{find_braced, find_look_alikes};
use super::table::quoted_words;

/// The keys whose strings are expanded, and those whose strings are not but look as if.
const EXPANDED_KEYS: [&str; 4] = ["command", "args", "cwd", "env"];
const LITERAL_KEYS: [&str; 4] = ["path", "env_file", "pass_env", "stop_command"];

/// Variables that editors fill in, without the `env:` and `input:` kinds, which are errors.
const EDITOR_VARIABLES: [&str; 8] = [
    "workspaceFolder",
    "workspaceRoot",
    "workspaceFolderBasename",
    "userHome",
    "fileDirname",
    "pathSeparator",
    "selectedText",
    "cwd",
];

const SHELLS: [&str; 7] = ["sh", "bash", "dash", "zsh", "fish", "ksh", "busybox"];

/// Options of `docker run` that take the next word.
const CONTAINER_VALUE_OPTIONS: [&str; 38] = [
    "-e",
    "--env",
    "--env-file",
    "-v",
    "--volume",
    "--mount",
    "--name",
    "--network",
    "--net",
    "-p",
    "--publish",
    "-w",
    "--workdir",
    "-u",
    "--user",
    "--entrypoint",
    "-l",
    "--label",
    "--platform",
    "--add-host",
    "-m",
    "--memory",
    "--cpus",
    "--gpus",
    "--device",
    "--security-opt",
    "--cap-add",
    "--cap-drop",
    "--tmpfs",
    "--ulimit",
    "--pull",
    "--ipc",
    "--shm-size",
    "--dns",
    "-h",
    "--hostname",
    "--log-driver",
    "--runtime",
];

/// One file to be looked at.
#[derive(Clone, Copy, Debug)]
pub struct Reading<'s> {
    pub source: &'s SourceText,
    /// Whether others than its owner may read the file.
    pub readable_by_others: bool,
}

/// All warnings about a server's file, from top to bottom.
pub fn advise(reading: &Reading<'_>) -> Vec<Diagnostic> {
    let (table, _) = DeTable::parse_recoverable(reading.source.text());
    let table = table.into_inner();
    let mut advice = Advice {
        source: reading.source,
        warnings: Vec::new(),
    };
    let words = command_words(&table);
    let runs_script = runs_shell_script(&words);
    let strings = strings(&table);
    for string in &strings {
        match is_of_source(string) {
            true => advice.unexpanded(string, runs_script_of(string, &strings)),
            false => advice.look_alikes(string, runs_script),
        }
        advice.tilde(string);
        advice.passed(string);
    }
    advice.misplaced_keys(&table);
    advice.npx(&words);
    advice.container(&words);
    advice.several_words(&words);
    advice.argument_secrets(&words);
    if reading.readable_by_others {
        advice.open_file(&table, &words);
    }
    Diagnostic::sort(&mut advice.warnings);
    advice.warnings
}

/// Where the string at `key` stands, such as `env.KEY.file` or `pass_env[1]`.
pub(super) fn find_string(source: &SourceText, key: &str) -> Option<Range<usize>> {
    let (table, _) = DeTable::parse_recoverable(source.text());
    let table = table.into_inner();
    let found = strings(&table).into_iter().find(|string| string.key == key);
    found.map(|string| string.span)
}

/// One string of the file.
struct Text<'t> {
    /// The key at the top level.
    top: &'t str,
    key: String,
    text: &'t str,
    span: Range<usize>,
}

/// The command (first) and its arguments, as far as they are strings.
fn command_words<'t>(table: &'t DeTable<'_>) -> Vec<Text<'t>> {
    let of_key = |key: &'static str| {
        strings(table)
            .into_iter()
            .filter(move |text| text.top == key)
    };
    let Some(command) = of_key("command").next() else {
        return Vec::new();
    };
    std::iter::once(command).chain(of_key("args")).collect()
}

/// All strings of the file in the order of the text.
fn strings<'t>(table: &'t DeTable<'_>) -> Vec<Text<'t>> {
    let mut found = Vec::new();
    for (name, value) in table {
        let name: &str = name.get_ref();
        collect(
            name,
            name.to_owned(),
            value.get_ref(),
            value.span(),
            &mut found,
        );
    }
    found.sort_by_key(|text| text.span.start);
    found
}

fn collect<'t>(
    top: &'t str,
    key: String,
    value: &'t DeValue<'_>,
    span: Range<usize>,
    found: &mut Vec<Text<'t>>,
) {
    match value {
        DeValue::String(text) => found.push(Text {
            top,
            key,
            text,
            span,
        }),
        DeValue::Array(array) => {
            for (at, value) in array.iter().enumerate() {
                collect(
                    top,
                    format!("{key}[{at}]"),
                    value.get_ref(),
                    value.span(),
                    found,
                );
            }
        }
        DeValue::Table(table) => {
            for (name, value) in table {
                collect(
                    top,
                    format!("{key}.{}", name.get_ref()),
                    value.get_ref(),
                    value.span(),
                    found,
                );
            }
        }
        _ => {}
    }
}

/// Whether a shell gets a script as an argument, in which `$` and blanks are its own.
fn runs_shell_script(words: &[Text<'_>]) -> bool {
    let shell = words
        .iter()
        .any(|word| SHELLS.contains(&program_name(word.text)));
    shell && words.iter().any(|word| is_script_flag(word.text))
}

/// Whether a string is not a value of `[env]` but says where one comes from.
fn is_of_source(string: &Text<'_>) -> bool {
    string.top == "env" && (string.key.ends_with(".file") || string.key.contains(".command["))
}

/// Whether a string is one of the words of a command that gives a value, by a shell's script.
fn runs_script_of(string: &Text<'_>, all: &[Text<'_>]) -> bool {
    let Some(at) = string.key.rfind('[') else {
        return false;
    };
    let command = &string.key[..=at];
    let words = all.iter().filter(|one| one.key.starts_with(command));
    let mut words = words.map(|word| word.text).peekable();
    words
        .peek()
        .is_some_and(|first| SHELLS.contains(&program_name(first)))
        && words.any(is_script_flag)
}

fn is_script_flag(word: &str) -> bool {
    let letters = word.strip_prefix('-').unwrap_or_default();
    matches!(word, "--eval" | "--command")
        || (letters.len() <= 3 && letters.ends_with(['c', 'e']) && !letters.starts_with('-'))
}

fn program_name(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

struct Advice<'s> {
    source: &'s SourceText,
    warnings: Vec<Diagnostic>,
}

impl Advice<'_> {
    fn warn(&mut self, span: Range<usize>, key: &str, message: String, hint: String) {
        let warning = self
            .source
            .diagnostic(Severity::Warning, Code::Advice, span, key, message);
        self.warnings.push(warning.with_hint(hint));
    }

    /// Variables as other hosts and shells write them.
    fn look_alikes(&mut self, string: &Text<'_>, runs_script: bool) {
        if LITERAL_KEYS.contains(&string.top) {
            if let Some((form, _)) = find_braced(string.text) {
                let hint = match string.top {
                    "path" | "env_file" => "`~/` at its start is the home directory",
                    _ => "write it out",
                };
                let message = format!("`{form}` is not expanded in `{}`", string.top);
                self.warn(string.span.clone(), &string.key, message, hint.to_owned());
            }
        } else if !EXPANDED_KEYS.contains(&string.top) {
            return;
        }
        if let Some((form, name)) =
            find_braced(string.text).filter(|(_, name)| EDITOR_VARIABLES.contains(name))
        {
            let message = format!("`{form}` is an editor's; `{name}` is not set by mcpd");
            self.warn(
                string.span.clone(),
                &string.key,
                message,
                "write the path out".to_owned(),
            );
        }
        if runs_script && string.top == "args" {
            return;
        }
        for (form, name) in find_look_alikes(string.text) {
            let message = format!("`{form}` is passed on as it stands");
            self.warn(
                string.span.clone(),
                &string.key,
                message,
                format!("write `${{{name}}}` for the variable"),
            );
        }
    }

    /// `~/` where it is not at the start of what is expanded.
    fn tilde(&mut self, string: &Text<'_>) {
        let inside = string.top == "args" && string.text.contains("=~/");
        let of_env = string.top == "env" && string.text.starts_with("~/") && !is_of_source(string);
        if inside || of_env {
            let message = format!("`~/` is not expanded in `{}`", string.key);
            self.warn(
                string.span.clone(),
                &string.key,
                message,
                "write `${HOME}/`".to_owned(),
            );
        }
    }

    /// Variables where a value's file or command is named.
    fn unexpanded(&mut self, string: &Text<'_>, runs_script: bool) {
        let braced = find_braced(string.text).map(|(form, _)| form.to_owned());
        let alike = || Some(find_look_alikes(string.text).into_iter().next()?.0);
        let Some(form) = braced.or_else(alike).filter(|_| !runs_script) else {
            return;
        };
        let hint = match string.key.ends_with(".file") {
            true => "`~/` at its start is the home directory",
            false => {
                "`~/` at its start is the home directory; \
                 for more write command = [\"sh\", \"-c\", \"…\"]"
            }
        };
        let message = format!("`{form}` is not expanded in `{}`", string.key);
        self.warn(string.span.clone(), &string.key, message, hint.to_owned());
    }

    /// Variables that a daemon has only if whoever started it had them.
    fn passed(&mut self, string: &Text<'_>) {
        if string.top != "pass_env" || is_passed_to_daemon(string.text) {
            return;
        }
        let message = format!(
            "only a daemon that was started with `{}` has it",
            string.text
        );
        let hint = "one that starts by itself has HOME, PATH and the like; \
                    `env_file`, { file = … } and { command = … } work for both";
        self.warn(string.span.clone(), &string.key, message, hint.to_owned());
    }

    /// A key of the server below `[env]`, since it stands after that header.
    fn misplaced_keys(&mut self, table: &DeTable<'_>) {
        let Some(env) = table.get("env").and_then(|env| env.get_ref().as_table()) else {
            return;
        };
        for name in env
            .keys()
            .filter(|name| SERVER_KEYS.contains(&&**name.get_ref()))
        {
            let key = name.get_ref();
            let message = format!("`{key}` is a variable here, since it stands below `[env]`");
            self.warn(
                name.span(),
                &format!("env.{key}"),
                message,
                format!("to set the key `{key}`, put it above `[env]`"),
            );
        }
    }

    fn npx(&mut self, words: &[Text<'_>]) {
        let at = words
            .iter()
            .enumerate()
            .position(|(at, word)| match program_name(word.text) {
                "npx" => true,
                "npm" => words
                    .get(at + 1)
                    .is_some_and(|next| matches!(next.text, "exec" | "x")),
                _ => false,
            });
        let Some(at) = at else { return };
        let agreed = words[at..]
            .iter()
            .any(|word| matches!(word.text, "-y" | "--yes" | "--no" | "--no-install"));
        if !agreed {
            let message = format!(
                "`{}` without `-y` may wait for an answer on stdin",
                program_name(words[at].text)
            );
            let word = &words[at];
            self.warn(
                word.span.clone(),
                &word.key,
                message,
                "put \"-y\" first in `args`".to_owned(),
            );
        }
    }

    fn container(&mut self, words: &[Text<'_>]) {
        let Some(engine) = words
            .iter()
            .position(|word| matches!(program_name(word.text), "docker" | "podman"))
        else {
            return;
        };
        let after = &words[engine + 1..];
        let Some(run) = after
            .iter()
            .position(|word| !word.text.starts_with('-'))
            .filter(|at| after[*at].text == "run")
        else {
            return;
        };
        let options = container_options(&after[run + 1..]);
        let has = |long: &str, short: Option<char>| {
            options.iter().any(|option| {
                option.text.split('=').next() == Some(long)
                    || short.is_some_and(|short| has_letter(option.text, short))
            })
        };
        let word = &after[run];
        let missing = [
            ("--rm", None, "the container is kept after its end"),
            ("--interactive", Some('i'), "the server gets no stdin"),
            (
                "--init",
                None,
                "the server may not see the signal that ends it",
            ),
        ];
        for (long, short, effect) in missing {
            if !has(long, short) {
                let option = short.map_or_else(|| long.to_owned(), |short| format!("-{short}"));
                let message = format!(
                    "`{} run` without `{option}`: {effect}",
                    program_name(words[engine].text)
                );
                self.warn(
                    word.span.clone(),
                    &word.key,
                    message,
                    format!("add \"{option}\" after \"run\""),
                );
            }
        }
        if let Some(option) = options
            .iter()
            .find(|option| option.text == "--tty" || has_letter(option.text, 't'))
        {
            let message = format!("`{}` asks for a terminal, and there is none", option.text);
            self.warn(
                option.span.clone(),
                &option.key,
                message,
                "take the `t` out".to_owned(),
            );
        }
        if let Some(option) = options
            .iter()
            .find(|option| option.text == "--detach" || has_letter(option.text, 'd'))
        {
            let message = format!(
                "`{}` detaches the server from its stdin and stdout",
                option.text
            );
            self.warn(
                option.span.clone(),
                &option.key,
                message,
                "take it out".to_owned(),
            );
        }
    }

    /// Arguments that were probably meant as several.
    fn several_words(&mut self, words: &[Text<'_>]) {
        for pair in words.windows(2) {
            let (before, word) = (&pair[0], &pair[1]);
            let is_flag =
                before.text.starts_with("--") && !before.text.contains(['=', ' ', '\t', '\n']);
            let is_value = is_flag || is_script_flag(before.text);
            if !word.text.trim().contains(char::is_whitespace) || is_value {
                continue;
            }
            let first = word.text.split_whitespace().next().unwrap_or_default();
            let is_path = word.text.starts_with(['/', '~', '.']) && !word.text.contains(" -");
            let is_assignment = first.contains('=') || first.ends_with(':');
            if !is_path && !is_assignment {
                let message = format!(
                    "`{}` holds several words and is passed as one argument",
                    word.key
                );
                let hint = format!(
                    "if they are several arguments, write {}",
                    quoted_words(word.text)
                );
                self.warn(word.span.clone(), &word.key, message, hint);
            }
        }
    }

    fn argument_secrets(&mut self, words: &[Text<'_>]) {
        let texts: Vec<&str> = words.iter().map(|word| word.text).collect();
        for (at, _) in secret_arguments(&texts) {
            let word = &words[at];
            let message = format!(
                "`{}` holds a secret, which every user of this machine can see",
                word.key
            );
            let hint = "pass it in `[env]`, best as { file = … } or { command = … }".to_owned();
            self.warn(word.span.clone(), &word.key, message, hint);
        }
    }

    /// Literal secrets in a file that others can read.
    fn open_file(&mut self, table: &DeTable<'_>, words: &[Text<'_>]) {
        let texts: Vec<&str> = words.iter().map(|word| word.text).collect();
        let in_args = secret_arguments(&texts)
            .first()
            .map(|(at, _)| (words[*at].span.clone(), words[*at].key.clone()));
        let in_env = strings(table).into_iter().find_map(|string| {
            let name = string
                .key
                .strip_prefix("env.")
                .filter(|name| !name.contains('.'))?;
            let literal = !string.text.contains("${");
            (literal && looks_like_secret(name, string.text))
                .then(|| (string.span.clone(), string.key.clone()))
        });
        if let Some((span, key)) = in_env.or(in_args) {
            let message = format!("others can read this file, and `{key}` holds a secret");
            self.warn(
                span,
                &key,
                message,
                format!("chmod 600 {}", self.source.file().display()),
            );
        }
    }
}

/// The options up to the image.
fn container_options<'w, 't>(words: &'w [Text<'t>]) -> Vec<&'w Text<'t>> {
    let mut options = Vec::new();
    let mut at = 0;
    while let Some(word) = words.get(at).filter(|word| word.text.starts_with('-')) {
        at += if CONTAINER_VALUE_OPTIONS.contains(&word.text) {
            2
        } else {
            1
        };
        options.push(word);
    }
    options
}

/// Whether `option` is a group of letters such as `-it` with `letter` in it.
fn has_letter(option: &str, letter: char) -> bool {
    let Some(letters) = option.strip_prefix('-') else {
        return false;
    };
    letters.chars().all(|known| "itdqP".contains(known)) && letters.contains(letter)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::path::Path;

    fn advice_on(text: &str, readable_by_others: bool) -> Vec<Diagnostic> {
        let source = SourceText::new(Path::new("/c/servers.d/x.toml"), text);
        advise(&Reading {
            source: &source,
            readable_by_others,
        })
    }

    /// Lines and messages.
    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        let shown: Vec<String> = advice_on(text, false)
            .iter()
            .map(|warning| format!("{}: {}", warning.place.unwrap().line, warning.message))
            .collect();
        assert_eq!(shown, expected);
    }

    #[test]
    fn each_look_alike_is_named_with_its_line() {
        check(
            "command = \"$CMD\"\nargs = [\n  \"{{ROOT}}\",\n  \"%APPDATA%/x\",\n  \"${workspaceFolder}\",\n]\n[env]\nA = \"$HOME/x\"\n",
            &[
                "1: `$CMD` is passed on as it stands",
                "3: `{{ROOT}}` is passed on as it stands",
                "4: `%APPDATA%` is passed on as it stands",
                "5: `${workspaceFolder}` is an editor's; `workspaceFolder` is not set by mcpd",
                "8: `$HOME` is passed on as it stands",
            ],
        );
    }

    #[test]
    fn what_is_no_variable_is_left_alone() {
        check(
            "command = \"x\"\nargs = [\"a$\", \"$5\", \"$${A}\", \"100%\", \"%C3%A9%20\", \"{{\", \"${A}\"]",
            &[],
        );
        check(
            "command = \"sh\"\nargs = [\"-c\", \"echo $HOME; exec srv\"]",
            &[],
        );
        check("command = \"x\"\ndescription = \"$HOME\"", &[]);
    }

    #[test]
    fn keys_that_are_not_expanded_are_named() {
        check(
            "command = \"x\"\npath = [\"${HOME}/bin\"]\nenv_file = \"${X}/.env\"",
            &[
                "2: `${HOME}` is not expanded in `path`",
                "3: `${X}` is not expanded in `env_file`",
            ],
        );
    }

    #[test]
    fn a_tilde_inside_is_named() {
        check(
            "command = \"x\"\nargs = [\"~/data\", \"--dir=~/data\", \"a~b\"]\n[env]\nD = \"~/d\"\nF = { file = \"~/f\" }",
            &[
                "2: `~/` is not expanded in `args[1]`",
                "4: `~/` is not expanded in `env.D`",
            ],
        );
    }

    #[test]
    fn where_a_value_comes_from_is_not_expanded() {
        check(
            "command = \"x\"\n[env]\nA = { command = [\"~/bin/a\", \"~/a\"] }\n\
             B = { command = [\"b\", \"${HOME}/b\"] }\nC = { file = \"$HOME/c\" }\n\
             D = { command = [\"sh\", \"-c\", \"echo ${D} $D\"] }\nE = { command = [\"e\", \"$E\"] }",
            &[
                "4: `${HOME}` is not expanded in `env.B.command[1]`",
                "5: `$HOME` is not expanded in `env.C.file`",
                "7: `$E` is not expanded in `env.E.command[1]`",
            ],
        );
    }

    #[test]
    fn what_a_daemon_may_lack_is_named() {
        check(
            "command = \"x\"\npass_env = [\n\"PATH\", \"LC_ALL\", \"HTTP_PROXY\",\n\"GITHUB_TOKEN\"]",
            &["4: only a daemon that was started with `GITHUB_TOKEN` has it"],
        );
    }

    #[test]
    fn npx_needs_to_be_told_yes() {
        check(
            "command = \"npx\"\nargs = [\"server\"]",
            &["1: `npx` without `-y` may wait for an answer on stdin"],
        );
        check("command = \"/n/bin/npx\"\nargs = [\"-y\", \"server\"]", &[]);
        check("command = \"npx\"\nargs = [\"--yes\", \"server\"]", &[]);
        check(
            "command = \"env\"\nargs = [\"npm\", \"exec\", \"server\"]",
            &["2: `npm` without `-y` may wait for an answer on stdin"],
        );
    }

    #[test]
    fn a_container_must_end_with_its_server() {
        check(
            "command = \"docker\"\nargs = [\"run\", \"-it\", \"-e\", \"A\", \"image\", \"--rm\"]",
            &[
                "2: `docker run` without `--rm`: the container is kept after its end",
                "2: `docker run` without `--init`: the server may not see the signal that ends it",
                "2: `-it` asks for a terminal, and there is none",
            ],
        );
        check(
            "command = \"docker\"\nargs = [\"run\", \"--rm\", \"-i\", \"--init\", \"image\", \"-t\"]",
            &[],
        );
        check(
            "command = \"podman\"\nargs = [\"run\", \"--rm\", \"--init\", \"image\"]",
            &["2: `podman run` without `-i`: the server gets no stdin"],
        );
        check("command = \"docker\"\nargs = [\"ps\"]", &[]);
    }

    #[test]
    fn an_argument_of_several_words_is_named() {
        check(
            "command = \"x\"\nargs = [\"server.py --debug\", \"--port 80\", \"two words\"]",
            &[
                "2: `args[0]` holds several words and is passed as one argument",
                "2: `args[1]` holds several words and is passed as one argument",
                "2: `args[2]` holds several words and is passed as one argument",
            ],
        );
        check(
            "command = \"x\"\nargs = [\"/My Files/x\", \"--header\", \"X: a b\", \"--m=a b\", \"A: b\"]",
            &[],
        );
        check("command = \"sh\"\nargs = [\"-c\", \"a b\"]", &[]);
        assert_eq!(
            advice_on("command = \"x\"\nargs = [\"-y pkg\"]", false)[0]
                .hint
                .as_deref(),
            Some("if they are several arguments, write \"-y\", \"pkg\"")
        );
    }

    #[test]
    fn a_secret_in_args_is_named_and_not_shown() {
        let warnings = advice_on(
            "command = \"x\"\nargs = [\"--password\", \"hunter2-hunter2\", \"--token=abc\"]",
            false,
        );
        let shown: Vec<String> = warnings.iter().map(Diagnostic::to_string).collect();
        assert_eq!(
            shown,
            [
                concat!(
                    "/c/servers.d/x.toml:2:23: warning: `args[1]` holds a secret, which every user of this machine can see\n",
                    "  |\n",
                    "2 | args = [\"--password\", \"‹…›\", \"--token=‹…›\"]\n",
                    "  |                       ^^^^^\n",
                    "  = pass it in `[env]`, best as { file = … } or { command = … }",
                ),
                concat!(
                    "/c/servers.d/x.toml:2:42: warning: `args[2]` holds a secret, which every user of this machine can see\n",
                    "  |\n",
                    "2 | args = [\"--password\", \"‹…›\", \"--token=‹…›\"]\n",
                    "  |                              ^^^^^^^^^^^^^\n",
                    "  = pass it in `[env]`, best as { file = … } or { command = … }",
                ),
            ]
        );
    }

    #[test]
    fn a_secret_in_a_file_that_others_can_read_is_named() {
        let text = "command = \"x\"\n[env]\nMODE = \"fast\"\nAPI_KEY = \"abc\"\n";
        let warnings = advice_on(text, true);
        assert_eq!(
            warnings[0].to_string(),
            concat!(
                "/c/servers.d/x.toml:4:11: warning: others can read this file, and `env.API_KEY` holds a secret\n",
                "  |\n",
                "4 | API_KEY =‹…›\n",
                "  |          ^^^\n",
                "  = chmod 600 /c/servers.d/x.toml",
            )
        );
        assert_eq!(advice_on(text, false), []);
        assert_eq!(
            advice_on("command = \"x\"\nenv.API_KEY = \"${K}\"", true),
            []
        );
    }

    #[test]
    fn a_key_below_env_is_named() {
        check(
            "command = \"x\"\n[env]\nA = \"1\"\nrestart = \"no\"",
            &["4: `restart` is a variable here, since it stands below `[env]`"],
        );
    }

    proptest! {
        #[test]
        fn any_text_is_looked_at(text in "(command = |args = |\\[|\\]|\"|\\$|%|\\{\\{|\\}\\}|docker|run|-it|,|\n|\\PC){0,40}") {
            let source = SourceText::new(Path::new("/c/x.toml"), &text);
            advise(&Reading { source: &source, readable_by_others: true });
        }
    }
}
