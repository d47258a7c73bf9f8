//! The command line: arguments in, text and an exit code out.
//!
//! One file a command. This one holds what all share: the common flags, the list of commands, and
//! the way from arguments to an exit code. Commands are blocking; only `daemon` runs a runtime.

mod add;
mod applied;
mod attendant;
mod call;
mod calls;
mod check;
mod client;
mod clock;
mod completions;
mod connect;
mod copies;
mod daemon;
mod doctor;
mod edit;
mod enable;
mod error;
mod escape;
mod example_server;
mod hosts;
mod import;
mod interrupts;
mod json_schema;
mod logs;
mod man;
mod mcp_client;
mod metrics;
mod outcomes;
mod output;
mod places;
mod reload;
mod remove;
mod reset_failed;
mod restart;
mod schema;
mod secrets;
mod server_file;
mod server_name;
mod service;
mod shutdown;
mod start;
mod start_daemon;
mod status;
mod stop;
mod table;
mod tools;
mod trace;
mod whole_file;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::config::dirs::read_environment;
use crate::config::environment::Environment;
use crate::config::paths::PathFlags;

use self::client::Client;
pub use self::daemon::{Containment, DaemonRequest, Serve, ServeError};
use self::error::{CliError, Verdict};
use self::output::{ColorChoice, Output, complain};
use self::places::Places;
use self::start_daemon::{Wish, connect_or_start};

/// Owns your local MCP servers: one process a server, shared by every host.
#[derive(Debug, Parser)]
#[command(name = "mcpd", version = env!("MCPD_VERSION"), propagate_version = true)]
#[command(after_help = "\
Exit codes: 0 done, 1 degraded or the call failed, 2 usage, 3 something failed, 4 no daemon, \
78 configuration.

Example:
  mcpd --config . call calculator add a=2 b=3")]
struct Cli {
    #[command(flatten)]
    common: Common,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

/// Flags of every command.
#[derive(Debug, Default, clap::Args)]
struct Common {
    /// Folder of mcpd.toml and servers.d [env: MCPD_CONFIG] [default: ~/.config/mcpd]
    #[arg(long, global = true, value_name = "DIR")]
    config: Option<PathBuf>,
    /// Socket of the daemon [env: MCPD_SOCKET]
    #[arg(long, global = true, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Folder of logs and records [env: MCPD_STATE] [default: ~/.local/state/mcpd]
    #[arg(long, global = true, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Say only what was asked for, or nothing
    #[arg(short, long, global = true)]
    quiet: bool,
    /// When to colour
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value_t)]
    color: ColorChoice,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the daemon in the foreground
    Daemon(daemon::Arguments),
    /// Connect standard input and output to a server
    Connect(connect::Arguments),
    /// Show the servers and what they are doing
    Status(status::Arguments),
    /// Start servers, and the daemon if none runs
    Start(start::Arguments),
    /// Stop servers and keep them stopped
    Stop(stop::Arguments),
    /// Stop and start servers; hosts stay connected
    Restart(restart::Arguments),
    /// Forget the failures of servers, so that they may start again
    ResetFailed(reset_failed::Arguments),
    /// End the daemon and all servers
    Shutdown(shutdown::Arguments),
    /// Read the configuration again and apply what changed
    Reload(reload::Arguments),
    /// Check the configuration without applying it
    Check(check::Arguments),
    /// Add a server
    Add(add::Arguments),
    /// Remove servers, and keep copies of their files
    Remove(remove::Arguments),
    /// Change the file of a server in your editor
    Edit(edit::Arguments),
    /// Let servers run
    Enable(enable::EnableArguments),
    /// Keep servers from running, whoever asks for them
    Disable(enable::DisableArguments),
    /// Take over the servers of other hosts' configuration files
    Import(import::Arguments),
    /// Show the hosts, and make them use the servers through mcpd
    Hosts(hosts::Arguments),
    /// Show what a server wrote to standard error
    Logs(logs::Arguments),
    /// Show the last calls of tools
    Calls(calls::Arguments),
    /// Show the messages between hosts and a server as they pass
    Trace(trace::Arguments),
    /// Show figures of all servers as OpenMetrics text
    Metrics(metrics::Arguments),
    /// Look for what keeps servers from working here
    Doctor(doctor::Arguments),
    /// List the tools of a server, or of all
    Tools(tools::Arguments),
    /// Call a tool of a server
    Call(call::Arguments),
    /// Run the daemon as a service of systemd
    Service(service::Arguments),
    /// Print the JSON schema of a server's file, or of the status
    Schema(schema::Arguments),
    /// Print what makes a shell complete commands and servers
    Completions(completions::Arguments),
    /// Print a manual page
    Man(man::Arguments),
    /// Be a small MCP server with four operations, for trials
    ExampleServer(example_server::Arguments),
}

/// What every command works with.
#[derive(Debug)]
struct Context {
    flags: PathFlags,
    environment: Environment,
    output: Output,
    json: bool,
    serve: Serve,
}

impl Context {
    fn new(common: Common, json: bool, serve: Serve) -> Self {
        Self {
            flags: PathFlags {
                config: common.config,
                socket: common.socket,
                state: common.state,
            },
            environment: read_environment(),
            output: Output::new(common.color, common.quiet),
            json,
            serve,
        }
    }

    /// Where everything lies.
    fn places(&self) -> Result<Places, CliError> {
        Places::find(&self.flags, &self.environment)
    }

    /// The running daemon.
    fn client(&self) -> Result<Client, CliError> {
        Ok(Client::connect(&self.places()?)?)
    }

    /// The daemon, started if none runs.
    fn client_or_start(&self, by: &str, wish: Wish) -> Result<Client, CliError> {
        connect_or_start(self, &self.places()?, by, wish)
    }
}

