//! Which instance a host belongs to, and which instances a name means.
//!
//! Makes the instance that the first host of a directory, or any host where each has its own, needs.
//! Decides nothing about their children: each is held by its worker like any server.

use std::path::PathBuf;
use std::sync::Arc;

use crate::config::spec::Sharing;
use crate::control::{ControlError, ErrorKind};
use crate::ids::HostKey;
use crate::instance::{Owner, Setting};
use crate::supervise::Mode;

use super::super::named::{DIRECTORY_LIMIT, Named, directory_name, server_of};
use super::super::worker::{Command, WorkerHandle};
use super::{Registry, STRANGER_LIMIT, Slot, tell};

impl Slot {
    /// Has the worker end what it holds. The slot goes once it has.
    pub(super) async fn dismiss(&mut self) {
        if !std::mem::replace(&mut self.is_leaving, true) {
            tell(&self.worker, Command::Shutdown(Mode::Polite)).await;
        }
    }

    /// Whether it is shown: not what stands for a server whose instances stand for themselves.
    fn is_shown(&self, has_instances: bool) -> bool {
        !(self.setting.is_unknown() || has_instances && self.setting.is_split())
    }
}

impl Registry {
    /// The name of the instance that a new host belongs to.
    pub(super) fn place(
        &mut self,
        asked: &str,
        directory: Option<PathBuf>,
        host: HostKey,
    ) -> Result<Arc<str>, ControlError> {
        let server = server_of(asked);
        let home = self.home(server)?;
        let Some(setting) = self.slots.get(&home).map(|slot| slot.setting.clone()) else {
            return Err(ControlError::new(ErrorKind::Internal, "the worker is gone"));
        };
        let named = asked.strip_prefix(server).unwrap_or_default();
        if !setting.is_split() || !setting.is_enabled() {
            return match named {
                "" => Ok(home),
                _ => Err(no_such(asked)),
            };
        }
        let owner = match (setting.sharing(), named.strip_prefix('@')) {
            (Sharing::PerDirectory, Some(directory)) => Owner::Directory(directory.into()),
            (Sharing::PerDirectory, None) if named.is_empty() => {
                let directory = directory.ok_or_else(|| without_directory(server))?;
                Owner::Directory(directory)
            }
            (Sharing::PerHost, _) if named.is_empty() => Owner::Host(host.0),
            (Sharing::PerHost, _) if self.slots.contains_key(asked) => {
                let message = format!("{asked} belongs to one host, and no other can attach to it");
                return Err(ControlError::new(ErrorKind::Unavailable, message));
            }
            _ => return Err(no_such(asked)),
        };
        self.place_with(server, owner, &setting)
    }

    fn place_with(
        &mut self,
        server: &str,
        owner: Owner,
        setting: &Setting,
    ) -> Result<Arc<str>, ControlError> {
        let named = Named::new(server, owner, &self.shared.hash_key);
        let name = named.name().clone();
        if let Some(slot) = self.slots.get(&name) {
            if slot.is_leaving {
                let message = format!("{name} is ending; attach again in a moment");
                return Err(ControlError::new(ErrorKind::Unavailable, message));
            }
            return Ok(name);
        }
        let is_directory = named.owner().directory().is_some();
        if is_directory && self.instances(server).count() >= DIRECTORY_LIMIT {
            let message = format!(
                "\"{server}\" runs in {DIRECTORY_LIMIT} directories already, and that is all it may; `mcpd stop {}` makes room once no host is there",
                directory_name(server, "DIRECTORY".as_ref()),
            );
            return Err(ControlError::new(ErrorKind::Overloaded, message));
        }
        let setting = setting.of(named.owner().clone());
        Ok(self.add_slot(Arc::new(named), setting))
    }

    /// The slot of the server itself, made if the name has none.
    fn home(&mut self, server: &str) -> Result<Arc<str>, ControlError> {
        if let Some((name, _)) = self.slots.get_key_value(server) {
            return Ok(name.clone());
        }
        let strangers = self
            .slots
            .values()
            .filter(|slot| slot.setting.is_unknown())
            .count();
        if strangers >= STRANGER_LIMIT {
            return Err(no_such(server));
        }
        let file = self.paths.servers_dir().join(format!("{server}.toml"));
        let named = Named::new(server, Owner::Server, &self.shared.hash_key);
        Ok(self.add_slot(Arc::new(named), Setting::unknown(file)))
    }

    /// The instances of a server that has more than its own.
    pub(super) fn instances<'a>(&'a self, server: &'a str) -> impl Iterator<Item = &'a Slot> + 'a {
        self.slots.values().filter(move |slot| {
            let is_part = slot.setting.owner.is_part();
            is_part && &**slot.named.server() == server && !slot.is_leaving
        })
    }

    /// What is shown, by name; with `asked`, of those that it means.
    pub(super) fn shown<'a>(
        &'a self,
        asked: &'a [String],
    ) -> impl Iterator<Item = (&'a Arc<str>, &'a Slot)> + 'a {
        self.slots.iter().filter(move |(name, slot)| {
            let is_wanted = asked.is_empty() || asked.iter().any(|one| slot.named.answers_to(one));
            let has_instances = slot.setting.is_split() && self.instances(name).next().is_some();
            is_wanted && slot.is_shown(has_instances)
        })
    }

    /// The one worker that `asked` means.
    pub(super) fn find(&self, asked: &str) -> Result<WorkerHandle, ControlError> {
        let asked = [asked.to_owned()];
        let mut found = self.shown(&asked);
        let Some((name, slot)) = found.next() else {
            return Err(no_such(&asked[0]));
        };
        if let Some((other, _)) = found.next() {
            let message = format!(
                "{} has several instances; name one of them, such as {name} or {other}",
                asked[0],
            );
            return Err(ControlError::new(ErrorKind::Unavailable, message));
        }
        Ok(slot.worker.clone())
    }
}

fn no_such(name: &str) -> ControlError {
    let message = format!("no server \"{name}\" is configured");
    ControlError::new(ErrorKind::Unavailable, message)
}

fn without_directory(server: &str) -> ControlError {
    let message = format!(
        "\"{server}\" runs once for each directory, and this host has named none; attach by `mcpd connect {server}`, which names its own, or `mcpd connect {server} --directory DIR`"
    );
    ControlError::new(ErrorKind::Unavailable, message)
}
