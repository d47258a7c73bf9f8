//! The first exchange, line by line.

use super::*;
use crate::protocol::line::LineReader;
use crate::protocol::message::Line;
use crate::protocol::version::Revision;

const RESULT: &str = r#"{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true},"logging":true}, "serverInfo":{"name":"n","version":"1"},"instructions":"do","x":1.0}"#;

const LEGACY: Plan = Plan {
    choice: EraChoice::Legacy,
    remembered: None,
    after_death: false,
    is_interactive: false,
};

fn begun() -> Opening {
    let mut opening = Opening::new("1.2.3", LEGACY, Moment::ZERO);
    opening.poll_frame().unwrap();
    opening
}

/// Hands every line of `stream` over, as the multiplexer does, and says which were taken.
fn hear(opening: &mut Opening, stream: &str) -> Vec<bool> {
    let mut reader = LineReader::new(1 << 20);
    reader.feed(stream.as_bytes());
    reader.feed(b"\n");
    let lines = std::iter::from_fn(|| reader.poll());
    lines
        .map(|line| match line {
            Line::Message(message) => opening.handle_message(&message, Moment::ZERO),
            Line::Fault(fault) => opening.handle_fault(&fault, Moment::ZERO),
            Line::Batch(_) => false,
        })
        .collect()
}

/// `stream` ends the exchange with a refusal that says `text`.
#[track_caller]
fn check_refused(stream: &str, text: &str) -> Refusal {
    let mut opening = begun();
    hear(&mut opening, stream);
    assert!(opening.poll_frame().is_none());
    let refusal = opening.poll_outcome().expect("no outcome").unwrap_err();
    assert!(refusal.text.contains(text), "{}", refusal.text);
    refusal
}

/// `stream` leaves the exchange open.
#[track_caller]
fn check_ignored(stream: &str) {
    let mut opening = begun();
    assert!(hear(&mut opening, stream).iter().all(|taken| !taken));
    assert!(!opening.is_done());
    assert!(opening.poll_outcome().is_none());
}

fn answer(result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#)
}

#[test]
fn initialize_offers_the_newest_version_and_no_capability() {
    let mut opening = Opening::new("1.2.3", LEGACY, Moment::ZERO);
    let frame = opening.poll_frame().unwrap().to_vec();
    assert_eq!(
        String::from_utf8(frame).unwrap(),
        concat!(
            r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","#,
            r#""capabilities":{},"clientInfo":{"name":"mcpd","version":"1.2.3"}}}"#,
            "\n"
        )
    );
    assert!(opening.poll_frame().is_none());
    assert!(opening.poll_timeout().is_none());
}

#[test]
fn a_valid_answer_opens_the_session_once() {
    let mut opening = begun();
    let second = answer(RESULT).replace("do", "other");
    let taken = hear(&mut opening, &format!("{}\n{second}", answer(RESULT)));
    assert_eq!(taken, [true, false]);
    let initialized = opening.poll_frame().unwrap().to_vec();
    assert_eq!(
        initialized,
        b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n"
    );
    let identity = opening.poll_outcome().unwrap().unwrap();
    assert_eq!(identity.version, Revision::Legacy(Version::V2025_06_18));
    assert_eq!(identity.result, RESULT);
    assert_eq!(identity.server_name.as_deref(), Some("n"));
    assert_eq!(identity.server_version.as_deref(), Some("1"));
    assert_eq!(identity.instructions.as_deref(), Some("do"));
    assert!(identity.offers("tools") && identity.declares("tools", "listChanged"));
    assert!(!identity.offers("logging") && !identity.declares("resources", "subscribe"));
    assert!(opening.poll_outcome().is_none() && opening.poll_frame().is_none());
}

