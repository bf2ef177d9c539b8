//! Decides which children, such as pods, an owner keeps, adopts or releases.
//!
//! The controller reference of a child names the owner that manages it. The selector of an owner selects the children
//! that it should manage. If the two differ, the reference is corrected: the owner adopts a selected orphan, and
//! releases an owned child that it no longer selects. Children of another owner are never changed, regardless of their
//! labels, so two owners with overlapping selectors do not conflict. The same holds for objects of another namespace,
//! regardless of their references. An owner that is being deleted changes no references, because the garbage collector
//! processes them.
//!
//! All code here is pure; [`super::claims`] sends the patches.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde_json::{Value, json};
use windlass_object::{HasMetadata as _, LabelSelector, MetadataRef};

use super::pod_view::PodView;
use super::pods;

/// Action for one child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// Owned and selected.
    Keep,
    /// Orphaned and selected: adopt.
    Adopt,
    /// Owned and no longer selected: release.
    Release,
    /// Owned by another owner, or not selected.
    Ignore,
}

/// Returns the action for one child. `wanted` is whether the owner selects it.
pub(crate) fn claim(owner: &ObjectMeta, wanted: bool, child: MetadataRef<'_>) -> Claim {
    if !can_own(owner, child) {
        return Claim::Ignore;
    }
    let leaving = owner.deletion_timestamp.is_some();
    match child.controller() {
        Some(controller) if controller.uid != pods::uid(owner) => Claim::Ignore,
        // Keeping a pod takes no action, so an owner that is being deleted can keep it.
        Some(_) if wanted => Claim::Keep,
        Some(_) if leaving => Claim::Ignore,
        Some(_) => Claim::Release,
        // A terminating orphan is not adopted.
        None if wanted && !leaving && child.deletion_timestamp().is_none() => Claim::Adopt,
        None => Claim::Ignore,
    }
}

/// Returns whether the owner can own the child. An owner in a namespace cannot own objects of another namespace,
/// regardless of their references: references contain no namespace, and any client can write any UID.
fn can_own(owner: &ObjectMeta, child: MetadataRef<'_>) -> bool {
    let namespace = pods::namespace(owner);
    namespace.is_empty() || namespace == pods::namespace(child)
}

/// Returns the `candidates` that the owner manages and that match its selector.
pub(crate) fn claimed<'a>(
    owner: &ObjectMeta,
    selector: &LabelSelector,
    candidates: impl IntoIterator<Item = &'a Arc<PodView>>,
) -> Vec<Arc<PodView>> {
    let ours = |pod: &&Arc<PodView>| {
        claim(owner, selector.matches(&pod.metadata.labels), pod.metadata()) == Claim::Keep
    };
    candidates.into_iter().filter(ours).map(Arc::clone).collect()
}

/// Returns the strategic merge patch that makes `owner` the controller of a child. The UID makes the patch fail
/// for another object with the same name.
pub(crate) fn adopt_patch(child: MetadataRef<'_>, owner: &OwnerReference) -> Value {
    json!({ "metadata": { "uid": pods::uid(child), "ownerReferences": [owner] } })
}

/// Returns the strategic merge patch that removes `owner` from the references of a child, with the same precondition.
pub(crate) fn release_patch(child: MetadataRef<'_>, owner: &ObjectMeta) -> Value {
    let removal = json!({ "$patch": "delete", "uid": pods::uid(owner) });
    json!({ "metadata": { "uid": pods::uid(child), "ownerReferences": [removal] } })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::fixtures::{
        at, bare_pod, being_deleted, controlled_by, in_namespace, labels, with_labels,
    };
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    fn owner() -> ObjectMeta {
        ObjectMeta {
            namespace: Some("default".into()),
            name: Some("web".into()),
            uid: Some("123".into()),
            ..ObjectMeta::default()
        }
    }

    fn leaving() -> ObjectMeta {
        ObjectMeta { deletion_timestamp: Some(Time(at(0))), ..owner() }
    }

    fn production(name: &str) -> PodView {
        with_labels(bare_pod(name), &[("type", "production")])
    }

    fn testing(name: &str) -> PodView {
        with_labels(bare_pod(name), &[("type", "testing")])
    }

    fn ours(pod: PodView) -> PodView {
        controlled_by(pod, "web", "123")
    }

    fn check(owner: &ObjectMeta, pod: PodView, expected: Claim) {
        let selector = LabelSelector::from_map(&labels(&[("type", "production")]));
        let wanted = selector.matches(&pod.metadata.labels);
        assert_eq!(claim(owner, wanted, pod.metadata()), expected, "{pod:?}");
    }

    #[test]
    fn orphan_is_adopted_only_if_selected() {
        check(&owner(), production("pod"), Claim::Adopt);
        check(&owner(), testing("pod"), Claim::Ignore);
        check(&owner(), being_deleted(production("pod")), Claim::Ignore);
    }

    #[test]
    fn pods_of_another_owner_are_never_touched() {
        check(&owner(), controlled_by(production("pod"), "web", "AAAAA"), Claim::Ignore);
        check(&owner(), controlled_by(testing("pod"), "web", "AAAAA"), Claim::Ignore);
    }

    #[test]
    fn owned_pods_are_kept_or_released_by_selector() {
        check(&owner(), ours(production("pod")), Claim::Keep);
        check(&owner(), ours(being_deleted(production("pod"))), Claim::Keep);
        check(&owner(), ours(testing("pod")), Claim::Release);
    }

    #[test]
    fn deleted_owner_keeps_its_pods_and_changes_nothing() {
        check(&leaving(), production("pod"), Claim::Ignore);
        check(&leaving(), ours(production("pod")), Claim::Keep);
        check(&leaving(), ours(testing("pod")), Claim::Ignore);
    }

    #[test]
    fn owner_matches_its_namespace_unless_cluster_scoped() {
        let elsewhere = in_namespace(production("pod"), "elsewhere");
        check(&owner(), elsewhere.clone(), Claim::Ignore);
        check(&owner(), ours(elsewhere.clone()), Claim::Ignore);
        check(&ObjectMeta { namespace: None, ..owner() }, elsewhere, Claim::Adopt);
    }

    #[test]
    fn patches_contain_the_uid_of_their_pod() {
        let mut pod = bare_pod("pod");
        pod.metadata.header.uid = Some("ss2\"hello".into());
        let reference = OwnerReference {
            api_version: "apps/v1".into(),
            kind: "ReplicaSet".into(),
            name: "web".into(),
            uid: "123".into(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        };
        assert_eq!(
            adopt_patch(pod.metadata(), &reference),
            serde_json::from_str::<Value>(
                r#"{"metadata":{"uid":"ss2\"hello","ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet",
                "name":"web","uid":"123","controller":true,"blockOwnerDeletion":true}]}}"#
            )
            .expect("valid JSON")
        );
        assert_eq!(
            release_patch(pod.metadata(), &owner()),
            serde_json::from_str::<Value>(
                r#"{"metadata":{"uid":"ss2\"hello","ownerReferences":[{"$patch":"delete","uid":"123"}]}}"#
            )
            .expect("valid JSON")
        );
    }
}
