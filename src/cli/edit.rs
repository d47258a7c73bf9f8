//! `mcpd edit NAME`: a server's file in the user's editor, checked before it takes the old one's place.
//!
//! The editor works on a copy beside the file, which is no server: its name begins with a dot. Decides
//! when to ask again and when to keep the copy; never throws away what somebody wrote.

use std::fs;
use std::io::{self, BufRead, IsTerminal, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Context;
use super::applied::{Deed, Done, apply};
use super::check::{check_server, refuse_errors, render_findings};
use super::error::{CliError, Verdict};
use super::output::complain;
use super::server_file::{Servers, check_text, daemon_base, replace_server, write_schema};
use super::whole_file::write_whole;
use crate::config::draft::Draft;
use crate::config::environment::{Base, Environment};
use crate::config::spec::ServerName;

/// Asked for in this order, as by most programs; then the names under which editors are found.
const EDITOR_VARIABLES: [&str; 2] = ["VISUAL", "EDITOR"];
const EDITORS: [&str; 3] = ["editor", "nano", "vi"];

/// The longest answer to a question that is read.
const ANSWER_LIMIT_BYTES: u64 = 1024;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Opens $VISUAL or $EDITOR on a copy. The file is replaced only if the copy is valid.

Example:
  mcpd edit github")]
pub(crate) struct Arguments {
    /// The server
    #[arg(value_name = "NAME", add = crate::cli::completions::candidates())]
    name: String,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

pub(crate) fn cmd_edit(context: &Context, arguments: Arguments) -> Result<Verdict, CliError> {
    let places = context.places()?;
    let json = arguments.json || context.json;
    let (base, defaults) = daemon_base(&places, &context.environment);
    let servers = Servers::load(&places, &base);
    let name = ServerName::parse(&arguments.name).filter(|name| servers.has(name.as_str()));
    let name = name.ok_or_else(|| servers.unknown(&arguments.name))?;
    let file = places.paths.servers_dir().join(format!("{name}.toml"));
    let old = fs::read(&file).map_err(|error| {
        CliError::config(format!("cannot read {}", file.display())).because(error)
    })?;
    write_schema(&places)?;
    let session = Session {
        context,
        name: &name,
        copy: copy_of(&file, &name),
        file,
        old,
        base,
        defaults,
    };
    let done = session.run()?;
    let is_changed = done.done == Deed::Edited;
    if !json && !is_changed {
        context.output.note("nothing was changed\n")?;
    }
    if !json && is_changed {
        let warnings = check_server(&session.file, &places, &session.base);
        complain(&render_findings(&warnings, context.output.style));
    }
    apply(context, &places, vec![done], json)
}

/// One edit of one file.
struct Session<'a> {
    context: &'a Context,
    name: &'a ServerName,
    file: PathBuf,
    copy: PathBuf,
    /// What the file held when the edit began.
    old: Vec<u8>,
    base: Base,
    defaults: Draft,
}

fn copy_of(file: &Path, name: &ServerName) -> PathBuf {
    file.with_file_name(format!(".{name}.edit-{}.toml", std::process::id()))
}

impl Session<'_> {
    fn run(&self) -> Result<Done, CliError> {
        write_whole(&self.copy, &self.old, self.mode()).map_err(|error| {
            CliError::config(format!("cannot write {}", self.copy.display())).because(error)
        })?;
        loop {
            open_editor(&self.context.environment, &self.copy)
                .map_err(|error| self.keep_or_drop(error))?;
            let text = fs::read(&self.copy).map_err(|error| {
                CliError::config(format!("cannot read {}", self.copy.display())).because(error)
            })?;
            if text == self.old {
                self.drop_copy();
                return Ok(self.done(Deed::Unchanged));
            }
            match self.check(&text) {
                Ok(()) => break self.replace(&text),
                Err(error) if may_ask() => {
                    complain(&error.render());
                    if !ask_again() {
                        return Err(self.keep(CliError::config("the file stays as it was")));
                    }
                }
                Err(error) => return Err(self.keep(error)),
            }
        }
    }

    /// Whether the text may take the place of the file.
    fn check(&self, text: &[u8]) -> Result<(), CliError> {
        let Ok(text) = std::str::from_utf8(text) else {
            return Err(CliError::config("the text is not UTF-8"));
        };
        let checked = check_text(self.name, &self.file, text, &self.base, &self.defaults);
        checked.map(drop).map_err(|errors| {
            let message = "the file stays as it was, since the edited one is not valid";
            refuse_errors(self.context, &errors, message)
        })
    }

    fn replace(&self, text: &[u8]) -> Result<Done, CliError> {
        replace_server(&self.file, &self.old, text).map_err(|error| self.keep(error))?;
        self.drop_copy();
        Ok(self.done(Deed::Edited))
    }

    fn done(&self, done: Deed) -> Done {
        Done {
            server: self.name.to_string(),
            done,
            files: vec![self.file.clone()],
        }
    }

    fn mode(&self) -> u32 {
        // Somebody else's eyes may be kept off what the file is open for, not the reverse.
        fs::metadata(&self.file).map_or(0o600, |found| found.permissions().mode() & 0o666)
    }

    /// Tells where the text is that was written.
    fn keep(&self, error: CliError) -> CliError {
        error.hint(format!("what you wrote is in {}", self.copy.display()))
    }

    /// An editor that failed may have written all the same.
    fn keep_or_drop(&self, error: CliError) -> CliError {
        match fs::read(&self.copy) {
            Ok(text) if text == self.old => {
                self.drop_copy();
                error
            }
            _ => self.keep(error),
        }
    }

    fn drop_copy(&self) {
        // One that is left over is no server and disturbs nobody.
        drop(fs::remove_file(&self.copy));
    }
}

