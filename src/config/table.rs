//! Reads values of the expected type out of a TOML table, and notes every one that is something else.
//!
//! It decides what a wrong type, a missing unit or a wrong number is told as. It never stops at the
//! first: each method gives `None` and goes on. What the keys mean is decided in `parse`.

use std::ops::{Range, RangeInclusive};
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::arg_secrets::mask_arguments;
use super::diagnostics::{Code, Diagnostic, SourceText};
use super::expand::{Origin, Template, TemplateFault};
use super::units::{UnitError, parse_duration, parse_size};

/// A value with its place in the text.
pub(super) type Value<'t> = Spanned<DeValue<'t>>;

/// The text that is read and what was found in it.
pub(super) struct Reader<'s> {
    pub(super) source: &'s SourceText,
    pub(super) diagnostics: Vec<Diagnostic>,
}

impl<'s> Reader<'s> {
    pub(super) fn new(source: &'s SourceText) -> Self {
        Self {
            source,
            diagnostics: Vec::new(),
        }
    }

    pub(super) fn error(&mut self, code: Code, span: Range<usize>, key: &str, message: String) {
        self.diagnostics
            .push(self.source.error(code, span, key, message));
    }

    pub(super) fn hint(&mut self, hint: impl Into<String>) {
        if let Some(last) = self.diagnostics.last_mut() {
            last.hint = Some(hint.into());
        }
    }

    /// Notes that `value` is not `expected`.
    pub(super) fn wrong_type(&mut self, key: &str, value: &Value<'_>, expected: &str) {
        let message = format!(
            "`{key}` must be {expected}, not {}",
            type_name(value.get_ref())
        );
        self.error(Code::Type, value.span(), key, message);
    }

    /// Notes that `value` has the right type and does not do.
    pub(super) fn wrong_value(&mut self, key: &str, value: &Value<'_>, message: String) {
        self.error(Code::Value, value.span(), key, message);
    }

    pub(super) fn boolean(&mut self, key: &str, value: &Value<'_>) -> Option<bool> {
        let found = value.get_ref().as_bool();
        if found.is_none() {
            self.wrong_type(key, value, "true or false");
        }
        if let Some(text) = value
            .get_ref()
            .as_str()
            .filter(|text| ["true", "false"].contains(text))
        {
            self.hint(format!("write {text} without quotes"));
        }
        found
    }

    /// A string without NUL, which no path, argument or variable can hold (`execve(2)`).
    pub(super) fn string<'v>(&mut self, key: &str, value: &'v Value<'_>) -> Option<&'v str> {
        let Some(text) = value.get_ref().as_str() else {
            self.wrong_type(key, value, "a string");
            if is_number_or_boolean(value.get_ref()) {
                self.hint("put it in quotes");
            }
            return None;
        };
        if text.contains('\0') {
            self.wrong_value(key, value, format!("`{key}` holds a NUL character"));
            return None;
        }
        Some(text)
    }

    pub(super) fn filled_string<'v>(&mut self, key: &str, value: &'v Value<'_>) -> Option<&'v str> {
        let text = self.string(key, value)?;
        if text.trim().is_empty() {
            self.wrong_value(key, value, format!("`{key}` is empty"));
            return None;
        }
        Some(text)
    }

    /// The elements of an array of strings, each with the key of its place.
    pub(super) fn elements<'v, 't>(
        &mut self,
        key: &str,
        value: &'v Value<'t>,
    ) -> Option<Vec<(String, &'v Value<'t>)>> {
        let Some(array) = value.get_ref().as_array() else {
            self.wrong_type(key, value, "an array of strings");
            if let Some(text) = value.get_ref().as_str() {
                let name = key.rsplit('.').next().unwrap_or(key);
                self.hint(match key.contains("env.") {
                    // What stands below `env` is not repeated.
                    true => format!("write {name} = [\"PROGRAM\", \"ARGUMENT\"]"),
                    false => format!("write {name} = [{}]", quoted_words(text)),
                });
            }
            return None;
        };
        Some(
            array
                .iter()
                .enumerate()
                .map(|(at, element)| (format!("{key}[{at}]"), element))
                .collect(),
        )
    }

