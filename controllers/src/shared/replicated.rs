//! What a ReplicaSet and a ReplicationController have in common: a number of pods wanted, and a status about them.

use std::fmt::Debug;

use jiff::Timestamp;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use kube::Resource;
use serde::Serialize;
use serde::de::DeserializeOwned;
use windlass_object::condition::Condition;
use windlass_object::{LabelSelector, SelectorError};

/// An owner that keeps a number of equal pods.
pub(crate) trait ReplicaOwner:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + Serialize
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
    /// The type of the conditions in the status.
    type Condition: Condition + Debug + Send + Sync;

    /// How many pods are wanted. API servers always fill this in; where it is missing, one.
    fn desired(&self) -> i32;

    /// Which pods count.
    ///
    /// # Errors
    /// When the selector in the object is not one.
    fn selector(&self) -> Result<LabelSelector, SelectorError>;

    /// What new pods look like.
    fn template(&self) -> Option<&PodTemplateSpec>;

    /// For how long a pod has to be ready to count as available.
    fn min_ready_seconds(&self) -> i32;

    /// A name shared by owners of one namespace that stand in for each other, such as the ReplicaSets of one rollout: when pods have to
    /// go, those on nodes crowded by any of them go first. `None` for an owner on its own.
    fn sibling_group(&self) -> Option<String>;

    /// The status as last written.
    fn status(&self) -> ReplicaStatus<Self::Condition>;

    /// Replaces the status.
    fn set_status(&mut self, status: ReplicaStatus<Self::Condition>);

    /// A `ReplicaFailure` condition that has just become true.
    fn failure(reason: &str, message: String, at: Timestamp) -> Self::Condition;
}

/// What the statuses of all replicated kinds hold; fields absent on the wire are zero.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ReplicaStatus<C> {
    /// All active pods.
    pub(crate) replicas: i32,
    /// Those that carry every label of the template.
    pub(crate) fully_labeled: i32,
    /// Those that are ready.
    pub(crate) ready: i32,
    /// Those that have been ready for long enough.
    pub(crate) available: i32,
    /// Pods on their way out, where they are reported.
    pub(crate) terminating: Option<i32>,
    /// The generation of the spec this was computed from.
    pub(crate) observed_generation: i64,
    /// What else there is to say.
    pub(crate) conditions: Vec<C>,
}