/// Runs the editor until it ends.
fn open_editor(environment: &Environment, copy: &Path) -> Result<(), CliError> {
    let chosen = EDITOR_VARIABLES.iter().find_map(|name| {
        let value = environment.get_filled(name)?;
        (!value.is_empty()).then(|| value.to_owned())
    });
    let (shown, mut command) = match chosen {
        // A variable may hold options, as for git: a shell takes it apart.
        Some(editor) => {
            let mut script = editor.clone();
            script.push(" \"$@\"");
            let mut command = Command::new("/bin/sh");
            command.arg("-c").arg(script).arg(&editor);
            (editor.to_string_lossy().into_owned(), command)
        }
        None => {
            let search_path = environment.get("PATH").unwrap_or_default();
            let is_there = |name: &&&str| {
                let mut folders = std::env::split_paths(search_path);
                folders.any(|folder| folder.join(name).is_file())
            };
            let editor = EDITORS.iter().find(is_there).ok_or_else(|| {
                CliError::usage("no editor is set").hint("set VISUAL or EDITOR to one")
            })?;
            ((*editor).to_owned(), Command::new(editor))
        }
    };
    let ended = command.arg(copy).status().map_err(|error| {
        CliError::internal(format!("cannot run the editor {shown}")).because(error)
    })?;
    match ended.success() {
        true => Ok(()),
        false => Err(
            CliError::server(format!("the editor {shown} failed: {ended}"))
                .hint("the file stays as it was"),
        ),
    }
}

/// Whether somebody sits there who could answer.
fn may_ask() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

fn ask_again() -> bool {
    complain("Edit again? [Y/n] ");
    // Whoever reads the question has to see it first.
    drop(io::stderr().flush());
    let mut answer = String::new();
    let mut input = io::Read::take(io::stdin().lock(), ANSWER_LIMIT_BYTES);
    match input.read_line(&mut answer) {
        Ok(1..) => !answer.trim().to_lowercase().starts_with('n'),
        _ => false,
    }
}
