//! Secrets that were written as arguments, where every user of the machine can read them.
//!
//! It decides by the name of a flag whether the word after it is a secret, and masks it. It never
//! judges by the look of a value alone, but for the well-known beginnings of access tokens.

use super::diagnostics::MASK;

/// Parts of a flag's name that say that its value is a secret.
const SECRET_WORDS: [&str; 10] = [
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "apikey",
    "accesskey",
    "privatekey",
    "credential",
    "bearer",
];

/// Flags that sound like a secret but name a place or a number of it.
const HARMLESS_ENDINGS: [&str; 9] = [
    "file", "path", "dir", "url", "name", "env", "limit", "count", "command",
];

/// How the access tokens of well-known services begin.
const TOKEN_BEGINNINGS: [&str; 12] = [
    "sk-",
    "ghp_",
    "gho_",
    "ghs_",
    "ghu_",
    "github_pat_",
    "glpat-",
    "xoxb-",
    "xoxp-",
    "AKIA",
    "AIza",
    "npm_",
];

/// Shorter values are hardly access tokens.
const TOKEN_MIN_BYTES: usize = 16;

/// The arguments of `words` (the program first) that hold a literal secret: their position and where
/// the secret begins in them, in bytes.
pub fn secret_arguments(words: &[&str]) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    for (at, word) in words.iter().enumerate().skip(1) {
        let start = secret_after(words[at - 1], word).or_else(|| secret_among_words(word));
        found.extend(start.map(|start| (at, start)));
    }
    found
}

/// Where a secret begins in `word`, which stands after `before`.
fn secret_after(before: &str, word: &str) -> Option<usize> {
    let after_flag = is_secret_flag(before) && !word.starts_with('-');
    let start = if after_flag {
        Some(0)
    } else {
        secret_in_word(word)
    };
    start.filter(|start| is_literal(&word[*start..]))
}

/// Where a secret begins in a word that is in fact several, as in `"server --token abc"`.
fn secret_among_words(word: &str) -> Option<usize> {
    let mut before = "";
    let mut at = 0;
    for part in word.split_whitespace() {
        at += word[at..].find(part).unwrap_or_default();
        if let Some(start) = secret_after(before, part) {
            return Some(at + start);
        }
        at += part.len();
        before = part;
    }
    None
}

/// `words` with their literal secrets masked.
pub fn mask_arguments(words: &[&str]) -> Vec<String> {
    let mut shown: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    for (at, start) in secret_arguments(words) {
        shown[at].truncate(start);
        shown[at].push_str(MASK);
    }
    shown
}

/// Where a secret begins in a word that stands alone: `--token=VALUE`, `TOKEN=VALUE`,
/// `Authorization: Bearer VALUE`, `scheme://user:VALUE@host`, a known token.
fn secret_in_word(word: &str) -> Option<usize> {
    if let Some((name, value)) = word.split_once('=')
        && names_secret(name)
        && !value.is_empty()
    {
        return Some(name.len() + 1);
    }
    if let Some(at) = find_ignoring_case(word, "authorization:") {
        return Some(at + "authorization:".len());
    }
    if let Some(start) = password_in_url(word) {
        return Some(start);
    }
    looks_like_token(word).then_some(0)
}

/// Whether a value begins as the access tokens of well-known services do.
pub fn looks_like_token(word: &str) -> bool {
    let starts = TOKEN_BEGINNINGS
        .iter()
        .any(|beginning| word.starts_with(beginning));
    starts && word.len() >= TOKEN_MIN_BYTES && !word.contains(char::is_whitespace)
}

/// Endings of variables that hold secrets and say so in no other way.
const SECRET_ENDINGS: [&str; 5] = ["_KEY", "_PAT", "_PASS", "_PWD", "_AUTH"];

/// Whether the value of a variable is a secret: by its name, or by the look of it.
pub fn looks_like_secret(name: &str, value: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    let named = names_secret(name)
        || SECRET_ENDINGS.iter().any(|ending| upper.ends_with(ending))
        || matches!(upper.as_str(), "KEY" | "PAT" | "PASS" | "PWD");
    !value.is_empty() && (named || looks_like_token(value) || password_in_url(value).is_some())
}

fn password_in_url(word: &str) -> Option<usize> {
    let authority_start = word.find("://")? + 3;
    let authority = word[authority_start..].split(['/', '?', '#']).next()?;
    let (user_info, _) = authority.rsplit_once('@')?;
    let (user, password) = user_info.split_once(':')?;
    (!password.is_empty()).then_some(authority_start + user.len() + 1)
}

fn is_secret_flag(word: &str) -> bool {
    word.starts_with('-') && !word.contains('=') && names_secret(word)
}

/// Whether the name of a flag or a variable says that its value is a secret.
pub fn names_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    if HARMLESS_ENDINGS.iter().any(|ending| name.ends_with(ending)) {
        return false;
    }
    let squeezed: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    // `max-tokens` and its kin are numbers.
    !squeezed.ends_with("tokens") && SECRET_WORDS.iter().any(|word| squeezed.contains(word))
}

/// Whether the value is the secret itself, and not a variable that holds it.
fn is_literal(value: &str) -> bool {
    let value = value.trim();
    !value.is_empty() && !value.contains("${")
}

fn find_ignoring_case(text: &str, lower: &str) -> Option<usize> {
    // ASCII lower case keeps every byte where it is.
    text.to_ascii_lowercase().find(lower)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(words: &[&str], expected: &[&str]) {
        assert_eq!(mask_arguments(words), expected);
    }

    #[test]
    fn the_word_after_a_secret_flag_is_masked() {
        check(
            &["srv", "--password", "hunter2", "x"],
            &["srv", "--password", "‹…›", "x"],
        );
        check(&["srv", "--api-key", "abc"], &["srv", "--api-key", "‹…›"]);
        check(&["srv", "--password=hunter2"], &["srv", "--password=‹…›"]);
        check(
            &["env", "GITHUB_TOKEN=abc", "srv"],
            &["env", "GITHUB_TOKEN=‹…›", "srv"],
        );
        check(
            &["docker", "run", "-e", "API_KEY=abc"],
            &["docker", "run", "-e", "API_KEY=‹…›"],
        );
    }

    #[test]
    fn headers_addresses_and_known_tokens_are_masked() {
        check(
            &["r", "--header", "Authorization: Bearer abc"],
            &["r", "--header", "Authorization:‹…›"],
        );
        check(
            &["r", "postgres://u:pw@host/db"],
            &["r", "postgres://u:‹…›"],
        );
        check(&["r", "ghp_0123456789abcdef"], &["r", "‹…›"]);
        check(
            &["sh", "-c", "exec srv --token abc -v"],
            &["sh", "-c", "exec srv --token ‹…›"],
        );
    }

    #[test]
    fn variables_places_and_numbers_are_shown() {
        for words in [
            ["srv", "--password", "${PASSWORD}"],
            ["srv", "--token=${TOKEN}", "x"],
            ["srv", "--token-file", "/run/token"],
            ["srv", "--max-tokens", "100"],
            ["srv", "--password", "--verbose"],
            ["srv", "https://host/a:b@c", "sk-x"],
        ] {
            check(&words, &words);
        }
    }

    proptest! {
        #[test]
        fn any_words_are_masked_without_a_panic(words in prop::collection::vec(".*", 0..5)) {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            prop_assert_eq!(mask_arguments(&words).len(), words.len());
        }
    }
}
