//! What is wrong with a configuration, where, and what to do about it.
//!
//! A [`Diagnostic`] carries the place, the key and the line as it stands in the file, so that it can
//! be printed long after the file has changed. It decides how a line is shown, and it never holds a
//! value of `[env]` or of an `env_file`: [`SourceText`] masks those before they are copied.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Serialize, Serializer};

use super::arg_secrets::secret_arguments;

/// How much of a long line is shown, in characters.
const SHOWN_LINE_LIMIT_CHARS: usize = 160;

/// What stands in the place of a value that is not shown.
pub const MASK: &str = "‹…›";

/// Whether a finding keeps a server from running.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    Error,
    Warning,
}

impl fmt::Display for Severity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Error => "error",
            Self::Warning => "warning",
        })
    }
}

/// What kind of finding it is, for callers that treat some apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Code {
    /// The file could not be read, or is not what a configuration file may be.
    File,
    /// The file's name is not the name of a server.
    Name,
    /// The text is not TOML, or a line is not one of an environment file.
    Syntax,
    UnknownKey,
    MissingKey,
    Type,
    Value,
    /// A variable that the environment lacks. The only kind that depends on who asks: `mcpd check`
    /// sees the environment of its shell, the daemon its own.
    MissingVariable,
    /// A command that gives a value did not give one.
    CommandValue,
    /// Nothing wrong as far as mcpd can tell, but probably not what was meant.
    Advice,
}

/// A place in a file, both counted from 1, the column in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Place {
    pub line: u32,
    pub column: u32,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    pub severity: Severity,
    pub code: Code,
    /// The file as it is named in the configuration folder.
    #[serde(serialize_with = "serialize_path")]
    pub file: PathBuf,
    #[serde(flatten)]
    pub place: Option<Place>,
    /// The key with those it is in, such as `env.API_KEY.file` or `args[2]`; empty for a whole file.
    #[serde(rename = "key")]
    pub key_path: String,
    pub message: String,
    /// The line at `place`, without control characters and secret values.
    #[serde(rename = "source")]
    pub source_line: Option<SourceLine>,
    pub hint: Option<String>,
}

/// A line of a file with the part that is meant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SourceLine {
    pub text: String,
    /// Where the marked part begins, in characters from 0.
    pub mark_start: usize,
    /// How long the marked part is, in characters, at least 1.
    pub mark_len: usize,
}

fn serialize_path<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&path.to_string_lossy())
}

impl Diagnostic {
    /// A finding about a file as a whole.
    pub fn for_file(
        severity: Severity,
        code: Code,
        file: &Path,
        message: impl Into<String>,
    ) -> Self {
        Self {
            severity,
            code,
            file: file.to_owned(),
            place: None,
            key_path: String::new(),
            message: message.into(),
            source_line: None,
            hint: None,
        }
    }

    /// An error about a file as a whole.
    pub fn file_error(code: Code, file: &Path, message: impl Into<String>) -> Self {
        Self::for_file(Severity::Error, code, file, message)
    }

    #[must_use]
    pub fn with_key(mut self, key_path: impl Into<String>) -> Self {
        self.key_path = key_path.into();
        self
    }

    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    #[must_use]
    pub fn at(mut self, place: Option<Place>) -> Self {
        self.place = place;
        self
    }

    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }

    /// The message on one line, with its place: for logs, for `status` and for hosts.
    pub fn to_line(&self) -> String {
        let mut text = self.file.to_string_lossy().into_owned();
        if let Some(place) = self.place {
            text.push_str(&format!(":{}:{}", place.line, place.column));
        }
        format!("{text}: {}", self.message)
    }

    /// The same with what to do about it; of a hint with something to paste only the first line.
    pub fn to_line_with_hint(&self) -> String {
        match self.hint.as_deref().and_then(|hint| hint.lines().next()) {
            Some(hint) => format!("{}, {}", self.to_line(), hint.trim_end_matches(':')),
            None => self.to_line(),
        }
    }

    /// Files in order, in a file by place, so that a report reads from top to bottom.
    pub fn sort(diagnostics: &mut [Self]) {
        diagnostics.sort_by(|one, other| {
            let order = |it: &Self| (it.file.clone(), it.place, it.severity);
            order(one).cmp(&order(other))
        });
    }
}

