//! Facts from upstream's Go types and defaulting functions that the published documents do not contain.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context as _, Result};
use serde::Deserialize;
use serde_json::Value;

use super::{Upstream, go};

/// Output of the Go program.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Facts {
    /// By the name of the type, then by the name of the field.
    pub(super) types: BTreeMap<String, BTreeMap<String, Field>>,
    /// Fields with a default in some objects only, or with a default that depends on other fields.
    conditional: Vec<Conditional>,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct Field {
    /// Presence in the notation of the tables: `nonzero`, `always`, `null`; empty if the field is written as given.
    #[serde(default)]
    pub(super) presence: String,
    #[serde(default)]
    pub(super) default: Option<Value>,
    #[serde(default, rename = "enum")]
    pub(super) enumeration: Vec<Value>,
    /// Defaults of inner fields that apply only at this field.
    #[serde(default)]
    pub(super) with: BTreeMap<String, Value>,
    /// Place in the order of declaration.
    #[serde(default)]
    pub(super) position: usize,
    /// Go type, if it has a name without being a struct.
    #[serde(default)]
    pub(super) go: String,
    /// Embedded structs that declare the field.
    #[serde(default, rename = "in")]
    pub(super) embedded: String,
}

#[derive(Debug, Deserialize)]
struct Conditional {
    field: String,
    found: String,
}

/// Runs the Go program.
pub(super) fn ask(upstream: &Upstream) -> Result<Facts> {
    let printed = go(&upstream.module, &["run", "-mod=readonly", "-trimpath", "./describe"])?;
    serde_json::from_str(&printed).context("cannot read the output of the Go program")
}

/// Renders the conditional defaults, which must be implemented manually.
pub(super) fn render(facts: &Facts) -> String {
    let mut text = String::from(
        "# Fields that upstream defaults by conditions: TYPE.FIELD: what was seen. Nothing reads this file.\n",
    );
    for Conditional { field, found } in &facts.conditional {
        let _ = writeln!(text, "{field}: {found}");
    }
    text
}