    pub(super) fn strings(&mut self, key: &str, value: &Value<'_>) -> Option<Vec<String>> {
        let elements = self.elements(key, value)?;
        let read = elements
            .into_iter()
            .map(|(key, element)| self.filled_string(&key, element).map(str::to_owned));
        // All are read before any is missed, so that each wrong one is noted.
        read.collect::<Vec<_>>().into_iter().collect()
    }

    /// A command as an array: at least the program, which says something.
    pub(super) fn command_words(&mut self, key: &str, value: &Value<'_>) -> Option<Vec<String>> {
        let elements = self.elements(key, value)?;
        if elements.is_empty() {
            self.wrong_value(key, value, format!("`{key}` is empty"));
            return None;
        }
        let read = elements
            .into_iter()
            .enumerate()
            .map(|(at, (key, element))| {
                let text = if at == 0 {
                    self.filled_string(&key, element)
                } else {
                    self.string(&key, element)
                };
                text.map(str::to_owned)
            });
        read.collect::<Vec<_>>().into_iter().collect()
    }

    pub(super) fn template(&mut self, key: &str, value: &Value<'_>) -> Option<Template> {
        let text = self.string(key, value)?;
        let origin = Origin {
            file: self.source.file().clone(),
            place: Some(self.source.place(value.span().start)),
        };
        match Template::parse(text, origin) {
            Ok(template) => Some(template),
            Err(error) => {
                let span = self.span_within(value, text, error.span.clone());
                // What stands below `env` is not repeated.
                let fault = match error.fault {
                    TemplateFault::UnknownForm(_) if key.contains("env.") => TemplateFault::Empty,
                    fault => fault,
                };
                self.error(Code::Value, span, key, format!("{fault} in `{key}`"));
                self.hint(fault.hint());
                None
            }
        }
    }

    pub(super) fn filled_template(&mut self, key: &str, value: &Value<'_>) -> Option<Template> {
        self.filled_string(key, value)?;
        self.template(key, value)
    }

    pub(super) fn integer(
        &mut self,
        key: &str,
        value: &Value<'_>,
        range: RangeInclusive<u32>,
    ) -> Option<u32> {
        let Some(integer) = value.get_ref().as_integer() else {
            self.wrong_type(key, value, "an integer");
            return None;
        };
        let number = i128::from_str_radix(integer.as_str(), integer.radix()).ok();
        let number = number
            .and_then(|number| u32::try_from(number).ok())
            .filter(|number| range.contains(number));
        if number.is_none() {
            let message = format!(
                "`{key}` must be between {} and {}",
                range.start(),
                range.end()
            );
            self.wrong_value(key, value, message);
        }
        number
    }

    pub(super) fn duration(&mut self, key: &str, value: &Value<'_>) -> Option<Duration> {
        self.measured(key, value, "a duration", "90s", parse_duration)
    }

    /// A duration that is longer than nothing.
    pub(super) fn waiting_time(&mut self, key: &str, value: &Value<'_>) -> Option<Duration> {
        let duration = self.duration(key, value)?;
        if duration.is_zero() {
            self.wrong_value(key, value, format!("`{key}` must be longer than zero"));
            return None;
        }
        Some(duration)
    }

    pub(super) fn size(
        &mut self,
        key: &str,
        value: &Value<'_>,
        range: RangeInclusive<u64>,
    ) -> Option<u64> {
        let size = self.measured(key, value, "a size", "64MiB", parse_size)?;
        if !range.contains(&size) {
            let (least, most) = (show_size(*range.start()), show_size(*range.end()));
            self.wrong_value(
                key,
                value,
                format!("`{key}` must be between {least} and {most}"),
            );
            return None;
        }
        Some(size)
    }

