//! The four operations and how their results are spelled.

/// The number of decimals a result is rounded to unless `CALC_PRECISION` says otherwise.
pub(super) const DEFAULT_PRECISION: usize = 10;
/// More decimals than a double can tell apart help nobody.
const PRECISION_LIMIT: usize = 15;
/// Beyond this a double has no decimals, and digits in full are hard to read.
const PLAIN_LIMIT: f64 = 1e15;

/// One of the four.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Add,
    Subtract,
    Multiply,
    Divide,
}

impl Operation {
    pub(super) const ALL: [Self; 4] = [Self::Add, Self::Subtract, Self::Multiply, Self::Divide];

    /// The name of the tool.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Subtract => "subtract",
            Self::Multiply => "multiply",
            Self::Divide => "divide",
        }
    }

    pub(super) const fn description(self) -> &'static str {
        match self {
            Self::Add => "Add two numbers: a + b",
            Self::Subtract => "Subtract one number from another: a - b",
            Self::Multiply => "Multiply two numbers: a * b",
            Self::Divide => "Divide one number by another: a / b",
        }
    }

    /// The result, or why there is none.
    pub(super) fn apply(self, a: f64, b: f64) -> Result<f64, &'static str> {
        let result = match self {
            Self::Add => a + b,
            Self::Subtract => a - b,
            Self::Multiply => a * b,
            Self::Divide if b == 0.0 => return Err("cannot divide by zero"),
            Self::Divide => a / b,
        };
        if result.is_finite() {
            Ok(result)
        } else {
            Err("the result is too large")
        }
    }
}

/// `CALC_PRECISION` as a number of decimals, or `None` if it is not one.
pub(super) fn parse_precision(text: &str) -> Option<usize> {
    let decimals: usize = text.trim().parse().ok()?;
    (decimals <= PRECISION_LIMIT).then_some(decimals)
}

/// A number that is also valid JSON: `5`, `0.3`, `1e20`.
pub(super) fn render_number(value: f64, precision: usize) -> String {
    if value.abs() >= PLAIN_LIMIT {
        return format!("{value:e}");
    }
    let fixed = format!("{value:.precision$}");
    let short = match fixed.contains('.') {
        true => fixed.trim_end_matches('0').trim_end_matches('.'),
        false => &fixed,
    };
    match short {
        // A negative number that was rounded away.
        "-0" => "0".to_owned(),
        short => short.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(operation: Operation, a: f64, b: f64, expected: &str) {
        let text = match operation.apply(a, b) {
            Ok(value) => render_number(value, DEFAULT_PRECISION),
            Err(why) => why.to_owned(),
        };
        assert_eq!(text, expected);
    }

    #[test]
    fn results_are_spelled_as_people_do() {
        check(Operation::Add, 2.0, 3.0, "5");
        check(Operation::Add, 0.1, 0.2, "0.3");
        check(Operation::Subtract, 2.0, 3.5, "-1.5");
        check(Operation::Multiply, -0.0, 5.0, "0");
        check(Operation::Multiply, 1e10, 1e10, "1e20");
        check(Operation::Divide, 1.0, 3.0, "0.3333333333");
        check(Operation::Divide, 100.0, 1.0, "100");
    }

    #[test]
    fn what_has_no_result_says_why() {
        check(Operation::Divide, 1.0, 0.0, "cannot divide by zero");
        check(Operation::Divide, 0.0, -0.0, "cannot divide by zero");
        check(Operation::Multiply, 1e300, 1e300, "the result is too large");
    }

    #[test]
    fn the_precision_is_a_small_number() {
        assert_eq!(parse_precision(" 2 "), Some(2));
        assert_eq!(parse_precision("0"), Some(0));
        for text in ["", "-1", "99", "two"] {
            assert_eq!(parse_precision(text), None, "{text}");
        }
        assert_eq!(render_number(2.0 / 3.0, 2), "0.67");
        assert_eq!(render_number(2.5, 0), "2");
    }
}
