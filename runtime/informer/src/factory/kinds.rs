//! Options for the informers of one kind.

use std::any::TypeId;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use kube::Resource;
use windlass_object::{GroupResource, ResourceKind, Scoped};

use super::selectors::Selectors;
use crate::compact::ObjectForm;
use crate::namespaces::NamespaceSet;
use crate::settings::{Transform, transform_of};

/// Options for the informers of `K`. If a field is `None`, the options of the factory apply.
#[derive(Clone)]
#[non_exhaustive]
pub struct KindOptions<K> {
    /// The selectors, in place of the factory's selectors.
    pub selectors: Option<Selectors>,
    /// The namespaces to follow. Ignored for kinds without namespaces.
    pub namespaces: Option<NamespaceSet>,
    /// The maximum number of bytes that each informer holds.
    pub byte_budget: Option<u64>,
    /// Whether the objects keep `managedFields`.
    pub keep_managed_fields: Option<bool>,
    /// The form in which objects are stored. Transformed objects are stored decoded.
    pub form: Option<ObjectForm>,
    transform: Option<Transform>,
    object: PhantomData<fn(K)>,
}

impl<K: Resource + Send + Sync + 'static> KindOptions<K> {
    /// Returns options that change nothing.
    pub fn new() -> Self {
        Self {
            selectors: None,
            namespaces: None,
            byte_budget: None,
            keep_managed_fields: None,
            form: None,
            transform: None,
            object: PhantomData,
        }
    }

    /// Changes every object before it is stored, to drop fields that no controller of this process reads. Informers of
    /// the same kind in another representation, such as metadata only, are not affected.
    ///
    /// A controller that replaces whole objects of the kind fails at setup. A patch of a list sends the cached list: do
    /// not transform finalizers or elements of lists that controllers change.
    #[must_use]
    pub fn transform(mut self, change: impl Fn(&mut K) + Send + Sync + 'static) -> Self {
        let change = move |object: &mut K| {
            change(object);
            Ok::<_, Infallible>(())
        };
        self.transform = Some(transform_of(change));
        self
    }
}

impl<K: Resource + Send + Sync + 'static> Default for KindOptions<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K> fmt::Debug for KindOptions<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KindOptions")
            .field("selectors", &self.selectors)
            .field("transform", &self.transform.is_some())
            .finish_non_exhaustive()
    }
}

/// The options of single kinds.
#[derive(Clone, Debug, Default)]
pub struct KindOptionsMap {
    of: BTreeMap<GroupResource, ErasedKindOptions>,
}

#[derive(Clone)]
pub(super) struct ErasedKindOptions {
    pub(super) selectors: Option<Selectors>,
    pub(super) namespaces: Option<NamespaceSet>,
    pub(super) byte_budget: Option<u64>,
    pub(super) keep_managed_fields: Option<bool>,
    pub(super) form: Option<ObjectForm>,
    /// The transform, for objects of this type.
    transform: Option<(TypeId, Transform)>,
}

impl KindOptionsMap {
    /// Sets the options of `K` and replaces earlier ones.
    pub fn set<K>(&mut self, options: KindOptions<K>) -> &mut Self
    where
        K: Resource<DynamicType = (), Scope: Scoped> + Send + Sync + 'static,
    {
        let KindOptions { selectors, namespaces, byte_budget, keep_managed_fields, form, transform, .. } =
            options;
        let transform = transform.map(|transform| (TypeId::of::<K>(), transform));
        let of_kind =
            ErasedKindOptions { selectors, namespaces, byte_budget, keep_managed_fields, form, transform };
        self.of.insert(ResourceKind::of::<K>().group_resource(), of_kind);
        self
    }

    /// Returns whether the stored objects of this kind differ from the server's objects.
    pub fn has_transform(&self, resource: &GroupResource) -> bool {
        self.get(resource).is_some_and(|of_kind| of_kind.transform.is_some())
    }

    /// Returns the resources that have options.
    pub fn resources(&self) -> impl Iterator<Item = &GroupResource> {
        self.of.keys()
    }

    pub(super) fn get(&self, resource: &GroupResource) -> Option<&ErasedKindOptions> {
        self.of.get(resource)
    }
}

impl ErasedKindOptions {
    /// Returns the transform of objects of this type.
    pub(super) fn transform(&self, object: TypeId) -> Option<Transform> {
        self.transform.as_ref().filter(|(of, _)| *of == object).map(|(_, transform)| Arc::clone(transform))
    }
}

impl fmt::Debug for ErasedKindOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ErasedKindOptions")
            .field("selectors", &self.selectors)
            .field("transform", &self.transform.is_some())
            .finish_non_exhaustive()
    }
}
