//! The `muser` command.
#![forbid(unsafe_code)]

mod args;
mod command;
mod exit;
mod interrupt;
mod progress;
mod terminal;
mod wiring;

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use args::{Cli, Command};

fn main() -> ExitCode {
    let cli = Cli::from_command_line();
    match run(cli) {
        Ok(code) => code,
        Err(error) => {
            terminal::warn(format_args!("{}", exit::message(&error)));
            exit::code_of(&error)
        }
    }
}

fn run(cli: Cli) -> Result<ExitCode> {
    interrupt::catch().context("handling Ctrl-C")?;
    muser_memory::report_bus_errors(exit::BAD_MODEL)?;
    match cli.command {
        Command::Run(args) => command::run::run(&args),
        Command::Serve(args) => command::serve::run(&args),
        Command::Inspect(args) => command::inspect::run(&args),
        Command::Plan(args) => command::plan::run(&args),
        Command::Tokenize(args) => command::tokenize::run(args),
        Command::Score(args) => command::score::run(&args),
        Command::Perplexity(args) => command::perplexity::run(&args),
        Command::Bench(args) => command::bench::run(&args),
        Command::Doctor(args) => command::doctor::run(&args),
        Command::Split(args) => command::split::run(&args),
        Command::Taps(args) => command::taps::run(&args),
    }
}
