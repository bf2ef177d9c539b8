//! What handlers are told.
//!
//! Upstream overloads equal resource versions to mean "resync" and hands out tombstones in place of objects.
//! Here an [`Event`] says why it came ([`Cause`]), and a deletion carries the last known state and says
//! whether it was seen or inferred ([`Observation`]).

use std::fmt;
use std::sync::Arc;

use windlass_env::cell::Observer;

use crate::processor::{Detach, HandlerState};

/// A change of one object, as a handler is told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<T> {
    /// The object is there, and the handler has not been told of it before.
    Added {
        /// As it came. The store may hold something newer, which is told next.
        object: T,
        /// Why this is told.
        cause: Cause,
    },
    /// The object differs from what the handler was last told, or this is a resync.
    Updated {
        /// What the handler was last told.
        old: T,
        /// What it became. The store may hold something newer, which is told next.
        new: T,
        /// Why this is told.
        cause: Cause,
    },
    /// The object is gone. Always told, however busy the handler is.
    Deleted {
        /// The last known state, which may be older than the object's end.
        last: T,
        /// Whether the end was seen.
        observed: Observation,
        /// Why this is told.
        cause: Cause,
    },
}

/// Why a handler is told something.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// A watch said so.
    Watch,
    /// It is part of the first list, or of what was there when the handler came.
    InitialList,
    /// The watch was lost, and a later list differs from what was known.
    Relist,
    /// The namespace or the kind it belongs to is not selected any more.
    Deselected,
    /// Nothing happened: it is time to look again.
    Resync,
}

/// How the end of an object became known.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Observation {
    /// A watch said so; the last known state is the state at the end.
    Seen,
    /// It follows from something else: a list without it, another object in its place, or bytes that cannot
    /// be decoded any more. States between the last known one and the end may have been missed.
    Inferred,
}

/// Is told of changes, one at a time.
///
/// The store already holds what a handler is told of, or something newer. A handler runs in a task of its own
/// and delays only itself; while it is busy its changes are gathered, in order per key and with every state
/// between. Only if more than sixteen states of one object (by UID) wait are some of those in between dropped,
/// the oldest first; never the deletion. If it panics the panic is counted and the next change is told.
pub trait Handler<T>: Send + 'static {
    /// Takes notice of a change.
    fn handle(&mut self, event: &Event<T>);
}

impl<T, F: FnMut(&Event<T>) + Send + 'static> Handler<T> for F {
    fn handle(&mut self, event: &Event<T>) {
        self(event);
    }
}

/// The hold on a handler that was added. Dropping it leaves the handler where it is.
pub struct HandlerHandle {
    name: String,
    state: Observer<HandlerState>,
    detach: Arc<dyn Detach>,
}

impl<T> Event<T> {
    /// The newest state the event carries: what was added, what it was updated to, or what was last known.
    pub fn object(&self) -> &T {
        match self {
            Event::Added { object, .. } => object,
            Event::Updated { new, .. } => new,
            Event::Deleted { last, .. } => last,
        }
    }

    /// Why this is told.
    pub fn cause(&self) -> Cause {
        match self {
            Event::Added { cause, .. } | Event::Updated { cause, .. } | Event::Deleted { cause, .. } => {
                *cause
            }
        }
    }

    /// The same event about something else made of each state.
    pub fn map<U>(self, mut f: impl FnMut(T) -> U) -> Event<U> {
        match self {
            Event::Added { object, cause } => Event::Added { object: f(object), cause },
            Event::Updated { old, new, cause } => Event::Updated { old: f(old), new: f(new), cause },
            Event::Deleted { last, observed, cause } => Event::Deleted { last: f(last), observed, cause },
        }
    }
}

impl HandlerHandle {
    pub(crate) fn new(name: String, state: Observer<HandlerState>, detach: Arc<dyn Detach>) -> Self {
        Self { name, state, detach }
    }

    /// Whether this handler has been told of the whole initial list.
    pub fn has_synced(&self) -> bool {
        self.state.get() == HandlerState::Synced
    }

    /// Waits until this handler has been told of the whole initial list; `false` if it was removed, or its
    /// informer shut down, before that.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the wait.
    pub async fn synced(&self) -> bool {
        let settled = self.state.clone().wait_until(|state| *state != HandlerState::Waiting).await;
        settled == Ok(HandlerState::Synced)
    }

    /// Removes the handler: it is told nothing more, except that a change it is being told of right now may
    /// still be in its hands. What it had not been told yet is dropped. Removing twice is removing once.
    pub fn remove(&self) {
        self.detach.detach();
    }
}

impl fmt::Debug for HandlerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandlerHandle").field("name", &self.name).field("state", &self.state.get()).finish()
    }
}
