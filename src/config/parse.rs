//! From the text of a file to a [`ServerSpec`], or to everything that is wrong with it.
//!
//! It decides which findings are told: all of a file, those of the TOML itself included, but not what
//! only follows from another. What the keys mean is in `keys`, what holds without them in `draft`. It
//! never reads a file; whether a program is there is asked of the caller.

use std::ops::Range;
use std::path::Path;

use toml::de::DeTable;

use super::diagnostics::{Code, Diagnostic, SourceText};
use super::draft::Draft;
use super::keys::KeyReader;
use super::spec::{DaemonConfig, ServerName, ServerSpec};
use super::table::Reader;

/// What the caller knows of the machine.
#[derive(Clone, Copy)]
pub struct Surroundings<'a> {
    /// The home directory, for a leading `~/`.
    pub home: &'a Path,
    /// Whether a path (absolute), or a name without a slash on the PATH, is a file.
    pub is_program: &'a dyn Fn(&Path) -> bool,
}

impl std::fmt::Debug for Surroundings<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Surroundings")
            .field("home", &self.home)
            .finish_non_exhaustive()
    }
}

/// `mcpd.toml`, valid throughout.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DaemonFile {
    pub config: DaemonConfig,
    /// What `[defaults]` says, for every server.
    pub defaults: Draft,
}

/// Reads a server's file.
///
/// # Errors
/// Everything that is wrong with it, from top to bottom.
pub fn parse_server(
    name: &ServerName,
    source: &SourceText,
    defaults: &Draft,
    surroundings: Surroundings<'_>,
) -> Result<ServerSpec, Vec<Diagnostic>> {
    let (table, mut diagnostics) = parse_text(source);
    let malformed = !diagnostics.is_empty();
    let mut keys = KeyReader {
        reader: Reader::new(source),
        surroundings,
    };
    let draft = keys.draft(&table, "").or(defaults);
    keys.refuse_second_directory(&draft, &table);
    add_quietly(&mut diagnostics, keys.reader.diagnostics);
    let has_command = table.contains_key("command") || defaults.command.is_some();
    if !has_command && !malformed && !diagnostics.iter().any(may_mean_command) {
        diagnostics.push(missing_command(source));
    }
    Diagnostic::sort(&mut diagnostics);
    cut_after_open_bracket(source, &mut diagnostics);
    match draft.into_spec(name, source.file()) {
        Some(spec) if diagnostics.is_empty() => Ok(spec),
        _ => Err(diagnostics),
    }
}

/// Reads `mcpd.toml`.
///
/// # Errors
/// Everything that is wrong with it, from top to bottom.
pub fn parse_daemon(
    source: &SourceText,
    surroundings: Surroundings<'_>,
) -> Result<DaemonFile, Vec<Diagnostic>> {
    let (table, mut diagnostics) = parse_text(source);
    let mut keys = KeyReader {
        reader: Reader::new(source),
        surroundings,
    };
    let file = keys.daemon_file(&table);
    add_quietly(&mut diagnostics, keys.reader.diagnostics);
    Diagnostic::sort(&mut diagnostics);
    cut_after_open_bracket(source, &mut diagnostics);
    if diagnostics.is_empty() {
        Ok(file)
    } else {
        Err(diagnostics)
    }
}

/// The table as far as the text is TOML, and where it is not.
fn parse_text(source: &SourceText) -> (DeTable<'_>, Vec<Diagnostic>) {
    let (table, errors) = DeTable::parse_recoverable(source.text());
    let table = table.into_inner();
    let mut diagnostics: Vec<Diagnostic> = Vec::new();
    for error in errors {
        let diagnostic = syntax_error(source, &table, &error);
        // What follows from an error on the same line is told by the first one.
        let told = |known: &Diagnostic| {
            known.place.map(|place| place.line) == diagnostic.place.map(|place| place.line)
        };
        if !diagnostics.iter().any(told) {
            diagnostics.push(diagnostic);
        }
    }
    Diagnostic::sort(&mut diagnostics);
    (table, diagnostics)
}

fn syntax_error(source: &SourceText, table: &DeTable<'_>, error: &toml::de::Error) -> Diagnostic {
    let end = source.text().len();
    let span = error.span().unwrap_or(end..end);
    if error.message() == "duplicate key" {
        return duplicate_key(source, table, span);
    }
    let diagnostic = |message: &str| source.error(Code::Syntax, span.clone(), "", message);
    if error.message().starts_with("string values must be quoted") {
        return diagnostic("not valid TOML: a string must be in quotes");
    }
    let found = diagnostic(&format!("not valid TOML: {}", error.message()));
    match source.text().trim_start().starts_with('{') {
        true => found.with_hint("this looks like JSON; write KEY = VALUE lines"),
        false => found,
    }
}

/// Everything after a bracket that is not closed was read as a part of it: what is found there says
/// nothing.
fn cut_after_open_bracket(source: &SourceText, diagnostics: &mut Vec<Diagnostic>) {
    let is_open = |found: &Diagnostic| {
        let begins_line = found.place.is_some_and(|place| {
            let line = source.line(place.line as usize - 1);
            let before = line.chars().take(place.column as usize - 1);
            before.into_iter().all(char::is_whitespace)
        });
        found.code == Code::Syntax && begins_line && found.message.contains("missing comma")
    };
    let Some(at) = diagnostics.iter().position(is_open) else {
        return;
    };
    diagnostics.truncate(at + 1);
    diagnostics[at].hint = Some("a `[` or `{` before it is not closed".to_owned());
}

fn duplicate_key(source: &SourceText, table: &DeTable<'_>, span: Range<usize>) -> Diagnostic {
    let key = source
        .text()
        .get(span.clone())
        .unwrap_or_default()
        .trim_matches(['"', '\'']);
    let before = source.text().get(..span.start).unwrap_or_default();
    let first =
        first_place_of(table, key, span.start).or_else(|| before.rfind(&format!("[{key}]")));
    let diagnostic = source.error(Code::Syntax, span, key, format!("`{key}` stands twice"));
    match first.map(|at| source.place(at).line) {
        Some(line) => diagnostic.with_hint(format!("it is on line {line} already")),
        None => diagnostic.with_hint("take one of them out"),
    }
}

