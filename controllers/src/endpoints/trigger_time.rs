//! What the change that an update of Endpoints answers to is dated.
//!
//! Consumers subtract that date from their own clock to measure how long a change in a pod takes to reach the
//! network. It is the earliest change since the last sync that was carried out: of the creation of the Service, or of the last
//! transition of a pod's readiness. The first sync of a Service a process sees is dated by its creation, since what
//! came before is not known.
//!
//! A date stays due until what it dates is written, so an attempt that fails costs it nothing.
//!
//! Several changes of one pod between two syncs count as the last of them. That is an approximation.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, Service};
use windlass_object::ObjectKey;

use crate::shared::pods;

/// The dates seen at the previous sync of every Service.
#[derive(Debug, Default)]
pub(super) struct TriggerTimes {
    services: BTreeMap<ObjectKey, ObservedSite>,
}

/// The dates seen at one sync. A pod is known by its name; one created again under it has later dates.
#[derive(Debug)]
struct ObservedSite {
    /// The date that has not been written yet.
    due: Option<Timestamp>,
    service: Option<Timestamp>,
    pods: BTreeMap<String, Timestamp>,
}

impl TriggerTimes {
    /// The date for a sync that finds these pods, all that are selected, listed or not. `None` when nothing has
    /// changed since the previous one. To be asked at every sync, whether or not it writes.
    pub(super) fn observe(
        &mut self,
        key: &ObjectKey,
        service: &Service,
        pods: &[Arc<Pod>],
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

    /// The sync that was given the last date has been carried out: it was written, or nothing was to be.
    pub(super) fn carried_out(&mut self, key: &ObjectKey) {
        if let Some(seen) = self.services.get_mut(key) {
            seen.due = None;
        }
    }

    /// The Service is gone.
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

/// When the readiness of each pod last changed, to whatever it is now.
fn ready_changes(pods: &[Arc<Pod>]) -> BTreeMap<String, Timestamp> {
    let change = |pod: &Arc<Pod>| {
        let time = pods::transition(pods::ready_condition(pod)?)?;
        Some((pods::name(&pod.metadata).to_owned(), time))
    };
    pods.iter().filter_map(change).collect()
}
