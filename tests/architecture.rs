//! The rooms of `src` keep to themselves: imports point one way, cores do no I/O, files and functions stay
//! small enough to read.
//!
//! The source is read as text. What a rule forbids is listed here in one table each, and an exception has
//! its reason beside it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The rooms, and what each may use of the others. `ids` and `time` are for all.
const MAY_USE: &[(&str, &[&str])] = &[
    ("protocol", &[]),
    ("journal", &[]),
    ("session", &["protocol", "journal"]),
    ("config", &[]),
    ("supervise", &["config"]),
    ("instance", &["protocol", "session", "config", "supervise"]),
    ("control", &[]),
    (
        "daemon",
        &[
            "protocol",
            "journal",
            "session",
            "config",
            "supervise",
            "instance",
            "control",
        ],
    ),
    // The shim frames lines by `protocol` and reads journals; the command line never reaches into the
    // daemon.
    ("cli", &["control", "config", "protocol", "journal"]),
];

/// Single files that may use a room which theirs may not, each with its reason.
const MAY_ALSO_USE: &[(&str, &str, &str)] = &[
    (
        "cli/daemon.rs",
        "daemon",
        "it is the command that becomes the daemon",
    ),
    (
        "cli/check.rs",
        "supervise",
        "it tells which limits the kernel can hold here",
    ),
    (
        "cli/connect/relay.rs",
        "supervise",
        "it gives its memory back before it sleeps",
    ),
];

/// Modules that every room may use.
const FOR_ALL: &[&str] = &["ids", "time"];

/// Rooms and files that decide and do no I/O. A file of `config` or `supervise` is core unless it is listed
/// as shell.
const CORE_ROOMS: &[&str] = &[
    "protocol",
    "journal",
    "session",
    "control",
    "config",
    "supervise",
    "instance",
];

/// The files of core rooms that do I/O, each with what it does.
const SHELL_FILES: &[(&str, &str)] = &[
    (
        "config/dirs",
        "looks at the folders that paths are made from",
    ),
    ("config/hash_key", "reads or makes the user's hashing key"),
    ("config/load", "reads the files of the configuration"),
    ("config/presence", "looks for the files that a server names"),
    ("config/regular_file", "opens what must be a regular file"),
    (
        "config/sources",
        "reads the values that come from elsewhere",
    ),
    ("config/watch", "watches the folders of the configuration"),
    (
        "supervise/cgroup",
        "makes, kills and removes control groups",
    ),
    ("supervise/child", "signals and looks at one child"),
    (
        "supervise/exec",
        "prepares the process that becomes the child",
    ),
    ("supervise/fake", "a launcher without processes, for tests"),
    ("supervise/inspect", "looks at programs on disk"),
    ("supervise/process_tree", "reads /proc"),
    ("supervise/reap", "reaps adopted orphans"),
    ("supervise/records", "keeps the records of runs"),
    ("supervise/spawn", "starts children"),
    (
        "supervise/sweep",
        "ends processes that nobody looks after any more",
    ),
    (
        "supervise/sys",
        "calls the kernel where no safe call exists",
    ),
];

/// What a core never names.
const IMPURE: &[&str] = &[
    "tokio",
    "nix::",
    "rustix",
    "std::fs",
    "std::process",
    "std::env::var",
    "std::env::var_os",
    "std::env::vars",
    "std::env::vars_os",
    "std::env::args",
    "std::env::args_os",
    "std::env::current_dir",
    "std::env::current_exe",
    "std::net",
    "std::os::unix::net",
    "std::thread",
    "std::io::stdin",
    "std::io::stdout",
    "std::io::stderr",
    "Instant",
    "SystemTime",
    "rand::",
    "getrandom",
    "RandomState",
];

/// The only files that may hold unsafe code.
const UNSAFE_FILES: &[&str] = &["supervise/sys.rs", "daemon/descriptors.rs"];

/// Names that say nothing.
const EMPTY_NAMES: &[&str] = &[
    "utils", "util", "helpers", "helper", "manager", "common", "misc",
];

/// No function is longer, in lines from its signature to its brace.
const FUNCTION_LIMIT_LINES: usize = 110;

/// Functions that may be longer, each with its reason.
const LONG_FUNCTIONS: &[(&str, &str)] = &[];

/// One file of `src`.
struct Source {
    /// Relative to `src`, as `room/file.rs`.
    name: String,
    text: String,
}

impl Source {
    /// The lines before the tests, without comments.
    fn code(&self) -> Vec<(usize, String)> {
        let until = self
            .text
            .find("\n#[cfg(test)]\nmod ")
            .unwrap_or(self.text.len());
        self.text[..until]
            .lines()
            .enumerate()
            .map(|(number, line)| (number + 1, line.split("//").next().unwrap_or("").to_owned()))
            .collect()
    }

