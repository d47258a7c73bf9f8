//! The JSON schema of a server's file, by which editors complete and check it.
//!
//! It has exactly the keys that `keys` accepts; a test holds the two together. It decides nothing
//! about what is valid: it only tells editors.

use serde_json::{Map, Value, json};

use super::keys::SERVER_KEYS;

/// The line that leads an editor from a file of `servers.d` to the schema beside that folder.
pub const SCHEMA_LINE: &str = "#:schema ../server.schema.json";

/// The schema as text.
pub fn server_schema() -> String {
    let keys = SERVER_KEYS.iter();
    let properties: Map<String, Value> =
        keys.map(|key| ((*key).to_owned(), property(key))).collect();
    let schema = json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "A server of mcpd",
        "type": "object",
        "additionalProperties": false,
        "properties": properties,
    });
    format!("{schema:#}\n")
}

/// What a key may hold. One that is not told here may hold anything as far as editors know.
fn property(key: &str) -> Value {
    let texts = json!({ "type": "array", "items": { "type": "string" } });
    let described = |kind: Value, text: &str| {
        let mut kind = kind;
        kind["description"] = json!(text);
        kind
    };
    let text = json!({ "type": "string" });
    let truth = json!({ "type": "boolean" });
    let duration = json!({ "type": "string", "pattern": "^[0-9]" });
    match key {
        "command" => described(
            text,
            "The program: found on the server's PATH, or with a slash a file",
        ),
        "args" => described(texts, "Its arguments"),
        "cwd" => described(text, "Working directory; the home directory without it"),
        "sharing" => json!({
            "description": "How many processes there are of it",
            "enum": ["shared", "per-directory"],
        }),
        "description" => described(text, "Shown in `mcpd status`"),
        "enabled" => described(truth, "Whether it may run"),
        "env" => json!({
            "description": "Variables",
            "type": "object",
            "additionalProperties": { "anyOf": [{ "type": "string" }, value_source()] },
        }),
        "env_file" => described(text, "A file of NAME=VALUE lines that nobody else can read"),
        "pass_env" => described(texts, "Names taken from the daemon's environment"),
        "path" => described(texts, "Folders put before PATH"),
        "inherit_env" => described(truth, "Whether it gets all of the daemon's environment"),
        "proxy_env" => described(truth, "Whether it gets the proxy and CA variables"),
        "restart" => json!({
            "description": "When it is started again",
            "enum": ["always", "on-failure", "no"],
        }),
        "stop_command" => described(texts, "Program and arguments that stop it"),
        "max_calls" | "start_limit" => json!({ "type": "integer", "minimum": 1 }),
        "tools" => json!({
            "description": "Names of tools, with `*`",
            "type": "object",
            "additionalProperties": false,
            "properties": { "allow": texts, "deny": texts },
        }),
        "start" => json!({
            "description": "When it is started",
            "enum": ["boot", "demand"],
        }),
        "protocol" => json!({
            "description": "Which MCP it is spoken to in",
            "enum": ["auto", "legacy", "modern"],
        }),
        "interactive" => described(truth, "Whether hosts answer what it asks"),
        "allow_mcpd" => described(truth, "Whether its processes may use mcpd's own socket"),
        "idle_stop" => described(duration, "Ends it when nothing has been open for so long"),
        "watchdog" => described(duration, "Asks it when it has said nothing for so long"),
        "limits" => json!({
            "description": "What it and all that it starts may use",
            "type": "object",
            "additionalProperties": false,
            "properties": {
                "memory": text,
                "tasks": { "type": "integer", "minimum": 1 },
                "open_files": { "type": "integer", "minimum": 1 },
            },
        }),
        key if key.ends_with("_timeout") || key.ends_with("_after") => {
            described(duration, "A duration with its unit, such as \"30s\"")
        }
        "message_limit" => described(text, "A size with its unit, such as \"64MiB\""),
        _ => json!({}),
    }
}

fn value_source() -> Value {
    json!({
        "type": "object",
        "additionalProperties": false,
        "minProperties": 1,
        "maxProperties": 1,
        "properties": {
            "file": { "type": "string" },
            "command": { "type": "array", "items": { "type": "string" } },
            "credential": { "type": "string" },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_has_the_keys_of_a_file() {
        let schema: Value = serde_json::from_str(&server_schema()).unwrap();
        let properties = schema["properties"].as_object().unwrap();
        let keys: Vec<&str> = properties.keys().map(String::as_str).collect();
        assert_eq!(keys, SERVER_KEYS);
        for (key, property) in properties {
            assert_ne!(property, &json!({}), "{key} may hold anything");
        }
    }
}
