//! Which pods an owner keeps, takes in or lets go.
//!
//! The controller reference of a pod decides who manages it; the owner's selector decides who should. Where the two
//! differ the reference is mended: an orphan that the selector wants is adopted, a pod of ours that it no longer
//! wants is released. Pods of another owner are never touched, whatever their labels, so two owners with
//! overlapping selectors cannot fight; neither are pods of another namespace, whatever their references say. An owner that is being deleted changes no reference: the garbage collector
//! works on them.
//!
//! Everything here is pure; [`super::pod_control`] sends the patches.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde_json::{Value, json};
use windlass_object::LabelSelector;
use windlass_object::owner::controller_of;

use super::pods;

/// What becomes of one pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// Ours, and wanted.
    Keep,
    /// Nobody's, and wanted: to be adopted.
    Adopt,
    /// Ours, and no longer wanted: to be released.
    Release,
    /// None of our business.
    Ignore,
}

/// Decides about one pod.
pub(crate) fn claim(owner: &ObjectMeta, selector: &LabelSelector, pod: &Pod) -> Claim {
    if !may_own(owner, pod) {
        return Claim::Ignore;
    }
    let wanted = selector.matches_optional(pod.metadata.labels.as_ref());
    let leaving = owner.deletion_timestamp.is_some();
    match controller_of(&pod.metadata) {
        Some(controller) if controller.uid != pods::uid(owner) => Claim::Ignore,
        // Keeping what is ours takes no action, so a leaving owner may do it.
        Some(_) if wanted => Claim::Keep,
        Some(_) if leaving => Claim::Ignore,
        Some(_) => Claim::Release,
        // An orphan on its way out is not worth adopting.
        None if wanted && !leaving && !pods::is_being_deleted(pod) => Claim::Adopt,
        None => Claim::Ignore,
    }
}

/// Whether the owner can own the pod at all. An owner in a namespace owns nothing in another, whatever a pod there
/// says: references carry no namespace, and anybody may write any UID into one.
fn may_own(owner: &ObjectMeta, pod: &Pod) -> bool {
    let namespace = pods::namespace(owner);
    namespace.is_empty() || namespace == pods::namespace(&pod.metadata)
}

/// Those of `candidates` that are managed by the owner already and match its selector.
pub(crate) fn claimed<'a>(
    owner: &ObjectMeta,
    selector: &LabelSelector,
    candidates: impl IntoIterator<Item = &'a Arc<Pod>>,
) -> Vec<Arc<Pod>> {
    let ours = |pod: &&Arc<Pod>| claim(owner, selector, pod) == Claim::Keep;
    candidates.into_iter().filter(ours).map(Arc::clone).collect()
}

/// The strategic merge patch that puts `owner` in charge of a pod. The UID makes it fail on a namesake of the pod.
pub(crate) fn adopt_patch(pod: &ObjectMeta, owner: &OwnerReference) -> Value {
    json!({ "metadata": { "uid": pods::uid(pod), "ownerReferences": [owner] } })
}

/// The strategic merge patch that takes `owner` out of a pod's references, with the same safeguard.
pub(crate) fn release_patch(pod: &ObjectMeta, owner: &ObjectMeta) -> Value {
    let removal = json!({ "$patch": "delete", "uid": pods::uid(owner) });
    json!({ "metadata": { "uid": pods::uid(pod), "ownerReferences": [removal] } })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::fixtures::{at, bare_pod, being_deleted, controlled_by, labels, with_labels};
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

    fn production(name: &str) -> Pod {
        with_labels(bare_pod(name), &[("type", "production")])
    }

    fn testing(name: &str) -> Pod {
        with_labels(bare_pod(name), &[("type", "testing")])
    }

    fn ours(pod: Pod) -> Pod {
        controlled_by(pod, "web", "123")
    }

    fn check(owner: &ObjectMeta, pod: Pod, expected: Claim) {
        let selector = LabelSelector::from_map(&labels(&[("type", "production")]));
        assert_eq!(claim(owner, &selector, &pod), expected, "{pod:?}");
    }

    #[test]
    fn orphans_are_adopted_exactly_if_the_selector_wants_them() {
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
    fn our_pods_are_kept_or_released_by_selector() {
        check(&owner(), ours(production("pod")), Claim::Keep);
        check(&owner(), ours(being_deleted(production("pod"))), Claim::Keep);
        check(&owner(), ours(testing("pod")), Claim::Release);
    }

    #[test]
    fn leaving_owner_keeps_what_it_has_and_changes_nothing() {
        check(&leaving(), production("pod"), Claim::Ignore);
        check(&leaving(), ours(production("pod")), Claim::Keep);
        check(&leaving(), ours(testing("pod")), Claim::Ignore);
    }

    #[test]
    fn namespaces_are_kept_apart_unless_the_owner_has_none() {
        let mut elsewhere = production("pod");
        elsewhere.metadata.namespace = Some("elsewhere".into());
        check(&owner(), elsewhere.clone(), Claim::Ignore);
        check(&owner(), ours(elsewhere.clone()), Claim::Ignore);
        check(&ObjectMeta { namespace: None, ..owner() }, elsewhere, Claim::Adopt);
    }

    #[test]
    fn patches_name_the_uid_of_the_pod_they_are_meant_for() {
        let pod = ObjectMeta { uid: Some("ss2\"hello".into()), ..ObjectMeta::default() };
        let reference = OwnerReference {
            api_version: "apps/v1".into(),
            kind: "ReplicaSet".into(),
            name: "web".into(),
            uid: "123".into(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        };
        assert_eq!(
            adopt_patch(&pod, &reference),
            serde_json::from_str::<Value>(
                r#"{"metadata":{"uid":"ss2\"hello","ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet",
                "name":"web","uid":"123","controller":true,"blockOwnerDeletion":true}]}}"#
            )
            .expect("valid JSON")
        );
        assert_eq!(
            release_patch(&pod, &owner()),
            serde_json::from_str::<Value>(
                r#"{"metadata":{"uid":"ss2\"hello","ownerReferences":[{"$patch":"delete","uid":"123"}]}}"#
            )
            .expect("valid JSON")
        );
    }
}
