//! Annotations of Deployments and their ReplicaSets.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::spec::{max_surge, replicas};

/// Number of the revision: the order of rollouts.
pub(super) const REVISION: &str = "deployment.kubernetes.io/revision";
/// Earlier revisions of a ReplicaSet, separated by commas.
pub(super) const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
/// Desired number of pods of the Deployment when its ReplicaSet was scaled.
pub(super) const DESIRED_REPLICAS: &str = "deployment.kubernetes.io/desired-replicas";
/// Maximum number of pods of the Deployment when its ReplicaSet was scaled.
pub(super) const MAX_REPLICAS: &str = "deployment.kubernetes.io/max-replicas";
/// Request of a rollback to a revision.
pub(super) const ROLLBACK_TO: &str = "deprecated.deployment.rollback.to";

/// Annotations that are not copied between Deployments and ReplicaSets.
const NOT_COPIED: [&str; 6] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    REVISION_HISTORY,
    DESIRED_REPLICAS,
    MAX_REPLICAS,
    ROLLBACK_TO,
];

/// Maximum length of the revision history.
const MAX_HISTORY: usize = 2000;

/// Whether a ReplicaSet exists or is about to be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Existence {
    Existing,
    New,
}

/// Returns an annotation.
pub(super) fn annotation<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.annotations.as_ref()?.get(key).map(String::as_str)
}

/// Returns the revision of a ReplicaSet: zero if it has none, `None` if it is malformed.
pub(super) fn revision(set: &ReplicaSet) -> Option<i64> {
    annotation(&set.metadata, REVISION).map_or(Some(0), |text| text.parse().ok())
}

/// Returns the highest revision.
pub(super) fn max_revision<'a>(sets: impl IntoIterator<Item = &'a ReplicaSet>) -> i64 {
    sets.into_iter().filter_map(revision).fold(0, i64::max)
}

/// Returns the second highest revision; zero if there is none.
pub(super) fn last_revision<'a>(sets: impl IntoIterator<Item = &'a ReplicaSet>) -> i64 {
    let (_, second) = sets.into_iter().filter_map(revision).fold((0, 0), |(first, second), revision| {
        if revision >= first { (revision, first) } else { (first, second.max(revision)) }
    });
    second
}

/// Returns an annotation that is a number of pods; `None` if it is missing or malformed.
pub(super) fn number(set: &ReplicaSet, key: &str) -> Option<i32> {
    let text = annotation(&set.metadata, key)?;
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// Sets both annotations about the size of the Deployment. Returns whether they changed.
pub(super) fn set_sizes(set: &mut ReplicaSet, deployment: &Deployment) -> bool {
    let desired = replicas(deployment);
    let max = desired.saturating_add(max_surge(deployment));
    let annotations = set.metadata.annotations.get_or_insert_default();
    // Not short-circuiting: both are set.
    insert(annotations, DESIRED_REPLICAS, desired.to_string())
        | insert(annotations, MAX_REPLICAS, max.to_string())
}

/// Sets the annotations of the new ReplicaSet: those of the Deployment, the revision, the history. Returns whether a
/// write is necessary. A malformed revision is never replaced, and prevents the write.
pub(super) fn set_on_new_set(
    deployment: &Deployment,
    set: &mut ReplicaSet,
    new_revision: i64,
    existence: Existence,
) -> bool {
    let mut changed = copy(deployment, set);
    let annotations = set.metadata.annotations.get_or_insert_default();
    let old = annotations.get(REVISION).cloned();
    let old_number = match old.as_deref() {
        None | Some("") => 0,
        Some(text) => match text.parse::<i64>() {
            Ok(number) => number,
            Err(_) => return false,
        },
    };
    if old_number < new_revision {
        insert(annotations, REVISION, new_revision.to_string());
        changed = true;
        if let Some(old) = old {
            append_history(annotations, &old);
        }
    }
    // Not short-circuiting: a new ReplicaSet has both annotations.
    changed | (existence == Existence::New && set_sizes(set, deployment))
}

/// Appends a revision to the history, and drops the oldest revisions if it is too long.
fn append_history(annotations: &mut BTreeMap<String, String>, old: &str) {
    let history = annotations.get(REVISION_HISTORY).cloned().unwrap_or_default();
    let mut revisions: Vec<&str> = history.split(',').collect();
    if revisions.first().is_none_or(|first| first.is_empty()) {
        insert(annotations, REVISION_HISTORY, old.to_owned());
        return;
    }
    let (mut length, mut start) = (history.len() + old.len() + 1, 0);
    while length > MAX_HISTORY && start < revisions.len() {
        length -= revisions[start].len() + 1;
        start += 1;
    }
    if length <= MAX_HISTORY {
        revisions.drain(..start);
        revisions.push(old);
        insert(annotations, REVISION_HISTORY, revisions.join(","));
    }
}

/// Copies annotations of the Deployment. Annotations that vanish from the Deployment stay.
fn copy(deployment: &Deployment, set: &mut ReplicaSet) -> bool {
    let annotations = set.metadata.annotations.get_or_insert_default();
    let mut changed = false;
    for (key, value) in deployment.metadata.annotations.iter().flatten() {
        if is_copied(key) {
            changed |= insert(annotations, key, value.clone());
        }
    }
    changed
}

/// Sets the annotations of a Deployment that is rolled back to those of a ReplicaSet.
pub(super) fn restore(deployment: &mut Deployment, set: &ReplicaSet) {
    let annotations = deployment.metadata.annotations.get_or_insert_default();
    annotations.retain(|key, _| !is_copied(key));
    let restored = set.metadata.annotations.iter().flatten().filter(|(key, _)| is_copied(key));
    annotations.extend(restored.map(|(key, value)| (key.clone(), value.clone())));
}

/// Sets the revision of a Deployment. Returns whether it changed.
pub(super) fn set_revision(deployment: &mut Deployment, revision: &str) -> bool {
    insert(deployment.metadata.annotations.get_or_insert_default(), REVISION, revision.to_owned())
}

/// Returns the revision of a requested rollback; zero for the previous one.
pub(super) fn rollback_to(deployment: &Deployment) -> Option<i64> {
    annotation(&deployment.metadata, ROLLBACK_TO)?.parse().ok()
}

fn is_copied(key: &str) -> bool {
    !NOT_COPIED.contains(&key)
}

fn insert(annotations: &mut BTreeMap<String, String>, key: &str, value: String) -> bool {
    if annotations.get(key) == Some(&value) {
        return false;
    }
    annotations.insert(key.to_owned(), value);
    true
}
