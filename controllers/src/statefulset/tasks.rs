//! The tasks of a plan.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::StatefulSetStatus;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};

use super::claims::ClaimUser;
use super::spec::PodManagement;
use crate::shared::pod_view::PodView;
use crate::shared::volume_claim_view::VolumeClaimView;

/// A claim in the cache.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum CachedClaim {
    Missing,
    Present(Arc<VolumeClaimView>),
    /// The claim exists and cannot be decoded.
    Undecodable(String),
}

/// The requests of one sync, and the status after them.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plan {
    /// Groups of pods, including pods without tasks. A group starts after the previous group has succeeded.
    pub(super) groups: Vec<Vec<PodWork>>,
    /// Whether the pods of one group are processed in order or concurrently.
    pub(super) management: PodManagement,
    /// A pod of an old revision, which is deleted last.
    pub(super) replaced: Option<Arc<PodView>>,
    /// The status, except for the deletion of `replaced`.
    pub(super) status: StatefulSetStatus,
}

/// The tasks for one pod, in order; empty if the pod is correct.
pub(super) type PodWork = Vec<Task>;

/// A task for one pod.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Task {
    /// Create the pod after its claims.
    Create { pod: Box<Pod>, claims: ClaimWork },
    /// Create the missing claims of a pending pod.
    ProvideClaims { user: ClaimUser, claims: ClaimWork },
    /// Correct labels, volumes and claims of a running pod.
    Correct(Correction),
    /// Correct the owners of the claims of a pod that is deleted next.
    CorrectOwners { user: ClaimUser, owners: Vec<OwnerCheck> },
    /// Delete the pod.
    Delete(Arc<PodView>),
}

/// A correction of a running pod.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Correction {
    pub(super) user: ClaimUser,
    pub(super) identity: bool,
    pub(super) storage: bool,
    pub(super) claims: ClaimWork,
}

/// The work for the claims of one pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ClaimWork {
    pub(super) needs: Vec<ClaimNeed>,
    pub(super) owners: Vec<OwnerCheck>,
}

/// A claim that a pod needs and does not have.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ClaimNeed {
    Create(Box<PersistentVolumeClaim>),
    /// The claim is being deleted; the pod must not use it.
    Terminating(String),
    Undecodable {
        claim: String,
        reason: String,
    },
}

/// An existing claim whose owner references conflict, must be updated, or are unknown.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum OwnerCheck {
    Known { claim: Arc<VolumeClaimView>, has_conflict: bool, must_update: bool },
    Undecodable { claim: String, reason: String },
}
