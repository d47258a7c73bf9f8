//! Lines: what is no message never ends a session, and what is one passes whole, whatever its size.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::common::{Home, error_code, let_pass, text_of};

/// C050, fault 11: noise on stdout before and between replies reaches no host, is counted, and costs nothing.
#[test]
fn noise_between_replies_reaches_no_host() {
    let home = Home::new();
    home.fake("fake", &["--banner", "text"]);
    let daemon = home.start();
    let mut host = daemon.socket_host("fake");
    host.initialize();
    let kinds = [
        "text", "ansi", "brace", "number", "string", "null", "true", "array", "object", "utf8",
        "nul", "header",
    ];
    for kind in kinds {
        assert_eq!(
            host.text("noise", json!({"kind": kind, "n": 2})),
            "noisy",
            "{kind}"
        );
    }
    let strays = host.everything_up_to_now();
    assert!(strays.is_empty(), "{strays:?}");
    let status = daemon.server_status("fake");
    // The elements of an array that are no messages count one each.
    assert!(
        status["violations"]
            .as_u64()
            .is_some_and(|count| count > 2 * kinds.len() as u64),
        "{status}"
    );
    assert!(
        status["violation_sample"]
            .as_str()
            .is_some_and(|text| !text.is_empty() && text.len() <= 200),
        "{status}"
    );
    assert_eq!(daemon.record("fake").starts(), 1);
}

/// C052: coloured lines are skipped; a reply after a progress bar on the same line is recovered; control
/// bytes are escaped where status shows them.
#[test]
fn coloured_lines_and_progress_bars_are_skipped() {
    let home = Home::new();
    home.fake("fake", &["--banner", "ansi", "--before-reply", "ansi"]);
    let daemon = home.start();
    let mut host = daemon.socket_host("fake");
    host.initialize();
    assert_eq!(host.text("sum", json!({"a": 1})), "1");
    assert_eq!(
        text_of(&host.call("reply", json!({"kind": "cr-progress"}))),
        "reply cr-progress"
    );
    assert_eq!(host.text("sum", json!({"a": 2})), "2");
    for args in [&["status"][..], &["status", "fake"], &["logs", "fake"]] {
        let shown = daemon.mcpd(args).stdout;
        assert!(!shown.contains('\u{1b}'), "{args:?}: {shown:?}");
    }
}

/// C053: status counts the noise and shows a sample; the log does not get a line for each.
#[test]
fn noise_is_counted_and_sampled() {
    let home = Home::new();
    home.fake("fake", &["--banner", "text", "--banner-lines", "36"]);
    let daemon = home.start();
    daemon.socket_host("fake").initialize();
    let status = daemon.server_status("fake");
    assert_eq!(status["violations"], 36, "{status}");
    let shown = daemon.mcpd(&["status", "fake"]).stdout;
    assert!(
        shown.contains("36") && shown.contains("Server listening"),
        "{shown}"
    );
    let logged = daemon.mcpd(&["logs", "fake", "-n", "1000"]).stdout + &daemon.log();
    assert!(logged.matches("Server listening").count() < 20, "{logged}");
}

/// C054: blank lines are no noise, neither from a child nor from a host.
#[test]
fn blank_lines_are_nothing() {
    let home = Home::new();
    home.fake("fake", &[]);
    let daemon = home.start();
    let mut host = daemon.socket_host("fake");
    host.initialize();
    for kind in ["blank", "spaces", "cr-lf", "tab", "bom"] {
        assert_eq!(host.text("noise", json!({"kind": kind, "n": 3})), "noisy");
        host.send_bytes(b"\n   \n\r\n\t\n");
    }
    assert_eq!(host.text("sum", json!({"a": 1})), "1");
    assert!(host.everything_up_to_now().is_empty());
    assert_eq!(daemon.server_status("fake")["violations"], 0);
}