    fn room(&self) -> &str {
        self.name.split_once('/').map_or("", |(room, _)| room)
    }

    /// A file that is compiled for tests only, by the house's naming.
    fn is_test(&self) -> bool {
        let stem = self.name.trim_end_matches(".rs");
        stem.split('/')
            .any(|part| part == "tests" || part.ends_with("_tests"))
    }

    fn is_core(&self) -> bool {
        let stem = self.name.trim_end_matches(".rs");
        let shell = SHELL_FILES.iter().any(|(shell, _)| {
            stem == *shell
                || stem
                    .strip_prefix(shell)
                    .is_some_and(|rest| rest.starts_with('/'))
        });
        CORE_ROOMS.contains(&self.room()) && !shell && !self.is_test()
    }
}

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut sources = Vec::new();
    let mut folders: Vec<PathBuf> = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("src can be listed").flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path
                    .strip_prefix(&root)
                    .expect("below src")
                    .to_string_lossy()
                    .into_owned();
                sources.push(Source {
                    name,
                    text: fs::read_to_string(&path).expect("a source file"),
                });
            }
        }
    }
    sources.sort_by(|one, other| one.name.cmp(&other.name));
    assert!(sources.len() > 10, "src was found");
    sources
}

#[track_caller]
fn check(rule: &str, violations: &[String]) {
    assert!(
        violations.is_empty(),
        "{rule}:\n  {}",
        violations.join("\n  ")
    );
}

/// The names that follow `crate::` on a line, those of a `crate::{…}` list included.
fn crate_names(code: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for part in code.split("crate::").skip(1) {
        let listed = part
            .strip_prefix('{')
            .and_then(|list| list.split('}').next());
        for item in listed.unwrap_or(part).split(',') {
            let name: String = item
                .trim()
                .chars()
                .take_while(|c| c.is_alphanumeric() || *c == '_')
                .collect();
            names.insert(name);
            if listed.is_none() {
                break;
            }
        }
    }
    names
}

#[test]
fn imports_between_rooms_point_one_way() {
    let mut violations = Vec::new();
    for source in sources() {
        let Some((room, allowed)) = MAY_USE.iter().find(|(room, _)| *room == source.room()) else {
            continue;
        };
        for (number, line) in source.code() {
            for name in crate_names(&line) {
                let is_room = MAY_USE.iter().any(|(room, _)| *room == name);
                let known = name == *room
                    || FOR_ALL.contains(&name.as_str())
                    || allowed.contains(&name.as_str());
                let excused = MAY_ALSO_USE
                    .iter()
                    .any(|(file, room, _)| *file == source.name && *room == name);
                if is_room && !known && !excused {
                    violations.push(format!("src/{}:{number} uses {name}", source.name));
                }
            }
        }
    }
    check("a room uses only the rooms below it", &violations);
}

#[test]
fn every_folder_is_a_room_of_the_table() {
    let mut violations = Vec::new();
    for source in sources() {
        let room = source.room();
        if !room.is_empty() && !MAY_USE.iter().any(|(known, _)| *known == room) {
            violations.push(format!("src/{}", source.name));
        }
    }
    check("the folders of src are the rooms of the table", &violations);
}

#[test]
fn the_tables_name_files_that_are_there() {
    let sources = sources();
    let is_there = |stem: &str| {
        let inside = format!("{stem}/");
        let file = format!("{stem}.rs");
        sources
            .iter()
            .any(|source| source.name == file || source.name.starts_with(&inside))
    };
    let stale: Vec<String> = SHELL_FILES
        .iter()
        .map(|(stem, _)| *stem)
        .filter(|stem| !is_there(stem))
        .map(|stem| format!("src/{stem}.rs"))
        .collect();
    check("an exception is for a file that is there", &stale);
}

#[test]
fn cores_do_no_io_and_read_no_clock() {
    let mut violations = Vec::new();
    for source in sources().iter().filter(|source| source.is_core()) {
        for (number, line) in source.code() {
            for name in IMPURE.iter().filter(|name| names(&line, name)) {
                violations.push(format!("src/{}:{number} names {name}", source.name));
            }
        }
    }
    check(
        "a core takes events and the time and does nothing itself",
        &violations,
    );
}

/// Whether `name` stands in the line as a path of its own, not as the end of a longer word.
fn names(line: &str, name: &str) -> bool {
    line.match_indices(name).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + name.len()..].chars().next();
        let inside = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
        !inside(before) && (name.ends_with(':') || !inside(after))
    })
}

