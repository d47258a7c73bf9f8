//! Reads the files that a server's values come from: its `env_file` and its `{ file }` values.
//!
//! It refuses an `env_file` that others can read. It keeps nothing: what is read goes into
//! [`Sources`] for one spawn, and for comparing only keyed hashes remain. It runs no command.

use std::collections::BTreeMap;
use std::path::Path;

use super::diagnostics::{Code, Diagnostic, Severity};
use super::env_file::parse_env_file;
use super::fingerprint::{Fingerprint, HashKey};
use super::regular_file::{FileContents, read_regular_file};
use super::resolve::Sources;
use super::spec::{EnvValue, ServerSpec};

/// What the files of a server held.
#[derive(Debug, Default)]
pub struct FileSources {
    /// Without `{ command }` values.
    pub sources: Sources,
    /// Keyed hashes of the contents by key, if a key was given; see [`ServerSpec::contents`].
    pub contents: BTreeMap<String, Fingerprint>,
    pub warnings: Vec<Diagnostic>,
}

/// Reads the files that the values of `spec` come from.
///
/// # Errors
/// Every file that cannot be read, an `env_file` that others can read, and its faulty lines.
pub fn read_file_sources(
    spec: &ServerSpec,
    uid: u32,
    hash_key: Option<&HashKey>,
) -> Result<FileSources, Vec<Diagnostic>> {
    let mut read = FileSources::default();
    let mut errors = Vec::new();
    if let Some(path) = &spec.launch.env_file {
        match read_env_file(spec, path, uid) {
            Ok((contents, pairs)) => {
                read.remember("env_file", &contents, hash_key);
                read.sources.env_file = pairs;
            }
            Err(found) => errors.extend(found),
        }
    }
    for (name, value) in &spec.launch.env {
        let EnvValue::File(path) = value else {
            continue;
        };
        match read_regular_file(path) {
            Ok(contents) => {
                read.warnings
                    .extend(open_value_file(spec, name, path, &contents));
                read.remember(&format!("env.{name}"), &contents, hash_key);
                read.sources
                    .values
                    .insert(name.clone(), cut_newline(contents.bytes));
            }
            Err(error) => {
                let key = format!("env.{name}");
                let message = format!("the file of `{key}`, {}: {error}", path.display());
                let error = Diagnostic::file_error(Code::File, &spec.file, message);
                errors.push(error.with_key(format!("{key}.file")));
            }
        }
    }
    if errors.is_empty() {
        Ok(read)
    } else {
        Err(errors)
    }
}

/// `bytes` without the one newline at their end.
pub fn cut_newline(mut bytes: Vec<u8>) -> Vec<u8> {
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
        if bytes.last() == Some(&b'\r') {
            bytes.pop();
        }
    }
    bytes
}

impl FileSources {
    fn remember(&mut self, key: &str, contents: &FileContents, hash_key: Option<&HashKey>) {
        let fingerprint = hash_key.map(|hash_key| Fingerprint::of(hash_key, &contents.bytes));
        self.contents
            .extend(fingerprint.map(|fingerprint| (key.to_owned(), fingerprint)));
    }
}

type EnvFile = (FileContents, Vec<(String, String)>);

fn read_env_file(spec: &ServerSpec, path: &Path, uid: u32) -> Result<EnvFile, Vec<Diagnostic>> {
    let fault = |message: String| {
        let message = format!("`env_file` {}: {message}", path.display());
        Diagnostic::file_error(Code::File, &spec.file, message).with_key("env_file")
    };
    let contents = read_regular_file(path).map_err(|error| vec![fault(error.to_string())])?;
    if contents.uid != uid && contents.uid != 0 {
        return Err(vec![fault(format!("belongs to uid {}", contents.uid))]);
    }
    if contents.mode & 0o077 != 0 {
        let error = fault(format!(
            "others have access to it (mode {:04o})",
            contents.mode
        ));
        return Err(vec![
            error.with_hint(format!("chmod 600 {}", path.display())),
        ]);
    }
    let Ok(text) = std::str::from_utf8(&contents.bytes) else {
        return Err(vec![fault("is not UTF-8".to_owned())]);
    };
    let pairs = parse_env_file(text).map_err(|errors| {
        errors
            .into_iter()
            .map(|error| error.into_diagnostic(path))
            .collect::<Vec<_>>()
    })?;
    Ok((contents, pairs))
}

fn open_value_file(
    spec: &ServerSpec,
    name: &str,
    path: &Path,
    contents: &FileContents,
) -> Option<Diagnostic> {
    let key = format!("env.{name}");
    let message = format!(
        "others can read the file of `{key}`, {} (mode {:04o})",
        path.display(),
        contents.mode
    );
    contents.is_readable_by_others().then(|| {
        Diagnostic::for_file(Severity::Warning, Code::Advice, &spec.file, message)
            .with_key(key)
            .with_hint(format!("chmod 600 {}", path.display()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_newline_is_cut() {
        for (text, expected) in [
            ("a\n", "a"),
            ("a\r\n", "a"),
            ("a\n\n", "a\n"),
            ("a", "a"),
            ("a\r", "a\r"),
            ("\n", ""),
            ("", ""),
        ] {
            assert_eq!(cut_newline(text.into()), expected.as_bytes(), "{text:?}");
        }
    }
}
