//! Paths of the workspace, and commands that run cargo in it.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

/// Returns the root of the workspace, which is the checkout of this crate.
pub(crate) fn root() -> PathBuf {
    let own = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    // cmd/xtask is two levels below the root.
    Path::new(&own).ancestors().nth(2).map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}

/// Returns the cargo that started this process, so that one toolchain does all work.
pub(crate) fn cargo() -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(program);
    command.current_dir(root());
    remove_package_variables(&mut command);
    command
}

/// Removes the variables that `cargo run` sets about this package. Some build scripts, such as ring's, watch these
/// variables, and would recompile half of all dependencies each time.
pub(crate) fn remove_package_variables(command: &mut Command) {
    std::env::vars_os().filter(|(name, _)| describes_a_package(name)).for_each(|(name, _)| {
        command.env_remove(name);
    });
}

/// Returns the cargo of the nightly toolchain, for fuzzing and Miri.
pub(crate) fn nightly() -> Command {
    let mut command = Command::new("rustup");
    command.args(["run", "nightly", "cargo"]).current_dir(root());
    // Variables of the pinned cargo would select the wrong toolchain.
    let led_astray =
        |name: &OsStr| describes_a_package(name) || name == "CARGO" || name == "RUSTUP_TOOLCHAIN";
    std::env::vars_os().filter(|(name, _)| led_astray(name)).for_each(|(name, _)| {
        command.env_remove(name);
    });
    command
}

fn describes_a_package(variable: &OsStr) -> bool {
    let name = variable.as_encoded_bytes();
    name.starts_with(b"CARGO_PKG_") || name.starts_with(b"CARGO_MANIFEST_")
}

/// Returns the user's cache folder for data that outlives a checkout.
///
/// # Errors
/// If neither `XDG_CACHE_HOME` nor `HOME` is set.
pub(crate) fn cache() -> Result<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let base = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
    Ok(base.context("neither XDG_CACHE_HOME nor HOME is set")?.join("windlass"))
}

/// Returns the target directory of the workspace.
///
/// # Errors
/// If cargo fails.
pub(crate) fn target_directory() -> Result<PathBuf> {
    let metadata = output(cargo().args(["metadata", "--no-deps", "--format-version=1", "--locked"]))?;
    let metadata: serde_json::Value =
        serde_json::from_str(&metadata).context("cargo metadata printed no JSON")?;
    let directory = metadata["target_directory"].as_str();
    Ok(PathBuf::from(directory.context("cargo metadata printed no target directory")?))
}

/// Deletes a directory if it exists.
///
/// # Errors
/// If it cannot be deleted.
pub(crate) fn remove_directory(path: &Path) -> Result<()> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot delete {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// Returns the output of a command.
///
/// # Errors
/// If it cannot be started, does not succeed, or prints text that is not UTF-8.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let name = name_of(command);
    let output = command.output().with_context(|| format!("cannot start {name}"))?;
    if !output.status.success() {
        bail!("{name} failed ({}): {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    String::from_utf8(output.stdout).with_context(|| format!("{name} printed text that is not UTF-8"))
}

/// Reads a file.
///
/// # Errors
/// If it cannot be read.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Runs a command and waits for its success. Its output is inherited.
///
/// # Errors
/// If it cannot be started or does not succeed.
pub(crate) fn must(command: &mut Command) -> Result<()> {
    let name = name_of(command);
    let status = command.status().with_context(|| format!("cannot start {name}"))?;
    if !status.success() {
        bail!("{name} failed ({status})");
    }
    Ok(())
}

fn name_of(command: &Command) -> String {
    Path::new(command.get_program()).file_name().unwrap_or_default().to_string_lossy().into_owned()
}
