//! Faults of the daemon itself, which only tests can ask for: it is built for nobody else.
//!
//! They are asked for by a name that nobody would choose, on the control socket.

/// Breaks whatever the registry runs in, if a host asks for the server that is called so.
pub(super) fn in_registry(server: &str) {
    match server {
        "fault-panic" => panic!("a fault that was asked for"),
        "fault-block" => loop {
            std::thread::park();
        },
        _ => {}
    }
}

/// Breaks what reads from a host or a child, if that begins with these words.
pub(super) fn in_reader(bytes: &[u8]) {
    assert!(
        !bytes.starts_with(b"fault-panic"),
        "a fault that was asked for"
    );
}

/// Breaks a worker, if a client that calls itself so comes to it.
pub(super) fn in_worker(client: Option<&str>) {
    assert_ne!(client, Some("fault-panic"), "a fault that was asked for");
}
