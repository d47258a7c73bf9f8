//! What a server offers, as far as hosts have seen it.
//!
//! Decides whether hosts have to be told `list_changed` after a restart: only if the new child's
//! lists differ from those that hosts were given. What no host has listed cannot have gone stale,
//! so nothing is asked of a child before a host has asked for it. Also takes denied tools out of
//! lists.
//!
//! Lists are compared without regard to order and pages, by the bytes of their items.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use bytes::Bytes;

use super::tools::ToolRules;
use crate::protocol::Span;
use crate::protocol::json;

/// Pages of one list that are compared; a server with more is told of as changed.
const PAGES: usize = 1_000;

/// The longest cursor that is kept, in bytes as written.
pub(super) const CURSOR_LIMIT_BYTES: usize = 64 * 1024;

/// The lists of MCP that a host may hold a copy of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ListKind {
    Tools,
    Prompts,
    Resources,
    Templates,
}

impl ListKind {
    pub(super) const ALL: [Self; 4] =
        [Self::Tools, Self::Prompts, Self::Resources, Self::Templates];

    /// The request for one page.
    pub(super) const fn method(self) -> &'static str {
        match self {
            Self::Tools => "tools/list",
            Self::Prompts => "prompts/list",
            Self::Resources => "resources/list",
            Self::Templates => "resources/templates/list",
        }
    }

    /// The member of the result that holds the items.
    pub(super) const fn member(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources => "resources",
            Self::Templates => "resourceTemplates",
        }
    }

    /// The capability without which a server has no such list.
    pub(super) const fn capability(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources | Self::Templates => "resources",
        }
    }

    /// What hosts are told when the list is another one.
    pub(super) const fn changed(self) -> &'static str {
        match self {
            Self::Tools => "notifications/tools/list_changed",
            Self::Prompts => "notifications/prompts/list_changed",
            Self::Resources | Self::Templates => "notifications/resources/list_changed",
        }
    }
}

/// A set of items: how many, and a sum over them that does not depend on their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Digest {
    items: usize,
    sum: u64,
}

impl Digest {
    fn add(&mut self, item: &[u8]) {
        let mut hasher = DefaultHasher::new();
        item.hash(&mut hasher);
        self.items += 1;
        self.sum = self.sum.wrapping_add(hasher.finish());
    }

    const fn plus(self, other: Self) -> Self {
        Self {
            items: self.items + other.items,
            sum: self.sum.wrapping_add(other.sum),
        }
    }
}

/// One page of a list.
#[derive(Clone, Debug, Default)]
pub(super) struct Page {
    digest: Digest,
    /// The raw cursor of the next page.
    pub(super) next: Option<Bytes>,
    /// What has to be replaced in the result so that no denied tool is in it.
    pub(super) edits: Vec<(Span, Vec<u8>)>,
}

/// The raw cursor that a page names for the next one.
pub(super) fn next_cursor(result: &[u8]) -> Option<Bytes> {
    read_cursor(json::find_member(result, "nextCursor")?.value)
}

fn read_cursor(value: &[u8]) -> Option<Bytes> {
    let is_cursor = json::raw_text(value).is_some() && value.len() <= CURSOR_LIMIT_BYTES;
    is_cursor.then(|| Bytes::copy_from_slice(value))
}

/// Reads one page from the result of a list request; the edits are spans of `result`.
pub(super) fn read_page(kind: ListKind, result: &[u8], rules: &ToolRules) -> Page {
    let mut page = Page::default();
    for entry in json::members(result) {
        if entry.is("nextCursor") {
            page.next = read_cursor(entry.value);
        } else if entry.is(kind.member()) {
            let is_denied = |item: &[u8]| kind == ListKind::Tools && is_denied(item, rules);
            if let Some(kept) = page.read_items(entry.value, is_denied) {
                page.edits.push((entry.span, kept));
            }
        }
    }
    page
}

impl Page {
    /// Adds the items of `array`; the array without the denied ones if there are any.
    fn read_items(&mut self, array: &[u8], is_denied: impl Fn(&[u8]) -> bool) -> Option<Vec<u8>> {
        let mut kept = Vec::new();
        let mut has_denied = false;
        for span in json::elements(array) {
            let item = &array[span.range()];
            if is_denied(item) {
                has_denied = true;
            } else {
                self.digest.add(item);
                kept.push(item);
            }
        }
        has_denied.then(|| {
            let mut array = vec![b'['];
            array.extend_from_slice(&kept.join(&b','));
            array.push(b']');
            array
        })
    }
}

