//! One tool as people read it: what it does, what it takes, what it gives back.
//!
//! Decides which keywords of a schema are told and how; `--json` has all of them.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::cli::escape::escape;
use crate::cli::json_schema::Schema;
use crate::cli::mcp_client::Tool;
use crate::cli::output::{Style, Tone};

/// Where nothing says how wide the page is.
const WIDTH: usize = 80;
/// Descriptions are indented so far below their argument.
const INDENT: usize = 6;
/// Objects within objects that are told of.
const DEPTH: usize = 5;
/// Values of an `enum` that are told.
const VALUES: usize = 30;

/// The page of `tool`, which `server` offers.
pub(super) fn render_page(server: &str, tool: &Tool, style: Style, width: Option<usize>) -> String {
    let mut page = Page {
        text: String::new(),
        style,
        width: width.unwrap_or(WIDTH).max(40),
    };
    page.head(tool);
    let input = Schema::of(&tool.input_schema);
    page.section("Arguments");
    if input.properties().next().is_none() {
        page.wrapped("none", 2);
    }
    page.members(input, "", DEPTH);
    let output = Schema::of(&tool.output_schema);
    if output.properties().next().is_some() {
        page.section("Returns");
        page.members(output, "", DEPTH);
    }
    page.section("Example");
    let example = example(server, tool, input);
    // A command is to be copied: it is not wrapped.
    _ = writeln!(page.text, "  {example}");
    page.text
}

struct Page {
    text: String,
    style: Style,
    width: usize,
}

// Writing to a string cannot fail.
impl Page {
    fn head(&mut self, tool: &Tool) {
        let name = escape(&tool.name);
        let title = tool.title.as_deref().or(tool.annotations["title"].as_str());
        match title.filter(|title| *title != tool.name) {
            Some(title) => _ = writeln!(self.text, "{name}: {}", escape(title)),
            None => _ = writeln!(self.text, "{name}"),
        }
        if let Some(description) = &tool.description {
            self.text.push('\n');
            self.paragraphs(description, 2);
        }
        let hints = hints(&tool.annotations);
        if !hints.is_empty() {
            _ = writeln!(self.text, "\n  {}", self.style.paint(Tone::Faint, &hints));
        }
    }

    fn section(&mut self, name: &str) {
        _ = writeln!(self.text, "\n{}", self.style.paint(Tone::Faint, name));
    }

    /// The members of an object, each under the name by which `call` takes it.
    fn members(&mut self, object: Schema<'_>, before: &str, depth: usize) {
        let width = object
            .properties()
            .map(|(name, _)| before.len() + escape(name).chars().count())
            .max()
            .unwrap_or(0);
        for (name, property) in object.properties() {
            let full = format!("{before}{}", escape(name));
            let facts = facts(property, object.requires(name));
            self.hanging(&format!("  {full:width$}  "), &facts);
            if let Some(description) = property.text("description") {
                self.paragraphs(description, INDENT);
            }
            if depth > 0 {
                self.members(property, &format!("{full}."), depth - 1);
                if let Some(items) = property.items() {
                    self.members(items, &format!("{full}[]."), depth - 1);
                }
            }
        }
    }

    /// Text with the line ends that it has, wrapped.
    fn paragraphs(&mut self, text: &str, indent: usize) {
        for line in text.trim().lines() {
            if line.trim().is_empty() {
                self.text.push('\n');
            } else {
                self.wrapped(&escape(line.trim_end()), indent);
            }
        }
    }

    fn wrapped(&mut self, text: &str, indent: usize) {
        // What is indented by its author stays so: lists, code.
        let own = text.chars().take_while(|c| *c == ' ').count().min(20);
        self.hanging(&" ".repeat(indent + own), text);
    }

    /// `head` and behind it `text`, wrapped below its beginning.
    fn hanging(&mut self, head: &str, text: &str) {
        let indent = head.chars().count().min(self.width / 2);
        let mut line = head.to_owned();
        let mut is_empty = true;
        for word in text.split_whitespace() {
            let needed = line.chars().count() + usize::from(!is_empty) + word.chars().count();
            if !is_empty && needed > self.width {
                _ = writeln!(self.text, "{}", line.trim_end());
                line = " ".repeat(indent);
            } else if !is_empty {
                line.push(' ');
            }
            line.push_str(word);
            is_empty = false;
        }
        _ = writeln!(self.text, "{}", line.trim_end());
    }
}

/// `number, required, at least 0, default 2`
fn facts(property: Schema<'_>, is_required: bool) -> String {
    let mut facts = vec![property.type_text()];
    if is_required {
        facts.push("required".to_owned());
    }
    let value = |name: &str| Some(property.keyword(name)).filter(|value| !value.is_null());
    for (name, words) in [
        ("minimum", "at least"),
        ("exclusiveMinimum", "above"),
        ("maximum", "at most"),
        ("exclusiveMaximum", "below"),
        ("multipleOf", "a multiple of"),
    ] {
        facts.extend(value(name).map(|value| format!("{words} {}", plain(value))));
    }
    for (least, most, of) in [
        ("minLength", "maxLength", "characters"),
        ("minItems", "maxItems", "elements"),
    ] {
        facts.extend(value(least).map(|count| format!("at least {} {of}", plain(count))));
        facts.extend(value(most).map(|count| format!("at most {} {of}", plain(count))));
    }
    for (name, words) in [
        ("format", "format"),
        ("pattern", "matching"),
        ("default", "default"),
    ] {
        facts.extend(value(name).map(|value| format!("{words} {}", plain(value))));
    }
    facts.extend(one_of(property));
    let text = facts.join(", ");
    match property.items().and_then(one_of) {
        Some(items) => format!("{text}, each {items}"),
        None => text,
    }
}

