//! `${NAME}` in values: found when a file is read, filled in when a child is spawned.
//!
//! It decides what is a variable and what is text: `${NAME}` and `${NAME:-default}` are variables,
//! `$${` is a literal `${`, any other `$` is itself. It never looks a variable up; the caller does,
//! and so decides which layer of the environment is visible where.

use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::diagnostics::Place;

/// Where a value was written: what relative paths in it count from, and where to point at.
#[derive(Clone, Debug)]
pub struct Origin {
    /// The file as it is named in the configuration folder.
    pub file: Arc<Path>,
    pub place: Option<Place>,
}

impl Origin {
    /// The folder that relative paths count from.
    pub fn folder(&self) -> &Path {
        self.file.parent().unwrap_or(Path::new("/"))
    }
}

/// Text with `${NAME}` and `${NAME:-default}` in it.
///
/// Two are equal if they say the same and count paths from the same folder; the line they stand in
/// does not matter.
#[derive(Clone, Debug)]
pub struct Template {
    text: String,
    parts: Vec<Part>,
    origin: Origin,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Variable {
        name: String,
        default: Option<String>,
    },
}

/// Why a text is no template. `span` is in bytes of the text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{fault}")]
pub struct TemplateError {
    pub span: Range<usize>,
    pub fault: TemplateFault,
}

/// What is wrong with a `${`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateFault {
    #[error("`${{` without `}}`")]
    Unclosed,
    #[error("`${{}}` names no variable")]
    Empty,
    #[error("`${{{0}}}` is not a form that mcpd knows")]
    UnknownForm(String),
    #[error("a default may not hold another `${{`")]
    Nested,
}

impl TemplateFault {
    /// What to write instead.
    pub fn hint(&self) -> String {
        match self {
            Self::UnknownForm(inner) => match inner
                .rsplit(':')
                .next()
                .filter(|name| is_variable_name(name))
            {
                Some(name) => format!("write `${{{name}}}`, or `$${{` for a literal `${{`"),
                None => {
                    "write `${NAME}` or `${NAME:-default}`, or `$${` for a literal `${`".to_owned()
                }
            },
            _ => "write `${NAME}` or `${NAME:-default}`, or `$${` for a literal `${`".to_owned(),
        }
    }
}

/// Variables that a template names and the lookup did not have, each once, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingVariables(pub Vec<String>);

impl PartialEq for Template {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text && self.origin.folder() == other.origin.folder()
    }
}

impl Eq for Template {}

impl Template {
    /// Finds the variables of `text`.
    ///
    /// # Errors
    /// A `${` that is not closed, names nothing, or is of a form that mcpd does not have.
    pub fn parse(text: &str, origin: Origin) -> Result<Self, TemplateError> {
        let mut parts = Vec::new();
        let mut literal = String::new();
        let mut at = 0;
        while let Some(found) = text[at..].find('$') {
            let dollar = at + found;
            literal.push_str(&text[at..dollar]);
            let rest = &text[dollar..];
            if rest.starts_with("$${") {
                literal.push_str("${");
                at = dollar + 3;
            } else if rest.starts_with("${") {
                let (variable, len) =
                    parse_variable(rest).map_err(|error| error.moved_by(dollar))?;
                if !literal.is_empty() {
                    parts.push(Part::Text(std::mem::take(&mut literal)));
                }
                parts.push(variable);
                at = dollar + len;
            } else {
                literal.push('$');
                at = dollar + 1;
            }
        }
        literal.push_str(&text[at..]);
        if !literal.is_empty() {
            parts.push(Part::Text(literal));
        }
        Ok(Self {
            text: text.to_owned(),
            parts,
            origin,
        })
    }

    /// The text as it was written: what may be shown.
    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// The text, if no variable is in it.
    pub fn literal(&self) -> Option<&str> {
        match self.parts.as_slice() {
            [] => Some(""),
            [Part::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// The variables that are named in it.
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            Part::Variable { name, .. } => Some(name.as_str()),
            Part::Text(_) => None,
        })
    }

