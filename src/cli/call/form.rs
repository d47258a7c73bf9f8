//! The fields of a form that a server asks to be filled in (MCP, elicitation).
//!
//! Decides what is asked of each and whether an answer will do. Pure: a line goes in, a value or a
//! complaint comes out.

use std::fmt::Write as _;

use serde_json::{Map, Number, Value};

use crate::cli::escape::escape;
use crate::cli::json_schema::Schema;

/// One field.
#[derive(Debug)]
pub(super) struct Field {
    name: String,
    title: String,
    description: Option<String>,
    is_required: bool,
    default: Option<Value>,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Text {
        format: Option<String>,
        min: Option<u64>,
        max: Option<u64>,
    },
    Number {
        is_whole: bool,
        min: Option<f64>,
        max: Option<f64>,
    },
    Boolean,
    /// One of these values, each with what it is called.
    One(Vec<Choice>),
    /// Any of them.
    Several {
        choices: Vec<Choice>,
        min: Option<u64>,
        max: Option<u64>,
    },
}

#[derive(Debug)]
struct Choice {
    value: String,
    title: String,
}

/// The fields of a form, in its order.
pub(super) fn fields(schema: &Value) -> Vec<Field> {
    let schema = Schema::of(schema);
    schema
        .properties()
        .map(|(name, property)| Field {
            name: name.to_owned(),
            title: property.text("title").unwrap_or(name).to_owned(),
            description: property.text("description").map(str::to_owned),
            is_required: schema.requires(name),
            default: Some(property.keyword("default").clone()).filter(|value| !value.is_null()),
            kind: kind(property),
        })
        .collect()
}

fn kind(property: Schema<'_>) -> Kind {
    let types = property.types();
    let count = |name| property.keyword(name).as_u64();
    if types.array {
        return Kind::Several {
            choices: property.items().map_or_else(Vec::new, choices),
            min: count("minItems"),
            max: count("maxItems"),
        };
    }
    if types.boolean {
        return Kind::Boolean;
    }
    if types.number || types.integer {
        return Kind::Number {
            is_whole: !types.number,
            min: property.keyword("minimum").as_f64(),
            max: property.keyword("maximum").as_f64(),
        };
    }
    let choices = choices(property);
    if !choices.is_empty() {
        return Kind::One(choices);
    }
    Kind::Text {
        format: property.text("format").map(str::to_owned),
        min: count("minLength"),
        max: count("maxLength"),
    }
}

/// `enum` with or without `enumNames`, or titled constants.
fn choices(property: Schema<'_>) -> Vec<Choice> {
    if let Some(values) = property.keyword("enum").as_array() {
        let titles = property.keyword("enumNames");
        let values = values.iter().enumerate();
        return values
            .filter_map(|(at, value)| {
                let value = value.as_str()?.to_owned();
                let title = titles[at].as_str().unwrap_or(&value).to_owned();
                Some(Choice { value, title })
            })
            .collect();
    }
    let constants = property.choices().filter_map(|choice| {
        let value = choice.keyword("const").as_str()?.to_owned();
        let title = choice.text("title").unwrap_or(&value).to_owned();
        Some(Choice { value, title })
    });
    constants.collect()
}

impl Field {
    /// What is shown above the prompt: the description and the choices.
    pub(super) fn explanation(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        if let Some(description) = &self.description {
            _ = writeln!(text, "  {}", escape(description));
        }
        if let Kind::One(choices) | Kind::Several { choices, .. } = &self.kind {
            for (at, choice) in choices.iter().enumerate() {
                _ = writeln!(text, "  {}) {}", at + 1, escape(&choice.title));
            }
        }
        text
    }

    /// `Your name (required): `
    pub(super) fn prompt(&self) -> String {
        let mut notes = Vec::new();
        match &self.kind {
            Kind::Boolean => notes.push("y or n".to_owned()),
            Kind::Number { is_whole: true, .. } => notes.push("whole number".to_owned()),
            Kind::Number { .. } => notes.push("number".to_owned()),
            Kind::Text {
                format: Some(format),
                ..
            } => notes.push(escape(format)),
            Kind::Several { .. } => notes.push("several, with commas".to_owned()),
            Kind::Text { .. } | Kind::One(_) => {}
        }
        match &self.default {
            Some(Value::String(text)) => notes.push(format!("default {}", escape(text))),
            Some(Value::Bool(yes)) => {
                notes.push(format!("default {}", if *yes { "y" } else { "n" }));
            }
            Some(other) => notes.push(format!("default {}", escape(&other.to_string()))),
            None if self.is_required => notes.push("required".to_owned()),
            None => {}
        }
        let title = escape(&self.title);
        match notes.is_empty() {
            true => format!("{title}: "),
            false => format!("{title} ({}): ", notes.join(", ")),
        }
    }