fn one_of(schema: Schema<'_>) -> Option<String> {
    let listed = schema
        .keyword("enum")
        .as_array()
        .map(|values| values.iter().collect());
    let constants = || {
        let constants = schema.choices().map(|choice| choice.keyword("const"));
        constants.filter(|value| !value.is_null()).collect()
    };
    let values: Vec<&Value> = listed.unwrap_or_else(constants);
    let shown: Vec<String> = values
        .iter()
        .take(VALUES)
        .map(|value| plain(value))
        .collect();
    let rest = match values.len() > shown.len() {
        true => format!(" and {} more", values.len() - shown.len()),
        false => String::new(),
    };
    (!shown.is_empty()).then(|| format!("one of {}{rest}", shown.join(" | ")))
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) if !text.is_empty() && !text.contains([' ', ',']) => escape(text),
        other => escape(&other.to_string()),
    }
}

/// What the server says of the tool's effects (MCP, tool annotations): its own word.
fn hints(annotations: &Value) -> String {
    let mut hints = Vec::new();
    for (name, if_true, if_false) in [
        ("readOnlyHint", "only reads", ""),
        ("destructiveHint", "may destroy", "destroys nothing"),
        ("idempotentHint", "may be repeated", ""),
        (
            "openWorldHint",
            "reaches the outside world",
            "stays within its own world",
        ),
    ] {
        match annotations[name].as_bool() {
            Some(true) => hints.push(if_true),
            Some(false) if !if_false.is_empty() => hints.push(if_false),
            _ => {}
        }
    }
    match hints.is_empty() {
        true => String::new(),
        false => format!("It says of itself: {}.", hints.join(", ")),
    }
}

/// A call with the arguments that are required.
fn example(server: &str, tool: &Tool, input: Schema<'_>) -> String {
    let mut words = vec!["mcpd call".to_owned(), quote(server), quote(&tool.name)];
    for (name, property) in input.properties().filter(|(name, _)| input.requires(name)) {
        let given = ["default", "example"].map(|name| property.keyword(name));
        let listed = [
            &property.keyword("enum")[0],
            &property.keyword("examples")[0],
        ];
        let value = given
            .into_iter()
            .chain(listed)
            .find(|value| !value.is_null());
        let types = property.types();
        let stand_in = || match () {
            () if types.text || types.is_unknown() => json!("TEXT"),
            () if types.number || types.integer => json!(1),
            () if types.boolean => json!(true),
            () if types.array => json!([]),
            () => json!({}),
        };
        let value = value.cloned().unwrap_or_else(stand_in);
        let value = match value {
            Value::String(text) => text,
            other => other.to_string(),
        };
        words.push(quote(&format!("{name}={value}")));
    }
    words.join(" ")
}

fn quote(word: &str) -> String {
    crate::cli::status::quote(&escape(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool() -> Tool {
        serde_json::from_value(json!({
            "name": "book",
            "title": "Book a table",
            "description": "Books a table at a restaurant, as long as there is one that is free at that time.\n\n- asks nobody",
            "annotations": {"readOnlyHint": false, "destructiveHint": true},
            "inputSchema": {
                "type": "object",
                "required": ["name", "guests"],
                "properties": {
                    "name": {"type": "string", "description": "Who comes, \u{1b}and who pays for all of it in the end of the evening"},
                    "guests": {"type": "integer", "minimum": 1, "maximum": 12, "default": 2},
                    "room": {"enum": ["inside", "out side"]},
                    "contact": {"$ref": "#/$defs/contact"},
                    "tags": {"type": "array", "items": {"enum": ["a", "b"]}},
                },
                "$defs": {"contact": {"type": "object", "required": ["mail"], "properties": {
                    "mail": {"type": "string", "format": "email"},
                }}},
            },
            "outputSchema": {"type": "object", "properties": {"number": {"type": "integer"}}},
        }))
        .unwrap()
    }

    #[test]
    fn a_page_tells_all_that_a_call_needs() {
        let page = render_page("resto", &tool(), Style { color: false }, Some(60));
        assert_eq!(
            page,
            "\
book: Book a table

  Books a table at a restaurant, as long as there is one
  that is free at that time.

  - asks nobody

  It says of itself: may destroy.

Arguments
  name     string, required
      Who comes, \\eand who pays for all of it in the end of
      the evening
  guests   integer, required, at least 1, at most 12,
           default 2
  room     string, one of inside | \"out side\"
  contact  object
  contact.mail  string, required, format email
  tags     array of string, each one of a | b

Returns
  number  integer

Example
  mcpd call resto book name=TEXT guests=2
"
        );
    }

    #[test]
    fn a_tool_without_arguments_says_so() {
        let tool = Tool {
            input_schema: Value::Null,
            title: None,
            description: None,
            ..tool()
        };
        let page = render_page("s", &tool, Style { color: false }, None);
        assert!(page.contains("Arguments\n  none\n"), "{page}");
    }
}
