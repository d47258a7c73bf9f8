//! A change of one key in the text of a server's file: everything else stays byte for byte.
//!
//! It decides where in a text a key is changed or added. It never decides whether the result is
//! right; the parser does.

use toml::de::DeTable;

/// The key that says whether a server may run.
const ENABLED_KEY: &str = "enabled";

/// `text` with `enabled` set; nothing where it is no TOML.
pub fn set_enabled(text: &str, enabled: bool) -> Option<String> {
    // A byte order mark is no part of TOML, and stays where it is.
    let start = text.len() - text.trim_start_matches('\u{feff}').len();
    let (mark, body) = text.split_at(start);
    let table = DeTable::parse(body).ok()?;
    let table = table.get_ref();
    if let Some(value) = table.get(ENABLED_KEY) {
        let span = value.span();
        let (before, after) = (&body[..span.start], &body[span.end..]);
        return Some(format!("{mark}{before}{enabled}{after}"));
    }
    // Behind the last key that is surely above all tables: a header of a table ends the top level.
    let command = table.get("command").map(|value| value.span().end);
    let at = command.map_or(0, |end| line_end(body, end));
    let (before, after) = body.split_at(at);
    let newline = if body.contains("\r\n") { "\r\n" } else { "\n" };
    let gap = match before.is_empty() || before.ends_with('\n') {
        true => "",
        false => newline,
    };
    Some(format!(
        "{mark}{before}{gap}{ENABLED_KEY} = {enabled}{newline}{after}"
    ))
}

/// The place behind the line in which `at` stands.
fn line_end(text: &str, at: usize) -> usize {
    let newline = text[at..].find('\n');
    newline.map_or(text.len(), |found| at + found + 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::config::table::quote;

    #[track_caller]
    fn check(text: &str, enabled: bool, expected: &str) {
        assert_eq!(set_enabled(text, enabled).as_deref(), Some(expected));
    }

    #[test]
    fn a_value_is_changed_in_its_place() {
        check(
            "# mine\nenabled = true # for now\ncommand='x'\n",
            false,
            "# mine\nenabled = false # for now\ncommand='x'\n",
        );
        check(
            "\"enabled\"=false\r\ncommand=\"x\"",
            true,
            "\"enabled\"=true\r\ncommand=\"x\"",
        );
    }

    #[test]
    fn a_missing_key_goes_below_the_command() {
        check(
            "#:schema x\n\ncommand = \"x\" # it\nargs = [\n  \"a\",\n]\n\n[env]\nA = \"1\"\n",
            false,
            "#:schema x\n\ncommand = \"x\" # it\nenabled = false\nargs = [\n  \"a\",\n]\n\n[env]\nA = \"1\"\n",
        );
        check(
            "command = \"\"\"\nx\"\"\"",
            false,
            "command = \"\"\"\nx\"\"\"\nenabled = false\n",
        );
        check(
            "\u{feff}command = 'x'\r\n",
            false,
            "\u{feff}command = 'x'\r\nenabled = false\r\n",
        );
        // The command may be the default's.
        check(
            "[env]\nA = \"1\"",
            false,
            "enabled = false\n[env]\nA = \"1\"",
        );
    }

    #[test]
    fn what_is_no_toml_is_left_alone() {
        assert_eq!(set_enabled("command = ", false), None);
        assert_eq!(set_enabled("enabled = true\nenabled = true\n", false), None);
    }

    proptest! {
        #[test]
        fn the_rest_means_what_it_meant(
            head in "(# c\n|\n| )?", value in "[a-z\"\\n]{0,8}", tail in "( # c|\n\n\\[env\\]\nA='1'|\r\n)?",
            had in any::<Option<bool>>(), enabled in any::<bool>(),
        ) {
            let value = quote(&value);
            let had = had.map(|had| format!("enabled = {had}\n")).unwrap_or_default();
            let text = format!("{head}{had}command = {value}{tail}");
            if let Ok(mut table) = text.parse::<toml::Table>() {
                let changed = set_enabled(&text, enabled).unwrap();
                table.insert("enabled".to_owned(), enabled.into());
                prop_assert_eq!(changed.parse::<toml::Table>().unwrap(), table);
            }
        }
    }
}