/// C056: a host's CR LF reaches the child as LF.
#[test]
fn a_hosts_line_ends_reach_the_child_as_lf() {
    let home = Home::new();
    home.fake("fake", &["--exit-on-cr"]);
    let daemon = home.start();
    let mut host = daemon.connect_host("fake");
    host.initialize();
    host.send_bytes(
        b"{\"jsonrpc\":\"2.0\",\"id\":50,\"method\":\"tools/call\",\"params\":{\"name\":\"sum\",\"arguments\":{\"a\":1}}}\r\n",
    );
    assert_eq!(text_of(&host.answer(50)), "1");
    assert_eq!(daemon.record("fake").starts(), 1);
}

/// C058: a BOM is no part of a message; a bad line gets `-32700` and the session goes on; the child sees
/// nothing of it. The error has `id: null` before 2025-11-25 and no id from then on.
#[test]
fn a_bad_line_of_a_host_is_answered_and_survived() {
    let home = Home::new();
    home.fake("fake", &[]);
    let daemon = home.start();
    for (version, has_null_id) in [("2025-06-18", true), ("2025-11-25", false)] {
        let mut host = daemon.socket_host("fake");
        host.send_bytes(b"\xef\xbb\xbf");
        host.initialize_as(version);
        host.send_line("not json");
        let refusal = host
            .wait_line("a refusal", |line| line.json["error"].is_object())
            .json;
        assert_eq!(error_code(&refusal), -32700);
        assert_eq!(
            refusal.get("id"),
            has_null_id.then_some(&Value::Null),
            "{version}: {refusal}"
        );
        assert_eq!(host.ask("ping", json!({}))["result"], json!({}));
        assert_eq!(host.text("sum", json!({"a": 1})), "1");
    }
    assert!(
        daemon
            .record("fake")
            .lines()
            .iter()
            .all(|line| line.starts_with('{') && !line.contains("not json"))
    );
}

/// C060: a reply that is printed over many lines fails its own call and no other.
#[test]
fn a_pretty_printed_reply_is_not_silent() {
    let home = Home::new();
    home.fake("fake", &[]);
    let daemon = home.start();
    let mut host = daemon.socket_host("fake");
    host.initialize();
    let answer = host.call("reply", json!({"kind": "pretty"}));
    assert!(answer["error"].is_object(), "{answer}");
    assert!(answer.to_string().contains("multi-line JSON"), "{answer}");
    assert_eq!(host.text("sum", json!({"a": 1})), "1");
    assert!(host.everything_up_to_now().is_empty());
    assert!(
        daemon.server_status("fake")["violations"]
            .as_u64()
            .is_some_and(|count| count > 0)
    );
}

/// C062: a child that frames by Content-Length cannot be served; the error names the framing.
#[test]
fn a_childs_content_length_framing_is_named() {
    let home = Home::new();
    home.fake_with(
        "fake",
        &["--initialize", "content-length"],
        "start_timeout = \"1s\"\nstart_limit = 1\nstop_timeout = \"500ms\"\n",
    );
    let daemon = home.start();
    let mut host = daemon.socket_host("fake");
    let answer = host.ask("initialize", crate::common::initialize_params("2025-11-25"));
    assert_eq!(error_code(&answer), -31000);
    assert!(answer.to_string().contains("Content-Length"), "{answer}");
}

/// C062: a host that frames by Content-Length is told so, and is served once it sends lines.
#[test]
fn a_hosts_content_length_framing_is_refused_clearly() {
    let home = Home::new();
    home.fake("fake", &[]);
    let daemon = home.start();
    let mut host = daemon.socket_host("fake");
    host.send_bytes(b"Content-Length: 52\r\n\r\n");
    let refusal = host
        .wait_line("a refusal", |line| line.json["error"].is_object())
        .json;
    assert_eq!(error_code(&refusal), -32700);
    assert!(refusal.to_string().contains("Content-Length"), "{refusal}");
    host.initialize();
}

