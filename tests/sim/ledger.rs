//! What one host is owed, held against every frame that is made for it.
//!
//! A request is entered when the daemon takes its line and struck out when an answer is taken from
//! the multiplexer. What is left over, what comes twice, to another, with another id or another's
//! result, ends the run. Where a cancellation meets an answer that may be on its way already,
//! either may come; everything else is exact.

use std::collections::BTreeMap;

use mcpd::ids::Generation;
use mcpd::time::Moment;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

/// What a line of a host means, as the host knows it.
#[derive(Clone, Debug)]
pub(crate) enum Meaning {
    Request(Asked),
    /// Of the request with an id that is equal to this one.
    Cancel(Id),
    Batch(Vec<Self>),
    /// Nothing is due: a notification, an answer to nothing.
    Nothing,
    /// No message: an error is due, without an id if there is none.
    Fault(Option<Id>),
}

/// An id as it is sent, and what it is equal to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Id {
    pub(crate) raw: String,
    pub(crate) same_as: String,
}

#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) id: Id,
    pub(crate) tag: u64,
    pub(crate) method: &'static str,
    /// The progress token as it was sent.
    pub(crate) token: Option<String>,
}

/// An answer that is due.
#[derive(Clone, Debug)]
pub(crate) struct Owed {
    pub(crate) asked: Asked,
    pub(crate) arrived: Moment,
    is_in_batch: bool,
    /// It was cancelled when the answer may have been on its way.
    is_optional: bool,
    /// Another with this id was open, or may have been.
    may_be_doubled: bool,
    /// The child that was given it.
    pub(crate) written: Option<Generation>,
}

impl Owed {
    /// Whether it waits for a child, as far as is known.
    pub(crate) fn waits(&self) -> bool {
        !self.is_optional && !self.may_be_doubled && !self.is_in_batch
    }
}

/// The members of a frame that say what it is.
#[derive(Debug, Deserialize)]
struct Envelope<'a> {
    jsonrpc: &'a str,
    method: Option<&'a str>,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    params: Option<Params<'a>>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    error: Option<ErrorObject<'a>>,
}

#[derive(Debug, Deserialize)]
struct Params<'a> {
    #[serde(borrow, rename = "progressToken")]
    token: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
struct ErrorObject<'a> {
    code: i64,
    #[serde(borrow)]
    message: std::borrow::Cow<'a, str>,
    data: Option<Mark>,
}

/// What the children of the simulation put into their answers.
#[derive(Debug, Default, Deserialize)]
struct Mark {
    tag: Option<u64>,
    generation: Option<u64>,
    #[serde(rename = "protocolVersion")]
    version: Option<String>,
    tools: Option<IgnoredAny>,
    resources: Option<IgnoredAny>,
}

/// Where an answer stands and what it can be about.
#[derive(Clone, Copy, Debug)]
struct Place {
    in_array: bool,
    /// The code of the error, and whether it has data; absent for a result.
    code: Option<(i64, bool)>,
    is_welcome: bool,
    /// A list that some child has given before, told while no child can be asked.
    is_recalled: bool,
}

impl Place {
    /// Whether an answer without a mark is one that a request of this method gets.
    fn fits(self, method: &str) -> bool {
        match (self.code, self.is_welcome) {
            // What is said of a line that is no message.
            (Some((-32700 | -31004, false)), _) => method.is_empty(),
            (Some(_), _) => true,
            (None, true) => method == "initialize",
            (None, false) if self.is_recalled => matches!(method, "tools/list" | "resources/list"),
            (None, false) => matches!(
                method,
                "ping" | "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe"
            ),
        }
    }
}

/// One host's account.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    name: String,
    owed: Vec<Owed>,
    /// What was struck out where it was not certain which of several with one id was meant.
    struck: Vec<Owed>,
    /// Errors without an id that are due.
    nameless: usize,
    /// Its `initialize` was answered.
    is_open: bool,
    /// No frame for it can be waiting: all that there was has been taken.
    is_clean: bool,
    /// The host left in the middle of a line: what that line asked for is not known.
    is_lost: bool,
    /// Nothing but results is good enough.
    pub(crate) is_calm: bool,
    /// Answers by kind, for the account of a whole run.
    pub(crate) answers: BTreeMap<i64, u64>,
}

