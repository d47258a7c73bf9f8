//! JSON with comments, edited in place.
//!
//! What a whole entry was before is put back as text; members are changed in a syntax tree that keeps
//! all blanks and comments. Of members with one name the last counts, as in every host.

use jsonc_parser::ast::{Object, ObjectProp, Value as AstValue};
use jsonc_parser::common::Ranged;
use jsonc_parser::cst::{CstInputValue, CstObject, CstObjectProp, CstRootNode};
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};
use serde_json::{Map, Value};

use super::Members;

/// Deeper files are nobody's configuration, and a recursive parser must end somewhere.
const DEPTH_LIMIT: usize = 256;

/// What editors accept in their files, and nothing more.
fn options() -> ParseOptions {
    ParseOptions {
        allow_comments: true,
        allow_trailing_commas: true,
        allow_loose_object_property_names: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    }
}

pub(super) fn parse(text: &str) -> Result<Value, String> {
    check_depth(text)?;
    let tree = CstRootNode::parse(text, &options()).map_err(|error| error.to_string())?;
    // An empty file is a file without entries.
    let value = tree.to_serde_value();
    Ok(value.unwrap_or_else(|| Value::Object(Map::new())))
}

/// Refuses what would be too deep for the parsers, which call themselves for each level.
fn check_depth(text: &str) -> Result<(), String> {
    let mut depth = 0_usize;
    let mut rest = text.as_bytes();
    while let [byte, after @ ..] = rest {
        rest = match (byte, after) {
            (b'"', _) => skip_string(after),
            (b'/', [b'/', ..]) => skip_past(after, b"\n"),
            (b'/', [b'*', comment @ ..]) => skip_past(comment, b"*/"),
            _ => after,
        };
        match byte {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > DEPTH_LIMIT {
            return Err(format!("is nested deeper than {DEPTH_LIMIT} levels"));
        }
    }
    Ok(())
}

fn skip_string(mut rest: &[u8]) -> &[u8] {
    loop {
        rest = match rest {
            [] => return rest,
            [b'"', after @ ..] => return after,
            [b'\\', _, after @ ..] | [_, after @ ..] => after,
        };
    }
}

fn skip_past<'t>(rest: &'t [u8], end: &[u8]) -> &'t [u8] {
    let at = memchr::memmem::find(rest, end);
    at.map_or(&[], |at| &rest[at + end.len()..])
}

pub(super) fn entry_text(text: &str, path: &[String]) -> Option<String> {
    let range = value_range(text, path)?;
    Some(text[range].to_owned())
}

pub(super) fn replace_entry(text: &str, path: &[String], before: &str) -> Option<String> {
    let range = value_range(text, path)?;
    Some(format!(
        "{}{before}{}",
        &text[..range.start],
        &text[range.end..]
    ))
}

/// Where the value at `path` stands.
fn value_range(text: &str, path: &[String]) -> Option<std::ops::Range<usize>> {
    check_depth(text).ok()?;
    let parsed = parse_to_ast(text, &CollectOptions::default(), &options()).ok()?;
    let mut value = parsed.value?;
    for key in path {
        let AstValue::Object(object) = value else {
            return None;
        };
        value = last_property(object, key)?.value;
    }
    let range = value.range();
    Some(range.start..range.end)
}

fn last_property<'a>(object: Object<'a>, key: &str) -> Option<ObjectProp<'a>> {
    let mut properties = object.properties.into_iter().rev();
    properties.find(|one| one.name.as_str() == key)
}

