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

    /// The names of the variables, in order, with repetitions.
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