/// Whether a tool of a list may not be shown. One whose name stands twice must be allowed by both,
/// since nobody knows which a host reads; one without a name cannot be allowed by any rule.
fn is_denied(tool: &[u8], rules: &ToolRules) -> bool {
    if rules.is_empty() {
        return false;
    }
    let mut names = json::members(tool)
        .filter(|entry| entry.is("name"))
        .peekable();
    names.peek().is_none()
        || names.any(|entry| json::text(entry.value).is_none_or(|name| !rules.allows(&name)))
}

/// The pages of one list from the first on, without a gap.
#[derive(Clone, Debug, Default)]
struct Record {
    pages: Vec<Page>,
}

impl Record {
    fn is_complete(&self) -> bool {
        self.pages.last().is_some_and(|page| page.next.is_none())
    }

    /// As [`Catalogue::describe`] writes it: the pages, all items being of the first.
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let pages: usize = words.next()?.parse().ok()?;
        let digest = Digest {
            items: words.next()?.parse().ok()?,
            sum: words.next()?.parse().ok()?,
        };
        let is_complete: bool = words.next()?.parse().ok()?;
        let mut record = Self {
            pages: vec![Page::default(); pages.min(PAGES)],
        };
        record.pages.first_mut()?.digest = digest;
        // A cursor of an earlier child leads nowhere; that there is one says that more follows.
        record.pages.last_mut()?.next = (!is_complete).then(Bytes::new);
        Some(record)
    }

    fn digest(&self) -> Digest {
        self.pages
            .iter()
            .fold(Digest::default(), |sum, page| sum.plus(page.digest))
    }

    /// Puts a page where `cursor` says that it belongs. Pages behind it are only kept if it is the
    /// page that was there before: cursors of another state of the list lead elsewhere.
    fn put(&mut self, cursor: Option<&[u8]>, page: Page) {
        let place = match cursor {
            None => Some(0),
            Some(_) => self
                .pages
                .iter()
                .position(|one| one.next.as_deref() == cursor)
                .map(|at| at + 1),
        };
        let Some(place) = place.filter(|place| *place < PAGES) else {
            return;
        };
        if self
            .pages
            .get(place)
            .is_some_and(|one| one.digest == page.digest)
        {
            self.pages[place].next = page.next;
            return;
        }
        self.pages.truncate(place);
        self.pages.push(page);
    }
}

/// What comes after one page of our own walk through a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum WalkStep {
    /// The next page has to be asked for.
    More(Bytes),
    /// The list is the one that hosts know.
    Same,
    /// It is not.
    Changed,
}

/// What is known of a list that a host has from an earlier daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resumed {
    /// It is the list that hosts have, or no child has been asked for it yet.
    Same,
    /// It is not.
    Other,
    /// The child has to be asked.
    Unknown,
}

/// The lists that hosts have seen, and our own look at those of a new child.
#[derive(Debug, Default)]
pub(super) struct Catalogue {
    seen: BTreeMap<ListKind, Record>,
    walks: BTreeMap<ListKind, Record>,
}

impl Catalogue {
    /// A host was given a page. While our own walk runs it says nothing: which of the two children
    /// hosts hold a list of is known when the walk ends.
    pub(super) fn note_page(&mut self, kind: ListKind, cursor: Option<&[u8]>, page: Page) {
        if !self.walks.contains_key(&kind) {
            self.seen.entry(kind).or_default().put(
                cursor,
                Page {
                    edits: Vec::new(),
                    ..page
                },
            );
        }
    }

    /// A new child is open. Which lists have to be walked, and which are gone altogether because
    /// the child does not offer them.
    pub(super) fn begin_walks(
        &mut self,
        offers: impl Fn(ListKind) -> bool,
    ) -> (Vec<ListKind>, BTreeSet<&'static str>) {
        let (walked, gone): (Vec<_>, Vec<_>) =
            self.seen.keys().copied().partition(|kind| offers(*kind));
        for kind in &gone {
            self.seen.remove(kind);
        }
        self.walks = walked
            .iter()
            .map(|kind| (*kind, Record::default()))
            .collect();
        (walked, gone.into_iter().map(ListKind::changed).collect())
    }

