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

use std::collections::{BTreeMap, BTreeSet};
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

/// Observed times at one sync. Pods are identified by name; a pod that was created again has later times.
#[derive(Debug, Default)]
struct ObservedSite {
    /// Time that was not written yet.
    due: Option<Timestamp>,
    service: Option<Timestamp>,
    pods: BTreeMap<String, Timestamp>,
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
    /// Replaces the observed times, and returns the earliest that is not written yet.
    fn observe(&mut self, created: Option<Timestamp>, pods: &[Arc<PodView>]) -> Option<Timestamp> {
        let created_again = created.filter(|created| self.service.is_none_or(|before| *created > before));
        let (mut due, mut present) = (created_again.into_iter().chain(self.due).min(), 0);
        for (name, time) in pods.iter().filter_map(ready_change) {
            present += 1;
            let before = self.replace(name, time);
            if before.is_none_or(|before| time > before) {
                due = due.into_iter().chain([time]).min();
            }
        }
        if self.pods.len() > present {
            let names: BTreeSet<&str> = pods.iter().filter_map(ready_change).map(|(name, _)| name).collect();
            self.pods.retain(|name, _| names.contains(name.as_str()));
        }
        (self.due, self.service) = (due, created);
        due
    }

    /// Sets the time of a pod, and returns its previous time. Most pods are known, and need no copy of their name.
    fn replace(&mut self, name: &str, time: Timestamp) -> Option<Timestamp> {
        match self.pods.get_mut(name) {
            Some(known) => Some(std::mem::replace(known, time)),
            None => self.pods.insert(name.to_owned(), time),
        }
    }
}

/// Returns name and last readiness transition of a pod.
fn ready_change(pod: &Arc<PodView>) -> Option<(&str, Timestamp)> {
    let time = pod.ready.as_ref()?.transition()?;
    Some((pods::name(&pod.metadata), time))
}
