//! The switches of the fake server: one table that parsing, `--help` and the coverage test share.
//!
//! It decides what a switch is called and whether it takes a value. It never decides what a switch
//! does: the file that plays the fault asks for it by name.

/// One switch of `fake-mcp`.
pub(crate) struct Switch {
    pub(crate) name: &'static str,
    /// What the value stands for; none for a switch that is only there or not.
    pub(crate) value: Option<&'static str>,
    pub(crate) help: &'static str,
}

const fn flag(name: &'static str, help: &'static str) -> Switch {
    Switch {
        name,
        value: None,
        help,
    }
}

const fn valued(name: &'static str, value: &'static str, help: &'static str) -> Switch {
    Switch {
        name,
        value: Some(value),
        help,
    }
}

/// Every switch there is.
pub(crate) const SWITCHES: &[Switch] = &[
    // What it writes down for the test.
    valued(
        "--record",
        "FILE",
        "append every line read, signal got and start made",
    ),
    // Starting.
    valued("--stderr", "TEXT", "write TEXT to stderr first"),
    valued(
        "--stderr-bytes",
        "N",
        "write N bytes of lines to stderr first",
    ),
    valued("--chatter", "MS", "write a line to stderr so often"),
    valued("--exit", "CODE", "exit at once"),
    valued("--die-of", "SIGNAL", "end by this signal at once"),
    valued("--ready-after", "MS", "read nothing before"),
    valued(
        "--lock",
        "FILE",
        "hold this lock exclusively, exit 1 if it is held",
    ),
    valued(
        "--ask-first",
        "TEXT",
        "ask on stderr and read one line, as npx without -y",
    ),
    valued(
        "--grandchild",
        "KIND",
        "group | setsid | double, then -ignore-term, -keep-stdout, -unmarked, joined by -and-",
    ),
    valued(
        "--toolset",
        "FILE",
        "the file says v1 (echo) or v2 (echo, sum)",
    ),
    valued("--page", "N", "tools a page"),
    // The handshake.
    valued(
        "--versions",
        "LIST",
        "the protocol versions it speaks, the preferred one first",
    ),
    valued("--capabilities", "JSON", "what it declares"),
    valued(
        "--initialize",
        "KIND",
        "none | error | unsupported | garbage | twice | content-length | exit",
    ),
    valued(
        "--initialize-after",
        "MS",
        "answer initialize so much later",
    ),
    flag(
        "--notify-first",
        "4 list_changed and a log message before the initialize reply",
    ),
    flag("--once", "exit 9 on a second initialize or initialized"),
    flag(
        "--strict-opening",
        "exit 8 on any request but ping before initialize",
    ),
    flag(
        "--strict-ids",
        "refuse ids and tokens that are no integers from 1 to 2^31",
    ),
    valued(
        "--discover",
        "KIND",
        "answer server/discover: modern | late | both | none | exit | no-message | names=V+V | CODE",
    ),
    flag("--read-late", "read nothing before a second write waits"),
    flag("--drop-ping", "never answer ping"),
    flag("--refuse-level", "answer logging/setLevel with -32601"),
    flag("--exit-on-cr", "exit 7 if a line ends in CR"),
    // Standard output.
    valued(
        "--banner",
        "KIND",
        "noise before anything else (kinds as of the tool noise)",
    ),
    valued("--banner-lines", "N", "so many lines of it"),
    valued("--before-reply", "KIND", "noise before each reply"),
    // Ending.
    flag("--ignore-eof", "stay when stdin ends"),
    flag("--ignore-term", "stay on SIGTERM"),
    flag("--ignore-int", "stay on SIGINT"),
    valued(
        "--save-on-eof",
        "FILE",
        "400 ms after end of input write FILE, then exit 0",
    ),
    valued("--exit-after", "MS", "exit 1 so long after initialized"),
    valued(
        "--crash-after-calls",
        "N",
        "exit 1 once N calls were answered",
    ),
    flag("--die-on-call", "end by SIGKILL on reading tools/call"),
    flag(
        "--spin-on-epipe",
        "write for ever once a write fails or the input ends",
    ),
    flag("--close-stdout", "after initialized close stdout and stay"),
    flag("--close-stdin", "after initialized close stdin and stay"),
    flag("--stop-reading", "after initialized read nothing more"),
    flag("--read-slowly", "read at most 64 KiB each 5 ms"),
    flag(
        "--refuse-overlap",
        "a call that overlaps another gets a wrong answer",
    ),
];

/// The switches that were given.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    given: Vec<(&'static str, String)>,
}

impl Options {
    /// Reads switches; the error is a sentence for the user.
    pub(crate) fn parse(args: &[String]) -> Result<Self, String> {
        let mut given = Vec::new();
        let mut rest = args.iter();
        while let Some(arg) = rest.next() {
            let switch = SWITCHES
                .iter()
                .find(|switch| switch.name == arg)
                .ok_or_else(|| format!("unknown switch {arg}, see fake-mcp --help"))?;
            let value = match switch.value {
                Some(what) => rest
                    .next()
                    .cloned()
                    .ok_or_else(|| format!("{arg} needs {what}"))?,
                None => String::new(),
            };
            given.push((switch.name, value));
        }
        Ok(Self { given })
    }

    /// Whether a switch was given.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.text(name).is_some()
    }

    /// The value of a switch, the last one if it was given twice.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        assert!(
            SWITCHES.iter().any(|switch| switch.name == name),
            "{name} is not in the table"
        );
        self.given
            .iter()
            .rev()
            .find(|(given, _)| *given == name)
            .map(|(_, value)| value.as_str())
    }

    /// Every value of a switch that may be repeated.
    pub(crate) fn all<'o>(&'o self, name: &'o str) -> impl Iterator<Item = &'o str> {
        self.given
            .iter()
            .filter(move |(given, _)| *given == name)
            .map(|(_, value)| value.as_str())
    }

    /// The value of a switch as a number.
    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.text(name).map(|text| {
            text.parse()
                .unwrap_or_else(|_| panic!("{name} {text} is no number"))
        })
    }
}
