//! Durations and sizes with their units: `90s`, `1m30s`, `500ms`, `64MiB`.
//!
//! It decides what a number with a unit means and refuses a number without one, since `90` has meant
//! seconds here and milliseconds there. It never guesses.

use std::time::Duration;

/// Longer is a slip of the hand, and would not fit into every timer.
const DURATION_LIMIT: Duration = Duration::from_secs(366 * 24 * 3600);

const SECOND_MS: u64 = 1_000;

const DURATION_UNITS: [(&str, u64); 6] = [
    ("ms", 1),
    ("s", SECOND_MS),
    ("m", 60 * SECOND_MS),
    ("min", 60 * SECOND_MS),
    ("h", 3_600 * SECOND_MS),
    ("d", 86_400 * SECOND_MS),
];

const SIZE_UNITS: [(&str, u64); 10] = [
    ("B", 1),
    ("kB", 1_000),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("K", 1 << 10),
    ("M", 1 << 20),
];

/// Why a text is no duration or no size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UnitError {
    #[error("is empty")]
    Empty,
    #[error("does not begin with a number")]
    NoNumber,
    #[error("has no unit")]
    NoUnit,
    #[error("has the unknown unit `{0}`")]
    UnknownUnit(String),
    #[error("is too large")]
    TooLarge,
}

/// One or more numbers with units, such as `90s` or `1m30s`, in whole milliseconds.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    let mut total_ms: u64 = 0;
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(UnitError::Empty);
    }
    while !rest.is_empty() {
        let (amount, unit_len) = parse_amount(rest, &DURATION_UNITS)?;
        total_ms = total_ms.checked_add(amount).ok_or(UnitError::TooLarge)?;
        rest = rest[unit_len..].trim_start();
    }
    let duration = Duration::from_millis(total_ms);
    if duration > DURATION_LIMIT {
        Err(UnitError::TooLarge)
    } else {
        Ok(duration)
    }
}

/// A duration as it would be written: in seconds up to five minutes, where it is whole ones.
pub(super) fn render_duration(duration: Duration) -> String {
    let ms = duration.as_millis();
    match (ms % 1_000, ms / 1_000) {
        (0, seconds) if seconds > 0 && seconds % 3_600 == 0 => format!("{}h", seconds / 3_600),
        (0, seconds) if seconds > 300 && seconds % 60 == 0 => format!("{}m", seconds / 60),
        (0, seconds) => format!("{seconds}s"),
        _ => format!("{ms}ms"),
    }
}

/// A size as it would be written, in the largest unit of which it is whole ones.
pub(super) fn render_size(bytes: u64) -> String {
    let units = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    let whole = |(_, size): &(&str, u64)| bytes > 0 && bytes.is_multiple_of(*size);
    let (unit, size) = units.into_iter().find(whole).unwrap_or(("B", 1));
    format!("{}{unit}", bytes / size)
}

/// One number with a unit, in bytes.
pub(super) fn parse_size(text: &str) -> Result<u64, UnitError> {
    let text = text.trim();
    if text.is_empty() {
        return Err(UnitError::Empty);
    }
    let (amount, len) = parse_amount(text, &SIZE_UNITS)?;
    match text[len..].trim() {
        "" => Ok(amount),
        rest => Err(UnitError::UnknownUnit(rest.to_owned())),
    }
}

/// The number and unit at the start of `text`, and their length in bytes.
fn parse_amount(text: &str, units: &[(&str, u64)]) -> Result<(u64, usize), UnitError> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    if digits == 0 {
        return Err(UnitError::NoNumber);
    }
    let number: u64 = text[..digits].parse().map_err(|_| UnitError::TooLarge)?;
    let after = &text[digits..];
    let blanks = after.len() - after.trim_start().len();
    let after = after.trim_start();
    let unit: String = after
        .chars()
        .take_while(|character| character.is_alphabetic())
        .collect();
    if unit.is_empty() {
        let rest: String = after
            .chars()
            .take_while(|character| !character.is_whitespace())
            .collect();
        return Err(if rest.is_empty() {
            UnitError::NoUnit
        } else {
            UnitError::UnknownUnit(rest)
        });
    }
    let Some((_, factor)) = units.iter().find(|(name, _)| *name == unit) else {
        return Err(UnitError::UnknownUnit(unit));
    };
    let amount = number.checked_mul(*factor).ok_or(UnitError::TooLarge)?;
    Ok((amount, digits + blanks + unit.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check_duration(text: &str, expected_ms: Result<u64, &str>) {
        let got = parse_duration(text).map_err(|error| error.to_string());
        assert_eq!(
            got,
            expected_ms
                .map(Duration::from_millis)
                .map_err(str::to_owned),
            "{text}"
        );
    }

    #[track_caller]
    fn check_size(text: &str, expected: Result<u64, &str>) {
        let got = parse_size(text).map_err(|error| error.to_string());
        assert_eq!(got, expected.map_err(str::to_owned), "{text}");
    }

    #[test]
    fn durations_carry_units() {
        check_duration("90s", Ok(90_000));
        check_duration("2m", Ok(120_000));
        check_duration("2min", Ok(120_000));
        check_duration("500ms", Ok(500));
        check_duration("1m 30s", Ok(90_000));
        check_duration("1h2m3s4ms", Ok(3_723_004));
        check_duration("0s", Ok(0));
        check_duration(" 5 s ", Ok(5_000));
        check_duration("90", Err("has no unit"));
        check_duration("", Err("is empty"));
        check_duration("s", Err("does not begin with a number"));
        check_duration("-1s", Err("does not begin with a number"));
        check_duration("1.5s", Err("has the unknown unit `.5s`"));
        check_duration("5 sec", Err("has the unknown unit `sec`"));
        check_duration("367d", Err("is too large"));
        check_duration("99999999999999999999s", Err("is too large"));
    }

    #[test]
    fn sizes_carry_units() {
        check_size("64MiB", Ok(64 << 20));
        check_size("1 GiB", Ok(1 << 30));
        check_size("10MB", Ok(10_000_000));
        check_size("512B", Ok(512));
        check_size("64M", Ok(64 << 20));
        check_size("64", Err("has no unit"));
        check_size("64mib", Err("has the unknown unit `mib`"));
        check_size("1MiB2", Err("has the unknown unit `2`"));
        check_size("99999999999GiB", Err("is too large"));
    }

    proptest! {
        #[test]
        fn any_text_is_answered(text in ".*") {
            let duration = parse_duration(&text);
            prop_assert!(duration.is_err() || duration.unwrap() <= DURATION_LIMIT);
            prop_assert!(parse_size(&text).is_err() || text.trim().starts_with(|c: char| c.is_ascii_digit()));
        }
    }
}