    /// Reads an answer into the form's content, or says what is wrong with it.
    pub(super) fn read(&self, line: &str, content: &mut Map<String, Value>) -> Result<(), String> {
        let line = line.trim_end_matches(['\n', '\r']);
        if line.trim().is_empty() {
            return match (&self.default, self.is_required) {
                (Some(default), _) => {
                    content.insert(self.name.clone(), default.clone());
                    Ok(())
                }
                (None, false) => Ok(()),
                (None, true) => Err("an answer is needed here".to_owned()),
            };
        }
        content.insert(self.name.clone(), self.value(line)?);
        Ok(())
    }

    fn value(&self, line: &str) -> Result<Value, String> {
        let word = line.trim();
        match &self.kind {
            Kind::Text { format, min, max } => read_text(line, format.as_deref(), *min, *max),
            Kind::Number { is_whole, min, max } => read_number(word, *is_whole, *min, *max),
            Kind::Boolean => match word.to_ascii_lowercase().as_str() {
                "y" | "yes" | "true" => Ok(Value::Bool(true)),
                "n" | "no" | "false" => Ok(Value::Bool(false)),
                _ => Err("y or n".to_owned()),
            },
            Kind::One(choices) => chosen(choices, word).map(Value::from),
            Kind::Several { choices, min, max } => {
                let words = word
                    .split(',')
                    .map(str::trim)
                    .filter(|word| !word.is_empty());
                let values = words.map(|word| chosen(choices, word));
                let values: Vec<String> = values.collect::<Result<_, _>>()?;
                check_count(values.len(), *min, *max, "choices")?;
                Ok(values.into())
            }
        }
    }
}

fn read_text(
    line: &str,
    format: Option<&str>,
    min: Option<u64>,
    max: Option<u64>,
) -> Result<Value, String> {
    check_count(line.chars().count(), min, max, "characters")?;
    let fits = match format {
        Some("email") => line
            .split_once('@')
            .is_some_and(|(name, host)| !name.is_empty() && !host.is_empty()),
        Some("uri") => line.split_once(':').is_some_and(|(scheme, rest)| {
            scheme.starts_with(|c: char| c.is_ascii_alphabetic()) && !rest.is_empty()
        }),
        Some("date") => is_date(line),
        Some("date-time") => line.split_once(['T', 't']).is_some_and(|(date, time)| {
            is_date(date) && time.len() >= 8 && time.as_bytes()[2] == b':'
        }),
        _ => true,
    };
    match (fits, format) {
        (true, _) | (_, None) => Ok(line.into()),
        (false, Some("date")) => Err("a date such as 2026-11-30".to_owned()),
        (false, Some("date-time")) => Err("a time such as 2026-11-30T21:40:00Z".to_owned()),
        (false, Some(format)) => Err(format!("this is no {format}")),
    }
}

fn is_date(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let is_number =
        |part: &&str, len| part.len() == len && part.bytes().all(|b| b.is_ascii_digit());
    matches!(&parts[..], [year, month, day]
        if is_number(year, 4) && is_number(month, 2) && is_number(day, 2))
}

fn read_number(
    word: &str,
    is_whole: bool,
    min: Option<f64>,
    max: Option<f64>,
) -> Result<Value, String> {
    let number: Number = serde_json::from_str(word).map_err(|_| "a number".to_owned())?;
    let value = number.as_f64().unwrap_or(f64::NAN);
    if is_whole && value.fract() != 0.0 {
        return Err("a whole number".to_owned());
    }
    match (min, max) {
        (Some(min), _) if value < min => Err(format!("at least {min}")),
        (_, Some(max)) if value > max => Err(format!("at most {max}")),
        _ => Ok(Value::Number(number)),
    }
}

