//! The keys of the configuration: which there are, and what each may hold.
//!
//! It decides what is an unknown key, a wrong value or a key that this version does not have, and
//! notes all of them. It never decides what holds where a key is missing.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use toml::de::{DeTable, DeValue};

use super::diagnostics::Code;
use super::draft::Draft;
use super::environment::is_private_name;
use super::expand::{Template, expand_home};
use super::parse::{DaemonFile, Surroundings};
use super::spec::{CommandValue, EnvValue, Protocol, Restart, Sharing, Start};
use super::suggest::{hint_for_key, nearest};
use super::table::{Reader, Value, quote, quoted, split_words};

/// The keys of a server's file, in the order of the documentation.
pub(super) const SERVER_KEYS: [&str; 31] = [
    "command",
    "args",
    "cwd",
    "sharing",
    "description",
    "enabled",
    "env",
    "env_file",
    "pass_env",
    "path",
    "inherit_env",
    "proxy_env",
    "start",
    "idle_stop",
    "restart",
    "start_timeout",
    "drain_timeout",
    "reload_drain_timeout",
    "stop_timeout",
    "stop_command",
    "request_timeout",
    "max_calls",
    "stable_after",
    "start_limit",
    "message_limit",
    "limits",
    "watchdog",
    "allow_mcpd",
    "protocol",
    "interactive",
    "tools",
];

const DAEMON_KEYS: [&str; 3] = ["defaults", "path", "memory_limit"];
const TOOLS_KEYS: [&str; 2] = ["allow", "deny"];
const LIMITS_KEYS: [&str; 3] = ["memory", "tasks", "open_files"];
const VALUE_KEYS: [&str; 3] = ["file", "command", "credential"];
const RESTART_NAMES: [(&str, Restart); 3] = [
    ("always", Restart::Always),
    ("on-failure", Restart::OnFailure),
    ("no", Restart::No),
];
const START_NAMES: [(&str, Start); 2] = [("boot", Start::Boot), ("demand", Start::Demand)];
const SHARING_NAMES: [(&str, Sharing); 3] = [
    ("shared", Sharing::Shared),
    ("per-host", Sharing::PerHost),
    ("per-directory", Sharing::PerDirectory),
];
const PROTOCOL_NAMES: [(&str, Protocol); 3] = [
    ("auto", Protocol::Auto),
    ("legacy", Protocol::Legacy),
    ("modern", Protocol::Modern),
];

/// `CREDENTIAL_NAME_MAX` of systemd, which is that of a file's name.
const CREDENTIAL_NAME_LIMIT_BYTES: usize = 255;
const COUNT_LIMIT: u32 = 1_000_000;
const MESSAGE_LIMIT_RANGE_BYTES: std::ops::RangeInclusive<u64> = 1 << 10..=1 << 30;
const LIMITS_MEMORY_RANGE_BYTES: std::ops::RangeInclusive<u64> = 1 << 20..=1 << 50;
/// Fewer than a program needs to begin would only look like a fault of the program.
const OPEN_FILES_RANGE: std::ops::RangeInclusive<u32> = 16..=1 << 20;
const MEMORY_LIMIT_RANGE_BYTES: std::ops::RangeInclusive<u64> = 1 << 20..=64 << 30;

/// `name` as part of a key path, quoted where TOML would need it.
fn join(prefix: &str, name: &str) -> String {
    let bare = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    let name = match !name.is_empty() && name.bytes().all(bare) {
        true => name.to_owned(),
        false => quote(name),
    };
    if prefix.is_empty() {
        name
    } else {
        format!("{prefix}.{name}")
    }
}

/// Reads the keys of one file.
pub(super) struct KeyReader<'s> {
    pub(super) reader: Reader<'s>,
    pub(super) surroundings: Surroundings<'s>,
}

