//! Cargo as the commands use it.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::cache::Cache;
use crate::workspace_root;

/// Builds the `muser` binary in release mode and returns its path.
///
/// # Errors
/// It does not build.
pub fn release_binary() -> Result<PathBuf> {
    let output = cargo()
        .args(["build", "--release", "--package", "muser-cli", "--message-format", "json-render-diagnostics"])
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start cargo")?;
    if !output.status.success() {
        bail!("the release build failed");
    }
    // One JSON object a line; the one about the binary says where it lies, whatever the target folder is.
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|message| message["target"]["name"] == "muser")
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .context("cargo did not say where the binary `muser` is")
}

/// Runs every test of the workspace, which find their models in `cache`.
///
/// # Errors
/// A test failed.
pub fn test(cache: &Cache, extra: &[OsString]) -> Result<()> {
    let status = cargo()
        .args(["test", "--workspace"])
        .args(extra)
        .env("MUSER_CACHE", cache.root())
        .status()
        .context("cannot start cargo")?;
    if !status.success() {
        bail!("cargo test failed ({status})");
    }
    Ok(())
}

fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(workspace_root());
    command
}
