//! What handlers are told.
//!
//! Upstream overloads equal resource versions to mean "resync" and hands out tombstones in place of objects.
//! Here an [`Event`] says why it came ([`Cause`]), and a deletion carries the last known state and says
//! whether it was seen or inferred ([`DeletionEvidence`]).

use std::time::Duration;

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
        observed: DeletionEvidence,
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
pub enum DeletionEvidence {
    /// A watch said so; the last known state is the state at the end.
    Seen,
    /// It follows from something else: a list without it, another object in its place, bytes that cannot be
    /// decoded any more, or a filter that the object has left. States between the last known one and the end
    /// may have been missed.
    Inferred,
}

/// How a handler is told.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct HandlerOptions {
    /// How often it is told of every object although nothing happened.
    pub resync: Resync,
    /// What becomes of changes while it is busy.
    pub delivery: Delivery,
}

/// How often a handler is told of every object although nothing happened: an update from the state the store holds to
/// that same state, by [`Cause::Resync`]. Only who asked is told, and a list that is read again neither counts as a
/// resync nor puts one off.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Resync {
    /// As the factory's options say, for informers of a factory. The default.
    #[default]
    AsFactory,
    /// Never: for handlers whose users ask for another look themselves, per key.
    Never,
    /// This often. At least [`Resync::MIN`].
    Every(Duration),
}

/// What becomes of changes while a handler is busy.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Delivery {
    /// They are gathered by object, in order and with the states between, of which at most sixteen wait. The number of
    /// waiting objects is bounded by the number of objects that exist or that the handler knows, and 4,096 that came and
    /// went meanwhile ([`Handler::missed`]). The default: right for handlers that act on the state of things.
    #[default]
    Coalesced,
    /// Every change is told, in the order in which they happened across all objects. If more than `bound` changes (at
    /// least one) wait, the handler is ended, for it would miss some, and [its handle](crate::HandlerHandle::failure) says
    /// so. For handlers that write things down. Objects that existed when the handler was added do not count.
    EveryEvent {
        /// How many changes may wait.
        bound: usize,
    },
}

/// Why a handler was ended without having been removed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HandlerFailure {
    /// It asked for every event and fell behind.
    #[error(
        "handler {handler:?} was ended: more than {bound} changes waited for it, which asked for every event; make it \
         faster, raise the bound, or have its changes coalesced"
    )]
    FellBehind {
        /// Which handler.
        handler: String,
        /// How many changes may wait.
        bound: usize,
    },
}

/// Is told of changes, one at a time.
///
/// The store already holds what a handler is told of, or something newer. A handler runs in its own task
/// and delays only itself; while it is busy its changes are gathered, in order per key and with every state
/// between. Only if more than sixteen states of one object (by UID) wait are some of those in between dropped,
/// the oldest first; never the deletion. Only if more than 4,096 objects wait that came and went before the handler
/// received an event for them are the oldest of these dropped ([`missed`](Self::missed)). Who cannot miss any asks for [`Delivery::EveryEvent`]. If it panics the
/// panic is counted and the next change is told.
pub trait Handler<T>: Send + 'static {
    /// Takes notice of a change.
    fn handle(&mut self, event: &Event<T>);

    /// Takes notice that objects came and went of which the handler will receive no event. The store contained them for
    /// a time, so a caller that read it might have acted on them: a handler that wakes such callers must wake all of them.
    fn missed(&mut self) {}
}

impl<T, F: FnMut(&Event<T>) + Send + 'static> Handler<T> for F {
    fn handle(&mut self, event: &Event<T>) {
        self(event);
    }
}

/// A handler that is told only of objects for which `predicate` holds. An object that comes to pass it is told as
/// added, one that passes it no more as deleted, with the state that passed it last; its end is then
/// [inferred](Observation::Inferred).
///
/// What the predicate says must follow from the object alone: it is asked about old states again.
///
/// ```
/// use windlass_informer::{Cause, Event, Handler, filtered};
///
/// let (sender, told) = std::sync::mpsc::channel();
/// let mut even = filtered(|n: &u32| n % 2 == 0, move |event: &Event<u32>| sender.send(event.clone()).unwrap());
/// even.handle(&Event::Updated { old: 1, new: 2, cause: Cause::Watch });
/// assert_eq!(told.recv().unwrap(), Event::Added { object: 2, cause: Cause::Watch });
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
    /// The newest state the event carries: what was added, what it was updated to, or what was last known.
    pub fn object(&self) -> &T {
        match self {
            Event::Added { object, .. } => object,
            Event::Updated { new, .. } => new,
            Event::Deleted { last, .. } => last,
        }
    }

    /// The same event about references to the states.
    pub fn as_ref(&self) -> Event<&T> {
        match self {
            Event::Added { object, cause } => Event::Added { object, cause: *cause },
            Event::Updated { old, new, cause } => Event::Updated { old, new, cause: *cause },
            Event::Deleted { last, observed, cause } => {
                Event::Deleted { last, observed: *observed, cause: *cause }
            }
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

impl Resync {
    /// The shortest period: more often than this the whole cache is not worth looking through.
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
    fn what_crosses_a_filter_is_told_as_added_or_deleted() {
        let cases = [
            (added(1), None),
            (added(2), Some(added(2))),
            (updated(1, 3), None),
            (updated(2, 4), Some(updated(2, 4))),
            (updated(1, 2), Some(added(2))),
            (updated(2, 1), Some(deleted(2, DeletionEvidence::Inferred))),
            (deleted(1, DeletionEvidence::Seen), None),
            (deleted(2, DeletionEvidence::Seen), Some(deleted(2, DeletionEvidence::Seen))),
        ];
        for (event, expected) in cases {
            let told = Arc::new(Mutex::new(Vec::new()));
            let log = Arc::clone(&told);
            let mut even = filtered(
                |n: &u32| n.is_multiple_of(2),
                move |event: &Event<u32>| log.lock().unwrap().push(event.clone()),
            );
            even.handle(&event);
            assert_eq!(*told.lock().unwrap(), Vec::from_iter(expected), "{event:?}");
        }
    }
}
