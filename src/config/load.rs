//! Reads the configuration folder: `mcpd.toml` and all of `servers.d`.
//!
//! It decides which entries of the folder are servers, and keeps a bad file from touching anything
//! but its own server: each is known by its name with its errors, while the others load. It never
//! waits for a file, and it runs no command.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::advice::{Reading, advise, find_string};
use super::arg_secrets::names_secret;
use super::diagnostics::{Code, Diagnostic, Severity, SourceText};
use super::draft::Draft;
use super::environment::Base;
use super::fingerprint::HashKey;
use super::parse::{DaemonFile, Surroundings, parse_daemon, parse_server};
use super::regular_file::{FileContents, ReadError, read_regular_file};
use super::resolve::{Sources, resolve};
use super::sources::{Credentials, read_file_sources};
use super::spec::{EnvValue, ServerName, ServerSpec, is_server_file_name};
use super::watch_set::{FolderSight, Seen};

/// The most servers that one folder may hold.
const SERVERS_LIMIT: usize = 1_000;

/// What stands for the output of a command where only its presence counts.
const STAND_IN: &[u8] = b"value";

/// What to load and what to compare it with.
#[derive(Clone, Copy, Debug)]
pub struct LoadRequest<'a> {
    /// As it is named, absolute.
    pub config_dir: &'a Path,
    pub base: &'a Base,
    /// For [`ServerSpec::contents`]; without one they stay empty.
    pub hash_key: Option<&'a HashKey>,
    /// The last good `mcpd.toml`: what counts while the file is bad.
    pub last_daemon_file: Option<&'a DaemonFile>,
}

/// All that was found in a configuration folder.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// `mcpd.toml`, or the last good one, or the defaults.
    pub daemon: DaemonFile,
    /// What is wrong with `mcpd.toml`.
    pub daemon_errors: Vec<Diagnostic>,
    /// Every server by name, valid or with all that is wrong with it.
    pub servers: BTreeMap<ServerName, Result<ServerSpec, Vec<Diagnostic>>>,
    /// What belongs to no server: files whose name is none, a folder that cannot be read.
    pub stray: Vec<Diagnostic>,
    /// What keeps nobody from running, for `mcpd check`.
    pub warnings: Vec<Diagnostic>,
    /// What all of this was read from.
    pub seen: Seen,
}

impl Loaded {
    /// The servers to have: the valid ones, and those of `old` whose file is bad now.
    pub fn effective(
        &self,
        old: &BTreeMap<ServerName, ServerSpec>,
    ) -> BTreeMap<ServerName, ServerSpec> {
        let spec = |(name, loaded): (&ServerName, &Result<ServerSpec, _>)| {
            let spec = loaded.as_ref().ok().or_else(|| old.get(name));
            spec.map(|spec| (name.clone(), spec.clone()))
        };
        self.servers.iter().filter_map(spec).collect()
    }

    /// The errors that belong to no server.
    pub fn all_stray(&self) -> impl Iterator<Item = &Diagnostic> {
        self.daemon_errors.iter().chain(&self.stray)
    }

    /// All errors of all files, in the order of the files.
    pub fn errors(&self) -> Vec<Diagnostic> {
        let servers = self
            .servers
            .values()
            .filter_map(|loaded| loaded.as_ref().err())
            .flatten();
        let mut errors: Vec<Diagnostic> = self.all_stray().chain(servers).cloned().collect();
        Diagnostic::sort(&mut errors);
        errors
    }
}

/// Reads the whole folder. Blocking, but never for long.
pub fn load(request: LoadRequest<'_>) -> Loaded {
    let mut loaded = Loaded {
        daemon: request.last_daemon_file.cloned().unwrap_or_default(),
        daemon_errors: Vec::new(),
        servers: BTreeMap::new(),
        stray: Vec::new(),
        warnings: Vec::new(),
        seen: Seen {
            servers_dir: request.config_dir.join("servers.d"),
            has_daemon_file: true,
            ..Seen::default()
        },
    };
    match load_daemon_file(request.config_dir, request.base) {
        Ok(Some(file)) => loaded.daemon = file,
        Ok(None) => {
            loaded.daemon = DaemonFile::default();
            loaded.seen.has_daemon_file = false;
        }
        Err(errors) => loaded.daemon_errors = errors,
    }
    let files = server_files(&mut loaded.seen, &mut loaded.stray);
    loaded.seen.server_files = files.iter().cloned().collect();
    for path in files {
        let Some(name) = server_name(&path) else {
            loaded.stray.push(bad_name(&path));
            continue;
        };
        let mut warnings = Vec::new();
        let server = load_server(
            &name,
            &path,
            &loaded.daemon.defaults,
            &request,
            &mut Findings {
                warnings: &mut warnings,
                sources: &mut loaded.seen.sources,
            },
        );
        let memory_limit_bytes = loaded.daemon.config.memory_limit_bytes;
        let spec = server.as_ref().ok();
        warnings.extend(spec.and_then(|spec| larger_than_memory(spec, memory_limit_bytes)));
        loaded.servers.insert(name, server);
        loaded.warnings.append(&mut warnings);
    }
    Diagnostic::sort(&mut loaded.warnings);
    loaded
}

