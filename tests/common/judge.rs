//! The judge of messages: holds what mcpd writes on one connection against the schema of its version.
//!
//! It decides which version and which definition a message has to fit, by what was said before on the same
//! connection, and reads the schemas of the revisions from the folder `MCPD_SPEC`, else `../shared/spec`
//! beside the checkout; without one it judges nothing and says so once. It never judges what the peers of a
//! test write: where that does not fit, what mcpd passes on of the same method is not held against it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex};

use jsonschema::Validator;
use serde_json::{Value, json};

const MODERN: &str = "2026-07-28";
const NEWEST_LEGACY: &str = "2025-11-25";
const LEGACY: [&str; 4] = [NEWEST_LEGACY, "2025-06-18", "2025-03-26", "2024-11-05"];
const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";

/// The schemas of one revision, compiled as they are needed.
struct Revision {
    document: Value,
    /// `definitions` or `$defs`.
    place: &'static str,
    compiled: Mutex<HashMap<String, Option<Arc<Validator>>>>,
}

static REVISIONS: LazyLock<Option<BTreeMap<&'static str, Revision>>> = LazyLock::new(|| {
    let folder = std::env::var_os("MCPD_SPEC").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/spec"),
        PathBuf::from,
    );
    let revisions: Option<BTreeMap<_, _>> = LEGACY
        .into_iter()
        .chain([MODERN])
        .map(|version| Some((version, Revision::read(&folder, version)?)))
        .collect();
    if revisions.is_none() {
        skip("SKIPPED: messages are not judged without the schemas of MCP (MCPD_SPEC=DIR)");
    }
    revisions
});

/// Whether there are schemas to judge by.
pub(crate) fn is_there() -> bool {
    REVISIONS.is_some()
}

/// Written around the capture of the test's output, so that a run shows it.
fn skip(text: &str) {
    use std::io::Write as _;
    writeln!(std::io::stderr(), "{text}").ok();
}

impl Revision {
    fn read(folder: &Path, version: &str) -> Option<Self> {
        let text = std::fs::read(folder.join(format!("{version}.schema.json"))).ok()?;
        let document: Value = serde_json::from_slice(&text).ok()?;
        let place = match document.get("$defs").is_some() {
            true => "$defs",
            false => "definitions",
        };
        Some(Self {
            document,
            place,
            compiled: Mutex::default(),
        })
    }

    fn has(&self, definition: &str) -> bool {
        self.document[self.place].get(definition).is_some()
    }

    /// The definition of a request or notification with this method.
    fn of_method(&self, method: &str) -> Option<&str> {
        let definitions = self.document[self.place].as_object()?;
        let is_it = |(name, definition): &(&String, &Value)| {
            definition["properties"]["method"]["const"] == method
                && !matches!(name.as_str(), "ClientNotification" | "ServerNotification")
        };
        definitions
            .iter()
            .find(is_it)
            .map(|(name, _)| name.as_str())
    }

    /// The definition of the result of a request with this method.
    fn of_result(&self, method: &str) -> Option<String> {
        let result = self.of_method(method)?.replace("Request", "Result");
        Some(match self.has(&result) {
            true => result,
            false => "EmptyResult".to_owned(),
        })
    }

    fn error(&self) -> &'static str {
        match self.has("JSONRPCErrorResponse") {
            true => "JSONRPCErrorResponse",
            false => "JSONRPCError",
        }
    }

    /// What does not fit, or none.
    fn fault(&self, definition: &str, value: &Value) -> Option<String> {
        let mut compiled = self.compiled.lock().expect("no validator panics");
        let validator = compiled.entry(definition.to_owned()).or_insert_with(|| {
            let mut schema = json!({"$ref": format!("#/{}/{definition}", self.place)});
            schema["$schema"] = self.document["$schema"].clone();
            schema[self.place] = self.document[self.place].clone();
            jsonschema::validator_for(&schema).ok().map(Arc::new)
        });
        let validator = Arc::clone(validator.as_ref().expect("the schema can be compiled"));
        drop(compiled);
        let faults: Vec<String> = validator
            .iter_errors(value)
            .map(|fault| format!("{} at {:?}", fault, fault.instance_path().as_str()))
            .take(3)
            .collect();
        (!faults.is_empty()).then(|| format!("{definition}: {}", faults.join("; ")))
    }
}

