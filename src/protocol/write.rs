//! The messages that mcpd itself says, as frames.
//!
//! Decides their form, never when one is due. What passes through is not built here: it is
//! forwarded as it came.

use super::error::ErrorCode;
use super::frame::Frame;
use super::id::{RequestId, itoa_buffer, write_decimal};
use super::json::write_text;
use super::version::Version;

/// An error that answers `id`.
///
/// Without a readable id there is `"id":null` towards a host before 2025-11-25, or one whose
/// version is not settled, and no `id` at all towards others. `data` is a whole JSON value.
pub fn error_response(
    id: Option<&RequestId>,
    version: Option<Version>,
    code: ErrorCode,
    message: &str,
    data: Option<&[u8]>,
) -> Frame {
    let mut out = begin(96 + message.len() + data.map_or(0, <[u8]>::len));
    match id {
        Some(id) => write_id(&mut out, id.raw()),
        None if version.is_none_or(Version::writes_null_id) => write_id(&mut out, b"null"),
        None => {}
    }
    out.extend_from_slice(b",\"error\":{\"code\":");
    out.extend_from_slice(code.to_string().as_bytes());
    out.extend_from_slice(b",\"message\":");
    write_text(&mut out, message);
    if let Some(data) = data {
        out.extend_from_slice(b",\"data\":");
        out.extend_from_slice(data);
    }
    out.extend_from_slice(b"}}\n");
    Frame::whole(out.into())
}

/// The answer `result`, a whole JSON value, to `id`.
pub fn result_response(id: &RequestId, result: &[u8]) -> Frame {
    let mut out = begin(64 + id.raw().len() + result.len());
    write_id(&mut out, id.raw());
    out.extend_from_slice(b",\"result\":");
    out.extend_from_slice(result);
    out.extend_from_slice(b"}\n");
    Frame::whole(out.into())
}

/// A request of mcpd's own. `params` is a whole JSON object.
pub fn request(id: u64, method: &str, params: Option<&[u8]>) -> Frame {
    let mut out = begin(64 + method.len() + params.map_or(0, <[u8]>::len));
    write_id(&mut out, write_decimal(&mut itoa_buffer(), id));
    write_call(out, method, params)
}

/// A notification of mcpd's own. `params` is a whole JSON object.
pub fn notification(method: &str, params: Option<&[u8]>) -> Frame {
    let out = begin(48 + method.len() + params.map_or(0, <[u8]>::len));
    write_call(out, method, params)
}

fn begin(capacity: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(capacity);
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\"");
    out
}

fn write_id(out: &mut Vec<u8>, id: &[u8]) {
    out.extend_from_slice(b",\"id\":");
    out.extend_from_slice(id);
}

fn write_call(mut out: Vec<u8>, method: &str, params: Option<&[u8]>) -> Frame {
    out.extend_from_slice(b",\"method\":");
    write_text(&mut out, method);
    if let Some(params) = params {
        out.extend_from_slice(b",\"params\":");
        out.extend_from_slice(params);
    }
    out.extend_from_slice(b"}\n");
    Frame::whole(out.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(frame: &Frame, expected: &str) {
        let written = String::from_utf8(frame.to_vec()).unwrap();
        assert_eq!(written, format!("{expected}\n"));
        serde_json::from_str::<serde_json::Value>(&written).unwrap();
    }

    #[test]
    fn errors_carry_the_id_as_it_was_sent() {
        let id = RequestId::parse(b"1.0").unwrap();
        check(
            &error_response(Some(&id), None, ErrorCode::OVERLOADED, "too \"much\"", None),
            r#"{"jsonrpc":"2.0","id":1.0,"error":{"code":-31002,"message":"too \"much\""}}"#,
        );
        check(
            &error_response(
                Some(&id),
                Some(Version::NEWEST),
                ErrorCode::SERVER_EXITED,
                "gone",
                Some(br#"{"server":"x"}"#),
            ),
            r#"{"jsonrpc":"2.0","id":1.0,"error":{"code":-31001,"message":"gone","data":{"server":"x"}}}"#,
        );
    }

    #[test]
    fn an_error_without_an_id_has_null_before_2025_11_25() {
        let null = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"m"}}"#;
        let none = r#"{"jsonrpc":"2.0","error":{"code":-32700,"message":"m"}}"#;
        let error = |version| error_response(None, version, ErrorCode::PARSE_ERROR, "m", None);
        check(&error(None), null);
        check(&error(Some(Version::V2024_11_05)), null);
        check(&error(Some(Version::V2025_06_18)), null);
        check(&error(Some(Version::V2025_11_25)), none);
    }

    #[test]
    fn calls_and_answers_are_whole_lines() {
        check(
            &request(12, "tools/list", Some(b"{}")),
            r#"{"jsonrpc":"2.0","id":12,"method":"tools/list","params":{}}"#,
        );
        check(
            &notification("notifications/initialized", None),
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        );
        let id = RequestId::parse(b"\"a\"").unwrap();
        check(
            &result_response(&id, b"{}"),
            r#"{"jsonrpc":"2.0","id":"a","result":{}}"#,
        );
    }
}
