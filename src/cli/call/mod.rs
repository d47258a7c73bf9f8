//! `mcpd call NAME TOOL key=value…`: one call of one tool, as any host would make it.

mod arguments;
mod attend;
mod base64;
mod form;
mod progress;
mod render;
mod save;

use std::io::Read;
use std::path::PathBuf;

use serde_json::{Value, json};

use self::arguments::{parse_arguments, parse_object};
use self::attend::Person;
use self::render::{Part, Rendered, render_result};
use self::save::Saver;
use super::Context;
use super::error::{CliError, Verdict};
use super::mcp_client::{McpClient, PROGRESS_TOKEN};

/// The longest text that is taken as arguments.
const ARGUMENTS_LIMIT_BYTES: u64 = 256 << 20;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Values get the types of the tool's input schema; `mcpd tools NAME TOOL` shows it.
  key=value      a value; several for a list
  key=@FILE      the text of a file
  key:=JSON      any JSON, such as null or [1,2] or '\"@text\"'
  a.b=value      a member of an object
  -              all arguments as one JSON object from standard input

Progress goes to standard error. What the server asks is asked at the terminal; without one it is \
declined. Ctrl-C cancels the call. Exit code 1 if the call fails or the tool reports an error, 130 \
if it was cancelled. `mcpd --json call …` prints the whole result as JSON.

Example:
  mcpd call calculator add a=2 b=3
  mcpd call calculator add --json '{\"a\": 2, \"b\": 3}'
  mcpd call browser screenshot url=https://example.org --save shot.png")]
pub(crate) struct Arguments {
    /// Server that has the tool
    #[arg(value_name = "NAME", add = crate::cli::completions::candidates())]
    name: String,
    /// Tool to call
    #[arg(value_name = "TOOL")]
    tool: String,
    /// Arguments of the tool, or `-`
    #[arg(value_name = "KEY=VALUE")]
    words: Vec<String>,
    /// Arguments of the tool as one JSON object
    #[arg(long = "json", value_name = "ARGS", conflicts_with = "words")]
    object: Option<String>,
    /// Keep images, sounds and blobs: in this file, or in this folder
    #[arg(long, value_name = "PATH")]
    save: Option<PathBuf>,
}

pub(crate) fn cmd_call(context: &Context, arguments: Arguments) -> Result<Verdict, CliError> {
    let Arguments {
        name,
        tool,
        words,
        object,
        save,
    } = arguments;
    // Wrong usage is found before a daemon is started for it.
    let object = match (object, &words[..]) {
        (Some(text), _) => Some(parse_object(&text, "the value of --json")?),
        (None, [word]) if word == "-" => Some(parse_object(&read_stdin()?, "standard input")?),
        (None, []) => Some("{}".to_owned()),
        (None, words) => {
            parse_arguments(words, &Value::Null, read_file)?;
            None
        }
    };
    let saver = save.map(|path| Saver::new(path, &tool)).transpose()?;
    let person = Person::new(&name, context.output.quiet);
    let mut client = McpClient::open(context, "mcpd call", &name, Some(Box::new(person)))?;
    let object = match object {
        Some(object) => object,
        None => {
            // A tool that is not listed may still be there: then the words speak for themselves.
            let tools = client.tools()?;
            let schema = tools.into_iter().find(|one| one.name == tool);
            let schema = schema.map_or(Value::Null, |one| one.input_schema);
            parse_arguments(&words, &schema, read_file)?
        }
    };
    let params = format!(
        r#"{{"name":{},"arguments":{object},"_meta":{{"progressToken":{}}}}}"#,
        json!(tool),
        json!(PROGRESS_TOKEN)
    );
    let result = client.request("tools/call", &params)?;
    let rendered = render_result(&result);
    let is_error = rendered.is_error;
    if context.json {
        if let Some(mut saver) = saver {
            rendered
                .parts
                .iter()
                .try_for_each(|part| saver.keep(part).map(drop))?;
        }
        context.output.print(&format!("{}\n", result.get()))?;
    } else {
        let text = text(rendered, saver)?;
        context.output.print_foreign(&text)?;
    }
    Ok(if is_error {
        Verdict::Degraded
    } else {
        Verdict::Done
    })
}

fn text(rendered: Rendered, mut saver: Option<Saver>) -> Result<String, CliError> {
    let mut text = String::new();
    for part in rendered.parts {
        let kept = match &mut saver {
            Some(saver) => saver.keep(&part)?,
            None => None,
        };
        let line = match part {
            Part::Text(text) => text,
            Part::Bytes {
                label,
                mime_type,
                bytes,
            } => {
                let mime_type = mime_type.map_or_else(String::new, |text| format!(" {text}"));
                let place = kept.map_or_else(
                    || "--save keeps it".to_owned(),
                    |path| format!("kept in {}", path.display()),
                );
                format!("[{label}{mime_type}, {} bytes: {place}]", bytes.len())
            }
        };
        text.push_str(&line);
        if !line.ends_with('\n') {
            text.push('\n');
        }
    }
    Ok(text)
}

fn read_stdin() -> Result<String, CliError> {
    let mut text = String::new();
    let read = std::io::stdin()
        .lock()
        .take(ARGUMENTS_LIMIT_BYTES)
        .read_to_string(&mut text);
    match read {
        Ok(_) => Ok(text),
        Err(error) => {
            Err(CliError::usage("cannot read the arguments from standard input").because(error))
        }
    }
}

fn read_file(path: &str) -> Result<String, CliError> {
    std::fs::read_to_string(path).map_err(|error| {
        CliError::usage(format!("cannot read {path:?}"))
            .because(error)
            .hint(format!(
                "for a text that begins with @ write KEY:='\"@{path}\"'"
            ))
    })
}
