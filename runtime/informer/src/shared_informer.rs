//! A typed informer: the methods that take or return objects, and casts. All other methods are in [`Informer`].

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

use crate::erased::Codec;
use crate::error::InformerError;
use crate::handle::HandlerHandle;
use crate::handler::{Event, Handler, HandlerOptions};
use crate::informer::Informer;
use crate::lister::Lister;
use crate::object::Object;
use crate::settings::transform_of;

/// A cache of one kind and selection that follows its source. All its users share it. Cheap to clone.
pub struct SharedInformer<T> {
    informer: Arc<Informer>,
    object: PhantomData<fn() -> T>,
}

impl<T: Send + Sync + 'static> SharedInformer<T> {
    /// Creates the typed view. The objects of `informer` must have type `T`.
    pub(crate) fn of(informer: Arc<Informer>) -> Self {
        Self { informer, object: PhantomData }
    }

    /// Returns the same informer without the type of its objects.
    pub fn erased(&self) -> &Arc<Informer> {
        &self.informer
    }

    /// Returns a reader of the objects. It can be created before the informer is started and is empty until then.
    pub fn lister(&self) -> Lister<T> {
        Lister::new(Arc::clone(&self.informer))
    }

    /// Sets a function that changes every object after it is decoded and before it is stored, for example to drop
    /// fields that no controller reads. It runs once for every decoded state, deletions included.
    ///
    /// If the function returns an error, panics, or changes the name, the UID or the version, the object counts as
    /// undecodable.
    ///
    /// # Errors
    ///
    /// [`InformerError::AlreadyStarted`] once the informer is started, [`InformerError::DuplicateTransform`] if a
    /// transform is set already.
    pub fn set_transform<E: fmt::Display>(
        &self,
        transform: impl Fn(&mut T) -> Result<(), E> + Send + Sync + 'static,
    ) -> Result<(), InformerError> {
        self.informer.set_transform(transform_of(transform))
    }

    /// Adds a handler, before the informer is started or at any time after.
    ///
    /// A handler that is added later first receives all existing objects, as additions of the initial list, and then
    /// the changes since. This delays no other handler.
    ///
    /// # Errors
    ///
    /// [`InformerError::Stopped`] once the informer is stopped.
    ///
    /// # Panics
    ///
    /// If the informer is running and this is called outside a tokio runtime: the handler needs a task.
    pub fn add_handler(
        &self,
        name: &str,
        handler: impl Handler<Arc<T>>,
    ) -> Result<HandlerHandle, InformerError> {
        self.add_handler_with(name, HandlerOptions::default(), handler)
    }

    /// Adds a handler with options. See [`add_handler`](Self::add_handler).
    ///
    /// # Errors
    ///
    /// [`InformerError::Stopped`] once the informer is stopped; [`InformerError::ResyncTooShort`] if the resync period
    /// of the handler is too short.
    ///
    /// # Panics
    ///
    /// If the informer is running and this is called outside a tokio runtime: the handler needs a task.
    pub fn add_handler_with(
        &self,
        name: &str,
        options: HandlerOptions,
        handler: impl Handler<Arc<T>>,
    ) -> Result<HandlerHandle, InformerError> {
        self.informer.add_handler(
            name,
            options,
            Box::new(Typed { handler, codec: Arc::clone(&self.informer.codec), object: PhantomData }),
        )
    }

    /// Returns a weak reference to the informer.
    #[cfg(test)]
    pub(crate) fn downgrade(&self) -> std::sync::Weak<Informer> {
        Arc::downgrade(&self.informer)
    }
}

/// A handler of objects of one type.
struct Typed<T, H> {
    handler: H,
    codec: Arc<Codec>,
    object: PhantomData<fn() -> T>,
}

impl<T: Send + Sync + 'static, H: Handler<Arc<T>>> Handler<Object> for Typed<T, H> {
    fn handle(&mut self, event: &Event<Object>) {
        self.handler.handle(&event.as_ref().map(|object| self.codec.read_event(object)));
    }

    fn missed(&mut self) {
        self.handler.missed();
    }
}

impl<T> Deref for SharedInformer<T> {
    type Target = Informer;

    fn deref(&self) -> &Informer {
        &self.informer
    }
}

impl<T> Clone for SharedInformer<T> {
    fn clone(&self) -> Self {
        Self { informer: Arc::clone(&self.informer), object: PhantomData }
    }
}

impl<T> fmt::Debug for SharedInformer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.informer.fmt(f)
    }
}

#[cfg(test)]
mod tests;
