//! The trait that ReplicaSets and ReplicationControllers share: a desired number of pods, and a status.

use std::fmt::Debug;

use jiff::Timestamp;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use kube::Resource;
use serde::Serialize;
use serde::de::DeserializeOwned;
use windlass_object::condition::Condition;
use windlass_object::{LabelSelector, SelectorError};

/// An owner with a number of equal pods.
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
    /// Type of the conditions in the status.
    type Condition: Condition + Debug + Send + Sync;

    /// Returns the desired number of pods. API servers always set it; the default is one.
    fn desired(&self) -> i32;

    /// Returns the selector of the pods.
    ///
    /// # Errors
    /// If the selector of the object is invalid.
    fn selector(&self) -> Result<LabelSelector, SelectorError>;

    /// Returns the template of new pods.
    fn template(&self) -> Option<&PodTemplateSpec>;

    /// Returns the time for which a pod must be ready to be available.
    fn min_ready_seconds(&self) -> i32;

    /// Returns the name of a group of owners in one namespace, such as the ReplicaSets of one rollout. When pods are
    /// deleted, pods on nodes with many pods of the group are deleted first. `None` for an owner without siblings.
    fn sibling_group(&self) -> Option<String>;

    /// Returns the last written status.
    fn status(&self) -> ReplicaStatus<Self::Condition>;

    /// Replaces the status.
    fn set_status(&mut self, status: ReplicaStatus<Self::Condition>);

    /// Returns a `ReplicaFailure` condition that has just become true.
    fn failure(reason: &str, message: String, at: Timestamp) -> Self::Condition;
}

/// Status fields of all replicated kinds; missing fields are zero.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ReplicaStatus<C> {
    /// Number of active pods.
    pub(crate) replicas: i32,
    /// Number of active pods with all labels of the template.
    pub(crate) fully_labeled: i32,
    /// Number of ready pods.
    pub(crate) ready: i32,
    /// Number of available pods.
    pub(crate) available: i32,
    /// Number of terminating pods, if it is reported.
    pub(crate) terminating: Option<i32>,
    /// Generation of the spec for which the status was computed.
    pub(crate) observed_generation: i64,
    /// Conditions.
    pub(crate) conditions: Vec<C>,
}