/// Reads `mcpd.toml`; nothing if there is none.
///
/// # Errors
/// Everything that is wrong with it.
pub fn load_daemon_file(
    config_dir: &Path,
    base: &Base,
) -> Result<Option<DaemonFile>, Vec<Diagnostic>> {
    let path = config_dir.join("mcpd.toml");
    let contents = match read_regular_file(&path) {
        Err(ReadError::Missing) => return Ok(None),
        read => read.map_err(|error| vec![unreadable(&path, &error)])?,
    };
    let text = decode(&path, &contents)?;
    let home = base.home();
    let is_program = |path: &Path| is_program(path, base.path());
    parse_daemon(
        &SourceText::new(&path, text),
        Surroundings {
            home: &home,
            is_program: &is_program,
        },
    )
    .map(Some)
}

/// Reads one server's file, wherever it is: what `mcpd check FILE` asks for.
///
/// # Errors
/// Everything that is wrong with it, its name included.
pub fn load_server_file(
    path: &Path,
    defaults: &Draft,
    base: &Base,
    warnings: &mut Vec<Diagnostic>,
) -> Result<ServerSpec, Vec<Diagnostic>> {
    let name = server_name(path).ok_or_else(|| vec![bad_name(path)])?;
    let config_dir = path.parent().unwrap_or(Path::new("/"));
    let request = LoadRequest {
        config_dir,
        base,
        hash_key: None,
        last_daemon_file: None,
    };
    let findings = &mut Findings {
        warnings,
        sources: &mut BTreeSet::new(),
    };
    load_server(&name, path, defaults, &request, findings)
}

/// What is found on the way to a server, whatever becomes of it.
struct Findings<'a> {
    warnings: &'a mut Vec<Diagnostic>,
    /// The files that its values come from.
    sources: &'a mut BTreeSet<PathBuf>,
}

/// One server: its text, then whatever its values come from. Files are read also to see that they
/// can be; commands are taken to give a value.
fn load_server(
    name: &ServerName,
    path: &Path,
    defaults: &Draft,
    request: &LoadRequest<'_>,
    findings: &mut Findings<'_>,
) -> Result<ServerSpec, Vec<Diagnostic>> {
    let base = request.base;
    let contents = read_regular_file(path).map_err(|error| vec![unreadable(path, &error)])?;
    let source = SourceText::new(path, decode(path, &contents)?);
    let home = base.home();
    let is_program = |path: &Path| is_program(path, base.path());
    let surroundings = Surroundings {
        home: &home,
        is_program: &is_program,
    };
    let parsed = parse_server(name, &source, defaults, surroundings);
    let reading = Reading {
        source: &source,
        readable_by_others: contents.is_readable_by_others(),
    };
    findings.warnings.extend(advise(&reading));
    let mut spec = parsed?;
    if !spec.enabled {
        return Ok(spec);
    }
    findings.sources.extend(spec.sources().map(Path::to_owned));
    // Without a key nothing is compared later on: this is a look from outside the daemon.
    let credentials = match (base.credentials_dir(), request.hash_key) {
        (None, None) => Credentials::Unseen,
        (folder, _) => Credentials::of_daemon(folder),
    };
    let read = match read_file_sources(&spec, base.user().uid, credentials, request.hash_key) {
        Ok(read) => read,
        Err(errors) => return Err(with_lines(and_what_else(errors, &spec, base), &source)),
    };
    findings.warnings.extend(read.warnings);
    let exposed = exposed_values(&spec, &read.sources);
    findings.warnings.extend(with_lines(exposed, &source));
    let sources = with_stand_ins(&spec, read.sources);
    let resolved = resolve(&spec, base, &sources).map_err(|errors| with_lines(errors, &source))?;
    findings
        .warnings
        .extend(resolved.withheld.iter().map(|name| withheld(&spec, name)));
    spec.contents = read.contents;
    Ok(spec)
}

