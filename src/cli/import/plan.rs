//! Which servers there are in what was found: the same in several hosts is one, differing ones of one
//! name are told apart.
//!
//! It decides the names. It reads and writes nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::carry::Carried;
use crate::cli::server_name::{NAME_LIMIT_CHARS, server_name};
use crate::config::spec::ServerName;

/// One entry of a host that can be carried.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    /// What the host calls it.
    pub(super) name: String,
    pub(super) source: Source,
    pub(super) carried: Carried,
}

/// Where an entry stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Source {
    /// The host, as people call it.
    pub(super) label: String,
    /// A word for the host, and one for the project, to tell servers apart by.
    pub(super) tag: String,
    pub(super) file: PathBuf,
    pub(super) path: Vec<String>,
}

/// A server that is to be.
#[derive(Clone, Debug)]
pub(super) struct Planned {
    pub(super) name: ServerName,
    pub(super) sources: Vec<Source>,
    pub(super) carried: Carried,
}

/// The servers of `candidates`, in the order in which they were found.
pub(super) fn plan(candidates: Vec<Candidate>) -> Vec<Planned> {
    let mut groups: Vec<(String, Vec<Source>, Carried)> = Vec::new();
    for candidate in candidates {
        match groups
            .iter_mut()
            .find(|group| is_same(&group.2, &candidate.carried))
        {
            Some(group) => {
                group.1.push(candidate.source);
                // One that is switched on anywhere is switched on.
                group.2.server.is_disabled &= candidate.carried.server.is_disabled;
            }
            None => groups.push((
                server_name(&candidate.name),
                vec![candidate.source],
                candidate.carried,
            )),
        }
    }
    let mut taken: BTreeMap<String, ()> = BTreeMap::new();
    let mut planned = Vec::new();
    for (name, sources, carried) in groups {
        let tag = sources.first().map_or("", |source| source.tag.as_str());
        let name = free_name(&name, tag, |name| {
            taken.contains_key(&name.to_ascii_lowercase())
        });
        taken.insert(name.to_ascii_lowercase(), ());
        planned.extend(ServerName::parse(&name).map(|name| Planned {
            name,
            sources,
            carried,
        }));
    }
    planned
}

fn is_same(one: &Carried, other: &Carried) -> bool {
    let mut other = other.clone();
    other.server.is_disabled = one.server.is_disabled;
    *one == other
}

/// `wanted`, or with the tag behind it, or with a number.
fn free_name(wanted: &str, tag: &str, is_taken: impl Fn(&str) -> bool) -> String {
    let with = |ending: &str| {
        let room = NAME_LIMIT_CHARS.saturating_sub(ending.len() + 1);
        let kept: String = wanted.chars().take(room).collect();
        format!("{kept}-{ending}")
    };
    let tagged = with(tag);
    let numbered = (2_u32..).map(|number| with(&number.to_string()));
    [wanted.to_owned(), tagged]
        .into_iter()
        .chain(numbered)
        .find(|name| !is_taken(name))
        .unwrap_or_default()
}

/// A word for a host's file: the host, or the folder of its project.
pub(super) fn tag_of(host: &str, project: Option<&Path>) -> String {
    let folder = project.and_then(Path::file_name);
    let folder = folder.map(|name| server_name(&name.to_string_lossy()));
    folder.unwrap_or_else(|| host.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn candidate(name: &str, tag: &str, command: &str, is_disabled: bool) -> Candidate {
        let mut carried = Carried::default();
        carried.server.command = command.to_owned();
        carried.server.is_disabled = is_disabled;
        Candidate {
            name: name.to_owned(),
            source: Source {
                label: tag.to_owned(),
                tag: tag.to_owned(),
                file: PathBuf::from(tag),
                path: vec![name.to_owned()],
            },
            carried,
        }
    }

    #[test]
    fn the_same_is_one_and_others_are_told_apart() {
        let planned = plan(vec![
            candidate("github", "claude-code", "npx", true),
            candidate("GitHub", "cursor", "npx", false),
            candidate("github", "zed", "docker", false),
            candidate("github", "zed", "podman", false),
        ]);
        let shown: Vec<(&str, usize, bool)> = planned
            .iter()
            .map(|one| {
                (
                    one.name.as_str(),
                    one.sources.len(),
                    one.carried.server.is_disabled,
                )
            })
            .collect();
        assert_eq!(
            shown,
            [
                ("github", 2, false),
                ("github-zed", 1, false),
                ("github-2", 1, false)
            ]
        );
    }

    proptest! {
        #[test]
        fn names_are_valid_and_differ(names in prop::collection::vec("\\PC{0,90}", 0..8)) {
            let candidates = names.iter().enumerate()
                .map(|(at, name)| candidate(name, "cursor", &at.to_string(), false));
            let planned = plan(candidates.collect());
            prop_assert_eq!(planned.len(), names.len());
            let mut seen: Vec<String> = planned.iter()
                .map(|one| one.name.as_str().to_ascii_lowercase()).collect();
            seen.sort();
            seen.dedup();
            prop_assert_eq!(seen.len(), names.len());
        }
    }
}
