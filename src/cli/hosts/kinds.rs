//! The hosts that are known: where each keeps its configuration and how it writes a server there.
//!
//! One table, read from each host's documentation. It decides nothing about a file that is found; a
//! host that is new is a new row here and nothing else.

use super::document::Format;

/// One host.
#[derive(Debug)]
pub(crate) struct HostKind {
    /// What a command line calls it.
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    pub(crate) places: &'static [Place],
    pub(crate) shape: Shape,
    /// The names of its processes.
    pub(crate) processes: &'static [&'static str],
    /// Whether it writes its file itself while it runs, from what it read when it began.
    pub(crate) rewrites_its_file: bool,
}

/// Files of one host.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) scope: Scope,
    pub(crate) base: Base,
    /// Below the base; a component `*` is every folder there.
    pub(crate) path: &'static str,
    pub(crate) format: Format,
    /// The keys above the entries; `*` is every key.
    pub(crate) roots: &'static [&'static [&'static str]],
}

/// For whom a file counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Scope {
    User,
    Profile,
    Project,
    /// A file that was named.
    File,
}

impl Scope {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Profile => "profile",
            Self::Project => "project",
            Self::File => "file",
        }
    }
}

/// What a path counts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    Home,
    /// `$XDG_CONFIG_HOME`, or `~/.config`.
    ConfigHome,
    /// A variable that holds a folder; where it is not set, a folder below home.
    Variable(&'static str, &'static str),
    /// The folder of the project.
    Project,
}

/// How a host writes an entry.
#[derive(Debug)]
pub(crate) struct Shape {
    pub(crate) command: CommandShape,
    /// The key of the variables.
    pub(crate) env: &'static str,
    /// Names of variables that are passed on.
    pub(crate) env_names: Option<&'static str>,
    /// The keys whose value is an address: the server is somewhere else.
    pub(crate) addresses: &'static [&'static str],
    /// The key and the value that switch an entry off.
    pub(crate) off: &'static [(&'static str, bool)],
    pub(crate) variables: Variables,
    /// What an entry holds beside what it runs, when it is made new.
    pub(crate) kind: Option<(&'static str, &'static str)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommandShape {
    /// `command` is the program and `args` its arguments.
    Apart,
    /// `command` is an array of both.
    Together,
}

/// How a host writes variables in what it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Variables {
    /// All is literal.
    None,
    /// `${NAME}`, `${NAME:-default}`
    Shell,
    /// `$NAME` and `${NAME}`
    ShellBare,
    /// `${env:NAME}`, `${input:id}`, `${workspaceFolder}`
    Editor,
    /// `{env:NAME}`, `{file:path}`
    Braces,
}

const PLAIN: Shape = Shape {
    command: CommandShape::Apart,
    env: "env",
    env_names: None,
    addresses: &["url", "serverUrl", "httpUrl"],
    off: &[("disabled", true), ("enabled", false)],
    variables: Variables::None,
    kind: None,
};

const MCP_SERVERS: &[&[&str]] = &[&["mcpServers"]];
const VS_CODE_ROOTS: &[&[&str]] = &[&["servers"]];
/// Its second version has a table of servers below `mcp`, the first has the servers there.
const OPENCODE_ROOTS: &[&[&str]] = &[&["mcp"], &["mcp", "servers"]];

