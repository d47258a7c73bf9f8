//! Standard output: whole lines under one lock, noise between them, and replies that are wrong on purpose.
//!
//! It decides the bytes of each malformation. It never decides when one is played.

use std::io::{self, Write};
use std::sync::Mutex;
use std::time::Duration;

use crate::pause;

/// Noise that `--banner`, `--before-reply` and the tool `noise` know.
pub(crate) const NOISE_KINDS: &[&str] = &[
    "text",
    "ansi",
    "brace",
    "number",
    "string",
    "null",
    "true",
    "array",
    "blank",
    "spaces",
    "cr-lf",
    "tab",
    "bom",
    "utf8",
    "nul",
    "cr-progress",
    "header",
    "object",
    "long",
];

/// Malformed or unusual replies that the tool `reply` knows.
pub(crate) const REPLY_KINDS: &[&str] = &[
    "plain",
    "pretty",
    "content-length",
    "invalid-utf8",
    "half",
    "control",
    "trailing",
    "id-last",
    "double-id",
    "double-result",
    "both",
    "null-both",
    "neither",
    "no-jsonrpc",
    "twice",
    "unknown-id",
    "null-id",
    "no-id",
    "string-id",
    "float-id",
    "surrogate",
    "array",
    "crlf",
    "bom",
    "cr-progress",
    "error",
    "members",
    "deep",
    "bytewise",
    "separators",
];

/// The one writer of standard output.
pub(crate) struct Output {
    stdout: Mutex<io::Stdout>,
    spin_on_error: bool,
}

impl Output {
    pub(crate) fn new(spin_on_error: bool) -> Self {
        Self {
            stdout: Mutex::new(io::stdout()),
            spin_on_error,
        }
    }

    /// Writes bytes as they are, all of them in one go.
    pub(crate) fn bytes(&self, bytes: &[u8]) {
        let mut stdout = self.stdout.lock().expect("no writer panics");
        let mut written = stdout.write_all(bytes).and_then(|()| stdout.flush());
        while written.is_err() && self.spin_on_error {
            written = stdout
                .write_all(b"still here\n")
                .and_then(|()| stdout.flush());
        }
        // A host that no longer reads is what many tests are about; the end of input ends this process.
    }

    pub(crate) fn line(&self, text: &str) {
        self.bytes(format!("{text}\n").as_bytes());
    }

    /// One piece of noise.
    pub(crate) fn noise(&self, kind: &str) {
        let (kind, size) = kind.split_once(':').unwrap_or((kind, "1000000"));
        let bytes: Vec<u8> = match kind {
            "text" => b"Server listening, press Ctrl-C to stop\n".to_vec(),
            "ansi" => b"\x1b[33mWARN\x1b[0m something \x1b[1mbold\x1b[0m\n".to_vec(),
            "brace" => b"{ this is no JSON }\n".to_vec(),
            "number" => b"42\n".to_vec(),
            "string" => b"\"quoted\"\n".to_vec(),
            "null" => b"null\n".to_vec(),
            "true" => b"true\n".to_vec(),
            "array" => b"[1,2,3]\n".to_vec(),
            "blank" => b"\n".to_vec(),
            "spaces" => b"   \n".to_vec(),
            "cr-lf" => b"\r\n".to_vec(),
            "tab" => b"\t\n".to_vec(),
            "bom" => b"\xef\xbb\xbf\n".to_vec(),
            "utf8" => b"caf\xe9 \xff\xfe\n".to_vec(),
            "nul" => b"\0\0\0\n".to_vec(),
            "cr-progress" => b"10%\r20%\r30%\r".to_vec(),
            "header" => b"Content-Type: application/json\r\n".to_vec(),
            "object" => b"{\"level\":\"info\",\"msg\":\"structured log line\"}\n".to_vec(),
            "long" => {
                let mut bytes = vec![b'x'; size.parse().expect("long:BYTES")];
                bytes.push(b'\n');
                bytes
            }
            other => panic!("unknown noise {other}"),
        };
        self.bytes(&bytes);
    }