#[test]
fn every_legacy_version_is_taken() {
    for version in Version::ALL {
        let mut opening = begun();
        let result = format!(r#"{{"protocolVersion":"{version}","capabilities":{{}}}}"#);
        hear(&mut opening, &answer(&result));
        let identity = opening.poll_outcome().unwrap().unwrap();
        assert_eq!(identity.version, Revision::Legacy(version));
    }
}

#[test]
fn what_is_not_the_answer_is_left_to_others() {
    check_ignored(r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#);
    check_ignored(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#);
    check_ignored(r#"{"jsonrpc":"2.0","id":2,"result":{}}"#);
    check_ignored(r#"{"jsonrpc":"2.0","id":"1","result":{}}"#);
    check_ignored(r#"{"level":"info"}"#);
    check_ignored("banner\n{starting}\n{\n  \"port\": 1\n}\n[INFO] up");
    check_ignored("{\"method\":\"notifications/message\",\"params\":{\"data\":\"cut");
}

#[test]
fn a_refusal_says_what_was_seen() {
    let refusal = check_refused(
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no \"way\""}}"#,
        "refused `initialize`: no \"way\" (code -32602)",
    );
    assert_eq!(
        refusal.error.unwrap(),
        r#"{"code":-32602,"message":"no \"way\""}"#
    );
    check_refused(r#"{"id":1,"error":"no"}"#, "\"no\"");
    check_refused(
        r#"{"id":null,"error":{"message":"m"}}"#,
        "refused `initialize`: m",
    );
    check_refused(r#"{"error":{"message":"m"}}"#, "refused `initialize`: m");
}

#[test]
fn a_malformed_answer_is_refused() {
    for (result, text) in [
        ("5", "`result` is `5`"),
        ("{}", "`protocolVersion` is missing"),
        (r#"{"protocolVersion":1}"#, "`protocolVersion` is `1`"),
        (
            r#"{"protocolVersion":"2026-07-28","capabilities":{}}"#,
            "version `2026-07-28`; mcpd speaks 2024-11-05, 2025-03-26, 2025-06-18, 2025-11-25",
        ),
        (
            r#"{"protocolVersion":"2025-11-25"}"#,
            "`capabilities` is missing",
        ),
        (
            r#"{"protocolVersion":"2025-11-25","capabilities":[]}"#,
            "`capabilities` is `[]`",
        ),
    ] {
        check_refused(&answer(result), text);
    }
    check_refused(r#"{"id":1}"#, "neither `result` nor `error`");
    check_refused(r#"{"id":1,"id":9,"result":{}}"#, "`id` occurs twice");
}

#[test]
fn an_answer_that_cannot_be_read_is_refused_at_once() {
    check_refused("{\"id\":1,\"result\":{\"proto", "cannot be read");
    check_refused("{\"jsonrpc\":\"2.0\",\"result\":{\"proto", "cannot be read");
    check_refused("Content-Length: 30\r\n\r\n{}", "Content-Length");
    check_refused("{\n  \"jsonrpc\": \"2.0\",\n  \"id\": 1", "multi-line JSON");
    check_refused(
        &answer(&format!("\"{}\"", "x".repeat(1 << 21))),
        "longer than the limit",
    );
}

#[test]
fn what_is_shown_is_short() {
    let refusal = check_refused(&answer(&format!("\"{}\"", "é".repeat(5_000))), "…");
    assert!(refusal.text.len() < 500);
}

// Discovery.

const DISCOVERY: &str = r#"{"resultType":"complete","supportedVersions":["2026-07-28","2025-11-25"],"capabilities":{"tools":{"listChanged":true}},"instructions":"do","ttlMs":0,"cacheScope":"private","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"m","version":"2"}}}"#;

fn plan(remembered: Option<Era>, after_death: bool) -> Plan {
    Plan {
        choice: EraChoice::Auto,
        remembered,
        after_death,
        is_interactive: false,
    }
}

fn at(seconds: u64) -> Moment {
    Moment::ZERO + Duration::from_secs(seconds)
}

fn found(id: u64, result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
}

fn error(id: u64, error: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#)
}

/// One exchange, told as a story: what is asked, what is answered, and what comes of it.
struct Story {
    opening: Opening,
    now: Moment,
}

impl Story {
    fn of(plan: Plan) -> Self {
        let now = Moment::ZERO;
        let opening = Opening::new("1.2.3", plan, now);
        Self { opening, now }
    }

    /// These requests were written since the last look.
    #[track_caller]
    fn asks(&mut self, methods: &[&str]) -> &mut Self {
        let mut asked = Vec::new();
        while let Some(frame) = self.opening.poll_frame() {
            let line: serde_json::Value = serde_json::from_slice(&frame.to_vec()).unwrap();
            asked.push(line["method"].as_str().unwrap().to_owned());
        }
        assert_eq!(asked, methods);
        self
    }

    #[track_caller]
    fn says(&mut self, line: &str) -> &mut Self {
        assert_eq!(hear_at(&mut self.opening, line, self.now), [true], "{line}");
        self
    }

    fn passes(&mut self, seconds: u64) -> &mut Self {
        let until = at(seconds);
        while let Some(due) = self.opening.poll_timeout().filter(|due| *due <= until) {
            self.opening.handle_timeout(due);
            assert!(self.opening.poll_timeout().is_none_or(|next| next > due));
        }
        self.now = until;
        self
    }

    #[track_caller]
    fn is_open(&mut self, version: Revision, lesson: Option<Lesson>) -> &mut Self {
        let identity = self
            .opening
            .poll_outcome()
            .expect("no outcome")
            .expect("refused");
        assert_eq!(identity.version, version);
        assert_eq!(self.opening.poll_lesson(), lesson);
        assert_eq!(self.opening.poll_timeout(), None);
        self
    }

    #[track_caller]
    fn is_refused(&mut self, text: &str, lesson: Option<Lesson>) -> &mut Self {
        let refusal = self
            .opening
            .poll_outcome()
            .expect("no outcome")
            .expect_err("open");
        assert!(refusal.text.contains(text), "{}", refusal.text);
        assert_eq!(self.opening.poll_lesson(), lesson);
        self
    }

    #[track_caller]
    fn goes_on(&mut self) -> &mut Self {
        assert!(self.opening.poll_outcome().is_none() && !self.opening.is_done());
        self
    }
}

fn hear_at(opening: &mut Opening, stream: &str, now: Moment) -> Vec<bool> {
    let mut reader = LineReader::new(1 << 20);
    reader.feed(stream.as_bytes());
    reader.feed(b"\n");
    std::iter::from_fn(|| reader.poll())
        .map(|line| match line {
            Line::Message(message) => opening.handle_message(&message, now),
            Line::Fault(fault) => opening.handle_fault(&fault, now),
            Line::Batch(_) => false,
        })
        .collect()
}

const MODERN: Revision = Revision::Modern(ModernVersion::V2026_07_28);
const OLD: Revision = Revision::Legacy(Version::V2025_06_18);
const LEARNT_MODERN: Option<Lesson> = Some(Lesson::Era(Era::Modern));
const LEARNT_LEGACY: Option<Lesson> = Some(Lesson::Era(Era::Legacy));
const NO_SUCH_METHOD: &str = r#"{"code":-32601,"message":"Method not found"}"#;
const UNSUPPORTED: &str = r#"{"code":-32022,"message":"no","data":{"supported":["2026-07-28"],"requested":"2025-11-25"}}"#;

#[test]
fn discover_goes_first_with_all_of_its_metadata() {
    let mut opening = Opening::new("1.2.3", Plan::default(), Moment::ZERO);
    let frame = opening.poll_frame().unwrap().to_vec();
    assert_eq!(
        String::from_utf8(frame).unwrap(),
        concat!(
            r#"{"jsonrpc":"2.0","id":2,"method":"server/discover","params":{"_meta":{"#,
            r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","#,
            r#""io.modelcontextprotocol/clientInfo":{"name":"mcpd","version":"1.2.3"},"#,
            r#""io.modelcontextprotocol/clientCapabilities":{}}}}"#,
            "\n"
        )
    );
    assert!(opening.poll_frame().is_none());
    assert_eq!(opening.poll_timeout(), Some(at(5)));
}

#[test]
fn a_discovery_makes_a_modern_child() {
    let mut story = Story::of(plan(None, false));
    story
        .asks(&["server/discover"])
        .says(&found(2, DISCOVERY))
        .asks(&[]);
    let identity = story.opening.poll_outcome().unwrap().unwrap();
    assert_eq!(identity.version, MODERN);
    assert_eq!(identity.result, DISCOVERY);
    assert_eq!(identity.server_name.as_deref(), Some("m"));
    assert_eq!(identity.server_version.as_deref(), Some("2"));
    assert_eq!(identity.instructions.as_deref(), Some("do"));
    assert!(identity.declares("tools", "listChanged"));
    assert_eq!(story.opening.poll_lesson(), LEARNT_MODERN);
    // No word of how complete it is: an older server's result is complete (`basic/index`).
    let bare = r#"{"supportedVersions":["2026-07-28"],"capabilities":{}}"#;
    Story::of(plan(None, false))
        .says(&found(2, bare))
        .is_open(MODERN, LEARNT_MODERN);
}

/// C155: any answer but a discovery means legacy, and `initialize` follows on the same child.
/// Fault 10: garbage and old codes.
#[test]
fn any_other_answer_means_legacy() {
    for answer in [
        error(2, NO_SUCH_METHOD),
        error(2, r#"{"code":-32602,"message":"bad"}"#),
        error(2, r#"{"code":-32000,"message":"early"}"#),
        error(2, r#"{"code":0}"#),
        error(2, r#"{"message":"x"}"#),
        error(2, r#""no""#),
        error(2, r#"{"code":-32020,"message":"header"}"#),
        error(2, r#"{"code":-32021,"message":"capability"}"#),
        error(2, r#"{"code":-32022,"message":"no data"}"#),
        error(
            2,
            r#"{"code":-32022,"message":"m","data":{"supported":[]}}"#,
        ),
        error(
            2,
            r#"{"code":-32022,"message":"m","data":{"supported":["2025-11-25"]}}"#,
        ),
        r#"{"id":null,"error":{"code":-32600,"message":"m"}}"#.to_owned(),
        found(2, "{}"),
        found(2, "[]"),
        found(2, "null"),
        found(2, r#"{"supportedVersions":["2026-07-28"]}"#),
        found(2, r#"{"supportedVersions":"2026-07-28","capabilities":{}}"#),
        found(
            2,
            r#"{"supportedVersions":["2025-06-18"],"capabilities":{}}"#,
        ),
        found(
            2,
            r#"{"resultType":"input_required","supportedVersions":["2026-07-28"],"capabilities":{}}"#,
        ),
        r#"{"id":2,"id":2,"result":{}}"#.to_owned(),
        r#"{"jsonrpc":"2.0","id":2}"#.to_owned(),
        r#"{"jsonrpc":"2.0","id":2,"result":{"cut"#.to_owned(),
    ] {
        Story::of(plan(None, false))
            .asks(&["server/discover"])
            .says(&answer)
            .asks(&["initialize"])
            .says(&found(1, RESULT))
            .asks(&["notifications/initialized"])
            .is_open(OLD, LEARNT_LEGACY);
    }
}

#[test]
fn versions_that_are_none_of_ours_are_named() {
    let data = r#"{"code":-32022,"message":"m","data":{"supported":["2031-01-01","2032-02-02"]}}"#;
    for answer in [
        error(2, data),
        found(
            2,
            r#"{"supportedVersions":["2031-01-01","2032-02-02"],"capabilities":{}}"#,
        ),
    ] {
        Story::of(plan(None, false)).says(&answer).is_refused(
            "only MCP 2031-01-01, 2032-02-02; mcpd speaks 2026-07-28",
            None,
        );
    }
}

#[test]
fn after_a_silence_initialize_follows_on_the_same_child() {
    let mut story = Story::of(plan(None, false));
    story
        .asks(&["server/discover"])
        .passes(4)
        .asks(&[])
        .passes(5)
        .asks(&["initialize"]);
    // A launcher that reads after a minute gives both answers, in the order of the questions.
    story
        .passes(60)
        .goes_on()
        .says(&error(2, NO_SUCH_METHOD))
        .goes_on();
    story.says(&found(1, RESULT)).is_open(OLD, LEARNT_LEGACY);
    // One that never answers `server/discover` proves nothing.
    let mut story = Story::of(plan(None, false));
    story.passes(6).says(&found(1, RESULT)).is_open(OLD, None);
}

#[test]
fn a_late_discovery_means_modern_and_the_refusal_of_initialize_is_ignored() {
    let mut story = Story::of(plan(None, false));
    story.passes(60).says(&found(2, DISCOVERY)).goes_on();
    story
        .says(&error(1, UNSUPPORTED))
        .is_open(MODERN, LEARNT_MODERN);
    let mut story = Story::of(plan(None, false));
    story.passes(60).says(&error(1, UNSUPPORTED)).goes_on();
    story
        .passes(80)
        .goes_on()
        .says(&found(2, DISCOVERY))
        .is_open(MODERN, LEARNT_MODERN);
    // Whatever the refusal says, for a while.
    let mut story = Story::of(plan(None, false));
    story
        .passes(60)
        .says(&error(1, NO_SUCH_METHOD))
        .passes(64)
        .goes_on();
    story
        .says(&found(2, DISCOVERY))
        .is_open(MODERN, LEARNT_MODERN);
    let mut story = Story::of(plan(None, false));
    story
        .passes(60)
        .says(&error(1, NO_SUCH_METHOD))
        .passes(65)
        .is_refused("-32601", None);
    // A modern child may leave `initialize` unanswered.
    let mut story = Story::of(plan(None, false));
    story
        .passes(60)
        .says(&found(2, DISCOVERY))
        .passes(65)
        .is_open(MODERN, LEARNT_MODERN);
}

#[test]
fn where_both_succeed_a_session_is_there_and_modern_is_remembered() {
    let mut story = Story::of(plan(None, false));
    story
        .passes(6)
        .says(&found(2, DISCOVERY))
        .says(&found(1, RESULT));
    story.is_open(OLD, LEARNT_MODERN);
    let mut story = Story::of(plan(None, false));
    story.passes(6).says(&found(1, RESULT)).is_open(OLD, None);
    story.says(&found(2, DISCOVERY));
    assert!(story.opening.poll_outcome().is_none());
    assert_eq!(story.opening.poll_lesson(), LEARNT_MODERN);
}

#[test]
fn what_is_remembered_is_used_first_and_forgotten_when_it_fails() {
    Story::of(plan(Some(Era::Legacy), false))
        .asks(&["initialize"])
        .says(&found(1, RESULT))
        .is_open(OLD, None);
    Story::of(plan(Some(Era::Modern), false))
        .asks(&["server/discover"])
        .says(&found(2, DISCOVERY))
        .is_open(MODERN, None);
    Story::of(plan(Some(Era::Legacy), false))
        .says(&error(1, r#"{"code":-32603,"message":"no licence"}"#))
        .is_refused("no licence", Some(Lesson::Forget));
    Story::of(plan(Some(Era::Modern), false))
        .says(&error(2, NO_SUCH_METHOD))
        .says(&found(1, RESULT))
        .is_open(OLD, LEARNT_LEGACY);
}

#[test]
fn a_child_whose_refusal_names_modern_versions_is_modern_after_all() {
    let text = r#"{"code":-32601,"message":"Unknown method; this server speaks 2026-07-28"}"#;
    for plan in [plan(Some(Era::Legacy), false), plan(None, true)] {
        for refusal in [UNSUPPORTED, text] {
            let mut story = Story::of(plan);
            story.asks(&["initialize"]).says(&error(1, refusal));
            story.goes_on().asks(&["server/discover"]);
            story
                .says(&found(3, DISCOVERY))
                .is_open(MODERN, LEARNT_MODERN);
        }
    }
    let mut story = Story::of(plan(None, true));
    story
        .says(&error(1, UNSUPPORTED))
        .says(&error(3, NO_SUCH_METHOD));
    story.is_refused("refused `initialize`", None);
}

#[test]
fn a_child_that_refuses_a_version_that_it_names_is_asked_once_more() {
    let mut story = Story::of(plan(None, false));
    story
        .asks(&["server/discover"])
        .says(&error(2, UNSUPPORTED))
        .asks(&["server/discover"]);
    story
        .says(&found(3, DISCOVERY))
        .is_open(MODERN, LEARNT_MODERN);
    let mut story = Story::of(plan(None, false));
    story
        .says(&error(2, UNSUPPORTED))
        .says(&error(3, UNSUPPORTED));
    story.is_refused(
        "names MCP 2026-07-28 among its versions and refuses it",
        None,
    );
}

#[test]
fn a_pinned_era_is_the_only_one_that_is_tried() {
    let pinned = |choice| Plan {
        choice,
        remembered: Some(Era::Legacy),
        after_death: true,
        is_interactive: false,
    };
    let mut story = Story::of(pinned(EraChoice::Modern));
    story
        .asks(&["server/discover"])
        .passes(600)
        .goes_on()
        .asks(&[]);
    story.says(&error(2, NO_SUCH_METHOD));
    story.is_refused("`protocol = \"modern\"` is set, but", None);
    let mut story = Story::of(pinned(EraChoice::Modern));
    story.says(&found(2, DISCOVERY)).is_open(MODERN, None);
    let mut story = Story::of(pinned(EraChoice::Legacy));
    story
        .asks(&["initialize"])
        .says(&error(1, UNSUPPORTED))
        .asks(&[]);
    story.is_refused("refused `initialize`", None);
}

/// A child that ends before it has answered anything may have ended because it was asked.
#[test]
fn only_an_unanswered_discovery_excuses_an_end() {
    let excused = |story: &Story| story.opening.may_die_of_discovery();
    let mut story = Story::of(plan(None, false));
    assert!(excused(&story));
    story.passes(6);
    assert!(
        excused(&story),
        "`initialize` is out too, and nothing was heard"
    );
    story.says(&error(2, NO_SUCH_METHOD));
    assert!(!excused(&story));
    for other in [
        plan(None, true),
        plan(Some(Era::Legacy), false),
        Plan {
            choice: EraChoice::Modern,
            ..Plan::default()
        },
        LEGACY,
    ] {
        assert!(!excused(&Story::of(other)), "{other:?}");
    }
}

#[test]
fn what_is_no_answer_to_a_discovery_is_left_to_others() {
    let mut opening = Opening::new("1", Plan::default(), Moment::ZERO);
    for line in [
        r#"{"jsonrpc":"2.0","id":2,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}"#,
        "banner",
        "{\"level\":\"info\"}",
    ] {
        assert_eq!(hear(&mut opening, line), [false], "{line}");
    }
    assert!(!opening.is_done() && opening.may_die_of_discovery());
}

#[test]
fn a_legacy_child_is_told_of_hosts_that_answer() {
    let plan = Plan {
        is_interactive: true,
        ..LEGACY
    };
    let mut opening = Opening::new("1", plan, Moment::ZERO);
    let frame = opening.poll_frame().expect("initialize").to_vec();
    let asked = String::from_utf8(frame).expect("text");
    assert!(
        asked.contains(
            r#""capabilities":{"elicitation":{"form":{},"url":{}},"sampling":{"tools":{}},"roots":{}}"#
        ),
        "{asked}"
    );
}