/// The whole finding: place and message, then the line with its mark, then the hint.
impl fmt::Display for Diagnostic {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.file.to_string_lossy())?;
        if let Some(place) = self.place {
            write!(out, ":{}:{}", place.line, place.column)?;
        }
        write!(out, ": {}: {}", self.severity, self.message)?;
        let number = self
            .place
            .map_or(String::new(), |place| place.line.to_string());
        let gutter = " ".repeat(number.len());
        if let Some(source) = &self.source_line {
            let indent = " ".repeat(source.mark_start);
            let mark = "^".repeat(source.mark_len);
            write!(
                out,
                "\n{gutter} |\n{number} | {}\n{gutter} | {indent}{mark}",
                source.text
            )?;
        }
        if let Some(hint) = &self.hint {
            let mut lines = hint.lines();
            write!(out, "\n{gutter} = {}", lines.next().unwrap_or_default())?;
            for line in lines {
                write!(out, "\n{gutter}   {line}")?;
            }
        }
        Ok(())
    }
}

/// The text of one file, with what is needed to point into it.
#[derive(Clone)]
pub struct SourceText {
    file: Arc<Path>,
    text: String,
    /// Where each line begins, in bytes.
    line_starts: Vec<usize>,
    /// For each line, where what must not be shown begins in it, in bytes from its start.
    secret_from: Vec<Option<usize>>,
}

/// Without the text: it may hold secrets.
impl fmt::Debug for SourceText {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("SourceText")
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}

impl SourceText {
    /// Takes the text of `file`; a byte order mark at its start is not part of it.
    pub fn new(file: &Path, text: &str) -> Self {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text).to_owned();
        let newlines = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let line_starts: Vec<usize> = std::iter::once(0)
            .chain(newlines.map(|(at, _)| at + 1))
            .collect();
        let mut source = Self {
            file: file.into(),
            text,
            line_starts,
            secret_from: Vec::new(),
        };
        source.secret_from =
            secret_columns((0..source.line_starts.len()).map(|line| source.line(line)));
        source
    }

    pub fn file(&self) -> &Arc<Path> {
        &self.file
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// The place of a byte of the text; past its end, the end.
    pub fn place(&self, at: usize) -> Place {
        let at = floor_char_boundary(&self.text, at);
        let line = self.line_starts.partition_point(|start| *start <= at) - 1;
        let column = self.text[self.line_starts[line]..at].chars().count();
        let count = |number: usize| u32::try_from(number + 1).unwrap_or(u32::MAX);
        Place {
            line: count(line),
            column: count(column),
        }
    }

    /// From a place to the end of the word there, in bytes: for what is known by its place only.
    pub fn span_of(&self, place: Place) -> Option<Range<usize>> {
        let number = usize::try_from(place.line).ok()?.checked_sub(1)?;
        let start = *self.line_starts.get(number)?;
        let skipped = usize::try_from(place.column).ok()?.checked_sub(1)?;
        let line = self.line(number);
        let at = line
            .char_indices()
            .nth(skipped)
            .map_or(line.len(), |(at, _)| at);
        Some(start + at..start + at + word_len(&line[at..]))
    }

    /// The line that `span` begins in, marked as far as the span goes on it.
    pub fn source_line(&self, span: Range<usize>) -> SourceLine {
        let start = floor_char_boundary(&self.text, span.start);
        let end = floor_char_boundary(&self.text, span.end).max(start);
        let number = self.line_starts.partition_point(|at| *at <= start) - 1;
        let line = self.line(number);
        let line_start = self.line_starts[number];
        let mark = (start - line_start).min(line.len())..(end - line_start).min(line.len());
        let secrets = match self.secret_from[number] {
            Some(from) if from < line.len() => std::iter::once(from..line.len()).collect(),
            Some(_) => Vec::new(),
            None => quoted_secrets(line),
        };
        let (line, mark) = mask(line, &secrets, mark);
        window(&line, mark)
    }

    /// A finding at `span`, with its line.
    pub fn diagnostic(
        &self,
        severity: Severity,
        code: Code,
        span: Range<usize>,
        key_path: &str,
        message: impl Into<String>,
    ) -> Diagnostic {
        Diagnostic {
            severity,
            code,
            file: self.file.to_path_buf(),
            place: Some(self.place(span.start)),
            key_path: key_path.to_owned(),
            message: message.into(),
            source_line: Some(self.source_line(span)),
            hint: None,
        }
    }

    /// An error at `span`, with its line.
    pub fn error(
        &self,
        code: Code,
        span: Range<usize>,
        key_path: &str,
        message: impl Into<String>,
    ) -> Diagnostic {
        self.diagnostic(Severity::Error, code, span, key_path, message)
    }

    /// Line `number`, from 0, without its end.
    pub fn line(&self, number: usize) -> &str {
        let start = self.line_starts[number];
        let end = self
            .line_starts
            .get(number + 1)
            .copied()
            .unwrap_or(self.text.len());
        self.text[start..end].trim_end_matches(['\n', '\r'])
    }
}

