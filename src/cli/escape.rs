//! Text of servers and hosts made safe for a terminal.
//!
//! What a server writes may hold control sequences that move the cursor, change the title or hide
//! text. They are shown, not obeyed.

use std::fmt::Write as _;

/// `text` on one line: every control character is written as an escape.
pub(crate) fn escape(text: &str) -> String {
    escape_but(text, |_| false)
}

/// As [`escape`], but line ends and tabs stay.
pub(crate) fn escape_lines(text: &str) -> String {
    escape_but(text, |c| matches!(c, '\n' | '\t'))
}

fn escape_but(text: &str, stays: impl Fn(char) -> bool) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            c if stays(c) => safe.push(c),
            '\n' => safe.push_str("\\n"),
            '\r' => safe.push_str("\\r"),
            '\t' => safe.push_str("\\t"),
            '\u{1b}' => safe.push_str("\\e"),
            // Writing to a string cannot fail.
            c if is_hidden(c) => _ = write!(safe, "\\u{{{:x}}}", u32::from(c)),
            c => safe.push(c),
        }
    }
    safe
}

/// Control characters, and those that reorder or hide what surrounds them.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, line: &str) {
        assert_eq!(escape(text), line);
    }

    #[test]
    fn control_bytes_are_shown_not_obeyed() {
        check("\u{1b}[31mred\u{1b}[0m\r\n", "\\e[31mred\\e[0m\\r\\n");
        check("a\u{9b}b\u{7}\u{202e}c", "a\\u{9b}b\\u{7}\\u{202e}c");
        check("grün ✓", "grün ✓");
    }

    #[test]
    fn lines_stay_lines() {
        assert_eq!(escape_lines("a\tb\n\u{7}c"), "a\tb\n\\u{7}c");
    }
}