impl Ledger {
    pub(crate) fn new(name: String, is_calm: bool) -> Self {
        Self {
            name,
            is_calm,
            is_clean: true,
            ..Self::default()
        }
    }

    /// The daemon hands a line over to the multiplexer.
    pub(crate) fn enter(&mut self, meaning: &Meaning, now: Moment) {
        self.enter_one(meaning, false, now);
        self.is_clean = false;
    }

    /// What the host asks for from here on is not known.
    pub(crate) fn lose_track(&mut self) {
        self.is_lost = true;
        self.owed.clear();
        self.nameless = 0;
    }

    /// Something happened that may have made a frame.
    pub(crate) fn unsettle(&mut self) {
        self.is_clean = false;
    }

    /// Every frame there was has been taken.
    pub(crate) fn settle(&mut self) {
        self.is_clean = true;
    }

    fn enter_one(&mut self, meaning: &Meaning, is_in_batch: bool, now: Moment) {
        match meaning {
            Meaning::Request(asked) => {
                let may_be_doubled = self
                    .owed
                    .iter()
                    .any(|owed| owed.asked.id.same_as == asked.id.same_as);
                self.owed.push(Owed {
                    asked: asked.clone(),
                    arrived: now,
                    is_in_batch,
                    is_optional: false,
                    may_be_doubled,
                    written: None,
                });
            }
            Meaning::Cancel(id) => self.cancel(id),
            Meaning::Batch(items) => {
                for item in items {
                    self.enter_one(item, true, now);
                }
            }
            Meaning::Nothing => {}
            Meaning::Fault(None) => self.nameless += 1,
            Meaning::Fault(Some(id)) => {
                let asked = Asked {
                    id: id.clone(),
                    tag: 0,
                    method: "",
                    token: None,
                };
                self.enter_one(&Meaning::Request(asked), is_in_batch, now);
            }
        }
    }

    fn cancel(&mut self, id: &Id) {
        let is_clean = self.is_clean;
        let is_meant =
            |owed: &Owed| owed.asked.id.same_as == id.same_as && owed.asked.method != "initialize";
        self.owed
            .retain(|owed| !is_meant(owed) || !is_clean || owed.is_in_batch || owed.may_be_doubled);
        for owed in self.owed.iter_mut().filter(|owed| is_meant(owed)) {
            owed.is_optional = true;
        }
    }

    /// A request is given to a child. Whether this host waits for it.
    pub(crate) fn note_written(&mut self, tag: u64, generation: Generation) -> bool {
        self.correct(|asked| asked.tag == tag);
        let mut found = self.owed.iter_mut().filter(|owed| owed.asked.tag == tag);
        found
            .next()
            .map(|owed| owed.written = Some(generation))
            .is_some()
    }

    /// A frame is taken for this host.
    pub(crate) fn note_frame(&mut self, frame: &[u8], is_ending: bool) {
        let line = frame.strip_suffix(b"\n").expect("a frame is one line");
        assert!(!line.contains(&b'\n'), "{}: two lines in one", self.name);
        if self.is_lost {
            return;
        }
        if line.starts_with(b"[") {
            let items: Vec<&RawValue> = self.parse(line);
            assert!(!items.is_empty(), "{}: an empty array", self.name);
            for item in items {
                self.note_message(item.get().as_bytes(), true, is_ending);
            }
        } else {
            self.note_message(line, false, is_ending);
        }
    }

    fn parse<'a, T: Deserialize<'a>>(&self, text: &'a [u8]) -> T {
        serde_json::from_slice(text).unwrap_or_else(|error| {
            let text = String::from_utf8_lossy(text);
            panic!("{} is sent what is no message ({error}): {text}", self.name)
        })
    }

