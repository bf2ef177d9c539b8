//! Reads, writes and checks the recorded figures in `cmd/xtask/build-size.json`.
//!
//! Figures are recorded per target and profile, because machine code differs between them.
//!
//! Guarantees: a figure that grew by more than [`MAX_GROWTH_PERCENT`] fails the check; a figure that shrank passes.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};

use crate::workspace::root;

/// Growth that passes the check, so that ordinary work does not require a new record.
const MAX_GROWTH_PERCENT: u64 = 10;

/// The path of the record, relative to the root.
const PATH: &str = "cmd/xtask/build-size.json";

/// Figures by target, then by profile.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Record(BTreeMap<String, BTreeMap<String, Figures>>);

/// The figures that a record keeps of a binary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Figures {
    pub(super) linked_crates: u64,
    pub(super) machine_code_bytes: u64,
}

impl Record {
    /// Reads the record; it is empty if the file does not exist.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or decoded.
    pub(super) fn read() -> Result<Self> {
        match fs::read(path()) {
            Ok(text) => serde_json::from_slice(&text).with_context(|| format!("cannot decode {PATH}")),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error).with_context(|| format!("cannot read {PATH}")),
        }
    }

    /// Writes the record.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub(super) fn write(&self) -> Result<()> {
        let text = serde_json::to_string_pretty(self).context("cannot encode the record")?;
        fs::write(path(), text + "\n").with_context(|| format!("cannot write {PATH}"))?;
        println!("figures written to {PATH}");
        Ok(())
    }

    pub(super) fn set(&mut self, target: &str, profile: &str, figures: Figures) {
        self.0.entry(target.to_owned()).or_default().insert(profile.to_owned(), figures);
    }

    /// Compares `measured` with the recorded figures.
    ///
    /// # Errors
    /// Returns an error if nothing is recorded, or if a figure grew beyond the limit.
    pub(super) fn check(&self, target: &str, profile: &str, measured: Figures) -> Result<()> {
        let remedy = format!("`cargo xtask build-times --profile {profile} --record`");
        let Some(recorded) = self.0.get(target).and_then(|profiles| profiles.get(profile)) else {
            bail!(
                "build size check failed: {PATH} has no figures for profile {profile} on {target}; run {remedy}"
            );
        };
        let growth = growth(*recorded, measured);
        if !growth.is_empty() {
            bail!(
                "build size check failed for profile {profile}: {}; the limit is {MAX_GROWTH_PERCENT} %; \
                 review the growth, then run {remedy}",
                growth.join(", ")
            );
        }
        Ok(())
    }
}

/// Returns a description of each figure that grew beyond the limit.
fn growth(recorded: Figures, measured: Figures) -> Vec<String> {
    let figures = [
        ("linked crates", recorded.linked_crates, measured.linked_crates),
        ("bytes of machine code", recorded.machine_code_bytes, measured.machine_code_bytes),
    ];
    let exceeded = figures.into_iter().filter(|(_, from, to)| to * 100 > from * (100 + MAX_GROWTH_PERCENT));
    exceeded.map(|(name, from, to)| format!("{name} grew from {from} to {to}")).collect()
}

fn path() -> PathBuf {
    root().join(PATH)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: &str = "x86_64-unknown-linux-gnu";

    fn figures(linked_crates: u64, machine_code_bytes: u64) -> Figures {
        Figures { linked_crates, machine_code_bytes }
    }

    fn check(measured: Figures) -> Result<()> {
        let mut record = Record::default();
        record.set(TARGET, "dev", figures(100, 1000));
        record.check(TARGET, "dev", measured)
    }

    #[test]
    fn figures_within_limit_pass_check() {
        for (crates, bytes) in [(100, 1000), (110, 1100), (1, 1)] {
            assert!(check(figures(crates, bytes)).is_ok(), "{crates} {bytes}");
        }
    }

    #[test]
    fn error_names_each_figure_that_grew_and_the_remedy() {
        let remedy =
            "the limit is 10 %; review the growth, then run `cargo xtask build-times --profile dev --record`";
        for (measured, cause) in [
            (figures(111, 1100), "linked crates grew from 100 to 111"),
            (figures(110, 1101), "bytes of machine code grew from 1000 to 1101"),
            (
                figures(120, 2000),
                "linked crates grew from 100 to 120, bytes of machine code grew from 1000 to 2000",
            ),
        ] {
            let message = check(measured).unwrap_err().to_string();
            assert_eq!(message, format!("build size check failed for profile dev: {cause}; {remedy}"));
        }
    }

    #[test]
    fn check_fails_when_nothing_is_recorded() {
        let mut record = Record::default();
        record.set(TARGET, "dev", figures(100, 1000));
        for (target, profile) in [(TARGET, "release"), ("aarch64-unknown-linux-gnu", "dev")] {
            let message = record.check(target, profile, figures(1, 1)).unwrap_err().to_string();
            let expected = format!(
                "build size check failed: {PATH} has no figures for profile {profile} on {target}; \
                 run `cargo xtask build-times --profile {profile} --record`"
            );
            assert_eq!(message, expected);
        }
    }

    #[test]
    fn committed_record_can_be_decoded() {
        assert_ne!(Record::read().unwrap(), Record::default());
    }
}
