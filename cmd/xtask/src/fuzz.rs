//! `cargo xtask fuzz`: fuzzes the parsers of external input with libFuzzer.
//!
//! Guarantees: checks the same properties as `cargo test` with `tests/fuzz/corpus`. A failing input is stored in a file
//! and printed as a line for the corpus. The checkout is not changed.
//!
//! Needs only a nightly toolchain (`rustup toolchain install nightly`) and a C++ compiler.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{env, fs};

use anyhow::{Context as _, Result, bail};

use crate::programs::executable;
use crate::workspace::{cache, must, nightly, root};

/// Compiler flags for the coverage instrumentation of libFuzzer: reached code and compared values.
const COVERAGE: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";

/// Targets and duration.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Names of the properties, which are the files in `tests/fuzz/corpus`; all if empty.
    targets: Vec<String>,

    /// Seconds per property.
    #[arg(long, default_value_t = 600)]
    seconds: u64,
}

/// Builds the fuzzer and runs the properties one after the other.
///
/// # Errors
/// If the fuzzer cannot be built, or a property fails.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let targets = if arguments.targets.is_empty() { all()? } else { arguments.targets.clone() };
    let folder = cache()?.join("fuzz");
    let fuzzer = build(&folder.join("target"))?;
    let mut failed = Vec::new();
    for target in &targets {
        println!("\n=== fuzz: {target}, {:?}", Duration::from_secs(arguments.seconds));
        if let Err(error) = fuzz(&fuzzer, target, &folder.join(target), arguments.seconds) {
            eprintln!("error: {error:#}");
            failed.push(target.as_str());
        }
    }
    match failed.as_slice() {
        [] => Ok(()),
        names => bail!("these properties do not hold: {}", names.join(", ")),
    }
}

/// Returns all properties. Each has a corpus.
fn all() -> Result<Vec<String>> {
    let corpus = root().join("tests/fuzz/corpus");
    let files = fs::read_dir(&corpus).with_context(|| format!("cannot read {}", corpus.display()))?;
    let paths = files.map(|file| file.map(|file| file.path())).collect::<Result<Vec<_>, _>>()?;
    let mut names: Vec<_> =
        paths.iter().filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned())).collect();
    names.sort();
    Ok(names)
}

/// Builds the fuzzer. The host target is named explicitly, so that build scripts are not instrumented.
fn build(target_folder: &Path) -> Result<PathBuf> {
    let mut build = nightly();
    build
        .args(["build", "--release", "--target", "host-tuple", "--message-format=json-render-diagnostics"])
        .current_dir(root().join("tests/fuzz/libfuzzer"))
        .env("CARGO_TARGET_DIR", target_folder)
        .env("RUSTFLAGS", COVERAGE);
    executable(&mut build)
}

fn fuzz(fuzzer: &Path, target: &str, folder: &Path, seconds: u64) -> Result<()> {
    let (corpus, found) = (folder.join("corpus"), folder.join("found"));
    fs::create_dir_all(&corpus).and_then(|()| fs::create_dir_all(&found))?;
    let found = format!("{}{}", found.display(), std::path::MAIN_SEPARATOR);
    let outcome = must(
        Command::new(fuzzer)
            .arg(&corpus)
            .args([format!("-artifact_prefix={found}"), format!("-max_total_time={seconds}")])
            .args(["-max_len=4096", "-timeout=10", "-print_final_stats=1"])
            .env("WINDLASS_FUZZ_TARGET", target)
            .env("WINDLASS_FUZZ_SEEDS", &corpus)
            .env("RUST_BACKTRACE", env::var_os("RUST_BACKTRACE").unwrap_or_else(|| "0".into())),
    );
    outcome.with_context(|| {
        format!(
            "{target}: the input lies in {found}; `cargo run -p windlass-fuzz --bin fold -- {found}` prints the line \
             for tests/fuzz/corpus/{target}.txt"
        )
    })
}