impl KeyReader<'_> {
    pub(super) fn daemon_file(&mut self, table: &DeTable<'_>) -> DaemonFile {
        let mut file = DaemonFile::default();
        for (name, value) in table {
            match &**name.get_ref() {
                "defaults" => {
                    if let Some(table) = self.reader.table("defaults", value) {
                        file.defaults = self.draft(table, "defaults");
                    }
                }
                "path" => file.config.path = self.daemon_path(value),
                "memory_limit" => {
                    let size = self
                        .reader
                        .size("memory_limit", value, MEMORY_LIMIT_RANGE_BYTES);
                    file.config.memory_limit_bytes = size.unwrap_or(file.config.memory_limit_bytes);
                }
                key if SERVER_KEYS.contains(&key) => {
                    self.unknown_key("", key, name.span(), &[]);
                    self.reader.hint(format!(
                        "`{key}` is a server's; for all servers it goes under `[defaults]`"
                    ));
                }
                key => self.unknown_key("", key, name.span(), &DAEMON_KEYS),
            }
        }
        file
    }

    /// The PATH of the daemon: as the shell writes it, or one folder an element.
    fn daemon_path(&mut self, value: &Value<'_>) -> Option<String> {
        let home = self.surroundings.home;
        let absolute = |folder: &str| expand_home(folder, home).to_string_lossy().into_owned();
        if let DeValue::String(_) = value.get_ref() {
            let path = self.reader.filled_string("path", value)?;
            return Some(path.split(':').map(absolute).collect::<Vec<_>>().join(":"));
        }
        if value.get_ref().as_array().is_none() {
            self.reader.wrong_type(
                "path",
                value,
                "a string such as \"/usr/local/bin:/usr/bin\" or an array of folders",
            );
            return None;
        }
        let folders = self.reader.strings("path", value)?;
        Some(
            folders
                .iter()
                .map(|folder| absolute(folder))
                .collect::<Vec<_>>()
                .join(":"),
        )
    }

    /// All keys of a server's file, or of `[defaults]` below `prefix`.
    pub(super) fn draft(&mut self, table: &DeTable<'_>, prefix: &str) -> Draft {
        let mut draft = Draft::default();
        for (name, value) in table {
            let key = join(prefix, name.get_ref());
            self.server_key(&mut draft, name.get_ref(), &key, name.span(), value);
        }
        if let (Some(command), Some(value)) = (&draft.command, table.get("command")) {
            self.refuse_command_line(command, &draft, value, &join(prefix, "command"));
        }
        draft
    }

    fn server_key(
        &mut self,
        draft: &mut Draft,
        name: &str,
        key: &str,
        span: Range<usize>,
        value: &Value<'_>,
    ) {
        let reader = &mut self.reader;
        match name {
            "command" => draft.command = self.command(key, value),
            "args" => draft.args = self.templates(key, value),
            "cwd" => draft.cwd = reader.filled_template(key, value),
            "sharing" => self.sharing(draft, key, value),
            "description" => draft.description = reader.string(key, value).map(str::to_owned),
            "enabled" => draft.enabled = reader.boolean(key, value),
            "env" => draft.env = self.env(key, value),
            "env_file" => draft.env_file = self.file(key, value),
            "pass_env" => draft.pass_env = self.pass_env(key, value),
            "path" => draft.path = self.path(key, value),
            "inherit_env" => draft.inherit_env = reader.boolean(key, value),
            "proxy_env" => draft.proxy_env = reader.boolean(key, value),
            "start" => draft.start = self.one_of(key, value, &START_NAMES),
            "idle_stop" => draft.idle_stop = reader.waiting_time(key, value),
            "watchdog" => draft.watchdog = reader.waiting_time(key, value),
            "allow_mcpd" => draft.allow_mcpd = reader.boolean(key, value),
            "restart" => draft.restart = self.one_of(key, value, &RESTART_NAMES),
            "start_timeout" => draft.start_timeout = reader.waiting_time(key, value),
            "drain_timeout" => draft.drain_timeout = reader.duration(key, value),
            "reload_drain_timeout" => {
                draft.reload_drain_timeout = reader.duration(key, value);
            }
            "stop_timeout" => draft.stop_timeout = reader.duration(key, value),
            "stop_command" => draft.stop_command = reader.command_words(key, value),
            "request_timeout" => draft.request_timeout = reader.waiting_time(key, value),
            "max_calls" => draft.max_calls = reader.integer(key, value, 1..=COUNT_LIMIT),
            "stable_after" => draft.stable_after = reader.duration(key, value),
            "start_limit" => draft.start_limit = reader.integer(key, value, 1..=COUNT_LIMIT),
            "message_limit" => {
                let size = reader.size(key, value, MESSAGE_LIMIT_RANGE_BYTES);
                draft.message_limit_bytes = size.and_then(|bytes| usize::try_from(bytes).ok());
            }
            "limits" => self.limits(draft, key, value),
            "protocol" => draft.protocol = self.one_of(key, value, &PROTOCOL_NAMES),
            "interactive" => draft.interactive = reader.boolean(key, value),
            "tools" => self.tools(draft, key, value),
            name => self.unknown_key(key, name, span, &SERVER_KEYS),
        }
    }

    fn unknown_key(&mut self, key: &str, name: &str, span: Range<usize>, known: &[&str]) {
        let key = if key.is_empty() { name } else { key };
        self.reader
            .error(Code::UnknownKey, span, key, format!("unknown key `{key}`"));
        if let Some(hint) = hint_for_key(name, known) {
            self.reader.hint(hint);
        }
    }

    fn sharing(&mut self, draft: &mut Draft, key: &str, value: &Value<'_>) {
        draft.sharing = self.one_of(key, value, &SHARING_NAMES);
        if draft.sharing == Some(Sharing::PerHost) {
            let message =
                format!("`{key} = \"per-host\"` is not available in this version of mcpd");
            self.reader.wrong_value(key, value, message);
        }
    }

    /// Refuses a working directory where each host brings its own. `draft` is the whole of what
    /// holds for the server, `table` its own file.
    pub(super) fn refuse_second_directory(&mut self, draft: &Draft, table: &DeTable<'_>) {
        if draft.sharing != Some(Sharing::PerDirectory) || draft.cwd.is_none() {
            return;
        }
        let (key, value) = match (table.get("cwd"), table.get("sharing")) {
            (Some(value), _) => ("cwd", value),
            (None, Some(value)) => ("sharing", value),
            // Both stand in `mcpd.toml`; any key of this file names the server.
            (None, None) => match table.get("command") {
                Some(value) => ("cwd", value),
                None => return,
            },
        };
        let message = "`cwd` and `sharing = \"per-directory\"` exclude each other: every instance is started in the directory of its hosts".to_owned();
        self.reader.wrong_value(key, value, message);
        self.reader.hint(match key {
            "cwd" if table.get("cwd").is_some() => "take one of them out".to_owned(),
            _ => "`cwd` comes from `[defaults]` of mcpd.toml: take one of them out".to_owned(),
        });
    }

    fn command(&mut self, key: &str, value: &Value<'_>) -> Option<Template> {
        if let Some(words) = value.get_ref().as_array() {
            self.reader.wrong_type(key, value, "a string");
            let words: Vec<&str> = words
                .iter()
                .filter_map(|word| word.get_ref().as_str())
                .collect();
            if let [program, arguments @ ..] = words.as_slice() {
                self.reader.hint(split_form(program, arguments));
            }
            return None;
        }
        self.reader.filled_template(key, value)
    }

    /// Refuses `command = "npx -y server"`, unless there is a file of that name.
    fn refuse_command_line(
        &mut self,
        command: &Template,
        draft: &Draft,
        value: &Value<'_>,
        key: &str,
    ) {
        // Whether a path with a variable in it exists is seen when it is started.
        let Some(text) = command.literal() else {
            return;
        };
        if !text.contains(char::is_whitespace) {
            return;
        }
        let program = match text.contains('/') {
            true => command
                .origin()
                .folder()
                .join(expand_home(text, self.surroundings.home)),
            false => PathBuf::from(text),
        };
        if (self.surroundings.is_program)(&program) {
            return;
        }
        let mut words = split_words(text);
        words.extend(
            draft
                .args
                .iter()
                .flatten()
                .map(|argument| argument.text().to_owned()),
        );
        let message = format!("`{key}` holds several words, and no file has this name");
        self.reader.wrong_value(key, value, message);
        if let [program, arguments @ ..] = words.as_slice() {
            self.reader.hint(split_form(program, arguments));
        }
    }

    fn templates(&mut self, key: &str, value: &Value<'_>) -> Option<Vec<Template>> {
        let elements = self.reader.elements(key, value)?;
        let read = elements
            .into_iter()
            .map(|(key, element)| self.reader.template(&key, element));
        read.collect::<Vec<_>>().into_iter().collect()
    }

    /// A file that counts from the folder of this one, absolute.
    fn file(&mut self, key: &str, value: &Value<'_>) -> Option<PathBuf> {
        let text = self.reader.filled_string(key, value)?;
        Some(self.absolute(text))
    }

    fn absolute(&self, text: &str) -> PathBuf {
        self.folder()
            .join(expand_home(text, self.surroundings.home))
    }

    fn folder(&self) -> &Path {
        self.reader.source.file().parent().unwrap_or(Path::new("/"))
    }

    fn path(&mut self, key: &str, value: &Value<'_>) -> Option<Vec<PathBuf>> {
        let elements = self.reader.elements(key, value)?;
        let mut folders = Vec::new();
        for (key, element) in elements {
            let Some(text) = self.reader.filled_string(&key, element) else {
                continue;
            };
            if text.contains(':') {
                self.reader
                    .wrong_value(&key, element, format!("`{key}` holds a colon"));
                self.reader.hint(format!(
                    "write one folder an element: {}",
                    quoted(&text.split(':').collect::<Vec<_>>())
                ));
            }
            folders.push(self.absolute(text));
        }
        Some(folders)
    }

    fn pass_env(&mut self, key: &str, value: &Value<'_>) -> Option<Vec<String>> {
        let elements = self.reader.elements(key, value)?;
        let mut names = Vec::new();
        for (key, element) in elements {
            let Some(name) = self.reader.filled_string(&key, element) else {
                continue;
            };
            self.check_variable_name(&key, name, element.span());
            names.push(name.to_owned());
        }
        Some(names)
    }

    fn check_variable_name(&mut self, key: &str, name: &str, span: Range<usize>) {
        if is_private_name(name.as_ref()) {
            let message = format!("`{name}` is never given to a server");
            self.reader.error(Code::Value, span, key, message);
            self.reader
                .hint("it belongs to what started the daemon, or to mcpd itself");
        } else if name.is_empty() || name.contains(['=', '\0']) {
            // Not the name itself: `NAME=VALUE` may have been written.
            self.reader.error(
                Code::Value,
                span,
                key,
                format!("`{key}` is no name for a variable"),
            );
            if let Some((name, _)) = name.split_once('=').filter(|(name, _)| !name.is_empty()) {
                self.reader.hint(format!("only the name: {}", quote(name)));
            }
        }
    }

    fn env(&mut self, key: &str, value: &Value<'_>) -> BTreeMap<String, EnvValue> {
        let Some(table) = self.reader.table(key, value) else {
            return BTreeMap::new();
        };
        let mut env = BTreeMap::new();
        for (name, value) in table {
            let key = join(key, name.get_ref());
            self.check_variable_name(&key, name.get_ref(), name.span());
            if let Some(value) = self.env_value(&key, value) {
                env.insert(name.get_ref().clone().into_owned(), value);
            }
        }
        env
    }

    fn env_value(&mut self, key: &str, value: &Value<'_>) -> Option<EnvValue> {
        match value.get_ref() {
            DeValue::String(_) => self.reader.template(key, value).map(EnvValue::Text),
            DeValue::Table(table) => self.env_source(key, table, value),
            DeValue::Integer(_) | DeValue::Float(_) | DeValue::Boolean(_) => {
                self.reader.wrong_type(key, value, "a string");
                self.reader
                    .hint("put it in quotes: every value of an environment is text");
                None
            }
            _ => {
                self.reader.wrong_type(
                    key,
                    value,
                    "a string, { file = … }, { command = … } or { credential = … }",
                );
                None
            }
        }
    }

    /// `{ file = … }`, `{ command = … }` or `{ credential = … }`, one of them.
    fn env_source(
        &mut self,
        key: &str,
        table: &DeTable<'_>,
        value: &Value<'_>,
    ) -> Option<EnvValue> {
        let mut found = None;
        let before = self.reader.diagnostics.len();
        for (name, source) in table {
            let inner = join(key, name.get_ref());
            match &**name.get_ref() {
                "file" => found = self.file(&inner, source).map(EnvValue::File),
                "command" => found = self.command_value(&inner, source).map(EnvValue::Command),
                "credential" => {
                    found = self.credential(&inner, source).map(EnvValue::Credential);
                }
                other => self.unknown_key(&inner, other, name.span(), &VALUE_KEYS),
            }
        }
        let fine = self.reader.diagnostics.len() == before;
        if fine && table.len() != 1 {
            self.reader.wrong_value(
                key,
                value,
                format!("`{key}` needs one of `file`, `command` and `credential`"),
            );
            return None;
        }
        found
    }

    fn command_value(&mut self, key: &str, value: &Value<'_>) -> Option<CommandValue> {
        let argv = self.reader.command_words(key, value)?;
        Some(CommandValue {
            argv,
            folder: Arc::from(self.folder()),
        })
    }

    /// The name of a credential, which is that of a file in one folder (systemd.exec(5)).
    fn credential(&mut self, key: &str, value: &Value<'_>) -> Option<String> {
        let name = self.reader.filled_string(key, value)?;
        let is_name = name.len() <= CREDENTIAL_NAME_LIMIT_BYTES
            && !matches!(name, "." | "..")
            && name
                .bytes()
                .all(|byte| byte.is_ascii_graphic() && byte != b'/' && byte != b':');
        if is_name {
            return Some(name.to_owned());
        }
        let message = format!("{} is no name for a credential", quote(name));
        self.reader.wrong_value(key, value, message);
        None
    }

    /// One of a few words.
    fn one_of<T: Copy>(&mut self, key: &str, value: &Value<'_>, known: &[(&str, T)]) -> Option<T> {
        let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
        let quoted: Vec<String> = names.iter().map(|name| quote(name)).collect();
        let expected = match quoted.split_last() {
            Some((last, others)) if !others.is_empty() => {
                format!("{} or {last}", others.join(", "))
            }
            _ => quoted.join(""),
        };
        let Some(text) = value.get_ref().as_str() else {
            self.reader.wrong_type(key, value, &expected);
            return None;
        };
        let found = known.iter().find(|(name, _)| *name == text);
        if found.is_none() {
            let message = format!("`{key}` must be {expected}, not {}", quote(text));
            self.reader.wrong_value(key, value, message);
            if let Some(name) = nearest(text, &names) {
                self.reader.hint(format!("did you mean \"{name}\"?"));
            }
        }
        found.map(|(_, value)| *value)
    }

    fn limits(&mut self, draft: &mut Draft, key: &str, value: &Value<'_>) {
        let Some(table) = self.reader.table(key, value) else {
            return;
        };
        for (name, value) in table {
            let inner = join(key, name.get_ref());
            let reader = &mut self.reader;
            match &**name.get_ref() {
                "memory" => {
                    draft.limits_memory_bytes =
                        reader.size(&inner, value, LIMITS_MEMORY_RANGE_BYTES);
                }
                "tasks" => draft.limits_tasks = reader.integer(&inner, value, 1..=COUNT_LIMIT),
                "open_files" => {
                    draft.limits_open_files = reader.integer(&inner, value, OPEN_FILES_RANGE);
                }
                other => self.unknown_key(&inner, other, name.span(), &LIMITS_KEYS),
            }
        }
    }

    fn tools(&mut self, draft: &mut Draft, key: &str, value: &Value<'_>) {
        let Some(table) = self.reader.table(key, value) else {
            return;
        };
        for (name, value) in table {
            let inner = join(key, name.get_ref());
            match &**name.get_ref() {
                "allow" => draft.tools_allow = self.reader.strings(&inner, value),
                "deny" => draft.tools_deny = self.reader.strings(&inner, value),
                other => self.unknown_key(&inner, other, name.span(), &TOOLS_KEYS),
            }
        }
    }
}

/// The lines to paste for a command that was written in one.
fn split_form<W: AsRef<str>>(program: &str, arguments: &[W]) -> String {
    let program = quote(program);
    match arguments.is_empty() {
        true => format!("write\ncommand = {program}"),
        false => format!("write\ncommand = {program}\nargs = [{}]", quoted(arguments)),
    }
}
