//! `cargo xtask image`: the container image of the production binary, as an OCI image layout and without a daemon.
//!
//! The image contains the statically linked binary, the certificates of public certificate authorities for kubeconfigs
//! without a CA, and nothing else: no shell, no package manager, no C library. It runs as user 65532 and writes no
//! file. A CycloneDX file next to the layout lists the linked crates.
//!
//! Guarantees:
//! - The digest is determined by the checkout, the toolchain and `SOURCE_DATE_EPOCH`. The binary contains no paths of
//!   the machine, and the image does not contain the time of the build. `--verify` builds a second time and compares.
//! - The binary is linked statically and starts without environment variables. The image does not exceed its limits.
//! - An existing folder is replaced only if it contains an image layout.

mod binary;
mod layer;
mod layout;
mod sbom;
#[cfg(test)]
mod tests;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use jiff::Timestamp;

use crate::workspace::{output, read, remove_directory, root, target_directory};
use layer::Files;
use layout::{Image, Metadata};

/// The limit of the size that a node downloads, in bytes.
const MAX_DOWNLOAD: usize = 12_000_000;

/// The limit of the unpacked size in bytes, with the headers of the archive.
const MAX_SIZE: usize = 20_000_000;

/// The folder of the image below the target directory.
const FOLDER: &str = "image";

/// The folder of the layout below the output folder.
const LAYOUT: &str = "layout";

/// The list of crates below the output folder.
const SBOM: &str = "windlass.cdx.json";

/// Selection of the output.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Folder for the image layout and the list of crates; by default `image` in the target directory.
    #[arg(long, value_name = "PATH")]
    output: Option<PathBuf>,

    /// Writes only the files of the image into this folder, for a container builder.
    #[arg(long, value_name = "PATH", conflicts_with_all = ["output", "verify"])]
    rootfs: Option<PathBuf>,

    /// Builds the binary a second time in an empty target directory, and fails if the digest differs.
    #[arg(long)]
    verify: bool,
}

impl Arguments {
    /// The default output, after a comparison of two builds.
    pub(crate) fn verification() -> Self {
        Self { output: None, rootfs: None, verify: true }
    }
}

/// Builds the binary and writes the image.
///
/// # Errors
/// If the build fails, a file cannot be written, or the image breaks a guarantee of this module.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let target = target_directory()?;
    let program = build(&target)?;
    if let Some(folder) = &arguments.rootfs {
        return Files::new(&program).write(folder);
    }
    let metadata = Metadata::new(created()?);
    let image = Image::new(&Files::new(&program), &metadata)?;
    check_size("unpacked", image.unpacked_size, MAX_SIZE)?;
    check_size("compressed", image.compressed_size(), MAX_DOWNLOAD)?;
    if arguments.verify {
        verify(&image, &metadata, &target.join("image-verify"))?;
    }
    let folder = arguments.output.clone().unwrap_or_else(|| target.join(FOLDER));
    remove_layout(&folder.join(LAYOUT))?;
    image.write(&folder.join(LAYOUT))?;
    let sbom = sbom::read(&image, &program)?;
    write(&folder.join(SBOM), sbom.as_bytes())?;
    println!("image   {}", folder.join(LAYOUT).display());
    println!("crates  {}", folder.join(SBOM).display());
    println!("digest  {}", image.digest());
    println!("size    {} bytes, {} compressed", image.unpacked_size, image.compressed_size());
    Ok(())
}

/// Builds the binary of the image for measurements, and returns its path.
///
/// # Errors
/// If the build fails.
pub(crate) fn build_binary() -> Result<PathBuf> {
    binary::build(&target_directory()?)
}

/// Builds the binary, checks it, and returns its content.
fn build(target: &Path) -> Result<Vec<u8>> {
    let file = binary::build(target)?;
    let program = read(&file)?;
    binary::check(&program, &file)?;
    Ok(program)
}

fn check_size(form: &str, size: usize, limit: usize) -> Result<()> {
    ensure!(size <= limit, "the {form} image has {size} bytes, more than the limit of {limit}");
    Ok(())
}

/// Builds the binary again and compares the images.
fn verify(image: &Image, metadata: &Metadata, directory: &Path) -> Result<()> {
    remove_directory(directory)?;
    let again = build(directory)?;
    let again = Image::new(&Files::new(&again), metadata)?;
    remove_directory(directory)?;
    ensure!(
        again.digest() == image.digest(),
        "the image is not reproducible: the first build results in {}, the second in {}",
        image.digest(),
        again.digest()
    );
    println!("a second build in another directory results in the same digest");
    Ok(())
}

/// Returns the time in the metadata: `SOURCE_DATE_EPOCH`, otherwise the time of the last commit.
fn created() -> Result<Timestamp> {
    let seconds = match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(seconds) => seconds,
        Err(_) => {
            let mut git = std::process::Command::new("git");
            git.current_dir(root()).args(["log", "-1", "--format=%ct"]);
            output(&mut git).context("the time of the last commit is unknown; set SOURCE_DATE_EPOCH")?
        }
    };
    let seconds = seconds.trim();
    let parsed = seconds.parse().ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
    parsed.with_context(|| format!("SOURCE_DATE_EPOCH={seconds}: not a number of seconds since 1970"))
}

/// Deletes an earlier layout. Fails if the folder is not a layout.
fn remove_layout(folder: &Path) -> Result<()> {
    if !folder.exists() || folder.join(layout::MARKER).is_file() {
        return remove_directory(folder);
    }
    bail!("{} exists and is not an image layout; choose another folder", folder.display())
}

/// Writes a file. Creates its folder if it is missing.
fn write(path: &Path, content: &[u8]) -> Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    }
    fs::write(path, content).with_context(|| format!("cannot write {}", path.display()))
}
