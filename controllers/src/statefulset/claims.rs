//! The claims of a pod, and their owner references, which decide when the garbage collector deletes them.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource as _;
use windlass_object::owner::controller_reference;
use windlass_object::{MetadataRef, OwnerRef};

use super::spec::{Retention, claim_templates, is_in_range, retention_policy};
use crate::shared::pods;

/// Returns the name of a pod's claim.
pub(super) fn claim_name(set: &StatefulSet, template: &PersistentVolumeClaim, ordinal: i32) -> String {
    format!("{}-{}-{ordinal}", pods::name(&template.metadata), pods::name(&set.metadata))
}

/// Returns the claims of a pod, in the order of their templates.
pub(super) fn claims(set: &StatefulSet, ordinal: i32) -> Vec<PersistentVolumeClaim> {
    let selector = set.spec.as_ref().and_then(|spec| spec.selector.match_labels.clone());
    let claim = |template: &PersistentVolumeClaim| {
        let mut claim = template.clone();
        claim.metadata.name = Some(claim_name(set, template, ordinal));
        claim.metadata.namespace.clone_from(&set.metadata.namespace);
        let mut labels: BTreeMap<_, _> = claim.metadata.labels.take().unwrap_or_default();
        labels.extend(selector.clone().unwrap_or_default());
        claim.metadata.labels = (!labels.is_empty()).then_some(labels);
        claim
    };
    claim_templates(set).into_iter().map(claim).collect()
}

/// The pod of a claim. The UID of a pod that does not exist is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ClaimUser {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) ordinal: i32,
}

/// The owner references that a claim must have to its StatefulSet and its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owners {
    Neither,
    Set,
    Pod,
}

/// A StatefulSet and one of its pods.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClaimOwners<'a> {
    pub(super) set: &'a StatefulSet,
    pub(super) pod: &'a ClaimUser,
}

impl ClaimOwners<'_> {
    /// Returns the owners that the policy requires. An unknown policy retains claims.
    fn required(self) -> Owners {
        let policy = retention_policy(self.set);
        let is_scaled_down = !is_in_range(self.set, self.pod.ordinal);
        match (policy.when_scaled, policy.when_deleted) {
            (Retention::Retain, Retention::Delete) => Owners::Set,
            (Retention::Delete, Retention::Retain | Retention::Delete) if is_scaled_down => Owners::Pod,
            (Retention::Delete, Retention::Delete) => Owners::Set,
            _ => Owners::Neither,
        }
    }

    fn names_set(self, reference: OwnerRef<'_>) -> bool {
        names(reference, &StatefulSet::api_version(&()), "StatefulSet", pods::name(&self.set.metadata))
    }

    fn names_pod(self, reference: OwnerRef<'_>) -> bool {
        names(reference, "v1", "Pod", &self.pod.name)
    }

    /// Returns whether the first reference by name to the set or to the pod has the UID of a replaced object.
    fn is_stale(self, claim: MetadataRef<'_>) -> bool {
        self.is_set_stale(claim) || self.is_pod_stale(claim)
    }

    fn is_set_stale(self, claim: MetadataRef<'_>) -> bool {
        let named = claim.owners().find(|reference| self.names_set(*reference));
        named.is_some_and(|reference| reference.uid != pods::uid(&self.set.metadata))
    }

    /// Returns whether a claim refers to an earlier pod with the same name. The garbage collector deletes such a claim.
    pub(super) fn is_pod_stale(self, claim: MetadataRef<'_>) -> bool {
        let named = claim.owners().find(|reference| self.names_pod(*reference));
        named.is_some_and(|reference| reference.uid != self.pod.uid)
    }

    fn owns(self, claim: MetadataRef<'_>) -> (bool, bool) {
        let has = |uid: &str| claim.owners().any(|reference| reference.uid == uid);
        (has(pods::uid(&self.set.metadata)), has(&self.pod.uid))
    }

    /// Returns whether another object controls the claim, although the policy deletes claims.
    pub(super) fn has_conflict(self, claim: MetadataRef<'_>) -> bool {
        let policy = retention_policy(self.set);
        if (policy.when_scaled, policy.when_deleted) == (Retention::Retain, Retention::Retain) {
            return false;
        }
        claim.owners().any(|reference| {
            if self.names_set(reference) {
                reference.uid != pods::uid(&self.set.metadata)
            } else if self.names_pod(reference) {
                reference.uid != self.pod.uid
            } else {
                reference.controller
            }
        })
    }

    fn has_owner_without_control(self, claim: MetadataRef<'_>) -> bool {
        let is_ours = |reference: &OwnerRef<'_>| {
            reference.uid == pods::uid(&self.set.metadata) || reference.uid == self.pod.uid
        };
        claim.owners().any(|reference| is_ours(&reference) && !reference.controller)
    }

    /// Returns whether the owner references of a claim follow the policy, or must not be changed.
    pub(super) fn are_current(self, claim: MetadataRef<'_>) -> bool {
        let owned = self.owns(claim);
        if self.is_stale(claim) {
            return true;
        }
        if self.has_conflict(claim) {
            return owned == (false, false);
        }
        if self.has_owner_without_control(claim) {
            return false;
        }
        owned
            == match self.required() {
                Owners::Neither => (false, false),
                Owners::Set => (true, false),
                Owners::Pod => (false, true),
            }
    }

    /// Returns the owner references that a claim must have.
    pub(super) fn updated(
        self,
        claim: MetadataRef<'_>,
        references: &[OwnerReference],
    ) -> Vec<OwnerReference> {
        let others = references.iter().filter(|reference| {
            let reference: OwnerRef<'_> = (*reference).into();
            !self.names_set(reference) && !self.names_pod(reference)
        });
        let mut updated: Vec<_> = others.cloned().collect();
        if self.has_conflict(claim) {
            return updated;
        }
        let added = match self.required() {
            Owners::Neither => None,
            Owners::Set => Some(controller_reference(self.set)),
            Owners::Pod => Some(self.pod_reference()),
        };
        updated.extend(added.filter(|added| has_no_reference(&updated, &added.uid)));
        updated
    }

    fn pod_reference(self) -> OwnerReference {
        OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            name: self.pod.name.clone(),
            uid: self.pod.uid.clone(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        }
    }
}

fn has_no_reference(references: &[OwnerReference], uid: &str) -> bool {
    references.iter().all(|reference| reference.uid != uid)
}

fn names(reference: OwnerRef<'_>, api_version: &str, kind: &str, name: &str) -> bool {
    reference.api_version == api_version && reference.kind == kind && reference.name == name
}