    /// Fills the variables in. A default counts where the variable is missing or empty, as in the
    /// shell.
    ///
    /// # Errors
    /// All variables that have neither a value nor a default.
    pub fn expand<'e>(
        &self,
        lookup: impl Fn(&str) -> Option<&'e OsStr>,
    ) -> Result<OsString, MissingVariables> {
        let mut expanded = OsString::new();
        let mut missing: Vec<String> = Vec::new();
        for part in &self.parts {
            match part {
                Part::Text(text) => expanded.push(text),
                Part::Variable { name, default } => match (lookup(name), default) {
                    (Some(value), Some(default)) if value.is_empty() => expanded.push(default),
                    (Some(value), _) => expanded.push(value),
                    (None, Some(default)) => expanded.push(default),
                    (None, None) if missing.contains(name) => {}
                    (None, None) => missing.push(name.clone()),
                },
            }
        }
        if missing.is_empty() {
            Ok(expanded)
        } else {
            Err(MissingVariables(missing))
        }
    }

    /// Like [`Self::expand`], with a leading `~/` as the home directory. Only one that was written,
    /// never one that a variable brought in.
    ///
    /// # Errors
    /// As [`Self::expand`].
    pub fn expand_with_home<'e>(
        &self,
        home: &Path,
        lookup: impl Fn(&str) -> Option<&'e OsStr>,
    ) -> Result<OsString, MissingVariables> {
        let expanded = self.expand(lookup)?;
        if !self.text.starts_with("~/") {
            return Ok(expanded);
        }
        Ok(expand_home_bytes(&expanded, home))
    }
}

impl TemplateError {
    fn moved_by(mut self, offset: usize) -> Self {
        self.span = self.span.start + offset..self.span.end + offset;
        self
    }
}

/// The variable at the start of `rest`, which begins with `${`, and its length in bytes.
fn parse_variable(rest: &str) -> Result<(Part, usize), TemplateError> {
    let fault = |end: usize, fault| TemplateError {
        span: 0..end,
        fault,
    };
    let Some(close) = rest.find('}') else {
        return Err(fault(rest.len(), TemplateFault::Unclosed));
    };
    let inner = &rest[2..close];
    let (name, default) = match inner.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inner, None),
    };
    if default.unwrap_or(name).contains("${") {
        return Err(fault(close + 1, TemplateFault::Nested));
    }
    if name.is_empty() {
        return Err(fault(close + 1, TemplateFault::Empty));
    }
    if !is_variable_name(name) {
        return Err(fault(
            close + 1,
            TemplateFault::UnknownForm(inner.to_owned()),
        ));
    }
    let variable = Part::Variable {
        name: name.to_owned(),
        default: default.map(str::to_owned),
    };
    Ok((variable, close + 1))
}

