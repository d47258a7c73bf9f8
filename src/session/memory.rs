//! What a server said of itself when it ran last: its `InitializeResult` and its lists, byte for byte.
//!
//! Decides what is worth keeping and what of it may be told while no child can be asked. Holds the
//! child's own words before `[tools]` is applied, so that rules may change in between. The text
//! that it is written as tells its version and may hold members that nobody here knows. Never
//! reads or writes a file.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::de::IgnoredAny;

use super::catalogue::ListKind;
use super::handshake::Welcome;
use crate::protocol::json;
use crate::protocol::{ChildIdentity, Era};

/// The most that is kept of one list; a longer one is asked for again.
const LIST_LIMIT_BYTES: usize = 192 << 10;
/// A longer `InitializeResult` is not kept.
const IDENTITY_LIMIT_BYTES: usize = 128 << 10;
/// The version of the text. One of another version is as good as none.
const SCHEMA: &[u8] = b"1";

/// What is remembered of one server under one configuration.
#[derive(Clone, Debug)]
pub struct Memory {
    identity: ChildIdentity,
    welcome: Welcome,
    lists: BTreeMap<ListKind, Vec<RememberedPage>>,
}

/// One page of a list as the child gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RememberedPage {
    result: Bytes,
    /// The raw cursor of the next page.
    next: Option<Bytes>,
}

impl Memory {
    /// What a child has just said of itself; nothing if that cannot be told to a legacy host as it
    /// is, or is too long.
    pub(super) fn of(identity: &ChildIdentity, server: &str) -> Option<Self> {
        let is_kept =
            identity.version.era() == Era::Legacy && identity.result.len() <= IDENTITY_LIMIT_BYTES;
        is_kept.then(|| Self {
            identity: identity.clone(),
            welcome: Welcome::of(identity, server),
            lists: BTreeMap::new(),
        })
    }

    /// What hosts are told of the server.
    pub(super) const fn welcome(&self) -> &Welcome {
        &self.welcome
    }

    /// Takes over the lists of `earlier` that the child still offers. They are what hosts may be
    /// told until somebody has seen others.
    pub(super) fn with_lists_of(mut self, earlier: Self) -> Self {
        self.lists = earlier.lists;
        self.lists.retain(|kind, _| self.welcome.offers(*kind));
        self
    }

    /// Whether the child has said the same of itself.
    pub(super) fn has_identity(&self, identity: &ChildIdentity) -> bool {
        self.identity == *identity
    }

    /// The child has given a page of a list. True if a whole list is another one now.
    pub(super) fn note_page(
        &mut self,
        kind: ListKind,
        cursor: Option<&[u8]>,
        result: &[u8],
        next: Option<Bytes>,
    ) -> bool {
        let pages = self.lists.entry(kind).or_default();
        let place = match cursor {
            None => Some(0),
            Some(_) => pages
                .iter()
                .position(|page| page.next.as_deref() == cursor)
                .map(|at| at + 1),
        };
        let Some(place) = place else { return false };
        let page = RememberedPage {
            result: Bytes::copy_from_slice(result),
            next,
        };
        if pages.get(place) == Some(&page) {
            return false;
        }
        pages.truncate(place);
        pages.push(page);
        let held: usize = pages.iter().map(|page| page.result.len()).sum();
        if held > LIST_LIMIT_BYTES {
            return self.forget_list(kind);
        }
        is_whole(pages)
    }

    /// A list is not what it was, and nobody knows what it is. True if a whole one was known.
    pub(super) fn forget_list(&mut self, kind: ListKind) -> bool {
        self.lists
            .remove(&kind)
            .is_some_and(|pages| is_whole(&pages))
    }

    /// The result of a request for one page, if the whole list is known.
    pub(super) fn page(&self, kind: ListKind, cursor: Option<&[u8]>) -> Option<&Bytes> {
        let pages = self.lists.get(&kind).filter(|pages| is_whole(pages))?;
        let place = match cursor {
            None => 0,
            Some(_) => {
                1 + pages
                    .iter()
                    .position(|page| page.next.as_deref() == cursor)?
            }
        };
        pages.get(place).map(|page| &page.result)
    }

