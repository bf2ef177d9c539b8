//! Which events predicates have kept from their watches, of late.
//!
//! A table of fixed size by the hash of the object's name, so that a flood of refused events costs neither memory nor
//! time: of two objects that share a place the later one is remembered.

use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::FixedState;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use windlass_env::Instant;
use windlass_object::ObjectKey;

use crate::enqueue::history::EventInfo;

/// How many objects are remembered at most: enough to find the one that was just changed, on a busy watch.
const PLACES: usize = 4096;

/// What the table takes, once the first event has been refused.
#[cfg(test)]
pub(crate) const BYTES: usize = PLACES * size_of::<Option<FilteredSlot>>();

/// See the module.
pub(crate) struct FilteredEvents {
    hasher: FixedState,
    /// Empty until an event is refused.
    places: Vec<Option<FilteredSlot>>,
}

struct FilteredSlot {
    hash: u64,
    refused: FilteredEvent,
}

/// An event that a predicate kept from its watch.
#[derive(Clone, Debug)]
pub(crate) struct FilteredEvent {
    pub(crate) at: Instant,
    pub(crate) watch: Arc<str>,
    /// The predicate's name.
    pub(crate) by: &'static str,
    pub(crate) told: EventInfo,
}

impl FilteredEvents {
    pub(crate) fn new(seed: u64) -> Self {
        Self { hasher: FixedState::with_seed(seed), places: Vec::new() }
    }

    pub(crate) fn note(&mut self, meta: &ObjectMeta, refused: FilteredEvent) {
        let namespace = meta.namespace.as_deref().unwrap_or_default();
        let hash = self.hasher.hash_one((namespace, meta.name.as_deref().unwrap_or_default()));
        if self.places.is_empty() {
            self.places.resize_with(PLACES, || None);
        }
        self.places[place_of(hash)] = Some(FilteredSlot { hash, refused });
    }

    pub(crate) fn of(&self, key: &ObjectKey) -> Option<FilteredEvent> {
        let hash = self.hasher.hash_one((key.namespace().unwrap_or_default(), key.name()));
        let place = self.places.get(place_of(hash))?.as_ref()?;
        (place.hash == hash).then(|| place.refused.clone())
    }
}

/// The low bits, whatever the width of a machine word.
fn place_of(hash: u64) -> usize {
    usize::try_from(hash % PLACES as u64).unwrap_or_default()
}
