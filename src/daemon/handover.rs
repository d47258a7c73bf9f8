//! What comes with `attach` beside its words: the host's own descriptors, and the journal.
//!
//! Decides whether the daemon speaks with the host itself or by the connection, and from where an
//! attachment goes on. What cannot be used is done without: an older shim gives nothing, and is
//! served all the same.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use tokio::net::UnixStream;

use crate::control::Attach;
use crate::journal::{self, Image, LINE_LIMIT_BYTES, Writer};

use super::chain;
use super::descriptors::Mapping;
use super::host_stream::{HostStream, OwnEnd};

/// Descriptors that may come with `attach`: the journal, the host's input, its output.
pub(crate) const DESCRIPTORS: usize = 3;

/// How a host is spoken with, and what is kept of it.
#[derive(Debug)]
pub(crate) struct Ends {
    pub(crate) input: Arc<HostStream>,
    pub(crate) output: Arc<HostStream>,
    /// The connection of a host that is not spoken with by it. Its end is the host's.
    pub(crate) companion: Option<Arc<UnixStream>>,
    pub(crate) journal: Option<Box<Kept>>,
}

/// A journal and what stood in it.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) writer: Writer,
    pub(crate) image: Image,
}

impl Ends {
    /// A host that speaks by its connection and leaves nothing behind.
    pub(crate) fn of_connection(stream: Arc<UnixStream>) -> Self {
        let both = Arc::new(HostStream::Connection(stream));
        Self {
            input: both.clone(),
            output: both,
            companion: None,
            journal: None,
        }
    }

    /// A host that came with these descriptors. `line_limit` is how long its lines may be.
    pub(crate) fn take(
        stream: Arc<UnixStream>,
        attach: &Attach,
        descriptors: Vec<OwnedFd>,
        line_limit: usize,
    ) -> Self {
        let mut ends = Self::of_connection(stream.clone());
        let mut descriptors = descriptors.into_iter();
        let (Some(journal::VERSION), Some(memfd)) = (attach.journal, descriptors.next()) else {
            return ends;
        };
        let (memory, image) = match open_journal(&memfd, line_limit) {
            Ok(opened) => opened,
            Err(why) => {
                tracing::warn!(server = attach.server, why, "a host has no journal");
                return ends;
            }
        };
        if let (Some(input), Some(output)) = (descriptors.next(), descriptors.next()) {
            let given = image.input.clone();
            let own = OwnEnd::input(input, memory.clone(), given)
                .and_then(|input| Ok((input, OwnEnd::output(output)?)));
            match own {
                Ok((input, output)) => {
                    ends.input = Arc::new(HostStream::Own(input));
                    ends.output = Arc::new(HostStream::Own(output));
                    ends.companion = Some(stream);
                }
                Err(error) => {
                    tracing::debug!(
                        server = attach.server,
                        why = chain(&error),
                        "a host is relayed"
                    );
                }
            }
        }
        let writer = Writer::new(memory);
        ends.journal = Some(Box::new(Kept { writer, image }));
        ends
    }

    /// Whether the daemon speaks with the host itself.
    pub(crate) fn are_own(&self) -> bool {
        self.companion.is_some()
    }
}

fn open_journal(memfd: &OwnedFd, line_limit: usize) -> Result<(Arc<Mapping>, Image), String> {
    let size = journal::size_for(line_limit.max(LINE_LIMIT_BYTES));
    let memory = Mapping::of(memfd.as_fd(), size).map_err(|error| error.to_string())?;
    let image = Image::read(&memory).map_err(|error| error.to_string())?;
    Ok((Arc::new(memory), image))
}
