//! Where the workspace lies, and how cargo is called in it.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

/// The root of the workspace. `cargo xtask` runs this crate from the checkout it belongs to.
pub(crate) fn root() -> PathBuf {
    let own = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    // cmd/xtask is two levels below the root.
    Path::new(&own).ancestors().nth(2).map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}

/// The cargo that started this process, so that one toolchain does everything.
pub(crate) fn cargo() -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(program);
    command.current_dir(root());
    // `cargo run` describes this package to us in variables that some build scripts watch, ring's
    // among them: handed on, they would have half of all dependencies compiled again at every turn.
    std::env::vars_os().filter(|(name, _)| describes_a_package(name)).for_each(|(name, _)| {
        command.env_remove(name);
    });
    command
}

/// The cargo of the nightly toolchain, for what the pinned one cannot do: fuzzing and interpreting.
pub(crate) fn nightly() -> Command {
    let mut command = Command::new("rustup");
    command.args(["run", "nightly", "cargo"]).current_dir(root());
    // What the pinned cargo says about itself would lead the other one astray.
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

/// The user's cache folder for what outlives a checkout.
///
/// # Errors
/// If neither `XDG_CACHE_HOME` nor `HOME` is set.
pub(crate) fn cache() -> Result<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let base = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
    Ok(base.context("neither XDG_CACHE_HOME nor HOME is set")?.join("windlass"))
}

/// The target directory that cargo uses for the workspace.
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

/// Returns what a command prints.
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

/// Runs a command to its end, its output going where ours goes.
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
