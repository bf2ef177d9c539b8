//! Selects kube's client by the scope of a kind.

use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::{Api, Resource};

/// The scope of a kind, which determines where its objects are stored.
pub trait ApiScope: Sized {
    /// Returns the client for the objects of `K`. A cluster-scoped kind ignores `namespace`.
    fn api<K: Resource<DynamicType = (), Scope = Self>>(client: kube::Client, namespace: &str) -> Api<K>;
}

impl ApiScope for NamespaceResourceScope {
    fn api<K: Resource<DynamicType = (), Scope = Self>>(client: kube::Client, namespace: &str) -> Api<K> {
        Api::namespaced(client, namespace)
    }
}

impl ApiScope for ClusterResourceScope {
    fn api<K: Resource<DynamicType = (), Scope = Self>>(client: kube::Client, _: &str) -> Api<K> {
        Api::all(client)
    }
}
