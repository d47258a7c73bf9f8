//! Connections: a control client or a host, from its first byte to the worker that serves it.
//!
//! On `mcpd.sock` a connection begins with control requests and may become a raw MCP stream by
//! `attach`; on a server's own socket it is one from the first byte. Who may come in is decided by
//! uid and by descent; what a request means is the registry's.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::oneshot;

use crate::control::{
    Attach, Attached, CONTROL_LINE_LIMIT_BYTES, ControlError, ErrorKind, Greeting, Request,
    decode_request, encode_reply,
};
use crate::ids::HostKey;
use crate::protocol::write::error_response;
use crate::protocol::{ErrorCode, Kind, Line, LineReader};
use crate::session::HostInfo;

use super::handover::{DESCRIPTORS, Ends};
use super::hangup::hung_up;
use super::host_stream::HostStream;
use super::reader::Reader;
use super::registry::{self, Attachment};
use super::shared::Shared;
use super::socket::{self, Peer};
use super::viewer;
use super::worker::{Arrival, Event, caught, hand_over};

/// Lines that one read of a control connection may hold back before it is served.
type Reply = Result<serde_json::Value, ControlError>;

/// What is taken of a control connection at once.
const READ_BYTES: usize = 4096;

/// How long a host that cannot be attached has to ask for something.
const REFUSAL_WAIT: Duration = Duration::from_secs(10);

/// Serves one connection on `mcpd.sock`.
pub(crate) async fn serve_control(stream: UnixStream, shared: Arc<Shared>) {
    let stream = Arc::new(stream);
    let peer = match socket::peer(&stream) {
        Ok(peer) => peer,
        Err(error) => {
            tracing::warn!(%error, "cannot tell who connects");
            return;
        }
    };
    if let Err(refusal) = admit(peer, &shared).await {
        tracing::warn!(peer = ?peer, "refused: {}", refusal.message);
        // Somebody who is refused may be gone already.
        drop(write_reply(&stream, &serde_json::Value::Null, &Err(refusal), true).await);
        return;
    }
    if let Err(error) = control_loop(&stream, peer, &shared).await {
        tracing::debug!(%error, "control connection ended");
    }
}

/// Serves one connection on a server's own socket.
pub(crate) async fn serve_raw(stream: UnixStream, server: Arc<str>, shared: Arc<Shared>) {
    let peer = match socket::peer(&stream) {
        Ok(peer) if peer.uid == 0 || peer.uid == our_uid() => peer,
        other => {
            tracing::warn!(server = &*server, peer = ?other, "refused");
            return;
        }
    };
    let attach = Attach {
        server: server.to_string(),
        client: "socket".to_owned(),
        directory: None,
        journal: None,
    };
    match ask_attach(&shared, &attach).await {
        Ok(attachment) => {
            let ends = Ends::of_connection(Arc::new(stream));
            let lines = LineReader::new(CONTROL_LINE_LIMIT_BYTES);
            serve_host(ends, lines, attach, attachment, peer, &shared).await;
        }
        Err(refusal) => {
            tracing::warn!(server = &*server, "refused: {}", refusal.message);
            let told = refuse_host(&stream, &refusal);
            if tokio::time::timeout(REFUSAL_WAIT, told).await.is_err() {
                tracing::debug!(server = &*server, "the refused host asked nothing");
            }
        }
    }
}

/// Answers the first request of a host that cannot be attached; closing it without a word would
/// leave it with nothing to show.
async fn refuse_host(stream: &UnixStream, refusal: &ControlError) -> io::Result<()> {
    let mut lines = LineReader::new(CONTROL_LINE_LIMIT_BYTES);
    loop {
        stream.readable().await?;
        match stream.try_read_buf(lines.spare()) {
            Ok(0) => return Ok(()),
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            _ => {}
        }
        while let Some(line) = lines.poll() {
            if let Line::Message(message) = line
                && message.kind() == Kind::Request
            {
                let code = ErrorCode(refusal.kind.code());
                let answer = error_response(message.id(), None, code, &refusal.message, None);
                return write_all(stream, &answer.to_vec()).await;
            }
        }
    }
}

