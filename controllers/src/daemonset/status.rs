//! Computes the status of a DaemonSet from its nodes and pods.

use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetStatus};

use super::node_pods::oldest;
use super::placement::Fit;
use super::plan::Observed;
use super::spec::template_generation;
use super::template::is_updated;
use crate::shared::{non_zero, pods};

/// The numbers of a status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Nodes that must have a pod.
    pub(super) desired: i32,
    /// Nodes that must have a pod and have one.
    pub(super) current: i32,
    /// Nodes that have a pod and must not receive one.
    pub(super) misscheduled: i32,
    /// Nodes whose pod is ready.
    pub(super) ready: i32,
    /// Nodes whose pod has the present revision.
    pub(super) updated: i32,
    /// Nodes whose pod is available.
    pub(super) available: i32,
}

/// Counts the nodes. The oldest pod represents its node.
pub(super) fn count(observed: &Observed<'_>) -> Counts {
    let generation = template_generation(observed.set);
    let mut counts = Counts::default();
    for (node, fit) in &observed.nodes {
        let pod = oldest(observed.pods_on(node));
        if *fit != Fit::Run {
            counts.misscheduled += i32::from(pod.is_some());
            continue;
        }
        counts.desired += 1;
        let Some(pod) = pod else { continue };
        counts.current += 1;
        counts.ready += i32::from(pods::is_ready(pod));
        counts.available += i32::from(observed.is_available(pod));
        counts.updated += i32::from(is_updated(pod, observed.hash, generation));
    }
    counts
}

impl Counts {
    /// Returns the numbers in a status.
    pub(super) fn read(status: &DaemonSetStatus) -> Self {
        Self {
            desired: status.desired_number_scheduled,
            current: status.current_number_scheduled,
            misscheduled: status.number_misscheduled,
            ready: status.number_ready,
            updated: status.updated_number_scheduled.unwrap_or_default(),
            available: status.number_available.unwrap_or_default(),
        }
    }

    /// Returns the number of nodes without an available pod.
    fn unavailable(self) -> i32 {
        self.desired.saturating_sub(self.available)
    }

    /// Returns whether the status has these numbers and the `processed` generation. `None` skips the generation.
    pub(super) fn is_reported(self, set: &DaemonSet, processed: Option<i64>) -> bool {
        let status = set.status.clone().unwrap_or_default();
        Self::read(&status) == self
            && status.number_unavailable.unwrap_or_default() == self.unavailable()
            && processed.is_none_or(|generation| status.observed_generation.unwrap_or_default() >= generation)
    }

    /// Writes the numbers and the `processed` generation into a status. `None` keeps the observed generation.
    pub(super) fn write(self, status: &mut DaemonSetStatus, processed: Option<i64>) {
        status.desired_number_scheduled = self.desired;
        status.current_number_scheduled = self.current;
        status.number_misscheduled = self.misscheduled;
        status.number_ready = self.ready;
        status.updated_number_scheduled = non_zero(self.updated);
        status.number_available = non_zero(self.available);
        status.number_unavailable = non_zero(self.unavailable());
        if let Some(generation) = processed.filter(|generation| *generation != 0) {
            status.observed_generation = Some(generation);
        }
    }
}
