//! `key=value` words to the arguments of a tool.
//!
//! Decides the JSON type of each value from the tool's input schema; what the schema leaves open
//! is JSON if it can be read as such, else a string. Numbers keep the spelling they were given.

use serde_json::Value;
use serde_json::value::RawValue;

use crate::cli::error::CliError;

/// What a schema says of one argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    Text,
    Number,
    Integer,
    Boolean,
    /// A list or an object.
    Json,
    /// Several types, or none that is known.
    Open,
}

/// The arguments that `words` spell, as a JSON object. `schema` is the tool's input schema.
pub(crate) fn parse_arguments(words: &[String], schema: &Value) -> Result<String, CliError> {
    let mut members = Vec::new();
    let mut seen: Vec<&str> = Vec::new();
    for word in words {
        let Some((key, value)) = word.split_once('=').filter(|(key, _)| !key.is_empty()) else {
            return Err(
                CliError::usage(format!("the argument {word:?} is not key=value"))
                    .hint("for arguments as one JSON object use --json '{…}'"),
            );
        };
        if seen.contains(&key) {
            return Err(CliError::usage(format!(
                "the argument {key:?} is given twice"
            )));
        }
        seen.push(key);
        let value = parse_value(key, value, expected(schema, key))?;
        members.push(format!("{}:{value}", Value::from(key)));
    }
    Ok(format!("{{{}}}", members.join(",")))
}

/// `text` if it is a JSON object.
pub(crate) fn parse_object(text: &str) -> Result<String, CliError> {
    let raw: &RawValue = serde_json::from_str(text)
        .map_err(|error| CliError::usage("the value of --json is not JSON").because(error))?;
    if !raw.get().starts_with('{') {
        return Err(CliError::usage("the value of --json is not a JSON object"));
    }
    Ok(one_line(raw.get()))
}

/// Between tokens line ends mean nothing, and within strings JSON allows none.
fn one_line(json: &str) -> String {
    json.replace(['\n', '\r'], " ")
}

fn expected(schema: &Value, key: &str) -> Expected {
    match schema["properties"][key]["type"].as_str() {
        Some("string") => Expected::Text,
        Some("number") => Expected::Number,
        Some("integer") => Expected::Integer,
        Some("boolean") => Expected::Boolean,
        Some("array" | "object") => Expected::Json,
        _ => Expected::Open,
    }
}

fn parse_value(key: &str, value: &str, expected: Expected) -> Result<String, CliError> {
    let text = || Value::from(value).to_string();
    let raw = serde_json::from_str::<&RawValue>(value).ok();
    let json = raw.map(|raw| one_line(raw.get()));
    let first = json.as_ref().and_then(|json| json.bytes().next());
    let is_number = first.is_some_and(|byte| byte == b'-' || byte.is_ascii_digit());
    let fits = match expected {
        Expected::Text => return Ok(text()),
        Expected::Open => return Ok(json.unwrap_or_else(text)),
        Expected::Number => is_number,
        Expected::Integer => is_number && is_whole(value),
        Expected::Boolean => matches!(value, "true" | "false"),
        Expected::Json => first.is_some_and(|byte| byte == b'[' || byte == b'{'),
    };
    json.filter(|_| fits).ok_or_else(|| {
        let wanted = match expected {
            Expected::Number => "a number",
            Expected::Integer => "a whole number",
            Expected::Boolean => "true or false",
            _ => "JSON",
        };
        CliError::usage(format!(
            "the argument {key:?} must be {wanted}, not {value:?}"
        ))
    })
}

/// Whether a JSON number is a whole one: `2`, `2.0` and `2e3` are (JSON Schema, integer).
fn is_whole(number: &str) -> bool {
    let plain = |text: &str| {
        text.trim()
            .trim_start_matches('-')
            .bytes()
            .all(|b| b.is_ascii_digit())
    };
    plain(number)
        || number
            .trim()
            .parse::<f64>()
            .is_ok_and(|value| value.fract() == 0.0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(words: &[&str], expected: &str) {
        let schema = json!({"properties": {
            "a": {"type": "number"}, "n": {"type": "integer"}, "s": {"type": "string"},
            "b": {"type": "boolean"}, "l": {"type": "array"}, "o": {"type": ["string", "null"]},
        }});
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        match parse_arguments(&words, &schema) {
            Ok(json) => assert_eq!(json, expected),
            Err(error) => assert_eq!(error.message, expected),
        }
    }

    #[test]
    fn the_schema_gives_the_type() {
        check(&["a=2", "s=2"], r#"{"a":2,"s":"2"}"#);
        check(&["a=9007199254740993.10"], r#"{"a":9007199254740993.10}"#);
        check(&["b=true", "l=[1, 2]"], r#"{"b":true,"l":[1, 2]}"#);
        check(&["n=1e3", "s=x=y"], r#"{"n":1e3,"s":"x=y"}"#);
        check(&["s="], r#"{"s":""}"#);
    }

    #[test]
    fn without_a_type_json_is_json_and_the_rest_is_text() {
        check(&["x=2", "y=two"], r#"{"x":2,"y":"two"}"#);
        check(&["x={\"k\":null}"], r#"{"x":{"k":null}}"#);
        check(&["o=null", "x=\"2\""], r#"{"o":null,"x":"2"}"#);
        check(&["x=a\"b\nc"], r#"{"x":"a\"b\nc"}"#);
    }

    #[test]
    fn a_value_of_another_type_is_refused_by_name() {
        check(
            &["a=two"],
            r#"the argument "a" must be a number, not "two""#,
        );
        check(
            &["n=1.5"],
            r#"the argument "n" must be a whole number, not "1.5""#,
        );
        check(
            &["b=yes"],
            r#"the argument "b" must be true or false, not "yes""#,
        );
        check(&["l=1"], r#"the argument "l" must be JSON, not "1""#);
    }

    #[test]
    fn words_must_be_pairs_and_keys_unique() {
        check(&["a"], r#"the argument "a" is not key=value"#);
        check(&["=1"], r#"the argument "=1" is not key=value"#);
        check(&["a=1", "a=2"], r#"the argument "a" is given twice"#);
    }

    #[test]
    fn arguments_in_one_piece_must_be_an_object() {
        assert_eq!(parse_object("{\"a\":\n1}").unwrap(), "{\"a\": 1}");
        assert!(parse_object("[1]").is_err());
        assert!(parse_object("{").is_err());
    }
}
