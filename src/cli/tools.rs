//! `mcpd tools [NAME [TOOL]]`: what tools there are, one line each, or one in full.

mod page;

use std::fmt::Write as _;

use serde_json::{Value, json};

use self::page::render_page;
use super::Context;
use super::client::QUICK;
use super::error::{CliError, Kind, Verdict};
use super::escape::escape;
use super::mcp_client::{McpClient, Tool};
use super::output::complain;
use super::start_daemon::Wish;
use crate::config::suggest::nearest;
use crate::control::{Request, State, StatusSnapshot, Targets};

/// The most that a line says of a tool.
const DESCRIPTION_LIMIT_CHARS: usize = 100;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Without a name: the tools of all servers that run. With a tool: its arguments, each with type, \
limits, default and description; --json prints it as the server told it.

Example:
  mcpd tools calculator
  mcpd tools calculator add")]
pub(crate) struct Arguments {
    /// Server whose tools to list
    #[arg(value_name = "NAME", add = crate::cli::completions::candidates())]
    name: Option<String>,
    /// Tool to show in full
    #[arg(value_name = "TOOL")]
    tool: Option<String>,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

pub(crate) fn cmd_tools(context: &Context, arguments: Arguments) -> Result<Verdict, CliError> {
    let json = arguments.json || context.json;
    let Some(name) = arguments.name else {
        return list_all(context, json);
    };
    let tools = McpClient::open(context, "mcpd tools", &name, None)?.tools()?;
    if let Some(tool) = arguments.tool {
        return show(context, &name, &tools, &tool, json);
    }
    if json {
        context.output.print_json(&to_json(&tools))?;
    } else {
        context.output.print(&render_tools(None, &tools))?;
    }
    Ok(Verdict::Done)
}

/// One tool in full.
fn show(
    context: &Context,
    server: &str,
    tools: &[Tool],
    wanted: &str,
    json: bool,
) -> Result<Verdict, CliError> {
    let Some(tool) = tools.iter().find(|tool| tool.name == wanted) else {
        let message = format!("{server} has no tool {wanted:?}");
        let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
        let hint = match nearest(wanted, &names) {
            Some(near) => format!("did you mean {:?}?", escape(near)),
            None => format!("`mcpd tools {server}` lists them"),
        };
        return Err(CliError::new(Kind::Call, message).hint(hint));
    };
    if json {
        context.output.print_json(&tool.whole)?;
    } else {
        let page = render_page(server, tool, context.output.style, context.output.width);
        context.output.print(&page)?;
    }
    Ok(Verdict::Done)
}

/// One server that does not answer costs only its own lines.
fn list_all(context: &Context, json: bool) -> Result<Verdict, CliError> {
    let mut client = context.client_or_start("mcpd tools", Wish::Start)?;
    let snapshot: StatusSnapshot = client.ask(&Request::Status(Targets::default()), QUICK)?;
    let mut verdict = Verdict::Done;
    let mut listed_any = false;
    let mut all = serde_json::Map::new();
    for server in &snapshot.servers {
        // Listing starts nothing that was stopped and waits for nothing that has failed.
        if !matches!(server.state, State::Running | State::Starting) {
            continue;
        }
        listed_any = true;
        let listed = McpClient::open(context, "mcpd tools", &server.name, None)
            .and_then(|mut client| client.tools());
        match listed {
            Ok(tools) if json => {
                all.insert(server.name.clone(), to_json(&tools));
            }
            Ok(tools) => context
                .output
                .print(&render_tools(Some(&server.name), &tools))?,
            Err(error) => {
                complain(&error.render());
                verdict = Verdict::Degraded;
            }
        }
    }
    if !listed_any && !context.output.quiet {
        complain("no server runs; `mcpd tools NAME` starts one and lists its tools\n");
    }
    if json {
        context.output.print_json(&all)?;
    }
    Ok(verdict)
}

fn to_json(tools: &[Tool]) -> Value {
    let each = tools.iter().map(|tool| {
        json!({
            "name": tool.name, "title": tool.title, "description": tool.description,
            "inputSchema": tool.input_schema,
        })
    });
    each.collect()
}

fn render_tools(server: Option<&str>, tools: &[Tool]) -> String {
    let names: Vec<String> = tools
        .iter()
        .map(|tool| match server {
            Some(server) => format!("{} {}", escape(server), escape(&tool.name)),
            None => escape(&tool.name),
        })
        .collect();
    let width = names
        .iter()
        .map(|name| name.chars().count())
        .max()
        .unwrap_or(0);
    let mut text = String::new();
    for (name, tool) in names.iter().zip(tools) {
        let line = format!("{name:width$}  {}", summary(tool));
        // Writing to a string cannot fail.
        _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

/// The first line that says what a tool is for.
fn summary(tool: &Tool) -> String {
    let said = tool.description.as_deref().or(tool.title.as_deref());
    let line = said
        .unwrap_or_default()
        .lines()
        .map(str::trim)
        .find(|line| !line.is_empty());
    let line = escape(line.unwrap_or_default());
    if line.chars().count() <= DESCRIPTION_LIMIT_CHARS {
        return line;
    }
    let mut short: String = line.chars().take(DESCRIPTION_LIMIT_CHARS - 1).collect();
    short.push('…');
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str, description: &str) -> Tool {
        Tool {
            name: name.to_owned(),
            title: None,
            description: Some(description.to_owned()),
            input_schema: Value::Null,
            output_schema: Value::Null,
            annotations: Value::Null,
            whole: Value::Null,
        }
    }

    #[test]
    fn a_tool_is_one_line() {
        let tools = [
            tool("add", "\n  Adds two numbers\nand more"),
            tool("multiply", "\u{1b}[31mMultiplies"),
            tool("x", ""),
        ];
        assert_eq!(
            render_tools(None, &tools),
            "add       Adds two numbers\nmultiply  \\e[31mMultiplies\nx\n"
        );
        assert_eq!(
            render_tools(Some("c"), &tools[..1]),
            "c add  Adds two numbers\n"
        );
    }

    #[test]
    fn a_long_description_is_cut() {
        let line = render_tools(None, &[tool("a", &"x".repeat(300))]);
        assert_eq!(line.trim_end().chars().count(), 3 + DESCRIPTION_LIMIT_CHARS);
    }
}
