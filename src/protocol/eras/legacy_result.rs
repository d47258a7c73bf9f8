//! Results of a modern child as legacy hosts can read them.
//!
//! Decides what of a list of tools and of a tool's result has to be another one; everything else
//! passes, since members that a host does not know are no harm. Sources: MCP 2026-07-28 and
//! 2025-11-25 `server/tools`.

use serde_json::{Map, Value, json};

use crate::protocol::json::{self as raw, ValueType};

/// Keywords of JSON Schema whose members are schemas by name.
const SCHEMAS_BY_NAME: [&str; 4] = ["properties", "patternProperties", "$defs", "definitions"];

/// Where a schema stands that was wrapped.
const WRAPPED: &str = "#/properties/result";

/// A list of tools for legacy hosts.
#[derive(Clone, Debug, Default)]
pub struct Tools {
    /// The whole array.
    pub array: Vec<u8>,
    /// The names of tools whose structured content has to be wrapped, and of those where not.
    pub wrapped: Vec<(String, bool)>,
}

/// Makes a modern array of tools a legacy one. A tool that is not changed passes byte for byte.
pub fn project_tools(array: &[u8]) -> Tools {
    let mut tools = Tools::default();
    let mut kept: Vec<Vec<u8>> = Vec::new();
    for span in raw::elements(array) {
        let tool = &array[span.range()];
        let Ok(Value::Object(mut parsed)) = serde_json::from_slice(tool) else {
            kept.push(tool.to_vec());
            continue;
        };
        if parsed.get("execution").and_then(|it| it.get("taskSupport")) == Some(&json!("required"))
        {
            continue;
        }
        let (is_changed, is_wrapped) = project_tool(&mut parsed);
        if let Some(name) = parsed.get("name").and_then(Value::as_str) {
            tools.wrapped.push((name.to_owned(), is_wrapped));
        }
        kept.push(if is_changed {
            Value::Object(parsed).to_string().into_bytes()
        } else {
            tool.to_vec()
        });
    }
    tools.array = [b"[", kept.join(&b',').as_slice(), b"]"].concat();
    tools
}

/// Whether the tool is another one now, and whether its output is wrapped.
fn project_tool(tool: &mut Map<String, Value>) -> (bool, bool) {
    let mut is_changed = tool.shift_remove("execution").is_some();
    if let Some(schema) = tool.get_mut("inputSchema") {
        is_changed |= spell_out_booleans(schema);
    }
    let mut is_wrapped = false;
    if let Some(schema) = tool.get_mut("outputSchema") {
        is_changed |= spell_out_booleans(schema);
        if schema.get("type") != Some(&json!("object")) {
            wrap_schema(schema);
            (is_changed, is_wrapped) = (true, true);
        }
    }
    (is_changed, is_wrapped)
}

/// Legacy schemas of properties are objects: `true` and `false` have to be spelled out.
fn spell_out_booleans(schema: &mut Value) -> bool {
    let mut is_changed = false;
    let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) else {
        return false;
    };
    for property in properties.values_mut() {
        if let Value::Bool(allows) = property {
            *property = if *allows {
                json!({})
            } else {
                json!({"not": {}})
            };
            is_changed = true;
        }
    }
    is_changed
}

/// An output schema must be of an object: one that is not stands as its only property.
fn wrap_schema(schema: &mut Value) {
    let mut inner = match std::mem::take(schema) {
        Value::Bool(true) => json!({}),
        Value::Bool(false) => json!({"not": {}}),
        inner => inner,
    };
    // The dialect is a matter of the root (JSON Schema 2020-12, section 8.1.1).
    let dialect = inner
        .as_object_mut()
        .and_then(|it| it.shift_remove("$schema"));
    let has_own_base = inner.get("$id").is_some();
    if !has_own_base {
        adjust_references(&mut inner);
    }
    let mut outer = Map::new();
    if let Some(dialect) = dialect {
        outer.insert("$schema".to_owned(), dialect);
    }
    outer.insert("type".to_owned(), json!("object"));
    outer.insert("properties".to_owned(), json!({ "result": inner }));
    outer.insert("required".to_owned(), json!(["result"]));
    *schema = Value::Object(outer);
}

/// Local references count from the root, which has moved. Iterative, because a schema may be
/// nested deeper than a stack.
fn adjust_references(schema: &mut Value) {
    let mut open = vec![schema];
    while let Some(value) = open.pop() {
        match value {
            Value::Object(members) => {
                for (name, member) in members.iter_mut() {
                    match name.as_str() {
                        "$ref" | "$dynamicRef" => adjust_reference(member),
                        // Values of these are data, whatever they look like.
                        "const" | "enum" | "default" | "examples" => {}
                        name if SCHEMAS_BY_NAME.contains(&name) => {
                            let named = member.as_object_mut();
                            open.extend(named.into_iter().flat_map(Map::values_mut));
                        }
                        _ => open.push(member),
                    }
                }
            }
            Value::Array(elements) => open.extend(elements.iter_mut()),
            _ => {}
        }
    }
}

