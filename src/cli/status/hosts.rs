//! Who is attached to what: `mcpd status --hosts`, and a line a host in `mcpd status NAME`.

use super::format::render_size;
use crate::cli::escape::escape;
use crate::cli::output::Style;
use crate::cli::table::Table;
use crate::control::{AttachmentStatus, StatusSnapshot};

const HEADINGS: [&str; 7] = ["SERVER", "PROCESS", "MCP", "OPEN", "WAIT", "UNREAD", "HOST"];
const GIVES_WAY: [usize; 4] = [5, 4, 3, 2];

/// One line a host and server.
pub(super) fn render_hosts(
    snapshot: &StatusSnapshot,
    style: Style,
    width: Option<usize>,
) -> String {
    let mut table = Table::new(&HEADINGS, &GIVES_WAY);
    let mut is_empty = true;
    for server in &snapshot.servers {
        for attachment in &server.attachments {
            is_empty = false;
            let cells = vec![
                escape(&server.name),
                process(attachment),
                version(attachment),
                attachment.open.to_string(),
                attachment.waiting.to_string(),
                unread(attachment),
                client(attachment),
            ];
            table.row(cells, &[]);
        }
    }
    match is_empty {
        true => "no host is attached\n".to_owned(),
        false => table.render(style, width),
    }
}

/// `Claude Code, claude 4711, 2025-11-25, 1 open`: one host in one line.
pub(super) fn render_host(attachment: &AttachmentStatus) -> String {
    let mut parts = vec![client(attachment), process(attachment)];
    // Here is room to say between what it is translated.
    parts.push(match (&attachment.version, &attachment.translated) {
        (Some(version), Some(eras)) => {
            format!("{} (translated: {})", escape(version), escape(eras))
        }
        _ => version(attachment),
    });
    parts.retain(|part| part != "-");
    let mut counted = |count: u64, word: &str| {
        if count > 0 {
            parts.push(format!("{count} {word}"));
        }
    };
    counted(attachment.open, "open");
    counted(attachment.waiting, "waiting");
    match attachment.turn.as_deref() {
        Some("has") => parts.push("has the turn".to_owned()),
        Some("waits") => parts.push("waits for its turn".to_owned()),
        _ => {}
    }
    if attachment.held_bytes > 0 {
        parts.push(format!("{} unread", render_size(attachment.held_bytes)));
    }
    parts.join(", ")
}

fn client(attachment: &AttachmentStatus) -> String {
    attachment.client.as_deref().map_or("-".to_owned(), escape)
}

fn process(attachment: &AttachmentStatus) -> String {
    let name = attachment.host_name.as_deref().unwrap_or_default();
    match attachment.host_pid.or(attachment.pid) {
        Some(pid) => escape(format!("{name} {pid}").trim_start()),
        None => "-".to_owned(),
    }
}

fn version(attachment: &AttachmentStatus) -> String {
    let Some(version) = attachment.version.as_deref() else {
        return "-".to_owned();
    };
    match attachment.translated.is_some() {
        true => format!("{} (translated)", escape(version)),
        false => escape(version),
    }
}

fn unread(attachment: &AttachmentStatus) -> String {
    match attachment.held_bytes {
        0 => "-".to_owned(),
        bytes => render_size(bytes),
    }
}
