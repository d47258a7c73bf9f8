//! Random histories of questions: hosts of both eras, calls, retries, cancellations, departures and
//! crashes in any order.
//!
//! A model beside the multiplexer knows who called what. It holds against every step: a question
//! reaches the one caller it belongs to or nobody; the child gets at most one answer to it, and from
//! that caller; each request gets one reply; when all is over nothing is held.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;

use super::modern_hosts::modern;
use super::*;
use crate::session::Asking;

const ABLE: &str = r#"{"elicitation":{},"sampling":{},"roots":{}}"#;

#[derive(Clone, Debug)]
enum Step {
    /// A host calls, in one era or the other.
    Call {
        host: u8,
        is_modern: bool,
    },
    /// The child asks about whatever it has open.
    Ask,
    /// A legacy host answers the question that it has had longest.
    Answer {
        host: u8,
    },
    /// A host comes back with a state that any modern host was given, with an answer or without.
    Retry {
        host: u8,
        which: u8,
        answers: bool,
    },
    /// A host cancels its latest request.
    Cancel {
        host: u8,
    },
    /// The child takes back its latest question.
    Withdraw,
    /// The child answers a call.
    Finish {
        which: u8,
    },
    /// A host leaves, and another one comes.
    Leave {
        host: u8,
    },
    Crash,
    Pass {
        seconds: u16,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let host = 0..3_u8;
    let step = prop_oneof![
        8 => (host.clone(), any::<bool>()).prop_map(|(host, is_modern)| Step::Call { host, is_modern }),
        8 => Just(Step::Ask),
        5 => host.clone().prop_map(|host| Step::Answer { host }),
        8 => (host.clone(), any::<u8>(), any::<bool>())
            .prop_map(|(host, which, answers)| Step::Retry { host, which, answers }),
        2 => host.clone().prop_map(|host| Step::Cancel { host }),
        1 => Just(Step::Withdraw),
        6 => any::<u8>().prop_map(|which| Step::Finish { which }),
        1 => host.prop_map(|host| Step::Leave { host }),
        1 => Just(Step::Crash),
        1 => (0..700_u16).prop_map(|seconds| Step::Pass { seconds }),
    ];
    prop::collection::vec(step, 1..60)
}

/// What was asked of a host of either era, and what became of it.
#[derive(Debug, Default)]
struct QuestionModel {
    /// Who was asked, once somebody was.
    asked: Option<HostKey>,
    was_answered: bool,
}

struct Model {
    bench: Bench,
    hosts: Vec<HostKey>,
    last_host: u64,
    last_id: u64,
    last_question: u64,
    /// Requests that are owed a reply, with their host and whether it may stay away.
    owed: BTreeMap<u64, (HostKey, bool)>,
    /// Upstream ids of calls that the child has open, with the tag that says whose they are.
    open: BTreeMap<u64, u64>,
    /// The host that made the call of a tag.
    callers: BTreeMap<u64, HostKey>,
    /// Questions of this child.
    questions: BTreeMap<u64, QuestionModel>,
    /// Our ids of what legacy hosts were asked.
    pending: BTreeMap<HostKey, Vec<u64>>,
    /// States that modern hosts were given, with the tag of the call and the keys that were asked.
    states: Vec<(String, u64, Vec<String>)>,
}

impl Model {
    fn new() -> Self {
        let mut config = config();
        config.asking = Asking::Turns;
        let mut model = Self {
            bench: Bench::serving(config, &[]),
            hosts: Vec::new(),
            last_host: 0,
            last_id: 0,
            last_question: 1_000,
            owed: BTreeMap::new(),
            open: BTreeMap::new(),
            callers: BTreeMap::new(),
            questions: BTreeMap::new(),
            pending: BTreeMap::new(),
            states: Vec::new(),
        };
        for _ in 0..3 {
            model.attach();
        }
        model
    }

