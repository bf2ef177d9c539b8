//! Sends the requests of a plan: creates in growing batches, then deletes.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use windlass_controller::{Context, Writer};
use windlass_events::NewEvent;
use windlass_object::ObjectKey;
use windlass_object::owner::controller_reference;

use super::plan::PodPlan;
use super::template::{pinned, pod_template};
use crate::shared::api_errors::aggregate;
use crate::shared::concurrency::join_all;
use crate::shared::event_reference::event_reference;
use crate::shared::pod_control::{CreateError, PodControl};
use crate::shared::pod_template::pod_from_template;
use crate::shared::terminating_namespaces::Withheld;

/// The requests of one sync of a DaemonSet.
pub(super) struct Applier<'a> {
    cx: &'a Context,
    set: &'a DaemonSet,
    /// Hash of the present revision.
    hash: &'a str,
    withheld: &'a Withheld,
    regarding: ObjectReference,
    control: PodControl<'a>,
}

/// Failure of requests.
#[derive(Debug, thiserror::Error)]
#[error("{}", aggregate(.messages.clone()))]
pub(crate) struct ApplyError {
    messages: Vec<String>,
    /// Whether a request was not sent, because the process shuts down or no longer leads.
    pub(super) was_not_sent: bool,
}

impl<'a> Applier<'a> {
    pub(super) fn new(
        cx: &'a Context,
        key: &'a ObjectKey,
        writer: &'a Writer<Pod>,
        set: &'a DaemonSet,
        hash: &'a str,
        withheld: &'a Withheld,
    ) -> Self {
        let control = PodControl::new(cx, key, writer, event_reference(set));
        Self { cx, set, hash, withheld, regarding: event_reference(set), control }
    }

    /// Records the events, creates pods, then deletes pods. Deletes are sent even if a create fails.
    ///
    /// # Errors
    /// All failures, without duplicates.
    pub(super) async fn apply(&self, plan: &PodPlan) -> Result<(), ApplyError> {
        plan.events.iter().for_each(|event| self.record(event));
        let mut failed = ApplyError { messages: Vec::new(), was_not_sent: false };
        if let Err(error) = self.create(&plan.create).await {
            failed.add(&error, error.was_not_sent());
        }
        let deletes = join_all(plan.delete.len(), |number| self.control.delete(&plan.delete[number])).await;
        for error in deletes.into_iter().filter_map(Result::err) {
            failed.add(&error, error.was_not_sent());
        }
        if failed.messages.is_empty() { Ok(()) } else { Err(failed) }
    }

    async fn create(&self, nodes: &[Arc<str>]) -> Result<(), CreateError> {
        if nodes.is_empty() {
            return Ok(());
        }
        let pod = pod_from_template(&pod_template(self.set, self.hash), &controller_reference(self.set));
        let pinned = |number: usize| pinned_pod(&pod, &nodes[number]);
        self.control.create_all(self.withheld, nodes.len(), pinned).await
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
