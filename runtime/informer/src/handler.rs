//! Events that handlers receive.
//!
//! Upstream uses equal resource versions to mean "resync" and delivers tombstones in place of objects. Here an
//! [`Event`] states its cause ([`Cause`]). A deletion carries the last known state and states whether the deletion was
//! observed or inferred ([`DeletionEvidence`]).

use std::time::Duration;

/// A change of one object, as delivered to a handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<T> {
    /// The object exists. It is new to the handler, or was delivered as deleted before.
    Added {
        /// The state of the event. The store might contain a newer state, which is delivered next.
        object: T,
        /// The cause of the event.
        cause: Cause,
    },
    /// The object differs from the state that the handler received last, or this is a resync.
    Updated {
        /// The state that the handler received last.
        old: T,
        /// The new state. The store might contain a newer state, which is delivered next.
        new: T,
        /// The cause of the event.
        cause: Cause,
    },
    /// The object was deleted. Delivered for every object that the handler received, however busy the handler is. For
    /// other objects, see [`Handler::missed`].
    Deleted {
        /// The last known state. It might be older than the state at the deletion.
        last: T,
        /// Whether the deletion was observed.
        observed: DeletionEvidence,
        /// The cause of the event.
        cause: Cause,
    },
}

/// The cause of an event.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// A watch event.
    Watch,
    /// The initial list of the informer, or of a namespace or shard that joined; or the snapshot for a handler that was
    /// added later.
    InitialList,
    /// A relist differs from the known state (after a lost watch, on request, or when the kind is served again), or the
    /// kind is no longer served.
    Relist,
    /// The namespace or shard of the object is no longer selected.
    Deselected,
    /// A resync: the object did not change.
    Resync,
}

/// The evidence for the deletion of an object.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeletionEvidence {
    /// A watch event reported the deletion. The last state is the final state if the event contained it in decodable
    /// form, and the cached state otherwise.
    Observed,
    /// The deletion follows from something else: a list without the object, another object with its name, bytes that
    /// can no longer be decoded, a namespace or shard that is no longer selected, a kind that is no longer served, or a
    /// filter that the object no longer passes. States between the last known one and the deletion might be missing.
    Inferred,
}

/// Options for the delivery of events to a handler.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct HandlerOptions {
    /// The resync period.
    pub resync: Resync,
    /// The delivery of changes while the handler is busy.
    pub delivery: Delivery,
}

/// The period in which a handler receives an update for every object, even if the object did not change. The old and
/// the new state of such an update are both the stored state; its cause is [`Cause::Resync`]. By default a handler is
/// resynced in the period of its factory, if that has one. A relist neither counts as a resync nor delays one.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Resync {
    /// The period in the options of the factory. The default.
    #[default]
    AsFactory,
    /// Never: for handlers that requeue their keys themselves.
    Never,
    /// This period, at least [`Resync::MIN`].
    Every(Duration),
}

/// The delivery of changes while a handler is busy.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Delivery {
    /// Changes are collected per object, in order, with at most sixteen pending states. The number of pending objects
    /// is limited to the objects that exist or that the handler knows, plus 4,096 objects that were created and
    /// deleted in the meantime ([`Handler::missed`]). The default: right for level-triggered handlers.
    #[default]
    Coalesced,
    /// Every change is delivered, in the order of the changes across all objects. If more than `bound` changes (at
    /// least one) are pending, the handler is removed, and [`HandlerHandle::failure`](crate::HandlerHandle::failure)
    /// reports it. For handlers that keep a record of events. Objects that existed when the handler was added do not
    /// count.
    EveryEvent {
        /// The maximum number of pending changes.
        bound: usize,
    },
}

/// The reason why the informer removed a handler.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HandlerFailure {
    /// The handler has [`Delivery::EveryEvent`] and fell behind.
    #[error(
        "handler {handler:?} was removed: more than {bound} events were pending with Delivery::EveryEvent; make it \
         faster, raise the bound, or use Delivery::Coalesced"
    )]
    Overflow {
        /// The name of the handler.
        handler: String,
        /// The maximum number of pending changes.
        bound: usize,
    },
}

/// A handler of events. It receives one event at a time.
///
/// The store already contains the state of an event, or a newer state. A handler runs in its own task and delays only
/// itself. While it is busy, its changes are collected, in order per key and with every intermediate state. Two limits
/// apply:
///
/// - If more than sixteen states of one object (by UID) are pending, the oldest intermediate states are dropped. The
///   deletion is never dropped.
/// - If more than 4,096 objects are pending that were created and deleted before the handler received an event for
///   them, the oldest of these objects are dropped ([`missed`](Self::missed)).
///
/// A handler that must not miss a change uses [`Delivery::EveryEvent`]. If a handler panics, the panic is counted and
/// the next event is delivered.
pub trait Handler<T>: Send + 'static {
    /// Receives an event.
    fn handle(&mut self, event: &Event<T>);

    /// Called when objects were created and deleted and the handler will receive no event for them. The store contained
    /// them for a time, so a caller that read the store might have acted on them. A handler that wakes such callers
    /// must wake all of them.
    fn missed(&mut self) {}
}

