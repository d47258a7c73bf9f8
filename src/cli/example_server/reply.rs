//! How a request of the example server is answered: the same in both eras, but for a few members that
//! every modern result carries.

use serde_json::Value;

use super::server::{Refusal, server_info};

/// Where an answer goes, and how it is written.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Reply {
    /// The request's id, as it was spelled.
    id: String,
    /// What goes before the members of a result.
    head: String,
}

impl Reply {
    pub(super) fn legacy(id: &str) -> Self {
        Self {
            id: id.to_owned(),
            head: String::new(),
        }
    }

    /// A modern one: complete, and with caching hints if `is_cacheable` (MCP 2026-07-28
    /// `basic/index`, `server/utilities/caching`).
    pub(super) fn modern(id: &str, is_cacheable: bool) -> Self {
        let hints = if is_cacheable {
            r#","ttlMs":0,"cacheScope":"private""#
        } else {
            ""
        };
        Self {
            id: id.to_owned(),
            head: format!(r#""resultType":"complete",{}{hints}"#, meta()),
        }
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// The answer with this result, a JSON object.
    pub(super) fn result(&self, result: &str) -> String {
        let members = result.strip_prefix('{').unwrap_or_default();
        let comma = match self.head.is_empty() || members.starts_with('}') {
            true => "",
            false => ",",
        };
        format!(
            r#"{{"jsonrpc":"2.0","id":{},"result":{{{}{comma}{members}}}"#,
            self.id, self.head
        )
    }

    pub(super) fn answered(&self, answer: Result<Value, Refusal>) -> String {
        match answer {
            Ok(value) => self.result(&value.to_string()),
            Err(Refusal { code, message }) => refusal(&self.id, code, &message),
        }
    }
}

/// The member that says whose result it is.
pub(super) fn meta() -> String {
    format!(
        r#""_meta":{{"io.modelcontextprotocol/serverInfo":{}}}"#,
        server_info()
    )
}

/// The error that answers `id`, which is JSON already.
pub(super) fn refusal(id: &str, code: i64, message: &str) -> String {
    let message = Value::from(message);
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":{message}}}}}"#)
}

/// The result of a tool that says `text`, as JSON.
pub(super) fn tool_text(text: &str, is_error: bool) -> String {
    let text = Value::from(text);
    format!(r#"{{"content":[{{"type":"text","text":{text}}}],"isError":{is_error}}}"#)
}

/// The error for one call more than can be held.
pub(super) fn too_many(reply: &Reply) -> String {
    reply.result(&tool_text("too many slow calls at once", true))
}
