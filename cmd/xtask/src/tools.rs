//! Programs of other projects that a task runs. Each is compiled once, at a pinned version, into the user's cache.

use std::path::PathBuf;

use anyhow::Result;

use crate::workspace::{cache, cargo, must};

/// A program in a package registry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tool {
    /// Name of the package and of its program.
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
    /// Enabled features, separated by commas; the default features are disabled.
    pub(crate) features: &'static str,
    /// Time of the compilation, as the user reads it.
    pub(crate) duration: &'static str,
}

impl Tool {
    /// Returns the path of the program. Compiles it first if this version is missing.
    ///
    /// # Errors
    /// If the package cannot be fetched or compiled.
    pub(crate) fn path(self) -> Result<PathBuf> {
        let Self { name, version, features, duration } = self;
        let folder = cache()?.join("tools").join(format!("{name}-{version}"));
        let path = folder.join("bin").join(name);
        if path.is_file() {
            return Ok(path);
        }
        println!("compiling {name} {version}, once for this user ({duration})");
        // Unoptimized and with few features: it runs for seconds.
        let mut install = cargo();
        install.args(["install", name, "--version", version, "--locked", "--debug", "--no-default-features"]);
        install.args(["--features", features, "--config", "profile.dev.debug=false", "--root"]).arg(&folder);
        // A separate folder, so that the build output of the workspace is not replaced.
        install.env_remove("CARGO_TARGET_DIR");
        must(&mut install)?;
        Ok(path)
    }
}
