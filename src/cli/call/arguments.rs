//! Words such as `key=value` to the arguments of a tool.
//!
//! Decides the JSON type of each value from the tool's input schema; what the schema leaves open
//! is JSON if it can be read as such, else a string. Numbers keep the spelling they were given.
//! Never checks what a server will check itself. Files are read by whoever calls.

use serde_json::Value;
use serde_json::value::RawValue;

use crate::cli::error::CliError;
use crate::cli::json_schema::{Schema, Types};

/// A schema that says nothing.
static NOTHING: Value = Value::Null;
/// How deep `a.b.c` may go.
const DEPTH: usize = 16;

/// An argument on its way to JSON.
#[derive(Debug)]
enum Node {
    /// A JSON value, as it is to be spelled.
    Value(String),
    Object(Vec<(String, Self)>),
    /// Elements that were given one by one.
    List(Vec<String>),
}

/// The arguments that `words` spell, as a JSON object. `schema` is the tool's input schema; `read`
/// gives the text of a file.
pub(crate) fn parse_arguments(
    words: &[String],
    schema: &Value,
    read: impl Fn(&str) -> Result<String, CliError>,
) -> Result<String, CliError> {
    let schema = Schema::of(schema);
    let mut members = Vec::new();
    for word in words {
        let Some((key, value)) = word.split_once('=').filter(|(key, _)| !key.is_empty()) else {
            return Err(
                CliError::usage(format!("the argument {word:?} is not key=value"))
                    .hint("for arguments as one JSON object use --json '{…}'"),
            );
        };
        let (key, is_json) = match key.strip_suffix(':').filter(|key| !key.is_empty()) {
            Some(bare) if schema.property(key).is_none() => (bare, true),
            _ => (key, false),
        };
        let value = match value.strip_prefix('@') {
            Some(path) => read(path)?,
            None => value.to_owned(),
        };
        put(&mut members, schema, key, key, &value, is_json)?;
    }
    Ok(render(&members))
}

/// Puts one value where `path` says. The rest of `key` names a member of an object, unless the
/// whole of it is the name of a member.
fn put(
    members: &mut Vec<(String, Node)>,
    schema: Schema<'_>,
    key: &str,
    path: &str,
    value: &str,
    is_json: bool,
) -> Result<(), CliError> {
    let is_known = schema.property(path).is_some();
    let has_properties = schema.properties().next().is_some();
    let split = path.split_once('.').filter(|(first, rest)| {
        let may_hold = schema.property(first).map(|inner| inner.types());
        let may_hold = may_hold.map_or(!has_properties, |types| types.object || types.is_unknown());
        !is_known && may_hold && !first.is_empty() && !rest.is_empty()
    });
    let twice = || CliError::usage(format!("the argument {key:?} is given twice"));
    if let Some((first, rest)) = split {
        if key.split('.').count() > DEPTH {
            return Err(CliError::usage(format!(
                "the argument {key:?} goes too deep"
            )));
        }
        let inner = schema.property(first).unwrap_or(Schema::of(&NOTHING));
        let at = members.iter().position(|(name, _)| name == first);
        let at = at.unwrap_or_else(|| {
            members.push((first.to_owned(), Node::Object(Vec::new())));
            members.len() - 1
        });
        return match &mut members[at].1 {
            Node::Object(inside) => put(inside, inner, key, rest, value, is_json),
            Node::Value(_) | Node::List(_) => Err(twice()),
        };
    }
    let property = schema.property(path);
    let at = members.iter().position(|(name, _)| name == path);
    if let Some(array) = property.filter(|_| !is_json && is_element(property, value)) {
        let element = parse_value(
            key,
            value,
            array.items().map_or_else(Types::default, Schema::types),
        )?;
        match at.map(|at| &mut members[at].1) {
            Some(Node::List(list)) => list.push(element),
            Some(_) => return Err(twice()),
            None => members.push((path.to_owned(), Node::List(vec![element]))),
        }
        return Ok(());
    }
    if at.is_some() {
        return Err(twice());
    }
    let value = match is_json {
        true => parse_json(key, value)?,
        false => parse_value(
            key,
            value,
            property.map_or_else(Types::default, Schema::types),
        )?,
    };
    members.push((path.to_owned(), Node::Value(value)));
    Ok(())
}

/// Whether a value is one element of the list that is wanted, and not the whole of it.
fn is_element(property: Option<Schema<'_>>, value: &str) -> bool {
    let Some(types) = property.map(Schema::types) else {
        return false;
    };
    let is_whole = value.trim_start().starts_with('[') || (value == "null" && types.null);
    types.array && !types.text && !is_whole
}

fn render(members: &[(String, Node)]) -> String {
    let members = members.iter().map(|(name, node)| {
        let value = match node {
            Node::Value(value) => value.clone(),
            Node::Object(members) => render(members),
            Node::List(elements) => format!("[{}]", elements.join(",")),
        };
        format!("{}:{value}", Value::from(name.as_str()))
    });
    format!("{{{}}}", members.collect::<Vec<_>>().join(","))
}