    fn note_message(&mut self, text: &[u8], in_array: bool, is_ending: bool) {
        let envelope: Envelope<'_> = self.parse(text);
        let shown = String::from_utf8_lossy(text);
        assert_eq!(envelope.jsonrpc, "2.0", "{}: {shown}", self.name);
        if let Some(method) = envelope.method {
            assert!(
                envelope.id.is_none(),
                "{} is asked something: {shown}",
                self.name
            );
            return self.note_notification(method, envelope.params.as_ref(), &shown);
        }
        let mut mark = match (envelope.result, &envelope.error) {
            (Some(result), None) => serde_json::from_str(result.get()).unwrap_or_default(),
            (None, Some(_)) => Mark::default(),
            _ => panic!("{} gets neither or both: {shown}", self.name),
        };
        let is_recalled = self.is_recalled(&mark);
        if is_recalled {
            (mark.tag, mark.generation) = (None, None);
        }
        let place = Place {
            in_array,
            is_recalled,
            code: envelope
                .error
                .as_ref()
                .map(|error| (error.code, error.data.is_some())),
            is_welcome: mark.version.is_some(),
        };
        if let Some(error) = envelope.error {
            let is_server_gone = matches!(error.code, -31006 | -31005) && is_ending;
            assert!(
                !self.is_calm || is_server_gone,
                "{}, which has nothing to do with any fault, gets {shown}",
                self.name
            );
            *self.answers.entry(error.code).or_default() += 1;
            mark = error.data.unwrap_or_default();
            let is_nameless = envelope.id.is_none_or(|id| id.get() == "null");
            if is_nameless {
                assert!(self.nameless > 0, "{} gets {shown} for nothing", self.name);
                self.nameless -= 1;
                return;
            }
            if error.message.contains("is open already") {
                return self.strike_doubled(envelope.id.map(RawValue::get), in_array, &shown);
            }
        } else {
            *self.answers.entry(0).or_default() += 1;
        }
        let id = envelope.id.map(RawValue::get);
        let owed = self.strike(id, &mark, place, &shown);
        if mark.version.is_some() {
            assert_eq!(owed.asked.method, "initialize", "{}: {shown}", self.name);
            self.is_open = true;
        }
    }

    /// Whether this is a list that was given in answer to another request than any of this host that
    /// is open or may be. What mcpd itself has asked for has the tag 0.
    fn is_recalled(&self, mark: &Mark) -> bool {
        let is_list = mark.tools.is_some() || mark.resources.is_some();
        let mut all = self.owed.iter().chain(&self.struck);
        let is_own = mark.tag == Some(0);
        is_list && (is_own || !all.any(|owed| Some(owed.asked.tag) == mark.tag))
    }

    /// A request was refused because of its id: one of those that came while it was open.
    fn strike_doubled(&mut self, id: Option<&str>, in_array: bool, shown: &str) {
        // Which of several was refused is a guess where answers were on their way; that one was is
        // certain.
        let at = self
            .owed
            .iter()
            .enumerate()
            .filter(|(_, owed)| Some(&*owed.asked.id.raw) == id && owed.is_in_batch == in_array)
            .min_by_key(|(at, owed)| {
                let is_asked = owed.written.is_some();
                (!owed.may_be_doubled, owed.is_optional, is_asked, *at)
            })
            .map(|(at, _)| at)
            .unwrap_or_else(|| panic!("{} has doubled no id: {shown}", self.name));
        let struck = self.owed.remove(at);
        self.keep_in_mind(struck);
    }

    /// Another one of those with this id was answered: the one with this tag was not.
    fn correct(&mut self, is_meant: impl Fn(&Asked) -> bool) {
        if self.owed.iter().any(|owed| is_meant(&owed.asked)) {
            return;
        }
        let Some(at) = self.struck.iter().position(|one| is_meant(&one.asked)) else {
            return;
        };
        let struck = &self.struck[at];
        let is_other = |owed: &Owed| {
            owed.asked.id.raw == struck.asked.id.raw && owed.is_in_batch == struck.is_in_batch
        };
        let others = self.owed.iter().enumerate();
        let place = others
            .filter(|(_, owed)| is_other(owed))
            .min_by_key(|(place, owed)| (owed.written.is_some(), owed.is_optional, *place))
            .map(|(place, _)| place);
        if let Some(place) = place {
            std::mem::swap(&mut self.owed[place], &mut self.struck[at]);
        }
    }

