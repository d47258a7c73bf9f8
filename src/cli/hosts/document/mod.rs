//! A host's configuration file as text with entries in it: found, rewritten, put back.
//!
//! Every function takes the text of a file and gives a new one in which all that it was not asked to
//! change is as it was, byte for byte: comments, order, indentation, line ends, the byte order mark.
//! It decides nothing about what an entry means (see `entry`), and reads and writes no file.

mod json;
mod toml;

use serde_json::{Map, Value};

/// How a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Format {
    /// JSON, with comments and commas at the end of lists.
    Json,
    Toml,
}

/// One entry of a file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RawEntry {
    /// The keys that lead to it, its name last.
    pub(crate) path: Vec<String>,
    pub(crate) value: Value,
}

impl RawEntry {
    pub(crate) fn name(&self) -> &str {
        self.path.last().map_or("", String::as_str)
    }
}

/// Members of an entry: what they are to be, in this order; `None` takes one away.
pub(crate) type Members<'a> = [(&'a str, Option<Value>)];

const BOM: char = '\u{feff}';

/// The entries below `roots`, where `*` stands for every key; of two with one path the later, as
/// hosts read them.
///
/// # Errors
/// What is wrong with the text, with its line.
pub(crate) fn entries(
    text: &str,
    format: Format,
    roots: &[&[&str]],
) -> Result<Vec<RawEntry>, String> {
    let (_, text) = split_bom(text);
    let value = match format {
        Format::Json => json::parse(text)?,
        Format::Toml => toml::parse(text)?,
    };
    let mut found = Vec::new();
    for root in roots {
        collect(&value, root, &mut Vec::new(), &mut found);
    }
    Ok(found)
}

fn collect(value: &Value, root: &[&str], path: &mut Vec<String>, found: &mut Vec<RawEntry>) {
    let Some(table) = value.as_object() else {
        return;
    };
    let Some((key, below)) = root.split_first() else {
        found.extend(table.iter().map(|(name, value)| RawEntry {
            path: path.iter().cloned().chain([name.clone()]).collect(),
            value: value.clone(),
        }));
        return;
    };
    for (name, value) in table {
        if *key == "*" || name == key {
            path.push(name.clone());
            collect(value, below, path, found);
            path.pop();
        }
    }
}

/// The text of the entry at `path`, so that it can be put back.
pub(crate) fn entry_text(text: &str, format: Format, path: &[String]) -> Option<String> {
    let (_, text) = split_bom(text);
    match format {
        Format::Json => json::entry_text(text, path),
        Format::Toml => toml::entry_text(text, path),
    }
}

/// The value that the text of an entry holds.
pub(crate) fn entry_value(entry: &str, format: Format, path: &[String]) -> Option<Value> {
    match format {
        Format::Json => json::parse(entry).ok(),
        Format::Toml => path
            .iter()
            .try_fold(toml::parse(entry).ok()?, |value, key| {
                value.get(key).cloned()
            }),
    }
}

/// Changes members of the entry at `path`.
pub(crate) fn set_members(
    text: &str,
    format: Format,
    path: &[String],
    members: &Members<'_>,
) -> Option<String> {
    edited(text, |text| match format {
        Format::Json => json::set_members(text, path, members),
        Format::Toml => toml::set_members(text, path, members),
    })
}

/// Puts `before` in the place of the entry at `path`, all of it.
pub(crate) fn replace_entry(
    text: &str,
    format: Format,
    path: &[String],
    before: &str,
) -> Option<String> {
    edited(text, |text| match format {
        Format::Json => json::replace_entry(text, path, before),
        Format::Toml => toml::replace_entry(text, path, before),
    })
}

/// Adds an entry at `path`, with what leads to it.
pub(crate) fn insert_entry(
    text: &str,
    format: Format,
    path: &[String],
    value: &Map<String, Value>,
) -> Option<String> {
    edited(text, |text| match format {
        Format::Json => json::insert_entry(text, path, value),
        Format::Toml => toml::insert_entry(text, path, value),
    })
}

/// Takes the entry at `path` away.
pub(crate) fn remove_entry(text: &str, format: Format, path: &[String]) -> Option<String> {
    edited(text, |text| match format {
        Format::Json => json::remove_entry(text, path),
        Format::Toml => toml::remove_entry(text, path),
    })
}

fn edited(text: &str, edit: impl FnOnce(&str) -> Option<String>) -> Option<String> {
    let (bom, text) = split_bom(text);
    let new = edit(text)?;
    Some(match bom {
        true => format!("{BOM}{new}"),
        false => new,
    })
}

fn split_bom(text: &str) -> (bool, &str) {
    match text.strip_prefix(BOM) {
        Some(rest) => (true, rest),
        None => (false, text),
    }
}

/// `new` with the lines of `old` at both ends as far as they are the same but for their ends, and
/// with the line ends of `old` between: an edit of one place changes that place only.
fn keep_lines(old: &str, new: &str) -> String {
    let old_lines: Vec<&str> = old.split_inclusive('\n').collect();
    let new_lines: Vec<&str> = new.split_inclusive('\n').collect();
    let same = |one: &&str, other: &&str| trim_end(one) == trim_end(other);
    let head = old_lines
        .iter()
        .zip(&new_lines)
        .take_while(|(one, other)| same(one, other))
        .count();
    let most = old_lines.len().min(new_lines.len()) - head;
    let tail = old_lines
        .iter()
        .rev()
        .zip(new_lines.iter().rev())
        .take(most)
        .take_while(|(one, other)| same(one, other))
        .count();
    let end = if old.contains("\r\n") { "\r\n" } else { "\n" };
    let mut text: String = old_lines[..head].concat();
    // What was the last line has another behind it now.
    if head < new_lines.len() && !text.is_empty() && !text.ends_with('\n') {
        text.push_str(end);
    }
    for line in &new_lines[head..new_lines.len() - tail] {
        text.push_str(trim_end(line));
        text.push_str(if line.ends_with('\n') { end } else { "" });
    }
    text.push_str(&old_lines[old_lines.len() - tail..].concat());
    // A file whose last line has no end keeps that habit.
    match old.is_empty() || old.ends_with('\n') {
        true => text,
        false => trim_end(&text).to_owned(),
    }
}

fn trim_end(line: &str) -> &str {
    let line = line.strip_suffix('\n').unwrap_or(line);
    line.strip_suffix('\r').unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_lines_between_change() {
        let kept = keep_lines("a\r\nb\nc\r\nd", "a\nx\ny\nc\nd");
        assert_eq!(kept, "a\r\nx\r\ny\r\nc\r\nd");
        assert_eq!(keep_lines("a\nb\n", "a\nb\n"), "a\nb\n");
        assert_eq!(keep_lines("a\na\n", "a\n"), "a\n");
        assert_eq!(keep_lines("a\nb", "a\nc\n"), "a\nc");
        assert_eq!(keep_lines("a\nb", "a\nb\nc\n"), "a\nb\nc");
        assert_eq!(keep_lines("", "a\n"), "a\n");
    }
}
