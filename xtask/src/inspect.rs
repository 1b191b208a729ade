//! Compares `muser inspect` with what the format's own Python package reads from the same files.

use anyhow::{Result, ensure};

use crate::build;
use crate::cache::Cache;
use crate::catalog::Model;
use crate::fetch;
use crate::process;
use crate::progress::Progress;
use crate::python::Python;
use crate::workspace_root;

/// Builds the release binary, compares what it says of these models, and prints a line for each.
///
/// # Errors
/// It does not build, the package can't be had, or a key or a tensor differs: the first few are in the error.
pub fn check(cache: &Cache, models: &[&Model]) -> Result<()> {
    let paths = fetch::models(cache, models)?;
    let python = Python::find()?;
    let list = workspace_root().join("tests/tools/requirements.txt");
    let packages = fetch::python_packages(cache, &python, &list, python.tag())?;
    let muser = build::release_binary()?;
    for (model, path) in models.iter().zip(paths) {
        let progress = Progress::spinner(&format!("inspecting {}", model.name));
        let mut command = python.interpreter();
        command.arg(workspace_root().join("tests/tools/check_inspect.py")).arg(&muser).arg(path);
        let output = process::output(command.env("PYTHONPATH", &packages), || progress.at(0))?;
        drop(progress);
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).trim().to_owned();
        ensure!(output.status.success(), "`muser inspect` of {} disagrees with the gguf package: {said}", model.name);
        println!("ok    inspection of {}: {said}", model.name);
    }
    Ok(())
}
