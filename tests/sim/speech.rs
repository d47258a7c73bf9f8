//! What a child writes: true answers, odd ones and lies, as bytes.
//!
//! Decides the shape of a line only; when and whether it is written is `process`'s.

use crate::random::Random;

/// A request as the child has heard it.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) id: u64,
    /// What tells a host's request from all others; our own have none.
    pub(crate) tag: Option<u64>,
    pub(crate) method: String,
}

/// The shapes of an answer. Those up to `Twice` hold a whole answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Plain,
    IdLast,
    IdAsFloat,
    Array,
    CarriageReturn,
    ByteOrderMark,
    BehindNoise,
    AfterProgress,
    AfterBanner,
    AfterHalf,
    AfterForeignIds,
    Twice,
    Error,
    Neither,
    Half,
    TooLong,
    BadUtf8,
    DoubledId,
}

/// Shapes that no host may take for anything but an answer that went well.
pub(crate) const HONEST: &[Shape] = &[Shape::Plain, Shape::IdLast, Shape::AfterProgress];

pub(crate) const ALL: &[Shape] = &[
    Shape::Plain,
    Shape::IdLast,
    Shape::IdAsFloat,
    Shape::Array,
    Shape::CarriageReturn,
    Shape::ByteOrderMark,
    Shape::BehindNoise,
    Shape::AfterProgress,
    Shape::AfterBanner,
    Shape::AfterHalf,
    Shape::AfterForeignIds,
    Shape::Twice,
    Shape::Error,
    Shape::Neither,
    Shape::Half,
    Shape::TooLong,
    Shape::BadUtf8,
    Shape::DoubledId,
];

/// The `InitializeResult`, whose lists may change.
pub(crate) const WELCOME: &str = r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"resources":{"subscribe":true},"logging":{}},"serverInfo":{"name":"sim","version":"1"}}"#;

/// The result of a call: it says whose it is and which child gave it.
pub(crate) fn result_of(call: &Call, generation: u64, random: &mut Random) -> String {
    let tag = call.tag.unwrap_or(0);
    let mark = format!(r#""tag":{tag},"generation":{generation}"#);
    match call.method.as_str() {
        "tools/list" => format!(r#"{{"tools":[{{"name":"t{}"}}],{mark}}}"#, random.below(3)),
        "resources/list" => format!(r#"{{"resources":[],{mark}}}"#),
        _ if random.chance(5) => {
            let filling = "x".repeat(random.index(20_000));
            format!(r#"{{{mark},"filling":"{filling}"}}"#)
        }
        _ => format!("{{{mark}}}"),
    }
}

/// An answer to `call`, with its line ending.
pub(crate) fn answer(
    shape: Shape,
    call: &Call,
    generation: u64,
    message_limit: usize,
    random: &mut Random,
) -> Vec<u8> {
    let id = call.id;
    let result = result_of(call, generation, random);
    let plain = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#);
    let text = match shape {
        Shape::Plain => format!("{plain}\n"),
        Shape::IdLast => format!("{{\"jsonrpc\":\"2.0\",\"result\":{result},\"id\":{id}}}\n"),
        Shape::IdAsFloat => {
            format!("{{\"jsonrpc\":\"2.0\",\"id\":{id}.0,\"result\":{result}}}\n")
        }
        Shape::Array => format!("[{plain}]\n"),
        Shape::CarriageReturn => format!("\r\n{plain}\r\n\n"),
        Shape::ByteOrderMark => format!("\u{feff}{plain}\n"),
        Shape::BehindNoise => format!("working 50%\r\u{1b}[2K{plain}\n"),
        Shape::AfterProgress => format!("{}{plain}\n", progress(id)),
        Shape::AfterBanner => format!("ready to serve\n\n{plain}\n"),
        Shape::AfterHalf => format!("{{\"jsonrpc\":\"2.0\",\"result\":{{\n{plain}\n"),
        Shape::AfterForeignIds => format!(
            "{}{}{}{plain}\n",
            foreign(&format!("\"{id}\"")),
            foreign(&(id + 1_000_000).to_string()),
            foreign("0")
        ),
        Shape::Twice => format!("{plain}\n{plain}\n"),
        Shape::Error => format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{{\"code\":-1,\"message\":\"no\",\"data\":{result}}}}}\n"
        ),
        Shape::Neither => format!("{{\"jsonrpc\":\"2.0\",\"id\":{id}}}\n"),
        Shape::Half => format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\n"),
        Shape::TooLong => {
            let filling = "y".repeat(message_limit + 10);
            format!("{{\"jsonrpc\":\"2.0\",\"result\":\"{filling}\",\"id\":{id}}}\n")
        }
        Shape::BadUtf8 => return bad_utf8(id),
        Shape::DoubledId => {
            format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{}},\"id\":{id}}}\n")
        }
    };
    text.into_bytes()
}

fn bad_utf8(id: u64) -> Vec<u8> {
    let mut text = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":\"").into_bytes();
    text.extend_from_slice(b"\xff\xfe\"}\n");
    text
}

fn foreign(id: &str) -> String {
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"nobody\":1}}}}\n")
}

pub(crate) fn progress(token: u64) -> String {
    format!(
        "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{{\"progressToken\":{token},\"progress\":1}}}}\n"
    )
}

/// Something that a child says unasked; requests of its own carry `question`.
pub(crate) fn whim(question: u64, random: &mut Random) -> (String, bool) {
    let notification = |method: &str, params: &str| {
        let text = format!("{{\"jsonrpc\":\"2.0\",\"method\":\"{method}\",\"params\":{params}}}\n");
        (text, false)
    };
    let request = |method: &str| {
        let text = format!("{{\"jsonrpc\":\"2.0\",\"id\":{question},\"method\":\"{method}\"}}\n");
        (text, true)
    };
    match random.below(8) {
        0 => notification("notifications/tools/list_changed", "{}"),
        1 => notification(
            "notifications/message",
            r#"{"level":"error","data":"something"}"#,
        ),
        2 => notification("notifications/resources/updated", r#"{"uri":"u0"}"#),
        3 => notification("notifications/sim", r#"{"x":1}"#),
        4 => notification(
            "notifications/progress",
            &format!(r#"{{"progressToken":{},"progress":1}}"#, random.below(40)),
        ),
        5 => request("ping"),
        6 => request("roots/list"),
        _ => ("a line of a log\n".to_owned(), false),
    }
}
