//! `mcpd call NAME TOOL key=value…`: one call of one tool, as any host would make it.

mod arguments;
mod render;

use serde_json::{Value, json};

use self::arguments::{parse_arguments, parse_object};
use self::render::render_result;
use super::Context;
use super::error::{CliError, Verdict};
use super::mcp_client::McpClient;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Values get the types of the tool's input schema. Exit code 1 if the call fails or the tool reports \
an error. `mcpd --json call …` prints the whole result as JSON.

Example:
  mcpd call calculator add a=2 b=3
  mcpd call calculator add --json '{\"a\": 2, \"b\": 3}'")]
pub(crate) struct Arguments {
    /// Server that has the tool
    #[arg(value_name = "NAME")]
    name: String,
    /// Tool to call
    #[arg(value_name = "TOOL")]
    tool: String,
    /// Arguments of the tool
    #[arg(value_name = "KEY=VALUE")]
    words: Vec<String>,
    /// Arguments of the tool as one JSON object
    #[arg(long = "json", value_name = "ARGS", conflicts_with = "words")]
    object: Option<String>,
}

pub(crate) fn cmd_call(context: &Context, arguments: Arguments) -> Result<Verdict, CliError> {
    let Arguments {
        name,
        tool,
        words,
        object,
    } = arguments;
    // Wrong usage is found before a daemon is started for it.
    let object = object.as_deref().map(parse_object).transpose()?;
    parse_arguments(&words, &Value::Null)?;
    let mut client = McpClient::open(context, "mcpd call", &name)?;
    let object = match object {
        Some(object) => object,
        None if words.is_empty() => "{}".to_owned(),
        None => {
            // A tool that is not listed may still be there: then the words speak for themselves.
            let tools = client.tools()?;
            let schema = tools.into_iter().find(|one| one.name == tool);
            parse_arguments(&words, &schema.map_or(Value::Null, |one| one.input_schema))?
        }
    };
    let params = format!("{{\"name\":{},\"arguments\":{object}}}", json!(tool));
    let result = client.request("tools/call", &params)?;
    let rendered = render_result(&result);
    if context.json {
        context.output.print(&format!("{}\n", result.get()))?;
    } else {
        context.output.print_foreign(&rendered.text)?;
    }
    Ok(if rendered.is_error {
        Verdict::Degraded
    } else {
        Verdict::Done
    })
}
