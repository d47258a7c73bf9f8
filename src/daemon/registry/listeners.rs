//! The raw socket of one server: bound while the server has a file, removed with it.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;

use tokio::task::AbortHandle;

use crate::config::paths::Paths;
use crate::config::spec::ServerName;

use super::super::host::serve_raw;
use super::super::listen::accept_each;
use super::super::shared::Shared;
use super::super::socket::{self, SocketFile};

/// Nothing, a listener, or why there is none.
#[derive(Debug, Default)]
pub(super) struct ServerSocket {
    open: Option<Open>,
    error: Option<String>,
}

#[derive(Debug)]
struct Open {
    file: SocketFile,
    listener: AbortHandle,
}

impl ServerSocket {
    /// Listens for hosts of `name`, if nothing does yet. A failure costs this socket only.
    pub(super) fn open(&mut self, name: &ServerName, paths: &Paths, shared: &Arc<Shared>) {
        if self.open.is_some() {
            return;
        }
        match listen(name, paths, shared) {
            Ok(open) => {
                self.open = Some(open);
                self.error = None;
            }
            Err(error) => {
                tracing::warn!(server = %name, "{error}");
                self.error = Some(error);
            }
        }
    }

    /// Stops listening and removes what is in the file system. Hosts that are attached stay.
    pub(super) fn close(&mut self) {
        if let Some(open) = self.open.take() {
            open.listener.abort();
            remove(open.file);
        }
    }

    pub(super) fn error(&self) -> Option<String> {
        self.error.clone()
    }
}

impl Drop for ServerSocket {
    fn drop(&mut self) {
        self.close();
    }
}

fn listen(name: &ServerName, paths: &Paths, shared: &Arc<Shared>) -> Result<Open, String> {
    let path = paths
        .server_socket(name)
        .map_err(|error| error.to_string())?;
    make_folder(&paths.server_sockets_dir())
        .and_then(|()| make_folder(&paths.server_socket_dir(name)))
        .map_err(|error| format!("cannot make the folder of {}: {error}", path.display()))?;
    let (listener, file) = socket::bind(&path).map_err(|error| super::super::chain(&error))?;
    let (server, shared): (Arc<str>, _) = (Arc::from(name.as_str()), shared.clone());
    let task = tokio::spawn(accept_each(listener, move |stream| {
        serve_raw(stream, server.clone(), shared.clone())
    }));
    let listener = task.abort_handle();
    Ok(Open { file, listener })
}

fn make_folder(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

/// Removes the socket and its folder, which stays if anything else is in it.
fn remove(file: SocketFile) {
    let folder = file.path().parent().map(Path::to_owned);
    file.remove();
    if let Some(folder) = folder {
        drop(std::fs::remove_dir(folder));
    }
}
