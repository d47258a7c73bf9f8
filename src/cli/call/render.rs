//! The result of a tool as text.
//!
//! Texts are printed plainly, everything else is named; structured content stands in where there
//! is no text.

use serde::Deserialize;
use serde_json::value::RawValue;

/// What of a result matters to a reader.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct CallResult<'a> {
    #[serde(default)]
    content: Vec<Content>,
    #[serde(default, borrow)]
    structured_content: Option<&'a RawValue>,
    #[serde(default)]
    is_error: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Content {
    r#type: String,
    text: Option<String>,
    data: Option<String>,
    mime_type: Option<String>,
    uri: Option<String>,
    resource: Option<Resource>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Resource {
    uri: String,
    mime_type: Option<String>,
    text: Option<String>,
}

/// A result that is ready to be printed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Rendered {
    pub(crate) text: String,
    /// Whether the tool itself reports a failure.
    pub(crate) is_error: bool,
}

/// `result` for a reader. One that is not of the form that MCP gives it is shown as it is.
pub(crate) fn render_result(result: &RawValue) -> Rendered {
    let Ok(parsed) = serde_json::from_str::<CallResult<'_>>(result.get()) else {
        return Rendered {
            text: format!("{}\n", result.get()),
            is_error: false,
        };
    };
    let mut text = String::new();
    for content in &parsed.content {
        push_line(&mut text, &render_content(content));
    }
    let has_text = parsed.content.iter().any(|content| content.text.is_some());
    if let Some(structured) = parsed.structured_content
        && !has_text
    {
        push_line(&mut text, structured.get());
    }
    Rendered {
        text,
        is_error: parsed.is_error,
    }
}

fn push_line(text: &mut String, line: &str) {
    text.push_str(line);
    if !line.ends_with('\n') {
        text.push('\n');
    }
}

fn render_content(content: &Content) -> String {
    if let Some(text) = &content.text {
        return text.clone();
    }
    let kind = if content.r#type.is_empty() {
        "content"
    } else {
        &content.r#type
    };
    if let Some(resource) = &content.resource {
        return match (&resource.text, &resource.mime_type) {
            (Some(text), _) => text.clone(),
            (None, Some(mime_type)) => format!("[{kind} {} {mime_type}]", resource.uri),
            (None, None) => format!("[{kind} {}]", resource.uri),
        };
    }
    let mut parts = vec![kind.to_owned()];
    parts.extend(content.uri.clone());
    parts.extend(content.mime_type.clone());
    parts.extend(
        content
            .data
            .as_ref()
            .map(|data| format!("{} bytes of base64", data.len())),
    );
    format!("[{}]", parts.join(" "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(result: &serde_json::Value, text: &str, is_error: bool) {
        let raw = RawValue::from_string(result.to_string()).unwrap();
        let expected = Rendered {
            text: text.to_owned(),
            is_error,
        };
        assert_eq!(render_result(&raw), expected);
    }

    #[test]
    fn texts_are_printed_plainly() {
        let content = json!([{"type": "text", "text": "5"}, {"type": "text", "text": "a\n"}]);
        let result = json!({"content": content, "structuredContent": {"result": 5}});
        check(&result, "5\na\n", false);
    }

    #[test]
    fn structured_content_stands_in_for_text() {
        let result = json!({"content": [], "structuredContent": {"result": 5}});
        check(&result, "{\"result\":5}\n", false);
    }

    #[test]
    fn what_is_no_text_is_named() {
        let content = json!([
            {"type": "image", "data": "AAAA", "mimeType": "image/png"},
            {"type": "resource_link", "uri": "file:///a", "name": "a"},
            {"type": "resource", "resource": {"uri": "x://y", "text": "inside"}},
        ]);
        check(
            &json!({"content": content, "isError": true}),
            "[image image/png 4 bytes of base64]\n[resource_link file:///a]\ninside\n",
            true,
        );
    }

    #[test]
    fn a_result_of_another_form_is_shown_as_it_is() {
        check(&json!({"content": 1}), "{\"content\":1}\n", false);
    }
}
