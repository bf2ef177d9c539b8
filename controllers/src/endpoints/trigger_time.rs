//! Computes the trigger time of updates of Endpoints.
//!
//! Consumers subtract it from their own time to measure the delay until a change of a pod reaches the network. It is
//! the earliest relevant change since the last successful sync: the creation of the Service, or the last readiness
//! transition of a pod. For the first sync of a Service in a process it is the creation time, because earlier syncs are
//! not known.
//!
//! A time is kept until it is written, so failed attempts do not lose it.
//!
//! If a pod changes several times between two syncs, only the last change counts. This is an approximation.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use windlass_object::ObjectKey;

use super::service_view::ServiceView;
use crate::shared::pod_view::PodView;
use crate::shared::pods;

/// Observed times at the last sync of each Service.
#[derive(Debug, Default)]
pub(super) struct TriggerTimes {
    services: BTreeMap<ObjectKey, ObservedSite>,
}

/// The state at one sync. Pods are identified by name; a pod that was created again has later times.
#[derive(Debug, Default)]
struct ObservedSite {
    /// Time that was not written yet.
    due: Option<Timestamp>,
    service: Option<Timestamp>,
    /// The selected pods, ordered by name.
    pods: Vec<Arc<PodView>>,
}

impl TriggerTimes {
    /// Returns the trigger time of a sync. `pods` are all selected pods, listed or not. `None` if nothing has changed
    /// since the previous sync. Must be called at each sync, even if it writes nothing.
    pub(super) fn observe(
        &mut self,
        key: &ObjectKey,
        service: &ServiceView,
        pods: &[Arc<PodView>],
    ) -> Option<Timestamp> {
        let created = pods::created(&service.metadata);
        match self.services.get_mut(key) {
            Some(site) => site.observe(created, pods),
            None => {
                let mut site = ObservedSite::default();
                site.observe(created, pods);
                // Changes before the first sync are unknown.
                site.due = created;
                self.services.insert(key.clone(), site);
                created
            }
        }
    }

    /// Records that the last sync was successful, with or without a write.
    pub(super) fn carried_out(&mut self, key: &ObjectKey) {
        if let Some(seen) = self.services.get_mut(key) {
            seen.due = None;
        }
    }

    /// Removes a deleted Service.
    pub(super) fn forget(&mut self, key: &ObjectKey) {
        self.services.remove(key);
    }
}

impl ObservedSite {
    /// Replaces the observed state, and returns the earliest time that is not written yet. `pods` are ordered by name.
    fn observe(&mut self, created: Option<Timestamp>, pods: &[Arc<PodView>]) -> Option<Timestamp> {
        let created_again = created.filter(|created| self.service.is_none_or(|before| *created > before));
        let mut before = self.pods.iter().peekable();
        let changed = pods.iter().filter_map(|pod| {
            let time = ready_change(pod);
            while before.next_if(|known| name(known) < name(pod)).is_some() {}
            let known = before.next_if(|known| name(known) == name(pod)).and_then(ready_change);
            time.filter(|time| known.is_none_or(|known| *time > known))
        });
        self.due = created_again.into_iter().chain(self.due).chain(changed).min();
        (self.service, self.pods) = (created, pods.to_vec());
        self.due
    }
}

fn name(pod: &Arc<PodView>) -> &str {
    pods::name(&pod.metadata)
}

/// Returns the last readiness transition of a pod.
fn ready_change(pod: &Arc<PodView>) -> Option<Timestamp> {
    pod.ready.as_ref()?.transition()
}
