//! Options of the caches of a manager.

use std::time::Duration;

use kube::Resource;
use windlass_informer::{
    FactoryOptions, KindOptions, KindOptionsMap, NamespaceSet, ObjectForm, Resync, Selectors,
};
use windlass_object::Scoped;

/// Options of the caches of a manager.
#[derive(Clone, Debug)]
pub struct CacheOptions {
    /// The namespaces whose objects controllers observe. Namespaces can join and leave at run time; kinds without
    /// namespaces are not affected. Default `None`: all namespaces. With a set, roles in those namespaces are
    /// sufficient, and each namespace costs a list and a watch of every kind.
    pub namespaces: Option<NamespaceSet>,
    /// Selectors that every cache applies in addition to the selectors of its controller. Default: none.
    pub selectors: Selectors,
    /// Minimum interval at which handlers receive every cached object again. The effective period is picked once at
    /// random between this value and twice this value, so that replicas do not resync at the same time. Zero disables
    /// resyncs; other values must be at least [`Resync::MIN`] (1 s). Default 12 h.
    pub resync: Duration,
    /// Whether caches keep the objects' `managedFields`. Default: no; they are a third of a typical object.
    pub keep_managed_fields: bool,
    /// The form in which caches store objects. Default: compact, which takes a fraction of the memory; a read decodes
    /// the object unless it was read or changed recently.
    pub form: ObjectForm,
    /// Limit of the bytes that the cache of each kind can hold, counted in the size of its objects on the wire. Default
    /// `None`: no limit.
    pub byte_budget: Option<u64>,
    /// Whether to watch CustomResourceDefinitions, so that a newly installed kind is listed immediately instead of
    /// within a minute. Requires permission to list and watch them. Default: no.
    pub watch_crds: bool,
    /// Options of single kinds, set by [`kind`](Self::kind).
    pub kinds: KindOptionsMap,
}

impl CacheOptions {
    /// Sets the options of the caches of `K` and replaces earlier options of that kind.
    ///
    /// # Examples
    /// ```
    /// use k8s_openapi::api::core::v1::Pod;
    /// use windlass_manager::{CacheOptions, KindOptions};
    ///
    /// let mut cache = CacheOptions::default();
    /// cache.kind(KindOptions::<Pod>::new().transform(|pod| pod.status = None));
    /// ```
    pub fn kind<K>(&mut self, options: KindOptions<K>) -> &mut Self
    where
        K: Resource<DynamicType = (), Scope: Scoped> + Send + Sync + 'static,
    {
        self.kinds.set(options);
        self
    }

    pub(crate) fn resyncs_too_often(&self) -> bool {
        !self.resync.is_zero() && self.resync < Resync::MIN
    }

    /// Returns the options of the informer factory, without those that the process sets itself.
    pub(crate) fn factory(&self) -> FactoryOptions {
        FactoryOptions {
            namespaces: self.namespaces.clone(),
            selectors: self.selectors.clone(),
            keep_managed_fields: self.keep_managed_fields,
            form: self.form,
            byte_budget: self.byte_budget,
            watch_crds: self.watch_crds,
            kinds: self.kinds.clone(),
            ..FactoryOptions::default()
        }
    }
}

impl Default for CacheOptions {
    fn default() -> Self {
        Self {
            namespaces: None,
            selectors: Selectors::default(),
            resync: Duration::from_secs(12 * 60 * 60),
            keep_managed_fields: false,
            form: ObjectForm::default(),
            byte_budget: None,
            watch_crds: false,
            kinds: KindOptionsMap::default(),
        }
    }
}
