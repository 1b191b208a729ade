//! Cargo as the commands use it.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
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
    binary(cargo().args(["build", "--release", "--package", "muser-cli"]), "muser")
}

/// Builds a binary of a package outside the workspace for this machine's processor, with its own target folder, and
/// returns its path.
///
/// # Errors
/// It does not build.
pub fn foreign_binary(package: &Path, target: &Path, name: &str) -> Result<PathBuf> {
    let mut command = cargo();
    command.args(["build", "--release", "--locked", "--manifest-path"]).arg(package.join("Cargo.toml"));
    command.arg("--target-dir").arg(target).env("RUSTFLAGS", "-C target-cpu=native");
    binary(&mut command, name)
}

/// The compiler that builds the workspace, with its version and commit.
///
/// # Errors
/// It does not run.
pub fn compiler() -> Result<String> {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).current_dir(workspace_root()).arg("--version").output();
    let output = output.context("cannot start rustc")?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Runs a build, and returns where the binary of this name lies.
fn binary(build: &mut Command, name: &str) -> Result<PathBuf> {
    let output = build.args(["--message-format", "json-render-diagnostics"]).stderr(Stdio::inherit()).output();
    let output = output.context("cannot start cargo")?;
    if !output.status.success() {
        bail!("the release build of `{name}` failed");
    }
    // One JSON object a line; the one about the binary says where it lies, whatever the target folder is.
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|message| message["target"]["name"] == name)
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .with_context(|| format!("cargo did not say where the binary `{name}` is"))
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