    fn measured<T>(
        &mut self,
        key: &str,
        value: &Value<'_>,
        what: &str,
        example: &str,
        parse: impl Fn(&str) -> Result<T, UnitError>,
    ) -> Option<T> {
        let Some(text) = value.get_ref().as_str() else {
            self.wrong_type(
                key,
                value,
                &format!("{what} in quotes, such as \"{example}\""),
            );
            return None;
        };
        match parse(text) {
            Ok(measured) => Some(measured),
            Err(error) => {
                self.wrong_value(
                    key,
                    value,
                    format!("`{key}` {error}; write {what} such as \"{example}\""),
                );
                None
            }
        }
    }

    pub(super) fn table<'v, 't>(
        &mut self,
        key: &str,
        value: &'v Value<'t>,
    ) -> Option<&'v DeTable<'t>> {
        let table = value.get_ref().as_table();
        if table.is_none() {
            self.wrong_type(key, value, "a table");
        }
        table
    }

    /// Where `span`, in bytes of a string, lies in the file. Exact if the string stands there without
    /// escapes, else the whole value.
    fn span_within(&self, value: &Value<'_>, text: &str, span: Range<usize>) -> Range<usize> {
        let outer = value.span();
        let raw = self.source.text().get(outer.clone()).unwrap_or_default();
        match raw.get(1..raw.len().saturating_sub(1)) {
            Some(inner) if inner == text => {
                outer.start + 1 + span.start..outer.start + 1 + span.end
            }
            _ => outer,
        }
    }
}

/// `a b` as `"a", "b"`, for a line to paste.
pub(super) fn quoted_words(text: &str) -> String {
    quoted(&split_words(text))
}

/// Words as a TOML array without its brackets, for a line to paste; literal secrets are masked.
pub(super) fn quoted<W: AsRef<str>>(words: &[W]) -> String {
    // A program stands first; none of these is it.
    let words: Vec<&str> = std::iter::once("")
        .chain(words.iter().map(AsRef::as_ref))
        .collect();
    let shown = mask_arguments(&words).into_iter().skip(1);
    let quoted: Vec<String> = shown.map(|word| quote(&word)).collect();
    quoted.join(", ")
}

/// A basic string of TOML.
pub(super) fn quote(word: &str) -> String {
    let mut quoted = String::from('"');
    for character in word.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            character if character.is_control() => {
                quoted.push_str(&format!("\\u{:04X}", u32::from(character)));
            }
            character => quoted.push(character),
        }
    }
    quoted.push('"');
    quoted
}

/// Splits at blanks, but not in quotes: enough of a shell's rules to offer a line to paste.
pub(super) fn split_words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    for character in text.chars() {
        match quote {
            Some(open) if character == open => quote = None,
            Some(_) => word.get_or_insert_default().push(character),
            None if character == '"' || character == '\'' => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            None if character.is_whitespace() => words.extend(word.take()),
            None => word.get_or_insert_default().push(character),
        }
    }
    words.extend(word);
    words
}

fn is_number_or_boolean(value: &DeValue<'_>) -> bool {
    matches!(
        value,
        DeValue::Integer(_) | DeValue::Float(_) | DeValue::Boolean(_)
    )
}

fn type_name(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "an integer",
        DeValue::Float(_) => "a float",
        DeValue::Boolean(_) => "a boolean",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "an array",
        DeValue::Table(_) => "a table",
    }
}

fn show_size(bytes: u64) -> String {
    match bytes {
        bytes if bytes % (1 << 30) == 0 => format!("{}GiB", bytes >> 30),
        bytes if bytes % (1 << 20) == 0 => format!("{}MiB", bytes >> 20),
        bytes if bytes % (1 << 10) == 0 => format!("{}KiB", bytes >> 10),
        bytes => format!("{bytes}B"),
    }
}