    fn render_members(&self, text: &mut Vec<u8>) {
        text.extend_from_slice(b",\"initialize\":");
        text.extend_from_slice(&self.identity.result);
        text.extend_from_slice(b",\"lists\":{");
        let whole = self.lists.iter().filter(|(_, pages)| is_whole(pages));
        for (number, (kind, pages)) in whole.enumerate() {
            text.extend_from_slice(if number == 0 { b"" } else { b"," });
            json::write_text(text, kind.method());
            let pages: Vec<&[u8]> = pages.iter().map(|page| &page.result[..]).collect();
            text.extend_from_slice(b":[");
            text.extend_from_slice(&pages.join(&b','));
            text.push(b']');
        }
        text.push(b'}');
    }

    fn read_members(text: &[u8], server: &str) -> Option<Self> {
        let member = |name| json::find_member(text, name).map(|entry| entry.value);
        let identity = ChildIdentity::of_initialize(member("initialize")?)?;
        let mut memory = Self::of(&identity, server)?;
        let lists = member("lists").unwrap_or_default();
        for kind in ListKind::ALL {
            let Some(entry) = json::find_member(lists, kind.method()) else {
                continue;
            };
            let mut cursor = None;
            for span in json::elements(entry.value) {
                let result = &entry.value[span.range()];
                let next = super::catalogue::next_cursor(result);
                memory.note_page(kind, cursor.as_deref(), result, next.clone());
                cursor = next;
            }
        }
        memory
            .lists
            .retain(|kind, pages| memory.welcome.offers(*kind) && is_whole(pages));
        Some(memory)
    }
}

/// One JSON object that says that a server has run under `configuration`, and what is remembered of
/// it. To be read by [`read_memory`].
pub fn render_memory(configuration: &str, memory: Option<&Memory>) -> Vec<u8> {
    let mut text = b"{\"schema\":".to_vec();
    text.extend_from_slice(SCHEMA);
    text.extend_from_slice(b",\"configuration\":");
    json::write_text(&mut text, configuration);
    if let Some(memory) = memory {
        memory.render_members(&mut text);
    }
    text.extend_from_slice(b"}\n");
    text
}

/// What is in `text`, if it is whole, of this version and of this configuration. There may be
/// nothing but that: that the server has run.
pub fn read_memory(text: &[u8], configuration: &str, server: &str) -> Option<Option<Memory>> {
    serde_json::from_slice::<IgnoredAny>(text).ok()?;
    let member = |name| json::find_member(text, name).map(|entry| entry.value);
    let of = member("configuration").and_then(json::text)?;
    let is_right = member("schema") == Some(SCHEMA) && of == configuration;
    is_right.then(|| Memory::read_members(text, server))
}

