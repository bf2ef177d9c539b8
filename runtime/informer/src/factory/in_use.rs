//! Informers that last as long as they are used.
//!
//! Guarantees: as long as an [`RefCountedInformer`], a [`Lister`] that it gave, an index made from such a lister or a handler that was
//! added to it is there, the informer continues; with the last of them it is stopped, its watches end and its memory is freed. Asked for again it starts
//! again. One that was also asked for for good ([`InformerFactory::informer`](super::InformerFactory::informer)) stays.

use std::fmt;
use std::sync::{Arc, Weak};

use futures_util::FutureExt as _;

use super::{Identity, Inner, State};
use crate::error::InformerError;
use crate::handle::HandlerHandle;
use crate::handler::{Event, Handler, HandlerOptions};
use crate::informer::Informer;
use crate::lister::Lister;
use crate::shared_informer::SharedInformer;

/// An informer that lasts as long as it is used: by this or a clone of it, by a lister or a handler from here. Cheap to
/// clone. Somebody who stops it by name ([`InformerFactory::stop`](super::InformerFactory::stop)) stops it for all.
pub struct RefCountedInformer<T> {
    pub(super) informer: SharedInformer<T>,
    pub(super) hold: Arc<InformerRef>,
}

/// While there is one, its informer is not stopped for want of use.
pub(crate) struct InformerRef {
    factory: Weak<Inner>,
    identity: Identity,
}

impl<T: Send + Sync + 'static> RefCountedInformer<T> {
    /// The informer. A clone of it does not keep it going.
    pub fn informer(&self) -> &SharedInformer<T> {
        &self.informer
    }

    /// A reader of the objects, which keeps the informer going as long as it or a clone of it is there.
    pub fn lister(&self) -> Lister<T> {
        self.informer.lister().holding(Arc::clone(&self.hold) as _)
    }

    /// As [`SharedInformer::add_handler`]. The handler keeps the informer going until it is removed.
    ///
    /// # Errors
    ///
    /// As [`SharedInformer::add_handler`].
    ///
    /// # Panics
    ///
    /// If the informer is running and this is called outside a tokio runtime: the handler needs a task.
    pub fn add_handler(
        &self,
        name: &str,
        handler: impl Handler<Arc<T>>,
    ) -> Result<HandlerHandle, InformerError> {
        let handler = RetainingHandler { handler, _hold: Arc::clone(&self.hold) };
        self.informer.add_handler_with(name, HandlerOptions::default(), handler)
    }
}

/// A handler that keeps its informer going.
struct RetainingHandler<H> {
    handler: H,
    _hold: Arc<InformerRef>,
}

impl<T, H: Handler<T>> Handler<T> for RetainingHandler<H> {
    fn handle(&mut self, event: &Event<T>) {
        self.handler.handle(event);
    }
}

impl State {
    /// Keeps an informer going, if it is not for good: one that was made just now (`is_new`) is not.
    pub(super) fn hold(
        &mut self,
        factory: &Arc<Inner>,
        identity: &Identity,
        is_new: bool,
    ) -> Arc<InformerRef> {
        let new = || Arc::new(InformerRef { factory: Arc::downgrade(factory), identity: identity.clone() });
        if is_new {
            let hold = new();
            self.holds.insert(identity.clone(), Arc::downgrade(&hold));
            return hold;
        }
        match self.holds.get_mut(identity) {
            // For good: this holds nothing.
            None => new(),
            // Between the end of the last use and the stop that follows from it somebody may come.
            Some(held) => held.upgrade().unwrap_or_else(|| {
                let hold = new();
                *held = Arc::downgrade(&hold);
                hold
            }),
        }
    }

    /// Takes out an informer that is not for good and that nobody uses.
    fn part_with_unused(&mut self, identity: &Identity) -> Option<Arc<Informer>> {
        let is_unused = self.holds.get(identity).is_some_and(|held| held.strong_count() == 0);
        is_unused.then(|| self.take_out(identity)).flatten()
    }
}

impl Inner {
    /// Somebody was the last to use an informer.
    fn unused(&self, identity: &Identity) {
        let (stopped, _ended) = {
            let mut state = self.lock();
            (state.part_with_unused(identity), state.take_ended())
        };
        // It stops at the first look; what is left is to wait for its tasks, which a shutdown does.
        let _waited_for_by_others = stopped.as_ref().and_then(|informer| informer.stop().now_or_never());
    }
}

impl Drop for InformerRef {
    fn drop(&mut self) {
        if let Some(factory) = self.factory.upgrade() {
            factory.unused(&self.identity);
        }
    }
}

impl<T> Clone for RefCountedInformer<T> {
    fn clone(&self) -> Self {
        Self { informer: self.informer.clone(), hold: Arc::clone(&self.hold) }
    }
}

impl<T> fmt::Debug for RefCountedInformer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("InUse").field(&self.informer).finish()
    }
}