fn adjust_reference(reference: &mut Value) {
    if let Value::String(target) = reference
        && (target == "#" || target.starts_with("#/"))
    {
        target.replace_range(..1, WRAPPED);
    }
}

/// The result of a tool whose structured content legacy hosts could not read; `None` if they can.
/// `is_wrapped` says what the list said of the tool.
pub fn project_tool_result(result: &[u8], is_wrapped: bool) -> Option<Vec<u8>> {
    let structured = raw::find_member(result, "structuredContent")?;
    let is_object = ValueType::of(structured.value) == Some(ValueType::Object);
    if is_object && !is_wrapped {
        return None;
    }
    let mut members: Vec<Vec<u8>> = Vec::new();
    let mut has_text = false;
    for entry in raw::members(result) {
        let name = &result[entry.key_start..entry.span.start()];
        if entry.is("structuredContent") {
            members.push([name, b"{\"result\":", entry.value, b"}"].concat());
        } else if entry.is("content") && raw::elements(entry.value).next().is_none() {
            // Filled below.
        } else {
            has_text |= entry.is("content");
            members.push(result[entry.key_start..entry.span.end()].to_vec());
        }
    }
    if !has_text {
        let mut content = b"\"content\":[{\"type\":\"text\",\"text\":".to_vec();
        raw::write_text(&mut content, &String::from_utf8_lossy(structured.value));
        content.extend_from_slice(b"}]");
        members.push(content);
    }
    Some([b"{", members.join(&b',').as_slice(), b"}"].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(tools: &str, legacy: &str, wrapped: &[bool]) {
        let projected = project_tools(tools.as_bytes());
        assert_eq!(String::from_utf8_lossy(&projected.array), legacy);
        let got: Vec<bool> = projected.wrapped.iter().map(|(_, it)| *it).collect();
        assert_eq!(got, wrapped);
    }

    #[test]
    fn a_tool_that_is_fine_passes_byte_for_byte() {
        let tool = r#"{ "name":"a" , "inputSchema":{"type":"object"},"outputSchema":{"type":"object","maximum":1.0},"x":1e3}"#;
        check(&format!("[ {tool} ]"), &format!("[{tool}]"), &[false]);
    }

    #[test]
    fn an_output_that_is_no_object_is_wrapped_and_its_references_move() {
        check(
            r##"[{"name":"a","inputSchema":{"type":"object"},"outputSchema":{"$schema":"s","type":"array","items":{"$ref":"#/$defs/x"},"$defs":{"x":{"const":{"$ref":"#/y"}},"$ref":{"$ref":"#"}}}}]"##,
            r##"[{"name":"a","inputSchema":{"type":"object"},"outputSchema":{"$schema":"s","type":"object","properties":{"result":{"type":"array","items":{"$ref":"#/properties/result/$defs/x"},"$defs":{"x":{"const":{"$ref":"#/y"}},"$ref":{"$ref":"#/properties/result"}}}},"required":["result"]}}]"##,
            &[true],
        );
        check(
            r#"[{"name":"a","outputSchema":true}]"#,
            r#"[{"name":"a","outputSchema":{"type":"object","properties":{"result":{}},"required":["result"]}}]"#,
            &[true],
        );
    }

    #[test]
    fn boolean_schemas_are_spelled_out_and_tasks_are_left_out() {
        check(
            r#"[{"name":"a","inputSchema":{"type":"object","properties":{"x":true,"y":false,"z":{"type":"string"}}},"execution":{"taskSupport":"optional"}},{"name":"b","execution":{"taskSupport":"required"}}]"#,
            r#"[{"name":"a","inputSchema":{"type":"object","properties":{"x":{},"y":{"not":{}},"z":{"type":"string"}}}}]"#,
            &[false],
        );
    }

    #[track_caller]
    fn check_result(result: &str, is_wrapped: bool, legacy: Option<&str>) {
        let projected = project_tool_result(result.as_bytes(), is_wrapped);
        let projected = projected.map(|it| String::from_utf8(it).expect("text"));
        assert_eq!(projected.as_deref(), legacy);
    }

    #[test]
    fn structured_content_is_an_object() {
        check_result(r#"{"content":[]}"#, true, None);
        check_result(r#"{"content":[],"structuredContent":{"a":1}}"#, false, None);
        check_result(
            r#"{"content":[{"type":"text","text":"x"}],"structuredContent":[1.0]}"#,
            false,
            Some(
                r#"{"content":[{"type":"text","text":"x"}],"structuredContent":{"result":[1.0]}}"#,
            ),
        );
        check_result(
            r#"{"content":[],"structuredContent":"v"}"#,
            true,
            Some(
                r#"{"structuredContent":{"result":"v"},"content":[{"type":"text","text":"\"v\""}]}"#,
            ),
        );
        check_result(
            r#"{"structuredContent":{"a":1},"isError":false}"#,
            true,
            Some(
                r#"{"structuredContent":{"result":{"a":1}},"isError":false,"content":[{"type":"text","text":"{\"a\":1}"}]}"#,
            ),
        );
    }
}