/// Where the key that was read before the one at `before` stands, whichever table it is in.
fn first_place_of(table: &DeTable<'_>, key: &str, before: usize) -> Option<usize> {
    let here = table
        .iter()
        .filter(|(name, _)| name.get_ref() == key)
        .map(|(name, _)| name.span().start);
    let below = table
        .values()
        .filter_map(|value| first_place_of(value.get_ref().as_table()?, key, before));
    here.chain(below).filter(|at| *at < before).max()
}

/// Adds what is not on a line that is already told of: after a syntax error the rest of its line was
/// guessed.
fn add_quietly(diagnostics: &mut Vec<Diagnostic>, more: Vec<Diagnostic>) {
    let lines: Vec<Option<u32>> = diagnostics
        .iter()
        .map(|known| known.place.map(|place| place.line))
        .collect();
    diagnostics.extend(
        more.into_iter()
            .filter(|one| !lines.contains(&one.place.map(|place| place.line))),
    );
}

/// Whether a key was found that is probably `command` in other words; to say that it is missing too
/// would be to say the same thing twice.
fn may_mean_command(found: &Diagnostic) -> bool {
    found.code == Code::UnknownKey
        && found
            .hint
            .as_deref()
            .is_some_and(|hint| hint.contains("`command`"))
}

fn missing_command(source: &SourceText) -> Diagnostic {
    let message = match source.text().trim().is_empty() {
        true => "the file is empty: `command` is missing",
        false => "`command` is missing",
    };
    Diagnostic::file_error(Code::MissingKey, source.file(), message)
        .with_key("command")
        .at(Some(source.place(0)))
        .with_hint("write command = \"PROGRAM\"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::diagnostics::Severity;
    use crate::config::expand::Template;
    use crate::config::spec::{
        CommandValue, EnvValue, Policy, Protocol, ResourceLimits, Restart, Sharing, Start,
        ToolRules,
    };
    use proptest::prelude::*;
    use std::path::PathBuf;
    use std::time::Duration;

    const FILE: &str = "/c/servers.d/x.toml";

    /// The one file that is there.
    fn is_program(path: &Path) -> bool {
        path == Path::new("/c/servers.d/my server") || path == Path::new("two words")
    }

    fn surroundings() -> Surroundings<'static> {
        Surroundings {
            home: Path::new("/h"),
            is_program: &is_program,
        }
    }

    fn parse_with(text: &str, defaults: &Draft) -> Result<ServerSpec, Vec<Diagnostic>> {
        let name = ServerName::parse("x").unwrap();
        parse_server(
            &name,
            &SourceText::new(Path::new(FILE), text),
            defaults,
            surroundings(),
        )
    }

    fn parse(text: &str) -> ServerSpec {
        parse_with(text, &Draft::default()).unwrap()
    }

    fn parse_mcpd(text: &str) -> Result<DaemonFile, Vec<Diagnostic>> {
        parse_daemon(
            &SourceText::new(Path::new("/c/mcpd.toml"), text),
            surroundings(),
        )
    }

    fn shown(errors: Vec<Diagnostic>) -> String {
        errors
            .iter()
            .map(Diagnostic::to_string)
            .collect::<Vec<_>>()
            .join("\n")
    }

    /// Everything that is wrong with `text`, as it is printed.
    fn errors(text: &str) -> String {
        shown(parse_with(text, &Draft::default()).unwrap_err())
    }

    fn text(template: &Template) -> &str {
        template.text()
    }

    #[test]
    fn every_key_is_read() {
        let spec = parse(concat!(
            "command = \"python3\"\n",
            "args = [\"server.py\", \"--root=${ROOT}\"]\n",
            "cwd = \"~/data\"\n",
            "description = \"Four operations\"\n",
            "enabled = false\n",
            "env_file = \".env\"\n",
            "pass_env = [\"GITHUB_TOKEN\"]\n",
            "path = [\"~/.local/bin\", \"bin\", \"/opt\"]\n",
            "inherit_env = true\n",
            "proxy_env = false\n",
            "start = \"demand\"\n",
            "idle_stop = \"15m\"\n",
            "watchdog = \"2m\"\n",
            "allow_mcpd = true\n",
            "restart = \"on-failure\"\n",
            "start_timeout = \"2m\"\n",
            "drain_timeout = \"0s\"\n",
            "reload_drain_timeout = \"1m\"\n",
            "stop_timeout = \"500ms\"\n",
            "stop_command = [\"docker\", \"stop\", \"x\"]\n",
            "request_timeout = \"1m30s\"\n",
            "max_calls = 4\n",
            "stable_after = \"100ms\"\n",
            "start_limit = 3\n",
            "message_limit = \"1MiB\"\n",
            "protocol = \"modern\"\n",
            "interactive = true\n",
            "[env]\n",
            "PRECISION = \"8\"\n",
            "KEY = { file = \"~/.secrets/key\" }\n",
            "URL = { command = [\"pass\", \"show\", \"db\"] }\n",
            "[limits]\n",
            "memory = \"2GiB\"\n",
            "tasks = 64\n",
            "open_files = 1024\n",
            "[tools]\n",
            "allow = [\"read_*\"]\n",
            "deny = [\"*_all\"]\n",
        ));
        assert_eq!(
            (spec.name.as_str(), spec.file.as_path()),
            ("x", Path::new(FILE))
        );
        assert_eq!(spec.description.as_deref(), Some("Four operations"));
        assert!(!spec.enabled);
        let launch = &spec.launch;
        assert_eq!(text(&launch.command), "python3");
        assert_eq!(
            launch.args.iter().map(text).collect::<Vec<_>>(),
            ["server.py", "--root=${ROOT}"]
        );
        assert_eq!(launch.cwd.as_ref().map(text), Some("~/data"));
        assert_eq!(
            launch.env_file.as_deref(),
            Some(Path::new("/c/servers.d/.env"))
        );
        assert_eq!(launch.pass_env, ["GITHUB_TOKEN"]);
        assert_eq!(
            launch.path,
            ["/h/.local/bin", "/c/servers.d/bin", "/opt"].map(PathBuf::from)
        );
        assert!(launch.inherit_env && !launch.proxy_env);
        assert_eq!(
            launch.limits,
            ResourceLimits {
                memory_bytes: Some(2 << 30),
                tasks: Some(64),
                open_files: Some(1024),
            }
        );
        assert!(matches!(&launch.env["PRECISION"], EnvValue::Text(value) if value.text() == "8"));
        assert_eq!(launch.env["KEY"], EnvValue::File("/h/.secrets/key".into()));
        let command = CommandValue {
            argv: ["pass", "show", "db"].map(str::to_owned).to_vec(),
            folder: Path::new("/c/servers.d").into(),
        };
        assert_eq!(launch.env["URL"], EnvValue::Command(command));
        assert_eq!(
            spec.policy,
            Policy {
                start: Start::Demand,
                idle_stop: Some(Duration::from_secs(900)),
                watchdog: Some(Duration::from_secs(120)),
                allow_mcpd: true,
                restart: Restart::OnFailure,
                start_timeout: Duration::from_secs(120),
                drain_timeout: Duration::ZERO,
                reload_drain_timeout: Duration::from_secs(60),
                stop_timeout: Duration::from_millis(500),
                stop_command: Some(["docker", "stop", "x"].map(str::to_owned).to_vec()),
                request_timeout: Some(Duration::from_secs(90)),
                max_calls: Some(4),
                stable_after: Duration::from_millis(100),
                start_limit: 3,
                message_limit_bytes: 1 << 20,
                tools: ToolRules {
                    allow: Some(vec!["read_*".to_owned()]),
                    deny: vec!["*_all".to_owned()],
                },
                protocol: Protocol::Modern,
                interactive: true,
            }
        );
    }

    #[test]
    fn what_is_left_out_has_the_documented_default() {
        let spec = parse("command = \"x\"");
        assert!(spec.enabled && !spec.launch.inherit_env && spec.launch.proxy_env);
        assert_eq!(spec.launch.cwd, None);
        let policy = &spec.policy;
        assert_eq!((policy.restart, policy.start_limit), (Restart::Always, 10));
        assert_eq!((policy.start, policy.idle_stop), (Start::Boot, None));
        assert_eq!((policy.watchdog, policy.allow_mcpd), (None, false));
        let seconds = [
            policy.start_timeout,
            policy.drain_timeout,
            policy.reload_drain_timeout,
            policy.stop_timeout,
            policy.stable_after,
        ];
        assert_eq!(
            seconds.map(|duration| duration.as_secs()),
            [90, 2, 30, 5, 60]
        );
        assert_eq!((policy.request_timeout, policy.max_calls), (None, None));
        assert_eq!(
            (policy.message_limit_bytes, policy.tools.clone()),
            (64 << 20, ToolRules::default())
        );
    }

    #[test]
    fn a_byte_order_mark_and_cr_lf_do_not_count() {
        let spec = parse("\u{feff}command = \"x\"\r\nargs = [\r\n\t\"a\",\r\n]\r\n");
        assert_eq!(spec.launch.args.iter().map(text).collect::<Vec<_>>(), ["a"]);
        let place = parse_with("\u{feff}comand = 1\r\n", &Draft::default()).unwrap_err()[0].place;
        assert_eq!(place.map(|place| (place.line, place.column)), Some((1, 1)));
    }

    #[test]
    fn a_command_with_blanks_that_is_a_file_is_run_as_it_is() {
        for command in [
            "./my server",
            "/c/servers.d/my server",
            "two words",
            "${DIR}/my server",
        ] {
            let spec = parse(&format!("command = {command:?}"));
            assert_eq!(text(&spec.launch.command), command);
        }
    }

    #[test]
    fn defaults_hold_where_a_server_says_nothing() {
        let daemon = parse_mcpd(concat!(
            "path = \"/usr/bin:~/bin\"\n",
            "memory_limit = \"1GiB\"\n",
            "[defaults]\n",
            "cwd = \"shared\"\n",
            "stop_timeout = \"9s\"\n",
            "restart = \"no\"\n",
            "env = { A = \"default\", B = \"default\" }\n",
            "tools = { deny = [\"x\"] }\n",
        ))
        .unwrap();
        assert_eq!(daemon.config.path.as_deref(), Some("/usr/bin:/h/bin"));
        assert_eq!(daemon.config.memory_limit_bytes, 1 << 30);
        let text =
            "command = \"x\"\nrestart = \"always\"\n[env]\nA = \"own\"\n[tools]\nallow = [\"y\"]";
        let spec = parse_with(text, &daemon.defaults).unwrap();
        assert_eq!(
            (spec.policy.restart, spec.policy.stop_timeout.as_secs()),
            (Restart::Always, 9)
        );
        let value = |name: &str| match &spec.launch.env[name] {
            EnvValue::Text(value) => value.text().to_owned(),
            other => panic!("{other:?}"),
        };
        assert_eq!(
            (value("A"), value("B")),
            ("own".to_owned(), "default".to_owned())
        );
        assert_eq!(spec.policy.tools.deny, ["x"]);
        // A path of `mcpd.toml` counts from its own folder.
        assert_eq!(spec.launch.cwd.unwrap().origin().folder(), Path::new("/c"));
    }

    #[test]
    fn mcpd_toml_may_name_folders_one_by_one() {
        let daemon = parse_mcpd("path = [\"~/bin\", \"/usr/bin\"]").unwrap();
        assert_eq!(daemon.config.path.as_deref(), Some("/h/bin:/usr/bin"));
        assert_eq!(parse_mcpd("").unwrap(), DaemonFile::default());
        assert_eq!(DaemonFile::default().config.memory_limit_bytes, 512 << 20);
    }

    #[test]
    fn all_that_is_wrong_with_mcpd_toml_is_told() {
        let text = concat!(
            "memory_limit = \"1KiB\"\n",
            "path = 5\n",
            "restart = \"no\"\n",
            "memory = 1\n",
            "[defaults]\n",
            "sharing = \"shard\"\n",
            "stop_timout = \"1s\"\n",
            "[defaults.env]\n",
            "A = 1\n",
        );
        insta::assert_snapshot!(shown(parse_mcpd(text).unwrap_err()), @r##"
        /c/mcpd.toml:1:16: error: `memory_limit` must be between 1MiB and 64GiB
          |
        1 | memory_limit = "1KiB"
          |                ^^^^^^
        /c/mcpd.toml:2:8: error: `path` must be a string such as "/usr/local/bin:/usr/bin" or an array of folders, not an integer
          |
        2 | path = 5
          |        ^
        /c/mcpd.toml:3:1: error: unknown key `restart`
          |
        3 | restart = "no"
          | ^^^^^^^
          = `restart` is a server's; for all servers it goes under `[defaults]`
        /c/mcpd.toml:4:1: error: unknown key `memory`
          |
        4 | memory = 1
          | ^^^^^^
          = did you mean `memory_limit`?
        /c/mcpd.toml:6:11: error: `defaults.sharing` must be "shared", "per-host" or "per-directory", not "shard"
          |
        6 | sharing = "shard"
          |           ^^^^^^^
          = did you mean "shared"?
        /c/mcpd.toml:7:1: error: unknown key `defaults.stop_timout`
          |
        7 | stop_timout = "1s"
          | ^^^^^^^^^^^
          = did you mean `stop_timeout`?
        /c/mcpd.toml:9:5: error: `defaults.env.A` must be a string, not an integer
          |
        9 | A =‹…›
          |    ^^^
          = put it in quotes: every value of an environment is text
        "##);
    }

    #[test]
    fn a_finding_has_a_form_for_programs() {
        let error = parse_with("comand = \"x\"", &Draft::default())
            .unwrap_err()
            .remove(0);
        assert_eq!(error.severity, Severity::Error);
        assert_eq!(
            error.to_line(),
            "/c/servers.d/x.toml:1:1: unknown key `comand`"
        );
        assert_eq!(
            serde_json::to_string(&error).unwrap(),
            concat!(
                r#"{"severity":"error","code":"unknown-key","file":"/c/servers.d/x.toml","line":1,"column":1,"#,
                r#""key":"comand","message":"unknown key `comand`","#,
                r#""source":{"text":"comand = \"x\"","mark_start":0,"mark_len":6},"hint":"did you mean `command`?"}"#,
            )
        );
    }

    #[test]
    fn unknown_keys_come_with_the_key_that_was_meant() {
        let text = concat!(
            "comand = \"python3\"\n",
            "workingDirectory = \".\"\n",
            "zzz = 1\n",
            "url = \"http://x\"\n",
            "[tools]\n",
            "alow = [\"a\"]\n",
        );
        insta::assert_snapshot!(errors(text), @r##"
        /c/servers.d/x.toml:1:1: error: unknown key `comand`
          |
        1 | comand = "python3"
          | ^^^^^^
          = did you mean `command`?
        /c/servers.d/x.toml:2:1: error: unknown key `workingDirectory`
          |
        2 | workingDirectory = "."
          | ^^^^^^^^^^^^^^^^
          = did you mean `cwd`?
        /c/servers.d/x.toml:3:1: error: unknown key `zzz`
          |
        3 | zzz = 1
          | ^^^
        /c/servers.d/x.toml:4:1: error: unknown key `url`
          |
        4 | url = "http://x"
          | ^^^
          = mcpd runs local servers over stdin and stdout; there is no transport to choose
        /c/servers.d/x.toml:6:1: error: unknown key `tools.alow`
          |
        6 | alow = ["a"]
          | ^^^^
          = did you mean `allow`?
        "##);
    }

    #[test]
    fn a_missing_command_is_named() {
        let text = "args = [\"x\"]\n";
        insta::assert_snapshot!(errors(text), @r##"
        /c/servers.d/x.toml:1:1: error: `command` is missing
          = write command = "PROGRAM"
        "##);
    }

    #[test]
    fn an_empty_file_is_told_as_such() {
        let text = "";
        insta::assert_snapshot!(errors(text), @r##"
        /c/servers.d/x.toml:1:1: error: the file is empty: `command` is missing
          = write command = "PROGRAM"
        "##);
    }

    #[test]
    fn strings_are_told_from_other_types() {
        let text = concat!(
            "command = 1\n",
            "cwd = true\n",
            "description = [\"x\"]\n",
            "env_file = 1.5\n",
        );
        insta::assert_snapshot!(errors(text), @r##"
        /c/servers.d/x.toml:1:11: error: `command` must be a string, not an integer
          |
        1 | command = 1
          |           ^
          = put it in quotes
        /c/servers.d/x.toml:2:7: error: `cwd` must be a string, not a boolean
          |
        2 | cwd = true
          |       ^^^^
          = put it in quotes
        /c/servers.d/x.toml:3:15: error: `description` must be a string, not an array
          |
        3 | description = ["x"]
          |               ^^^^^
        /c/servers.d/x.toml:4:12: error: `env_file` must be a string, not a float
          |
        4 | env_file = 1.5
          |            ^^^
          = put it in quotes
        "##);
    }

    #[test]
    fn arrays_are_told_from_other_types() {
        let text = concat!(
            "command = \"x\"\n",
            "args = \"a b\"\n",
            "pass_env = [\"A\", 5]\n",
            "path = { a = 1 }\n",
            "[tools]\n",
            "allow = \"a\"\n",
            "deny = [1979-05-27]\n",
        );
        insta::assert_snapshot!(errors(text), @r##"
        /c/servers.d/x.toml:2:8: error: `args` must be an array of strings, not a string
          |
        2 | args = "a b"
          |        ^^^^^
          = write args = ["a", "b"]
        /c/servers.d/x.toml:3:18: error: `pass_env[1]` must be a string, not an integer
          |
        3 | pass_env = ["A", 5]
          |                  ^
          = put it in quotes
        /c/servers.d/x.toml:4:8: error: `path` must be an array of strings, not a table
          |
        4 | path = { a = 1 }
          |        ^^^^^^^^^
        /c/servers.d/x.toml:6:9: error: `tools.allow` must be an array of strings, not a string
          |
        6 | allow = "a"
          |         ^^^
          = write allow = ["a"]
        /c/servers.d/x.toml:7:9: error: `tools.deny[0]` must be a string, not a date
          |
        7 | deny = [1979-05-27]
          |         ^^^^^^^^^^
        "##);
    }

    #[test]
    fn tables_are_told_from_other_types() {
        let text = concat!("command = \"x\"\n", "env = [\"A=1\"]\n", "tools = \"a\"\n",);
        insta::assert_snapshot!(errors(text), @r##"
        /c/servers.d/x.toml:2:7: error: `env` must be a table, not an array
          |
        2 | env =‹…›
          |      ^^^
        /c/servers.d/x.toml:3:9: error: `tools` must be a table, not a string
          |
        3 | tools = "a"
          |         ^^^
        "##);
    }

    #[test]
    fn switches_and_numbers_are_told_from_other_types() {
        let text = concat!(
            "command = \"x\"\n",
            "enabled = \"true\"\n",
            "inherit_env = 1\n",
            "proxy_env = \"no\"\n",
            "max_calls = \"4\"\n",
            "start_limit = 1.5\n",
        );
        insta::assert_snapshot!(errors(text), @r##"
        /c/servers.d/x.toml:2:11: error: `enabled` must be true or false, not a string
          |
        2 | enabled = "true"
          |           ^^^^^^
          = write true without quotes
        /c/servers.d/x.toml:3:15: error: `inherit_env` must be true or false, not an integer
          |
        3 | inherit_env = 1
          |               ^
        /c/servers.d/x.toml:4:13: error: `proxy_env` must be true or false, not a string
          |
        4 | proxy_env = "no"
          |             ^^^^
        /c/servers.d/x.toml:5:13: error: `max_calls` must be an integer, not a string
          |
        5 | max_calls = "4"
          |             ^^^
        /c/servers.d/x.toml:6:15: error: `start_limit` must be an integer, not a float
          |
        6 | start_limit = 1.5
          |               ^^^
        "##);
    }

    #[test]
    fn numbers_have_bounds() {
        let text = concat!(
            "command = \"x\"\n",
            "max_calls = 0\n",
            "start_limit = -1\n",
            "[limits]\n",
            "memory = \"1KiB\"\n",
            "tasks = 0\n",
            "open_files = 3\n",
            "files = 3\n",
        );
        insta::assert_snapshot!(errors(text), @r##"
        /c/servers.d/x.toml:2:13: error: `max_calls` must be between 1 and 1000000
          |
        2 | max_calls = 0
          |             ^
        /c/servers.d/x.toml:3:15: error: `start_limit` must be between 1 and 1000000
          |
        3 | start_limit = -1
          |               ^^
        /c/servers.d/x.toml:5:10: error: `limits.memory` must be between 1MiB and 1048576GiB
          |
        5 | memory = "1KiB"
          |          ^^^^^^
        /c/servers.d/x.toml:6:9: error: `limits.tasks` must be between 1 and 1000000
          |
        6 | tasks = 0
          |         ^
        /c/servers.d/x.toml:7:14: error: `limits.open_files` must be between 16 and 1048576
          |
        7 | open_files = 3
          |              ^
        /c/servers.d/x.toml:8:1: error: unknown key `limits.files`
          |
        8 | files = 3
          | ^^^^^
        "##);
    }

    #[test]
    fn durations_carry_units_and_bounds() {
        let text = concat!(
            "command = \"x\"\n",
            "start_timeout = 90\n",
            "stop_timeout = \"90\"\n",
            "drain_timeout = \"2 weeks\"\n",
            "request_timeout = \"0s\"\n",
            "stable_after = \"soon\"\n",
        );
        insta::assert_snapshot!(errors(text), @r##"
        /c/servers.d/x.toml:2:17: error: `start_timeout` must be a duration in quotes, such as "90s", not an integer
          |
        2 | start_timeout = 90
          |                 ^^
        /c/servers.d/x.toml:3:16: error: `stop_timeout` has no unit; write a duration such as "90s"
          |
        3 | stop_timeout = "90"
          |                ^^^^
        /c/servers.d/x.toml:4:17: error: `drain_timeout` has the unknown unit `weeks`; write a duration such as "90s"
          |
        4 | drain_timeout = "2 weeks"
          |                 ^^^^^^^^^
        /c/servers.d/x.toml:5:19: error: `request_timeout` must be longer than zero
          |
        5 | request_timeout = "0s"
          |                   ^^^^
        /c/servers.d/x.toml:6:16: error: `stable_after` does not begin with a number; write a duration such as "90s"
          |
        6 | stable_after = "soon"
          |                ^^^^^^
        "##);
    }

    #[test]
    fn sizes_carry_units_and_bounds() {
        let text = concat!("command = \"x\"\n", "message_limit = \"2GiB\"\n",);
        insta::assert_snapshot!(errors(text), @r##"
        /c/servers.d/x.toml:2:17: error: `message_limit` must be between 1KiB and 1GiB
          |
        2 | message_limit = "2GiB"
          |                 ^^^^^^
        "##);
    }

    #[test]
    fn a_size_has_a_known_unit() {
        let text = concat!("command = \"x\"\n", "message_limit = \"64mb\"\n",);
        insta::assert_snapshot!(errors(text), @r##"
        /c/servers.d/x.toml:2:17: error: `message_limit` has the unknown unit `mb`; write a size such as "64MiB"
          |
        2 | message_limit = "64mb"
          |                 ^^^^^^
        "##);
    }

    #[test]
    fn restart_is_one_of_three() {
        let text = concat!("command = \"x\"\n", "restart = \"on_failure\"\n",);
        insta::assert_snapshot!(errors(text), @r##"
        /c/servers.d/x.toml:2:11: error: `restart` must be "always", "on-failure" or "no", not "on_failure"
          |
        2 | restart = "on_failure"
          |           ^^^^^^^^^^^^
          = did you mean "on-failure"?
        "##);
    }

    #[test]
    fn protocol_is_one_of_three() {
        let text = concat!("command = \"x\"\n", "protocol = \"modem\"\n",);
        insta::assert_snapshot!(errors(text), @r##"
        /c/servers.d/x.toml:2:12: error: `protocol` must be "auto", "legacy" or "modern", not "modem"
          |
        2 | protocol = "modem"
          |            ^^^^^^^
          = did you mean "modern"?
        "##);
    }

    #[test]
    fn restart_is_a_string() {
        let text = concat!("command = \"x\"\n", "restart = false\n",);
        insta::assert_snapshot!(errors(text), @r##"
        /c/servers.d/x.toml:2:11: error: `restart` must be "always", "on-failure" or "no", not a boolean
          |
        2 | restart = false
          |           ^^^^^
        "##);
    }

    #[test]
    fn empty_values_are_named() {
        let text = concat!(
            "command = \" \"\n",
            "cwd = \"\"\n",
            "stop_command = []\n",
            "pass_env = [\"\"]\n",
        );
        insta::assert_snapshot!(errors(text), @r##"
        /c/servers.d/x.toml:1:11: error: `command` is empty
          |
        1 | command = " "
          |           ^^^
        /c/servers.d/x.toml:2:7: error: `cwd` is empty
          |
        2 | cwd = ""
          |       ^^
        /c/servers.d/x.toml:3:16: error: `stop_command` is empty
          |
        3 | stop_command = []
          |                ^^
        /c/servers.d/x.toml:4:13: error: `pass_env[0]` is empty
          |
        4 | pass_env = [""]
          |             ^^
        "##);
    }

    #[test]
    fn a_command_of_several_words_comes_with_lines_to_paste() {
        let text = concat!(
            "command = \"npx -y '@scope/a b' --token abc\"\n",
            "args = [\"last\"]\n",
        );
        insta::assert_snapshot!(errors(text), @r##"
        /c/servers.d/x.toml:1:11: error: `command` holds several words, and no file has this name
          |
        1 | command = "npx -y '@scope/a b' --token ‹…›"
          |           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
          = write
            command = "npx"
            args = ["-y", "@scope/a b", "--token", "‹…›", "last"]
        "##);
    }

    #[test]
    fn a_command_that_is_an_array_comes_with_lines_to_paste() {
        let text = "command = [\"npx\", \"-y\", \"server\"]\n";
        insta::assert_snapshot!(errors(text), @r##"
        /c/servers.d/x.toml:1:11: error: `command` must be a string, not an array
          |
        1 | command = ["npx", "-y", "server"]
          |           ^^^^^^^^^^^^^^^^^^^^^^^
          = write
            command = "npx"
            args = ["-y", "server"]
        "##);
    }

    #[test]
    fn values_of_env_are_text_and_never_shown() {
        let text = concat!(
            "command = \"x\"\n",
            "[env]\n",
            "COUNT = 8\n",
            "LIST = [\"s3cr3t-value\"]\n",
            "OPEN = s3cr3t-value\n",
        );
        insta::assert_snapshot!(errors(text), @r##"
        /c/servers.d/x.toml:3:9: error: `env.COUNT` must be a string, not an integer
          |
        3 | COUNT =‹…›
          |        ^^^
          = put it in quotes: every value of an environment is text
        /c/servers.d/x.toml:4:8: error: `env.LIST` must be a string, { file = … }, { command = … } or { credential = … }, not an array
          |
        4 | LIST =‹…›
          |       ^^^
        /c/servers.d/x.toml:5:8: error: not valid TOML: a string must be in quotes
          |
        5 | OPEN =‹…›
          |       ^^^
        "##);
    }

    #[test]
    fn values_of_env_have_one_source() {
        let text = concat!(
            "command = \"x\"\n",
            "[env]\n",
            "A = { file = \"a\", command = [\"b\"] }\n",
            "B = {}\n",
            "C = { fil = \"c\" }\n",
            "D = { file = 1 }\n",
            "E = { command = \"pass show db\" }\n",
            "F = { command = [] }\n",
        );
        insta::assert_snapshot!(errors(text), @r##"
        /c/servers.d/x.toml:3:5: error: `env.A` needs one of `file`, `command` and `credential`
          |
        3 | A =‹…›
          |    ^^^
        /c/servers.d/x.toml:4:5: error: `env.B` needs one of `file`, `command` and `credential`
          |
        4 | B =‹…›
          |    ^^^
        /c/servers.d/x.toml:5:7: error: unknown key `env.C.fil`
          |
        5 | C =‹…›
          |    ^^^
          = did you mean `file`?
        /c/servers.d/x.toml:6:14: error: `env.D.file` must be a string, not an integer
          |
        6 | D =‹…›
          |    ^^^
          = put it in quotes
        /c/servers.d/x.toml:7:17: error: `env.E.command` must be an array of strings, not a string
          |
        7 | E =‹…›
          |    ^^^
          = write command = ["PROGRAM", "ARGUMENT"]
        /c/servers.d/x.toml:8:17: error: `env.F.command` is empty
          |
        8 | F =‹…›
          |    ^^^
        "##);
    }

    #[test]
    fn names_of_variables_are_checked() {
        let text = concat!(
            "command = \"x\"\n",
            "pass_env = [\"A=b\", \"NOTIFY_SOCKET\"]\n",
            "[env]\n",
            "MCPD_INSTANCE = \"x\"\n",
            "\"\" = \"y\"\n",
        );
        insta::assert_snapshot!(errors(text), @r##"
        /c/servers.d/x.toml:2:13: error: `pass_env[0]` is no name for a variable
          |
        2 | pass_env = ["A=b", "NOTIFY_SOCKET"]
          |             ^^^^^
          = only the name: "A"
        /c/servers.d/x.toml:2:20: error: `NOTIFY_SOCKET` is never given to a server
          |
        2 | pass_env = ["A=b", "NOTIFY_SOCKET"]
          |                    ^^^^^^^^^^^^^^^
          = it belongs to what started the daemon, or to mcpd itself
        /c/servers.d/x.toml:4:1: error: `MCPD_INSTANCE` is never given to a server
          |
        4 | MCPD_INSTANCE =‹…›
          | ^^^^^^^^^^^^^
          = it belongs to what started the daemon, or to mcpd itself
        /c/servers.d/x.toml:5:1: error: `env.""` is no name for a variable
          |
        5 | "" =‹…›
          | ^^
        "##);
    }

    #[test]
    fn a_directory_of_its_own_excludes_that_of_the_hosts() {
        let text = "command = \"x\"\ncwd = \"/\"\nsharing = \"per-directory\"\n";
        insta::assert_snapshot!(errors(text), @r##"
        /c/servers.d/x.toml:2:7: error: `cwd` and `sharing = "per-directory"` exclude each other: every instance is started in the directory of its hosts
          |
        2 | cwd = "/"
          |       ^^^
          = take one of them out
        "##);
        let spec = parse("command = \"x\"\ncwd = \"/\"\nsharing = \"shared\"\n");
        assert_eq!(spec.launch.sharing, Sharing::Shared);
    }

    #[test]
    fn when_to_start_is_one_of_two_words_and_idleness_is_a_time() {
        let text = concat!(
            "command = \"x\"\n",
            "start = \"on-demand\"\n",
            "idle_stop = \"0s\"\n",
        );
        insta::assert_snapshot!(errors(text), @r##"
        /c/servers.d/x.toml:2:9: error: `start` must be "boot" or "demand", not "on-demand"
          |
        2 | start = "on-demand"
          |         ^^^^^^^^^^^
          = did you mean "demand"?
        /c/servers.d/x.toml:3:13: error: `idle_stop` must be longer than zero
          |
        3 | idle_stop = "0s"
          |             ^^^^
        "##);
    }

    #[test]
    fn a_credential_has_the_name_of_a_file() {
        let spec = parse("command = \"x\"\nenv.T = { credential = \"gh-token\" }");
        let expected = EnvValue::Credential("gh-token".to_owned());
        assert_eq!(spec.launch.env["T"], expected);
        for name in ["", "..", "a/b", "a b", "ä", &"n".repeat(256)] {
            let text = format!("command = \"x\"\nenv.T = {{ credential = \"{name}\" }}");
            assert!(parse_with(&text, &Draft::default()).is_err(), "{name:?}");
        }
    }

    #[test]
    fn variables_are_checked_with_their_place() {
        let text = concat!(
            "command = \"${\"\n",
            "args = [\"a ${B\", \"${env:HOME}\", \"${}\", \"${A:-${B}}\", \"\\\"${C\"]\n",
            "[env]\n",
            "A = \"${x y}\"\n",
        );
        insta::assert_snapshot!(errors(text), @r##"
        /c/servers.d/x.toml:1:12: error: `${` without `}` in `command`
          |
        1 | command = "${"
          |            ^^
          = write `${NAME}` or `${NAME:-default}`, or `$${` for a literal `${`
        /c/servers.d/x.toml:2:12: error: `${` without `}` in `args[0]`
          |
        2 | args = ["a ${B", "${env:HOME}", "${}", "${A:-${B}}", "\"${C"]
          |            ^^^
          = write `${NAME}` or `${NAME:-default}`, or `$${` for a literal `${`
        /c/servers.d/x.toml:2:19: error: `${env:HOME}` is not a form that mcpd knows in `args[1]`
          |
        2 | args = ["a ${B", "${env:HOME}", "${}", "${A:-${B}}", "\"${C"]
          |                   ^^^^^^^^^^^
          = write `${HOME}`, or `$${` for a literal `${`
        /c/servers.d/x.toml:2:34: error: `${}` names no variable in `args[2]`
          |
        2 | args = ["a ${B", "${env:HOME}", "${}", "${A:-${B}}", "\"${C"]
          |                                  ^^^
          = write `${NAME}` or `${NAME:-default}`, or `$${` for a literal `${`
        /c/servers.d/x.toml:2:41: error: a default may not hold another `${` in `args[3]`
          |
        2 | args = ["a ${B", "${env:HOME}", "${}", "${A:-${B}}", "\"${C"]
          |                                         ^^^^^^^^^
          = write `${NAME}` or `${NAME:-default}`, or `$${` for a literal `${`
        /c/servers.d/x.toml:2:54: error: `${` without `}` in `args[4]`
          |
        2 | args = ["a ${B", "${env:HOME}", "${}", "${A:-${B}}", "\"${C"]
          |                                                      ^^^^^^^
          = write `${NAME}` or `${NAME:-default}`, or `$${` for a literal `${`
        /c/servers.d/x.toml:4:6: error: `${}` names no variable in `env.A`
          |
        4 | A =‹…›
          |    ^^^
          = write `${NAME}` or `${NAME:-default}`, or `$${` for a literal `${`
        "##);
    }

    #[test]
    fn a_nul_is_refused() {
        let text = concat!("command = \"a\\u0000b\"\n", "args = [\"a\\u0000\"]\n",);
        insta::assert_snapshot!(errors(text), @r##"
        /c/servers.d/x.toml:1:11: error: `command` holds a NUL character
          |
        1 | command = "a\u0000b"
          |           ^^^^^^^^^^
        /c/servers.d/x.toml:2:9: error: `args[0]` holds a NUL character
          |
        2 | args = ["a\u0000"]
          |         ^^^^^^^^^
        "##);
    }

    #[test]
    fn a_folder_of_path_holds_no_colon() {
        let text = concat!("command = \"x\"\n", "path = [\"/a:/b\"]\n",);
        insta::assert_snapshot!(errors(text), @r##"
        /c/servers.d/x.toml:2:9: error: `path[0]` holds a colon
          |
        2 | path = ["/a:/b"]
          |         ^^^^^^^
          = write one folder an element: "/a", "/b"
        "##);
    }

    #[test]
    fn keys_that_stand_twice_are_named_with_both_lines() {
        let text = concat!(
            "command = \"a\"\n",
            "command = \"b\"\n",
            "[env]\n",
            "A = \"1\"\n",
            "A = \"2\"\n",
            "[env]\n",
        );
        insta::assert_snapshot!(errors(text), @r##"
        /c/servers.d/x.toml:2:1: error: `command` stands twice
          |
        2 | command = "b"
          | ^^^^^^^
          = it is on line 1 already
        /c/servers.d/x.toml:5:1: error: `A` stands twice
          |
        5 | A =‹…›
          | ^
          = it is on line 4 already
        /c/servers.d/x.toml:6:2: error: `env` stands twice
          |
        6 | [env]
          |  ^^^
          = it is on line 3 already
        "##);
    }

    #[test]
    fn text_that_is_not_toml_is_named_with_its_place() {
        let text = concat!(
            "command = python3\n",
            "args = [\"a\" \"b\"]\n",
            "cwd = \"open\n",
            "enabled = maybe\n",
        );
        insta::assert_snapshot!(errors(text), @r##"
        /c/servers.d/x.toml:1:11: error: not valid TOML: a string must be in quotes
          |
        1 | command = python3
          |           ^^^^^^^
        /c/servers.d/x.toml:2:13: error: not valid TOML: missing comma between array elements, expected `,`
          |
        2 | args = ["a" "b"]
          |             ^
        /c/servers.d/x.toml:3:12: error: not valid TOML: invalid basic string, expected `"`
          |
        3 | cwd = "open
          |            ^
        /c/servers.d/x.toml:4:11: error: not valid TOML: a string must be in quotes
          |
        4 | enabled = maybe
          |           ^^^^^
        "##);
    }

    #[test]
    fn a_bracket_that_is_not_closed_is_one_error() {
        let text = concat!(
            "comand = \"x\"\nargs = [\"-y\", \"pkg\"\ncwd = \"~\"\nenabled = maybe\n",
            "[env]\nA = { file = \"x\" }\n[tools]\ndeny = [\"a\"]\n",
        );
        insta::assert_snapshot!(errors(text), @r##"
        /c/servers.d/x.toml:1:1: error: unknown key `comand`
          |
        1 | comand = "x"
          | ^^^^^^
          = did you mean `command`?
        /c/servers.d/x.toml:3:1: error: not valid TOML: missing comma between array elements, expected `,`
          |
        3 | cwd = "~"
          | ^
          = a `[` or `{` before it is not closed
        "##);
    }

    #[test]
    fn a_lone_carriage_return_is_named() {
        let text = "command = \"x\r\"\n";
        insta::assert_snapshot!(errors(text), @r##"
        /c/servers.d/x.toml:1:13: error: not valid TOML: invalid basic string, expected non-double-quote visible characters, `\`
          |
        1 | command = "x�"
          |             ^
        "##);
    }

    #[test]
    fn json_is_told_from_toml() {
        let text = "{ \"command\": \"x\" }\n";
        insta::assert_snapshot!(errors(text), @r##"
        /c/servers.d/x.toml:1:1: error: not valid TOML: invalid key-value pair, expected key
          |
        1 | { "command": "x" }
          | ^
          = this looks like JSON; write KEY = VALUE lines
        "##);
    }

    #[test]
    fn keys_with_a_header_before_them_keep_their_path() {
        let text = concat!(
            "\"a b\" = 1\n",
            "command = \"x\"\n",
            "[tools]\n",
            "\"c.d\" = 1\n",
        );
        insta::assert_snapshot!(errors(text), @r##"
        /c/servers.d/x.toml:1:1: error: unknown key `"a b"`
          |
        1 | "a b" = 1
          | ^^^^^
        /c/servers.d/x.toml:4:1: error: unknown key `tools."c.d"`
          |
        4 | "c.d" = 1
          | ^^^^^
        "##);
    }

    proptest! {
        #[test]
        fn any_text_is_answered(text in "\\PC{0,200}") {
            drop(parse_with(&text, &Draft::default()));
            drop(parse_mcpd(&text));
        }

        #[test]
        fn any_shuffle_of_toml_is_answered(
            pieces in prop::collection::vec(
                prop::sample::select(vec![
                    "command", "args", "env", "tools", "[env]", "[", "]", "=", "\"", "'", "\"\"\"", "{", "}", ",", ".",
                    "\n", "\r\n", "\t", " ", "# ", "${A}", "${", "5", "true", "\"x\"", "[\"x\"]", "file", "\u{feff}",
                    "é", "\0", "defaults", "path", "1979-05-27",
                ]),
                0..40,
            )
        ) {
            let text = pieces.concat();
            for error in parse_with(&text, &Draft::default()).err().into_iter().flatten() {
                prop_assert!(!error.to_string().is_empty());
            }
            drop(parse_mcpd(&text));
        }

        #[test]
        fn no_value_of_env_is_ever_shown(
            before in "[a-z =\"\n]{0,20}",
            value in "(\"|'|\"\"\")?hunter2hunter2(\"|'|\"\"\"|\\$\\{)?",
            after in "[a-z =\"\n\\]]{0,20}",
        ) {
            let text = format!("command = 1\n{before}\n[env]\nA = {value}\n{after}");
            let shown = errors(&text);
            prop_assert!(!shown.contains("hunter2"), "{shown}");
        }
    }
}
