//! Reads of a store without the object type. Listers and indexes of all types share them.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use kube::core::ObjectMeta;
use windlass_object::{LabelSelector, ObjectKey};

use crate::informer::Informer;
use crate::object::Object;
use crate::undecodable::{UndecodableError, UndecodableObject};

/// The untyped part of listers and indexes. It keeps the informer alive.
#[derive(Clone)]
pub(crate) struct Reader {
    pub(crate) informer: Arc<Informer>,
    /// The reference that keeps a reference-counted informer running.
    pub(crate) reference: Option<Arc<dyn Any + Send + Sync>>,
}

impl Reader {
    /// Collects the objects that `walk` visits, as their type.
    pub(crate) fn collected<T: Send + Sync + 'static>(
        &self,
        walk: impl FnOnce(&mut dyn FnMut(&Object)),
    ) -> Vec<Arc<T>> {
        let mut objects = Vec::new();
        walk(&mut |object| objects.push(self.informer.codec.read(object)));
        objects
    }

    /// Returns the object of that key.
    ///
    /// # Errors
    /// If it exists and cannot be decoded.
    pub(crate) fn get(&self, key: &ObjectKey) -> Result<Option<Object>, UndecodableError> {
        let snapshot = self.informer.store.snapshot();
        match snapshot.undecodable().get(key) {
            Some(held) => Err(self.unreadable(held)),
            None => Ok(snapshot.objects().get(key).cloned()),
        }
    }

    pub(crate) fn check_decodable(
        &self,
        namespace: Option<&str>,
        among: &dyn Fn(&ObjectMeta) -> bool,
    ) -> Result<(), UndecodableError> {
        let snapshot = self.informer.store.snapshot();
        let is_inside = |held: &UndecodableObject| namespace.is_none() || held.key.namespace() == namespace;
        let is_among =
            |held: &&UndecodableObject| is_inside(held) && held.metadata.as_deref().is_none_or(among);
        let found = snapshot.undecodable().values().find(is_among);
        found.map_or(Ok(()), |held| Err(self.unreadable(held)))
    }

    fn unreadable(&self, held: &UndecodableObject) -> UndecodableError {
        let kind = Box::new(self.informer.codec.kind.clone());
        UndecodableError { kind, key: held.key.clone(), reason: Arc::clone(&held.error) }
    }

    /// Visits all objects of one namespace, or of all.
    pub(crate) fn each(&self, namespace: Option<&str>, visit: &mut dyn FnMut(&Object)) {
        let snapshot = self.informer.store.snapshot();
        let Some(namespace) = namespace else { return snapshot.objects().values().for_each(visit) };
        // Bounds on both sides, because reading the key of each object would double the time.
        let (first, end) =
            (ObjectKey::namespaced(namespace, ""), ObjectKey::namespaced(&format!("{namespace}\0"), ""));
        snapshot.objects().range(first..end).for_each(|(_, object)| visit(object));
    }

    pub(crate) fn selected(
        &self,
        namespace: Option<&str>,
        selector: &LabelSelector,
        visit: &mut dyn FnMut(&Object),
    ) {
        self.each(namespace, &mut |object| {
            if self.informer.codec.matches(object, selector) {
                visit(object);
            }
        });
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.informer.fmt(f)
    }
}
