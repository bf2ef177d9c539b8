//! Records the recent events that predicates rejected.
//!
//! A table of fixed size, indexed by the hash of the object's name, bounds the memory and time per rejected event. If
//! two objects share a slot, the later event replaces the earlier one.

use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::FixedState;
use windlass_env::Instant;
use windlass_object::{MetadataRef, ObjectKey};

use crate::enqueue::history::EventInfo;

/// The number of slots: enough to find an object that was just changed, on a busy watch.
const SLOTS: usize = 4096;

/// The size of the table once the first event has been rejected.
#[cfg(test)]
pub(crate) const BYTES: usize = SLOTS * size_of::<Option<FilteredSlot>>();

/// The table of rejected events; see the module documentation.
pub(crate) struct FilteredEvents {
    hasher: FixedState,
    /// Empty until an event is rejected.
    slots: Vec<Option<FilteredSlot>>,
}

struct FilteredSlot {
    hash: u64,
    event: FilteredEvent,
}

/// An event that a predicate rejected.
#[derive(Clone, Debug)]
pub(crate) struct FilteredEvent {
    pub(crate) at: Instant,
    pub(crate) watch: Arc<str>,
    /// The predicate's name.
    pub(crate) by: &'static str,
    pub(crate) info: EventInfo,
}

impl FilteredEvents {
    pub(crate) fn new(seed: u64) -> Self {
        Self { hasher: FixedState::with_seed(seed), slots: Vec::new() }
    }

    pub(crate) fn record(&mut self, meta: MetadataRef<'_>, refused: FilteredEvent) {
        let namespace = meta.namespace().unwrap_or_default();
        let hash = self.hasher.hash_one((namespace, meta.name()));
        if self.slots.is_empty() {
            self.slots.resize_with(SLOTS, || None);
        }
        self.slots[slot_of(hash)] = Some(FilteredSlot { hash, event: refused });
    }

    pub(crate) fn of(&self, key: &ObjectKey) -> Option<FilteredEvent> {
        let hash = self.hasher.hash_one((key.namespace().unwrap_or_default(), key.name()));
        let slot = self.slots.get(slot_of(hash))?.as_ref()?;
        (slot.hash == hash).then(|| slot.event.clone())
    }
}

/// Returns the slot of a hash. It is the same for every pointer width.
fn slot_of(hash: u64) -> usize {
    usize::try_from(hash % SLOTS as u64).unwrap_or_default()
}
