//! The statically linked binary of the image.
//!
//! The binary is built for a musl target, which Rust links statically. The toolchain contains the linker and the C
//! library. ring and the allocator compile C code. The code of ring calls no function of a C library, and that of the
//! allocator calls functions of POSIX and Linux, whose types need no more space in musl than in the headers of glibc.
//! The only function with another type is `strerror_r`, and a setting of the allocator selects the type of musl. An
//! ordinary C compiler therefore suffices if `musl-gcc` is not installed. The build of the allocator needs `make`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use object::elf;
use object::read::elf::{ElfFile64, ProgramHeader as _};

use crate::programs::executable;
use crate::workspace::{cargo, must, output, root};

/// The package of the binary.
const PACKAGE: &str = "windlass-controller-manager";

/// The name of the binary.
const BINARY: &str = "windlass";

/// Builds the binary and returns its path. Installs the target if it is missing.
///
/// # Errors
/// If the target cannot be installed, or the build fails.
pub(crate) fn build(directory: &Path) -> Result<PathBuf> {
    let target = target();
    ensure_installed(&target)?;
    let mut build = cargo();
    build.args(["build", "--locked", "--profile=image", "--package", PACKAGE, "--bin", BINARY]);
    build.args(["--target", &target, "--target-dir"]).arg(directory);
    build.arg("--message-format=json-render-diagnostics");
    set_environment(&mut build, &target, directory)?;
    executable(&mut build).with_context(|| format!("cannot build for {target}"))
}

/// Checks that a binary needs no files of its system: it is linked statically, and it starts without environment
/// variables.
///
/// # Errors
/// If the binary is linked dynamically, does not start, or prints another version.
pub(super) fn check(program: &[u8], file: &Path) -> Result<()> {
    ensure!(is_static(program)?, "{} is not linked statically", file.display());
    let version = output(Command::new(file).arg("--version").env_clear())?;
    let expected = format!("{BINARY} {}\n", env!("CARGO_PKG_VERSION"));
    ensure!(version == expected, "{} --version prints {version:?} instead of {expected:?}", file.display());
    Ok(())
}

/// Returns whether a binary names no dynamic linker.
pub(super) fn is_static(program: &[u8]) -> Result<bool> {
    let file = ElfFile64::<object::Endianness>::parse(program).context("the binary is not an ELF file")?;
    let dynamic_linker = |header: &&elf::ProgramHeader64<_>| header.p_type(file.endian()) == elf::PT_INTERP;
    Ok(!file.elf_program_headers().iter().any(|header| dynamic_linker(&header)))
}

/// Installs the target. Rustup does not install the targets of `rust-toolchain.toml` if automatic installation is off.
fn ensure_installed(target: &str) -> Result<()> {
    let mut query = Command::new("rustc");
    query.current_dir(root()).args(["--print", "target-libdir", "--target", target]);
    if Path::new(output(&mut query)?.trim()).is_dir() {
        return Ok(());
    }
    let mut install = Command::new("rustup");
    must(install.current_dir(root()).args(["target", "add", target]))
        .with_context(|| format!("the target {target} is missing; install it"))
}

/// Returns the musl target of this machine.
pub(super) fn target() -> String {
    format!("{}-unknown-linux-musl", std::env::consts::ARCH)
}

fn set_environment(build: &mut Command, target: &str, directory: &Path) -> Result<()> {
    let home = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let cargo_home = home("CARGO_HOME").or_else(|| home("HOME").map(|home| home.join(".cargo")));
    let cargo_home = cargo_home.context("neither CARGO_HOME nor HOME is set")?;
    let folders = [(root(), "/src"), (cargo_home, "/cargo"), (directory.to_owned(), "/target")];
    let remapped = folders.map(|(path, to)| format!("--remap-path-prefix={}={to}", path.display()));
    // Both variables take precedence over the flags of a target.
    build.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
    let variable = target.replace('-', "_");
    // Symbols are a quarter of the file; the message of a panic contains file and line without them.
    let rust_flags = format!("-Cstrip=symbols {}", remapped.join(" "));
    build.env(format!("CARGO_TARGET_{}_RUSTFLAGS", variable.to_uppercase()), rust_flags);
    let is_chosen = std::env::var_os(format!("CC_{variable}")).is_some();
    if !is_chosen && windlass_harness::installed("musl-gcc").is_none() {
        build.envs(ordinary_compiler(target));
    }
    Ok(())
}

/// Returns the environment in which a compiler with the headers of glibc builds for a musl target.
pub(super) fn ordinary_compiler(target: &str) -> [(String, &'static str); 3] {
    let variable = target.replace('-', "_");
    [
        (format!("CC_{variable}"), "cc"),
        // Some distributions define the macro by default. Its functions exist only in glibc. Without the second flag,
        // newer compilers reject the next setting, which contradicts the headers.
        (format!("CFLAGS_{variable}"), "-U_FORTIFY_SOURCE -Wno-int-conversion"),
        // `strerror_r` returns a pointer in glibc and an `int` in musl, which the allocator must not use as a pointer.
        ("je_cv_strerror_r_returns_char_with_gnu_source".to_owned(), "no"),
    ]
}
