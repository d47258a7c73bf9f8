//! Names of servers as others write them, made names that a file may have.

/// The most characters of a server's name.
pub(crate) const NAME_LIMIT_CHARS: usize = 64;

/// What a host calls a server, as a name that a file may have.
pub(crate) fn server_name(text: &str) -> String {
    let mut name = String::new();
    for character in text.chars() {
        let fits = character.is_ascii_alphanumeric() || "._-".contains(character);
        match fits {
            true => name.push(character),
            // One for each run of what does not fit.
            false if !name.ends_with('-') => name.push('-'),
            false => {}
        }
    }
    let name = name
        .trim_start_matches(['.', '_', '-'])
        .trim_end_matches('-');
    let name: String = name.chars().take(NAME_LIMIT_CHARS).collect();
    match name.is_empty() {
        true => "server".to_owned(),
        false => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_name_becomes_a_name() {
        for (text, name) in [
            ("My Server!", "My-Server"),
            ("@scope/pkg", "scope-pkg"),
            ("日本", "server"),
            ("_x", "x"),
            ("a.b_c-d", "a.b_c-d"),
        ] {
            assert_eq!(server_name(text), name);
        }
    }
}
