//! Programs of other projects that a task runs. Each is compiled once, at a pinned version, into the user's cache.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::workspace::{cache, cargo, must};

/// A program of another project.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tool {
    /// Name of the program.
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
    pub(crate) source: Source,
    /// Time of the compilation, as the user reads it.
    pub(crate) duration: &'static str,
}

/// The package of a program.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source {
    /// A package of crates.io with the name of the program. The features are separated by commas; the default features
    /// are disabled.
    Crate { features: &'static str },
    /// A Go package. Go compares its modules with the public checksum database.
    Go { package: &'static str },
}

impl Tool {
    /// Returns the path of the program. Compiles it first if this version is missing.
    ///
    /// # Errors
    /// If the package cannot be fetched or compiled.
    pub(crate) fn path(self) -> Result<PathBuf> {
        let Self { name, version, source, duration } = self;
        let folder = cache()?.join("tools").join(format!("{name}-{version}"));
        let path = folder.join("bin").join(name);
        if path.is_file() {
            return Ok(path);
        }
        println!("compiling {name} {version}, once for this user ({duration})");
        match source {
            Source::Crate { features } => self.install_crate(features, &folder)?,
            Source::Go { package } => self.install_go(package, &path)?,
        }
        Ok(path)
    }

    fn install_crate(self, features: &str, folder: &Path) -> Result<()> {
        // Unoptimized and with few features: it runs for seconds.
        let mut install = cargo();
        install.args(["install", self.name, "--version", self.version, "--locked", "--debug"]);
        install.args(["--no-default-features", "--features", features]);
        install.args(["--config", "profile.dev.debug=false", "--root"]).arg(folder);
        // A separate folder, so that the build output of the workspace is not replaced.
        install.env_remove("CARGO_TARGET_DIR");
        must(&mut install)
    }

    /// Builds into a temporary folder and moves the program, so that a program in the cache is complete.
    fn install_go(self, package: &str, path: &Path) -> Result<()> {
        let folder = path.parent().context("a program is in a folder")?;
        std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let temporary = tempfile::tempdir_in(folder)?;
        let mut install = Command::new("go");
        install.arg("install").arg(format!("{package}@v{}", self.version)).env("GOBIN", temporary.path());
        must(&mut install).context("this program needs Go (https://go.dev/dl)")?;
        std::fs::rename(temporary.path().join(self.name), path)
            .with_context(|| format!("{package} has no program {}", self.name))
    }
}