fn our_uid() -> u32 {
    nix::unistd::geteuid().as_raw()
}

/// Whether this peer may use the control socket: only our uid, and no child of ours but of a server
/// with `allow_mcpd`.
async fn admit(peer: Peer, shared: &Shared) -> Result<(), ControlError> {
    admit_user(peer)?;
    let Some(child) = peer.pid.and_then(socket::ancestor_below_us) else {
        return Ok(());
    };
    let (answer, answered) = oneshot::channel();
    let event = registry::Event::MayControl { child, answer };
    // A daemon that is ending allows nothing more.
    if shared.registry.send(event).await.is_ok() && answered.await.unwrap_or(false) {
        return Ok(());
    }
    Err(ControlError::new(
        ErrorKind::NotAllowed,
        "a server started by mcpd may not control mcpd (`allow_mcpd = true` in its file allows it)",
    ))
}

fn admit_user(peer: Peer) -> Result<(), ControlError> {
    if peer.uid == our_uid() {
        return Ok(());
    }
    let message = "this daemon serves its own user only";
    Err(ControlError::new(ErrorKind::NotAllowed, message))
}

/// Control requests, one after the other, until the end of input or an `attach`.
async fn control_loop(
    stream: &Arc<UnixStream>,
    peer: Peer,
    shared: &Arc<Shared>,
) -> io::Result<()> {
    let mut text = ControlLines::default();
    let mut first = true;
    while let Some(line) = text.next(stream).await? {
        let serving = shared.serving.read().await;
        let asked = decode_request(&line);
        let reply = match asked.request {
            Err(unreadable) => Err(unreadable.to_error()),
            Ok(Request::Attach(attach)) => match ask_attach(shared, &attach).await {
                Ok(attachment) => {
                    let limit = attachment.worker.transit.limit_bytes();
                    let given = std::mem::take(&mut text.descriptors);
                    let ends = Ends::take(stream.clone(), &attach, given, limit);
                    let reply = Ok(attached(&attachment, &ends));
                    write_reply(stream, &asked.id, &reply, first).await?;
                    drop(serving);
                    let mut lines = LineReader::new(CONTROL_LINE_LIMIT_BYTES);
                    if !ends.are_own() {
                        lines.feed(&text.held);
                    }
                    serve_host(ends, lines, attach, attachment, peer, shared).await;
                    return Ok(());
                }
                Err(refusal) => Err(refusal),
            },
            Ok(Request::Calls(ask)) => tokio::select! {
                calls = shared.calls.answer(&ask) => {
                    Ok(serde_json::to_value(calls).unwrap_or_default())
                }
                () = shared.registry.closed() => Err(stopping()),
            },
            Ok(Request::Trace(ask)) => match viewer::find_worker(shared, &ask.server).await {
                Ok(worker) => {
                    let reply = Ok(serde_json::json!({}));
                    write_reply(stream, &asked.id, &reply, first).await?;
                    drop(serving);
                    return viewer::show(stream, ask, &worker).await;
                }
                Err(refusal) => Err(refusal),
            },
            Ok(request) => ask(shared, request).await,
        };
        write_reply(stream, &asked.id, &reply, first).await?;
        first = false;
    }
    Ok(())
}

/// Lines of a control connection. What follows an `attach` belongs to the MCP stream, so nothing
/// is taken beyond the line that is being served.
#[derive(Default)]
struct ControlLines {
    held: Vec<u8>,
    /// What came beside the bytes, for the request that they belong to.
    descriptors: Vec<OwnedFd>,
}

