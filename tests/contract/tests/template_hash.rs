//! Hashes and revisions of random pod templates, and operations on random quantities, computed here and with upstream's
//! functions.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use windlass_gotext::quantity::GoQuantity;
use windlass_gotext::{Numbers, revision_data, revision_hash, template_hash};

const COUNT: usize = 2000;
/// Seeds of the random templates.
const SEEDS: [u64; 2] = [1, 36];

#[test]
fn hashes_and_revisions_of_random_templates_equal_upstream() -> Result<()> {
    for seed in SEEDS {
        let printed = upstream_cases("cases", COUNT, seed)?;
        let mut compared = 0;
        let mut lines = printed.lines();
        while let Some(line) = lines.next() {
            let [without, zero, one, template] = parts(line)?;
            let template: Value = serde_json::from_str(template)?;
            for (count, expected) in [(None, without), (Some(0), zero), (Some(1), one)] {
                let hash = template_hash(&template, count)?;
                ensure!(hash == expected, "seed {seed}, {count:?}: {hash} instead of {expected}: {template}");
            }
            let mut line = || lines.next().context("the Go program printed an incomplete case");
            let [without, one, stateful_set] = parts(line()?)?;
            for (numbers, expected) in [(Numbers::Float, stateful_set), (Numbers::Integer, line()?)] {
                let data = revision_data(&template, numbers)?;
                ensure!(data == expected, "seed {seed}, {numbers:?}:\n{data}\ninstead of\n{expected}");
            }
            for (count, expected) in [(None, without), (Some(1), one)] {
                let hash = revision_hash(stateful_set, count);
                ensure!(
                    hash == expected,
                    "seed {seed}, {count:?}: {hash} instead of {expected}: {stateful_set}"
                );
            }
            compared += 1;
        }
        ensure!(compared == COUNT, "the Go program printed {compared} templates");
    }
    Ok(())
}

#[test]
fn operations_on_random_quantities_equal_upstream() -> Result<()> {
    for seed in SEEDS {
        let printed = upstream_cases("quantities", 10 * COUNT, seed)?;
        ensure!(printed.lines().count() == 10 * COUNT, "the Go program printed too few lines");
        for line in printed.lines() {
            let case: Value = serde_json::from_str(line)?;
            let text = |field: &str| case[field].as_str().unwrap_or_default();
            let one = match GoQuantity::parse(text("one")) {
                Ok(one) => one,
                Err(error) => {
                    ensure!(text("error") == error.to_string(), "{error} for {case}");
                    continue;
                }
            };
            ensure!(case["error"].is_null(), "{one:?} for {case}");
            let other = GoQuantity::parse(text("other"))?;
            let (mut sum, mut difference) = (one.clone(), one.clone());
            sum.add(&other);
            difference.subtract(&other);
            let texts = [one.canonical(), sum.canonical(), difference.canonical()];
            let expected = ["canonical", "sum", "difference"].map(text);
            ensure!(texts == expected, "{texts:?} for {case}");
            let order = i64::from(one.compare(&other) as i8);
            ensure!(case["order"] == order, "{order} for {case}");
            let milli = one.thousandths().and_then(|it| i64::try_from(it).ok()).unwrap_or_default();
            // Upstream returns other numbers for amounts that are too large, and rounds some negative ones differently.
            ensure!(milli <= 0 || case["milli"] == milli, "{milli} for {case}");
        }
    }
    Ok(())
}

/// Splits a line of the Go program. The last part can contain spaces.
fn parts<const COUNT: usize>(line: &str) -> Result<[&str; COUNT]> {
    let parts: Vec<_> = line.splitn(COUNT, ' ').collect();
    parts.try_into().ok().with_context(|| format!("the Go program printed an incomplete line: {line}"))
}

/// Returns random cases of a seed with the results that upstream computes.
fn upstream_cases(kind: &str, count: usize, seed: u64) -> Result<String> {
    let mut command = Command::new("go");
    let arguments = ["run", "-mod=readonly", "-trimpath", "./template-hash", kind];
    command.args(arguments).arg(count.to_string()).arg(seed.to_string());
    command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../control-plane"));
    // The settings of the harness, to reuse its build cache.
    command.env("CGO_ENABLED", "0").env("GOWORK", "off").env_remove("GOFLAGS");
    let output = command.output().context("cannot start go")?;
    ensure!(output.status.success(), "go failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8(output.stdout)?)
}
