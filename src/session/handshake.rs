//! What the child said in its `InitializeResult`, and what hosts are told of it.
//!
//! Decides which of the child's capabilities hosts see: `listChanged` wherever tools, prompts or
//! resources are offered, since a restart may change any list, and no `tasks`, since ids of tasks
//! would be shared. Every other byte of the result passes as it came; only the version differs from
//! host to host.

use bytes::Bytes;

use super::catalogue::ListKind;
use crate::protocol::eras::for_modern::initialize_result;
use crate::protocol::json::{self, ValueType};
use crate::protocol::{ChildIdentity, Era, Span, Version};

/// What takes the place of a span of the child's result.
#[derive(Clone, Debug)]
enum Change {
    /// The version that the host is told.
    Version,
    Bytes(Vec<u8>),
}

/// A child's `InitializeResult`, ready to be told to any host.
#[derive(Clone, Debug)]
pub(super) struct Welcome {
    version: Version,
    result: Bytes,
    /// In the order of their places.
    changes: Vec<(Span, Change)>,
    offered: Vec<ListKind>,
    capabilities: Vec<u8>,
}

impl Welcome {
    /// What hosts are told of this child. `server` names it if it does not name itself.
    pub(super) fn of(identity: &ChildIdentity, server: &str) -> Self {
        if identity.version.era() == Era::Modern {
            return Self::of_modern(identity, server);
        }
        let mut welcome = Self {
            version: identity.version.newest_for_legacy_hosts(),
            result: identity.result.clone(),
            changes: Vec::new(),
            offered: Vec::new(),
            capabilities: b"{}".to_vec(),
        };
        for entry in json::members(&identity.result) {
            if entry.is("protocolVersion") {
                welcome.changes.push((entry.span, Change::Version));
            } else if entry.is("capabilities") {
                let capabilities = welcome.read_capabilities(entry.value);
                welcome.capabilities.clone_from(&capabilities);
                welcome
                    .changes
                    .push((entry.span, Change::Bytes(capabilities)));
            }
        }
        if json::find_member(&identity.result, "serverInfo").is_none() {
            welcome.add_server_info(server);
        }
        welcome
    }

    /// What legacy hosts are told of a modern child: what it declares, and no more.
    fn of_modern(identity: &ChildIdentity, server: &str) -> Self {
        let result = Bytes::from(initialize_result(identity, server));
        let version = json::find_member(&result, "protocolVersion").map(|entry| entry.span);
        let offered = ListKind::ALL
            .into_iter()
            .filter(|kind| identity.offers(kind.capability()));
        Self {
            version: identity.version.newest_for_legacy_hosts(),
            changes: version
                .into_iter()
                .map(|span| (span, Change::Version))
                .collect(),
            offered: offered.collect(),
            capabilities: identity.capabilities.to_vec(),
            result,
        }
    }

    /// The newest version that a legacy host is told.
    pub(super) const fn version(&self) -> Version {
        self.version
    }

    /// The capabilities as hosts see them.
    pub(super) fn capabilities(&self) -> &[u8] {
        &self.capabilities
    }

    /// Whether the child declared what stands behind this list.
    pub(super) fn offers(&self, kind: ListKind) -> bool {
        self.offered.contains(&kind)
    }

    /// The result for a host that is told `version`.
    pub(super) fn result_for(&self, version: Version) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.result.len() + 64);
        let mut at = 0;
        for (span, change) in &self.changes {
            out.extend_from_slice(&self.result[at..span.start()]);
            match change {
                Change::Version => json::write_text(&mut out, version.as_str()),
                Change::Bytes(bytes) => out.extend_from_slice(bytes),
            }
            at = span.end();
        }
        out.extend_from_slice(&self.result[at..]);
        out
    }

    /// The capabilities as hosts see them; notes which lists there are.
    fn read_capabilities(&mut self, capabilities: &[u8]) -> Vec<u8> {
        let mut members = Vec::new();
        for entry in json::members(capabilities).filter(|entry| !entry.is("tasks")) {
            let name = &capabilities[entry.key_start..entry.span.start()];
            let lists = ListKind::ALL
                .iter()
                .filter(|kind| entry.is(kind.capability()));
            let before = self.offered.len();
            self.offered.extend(lists);
            let value = if self.offered.len() > before {
                with_list_changed(entry.value)
            } else {
                entry.value.to_vec()
            };
            members.push([name, &value].concat());
        }
        [b"{", members.join(&b',').as_slice(), b"}"].concat()
    }

    /// Hosts insist on `serverInfo`. Behind the brace a comma is always right, because
    /// `protocolVersion` follows somewhere.
    fn add_server_info(&mut self, server: &str) {
        let mut added = b"\"serverInfo\":{\"name\":".to_vec();
        json::write_text(&mut added, server);
        added.extend_from_slice(b",\"version\":\"0\"},");
        let inside = self
            .result
            .iter()
            .position(|byte| *byte == b'{')
            .map_or(0, |at| at + 1);
        self.changes
            .insert(0, (Span::new(inside, inside), Change::Bytes(added)));
    }
}

