//! What upstream's published descriptions do not say and its Go types and defaulting functions do.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context as _, Result};
use serde::Deserialize;
use serde_json::Value;

use super::{Upstream, go};

/// What the Go program prints.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Facts {
    /// By the name of the type, by the name of the field.
    pub(super) types: BTreeMap<String, BTreeMap<String, Field>>,
    /// Fields that upstream defaults in some objects only, or to what depends on others.
    conditional: Vec<Conditional>,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct Field {
    /// As the tables spell it: `nonzero`, `always`, `null`; empty where a field is written as it was given.
    #[serde(default)]
    pub(super) presence: String,
    #[serde(default)]
    pub(super) default: Option<Value>,
    #[serde(default, rename = "enum")]
    pub(super) enumeration: Vec<Value>,
    /// Defaults of fields inside that their type has here and not elsewhere.
    #[serde(default)]
    pub(super) with: BTreeMap<String, Value>,
}

#[derive(Debug, Deserialize)]
struct Conditional {
    field: String,
    found: String,
}

/// Runs the Go program.
pub(super) fn ask(upstream: &Upstream) -> Result<Facts> {
    let said = go(&upstream.module, &["run", "-mod=readonly", "-trimpath", "./describe"])?;
    serde_json::from_str(&said).context("reading what the Go program printed")
}

/// The defaults that no table can hold, for those who write them by hand.
pub(super) fn render(facts: &Facts) -> String {
    let mut text = String::from(
        "# Fields that upstream defaults by conditions: TYPE.FIELD: what was seen. Nothing reads this file.\n",
    );
    for Conditional { field, found } in &facts.conditional {
        let _ = writeln!(text, "{field}: {found}");
    }
    text
}