/// C064, fault 13: invalid UTF-8 fails the request it belongs to, from either side, and no other.
#[test]
fn invalid_utf8_fails_one_request() {
    let home = Home::new();
    home.fake("fake", &[]);
    let daemon = home.start();
    let mut host = daemon.socket_host("fake");
    host.initialize();
    let answer = host.call("reply", json!({"kind": "invalid-utf8"}));
    assert!(answer["error"].is_object(), "{answer}");
    assert_eq!(host.text("sum", json!({"a": 1})), "1");
    host.send_bytes(b"{\"jsonrpc\":\"2.0\",\"id\":60,\"method\":\"tools/call\",\"params\":{\"name\":\"\xff\xfe\"}}\n");
    let refusal = host
        .wait_line("a refusal", |line| line.json["error"].is_object())
        .json;
    assert_eq!(error_code(&refusal), -32700, "{refusal}");
    assert_eq!(host.text("sum", json!({"a": 2})), "2");
}

/// Half a message, a raw control character and bytes after a message fail their request alone.
#[test]
fn half_messages_fail_one_request() {
    let home = Home::new();
    home.fake("fake", &[]);
    let daemon = home.start();
    let mut host = daemon.socket_host("fake");
    host.initialize();
    for kind in ["half", "control", "trailing"] {
        let answer = host.call("reply", json!({"kind": kind}));
        assert!(answer["error"].is_object(), "{kind}: {answer}");
        assert_eq!(host.text("sum", json!({"a": 1})), "1", "{kind}");
    }
    assert!(host.everything_up_to_now().is_empty());
}

/// C066: lone surrogate escapes pass byte for byte, in text, keys and arguments.
#[test]
fn lone_surrogates_pass_byte_for_byte() {
    let home = Home::new();
    home.fake("fake", &[]);
    let daemon = home.start();
    let mut host = daemon.socket_host("fake");
    host.initialize();
    let id = host.start_call("reply", json!({"kind": "surrogate"}));
    let line = host.wait_line("the reply", |line| {
        line.text().contains(&format!("\"id\":{id}"))
    });
    assert!(
        line.text().contains(r#""text":"high \ud83d low \ude00""#),
        "{}",
        line.text()
    );
    assert!(line.text().contains(r#""key \ud83d":1"#), "{}", line.text());
    let arguments = r#"{"a \udc00":"\ud800 and \uDBFF"}"#;
    host.send_line(&format!(
        r#"{{"jsonrpc":"2.0","id":61,"method":"tools/call","params":{{"name":"echo","arguments":{arguments}}}}}"#
    ));
    let line = host.wait_line("the echo", |line| line.text().contains("\"id\":61"));
    assert!(line.text().contains(arguments), "{}", line.text());
}

/// C068: any depth passes or is refused with its id; ping is always answered.
#[test]
fn deep_nesting_is_survived() {
    let home = Home::new();
    home.fake("fake", &[]);
    let daemon = home.start();
    let mut host = daemon.socket_host("fake");
    host.initialize();
    for (number, depth) in [100, 126, 200, 5_000, 100_000].into_iter().enumerate() {
        let id = 5000 + number;
        let nested = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        host.send_line(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"echo","arguments":{{"deep":{nested}}}}}}}"#
        ));
        let line = host.wait_line("the echo", |line| {
            line.text().contains(&format!("\"id\":{id}"))
        });
        assert!(
            line.text().contains(&nested),
            "depth {depth}: {}",
            line.text().len()
        );
        let kind = format!("deep:{depth}");
        let id = host.start_call("reply", json!({"kind": kind}));
        let line = host.wait_line("the reply", |line| {
            line.text().contains(&format!("\"id\":{id},"))
        });
        assert!(
            line.text().contains(&nested),
            "depth {depth}: {}",
            line.text().len()
        );
        assert_eq!(host.ask("ping", json!({}))["result"], json!({}));
    }
}