/// `[A-Za-z_][A-Za-z0-9_]*`, the names of POSIX.
pub fn is_variable_name(text: &str) -> bool {
    !text.starts_with(|first: char| first.is_ascii_digit())
        && !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// `text` with a leading `~/` as `home`.
pub fn expand_home(text: &str, home: &Path) -> PathBuf {
    match text.strip_prefix("~/") {
        Some(rest) => home.join(rest.trim_start_matches('/')),
        None if text == "~" => home.to_owned(),
        None => PathBuf::from(text),
    }
}

fn expand_home_bytes(text: &OsStr, home: &Path) -> OsString {
    use std::os::unix::ffi::OsStrExt as _;
    let Some(rest) = text.as_bytes().strip_prefix(b"~/") else {
        return text.to_owned();
    };
    let mut expanded = home.as_os_str().to_owned();
    expanded.push("/");
    expanded.push(OsStr::from_bytes(rest));
    expanded
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn origin(file: &str) -> Origin {
        Origin {
            file: Path::new(file).into(),
            place: None,
        }
    }

    fn template(text: &str) -> Result<Template, TemplateError> {
        Template::parse(text, origin("/c/servers.d/x.toml"))
    }

    /// With `A` as `1`, `E` empty and a home at `/h`.
    #[track_caller]
    fn check(text: &str, expected: Result<&str, &[&str]>) {
        let lookup = |name: &str| match name {
            "A" => Some(OsStr::new("1")),
            "E" => Some(OsStr::new("")),
            "T" => Some(OsStr::new("~/t")),
            _ => None,
        };
        let got = template(text)
            .unwrap()
            .expand_with_home(Path::new("/h"), lookup);
        let got = got.map_err(|MissingVariables(names)| names);
        let expected = expected.map(OsString::from);
        assert_eq!(
            got,
            expected.map_err(|names| names.iter().map(|name| (*name).to_owned()).collect())
        );
    }

    #[track_caller]
    fn check_error(text: &str, expected: &str, span: Range<usize>) {
        let error = template(text).unwrap_err();
        assert_eq!((error.to_string().as_str(), error.span), (expected, span));
    }

    #[test]
    fn variables_and_defaults_are_filled_in() {
        check("${A}", Ok("1"));
        check("x${A}-${A}y", Ok("x1-1y"));
        check("${N:-d}", Ok("d"));
        check("${E:-d}", Ok("d"));
        check("${A:-d}", Ok("1"));
        check("${N:-}", Ok(""));
        check("${E}", Ok(""));
        check("${N:-a:-b $x}", Ok("a:-b $x"));
        check("", Ok(""));
    }

    #[test]
    fn any_other_dollar_is_itself() {
        for text in ["$", "$A", "$5 a", "a$", "$$", "$(A)", "100$ ", "}$", "é$é"] {
            check(text, Ok(text));
        }
    }

    #[test]
    fn a_doubled_dollar_before_a_brace_is_a_literal_brace() {
        check("$${A}", Ok("${A}"));
        check("$${", Ok("${"));
        check("$$${A}", Ok("$${A}"));
        check("$${A}${A}", Ok("${A}1"));
    }

    #[test]
    fn each_missing_variable_is_named_once() {
        check("${X}${A}${Y}${X}", Err(&["X", "Y"]));
    }

    #[test]
    fn a_leading_tilde_is_the_home_directory() {
        check("~/data", Ok("/h/data"));
        check("~/${A}", Ok("/h/1"));
        check("~", Ok("~"));
        check("~a/b", Ok("~a/b"));
        check("a~b", Ok("a~b"));
        check("--dir=~/data", Ok("--dir=~/data"));
        check("${T}", Ok("~/t"));
    }

    #[test]
    fn what_is_no_variable_is_an_error_with_its_place() {
        check_error("a${B", "`${` without `}`", 1..4);
        check_error("${A}${", "`${` without `}`", 4..6);
        check_error("x${}", "`${}` names no variable", 1..4);
        check_error("${:-d}", "`${}` names no variable", 0..6);
        check_error("${env:A}", "`${env:A}` is not a form that mcpd knows", 0..8);
        check_error("${1A}", "`${1A}` is not a form that mcpd knows", 0..5);
        check_error("${A:-${B}}", "a default may not hold another `${`", 0..9);
    }

    #[test]
    fn the_folder_counts_and_the_line_does_not() {
        let at = |file: &str, line| {
            let place = Some(Place { line, column: 1 });
            Template::parse(
                "x",
                Origin {
                    file: Path::new(file).into(),
                    place,
                },
            )
            .unwrap()
        };
        assert_eq!(at("/c/servers.d/a.toml", 1), at("/c/servers.d/b.toml", 2));
        assert_ne!(at("/c/servers.d/a.toml", 1), at("/c/mcpd.toml", 1));
    }

    #[test]
    fn values_need_not_be_utf_8() {
        use std::os::unix::ffi::OsStrExt as _;
        let value = OsStr::from_bytes(b"\xff");
        let expanded = template("a${A}").unwrap().expand(|_| Some(value)).unwrap();
        assert_eq!(expanded.as_bytes(), b"a\xff");
    }

    proptest! {
        #[test]
        fn any_text_is_answered(text in "(\\$|\\{|\\}|:-|[A-Z]|\\PC){0,40}") {
            if let Err(error) = template(&text) {
                prop_assert!(text.get(error.span).is_some());
            }
        }

        #[test]
        fn text_without_dollars_is_itself(text in "[^$~]*") {
            let expanded = template(&text).unwrap().expand(|_| None).unwrap();
            prop_assert_eq!(expanded, OsString::from(text));
        }

        #[test]
        fn an_escaped_text_is_itself(text in "[A-Z${}]*") {
            // A dollar before `${` would join the escape, so that it cannot be written there.
            prop_assume!(!text.contains("$${"));
            let escaped = text.replace("${", "$${");
            let expanded = template(&escaped).unwrap().expand(|_| None).unwrap();
            prop_assert_eq!(expanded, OsString::from(text));
        }

        #[test]
        fn parts_expand_apart_as_they_do_together(parts in prop::collection::vec("[a-z ]{0,3}|\\$\\{[A-Z]\\}", 0..8)) {
            let lookup = |name: &str| (name < "N").then_some(OsStr::new("v"));
            let whole = template(&parts.concat()).unwrap().expand(lookup).ok();
            let apart: Option<Vec<OsString>> =
                parts.iter().map(|part| template(part).unwrap().expand(lookup).ok()).collect();
            prop_assert_eq!(whole, apart.map(|parts| parts.into_iter().collect()));
        }
    }
}
