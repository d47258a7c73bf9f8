//! Variables as hosts write them, in mcpd's words.
//!
//! It decides what a text of a host becomes: a variable that every daemon has stays one; any other is
//! looked up here and now, since no daemon has the terminal's environment, and its value goes to the
//! server's `env_file`; what only the host knows cannot be carried. It reads no file.

use std::collections::BTreeMap;
use std::path::Path;

use crate::cli::hosts::Variables;
use crate::config::environment::{Environment, is_passed_to_daemon};
use crate::config::expand::is_variable_name;
use crate::config::render::escape_template;

/// Translates the texts of one entry.
#[derive(Debug)]
pub(super) struct Translator<'a> {
    pub(super) variables: Variables,
    pub(super) environment: &'a Environment,
    /// The folder that the entry is for.
    pub(super) project: Option<&'a Path>,
    /// Values that were looked up, by name.
    pub(super) looked_up: BTreeMap<String, String>,
}

/// Part of a text.
enum Part<'t> {
    Text(&'t str),
    /// `${…}` or `{…}` as it stands, and what is inside.
    Variable(&'t str, &'t str),
}

impl Translator<'_> {
    /// `text` as a template of mcpd.
    ///
    /// # Errors
    /// Why it cannot be one, as the end of a sentence about the entry.
    pub(super) fn translate(&mut self, text: &str) -> Result<String, String> {
        let mut template = String::new();
        for part in split(text, self.variables) {
            match part {
                Part::Text(text) => template.push_str(&escape_template(text)),
                Part::Variable(form, inner) => template.push_str(&self.variable(form, inner)?),
            }
        }
        Ok(template)
    }

    fn variable(&mut self, form: &str, inner: &str) -> Result<String, String> {
        match self.variables {
            Variables::None => Ok(escape_template(form)),
            Variables::Shell | Variables::ShellBare => match inner.split_once(":-") {
                Some((name, default)) if is_variable_name(name) => {
                    self.with_default(form, name, default)
                }
                _ => self.named(form, inner),
            },
            Variables::Editor => self.of_editor(form, inner),
            Variables::Braces => match inner.split_once(':') {
                Some(("env", name)) => self.named(form, name),
                _ => Err(unknown(form)),
            },
        }
    }

    fn with_default(&mut self, form: &str, name: &str, default: &str) -> Result<String, String> {
        if default.contains("${") {
            return Err(unknown(form));
        }
        self.look_up(name);
        Ok(form.to_owned())
    }

    fn named(&mut self, form: &str, name: &str) -> Result<String, String> {
        if !is_variable_name(name) {
            return Err(unknown(form));
        }
        if !is_passed_to_daemon(name) && !self.look_up(name) {
            return Err(format!(
                "uses {form}, which is not set here: set it and import again"
            ));
        }
        Ok(format!("${{{name}}}"))
    }

    /// Looks up a variable that the host passes on by its name alone.
    pub(super) fn pass_on(&mut self, name: &str) {
        self.look_up(name);
    }

    fn look_up(&mut self, name: &str) -> bool {
        let value = self.environment.get(name).and_then(|value| value.to_str());
        let Some(value) = value.filter(|_| !is_passed_to_daemon(name)) else {
            return false;
        };
        self.looked_up.insert(name.to_owned(), value.to_owned());
        true
    }

    fn of_editor(&mut self, form: &str, inner: &str) -> Result<String, String> {
        let project = || {
            let project = self.project.and_then(Path::to_str);
            project.ok_or_else(|| format!("uses {form}, and the file is for no one folder"))
        };
        match inner {
            "userHome" => return Ok("${HOME}".to_owned()),
            "pathSeparator" | "/" => return Ok("/".to_owned()),
            "workspaceFolder" | "workspaceRoot" => return Ok(escape_template(project()?)),
            "workspaceFolderBasename" => {
                let name = project()?.rsplit('/').next().unwrap_or_default();
                return Ok(escape_template(name));
            }
            _ => {}
        }
        match inner.split_once(':') {
            Some(("env", name)) => self.named(form, name),
            Some(("input", _)) => Err(format!(
                "asks for {form} when it starts, and mcpd asks nobody"
            )),
            Some(("workspaceFolder", _)) => Ok(escape_template(project()?)),
            Some((name, default)) if default.starts_with('-') && is_variable_name(name) => {
                self.with_default(form, name, &default[1..])
            }
            _ => self.named(form, inner),
        }
    }
}

