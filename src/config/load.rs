//! Reads the configuration folder: `mcpd.toml` and all of `servers.d`.
//!
//! It decides which entries of the folder are servers, and keeps a bad file from touching anything
//! but its own server: each is known by its name with its errors, while the others load. It never
//! waits for a file, and it runs no command.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::advice::{Reading, advise};
use super::command_value::{find_program, is_executable};
use super::diagnostics::{Code, Diagnostic, SourceText};
use super::draft::Draft;
use super::environment::Base;
use super::fingerprint::HashKey;
use super::parse::{DaemonFile, Surroundings, parse_daemon, parse_server};
use super::regular_file::{FileContents, ReadError, read_regular_file};
use super::resolve::resolve;
use super::sources::read_file_sources;
use super::spec::{EnvValue, ServerName, ServerSpec};

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

    /// All errors of all files, in the order of the files.
    pub fn errors(&self) -> Vec<Diagnostic> {
        let servers = self
            .servers
            .values()
            .filter_map(|loaded| loaded.as_ref().err())
            .flatten();
        let mut errors: Vec<Diagnostic> = self
            .daemon_errors
            .iter()
            .chain(&self.stray)
            .chain(servers)
            .cloned()
            .collect();
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
    };
    match load_daemon_file(request.config_dir, request.base) {
        Ok(Some(file)) => loaded.daemon = file,
        Ok(None) => loaded.daemon = DaemonFile::default(),
        Err(errors) => loaded.daemon_errors = errors,
    }
    let folder = request.config_dir.join("servers.d");
    for path in server_files(&folder, &mut loaded.stray) {
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
            &mut warnings,
        );
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
    load_server(&name, path, defaults, &request, warnings)
}

/// One server: its text, then whatever its values come from. Files are read also to see that they
/// can be; commands are taken to give a value.
fn load_server(
    name: &ServerName,
    path: &Path,
    defaults: &Draft,
    request: &LoadRequest<'_>,
    warnings: &mut Vec<Diagnostic>,
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
    warnings.extend(advise(&reading));
    let mut spec = parsed?;
    if !spec.enabled {
        return Ok(spec);
    }
    let read = read_file_sources(&spec, base.user().uid, request.hash_key)?;
    warnings.extend(read.warnings);
    let mut sources = read.sources;
    let commands = spec
        .launch
        .env
        .iter()
        .filter(|(_, value)| matches!(value, EnvValue::Command(_)));
    sources
        .values
        .extend(commands.map(|(name, _)| (name.clone(), STAND_IN.to_vec())));
    let resolved = resolve(&spec, base, &sources).map_err(|errors| with_lines(errors, &source))?;
    warnings.extend(resolved.withheld.iter().map(|name| withheld(&spec, name)));
    spec.contents = read.contents;
    Ok(spec)
}

/// The entries that are servers, in the order of their names. What is no file, or has not the name of
/// one, is an editor's or a package's leftover and no error.
fn server_files(folder: &Path, stray: &mut Vec<Diagnostic>) -> Vec<PathBuf> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        // No folder, no servers: a fresh installation.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Vec::new(),
        Err(error) => {
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
            Ok(entry) if has_server_file_name(&entry.file_name()) => files.push(entry.path()),
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

fn has_server_file_name(name: &OsStr) -> bool {
    let name = name.as_bytes();
    name.ends_with(b".toml") && !name.starts_with(b".")
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

fn is_program(path: &Path, search_path: &OsStr) -> bool {
    match path.is_absolute() {
        true => path.is_file(),
        false => {
            find_program(path.as_os_str(), search_path).is_some_and(|file| is_executable(&file))
        }
    }
}

/// Errors of filling in know the place; the line is added here, where the text is.
fn with_lines(errors: Vec<Diagnostic>, source: &SourceText) -> Vec<Diagnostic> {
    let add = |mut error: Diagnostic| {
        if let Some(place) = error.place.filter(|_| error.file == **source.file()) {
            error.source_line = source.span_of(place).map(|span| source.source_line(span));
        }
        error
    };
    errors.into_iter().map(add).collect()
}

fn withheld(spec: &ServerSpec, name: &str) -> Diagnostic {
    let message = format!("`{name}` holds a password and is not passed on");
    Diagnostic::for_file(
        super::diagnostics::Severity::Warning,
        Code::Advice,
        &spec.file,
        message,
    )
    .with_key("proxy_env")
    .with_hint(format!(
        "list it to pass it on all the same: pass_env = [\"{name}\"]"
    ))
}
