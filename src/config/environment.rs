//! What a child is given as its environment: built from nothing, layer upon layer.
//!
//! It decides which of the daemon's variables a child may see, and which of its variables are secret
//! as far as logs go. Lowest first: the base (or, with `inherit_env`, everything), `pass_env`,
//! `env_file`, `env`. What systemd and mcpd use among themselves never passes, whoever asks.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Passed from the daemon's environment, besides `LC_*` and `XDG_*`.
const BASE_NAMES: [&str; 8] = [
    "HOME", "USER", "LOGNAME", "SHELL", "PATH", "LANG", "TZ", "TMPDIR",
];

/// Passed unless `proxy_env` is off or the value holds a password.
const PROXY_NAMES: [&str; 12] = [
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
];

/// What a command that gives a value may see besides the base: a desktop's way to ask for a password.
const COMMAND_VALUE_NAMES: [&str; 4] = [
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "DBUS_SESSION_BUS_ADDRESS",
    "SSH_AUTH_SOCK",
];

/// PATH where nobody says any (the default of `execvp` and of most shells).
pub const FALLBACK_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// The variable that marks a child and all it starts as ours; the spawner sets it.
pub const INSTANCE_VARIABLE: &str = "MCPD_INSTANCE";

/// Names to values, neither of which need be UTF-8. `Debug` shows the names only.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Environment(BTreeMap<OsString, OsString>);

impl fmt::Debug for Environment {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_list().entries(self.0.keys()).finish()
    }
}

impl<N: Into<OsString>, V: Into<OsString>> FromIterator<(N, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> Self {
        Self(
            pairs
                .into_iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
        )
    }
}

impl Environment {
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        self.0.get(OsStr::new(name)).map(OsString::as_os_str)
    }

    /// The value, if there is one and it says something.
    pub fn get_filled(&self, name: &str) -> Option<&OsStr> {
        self.get(name).filter(|value| !value.is_empty())
    }

    pub fn set(&mut self, name: impl Into<OsString>, value: impl Into<OsString>) {
        self.0.insert(name.into(), value.into());
    }

    pub fn remove(&mut self, name: &str) {
        self.0.remove(OsStr::new(name));
    }

    pub fn names(&self) -> impl Iterator<Item = &OsStr> {
        self.0.keys().map(OsString::as_os_str)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_os_str(), value.as_os_str()))
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// What the user database says of the user, for what the daemon's environment lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    pub uid: u32,
    pub name: OsString,
    pub home: PathBuf,
    pub shell: PathBuf,
}

/// What children are built from: the daemon's own environment, the user and the PATH that was found.
#[derive(Clone, Debug)]
pub struct Base {
    environment: Environment,
    user: User,
    path: OsString,
}

impl Base {
    /// `path` is what `mcpd.toml` or the user's login shell says; without it the daemon's own counts.
    pub fn new(environment: Environment, user: User, path: Option<OsString>) -> Self {
        let path = path
            .or_else(|| environment.get_filled("PATH").map(OsStr::to_owned))
            .unwrap_or_else(|| FALLBACK_PATH.into());
        Self {
            environment,
            user,
            path,
        }
    }

    /// The daemon's own environment.
    pub fn daemon_environment(&self) -> &Environment {
        &self.environment
    }

    pub fn user(&self) -> &User {
        &self.user
    }

    /// The PATH that children get, before a server's own `path`.
    pub fn path(&self) -> &OsStr {
        &self.path
    }

    /// The home directory: that of the environment if it is absolute, else that of the user database.
    pub fn home(&self) -> PathBuf {
        home(&self.environment, &self.user)
    }

    /// The lowest layer: what every child gets. Also returns the proxy variables that were held back
    /// since their values hold a password.
    pub fn layer(&self, inherit_env: bool, proxy_env: bool) -> (Environment, Vec<&'static str>) {
        let mut layer: Environment = self
            .environment
            .iter()
            .filter(|(name, _)| inherit_env || is_base_name(name))
            .filter(|(name, _)| !is_private_name(name))
            .collect();
        let withheld = self.add_proxies(&mut layer, inherit_env, proxy_env);
        self.fill_gaps(&mut layer);
        (layer, withheld)
    }