const fn json(
    scope: Scope,
    base: Base,
    path: &'static str,
    roots: &'static [&'static [&'static str]],
) -> Place {
    Place {
        scope,
        base,
        path,
        format: Format::Json,
        roots,
    }
}

const CODEX_ROOTS: &[&[&str]] = &[&["mcp_servers"]];

const fn codex(scope: Scope, base: Base, path: &'static str) -> Place {
    Place {
        scope,
        base,
        path,
        format: Format::Toml,
        roots: CODEX_ROOTS,
    }
}

/// All of them, in the order in which they are shown.
pub(crate) const HOSTS: &[HostKind] = &[
    HostKind {
        id: "claude-code",
        title: "Claude Code",
        places: &[
            json(
                Scope::User,
                Base::Variable("CLAUDE_CONFIG_DIR", ""),
                ".claude.json",
                &[&["mcpServers"], &["projects", "*", "mcpServers"]],
            ),
            json(Scope::Project, Base::Project, ".mcp.json", MCP_SERVERS),
        ],
        shape: Shape {
            variables: Variables::Shell,
            kind: Some(("type", "stdio")),
            ..PLAIN
        },
        processes: &["claude"],
        rewrites_its_file: true,
    },
    HostKind {
        id: "claude-desktop",
        title: "Claude Desktop",
        places: &[json(
            Scope::User,
            Base::ConfigHome,
            "Claude/claude_desktop_config.json",
            MCP_SERVERS,
        )],
        shape: PLAIN,
        processes: &["claude-desktop"],
        rewrites_its_file: true,
    },
    HostKind {
        id: "cursor",
        title: "Cursor",
        places: &[
            json(Scope::User, Base::Home, ".cursor/mcp.json", MCP_SERVERS),
            json(
                Scope::Project,
                Base::Project,
                ".cursor/mcp.json",
                MCP_SERVERS,
            ),
        ],
        shape: Shape {
            variables: Variables::Editor,
            ..PLAIN
        },
        processes: &["cursor"],
        rewrites_its_file: false,
    },
    HostKind {
        id: "vscode",
        title: "VS Code",
        places: &[
            json(
                Scope::User,
                Base::ConfigHome,
                "Code/User/mcp.json",
                VS_CODE_ROOTS,
            ),
            json(
                Scope::Profile,
                Base::ConfigHome,
                "Code/User/profiles/*/mcp.json",
                VS_CODE_ROOTS,
            ),
            // Where entries were before they had a file of their own.
            json(
                Scope::User,
                Base::ConfigHome,
                "Code/User/settings.json",
                &[&["mcp", "servers"]],
            ),
            json(
                Scope::User,
                Base::ConfigHome,
                "Code - Insiders/User/mcp.json",
                VS_CODE_ROOTS,
            ),
            json(
                Scope::User,
                Base::ConfigHome,
                "VSCodium/User/mcp.json",
                VS_CODE_ROOTS,
            ),
            json(
                Scope::Project,
                Base::Project,
                ".vscode/mcp.json",
                VS_CODE_ROOTS,
            ),
        ],
        shape: Shape {
            variables: Variables::Editor,
            kind: Some(("type", "stdio")),
            ..PLAIN
        },
        processes: &["code", "code-insiders", "codium"],
        rewrites_its_file: false,
    },
    HostKind {
        id: "zed",
        title: "Zed",
        places: &[
            json(
                Scope::User,
                Base::ConfigHome,
                "zed/settings.json",
                &[&["context_servers"]],
            ),
            json(
                Scope::Project,
                Base::Project,
                ".zed/settings.json",
                &[&["context_servers"]],
            ),
        ],
        shape: Shape {
            kind: Some(("source", "custom")),
            ..PLAIN
        },
        processes: &["zed", "zed-editor", "zeditor"],
        rewrites_its_file: false,
    },
    HostKind {
        id: "codex",
        title: "Codex",
        places: &[
            codex(
                Scope::User,
                Base::Variable("CODEX_HOME", ".codex"),
                "config.toml",
            ),
            codex(Scope::Project, Base::Project, ".codex/config.toml"),
        ],
        shape: Shape {
            env_names: Some("env_vars"),
            ..PLAIN
        },
        processes: &["codex"],
        rewrites_its_file: false,
    },
    HostKind {
        id: "gemini",
        title: "Gemini CLI",
        places: &[
            json(
                Scope::User,
                Base::Home,
                ".gemini/settings.json",
                MCP_SERVERS,
            ),
            json(
                Scope::Project,
                Base::Project,
                ".gemini/settings.json",
                MCP_SERVERS,
            ),
        ],
        shape: Shape {
            variables: Variables::ShellBare,
            ..PLAIN
        },
        processes: &["gemini"],
        rewrites_its_file: false,
    },
    HostKind {
        id: "opencode",
        title: "opencode",
        places: &[
            json(
                Scope::User,
                Base::ConfigHome,
                "opencode/opencode.json",
                OPENCODE_ROOTS,
            ),
            json(
                Scope::User,
                Base::ConfigHome,
                "opencode/opencode.jsonc",
                OPENCODE_ROOTS,
            ),
            json(
                Scope::Project,
                Base::Project,
                "opencode.json",
                OPENCODE_ROOTS,
            ),
            json(
                Scope::Project,
                Base::Project,
                "opencode.jsonc",
                OPENCODE_ROOTS,
            ),
            json(
                Scope::Project,
                Base::Project,
                ".opencode/opencode.json",
                OPENCODE_ROOTS,
            ),
            json(
                Scope::Project,
                Base::Project,
                ".opencode/opencode.jsonc",
                OPENCODE_ROOTS,
            ),
        ],
        shape: Shape {
            command: CommandShape::Together,
            env: "environment",
            variables: Variables::Braces,
            kind: Some(("type", "local")),
            ..PLAIN
        },
        processes: &["opencode"],
        rewrites_its_file: false,
    },
    HostKind {
        id: "windsurf",
        title: "Windsurf",
        places: &[
            json(
                Scope::User,
                Base::Home,
                ".codeium/windsurf/mcp_config.json",
                MCP_SERVERS,
            ),
            json(
                Scope::User,
                Base::Home,
                ".codeium/mcp_config.json",
                MCP_SERVERS,
            ),
        ],
        shape: Shape {
            variables: Variables::Editor,
            ..PLAIN
        },
        processes: &["windsurf"],
        rewrites_its_file: false,
    },
];

/// What a file that is of no known place may hold, by its format.
pub(crate) const ANY_ROOTS: &[&[&str]] = &[
    &["mcpServers"],
    &["servers"],
    &["context_servers"],
    &["mcp_servers"],
    &["mcp", "servers"],
    &["mcp"],
];

/// How a file of no known place is read: with every form that is not ambiguous.
pub(crate) const ANY_HOST: HostKind = HostKind {
    id: "file",
    title: "file",
    places: &[],
    shape: Shape {
        variables: Variables::Editor,
        ..PLAIN
    },
    processes: &[],
    rewrites_its_file: false,
};

/// The host that a command line means.
pub(crate) fn find_host(id: &str) -> Option<&'static HostKind> {
    let plain = |text: &str| {
        let letters = text.chars().filter(char::is_ascii_alphanumeric);
        letters.collect::<String>().to_ascii_lowercase()
    };
    let id = plain(id);
    HOSTS
        .iter()
        .find(|host| plain(host.id) == id || plain(host.title) == id)
}

/// `claude-code, cursor, …`
pub(crate) fn host_ids() -> String {
    let ids: Vec<&str> = HOSTS.iter().map(|host| host.id).collect();
    ids.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_found_by_any_spelling_of_its_name() {
        for (name, id) in [
            ("claude-code", "claude-code"),
            ("Claude Code", "claude-code"),
            ("VSCode", "vscode"),
            ("vs-code", "vscode"),
            ("gemini", "gemini"),
        ] {
            assert_eq!(find_host(name).map(|host| host.id), Some(id), "{name}");
        }
        assert!(find_host("emacs").is_none());
    }
}