#[test]
fn every_file_says_what_it_is() {
    let silent: Vec<String> = sources()
        .iter()
        .filter(|source| !source.text.starts_with("//! "))
        .map(|source| format!("src/{}", source.name))
        .collect();
    check("a file opens with what it is", &silent);
}

#[test]
fn file_names_say_something() {
    let empty: Vec<String> = sources()
        .iter()
        .filter(|source| {
            let stem = source.name.trim_end_matches(".rs");
            stem.split('/').any(|part| EMPTY_NAMES.contains(&part))
        })
        .map(|source| format!("src/{}", source.name))
        .collect();
    check("a file is named for what it holds", &empty);
}

#[test]
fn unsafe_code_stands_in_two_files() {
    let mut violations = Vec::new();
    for source in sources() {
        for (number, line) in source.code() {
            if names(&line, "unsafe") && !UNSAFE_FILES.contains(&source.name.as_str()) {
                violations.push(format!("src/{}:{number}", source.name));
            }
        }
    }
    check("unsafe code stands only where it is audited", &violations);
}

#[test]
fn an_allowed_lint_has_its_reason() {
    let mut violations = Vec::new();
    for source in sources() {
        for attribute in ["[allow(", "[expect("] {
            for (at, _) in source.text.match_indices(attribute) {
                let end = source.text[at..]
                    .find(']')
                    .map_or(source.text.len(), |end| at + end);
                if !source.text[at..end].contains("reason") {
                    let line = source.text[..at].lines().count();
                    violations.push(format!("src/{}:{line}", source.name));
                }
            }
        }
    }
    check("an allowed lint has its reason beside it", &violations);
}

/// The functions of a file: name, first line, number of lines.
fn functions(text: &str) -> Vec<(String, usize, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        let indent = line.len() - line.trim_start().len();
        let Some(name) = function_name(line.trim_start()) else {
            continue;
        };
        // rustfmt puts the closing brace of an item at the item's own indent.
        let closing = format!("{}}}", " ".repeat(indent));
        let length = lines[number..].iter().position(|line| *line == closing);
        if let Some(length) =
            length.filter(|_| !line.trim_end().ends_with(';') && !line.trim_end().ends_with('}'))
        {
            found.push((name, number + 1, length + 1));
        }
    }
    found
}

fn function_name(line: &str) -> Option<String> {
    let at = line.find("fn ")?;
    let before = &line[..at];
    let is_signature = before.split_whitespace().all(|word| {
        word.starts_with("pub")
            || ["const", "async", "unsafe", "extern", "\"C\"", "crate)"].contains(&word)
    });
    let name: String = line[at + 3..]
        .chars()
        .take_while(|c| c.is_alphanumeric() || *c == '_')
        .collect();
    (is_signature && !name.is_empty()).then_some(name)
}

#[test]
fn functions_stay_readable() {
    let mut violations = Vec::new();
    for source in sources() {
        for (name, line, length) in functions(&source.text) {
            let excused = LONG_FUNCTIONS.iter().any(|(known, _)| *known == name);
            if length > FUNCTION_LIMIT_LINES && !excused {
                violations.push(format!(
                    "src/{}:{line} {name} has {length} lines",
                    source.name
                ));
            }
        }
    }
    check("a function is read at a glance", &violations);
}

#[test]
fn shipped_servers_are_part_of_the_repository() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("servers.d");
    assert!(
        folder.join("calculator.toml").is_file(),
        "the example of the README is there"
    );
}

#[test]
fn nothing_is_left_unfinished_or_switched_off() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut violations = Vec::new();
    let mut folders = vec![root.join("src"), root.join("tests")];
    // Written in two parts, so that this file does not meet itself.
    let words = [
        concat!("todo", "!("),
        concat!("unimplemented", "!("),
        concat!("#[ig", "nore"),
    ];
    let blind_wait = concat!("thread::sl", "eep(");
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("it can be listed").flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).expect("a source file");
                for word in words.iter().filter(|word| text.contains(**word)) {
                    violations.push(format!("{} has {word}", path.display()));
                }
                // The product may wait between two tries; a test waits for a state.
                let tests = if path.starts_with(root.join("src")) {
                    text.find("#[cfg(test)]").map_or("", |at| &text[at..])
                } else {
                    &text
                };
                if tests.contains(blind_wait) {
                    violations.push(format!("{} has a test that waits blindly", path.display()));
                }
            }
        }
    }
    check(
        "nothing is unfinished, switched off, or waits blindly",
        &violations,
    );
}
