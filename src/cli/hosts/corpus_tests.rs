//! Files as people have them, for every host: rewritten, put back to the byte, and put back beside what
//! others changed.
//!
//! The documents have the shapes of the hosts' own documentation; each is met in many hands: tabs, line
//! ends, comments, marks, one line, names in other scripts.

use serde_json::{Value, json};

use super::document::{self, Format};
use super::entry::{Connect, Meaning, connect_members, members_of, understand};
use super::kinds::{HOSTS, HostKind, find_host};

/// Documents of a host, and the keys above its entries.
fn documents(host: &str) -> Vec<&'static str> {
    match host {
        "claude-code" => vec![
            r#"{
  "numStartups": 42,
  "userID": "f3a9",
  "projects": {
    "/home/ada/app": {
      "allowedTools": [],
      "mcpServers": {
        "db": {
          "type": "stdio",
          "command": "uvx",
          "args": ["mcp-server-postgres", "postgres://u:pw@localhost/db"],
          "env": {}
        }
      },
      "history": [{"display": "say \"{ hi }\"", "pastedContents": {}}]
    }
  },
  "mcpServers": {
    "github": {
      "type": "stdio",
      "command": "npx",
      "args": ["-y", "@modelcontextprotocol/server-github"],
      "env": {
        "GITHUB_PERSONAL_ACCESS_TOKEN": "ghp_0123456789abcdefghij"
      }
    },
    "sentry": { "type": "http", "url": "https://mcp.sentry.dev/mcp" }
  },
  "oauthAccount": null
}
"#,
            r#"{
  "mcpServers": {
    "shared": {
      "command": "${TOOLS:-/opt}/bin/server",
      "args": ["--level", "${LEVEL:-info}"],
      "env": {"CACHE": "${HOME}/cache"}
    }
  }
}"#,
        ],
        "claude-desktop" => vec![
            r#"{
  "mcpServers": {
    "filesystem": {
      "command": "npx",
      "args": [
        "-y",
        "@modelcontextprotocol/server-filesystem",
        "/home/ada/Desktop"
      ]
    },
    "weather": { "command": "uv", "args": ["--directory", "/srv/weather", "run", "weather.py"] }
  },
  "globalShortcut": "Ctrl+Space"
}
"#,
            r#"{"globalShortcut":"","mcpServers":{"a":{"command":"a"}}}"#,
        ],
        "cursor" => vec![
            r#"{
  "mcpServers": {
    "api": {
      "command": "python",
      "args": ["${workspaceFolder}/mcp.py"],
      "envFile": "${workspaceFolder}/.env",
      "env": { "API_KEY": "${env:API_KEY}" },
      "disabled": false
    },
    "remote": { "url": "http://localhost:3000/mcp", "headers": { "A": "${env:T}" } }
  }
}
"#,
            r#"{ "mcpServers": { "one": { "command": "npx", "args": [ "-y", "one" ] }, "two": { "command": "two" } } }"#,
        ],
        "vscode" => vec![
            r#"{
	"inputs": [
		{ "type": "promptString", "id": "key", "description": "Key", "password": true }
	],
	"servers": {
		"playwright": {
			"type": "stdio",
			"command": "npx",
			"args": ["-y", "@microsoft/mcp-server-playwright"],
			"env": { "KEY": "${input:key}" },
			"dev": { "watch": "build/**/*.js", "debug": { "type": "node" } }
		},
		"GitHub": { "type": "http", "url": "https://api.githubcopilot.com/mcp" }
	}
}
"#,
            r#"{
    "editor.fontSize": 14,
    "mcp": {
        "servers": {
            "fetch": { "command": "uvx", "args": ["mcp-server-fetch"] }
        }
    },
    "[rust]": { "editor.tabSize": 4 }
}
"#,
        ],
        "zed" => vec![
            r#"{
  "theme": "One Dark",
  "context_servers": {
    "local": {
      "source": "custom",
      "command": "some-command",
      "args": ["arg-1", "arg-2"],
      "env": {}
    },
    "old": { "source": "custom", "command": { "path": "node", "args": ["s.js"], "env": null } },
    "extension": { "source": "extension", "settings": {} }
  },
  "vim_mode": true
}
"#,
            r#"{
  "context_servers": {"x": {"command": "x", "args": [], "env": {"A": "1"}, "enabled": true}}
}
"#,
        ],
        "codex" => vec![
            r#"model = "gpt-5"   # the default
approval_policy = "on-request"

[mcp_servers.context7]
command = "npx"
args = ["-y", "@upstash/context7-mcp"]
startup_timeout_sec = 20

[mcp_servers.context7.env]
MY_ENV_VAR = "MY_ENV_VALUE"

# somewhere else
[mcp_servers.figma]
url = "https://mcp.figma.com/mcp"
bearer_token_env_var = "FIGMA_OAUTH_TOKEN"

[mcp_servers.docs]
command = "docs-server"
cwd = "/srv/docs"
env_vars = ["LOCAL_TOKEN"]
enabled_tools = ["search", "summarize"]

[projects."/home/ada/app"]
trust_level = "trusted"
"#,
            r#"[mcp_servers]
inline = { command = "npx", args = ["-y", "x"], env = { "A" = "1" } }
other = { command = 'literal', args = [] }

[tui]
notifications = true
"#,
            r#"mcp_servers.dotted.command = "dotted"
mcp_servers.dotted.args = [
    "one", # first
    "two",
]
"#,
        ],
        "gemini" => vec![
            r#"{
  "mcp": { "allowed": ["pythonTools"] },
  "mcpServers": {
    "pythonTools": {
      "command": "python",
      "args": ["-m", "my_mcp_server", "--port", "8080"],
      "cwd": "./mcp-servers/python",
      "env": { "DATABASE_URL": "$DB_CONNECTION_STRING", "API_KEY": "${EXTERNAL_API_KEY}" },
      "timeout": 15000,
      "includeTools": ["safe_tool"],
      "trust": false
    },
    "httpServer": { "httpUrl": "https://example.com/mcp", "headers": {} }
  }
}
"#,
            r#"{"mcpServers": {"a": {"command": "a", "args": ["b"]}}, "ui": {"theme": "x"}}"#,
        ],
        "opencode" => vec![
            r#"{
  "$schema": "https://opencode.ai/config.json",
  "mcp": {
    "my-local": {
      "type": "local",
      "command": ["bun", "x", "my-mcp-command"],
      "enabled": true,
      "environment": {
        "MY_ENV_VAR": "{env:MY_ENV_VAR}"
      }
    },
    "my-remote": { "type": "remote", "url": "https://my-mcp-server.com" }
  }
}
"#,
            r#"{
  "mcp": {
    "servers": {
      "second": { "type": "local", "command": ["npx", "-y", "second"], "cwd": "." }
    }
  }
}
"#,
        ],
        _ => vec![
            r#"{
  "mcpServers": {
    "github": {
      "command": "npx",
      "args": ["-y", "@modelcontextprotocol/server-github"],
      "env": { "GITHUB_PERSONAL_ACCESS_TOKEN": "${env:GITHUB_TOKEN}" }
    },
    "remote": { "serverUrl": "https://example.com/mcp" },
    "off": { "command": "off", "disabled": true, "disabledTools": ["a"] }
  }
}
"#,
            r#"{ "mcpServers": { "x": { "command": "/opt/x", "args": ["--flag", ""] } } }"#,
        ],
    }
}