    /// Our own walk got a page.
    pub(super) fn note_own_page(&mut self, kind: ListKind, page: Page) -> WalkStep {
        let (Some(walk), Some(seen)) = (self.walks.get_mut(&kind), self.seen.get(&kind)) else {
            return WalkStep::Same;
        };
        walk.pages.push(Page {
            edits: Vec::new(),
            ..page
        });
        let has_enough = !seen.is_complete() && walk.pages.len() >= seen.pages.len();
        let next = walk.pages.last().and_then(|page| page.next.clone());
        if let Some(cursor) = next
            && !has_enough
            && walk.pages.len() < PAGES
        {
            return WalkStep::More(cursor);
        }
        let is_same = walk.digest() == seen.digest();
        if let Some(walk) = self.walks.remove(&kind) {
            self.seen.insert(kind, walk);
        }
        if is_same {
            WalkStep::Same
        } else {
            WalkStep::Changed
        }
    }

    /// The new child refused to list what the old one listed: hosts have to be told.
    pub(super) fn note_own_refusal(&mut self, kind: ListKind) -> WalkStep {
        self.walks.remove(&kind);
        match self.seen.remove(&kind) {
            Some(_) => WalkStep::Changed,
            None => WalkStep::Same,
        }
    }

    /// Our own walk came to no end. Whether the list is another one stays unknown.
    pub(super) fn abandon_walk(&mut self, kind: ListKind) {
        self.walks.remove(&kind);
    }

    /// The rules for tools have changed, so that no host's list of tools is right any more.
    pub(super) fn forget_tools(&mut self) {
        self.walks.remove(&ListKind::Tools);
        self.seen.remove(&ListKind::Tools);
    }

    /// The child is gone. What hosts have seen stays.
    pub(super) fn forget_child(&mut self) {
        self.walks.clear();
    }

    /// What hosts have seen of a list, for [`Catalogue::resume`]: how many pages and items, the sum
    /// over them, and whether those are all.
    pub(super) fn describe(&self, kind: ListKind) -> Option<String> {
        let seen = self.seen.get(&kind)?;
        let Digest { items, sum } = seen.digest();
        let (pages, is_complete) = (seen.pages.len(), seen.is_complete());
        (pages > 0).then(|| format!("{pages} {items} {sum} {is_complete}"))
    }

    /// A host comes with a list that an earlier daemon has described. `is_open`: whether there is a
    /// child that can be asked; if not, its first look at the lists of the next one finds out.
    pub(super) fn resume(&mut self, kind: ListKind, seen: &str, is_open: bool) -> Resumed {
        let Some(record) = Record::parse(seen) else {
            return Resumed::Other;
        };
        if let Some(known) = self.seen.get(&kind) {
            return if known.digest() == record.digest() {
                Resumed::Same
            } else {
                Resumed::Other
            };
        }
        self.seen.insert(kind, record);
        if is_open {
            self.walks.insert(kind, Record::default());
            return Resumed::Unknown;
        }
        Resumed::Same
    }