/// `sources` with something for every value that is not text and was not read.
pub(super) fn with_stand_ins(spec: &ServerSpec, mut sources: Sources) -> Sources {
    let others = spec.launch.env.iter();
    for (name, _) in others.filter(|(_, value)| !matches!(value, EnvValue::Text(_))) {
        let value = sources.values.entry(name.clone());
        value.or_insert_with(|| STAND_IN.to_vec());
    }
    sources
}

/// `errors` of reading, and what is wrong whatever the files hold. Which other variables are missing
/// is not known without an `env_file`.
fn and_what_else(mut errors: Vec<Diagnostic>, spec: &ServerSpec, base: &Base) -> Vec<Diagnostic> {
    let has_all = spec.launch.env_file.is_none();
    let found = resolve(spec, base, &with_stand_ins(spec, Sources::default()));
    let more = found.err().into_iter().flatten();
    errors.extend(more.filter(|error| has_all || error.key_path.starts_with("pass_env")));
    errors
}

/// Arguments that bring a secret into the command line, where every user of the machine can see it.
fn exposed_values(spec: &ServerSpec, sources: &Sources) -> Vec<Diagnostic> {
    let is_secret = |name: &str| match spec.launch.env.get(name) {
        Some(EnvValue::File(_) | EnvValue::Command(_) | EnvValue::Credential(_)) => true,
        Some(EnvValue::Text(_)) => names_secret(name),
        None => names_secret(name) || sources.env_file.iter().any(|(given, _)| given == name),
    };
    let mut found = Vec::new();
    for (at, argument) in spec.launch.args.iter().enumerate() {
        let key = format!("args[{at}]");
        let origin = argument.origin();
        for name in argument.variables().filter(|name| is_secret(name)) {
            let message =
                format!("`{key}` shows the value of `{name}` to every user of this machine");
            let warning =
                Diagnostic::for_file(Severity::Warning, Code::Advice, &origin.file, message);
            found.push(
                warning.with_key(key.as_str()).at(origin.place).with_hint(
                    "the server has it in its environment, if it can take it from there",
                ),
            );
        }
    }
    found
}

/// Whether one message may be larger than all that the daemon may hold.
fn larger_than_memory(spec: &ServerSpec, memory_limit_bytes: u64) -> Option<Diagnostic> {
    let larger = spec.policy.message_limit_bytes as u64 > memory_limit_bytes;
    larger.then(|| {
        let message = "`message_limit` is above the `memory_limit` of `mcpd.toml`";
        Diagnostic::for_file(Severity::Warning, Code::Advice, &spec.file, message)
            .with_key("message_limit")
            .with_hint("a message of this size ends the connection of its host")
    })
}

/// The entries that are servers, in the order of their names. What is no file, or has not the name of
/// one, is an editor's or a package's leftover and no error.
fn server_files(seen: &mut Seen, stray: &mut Vec<Diagnostic>) -> Vec<PathBuf> {
    let folder = &seen.servers_dir;
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        // No folder, no servers: a fresh installation.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            seen.folder = FolderSight::Missing;
            return Vec::new();
        }
        Err(error) => {
            seen.folder = FolderSight::Unreadable;
            stray.push(Diagnostic::file_error(
                Code::File,
                folder,
                format!("cannot be read: {error}"),
            ));
            return Vec::new();
        }
    };
    let mut files: Vec<PathBuf> = Vec::new();
    for entry in entries {
        match entry {
            Ok(entry) if is_server_file_name(&entry.file_name()) => files.push(entry.path()),
            Ok(_) => {}
            Err(error) => {
                stray.push(Diagnostic::file_error(
                    Code::File,
                    folder,
                    format!("cannot be read: {error}"),
                ));
                break;
            }
        }
    }
    // A directory or a fifo is none; what cannot be looked at is told when it is read.
    files.retain(|path| fs::metadata(path).map_or(true, |metadata| metadata.is_file()));
    files.sort();
    if files.len() > SERVERS_LIMIT {
        let message = format!(
            "more than {SERVERS_LIMIT} servers; those after it in the alphabet are left out"
        );
        stray.push(Diagnostic::file_error(
            Code::File,
            &files[SERVERS_LIMIT - 1],
            message,
        ));
        files.truncate(SERVERS_LIMIT);
    }
    files
}