/// What a document looks like in somebody's hands.
fn hands(text: &str, format: Format) -> Vec<String> {
    let both: Vec<String> = vec![
        text.to_owned(),
        text.replace('\n', "\r\n"),
        format!("\u{feff}{text}"),
        text.trim_end().to_owned(),
        format!("\n\n{text}\n\n"),
        text.replace("  ", "\t"),
        text.replace("  ", "    "),
        text.replace('\n', " \n"),
        text.replace("github", "gïthub ✓")
            .replace("\"x\"", "\"日本語\""),
    ];
    let more: Vec<String> = match format {
        Format::Json => vec![
            format!("// mine {{ \"not\": \"this\" }}\n{text}"),
            format!("/* mine\n   \" too */ {text} // end"),
            text.replace("{\n", "{ // opened\n"),
            text.replace(",\n", ", /* so */\n"),
            text.replace("\n", "\n\n"),
            text.replace(": ", " :  "),
            text.replace("}\n}", "},\n}"),
            minified(text),
        ],
        Format::Toml => vec![
            format!("# mine \"\n{text}"),
            text.replace("]\n", "] # closed\n"),
            text.replace(" = ", "="),
            text.replace(" = ", "  =   "),
            text.replace("\n[", "\n\n\n["),
            text.replace("\n[", "\n# next\n["),
        ],
    };
    let all = both.into_iter().chain(more);
    // A transformation may make of a text what is no document any more.
    all.filter(|text| document::entries(text, format, &[&[]]).is_ok())
        .collect()
}

fn minified(text: &str) -> String {
    let value: Value = serde_json::from_str(text).unwrap_or_default();
    value.to_string()
}