/// Where in each line the values of `[env]` begin. Judged by the lines alone, since it has to hold
/// for text that is not TOML too; it rather masks too much than too little.
fn secret_columns<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<Option<usize>> {
    let mut in_env = false;
    let mut open_inline = false;
    lines
        .map(|line| {
            let trimmed = line.trim_start();
            let indent = line.len() - trimmed.len();
            if let Some(name) = header_name(trimmed).filter(|_| !open_inline) {
                in_env = key_is_env(name);
                return None;
            }
            if trimmed.starts_with('#') {
                return in_env.then_some(indent);
            }
            if in_env {
                return Some(line.find('=').map_or(indent, |at| at + 1));
            }
            if open_inline {
                open_inline = !trimmed.contains('}');
                return Some(indent);
            }
            let (key, value) = trimmed.split_once('=')?;
            if !key_is_env(key) {
                return None;
            }
            open_inline = value.contains('{') && !value.contains('}');
            Some(indent + key.len() + 1)
        })
        .collect()
}

/// The name in a line such as `[defaults.env]`. A line of a value in several lines may begin with a
/// bracket too, but hardly looks like this.
fn header_name(line: &str) -> Option<&str> {
    let inner = line.strip_prefix("[[").or_else(|| line.strip_prefix('['))?;
    let (name, rest) = inner.split_once(']')?;
    let rest = rest.trim_start_matches(']').trim_start();
    let bare = |character: char| character.is_alphanumeric() || "_-. \"'".contains(character);
    (name.chars().all(bare) && (rest.is_empty() || rest.starts_with('#'))).then_some(name)
}

fn key_is_env(key: &str) -> bool {
    key.split('.')
        .any(|part| part.trim().trim_matches(['"', '\'']) == "env")
}

/// The literal secrets among the quoted words of a line, as in `args = ["--token", "abc"]`.
fn quoted_secrets(line: &str) -> Vec<Range<usize>> {
    let mut words: Vec<Range<usize>> = Vec::new();
    let mut at = 0;
    while let Some(open) = line[at..].find(['"', '\'']).map(|found| at + found) {
        let quote = line[open..].chars().next().unwrap_or('"');
        let start = open + 1;
        let end = line[start..]
            .find(quote)
            .map_or(line.len(), |found| start + found);
        words.push(start..end);
        at = (end + 1).min(line.len());
    }
    // Position 0 is the program's; here it is what stands before the first word.
    let texts: Vec<&str> = std::iter::once("")
        .chain(words.iter().map(|word| &line[word.clone()]))
        .collect();
    let secrets = secret_arguments(&texts).into_iter();
    secrets
        .map(|(at, from)| words[at - 1].start + from..words[at - 1].end)
        .collect()
}

/// `line` with its secrets masked, and where the mark is then. The ranges are in order and apart.
fn mask(line: &str, secrets: &[Range<usize>], mark: Range<usize>) -> (String, Range<usize>) {
    let mut shown = String::new();
    let mut moved = mark.clone();
    let mut from = 0;
    for secret in secrets {
        shown.push_str(&line[from..secret.start]);
        let before = shown.len();
        shown.push_str(MASK);
        let shift = |at: usize, inside: usize, now: usize| match at {
            at if at >= secret.end => now + shown.len() - before - secret.len(),
            at if at > secret.start => inside,
            _ => now,
        };
        moved = shift(mark.start, before, moved.start)..shift(mark.end, shown.len(), moved.end);
        from = secret.end;
    }
    shown.push_str(&line[from..]);
    let end = moved.end.min(shown.len());
    (shown, moved.start.min(end)..end)
}

