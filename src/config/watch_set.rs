//! Which folders to watch, so that no edit of the configuration goes unseen.
//!
//! It decides, from the paths that the loader used and what stands on the way to them, the folders
//! in which something can happen that matters, and the names that matter in each. A path may lead
//! over links at any of its parts: the folder that holds a link is watched as well as the one it
//! leads to, and what a path leads to is found out anew each time. It never looks at the disk
//! itself, never watches below a folder, and never a store of packages: what stands there does not
//! change, and to watch all of it would use up what the user may watch.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};

use super::spec::is_server_file_name;

/// The most folders that are watched.
const FOLDER_LIMIT: usize = 4_096;

/// Links that are followed on the way to one file, as the kernel has it (path_resolution(7)).
const LINK_LIMIT: usize = 40;

/// Folders of packages that never change once they are there.
const STORES: [&str; 2] = ["/nix/store", "/gnu/store"];

/// What the loader used and found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    pub servers_dir: PathBuf,
    pub folder: FolderSight,
    /// The files of servers, whatever is in them.
    pub server_files: BTreeSet<PathBuf>,
    /// The files that values of enabled servers come from, whether or not they could be read.
    pub sources: BTreeSet<PathBuf>,
    pub has_daemon_file: bool,
}

/// How the folder of servers was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FolderSight {
    #[default]
    Read,
    Missing,
    Unreadable,
}

/// What stands at a path, the link itself where there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    Missing,
    Folder,
    Link(PathBuf),
    /// Anything that nothing stands below.
    File,
}

/// What matters in one folder. Nothing in it may matter but that it stays where it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interest {
    names: BTreeSet<OsString>,
    server_files: bool,
}

impl Interest {
    /// Whether something that happens to the entry `name` can change what was loaded.
    pub fn concerns(&self, name: &OsStr) -> bool {
        self.names.contains(name) || self.server_files && is_server_file_name(name)
    }

    /// Whether only the folder itself matters, and none of its entries.
    pub fn is_of_itself_only(&self) -> bool {
        self.names.is_empty() && !self.server_files
    }

    /// What matters to either.
    pub fn join(&mut self, other: &Self) {
        self.names.extend(other.names.iter().cloned());
        self.server_files |= other.server_files;
    }
}

/// The folders to watch, each by its real path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchSet {
    pub folders: BTreeMap<PathBuf, Interest>,
    /// Whether there are more than can be watched.
    pub is_cut: bool,
}

impl WatchSet {
    /// The folders to watch for the configuration in `config_dir`, of which the loader has `seen`
    /// what it lists. `look` tells what stands at an absolute path.
    pub fn derive(config_dir: &Path, seen: &Seen, look: impl Fn(&Path) -> Node) -> Self {
        let mut trace = Trace {
            look,
            known: BTreeMap::new(),
            set: Self::default(),
        };
        trace.follow(&config_dir.join("mcpd.toml"));
        let folder = trace.follow(&config_dir.join("servers.d"));
        if let Some(interest) = folder.and_then(|folder| trace.interest(&folder)) {
            interest.server_files = true;
        }
        for path in seen.server_files.iter().chain(&seen.sources) {
            trace.follow(path);
        }
        trace.set
    }
}

/// The walk over all paths.
struct Trace<L> {
    look: L,
    known: BTreeMap<PathBuf, Node>,
    set: WatchSet,
}

impl<L: Fn(&Path) -> Node> Trace<L> {
    /// Watches everything that decides what `path` leads to; returns the folder that it is, if it
    /// is one.
    fn follow(&mut self, path: &Path) -> Option<PathBuf> {
        let mut at = PathBuf::from("/");
        let mut left = parts_reversed(path);
        let mut links = 0;
        while let Some(part) = left.pop() {
            if part == ".." {
                at.pop();
                continue;
            }
            let here = at.join(&part);
            let is_last = left.is_empty();
            match self.node(&here) {
                Node::Folder => {
                    if is_last {
                        self.watch_for(&at, &part);
                    }
                    // Whoever moves it away takes all below it along.
                    self.interest(&here);
                    at = here;
                }
                Node::Link(target) => {
                    self.watch_for(&at, &part);
                    links += 1;
                    if links > LINK_LIMIT {
                        return None;
                    }
                    if target.is_absolute() {
                        at = PathBuf::from("/");
                    }
                    left.append(&mut parts_reversed(&target));
                }
                // It is made here, or replaced here.
                Node::Missing | Node::File => {
                    self.watch_for(&at, &part);
                    return None;
                }
            }
        }
        Some(at)
    }