    /// Keeps in mind what was struck out where it is not certain which of several was answered.
    fn keep_in_mind(&mut self, struck: Owed) -> Owed {
        let raw = struck.asked.id.raw.clone();
        self.struck.retain(|one| {
            self.owed
                .iter()
                .any(|owed| owed.asked.id.raw == one.asked.id.raw)
        });
        if self.owed.iter().any(|owed| owed.asked.id.raw == raw) {
            self.struck.push(struck.clone());
        }
        struck
    }

    /// Strikes out what this answers: by its tag where it has one, else what must be answered
    /// before what may be.
    fn strike(&mut self, id: Option<&str>, mark: &Mark, place: Place, shown: &str) -> Owed {
        if let Some(tag) = mark.tag {
            self.correct(|asked| asked.tag == tag);
        }
        if place.is_welcome {
            self.correct(|asked| asked.method == "initialize" && Some(&*asked.id.raw) == id);
        }
        let is_meant = |owed: &&mut Owed| {
            Some(&*owed.asked.id.raw) == id && owed.is_in_batch == place.in_array
        };
        let mut found = self
            .owed
            .iter_mut()
            .enumerate()
            .filter(|(_, owed)| is_meant(owed));
        let at = match mark.tag.filter(|tag| *tag > 0) {
            Some(tag) => found.find(|(_, owed)| owed.asked.tag == tag),
            None => found
                .min_by_key(|(at, owed)| (!place.fits(owed.asked.method), owed.is_optional, *at)),
        }
        .map(|(at, _)| at)
        .unwrap_or_else(|| panic!("{} is not owed {shown}", self.name));
        let mut owed = self.owed.remove(at);
        if place.is_recalled {
            assert!(place.fits(owed.asked.method), "{}: {shown}", self.name);
        }
        if mark.tag.is_none() {
            owed = self.keep_in_mind(owed);
        }
        if let (Some(generation), Some(_)) = (mark.generation, mark.tag) {
            assert_eq!(
                owed.written.map(|written| written.0),
                Some(generation),
                "{}: {shown} comes from a child that was not asked",
                self.name
            );
        }
        owed
    }

    fn note_notification(&mut self, method: &str, params: Option<&Params<'_>>, shown: &str) {
        assert!(
            self.is_open,
            "{} hears {shown} before its initialize was answered",
            self.name
        );
        if method == "notifications/progress" {
            let token = params.and_then(|params| params.token).map(RawValue::get);
            self.correct(|asked| asked.token.as_deref() == token);
            let is_its = |owed: &Owed| owed.asked.token.as_deref() == token;
            assert!(
                token.is_some() && self.owed.iter().any(is_its),
                "{} hears of progress that it did not ask for: {shown}",
                self.name
            );
        }
    }

    /// What is still due, beyond doubt.
    pub(crate) fn due(&self) -> impl Iterator<Item = &Owed> {
        self.owed.iter().filter(|owed| !owed.is_optional)
    }

    /// What of that no frame can be on its way for.
    pub(crate) fn open(&self) -> impl Iterator<Item = &Owed> {
        let is_clean = self.is_clean;
        self.owed
            .iter()
            .filter(move |owed| is_clean && owed.waits())
    }

    /// Nothing is due.
    #[track_caller]
    pub(crate) fn assert_settled(&self, when: &str) {
        let due: Vec<_> = self.due().collect();
        assert!(
            due.is_empty() && self.nameless == 0,
            "{when} {} waits for ever for {} answers and {} errors: {due:#?}",
            self.name,
            due.len(),
            self.nameless
        );
    }
}