/// Cuts a long line down to what lies around the mark, and takes out what would disturb a terminal.
fn window(line: &str, mark: Range<usize>) -> SourceLine {
    let start = line[..mark.start].chars().count();
    let len = line[mark.clone()].chars().count().max(1);
    let clean = |character: char| match character {
        '\t' => ' ',
        character if character.is_control() => '\u{fffd}',
        character => character,
    };
    let total = line.chars().count();
    if total <= SHOWN_LINE_LIMIT_CHARS {
        let text = line.chars().map(clean).collect();
        return SourceLine {
            text,
            mark_start: start,
            mark_len: len,
        };
    }
    let from = start.saturating_sub(SHOWN_LINE_LIMIT_CHARS / 2);
    let mut text: String = line
        .chars()
        .skip(from)
        .take(SHOWN_LINE_LIMIT_CHARS)
        .map(clean)
        .collect();
    if from + SHOWN_LINE_LIMIT_CHARS < total {
        text.push('…');
    }
    let mut mark_start = start - from;
    if from > 0 {
        text.insert(0, '…');
        mark_start += 1;
    }
    SourceLine {
        mark_len: len.min(text.chars().count().saturating_sub(mark_start).max(1)),
        text,
        mark_start,
    }
}

/// How long the string or bare word at the start of `text` is, in bytes.
fn word_len(text: &str) -> usize {
    match text.chars().next() {
        Some(quote @ ('"' | '\'')) => text[1..].find(quote).map_or(text.len(), |end| end + 2),
        _ => text
            .find(|character: char| ",]}".contains(character) || character.is_whitespace())
            .unwrap_or(text.len()),
    }
}

