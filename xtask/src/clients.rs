//! Drives the release binary's server with clients that others wrote.

use anyhow::{Context, Result};

use crate::build;
use crate::cache::Cache;
use crate::catalog;
use crate::fetch;
use crate::process;
use crate::progress::Progress;
use crate::python::Python;
use crate::workspace_root;

/// Builds the release binary, serves the smallest chat model with it, and has each client ask for what it knows.
///
/// # Errors
/// It does not build, the clients can't be had, or a client does not get what it must.
pub fn check(cache: &Cache) -> Result<()> {
    let models = fetch::models(cache, &catalog::select(&["smollm2".to_owned()])?)?;
    let python = Python::find()?;
    let list = workspace_root().join("tests/tools/requirements-clients.txt");
    let packages = fetch::python_packages(cache, &python, &list, &format!("{}-clients", python.tag()))?;
    let muser = build::release_binary()?;
    let progress = Progress::spinner("serving clients");
    let mut command = python.interpreter();
    command.arg(workspace_root().join("tests/tools/check_clients.py")).arg(&muser).args(models);
    let output = process::run(command.env("PYTHONPATH", &packages), || progress.at(0));
    drop(progress);
    let said = output.context("a client did not get from `muser serve` what it must")?.stdout;
    for line in String::from_utf8_lossy(&said).lines() {
        println!("ok    {line}");
    }
    Ok(())
}