impl<T, F: FnMut(&Event<T>) + Send + 'static> Handler<T> for F {
    fn handle(&mut self, event: &Event<T>) {
        self(event);
    }
}

/// Returns a handler that receives only the events of objects that match `predicate`. An object that starts to match is
/// delivered as added. An object that no longer matches is delivered as deleted, with the last state that matched; the
/// deletion is [inferred](DeletionEvidence::Inferred).
///
/// The predicate must depend on the object alone: it is called again for old states.
///
/// ```
/// use windlass_informer::{Cause, Event, Handler, filtered};
///
/// let (sender, events) = std::sync::mpsc::channel();
/// let mut even = filtered(|n: &u32| n % 2 == 0, move |event: &Event<u32>| sender.send(event.clone()).unwrap());
/// even.handle(&Event::Updated { old: 1, new: 2, cause: Cause::Watch });
/// assert_eq!(events.recv().unwrap(), Event::Added { object: 2, cause: Cause::Watch });
/// ```
pub fn filtered<T: Clone>(
    predicate: impl Fn(&T) -> bool + Send + 'static,
    handler: impl Handler<T>,
) -> impl Handler<T> {
    Filtered { predicate, handler }
}

struct Filtered<P, H> {
    predicate: P,
    handler: H,
}

impl<T: Clone, P: Fn(&T) -> bool + Send + 'static, H: Handler<T>> Handler<T> for Filtered<P, H> {
    fn handle(&mut self, event: &Event<T>) {
        let Event::Updated { old, new, cause } = event else {
            if (self.predicate)(event.object()) {
                self.handler.handle(event);
            }
            return;
        };
        match ((self.predicate)(old), (self.predicate)(new)) {
            (true, true) => self.handler.handle(event),
            (false, true) => self.handler.handle(&Event::Added { object: new.clone(), cause: *cause }),
            (true, false) => {
                let (last, observed) = (old.clone(), DeletionEvidence::Inferred);
                self.handler.handle(&Event::Deleted { last, observed, cause: *cause });
            }
            (false, false) => {}
        }
    }

    fn missed(&mut self) {
        self.handler.missed();
    }
}

impl<T> Event<T> {
    /// Returns the newest state of the event: the added object, the new state, or the last known state.
    pub fn object(&self) -> &T {
        match self {
            Event::Added { object, .. } => object,
            Event::Updated { new, .. } => new,
            Event::Deleted { last, .. } => last,
        }
    }

    /// Returns the same event with references to the states.
    pub fn as_ref(&self) -> Event<&T> {
        match self {
            Event::Added { object, cause } => Event::Added { object, cause: *cause },
            Event::Updated { old, new, cause } => Event::Updated { old, new, cause: *cause },
            Event::Deleted { last, observed, cause } => {
                Event::Deleted { last, observed: *observed, cause: *cause }
            }
        }
    }

    /// Returns the cause of the event.
    pub fn cause(&self) -> Cause {
        match self {
            Event::Added { cause, .. } | Event::Updated { cause, .. } | Event::Deleted { cause, .. } => {
                *cause
            }
        }
    }

    /// Returns the same event with `f` applied to each state.
    pub fn map<U>(self, mut f: impl FnMut(T) -> U) -> Event<U> {
        match self {
            Event::Added { object, cause } => Event::Added { object: f(object), cause },
            Event::Updated { old, new, cause } => Event::Updated { old: f(old), new: f(new), cause },
            Event::Deleted { last, observed, cause } => Event::Deleted { last: f(last), observed, cause },
        }
    }
}

impl Resync {
    /// The minimum period. Each resync visits the whole cache.
    pub const MIN: Duration = Duration::from_secs(1);
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    fn updated(old: u32, new: u32) -> Event<u32> {
        Event::Updated { old, new, cause: Cause::Watch }
    }

    fn added(object: u32) -> Event<u32> {
        Event::Added { object, cause: Cause::Watch }
    }

    fn deleted(last: u32, observed: DeletionEvidence) -> Event<u32> {
        Event::Deleted { last, observed, cause: Cause::Watch }
    }

    // parity: filtering-resource-event-handler, test-typed-resource-event-handler-funcs
    #[test]
    fn filter_turns_updates_that_cross_it_into_add_or_delete() {
        let cases = [
            (added(1), None),
            (added(2), Some(added(2))),
            (updated(1, 3), None),
            (updated(2, 4), Some(updated(2, 4))),
            (updated(1, 2), Some(added(2))),
            (updated(2, 1), Some(deleted(2, DeletionEvidence::Inferred))),
            (deleted(1, DeletionEvidence::Observed), None),
            (deleted(2, DeletionEvidence::Observed), Some(deleted(2, DeletionEvidence::Observed))),
        ];
        for (event, expected) in cases {
            let events = Arc::new(Mutex::new(Vec::new()));
            let log = Arc::clone(&events);
            let mut even = filtered(
                |n: &u32| n.is_multiple_of(2),
                move |event: &Event<u32>| log.lock().unwrap().push(event.clone()),
            );
            even.handle(&event);
            assert_eq!(*events.lock().unwrap(), Vec::from_iter(expected), "{event:?}");
        }
    }
}
