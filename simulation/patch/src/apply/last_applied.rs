//! The annotation by which `kubectl apply` without server-side apply remembers what it applied, where it meets applies of
//! the manager `kubectl`: fields that are as it says are taken over without conflict, and it is kept up to date.

use serde_json::{Map, Value};

use super::place::SchemaCursor;
use super::set::{FieldSet, Path};
use super::{api_version, applied_fields, check, compare};

/// The manager for which this holds.
pub(super) const MANAGER: &str = "kubectl";

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// How much all annotations of an object may hold, in bytes.
const ANNOTATIONS_BYTES: usize = 256 * 1024;

/// The conflicts that are left when fields are taken over that are as the annotation says.
pub(super) fn without_taken_over<K>(
    place: SchemaCursor<'_>,
    live: &Value,
    version: &str,
    conflicts: Vec<(K, Path)>,
) -> Vec<(K, Path)> {
    let Some(taken_over) = unchanged(place, live, version) else { return conflicts };
    conflicts.into_iter().filter(|(_, path)| !taken_over.contains(path)).collect()
}

/// The fields that were applied and still are what was applied.
fn unchanged(place: SchemaCursor<'_>, live: &Value, version: &str) -> Option<FieldSet> {
    let text = annotation(live)?;
    let last: Value = serde_json::from_str(text).ok()?;
    if api_version(&last) != version {
        return None;
    }
    check::check(place, &last, false).ok()?;
    check::check(place, live, false).ok()?;
    let difference = compare::between(place, &last, live);
    let set = applied_fields::of(place, &last).1;
    Some(set.difference(&difference.modified).difference(&difference.added).difference(&difference.removed))
}

/// Makes the annotation say what was applied, if the object has one.
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

/// As Go's encoder writes it: on its own line, and safe to put into a web page.
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