fn is_whole(pages: &[RememberedPage]) -> bool {
    pages.last().is_some_and(|page| page.next.is_none())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RESULT: &str = r#"{"protocolVersion":"2025-06-18","capabilities":{"tools":{}, "x":1.0},"serverInfo":{"name":"\ud83d","version":"1"}}"#;

    fn memory() -> Memory {
        let identity = ChildIdentity::of_initialize(RESULT.as_bytes()).unwrap();
        Memory::of(&identity, "srv").unwrap()
    }

    fn read_back(text: &[u8], configuration: &str) -> Option<Memory> {
        read_memory(text, configuration, "srv").flatten()
    }

    fn note(memory: &mut Memory, cursor: Option<&str>, result: &str) -> bool {
        let next = super::super::catalogue::next_cursor(result.as_bytes());
        let cursor = cursor.map(str::as_bytes);
        memory.note_page(ListKind::Tools, cursor, result.as_bytes(), next)
    }

    fn page<'m>(memory: &'m Memory, cursor: Option<&str>) -> Option<&'m str> {
        let page = memory.page(ListKind::Tools, cursor.map(str::as_bytes))?;
        Some(std::str::from_utf8(page).unwrap())
    }

    const ONE: &str = r#"{"tools":[{"name":"a"}], "nextCursor":"n"}"#;
    const TWO: &str = r#"{"tools":[{"name":"b", "n":1.0}]}"#;

    #[test]
    fn a_list_is_told_once_it_is_whole() {
        let mut memory = memory();
        assert_eq!(page(&memory, None), None);
        assert!(!note(&mut memory, None, ONE));
        assert_eq!(page(&memory, None), None);
        assert!(note(&mut memory, Some("\"n\""), TWO));
        assert_eq!(page(&memory, None), Some(ONE));
        assert_eq!(page(&memory, Some("\"n\"")), Some(TWO));
        assert_eq!(page(&memory, Some("\"other\"")), None);
        assert!(!note(&mut memory, None, ONE), "nothing new");
        assert!(!note(&mut memory, Some("\"n\""), TWO), "nothing new");
        assert!(note(&mut memory, None, TWO), "another list");
        assert_eq!(page(&memory, Some("\"n\"")), None);
    }

    #[test]
    fn what_is_written_is_read_byte_for_byte() {
        let mut memory = memory();
        note(&mut memory, None, ONE);
        note(&mut memory, Some("\"n\""), TWO);
        let text = render_memory("c0nf", Some(&memory));
        let read = read_back(&text, "c0nf").unwrap();
        assert!(read.has_identity(&memory.identity));
        assert_eq!(read.lists, memory.lists);
        assert!(read_back(&text, "other").is_none());
        let nothing = render_memory("c", None);
        assert!(matches!(read_memory(&nothing, "c", "srv"), Some(None)));
    }

    #[test]
    fn members_of_later_versions_are_passed_over() {
        let text = String::from_utf8(render_memory("c", Some(&memory()))).unwrap();
        let more = text.replacen('{', "{\"discover\":{\"a\":[1]},", 1);
        assert!(read_back(more.as_bytes(), "c").is_some());
        let other = text.replacen("\"schema\":1", "\"schema\":2", 1);
        assert!(read_back(other.as_bytes(), "c").is_none());
    }

    #[test]
    fn what_is_too_long_or_not_offered_is_not_kept() {
        let mut memory = memory();
        let long = format!("{{\"tools\":[\"{}\"]}}", "x".repeat(LIST_LIMIT_BYTES));
        note(&mut memory, None, &long);
        assert_eq!(page(&memory, None), None);
        let text = String::from_utf8(render_memory("c", Some(&memory))).unwrap();
        let text = text.replace(
            "\"lists\":{",
            "\"lists\":{\"prompts/list\":[{\"prompts\":[]}]",
        );
        let read = read_back(text.as_bytes(), "c").unwrap();
        assert_eq!(read.page(ListKind::Prompts, None), None);
        let long = RESULT.replace("1.0", &format!("\"{}\"", "y".repeat(IDENTITY_LIMIT_BYTES)));
        let identity = ChildIdentity::of_initialize(long.as_bytes()).unwrap();
        assert!(Memory::of(&identity, "srv").is_none());
    }

    proptest! {
        #[test]
        fn garbage_is_as_good_as_nothing(
            at in any::<prop::sample::Index>(),
            bytes in prop::collection::vec(any::<u8>(), 0..8),
        ) {
            let mut memory = memory();
            note(&mut memory, None, TWO);
            let mut text = render_memory("c", Some(&memory));
            let at = at.index(text.len());
            text.splice(at..(at + bytes.len()).min(text.len()), bytes);
            if let Some(read) = read_back(&text, "c") {
                prop_assert!(serde_json::from_slice::<IgnoredAny>(&read.identity.result).is_ok());
            }
        }
    }
}