impl ControlLines {
    async fn next(&mut self, stream: &UnixStream) -> io::Result<Option<Bytes>> {
        let mut searched = 0;
        loop {
            if let Some(at) = memchr::memchr(b'\n', &self.held[searched..]) {
                let rest = self.held.split_off(searched + at + 1);
                let mut line = std::mem::replace(&mut self.held, rest);
                line.pop();
                return Ok(Some(line.into()));
            }
            searched = self.held.len();
            if searched > CONTROL_LINE_LIMIT_BYTES {
                return Err(io::Error::other("a control line is too long"));
            }
            stream.readable().await?;
            match stream.try_io(Interest::READABLE, || self.receive(stream)) {
                Ok(0) => return Ok(None),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Takes bytes and descriptors, of those no more than a request may have.
    fn receive(&mut self, stream: &UnixStream) -> io::Result<usize> {
        let mut bytes = [0; READ_BYTES];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut beside = RecvAncillaryBuffer::new(&mut space);
        let received = recvmsg(
            stream,
            &mut [io::IoSliceMut::new(&mut bytes)],
            &mut beside,
            RecvFlags::CMSG_CLOEXEC,
        )?;
        for message in beside.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                // What is too many is closed again.
                let room = DESCRIPTORS - self.descriptors.len();
                self.descriptors.extend(descriptors.take(room));
            }
        }
        self.held.extend_from_slice(&bytes[..received.bytes]);
        Ok(received.bytes)
    }
}

fn attached(attachment: &Attachment, ends: &Ends) -> serde_json::Value {
    let attached = Attached {
        instance: attachment.instance.to_string(),
        attachment: attachment.key.0,
        journal: ends.journal.is_some(),
        handed: ends.are_own(),
    };
    serde_json::to_value(attached).unwrap_or_default()
}

async fn write_reply(
    stream: &UnixStream,
    id: &serde_json::Value,
    reply: &Reply,
    first: bool,
) -> io::Result<()> {
    let greeting = first.then(Greeting::of_this_build);
    let line = encode_reply(id, reply.as_ref(), greeting.as_ref())?;
    write_all(stream, &line).await
}

pub(super) async fn write_all(stream: &UnixStream, mut left: &[u8]) -> io::Result<()> {
    while !left.is_empty() {
        stream.writable().await?;
        match stream.try_write(left) {
            Ok(written) => left = &left[written..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

async fn ask(shared: &Shared, request: Request) -> Reply {
    let (answer, answered) = oneshot::channel();
    let event = registry::Event::Request { request, answer };
    if shared.registry.send(event).await.is_err() {
        return Err(stopping());
    }
    answered.await.unwrap_or_else(|_| Err(stopping()))
}

async fn ask_attach(shared: &Shared, attach: &Attach) -> Result<Attachment, ControlError> {
    let (answer, answered) = oneshot::channel();
    let server = attach.server.clone();
    let directory = match attach.directory.clone() {
        Some(directory) => Some(real_directory(directory.into()).await),
        None => None,
    };
    let event = registry::Event::Attach {
        server,
        directory,
        answer,
    };
    if shared.registry.send(event).await.is_err() {
        return Err(stopping());
    }
    answered.await.unwrap_or_else(|_| Err(stopping()))
}

/// The directory without links, so that one directory is one instance. One that cannot be looked at is
/// left as it is: the start there will say what is wrong with it.
async fn real_directory(directory: PathBuf) -> PathBuf {
    let named = directory.clone();
    let looking = tokio::task::spawn_blocking(move || std::fs::canonicalize(named));
    match looking.await {
        Ok(Ok(real)) => real,
        Ok(Err(_)) | Err(_) => directory,
    }
}

pub(super) fn stopping() -> ControlError {
    ControlError::new(ErrorKind::Stopping, "the daemon is ending")
}

/// Hands a host to its worker and reads from it until it ends.
async fn serve_host(
    ends: Ends,
    lines: LineReader,
    attach: Attach,
    attachment: Attachment,
    peer: Peer,
    shared: &Arc<Shared>,
) {
    let Attachment {
        key,
        worker,
        ticket,
        ..
    } = attachment;
    let Ends {
        input,
        output,
        companion,
        journal,
    } = ends;
    let (start, started) = oneshot::channel();
    let reading = tokio::spawn({
        let (output, worker) = (output.clone(), worker.clone());
        async move {
            // The worker must know the host before its first line comes.
            if started.await.is_ok() {
                let inbox = worker.inbox.clone();
                // One host's bytes that break the reader cost that host its attachment.
                if caught(read_host(input, output, lines, key, worker))
                    .await
                    .is_err()
                {
                    drop(inbox.send(Event::HostGone(key)).await);
                }
            }
        }
    });
    let watching = companion.map(|companion| {
        let inbox = worker.inbox.clone();
        let reader = reading.abort_handle();
        tokio::spawn(async move {
            tokio::select! {
                () = wait_for_end(&companion) => {
                    // A worker that has gone has let its hosts go.
                    drop(inbox.send(Event::HostGone(key)).await);
                }
                // It panicked. The shim hears of it by the end of its connection and hands its
                // descriptors over again; two must not read from them.
                () = inbox.closed() => reader.abort(),
            }
        })
    });
    let arrival = Arrival {
        key,
        info: HostInfo {
            client: Some(attach.client.chars().take(200).collect::<String>())
                .filter(|client| !client.is_empty())
                .map(Arc::from),
            pid: peer.pid.map(i32::unsigned_abs),
        },
        output,
        journal,
        reader: reading.abort_handle(),
        watcher: watching.map(|watching| watching.abort_handle()),
        ticket,
    };
    tracing::debug!(server = &*attach.server, host = %key, version = %shared.run_id, "attached");
    if worker
        .inbox
        .send(Event::Arrived(Box::new(arrival)))
        .await
        .is_ok()
    {
        // The reader may be aborted by the worker already; then there is nobody to start.
        start.send(()).unwrap_or(());
    }
}

/// Waits until the shim of a host that is spoken with by its own descriptors has gone.
async fn wait_for_end(companion: &UnixStream) {
    let mut nothing = [0; 64];
    while companion.readable().await.is_ok() {
        match companion.try_read(&mut nothing) {
            // There is nothing that it could have to say.
            Ok(1..) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Ok(0) | Err(_) => return,
        }
    }
}

async fn read_host(
    input: Arc<HostStream>,
    output: Arc<HostStream>,
    lines: LineReader,
    key: HostKey,
    worker: super::worker::WorkerHandle,
) {
    let mut reader = Reader::new(input, lines, worker.transit, Some(key));
    let last = loop {
        match reader.next().await {
            Ok(Some(lines)) => {
                let said = Event::HostLines(key, lines);
                if hand_over(&worker.inbox, said).await.is_err() {
                    return;
                }
            }
            Ok(None) => break Event::HostEnded(key),
            Err(error) => {
                tracing::debug!(host = %key, %error, "cannot read from the host");
                break Event::HostGone(key);
            }
        }
    };
    drop(reader);
    let half_open = matches!(last, Event::HostEnded(_));
    // A worker that has gone has let its hosts go.
    drop(worker.inbox.send(last).await);
    if half_open && hung_up(&*output).await.is_ok() {
        drop(worker.inbox.send(Event::HostGone(key)).await);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

    /// Fault 55: a peer of another user is refused.
    #[test]
    fn only_our_own_user_is_admitted() {
        let peer = |uid| Peer { uid, pid: None };
        assert!(admit_user(peer(our_uid())).is_ok());
        assert!(admit_user(peer(our_uid() + 1)).is_err());
    }

    #[tokio::test]
    async fn a_host_that_cannot_be_attached_is_told_so_with_its_id() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let refusal = ControlError::new(ErrorKind::Overloaded, "4096 hosts are attached already");
        let line = b"\n{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"method\":\"initialize\"}\n";
        theirs.write_all(line).await.unwrap();
        refuse_host(&ours, &refusal).await.unwrap();
        drop(ours);
        let mut answers = BufReader::new(theirs).lines();
        let answer = answers.next_line().await.unwrap().unwrap();
        let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(
            (&answer["id"], &answer["error"]["code"]),
            (&"a".into(), &(-31002).into())
        );
        assert!(answers.next_line().await.unwrap().is_none(), "and no more");
    }
}
