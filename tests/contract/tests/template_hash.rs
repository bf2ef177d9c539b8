//! Hashes of random pod templates, computed here and with upstream's function.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use windlass_gotext::template_hash;

const COUNT: usize = 2000;
/// Seeds of the random templates.
const SEEDS: [u64; 2] = [1, 36];

#[test]
fn hashes_of_random_templates_equal_those_of_upstream() -> Result<()> {
    for seed in SEEDS {
        let printed = upstream_cases(seed)?;
        let mut compared = 0;
        for line in printed.lines() {
            let mut parts = line.splitn(4, ' ');
            let mut part = || parts.next().context("the Go program printed an incomplete line");
            let expected = [part()?, part()?, part()?];
            let template: Value = serde_json::from_str(part()?)?;
            for (count, expected) in [None, Some(0), Some(1)].into_iter().zip(expected) {
                let hash = template_hash(&template, count)?;
                ensure!(hash == expected, "seed {seed}, {count:?}: {hash} instead of {expected}: {template}");
            }
            compared += 1;
        }
        ensure!(compared == COUNT, "the Go program printed {compared} templates");
    }
    Ok(())
}

/// Returns the random templates of a seed with the hashes that upstream computes.
fn upstream_cases(seed: u64) -> Result<String> {
    let mut command = Command::new("go");
    let arguments = ["run", "-mod=readonly", "-trimpath", "./template-hash", "cases"];
    command.args(arguments).arg(COUNT.to_string()).arg(seed.to_string());
    command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../control-plane"));
    // The settings of the harness, to reuse its build cache.
    command.env("CGO_ENABLED", "0").env("GOWORK", "off").env_remove("GOFLAGS");
    let output = command.output().context("cannot start go")?;
    ensure!(output.status.success(), "go failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8(output.stdout)?)
}
