//! A server's launch with everything filled in: what a spawn needs, and what may be shown of it.
//!
//! It decides the order of the layers, which layer each `${NAME}` sees, and what relative paths
//! count from. It never reads a file, runs a command or looks a program up; [`Sources`] holds what
//! the shell has read, and the program's file is found on [`ResolvedLaunch::search_path`].

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use super::arg_secrets::mask_arguments;
use super::diagnostics::{Code, Diagnostic, Severity};
use super::environment::{Base, Environment, INSTANCE_VARIABLE, is_private_name};
use super::expand::{MissingVariables, Origin, Template, expand_home};
use super::redact::Redactor;
use super::spec::{EnvValue, ServerSpec};

/// What was read for one server: the pairs of its `env_file`, the contents of its `{ file }`
/// and `{ credential }` values and the output of its `{ command }` values, by the variable's name.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Sources {
    /// In the order of the file; of two with one name the later counts.
    pub env_file: Vec<(String, String)>,
    /// Without the one newline at the end.
    pub values: BTreeMap<String, Vec<u8>>,
}

/// Names only.
impl fmt::Debug for Sources {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&String> = self.env_file.iter().map(|(name, _)| name).collect();
        out.debug_struct("Sources")
            .field("env_file", &names)
            .field("values", &self.values.keys())
            .finish()
    }
}

/// What to execute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Program {
    /// A file, absolute.
    File(PathBuf),
    /// A name to be looked for in [`ResolvedLaunch::search_path`].
    Name(OsString),
}

/// A launch with everything filled in. `Debug` shows no value.
#[derive(Clone)]
pub struct ResolvedLaunch {
    pub program: Program,
    /// Complete: `argv[0]` is the program.
    pub argv: Vec<OsString>,
    /// Absolute.
    pub cwd: PathBuf,
    /// The whole environment but for `MCPD_INSTANCE`, which the spawner adds.
    pub environment: Environment,
    /// The folders of the child's PATH, absolute, in order, each once.
    pub search_path: Vec<PathBuf>,
    /// `stop_command` with its paths filled in.
    pub stop_command: Option<Vec<OsString>>,
    /// Takes the values out of whatever is logged or shown.
    pub redactor: Redactor,
    pub shown: ShownLaunch,
    /// Proxy variables that were held back since their values hold a password.
    pub withheld: Vec<&'static str>,
}

/// The launch as it was written, for `status` and for errors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShownLaunch {
    /// Program and arguments, unexpanded, literal secrets masked.
    pub argv: Vec<String>,
    pub cwd: String,
    /// The names of the child's variables.
    pub env_names: Vec<String>,
}

impl fmt::Debug for ResolvedLaunch {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ResolvedLaunch")
            .field("shown", &self.shown)
            .field("search_path", &self.search_path)
            .finish_non_exhaustive()
    }
}

/// Fills in the launch of `spec`.
///
/// # Errors
/// All variables that are missing, all values that were not read, and values that cannot be given to
/// a process.
pub fn resolve(
    spec: &ServerSpec,
    base: &Base,
    sources: &Sources,
) -> Result<ResolvedLaunch, Vec<Diagnostic>> {
    let mut build = Build {
        spec,
        home: base.home(),
        diagnostics: Vec::new(),
        secrets: Vec::new(),
    };
    let (layer, withheld) = base.layer(spec.launch.inherit_env, spec.launch.proxy_env);
    let environment = build.environment(layer, base.daemon_environment(), sources);
    let search_path = search_path(&environment);
    let program = build.program(&environment);
    let argv = build.argv(&program, &environment);
    let cwd = build.cwd(&environment);
    build.refuse_nul(
        "args",
        argv.iter()
            .map(OsString::as_os_str)
            .chain([cwd.as_os_str()]),
    );
    if !build.diagnostics.is_empty() {
        return Err(build.diagnostics);
    }
    let named = build
        .secrets
        .iter()
        .map(|(name, value)| (name, value.as_bytes()));
    Ok(ResolvedLaunch {
        program,
        argv,
        cwd,
        search_path,
        stop_command: spec
            .policy
            .stop_command
            .as_ref()
            .map(|argv| command_line(argv, spec.folder(), &build.home)),
        redactor: Redactor::new(named),
        shown: shown(spec, &environment),
        environment,
        withheld,
    })
}

