//! An informer, with the type of its objects: what takes or gives objects, and casts. All else is
//! [`Informer`]'s.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

use crate::erased::{self, Object};
use crate::error::InformerError;
use crate::handle::HandlerHandle;
use crate::handler::{Event, Handler, HandlerOptions};
use crate::informer::Informer;
use crate::lister::Lister;

/// One kind and selection, kept in step with its source and shared by everyone who needs it. Cheap to clone.
pub struct SharedInformer<T> {
    informer: Arc<Informer>,
    object: PhantomData<fn() -> T>,
}

impl<T: Send + Sync + 'static> SharedInformer<T> {
    /// `informer` must be of a representation with these objects.
    pub(crate) fn of(informer: Arc<Informer>) -> Self {
        Self { informer, object: PhantomData }
    }

    /// The same informer, whatever type its objects have.
    pub fn erased(&self) -> &Arc<Informer> {
        &self.informer
    }

    /// A reader of the objects. It may be made before the informer is started, and is empty until then.
    pub fn lister(&self) -> Lister<T> {
        Lister::new(Arc::clone(&self.informer))
    }

    /// Sets what is done to every object after it was decoded and before it is stored: dropping what nobody reads, say.
    /// It runs once for every state that is decoded, deleted ones included.
    ///
    /// An object that it refuses, or panics at, or changes the name, the UID or the version of, is put in quarantine
    /// like one that cannot be decoded.
    ///
    /// # Errors
    ///
    /// [`InformerError::AlreadyStarted`] once the informer is started, [`InformerError::DuplicateTransform`] if it has
    /// one.
    pub fn set_transform<E: fmt::Display>(
        &self,
        transform: impl Fn(&mut T) -> Result<(), E> + Send + Sync + 'static,
    ) -> Result<(), InformerError> {
        self.informer.set_transform(Arc::new(move |object: &mut Object| {
            let object = Arc::get_mut(object).and_then(|object| object.downcast_mut());
            object.map_or_else(
                || Err("the decoder shares the object".to_owned()),
                |object| transform(object).map_err(|why| why.to_string()),
            )
        }))
    }

    /// Adds a handler, before the informer is started or at any time after.
    ///
    /// One that comes late is first told of everything there is, as additions by the initial list, then of
    /// what has changed since. Nobody else is held up by that.
    ///
    /// # Errors
    ///
    /// [`InformerError::Stopped`] once the informer is stopped; [`InformerError::ResyncTooShort`] if the factory's
    /// period of resyncs is too short.
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

    /// As [`add_handler`](Self::add_handler), told as the options say.
    ///
    /// # Errors
    ///
    /// [`InformerError::Stopped`] once the informer is shut down; [`InformerError::ResyncTooShort`].
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
        self.informer.add_handler(name, options, Box::new(Typed { handler, object: PhantomData }))
    }

    /// What of it is in memory, without keeping it there.
    #[cfg(test)]
    pub(crate) fn downgrade(&self) -> std::sync::Weak<Informer> {
        Arc::downgrade(&self.informer)
    }
}

/// A handler of objects of one type.
struct Typed<T, H> {
    handler: H,
    object: PhantomData<fn() -> T>,
}

impl<T: Send + Sync + 'static, H: Handler<Arc<T>>> Handler<Object> for Typed<T, H> {
    fn handle(&mut self, event: &Event<Object>) {
        self.handler.handle(&event.as_ref().map(erased::shared));
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