/// Runs the command that `arguments` spell, the program's name first, and gives its exit code.
/// `serve` is what `mcpd daemon` runs.
pub fn run(arguments: impl IntoIterator<Item = OsString>, serve: Serve) -> u8 {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    if completions::answer(&arguments) {
        return 0;
    }
    let parsed = match plain_connect(&arguments) {
        Some(cli) => Ok(cli),
        None => Cli::try_parse_from(arguments),
    };
    let cli = match parsed {
        Ok(cli) => cli,
        Err(error) => {
            // Printing fails only if nobody is there to read it.
            drop(error.print());
            return u8::try_from(error.exit_code()).unwrap_or(2);
        }
    };
    let quiet = cli.common.quiet;
    let context = Context::new(cli.common, cli.json, serve);
    match dispatch(context, cli.command) {
        Ok(verdict) => verdict.code(),
        Err(error) => {
            let error = if quiet { error.without_hints() } else { error };
            complain(&error.render());
            error.kind.code()
        }
    }
}

/// What hosts start, `mcpd connect NAME`, is understood without a parser: to build that takes longer
/// than all else that the shim does until it sleeps.
fn plain_connect(arguments: &[OsString]) -> Option<Cli> {
    let [_, command, name] = arguments else {
        return None;
    };
    let name = name.to_str().filter(|name| !name.starts_with('-'))?;
    (command == "connect").then(|| Cli {
        common: Common::default(),
        json: false,
        command: Command::Connect(connect::Arguments::for_server(name)),
    })
}

fn dispatch(context: Context, command: Command) -> Result<Verdict, CliError> {
    match command {
        Command::Daemon(arguments) => daemon::cmd_daemon(&context, arguments),
        Command::Connect(arguments) => connect::cmd_connect(&context, arguments),
        Command::Status(arguments) => status::cmd_status(&context, arguments),
        Command::Start(arguments) => start::cmd_start(&context, arguments),
        Command::Stop(arguments) => stop::cmd_stop(&context, arguments),
        Command::Restart(arguments) => restart::cmd_restart(&context, arguments),
        Command::ResetFailed(arguments) => reset_failed::cmd_reset_failed(&context, arguments),
        Command::Shutdown(arguments) => shutdown::cmd_shutdown(&context, arguments),
        Command::Reload(arguments) => reload::cmd_reload(&context, arguments),
        Command::Check(arguments) => check::cmd_check(&context, arguments),
        Command::Add(arguments) => add::cmd_add(&context, arguments),
        Command::Remove(arguments) => remove::cmd_remove(&context, arguments),
        Command::Edit(arguments) => edit::cmd_edit(&context, arguments),
        Command::Enable(arguments) => enable::cmd_enable(&context, arguments),
        Command::Disable(arguments) => enable::cmd_disable(&context, arguments),
        Command::Import(arguments) => import::cmd_import(&context, arguments),
        Command::Hosts(arguments) => hosts::cmd_hosts(&context, arguments),
        Command::Logs(arguments) => logs::cmd_logs(&context, arguments),
        Command::Calls(arguments) => calls::cmd_calls(&context, arguments),
        Command::Trace(arguments) => trace::cmd_trace(&context, arguments),
        Command::Metrics(arguments) => metrics::cmd_metrics(&context, arguments),
        Command::Doctor(arguments) => doctor::cmd_doctor(&context, arguments),
        Command::Tools(arguments) => tools::cmd_tools(&context, arguments),
        Command::Call(arguments) => call::cmd_call(&context, arguments),
        Command::Service(arguments) => service::cmd_service(&context, arguments),
        Command::Schema(arguments) => schema::cmd_schema(&context, arguments),
        Command::Completions(arguments) => completions::cmd_completions(&context, arguments),
        Command::Man(arguments) => man::cmd_man(&context, arguments),
        Command::ExampleServer(arguments) => example_server::cmd_example_server(arguments),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(line.split(' '))
    }

    #[test]
    fn the_short_way_of_hosts_is_understood_as_the_parser_would() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        let plain = |line| plain_connect(&words(line)).map(|cli| format!("{cli:?}"));
        let line = "mcpd connect github";
        assert_eq!(plain(line), Some(format!("{:?}", parse(line).unwrap())));
        for other in [
            "mcpd connect --help",
            "mcpd connect",
            "mcpd status github",
            "mcpd connect a --directory /",
        ] {
            assert_eq!(plain(other), None, "{other}");
        }
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_has_help_with_an_example() {
        for command in Cli::command().get_subcommands() {
            let help = command.get_after_help().map(ToString::to_string);
            let help = help.unwrap_or_default();
            let name = command.get_name();
            assert!(help.contains(&format!("mcpd {name}")), "{name}: {help}");
        }
    }

    #[test]
    fn common_flags_stand_before_or_after_the_command() {
        for line in ["mcpd --config x status -q", "mcpd status -q --config x"] {
            let cli = parse(line).unwrap();
            assert_eq!(cli.common.config, Some(PathBuf::from("x")));
            assert!(cli.common.quiet);
        }
    }

    #[test]
    fn wrong_usage_has_exit_code_2_and_help_0() {
        for (line, code) in [
            ("mcpd", 2),
            ("mcpd fly", 2),
            ("mcpd stop", 2),
            ("mcpd status --help", 0),
            ("mcpd --version", 0),
        ] {
            assert_eq!(parse(line).unwrap_err().exit_code(), code, "{line}");
        }
    }

    #[test]
    fn json_of_call_takes_arguments_and_json_before_it_does_not() {
        assert!(parse("mcpd call calculator add --json {}").is_ok());
        assert!(parse("mcpd --json call calculator add a=1").unwrap().json);
        assert!(parse("mcpd call calculator add a=1 --json {}").is_err());
    }
}