fn server_name(path: &Path) -> Option<ServerName> {
    ServerName::parse(path.file_stem()?.to_str()?)
}

fn bad_name(path: &Path) -> Diagnostic {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    Diagnostic::file_error(
        Code::Name,
        path,
        format!("`{stem}` cannot be the name of a server"),
    )
    .with_hint("a letter or digit first, then up to 63 letters, digits, `.`, `_` or `-`")
}

fn unreadable(path: &Path, error: &ReadError) -> Diagnostic {
    Diagnostic::file_error(Code::File, path, error.to_string())
}

fn decode<'c>(path: &Path, contents: &'c FileContents) -> Result<&'c str, Vec<Diagnostic>> {
    if contents.bytes.starts_with(b"\xff\xfe") || contents.bytes.starts_with(b"\xfe\xff") {
        let error = Diagnostic::file_error(Code::Syntax, path, "the text is UTF-16");
        return Err(vec![error.with_hint("save it as UTF-8")]);
    }
    std::str::from_utf8(&contents.bytes).map_err(|error| {
        let good = String::from_utf8_lossy(&contents.bytes[..error.valid_up_to()]);
        let place = SourceText::new(path, &good).place(good.len());
        vec![Diagnostic::file_error(Code::Syntax, path, "the text is not UTF-8").at(Some(place))]
    })
}

/// Whether a path is a file, or a bare name is an executable one in an absolute folder of the PATH.
pub fn is_program(path: &Path, search_path: &OsStr) -> bool {
    if path.is_absolute() {
        return path.is_file();
    }
    let mut folders = std::env::split_paths(search_path).filter(|folder| folder.is_absolute());
    folders.any(|folder| is_executable(&folder.join(path)))
}

pub(crate) fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.mode() & 0o111 != 0)
}

/// Findings of filling in know their place or at least their key; the line is added here, where the
/// text is.
pub(super) fn with_lines(found: Vec<Diagnostic>, source: &SourceText) -> Vec<Diagnostic> {
    let add = |mut one: Diagnostic| {
        if one.file != **source.file() {
            return one;
        }
        let span = match one.place {
            Some(place) => source.span_of(place),
            // What `mcpd.toml` says for all servers does not stand here.
            None => find_string(source, &one.key_path),
        };
        if let Some(span) = span {
            one.place = Some(source.place(span.start));
            one.source_line = Some(source.source_line(span));
        }
        one
    };
    found.into_iter().map(add).collect()
}

