//! What the caches of a manager hold.

use std::time::Duration;

use kube::Resource;
use windlass_informer::{FactoryOptions, KindOptions, Kinds, NamespaceSet, Resync, Selectors};
use windlass_object::Scoped;

/// What the caches of a manager hold.
#[derive(Clone, Debug)]
pub struct CacheOptions {
    /// The namespaces whose objects controllers see; they may join and leave while the process runs, and kinds without
    /// namespaces are not concerned. Default `None`: all of them. With a set, roles in those namespaces are enough, and
    /// each costs a list and a watch of every kind.
    pub namespaces: Option<NamespaceSet>,
    /// What every cache selects by, next to what its controller selects. Default: everything.
    pub selectors: Selectors,
    /// How often, at least, handlers receive every cached object again; the true period is drawn once between this
    /// and its double, so that replicas do not resync together. Zero for never, otherwise [`Resync::MIN`] (1 s) at
    /// least. Default 12 h.
    pub resync: Duration,
    /// Whether the objects' `managedFields` are kept. Default: no; they are a third of a typical object.
    pub keep_managed_fields: bool,
    /// How many bytes the cache of each kind may hold, counted by what its objects had on the wire. Default `None`: as many
    /// as there are.
    pub byte_budget: Option<u64>,
    /// Whether definitions of custom resources are followed, so that a kind that is installed is listed at once and not
    /// within a minute. Needs the right to list and watch them. Default: no.
    pub follow_definitions: bool,
    /// What differs for single kinds; [`kind`](Self::kind) sets it.
    pub kinds: Kinds,
}

impl CacheOptions {
    /// Sets what differs for the caches of `K`, instead of earlier options of that kind.
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

    /// The options of the factory of a process. What the process draws or sets itself is left out.
    pub(crate) fn factory(&self) -> FactoryOptions {
        FactoryOptions {
            namespaces: self.namespaces.clone(),
            selectors: self.selectors.clone(),
            keep_managed_fields: self.keep_managed_fields,
            byte_budget: self.byte_budget,
            follow_definitions: self.follow_definitions,
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
            byte_budget: None,
            follow_definitions: false,
            kinds: Kinds::default(),
        }
    }
}
