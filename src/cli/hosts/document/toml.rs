//! TOML, edited in place.
//!
//! An entry may be spread over several tables; what it was is kept as a small document of its own,
//! from which it is put back.

use serde_json::{Map, Value};
use toml_edit::{Array, DocumentMut, InlineTable, Item, Table, TableLike, Value as TomlValue};

use super::{Members, keep_lines};

pub(super) fn parse(text: &str) -> Result<Value, String> {
    let document = document(text).map_err(|error| error.to_string().trim_end().to_owned())?;
    Ok(table_value(document.as_table()))
}

fn document(text: &str) -> Result<DocumentMut, toml_edit::TomlError> {
    text.replace("\r\n", "\n").parse()
}

pub(super) fn entry_text(text: &str, path: &[String]) -> Option<String> {
    let mut document = document(text).ok()?;
    let (name, above) = path.split_last()?;
    let mut table: &mut dyn TableLike = document.as_table_mut();
    for key in above {
        keep_only(table, key);
        table = table.get_mut(key)?.as_table_like_mut()?;
    }
    table.get(name)?;
    keep_only(table, name);
    document.set_trailing("");
    Some(document.to_string())
}

fn keep_only(table: &mut dyn TableLike, kept: &str) {
    let others: Vec<String> = table
        .iter()
        .map(|(key, _)| key.to_owned())
        .filter(|key| key != kept)
        .collect();
    for key in others {
        table.remove(&key);
    }
}

pub(super) fn set_members(text: &str, path: &[String], members: &Members<'_>) -> Option<String> {
    let mut document = document(text).ok()?;
    let entry = table_at(document.as_table_mut(), path)?;
    for (name, value) in members {
        match value {
            Some(value) => set(entry, name, value)?,
            None => _ = entry.remove(name),
        }
    }
    Some(keep_lines(text, &document.to_string()))
}

/// A value in the place of the old one, with the comment that stands behind it.
fn set(table: &mut dyn TableLike, name: &str, value: &Value) -> Option<()> {
    let mut new = toml_value(value)?;
    match table.get_mut(name) {
        Some(Item::Value(old)) => {
            *new.decor_mut() = old.decor().clone();
            *old = new;
        }
        // A table of its own becomes a value: its header goes.
        Some(item) => *item = Item::Value(new),
        None => _ = table.insert(name, Item::Value(new)),
    }
    Some(())
}

pub(super) fn replace_entry(text: &str, path: &[String], before: &str) -> Option<String> {
    let old = document(before).ok()?;
    let old = path
        .iter()
        .try_fold(old.as_item(), |item, key| item.get(key))?;
    let mut document = document(text).ok()?;
    let (name, above) = path.split_last()?;
    let table = table_at(document.as_table_mut(), above)?;
    let item = table.get_mut(name)?;
    let position = item.as_table().and_then(Table::position);
    *item = old.clone();
    // Its tables stand together where it stands now, whatever came before it meanwhile.
    if position.is_some() {
        set_position(item, position);
    }
    Some(keep_lines(text, &document.to_string()))
}

fn set_position(item: &mut Item, position: Option<isize>) {
    let Some(table) = item.as_table_mut() else {
        return;
    };
    table.set_position(position);
    for (_, below) in table.iter_mut() {
        set_position(below, position);
    }
}

pub(super) fn insert_entry(
    text: &str,
    path: &[String],
    value: &Map<String, Value>,
) -> Option<String> {
    let mut document = document(text).ok()?;
    let (name, above) = path.split_last()?;
    let mut table: &mut dyn TableLike = document.as_table_mut();
    for key in above {
        if table.get(key).is_none() {
            let mut new = Table::new();
            new.set_implicit(true);
            table.insert(key, Item::Table(new));
        }
        table = table.get_mut(key)?.as_table_like_mut()?;
    }
    let mut entry = Table::new();
    for (name, value) in value {
        entry.insert(name, Item::Value(toml_value(value)?));
    }
    let is_first = text.trim().is_empty();
    if !is_first {
        entry.decor_mut().set_prefix("\n");
    }
    table.insert(name, Item::Table(entry));
    Some(keep_lines(text, &document.to_string()))
}

pub(super) fn remove_entry(text: &str, path: &[String]) -> Option<String> {
    let mut document = document(text).ok()?;
    let (name, above) = path.split_last()?;
    table_at(document.as_table_mut(), above)?.remove(name)?;
    Some(keep_lines(text, &document.to_string()))
}

fn table_at<'t>(table: &'t mut Table, path: &[String]) -> Option<&'t mut dyn TableLike> {
    let mut table: &mut dyn TableLike = table;
    for key in path {
        table = table.get_mut(key)?.as_table_like_mut()?;
    }
    Some(table)
}