fn withheld(spec: &ServerSpec, name: &str) -> Diagnostic {
    let message = format!("`{name}` holds a password and is not passed on");
    Diagnostic::for_file(Severity::Warning, Code::Advice, &spec.file, message)
        .with_key("proxy_env")
        .with_hint(format!(
            "list it to pass it on all the same: pass_env = [\"{name}\"]"
        ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::environment::{Environment, User};
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    /// A configuration folder with `files`, by path below it.
    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("servers.d")).unwrap();
        for (name, text) in files {
            write(folder.path(), name, text.as_bytes(), 0o600);
        }
        folder
    }

    fn write(folder: &Path, name: &str, bytes: &[u8], mode: u32) {
        let path = folder.join(name);
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn base(environment: &[(&str, &str)]) -> Base {
        let user = User {
            uid: nix::unistd::getuid().as_raw(),
            name: "ada".into(),
            home: "/h".into(),
            shell: "/bin/sh".into(),
        };
        Base::new(
            environment.iter().copied().collect::<Environment>(),
            user,
            None,
        )
    }

    fn load_from(folder: &Path) -> Loaded {
        load_with(folder, &base(&[]), None)
    }

    fn load_with(config_dir: &Path, base: &Base, hash_key: Option<&HashKey>) -> Loaded {
        load(LoadRequest {
            config_dir,
            base,
            hash_key,
            last_daemon_file: None,
        })
    }

    /// Each server with `ok` or its errors, without the folder's own path.
    fn shown(folder: &Path, loaded: &Loaded) -> Vec<String> {
        let prefix = format!("{}/", folder.display());
        let errors = |errors: &[Diagnostic]| {
            let lines: Vec<String> = errors.iter().map(Diagnostic::to_line).collect();
            lines.join("; ").replace(&prefix, "")
        };
        let servers = loaded.servers.iter().map(|(name, server)| match server {
            Ok(_) => format!("{name}: ok"),
            Err(found) => format!("{name}: {}", errors(found)),
        });
        servers
            .chain(
                loaded
                    .stray
                    .iter()
                    .map(|stray| errors(std::slice::from_ref(stray))),
            )
            .collect()
    }

    #[track_caller]
    fn check(files: &[(&str, &str)], expected: &[&str]) {
        let folder = folder(files);
        assert_eq!(shown(folder.path(), &load_from(folder.path())), expected);
    }

    #[test]
    fn one_broken_file_costs_only_its_own_server() {
        check(
            &[
                ("servers.d/a.toml", "command = \"x\""),
                ("servers.d/b.toml", "comand = \"x\""),
                ("servers.d/c.toml", "command = \"x\"\nenv_file = \"none\""),
                ("servers.d/d.toml", ""),
                ("servers.d/e.toml", "command = \"x\"\nargs = [\"${NOPE}\"]"),
            ],
            &[
                "a: ok",
                "b: servers.d/b.toml:1:1: unknown key `comand`",
                "c: servers.d/c.toml:2:12: `env_file` servers.d/none: no such file",
                "d: servers.d/d.toml:1:1: the file is empty: `command` is missing",
                "e: servers.d/e.toml:2:9: `args[0]` needs the variable `NOPE`, which is not set",
            ],
        );
    }

    #[test]
    fn what_editors_and_packages_leave_is_no_server() {
        let folder = folder(&[("servers.d/a.toml", "command = \"x\"")]);
        let servers = folder.path().join("servers.d");
        for name in [
            "a.toml~",
            ".a.toml.swp",
            "a.toml.bak",
            "#a.toml#",
            "4913",
            "a.toml.rpmnew",
            ".DS_Store",
            ".b.toml",
        ] {
            fs::write(servers.join(name), "not TOML at all").unwrap();
        }
        symlink("nowhere", servers.join(".#a.toml")).unwrap();
        fs::create_dir(servers.join("x.toml")).unwrap();
        nix::unistd::mkfifo(&servers.join("fifo.toml"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(shown(folder.path(), &load_from(folder.path())), ["a: ok"]);
    }

    #[test]
    fn links_count_by_the_name_they_have_here() {
        let folder = folder(&[("elsewhere", "command = \"./run\"\ncwd = \".\"")]);
        symlink("../elsewhere", folder.path().join("servers.d/linked.toml")).unwrap();
        symlink("nowhere", folder.path().join("servers.d/dangling.toml")).unwrap();
        let loaded = load_from(folder.path());
        assert_eq!(
            shown(folder.path(), &loaded),
            [
                "dangling: servers.d/dangling.toml: a link to a file that does not exist",
                "linked: ok"
            ]
        );
        let linked = loaded.servers[&ServerName::parse("linked").unwrap()]
            .as_ref()
            .unwrap();
        assert_eq!(linked.folder(), folder.path().join("servers.d"));
    }

    #[test]
    fn names_that_are_none_are_told_of() {
        let folder = folder(&[
            ("servers.d/a b.toml", "command = \"x\""),
            ("servers.d/-x.toml", ""),
        ]);
        fs::write(
            folder
                .path()
                .join("servers.d")
                .join(OsStr::from_bytes(b"\xff.toml")),
            "",
        )
        .unwrap();
        let long = format!("servers.d/{}.toml", "n".repeat(65));
        write(folder.path(), &long, b"command = \"x\"", 0o600);
        assert_eq!(
            shown(folder.path(), &load_from(folder.path())),
            [
                "servers.d/-x.toml: `-x` cannot be the name of a server".to_owned(),
                "servers.d/a b.toml: `a b` cannot be the name of a server".to_owned(),
                format!(
                    "{long}: `{}` cannot be the name of a server",
                    "n".repeat(65)
                ),
                "servers.d/\u{fffd}.toml: `\u{fffd}` cannot be the name of a server".to_owned(),
            ]
        );
    }

    #[test]
    fn text_that_is_not_utf_8_is_told_of_with_its_place() {
        let folder = folder(&[]);
        write(
            folder.path(),
            "servers.d/a.toml",
            b"command = \"x\"\n# \xff",
            0o600,
        );
        write(folder.path(), "servers.d/b.toml", b"\xff\xfec\0", 0o600);
        write(
            folder.path(),
            "servers.d/c.toml",
            &vec![b'#'; (1 << 20) + 1],
            0o600,
        );
        assert_eq!(
            shown(folder.path(), &load_from(folder.path())),
            [
                "a: servers.d/a.toml:2:3: the text is not UTF-8",
                "b: servers.d/b.toml: the text is UTF-16",
                "c: servers.d/c.toml: has more than 1024 KiB",
            ]
        );
    }

    #[test]
    fn no_folder_is_no_server_and_a_file_in_its_place_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let loaded = load_from(&folder.path().join("missing"));
        assert!(loaded.servers.is_empty() && loaded.errors().is_empty());
        fs::write(folder.path().join("servers.d"), "").unwrap();
        let loaded = load_from(folder.path());
        assert_eq!(
            shown(folder.path(), &loaded),
            ["servers.d: cannot be read: Not a directory (os error 20)"]
        );
    }

    #[test]
    fn an_env_file_that_others_can_read_is_refused() {
        let text = "command = \"x\"\nenv_file = \".env\"";
        let folder = folder(&[("servers.d/a.toml", text)]);
        for (mode, others) in [
            (0o600, false),
            (0o400, false),
            (0o640, true),
            (0o604, true),
            (0o620, true),
        ] {
            write(folder.path(), "servers.d/.env", b"A=1", mode);
            let expected = match others {
                true => format!(
                    "a: servers.d/a.toml:2:12: `env_file` servers.d/.env: others have access to it (mode {mode:04o})"
                ),
                false => "a: ok".to_owned(),
            };
            assert_eq!(shown(folder.path(), &load_from(folder.path())), [expected]);
        }
    }

    #[test]
    fn faulty_lines_of_an_env_file_are_its_servers_errors() {
        check(
            &[
                ("servers.d/a.toml", "command = \"x\"\nenv_file = \"e\""),
                ("servers.d/e", "A=1\nB=\"s3cr3t-value\n"),
                (
                    "servers.d/b.toml",
                    "command = \"x\"\nenv_file = \"f\"\nenv.K = { file = \"none\" }",
                ),
                ("servers.d/f", "LISTEN_FDS=3"),
            ],
            &[
                "a: servers.d/e:2:3: a quote that is not closed",
                "b: servers.d/b.toml:3:18: the file of `env.K`, servers.d/none: no such file",
            ],
        );
    }

    #[test]
    fn a_value_file_that_others_can_read_is_warned_of() {
        let folder = folder(&[(
            "servers.d/a.toml",
            "command = \"x\"\nenv.K = { file = \"../key\" }",
        )]);
        write(folder.path(), "key", b"v\n", 0o644);
        let loaded = load_from(folder.path());
        assert_eq!(loaded.warnings.len(), 1);
        assert!(
            loaded.warnings[0]
                .message
                .contains("others can read the file of `env.K`")
        );
    }

    #[test]
    fn a_disabled_server_needs_nothing_from_its_surroundings() {
        check(
            &[(
                "servers.d/a.toml",
                "command = \"${NOPE}\"\nenabled = false\nenv_file = \"none\"",
            )],
            &["a: ok"],
        );
    }

    #[test]
    fn commands_are_not_run_to_load() {
        check(
            &[(
                "servers.d/a.toml",
                "command = \"x\"\nargs = [\"${K}\"]\nenv.K = { command = [\"/nonexistent\"] }",
            )],
            &["a: ok"],
        );
    }

    #[test]
    fn a_bad_mcpd_toml_leaves_the_last_good_one_in_force() {
        let good = [
            (
                "mcpd.toml",
                "memory_limit = \"1GiB\"\n[defaults]\nrestart = \"no\"",
            ),
            ("servers.d/a.toml", "command = \"x\""),
        ];
        let folder = folder(&good);
        let first = load_from(folder.path());
        assert_eq!(first.daemon.config.memory_limit_bytes, 1 << 30);
        write(folder.path(), "mcpd.toml", b"memory_limit = 5", 0o600);
        let base = base(&[]);
        let request = LoadRequest {
            config_dir: folder.path(),
            base: &base,
            hash_key: None,
            last_daemon_file: Some(&first.daemon),
        };
        let second = load(request);
        assert_eq!(second.daemon, first.daemon);
        assert_eq!(second.daemon_errors.len(), 1);
        assert_eq!(second.servers, first.servers);
        assert_eq!(second.errors(), second.daemon_errors);
        fs::remove_file(folder.path().join("mcpd.toml")).unwrap();
        assert_eq!(load(request).daemon, DaemonFile::default());
    }

    #[test]
    fn a_server_whose_file_is_bad_now_stays_as_it_was() {
        let folder = folder(&[
            ("servers.d/a.toml", "command = \"x\""),
            ("servers.d/b.toml", "command = \"x\""),
        ]);
        let old = load_from(folder.path()).effective(&BTreeMap::new());
        write(folder.path(), "servers.d/a.toml", b"command = ", 0o600);
        fs::remove_file(folder.path().join("servers.d/b.toml")).unwrap();
        write(folder.path(), "servers.d/c.toml", b"command = ", 0o600);
        let new = load_from(folder.path()).effective(&old);
        assert_eq!(
            new.keys().map(ServerName::as_str).collect::<Vec<_>>(),
            ["a"]
        );
        assert_eq!(new.values().next(), old.values().next());
    }

    #[test]
    fn contents_are_remembered_as_keyed_hashes_only() {
        let text = "command = \"x\"\nenv_file = \"e\"\nenv.K = { file = \"k\" }";
        let folder = folder(&[
            ("servers.d/a.toml", text),
            ("servers.d/e", "A=1"),
            ("servers.d/k", "v"),
        ]);
        let key = HashKey([1; 32]);
        let contents = |key| {
            let loaded = load_with(folder.path(), &base(&[]), key);
            loaded
                .servers
                .into_values()
                .next()
                .unwrap()
                .unwrap()
                .contents
        };
        let first = contents(Some(&key));
        assert_eq!(first.keys().collect::<Vec<_>>(), ["env.K", "env_file"]);
        assert_eq!(contents(Some(&key)), first);
        assert!(contents(None).is_empty());
        write(folder.path(), "servers.d/k", b"w", 0o600);
        assert_ne!(contents(Some(&key))["env.K"], first["env.K"]);
    }

    #[test]
    fn credentials_are_read_from_the_folder_of_the_service() {
        let text = "command = \"x\"\nenv.TOKEN = { credential = \"gh\" }";
        let folder = folder(&[("servers.d/a.toml", text), ("gh", "v\n")]);
        let credentials = folder.path();
        let service = base(&[("CREDENTIALS_DIRECTORY", credentials.to_str().unwrap())]);
        let key = HashKey([1; 32]);
        let loaded = load_with(folder.path(), &service, Some(&key));
        let first = loaded.servers.into_values().next().unwrap().unwrap();
        assert_eq!(first.contents.keys().collect::<Vec<_>>(), ["env.TOKEN"]);
        write(folder.path(), "gh", b"w\n", 0o600);
        let loaded = load_with(folder.path(), &service, Some(&key));
        let second = loaded.servers.into_values().next().unwrap().unwrap();
        assert_ne!(first.contents, second.contents);
        std::fs::remove_file(credentials.join("gh")).unwrap();
        let loaded = load_with(folder.path(), &service, Some(&key));
        let shown = shown(folder.path(), &loaded).remove(0);
        assert!(shown.starts_with("a: servers.d/a.toml:2:"), "{shown}");
        let missing = "the credential `gh` of `env.TOKEN` is not given to the service";
        assert!(shown.ends_with(missing), "{shown}");
    }

    #[test]
    fn a_credential_is_an_error_for_a_daemon_without_any_and_a_warning_for_a_check() {
        let text = "command = \"x\"\nenv.TOKEN = { credential = \"gh\" }";
        let folder = folder(&[("servers.d/a.toml", text)]);
        let key = HashKey([1; 32]);
        let loaded = load_with(folder.path(), &base(&[]), Some(&key));
        let error = loaded.errors().remove(0);
        assert!(error.message.contains("`gh` of `env.TOKEN`"), "{error}");
        let loaded = load_from(folder.path());
        assert!(loaded.errors().is_empty());
        let warning = loaded.warnings[0].to_line();
        assert!(warning.contains("`gh` of `env.TOKEN`"), "{warning}");
    }

    #[test]
    fn a_missing_variable_is_shown_with_its_line() {
        let folder = folder(&[(
            "servers.d/a.toml",
            "command = \"x\"\nargs = [\"--root\", \"${NOPE}\"]",
        )]);
        let loaded = load_from(folder.path());
        let error = loaded.errors().remove(0);
        assert_eq!(error.code, Code::MissingVariable);
        let shown = error.to_string();
        assert!(
            shown.contains(
                "2 | args = [\"--root\", \"${NOPE}\"]\n  |                   ^^^^^^^^^\n"
            ),
            "{shown}"
        );
    }

    #[test]
    fn warnings_are_given_for_files_with_errors_too() {
        let folder = folder(&[(
            "servers.d/a.toml",
            "command = \"npx\"\nargs = [\"$X\"]\nrestat = \"no\"",
        )]);
        let loaded = load_from(folder.path());
        assert_eq!(loaded.errors().len(), 1);
        let lines: Vec<u32> = loaded
            .warnings
            .iter()
            .map(|warning| warning.place.unwrap().line)
            .collect();
        assert_eq!(lines, [1, 2]);
    }

    #[test]
    fn a_message_larger_than_all_memory_is_warned_of() {
        let folder = folder(&[
            ("mcpd.toml", "memory_limit = \"1MiB\""),
            (
                "servers.d/a.toml",
                "command = \"x\"\nmessage_limit = \"1MiB\"",
            ),
            (
                "servers.d/b.toml",
                "command = \"x\"\nmessage_limit = \"2MiB\"",
            ),
        ]);
        let warnings = load_from(folder.path()).warnings;
        let files: Vec<_> = warnings
            .iter()
            .map(|warning| warning.file.file_name().unwrap())
            .collect();
        assert_eq!(files, ["b.toml"]);
    }

    #[test]
    fn paths_may_hold_any_character() {
        let outer = tempfile::tempdir().unwrap();
        let odd = outer
            .path()
            .join(OsStr::from_bytes(b"a b ~ ' \" # \xf0\x9f\x98\x80 \xff"));
        fs::create_dir_all(odd.join("servers.d")).unwrap();
        write(&odd, "servers.d/my script", b"", 0o700);
        write(
            &odd,
            "servers.d/a.toml",
            b"command = \"./my script\"\ncwd = \".\"",
            0o600,
        );
        let loaded = load_from(&odd);
        let spec = loaded.servers.values().next().unwrap().as_ref().unwrap();
        let launch = resolve(spec, &base(&[]), &Default::default()).unwrap();
        assert_eq!(launch.argv, [odd.join("servers.d/./my script")]);
        assert_eq!(launch.cwd, odd.join("servers.d/."));
    }

    #[test]
    fn a_command_line_is_told_from_a_file_with_a_blank() {
        let folder = folder(&[
            ("servers.d/my server", ""),
            ("servers.d/a.toml", "command = \"./my server\""),
        ]);
        write(
            folder.path(),
            "servers.d/b.toml",
            b"command = \"./my other\"",
            0o600,
        );
        assert_eq!(
            shown(folder.path(), &load_from(folder.path())),
            [
                "a: ok",
                "b: servers.d/b.toml:1:11: `command` holds several words, and no file has this name"
            ]
        );
    }

    #[test]
    fn a_name_with_a_blank_may_be_a_program_on_the_path() {
        let folder = folder(&[("servers.d/a.toml", "command = \"my tool\"")]);
        write(folder.path(), "my tool", b"", 0o700);
        let path = folder.path().to_str().unwrap();
        let loaded = load_with(folder.path(), &base(&[("PATH", path)]), None);
        assert_eq!(shown(folder.path(), &loaded), ["a: ok"]);
        write(folder.path(), "my tool", b"", 0o600);
        let loaded = load_with(folder.path(), &base(&[("PATH", path)]), None);
        assert_eq!(loaded.errors().len(), 1);
    }

    #[test]
    fn one_file_can_be_checked_alone() {
        let folder = folder(&[("servers.d/a.toml", "command = \"npx\"")]);
        let mut warnings = Vec::new();
        let path = folder.path().join("servers.d/a.toml");
        let spec = load_server_file(&path, &Draft::default(), &base(&[]), &mut warnings).unwrap();
        assert_eq!((spec.name.as_str(), warnings.len()), ("a", 1));
        let path = folder.path().join("servers.d/b c.toml");
        assert!(load_server_file(&path, &Draft::default(), &base(&[]), &mut warnings).is_err());
    }

    #[test]
    fn every_server_of_the_repository_loads() {
        let repository = Path::new(env!("CARGO_MANIFEST_DIR"));
        let loaded = load_from(repository);
        let found = loaded.errors().into_iter().chain(loaded.warnings);
        let shown: Vec<String> = found.map(|found| found.to_string()).collect();
        assert!(shown.is_empty(), "{}", shown.join("\n"));
        assert!(
            loaded
                .servers
                .contains_key(&ServerName::parse("calculator").unwrap())
        );
    }
}