/// A capability that says of itself that its list may change.
fn with_list_changed(capability: &[u8]) -> Vec<u8> {
    if ValueType::of(capability) != Some(ValueType::Object) {
        return capability.to_vec();
    }
    let mut out = Vec::with_capacity(capability.len() + 24);
    let mut at = 0;
    for entry in json::members(capability).filter(|entry| entry.is("listChanged")) {
        out.extend_from_slice(&capability[at..entry.span.start()]);
        out.extend_from_slice(b"true");
        at = entry.span.end();
    }
    if at == 0 {
        let has_members = json::members(capability).next().is_some();
        out.extend_from_slice(b"{\"listChanged\":true");
        out.extend_from_slice(if has_members { b"," } else { b"" });
        at = 1;
    }
    out.extend_from_slice(&capability[at..]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Revision;

    fn welcome(result: &str) -> Welcome {
        let part = |name| json::find_member(result.as_bytes(), name).map(|entry| entry.value);
        let identity = ChildIdentity::read(
            Revision::Legacy(Version::V2025_11_25),
            result.as_bytes(),
            part("capabilities").unwrap_or_default(),
            b"",
        );
        Welcome::of(&identity, "srv")
    }

    /// What a host that speaks 2025-03-26 is told of a child's result.
    #[track_caller]
    fn check(result: &str, told: &str) {
        let result = welcome(result).result_for(Version::V2025_03_26);
        assert_eq!(String::from_utf8_lossy(&result), told);
    }

    #[test]
    fn only_the_version_and_the_capabilities_differ() {
        check(
            r#"{ "x": 1.0, "serverInfo":{"name":"\ud83d"}, "capabilities" : {"logging":{ }}, "protocolVersion" : "2025-06-18" , "instructions":"hi"}"#,
            r#"{ "x": 1.0, "serverInfo":{"name":"\ud83d"}, "capabilities" : {"logging":{ }}, "protocolVersion" : "2025-03-26" , "instructions":"hi"}"#,
        );
    }

    #[test]
    fn list_changed_is_declared_wherever_there_is_a_list() {
        check(
            r#"{"protocolVersion":"2025-06-18","serverInfo":{},"capabilities":{"tools":{},"prompts":{"listChanged": false,"z":1},"resources":{"subscribe":true},"completions":{}}}"#,
            r#"{"protocolVersion":"2025-03-26","serverInfo":{},"capabilities":{"tools":{"listChanged":true},"prompts":{"listChanged": true,"z":1},"resources":{"listChanged":true,"subscribe":true},"completions":{}}}"#,
        );
    }

    #[test]
    fn tasks_are_not_offered() {
        check(
            r#"{"protocolVersion":"2025-11-25","serverInfo":{},"capabilities":{"tasks":{"list":{}},"experimental":{"a":[1, 2]}}}"#,
            r#"{"protocolVersion":"2025-03-26","serverInfo":{},"capabilities":{"experimental":{"a":[1, 2]}}}"#,
        );
    }

    #[test]
    fn a_server_without_a_name_is_given_ours() {
        check(
            r#"{"protocolVersion":"2025-11-25"}"#,
            r#"{"serverInfo":{"name":"srv","version":"0"},"protocolVersion":"2025-03-26"}"#,
        );
    }

    #[test]
    fn lists_are_offered_where_their_capability_is() {
        let welcome = welcome(r#"{"protocolVersion":"x","capabilities":{"resources":{}}}"#);
        let offered: Vec<_> = ListKind::ALL
            .into_iter()
            .filter(|kind| welcome.offers(*kind))
            .collect();
        assert_eq!(offered, [ListKind::Resources, ListKind::Templates]);
    }
}
