//! Reads the files that a server's values come from: its `env_file`, its `{ file }` values and its
//! `{ credential }` values, which systemd keeps as files in a folder of the service.
//!
//! It refuses an `env_file` that others can read. It keeps nothing: what is read goes into
//! [`Sources`] for one spawn, and for comparing only keyed hashes remain. It runs no command.

use std::collections::BTreeMap;
use std::path::Path;

use super::diagnostics::{Code, Diagnostic, Severity};
use super::env_file::parse_env_file;
use super::fingerprint::{Fingerprint, HashKey};
use super::regular_file::{FileContents, ReadError, read_regular_file};
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

/// Where the values of credentials are.
#[derive(Clone, Copy, Debug)]
pub enum Credentials<'a> {
    /// In this folder.
    In(&'a Path),
    /// Nowhere: this daemon has none.
    None,
    /// With the daemon, but out of sight of whoever only checks the configuration.
    Unseen,
}

impl<'a> Credentials<'a> {
    /// What the daemon has in `folder`, if it has one.
    pub fn of_daemon(folder: Option<&'a Path>) -> Self {
        folder.map_or(Self::None, Self::In)
    }
}

/// Reads the files that the values of `spec` come from.
///
/// # Errors
/// Every file and credential that cannot be read, an `env_file` that others can read, and its faulty
/// lines.
pub fn read_file_sources(
    spec: &ServerSpec,
    uid: u32,
    credentials: Credentials<'_>,
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
        let contents = match value {
            EnvValue::File(path) => read_value_file(spec, name, path, &mut read.warnings),
            EnvValue::Credential(credential) => match credentials {
                Credentials::Unseen => {
                    read.warnings.push(unseen(spec, name, credential));
                    continue;
                }
                Credentials::In(folder) => read_credential(spec, name, credential, Some(folder)),
                Credentials::None => read_credential(spec, name, credential, None),
            },
            EnvValue::Text(_) | EnvValue::Command(_) => continue,
        };
        match contents {
            Ok(contents) => {
                read.remember(&format!("env.{name}"), &contents, hash_key);
                read.sources
                    .values
                    .insert(name.clone(), cut_newline(contents.bytes));
            }
            Err(found) => errors.extend(found),
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

fn read_value_file(
    spec: &ServerSpec,
    name: &str,
    path: &Path,
    warnings: &mut Vec<Diagnostic>,
) -> Result<FileContents, Vec<Diagnostic>> {
    let contents = read_regular_file(path).map_err(|error| {
        let key = format!("env.{name}");
        let message = format!("the file of `{key}`, {}: {error}", path.display());
        let error = Diagnostic::file_error(Code::File, &spec.file, message);
        vec![error.with_key(format!("{key}.file"))]
    })?;
    warnings.extend(open_value_file(spec, name, path, &contents));
    Ok(contents)
}

/// Reads what systemd gives the service under the name `credential`.
fn read_credential(
    spec: &ServerSpec,
    name: &str,
    credential: &str,
    folder: Option<&Path>,
) -> Result<FileContents, Vec<Diagnostic>> {
    let key = format!("env.{name}");
    let fault = |why: String| {
        let message = format!("the credential `{credential}` of `{key}` {why}");
        let error = Diagnostic::file_error(Code::File, &spec.file, message)
            .with_key(format!("{key}.credential"));
        vec![error.with_hint(format!(
            "give it to the service: `systemctl --user edit mcpd.service`, then under [Service] `LoadCredential={credential}:/path/of/a/file`"
        ))]
    };
    let Some(folder) = folder else {
        let why = "cannot be had: only a daemon that systemd runs has credentials";
        return Err(fault(why.to_owned()));
    };
    read_regular_file(&folder.join(credential)).map_err(|error| match error {
        ReadError::Missing => fault("is not given to the service".to_owned()),
        other => fault(other.to_string()),
    })
}

/// A credential that is with the daemon, whoever checks the configuration.
fn unseen(spec: &ServerSpec, name: &str, credential: &str) -> Diagnostic {
    let key = format!("env.{name}");
    let message = format!(
        "whether the service is given the credential `{credential}` of `{key}` can only be seen by the daemon"
    );
    Diagnostic::for_file(Severity::Warning, Code::Advice, &spec.file, message)
        .with_key(format!("{key}.credential"))
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
