//! The result of a tool as text, and what of it can be kept in files.
//!
//! Texts are printed plainly, everything else is named; structured content stands in where there
//! is no text.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::base64::decode;

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
    name: Option<String>,
    resource: Option<Resource>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Resource {
    uri: String,
    mime_type: Option<String>,
    text: Option<String>,
    blob: Option<String>,
}

/// A part of a result, in its order.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Text(String),
    /// An image, a sound or a blob: what it is, and its bytes.
    Bytes {
        label: String,
        mime_type: Option<String>,
        bytes: Vec<u8>,
    },
}

/// A result that is ready to be printed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Rendered {
    pub(crate) parts: Vec<Part>,
    /// Whether the tool itself reports a failure.
    pub(crate) is_error: bool,
}

/// `result` for a reader. One that is not of the form that MCP gives it is shown as it is.
pub(crate) fn render_result(result: &RawValue) -> Rendered {
    let Ok(parsed) = serde_json::from_str::<CallResult<'_>>(result.get()) else {
        return Rendered {
            parts: vec![Part::Text(result.get().to_owned())],
            is_error: false,
        };
    };
    let has_text = parsed.content.iter().any(|content| content.text.is_some());
    let mut parts: Vec<Part> = parsed.content.into_iter().map(part).collect();
    if let Some(structured) = parsed.structured_content
        && !has_text
    {
        parts.push(Part::Text(structured.get().to_owned()));
    }
    Rendered {
        parts,
        is_error: parsed.is_error,
    }
}

fn part(content: Content) -> Part {
    if let Some(text) = content.text {
        return Part::Text(text);
    }
    let kind = match content.r#type.as_str() {
        "" => "content",
        "resource_link" => "link",
        kind => kind,
    };
    if let Some(resource) = content.resource {
        if let Some(text) = resource.text {
            return Part::Text(text);
        }
        let label = [kind, &resource.uri].join(" ");
        return bytes(label, resource.mime_type, resource.blob);
    }
    let mut label = vec![kind.to_owned()];
    label.extend(content.name);
    label.extend(content.uri);
    bytes(label.join(" "), content.mime_type, content.data)
}

fn bytes(label: String, mime_type: Option<String>, data: Option<String>) -> Part {
    if let Some(bytes) = data.as_deref().and_then(decode) {
        return Part::Bytes {
            label,
            mime_type,
            bytes,
        };
    }
    let mut words = vec![label];
    words.extend(mime_type);
    words.extend(data.map(|_| "(its data is no base64)".to_owned()));
    Part::Text(format!("[{}]", words.join(" ")))
}

/// What a file of this type ends in.
pub(crate) fn extension(mime_type: Option<&str>) -> &str {
    let mime_type = mime_type.unwrap_or_default();
    let mime_type = mime_type.split(';').next().unwrap_or_default().trim();
    match mime_type {
        "image/jpeg" => "jpg",
        "image/svg+xml" => "svg",
        "audio/mpeg" => "mp3",
        "audio/x-wav" | "audio/wave" => "wav",
        "text/plain" => "txt",
        "text/markdown" => "md",
        "application/gzip" => "gz",
        other => {
            let subtype = other.rsplit('/').next().unwrap_or_default();
            let is_plain = !subtype.is_empty()
                && subtype.len() <= 8
                && subtype.bytes().all(|byte| byte.is_ascii_alphanumeric());
            if is_plain { subtype } else { "bin" }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn text(text: &str) -> Part {
        Part::Text(text.to_owned())
    }

    #[track_caller]
    fn check(result: &serde_json::Value, parts: Vec<Part>, is_error: bool) {
        let raw = RawValue::from_string(result.to_string()).unwrap();
        assert_eq!(render_result(&raw), Rendered { parts, is_error });
    }

    #[test]
    fn texts_are_printed_plainly() {
        let content = json!([{"type": "text", "text": "5"}, {"type": "text", "text": "a\n"}]);
        let result = json!({"content": content, "structuredContent": {"result": 5}});
        check(&result, vec![text("5"), text("a\n")], false);
    }

    #[test]
    fn structured_content_stands_in_for_text() {
        let result = json!({"content": [], "structuredContent": {"result": 5}});
        check(&result, vec![text("{\"result\":5}")], false);
    }

    #[test]
    fn what_is_no_text_is_named_and_its_bytes_are_kept() {
        let content = json!([
            {"type": "image", "data": "AAAA", "mimeType": "image/png"},
            {"type": "resource_link", "uri": "file:///a", "name": "a"},
            {"type": "resource", "resource": {"uri": "x://y", "text": "inside"}},
            {"type": "resource", "resource": {"uri": "x://z", "blob": "AA=="}},
            {"type": "audio", "data": "?", "mimeType": "audio/wav"},
        ]);
        check(
            &json!({"content": content, "isError": true}),
            vec![
                Part::Bytes {
                    label: "image".to_owned(),
                    mime_type: Some("image/png".to_owned()),
                    bytes: vec![0; 3],
                },
                text("[link a file:///a]"),
                text("inside"),
                Part::Bytes {
                    label: "resource x://z".to_owned(),
                    mime_type: None,
                    bytes: vec![0],
                },
                text("[audio audio/wav (its data is no base64)]"),
            ],
            true,
        );
    }

    #[test]
    fn a_result_of_another_form_is_shown_as_it_is() {
        check(&json!({"content": 1}), vec![text("{\"content\":1}")], false);
    }

    #[test]
    fn types_have_endings() {
        for (mime_type, ending) in [
            (Some("image/png"), "png"),
            (Some("image/jpeg"), "jpg"),
            (Some("text/plain; charset=utf-8"), "txt"),
            (Some("application/vnd.x+y"), "bin"),
            (Some("../../etc"), "etc"),
            (None, "bin"),
        ] {
            assert_eq!(extension(mime_type), ending);
        }
    }
}
