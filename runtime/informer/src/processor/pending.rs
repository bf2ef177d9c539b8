//! The pending events of one object for one handler: the path of its states.
//!
//! Guarantees:
//! - Every state on the path is delivered, in order, each as a change from the previous state. A reader of the store
//!   might have acted on any of them, so no state can be skipped because a newer one exists.
//! - At most [`MAX_PENDING_STATES`] states are pending. Above that, intermediate states are dropped, the oldest first,
//!   and the updates around a dropped state are merged. The first state (the last delivered one, or the addition), the
//!   newest states and the deletion are kept. A slow handler can miss nothing else.

use std::collections::VecDeque;

use windlass_object::{ObjectKey, Uid};

use crate::handler::{Cause, DeletionEvidence, Event};

/// The maximum number of pending states of one object for a handler, including its deletion. Ordinary objects have
/// fewer states in their lifetime, so only objects that change constantly lose some. The limit is low enough for many
/// pending objects.
pub(super) const MAX_PENDING_STATES: usize = 16;

/// The pending changes of one object, that is, of one key and UID.
#[derive(Debug)]
pub(super) struct Pending<T> {
    key: ObjectKey,
    uid: Option<Uid>,
    /// The last delivered state; `None` if there is none.
    delivered: Option<T>,
    /// Whether the path starts with the initial list.
    initial: bool,
    /// The states since then, oldest first. Never empty, and never two deletions in a row.
    path: VecDeque<Step<T>>,
}

#[derive(Debug)]
enum Step<T> {
    Present(T, Cause),
    Deleted(T, DeletionEvidence, Cause),
}

impl<T: Clone> Pending<T> {
    pub(super) fn new(key: ObjectKey, uid: Option<Uid>, event: Event<T>) -> Self {
        let delivered = match &event {
            Event::Updated { old, .. } => Some(old.clone()),
            Event::Added { .. } | Event::Deleted { .. } => None,
        };
        let initial = event.cause() == Cause::InitialList;
        Self { key, uid, delivered, initial, path: VecDeque::from([Step::of(event)]) }
    }

    pub(super) fn key(&self) -> &ObjectKey {
        &self.key
    }

    /// Returns whether the path starts with the initial list.
    pub(super) fn is_initial(&self) -> bool {
        self.initial
    }

    /// Returns whether a change of `uid` extends this path. Without a UID, the state after a deletion might be another
    /// object.
    pub(super) fn takes(&self, uid: Option<&Uid>) -> bool {
        self.uid.as_ref() == uid && (uid.is_some() || !self.path.iter().any(Step::is_deleted))
    }

    /// Returns whether the object was created and deleted before the handler received an event for it.
    pub(super) fn is_undelivered_deletion(&self) -> bool {
        let came = self.path.front().is_some_and(|step| !step.is_deleted());
        self.delivered.is_none() && came && self.path.back().is_some_and(Step::is_deleted)
    }

    /// Extends the path. Returns `false` if an intermediate state was dropped.
    pub(super) fn add(&mut self, event: Event<T>) -> bool {
        let step = Step::of(event);
        if step.is_deleted() && self.path.back().is_some_and(Step::is_deleted) {
            // Of two deletions of one object, the later one has better evidence.
            self.path.pop_back();
        }
        self.path.push_back(step);
        let fits = self.path.len() <= MAX_PENDING_STATES;
        if !fits {
            self.shorten();
        }
        fits
    }

    /// Returns the events of the path.
    pub(super) fn into_events(self) -> impl Iterator<Item = Event<T>> {
        let mut known = self.delivered;
        self.path.into_iter().map(move |step| match step {
            Step::Deleted(last, observed, cause) => {
                known = None;
                Event::Deleted { last, observed, cause }
            }
            Step::Present(now, cause) => match known.replace(now.clone()) {
                Some(old) => Event::Updated { old, new: now, cause },
                None => Event::Added { object: now, cause },
            },
        })
    }

    /// Drops the oldest intermediate state. If there is none, the path only alternates between creation and deletion
    /// under one UID. Then the oldest pair is dropped, and a later deletion stands in for the dropped one.
    fn shorten(&mut self) {
        let is_between = |i: &usize| self.is_update(*i) && i + 1 < self.path.len();
        match (0..self.path.len()).find(is_between) {
            Some(oldest) => drop(self.path.remove(oldest)),
            None => drop(self.path.drain(..2)),
        }
    }

    /// Returns whether step `i` will be delivered as an update.
    fn is_update(&self, i: usize) -> bool {
        let follows_a_state = match i.checked_sub(1) {
            Some(before) => !self.path[before].is_deleted(),
            None => self.delivered.is_some(),
        };
        follows_a_state && !self.path[i].is_deleted()
    }

    /// Returns the number of pending states.
    #[cfg(test)]
    pub(super) fn states(&self) -> usize {
        self.path.len()
    }
}

impl<T> Step<T> {
    fn of(event: Event<T>) -> Self {
        match event {
            Event::Added { object, cause } => Step::Present(object, cause),
            Event::Updated { new, cause, .. } => Step::Present(new, cause),
            Event::Deleted { last, observed, cause } => Step::Deleted(last, observed, cause),
        }
    }

    fn is_deleted(&self) -> bool {
        matches!(self, Step::Deleted(..))
    }
}
