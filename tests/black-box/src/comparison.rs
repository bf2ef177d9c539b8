//! The comparison of two recordings of a script. An error names the fields that differ.

use std::collections::BTreeSet;
use std::fmt::Debug;

use anyhow::{Result, ensure};
use serde_json::Value;

/// One step of a recording.
#[derive(Debug, PartialEq, Eq)]
pub struct Step<O> {
    /// The operation of the script.
    pub operation: O,
    /// The objects after the controllers have reacted, in their comparable form.
    pub objects: Value,
}

/// Compares the recordings of all scenes.
///
/// # Errors
/// The recordings differ; the error contains the differing fields of the first step that differs.
pub fn compare<O: PartialEq + Debug>(left: &[Vec<Step<O>>], right: &[Vec<Step<O>>]) -> Result<()> {
    ensure!(left.len() == right.len(), "recordings of {} and {} scenes", left.len(), right.len());
    for (scene, (left, right)) in left.iter().zip(right).enumerate() {
        ensure!(left.len() == right.len(), "scene {scene}: recordings of different length");
        for (index, (one, other)) in left.iter().zip(right).enumerate() {
            let earlier: Vec<_> = left[..=index].iter().map(|step| &step.operation).collect();
            let step = format!("scene {scene}, after {earlier:#?}");
            ensure!(one.operation == other.operation, "{step}: the right side did {:?}", other.operation);
            let mut differences = Vec::new();
            collect(String::new(), &one.objects, &other.objects, &mut differences);
            ensure!(differences.is_empty(), "{step}:\n{}", differences.join("\n"));
        }
    }
    Ok(())
}

/// Collects the fields that differ, with their values on both sides.
fn collect(path: String, left: &Value, right: &Value, differences: &mut Vec<String>) {
    match (left, right) {
        (Value::Object(one), Value::Object(other)) => {
            for key in one.keys().chain(other.keys()).collect::<BTreeSet<_>>() {
                collect(format!("{path}/{key}"), &left[key], &right[key], differences);
            }
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            for (index, (left, right)) in one.iter().zip(other).enumerate() {
                collect(format!("{path}/{index}"), left, right, differences);
            }
        }
        _ if left == right => {}
        _ => differences.push(format!("{path}\n  left:  {left}\n  right: {right}")),
    }
}