/// Every file of a host's format, with its roots.
fn corpus(host: &HostKind) -> Vec<(String, Format, &'static [&'static [&'static str]])> {
    let mut files = Vec::new();
    for text in documents(host.id) {
        // The place of the host whose roots lead to something.
        let place = host
            .places
            .iter()
            .find(|place| {
                let found = document::entries(text, place.format, place.roots);
                found.is_ok_and(|found| !found.is_empty())
            })
            .unwrap_or_else(|| panic!("{}: {text}", host.id));
        let hands = hands(text, place.format).into_iter();
        files.extend(hands.map(|text| (text, place.format, place.roots)));
    }
    files
}

fn programs(
    text: &str,
    format: Format,
    roots: &[&[&str]],
    host: &HostKind,
) -> Vec<document::RawEntry> {
    let found = document::entries(text, format, roots).unwrap();
    let is_program = |value: &Value| matches!(understand(value, &host.shape), Meaning::Program(_));
    found
        .into_iter()
        .filter(|entry| is_program(&entry.value))
        .collect()
}

fn connect(server: &str) -> Connect {
    Connect {
        program: "mcpd".to_owned(),
        flags: Vec::new(),
        server: server.to_owned(),
    }
}

#[test]
fn every_host_has_twenty_files_and_more() {
    for host in HOSTS {
        let files = corpus(host);
        assert!(files.len() >= 20, "{}: {}", host.id, files.len());
        for (text, format, roots) in files {
            let found = programs(&text, format, roots, host);
            assert!(!found.is_empty(), "{}: {text}", host.id);
        }
    }
}

#[test]
fn entries_go_through_mcpd_and_come_back_to_the_byte() {
    for host in HOSTS {
        for (text, format, roots) in corpus(host) {
            let mut new = text.clone();
            let mut changed = Vec::new();
            for entry in programs(&text, format, roots, host) {
                let before = document::entry_text(&new, format, &entry.path).unwrap();
                let members = connect_members(&connect("srv"), host);
                new = document::set_members(&new, format, &entry.path, &members).unwrap();
                changed.push((entry.path, before));
            }
            let real = |text: &str| {
                let found = document::entries(text, format, roots).unwrap().into_iter();
                let is_entry = |value: &Value| understand(value, &host.shape) != Meaning::Nothing;
                found
                    .filter(|entry| is_entry(&entry.value))
                    .collect::<Vec<_>>()
            };
            let (now, old) = (real(&new), real(&text));
            assert_eq!(now.len(), old.len(), "{new}");
            for (now, old) in now.iter().zip(&old) {
                let is_changed = changed.iter().any(|(path, _)| *path == now.path);
                let meaning = understand(&now.value, &host.shape);
                assert_eq!(
                    is_changed,
                    meaning == Meaning::Ours("srv".to_owned()),
                    "{new}"
                );
                assert!(is_changed || now == old, "{new}");
            }
            for (path, before) in changed.iter().rev() {
                new = document::replace_entry(&new, format, path, before).unwrap();
            }
            assert_eq!(new, text, "{}", host.id);
        }
    }
}

#[test]
fn what_others_add_to_an_entry_stays() {
    for host in HOSTS {
        for (text, format, roots) in corpus(host) {
            let entry = programs(&text, format, roots, host).swap_remove(0);
            let members = connect_members(&connect("srv"), host);
            let set = |text: &str, members: &document::Members<'_>| {
                let new = document::set_members(text, format, &entry.path, members);
                new.unwrap_or_else(|| panic!("{:?} in {text}", entry.path))
            };
            let ours = set(&text, &members);
            let added = [("theirs", Some(json!(["x"])))];
            let theirs = set(&ours, &added);
            let back = members_of(&entry.value);
            let undone = set(&theirs, &back);
            let now = document::entries(&undone, format, roots).unwrap();
            let now = now.iter().find(|now| now.path == entry.path).unwrap();
            let mut expected = entry.value.clone();
            expected["theirs"] = json!(["x"]);
            // TOML has no null to put back.
            if format == Format::Json {
                assert_eq!(now.value, expected, "{undone}");
            } else {
                assert_eq!(now.value["theirs"], json!(["x"]), "{undone}");
                assert_eq!(now.value["command"], expected["command"], "{undone}");
            }
        }
    }
}

#[test]
fn broken_files_are_refused_with_their_line() {
    let json = &find_host("cursor").unwrap().places[0];
    let toml = &find_host("codex").unwrap().places[0];
    for (place, text, line) in [
        (json, "{\n  \"mcpServers\": {\n", "line 2"),
        (json, "{\n  \"a\": 1\n  \"b\": 2\n}", "line 2"),
        (json, "{\"a\": tru}", "line 1"),
        (json, "{\"a\": \"x}", "line 1"),
        (json, "not json", "line 1"),
        (toml, "a = 1\n[mcp_servers\n", "line 2"),
        (toml, "a = \"x\n", "line 1"),
        (toml, "[a]\n[a]\n", "line 2"),
    ] {
        let why = document::entries(text, place.format, place.roots).unwrap_err();
        assert!(why.contains(line), "{text:?}: {why}");
    }
}