/// Who is at the other end of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    Host,
    Child,
}

/// A request that was not answered yet.
#[derive(Debug)]
struct Open {
    method: String,
    version: Option<&'static str>,
}

/// Methods whose messages the peers of a test write wrongly.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tainted(Arc<Mutex<BTreeSet<String>>>);

impl Tainted {
    /// What is passed on of this method is not judged any more.
    pub(crate) fn add(&self, method: &str) {
        let mut methods = self.0.lock().expect("nobody panics with it");
        methods.insert(method.to_owned());
    }

    fn has(&self, method: &str) -> bool {
        self.0
            .lock()
            .expect("nobody panics with it")
            .contains(method)
    }
}

/// One connection, and what was said on it.
#[derive(Debug)]
pub(crate) struct Judge {
    peer: Peer,
    /// The version of the session or of the child, once it is known.
    version: Option<&'static str>,
    /// Whether requests of the modern era were seen.
    is_modern: bool,
    /// Requests of the peer, by their raw ids.
    asked: HashMap<String, Open>,
    /// Requests that mcpd wrote.
    asks: HashMap<String, Open>,
    tainted: Tainted,
}

impl Judge {
    /// One of a connection. Connections between which messages pass share what is tainted.
    pub(crate) fn new(peer: Peer, tainted: Tainted) -> Self {
        Self {
            peer,
            version: None,
            is_modern: false,
            asked: HashMap::new(),
            asks: HashMap::new(),
            tainted,
        }
    }

    /// Takes what the peer wrote.
    pub(crate) fn heard(&mut self, line: &[u8]) {
        if !is_there() {
            return;
        }
        // A message may stand behind what a progress bar wrote.
        let from = line
            .iter()
            .position(|byte| b"{[".contains(byte))
            .unwrap_or(0);
        match serde_json::from_slice(&line[from..]) {
            Ok(Value::Array(items)) => items.iter().for_each(|item| self.heard_one(item)),
            Ok(message) => self.heard_one(&message),
            Err(_) => {}
        }
    }

    /// Takes what mcpd wrote; the error says what does not fit.
    pub(crate) fn wrote(&mut self, line: &[u8]) -> Result<(), String> {
        if !is_there() {
            return Ok(());
        }
        let verdict = match serde_json::from_slice(line) {
            Ok(Value::Array(items)) => items.iter().try_for_each(|item| self.wrote_one(item)),
            Ok(message) => self.wrote_one(&message),
            // What a peer wrote as no JSON and is passed on is not mcpd's.
            Err(_) => Ok(()),
        };
        verdict.map_err(|why| {
            let text = String::from_utf8_lossy(line);
            format!("to the {:?}: {text}\n  {why}", self.peer)
        })
    }

    fn heard_one(&mut self, message: &Value) {
        let id = spelt(&message["id"]);
        let Some(method) = message["method"].as_str() else {
            self.heard_answer(&id, message);
            return;
        };
        let version = self.version_of(message);
        if version == Some(MODERN) {
            self.is_modern = true;
        }
        if message.get("id").is_some() {
            let method = method.to_owned();
            self.asked.insert(id, Open { method, version });
        }
        let candidates = self.candidates(version);
        if candidates
            .iter()
            .all(|one| message_fault(one, method, message).is_some())
        {
            self.tainted.add(method);
        }
    }

    /// The peer answers a request that mcpd wrote.
    fn heard_answer(&mut self, id: &str, message: &Value) {
        let Some(open) = self.asks.remove(id) else {
            return;
        };
        if open.method == "initialize" && self.peer == Peer::Child {
            let spoken = message["result"]["protocolVersion"].as_str();
            self.version = spoken.and_then(known).or(self.version);
        }
        if open.method == "server/discover" && message.get("result").is_some() {
            self.version = Some(MODERN);
        }
        let candidates = self.candidates(open.version);
        if candidates
            .iter()
            .all(|one| answer_fault(one, &open.method, message).is_some())
        {
            self.tainted.add(&open.method);
        }
    }

    fn wrote_one(&mut self, message: &Value) -> Result<(), String> {
        let id = spelt(&message["id"]);
        let Some(method) = message["method"].as_str() else {
            return self.wrote_answer(&id, message);
        };
        let version = self.version_of(message);
        if message.get("id").is_some() {
            let method = method.to_owned();
            self.asks.insert(id, Open { method, version });
        }
        let candidates = self.candidates(version);
        self.hold(method, &candidates, |version| {
            message_fault(version, method, message)
        })
    }

