//! The judge itself: it lets through what fits, and finds what does not.

use super::judge::{Judge, Peer, Tainted, is_there};
use super::{initialize, request, result};

fn host() -> Judge {
    let mut judge = Judge::new(Peer::Host, Tainted::default());
    judge.heard(initialize("1", "2025-06-18").as_bytes());
    judge
}

const WELCOMED: &str = r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"n","version":"1"}}}"#;

const MODERN_LIST: &str = r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}"#;

#[test]
fn what_fits_the_version_of_its_connection_is_let_through() {
    let mut judge = host();
    assert_eq!(judge.wrote(WELCOMED.as_bytes()), Ok(()));
    judge.heard(request("2", "tools/call", r#"{"name":"t"}"#).as_bytes());
    let answer = r#"{"jsonrpc":"2.0","id":2,"result":{"content":[]}}"#;
    assert_eq!(judge.wrote(answer.as_bytes()), Ok(()));
}

#[test]
fn what_does_not_fit_is_found_in_each_kind_of_message() {
    if !is_there() {
        return;
    }
    let found = |judge: &mut Judge, text: &str, why: &str| {
        let verdict = judge.wrote(text.as_bytes());
        assert!(
            verdict.as_ref().is_err_and(|said| said.contains(why)),
            "{verdict:?}"
        );
    };
    let mut judge = host();
    found(
        &mut judge,
        &WELCOMED.replace("serverInfo", "x"),
        "serverInfo",
    );
    let mut judge = host();
    judge.wrote(WELCOMED.as_bytes()).expect("it fits");
    judge.heard(request("2", "tools/call", r#"{"name":"t"}"#).as_bytes());
    found(&mut judge, &result("2"), "content");
    judge.heard(request("3", "tools/list", MODERN_LIST).as_bytes());
    let legacy = r#"{"jsonrpc":"2.0","id":3,"result":{"tools":[]}}"#;
    found(&mut judge, legacy, "2026-07-28 ListToolsResult");
    judge.heard(request("4", "tools/list", "{}").as_bytes());
    found(
        &mut judge,
        r#"{"jsonrpc":"2.0","id":4,"error":{"code":"x","message":"m"}}"#,
        "code",
    );
    found(
        &mut judge,
        &request("9", "elicitation/create", r#"{"message":"m"}"#),
        "requestedSchema",
    );
    let complete = r#"{"jsonrpc":"2.0","method":"notifications/elicitation/complete","params":{"elicitationId":"e"}}"#;
    found(
        &mut judge,
        complete,
        "2025-06-18 has no notifications/elicitation/complete",
    );
}

#[test]
fn what_a_peer_writes_wrongly_is_not_held_against_who_passes_it_on() {
    let tainted = Tainted::default();
    let mut judge = Judge::new(Peer::Host, tainted.clone());
    judge.heard(request("2", "tools/call", r#"{"name":"t"}"#).as_bytes());
    let mut child = Judge::new(Peer::Child, tainted);
    child
        .wrote(request("5", "tools/call", r#"{"name":"t"}"#).as_bytes())
        .expect("it fits");
    child.heard(result("5").as_bytes());
    assert_eq!(judge.wrote(result("2").as_bytes()), Ok(()));
}
