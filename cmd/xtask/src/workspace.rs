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

/// Runs a command to its end, its output going where ours goes.
///
/// # Errors
/// If it cannot be started or does not succeed.
pub(crate) fn must(command: &mut Command) -> Result<()> {
    let name =
        Path::new(command.get_program()).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let status = command.status().with_context(|| format!("cannot start {name}"))?;
    if !status.success() {
        bail!("{name} failed ({status})");
    }
    Ok(())
}