    /// The folder of what systemd gives the service to keep secret (systemd.exec(5)).
    pub fn credentials_dir(&self) -> Option<&Path> {
        let folder = self.environment.get_filled("CREDENTIALS_DIRECTORY")?;
        Some(Path::new(folder)).filter(|folder| folder.is_absolute())
    }

    /// What a command that gives a value sees.
    pub fn command_value_environment(&self) -> Environment {
        let (mut layer, _) = self.layer(false, true);
        for name in COMMAND_VALUE_NAMES {
            if let Some(value) = self.environment.get(name) {
                layer.set(name, value);
            }
        }
        layer
    }

    fn add_proxies(
        &self,
        layer: &mut Environment,
        inherit_env: bool,
        proxy_env: bool,
    ) -> Vec<&'static str> {
        let mut withheld = Vec::new();
        for name in PROXY_NAMES {
            let Some(value) = self.environment.get(name) else {
                continue;
            };
            if !proxy_env {
                layer.remove(name);
            } else if inherit_env || !holds_password(value) {
                layer.set(name, value);
            } else {
                withheld.push(name);
            }
        }
        withheld
    }

    fn fill_gaps(&self, layer: &mut Environment) {
        layer.set("PATH", self.path.clone());
        layer.set("HOME", self.home());
        let fallbacks: [(&str, &OsStr); 3] = [
            ("USER", &self.user.name),
            ("LOGNAME", &self.user.name),
            ("SHELL", self.user.shell.as_os_str()),
        ];
        for (name, value) in fallbacks {
            if layer.get_filled(name).is_none() && !value.is_empty() {
                layer.set(name, value);
            }
        }
        let has_locale = layer
            .iter()
            .any(|(name, value)| is_locale_name(name) && !value.is_empty());
        if !has_locale {
            layer.set("LANG", "C.UTF-8");
        }
    }
}

/// The home directory by the one rule: `HOME` if it is absolute, else the user database's.
pub fn home(environment: &Environment, user: &User) -> PathBuf {
    let named = environment
        .get("HOME")
        .map(PathBuf::from)
        .filter(|home| home.is_absolute());
    named.unwrap_or_else(|| user.home.clone())
}

/// Whether a variable is between mcpd and its own starter (`sd_notify(3)`, `sd_listen_fds(3)`,
/// `sd_watchdog_enabled(3)`, `systemd.exec(5)`), or between mcpd and its children.
pub fn is_private_name(name: &OsStr) -> bool {
    let name = name.as_bytes();
    matches!(
        name,
        b"NOTIFY_SOCKET"
            | b"INVOCATION_ID"
            | b"JOURNAL_STREAM"
            | b"SYSTEMD_EXEC_PID"
            | b"CREDENTIALS_DIRECTORY"
            | b"MCPD_INSTANCE"
    ) || name.starts_with(b"LISTEN_")
        || name.starts_with(b"WATCHDOG_")
}

/// Whether a daemon that was started for a command has this variable, if the command has it.
pub fn is_passed_to_daemon(name: &str) -> bool {
    is_base_name(OsStr::new(name)) || PROXY_NAMES.contains(&name)
}

fn is_base_name(name: &OsStr) -> bool {
    let bytes = name.as_bytes();
    BASE_NAMES.iter().any(|base| base.as_bytes() == bytes)
        || bytes.starts_with(b"LC_")
        || bytes.starts_with(b"XDG_")
}

fn is_locale_name(name: &OsStr) -> bool {
    name == "LANG" || name.as_bytes().starts_with(b"LC_")
}