    /// How many tools hosts see, if the whole list has been seen.
    pub(super) fn tools(&self) -> Option<usize> {
        let seen = self
            .seen
            .get(&ListKind::Tools)
            .filter(|seen| seen.is_complete())?;
        Some(seen.digest().items)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(deny: &str) -> ToolRules {
        ToolRules {
            allow: None,
            deny: vec![deny.to_owned()],
        }
    }

    fn page(tools: &str, next: Option<&str>) -> Page {
        let next = next.map_or(String::new(), |next| format!(",\"nextCursor\":\"{next}\""));
        let result = format!("{{\"tools\":{tools}{next}}}");
        read_page(ListKind::Tools, result.as_bytes(), &ToolRules::default())
    }

    /// Filters a result by a rule that denies `rm*`.
    #[track_caller]
    fn check_filter(result: &str, expected: &str) {
        let page = read_page(ListKind::Tools, result.as_bytes(), &rules("rm*"));
        let mut filtered = result.as_bytes().to_vec();
        for (span, kept) in page.edits.iter().rev() {
            filtered.splice(span.range(), kept.iter().copied());
        }
        assert_eq!(String::from_utf8_lossy(&filtered), expected);
    }

    #[test]
    fn denied_tools_are_taken_out_and_the_rest_stays_as_it_is() {
        check_filter(
            r#"{"a": 1, "tools": [ {"name":"ls", "x":1.0} , {"name":"rm"} ], "z":2}"#,
            r#"{"a": 1, "tools": [{"name":"ls", "x":1.0}], "z":2}"#,
        );
        check_filter(
            r#"{"tools": [ {"name":"ls"} ]}"#,
            r#"{"tools": [ {"name":"ls"} ]}"#,
        );
        check_filter(
            r#"{"tools":[{"name":"rm"},{"name":"rmdir"}]}"#,
            r#"{"tools":[]}"#,
        );
    }

    #[test]
    fn a_list_cannot_hide_a_denied_tool() {
        check_filter(r#"{"tools":[{"n\u0061me":"r\u006d"}]}"#, r#"{"tools":[]}"#);
        check_filter(
            r#"{"tools":[{"name":"rm","name":"ls"}]}"#,
            r#"{"tools":[]}"#,
        );
        check_filter(
            r#"{"tools":[],"tools":[{"name":"rm"}]}"#,
            r#"{"tools":[],"tools":[]}"#,
        );
        check_filter(r#"{"tools":[{"title":"x"},7]}"#, r#"{"tools":[]}"#);
    }

    /// Hosts have seen `seen`, a new child lists `now`: what the walk says in the end.
    #[track_caller]
    fn check_walk(seen: &[(&str, Option<&str>)], now: &[(&str, Option<&str>)], end: WalkStep) {
        let mut catalogue = Catalogue::default();
        let mut cursor: Option<Bytes> = None;
        for (tools, next) in seen {
            let page = page(tools, *next);
            let next = page.next.clone();
            catalogue.note_page(ListKind::Tools, cursor.as_deref(), page);
            cursor = next;
        }
        let (walked, gone) = catalogue.begin_walks(|_| true);
        assert_eq!(
            (walked.len(), gone.len()),
            (usize::from(!seen.is_empty()), 0)
        );
        let mut last = WalkStep::Same;
        for (tools, next) in now {
            last = catalogue.note_own_page(ListKind::Tools, page(tools, *next));
            if !matches!(last, WalkStep::More(_)) {
                break;
            }
        }
        assert_eq!(last, end);
    }

    #[test]
    fn equal_lists_are_equal_in_any_order_and_in_any_pages() {
        check_walk(&[("[1,2,3]", None)], &[("[3,2,1]", None)], WalkStep::Same);
        check_walk(
            &[("[1]", Some("a")), ("[2]", None)],
            &[("[1,2]", None)],
            WalkStep::Same,
        );
        check_walk(
            &[("[1,2]", None)],
            &[("[1]", Some("b")), ("[2]", None)],
            WalkStep::Same,
        );
    }

    #[test]
    fn any_difference_is_seen() {
        check_walk(&[("[1]", None)], &[("[1,2]", None)], WalkStep::Changed);
        check_walk(&[("[1,2]", None)], &[("[1]", None)], WalkStep::Changed);
        check_walk(&[("[1]", None)], &[("[2]", None)], WalkStep::Changed);
        check_walk(
            &[("[1]", None)],
            &[("[1]", Some("x")), ("[2]", None)],
            WalkStep::Changed,
        );
    }

    #[test]
    fn of_a_list_that_was_seen_in_part_that_part_is_compared() {
        check_walk(
            &[("[1]", Some("a"))],
            &[("[1]", Some("b")), ("[2]", None)],
            WalkStep::Same,
        );
        check_walk(
            &[("[1]", Some("a"))],
            &[("[2]", Some("b")), ("[2]", None)],
            WalkStep::Changed,
        );
    }

    #[test]
    fn what_nobody_listed_is_not_walked() {
        check_walk(&[], &[], WalkStep::Same);
    }

    #[test]
    fn a_second_host_that_lists_less_does_not_shorten_what_is_known() {
        let mut catalogue = Catalogue::default();
        catalogue.note_page(ListKind::Tools, None, page("[1,2]", Some("a")));
        catalogue.note_page(ListKind::Tools, Some(b"\"a\""), page("[3]", None));
        assert_eq!(catalogue.tools(), Some(3));
        catalogue.note_page(ListKind::Tools, None, page("[1,2]", Some("a")));
        assert_eq!(catalogue.tools(), Some(3));
        catalogue.note_page(ListKind::Tools, None, page("[9]", Some("a")));
        assert_eq!(catalogue.tools(), None);
    }

    #[test]
    fn lists_that_are_not_offered_any_more_are_told_at_once() {
        let mut catalogue = Catalogue::default();
        catalogue.note_page(ListKind::Tools, None, page("[1]", None));
        let (walked, gone) = catalogue.begin_walks(|kind| kind != ListKind::Tools);
        assert!(walked.is_empty());
        assert!(gone.contains("notifications/tools/list_changed"));
        assert_eq!(catalogue.tools(), None);
    }
}
