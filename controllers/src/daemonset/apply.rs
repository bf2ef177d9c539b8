//! Sends the requests of a plan: creates in growing batches, then deletes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::join_all;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use kube::Resource as _;
use windlass_controller::{Context, Writer};
use windlass_events::NewEvent;
use windlass_object::ObjectKey;
use windlass_object::owner::controller_reference;

use super::plan::PodPlan;
use super::template::{pinned, pod_template};
use crate::shared::api_errors::aggregate;
use crate::shared::pod_control::{CreateError, PodControl};
use crate::shared::pod_template::pod_from_template;
use crate::shared::slow_start::slow_start;

/// The requests of one sync of a DaemonSet.
pub(super) struct Applier<'a> {
    cx: &'a Context,
    set: &'a DaemonSet,
    /// Hash of the present revision.
    hash: &'a str,
    regarding: ObjectReference,
    control: PodControl<'a>,
}

/// Result of the requests.
#[derive(Debug)]
pub(super) struct Applied {
    /// Whether the server rejected a create because the namespace is terminating. This is not a failure.
    pub(super) is_namespace_terminating: bool,
    /// All failures, without duplicates.
    pub(super) result: Result<(), ApplyError>,
}

/// Failure of requests.
#[derive(Debug, thiserror::Error)]
#[error("{}", aggregate(.messages.clone()))]
pub(crate) struct ApplyError {
    messages: Vec<String>,
    /// Whether a request was not sent, because the process shuts down or no longer leads.
    pub(super) was_not_sent: bool,
}

/// Returns the reference to a DaemonSet in events. It contains the version that was read, as in
/// kube-controller-manager.
pub(super) fn reference(set: &DaemonSet) -> ObjectReference {
    ObjectReference { resource_version: set.metadata.resource_version.clone(), ..set.object_ref(&()) }
}

impl<'a> Applier<'a> {
    pub(super) fn new(
        cx: &'a Context,
        key: &'a ObjectKey,
        writer: &'a Writer<Pod>,
        set: &'a DaemonSet,
        hash: &'a str,
    ) -> Self {
        let control = PodControl::new(cx, key, writer, reference(set));
        Self { cx, set, hash, regarding: reference(set), control }
    }

    /// Records the events, creates pods, then deletes pods. Deletes are sent even if a create fails.
    pub(super) async fn apply(&self, plan: &PodPlan) -> Applied {
        plan.events.iter().for_each(|event| self.record(event));
        let mut failed = ApplyError { messages: Vec::new(), was_not_sent: false };
        // The batch returns only its first failure, which can have another reason.
        let is_namespace_terminating = AtomicBool::new(false);
        match self.create(&plan.create, &is_namespace_terminating).await {
            Ok(()) | Err(CreateError::NamespaceTerminating(_)) => {}
            Err(error) => failed.add(&error, error.was_not_sent()),
        }
        let deletes = join_all(plan.delete.iter().map(|pod| self.control.delete(pod))).await;
        for error in deletes.into_iter().filter_map(Result::err) {
            failed.add(&error, error.was_not_sent());
        }
        let result = if failed.messages.is_empty() { Ok(()) } else { Err(failed) };
        Applied { is_namespace_terminating: is_namespace_terminating.into_inner(), result }
    }

    /// Creates pods. Sets `is_namespace_terminating` if the server rejects a create for this reason.
    async fn create(
        &self,
        nodes: &[Arc<str>],
        is_namespace_terminating: &AtomicBool,
    ) -> Result<(), CreateError> {
        if nodes.is_empty() {
            return Ok(());
        }
        let pod = pod_from_template(&pod_template(self.set, self.hash), &controller_reference(self.set));
        let create = |number: usize| {
            let pod = pinned_pod(&pod, &nodes[number]);
            async move {
                let created = self.control.create(&pod).await;
                if matches!(created, Err(CreateError::NamespaceTerminating(_))) {
                    is_namespace_terminating.store(true, Ordering::Relaxed);
                }
                created
            }
        };
        slow_start(nodes.len(), create).await.stopped_by.map_or(Ok(()), Err)
    }

    fn record(&self, event: &NewEvent) {
        self.cx.events().publish(&self.regarding, event);
    }
}

impl ApplyError {
    fn add(&mut self, error: &impl std::error::Error, was_not_sent: bool) {
        self.messages.push(error.to_string());
        self.was_not_sent |= was_not_sent;
    }
}

/// Returns the pod for one node.
fn pinned_pod(pod: &Pod, node: &str) -> Pod {
    let mut pod = pod.clone();
    let spec = pod.spec.get_or_insert_default();
    spec.affinity = Some(pinned(spec.affinity.take(), node));
    pod
}
