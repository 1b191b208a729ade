//! The arguments of `muser serve`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZero;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, ValueEnum};

use super::split::parse_size;
use super::{Ctx, EngineArgs, parse_count, parse_ctx, parse_number};

#[derive(Debug, Args)]
pub struct ServeArgs {
    /// A GGUF file, or any file of a set
    pub model: PathBuf,
    /// Requests that are answered at once
    #[arg(long, value_name = "N", default_value = "4", value_parser = parse_count)]
    pub slots: NonZero<usize>,
    /// Context of each slot in tokens, or `auto` for the largest that fits, up to what the model was trained for
    #[arg(long, value_name = "N|auto", default_value = "auto", value_parser = parse_ctx)]
    pub ctx: Ctx,
    /// Most memory for what ended conversations computed, with a unit from K to T or KiB to GiB; 0 for none
    /// [default: an eighth of the memory that is available]
    #[arg(long, value_name = "SIZE", value_parser = parse_size_or_zero)]
    pub prefix_cache: Option<u64>,
    /// Most requests that wait for a slot; further ones are refused. With 0, those that find no slot free
    #[arg(long, value_name = "N", default_value = "64", value_parser = parse_number)]
    pub max_queue: usize,
    #[command(flatten)]
    pub http: HttpArgs,
    #[command(flatten)]
    pub engine: EngineArgs,
}

/// Where and to whom the server answers.
#[derive(Debug, Args)]
#[command(next_help_heading = "Serving")]
pub struct HttpArgs {
    /// Address to listen at; one that other machines can reach demands --api-key-file
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1", value_parser = parse_host)]
    pub host: IpAddr,
    /// Port to listen at; 0 for any that is free
    #[arg(long, value_name = "PORT", default_value_t = 8080)]
    pub port: u16,
    /// File with keys, one a line, of which requests must carry one; its owner alone may read it (mode 0600)
    #[arg(long, value_name = "FILE")]
    pub api_key_file: Option<PathBuf>,
    /// A further name by which clients call the server in their `Host` header
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub allow_host: Vec<String>,
    /// A further name by which requests may call the model, which otherwise is its file's name
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub alias: Vec<String>,
    /// Longest body of a request, with a unit from K to T or KiB to GiB
    #[arg(long, value_name = "SIZE", default_value = "16MiB", value_parser = parse_size)]
    pub max_body: u64,
    /// Most connections at a time; further ones wait
    #[arg(long, value_name = "N", default_value = "512", value_parser = parse_connections)]
    pub max_connections: usize,
    /// How long the head of a request, or its body, may take to arrive, and a connection stay unused
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = parse_limit)]
    pub read_timeout: Duration,
    /// How long a client may take nothing of a reply before it is given up
    #[arg(long, value_name = "SECONDS", default_value = "300", value_parser = parse_limit)]
    pub write_timeout: Duration,
    /// How long answers may go on after SIGTERM or Ctrl-C; a second signal ends everything at once
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = parse_seconds)]
    pub shutdown_timeout: Duration,
    /// How the log on standard error is written
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
}

impl HttpArgs {
    /// Where to listen.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::new(self.host, self.port)
    }
}

/// How a log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Lines for people
    Text,
    /// One JSON object a line
    Json,
}

/// More connections than this pass what systems let a process open.
const MAX_CONNECTIONS: usize = 65_536;

/// Longer than this is for ever.
const MAX_SECONDS: f64 = 1e6;

fn parse_host(text: &str) -> Result<IpAddr, String> {
    if text == "localhost" {
        return Ok(Ipv4Addr::LOCALHOST.into());
    }
    let address = text.trim_start_matches('[').trim_end_matches(']');
    address.parse().map_err(|_| "expected an IP address, such as 127.0.0.1, ::1 or 0.0.0.0".to_owned())
}

fn parse_size_or_zero(text: &str) -> Result<u64, String> {
    if text == "0" { Ok(0) } else { parse_size(text) }
}

fn parse_connections(text: &str) -> Result<usize, String> {
    let connections = text.parse().ok().filter(|connections| (1..=MAX_CONNECTIONS).contains(connections));
    connections.ok_or_else(|| format!("expected a number from 1 to {MAX_CONNECTIONS}"))
}

/// Takes a time in which something has to happen.
fn parse_limit(text: &str) -> Result<Duration, String> {
    let limit = parse_seconds(text)?;
    if limit.is_zero() { Err(format!("expected seconds above 0, up to {MAX_SECONDS}")) } else { Ok(limit) }
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.0..=MAX_SECONDS).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| format!("expected seconds from 0 to {MAX_SECONDS}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_addresses() {
        assert_eq!(parse_host("localhost"), Ok(Ipv4Addr::LOCALHOST.into()));
        assert!(parse_host("[::1]").is_ok_and(|host| host.is_loopback()));
        for wrong in ["", "example.com", "127.0.0.1:80", "256.0.0.1"] {
            assert!(parse_host(wrong).is_err(), "{wrong:?} was taken for an address");
        }
    }

    #[test]
    fn times_are_seconds_and_may_be_short() {
        assert_eq!(parse_seconds("0.25"), Ok(Duration::from_millis(250)));
        for wrong in ["", "-1", "NaN", "inf", "1e9", "10s"] {
            assert!(parse_seconds(wrong).is_err(), "{wrong:?} was taken for seconds");
        }
    }

    #[test]
    fn limits_on_time_are_not_nothing() {
        assert_eq!(parse_limit("0.001"), Ok(Duration::from_millis(1)));
        for wrong in ["0", "0.0", "1e-12", "-1"] {
            assert!(parse_limit(wrong).is_err(), "{wrong:?} was taken for a limit");
        }
    }

    #[test]
    fn a_prefix_cache_may_be_none() {
        assert_eq!(parse_size_or_zero("0"), Ok(0));
        assert_eq!(parse_size_or_zero("1GiB"), Ok(1 << 30));
    }
}
