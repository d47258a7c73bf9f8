//! Which tools a host may see and call: `[tools] allow, deny`.
//!
//! Decides by the tool's name alone, the name after unescaping. Never looks at arguments.

/// The rules of one server. Without any rule every tool is allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolRules {
    /// Patterns of which one must match; absent, every name does.
    pub allow: Option<Vec<String>>,
    /// Patterns of which none may match; a denial wins over `allow`.
    pub deny: Vec<String>,
}

impl ToolRules {
    /// Whether there is nothing to decide, so that lists pass unread.
    pub fn is_empty(&self) -> bool {
        self.allow.is_none() && self.deny.is_empty()
    }

    /// Whether a tool of this name is listed and may be called.
    pub fn allows(&self, name: &str) -> bool {
        let matched = |patterns: &[String]| patterns.iter().any(|pattern| matches(pattern, name));
        self.allow.as_deref().is_none_or(matched) && !matched(&self.deny)
    }
}

/// Whether `name` matches `pattern`, in which `*` stands for any characters and all else for
/// itself. Goes back to the last `*` only, so the work is at most the product of the lengths.
fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut at_pattern, mut at_name) = (0, 0);
    let mut last_star: Option<(usize, usize)> = None;
    while at_name < name.len() {
        if pattern.get(at_pattern) == Some(&b'*') {
            last_star = Some((at_pattern, at_name));
            at_pattern += 1;
        } else if pattern.get(at_pattern) == Some(&name[at_name]) {
            at_pattern += 1;
            at_name += 1;
        } else if let Some((star, from)) = last_star {
            last_star = Some((star, from + 1));
            at_pattern = star + 1;
            at_name = from + 1;
        } else {
            return false;
        }
    }
    pattern[at_pattern..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check<'p>(
        allow: impl Into<Option<&'p [&'p str]>>,
        deny: &[&str],
        allowed: &[&str],
        denied: &[&str],
    ) {
        let owned = |patterns: &[&str]| patterns.iter().map(|one| (*one).to_owned()).collect();
        let rules = ToolRules {
            allow: allow.into().map(owned),
            deny: owned(deny),
        };
        for name in allowed {
            assert!(rules.allows(name), "{name} is allowed");
        }
        for name in denied {
            assert!(!rules.allows(name), "{name} is denied");
        }
    }

    #[test]
    fn without_rules_all_are_allowed() {
        check(None, &[], &["", "add", "*"], &[]);
    }

    #[test]
    fn an_empty_list_allows_nothing() {
        check(&[][..], &[], &[], &["", "add"]);
    }

    #[test]
    fn allow_names_what_may_pass() {
        check(
            &["add", "get_*"][..],
            &[],
            &["add", "get_", "get_x"],
            &["adds", "ad", "xget_", ""],
        );
    }

    #[test]
    fn a_denial_wins() {
        check(
            &["*"][..],
            &["*delete*"],
            &["add"],
            &["delete", "un_delete_d"],
        );
        check(&["delete_mine"][..], &["delete_*"], &[], &["delete_mine"]);
    }

    #[test]
    fn stars_stand_anywhere_and_match_nothing_too() {
        check(
            &["a*b*c", "**"][..],
            &["z**"],
            &["abc", "aXbYc", "any"],
            &["z", "zz"],
        );
        check(
            &["a*b*c"][..],
            &[],
            &["abbc", "abcbc"],
            &["acb", "ab", "bc"],
        );
    }

    #[test]
    fn many_stars_cost_no_exponential_time() {
        let pattern = "*a".repeat(2_000) + "b";
        check(&[pattern.as_str()][..], &[], &[], &[&"a".repeat(20_000)]);
    }
}