    fn node(&mut self, path: &Path) -> Node {
        if let Some(node) = self.known.get(path) {
            return node.clone();
        }
        let node = (self.look)(path);
        self.known.insert(path.to_owned(), node.clone());
        node
    }

    fn watch_for(&mut self, folder: &Path, name: &OsStr) {
        if let Some(interest) = self.interest(folder) {
            interest.names.insert(name.to_owned());
        }
    }

    fn interest(&mut self, folder: &Path) -> Option<&mut Interest> {
        if STORES.iter().any(|store| folder.starts_with(store)) {
            return None;
        }
        let folders = &mut self.set.folders;
        if folders.len() >= FOLDER_LIMIT && !folders.contains_key(folder) {
            self.set.is_cut = true;
            return None;
        }
        Some(folders.entry(folder.to_owned()).or_default())
    }
}

/// The parts of a path, the first one last; `..` is a part, `/` and `.` are none.
fn parts_reversed(path: &Path) -> Vec<OsString> {
    let part = |component: Component<'_>| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    };
    path.components().rev().filter_map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What stands at `path` in a file system of `entries`: `a/` is a folder, `a -> b` a link.
    fn look<'a>(entries: &'a [&'a str]) -> impl Fn(&Path) -> Node + 'a {
        move |path| {
            let path = path.to_str().unwrap();
            let stands = |entry: &&str| match entry.split_once(" -> ") {
                Some((from, to)) if from == path => Some(Node::Link(to.into())),
                None if entry.trim_end_matches('/') == path && entry.ends_with('/') => {
                    Some(Node::Folder)
                }
                None if *entry == path => Some(Node::File),
                _ => None,
            };
            let above = format!("{path}/");
            let implied = entries.iter().any(|entry| entry.starts_with(&above));
            let found = entries.iter().find_map(stands);
            found.unwrap_or(if implied { Node::Folder } else { Node::Missing })
        }
    }

    /// The folders of `/c` with these entries, each with the names that matter (`*` for the files of
    /// servers), without those of which only the place matters.
    #[track_caller]
    fn check(entries: &[&str], sources: &[&str], expected: &[&str]) {
        let shown: Vec<String> = derive(entries, sources)
            .folders
            .iter()
            .filter(|(_, interest)| !interest.is_of_itself_only())
            .map(|(folder, interest)| {
                let names = interest.names.iter().map(|name| name.to_str().unwrap());
                let names: Vec<&str> = interest
                    .server_files
                    .then_some("*")
                    .into_iter()
                    .chain(names.filter(|name| !interest.server_files || !is_toml(name)))
                    .collect();
                format!("{}: {}", folder.display(), names.join(" "))
            })
            .collect();
        assert_eq!(shown, expected);
    }

    fn is_toml(name: &str) -> bool {
        name.ends_with(".toml")
    }

    fn derive(entries: &[&str], sources: &[&str]) -> WatchSet {
        let prefix = "/c/servers.d/";
        let file = |entry: &&str| entry.split(" -> ").next().map(PathBuf::from);
        let seen = Seen {
            server_files: entries
                .iter()
                .filter(|entry| entry.starts_with(prefix))
                .filter_map(file)
                .filter(|path| is_server_file_name(path.file_name().unwrap()))
                .collect(),
            sources: sources.iter().map(PathBuf::from).collect(),
            ..Seen::default()
        };
        WatchSet::derive(Path::new("/c"), &seen, look(entries))
    }

    #[test]
    fn the_folder_of_servers_and_its_parent_are_watched() {
        check(
            &["/c/mcpd.toml", "/c/servers.d/a.toml"],
            &[],
            &["/c: mcpd.toml servers.d", "/c/servers.d: *"],
        );
    }

    #[test]
    fn what_is_missing_is_awaited_in_the_nearest_folder() {
        check(&["/x/"], &[], &["/: c"]);
        check(&["/c/"], &[], &["/c: mcpd.toml servers.d"]);
        check(
            &["/c/servers.d/a.toml", "/h/"],
            &["/h/secrets/key"],
            &["/c: mcpd.toml servers.d", "/c/servers.d: *", "/h: secrets"],
        );
    }

    #[test]
    fn a_link_is_watched_at_both_ends() {
        check(
            &["/c/servers.d/a.toml -> ../../dots/a.toml", "/dots/a.toml"],
            &[],
            &[
                "/c: mcpd.toml servers.d",
                "/c/servers.d: *",
                "/dots: a.toml",
            ],
        );
        check(
            &[
                "/c -> /dots/mcpd",
                "/dots/mcpd/servers.d -> /real",
                "/real/",
            ],
            &[],
            &["/: c real", "/dots/mcpd: mcpd.toml servers.d", "/real: *"],
        );
    }

    #[test]
    fn a_chain_of_links_is_watched_at_each_of_them() {
        check(
            &["/c/servers.d/", "/s/now -> v1", "/s/v1 -> /t", "/t/key"],
            &["/s/now/key"],
            &[
                "/c: mcpd.toml servers.d",
                "/c/servers.d: *",
                "/s: now v1",
                "/t: key",
            ],
        );
    }

    #[test]
    fn a_store_of_packages_is_never_watched() {
        let entries = [
            "/c/servers.d/a.toml -> /nix/store/1-files/a.toml",
            "/c/servers.d/b.toml -> /nix/store/b.toml",
            "/nix/store/1-files/a.toml -> /nix/store/2-a.toml",
            "/nix/store/2-a.toml",
            "/nix/store/b.toml",
        ];
        check(
            &entries,
            &[],
            &["/c: mcpd.toml servers.d", "/c/servers.d: *"],
        );
        let set = derive(&entries, &[]);
        assert!(
            !set.folders
                .keys()
                .any(|path| path.starts_with("/nix/store"))
        );
    }

    #[test]
    fn every_folder_on_the_way_is_watched_for_its_place() {
        let seen = Seen::default();
        let set = WatchSet::derive(
            Path::new("/home/ada/.config/mcpd"),
            &seen,
            look(&["/home/ada/.config/mcpd/servers.d/"]),
        );
        let folders: Vec<&str> = set
            .folders
            .keys()
            .map(|path| path.to_str().unwrap())
            .collect();
        assert_eq!(
            folders,
            [
                "/home",
                "/home/ada",
                "/home/ada/.config",
                "/home/ada/.config/mcpd",
                "/home/ada/.config/mcpd/servers.d",
            ]
        );
        assert!(set.folders[Path::new("/home/ada")].is_of_itself_only());
    }

    #[test]
    fn links_in_a_circle_come_to_an_end() {
        check(&["/c -> /d", "/d -> /c"], &[], &["/: c d"]);
    }

    #[test]
    fn editors_litter_concerns_nobody() {
        let set = derive(&["/c/servers.d/a.toml"], &["/c/servers.d/.env"]);
        let interest = &set.folders[Path::new("/c/servers.d")];
        for name in ["a.toml", "new.toml", ".env"] {
            assert!(interest.concerns(OsStr::new(name)), "{name}");
        }
        for name in [
            "a.toml~",
            ".a.toml.swp",
            "4913",
            "#a.toml#",
            ".#a.toml",
            ".hidden.toml",
            "a.toml.rpmnew",
            "a.toml.tmp",
            ".env~",
        ] {
            assert!(!interest.concerns(OsStr::new(name)), "{name}");
        }
    }

    #[test]
    fn there_is_an_end_to_what_is_watched() {
        let sources: Vec<String> = (0..FOLDER_LIMIT).map(|n| format!("/s/{n}/key")).collect();
        let seen = Seen {
            sources: sources.iter().map(PathBuf::from).collect(),
            ..Seen::default()
        };
        let is_key = |path: &Path| path.ends_with("key");
        let look = |path: &Path| {
            if is_key(path) {
                Node::File
            } else {
                Node::Folder
            }
        };
        let set = WatchSet::derive(Path::new("/c"), &seen, look);
        assert_eq!((set.folders.len(), set.is_cut), (FOLDER_LIMIT, true));
    }

    proptest! {
        /// Whatever the links are, the walk ends, and each link that was followed is watched.
        #[test]
        fn any_links_can_be_followed(
            targets in prop::collection::vec("(\\.\\./|/)?[a-c](/[a-c])?", 1..6),
        ) {
            let names = ["/a", "/b", "/c", "/a/b", "/b/c", "/c/a"];
            let entries: Vec<String> = names
                .iter()
                .zip(&targets)
                .map(|(name, target)| format!("{name} -> {target}"))
                .collect();
            let entries: Vec<&str> = entries.iter().map(String::as_str).collect();
            let seen = Seen::default();
            let set = WatchSet::derive(Path::new("/c/a"), &seen, look(&entries));
            prop_assert!(set.folders.contains_key(Path::new("/")));
        }
    }
}