pub(super) fn set_members(text: &str, path: &[String], members: &Members<'_>) -> Option<String> {
    let range = value_range(text, path)?;
    if let Some(line) = set_on_one_line(&text[range.clone()], members) {
        return Some(format!(
            "{}{line}{}",
            &text[..range.start],
            &text[range.end..]
        ));
    }
    let root = tree(text)?;
    let entry = object_at(root.object_value()?, path)?;
    let mut last = None;
    for (name, value) in members {
        let property = last_named(&entry, name);
        match (property, value) {
            (Some(property), Some(value)) => {
                if property
                    .value()
                    .and_then(|old| old.to_serde_value())
                    .as_ref()
                    != Some(value)
                {
                    property.set_value(input(value));
                }
                last = Some(property);
            }
            (None, Some(value)) => {
                // Where a person would look for it: after the member before it.
                let index = last.map_or(0, |last: CstObjectProp| last.property_index() + 1);
                last = Some(entry.insert(index, name, input(value)));
            }
            (Some(_), None) => {
                for property in named(&entry, name) {
                    property.remove();
                }
            }
            (None, None) => {}
        }
    }
    Some(root.to_string())
}

/// An entry that stands on one line without a comment stays so; the syntax tree would spread it.
fn set_on_one_line(entry: &str, members: &Members<'_>) -> Option<String> {
    if entry.contains(['\n', '\r']) {
        return None;
    }
    // No comment and no comma at the end.
    let mut table: Map<String, Value> = serde_json::from_str(entry).ok()?;
    let mut place = 0;
    for (name, value) in members {
        let at = table.keys().position(|key| key == name);
        match (at, value) {
            (Some(at), Some(value)) => {
                table.insert((*name).to_owned(), value.clone());
                place = at + 1;
            }
            (None, Some(value)) => {
                table.shift_insert(place, (*name).to_owned(), value.clone());
                place += 1;
            }
            (_, None) => _ = table.shift_remove(*name),
        }
    }
    let blank = |is_there: bool| if is_there { " " } else { "" };
    let colon = format!(":{}", blank(entry.contains("\": ")));
    let comma = format!(",{}", blank(entry.contains(", ") || !entry.contains(',')));
    let edge = blank(entry.starts_with("{ "));
    let line = render_line(&Value::Object(table), &colon, &comma, edge);
    Some(line)
}

fn render_line(value: &Value, colon: &str, comma: &str, edge: &str) -> String {
    let below = |value: &Value| render_line(value, colon, comma, edge);
    match value {
        Value::Object(table) if !table.is_empty() => {
            let member = |(name, value): (&String, &Value)| {
                format!("{}{colon}{}", Value::from(name.as_str()), below(value))
            };
            let members: Vec<String> = table.iter().map(member).collect();
            format!("{{{edge}{}{edge}}}", members.join(comma))
        }
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(below).collect();
            format!("[{}]", items.join(comma))
        }
        other => other.to_string(),
    }
}

pub(super) fn insert_entry(
    text: &str,
    path: &[String],
    value: &Map<String, Value>,
) -> Option<String> {
    let root = tree(text)?;
    let (name, above) = path.split_last()?;
    let mut object = root.object_value_or_create()?;
    for key in above {
        object = match last_named(&object, key) {
            Some(property) => property.object_value()?,
            None => object
                .append(key, CstInputValue::Object(Vec::new()))
                .object_value()?,
        };
    }
    object.append(name, input(&Value::Object(value.clone())));
    Some(root.to_string())
}

pub(super) fn remove_entry(text: &str, path: &[String]) -> Option<String> {
    let root = tree(text)?;
    let (name, above) = path.split_last()?;
    let object = object_at(root.object_value()?, above)?;
    last_named(&object, name)?.remove();
    Some(root.to_string())
}

fn tree(text: &str) -> Option<CstRootNode> {
    check_depth(text).ok()?;
    CstRootNode::parse(text, &options()).ok()
}

fn object_at(object: CstObject, path: &[String]) -> Option<CstObject> {
    path.iter().try_fold(object, |object, key| {
        last_named(&object, key)?.object_value()
    })
}

fn last_named(object: &CstObject, name: &str) -> Option<CstObjectProp> {
    named(object, name).pop()
}

fn named(object: &CstObject, name: &str) -> Vec<CstObjectProp> {
    let is_named = |property: &CstObjectProp| property.decoded_name().as_deref() == Some(name);
    object.properties().into_iter().filter(is_named).collect()
}