    /// One reply that is malformed or merely unusual. `result` is its honest result.
    pub(crate) fn reply(&self, kind: &str, id: &str, result: &str) {
        let (kind, size) = kind.split_once(':').unwrap_or((kind, "200"));
        let plain = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#);
        let log = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":"beside"}}"#;
        let mut line = match kind {
            "plain" => plain.into_bytes(),
            "pretty" => format!(
                "{{\n  \"jsonrpc\": \"2.0\",\n  \"id\": {id},\n  \"result\": {{\n    \"content\": [\n      {{\n        \
                 \"type\": \"text\",\n        \"text\": \"pretty\"\n      }}\n    ]\n  }}\n}}"
            )
            .into_bytes(),
            "content-length" => format!("Content-Length: {}\r\n\r\n{plain}", plain.len()).into_bytes(),
            "invalid-utf8" => {
                let mut bytes = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"type":"text","text":""#).into_bytes();
                bytes.extend_from_slice(b"\xff\xfe");
                bytes.extend_from_slice(br#""}]}}"#);
                bytes
            }
            "half" => plain.as_bytes()[..plain.len() - 3].to_vec(),
            "control" => plain.replace("\"text\":\"", "\"text\":\"\u{1}").into_bytes(),
            "trailing" => format!("{plain} and more").into_bytes(),
            "id-last" => format!(r#"{{"result":{result},"jsonrpc":"2.0","id":{id}}}"#).into_bytes(),
            "double-id" => format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result},"id":987654}}"#).into_bytes(),
            "double-result" => format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result},"result":{{}}}}"#).into_bytes(),
            "both" => format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result},"error":null}}"#).into_bytes(),
            "null-both" => {
                format!(r#"{{"jsonrpc":"2.0","id":{id},"result":null,"error":{{"code":-32000,"message":"refused"}}}}"#).into_bytes()
            }
            "neither" => format!(r#"{{"jsonrpc":"2.0","id":{id}}}"#).into_bytes(),
            "no-jsonrpc" => format!(r#"{{"id":{id},"result":{result}}}"#).into_bytes(),
            "twice" => format!("{plain}\n{}", plain.replace("\"result\"", "\"again\":1,\"result\"")).into_bytes(),
            "unknown-id" => format!("{{\"jsonrpc\":\"2.0\",\"id\":987654,\"result\":{{}}}}\n{plain}").into_bytes(),
            "null-id" => br#"{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"about nobody"}}"#.to_vec(),
            "no-id" => br#"{"jsonrpc":"2.0","error":{"code":-32603,"message":"about nobody"}}"#.to_vec(),
            "string-id" => format!(r#"{{"jsonrpc":"2.0","id":"{id}","result":{result}}}"#).into_bytes(),
            "float-id" => format!(r#"{{"jsonrpc":"2.0","id":{id}.0,"result":{result}}}"#).into_bytes(),
            "surrogate" => format!(
                r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"type":"text","text":"high \ud83d low \ude00"}}],"key \ud83d":1}}}}"#
            )
            .into_bytes(),
            "array" => format!("[{log},{plain}]").into_bytes(),
            "crlf" => format!("{plain}\r").into_bytes(),
            "bom" => format!("\u{feff}{plain}").into_bytes(),
            "cr-progress" => format!("50%\r60%\r100%\r{plain}").into_bytes(),
            "error" => format!(
                r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32042,"message":"no","data":{{"z":1.50,"a":[1e3]}},"hint":"x"}},"beside":true}}"#
            )
            .into_bytes(),
            "members" => format!(
                r#"{{"jsonrpc": "2.0", "extra":[1, 2],"id":{id} ,"result" : {{"structuredContent":{{"z":1.0,"a":1e2}}, "_meta":{{"x/y":null}},"content":[{{"type":"text","text":"t","annotations":{{"priority":0.50}},"icons":[]}}],"unknown":"\u0041"}},"after":{{}}}}"#
            )
            .into_bytes(),
            "deep" => {
                let depth: usize = size.parse().expect("deep:LEVELS");
                format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[],"deep":{}{}}}}}"#, "[".repeat(depth), "]".repeat(depth))
                    .into_bytes()
            }
            "separators" => plain.replace("\"text\":\"", "\"text\":\"\u{2028}\u{2029}\u{85}").into_bytes(),
            "bytewise" => {
                for byte in plain.bytes() {
                    self.bytes(&[byte]);
                    pause(Duration::from_millis(1));
                }
                Vec::new()
            }
            other => panic!("unknown reply {other}"),
        };
        if kind != "content-length" {
            line.push(b'\n');
        }
        self.bytes(&line);
    }
}
