//! Which copy of a server a worker holds, and what that is called.
//!
//! A server has one worker by its own name for as long as it has a file. Shared, that worker has the
//! child. Otherwise it never has one: it stands for the server in `status` while there is no
//! instance, and holds the hosts that can have none (the file is bad, or the server is disabled).
//! Each instance is a worker of its own beside it, made by the registry for the first attachment
//! that belongs there; one of a directory ends when it has been idle, one of a host with that host.
//!
//! Decides the names: `NAME`, `NAME@DIRECTORY` and `NAME#N` for people, and a form of the same that
//! fits into the name of a file for tags, control groups and records. A path may hold anything and be
//! 4,096 bytes long, so there its keyed hash stands for it. Never decides who belongs where; that
//! is the registry's.

use std::path::Path;
use std::sync::Arc;

use crate::config::fingerprint::{Fingerprint, HashKey};
use crate::instance::Owner;

/// Instances of one server that has one for each directory.
pub(crate) const DIRECTORY_LIMIT: usize = 32;

/// One copy of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    server: Arc<str>,
    owner: Owner,
    name: Arc<str>,
    file_name: Arc<str>,
}

impl Named {
    pub(crate) fn new(server: &str, owner: Owner, key: &HashKey) -> Self {
        let server: Arc<str> = Arc::from(server);
        let (name, file_name) = match &owner {
            Owner::Server => (server.clone(), server.clone()),
            Owner::Directory(directory) => {
                let hash = Fingerprint::of(key, directory.as_os_str().as_encoded_bytes());
                let name = directory_name(&server, directory);
                (Arc::from(name), Arc::from(format!("{server}@{hash}")))
            }
            Owner::Host(number) => {
                let name: Arc<str> = Arc::from(format!("{server}#{number}"));
                (name.clone(), name)
            }
        };
        Self {
            server,
            owner,
            name,
            file_name,
        }
    }

    /// The server whose copy it is.
    pub(crate) fn server(&self) -> &Arc<str> {
        &self.server
    }

    /// What people see and type.
    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The same for where a path cannot stand.
    pub(crate) fn file_name(&self) -> &str {
        &self.file_name
    }

    pub(crate) fn owner(&self) -> &Owner {
        &self.owner
    }

    /// Whether what was asked of `asked` is asked of this one: it may be named by itself or by its
    /// server.
    pub(crate) fn answers_to(&self, asked: &str) -> bool {
        asked == &*self.name || asked == &*self.server
    }
}

/// The server that an instance of this name would be of.
pub(crate) fn server_of(name: &str) -> &str {
    name.split_once(['@', '#'])
        .map_or(name, |(server, _)| server)
}

/// What the instance of a directory is called.
pub(crate) fn directory_name(server: &str, directory: &Path) -> String {
    format!("{server}@{}", directory.display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key() -> HashKey {
        HashKey([7; 32])
    }

    fn of(server: &str, owner: Owner) -> Named {
        Named::new(server, owner, &key())
    }

    #[test]
    fn the_three_kinds_have_three_names() {
        let shared = of("fs", Owner::Server);
        assert_eq!((&**shared.name(), shared.file_name()), ("fs", "fs"));
        let host = of("fs", Owner::Host(12));
        assert_eq!((&**host.name(), host.file_name()), ("fs#12", "fs#12"));
        let directory = of("fs", Owner::Directory("/home/u/a b".into()));
        assert_eq!(&**directory.name(), "fs@/home/u/a b");
        for instance in [&shared, &host, &directory] {
            assert_eq!(server_of(instance.name()), "fs");
            assert_eq!(server_of(instance.file_name()), "fs");
            assert!(instance.answers_to("fs") && instance.answers_to(instance.name()));
            assert!(!instance.answers_to("f"));
        }
        assert!(!shared.answers_to("fs#12") && !host.answers_to("fs#1"));
    }

    proptest! {
        /// A name of a file for every directory that there can be, and none for two of them.
        #[test]
        fn the_file_name_of_a_directory_is_short_and_plain(
            one in "/[^\0]{0,4095}", other in "/[a-c/. ]{0,9}",
        ) {
            let name = |directory: &str| {
                let owner = Owner::Directory(directory.into());
                of(&"n".repeat(64), owner).file_name().to_owned()
            };
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"@._-".contains(&byte);
            prop_assert!(name(&one).len() <= 200 && name(&one).bytes().all(plain));
            prop_assert_eq!(name(&one) == name(&other), one == other);
        }
    }
}