/// C070: a member that routes and stands twice is refused from a host, and an error for each id from a child.
#[test]
fn doubled_members_are_refused() {
    let home = Home::new();
    home.fake("fake", &[]);
    let daemon = home.start();
    let mut host = daemon.socket_host("fake");
    let mut other = daemon.socket_host("fake");
    host.initialize();
    other.initialize();
    for line in [
        r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":71,"method":"ping","method":"tools/list"}"#,
        r#"{"jsonrpc":"2.0","id":72,"method":"tools/call","params":{"name":"pid","n\u0061me":"env","arguments":{}}}"#,
        r#"{"jsonrpc":"2.0","id":73,"method":"tools/call","params":{"name":"pid"},"params":{"name":"env"}}"#,
    ] {
        host.send_line(line);
        let refusal = host
            .wait_line("a refusal", |line| line.json["error"].is_object())
            .json;
        assert_eq!(error_code(&refusal), -32600, "{line}: {refusal}");
    }
    for kind in ["double-id", "double-result"] {
        let answer = host.call("reply", json!({"kind": kind}));
        assert!(answer["error"].is_object(), "{kind}: {answer}");
    }
    assert!(daemon.record("fake").with_method("ping").is_empty());
    for host in [&mut host, &mut other] {
        assert!(
            host.everything_up_to_now().is_empty(),
            "a doubled id reaches nobody else"
        );
    }
    // Elsewhere duplicates are the child's affair.
    host.send_line(
        r#"{"jsonrpc":"2.0","id":74,"method":"tools/call","params":{"name":"echo","arguments":{"a":1,"a":2}}}"#,
    );
    let line = host.wait_line("the echo", |line| line.json["id"] == 74);
    assert!(line.text().contains(r#"{"a":1,"a":2}"#), "{}", line.text());
}

/// `params` that are no object, and messages that are none: refused with their id where there is one.
#[test]
fn what_is_no_message_is_refused_with_its_id() {
    let home = Home::new();
    home.fake("fake", &[]);
    let daemon = home.start();
    let mut host = daemon.socket_host("fake");
    host.initialize();
    for line in [
        r#"{"jsonrpc":"2.0","id":81,"method":"tools/call","params":[1]}"#,
        r#"{"jsonrpc":"2.0","id":81,"method":"tools/call","params":"x"}"#,
        r#"{"jsonrpc":"2.0","id":81,"method":5}"#,
        r#"{"jsonrpc":"2.0","id":81}"#,
    ] {
        host.send_line(line);
        assert_eq!(error_code(&host.answer(81)), -32600, "{line}");
    }
    for line in [
        "1",
        "\"x\"",
        "null",
        "{",
        "{}",
        "{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"ping\"}",
    ] {
        host.send_line(line);
        let refusal = host
            .wait_line("a refusal", |line| line.json["error"].is_object())
            .json;
        assert!(
            [-32700, -32600].contains(&error_code(&refusal)),
            "{line}: {refusal}"
        );
    }
    assert_eq!(host.text("sum", json!({"a": 1})), "1");
}

/// C072: sizes around every usual buffer pass, both ways.
#[test]
fn every_ordinary_size_passes() {
    let home = Home::new();
    home.fake("fake", &[]);
    let daemon = home.start();
    let mut host = daemon.connect_host("fake");
    host.initialize();
    for size in [
        4_095, 4_096, 8_191, 8_192, 65_535, 65_536, 65_537, 70_000, 1_000_000,
    ] {
        let text = "s".repeat(size);
        let answer = host.call("echo", json!({"text": text}));
        assert_eq!(
            answer["result"]["structuredContent"]["text"]
                .as_str()
                .map(str::len),
            Some(size)
        );
        assert_eq!(host.text("big", json!({"bytes": size})).len(), size);
    }
}

/// C074: tens of megabytes pass by default.
#[test]
fn large_results_pass() {
    let home = Home::new();
    home.fake("fake", &[]);
    let daemon = home.start();
    let mut host = daemon.socket_host("fake");
    host.initialize();
    for size in [15_000_000, 40_000_000] {
        assert_eq!(host.text("big", json!({"bytes": size})).len(), size);
    }
}

/// C074, fault 12: past `message_limit` one request fails, with its id, either way, and the session goes on.
#[test]
fn a_message_over_the_limit_fails_one_request() {
    let home = Home::new();
    home.fake_with("fake", &[], "message_limit = \"1MiB\"\n");
    let daemon = home.start();
    let mut host = daemon.socket_host("fake");
    host.initialize();
    for _ in 0..2 {
        assert_eq!(
            error_code(&host.call("big", json!({"bytes": 2_000_000}))),
            -31004
        );
        assert_eq!(
            error_code(&host.call("echo", json!({"text": "x".repeat(2_000_000)}))),
            -31004
        );
        assert_eq!(host.text("sum", json!({"a": 1})), "1");
    }
    // The id may stand behind the limit.
    host.send_line(&format!(
        r#"{{"jsonrpc":"2.0","method":"tools/call","params":{{"name":"echo","arguments":"{}"}},"id":"last"}}"#,
        "x".repeat(2_000_000)
    ));
    assert_eq!(error_code(&host.answer("last")), -31004);
    assert_eq!(host.text("noise", json!({"kind": "long:3000000"})), "noisy");
    assert_eq!(daemon.record("fake").starts(), 1);
}

/// C076: large messages of several writers come out whole, though everybody reads slowly.
#[test]
fn large_messages_do_not_interleave() {
    let home = Home::new();
    home.fake("fake", &["--read-slowly"]);
    let daemon = home.start();
    let mut one = daemon.connect_host("fake");
    let mut two = daemon.connect_host("fake");
    one.initialize();
    two.initialize();
    let text = "r".repeat(400_000);
    let mut open = Vec::new();
    for _ in 0..3 {
        for host in [&mut one, &mut two] {
            open.push((
                host.start_call("echo", json!({"text": text})),
                host.start_call("twice_big", json!({"bytes": 1_000_000})),
            ));
        }
    }
    let shims = [&one, &two].map(|host| Pid::from_raw(host.pid()));
    let answered = AtomicBool::new(false);
    thread::scope(|scope| {
        // Shims that read in short spells.
        scope.spawn(|| {
            while !answered.load(Ordering::SeqCst) {
                for (signal, time_ms) in [(Signal::SIGSTOP, 40), (Signal::SIGCONT, 20)] {
                    for shim in shims {
                        kill(shim, signal).expect("the shim is there");
                    }
                    let_pass(Duration::from_millis(time_ms));
                }
            }
        });
        for (number, (echo, big)) in open.into_iter().enumerate() {
            let host = if number % 2 == 0 { &mut one } else { &mut two };
            assert_eq!(
                host.answer(echo)["result"]["structuredContent"]["text"],
                text
            );
            assert_eq!(text_of(&host.answer(big)).len(), 1_000_000);
        }
        answered.store(true, Ordering::SeqCst);
    });
    for host in [&mut one, &mut two] {
        let others = host.everything_up_to_now();
        assert!(
            others
                .iter()
                .all(|line| line.json["method"] == "notifications/message"),
            "a line was torn"
        );
        assert_eq!(
            others.len(),
            6 * 1000,
            "every notification reached each host"
        );
    }
}

/// Fault 13: a child may write CR LF, a BOM, one byte at a time, or separators that only JavaScript takes for line ends.
#[test]
fn unusual_but_valid_lines_are_read() {
    let home = Home::new();
    home.fake("fake", &[]);
    let daemon = home.start();
    let mut host = daemon.socket_host("fake");
    host.initialize();
    for kind in ["plain", "crlf", "bom", "bytewise"] {
        assert_eq!(
            text_of(&host.call("reply", json!({"kind": kind}))),
            format!("reply {kind}")
        );
    }
    let answer = host.call("reply", json!({"kind": "separators"}));
    assert_eq!(text_of(&answer), "\u{2028}\u{2029}\u{85}reply separators");
    assert_eq!(daemon.server_status("fake")["violations"], 0);
}

/// A reply in a content-length block: its own call ends, the next lines are read again.
#[test]
fn a_reply_in_a_content_length_block_is_survived() {
    let home = Home::new();
    home.fake_with("fake", &[], "request_timeout = \"2s\"\n");
    let daemon = home.start();
    let mut host = daemon.socket_host("fake");
    host.initialize();
    let first = host.start_call("reply", json!({"kind": "content-length"}));
    host.call("noise", json!({"kind": "blank"}));
    host.answer(first);
    assert_eq!(host.text("sum", json!({"a": 1})), "1");
}
