//! Variables as shells and other hosts write them, which mcpd passes on as they stand.
//!
//! It decides by the form alone what looks like a variable; whether that is worth a warning is
//! decided in `advice`.

use super::expand::is_variable_name;

/// The first `${…}` and what is in it.
pub(super) fn find_braced(text: &str) -> Option<(&str, &str)> {
    let start = text
        .match_indices("${")
        .map(|(at, _)| at)
        .find(|at| !text[..*at].ends_with('$'))?;
    let end = start + text[start..].find('}')?;
    Some((&text[start..=end], &text[start + 2..end]))
}

/// `$NAME`, `%NAME%` and `{{NAME}}`: the form and the name, each form once.
pub(super) fn find_look_alikes(text: &str) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    let mut add = |form: &str, name: &str| {
        if !found.iter().any(|(known, _)| known == form) {
            found.push((form.to_owned(), name.to_owned()));
        }
    };
    for (at, _) in text.match_indices('$') {
        let name = name_at(&text[at + 1..]);
        if !name.is_empty() && !text[..at].ends_with('$') {
            add(&text[at..at + 1 + name.len()], name);
        }
    }
    for (at, _) in text.match_indices('%') {
        let name = name_at(&text[at + 1..]);
        let end = at + 1 + name.len();
        // `%C3%A9` is an encoded letter.
        if name.len() > 2 && text[end..].starts_with('%') {
            add(&text[at..=end], name);
        }
    }
    for (at, _) in text.match_indices("{{") {
        let Some(len) = text[at + 2..].find("}}") else {
            continue;
        };
        let inner = &text[at + 2..at + 2 + len];
        let name = inner.trim().rsplit(['.', ':']).next().unwrap_or_default();
        if is_variable_name(name) {
            add(&text[at..at + len + 4], name);
        }
    }
    found
}

fn name_at(text: &str) -> &str {
    let len = text
        .bytes()
        .take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
        .count();
    let name = &text[..len];
    if is_variable_name(name) { name } else { "" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(text: &str, expected: &[(&str, &str)]) {
        let found = find_look_alikes(text);
        let found: Vec<(&str, &str)> = found
            .iter()
            .map(|(form, name)| (form.as_str(), name.as_str()))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn each_form_is_found_once() {
        check("$A/$A %USER%", &[("$A", "A"), ("%USER%", "USER")]);
        check(
            "{{ env.KEY }}{{input:b}}",
            &[("{{ env.KEY }}", "KEY"), ("{{input:b}}", "b")],
        );
    }

    #[test]
    fn what_is_no_name_is_no_variable() {
        for text in [
            "$",
            "$1",
            "$$A",
            "${A}",
            "%%",
            "%AB%",
            "100% of 5%",
            "{{",
            "{{ }}",
            "{{a b}}",
        ] {
            check(text, &[]);
        }
        assert_eq!(find_braced("a $${A} ${B} ${C}"), Some(("${B}", "B")));
        assert_eq!(find_braced("${A"), None);
    }

    proptest! {
        #[test]
        fn what_is_found_stands_in_the_text(text in "([$%{}A-Z ]|\\PC){0,40}") {
            for (form, name) in find_look_alikes(&text) {
                prop_assert!(text.contains(&form) && is_variable_name(&name));
            }
        }
    }
}