/// `text` if it is a JSON object.
pub(crate) fn parse_object(text: &str, from: &str) -> Result<String, CliError> {
    let raw: &RawValue = serde_json::from_str(text)
        .map_err(|error| CliError::usage(format!("{from} is not JSON")).because(error))?;
    if !raw.get().starts_with('{') {
        return Err(CliError::usage(format!("{from} is not a JSON object")));
    }
    Ok(one_line(raw.get()))
}

/// Between tokens line ends mean nothing, and within strings JSON allows none.
fn one_line(json: &str) -> String {
    json.replace(['\n', '\r'], " ")
}

fn parse_json(key: &str, value: &str) -> Result<String, CliError> {
    let raw: &RawValue = serde_json::from_str(value).map_err(|error| {
        CliError::usage(format!("the argument {key:?} must be JSON, not {value:?}")).because(error)
    })?;
    Ok(one_line(raw.get()))
}

fn parse_value(key: &str, value: &str, types: Types) -> Result<String, CliError> {
    let text = || Value::from(value).to_string();
    let raw = serde_json::from_str::<&RawValue>(value).ok();
    let json = raw.map(|raw| one_line(raw.get()));
    if types.is_unknown() {
        return Ok(json.unwrap_or_else(text));
    }
    let first = json.as_ref().and_then(|json| json.bytes().next());
    let is_number = first.is_some_and(|byte| byte == b'-' || byte.is_ascii_digit());
    let fits = match first {
        Some(b'n') => types.null,
        Some(b't' | b'f') => types.boolean,
        Some(b'[') => types.array,
        Some(b'{') => types.object,
        Some(_) if is_number => types.number || (types.integer && is_whole(value)),
        _ => false,
    };
    match json {
        Some(json) if fits => Ok(json),
        _ if types.text => Ok(text()),
        _ => Err(wrong_type(key, value, types)),
    }
}

fn wrong_type(key: &str, value: &str, types: Types) -> CliError {
    let mut wanted = Vec::new();
    for (is_one, words) in [
        (types.number, "a number"),
        (types.integer, "a whole number"),
        (types.boolean, "true or false"),
        (types.array || types.object, "JSON"),
        (types.null, "null"),
    ] {
        if is_one {
            wanted.push(words);
        }
    }
    let wanted = wanted.join(" or ");
    CliError::usage(format!(
        "the argument {key:?} must be {wanted}, not {value:?}"
    ))
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
            "t": {"type": "array", "items": {"type": "string"}}, "dotted.name": {"type": "string"},
            "in": {"type": "object", "properties": {"deep": {"type": "integer"}, "free": {}}},
            "i": {"type": "array", "items": {"type": "integer"}}, "odd:": {"type": "string"},
        }});
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let read = |path: &str| match path {
            "file" => Ok("from a file\n".to_owned()),
            _ => Err(CliError::usage(format!("no {path}"))),
        };
        match parse_arguments(&words, &schema, read) {
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
        check(
            &["n=[1]"],
            r#"the argument "n" must be a whole number, not "[1]""#,
        );
        check(
            &["i=a"],
            r#"the argument "i" must be a whole number, not "a""#,
        );
        check(&["a:=two"], r#"the argument "a" must be JSON, not "two""#);
    }

    #[test]
    fn elements_may_be_given_one_by_one() {
        check(&["t=a", "s=x", "t=2"], r#"{"t":["a","2"],"s":"x"}"#);
        check(&["i=1", "i=2"], r#"{"i":[1,2]}"#);
        check(&["t=[\"a\"]"], r#"{"t":["a"]}"#);
        check(&["t=[\"a\"]", "t=b"], r#"the argument "t" is given twice"#);
    }

    #[test]
    fn dots_lead_into_objects_unless_a_name_has_them() {
        check(
            &["in.deep=1", "in.free=x", "a=2"],
            r#"{"in":{"deep":1,"free":"x"},"a":2}"#,
        );
        check(&["dotted.name=1"], r#"{"dotted.name":"1"}"#);
        check(&["s.x=1"], r#"{"s.x":1}"#);
        check(
            &["in={}", "in.deep=1"],
            r#"the argument "in.deep" is given twice"#,
        );
        check(
            &["in.deep=a"],
            r#"the argument "in.deep" must be a whole number, not "a""#,
        );
    }

    #[test]
    fn json_and_files_can_be_given() {
        check(&["s:=null", "odd:=x"], r#"{"s":null,"odd:":"x"}"#);
        check(&["s=@file"], r#"{"s":"from a file\n"}"#);
        check(&["s:=\"@file\""], r#"{"s":"@file"}"#);
        check(&["s=@gone"], "no gone");
    }

    #[test]
    fn words_must_be_pairs_and_keys_unique() {
        check(&["a"], r#"the argument "a" is not key=value"#);
        check(&["=1"], r#"the argument "=1" is not key=value"#);
        check(&["a=1", "a=2"], r#"the argument "a" is given twice"#);
    }

    #[test]
    fn arguments_in_one_piece_must_be_an_object() {
        assert_eq!(parse_object("{\"a\":\n1}", "it").unwrap(), "{\"a\": 1}");
        assert!(parse_object("[1]", "it").is_err());
        assert!(parse_object("{", "it").is_err());
    }
}