fn floor_char_boundary(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn source(text: &str) -> SourceText {
        SourceText::new(Path::new("/c/x.toml"), text)
    }

    /// The line of the first `needle` in `text`, and the mark below it.
    #[track_caller]
    fn check(text: &str, needle: &str, expected_line: &str, expected_mark: &str) {
        let at = text.find(needle).unwrap();
        let line = source(text).source_line(at..at + needle.len());
        let mark = format!(
            "{}{}",
            " ".repeat(line.mark_start),
            "^".repeat(line.mark_len)
        );
        assert_eq!(
            (line.text.as_str(), mark.as_str()),
            (expected_line, expected_mark)
        );
    }

    #[test]
    fn places_count_from_one_and_columns_are_characters() {
        let source = source("\u{feff}a = 1\r\nö = 2\n");
        let place = |at| (source.place(at).line, source.place(at).column);
        assert_eq!(
            [place(0), place(4), place(7), place(9), place(12)],
            [(1, 1), (1, 5), (2, 1), (2, 2), (2, 5)]
        );
        assert_eq!(place(1000), (3, 1));
        // In the middle of a character.
        assert_eq!(place(8), (2, 1));
    }

    #[test]
    fn the_mark_lies_below_what_is_meant() {
        check("aé = 5\n", "5", "aé = 5", "     ^");
        check("\ta = 5\r\n", "5", " a = 5", "     ^");
        check("a = [\n1,\n2]\n", "[\n1,\n2]", "a = [", "    ^");
        check(
            "a = \"\u{1b}[31mx\"",
            "\u{1b}",
            "a = \"\u{fffd}[31mx\"",
            "     ^",
        );
    }

    #[test]
    fn a_long_line_is_cut_around_the_mark() {
        let text = format!("a = \"{}\" # {}", "x".repeat(300), "y".repeat(300));
        let line = source(&text).source_line(305..308);
        assert!(line.text.starts_with('…') && line.text.ends_with('…'));
        assert_eq!(line.text.chars().count(), SHOWN_LINE_LIMIT_CHARS + 2);
        let marked: String = line
            .text
            .chars()
            .skip(line.mark_start)
            .take(line.mark_len)
            .collect();
        assert_eq!(marked, &text[305..308]);
    }

    #[test]
    fn values_of_env_are_masked_wherever_they_stand() {
        check("[env]\nA = \"s3cr3t\"", "\"s3cr3t\"", "A =‹…›", "   ^^^");
        check("[env]\nA = \"s3cr3t\"", "A", "A =‹…›", "^");
        check("[ defaults . env ] # x\nA = 's3cr3t'", "A", "A =‹…›", "^");
        check("[env.A]\nfile = \"s3cr3t\"", "file", "file =‹…›", "^^^^");
        check("env.A = \"s3cr3t\"", "env", "env.A =‹…›", "^^^");
        check("env = { A = \"s3cr3t\" }", "env", "env =‹…›", "^^^");
        check(
            "env = {\n  A = \"s3cr3t\",\n}\nb = 1",
            "A",
            "  ‹…›",
            "  ^^^",
        );
        check("env = {\n  A = \"x\",\n}\nb = 1", "b", "b = 1", "^");
        check("[env]\nA = \"\"\"\ns3cr3t\n\"\"\"", "s3cr3t", "‹…›", "^^^");
        check("[env]\n# A = s3cr3t", "#", "‹…›", "^^^");
        check(
            "[env]\nA = 1\n[tools]\nallow = 5",
            "5",
            "allow = 5",
            "        ^",
        );
    }

    #[test]
    fn secrets_among_arguments_are_masked() {
        let text = "args = [\"--token\", \"s3cr3t\", \"x\", 5]";
        check(
            text,
            "5",
            "args = [\"--token\", \"‹…›\", \"x\", 5]",
            "                               ^",
        );
        check(
            "args = [\"--token=s3cr3t\", 5]",
            "5",
            "args = [\"--token=‹…›\", 5]",
            "                       ^",
        );
    }

    #[test]
    fn a_place_alone_is_enough_to_mark_a_word() {
        let source = source("a = \"x y\"\nb = [1, 2]");
        let marked = |line, column| {
            let span = source.span_of(Place { line, column }).unwrap();
            source.text()[span].to_owned()
        };
        assert_eq!(
            [marked(1, 5), marked(2, 6), marked(2, 9)],
            ["\"x y\"", "1", "2"]
        );
        assert_eq!(source.span_of(Place { line: 9, column: 1 }), None);
        assert_eq!(source.span_of(Place { line: 0, column: 0 }), None);
    }

    #[test]
    fn a_finding_about_a_whole_file_has_no_line() {
        let finding = Diagnostic::file_error(Code::File, Path::new("/c/x.toml"), "no such file")
            .with_hint("a\nb");
        assert_eq!(
            finding.to_string(),
            "/c/x.toml: error: no such file\n = a\n   b"
        );
        assert_eq!(finding.to_line(), "/c/x.toml: no such file");
        assert_eq!(
            serde_json::to_string(&finding).unwrap(),
            r#"{"severity":"error","code":"file","file":"/c/x.toml","key":"","message":"no such file","source":null,"hint":"a\nb"}"#
        );
    }

    #[test]
    fn findings_are_sorted_by_file_and_place() {
        let at = |file: &str, line| {
            let finding = Diagnostic::file_error(Code::File, Path::new(file), "m");
            finding.at(Some(Place { line, column: 1 }))
        };
        let mut findings = vec![at("b", 1), at("a", 2), at("a", 1)];
        Diagnostic::sort(&mut findings);
        assert_eq!(findings, [at("a", 1), at("a", 2), at("b", 1)]);
    }

    proptest! {
        #[test]
        fn any_span_of_any_text_can_be_shown(
            text in "([a-z=\"'\\[\\]{}\n\t ]|env|--token|\\PC){0,60}",
            start in 0usize..300,
            len in 0usize..300,
        ) {
            let source = source(&text);
            let line = source.source_line(start..start + len);
            prop_assert!(line.mark_len >= 1);
            prop_assert!(!line.text.contains('\n'));
            let place = source.place(start);
            prop_assert!(source.span_of(place).is_some());
        }
    }
}
