//! What a child said of itself when its session was opened, or why there is none.
//!
//! Keeps bytes as they came; decides only which capabilities are declared.

use bytes::Bytes;

use crate::protocol::json::{self, ValueType};
use crate::protocol::version::Revision;

/// What a child said of itself when its session was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildIdentity {
    /// What is spoken with it.
    pub version: Revision,
    /// Its whole `InitializeResult` or `DiscoverResult`, byte for byte.
    pub result: Bytes,
    /// The `capabilities` in it, byte for byte.
    pub capabilities: Bytes,
    /// Its `serverInfo`, byte for byte; empty if it gave none.
    pub server_info: Bytes,
    /// `serverInfo.name`
    pub server_name: Option<String>,
    /// `serverInfo.version`
    pub server_version: Option<String>,
    /// `instructions`
    pub instructions: Option<String>,
}

/// Why a child's session could not be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// One sentence that names what was seen.
    pub text: String,
    /// The child's `error`, byte for byte, if it answered with one.
    pub error: Option<Bytes>,
}

impl ChildIdentity {
    /// What stands in these parts of a child's answer. Copied: slices would hold on to the memory
    /// that the line was read into.
    pub(crate) fn read(
        version: Revision,
        result: &[u8],
        capabilities: &[u8],
        server_info: &[u8],
    ) -> Self {
        let text = |object, name| {
            let value = json::find_member(object, name)?.value;
            Some(json::text(value)?.into_owned())
        };
        Self {
            version,
            result: Bytes::copy_from_slice(result),
            capabilities: Bytes::copy_from_slice(capabilities),
            server_info: Bytes::copy_from_slice(server_info),
            server_name: text(server_info, "name"),
            server_version: text(server_info, "version"),
            instructions: text(result, "instructions"),
        }
    }

    /// The value of the capability `name`, if the child declares it as an object.
    pub fn capability(&self, name: &str) -> Option<&[u8]> {
        let entry = json::find_member(&self.capabilities, name)?;
        (ValueType::of(entry.value) == Some(ValueType::Object)).then_some(entry.value)
    }

    /// Whether the child declares the capability `name`, whatever is in it.
    pub fn offers(&self, name: &str) -> bool {
        self.capability(name).is_some()
    }

    /// Whether `flag` of the capability `name` is `true`: `resources.subscribe` for one.
    pub fn declares(&self, name: &str, flag: &str) -> bool {
        self.capability(name)
            .and_then(|capability| json::find_member(capability, flag))
            .is_some_and(|entry| json::is_true(entry.value))
    }
}
