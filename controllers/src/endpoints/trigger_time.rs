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

/// Observed times at one sync. Pods are identified by name; a pod that was created again has later times.
#[derive(Debug)]
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
        let mut seen =
            ObservedSite { due: None, service: pods::created(&service.metadata), pods: ready_changes(pods) };
        seen.due = match self.services.get(key) {
            Some(before) => seen.earliest_since(before),
            None => seen.service,
        };
        let due = seen.due;
        self.services.insert(key.clone(), seen);
        due
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
    fn earliest_since(&self, before: &Self) -> Option<Timestamp> {
        let changed = |(name, time): (&String, &Timestamp)| {
            before.pods.get(name).is_none_or(|before| time > before).then_some(*time)
        };
        let created = self.service.filter(|created| before.service.is_none_or(|before| *created > before));
        self.pods.iter().filter_map(changed).chain(created).chain(before.due).min()
    }
}

/// Returns the last readiness transition of each pod.
fn ready_changes(pods: &[Arc<PodView>]) -> BTreeMap<String, Timestamp> {
    let change = |pod: &Arc<PodView>| {
        let time = pod.ready.as_ref()?.transition()?;
        Some((pods::name(&pod.metadata).to_owned(), time))
    };
    pods.iter().filter_map(change).collect()
}