    fn attach(&mut self) {
        self.last_host += 1;
        let host = HostKey(self.last_host);
        self.bench.attach(host);
        let text = initialize("\"hello\"", "2025-11-25")
            .replace(r#""capabilities":{}"#, &format!(r#""capabilities":{ABLE}"#));
        self.bench.host(host, &text);
        self.bench.take_host(host);
        self.hosts.push(host);
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Call { host, is_modern } => self.call(self.hosts[usize::from(host)], is_modern),
            Step::Ask => self.ask(),
            Step::Answer { host } => self.answer(self.hosts[usize::from(host)]),
            Step::Retry {
                host,
                which,
                answers,
            } => {
                self.retry(self.hosts[usize::from(host)], which, answers);
            }
            Step::Cancel { host } => self.cancel(self.hosts[usize::from(host)]),
            Step::Withdraw => {
                let params = format!(r#"{{"requestId":{}}}"#, self.last_question);
                self.bench
                    .child(notification("notifications/cancelled", &params));
            }
            Step::Finish { which } => self.finish(which),
            Step::Leave { host } => self.leave(usize::from(host)),
            Step::Crash => self.crash(),
            Step::Pass { seconds } => self.bench.pass(Duration::from_secs(seconds.into())),
        }
        self.look();
    }

    fn owe(&mut self, host: HostKey) -> u64 {
        self.last_id += 1;
        self.owed.insert(self.last_id, (host, false));
        self.last_id
    }

    fn call(&mut self, host: HostKey, is_modern: bool) {
        let id = self.owe(host);
        self.callers.insert(id, host);
        let members = format!(r#","name":"t","arguments":{{"tag":{id}}}"#);
        let text = if is_modern {
            modern(&id.to_string(), "tools/call", ABLE, &members)
        } else {
            request(
                &id.to_string(),
                "tools/call",
                &format!("{{{}}}", &members[1..]),
            )
        };
        self.bench.host(host, &text);
    }

    fn ask(&mut self) {
        self.last_question += 1;
        self.questions
            .insert(self.last_question, QuestionModel::default());
        let params = format!(r#"{{"question":{}}}"#, self.last_question);
        self.bench.child(request(
            &self.last_question.to_string(),
            "roots/list",
            &params,
        ));
    }

    fn answer(&mut self, host: HostKey) {
        let Some(id) = self.pending.get_mut(&host).and_then(Vec::pop) else {
            return;
        };
        let roots = format!(r#"{{"roots":[{{"uri":"host:{host}"}}]}}"#);
        self.bench.host(
            host,
            &format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{roots}}}"#),
        );
    }

    fn retry(&mut self, host: HostKey, which: u8, answers: bool) {
        let count = self.states.len().max(1);
        let Some((state, tag, keys)) = self.states.get(usize::from(which) % count).cloned() else {
            return;
        };
        // The answer says for whom it was asked: a retry on another attachment is the same caller's.
        let caller = self.callers[&tag];
        let answer = format!(r#"{{"roots":[{{"uri":"host:{caller}"}}]}}"#);
        let responses: Vec<_> = keys
            .iter()
            .filter(|_| answers)
            .map(|key| format!(r#""{key}":{answer}"#))
            .collect();
        let id = self.owe(host);
        let members = format!(
            r#","name":"t","arguments":{{"tag":{tag}}},"requestState":"{state}","inputResponses":{{{}}}"#,
            responses.join(",")
        );
        self.bench
            .host(host, &modern(&id.to_string(), "tools/call", ABLE, &members));
    }

    fn cancel(&mut self, host: HostKey) {
        let latest = self.owed.iter_mut().rev().find(|(_, (of, _))| *of == host);
        if let Some((id, (_, is_optional))) = latest {
            *is_optional = true;
            let params = format!(r#"{{"requestId":{id}}}"#);
            self.bench
                .host(host, &notification("notifications/cancelled", &params));
        }
    }

    fn finish(&mut self, which: u8) {
        let count = self.open.len().max(1);
        let Some(id) = self.open.keys().nth(usize::from(which) % count).copied() else {
            return;
        };
        self.open.remove(&id);
        self.bench.child(format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[]}}}}"#
        ));
    }

    fn leave(&mut self, at: usize) {
        let host = self.hosts.remove(at);
        self.bench.leave(host);
        self.owed.retain(|_, (of, _)| *of != host);
        self.pending.remove(&host);
        self.attach();
    }

    fn crash(&mut self) {
        self.bench.crash();
        self.open.clear();
        self.look();
        self.questions.clear();
        self.pending.clear();
        self.bench.start();
        self.bench.open();
    }

    /// Looks at all that came out of a step.
    fn look(&mut self) {
        for line in self.bench.take_child() {
            self.child_got(&line);
        }
        for host in self.hosts.clone() {
            for line in self.bench.take_host(host) {
                self.host_got(host, &line);
            }
        }
    }

    fn child_got(&mut self, line: &str) {
        let message: Value = serde_json::from_str(line).expect("valid JSON");
        if message["method"] == "tools/call" {
            let id = message["id"].as_u64().expect("an id");
            let tag = message["params"]["arguments"]["tag"]
                .as_u64()
                .expect("a tag");
            self.open.insert(id, tag);
            let callers: BTreeSet<_> = self.open.values().map(|tag| self.callers[tag]).collect();
            assert_eq!(callers.len(), 1, "hosts take turns");
        } else if message["method"] == "notifications/cancelled" {
            let id = message["params"]["requestId"].as_u64().expect("an id");
            self.open.remove(&id);
        } else if message["method"].is_null() {
            let id = message["id"].as_u64().expect("an id");
            let question = self.questions.get_mut(&id).expect("it was asked");
            assert!(!question.was_answered, "{line}: a second answer");
            question.was_answered = true;
            if let Some(uri) = message.pointer("/result/roots/0/uri") {
                let asked = question.asked.expect("somebody was asked");
                assert_eq!(*uri, format!("host:{asked}"), "another host's answer");
            }
        }
    }

    fn host_got(&mut self, host: HostKey, line: &str) {
        let message: Value = serde_json::from_str(line).expect("valid JSON");
        if message["method"] == "roots/list" {
            let id = message["id"].as_u64().expect("an id");
            self.pending.entry(host).or_default().push(id);
            return self.note_asked(host, &message["params"]["question"]);
        }
        if !message["method"].is_null() {
            return;
        }
        let id = message["id"].as_u64().expect("an id");
        let (of, _) = self.owed.remove(&id).expect("a reply that is owed, once");
        assert_eq!(of, host);
        let result = &message["result"];
        if result["resultType"] != "input_required" {
            return;
        }
        let requests = result["inputRequests"].as_object().expect("questions");
        let state = result["requestState"].as_str().expect("a state").to_owned();
        let mut callers = BTreeSet::new();
        for request in requests.values() {
            let question = request["params"]["question"].as_u64().expect("a question");
            let caller = *self.open.values().next().expect("its call is open");
            callers.insert(caller);
            self.note_asked(self.callers[&caller], &Value::from(question));
        }
        let tag = callers.pop_first().expect("a call");
        self.states
            .push((state, tag, requests.keys().cloned().collect()));
    }

    /// A question may be put again, but only to the same caller, and only to one with a call open.
    fn note_asked(&mut self, host: HostKey, question: &Value) {
        let question = question.as_u64().expect("a number");
        let callers: BTreeSet<_> = self.open.values().map(|tag| self.callers[tag]).collect();
        assert!(callers.contains(&host), "asked without a call");
        let question = self.questions.get_mut(&question).expect("it was asked");
        assert!(question.asked.is_none_or(|asked| asked == host));
        question.asked = Some(host);
    }

    /// Lets everything end, and looks whether anything is left.
    fn end(mut self) {
        for _ in 0..200 {
            self.finish(0);
            self.look();
            self.bench.pass(Duration::from_secs(700));
            self.look();
        }
        let missing: Vec<_> = self.owed.iter().filter(|(_, (_, may))| !may).collect();
        assert!(missing.is_empty(), "no reply to {missing:?}");
        self.bench.expect_quiet();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// C161: whatever happens, a question has one caller or none.
    #[test]
    fn each_question_reaches_its_caller_or_nobody(steps in steps()) {
        let mut model = Model::new();
        for step in &steps {
            model.step(step);
        }
        model.end();
    }
}
