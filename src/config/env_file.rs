//! Lines of `NAME=VALUE`, as in the `.env` files of other tools.
//!
//! It decides what a line means: `export` before a name and blanks around `=` do not count; a value
//! without quotes ends at ` #` and is trimmed; in double quotes `\n`, `\r`, `\t`, `\"`, `\\` and `\$`
//! are escapes, in single quotes nothing is; both may go over several lines; of two lines with one
//! name the later counts. It never expands `$` and never puts a value, or a line that may hold one,
//! into an error.

use std::path::Path;

use super::diagnostics::{Code, Diagnostic, Place};

/// What is wrong with a line. The place is where the fault begins.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {}: {fault}", place.line)]
pub struct EnvFileError {
    pub place: Place,
    pub fault: EnvFileFault,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnvFileFault {
    #[error("not a NAME=VALUE line")]
    NoAssignment,
    #[error("not a name for a variable before `=`")]
    BadName,
    #[error("a quote that is not closed")]
    OpenQuote,
    #[error("text after the closing quote")]
    AfterQuote,
    #[error("a NUL character")]
    Nul,
}

impl EnvFileError {
    /// The error as a finding about `file`, without the line itself.
    pub fn into_diagnostic(self, file: &Path) -> Diagnostic {
        Diagnostic::file_error(Code::Syntax, file, self.fault.to_string())
            .with_key("env_file")
            .at(Some(self.place))
    }
}

/// The pairs of `text`, in order.
///
/// # Errors
/// Everything that is no such line; after a quote that is not closed nothing more can be told.
pub fn parse_env_file(text: &str) -> Result<Vec<(String, String)>, Vec<EnvFileError>> {
    let text = text
        .strip_prefix('\u{feff}')
        .unwrap_or(text)
        .replace("\r\n", "\n");
    let mut scan = Scan { text: &text, at: 0 };
    let mut pairs = Vec::new();
    let mut errors = Vec::new();
    while !scan.is_at_end() {
        let line_start = scan.at;
        match scan.assignment() {
            Ok(Some(pair)) => pairs.push(pair),
            Ok(None) => {}
            Err((at, fault)) => {
                errors.push(EnvFileError {
                    place: scan.place(at),
                    fault,
                });
                if fault == EnvFileFault::OpenQuote {
                    break;
                }
                scan.at = line_start;
            }
        }
        scan.skip_line();
    }
    if errors.is_empty() {
        Ok(pairs)
    } else {
        Err(errors)
    }
}

type Fault = (usize, EnvFileFault);

struct Scan<'t> {
    text: &'t str,
    /// In bytes, always at a character.
    at: usize,
}

impl<'t> Scan<'t> {
    /// The pair on this line, and up to the end of its value; nothing for blanks and comments.
    fn assignment(&mut self) -> Result<Option<(String, String)>, Fault> {
        self.skip_blanks();
        let line = self.rest_of_line();
        if line.is_empty() || line.starts_with('#') {
            return Ok(None);
        }
        let Some(equals) = line.find('=') else {
            return Err((self.at, EnvFileFault::NoAssignment));
        };
        let name = strip_export(line[..equals].trim_end());
        if !is_name(name) {
            return Err((self.at, EnvFileFault::BadName));
        }
        self.at += equals + 1;
        self.skip_blanks();
        let start = self.at;
        let value = match self.text[self.at..].chars().next() {
            Some(quote @ ('"' | '\'')) => self.quoted(quote)?,
            _ => self.unquoted(equals_has_blank(line, equals)),
        };
        if value.contains('\0') {
            return Err((start, EnvFileFault::Nul));
        }
        Ok(Some((name.to_owned(), value)))
    }

    /// A value up to the end of its line or to a comment. A `#` opens a comment at the start of the
    /// value only if a blank is before it (`A= # none`, but `A=#1`).
    fn unquoted(&mut self, blank_before: bool) -> String {
        let line = self.rest_of_line();
        self.at += line.len();
        let mut after_blank = blank_before;
        for (at, character) in line.char_indices() {
            if character == '#' && after_blank {
                return line[..at].trim_end().to_owned();
            }
            after_blank = character.is_whitespace();
        }
        line.trim_end().to_owned()
    }

    fn quoted(&mut self, quote: char) -> Result<String, Fault> {
        let open = self.at;
        let mut value = String::new();
        let mut characters = self.text[open + 1..].char_indices();
        while let Some((at, character)) = characters.next() {
            if character == quote {
                self.at = open + 1 + at + 1;
                return self.after_quote().map(|()| value);
            }
            if character != '\\' || quote == '\'' {
                value.push(character);
                continue;
            }
            match characters.next() {
                Some((_, escaped)) => push_escaped(&mut value, escaped),
                None => break,
            }
        }
        Err((open, EnvFileFault::OpenQuote))
    }

    /// Only a comment may stand after a closing quote.
    fn after_quote(&mut self) -> Result<(), Fault> {
        let rest = self.rest_of_line();
        let trimmed = rest.trim_start();
        match trimmed.is_empty() || (trimmed.starts_with('#') && trimmed.len() < rest.len()) {
            true => Ok(()),
            false => Err((self.at, EnvFileFault::AfterQuote)),
        }
    }

    fn is_at_end(&self) -> bool {
        self.at >= self.text.len()
    }

