//! Handles the last-applied annotation of client-side `kubectl apply` in applies of the manager `kubectl`: fields with
//! the value in the annotation are taken over without conflict, and the annotation is updated.

use serde_json::{Map, Value};

use super::schema_cursor::SchemaCursor;
use super::set::{FieldSet, Path};
use super::{api_version, applied_fields, check, compare};

/// Field manager with this special case.
pub(super) const MANAGER: &str = "kubectl";

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Limit of the total size of an object's annotations, in bytes.
const ANNOTATIONS_BYTES: usize = 256 * 1024;

/// Removes the conflicts of fields whose value equals the annotation.
pub(super) fn without_taken_over<K>(
    cursor: SchemaCursor<'_>,
    live: &Value,
    version: &str,
    conflicts: Vec<(K, Path)>,
) -> Vec<(K, Path)> {
    let Some(taken_over) = unchanged(cursor, live, version) else { return conflicts };
    conflicts.into_iter().filter(|(_, path)| !taken_over.contains(path)).collect()
}

/// Returns the applied fields that still have the applied value.
fn unchanged(cursor: SchemaCursor<'_>, live: &Value, version: &str) -> Option<FieldSet> {
    let text = annotation(live)?;
    let last: Value = serde_json::from_str(text).ok()?;
    if api_version(&last) != version {
        return None;
    }
    check::check(cursor, &last, false).ok()?;
    check::check(cursor, live, false).ok()?;
    let difference = compare::between(cursor, &last, live);
    let set = applied_fields::of(cursor, &last).1;
    Some(set.difference(&difference.modified).difference(&difference.added).difference(&difference.removed))
}

/// Updates the annotation to the applied configuration, if the object has one.
pub(super) fn refresh(object: &mut Value, applied: &Value) {
    if annotation(object).is_none() {
        return;
    }
    let mut applied = applied.clone();
    if let Some(annotations) = annotations(&mut applied) {
        annotations.remove(ANNOTATION);
    }
    let Some(annotations) = annotations(object) else { return };
    annotations.insert(ANNOTATION.to_owned(), Value::String(encoded(&applied)));
    let bytes = |(name, value): (&String, &Value)| name.len() + value.as_str().map_or(0, str::len);
    if annotations.iter().map(bytes).sum::<usize>() > ANNOTATIONS_BYTES {
        annotations.remove(ANNOTATION);
    }
}

/// Encodes JSON as Go's encoder does: with a final newline, and with HTML characters escaped.
fn encoded(value: &Value) -> String {
    let text = value.to_string();
    let escaped = text.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026");
    escaped.replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029") + "\n"
}

fn annotation(object: &Value) -> Option<&str> {
    let text = object.get("metadata")?.get("annotations")?.get(ANNOTATION)?.as_str()?;
    Some(text).filter(|text| !text.is_empty())
}

fn annotations(object: &mut Value) -> Option<&mut Map<String, Value>> {
    object.get_mut("metadata")?.get_mut("annotations")?.as_object_mut()
}