fn check_count(count: usize, min: Option<u64>, max: Option<u64>, of: &str) -> Result<(), String> {
    let count = count as u64;
    match (min, max) {
        (Some(min), _) if count < min => Err(format!("at least {min} {of}")),
        (_, Some(max)) if count > max => Err(format!("at most {max} {of}")),
        _ => Ok(()),
    }
}

/// The choice with this number, value or title.
fn chosen(choices: &[Choice], word: &str) -> Result<String, String> {
    let by_word = choices
        .iter()
        .find(|choice| choice.value == word || choice.title == word);
    let by_number = || {
        let number: usize = word.parse().ok()?;
        choices.get(number.checked_sub(1)?)
    };
    match by_word.or_else(by_number) {
        Some(choice) => Ok(choice.value.clone()),
        None if choices.is_empty() => Ok(word.to_owned()),
        None => Err(format!("one of 1 to {}", choices.len())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// What a form with this one field makes of an answer.
    #[track_caller]
    fn check(property: Value, line: &str, expected: &Value) {
        let schema = json!({"properties": {"f": property}, "required": ["f"]});
        let fields = fields(&schema);
        let mut content = Map::new();
        match fields[0].read(line, &mut content) {
            Ok(()) => assert_eq!(&content["f"], expected),
            Err(complaint) => assert_eq!(&Value::from(complaint), expected),
        }
    }

    #[test]
    fn texts_and_their_limits() {
        let text = json!({"type": "string", "minLength": 2, "maxLength": 3});
        check(text.clone(), "ab\n", &json!("ab"));
        check(text.clone(), "a\n", &json!("at least 2 characters"));
        check(text.clone(), "abcd\n", &json!("at most 3 characters"));
        check(text, "\n", &json!("an answer is needed here"));
        let email = json!({"type": "string", "format": "email"});
        check(email.clone(), "a@b\n", &json!("a@b"));
        check(email, "a\n", &json!("this is no email"));
        check(
            json!({"type": "string", "format": "date"}),
            "1.2.3",
            &json!("a date such as 2026-11-30"),
        );
    }

    #[test]
    fn numbers_and_yes_or_no() {
        let number = json!({"type": "integer", "minimum": 1, "maximum": 9});
        check(number.clone(), "3\n", &json!(3));
        check(number.clone(), "1.5\n", &json!("a whole number"));
        check(number.clone(), "0\n", &json!("at least 1"));
        check(number.clone(), "10\n", &json!("at most 9"));
        check(number, "x\n", &json!("a number"));
        check(json!({"type": "boolean"}), "Yes\n", &json!(true));
        check(json!({"type": "boolean"}), "maybe\n", &json!("y or n"));
        check(
            json!({"type": "boolean", "default": false}),
            "\n",
            &json!(false),
        );
    }

    #[test]
    fn choices_by_number_value_or_title() {
        let one = json!({"type": "string", "enum": ["r", "g"], "enumNames": ["Red", "Green"]});
        check(one.clone(), "2\n", &json!("g"));
        check(one.clone(), "Red\n", &json!("r"));
        check(one, "3\n", &json!("one of 1 to 2"));
        let titled = json!({"type": "string", "oneOf": [{"const": "r", "title": "Red"}]});
        check(titled, "1\n", &json!("r"));
        let several = json!({"type": "array", "maxItems": 2, "items": {"type": "string", "enum": ["a", "b", "c"]}});
        check(several.clone(), "1, c\n", &json!(["a", "c"]));
        check(several, "1,2,3\n", &json!("at most 2 choices"));
    }

    #[test]
    fn prompts_say_what_is_wanted() {
        let schema = json!({"required": ["name"], "properties": {
            "name": {"type": "string", "title": "Your name", "description": "As on\u{1b}paper"},
            "color": {"type": "string", "enum": ["red"], "default": "red"},
            "age": {"type": "integer"},
        }});
        let fields = fields(&schema);
        let prompts: Vec<String> = fields.iter().map(Field::prompt).collect();
        assert_eq!(
            prompts,
            [
                "Your name (required): ",
                "color (default red): ",
                "age (whole number): "
            ]
        );
        assert_eq!(fields[0].explanation(), "  As on\\epaper\n");
        assert_eq!(fields[1].explanation(), "  1) red\n");
        let mut content = Map::new();
        assert!(fields[2].read("\n", &mut content).is_ok() && content.is_empty());
    }
}
