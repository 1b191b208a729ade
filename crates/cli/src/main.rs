//! The `muser` command.
#![forbid(unsafe_code)]

mod args;
mod command;
mod exit;
mod terminal;
mod wiring;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(cli) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("muser: {error:#}");
            exit::code_of(&error)
        }
    }
}

fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    terminal::catch_interrupts()?;
    match cli.command {
        Command::Run(args) => command::run::run(args),
        Command::Inspect(args) => command::inspect::run(&args),
        Command::Tokenize(args) => command::tokenize::run(args),
        Command::Score(args) => command::score::run(&args),
        Command::Perplexity(args) => command::perplexity::run(&args),
        Command::Taps(args) => command::taps::run(&args),
    }
}