fn input(value: &Value) -> CstInputValue {
    match value {
        Value::Null => CstInputValue::Null,
        Value::Bool(value) => CstInputValue::Bool(*value),
        Value::Number(number) => CstInputValue::Number(number.to_string()),
        Value::String(text) => CstInputValue::String(text.clone()),
        Value::Array(items) => CstInputValue::Array(items.iter().map(input).collect()),
        Value::Object(members) => {
            let member = |(name, value): (&String, &Value)| (name.clone(), input(value));
            CstInputValue::Object(members.iter().map(member).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn path(keys: &[&str]) -> Vec<String> {
        keys.iter().map(|key| (*key).to_owned()).collect()
    }

    #[track_caller]
    fn check(text: &str, members: &Members<'_>, expected: &str) {
        let path = path(&["m", "a"]);
        let new = set_members(text, &path, members).unwrap();
        assert_eq!(new, expected);
        let before = entry_text(text, &path).unwrap();
        assert_eq!(replace_entry(&new, &path, &before).unwrap(), text);
    }

    #[test]
    fn members_change_and_all_else_stays() {
        let ours: &Members<'_> = &[
            ("command", Some(json!("mcpd"))),
            ("args", Some(json!(["connect", "a"]))),
            ("env", None),
        ];
        check(
            "{\n\t\"m\": { // servers\n\t\t\"a\": {\n\t\t\t\"command\": \"npx\", // run\n\t\t\t\"args\": [\n\t\t\t\t\"-y\"\n\t\t\t],\n\t\t\t\"env\": {\"T\": \"x\"},\n\t\t\t\"off\": false,\n\t\t},\n\t}\n}\n",
            ours,
            "{\n\t\"m\": { // servers\n\t\t\"a\": {\n\t\t\t\"command\": \"mcpd\", // run\n\t\t\t\"args\": [\"connect\", \"a\"],\n\t\t\t\"off\": false,\n\t\t},\n\t}\n}\n",
        );
        check(
            "{\"m\":{\"a\":{\"command\":\"npx\",\"env\":{}}}}",
            ours,
            "{\"m\":{\"a\":{\"command\":\"mcpd\",\"args\":[\"connect\",\"a\"]}}}",
        );
    }

    #[test]
    fn line_ends_stay() {
        check(
            "{\r\n  \"m\": {\r\n    \"a\": {\r\n      \"command\": \"npx\"\r\n    }\r\n  }\r\n}",
            &[
                ("command", Some(json!("mcpd"))),
                ("args", Some(json!(["connect", "a"]))),
            ],
            "{\r\n  \"m\": {\r\n    \"a\": {\r\n      \"command\": \"mcpd\",\r\n      \"args\": [\"connect\", \"a\"]\r\n    }\r\n  }\r\n}",
        );
    }

    #[test]
    fn of_two_with_one_name_the_later_counts() {
        check(
            "{\"m\": {\"a\": 1, \"a\": {\"command\": \"x\"}}}",
            &[("command", Some(json!("y")))],
            "{\"m\": {\"a\": 1, \"a\": {\"command\": \"y\"}}}",
        );
    }

    #[test]
    fn an_entry_comes_and_goes() {
        let entry = json!({"command": "mcpd"});
        let path = path(&["m", "a"]);
        for text in ["{}", "", "{\n  \"x\": 1\n}\n", "{\"m\": {}}", "// none\n"] {
            let new = insert_entry(text, &path, entry.as_object().unwrap()).unwrap();
            assert_eq!(parse(&new).unwrap()["m"]["a"], entry, "{new}");
            let gone = remove_entry(&new, &path).unwrap();
            assert_eq!(parse(&gone).unwrap()["m"], json!({}), "{gone}");
        }
        assert_eq!(insert_entry("{\"m\": 3}", &path, &Map::new()), None);
    }

    #[test]
    fn broken_and_deep_text_is_refused() {
        for text in ["{", "{\"a\" 1}", "{'a': 1}", "[1, 2", "/*"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(parse(&"[".repeat(100_000)).is_err());
    }
}