/// What may be shown of a launch, also of one that could not be filled in.
pub fn shown_launch(spec: &ServerSpec) -> ShownLaunch {
    shown(spec, &Environment::default())
}

/// A command of the configuration that is run as it stands: a leading `~/` is the home directory, a
/// program with a slash counts from `folder`.
pub fn command_line(argv: &[String], folder: &Path, home: &Path) -> Vec<OsString> {
    let expand = |(at, text): (usize, &String)| {
        if text.starts_with("~/") {
            expand_home(text, home).into_os_string()
        } else if at == 0 && text.contains('/') {
            folder.join(text).into_os_string()
        } else {
            text.into()
        }
    };
    argv.iter().enumerate().map(expand).collect()
}

fn shown(spec: &ServerSpec, environment: &Environment) -> ShownLaunch {
    let launch = &spec.launch;
    let words = std::iter::once(&launch.command)
        .chain(&launch.args)
        .map(Template::text);
    let mut names: Vec<String> = environment
        .names()
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    if !names.is_empty() {
        // The spawner adds its mark.
        names.push(INSTANCE_VARIABLE.to_owned());
        names.sort();
    }
    ShownLaunch {
        argv: mask_arguments(&words.collect::<Vec<_>>()),
        cwd: launch
            .cwd
            .as_ref()
            .map_or_else(|| "~".to_owned(), |cwd| cwd.text().to_owned()),
        env_names: names,
    }
}

/// The folders of PATH. Empty and relative ones, which mean the working directory, do not count:
/// what is found must not depend on where somebody else may write.
fn search_path(environment: &Environment) -> Vec<PathBuf> {
    let path = environment.get("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = Vec::new();
    for folder in path.as_bytes().split(|byte| *byte == b':') {
        let folder = PathBuf::from(OsStr::from_bytes(folder));
        if folder.is_absolute() && !folders.contains(&folder) {
            folders.push(folder);
        }
    }
    folders
}

struct Build<'s> {
    spec: &'s ServerSpec,
    home: PathBuf,
    diagnostics: Vec<Diagnostic>,
    secrets: Vec<(String, OsString)>,
}

