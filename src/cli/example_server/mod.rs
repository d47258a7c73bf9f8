//! `mcpd example-server`: a small MCP server in the program itself.
//!
//! A fresh checkout does real work with it, and tests have a server that is always there. It knows
//! nothing of the daemon: it speaks MCP on its standard input and output like any other, and ends
//! when its input does.

mod arithmetic;
mod modern;
mod reply;
mod server;

use std::collections::HashMap;
use std::convert::Infallible;
use std::io::{self, BufRead, Read, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::time::Duration;

use self::arithmetic::{DEFAULT_PRECISION, parse_precision};
use self::reply::too_many;
use self::server::{Act, Server, SlowCall};
use super::error::{CliError, Verdict};
use super::output::complain;

/// The longest line that is read; a calculator has no use for more.
const LINE_LIMIT_BYTES: u64 = 1 << 20;
/// Slow calls at once, each of which is a thread.
const SLOW_LIMIT: usize = 32;
/// The stack of such a thread.
const STACK_BYTES: usize = 128 << 10;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
CALC_PRECISION in the environment sets the decimals of results (0 to 15, 10 by default).

Example:
  mcpd example-server --debug
  mcpd call calculator add a=2 b=3    # with servers.d/calculator.toml")]
pub(crate) struct Arguments {
    /// Say on standard error what is asked
    #[arg(long)]
    debug: bool,
}

pub(crate) fn cmd_example_server(arguments: Arguments) -> Result<Verdict, CliError> {
    let debug = arguments.debug;
    let mut server = Server::new(precision());
    let mut slow = SlowCalls::default();
    let mut input = io::stdin().lock();
    if debug {
        complain("calculator: ready\n");
    }
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = (&mut input)
            .take(LINE_LIMIT_BYTES)
            .read_until(b'\n', &mut line)
            .map_err(|error| CliError::internal("cannot read the input").because(error))?;
        if read == 0 {
            break;
        }
        let text = String::from_utf8_lossy(&line);
        let text = text.trim();
        if text.is_empty() {
            continue;
        }
        if debug {
            complain(&format!("calculator: < {text}\n"));
        }
        for act in server.handle(text) {
            match act {
                Act::Send(message) => send(&message, debug)?,
                Act::Begin(call) => slow.begin(call, debug)?,
                Act::Cancel(id) => slow.cancel(&id),
            }
        }
    }
    if debug {
        complain("calculator: the input has ended\n");
    }
    Ok(Verdict::Done)
}

/// `CALC_PRECISION`, if it can be used.
fn precision() -> usize {
    let Some(value) = std::env::var_os("CALC_PRECISION") else {
        return DEFAULT_PRECISION;
    };
    let value = value.to_string_lossy();
    parse_precision(&value).unwrap_or_else(|| {
        complain(&format!(
            "calculator: CALC_PRECISION is {value:?}, which is no number from 0 to 15; \
             using {DEFAULT_PRECISION}\n"
        ));
        DEFAULT_PRECISION
    })
}

/// Writes one message in one piece, so that threads do not mix theirs.
fn send(message: &str, debug: bool) -> Result<(), CliError> {
    if debug {
        complain(&format!("calculator: > {message}\n"));
    }
    let mut out = io::stdout().lock();
    out.write_all(format!("{message}\n").as_bytes())?;
    Ok(out.flush()?)
}

/// The slow calls that are open, by id; dropping a sender cancels its call.
#[derive(Debug, Default)]
struct SlowCalls {
    open: HashMap<String, Open>,
}

/// One that is open.
#[derive(Debug)]
struct Open {
    /// Nothing is ever sent: that it is gone is the news.
    _cancel: Sender<Infallible>,
    /// Lives as long as its thread.
    thread: Weak<()>,
}

impl SlowCalls {
    fn begin(&mut self, call: SlowCall, debug: bool) -> Result<(), CliError> {
        self.open.retain(|_, open| open.thread.strong_count() > 0);
        if self.open.len() >= SLOW_LIMIT {
            return send(&too_many(&call.reply), debug);
        }
        let (cancel, cancelled) = channel();
        let alive = Arc::new(());
        let open = Open {
            _cancel: cancel,
            thread: Arc::downgrade(&alive),
        };
        self.open.insert(call.reply.id().to_owned(), open);
        std::thread::Builder::new()
            .stack_size(STACK_BYTES)
            .spawn(move || {
                take_time(&call, &cancelled, debug);
                drop(alive);
            })
            .map(drop)
            .map_err(|error| CliError::internal("cannot start a thread").because(error))
    }

    fn cancel(&mut self, id: &str) {
        self.open.remove(id);
    }
}

/// One slow call, to its end or until it is cancelled.
fn take_time(call: &SlowCall, cancelled: &Receiver<Infallible>, debug: bool) {
    let step_time = Duration::from_secs_f64(call.seconds / call.steps as f64);
    for step in 1..=call.steps {
        if cancelled.recv_timeout(step_time) == Err(RecvTimeoutError::Disconnected) {
            return;
        }
        if let Some(progress) = call.progress(step)
            && send(&progress, debug).is_err()
        {
            return;
        }
    }
    // Nobody reads any more: the main thread finds out the same way.
    drop(send(&call.result(), debug));
}