fn table_value(table: &dyn TableLike) -> Value {
    let members = table
        .iter()
        .map(|(name, item)| (name.to_owned(), item_value(item)));
    Value::Object(members.collect())
}

fn item_value(item: &Item) -> Value {
    match item {
        Item::None => Value::Null,
        Item::Value(value) => json_value(value),
        Item::Table(table) => table_value(table),
        Item::ArrayOfTables(tables) => {
            let tables = tables.iter().map(|table| table_value(table));
            Value::Array(tables.collect())
        }
    }
}

fn json_value(value: &TomlValue) -> Value {
    match value {
        TomlValue::String(text) => Value::from(text.value().as_str()),
        TomlValue::Integer(number) => Value::from(*number.value()),
        TomlValue::Float(number) => Value::from(*number.value()),
        TomlValue::Boolean(value) => Value::from(*value.value()),
        TomlValue::Datetime(date) => Value::from(date.value().to_string()),
        TomlValue::Array(array) => Value::Array(array.iter().map(json_value).collect()),
        TomlValue::InlineTable(table) => table_value(table),
    }
}

/// `value` in TOML, which has no null.
fn toml_value(value: &Value) -> Option<TomlValue> {
    Some(match value {
        Value::Null => return None,
        Value::Bool(value) => TomlValue::from(*value),
        Value::Number(number) => match number.as_i64() {
            Some(number) => TomlValue::from(number),
            None => TomlValue::from(number.as_f64()?),
        },
        Value::String(text) => TomlValue::from(text.as_str()),
        Value::Array(items) => {
            let items: Option<Vec<TomlValue>> = items.iter().map(toml_value).collect();
            TomlValue::Array(items?.into_iter().collect::<Array>())
        }
        Value::Object(members) => {
            let mut table = InlineTable::new();
            for (name, value) in members {
                table.insert(name, toml_value(value)?);
            }
            TomlValue::InlineTable(table)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn path(keys: &[&str]) -> Vec<String> {
        keys.iter().map(|key| (*key).to_owned()).collect()
    }

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let path = path(&["mcp_servers", "a"]);
        let members: &Members<'_> = &[
            ("command", Some(json!("mcpd"))),
            ("args", Some(json!(["connect", "a"]))),
            ("env", None),
        ];
        let new = set_members(text, &path, members).unwrap();
        assert_eq!(new, expected);
        let before = entry_text(text, &path).unwrap();
        assert_eq!(replace_entry(&new, &path, &before).unwrap(), text);
    }

    #[test]
    fn members_change_and_all_else_stays() {
        check(
            "# mine\nmodel = \"x\"   # fast\n\n[mcp_servers.a] # the first\ncommand = \"npx\" # run\nargs = [\n  \"-y\",\n]\n\n[mcp_servers.a.env]\nT = \"x\"\n\n[mcp_servers.b]\ncommand='b'\n\n[tui]\n",
            "# mine\nmodel = \"x\"   # fast\n\n[mcp_servers.a] # the first\ncommand = \"mcpd\" # run\nargs = [\"connect\", \"a\"]\n\n[mcp_servers.b]\ncommand='b'\n\n[tui]\n",
        );
        check(
            "[mcp_servers]\na = { command = \"npx\", env = { T = \"x\" } } # so\nb = 1\n",
            "[mcp_servers]\na = { command = \"mcpd\", args = [\"connect\", \"a\"] } # so\nb = 1\n",
        );
        check(
            "[mcp_servers.a]\r\ncommand = \"npx\"\r\nenv = { A = '1' }\r\n# end\r\n",
            "[mcp_servers.a]\r\ncommand = \"mcpd\"\r\nargs = [\"connect\", \"a\"]\r\n# end\r\n",
        );
    }

    #[test]
    fn an_entry_comes_and_goes() {
        let entry = json!({"command": "mcpd", "args": ["connect", "a"]});
        let path = path(&["mcp_servers", "a"]);
        for text in ["", "model = \"x\"\n", "[mcp_servers.b]\ncommand = \"b\"\n"] {
            let new = insert_entry(text, &path, entry.as_object().unwrap()).unwrap();
            assert_eq!(parse(&new).unwrap()["mcp_servers"]["a"], entry, "{new}");
            assert!(new.starts_with(text), "{new}");
            assert_eq!(remove_entry(&new, &path).unwrap(), text);
        }
    }

    #[test]
    fn broken_text_is_refused() {
        for text in ["a = ", "[a\n", "a = 1\na = 2\n"] {
            assert!(parse(text).unwrap_err().contains("line"), "{text}");
        }
        assert!(parse(&format!("a = {}", "[".repeat(100_000))).is_err());
    }
}