    fn rest_of_line(&self) -> &'t str {
        self.text[self.at..].split('\n').next().unwrap_or_default()
    }

    fn skip_blanks(&mut self) {
        let line = self.rest_of_line();
        self.at += line.len() - line.trim_start().len();
    }

    fn skip_line(&mut self) {
        self.at = (self.at + self.rest_of_line().len() + 1).min(self.text.len());
    }

    fn place(&self, at: usize) -> Place {
        let before = &self.text[..at];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let count = |number: usize| u32::try_from(number + 1).unwrap_or(u32::MAX);
        Place {
            line: count(before.matches('\n').count()),
            column: count(before[line_start..].chars().count()),
        }
    }
}

fn push_escaped(value: &mut String, escaped: char) {
    match escaped {
        'n' => value.push('\n'),
        'r' => value.push('\r'),
        't' => value.push('\t'),
        '"' | '\\' | '$' => value.push(escaped),
        other => value.extend(['\\', other]),
    }
}

fn strip_export(name: &str) -> &str {
    match name.strip_prefix("export") {
        Some(rest) if rest.starts_with([' ', '\t']) => rest.trim_start(),
        _ => name,
    }
}

fn equals_has_blank(line: &str, equals: usize) -> bool {
    line[equals + 1..].starts_with(char::is_whitespace)
}

fn is_name(name: &str) -> bool {
    let rest = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.bytes().all(rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(text: &str, expected: &[(&str, &str)]) {
        let pairs = parse_env_file(text).unwrap();
        let pairs: Vec<(&str, &str)> = pairs
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        assert_eq!(pairs, expected);
    }

    #[track_caller]
    fn check_error(text: &str, expected: &[&str]) {
        let errors = parse_env_file(text).unwrap_err();
        let shown: Vec<String> = errors
            .into_iter()
            .map(|error| error.into_diagnostic(Path::new(".env")).to_string())
            .collect();
        assert_eq!(shown, expected);
    }

    #[test]
    fn quotes_export_comments_and_empty_values() {
        let text = concat!(
            "# a comment\n",
            "export A=1\n",
            "B=\"x y\"\n",
            "C='l#t'\n",
            "D=v # note\n",
            "E=a#b\n",
            "F=\n",
            "G=\"a\\nb\"\n",
            "  H = spaced  \n",
            "\n",
            "   # another\n",
        );
        let expected = [
            ("A", "1"),
            ("B", "x y"),
            ("C", "l#t"),
            ("D", "v"),
            ("E", "a#b"),
            ("F", ""),
            ("G", "a\nb"),
            ("H", "spaced"),
        ];
        check(text, &expected);
    }

    #[test]
    fn quotes_may_go_over_several_lines() {
        check(
            "K=\"one\ntwo\" # end\nL='a\nb'\nM=1",
            &[("K", "one\ntwo"), ("L", "a\nb"), ("M", "1")],
        );
    }

    #[test]
    fn escapes_count_in_double_quotes_only() {
        check(r#"A="\t\"\\\$\x""#, &[("A", "\t\"\\$\\x")]);
        check(r"A='\n'", &[("A", r"\n")]);
        check(r"A=C:\new", &[("A", r"C:\new")]);
    }

    #[test]
    fn nothing_is_expanded() {
        check(
            "A=$HOME\nB=\"${HOME}\"",
            &[("A", "$HOME"), ("B", "${HOME}")],
        );
    }

    #[test]
    fn a_comment_needs_a_blank_before_it() {
        check(
            "A=#1\nB= # none\nC=\"x\" # y\nD='a' \n",
            &[("A", "#1"), ("B", ""), ("C", "x"), ("D", "a")],
        );
    }

    #[test]
    fn a_byte_order_mark_and_cr_lf_do_not_count() {
        check(
            "\u{feff}A=1\r\nB=\"x\r\ny\"\r\n",
            &[("A", "1"), ("B", "x\ny")],
        );
    }

    #[test]
    fn an_equals_sign_belongs_to_the_value() {
        check(
            "A=b=c\nURL=postgres://h/?a=1",
            &[("A", "b=c"), ("URL", "postgres://h/?a=1")],
        );
        check("exporter=1\nexport\tB=2", &[("exporter", "1"), ("B", "2")]);
    }

    #[test]
    fn errors_name_file_and_line_and_never_the_value() {
        check_error(
            "A=1\nB=\"s3cr3t-value\nC=2\n",
            &[".env:2:3: error: a quote that is not closed"],
        );
        check_error(
            "A=\"s3cr3t\\",
            &[".env:1:3: error: a quote that is not closed"],
        );
        check_error(
            "s3cr3t-value\nA=\"x\"s3cr3t\n1X=s3cr3t\nB=1\n=x\n",
            &[
                ".env:1:1: error: not a NAME=VALUE line",
                ".env:2:6: error: text after the closing quote",
                ".env:3:1: error: not a name for a variable before `=`",
                ".env:5:1: error: not a name for a variable before `=`",
            ],
        );
        check_error("A=a\0b", &[".env:1:3: error: a NUL character"]);
    }

    proptest! {
        #[test]
        fn any_text_is_answered(text in "([A-Z]|[ =\"'\\\\#\n\r\t$]|export |\\PC){0,60}") {
            drop(parse_env_file(&text));
        }

        #[test]
        fn what_is_quoted_comes_back(values in prop::collection::vec("[^\0\r]*", 0..6)) {
            let quoted = |value: &String| {
                format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\"").replace('$', "\\$"))
            };
            let text: String =
                values.iter().enumerate().map(|(at, value)| format!("N{at}={}\n", quoted(value))).collect();
            let pairs = parse_env_file(&text).unwrap();
            let back: Vec<String> = pairs.into_iter().map(|(_, value)| value).collect();
            prop_assert_eq!(back, values);
        }
    }
}
