//! What a modern host is told of a legacy child: a `DiscoverResult` out of its `InitializeResult`.
//!
//! Decides what of it is named and in which order. Source: MCP 2026-07-28 `server/discover`.

use super::result::meta_of;
use crate::protocol::json::{self, ValueType, write_text};
use crate::protocol::version::{ModernVersion, Version};

/// The child's `serverInfo`, or one that carries our name for the server where the child gave none
/// that a host could read. A whole JSON object.
pub fn server_info(initialize_result: &[u8], server: &str) -> Vec<u8> {
    let info = json::find_member(initialize_result, "serverInfo").map(|entry| entry.value);
    let is_text = |info: &[u8], name| {
        json::find_member(info, name).is_some_and(|entry| json::raw_text(entry.value).is_some())
    };
    if let Some(info) = info.filter(|info| is_text(info, "name") && is_text(info, "version")) {
        return info.to_vec();
    }
    let named = info
        .and_then(|info| json::find_member(info, "name"))
        .and_then(|name| json::text(name.value));
    let mut own = b"{\"name\":".to_vec();
    write_text(&mut own, named.as_deref().unwrap_or(server));
    own.extend_from_slice(b",\"version\":\"0\"}");
    own
}

/// The `DiscoverResult`. `capabilities` are those that hosts see, `instructions` the child's own.
pub fn discover_result(
    child: Version,
    capabilities: &[u8],
    instructions: Option<&str>,
    server_info: &[u8],
) -> Vec<u8> {
    let mut result = b"{\"resultType\":\"complete\",\"supportedVersions\":".to_vec();
    write_versions(&mut result, child);
    result.extend_from_slice(b",\"capabilities\":");
    result.extend_from_slice(&capabilities_for_modern(capabilities, child));
    if let Some(instructions) = instructions {
        result.extend_from_slice(b",\"instructions\":");
        write_text(&mut result, instructions);
    }
    result.extend_from_slice(b",\"_meta\":");
    result.extend_from_slice(&meta_of(server_info));
    result.extend_from_slice(b",\"ttlMs\":0,\"cacheScope\":\"private\"}");
    result
}

/// The modern revision, then the legacy ones that the child allows, the newest first.
fn write_versions(out: &mut Vec<u8>, child: Version) {
    out.push(b'[');
    write_text(out, ModernVersion::NEWEST.as_str());
    for version in Version::ALL.iter().rev().filter(|one| **one <= child) {
        out.push(b',');
        write_text(out, version.as_str());
    }
    out.push(b']');
}

/// Those that are objects, as the modern schema has them, without `tasks`. A child of the first
/// revision could complete arguments without saying so.
fn capabilities_for_modern(capabilities: &[u8], child: Version) -> Vec<u8> {
    let mut members: Vec<Vec<u8>> = json::members(capabilities)
        .filter(|entry| !entry.is("tasks"))
        .filter(|entry| ValueType::of(entry.value) == Some(ValueType::Object))
        .map(|entry| capabilities[entry.key_start..entry.span.end()].to_vec())
        .collect();
    if child == Version::V2024_11_05 && json::find_member(capabilities, "completions").is_none() {
        members.push(b"\"completions\":{}".to_vec());
    }
    [b"{", members.join(&b',').as_slice(), b"}"].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn info(result: &str, expected: &str) {
        let info = server_info(result.as_bytes(), "srv");
        assert_eq!(String::from_utf8_lossy(&info), expected);
    }

    #[test]
    fn the_childs_name_passes_as_it_stands() {
        info(
            r#"{"serverInfo":{"name":"a" ,"version":"1","title":"\u0041"}}"#,
            r#"{"name":"a" ,"version":"1","title":"\u0041"}"#,
        );
        info("{}", r#"{"name":"srv","version":"0"}"#);
        info(
            r#"{"serverInfo":{"name":"a\"b"}}"#,
            r#"{"name":"a\"b","version":"0"}"#,
        );
        info(r#"{"serverInfo":7}"#, r#"{"name":"srv","version":"0"}"#);
    }

    #[track_caller]
    fn check(child: Version, capabilities: &str, instructions: Option<&str>, expected: &str) {
        let result = discover_result(child, capabilities.as_bytes(), instructions, b"{}");
        assert_eq!(
            String::from_utf8_lossy(&result),
            format!(
                r#"{{"resultType":"complete",{expected},"_meta":{{"io.modelcontextprotocol/serverInfo":{{}}}},"ttlMs":0,"cacheScope":"private"}}"#
            )
        );
    }

    #[test]
    fn a_discovery_names_the_modern_version_first() {
        check(
            Version::V2025_11_25,
            r#"{"tools":{"listChanged":true},"tasks":{"list":{}},"logging":{ }}"#,
            Some("say \"hi\""),
            r#""supportedVersions":["2026-07-28","2025-11-25","2025-06-18","2025-03-26","2024-11-05"],"capabilities":{"tools":{"listChanged":true},"logging":{ }},"instructions":"say \"hi\"""#,
        );
    }

    #[test]
    fn a_child_of_the_first_revision_may_complete_arguments() {
        let versions = r#""supportedVersions":["2026-07-28","2024-11-05"]"#;
        for (capabilities, told) in [
            ("{}", r#"{"completions":{}}"#),
            (r#"{"prompts":{}}"#, r#"{"prompts":{},"completions":{}}"#),
            (r#"{"completions":{"x":1}}"#, r#"{"completions":{"x":1}}"#),
        ] {
            let expected = format!(r#"{versions},"capabilities":{told}"#);
            check(Version::V2024_11_05, capabilities, None, &expected);
        }
    }

    #[test]
    fn a_capability_that_is_no_object_is_not_named() {
        check(
            Version::V2025_03_26,
            r#"{"logging":true,"tools":null}"#,
            None,
            r#""supportedVersions":["2026-07-28","2025-03-26","2024-11-05"],"capabilities":{}"#,
        );
    }
}
