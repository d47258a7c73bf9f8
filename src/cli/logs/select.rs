//! Which lines of which logs are shown, and in which order. Pure.

use std::time::Duration;

use regex_lite::{Regex, RegexBuilder};

use crate::cli::error::CliError;
use crate::config::units::parse_duration;
use crate::time::render_wall;

/// Bytes of `2026-11-30T23:59:59.001Z`, as every line begins.
const TIME_BYTES: usize = 24;

/// What is asked of a line.
#[derive(Debug, Default)]
pub(super) struct Filter {
    /// Lines that are older are left out; a beginning of a time is enough.
    pub(super) since: Option<String>,
    pub(super) pattern: Option<Regex>,
}

impl Filter {
    /// Reads `--since`: how long ago, or a time as the log has it.
    pub(super) fn parse_since(text: &str, wall: Duration) -> Result<String, CliError> {
        if let Ok(ago) = parse_duration(text) {
            return Ok(render_wall(wall.saturating_sub(ago)));
        }
        let template = "0000-00-00T00:00:00.000Z";
        let text = text.trim().replacen(' ', "T", 1);
        let is_time = text.len() >= 4
            && text.len() <= template.len()
            && text
                .chars()
                .zip(template.chars())
                .all(|(c, form)| match form {
                    '0' => c.is_ascii_digit(),
                    form => c == form,
                });
        if is_time {
            return Ok(text);
        }
        Err(CliError::usage(format!("{text:?} is no time"))
            .hint("write how long ago (10m, 1h30m) or a time in UTC (2026-11-30T21:00)"))
    }

    /// Reads `--grep`: a regular expression, without regard to case as long as it has no capital.
    pub(super) fn parse_pattern(text: &str) -> Result<Regex, CliError> {
        RegexBuilder::new(text)
            .case_insensitive(!text.chars().any(char::is_uppercase))
            .build()
            .map_err(|error| {
                CliError::usage(format!("{text:?} is no regular expression")).because(error)
            })
    }

    fn keeps(&self, line: &Line<'_>) -> bool {
        let is_old = |since: &String| line.time < since.as_str();
        let matches = |pattern: &Regex| pattern.is_match(line.text);
        !self.since.as_ref().is_some_and(is_old) && self.pattern.as_ref().is_none_or(matches)
    }

    /// Whether `text` reaches back as far as lines are wanted.
    pub(super) fn reaches(&self, text: &[u8], count: Option<usize>) -> bool {
        let by_time = self.since.as_ref().is_some_and(|since| {
            let first = text.get(..TIME_BYTES.min(text.len())).unwrap_or_default();
            !first.is_empty() && first < since.as_bytes()
        });
        // With a pattern there is no telling how far back the last matches lie.
        let by_count = self.pattern.is_none()
            && count.is_some_and(|count| memchr::memchr_iter(b'\n', text).count() > count);
        by_time || by_count
    }
}

struct Line<'a> {
    /// Of the line itself, or of the last one that had one.
    time: &'a str,
    text: &'a str,
}

/// The lines of several logs that `filter` keeps, by time, the last `count` of them.
pub(super) fn merge(texts: &[String], filter: &Filter, count: Option<usize>) -> String {
    let mut lines: Vec<Line<'_>> = Vec::new();
    for text in texts {
        let mut time = "";
        for line in text.lines() {
            time = time_of(line).unwrap_or(time);
            let line = Line { time, text: line };
            if filter.keeps(&line) {
                lines.push(line);
            }
        }
    }
    // Lines of one log keep their order.
    lines.sort_by_key(|line| line.time);
    let skipped = count.map_or(0, |count| lines.len().saturating_sub(count));
    let mut merged = String::new();
    for line in &lines[skipped..] {
        merged.push_str(line.text);
        merged.push('\n');
    }
    merged
}

fn time_of(line: &str) -> Option<&str> {
    let time = line.get(..TIME_BYTES)?;
    (time.as_bytes()[10] == b'T' && time.ends_with('Z')).then_some(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str =
        "2026-11-30T10:00:00.000Z a stderr: one\n2026-11-30T10:00:02.000Z a stderr: Three\n";
    const B: &str = "2026-11-30T10:00:01.000Z b mcpd: two\nwithout a time\n";

    fn check(filter: &Filter, count: Option<usize>, expected: &[&str]) {
        let merged = merge(&[A.to_owned(), B.to_owned()], filter, count);
        let words: Vec<&str> = merged
            .lines()
            .filter_map(|line| line.rsplit(' ').next())
            .collect();
        assert_eq!(words, expected);
    }

    #[test]
    fn lines_of_several_logs_come_by_time() {
        check(&Filter::default(), None, &["one", "two", "time", "Three"]);
        check(&Filter::default(), Some(1), &["Three"]);
        check(&Filter::default(), Some(0), &[]);
    }

    #[test]
    fn lines_are_chosen_by_time_and_pattern() {
        let since = |since: &str| Filter {
            since: Some(Filter::parse_since(since, Duration::ZERO).unwrap()),
            ..Filter::default()
        };
        check(
            &since("2026-11-30 10:00:01"),
            None,
            &["two", "time", "Three"],
        );
        check(&since("2027"), None, &[]);
        let pattern = |pattern: &str| Filter {
            pattern: Some(Filter::parse_pattern(pattern).unwrap()),
            ..Filter::default()
        };
        check(&pattern("t(wo|hree)$"), None, &["two", "Three"]);
        check(&pattern("Three"), None, &["Three"]);
        check(&pattern("THREE"), None, &[]);
    }

    #[test]
    fn a_time_is_a_length_or_a_point() {
        let parse = |text| Filter::parse_since(text, Duration::from_secs(90));
        assert_eq!(parse("1m").unwrap(), "1970-01-01T00:00:30.000Z");
        assert_eq!(parse("2026-11").unwrap(), "2026-11");
        for wrong in ["", "soon", "12", "2026/11/30", "2026-11-30T10:00:00.000Zx"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert!(Filter::parse_pattern("(").is_err());
    }

    #[test]
    fn reading_goes_back_as_far_as_it_has_to() {
        let plain = Filter::default();
        assert!(!plain.reaches(A.as_bytes(), Some(2)));
        assert!(plain.reaches(A.as_bytes(), Some(1)));
        assert!(!plain.reaches(A.as_bytes(), None));
        let since = Filter {
            since: Some("2026-11-30T10:00:01".to_owned()),
            ..Filter::default()
        };
        assert!(since.reaches(A.as_bytes(), None));
        assert!(!since.reaches(b"", None));
    }
}
