//! From the scope of a kind to kube's client for its objects.

use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::{Api, Resource};

/// The scope of a kind, which says where its objects are found.
pub trait ApiScope: Sized {
    /// The client for the objects of `K`. A kind without namespaces ignores `namespace`.
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