fn unknown(form: &str) -> String {
    format!("uses {form}, which only its host knows")
}

/// `text` in pieces, each a text or a variable.
fn split(text: &str, variables: Variables) -> Vec<Part<'_>> {
    let open = match variables {
        Variables::None => return vec![Part::Text(text)],
        Variables::Braces => "{",
        _ => "${",
    };
    let mut parts = Vec::new();
    let mut from = 0;
    let mut at = 0;
    while let Some(found) = next_variable(&text[at..], open, variables) {
        let (start, end, inner) = found;
        let (start, end) = (at + start, at + end);
        parts.push(Part::Text(&text[from..start]));
        let inner = &text[at + inner.start..at + inner.end];
        parts.push(Part::Variable(&text[start..end], inner));
        (from, at) = (end, end);
    }
    parts.push(Part::Text(&text[from..]));
    parts
}

type Found = (usize, usize, std::ops::Range<usize>);

fn next_variable(text: &str, open: &str, variables: Variables) -> Option<Found> {
    for (start, _) in text.match_indices(open.chars().next()?) {
        let rest = &text[start..];
        if let Some(body) = rest.strip_prefix(open)
            && let Some(len) = body.find('}')
        {
            let inner = start + open.len()..start + open.len() + len;
            // JSON in a value has braces too; `{env:` and `{file:` are meant.
            let body = &text[inner.clone()];
            let is_meant = variables != Variables::Braces
                || body.starts_with("env:")
                || body.starts_with("file:");
            if is_meant {
                return Some((start, inner.end + 1, inner));
            }
        }
        if variables == Variables::ShellBare {
            let name = rest[1..]
                .bytes()
                .take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
            let end = start + 1 + name.count();
            if is_variable_name(&text[start + 1..end]) {
                return Some((start, end, start + 1..end));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALL: [Variables; 5] = [
        Variables::None,
        Variables::Shell,
        Variables::ShellBare,
        Variables::Editor,
        Variables::Braces,
    ];

    fn translate(variables: Variables, text: &str) -> Result<String, String> {
        let environment: Environment = [("TOKEN", "t"), ("HOME", "/h")].into_iter().collect();
        let mut translator = Translator {
            variables,
            environment: &environment,
            project: Some(Path::new("/src/app")),
            looked_up: BTreeMap::new(),
        };
        let translated = translator.translate(text);
        assert!(translator.looked_up.keys().all(|name| name == "TOKEN"));
        translated
    }

    #[track_caller]
    fn check(variables: Variables, text: &str, expected: &str) {
        assert_eq!(translate(variables, text).as_deref(), Ok(expected));
    }

    #[test]
    fn each_host_writes_variables_in_its_way() {
        check(Variables::None, "${A} $A", "$${A} $A");
        check(Variables::Shell, "a${TOKEN}b $TOKEN", "a${TOKEN}b $TOKEN");
        check(Variables::Shell, "${NONE:-x}", "${NONE:-x}");
        check(
            Variables::ShellBare,
            "$TOKEN/${HOME} $5",
            "${TOKEN}/${HOME} $5",
        );
        check(
            Variables::Editor,
            "${workspaceFolder}/${env:TOKEN}${/}${userHome}",
            "/src/app/${TOKEN}/${HOME}",
        );
        check(
            Variables::Braces,
            "Bearer {env:TOKEN} {\"a\": 1} ${x}",
            "Bearer ${TOKEN} {\"a\": 1} $${x}",
        );
    }

    #[test]
    fn what_cannot_be_carried_has_a_reason() {
        for (variables, text, reason) in [
            (
                Variables::Editor,
                "${input:key}",
                "asks for ${input:key} when it starts",
            ),
            (
                Variables::Editor,
                "${config:a.b}",
                "which only its host knows",
            ),
            (Variables::Shell, "${NONE}", "which is not set here"),
            (
                Variables::Braces,
                "x{file:~/k}",
                "which only its host knows",
            ),
        ] {
            let why = translate(variables, text).unwrap_err();
            assert!(why.contains(reason), "{why}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_template_or_has_a_reason(text in "([${}:a/-]|TOKEN|env|\\PC){0,30}") {
            for variables in ALL {
                let translated = translate(variables, &text);
                if variables == Variables::None {
                    prop_assert_eq!(translated, Ok(escape_template(&text)));
                }
            }
        }
    }
}