    fn wrote_answer(&mut self, id: &str, message: &Value) -> Result<(), String> {
        // An answer to a line that has no id that can be told answers nothing that is known here.
        let Some(open) = self.asked.remove(id) else {
            return Ok(());
        };
        if open.method == "initialize" && self.peer == Peer::Host {
            let told = message["result"]["protocolVersion"].as_str();
            self.version = told.and_then(known).or(self.version);
        }
        let version = match open.method.as_str() {
            "initialize" => self.version.or(open.version),
            _ => open.version,
        };
        let candidates = self.candidates(version);
        self.hold(&open.method, &candidates, |version| {
            answer_fault(version, &open.method, message)
        })
    }

    /// One of the versions must have nothing against the message.
    fn hold(
        &self,
        method: &str,
        candidates: &[&'static str],
        fault: impl Fn(&str) -> Option<String>,
    ) -> Result<(), String> {
        let faults: Vec<String> = candidates
            .iter()
            .map_while(|version| fault(version).map(|why| format!("{version} {why}")))
            .collect();
        if faults.len() < candidates.len() || self.tainted.has(method) {
            return Ok(());
        }
        Err(faults.join("\n  "))
    }

    /// The version that a message names, or that its kind has.
    fn version_of(&self, message: &Value) -> Option<&'static str> {
        let params = &message["params"];
        if let Some(named) = params["_meta"][VERSION_KEY].as_str() {
            return known(named);
        }
        match message["method"].as_str() {
            // What it asks for may be a version that has no such request; the answer tells.
            Some("initialize") => params["protocolVersion"]
                .as_str()
                .and_then(known)
                .filter(|one| *one != MODERN),
            Some(_) if message.get("id").is_some() => self.version.filter(|one| *one != MODERN),
            _ => None,
        }
    }

    /// The versions of which one has to allow a message, if it names none itself.
    fn candidates(&self, named: Option<&'static str>) -> Vec<&'static str> {
        if let Some(version) = named {
            return vec![version];
        }
        let mut all: Vec<&'static str> = self.version.into_iter().collect();
        if self.is_modern && !all.contains(&MODERN) {
            all.push(MODERN);
        }
        if all.is_empty() {
            all.push(NEWEST_LEGACY);
        }
        all
    }
}

/// An id in one spelling: 5 and 5.0 are the same.
fn spelt(id: &Value) -> String {
    match id.as_f64() {
        Some(number) => number.to_string(),
        None => id.to_string(),
    }
}

fn known(version: &str) -> Option<&'static str> {
    let all = LEGACY.into_iter().chain([MODERN]);
    all.into_iter().find(|one| *one == version)
}

fn revision(version: &str) -> &'static Revision {
    let revisions = REVISIONS.as_ref().expect("looked at before");
    &revisions[version]
}

fn message_fault(version: &str, method: &str, message: &Value) -> Option<String> {
    let revision = revision(version);
    match revision.of_method(method) {
        Some(definition) => revision.fault(definition, message),
        None => Some(format!("has no {method}")),
    }
}

fn answer_fault(version: &str, method: &str, message: &Value) -> Option<String> {
    let revision = revision(version);
    if message.get("error").is_some() {
        return revision.fault(error_definition(revision, message), message);
    }
    let result = &message["result"];
    let definition = match result["resultType"].as_str() {
        Some("input_required") if version == MODERN => "InputRequiredResult".to_owned(),
        _ => match revision.of_result(method) {
            Some(definition) => definition,
            None => return Some(format!("has no {method}, so no result of it")),
        },
    };
    revision.fault(&definition, result)
}

/// The definition of an error, by its code where that has one of its own.
fn error_definition(revision: &Revision, message: &Value) -> &'static str {
    match message["error"]["code"].as_i64() {
        Some(-32021) if revision.has("MissingRequiredClientCapabilityError") => {
            "MissingRequiredClientCapabilityError"
        }
        Some(-32022) if revision.has("UnsupportedProtocolVersionError") => {
            "UnsupportedProtocolVersionError"
        }
        Some(-32042) if revision.has("URLElicitationRequiredError") => {
            "URLElicitationRequiredError"
        }
        _ => revision.error(),
    }
}
