//! What a server's file names and the machine does not have: programs, the working directory.
//!
//! For `mcpd check` alone, so nothing here is an error: a program may be installed later, and the
//! daemon may have another PATH. It looks at files only; it runs none of them.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::diagnostics::{Code, Diagnostic, Severity, SourceText};
use super::environment::Base;
use super::load::{is_executable, with_lines, with_stand_ins};
use super::regular_file::read_regular_file;
use super::resolve::{Program, ResolvedLaunch, command_line, resolve};
use super::sources::{Credentials, read_file_sources};
use super::spec::{EnvValue, ServerSpec};

/// The command that means mcpd itself.
const OURSELVES: &str = "mcpd";

/// What `spec`, which is valid, names in vain.
pub fn missing_files(spec: &ServerSpec, base: &Base) -> Vec<Diagnostic> {
    let read = read_file_sources(spec, base.user().uid, Credentials::Unseen, None);
    let launch = read
        .map(|read| with_stand_ins(spec, read.sources))
        .and_then(|sources| resolve(spec, base, &sources));
    // It may have changed since it was found valid; the next look tells.
    let Ok(launch) = launch else {
        return Vec::new();
    };
    let mut search = Search {
        spec,
        found: Vec::new(),
    };
    search.program(&launch);
    search.cwd(&launch);
    search.commands(&launch, base);
    let text = read_regular_file(&spec.file).map(|contents| contents.bytes);
    let text = text.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    match text {
        Ok(text) => with_lines(search.found, &SourceText::new(&spec.file, &text)),
        Err(_) => search.found,
    }
}

struct Search<'s> {
    spec: &'s ServerSpec,
    found: Vec<Diagnostic>,
}

impl Search<'_> {
    fn program(&mut self, launch: &ResolvedLaunch) {
        let place = self.spec.launch.command.origin().place;
        let file = self.spec.launch.command.origin().file.clone();
        let before = self.found.len();
        match &launch.program {
            Program::Name(name) if name == OURSELVES => {}
            Program::Name(name) => self.name("command", name, &launch.search_path),
            Program::File(path) => self.file("command", path),
        }
        for one in &mut self.found[before..] {
            one.file = file.to_path_buf();
            one.place = place;
        }
    }

    fn cwd(&mut self, launch: &ResolvedLaunch) {
        if launch.cwd.is_dir() {
            return;
        }
        // The home directory is nowhere written.
        let origin = self
            .spec
            .launch
            .cwd
            .as_ref()
            .map(|cwd| cwd.origin().clone());
        let shown = match &self.spec.launch.cwd {
            // What variables hold is not shown.
            Some(cwd) => cwd.text().to_owned(),
            None => launch.cwd.display().to_string(),
        };
        self.warn("cwd", format!("`cwd` {shown} is no folder"), None);
        if let (Some(one), Some(origin)) = (self.found.last_mut(), origin) {
            one.file = origin.file.to_path_buf();
            one.place = origin.place;
        }
    }

    /// The commands of values, which the daemon looks up on its own PATH, and the one that stops.
    fn commands(&mut self, launch: &ResolvedLaunch, base: &Base) {
        let own: Vec<PathBuf> = std::env::split_paths(base.path())
            .filter(|folder| folder.is_absolute())
            .collect();
        for (name, value) in &self.spec.launch.env {
            if let EnvValue::Command(command) = value {
                let argv = command_line(&command.argv, &command.folder, &base.home());
                self.word(&format!("env.{name}.command[0]"), argv.first(), &own);
            }
        }
        if let Some(argv) = &launch.stop_command {
            self.word("stop_command[0]", argv.first(), &launch.search_path);
        }
    }

    fn word(&mut self, key: &str, program: Option<&OsString>, folders: &[PathBuf]) {
        match program {
            Some(program) if program.as_bytes().contains(&b'/') => {
                self.file(key, Path::new(program));
            }
            Some(program) => self.name(key, program, folders),
            None => {}
        }
    }

    fn name(&mut self, key: &str, name: &OsStr, folders: &[PathBuf]) {
        if folders
            .iter()
            .any(|folder| is_executable(&folder.join(name)))
        {
            return;
        }
        let searched: Vec<String> = folders
            .iter()
            .map(|folder| folder.display().to_string())
            .collect();
        let hint = format!(
            "searched {}; the daemon takes `path` of mcpd.toml or the login shell's PATH",
            searched.join(":")
        );
        self.warn(
            key,
            format!("the program of `{key}` is not on PATH"),
            Some(hint),
        );
    }

    fn file(&mut self, key: &str, path: &Path) {
        if !path.is_file() {
            self.warn(key, format!("the program of `{key}` is no file"), None);
        } else if !is_executable(path) {
            self.warn(
                key,
                format!("the program of `{key}` cannot be executed"),
                Some("chmod +x".to_owned()),
            );
        }
    }

    fn warn(&mut self, key: &str, message: String, hint: Option<String>) {
        let mut warning =
            Diagnostic::for_file(Severity::Warning, Code::Advice, &self.spec.file, message)
                .with_key(key);
        warning.hint = hint;
        self.found.push(warning);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::draft::Draft;
    use crate::config::environment::User;
    use crate::config::load::load_server_file;

    /// Lines and messages for a server file in a folder of its own.
    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.toml");
        std::fs::write(&path, text).unwrap();
        std::fs::write(folder.path().join("plain"), "").unwrap();
        let user = User {
            uid: nix::unistd::getuid().as_raw(),
            name: "ada".into(),
            home: folder.path().to_owned(),
            shell: "/bin/sh".into(),
        };
        let environment = [("PATH", "/usr/bin:/bin")].into_iter().collect();
        let base = Base::new(environment, user, None);
        let spec = load_server_file(&path, &Draft::default(), &base, &mut Vec::new()).unwrap();
        let found: Vec<String> = missing_files(&spec, &base)
            .iter()
            .map(|one| format!("{}: {}", one.place.unwrap().line, one.message))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn what_is_there_is_not_named() {
        check("command = \"sh\"\ncwd = \"/\"", &[]);
        check("command = \"/bin/sh\"\nstop_command = [\"true\"]", &[]);
        check("command = \"mcpd\"", &[]);
    }

    #[test]
    fn what_is_missing_is_named_with_its_line() {
        check(
            "command = \"npx-nowhere\"\ncwd = \"./none\"\nstop_command = [\"./none\"]\n\
             [env]\nA = { command = [\"pass-nowhere\", \"x\"] }\nB = { command = [\"sh\"] }",
            &[
                "1: the program of `command` is not on PATH",
                "2: `cwd` ./none is no folder",
                "5: the program of `env.A.command[0]` is not on PATH",
                "3: the program of `stop_command[0]` is no file",
            ],
        );
        check(
            "command = \"./plain\"",
            &["1: the program of `command` cannot be executed"],
        );
    }
}