/// Whether a proxy's address holds a password, as in `http://user:password@proxy:8080` (RFC 3986,
/// section 3.2.1). The scheme may be missing.
fn holds_password(value: &OsStr) -> bool {
    let value = value.to_string_lossy();
    value.split(',').any(|address| {
        let authority = address.split_once("://").map_or(address, |(_, rest)| rest);
        // A password may hold a raw `/`; the last `@` before a query ends it.
        let authority = authority.split(['?', '#']).next().unwrap_or_default();
        let Some((user_info, _)) = authority.rsplit_once('@') else {
            return false;
        };
        user_info
            .split_once(':')
            .is_some_and(|(_, password)| !password.is_empty())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn user() -> User {
        User {
            uid: 1000,
            name: "ada".into(),
            home: "/home/ada".into(),
            shell: "/bin/zsh".into(),
        }
    }

    fn base(daemon: &[(&str, &str)]) -> Base {
        Base::new(daemon.iter().copied().collect(), user(), None)
    }

    /// What a child gets of `daemon`, as `NAME=VALUE`.
    fn layer(daemon: &[(&str, &str)], inherit_env: bool, proxy_env: bool) -> Vec<String> {
        let (layer, _) = base(daemon).layer(inherit_env, proxy_env);
        let show = |(name, value): (&OsStr, &OsStr)| {
            format!("{}={}", name.to_string_lossy(), value.to_string_lossy())
        };
        layer.iter().map(show).collect()
    }

    const FULL: [(&str, &str); 6] = [
        ("HOME", "/h"),
        ("LANG", "de_DE.UTF-8"),
        ("LOGNAME", "l"),
        ("PATH", "/bin"),
        ("SHELL", "/bin/sh"),
        ("USER", "u"),
    ];

    fn full_and(more: &[(&str, &str)], inherit_env: bool, proxy_env: bool) -> Vec<String> {
        let mut daemon = FULL.to_vec();
        daemon.extend_from_slice(more);
        let plain = layer(&FULL, false, true);
        let mut got = layer(&daemon, inherit_env, proxy_env);
        got.retain(|pair| !plain.contains(pair));
        got
    }

    #[test]
    fn an_empty_daemon_environment_is_filled_from_the_user_database() {
        let expected = [
            "HOME=/home/ada",
            "LANG=C.UTF-8",
            "LOGNAME=ada",
            "PATH=/usr/local/bin:/usr/bin:/bin",
            "SHELL=/bin/zsh",
            "USER=ada",
        ];
        assert_eq!(layer(&[], false, true), expected);
    }

    #[test]
    fn the_listed_names_pass_and_no_secret_does() {
        let passed = [
            ("LC_ALL", "C"),
            ("TMPDIR", "/t"),
            ("TZ", "UTC"),
            ("XDG_RUNTIME_DIR", "/run/u"),
        ];
        let mut daemon = passed.to_vec();
        daemon.extend([
            ("SECRET_A", "1"),
            ("GITHUB_TOKEN", "t"),
            ("DISPLAY", ":0"),
            ("LCX", "1"),
        ]);
        let expected: Vec<String> = passed
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        assert_eq!(full_and(&daemon, false, true), expected);
    }

    #[test]
    fn a_locale_of_any_kind_keeps_the_fallback_away() {
        assert!(
            layer(&[("LC_CTYPE", "C")], false, true)
                .iter()
                .all(|pair| !pair.starts_with("LANG"))
        );
        assert!(layer(&[("LANG", "")], false, true).contains(&"LANG=C.UTF-8".to_owned()));
    }

    #[test]
    fn proxies_pass_in_both_cases_and_can_be_turned_off() {
        let proxies = [
            ("ALL_PROXY", "socks5://p:1080"),
            ("HTTPS_PROXY", "http://p:8080"),
            ("NODE_EXTRA_CA_CERTS", "/ca.pem"),
            ("http_proxy", "http://user@p:8080"),
            ("no_proxy", "localhost,.corp"),
        ];
        let expected: Vec<String> = proxies
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        assert_eq!(full_and(&proxies, false, true), expected);
        assert!(full_and(&proxies, false, false).is_empty());
        assert!(full_and(&proxies, true, false).is_empty());
    }

    #[test]
    fn a_proxy_with_a_password_is_withheld_by_name() {
        for value in [
            "http://u:secret@p:8080",
            "u:secret@p:8080",
            "http://u:a/b@c@p",
            "x,http://u:s@p",
        ] {
            let (layer, withheld) =
                base(&[("HTTP_PROXY", value), ("HTTPS_PROXY", "http://p")]).layer(false, true);
            assert_eq!(withheld, ["HTTP_PROXY"], "{value}");
            assert_eq!(layer.get("HTTP_PROXY"), None);
            assert_eq!(layer.get("HTTPS_PROXY"), Some(OsStr::new("http://p")));
        }
    }

    #[test]
    fn inherit_env_brings_everything_but_what_is_private() {
        let private = [
            ("NOTIFY_SOCKET", "/n"),
            ("LISTEN_FDS", "3"),
            ("LISTEN_PID", "1"),
            ("WATCHDOG_USEC", "1"),
            ("INVOCATION_ID", "i"),
            ("JOURNAL_STREAM", "8:1"),
            ("SYSTEMD_EXEC_PID", "1"),
            ("CREDENTIALS_DIRECTORY", "/run/credentials/mcpd.service"),
            ("MCPD_INSTANCE", "x"),
        ];
        assert!(full_and(&private, true, true).is_empty());
        assert_eq!(full_and(&[("SECRET_A", "1")], true, true), ["SECRET_A=1"]);
    }

    #[test]
    fn a_found_path_wins_over_the_daemons_own() {
        let daemon = [("PATH", "/usr/bin")].into_iter().collect();
        let base = Base::new(daemon, user(), Some("/home/ada/bin:/usr/bin".into()));
        let (layer, _) = base.layer(true, true);
        assert_eq!(
            layer.get("PATH"),
            Some(OsStr::new("/home/ada/bin:/usr/bin"))
        );
    }

    #[test]
    fn a_home_that_is_not_absolute_does_not_count() {
        let (layer, _) = base(&[("HOME", "relative")]).layer(false, true);
        assert_eq!(layer.get("HOME"), Some(OsStr::new("/home/ada")));
    }

    #[test]
    fn a_command_that_gives_a_value_may_ask_on_the_desktop() {
        let daemon = [
            ("DISPLAY", ":0"),
            ("SSH_AUTH_SOCK", "/s"),
            ("SECRET_A", "1"),
        ];
        let environment = base(&daemon).command_value_environment();
        assert_eq!(environment.get("DISPLAY"), Some(OsStr::new(":0")));
        assert_eq!(environment.get("SSH_AUTH_SOCK"), Some(OsStr::new("/s")));
        assert_eq!(environment.get("SECRET_A"), None);
    }

    #[test]
    fn debug_names_no_value() {
        let environment: Environment = [("TOKEN", "s3cr3t-value")].into_iter().collect();
        assert_eq!(format!("{environment:?}"), r#"["TOKEN"]"#);
    }

    proptest! {
        #[test]
        fn nothing_private_ever_passes(
            pairs in prop::collection::vec(("[A-Z_]{1,8}|LISTEN_[A-Z]{1,4}|NOTIFY_SOCKET|WATCHDOG_PID", ".*"), 0..20),
            inherit_env: bool,
            proxy_env: bool,
        ) {
            let base = Base::new(pairs.into_iter().collect(), user(), None);
            let (layer, _) = base.layer(inherit_env, proxy_env);
            prop_assert!(layer.names().all(|name| !is_private_name(name)));
            for name in ["HOME", "PATH", "USER", "SHELL"] {
                prop_assert!(layer.get(name).is_some());
            }
        }
    }
}
