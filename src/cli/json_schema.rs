//! What a person needs to know of a JSON schema: which types a value may have, in words.
//!
//! Decides nothing about validity: a server checks its own input. Follows references within the
//! schema only, and never deeper than a few levels.

use serde_json::Value;

/// How often a reference is followed to another.
const REFERENCES: usize = 8;

/// Types that a value may have; none at all means that nothing is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Types {
    pub(crate) text: bool,
    pub(crate) number: bool,
    pub(crate) integer: bool,
    pub(crate) boolean: bool,
    pub(crate) array: bool,
    pub(crate) object: bool,
    pub(crate) null: bool,
}

impl Types {
    fn named(name: &str) -> Self {
        let mut types = Self::default();
        match name {
            "string" => types.text = true,
            "number" => types.number = true,
            "integer" => types.integer = true,
            "boolean" => types.boolean = true,
            "array" => types.array = true,
            "object" => types.object = true,
            "null" => types.null = true,
            _ => {}
        }
        types
    }

    fn of_value(value: &Value) -> Self {
        Self::named(match value {
            Value::String(_) => "string",
            Value::Number(number) if number.is_f64() => "number",
            Value::Number(_) => "integer",
            Value::Bool(_) => "boolean",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
            Value::Null => "null",
        })
    }

    fn or(self, other: Self) -> Self {
        Self {
            text: self.text || other.text,
            number: self.number || other.number,
            integer: self.integer || other.integer,
            boolean: self.boolean || other.boolean,
            array: self.array || other.array,
            object: self.object || other.object,
            null: self.null || other.null,
        }
    }

    pub(crate) fn is_unknown(self) -> bool {
        self == Self::default()
    }
}

/// A schema within the document that its references count from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schema<'a> {
    root: &'a Value,
    here: &'a Value,
}

impl<'a> Schema<'a> {
    pub(crate) fn of(root: &'a Value) -> Self {
        Self { root, here: root }.resolved()
    }

    /// The value of a keyword; null where it is missing.
    pub(crate) fn keyword(self, name: &str) -> &'a Value {
        &self.here[name]
    }

    pub(crate) fn text(self, name: &str) -> Option<&'a str> {
        self.here[name]
            .as_str()
            .filter(|text| !text.trim().is_empty())
    }

    /// Its properties in the order of the schema.
    pub(crate) fn properties(self) -> impl Iterator<Item = (&'a str, Self)> {
        let properties = self.here["properties"].as_object();
        properties
            .into_iter()
            .flatten()
            .map(move |(name, here)| (name.as_str(), self.within(here)))
    }

    pub(crate) fn property(self, name: &str) -> Option<Self> {
        let here = self.here["properties"].get(name)?;
        Some(self.within(here))
    }

    pub(crate) fn items(self) -> Option<Self> {
        let here = self.here.get("items")?;
        Some(self.within(here))
    }

    pub(crate) fn requires(self, name: &str) -> bool {
        let required = self.here["required"].as_array();
        required.is_some_and(|names| names.iter().any(|one| one == name))
    }

    /// The schemas of which one, or any, must fit.
    pub(crate) fn choices(self) -> impl Iterator<Item = Self> {
        let lists = ["anyOf", "oneOf"].map(|name| self.here[name].as_array());
        lists
            .into_iter()
            .flatten()
            .flatten()
            .map(move |here| self.within(here))
    }

    /// The types that a value may have.
    pub(crate) fn types(self) -> Types {
        self.types_at(REFERENCES)
    }

    fn types_at(self, depth: usize) -> Types {
        let named = match &self.here["type"] {
            Value::String(name) => Types::named(name),
            Value::Array(names) => names
                .iter()
                .filter_map(Value::as_str)
                .map(Types::named)
                .fold(Types::default(), Types::or),
            _ => Types::default(),
        };
        if !named.is_unknown() || depth == 0 {
            return named;
        }
        if let Some(values) = self.here["enum"].as_array() {
            return values.iter().map(Types::of_value).fold(named, Types::or);
        }
        if let Some(value) = self.here.get("const") {
            return Types::of_value(value);
        }
        self.choices()
            .map(|choice| choice.types_at(depth - 1))
            .fold(named, Types::or)
    }

    /// The type in words: `string`, `array of integer`, `string or null`, `any`.
    pub(crate) fn type_text(self) -> String {
        let types = self.types();
        let mut words = Vec::new();
        for (is_one, word) in [
            (types.text, "string"),
            (types.number, "number"),
            (types.integer, "integer"),
            (types.boolean, "boolean"),
            (types.object, "object"),
        ] {
            if is_one {
                words.push(word.to_owned());
            }
        }
        if types.array {
            words.push(match self.items().map(|items| items.types()) {
                Some(items) if !items.is_unknown() && !items.array => {
                    format!(
                        "array of {}",
                        self.items().map_or_else(String::new, Self::type_text)
                    )
                }
                _ => "array".to_owned(),
            });
        }
        if types.null {
            words.push("null".to_owned());
        }
        match words.is_empty() {
            true => "any".to_owned(),
            false => words.join(" or "),
        }
    }

    fn within(self, here: &'a Value) -> Self {
        Self { here, ..self }.resolved()
    }

    /// What a reference stands for, where it points into the same document.
    fn resolved(mut self) -> Self {
        for _ in 0..REFERENCES {
            let Some(pointer) = self.here["$ref"]
                .as_str()
                .and_then(|text| text.strip_prefix('#'))
            else {
                break;
            };
            match self.root.pointer(pointer) {
                Some(target) => self.here = target,
                None => break,
            }
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(schema: &Value, text: &str) {
        assert_eq!(Schema::of(schema).type_text(), text, "{schema}");
    }

    #[test]
    fn types_are_told_in_words() {
        check(&json!({"type": "string"}), "string");
        check(&json!({"type": ["integer", "null"]}), "integer or null");
        check(
            &json!({"type": "array", "items": {"type": "number"}}),
            "array of number",
        );
        check(
            &json!({"anyOf": [{"type": "string"}, {"type": "null"}]}),
            "string or null",
        );
        check(&json!({"enum": ["a", 1]}), "string or integer");
        check(&json!({"const": true}), "boolean");
        check(&json!({}), "any");
        check(&json!(true), "any");
    }

    #[test]
    fn references_are_followed_within_the_document_and_not_for_ever() {
        let root = json!({
            "properties": {"a": {"$ref": "#/$defs/name"}, "b": {"$ref": "#/properties/b"}},
            "$defs": {"name": {"type": "string"}},
        });
        let schema = Schema::of(&root);
        assert_eq!(schema.property("a").unwrap().type_text(), "string");
        assert_eq!(schema.property("b").unwrap().type_text(), "any");
        let deep = json!({"anyOf": [{"$ref": "#"}]});
        assert_eq!(Schema::of(&deep).type_text(), "any");
    }
}
