//! Reference-counted informers.
//!
//! Guarantees: an informer keeps running while a [`RefCountedInformer`] exists, or a [`Lister`] from it, or an index of
//! such a lister. When the last of these is dropped, the informer is stopped, its watches are closed and its memory is
//! freed. The next request starts it again. A handler does not keep the informer running, unless it owns such a lister.
//! An informer that was also requested with [`InformerFactory::informer`](super::InformerFactory::informer) is not
//! stopped.

use std::fmt;
use std::sync::{Arc, Weak};

use futures_util::FutureExt as _;

use super::{Identity, Inner, State};
use crate::informer::Informer;
use crate::lister::Lister;
use crate::shared_informer::SharedInformer;

/// A reference-counted informer. It runs while this value, a clone, or a lister from it exists. Cheap to clone.
/// [`InformerFactory::stop`](super::InformerFactory::stop) stops it for all holders.
pub struct RefCountedInformer<T> {
    pub(super) informer: SharedInformer<T>,
    pub(super) reference: Arc<InformerRef>,
}

/// A reference to an informer. While one exists, the informer is not stopped for lack of use.
pub(crate) struct InformerRef {
    factory: Weak<Inner>,
    identity: Identity,
}

impl<T: Send + Sync + 'static> RefCountedInformer<T> {
    /// Returns the informer. A clone of it does not keep it running.
    pub fn informer(&self) -> &SharedInformer<T> {
        &self.informer
    }

    /// Returns a reader of the objects. The reader and its clones keep the informer running.
    pub fn lister(&self) -> Lister<T> {
        self.informer.lister().holding(Arc::clone(&self.reference) as _)
    }
}

impl State {
    /// Returns a reference that keeps an informer running, unless it is permanent. A new informer (`is_new`) is not
    /// permanent.
    pub(super) fn reference(
        &mut self,
        factory: &Arc<Inner>,
        identity: &Identity,
        is_new: bool,
    ) -> Arc<InformerRef> {
        let new = || Arc::new(InformerRef { factory: Arc::downgrade(factory), identity: identity.clone() });
        if is_new {
            let hold = new();
            self.references.insert(identity.clone(), Arc::downgrade(&hold));
            return hold;
        }
        match self.references.get_mut(identity) {
            // Permanent: the reference has no effect.
            None => new(),
            // A request can arrive between the last drop and the stop that follows.
            Some(held) => held.upgrade().unwrap_or_else(|| {
                let hold = new();
                *held = Arc::downgrade(&hold);
                hold
            }),
        }
    }

    /// Removes an informer that is not permanent and has no holders.
    fn remove_unreferenced(&mut self, identity: &Identity) -> Option<Arc<Informer>> {
        let is_unreferenced = self.references.get(identity).is_some_and(|held| held.strong_count() == 0);
        is_unreferenced.then(|| self.take_out(identity)).flatten()
    }
}

impl Inner {
    /// Stops an informer whose last reference was dropped.
    fn on_last_drop(&self, identity: &Identity) {
        let (stopped, _stopped) = {
            let mut state = self.lock();
            (state.remove_unreferenced(identity), state.take_stopped())
        };
        // One poll cancels it; `InformerFactory::shutdown` waits for its tasks.
        let _waited_for_by_others = stopped.as_ref().and_then(|informer| informer.stop().now_or_never());
    }
}

impl Drop for InformerRef {
    fn drop(&mut self) {
        if let Some(factory) = self.factory.upgrade() {
            factory.on_last_drop(&self.identity);
        }
    }
}

impl<T> Clone for RefCountedInformer<T> {
    fn clone(&self) -> Self {
        Self { informer: self.informer.clone(), reference: Arc::clone(&self.reference) }
    }
}

impl<T> fmt::Debug for RefCountedInformer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RefCountedInformer").field(&self.informer).finish()
    }
}