impl Build<'_> {
    /// All layers: `pass_env` over the base, `env_file` over that, `env` over all. The texts of
    /// `env` see what is below `env`, not each other.
    fn environment(
        &mut self,
        mut layer: Environment,
        daemon: &Environment,
        sources: &Sources,
    ) -> Environment {
        for (at, name) in self.spec.launch.pass_env.iter().enumerate() {
            match daemon.get(name) {
                Some(value) => self.add(&mut layer, name, value.to_owned()),
                None => self.not_passed(at, name),
            }
        }
        for (name, value) in &sources.env_file {
            self.add(&mut layer, name, value.into());
        }
        let below = layer.clone();
        for (name, value) in &self.spec.launch.env {
            if let Some(value) = self.env_value(name, value, &below, sources) {
                self.add(&mut layer, name, value);
            }
        }
        self.prepend_path(&mut layer);
        layer
    }

    fn env_value(
        &mut self,
        name: &str,
        value: &EnvValue,
        below: &Environment,
        sources: &Sources,
    ) -> Option<OsString> {
        let key = format!("env.{name}");
        match value {
            EnvValue::Text(template) => {
                let expanded = template.expand(|name| below.get(name));
                self.expanded(&key, template, expanded)
            }
            EnvValue::File(_) | EnvValue::Command(_) | EnvValue::Credential(_) => {
                match sources.values.get(name) {
                    Some(value) => Some(OsString::from_vec(value.clone())),
                    None => {
                        self.error(
                            Code::Value,
                            &key,
                            None,
                            format!("the value of `{key}` was not read"),
                        );
                        None
                    }
                }
            }
        }
    }

    fn add(&mut self, layer: &mut Environment, name: &str, value: OsString) {
        let key = format!("env.{name}");
        if is_private_name(OsStr::new(name)) {
            let message = format!("`{name}` is never given to a server");
            return self.error(Code::Value, &key, None, message);
        }
        self.refuse_nul(&key, [value.as_os_str()]);
        self.secrets.retain(|(known, _)| known != name);
        self.secrets.push((name.to_owned(), value.clone()));
        layer.set(name, value);
    }

    fn prepend_path(&self, layer: &mut Environment) {
        if self.spec.launch.path.is_empty() {
            return;
        }
        let mut path = OsString::new();
        for folder in &self.spec.launch.path {
            path.push(folder);
            path.push(":");
        }
        path.push(layer.get("PATH").unwrap_or_default());
        layer.set("PATH", path);
    }

    fn program(&mut self, environment: &Environment) -> Program {
        let command = &self.spec.launch.command;
        let expanded = command.expand_with_home(&self.home, |name| environment.get(name));
        let Some(text) = self.expanded("command", command, expanded) else {
            return Program::Name(OsString::new());
        };
        if text.is_empty() {
            let place = Some(command.origin());
            self.error(
                Code::Value,
                "command",
                place,
                "`command` is empty once its variables are filled in".to_owned(),
            );
        }
        if text.as_bytes().contains(&b'/') {
            let file = command.origin().folder().join(text);
            // `./tool` is shown as `tool` of its folder.
            return Program::File(file.components().collect());
        }
        Program::Name(text)
    }

    fn argv(&mut self, program: &Program, environment: &Environment) -> Vec<OsString> {
        let mut argv = vec![match program {
            Program::File(path) => path.clone().into_os_string(),
            Program::Name(name) => name.clone(),
        }];
        for (at, argument) in self.spec.launch.args.iter().enumerate() {
            let expanded = argument.expand_with_home(&self.home, |name| environment.get(name));
            argv.extend(self.expanded(&format!("args[{at}]"), argument, expanded));
        }
        argv
    }

    fn cwd(&mut self, environment: &Environment) -> PathBuf {
        let Some(cwd) = &self.spec.launch.cwd else {
            return self.home.clone();
        };
        if cwd.text() == "~" {
            return self.home.clone();
        }
        let expanded = cwd.expand_with_home(&self.home, |name| environment.get(name));
        let text = self.expanded("cwd", cwd, expanded).unwrap_or_default();
        cwd.origin().folder().join(text)
    }

    fn expanded(
        &mut self,
        key: &str,
        template: &Template,
        expanded: Result<OsString, MissingVariables>,
    ) -> Option<OsString> {
        match expanded {
            Ok(expanded) => Some(expanded),
            Err(MissingVariables(names)) => {
                for name in names {
                    self.missing(key, Some(template.origin()), &name);
                }
                None
            }
        }
    }

    fn missing(&mut self, key: &str, origin: Option<&Origin>, name: &str) {
        let message = format!("`{key}` needs the variable `{name}`, which is not set");
        self.error(Code::MissingVariable, key, origin, message);
        if let Some(last) = self.diagnostics.last_mut() {
            last.hint = Some(match key.starts_with("env.") {
                true => format!(
                    "set `{name}` in `env_file`, or write `${{{name}:-default}}`; \
                     values of `[env]` do not see each other"
                ),
                false => format!(
                    "set `{name}` under `[env]` or in `env_file`, or write `${{{name}:-default}}`"
                ),
            });
        }
    }

    /// A name of `pass_env` that the daemon lacks. One that was started for a host has no more than
    /// the base, so that no host's secrets leak into it.
    fn not_passed(&mut self, at: usize, name: &str) {
        let message = format!("the daemon has no variable `{name}` for `pass_env`");
        let key = format!("pass_env[{at}]");
        self.error(Code::MissingVariable, &key, None, message);
        if let Some(last) = self.diagnostics.last_mut() {
            last.hint = Some(format!(
                "a daemon that starts by itself has HOME, PATH and the like only: \
                 set `{name}` in `env_file` or under `[env]`, or run `mcpd daemon` where it is set"
            ));
        }
    }

    /// A NUL ends a string for the kernel (`execve(2)`); what comes after it would be lost.
    fn refuse_nul<'v>(&mut self, key: &str, values: impl IntoIterator<Item = &'v OsStr>) {
        if values
            .into_iter()
            .any(|value| value.as_bytes().contains(&0))
        {
            self.error(
                Code::Value,
                key,
                None,
                format!("the value of `{key}` holds a NUL byte"),
            );
        }
    }

    fn error(&mut self, code: Code, key: &str, origin: Option<&Origin>, message: String) {
        let file = origin.map_or(self.spec.file.as_path(), |origin| &origin.file);
        let diagnostic = Diagnostic::for_file(Severity::Error, code, file, message)
            .with_key(key)
            .at(origin.and_then(|origin| origin.place));
        self.diagnostics.push(diagnostic);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::diagnostics::SourceText;
    use crate::config::draft::Draft;
    use crate::config::environment::User;
    use crate::config::parse::{Surroundings, parse_server};
    use crate::config::spec::ServerName;
    use proptest::prelude::*;

    const DAEMON: [(&str, &str); 5] = [
        ("HOME", "/h"),
        ("PATH", "/usr/bin:/bin"),
        ("LANG", "C"),
        ("PASSED", "from-pass-env"),
        ("SECRET_A", "must-not-pass"),
    ];

    fn spec(text: &str) -> ServerSpec {
        let source = SourceText::new(Path::new("/c/servers.d/x.toml"), text);
        let surroundings = Surroundings {
            home: Path::new("/h"),
            is_program: &|_| true,
        };
        parse_server(
            &ServerName::parse("x").unwrap(),
            &source,
            &Draft::default(),
            surroundings,
        )
        .unwrap()
    }

    fn base() -> Base {
        let user = User {
            uid: 1,
            name: "ada".into(),
            home: "/h".into(),
            shell: "/bin/sh".into(),
        };
        Base::new(DAEMON.into_iter().collect(), user, None)
    }

    fn sources(env_file: &[(&str, &str)], values: &[(&str, &str)]) -> Sources {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Sources {
            env_file: env_file.iter().map(own).collect(),
            values: values
                .iter()
                .map(own)
                .map(|(name, value)| (name, value.into_bytes()))
                .collect(),
        }
    }

    fn resolved(text: &str) -> ResolvedLaunch {
        resolve(&spec(text), &base(), &Sources::default()).unwrap()
    }

    fn errors(text: &str, sources: &Sources) -> Vec<String> {
        let errors = resolve(&spec(text), &base(), sources).unwrap_err();
        errors.iter().map(Diagnostic::to_string).collect()
    }

    #[track_caller]
    fn check_env(launch: &ResolvedLaunch, name: &str, expected: Option<&str>) {
        assert_eq!(
            launch.environment.get(name),
            expected.map(OsStr::new),
            "{name}"
        );
    }

    #[test]
    fn higher_layers_win_and_only_what_is_named_passes() {
        let text = concat!(
            "command = \"x\"\npass_env = [\"PASSED\"]\nenv_file = \"e\"\n",
            "[env]\nTOP = \"env\"\nF = { file = \"f\" }\nC = { command = [\"c\"] }\n",
        );
        let sources = sources(
            &[
                ("TOP", "file"),
                ("MIDDLE", "file"),
                ("PASSED", "over"),
                ("MIDDLE", "again"),
            ],
            &[("F", "of-file"), ("C", "of-command")],
        );
        let launch = resolve(&spec(text), &base(), &sources).unwrap();
        check_env(&launch, "TOP", Some("env"));
        check_env(&launch, "MIDDLE", Some("again"));
        check_env(&launch, "PASSED", Some("over"));
        check_env(&launch, "F", Some("of-file"));
        check_env(&launch, "C", Some("of-command"));
        check_env(&launch, "SECRET_A", None);
        check_env(&launch, "HOME", Some("/h"));
    }

    #[test]
    fn two_servers_never_see_each_others_secrets() {
        let one = resolved("command = \"x\"\n[env]\nSECRET_B = \"b\"");
        let two = resolved("command = \"x\"");
        check_env(&one, "SECRET_B", Some("b"));
        check_env(&two, "SECRET_B", None);
        assert!(
            one.environment.get("SECRET_A").is_none() && two.environment.get("SECRET_A").is_none()
        );
        let all = resolved("command = \"x\"\ninherit_env = true");
        check_env(&all, "SECRET_A", Some("must-not-pass"));
    }

    #[test]
    fn variables_are_filled_in_everywhere() {
        let launch = resolved(concat!(
            "command = \"${HOME}/bin/x\"\nargs = [\"${V}-${HOME}\", \"${N:-d}\", \"~/data\", \"a~b\", \"$5\"]\n",
            "cwd = \"~/${V}\"\n[env]\nV = \"v ${HOME}\"\n",
        ));
        assert_eq!(launch.program, Program::File("/h/bin/x".into()));
        assert_eq!(
            launch.argv,
            ["/h/bin/x", "v /h-/h", "d", "/h/data", "a~b", "$5"]
        );
        assert_eq!(launch.cwd, Path::new("/h/v /h"));
    }

    #[test]
    fn env_sees_only_the_layers_below_it() {
        let text = "command = \"x\"\nenv_file = \"e\"\n[env]\nA = \"${FILE}\"\nB = \"${A}\"";
        let sources = sources(&[("FILE", "$HOME ${HOME}")], &[]);
        assert_eq!(
            errors(text, &sources),
            [concat!(
                "/c/servers.d/x.toml:5:5: error: `env.B` needs the variable `A`, which is not set\n",
                "  = set `A` in `env_file`, or write `${A:-default}`; ",
                "values of `[env]` do not see each other",
            )]
        );
        let launch = resolve(
            &spec("command = \"x\"\n[env]\nA = \"${FILE}\""),
            &base(),
            &sources,
        )
        .unwrap();
        // Values of an env_file stand as they are.
        check_env(&launch, "A", Some("$HOME ${HOME}"));
    }

    #[test]
    fn every_missing_variable_is_named_with_key_and_file() {
        let text = "command = \"${A}\"\nargs = [\"${B}\"]\ncwd = \"${C}\"\npass_env = [\"D\"]\n[env]\nE = \"${F}\"";
        let messages: Vec<String> = errors(text, &Sources::default())
            .iter()
            .map(|error| error.lines().next().unwrap().to_owned())
            .collect();
        assert_eq!(
            messages,
            [
                "/c/servers.d/x.toml: error: the daemon has no variable `D` for `pass_env`",
                "/c/servers.d/x.toml:6:5: error: `env.E` needs the variable `F`, which is not set",
                "/c/servers.d/x.toml:1:11: error: `command` needs the variable `A`, which is not set",
                "/c/servers.d/x.toml:2:9: error: `args[0]` needs the variable `B`, which is not set",
                "/c/servers.d/x.toml:3:7: error: `cwd` needs the variable `C`, which is not set",
            ]
        );
    }

    #[test]
    fn programs_and_folders_count_from_the_files_folder() {
        let check = |text: &str, program: Program, cwd: &str| {
            let launch = resolved(text);
            assert_eq!(
                (launch.program, launch.cwd.as_path()),
                (program, Path::new(cwd)),
                "{text}"
            );
        };
        check("command = \"x\"", Program::Name("x".into()), "/h");
        check(
            "command = \"./x\"\ncwd = \"sub\"",
            Program::File("/c/servers.d/./x".into()),
            "/c/servers.d/sub",
        );
        check(
            "command = \"~/x y\"\ncwd = \"~\"",
            Program::File("/h/x y".into()),
            "/h",
        );
        check(
            "command = \"/x\"\ncwd = \".\"",
            Program::File("/x".into()),
            "/c/servers.d/.",
        );
    }

    #[test]
    fn path_is_put_before_path_whoever_set_it() {
        let launch = resolved("command = \"x\"\npath = [\"~/bin\", \"b\"]");
        check_env(&launch, "PATH", Some("/h/bin:/c/servers.d/b:/usr/bin:/bin"));
        let folders = ["/h/bin", "/c/servers.d/b", "/usr/bin", "/bin"].map(PathBuf::from);
        assert_eq!(launch.search_path, folders);
        let launch =
            resolved("command = \"x\"\npath = [\"/p\"]\n[env]\nPATH = \"${PATH}::rel:/p:/last\"");
        check_env(&launch, "PATH", Some("/p:/usr/bin:/bin::rel:/p:/last"));
        assert_eq!(
            launch.search_path,
            ["/p", "/usr/bin", "/bin", "/last"].map(PathBuf::from)
        );
    }

    #[test]
    fn what_is_shown_is_unexpanded_and_holds_no_secret() {
        let launch = resolved(concat!(
            "command = \"x\"\nargs = [\"${TOKEN}\", \"--password\", \"hunter2\"]\ncwd = \"~/${TOKEN}\"\n",
            "[env]\nTOKEN = \"s3cr3t-value\"\n",
        ));
        assert_eq!(launch.shown.argv, ["x", "${TOKEN}", "--password", "‹…›"]);
        assert_eq!(launch.shown.cwd, "~/${TOKEN}");
        for name in ["TOKEN", "MCPD_INSTANCE"] {
            assert!(launch.shown.env_names.contains(&name.to_owned()));
        }
        let debug = format!(
            "{launch:?} {:?}",
            sources(&[("T", "s3cr3t-value")], &[("U", "s3cr3t-value")])
        );
        assert!(
            !debug.contains("s3cr3t-value") && !debug.contains("hunter2"),
            "{debug}"
        );
    }

    #[test]
    fn every_value_that_was_given_is_redacted_by_name() {
        let text = concat!(
            "command = \"x\"\npass_env = [\"PASSED\"]\nenv_file = \"e\"\n",
            "[env]\nT = \"text-value\"\nF = { file = \"f\" }\nC = { command = [\"c\"] }\nN = \"8\"\n",
        );
        let sources = sources(
            &[("E", "env-file-value")],
            &[("F", "file-value"), ("C", "command-value")],
        );
        let launch = resolve(&spec(text), &base(), &sources).unwrap();
        assert_eq!(
            launch.redactor.text(
                "from-pass-env env-file-value text-value file-value command-value 8 /usr/bin:/bin"
            ),
            "‹PASSED› ‹E› ‹T› ‹F› ‹C› 8 /usr/bin:/bin"
        );
    }

    #[test]
    fn what_no_process_can_be_given_is_an_error_without_the_value() {
        let text =
            "command = \"x\"\nenv_file = \"e\"\n[env]\nF = { file = \"f\" }\nG = { file = \"g\" }";
        let sources = sources(&[("LISTEN_FDS", "3")], &[("F", "a\0s3cr3t")]);
        assert_eq!(
            errors(text, &sources),
            [
                "/c/servers.d/x.toml: error: `LISTEN_FDS` is never given to a server",
                "/c/servers.d/x.toml: error: the value of `env.F` holds a NUL byte",
                "/c/servers.d/x.toml: error: the value of `env.G` was not read",
            ]
        );
    }

    #[test]
    fn an_empty_program_is_an_error() {
        let shown = errors("command = \"${E}\"\n[env]\nE = \"\"", &Sources::default());
        assert_eq!(
            shown,
            [
                "/c/servers.d/x.toml:1:11: error: `command` is empty once its variables are filled in"
            ]
        );
    }

    #[test]
    fn a_stop_command_has_its_paths_filled_in() {
        let launch = resolved("command = \"x\"\nstop_command = [\"./stop\", \"~/x\", \"a/b\"]");
        assert_eq!(
            launch.stop_command.unwrap(),
            ["/c/servers.d/./stop", "/h/x", "a/b"]
        );
    }

    #[test]
    fn withheld_proxies_are_named() {
        let mut daemon: Environment = DAEMON.into_iter().collect();
        daemon.set("HTTP_PROXY", "http://u:p@proxy");
        let base = Base::new(daemon, base().user().clone(), None);
        let launch = resolve(&spec("command = \"x\""), &base, &Sources::default()).unwrap();
        assert_eq!(launch.withheld, ["HTTP_PROXY"]);
    }

    proptest! {
        #[test]
        fn nothing_that_was_given_is_shown(value in "[a-zA-Z0-9 \"'=#\\\\-]{8,30}") {
            let text = "command = \"${S}\"\nargs = [\"${S}\"]\ncwd = \"/${S}\"\nenv_file = \"e\"";
            let sources = sources(&[("S", &value)], &[]);
            let launch = resolve(&spec(text), &base(), &sources).unwrap();
            let shown = format!("{:?}", launch.shown);
            prop_assert!(!shown.contains(&value));
            prop_assert_eq!(launch.redactor.text(&value), "‹S›");
        }
    }
}
