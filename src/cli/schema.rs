//! `mcpd schema`: what may stand in a server's file, and what `status --json` prints.
//!
//! The first is made from the keys that the configuration knows, the second from the types that
//! are printed: neither is written by hand.

use super::Context;
use super::error::{CliError, Verdict};
use crate::config::schema::server_schema;
use crate::control::StatusSnapshot;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
An editor that knows TOML schemas (taplo, for one) finds the first by a line at the top of a file:
  #:schema ../server.schema.json

Example:
  mcpd schema config >~/.config/mcpd/server.schema.json")]
pub(crate) struct Arguments {
    /// Which one
    #[arg(value_enum, value_name = "WHAT")]
    what: What,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum What {
    /// A server's file
    Config,
    /// What `mcpd status --json` prints
    Status,
}

pub(crate) fn cmd_schema(context: &Context, arguments: Arguments) -> Result<Verdict, CliError> {
    let text = match arguments.what {
        What::Config => server_schema(),
        What::Status => status_schema(),
    };
    context.output.print(&text)?;
    Ok(Verdict::Done)
}

fn status_schema() -> String {
    let schema = schemars::schema_for!(StatusSnapshot);
    format!("{:#}\n", schema.as_value())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_keeps_to_the_schema() {
        let schema: serde_json::Value = serde_json::from_str(&status_schema()).unwrap();
        let validator = jsonschema::validator_for(&schema).unwrap();
        let printed = serde_json::to_value(StatusSnapshot::default()).unwrap();
        validator.validate(&printed).unwrap();
        let mut wrong = printed;
        wrong["schema"] = "one".into();
        assert!(!validator.is_valid(&wrong));
    }
}
